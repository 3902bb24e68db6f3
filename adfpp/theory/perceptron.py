"""Learning curves of the perceptron with real weights, in the limit N → ∞ at α = rows / N, and laws at large α.

The field w·x of the teacher has unit variance, and errors are on noise-free labels: a student of cosine ρ to the
teacher is wrong with probability arccos(ρ)/π. Every differential equation is solved in θ = arccos ρ, which keeps its
digits where ρ rounds to 1, and in ln α, in which the laws α^{−k} are straight lines.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp
from scipy.special import log_ndtr

from adfpp.theory.channel import Floats
from adfpp.theory.parametric import Prior, batch_roots, online_signal

__all__ = [
    "BonaCurve",
    "Curve",
    "annealed_perceptron",
    "annealed_perceptron_law",
    "bayes_batch",
    "bona",
    "constant_rate_floor",
    "cramer_rao_threshold",
    "optimal_online",
    "output_noise_law",
    "rosenblatt_online",
]

START = 1e-9  # α at which a curve that begins with a zero vector is entered along its power law
STEP = 0.015
NODES: Floats = STEP * np.arange(-600.0, 601.0)


class Curve(NamedTuple):
    """A Bayesian learner with the prior N(0, 1) on each weight, each field shaped as α.

    Attributes:
        signal: q̂, the signal-to-noise ratio at which the rows show one weight.
        overlap: q = q̂/(1 + q̂), of the posterior mean with the teacher and with itself, a weight.
        error: arccos(√q)/π.
    """

    signal: Floats
    overlap: Floats
    error: Floats


class BonaCurve(NamedTuple):
    """A spherical Gaussian belief under the noise-free step, each field shaped as α.

    Attributes:
        length: Q, the squared mean, a weight.
        width: ζ, the variance of each weight.
        overlap: ρ, cosine of the mean to the teacher.
        error: arccos(ρ)/π.
    """

    length: Floats
    width: Floats
    overlap: Floats
    error: Floats


def gaussian_gap(signal: Floats) -> Floats:
    """1 − q = 1/(1 + q̂), of a weight N(0, 1) seen at signal-to-noise ratio q̂."""
    return 1.0 / (1.0 + signal)


PRIOR = Prior(gaussian_gap, 1e30)


def bayes_batch(alpha: ArrayLike, noise: float = 0.0, flip: float = 0.0) -> Curve:
    """Batch posterior: q = q̂/(1 + q̂), q̂ = α I(q).

    Opper, A Bayesian approach to online learning, Figure 2 (noise² = 0.7788), and the Bayes rule of Opper and
    Haussler (1991), 0.44/α, without noise.

    Args:
        alpha: rows a weight, ≥ 0, any shape.
        noise: standard deviation of the noise on the field, whose own is 1; 0 is the noise-free step.
        flip: probability in [0, 1/2) that a label is turned over after the noise.

    Returns:
        The curve.
    """
    alpha = checked(alpha, 0.0)
    roots = [batch_roots(float(a), PRIOR, noise, flip)[0] for a in alpha.ravel()]
    return bayes_curve(np.array(roots).reshape(alpha.shape))


def optimal_online(alpha: ArrayLike, noise: float = 0.0, flip: float = 0.0) -> Curve:
    """Spherical ADF from the true prior, which is the best Hebbian rule at every row: dq̂/dα = I(q), q = q̂/(1 + q̂).

    Kinouchi and Caticha, Optimal generalization in perceptrons (1992), who ask for the largest dρ/dα and find
    dρ²/dα = (1 − ρ²)² I(ρ²), and Biehl, Riegler and Stechert (1995) with noise: with ρ² = q the same equation, since
    dq̂ = dq/(1 − q)². Opper states the agreement below (9.4). Without noise the error tends to 0.88/α.

    Args:
        alpha: rows a weight, ≥ 0, any shape.
        noise: standard deviation of the noise on the field, whose own is 1; 0 is the noise-free step.
        flip: probability in [0, 1/2) that a label is turned over after the noise.

    Returns:
        The curve.
    """
    alpha = checked(alpha, 0.0)
    return bayes_curve(online_signal(alpha.ravel(), PRIOR, noise, flip).reshape(alpha.shape))


def bona(
    alpha: ArrayLike, length: float = 0.0, width: float = 1.0, overlap: float = 0.0, *, as_printed: bool = False
) -> BonaCurve:
    """Spherical ADF under the noise-free step, from any start.

    Equations (17), (18) and (22) of de Oliveira and Alamino, Performance of the Bayesian online algorithm for the
    perceptron (2007). With F = e^{−Qτ²/ζ}/erfc(−τ√(Q/ζ)) and r = 1/ρ² − 1, all integrals over τ:

    - dQ/dα = (2ζ/π) ∫ e^{−τ²} erfc(−τ/√r) F (2τ√(Q/ζ) + F/√π)
    - dζ/dα = −(2ζ/π) ∫ e^{−τ²} erfc(−τ/√r) F (τ√(Q/ζ) + F/√π)
    - dρ/dα = (2ρ/π^{3/2}) √(rζ/Q) ∫ e^{−τ²−τ²/r} F − (ρζ/(π^{3/2}Q)) ∫ e^{−τ²} erfc(−τ/√r) F²

    In the letter the last equation has the factor 2 before both terms, at odds with its (21): an erratum. From a zero
    mean the corrected curve is `optimal_online`, whatever the width.

    Args:
        alpha: rows a weight, > 0, any shape.
        length: Q at α = 0; 0 for a belief that starts without a direction.
        width: ζ at α = 0.
        overlap: ρ at α = 0, in (0, 1) where `length` is not 0, else not used.
        as_printed: solve (22) as it stands in the letter.

    Returns:
        The curve.
    """
    doubled = 2.0 if as_printed else 1.0
    norm = np.pi**-1.5

    def slope(alpha: float, state: Floats) -> Floats:
        ratio = np.exp(state[0] - state[1])  # Q/ζ
        theta = state[2]
        tangent = np.tan(theta)  # √r
        scale = max(1.0 / np.sqrt(1.0 + ratio), np.sin(theta))  # 1 + 1/r = 1/sin² θ
        tau = scale * NODES
        weight = scale * STEP * np.exp(-(tau**2))
        log_f = -ratio * tau**2 - np.log(2.0) - log_ndtr(np.sqrt(2.0 * ratio) * tau)
        f = np.exp(log_f)
        agree = 2.0 * np.exp(log_ndtr(np.sqrt(2.0) / tangent * tau) + log_f) * weight  # e^{−τ²} erfc(−τ/√r) F
        reach = np.sqrt(ratio) * tau
        force = np.sum(agree * f)
        turn = np.sum(weight * np.exp(-((tau / tangent) ** 2)) * f)
        return np.array(
            [
                2.0 / (np.pi * ratio) * (2.0 * np.sum(agree * reach) + force / np.sqrt(np.pi)),
                -2.0 / np.pi * (np.sum(agree * reach) + force / np.sqrt(np.pi)),
                -2.0 * norm * turn / np.sqrt(ratio) + doubled * norm * force / (ratio * tangent),
            ]
        )

    if length > 0.0:
        if not 0.0 < overlap < 1.0:
            raise ValueError("a mean that is not zero has an overlap with the teacher: give it, in (0, 1)")
        first = np.array([np.log(length), np.log(width), np.arccos(overlap)])
        offset = 1e-3
    else:  # the power law there: Q = 2ζα/π, ρ = √(2α/π), and as printed ρ is 2/3 of it
        cosine = np.sqrt(2.0 * START / np.pi) * 2.0 / (1.0 + doubled)
        first = np.array([np.log(2.0 * width * START / np.pi), np.log(width), np.arccos(cosine)])
        offset = 0.0
    log_length, log_width, theta = integrate(slope, first, alpha, offset)
    return BonaCurve(np.exp(log_length), np.exp(log_width), np.cos(theta), theta / np.pi)


def rosenblatt_online(alpha: ArrayLike) -> Floats:
    """Error of Rosenblatt's perceptron, w += y x on every mistake, in one pass from w = 0: → (2/3)^{1/3}/(π α^{1/3}).

    Engel and Van den Broeck, Statistical Mechanics of Learning (2001), chapter 9. With J the length of w/√N and
    θ = arccos ρ: dJ²/dα = θ/π − 2J(1 − ρ)/√(2π), dθ/dα = −sin θ/(J√(2π)) + θ cot θ/(2πJ²).

    Args:
        alpha: rows a weight, > 0, any shape.

    Returns:
        θ/π, shaped as `alpha`; 0.28/α^{1/3} at large α.
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

    # One label in two is wrong at first, whence J² = α/2 and ρ = √(α/π).
    first = np.array([np.log(0.5 * START), np.arccos(np.sqrt(START / np.pi))])
    return integrate(slope, first, alpha, 0.0)[1] / np.pi


