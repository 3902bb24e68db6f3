"""Selections come before the operations on the whole array: smaller fields, and the same values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import solve_triangular

from adfpp.engine.trace import smallest_cut
from tests.engine.trace.programs import NUMBERS, OfPlaces, rewritten

G, K = 5, 3  # groups, and columns of a matrix


def matrix(u: jax.Array) -> jax.Array:
    """A matrix (G, K) of the first numbers."""
    return u[: G * K].reshape(G, K)


def lower(u: jax.Array) -> jax.Array:
    """A lower triangular matrix (K, K) that is not linear in its numbers."""
    rows, columns = np.tril_indices(K)
    return jnp.zeros((K, K)).at[rows, columns].set(jnp.exp(u[G * K : G * K + len(rows)]))


# The selection, and how many numbers of θ it has to read.
SELECTIONS: dict[str, tuple[OfPlaces, int]] = {
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
    "concatenation of columns": (lambda u, i: jnp.concatenate([jnp.exp(matrix(u)), matrix(u)], 1)[i, 4], 1),
    "column of a solution": (lambda u, i: solve_triangular(lower(u), jnp.sin(matrix(u).T), lower=True)[0, i], 6 + 1),
    "selection of a selection": (lambda u, i: (jnp.exp(u[20:22])[jnp.array([0, 1, 0, 1, 1])] * u[:G])[i], 2),
    "one place, not an array of places": (lambda u, i: jnp.exp(u[:G])[i[0]][None], 1),
    "places beyond the ends": (lambda u, i: jnp.exp(u[:G])[i + 3], 1),
    "places beyond the ends, filled": (lambda u, i: jnp.exp(u[:G]).at[i + 3].get(mode="fill", fill_value=2.0), 1),
    "negative places": (lambda u, i: jnp.exp(u[:G])[-i], 1),
}


SELECTIONS["label of a softmax"] = (lambda u, i: jax.nn.log_softmax(jnp.ones(K) @ matrix(u).T)[i], G)


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_selection_comes_before_the_operations_on_the_whole(name: str):
    f, numbers = SELECTIONS[name]
    with jax.enable_x64(True):
        traced, values = rewritten(f)
        assert smallest_cut(traced, traced.outputs[0], 0).size == numbers
        u = np.random.default_rng(0).normal(size=NUMBERS)
        for place in range(G):
            i = np.array([place])
            np.testing.assert_allclose(values(u, i), f(jnp.asarray(u), jnp.asarray(i)), rtol=1e-13)
