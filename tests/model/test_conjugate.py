"""The parts that are found in a model for variational message passing."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from adfpp.engine.families import Conjugate
from adfpp.engine.message_passing import LogJoint
from adfpp.engine.tilt import AUTO
from adfpp.model import ModelError, read
from tests.learn.vmp import models


def joint_of(model: Any, *args: Any, family: dict[str, str] | None = None, **kwargs: Any) -> LogJoint:
    """The log joint of a model."""
    program = read(model, args, kwargs, None, AUTO, Conjugate(tuple((family or {}).items())))
    assert program.conjugate is not None
    return program.conjugate.joint


def described(joint: LogJoint) -> list[tuple[tuple[str, ...], str, int, int]]:
    """Names, family, number of blocks and numbers of a block of each part."""
    return [(p.names, p.family.name, p.count, len(p.where) // p.count) for p in joint.parts]


def test_numbers_that_never_meet_are_separate_blocks() -> None:
    assert described(joint_of(models.mixture, models.clusters())) == [
        (("weights",), "dirichlet", 1, 3),
        (("mu",), "blocks", 6, 1),
        (("tau",), "gamma", 3, 1),
    ]
    joint = joint_of(models.factor_analysis, models.factors())
    assert described(joint)[1] == (("w", "mu"), "blocks", 4, 3)  # a row of W with its intercept
    assert joint.parts[1].places.tolist() == [[2 + 2 * j, 3 + 2 * j, 10 + j] for j in range(4)]


def test_bilinear_latents_are_separate_parts() -> None:
    def model(y: Any) -> None:
        a: Any = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b: Any = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(a * b, 1.0), obs=y)

    assert [p[0] for p in described(joint_of(model, np.zeros(3)))] == [("a",), ("b",)]


def test_components_that_meet_are_separate_parts() -> None:
    def model(y: Any) -> None:
        t: Any = numpyro.sample("t", dist.Gamma(2.0, 2.0).expand([2]).to_event(1))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(0.0, 1.0 / jnp.sqrt(t[0] * t[1])), obs=y)

    assert described(joint_of(model, np.zeros(3))) == [(("t",), "gamma", 1, 1)] * 2


def test_families_follow_from_the_priors_unless_given() -> None:
    def model(y: Any) -> None:
        p: Any = numpyro.sample("p", dist.Uniform(0.0, 1.0))
        v: Any = numpyro.sample("v", dist.InverseGamma(2.0, 2.0))
        r: Any = numpyro.sample("r", dist.Exponential(1.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(0.0, jnp.sqrt(v)), obs=y)
            numpyro.sample("n", dist.Poisson(r), obs=jnp.ones(y.shape, int))
            numpyro.sample("b", dist.Bernoulli(probs=p), obs=jnp.ones(y.shape, int))

    assert [p[1] for p in described(joint_of(model, np.zeros(3)))] == ["beta", "inverse_gamma", "gamma"]
    given = joint_of(model, np.zeros(3), family={"r": "full"})
    assert dict((p[0][0], p[1]) for p in described(given))["r"] == "full"
    with pytest.raises(ModelError, match="family names the latent 'q'"):
        joint_of(model, np.zeros(3), family={"q": "gamma"})


def test_too_many_combinations_are_refused() -> None:
    def model(y: Any) -> None:
        p: Any = numpyro.sample("p", dist.Dirichlet(jnp.ones(4)))
        with numpyro.plate("rows", y.shape[0]):
            chances: Any = dist.Categorical(p)
            z: Any = numpyro.sample("z", chances.expand([y.shape[0], 5]).to_event(1))
            numpyro.sample("y", dist.Normal(1.0 * z, 1.0).to_event(1), obs=y)

    with pytest.raises(ModelError, match=r"\['z'\] of one row have 1024 combinations .* Make rows"):
        joint_of(model, np.zeros((3, 5)))


def test_large_blocks_are_refused() -> None:
    def model(x: Any) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[-1]]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ w, 1.0), obs=jnp.ones(x.shape[0]))

    with pytest.raises(ModelError, match="300 numbers of w meet .* adfpp.EP"):
        joint_of(model, np.zeros((3, 300)))
