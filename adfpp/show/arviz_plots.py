"""Pictures drawn by ArviZ, equal with its versions 0.23 and 1.x: intervals side by side, and densities."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from adfpp.show.arviz_versions import is_new_version

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DRAWS = 4000  # the largest number of draws behind an interval; quantiles are then good to a few per cent
_INNER = 0.5  # mass of the thick part of an interval


def forest(
    draws: Mapping[str, Mapping[str, np.ndarray]], colours: Mapping[str, str], prob: float, width: float
) -> tuple["Figure", "Axes"]:
    """Intervals of several runs side by side, by ``arviz.plot_forest``.

    The line is the shortest interval of mass ``prob``, its thick part holds half of the mass, the dot is the median.

    Args:
        draws: ``{run: {parameter: (S,)}}``, runs and parameters from top to bottom; S may differ between runs.
        colours: Matplotlib colour of each run.
        prob: Mass of the intervals.
        width: The width of the figure, in inches.

    Returns:
        The figure, and the axes that hold the intervals.
    """
    height = 1.2 + len(next(iter(draws.values()))) * (0.14 + 0.1 * len(draws))
    # ArviZ stacks the runs, and would pad those with fewer draws with NaN
    count = min(_DRAWS, max(a.size for run in draws.values() for a in run.values()))
    posteriors = {
        name: {p: a[np.linspace(0, a.size - 1, count).round().astype(int)][None] for p, a in run.items()}
        for name, run in draws.items()
    }
    if is_new_version():
        return _forest_new(posteriors, colours, prob, (width, height))
    return _forest_old(posteriors, colours, prob, (width, height))


def density(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ArviZ's kernel density estimate of ``(S,)`` draws: a grid, and the density on it."""
    if is_new_version():
        array_stats: Any = importlib.import_module("arviz_stats.base").array_stats
        grid, height = array_stats.kde(values)[:2]
    else:
        grid, height = _arviz().kde(values)
    return np.asarray(grid), np.asarray(height)


def _arviz() -> Any:
    """The module ArviZ as ``Any``, because its two versions have different signatures."""
    return importlib.import_module("arviz")


def _forest_old(
    posteriors: Mapping[str, Mapping[str, np.ndarray]],
    colours: Mapping[str, str],
    prob: float,
    size: tuple[float, float],
) -> tuple["Figure", "Axes"]:
    from matplotlib.collections import PolyCollection

    arviz = _arviz()
    parameters = list(next(iter(posteriors.values())))
    axes = arviz.plot_forest(
        [arviz.from_dict(posterior=dict(p)) for p in posteriors.values()],
        var_names=parameters,  # keeps this order
        model_names=list(posteriors),
        colors=[colours[name] for name in posteriors],
        combined=True,
        hdi_prob=prob,
        legend=False,
        linewidth=1.2,
        markersize=4,
        textsize=9,
        figsize=size,
        backend="matplotlib",
        show=False,
    )
    axes = np.ravel(axes)[0]
    axes.set_title("")
    for band in (*axes.patches, *(a for a in axes.collections if isinstance(a, PolyCollection))):
        band.set_visible(False)
    lines = {label.get_text(): tick for tick, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)}
    places = {p: float(np.mean([lines[f"{run}: {p}"] for run in posteriors])) for p in parameters}
    _one_label_each(axes, places)
    return axes.get_figure(), axes


def _forest_new(
    posteriors: Mapping[str, Mapping[str, np.ndarray]],
    colours: Mapping[str, str],
    prob: float,
    size: tuple[float, float],
) -> tuple["Figure", "Axes"]:
    arviz = _arviz()
    made = arviz.plot_forest(
        {name: arviz.from_dict({"posterior": dict(p)}) for name, p in posteriors.items()},
        combined=True,
        point_estimate="median",
        ci_kind="hdi",
        ci_probs=(_INNER, prob),
        labels=["__variable__"],
        visuals={
            "ticklabels": False,
            "trunk": {"width": 2.6},
            "twig": {"width": 1.2},
            "point_estimate": {"size": 14},
        },
        color=[colours[name] for name in posteriors],
        figure_kwargs={"figsize": size, "figsize_units": "inches"},
        backend="matplotlib",
    )
    labels, axes = (made.get_target(None, {"column": column}) for column in ("labels", "forest"))
    places = {text.get_text(): float(text.get_position()[1]) for text in labels.texts}
    labels.remove()
    figure = made.viz["figure"].item()
    axes.set_subplotspec(figure.add_gridspec(1, 1)[0])  # uses the whole width
    _one_label_each(axes, places)
    return figure, axes


def _one_label_each(axes: "Axes", places: Mapping[str, float]) -> None:
    """Draws one label and one band for each parameter; the runs are told apart by their colours."""
    step = abs(float(np.diff(sorted(places.values())).mean())) if len(places) > 1 else 1.0
    for y in list(places.values())[::2]:
        axes.axhspan(y - step / 2, y + step / 2, color="0.965", linewidth=0, zorder=-1)
    axes.set_yticks(list(places.values()), list(places))
    axes.tick_params(axis="y", length=0, left=True, labelleft=True, labelsize=9)
    axes.yaxis.set_visible(True)
    if len(places) > 1:
        axes.set_ylim(min(places.values()) - step / 2, max(places.values()) + step / 2)
