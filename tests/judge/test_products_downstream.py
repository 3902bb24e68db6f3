"""What comes after a product belief: comparison, self-check, export, checkpoint, pictures, command line.

Discrete posteriors are enumerated here in NumPy, others are conjugate or sampled by a Gibbs sampler of a few lines.
"""

import itertools
import re
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from scipy import stats
from scipy.special import betaln, logsumexp

import adfpp
from adfpp.cli import UsageError, main
from adfpp.cli.inputs import family_of as parsed_family
from adfpp.engine.dynamics import RandomWalk
from adfpp.engine.tilt import moments_named
from adfpp.io import checkpoint
from adfpp.io.checkpoint import CheckpointError
from adfpp.io.fingerprint import probes as probes_of
from adfpp.judge.compare import compare
from adfpp.judge.references import kind_of
from adfpp.judge.runs import fit_draws, fit_svi
from adfpp.learn.stream import NotConverged
from adfpp.model import read
from adfpp.model.discrete import combinations
from adfpp.show import arviz_versions
from models import ising_perceptron, unknown_noise

KEY = jax.random.key(0)
NOISE = 0.5


class Exact(NamedTuple):
    """A posterior over bits, enumerated."""

    bits: np.ndarray
    log_weights: np.ndarray
    log_lik: np.ndarray
    log_evidence: float

    @property
    def mean(self) -> np.ndarray:
        return np.exp(self.log_weights) @ self.bits


def enumerated(x: np.ndarray, y: np.ndarray) -> Exact:
    bits = np.array(list(itertools.product([0.0, 1.0], repeat=x.shape[1])))
    log_lik = stats.norm.logcdf((2 * y - 1) * ((2 * bits - 1) @ x.T) / NOISE)  # (M, rows)
    log_joint = log_lik.sum(1) + x.shape[1] * np.log(0.5)
    log_evidence = float(np.asarray(logsumexp(log_joint)))
    return Exact(bits, log_joint - log_evidence, log_lik, log_evidence)


def beta_bernoulli(y: Any) -> None:
    p: Any = numpyro.sample("p", dist.Beta(2.0, 3.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)


@pytest.fixture(scope="module")
def ising() -> dict[str, Any]:
    data, _ = ising_perceptron.simulate(jax.random.key(0), 15, num_features=6, noise=NOISE)
    return data


@pytest.fixture(scope="module")
def exact(ising: Any) -> Exact:
    return enumerated(ising["x"], ising["y"])


@pytest.fixture(scope="module")
def learners() -> dict[str, Any]:
    return {"adf": adfpp.ADF(ising_perceptron.model), "ep": adfpp.EP(ising_perceptron.model)}


@pytest.fixture(scope="module")
def results(learners: Any, ising: Any) -> dict[str, Any]:
    return {name: learner.run(KEY, progress_bar=False, **ising) for name, learner in learners.items()}


@pytest.fixture(scope="module")
def comparison(learners: Any, ising: Any) -> Any:
    return compare(jax.random.key(1), learners, progress_bar=False, num_samples=2000, **ising)


@pytest.fixture(scope="module")
def coins() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 2, 20)


@pytest.fixture(scope="module")
def beta(coins: Any) -> Any:
    return adfpp.ADF(beta_bernoulli, family={"p": "beta"}).run(KEY, coins, progress_bar=False)


class Pair(NamedTuple):
    """A rate in its native space beside a Gaussian, both conjugate and independent of one another."""

    learner: Any
    data: dict[str, Any]
    result: Any
    rate: Any
    mean: Any

    def draws(self) -> dict[str, np.ndarray]:
        """Draws from the exact posterior."""
        rng = np.random.default_rng(5)
        return {"p": self.rate.rvs((4, 600), rng), "w": self.mean.rvs((4, 600), rng)}


