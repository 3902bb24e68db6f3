"""Gaussian blocks of a product, and Gaussian latents beside native ones."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import adfpp
from models import linear
from tests.engine.families.product.common import KEY, folded


def test_sites_by_name_that_are_all_gaussian_are_the_gaussian_families() -> None:
    data, _ = linear.simulate(jax.random.key(6), 50)
    for name in ("full", "diagonal"):
        whole = folded(linear.model, name, **data)
        names = {s.name: name for s in whole.posterior.latents}
        by_site = folded(linear.model, names, **data)
        np.testing.assert_array_equal(by_site.state.belief.mean, whole.state.belief.mean)


def test_blocks_of_a_product_keep_the_marginals_of_the_joint_projection() -> None:
    """One row: a full block and a diagonal one have the moments of the exact posterior's marginals."""
    rng = np.random.default_rng(24)

    def model(x: Any, z: Any, y: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        b = numpyro.sample("b", dist.Normal(1.0, 2.0).expand([2]).to_event(1))
        c = numpyro.sample("c", dist.Normal(0.0, 0.5).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ a + z @ b + x @ c, 0.3), obs=y)

    x, z, y = rng.normal(size=(1, 2)), rng.normal(size=(1, 2)), rng.normal(size=1)
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
