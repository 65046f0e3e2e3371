"""The rules of docs/architecture.md, read off the syntax trees without running the code."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from dask_mcsvm.formulations import FORMULATIONS, SHORT_NAMES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dask_mcsvm"

# A module imports only from lower numbers; within a folder its files may import each other.
LAYER = {
    "checks": 0,
    "errors": 0,
    "formulations": 1,
    "storage": 1,
    "solvers": 2,
    "data": 3,
    "graphs": 4,
    "plugin": 4,
    "progress": 4,
    "training": 5,
    "estimators": 6,
    "report": 7,
    "cli": 8,
}

# Third-party library -> the modules that may import it (patterns without the package's name).
# NumPy and SciPy are at home everywhere; a library without a row is not a dependency of ours.
ONLY_IN = {
    "numpy": ["*"],
    "scipy": ["*"],
    "numba": ["solvers", "solvers.*"],
    "llvmlite": ["solvers.kernels.simd"],
    "zarr": ["storage", "storage.*"],
    "h5py": ["storage.elements"],
    "zstandard": ["storage.libsvm"],
    "dask": [
        "storage.dataset*",
        "storage._write",
        "data.*",
        "graphs",
        "graphs.*",
        "training",
        "training.*",
        "cli",
        "cli.*",
    ],
    "distributed": ["plugin", "training", "training.*", "progress", "cli", "cli.*"],
    "sklearn": ["errors", "data.validation", "estimators", "estimators.*", "cli", "cli.*"],
    "joblib": ["data.validation"],
    "threadpoolctl": ["solvers.splitting.blas"],
    "IPython": ["progress"],
    "rich": ["progress"],
    "tqdm": ["progress"],
    "matplotlib": ["report", "report.*"],
    "jinja2": ["report._page"],
    "click": ["cli", "cli.*"],
}

# Modules that may ask for a formulation by its name, and for which, each once.
NAMES_ASKED_FOR = {"solvers.kernels.steps": sorted(FORMULATIONS)}  # kernel types, which are Numba's

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 80

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
FILES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    """``solvers/sdm/sweeps.py`` -> ``solvers.sdm``, ``solvers/__init__.py`` -> ``solvers``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import, also inside functions and TYPE_CHECKING blocks."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield node.lineno, alias.name
            case ast.ImportFrom():
                source = absolute(module, node.level, node.module)
                for alias in node.names:
                    yield node.lineno, f"{source}.{alias.name}"
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def absolute(module: str, level: int, name: str | None) -> str:
    """What ``from <level dots><name> import`` means in `module`."""
    if level == 0:
        return name or ""
    parts = ["dask_mcsvm", *module.split(".")]
    up = level - (PACKAGE / module).is_dir()  # an __init__ is one level closer to its folder
    return ".".join([*parts[: len(parts) - up], *filter(None, [name])])


def broken_rules(module: str, source: str) -> list[str]:
    """What `module` imports and must not, one sentence each."""
    here = module.split(".")[0]
    if here not in LAYER:
        return [f"{module}: this room has no number; give it one in LAYER"]
    broken = []
    for line, name in imports(module, ast.parse(source)):
        library, *rest = name.split(".")
        where = f"{module}:{line}"
        if library == "dask_mcsvm":
            why = own_import(here, rest)
            broken += [f"{where}: {why}"] if why else []
        elif library not in sys.stdlib_module_names:
            allowed = ONLY_IN.get(library, [])
            if not any(fnmatch(module, pattern) for pattern in allowed):
                broken.append(f"{where}: imports {library}, which belongs to {allowed or 'nobody'}")
    return broken


def own_import(here: str, rest: list[str]) -> str | None:
    """Why the room `here` must not import ``dask_mcsvm.<rest>``, or None."""
    if rest == ["__version__"]:
        return None
    # A public name taken from the package itself comes from the estimators.
    there = rest[0] if rest and rest[0] in LAYER else "estimators"
    if there == here:
        return None
    if LAYER[there] < LAYER[here]:
        private = [name for name in rest if name.startswith("_")]
        return f"{here} must not import {private[0]}, private to {there}" if private else None
    return f"{here} ({LAYER[here]}) must not import {there} ({LAYER[there]})"


