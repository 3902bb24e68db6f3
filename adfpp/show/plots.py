"""Pictures of a comparison: intervals, marginals, predictions, and beliefs along the stream, as Matplotlib figures."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np

from adfpp.judge.fits import Fit
from adfpp.model import Joint, Latent, stripped

REFERENCE_COLOUR = "#707070"
# Okabe and Ito's palette, told apart with any colour vision, without its grey and its yellow
_RUN_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7B3FA0", "#8C510A")
_PROB = 0.9  # mass of the forest's intervals
_MOST = {"forest": 20, "marginals": 9, "learning": 6}  # parameters shown unless they are named
_STEPS = 100  # of a learning curve
_POINTS = 5000  # of a scatter
_EVALUATIONS = 4_000_000  # rows times draws for the predictions of a run, with no fewer than 200 draws
_STYLE: dict[Any, Any] = {
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


class Compared(Protocol):
    """What is used of a ``Comparison``."""

    @property
    def fits(self) -> dict[str, Fit]:
        """Every run by name."""
        ...

    @property
    def reference(self) -> str:
        """Name of the reference."""
        ...

    @property
    def truth(self) -> Fit:
        """The reference's fit."""
        ...

    @property
    def names(self) -> list[str]:
        """The runs but the reference."""
        ...

    @property
    def parameters(self) -> Any:
        """A row for each run and scalar parameter."""
        ...

    @property
    def joint(self) -> Joint:
        """The model with its data."""
        ...

    @property
    def learners(self) -> dict[str, Any]:
        """The runs that learn online."""
        ...

    @property
    def data(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call's arguments."""
        ...


class NotApplicable(ValueError):
    """A picture that this comparison has nothing for."""


def draw(comparison: Compared, kind: str = "all", parameters: Sequence[str] | str | None = None) -> Any:
    """One picture of a comparison, or all that apply.

    Args:
        comparison: Of which runs.
        kind: "forest", "marginals", "probabilities" (of discrete sites), "predictions", "learning" or "all".
        parameters: Names of parameters (``"w[0]"``) or of whole sites (``"w"``) to show, in this order; those with the
            largest errors when None. The predictions have no parameters.

    Returns:
        A Matplotlib ``Figure``, which is not in pyplot's list; for "all" a dict of figures by kind.
    """
    if kind != "all" and kind not in _PICTURES:
        raise ValueError(f"There is no picture {kind!r}{_suggestion(kind, KINDS)}; there are {', '.join(KINDS)}.")
    if isinstance(parameters, str):
        parameters = [parameters]
    wanted = None if parameters is None else _indices(comparison, parameters)
    with _drawing():
        if kind != "all":
            return _PICTURES[kind](comparison, wanted)
        figures = {}
        for name, picture in _PICTURES.items():
            try:
                figures[name] = picture(comparison, wanted)
            except NotApplicable:
                continue
        return figures


def colours(comparison: Compared) -> dict[str, str]:
    """The colour of each run, the same in all pictures; the reference is grey."""
    out = {name: _RUN_COLOURS[i % len(_RUN_COLOURS)] for i, name in enumerate(comparison.names)}
    return out | {comparison.reference: REFERENCE_COLOUR}


def by_error(comparison: Compared, runs: Sequence[str] | None = None) -> np.ndarray:
    """Numbers of all parameters, that with the largest error of any of these runs (or of all) first."""
    table = comparison.parameters
    chosen = [name for name in comparison.names if runs is None or name in runs] or comparison.names
    errors = np.stack([np.abs(np.asarray(table.loc[name, "error"], float)) for name in chosen])
    worst = np.max(np.where(np.isfinite(errors), errors, np.inf), 0)
    return np.argsort(-worst, kind="stable")


def draw_check(ranks: np.ndarray, log_z: np.ndarray, left_out: bool = False) -> Any:
    """Where rows fell among their predictions, and the running log score.

    Args:
        ranks: Ranks in (0, 1), uniform if the predictions are calibrated.
        log_z: ``(n,)`` log predictive density of each row, in the order folded; 0 for refused ones, NaN for rows that
            do not count.
        left_out: Whether predictions are made from all the other rows, rather than from those before.

    Returns:
        A Matplotlib ``Figure`` with two panels.
    """
    with _drawing():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.0, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        bins = int(np.clip(len(ranks) // 20, 5, 20))
        left.hist(ranks, bins=bins, range=(0, 1), color=_RUN_COLOURS[0], alpha=0.7, edgecolor="white")
        expected = len(ranks) / bins
        spread = np.sqrt(expected * (1 - 1 / bins))
        left.axhspan(expected - 2 * spread, expected + 2 * spread, color=REFERENCE_COLOUR, alpha=0.25, lw=0)
        left.axhline(expected, color=REFERENCE_COLOUR)
        left.set(xlabel="rank of a row among its predictions", ylabel="rows")
        left.set_title("Calibrated: level, mostly inside the grey band", loc="left")
        log_z = log_z[~np.isnan(log_z)]
        seen = np.arange(1, len(log_z) + 1)
        right.plot(seen, np.cumsum(log_z) / seen, color=_RUN_COLOURS[0])
        right.set(xlabel="rows" if left_out else "rows seen", ylabel="mean log predictive density")
        right.set_title("Leave-one-out score so far" if left_out else "One-step-ahead score so far", loc="left")
        return figure


# ------------------------------------------------------------------------------------------------ the pictures


def _forest(comparison: Compared, wanted: list[int] | None) -> Any:
    from adfpp.show.arviz_plots import forest

    discrete = comparison.truth.discrete
    if discrete.all() or any(discrete[i] for i in wanted or ()):
        told = ", ".join(comparison.truth.names[i] for i in wanted or () if discrete[i]) or "all latent sites"
        raise NotApplicable(
            f'Intervals of discrete sites ({told}) say little: draw "probabilities" or "marginals" instead.'
        )
    chosen, count = _chosen(comparison, wanted, "forest")
    finite, _ = _finite(comparison, chosen)
    draws = {
        name: {_plain(fit.names[i]): values[:, j] for j, i in enumerate(chosen)}
        for name, (fit, values) in finite.items()
    }
    tint = colours(comparison)
    figure, axes = forest(
        {_plain(name): a for name, a in draws.items()}, {_plain(n): tint[n] for n in tint}, _PROB, 8.0
    )
    _forget(figure)
    figure.set_layout_engine("constrained")
    for spine in ("top", "right", "left"):
        axes.spines[spine].set_visible(False)
    low, high = axes.get_xlim()
    if low < 0.0 < high:
        axes.axvline(0.0, color="0.85", linewidth=0.8, zorder=0)
    axes.set_xlabel(f"value of the parameter (line: {100 * _PROB:g} % of the mass, thick: half of it, dot: median)")
    _head(figure, comparison, f"Posterior intervals of {count}")
    return figure


def _marginals(comparison: Compared, wanted: list[int] | None) -> Any:
    from matplotlib.ticker import MaxNLocator

    chosen, count = _chosen(comparison, wanted, "marginals")
    finite, _ = _finite(comparison, chosen)
    tint, table = colours(comparison), comparison.parameters
    figure, panels = _panels(len(chosen), 3, (3.0, 2.1))
    for j, (axes, i) in enumerate(zip(panels, chosen, strict=True)):
        spans = []
        levels = comparison.truth.levels[i]
        if levels is not None:
            _bars(axes, levels, {name: np.exp(comparison.fits[name].log_probabilities[i]) for name in finite}, tint)
        for name in sorted(
            finite if levels is None else (), key=lambda n: n != comparison.reference
        ):  # the reference behind the others
            curve = _curve(finite[name][1][:, j])
            if curve is None:
                axes.axvline(finite[name][1][0, j], color=tint[name], linewidth=1.5)
                continue
            grid, height = curve
            seen = grid[height > 0.01 * height.max()]
            spans.append((seen[0], seen[-1]))
            if name == comparison.reference:
                axes.fill_between(grid, height, color="0.86", linewidth=0)
            axes.plot(grid, height, color=tint[name], linewidth=1.0 if name == comparison.reference else 1.6)
        if spans:
            low, high = min(s[0] for s in spans), max(s[1] for s in spans)
            axes.set_xlim(low - 0.02 * (high - low), high + 0.02 * (high - low))
        parameter = comparison.truth.names[i]
        errors = {name: float(table.loc[(name, parameter), "error"]) for name in comparison.names}
        worst = max(errors, key=lambda n: abs(errors[n]) if np.isfinite(errors[n]) else np.inf)
        axes.set_title(_plain(parameter), loc="left", fontweight="bold")
        off = f"{_signed(errors[worst])} sd"
        if levels is not None:  # the total variation distance, which has no sign
            off = f"{0.5 * abs(errors[worst]):.2g} off" if np.isfinite(errors[worst]) else "not finite"
        axes.set_title(f"{_plain(worst)} {off}", loc="right", fontsize=8, color=tint[worst])
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("value" if j >= len(chosen) - 3 else "")
        if levels is not None:
            continue
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    shown = comparison.truth.discrete[list(chosen)]
    density = "Height: density. At the right: whose mean is furthest off, in reference sds."
    bars = "Bars: probability of each value. At the right: whose is furthest off (total variation distance)."
    note = " ".join([density] * (not shown.all()) + [bars] * bool(shown.any()))
    _head(figure, comparison, f"Marginal posteriors of {count}", note)
    return figure


def _bars(axes: Any, levels: Sequence[float], found: Mapping[str, np.ndarray], tint: Mapping[str, str]) -> None:
    """Probabilities of a discrete parameter's values, the runs side by side, the reference first."""
    order = np.argsort(levels).tolist()
    width = 0.8 / len(found)
    for k, (name, probability) in enumerate(found.items()):
        at = np.arange(len(levels)) + (k - 0.5 * (len(found) - 1)) * width
        axes.bar(at, probability[order], width, color=tint[name], linewidth=0)
    few = np.unique(np.linspace(0, len(levels) - 1, min(len(levels), 8)).astype(int))
    axes.set_xticks(few, [f"{levels[order[k]]:g}" for k in few.tolist()])
    axes.set_yticks([0.0, 0.5, 1.0])
    axes.set_ylim(top=1.05)


def _probabilities(comparison: Compared, wanted: list[int] | None) -> Any:
    discrete = comparison.truth.discrete
    if not discrete.any() or not all(discrete[i] for i in wanted or ()):
        raise NotApplicable(
            f"There are no probabilities to draw: {'these sites are' if wanted else 'the model is'} not discrete. Draw "
            '"marginals" instead.'
        )
    chosen = wanted if wanted is not None else np.flatnonzero(discrete).tolist()
    tint, reference = colours(comparison), _plain(comparison.reference)

    def probabilities(name: str) -> np.ndarray:
        """Of all values but the first, which the others tell."""
        logs = comparison.fits[name].log_probabilities
        return np.concatenate([np.exp(logs[i])[1:] for i in chosen])

    truth = probabilities(comparison.reference)
    figure, panels = _panels(len(comparison.names), 3, (3.1, 2.75))
    for axes, name in zip(panels, comparison.names, strict=True):
        found = probabilities(name)
        axes.axline((0.0, 0.0), slope=1.0, color="0.6", linewidth=0.9, zorder=1)
        axes.scatter(truth, found, s=12, color=tint[name], alpha=0.6, linewidths=0, rasterized=True, zorder=2)
        axes.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04))
        axes.set_box_aspect(1.0)
        axes.set_xlabel(f"probability of a value\nunder {reference}")
        axes.set_ylabel(f"under {_plain(name)}")
        axes.set_title(_plain(name), loc="left", fontweight="bold", color=tint[name])
        axes.set_title(f"off by up to {np.abs(found - truth).max():.2g}", loc="right", fontsize=8)
    words = _counted(len(chosen), len(comparison.truth.names))
    note = "On the line they agree. A site of two values has one dot: the probability of the second."
    _head(figure, comparison, f"Probabilities of the values of {words}", note, legend=False)
    return figure


def _predictions(comparison: Compared, wanted: list[int] | None) -> Any:
    from matplotlib.ticker import MaxNLocator

    found = {name: _predicted(comparison, fit) for name, fit in comparison.fits.items()}
    truth, reference, tint = found[comparison.reference], _plain(comparison.reference), colours(comparison)
    words = _words(comparison, truth)
    places = [(site, name) for site in truth for name in comparison.names]
    figure, panels = _panels(len(places), 3, (3.1, 2.75))
    length = comparison.joint.length
    for axes, (site, name) in zip(panels, places, strict=True):
        x, y = truth[site], found[name][site]
        gap = np.abs(y - x)
        axes.set_title(_plain(name), loc="left", fontweight="bold", color=tint[name])
        axes.set_xlabel(f"{words[site]}\nunder {reference}")
        axes.set_ylabel(f"{words[site]}\nunder {_plain(name)}")
        if not np.isfinite(gap).any():
            axes.text(0.5, 0.5, "not finite", ha="center", va="center", transform=axes.transAxes)
            continue
        worst = int(np.nanargmax(gap))
        shown = np.unique(np.append(np.linspace(0, x.size - 1, min(x.size, _POINTS)).astype(int), worst))
        axes.axline((x[worst], x[worst]), slope=1.0, color="0.6", linewidth=0.9, zorder=1)
        axes.scatter(x[shown], y[shown], s=9, color=tint[name], alpha=0.5, linewidths=0, rasterized=True, zorder=2)
        axes.scatter(x[worst], y[worst], s=60, facecolors="none", edgecolors="black", linewidths=1.0, zorder=3)
        low = min(np.nanmin(x[shown]), np.nanmin(y[shown]))
        high = max(np.nanmax(x[shown]), np.nanmax(y[shown]))
        margin = 0.04 * (high - low) or 0.5
        axes.set_xlim(low - margin, high + margin)
        axes.set_ylim(low - margin, high + margin)
        axes.set_box_aspect(1.0)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5))
        element = "" if x.size == length else f", element {worst % (x.size // length)}"
        axes.set_title(
            f"off by up to {gap[worst]:.2g} (row {worst // (x.size // length)}{element})", loc="right", fontsize=8
        )
    _head(
        figure,
        comparison,
        "Predictions of each row, run against reference",
        "On the line they agree; the ring is the largest difference.",
        legend=False,
    )
    return figure


