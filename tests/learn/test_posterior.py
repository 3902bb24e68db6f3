"""What a user gets back: draws, moments, densities and a guide."""

import itertools
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro.infer import MCMC, NUTS, Predictive, Trace_ELBO
from numpyro.infer.util import initialize_model, log_density
from scipy import integrate, special, stats
from scipy.special import betaln

import adfpp
from adfpp.engine.families import Belief
from adfpp.learn.adf import ADFState
from models import ising_perceptron
from tests.learn.posteriors import FAMILIES, RNG, Array, X, Y, first_half, sample
from tests.products import ISING_NOISE, Pair, beta_bernoulli

KEY = jax.random.key(0)

norm: Any = stats.norm
multivariate_normal: Any = stats.multivariate_normal
SHAPES = {"b": (), "s": (), "p": (), "n": (), "q": (2,), "c": (3,)}
SIZE = 8
STICKS = dist.transforms.StickBreakingTransform()
NEGATE = dist.transforms.AffineTransform(0.0, -1.0, domain=dist.constraints.positive)
MEAN = np.array([0.5, -0.3, 0.4, -1.0, 0.1, 0.6, 0.2, -0.5])
ROOT = np.tril(0.3 * RNG.normal(size=(SIZE, SIZE)), -1) + np.diag(np.linspace(0.3, 0.9, SIZE))


def every_kind(x: Array, y: Array | None = None) -> None:
    """Real, positive, unit-interval and negative sites, a plate of positive ones, and a simplex.

    All Gaussian in unconstrained space, which is quickly projected.
    """
    transformed = dist.TransformedDistribution
    b = sample("b", dist.Normal(0, 1))
    s = sample("s", dist.LogNormal(0, 1))
    p = sample("p", transformed(dist.Normal(0, 1), dist.transforms.SigmoidTransform()))
    n = sample("n", transformed(dist.LogNormal(0, 1), NEGATE))
    with numpyro.plate("pairs", 2):
        q = sample("q", dist.LogNormal(0, 1))
    c = sample("c", transformed(dist.Normal(0, 1).expand([2]).to_event(1), STICKS))
    with numpyro.plate("rows", x.shape[0]):
        sample("y", dist.Normal(x @ q + b + p * n + c[0], s), obs=y)


@cache
def adf_and_state(family: str) -> tuple[adfpp.ADF, ADFState]:
    """Read once a family."""
    adf = adfpp.ADF(every_kind, family=family)
    return adf, adf.init(KEY, X, y=Y)


def scale_of(family: str) -> np.ndarray:
    """What a family keeps of the root."""
    sd = np.sqrt((ROOT**2).sum(1))
    return {"full": ROOT, "diagonal": sd, "spherical": np.asarray(0.6)}[family]


def covariance_of(family: str) -> np.ndarray:
    """The covariance it stands for."""
    scale = scale_of(family)
    return scale @ scale.T if scale.ndim == 2 else scale**2 * np.eye(SIZE)


@cache
def posterior(family: str = "full") -> adfpp.Posterior:
    """A posterior with a mean and covariance known beforehand."""
    adf, state = adf_and_state(family)
    return adf.get_posterior(state._replace(belief=Belief(jnp.asarray(MEAN), jnp.asarray(scale_of(family)))))


def unconstrained(values: dict[str, Any]) -> np.ndarray:
    """The flat vector of draws, by hand."""
    parts = [values["b"], np.log(values["s"]), special.logit(values["p"]), np.log(-np.asarray(values["n"]))]
    flat = np.stack([np.asarray(p) for p in parts], -1)
    return np.concatenate([flat, np.log(values["q"]), np.asarray(STICKS.inv(values["c"]))], -1)


def constrained(flat: np.ndarray) -> dict[str, np.ndarray]:
    """The sites of flat vectors, by hand."""
    values = {"b": flat[..., 0], "s": np.exp(flat[..., 1]), "p": special.expit(flat[..., 2])}
    return values | {
        "n": -np.exp(flat[..., 3]),
        "q": np.exp(flat[..., 4:6]),
        "c": np.asarray(STICKS(flat[..., 6:])),
    }


