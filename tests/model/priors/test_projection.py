"""Priors as independent blocks: which hang together, and where learning starts from those that stay coupled."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import optimize, stats

import adfpp
from tests.model.priors.common import TRIL, Array, X, Y, latent, observed, sample, started


def test_coupled_gaussian_latents_are_exact() -> None:
    """w | mu ~ Normal(mu, 1): jointly Gaussian, correlated through mu."""

    def prior() -> Array:
        mu = sample("mu", dist.Normal(1, 2))
        w = sample("w", dist.Normal(3.0 * mu - 1.0, 0.5).expand([2]).to_event(1))
        apart = sample("apart", dist.HalfNormal(1))
        return w.sum() + apart

    mean, covariance, how = started(prior)
    expected = 4.0 * np.outer([1, 3, 3], [1, 3, 3]) + np.diag([0, 0.25, 0.25])
    np.testing.assert_allclose(mean[:3], [1.0, 2.0, 2.0], atol=1e-10)
    np.testing.assert_allclose(covariance[:3, :3], expected, rtol=1e-9)
    np.testing.assert_array_equal(covariance[3, :3], 0.0)
    assert [h.startswith("exact, jointly with mu, w") for h in how] == [True, True, False]


@pytest.mark.parametrize("family", ["diagonal", "spherical"])
def test_families_keep_what_they_can_represent(family: str) -> None:
    """The marginal variances of a correlated prior, or their mean."""
    prior = dist.MultivariateNormal(jnp.array([1.0, 2.0, 3.0]), scale_tril=TRIL)
    mean, covariance, _ = started(latent(prior), family)
    variances = np.diag(TRIL @ TRIL.T)
    np.testing.assert_allclose(mean, [1.0, 2.0, 3.0], atol=1e-10)
    expected = variances if family == "diagonal" else np.full(3, variances.mean())
    np.testing.assert_allclose(covariance, np.diag(expected), rtol=1e-9)


def test_coupled_latents_start_from_their_moments() -> None:
    """w | tau is a set of factors, whose first sites have the prior's moments."""

    def prior() -> Array:
        tau = sample("tau", dist.LogNormal(0.0, 0.3))
        return sample("w", dist.Normal(1.0, tau).expand([2]).to_event(1)).sum()

    mean, covariance, how = started(prior)
    variance = np.array([0.09, np.exp(0.18), np.exp(0.18)])
    draws = 4096  # that the first sites are made from
    np.testing.assert_array_less(np.abs(mean - [0.0, 1.0, 1.0]), 5 * np.sqrt(variance / draws))
    np.testing.assert_allclose(np.diag(covariance), variance, rtol=5 * np.sqrt(6.0 / draws))
    assert how[1].startswith("prior factors")


def test_heavy_tails_among_coupled_latents() -> None:
    """w | tau ~ Normal(0, tau) with tau half-Cauchy has no variance: its first site is as wide as w's middle half."""

    def prior() -> Array:
        tau = sample("tau", dist.HalfCauchy(1))
        return sample("w", dist.Normal(0, tau).expand([2]).to_event(1)).sum()

    mean, covariance, _ = started(prior)
    # quartiles of w, a scale mixture, by quadrature over log tau
    log_tau = np.linspace(-15, 15, 20001)
    weight = stats.halfcauchy.pdf(np.exp(log_tau)) * np.exp(log_tau)
    weight /= weight.sum()
    quartile = optimize.brentq(lambda q: weight @ stats.norm.cdf(q / np.exp(log_tau)) - 0.75, 0.1, 5.0)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)[1:]), quartile / stats.norm.ppf(0.75), rtol=0.1)
    np.testing.assert_allclose(mean[1:], 0.0, atol=0.15)


def test_replaced_priors_leave_the_others() -> None:
    """Only the latents named change, also where others depend on them."""

    def prior() -> Array:
        mu = sample("mu", dist.Normal(1, 2))
        w = sample("w", dist.Normal(mu, 0.5))
        return w + sample("s", dist.LogNormal(0.0, 1.0))

    mean, covariance, _ = started(prior, prior={"mu": dist.Normal(-1.0, 3.0)})
    np.testing.assert_allclose(mean, [-1.0, -1.0, 0.0], atol=1e-10)
    np.testing.assert_allclose(covariance, [[9, 9, 0], [9, 9.25, 0], [0, 0, 1]], atol=1e-9)


def test_explain_shows_the_prior_in_use() -> None:
    """``explain(..., prior=...)`` shows the plan of ``init(..., prior=...)``."""

    def model(x: Array, y: Array) -> None:
        observed(x, y, sample("w", dist.HalfNormal(1.0)))

    adf = adfpp.ADF(model)
    assert adf.explain(X, Y).latents[0].prior == "moments by quadrature"
    assert adf.explain(X, Y, prior={"w": dist.LogNormal(0.0, 1.0)}).latents[0].prior == "exact"
