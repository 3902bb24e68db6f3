"""Posteriors of local latents, by hand and by enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import adfpp
from adfpp.model import local_posterior
from tests.model.common import program
from tests.model.local.common import (
    COUNTS,
    ROWS,
    Array,
    X,
    Y,
    dist,
    outliers,
    sample,
    stats,
    tilted,
    weights,
    zero_inflated,
)


def shifted(y: Array = None) -> None:
    """An indicator that moves a row by 3."""
    w = weights(1)
    with numpyro.plate("rows", y.shape[0]):
        which = sample("which", dist.Bernoulli(0.6))
        sample("y", dist.Normal(w[0] + 3.0 * which, 1.0), obs=y)


def test_responsibilities() -> None:
    """p(c | y) ∝ π_c N(y; m + 3c, v + 1) under a belief N(m, v), by hand."""
    found = local_posterior(program(shifted, y=Y), np.array([-1.0]), np.array([[0.5**0.5]]), [Y], [])["which"]
    each = np.array([0.4, 0.6]) * stats.norm(np.array([-1.0, 2.0]), np.sqrt(1.5)).pdf(Y[:, None])
    assert found.shape == (ROWS, 2)
    np.testing.assert_allclose(found, each / each.sum(1, keepdims=True), atol=1e-6)


@pytest.mark.slow
def test_an_impossible_value_has_no_responsibility() -> None:
    """Exactly none, and no NaN."""
    found = local_posterior(program(zero_inflated, X, y=COUNTS), np.zeros(3), np.eye(3), [X, COUNTS], [])["gate"]
    assert np.all(found[COUNTS > 0] == [0.0, 1.0])
    assert np.all((found[COUNTS == 0] > 0.1) & (found[COUNTS == 0] < 0.9))


@pytest.mark.slow
def test_both_kinds_in_one_row() -> None:
    """A mixture of two Gaussians, whose moments are exact."""
    y, mean, variance = 1.7, 0.2, 0.8
    read_as = program(outliers, y=Y)
    log_z, new, covariance = tilted(read_as, [mean], [[variance]], np.asarray(y))
    noise = np.array([0.3**2, 4.0**2])
    totals = variance + 0.25 + noise
    shares = np.log([0.8, 0.2]) + stats.norm.logpdf(y, mean, np.sqrt(totals))
    chances = np.exp(shares - np.logaddexp(*shares))

    def mixed(m: float, v: float) -> tuple[float, float]:
        """Mean and variance of a part with variance v of the sum."""
        means, left = m + v / totals * (y - mean), v - v**2 / totals
        first = chances @ means
        return first, chances @ (left + (means - first) ** 2)

    np.testing.assert_allclose(log_z, np.logaddexp(*shares), atol=1e-6)
    np.testing.assert_allclose([new[0], covariance[0, 0]], mixed(mean, variance), atol=1e-6)
    found = local_posterior(read_as, np.array([mean]), np.array([[variance**0.5]]), [np.array([y])], [])
    np.testing.assert_allclose(found["bad"][0], chances, atol=1e-6)
    expected = mixed(0.0, 0.25)
    np.testing.assert_allclose([found["z"][0][0], found["z"][1][0] ** 2], expected, atol=1e-6)


@pytest.mark.slow
def test_ep_of_local_indicators_is_that_of_the_mixture() -> None:
    """Responsibilities come back by row, from the row's own cavity; the belief is that of the marginal model."""

    def indicators(y: Array) -> None:
        mu = sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
        with numpyro.plate("rows", y.shape[0]):
            z = sample("z", dist.Categorical(probs=jnp.array([0.3, 0.7])))
            sample("y", dist.Normal(mu[z], 1.0), obs=y)

    def marginal(y: Array) -> None:
        mu = sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
        with numpyro.plate("rows", y.shape[0]):
            parts = dist.Normal(mu, 1.0)
            sample("y", dist.MixtureSameFamily(dist.Categorical(probs=jnp.array([0.3, 0.7])), parts), obs=y)

    rng = np.random.default_rng(0)
    y = np.where(rng.random(12) < 0.3, -2.0, 2.0) + rng.normal(size=12)
    ep = adfpp.EP(indicators, tol=1e-8)
    result = ep.run(jax.random.key(0), y, progress_bar=False)
    other = adfpp.EP(marginal, tol=1e-8).run(jax.random.key(0), y, progress_bar=False)
    np.testing.assert_allclose(result.state.belief.mean, other.state.belief.mean, atol=1e-9)
    assert result.log_evidence == pytest.approx(other.log_evidence, abs=1e-9)
    got = ep.get_local(result, y)["z"]
    # brute force: 2^12 assignments, each Gaussian
    logs, bits = [], np.array(list(itertools.product([0, 1], repeat=12)))
    for z in bits:
        log = np.log([0.3, 0.7])[z].sum()
        for k, centre in enumerate((-2.0, 2.0)):
            mine = y[z == k]
            cov = np.eye(len(mine)) + 1.0
            log += stats.multivariate_normal.logpdf(mine, np.full(len(mine), centre), cov) if len(mine) else 0.0
        logs.append(log)
    weight = np.exp(np.array(logs) - max(logs))
    exact = (weight[:, None] * bits).sum(0) / weight.sum()
    np.testing.assert_allclose(got[:, 1], exact, atol=5e-3)
    np.testing.assert_allclose(got.sum(1), 1.0, atol=1e-12)
    assert result.log_evidence == pytest.approx(np.log(weight.sum()) + max(logs), abs=0.01)
