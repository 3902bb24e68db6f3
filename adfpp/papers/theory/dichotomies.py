"""Perceptron rules with a learning rate, in the limit N → ∞: any schedule, and output noise on inputs with a mean.

Barkai, Seung and Sompolinsky, On-line learning of dichotomies (1995). Inputs are S = U + s with s standard normal, the
teacher W₀ and the student W have length 1; R = W·W₀, q = W·U, q₀ = W₀·U, and α = rows / N. A label is the teacher's,
flipped with probability p, and the rate moves the student by η/N. On a row the rules move the student by
(σ − sgn(W·S))/2 times S or S − T. With this identity every average over rows has a closed form.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, root
from scipy.special import erf, owens_t
from scipy.stats import norm

from adfpp.papers.theory.channel import Floats
from adfpp.papers.theory.equations import integrate

__all__ = [
    "NoisyCurve",
    "affine_noise_limit",
    "annealed_spread",
    "circle_noise_law",
    "constant_rate_error",
    "constant_rate_relaxation",
    "disagreement",
    "normalised_perceptron",
    "output_noise",
    "output_noise_limit",
    "shifted_law",
    "threshold_floor",
]

Rate = Callable[[float], float]
SOON = 1e-3  # added to α inside the logarithm in which the equations are solved, so that they can start at α = 0


class NoisyCurve(NamedTuple):
    """The learning curve of a student with noisy labels; each field has the shape of α.

    Attributes:
        overlap: R, cosine to the teacher.
        centre: q, projection of the inputs' centre onto the student.
        learned: c = W·Y, the common part of the learned shift and the student; 0 without a learned shift. Y is the sum
            of σ s over the rows, divided by N, and s is the part of a row across the plane of W₀ and U.
        apart: The probability that student and teacher differ.
        error: The error on noisy labels, p + (1 − 2p)·apart.
    """

    overlap: Floats
    centre: Floats
    learned: Floats
    apart: Floats
    error: Floats


def normalised_perceptron(alpha: ArrayLike, rate: Rate, start_error: float = 0.5) -> Floats:
    """Error of the perceptron on centred inputs and clean labels: equation (4), from α = 0.

    In θ = arccos R: dθ/dα = −η sin θ/√(2π) + η² θ cot θ/(2π).

    Args:
        alpha: rows per weight, ≥ 0, any shape.
        rate: η(α), finite at 0.
        start_error: error at α = 0, in (0, 1); 1/2 is a random vector.

    Returns:
        θ/π, shaped as `alpha`.
    """

    def slope(alpha: float, state: Floats) -> Floats:
        return turning(rate(max(alpha, 0.0)) / np.sqrt(2.0 * np.pi), state)

    return integrate(slope, np.array([np.pi * start_error]), alpha, SOON)[0] / np.pi


def turning(pace: float, theta: Floats) -> Floats:
    """dθ/dα at the rate η = √(2π)·pace."""
    return -pace * np.sin(theta) + pace**2 * theta / np.tan(theta)


def constant_rate_error(rate: ArrayLike) -> Floats:
    """Final error at a constant rate η: the fixed point sin θ tan θ = η θ/√(2π) of (4), at any η.

    At small η it is η/√(2π³), equation (5).

    Args:
        rate: η > 0, any shape.

    Returns:
        θ/π, shaped as `rate`.
    """
    pace = np.asarray(rate, dtype=np.float64) / np.sqrt(2.0 * np.pi)
    roots = np.array([fixed_point(float(a)) for a in pace.ravel()])
    return roots.reshape(pace.shape) / np.pi


def fixed_point(pace: float) -> float:
    """The angle at which `turning` vanishes."""
    theta, result = brentq(
        lambda t: np.sin(t) ** 2 / t - pace * np.cos(t), 1e-12, 0.5 * np.pi, xtol=1e-15, full_output=True
    )
    if not result.converged:
        raise RuntimeError(f"No fixed point was found at the pace {pace}: {result.flag}.")
    return float(theta)


def constant_rate_relaxation(rate: ArrayLike) -> Floats:
    """Rate, in 1/α, at which a small difference from `constant_rate_error` decays; η/√(2π) at small η.

    Args:
        rate: η > 0, any shape.
    """
    pace = np.asarray(rate, dtype=np.float64) / np.sqrt(2.0 * np.pi)
    theta = np.pi * constant_rate_error(rate)
    return pace * np.cos(theta) - pace**2 * (1.0 / np.tan(theta) - theta / np.sin(theta) ** 2)


def annealed_spread(rate: float) -> float:
    """N times the relative variance, over runs, of the error at η = rate·√(2π)/α and large α.

    Let r be the length of the student's part across the teacher. Near the teacher a wrong row changes r by
    −(η/N)|z| + η²/(2Nr), to first order in 1/N, where z is the row's component along that part. So the noise of r α has
    the variance (4η₀²ρ − 2πη₀³ + πη₀⁴/ρ)/N per unit of ln α, where ρ = η₀²/(η₀ − 1) is the mean of r α, and it relaxes
    at the rate η₀ − 1. There (4) holds for the mean of r² at any N, so the mean error is below (4) by the relative
    variance. At a constant η that is (2 − π/2)/N.

    Args:
        rate: η₀ > 1.
    """
    share = (rate - 1.0) / rate
    return 2.0 - np.pi * share + 0.5 * np.pi * share**2


def disagreement(overlap: ArrayLike, centre: ArrayLike, teacher_centre: ArrayLike) -> Floats:
    """Probability that two perceptrons differ on inputs off centre: the second term of equation (8).

    The two fields are normal with means q and q₀, unit variances and correlation R. In Owen's T the probability that
    their signs differ is 2T(q₀, (q/q₀ − R)/√(1 − R²)) + 2T(q, (q₀/q − R)/√(1 − R²)), and 1 more where q q₀ < 0.

    Args:
        overlap: R in (−1, 1).
        centre: q.
        teacher_centre: q₀; the three broadcast.
    """
    r, q, q0 = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (overlap, centre, teacher_centre)))
    across = np.sqrt((1.0 - r) * (1.0 + r))
    centred = (q == 0.0) & (q0 == 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = owens_t(q0, (q / q0 - r) / across) + owens_t(q, (q0 / q - r) / across)
    opposed = (q * q0 < 0.0) | ((q * q0 == 0.0) & (q + q0 < 0.0))
    return np.where(centred, np.arctan2(across, r) / np.pi, 2.0 * parts + opposed)


def output_noise(
    alpha: ArrayLike,
    rate: Rate,
    flip: float,
    length: float,
    teacher_centre: float,
    overlap: float,
    centre: float,
    shift: Literal["none", "known", "learned"] = "learned",
) -> NoisyCurve:
    """The rule (2), or (10), on noisy labels and inputs off centre.

    With m(x) = erf(x/√2), φ the normal density, B = ((1 − 2p) m(q₀) − m(q))/2 = ⟨εσ⟩, e the error on noisy labels and
    k = φ(q₀) m(q)/m(q₀), the shifted rule with the T of (13) has

    - dR/dα = ηk(1 − R²) − η²Re/2,
    - dq/dα = ηk(q₀ − Rq) − η²qe/2,

    which (14) linearises. A T that is learned from the same rows has an error of length 1/(√α (1 − 2p)|m(q₀)|) across
    the plane of W₀ and U, which is correlated with the student. With μ = (1 − 2p) m(q₀) it adds ηRBc/(αμ) and
    ηqBc/(αμ), and
    dc/dα = η(e − B/μ − kRc + Bc²/(αμ)) − η²ce/2. The rule without a shift has

    - dR/dα = η(B(q₀ − Rq) + (1 − 2p) φ(q₀)(1 − R²)) − η²Re/2,
    - dq/dα = η(B(U² − q²) + (1 − 2p) φ(q₀)(q₀ − Rq)) − η²qe/2.

    Args:
        alpha: rows per weight, ≥ 0, any shape.
        rate: η(α), finite at 0.
        flip: p in [0, 1/2).
        length: |U|.
        teacher_centre: q₀.
        overlap: R at α = 0.
        centre: q at α = 0.
        shift: "none" for (2), "known" for (10) with (13), "learned" for (10) with (12) by running averages.

    Returns:
        The curve.
    """
    clean = 1.0 - 2.0 * flip

    def slope(alpha: float, state: Floats) -> Floats:
        alpha, eta = max(alpha, 1e-12), rate(max(alpha, 0.0))
        moved = motion(state, flip, length, teacher_centre, shift != "none")
        error = flip + clean * float(disagreement(min(state[0], 1.0 - 1e-15), state[1], teacher_centre))
        if shift == "learned":
            pull, scale = balance(state[1], teacher_centre, flip), clean * erf(teacher_centre / np.sqrt(2.0))
            turn = attraction(state[1], teacher_centre) * state[0]
            drag = pull * state[2] / (alpha * scale)
            moved += np.array([state[0] * drag, state[1] * drag, error - pull / scale - state[2] * (turn - drag)])
        return eta * moved - 0.5 * eta**2 * error * state

    states = integrate(slope, np.array([overlap, centre, 0.0]), alpha, SOON)
    apart = disagreement(states[0], states[1], teacher_centre)
    return NoisyCurve(states[0], states[1], states[2], apart, flip + clean * apart)


def balance(centre: float, teacher_centre: float, flip: float) -> float:
    """⟨εσ⟩, the mean label of the rows that change the student."""
    return 0.5 * ((1.0 - 2.0 * flip) * erf(teacher_centre / np.sqrt(2.0)) - erf(centre / np.sqrt(2.0)))


def attraction(centre: float, teacher_centre: float) -> float:
    """φ(q₀) m(q)/m(q₀): the strength of the shifted rule's pull to the teacher; negative if the signs differ."""
    return norm.pdf(teacher_centre) * erf(centre / np.sqrt(2.0)) / erf(teacher_centre / np.sqrt(2.0))


