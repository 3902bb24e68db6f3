"""Rates of learning, and comparisons with laws at many rows, that the experiments on dichotomies share."""

import math
from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

import numpy as np

from adfpp.papers.laboratory.record import Finding, measured

PACE = math.sqrt(2.0 * math.pi)
SPHERICAL = "ADF, spherical"
FAR = np.array([1e2, 1e4, 1e6])  # α at which equations are compared with laws for large α


def tends(what: str, entry: str, values: Sequence[SupportsFloat] | np.ndarray, law: float, power: float) -> Finding:
    """A figure of an equation at two α with the ratio 100, compared with its limit, a law of the paper.

    The difference from the law falls by the factor 100^(−power) from the first α to the second. Twice that is allowed,
    because higher orders may matter at the first α. In addition 1e-6 of the law is allowed for the solver, whose
    absolute tolerance is a quarter of that in an angle of 4/α.

    Args:
        what: Name of the quantity.
        entry: Name of the algorithm.
        values: The figure at the two α.
        law: Its limit.
        power: Power of 1/α of the next order.
    """
    near, far = (float(value) for value in values)
    tolerance = 2.0 * abs(near - law) * 100.0**-power + 1e-6 * law
    why = f"the next order at α = {FAR[-1]:,.0f}, judged by that at {FAR[-2]:,.0f}, and the solver's accuracy"
    return Finding(what, entry, far, paper=law, held="paper", tolerance=tolerance, why=why)


def capped(rate: Callable[[float], float], cap: float) -> Callable[[float], float]:
    """A rate as a function of α that is at most a cap."""
    return lambda alpha: min(rate(alpha), cap) if alpha > 0 else cap


def exponent(what: str, entry: str, error: np.ndarray, time: np.ndarray, first: int, **fields: Any) -> Finding:
    """The exponent with which the mean error falls: −d ln(error)/d ln(time) between two times.

    Args:
        what: Name of the quantity.
        entry: Name of the algorithm.
        error: ``(runs, times)`` the errors.
        time: ``(times,)`` the times.
        first: Index of the first of the two times; the other is the last.
        **fields: Other fields of `Finding`.
    """
    early, late = error[:, first] / error[:, first].mean(), error[:, -1] / error[:, -1].mean()
    fall = math.log(error[:, first].mean() / error[:, -1].mean())
    # The delta method: the contribution of a run to the logarithm of a mean is its ratio to the mean, minus 1.
    return measured(what, entry, (fall + early - late) / math.log(time[-1] / time[first]), **fields)
