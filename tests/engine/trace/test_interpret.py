"""The evaluation of single equations, under the interfaces of several versions of JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adfpp.engine.trace.interpret import bind, evaluate, needed_equations, read, shape_of, size_of


def equations_of(f: Any, *args: Any) -> Any:
    """The jaxpr of a function."""
    return jax.make_jaxpr(f)(*args).jaxpr


class Fake:
    """A primitive as old and new versions of JAX have it."""

    multiple_results = False

    def __init__(self, given: Any) -> None:
        self.given = given

    def get_bind_params(self, params: dict[str, Any]) -> Any:
        return self.given(params)

    def bind(self, *args: Any, **params: Any) -> Any:
        return args, params


class FakeEquation:
    """An equation of such a primitive."""

    def __init__(self, primitive: Fake) -> None:
        self.primitive, self.params = primitive, {"axis": 1}


@pytest.mark.parametrize(
    ("given", "functions"),
    [(lambda p: dict(p), []), (lambda p: ([], p), []), (lambda p: ([len], p), [len])],
    ids=["from 0.10 on", "before", "before, with a function"],
)
def test_parameters_of_every_version_of_jax_are_bound(given: Any, functions: list[Any]) -> None:
    """Before JAX 0.10 ``get_bind_params`` gave the functions to bind beside the parameters."""
    equation: Any = FakeEquation(Fake(given))
    assert bind(equation, [3.0]) == [((*functions, 3.0), {"axis": 1})]


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
