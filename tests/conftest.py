"""What every test needs before it is imported: a Numba cache that is never stale, a profile.

And the order in which workers take files.
"""

import os
import signal
import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from hypothesis import settings

# Where `import dask_mcsvm` will find it, in the tree or installed; find_spec imports nothing.
_spec = find_spec("dask_mcsvm")
assert _spec is not None, "dask_mcsvm is not installed; type: pip install -e '.[test]'"
assert _spec.origin is not None
SOLVERS = Path(_spec.origin).parent / "solvers"


def _numba_cache() -> Path:
    """A folder of this user's own, named after the text of all kernels.

    Numba looks only at the file of the function it caches: after an edit of a helper in another
    file it would go on running the old code.
    """
    kernels = sorted(SOLVERS.rglob("*.py"))
    stamp = sha256(b"".join(p.name.encode() + p.read_bytes() for p in kernels)).hexdigest()[:12]
    user = str(os.getuid()) if hasattr(os, "getuid") else "user"
    base = Path(tempfile.gettempdir(), f"dask_mcsvm-{user}")
    base.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and base.stat().st_uid != os.getuid():
        # Someone else's folder, and a cache is code that will run: keep out.
        base = Path(tempfile.mkdtemp(prefix="dask_mcsvm-"))
    # Numba does not ask whether a cached kernel was compiled with bounds checking.
    return base / (stamp + "-checked" * bool(os.environ.get("NUMBA_BOUNDSCHECK")))


os.environ["NUMBA_CACHE_DIR"] = str(_numba_cache())  # read once, when numba is imported

# A shell's job in the background ignores Ctrl-C, and so would the commands that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The first example pays for compilation, so no deadline; the same examples on every run, so that
# a red build stays red until it is mended.
settings.register_profile("jit", deadline=None, derandomize=True)
settings.load_profile("jit")

#: Files that take longest, in the order in which they begin: the first two compile kernels that the
#: others find in the cache, and none of them is left for the end, when the other core would rest.
FIRST = (
    "solvers/test_sequential.py",
    "estimators/test_larank_checks.py",
    "graphs/test_shards.py",
    "training/test_faults.py",
    "training/test_schedulers.py",
    "graphs/test_group_solvers.py",
    "estimators/test_sklearn_checks.py",
    "training/test_block_minimization.py",
    "training/test_out_of_core_faults.py",
    "estimators/test_lazy_input.py",
    "report/test_report.py",
    "training/test_checkpoints.py",
    "training/test_large_model.py",
    "training/test_path.py",
    "estimators/test_splitting.py",
    "graphs/test_splitting.py",
    "estimators/test_linearsvc_problems.py",
    "test_plugin.py",
    "storage/test_tamper.py",
    "estimators/test_larank.py",
    "training/test_out_of_core.py",
)


def pytest_collection_modifyitems(items):
    place = {Path(__file__).parent / name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path, len(FIRST)))
