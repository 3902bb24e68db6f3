"""Pictures of a comparison and of a self-check, as Matplotlib figures.

Each kind of picture is one function here. Its numbers come from ``series``, its colours and panels from ``style``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from adfpp.judge.check import Check
from adfpp.judge.compare import Comparison
from adfpp.show.series import (
    BAND,
    by_error,
    curve_columns,
    density_of,
    finite_draws,
    learning_curve,
    numbers_of,
    predicted,
    predictions_in_words,
    suggestion,
)
from adfpp.show.style import (
    BLACK,
    BLUE,
    FAINT,
    GREY,
    ORANGE,
    colours,
    corner,
    drawing,
    forget,
    head,
    is_leftmost,
    is_lowest,
    panels,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PROB = 0.9  # mass of the forest's intervals
_MOST = {"forest": 20, "marginals": 9, "learning": 6}  # parameters shown unless they are named
_POINTS = 5000  # points of a scatter plot; more cannot be told apart
_VISIBLE = 0.01  # share of a curve's height below which the curve cannot be seen
_SHADE = 0.18  # opacity of shaded areas


class NotApplicable(ValueError):
    """The comparison has nothing to show in this kind of picture."""


def draw(
    comparison: Comparison, kind: str = "all", parameters: Sequence[str] | str | None = None
) -> "Figure | dict[str, Figure]":
    """Draws one picture of a comparison, or all that apply.

    Args:
        comparison: The comparison.
        kind: "forest", "marginals", "probabilities" (of discrete latents), "predictions", "learning" or "all".
        parameters: Names of parameters (``"w[0]"``) or of latents (``"w"``, all its elements) to show, in this order;
            those with the largest errors when None. The predictions have no parameters.

    Returns:
        A Matplotlib ``Figure`` that pyplot does not manage; for "all" a dict of figures by kind.
    """
    if kind != "all" and kind not in _PICTURES:
        raise ValueError(f"There is no picture {kind!r}{suggestion(kind, KINDS)}; there are {', '.join(KINDS)}.")
    if isinstance(parameters, str):
        parameters = [parameters]
    wanted = None if parameters is None else numbers_of(comparison, parameters)
    with drawing():
        if kind != "all":
            return _PICTURES[kind](comparison, wanted)
        figures = {}
        for name, picture in _PICTURES.items():
            try:
                figures[name] = picture(comparison, wanted)
            except NotApplicable:
                continue
        return figures


def draw_check(check: Check) -> "Figure":
    """A figure with two panels: the ranks of rows among their predictions, and the running log score."""
    left_out = check.settling is not None
    colour = ORANGE if left_out else BLUE
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.0, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        bins = int(np.clip(len(check.pit) // 20, 5, 20))  # about 20 ranks each
        left.hist(check.pit, bins=bins, range=(0, 1), color=colour, alpha=0.7, edgecolor="white")
        expected = len(check.pit) / bins
        spread = np.sqrt(expected * (1 - 1 / bins))
        left.axhspan(expected - 2 * spread, expected + 2 * spread, color=GREY, alpha=0.25, lw=0)
        left.axhline(expected, color=GREY)
        left.set(xlabel="rank of a row among its predictions, from 0 to 1", ylabel="number of rows")
        left.set_title("Calibrated predictions: level, mostly in the band", loc="left")
        log_z = check.log_z[~np.isnan(check.log_z)]
        seen = np.arange(1, len(log_z) + 1)
        right.plot(seen, np.cumsum(log_z) / seen, color=colour)
        right.set(xlabel="rows" if left_out else "rows absorbed", ylabel="mean log score, nats per row")
        right.set_title("Leave-one-out score so far" if left_out else "One-step-ahead score so far", loc="left")
        return figure


# ------------------------------------------------------------------------------------------------ the pictures


def _forest(comparison: Comparison, wanted: list[int] | None) -> "Figure":
    from adfpp.show.arviz_plots import forest

    discrete = comparison.truth.discrete
    if discrete.all() or any(discrete[i] for i in wanted or ()):
        named = ", ".join(comparison.truth.names[i] for i in wanted or () if discrete[i]) or "all latents"
        raise NotApplicable(
            f'Intervals of discrete latents ({named}) show little: draw "probabilities" or "marginals" instead.'
        )
    chosen, count = _chosen(comparison, wanted, "forest")
    finite, failed = finite_draws(comparison, chosen)
    names = [plain(comparison.truth.names[i]) for i in chosen]
    draws = {plain(name): dict(zip(names, values.T, strict=True)) for name, values in finite.items()}
    tint = {plain(name): colour for name, colour in colours(comparison).items()}
    figure, axes = forest(draws, tint, _PROB, 8.0)
    forget(figure)
    figure.set_layout_engine("constrained")
    for spine in ("top", "right", "left"):
        axes.spines[spine].set_visible(False)
    low, high = axes.get_xlim()
    if low < 0.0 < high:
        axes.axvline(0.0, color="0.85", linewidth=0.8, zorder=0)
    axes.set_xlabel(f"value of the parameter (line: {100 * _PROB:g} % of the mass, thick: half of it, dot: median)")
    head(figure, comparison, f"Posterior intervals of {count}", failed=failed)
    return figure


def _marginals(comparison: Comparison, wanted: list[int] | None) -> "Figure":
    chosen, count = _chosen(comparison, wanted, "marginals")
    finite, failed = finite_draws(comparison, chosen)
    tint, table = colours(comparison), comparison.parameters
    figure, grid = panels(len(chosen), (3.0, 2.1))
    for j, (axes, i) in enumerate(zip(grid, chosen, strict=True)):
        parameter, levels = comparison.truth.names[i], comparison.truth.levels[i]
        if levels is not None:
            _bars(axes, levels, {name: np.exp(comparison.fits[name].log_probabilities[i]) for name in finite}, tint)
        else:
            _densities(axes, comparison.reference, {name: values[:, j] for name, values in finite.items()}, tint)
        errors = {name: float(table.loc[(name, parameter), "error"]) for name in comparison.names}
        worst = max(errors, key=lambda n: abs(errors[n]) if np.isfinite(errors[n]) else np.inf)
        axes.set_title(plain(parameter), loc="left", fontweight="bold")
        axes.set_title(f"{plain(worst)} {_error_in_words(errors[worst], levels is not None)}", loc="right", fontsize=8)
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("value" if is_lowest(j, len(chosen)) else "")
        if is_leftmost(j):
            axes.set_ylabel("density" if levels is None else "probability")
    shown = comparison.truth.discrete[list(chosen)]
    density = "Curves: densities; the reference's is shaded. Right: the run with the largest error of the mean, in sds."
    bars = "Bars: probability of each value. Right: the run with the largest total variation distance."
    note = " ".join([density] * (not shown.all()) + [bars] * bool(shown.any()))
    head(figure, comparison, f"Marginal posteriors of {count}", note, failed=failed)
    return figure


def _densities(axes: "Axes", reference: str, draws: Mapping[str, np.ndarray], tint: Mapping[str, str]) -> None:
    """Draws the densities of a continuous parameter, one curve for each run; the reference is behind the others."""
    from matplotlib.ticker import MaxNLocator

    spans = []
    for name, values in draws.items():
        density = density_of(values)
        if density is None:
            axes.axvline(values[0], color=tint[name], linewidth=1.5)
            continue
        grid, height = density
        seen = grid[height > _VISIBLE * height.max()]
        spans.append((seen[0], seen[-1]))
        if name == reference:
            axes.fill_between(grid, height, color=tint[name], alpha=_SHADE, linewidth=0)
        axes.plot(grid, height, color=tint[name], linewidth=1.0 if name == reference else 1.6)
    if spans:
        low, high = min(s[0] for s in spans), max(s[1] for s in spans)
        axes.set_xlim(low - 0.02 * (high - low), high + 0.02 * (high - low))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _bars(
    axes: "Axes", levels: Sequence[float], probabilities: Mapping[str, np.ndarray], tint: Mapping[str, str]
) -> None:
    """Draws the probabilities of a discrete parameter's values, with the runs side by side, the reference first."""
    order = np.argsort(levels).tolist()
    width = 0.8 / len(probabilities)
    for k, (name, probability) in enumerate(probabilities.items()):
        at = np.arange(len(levels)) + (k - 0.5 * (len(probabilities) - 1)) * width
        axes.bar(at, probability[order], width, color=tint[name], linewidth=0)
    labelled = np.unique(np.linspace(0, len(levels) - 1, min(len(levels), 8)).astype(int)).tolist()
    axes.set_xticks(labelled, [f"{levels[order[k]]:g}" for k in labelled])
    axes.set_yticks([0.0, 0.5, 1.0])
    axes.set_ylim(top=1.05)


