"""Products of families in the sites' own spaces: conjugacy, enumeration, crowds, mixed factors, Gaussian blocks."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

import adfpp
from adfpp import Status
from adfpp.engine.families import ByLatent
from adfpp.engine.families.product.field_split import Splitting
from adfpp.model import ModelError
from models import ising_perceptron, linear, mixture_weights, unknown_noise, zero_inflated

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def folded(model: Callable[..., Any], family: Any, *args: Any, **kwargs: Any) -> Any:
    """One pass of ADF."""
    return adfpp.ADF(model, family=family).run(KEY, *args, progress_bar=False, **kwargs)


# ---------------------------------------------------------------------------------------------- conjugate models


class Conjugate(NamedTuple):
    """A conjugate model, its data, and Bayes' answer: natural parameters and log evidence."""

    model: Callable[..., Any]
    family: str
    y: np.ndarray
    natural: np.ndarray
    evidence: float


def _plate(prior: Any, likelihood: Callable[[Any], Any]) -> Callable[..., Any]:
    def model(y: Any) -> None:
        theta = numpyro.sample("theta", prior)
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", likelihood(theta), obs=y)

    return model


def _coin() -> Conjugate:
    y = RNG.integers(0, 2, 40)
    a, b = 0.5 + y.sum(), 3.0 + (1 - y).sum()
    model = _plate(dist.Beta(0.5, 3.0), lambda p: dist.Bernoulli(probs=p))
    return Conjugate(model, "beta", y, np.array([a, b]), special.betaln(a, b) - special.betaln(0.5, 3.0))


def _binomial() -> Conjugate:
    y = RNG.binomial(7, 0.8, 40)
    a, b = 2.0 + y.sum(), 3.0 + (7 - y).sum()
    model = _plate(dist.Beta(2.0, 3.0), lambda p: dist.Binomial(7, probs=p))
    evidence = special.betaln(a, b) - special.betaln(2.0, 3.0) + np.log(special.comb(7, y)).sum()
    return Conjugate(model, "beta", y, np.array([a, b]), evidence)


def _counts() -> Conjugate:
    y = RNG.poisson(4.0, 40)
    a, b = 2.0 + y.sum(), 0.3 + len(y)
    model = _plate(dist.Gamma(2.0, 0.3), dist.Poisson)
    evidence = special.gammaln(a) - a * np.log(b) - special.gammaln(2.0) + 2.0 * np.log(0.3)
    return Conjugate(model, "gamma", y, np.array([a, b]), evidence - special.gammaln(y + 1.0).sum())


def _waiting() -> Conjugate:
    y = RNG.exponential(2.0, 40)
    a, b = 1.0 + len(y), 0.7 + y.sum()
    model = _plate(dist.Exponential(0.7), dist.Exponential)  # an exponential prior is a gamma
    evidence = special.gammaln(a) - a * np.log(b) + np.log(0.7)
    return Conjugate(model, "gamma", y, np.array([a, b]), evidence)


def _variance() -> Conjugate:
    y = RNG.normal(1.0, 2.0, 40)
    a, b = 2.0 + 0.5 * len(y), 3.0 + 0.5 * ((y - 1.0) ** 2).sum()
    model = _plate(dist.InverseGamma(2.0, 3.0), lambda v: dist.Normal(1.0, jnp.sqrt(v)))
    evidence = special.gammaln(a) - a * np.log(b) + 2.0 * np.log(3.0) - 0.5 * len(y) * np.log(2.0 * np.pi)
    return Conjugate(model, "inverse_gamma", y, np.array([a, b]), evidence)


def _die() -> Conjugate:
    y = RNG.integers(0, 3, 40)
    start = np.array([1.0, 0.4, 3.0])
    alpha = start + np.bincount(y)
    model = _plate(dist.Dirichlet(jnp.array(start)), lambda p: dist.Categorical(probs=p))

    def log_beta(a: np.ndarray) -> float:
        return special.gammaln(a).sum() - special.gammaln(a.sum())

    return Conjugate(model, "dirichlet", y, alpha, log_beta(alpha) - log_beta(start))


CONJUGATE = {f.__name__[1:]: f() for f in (_coin, _binomial, _counts, _waiting, _variance, _die)}


@pytest.mark.parametrize("name", CONJUGATE)
def test_conjugate_models_give_bayes_answer_in_any_order(name: str) -> None:
    case = CONJUGATE[name]
    adf = adfpp.ADF(case.model, family={"theta": case.family})
    for order in (slice(None), slice(None, None, -1)):
        result = adf.run(KEY, case.y[order], progress_bar=False)
        np.testing.assert_allclose(result.state.belief.parts[0].ravel(), case.natural, rtol=1e-9)
        np.testing.assert_allclose(result.log_evidence, case.evidence, rtol=1e-9)
        assert (result.info.status == adfpp.Status.OK).all()


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


