"""Exponential families of one component of a latent, in the latent's native space.

A component has the density ``exp(η · T(s) - A(η))`` with respect to a base measure. The measure is chosen so that the
natural parameters η are the usual ones (the shape itself, not the shape minus one), so that very small parameters keep
their relative precision. Every function is vectorised over leading axes: η is ``(..., numbers)``, s ``(..., dim)``.

The computations stay accurate if a projection changes a belief only slightly, also in float32. See the special
functions in ``gammas`` and ``dirichlets``, and the quadratures in ``nodes``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy import special

from adfpp.engine.families.product import dirichlets
from adfpp.engine.families.product.gammas import (
    exp_excess,
    log_gap,
    log_power,
    peak_height,
    ratio_excess,
    shape_divergence,
    shape_of_gap,
)
from adfpp.engine.families.product.nodes import Nodes, beta_nodes, gamma_nodes


class Exponential(Protocol):
    """The protocol of a family of one component."""

    @property
    def name(self) -> str:
        """The name of the family for users."""
        ...

    @property
    def dim(self) -> int:
        """The number of coordinates of a value."""
        ...

    @property
    def numbers(self) -> int:
        """The number of natural parameters."""
        ...

    @property
    def axes(self) -> int:
        """The number of continuous dimensions to integrate over; 0 for a finite support."""
        ...

    @property
    def flat(self) -> np.ndarray:
        """The natural parameters of a flat density, which may be improper."""
        ...

    def share(self, eta: jax.Array, site: jax.Array) -> jax.Array:
        """The share of a site in each positive parameter; 0 for parameters that may have any sign."""
        ...

    def unit(self, eta: jax.Array) -> jax.Array:
        """The units in which changes of the natural parameters are measured."""
        ...

    def proper(self, eta: jax.Array) -> jax.Array:
        """Whether η are the parameters of a proper density, ``(...)``."""
        ...

    def log_norm(self, eta: jax.Array) -> jax.Array:
        """The log normaliser A(η), ``(...)``."""
        ...

    def stats(self, s: jax.Array) -> jax.Array:
        """The sufficient statistics T(s), ``(..., numbers)``."""
        ...

    def expected(self, eta: jax.Array) -> jax.Array:
        """The expected statistics E[T(s)], ``(..., numbers)``, which are the gradient of A."""
        ...

    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the coordinates, both ``(..., dim)``; inf if they do not exist."""
        ...

    def covariance(self, eta: jax.Array) -> jax.Array:
        """The covariance of the coordinates, ``(..., dim, dim)``."""
        ...

    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """Finds the member whose expected statistics are those of η plus ``change (..., numbers)``.

        A change of exactly 0 returns η bit for bit. If there is no such member, the result is NaN.
        """
        ...

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """The divergence KL(η || other), ``(...)``."""
        ...

    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """The log-density with respect to ds, or the log-probability, ``(...)``."""
        ...

    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws values inside the support, ``(*shape, ..., dim)``."""
        ...

    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """Marginal quantiles, ``q.shape + (..., dim)``, computed by NumPy and SciPy."""
        ...

    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """A quadrature with weight the density of one component, η ``(numbers,)``; higher levels have fewer nodes."""
        ...


@dataclass(frozen=True)
class Finite:
    """A finite number of values: Bernoulli (0, 1), a sign (-1, 1), Categorical (0, …, K-1).

    The natural parameters are the log odds against the first value, ``(K-1,)``. The statistics are indicators of the
    other values.

    Attributes:
        values: The values, at least two and all different.
    """

    values: tuple[float, ...]
    dim: int = field(default=1, init=False, repr=False)
    axes: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if len(set(self.values)) != len(self.values) or len(self.values) < 2:
            raise ValueError(f"values={self.values} must be two or more different numbers.")

    @property
    def name(self) -> str:
        """The name of the family for users."""
        return "bernoulli" if len(self.values) == 2 else "categorical"

    @property
    def numbers(self) -> int:
        """The number of values minus one."""
        return len(self.values) - 1

    @property
    def flat(self) -> np.ndarray:
        """The log odds of equal probabilities, 0."""
        return np.zeros(self.numbers)

    def share(self, eta: jax.Array, site: jax.Array) -> jax.Array:
        """Returns 0, because log odds may have any sign."""
        return jnp.zeros(0, site.dtype)

    def unit(self, eta: jax.Array) -> jax.Array:
        """The units 1 + |η|, because the sd of a nearly certain value would be too small a unit."""
        return 1.0 + jnp.abs(eta)

    def proper(self, eta: jax.Array) -> jax.Array:
        """Whether the log odds are finite."""
        return jnp.all(jnp.isfinite(eta), -1)

    def log_norm(self, eta: jax.Array) -> jax.Array:
        """The log normaliser, a log-sum-exp."""
        if len(self.values) == 2:
            return jax.nn.softplus(eta[..., 0])
        return jax.nn.logsumexp(_with_first(eta), -1)

    def stats(self, s: jax.Array) -> jax.Array:
        """The indicators of all values but the first."""
        return self._indicators(s)[..., 1:]

    def expected(self, eta: jax.Array) -> jax.Array:
        """The probabilities of all values but the first."""
        return self._probabilities(eta)[..., 1:]

    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and variance, by sums over the values."""
        if len(self.values) == 2:  # with 1 - p to its own relative precision
            first, step = self.values[0], self.values[1] - self.values[0]
            p = jax.nn.sigmoid(eta)
            return first + step * p, step * step * (p * jax.nn.sigmoid(-eta))
        p = self._probabilities(eta)
        values = jnp.asarray(self.values, p.dtype)
        mean = jnp.sum(p * values, -1, keepdims=True)
        return mean, jnp.sum(p * (values - mean) ** 2, -1, keepdims=True)

    def covariance(self, eta: jax.Array) -> jax.Array:
        """The variance, as a 1 x 1 covariance."""
        return self.moments(eta)[1][..., None]

    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """The member with changed probabilities, computed by ratios, which are accurate for tiny probabilities.

        Only the first value's probability, whose change is not given, is inaccurate if it is much smaller than two
        others.
        """
        change = jnp.asarray(change, eta.dtype)
        log_p = jax.nn.log_softmax(_with_first(eta), -1)
        p = jnp.exp(log_p)
        change_p = jnp.concatenate([-jnp.sum(change, -1, keepdims=True), change], -1)
        near = (jnp.abs(change_p) < 0.5 * p) | (change_p == 0.0)
        ratio = jnp.where(
            near,
            jnp.log1p(jnp.where(near & (change_p != 0.0), change_p / p, 0.0)),
            jnp.log(jnp.where(near, 1.0, p + change_p)) - log_p,
        )
        return _accepted(self, eta, change, eta + ratio[..., 1:] - ratio[..., :1])

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """The divergence, as a sum of terms p (q/p - 1 - log(q/p)), which are not negative."""
        log_p, log_q = (jax.nn.log_softmax(_with_first(each), -1) for each in (eta, other))
        p, gap = jnp.exp(log_p), log_q - log_p
        near = jnp.abs(gap) < 1.0
        return jnp.sum(jnp.where(near, p * exp_excess(jnp.where(near, gap, 0.0)), jnp.exp(log_q) - p - p * gap), -1)

    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """The log-probability; -inf for numbers that are not among the values."""
        log_p = jax.nn.log_softmax(_with_first(eta), -1)
        return jnp.max(jnp.where(self._indicators(s) > 0, log_p, -jnp.inf), -1)

    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws values."""
        drawn = jax.random.categorical(key, _with_first(eta), shape=(*shape, *eta.shape[:-1]))
        return jnp.asarray(self.values, eta.dtype)[drawn][..., None]

    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """The smallest value with at least this probability up to it."""
        eta, q = _host(eta, q)
        order = np.argsort(self.values)
        p = special.softmax(np.concatenate([np.zeros_like(eta[..., :1]), eta], -1), -1)[..., order]
        # summed from both ends, so that rounding errors do not make the last value unreachable
        below = np.minimum(np.cumsum(p, -1), 1.0)[..., :-1]
        return np.asarray(self.values, float)[order][(q[..., None] > below).sum(-1)][..., None]

    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """The values themselves, with exact weights."""
        p = self._probabilities(eta)
        values = jnp.asarray(self.values, p.dtype)[:, None]
        return Nodes(values, self.stats(values).astype(p.dtype), p, p)

    def _probabilities(self, eta: jax.Array) -> jax.Array:
        return jax.nn.softmax(_with_first(eta), -1)

    def _indicators(self, s: jax.Array) -> jax.Array:
        s = jnp.asarray(s)
        kind = jnp.result_type(s.dtype, float) if not jnp.issubdtype(s.dtype, jnp.floating) else s.dtype
        return (s == jnp.asarray(self.values, kind)).astype(kind)


@dataclass(frozen=True)
class _OfOneNumber(ABC):
    """The base class of families of one continuous number with two positive parameters."""

    dim: int = field(default=1, init=False, repr=False)
    numbers: int = field(default=2, init=False, repr=False)
    axes: int = field(default=1, init=False, repr=False)

    @abstractmethod
    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and variance, both ``(..., 1)``."""

    def share(self, eta: jax.Array, site: jax.Array) -> jax.Array:
        """The share of a site in each parameter."""
        return site / eta

    def unit(self, eta: jax.Array) -> jax.Array:
        """The size of the parameters, because standard deviations may be infinite."""
        return jnp.maximum(jnp.abs(eta), float(jnp.finfo(eta.dtype).tiny))

    def proper(self, eta: jax.Array) -> jax.Array:
        """Whether the parameters are finite and positive."""
        return _positive(eta)

    def covariance(self, eta: jax.Array) -> jax.Array:
        """The variance, as a 1 x 1 covariance."""
        return self.moments(eta)[1][..., None]


