"""Learning curves that are explicit in the signal q̂, the signal-to-noise ratio of the information about one weight.

Under Bayes' rule with the true prior and the true likelihood (the Nishimori condition), α N rows have the same
information about one weight as an observation of it with Gaussian noise, at signal-to-noise ratio q̂. The prior maps q̂
to the gap 1 − q, the channel maps the gap to the information I of one label, and

- the batch posterior solves q̂ = α I(q), so α = q̂ / I (the replica-symmetric saddle point with equal cavity fields);
- assumed-density filtering with a product family sums the rows one after the other, dq̂/dα = I(q), so α = ∫ dq̂ / I.

In both cases α is an explicit function of q̂, which is then inverted. So there is no fixed-point iteration, and no stiff
equation where I diverges.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from adfpp.papers.theory.channel import Floats, information

__all__ = ["Prior", "Table", "batch_roots", "batch_table", "bracketed_root", "online_signal", "online_table"]

POINTS_PER_DECADE = 12  # enough that the curve has at most one turning point between two grid points
LEGENDRE_NODES, LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(5)


class Prior(NamedTuple):
    """The gap as a function of the signal, for one prior of a weight.

    Attributes:
        gap: 1 − q as a function of q̂, of any shape.
        top: the largest signal in a table: there the gap underflows, or the number of rows is beyond any use.
    """

    gap: Callable[[Floats], Floats]
    top: float


class Table(NamedTuple):
    """α on a grid of ln q̂.

    Attributes:
        log_signal: ln q̂, increasing, (n,).
        alpha: rows per weight, (n,).
        peaks: α at each local maximum of α(q̂).
        valleys: α at each local minimum. Both are empty if there is one fixed point for each α.
    """

    log_signal: Floats
    alpha: Floats
    peaks: tuple[float, ...] = ()
    valleys: tuple[float, ...] = ()


@lru_cache(maxsize=32)
def batch_table(prior: Prior, noise: float, flip: float) -> Table:
    """α = q̂ / I on a grid with the turning points of the curve, so that it is monotone between grid points."""
    log_signal = grid(prior)
    alpha = batch_alpha(log_signal, prior, noise, flip)
    slopes = np.sign(np.diff(alpha))
    turns = [i for i in range(1, len(alpha) - 1) if slopes[i - 1] * slopes[i] < 0]
    added = []
    for i in turns:
        sign = slopes[i - 1]
        x = turning_point(
            lambda x, sign=sign: -sign * float(batch_alpha(x, prior, noise, flip)), log_signal[i - 1], log_signal[i + 1]
        )
        added.append((x, float(batch_alpha(x, prior, noise, flip)), bool(sign > 0)))
    points = np.concatenate([log_signal, [x for x, _, _ in added]])
    values = np.concatenate([alpha, [a for _, a, _ in added]])
    order = np.argsort(points)
    peaks, valleys = (tuple(a for _, a, is_peak in added if is_peak is wanted) for wanted in (True, False))
    return Table(points[order], values[order], peaks, valleys)


def batch_roots(alpha: float, prior: Prior, noise: float, flip: float) -> list[float]:
    """Every finite q̂ with q̂ = α I(q), smallest first."""
    if alpha == 0.0:
        return [0.0]
    table = batch_table(prior, noise, flip)
    if alpha <= table.alpha[0]:  # below the table I has its value at q = 0
        roots = [alpha * float(information(1.0, noise, flip))]
    else:
        roots = []
    above = table.alpha > alpha
    for i in np.flatnonzero(above[1:] != above[:-1]):
        root = bracketed_root(
            lambda x: float(batch_alpha(x, prior, noise, flip)) - alpha, table.log_signal[i], table.log_signal[i + 1]
        )
        roots.append(float(np.exp(root)))
    if not above[-1] and noise > 0.0:  # above the table the gap is 0 to every digit
        roots.append(alpha * float(information(0.0, noise, flip)))
    return roots


def batch_alpha(log_signal: Floats | float, prior: Prior, noise: float, flip: float) -> Floats:
    """α = q̂ / I(q(q̂))."""
    signal = np.exp(log_signal)
    return signal / information(prior.gap(signal), noise, flip)


@lru_cache(maxsize=32)
def online_table(prior: Prior, noise: float, flip: float) -> Table:
    """α = ∫ dq̂ / I up to each point of the grid."""
    log_signal = grid(prior)
    start = np.exp(log_signal[0]) / float(information(1.0, noise, flip))
    panels = panel_integral(log_signal[:-1], log_signal[1:], prior, noise, flip)
    return Table(log_signal, start + np.concatenate([[0.0], np.cumsum(panels)]))


def online_signal(alpha: Floats, prior: Prior, noise: float, flip: float) -> Floats:
    """The q̂ that solves dq̂/dα = I(q), from q̂ = 0 at α = 0; inf from the α on at which it diverges.

    Args:
        alpha: rows per weight, (n,).
        prior: the prior of a weight.
        noise: standard deviation of the noise on the field.
        flip: probability that a label is flipped.

    Returns:
        q̂, (n,).
    """
    table = online_table(prior, noise, flip)
    panel = np.clip(np.searchsorted(table.alpha, alpha, side="right") - 1, 0, len(table.alpha) - 2)
    low, high = table.log_signal[panel], table.log_signal[panel + 1]
    share = (alpha - table.alpha[panel]) / np.maximum(table.alpha[panel + 1] - table.alpha[panel], 1e-300)
    x = low + np.clip(share, 0.0, 1.0) * (high - low)
    for _ in range(6):  # Newton on a smooth increasing function, inside one panel
        missing = alpha - table.alpha[panel] - panel_integral(low, x, prior, noise, flip)
        slope = information(prior.gap(np.exp(x)), noise, flip) * np.exp(-x)
        x = np.clip(x + missing * np.where(np.isinf(slope), 0.0, slope), low, high)
    signal = np.where(alpha < table.alpha[0], alpha * information(1.0, noise, flip), np.exp(x))
    beyond: Floats | float = np.inf
    if noise > 0.0:
        beyond = np.exp(table.log_signal[-1]) + (alpha - table.alpha[-1]) * information(0.0, noise, flip)
    return np.where(alpha >= table.alpha[-1], beyond, signal)


def panel_integral(low: Floats, high: Floats, prior: Prior, noise: float, flip: float) -> Floats:
    """∫ q̂ / I d(ln q̂) over each panel, (n,)."""
    half = 0.5 * (high - low)[:, None]
    x = low[:, None] + half * (1.0 + LEGENDRE_NODES)
    return np.sum(half * LEGENDRE_WEIGHTS * batch_alpha(x, prior, noise, flip), axis=1)


def bracketed_root(function: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a function that changes its sign between two points."""
    return float(cast(float, brentq(function, low, high, xtol=1e-13)))


def turning_point(function: Callable[[float], float], low: float, high: float) -> float:
    """The minimum of a function between two points."""
    result = minimize_scalar(function, bounds=(low, high), method="bounded", options={"xatol": 1e-9})
    return float(cast(Any, result).x)  # SciPy's result has no type


def grid(prior: Prior) -> Floats:
    """Values of ln q̂, from the negligible signal 1e-12 to the top."""
    decades = 12.0 + np.log10(prior.top)
    return np.log(10.0) * np.linspace(-12.0, np.log10(prior.top), int(decades * POINTS_PER_DECADE))
