"""Order parameters of the Bayesian online algorithm for the perceptron, in the limit N → ∞ at α = rows / N.

Equations (17), (18) and (22) of de Oliveira and Alamino, Performance of the Bayesian online algorithm for the
perceptron (2007): spherical ADF on the labels of a noise-free teacher, with the step as likelihood or with its soft
version of finite β. (22) is corrected here; its printed form is available for comparison.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr

from adfpp.papers.theory.channel import Floats
from adfpp.papers.theory.equations import START, integrate

__all__ = ["BonaCurve", "BonaDrift", "bona", "bona_beta_law", "bona_drift"]


REACH = 12.0  # standard deviations of a field, beyond which the density is below rounding error
SPREAD: Floats = np.linspace(-1.0, 1.0, 801)  # nodes of the trapezoidal rule, before they are stretched
LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


class BonaCurve(NamedTuple):
    """A spherical Gaussian belief that learns noise-free labels, each field shaped as α.

    Attributes:
        length: Q, the squared mean per weight.
        width: ζ, the variance of each weight.
        overlap: ρ, cosine of the mean to the teacher.
        error: arccos(ρ)/π.
    """

    length: Floats
    width: Floats
    overlap: Floats
    error: Floats


class BonaDrift(NamedTuple):
    """Slopes of the order parameters, in the limit N → ∞.

    Attributes:
        length: dQ/dα.
        width: dζ/dα.
        angle: dθ/dα, θ = arccos ρ; dρ/dα = −sin θ dθ/dα.
    """

    length: float
    width: float
    angle: float


def bona(
    alpha: ArrayLike,
    length: float = 0.0,
    width: float = 1.0,
    overlap: float = 0.0,
    *,
    beta: float = np.inf,
    as_printed: bool = False,
) -> BonaCurve:
    """Spherical ADF on noise-free labels, with the step as likelihood or with its soft version of finite β.

    The solution of equations (17), (18) and (22) of the letter, which `bona_drift` has for any β. In the letter the
    last equation has the factor 2 before both of its terms, which contradicts its (21): an erratum. From a zero mean
    the corrected curve of the step is `optimal_online`, for any width.

    Args:
        alpha: rows per weight, > 0, any shape.
        length: Q at α = 0; 0 for a belief with mean 0.
        width: ζ at α = 0.
        overlap: ρ at α = 0, in (0, 1); not used if `length` is 0.
        beta: inverse temperature of the learner's likelihood, (8) and (9); ∞ is the step.
        as_printed: solve (22) as it is printed in the letter.

    Returns:
        The curve.
    """

    def slope(alpha: float, state: Floats) -> Floats:
        length, width = np.exp(state[:2])
        drift = bona_drift(length, width, state[2], beta, as_printed=as_printed)
        return np.array([drift.length / length, drift.width / width, drift.angle])

    if length > 0.0:
        if not 0.0 < overlap < 1.0:
            raise ValueError(
                f"A mean that is not zero has an overlap with the teacher in (0, 1); overlap is {overlap}: give it."
            )
        first = np.array([np.log(length), np.log(width), np.arccos(overlap)])
        offset = 1e-3
    else:  # the power law at small α: Q = ζ² g(0)² α, ρ = √(2α/π); for (22) as printed ρ is 2/3 of it
        cosine = np.sqrt(2.0 * START / np.pi) * (2.0 / 3.0 if as_printed else 1.0)
        pull = width * np.exp(log_gradient(np.zeros(1), width, beta)[0])
        first = np.array([np.log(pull**2 * START), np.log(width), np.arccos(cosine)])
        offset = 0.0
    log_length, log_width, theta = integrate(slope, first, alpha, offset)
    return BonaCurve(np.exp(log_length), np.exp(log_width), np.cos(theta), theta / np.pi)


def bona_drift(
    length: float, width: float, angle: float, beta: float = np.inf, *, as_printed: bool = False
) -> BonaDrift:
    """Slopes of the order parameters of a spherical Gaussian belief that learns noise-free labels.

    A row moves the mean by ζ g(τ) σξ/√N and the width by ζ² g′(τ)/N, where τ = σ ω·ξ/√N and g = ∂ ln Z/∂τ. Let
    u = τ/√Q, which has the density 2 φ(u) Φ(u/√r), r = 1/ρ² − 1 = tan² θ, and averages ⟨·⟩. The slopes follow from

        ⟨g²⟩,  ⟨u g⟩  and  T = 2 ∫ φ(u) φ(u/√r) g du,

    - dQ/dα = 2ζ√Q ⟨u g⟩ + ζ² ⟨g²⟩
    - dζ/dα = ζ² ⟨g′⟩ = (ζ²/√Q) (⟨u g⟩ − T/√r), by parts
    - dρ/dα = (ζ/√Q) sin θ T − ρ ζ²/(2Q) ⟨g²⟩

    For the step g = √(2/πζ) F, and with u = √2 τ̂ these are (17), (18) and the corrected (22) of the letter.

    Args:
        length: Q > 0.
        width: ζ > 0.
        angle: θ in (0, π/2).
        beta: inverse temperature of the learner's likelihood; ∞ is the step.
        as_printed: whether to double the last term, as (22) is printed in the letter.

    Returns:
        The slopes.
    """
    tangent = np.tan(angle)
    near = min(
        1.0, tangent, np.sqrt(width / length)
    )  # the finest scale of the integrand; the nodes u cover all scales from it to 1
    time = np.arcsinh(REACH / near) * SPREAD
    u = near * np.sinh(time)
    step = time[1] - time[0]
    log_weight = np.log(2.0 * step * near * np.cosh(time)) - 0.5 * u**2 - LOG_SQRT_2PI
    log_g = log_gradient(np.sqrt(length) * u, width, beta)
    seen = log_weight + log_ndtr(u / tangent)
    square = np.sum(np.exp(seen + 2.0 * log_g))
    reach = np.sum(u * np.exp(seen + log_g))
    turn = np.sum(np.exp(log_weight - 0.5 * (u / tangent) ** 2 - LOG_SQRT_2PI + log_g))
    pull = width / np.sqrt(length)
    return BonaDrift(
        float(2.0 * width * np.sqrt(length) * reach + width**2 * square),
        float(width * pull * (reach - turn / tangent)),
        float(-pull * turn + (2.0 if as_printed else 1.0) * 0.5 * pull**2 * square / tangent),
    )


def log_gradient(tau: Floats, width: float, beta: float) -> Floats:
    """Ln g, g = ∂ ln Z/∂τ of Z = E exp(−β max(0, −h)), h ~ N(τ, ζ); of the step's Z = Φ(τ/√ζ) at β = ∞.

    Z = Φ(z) + B, z = τ/√ζ, B = exp(βτ + β²ζ/2) Φ(−z − β√ζ), and g = βB/Z.
    """
    sd = np.sqrt(width)
    z = tau / sd
    if np.isinf(beta):
        return -0.5 * z**2 - LOG_SQRT_2PI - log_ndtr(z) - np.log(sd)
    edge = z + beta * sd
    log_mills = np.log(0.5 * erfcx(np.maximum(edge, 0.0) / np.sqrt(2.0)))
    log_wrong = np.where(
        edge > 0.0, log_mills - 0.5 * z**2, 0.5 * beta * sd * (edge + z) + log_ndtr(-np.minimum(edge, 0.0))
    )
    return np.log(beta) + log_wrong - np.logaddexp(log_ndtr(z), log_wrong)


def bona_beta_law(alpha: ArrayLike, beta: float, length: float = 1.0) -> Floats:
    """The law of the error at finite β and large α: c (β√Q)^{−1/4} α^{−3/4}, c = 2√K (2π)^{3/8}/π = 0.434.

    When √ζ is far below 1/β, a row has the gradient g = β Φ(−τ/√ζ), which is at most β for any wrong row. Then
    √ζ ∝ α^{−1/2} is wide compared with θ, so that ζ = √(2πQ)/(βα) and dθ²/dα = −2θ²/α + (ζ²/Q) ⟨g²⟩ with
    ⟨g²⟩ = 2 φ(0) β² K √(ζ/Q) and K = ∫_0^∞ Φ(−u)² du = (√2 − 1)/(2√π). This is the noise of the rows that are right
    but near the boundary.

    Args:
        alpha: rows per weight, any shape.
        beta: inverse temperature.
        length: Q at large α.

    Returns:
        The error, shaped as `alpha`.
    """
    spread = (np.sqrt(2.0) - 1.0) / (2.0 * np.sqrt(np.pi))
    constant = 2.0 * np.sqrt(spread) * (2.0 * np.pi) ** 0.375 / np.pi
    return constant * (beta * np.sqrt(length)) ** -0.25 * np.asarray(alpha, dtype=np.float64) ** -0.75