def names_asked_for(source: str) -> list[str]:
    """Names of formulations that a comparison, a key or a match decides by, in order.

    A name as an argument, a default or in a message decides nothing.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare():
                places = [node.left, *node.comparators]
            case ast.Dict():
                places = [key for key in node.keys if key is not None]
            case ast.Subscript(slice=place) | ast.MatchValue(value=place):
                places = [place]
            case ast.Call(func=ast.Attribute(attr="get" | "pop" | "setdefault" | "startswith")):
                places = node.args[:1]
            case _:
                continue
        parts = [part for place in places for part in ast.walk(place)]
        found += [part.value for part in parts if isinstance(part, ast.Constant)]
    names = {*FORMULATIONS, *SHORT_NAMES}
    return sorted(value for value in found if isinstance(value, str) and value in names)


def function_lengths(source: str) -> Iterator[tuple[str, int]]:
    """Name and lines of every function, without its docstring and the functions defined in it.

    Those count for themselves: a Numba overload is a shelf of implementations, one per type.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, FUNCTION):
            inner = functions_in(node)
            docstring = node.body[:1] if ast.get_docstring(node) is not None else []
            yield node.name, lines(node) - sum(map(lines, [*inner, *docstring]))


def functions_in(node: ast.AST) -> list[ast.stmt]:
    """Functions defined in `node`, also under an if or with, but not those inside each other."""
    found: list[ast.stmt] = []
    for child in ast.iter_child_nodes(node):
        found += [child] if isinstance(child, FUNCTION) else functions_in(child)
    return found


def lines(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_the_package_is_where_we_look() -> None:
    assert {"__init__", "errors"} <= {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down_and_libraries_stay_in_their_rooms(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return  # the front door: it may name every room, and imports none of them (tested below)
    assert broken_rules(module_name(path), path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_and_functions_stay_short(path: Path) -> None:
    source = path.read_text("utf-8")
    assert len(source.splitlines()) <= MAX_FILE_LINES
    long = {name: n for name, n in function_lengths(source) if n > MAX_FUNCTION_LINES}
    assert long == {}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_room_but_formulations_asks_for_a_formulation_by_its_name(path: Path) -> None:
    module = module_name(path)
    if module.split(".")[0] != "formulations":
        expected = NAMES_ASKED_FOR.get(module, [])
        assert names_asked_for(path.read_text("utf-8")) == expected, "look up a fact instead"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('if form == "one_vs_rest": pass', ["one_vs_rest"]),
        ('own = "cs" != form', ["cs"]),
        ('form in ("crammer_singer", "weston_watkins")', ["crammer_singer", "weston_watkins"]),
        ('loss = {"lee_lin_wahba": 1}[form]', ["lee_lin_wahba"]),
        ('table.get("ovr", 0)', ["ovr"]),
        ('table["llw"]', ["llw"]),
        ('match form:\n    case "ww" | "cs": pass', ["cs", "ww"]),
        ('def f(form="one_vs_rest"): return g("cs", name=form)', []),
        ('FORMULATIONS[name].title == "sdm"', []),
        ('raise ValueError("use one_vs_rest")', []),
    ],
)
def test_names_asked_for(source: str, found: list[str]) -> None:
    assert names_asked_for(source) == found


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("errors", "import dask_mcsvm.solvers.duals", "errors (0) must not import solvers (2)"),
        ("solvers.sdm", "from dask_mcsvm.graphs import X", "solvers (2) must not import graphs"),
        ("training", "def f():\n    from dask_mcsvm.cli import mcsvm", "training:2: training (5)"),
        ("training", "from dask_mcsvm import estimators", "must not import estimators (6)"),
        ("training", "from dask_mcsvm import LinearMCSVC", "must not import estimators (6)"),
        ("graphs.rounds", "from ..training import Run", "graphs (4) must not import training (5)"),
        ("graphs.rounds", "from .. import training", "graphs (4) must not import training (5)"),
        ("formulations", "from ..solvers import sdm", "must not import solvers"),
        ("plugin", "def f():\n    import numba", "plugin:2: imports numba"),
        ("formulations.ww", "import dask.array as da", "imports dask"),
        ("storage.model", "import dask", "imports dask"),
        ("training", "import_module('zarr')", "imports zarr"),
        ("training", "importlib.import_module('sklearn.svm')", "imports sklearn"),
        ("estimators.linear", "import pandas", "which belongs to nobody"),
        ("attic", "", "has no number"),
        (
            "graphs.rounds",
            "from ..solvers.sdm._x import y",
            "import _x, private to solvers",
        ),
        (
            "graphs.rounds",
            "from ..solvers.sdm.x import _y",
            "import _y, private to solvers",
        ),
    ],
)
def test_the_rule_sees(module: str, source: str, complaint: str) -> None:
    (found,) = broken_rules(module, source)
    assert complaint in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("solvers.sdm", "import numba\nfrom dask_mcsvm.solvers.kernels.jit import kernel"),
        ("solvers.kernels.rows", "from .jit import kernel\nfrom . import simd"),
        ("solvers.duals", "from dask_mcsvm.formulations import FORMULATIONS"),
        ("solvers", "from .sdm import sweep\nfrom . import _rows"),
        ("storage.dataset_csr", "import dask, zarr"),
        ("storage.model", "from dask_mcsvm import __version__"),
        ("estimators.linear", "from dask_mcsvm import training, errors"),
        ("cli", "def demo():\n    from dask_mcsvm import LinearMCSVC"),
    ],
)
def test_the_rule_allows(module: str, source: str) -> None:
    assert broken_rules(module, source) == []


