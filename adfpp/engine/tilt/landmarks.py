"""Landmarks of a factor: the places where its program shows that it may have peaks or kinks."""

from typing import NamedTuple

from jaxtyping import Array, Float


class Landmarks(NamedTuple):
    """Landmarks of a factor of one number h: the zeros of numbers that are affine in h and enter a nonlinear function.

    Such a number may be a residual in a square or an absolute value, the exponent of a rate, or the difference of the
    operands of a maximum. The factor has its peaks and kinks at these zeros.

    Attributes:
        at: ``(m,)`` values of h; NaN if a number has no zero.
        centres: How many of them, counted from the first, enter a square and may be narrow peaks.
    """

    at: Float[Array, " m"]
    centres: int
