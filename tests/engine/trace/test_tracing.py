"""Traces: calls are dissolved, dead code is dropped, and parts without θ can be evaluated by themselves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.trace import Degree, known_value, part_of, pruned, reads, smallest_cut, summands, trace
from adfpp.engine.trace.interpret import evaluate, read

Array = Any
TWO = jax.ShapeDtypeStruct((2,), jnp.float64)


def names(program: Any) -> list[str]:
    """The primitives of a trace."""
    return [e.primitive.name for e in program.equations]


def test_dead_code_is_dropped() -> None:
    """What the output does not need makes the field no larger."""

    def f(theta: Array) -> list[Array]:
        unused = jnp.exp(theta).sum()
        del unused
        return [jnp.sin(theta[0])]

    program = trace(f, TWO)
    assert "exp" not in names(program)
    assert smallest_cut(program, program.outputs[0], 0).size == 1


def test_calls_are_dissolved_and_custom_derivatives_only_if_asked() -> None:
    def f(theta: Array) -> list[Array]:
        return [jax.jit(lambda t: jax.checkpoint(jnp.sin)(jax.nn.relu(t)))(theta)]

    inside, whole = trace(f, TWO), trace(f, TWO, look_inside=False)
    assert {"max", "sin"} == set(names(inside)) - {"broadcast_in_dim"}
    assert any(n.startswith("custom_jvp") for n in names(whole)) and "sin" in names(whole)


def test_the_logarithm_of_a_positive_latent_is_affine() -> None:
    """log(exp(u)) is u."""
    program = trace(lambda t: [jnp.log(jnp.exp(t[0])) + t[1]], TWO)
    assert program.degree(program.outputs[0]) == Degree.AFFINE


def test_theta_is_taken_to_be_finite() -> None:
    """NumPyro's check of real support, whether an affine value is a number, does not look like a kink."""

    def f(theta: Array) -> list[Array]:
        h = theta @ jnp.ones(2)
        return [jnp.where((h == h) & (h != jnp.inf) & (h != -jnp.inf), h, -jnp.inf), jnp.where(h == 1.0, h, 0.0)]

    program = trace(f, TWO)
    real, kink = program.outputs
    assert (program.degree(real), program.degree(kink)) == (Degree.AFFINE, Degree.NONLINEAR)
    env = program.environment([]) | {program.theta: jnp.array([2.0, 1.0])}
    evaluate(program.equations, env)
    assert float(read(real, env)) == 3.0


def test_part_of() -> None:
    """An output that does not depend on θ, without θ."""
    program = trace(lambda t, r: [t @ r, r**2 + 1.0, 3.0], TWO, TWO)
    np.testing.assert_allclose(part_of(program, program.outputs[1])(np.array([1.0, 3.0])), [2.0, 10.0])
    assert part_of(program, program.outputs[2])(None) == 3.0


def test_known_values() -> None:
    """Outputs that depend on nothing are known when the program is built."""
    table = np.arange(3.0)
    program = trace(lambda t, r: [jnp.asarray(table) * 2.0, r, t, 5.0, t * r], TWO, TWO)
    known = [known_value(program, o) for o in program.outputs]
    np.testing.assert_allclose(np.asarray(known[0]), [0.0, 2.0, 4.0])
    assert known[3] == 5.0
    assert [k is None for k in known] == [False, True, True, False, True]


def test_summands_add_up() -> None:
    """The terms of a sum of numbers, through reshapes; the elements of a total."""

    def f(t: Array) -> list[Array]:
        return [(t[0] * 2.0 + (t[1] + jnp.exp(t[0]))).reshape(1), jnp.sin(t).sum()[None], jnp.sin(t)]

    program = trace(f, TWO)
    first, second, third = program.outputs
    assert len(summands(program, first)) == 3
    (terms,) = summands(program, second)
    assert program.equations[program.producers[terms]].primitive.name == "sin"  # pyright: ignore[reportArgumentType]
    assert summands(program, third) == [third]


def test_equal_parts_are_evaluated_once() -> None:
    """By operation, parameters and operands, also in calls; constants by their numbers."""

    def visits(x: Array, w: Array) -> list[Array]:
        """Three visits that share a product and a call, and differ in a constant."""

        def one(shift: float) -> Array:
            return jax.nn.softplus(x @ w) + jnp.sin(x @ w + shift) + np.arange(3.0) @ x

        return [one(0.0), one(1.0), one(0.0)]

    x, w = jnp.asarray([0.3, -0.2, 1.0]), jnp.asarray([1.0, 2.0, 3.0])
    program = trace(visits, x, w)
    assert (names(program).count("dot_general"), names(program).count("sin")) == (2, 2)
    env = program.environment([w]) | {program.theta: x}
    evaluate(program.equations, env)
    for output, expected in zip(program.outputs, visits(x, w), strict=True):
        np.testing.assert_allclose(read(output, env), expected, rtol=1e-15)


def test_a_key_among_the_constants_is_evaluated_as_it_is() -> None:
    """A random key that the function closes over shows no numbers that could be compared."""
    key = jax.random.key(3)

    def f(x: Array) -> list[Array]:
        return [x[0] + jax.random.normal(key), x[0] * jax.random.normal(key)]

    x = jnp.array([0.7, 0.1])
    program = trace(f, x)
    env = program.environment([]) | {program.theta: x}
    evaluate(program.equations, env)
    for output, expected in zip(program.outputs, f(x), strict=True):
        np.testing.assert_allclose(read(output, env), expected, rtol=1e-15)


def test_pruned_functions_compute_nothing_else() -> None:
    """A value that is not asked for may lack a mode of differentiation."""

    @jax.custom_vjp
    def likelihood(u: Array) -> Array:
        return jnp.sum(u)

    likelihood.defvjp(lambda u: (likelihood(u), u), lambda u, g: (g * jnp.ones_like(u),))

    def prior(theta: Array, scale: Array) -> list[Array]:
        likelihood(theta)
        return [scale * jnp.sum(theta**4)]

    at = (jnp.array([1.0, 2.0]), jnp.asarray(0.5))
    f = pruned(prior, *at)
    np.testing.assert_allclose(f(*at)[0], 8.5)
    np.testing.assert_allclose(jax.jacfwd(jax.jacfwd(lambda t: f(t, at[1])[0]))(at[0]), np.diag([6.0, 24.0]))


def test_what_an_output_reads() -> None:
    """An output that is an input itself reads it, and a number reads nothing."""
    one = jax.ShapeDtypeStruct((1,), jnp.float64)
    traced = trace(lambda theta, a, b: [a * 2.0, b, jnp.ones(1), theta + b], one, one, one)
    a, b = traced.inputs
    assert [reads(traced, output, [a]) for output in traced.outputs] == [True, False, False, False]
    assert [reads(traced, output, [b]) for output in traced.outputs] == [False, True, False, True]
