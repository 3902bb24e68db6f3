"""Learning curve of ADF with a full covariance, in the limit N → ∞ at α = rows / N, and its law without noise.

The papers do not contain this curve; it is derived here. Before a row is absorbed, the belief is independent of it:
the row's field has the mean h ~ N(0, q) and the variance G = Tr C/N, which is the gap of one weight. A row that was
absorbed at the gap G' adds V xxᵀ to the precision, with V = k/(1 − kG') and k = −∂²_h ln Z, and its x is independent of
the covariance at that time. The trace is then that of a Marchenko-Pastur ensemble with the weights V: per weight,
1/G = 1 + Σ V/(1 + VG) over the rows. As V/(1 + VG) = k/(1 − k(G' − G)),

    1/G(α) = 1 + ∫₀^α dα' E k/(1 − k(G' − G)),    k = w/D',  D' = G' + noise²,

where the average is over the field and the label of the row, distributed as for a Bayesian student at q' = 1 − G'. ADF
is not Bayes' rule, but the same argument for the mean shows that they have this distribution: given the field h of the
row and the teacher's field b, the field of a later belief is h + (1 − G/G')(b − h) plus noise. Summed over the rows,
its overlap with the teacher is 1 − G.

At G = G' the integrand is the information I of the row. The spherical family has dq̂/dα = I(q): every row counts with
its information at the time when it was absorbed. Batch Bayes has q̂ = α I(q): all rows count with their information
now. Full ADF is between the two.
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

LOW, HIGH, CELLS = -14.0, 22.0, 432  # grid of ln q̂, from errors near 1/2 to errors of 1e-5


def full_online(alpha: ArrayLike, noise: float = 0.0, flip: float = 0.0) -> Curve:
    """Full-covariance ADF from the true prior N(0, I), in one pass.

    Args:
        alpha: rows per weight, up to where the error is 1e-5, any shape.
        noise: standard deviation of the noise on the field, in units of the field's; 0 is the noise-free step.
        flip: probability in [0, 1/2) that a label is flipped after the noise.

    Returns:
        The curve.
    """
    alpha = np.asarray(alpha, dtype=np.float64)
    table = online_table(noise, flip)
    if not np.all((alpha >= 0.0) & (alpha <= np.exp(table.log_alpha[-1]))):
        raise ValueError(
            f"alpha is a number of rows per weight; it must be from 0 to {np.exp(table.log_alpha[-1]):.3g} for this "
            "channel."
        )
    with np.errstate(divide="ignore"):
        log_alpha = np.log(alpha)
    spline = CubicSpline(table.log_alpha, table.log_signal)
    signal, start = table.log_signal[0], table.log_alpha[0]
    return bayes_curve(np.exp(np.where(log_alpha < start, signal + log_alpha - start, spline(log_alpha))))


def full_online_constant() -> float:
    """The error times α of the noise-free step at large α, in which G = (π e)² ∝ 1/α² solves the equation.

    With w(u) = λ(λ + u), λ = φ/Φ, the integral over rows has a closed form: e α → √(2/π) / ∫ Φ(u) ln 1/(1 − w(u)) du.
    With w instead of the logarithm it is the constant of the spherical family, 0.88, and with 2w that of batch Bayes,
    0.44.
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
    """The curve by Richardson extrapolation: the combination of two grids has no error of the leading order."""
    (_, coarse), (log_signal, fine) = (solve_on_grid(noise, flip, CELLS * times) for times in (1, 2))
    fine = fine[1::2]
    return Table(fine + (fine - coarse) / 3.0, log_signal[1::2])


def solve_on_grid(noise: float, flip: float, cells: int) -> tuple[Floats, Floats]:
    """Points ln q̂ at the right ends of equal cells, and ln α there, to second order in their width.

    The equation is linear in the density of rows dα/d ln q̂, which is constant in each cell; the cells are solved one
    after the other.
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

    def information_of_rows(upto: int, gap_now: float) -> Floats:
        """Information at a later gap of one row from each of the first cells, (upto,)."""
        fallen = (gap[:upto] - gap_now)[:, None]
        return np.sum(heavy[:upto] / (variance[:upto, None] - bend[:upto] * fallen), axis=1)

    # Before the first cell, all rows have the information of the first row.
    start = np.exp(edges[0]) / float(information_of_rows(1, gap[0])[0])
    rows = np.zeros(cells)
    for i in range(cells):
        worth = information_of_rows(i + 1, 1.0 / (1.0 + np.exp(edges[i + 1])))
        rows[i] = (np.exp(edges[i + 1]) - start * worth[0] - rows[:i] @ worth[:i]) / worth[i]
    return edges[1:], np.log(start + np.cumsum(rows))
