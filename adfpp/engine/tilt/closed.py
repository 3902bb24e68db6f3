"""Closed-form tilts: probit (with noise, flips, and its step limit), Rosenblatt at any beta, Gaussian.

All formulas are in the log domain and without differences of nearly equal numbers, so that they are accurate even for a
row that is a thousand sds away from the predicted mean.

The functions of normal tails consist of a hundred operations and are traced about thirty times when a model is read and
compiled. ``jax.jit`` makes JAX trace and lower each of them once.
"""

import math
from functools import cache
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import erfc
from jaxtyping import Array, Float

from adfpp.engine.tilt.base import Tilted

# One number, or one for each of several cavities.
Number: TypeAlias = Float[Array, "*n"] | float

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_TAIL_FROM = 4.5  # for larger arguments the continued fraction is used instead of erfc
_TAIL_TERMS = 30  # from 4.5 on they are exact to rounding


@cache
def _tail_polynomials() -> tuple[Float[np.ndarray, " terms"], ...]:
    """Numerators of Laplace's continued fraction for the Mills ratio, as polynomials in u = 1/x².

    ``1/R(x) = x + t_1`` with ``t_n = n / (x + t_{n+1})``. With ``x t_n = n B_{n+1} / B_n`` the recursion is
    ``B_n = B_{n+1} + (n+1) u B_{n+2}``; all coefficients are positive, so evaluating them is stable.
    """
    following, current = np.ones(1), np.ones(1)  # B_{M+1}, B_M
    kept: dict[int, Float[np.ndarray, " terms"]] = {}
    for n in range(_TAIL_TERMS - 1, 0, -1):
        shifted = np.concatenate([[0.0], (n + 1) * following])
        grown = np.zeros(max(len(current), len(shifted)))
        grown[: len(current)] += current
        grown[: len(shifted)] += shifted
        following, current = current, grown
        kept[n] = current
    return kept[1], kept[2], kept[3]


