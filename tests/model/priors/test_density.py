"""The log prior as a function of θ."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from scipy import special

import adfpp
from adfpp.model.priors import prior_draws
from tests.model.common import (
    KEY,
    ROWS,
    SCALE,
    Array,
    X,
    Y,
    exact,
    linear,
    program,
    refusal,
    rows,
    sample,
    says,
)

stats: Any = scipy.stats  # what its type stubs do not know


def improper(x: Array, y: Array | None = None) -> None:
    """Flat weights."""
    w = sample("w", dist.ImproperUniform(dist.constraints.real, (), (2,)))
    with rows(x):
        sample("y", dist.Normal(x @ w, SCALE), obs=y)


def test_refuses_an_improper_prior() -> None:
    """No online update can start from it."""
    says(refusal(improper, X, y=Y), "'w'", "improper", "prior={'w': dist.Normal(0, 10)}")
    with pytest.raises(adfpp.ModelError, match="improper"):
        adfpp.ADF(improper).explain(X, y=Y)


def test_takes_an_improper_prior_with_a_proper_start() -> None:
    """``prior={latent: distribution}`` is put in its place."""
    adf = adfpp.ADF(improper)
    state = adf.init(KEY, X, y=Y, prior={"w": dist.Normal(0, 1)})
    state, _ = adf.update(state, X, y=Y)
    np.testing.assert_allclose(state.belief.mean, exact()[0], atol=1e-10)


def test_refuses_a_prior_for_no_latent() -> None:
    """A misspelt name must not leave the model's prior in its place."""
    says(refusal(linear, X, y=Y, prior={"ww": dist.Normal(0, 10)}), "'ww'", "'w'")
    message = refusal(linear, X, y=Y, prior={"w": 3.0}, error=(TypeError, ValueError))
    says(message, "'w'", "distribution")


def test_replaced_priors_last_for_one_init() -> None:
    """The next ``init`` without ``prior`` starts from the model's own."""
    adf = adfpp.ADF(linear)
    start = adf.init(KEY, X, y=Y)
    other = adf.init(KEY, X, y=Y, prior={"w": dist.Normal(np.array([1.0, 2.0]), 3.0)})
    np.testing.assert_allclose(other.belief.mean, [1.0, 2.0])
    np.testing.assert_allclose(np.diag(other.belief.scale), 3.0)
    again = adf.init(KEY, X, y=Y)
    jax.tree.map(np.testing.assert_array_equal, start.belief, again.belief)


PRIORS: dict[str, tuple[Any, Callable[[np.ndarray], np.ndarray]]] = {
    "Normal": (dist.Normal(0.3, 0.8), stats.norm(0.3, 0.8).logpdf),
    "LogNormal": (dist.LogNormal(0.3, 0.8), stats.norm(0.3, 0.8).logpdf),
    "Gamma": (dist.Gamma(2.0, 3.0), lambda u: stats.gamma(2.0, scale=1 / 3).logpdf(np.exp(u)) + u),
    "Beta": (
        dist.Beta(2.0, 3.0),
        lambda u: stats.beta(2.0, 3.0).logpdf(special.expit(u)) + special.log_expit(u) + special.log_expit(-u),
    ),
}


def test_densities_are_those_of_the_unconstrained_values() -> None:
    """A prior carries the Jacobian of its transform, element by element; all in one model."""

    def model(y: Array) -> None:
        values = [sample(name, prior.expand([2])) for name, (prior, _) in PRIORS.items()]
        with rows(y):
            sample("y", dist.Normal(sum(jnp.sum(v) for v in values), 1.0), obs=y)

    prior = program(model, Y).prior()
    theta = np.random.default_rng(1).normal(size=2 * len(PRIORS))
    logs = jax.jit(prior.logs)(jnp.asarray(theta), *prior.inputs([]))
    expected = [log_density(u) for u, (_, log_density) in zip(theta.reshape(-1, 2), PRIORS.values(), strict=True)]
    np.testing.assert_allclose(np.stack(logs), expected, rtol=1e-9)


def test_draws_have_the_prior_of_their_latents() -> None:
    """The same every time; means within 5 standard errors, also of a prior put in the place of the model's own."""

    def model(y: Array, centre: Array) -> None:
        a = sample("a", dist.Normal(centre, 2.0))
        b = sample("b", dist.LogNormal(a, 0.5))
        with rows(y):
            sample("y", dist.Normal(a, b), obs=y)

    replaced = program(model, Y, np.asarray(1.0)).prior({"b": dist.LogNormal(-4.0, 0.5)})
    draws = prior_draws(replaced.sampler([np.asarray(3.0)]), 4096)
    np.testing.assert_array_equal(draws, prior_draws(replaced.sampler([np.asarray(3.0)]), 4096))
    np.testing.assert_array_less(np.abs(draws.mean(0) - [3.0, -4.0]), 5 * np.array([2.0, 0.5]) / 64)


def test_a_prior_counts_once() -> None:
    """Learning the rows at once or one by one gives the same posterior."""
    adf = adfpp.ADF(linear)
    state = adf.init(KEY, X, y=Y)
    together, _ = adf.update(state, X, y=Y)
    for t in range(ROWS):
        state, _ = adf.update(state, X[t : t + 1], y=Y[t : t + 1])
    np.testing.assert_allclose(state.belief.mean, together.belief.mean, atol=1e-12)
    np.testing.assert_allclose(state.belief.mean, exact()[0], atol=1e-10)