def _error_in_words(error: float, discrete: bool) -> str:
    if not np.isfinite(error):
        return "not finite"
    # for a discrete parameter this is the total variation distance, which has no sign
    return f"{0.5 * abs(error):.2g} off" if discrete else f"{error:+.2f} sd".replace("-", "−")


def _probabilities(comparison: Comparison, wanted: list[int] | None) -> "Figure":
    discrete = comparison.truth.discrete
    if not discrete.any() or not all(discrete[i] for i in wanted or ()):
        what = "these parameters are" if wanted else "the model is"
        raise NotApplicable(f'There are no probabilities to draw: {what} not discrete. Draw "marginals" instead.')
    chosen = wanted if wanted is not None else np.flatnonzero(discrete).tolist()
    tint, reference = colours(comparison), plain(comparison.reference)

    def probabilities(name: str) -> np.ndarray:
        """The probabilities of all values except the first, because they sum to 1."""
        logs = comparison.fits[name].log_probabilities
        return np.concatenate([np.exp(logs[i])[1:] for i in chosen])

    truth = probabilities(comparison.reference)
    figure, grid = panels(len(comparison.names), (3.1, 2.75))
    for axes, name in zip(grid, comparison.names, strict=True):
        theirs = probabilities(name)
        axes.axline((0.0, 0.0), slope=1.0, color=FAINT, linewidth=0.9, zorder=1)
        axes.scatter(truth, theirs, s=14, color=tint[name], alpha=0.7, linewidths=0, rasterized=True, zorder=2)
        axes.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04))
        axes.set_box_aspect(1.0)
        axes.set_xlabel(f"probability of a value\nunder {reference}")
        axes.set_ylabel(f"probability of a value\nunder {plain(name)}")
        axes.set_title(plain(name), loc="left", fontweight="bold")
        corner(axes, f"off by up to {np.abs(theirs - truth).max():.2g}")
    words = _counted(len(chosen), len(comparison.truth.names))
    note = "On the line they agree. A latent of two values has one dot: the probability of the second."
    head(figure, comparison, f"Probabilities of the values of {words}", note, legend=False)
    return figure


