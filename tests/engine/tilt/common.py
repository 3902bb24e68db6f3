"""What the tests of tilts share: errors as the rules count them, exact answers, and rules compiled once."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from adfpp.engine.tilt import Moments as Strategy
from adfpp.engine.tilt import Quadrature, Tilted
from tests.oracles import Moments

Vector = tuple[float, np.ndarray, np.ndarray]  # log Z, shift, covariance of u


def quadrature_of(strategy: Strategy) -> Quadrature:
    """A strategy's quadrature."""
    assert isinstance(strategy.quadrature, Quadrature)
    return strategy.quadrature


def worst(out: Any, truth: Moments) -> np.ndarray:
    """The largest error: mean in tilted sds, variance relative, log Z absolute. NaN counts as infinite."""
    shift, root = np.reshape(out.shift, np.shape(truth.shift)), np.reshape(out.root, np.shape(truth.root))
    each = [
        np.abs(shift - truth.shift) / truth.root,
        np.abs((root / np.asarray(truth.root)) ** 2 - 1),
        np.abs(np.asarray(out.log_z) - truth.log_z),
    ]
    return np.nan_to_num(np.stack(each), nan=np.inf).max(0)


def stacked(moments: Sequence[Moments]) -> Moments:
    """Many references as one, each field an array."""
    return Moments(*np.array(moments).T)


def assert_exact(out: Tilted, truth: Moments) -> None:
    """Equal up to the rounding of each number itself, the shift also up to 1e-12 tilted sds."""
    assert_allclose(out.log_z, truth.log_z, rtol=1e-12, atol=1e-14)
    assert np.all(np.abs(out.shift - truth.shift) <= 1e-12 * (np.abs(truth.shift) + truth.root))
    assert_allclose(out.root, truth.root, rtol=1e-10)


def spd_root(seed: int, size: int) -> np.ndarray:
    """A lower triangular root of a covariance that is far from diagonal."""
    a = np.random.default_rng(seed).normal(size=(size, size))
    return np.linalg.cholesky(a @ a.T + 0.1 * np.eye(size))


def exact_gaussian(value: np.ndarray, mean: np.ndarray, scale: np.ndarray, noise: np.ndarray) -> Vector:
    """The tilt by N(value; h, noise noiseᵀ), by textbook regression on the innovation."""
    total = scale @ scale.T + noise @ noise.T
    gain = scale.T @ np.linalg.inv(total)
    gap = value - mean
    log_z = -0.5 * (gap @ np.linalg.solve(total, gap) + np.linalg.slogdet(2 * np.pi * total)[1])
    return log_z, gain @ gap, np.eye(len(mean)) - gain @ scale


def vector_errors(out: Tilted, truth: Vector) -> float:
    """The largest error of the moments of a vector: in tilted sds, relative to them, and of log Z."""
    log_z, shift, covariance = truth
    sds = np.sqrt(np.diag(covariance))
    root = np.asarray(out.root)
    return max(
        float(np.max(np.abs(np.asarray(out.shift) - shift) / sds)),
        float(np.max(np.abs(root @ root.T - covariance) / np.outer(sds, sds))),
        abs(float(out.log_z) - log_z),
    )


def on_a_grid(
    log_factor: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, scale: np.ndarray, points: int, reach: float
) -> Vector:
    """log Z, shift and covariance of u on an even grid: exact to exp(-1/spacing²) on smooth tilts."""
    axis = np.linspace(-reach, reach, points)
    u = np.stack(np.meshgrid(*[axis] * len(mean), indexing="ij"), -1).reshape(-1, len(mean))
    logs = log_factor(mean + u @ scale.T) - 0.5 * (u * u).sum(1)
    top = logs.max()
    weights = np.exp(logs - top)
    total = weights.sum()
    shift = weights @ u / total
    centred = u - shift
    log_z = top + math.log(total) + len(mean) * (math.log(axis[1] - axis[0]) - 0.5 * math.log(2 * math.pi))
    return log_z, shift, (weights[:, None] * centred).T @ centred / total


class Line:
    """A rule on scalar factors ``f(h, value)``, compiled once for all of them.

    A call takes factors by name, with values and cavities, and gives the tilts stacked.
    """

    TRIALS = 8  # that the compiled program takes at once

    def __init__(self, rule: Any, factors: dict[str, Callable[[Any, Any], Any]]) -> None:
        self.names = list(factors)
        branches = list(factors.values())

        def one(trial: tuple[jax.Array, ...]) -> Any:
            i, value, mean, sd = trial

            def log_factor(h: jax.Array) -> jax.Array:
                return jax.lax.switch(i, branches, h[0], value)

            return rule(log_factor, mean[None], sd[None, None])

        self.run = jax.jit(lambda trials: jax.lax.map(one, trials))

    def __call__(self, name: str | Sequence[str], values: Any, means: Any, sds: Any, dtype: Any = float) -> Any:
        """The tilts of these factors, values, means and sds, which are broadcast against one another."""
        which = [self.names.index(n) for n in ([name] if isinstance(name, str) else name)]
        arrays = np.broadcast_arrays(which, values, means, sds)
        count = arrays[0].size
        pieces = []
        for start in range(0, count, self.TRIALS):
            some = [np.resize(np.ravel(a)[start : start + self.TRIALS], self.TRIALS) for a in arrays]
            pieces.append(self.run((jnp.asarray(some[0]), *(jnp.asarray(a, dtype) for a in some[1:]))))
        return jax.tree.map(lambda *a: np.concatenate(a)[:count], *pieces)