def test_rates_by_group_are_found_by_their_index() -> None:
    group, y = RNG.integers(0, 6, 60), RNG.poisson(3.0, 60)

    def model(group: Any, y: Any) -> None:
        rate: Any = numpyro.sample("rate", dist.Gamma(2.0, 0.3).expand([6]).to_event(1))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Poisson(rate[group]), obs=y)

    found = folded(model, {"rate": "gamma"}, group, y).state.belief.parts[0]
    expected = np.stack([2.0 + np.bincount(group, y, 6), 0.3 + np.bincount(group, minlength=6)], -1)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


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


def test_a_prior_outside_the_family_is_matched_in_its_statistics() -> None:
    model = _plate(dist.HalfNormal(2.0), dist.Poisson)
    adf = adfpp.ADF(model, family={"theta": "gamma"})
    state = adf.init(KEY, np.array([1, 2]))
    a, b = np.asarray(state.belief.parts[0]).ravel()
    half: Any = stats.halfnorm(scale=2.0)
    np.testing.assert_allclose(a / b, half.mean(), rtol=1e-6)
    log_mean = integrate.quad(lambda s: np.log(s) * half.pdf(s), 0.0, np.inf, limit=200)[0]
    np.testing.assert_allclose(special.digamma(a) - np.log(b), log_mean, atol=1e-6)
    assert "moments by quadrature" in str(adf.explain(np.array([1, 2])))


# ---------------------------------------------------------------------------------------------- binary weights


def signs(n: int) -> np.ndarray:
    """All vectors of n signs."""
    return np.array(list(itertools.product([-1.0, 1.0], repeat=n)))


def exact_marginals(x: np.ndarray, y: np.ndarray, noise: float) -> tuple[np.ndarray, float]:
    """P(w_i = 1) given the rows, and the log evidence, by enumeration."""
    every = signs(x.shape[1])
    log_likelihood = special.log_ndtr((2 * y - 1) * (every @ x.T) / noise).sum(1)
    evidence = special.logsumexp(log_likelihood)
    return np.exp(log_likelihood - evidence) @ (every > 0), evidence - x.shape[1] * np.log(2.0)


@pytest.mark.parametrize("n", [10, 14])
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


def test_ep_recovers_binary_weights_perfectly_past_the_transition() -> None:
    data, truth = ising_perceptron.simulate(jax.random.key(2), 400, num_features=200, noise=0.0)
    result = adfpp.EP(ising_perceptron.model).run(KEY, progress_bar=False, **data)
    assert result.info.converged
    np.testing.assert_array_equal(np.asarray(result.posterior.mean()["sign"]) > 0.5, truth["sign"])
    # one state of 2^200 is left
    np.testing.assert_allclose(result.log_evidence, -200.0 * np.log(2.0), atol=1.0)


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


def _bernoulli(p: Any) -> Any:
    return dist.Bernoulli(probs=p)


def _categorical(*p: float) -> Any:
    return dist.Categorical(probs=jnp.array(p))