def _predictions(comparison: Comparison, wanted: list[int] | None) -> "Figure":
    values = {name: predicted(comparison, fit) for name, fit in comparison.fits.items()}
    truth, tint = values[comparison.reference], colours(comparison)
    words = {name: plain(text) for name, text in predictions_in_words(comparison, truth).items()}
    places = [(observation, name) for observation in truth for name in comparison.names]
    figure, grid = panels(len(places), (3.1, 2.75))
    for axes, (observation, name) in zip(grid, places, strict=True):
        axes.set_title(plain(name), loc="left", fontweight="bold")
        axes.set_xlabel(f"{words[observation]}\nunder {plain(comparison.reference)}")
        axes.set_ylabel(f"{words[observation]}\nunder {plain(name)}")
        _against(axes, truth[observation], values[name][observation], comparison.joint.length, tint[name])
    head(
        figure,
        comparison,
        "Predictions of each row, run against reference",
        "On the line they agree; the ring is the largest difference.",
        legend=False,
    )
    return figure


def _against(axes: "Axes", x: np.ndarray, y: np.ndarray, rows: int, colour: str) -> None:
    """Plots predictions ``(rows * elements,)`` of a run against the reference's, with a ring around the worst."""
    from matplotlib.ticker import MaxNLocator

    gap = np.abs(y - x)
    if not np.isfinite(gap).any():
        axes.text(0.5, 0.5, "not finite", ha="center", va="center", transform=axes.transAxes)
        return
    worst = int(np.nanargmax(gap))
    shown = np.unique(np.append(np.linspace(0, x.size - 1, min(x.size, _POINTS)).astype(int), worst))
    axes.axline((x[worst], x[worst]), slope=1.0, color=FAINT, linewidth=0.9, zorder=1)
    axes.scatter(x[shown], y[shown], s=10, color=colour, alpha=0.6, linewidths=0, rasterized=True, zorder=2)
    axes.scatter(x[worst], y[worst], s=60, facecolors="none", edgecolors=BLACK, linewidths=1.0, zorder=3)
    low = min(np.nanmin(x[shown]), np.nanmin(y[shown]))
    high = max(np.nanmax(x[shown]), np.nanmax(y[shown]))
    margin = 0.04 * (high - low) or 0.5
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(low - margin, high + margin)
    axes.set_box_aspect(1.0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))
    elements = x.size // rows
    element = "" if elements == 1 else f", element {worst % elements}"
    corner(axes, f"off by up to {gap[worst]:.2g}\n(row {worst // elements}{element})")


