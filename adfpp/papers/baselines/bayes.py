"""Perceptron rules without a free learning rate: natural gradient, the variational optimum, and the scalar BOnA.

Labels are in {0, 1}, and σ = ±1 in the equations.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats.norm import logcdf
from numpy.typing import ArrayLike

from adfpp.papers.baselines.base import Estimate, not_negative, positive
from adfpp.papers.baselines.linear import LinearLearner, initial_weights, unit, wrong, zero_weights

# Nodes of the trapezoidal rule on one side of an even function. It ends at 12 standard deviations, beyond which the
# weight is below rounding, and at this step its error is below 1e-9.
_STEP = 0.35
_NODES = _STEP * np.arange(36)
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


class Gradient(NamedTuple):
    """Arrays of the natural gradient.

    Attributes:
        weights: ``(N,)`` θ.
        inputs: ``(m, N)`` inputs over which the Fisher matrix is averaged, or None.
    """

    weights: jax.Array
    inputs: jax.Array | None


class WithTeacher(NamedTuple):
    """Arrays of the variational optimum.

    Attributes:
        weights: ``(N,)``.
        teacher: ``(N,)`` of length 1, from which the cosine ρ is computed.
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
class NaturalGradient(LinearLearner[Gradient]):
    """θ' = θ + γ J⁻¹(θ) ∂ ln P(y|θ), γ = 1/(t + delay): Opper, A Bayesian approach to online learning, (4.4).

    The model is the probit (9.1), P(σ|θ, x) = Φ(σ θ·x/noise), with the Fisher matrix
    J(θ) = E_x[φ(u)²/(Φ(u)Φ(−u)) xxᵀ]/noise², u = θ·x/noise. The inputs are taken to be standard normal, or, if
    ``init`` gets a sample ``inputs``, ``(m, N)``, to be distributed like it. The loss is −ln P of the label. ``init``
    also takes ``weights``, which are zeros otherwise.

    With γ = 1/t the error tends to the Cramér-Rao bound, tE[εεᵀ] → J⁻¹, once θ is near the truth. The first steps have
    a length of order √N. They can take θ so far away that it does not return, because J is small there. A positive
    ``delay`` shortens them.

    Args:
        noise: σ0 > 0.
        delay: Number of rows, ≥ 0, by which the rate is delayed.
    """

    noise: float = 1.0
    delay: float = 0.0

    def __post_init__(self) -> None:
        positive(noise=self.noise)
        not_negative(delay=self.delay)

    def initial(
        self,
        rng_key: jax.Array,
        shape: tuple[int, ...],
        dtype: np.dtype,
        inputs: ArrayLike | None = None,
        **options: Any,
    ) -> Gradient:
        """The arrays with ``weights`` or zeros, and with ``inputs``."""
        weights = zero_weights(shape, dtype, **options)
        if inputs is not None and (np.ndim(inputs) != 2 or np.shape(inputs)[1:] != shape):
            raise ValueError(
                f"inputs have shape {np.shape(inputs)}; they must be (m, {shape[0]}), rows like those of x."
            )
        return Gradient(weights, None if inputs is None else jnp.asarray(inputs, dtype))

    def step(self, arrays: Gradient, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[Gradient, jax.Array]:
        """Learns one row by equation (4.4)."""
        u = target * (arrays.weights @ row) / self.noise
        score = target * _hazard(u) / self.noise * row
        move = self._natural(arrays, score)
        return arrays._replace(weights=arrays.weights + move / (count + self.delay)), -logcdf(u)

    def _natural(self, arrays: Gradient, score: jax.Array) -> jax.Array:
        """J⁻¹ times a score, ``(N,)``."""
        if arrays.inputs is not None:
            weight = _information(arrays.inputs @ arrays.weights / self.noise) / self.noise**2
            return jnp.linalg.solve((arrays.inputs * weight[:, None]).T @ arrays.inputs / len(arrays.inputs), score)
        # With normal inputs J is a multiple of the identity across θ, and another multiple along θ.
        length = jnp.linalg.norm(arrays.weights)
        ratio = length / self.noise
        # The nodes are scaled to the width of the integrand: the density of the field times the information of a label.
        nodes = jnp.asarray(_NODES, score.dtype) / jnp.sqrt(1.0 + ratio**2)
        chances = 2.0 * nodes[1] * jnp.exp(-0.5 * nodes**2 - _LOG_SQRT_2PI) * jnp.where(nodes > 0, 1.0, 0.5)
        weight = chances * _information(nodes * ratio) / self.noise**2
        direction = arrays.weights / jnp.where(length > 0, length, 1.0)
        along = direction * (direction @ score)
        return (score - along) / jnp.sum(weight) + along / jnp.sum(weight * nodes**2)

    def estimate(self, arrays: Gradient) -> Estimate:
        """θ, whose length also counts."""
        return Estimate(arrays.weights)


@dataclass(frozen=True)
class VariationalOptimum(LinearLearner[WithTeacher]):
    """The Hebbian rule with the largest gain in ρ, the cosine to the teacher. Its error falls as 0.88/α.

    The rule computes ρ from the true weights, so it is a bound and not an algorithm for data.
    w' = w + (1/N) Ŵ σ ξ with Ŵ = |w|√r λ(σh/√r), h = w·ξ/|w|, r = 1/ρ² − 1, λ = φ/Φ: equations (1) to (3) of de
    Oliveira and Alamino (2007), after Kinouchi and Caticha (1992), with the mean of (2) over the teacher's field
    computed for normal inputs. Where ρ ≤ 0, which includes the zero vector, a longer step is always better, so there
    is no best step, and w' is σξ. ``init`` needs the ``teacher``, ``(N,)``, of which only the direction counts. The
    loss is 1 for a wrong label.
    """

    def initial(
        self,
        rng_key: jax.Array,
        shape: tuple[int, ...],
        dtype: np.dtype,
        teacher: ArrayLike | None = None,
        **options: Any,
    ) -> WithTeacher:
        """The arrays with ``weights`` or zeros, and with the direction of the teacher."""
        if teacher is None:
            raise ValueError(
                "VariationalOptimum computes its step from the cosine to the teacher, and init got no teacher: give "
                "init teacher=, the true weights."
            )
        direction = unit(initial_weights(teacher, shape, dtype, lambda: jnp.zeros(shape)))
        return WithTeacher(zero_weights(shape, dtype, **options), direction)

    def step(
        self, arrays: WithTeacher, row: jax.Array, target: jax.Array, count: jax.Array
    ) -> tuple[WithTeacher, jax.Array]:
        """Learns one row by equations (1) and (3)."""
        field = arrays.weights @ row
        length = jnp.linalg.norm(arrays.weights)
        scale = jnp.where(length > 0, length, 1.0)
        cosine = arrays.weights @ arrays.teacher / scale
        known = cosine > 0
        safe = jnp.where(known, cosine, 1.0)
        # The sine of the angle is computed from the part across the teacher, because 1 − ρ² would lose its digits.
        across = jnp.linalg.norm(arrays.weights / scale - cosine * arrays.teacher)
        tangent = jnp.where(known, across / safe, 1.0)
        tangent = jnp.maximum(tangent, jnp.finfo(row.dtype).tiny)
        modulation = scale * tangent * _hazard(target * field / (scale * tangent)) / row.size
        weights = jnp.where(known, arrays.weights + modulation * target * row, target * row)
        return arrays._replace(weights=weights), wrong(field, target)


@dataclass(frozen=True)
class ScalarBOnA(LinearLearner[Spherical]):
    """Bayesian online algorithm with a spherical Gaussian, (10) and (11) of de Oliveira and Alamino (2007).

    With τ = σ ω·ξ/√N and F = exp(−τ²/2ζ)/erfc(−τ/√(2ζ)):

    - ω' = ω + σ ξ √(2ζ/πN) F
    - ζ' = ζ − (ζF/N)(τ√(2/πζ) + 2F/π)

    At finite β the likelihood is their (8) and (9), whose mean over the belief is
    Z = Φ(τ/√ζ) + B, B = exp(βτ + β²ζ/2) Φ(−(τ + βζ)/√ζ); then g = ∂ ln Z/∂τ = βB/Z, and
    ∂² ln Z/∂τ² = β(βB − φ(τ/√ζ)/√ζ)/Z − g². The loss is −ln Z. ``init`` takes ``weights``, which are zeros otherwise.

    Args:
        beta: Inverse temperature; ∞ is the noise-free step.
        width: ζ of the prior.
        mean_length: Whether to take |ξ|² = N, as the letter does. If False, the length of each row is used, as in
            ``ADF``.
    """

    beta: float = math.inf
    width: float = 1.0
    mean_length: bool = True

    def __post_init__(self) -> None:
        positive(beta=self.beta, width=self.width)

    def initial(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, **options: Any) -> Spherical:
        """The belief with ``weights`` or zeros as mean, and the width of the prior."""
        return Spherical(zero_weights(shape, dtype, **options), jnp.asarray(self.width, dtype))

    def output(self, arrays: Spherical, row: jax.Array) -> jax.Array:
        """``()`` the field ω·ξ/√N."""
        return arrays.weights @ row / math.sqrt(row.size)

    def step(
        self, arrays: Spherical, row: jax.Array, target: jax.Array, count: jax.Array
    ) -> tuple[Spherical, jax.Array]:
        """Learns one row by equations (10) and (11)."""
        size = row.size
        length = 1.0 if self.mean_length else row @ row / size
        variance = arrays.width * length
        tau = target * (arrays.weights @ row) / math.sqrt(size)
        log_z, slope, bend = _step(tau, variance) if math.isinf(self.beta) else _rosenblatt(tau, variance, self.beta)
        weights = arrays.weights + target * row / math.sqrt(size) * arrays.width * slope
        return Spherical(weights, arrays.width + arrays.width**2 * length / size * bend), -log_z

    def estimate(self, arrays: Spherical) -> Estimate:
        """Mean and standard deviation of the belief."""
        return Estimate(arrays.weights, jnp.sqrt(arrays.width))


def _step(tau: jax.Array, zeta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Ln Z of the step and its first two derivatives in τ: Z = erfc(−τ/√(2ζ))/2."""
    log_z = logcdf(tau / jnp.sqrt(zeta))
    ratio = jnp.exp(-(tau**2) / (2.0 * zeta) - math.log(2.0) - log_z)  # F
    slope = math.sqrt(2.0 / math.pi) * ratio / jnp.sqrt(zeta)
    bend = -ratio / zeta * (tau * math.sqrt(2.0 / math.pi) / jnp.sqrt(zeta) + 2.0 / math.pi * ratio)
    return log_z, slope, bend


def _rosenblatt(tau: jax.Array, zeta: jax.Array, beta: float) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Ln Z at finite β and its first two derivatives in τ."""
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
    """φ(u)²/(Φ(u)Φ(−u)), the Fisher information that a probit label has about its field."""
    return jnp.exp(-(u**2) - 2.0 * _LOG_SQRT_2PI - logcdf(u) - logcdf(-u))