@dataclass(frozen=True)
class Gamma(_OfOneNumber):
    """Gamma of shape a and rate b. η = (a, b), T = (log s, -s), base measure ds/s."""

    name: str = field(default="gamma", init=False, repr=False)

    @property
    def flat(self) -> np.ndarray:
        """The natural parameters of a flat density."""
        return np.array([1.0, 0.0])

    def log_norm(self, eta: jax.Array) -> jax.Array:
        """The log normaliser log Γ(a) - a log b."""
        return gammaln(eta[..., 0]) - eta[..., 0] * jnp.log(eta[..., 1])

    def stats(self, s: jax.Array) -> jax.Array:
        """The statistics log s and -s."""
        return jnp.concatenate([jnp.log(s), -s], -1)

    def expected(self, eta: jax.Array) -> jax.Array:
        """The expected statistics ψ(a) - log b and -a/b."""
        mean = eta[..., 0] / eta[..., 1]
        return jnp.stack([jnp.log(mean) - log_gap(eta[..., 0])[0], -mean], -1)

    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The mean a/b and the variance a/b²."""
        mean = eta[..., :1] / eta[..., 1:]
        return mean, mean / eta[..., 1:]

    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """Solves g(a') = log E s - E log s, whose change is given, by four Newton steps."""
        change = jnp.asarray(change, eta.dtype)
        a, b = eta[..., 0], eta[..., 1]
        relative = -change[..., 1] * b / a  # relative change of E s
        gap = log_gap(a)[0] + jnp.log1p(relative) - change[..., 0]
        shape = shape_of_gap(gap)
        return _accepted(self, eta, change, jnp.stack([shape, b * (shape / a) / (1.0 + relative)], -1))

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """The divergence, as the sum of that of the shapes at the same mean, and that of the means."""
        a, b = eta[..., 0], other[..., 0]
        means = ratio_excess(eta[..., 0] / eta[..., 1], other[..., 0] / other[..., 1])
        return shape_divergence(a, b) + b * means

    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """The log-density, relative to its value at the mean."""
        a, b, s = eta[..., 0], eta[..., 1], jnp.asarray(s)[..., 0]
        return peak_height(a) + log_power(a, b * s, a) + jnp.log(b)

    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws values, by way of their logarithms."""
        return _inside_half_line(jnp.exp(_log_gamma_draws(key, eta[..., :1], shape) - jnp.log(eta[..., 1:])))

    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """Quantiles by the inverse incomplete gamma function."""
        eta, q = _host(eta, q)
        return (special.gammaincinv(eta[..., 0], q) / eta[..., 1])[..., None]

    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """A quadrature in log s."""
        a, b = eta[0], eta[1]
        log_x, weights, coarse = gamma_nodes(a, level)
        log_s = log_x + jnp.log(a / b)
        values = jnp.exp(log_s)
        return Nodes(_inside_half_line(values)[:, None], jnp.stack([log_s, -values], -1), weights, coarse)


@dataclass(frozen=True)
class InverseGamma(_OfOneNumber):
    """Inverse gamma of shape a and scale b: 1/s is Gamma(a, b). η = (a, b), T = (-log s, -1/s), base measure ds/s."""

    name: str = field(default="inverse_gamma", init=False, repr=False)

    @property
    def flat(self) -> np.ndarray:
        """The natural parameters of a flat density."""
        return np.array([-1.0, 0.0])

    def log_norm(self, eta: jax.Array) -> jax.Array:
        """The log normaliser, that of 1/s."""
        return Gamma().log_norm(eta)

    def stats(self, s: jax.Array) -> jax.Array:
        """The statistics, those of 1/s."""
        return jnp.concatenate([-jnp.log(s), -1.0 / s], -1)

    def expected(self, eta: jax.Array) -> jax.Array:
        """The expected statistics, those of 1/s."""
        return Gamma().expected(eta)

    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The mean b/(a-1) for a > 1, and the variance b²/((a-1)²(a-2)) for a > 2; otherwise inf."""
        a, b = eta[..., :1], eta[..., 1:]
        mean = jnp.where(a > 1.0, b / jnp.where(a > 1.0, a - 1.0, 1.0), jnp.inf)
        return mean, jnp.where(a > 2.0, mean**2 / jnp.where(a > 2.0, a - 2.0, 1.0), jnp.inf)

    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """The member with changed expected statistics, that of 1/s."""
        return Gamma().shifted(eta, change)

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """The divergence, that of 1/s."""
        return Gamma().kl(eta, other)

    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """The log-density of 1/s, plus the log of the Jacobian."""
        a, b, s = eta[..., 0], eta[..., 1], jnp.asarray(s)[..., 0]
        inside = jnp.where(s > 0.0, s, b / a)
        return jnp.where(s > 0.0, peak_height(a) - a * ratio_excess(b / inside, a) - jnp.log(inside), -jnp.inf)

    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws values, by way of their logarithms."""
        return _inside_half_line(jnp.exp(jnp.log(eta[..., 1:]) - _log_gamma_draws(key, eta[..., :1], shape)))

    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """Quantiles by the inverse of the complementary incomplete gamma function; inf on overflow."""
        eta, q = _host(eta, q)
        with np.errstate(divide="ignore"):
            return (eta[..., 1] / special.gammainccinv(eta[..., 0], q))[..., None]

    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """A quadrature in log s."""
        a, b = eta[0], eta[1]
        log_x, weights, coarse = gamma_nodes(a, level)
        log_s = -log_x - jnp.log(a / b)
        stats = jnp.stack([-log_s, -jnp.exp(-log_s)], -1)
        return Nodes(_inside_half_line(jnp.exp(log_s))[:, None], stats, weights, coarse)


@dataclass(frozen=True)
class Beta(_OfOneNumber):
    """Beta: one coordinate of a Dirichlet. η = (a, b), T = (log s, log(1 - s)), base measure ds/(s(1 - s))."""

    name: str = field(default="beta", init=False, repr=False)

    @property
    def flat(self) -> np.ndarray:
        """The natural parameters of a flat density."""
        return np.array([1.0, 1.0])

    def log_norm(self, eta: jax.Array) -> jax.Array:
        """The log normaliser: the log of the beta function."""
        return dirichlets.log_multivariate_beta(eta)

    def stats(self, s: jax.Array) -> jax.Array:
        """The statistics log s and log(1 - s)."""
        return jnp.concatenate([jnp.log(s), jnp.log1p(-s)], -1)

    def expected(self, eta: jax.Array) -> jax.Array:
        """The expected statistics ψ(a) - ψ(a+b) and ψ(b) - ψ(a+b)."""
        return dirichlets.expected_logs(eta)

    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The mean and the variance of s."""
        mean, variance = dirichlets.moments(eta)
        return mean[..., :1], variance[..., :1]

    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """The member with changed expected statistics, as a Dirichlet."""
        return _accepted(self, eta, change, dirichlets.shifted(eta, jnp.asarray(change, eta.dtype)))

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """The divergence, as a Dirichlet."""
        return dirichlets.divergence(eta, other)

    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """The log-density, as a Dirichlet."""
        s = jnp.asarray(s)
        return dirichlets.log_prob(eta, jnp.concatenate([s, 1.0 - s], -1))

    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws values, by way of their logarithms."""
        return _dirichlet_draws(key, eta, shape)[..., :1]

    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """Quantiles by the inverse incomplete beta function."""
        eta, q = _host(eta, q)
        return special.betaincinv(eta[..., 0], eta[..., 1], q)[..., None]

    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """A quadrature in logit s."""
        logs, weights, coarse = beta_nodes(eta, level)
        return Nodes(_inside_interval(jnp.exp(logs[:, :1])), logs, weights, coarse)


@dataclass(frozen=True)
class Dirichlet:
    """Dirichlet. η = α, T = log s, base measure Π ds/s over all coordinates except the last.

    Attributes:
        size: The number K of coordinates, two or more.
    """

    size: int
    name: str = field(default="dirichlet", init=False, repr=False)

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ValueError(f"size={self.size} must be two or more.")

    @property
    def dim(self) -> int:
        """The number K of coordinates."""
        return self.size

    @property
    def numbers(self) -> int:
        """The number K of natural parameters."""
        return self.size

    @property
    def axes(self) -> int:
        """The number K - 1 of free coordinates."""
        return self.size - 1

    @property
    def flat(self) -> np.ndarray:
        """α of the uniform density: ones."""
        return np.ones(self.numbers)

    def share(self, eta: jax.Array, site: jax.Array) -> jax.Array:
        """The share of a site in each parameter."""
        return site / eta

    def unit(self, eta: jax.Array) -> jax.Array:
        """The size of the parameters, because standard deviations may be infinite."""
        return jnp.maximum(jnp.abs(eta), float(jnp.finfo(eta.dtype).tiny))

    def proper(self, eta: jax.Array) -> jax.Array:
        """Whether the parameters are finite and positive."""
        return _positive(eta)

    def log_norm(self, eta: jax.Array) -> jax.Array:
        """The log normaliser: the log of the multivariate beta function."""
        return dirichlets.log_multivariate_beta(eta)

    def stats(self, s: jax.Array) -> jax.Array:
        """The statistics log s."""
        return jnp.log(s)

    def expected(self, eta: jax.Array) -> jax.Array:
        """The expected statistics ψ(α_k) - ψ(Σ α)."""
        return dirichlets.expected_logs(eta)

    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The means and the variances of all coordinates."""
        return dirichlets.moments(eta)

    def covariance(self, eta: jax.Array) -> jax.Array:
        """The covariance, which is singular because the coordinates sum to 1."""
        mean, variance = dirichlets.moments(eta)
        total = jnp.sum(eta, -1)[..., None, None]
        outer = -mean[..., :, None] * mean[..., None, :] / (total + 1.0)
        return jnp.where(jnp.eye(self.size, dtype=bool), variance[..., None], outer)

    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """The member with changed expected logs, by Newton's method for the total concentration."""
        return _accepted(self, eta, change, dirichlets.shifted(eta, jnp.asarray(change, eta.dtype)))

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """The divergence, as the sum of that of the means and those of the shapes."""
        return dirichlets.divergence(eta, other)

    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """The log-density of the first K - 1 coordinates."""
        return dirichlets.log_prob(eta, jnp.asarray(s))

    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws values, by way of their logarithms."""
        return _dirichlet_draws(key, eta, shape)

    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """Quantiles of the coordinates, which have Beta distributions."""
        alpha = np.asarray(eta, float)
        others = np.stack([np.delete(alpha, k, -1).sum(-1) for k in range(self.size)], -1)
        return Beta().quantile(np.stack([alpha, others], -1), q)[..., 0]

    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """A tensor of quadratures for independent Betas (stick breaking), which are coarser for larger K."""
        if self.axes > 3:
            raise ValueError(f"A Dirichlet of size {self.size} has no quadrature: use independent draws instead.")
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
        return Nodes(_inside_interval(jnp.exp(logs)), logs, weights, coarse)


def _with_first(eta: jax.Array) -> jax.Array:
    """Adds the log odds of the first value, 0, in front."""
    return jnp.concatenate([jnp.zeros_like(eta[..., :1]), eta], -1)


def _positive(eta: jax.Array) -> jax.Array:
    return jnp.all((eta > 0.0) & jnp.isfinite(eta), -1)


def _accepted(family: Exponential, eta: jax.Array, change: jax.Array, new: jax.Array) -> jax.Array:
    """Returns η if the change is 0, else the new parameters if they are proper, else NaN."""
    new = jnp.where((family.proper(new) & family.proper(eta))[..., None], new, jnp.nan)
    return jnp.where(jnp.all(change == 0.0, -1, keepdims=True), eta, new)


def _inside_half_line(s: jax.Array) -> jax.Array:
    limits = jnp.finfo(s.dtype)
    return jnp.clip(s, float(limits.tiny), float(limits.max))


def _inside_interval(s: jax.Array) -> jax.Array:
    limits = jnp.finfo(s.dtype)
    return jnp.clip(s, float(limits.tiny), 1.0 - float(limits.epsneg))


def _log_gamma_draws(key: jax.Array, shape_parameter: jax.Array, shape: Sequence[int]) -> jax.Array:
    return jax.random.loggamma(
        key, shape_parameter, shape=(*shape, *shape_parameter.shape), dtype=shape_parameter.dtype
    )


def _dirichlet_draws(key: jax.Array, alpha: jax.Array, shape: Sequence[int]) -> jax.Array:
    return _inside_interval(jax.nn.softmax(_log_gamma_draws(key, alpha, shape), -1))


def _host(eta: np.ndarray, q: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Converts η and q to float64, with axes of q for the leading axes of η."""
    eta, q = np.asarray(eta, float), np.asarray(q, float)
    return eta, q.reshape(q.shape + (1,) * (eta.ndim - 1))