def motion(state: Floats, flip: float, length: float, teacher_centre: float, shifted: bool) -> Floats:
    """The factors of η in dR/dα and dq/dα for a known T, and 0 for c."""
    r, q = state[:2]
    aim = teacher_centre - r * q
    if shifted:
        pull = attraction(q, teacher_centre)
        return np.array([pull * (1.0 - r * r), pull * aim, 0.0])
    pull, towards = balance(q, teacher_centre, flip), (1.0 - 2.0 * flip) * norm.pdf(teacher_centre)
    return np.array([pull * aim + towards * (1.0 - r * r), pull * (length**2 - q * q) + towards * aim, 0.0])


def output_noise_limit(flip: float, length: float, teacher_centre: float) -> NoisyCurve:
    """The limit of the rule without a shift as η → 0: the vector in the plane of W₀ and U with a mean move of 0.

    To first order in p the angle to W₀ is p |m(q₀)| c/(φ(q₀)(1 + c²)), c² = U² − q₀², whence an error of
    p + p |m(q₀)| c E|c + z|/(1 + c²) with z standard normal. Equation (9) is damaged in the available
    text; it can be read as this with E|c + z| ≈ c.

    Args:
        flip: p in [0, 1/2).
        length: |U|.
        teacher_centre: q₀, |q₀| < |U|.
    """
    across = np.sqrt(length**2 - teacher_centre**2)

    def turn(angle: float) -> float:
        """Mean move within the plane, at an angle from W₀ towards U."""
        q = teacher_centre * np.cos(angle) + across * np.sin(angle)
        pull, towards = balance(q, teacher_centre, flip), (1.0 - 2.0 * flip) * norm.pdf(teacher_centre)
        return pull * (across * np.cos(angle) - teacher_centre * np.sin(angle)) - towards * np.sin(angle)

    solution = root(lambda a: [turn(float(a[0]))], [0.0], tol=1e-12)
    if not solution.success:
        raise RuntimeError(f"The limit of the rule without a shift was not found: {solution.message}")
    angle = float(solution.x[0])
    r, q = np.cos(angle), teacher_centre * np.cos(angle) + across * np.sin(angle)
    apart = disagreement(r, q, teacher_centre)
    return NoisyCurve(np.asarray(r), np.asarray(q), np.zeros(()), apart, flip + (1.0 - 2.0 * flip) * apart)


