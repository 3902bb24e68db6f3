"""Equal parts of a function are evaluated once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.trace.once import evaluated_once


def count(f: Any, name: str, *args: Any) -> int:
    """How many equations of a kind the jaxpr of a function has, those of inner calls included."""

    def within(jaxpr: Any) -> int:
        total = 0
        for equation in jaxpr.eqns:
            inner = equation.params.get("jaxpr")
            total += within(inner.jaxpr) if inner is not None else equation.primitive.name == name
        return total

    return within(jax.make_jaxpr(f)(*args).jaxpr)


def visits(x: jax.Array, w: jax.Array) -> list[jax.Array]:
    """Two visits that share a product and a call, and differ in a constant."""

    def one(shift: float) -> jax.Array:
        return jax.nn.softplus(x @ w) + jnp.sin(x @ w + shift) + np.arange(3.0) @ x

    return [one(0.0), one(1.0), one(0.0)]


def test_equal_parts_are_evaluated_once() -> None:
    """By operation, parameters and operands; constants by their numbers."""
    x, w = jnp.asarray([0.3, -0.2, 1.0]), jnp.asarray([1.0, 2.0, 3.0])
    once = evaluated_once(visits)
    assert count(visits, "dot_general", x, w) == 9
    assert count(once, "dot_general", x, w) == 2
    assert count(once, "sin", x, w) == 2
    for got, expected in zip(once(x, w), visits(x, w), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-15)


def test_a_key_among_the_constants_is_evaluated_as_it_is() -> None:
    """A random key that the function closes over shows no numbers that could be compared."""
    key = jax.random.key(3)

    def f(x: jax.Array) -> list[jax.Array]:
        return [x + jax.random.normal(key), x * jax.random.normal(key)]

    for got, expected in zip(evaluated_once(f)(jnp.asarray(0.7)), f(jnp.asarray(0.7)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-15)
