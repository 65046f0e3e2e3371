"""Figures 1 and 2 of Bordes et al. (2007) from the numbers of bench_larank.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MARKERS = "osD^vPh<>"


def draw(name: str, results: dict[str, Any], folder: Path) -> list[Path]:
    """Test error against kernel values, of all methods and of the ablation; the files written."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    whole = {m: r for m, r in results.items() if "kernels" in r and not m.startswith("only ")}
    parts = {m[5:]: r for m, r in results.items() if m.startswith("only ")}
    written = []
    for number, points in (("1", whole), ("2", parts)):
        if not points:
            continue
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        for place, (method, row) in enumerate(points.items()):
            # A method of the paper has the colour of ours, which stands before it.
            is_papers = method.startswith("paper")
            axes.plot(
                row["kernels"], row["error"], "x" if is_papers else MARKERS[place % len(MARKERS)],
                color=f"C{place - is_papers}", label=method, markersize=8,
            )  # fmt: skip
        figure.legend(loc="outside right upper", fontsize=8)
        axes.set(
            xscale="log", xlabel="kernel values (millions)", ylabel="test error (%)",
            title=f"Figure {number}. {name}",
        )  # fmt: skip
        written.append(folder / f"figure{number}-{name}.png")
        figure.savefig(written[-1], dpi=120)
    return written
