"""Finds the coordinates of θ, and the elements of other values, from which some elements of a value are computed.

Boolean masks are passed backwards through the equations. For a primitive that is not known here, every element of the
output is assumed to read all elements of the operands. The result may then be too large, but never too small.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jaxtyping import Bool, Int

from adfpp.engine.compilation import evaluated
from adfpp.engine.trace.degree import Degree
from adfpp.engine.trace.interpret import (
    Atom,
    Equation,
    Variable,
    bind,
    needed_equations,
    shape_of,
)
from adfpp.engine.trace.tracing import Trace, known_value

Mask = Bool[np.ndarray, "..."]

_MOST_POSITIONS = 2**24  # float32 stores them exactly


def _broadcast(a: np.ndarray, shape: Sequence[int], broadcast_dimensions: Sequence[int], **_: object) -> np.ndarray:
    lengths = dict(zip(broadcast_dimensions, a.shape, strict=True))
    return np.broadcast_to(a.reshape([lengths.get(axis, 1) for axis in range(len(shape))]), shape)


def _slice(
    a: np.ndarray, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None
) -> np.ndarray:
    return a[tuple(map(slice, start_indices, limit_indices, strides or [1] * a.ndim))]


# Every element of the output is an element of the operand. The same in NumPy, with the primitive's parameters.
MOVES: dict[str, Callable[..., np.ndarray]] = {
    "reshape": lambda a, new_sizes, dimensions, **_: a.transpose(dimensions or range(a.ndim)).reshape(new_sizes),
    "transpose": lambda a, permutation: a.transpose(permutation),
    "squeeze": lambda a, dimensions: a.squeeze(tuple(dimensions)),
    "slice": _slice,
    "rev": lambda a, dimensions: np.flip(a, tuple(dimensions)),
    "broadcast_in_dim": _broadcast,
    "copy": lambda a: a,
    "copy_p": lambda a: a,
}
# An element of the output reads the elements of the operands at the same place; axes of length 1 are broadcast.
ELEMENTWISE = frozenset(
    "stop_gradient abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp "
    "convert_element_type cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igammac "
    "integer_pow is_finite le lgamma log log1p logistic lt max min mul ne neg nextafter not or polygamma pow "
    "reduce_precision regularized_incomplete_beta rem round rsqrt select_n sign sin sinh sqrt square sub tan tanh xor "
    "zeta".split()
)
_REDUCTIONS = frozenset("reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin".split())


# ------------------------------------------------------------------------------------------------- elements


def one_element(value: Atom, element: int) -> Mask:
    """The mask of one element of a value, counted in row-major order."""
    mask = np.zeros(shape_of(value), bool)
    mask.reshape(-1)[element] = True
    return mask


def elements_read(trace: Trace, output: Variable, wanted: Mask) -> dict[Variable, Mask]:
    """For each earlier value, the elements that some elements of one output may depend on."""
    masks = {output: wanted}
    for equation in reversed(needed_equations(trace.equations, [output])):
        operands = _operand_masks(equation, [masks.get(v) for v in equation.outvars], trace)
        for v, needed in zip(equation.invars, operands, strict=True):
            if not isinstance(v, jex.Literal):
                masks[v] = masks[v] | needed if v in masks else needed
    return masks


def depends_on(trace: Trace, output: Atom) -> Bool[np.ndarray, " N"]:
    """The coordinates of θ that an output may depend on, as booleans."""
    if isinstance(output, jex.Literal) or trace.degree(output) == Degree.CONSTANT:
        return np.zeros(trace.size, bool)
    return coordinates_read(trace, output, np.ones(shape_of(output), bool))


def coordinates_read(trace: Trace, output: Variable, wanted: Mask) -> Bool[np.ndarray, " N"]:
    """The coordinates of θ that some elements of one output may depend on, as booleans."""
    return elements_read(trace, output, wanted).get(trace.theta, np.zeros(trace.size, bool))


def _operand_masks(equation: Equation, wanted: Sequence[Mask | None], trace: Trace) -> list[Mask]:
    """The elements of each operand that the wanted elements of the outputs read."""
    name, shapes = equation.primitive.name, [shape_of(v) for v in equation.invars]
    everything = [np.ones(s, bool) for s in shapes]
    if len(wanted) != 1 or wanted[0] is None:
        return everything
    out = wanted[0]
    if name in MOVES and len(shapes) == 1 and not isinstance(equation.invars[0], jex.Literal):
        source = np.zeros(shapes[0], bool)
        source.reshape(-1)[_sources(equation, shapes[0])[out]] = True
        return [source]
    if name == "concatenate":
        axis = equation.params["dimension"]
        return np.split(out, np.cumsum([s[axis] for s in shapes])[:-1], axis=axis)
    if name in _REDUCTIONS:
        kept = np.expand_dims(out, equation.params["axes"])
        return [np.broadcast_to(kept, shapes[0])]
    if name == "dot_general":
        return _product_masks(equation, shapes, out)
    if name in ELEMENTWISE and all(len(s) in (0, out.ndim) for s in shapes):
        return [_before_broadcast(out, s) for s in shapes]
    if name == "triangular_solve":  # each column of the right-hand side has its own solution
        axis = -2 if equation.params["left_side"] else -1
        return [_of_matrices(out, shapes[0]), np.broadcast_to(out.any(axis, keepdims=True), out.shape)]
    if name == "cholesky":
        return [_of_matrices(out, shapes[0])]
    if name == "stack":
        return list(np.moveaxis(out, equation.params["axis"], 0))
    selected = _selected_mask(equation, shapes[0], out, trace) if name in ("gather", "dynamic_slice") else None
    if selected is not None:
        return [selected, *everything[1:]]
    if name == "gather":
        return [_gather_mask(equation, shapes[0], out), *everything[1:]]
    return everything


def _sources(equation: Equation, shape: tuple[int, ...]) -> Int[np.ndarray, "..."]:
    """The position in the operand of each element of a data movement's output."""
    positions = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    return MOVES[equation.primitive.name](positions, **equation.params)


