"""Learning curve of ADF with a full covariance, in the limit N → ∞ at α = rows / N, and its law without noise.

The papers leave it open; the derivation is this project's own. Leave a row out, and it meets a belief that does not
know it: its field has the mean h ~ N(0, q) and the variance G = Tr C/N, the gap of one weight. A row that came at
gap G' adds V xxᵀ to the precision, V = k/(1 − kG') with k = −∂²_h ln Z, and its x is new to the covariance that it
meets. The trace is then that of a Marchenko-Pastur ensemble with the weights V, 1/G = 1 + Σ V/(1 + VG) over the
rows, a weight. As V/(1 + VG) = k/(1 − k(G' − G)),

    1/G(α) = 1 + ∫₀^α dα' E k/(1 − k(G' − G)),    k = w/D',  D' = G' + noise²,

where the average is over field and label of the row as a Bayesian student sees them at q' = 1 − G'. That they are
so, although ADF is not Bayes' rule, follows from the same argument for the mean: the field f of a later belief is,
given that of the row, h + (1 − G/G')(b − h) and noise, b the teacher's. Summed over the rows, its overlap with the
teacher is 1 − G.

At G = G' the integrand is the information I of the row. The spherical family stops there, dq̂/dα = I(q): every row
is worth what it was when it came. Batch Bayes has all of them worth what they are now, q̂ = α I(q). Full ADF is in
between.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.interpolate import CubicSpline
from scipy.special import log_ndtr, ndtr

from adfpp.papers.theory.channel import Floats, checked, log_label, rule
from adfpp.papers.theory.perceptron import Curve, bayes_curve

__all__ = ["full_online", "full_online_constant"]

LOW, HIGH, CELLS = -14.0, 22.0, 432  # of ln q̂


def full_online(alpha: ArrayLike, noise: float = 0.0, flip: float = 0.0) -> Curve:
    """Full-covariance ADF from the true prior N(0, I), in one pass.

    Args:
        alpha: rows a weight, at most where the error is 1e-5, any shape.
        noise: standard deviation of the noise on the field, whose own is 1; 0 is the noise-free step.
        flip: probability in [0, 1/2) that a label is turned over after the noise.

    Returns:
        The curve.
    """
    alpha = np.asarray(alpha, dtype=np.float64)
    table = online_table(noise, flip)
    if not np.all((alpha >= 0.0) & (alpha <= np.exp(table.log_alpha[-1]))):
        raise ValueError(f"alpha is a number of rows a weight, from 0 to {np.exp(table.log_alpha[-1]):.3g} here")
    with np.errstate(divide="ignore"):
        log_alpha = np.log(alpha)
    spline = CubicSpline(table.log_alpha, table.log_signal)
    first, begin = table.log_signal[0], table.log_alpha[0]
    return bayes_curve(np.exp(np.where(log_alpha < begin, first + log_alpha - begin, spline(log_alpha))))


def full_online_constant() -> float:
    """The error times α of the noise-free step at large α, in which G = (π e)² ∝ 1/α² solves the equation.

    With w(u) = λ(λ + u), λ = φ/Φ, the integral over rows can be done: e α → √(2/π) / ∫ Φ(u) ln 1/(1 − w(u)) du. With
    w in the place of the logarithm it is the spherical family, 0.88, and with 2w batch Bayes, 0.44.
    """

    def weight(u: float) -> float:
        hazard = np.exp(-0.5 * u**2 - log_ndtr(u)) / np.sqrt(2.0 * np.pi)
        return float(-ndtr(u) * np.log1p(-hazard * (hazard + u)))

    pieces = [quad(weight, low, high, epsabs=1e-13)[0] for low, high in ((-12.0, -3.0), (-3.0, 2.0), (2.0, 20.0))]
    return float(np.sqrt(2.0 / np.pi) / np.sum(pieces))


class Table(NamedTuple):
    """The curve on a grid.

    Attributes:
        log_alpha: ln α, increasing, (n,).
        log_signal: ln q̂, increasing, (n,).
    """

    log_alpha: Floats
    log_signal: Floats


@lru_cache(maxsize=8)
def online_table(noise: float, flip: float) -> Table:
    """Two grids, of which the finer one takes the leading error out of the coarser one's."""
    (_, coarse), (log_signal, fine) = (marched(noise, flip, CELLS * times) for times in (1, 2))
    fine = fine[1::2]
    return Table(fine + (fine - coarse) / 3.0, log_signal[1::2])


def marched(noise: float, flip: float, cells: int) -> tuple[Floats, Floats]:
    """Points ln q̂ at the right ends of equal cells, and ln α there, to second order in their width.

    The equation is linear in the density of rows dα/d ln q̂, which is constant in each cell and found one after the
    other.
    """
    edges = np.linspace(LOW, HIGH, cells + 1)
    gap = 1.0 / (1.0 + np.exp(0.5 * (edges[1:] + edges[:-1])))
    gap, variance = checked(gap, noise, flip)
    nodes, weights = rule(gap, variance)
    nodes, weights = nodes[:, ::2], 2.0 * weights[:, ::2]
    log_chance = log_label(nodes, flip)
    hazard = (1.0 - 2.0 * flip) * np.exp(-0.5 * nodes**2 - log_chance) / np.sqrt(2.0 * np.pi)
    bend = hazard * (hazard + nodes)
    heavy = 2.0 * weights * np.exp(log_chance) * bend * np.sqrt(variance / (1.0 - gap + variance))[:, None]

    def told(upto: int, now: float) -> Floats:
        """What one row of each of the first cells tells at a gap now, (upto,)."""
        fallen = (gap[:upto] - now)[:, None]
        return np.sum(heavy[:upto] / (variance[:upto, None] - bend[:upto] * fallen), axis=1)

    start = np.exp(edges[0]) / float(told(1, gap[0])[0])  # before the first cell a row tells as much as at first
    rows = np.zeros(cells)
    for i in range(cells):
        worth = told(i + 1, 1.0 / (1.0 + np.exp(edges[i + 1])))
        rows[i] = (np.exp(edges[i + 1]) - start * worth[0] - rows[:i] @ worth[:i]) / worth[i]
    return edges[1:], np.log(start + np.cumsum(rows))
