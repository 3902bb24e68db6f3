"""Which coordinates of θ a value reads: against derivatives, and with an index."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adfpp.engine.trace import depends_on, only_moves, reach_of_cuts, shape_of, smallest_cut, trace
from adfpp.engine.trace.touch import coordinates_read, elements_read, one_element
from tests.engine.trace.programs import PROGRAMS, THETA, N, traced

Array = Any


def test_depends_on() -> None:
    """Which elements of θ an output can see."""
    program = trace(lambda t: [jnp.exp(t[1:3]).sum(), jnp.zeros(2), t, t[4] * t[5]], THETA)
    seen = [np.flatnonzero(depends_on(program, o)).tolist() for o in program.outputs]
    assert seen == [[1, 2], [], list(range(N)), [4, 5]]


# Programs whose elements read exactly the coordinates that their derivatives show, in every version of JAX.
EXACT = ("concatenate", "einsum", "stack", "elements", "broadcast", "transposed_product")


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("integers", "stopped", "stopped_affine", "fftlike")])
def test_no_coordinate_with_a_derivative_is_missed(name: str) -> None:
    """An element reads at least the coordinates that its derivative shows, and no others where that can be seen."""
    program, f = traced(name), PROGRAMS[name]
    (output,) = program.outputs
    rng = np.random.default_rng(3)
    theta, row = jnp.asarray(rng.normal(size=N)), jnp.asarray(np.abs(rng.normal(size=2)))
    slope_of = jax.jit(jax.jacrev(f))
    slopes = [np.asarray(slope_of(theta, row, jnp.asarray(c))).reshape(-1, N) != 0 for c in (0, 2)]
    slopes = slopes[0] | slopes[1]
    for e, slope in enumerate(slopes):
        read = np.zeros(N, bool)
        if name != "constant":
            read = coordinates_read(program, output, one_element(output, e))  # pyright: ignore[reportArgumentType]
        assert (read >= slope).all(), e
        if name in EXACT:
            assert (read == slope).all(), e


def test_elements_of_earlier_values() -> None:
    """Half of a product needs half of its operand."""
    program = trace(lambda t: [jnp.exp(t.reshape(2, 3) @ jnp.ones((3, 2)))], THETA)
    (output,) = program.outputs
    masks = elements_read(program, output, one_element(output, 2))  # pyright: ignore[reportArgumentType]
    assert masks[program.theta].tolist() == [False] * 3 + [True] * 3
    assert all(mask.shape == shape_of(v) for v, mask in masks.items())


def test_reach_counts_what_is_read_at_once() -> None:
    """A sum reads all of its terms at once; an entry picked by an index is one of many."""

    def f(theta: Array, code: Array) -> list[Array]:
        return [jnp.exp(theta[:2] @ jnp.array([1.0, 2.0]) + theta[2:][code]).reshape(1)]

    program = trace(f, THETA, jax.ShapeDtypeStruct((), jnp.int64))
    cut = smallest_cut(program, program.outputs[0], 0)
    parts = [np.arange(2), np.arange(2, N)]
    touched, most = reach_of_cuts(program, [cut], parts)
    assert touched.tolist() == [[True] * N] and most.tolist() == [[2, 1]]


def test_picking_out_is_told_from_arithmetic() -> None:
    program = trace(lambda t: [t[1:3], t[::-1].reshape(2, 3)[0], t * 2.0], THETA)
    moves = [only_moves(program, o) for o in program.outputs]  # pyright: ignore[reportArgumentType]
    assert moves == [True, False, False]  # a reversal is not on the list of movements that pick out
