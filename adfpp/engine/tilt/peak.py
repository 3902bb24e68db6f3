"""A Gaussian fitted to the peak of a tilt: where fitted quadrature starts and what Monte Carlo proposes from."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

LogFactor = Callable[[jax.Array], jax.Array]
_STEPS = (1.0, 0.5, 0.2, 0.05, 0.01, 1e-3)
_WIDEST = 0.25  # smallest curvature used: a proposal at most twice as wide as the cavity


def peak_fit(log_factor: LogFactor, size: int, dtype: jnp.dtype, iterations: int = 25) -> tuple[jax.Array, jax.Array]:
    """Mode of ``log_factor(u) - u·u/2`` by damped Newton, and a root of the inverse curvature there.

    Curvatures of the wrong sign are turned round for the step and bounded for the fit, so that the root is always
    proper. Where derivatives are not finite the cavity's own curvature is used.

    Args:
        log_factor: ``(size,) -> ()``, in whitened coordinates.
        size: length of u.
        dtype: of the result.
        iterations: at most so many Newton steps.

    Returns:
        ``(mode (size,), root (size, size))`` with ``root @ root.T`` the fitted covariance.
    """
    log_tilt, slope_at, precision_at = _derivatives(log_factor, size, dtype)

    def spectrum(u: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.linalg.eigh(precision_at(u))

    def newton(carry: tuple) -> tuple:
        u, height, _, count = carry
        values, vectors = spectrum(u)
        slope = slope_at(u)
        direction = vectors @ ((vectors.T @ slope) / jnp.maximum(jnp.abs(values), 0.05))
        return *_uphill(log_tilt, u, height, direction), count + 1

    zero = jnp.zeros(size, dtype)
    start = _no_nan(log_tilt(zero))
    small = 1e-6 if dtype == jnp.float64 else 1e-3
    mode, _, _, _ = jax.lax.while_loop(
        lambda c: (c[2] > small) & (c[3] < iterations), newton, (zero, start, jnp.full((), jnp.inf, dtype), 0)
    )
    values, vectors = spectrum(mode)
    return mode, vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), _WIDEST))


def rough_peak(
    log_factor: LogFactor, size: int, dtype: jnp.dtype, iterations: int = 10
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """As ``peak_fit`` for large fields: the mode to a tenth of an sd, without a spectrum wherever one is not needed.

    Args:
        log_factor: ``(size,) -> ()``, in whitened coordinates.
        size: length of u.
        dtype: of the result.
        iterations: at most so many Newton steps.

    Returns:
        ``(mode (size,), root (size, size), inverse (size, size))`` of the fitted covariance ``root @ root.T``.
    """
    identity = jnp.eye(size, dtype=dtype)
    log_tilt, slope_at, precision_at = _derivatives(log_factor, size, dtype)

    def newton(carry: tuple) -> tuple:
        u, height, _, count, precision = carry
        slope = slope_at(u)
        lower = jnp.linalg.cholesky(precision)
        # no eigenvalue is larger than this norm: a shift by it bends every direction the right way
        shifted = jnp.linalg.cholesky(precision + (jnp.sqrt(jnp.sum((precision - identity) ** 2)) + 0.05) * identity)
        lower = jnp.where(jnp.all(jnp.isfinite(lower)), lower, shifted)
        half = jax.scipy.linalg.solve_triangular(lower, slope, lower=True)
        direction = jax.scipy.linalg.solve_triangular(lower, half, lower=True, trans=1)
        moved, height, gain = _uphill(log_tilt, u, height, direction)
        return moved, height, gain, count + 1, precision_at(moved)

    zero = jnp.zeros(size, dtype)
    start = _no_nan(log_tilt(zero))
    mode, _, _, _, precision = jax.lax.while_loop(
        lambda c: (c[2] > 5e-3) & (c[3] < iterations),
        newton,
        (zero, start, jnp.full((), jnp.inf, dtype), 0, precision_at(zero)),
    )

    def triangular() -> tuple[jax.Array, jax.Array]:
        upper = jnp.linalg.cholesky(precision).T
        return jax.scipy.linalg.solve_triangular(upper, identity), upper

    def spectral() -> tuple[jax.Array, jax.Array]:
        values, vectors = jnp.linalg.eigh(precision)
        widths = jnp.sqrt(jnp.maximum(jnp.abs(values), _WIDEST))
        return vectors / widths, (vectors * widths).T

    narrow = jnp.all(jnp.isfinite(jnp.linalg.cholesky(precision - _WIDEST * identity)))
    return (mode, *jax.lax.cond(narrow, triangular, spectral))


def _derivatives(
    log_factor: LogFactor, size: int, dtype: jnp.dtype
) -> tuple[LogFactor, Callable[[jax.Array], jax.Array], Callable[[jax.Array], jax.Array]]:
    """The log tilt, its slope (0 where it is not finite) and its precision (the cavity's where it is not finite)."""

    def log_tilt(u: jax.Array) -> jax.Array:
        return log_factor(u) - 0.5 * u @ u

    gradient, identity = jax.grad(log_tilt), jnp.eye(size, dtype=dtype)
    curvature = jax.jacfwd(gradient)

    def slope_at(u: jax.Array) -> jax.Array:
        slope = gradient(u)
        return jnp.where(jnp.isfinite(slope), slope, 0.0)

    def precision_at(u: jax.Array) -> jax.Array:
        precision = -curvature(u)
        precision = jnp.where(jnp.all(jnp.isfinite(precision)), precision, identity)
        return 0.5 * (precision + precision.T)

    return log_tilt, slope_at, precision_at


def _uphill(
    log_tilt: LogFactor, u: jax.Array, height: jax.Array, direction: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The highest point along a direction, its height, and the gain over ``height``; u itself where none is higher."""
    candidates = u + jnp.asarray(_STEPS, u.dtype)[:, None] * direction
    heights = _no_nan(jax.vmap(log_tilt)(candidates))
    best = jnp.argmax(heights)
    better = heights[best] > height
    gain = jnp.where(better, heights[best] - height, 0.0)
    return jnp.where(better, candidates[best], u), jnp.where(better, heights[best], height), gain


def _no_nan(height: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(height), -jnp.inf, height)
