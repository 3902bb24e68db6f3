"""The smallest field: vertex cuts against enumeration, and the sizes of fields of small programs."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adfpp.engine.trace import affine_part, gaussian_but_for, minimum_vertex_cut, smallest_cut, trace
from tests.engine.trace.programs import N, traced

Array = Any
Graph = tuple[list[int], set[tuple[int, int]]]


# ------------------------------------------------------------------------------------- cuts of graphs


def _separates(cut: tuple[int, ...], edges: set[tuple[int, int]], source: int, sink: int) -> bool:
    reached, waiting = set(), [source] if source not in cut else []
    while waiting:
        a = waiting.pop()
        reached.add(a)
        waiting += [b for x, b in edges if x == a and b not in cut and b not in reached]
    return sink not in reached


def _smallest_cuts(weights: list[int], edges: set[tuple[int, int]], source: int, sink: int) -> list[set[int]]:
    """All cuts of the least weight, by enumeration."""
    subsets = [c for k in range(len(weights) + 1) for c in combinations(range(len(weights)), k)]
    cuts = [c for c in subsets if _separates(c, edges, source, sink)]
    least = min(sum(weights[v] for v in c) for c in cuts)
    return [set(c) for c in cuts if sum(weights[v] for v in c) == least]


def _before(cut: set[int], edges: set[tuple[int, int]], source: int) -> set[int]:
    """The vertices that the source reaches without passing through the cut, and the cut itself."""
    reached, waiting = set(cut), [source]
    while waiting:
        a = waiting.pop()
        if a not in reached:
            reached.add(a)
            waiting += [b for x, b in edges if x == a]
    return reached


@st.composite
def _graphs(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(2, 8))
    weights = draw(st.lists(st.integers(1, 6), min_size=size, max_size=size))
    pairs = list(combinations(range(size), 2))
    edges = draw(st.sets(st.sampled_from(pairs), max_size=len(pairs)))
    return weights, edges


@settings(max_examples=150)
@given(_graphs())
def test_minimum_vertex_cut_against_enumeration(graph: Graph) -> None:
    """It separates, no set of vertices does so for less, and no such set is nearer to the sink."""
    weights, edges = graph
    source, sink = 0, len(weights) - 1
    cut = set(minimum_vertex_cut(weights, edges, source, sink))
    smallest = _smallest_cuts(weights, edges, source, sink)
    assert cut in smallest
    if cut:
        mine = _before(cut, edges, source)
        assert all(_before(other, edges, source) <= mine for other in smallest)


def test_minimum_vertex_cut_is_nearest_to_the_sink() -> None:
    """Among cuts of equal weight the last one is taken, so that as little as possible is left behind it."""
    assert minimum_vertex_cut([1, 1, 1, 9], {(0, 1), (1, 2), (2, 3)}, 0, 3) == [2]


def test_vertices_that_may_not_be_cut() -> None:
    """None stands for an infinite weight, however large the other weights are."""
    chain = {(0, 1), (1, 2), (2, 3)}
    assert minimum_vertex_cut([5, None, 7, None], chain, 0, 3) == [0]
    large = 2**29  # four of them do not fit into 32 bits
    assert minimum_vertex_cut([large, None, large - 1, None], chain, 0, 3) == [2]
    wide = {(0, v) for v in range(1, 9)} | {(v, 9) for v in range(1, 9)}
    assert minimum_vertex_cut([large, *[large] * 8, None], wide, 0, 9) == [0]
    assert minimum_vertex_cut([100, *[3] * 8, None], wide, 0, 9) == list(range(1, 9))


def test_weights_beyond_what_scipy_takes_are_refused() -> None:
    with pytest.raises(OverflowError, match="32-bit integers: a model this large"):
        minimum_vertex_cut([2**31, None], {(0, 1)}, 0, 1)


# ------------------------------------------------------------------------------------- fields of programs

SMALLEST = {"where": 1, "einsum": 3, "concatenate": 4, "stack": 4, "affine": 1, "constant": 0, "itself": 1}
SMALLEST |= {"elements": 2, "transposed_product": 1, "batched_products": 1, "convolution": 4, "solve": 2}
SMALLEST |= {"broadcast": 3, "shifted": 1, "mixed": 1}


@pytest.mark.parametrize("name", SMALLEST)
def test_smallest_field(name: str) -> None:
    """The sizes that a pencil finds, for the first element."""
    program = traced(name)
    assert smallest_cut(program, program.outputs[0], 0).size == SMALLEST[name]


def test_the_field_is_as_late_as_it_can_be() -> None:
    """Of a chain of affine values the last is the field."""
    program = trace(lambda t: [jnp.exp(jnp.sum(3.0 * (t + 1.0)) / 2.0)], jax.ShapeDtypeStruct((1,), jnp.float64))
    cut = smallest_cut(program, program.outputs[0], 0)
    matrix, field = affine_part(program, [cut])(jnp.zeros(1))
    np.testing.assert_allclose([matrix[0, 0, 0], field[0, 0]], [1.5, 1.5])


@pytest.mark.parametrize("f", [jnp.exp, lambda a: 2.0 * a], ids=["nonlinear", "affine"])
def test_elements_that_theta_does_not_reach_have_no_field(f: Callable[[Array], Array]) -> None:
    """Parts of a vector may depend on θ and others not."""
    two = jax.ShapeDtypeStruct((2,), jnp.float64)
    program = trace(lambda t, r: [f(jnp.concatenate([t, r]))], two, two)
    assert [smallest_cut(program, program.outputs[0], e).size for e in range(4)] == [1, 1, 0, 0]


def test_a_field_of_many_values_is_found_quickly() -> None:
    """Thousands of equations: the cut of a long recursion, whose only affine values are at its start."""

    def f(theta: Array) -> list[Array]:
        out = theta @ jnp.arange(float(N))
        for i in range(1000):
            out = jnp.tanh(out + 0.1 * i)
        return [out]

    program = trace(f, jax.ShapeDtypeStruct((N,), jnp.float64))
    cut = smallest_cut(program, program.outputs[0], 0)
    assert cut.size == 1 and len(program.equations) > 2000


# ------------------------------------------------------------------------------------- Gaussian but for some


def scaled(h: Array) -> Array:
    """A normal residual h[0] with log scale h[1]."""
    return jax.scipy.stats.norm.logpdf(h[0], 0.0, jnp.exp(h[1]))


@pytest.mark.parametrize(
    ("factor", "size", "fixed"),
    [
        (lambda h: scaled(h), 2, [1]),
        (lambda h: scaled(h[::-1]), 2, [0]),
        (lambda h: -((h[0] + jnp.exp(h[1]) * h[2]) ** 2), 3, [1]),
        (lambda h: -((h[0] - 2.0 * h[1]) ** 2) - h[1] ** 2, 2, []),
        (lambda h: -((h[0] - jnp.tanh(h[1]) * h[2]) ** 2) * jnp.exp(h[3]), 4, [1, 3]),
        (lambda h: -((1.0 - h[0] * h[1]) ** 2) - jnp.exp(h[2]), 3, [0, 2]),
        (lambda h: -jnp.log1p(h[0] ** 2 * jnp.exp(h[1])), 2, None),
        (lambda h: -jnp.exp(h[0]) - jnp.exp(h[1]), 2, None),
    ],
)
def test_gaussian_but_for_some_numbers(factor: Any, size: int, fixed: list[int] | None) -> None:
    """Quadratic given some numbers (their places in θ are known here), in all of them (none), or in neither case."""

    def program(theta: Array) -> list[Array]:
        return [jnp.reshape(factor([theta[i] for i in range(size)]), (1,))]

    traced_ = trace(program, jax.ShapeDtypeStruct((size,), float))
    cut = smallest_cut(traced_, traced_.outputs[0], 0)
    places = gaussian_but_for(traced_, cut, traced_.outputs[0])
    if places is None or fixed is None:
        assert places is fixed
        return
    matrix, _ = affine_part(traced_, [cut])(jnp.zeros(size))
    assert np.flatnonzero(np.asarray(matrix[0])[list(places)].any(0)).tolist() == fixed
