"""What a user writes down as costs of mistakes, as the margins of the classes of a fit."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.formulations.margins import (
    EQUAL,
    MarginPairs,
    Margins,
    MarginTable,
    MarginTree,
    fingerprint,
    from_arrays,
    make_pairs,
    make_table,
    make_tree,
    to_arrays,
)

#: Beyond it float32 scores have no digits left for margins of 1.
LARGEST = 1e6
NEEDED = f"a finite number from 0 to {LARGEST:g}"
#: Name of the array of a model file that holds a table given as a parameter.
GIVEN = "margins"
#: Names listed in a message.
MOST_NAMES = 5


def refuse_margins(margins: Any, formulation: str) -> None:
    """An error, before rows are looked at, if the formulation has no margin between two classes."""
    form = FORMULATIONS[formulation]
    if margins is not None and not form.has_margins:
        able = " or ".join(repr(n) for n, other in FORMULATIONS.items() if other.has_margins)
        raise ValueError(
            f"margins are between two classes, which formulation={formulation!r} does not compare; "
            f"use formulation={able}, or leave margins out."
        )


def read_margins(given: Any, classes: npt.NDArray[Any]) -> Margins:
    """The margins of a fit.

    Parameters
    ----------
    given : None, array-like of shape (k, k), or mapping
        A mapping of pairs (true, predicted) to margins, or of names to those of their parents.
    classes : ndarray of shape (k,)
        Sorted labels.
    """
    if given is None:
        return EQUAL
    if not isinstance(given, Mapping):
        return _table(given, classes)
    places = {label: place for place, label in enumerate(classes.tolist())}
    if not given or any(isinstance(key, tuple) for key in given):
        return _pairs(given, places)
    return _tree(given, places)


def _table(given: Any, classes: npt.NDArray[Any]) -> MarginTable:
    k, labels = classes.size, classes.tolist()
    try:
        values = np.array(given, np.float64)
        found = f"has shape {values.shape}"
    except (TypeError, ValueError):
        values, found = np.empty(0), f"is {type(given).__name__}"
    if values.shape != (k, k):
        raise ValueError(
            f"margins {found}, and there are {k} classes; use a matrix of shape ({k}, {k}) with "
            "rows and columns in the order of numpy.unique(y), a dict of pairs, or a dict that is "
            "a tree."
        )
    wrong = np.argwhere(~((values >= 0) & (values <= LARGEST)))
    if wrong.size:
        y, m = wrong[0]
        raise ValueError(
            f"margins[{y}, {m}] is {values[y, m]:g}, for {labels[y]!r} taken for "
            f"{labels[m]!r}; it must be {NEEDED}."
        )
    if np.any(np.diag(values)):
        y = int(np.flatnonzero(np.diag(values))[0])
        raise ValueError(
            f"margins[{y}, {y}] is {values[y, y]:g}, and a right label ({labels[y]!r}) "
            "costs nothing; type numpy.fill_diagonal(margins, 0)."
        )
    return make_table(values)


def _pairs(given: Mapping[Any, Any], places: dict[Any, int]) -> Margins:
    pairs = {}
    for key, value in given.items():
        if not (isinstance(key, tuple) and len(key) == 2):
            raise ValueError(
                f"margins has the key {key!r} among pairs; each must be (true, predicted), such as "
                f"{tuple(places)[:2]!r}."
            )
        for label in key:
            if label not in places:
                raise ValueError(
                    f"margins has the pair {key!r}, and y has no class {label!r}; it has "
                    f"{listed(places)}."
                )
        if not _is_margin(value):
            raise ValueError(f"margins[{key!r}] is {value!r}; it must be {NEEDED}.")
        pair = places[key[0]], places[key[1]]
        if pair[0] != pair[1]:
            pairs[pair] = float(value)
        elif value:
            raise ValueError(
                f"margins[{key!r}] is {value!r}, and a right label costs nothing; leave it out."
            )
    return make_pairs(pairs, len(places)) if pairs else EQUAL


def _is_margin(value: Any) -> bool:
    is_number = isinstance(value, int | float | np.integer | np.floating)
    return is_number and not isinstance(value, bool) and 0 <= value <= LARGEST


def _tree(given: Mapping[Any, Any], places: dict[Any, int]) -> Margins:
    numbers: dict[Any, int] = {}
    for name in (name for edge in given.items() for name in edge):
        if not isinstance(name, Hashable):
            raise ValueError(
                f"margins has the parent {name!r:.60}; a tree is a dict of each name to that of "
                "its one parent."
            )
        numbers.setdefault(name, len(numbers))
    missing = [label for label in places if label not in numbers]
    if missing:
        raise ValueError(
            f"margins is a tree without the class {missing[0]!r}; give it a parent, such as "
            f"{{{missing[0]!r}: 'root'}}."
        )
    parents = set(given.values())
    strange = [name for name in given if name not in parents and name not in places]
    if strange:
        raise ValueError(
            f"margins is a tree with the leaf {strange[0]!r}, which is no class of y; leave it "
            "out, or pass classes=[...] to fit with all of them."
        )
    parent = np.full(len(numbers), -1)
    for child, above in given.items():
        parent[numbers[child]] = numbers[above]
    _refuse_cycles(parent, list(numbers))
    roots = [name for name in numbers if name not in given]
    if len(roots) > 1:
        raise ValueError(
            f"margins is a tree with {len(roots)} roots, {listed(roots)}; give them one parent."
        )
    return make_tree(parent, [numbers[label] for label in places])


def margin_arrays(margins: Margins, given: Any) -> dict[str, npt.NDArray[Any]]:
    """What a model file keeps: the margins of the fit, and a table that is a parameter."""
    arrays = {f"margins_{name}": array for name, array in to_arrays(margins).items()}
    return arrays | ({GIVEN: np.asarray(given, np.float64)} if is_table(given) else {})


def is_table(given: Any) -> bool:
    """Whether the parameter is neither left out nor a dict."""
    return given is not None and not isinstance(given, Mapping)


def plain_margins(given: Any) -> Any:
    """The parameter as JSON has it; a table is an array of its own."""
    if not isinstance(given, Mapping):
        return None if given is None else GIVEN
    return {"pairs": [[_plain(key), _plain(value)] for key, value in given.items()]}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):  # a pair of classes
        return [_plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def given_margins(plain: Any, arrays: Mapping[str, Any]) -> Any:
    """The parameter that `plain_margins` was given, of a file that may hold anything."""
    if plain is None:
        return None
    if plain == GIVEN and GIVEN in arrays:
        return arrays[GIVEN]
    pairs = plain.get("pairs") if isinstance(plain, Mapping) else None
    if not (isinstance(pairs, list) and all(isinstance(p, list) and len(p) == 2 for p in pairs)):
        raise ValueError("the parameter margins is neither a table nor a list of pairs")
    try:
        return {tuple(key) if isinstance(key, list) else key: value for key, value in pairs}
    except TypeError:
        raise ValueError("the parameter margins has a key that is no class") from None


def stored_margins(arrays: Mapping[str, Any], k: int) -> Margins:
    """The margins of a fit from a file; kernels rely on what is checked here."""
    mine = {name.removeprefix("margins_"): array for name, array in arrays.items()}
    margins = from_arrays(mine)
    found = fingerprint(margins)
    if isinstance(margins, MarginTable):
        table = np.asarray(margins.excess, np.float64) + 1.0
        np.fill_diagonal(table, 0.0)
        margins = _table(table, np.arange(k))
    elif isinstance(margins, MarginPairs):
        y = np.repeat(np.arange(k), np.diff(margins.start))
        costs = dict(zip(zip(y.tolist(), margins.rivals.tolist(), strict=True),
                         (margins.excess + 1.0).tolist(), strict=True))  # fmt: skip
        margins = _pairs(costs, {place: place for place in range(k)})
    elif isinstance(margins, MarginTree):
        parent, node = margins.parent, margins.node
        nodes = np.arange(parent.size)
        inside = parent.ndim == 1 and np.isin(parent, np.append(nodes, -1)).all()
        if not inside or node.shape != (k,) or np.unique(node[np.isin(node, nodes)]).size != k:
            raise ValueError(f"margins are no tree of {k} classes")
        if np.count_nonzero(parent == -1) != 1:
            raise ValueError("margins are no tree with one root")
        _refuse_cycles(parent, nodes.tolist())
        margins = make_tree(parent, node)
    if fingerprint(margins) != found:
        raise ValueError("margins do not belong together")
    return margins


def _refuse_cycles(parent: npt.NDArray[Any], names: list[Any]) -> None:
    """An error if some node is its own ancestor."""
    reached = np.zeros(parent.size, np.int64)  # by the walk with this number; 0 by none yet
    for start in range(parent.size):
        node = start
        while node >= 0 and reached[node] == 0:
            reached[node] = start + 1
            node = parent[node]
        if node >= 0 and reached[node] == start + 1:
            raise ValueError(
                f"margins is a tree where {names[node]!r} is among its own ancestors; a tree has "
                "no cycle."
            )


def listed(names: Any) -> str:
    """Some names, and how many there are."""
    some = ", ".join(map(repr, list(names)[:MOST_NAMES]))
    return some if len(names) <= MOST_NAMES else f"{some}, ... ({len(names):,} in all)"
