"""Finds the indices that a row selects with, as in ``alpha[county]``, so that one beyond the end can be refused.

JAX takes the last element in the place of an element that does not exist. A row of an unknown group would then change
the belief about the last group.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode
from jax.typing import ArrayLike

from adfpp.engine.trace import Atom, Trace, part_of, reads, shape_of
from adfpp.engine.trace.interpret import Equation, needed_equations
from adfpp.engine.trace.tracing import flattened

Inside = Callable[..., jax.Array]  # whether all indices of a row are inside, from the inputs of a row


def index_checks(
    f: Callable[..., Sequence[ArrayLike]],
    theta: jax.ShapeDtypeStruct,
    inputs: Sequence[jax.ShapeDtypeStruct],
    rows: int,
) -> list[Inside | None]:
    """For each output of ``f(theta, *inputs)``, a check of the indices that it depends on; None if there are none.

    An index counts if it depends on a row and not on θ. Where a model says what happens beyond the end
    (``jnp.take(..., mode="clip")``), nothing is checked.

    Args:
        f: The outputs of one row.
        theta: Shape of θ.
        inputs: Shapes of one row's arrays and of the shared ones.
        rows: The number of inputs that are a row's.
    """
    traced = flattened(f, theta, *inputs)
    found = {i: limits for i, e in enumerate(traced.equations) if (limits := _limits(traced, e, rows)) is not None}
    if not found:
        return [None] * len(traced.outputs)
    places = {id(traced.equations[i]): i for i in found}
    out: list[Inside | None] = []
    for output in traced.outputs:
        needed = [places[id(e)] for e in needed_equations(traced.equations, [output]) if id(e) in places]
        out.append(_inside(traced, [found[i] for i in needed]) if needed else None)
    return out


_Limits = list[tuple[Atom, np.ndarray]]  # indices, and the largest that each may be


def _limits(traced: Trace, equation: Equation, rows: int) -> _Limits | None:
    """The indices of a selection and their limits, or None if it is no selection by a row."""
    name, params = equation.primitive.name, equation.params
    limits: _Limits = []
    if name == "gather" and params["mode"] == GatherScatterMode.PROMISE_IN_BOUNDS:
        operand, index = equation.invars
        axes = params["dimension_numbers"].start_index_map
        shape, sizes = shape_of(operand), params["slice_sizes"]
        limits = [(index, np.array([shape[a] - sizes[a] for a in axes]))]
    elif name == "dynamic_slice":
        operand, *starts = equation.invars
        spare = [n - size for n, size in zip(shape_of(operand), params["slice_sizes"], strict=True)]
        limits = [(start, np.array(limit)) for start, limit in zip(starts, spare, strict=True)]
    by_row = [
        (index, limit)
        for index, limit in limits
        if reads(traced, index, traced.inputs[:rows]) and not reads(traced, index, [traced.theta])
    ]
    return by_row or None


def _inside(traced: Trace, found: Sequence[_Limits]) -> Inside:
    parts: list[tuple[Any, np.ndarray]] = [
        (part_of(traced, index), limit) for limits in found for index, limit in limits
    ]

    def inside(*inputs: ArrayLike) -> jax.Array:
        checks = []
        for part, limit in parts:
            index = part(*inputs)
            checks.append(jnp.all((index >= 0) & (index <= limit)))
        return jnp.all(jnp.stack(checks))

    return inside
