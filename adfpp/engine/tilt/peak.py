"""Fits a Gaussian to the peak of a tilt: the start of fitted quadrature, and the first proposal of Monte Carlo."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from adfpp.engine.derivatives import value_and_jacobian
from adfpp.engine.tilt.base import LogFactor

Derivatives: TypeAlias = Callable[[Float[Array, " k"]], tuple[Float[Array, " k"], Float[Array, "k k"]]]

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
        slope: The slope at this point.
        precision: The curvature at this point, with its sign reversed.
    """

    u: Float[Array, " k"]
    height: Float[Array, ""]
    gain: Float[Array, ""]
    count: Int[Array, ""]
    slope: Float[Array, " k"]
    precision: Float[Array, "k k"]


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

    def direction(climb: _Climb) -> Float[Array, " k"]:
        values, vectors = jnp.linalg.eigh(climb.precision)
        return vectors @ ((vectors.T @ climb.slope) / jnp.maximum(jnp.abs(values), _FLATTEST))

    # a gain of 1e-6 is a step of 1e-3 sds
    climb = _climbed(log_factor, size, dtype, direction, 1e-6 if dtype == jnp.float64 else 1e-3, iterations)
    values, vectors = jnp.linalg.eigh(climb.precision)
    return climb.u, vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), _WIDEST))


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

    def direction(climb: _Climb) -> Float[Array, " k"]:
        precision = climb.precision
        lower = jnp.linalg.cholesky(precision)
        # no eigenvalue of precision - I is larger in size than its norm, so a shift by the norm makes all positive
        norm = jnp.sqrt(jnp.sum((precision - identity) ** 2))
        shifted = jnp.linalg.cholesky(precision + (norm + _FLATTEST) * identity)
        lower = jnp.where(jnp.all(jnp.isfinite(lower)), lower, shifted)
        half = jax.scipy.linalg.solve_triangular(lower, climb.slope, lower=True)
        return jax.scipy.linalg.solve_triangular(lower, half, lower=True, trans=1)

    climb = _climbed(log_factor, size, dtype, direction, 5e-3, iterations)  # a tenth of an sd: (1/10)² / 2
    precision = climb.precision

    def triangular() -> tuple[Array, Array]:
        upper = jnp.linalg.cholesky(precision).T
        return jax.scipy.linalg.solve_triangular(upper, identity), upper

    def spectral() -> tuple[Array, Array]:
        values, vectors = jnp.linalg.eigh(precision)
        widths = jnp.sqrt(jnp.maximum(jnp.abs(values), _WIDEST))
        return vectors / widths, (vectors * widths).T

    narrow = jnp.all(jnp.isfinite(jnp.linalg.cholesky(precision - _WIDEST * identity)))
    return (climb.u, *jax.lax.cond(narrow, triangular, spectral))


def _climbed(
    log_factor: LogFactor,
    size: int,
    dtype: DTypeLike,
    direction: Callable[[_Climb], Float[Array, " k"]],
    enough: float,
    iterations: int,
) -> _Climb:
    """Goes uphill from the cavity's mean until a step gains less than ``enough``.

    The first pass of the loop makes no step, and only computes the height and the derivatives at the cavity's mean. The
    program therefore contains the factor and its derivatives once: they are most of what has to be compiled.
    """

    def log_tilt(u: Float[Array, " k"]) -> Float[Array, ""]:
        return log_factor(u) - 0.5 * u @ u

    derivatives = _derivatives(log_tilt, size, dtype)

    def uphill(climb: _Climb) -> _Climb:
        """Makes a step to the highest of several points along a direction, if it is higher than the current point."""
        first = climb.count == 0
        candidates = climb.u + jnp.asarray(_STEPS, dtype)[:, None] * jnp.where(first, 0.0, direction(climb))
        heights = jax.vmap(log_tilt)(candidates)
        heights = jnp.where(jnp.isnan(heights), -jnp.inf, heights)
        best = jnp.argmax(heights)
        better = heights[best] > climb.height
        u = jnp.where(better, candidates[best], climb.u)
        gain = jnp.where(first, jnp.inf, jnp.where(better, heights[best] - climb.height, 0.0))
        return _Climb(u, jnp.where(better, heights[best], climb.height), gain, climb.count + 1, *derivatives(u))

    def unfinished(climb: _Climb) -> Bool[Array, ""]:
        return (climb.gain > enough) & (climb.count <= iterations)

    zero, infinite = jnp.zeros(size, dtype), jnp.full((), jnp.inf, dtype)
    foot = _Climb(zero, -infinite, infinite, jnp.asarray(0), zero, jnp.eye(size, dtype=dtype))
    return jax.lax.while_loop(unfinished, uphill, foot)


def _derivatives(log_tilt: LogFactor, size: int, dtype: DTypeLike) -> Derivatives:
    """The slope (0 where it is not finite) and the precision (the cavity's where it is not finite)."""
    both, identity = value_and_jacobian(jax.grad(log_tilt)), jnp.eye(size, dtype=dtype)

    def at(u: Float[Array, " k"]) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
        slope, curvature = both(u)
        precision = jnp.where(jnp.all(jnp.isfinite(curvature)), -curvature, identity)
        return jnp.where(jnp.isfinite(slope), slope, 0.0), 0.5 * (precision + precision.T)

    return at
