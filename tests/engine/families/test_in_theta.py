"""Projections of the diagonal and the spherical family."""

import jax
import numpy as np
import pytest

import adfpp
from tests.engine.families.common import covariance, step


@pytest.mark.parametrize("name", ["diagonal", "spherical"])
def test_projection_matches_moments_of_the_full_update(name: str) -> None:
    """After one row the diagonal (or its mean) of the exact tilted covariance is kept, and the mean is the full one."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(1, 6)), np.array([1])
    states = {}
    for family in ("full", name):
        adf = adfpp.ADF(step, family=family)
        states[family], _ = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y)
    exact = np.diagonal(covariance(states["full"].belief))
    kept = np.asarray(states[name].belief.scale) ** 2
    np.testing.assert_allclose(kept, exact if name == "diagonal" else exact.mean(), atol=1e-14)
    np.testing.assert_allclose(states[name].belief.mean, states["full"].belief.mean, atol=1e-14)
