"""The rewriting of traces: smaller fields, and the same values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adfpp.engine.trace import smallest_cut
from tests.engine.trace.programs import NUMBERS, OfPlaces, rewritten

G = 5  # groups

EXPONENTIALS: dict[str, tuple[OfPlaces, int]] = {
    "product": (lambda u, i: jnp.exp(u[0]) * jnp.exp(u[1]), 1),
    "quotient": (lambda u, i: jnp.exp(u[0]) / jnp.exp(u[1]), 1),
    "product with constants": (lambda u, i: 2.0 * jnp.exp(u[0]) * (jnp.exp(u[1]) * i), 1),
    "powers": (lambda u, i: jnp.exp(u[0]) ** 3 * jnp.sqrt(jnp.exp(u[1])) / jnp.square(jnp.exp(u[2])), 1),
    "inverse root": (lambda u, i: jax.lax.rsqrt(jnp.exp(u[0])) * jnp.exp(u[1]), 1),
    "places": (lambda u, i: jnp.exp(u[:G])[i] * jnp.exp(u[20]), 1),
    "log of a product": (lambda u, i: u[5] - jnp.log(3.0 * jnp.exp(u[0]) * jnp.exp(u[1])), 1),
    "log of moved elements": (lambda u, i: jnp.log(jnp.exp(u[:G]).reshape(1, G).T[i]) - u[6], 1),
    "negative constants": (lambda u, i: -2.0 * jnp.exp(u[0]) * jnp.exp(u[1]), 1),
}


@pytest.mark.parametrize("name", EXPONENTIALS)
def test_products_of_exponentials_are_functions_of_one_number(name: str):
    f, numbers = EXPONENTIALS[name]
    with jax.enable_x64(True):
        traced, values = rewritten(lambda u, i: jnp.sin(jnp.ravel(f(u, i))))
        assert smallest_cut(traced, traced.outputs[0], 0).size == numbers
        u = np.random.default_rng(0).normal(size=NUMBERS)
        i = np.array([3])
        np.testing.assert_allclose(
            values(u, i), np.sin(np.ravel(f(jnp.asarray(u), jnp.asarray(i)))), rtol=1e-10, atol=1e-12
        )
