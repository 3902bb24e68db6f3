"""Finds directions of a field in which a factor does not change, so that they need not be integrated.

The logits of a softmax may all be shifted by the same number, and so may the cutpoints and the location of an ordered
logit. The gradients of such a factor span fewer directions than the field has numbers. They are computed at random
fields and random arrays of a row, once, when the model is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from adfpp.engine.derivatives import gradient
from adfpp.engine.trace.interpret import Variable, dtype_of, shape_of

_FIELDS, _DRAWS, _ELEMENTS = 4, 6, 8
_FEWEST = 3  # finite gradients for each number of the field, below which nothing is concluded


@dataclass(frozen=True, eq=False)
class Reduced:
    """A smaller field: its numbers are combinations of those of the whole field.

    Attributes:
        matrix: ``(r, k)`` the numbers of the smaller field from those of the whole one.
        places: ``(r,)`` where they stand in a whole field whose other numbers are 0.
    """

    matrix: Float[np.ndarray, "r k"]
    places: Int[np.ndarray, " r"]

    def whole(self, h: Float[Array, " r"]) -> Float[Array, " k"]:
        """A whole field at which the factor has the same value."""
        return jnp.zeros(self.matrix.shape[1], h.dtype).at[self.places].set(h)


def reduced_field(
    log_factor: Callable[..., Float[Array, ""]], size: int, count: int, inputs: Sequence[Variable], dtype: np.dtype
) -> Reduced | None:
    """Finds the directions in which all elements of a factor are constant; None if there are none.

    Args:
        log_factor: ``(inputs, h, e) -> log-density`` of element e.
        size: The number k of numbers in the field.
        count: The number of elements.
        inputs: The variables of a row's arrays and the shared ones.
        dtype: The dtype of θ.
    """
    rng = np.random.default_rng(17)
    drawn = [np.stack([_random(rng, v, kind) for kind in range(_DRAWS)]) for v in inputs]
    fields = jnp.asarray(rng.normal(size=(_DRAWS, _FIELDS, size)), dtype)
    elements = np.unique(np.linspace(0, count - 1, _ELEMENTS).round().astype(int))

    def gradients(arrays: Sequence[Array], some: Float[Array, "n k"]) -> Float[Array, "n e k"]:
        def of_element(h: Float[Array, " k"], e: Int[Array, ""]) -> Float[Array, " k"]:
            return gradient(lambda u: log_factor(arrays, u, e))(h)

        return jax.vmap(lambda h: jax.vmap(lambda e: of_element(h, e))(jnp.asarray(elements)))(some)

    slopes = np.asarray(jax.jit(jax.vmap(gradients))(drawn, fields), float).reshape(-1, size)
    lengths = np.linalg.norm(slopes, axis=1)
    usable = np.isfinite(lengths) & (lengths > 0.0)
    if usable.sum() < _FEWEST * size:
        return None
    slopes = slopes[usable] / lengths[usable, None]
    tolerance = 1e-9 if dtype == np.float64 else 1e-5
    _, sizes, directions = np.linalg.svd(slopes, full_matrices=False)
    rank = int((sizes > tolerance * sizes[0]).sum())
    if rank == size:
        return None
    flat = _echelon(directions[rank:])
    if np.abs(slopes @ flat.T).max() > 10.0 * tolerance * np.abs(flat).max():
        return None
    pivots = np.array([int(np.argmax(row)) for row in np.where(np.isclose(flat, 1.0), flat, 0.0)])
    places = np.setdiff1d(np.arange(size), pivots)
    matrix = np.eye(size)[places]
    for pivot, row in zip(pivots, flat, strict=True):
        matrix[:, pivot] -= row[places]
    return Reduced(matrix, places)


def _echelon(rows: Float[np.ndarray, "d k"]) -> Float[np.ndarray, "d k"]:
    """The same span in reduced echelon form: each row has 1 at its pivot, where the others have 0."""
    rows = rows.copy()
    for i in range(len(rows)):
        pivot = int(np.argmax(np.abs(rows[i])))
        rows[i] /= rows[i, pivot]
        for j in range(len(rows)):
            if j != i:
                rows[j] -= rows[j, pivot] * rows[i]
    whole = np.round(rows)
    return np.where(np.abs(rows - whole) < 1e-6, whole, rows)


def _random(rng: np.random.Generator, variable: Variable, kind: int) -> ArrayLike:
    """A random array for an input; its kind is one of several, because a likelihood may take only one of them."""
    shape, dtype = shape_of(variable), dtype_of(variable)
    if not (jnp.issubdtype(dtype, jnp.number) or dtype == np.bool_):
        return np.zeros(shape, np.uint32)
    if dtype == np.bool_:
        return np.ones(shape, bool)
    if kind % 3 == 2 or not jnp.issubdtype(dtype, jnp.inexact):
        return rng.integers(0, 3 if kind < 3 else 13, shape).astype(dtype)
    return (rng.normal(size=shape) if kind % 3 == 0 else rng.uniform(0.1, 0.9, shape)).astype(dtype)