@pytest.mark.slow
def test_shapes_of_draws() -> None:
    """Any leading shape, in the sites' own shapes and supports."""
    for shape in ((), (3,), (2, 3)):
        draws = posterior().sample(KEY, shape)
        assert {name: value.shape for name, value in draws.items()} == {k: shape + v for k, v in SHAPES.items()}
    draws = posterior().sample(KEY, (100,))
    assert np.all(draws["s"] > 0) and np.all((draws["p"] > 0) & (draws["p"] < 1)) and np.all(draws["n"] < 0)
    np.testing.assert_allclose(draws["c"].sum(-1), 1.0, atol=1e-12)
    assert posterior().sample(KEY)["q"].shape == (2,)


@pytest.mark.slow
def test_draws_are_a_function_of_the_key() -> None:
    """The same key, the same draws."""
    first, again = posterior().sample(KEY, (5,)), posterior().sample(KEY, (5,))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    other = posterior().sample(jax.random.key(1), (5,))
    assert not np.array_equal(first["b"], other["b"])


@pytest.mark.parametrize("family", FAMILIES)
def test_draws_follow_the_belief(family: str) -> None:
    """Mean and covariance in unconstrained space, to 5 standard errors."""
    count = 20_000
    flat = unconstrained(posterior(family).sample(jax.random.key(2), (count,)))
    covariance = covariance_of(family)
    variances = np.diag(covariance)
    np.testing.assert_array_less(np.abs(flat.mean(0) - MEAN), 5 * np.sqrt(variances / count))
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / count)
    np.testing.assert_array_less(np.abs(np.cov(flat.T) - covariance), 5 * error)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_moments_against_monte_carlo(family: str) -> None:
    """Means and sds of every kind of site, to 5 standard errors."""
    count, sampled = 200_000, 8192  # a simplex is itself sampled
    covariance = covariance_of(family)
    noise = np.random.default_rng(3).normal(size=(count, SIZE)) @ np.linalg.cholesky(covariance).T
    draws = constrained(MEAN + noise)
    mean, sd = posterior(family).mean(), posterior(family).sd()
    assert mean.keys() == sd.keys() == SHAPES.keys()
    for name, values in draws.items():
        assert mean[name].shape == sd[name].shape == SHAPES[name]
        effective = 1 / (1 / count + (1 / sampled if name == "c" else 0.0))
        spread = values.std(0)
        kurtosis = np.mean((values - values.mean(0)) ** 4, 0) / spread**4
        assert np.all(np.abs(mean[name] - values.mean(0)) < 5 * spread / np.sqrt(effective)), name
        assert np.all(np.abs(sd[name] / spread - 1) < 5 * np.sqrt((kurtosis - 1) / 4 / effective)), name


@pytest.mark.parametrize("family", FAMILIES)
def test_moments_in_closed_form(family: str) -> None:
    """Of the Gaussian, the log-normal, and the logit-normal by scipy."""
    variances = np.diag(covariance_of(family))
    mean, sd = posterior(family).mean(), posterior(family).sd()
    np.testing.assert_allclose(mean["b"], MEAN[0], rtol=1e-12)
    np.testing.assert_allclose(sd["b"], np.sqrt(variances[0]), rtol=1e-12)
    for name, i, sign in (("s", 1, 1.0), ("n", 3, -1.0), ("q", slice(4, 6), 1.0)):
        expected = np.exp(MEAN[i] + variances[i] / 2)
        np.testing.assert_allclose(mean[name], sign * expected, rtol=1e-9)
        np.testing.assert_allclose(sd[name], expected * np.sqrt(np.expm1(variances[i])), rtol=1e-8)
    density = norm(MEAN[2], np.sqrt(variances[2])).pdf
    first, second = (
        integrate.quad(lambda u, k=k: special.expit(u) ** k * density(u), -12, 12, epsabs=1e-13)[0] for k in (1, 2)
    )
    np.testing.assert_allclose(mean["p"], first, rtol=1e-8)
    np.testing.assert_allclose(sd["p"], np.sqrt(second - first**2), rtol=1e-7)


