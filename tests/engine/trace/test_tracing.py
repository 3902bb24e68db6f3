"""Traces: calls are dissolved, dead code is dropped, and parts without θ can be evaluated by themselves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.trace import Degree, known_value, part_of, smallest_cut, summands, trace
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
