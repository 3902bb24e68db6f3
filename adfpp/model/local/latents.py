"""Finds the local latents: those with one entry for each row, independent of the other rows' entries."""

import math
from dataclasses import dataclass

import jax
import numpy as np

from adfpp.model.arguments import ModelError
from adfpp.model.elements import is_improper, scalar_base
from adfpp.model.outline import Outlines


@dataclass(frozen=True)
class LocalLatent:
    """A latent in the data plate, as it is in one row.

    Attributes:
        name: The name of the latent.
        shape: The shape of its value in one row; the axis of the rows has length 1.
        axis: The axis of the rows.
        unconstrained_shape: The shape of its unconstrained value; for a discrete latent the same as ``shape``.
        where: Its place among the row's local numbers; continuous and discrete numbers are counted separately.
        support: ``(K,)`` the values of a discrete latent; None for a continuous one.
        exact: Whether its prior is a Gaussian that does not depend on other latents, so that it is the base itself.
        how: How it is integrated out, in words.
        unlisted: For a discrete latent whose values cannot be listed, the name of its distribution. Its ``support`` is
            a placeholder, and no observation may depend on it.
    """

    name: str
    shape: tuple[int, ...]
    axis: int
    unconstrained_shape: tuple[int, ...]
    where: slice
    support: np.ndarray | None
    exact: bool = False
    how: str = ""
    unlisted: str = ""

    @property
    def size(self) -> int:
        """Number of unconstrained (or discrete) scalars of a row."""
        return self.where.stop - self.where.start

    @property
    def places(self) -> range:
        """Places of its scalars among the row's continuous or discrete local numbers."""
        return range(self.where.start, self.where.stop)

    def per_row(self, a: jax.Array) -> jax.Array:
        """Numbers ``(..., size)`` in the shape of one row's unconstrained value, without the rows' axis."""
        shape = self.unconstrained_shape
        return a.reshape(a.shape[:-1] + shape[: self.axis] + shape[self.axis + 1 :])


def local_latents(whole: Outlines, rows: int, one: Outlines, two: Outlines) -> tuple[LocalLatent, ...]:
    """The latents with one entry for each row. ``refusals`` refuses those that grow with the rows in another way.

    Args:
        whole: The model on all rows.
        rows: The number of rows.
        one: The model on one row.
        two: The model on two rows.

    Raises:
        ModelError: When a latent with one entry for each row cannot be integrated out row by row.
    """
    out, numbers, discretes = [], 0, 0
    for name, latent in whole.latents.items():
        if name not in one.latents or name not in two.latents:
            continue
        first, second = one.latents[name], two.latents[name]
        axis = _growing_axis(first.shape, second.shape, latent.shape, rows)
        if axis is None:
            continue
        kind = type(scalar_base(latent.fn)).__name__
        if math.prod(second.element_shape) != 2 * math.prod(first.element_shape):
            raise ModelError(
                f"Latent {name!r} has an entry for every row, but its prior ties them together ({kind} over all rows "
                "at once), so that no row can be learned without the others. Draw one independent value for each row "
                "inside the data plate; for values that drift from row to row use dynamics=adfpp.RandomWalk(...)."
            )
        if is_improper(latent.fn):
            raise ModelError(
                f"Latent {name!r} is drawn for every row from an improper prior, over which no row can be integrated. "
                "Give it a proper prior."
            )
        listed = not first.discrete or first.values is not None
        support = None
        if first.discrete:
            support = first.values if listed else np.zeros(1, int)
        unconstrained = first.unconstrained_shape if support is None else first.shape
        size, start = math.prod(unconstrained), numbers if support is None else discretes
        where = slice(start, start + size)
        out.append(LocalLatent(name, first.shape, axis, unconstrained, where, support, unlisted="" if listed else kind))
        numbers, discretes = numbers + size * (support is None), discretes + size * (support is not None)
    return tuple(out)


def _growing_axis(one: tuple[int, ...], two: tuple[int, ...], whole: tuple[int, ...], rows: int) -> int | None:
    """The axis whose length is the number of rows; None if there is no such axis, or other axes change as well."""
    if not len(one) == len(two) == len(whole):
        return None
    grown = [i for i, lengths in enumerate(zip(one, two, whole, strict=True)) if len(set(lengths[:2])) > 1]
    fits = len(grown) == 1 and (one[grown[0]], two[grown[0]], whole[grown[0]]) == (1, 2, rows)
    if not fits or any(a != c for i, (a, c) in enumerate(zip(one, whole, strict=True)) if i != grown[0]):
        return None
    return grown[0]