def test_quantiles() -> None:
    """Exact through increasing and decreasing transforms, and of the draws for a simplex."""
    sd = np.sqrt(np.diag(covariance_of("full")))
    levels = np.array([0.05, 0.5, 0.9])
    found = posterior().quantile(levels)
    flat = MEAN + norm.ppf(levels)[:, None] * sd
    expected = constrained(flat)
    for name in ("b", "s", "p", "q"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9)
    np.testing.assert_allclose(found["n"], -np.exp(MEAN[3] + norm.ppf(1 - levels) * sd[3]), rtol=1e-9)
    assert found["c"].shape == (3, 3)
    assert np.all(np.diff(found["c"], axis=0) > 0)
    median = posterior().quantile(0.5)
    assert {name: value.shape for name, value in median.items()} == SHAPES
    square = posterior().quantile(np.array([[0.1, 0.9]]))
    assert {name: value.shape for name, value in square.items()} == {k: (1, 2, *v) for k, v in SHAPES.items()}


def test_summary() -> None:
    """A data frame with a row a number."""
    table = posterior().summary()
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns) == ["mean", "sd", "5%", "95%"]
    assert list(table.index) == ["b", "s", "p", "n", "q[0]", "q[1]", "c[0]", "c[1]", "c[2]"]
    mean, bounds = posterior().mean(), posterior().quantile(np.array([0.05, 0.95]))
    np.testing.assert_allclose(table.loc[["q[0]", "q[1]"], "mean"], mean["q"])
    np.testing.assert_allclose(table.loc["n", ["5%", "95%"]].to_numpy(float), bounds["n"])
    assert np.all(table["5%"] < table["95%"])
    assert list(posterior().summary(prob=0.5).columns)[2:] == ["25%", "75%"]
    for prob in (0.0, 1.0, 95):
        with pytest.raises(ValueError, match="between 0 and 1"):
            posterior().summary(prob=prob)


@pytest.mark.parametrize("family", FAMILIES)
def test_distribution_over_the_flat_vector(family: str) -> None:
    """A NumPyro distribution with the belief's moments and scipy's density."""
    flat = posterior(family).distribution
    assert isinstance(flat, dist.Distribution)
    assert flat.batch_shape == () and flat.event_shape == (SIZE,)
    reference = multivariate_normal(MEAN, covariance_of(family))
    at = reference.rvs(5, random_state=4)
    np.testing.assert_allclose(flat.log_prob(at), reference.logpdf(at), rtol=1e-10)
    np.testing.assert_allclose(flat.mean, MEAN, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(flat.variance), np.diag(covariance_of(family)), rtol=1e-10)
    assert jnp.shape(flat.sample(KEY, (3,))) == (3, SIZE)


@pytest.mark.parametrize("family", FAMILIES)
def test_log_prob_changes_variables(family: str) -> None:
    """The flat density and the derivative of the flat vector, the latter by automatic differentiation."""
    values = posterior(family).sample(jax.random.key(5), (2, 3))

    def free(flat: Array) -> Array:
        """As many free coordinates as flat ones: a simplex has one less than elements."""
        simplex = STICKS(flat[6:])[:2]
        pieces = [
            flat[:1],
            jnp.exp(flat[1:2]),
            jax.nn.sigmoid(flat[2:3]),
            -jnp.exp(flat[3:4]),
            jnp.exp(flat[4:6]),
            simplex,
        ]
        return jnp.concatenate(pieces)

    flat = unconstrained(values)
    determinants = np.linalg.slogdet(jax.vmap(jax.jacfwd(free))(flat.reshape(-1, SIZE)))[1].reshape(2, 3)
    expected = multivariate_normal(MEAN, covariance_of(family)).logpdf(flat) - determinants
    got = posterior(family).log_prob(values)
    assert got.shape == (2, 3)
    np.testing.assert_allclose(got, expected, rtol=1e-8)
    one = posterior(family).log_prob(jax.tree.map(lambda a: a[0, 0], values))
    np.testing.assert_allclose(one, expected[0, 0], rtol=1e-8)


def test_log_prob_needs_every_site() -> None:
    """A missing one is named."""
    values = posterior().sample(KEY)
    del values["p"]
    with pytest.raises(ValueError, match="'p'"):
        posterior().log_prob(values)


PRIORS: dict[str, tuple[Any, tuple[float, float]]] = {
    "positive": (dist.HalfNormal(1.0), (0.0, np.inf)),
    "interval": (dist.Uniform(-1.0, 3.0), (-1.0, 3.0)),
}