def rate_and_mean(y: Any, z: Any) -> None:
    p: Any = numpyro.sample("p", dist.Beta(2.0, 3.0))
    w: Any = numpyro.sample("w", dist.Normal(0.0, 2.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)
        numpyro.sample("z", dist.Normal(w, 1.0), obs=z)


@pytest.fixture(scope="module")
def pair(coins: Any) -> Pair:
    z = 0.5 + np.random.default_rng(4).normal(size=len(coins))
    data = {"y": coins, "z": z}
    adf = adfpp.ADF(rate_and_mean, family={"p": "beta"})
    result = adf.run(KEY, progress_bar=False, snapshots=len(z), **data)
    rate: Any = stats.beta(2 + coins.sum(), 3 + len(coins) - coins.sum())
    precision = 0.25 + len(z)
    return Pair(adf, data, result, rate, stats.norm(z.sum() / precision, precision**-0.5))


@pytest.fixture(scope="module")
def regression() -> Any:
    data, _ = unknown_noise.simulate(jax.random.key(0), 30, num_features=2)
    adf = adfpp.ADF(unknown_noise.model, family={"precision": "gamma"})
    return adf, data, adf.run(KEY, progress_bar=False, snapshots=30, **data)


# ------------------------------------------------------------------------------------------------ comparison


def test_the_reference_of_discrete_latents_is_enumeration(comparison: Any, exact: Exact) -> None:
    truth = comparison.truth
    assert comparison.reference == "enumeration" and truth.method == "enumeration of 64 combinations"
    np.testing.assert_allclose(truth.mean, exact.mean, atol=1e-12)
    np.testing.assert_allclose(truth.sd**2, exact.mean * (1 - exact.mean), atol=1e-12)
    assert truth.log_evidence == pytest.approx(exact.log_evidence, abs=1e-10)
    assert comparison.problems == () and "all 64 combinations" in comparison.overview.loc["enumeration", "verdict"]
    # independent draws from it: each probability within 5 standard errors
    drawn = truth.scalars.reshape(-1, 6).mean(0)
    assert np.all(np.abs(drawn - exact.mean) < 5 * np.sqrt(exact.mean * (1 - exact.mean) / 2000) + 1e-3)
    np.testing.assert_array_equal(truth.quantiles(np.array([0.5]))[0], exact.mean > 0.5)
    # leave-one-out, by summing over all that θ can be
    left_out = -np.asarray(logsumexp(exact.log_weights[:, None] - exact.log_lik, axis=0))
    np.testing.assert_allclose(comparison.elpd["enumeration"].pointwise, left_out, atol=1e-10)


def test_errors_of_discrete_latents_are_in_probabilities(comparison: Any, exact: Exact, results: Any) -> None:
    p = np.asarray(results["adf"].posterior.mean()["sign"], float)
    found = comparison.parameters.loc["adf"]
    np.testing.assert_allclose(found["error"], 2 * (p - exact.mean), atol=1e-10)
    np.testing.assert_allclose(found["w1"], 2 * np.abs(p - exact.mean), atol=1e-10)
    assert exact.mean.min() < 1e-4  # where the reference's own sd would make nonsense of any error
    assert (found["mcse"] == 0).all() and found["sd_ratio"].isna().all()
    row = comparison.overview.loc["adf"]
    log_q = exact.bits @ np.log(p) + (1 - exact.bits) @ np.log1p(-p)
    kl = np.exp(exact.log_weights) @ (exact.log_weights - log_q)
    assert row["kl"] == pytest.approx(kl, rel=1e-8) and row["kl_mcse"] == 0
    assert np.isnan(row["k_hat"]) and np.isnan(row["sd_ratio_min"])
    assert row["verdict"].startswith(f"rough: probabilities within {np.abs(p - exact.mean).max():.2g}")
    assert "run EP or Gibbs sampling" in row["verdict"]
    assert comparison.overview.loc["ep", "verdict"].startswith("as good as the reference can tell: probabilities")
    assert "nan" not in repr(comparison).lower() and "Bernoulli" not in comparison.fits["adf"].method


def test_references_that_cannot_be_had(learners: Any, results: Any, ising: Any, coins: Any) -> None:
    ones = {"adf": learners["adf"]}
    with pytest.raises(ValueError, match='Latent \'sign\' is discrete, and NUTS .* reference="enumeration" or "gibbs"'):
        compare(KEY, ones, reference="nuts", progress_bar=False, **ising)
    with pytest.raises(ValueError, match="'reference' is an MCMC with NUTS.*'sign' is discrete"):
        mcmc = MCMC(NUTS(ising_perceptron.model), num_warmup=1, num_samples=1)
        compare(KEY, ones, reference=mcmc, progress_bar=False, **ising)
    svi = SVI(ising_perceptron.model, AutoNormal(ising_perceptron.model), numpyro.optim.Adam(0.1), Trace_ELBO())
    discrete = results["adf"].posterior.program
    with pytest.raises(ValueError, match="AutoNormal, which cannot hold a discrete latent.*'sign'"):
        fit_svi("svi", svi, discrete, KEY, (), ising, 10, 10)
    continuous = read(beta_bernoulli, (coins,), {}, None, moments_named("auto"))
    with pytest.raises(ValueError, match='cannot be enumerated: it has no discrete latent. Use reference="nuts"'):
        kind_of("enumeration", continuous)
    with pytest.raises(ValueError, match="'gibbs' samples discrete latents, and the model has none"):
        kind_of("gibbs", continuous)

    def dice(y: Any, z: Any) -> None:
        face: Any = numpyro.sample("face", dist.DiscreteUniform(1, 3))
        w: Any = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(1.0 * face, 1.0), obs=y)
            numpyro.sample("z", dist.Normal(w, 1.0), obs=z)

    mixed = read(dice, (np.zeros(2), np.zeros(2)), {}, None, moments_named("auto"))
    with pytest.raises(ValueError, match=re.escape("'face' has the values (1.0, 2.0, 3.0)") + ".* 0, 1, 2"):
        kind_of("gibbs", mixed)
    with pytest.raises(ValueError, match="cannot be enumerated: latent 'w' is continuous. Use reference=\"gibbs\""):
        kind_of("enumeration", mixed)
    assert [kind_of("auto", program) for program in (discrete, continuous, mixed)] == ["enumeration", "nuts", "gibbs"]


