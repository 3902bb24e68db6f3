"""The numbers in the pictures of a comparison: choice of parameters, predictions of rows, beliefs along a stream."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from adfpp.judge.compare import Comparison
from adfpp.judge.fits import Fit
from adfpp.learn.posterior import scalar_names
from adfpp.model import Latent, stripped

_STEPS = 100  # steps of a learning curve
# Rows times draws for the predictions of a run: about a second of work. With fewer than 200 draws the means would be
# visibly noisy, and more than 1000 cannot be told apart in a picture.
_EVALUATIONS, _FEWEST_DRAWS, _MOST_DRAWS = 4_000_000, 200, 1000
BAND = np.array([0.158655, 0.5, 0.841345])  # quantiles of mean ± sd of a Gaussian


# ------------------------------------------------------------------------------------------------ parameters


def numbers_of(comparison: Comparison, parameters: Sequence[str]) -> list[int]:
    """Numbers of the parameters with these names; the name of a latent stands for all its elements."""
    names = comparison.truth.names
    places = {name: [i] for i, name in enumerate(names)}
    for i, name in enumerate(names):
        latent = name.partition("[")[0]
        if latent != name:
            places.setdefault(latent, []).append(i)
    out: list[int] = []
    for parameter in parameters:
        if parameter not in places:
            some = ", ".join(names if len(names) <= 8 else [*names[:6], "…", names[-1]])
            raise ValueError(
                f"There is no parameter {parameter!r}{suggestion(parameter, list(places))}; there are {some} "
                f"({len(names)} in all)."
            )
        out += places[parameter]
    if not out:
        raise ValueError("parameters is empty; name at least one, or leave it out.")
    return list(dict.fromkeys(out))


def by_error(comparison: Comparison, runs: Sequence[str] | None = None) -> np.ndarray:
    """Numbers of all parameters; the one with the largest error in any of these runs (default: all) comes first."""
    table = comparison.parameters
    chosen = [name for name in comparison.names if runs is None or name in runs] or comparison.names
    errors = np.stack([np.abs(np.asarray(table.loc[name, "error"], float)) for name in chosen])
    worst = np.max(np.where(np.isfinite(errors), errors, np.inf), 0)
    return np.argsort(-worst, kind="stable")


def suggestion(word: str, known: Sequence[str]) -> str:
    """A question with the most similar known word; empty if no word is similar."""
    near = get_close_matches(str(word), known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def finite_draws(comparison: Comparison, chosen: Sequence[int]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Each run's draws ``(S, P)`` of some parameters, the reference's first; and the runs with draws not finite."""
    out, failed = {}, []
    for name in [comparison.reference, *comparison.names]:
        fit = comparison.fits[name]
        values = fit.scalars.reshape(-1, len(fit.names))[:, list(chosen)]
        if np.isfinite(values).all():
            out[name] = values
        else:
            failed.append(name)
    return out, failed


def density_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """A density of draws ``(S,)`` on a grid, without the far tails, which would fill the whole width.

    None if all draws are equal.
    """
    from adfpp.show.arviz_plots import density

    low, high = np.quantile(values, [0.25, 0.75])
    reach = 3.0 * (high - low)
    inside = values[(values >= low - reach) & (values <= high + reach)]
    return density(inside) if np.ptp(inside) > 0.0 else None


# ------------------------------------------------------------------------------------------------ predictions


def predicted(comparison: Comparison, fit: Fit) -> dict[str, np.ndarray]:
    """The expected value of each row under a run: ``{observation: (rows * elements,)}``."""
    return {name: np.ravel(a) for name, a in comparison.joint.predicted(_thinned(comparison, fit)).items()}


def _thinned(comparison: Comparison, fit: Fit) -> np.ndarray:
    """The draws ``(S, N)`` of a run over which predictions are averaged."""
    theta = fit.in_space_of(comparison.joint.program)
    wanted = np.clip(_EVALUATIONS // comparison.joint.length, _FEWEST_DRAWS, _MOST_DRAWS)
    count = min(len(theta), int(wanted))
    return theta[np.linspace(0, len(theta) - 1, count).round().astype(int)]


def predictions_in_words(comparison: Comparison, values: Mapping[str, np.ndarray]) -> dict[str, str]:
    """The kind of prediction for each observation, in words: a mean, or a probability (density) of the observed value.

    The kind is found by comparing the reference's predictions ``values`` with the likelihood of some rows.
    """
    length = comparison.joint.length
    rows = np.unique(np.linspace(0, length - 1, 64).astype(int))
    logs = comparison.joint.log_likelihood(_thinned(comparison, comparison.truth), rows)
    out = {}
    for name, expected in values.items():
        mean = expected.reshape(length, -1)[rows].ravel()
        out[name] = f"mean of {name}"
        if name not in logs:  # a latent of the row joins several observations, which have one likelihood
            continue
        likelihood = np.exp(np.asarray(logs[name], float)).mean(0).ravel()
        if mean.shape != likelihood.shape:
            continue
        of_one = np.isclose(mean, likelihood, rtol=1e-3, atol=1e-5)
        of_zero = np.isclose(1.0 - mean, likelihood, rtol=1e-3, atol=1e-5)
        if of_one.all():
            out[name] = f"{'probability' if likelihood.max() <= 1.0 else 'density'} of the observed {name}"
        elif (of_one | of_zero).all():
            out[name] = f"probability of {name} = 1"
    return out


# ------------------------------------------------------------------------------------------------ learning curves


class Curve(NamedTuple):
    """A learning curve: medians and bands ``(T, P)`` of the latents' values after so many rows ``(T,)``."""

    rows: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray


def learning_curve(comparison: Comparison, name: str) -> Curve | None:
    """The belief along a run, which is repeated if the belief was not kept; None for runs without such a belief."""
    source, program = comparison.fits[name].source, comparison.fits[name].program
    if not hasattr(source, "trajectory") or comparison.fits[name].is_ep:
        return None
    kept = source.trajectory
    if kept is None:
        args, kwargs = comparison.data
        # batches of a power of two are absorbed without padding
        every = 1 << max(0, (comparison.joint.length // _STEPS).bit_length() - 1)
        kept = source.again(*args, snapshots=every, **kwargs).trajectory
    sides = []
    for side in (0.0, -1.0, 1.0):
        flat = []
        for latent in filter(_is_elementwise, program.latents):
            # for a discrete latent only the mean is drawn, and it is not rounded to one of the values
            theta = kept.mean[:, latent.where] + side * (not latent.discrete) * kept.sd[:, latent.where]
            flat.append(np.asarray(latent.value(jnp.asarray(theta), False)).reshape(len(theta), -1))
        sides.append(np.concatenate(flat, 1) if flat else np.zeros((len(kept.rows), 0)))
    middle, one, other = sides
    return Curve(kept.rows, middle, np.minimum(one, other), np.maximum(one, other))


def curve_columns(fit: Fit) -> dict[int, int]:
    """The column of each parameter in a learning curve, by its number; parameters without a column are left out."""
    numbers = {name: number for number, name in enumerate(fit.names)}
    columns = [
        name
        for latent in filter(_is_elementwise, fit.program.latents)
        for name in scalar_names(latent.name, latent.shape)
    ]
    return {numbers[name]: column for column, name in enumerate(columns)}


def _is_elementwise(latent: Latent) -> bool:
    """Whether each of a latent's numbers is a function of one coordinate of θ."""
    inner = stripped(latent.transform)
    same_shape = latent.shape == latent.unconstrained_shape
    return same_shape and inner.domain.event_dim == 0 and inner.codomain.event_dim == 0
