"""Selections of a row, made before the operations on the whole array that they select from.

With ``rate = exp(u)`` the selection ``rate[arm]`` reads one number of u, and ``(L @ z.T).T[group]`` reads one column
of z. Each operation that a selection can pass has a rule, which takes places of the output from the operands.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex

from adfpp.engine.trace.degree import Degree
from adfpp.engine.trace.interpret import Atom, Env, Equation, Value, bind, read, shape_of
from adfpp.engine.trace.touch import ELEMENTWISE
from adfpp.engine.trace.tracing import Trace

_RESHAPES = frozenset("reshape squeeze expand_dims".split())
_REDUCTIONS = frozenset("reduce_sum reduce_max reduce_min reduce_prod".split())
_RUNNING = frozenset("cumsum cumprod cummax cummin cumlogsumexp".split())
SELECTIONS = frozenset(["gather", "dynamic_slice"])
_OTHERS = frozenset("transpose broadcast_in_dim slice rev dot_general concatenate triangular_solve gather".split())
_PASSED = ELEMENTWISE | _RESHAPES | _REDUCTIONS | _RUNNING | _OTHERS


def movable(traced: Trace, equation: Equation) -> bool:
    """Whether an equation is a selection that can be made before the operation that gives its operand."""
    operand = traced.producer(equation.invars[0])
    passed = operand is not None and operand.primitive.name in _PASSED
    return passed and traced.degree(equation.invars[0]) == Degree.NONLINEAR and _selected(equation) is not None


class _Selected(NamedTuple):
    """The part of its operand that a selection takes: along some axes single places, along the others everything.

    Attributes:
        axes: The axes along which it takes single places.
        window: The shape of one taken piece in the output.
        places: For each axis of the output its place in ``(*batch, *window)``.
        fills: Whether a place outside the operand gives NaN instead of the nearest one.
    """

    axes: tuple[int, ...]
    window: tuple[int, ...]
    places: tuple[int, ...]
    fills: bool


def _selected(equation: Equation) -> _Selected | None:
    """Reads a selection's parameters; None if it takes ranges of places or has batching axes."""
    shape, params = shape_of(equation.invars[0]), equation.params
    sizes = tuple(params["slice_sizes"])
    if equation.primitive.name == "dynamic_slice":
        axes = tuple(a for a, (n, whole) in enumerate(zip(sizes, shape, strict=True)) if n != whole)
        if not axes or any(sizes[a] != 1 for a in axes):
            return None
        return _Selected(axes, sizes, tuple(range(1, len(sizes) + 1)), False)
    numbers = params["dimension_numbers"]
    axes = tuple(numbers.start_index_map)
    if not axes or numbers.operand_batching_dims or any(sizes[a] != 1 for a in axes):
        return None
    if any(n != whole for a, (n, whole) in enumerate(zip(sizes, shape, strict=True)) if a not in axes):
        return None
    rank, batch = len(shape_of(equation.outvars[0])), len(shape_of(equation.invars[1])) - 1
    inside, offsets = iter(range(batch)), iter(range(batch, rank))
    places = tuple(next(offsets) if d in numbers.offset_dims else next(inside) for d in range(rank))
    window = tuple(n for a, n in enumerate(sizes) if a not in numbers.collapsed_slice_dims)
    return _Selected(axes, window, places, params["mode"] == lax.GatherScatterMode.FILL_OR_DROP)


class _Places(NamedTuple):
    """Places to take from an array.

    Attributes:
        axes: The axes along which single places are taken.
        columns: ``(count,)`` the places along each of these axes.
        count: How many pieces are taken.
    """

    axes: tuple[int, ...]
    columns: tuple[Value, ...]
    count: int

    def others(self, rank: int) -> list[int]:
        """The axes along which everything is taken."""
        return [a for a in range(rank) if a not in self.axes]


_Rule: TypeAlias = Callable[[Equation, _Places], Value | None]


