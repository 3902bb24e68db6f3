"""Priors of latents in their native space."""

from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special

import adfpp
from adfpp.engine.families import asked_family
from adfpp.engine.tilt import AUTO
from adfpp.model import Program, block_of_draws, read
from adfpp.model.priors import Block
from tests.model.common import Array, Y, rows, sample


def program(prior: Any, family: str) -> Program:
    """A model with one latent of this prior and family."""

    def model(y: Array) -> None:
        value = sample("s", prior)
        with rows(y):
            sample("y", dist.Normal(value.sum(), 1.0), obs=y)

    return read(model, (Y,), {}, None, AUTO, asked_family({"s": family}))


def block(prior: Any, family: str) -> Block:
    """Its prior as a block."""
    (only,) = program(prior, family).project_prior([]).blocks
    return only


def test_members_are_taken_as_they_are() -> None:
    """A prior of the family keeps its parameters."""
    cases: list[tuple[Any, str, list[float]]] = [
        (dist.Exponential(3.0), "gamma", [1.0, 3.0]),
        (dist.Bernoulli(0.2), "bernoulli", [float(special.logit(0.2))]),
    ]
    for prior, family, natural in cases:
        got = block(prior, family)
        assert got.natural is not None
        np.testing.assert_allclose(got.natural, [natural], rtol=1e-6)
        assert got.how == "exact"
        np.testing.assert_allclose(got.mean, np.ravel(prior.mean), rtol=1e-6)


def test_other_priors_are_matched_in_expected_statistics() -> None:
    """A half-normal as a Gamma: E s and E log s, from its closed forms."""
    got = block(dist.HalfNormal(2.0), "gamma")
    assert got.how == "moments by quadrature"
    assert got.natural is not None
    a, b = got.natural[0]
    np.testing.assert_allclose(a / b, 2.0 * np.sqrt(2.0 / np.pi), rtol=1e-5)
    expected = np.log(2.0) + 0.5 * (special.digamma(0.5) + np.log(2.0))
    np.testing.assert_allclose(special.digamma(a) - np.log(b), expected, atol=1e-5)


def test_refuses_tails_without_a_mean() -> None:
    """A half-Cauchy has no Gamma, and the message says which latent it is."""
    with pytest.raises(adfpp.ModelError, match="latent 's' has no gamma.*lighter tails"):
        block(dist.HalfCauchy(1.0), "gamma")


def test_a_block_of_draws() -> None:
    """The member that matches the draws of the latent's coordinates, among those of others."""

    def model(y: Array) -> None:
        w = sample("w", dist.Normal(0, 1))
        s = sample("s", dist.Bernoulli(0.5).expand([2]))
        with rows(y):
            sample("y", dist.Normal(w * s.sum(), 1.0), obs=y)

    latent = read(model, (Y,), {}, None, AUTO).latents[1]
    draws = np.array([[0.3, 1.0, 0.0], [-0.2, 1.0, 1.0], [0.1, 1.0, 0.0]])
    got = block_of_draws(latent, draws, np.float64)
    np.testing.assert_array_equal(got.where, [1, 2])
    # as if one more draw had been even
    assert got.natural is not None
    np.testing.assert_allclose(got.natural, special.logit([[3.5 / 4], [1.5 / 4]]), rtol=1e-12)