def annealed_perceptron(alpha: ArrayLike, rate: float = 2.0, start: float = 1.0, start_error: float = 0.5) -> Floats:
    """Error of the perceptron with η = rate·√(2π)/α, its weights normalised after every row.

    Equation (4) of Barkai, Seung and Sompolinsky, On-line learning of dichotomies (1995), in θ = arccos R:
    dθ/dα = −η sin θ/√(2π) + η² θ cot θ/(2π).

    Args:
        alpha: rows a weight, ≥ `start`, any shape.
        rate: η0 of the paper.
        start: α at which the schedule is entered.
        start_error: error at `start`; 1/2 is a random vector.

    Returns:
        θ/π, shaped as `alpha`.
    """

    def slope(alpha: float, state: Floats) -> Floats:
        theta = state[0]
        return np.array([-rate * np.sin(theta) / alpha + rate**2 * theta / np.tan(theta) / alpha**2])

    return integrate(slope, np.array([np.pi * start_error]), alpha, 0.0, start)[0] / np.pi


def annealed_perceptron_law(alpha: ArrayLike, rate: float = 2.0) -> Floats:
    """What `annealed_perceptron` tends to: equation (6) of Barkai, Seung and Sompolinsky.

    At small θ dθ/d ln α = −rate·θ + rate²/α. Above 1 θ = rate²/((rate − 1) α), least at rate = 2, where the error is
    4/(πα); at 1 θ = ln α/α.

    Args:
        alpha: rows a weight, any shape.
        rate: η0 ≥ 1. Below 1 the error is A α^{−rate}, and A depends on the start: solve the equation.

    Returns:
        The error, shaped as `alpha`.
    """
    alpha = np.asarray(alpha, dtype=np.float64)
    if rate < 1.0:
        raise ValueError("below rate 1 the law is A alpha^-rate with A set by the start: use annealed_perceptron")
    if rate == 1.0:
        return np.log(alpha) / (np.pi * alpha)
    return rate**2 / (np.pi * (rate - 1.0) * alpha)


