"""Finds directions of a field in which a factor does not change, so that they need not be integrated.

The logits of a softmax may all be shifted by the same number, and so may the cutpoints and the location of an ordered
logit. The gradients of such a factor span fewer directions than the field has numbers. They are computed at random
fields and random arrays of a row, once, when the model is read. The values of the factor are then compared, at wider
fields: a branch such as ``jnp.where(theta > 3, ...)`` may be beyond those of the gradients. It may be beyond these,
too; ``IntegralFactor.both_ways`` therefore gives the values with the whole and the reduced field at any θ and row, so
that they can be compared at the data.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from adfpp.engine.compilation import run_once
from adfpp.engine.derivatives import gradient, jacobian
from adfpp.engine.trace.interpret import Variable, dtype_of, shape_of

_FIELDS, _ELEMENTS = 4, 8
# Of an integer of a row, which may be a label or an index: small values more often, because large ones may not exist.
_INTEGERS = (0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8)
_DRAWS = len(_INTEGERS)
_WIDTHS = (1.0, 2.0, 4.0)  # of the fields at which values are compared; wider ones lose digits
_TOGETHER = 64  # elements whose gradients are computed at once: each may take as much memory as the whole row
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
    drawn = [_random(rng, v) for v in inputs]
    fields = jnp.asarray(rng.normal(size=(_DRAWS, _FIELDS, size)), dtype)
    elements = np.unique(np.linspace(0, count - 1, _ELEMENTS).round().astype(int))

    def gradients(arrays: Sequence[Array], some: Float[Array, "n k"]) -> Float[Array, "n e k"]:
        def of_element(h: Float[Array, " k"], e: Int[Array, ""]) -> Float[Array, " k"]:
            return gradient(lambda u: log_factor(arrays, u, e))(h)

        return jax.vmap(lambda h: jax.vmap(lambda e: of_element(h, e))(jnp.asarray(elements)))(some)

    slopes = np.asarray(run_once(jax.vmap(gradients), drawn, fields), float).reshape(-1, size)
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
    allowed = 10.0 * tolerance * np.abs(flat).max()
    if np.abs(slopes @ flat.T).max() > allowed:
        return None
    # the elements of a row may differ: only the first steps of a series may read where it starts
    if count > len(elements) and _steepest(log_factor, flat, count, drawn, fields[:, 0]) > allowed:
        return None
    pivots = np.array([int(np.argmax(row)) for row in np.where(np.isclose(flat, 1.0), flat, 0.0)])
    places = np.setdiff1d(np.arange(size), pivots)
    matrix = np.eye(size)[places]
    for pivot, row in zip(pivots, flat, strict=True):
        matrix[:, pivot] -= row[places]
    reduced = Reduced(matrix, places)
    return reduced if _same_values(log_factor, reduced, drawn, rng, elements, dtype) else None


def nudged(h: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """A field that differs from h by a little more than rounding: it shows how far rounding changes a log-density."""
    return h * (1.0 + 4.0 * float(jnp.finfo(h.dtype).eps))


def differ(values: ArrayLike, dtype: np.dtype) -> Bool[np.ndarray, "*n"]:
    """Whether log-densities with the whole and with the reduced field differ by much more than rounding.

    Args:
        values: ``(3, *n)`` log-densities with the whole field, with the reduced one, and with the whole one nudged.
        dtype: The dtype that they were computed in.
    """
    whole, reduced, near = np.asarray(values, float)
    with np.errstate(invalid="ignore"):
        noise = (1e-6 if dtype == np.float64 else 1e-2) * (1.0 + np.abs(whole)) + 100.0 * np.abs(near - whole)
        apart = np.abs(whole - reduced) > noise
    return apart & np.isfinite(whole) & np.isfinite(reduced)


def _same_values(
    log_factor: Callable[..., Float[Array, ""]],
    reduced: Reduced,
    drawn: Sequence[ArrayLike],
    rng: np.random.Generator,
    elements: Int[np.ndarray, " e"],
    dtype: np.dtype,
) -> bool:
    """Whether the factor has the same values with the reduced field, at fields of several widths."""
    size = reduced.matrix.shape[1]
    fields = rng.normal(size=(_DRAWS, len(_WIDTHS) * _FIELDS, size)) * np.repeat(_WIDTHS, _FIELDS)[:, None]

    def values(arrays: Sequence[Array], some: Float[Array, "n k"]) -> Float[Array, "3 n e"]:
        smaller = jax.vmap(reduced.whole)(some @ jnp.asarray(reduced.matrix.T, dtype))
        at = jax.vmap(jax.vmap(lambda h, e: log_factor(arrays, h, e), (None, 0)), (0, None))
        return jnp.stack([at(h, jnp.asarray(elements)) for h in (some, smaller, nudged(some))])

    found = run_once(jax.vmap(values), drawn, jnp.asarray(fields, dtype))
    return not differ(np.moveaxis(found, 1, 0), dtype).any()


def _steepest(
    log_factor: Callable[..., Float[Array, ""]],
    flat: Float[np.ndarray, "d k"],
    count: int,
    drawn: Sequence[np.ndarray],
    fields: Float[Array, "n k"],
) -> float:
    """The largest finite slope of an element along some directions, relative to its gradient, over all elements."""

    def along(given: tuple[Sequence[Array], Float[Array, " k"]], e: Int[Array, ""]) -> Float[Array, ""]:
        arrays, h = given
        slope = jacobian(lambda u: log_factor(arrays, u, e))(h)
        share = jnp.max(jnp.abs(jnp.asarray(flat, h.dtype) @ slope)) / jnp.linalg.norm(slope)
        return jnp.where(jnp.isfinite(share), share, 0.0)

    each = jax.vmap(lambda given: jax.lax.map(lambda e: along(given, e), jnp.arange(count), batch_size=_TOGETHER))
    return float(np.max(run_once(each, (list(drawn), fields))))


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


def _random(rng: np.random.Generator, variable: Variable) -> np.ndarray:
    """Random arrays for an input, of several kinds, because a likelihood may take only one of them."""
    shape, dtype = (_DRAWS, *shape_of(variable)), dtype_of(variable)
    if not (jnp.issubdtype(dtype, jnp.number) or dtype == np.bool_):
        return np.zeros(shape, np.uint32)
    if dtype == np.bool_:
        return np.ones(shape, bool)
    numbers = np.broadcast_to(np.reshape(_INTEGERS, (-1, *[1] * (len(shape) - 1))), shape)
    whole = rng.permuted(numbers, axis=0)
    if not jnp.issubdtype(dtype, jnp.inexact):
        return whole.astype(dtype)
    kinds = (rng.normal(size=shape), rng.uniform(0.1, 0.9, shape), whole)
    return np.stack([kinds[i % 3][i] for i in range(_DRAWS)]).astype(dtype)
