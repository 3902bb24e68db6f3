"""Site approximations: the Gaussian that replaces a factor in the belief, and its exchange at a visit.

A site of a factor with field h (k numbers) is ``exp(slope @ h - h @ precision @ h / 2)``: k + k(k+1)/2 numbers, however
many θ has. A visit uses the whitened field u of the belief, ``h = mean + L u`` with u ~ N(0, I). There the site has
the gradient ``g = Lᵀ (slope - precision mean)`` at u = 0 and the precision ``Λ = Lᵀ precision L``. The *cavity
distribution*, which is the belief without a fraction α of the site, is N(m, P⁻¹) with

    P = I - α Λ,        P m = -α g.

The tilted moments are given in the cavity's whitened coordinates v, ``u = m + R v``, ``R Rᵀ = P⁻¹``.

The log evidence is a sum over factors, in which the terms that diverge as a site vanishes are cancelled by algebra.
The integral ∫ N(u; m, P⁻¹) site^α du is |P|^½ exp(-½ mᵀ P m) times the site's value at u = 0. These values cancel
between the factors and the belief as a whole, so a factor adds ``(log Z - ½ log|P| + ½ mᵀ P m) / α``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from adfpp.engine.linalg import inverse_lower, inverse_of, inverse_upper, reversed_cholesky
from adfpp.engine.tilt import Message, Tilted


def site_size(field_size: int) -> int:
    """The number of numbers in a site."""
    return field_size + field_size * (field_size + 1) // 2


def pack(slope: jax.Array, precision: jax.Array) -> jax.Array:
    """Makes a site ``(..., k + k(k+1)/2)`` from its slope ``(..., k)`` and precision ``(..., k, k)``."""
    i, j = np.tril_indices(slope.shape[-1])
    return jnp.concatenate([slope, precision[..., i, j]], -1)


def unpack(site: jax.Array, field_size: int) -> tuple[jax.Array, jax.Array]:
    """Returns the slope ``(..., k)`` and precision ``(..., k, k)`` of a site."""
    k = field_size
    if k == 1:
        return site[..., :1], site[..., 1:, None]
    places = np.zeros((k, k), int)
    i, j = np.tril_indices(k)
    places[i, j] = places[j, i] = np.arange(len(i))
    return site[..., :k], site[..., k:][..., places]


class Cavity(NamedTuple):
    """The cavity distribution in a field: the belief without a fraction of the factor's site.

    Attributes:
        mean: ``(k,)`` mean of the field.
        scale: ``(k, k)`` lower triangular root of the field's covariance.
        fraction: ``()`` α, the fraction of the site that is removed.
        shift: ``(k,)`` m, the mean of the cavity distribution in the belief's whitened field.
        root: ``(k, k)`` R, lower triangular.
        slope: ``(k,)`` g, the site's gradient at the belief's mean, whitened.
        precision: ``(k, k)`` Λ, the site's precision, whitened.
        evidence: ``()`` -½ log|P| + ½ mᵀ P m.
        proper: ``()`` whether it is a distribution; if not, the other fields are those of the belief itself.
        whole: ``()`` whether the requested fraction could be removed.
    """

    mean: jax.Array
    scale: jax.Array
    fraction: jax.Array
    shift: jax.Array
    root: jax.Array
    slope: jax.Array
    precision: jax.Array
    evidence: jax.Array
    proper: jax.Array
    whole: jax.Array


def least_pivot(dtype: DTypeLike) -> float:
    """The smallest part of a direction's precision that must be left when a site is removed; less is rounding error."""
    # the rounding error of a pivot is a small multiple of eps; 4096 leaves a wide margin
    return 4096.0 * float(jnp.finfo(dtype).eps)


def cavity(site: jax.Array, mean: jax.Array, scale: jax.Array, power: jax.Array, divisible: bool) -> Cavity:
    """Removes a fraction of a site from the belief: ``power``, or less if the cavity would not be proper.

    Args:
        site: ``(k + k(k+1)/2,)``.
        mean: ``(k,)`` mean of the field under the belief.
        scale: ``(k, k)`` L, lower triangular; the rows of deficient directions are 0.
        power: ``()`` in (0, 1].
        divisible: Whether a smaller fraction may be removed.
    """
    size, dtype = mean.shape[0], mean.dtype
    slope, precision = unpack(site, size)
    g = scale.T @ (slope - precision @ mean)
    white = scale.T @ precision @ scale
    identity = jnp.eye(size, dtype=dtype)
    floor = least_pivot(dtype)

    def root_of(fraction: jax.Array) -> tuple[jax.Array, jax.Array]:
        upper = reversed_cholesky(identity - fraction * white)
        pivots = jnp.diagonal(upper)
        return upper, jnp.all(pivots * pivots > floor)  # NaN fails

    upper, proper = root_of(power)
    whole, fraction = proper, power
    if divisible:
        # no eigenvalue exceeds the largest sum of absolute values in a row; 0.9 leaves a tenth of the precision
        bound = jnp.max(jnp.sum(jnp.abs(white), -1))
        less = jnp.minimum(power, 0.9 / jnp.maximum(bound, 0.9))
        fraction = jnp.where(whole, power, less)
        upper_less, proper_less = root_of(less)
        upper, proper = jnp.where(whole, upper, upper_less), whole | proper_less
    upper = jnp.where(proper, upper, identity)
    inverse = inverse_upper(upper)
    root = inverse.T
    whitened = inverse @ (-fraction * g)  # R⁻¹ m
    shift = jnp.where(proper, root @ whitened, 0.0)
    evidence = 0.5 * whitened @ whitened - jnp.sum(jnp.log(jnp.diagonal(upper)))
    return Cavity(
        mean + scale @ shift,
        scale @ root,
        fraction,
        shift,
        root,
        g,
        white,
        jnp.where(proper, evidence, 0.0),
        proper,
        whole,
    )


def message_of(tilted: Tilted, cavity: Cavity) -> tuple[Message, jax.Array]:
    """Computes a factor's message in the belief's whitened field, from moments of cavity times a power of the factor.

    A precision that is negative by no more than the moments' error is set to 0, and the tilted mean is kept.

    Returns:
        The message, and whether its precision was set to 0.
    """
    size, dtype = tilted.shift.shape[0], tilted.shift.dtype
    inverse = inverse_of(tilted.root)
    whole = inverse.T @ inverse  # precision of the tilted v
    excess = whole - jnp.eye(size, dtype=dtype)
    slack = 4.0 * (jnp.asarray(tilted.error, dtype) + 64.0 * float(jnp.finfo(dtype).eps))
    diagonal = jnp.diagonal(excess)
    numerical = (jnp.min(diagonal) < 0) & (jnp.max(jnp.abs(excess)) <= slack)
    excess = jnp.where(numerical, 0.0, excess)
    slope = jnp.where(numerical, tilted.shift, whole @ tilted.shift)
    back = inverse_lower(cavity.root)
    precision = back.T @ excess @ back / cavity.fraction
    slope = back.T @ (slope + excess @ (back @ cavity.shift)) / cavity.fraction
    return Message(tilted.log_z, slope, precision, tilted.error), numerical


def site_of(message: Message, mean: jax.Array, scale: jax.Array) -> jax.Array:
    """Converts a message in the belief's whitened field, ``h = mean + scale @ u``, to a site."""
    pivots = jnp.diagonal(scale)
    # in a deficient direction the scale is 0, and so are the rows of the message
    usable = jnp.where(pivots > 0, 0.0, 1.0)
    back = inverse_lower(scale + jnp.diag(usable))
    precision = back.T @ message.precision @ back
    return pack(back.T @ message.slope + precision @ mean, precision)