@pytest.mark.parametrize("kind", PRIORS)
def test_log_prob_integrates_to_one(kind: str) -> None:
    """Over the latent's native space."""
    prior, (low, high) = PRIORS[kind]

    def model(y: Array) -> None:
        w = sample("w", prior)
        with numpyro.plate("rows", y.shape[0]):
            sample("y", dist.Normal(w, 1.0), obs=y)

    adf = adfpp.ADF(model)
    learned = adf.get_posterior(adf.update(adf.init(KEY, Y), Y)[0])
    log_prob = jax.jit(lambda w: learned.log_prob({"w": w}))
    mass = integrate.quad(lambda w: float(np.exp(log_prob(w))), low, high, epsabs=1e-10)[0]
    np.testing.assert_allclose(mass, 1.0, atol=1e-8)
    mean = integrate.quad(lambda w: w * float(np.exp(log_prob(w))), low, high, epsabs=1e-10)[0]
    np.testing.assert_allclose(learned.mean()["w"], mean, atol=1e-7)


def conjugate(x: Array, y: Array | None = None) -> None:
    """Gaussian in unconstrained space, a posteriori too, though its sites are positive and in a plate."""
    b = sample("b", dist.Normal(0.5, 1.0))
    s = sample("s", dist.LogNormal(np.array([0.1, -0.2]), 0.5).to_event(1))
    with numpyro.plate("pairs", 2):
        q = sample("q", dist.LogNormal(0.3, 0.4))
    with numpyro.plate("rows", x.shape[0]):
        sample("y", dist.Normal(x @ jnp.log(s) + x[:, 0] * jnp.log(q).sum() + b, 0.7), obs=y)


@cache
def learned() -> tuple[adfpp.Posterior, float]:
    """The posterior of the conjugate model, and the log evidence."""
    adf = adfpp.ADF(conjugate)
    state, info = adf.update(adf.init(KEY, X, y=Y), X, y=Y)
    return adf.get_posterior(state), float(np.sum(info.log_z))


def predictive_moments() -> tuple[np.ndarray, np.ndarray]:
    """Exact predictive mean and sd of y."""
    design = np.concatenate([np.ones((8, 1)), X, X[:, :1], X[:, :1]], 1)
    mean, root = learned()[0].belief
    covariance = design @ np.asarray(root @ root.T) @ design.T
    return design @ np.asarray(mean), np.sqrt(np.diag(covariance) + 0.49)


@pytest.mark.parametrize("way", ["guide", "posterior_samples"])
def test_predictive(way: str) -> None:
    """Both ways into NumPyro's Predictive give the predictive distribution."""
    count = 4000
    post, _ = learned()
    if way == "guide":
        predictive = Predictive(conjugate, guide=post.guide(), num_samples=count)
    else:
        predictive = Predictive(conjugate, posterior_samples=post.sample(jax.random.key(7), (count,)))
    y = np.asarray(predictive(jax.random.key(8), X)["y"])
    mean, sd = predictive_moments()
    assert y.shape == (count, 8)
    np.testing.assert_array_less(np.abs(y.mean(0) - mean), 5 * sd / np.sqrt(count))
    np.testing.assert_array_less(np.abs(y.std(0) / sd - 1), 5 / np.sqrt(2 * count))


def test_guide_hands_out_the_latent_sites() -> None:
    """Predictive of the guide alone gives draws like the posterior's, with the density of ``log_prob``."""
    guide = posterior().guide()
    draws = Predictive(guide, num_samples=4000)(jax.random.key(9))
    latents = {name: np.asarray(draws[name]) for name in SHAPES}
    assert {name: value.shape[1:] for name, value in latents.items()} == SHAPES
    flat = unconstrained(latents)
    np.testing.assert_array_less(np.abs(flat.mean(0) - MEAN), 5 * np.sqrt(np.diag(covariance_of("full")) / 4000))
    at = MEAN + 0.3
    joint, visited = log_density(guide, (), {}, {"_adfpp_latent": jnp.asarray(at)})
    values = {name: visited[name]["value"] for name in SHAPES}
    np.testing.assert_allclose(joint, posterior().log_prob(values), rtol=1e-10)


