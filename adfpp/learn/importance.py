"""Importance weights of draws from an approximate posterior: its error, and the posterior corrected by the weights."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike
from scipy.special import logsumexp

# from θ, an array of NumPy or JAX, to values of the latents
Constrain: TypeAlias = Callable[[Any], Mapping[str, ArrayLike]]

GOOD_K = 0.7  # with a larger k̂, Pareto-smoothed weights are unreliable (Vehtari et al., 2024)
NEARLY_EQUAL = 0.97  # share of effective draws above which weights are nearly equal: sds are then within about 10 %
_FEWEST_EFFECTIVE = 200.0  # draws with fewer effective ones do not determine moments, whatever their tail
_FEWEST = 25  # draws: a fifth of them is the tail, and its fit needs five numbers
_EQUAL = 1e-10  # log density ratios closer than this differ by rounding only
_ROWS = 1024  # rows whose weights are smoothed together, to bound the memory


def good_weights(k_hat: float, ess: float, draws: int) -> bool:
    """Whether means and sds by importance weights can be relied on.

    The tail of the weights must be light, and enough draws must be effective. If the weights are nearly equal, the fit
    of their tail describes differences that do not matter, so that its k̂ does not count.

    Args:
        k_hat: Pareto k̂ of the weights.
        ess: Number of effective draws.
        draws: Number of draws.
    """
    return ess >= min(_FEWEST_EFFECTIVE, 0.5 * draws) and (k_hat <= GOOD_K or ess >= NEARLY_EQUAL * draws)


def good_rows(log_weights: np.ndarray, k: np.ndarray, limit: float = GOOD_K) -> np.ndarray:
    """As ``good_weights``, for each row that is left out in turn.

    Args:
        log_weights: ``(..., S)`` normalised log weights.
        k: ``(...)`` their Pareto k̂.
        limit: The largest k̂ of good weights.
    """
    draws = log_weights.shape[-1]
    with np.errstate(invalid="ignore"):  # rows without any weight are not good
        ess = np.exp(-np.asarray(logsumexp(2.0 * log_weights, axis=-1)))
    return (k <= limit) | (ess >= NEARLY_EQUAL * draws)


class Elpd(NamedTuple):
    """Expected log predictive density of a new row, by leave-one-out cross-validation with importance weights.

    Attributes:
        total: Sum over all rows.
        se: Its standard error, from the spread between rows.
        pointwise: ``(rows,)`` the density of each row that was left out.
        k: ``(rows,)`` its Pareto k̂.
        good: ``(rows,)`` whether its weights can be relied on.
    """

    total: float
    se: float
    pointwise: np.ndarray
    k: np.ndarray
    good: np.ndarray


class LeftOut(NamedTuple):
    """The log predictive density of each row given all the others.

    Attributes:
        density: ``(...)`` the log density.
        k: ``(...)`` Pareto k̂ of its weights.
        good: ``(...)`` whether its weights can be relied on.
    """

    density: np.ndarray
    k: np.ndarray
    good: np.ndarray


def left_out(log_lik: np.ndarray, log_ratio: np.ndarray, limit: float = GOOD_K) -> LeftOut:
    """Estimates the log predictive density of each row given all the others.

    Without row i the weight of a draw is the ratio of posterior to proposal, divided by the likelihood of row i. Plain
    PSIS-LOO omits the first ratio, which is wrong for draws from an approximation.

    Args:
        log_lik: ``(..., S)`` log-likelihood of each row at the draws.
        log_ratio: ``(S,)`` log joint minus log density of the proposal at each draw; zeros for MCMC.
        limit: The largest k̂ of good weights.
    """
    with np.errstate(invalid="ignore"):
        # if row i excludes a draw, the weight of the draw without row i is unknown: it is NaN, and k is infinite
        ratios = log_ratio - log_lik
    weights, k = psislw(ratios)
    return LeftOut(np.asarray(logsumexp(weights + log_lik, axis=-1)), k, good_rows(weights, k, limit))


def leave_one_out(
    log_lik: Callable[[np.ndarray], np.ndarray], log_ratio: np.ndarray, rows: int, most: int, exact: bool = False
) -> Elpd:
    """Leave-one-out cross-validation with draws from an approximation, or from MCMC.

    Args:
        log_lik: ``chosen rows -> (S, rows)`` log-likelihood of these rows at the draws.
        log_ratio: ``(S,)`` log joint minus log density of the proposal at each draw; zeros for MCMC.
        rows: Number of rows.
        most: Largest number of rows that are left out in turn, evenly spread; the total is scaled up from them.
        exact: Whether there are all values of θ instead of draws, and ``log_ratio`` has their log-probabilities.
    """
    chosen = np.arange(rows) if rows <= most else np.unique(np.linspace(0, rows - 1, most).astype(int))
    parts: list[LeftOut] = []
    for start in range(0, len(chosen), _ROWS):
        logs = log_lik(chosen[start : start + _ROWS]).T
        parts.append(_left_out_exactly(logs, log_ratio) if exact else left_out(logs, log_ratio))
    each, k, good = (np.concatenate(column) for column in zip(*parts, strict=True))
    se = np.sqrt(rows) * np.std(each, ddof=1) if len(each) > 1 else np.nan
    return Elpd(float(rows * each.mean()), float(se), each, k, good)


def _left_out_exactly(log_lik: np.ndarray, log_weights: np.ndarray) -> LeftOut:
    """As ``left_out``, from all values of θ: 1 / E[1 / likelihood] under the posterior, and a k̂ of 0."""
    with np.errstate(invalid="ignore"):
        inverse = np.where(log_weights > -np.inf, log_weights - log_lik, -np.inf)
    count = len(log_lik)
    return LeftOut(-np.asarray(logsumexp(inverse, axis=-1)), np.zeros(count), np.ones(count, bool))


class Moved(NamedTuple):
    """How far importance weights move an approximation.

    Attributes:
        error: The largest move of a mean, in units of the smaller of the sds before and after.
        sd_low: The smallest ratio of an sd to the sd under the weights; 1 if all coordinates are discrete.
        sd_high: The largest such ratio.
    """

    error: float
    sd_low: float
    sd_high: float


@dataclass(frozen=True, eq=False)
class Reweighted:
    """A posterior corrected by importance weights: weighted draws, or all values of θ if it is discrete.

    Attributes:
        theta: ``(S, N)`` draws of θ from the approximation; or all combinations of discrete values.
        log_weights: ``(S,)`` normalised, Pareto-smoothed log weights; of combinations the exact log-probabilities.
        k_hat: Pareto k̂. Below 0.5 the weights are very good; above 0.7 neither the weights nor the approximation are
            reliable. It is 0 if the weights are exact. It is NaN if all draws are the same values of discrete latents,
            because the approximation is certain of them: such draws carry no information about its error.
        log_evidence: Estimate of log p(data) from the raw weights.
        constrain: A function from θ to values of the latents.
        log_q: ``(S,)`` log-probabilities of combinations under the approximation; None for draws, which have equal
            weights under it.
        levels: ``(N,)`` the values of each discrete coordinate, and None for the others. If it is empty, no coordinate
            is discrete.
    """

    theta: np.ndarray
    log_weights: np.ndarray
    k_hat: float
    log_evidence: float
    constrain: Constrain
    log_q: np.ndarray | None = None
    levels: Sequence[tuple[float, ...] | None] = ()

    @property
    def exact(self) -> bool:
        """Whether the weights are exact, because every combination of discrete values was enumerated."""
        return self.log_q is not None

    @property
    def ess(self) -> float:
        """Effective number of independent draws from the true posterior.

        It is infinite if the weights are exact, and NaN if no draw is possible.
        """
        if np.isnan(self.log_weights).any():
            return np.nan
        return np.inf if self.exact else float(np.exp(-np.logaddexp.reduce(2.0 * self.log_weights)))

    @property
    def unseen(self) -> bool:
        """Whether a value of a discrete coordinate was never drawn, so that its weight is unknown."""
        pairs = ((i, v) for i, values in enumerate(self.levels) for v in values or ())
        return not self.exact and any(not (self.theta[:, i] == v).any() for i, v in pairs)

    def moved(self, mean: npt.ArrayLike, sd: npt.ArrayLike) -> Moved:
        """Measures how far the weights move θ. This is the error of the approximation, if ``k_hat`` is good.

        The moments with and without weights are compared on the same draws, so that the sampling error cancels. The sd
        of a discrete coordinate goes to 0 as the coordinate becomes certain, so it is not a unit for errors. The move
        of a discrete coordinate is twice the total variation distance of its marginals. For two values, this is the
        difference of the probabilities in units of the sd of a fair coin.

        Args:
            mean: ``(N,)`` means of the approximation.
            sd: ``(N,)`` standard deviations of the approximation.
        """
        w = np.exp(self.log_weights)
        q = np.full(len(w), 1.0 / len(w)) if self.log_q is None else np.exp(self.log_q)
        discrete = np.array([v is not None for v in self.levels] or [False] * self.theta.shape[1])
        error, low, high = [0.0], [], []
        if not discrete.all():
            keep = ~discrete
            standard = (self.theta[:, keep] - np.asarray(mean)[keep]) / np.asarray(sd)[keep]
            centre, weighted = q @ standard, w @ standard
            corrected = np.sqrt(w @ (standard - weighted) ** 2)
            with np.errstate(divide="ignore"):
                ratio = np.sqrt(q @ (standard - centre) ** 2) / corrected
                error.append(np.max(np.abs(weighted - centre) / np.minimum(corrected, 1.0)))
            low.append(np.min(ratio))
            high.append(np.max(ratio))
        for i in np.flatnonzero(discrete).tolist():
            values = self.levels[i]
            assert values is not None
            error.append(np.sum(np.abs((w - q) @ (self.theta[:, [i]] == np.asarray(values)))))
        return Moved(float(np.max(error)), float(np.min(low or 1.0)), float(np.max(high or 1.0)))

    @cached_property
    def draws(self) -> dict[str, np.ndarray]:
        """The draws as values of the latents ``{latent: (S, *shape)}``, to be used with the weights."""
        return {name: np.asarray(a) for name, a in self.constrain(self.theta).items()}

    def mean(self) -> dict[str, np.ndarray]:
        """Corrected posterior means ``{latent: shape}``."""
        w = np.exp(self.log_weights)
        return {name: np.tensordot(w, a, 1) for name, a in self.draws.items()}

    def sd(self) -> dict[str, np.ndarray]:
        """Corrected posterior standard deviations ``{latent: shape}``."""
        w, mean = np.exp(self.log_weights), self.mean()
        return {name: np.sqrt(np.tensordot(w, (a - mean[name]) ** 2, 1)) for name, a in self.draws.items()}

    def sample(self, rng_key: jax.Array, sample_shape: int | tuple[int, ...] = ()) -> dict[str, np.ndarray]:
        """Resamples draws ``{latent: (*sample_shape, *shape)}`` by weight, in the form for NumPyro's ``Predictive``."""
        sample_shape = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        chosen = np.asarray(
            jax.random.choice(rng_key, len(self.log_weights), sample_shape, p=jnp.exp(self.log_weights))
        )
        return {name: a[chosen] for name, a in self.draws.items()}

    def __repr__(self) -> str:
        """Shows whether the weights are reliable."""
        if self.exact:
            return f"Reweighted(all {len(self.theta)} combinations, exact)"
        word = "good" if self.k_hat <= GOOD_K else "not to be relied on"
        return f"Reweighted({len(self.theta)} draws, k_hat={self.k_hat:.2f} ({word}), ess={self.ess:.0f})"


