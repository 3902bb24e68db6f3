"""Perceptron rules without a rate to choose: natural gradient, the variational optimum, and the scalar BOnA.

Labels are in {0, 1}, and σ = ±1 in the equations.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats.norm import logcdf

from adfpp.papers.baselines.base import Estimate, Learner, direction, positive, start_weights
from adfpp.papers.baselines.perceptron import zero_weights

_STEP = 0.35
_NODES = _STEP * np.arange(36)  # of the trapezoidal rule on one side of an even function
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


class Gradient(NamedTuple):
    """What the natural gradient keeps.

    Attributes:
        weights: ``(N,)`` θ.
        inputs: ``(m, N)`` inputs that the Fisher matrix is an average over, or None.
    """

    weights: jax.Array
    inputs: jax.Array | None


class Taught(NamedTuple):
    """What the variational optimum keeps.

    Attributes:
        weights: ``(N,)``.
        teacher: ``(N,)`` which gives the cosine ρ away.
    """

    weights: jax.Array
    teacher: jax.Array


class Spherical(NamedTuple):
    """A spherical Gaussian belief.

    Attributes:
        weights: ``(N,)`` its mean.
        width: ``()`` ζ, the variance of each weight.
    """

    weights: jax.Array
    width: jax.Array


@dataclass(frozen=True)
class NaturalGradient(Learner):
    """θ' = θ + γ J⁻¹(θ) ∂ ln P(y|θ), γ = 1/(t + delay): Opper, A Bayesian approach to online learning, (4.4).

    The model is the probit (9.1), P(σ|θ, x) = Φ(σ θ·x/noise), with the Fisher matrix
    J(θ) = E_x[φ(u)²/(Φ(u)Φ(−u)) xxᵀ]/noise², u = θ·x/noise. Inputs are standard normal, or distributed as the sample
    ``inputs``, ``(m, N)``, that ``init`` may be given. The loss is −ln P of the label. ``init`` also takes ``weights``,
    zeros otherwise.

    With γ = 1/t the error tends to the Cramér-Rao bound, tE[εεᵀ] → J⁻¹, once θ is near the truth; the first steps are
    as long as √N and may not come back, since far out J is small. ``delay`` shortens them.

    Args:
        noise: σ0 > 0.
        delay: Rows that the rate starts late by, ≥ 0.
    """

    noise: float = 1.0
    delay: float = 0.0

    def __post_init__(self) -> None:
        positive(noise=self.noise)
        if not self.delay >= 0:
            raise ValueError(f"delay must not be below 0; it is {self.delay}.")

    def begin(
        self, rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, inputs: Any = None, **given: Any
    ) -> Gradient:
        """``weights``, or zeros; and ``inputs``."""
        weights = zero_weights(shape, dtype, **given)
        if inputs is not None and (np.ndim(inputs) != 2 or np.shape(inputs)[1:] != shape):
            raise ValueError(
                f"inputs have shape {np.shape(inputs)}; they must be (m, {shape[0]}), rows like those of x."
            )
        return Gradient(weights, None if inputs is None else jnp.asarray(inputs, dtype))

    def output(self, kept: Gradient, row: jax.Array) -> jax.Array:
        """``()`` the field."""
        return kept.weights @ row

    def step(self, kept: Gradient, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[Gradient, jax.Array]:
        """Equation (4.4)."""
        u = target * (kept.weights @ row) / self.noise
        score = target * _hazard(u) / self.noise * row
        move = self._natural(kept, score)
        return kept._replace(weights=kept.weights + move / (count + self.delay)), -logcdf(u)

    def _natural(self, kept: Gradient, score: jax.Array) -> jax.Array:
        """J⁻¹ times a score, ``(N,)``."""
        if kept.inputs is not None:
            weight = _information(kept.inputs @ kept.weights / self.noise) / self.noise**2
            return jnp.linalg.solve((kept.inputs * weight[:, None]).T @ kept.inputs / len(kept.inputs), score)
        # with normal inputs J is a multiple of the identity across θ and another one along it
        length = jnp.linalg.norm(kept.weights)
        ratio = length / self.noise
        # as wide as the product of the density of the field and what a label tells of it
        nodes = jnp.asarray(_NODES, score.dtype) / jnp.sqrt(1.0 + ratio**2)
        chances = 2.0 * nodes[1] * jnp.exp(-0.5 * nodes**2 - _LOG_SQRT_2PI) * jnp.where(nodes > 0, 1.0, 0.5)
        weight = chances * _information(nodes * ratio) / self.noise**2
        unit = kept.weights / jnp.where(length > 0, length, 1.0)
        along = unit * (unit @ score)
        return (score - along) / jnp.sum(weight) + along / jnp.sum(weight * nodes**2)

    def estimate(self, kept: Gradient) -> Estimate:
        """θ."""
        return Estimate(kept.weights)

    def expected(self, kept: Gradient) -> tuple[int, ...]:
        """As many numbers as weights."""
        return kept.weights.shape


@dataclass(frozen=True)
class VariationalOptimum(Learner):
    """The Hebbian rule of the largest gain in ρ, the cosine to the teacher, which it is told: an error of 0.88/α.

    w' = w + (1/N) Ŵ σ ξ with Ŵ = |w|√r λ(σh/√r), h = w·ξ/|w|, r = 1/ρ² − 1, λ = φ/Φ: equations (1) to (3) of de
    Oliveira and Alamino (2007), after Kinouchi and Caticha (1992), the mean of (2) over the teacher's field worked out
    for normal inputs. Where ρ ≤ 0, at the zero vector first of all, there is no best step (the longer the better) and
    w' is σξ. ``init`` must be given the ``teacher``, ``(N,)``, of which the direction counts. The loss is 1 for a wrong
    label.
    """

    def begin(
        self, rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, teacher: Any = None, **given: Any
    ) -> Taught:
        """Zeros, and the teacher."""
        if teacher is None:
            raise ValueError(
                "VariationalOptimum is told its cosine to the teacher: give init teacher=, the true weights."
            )
        teacher = direction(start_weights(teacher, shape, dtype, lambda: jnp.zeros(shape)))
        return Taught(zero_weights(shape, dtype, **given), teacher)

    def output(self, kept: Taught, row: jax.Array) -> jax.Array:
        """``()`` the field."""
        return kept.weights @ row

    def step(self, kept: Taught, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[Taught, jax.Array]:
        """Equations (1) and (3)."""
        field = kept.weights @ row
        length = jnp.linalg.norm(kept.weights)
        scale = jnp.where(length > 0, length, 1.0)
        cosine = kept.weights @ kept.teacher / scale
        known = cosine > 0
        safe = jnp.where(known, cosine, 1.0)
        # the sine of the angle from the part across the teacher: 1 − ρ² would lose the digits
        across = jnp.linalg.norm(kept.weights / scale - cosine * kept.teacher)
        tangent = jnp.where(known, across / safe, 1.0)
        tangent = jnp.maximum(tangent, jnp.finfo(row.dtype).tiny)
        wanted = scale * tangent * _hazard(target * field / (scale * tangent)) / row.size
        weights = jnp.where(known, kept.weights + wanted * target * row, target * row)
        return kept._replace(weights=weights), (field * target <= 0).astype(row.dtype)

    def estimate(self, kept: Taught) -> Estimate:
        """A direction."""
        return Estimate(kept.weights, direction=True)

    def expected(self, kept: Taught) -> tuple[int, ...]:
        """As many numbers as weights."""
        return kept.weights.shape


@dataclass(frozen=True)
class ScalarBOnA(Learner):
    """Bayesian online algorithm with a spherical Gaussian, (10) and (11) of de Oliveira and Alamino (2007).

    With τ = σ ω·ξ/√N and F = exp(−τ²/2ζ)/erfc(−τ/√(2ζ)):

    - ω' = ω + σ ξ √(2ζ/πN) F
    - ζ' = ζ − (ζF/N)(τ√(2/πζ) + 2F/π)

    At finite β the likelihood is their (8) and (9), whose mean over the belief is
    Z = Φ(τ/√ζ) + B, B = exp(βτ + β²ζ/2) Φ(−(τ + βζ)/√ζ); then g = ∂ ln Z/∂τ = βB/Z, and
    ∂² ln Z/∂τ² = β(βB − φ(τ/√ζ)/√ζ)/Z − g². The loss is −ln Z. ``init`` takes ``weights``, zeros otherwise.

    Args:
        beta: Inverse temperature; ∞ is the noise-free step.
        width: ζ of the prior.
        mean_length: Take |ξ|² = N, as the letter does. If False each row's own length counts, as in ``ADF``.
    """

    beta: float = math.inf
    width: float = 1.0
    mean_length: bool = True

    def __post_init__(self) -> None:
        positive(beta=self.beta, width=self.width)

    def begin(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, **given: Any) -> Spherical:
        """``weights``, or zeros, and the prior's width."""
        return Spherical(zero_weights(shape, dtype, **given), jnp.asarray(self.width, dtype))

    def output(self, kept: Spherical, row: jax.Array) -> jax.Array:
        """``()`` the field ω·ξ/√N."""
        return kept.weights @ row / math.sqrt(row.size)

    def step(self, kept: Spherical, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[Spherical, jax.Array]:
        """Equations (10) and (11)."""
        size = row.size
        length = 1.0 if self.mean_length else row @ row / size
        variance = kept.width * length
        tau = target * (kept.weights @ row) / math.sqrt(size)
        log_z, slope, bend = _step(tau, variance) if math.isinf(self.beta) else _rosenblatt(tau, variance, self.beta)
        weights = kept.weights + target * row / math.sqrt(size) * kept.width * slope
        return Spherical(weights, kept.width + kept.width**2 * length / size * bend), -log_z

    def estimate(self, kept: Spherical) -> Estimate:
        """The belief."""
        return Estimate(kept.weights, jnp.sqrt(kept.width))

    def expected(self, kept: Spherical) -> tuple[int, ...]:
        """As many numbers as weights."""
        return kept.weights.shape


def _step(tau: jax.Array, zeta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The step's ln Z and its first two derivatives in τ: Z = erfc(−τ/√(2ζ))/2."""
    log_z = logcdf(tau / jnp.sqrt(zeta))
    ratio = jnp.exp(-(tau**2) / (2.0 * zeta) - math.log(2.0) - log_z)  # F
    slope = math.sqrt(2.0 / math.pi) * ratio / jnp.sqrt(zeta)
    bend = -ratio / zeta * (tau * math.sqrt(2.0 / math.pi) / jnp.sqrt(zeta) + 2.0 / math.pi * ratio)
    return log_z, slope, bend


def _rosenblatt(tau: jax.Array, zeta: jax.Array, beta: float) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The same at finite β."""
    sd = jnp.sqrt(zeta)
    log_wrong = beta * tau + 0.5 * beta**2 * zeta + logcdf(-(tau + beta * zeta) / sd)  # ln B
    log_z = jnp.logaddexp(logcdf(tau / sd), log_wrong)
    share = jnp.exp(log_wrong - log_z)
    edge = jnp.exp(-0.5 * (tau / sd) ** 2 - _LOG_SQRT_2PI - log_z) / sd
    return log_z, beta * share, beta * (beta * share * (1.0 - share) - edge)


def _hazard(u: jax.Array) -> jax.Array:
    """φ(u)/Φ(u)."""
    return jnp.exp(-0.5 * u**2 - _LOG_SQRT_2PI - logcdf(u))


def _information(u: jax.Array) -> jax.Array:
    """φ(u)²/(Φ(u)Φ(−u)), what a probit label tells of its field."""
    return jnp.exp(-(u**2) - 2.0 * _LOG_SQRT_2PI - logcdf(u) - logcdf(-u))
