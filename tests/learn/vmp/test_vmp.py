"""VMP against exact answers, enumeration and the textbook's updates."""

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import adfpp
from tests.learn.vmp import models
from tests.learn.vmp.models import KEY, parts_of


@pytest.mark.slow
def test_one_gaussian_block_gives_the_evidence() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(25, 2)), rng.normal(size=25)
    vmp = adfpp.VMP(models.linear)
    result = vmp.run(KEY, x, y=y, progress_bar=False)
    wide = np.column_stack([x, np.ones(25)])
    prior = np.diag([4.0, 4.0, 9.0])
    covariance: Any = wide @ prior @ wide.T + 0.49 * np.eye(25)
    exact = stats.multivariate_normal(np.ones(25), covariance).logpdf(y)
    np.testing.assert_allclose(result.log_evidence, exact, rtol=1e-11)
    posterior = np.linalg.inv(np.linalg.inv(prior) + wide.T @ wide / 0.49)
    draws_mean = posterior @ (wide.T @ y / 0.49 + [0, 0, 1 / 9])
    mean = vmp.get_posterior(result).mean()
    np.testing.assert_allclose([*mean["w"], mean["b"]], draws_mean, rtol=1e-9)
    assert result.info.converged and result.info.residual < 1e-8


def beta_bernoulli(y: Any) -> None:
    p: Any = numpyro.sample("p", dist.Beta(2.0, 3.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=p), obs=y)


