"""Densities of a model and its data at many θ, against SciPy and enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy import special

from adfpp.model import Joint
from tests.model.common import program
from tests.model.local.common import (
    COUNTS,
    KEY,
    ROWS,
    Array,
    X,
    Y,
    dist,
    indicators,
    sample,
    stats,
    zero_inflated,
)


def test_learned_weights_and_scales_are_a_mixture() -> None:
    """The rows' densities, where weights, means and scales of three components are learned."""

    def model(y: Array = None, summed: bool = False) -> None:
        p = sample("p", dist.Dirichlet(jnp.ones(3)))
        mu, scale = sample("mu", dist.Normal(0, 3).expand([3])), sample("scale", dist.HalfNormal(1).expand([3]))
        with numpyro.plate("rows", y.shape[0]):
            if summed:
                sample("y", dist.MixtureSameFamily(dist.Categorical(probs=p), dist.Normal(mu, scale)), obs=y)
            else:
                c = sample("c", dist.Categorical(probs=p))
                sample("y", dist.Normal(mu[c], scale[c]), obs=y)

    theta = np.random.default_rng(1).normal(size=(3, 8))
    logs = [
        Joint(program(model, y=Y, summed=s), (), {"y": Y, "summed": s}).log_likelihood(theta)["y"]
        for s in (True, False)
    ]
    assert logs[0].shape == (3, ROWS)
    np.testing.assert_allclose(logs[1], logs[0], atol=1e-10)


def test_impossible_combinations_count_nothing() -> None:
    """A zero-inflated Poisson, whose gate cannot be shut where something was counted."""
    theta = np.random.default_rng(2).normal(size=(2, 3))
    logs = Joint(program(zero_inflated, X, y=COUNTS), (X,), {"y": COUNTS}).log_likelihood(theta)["y"]
    p, rate = special.expit(theta[:, 2:]), np.exp(theta[:, :2] @ X.T)
    expected = np.log(p * stats.poisson(rate).pmf(COUNTS) + (1 - p) * (COUNTS == 0))
    np.testing.assert_allclose(logs, expected, atol=1e-10)


def test_visits_of_a_site_have_one_density() -> None:
    """Whether a species is there joins three visits of a site: one number for each row, not one for each visit."""

    def model(y: Array) -> None:
        b, a = sample("b", dist.Normal(0, 1)), sample("a", dist.Normal(0, 1))
        with numpyro.plate("sites", y.shape[0], dim=-2):
            z = sample("z", dist.Bernoulli(logits=b))
            with numpyro.plate("visits", 3, dim=-1):
                sample("y", dist.Bernoulli(z * jax.nn.sigmoid(a)), obs=y)

    y = np.array([[0, 0, 0], [0, 1, 0], [1, 1, 0]])
    theta = np.array([[0.3, -0.4], [-1.0, 0.2]])
    logs = Joint(program(model, y), (y,), {}).log_likelihood(theta)["y"]
    there, seen = special.expit(theta[:, :1]), special.expit(theta[:, 1:])
    counts = y.sum(1)
    expected = there * seen**counts * (1 - seen) ** (3 - counts) + (1 - there) * (counts == 0)
    np.testing.assert_allclose(logs, np.log(expected), atol=1e-10)


T = np.array([-1.0, 0.0, 1.0])


def line(y: Array) -> None:
    """A line for each row, with unknown noise."""
    mean, sigma = sample("mean", dist.Normal(0, 1)), sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("rows", y.shape[0]):
        a, b = sample("a", dist.Normal(mean, 1.0)), sample("b", dist.Normal(0.5, 0.8))
        sample("y", dist.Normal(a[:, None] + b[:, None] * T, sigma).to_event(1), obs=y)


def growth(y: Array) -> None:
    """The same line as the logarithm of a rate of counts."""
    mean = sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", y.shape[0]):
        a, b = sample("a", dist.Normal(mean, 1.0)), sample("b", dist.Normal(0.5, 0.8))
        sample("y", dist.Poisson(jnp.exp(a[:, None] + b[:, None] * T)).to_event(1), obs=y)