def _before_broadcast(out: Mask, shape: tuple[int, ...]) -> Mask:
    """Needed elements of an operand that is broadcast, along axes of length 1, to the output."""
    if shape == ():
        return np.array(out.any())
    broadcast = tuple(i for i, (a, b) in enumerate(zip(shape, out.shape, strict=True)) if a != b)
    return np.asarray(out.any(axis=broadcast, keepdims=True))


def _of_matrices(out: Mask, shape: tuple[int, ...]) -> Mask:
    """Needed matrices of an array of matrices, whose leading axes are those of the output."""
    return np.broadcast_to(out.any((-2, -1), keepdims=True), shape)


def _selected_mask(equation: Equation, shape: tuple[int, ...], out: Mask, trace: Trace) -> Mask | None:
    """Needed elements of the operand of a selection whose indices are known; None if they are not."""
    indices = [known_value(trace, v) for v in equation.invars[1:]]
    if any(i is None for i in indices) or math.prod(shape) > _MOST_POSITIONS:
        return None
    with evaluated():
        positions = jnp.arange(math.prod(shape), dtype=jnp.float32).reshape(shape)
        chosen = np.asarray(bind(equation, [positions, *(jnp.asarray(i) for i in indices)])[0])[out]
    needed = np.zeros(shape, bool)
    needed.reshape(-1)[chosen[~np.isnan(chosen)].astype(int)] = True  # beyond the end, a gather fills in NaN
    return needed


def _gather_mask(equation: Equation, shape: tuple[int, ...], out: Mask) -> Mask:
    """Needed elements of a gather's operand: those of the output along batching axes, and all along the other axes."""
    numbers = equation.params["dimension_numbers"]
    operand, indices = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    if not operand:
        return np.ones(shape, bool)
    # The output's axes that are not offset axes are the axes of the indices without the last one, in order.
    batch = [d for d in range(out.ndim) if d not in numbers.offset_dims]
    kept = [batch[i] for i in indices]
    wanted = np.asarray(out.any(axis=tuple(d for d in range(out.ndim) if d not in kept)))
    wanted = wanted.transpose(np.argsort(np.argsort(kept)))  # axes in the order of operand_batching_dims
    needed = np.zeros(shape, bool)
    np.moveaxis(needed, operand, range(len(operand)))[wanted] = True
    return needed


