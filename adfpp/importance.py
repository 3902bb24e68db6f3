"""Importance weights of draws from an approximation: how far it can be trusted, and what it says once corrected."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import logsumexp

from adfpp.arviz_lines import psislw

GOOD_K = 0.7  # above, Pareto-smoothed weights are not to be relied on (Vehtari et al., 2024)


class Elpd(NamedTuple):
    """Expected log predictive density of a new row, by leave-one-out cross-validation with importance weights.

    Attributes:
        total: Sum over all rows.
        se: Its standard error, from the spread between rows.
        pointwise: Of each row that was looked at.
        k: Pareto k̂ of each of them.
    """

    total: float
    se: float
    pointwise: np.ndarray
    k: np.ndarray


def left_out(log_lik: np.ndarray, log_ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log predictive density of each row without it, and its Pareto k̂.

    The weight of a draw without row i is posterior over proposal over the likelihood of row i; leaving out the first
    ratio, as plain PSIS-LOO does, misleads on draws from an approximation.

    Args:
        log_lik: ``(..., S)`` log-likelihood of each row at the draws.
        log_ratio: ``(S,)`` log joint minus log density of the proposal at each draw; zeros for MCMC.

    Returns:
        Two arrays ``(...)``.
    """
    with np.errstate(invalid="ignore"):
        # a draw that a row makes impossible has an unknown weight without it: NaN, and an infinite k
        ratios = log_ratio - log_lik
    weights, k = psislw(ratios)
    return np.asarray(logsumexp(weights + log_lik, axis=-1)), k


def leave_one_out(log_lik: Callable[[np.ndarray], np.ndarray], log_ratio: np.ndarray, rows: int, most: int) -> Elpd:
    """Leave-one-out from draws of an approximation, or of MCMC, a stretch of rows at a time.

    Args:
        log_lik: ``chosen rows -> (S, rows)`` log-likelihood of these rows at the draws.
        log_ratio: ``(S,)`` log joint minus log density of the proposal at each draw; zeros for MCMC.
        rows: How many rows there are.
        most: Look at so many of them at most, evenly spread; the total is scaled up.
    """
    chosen = np.arange(rows) if rows <= most else np.unique(np.linspace(0, rows - 1, most).astype(int))
    pointwise, k = [], []
    for start in range(0, len(chosen), 1024):
        some, tail = left_out(log_lik(chosen[start : start + 1024]).T, log_ratio)
        pointwise.append(some)
        k.append(tail)
    each = np.concatenate(pointwise)
    se = np.sqrt(rows) * np.std(each, ddof=1) if len(each) > 1 else np.nan
    return Elpd(float(rows * each.mean()), float(se), each, np.concatenate(k))


@dataclass(frozen=True, eq=False)
class Reweighted:
    """A posterior corrected by importance weights: weighted draws.

    Attributes:
        theta: ``(S, N)`` draws from the approximation, unconstrained.
        log_weights: ``(S,)`` normalised, Pareto-smoothed.
        k_hat: Pareto k̂: below .5 the weights are very good, above .7 neither they nor the approximation can be
            relied on.
        log_evidence: Estimate of log p(data) from the raw weights.
        constrain: From θ to the sites' own spaces.
    """

    theta: np.ndarray
    log_weights: np.ndarray
    k_hat: float
    log_evidence: float
    constrain: Callable[[Any], Mapping[str, Any]]

    @property
    def ess(self) -> float:
        """Effective number of independent draws from the true posterior."""
        return float(np.exp(-np.logaddexp.reduce(2.0 * self.log_weights)))

    def moved(self, mean: Any, sd: Any) -> tuple[float, float, float]:
        """How far the weights move θ: the error of the approximation, if ``k_hat`` is good.

        The draws' own moments are compared, so that the error of drawing cancels.

        Args:
            mean: ``(N,)`` of the approximation, unconstrained.
            sd: ``(N,)``.

        Returns:
            The largest distance of a mean in the smaller of both sds; the smallest and the largest ratio of an sd to
            what the weights make of it.
        """
        w = np.exp(self.log_weights)
        standard = (self.theta - np.asarray(mean)) / np.asarray(sd)
        centre, weighted = standard.mean(0), w @ standard
        corrected = np.sqrt(w @ (standard - weighted) ** 2)
        with np.errstate(divide="ignore"):
            ratio = standard.std(0) / corrected
            error = np.abs(weighted - centre) / np.minimum(corrected, 1.0)
        return float(np.max(error)), float(np.min(ratio)), float(np.max(ratio))

    @cached_property
    def draws(self) -> dict[str, np.ndarray]:
        """The draws in the sites' own spaces ``{site: (S, *site_shape)}``, to be used with the weights."""
        return {name: np.asarray(a) for name, a in self.constrain(self.theta).items()}

    def mean(self) -> dict[str, np.ndarray]:
        """Corrected posterior means ``{site: site_shape}``."""
        w = np.exp(self.log_weights)
        return {name: np.tensordot(w, a, 1) for name, a in self.draws.items()}

    def sd(self) -> dict[str, np.ndarray]:
        """Corrected posterior standard deviations ``{site: site_shape}``."""
        w, mean = np.exp(self.log_weights), self.mean()
        return {name: np.sqrt(np.tensordot(w, (a - mean[name]) ** 2, 1)) for name, a in self.draws.items()}

    def sample(self, rng_key: jax.Array, sample_shape: int | tuple[int, ...] = ()) -> dict[str, np.ndarray]:
        """Draws ``{site: (*sample_shape, *site_shape)}``, resampled by weight: ready for ``Predictive``."""
        sample_shape = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        chosen = np.asarray(jax.random.categorical(rng_key, self.log_weights, shape=sample_shape))
        return {name: a[chosen] for name, a in self.draws.items()}

    def __repr__(self) -> str:
        """What it can be relied on for."""
        word = "good" if self.k_hat <= GOOD_K else "not to be relied on"
        return f"Reweighted({len(self.theta)} draws, k_hat={self.k_hat:.2f} ({word}), ess={self.ess:.0f})"


def reweighted(
    theta: np.ndarray, log_joint: np.ndarray, log_q: np.ndarray, constrain: Callable[[Any], Mapping[str, Any]]
) -> Reweighted:
    """Weighs draws ``(S, N)`` of a proposal by log joint minus log proposal, ``(S,)`` each."""
    ratio = np.where(np.isnan(log_joint), -np.inf, log_joint) - log_q
    weights, k = psislw(ratio)
    log_evidence = np.logaddexp.reduce(ratio) - np.log(len(ratio))
    return Reweighted(theta, weights, float(k), float(log_evidence), constrain)
