"""Solves order-parameter equations: ordinary differential equations in α, which is the number of rows per weight."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp

from adfpp.papers.theory.channel import Floats

__all__ = ["START", "checked_alpha", "integrate"]


START = 1e-9  # α at which a curve of a learner with zero initial weights starts, on its power law


def integrate(
    slope: Callable[[float, Floats], Floats], first: Floats, alpha: ArrayLike, offset: float, start: float = START
) -> Floats:
    """Solves a system of equations in ln(α + offset).

    Args:
        slope: ``slope(α, state)``, the derivative of the state with respect to α.
        first: ``(states,)`` the initial state.
        alpha: α at which the solution is wanted, any shape.
        offset: Positive if the solution starts at α = 0; 0 if it starts at `start`.
        start: α of the initial state, if there is no offset.

    Returns:
        ``(states, …)`` the solution, with the shape of `alpha` after the first axis.
    """
    alpha = checked_alpha(alpha, 0.0 if offset else start)
    wanted, back = np.unique(alpha, return_inverse=True)
    first_time = np.log(offset if offset else start)
    times = np.log(wanted + offset)
    solution = solve_ivp(
        lambda time, state: np.exp(time) * slope(np.exp(time) - offset, state),
        (first_time, max(times[-1], first_time + 1e-12)),
        first,
        method="LSODA",
        t_eval=times,
        rtol=1e-9,
        atol=1e-12,
    )
    if not solution.success:
        raise RuntimeError(f"The order-parameter equations could not be integrated: {solution.message}")
    return solution.y[:, back].reshape(len(first), *alpha.shape)


def checked_alpha(alpha: ArrayLike, least: float) -> Floats:
    """α as an array; raises if an element is below the least value."""
    alpha = np.asarray(alpha, dtype=np.float64)
    if not np.all(alpha >= least):
        raise ValueError(f"alpha is a number of rows per weight; it must be at least {least:g} here.")
    return alpha
