"""Decides, from shapes alone, how the parts of a product enter the field of a factor.

There are three ways to enter a field ``h = A θ + b``:

- *enumerated* components, over which the factor is summed or integrated one by one (or which are drawn, if there are
  too many);
- a *central-limit block* of many independent components, whose sum is Gaussian by the central limit theorem;
- Gaussian blocks, which are Gaussian in the field already.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from adfpp.engine.factor import Factor
from adfpp.engine.families.product.parts import Part
from adfpp.engine.tilt import MonteCarlo, Quadrature


@dataclass(frozen=True)
class Splitting:
    """Limits that decide when components are enumerated, and when the central limit theorem is used.

    Attributes:
        states: The largest number of combinations of discrete values that are summed over.
        nodes: The largest number of nodes of a tensor of quadratures.
        axes: The largest number of dimensions of a tensor of quadratures.
        one_out: The largest central-limit block whose components are each left out in turn; for larger blocks the
            factor is expanded to first order.
        expanded: The largest error of that expansion, at the largest move of one component, with which it is used.
        smallest_block: The smallest number of components in a central-limit block.
    """

    states: int = 1 << 14
    nodes: int = 1 << 14
    axes: int = 3
    one_out: int = 64
    expanded: float = 0.005
    smallest_block: int = 4


@dataclass(frozen=True, eq=False)
class Enumerated:
    """Components of a part that are summed or integrated over one by one.

    Attributes:
        part: The place of the part in the product.
        count: The largest number of its components that a row reads.
        candidates: ``(c,)`` the components that a row may read. If c > count, those with the largest share in the field
            are used.
    """

    part: int
    count: int
    candidates: np.ndarray


@dataclass(frozen=True, eq=False)
class FieldSplit:
    """How the parts of a product enter a factor's field.

    Attributes:
        enumerated: Components that are integrated over one by one.
        central: Parts that enter as central-limit blocks.
        blocks: Gaussian parts.
        inner: ``(g,)`` the numbers of the field that central-limit and Gaussian blocks enter.
        how: "enumerated", "quadrature", "one out", "first order", "drawn" or "Gaussian".
        why: A description in words.
        level: The level of the quadratures' nodes.
        one_out: Whether the components of the central-limit block can be left out in turn.
        closed: Whether the factor's rule is a closed form.
        limits: The limits that led to this split.
    """

    enumerated: tuple[Enumerated, ...]
    central: tuple[int, ...]
    blocks: tuple[int, ...]
    inner: np.ndarray
    how: str
    why: str
    level: int
    one_out: bool
    closed: bool
    limits: Splitting

    def error_limit(self, factor: Factor, dtype: DTypeLike) -> float:
        """The estimated error above which a row is marked."""
        if self.how == "drawn":
            return MonteCarlo().report
        rule: Any = Quadrature() if factor.rule.exact else factor.rule
        size = len(self.inner) + sum(e.count for e in self.enumerated)
        limit = rule.reported(dtype, max(size, 1))
        return limit if self.how != "quadrature" else max(1e-4, limit)


@lru_cache(maxsize=1024)
def split_field(parts: tuple[Part, ...], splitting: Splitting, factor: Factor) -> FieldSplit:
    """Decides how parts enter a factor's field.

    Args:
        parts: The parts of the product.
        splitting: The limits of enumeration.
        factor: The factor group.
    """
    assert factor.reach is not None
    touched, most = factor.reach(tuple(p.where for p in parts))
    touched = touched[:, : sum(len(p.where) for p in parts)]
    enumerated: list[Enumerated] = []
    numbers: dict[int, np.ndarray] = {}  # the numbers of the field that a part enters
    for i, part in enumerate(parts):
        own = touched[:, part.where]
        if not own.any():
            continue
        numbers[i] = np.flatnonzero(own.any(1))
        if not part.gaussian:
            possible = np.flatnonzero(own.any(0).reshape(part.count, -1).any(1))
            enumerated.append(Enumerated(i, min(len(possible), int(most[numbers[i], i].sum())), possible))
    blocks = tuple(i for i in numbers if parts[i].gaussian)
    central: list[int] = []

    def inner() -> np.ndarray:
        return np.unique(np.concatenate([np.zeros(0, int), *(numbers[i] for i in (*blocks, *central))]))

    fits, level = _tensor(parts, enumerated, len(inner()), splitting)
    while not fits:
        # the part with the largest number of components in the field becomes a central-limit block
        able = [e for e in enumerated if e.count >= splitting.smallest_block and parts[e.part].family.dim == 1]
        if not able:
            break
        largest = max(able, key=lambda e: e.count)
        enumerated.remove(largest)
        central.append(largest.part)
        fits, level = _tensor(parts, enumerated, len(inner()), splitting)

    def is_finite(part: int) -> bool:
        return parts[part].family.axes == 0

    gaussian = inner()
    finite = all(is_finite(e.part) for e in enumerated)
    names = ", ".join(n for e in enumerated for n in parts[e.part].names)
    one_out = bool(central) and factor.field_size == 1 and not enumerated and all(map(is_finite, central))
    if central:
        size = sum(int(touched[:, parts[i].where].any(0).sum()) for i in central)
        how = "one out" if one_out and size <= splitting.one_out else "first order"
        expansion = "each left out in turn" if how == "one out" else "first-order expansion"
        why = f"central-limit field of {size} components, {expansion}"
        if enumerated:
            why += f"; {names} {'summed over' if finite else 'integrated'}"
            how = how if fits else "drawn"
    elif not enumerated:
        how, why = "Gaussian", factor.why
    elif not fits:
        how, why = "drawn", f"Monte Carlo over {names}: too many dimensions for a tensor"
    elif finite:
        how, why = "enumerated", f"enumeration of {_states(parts, enumerated)} states"
        why += f", then {factor.why}" if len(gaussian) else ""
    else:
        how, why = "quadrature", _quadrature_in_words(parts, enumerated, len(gaussian), names)
    closed = bool(central) and factor.rule.exact
    return FieldSplit(tuple(enumerated), tuple(central), blocks, gaussian, how, why, level, one_out, closed, splitting)


_NODES = {0: 168, 1: 42, 2: 22}  # of one axis of a tensor of one, two, and three dimensions


def _tensor(
    parts: Sequence[Part], enumerated: Sequence[Enumerated], gaussian: int, splitting: Splitting
) -> tuple[bool, int]:
    """Whether a tensor over these components (and Gaussian numbers) is small enough, and the level of its nodes."""
    states = _states(parts, enumerated)
    axes = sum(e.count * parts[e.part].family.axes for e in enumerated)
    if axes == 0:
        return states <= splitting.states, 0
    axes += gaussian if gaussian > 1 else 0  # a single Gaussian number is integrated separately, inside the others
    if axes > splitting.axes:
        return False, splitting.axes - 1
    small = axes + (gaussian == 1) <= splitting.axes and _NODES[axes - 1] ** axes * states <= splitting.nodes
    return small, axes - 1


def _states(parts: Sequence[Part], enumerated: Sequence[Enumerated]) -> int:
    """The number of combinations of the values of discrete components."""
    discrete = [e for e in enumerated if parts[e.part].family.axes == 0]
    return math.prod((parts[e.part].family.numbers + 1) ** e.count for e in discrete)


def _quadrature_in_words(parts: Sequence[Part], enumerated: Sequence[Enumerated], gaussian: int, names: str) -> str:
    own = sum(e.count * parts[e.part].family.axes for e in enumerated)
    if not gaussian:
        return f"{own}-dimensional quadrature: {names} in {'its' if own == 1 else 'their'} native space"
    if gaussian == 1:
        return f"{own}-dimensional quadrature: {names}, and the Gaussian number inside"
    return f"{own + gaussian}-dimensional quadrature: {names} and {gaussian} Gaussian numbers"
