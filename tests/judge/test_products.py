"""Comparison and self-check of products and discrete latents.

Discrete posteriors are enumerated here in NumPy, others are conjugate or sampled by a Gibbs sampler of a few lines.
"""

import itertools
import re
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from scipy.special import betaln, logsumexp

import adfpp
from adfpp.engine.tilt import moments_named
from adfpp.judge.compare import compare
from adfpp.judge.references import kind_of
from adfpp.judge.runs import fit_draws, fit_svi
from adfpp.learn.stream import NotConverged
from adfpp.model import read
from adfpp.model.discrete import combinations
from models import ising_perceptron, unknown_noise
from tests.products import (
    Enumerated,
    Pair,
    beta_bernoulli,
    enumerated,
)

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def noisy_regression() -> Any:
    data, _ = unknown_noise.simulate(jax.random.key(0), 30, num_features=2)
    adf = adfpp.ADF(unknown_noise.model, family={"precision": "gamma"})
    return adf, data, adf.run(KEY, progress_bar=False, snapshots=30, **data)


def test_the_reference_of_discrete_latents_is_enumeration(ising_comparison: Any, exact_ising: Enumerated) -> None:
    truth = ising_comparison.truth
    assert ising_comparison.reference == "enumeration" and truth.method == "enumeration of 64 combinations"
    np.testing.assert_allclose(truth.mean, exact_ising.mean, atol=1e-12)
    np.testing.assert_allclose(truth.sd**2, exact_ising.mean * (1 - exact_ising.mean), atol=1e-12)
    assert truth.log_evidence == pytest.approx(exact_ising.log_evidence, abs=1e-10)
    assert (
        ising_comparison.problems == ()
        and "all 64 combinations" in ising_comparison.overview.loc["enumeration", "verdict"]
    )
    # independent draws from it: each probability within 5 standard errors
    drawn = truth.scalars.reshape(-1, 6).mean(0)
    assert np.all(
        np.abs(drawn - exact_ising.mean) < 5 * np.sqrt(exact_ising.mean * (1 - exact_ising.mean) / 2000) + 1e-3
    )
    np.testing.assert_array_equal(truth.quantiles(np.array([0.5]))[0], exact_ising.mean > 0.5)
    # leave-one-out, by summing over all that θ can be
    left_out = -np.asarray(logsumexp(exact_ising.log_weights[:, None] - exact_ising.log_lik, axis=0))
    np.testing.assert_allclose(ising_comparison.elpd["enumeration"].pointwise, left_out, atol=1e-10)


def test_errors_of_discrete_latents_are_in_probabilities(
    ising_comparison: Any, exact_ising: Enumerated, ising_results: Any
) -> None:
    p = np.asarray(ising_results["adf"].posterior.mean()["sign"], float)
    found = ising_comparison.parameters.loc["adf"]
    np.testing.assert_allclose(found["error"], 2 * (p - exact_ising.mean), atol=1e-10)
    np.testing.assert_allclose(found["w1"], 2 * np.abs(p - exact_ising.mean), atol=1e-10)
    assert exact_ising.mean.min() < 1e-4  # where the reference's own sd would make nonsense of any error
    assert (found["mcse"] == 0).all() and found["sd_ratio"].isna().all()
    row = ising_comparison.overview.loc["adf"]
    log_q = exact_ising.bits @ np.log(p) + (1 - exact_ising.bits) @ np.log1p(-p)
    kl = np.exp(exact_ising.log_weights) @ (exact_ising.log_weights - log_q)
    assert row["kl"] == pytest.approx(kl, rel=1e-8) and row["kl_mcse"] == 0
    assert np.isnan(row["k_hat"]) and np.isnan(row["sd_ratio_min"])
    assert row["verdict"].startswith(f"rough: probabilities within {np.abs(p - exact_ising.mean).max():.2g}")
    assert "run EP or Gibbs sampling" in row["verdict"]
    assert ising_comparison.overview.loc["ep", "verdict"].startswith("as good as the reference can tell: probabilities")
    assert "nan" not in repr(ising_comparison).lower() and "Bernoulli" not in ising_comparison.fits["adf"].method


