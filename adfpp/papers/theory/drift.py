"""Learning curves of a perceptron whose teacher drifts, in the limit N → ∞ at α = rows / N.

Between two rows each weight of the teacher takes a step of an Ornstein–Uhlenbeck process, w' = φw + √(1 − φ²) ξ with
φ = exp(−drift/N), so that w ~ N(0, 1) at all times: in the time α the correlation with the earlier weights decays at
the rate `drift`. The field has unit variance; the label is flipped with probability `flip`. Errors are on the labels of
the teacher at that time, before flips: arccos(ρ)/π. In the steady state learning and drift are balanced.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from adfpp.papers.theory.channel import Floats, information
from adfpp.papers.theory.equations import integrate

__all__ = [
    "Rate",
    "best_rate",
    "constant_rate",
    "constant_rate_course",
    "small_drift",
    "spherical",
    "spherical_course",
]

START = 1e-6  # α at which a curve starts, on its first power of α


class Rate(NamedTuple):
    """The best constant rate of a perceptron and the error that it reaches, both shaped as the drift.

    Attributes:
        rate: η.
        error: arccos(ρ)/π.
    """

    rate: Floats
    error: Floats


def spherical(drift: ArrayLike, noise: float = 0.0, flip: float = 0.0) -> Floats:
    """Final error of spherical ADF with the prior and the dynamics of the teacher.

    Between rows the mean shrinks to φm, so that q decreases by 2·drift·q per unit of α; a row adds
    dq = (1 − q)² I(1 − q) dα. In terms of q̂ = q/(1 − q) the balance is I = 2·drift·q̂(1 + q̂).

    Args:
        drift: Rate at which the correlation with the earlier teacher decays, > 0, any shape.
        noise: Standard deviation of the noise on the field, in units of the field's; 0 is the noise-free step.
        flip: Probability in [0, 1/2) that a label is flipped after the noise.

    Returns:
        arccos(√q)/π, shaped as ``drift``.
    """
    drift = positive(drift)

    def balance(log_signal: float, slow: float) -> float:
        signal = np.exp(log_signal)
        return float(np.log(information(1.0 / (1.0 + signal), noise, flip)) - np.log(2.0 * slow * signal)) - float(
            np.log1p(signal)
        )

    log_signal = [brentq(balance, -40.0, 40.0, (slow,), xtol=1e-13) for slow in drift.ravel()]
    return (np.arctan(np.exp(-0.5 * np.array(log_signal))) / np.pi).reshape(drift.shape)


def spherical_course(alpha: ArrayLike, drift: float, noise: float = 0.0, flip: float = 0.0) -> Floats:
    """Error of the learner of `spherical` at the time α, from the prior: dq̂/dα = I − 2·drift·q̂(1 + q̂).

    Args:
        alpha: Rows per weight, ≥ 1e-6, any shape.
        drift: Rate at which the correlation with the earlier teacher decays, > 0.
        noise: Standard deviation of the noise on the field.
        flip: Probability that a label is flipped.

    Returns:
        arccos(√q)/π, shaped as ``alpha``.
    """

    def slope(alpha: float, state: Floats) -> Floats:
        signal = np.exp(state)  # the state is ln q̂
        return information(1.0 / (1.0 + signal), noise, flip) / signal - 2.0 * drift * (1.0 + signal)

    first = np.log(START * information(np.ones(1), noise, flip))
    return np.arctan(np.exp(-0.5 * integrate(slope, first, alpha, 0.0, START)[0])) / np.pi


def constant_rate(drift: ArrayLike, rate: ArrayLike, flip: float = 0.0) -> Floats:
    """Final error of the normalised perceptron with a constant rate: W' = W + (η/N) σ S on a wrong label, |W| = 1.

    Equation (4) of Barkai, Seung and Sompolinsky, On-line learning of dichotomies (1995), with flipped labels and
    drift: in θ = arccos ρ, with the probability of a wrong label E = flip + (1 − 2 flip) θ/π,

        dθ/dα = −η (1 − 2 flip) sin θ/√(2π) + (η² E/2 + drift) cot θ.

    A flipped label moves the student along −σS, whose part across it has the mean −sin θ/√(2π): hence 1 − 2 flip.

    Args:
        drift: Rate at which the correlation with the earlier teacher decays, > 0, any shape.
        rate: η > 0, broadcast against ``drift``.
        flip: Probability in [0, 1/2) that a label is flipped.

    Returns:
        θ/π.
    """
    drift, rate = np.broadcast_arrays(positive(drift), positive(rate))

    def balance(theta: float, slow: float, fast: float) -> float:
        wrong = flip + (1.0 - 2.0 * flip) * theta / np.pi
        gained = fast * (1.0 - 2.0 * flip) * np.sin(theta) / np.sqrt(2.0 * np.pi)
        return float(gained * np.sin(theta) - (0.5 * fast**2 * wrong + slow) * np.cos(theta))

    pairs = zip(drift.ravel(), rate.ravel(), strict=True)
    return np.array([brentq(balance, 0.0, 0.5 * np.pi, p, xtol=1e-13) for p in pairs]).reshape(drift.shape) / np.pi


def constant_rate_course(
    alpha: ArrayLike, drift: float, rate: float, flip: float = 0.0, start_error: float = 0.5
) -> Floats:
    """Error of the learner of `constant_rate` at the time α.

    Args:
        alpha: Rows per weight, ≥ 1e-6, any shape.
        drift: Rate at which the correlation with the earlier teacher decays, ≥ 0.
        rate: η > 0.
        flip: Probability that a label is flipped.
        start_error: Error at α = 0; 1/2 is a random direction.

    Returns:
        θ/π, shaped as ``alpha``.
    """

    def slope(alpha: float, state: Floats) -> Floats:
        theta = state
        wrong = flip + (1.0 - 2.0 * flip) * theta / np.pi
        gained = rate * (1.0 - 2.0 * flip) * np.sin(theta) / np.sqrt(2.0 * np.pi)
        return (0.5 * rate**2 * wrong + drift) / np.tan(theta) - gained

    return integrate(slope, np.array([np.pi * start_error]), alpha, 0.0, START)[0] / np.pi


def best_rate(drift: ArrayLike, flip: float = 0.0) -> Rate:
    """The constant rate with the least steady error.

    The balance of `constant_rate` is a quadratic equation in η, which has a solution if its discriminant is not
    negative. So the least θ has (1 − 2 flip)² sin²θ tan²θ = 4π·drift·E, and there
    η = (1 − 2 flip) sin θ tan θ/(√(2π) E).

    Args:
        drift: Rate at which the correlation with the earlier teacher decays, > 0, any shape.
        flip: Probability in [0, 1/2) that a label is flipped.

    Returns:
        The rate and the error.
    """
    drift = positive(drift)
    clean = 1.0 - 2.0 * flip

    def balance(theta: float, slow: float) -> float:
        wrong = flip + clean * theta / np.pi
        return float(clean * np.sin(theta) ** 2 - 2.0 * np.sqrt(np.pi * slow * wrong) * np.cos(theta))

    theta = np.array([brentq(balance, 1e-12, 0.5 * np.pi, (slow,), xtol=1e-14) for slow in drift.ravel()])
    theta = theta.reshape(drift.shape)
    rate = clean * np.sin(theta) * np.tan(theta) / (np.sqrt(2.0 * np.pi) * (flip + clean * theta / np.pi))
    return Rate(rate, theta / np.pi)


def small_drift(drift: ArrayLike) -> tuple[Floats, Floats]:
    """The limits of `spherical` and `best_rate` at slow drift without noise: errors ∝ drift^{1/3}.

    With I = c/√(1 − q) near q = 1, the balance of `spherical` is θ³ = 2·drift/c, and that of `best_rate` θ³ = 4·drift.

    Args:
        drift: Rate at which the correlation with the earlier teacher decays, any shape.

    Returns:
        Errors of spherical ADF and of the perceptron with the best constant rate.
    """
    drift = positive(drift)
    gap = 1e-12
    constant = float(information(gap)) * np.sqrt(gap)
    return np.cbrt(2.0 * drift / constant) / np.pi, np.cbrt(4.0 * drift) / np.pi


def positive(number: ArrayLike) -> Floats:
    """An array of numbers above 0."""
    number = np.asarray(number, dtype=np.float64)
    if not np.all((number > 0.0) & np.isfinite(number)):
        raise ValueError(f"drift and rate must be finite and above 0; they are {number}.")
    return number
