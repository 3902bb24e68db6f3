"""Exponential families of one component of a latent site, in the site's own space.

A component has the density ``exp(η · T(s) - A(η))`` with respect to a base measure, chosen so that the natural
parameters η are the textbook ones (a shape is a shape, not a shape minus one), which keeps the relative precision of
very small ones. Every function is vectorised over leading axes: η is ``(..., numbers)``, s ``(..., dim)``.

Digamma and log-gamma functions of large arguments enter as what is left of them without Stirling's leading terms,

    g(a) = log a - ψ(a) = 1/2a + …          R(a) = log Γ(a) - (a - ½) log a + a - ½ log 2π = 1/12a - …

and densities and divergences as sums of ``x - log(1 + x)``, so that nothing of the size of a log a is ever subtracted
from its like. Families whose projection changes a belief by little therefore stay exact in float32, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlogy
from scipy import special

from adfpp.tilt.rules import kronrod


class Nodes(NamedTuple):
    """A quadrature against the density of one component.

    Attributes:
        values: ``(M, dim)``, inside the support: the nearest number there where the dtype cannot tell.
        stats: ``(M, numbers)``, of the nodes before that rounding.
        weights: ``(M,)``, with sum 1.
        coarse: ``(M,)``, those of the coarser rule on some of the nodes, with sum 1: what the two disagree about is an
            estimate of the error.
    """

    values: jax.Array
    stats: jax.Array
    weights: jax.Array
    coarse: jax.Array


class Exponential(Protocol):
    """What a family of one component answers."""

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    @property
    def dim(self) -> int:
        """Coordinates of a value."""
        ...

    @property
    def numbers(self) -> int:
        """Natural parameters."""
        ...

    @property
    def axes(self) -> int:
        """Continuous dimensions to integrate over; 0 for a finite support."""
        ...

    def proper(self, eta: jax.Array) -> jax.Array:
        """Whether η belongs to a member, ``(...)``."""
        ...

    def log_norm(self, eta: jax.Array) -> jax.Array:
        """A(η), ``(...)``."""
        ...

    def stats(self, s: jax.Array) -> jax.Array:
        """T(s), ``(..., numbers)``."""
        ...

    def expected(self, eta: jax.Array) -> jax.Array:
        """E[T(s)], ``(..., numbers)``: the gradient of A."""
        ...

    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the coordinates, both ``(..., dim)``; inf where there is none."""
        ...

    def covariance(self, eta: jax.Array) -> jax.Array:
        """Covariance of the coordinates, ``(..., dim, dim)``."""
        ...

    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """The member whose expected statistics are those of η plus ``change (..., numbers)``.

        A change of exactly 0 gives η back bit for bit; one that no member has gives NaN.
        """
        ...

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """KL(η || other), ``(...)``."""
        ...

    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """Log-density with respect to ds, or log-probability, ``(...)``."""
        ...

    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws inside the support, ``(*shape, ..., dim)``."""
        ...

    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """Marginal quantiles, ``q.shape + (..., dim)``; on the host."""
        ...

    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """A quadrature against the density of one component, η ``(numbers,)``; higher levels have fewer nodes."""
        ...


@dataclass(frozen=True)
class Finite:
    """Finitely many values: Bernoulli (0, 1), a sign (-1, 1), Categorical (0, …, K-1).

    η: log odds against the first value, ``(K-1,)``. T: indicators of the others.

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
        """What users call it."""
        return "bernoulli" if len(self.values) == 2 else "categorical"

    @property
    def numbers(self) -> int:
        """One less than there are values."""
        return len(self.values) - 1

    def proper(self, eta: jax.Array) -> jax.Array:
        """Finite log odds."""
        return jnp.all(jnp.isfinite(eta), -1)

    def log_norm(self, eta: jax.Array) -> jax.Array:
        """Log-sum-exp."""
        if len(self.values) == 2:
            return jax.nn.softplus(eta[..., 0])
        return jax.nn.logsumexp(_with_first(eta), -1)

    def stats(self, s: jax.Array) -> jax.Array:
        """Indicators."""
        return self._indicators(s)[..., 1:]

    def expected(self, eta: jax.Array) -> jax.Array:
        """Probabilities of all values but the first."""
        return self._probabilities(eta)[..., 1:]

    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Sums over the values."""
        if len(self.values) == 2:  # 1 - p to its own precision
            first, step = self.values[0], self.values[1] - self.values[0]
            p = jax.nn.sigmoid(eta)
            return first + step * p, step * step * (p * jax.nn.sigmoid(-eta))
        p = self._probabilities(eta)
        values = jnp.asarray(self.values, p.dtype)
        mean = jnp.sum(p * values, -1, keepdims=True)
        return mean, jnp.sum(p * (values - mean) ** 2, -1, keepdims=True)

    def covariance(self, eta: jax.Array) -> jax.Array:
        """The variance."""
        return self.moments(eta)[1][..., None]

    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """Closed form, by ratios of new to old probabilities: these stay exact where one of them is tiny.

        Only the first value's probability, whose change is not given, is lost to rounding when it is much smaller than
        two others.
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
        """A sum of terms that are not negative, p (q/p - 1 - log(q/p))."""
        log_p, log_q = (jax.nn.log_softmax(_with_first(each), -1) for each in (eta, other))
        p, gap = jnp.exp(log_p), log_q - log_p
        near = jnp.abs(gap) < 1.0
        return jnp.sum(jnp.where(near, p * _exp_excess(jnp.where(near, gap, 0.0)), jnp.exp(log_q) - p - p * gap), -1)

    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """Log-probability; -inf for what is no value."""
        log_p = jax.nn.log_softmax(_with_first(eta), -1)
        return jnp.max(jnp.where(self._indicators(s) > 0, log_p, -jnp.inf), -1)

    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws of the values."""
        drawn = jax.random.categorical(key, _with_first(eta), shape=(*shape, *eta.shape[:-1]))
        return jnp.asarray(self.values, eta.dtype)[drawn][..., None]

    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """The smallest value with at least this probability up to it."""
        eta, q = _host(eta, q)
        order = np.argsort(self.values)
        p = special.softmax(np.concatenate([np.zeros_like(eta[..., :1]), eta], -1), -1)[..., order]
        # summed from both ends: rounding in the sum must not make the last probability unreachable
        below = np.minimum(np.cumsum(p, -1), 1.0)[..., :-1]
        return np.asarray(self.values, float)[order][(q[..., None] > below).sum(-1)][..., None]

    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """The values themselves; exact."""
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
class Gamma:
    """Gamma of shape a and rate b. η = (a, b), T = (log s, -s), base measure ds/s."""

    name: str = field(default="gamma", init=False, repr=False)
    dim: int = field(default=1, init=False, repr=False)
    numbers: int = field(default=2, init=False, repr=False)
    axes: int = field(default=1, init=False, repr=False)

    def proper(self, eta: jax.Array) -> jax.Array:
        """Finite and positive."""
        return _positive(eta)

    def log_norm(self, eta: jax.Array) -> jax.Array:
        """Of the gamma function: log Γ(a) - a log b."""
        return gammaln(eta[..., 0]) - eta[..., 0] * jnp.log(eta[..., 1])

    def stats(self, s: jax.Array) -> jax.Array:
        """Logarithm, and the negative value."""
        return jnp.concatenate([jnp.log(s), -s], -1)

    def expected(self, eta: jax.Array) -> jax.Array:
        """ψ(a) - log b and -a/b."""
        mean = eta[..., 0] / eta[..., 1]
        return jnp.stack([jnp.log(mean) - log_gap(eta[..., 0])[0], -mean], -1)

    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """a/b and a/b²."""
        mean = eta[..., :1] / eta[..., 1:]
        return mean, mean / eta[..., 1:]

    def covariance(self, eta: jax.Array) -> jax.Array:
        """The variance."""
        return self.moments(eta)[1][..., None]

    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """Solves g(a') = log E s - E log s, which is known from its change, by four steps of Newton's method."""
        change = jnp.asarray(change, eta.dtype)
        a, b = eta[..., 0], eta[..., 1]
        relative = -change[..., 1] * b / a  # of E s
        gap = log_gap(a)[0] + jnp.log1p(relative) - change[..., 0]
        shape = _shape_of_gap(gap)
        return _accepted(self, eta, change, jnp.stack([shape, b * (shape / a) / (1.0 + relative)], -1))

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """The divergence of the shapes, at the same mean, and that of the means."""
        a, b = eta[..., 0], other[..., 0]
        means = _ratio_excess(eta[..., 0] / eta[..., 1], other[..., 0] / other[..., 1])
        return _shape_divergence(a, b) + b * means

    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """Log-density, around its value where s is the mean."""
        a, b, s = eta[..., 0], eta[..., 1], jnp.asarray(s)[..., 0]
        return _peak_height(a) + _log_power(a, b * s, a) + jnp.log(b)

    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws, by their logarithms."""
        return _inside_half_line(jnp.exp(_log_gamma_draws(key, eta[..., :1], shape) - jnp.log(eta[..., 1:])))

    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """The inverse incomplete gamma function."""
        eta, q = _host(eta, q)
        return (special.gammaincinv(eta[..., 0], q) / eta[..., 1])[..., None]

    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """In log s."""
        a, b = eta[0], eta[1]
        log_x, weights, coarse = _gamma_nodes(a, level)
        log_s = log_x + jnp.log(a / b)
        values = jnp.exp(log_s)
        return Nodes(_inside_half_line(values)[:, None], jnp.stack([log_s, -values], -1), weights, coarse)


@dataclass(frozen=True)
class InverseGamma:
    """Inverse gamma of shape a and scale b: 1/s is Gamma(a, b). η = (a, b), T = (-log s, -1/s), base measure ds/s."""

    name: str = field(default="inverse_gamma", init=False, repr=False)
    dim: int = field(default=1, init=False, repr=False)
    numbers: int = field(default=2, init=False, repr=False)
    axes: int = field(default=1, init=False, repr=False)

    def proper(self, eta: jax.Array) -> jax.Array:
        """Finite and positive."""
        return _positive(eta)

    def log_norm(self, eta: jax.Array) -> jax.Array:
        """That of 1/s."""
        return Gamma().log_norm(eta)

    def stats(self, s: jax.Array) -> jax.Array:
        """Those of 1/s."""
        return jnp.concatenate([-jnp.log(s), -1.0 / s], -1)

    def expected(self, eta: jax.Array) -> jax.Array:
        """Those of 1/s."""
        return Gamma().expected(eta)

    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """b/(a-1) for a > 1, and b²/((a-1)²(a-2)) for a > 2."""
        a, b = eta[..., :1], eta[..., 1:]
        mean = jnp.where(a > 1.0, b / jnp.where(a > 1.0, a - 1.0, 1.0), jnp.inf)
        return mean, jnp.where(a > 2.0, mean**2 / jnp.where(a > 2.0, a - 2.0, 1.0), jnp.inf)

    def covariance(self, eta: jax.Array) -> jax.Array:
        """The variance."""
        return self.moments(eta)[1][..., None]

    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """That of 1/s."""
        return Gamma().shifted(eta, change)

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """That of 1/s."""
        return Gamma().kl(eta, other)

    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """That of 1/s, and the Jacobian."""
        a, b, s = eta[..., 0], eta[..., 1], jnp.asarray(s)[..., 0]
        inside = jnp.where(s > 0.0, s, b / a)
        return jnp.where(s > 0.0, _peak_height(a) - a * _ratio_excess(b / inside, a) - jnp.log(inside), -jnp.inf)

    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws, by their logarithms."""
        return _inside_half_line(jnp.exp(jnp.log(eta[..., 1:]) - _log_gamma_draws(key, eta[..., :1], shape)))

    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """The inverse of the complementary incomplete gamma function; inf beyond the largest number."""
        eta, q = _host(eta, q)
        with np.errstate(divide="ignore"):
            return (eta[..., 1] / special.gammainccinv(eta[..., 0], q))[..., None]

    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """In log s."""
        a, b = eta[0], eta[1]
        log_x, weights, coarse = _gamma_nodes(a, level)
        log_s = -log_x - jnp.log(a / b)
        stats = jnp.stack([-log_s, -jnp.exp(-log_s)], -1)
        return Nodes(_inside_half_line(jnp.exp(log_s))[:, None], stats, weights, coarse)


@dataclass(frozen=True)
class Beta:
    """Beta: one coordinate of a Dirichlet. η = (a, b), T = (log s, log(1 - s)), base measure ds/(s(1 - s))."""

    name: str = field(default="beta", init=False, repr=False)
    dim: int = field(default=1, init=False, repr=False)
    numbers: int = field(default=2, init=False, repr=False)
    axes: int = field(default=1, init=False, repr=False)

    def proper(self, eta: jax.Array) -> jax.Array:
        """Finite and positive."""
        return _positive(eta)

    def log_norm(self, eta: jax.Array) -> jax.Array:
        """Log of the beta function."""
        return _log_multivariate_beta(eta)

    def stats(self, s: jax.Array) -> jax.Array:
        """Logarithms of s and 1 - s."""
        return jnp.concatenate([jnp.log(s), jnp.log1p(-s)], -1)

    def expected(self, eta: jax.Array) -> jax.Array:
        """ψ(a) - ψ(a+b) and ψ(b) - ψ(a+b)."""
        return _expected_logs(eta)

    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Of s."""
        mean, variance = _dirichlet_moments(eta)
        return mean[..., :1], variance[..., :1]

    def covariance(self, eta: jax.Array) -> jax.Array:
        """The variance."""
        return self.moments(eta)[1][..., None]

    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """That of the Dirichlet."""
        return _accepted(self, eta, change, _shifted_dirichlet(eta, jnp.asarray(change, eta.dtype)))

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """That of the Dirichlet."""
        return _dirichlet_divergence(eta, other)

    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """That of the Dirichlet."""
        s = jnp.asarray(s)
        return _dirichlet_log_prob(eta, jnp.concatenate([s, 1.0 - s], -1))

    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws, by their logarithms."""
        return _dirichlet_draws(key, eta, shape)[..., :1]

    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """The inverse incomplete beta function."""
        eta, q = _host(eta, q)
        return special.betaincinv(eta[..., 0], eta[..., 1], q)[..., None]

    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """In logit s."""
        logs, weights, coarse = _beta_nodes(eta, level)
        return Nodes(_inside_interval(jnp.exp(logs[:, :1])), logs, weights, coarse)


@dataclass(frozen=True)
class Dirichlet:
    """Dirichlet. η = α, T = log s, base measure Π ds/s over all coordinates but the last.

    Attributes:
        size: Coordinates K, two or more.
    """

    size: int
    name: str = field(default="dirichlet", init=False, repr=False)

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ValueError(f"size={self.size} must be two or more.")

    @property
    def dim(self) -> int:
        """K."""
        return self.size

    @property
    def numbers(self) -> int:
        """K."""
        return self.size

    @property
    def axes(self) -> int:
        """K - 1."""
        return self.size - 1

    def proper(self, eta: jax.Array) -> jax.Array:
        """Finite and positive."""
        return _positive(eta)

    def log_norm(self, eta: jax.Array) -> jax.Array:
        """Log of the multivariate beta function."""
        return _log_multivariate_beta(eta)

    def stats(self, s: jax.Array) -> jax.Array:
        """Logarithms."""
        return jnp.log(s)

    def expected(self, eta: jax.Array) -> jax.Array:
        """ψ(α_k) - ψ(Σ α)."""
        return _expected_logs(eta)

    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Of all coordinates."""
        return _dirichlet_moments(eta)

    def covariance(self, eta: jax.Array) -> jax.Array:
        """Singular, as the coordinates sum to 1."""
        mean, variance = _dirichlet_moments(eta)
        total = jnp.sum(eta, -1)[..., None, None]
        outer = -mean[..., :, None] * mean[..., None, :] / (total + 1.0)
        return jnp.where(jnp.eye(self.size, dtype=bool), variance[..., None], outer)

    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """Newton's method for the new concentration alone: the rest follows from it."""
        return _accepted(self, eta, change, _shifted_dirichlet(eta, jnp.asarray(change, eta.dtype)))

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """That of the means, and those of the shapes."""
        return _dirichlet_divergence(eta, other)

    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """Log-density of the first K - 1 coordinates."""
        return _dirichlet_log_prob(eta, jnp.asarray(s))

    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws, by their logarithms."""
        return _dirichlet_draws(key, eta, shape)

    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """Those of the coordinates, which are Beta."""
        alpha = np.asarray(eta, float)
        others = np.stack([np.delete(alpha, k, -1).sum(-1) for k in range(self.size)], -1)
        return Beta().quantile(np.stack([alpha, others], -1), q)[..., 0]

    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """Breaks the stick: independent Betas, each with coarser nodes the more of them there are."""
        if self.axes > 3:
            raise ValueError(f"A Dirichlet of size {self.size} has no quadrature: draw from it instead.")
        rest = jnp.zeros((1,), eta.dtype)
        weights = coarse = jnp.ones((1,), eta.dtype)
        logs = jnp.zeros((1, 0), eta.dtype)
        for k in range(self.axes):
            broken, fine, rough = _beta_nodes(jnp.stack([eta[k], jnp.sum(eta[k + 1 :])]), level + self.axes - 1)
            many = len(fine)
            logs = jnp.concatenate([jnp.repeat(logs, many, 0), (rest[:, None] + broken[:, 0]).reshape(-1, 1)], -1)
            rest = (rest[:, None] + broken[:, 1]).reshape(-1)
            weights = (weights[:, None] * fine).reshape(-1)
            coarse = (coarse[:, None] * rough).reshape(-1)
        logs = jnp.concatenate([logs, rest[:, None]], -1)
        return Nodes(_inside_interval(jnp.exp(logs)), logs, weights, coarse)


# --- what is left of log Γ and its derivatives -------------------------------------------------------------------

_SHIFT = 10  # from here on the asymptotic series below are good to the last digit of float64
# Bernoulli numbers B_2, B_4, …
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_G_SERIES = tuple(b / (2 * n) for n, b in enumerate(_BERNOULLI, 1))
_R_SERIES = tuple(b / (2 * n * (2 * n - 1)) for n, b in enumerate(_BERNOULLI, 1))


def _series(coefficients: Sequence[float], x: jax.Array) -> jax.Array:
    """Σ c_n x^n, from n = 0."""
    total = jnp.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def log_gap(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """g(a) = log a - ψ(a) and its slope a g'(a) = 1 - a ψ'(a), both to a relative precision of the dtype."""
    small = a < _SHIFT
    low = jnp.where(small, a, 1.0)
    z = jnp.where(small, low + _SHIFT, a)
    inverse = 1.0 / z
    square = inverse * inverse
    g = 0.5 * inverse + square * _series(_G_SERIES, square)
    slope = -0.5 * inverse - square * _series(_BERNOULLI, square)
    steps = [1.0 / (low + i) for i in range(_SHIFT)]
    g_low = g - jnp.log1p(_SHIFT / low) + sum(steps[1:]) + steps[0]
    # ψ'(a) = ψ'(z) + Σ 1/(a + i)²
    slope_low = 1.0 - low * inverse * (1.0 - slope) - sum((low * step) * step for step in steps)
    return jnp.where(small, g_low, g), jnp.where(small, slope_low, slope)


def _gap_fall(a: jax.Array, d: jax.Array) -> jax.Array:
    """g(a) - g(a + d), to a relative precision of the dtype where d is small, too; d > -a."""
    small = a < _SHIFT
    low, high = jnp.where(small, a, 1.0), a + d
    z = jnp.where(small, low + _SHIFT, a)
    x, y = 1.0 / z, 1.0 / (z + d)
    series = divided = jnp.zeros_like(z)  # Horner's scheme for the value at y², and for the divided difference to x²
    for c in (*_G_SERIES[::-1], 0.0):
        divided = divided * x * x + series
        series = series * y * y + c
    fall = d * x * y * (0.5 + (x + y) * divided)
    steps = [1.0 / ((low + i) * (low + d + i)) for i in range(_SHIFT)]
    shifted = jnp.log1p(-_SHIFT * d / (high * (low + _SHIFT)))
    return jnp.where(small, fall + shifted + d * (sum(steps[1:]) + steps[0]), fall)


def _stirling_rest(a: jax.Array) -> jax.Array:
    """R(a) = log Γ(a) - (a - ½) log a + a - ½ log 2π."""
    small = a < _SHIFT
    low, high = jnp.where(small, a, 1.0), jnp.where(small, float(_SHIFT), a)
    inverse = 1.0 / high
    direct = gammaln(low) - (low - 0.5) * jnp.log(low) + low - 0.5 * np.log(2 * np.pi)
    return jnp.where(small, direct, inverse * _series(_R_SERIES, inverse * inverse))


def _peak_height(a: jax.Array) -> jax.Array:
    """Logarithm of aᵃ e⁻ᵃ / Γ(a): the log-density of log s at its mode, s Gamma of shape a."""
    return 0.5 * jnp.log(a / (2 * np.pi)) - _stirling_rest(a)


def _log_excess(x: jax.Array) -> jax.Array:
    """``x - log(1 + x)``, to a relative precision of the dtype."""
    near = jnp.abs(x) < 0.3
    small = jnp.where(near, x, 0.0)
    half = small / (2.0 + small)  # log(1 + x) = 2 artanh
    square = half * half
    tail = _series([1 / n for n in range(3, 23, 2)], square)
    return jnp.where(near, half * (small - 2.0 * square * tail), x - jnp.log1p(jnp.where(near, 0.0, x)))


def _ratio_excess(x: jax.Array, y: jax.Array) -> jax.Array:
    """x/y - 1 - log(x/y), however small or large the ratio."""
    off = (x - y) / y
    near = jnp.abs(off) < 0.3
    return jnp.where(near, _log_excess(jnp.where(near, off, 0.0)), off - (jnp.log(x) - jnp.log(y)))


def _log_power(a: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """``a (1 + log(x/y) - x/y) - log x``; at x = 0 its limit."""
    near = jnp.abs(x - y) < 0.3 * y
    inner = -a * _ratio_excess(jnp.where(near, x, y), y) - jnp.log(jnp.where(near, x, 1.0))
    outer = a * ((y - x) / y - jnp.log(y)) + xlogy(a - 1.0, jnp.where(near, 1.0, x))
    return jnp.where(near, inner, outer)


def _exp_excess(x: jax.Array) -> jax.Array:
    """eˣ - 1 - x, to a relative precision of the dtype."""
    near = jnp.abs(x) < 0.5
    small = jnp.where(near, x, 0.0)
    factorials = np.cumprod(np.arange(1.0, 16.0))
    series = small * small * _series(list(1 / factorials[1:]), small)
    return jnp.where(near, series, jnp.expm1(jnp.where(near, 0.0, x)) - x)


def _shape_divergence(a: jax.Array, b: jax.Array) -> jax.Array:
    """KL of Gammas of shapes a and b with the same mean."""
    rest = a * log_gap(a)[0] - 0.5
    return 0.5 * _ratio_excess(b, a) + (b - a) / a * rest + _stirling_rest(b) - _stirling_rest(a)


def _shape_of_gap(gap: jax.Array) -> jax.Array:
    """The a with g(a) = gap; NaN where there is none. log g is nearly linear in log a, with slope about -1."""
    gap = jnp.where(gap > 0.0, gap, jnp.nan)
    # Minka's start, within 1.5%
    root = jnp.sqrt((gap - 3.0) ** 2 + 24.0 * gap)
    start = jnp.where(gap < 3.0, (3.0 - gap + root) / (12.0 * gap), 2.0 / (root + gap - 3.0))

    def step(a: jax.Array, _: None) -> tuple[jax.Array, None]:
        g, slope = log_gap(a)
        return a * jnp.exp(-jnp.log1p((g - gap) / gap) * g / slope), None

    return jax.lax.scan(step, start, length=4)[0]


# --- Dirichlet, and Beta as its smallest case --------------------------------------------------------------------


class Shares(NamedTuple):
    """Of α, each without cancellation.

    Attributes:
        total: ``(..., 1)``, Σα.
        others: ``(..., K)``, the sum of the others.
        share: ``(..., K)``, the means α/total,
        log_share: their logarithms,
        other: and one minus them.
    """

    total: jax.Array
    others: jax.Array
    share: jax.Array
    log_share: jax.Array
    other: jax.Array


def _shares(alpha: jax.Array) -> Shares:
    ends = jnp.zeros_like(alpha[..., :1])
    before = jnp.concatenate([ends, jnp.cumsum(alpha[..., :-1], -1)], -1)
    after = jnp.concatenate([jnp.flip(jnp.cumsum(jnp.flip(alpha[..., 1:], -1), -1), -1), ends], -1)
    others = before + after
    total = jnp.sum(alpha, -1, keepdims=True)
    return Shares(total, others, alpha / total, -jnp.log1p(others / alpha), others / total)


def _expected_logs(alpha: jax.Array) -> jax.Array:
    shares = _shares(alpha)
    return shares.log_share - _gap_fall(alpha, shares.others)


def _dirichlet_moments(alpha: jax.Array) -> tuple[jax.Array, jax.Array]:
    shares = _shares(alpha)
    return shares.share, shares.share * shares.other / (shares.total + 1.0)


def _dirichlet_height(alpha: jax.Array) -> jax.Array:
    """Log of Π (α_k/α_0)^α_k / B(α): the log-density of the log-ratios at their mode."""
    total = jnp.sum(alpha, -1)
    return jnp.sum(_peak_height(alpha), -1) - _peak_height(total)


def _log_multivariate_beta(alpha: jax.Array) -> jax.Array:
    return jnp.sum(alpha * _shares(alpha).log_share, -1) - _dirichlet_height(alpha)


def _dirichlet_log_prob(alpha: jax.Array, s: jax.Array) -> jax.Array:
    share = _shares(alpha).share
    return _dirichlet_height(alpha) + jnp.sum(_log_power(alpha, s, share), -1)


def _dirichlet_divergence(alpha: jax.Array, beta: jax.Array) -> jax.Array:
    """KL(α || β): that of the means, weighted with β, and what the Gammas' shapes say beyond that of their sum."""
    ours, theirs = _shares(alpha), _shares(beta)
    means = jnp.sum(beta * _ratio_excess(ours.share, theirs.share), -1)
    together = _shape_divergence(ours.total[..., 0], theirs.total[..., 0])
    return means + jnp.sum(_shape_divergence(alpha, beta), -1) - together


_STEPS = 100


def _shifted_dirichlet(alpha: jax.Array, change: jax.Array) -> jax.Array:
    """α' with the expected logs of α plus ``change``, by one-dimensional Newton for v = 1/Σα'.

    With s_k' the new share and u_k = log s_k'/s_k, ψ(α_k') - ψ(Σα') = E log s_k + change_k reads

        u_k - (g(s_k'/v) - g(1/v)) = change_k - (g(α_k) - g(Σα)),

    which has one solution u_k for every v, and it remains that Σ s_k' = 1. Their sum is an increasing concave function
    of v, towards v = 0 the line 1 - slack + v (K - 1 + slack)/2, whose root is where Newton's method goes on should it
    step below. From the second step on v only grows, so the first step that does not is rounding, and the end.
    """
    total, others, share, log_share, other = _shares(alpha)
    known = change - _gap_fall(alpha, others)
    slack = -jnp.sum(
        share * jnp.expm1(known), -1, keepdims=True
    )  # 1 - Σ exp E log s'; a member exists if it is positive
    slack = jnp.where((slack > 0.0) & jnp.isfinite(slack), slack, jnp.nan)
    least = 2.0 * slack / (alpha.shape[-1] - 1 + slack)
    tolerance = 0.01 * float(np.sqrt(jnp.finfo(alpha.dtype).eps))

    def ratios(v: jax.Array) -> tuple[jax.Array, jax.Array]:
        """``u`` and its derivative with respect to -log v."""
        g, slope_total = log_gap(1.0 / v)
        inverse_digamma = 1.0 / jnp.logaddexp(0.0, -(log_share + known - g - jnp.log(v)))  # within 6%
        u = jnp.log(inverse_digamma * v) - log_share

        def step(u: jax.Array, _: None) -> tuple[jax.Array, None]:
            new = share * jnp.exp(u) / v
            fall = _gap_fall(new, (other - share * jnp.expm1(u)) / v)
            return u - (u - fall - known) / (1.0 - log_gap(new)[1]), None

        u = jax.lax.scan(step, u, length=4)[0]
        slope = log_gap(share * jnp.exp(u) / v)[1]
        return u, (slope - slope_total) / (1.0 - slope)

    def more(state: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return jnp.any(~state[1]) & (state[2] < _STEPS)

    def improve(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        v, done, steps = state
        u, slope = ratios(v)
        excess = jnp.sum(share * jnp.expm1(u), -1, keepdims=True)
        grown = excess / jnp.sum(share * jnp.exp(u) * slope, -1, keepdims=True)
        new = jnp.where(done, v, jnp.maximum(v * (1.0 + grown), least))
        settled = (jnp.abs(grown) < tolerance) | ((steps > 0) & (grown <= 0.0)) | ~jnp.isfinite(new)
        return new, done | settled, steps + 1

    start = (1.0 / total, jnp.isnan(slack), jnp.asarray(0))
    v, done, _ = jax.lax.while_loop(more, improve, start)
    return jnp.where(done & (slack > 0.0), share * jnp.exp(ratios(v)[0]) / v, jnp.nan)


# --- quadrature --------------------------------------------------------------------------------------------------

_DROP = 38.0  # of the log-density, from its peak to the last node
_WIDTH = 3.0  # of what a factor may do to log s, or logit s: panels are longer where they are farther out than that
_RULES = ((4, 10), (1, 10), (1, 5), (1, 3))  # panels on a side, points of the Gauss rule: by level


@cache
def _side(level: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes on [0, 1] with Kronrod's and Gauss's weights."""
    panels, points = _RULES[min(level, len(_RULES) - 1)]
    x, rows = kronrod(points)
    nodes = np.concatenate([(panel + 0.5 + 0.5 * x) / panels for panel in range(panels)])
    return nodes, np.tile(rows[0], panels), np.tile(rows[1], panels)


def _distances(end: jax.Array, level: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Distances ``(M,)`` from a peak out to ``end``, evenly spread in asinh(distance/width), with both weights."""
    unit, fine, coarse = (jnp.asarray(each, end.dtype) for each in _side(level))
    reach = jnp.arcsinh(end / _WIDTH)
    angle = unit * reach
    stretch = reach * jnp.cosh(angle)
    return _WIDTH * jnp.sinh(angle), fine * stretch, coarse * stretch


def _normalised(drop: jax.Array, fine: jax.Array, coarse: jax.Array) -> tuple[jax.Array, jax.Array]:
    density = jnp.exp(-drop)
    fine, coarse = fine * density, coarse * density
    return fine / jnp.sum(fine), coarse / jnp.sum(coarse)


def _gamma_nodes(a: jax.Array, level: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Nodes t = log(s/mean) and weights: the log-density of t is -a (eᵗ - 1 - t) beside a constant."""
    level_at = _DROP / a
    # both starts are too far out, and Newton's method comes down to the root of a convex function from there
    left = 0.5 * level_at + jnp.sqrt(0.25 * level_at**2 + 2.0 * level_at)
    right = jnp.log1p(level_at + jnp.sqrt(2.0 * level_at))
    for _ in range(3):
        left = left - (_exp_excess(-left) - level_at) / -jnp.expm1(-left)
        right = right - (_exp_excess(right) - level_at) / jnp.expm1(right)
    down, fine_left, coarse_left = _distances(left, level)
    up, fine_right, coarse_right = _distances(right, level)
    t = jnp.concatenate([-down, up])
    weights = _normalised(
        a * _exp_excess(t),
        jnp.concatenate([fine_left, fine_right]),
        jnp.concatenate([coarse_left, coarse_right]),
    )
    return t, *weights


def _beta_nodes(eta: jax.Array, level: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Logarithms of s and 1 - s ``(M, 2)``, and weights, by nodes in logit s on both sides of that of the mean."""
    total, _, share, log_share, other = _shares(eta)
    side = jax.vmap(partial(_beta_side, level=level), in_axes=(0, None, 0, 0, 0, 0))
    logs, *parts = side(eta, total[0], share, other, log_share, log_share[::-1])
    logs = jnp.concatenate([logs[0], logs[1, :, ::-1]])
    return logs, *_normalised(*(part.reshape(-1) for part in parts))


def _beta_side(
    a: jax.Array, total: jax.Array, p: jax.Array, q: jax.Array, log_p: jax.Array, log_q: jax.Array, level: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Nodes below the mean p = a/total = 1 - q: logarithms of s and 1 - s, drop of the log-density, both weights.

    At a distance r in logit s the log-density has dropped by a r + total log(q + p e⁻ʳ).
    """

    def log_mixed(r: jax.Array) -> jax.Array:
        return jnp.where(r < 1.0, jnp.log1p(p * jnp.expm1(-r)), jnp.log(q + p * jnp.exp(-r)))

    def drop(r: jax.Array) -> jax.Array:
        near = a * _exp_excess(-r) - total * _log_excess(p * jnp.expm1(-r))
        return jnp.where(r < 1.0, near, a * r + total * log_mixed(r))

    flat = _DROP / (a * q)
    end = jnp.minimum(0.5 * flat + jnp.sqrt(0.25 * flat**2 + 2.0 * flat), (_DROP - total * log_q) / a)
    for _ in range(4):
        # slope a - total·s, with s the value there
        slope = -a * q * jnp.expm1(-end) / (q + p * jnp.exp(-end))
        end = end - (drop(end) - _DROP) / slope
    r, fine, coarse = _distances(end, level)
    mixed = log_mixed(r)
    return jnp.stack([log_p - r - mixed, log_q - mixed], -1), drop(r), fine, coarse


# --- small things ------------------------------------------------------------------------------------------------


def _with_first(eta: jax.Array) -> jax.Array:
    """Log odds with those of the first value, 0."""
    return jnp.concatenate([jnp.zeros_like(eta[..., :1]), eta], -1)


def _positive(eta: jax.Array) -> jax.Array:
    return jnp.all((eta > 0.0) & jnp.isfinite(eta), -1)


def _accepted(family: Exponential, eta: jax.Array, change: jax.Array, new: jax.Array) -> jax.Array:
    """η where nothing changes, else the new one if it is proper, else NaN."""
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
    """Both as float64, q with room for the leading axes of η."""
    eta, q = np.asarray(eta, float), np.asarray(q, float)
    return eta, q.reshape(q.shape + (1,) * (eta.ndim - 1))