@pytest.mark.slow
def test_runs_that_hold_a_latent_in_different_spaces(coins: Any, beta: Any) -> None:
    """Weights are of densities over a run's own coordinates; divergences too."""
    runs = {"beta": beta.run.learner, "full": adfpp.ADF(beta_bernoulli)}
    found = compare(KEY, runs, coins, reference="beta", num_samples=4000, progress_bar=False)
    heads = coins.sum()
    evidence = betaln(2 + heads, 3 + len(coins) - heads) - betaln(2, 3)
    assert found.fits["beta"].log_evidence == pytest.approx(evidence, abs=1e-6)
    for name in runs:
        assert found.reweighted[name].log_evidence == pytest.approx(evidence, abs=0.02)
        assert found.overview.loc[name, "k_hat"] < 0.7
    row = found.overview.loc["full"]
    assert row["error_max"] < 0.15 and row["kl"] < 0.02 and 0.95 < row["sd_ratio_min"] < 1.05
    assert found.fits["beta"].method == "ADF, beta of p"
    p = found.fits["full"].draws["p"].reshape(-1, 1)
    np.testing.assert_allclose(found.fits["full"].in_space_of(found.joint.program), p, rtol=1e-12)


def test_native_latents_against_given_draws(pair: Pair) -> None:
    """Mean, sd, errors and divergence of a rate in its native space, against the exact posterior and draws from it."""
    draws = pair.draws()
    found = compare(KEY, {"adf": pair.learner}, reference=draws, num_samples=1000, progress_bar=False, **pair.data)
    parameters = found.parameters.loc["adf"]
    for name, exact in (("p", pair.rate), ("w", pair.mean)):
        assert parameters.loc[name, "mean"] == pytest.approx(exact.mean(), rel=1e-6)
        assert parameters.loc[name, "sd"] == pytest.approx(exact.std(), rel=1e-6)
        theirs = draws[name].mean(), draws[name].std(ddof=1)
        assert parameters.loc[name, "error"] == pytest.approx((exact.mean() - theirs[0]) / theirs[1], abs=1e-6)
        assert parameters.loc[name, "sd_ratio"] == pytest.approx(exact.std() / theirs[1], rel=1e-6)
    mean, covariance = found.fits["adf"].unconstrained
    np.testing.assert_allclose(mean, [pair.rate.mean(), pair.mean.mean()], rtol=1e-6)
    np.testing.assert_allclose(covariance, np.diag([pair.rate.var(), pair.mean.var()]), rtol=1e-6)
    row = found.overview.loc["adf"]
    assert row["kl"] < 4 * row["kl_mcse"] and row["k_hat"] < 0.5 and row["error_max"] < 4 * row["error_max_mcse"]
    assert row["method"] == "ADF, product: beta of p; full Gaussian of w"
    assert len(found.plot("forest").axes) == 1
    with pytest.raises(ValueError, match="There are no probabilities to draw"):
        found.plot("probabilities")


