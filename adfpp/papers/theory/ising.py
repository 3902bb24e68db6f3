"""Learning curves of the Ising perceptron: N weights ±1, inputs of variance 1/N, N → ∞, α = rows / N.

The information of α N rows about a weight is a logit λ: the posterior mean is tanh λ, and λ w* is Gaussian with mean
and variance q̂. Everything follows from q̂: the gap is 1 − q = e^{−q̂/2} E sech λ, λ ~ N(0, q̂), and sign(mean) is right
for a share Φ(√q̂) of the bits.

Batch posterior: Györgyi, First-order transition to perfect generalization in a neural network with binary synapses
(1990); Barbier, Krzakala, Macris, Miolane and Zdeborová, Optimal errors and phase transitions in high-dimensional
generalized linear models (2019), for the free entropy. Online: Winther and Solla, Optimal Bayesian online learning
(1997), an ADF with a product of Bernoulli beliefs and the Gaussian field of the central limit theorem.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from adfpp.papers.theory.channel import Floats, evidence_rate
from adfpp.papers.theory.equations import checked_alpha
from adfpp.papers.theory.parametric import Prior, batch_roots, batch_table, bracketed_root, online_signal

__all__ = ["BatchCurve", "Curve", "Transition", "adf_online", "bayes_batch", "clipped", "gap", "transition"]

# The integrand e^{−λ²/2q̂} sech λ is analytic up to ±iπ/2, and smaller than the rounding error for |λ| > 40.
STEP = 0.08
NODES: Floats = STEP * np.arange(-500.0, 501.0)
NORMAL_STEP = 0.025
NORMAL_NODES: Floats = NORMAL_STEP * np.arange(-480.0, 481.0)
NORMAL_WEIGHTS: Floats = NORMAL_STEP * np.exp(-0.5 * NORMAL_NODES**2) / np.sqrt(2.0 * np.pi)


class Curve(NamedTuple):
    """The learning curve of a learner in the large-N limit; each field has the shape of α.

    Attributes:
        signal: q̂, the signal-to-noise ratio of the information about one weight; inf if all weights are known.
        gap: 1 − q, without the loss of digits in the difference.
        overlap: q = E[tanh λ · w*], of the posterior mean with the teacher and with itself.
        error: arccos(√q)/π, the probability of a wrong label on noise-free data, if the prediction is the sign of the
            mean field, which is the Bayes-optimal rule.
        wrong_bits: Φ(−√q̂), the share of weights whose sign(mean) is wrong.
        clipped_error: arccos(1 − 2 wrong_bits)/π, the same probability if the weights are sign(mean).
        free_entropy: of the batch posterior, (1/N) E ln p(labels | inputs); nan for an online learner.
    """

    signal: Floats
    gap: Floats
    overlap: Floats
    error: Floats
    wrong_bits: Floats
    clipped_error: Floats
    free_entropy: Floats


class BatchCurve(NamedTuple):
    """The fixed points of the batch equations, and the fixed point that is the posterior.

    Attributes:
        low: the branch from q = 0, which message passing reaches from an uninformed start.
        high: the branch from q = 1, the state that knows the teacher.
        equilibrium: the branch with the larger free entropy, which is the Bayes-optimal curve.
    """

    low: Curve
    high: Curve
    equilibrium: Curve


class Transition(NamedTuple):
    """A first-order transition in α.

    Attributes:
        appears: α at which the informed state appears, 0 for the noise-free step.
        equilibrium: α at which the two states have the same free entropy, and the posterior jumps.
        vanishes: α at which the uninformed state vanishes, the spinodal; above it, message passing learns the teacher.
    """

    appears: float
    equilibrium: float
    vanishes: float


def gap(signal: ArrayLike) -> Floats:
    """1 − q as a function of q̂: E_{λ ~ N(q̂, q̂)} sech² λ = e^{−q̂/2} E_{λ ~ N(0, q̂)} sech λ.

    The second form follows by averaging the first over ±λ; it keeps its digits at any q̂.

    Args:
        signal: q̂ ≥ 0, any shape.

    Returns:
        1 − q in [0, 1], shaped as `signal`.
    """
    signal = np.asarray(signal, dtype=np.float64)
    finite = np.where(np.isinf(signal), 1.0, signal)
    nodes, weights = rule(finite)
    return np.where(np.isinf(signal), 0.0, np.exp(-0.5 * finite) * np.sum(weights / np.cosh(nodes), axis=-1))


PRIOR = Prior(gap, 1500.0)  # e^{−q̂/2} underflows here


def bayes_batch(alpha: ArrayLike, noise: float = 0.0, flip: float = 0.0) -> BatchCurve:
    """Batch posterior: q̂ = α I(q), 1 − q = gap(q̂), the replica-symmetric saddle point on the Nishimori line.

    Free entropy: E ln(1 + e^{−2λ}) − ln 2 + q̂ (1 − q)/2 + α Ψ(q) with λ ~ N(q̂, q̂), stationary at each solution.

    Args:
        alpha: rows per weight, ≥ 0, any shape.
        noise: standard deviation of the noise on the field, in units of the field's; 0 is the noise-free step.
        flip: probability in [0, 1/2) that a label is flipped after the noise.

    Returns:
        Both branches and the equilibrium.
    """
    alpha = checked_alpha(alpha, 0.0)
    roots = [batch_roots(float(a), PRIOR, noise, flip) for a in alpha.ravel()]
    # Without noise on the field I diverges at q = 1, so that q = 1 is a solution at any α.
    if noise == 0.0:
        roots = [[*finite, np.inf] for finite in roots]
    low, high = (
        batch_curve(alpha, np.array([branches[end] for branches in roots]).reshape(alpha.shape), noise, flip)
        for end in (0, -1)
    )
    better = high.free_entropy > low.free_entropy
    equilibrium = Curve(*(np.where(better, at_high, at_low) for at_high, at_low in zip(high, low, strict=True)))
    return BatchCurve(low, high, equilibrium)


def adf_online(alpha: ArrayLike, noise: float = 0.0, flip: float = 0.0) -> Curve:
    """One pass of ADF with a product of Bernoulli beliefs: dq̂/dα = I(q), 1 − q = gap(q̂).

    A row adds x_i g(h − x_i m_i) to λ_i, where g(h) = ∂ ln Z/∂h and h − x_i m_i is the mean field without that weight.
    For x_i ~ N(0, 1/N) its mean over rows is w*_i I/N and its variance I/N: λ_i w*_i stays Gaussian with mean and
    variance q̂, and the belief remains calibrated. The field without the weight cannot be replaced by the whole field
    in first order of x: λ_i += x_i g(h) neglects −x_i² m_i ∂g/∂h, whose mean is +m_i I/N, and learns more slowly.

    Without noise on the field q̂ diverges at a finite α (4.37 for flip = 0), where the teacher is known.

    Args:
        alpha: rows per weight, ≥ 0, any shape.
        noise: standard deviation of the noise on the field, in units of the field's; 0 is the noise-free step.
        flip: probability in [0, 1/2) that a label is flipped after the noise.

    Returns:
        The curve; its free entropy is nan.
    """
    alpha = checked_alpha(alpha, 0.0)
    signal = online_signal(alpha.ravel(), PRIOR, noise, flip).reshape(alpha.shape)
    return curve(signal, gap(signal), np.full(alpha.shape, np.nan))


def clipped(overlap: ArrayLike) -> tuple[Floats, Floats]:
    """Errors of a Gaussian learner of an Ising teacher when its mean is clipped to ±1.

    A learner that treats all directions alike (batch, full or spherical ADF with a Gaussian prior N(0, 1) and isotropic
    inputs) has a mean whose part across the teacher has a random direction: m_i = a w*_i + noise. With cosine ρ to the
    teacher, the share of wrong signs is Φ(−ρ/√(1 − ρ²)). A Bayesian learner has ρ² = q.

    Args:
        overlap: ρ in [0, 1], cosine of the mean to the teacher, any shape.

    Returns:
        Share of wrong signs, and the error arccos(1 − 2 share)/π of the clipped weights, shaped as `overlap`.
    """
    overlap = np.asarray(overlap, dtype=np.float64)
    with np.errstate(divide="ignore"):
        wrong = ndtr(-overlap / np.sqrt((1.0 - overlap) * (1.0 + overlap)))
    return wrong, clipped_error(wrong)


@lru_cache(maxsize=32)
def transition(noise: float = 0.0, flip: float = 0.0) -> Transition | None:
    """The first-order transition to (nearly) perfect generalisation; α = 1.245 and 1.493 for the noise-free step.

    Args:
        noise: standard deviation of the noise on the field; 0 is the noise-free step.
        flip: probability in [0, 1/2) that a label is flipped after the noise.

    Returns:
        The transition, or None if the noise makes the change smooth.
    """
    table = batch_table(PRIOR, noise, flip)
    if not table.peaks:
        return None
    vanishes, appears = table.peaks[0], table.valleys[0] if noise > 0.0 else 0.0

    def advantage(alpha: float) -> float:
        both = bayes_batch(alpha, noise, flip)
        return float(both.high.free_entropy - both.low.free_entropy)

    width = vanishes - appears
    jump = bracketed_root(advantage, appears + 1e-6 * width, vanishes - 1e-6 * width)
    return Transition(appears, jump, vanishes)


def batch_curve(alpha: Floats, signal: Floats, noise: float, flip: float) -> Curve:
    """The curve of solutions q̂ at α, with their free entropies."""
    finite = np.where(np.isinf(signal), 0.0, signal)
    logits = finite[..., None] + np.sqrt(finite)[..., None] * NORMAL_NODES
    prior = np.logaddexp(0.0, -2.0 * logits) @ NORMAL_WEIGHTS
    missing = gap(signal)
    entropy = np.where(np.isinf(signal), 0.0, prior + 0.5 * finite * missing) - np.log(2.0)
    return curve(signal, missing, entropy + alpha * evidence_rate(missing, noise, flip))


def curve(signal: Floats, missing: Floats, free_entropy: Floats) -> Curve:
    """The curve that follows from q̂ and 1 − q."""
    # E tanh = e^{−q̂/2} E_{λ ~ N(0, q̂)} sinh λ tanh λ keeps the digits that 1 − gap would lose when q is small.
    small = np.minimum(signal, 1.0)
    nodes, weights = rule(small)
    overlap = np.exp(-0.5 * small) * np.sum(weights * np.sinh(nodes) * np.tanh(nodes), axis=-1)
    overlap = np.where(signal < 1.0, overlap, 1.0 - missing)
    wrong = ndtr(-np.sqrt(signal))
    error = np.arctan2(np.sqrt(missing), np.sqrt(overlap)) / np.pi
    return Curve(signal, missing, overlap, error, wrong, clipped_error(wrong), free_entropy)


def rule(signal: Floats) -> tuple[Floats, Floats]:
    """Nodes λ and weights, (..., n), of the average over N(0, q̂) of a function that decays as e^{−|λ|}."""
    spread = 1.0 + signal[..., None]
    weights = STEP / np.sqrt(2.0 * np.pi * spread) * np.exp(-(NODES**2) / (2.0 * spread))
    return np.sqrt(signal[..., None] / spread) * NODES, weights


def clipped_error(wrong: Floats) -> Floats:
    """arccos(1 − 2 wrong)/π in a form that keeps all digits: 2 arcsin(√wrong)/π."""
    return 2.0 * np.arcsin(np.sqrt(wrong)) / np.pi