def reweighted(
    theta: np.ndarray,
    log_joint: np.ndarray,
    log_q: np.ndarray,
    constrain: Constrain,
    levels: Sequence[tuple[float, ...] | None] = (),
) -> Reweighted:
    """Computes the importance weights of draws from an approximation.

    Args:
        theta: ``(S, N)`` the draws.
        log_joint: ``(S,)`` log of prior times likelihood at each draw.
        log_q: ``(S,)`` log density of the approximation at each draw.
        constrain: A function from θ to values of the latents.
        levels: ``(N,)`` the values of each discrete coordinate, and None for the others.
    """
    ratio = np.where(np.isnan(log_joint), -np.inf, log_joint) - log_q
    weights, tail = psislw(ratio)
    k_hat = float(tail)
    log_evidence = np.logaddexp.reduce(ratio) - np.log(len(ratio))
    if any(levels) and len(theta) > 1 and (theta == theta[0]).all():
        k_hat = np.nan
    return Reweighted(theta, weights, k_hat, float(log_evidence), constrain, None, levels)


def enumerated(
    theta: np.ndarray,
    log_joint: np.ndarray,
    log_q: np.ndarray,
    constrain: Constrain,
    levels: Sequence[tuple[float, ...] | None],
) -> Reweighted:
    """Computes the exact posterior probabilities of all combinations of discrete values.

    Args:
        theta: ``(M, N)`` all combinations.
        log_joint: ``(M,)`` log of prior times likelihood of each combination.
        log_q: ``(M,)`` log-probability of each combination under the approximation.
        constrain: A function from θ to values of the latents.
        levels: ``(N,)`` the values of each coordinate.
    """
    log_joint = np.where(np.isnan(log_joint), -np.inf, log_joint)
    log_evidence = float(np.asarray(logsumexp(log_joint)))
    normalised = np.asarray(log_q, float) - logsumexp(log_q)
    return Reweighted(theta, log_joint - log_evidence, 0.0, log_evidence, constrain, normalised, levels)


