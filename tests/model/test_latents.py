"""Latents that all rows share: places in θ, supports and transforms."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import adfpp
from tests.model.common import (
    KEY,
    SCALE,
    Array,
    X,
    Y,
    learned,
    rows,
    sample,
)


def bounded(low: Any, high: Any) -> Callable[..., None]:
    """A slope between two bounds."""

    def model(x: Array, y: Array | None = None) -> None:
        u = sample("u", dist.Uniform(low, high).expand([2]).to_event(1))
        with rows(x):
            sample("y", dist.Normal(x @ u, SCALE), obs=y)

    return model


@pytest.mark.slow
def test_bounds_may_be_arrays() -> None:
    """Arrays in a support, made outside the model or in it, mean what numbers mean."""
    plain = learned(bounded(-1.0, 2.0), X, y=Y)[0]
    outside = learned(bounded(jnp.full(2, -1.0), jnp.full(2, 2.0)), X, y=Y)[0]

    def inside(x: Array, y: Array | None = None) -> None:
        u = sample("u", dist.Uniform(-jnp.ones(2), 2.0 * jnp.ones(2)).to_event(1))
        with rows(x):
            sample("y", dist.Normal(x @ u, SCALE), obs=y)

    np.testing.assert_allclose(outside, plain, atol=1e-10)
    np.testing.assert_allclose(learned(inside, X, y=Y)[0], plain, atol=1e-10)


@pytest.mark.slow
def test_bounds_may_be_arguments() -> None:
    """A support given by an argument that all rows share; the posterior lies in it."""

    def model(x: Array, high: Array, y: Array | None = None) -> None:
        u = sample("u", dist.Uniform(-1.0, high).expand([2]).to_event(1))
        with rows(x):
            sample("y", dist.Normal(x @ u, SCALE), obs=y)

    adf = adfpp.ADF(model)
    high = np.asarray(2.0)
    state, _ = adf.update(adf.init(KEY, X, high, y=Y), X, high, y=Y)
    np.testing.assert_allclose(state.belief.mean, learned(bounded(-1.0, 2.0), X, y=Y)[0], atol=1e-10)
    draws = adf.get_posterior(state).sample(KEY, (100,))["u"]
    assert np.all((draws > -1.0) & (draws < 2.0))
