"""Gamma and inverse gamma beyond what every family does."""

import jax.numpy as jnp
import numpy as np

from adfpp.engine.families.product.gamma import InverseGamma


def test_inverse_gamma_without_moments():
    """No mean up to shape 1, no variance up to shape 2; just above, both."""
    mean, variance = InverseGamma().moments(jnp.array([[1.0, 2.0], [1.5, 2.0], [2.0, 2.0], [2.5, 2.0]]))
    np.testing.assert_array_equal(mean[:, 0], [np.inf, 4.0, 2.0, 2.0 / 1.5])
    np.testing.assert_allclose(variance[:, 0], [np.inf] * 3 + [2.0**2 / (1.5**2 * 0.5)])
