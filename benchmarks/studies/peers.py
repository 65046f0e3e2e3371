"""What people use instead: seconds to fit and accuracy, with C chosen alike for all.

A fifth of the training rows chooses C among three; then all of them are fitted. A method that
does not end within the limit at C = 1 is not asked for more.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from harness import Case, Result, Table, number
from harness.case import DONE, OVER

from .intercept import debfiles
from .threads import QUICK

TEXT = ("news20_bydate", "reuters52", "banking77", "clinc150", "naics_index", "onet_titles")
DENSE = ("usps", "letter", "mnist")
OURS = ("Crammer-Singer", "one-vs-rest")
#: Environments that peers need for themselves.
OWN = {
    "liblinear-multicore": "liblinear-multicore", "snapml": "snapml", "omikuji": "omikuji",
    "PECOS xlinear": "libpecos", "napkinXC": "napkinxc", "vowpalwabbit": "vowpalwabbit",
}  # fmt: skip
PEERS = (
    *OURS, "LinearSVC", "LinearSVC, hinge", "LinearSVC, crammer_singer", "SGDClassifier",
    "LogisticRegression", "RidgeClassifier", *OWN,
)  # fmt: skip
#: These have no C; trees of classes are for many of them.
TREES, MANY = ("omikuji", "PECOS xlinear", "napkinXC"), ("naics_index", "onet_titles")
WITHOUT_C = (*TREES, "vowpalwabbit")
C_VALUES = (1.0, 0.1, 10.0)
#: Points of accuracy that count as equal.
EQUAL = 0.005

Cases = Generator[Case, Result | None, None]


def cases(quick: bool) -> Cases:
    for name, data, scale in sets(quick):
        for peer in PEERS[:6] if quick else PEERS:
            if peer not in TREES or name in MANY:
                yield from of_peer(data, peer, scale)


def sets(quick: bool) -> list[tuple[str, dict[str, Any], bool]]:
    if quick:
        return [(name, data, False) for name, data in QUICK.items()]
    found = [(name, {"name": name}, name in DENSE) for name in (*TEXT, *DENSE)]
    millions = [("debfiles", debfiles(rows, quick), False) for rows in (450_000, 1_800_000)]
    return [*found, *millions]


def of_peer(data: dict[str, Any], peer: str, scale: bool) -> Cases:
    options = {"peer": peer} | ({"scale": True} if scale else {})
    if peer in OWN:
        options["environment"] = OWN[peer]
    chosen, best = 1.0, -1.0
    for C in () if peer in WITHOUT_C else C_VALUES:
        result = yield Case(data, "peers:peer", {"C": C}, options | {"validate": True})
        if result is None:
            continue
        if C == 1.0 and result.status != DONE:  # more rows would take longer still
            return
        if result.status == DONE and result["accuracy"] > best:
            chosen, best = C, result["accuracy"]
    yield Case(data, "peers:peer", {"C": chosen}, options)


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    final = [r for r in results if is_shown(r)]
    heads = (
        "set, method", "C", "seconds", "CPU seconds", "accuracy", "macro F1", "seconds to predict",
        "peak MB",
    )  # fmt: skip
    rows = [
        [
            f"{set_of(r)}, {r.case.options['peer']}",
            "-" if r.case.options["peer"] in WITHOUT_C else f"{r.case.params['C']:g}",
            number(r), number(r, "cpu_seconds"), percent(r, "accuracy"), percent(r, "macro_f1"),
            number(r, "predict_seconds"), number(r, "peak_bytes", 1e6),
        ]
        for r in final
    ]  # fmt: skip
    whole = glance(final)
    return {"all": Table(heads, rows), "glance": whole, "best": best_and_worst(whole, final)}


def is_shown(result: Result) -> bool:
    """Fits of all rows, and those that gave up on fewer."""
    return not result.case.options.get("validate") or (
        result.status == OVER and result.case.params["C"] == 1.0
    )


def glance(results: Sequence[Result]) -> Table:
    """By set: ours, and the peer to beat."""
    heads = (
        "set", "classes", "rows", "seconds", "accuracy", "instead", "its seconds", "its accuracy",
        "times as fast",
    )  # fmt: skip
    rows = []
    for name in dict.fromkeys(map(set_of, results)):
        mine, other = pair(name, results)
        if mine is not None and other is not None:
            rows.append([
                name, number(mine, "k"), number(mine, "n"), number(mine), percent(mine, "accuracy"),
                other.case.options["peer"], number(other), percent(other, "accuracy"),
                f"{other['seconds'] / mine['seconds']:.2g}",
            ])  # fmt: skip
    return Table(heads, rows)


def best_and_worst(whole: Table, results: Sequence[Result]) -> Table:
    """The three sets where we are ahead the most, and the one where accuracy is behind the most."""

    def behind(row: Sequence[str]) -> float:
        mine, other = pair(row[0], results)
        assert mine is not None
        assert other is not None
        return float(other["accuracy"] - mine["accuracy"])

    fastest = sorted(whole.rows, key=lambda row: -float(row[-1]))[:3]
    others = [row for row in whole.rows if row not in fastest]
    worst = max(others, key=behind, default=None)
    return Table(whole.heads, [*fastest, *([] if worst is None else [worst])])


def pair(name: str, results: Sequence[Result]) -> tuple[Result | None, Result | None]:
    """Crammer-Singer, and of the peers the fastest that is as accurate, else the most accurate."""
    of_set = {r.case.options["peer"]: r for r in results if set_of(r) == name and r.status == DONE}
    mine = of_set.get(OURS[0])
    peers = [r for peer, r in of_set.items() if peer not in OURS]
    if mine is None or not peers:
        return mine, None
    equal = [r for r in peers if r["accuracy"] >= mine["accuracy"] - EQUAL]
    if equal:
        return mine, min(equal, key=lambda r: r["seconds"])
    return mine, max(peers, key=lambda r: r["accuracy"])


def set_of(result: Result) -> str:
    name, rows = str(result.case.data["name"]), result.case.data.get("rows")
    if name == "generated":
        return f"{name}, {result['k']} classes"
    return f"{name}, {rows:,}" if rows else name


def percent(result: Result, name: str) -> str:
    value = result[name]
    return "-" if value is None else f"{value:.1%}"


def pictures(results: Sequence[Result], folder: Path) -> None:
    """Seconds against accuracy, a panel a set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    final = [r for r in results if not r.case.options.get("validate") and r.status == DONE]
    names = list(dict.fromkeys(map(set_of, final)))
    if not names:
        return
    columns = 3
    height = -(-len(names) // columns)
    figure, axes = plt.subplots(
        height, columns, figsize=(11, 3 * height), squeeze=False, layout="constrained"
    )
    marks, colours = "oosssDD^vPX*<>h", plt.get_cmap("tab20").colors
    handles = {}
    for axis, name in zip(axes.flat, names, strict=False):
        for place, (peer, mark) in enumerate(zip(PEERS, marks, strict=False)):
            for r in final:
                if set_of(r) == name and r.case.options["peer"] == peer:
                    (handles[peer],) = axis.plot(
                        r["seconds"], 100 * r["accuracy"], mark, color=colours[place],
                        ms=10 if peer in OURS else 7,
                    )  # fmt: skip
        axis.set(title=name, xscale="log", xlabel="seconds to fit", ylabel="accuracy, %")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.margins(x=0.15, y=0.15)
    for axis in list(axes.flat)[len(names) :]:
        axis.remove()
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, fontsize=9)
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / "peers.png", dpi=100)
    plt.close(figure)