@pytest.mark.slow
def test_a_precision_in_its_native_space_against_given_draws(regression: Any) -> None:
    """Conjugate Gibbs sampling in NumPy: w given the precision is Gaussian, the precision given w is Gamma."""
    adf, data, result = regression
    x, y = data["x"], data["y"]
    rng, chains, steps = np.random.default_rng(5), 4, 600
    tau, draws = np.full(chains, 2.0), {"w": np.zeros((chains, steps, 2)), "precision": np.zeros((chains, steps))}
    for t in range(-50, steps):
        inverse = np.linalg.inv(np.eye(2) / 4.0 + tau[:, None, None] * (x.T @ x))
        mean = np.einsum("cij,cj->ci", inverse, tau[:, None] * (x.T @ y))
        w = mean + np.einsum("cij,cj->ci", np.linalg.cholesky(inverse), rng.normal(size=(chains, 2)))
        tau = rng.gamma(2.0 + 0.5 * len(y), 1.0 / (1.0 + 0.5 * ((y - w @ x.T) ** 2).sum(1)))
        if t >= 0:
            draws["w"][:, t], draws["precision"][:, t] = w, tau
    found = compare(KEY, {"adf": adf}, reference=draws, num_samples=1000, progress_bar=False, **data)
    parameters = found.parameters.loc["adf"]
    held = np.asarray(result.state.belief.parts[1])[0]
    for name, value in (("mean", held[0] / held[1]), ("sd", np.sqrt(held[0]) / held[1])):
        assert parameters.loc["precision", name] == pytest.approx(value, rel=1e-9)
    theirs = draws["precision"].mean(), draws["precision"].std()
    assert parameters.loc["precision", "error"] == pytest.approx((held[0] / held[1] - theirs[0]) / theirs[1], abs=1e-3)
    row = found.overview.loc["adf"]
    assert np.isfinite(row[["error_max", "sd_ratio_min", "kl", "w1_max", "k_hat", "elpd"]].astype(float)).all()
    assert row["method"] == "ADF, product: full Gaussian of w; gamma of precision" and row["error_max"] < 0.5


