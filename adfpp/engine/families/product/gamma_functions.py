"""Remainders of log Γ and its derivative after Stirling's leading terms, and divergences computed from them.

Digamma and log-gamma functions of large arguments are used in the form

    g(a) = log a - ψ(a) = 1/2a + …          R(a) = log Γ(a) - (a - ½) log a + a - ½ log 2π = 1/12a - …

and densities and divergences as sums of ``x - log(1 + x)``. So numbers of the size of a log a are never subtracted from
each other. All functions are elementwise.

Each of them consists of dozens of operations, and is traced many times when a model is compiled. ``jax.jit`` makes JAX
trace and lower it once for each shape.
"""

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlogy
from jax.typing import ArrayLike

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_SHIFT = 10  # for arguments from 10 on, the asymptotic series below are accurate to the last digit of float64
# Bernoulli numbers B_2, B_4, …
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_G_SERIES = tuple(b / (2 * n) for n, b in enumerate(_BERNOULLI, 1))
_R_SERIES = tuple(b / (2 * n * (2 * n - 1)) for n, b in enumerate(_BERNOULLI, 1))


def _series(coefficients: Sequence[float], x: jax.Array) -> jax.Array:
    """Σ c_n x^n, from n = 0."""
    return _polynomial(tuple(coefficients), x)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _polynomial(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    """Σ c_n x^n by Horner's scheme, whose derivatives are polynomials again: much shorter programs than JAX's own."""
    total = jnp.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


@_polynomial.defjvp
def _polynomial_jvp(
    coefficients: tuple[float, ...], given: tuple[jax.Array], change: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    slope = tuple(n * c for n, c in enumerate(coefficients))[1:] or (0.0,)
    return _polynomial(coefficients, *given), _polynomial(slope, *given) * change[0]


@jax.jit
def log_gap(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """g(a) = log a - ψ(a) and its slope a g'(a) = 1 - a ψ'(a), both to the relative precision of the dtype."""
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


@jax.jit
def gap_fall(a: jax.Array, d: jax.Array) -> jax.Array:
    """g(a) - g(a + d) for d > -a, to the relative precision of the dtype, even if d is small."""
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


@jax.jit
def stirling_rest(a: jax.Array) -> jax.Array:
    """R(a) = log Γ(a) - (a - ½) log a + a - ½ log 2π."""
    small = a < _SHIFT
    low, high = jnp.where(small, a, 1.0), jnp.where(small, float(_SHIFT), a)
    inverse = 1.0 / high
    direct = gammaln(low) - (low - 0.5) * jnp.log(low) + low - 0.5 * np.log(2 * np.pi)
    return jnp.where(small, direct, inverse * _series(_R_SERIES, inverse * inverse))


def _log_steps(a: jax.Array, d: ArrayLike = 0.0) -> jax.Array:
    """The log of ``(a + d) (a + d + 1) … (a + d + 9)``, or with d of its ratio to the same product without d."""
    a = a[..., None] + np.arange(_SHIFT, dtype=a.dtype)
    factors = a if isinstance(d, float) else 1.0 + jnp.asarray(d)[..., None] / a
    # a few logarithms of products; the first factor may be very small or large, and the others in threes
    threes = factors[..., 1::3] * factors[..., 2::3] * factors[..., 3::3]
    return jnp.sum(jnp.log(threes), -1) + jnp.log(factors[..., 0])


def _shifted(a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Whether an argument is below 10, the argument (1 if not), and the argument moved to at least 10."""
    small = a < _SHIFT
    low = jnp.where(small, jnp.maximum(a, float(jnp.finfo(a.dtype).tiny)), 1.0)
    return small, low, jnp.where(small, low + _SHIFT, a)


def _large_rest(z: jax.Array) -> jax.Array:
    """R(z) for z of at least 9."""
    inverse = 1.0 / z
    return inverse * _series(_R_SERIES, inverse * inverse)


def log_gamma(a: ArrayLike) -> jax.Array:
    """``log Γ(a)`` for a > 0, to an absolute error of some eps for small a. Its derivatives are short programs."""
    small, low, z = _shifted(jnp.asarray(a, jnp.result_type(a, float)))
    whole = (z - 0.5) * jnp.log(z) - z + _HALF_LOG_2PI + _large_rest(z)
    return jnp.where(small, whole - _log_steps(low), whole)


def log_rise(a: ArrayLike, d: ArrayLike) -> jax.Array:
    """``log Γ(a + d) - log Γ(a)`` for a > 0, d ≥ -1 and a + d > 0, to the precision of a result of d log a."""
    dtype = jnp.result_type(a, d, float)
    a, d = jnp.broadcast_arrays(jnp.asarray(a, dtype), jnp.asarray(d, dtype))
    small, low, z = _shifted(a)
    # Stirling's formula for both, without terms of the size of a log a
    rest = _large_rest(jnp.stack([z + d, z]))
    rise = d * jnp.log(z) + ((z + d - 0.5) * jnp.log1p(d / z) - d) + (rest[0] - rest[1])
    return jnp.where(small, rise - _log_steps(low, d), rise)


def log_multiset(a: ArrayLike, k: ArrayLike) -> jax.Array:
    """The log of ``Γ(a + k) / (Γ(a) k!)`` for a > 0 and whole numbers k ≥ 0: the number of multisets of size k."""
    dtype = jnp.result_type(a, k, float)
    a, k = jnp.broadcast_arrays(jnp.asarray(a, dtype), jnp.asarray(k, dtype))
    some = jnp.where(k == 0, 1.0, k)
    # symmetric in a and k + 1; the rise starts at the larger one
    large, least = jnp.maximum(a, some + 1.0), jnp.minimum(a, some + 1.0)
    return jnp.where(k == 0, 0.0, log_rise(large, least - 1.0) - log_gamma(least))


@jax.jit
def peak_height(a: jax.Array) -> jax.Array:
    """The log of aᵃ e⁻ᵃ / Γ(a), which is the log-density of log s at its mode for s ~ Gamma of shape a."""
    return 0.5 * jnp.log(a / (2 * np.pi)) - stirling_rest(a)


@jax.jit
def log_excess(x: jax.Array) -> jax.Array:
    """``x - log(1 + x)``, to the relative precision of the dtype."""
    near = jnp.abs(x) < 0.3
    small = jnp.where(near, x, 0.0)
    half = small / (2.0 + small)  # log(1 + x) = 2 artanh
    square = half * half
    tail = _series([1 / n for n in range(3, 23, 2)], square)
    return jnp.where(near, half * (small - 2.0 * square * tail), x - jnp.log1p(jnp.where(near, 0.0, x)))


@jax.jit
def ratio_excess(x: jax.Array, y: jax.Array) -> jax.Array:
    """x/y - 1 - log(x/y), also for very small and very large ratios."""
    off = (x - y) / y
    near = jnp.abs(off) < 0.3
    return jnp.where(near, log_excess(jnp.where(near, off, 0.0)), off - (jnp.log(x) - jnp.log(y)))


@jax.jit
def log_power(a: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """``a (1 + log(x/y) - x/y) - log x``, and its limit at x = 0."""
    near = jnp.abs(x - y) < 0.3 * y
    inner = -a * ratio_excess(jnp.where(near, x, y), y) - jnp.log(jnp.where(near, x, 1.0))
    outer = a * ((y - x) / y - jnp.log(y)) + xlogy(a - 1.0, jnp.where(near, 1.0, x))
    return jnp.where(near, inner, outer)


@jax.jit
def exp_excess(x: jax.Array) -> jax.Array:
    """eˣ - 1 - x, to the relative precision of the dtype."""
    near = jnp.abs(x) < 0.5
    small = jnp.where(near, x, 0.0)
    factorials = np.cumprod(np.arange(1.0, 16.0))
    series = small * small * _series(list(1 / factorials[1:]), small)
    return jnp.where(near, series, jnp.expm1(jnp.where(near, 0.0, x)) - x)


@jax.jit
def shape_divergence(a: jax.Array, b: jax.Array) -> jax.Array:
    """The KL divergence of Gammas of shapes a and b with the same mean."""
    rest = a * log_gap(a)[0] - 0.5
    return 0.5 * ratio_excess(b, a) + (b - a) / a * rest + stirling_rest(b) - stirling_rest(a)


@jax.jit
def shape_of_gap(gap: jax.Array) -> jax.Array:
    """The a with g(a) = gap, or NaN if there is none. log g is nearly linear in log a, with slope about -1."""
    gap = jnp.where(gap > 0.0, gap, jnp.nan)
    # Minka's initial value, accurate to 1.5%
    root = jnp.sqrt((gap - 3.0) ** 2 + 24.0 * gap)
    start = jnp.where(gap < 3.0, (3.0 - gap + root) / (12.0 * gap), 2.0 / (root + gap - 3.0))

    def step(a: jax.Array, _: None) -> tuple[jax.Array, None]:
        g, slope = log_gap(a)
        return a * jnp.exp(-jnp.log1p((g - gap) / gap) * g / slope), None

    return jax.lax.scan(step, start, length=4)[0]
