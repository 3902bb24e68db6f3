"""Log-densities of NumPyro's distributions, in forms that lose no digits.

NumPyro computes the densities of gamma, beta, and related distributions as differences of log-gamma functions. If a
concentration is large, these are large numbers with a small difference: in float32 the log probability of a count may
come out as +16,000. ``log_density`` replaces them by forms whose terms are as small as the result. A distribution that
is not listed here keeps its own ``log_prob``. A truncated normal distribution is divided by the mass between its
bounds. NumPyro computes it as a difference, which is 0 if the bounds are far from the mean, or close together.

``unconstrained_log_density`` gives the density of the unconstrained number. It does not need the constrained value,
which a dtype rounds to a bound or to infinity long before the tail of a vague prior ends.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer
from jax.scipy.special import xlog1py
from jax.typing import ArrayLike

from adfpp.engine.families.product.gamma_functions import (
    log_excess,
    log_multiset,
    log_rise,
    peak_height,
    stirling_rest,
)
from adfpp.engine.tilt.closed import log_scaled_tail, normal_tail

_LOG_2PI = math.log(2.0 * math.pi)
_LARGE = 100.0  # up to here the log-gamma function is below 400, and a difference of two loses three digits at most

# A distribution as Any, because NumPyro's stubs declare attributes that are not arrays.
AnyDistribution = Any
LogDensity = Callable[[AnyDistribution, jax.Array], jax.Array]


def log_density(fn: AnyDistribution, value: ArrayLike) -> jax.Array:
    """The log-density of a distribution at a value, in the shape that its ``log_prob`` has."""
    form = _FORMS.get(type(fn))
    if form is None or (form[1] and not any(_may_be_large(getattr(fn, name)) for name in form[1])):
        return fn.log_prob(value)
    if type(fn) in _TRUNCATED and type(fn.base_dist) is not dist.Normal:
        return fn.log_prob(value)
    value = jnp.asarray(value)
    return form[0](fn, value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float))


def unconstrained_log_density(fn: AnyDistribution, u: jax.Array) -> jax.Array | None:
    """The log-density of each unconstrained number, or None if this module has no form for the distribution.

    Args:
        fn: The distribution without ``to_event``, ``expand`` and ``mask``.
        u: The unconstrained value. Its numbers are independent under the distributions that have a form.
    """
    form = _UNCONSTRAINED.get(type(fn))
    return None if form is None else jnp.broadcast_to(form(fn, u), u.shape)


def _may_be_large(parameter: ArrayLike) -> bool:
    """Whether a parameter is unknown when the model is read, or large."""
    return isinstance(parameter, Tracer) or bool(np.max(np.abs(np.asarray(parameter)), initial=0.0) > _LARGE)


def _stacked(*parts: ArrayLike) -> jax.Array:
    """Arrays, broadcast against each other, along a new leading axis."""
    return jnp.stack(jnp.broadcast_arrays(*(jnp.asarray(a) for a in parts)))


# ------------------------------------------------------------------------------------------ counts


def _beta_binomial(fn: AnyDistribution, k: jax.Array) -> jax.Array:
    a, b, n = fn.concentration1, fn.concentration0, fn.total_count
    each = log_multiset(_stacked(a, b, a + b), _stacked(k, n - k, n))  # as one program, which compiles faster
    return each[0] + each[1] - each[2]


def _beta_negative_binomial(fn: AnyDistribution, k: jax.Array) -> jax.Array:
    a, b, n = fn.concentration1, fn.concentration0, fn.n
    return log_multiset(n, k) + log_rise(a, k) + log_rise(b, n) - log_rise(a + b, n + k)


def _dirichlet_multinomial(fn: AnyDistribution, k: jax.Array) -> jax.Array:
    each = log_multiset(fn.concentration, k)
    return jnp.sum(each, -1) - log_multiset(jnp.sum(fn.concentration, -1), jnp.sum(k, -1))


def _gamma_poisson(fn: AnyDistribution, k: jax.Array) -> jax.Array:
    return log_multiset(fn.concentration, k) - xlog1py(fn.concentration, 1.0 / fn.rate) - xlog1py(k, fn.rate)


def _negative_binomial_logits(fn: AnyDistribution, k: jax.Array) -> jax.Array:
    failures = fn.total_count * jax.nn.softplus(fn.logits) + k * jax.nn.softplus(-fn.logits)
    return log_multiset(fn.total_count, k) - failures


# ------------------------------------------------------------------------------------------ continuous values


def _excess(off: jax.Array, log_ratio: jax.Array) -> jax.Array:
    """``x/y - 1 - log(x/y)`` from ``x/y - 1`` and ``log(x/y)``."""
    near = jnp.abs(off) < 0.3
    return jnp.where(near, log_excess(jnp.where(near, off, 0.0)), jnp.where(near, 0.0, off) - log_ratio)


def _log_gamma_number(a: ArrayLike, x: jax.Array, log_x: jax.Array) -> jax.Array:
    """The log-density of log x, where x has a gamma distribution of shape a and rate 1."""
    a = jnp.asarray(a)
    return peak_height(a) - a * _excess((x - a) / a, log_x - jnp.log(a))


def _sticks(a: jax.Array, total: jax.Array, p: jax.Array, log_p: jax.Array) -> jax.Array:
    """Part of the log-density of a Dirichlet that belongs to one of its numbers, of concentration a and value p."""
    mean = a / total
    return 0.5 * (jnp.log(a) - _LOG_2PI) - stirling_rest(a) - a * _excess((p - mean) / mean, log_p - jnp.log(mean))


def _whole(total: jax.Array) -> jax.Array:
    """The rest of the log-density of a Dirichlet, which depends on the sum of the concentrations."""
    return stirling_rest(total) - 0.5 * (jnp.log(total) - _LOG_2PI)


def _logit_beta(a: ArrayLike, b: ArrayLike, u: jax.Array) -> jax.Array:
    """The log-density of the logit of a beta number."""
    a, b = jnp.asarray(a), jnp.asarray(b)
    total = a + b
    one = _sticks(a, total, jax.nn.sigmoid(u), jax.nn.log_sigmoid(u))
    other = _sticks(b, total, jax.nn.sigmoid(-u), jax.nn.log_sigmoid(-u))
    return _whole(total) + one + other


def _beta(fn: AnyDistribution, p: jax.Array) -> jax.Array:
    a, b = jnp.asarray(fn.concentration1), jnp.asarray(fn.concentration0)
    total, log_p, log_q = a + b, jnp.log(p), jnp.log1p(-p)
    inside = _whole(total) + _sticks(a, total, p, log_p) + _sticks(b, total, 1.0 - p, log_q)
    return jnp.where((p > 0) & (p < 1), inside - log_p - log_q, fn.log_prob(p))


def _dirichlet(fn: AnyDistribution, p: jax.Array) -> jax.Array:
    a = jnp.asarray(fn.concentration)
    total = jnp.sum(a, -1, keepdims=True)
    log_p = jnp.log(p)
    # The sticks suppose that p sums to 1. Variational message passing also asks for the form at geometric means.
    off = jnp.sum(p, -1) - 1.0
    off = jnp.where(jnp.abs(off) > 8 * p.shape[-1] * float(jnp.finfo(off.dtype).eps), off, 0.0)  # more than rounding
    return jnp.sum(_sticks(a, total, p, log_p) - log_p, -1) + _whole(total[..., 0]) + total[..., 0] * off


def _gamma(fn: AnyDistribution, x: jax.Array) -> jax.Array:
    return _log_gamma_number(fn.concentration, fn.rate * x, jnp.log(fn.rate) + jnp.log(x)) - jnp.log(x)


def _inverse_gamma(fn: AnyDistribution, x: jax.Array) -> jax.Array:
    return _log_gamma_number(fn.concentration, fn.rate / x, jnp.log(fn.rate) - jnp.log(x)) - jnp.log(x)


def _student(fn: AnyDistribution, x: jax.Array) -> jax.Array:
    df = jnp.asarray(fn.df)
    y = (x - fn.loc) / fn.scale
    height = log_rise(0.5 * df, 0.5) - 0.5 * jnp.log(df) - 0.5 * math.log(math.pi) - jnp.log(fn.scale)
    return height - 0.5 * (df + 1.0) * jnp.log1p(y**2 / df)


def _log_mass_above(low: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The log of the standard normal mass above a number, plus ``square / 2``; and this square, 0 or ``low²``."""
    positive = low > 0.0
    scaled, _, _ = log_scaled_tail(jnp.where(positive, low, 0.0))
    whole, *_ = normal_tail(jnp.where(positive, 0.0, -low))
    return jnp.where(positive, scaled, whole), jnp.where(positive, low * low, 0.0)