def _learning(comparison: Compared, wanted: list[int] | None) -> Any:
    curves = {name: _trajectory(comparison, name) for name in comparison.learners}
    curves = {name: curve for name, curve in curves.items() if curve is not None}
    if not curves:
        raise NotApplicable(
            "There is no learning curve: none of the runs learns online. Compare an adfpp.ADF as well, or draw "
            f"{', '.join(k for k in KINDS if k != 'learning')}."
        )
    # a run that holds a site in its own space has other columns than one that does not
    columns = {name: _elementwise(comparison.fits[name]) for name in curves}
    at = set.intersection(*(set(own) for own in columns.values()))
    refused = [comparison.truth.names[i] for i in wanted or [] if i not in at]
    if refused or not at:
        raise NotApplicable(
            f"There is no learning curve of {', '.join(refused) or 'these parameters'}: what the belief holds is not "
            "these numbers one by one (a simplex or a matrix, say)."
        )
    order = (
        wanted
        if wanted is not None
        else [i for i in by_error(comparison, list(curves)) if i in at][: _MOST["learning"]]
    )
    middle, low, high = (comparison.truth.quantiles(_BAND)[k] for k in (1, 0, 2))
    discrete = comparison.truth.discrete
    middle, low, high = (np.where(discrete, comparison.truth.mean, a) for a in (middle, low, high))
    tint = colours(comparison)
    figure, panels = _panels(len(order), 3, (3.2, 2.2), sharex=True)
    for j, (axes, i) in enumerate(zip(panels, order, strict=True)):
        axes.axhspan(low[i], high[i], color="0.86", linewidth=0, zorder=0)
        axes.axhline(middle[i], color=REFERENCE_COLOUR, linewidth=1.0, zorder=1)
        for name, curve in curves.items():
            own = columns[name][i]
            axes.fill_between(curve.rows, curve.low[:, own], curve.high[:, own], color=tint[name], alpha=0.2, lw=0)
            axes.plot(curve.rows, curve.middle[:, own], color=tint[name], linewidth=1.4)
        axes.set_title(_plain(comparison.truth.names[i]), loc="left", fontweight="bold")
        axes.margins(x=0.0)
        if j >= len(order) - 3:  # the lowest of its column
            axes.set_xlabel("rows seen")
            axes.tick_params(labelbottom=True)
        if j % 3 == 0:
            axes.set_ylabel("value")
    words = _counted(len(order), len(comparison.truth.names))
    _head(
        figure,
        comparison,
        f"Belief along the stream in {words}{', largest error first' if wanted is None else ''}",
        "Line and band: median and central 68 % (mean ± sd) after so many rows. Grey: the reference, all rows at once."
        + " Of discrete sites: the mean." * bool(discrete[list(order)].any()),
        only=[*curves, comparison.reference],
    )
    return figure


