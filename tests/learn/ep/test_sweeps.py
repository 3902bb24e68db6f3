"""Sites and evidence after the sweeps, against exact answers and brute force."""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import adfpp
from adfpp import EP, NotConverged
from tests.learn.ep.common import Array, data, exact_linear, linear, mean_and_sd, moments, probit, run, sample

KEY = jax.random.key(0)


def test_evidence_picks_the_order_of_a_polynomial() -> None:
    """Among orders 0 to 5 of a cubic, the same as exact evidence, to 1e-7 each."""
    rng = np.random.default_rng(3)
    t = np.linspace(-1, 1, 30)
    y = 1.0 - 2.0 * t + 3.0 * t**3 + 0.7 * rng.normal(size=30)
    ep, found, exact = EP(linear), [], []
    for order in range(6):
        x = np.zeros((30, 6))  # a column of zeros leaves the evidence as it is, and one program serves all orders
        x[:, : order + 1] = np.vander(t, order + 1, increasing=True)
        found.append(ep.run(KEY, x, y=y, progress_bar=False).log_evidence)
        exact.append(exact_linear(x, y)[2])
    np.testing.assert_allclose(found, exact, atol=1e-7)
    assert np.argmax(found) == np.argmax(exact)


def brute(log_joint: Callable[[np.ndarray], np.ndarray], limits: list[tuple[float, float]], nodes: int = 81) -> Any:
    """Evidence, mean and covariance over a Gauss-Legendre grid."""
    t, w = special.roots_legendre(nodes)
    axes = [0.5 * (b - a) * t + 0.5 * (a + b) for a, b in limits]
    weights = [0.5 * (b - a) * w for a, b in limits]
    points = np.array(list(itertools.product(*axes)))
    weight = np.prod(np.array(list(itertools.product(*weights))), 1)
    logs = log_joint(points)
    density = weight * np.exp(logs - logs.max())
    total = density.sum()
    mean = density @ points / total
    centred = points - mean
    return logs.max() + np.log(total), mean, (centred * density[:, None]).T @ centred / total


@pytest.mark.parametrize("columns", [2, 3])
def test_probit_evidence_against_quadrature(columns: int) -> None:
    """Within .05 of brute force; moments within .05 sd."""
    x, _, y = data(25, columns, seed=1)

    def log_joint(w: np.ndarray) -> np.ndarray:
        signs = (2 * y - 1)[:, None] * (x @ w.T)
        return special.log_ndtr(signs).sum(0) + stats.norm.logpdf(w, 0, 2.0).sum(1)

    result = run(probit, x, of={"y": y})
    mean, covariance = moments(result)
    sd = np.sqrt(np.diag(covariance))
    nodes = 121 if columns == 2 else 61
    evidence, exact_mean, exact_cov = brute(
        log_joint, [(m - 8 * s, m + 8 * s) for m, s in zip(mean, sd, strict=True)], nodes
    )
    exact_sd = np.sqrt(np.diag(exact_cov))
    assert result.log_evidence == pytest.approx(evidence, abs=0.05)
    np.testing.assert_allclose((mean - exact_mean) / exact_sd, 0.0, atol=0.05)
    np.testing.assert_allclose(sd / exact_sd, 1.0, atol=0.03)


def test_one_row_of_discrete_data_sums_to_one() -> None:
    """Σ over y of Z(y) is 1: binary, and counts up to where nothing is left."""

    def counts(x: Array, y: Array | None = None) -> None:
        w = sample("w", dist.Normal(0, 0.7))
        with numpyro.plate("rows", x.shape[0]):
            sample("y", dist.Poisson(jnp.exp(x * w)), obs=y)

    ep, total = EP(probit), 0.0
    for y in (0, 1):
        total += np.exp(ep.run(KEY, np.array([[0.3, -2.0]]), y=np.array([y]), progress_bar=False).log_evidence)
    assert total == pytest.approx(1.0, abs=1e-10)
    ep = EP(counts)
    each = [ep.run(KEY, np.ones(1), y=np.array([y]), progress_bar=False).log_evidence for y in range(60)]
    assert np.exp(each).sum() == pytest.approx(1.0, abs=1e-5)


def centred(group: Array, groups: int, y: Array | None = None) -> None:
    """Group means with a scale to learn, centred: no row depends on mu or tau."""
    mu = sample("mu", dist.Normal(0, 5))
    tau = sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", groups):
        w = sample("w", dist.Normal(mu, tau))
    with numpyro.plate("rows", group.shape[0]):
        sample("y", dist.Normal(w[group], 1.0), obs=y)


