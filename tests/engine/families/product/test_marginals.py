"""Tilted marginals of a product against enumeration, integrals, theory and NUTS."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

import adfpp
from adfpp import Status
from adfpp.distributions import Probit
from adfpp.engine.families import ByLatent
from adfpp.engine.families.product.field_split import Splitting
from models import ising_perceptron, mixture_weights, unknown_noise, zero_inflated
from tests.engine.families.product.common import KEY, categorical, folded, signs


def exact_marginals(x: np.ndarray, y: np.ndarray, noise: float) -> tuple[np.ndarray, float]:
    """P(w_i = 1) given the rows, and the log evidence, by enumeration."""
    every = signs(x.shape[1])
    log_likelihood = special.log_ndtr((2 * y - 1) * (every @ x.T) / noise).sum(1)
    evidence = special.logsumexp(log_likelihood)
    return np.exp(log_likelihood - evidence) @ (every > 0), evidence - x.shape[1] * np.log(2.0)


@pytest.mark.parametrize("n", [10, pytest.param(14, marks=pytest.mark.slow)])
def test_one_row_is_enumerated_exactly_and_the_central_limit_is_near(n: int) -> None:
    data, _ = ising_perceptron.simulate(jax.random.key(n), 1, num_features=n, noise=0.5)
    exact, evidence = exact_marginals(data["x"], data["y"], 0.5)
    found = folded(ising_perceptron.model, "full", **data)
    np.testing.assert_allclose(found.posterior.mean()["sign"], exact, atol=1e-8)
    np.testing.assert_allclose(found.log_evidence, evidence, atol=1e-8)
    # without enumeration: each component left out in turn, and to first order
    one_out = folded(ising_perceptron.model, ByLatent((), Splitting(states=1)), **data)
    to_first_order: Any = ByLatent((), Splitting(states=1, one_out=1, expanded=np.inf))
    first = folded(ising_perceptron.model, to_first_order, **data)
    errors = [np.abs(np.asarray(r.posterior.mean()["sign"]) - exact).max() for r in (one_out, first)]
    assert 1e-6 < errors[0] < 0.02 and 1e-6 < errors[1] < 0.06, errors
    assert "first-order" in str(adfpp.ADF(ising_perceptron.model, family=to_first_order).explain(**data))


@pytest.mark.slow
def test_ep_of_binary_weights_is_near_enumeration() -> None:
    data, _ = ising_perceptron.simulate(jax.random.key(1), 25, num_features=8, noise=1.0)
    exact, evidence = exact_marginals(data["x"], data["y"], 1.0)
    found = adfpp.EP(ising_perceptron.model).run(KEY, progress_bar=False, **data)
    assert found.info.converged
    np.testing.assert_allclose(found.posterior.mean()["sign"], exact, atol=0.03)
    np.testing.assert_allclose(found.log_evidence, evidence, atol=0.05)
    one_pass = folded(ising_perceptron.model, "full", **data)
    worst = np.abs(np.asarray(one_pass.posterior.mean()["sign"]) - exact).max()
    assert worst > 2.0 * np.abs(np.asarray(found.posterior.mean()["sign"]) - exact).max()


@pytest.mark.slow
def test_ep_recovers_binary_weights_perfectly_past_the_transition() -> None:
    data, truth = ising_perceptron.simulate(jax.random.key(2), 400, num_features=200, noise=0.0)
    result = adfpp.EP(ising_perceptron.model).run(KEY, progress_bar=False, **data)
    assert result.info.converged
    np.testing.assert_array_equal(np.asarray(result.posterior.mean()["sign"]) > 0.5, truth["sign"])
    # one state of 2^200 is left
    np.testing.assert_allclose(result.log_evidence, -200.0 * np.log(2.0), atol=1.0)


@pytest.mark.slow
def test_one_pass_follows_the_order_parameters() -> None:
    from adfpp.papers.theory import ising

    adf = adfpp.ADF(ising_perceptron.model)
    right = []
    for seed in range(8):
        data, truth = ising_perceptron.simulate(jax.random.key(seed), 800, num_features=400, noise=0.5)
        found = np.asarray(adf.run(KEY, progress_bar=False, **data).posterior.mean()["sign"]) > 0.5
        right.append(np.mean(found == truth["sign"]))
    expected = 1.0 - float(np.asarray(ising.adf_online(2.0, noise=0.5).wrong_bits))
    error = np.std(right) / np.sqrt(len(right) - 1)
    assert abs(np.mean(right) - expected) < 4.0 * error and error < 0.01


def test_a_categorical_site_that_is_an_index() -> None:
    rng = np.random.default_rng(22)
    mu = jnp.array([-1.0, 0.5, 2.0])

    def model(y: Any) -> None:
        z: Any = numpyro.sample("z", categorical(0.2, 0.5, 0.3))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(mu[z], 3.0), obs=y)

    y = rng.normal(0.5, 3.0, 12)
    log_joint = np.log([0.2, 0.5, 0.3]) + stats.norm.logpdf(y[:, None], np.asarray(mu), 3.0).sum(0)
    result = folded(model, "full", y)
    np.testing.assert_allclose(result.state.belief.parts[0].ravel(), log_joint[1:] - log_joint[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result.log_evidence, np.asarray(special.logsumexp(log_joint)), rtol=1e-10)
    draws = result.posterior.sample(jax.random.key(1), (200,))["z"]
    assert jnp.issubdtype(draws.dtype, jnp.integer) and set(np.unique(draws)) <= {0, 1, 2}


@pytest.mark.slow
def test_a_row_with_a_gaussian_field_and_a_gamma_precision() -> None:
    data, _ = unknown_noise.simulate(jax.random.key(3), 1, num_features=1)
    result = folded(unknown_noise.model, {"precision": "gamma"}, **data)
    x, y = float(data["x"][0, 0]), float(data["y"][0])
    w, u = np.meshgrid(np.linspace(-16.0, 16.0, 1601), np.linspace(-14.0, 4.0, 241), indexing="ij")
    t = np.exp(u)
    density = stats.norm.pdf(w, 0.0, 2.0) * stats.gamma.pdf(t, 2.0) * t * stats.norm.pdf(y, x * w, t**-0.5)

    def total(f: Any) -> float:
        return float(np.sum(f * density) * (w[1, 0] - w[0, 0]) * (u[0, 1] - u[0, 0]))

    z = total(1.0)
    mean, second = total(w) / z, total(w * w) / z
    precision, log_precision = total(t) / z, total(u) / z
    belief = result.state.belief
    np.testing.assert_allclose(result.log_evidence, np.log(z), rtol=1e-6)
    np.testing.assert_allclose(belief.mean, [mean, precision], rtol=1e-5)
    np.testing.assert_allclose(belief.scale[0], np.sqrt(second - mean**2), rtol=1e-5)
    a, b = np.asarray(belief.parts[1]).ravel()
    np.testing.assert_allclose(special.digamma(a) - np.log(b), log_precision, atol=1e-5)


@pytest.mark.slow
def test_a_row_with_a_gate_and_a_rate() -> None:
    result = folded(zero_inflated.model, {"gate": "beta", "rate": "gamma"}, np.array([0]))
    # p(0) = gate + (1 - gate) exp(-rate) under Beta(1, 1) and Gamma(2, 1/2), by hand
    tail = (0.5 / 1.5) ** 2
    z = 0.5 + 0.5 * tail
    np.testing.assert_allclose(result.log_evidence, np.log(z), rtol=1e-9)
    rate = (0.5 * 4.0 + 0.5 * tail * 2.0 / 1.5) / z
    a, b = np.asarray(result.state.belief.parts[1]).ravel()
    np.testing.assert_allclose(a / b, rate, rtol=1e-7)
    # a Beta matches the expected logs, not the mean
    logs = np.asarray(result.state.belief.parts[0]).ravel()
    one = integrate.quad(lambda g: np.log(g) * (g + (1.0 - g) * tail), 0.0, 1.0)[0] / z
    other = integrate.quad(lambda g: np.log1p(-g) * (g + (1.0 - g) * tail), 0.0, 1.0)[0] / z
    np.testing.assert_allclose(special.digamma(logs) - special.digamma(logs.sum()), [one, other], atol=1e-7)


@pytest.mark.slow
def test_mixture_weights_and_means_follow_nuts() -> None:
    from numpyro.infer import MCMC, NUTS

    data, _ = mixture_weights.simulate(jax.random.key(4), 60, weight=0.3)
    result = adfpp.EP(mixture_weights.model, family={"weights": "dirichlet"}).run(KEY, progress_bar=False, **data)
    mcmc = MCMC(NUTS(mixture_weights.model), num_warmup=500, num_samples=4000, progress_bar=False)
    mcmc.run(jax.random.key(5), **data)
    draws = mcmc.get_samples()
    for site, found in result.posterior.mean().items():
        sd = np.asarray(draws[site]).std(0)
        assert (np.abs(np.asarray(found) - np.asarray(draws[site]).mean(0)) < 0.15 * sd).all(), site
        assert (np.abs(np.asarray(result.posterior.sd()[site]) / sd - 1.0) < 0.15).all(), site


@pytest.mark.slow
def test_draws_that_miss_a_narrow_row_refuse_it() -> None:
    def model(x: Any, y: Any) -> None:
        rates: list[Any] = [numpyro.sample(f"r{i}", dist.Gamma(2.0, 1.0)) for i in range(4)]
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(sum(rates) * x, 0.01), obs=y)

    adf = adfpp.ADF(model, family={f"r{i}": "gamma" for i in range(4)})
    state = adf.init(KEY, np.ones(1), np.array([8.0]))
    after, info = adf.update(state, np.ones(1), np.array([8.0]))
    assert info.status[0] == adfpp.Status.UNRELIABLE
    jax.tree.map(np.testing.assert_array_equal, after.belief, state.belief)


@pytest.mark.parametrize("noise", [0.0, 20.0])
@pytest.mark.parametrize("one_out", [64, 1])
def test_a_central_limit_blocks_certainty_is_limited_with_a_status(noise: float, one_out: int) -> None:
    """A row that a single weight decides; a noisy one leaves it open."""
    family = ByLatent((), Splitting(states=1, one_out=one_out))
    x = np.full((2, 6), 0.1)
    x[:, 0] = (0.1, 10.0)
    result = folded(ising_perceptron.model, family, x, noise=noise, y=np.array([1, 1]))
    expected = Status.OK if noise else Status.SATURATED
    assert result.info.status.tolist() == [Status.OK, expected]
    odds = np.asarray(result.state.belief.parts[0]).ravel()
    assert np.isclose(odds[0], -np.log(np.finfo(float).eps), rtol=1e-9) == (noise == 0.0)


GROUP = np.array([2, 0, 1, 2, 0, 2])
X = np.array([-1.5, 0.7, -0.4, 1.1, -2.0, -0.3])
Y = np.array([1, 0, 1, 1, 0, 0])


def switches(x: Any, group: Any, y: Any = None) -> None:
    """One switch for each group: a row reads the switch of its own group alone."""
    on: Any = numpyro.sample("on", dist.Bernoulli(0.4).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x * on[group]), obs=y)


def test_a_row_learns_of_the_component_that_it_touches_whatever_the_sign_of_its_effect() -> None:
    """The groups share no row, so that Bayes' rule for each of them by itself is the exact posterior."""
    adf = adfpp.ADF(switches)
    result = adf.run(jax.random.key(0), X, GROUP, y=Y, progress_bar=False)
    off, on = np.full(len(Y), np.log(0.5)), stats.norm.logcdf((2 * Y - 1) * X)
    log_odds, evidence = np.empty(3), 0.0
    for g in range(3):
        both = np.log([0.6, 0.4]) + [off[g == GROUP].sum(), on[g == GROUP].sum()]
        log_odds[g], evidence = both[1] - both[0], evidence + np.logaddexp(*both)
    np.testing.assert_allclose(result.posterior.mean()["on"], 1 / (1 + np.exp(-log_odds)), rtol=1e-10)
    np.testing.assert_allclose(np.sum(result.info.log_z), evidence, rtol=1e-10)