@pytest.mark.slow
def test_gibbs_sampling_is_the_reference_of_what_is_too_large(
    learners: Any, ising: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {**ising, "x": ising["x"][:4], "y": ising["y"][:4]}  # which leave every bit open
    exact = enumerated(few["x"], few["y"])
    module = sys.modules["adfpp.judge.references"]
    monkeypatch.setattr(module, "combinations", lambda program: combinations(program, 63))  # one too few
    found = compare(KEY, {"ep": learners["ep"]}, num_samples=4000, num_warmup=100, progress_bar=False, **few)
    truth = found.truth
    assert found.reference == "gibbs" and truth.method == "DiscreteGibbs, 4 x 1000 draws"
    noise = np.array([se.sum() for se in truth.probability_se.values()])
    assert np.all(np.abs(2 * (truth.mean - exact.mean)) < 4 * noise)
    assert (noise > 0.8 * 2 * np.sqrt(exact.mean * (1 - exact.mean) / 4000)).all() and (noise < 0.1).all()
    np.testing.assert_array_equal(found.parameters.loc["ep"]["mcse"], noise)
    assert found.overview.loc["ep", "kl_mcse"] > 0 and found.overview.loc["ep", "verdict"].startswith(
        ("as good", "close")
    )
    with pytest.raises(ValueError, match="cannot be enumerated: there are more than 16384 combinations"):
        compare(KEY, {"ep": learners["ep"]}, reference="enumeration", progress_bar=False, **few)


@pytest.mark.slow
def test_gibbs_sampling_of_discrete_and_continuous_latents() -> None:
    """Against the sum over the discrete values of Gaussian posteriors."""

    def mixed(x: Any, y: Any) -> None:
        on: Any = numpyro.sample("on", dist.Bernoulli(0.5).expand([2]).to_event(1))
        prior: Any = dist.Categorical(jnp.array([0.2, 0.3, 0.5]))
        k: Any = numpyro.sample("k", prior)
        w: Any = numpyro.sample("w", dist.Normal(0, 1))
        shift = w + jnp.array([0.0, 0.6, 1.0])[k]
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ on + shift, 1.5), obs=y)

    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2))
    y = x @ [1.0, 0.0] + 0.5 + 1.5 * rng.normal(size=20)
    logs, means, values = [], [], []
    for a, b, k in itertools.product([0, 1], [0, 1], [0, 1, 2]):
        residual = y - x @ [a, b] - [0.0, 0.6, 1.0][k]
        covariance = 2.25 * np.eye(20) + 1.0
        inside = -0.5 * (residual @ np.linalg.solve(covariance, residual))
        logs.append(inside + np.log([0.2, 0.3, 0.5][k]))
        means.append(residual.sum() / 2.25 / (1.0 + 20 / 2.25))
        values.append((a, b, k))
    p = np.exp(np.array(logs) - float(np.asarray(logsumexp(logs))))
    runs = {"ep": adfpp.EP(mixed)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)
        found = compare(KEY, runs, x, y, num_samples=8000, num_warmup=300, progress_bar=False)
    truth = found.truth
    assert found.reference == "gibbs" and truth.method.startswith("DiscreteHMCGibbs")
    by_name = dict(zip(truth.names, truth.mean, strict=True))
    error = dict(zip(truth.names, truth.mcse * truth.sd, strict=True))
    wanted = {**dict(zip(("on[0]", "on[1]", "k"), p @ np.array(values), strict=True)), "w": p @ np.array(means)}
    for name, value in wanted.items():
        assert abs(by_name[name] - value) < 4.5 * error[name] + 1e-3, name
    assert np.isfinite(found.overview.loc["ep", ["error_max", "kl"]].astype(float)).all()
    levels = truth.log_probabilities[truth.names.index("k")]
    assert np.abs(np.exp(levels) - [p[[v[2] == k for v in values]].sum() for k in range(3)]).max() < 0.06


# ------------------------------------------------------------------------------------------------ self-check


def test_check_enumerates_where_it_can(learners: Any, results: Any, ising: Any, exact: Exact) -> None:
    found = adfpp.check(learners["adf"], results["adf"], progress_bar=False, orders=2, **ising)
    p = np.asarray(results["adf"].posterior.mean()["sign"], float)
    assert found.error == pytest.approx(2 * np.abs(p - exact.mean).max(), abs=1e-9)
    assert found.sd_ratio == (1.0, 1.0) and found.reweighted is not None and found.reweighted.exact
    np.testing.assert_allclose(found.reweighted.mean()["sign"], exact.mean, atol=1e-10)
    assert found.reweighted.log_evidence == pytest.approx(exact.log_evidence, abs=1e-10)
    assert found.verdict == "run EP" and "64 combinations" in str(found) and "NUTS" not in str(found)
    assert found.order_shift <= 2.0  # in half the range of the values, though a site's own sd is nearly 0
    found = adfpp.check(learners["ep"], results["ep"], progress_bar=False, **ising)
    assert found.verdict == "trust it" and found.error < 0.01 and len(found.pit) == 15


