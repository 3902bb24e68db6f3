"""The kernel on whole rows: what a row does to the belief, or leaves as it was."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from adfpp import ADF, Status


def two_sensors(x: Any, y: Any = None, k: Any = None) -> None:
    """Two observations of one row, and so two factors: a real number and a count."""
    w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 0.5), obs=y)
        numpyro.sample("k", dist.Poisson(jnp.exp(x @ w)), obs=k)


@pytest.fixture(scope="module")
def sensors() -> tuple[ADF, Any, np.ndarray, np.ndarray, np.ndarray]:
    """A learner that has absorbed four rows, and four others."""
    rng = np.random.default_rng(7)
    x, y, k = rng.normal(size=(4, 2)), rng.normal(size=4), np.array([1, 0, 3, 2])
    adf = ADF(two_sensors)
    state, _ = adf.update(adf.init(jax.random.key(0), x, y=y, k=k), x, y=y, k=k)
    return adf, state, x[::-1], y[::-1], k[::-1]


@pytest.mark.parametrize(
    ("column", "value", "status"), [("y", np.nan, Status.NOT_FINITE), ("k", -1, Status.OUT_OF_SUPPORT)]
)
def test_a_row_with_one_refused_observation_changes_nothing(
    sensors: Any, column: str, value: float, status: Status
) -> None:
    """The other observation of the row is fine, and is not absorbed either: before it or after it."""
    adf, state, x, y, k = sensors
    data = {"y": y.copy(), "k": k.copy()}
    data[column][:] = value
    after, info = adf.update(state, x, **data)
    assert np.asarray(info.status).tolist() == [status] * 4
    np.testing.assert_array_equal(info.log_z, 0.0)
    for now, before in zip(jax.tree.leaves(after.belief), jax.tree.leaves(state.belief), strict=True):
        np.testing.assert_array_equal(now, before)
    assert int(after.rows) == int(state.rows) == 4


def test_the_rows_around_a_refused_row_are_absorbed(sensors: Any) -> None:
    adf, state, x, y, k = sensors
    bad = k.copy()
    bad[2] = -1
    among, info = adf.update(state, x, y=y, k=bad)
    assert np.asarray(info.status).tolist() == [0, 0, Status.OUT_OF_SUPPORT, 0]
    where = [0, 1, 3, 3]  # as many rows, so that nothing is compiled again; the last one is refused
    rest = k[where]
    rest[3] = -1
    without, _ = adf.update(state, x[where], y=y[where], k=rest)
    np.testing.assert_allclose(among.belief.mean, without.belief.mean, rtol=1e-12)
    np.testing.assert_allclose(among.belief.scale, without.belief.scale, rtol=1e-12, atol=1e-14)