def _product_masks(equation: Equation, shapes: Sequence[tuple[int, ...]], out: Mask) -> list[Mask]:
    """Needed elements of both operands of a ``dot_general``, whose output has batch, left and right axes."""
    (left_contract, right_contract), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left_free = [d for d in range(len(shapes[0])) if d not in left_contract and d not in left_batch]
    right_free = [d for d in range(len(shapes[1])) if d not in right_contract and d not in right_batch]
    batch = len(left_batch)
    left_out = out.any(axis=tuple(range(batch + len(left_free), out.ndim)))
    right_out = out.any(axis=tuple(range(batch, batch + len(left_free))))
    masks = []
    for shape, kept_axes, kept in (
        (shapes[0], [*left_batch, *left_free], left_out),
        (shapes[1], [*right_batch, *right_free], right_out),
    ):
        axes = [*kept_axes, *(d for d in range(len(shape)) if d not in kept_axes)]
        stretched = kept.reshape(kept.shape + (1,) * (len(axes) - len(kept_axes)))
        masks.append(np.broadcast_to(stretched, [shape[d] for d in axes]).transpose(np.argsort(axes)))
    return masks


# ------------------------------------------------------------------------------------------------- fields


class Reach(NamedTuple):
    """The coordinates of θ that the numbers of some fields read.

    Attributes:
        touched: ``(k, N)`` booleans: whether number i of the field may read a coordinate, in any row.
        most: ``(k, parts)`` the largest number of coordinates of each part that number i reads in one row. An entry
            that is selected by an index counts as one coordinate.
    """

    touched: Bool[np.ndarray, "k N"]
    most: Int[np.ndarray, "k parts"]


def reach(
    trace: Trace, values: Sequence[Variable], indices: Sequence[Sequence[np.ndarray]], parts: Sequence[np.ndarray]
) -> Reach:
    """Finds the coordinates of θ, and of some parts of it, that fields read.

    Args:
        trace: The trace of a row.
        values: The affine values whose elements make up the fields.
        indices: For each field and each value, the elements that belong to the field.
        parts: The coordinates of θ in each part.
    """
    touched: list[Bool[np.ndarray, " N"]] = []
    most: list[list[int]] = []
    for j, value in enumerate(values):
        at_once = [_read_at_once(trace, value, part) for part in parts]
        for i in range(len(indices[0][j])):
            seen = np.zeros(trace.size, bool)
            for field in indices:
                seen |= coordinates_read(trace, value, one_element(value, field[j][i]))
            touched.append(seen)
            most.append([min(n, int(seen[part].sum())) for n, part in zip(at_once, parts, strict=True)])
    return Reach(np.array(touched, bool).reshape(-1, trace.size), np.array(most, int).reshape(-1, len(parts)))


def _read_at_once(trace: Trace, value: Variable, part: np.ndarray) -> int:
    """The largest number of coordinates of a part of θ from which an element of an affine value is computed."""
    counts = {trace.theta: 1}
    for equation in needed_equations(trace.equations, [value]):
        own = [0 if isinstance(v, jex.Literal) else counts.get(v, 0) for v in equation.invars]
        together = _combined(equation, own) * _terms_of(equation, trace.size)
        for v in equation.outvars:
            there = together and trace.degree(v) != Degree.CONSTANT and depends_on(trace, v)[part].any()
            counts[v] = together if there else 0
    return counts.get(value, 0)


def _combined(equation: Equation, counts: Sequence[int]) -> int:
    """The number of coordinates in one term of the output, from the numbers in an element of each operand."""
    if equation.primitive.name in ("concatenate", "stack", "select_n"):
        return max(counts, default=0)
    return sum(counts)


def _terms_of(equation: Equation, size: int) -> int:
    """The number of elements of an operand that an element of the output adds up; the length of θ if it is unknown."""
    name = equation.primitive.name
    if name in {*MOVES, *ELEMENTWISE, "concatenate", "gather", "dynamic_slice", "stack"}:
        return 1
    if name == "dot_general":
        (axes, _), _ = equation.params["dimension_numbers"]
    elif name == "reduce_sum":
        axes = equation.params["axes"]
    elif name == "cumsum":
        axes = (equation.params["axis"],)
    else:
        return size
    shape = shape_of(equation.invars[0])
    return math.prod(shape[a] for a in axes)


def only_moves(trace: Trace, value: Variable) -> bool:
    """Whether a value consists of unchanged coordinates of θ."""
    while value is not trace.theta:
        equation = trace.equations[trace.producers[value]]
        source = equation.invars[0]
        if equation.primitive.name not in _PICKS or isinstance(source, jex.Literal):
            return False
        value = source
    return True


_PICKS = frozenset("slice squeeze reshape gather broadcast_in_dim dynamic_slice copy".split())
