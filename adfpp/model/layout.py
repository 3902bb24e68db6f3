"""Finds which arguments of a call carry rows, which are shared by all rows, and which are fixed options.

A whole number that sizes the plate of the observations, as in ``numpyro.plate("rows", n)``, is a count: it follows the
rows, because the model also runs on some of them. With ``rows=()`` nothing carries rows, and the call is one row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from adfpp.model.arguments import Array, Bound, ModelError, Structure, is_array, is_whole_number, widened
from adfpp.model.elements import is_factor
from adfpp.model.outline import Outlines

ONE_ROW = np.zeros(1, np.float32)  # stands for the rows of a call that is one row; no model reads it


@dataclass(frozen=True)
class Layout:
    """How a call's arguments are split into arrays of rows, shared arrays, fixed values and counts of rows.

    Two layouts are equal if their fixed values are equal and of the same types: 1, 1.0 and True are different options.

    Attributes:
        treedef: The structure of the arguments, bound to the names of the model's parameters.
        names: For each leaf, the parameter it belongs to.
        kinds: For each leaf "row", "shared", "fixed" or "count". Without "row", the whole call is one row.
        fixed: The fixed leaves' values (Python numbers, strings, …), in order.
    """

    treedef: Structure
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    fixed: tuple[object, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.treedef, self.names, self.kinds, self.fixed, tuple(type(leaf) for leaf in self.fixed)

    def with_fixed(self, leaves: Sequence[object]) -> "Layout":
        """The layout of another call of the same structure, with the fixed values among its leaves."""
        return replace(self, fixed=tuple(leaf for leaf, k in zip(leaves, self.kinds, strict=True) if k == "fixed"))

    def rebuild(self, rows: Sequence[object], shared: Sequence[object]) -> dict[str, Any]:
        """The bound arguments, made of these arrays and the fixed values; narrow integers are widened."""
        pools = {"row": map(widened, rows), "shared": map(widened, shared), "fixed": iter(self.fixed)}
        length = jax.typeof(rows[0]).shape[0] if "count" in self.kinds else None
        leaves = [length if k == "count" else next(pools[k]) for k in self.kinds]
        return jax.tree.unflatten(self.treedef, leaves)

    def rebuild_from(self, inputs: Sequence[object]) -> dict[str, Any]:
        """The bound arguments, made of the row arrays, followed by the shared arrays, and the fixed values."""
        rows = max(1, self.kinds.count("row"))
        return self.rebuild(inputs[:rows], inputs[rows:])

    @property
    def whole(self) -> bool:
        """Whether the whole call is one row."""
        return "row" not in self.kinds

    def split(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """(row arrays, shared arrays) among the leaves of a call."""
        rows = [a for a, k in zip(leaves, self.kinds, strict=True) if k == "row"]
        return rows or [ONE_ROW], [a for a, k in zip(leaves, self.kinds, strict=True) if k == "shared"]

    def leaf_names(self, kind: str) -> list[str]:
        """For each leaf of this kind the parameter that it belongs to."""
        return [n for n, k in zip(self.names, self.kinds, strict=True) if k == kind]

    def named(self, *kinds: str) -> tuple[str, ...]:
        """Parameters with leaves of these kinds."""
        return tuple(dict.fromkeys(n for n, k in zip(self.names, self.kinds, strict=True) if k in kinds))

    @property
    def carriers(self) -> tuple[str, ...]:
        """Parameters that change with the rows, as the option ``rows`` names them."""
        return self.named("row", "count")


def find_layout(whole: Outlines, bound: Bound, rows: Sequence[str] | None) -> Layout:
    """Finds out which arguments of a call carry rows.

    Args:
        whole: The model's latents and observations on all rows of the call.
        bound: The arguments of the call.
        rows: Parameters that carry rows; None to take the arrays that are as long as the plate of the observations.
            Without any, the whole call is one row.

    Raises:
        ModelError: When no argument carries rows, or the arguments named in ``rows`` do not fit.
    """
    _, leaves, names, treedef = bound
    arrays = [is_array(leaf) for leaf in leaves]
    counts = [False] * len(leaves)
    if rows is not None:
        unknown = [r for r in rows if r not in names]
        if unknown:
            raise ModelError(f"rows names {unknown}, but the model was called with {sorted(set(names))}.")
        carries = [n in rows and array for n, array in zip(names, arrays, strict=True)]
        counts = [n in rows and is_whole_number(leaf) for n, leaf in zip(names, leaves, strict=True)]
        _refuse_other_lengths(bound, carries, counts)
    else:
        lengths = {leaf.shape[0] for leaf in leaves if is_array(leaf) and leaf.ndim > 0}
        n = _row_count(whole, lengths)
        if n is None:
            shapes = {m: leaf.shape for m, leaf in zip(names, leaves, strict=True) if is_array(leaf)}
            plates = {p.name: p.size for o in whole.observations.values() for p in o.plates}
            raise ModelError(
                f"No argument carries rows for the observations {sorted(whole.observations)}: their plates are "
                f"{plates}, the arrays' shapes {shapes}. Size the data plate from an argument, numpyro.plate('rows', "
                "x.shape[0]), and pass the data as arguments, rows along the leading axis. If the rows belong "
                "together, and the model has few latents, take all data of a call as one row: rows=()."
            )
        carries = [is_array(leaf) and leaf.ndim > 0 and leaf.shape[0] == n for leaf in leaves]
    kinds = tuple(
        "row" if row else "count" if count else "shared" if array else "fixed"
        for row, count, array in zip(carries, counts, arrays, strict=True)
    )
    return Layout(treedef, tuple(names), kinds, ()).with_fixed(leaves)


def with_counts(layout: Layout, leaves: Sequence[object], length: int) -> Iterator[Layout]:
    """Layouts in which whole numbers that equal the number of rows are counts: one of them, or all."""
    places = [i for i, leaf in enumerate(leaves) if is_whole_number(leaf) and leaf == length]
    places = [i for i in places if layout.kinds[i] == "fixed"]
    for chosen in [{i} for i in places] + [set(places)] * (len(places) > 1):
        kinds = tuple("count" if i in chosen else kind for i, kind in enumerate(layout.kinds))
        yield replace(layout, kinds=kinds).with_fixed(leaves)


def _refuse_other_lengths(bound: Bound, carries: Sequence[bool], counts: Sequence[bool]) -> None:
    """Refuses arguments named in ``rows`` that do not have the same number of rows."""
    each = zip(bound.names, bound.leaves, carries, counts, strict=True)
    chosen = {(n, leaf if count else leaf.shape[0] if leaf.ndim else 0) for n, leaf, row, count in each if row or count}
    if len({length for _, length in chosen}) > 1:
        raise ModelError(f"The arguments named in rows differ in their leading axes: {dict(sorted(chosen))}.")
    if any(counts) and not any(carries):
        raise ModelError(f"rows names no array, only {sorted(n for n, _ in chosen)}. Name the arrays of rows as well.")


def _row_count(whole: Outlines, lengths: set[int]) -> int | None:
    """The size of the observations' outermost plate (or axis) that is also the leading axis of an argument."""
    # a factor may belong to the prior, and its plate is then another one, such as that of the edges of a graph
    observations = sorted(whole.observations.values(), key=lambda o: is_factor(o.fn))
    for observation in observations:
        plates = sorted(observation.plates, key=lambda plate: plate.dim)
        for size in [plate.size for plate in plates] or observation.element_shape[:1]:
            if size in lengths:
                return size
    for observation in observations:
        for size in observation.element_shape:
            if size in lengths:
                return size
    # A factor that is summed over its rows has no axis for them. If all arrays have one length, it is that of the rows.
    return next(iter(lengths)) if len(lengths) == 1 else None


def refuse_empty(bound: Bound) -> None:
    """Refuses arrays without rows: a model is read from the shapes of at least one row."""
    for leaf, name in zip(bound.leaves, bound.names, strict=True):
        if is_array(leaf) and leaf.ndim > 0 and leaf.shape[0] == 0:
            raise ModelError(
                f"Argument {name!r} has no rows (shape {leaf.shape}). Pass at least one: the model is read from its "
                "shapes."
            )


def shapes_in_words(bound: Bound) -> str:
    """The names and shapes of a call's arrays."""
    return ", ".join(f"{n} {leaf.shape}" for n, leaf in zip(bound.names, bound.leaves, strict=True) if is_array(leaf))


def leading_lengths(bound: Bound) -> dict[str, int]:
    """The length of each array of a call along its leading axis."""
    named: Mapping[str, Array] = {n: a for n, a in zip(bound.names, bound.leaves, strict=True) if is_array(a)}
    return {n: a.shape[0] for n, a in named.items() if a.ndim}
