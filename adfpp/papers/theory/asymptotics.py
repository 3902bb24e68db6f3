"""Errors of a probit model at many rows, for labels that may come from another link function.

Inputs are standard normal, x ~ N(0, I). The labels depend on one direction e of them: P(y = 1 | x) = g(z), z = e·x.
The model has P(y = ±1 | x, θ) = Φ(y θ·x / noise), or flip + (1 − 2 flip) Φ(…) if it contains flips. By symmetry the
nearest model, in the sense of Kullback and Leibler, is θ* = length · e, and every matrix of second moments is
along · eeᵀ + across · (I − eeᵀ), so that only integrals over z are needed. Equations are those of Opper, A Bayesian
approach to online learning (1998).
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
from scipy.optimize import brentq
from scipy.special import xlogy

from adfpp.papers.theory.channel import Floats, log_label

__all__ = ["Nearest", "Split", "nearest_probit", "normal_rule", "probit_link"]

# Panels of a Gauss-Legendre rule, narrow near 0, where a link may have a kink, and up to 12 standard deviations.
EDGES: Floats = np.array([0.0, 0.02, 0.1, 0.3, 0.7, 1.3, 2.1, 3.1, 4.3, 5.7, 7.3, 9.1, 12.0])
LEGENDRE_NODES, LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(20)


class Split(NamedTuple):
    """A matrix along · eeᵀ + across · (I − eeᵀ).

    Attributes:
        along: The eigenvalue for e.
        across: The eigenvalue for all directions orthogonal to e.
    """

    along: float
    across: float

    def trace(self, size: int) -> float:
        """Trace in `size` dimensions."""
        return self.along + (size - 1) * self.across

    def times(self, other: "Split") -> "Split":
        """The product of two such matrices, which commute."""
        return Split(self.along * other.along, self.across * other.across)

    def inverse(self) -> "Split":
        """The inverse matrix."""
        return Split(1.0 / self.along, 1.0 / self.across)


class Nearest(NamedTuple):
    """The probit model nearest to the distribution of the labels.

    Attributes:
        length: |θ*|, negative if θ* points against e.
        floor: E ln Q(y)/P(y|θ*), the relative entropy that no number of rows removes.
        curvature: A = −E ∂∂ ln P(y|θ*), (8.7).
        score: B = E ∂ ln P ∂ ln Pᵀ, (8.7); equal to A if the model is well specified. Without flips it is always
            equal to A across e: A − B is a multiple of E[s z xxᵀ], where s is the slope of ln P, and E[s z] = 0 is
            the condition for the nearest θ*.
        fisher: J(θ*), for labels that are drawn from the model.
    """

    length: float
    floor: float
    curvature: Split
    score: Split
    fisher: Split

    @property
    def sandwich(self) -> Split:
        """A⁻¹BA⁻¹, to which t·E[εεᵀ] tends, (8.10)."""
        return self.score.times(self.curvature.inverse()).times(self.curvature.inverse())

    def plugged_in(self, size: int) -> float:
        """Tr(BA⁻¹), to which 2t times the entropic error of P(y|θ̂) above the floor tends, (8.12).

        Args:
            size: N, the number of weights.
        """
        return self.score.times(self.curvature.inverse()).trace(size)

    def predictive(self, size: int) -> float:
        """N, to which 2t times the entropic error of the predictive distribution above the floor tends.

        The predictive distribution is ∫ P(y|θ) N(θ; θ̂, C) dθ. The width C = A⁻¹/t of the belief adds ½ Tr(C ∂∂P) to
        P(y|θ̂) and thereby −½ Tr(C E[∂∂P/P]) to the error, of the same order as (8.12). As E[∂∂P/P] = B − A, this is
        −(Tr(BA⁻¹) − N)/2t, and N/2t is left, whether the model is well specified or not.

        Args:
            size: N, the number of weights.
        """
        return float(size)


def nearest_probit(link: Callable[[Floats], Floats], noise: float = 1.0, flip: float = 0.0) -> Nearest:
    """The probit model nearest to a link, and the matrices that determine how fast errors around it decrease.

    Args:
        link: g, from fields z, any shape, to P(y = 1); smooth except where z = 0, at scales above 0.02.
        noise: σ0 > 0 of the model.
        flip: Probability of a flip in the model, in [0, 1/2). Without flips there is one nearest model. With flips the
            result is one of the stationary models, which is the truth if the link has that form.

    Returns:
        Length, floor and matrices.
    """
    z, weights = normal_rule()
    chance = np.stack([1.0 - link(z), link(z)])  # of the labels −1 and 1
    sign = np.array([[-1.0], [1.0]])

    def slopes(gain: float) -> tuple[Floats, Floats]:
        """∂ ln P and −∂∂ ln P in the field θ·x/noise, (2, nodes)."""
        u = sign * gain * z
        hazard = (1.0 - 2.0 * flip) * np.exp(-0.5 * u**2 - log_label(u, flip)) / np.sqrt(2.0 * np.pi)
        return sign * hazard, hazard * (hazard + u)

    def pull(gain: float) -> float:
        return float(np.sum(weights * z * np.sum(chance * slopes(gain)[0], axis=0)))

    reach = 1.0
    while pull(reach) > 0.0 or pull(-reach) < 0.0:
        reach *= 2.0
        if reach > 1e4:
            raise ValueError(
                "link separates the labels without noise, so no probit is nearest: give a link with noise."
            )
    gain = float(cast(float, brentq(pull, -reach, reach, xtol=1e-14)))

    def split(of: Floats) -> Split:
        return Split(*(float(np.sum(weights * z**k * of)) / noise**2 for k in (2, 0)))

    first, second = slopes(gain)
    log_model = log_label(sign * gain * z, flip)
    model = np.exp(log_model)
    return Nearest(
        gain * noise,
        float(np.sum(weights * np.sum(xlogy(chance, chance) - chance * log_model, axis=0))),
        split(np.sum(chance * second, axis=0)),
        split(np.sum(chance * first**2, axis=0)),
        split(np.sum(model * second, axis=0)),
    )


def probit_link(length: float, noise: float = 1.0, flip: float = 0.0) -> Callable[[Floats], Floats]:
    """The link of a probit teacher, g(z) = flip + (1 − 2 flip) Φ(length · z/noise); with flip = 0 that of the model.

    Args:
        length: |w|.
        noise: Standard deviation of the noise on the teacher's field.
        flip: Probability that a label is flipped after the noise.
    """
    return lambda z: np.exp(log_label(length * z / noise, flip))


def normal_rule() -> tuple[Floats, Floats]:
    """Nodes and weights of ∫ N(z; 0, 1) f(z) dz, for f smooth except at 0; each (n,)."""
    half = 0.5 * np.diff(EDGES)[:, None]
    positive = (EDGES[:-1, None] + half * (1.0 + LEGENDRE_NODES)).ravel()
    weights = (half * LEGENDRE_WEIGHTS).ravel() * np.exp(-0.5 * positive**2) / np.sqrt(2.0 * np.pi)
    return np.concatenate([-positive[::-1], positive]), np.concatenate([weights[::-1], weights])