_PICTURES: Mapping[str, Callable[[Compared, list[int] | None], Any]] = {
    "forest": _forest,
    "marginals": _marginals,
    "probabilities": _probabilities,
    "predictions": _predictions,
    "learning": _learning,
}
KINDS = (*_PICTURES, "all")


# --------------------------------------------------------------------------------------------- what they are made of


def _indices(comparison: Compared, parameters: Sequence[str]) -> list[int]:
    """Numbers of the parameters named; a site's name stands for all its elements."""
    names = comparison.truth.names
    places = {name: [i] for i, name in enumerate(names)}
    for i, name in enumerate(names):
        site = name.partition("[")[0]
        if site != name:
            places.setdefault(site, []).append(i)
    out: list[int] = []
    for parameter in parameters:
        if parameter not in places:
            some = ", ".join(names if len(names) <= 8 else [*names[:6], "…", names[-1]])
            raise ValueError(
                f"There is no parameter {parameter!r}{_suggestion(parameter, list(places))}; there are {some} "
                f"({len(names)} in all)."
            )
        out += places[parameter]
    if not out:
        raise ValueError("parameters is empty; name at least one, or leave it out.")
    return list(dict.fromkeys(out))


def _suggestion(word: Any, known: Sequence[str]) -> str:
    near = get_close_matches(str(word), known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _chosen(comparison: Compared, wanted: list[int] | None, kind: str) -> tuple[list[int], str]:
    """Which parameters are shown, and the words for how many."""
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


def _finite(comparison: Compared, chosen: Sequence[int]) -> tuple[dict[str, tuple[Fit, np.ndarray]], list[str]]:
    """Each run's draws ``(S, P)`` of some parameters, best known first; and the runs whose draws are not finite."""
    out, failed = {}, []
    for name in [comparison.reference, *comparison.names]:
        fit = comparison.fits[name]
        values = fit.scalars.reshape(-1, len(fit.names))[:, list(chosen)]
        if np.isfinite(values).all():
            out[name] = (fit, values)
        else:
            failed.append(name)
    return out, failed


def _curve(values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """A density with its far tail left out, which would take up the whole width; None for draws that do not move."""
    from adfpp.show.arviz_plots import density

    low, high = np.quantile(values, [0.25, 0.75])
    reach = 3.0 * (high - low)
    inside = values[(values >= low - reach) & (values <= high + reach)]
    return density(inside) if np.ptp(inside) > 0.0 else None


def _thinned(comparison: Compared, fit: Fit) -> np.ndarray:
    """Draws of a run that predictions are averaged over: ``(S, N)``."""
    theta = fit.in_space_of(comparison.joint.program)
    count = min(len(theta), int(np.clip(_EVALUATIONS // comparison.joint.length, 200, 1000)))
    return theta[np.linspace(0, len(theta) - 1, count).round().astype(int)]


def _predicted(comparison: Compared, fit: Fit) -> dict[str, np.ndarray]:
    """What each row is expected to be under a run: ``{site: (rows * elements,)}``."""
    return {site: np.ravel(a) for site, a in comparison.joint.predicted(_thinned(comparison, fit)).items()}


def _words(comparison: Compared, predicted: Mapping[str, np.ndarray]) -> dict[str, str]:
    """What is predicted, told from the reference's predictions: a mean, or the probability of what was observed."""
    length = comparison.joint.length
    rows = np.unique(np.linspace(0, length - 1, 64).astype(int))
    logs = comparison.joint.log_likelihood(_thinned(comparison, comparison.truth), rows)
    out = {}
    for site, values in predicted.items():
        mean, name = values.reshape(length, -1)[rows].ravel(), _plain(site)
        observed = np.exp(np.asarray(logs[site], float)).mean(0).ravel()
        out[site] = f"mean of {name}"
        if mean.shape != observed.shape:
            continue
        of_one = np.isclose(mean, observed, rtol=1e-3, atol=1e-5)
        of_zero = np.isclose(1.0 - mean, observed, rtol=1e-3, atol=1e-5)
        if of_one.all():
            out[site] = f"{'probability' if observed.max() <= 1.0 else 'density'} of the observed {name}"
        elif (of_one | of_zero).all():
            out[site] = f"probability of {name} = 1"
    return out


_BAND = np.array([0.158655, 0.5, 0.841345])  # mean ± sd of a Gaussian


class _Curve(NamedTuple):
    """A learning curve: medians and bands ``(T, P)`` in the sites' own spaces after so many rows ``(T,)``."""

    rows: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray


def _trajectory(comparison: Compared, name: str) -> _Curve | None:
    """The belief along a run, which is folded again if it was not kept; None where the run has no such thing."""
    source, program = comparison.fits[name].source, comparison.fits[name].program
    if not hasattr(source, "trajectory") or comparison.fits[name].is_ep:
        return None
    kept = source.trajectory
    if kept is None:
        args, kwargs = comparison.data
        every = 1 << max(0, (comparison.joint.length // _STEPS).bit_length() - 1)  # a shape that needs no padding
        kept = source.again(*args, snapshots=every, **kwargs).trajectory
    parts = []
    for side in (0.0, -1.0, 1.0):
        flat = []
        for site in filter(_is_elementwise, program.latents):
            # of a discrete site the mean alone is drawn, and not as one of its values
            theta = kept.mean[:, site.where] + side * (not site.discrete) * kept.sd[:, site.where]
            flat.append(np.asarray(site.value(jnp.asarray(theta), False)).reshape(len(theta), -1))
        parts.append(np.concatenate(flat, 1) if flat else np.zeros((len(kept.rows), 0)))
    middle, one, other = parts
    return _Curve(kept.rows, middle, np.minimum(one, other), np.maximum(one, other))


def _elementwise(fit: Fit) -> dict[int, int]:
    """By number of a parameter, its column in a learning curve."""
    numbers, start = [], 0
    for site in fit.program.latents:
        size = int(np.prod(site.shape))
        if _is_elementwise(site):
            numbers += range(start, start + size)
        start += size
    return {number: column for column, number in enumerate(numbers)}


def _is_elementwise(site: Latent) -> bool:
    """Whether each of a site's numbers is a function of one unconstrained number."""
    inner = stripped(site.transform)
    return site.shape == site.unconstrained_shape and inner.domain.event_dim == 0 and inner.codomain.event_dim == 0


# ------------------------------------------------------------------------------------------------ Matplotlib


@contextmanager
def _drawing() -> Iterator[None]:
    """Matplotlib with this project's style."""
    try:
        import matplotlib
        import matplotlib.pyplot  # noqa: F401 (a notebook shows figures once this has been imported)
    except ImportError as error:
        raise ImportError("The pictures need Matplotlib: pip install adfpp[plots]") from error
    with matplotlib.rc_context(_STYLE):
        yield


def _forget(figure: Any) -> None:
    """Takes a figure out of pyplot's list, which keeps what it holds for ever and shows it."""
    import matplotlib.pyplot as plt

    plt.close(figure)


def _panels(count: int, across: int, size: tuple[float, float], sharex: bool = False) -> tuple[Any, list[Any]]:
    """A figure with so many axes in rows."""
    from matplotlib.figure import Figure

    columns = min(across, count)
    rows = -(-count // columns)
    width = max(6.0, columns * size[0])
    figure = Figure(figsize=(width, rows * size[1] + 0.9), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=sharex).ravel()
    for axes in grid[count:]:
        axes.remove()
    return figure, list(grid[:count])


def _head(
    figure: Any,
    comparison: Compared,
    title: str,
    note: str = "",
    only: Sequence[str] | None = None,
    legend: bool = True,
) -> None:
    """Title above, and the legend of the runs below the panels, clear of the data."""
    from matplotlib.lines import Line2D

    width = int(13.0 * figure.get_size_inches()[0])  # in letters
    lines = [title, *textwrap.wrap(note, width)]
    figure.suptitle("\n".join(lines), fontsize=10, x=0.01, ha="left")
    if not legend:
        return
    tint = colours(comparison)
    names = [n for n in [comparison.reference, *comparison.names] if only is None or n in only]
    failed = _finite(comparison, range(len(comparison.truth.names)))[1]
    handles = []
    for name in names:
        label = _plain(name) + (" (reference)" if name == comparison.reference else "")
        label += " (not finite: not drawn)" if name in failed else ""
        handles.append(Line2D([], [], color=tint[name], linewidth=3, label=label))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 4))


def _plain(name: str) -> str:
    """A name as Matplotlib prints it: no formulas, and none left out of a legend for its underscore."""
    name = name.replace("$", r"\$")
    return f" {name}" if name.startswith("_") else name


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−") if np.isfinite(value) else "not finite"
