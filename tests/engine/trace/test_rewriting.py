"""The rewriting of traces: smaller fields, and the same values."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import solve_triangular

from adfpp.engine.trace import smallest_cut, trace

G, K = 5, 3  # groups, and columns of a matrix


def matrix(u: jax.Array) -> jax.Array:
    """A matrix (G, K) of the first numbers."""
    return u[: G * K].reshape(G, K)


def lower(u: jax.Array) -> jax.Array:
    """A lower triangular matrix (K, K) that is not linear in its numbers."""
    rows, columns = np.tril_indices(K)
    return jnp.zeros((K, K)).at[rows, columns].set(jnp.exp(u[G * K : G * K + len(rows)]))


Size = 30
Selecting = Callable[[jax.Array, jax.Array], jax.Array]

# The selection, and how many numbers of θ it has to read.
SELECTIONS: dict[str, tuple[Selecting, int]] = {
    "elementwise": (lambda u, i: jnp.exp(u[:G])[i], 1),
    "product with a scale": (lambda u, i: (jnp.exp(u[20]) * u[:G])[i], 2),
    "softplus": (lambda u, i: jax.nn.softplus(u[:G])[i], 1),
    "where": (lambda u, i: jnp.where(u[:G] > 0, u[:G] ** 2, jnp.sin(u[:G]))[i], 1),
    "the same selection twice": (lambda u, i: jnp.exp(u[:G])[i] + jnp.sin(u[:G])[i], 1),
    "column of a transposed product": (lambda u, i: (lower(u) @ matrix(u).T).T[i][..., -1], 6 + K),
    "row of a matrix": (lambda u, i: jnp.exp(matrix(u))[i].sum(-1), K),
    "column of a matrix": (lambda u, i: jnp.exp(matrix(u))[:, jnp.minimum(i, K - 1)].sum(0), G),
    "entry of a matrix": (lambda u, i: jnp.exp(matrix(u))[i, jnp.minimum(i, K - 1)], 1),
    "entry of an outer product": (lambda u, i: (jnp.exp(u[:G, None]) * jnp.exp(u[None, 20:25]))[i, (i + 1) % G], 1),
    "entry of a matrix product": (
        lambda u, i: (jnp.exp(matrix(u)) @ jnp.exp(matrix(u[10:])).T)[i, (i + 2) % G],
        2 * K,
    ),
    "batch of matrix products": (
        lambda u, i: jnp.einsum("gk,gk->g", jnp.exp(matrix(u)), jnp.sin(matrix(u[10:])))[i],
        2 * K,
    ),
    "flattened matrix": (lambda u, i: jnp.exp(matrix(u)).reshape(-1)[2 * i + 1], 1),
    "new axes": (lambda u, i: jnp.exp(u[:G])[:, None].reshape(1, G, 1)[0, i, 0], 1),
    "a row beside a column": (lambda u, i: (jnp.exp(u[20:23])[None] + jnp.sin(u[:G])[:, None])[i, 1], 2),
    "broadcast": (lambda u, i: jnp.broadcast_to(jnp.exp(u[:1]), (G,))[i], 1),
    "slice": (lambda u, i: jnp.exp(u[:12])[1:11:2][i], 1),
    "reversal": (lambda u, i: jnp.exp(u[:G])[::-1][i], 1),
    "sum over columns": (lambda u, i: jnp.exp(matrix(u)).sum(1)[i], K),
    "largest of a row": (lambda u, i: jnp.exp(matrix(u)).max(1)[i], K),
    "running sum along columns": (lambda u, i: jnp.cumsum(jnp.exp(matrix(u)), 1)[i, 1], K),
    "concatenation of columns": (lambda u, i: jnp.concatenate([jnp.exp(matrix(u)), matrix(u)], 1)[i, 4], K),
    "column of a solution": (lambda u, i: solve_triangular(lower(u), jnp.sin(matrix(u).T), lower=True)[0, i], 6 + K),
    "selection of a selection": (lambda u, i: (jnp.exp(u[20:22])[jnp.array([0, 1, 0, 1, 1])] * u[:G])[i], 2),
    "one place, not an array of places": (lambda u, i: jnp.exp(u[:G])[i[0]][None], 1),
    "places beyond the ends": (lambda u, i: jnp.exp(u[:G])[i + 3], 1),
    "places beyond the ends, filled": (lambda u, i: jnp.exp(u[:G]).at[i + 3].get(mode="fill", fill_value=2.0), 1),
    "negative places": (lambda u, i: jnp.exp(u[:G])[-i], 1),
}


def rewritten(f: Selecting) -> tuple[Any, Callable[..., np.ndarray]]:
    """The trace of a function, and the function that it computes."""
    traced = trace(lambda u, i: [f(u, i)], jax.ShapeDtypeStruct((Size,), jnp.float64), jax.ShapeDtypeStruct((1,), int))

    def values(u: np.ndarray, i: np.ndarray) -> np.ndarray:
        from adfpp.engine.trace.interpret import evaluate, read

        env = traced.environment([i]) | {traced.theta: jnp.asarray(u)}
        evaluate(traced.equations, env)
        return np.asarray(read(traced.outputs[0], env))

    return traced, values


SELECTIONS["label of a softmax"] = (lambda u, i: jax.nn.log_softmax(jnp.ones(K) @ matrix(u).T)[i], G)


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_selection_comes_before_the_operations_on_the_whole(name: str):
    f, numbers = SELECTIONS[name]
    with jax.enable_x64(True):
        traced, values = rewritten(f)
        assert smallest_cut(traced, traced.outputs[0], 0).size == numbers
        u = np.random.default_rng(0).normal(size=Size)
        for place in range(G):
            i = np.array([place])
            np.testing.assert_allclose(values(u, i), f(jnp.asarray(u), jnp.asarray(i)), rtol=1e-13)


EXPONENTIALS: dict[str, tuple[Selecting, int]] = {
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
        u = np.random.default_rng(0).normal(size=Size)
        i = np.array([3])
        np.testing.assert_allclose(
            values(u, i), np.sin(np.ravel(f(jnp.asarray(u), jnp.asarray(i)))), rtol=1e-10, atol=1e-12
        )