def constant_rate_floor(rate: ArrayLike) -> Floats:
    """Error that a small constant η ends at, normalised perceptron: η/√(2π³), equation (5) of the same paper."""
    return np.asarray(rate, dtype=np.float64) / np.sqrt(2.0 * np.pi**3)


def output_noise_law(alpha: ArrayLike, flip: float) -> Floats:
    """Error on noisy labels of the shifted perceptron rule at its best schedule: p + √(2p/(πα)), their equation (18).

    Their error counts a disagreement with the teacher in full. A label that is flipped anyway turns a share 2p of them
    into agreements, so what is measured on noisy labels lies (1 − 2p) times as far above p.

    Args:
        alpha: rows a weight, > 0, any shape.
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


def integrate(
    slope: Callable[[float, Floats], Floats], first: Floats, alpha: ArrayLike, offset: float, start: float = START
) -> Floats:
    """Solve a system in ln(α + offset) and read it at α, (states, …); it starts at α = 0 if there is an offset."""
    alpha = checked(alpha, 0.0 if offset else start)
    wanted, back = np.unique(alpha, return_inverse=True)
    begin = np.log(offset if offset else start)
    times = np.log(wanted + offset)
    solution = solve_ivp(
        lambda time, state: np.exp(time) * slope(np.exp(time) - offset, state),
        (begin, max(times[-1], begin + 1e-12)),
        first,
        method="LSODA",
        t_eval=times,
        rtol=1e-9,
        atol=1e-12,
    )
    if not solution.success:
        raise RuntimeError(f"the order-parameter equations could not be integrated: {solution.message}")
    return solution.y[:, back].reshape(len(first), *alpha.shape)


def bayes_curve(signal: Floats) -> Curve:
    """All that follows from q̂; cos² θ = q̂/(1 + q̂), so tan θ = 1/√q̂."""
    return Curve(signal, signal / (1.0 + signal), np.arctan2(1.0, np.sqrt(signal)) / np.pi)


def checked(alpha: ArrayLike, least: float) -> Floats:
    """α as an array."""
    alpha = np.asarray(alpha, dtype=np.float64)
    if not np.all(alpha >= least):
        raise ValueError(f"alpha is a number of rows a weight, at least {least:g} here")
    return alpha
