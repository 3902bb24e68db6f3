"""Fits a Gaussian to the peak of a tilt: the start of fitted quadrature, and the first proposal of Monte Carlo."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from adfpp.engine.derivatives import jacobian
from adfpp.engine.tilt.base import LogFactor

Slope: TypeAlias = Callable[[Float[Array, " k"]], Float[Array, " k"]]
Precision: TypeAlias = Callable[[Float[Array, " k"]], Float[Array, "k k"]]

_STEPS = (1.0, 0.5, 0.2, 0.05, 0.01, 1e-3)  # fractions of a Newton step that are tried in parallel
_WIDEST = 0.25  # smallest curvature of a fit: a proposal at most twice as wide as the cavity
_FLATTEST = 0.05  # smallest curvature of a step: at most 20 times the slope


class _Climb(NamedTuple):
    """The state of Newton's iteration.

    Attributes:
        u: The highest point so far.
        height: The log tilt at this point.
        gain: The increase of the log tilt in the last step.
        count: Number of steps so far.
    """

    u: Float[Array, " k"]
    height: Float[Array, ""]
    gain: Float[Array, ""]
    count: Int[Array, ""]


def peak_fit(
    log_factor: LogFactor, size: int, dtype: DTypeLike, iterations: int = 25
) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
    """Finds the mode of ``log_factor(u) - u·u/2`` by damped Newton steps, and a root of the inverse curvature there.

    Curvatures of the wrong sign are reversed for the step and bounded for the fit, so that the root is always proper.
    If derivatives are not finite, the curvature of the cavity is used.

    Args:
        log_factor: The log factor, in whitened coordinates.
        size: Length of u.
        dtype: The dtype of the result.
        iterations: The largest number of Newton steps.

    Returns:
        The mode, and a root with ``root @ root.T`` the fitted covariance.
    """
    log_tilt, slope_at, precision_at = _derivatives(log_factor, size, dtype)

    def newton(climb: _Climb) -> _Climb:
        values, vectors = jnp.linalg.eigh(precision_at(climb.u))
        slope = slope_at(climb.u)
        direction = vectors @ ((vectors.T @ slope) / jnp.maximum(jnp.abs(values), _FLATTEST))
        return _uphill(log_tilt, climb, direction)

    # a gain of 1e-6 is a step of 1e-3 sds
    small = 1e-6 if dtype == jnp.float64 else 1e-3

    def unfinished(climb: _Climb) -> Bool[Array, ""]:
        return (climb.gain > small) & (climb.count < iterations)

    mode = jax.lax.while_loop(unfinished, newton, _foot(log_tilt, size, dtype)).u
    values, vectors = jnp.linalg.eigh(precision_at(mode))
    return mode, vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), _WIDEST))


def rough_peak(
    log_factor: LogFactor, size: int, dtype: DTypeLike, iterations: int = 10
) -> tuple[Float[Array, " k"], Float[Array, "k k"], Float[Array, "k k"]]:
    """As ``peak_fit``, for large fields: the mode to a tenth of an sd, and eigenvalues only if they are needed.

    Args:
        log_factor: The log factor, in whitened coordinates.
        size: Length of u.
        dtype: The dtype of the result.
        iterations: The largest number of Newton steps.

    Returns:
        The mode, a root with ``root @ root.T`` the fitted covariance, and the inverse of the root.
    """
    identity = jnp.eye(size, dtype=dtype)
    log_tilt, slope_at, precision_at = _derivatives(log_factor, size, dtype)

    def newton(carry: tuple[_Climb, Array]) -> tuple[_Climb, Array]:
        climb, precision = carry
        slope = slope_at(climb.u)
        lower = jnp.linalg.cholesky(precision)
        # no eigenvalue of precision - I is larger in size than its norm, so a shift by the norm makes all positive
        norm = jnp.sqrt(jnp.sum((precision - identity) ** 2))
        shifted = jnp.linalg.cholesky(precision + (norm + _FLATTEST) * identity)
        lower = jnp.where(jnp.all(jnp.isfinite(lower)), lower, shifted)
        half = jax.scipy.linalg.solve_triangular(lower, slope, lower=True)
        direction = jax.scipy.linalg.solve_triangular(lower, half, lower=True, trans=1)
        climb = _uphill(log_tilt, climb, direction)
        return climb, precision_at(climb.u)

    def unfinished(carry: tuple[_Climb, Array]) -> Bool[Array, ""]:
        climb, _ = carry
        return (climb.gain > 5e-3) & (climb.count < iterations)  # a tenth of an sd: (1/10)² / 2

    foot = _foot(log_tilt, size, dtype)
    climb, precision = jax.lax.while_loop(unfinished, newton, (foot, precision_at(foot.u)))

    def triangular() -> tuple[Array, Array]:
        upper = jnp.linalg.cholesky(precision).T
        return jax.scipy.linalg.solve_triangular(upper, identity), upper

    def spectral() -> tuple[Array, Array]:
        values, vectors = jnp.linalg.eigh(precision)
        widths = jnp.sqrt(jnp.maximum(jnp.abs(values), _WIDEST))
        return vectors / widths, (vectors * widths).T

    narrow = jnp.all(jnp.isfinite(jnp.linalg.cholesky(precision - _WIDEST * identity)))
    return (climb.u, *jax.lax.cond(narrow, triangular, spectral))


def _derivatives(log_factor: LogFactor, size: int, dtype: DTypeLike) -> tuple[LogFactor, Slope, Precision]:
    """The log tilt, its slope (0 where it is not finite) and its precision (the cavity's where it is not finite)."""

    def log_tilt(u: Float[Array, " k"]) -> Float[Array, ""]:
        return log_factor(u) - 0.5 * u @ u

    gradient, identity = jax.grad(log_tilt), jnp.eye(size, dtype=dtype)
    curvature = jacobian(gradient)

    def slope_at(u: Float[Array, " k"]) -> Float[Array, " k"]:
        slope = gradient(u)
        return jnp.where(jnp.isfinite(slope), slope, 0.0)

    def precision_at(u: Float[Array, " k"]) -> Float[Array, "k k"]:
        precision = -curvature(u)
        precision = jnp.where(jnp.all(jnp.isfinite(precision)), precision, identity)
        return 0.5 * (precision + precision.T)

    return log_tilt, slope_at, precision_at


def _foot(log_tilt: LogFactor, size: int, dtype: DTypeLike) -> _Climb:
    """The start of Newton's iteration: the cavity's mean."""
    zero = jnp.zeros(size, dtype)
    return _Climb(zero, _no_nan(log_tilt(zero)), jnp.full((), jnp.inf, dtype), jnp.asarray(0))


def _uphill(log_tilt: LogFactor, climb: _Climb, direction: Float[Array, " k"]) -> _Climb:
    """Makes a step to the highest of several points along a direction, if it is higher than the current point."""
    candidates = climb.u + jnp.asarray(_STEPS, climb.u.dtype)[:, None] * direction
    heights = _no_nan(jax.vmap(log_tilt)(candidates))
    best = jnp.argmax(heights)
    better = heights[best] > climb.height
    return _Climb(
        jnp.where(better, candidates[best], climb.u),
        jnp.where(better, heights[best], climb.height),
        jnp.where(better, heights[best] - climb.height, 0.0),
        climb.count + 1,
    )


def _no_nan(height: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Replaces NaN by -inf, the lowest height."""
    return jnp.where(jnp.isnan(height), -jnp.inf, height)
