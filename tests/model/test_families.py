"""Which family each latent has."""

from typing import Any

import jax.numpy as jnp
import numpyro
import pytest

import adfpp
from adfpp.engine.families import asked_family
from adfpp.engine.tilt import AUTO
from adfpp.model import read
from tests import models
from tests.model.common import program, refusal
from tests.model.local.common import (
    Array,
    Y,
    dist,
    sample,
    weights,
)


def test_refuses_a_discrete_latent_without_end() -> None:
    """A discrete latent that all rows share and whose values cannot be listed."""

    def model(y: Array = None) -> None:
        w, c = weights(1), sample("c", dist.Poisson(0.5))
        with numpyro.plate("rows", y.shape[0]):
            sample("y", dist.Normal(w[0] * c, 1.0), obs=y)

    message = refusal(model, y=Y)
    assert "'c'" in message
    assert "all rows share" in message


def test_refuses_families_that_do_not_fit() -> None:
    """A name that is no latent's, and supports that are not the family's."""

    def model(y: Array = None) -> None:
        rate = sample("rate", dist.Gamma(2.0, 1.0))
        p = sample("p", dist.Beta(1.0, 1.0))
        c = sample("c", dist.Categorical(jnp.ones(3) / 3))
        with numpyro.plate("rows", y.shape[0]):
            sample("y", dist.Normal(rate * p + c, 1.0), obs=y)

    def refused(**given: str) -> str:
        with pytest.raises(adfpp.ModelError) as error:
            read(model, (), {"y": Y}, None, AUTO, asked_family(given))
        return str(error.value)

    assert "family names the latent 'rat'" in refused(rat="gamma")
    assert "latent 'rate' is a Gamma with another support" in refused(rate="beta")
    assert "latent 'p' is a Beta with another support" in refused(p="gamma")
    assert "is for two values" in refused(p="bernoulli")
    assert "Latent 'c' is discrete" in refused(c="gamma")
    assert "Latent 'c' has 3 values" in refused(c="bernoulli")


def test_the_family_of_the_belief() -> None:
    """The one asked for, where every latent is Gaussian; else a product of the parts."""

    def model(y: Array = None) -> None:
        rate = sample("rate", dist.Gamma(2.0, 1.0))
        w = sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        v = sample("v", dist.Normal(0, 1))
        with numpyro.plate("rows", y.shape[0]):
            sample("y", dist.Normal(w[0] * v + w[1], rate), obs=y)

    def family(asked: Any) -> str:
        return read(model, (), {"y": Y}, None, AUTO, asked_family(asked)).family.name

    assert family("diagonal") == "diagonal"
    assert family({"w": "full"}) == "full"
    assert family({"w": "normal", "rate": "lognormal", "v": "diagonal"}) == "diagonal"
    assert family({"rate": "gamma"}) == "product(rate: gamma, w: full, v: full)"
    assert family({"w": "diagonal"}) == "product(rate: full, v: full, w: diagonal)"
    assert family({"v": "spherical"}) == "product(rate: full, w: full, v: spherical)"


def test_latents_with_finitely_many_values_have_their_family() -> None:
    """Without being asked for."""
    read_as = program(models.signs, models.rows().x, models.rows().y)
    (latent,) = read_as.latents
    assert latent.discrete
    assert latent.integral
    assert read_as.family.name == "product(s: bernoulli)"
