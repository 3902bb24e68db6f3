"""How the parts of a product enter a field: tensors, central-limit blocks, draws, or not at all."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import adfpp
from tests.engine.families.product.common import bernoulli, folded, signs


@pytest.mark.slow
def test_more_dimensions_than_a_tensor_holds_are_drawn_with_the_states_key() -> None:
    def model(y: Any) -> None:
        rates: list[Any] = [numpyro.sample(f"r{i}", dist.Gamma(2.0, 1.0 + i)) for i in range(4)]
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Poisson(sum(rates)), obs=y)

    adf = adfpp.ADF(model, family={f"r{i}": "gamma" for i in range(4)})
    y = np.array([6])
    assert adf.explain(y).factors[0].rule == "drawn"
    first, again, other = (adf.update(adf.init(jax.random.key(k), y), y) for k in (0, 0, 1))
    np.testing.assert_array_equal(first[0].belief.mean, again[0].belief.mean)
    assert (first[0].belief.mean != other[0].belief.mean).all()
    draws = np.random.default_rng(1).gamma(2.0, 1.0 / np.arange(1.0, 5.0), size=(400_000, 4))
    weights = stats.poisson.pmf(6, draws.sum(1))
    exact, log_z = weights @ draws / weights.sum(), np.log(weights.mean())
    for state, info in (first, other):
        assert 0.0 < info.error[0] < 0.1
        off = (np.asarray(state.belief.mean) - exact) / np.asarray(state.belief.scale)
        assert (np.abs(off) < 5.0 * info.error[0]).all() and abs(info.log_z[0] - log_z) < 5.0 * info.error[0]


@pytest.mark.slow
def test_one_indexed_rate_beside_many_weights_is_no_crowd() -> None:
    def model(x: Any, group: Any, y: Any) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
        rate: Any = numpyro.sample("rate", dist.Gamma(1.0, 1.0).expand([6]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ w + rate[group], 0.5), obs=y)

    x, y = np.linspace(-1.0, 1.0, 5)[None], -1.0
    result = folded(model, {"rate": "gamma"}, x, np.array([2]), np.array([y]))
    rate = np.linspace(0.0, 40.0, 400_001)
    density = np.exp(-rate) * stats.norm.pdf(y - rate, 0.0, np.sqrt((x**2).sum() + 0.25))
    np.testing.assert_allclose(result.log_evidence, np.log(np.trapezoid(density, rate)), rtol=1e-6)
    expected = np.trapezoid(rate * density, rate) / np.trapezoid(density, rate)
    np.testing.assert_allclose(result.posterior.mean()["rate"], np.where(np.arange(6) == 2, expected, 1.0), rtol=1e-6)


@pytest.mark.slow
def test_a_large_component_in_a_crowd_is_left_out_for_any_likelihood() -> None:
    def model(x: Any, y: Any) -> None:
        sign: Any = numpyro.sample("sign", bernoulli(0.5).expand([15]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=x @ (2.0 * sign - 1.0)), obs=y)

    x = np.full((1, 15), 0.1)
    x[0, 0] = 6.0
    result = folded(model, "full", x, np.array([1]))
    likelihood = special.expit(signs(15) @ x[0])
    exact = likelihood @ (signs(15) > 0) / likelihood.sum()
    found = np.asarray(result.posterior.mean()["sign"])
    np.testing.assert_allclose(found[0], exact[0], atol=1e-4)
    np.testing.assert_allclose(found[1:], exact[1:], atol=0.01)  # for them the field has two modes, and is no Gaussian


def test_factors_without_a_field_and_fields_that_a_broadcast_hides() -> None:
    def model(x: Any, y: Any) -> None:
        s: Any = numpyro.sample("s", dist.Gamma(2.0, 1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("x", dist.Normal(0.0, 1.0), obs=x)
            numpyro.sample("y", dist.Normal(s, 1.0), obs=y)

    result = folded(model, {"s": "gamma"}, np.zeros(1), np.array([1.3]))
    s = np.linspace(0.0, 40.0, 400_001)
    density = s * np.exp(-s) * stats.norm.pdf(1.3 - s)
    z = np.trapezoid(density, s)
    np.testing.assert_allclose(result.log_evidence, np.log(z) + stats.norm.logpdf(0.0), rtol=1e-7)
    np.testing.assert_allclose(result.posterior.mean()["s"], np.trapezoid(s * density, s) / z, rtol=1e-7)
