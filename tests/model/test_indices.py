"""An index of a row beyond the end of what it selects from: the row is refused, and changes nothing."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import adfpp
from tests.model.common import KEY, SCALE, Array, rows, sample

CODES = np.array([0, 2, 3, -1, -4, 1])
VALUES = np.array([0.5, -0.2, 3.0, 0.8, 2.0, 0.1])
GOOD = np.array([True, True, False, True, False, True])


def groups(group: Array, y: Array | None = None) -> None:
    """Three groups, selected as in most models."""
    z = sample("z", dist.Normal(0, 1).expand([3]).to_event(1))
    with rows(group):
        sample("y", dist.Normal(z[group], SCALE), obs=y)


def matrix(group: Array, y: Array | None = None) -> None:
    """Two indices, one of which is always inside."""
    z = sample("z", dist.Normal(0, 1).expand([3, 2]).to_event(2))
    with rows(group):
        sample("y", dist.Normal(z[group, 1], SCALE), obs=y)


@pytest.mark.parametrize("model", [groups, matrix])
def test_a_group_that_does_not_exist_is_refused(model: Array) -> None:
    """Negative codes count from the end, as in NumPy, but not beyond the first element."""
    adf = adfpp.ADF(model)
    state, info = adf.update(adf.init(KEY, CODES, y=VALUES), CODES, y=VALUES)
    np.testing.assert_array_equal(np.asarray(info.status) == adfpp.Status.OUT_OF_SUPPORT, ~GOOD)
    alone, _ = adf.update(adf.init(KEY, CODES, y=VALUES), CODES[GOOD], y=VALUES[GOOD])
    np.testing.assert_allclose(state.belief.mean, alone.belief.mean, atol=1e-12)
    expected = np.bincount(CODES[GOOD] % 3, VALUES[GOOD], 3) / (np.bincount(CODES[GOOD] % 3, minlength=3) + SCALE**2)
    found = np.asarray(state.belief.mean).reshape(3, -1)[:, -1]
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_an_index_that_does_not_count_is_not_looked_at() -> None:
    """That of a masked observation, or one for which the model says what happens beyond the end."""

    def model(group: Array, seen: Array, y: Array | None = None) -> None:
        z = sample("z", dist.Normal(0, 1).expand([3]).to_event(1))
        with rows(group), handlers.mask(mask=seen):
            sample("y", dist.Normal(z[group], SCALE), obs=y)

    def clipped(group: Array, y: Array | None = None) -> None:
        z = sample("z", dist.Normal(0, 1).expand([3]).to_event(1))
        with rows(group):
            sample("y", dist.Normal(jnp.take(z, group, mode="clip"), SCALE), obs=y)

    adf = adfpp.ADF(model)
    state, info = adf.update(adf.init(KEY, CODES, GOOD, y=VALUES), CODES, GOOD, y=VALUES)
    assert np.all(np.asarray(info.status) == adfpp.Status.OK)
    adf = adfpp.ADF(clipped)
    state, info = adf.update(adf.init(KEY, CODES, y=VALUES), CODES, y=VALUES)
    assert np.all(np.asarray(info.status) == adfpp.Status.OK)
    where = np.clip(CODES, 0, 2)
    expected = np.bincount(where, VALUES, 3) / (np.bincount(where, minlength=3) + SCALE**2)
    np.testing.assert_allclose(state.belief.mean, expected, atol=1e-10)


def test_a_single_index_is_checked_too() -> None:
    """It selects by another operation of JAX."""

    def model(group: Array, y: Array | None = None) -> None:
        z = sample("z", dist.Normal(0, 1).expand([3]).to_event(1))
        with numpyro.plate("rows", group.shape[0]):
            sample("y", dist.Normal(jnp.stack([z[group[i]] for i in range(group.shape[0])]), SCALE), obs=y)

    adf = adfpp.ADF(model)
    _, info = adf.update(adf.init(KEY, CODES, y=VALUES), CODES, y=VALUES)
    np.testing.assert_array_equal(np.asarray(info.status) == adfpp.Status.OUT_OF_SUPPORT, ~GOOD)
