"""The evaluation of single equations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.trace.interpret import evaluate, needed_equations, read, shape_of, size_of


def equations_of(f: Any, *args: Any) -> Any:
    """The jaxpr of a function."""
    return jax.make_jaxpr(f)(*args).jaxpr


def test_calls_are_bound_as_they_are() -> None:
    """Also primitives that carry functions: a custom derivative, a loop."""

    def f(x: jax.Array) -> jax.Array:
        return jax.nn.relu(x) + jax.lax.fori_loop(0, 3, lambda _, c: jnp.sin(c), x)

    jaxpr = equations_of(f, jnp.ones(2))
    x = jnp.array([0.3, -0.7])
    env = {jaxpr.invars[0]: x}
    evaluate(jaxpr.eqns, env)
    assert any("custom" in e.primitive.name or "jit" in e.primitive.name for e in jaxpr.eqns)
    np.testing.assert_allclose(read(jaxpr.outvars[0], env), f(x))


def test_only_needed_equations_are_kept() -> None:
    """In order, and not those before a value at which to stop."""
    jaxpr = equations_of(lambda x, y: (jnp.exp(jnp.sin(x) + 1.0), jnp.cos(y)), 1.0, 2.0)
    first, second = jaxpr.outvars
    names = [e.primitive.name for e in needed_equations(jaxpr.eqns, [first])]
    assert names == ["sin", "add", "exp"]
    assert [e.primitive.name for e in needed_equations(jaxpr.eqns, [second])] == ["cos"]
    sine = jaxpr.eqns[0].outvars[0]
    assert [e.primitive.name for e in needed_equations(jaxpr.eqns, [first], frozenset([sine]))] == ["add", "exp"]


def test_shapes_of_variables_and_literals() -> None:
    jaxpr = equations_of(lambda x: x * 2.0, jnp.ones((2, 3)))
    (equation,) = jaxpr.eqns
    assert [shape_of(v) for v in equation.invars] == [(2, 3), ()]
    assert [size_of(v) for v in equation.invars] == [6, 1]
