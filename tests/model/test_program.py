"""A program: what is equal, what is kept, and θ as values."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special

from tests import models
from tests.model.common import SCALE, Array, X, Y, program, rows, sample


def bounded(x: Array, high: Array, shift: Array, y: Array | None = None) -> None:
    """A slope below a bound that is an argument, and a shift that no support depends on."""
    u = sample("u", dist.Uniform(0.0, high))
    w = sample("w", dist.LogNormal(0, 1).expand([2]).to_event(1))
    with rows(x):
        sample("y", dist.Normal(x @ w * u + shift, SCALE), obs=y)


def test_programs_are_equal_by_identity() -> None:
    """They can be keys and static arguments, and cannot be changed."""
    one, other = program(models.linear, *models.values()[:2]), program(models.linear, *models.values()[:2])
    assert one == one
    assert one != other
    assert len({one, other, one}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.dtype = jnp.float32  # pyright: ignore[reportAttributeAccessIssue]


def test_values_and_theta_are_each_others_inverse() -> None:
    """With the log-volume of the transforms."""
    read_as = program(bounded, X, np.asarray(2.0), np.asarray(0.5), y=Y)
    theta = np.random.default_rng(0).normal(size=(4, 3))
    values = read_as.constrain(jnp.asarray(theta))
    np.testing.assert_allclose(values["u"], 2.0 * special.expit(theta[:, 0]), rtol=1e-12)
    np.testing.assert_allclose(values["w"], np.exp(theta[:, 1:]), rtol=1e-12)
    back, log_volume = read_as.unconstrain(values)
    np.testing.assert_allclose(back, theta, atol=1e-12)
    slope = np.log(2.0) + special.log_expit(theta[:, 0]) + special.log_expit(-theta[:, 0])
    np.testing.assert_allclose(log_volume, slope + theta[:, 1:].sum(1), atol=1e-12)


def test_shared_arrays_of_a_support_are_pinned() -> None:
    """Their values belong to the program; with others the belief would have another meaning."""
    read_as = program(bounded, X, np.asarray(2.0), np.asarray(0.5), y=Y)
    assert read_as.pinned is not None
    assert read_as.fits([np.asarray(2.0), np.asarray(0.5)])
    assert not read_as.fits([np.asarray(3.0), np.asarray(0.5)])


def test_arrays_made_inside_a_model_pin_nothing() -> None:
    """A support with constant arrays does not depend on the shared arguments, which may change along the stream."""

    def model(x: Array, shift: Array, y: Array | None = None) -> None:
        u = sample("u", dist.Uniform(-jnp.ones(2), 2.0 * jnp.ones(2)).to_event(1))
        with rows(x):
            sample("y", dist.Normal(x @ u + shift, SCALE), obs=y)

    read_as = program(model, X, np.asarray(0.5), y=Y)
    assert read_as.pinned is None
    assert read_as.fits([np.asarray(7.0)])
    np.testing.assert_allclose(read_as.constrain(jnp.zeros(2))["u"], 0.5)