def gamma_poisson(y: Any) -> None:
    rate: Any = numpyro.sample("rate", dist.Gamma(2.0, 3.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def dirichlet_categorical(y: Any) -> None:
    p: Any = numpyro.sample("p", dist.Dirichlet(jnp.array([0.5, 1.0, 2.0])))
    with numpyro.plate("rows", y.shape[0]):
        likelihood: Any = dist.Categorical(probs=p)
        numpyro.sample("y", likelihood, obs=y)


def variance(y: Any) -> None:
    v: Any = numpyro.sample("v", dist.InverseGamma(3.0, 2.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(0.5, jnp.sqrt(v)), obs=y)


def _exact_beta(y: np.ndarray) -> float:
    return special.betaln(2 + y.sum(), 3 + len(y) - y.sum()) - special.betaln(2, 3)


def _exact_gamma(y: np.ndarray) -> float:
    a, b = 2 + y.sum(), 3 + len(y)
    return special.gammaln(a) - a * np.log(b) - special.gammaln(2) + 2 * np.log(3) - special.gammaln(y + 1).sum()


def _exact_dirichlet(y: np.ndarray) -> float:
    prior = np.array([0.5, 1.0, 2.0])
    after = prior + np.bincount(y, minlength=3)
    return sum(s * (special.gammaln(a).sum() - special.gammaln(a.sum())) for s, a in ((1, after), (-1, prior)))


def _exact_variance(y: np.ndarray) -> float:
    a, b = 3 + len(y) / 2, 2 + 0.5 * ((y - 0.5) ** 2).sum()
    const = 3 * np.log(2) - special.gammaln(3) - len(y) / 2 * np.log(2 * np.pi)
    return special.gammaln(a) - a * np.log(b) + const


@pytest.mark.parametrize(
    ("model", "exact", "y"),
    [
        pytest.param(beta_bernoulli, _exact_beta, np.array([1, 0, 0, 1, 1, 1, 0]), marks=pytest.mark.slow),
        (gamma_poisson, _exact_gamma, np.array([0, 3, 2, 7])),
        pytest.param(dirichlet_categorical, _exact_dirichlet, np.array([0, 2, 2, 1, 2]), marks=pytest.mark.slow),
        pytest.param(variance, _exact_variance, np.array([0.1, -2.0, 1.3, 0.7]), marks=pytest.mark.slow),
    ],
)
def test_one_native_part_gives_the_evidence(
    model: Callable[..., None], exact: Callable[[np.ndarray], float], y: np.ndarray
) -> None:
    result = adfpp.VMP(model).run(KEY, y, progress_bar=False)
    np.testing.assert_allclose(result.log_evidence, exact(y), rtol=1e-11)


@pytest.mark.slow
def test_bound_is_below_the_evidence_by_enumeration() -> None:
    y = models.clusters()[:5]
    result = adfpp.VMP(models.mixture).run(KEY, y, components=2, progress_bar=False)

    def of_component(rows: np.ndarray) -> float:
        """Integral over the mean exactly, over the precision by quadrature."""
        tau, w = stats.gamma(2.0, scale=1 / 3.0), np.polynomial.legendre.leggauss(400)
        t = tau.ppf(0.5 * (w[0] + 1.0))
        n = len(rows)
        total = np.zeros(len(t))
        for column in rows.T:
            covariance = 1 / t[:, None, None] * np.eye(n) + 100.0
            _, logdet = np.linalg.slogdet(covariance)
            quad = np.einsum("i,tij,j->t", column, np.linalg.inv(covariance), column)
            total += -0.5 * (quad + logdet + n * np.log(2 * np.pi))
        return float(np.log(0.5 * w[1] @ np.exp(total)))

    terms = []
    for z in itertools.product([0, 1], repeat=len(y)):
        counts = np.bincount(z, minlength=2)
        log_p = special.betaln(*(1.5 + counts)) - special.betaln(1.5, 1.5)
        terms.append(log_p + sum(of_component(y[np.array(z) == k]) for k in (0, 1) if counts[k]))
    exact = float(np.logaddexp.reduce(terms))
    assert exact - 3.0 < result.log_evidence < exact


@pytest.mark.slow
def test_principal_components_tend_to_maximum_likelihood() -> None:
    rng = np.random.default_rng(5)
    y = rng.normal(size=(400, 2)) @ (3.0 * rng.normal(size=(2, 4))) + 0.5 * rng.normal(size=(400, 4))
    vmp = adfpp.VMP(models.ppca, tol=1e-5)
    result = vmp.run(KEY, y, progress_bar=False)
    values, vectors = np.linalg.eigh(y.T @ y / len(y))
    noise = values[:2].mean()  # Tipping and Bishop (1999), equations 7 and 8
    exact = (vectors[:, 2:] * (values[2:] - noise)) @ vectors[:, 2:].T
    mean = vmp.get_posterior(result).mean()
    w = np.asarray(mean["w"])
    # the approximation is off by terms of the order 1/n
    np.testing.assert_allclose(w @ w.T, exact, rtol=0.02, atol=0.02 * np.abs(exact).max())
    np.testing.assert_allclose(1.0 / mean["tau"], noise, rtol=0.02)


@pytest.mark.slow
def test_rows_with_nan_are_refused_and_counted() -> None:
    y = np.random.default_rng(3).normal(2.0, 0.5, 40)
    vmp = adfpp.VMP(models.normal, tol=1e-9)
    broken = np.where(np.arange(40) < 38, y, [np.nan, np.inf] * 20)
    with pytest.warns(adfpp.RowsMarked, match="2 of 40 rows"):
        result = vmp.run(KEY, broken, progress_bar=False)
    assert list(result.info.status[-2:]) == [adfpp.Status.NOT_FINITE] * 2 and int(result.state.rows) == 38
    assert not result.info.log_z[-2:].any()
    rate = float(vmp.get_posterior(result).mean()["tau"])
    np.testing.assert_allclose(np.asarray(parts_of(vmp, result.state)["tau"])[0, 0], 2.0 + 38 / 2)
    np.testing.assert_allclose(1.0 / rate, y[:38].var(), rtol=0.3)
    with pytest.raises(adfpp.ModelError, match="None of the 40 rows"):
        vmp.run(KEY, np.full(40, np.nan), progress_bar=False)


def test_model_that_is_not_conjugate_is_refused_by_name() -> None:
    def model(x: Any, y: Any = None) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([x.shape[-1]]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)

    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(8, 2)), np.arange(8) % 2
    vmp = adfpp.VMP(model)
    with pytest.raises(adfpp.ModelError, match=r"not conjugate in w: .*adfpp\.EP"):
        vmp.run(KEY, x, y=y, progress_bar=False)
    plan = vmp.explain(x, y=y)
    assert not plan.conjugate and "NO, residual" in str(plan)


@pytest.mark.slow
def test_float32(float32: None) -> None:
    y = models.clusters().astype(np.float32)
    vmp = adfpp.VMP(models.mixture)
    result = vmp.run(KEY, y, progress_bar=False)
    parts = parts_of(vmp, result.state)
    assert parts["tau"].dtype == np.float32 and result.info.converged
    gamma, scale = np.asarray(parts["tau"], float), np.asarray(parts["mu"].scale, float)
    book = models.TextbookMixture(
        np.asarray(y, float),
        np.asarray(parts["weights"], float)[0],
        np.asarray(parts["mu"].mean, float).reshape(3, 2),
        (scale**2).reshape(3, 2),
        gamma[:, 0],
        gamma[:, 1],
    )
    before = book.bound()
    np.testing.assert_allclose(result.log_evidence, before, rtol=1e-5)
    for _ in range(50):
        book.sweep()
    assert book.bound() - before < 0.01  # the float32 run has found the fixed point to a hundredth of a nat


@pytest.mark.slow
def test_stream_of_an_exact_model_ends_where_a_run_does() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(24, 2)), rng.normal(size=24)
    vmp = adfpp.VMP(models.linear, tol=1e-12)
    whole = vmp.get_posterior(vmp.run(KEY, x, y=y, progress_bar=False))
    state = vmp.init(KEY, x[:8], y=y[:8])
    for i in (0, 8, 16):
        state, info = vmp.update(state, x[i : i + 8], y=y[i : i + 8])
        assert (info.status == adfpp.Status.OK).all() and info.log_z.shape == (8,)
    assert int(state.rows) == 24
    for name, mean in vmp.get_posterior(state).mean().items():
        np.testing.assert_allclose(mean, whole.mean()[name], rtol=1e-9)
        np.testing.assert_allclose(vmp.get_posterior(state).sd()[name], whole.sd()[name], rtol=1e-9)
    same, info = vmp.update(state, x[:8], y=np.full(8, np.nan))
    assert same is state and (info.status == adfpp.Status.NOT_FINITE).all()


@pytest.mark.slow
def test_natural_gradient_steps_on_minibatches_settle_at_the_result_of_a_run() -> None:
    y = np.random.default_rng(3).normal(2.0, 0.5, 40)
    vmp = adfpp.VMP(models.normal, tol=1e-9)
    whole = vmp.get_posterior(vmp.run(KEY, y, progress_bar=False))
    state, rng = vmp.init(KEY, y[:20]), np.random.default_rng(0)
    for _ in range(200):
        order = rng.permutation(40)
        for half in (order[:20], order[20:]):
            state, _ = vmp.update(state, y[half], total=40)
    post = vmp.get_posterior(state)
    # the noise of the last steps, of size 400^-0.7 = 0.015, is all that is left
    np.testing.assert_allclose(post.mean()["mu"], whole.mean()["mu"], atol=0.1 * float(whole.sd()["mu"]))
    np.testing.assert_allclose(post.mean()["tau"], whole.mean()["tau"], atol=0.1 * float(whole.sd()["tau"]))
    np.testing.assert_allclose(post.sd()["mu"], whole.sd()["mu"], rtol=0.02)
    with pytest.raises(ValueError, match="total=3"):
        vmp.update(state, y[:20], total=3)


@pytest.mark.slow
def test_predictions_are_those_of_the_posterior() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(24, 2)), rng.normal(size=24)
    vmp = adfpp.VMP(models.linear)
    result = vmp.run(KEY, x, y=y, progress_bar=False)
    found = vmp.predict(result, x[:5], num_samples=20_000)["y"]
    mean, block = vmp.get_posterior(result).mean(), np.asarray(result.state.belief.parts[0].scale[0])
    wide = np.column_stack([x[:5], np.ones(5)])
    sd = np.sqrt(((wide @ block) ** 2).sum(1) + 0.49)
    np.testing.assert_allclose(found.mean, wide @ [*mean["w"], mean["b"]], atol=5 * 0.8 / np.sqrt(20_000))
    np.testing.assert_allclose(found.sd, sd, rtol=0.03)
    given = vmp.predict(result, x[:5], y=y[:5], num_samples=20_000)["y"]  # observed values are not used
    np.testing.assert_array_equal(given.draws, found.draws)


