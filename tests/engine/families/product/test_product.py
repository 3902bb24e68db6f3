"""Products of families in the sites' native spaces: conjugate models, priors, refusals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

import adfpp
from adfpp.model import ModelError
from models import ising_perceptron, linear, unknown_noise
from tests.engine.families.product.common import CONJUGATE, KEY, bernoulli, folded, plate, signs

SLOWER = ("binomial", "waiting", "die", "variance", "counts")  # like the coin


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOWER else []) for n in CONJUGATE])
def test_conjugate_models_give_bayes_answer_in_any_order(name: str) -> None:
    case = CONJUGATE[name]
    adf = adfpp.ADF(case.model, family={"theta": case.family})
    for order in (slice(None), slice(None, None, -1)):
        result = adf.run(KEY, case.y[order], progress_bar=False)
        np.testing.assert_allclose(result.state.belief.parts[0].ravel(), case.natural, rtol=1e-9)
        np.testing.assert_allclose(result.log_evidence, case.evidence, rtol=1e-9)
        assert (result.info.status == adfpp.Status.OK).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "full"])
def test_a_normal_mean_beside_a_coin_is_bayes_answer_in_any_order(kind: str) -> None:
    """Normal and normal with a known scale, as the Gaussian part of a product."""

    def model(y: Any, c: Any) -> None:
        theta = numpyro.sample("theta", dist.Normal(1.0, 2.0))
        p = numpyro.sample("p", dist.Beta(2.0, 3.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(theta, 0.7), obs=y)
            numpyro.sample("c", dist.Bernoulli(probs=p), obs=c)

    rng = np.random.default_rng(11)
    y, c = rng.normal(2.0, 0.7, 40), rng.integers(0, 2, 40)
    precision = 0.25 + 40 / 0.49
    mean = (0.25 * 1.0 + y.sum() / 0.49) / precision
    joint: Any = stats.multivariate_normal
    evidence = joint.logpdf(y, np.ones(40), 4.0 + 0.49 * np.eye(40))
    a, b = 2.0 + c.sum(), 3.0 + (1 - c).sum()
    evidence += special.betaln(a, b) - special.betaln(2.0, 3.0)
    adf = adfpp.ADF(model, family={"theta": kind, "p": "beta"})
    for order in (slice(None), slice(None, None, -1)):
        result = adf.run(KEY, y[order], c[order], progress_bar=False)
        np.testing.assert_allclose(result.posterior.mean()["theta"], mean, rtol=1e-9)
        np.testing.assert_allclose(result.posterior.sd()["theta"], precision**-0.5, rtol=1e-9)
        np.testing.assert_allclose(result.log_evidence, evidence, rtol=1e-9)
        [coin] = [n for n in result.state.belief.parts if not hasattr(n, "scale")]
        np.testing.assert_allclose(coin.ravel(), [a, b], rtol=1e-9)
        assert (result.info.status == adfpp.Status.OK).all()


def test_ep_of_a_conjugate_model_is_exact_in_one_sweep() -> None:
    case = CONJUGATE["counts"]
    result = adfpp.EP(case.model, family={"theta": "gamma"}).run(KEY, case.y, progress_bar=False)
    np.testing.assert_allclose(result.state.belief.parts[0].ravel(), case.natural, rtol=1e-9)
    np.testing.assert_allclose(result.log_evidence, case.evidence, rtol=1e-9)
    assert result.info.converged and result.info.sweeps == 1


@pytest.mark.slow
def test_rates_by_group_are_found_by_their_index() -> None:
    rng = np.random.default_rng(21)
    group, y = rng.integers(0, 6, 60), rng.poisson(3.0, 60)

    def model(group: Any, y: Any) -> None:
        rate: Any = numpyro.sample("rate", dist.Gamma(2.0, 0.3).expand([6]).to_event(1))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Poisson(rate[group]), obs=y)

    found = folded(model, {"rate": "gamma"}, group, y).state.belief.parts[0]
    expected = np.stack([2.0 + np.bincount(group, y, 6), 0.3 + np.bincount(group, minlength=6)], -1)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_prior_outside_the_family_is_matched_in_its_statistics() -> None:
    model = plate(dist.HalfNormal(2.0), dist.Poisson)
    adf = adfpp.ADF(model, family={"theta": "gamma"})
    state = adf.init(KEY, np.array([1, 2]))
    a, b = np.asarray(state.belief.parts[0]).ravel()
    half: Any = stats.halfnorm(scale=2.0)
    np.testing.assert_allclose(a / b, half.mean(), rtol=1e-6)
    log_mean = integrate.quad(lambda s: np.log(s) * half.pdf(s), 0.0, np.inf, limit=200)[0]
    np.testing.assert_allclose(special.digamma(a) - np.log(b), log_mean, atol=1e-6)
    assert "moments by quadrature" in str(adf.explain(np.array([1, 2])))


@pytest.mark.slow
def test_a_probability_above_its_indicators_is_learned() -> None:
    """p ~ Beta, sign ~ Bernoulli(p): the prior of the signs is a factor, visited again."""
    rng = np.random.default_rng(23)

    def model(x: Any, y: Any) -> None:
        p: Any = numpyro.sample("p", dist.Beta(1.0, 1.0))
        sign: Any = numpyro.sample("sign", bernoulli(p).expand([5]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ sign, 1.0), obs=y)

    x = rng.normal(size=(30, 5))
    y = x @ np.array([1.0, 1.0, 1.0, 1.0, 0.0]) + rng.normal(size=30)
    every = (signs(5) + 1) / 2
    count = every.sum(1)
    log_joint = stats.norm.logpdf(y, every @ x.T, 1.0).sum(1) + special.betaln(1.0 + count, 6.0 - count)
    weights = special.softmax(log_joint)
    result = adfpp.EP(model, family={"p": "beta"}).run(KEY, x, y, progress_bar=False)
    assert result.info.converged
    np.testing.assert_allclose(result.posterior.mean()["sign"], weights @ every, atol=0.01)
    np.testing.assert_allclose(result.posterior.mean()["p"], weights @ ((1.0 + count) / 7.0), atol=0.01)
    np.testing.assert_allclose(result.log_evidence, np.asarray(special.logsumexp(log_joint)), atol=0.05)


@pytest.mark.parametrize(
    ("prior", "mean"),
    [
        (dist.HalfNormal(1e5), 1e5 * np.sqrt(2.0 / np.pi)),
        pytest.param(dist.LogNormal(15.0, 0.01), np.exp(15.00005), marks=pytest.mark.slow),
        (dist.HalfCauchy(1e6), None),
    ],
)
def test_priors_far_from_one_are_projected_or_refused(prior: Any, mean: float | None) -> None:
    adf = adfpp.ADF(plate(prior, dist.Poisson), family={"theta": "gamma"})
    if mean is None:
        with pytest.raises(ModelError, match="lighter tails"):
            adf.init(KEY, np.array([1, 2]))
        return
    np.testing.assert_allclose(adf.init(KEY, np.array([1, 2])).belief.mean, mean, rtol=1e-6)


@pytest.mark.slow
def test_bad_rows_leave_the_belief_as_it_was() -> None:
    data, _ = unknown_noise.simulate(jax.random.key(7), 1)
    adf = adfpp.ADF(unknown_noise.model, family={"precision": "gamma"})
    state, _ = adf.update(adf.init(KEY, **data), **data)
    for bad in ({"x": np.full((1, 4), np.nan), "y": np.zeros(1)}, {"x": np.ones((1, 4)), "y": np.array([np.inf])}):
        after, info = adf.update(state, **bad)
        assert info.status[0] == adfpp.Status.NOT_FINITE
        jax.tree.map(np.testing.assert_array_equal, after.belief, state.belief)


@pytest.mark.slow
def test_float32_is_enough_for_a_coin(float32: None) -> None:
    y = np.array([0, 1, 1, 0, 1] * 20)
    result = folded(plate(dist.Beta(0.5, 3.0), lambda p: dist.Bernoulli(probs=p)), {"theta": "beta"}, y)
    np.testing.assert_allclose(np.asarray(result.state.belief.parts[0]).ravel(), [60.5, 43.0], rtol=1e-3)


@pytest.mark.parametrize(
    ("prior", "family", "message"),
    [
        (dist.Normal(0.0, 1.0), {"theta": "gamma"}, "another support"),
        (dist.Gamma(1.0, 1.0), {"theta": "beta"}, "another support"),
        (dist.Gamma(1.0, 1.0), {"eta": "gamma"}, "names the latent 'eta'"),
        (dist.Poisson(3.0), "full", "cannot be listed"),
        (dist.Categorical(probs=jnp.ones(3) / 3), {"theta": "bernoulli"}, "has two"),
        (dist.Bernoulli(0.5), {"theta": "gamma"}, "is discrete"),
    ],
)
def test_families_that_do_not_fit_are_refused(prior: Any, family: Any, message: str) -> None:
    model = plate(prior, lambda t: dist.Normal(1.0 * t, 1.0))
    with pytest.raises(ModelError, match=message):
        adfpp.ADF(model, family=family).explain(np.zeros(3))


def test_unknown_names_and_schedules_are_refused() -> None:
    with pytest.raises(ValueError, match="may be one of"):
        adfpp.ADF(linear.model, family={"w": "poisson"})
    data, _ = ising_perceptron.simulate(KEY, 5)
    with pytest.raises(ModelError, match="in sequence"):
        adfpp.EP(ising_perceptron.model, schedule="parallel").init(KEY, **data)
    with pytest.raises(ModelError, match="variational"):
        adfpp.EP(ising_perceptron.model, power=0.0).init(KEY, **data)


@pytest.mark.slow
def test_two_gaussian_numbers_and_a_continuous_component_are_integrated_as_one_tensor() -> None:
    def model(y: Any) -> None:
        centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
        width = numpyro.sample("width", dist.Normal(0.0, 0.3))
        freedom = numpyro.sample("freedom", dist.Gamma(3.0, 3.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.StudentT(1.0 + freedom, centre, jnp.exp(width)), obs=y)

    adf = adfpp.ADF(model, family={"freedom": "gamma"})
    with pytest.warns(adfpp.RowsMarked, match="INACCURATE"):  # 22 nodes on each axis give a rough estimate of the error
        result = adf.run(KEY, np.array([1.2]), progress_bar=False)
    a, b, c = np.linspace(-8.0, 8.0, 161), np.linspace(-2.4, 2.4, 97), np.linspace(1e-6, 12.0, 601)
    prior = (
        stats.norm.pdf(a)[:, None, None] * stats.norm.pdf(b, 0.0, 0.3)[:, None] * stats.gamma.pdf(c, 3.0, scale=1 / 3)
    )
    joint = prior * stats.t.pdf(1.2, 1.0 + c, a[:, None, None], np.exp(b)[:, None])
    total = integrate.simpson(integrate.simpson(integrate.simpson(joint, x=c), x=b), x=a)
    marginal = joint.sum((1, 2)) / joint.sum()
    np.testing.assert_allclose(result.info.log_z, np.log(total), atol=1e-3)
    mean = marginal @ a
    np.testing.assert_allclose(result.posterior.mean()["centre"], mean, atol=1e-3)
    np.testing.assert_allclose(result.posterior.sd()["centre"], np.sqrt(marginal @ (a - mean) ** 2), atol=1e-3)
