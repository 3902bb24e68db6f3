"""A linear Gaussian model of moving parameters, and the textbook smoother of it."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist

from adfpp import ADF, Discount, OrnsteinUhlenbeck, RandomWalk
from adfpp.learn.smoothing import Smoothed

ROWS = 24
PRIOR_MEAN, PRIOR = np.array([0.5, 0.5, -1.0]), np.diag([1.0, 1.0, 4.0])
NOISE = 0.5


def linear(x: Any, y: Any = None) -> None:
    """Linear regression: two slopes and an intercept."""
    w = numpyro.sample("w", dist.Normal(0.5, 1).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(-1, 2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w + b, NOISE), obs=y)


def stream(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, outputs, time gaps."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 2))
    y = x @ np.array([1.0, -1.0]) + np.sin(np.arange(ROWS) / 5) + NOISE * rng.normal(size=ROWS)
    return x, y, rng.exponential(size=ROWS)


Move = Callable[[np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray, float]]


def rauch_tung_striebel(x: np.ndarray, y: np.ndarray, gaps: np.ndarray, move: Move) -> tuple[Any, Any, Any, float]:
    """The textbook smoother in covariances; ``move(m, C, gap)`` gives m⁻, C⁻ and f. A row that is NaN says nothing."""
    filtered, moved = [], []
    m, c, log_z = PRIOR_MEAN, PRIOR, 0.0
    for t, (row, target) in enumerate(zip(np.column_stack([x, np.ones(len(x))]), y, strict=True)):
        factor = 1.0
        if t > 0:
            m, c, factor = move(m, c, gaps[t])
        moved.append((m, c, factor))
        if np.isfinite(target):
            s = row @ c @ row + NOISE**2
            gain = c @ row / s
            log_z += -0.5 * (target - row @ m) ** 2 / s - 0.5 * np.log(2 * np.pi * s)
            m, c = m + gain * (target - row @ m), c - np.outer(gain, gain) * s
        filtered.append((m, c))
    smoothed = [filtered[-1]]
    for t in range(len(y) - 2, -1, -1):
        (m, c), (m_next, c_next, factor) = filtered[t], moved[t + 1]
        gain = factor * c @ np.linalg.inv(c_next)
        ms, cs = smoothed[0]
        smoothed.insert(0, (m + gain @ (ms - m_next), c + gain @ (cs - c_next) @ gain.T))
    means, covariances = (np.array(a) for a in zip(*smoothed, strict=True))
    return means, covariances, np.array([m for m, _ in filtered]), log_z


def walk(q: np.ndarray) -> Move:
    """A random walk."""
    return lambda m, c, gap: (m, c + gap * q, 1.0)


def fade(m: np.ndarray, c: np.ndarray, gap: float) -> tuple[np.ndarray, np.ndarray, float]:
    """An Ornstein-Uhlenbeck process of timescale 5."""
    phi = float(np.exp(-gap / 5.0))
    return PRIOR_MEAN + phi * (m - PRIOR_MEAN), phi**2 * c + (1 - phi**2) * PRIOR, phi


MATRIX = 0.2 * np.ones((3, 3)) + 0.1 * np.eye(3)

MOVES: dict[str, tuple[Any, Move]] = {
    "scalar": (RandomWalk(0.1), walk(0.1 * np.eye(3))),
    "site": (RandomWalk({"b": 0.3}), walk(np.diag([0, 0, 0.3]))),
    "matrix": (RandomWalk(MATRIX), walk(MATRIX)),
    "returning": (OrnsteinUhlenbeck(5.0), fade),
    "discount": (Discount(0.9), lambda m, c, gap: (m, c / 0.9**gap, 1.0)),
}


@cache
def learner(kind: str) -> ADF:
    """Its compiled passes serve several tests."""
    return ADF(linear, dynamics=MOVES[kind][0])


def covariances(smoothed: Smoothed) -> np.ndarray:
    """(n, N, N)."""
    root = np.asarray(smoothed.belief.scale)
    return root @ root.transpose(0, 2, 1)
