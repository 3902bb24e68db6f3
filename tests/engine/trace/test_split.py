"""The two halves of a program: put together they are the program, and nothing is lost at the cut."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adfpp.engine.trace import Cut, Tail, Trace, affine_part, behind_alone, scalar_factor, size_of, smallest_cut, trace
from tests.engine.trace.programs import CODE, PROGRAMS, ROW, THETA, N, traced

Array = Any


def cuts_of(program: Trace) -> list[Cut]:
    """The field of each element of a program's only output."""
    (output,) = program.outputs
    return [smallest_cut(program, output, e) for e in range(size_of(output))]


def through_the_fields(program: Trace, theta: Array, origin: Array, *inputs: Array) -> Array:
    """The output by way of its fields: those at the origin, moved by A."""
    (output,) = program.outputs
    out = []
    for e, cut in enumerate(cuts_of(program)):
        h = jnp.zeros(0)
        if cut.size:
            matrix, there = affine_part(program, [cut])(origin, *inputs)
            h = there[0] + matrix[0] @ (theta - origin)
        out.append(Tail(program, [cut], output, [e])(*inputs).log_factor(h))
    return jnp.stack([jnp.asarray(o, float) for o in out])


def whole_and_looked_into(name: str) -> list[Trace]:
    """A program's trace, and the one with custom derivatives dissolved if that is another."""
    whole, inside = traced(name, False), traced(name, True)
    custom = any(e.primitive.name.startswith("custom_") for e in whole.equations)
    assert custom or [e.primitive for e in whole.equations] == [e.primitive for e in inside.equations]
    return [whole, inside] if custom else [whole]


@pytest.mark.parametrize("name", PROGRAMS)
def test_tail_of_field_is_the_function(name: str) -> None:
    """tail(A θ + b) equals the function at random θ and rows, element by element."""
    rng = np.random.default_rng(1)
    for program in whole_and_looked_into(name):
        run, plainly = jax.jit(lambda *a, program=program: through_the_fields(program, *a)), jax.jit(PROGRAMS[name])
        for code in (0, 2):
            theta, origin, row = rng.normal(size=N), rng.normal(size=N), rng.normal(size=2)
            plain = plainly(jnp.asarray(theta), jnp.asarray(row), jnp.asarray(code))
            got = run(theta, origin, row, jnp.asarray(code))
            np.testing.assert_allclose(got, np.ravel(np.asarray(plain, float)), rtol=1e-12, atol=1e-12)
        assert all(cut.size <= N for cut in cuts_of(program))


@pytest.mark.parametrize("name", ["elements", "broadcast", "transposed_product", "batched_products", "shifted"])
def test_grouped_tails_agree_with_single_ones(name: str) -> None:
    """Elements cut through the same values may be evaluated by one function with an index."""
    program, cuts = traced(name), cuts_of(traced(name))
    (output,) = program.outputs
    assert len({(c.values, tuple(map(len, c.indices))) for c in cuts}) == 1
    theta, row = np.random.default_rng(2).normal(size=N), np.array([0.4, -1.2])
    tail = Tail(program, cuts, output, range(len(cuts)))
    assert tail.separable == (name in ("elements", "transposed_product", "shifted"))

    @jax.jit
    def values(theta: Array, row: Array) -> Array:
        matrices, fields = affine_part(program, cuts)(jnp.zeros(N), row, 1)
        log_factor = tail(row, 1).log_factor
        return jax.vmap(lambda a, h, e: log_factor(a @ theta + h, e))(matrices, fields, jnp.arange(len(cuts)))

    np.testing.assert_allclose(
        values(theta, row), np.ravel(PROGRAMS[name](jnp.asarray(theta), jnp.asarray(row), 1)), rtol=1e-12
    )


def test_the_matrix_does_not_depend_on_where_it_is_taken() -> None:
    """A is the same at every θ, and the field is the affine value there."""
    two = jax.ShapeDtypeStruct((2,), jnp.float64)
    program = trace(lambda t, r: [jnp.exp(t @ r + 2.0)], two, two)
    cut, row = smallest_cut(program, program.outputs[0], 0), np.array([0.5, -2.0])
    for theta in (np.zeros(2), np.array([3.0, -1.0])):
        matrix, field = affine_part(program, [cut])(jnp.asarray(theta), row)
        np.testing.assert_allclose(matrix[0, 0], row)
        np.testing.assert_allclose(field[0, 0], theta @ row + 2.0)


def test_an_output_may_go_round_some_values() -> None:
    """``behind_alone``: θ reaches the output by way of the values alone, or by another way too."""
    program = trace(lambda t, r, c: [jnp.exp(t @ jnp.arange(6.0)) * r[0], jnp.exp(t @ jnp.arange(6.0)) + t[0]], *(
        THETA, ROW, CODE
    ))  # fmt: skip
    first, second = program.outputs
    values = smallest_cut(program, first, 0).values
    assert behind_alone(program, values, first)
    assert not behind_alone(program, values, second)
    assert not behind_alone(program, values, program.theta)


def test_a_factor_of_one_number_knows_its_landmarks() -> None:
    """``scalar_factor`` prepares a plain function as the factors of a model are prepared."""
    log_factor, landmarks = scalar_factor(lambda h: -((h - 3.0) ** 2) - jnp.abs(2.0 * h + 1.0), jnp.float64)
    np.testing.assert_allclose(log_factor(jnp.array([1.0])), -7.0)
    np.testing.assert_allclose(landmarks.at, [3.0, -0.5])
    assert landmarks.centres == 1