def _log_mass_between(low: jax.Array, high: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same for the mass between two numbers, whose sum is not negative."""
    above, square = _log_mass_above(low)
    beyond, far = _log_mass_above(high)
    ratio = beyond - above - 0.5 * (far - square)
    width, middle = high - low, 0.5 * (low + high)
    narrow = width * (1.0 + jnp.abs(middle)) < 1e-2  # the integral of a parabola is exact to rounding
    density = jnp.log1p((middle * middle - 1.0) * width * width / 24.0) + jnp.log(width) - 0.5 * _LOG_2PI
    whole = above + jnp.log(-jnp.expm1(jnp.where(narrow, -1.0, ratio)))
    return jnp.where(narrow, density - 0.5 * (middle * middle - square), whole), square


def _truncated(fn: AnyDistribution, x: jax.Array) -> jax.Array:
    """A normal number between bounds: the bound that is nearer to the mean becomes the lower one, by a reflection."""
    loc, scale = jnp.asarray(fn.base_dist.loc), jnp.asarray(fn.base_dist.scale)
    low, high = (
        (jnp.asarray(getattr(fn, name, end)) - loc) / scale for name, end in (("low", -jnp.inf), ("high", jnp.inf))
    )
    y, low, high = jnp.broadcast_arrays((x - loc) / scale, low, high)
    mirrored = low + high < 0.0
    y, low, high = (jnp.where(mirrored, a, b) for a, b in ((-y, y), (-high, low), (-low, high)))
    two_sided = hasattr(fn, "low") and hasattr(fn, "high")
    mass, square = _log_mass_between(low, high) if two_sided else _log_mass_above(low)
    # y² - low² as a product, which loses no digits
    gap = jnp.where(square > 0.0, (y - low) * (y + low), y * y)
    return -0.5 * gap - mass - jnp.log(scale) - 0.5 * _LOG_2PI


_TRUNCATED = (dist.LeftTruncatedDistribution, dist.RightTruncatedDistribution, dist.TwoSidedTruncatedDistribution)

# the form of each class, and the parameters of log-gamma functions, which may be large; without any it is always used
_FORMS: dict[type, tuple[LogDensity, tuple[str, ...]]] = {
    dist.BetaBinomial: (_beta_binomial, ("concentration1", "concentration0", "total_count")),
    dist.BetaNegativeBinomial: (_beta_negative_binomial, ("concentration1", "concentration0", "n")),
    dist.DirichletMultinomial: (_dirichlet_multinomial, ("concentration", "total_count")),
    dist.GammaPoisson: (_gamma_poisson, ("concentration",)),
    dist.NegativeBinomialProbs: (_gamma_poisson, ("concentration",)),
    dist.NegativeBinomial2: (_gamma_poisson, ("concentration",)),
    dist.NegativeBinomialLogits: (_negative_binomial_logits, ("total_count",)),
    dist.Beta: (_beta, ("concentration1", "concentration0")),
    dist.BetaProportion: (_beta, ("concentration1", "concentration0")),
    dist.Dirichlet: (_dirichlet, ("concentration",)),
    dist.Gamma: (_gamma, ("concentration",)),
    dist.Chi2: (_gamma, ("concentration",)),
    dist.InverseGamma: (_inverse_gamma, ("concentration",)),
    dist.StudentT: (_student, ("df",)),
    **dict.fromkeys(_TRUNCATED, (_truncated, ())),
}


# ------------------------------------------------------------------------------------------ unconstrained numbers


def _log_of_gamma(fn: AnyDistribution, u: jax.Array) -> jax.Array:
    log_x = u + jnp.log(fn.rate)
    return _log_gamma_number(fn.concentration, jnp.exp(log_x), log_x)


def _log_of_inverse_gamma(fn: AnyDistribution, u: jax.Array) -> jax.Array:
    log_x = jnp.log(fn.rate) - u
    return _log_gamma_number(fn.concentration, jnp.exp(log_x), log_x)


def _logit_of_beta(fn: AnyDistribution, u: jax.Array) -> jax.Array:
    return _logit_beta(fn.concentration1, fn.concentration0, u)


def _logits_of_sticks(fn: AnyDistribution, u: jax.Array) -> jax.Array:
    """Each stick is an independent beta fraction of the rest; its logit is moved by the log of the sticks to come."""
    a = jnp.asarray(fn.concentration)
    rest = jnp.flip(jnp.cumsum(jnp.flip(a[..., 1:], -1), -1), -1)
    return _logit_beta(a[..., :-1], rest, u - jnp.log(jnp.arange(u.shape[-1], 0, -1, dtype=u.dtype)))


_UNCONSTRAINED: dict[type, LogDensity] = {
    dist.Beta: _logit_of_beta,
    dist.BetaProportion: _logit_of_beta,
    dist.Dirichlet: _logits_of_sticks,
    dist.Gamma: _log_of_gamma,
    dist.Chi2: _log_of_gamma,
    dist.InverseGamma: _log_of_inverse_gamma,
}
