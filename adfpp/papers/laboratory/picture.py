"""Draws the picture of a record: theory as lines, simulation as points with error bars, the paper's figures in black.

Matplotlib is imported when a picture is drawn, so that everything else works without it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adfpp.papers.laboratory.record import Line, Panel, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["draw", "save"]

MARKERS = "os^Dvph*<>"
ACROSS = 3  # panels side by side; more would not be readable on a page
CROSSES = 8  # the largest number of a paper's figures that are drawn as crosses and not as a line
POINTS = 25  # points of a simulation; more cannot be distinguished
ENTRIES = 7  # the number of entries from which on a legend is below the panel, because it would hide the curves


def draw(record: Record) -> "Figure":
    """The record's panels as a Matplotlib figure.

    Args:
        record: A record with at least one panel.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'The pictures need Matplotlib: pip install "adfpp[papers]"', name=error.name
        ) from error
    if not record.panels:
        raise ValueError(f"The record of {record.name} has no panels, so there is nothing to draw.")
    across = min(ACROSS, len(record.panels))
    down = -(-len(record.panels) // across)
    low = max(-(-n // 2) for n in map(entries, record.panels)) if any(map(crowded, record.panels)) else 0
    figure = Figure(figsize=(max(7.0, 5.2 * across), (4.3 + 0.17 * low) * down), layout="constrained")
    every = figure.subplots(down, across, squeeze=False).ravel()
    for axes in every[len(record.panels) :]:
        axes.remove()
    tints = colours(record)
    for axes, panel in zip(every, record.panels, strict=False):
        fill(axes, panel, tints)
    figure.suptitle(f"{record.title} ({record.source})", fontsize=10)
    return figure


def save(record: Record, path: Path) -> Path:
    """Writes the picture and returns its path."""
    draw(record).savefig(path, dpi=100, metadata={"Software": None})
    return path


def colours(record: Record) -> dict[str, str]:
    """A colour for each group, the same in all panels; the paper's own figures are black."""
    groups = dict.fromkeys(group_of(one) for panel in record.panels for one in panel.lines if one.kind != "paper")
    return {group: f"C{i % 10}" for i, group in enumerate(groups)}


def group_of(line: Line) -> str:
    """The group whose colour the curve has."""
    return line.group or line.label


def entries(panel: Panel) -> int:
    """Number of entries of the legend."""
    return sum(bool(line.label) for line in panel.lines)


def crowded(panel: Panel) -> bool:
    """Whether the legend would hide the curves."""
    return entries(panel) >= ENTRIES


def fill(axes: "Axes", panel: Panel, tints: dict[str, str]) -> None:
    """Draws the curves of one panel."""
    order = list(tints)
    wide = 3.0  # the first curves are the widest, so that both are seen if one lies on another
    for line in panel.lines:
        x, y = np.asarray(line.x, float), np.asarray(line.y, float)
        se = None if line.se is None else np.asarray(line.se, float)
        tint = tints.get(group_of(line), "black")
        if line.kind == "theory":
            axes.plot(x, y, color=tint, lw=wide, label=line.label)
            wide = max(1.2, wide - 0.8)
        elif line.kind == "paper":
            style: dict[str, Any] = {"marker": "x", "ls": "", "ms": 8, "mew": 1.6, "zorder": 5}
            if len(x) > CROSSES:
                style = {"ls": "--", "lw": 1.2}
            axes.plot(x, y, color="black", label=line.label, **style)
        elif line.kind == "band":
            axes.plot(x, y, color=tint, lw=1.4, label=line.label)
            if se is not None:
                low = np.maximum(y - se, 1e-3 * y) if "y" in panel.log else y - se
                axes.fill_between(x, low, y + se, color=tint, alpha=0.2, lw=0)
        else:
            some = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).astype(int))
            x, y, se = x[some], y[some], None if se is None else se[some]
            marker = MARKERS[order.index(group_of(line)) % len(MARKERS)]
            axes.errorbar(x, y, se, fmt=marker, color=tint, ms=4, capsize=2, lw=1, label=line.label)
    for side in panel.log:
        axes.set(**{f"{side}scale": "log"})
        for which in ("major", "minor"):
            getattr(axes, f"{side}axis").set_tick_params(which=which, labelsize=8)
        plain_ticks(getattr(axes, f"{side}axis"))
    axes.set(xlabel=panel.x, ylabel=panel.y)
    axes.set_title(panel.title, fontsize=10)
    if crowded(panel):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False, fontsize=8)
    elif entries(panel):
        axes.legend(framealpha=0.6, edgecolor="none", fontsize=8)


def plain_ticks(axis: "Axis") -> None:
    """Writes numbers on a logarithmic axis without exponents, also between decades if there are one or two decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    narrow = low > 0 and high / low < 200
    axis.set_minor_locator(LogLocator(subs=(2, 5) if narrow else tuple(range(2, 10))))
    axis.set_minor_formatter(FuncFormatter(lambda value, place: f"{value:g}") if narrow else NullFormatter())
