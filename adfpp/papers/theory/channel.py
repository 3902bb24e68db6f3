"""The information in one labelled row about its field: the output channel of a perceptron in the large-N limit.

A teacher w* labels inputs whose field b = w*·x has unit variance: P(y = ±1 | b) = flip + (1 − 2 flip) Φ(y b / noise).
A Bayesian student whose posterior mean has overlap q with the teacher sees, before the label, b ~ N(h, 1 − q) with
h ~ N(0, q), and predicts Z(y) = flip + (1 − 2 flip) Φ(y u), u = h / √D, D = 1 − q + noise². The order-parameter
equations depend on the likelihood by two averages over u ~ N(0, q/D) only. They are functions of the gap 1 − q here,
because the gap keeps its digits when q rounds to 1.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, xlog1py, xlogy

__all__ = ["evidence_rate", "information"]

Floats = NDArray[np.float64]

# Trapezoidal rule for a Gaussian times a function of u that is analytic in a strip around the real line and decays like
# a unit Gaussian: the error is exp(−2π·(width of the strip)/STEP). The strip of Z becomes narrower with the logarithm
# of `flip` only; its width is 0.085 at flip = 1e-300.
STEP = 0.015
NODES: Floats = STEP * np.arange(-800.0, 801.0)


def information(gap: ArrayLike, noise: float = 0.0, flip: float = 0.0) -> Floats:
    """Fisher information of one label on the mean field, averaged over rows: I = E_h Σ_y Z (∂_h ln Z)².

    I = (1 − 2 flip)² / D · ∫Du φ(u)² / (Z(+) Z(−)), u ~ N(0, q/D). With flip = 0 it is the integral of Opper,
    A Bayesian approach to online learning, Figure 2: 2/D ∫Dz φ(u)²/Φ(u).

    Args:
        gap: 1 − q in [0, 1], any shape.
        noise: standard deviation of the noise on the field, in units of the field's standard deviation.
        flip: probability in [0, 1/2) that a label is flipped after the noise.

    Returns:
        I ≥ 0, shaped as `gap`; inf at gap 0 of the noise-free step.
    """
    gap, variance = checked(gap, noise, flip)
    nodes, weights = rule(gap, variance)
    plus = log_label(nodes, flip)
    ratio = np.exp(-(nodes**2) - plus - plus[..., ::-1]) * (1.0 - 2.0 * flip) ** 2 / (2.0 * np.pi)
    with np.errstate(divide="ignore"):
        return np.sum(weights * ratio, axis=-1) / np.sqrt(variance * (1.0 - gap + variance))


def evidence_rate(gap: ArrayLike, noise: float = 0.0, flip: float = 0.0) -> Floats:
    """Expected log predictive probability of one label: Ψ = E_h Σ_y Z ln Z. Its derivative in q is I/2.

    Args:
        gap: 1 − q in [0, 1], any shape.
        noise: standard deviation of the noise on the field, in units of the field's standard deviation.
        flip: probability in [0, 1/2) that a label is flipped after the noise.

    Returns:
        Ψ in [−ln 2, 0], shaped as `gap`.
    """
    gap, variance = checked(gap, noise, flip)
    nodes, weights = rule(gap, variance)
    floor = -xlogy(flip, flip) - xlog1py(1.0 - flip, -flip)
    plus = log_label(nodes, flip)
    # By symmetry both labels contribute equally. The entropy above that of the flips decays with |u|.
    excess = -2.0 * np.where(np.isneginf(plus), 0.0, np.exp(plus) * plus)
    excess = 0.5 * (excess + excess[..., ::-1]) - floor
    scale = np.sqrt(variance / (1.0 - gap + variance))  # the denominator q + D = 1 + noise² is positive
    return -floor - np.sum(weights * excess, axis=-1) * scale


def checked(gap: ArrayLike, noise: float, flip: float) -> tuple[Floats, Floats]:
    """The gap as an array, and D = gap + noise²."""
    if not (np.isfinite(noise) and noise >= 0.0):
        raise ValueError(f"noise is a standard deviation, so it must be finite and at least 0; it is {noise}.")
    if not 0.0 <= flip < 0.5:
        raise ValueError(f"flip must be in [0, 1/2), where a label contains information; it is {flip}.")
    gap = np.asarray(gap, dtype=np.float64)
    return gap, gap + noise**2


def rule(gap: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Nodes u, (..., n), and weights of ∫ N(u; 0, q/D) f(u) du, without their factor √(D / (q + D))."""
    q, total = 1.0 - gap, 1.0 - gap + variance
    nodes = np.sqrt(q / total)[..., None] * NODES
    weights = STEP / np.sqrt(2.0 * np.pi) * np.exp(-0.5 * (variance / total)[..., None] * NODES**2)
    return nodes, weights


def log_label(u: Floats, flip: float) -> Floats:
    """The logarithm ln Z(+) = ln(flip + (1 − 2 flip) Φ(u))."""
    if flip == 0.0:
        return log_ndtr(u)
    return np.logaddexp(np.log(flip), np.log1p(-2.0 * flip) + log_ndtr(u))
