"""A model by its shapes, for any number of rows."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from adfpp.model.arguments import bind
from adfpp.model.outline import outline
from tests.model.common import ROWS, SCALE, Array, X, Y, rows, sample


def model(x: Array, y: Array) -> None:
    """A simplex, an indicator and a latent for every row."""
    p = sample("p", dist.Dirichlet(jnp.ones(4)))
    c = sample("c", dist.Bernoulli(p[0]).expand([3]).to_event(1))
    with rows(x):
        z = sample("z", dist.HalfNormal(1.0))
        with numpyro.handlers.mask(mask=True):
            sample("y", dist.Normal(x @ jnp.ones(2) + z * c.sum(), SCALE), obs=y)


def test_latents_and_observations_have_shapes() -> None:
    """On the rows of the call, and on one and two of them."""
    bound = bind(model, (X, Y), {})
    for length, kinds in ((ROWS, None), (1, ("row", "row")), (2, ("row", "row"))):
        seen = outline(model, bound, kinds, None if kinds is None else length)
        p, c, z, y = seen.latents["p"], seen.latents["c"], seen.latents["z"], seen.observations["y"]
        assert (p.shape, p.unconstrained_shape, p.element_shape) == ((4,), (3,), ())
        assert (c.shape, c.discrete, c.element_shape) == ((3,), True, (3,))
        np.testing.assert_array_equal(c.values, [0, 1])
        assert (z.shape, z.unconstrained_shape, z.discrete) == ((length,), (length,), False)
        assert [(plate.name, plate.size) for plate in z.plates] == [("rows", length)]
        assert (y.shape, y.element_shape) == ((length,), (length,))