@pytest.mark.slow
def test_check_by_weights_says_what_they_cannot_tell() -> None:
    data, _ = ising_perceptron.simulate(jax.random.key(4), 40, num_features=16, noise=0.2)
    adf = adfpp.ADF(ising_perceptron.model)
    result = adf.run(KEY, progress_bar=False, **data)
    found = adfpp.check(adf, result, progress_bar=False, orders=0, num_samples=300, **data)
    assert found.reweighted is not None and not found.reweighted.exact and found.reweighted.unseen
    assert any("never drawn" in reason for reason in found.reasons) and "fair coin" in str(found)
    assert not any("NUTS" in reason for reason in found.reasons)


# ------------------------------------------------------------------------------------------------ posterior


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


def test_predictive_takes_guide_and_draws(results: Any, ising: Any) -> None:
    post, x = results["adf"].posterior, ising["x"]
    p = np.asarray(post.mean()["sign"], float)
    bits = np.array(list(itertools.product([0.0, 1.0], repeat=6)))
    weights = np.exp(bits @ np.log(p) + (1 - bits) @ np.log1p(-p))
    expected = weights @ stats.norm.cdf((2 * bits - 1) @ x.T / NOISE)
    guided = Predictive(ising_perceptron.model, guide=post.guide(), num_samples=2000)(jax.random.key(1), x, noise=NOISE)
    draws = post.sample(jax.random.key(2), (2000,))
    assert draws["sign"].dtype.kind == "i"
    given = Predictive(ising_perceptron.model, posterior_samples=draws)(jax.random.key(3), x, noise=NOISE)
    for found in (guided, given):
        assert np.abs(np.asarray(found["y"]).mean(0) - expected).max() < 5 * 0.5 / np.sqrt(2000)


# ------------------------------------------------------------------------------------------------ export


def test_export_of_discrete_latents(results: Any, ising: Any, exact: Exact) -> None:
    import arviz

    for name in ("adf", "ep"):
        data = adfpp.to_arviz(results[name], num_samples=200, trajectory=False, **ising)
        have = set(arviz_versions.groups(data))
        assert {"posterior", "prior", "posterior_predictive", "log_likelihood", "log_prior", "sample_stats"} <= have
        assert "unconstrained_posterior" not in have
        posterior = arviz_versions.group(data, "posterior")
        sign = posterior["sign"].values
        assert sign.dtype.kind == "i" and set(np.unique(sign)) <= {0, 1}
        np.testing.assert_array_equal(posterior["w"].values, 2 * sign - 1)
        at = (sign.reshape(-1, 6) @ 2 ** np.arange(5, -1, -1)).astype(int)
        sampled = arviz_versions.group(data, "sample_stats")
        log_p = exact.log_weights[at] + exact.log_evidence
        np.testing.assert_allclose(sampled["log_p"].values.ravel(), log_p, atol=1e-9)
        p = np.asarray(results[name].posterior.mean()["sign"], float)
        log_q = exact.bits[at] @ np.log(p) + (1 - exact.bits[at]) @ np.log1p(-p)
        np.testing.assert_allclose(sampled["log_q"].values.ravel(), log_q, atol=1e-7)
        log_lik = arviz_versions.group(data, "log_likelihood")["y"].values.reshape(200, 15)
        np.testing.assert_allclose(log_lik, exact.log_lik[at], atol=1e-9)
        np.testing.assert_allclose(arviz_versions.group(data, "log_prior")["sign"], 6 * np.log(0.5))
        assert arviz_versions.group(data, "prior")["sign"].values.std() > 0.4
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ArviZ divides by the variance of draws that do not move
            assert "sign[1]" in arviz.summary(data, var_names=["sign"]).index