class Selecting:
    """Makes the selections of a trace while its equations are evaluated.

    Attributes:
        traced: The trace.
        env: The values of the variables so far.
    """

    def __init__(self, traced: Trace, env: Env) -> None:
        self.traced, self.env = traced, env
        self._zeros: dict[int, Value] = {}
        self._taken: dict[tuple[object, ...], tuple[Value, _Places]] = {}  # the places are kept, so that ids are unique

    def selection(self, equation: Equation) -> Value:
        """The output of a selection, made before the operations that give its operand."""
        selected = _selected(equation)
        assert selected is not None
        operand, *indices = equation.invars
        shape = shape_of(operand)
        if equation.primitive.name == "dynamic_slice":
            columns = [jnp.reshape(read(indices[a], self.env), (1,)) for a in selected.axes]
            batch: tuple[int, ...] = (1,)
        else:
            batch = shape_of(indices[0])[:-1]
            columns = self._index_columns(indices[0], math.prod(batch))
        clipped = tuple(jnp.clip(c, 0, shape[a] - 1) for c, a in zip(columns, selected.axes, strict=True))
        out = self._take(operand, _Places(selected.axes, clipped, math.prod(batch)))
        out = jnp.reshape(out, (*batch, *selected.window))
        if selected.fills:
            inside = jnp.stack([c == there for c, there in zip(columns, clipped, strict=True)]).all(0)
            inside = inside.reshape(*batch, *(1 for _ in selected.window))
            fill = equation.params["fill_value"]
            out = jnp.where(inside, out, jnp.nan if fill is None else fill)
        if equation.primitive.name == "dynamic_slice":
            return out[0]
        return jnp.transpose(out, selected.places)

    def _index_columns(self, indices: Atom, count: int) -> list[Value]:
        """The columns ``(count,)`` of a gather's indices, taken from before they were put together."""
        known = None if isinstance(indices, jex.Literal) else self.traced.producers.get(indices)
        shape = shape_of(indices)
        if known is not None:
            equation = self.traced.equations[known]
            apart = equation.primitive.name == "concatenate" and equation.params["dimension"] == len(shape) - 1
            if apart and all(shape_of(v)[-1] == 1 for v in equation.invars):
                return [jnp.reshape(read(v, self.env), count) for v in equation.invars]
        return list(jnp.reshape(read(indices, self.env), (count, shape[-1])).T)

    def _take(self, value: Atom, places: _Places) -> Value:
        """Takes places of a value, computing no more of it than that: ``(count, *other axes)``."""
        if isinstance(value, jex.Literal) or not places.axes:
            return jnp.broadcast_to(read(value, self.env), (places.count, *shape_of(value)))
        key = (value, places.axes, places.count, *map(id, places.columns))
        if key not in self._taken:
            self._taken[key] = (self._computed(value, places), places)
        return self._taken[key][0]

    def _computed(self, value: Atom, places: _Places) -> Value:
        equation = self.traced.producer(value)
        # A selection from an affine value is affine itself. The whole value may be needed elsewhere, and is then a cut
        # for both, as the logits of a softmax are.
        if equation is None or self.traced.degree(value) != Degree.NONLINEAR:
            return self._gathered(read(value, self.env), places)
        name = equation.primitive.name
        if name in ELEMENTWISE:
            out = self._of_elementwise(equation, places)
        elif name in _RESHAPES:
            out = self._of_reshape(equation, places)
        else:
            rule = {
                "transpose": self._of_transpose,
                "broadcast_in_dim": self._of_broadcast,
                "slice": self._of_slice,
                "rev": self._of_reversal,
                "dot_general": self._of_product,
                "concatenate": self._of_concatenation,
                "triangular_solve": self._of_solution,
                "gather": self._of_gather,
                **dict.fromkeys(_REDUCTIONS, self._of_reduction),
                **dict.fromkeys(_RUNNING, self._of_running),
            }.get(name)
            out = None if rule is None else self._along_some_axes(rule, equation, places)
        return self._gathered(read(value, self.env), places) if out is None else out

    def _along_some_axes(self, rule: _Rule, equation: Equation, places: _Places) -> Value | None:
        """Applies a rule along all axes or, if it cannot pass one of them, along a single axis."""
        out = rule(equation, places)
        if out is not None or len(places.axes) == 1:
            return out
        for i, axis in enumerate(places.axes):
            taken = rule(equation, _Places((axis,), (places.columns[i],), places.count))
            if taken is not None:
                # along the first axis of what was taken, the pieces; a piece has one place along each other axis
                rest = [(1 + a - (a > axis), c) for a, c in zip(places.axes, places.columns, strict=True) if a != axis]
                pieces = (0, *(a for a, _ in rest)), (jnp.arange(places.count), *(c for _, c in rest))
                return self._gathered(taken, _Places(*pieces, places.count))
        return None

    def _gathered(self, operand: Value, places: _Places) -> Value:
        """Takes places of a value that has been computed as a whole."""
        operand = jnp.asarray(operand)
        shape = operand.shape
        numbers = lax.GatherDimensionNumbers(
            offset_dims=tuple(range(1, len(shape) - len(places.axes) + 1)),
            collapsed_slice_dims=tuple(sorted(places.axes)),
            start_index_map=places.axes,
        )
        sizes = tuple(1 if a in places.axes else n for a, n in enumerate(shape))
        indices = jnp.stack(places.columns, -1)
        return lax.gather(operand, indices, numbers, sizes, mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)

    # Each rule takes places of an equation's output from its operands, or returns None where it cannot.

    def _of_elementwise(self, equation: Equation, places: _Places) -> Value | None:
        rank = len(shape_of(equation.outvars[0]))
        if any(len(shape_of(v)) not in (0, rank) for v in equation.invars):
            return None
        operands = [
            self._take(v, self._stretched(v, places)) if shape_of(v) else read(v, self.env) for v in equation.invars
        ]
        return bind(equation, operands)[0]

    def _stretched(self, value: Atom, places: _Places) -> _Places:
        """The places in an operand whose axes of length 1 are stretched to the length of the output's."""
        shape = shape_of(value)
        if all(shape[a] > 1 for a in places.axes):
            return places
        zero = self._zeros.setdefault(places.count, jnp.zeros(places.count, jnp.int32))
        columns = zip(places.axes, places.columns, strict=True)
        return places._replace(columns=tuple(c if shape[a] > 1 else zero for a, c in columns))

    def _of_transpose(self, equation: Equation, places: _Places) -> Value | None:
        permutation = equation.params["permutation"]
        source = places._replace(axes=tuple(permutation[a] for a in places.axes))
        left = source.others(len(permutation))
        order = [1 + left.index(permutation[a]) for a in places.others(len(permutation))]
        return jnp.transpose(self._take(equation.invars[0], source), (0, *order))

    def _of_broadcast(self, equation: Equation, places: _Places) -> Value | None:
        operand, shape = equation.invars[0], shape_of(equation.outvars[0])
        if len(equation.invars) != 1:
            return None
        onto = list(equation.params["broadcast_dimensions"])
        axes, columns = [], []
        for axis, column in zip(places.axes, places.columns, strict=True):
            if axis in onto:
                axes.append(onto.index(axis))
                columns.append(column)
        source = self._stretched(operand, _Places(tuple(axes), tuple(columns), places.count))
        left = places.others(len(shape))
        new = [1 + left.index(onto[a]) for a in source.others(len(onto))]
        out = (places.count, *(shape[a] for a in left))
        return lax.broadcast_in_dim(self._take(operand, source), out, (0, *new))

    def _of_reshape(self, equation: Equation, places: _Places) -> Value | None:
        before, after = shape_of(equation.invars[0]), shape_of(equation.outvars[0])
        if len(equation.invars) != 1 or equation.params.get("dimensions") is not None:
            return None
        axes: list[int] = []
        columns: list[Value] = []
        for axis, column in zip(places.axes, places.columns, strict=True):
            together = _axes_of(before, math.prod(after[:axis]), after[axis])
            if together is None:
                return None
            axes += together
            if len(together) == 1:
                columns.append(column)
            elif together:
                columns += jnp.unravel_index(column, [before[a] for a in together])
        taken = self._take(equation.invars[0], _Places(tuple(axes), tuple(columns), places.count))
        return jnp.reshape(taken, (places.count, *(after[a] for a in places.others(len(after)))))

    def _of_slice(self, equation: Equation, places: _Places) -> Value | None:
        starts, limits = equation.params["start_indices"], equation.params["limit_indices"]
        strides = equation.params["strides"] or (1,) * len(starts)
        columns = tuple(starts[a] + strides[a] * c for a, c in zip(places.axes, places.columns, strict=True))
        taken = self._take(equation.invars[0], places._replace(columns=columns))
        left = places.others(len(starts))
        return lax.slice(
            taken,
            (0, *(starts[a] for a in left)),
            (places.count, *(limits[a] for a in left)),
            (1, *(strides[a] for a in left)),
        )

    def _of_reversal(self, equation: Equation, places: _Places) -> Value | None:
        shape, turned = shape_of(equation.outvars[0]), equation.params["dimensions"]
        columns = tuple(
            shape[a] - 1 - c if a in turned else c for a, c in zip(places.axes, places.columns, strict=True)
        )
        taken = self._take(equation.invars[0], places._replace(columns=columns))
        return lax.rev(taken, [1 + i for i, a in enumerate(places.others(len(shape))) if a in turned])

    def _of_concatenation(self, equation: Equation, places: _Places) -> Value | None:
        axis, rank = equation.params["dimension"], len(shape_of(equation.outvars[0]))
        if axis in places.axes:
            return None
        pieces = [self._take(v, places) for v in equation.invars]
        return lax.concatenate(pieces, 1 + places.others(rank).index(axis))

    def _of_reduction(self, equation: Equation, places: _Places) -> Value | None:
        operand, reduced = equation.invars[0], equation.params["axes"]
        rank = len(shape_of(operand))
        kept = [a for a in range(rank) if a not in reduced]
        source = places._replace(axes=tuple(kept[a] for a in places.axes))
        left = source.others(rank)
        taken = self._take(operand, source)
        return _bind_with(equation, taken, axes=tuple(1 + left.index(a) for a in reduced))

    def _of_running(self, equation: Equation, places: _Places) -> Value | None:
        axis, rank = equation.params["axis"], len(shape_of(equation.outvars[0]))
        if axis in places.axes:
            return None
        return _bind_with(equation, self._take(equation.invars[0], places), axis=1 + places.others(rank).index(axis))

    def _of_product(self, equation: Equation, places: _Places) -> Value | None:
        ((left_sum, right_sum), (left_batch, right_batch)) = equation.params["dimension_numbers"]
        left, right = equation.invars
        batch = len(left_batch)
        left_axes = [*left_batch, *_free(left, left_sum, left_batch)]
        right_axes = _free(right, right_sum, right_batch)
        from_left: list[tuple[int, Value]] = []
        from_right: list[tuple[int, Value]] = []
        for axis, column in zip(places.axes, places.columns, strict=True):
            if axis < len(left_axes):
                from_left.append((left_axes[axis], column))
            if axis < batch:
                from_right.append((right_batch[axis], column))
            elif axis >= len(left_axes):
                from_right.append((right_axes[axis - len(left_axes)], column))
        operands, sums, batches = [], [], []
        both = bool(from_left and from_right)
        for value, chosen, summed, batched in (
            (left, from_left, left_sum, left_batch),
            (right, from_right, right_sum, right_batch),
        ):
            if not chosen:
                operands.append(read(value, self.env))
                sums.append(tuple(summed))
                batches.append(tuple(batched))
                continue
            source = _Places(tuple(a for a, _ in chosen), tuple(c for _, c in chosen), places.count)
            others = source.others(len(shape_of(value)))
            operands.append(self._take(value, source))
            sums.append(tuple(1 + others.index(a) for a in summed))
            batches.append((0,) * both + tuple(1 + others.index(a) for a in batched if a in others))
        out = lax.dot_general(
            operands[0],
            operands[1],
            ((sums[0], sums[1]), (batches[0], batches[1])),
            precision=equation.params["precision"],
            preferred_element_type=equation.params["preferred_element_type"],
        )
        if both:
            return out
        # The pieces are along the first free axis of the operand that they were taken from.
        at = len(batches[0]) if from_left else len(shape_of(left)) - len(left_sum)
        return jnp.moveaxis(out, at, 0)

    def _of_solution(self, equation: Equation, places: _Places) -> Value | None:
        """The solution of a triangular system has a column for each column of the right-hand side."""
        matrix, right = equation.invars
        rank = len(shape_of(right))
        free = rank - 1 if equation.params["left_side"] else rank - 2
        if rank != 2 or places.axes != (free,):
            return None
        columns = self._take(right, places)  # (count, n)
        turned = columns.T if free == 1 else columns
        solved = _bind_with(equation, read(matrix, self.env), turned)
        return solved.T if free == 1 else solved

    def _of_gather(self, equation: Equation, places: _Places) -> Value | None:
        """A selection of a selection is one selection, ``w[school[student]]``."""
        selected = _selected(equation)
        operand, indices = equation.invars
        if selected is None or selected.fills or len(shape_of(indices)) != 2:
            return None
        batch_axis = selected.places.index(0)
        window = tuple(n for a, n in enumerate(shape_of(operand)) if a not in selected.axes)
        if places.axes != (batch_axis,) or window != selected.window:
            return None
        numbers = jnp.clip(
            jnp.asarray(read(indices, self.env))[places.columns[0]],
            0,
            np.asarray([shape_of(operand)[a] - 1 for a in selected.axes]),
        )
        return self._take(operand, _Places(selected.axes, tuple(numbers.T), places.count))


def _bind_with(equation: Equation, *operands: Value, **changed: object) -> Value:
    """Applies an equation's primitive with some of its parameters changed."""
    out = equation.primitive.bind(*operands, **(equation.params | changed))
    return out[0] if equation.primitive.multiple_results else out


def _free(value: Atom, summed: Sequence[int], batched: Sequence[int]) -> list[int]:
    """The axes of a product's operand that are neither summed over nor batched."""
    return [a for a in range(len(shape_of(value))) if a not in summed and a not in batched]


def _axes_of(shape: tuple[int, ...], before: int, size: int) -> list[int] | None:
    """The axes of an array that a reshape has made one axis, by the size of this and of all axes before it."""
    if size == 1:
        return []
    start = next((a for a, n in enumerate(shape) if n > 1 and math.prod(shape[:a]) == before), None)
    if start is None:
        return None
    for stop in range(start + 1, len(shape) + 1):
        if math.prod(shape[start:stop]) == size:
            return list(range(start, stop))
    return None
