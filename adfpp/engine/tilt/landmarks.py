"""Landmarks of a factor: where its program shows that it may peak or bend."""

from typing import NamedTuple

from jaxtyping import Array, Float


class Landmarks(NamedTuple):
    """Landmarks of a factor of one number h: the zeros of numbers affine in h that enter what is not affine.

    Such a number may be a residual in a square or an absolute value, the exponent of a rate, or the difference of the
    operands of a maximum: the factor has its peaks and kinks there.

    Attributes:
        at: ``(m,)`` values of h, NaN where there is none.
        centres: How many of them, from the first, enter a square: a narrow peak may be there.
    """

    at: Float[Array, " m"]
    centres: int