def test_guide_in_the_elbo() -> None:
    """Where the posterior is exact the ELBO is the evidence, for every single particle."""
    post, evidence = learned()
    for seed in (0, 1):
        loss = Trace_ELBO(num_particles=3).loss(jax.random.key(seed), {}, conjugate, post.guide(), X, y=Y)
        np.testing.assert_allclose(np.asarray(loss), -evidence, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_guide_of_every_family_runs_in_the_elbo(family: str) -> None:
    """Any kind of site, any family: finite, and below no bound but its own."""
    loss = Trace_ELBO(num_particles=2).loss(KEY, {}, every_kind, posterior(family).guide(), X, y=Y)
    assert np.isfinite(np.asarray(loss))


@pytest.mark.slow
def test_init_strategy_starts_at_the_mean() -> None:
    """NUTS begins where the posterior is centred."""
    strategy = posterior().init_strategy()
    info = initialize_model(
        jax.random.key(3), every_kind, init_strategy=strategy, model_args=(X,), model_kwargs={"y": Y}
    )
    start = info.param_info.z
    flat = np.concatenate([np.ravel(start[name]) for name in SHAPES])
    np.testing.assert_allclose(flat, MEAN, atol=1e-8)


def test_a_state_of_another_model() -> None:
    """It has another length, and is refused."""
    adf, _ = adf_and_state("full")
    _, half = first_half("full")
    with pytest.raises(adfpp.ModelError, match="another"):
        adf.get_posterior(half)


def test_posterior_of_a_product(pair: Pair) -> None:
    """Density, quantiles, moments and evidence, against the conjugate formulas."""
    post, (coins, z) = pair.result.posterior, pair.data.values()
    at, heads = np.array([0.2, 0.5, 0.7]), coins.sum()
    expected = pair.rate.logpdf(at) + pair.mean.logpdf(at - 0.1)
    np.testing.assert_allclose(post.log_prob({"p": at, "w": at - 0.1}), expected, atol=1e-6)
    np.testing.assert_allclose(post.quantile([0.05, 0.5])["p"], pair.rate.ppf([0.05, 0.5]), rtol=1e-6)
    summary = post.summary()
    for name, exact in (("p", pair.rate), ("w", pair.mean)):
        moments = summary.loc[name, ["mean", "sd"]].astype(float)
        np.testing.assert_allclose(moments, [exact.mean(), exact.std()], rtol=1e-6)
    weighted = post.reweighted(jax.random.key(1), **pair.data)
    normal: Any = stats.multivariate_normal
    evidence = betaln(2 + heads, 3 + len(coins) - heads) - betaln(2, 3)
    evidence += normal.logpdf(z, np.zeros(len(z)), np.eye(len(z)) + 4.0)
    assert weighted.log_evidence == pytest.approx(evidence, abs=1e-6) and weighted.ess > 1999


@pytest.mark.slow
def test_nuts_begins_at_a_product(beta: Any, coins: Any) -> None:
    """The strategy gives a value of the latent that NUTS can begin at."""
    post = beta.posterior
    mcmc = MCMC(
        NUTS(beta_bernoulli, init_strategy=post.init_strategy()), num_warmup=0, num_samples=1, progress_bar=False
    )
    mcmc.warmup(KEY, coins, collect_warmup=False)
    reached: Any = mcmc.post_warmup_state
    p = jax.nn.sigmoid(reached.z["p"])
    assert abs(float(p) - float(post.quantile(0.5)["p"])) < 1e-6


def test_predictive_takes_guide_and_draws(ising_results: Any, ising: Any) -> None:
    post, x = ising_results["adf"].posterior, ising["x"]
    p = np.asarray(post.mean()["sign"], float)
    bits = np.array(list(itertools.product([0.0, 1.0], repeat=6)))
    weights = np.exp(bits @ np.log(p) + (1 - bits) @ np.log1p(-p))
    expected = weights @ stats.norm.cdf((2 * bits - 1) @ x.T / ISING_NOISE)
    guided = Predictive(ising_perceptron.model, guide=post.guide(), num_samples=2000)(
        jax.random.key(1), x, noise=ISING_NOISE
    )
    draws = post.sample(jax.random.key(2), (2000,))
    assert draws["sign"].dtype.kind == "i"
    given = Predictive(ising_perceptron.model, posterior_samples=draws)(jax.random.key(3), x, noise=ISING_NOISE)
    for found in (guided, given):
        assert np.abs(np.asarray(found["y"]).mean(0) - expected).max() < 5 * 0.5 / np.sqrt(2000)