@pytest.mark.slow
def test_state_is_saved_pickled_exported_and_checked(tmp_path: Path) -> None:
    y = np.random.default_rng(3).normal(2.0, 0.5, 40)
    vmp = adfpp.VMP(models.normal)
    result = vmp.run(KEY, y, progress_bar=False)
    adfpp.save(tmp_path / "state.ckpt", vmp, result, rows=40)
    state, progress = adfpp.load(tmp_path / "state.ckpt", adfpp.VMP(models.normal), y[:20])
    assert progress == {"rows": 40}
    for a, b in zip(state.belief.parts, result.state.belief.parts, strict=True):
        for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_array_equal(one, other)
    again = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(again.posterior.mean()["mu"], result.posterior.mean()["mu"])
    idata = adfpp.to_arviz(result, y, num_samples=400)
    draws = np.asarray(idata["posterior"]["tau"])
    np.testing.assert_allclose(draws.mean(), result.posterior.mean()["tau"], atol=5 * draws.std() / 20)
    assert idata["log_likelihood"]["y"].shape == (4, 100, 40)
    found = adfpp.check(vmp, result, y, progress_bar=False)
    assert found.k_hat < 0.7 and found.settling is not None and found.settling.startswith("settled after")
    with pytest.warns(adfpp.NotConverged, match="VMP has not converged after 1 sweep"):
        short = adfpp.VMP(models.normal, tol=1e-9, max_sweeps=1).run(KEY, y, progress_bar=False)
    with pytest.raises(ValueError, match="has not converged"):
        adfpp.check(vmp, short, y, progress_bar=False)