def test_a_categorical_site_that_is_an_index() -> None:
    mu = jnp.array([-1.0, 0.5, 2.0])

    def model(y: Any) -> None:
        z: Any = numpyro.sample("z", _categorical(0.2, 0.5, 0.3))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(mu[z], 3.0), obs=y)

    y = RNG.normal(0.5, 3.0, 12)
    log_joint = np.log([0.2, 0.5, 0.3]) + stats.norm.logpdf(y[:, None], np.asarray(mu), 3.0).sum(0)
    result = folded(model, "full", y)
    np.testing.assert_allclose(result.state.belief.parts[0].ravel(), log_joint[1:] - log_joint[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result.log_evidence, np.asarray(special.logsumexp(log_joint)), rtol=1e-10)
    draws = result.posterior.sample(jax.random.key(1), (200,))["z"]
    assert jnp.issubdtype(draws.dtype, jnp.integer) and set(np.unique(draws)) <= {0, 1, 2}


def test_a_probability_above_its_indicators_is_learned() -> None:
    """p ~ Beta, sign ~ Bernoulli(p): the prior of the signs is a factor, visited again."""

    def model(x: Any, y: Any) -> None:
        p: Any = numpyro.sample("p", dist.Beta(1.0, 1.0))
        sign: Any = numpyro.sample("sign", _bernoulli(p).expand([5]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ sign, 1.0), obs=y)

    x = RNG.normal(size=(30, 5))
    y = x @ np.array([1.0, 1.0, 1.0, 1.0, 0.0]) + RNG.normal(size=30)
    every = (signs(5) + 1) / 2
    count = every.sum(1)
    log_joint = stats.norm.logpdf(y, every @ x.T, 1.0).sum(1) + special.betaln(1.0 + count, 6.0 - count)
    weights = special.softmax(log_joint)
    result = adfpp.EP(model, family={"p": "beta"}).run(KEY, x, y, progress_bar=False)
    assert result.info.converged
    np.testing.assert_allclose(result.posterior.mean()["sign"], weights @ every, atol=0.01)
    np.testing.assert_allclose(result.posterior.mean()["p"], weights @ ((1.0 + count) / 7.0), atol=0.01)
    np.testing.assert_allclose(result.log_evidence, np.asarray(special.logsumexp(log_joint)), atol=0.05)


# ---------------------------------------------------------------------------------------------- mixed factors


def test_a_row_with_a_gaussian_field_and_a_gamma_precision() -> None:
    data, _ = unknown_noise.simulate(jax.random.key(3), 1, num_features=1)
    result = folded(unknown_noise.model, {"precision": "gamma"}, **data)
    x, y = float(data["x"][0, 0]), float(data["y"][0])
    w, u = np.meshgrid(np.linspace(-16.0, 16.0, 4001), np.linspace(-14.0, 4.0, 1201), indexing="ij")
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


# ---------------------------------------------------------------------------------------------- Gaussian blocks


def test_sites_by_name_that_are_all_gaussian_are_the_gaussian_families() -> None:
    data, _ = linear.simulate(jax.random.key(6), 50)
    for name in ("full", "diagonal"):
        whole = folded(linear.model, name, **data)
        names = {s.name: name for s in whole.posterior.latents}
        by_site = folded(linear.model, names, **data)
        np.testing.assert_array_equal(by_site.state.belief.mean, whole.state.belief.mean)


def test_blocks_of_a_product_keep_the_marginals_of_the_joint_projection() -> None:
    """One row: a full block and a diagonal one have the moments of the exact posterior's marginals."""

    def model(x: Any, z: Any, y: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        b = numpyro.sample("b", dist.Normal(1.0, 2.0).expand([2]).to_event(1))
        c = numpyro.sample("c", dist.Normal(0.0, 0.5).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ a + z @ b + x @ c, 0.3), obs=y)

    x, z, y = RNG.normal(size=(1, 2)), RNG.normal(size=(1, 2)), RNG.normal(size=1)
    result = folded(model, {"a": "full", "b": "diagonal", "c": "spherical"}, x, z, y)
    row = np.concatenate([x[0], z[0], x[0]])
    prior = np.array([1.0, 1.0, 4.0, 4.0, 0.25, 0.25])
    mean = np.array([0.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    gain = prior * row / (row @ (prior * row) + 0.09)
    covariance = np.diag(prior) - np.outer(gain, prior * row)
    np.testing.assert_allclose(result.state.belief.mean, mean + gain * (y[0] - row @ mean), rtol=1e-9)
    a, b, c = result.state.belief.parts
    np.testing.assert_allclose(a.scale @ a.scale.T, covariance[:2, :2], rtol=1e-9)
    np.testing.assert_allclose(b.scale**2, np.diag(covariance)[2:4], rtol=1e-9)
    np.testing.assert_allclose(c.scale**2, np.diag(covariance)[4:].mean(), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_a_gaussian_site_below_an_own_space_one_by_ep(kind: str) -> None:
    """w ~ Normal(0, 1/√t), t ~ Gamma: against an integral over t of exact Gaussian posteriors."""

    def model(x: Any, y: Any) -> None:
        t: Any = numpyro.sample("t", dist.Gamma(2.0, 1.0))
        w: Any = numpyro.sample("w", dist.Normal(0.0, t**-0.5).expand([3]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)

    rng = np.random.default_rng(8)
    x = rng.normal(size=(20, 3))
    y = x @ np.array([1.3, -0.8, 0.0]) + rng.normal(size=20)
    u = np.linspace(-6.0, 4.0, 1001)
    logs = []
    for t in np.exp(u):
        marginal = stats.multivariate_normal(np.zeros(20), np.eye(20) + x @ x.T / t).logpdf(y)
        logs.append(marginal + stats.gamma.logpdf(t, 2.0) + np.log(t))
    evidence = special.logsumexp(logs) + np.log(u[1] - u[0])
    weights = special.softmax(logs)
    means = np.stack([np.linalg.solve(x.T @ x + t * np.eye(3), x.T @ y) for t in np.exp(u)])
    result = adfpp.EP(model, family={"t": "gamma", "w": kind}).run(KEY, x, y, progress_bar=False)
    assert result.info.converged
    np.testing.assert_allclose(result.posterior.mean()["w"], weights @ means, atol=0.01)
    np.testing.assert_allclose(result.posterior.mean()["t"], weights @ np.exp(u), atol=0.05)
    np.testing.assert_allclose(result.log_evidence, evidence, atol=0.1)


def test_a_joint_gaussian_prior_is_split_between_its_parts() -> None:
    def model(x: Any, y: Any) -> None:
        m: Any = numpyro.sample("m", dist.Normal(0.0, 1.0))
        z: Any = numpyro.sample("z", dist.Normal(m, 1.0).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ z, 1.0), obs=y)

    state = adfpp.ADF(model, family={"m": "full", "z": "diagonal"}).init(KEY, np.ones((2, 2)), np.zeros(2))
    np.testing.assert_allclose(state.belief.scale, [1.0, 2.0**0.5, 2.0**0.5])


def test_what_is_known_between_values_outlives_the_first_ones_exclusion() -> None:
    mu = jnp.array([-100.0, 0.0, 1.0])

    def model(y: Any) -> None:
        z: Any = numpyro.sample("z", _categorical(1 / 3, 1 / 3, 1 / 3))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)

    natural = folded(model, "full", np.zeros(2)).state.belief.parts[0].ravel()
    np.testing.assert_allclose(natural[0] - natural[1], 1.0, rtol=1e-9)


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


def test_a_large_component_in_a_crowd_is_left_out_for_any_likelihood() -> None:
    def model(x: Any, y: Any) -> None:
        sign: Any = numpyro.sample("sign", _bernoulli(0.5).expand([15]).to_event(1))
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


@pytest.mark.parametrize(
    ("prior", "mean"),
    [
        (dist.HalfNormal(1e5), 1e5 * np.sqrt(2.0 / np.pi)),
        (dist.LogNormal(15.0, 0.01), np.exp(15.00005)),
        (dist.HalfCauchy(1e6), None),
    ],
)
def test_priors_far_from_one_are_projected_or_refused(prior: Any, mean: float | None) -> None:
    adf = adfpp.ADF(_plate(prior, dist.Poisson), family={"theta": "gamma"})
    if mean is None:
        with pytest.raises(ModelError, match="lighter tails"):
            adf.init(KEY, np.array([1, 2]))
        return
    np.testing.assert_allclose(adf.init(KEY, np.array([1, 2])).belief.mean, mean, rtol=1e-6)


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


# ---------------------------------------------------------------------------------------------- extremes and refusals


def test_an_excluded_value_is_told_and_counted() -> None:
    """Enumeration: of an index, and of one beside a Gaussian site; by ADF and EP, without a warning."""
    mu = jnp.array([-100.0, 0.0, 1.0])

    def model(y: Any, offset: float | None = 0.0) -> None:
        z: Any = numpyro.sample("z", _categorical(1 / 3, 1 / 3, 1 / 3))
        b: Any = numpyro.sample("b", dist.Normal(0.0, 1.0)) if offset is None else offset
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(mu[z] + b, 1.0), obs=y)

    y = np.array([-50.0, 0.3, 0.2])  # as near to the first value as to the second, then far from it
    for offset in (0.0, None):
        result = folded(model, "full", y, offset)
        assert result.info.status.tolist() == [Status.OK, Status.SATURATED, Status.SATURATED]
        odds = np.asarray(result.state.belief.parts[0]).ravel()
        np.testing.assert_allclose(odds.max(), -np.log(np.finfo(float).tiny), rtol=1e-9)
    totals = adfpp.ADF(model).run(KEY, y, info="totals", progress_bar=False).info
    assert totals.counts[Status.SATURATED] == 2 and totals.counts.sum() == 3
    assert Status.SATURATED in adfpp.EP(model).run(KEY, y, progress_bar=False).info.status
    near = folded(model, "full", np.array([-50.0, -49.5]))
    assert (near.info.status == Status.OK).all()


def test_an_inaccurate_factor_is_not_hidden_by_one_that_is_only_counted() -> None:
    mu = jnp.array([-100.0, 0.0])

    def model(y: Any, t: Any) -> None:
        z: Any = numpyro.sample("z", _categorical(0.5, 0.5))
        b: Any = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)
            numpyro.sample("t", dist.StudentT(3.0, b, 0.5), obs=t)

    y, t = np.zeros(1), np.array([1.3])
    for report, expected in ((1e-6, Status.SATURATED), (1e-30, Status.INACCURATE)):
        adf = adfpp.ADF(model, moments=adfpp.Moments(quadrature=adfpp.Quadrature(report=report)))
        assert adf.update(adf.init(KEY, y, t), y, t)[1].status[0] == expected


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


@pytest.fixture(scope="module")
def coin_update() -> Callable[..., Any]:
    """A row folded into a Beta with any parameters, compiled once."""
    adf = adfpp.ADF(CONJUGATE["coin"].model, family={"theta": "beta"})
    return _updating(adf, np.array([0, 1]))


@pytest.fixture(scope="module")
def noise_update() -> Callable[..., Any]:
    """A value folded into a Gamma for the rate of a half-normal-like likelihood that is not conjugate."""
    model = _plate(dist.Gamma(2.0, 1.0), lambda s: dist.StudentT(3.0, 0.0, s))
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


@settings(max_examples=40)
@given(exponents, exponents, st.sampled_from([0, 1]))
def test_extreme_betas_stay_exact(coin_update: Any, a: float, b: float, y: int) -> None:
    start = 10.0 ** np.array([a, b])
    after, info = coin_update(start, y)
    np.testing.assert_allclose(after, start + np.array([y, 1 - y]), rtol=1e-8)
    np.testing.assert_allclose(info.log_z[0], np.log(start[1 - y] / start.sum()), rtol=1e-7, atol=1e-9)


@settings(max_examples=40)
@given(st.floats(-2.0, 6.0), exponents, st.floats(-3.0, 3.0))
def test_extreme_gammas_give_no_nan(noise_update: Any, shape: float, rate: float, log_y: float) -> None:
    start = 10.0 ** np.array([shape, rate])
    after, info = noise_update(start, 10.0**log_y)
    assert np.isfinite(after).all() and (after > 0).all() and np.isfinite(info.log_z).all()
    if info.status[0] >= adfpp.Status.NOT_FINITE:
        np.testing.assert_array_equal(after, start)


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
    result = folded(_plate(dist.Beta(0.5, 3.0), lambda p: dist.Bernoulli(probs=p)), {"theta": "beta"}, y)
    np.testing.assert_allclose(np.asarray(result.state.belief.parts[0]).ravel(), [60.5, 43.0], rtol=1e-3)


@pytest.mark.slow
def test_an_indicator_that_is_all_but_certain_beside_gaussians(float32: None) -> None:
    """Rows decide an indicator at once; the rest goes on as if it were known, in float32 too."""

    def model(x: Any, y: Any, z: Any = None) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        z = numpyro.sample("z", _bernoulli(0.5)) if z is None else z
        s: Any = numpyro.sample("s", dist.HalfNormal(1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ w + 2.0 * z, s), obs=y)

    x = RNG.normal(size=(64, 2)).astype(np.float32)
    y = (x @ np.array([1.0, -1.0]) + 2.0 + 0.3 * RNG.normal(size=64)).astype(np.float32)
    for family in ("full", {"s": "inverse_gamma"}):
        result = folded(model, family, x, y)
        assert np.isin(result.info.status, (Status.OK, Status.INACCURATE, Status.SATURATED)).all()
        assert Status.SATURATED in result.info.status
        assert result.posterior.mean()["z"] == 1.0
    known = folded(model, family, x, y, z=1.0)
    for site in ("w", "s"):
        np.testing.assert_allclose(result.posterior.mean()[site], known.posterior.mean()[site], atol=0.02)


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
    model = _plate(prior, lambda t: dist.Normal(1.0 * t, 1.0))
    with pytest.raises(ModelError, match=message):
        adfpp.ADF(model, family=family).explain(np.zeros(3))


def test_unknown_names_and_schedules_are_refused() -> None:
    with pytest.raises(ValueError, match="may be one of"):
        adfpp.ADF(linear.model, family={"w": "wishart"})
    data, _ = ising_perceptron.simulate(KEY, 5)
    with pytest.raises(ModelError, match="in sequence"):
        adfpp.EP(ising_perceptron.model, schedule="parallel").init(KEY, **data)
    with pytest.raises(ModelError, match="variational"):
        adfpp.EP(ising_perceptron.model, power=0.0).init(KEY, **data)