def test_export_of_native_latents(pair: Pair) -> None:
    result, data = pair.result, pair.data
    found = adfpp.to_arviz(result, num_samples=200, **data)
    assert list(arviz_versions.group(found, "unconstrained_posterior").data_vars) == ["w"]
    p = arviz_versions.group(found, "posterior")["p"].values
    log_prior = arviz_versions.group(found, "log_prior")["p"].values
    prior: Any = stats.beta(2.0, 3.0)
    np.testing.assert_allclose(log_prior, prior.logpdf(p), rtol=1e-6)
    assert p.mean() == pytest.approx(pair.rate.mean(), abs=5 * pair.rate.std() / np.sqrt(200))
    assert 0 < p.min() and p.max() < 1
    path = arviz_versions.group(found, "trajectory")
    np.testing.assert_allclose(path["mean"].values[-1], [pair.rate.mean(), pair.mean.mean()], rtol=1e-6)
    assert arviz_versions.group(found, "posterior_predictive")["y"].shape[-1] == len(data["y"])


# ------------------------------------------------------------------------------------------------ checkpoint


def test_checkpoints_of_products(learners: Any, results: Any, ising: Any, pair: Pair, tmp_path: Path) -> None:
    for name in ("adf", "ep"):
        checkpoint.save(tmp_path / name, learners[name], results[name])
        state = checkpoint.load(tmp_path / name, learners[name], **ising).state
        for a, b in zip(jax.tree.leaves(state.belief), jax.tree.leaves(results[name].state.belief), strict=True):
            np.testing.assert_array_equal(a, b)
    checkpoint.save(tmp_path / "pair", pair.learner, pair.result)
    state = checkpoint.load(tmp_path / "pair", pair.learner, **pair.data).state
    for a, b in zip(jax.tree.leaves(state.belief), jax.tree.leaves(pair.result.state.belief), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_checkpoints_of_other_products_are_refused(coins: Any, beta: Any, tmp_path: Path) -> None:
    program = beta.posterior.program
    probes = probes_of(program)["values of site 'p'"]
    assert all(0 < value < 1 for value in probes)  # where its prior is finite
    path = tmp_path / "beta"
    checkpoint.save(path, beta.run.learner, beta)
    state = checkpoint.load(path, adfpp.ADF(beta_bernoulli, family={"p": "beta"}), coins).state
    np.testing.assert_array_equal(state.belief.parts[0], beta.state.belief.parts[0])
    with pytest.raises(CheckpointError, match="belongs to another learner.*family"):
        checkpoint.load(path, adfpp.ADF(beta_bernoulli), coins)

    def other_prior(y: Any) -> None:
        with numpyro.handlers.substitute(data={}):
            p: Any = numpyro.sample("p", dist.Beta(2.0, 3.5))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Bernoulli(p), obs=y)

    with pytest.raises(CheckpointError, match="log prior of latent 'p'"):
        checkpoint.load(path, adfpp.ADF(other_prior, family={"p": "beta"}), coins)

    def rate(y: Any) -> None:
        rate: Any = numpyro.sample("rate", dist.Gamma(3.0, 3.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Poisson(rate), obs=y)

    gamma, inverse = (adfpp.ADF(rate, family={"rate": name}) for name in ("gamma", "inverse_gamma"))
    checkpoint.save(path, gamma, gamma.init(KEY, coins))
    with pytest.raises(
        CheckpointError, match="'gamma' in the checkpoint and 'inverse_gamma' here|gamma.*inverse_gamma"
    ):
        checkpoint.load(path, inverse, coins)


# ------------------------------------------------------------------------------------------------ pictures


def test_pictures_of_discrete_latents(comparison: Any, exact: Exact, tmp_path: Path) -> None:
    figures = comparison.plot()
    assert list(figures) == ["marginals", "probabilities", "predictions", "learning"]
    axes = next(a for a in figures["marginals"].axes if a.get_title("left") == "sign[5]")
    heights = [bar.get_height() for bar in axes.patches]  # of the reference, of adf, of ep: first 0, then 1
    np.testing.assert_allclose(heights[:2], [1 - exact.mean[5], exact.mean[5]], atol=1e-9)
    assert len(heights) == 6
    dots = figures["probabilities"].axes[0].collections[0].get_offsets()
    np.testing.assert_allclose(np.asarray(dots)[:, 0], exact.mean, atol=1e-9)
    line = figures["learning"].axes[0].lines[-1].get_ydata()
    assert len(set(np.round(line, 6))) > 5  # means, which are no whole numbers
    with pytest.raises(ValueError, match='Intervals of discrete latents .* "probabilities"'):
        comparison.plot("forest")
    page = comparison.report(tmp_path / "report.html").read_text()
    assert "enumeration of 64 combinations" in page and "total variation" in page


def test_draws_that_never_move_are_known_to_one_draw(learners: Any, results: Any) -> None:
    program = results["adf"].posterior.program
    sign = np.zeros((2, 100, 6), int)
    sign[0, :, 1] = 1  # each chain holds it at another value
    sign[:, ::2, 2] = 1
    fit = fit_draws("stuck", {"sign": sign}, program)
    assert fit.r_hat[0] == 1.0 and fit.ess[0] == 200 and not fit.r_hat[1] <= 1.01
    np.testing.assert_allclose(fit.probability_se[0], [1 / 200, 1 / 200])
    np.testing.assert_allclose(np.exp(fit.log_probabilities[2]), [0.5, 0.5])


# ------------------------------------------------------------------------------------- command line, smoothing


def test_command_line_by_site(coins: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert parsed_family("diagonal") == "diagonal"
    assert parsed_family("precision=gamma, sign=bernoulli") == {"precision": "gamma", "sign": "bernoulli"}
    for text, words in (("round", "--family round: it is one of"), ("p=betta", "Did you mean 'beta'"), ("p=", "like")):
        with pytest.raises(UsageError, match=words):
            parsed_family(text)
    with pytest.raises(UsageError, match="'p' twice"):
        parsed_family("p=beta,p=full")
    (tmp_path / "m.py").write_text(
        "import numpyro, numpyro.distributions as dist\n"
        "def model(y):\n"
        "    p = numpyro.sample('p', dist.Beta(2.0, 3.0))\n"
        "    with numpyro.plate('rows', y.shape[0]):\n"
        "        numpyro.sample('y', dist.Bernoulli(p), obs=y)\n"
    )
    (tmp_path / "d.csv").write_text("y\n" + "\n".join(map(str, coins)) + "\n")
    words = ["stream", str(tmp_path / "m.py"), "--data", str(tmp_path / "d.csv"), "--rows", "y=y:int"]
    assert main([*words, "--family", "p=beta", "--checkpoint", str(tmp_path / "c")]) == 0
    mean = (2 + coins.sum()) / (5 + len(coins))
    assert f"p  {mean:.2f}" in capsys.readouterr().out
    assert main([*words, "--checkpoint", str(tmp_path / "c")]) == 0  # remembered
    assert f"p  {mean:.2f}" in capsys.readouterr().out


def test_products_are_not_smoothed(ising: Any, coins: Any) -> None:
    with pytest.raises(ValueError, match=r"stores a product \(p: beta\)"):
        adfpp.smooth(adfpp.ADF(beta_bernoulli, family={"p": "beta"}, dynamics=RandomWalk(0.1)), coins)
    with pytest.raises(ValueError, match=r"stores a product \(sign: bernoulli\).*cannot be smoothed"):
        adfpp.smooth(adfpp.ADF(ising_perceptron.model, dynamics=RandomWalk(0.1)), **ising)
