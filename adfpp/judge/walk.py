"""Measures the error of a posterior by walking from it towards the exact one.

The draws of an approximate posterior are moved by a Markov chain whose stationary distribution is the exact posterior.
If the approximation is exact, the moves leave the distribution of the draws as it is. If it is not, the draws drift,
and their drift measures the error of each mean and each standard deviation, with a standard error. Unlike importance
weights, the walk leaves the region that the approximation covers, so that it sees standard deviations that are too
small and tails that are cut off.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_NU = 5.0  # degrees of freedom of the t distribution around which ellipses are drawn: its tails are wider than needed


class Base(NamedTuple):
    """The approximation as an elliptical distribution, from which the walk starts.

    Attributes:
        mean: ``(N,)`` its mean.
        sd: ``(N,)`` its standard deviations.
        draw: A function from a number of draws to draws ``(S, N)``.
        distance: A function from θ ``(S, N)`` to squared Mahalanobis distances ``(S,)``.
        direction: A function from coordinates ``(S,)`` to the changes ``(S, N)`` of the mean of θ if the coordinate
            grows by one sd.
    """

    mean: np.ndarray
    sd: np.ndarray
    draw: Callable[[int], np.ndarray]
    distance: Callable[[np.ndarray], np.ndarray]
    direction: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Walked:
    """The states of many short chains, in standard units of the approximation.

    Attributes:
        paths: ``(steps + 1, chains, N)`` the states, the first of which are draws from the approximation.
        evaluations: Number of evaluations of the joint density.
    """

    paths: np.ndarray
    evaluations: int


def walk(
    base: Base, log_joint: Callable[[np.ndarray], np.ndarray], theta: np.ndarray, steps: int, rng: np.random.Generator
) -> Walked:
    """Moves draws by elliptical slice sampling, which leaves the exact posterior as it is.

    Steps in all coordinates and steps in the direction of one coordinate alternate. The ellipses are those of a
    multivariate t distribution with the location and scale of the approximation (Nishihara, Murray and Adams, 2014).

    Args:
        base: The approximation.
        log_joint: The log of prior times likelihood ``(S,)`` at ``(S, N)``.
        theta: ``(chains, N)`` draws from the approximation.
        steps: Number of steps of each chain.
        rng: The generator of the random numbers.
    """
    count, size = theta.shape
    paths = np.empty((steps + 1, count, size))
    paths[0] = (theta - base.mean) / base.sd
    theta, log_p = theta.copy(), _finite(log_joint(theta))
    made = np.zeros(count, int)
    centre, along, across = np.empty_like(theta), np.empty_like(theta), np.empty_like(theta)
    level, low, high, angle = (np.empty(count) for _ in range(4))
    whole, position, other = np.ones(count, bool), np.zeros(count), np.zeros(count)
    starting = np.arange(count)
    evaluations = 0
    while True:
        if len(starting):
            whole[starting] = made[starting] % 2 == 0
            every, single = starting[whole[starting]], starting[~whole[starting]]
            if len(every):
                x = theta[every] - base.mean
                squared = base.distance(theta[every])
                scale = 0.5 * (_NU + squared) / rng.gamma(0.5 * (_NU + size), size=len(every))
                noise = base.draw(count)[: len(every)] - base.mean
                centre[every], along[every], across[every] = base.mean, x, np.sqrt(scale)[:, None] * noise
                level[every] = log_p[every] + _log_t(squared, size)
            if len(single):
                chosen = rng.integers(size, size=len(single))
                towards = base.direction(chosen)
                x = (theta[single, chosen] - base.mean[chosen]) / base.sd[chosen]
                scale = 0.5 * (_NU + x * x) / rng.gamma(0.5 * (_NU + 1.0), size=len(single))
                position[single], other[single] = x, np.sqrt(scale) * rng.normal(size=len(single))
                along[single], across[single] = x[:, None] * towards, other[single][:, None] * towards
                centre[single] = theta[single] - along[single]
                level[single] = log_p[single] + _log_t(x * x, 1)
            level[starting] -= rng.exponential(size=len(starting))
            angle[starting] = rng.uniform(0.0, 2.0 * np.pi, len(starting))
            low[starting], high[starting] = angle[starting] - 2.0 * np.pi, angle[starting]
        moved = centre + np.cos(angle)[:, None] * along + np.sin(angle)[:, None] * across
        reached = _finite(log_joint(moved))
        evaluations += count
        x = np.where(whole, 0.0, position * np.cos(angle) + other * np.sin(angle))
        residual = reached + np.where(whole, _log_t(base.distance(moved), size), _log_t(x * x, 1))
        active = made < steps
        accepted = active & (residual > level)
        refused = active & ~accepted
        # a bracket that has shrunk to the current state by rounding ends the step there
        stuck = refused & (high - low < 1e-10)
        refused &= ~stuck
        low = np.where(refused & (angle < 0.0), angle, low)
        high = np.where(refused & (angle >= 0.0), angle, high)
        angle = np.where(refused, low + (high - low) * rng.random(count), angle)
        theta[accepted], log_p[accepted] = moved[accepted], reached[accepted]
        starting = np.flatnonzero(accepted | stuck)
        made[starting] += 1
        paths[made[starting], starting] = (theta[starting] - base.mean) / base.sd
        if (made == steps).all():
            return Walked(paths, evaluations)
        starting = starting[made[starting] < steps]


def _log_t(squared: np.ndarray, size: int) -> np.ndarray:
    """Minus the log density of the t distribution, up to a constant."""
    return 0.5 * (_NU + size) * np.log1p(squared / _NU)


def _finite(logs: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(logs), -np.inf, logs)