@pytest.mark.slow
def test_likelihood_of_rows_leaves_their_latents_out() -> None:
    """As for the density that check and ArviZ use: one row of a mixture, against the sum over its components."""
    y = models.clusters()
    vmp = adfpp.VMP(models.mixture)
    post = vmp.get_posterior(vmp.init(KEY, y))
    theta = post.draw(jax.random.key(1), 3)
    found = post.joint(y).log_likelihood(theta)["y"]
    values = {name: np.asarray(a) for name, a in post.program.constrain(theta).items()}
    sd = 1.0 / np.sqrt(values["tau"])
    logs = stats.norm.logpdf(y[None, :, None], values["mu"][:, None], sd[:, None, :, None]).sum(-1)
    exact = np.logaddexp.reduce(logs + np.log(values["weights"])[:, None], -1)
    np.testing.assert_allclose(found.reshape(3, -1), exact, rtol=1e-9)


@pytest.mark.slow
def test_rows_that_select_a_component_by_data_leave_the_components_in_one_part() -> None:
    """Twelve arms: the evidence is that of twelve Gamma-Poisson models, and the part has two points, not 2^12."""

    def model(arm: Any, y: Any) -> None:
        rate: Any = numpyro.sample("rate", dist.Gamma(2.0, 3.0).expand([12]).to_event(1))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Poisson(rate[arm]), obs=y)

    rng = np.random.default_rng(1)
    arm, y = np.arange(30) % 12, rng.poisson(1.0, 30)
    vmp = adfpp.VMP(model)
    assert [(p.blocks, p.points) for p in vmp.explain(arm, y).parts] == [(12, 2)]
    result = vmp.run(KEY, arm, y, progress_bar=False)
    np.testing.assert_allclose(result.log_evidence, sum(_exact_gamma(y[arm == k]) for k in range(12)), rtol=1e-11)