def psislw(log_ratios: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Computes Pareto-smoothed importance weights of independent draws with ArviZ.

    If there is no tail to fit, the weights are only normalised. Their k̂ is then 0 if many draws have the largest
    ratio, because the ratios are then bounded (as for a small number of discrete values). It is infinite if there are
    fewer than 25 draws, or if a ratio is NaN or +inf.

    Args:
        log_ratios: ``(..., draws)`` log importance ratios, target over proposal, up to a constant.

    Returns:
        ``(log_weights, k)``: normalised smoothed log weights ``(..., draws)`` and Pareto k̂ ``(...)``, float64.
    """
    log_ratios = np.asarray(log_ratios, np.float64)
    draws = log_ratios.shape[-1]
    flat = log_ratios.reshape(-1, draws)
    top = np.max(flat, axis=-1, keepdims=True)
    usable = np.isfinite(top[:, 0])
    weights, k = np.full(flat.shape, np.nan), np.full(len(flat), np.inf)
    weights[usable] = flat[usable] - logsumexp(flat[usable], axis=-1, keepdims=True)
    if draws >= _FEWEST:
        # ArviZ 0.23 takes a tail of equal ratios for an infinitely heavy one, and ArviZ 1.x refuses it. Both do so when
        # only a quarter of the tail is equal, so such tails are treated here.
        many = max(5, math.ceil(min(draws / 5.0, 3.0 * math.sqrt(draws)) / 4.0))
        last = np.partition(flat, -many, axis=-1)[:, -many]
        with np.errstate(invalid="ignore"):
            level = usable & (top[:, 0] - last < _EQUAL)
        k[level] = 0.0
        fit = usable & ~level
        if fit.any():
            weights[fit], k[fit] = _smooth_by_arviz(flat[fit])
    return weights.reshape(log_ratios.shape), k.reshape(log_ratios.shape[:-1])


def _smooth_by_arviz(log_ratios: np.ndarray) -> tuple[Any, Any]:
    with np.errstate(all="ignore"):  # the fit of the tail overflows in candidates that it then rejects
        if _arviz_is_1():
            from arviz_stats.base import array_stats  # pyright: ignore[reportMissingImports]

            # it expects the log-likelihood of the left-out row, which is minus a log ratio
            weights, k = array_stats.psislw(-log_ratios, r_eff=1.0)
            return weights, np.where(np.isnan(k), np.inf, k)
        import arviz

        return arviz.psislw(log_ratios)


def _arviz_is_1() -> bool:
    return int(version("arviz").partition(".")[0]) >= 1
