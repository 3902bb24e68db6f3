"""Dirichlet, and Beta as one coordinate of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from scipy import special
from typing_extensions import override

from adfpp.engine.families.product import dirichlet_functions as functions
from adfpp.engine.families.product.exponential import (
    Exponential,
    inside_interval,
    log_gamma_draws,
    quantile_arguments,
)
from adfpp.engine.families.product.nodes import Nodes, beta_nodes


class _OnSimplex(Exponential):
    """The base of Beta and Dirichlet: everything that follows from the concentrations alone."""

    @override
    def vague(self, mean: np.ndarray) -> np.ndarray:
        shares = mean if mean.shape[-1] == self.numbers else np.concatenate([mean, 1.0 - mean], -1)
        return self.numbers * np.clip(shares, 0.1, 0.9)

    @property
    @override
    def flat(self) -> np.ndarray:
        return np.ones(self.numbers)

    @override
    def log_norm(self, eta: jax.Array) -> jax.Array:
        return functions.log_multivariate_beta(eta)

    @override
    def expected(self, eta: jax.Array) -> jax.Array:
        """ψ(α_k) - ψ(Σ α)."""
        return functions.expected_logs(eta)

    @override
    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """Newton's method for the new concentration alone; the other parameters follow from it."""
        return self.accepted(eta, change, functions.shifted(eta, jnp.asarray(change, eta.dtype)))

    @override
    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        return functions.divergence(eta, other)

    @override
    def inside(self, values: np.ndarray, dtype: DTypeLike) -> np.ndarray:
        return np.clip(values, float(jnp.finfo(dtype).tiny), 1.0 - float(jnp.finfo(dtype).eps))


