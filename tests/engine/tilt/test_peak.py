"""Gaussians fitted to the peak of a tilt."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adfpp.engine.tilt.peak import peak_fit, rough_peak
from tests.engine.tilt.common import spd_root

PRECISION = spd_root(1, 3) @ spd_root(1, 3).T
AT = np.array([0.5, -1.0, 2.0])


def quadratic(u: jax.Array) -> jax.Array:
    """The log of a Gaussian factor."""
    return -0.5 * (u - AT) @ jnp.asarray(PRECISION) @ (u - AT)


@pytest.mark.parametrize("rough", [False, True])
def test_a_gaussian_tilt_is_fitted_exactly(rough: bool) -> None:
    fit = jax.jit(partial(rough_peak if rough else peak_fit, quadratic, 3, jnp.dtype("float64")))
    mode, root, *rest = fit()
    precision = np.eye(3) + PRECISION
    np.testing.assert_allclose(mode, np.linalg.solve(precision, PRECISION @ AT), atol=1e-8)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(precision), atol=1e-10)
    for inverse in rest:
        np.testing.assert_allclose(inverse @ root, np.eye(3), atol=1e-10)


@pytest.mark.parametrize("rough", [False, True])
def test_a_fit_is_proper_where_the_tilt_is_not_log_concave(rough: bool) -> None:
    """Two peaks in the first direction, none in the second: the curvature at 0 has the wrong sign."""

    def factor(u: jax.Array) -> jax.Array:
        return jnp.logaddexp(-2.0 * (u[0] - 3.0) ** 2, -2.0 * (u[0] + 3.1) ** 2) + 0.499 * u[1] ** 2

    fit = jax.jit(partial(rough_peak if rough else peak_fit, factor, 2, jnp.dtype("float64")))
    mode, root, *_ = fit()
    start = factor(jnp.zeros(2))
    assert factor(mode) - 0.5 * mode @ mode > start
    widths = np.linalg.eigvalsh(root @ root.T)
    assert widths.min() > 0.0 and widths.max() <= 4.0 + 1e-9  # at most twice as wide as the cavity


@pytest.mark.parametrize("rough", [False, True])
def test_no_derivative_is_needed(rough: bool) -> None:
    """Where nothing is finite the fit is the cavity itself."""
    fit = jax.jit(partial(rough_peak if rough else peak_fit, lambda u: jnp.nan * u[0], 2, jnp.dtype("float64")))
    mode, root, *_ = fit()
    np.testing.assert_allclose(mode, 0.0)
    np.testing.assert_allclose(np.abs(root), np.eye(2), atol=1e-12)
