"""Pictures of a run, drawn with matplotlib's objects alone: no backend, no global state."""

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from dask_mcsvm.report._run import Run
from dask_mcsvm.solvers.groups.schedule import circle_rounds

# Legible on white in print and for the colour-blind: blue and orange differ in lightness too.
INK, MUTED, RULE = "#1c2733", "#64707d", "#dfe4ea"
PRIMAL, DUAL, BAND = "#d9622b", "#1f6fb5", "#f1f5f9"
KINDS = ("#1f6fb5", "#d9622b", "#4b9b78", "#8a63b3", "#c2a02f", "#64707d")

STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlepad": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "xtick.major.pad": 6,
    "ytick.major.pad": 6,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "svg.hashsalt": "dask_mcsvm",  # the same run gives the same bytes
}


@dataclass(frozen=True)
class Panel:
    """A drawing, what it shows in one sentence, and when there is something to draw."""

    section: str
    title: str
    says: str
    draw: Callable[[Any, Run, str], None]
    applies: Callable[[Run], bool]
    #: Drawn along each of these; a page has one card with a switch, a PNG the first.
    along: tuple[str, ...] = ("epoch",)


# Panels -----------------------------------------------------------------------------------------


def draw_objectives(axes: Any, run: Run, along: str) -> None:
    """Primal above, dual below, the optimum between them."""
    x, primal, dual = run.curves[along], run.curves["primal"], run.curves["dual"]
    known = np.isfinite(primal)  # some solvers only know it where they certify
    axes.fill_between(x[known], dual[known], primal[known], color=BAND, linewidth=0)
    axes.plot(x[known], primal[known], color=PRIMAL, label="primal, what training minimises")
    axes.plot(x, dual, color=DUAL, label="dual, the bound below it")
    _point_if_single(axes, x[known], primal[known], PRIMAL)
    _point_if_single(axes, x, dual, DUAL)
    # The first epochs can be far off; the interesting part is where the curves meet.
    low, high = float(np.nanmin(dual)), float(np.nanmax(primal))
    best, span = run.primal, run.primal - float(np.nanquantile(dual, 0.1))
    high = min(high, best + 3 * max(span, 0.02 * abs(best)))
    low = max(low, run.dual - 4 * max(high - best, 0.02 * abs(best)))
    pad = 0.06 * max(high - low, 1e-12)
    axes.set_ylim(low - pad, high + pad)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.legend(loc="best", fontsize=8)
    _label_x(axes, along)


def draw_gap(axes: Any, run: Run, along: str) -> None:
    """The relative gap on a logarithmic scale, certified values as dots, tol as a line."""
    x, gap = run.curves[along], run.curves["gap"]
    shown = gap > 0
    axes.plot(x[shown], gap[shown], color=INK, linewidth=1.2, alpha=0.55, label="estimated")
    proved = shown & run.certified
    axes.plot(
        x[proved], gap[proved], "o", color=DUAL, markersize=5, label="certified", clip_on=False
    )
    if run.tol > 0:
        axes.axhline(run.tol, color=PRIMAL, linewidth=1.1, linestyle=(0, (5, 3)), label="tol")
    if shown.any():
        axes.set_yscale("log")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(loc="best", fontsize=8)
    _label_x(axes, along)


def draw_dual(axes: Any, run: Run, along: str) -> None:
    """The dual objective alone, where no epoch measured the primal."""
    x, dual = run.curves[along], run.curves["dual"]
    axes.plot(x, dual, color=DUAL)
    _point_if_single(axes, x, dual, DUAL)
    _label_x(axes, along)


def draw_support(axes: Any, run: Run, along: str) -> None:
    """Examples that have coefficients after each epoch."""
    x, patterns = run.curves[along], run.curves["support"]
    axes.plot(x, patterns, color=DUAL)
    _point_if_single(axes, x, patterns, DUAL)
    axes.set_ylim(0, 1.1 * float(np.nanmax(patterns)))
    _label_x(axes, along)


def draw_active(axes: Any, run: Run, along: str) -> None:
    """Share of the examples that an epoch still worked on."""
    x, active = run.curves[along], run.curves["active"]
    axes.fill_between(x, 0, active, color=BAND, linewidth=0)
    axes.plot(x, active, color=DUAL)
    _point_if_single(axes, x, active, DUAL)
    axes.set_ylim(0, 1.04)
    axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    _label_x(axes, along)