def grouped(groups: int = 30, rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Groups of very unequal size."""
    rng = np.random.default_rng(11)
    group = np.minimum(rng.geometric(0.15, size=rows) - 1, groups - 1)
    means = 1.0 + 0.6 * rng.normal(size=groups)
    return group, means[group] + rng.normal(size=rows)


def exact_hierarchy(group: np.ndarray, y: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Means and sds of (mu, log tau, w), and the evidence: Gaussian given tau, which is integrated on a grid."""
    log_tau = np.linspace(-9.0, 3.0, 1201)
    count = np.bincount(group, minlength=groups)
    total = np.bincount(group, y, minlength=groups)
    logs, first, second = [], [], []
    for lt in log_tau:
        tau2 = np.exp(2 * lt)
        # y | mu: each group's sum is sufficient
        precision = np.diag(np.r_[1 / 25.0 + groups / tau2, count + 1 / tau2])
        precision[0, 1:] = precision[1:, 0] = -1 / tau2
        covariance = np.linalg.inv(precision)
        slope = np.r_[0.0, total]
        mean = covariance @ slope
        log_normal = 0.5 * slope @ mean - 0.5 * np.linalg.slogdet(precision)[1]
        log_normal += -np.log(5.0) - groups * lt - 0.5 * y @ y - 0.5 * len(y) * np.log(2 * np.pi)
        logs.append(log_normal + stats.halfnorm.logpdf(np.exp(lt), 0, 2) + lt)
        first.append(mean)
        second.append(np.diag(covariance) + mean**2)
    logs = np.array(logs)
    weight = np.exp(logs - logs.max())
    step = log_tau[1] - log_tau[0]
    evidence = logs.max() + np.log(weight.sum() * step)
    weight /= weight.sum()
    mean, square = weight @ np.array(first), weight @ np.array(second)
    mean_lt = weight @ log_tau
    sd_lt = np.sqrt(weight @ (log_tau - mean_lt) ** 2)
    sd = np.sqrt(square - mean**2)
    return np.r_[mean[0], mean_lt, mean[1:]], np.r_[sd[0], sd_lt, sd[1:]], evidence


@pytest.mark.slow
def test_coupled_priors_are_factors() -> None:
    """A centred hierarchy, whose mu and tau no row depends on directly, against its exact posterior.

    EP: means within .15 sd, sds within 15 %, evidence within .1. ADF, which refreshes the prior's sites every chunk: in
    one pass the scale has moved most of the way.
    """
    group, y = grouped()
    exact, exact_sd, evidence = exact_hierarchy(group, y, 30)
    ep = EP(centred)
    result = ep.run(KEY, group, groups=30, y=y, progress_bar=False)
    mean, sd = mean_and_sd(result)
    assert result.info.converged and set(result.state.priors) == {"tau", "w"}
    assert result.state.priors["w"].shape == (30, 5)  # (w - mu, log tau): two numbers and three
    np.testing.assert_allclose((mean - exact) / exact_sd, 0.0, atol=0.15)
    np.testing.assert_allclose(sd / exact_sd, 1.0, atol=0.15)
    assert result.log_evidence == pytest.approx(evidence, abs=0.1)
    plan = str(ep.explain(group, groups=30, y=y))
    assert "prior factors" in plan and "affine in mu, w" in plan

    order = np.random.default_rng(12).permutation(len(y))
    stream = adfpp.ADF(centred).run(KEY, group[order], groups=30, y=y[order], chunk_size=64, progress_bar=False)
    mean, sd = mean_and_sd(stream)
    assert set(stream.state.priors) == {"w"}
    np.testing.assert_allclose((mean[:2] - exact[:2]) / exact_sd[:2], 0.0, atol=0.6)
    np.testing.assert_allclose(sd[:2] / exact_sd[:2], 1.0, atol=0.35)


@pytest.mark.slow
def test_heavy_tailed_scales() -> None:
    """A horseshoe: half-Cauchy local and global scales, no moments to begin from."""

    def horseshoe(x: Array, y: Array | None = None) -> None:
        tau = sample("tau", dist.HalfCauchy(0.5))
        with numpyro.plate("columns", x.shape[-1]):
            local = sample("local", dist.HalfCauchy(1.0))
            w = sample("w", dist.Normal(0.0, tau * local))
        with numpyro.plate("rows", x.shape[0]):
            sample("y", dist.Normal(x @ w, 0.5), obs=y)

    rng = np.random.default_rng(13)
    x = rng.normal(size=(60, 5))
    y = x @ [2.0, 0, 0, 0, 0] + 0.5 * rng.normal(size=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)
        result = run(horseshoe, x, of={"y": y}, max_sweeps=60)
    w = np.asarray(result.posterior.mean()["w"])
    least_squares = np.linalg.lstsq(x, y, rcond=None)[0]
    assert np.isfinite(moments(result)[0]).all()
    assert abs(w[0] - 2.0) < 0.3 and (np.abs(w[1:]) < np.abs(least_squares[1:])).all()


def unknown_scale(x: Any, y: Any = None) -> None:
    """The prior of ``w`` depends on another latent: it is a factor, and has a site."""
    tau = numpyro.sample("tau", dist.LogNormal(-0.5, 0.5))
    w: Any = numpyro.sample("w", dist.Normal(0.5, tau))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(w * x, 0.5), obs=y)


def test_the_evidence_counts_the_factors_of_the_prior() -> None:
    """Against a sum over a grid of (log tau, w)."""
    y = np.array([1.3, 0.8, 1.9, 1.1])
    result = adfpp.EP(unknown_scale).run(jax.random.key(0), np.ones(4), y=y, progress_bar=False)
    log_tau, w = np.linspace(-3.5, 2.5, 601), np.linspace(-3.0, 5.0, 1601)
    joint = (
        stats.norm.logpdf(log_tau, -0.5, 0.5)[:, None]
        + stats.norm.logpdf(w, 0.5, np.exp(log_tau)[:, None])
        + stats.norm.logpdf(y[:, None], w, 0.5).sum(0)
    )
    evidence = np.log(np.exp(joint).sum() * (log_tau[1] - log_tau[0]) * (w[1] - w[0]))
    assert result.info.converged and list(result.info.priors.values()) == [adfpp.Status.OK]
    # the only factor that is not Gaussian has an exact cavity distribution, so that EP's estimate is exact
    assert result.log_evidence == pytest.approx(evidence, abs=1e-6)