def test_references_that_cannot_be_had(ising_learners: Any, ising_results: Any, ising: Any, coins: Any) -> None:
    ones = {"adf": ising_learners["adf"]}
    with pytest.raises(ValueError, match='Latent \'sign\' is discrete, and NUTS .* reference="enumeration" or "gibbs"'):
        compare(KEY, ones, reference="nuts", progress_bar=False, **ising)
    with pytest.raises(ValueError, match="'reference' is an MCMC with NUTS.*'sign' is discrete"):
        mcmc = MCMC(NUTS(ising_perceptron.model), num_warmup=1, num_samples=1)
        compare(KEY, ones, reference=mcmc, progress_bar=False, **ising)
    svi = SVI(ising_perceptron.model, AutoNormal(ising_perceptron.model), numpyro.optim.Adam(0.1), Trace_ELBO())
    discrete = ising_results["adf"].posterior.program
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


@pytest.mark.slow
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
def test_a_precision_in_its_native_space_against_given_draws(noisy_regression: Any) -> None:
    """Conjugate Gibbs sampling in NumPy: w given the precision is Gaussian, the precision given w is Gamma."""
    adf, data, result = noisy_regression
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
    ising_learners: Any, ising: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {**ising, "x": ising["x"][:4], "y": ising["y"][:4]}  # which leave every bit open
    exact = enumerated(few["x"], few["y"])
    module = sys.modules["adfpp.judge.references"]
    monkeypatch.setattr(module, "combinations", lambda program: combinations(program, 63))  # one too few
    found = compare(KEY, {"ep": ising_learners["ep"]}, num_samples=4000, num_warmup=100, progress_bar=False, **few)
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
        compare(KEY, {"ep": ising_learners["ep"]}, reference="enumeration", progress_bar=False, **few)


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


def test_check_enumerates_where_it_can(
    ising_learners: Any, ising_results: Any, ising: Any, exact_ising: Enumerated
) -> None:
    found = adfpp.check(ising_learners["adf"], ising_results["adf"], progress_bar=False, orders=2, **ising)
    p = np.asarray(ising_results["adf"].posterior.mean()["sign"], float)
    assert found.error == pytest.approx(2 * np.abs(p - exact_ising.mean).max(), abs=1e-9)
    assert found.sd_ratio == (1.0, 1.0) and found.reweighted is not None and found.reweighted.exact
    np.testing.assert_allclose(found.reweighted.mean()["sign"], exact_ising.mean, atol=1e-10)
    assert found.reweighted.log_evidence == pytest.approx(exact_ising.log_evidence, abs=1e-10)
    assert found.verdict == "run EP" and "64 combinations" in str(found) and "NUTS" not in str(found)
    assert found.order_shift <= 2.0  # in half the range of the values, though a site's own sd is nearly 0
    found = adfpp.check(ising_learners["ep"], ising_results["ep"], progress_bar=False, **ising)
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


def test_draws_that_never_move_are_known_to_one_draw(ising_learners: Any, ising_results: Any) -> None:
    program = ising_results["adf"].posterior.program
    sign = np.zeros((2, 100, 6), int)
    sign[0, :, 1] = 1  # each chain holds it at another value
    sign[:, ::2, 2] = 1
    fit = fit_draws("stuck", {"sign": sign}, program)
    assert fit.r_hat[0] == 1.0 and fit.ess[0] == 200 and not fit.r_hat[1] <= 1.01
    np.testing.assert_allclose(fit.probability_se[0], [1 / 200, 1 / 200])
    np.testing.assert_allclose(np.exp(fit.log_probabilities[2]), [0.5, 0.5])
