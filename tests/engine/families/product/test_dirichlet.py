"""Dirichlet distributions against what they contain."""

import jax
import numpy as np

from adfpp.engine.families.product.dirichlet import Beta, Dirichlet
from tests.engine.families.product.members import quadrature


def test_a_dirichlet_of_two_is_a_beta():
    """The same nodes, by both coordinates."""
    eta = np.array([[0.3, 4.0]] * 32)
    both, one = (jax.tree.map(np.asarray, quadrature(family, 2)(eta)) for family in (Dirichlet(2), Beta()))
    np.testing.assert_allclose(both.weights, one.weights, rtol=1e-12)
    np.testing.assert_allclose(both.values[..., :1], one.values, rtol=1e-12)
    np.testing.assert_allclose(both.values.sum(-1), 1.0, rtol=1e-12)