def shifted_law(alpha: ArrayLike, flip: float, eta0: float = 2.0, learned: bool = True) -> Floats:
    """Probability at large α that the shifted student differs from the teacher, with η = η₀/(2 φ(q₀) α), η₀ > 1.

    Linearised, 1 − R = η₀²p/(8 φ(q₀)² (η₀ − 1) α) if T is known. If T is learned, 1 − R is larger by
    η₀p² (1 − p)/((1 − 2p)² φ(q₀)² (η₀ − 1) α). The probability is φ(q₀) √(4(1 − R)/π). At η₀ = 2 it is √(2p/(πα)) if
    T is known, which is (18) if each disagreement counts as one error. If T is learned it is 1/(1 − 2p) times as large,
    so that the error on noisy labels, p + (1 − 2p) times the probability, is exactly (18).

    Args:
        alpha: rows per weight, > 0, any shape.
        flip: p in [0, 1/2).
        eta0: η₀ > 1.
        learned: whether T is learned from the same rows.
    """
    if not eta0 > 1.0:
        raise ValueError(
            f"eta0 must be above 1; it is {eta0}. Otherwise the error falls as alpha^(-eta0/2) with a factor that "
            "depends on the start: solve the equations with output_noise."
        )
    share = eta0**2 * flip / 8.0 + learned * eta0 * flip**2 * (1.0 - flip) / (1.0 - 2.0 * flip) ** 2
    return np.sqrt(4.0 * share / (np.pi * (eta0 - 1.0) * np.asarray(alpha, dtype=np.float64)))


