"""Finds in a program where a factor of one number may have a peak or a kink.

The program behind a field of one number h is a function of h. If the operand of a square, an absolute value, an
exponential or a comparison is affine in h, the factor may have a peak, a kink or the end of a tail where that operand
is 0.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jaxtyping import Int

from adfpp.engine.trace.degree import Degree
from adfpp.engine.trace.interpret import Atom, Equation, dtype_of, shape_of, size_of, variables_of
from adfpp.engine.trace.touch import elements_read, one_element
from adfpp.engine.trace.tracing import Trace

Pair = tuple[Atom, Atom | None]


class Crossings(NamedTuple):
    """Pairs of affine values whose difference vanishes at a landmark; the second may be missing, which means 0.

    Attributes:
        pairs: The pairs.
        places: For each element, the places of its landmarks in the concatenation of all differences, flattened.
        centres: The number of an element's landmarks, counted from the first, that enter a square.
    """

    pairs: tuple[Pair, ...]
    places: Int[np.ndarray, "E m"]
    centres: int


_SQUARES = frozenset(["integer_pow", "pow", "square", "mul"])
_BENDS = frozenset("abs sign exp exp2 expm1 log1p logistic tanh erf erfc".split())
_COMPARISONS = frozenset("max min lt le gt ge clamp".split())
# Each landmark costs an evaluation of the factor and a panel of the quadrature; most factors have at most two.
_MOST = 6


def find_crossings(trace: Trace, behind: Sequence[Equation], output: Atom, elements: Sequence[int]) -> Crossings:
    """Finds the affine values behind a cut of one number that enter squares (these first), kinks or exponentials.

    Args:
        trace: The trace of a row.
        behind: The equations behind the cut that depend on the field.
        output: The log-density of all elements.
        elements: The elements to find landmarks for.
    """
    if isinstance(output, jex.Literal):
        return Crossings((), np.zeros((len(elements), 0), int), 0)
    pairs: dict[tuple[object, ...], Pair] = {}
    landmarks: list[list[tuple[tuple[tuple[object, ...], int], bool]]] = []
    for element in elements:
        masks = elements_read(trace, output, one_element(output, element))
        squared: dict[tuple[tuple[object, ...], int], bool] = {}  # whether a landmark enters a square
        for equation in behind:
            for pair in _vanishing(trace, equation):
                name = tuple(repr(v.val) if isinstance(v, jex.Literal) else id(v) for v in pair)
                pairs[name] = pair
                # A smaller operand is broadcast, so the larger one has the shape of the elements.
                larger = max(variables_of(v for v in pair if v is not None), key=size_of)
                for i in np.flatnonzero(masks.get(larger, np.zeros(0, bool))):
                    known = squared.get((name, int(i)), False)
                    squared[name, int(i)] = known or equation.primitive.name in _SQUARES
        landmarks.append(sorted(squared.items(), key=lambda item: not item[1])[:_MOST])
    count = min(len(each) for each in landmarks)
    landmarks = [each[:count] for each in landmarks]
    used = list(dict.fromkeys(name for each in landmarks for (name, _), _ in each))
    sizes = [_size_of_difference(pairs[name]) for name in used]
    starts = dict(zip(used, np.cumsum([0, *sizes]), strict=False))
    places = np.array([[starts[name] + i for (name, i), _ in each] for each in landmarks], int)
    centres = min((sum(is_square for _, is_square in each) for each in landmarks), default=0)
    return Crossings(tuple(pairs[name] for name in used), places.reshape(len(landmarks), count), centres)


def _size_of_difference(pair: Pair) -> int:
    return int(np.prod(np.broadcast_shapes(*(shape_of(v) for v in pair if v is not None))))


def _vanishing(trace: Trace, equation: Equation) -> list[Pair]:
    """The differences of operands whose zeros are landmarks: (a, b) stands for a - b, and (a, None) for a."""
    operands, name = equation.invars, equation.primitive.name
    if name in ("integer_pow", "pow", "square") or name in _BENDS or (name == "mul" and operands[0] is operands[1]):
        return [(operands[0], None)] if trace.degree(operands[0]) == Degree.AFFINE else []
    pairs: list[tuple[Atom, Atom]] = []
    if name == "clamp":
        low, x, high = operands
        pairs = [(x, low), (x, high)]
    elif name in _COMPARISONS:
        pairs = [(operands[0], operands[1])]
    return [
        (a, b)
        for a, b in pairs
        if max(trace.degree(a), trace.degree(b)) == Degree.AFFINE
        and all(jnp.issubdtype(dtype_of(v), jnp.floating) for v in (a, b))
    ]
