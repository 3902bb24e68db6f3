"""Importance weights: against integrals on a grid, known Pareto tails, and ArviZ."""

from typing import Any

import arviz as az
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_likelihood
from scipy import special, stats

import adfpp
from adfpp.learn.importance import leave_one_out, left_out, psislw, reweighted
from tests.models import logistic, rows

logsumexp: Any = special.logsumexp  # whose stub gives a union


def bernoulli(n: Any = None, y: Any = None) -> None:
    """One probability on the logit scale: everything can be integrated."""
    t = numpyro.sample("t", dist.Normal(0, 0.8))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=t), obs=y)


def integrals(y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grid, log-likelihood of a 0 and a 1 there, and log joint plus the grid's log weight."""
    t = np.linspace(-12, 12, 20001)
    logs = np.stack([-np.logaddexp(0, t), -np.logaddexp(0, -t)])
    return t, logs, stats.norm.logpdf(t, 0, 0.8) + logs[y].sum(0) + np.log(t[1] - t[0])


@pytest.mark.slow
def test_weights_mend_a_wrong_posterior() -> None:
    """Few rows and a skewed posterior: weighted moments and evidence against integrals on a grid."""
    y = np.array([1, 1, 1, 1, 0])
    t, _, log_joint = integrals(y)
    mass = np.exp(log_joint - np.logaddexp.reduce(log_joint))
    mean, sd = mass @ t, np.sqrt(mass @ t**2 - (mass @ t) ** 2)
    adf = adfpp.ADF(bernoulli)
    state, _ = adf.update(adf.init(jax.random.key(0), y=y), y=y)
    post = adf.get_posterior(state)
    found = post.reweighted(jax.random.key(1), y=y, num_samples=20_000)
    assert found.ess > 18_000
    noise = sd / np.sqrt(found.ess)
    assert found.mean()["t"] == pytest.approx(mean, abs=4 * noise)
    assert found.sd()["t"] == pytest.approx(sd, abs=4 * noise)
    assert found.log_evidence == pytest.approx(np.logaddexp.reduce(log_joint), abs=0.02)
    assert found.moved([mean], [sd])[0] < 0.1  # ADF is good already
    drawn = found.sample(jax.random.key(2), (5000,))["t"]
    assert drawn.shape == (5000,) and drawn.mean() == pytest.approx(mean, abs=4 * sd / np.sqrt(4000))


@pytest.mark.parametrize(("width", "low", "high"), [(0.5, 0.55, 0.95), (0.7, 0.31, 0.71), (2.0, -9.0, 0.0)])
def test_k_hat_is_the_tails(width: float, low: float, high: float) -> None:
    """Target N(0, 1), proposal N(0, width²): ratios with a Pareto tail of shape 1 - width², or bounded ones."""
    theta = np.random.default_rng(0).normal(0, width, (20_000, 1))
    log_q = stats.norm.logpdf(theta[:, 0], 0, width)
    found = reweighted(theta, stats.norm.logpdf(theta[:, 0]), log_q, lambda t: {"t": t})
    assert low < found.k_hat < high
    assert ("not to be relied on" in repr(found)) == (found.k_hat > 0.7)


def test_moved_is_the_error_of_a_shifted_proposal() -> None:
    rng = np.random.default_rng(0)
    theta = rng.normal([0.6, 0.0], 1.0, (20_000, 2))
    target = stats.norm.logpdf(theta).sum(1)
    found = reweighted(theta, target, stats.norm.logpdf(theta, [0.6, 0.0]).sum(1), lambda t: {"t": t})
    assert found.moved([0.6, 0.0], [1.0, 1.0]) == pytest.approx((0.6, 1.0, 1.0), abs=0.06)
    wide = reweighted(
        2.0 * theta,
        stats.norm.logpdf(2.0 * theta, [1.2, 0.0]).sum(1),
        stats.norm.logpdf(2.0 * theta, [1.2, 0.0], 2.0).sum(1),
        lambda t: {"t": t},
    )
    assert wide.moved([1.2, 0.0], [2.0, 2.0]) == pytest.approx((0.0, 2.0, 2.0), abs=0.1)
    far = reweighted(
        theta + [8.0, 0.0],
        stats.norm.logpdf(theta + [8.0, 0.0]).sum(1),
        stats.norm.logpdf(theta + [8.0, 0.0], [8.6, 0.0]).sum(1),
        lambda t: {"t": t},
    )
    assert far.k_hat > 0.7 and "not to be relied on" in repr(far)


def test_leave_one_out_on_an_approximation() -> None:
    """From a proposal that is off, plain PSIS-LOO misleads; with the ratio of posterior to proposal it does not."""
    rng = np.random.default_rng(0)
    y = (rng.random(30) < 0.7).astype(int)
    t, logs, log_joint = integrals(y)
    exact = sum(np.logaddexp.reduce(log_joint) - np.logaddexp.reduce(log_joint - logs[value]) for value in y)
    mass = np.exp(log_joint - np.logaddexp.reduce(log_joint))
    mean, sd = mass @ t, np.sqrt(mass @ t**2 - (mass @ t) ** 2)
    draws = rng.normal(mean + 1.5 * sd, 1.2 * sd, 8000)
    at = np.stack([-np.logaddexp(0, draws), -np.logaddexp(0, -draws)])
    ratio = stats.norm.logpdf(draws, 0, 0.8) + at[y].sum(0) - stats.norm.logpdf(draws, mean + 1.5 * sd, 1.2 * sd)

    def log_lik(rows: np.ndarray) -> np.ndarray:
        return at[y[rows]].T

    corrected, plain = (leave_one_out(log_lik, r, 30, 1000) for r in (ratio, np.zeros(8000)))
    assert corrected.total == pytest.approx(exact, abs=0.1)
    assert abs(plain.total - exact) > 0.5
    assert corrected.k.max() < 0.7
    some = leave_one_out(log_lik, ratio, 30, 12)
    assert len(some.pointwise) == 12 and some.total == pytest.approx(exact, rel=0.35)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter:UserWarning")
@pytest.mark.slow
def test_leave_one_out_on_mcmc_is_arvizs() -> None:
    x, y, _ = rows(3, 30)
    mcmc = MCMC(NUTS(logistic), num_warmup=200, num_samples=400, progress_bar=False)
    mcmc.run(jax.random.key(0), x, y=y)
    found = az.loo(az.from_numpyro(mcmc, log_likelihood=True), reff=1.0)
    expected = float(getattr(found, "elpd_loo", None) or found.elpd)
    logs = np.asarray(log_likelihood(logistic, mcmc.get_samples(), x, y=y)["y"])
    ours = leave_one_out(lambda rows: logs[:, rows], np.zeros(400), 30, 100)
    assert ours.total == pytest.approx(expected, abs=1e-6)
    assert ours.se == pytest.approx(float(found.se), rel=0.03)


def test_pareto_tails() -> None:
    """k̂ finds the exponent of a Pareto tail; ratios without a tail are told apart by what is known of them."""
    rng = np.random.default_rng(7)
    for tail in (0.2, 0.5, 0.9):
        ratios = -tail * np.log(rng.random((8, 4000)))
        log_weights, k = psislw(ratios)
        assert k.shape == (8,) and log_weights.shape == (8, 4000)
        assert abs(k.mean() - tail) < 0.1
        np.testing.assert_allclose(logsumexp(log_weights, axis=-1), 0.0, atol=1e-9)
    once = ratios.copy()
    psislw(ratios)
    np.testing.assert_array_equal(once, ratios)
    level, k = psislw(np.full(100, 3.0))
    assert k == 0.0 and np.allclose(level, -np.log(100))
    few, k = psislw(np.arange(4.0))
    assert k == np.inf and np.allclose(few, np.arange(4.0) - logsumexp(np.arange(4.0)))
    for wrong in (np.nan, np.inf):
        log_weights, k = psislw(np.r_[wrong, np.zeros(99)])
        assert k == np.inf and np.isnan(log_weights).all()
    nothing, k = psislw(np.full(100, -np.inf))
    assert k == np.inf and np.isnan(nothing).all()


def test_weights_of_discrete_draws() -> None:
    """Ties in the tail, which ArviZ's fit refuses; and draws that are all alike, which tell nothing."""
    ratio = np.repeat([0.0, -1.0, -3.0], [60, 200, 140])
    weights, k = psislw(ratio)
    np.testing.assert_allclose(weights, ratio - logsumexp(ratio))
    assert k == 0.0
    alone = np.append(np.full(399, -4.0), 0.0)  # a single draw that outweighs the others is no bound
    assert not psislw(alone)[1] <= 0.7
    same = reweighted(np.ones((50, 1)), np.zeros(50), np.zeros(50), lambda t: {}, [(0.0, 1.0)])
    assert np.isnan(same.k_hat) and same.unseen
    theta = np.repeat([[0.0], [1.0]], [30, 10], 0)
    moved = reweighted(theta, np.where(theta[:, 0] == 1, np.log(2.0), 0.0), np.zeros(40), lambda t: {}, [(0.0, 1.0)])
    assert moved.moved([0.25], [0.4]) == pytest.approx((2 * (20 / 50 - 10 / 40), 1.0, 1.0))


def test_k_hat_does_not_count_where_weights_are_nearly_equal() -> None:
    """A tail with the exponent 1, of differences too small to matter, and the same tail where it does matter."""
    tail = 1.0 / np.random.default_rng(0).random((6, 2000))
    for size, good in ((1e-3, True), (1.0, False)):
        found = left_out(-np.log1p(size * tail), np.zeros(2000))
        assert (found.k > 0.7).all() and (found.good == good).all()