def threshold_floor(rate: ArrayLike, threshold: float = 0.0) -> Floats:
    """Error of the rule (20) with a small constant η on f = S − w, with one standard normal number and one weight.

    At x = δw/η the rule jumps by −sgn(x) with a probability proportional to |x|. The stationary density F satisfies
    x F(x) = (1 − x) F(x − 1), so the scaling function of (24) is F(x) = 1 − |x| on [−1, 1]. Hence E|δw| = η/3, and the
    error is φ(w₀) η/3.

    Args:
        rate: η, any shape.
        threshold: w₀ of the teacher.
    """
    return norm.pdf(threshold) * np.asarray(rate, dtype=np.float64) / 3.0


def circle_noise_law(rows: ArrayLike, flip: float, rate: float) -> Floats:
    """Probability that student and teacher differ, of the rule (20) with η = rate/n on noisy labels of a phase.

    f = sin(s₂ − w₁ − w₂ s₁), s₂ uniform on the circle and s₁ standard normal. The average of sgn(f) ∂f over s₂ is 0 at
    the teacher, so flips do not change the limit of the rule. Near the teacher the rule is δ' = δ − η(Hδ − noise) with
    H = (1 − 2p)/π and noise of variance p/2 in each weight. Hence n E δ² → rate² p/(2(2 rate H − 1)), and the
    probability is E|δ₁ + δ₂ s₁|/π.

    Args:
        rows: n, any shape.
        flip: p in [0, 1/2).
        rate: above π/(2(1 − 2p)); the best rate is twice that.
    """
    spring = (1.0 - 2.0 * flip) / np.pi
    if not 2.0 * rate * spring > 1.0:
        raise ValueError(
            f"rate must be above {0.5 / spring:.3g}; it is {rate}. For smaller rates the law is another power of n."
        )
    variance = rate**2 * flip / (2.0 * (2.0 * rate * spring - 1.0))
    nodes, weights = normal_rule()
    return (
        np.sqrt(2.0 * variance / (np.pi * np.asarray(rows, dtype=np.float64)))
        / np.pi
        * (weights @ np.hypot(1.0, nodes))
    )


def affine_noise_limit(basis: Callable[[Floats], Floats], weights: ArrayLike, flip: float) -> tuple[Floats, float]:
    """The limit of the rule (20) on noisy labels as η → 0, for f = s₂ − w·b(s₁) and standard normal inputs.

    The mean move is ½⟨b(s₁) (sgn f(w) − (1 − 2p) sgn f(w₀))⟩, which is not 0 at w₀: (20) would need a shift as in (10).

    Args:
        basis: b, from ``(n,)`` to ``(n, k)``.
        weights: w₀ of the teacher, ``(k,)``.
        flip: p in [0, 1/2).

    Returns:
        The weights, ``(k,)``, and the probability that they differ from the teacher on a row.
    """
    nodes, mass = normal_rule()
    rows, teacher = basis(nodes), basis(nodes) @ np.asarray(weights, dtype=np.float64)

    def move(w: Floats) -> Floats:
        return (mass * (erf(rows @ w / np.sqrt(2.0)) - (1.0 - 2.0 * flip) * erf(teacher / np.sqrt(2.0)))) @ rows

    solution = root(move, np.asarray(weights, dtype=np.float64), tol=1e-12)
    if not solution.success:
        raise RuntimeError(f"The limit of the rule on noisy labels was not found: {solution.message}")
    return solution.x, float(mass @ np.abs(norm.cdf(rows @ solution.x) - norm.cdf(teacher)))


def normal_rule() -> tuple[Floats, Floats]:
    """Nodes and weights of an average over one standard normal number, also for functions with kinks."""
    nodes = np.linspace(-8.0, 8.0, 3201)
    return nodes, norm.pdf(nodes) * (nodes[1] - nodes[0])
