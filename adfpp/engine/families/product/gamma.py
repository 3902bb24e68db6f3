"""Gamma and inverse gamma."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import ArrayLike, DTypeLike
from scipy import special
from typing_extensions import override

from adfpp.engine.families.product.exponential import (
    Exponential,
    inside_half_line,
    log_gamma_draws,
    quantile_arguments,
)
from adfpp.engine.families.product.gamma_functions import (
    log_gap,
    log_power,
    peak_height,
    ratio_excess,
    shape_divergence,
    shape_of_gap,
)
from adfpp.engine.families.product.nodes import Nodes, gamma_nodes


class _OnHalfLine(Exponential):
    """The base of the two families of a positive number."""

    dim = 1
    numbers = 2
    axes = 1

    @override
    def interior(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.uniform(0.5, 1.5, (count, 1))

    @override
    def probes(self) -> np.ndarray:
        return np.exp(np.linspace(-3.0, 3.0, 25))[:, None]

    @override
    def inside(self, values: np.ndarray, dtype: DTypeLike) -> np.ndarray:
        least = float(jnp.finfo(dtype).tiny)
        return np.clip(values, least, 1.0 / least)

    def _of_pair(self, mean: jax.Array, gap: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Two points of weight 1/2 with this mean of a Gamma number, and this log of the mean minus mean of the log."""
        apart = jnp.sqrt(-jnp.expm1(-2.0 * gap))  # (1 + e)(1 - e) = exp(-2 gap)
        # 1 - e without cancellation: a vague prior has a gap of hundreds
        values = jnp.stack([mean * (1.0 + apart), mean * jnp.exp(-2.0 * gap) / (1.0 + apart)])
        return jnp.full(2, 0.5, mean.dtype), self._of_gamma(values)[..., None]

    def _of_gamma(self, x: Any) -> Any:
        """The value that belongs to a Gamma number."""
        return x

    @override
    def points(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        return self._of_pair(eta[..., 0] / eta[..., 1], log_gap(eta[..., 0])[0])

    @override
    def points_of(self, expected: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = -expected[..., 1]
        return self._of_pair(mean, jnp.log(mean) - expected[..., 0])

    @override
    def vague(self, mean: np.ndarray) -> np.ndarray:
        shape = 3.0  # so that an inverse gamma has a mean and a variance
        x = np.clip(mean[:, 0], 1e-6, 1e6)
        return np.stack([np.full(len(x), shape), shape / self._of_gamma(x)], -1)

    @override
    def probe(self, eta: jax.Array, wide: ArrayLike = 1.0) -> jax.Array:
        """The same mean, and the gap of a shape of about 3."""
        mean = eta[..., 0] / eta[..., 1] * wide
        return jnp.stack([jnp.log(mean) - 0.17 * wide, -mean], -1)


@dataclass(frozen=True)
class Gamma(_OnHalfLine):
    """Gamma of shape a and rate b. η = (a, b), T = (log s, -s), base measure ds/s."""

    name = "gamma"

    @property
    @override
    def flat(self) -> np.ndarray:
        return np.array([1.0, 0.0])

    @override
    def log_norm(self, eta: jax.Array) -> jax.Array:
        return gammaln(eta[..., 0]) - eta[..., 0] * jnp.log(eta[..., 1])

    @override
    def stats(self, s: jax.Array) -> jax.Array:
        return jnp.concatenate([jnp.log(s), -s], -1)

    @override
    def expected(self, eta: jax.Array) -> jax.Array:
        """E[log s] = ψ(a) - log b and E[-s] = -a/b."""
        mean = eta[..., 0] / eta[..., 1]
        return jnp.stack([jnp.log(mean) - log_gap(eta[..., 0])[0], -mean], -1)

    @override
    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = eta[..., :1] / eta[..., 1:]
        return mean, mean / eta[..., 1:]

    @override
    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """Solves g(a') = log E[s] - E[log s], whose change is known, by four steps of Newton's method."""
        change = jnp.asarray(change, eta.dtype)
        a, b = eta[..., 0], eta[..., 1]
        relative = -change[..., 1] * b / a  # of E s
        gap = log_gap(a)[0] + jnp.log1p(relative) - change[..., 0]
        shape = shape_of_gap(gap)
        return self.accepted(eta, change, jnp.stack([shape, b * (shape / a) / (1.0 + relative)], -1))

    @override
    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """KL as the divergence of the shapes at the same mean, plus that of the means."""
        a, b = eta[..., 0], other[..., 0]
        means = ratio_excess(eta[..., 0] / eta[..., 1], other[..., 0] / other[..., 1])
        return shape_divergence(a, b) + b * means

    @override
    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """Log-density, as its difference from its value at the mean."""
        a, b, s = eta[..., 0], eta[..., 1], jnp.asarray(s)[..., 0]
        return peak_height(a) + log_power(a, b * s, a) + jnp.log(b)

    @override
    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        return inside_half_line(jnp.exp(log_gamma_draws(key, eta[..., :1], shape) - jnp.log(eta[..., 1:])))

    @override
    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        eta, q = quantile_arguments(eta, q)
        return (special.gammaincinv(eta[..., 0], q) / eta[..., 1])[..., None]

    @override
    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """The nodes are placed in log s."""
        a, b = eta[0], eta[1]
        log_x, weights, coarse = gamma_nodes(a, level)
        log_s = log_x + jnp.log(a / b)
        values = jnp.exp(log_s)
        return Nodes(inside_half_line(values)[:, None], jnp.stack([log_s, -values], -1), weights, coarse)


@dataclass(frozen=True)
class InverseGamma(_OnHalfLine):
    """Inverse gamma of shape a and scale b: 1/s is Gamma(a, b). η = (a, b), T = (-log s, -1/s), base measure ds/s."""

    name = "inverse_gamma"

    @override
    def _of_gamma(self, x: Any) -> Any:
        return 1.0 / x

    @property
    @override
    def flat(self) -> np.ndarray:
        return np.array([-1.0, 0.0])

    @override
    def log_norm(self, eta: jax.Array) -> jax.Array:
        return Gamma().log_norm(eta)

    @override
    def stats(self, s: jax.Array) -> jax.Array:
        return jnp.concatenate([-jnp.log(s), -1.0 / s], -1)

    @override
    def expected(self, eta: jax.Array) -> jax.Array:
        return Gamma().expected(eta)

    @override
    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean b/(a-1) for a > 1, and variance b²/((a-1)²(a-2)) for a > 2."""
        a, b = eta[..., :1], eta[..., 1:]
        mean = jnp.where(a > 1.0, b / jnp.where(a > 1.0, a - 1.0, 1.0), jnp.inf)
        return mean, jnp.where(a > 2.0, mean**2 / jnp.where(a > 2.0, a - 2.0, 1.0), jnp.inf)

    @override
    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        return Gamma().shifted(eta, change)

    @override
    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        return Gamma().kl(eta, other)

    @override
    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        a, b, s = eta[..., 0], eta[..., 1], jnp.asarray(s)[..., 0]
        inside = jnp.where(s > 0.0, s, b / a)
        return jnp.where(s > 0.0, peak_height(a) - a * ratio_excess(b / inside, a) - jnp.log(inside), -jnp.inf)

    @override
    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        return inside_half_line(jnp.exp(jnp.log(eta[..., 1:]) - log_gamma_draws(key, eta[..., :1], shape)))

    @override
    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """Quantiles from SciPy; inf beyond the largest number."""
        eta, q = quantile_arguments(eta, q)
        with np.errstate(divide="ignore"):
            return (eta[..., 1] / special.gammainccinv(eta[..., 0], q))[..., None]

    @override
    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """The nodes are placed in log s."""
        a, b = eta[0], eta[1]
        log_x, weights, coarse = gamma_nodes(a, level)
        log_s = -log_x - jnp.log(a / b)
        stats = jnp.stack([-log_s, -jnp.exp(-log_s)], -1)
        return Nodes(inside_half_line(jnp.exp(log_s))[:, None], stats, weights, coarse)
