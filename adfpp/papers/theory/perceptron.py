"""Learning curves of the perceptron with real weights, in the limit N → ∞ at α = rows / N, and laws at large α.

The field w·x of the teacher has unit variance, and errors are on noise-free labels: a student with cosine ρ to the
teacher is wrong with probability arccos(ρ)/π. Every differential equation is solved in θ = arccos ρ, which keeps its
digits when ρ rounds to 1, and in ln α, in which the laws α^{−k} are straight lines. Curves of the Bayesian online
algorithm from any start are in `adfpp.papers.theory.bona`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from adfpp.papers.theory.channel import Floats
from adfpp.papers.theory.equations import START, checked_alpha, integrate
from adfpp.papers.theory.parametric import Prior, batch_roots, online_signal

__all__ = [
    "Curve",
    "annealed_perceptron",
    "annealed_perceptron_law",
    "bayes_batch",
    "bayes_curve",
    "constant_rate_floor",
    "cramer_rao_threshold",
    "optimal_online",
    "output_noise_law",
    "rosenblatt_online",
]


class Curve(NamedTuple):
    """The learning curve of a Bayesian learner with the prior N(0, 1) on each weight; each field has the shape of α.

    Attributes:
        signal: q̂, the signal-to-noise ratio of the information about one weight.
        overlap: q = q̂/(1 + q̂), of the posterior mean with the teacher and with itself, per weight.
        error: arccos(√q)/π.
    """

    signal: Floats
    overlap: Floats
    error: Floats


def gaussian_gap(signal: Floats) -> Floats:
    """1 − q = 1/(1 + q̂), for a weight N(0, 1) that is observed at signal-to-noise ratio q̂."""
    return 1.0 / (1.0 + signal)


PRIOR = Prior(gaussian_gap, 1e30)


def bayes_batch(alpha: ArrayLike, noise: float = 0.0, flip: float = 0.0) -> Curve:
    """Batch posterior: q = q̂/(1 + q̂), q̂ = α I(q).

    Opper, A Bayesian approach to online learning, Figure 2 (noise² = 0.7788), and the Bayes rule of Opper and
    Haussler (1991), 0.44/α, without noise.

    Args:
        alpha: rows per weight, ≥ 0, any shape.
        noise: standard deviation of the noise on the field, in units of the field's; 0 is the noise-free step.
        flip: probability in [0, 1/2) that a label is flipped after the noise.

    Returns:
        The curve.
    """
    alpha = checked_alpha(alpha, 0.0)
    roots = [batch_roots(float(a), PRIOR, noise, flip)[0] for a in alpha.ravel()]
    return bayes_curve(np.array(roots).reshape(alpha.shape))


def optimal_online(alpha: ArrayLike, noise: float = 0.0, flip: float = 0.0) -> Curve:
    """Spherical ADF from the true prior, which is the best Hebbian rule at every row: dq̂/dα = I(q), q = q̂/(1 + q̂).

    Kinouchi and Caticha, Optimal generalization in perceptrons (1992), maximise dρ/dα and obtain
    dρ²/dα = (1 − ρ²)² I(ρ²); Biehl, Riegler and Stechert (1995) have the same with noise. With ρ² = q it is the
    equation above, because dq̂ = dq/(1 − q)². Opper states the agreement below (9.4). Without
    noise the error tends to 0.88/α.

    Args:
        alpha: rows per weight, ≥ 0, any shape.
        noise: standard deviation of the noise on the field, in units of the field's; 0 is the noise-free step.
        flip: probability in [0, 1/2) that a label is flipped after the noise.

    Returns:
        The curve.
    """
    alpha = checked_alpha(alpha, 0.0)
    return bayes_curve(online_signal(alpha.ravel(), PRIOR, noise, flip).reshape(alpha.shape))


def rosenblatt_online(alpha: ArrayLike) -> Floats:
    """Error of Rosenblatt's perceptron, w += y x on every mistake, in one pass from w = 0.

    Engel and Van den Broeck, Statistical Mechanics of Learning (2001), chapter 9. With J the length of w/√N and
    θ = arccos ρ: dJ²/dα = θ/π − 2J(1 − ρ)/√(2π), dθ/dα = −sin θ/(J√(2π)) + θ cot θ/(2πJ²).

    Args:
        alpha: rows per weight, > 0, any shape.

    Returns:
        θ/π, shaped as `alpha`; at large α it is (2/3)^{1/3}/(π α^{1/3}) = 0.28/α^{1/3}.
    """

    def slope(alpha: float, state: Floats) -> Floats:
        length, theta = np.exp(0.5 * state[0]), state[1]
        square = length**2
        return np.array(
            [
                theta / (np.pi * square) - 2.0 * (1.0 - np.cos(theta)) / (np.sqrt(2.0 * np.pi) * length),
                -np.sin(theta) / (length * np.sqrt(2.0 * np.pi)) + theta / np.tan(theta) / (2.0 * np.pi * square),
            ]
        )

    # At first every second label is wrong, so that J² = α/2 and ρ = √(α/π).
    first = np.array([np.log(0.5 * START), np.arccos(np.sqrt(START / np.pi))])
    return integrate(slope, first, alpha, 0.0)[1] / np.pi


def annealed_perceptron(alpha: ArrayLike, rate: float = 2.0, start: float = 1.0, start_error: float = 0.5) -> Floats:
    """Error of the perceptron with η = rate·√(2π)/α, its weights normalised after every row.

    Equation (4) of Barkai, Seung and Sompolinsky, On-line learning of dichotomies (1995), in θ = arccos R:
    dθ/dα = −η sin θ/√(2π) + η² θ cot θ/(2π).

    Args:
        alpha: rows per weight, ≥ `start`, any shape.
        rate: η0 of the paper.
        start: α at which the schedule starts.
        start_error: error at `start`; 1/2 is a random vector.

    Returns:
        θ/π, shaped as `alpha`.
    """

    def slope(alpha: float, state: Floats) -> Floats:
        theta = state[0]
        return np.array([-rate * np.sin(theta) / alpha + rate**2 * theta / np.tan(theta) / alpha**2])

    return integrate(slope, np.array([np.pi * start_error]), alpha, 0.0, start)[0] / np.pi


def annealed_perceptron_law(alpha: ArrayLike, rate: float = 2.0) -> Floats:
    """The law of `annealed_perceptron` at large α: equation (6) of Barkai, Seung and Sompolinsky.

    At small θ dθ/d ln α = −rate·θ + rate²/α. For a rate above 1, θ = rate²/((rate − 1) α), which is least at rate = 2,
    where the error is 4/(πα). For a rate of 1, θ = ln α/α.

    Args:
        alpha: rows per weight, any shape.
        rate: η0 ≥ 1. For a rate below 1 the error is A α^{−rate}, where A depends on the start: solve the equation.

    Returns:
        The error, shaped as `alpha`.
    """
    alpha = np.asarray(alpha, dtype=np.float64)
    if rate < 1.0:
        raise ValueError(
            f"rate must be at least 1; it is {rate}. For a rate below 1 the law is A alpha^-rate, where A depends on "
            "the start: use annealed_perceptron."
        )
    if rate == 1.0:
        return np.log(alpha) / (np.pi * alpha)
    return rate**2 / (np.pi * (rate - 1.0) * alpha)


def constant_rate_floor(rate: ArrayLike) -> Floats:
    """Final error of the normalised perceptron at a small constant η: η/√(2π³), equation (5) of the same paper."""
    return np.asarray(rate, dtype=np.float64) / np.sqrt(2.0 * np.pi**3)


def output_noise_law(alpha: ArrayLike, flip: float) -> Floats:
    """Error on noisy labels of the shifted perceptron rule at its best schedule: p + √(2p/(πα)).

    This is equation (18) of Barkai, Seung and Sompolinsky, who count each disagreement with the teacher as an error. On
    noisy labels a flip turns a share 2p of the disagreements into agreements, so the measured error is (1 − 2p) times
    as far above p.

    Args:
        alpha: rows per weight, > 0, any shape.
        flip: p, the probability of a flipped label.

    Returns:
        The error, shaped as `alpha`.
    """
    alpha = np.asarray(alpha, dtype=np.float64)
    return flip + np.sqrt(2.0 * flip / (np.pi * alpha))


def cramer_rao_threshold(rows: ArrayLike, threshold: float = 0.1, noise: float = 0.5) -> Floats:
    """Least variance of an unbiased estimate of a noisy threshold: 1/(t J), the line of Opper's Figure 1.

    P(y = 1 | x) = Φ((x − threshold)/noise) and x uniform on [−1, 1], whence
    J = E_x φ(u)²/(Φ(u) Φ(−u))/noise², u = (x − threshold)/noise.

    Args:
        rows: t, any shape.
        threshold: θ*.
        noise: σ0 > 0.

    Returns:
        The bound, shaped as `rows`.
    """
    nodes, weights = np.polynomial.legendre.leggauss(200)
    u = (nodes - threshold) / noise
    ratio = np.exp(-(u**2) - log_ndtr(u) - log_ndtr(-u)) / (2.0 * np.pi)
    fisher = 0.5 * np.sum(weights * ratio) / noise**2
    return 1.0 / (np.asarray(rows, dtype=np.float64) * fisher)


def bayes_curve(signal: Floats) -> Curve:
    """The curve that follows from q̂: cos² θ = q̂/(1 + q̂), so tan θ = 1/√q̂."""
    return Curve(signal, signal / (1.0 + signal), np.arctan2(1.0, np.sqrt(signal)) / np.pi)
