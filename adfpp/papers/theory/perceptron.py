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
from scipy.special import erfcx, log_ndtr

from adfpp.papers.theory.channel import Floats
from adfpp.papers.theory.parametric import Prior, batch_roots, online_signal

__all__ = [
    "BonaCurve",
    "BonaDrift",
    "Curve",
    "annealed_perceptron",
    "annealed_perceptron_law",
    "bayes_batch",
    "bona",
    "bona_beta_law",
    "bona_drift",
    "constant_rate_floor",
    "cramer_rao_threshold",
    "optimal_online",
    "output_noise_law",
    "rosenblatt_online",
]

START = 1e-9  # α at which a curve that begins with a zero vector is entered along its power law
REACH = 12.0  # sds of a field beyond which nothing is seen
SPREAD: Floats = np.linspace(-1.0, 1.0, 801)
LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


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
    """A spherical Gaussian belief that learns noise-free labels, each field shaped as α.

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
    alpha: ArrayLike,
    length: float = 0.0,
    width: float = 1.0,
    overlap: float = 0.0,
    *,
    beta: float = np.inf,
    as_printed: bool = False,
) -> BonaCurve:
    """Spherical ADF under the noise-free step, or under its soft version of finite β, of noise-free labels.

    Equations (17), (18) and (22) of de Oliveira and Alamino, Performance of the Bayesian online algorithm for the
    perceptron (2007), which `bona_drift` has for any β. In the letter the last equation has the factor 2 before both
    of its terms, at odds with its (21): an erratum. From a zero mean the corrected curve of the step is
    `optimal_online`, whatever the width.

    Args:
        alpha: rows a weight, > 0, any shape.
        length: Q at α = 0; 0 for a belief that starts without a direction.
        width: ζ at α = 0.
        overlap: ρ at α = 0, in (0, 1) where `length` is not 0, else not used.
        beta: inverse temperature of the learner's likelihood, (8) and (9); ∞ is the step.
        as_printed: solve (22) as it stands in the letter.

    Returns:
        The curve.
    """

    def slope(alpha: float, state: Floats) -> Floats:
        length, width = np.exp(state[:2])
        drift = bona_drift(length, width, state[2], beta, as_printed=as_printed)
        return np.array([drift.length / length, drift.width / width, drift.angle])

    if length > 0.0:
        if not 0.0 < overlap < 1.0:
            raise ValueError("a mean that is not zero has an overlap with the teacher: give it, in (0, 1)")
        first = np.array([np.log(length), np.log(width), np.arccos(overlap)])
        offset = 1e-3
    else:  # the power law there: Q = ζ² g(0)² α, ρ = √(2α/π), and as printed ρ is 2/3 of it
        cosine = np.sqrt(2.0 * START / np.pi) * (2.0 / 3.0 if as_printed else 1.0)
        pull = width * np.exp(log_gradient(np.zeros(1), width, beta)[0])
        first = np.array([np.log(pull**2 * START), np.log(width), np.arccos(cosine)])
        offset = 0.0
    log_length, log_width, theta = integrate(slope, first, alpha, offset)
    return BonaCurve(np.exp(log_length), np.exp(log_width), np.cos(theta), theta / np.pi)


class BonaDrift(NamedTuple):
    """What one row a weight changes, in the limit N → ∞.

    Attributes:
        length: dQ/dα.
        width: dζ/dα.
        angle: dθ/dα, θ = arccos ρ; dρ/dα = −sin θ dθ/dα.
    """

    length: float
    width: float
    angle: float


def bona_drift(
    length: float, width: float, angle: float, beta: float = np.inf, *, as_printed: bool = False
) -> BonaDrift:
    """Slopes of the order parameters of a spherical Gaussian belief that learns noise-free labels.

    A row moves the mean by ζ g(τ) σξ/√N and the width by ζ² g′(τ)/N, where τ = σ ω·ξ/√N and g = ∂ ln Z/∂τ. With
    u = τ/√Q, of density 2 φ(u) Φ(u/√r), r = 1/ρ² − 1 = tan² θ, and averages ⟨·⟩ over it, all follows from

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
        as_printed: twice the last term, as (22) stands in the letter.

    Returns:
        The slopes.
    """
    tangent = np.tan(angle)
    near = min(1.0, tangent, np.sqrt(width / length))  # the finest scale; u is spread from it to 1
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
    """What the error of finite β tends to: c (β√Q)^{−1/4} α^{−3/4}, c = 2√K (2π)^{3/8}/π = 0.434.

    Once √ζ is far below 1/β a row pulls by g = β Φ(−τ/√ζ), no harder however wrong it is. Then √ζ ∝ α^{−1/2} is wide
    beside θ, so that ζ = √(2πQ)/(βα) and dθ²/dα = −2θ²/α + (ζ²/Q) ⟨g²⟩ with ⟨g²⟩ = 2 φ(0) β² K √(ζ/Q) and
    K = ∫_0^∞ Φ(−u)² du = (√2 − 1)/(2√π): noise of the rows that are right but near the edge.

    Args:
        alpha: rows a weight, any shape.
        beta: inverse temperature.
        length: Q in the end.

    Returns:
        The error, shaped as `alpha`.
    """
    spread = (np.sqrt(2.0) - 1.0) / (2.0 * np.sqrt(np.pi))
    constant = 2.0 * np.sqrt(spread) * (2.0 * np.pi) ** 0.375 / np.pi
    return constant * (beta * np.sqrt(length)) ** -0.25 * np.asarray(alpha, dtype=np.float64) ** -0.75


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