def _horner(coefficients: Float[np.ndarray, " terms"], u: Float[Array, "*n"]) -> Float[Array, "*n"]:
    total = jnp.full_like(u, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * u + c
    return total


@jax.jit
def _far_tail(x: Float[Array, "*n"]) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """(hazard - x, variance) of N(0, 1) restricted to (x, ∞), for x ≥ 4.5."""
    u = 1.0 / (x * x)
    b1, b2, b3 = (_horner(b, u) for b in _tail_polynomials())
    gap = b2 / (b1 * x)  # t_1
    following = 2.0 * b3 / (b2 * x)  # t_2
    return gap, gap * (following - gap)


@jax.jit
def normal_tail(
    z: Float[Array, "*n"],
) -> tuple[Float[Array, "*n"], Float[Array, "*n"], Float[Array, "*n"], Float[Array, "*n"]]:
    """Moments of the standard normal on (-z, ∞): log mass, mean, distance of the mean from the edge, variance.

    With λ = φ(z)/Φ(z) the mean is λ. Its distance from the edge, λ + z, is returned separately, because computing it
    from λ would lose all digits in the far tail.

    Args:
        z: An array of any shape. The result is accurate for all z (tested to |z| = 1e3).

    Returns:
        ``(log Φ(z), λ, λ + z, 1 - λ(λ + z))``.
    """
    far = z < -_TAIL_FROM
    near = jnp.where(far, -_TAIL_FROM, z)
    mass = 0.5 * erfc(near * -math.sqrt(0.5))
    hazard = jnp.exp(-0.5 * near * near - _LOG_SQRT_2PI) / mass
    far_x = jnp.where(far, -z, _TAIL_FROM)
    gap, variance = _far_tail(far_x)
    # both branches use the same logarithm
    log_ratio = jnp.log(jnp.where(far, far_x + gap, mass))
    return (
        jnp.where(far, -0.5 * far_x * far_x - _LOG_SQRT_2PI - log_ratio, log_ratio),
        jnp.where(far, far_x + gap, hazard),
        jnp.where(far, gap, hazard + near),
        jnp.where(far, variance, 1.0 - hazard * (hazard + jnp.minimum(near, 1e4))),
    )


@jax.jit
def log_scaled_tail(x: Float[Array, "*n"]) -> tuple[Float[Array, "*n"], Float[Array, "*n"], Float[Array, "*n"]]:
    """(log(Φ(-x) exp(x²/2)), hazard - x, variance) of N(0, 1) restricted to (x, ∞), finite for any x up to ∞."""
    far = x > _TAIL_FROM
    near = jnp.where(far, _TAIL_FROM, x)
    log_mass, _, near_gap, near_variance = normal_tail(-near)
    far_x = jnp.where(far, x, _TAIL_FROM)
    gap, variance = _far_tail(far_x)
    log_scaled = jnp.where(far, -_LOG_SQRT_2PI - jnp.log(far_x + gap), log_mass + 0.5 * near * near)
    return log_scaled, jnp.where(far, gap, near_gap), jnp.where(far, variance, near_variance)


def _known_zero(value: Number) -> bool:
    """Whether a parameter is known to be zero when the program is built (constants arrive as NumPy values)."""
    return isinstance(value, int | float | np.ndarray | np.generic) and bool(np.all(np.asarray(value) == 0))


def probit_tilt(
    value: Number,
    mean: Float[Array, "*n"],
    scale: Float[Array, "*n"],
    noise: Number = 1.0,
    flip: Number = 0.0,
) -> Tilted:
    """Tilts by ``flip + (1 - 2 flip) Φ(s h / noise)``, s = 2 value - 1; noise 0 is the step (Opper (9.1)-(9.2)).

    Args:
        value: The label, 0 or 1.
        mean: The cavity's mean of the field.
        scale: The cavity's sd of the field.
        noise: The sd of the label noise on the field, ≥ 0.
        flip: The probability that a label is flipped.
    """
    sign = jnp.where(jnp.asarray(value) > 0.5, 1.0, -1.0).astype(jnp.result_type(mean))
    total = noise * noise + scale * scale
    total_sd = jnp.sqrt(total)
    z = sign * mean / total_sd
    # if the field is certain and has no noise, only the sign of the mean matters
    z = jnp.where(total > 0, z, jnp.where(mean == 0, 0.0, jnp.inf * jnp.sign(sign * mean)))
    share = jnp.where(total > 0, scale / total_sd, 0.0)
    kept = jnp.where(total > 0, noise * noise / total, 1.0)
    if _known_zero(flip):
        log_z, hazard, _, variance = normal_tail(z)
        return Tilted(log_z, sign * share * hazard, jnp.sqrt(kept + share * share * variance))
    # a flip probability above 1/2 is the same likelihood with the other label
    flip = jnp.asarray(flip)
    turned = flip > 0.5
    z, sign = jnp.where(turned, -z, z), jnp.where(turned, -sign, sign)
    flip = jnp.where(turned, 1.0 - flip, flip)
    log_mass, hazard, _, variance = normal_tail(z)
    log_signal = jnp.log1p(-2.0 * flip) + log_mass
    log_z = jnp.logaddexp(jnp.log(flip), log_signal)
    weight = jnp.exp(log_signal - log_z)  # the weight of the case that the label was not flipped at random
    shift = share * hazard
    narrowed = kept + share * share * variance
    spread = weight * narrowed + (1.0 - weight) * (1.0 + weight * shift * shift)
    return Tilted(log_z, sign * weight * shift, jnp.sqrt(spread))


def rosenblatt_tilt(
    value: Number, mean: Float[Array, "*n"], scale: Float[Array, "*n"], beta: Number = jnp.inf
) -> Tilted:
    """Tilts by ``exp(-beta max(0, -s h))``, s = 2 value - 1; beta ∞ is the step (de Oliveira & Alamino (8)-(9)).

    The factor is a mixture of two truncated Gaussians: the cavity where s h > 0, and the cavity moved by beta·scale²
    where s h < 0.
    """
    sign = jnp.where(jnp.asarray(value) > 0.5, 1.0, -1.0).astype(jnp.result_type(mean))
    z = sign * mean / scale
    x = z + beta * scale  # the moved mean, in sds beyond the boundary
    log_right, mean_right, _, variance_right = normal_tail(z)
    log_scaled, edge_left, variance_left = log_scaled_tail(x)
    log_left = jnp.where(
        x > 0, -0.5 * z * z + log_scaled, 0.5 * beta * scale * (x + z) + normal_tail(-jnp.minimum(x, 0.0))[0]
    )
    log_z = jnp.logaddexp(log_right, log_left)
    right, left = jax.nn.sigmoid(log_right - log_left), jax.nn.sigmoid(log_left - log_right)
    mean_left = -edge_left - z
    shift = right * mean_right + left * mean_left
    variance = right * variance_right + left * variance_left + right * left * (mean_right - mean_left) ** 2
    return Tilted(log_z, sign * shift, jnp.sqrt(variance))


def normal_tilt(value: Number, mean: Float[Array, "*n"], scale: Float[Array, "*n"], noise: Number) -> Tilted:
    """Tilts by ``N(value; h, noise²)``: exact Bayesian regression on one number."""
    total = noise * noise + scale * scale
    total_sd = jnp.sqrt(total)
    z = (value - mean) / total_sd
    return Tilted(-0.5 * z * z - jnp.log(total_sd) - _LOG_SQRT_2PI, (scale / total_sd) * z, noise / total_sd)


def gaussian_tilt(
    value: Float[Array, " k"], mean: Float[Array, " k"], scale: Float[Array, "k k"], noise: Float[Array, "k k"]
) -> Tilted:
    """Tilts by ``N(value; h, noise noiseᵀ)`` with h a vector: exact Bayesian regression on a correlated vector.

    Args:
        value: The observation.
        mean: The cavity's mean.
        scale: Lower triangular root of the cavity's covariance.
        noise: Lower triangular root of the noise's covariance.
    """
    k = mean.shape[-1]
    gain = solve_triangular(noise, scale, lower=True)
    innovation = solve_triangular(noise, value - mean, lower=True)
    # the precision of u is I + gainᵀ gain = K Kᵀ, so its covariance is K⁻ᵀ K⁻¹
    precision_root = jnp.linalg.cholesky(jnp.eye(k, dtype=gain.dtype) + gain.T @ gain)
    root = solve_triangular(precision_root, jnp.eye(k, dtype=gain.dtype), lower=True).T
    shift = root @ (root.T @ (gain.T @ innovation))
    residual = innovation - gain @ shift
    log_det = jnp.sum(jnp.log(jnp.diagonal(noise))) + jnp.sum(jnp.log(jnp.diagonal(precision_root)))
    log_z = -0.5 * (residual @ residual + shift @ shift) - log_det - k * _LOG_SQRT_2PI
    return Tilted(log_z, shift, root)
