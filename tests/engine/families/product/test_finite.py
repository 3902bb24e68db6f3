"""Finitely many values beyond what every family does."""

import numpy as np

from adfpp.engine.families.product.finite import Finite


def test_quantiles_of_unordered_values():
    """By size, not in the order in which the values were given."""
    family = Finite((2.0, -1.0, 0.5))
    eta = np.log(np.array([3.0, 6.0]))  # probabilities 0.1 (at 2), 0.3 (at -1), 0.6 (at 0.5)
    np.testing.assert_array_equal(
        family.quantile(eta, np.array([0.0, 0.29, 0.31, 0.89, 0.91, 1.0]))[:, 0], [-1.0, -1.0, 0.5, 0.5, 2.0, 2.0]
    )
