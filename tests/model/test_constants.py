"""Latents that are fixed by an observed value: constants that leave the posterior as it is."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import adfpp
from adfpp.model import Joint
from adfpp.model.forward import Forward
from tests.model.common import (
    KEY,
    SCALE,
    Array,
    X,
    Y,
    assert_exact,
    exact,
    learned,
    program,
    refusal,
    rows,
    sample,
    says,
    weights,
)


def fixed(x: Array, y: Array | None = None) -> None:
    """``linear``, with a known noise as a statement."""
    w = weights()
    sigma = sample("sigma", dist.HalfNormal(1), obs=SCALE)
    with rows(x):
        sample("y", dist.Normal(x @ w, sigma), obs=y)


def free(x: Array, y: Array | None = None) -> None:
    """``linear``, with latents that ``handlers.condition`` can fix, in a plate of their own too."""
    w = weights()
    sigma = sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("shifts", 2):
        shift = sample("shift", dist.Normal(0, sigma))
    with rows(x):
        sample("y", dist.Normal(x @ w + jnp.sum(shift), sigma), obs=y)


def given(x: Array, scale: Array, y: Array | None = None) -> None:
    """The fixed value comes as an argument that all rows share."""
    w = weights()
    sigma = sample("sigma", dist.HalfNormal(1), obs=scale)
    with rows(x):
        sample("y", dist.Normal(x @ w, sigma), obs=y)


CONDITIONED = handlers.condition(free, {"sigma": SCALE, "shift": jnp.array([1.0, -1.0])})


def test_a_fixed_latent_is_a_constant() -> None:
    """The posterior is that of the model with the number in its place."""
    assert_exact(learned(fixed, X, y=Y))
    assert_exact(learned(CONDITIONED, X, y=Y))
    assert_exact(learned(given, X, np.asarray(SCALE), y=Y))
    assert program(CONDITIONED, X, y=Y).constants == {"sigma", "shift"}
    assert program(fixed, X, y=Y).constants == {"sigma"}


def test_it_does_not_count_in_densities_and_evidence() -> None:
    """Of EP, of importance weights and of single rows."""
    result = adfpp.EP(fixed).run(KEY, X, y=Y, progress_bar=False)
    assert abs(result.log_evidence - exact()[2]) < 1e-8
    assert abs(result.posterior.reweighted(KEY, X, y=Y).log_evidence - exact()[2]) < 1e-6
    logs = Joint(program(fixed, X, y=Y), (X,), {"y": Y}).log_likelihood(np.zeros((1, 2)))
    assert set(logs) == {"y"}
    np.testing.assert_allclose(logs["y"][0], dist.Normal(0, SCALE).log_prob(Y), rtol=1e-10)


def test_it_is_never_drawn() -> None:
    """New observations have the fixed noise."""
    forward = Forward(program(fixed, X, y=Y), (X,), {"y": Y})
    assert {name: form.kind for name, form in forward.forms.items()} == {
        "w": "latent",
        "sigma": "deterministic",
        "y": "observed",
    }
    drawn = forward.draw(KEY, np.zeros((500, 2)), ["sigma", "y"])
    np.testing.assert_array_equal(drawn["sigma"], np.full(500, SCALE))
    assert abs(drawn["y"].std() / SCALE - 1.0) < 0.05  # 3,000 draws: 4 standard errors


def test_refuses_an_observation_of_the_prior() -> None:
    """It depends on a latent and not on the rows, so that it would be counted with each of them."""

    def model(x: Array, y: Array | None = None) -> None:
        w = weights()
        sample("guess", dist.Normal(w[0], 0.1), obs=0.5)
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    says(
        refusal(model, X, y=Y), "'guess'", "latent 'w'", "observed once", "once for each row", "prior", "handlers.mask"
    )


def test_refuses_a_model_of_constants_alone() -> None:
    """There is nothing to learn from."""

    def model(x: Array) -> None:
        weights()
        sample("sigma", dist.HalfNormal(1), obs=SCALE)

    says(refusal(model, X), "no observation")


@pytest.mark.parametrize("length", [1, 4])
def test_data_are_no_constants(length: int) -> None:
    """Rows that do not enter the density of an observed value, or one value for all of them, are still rows."""

    def intercept(y: Array) -> None:
        mu = sample("mu", dist.Normal(0, 1))
        with rows(y):
            sample("y", dist.Normal(mu, 1.0), obs=y)

    y: Any = np.arange(float(length))
    assert program(intercept, y).constants == frozenset()
    mean, covariance, _ = learned(intercept, y)
    np.testing.assert_allclose([mean[0], covariance[0, 0]], [y.sum() / (1 + length), 1 / (1 + length)], rtol=1e-10)