def _learning(comparison: Comparison, wanted: list[int] | None) -> "Figure":
    every = {name: learning_curve(comparison, name) for name in comparison.learners}
    curves = {name: curve for name, curve in every.items() if curve is not None}
    if not curves:
        raise NotApplicable(
            "There is no learning curve: none of the runs learns online. Compare an adfpp.ADF as well, or draw "
            f"{', '.join(k for k in KINDS if k != 'learning')}."
        )
    # a run that keeps a latent in its native space has other columns than one that does not
    columns = {name: curve_columns(comparison.fits[name]) for name in curves}
    common = set.intersection(*(set(c) for c in columns.values()))
    missing = [comparison.truth.names[i] for i in wanted or [] if i not in common]
    if missing or not common:
        raise NotApplicable(
            f"There is no learning curve of {', '.join(missing) or 'these parameters'}: the belief has no separate "
            "marginals for them (they are part of a simplex or a matrix, for example)."
        )
    order = wanted
    if order is None:
        order = [int(i) for i in by_error(comparison, list(curves)) if i in common][: _MOST["learning"]]
    low, middle, high = comparison.truth.quantiles(BAND)
    discrete = comparison.truth.discrete
    low, middle, high = (np.where(discrete, comparison.truth.mean, a) for a in (low, middle, high))
    tint = colours(comparison)
    figure, grid = panels(len(order), (3.2, 2.2), sharex=True)
    for j, (axes, i) in enumerate(zip(grid, order, strict=True)):
        axes.axhspan(low[i], high[i], color=tint[comparison.reference], alpha=_SHADE, linewidth=0, zorder=0)
        axes.axhline(middle[i], color=tint[comparison.reference], linewidth=1.0, zorder=1)
        for name, curve in curves.items():
            k = columns[name][i]
            axes.fill_between(curve.rows, curve.low[:, k], curve.high[:, k], color=tint[name], alpha=0.2, lw=0)
            axes.plot(curve.rows, curve.middle[:, k], color=tint[name], linewidth=1.6)
        axes.set_title(plain(comparison.truth.names[i]), loc="left", fontweight="bold")
        axes.margins(x=0.0)
        if is_lowest(j, len(order)):
            axes.set_xlabel("rows absorbed")
            axes.tick_params(labelbottom=True)
        if is_leftmost(j):
            axes.set_ylabel("value of the parameter")
    words = _counted(len(order), len(comparison.truth.names))
    head(
        figure,
        comparison,
        f"Belief along the stream in {words}{', largest error first' if wanted is None else ''}",
        "Curve and band: median and central 68 % (mean ± sd) after so many rows. Straight line and band: the "
        "reference, given all rows." + " For discrete latents: the mean." * bool(discrete[list(order)].any()),
        only=[*curves, comparison.reference],
        failed=finite_draws(comparison, order)[1],
    )
    return figure


_PICTURES: Mapping[str, Callable[[Comparison, list[int] | None], "Figure"]] = {
    "forest": _forest,
    "marginals": _marginals,
    "probabilities": _probabilities,
    "predictions": _predictions,
    "learning": _learning,
}
KINDS = (*_PICTURES, "all")


def _chosen(comparison: Comparison, wanted: list[int] | None, kind: str) -> tuple[list[int], str]:
    """The parameters to show, and their number in words."""
    total = len(comparison.truth.names)
    if wanted is not None:
        return wanted, _counted(len(wanted), total)
    order = by_error(comparison)
    if kind == "forest":
        order = order[~comparison.truth.discrete[order]]
    chosen = [int(i) for i in order[: _MOST[kind]]]
    words = _counted(len(chosen), total)
    return chosen, f"{words}, largest error first" if total > 1 else words


def _counted(shown: int, total: int) -> str:
    if shown == total:
        return f"all {total} parameters" if total > 1 else "the parameter"
    return f"{shown} of {total} parameters"