@dataclass(frozen=True)
class Beta(_OnSimplex):
    """Beta: one coordinate of a Dirichlet. η = (a, b), T = (log s, log(1 - s)), base measure ds/(s(1 - s))."""

    name = "beta"
    dim = 1
    numbers = 2
    axes = 1

    @override
    def stats(self, s: jax.Array) -> jax.Array:
        return jnp.concatenate([jnp.log(s), jnp.log1p(-s)], -1)

    @override
    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, variance = functions.moments(eta)
        return mean[..., :1], variance[..., :1]

    @override
    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        s = jnp.asarray(s)
        return functions.log_prob(eta, jnp.concatenate([s, 1.0 - s], -1))

    @override
    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        return _draws(key, eta, shape)[..., :1]

    @override
    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        eta, q = quantile_arguments(eta, q)
        return special.betaincinv(eta[..., 0], eta[..., 1], q)[..., None]

    @override
    def interior(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.uniform(0.2, 0.8, (count, 1))

    @override
    def probes(self) -> np.ndarray:
        return special.expit(np.linspace(-3.0, 3.0, 25))[:, None]

    @override
    def points_of(self, expected: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Two points of weight 1/2: the products of s and of 1 - s are known, and so are sum and product of the two."""
        p, q = jnp.exp(expected[..., 0]), jnp.exp(expected[..., 1])  # geometric means of s and 1 - s
        middle = 0.5 * (1.0 + (p - q) * (p + q))
        apart = 0.5 * jnp.sqrt((1.0 - p - q) * (1.0 - p + q) * (1.0 + p - q) * (1.0 + p + q))
        upper = middle + apart
        return jnp.full(2, 0.5, p.dtype), jnp.stack([upper, p * p / upper])[..., None]

    @override
    def probe(self, eta: jax.Array, wide: ArrayLike = 1.0) -> jax.Array:
        """The statistics of a Beta of few counts, whose points are apart from each other and from 0 and 1."""
        return self.expected(jnp.full_like(eta, 1.5) * wide)

    @override
    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """The nodes are placed in logit s."""
        logs, weights, coarse = beta_nodes(eta, level)
        return Nodes(inside_interval(jnp.exp(logs[:, :1])), logs, weights, coarse)


@dataclass(frozen=True)
class Dirichlet(_OnSimplex):
    """Dirichlet. η = α, T = log s, base measure Π ds/s over all coordinates but the last.

    Attributes:
        size: Coordinates K, two or more.
    """

    size: int
    dim: int = field(init=False, repr=False)
    numbers: int = field(init=False, repr=False)
    axes: int = field(init=False, repr=False)
    name = "dirichlet"

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ValueError(f"size={self.size} must be two or more.")
        for attribute, value in (("dim", self.size), ("numbers", self.size), ("axes", self.size - 1)):
            object.__setattr__(self, attribute, value)

    @override
    def stats(self, s: jax.Array) -> jax.Array:
        return jnp.log(s)

    @override
    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        return functions.moments(eta)

    @override
    def covariance(self, eta: jax.Array) -> jax.Array:
        """The covariance, which is singular because the coordinates sum to 1."""
        mean, variance = functions.moments(eta)
        total = jnp.sum(eta, -1)[..., None, None]
        outer = -mean[..., :, None] * mean[..., None, :] / (total + 1.0)
        return jnp.where(jnp.eye(self.size, dtype=bool), variance[..., None], outer)

    @override
    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """Log-density of the first K - 1 coordinates."""
        return functions.log_prob(eta, jnp.asarray(s))

    @override
    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        return _draws(key, eta, shape)

    @override
    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        alpha = np.asarray(eta, float)
        others = np.stack([np.delete(alpha, k, -1).sum(-1) for k in range(self.size)], -1)
        return Beta().quantile(np.stack([alpha, others], -1), q)[..., 0]

    @override
    def interior(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.dirichlet(np.full(self.size, 4.0), count)

    @override
    def probes(self) -> np.ndarray:
        return np.random.default_rng(6).dirichlet(np.full(self.size, 2.0), 16 * self.size)

    @override
    def points_of(self, expected: jax.Array) -> tuple[jax.Array, jax.Array]:
        """One point, the geometric means. They do not sum to 1.

        A mean of log s below the logarithm of the smallest number, as that of an empty component under a very sparse
        prior, is replaced by this logarithm.
        """
        least = float(np.log(jnp.finfo(expected.dtype).tiny))
        return jnp.ones(1, expected.dtype), jnp.exp(jnp.maximum(expected, least))[None]

    @override
    def probe(self, eta: jax.Array, wide: ArrayLike = 1.0) -> jax.Array:
        """The logarithms of the means, moved by a constant."""
        return jnp.log(eta / jnp.sum(eta, -1, keepdims=True)) - 0.5 * wide

    @override
    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """Nodes by stick breaking: independent Betas, whose nodes are the coarser the more of them there are."""
        if self.axes > 3:
            raise ValueError(f"A Dirichlet of size {self.size} has no quadrature: draw from it instead.")
        rest = jnp.zeros((1,), eta.dtype)
        weights = coarse = jnp.ones((1,), eta.dtype)
        logs = jnp.zeros((1, 0), eta.dtype)
        for k in range(self.axes):
            broken, fine, rough = beta_nodes(jnp.stack([eta[k], jnp.sum(eta[k + 1 :])]), level + self.axes - 1)
            many = len(fine)
            logs = jnp.concatenate([jnp.repeat(logs, many, 0), (rest[:, None] + broken[:, 0]).reshape(-1, 1)], -1)
            rest = (rest[:, None] + broken[:, 1]).reshape(-1)
            weights = (weights[:, None] * fine).reshape(-1)
            coarse = (coarse[:, None] * rough).reshape(-1)
        logs = jnp.concatenate([logs, rest[:, None]], -1)
        return Nodes(inside_interval(jnp.exp(logs)), logs, weights, coarse)


def _draws(key: jax.Array, alpha: jax.Array, shape: Sequence[int]) -> jax.Array:
    """Draws ``(*shape, ..., K)``, by the logarithms of Gammas."""
    return inside_interval(jax.nn.softmax(log_gamma_draws(key, alpha, shape), -1))
