"""Landmarks of a factor: what its program gives away about where it peaks and bends."""

from typing import NamedTuple

import jax


class Marks(NamedTuple):
    """Landmarks of a factor of one number h: where something affine in h vanishes on its way into what is not affine.

    A residual in a square or an absolute value, a rate's exponent, the operands of a maximum: peaks and kinks lie
    there.

    Attributes:
        at: ``(m,)`` values of h, NaN where there is none.
        centres: How many of them, from the first, go into a square: a narrow peak may be there.
    """

    at: jax.Array
    centres: int
