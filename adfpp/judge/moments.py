"""Measures how far the means and standard deviations of a posterior are from the exact ones, with standard errors.

Three methods are tried, from the cheapest to the most expensive, until the errors are known well enough to judge the
posterior: importance weights of draws from the posterior and from wider distributions around it, and a walk of many
short Markov chains from the posterior towards the exact one (``adfpp.judge.walk``).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from adfpp.judge.walk import Base, walk
from adfpp.learn.importance import Reweighted, good_weights, psislw

WANTED = 0.05  # noise of an error, in sds, that is small enough to compare the error with a limit of 0.1
CHAINS = 500  # draws that are evaluated at once, and chains of the walk
TAIL = 0.05  # probability of each tail of the posterior whose exact probability is measured

_WIDE = 2  # times CHAINS draws from each of the wider distributions at first
_MOST_DRAWS = 10.0  # times so many draws from them at most; a walk costs about as much
_NU = 5.0  # degrees of freedom of the t distribution in all directions
_NU_SINGLE = 3.0  # degrees of freedom in the direction of one coordinate: tails are the heavier, the fewer dimensions
_FEWEST_CHAINS = 100  # of a walk: with fewer its noise would be above the limits
_STEPS = 24  # steps of the walk before its errors are looked at
_SEGMENTS = 3  # times that so many steps are made at most
_FORGOTTEN = 0.9  # correlation of a path with its start up to which a drift can be extrapolated


class Method(StrEnum):
    """How the errors of a posterior were measured."""

    EXACT = "enumeration"
    WEIGHTS = "importance weights"
    WIDER = "importance weights of wider draws"
    WALK = "a walk towards the exact posterior"


class Estimate(NamedTuple):
    """An estimate with its noise.

    Attributes:
        value: The estimate.
        noise: Its likely error, as the largest of all coordinates: the standard error times sqrt(2 log 2N).
        where: The coordinate.
    """

    value: float
    noise: float
    where: str


@dataclass(frozen=True, eq=False)
class Measured:
    """The errors of a posterior in each coordinate of θ, as far as they could be measured.

    Attributes:
        names: ``(N,)`` the names of the coordinates.
        shift: ``(N,)`` mean of the posterior minus the exact mean, in exact sds; for a discrete coordinate twice the
            total variation distance of its marginals.
        shift_se: ``(N,)`` its standard error.
        log_ratio: ``(N,)`` log of the sd of the posterior over the exact sd; 0 for discrete coordinates.
        log_ratio_se: ``(N,)`` its standard error.
        tails: ``(N, 2)`` exact probabilities below the 5 % quantile and above the 95 % quantile of the posterior.
        method: How the errors were measured.
        reliable: Whether the method works here. Weights must not be heavy-tailed, a walk must forget its start.
    """

    names: Sequence[str]
    shift: np.ndarray
    shift_se: np.ndarray
    log_ratio: np.ndarray
    log_ratio_se: np.ndarray
    tails: np.ndarray
    method: Method
    reliable: bool

    @property
    def largest(self) -> float:
        """The largest of N independent standard normal numbers, in absolute value, is about so large."""
        return math.sqrt(2.0 * math.log(2.0 * len(self.shift)))

    @property
    def noise(self) -> float:
        """The largest noise of an estimate."""
        return self.largest * float(max(np.max(self.shift_se), np.max(self.log_ratio_se)))

    @property
    def resolved(self) -> bool:
        """Whether the errors are known well enough to be compared with a limit of 0.1."""
        return self.reliable and self.noise <= 2.0 * WANTED

    @property
    def error(self) -> Estimate:
        """The error of a mean that is largest beyond its noise."""
        return self._worst(np.abs(self.shift), self.shift_se)

    @property
    def width(self) -> Estimate:
        """The ratio of sds that is furthest from 1 beyond its noise."""
        found = self._worst(np.abs(self.log_ratio), self.log_ratio_se)
        i = list(self.names).index(found.where)
        return Estimate(float(np.exp(self.log_ratio[i])), found.noise, found.where)

    @property
    def ratios(self) -> tuple[float, float]:
        """The smallest and the largest ratio of an sd to the exact one."""
        return float(np.exp(np.min(self.log_ratio))), float(np.exp(np.max(self.log_ratio)))

    @property
    def tail(self) -> Estimate:
        """The tail probability that is furthest from 5 %."""
        i, side = np.unravel_index(np.nanargmax(np.abs(np.nan_to_num(self.tails, nan=TAIL) - TAIL)), self.tails.shape)
        return Estimate(
            float(self.tails[i, side]), math.nan, f"the {('lower', 'upper')[side]} tail of {self.names[int(i)]}"
        )

    def _worst(self, size: np.ndarray, se: np.ndarray) -> Estimate:
        i = int(np.argmax(size - self.largest * se))
        return Estimate(float(size[i]), self.largest * float(se[i]), self.names[i])


def measure(
    base: Base,
    log_joint: Callable[[np.ndarray], np.ndarray],
    theta: np.ndarray,
    log_p: np.ndarray,
    first: Measured,
    rng: np.random.Generator,
    most: int,
) -> Measured:
    """Measures the errors of a Gaussian approximation, beyond what importance weights of its own draws tell.

    Args:
        base: The approximation.
        log_joint: The log of prior times likelihood ``(S,)`` at ``(S, N)``.
        theta: ``(S, N)`` draws from the approximation.
        log_p: ``(S,)`` log joint at the draws.
        first: The errors by importance weights of these draws.
        rng: The generator of the random numbers.
        most: The largest number of evaluations of the joint that the walk may cost.
    """
    if first.reliable and first.noise <= 0.5 * WANTED:
        return first
    wider = _by_wider_draws(base, first.names, log_joint, theta, log_p, CHAINS * _WIDE, rng)
    # the noise falls with the root of the number of draws
    more = CHAINS * math.ceil(_WIDE * min(_MOST_DRAWS, (wider.noise / (0.7 * WANTED)) ** 2))
    if wider.reliable and wider.noise > WANTED and not _is_clear(wider) and 3 * more <= most:
        wider = _by_wider_draws(base, first.names, log_joint, theta, log_p, more, rng)
    chains = min(CHAINS, most // (3 * _STEPS), len(theta))
    if (wider.reliable and wider.noise <= WANTED) or _is_clear(wider) or chains < _FEWEST_CHAINS:
        return wider
    walked = _by_walk(base, first.names, log_joint, theta[:chains], rng, most)
    if wider.reliable and (wider.noise <= walked.noise or not walked.reliable):
        return wider
    return walked


def _by_walk(
    base: Base,
    names: Sequence[str],
    log_joint: Callable[[np.ndarray], np.ndarray],
    theta: np.ndarray,
    rng: np.random.Generator,
    most: int,
) -> Measured:
    """Errors from a walk that goes on until they are known well enough, or until it has become too expensive."""
    made = walk(base, log_joint, theta, _STEPS, rng)
    paths, evaluations = made.paths, made.evaluations
    walked = by_paths(names, paths)
    for _ in range(_SEGMENTS - 1):
        if (walked.reliable and walked.noise <= WANTED) or _is_clear(walked) or 2 * evaluations > most:
            break
        made = walk(base, log_joint, base.mean + base.sd * paths[-1], _STEPS, rng)
        paths, evaluations = np.concatenate([paths, made.paths[1:]]), evaluations + made.evaluations
        walked = by_paths(names, paths)
    return walked


def _is_clear(found: Measured) -> bool:
    """Whether an error is beyond the limits, or all errors are below them, whatever the noise."""
    if not found.reliable:
        return False
    error, width = found.error, found.width
    beyond = max(error.value - error.noise, abs(math.log(width.value)) - width.noise)
    within = max(
        np.max(np.abs(found.shift) + found.largest * found.shift_se),
        np.max(np.abs(found.log_ratio) + found.largest * found.log_ratio_se),
    )
    return bool(beyond > 2.0 * WANTED or within < 2.0 * WANTED)


# ------------------------------------------------------------------------------------------------ weights


def by_reweighted(names: Sequence[str], weighted: Reweighted, mean: npt.ArrayLike, sd: npt.ArrayLike) -> Measured:
    """Errors from a posterior that was corrected by importance weights.

    The sd of a discrete coordinate goes to 0 as the coordinate becomes certain, so it is not a unit for errors. The
    error of a discrete coordinate is twice the total variation distance of its marginals: a distance in sds of a fair
    coin.

    Args:
        names: The names of the coordinates.
        weighted: The posterior with its weights.
        mean: ``(N,)`` its means.
        sd: ``(N,)`` its standard deviations.
    """
    w = np.exp(weighted.log_weights)
    q = np.full(len(w), 1.0 / len(w)) if weighted.log_q is None else np.exp(weighted.log_q)
    discrete = np.array([v is not None for v in weighted.levels] or [False] * weighted.theta.shape[1])
    standard = (weighted.theta - np.asarray(mean)) / np.where(discrete, 1.0, np.asarray(sd))
    # draws that are all alike, because the posterior is certain, carry no information: the verdict says so
    reliable = weighted.exact or math.isnan(weighted.k_hat) or good_weights(weighted.k_hat, weighted.ess, len(w))
    method = Method.EXACT if weighted.exact else Method.WEIGHTS
    found = _compared(names, standard, w, q, method, reliable)
    for i in np.flatnonzero(discrete).tolist():
        hits = weighted.theta[:, [i]] == np.asarray(weighted.levels[i])
        found.shift[i] = np.sum(np.abs((w - q) @ hits))
        change = w[:, None] * (hits - w @ hits) - q[:, None] * (hits - q @ hits)
        found.shift_se[i] = 0.0 if weighted.exact else np.sum(np.sqrt(np.sum(change**2, 0)))
        found.log_ratio[i] = found.log_ratio_se[i] = 0.0
        found.tails[i] = TAIL
    return found


def _compared(
    names: Sequence[str], standard: np.ndarray, w: np.ndarray, q: np.ndarray, method: Method, reliable: bool
) -> Measured:
    """Errors from draws that have two weights: for the exact posterior and for the approximation.

    The moments of both are estimated from the same draws, so that most of the sampling error cancels if the two are
    close.

    Args:
        names: The names of the coordinates.
        standard: ``(S, N)`` the draws, in standard units of the approximation.
        w: ``(S,)`` weights for the exact posterior, which add up to 1.
        q: ``(S,)`` weights for the approximation.
        method: What the draws are.
        reliable: Whether the weights are good.
    """
    mean, base_mean = w @ standard, q @ standard
    var, base_var = w @ (standard - mean) ** 2, q @ (standard - base_mean) ** 2
    with np.errstate(all="ignore"):
        first = w[:, None] * (standard - mean) - q[:, None] * (standard - base_mean)
        second = w[:, None] * ((standard - mean) ** 2 / var - 1.0)
        second -= q[:, None] * ((standard - base_mean) ** 2 / base_var - 1.0)
        return Measured(
            names,
            (base_mean - mean) / np.sqrt(var),
            np.sqrt(np.sum(first**2, 0) / var),
            0.5 * np.log(base_var / var),
            0.5 * np.sqrt(np.sum(second**2, 0)),
            np.stack([w @ (standard < special.ndtri(TAIL)), w @ (standard > -special.ndtri(TAIL))], -1),
            method,
            reliable and bool((var > 0.0).all()),
        )


def _by_wider_draws(
    base: Base,
    names: Sequence[str],
    log_joint: Callable[[np.ndarray], np.ndarray],
    theta: np.ndarray,
    log_p: np.ndarray,
    extra: int,
    rng: np.random.Generator,
) -> Measured:
    """Errors from draws of the approximation together with so many draws from each of two wider distributions.

    One of them is a t distribution in all directions. The other changes a draw in the direction of one coordinate,
    chosen at random, to that of a t distribution; the other coordinates follow by their conditional means. As many new
    draws of the approximation itself are added if there are more wider ones than old draws.
    """
    size = theta.shape[1]
    noise = base.draw(extra) - base.mean
    overall = base.mean + noise * np.sqrt(_NU / rng.chisquare(_NU, extra))[:, None]
    single, chosen = base.draw(extra), rng.integers(size, size=extra)
    x = (single[np.arange(extra), chosen] - base.mean[chosen]) / base.sd[chosen]
    single = single + (rng.standard_t(_NU_SINGLE, extra) - x)[:, None] * base.direction(chosen)
    plain = base.draw(max(0, extra - len(theta)))
    count = len(theta) + len(plain)
    added = np.concatenate([plain, overall, single])
    every = np.concatenate([theta, added])
    standard = (every - base.mean) / base.sd
    squared = base.distance(every)
    # densities relative to that of the approximation
    by_coordinate = np.asarray(special.logsumexp(_wider(standard**2, 1, _NU_SINGLE), axis=1)) - math.log(size)
    parts = [np.full(len(every), math.log(count)), math.log(extra) + _wider(squared, size, _NU)]
    parts.append(math.log(extra) + by_coordinate)
    log_mixture = np.asarray(special.logsumexp(parts, axis=0))
    log_ratio = np.concatenate([log_p, log_joint(added)]) + 0.5 * squared
    log_weights, k = psislw(np.where(np.isnan(log_ratio), -np.inf, log_ratio) - log_mixture)
    weights = np.exp(log_weights)
    reliable = good_weights(float(k), float(1.0 / np.sum(weights**2)), len(weights))
    return _compared(names, standard, weights, special.softmax(-log_mixture), Method.WIDER, reliable)


def _wider(squared: np.ndarray, size: int, nu: float) -> np.ndarray:
    """Log density of a t distribution minus that of the normal one with the same location and scale."""
    constant = special.gammaln(0.5 * (nu + size)) - special.gammaln(0.5 * nu) + 0.5 * size * math.log(2.0 / nu)
    return constant - 0.5 * (nu + size) * np.log1p(squared / nu) + 0.5 * squared


# ------------------------------------------------------------------------------------------------ walks


def by_paths(names: Sequence[str], paths: np.ndarray) -> Measured:
    """Errors from the paths of chains that start at draws from the approximation.

    A chain that has not forgotten its start has made only part of the way to the exact posterior. If f has the
    correlation b with its start, the drift of its mean is the share 1 - b of the error (exactly so, if f relaxes
    exponentially). The start itself, whose moments are known, serves as a control variate.

    Args:
        names: The names of the coordinates.
        paths: ``(steps + 1, chains, N)`` the states in standard units of the approximation.
    """
    start, end = paths[0], paths[-1]
    # chains that are still on their way would make the exact sds seem larger
    away = np.max(np.abs(paths.mean(1) - end.mean(0)) / np.maximum(end.std(0), 1e-6), 1) > 0.5
    late = paths[max(1 + len(paths) // 3, 1 + int(np.max(np.flatnonzero(away), initial=0))) :]
    first, kept = _drift(late.mean(0), start, 0.0)
    mean = first.mean(0)
    squares = (late - mean) ** 2
    second, kept_squares = _drift(squares.mean(0), start**2 - 1.0, 1.0)
    var = np.maximum(second.mean(0), 1e-6)
    count = np.sqrt(len(start))
    mean_se = np.hypot(first.std(0) / count, _still_moving(late))
    var_se = np.hypot(second.std(0) / count, _still_moving(squares))
    return Measured(
        names,
        -mean / np.sqrt(var),
        mean_se / np.sqrt(var),
        -0.5 * np.log(var),
        0.5 * var_se / var,
        np.stack([(late < special.ndtri(TAIL)).mean((0, 1)), (late > -special.ndtri(TAIL)).mean((0, 1))], -1),
        Method.WALK,
        bool(max(np.max(kept), np.max(kept_squares)) <= _FORGOTTEN),
    )


def _still_moving(values: np.ndarray) -> np.ndarray:
    """How far the averages of the earlier and the later half of paths differ beyond chance, ``(N,)``.

    Args:
        values: ``(steps, chains, N)``.
    """
    half = len(values) // 2
    change = values[half:].mean(0) - values[:half].mean(0) if half else np.zeros(values.shape[1:])
    return np.maximum(0.0, np.abs(change.mean(0)) - 2.0 * change.std(0) / np.sqrt(len(change)))


def _drift(values: np.ndarray, start: np.ndarray, expected: float) -> tuple[np.ndarray, np.ndarray]:
    """Values ``(chains, N)`` whose mean is the exact expectation, and the share of their start that paths still have.

    Args:
        values: ``(chains, N)`` averages of a function over the paths.
        start: ``(chains, N)`` the function at the start of the paths, minus its expectation.
        expected: Its expectation at the start.
    """
    slope = np.mean(start * (values - values.mean(0)), 0) / np.mean(start**2, 0)
    kept = np.clip(slope, 0.0, 0.98)
    return expected + (values - expected - kept * start) / (1.0 - kept), kept
