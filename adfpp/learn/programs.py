"""The programs of this process, with everything that is computed from them once, in a cache of limited size."""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import jax
import numpy as np
from jax.core import Tracer

from adfpp.learn.start import Prior, Start
from adfpp.model import READING, Program, is_array
from adfpp.model.arguments import canonical_dtype
from adfpp.model.priors import Projection
from adfpp.model.sizes import SizedModel

_MOST_PROGRAMS = 16  # a program's compiled code takes up to 1,500 memory maps, and a process may have 65,530


@dataclass(eq=False)
class Entry:
    """A program in the cache, with the things that are computed from it once.

    Attributes:
        program: The model as it was read.
        checked: Whether the numeric row check has passed.
        projection: The projected prior, and the shared arrays that it was computed from.
        start: For each value of ``revisited``, the prior and the belief before any row, and the shared arrays that they
            were computed from.
        lock: Locked while one of these is computed.
    """

    program: Program
    checked: bool = False
    projection: tuple[list[np.ndarray], Projection] | None = None
    start: dict[bool, tuple[list[np.ndarray], tuple[Prior, Start]]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


class Programs:
    """The programs of this process, least recently used first."""

    def __init__(self) -> None:
        self.lock = READING
        self.buckets: OrderedDict[Hashable, list[Entry]] = OrderedDict()

    def find(self, key: Hashable, leaves: Sequence[object], fingerprint: str | None) -> Entry | None:
        """Returns the entry whose program takes these leaves, and a state with this fingerprint if given; or None."""
        with self.lock:
            for entry in self.buckets.get(key, ()):
                if _takes(entry.program, leaves, fingerprint):
                    self.buckets.move_to_end(key)
                    return entry
        return None

    def add(self, key: Hashable, program: Program) -> Entry:
        """Adds a program, and removes the one that has not been used for the longest time."""
        with self.lock:
            entry = Entry(program)
            self.buckets.setdefault(key, []).append(entry)
            self.buckets.move_to_end(key)
            while sum(map(len, self.buckets.values())) > _MOST_PROGRAMS:
                oldest = next(iter(self.buckets))
                self.buckets[oldest].pop(0)
                if not self.buckets[oldest]:
                    del self.buckets[oldest]
            return entry


def _takes(program: Program, leaves: Sequence[object], fingerprint: str | None) -> bool:
    """Whether a program was read for leaves with the same fixed values, shapes and dtypes, and pinned arrays.

    Args:
        program: The program.
        leaves: The leaves of the arguments.
        fingerprint: That of the state that the call continues from. Without it, the sizes that the model reads out of
            its data must be those of these leaves.
    """
    layout = program.layout
    if [is_array(leaf) for leaf in leaves] != [kind in ("row", "shared") for kind in layout.kinds]:
        return False
    rows, shared = layout.split(leaves)
    if any(a.ndim == 0 for a in rows) or layout.with_fixed(leaves) != layout:
        return False
    shapes = [(a.shape[1:], canonical_dtype(a)) for a in rows] + [(a.shape, canonical_dtype(a)) for a in shared]
    if shapes != [(like.shape, like.dtype) for like in (*program.row_shapes, *program.shared_shapes)]:
        return False
    if not isinstance(program.model, SizedModel):
        return any(isinstance(a, jax.ShapeDtypeStruct | Tracer) for a in shared) or program.fits(shared)
    if keeps_sizes(program, fingerprint):
        return True
    return fingerprint is None and program.model.agrees(jax.tree.unflatten(layout.treedef, leaves))


def keeps_sizes(program: Program, fingerprint: str | None) -> bool:
    """Whether the sizes of a program, if it has any from data, are those of a state."""
    return not isinstance(program.model, SizedModel) or program.fingerprint == fingerprint
