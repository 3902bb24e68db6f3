"""Which latents are local, and which of them are refused."""

import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

from tests.model.common import program, refusal
from tests.model.local.common import (
    PAIRS,
    Array,
    Y,
    dist,
    sample,
    weights,
)


def test_refuses_an_infinite_support() -> None:
    """A Poisson number a row."""

    def model(y: Array = None) -> None:
        w = weights(1)
        with numpyro.plate("rows", y.shape[0]):
            number = sample("number", dist.Poisson(3.0))
            sample("y", dist.Normal(w[0] * number, 1.0), obs=y)

    message = refusal(model, y=Y)
    assert "'number'" in message
    assert "Poisson" in message
    assert "Categorical" in message


@pytest.mark.parametrize("how", ["walk", "sum", "prior", "lone", "extra"])
def test_refuses_rows_that_depend_on_each_other(how: str) -> None:
    """Through their latents: a prior over all rows at once, a sum over rows, a prior that looks at others."""

    def model(y: Array = None) -> None:
        n, z = y.shape[0], 0.0
        w = weights(1)
        if how == "walk":
            z = sample("z", dist.GaussianRandomWalk(0.5, num_steps=n))
        elif how == "extra":
            z = sample("z", dist.Normal(0, 1).expand([n + 1]))[1:]
        with numpyro.plate("rows", n):
            if how == "sum":
                z = jnp.cumsum(sample("z", dist.Normal(0, 1)))
            elif how == "prior":
                z = sample("z", dist.Normal(y.mean(), 1))
            elif how == "lone":
                z = sample("z", dist.ImproperUniform(dist.constraints.real, (), ()))
            sample("y", dist.Normal(w[0] + z, 1.0), obs=y)

    says = {
        "walk": "ties them together",
        "sum": "'y' do not add up",
        "prior": "ties rows together",
        "lone": "improper",
        "extra": "one entry for each row",
    }
    message = refusal(model, y=Y)
    assert says[how] in message
    assert "'z'" in message or how == "sum"


def test_refuses_a_model_with_nothing_in_common() -> None:
    """Only local latents: nothing to learn."""

    def model(y: Array = None) -> None:
        with numpyro.plate("rows", y.shape[0]):
            z = sample("z", dist.Normal(0, 1))
            sample("y", dist.Normal(z, 1.0), obs=y)

    assert "in common" in refusal(model, y=Y)


def model(y: Array = None) -> None:
    """A latent for every row and element, along the rows' axis in front, and an indicator."""
    w = weights(2)
    with numpyro.plate("rows", y.shape[0], dim=-2), numpyro.plate("columns", 2):
        z = sample("z", dist.LogNormal(0.0, 1.0))
        c = sample("c", dist.Categorical(probs=jnp.ones(3) / 3))
        sample("y", dist.Normal(w + z + c, 1.0), obs=y)


def test_latents_of_the_data_plate_are_local() -> None:
    """As one row has them; the others have their places in θ."""
    read_as = program(model, y=PAIRS)
    assert [latent.name for latent in read_as.latents] == ["w"]
    z, c = read_as.local
    assert (z.name, z.shape, z.axis, z.unconstrained_shape, z.places, z.support) == (
        "z",
        (1, 2),
        0,
        (1, 2),
        range(2),
        None,
    )
    assert (c.name, c.shape, c.axis, c.places) == ("c", (1, 2), 0, range(2))
    np.testing.assert_array_equal(c.support, [0, 1, 2])
    assert z.per_row(jnp.zeros((5, 2))).shape == (5, 2)
