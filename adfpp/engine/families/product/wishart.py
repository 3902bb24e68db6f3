"""Wishart: the Gamma of positive definite matrices, for precision matrices in variational message passing."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, multigammaln
from jax.typing import ArrayLike, DTypeLike
from scipy import optimize, special
from typing_extensions import override

from adfpp.engine.families.product.exponential import Exponential, quantile_arguments
from adfpp.engine.families.product.nodes import Nodes

_NODES = np.polynomial.legendre.leggauss(400)  # for the quantiles of elements that are not on the diagonal


@dataclass(frozen=True)
class Wishart(Exponential):
    """Wishart of shape a and rate matrix B, the Gamma of dimension d.

    η = (a, B) with all d² elements of B, T = (log|P|, -P), base measure dP |P|^(-(d+1)/2). In the usual parameters it
    has 2a degrees of freedom and the scale matrix B⁻¹/2.

    Attributes:
        size: Rows d of the matrix.
    """

    size: int
    dim: int = field(init=False, repr=False)
    numbers: int = field(init=False, repr=False)
    axes: int = field(init=False, repr=False)
    name = "wishart"

    def __post_init__(self) -> None:
        d = self.size
        for attribute, value in (("dim", d * d), ("numbers", 1 + d * d), ("axes", d * (d + 1) // 2)):
            object.__setattr__(self, attribute, value)

    @property
    @override
    def flat(self) -> np.ndarray:
        return np.concatenate([[0.5 * (self.size + 1)], np.zeros(self.dim)])

    def _matrix(self, elements: jax.Array) -> jax.Array:
        """The symmetric matrix with these elements."""
        square = elements.reshape((*elements.shape[:-1], self.size, self.size))
        return 0.5 * (square + jnp.swapaxes(square, -1, -2))

    def _flat(self, matrix: jax.Array) -> jax.Array:
        return matrix.reshape((*matrix.shape[:-2], self.dim))

    def _gap(self, a: jax.Array) -> jax.Array:
        """log|E[P]| - E[log|P|] of a member of shape a."""
        return self.size * jnp.log(a) - self._mean_log(a)

    def _mean_log(self, a: jax.Array) -> jax.Array:
        return jnp.sum(digamma(a[..., None] - 0.5 * np.arange(self.size)), -1)

    @override
    def log_norm(self, eta: jax.Array) -> jax.Array:
        a = eta[..., 0]
        return multigammaln(a, self.size) - a * _log_det(self._matrix(eta[..., 1:]))

    @override
    def stats(self, s: jax.Array) -> jax.Array:
        return jnp.concatenate([_log_det(self._matrix(s))[..., None], -s], -1)

    @override
    def expected(self, eta: jax.Array) -> jax.Array:
        """E[log|P|] and E[-P] = -a B⁻¹."""
        b = self._matrix(eta[..., 1:])
        mean_log = self._mean_log(eta[..., 0]) - _log_det(b)
        return jnp.concatenate([mean_log[..., None], -self._flat(_inverse(b)) * eta[..., :1]], -1)

    @override
    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        a, inverse = eta[..., :1], _inverse(self._matrix(eta[..., 1:]))
        diagonal = jnp.diagonal(inverse, axis1=-2, axis2=-1)
        variance = inverse**2 + diagonal[..., :, None] * diagonal[..., None, :]
        return a * self._flat(inverse), 0.5 * a * self._flat(variance)

    @override
    def covariance(self, eta: jax.Array) -> jax.Array:
        """Cov(P_ij, P_kl) = a (V_ik V_jl + V_il V_jk) / 2 with V = B⁻¹."""
        v = _inverse(self._matrix(eta[..., 1:]))
        both = jnp.einsum("...ik,...jl->...ijkl", v, v)
        both = both + jnp.swapaxes(both, -1, -2)
        return 0.5 * eta[..., :1, None] * both.reshape((*v.shape[:-2], self.dim, self.dim))

    @override
    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """The mean gives B for each a; Newton's method solves for log a."""
        change = jnp.asarray(change, eta.dtype)
        moved = self.expected(eta) + change
        mean = self._matrix(-moved[..., 1:])
        gap = _log_det(mean) - moved[..., 0]
        least = 0.5 * (self.size - 1)
        a = least + 0.25 * self.size * (self.size + 1) / gap  # the leading term for many degrees of freedom
        slope = jax.grad(lambda x: jnp.sum(self._gap(x)))
        for _ in range(8):
            excess = a - least
            a = least + excess * jnp.exp(jnp.clip((gap - self._gap(a)) / (slope(a) * excess), -2.0, 2.0))
        new = jnp.concatenate([a[..., None], a[..., None] * self._flat(_inverse(mean))], -1)
        return self.accepted(eta, change, new)

    @override
    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """The Bregman divergence of the log-normaliser."""
        apart = jnp.sum((eta - other) * self.expected(eta), -1)
        return apart - self.log_norm(eta) + self.log_norm(other)

    @override
    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """The log-density with respect to the elements on and below the diagonal."""
        flat = jnp.asarray(self.flat, eta.dtype)
        return jnp.sum((eta - flat) * self.stats(jnp.asarray(s)), -1) - self.log_norm(eta)

    @override
    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Bartlett's decomposition."""
        d, a = self.size, eta[..., 0]
        first, second = jax.random.split(key)
        square = jax.random.gamma(first, a[..., None] - 0.5 * np.arange(d), (*shape, *a.shape, d), eta.dtype)
        below = jax.random.normal(second, (*shape, *a.shape, d, d), eta.dtype) * np.tri(d, k=-1) * np.sqrt(0.5)
        factor = below + jnp.sqrt(square)[..., None] * jnp.eye(d, dtype=eta.dtype)
        root = jnp.linalg.cholesky(_inverse(self._matrix(eta[..., 1:]))) @ factor
        return self._flat(root @ jnp.swapaxes(root, -1, -2))

    @override
    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """A diagonal element is a Gamma; given it, the others of its row are Gaussian."""
        eta, q = quantile_arguments(eta, q)
        out = np.empty(np.broadcast_shapes(eta.shape[:-1], q.shape) + (self.dim,))
        eta, q = np.broadcast_to(eta, (*out.shape[:-1], eta.shape[-1])), np.broadcast_to(q, out.shape[:-1])
        for place in np.ndindex(out.shape[:-1]):
            v = np.linalg.inv(eta[place][1:].reshape(self.size, self.size))
            found = [_element_quantile(eta[place][0], v, i, j, float(q[place])) for i, j in np.ndindex(v.shape)]
            out[place] = found
        return out

    @override
    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        raise ValueError("A Wishart has no quadrature: learn the model with adfpp.VMP.")

    @override
    def interior(self, rng: np.random.Generator, count: int) -> np.ndarray:
        root = np.eye(self.size) + 0.2 * rng.normal(size=(count, self.size, self.size))
        return (root @ np.swapaxes(root, -1, -2)).reshape(count, self.dim)

    @override
    def probes(self) -> np.ndarray:
        return self.interior(np.random.default_rng(6), 16 * self.dim)

    @override
    def inside(self, values: np.ndarray, dtype: DTypeLike) -> np.ndarray:
        return values

    @override
    def unit(self, eta: jax.Array) -> jax.Array:
        """Elements of B are measured in units of its diagonal."""
        root = jnp.sqrt(jnp.diagonal(self._matrix(eta[..., 1:]), axis1=-2, axis2=-1))
        return jnp.concatenate([eta[..., :1], self._flat(root[..., :, None] * root[..., None, :])], -1)

    @override
    def proper(self, eta: jax.Array) -> jax.Array:
        factor = jnp.linalg.cholesky(self._matrix(eta[..., 1:]))
        return (eta[..., 0] > 0.5 * (self.size - 1)) & jnp.all(jnp.isfinite(factor), (-2, -1))

    # ------------------------------------------------------------------------------------------ messages

    @override
    def points_of(self, expected: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Two multiples of the mean, of weight 1/2."""
        mean = self._matrix(-expected[..., 1:])
        gap = (_log_det(mean) - expected[..., 0]) / self.size
        apart = jnp.sqrt(-jnp.expm1(-2.0 * gap))[..., None, None]  # (1 + e)(1 - e) = exp(-2 gap)
        less = jnp.exp(-2.0 * gap)[..., None, None] / (1.0 + apart)
        return jnp.full(2, 0.5, mean.dtype), jnp.stack([self._flat(mean * (1.0 + apart)), self._flat(mean * less)])

    @override
    def probe(self, eta: jax.Array, wide: ArrayLike = 1.0) -> jax.Array:
        """The same mean, and points that are apart from each other, as for the Gamma."""
        mean = -self.expected(eta)[..., 1:] * wide
        log_det = _log_det(self._matrix(mean)) - 0.17 * self.size * wide
        return jnp.concatenate([log_det[..., None], -mean], -1)

    @override
    def vague(self, mean: np.ndarray) -> np.ndarray:
        d = self.size
        diagonal = np.clip(np.diagonal(mean.reshape(-1, d, d), axis1=-2, axis2=-1), 1e-6, 1e6)
        a = 0.5 * (d + 2)
        rate = (a / diagonal)[..., None] * np.eye(d)
        return np.concatenate([np.full((len(rate), 1), a), rate.reshape(-1, self.dim)], -1)


def _log_det(matrix: jax.Array) -> jax.Array:
    """The log-determinant of positive definite matrices; NaN of others."""
    factor = jnp.linalg.cholesky(matrix)
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), -1)


def _inverse(matrix: jax.Array) -> jax.Array:
    """The inverse of positive definite matrices, symmetric; NaN of others."""
    factor = jnp.linalg.cholesky(matrix)
    eye = jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    root = jax.scipy.linalg.solve_triangular(factor, eye, lower=True)
    return jnp.swapaxes(root, -1, -2) @ root


def _element_quantile(a: float, v: np.ndarray, i: int, j: int, q: float) -> float:
    """A quantile of one element of a Wishart matrix of shape a and inverse rate v."""
    if i == j:
        return float(special.gammaincinv(a, q) * v[i, i])
    x, weights = _NODES
    diagonal = special.gammaincinv(a, 0.5 * (x + 1.0)) * v[i, i]
    mean = v[i, j] / v[i, i] * diagonal
    sd = np.sqrt(0.5 * (v[j, j] - v[i, j] ** 2 / v[i, i]) * diagonal)
    far = 40.0 * np.sqrt(0.5 * a * (v[i, j] ** 2 + v[i, i] * v[j, j]))
    centre = a * v[i, j]

    def excess(at: float) -> float:
        return float(0.5 * weights @ special.ndtr((at - mean) / sd)) - q

    return optimize.brentq(excess, centre - far, centre + far, xtol=1e-12)  # pyright: ignore[reportReturnType]
