"""The style of all pictures: one colour for each method, fonts, panels, titles and legends."""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from adfpp.judge.compare import Comparison
from adfpp.judge.fits import Kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, which can be told apart with any colour vision, without its yellow, and four more.
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILLION, VIOLET, BROWN = "#56B4E9", "#D55E00", "#7B3FA0", "#8C510A"
GREY, BLACK = "#707070", "#000000"
FAINT = "0.6"  # colour of lines to compare with

# Each method has the same colour in all pictures; a second run of the same method has the next colour.
_OF_METHOD = {
    Kind.ADF: (BLUE, SKY),
    Kind.EP: (ORANGE, VERMILLION),
    Kind.MCMC: (GREY,),
    Kind.DRAWS: (GREY,),
    Kind.ENUMERATION: (BLACK,),
}
_OTHERS = (GREEN, PURPLE, VIOLET, BROWN, SKY, VERMILLION)

_STYLE: dict[Any, Any] = {  # Any, because Matplotlib's stub allows only the names that it knows
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
}
_LETTERS = 13.0  # letters of the title's size that fit into an inch
_KEY = 7  # letters of space that a line and its gap take in the legend, beside the label
_ACROSS = 3  # panels side by side


def colours(comparison: Comparison) -> dict[str, str]:
    """The colour of each run: that of its method, the same in all pictures."""
    out: dict[str, str] = {}
    for name in [comparison.reference, *comparison.names]:
        own = (*_OF_METHOD.get(comparison.fits[name].kind, ()), *_OTHERS)
        free = [colour for colour in own if colour not in out.values()]
        out[name] = free[0] if free else _OTHERS[len(out) % len(_OTHERS)]
    return out


@contextmanager
def drawing() -> Iterator[None]:
    """A context in which Matplotlib uses the style of this package."""
    try:
        import matplotlib
        import matplotlib.pyplot  # noqa: F401 (a notebook shows figures once this has been imported)
    except ImportError as error:
        raise ImportError('The pictures need Matplotlib: pip install "adfpp[plots]"') from error
    with matplotlib.rc_context(_STYLE):
        yield


def forget(figure: "Figure") -> None:
    """Removes a figure from pyplot's list, which would keep it in memory and show it."""
    import matplotlib.pyplot as plt

    plt.close(figure)


def panels(count: int, size: tuple[float, float], sharex: bool = False) -> "tuple[Figure, list[Axes]]":
    """Makes a figure with ``count`` axes, three in a row.

    Args:
        count: Number of axes.
        size: Width and height of each, in inches.
        sharex: Whether they share the horizontal axis.
    """
    from matplotlib.figure import Figure

    columns = min(_ACROSS, count)
    rows = -(-count // columns)
    width = max(6.0, columns * size[0])
    figure = Figure(figsize=(width, rows * size[1] + 0.9), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=sharex).ravel()
    for axes in grid[count:]:
        axes.remove()
    return figure, list(grid[:count])


def is_lowest(panel: int, count: int) -> bool:
    """Whether no panel of the same figure is below this one."""
    return panel >= count - _ACROSS


def is_leftmost(panel: int) -> bool:
    """Whether a panel is the first of its row."""
    return panel % _ACROSS == 0


def head(
    figure: "Figure",
    comparison: Comparison,
    title: str,
    note: str = "",
    only: Sequence[str] | None = None,
    failed: Sequence[str] = (),
    legend: bool = True,
) -> None:
    """Draws the title and a note above the panels, and the legend of the runs below them.

    Args:
        figure: The figure to complete.
        comparison: The comparison.
        title: The title, in one line.
        note: How to read the picture.
        only: The runs in the legend; all of them when None.
        failed: The runs whose draws are not finite, so that they are not drawn.
        legend: Whether to draw the legend.
    """
    from matplotlib.lines import Line2D

    width = int(_LETTERS * figure.get_size_inches()[0])
    figure.suptitle("\n".join([title, *textwrap.wrap(note, width)]), fontsize=10, x=0.01, ha="left")
    if not legend:
        return
    tint = colours(comparison)
    handles = []
    for name in [comparison.reference, *comparison.names]:
        if only is not None and name not in only:
            continue
        marked = name == comparison.reference and name != "reference"
        label = plain(name) + " (reference)" * marked
        label += " (not finite: not drawn)" if name in failed else ""
        handles.append(Line2D([], [], color=tint[name], linewidth=3, label=label))
    letters = sum(len(str(handle.get_label())) + _KEY for handle in handles)
    rows = -(-letters // width)
    figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(handles) // rows))


def corner(axes: "Axes", text: str) -> None:
    """Writes a remark into the lower right corner, where a scatter along the diagonal has no dots."""
    axes.text(0.97, 0.04, text, ha="right", va="bottom", fontsize=8, transform=axes.transAxes)


def plain(name: str) -> str:
    """Escapes a name for Matplotlib: it is not read as a formula, or left out of a legend for its underscore."""
    name = name.replace("$", r"\$")
    return f" {name}" if name.startswith("_") else name