def draw_weights(axes: Any, run: Run, _: str) -> None:
    """How large the weights are that are not zero."""
    magnitudes = run.magnitudes[run.magnitudes > 0]
    low, high = float(magnitudes.min()), float(magnitudes.max())
    # Weights of rounding size would stretch the axis over ten empty decades.
    low = max(low, high * 1e-6)
    edges = np.geomspace(low, max(high, low * 1.01), 41)
    counts = np.histogram(magnitudes, edges)[0]
    axes.stairs(counts / magnitudes.size, edges, fill=True, color=DUAL, alpha=0.85)
    axes.set_xscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    axes.set_xlabel("|coefficient|" if run.solver == "larank" else "|weight|")
    axes.grid(False, axis="x")


def draw_f1(axes: Any, run: Run, _: str) -> None:
    """F1 of every class, worst first."""
    assert run.scores is not None
    f1 = np.sort(run.scores.f1[run.scores.seen])
    place = np.arange(1, f1.size + 1)
    if f1.size <= 60:
        axes.bar(place, f1, color=DUAL, width=0.78)
    else:
        axes.fill_between(place, 0, f1, color=DUAL, alpha=0.85, linewidth=0, step="mid")
    mean = run.scores.macro_f1
    axes.axhline(mean, color=PRIMAL, linewidth=1.3, linestyle=(0, (5, 3)), label=f"mean {mean:.3f}")
    axes.set_ylim(0, 1.18)  # room for the legend above the best
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    width = max(f1.size, 8)  # two classes are two bars, not two walls
    axes.set_xlim(0.4 - (width - f1.size) / 2, f1.size + 0.6 + (width - f1.size) / 2)
    ticks = MaxNLocator(6, integer=True).tick_values(1, f1.size)
    axes.set_xticks([t for t in ticks if 1 <= t <= f1.size])
    axes.legend(loc="upper left", fontsize=8)
    axes.set_xlabel("classes, worst first")
    axes.grid(False, axis="x")


#: A kind of task that takes less of the time than this is one of the others.
LEAST_SHARE = 0.01


def draw_tasks(axes: Any, run: Run, _: str) -> None:
    """Seconds by kind of task, over the whole fit; kinds that took next to none are one bar."""
    seconds = {kind: float(np.nansum(values)) for kind, values in run.task_seconds.items()}
    least = LEAST_SHARE * sum(seconds.values())
    few = [kind for kind, total in seconds.items() if total < least]
    if len(few) > 1:
        seconds[f"{len(few)} others"] = sum(seconds.pop(kind) for kind in few)
    kinds = sorted(seconds, key=lambda kind: seconds[kind])
    totals = [seconds[kind] for kind in kinds]
    colors = [KINDS[place % len(KINDS)] for place in range(len(kinds))]
    axes.barh(kinds, totals, color=colors, height=0.62)
    axes.set_xlabel("seconds of all workers")
    axes.grid(False, axis="y")


def draw_traffic(axes: Any, run: Run, _: str) -> None:
    """Tasks and bytes per epoch, each on its own scale."""
    x = run.curves["epoch"]
    scales = [axes, *([axes.twinx()] if len(run.traffic) > 1 else [])]
    colors = (DUAL, PRIMAL)[: len(scales)]
    for scale, (label, values), color in zip(scales, run.traffic.items(), colors, strict=True):
        scale.plot(x, values, color=color)
        _point_if_single(scale, x, values, color)
        scale.set_ylabel(label.lower(), color=color)
        scale.set_ylim(0, max(1.0, 1.15 * float(np.nanmax(values))))
        scale.grid(scale is axes)
        form = _bytes if label.startswith("Bytes") else lambda value, _: f"{value:,.0f}"
        scale.yaxis.set_major_formatter(FuncFormatter(form))
    _label_x(axes, "epoch")


def draw_rounds(axes: Any, run: Run, _: str) -> None:
    """Which class groups meet in which round of an epoch: a row per group, a line per visit."""
    rounds = circle_rounds(run.n_groups) or (((0, 0),),)
    for number, pairs in enumerate(rounds):
        color = KINDS[number % len(KINDS)]
        step = 0.72 / max(1, len(pairs))
        for place, (a, b) in enumerate(pairs):
            x = number + step * (place - (len(pairs) - 1) / 2)
            axes.plot([x, x], [a, b], color=color, linewidth=1.4, solid_capstyle="round")
            axes.plot([x, x], [a, b], "o", color=color, markersize=4)
    axes.set_xlim(-0.6, len(rounds) - 0.4)
    axes.set_ylim(run.n_groups - 0.5, -0.5)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("round of an epoch; pairs of a round run side by side")
    axes.set_ylabel("class group")


def _has(name: str) -> Callable[[Run], bool]:
    return lambda run: bool(np.isfinite(run.curves[name]).any())


