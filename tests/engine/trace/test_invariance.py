"""Directions of a field in which a factor is constant: found from gradients, and the factor keeps its values."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adfpp.engine.trace import Tail, reduced_field, smallest_cut, trace

Array = Any
K = 4


def softmax(h: Array, label: Array) -> Array:
    """The probability of a label is the same if all logits are shifted."""
    return jax.nn.log_softmax(h)[label]


def looped(h: Array, label: Array) -> Array:
    """The same inside of a loop, which has no derivative in reverse mode."""
    return jax.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, jax.nn.log_softmax(c[1])), (0, h))[1][label]


def ordered(h: Array, label: Array) -> Array:
    """The same if the location h[0] and the cutpoints are shifted."""
    edges = jnp.concatenate([jnp.full(1, -40.0), jnp.sort(h[1:]) - h[0], jnp.full(1, 40.0)])
    return jnp.log(jax.nn.sigmoid(edges[label % K + 1]) - jax.nn.sigmoid(edges[label % K]))


def two_sums(h: Array, label: Array) -> Array:
    """Addition theorems make it a function of h[0] - h[1] and of h[2] + h[3]: constant in two directions."""
    first = jnp.sinh(h[0]) * jnp.cosh(h[1]) - jnp.cosh(h[0]) * jnp.sinh(h[1])
    return first * (jnp.cosh(h[2]) * jnp.cosh(h[3]) + jnp.sinh(h[2]) * jnp.sinh(h[3]))


def whole(h: Array, label: Array) -> Array:
    """It depends on all directions."""
    return -jnp.sum(jnp.cosh(h - label))


FACTORS = [(softmax, K - 1), (looped, K - 1), (ordered, K - 1), (two_sums, 2), (whole, None)]


@pytest.mark.parametrize(("factor", "numbers"), FACTORS)
@pytest.mark.parametrize("x64", [True, False])
def test_a_field_has_no_direction_that_does_not_matter(factor: Callable[..., Array], numbers: int | None, x64: bool):
    with jax.enable_x64(x64):
        dtype = np.dtype(np.float64 if x64 else np.float32)
        row = jax.ShapeDtypeStruct((1,), jnp.zeros(0, int).dtype)
        traced = trace(lambda h, label: [factor(h, label[0]).reshape(1)], jax.ShapeDtypeStruct((K,), dtype), row)
        cut = smallest_cut(traced, traced.outputs[0], 0)
        assert cut.size == K
        tail = Tail(traced, [cut], traced.outputs[0], [0])
        reduced = reduced_field(lambda inputs, h, e: tail(*inputs).log_factor(h, e), K, 1, traced.inputs, dtype)
        if numbers is None:
            assert reduced is None
            return
        assert reduced is not None and reduced.matrix.shape == (numbers, K)
        h = np.random.default_rng(1).normal(size=(5, K)).astype(dtype)
        for label in range(K):
            same = [reduced.whole(jnp.asarray(reduced.matrix @ row, dtype)) for row in h]
            expected = [factor(jnp.asarray(row), label) for row in h]
            tolerance = 1e-12 if x64 else 1e-4
            np.testing.assert_allclose([factor(row, label) for row in same], expected, rtol=tolerance, atol=tolerance)


def test_nothing_is_concluded_from_a_factor_that_random_rows_make_impossible():
    """Here all gradients are NaN."""
    with jax.enable_x64(True):
        row = jax.ShapeDtypeStruct((1,), jnp.float64)
        shape = jax.ShapeDtypeStruct((K,), jnp.float64)
        traced = trace(
            lambda h, x: [jnp.where(x > 1e6, jnp.sum(jnp.exp(h)), jnp.nan * jnp.sum(jnp.exp(h)))], shape, row
        )
        tail = Tail(traced, [smallest_cut(traced, traced.outputs[0], 0)], traced.outputs[0], [0])
        found = reduced_field(
            lambda inputs, h, e: tail(*inputs).log_factor(h, e), K, 1, traced.inputs, np.dtype(np.float64)
        )
        assert found is None


def branching(threshold: float) -> Callable[[Array, Array], Array]:
    """A softmax whose first logit counts twice once the logits are large: then a common shift matters."""
    return lambda h, label: softmax(h + jnp.where(jnp.sum(h) > threshold, 1.0, 0.0) * h * jnp.eye(K)[0], label)


@pytest.mark.parametrize(("threshold", "numbers"), [(12.0, None), (1e4, K - 1)])
def test_a_branch_beyond_the_random_gradients_is_seen_in_the_values(threshold: float, numbers: int | None):
    """The sum of four standard normal numbers is below 12 in all but one of a billion draws; 1e4 is out of reach."""
    factor, dtype = branching(threshold), np.dtype(np.float64)
    row = jax.ShapeDtypeStruct((1,), np.int64)
    traced = trace(lambda h, label: [factor(h, label[0]).reshape(1)], jax.ShapeDtypeStruct((K,), dtype), row)
    tail = Tail(traced, [smallest_cut(traced, traced.outputs[0], 0)], traced.outputs[0], [0])
    reduced = reduced_field(lambda inputs, h, e: tail(*inputs).log_factor(h, e), K, 1, traced.inputs, dtype)
    assert (None if reduced is None else reduced.matrix.shape[0]) == numbers


@pytest.mark.parametrize("reads_all", [True, False])
def test_a_direction_that_matters_to_one_element_alone_is_kept(reads_all: bool) -> None:
    """As the start of a series, which only its first step reads."""
    traced = trace(lambda h: [h], jax.ShapeDtypeStruct((2,), np.dtype(np.float64)))

    def log_factor(inputs: Array, h: Array, e: Array) -> Array:
        return -jnp.cosh(h[0]) - jnp.where((e == 7) & reads_all, h[1] ** 2, 0.0)

    reduced = reduced_field(log_factor, 2, 100, traced.inputs, np.dtype(np.float64))
    assert reads_all == (reduced is None)


def test_the_random_rows_have_each_of_the_first_nine_labels():
    """Each label reads a number of the field that no other reads, and there are no further labels."""
    labels = 9
    traced = trace(
        lambda h, y: [h + y], jax.ShapeDtypeStruct((1,), np.dtype(np.float64)), jax.ShapeDtypeStruct((), int)
    )

    def log_factor(inputs: Array, h: Array, e: Array) -> Array:
        return jnp.where(inputs[0] < labels, -jnp.cosh(h[inputs[0]] - h[labels]), 0.0)

    reduced = reduced_field(log_factor, labels + 1, 1, traced.inputs, np.dtype(np.float64))
    assert reduced is not None
    assert reduced.matrix.shape == (labels, labels + 1)  # a common shift alone does not matter