def test_one_loop_drives_every_run() -> None:
    """Epochs of linear fits are asked for in one place, whatever runs them."""
    callers = {
        str(path.relative_to(PACKAGE))
        for path in (PACKAGE / "training").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "advance"
    }
    assert callers == {"training/loop.py"}


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.parent.name == "graphs"], ids=lambda p: p.name
)
def test_graphs_build_graphs(path: Path) -> None:
    """What needs no Dask is a solver's."""
    if path.name != "__init__.py":
        tree = ast.parse(path.read_text("utf-8"))
        assert any(name.startswith("dask.") for _, name in imports(module_name(path), tree))


def test_a_docstring_does_not_make_a_function_long() -> None:
    source = 'def f(x):\n    """One\n\n    two.\n    """\n    return x\n'
    assert list(function_lengths(source)) == [("f", 2)]


def test_an_inner_function_is_measured_for_itself() -> None:
    source = "def f(x):\n  if x:\n    def g(y):\n      y += 1\n      return y\n    return g\n"
    assert list(function_lengths(source)) == [("f", 3), ("g", 3)]


def run_python(code: str) -> str:
    """What `code` prints in a fresh interpreter that turns warnings into errors."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["dask_mcsvm", "dask_mcsvm.cli"])
def test_importing_is_light(module: str) -> None:
    heavy = ["numba", "dask", "distributed", "sklearn", "scipy", "zarr", "numpy", "matplotlib"]
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    assert run_python(code).strip() == "[]"


def test_importing_takes_little_time() -> None:
    # CPU time, so that a busy machine does not fail the test; the best of three, for a cold disk.
    code = "import time; t = time.process_time(); import dask_mcsvm; print(time.process_time() - t)"
    assert min(float(run_python(code)) for _ in range(3)) < 0.1


def test_public_names_are_loaded_on_first_use() -> None:
    code = (
        "import dask_mcsvm as m; assert 'LinearMCSVC' in dir(m) and 'LinearMCSVC' not in vars(m);"
        "print(m.LinearMCSVC.__module__.split('.')[1], m.LinearMCSVC is vars(m)['LinearMCSVC'])"
    )
    assert run_python(code).split() == ["estimators", "True"]


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import dask_mcsvm

    with pytest.raises(AttributeError, match="module 'dask_mcsvm' has no attribute 'LinearSVC'"):
        _ = dask_mcsvm.LinearSVC
