"""Integrals over components: values that are all but excluded, and extreme parameters."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adfpp
from adfpp import Status
from tests.engine.families.product.common import CONJUGATE, KEY, bernoulli, categorical, folded, plate


def test_what_is_known_between_values_outlives_the_first_ones_exclusion() -> None:
    mu = jnp.array([-100.0, 0.0, 1.0])

    def model(y: Any) -> None:
        z: Any = numpyro.sample("z", categorical(1 / 3, 1 / 3, 1 / 3))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)

    natural = folded(model, "full", np.zeros(2)).state.belief.parts[0].ravel()
    np.testing.assert_allclose(natural[0] - natural[1], 1.0, rtol=1e-9)


@pytest.mark.slow
def test_an_excluded_value_is_told_and_counted() -> None:
    """Enumeration: of an index, and of one beside a Gaussian site; by ADF and EP, without a warning."""
    mu = jnp.array([-100.0, 0.0, 1.0])

    def model(y: Any, offset: float | None = 0.0) -> None:
        z: Any = numpyro.sample("z", categorical(1 / 3, 1 / 3, 1 / 3))
        b: Any = numpyro.sample("b", dist.Normal(0.0, 1.0)) if offset is None else offset
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(mu[z] + b, 1.0), obs=y)

    y = np.array([-50.0, 0.3, 0.2])  # as near to the first value as to the second, then far from it
    # an unknown offset is 25 or -25 after the first row, so that the second row excludes nothing yet
    for offset, second in ((0.0, Status.SATURATED), (None, Status.OK)):
        result = folded(model, "full", y, offset)
        assert result.info.status.tolist() == [Status.OK, second, Status.SATURATED]
        odds = np.asarray(result.state.belief.parts[0]).ravel()
        np.testing.assert_allclose(odds.max(), -np.log(np.finfo(float).tiny), rtol=1e-9)
    totals = adfpp.ADF(model).run(KEY, y, info="totals", progress_bar=False).info
    assert totals.counts[Status.SATURATED] == 2 and totals.counts.sum() == 3
    assert Status.SATURATED in adfpp.EP(model).run(KEY, y, progress_bar=False).info.status
    near = folded(model, "full", np.array([-50.0, -49.5]))
    assert (near.info.status == Status.OK).all()


@pytest.mark.slow
def test_an_inaccurate_factor_is_not_hidden_by_one_that_is_only_counted() -> None:
    mu = jnp.array([-100.0, 0.0])

    def model(y: Any, t: Any) -> None:
        z: Any = numpyro.sample("z", categorical(0.5, 0.5))
        b: Any = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)
            numpyro.sample("t", dist.StudentT(3.0, b, 0.5), obs=t)

    y, t = np.zeros(1), np.array([1.3])
    for report, expected in ((1e-6, Status.SATURATED), (1e-30, Status.INACCURATE)):
        adf = adfpp.ADF(model, moments=adfpp.Moments(quadrature=adfpp.Quadrature(report=report)))
        assert adf.update(adf.init(KEY, y, t), y, t)[1].status[0] == expected


@pytest.fixture(scope="module")
def coin_update() -> Callable[..., Any]:
    """A row folded into a Beta with any parameters, compiled once."""
    adf = adfpp.ADF(CONJUGATE["coin"].model, family={"theta": "beta"})
    return _updating(adf, np.array([0, 1]))


@pytest.fixture(scope="module")
def noise_update() -> Callable[..., Any]:
    """A value folded into a Gamma for the rate of a half-normal-like likelihood that is not conjugate."""
    model = plate(dist.Gamma(2.0, 1.0), lambda s: dist.StudentT(3.0, 0.0, s))
    return _updating(adfpp.ADF(model, family={"theta": "gamma"}), np.array([0.5, 1.0]))


def _updating(adf: Any, y: np.ndarray) -> Callable[..., Any]:
    start = adf.init(KEY, y)
    product = adf.get_posterior(start).family

    def update(natural: np.ndarray, value: Any) -> tuple[np.ndarray, Any]:
        belief = product.belief([jnp.asarray(natural, float).reshape(1, -1)])
        state, info = adf.update(start._replace(belief=belief), np.array([value], y.dtype))
        return np.asarray(state.belief.parts[0]).ravel(), info

    return update


exponents = st.floats(-3.0, 3.0)


@pytest.mark.slow
@settings(max_examples=40)
@given(exponents, exponents, st.sampled_from([0, 1]))
def test_extreme_betas_stay_exact(coin_update: Any, a: float, b: float, y: int) -> None:
    start = 10.0 ** np.array([a, b])
    after, info = coin_update(start, y)
    np.testing.assert_allclose(after, start + np.array([y, 1 - y]), rtol=1e-8)
    np.testing.assert_allclose(info.log_z[0], np.log(start[1 - y] / start.sum()), rtol=1e-7, atol=1e-9)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.floats(-2.0, 6.0), exponents, st.floats(-3.0, 3.0))
def test_extreme_gammas_give_no_nan(noise_update: Any, shape: float, rate: float, log_y: float) -> None:
    start = 10.0 ** np.array([shape, rate])
    after, info = noise_update(start, 10.0**log_y)
    assert np.isfinite(after).all() and (after > 0).all() and np.isfinite(info.log_z).all()
    if info.status[0] >= adfpp.Status.NOT_FINITE:
        np.testing.assert_array_equal(after, start)


@pytest.mark.slow
def test_an_indicator_that_is_all_but_certain_beside_gaussians(float32: None) -> None:
    """Rows decide an indicator at once; the rest goes on as if it were known, in float32 too."""
    rng = np.random.default_rng(25)

    def model(x: Any, y: Any, z: Any = None) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        z = numpyro.sample("z", bernoulli(0.5)) if z is None else z
        s: Any = numpyro.sample("s", dist.HalfNormal(1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ w + 2.0 * z, s), obs=y)

    x = rng.normal(size=(64, 2)).astype(np.float32)
    y = (x @ np.array([1.0, -1.0]) + 2.0 + 0.3 * rng.normal(size=64)).astype(np.float32)
    for family in ("full", {"s": "inverse_gamma"}):
        result = folded(model, family, x, y)
        assert np.isin(result.info.status, (Status.OK, Status.INACCURATE, Status.SATURATED)).all()
        assert Status.SATURATED in result.info.status
        assert result.posterior.mean()["z"] == 1.0
    known = folded(model, family, x, y, z=1.0)
    for site in ("w", "s"):
        np.testing.assert_allclose(result.posterior.mean()[site], known.posterior.mean()[site], atol=0.02)