def test_more_local_numbers_than_numbers_of_the_field() -> None:
    """Two of them add up to one number of the field, beside an unknown scale that is an array."""

    def model(y: Array) -> None:
        mean, sigma = sample("mean", dist.Normal(0, 1)), sample("sigma", dist.HalfNormal(1))
        with numpyro.plate("rows", y.shape[0]):
            a, b = sample("a", dist.Normal(mean, 1.0)), sample("b", dist.Normal(0.5, 0.8))
            sample("y", dist.Normal((a + b)[:, None], sigma * jnp.array([1.0, 2.0])).to_event(1), obs=y)

    rng = np.random.default_rng(6)
    y, theta = rng.normal(size=(3, 2)), rng.normal(size=(4, 2))
    joint = Joint(program(model, y=y), (), {"y": y})
    logs = joint.log_likelihood(theta)["y"]
    for (mean, log_sigma), row in zip(theta, logs.reshape(4, 3), strict=True):
        exact = stats.multivariate_normal(2 * [mean + 0.5], 1.64 + np.exp(2 * log_sigma) * np.diag([1.0, 4.0]))
        np.testing.assert_allclose(row, exact.logpdf(y), atol=1e-10)
    assert joint.row_cost == 1


def test_gaussian_local_numbers_are_integrated_by_algebra() -> None:
    """The factor is Gaussian in a row's numbers once the scale is known: no quadrature, and exact."""
    rng = np.random.default_rng(4)
    y, theta = rng.normal(size=(4, 3)), rng.normal(size=(5, 2))
    joint = Joint(program(line, y=y), (), {"y": y})
    logs = joint.log_likelihood(theta)["y"]
    shared = np.ones((3, 3)) + 0.64 * np.outer(T, T)
    for (mean, log_sigma), row in zip(theta, logs.reshape(5, 4), strict=True):
        exact = stats.multivariate_normal(mean + 0.5 * T, shared + np.exp(2 * log_sigma) * np.eye(3))
        np.testing.assert_allclose(row, exact.logpdf(y), atol=1e-10)
    assert joint.row_cost == 1


@pytest.mark.slow
def test_integrals_over_two_local_numbers_need_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together, the integrals of all draws would need 300 MB."""
    needed, compiled = [], Joint._compiled

    def measured(self: Joint, function: Array, *options: Array) -> Array:
        found: Array = compiled(self, function, *options)

        def call(*args: Array) -> Array:
            needed.append(found.outermost.lower(*args).compile().memory_analysis().temp_size_in_bytes)
            return found(*args)

        return call

    monkeypatch.setattr(Joint, "_compiled", measured)
    rng = np.random.default_rng(4)
    y, theta = rng.poisson(2.0, size=(4, 3)), 0.5 * rng.normal(size=(40, 1))
    joint = Joint(program(growth, y=y), (), {"y": y})
    logs = joint.log_likelihood(theta)["y"]
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    for (mean,), row in zip(theta, logs.reshape(40, 4), strict=True):
        field = (mean + nodes)[:, None, None] + (0.5 + 0.8 * nodes)[:, None] * T
        density = stats.poisson.pmf(y[:, None, None], np.exp(field)).prod(-1)
        exact = np.log(np.einsum("nij,i,j->n", density, weights, weights) / (2 * np.pi))
        np.testing.assert_allclose(row, exact, atol=1e-3)
    assert 0 < max(needed) < 5e7 and joint.row_cost > 1000


def test_forwards() -> None:
    """Replicates and means vary with the local latents, whose priors are no part of θ's."""
    joint = Joint(program(indicators, y=Y), (), {"y": Y})
    theta = np.tile([-50.0, 50.0], (400, 1))
    drawn, seen = joint.replicate(KEY, jnp.asarray(theta), 2)["y"]
    assert seen == Y[2]
    assert abs(np.mean(drawn > 0) - 0.6) < 4 * np.sqrt(0.24 / 400)
    assert np.all(np.abs(joint.predicted(theta)["y"] - 10.0) < 4 * 50 * np.sqrt(0.96 / 400))
    assert set(joint.log_prior(theta[:1])) == {"mu"}
    assert joint.draw_prior(KEY, 2).shape == (2, 2)