#: By work, whatever the machine, or by time.
BOTH = ("epoch", "seconds")

PANELS = (
    Panel(
        "run",
        "Objectives",
        "The optimum lies between the two curves; training ends when they meet.",
        draw_objectives,
        _has("primal"),
        BOTH,
    ),
    Panel(
        "run",
        "Dual objective",
        "What an online fit raises, one example after another.",
        draw_dual,
        lambda run: _has("dual")(run) and not _has("primal")(run),
        BOTH,
    ),
    Panel(
        "run",
        "Relative gap",
        "The distance to the optimum is at most this. Dots are proofs in float64.",
        draw_gap,
        _has("gap"),
        BOTH,
    ),
    Panel(
        "run",
        "Support patterns",
        "Examples that have coefficients, after each epoch.",
        draw_support,
        _has("support"),
        BOTH,
    ),
    Panel(
        "run",
        "Active examples",
        "The share of the rows that an epoch still worked on.",
        draw_active,
        _has("active"),
    ),
    Panel(
        "run",
        "Size of the weights",
        "Those that are not zero, by magnitude.",
        draw_weights,
        lambda run: run.magnitudes.size > 0,
    ),
    Panel(
        "classes",
        "F1 per class",
        "Each class of the scored rows, worst first.",
        draw_f1,
        lambda run: run.scores is not None,
    ),
    Panel(
        "cluster",
        "Time per kind of task",
        "What the workers were busy with.",
        draw_tasks,
        lambda run: bool(run.task_seconds),
    ),
    Panel(
        "cluster",
        "Tasks and traffic",
        "What an epoch asked of the scheduler and of the network.",
        draw_traffic,
        lambda run: bool(run.traffic),
    ),
    Panel(
        "cluster",
        "Rounds",
        "Every two class groups meet once an epoch, and each meets itself.",
        draw_rounds,
        lambda run: 1 < run.n_groups <= 64,
    ),
)


# Files ------------------------------------------------------------------------------------------


def drawn_panels(run: Run) -> list[tuple[Panel, dict[str, bytes]]]:
    """Every panel that applies, with its SVG along each axis; titles are left to the page."""
    drawn = []
    with _style():
        for panel in PANELS:
            if panel.applies(run):
                pictures = {}
                for along in panel.along:
                    figure = Figure(figsize=(5.4, 3.0), layout="constrained")
                    panel.draw(figure.add_subplot(), run, along)
                    pictures[along] = _saved(figure, "svg")
                drawn.append((panel, pictures))
    return drawn


def overview(run: Run) -> bytes:
    """All panels that apply as one PNG."""
    panels = [panel for panel in PANELS if panel.applies(run)]
    columns = min(3, -(-len(panels) // 2))
    rows = -(-len(panels) // columns)
    apart: dict[Any, Any] = {
        "figure.constrained_layout.w_pad": 0.18,
        "figure.constrained_layout.h_pad": 0.16,
    }
    with _style(), matplotlib.rc_context(apart):
        figure = Figure(figsize=(5.2 * columns, 3.3 * rows + 0.7), layout="constrained")
        figure.suptitle(heading(run), x=0.012, ha="left", fontsize=13, fontweight="bold")
        for place, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(rows, columns, place)
            panel.draw(axes, run, panel.along[0])
            axes.set_title(panel.title)
        return _saved(figure, "png")


def heading(run: Run) -> str:
    """The run in one line."""
    parts = [
        f"{run.formulation}, {run.k:,} classes × {run.d:,} features",
        f"relative gap {run.gap:.1e} after {run.epochs:,} epochs",
    ]
    if run.scores is not None:
        parts.append(f"accuracy {run.scores.accuracy:.3f}")
    return "   ·   ".join(parts)


@contextmanager
def _style() -> Iterator[None]:
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # A script that the font does not have is drawn as boxes; that is no reason to fail.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def _saved(figure: Figure, form: str) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if form == "svg" else None
    figure.savefig(buffer, format=form, dpi=144, facecolor="white", metadata=metadata)
    return buffer.getvalue()


def _point_if_single(axes: Any, x: Any, y: Any, color: str) -> None:
    if len(x) == 1:  # a line of one point is invisible
        axes.plot(x, y, "o", color=color, markersize=5)


def _label_x(axes: Any, along: str) -> None:
    axes.set_xlabel("seconds" if along == "seconds" else "epochs")
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=along == "epoch"))
    axes.set_xlim(left=0)


def _percent(value: float, _place: int) -> str:
    return f"{value:.0%}" if value >= 0.1 or value == 0 else f"{value:.1%}"


def _bytes(value: float, _place: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
