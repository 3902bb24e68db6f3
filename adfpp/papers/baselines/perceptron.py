"""Perceptron rules with a learning rate, from Barkai, Seung and Sompolinsky, On-line learning of dichotomies (1995).

A row is learned if the student's label for it is wrong. Times are in rows per weight, α = n/N, and a rate η moves the
weights by η/N, as in the paper; fields are w·x.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.papers.baselines.base import Estimate, Learner, positive, refuse_options
from adfpp.papers.baselines.linear import LinearLearner, Weights, random_direction, unit, wrong, zero_weights

Time = jax.Array | float


class Schedule(ABC):
    """A learning rate as a function of time."""

    @abstractmethod
    def __call__(self, time: Time) -> jax.Array:
        """The rate η at a time > 0, any shape."""


@dataclass(frozen=True)
class Constant(Schedule):
    """η = rate. The normalised perceptron then ends at an error of rate/√(2π³), equation (5)."""

    rate: float

    def __post_init__(self) -> None:
        positive(rate=self.rate)

    def __call__(self, time: Time) -> jax.Array:
        """The rate η, which does not depend on the time."""
        return jnp.full(jnp.shape(time), self.rate, jnp.result_type(time, 0.0))


@dataclass(frozen=True)
class Power(Schedule):
    """η = rate·time^(−exponent), but at most ``cap``."""

    rate: float
    exponent: float = 1.0
    cap: float = math.inf

    def __post_init__(self) -> None:
        positive(rate=self.rate, cap=self.cap)

    def __call__(self, time: Time) -> jax.Array:
        """The rate η at a time > 0, any shape."""
        return jnp.minimum(self.rate * time**-self.exponent, self.cap)


@dataclass(frozen=True)
class Annealed(Schedule):
    """η = eta0·√(2π)/α, but at most ``cap``. The error falls fastest at eta0 = 2, as 1.27/α: equation (6)."""

    eta0: float = 2.0
    cap: float = math.inf

    def __post_init__(self) -> None:
        positive(eta0=self.eta0, cap=self.cap)

    def __call__(self, time: Time) -> jax.Array:
        """The rate η at a time > 0, any shape."""
        return jnp.minimum(self.eta0 * math.sqrt(2.0 * math.pi) / time, self.cap)


@dataclass(frozen=True)
class ShiftedAnnealed(Schedule):
    """η = eta0·√(π/2)·exp(overlap²/2)/α, but at most ``cap``: for the shifted rule, above equation (16).

    Args:
        overlap: q0 of the paper, the projection of the inputs' centre onto the teacher.
        eta0: The error falls fastest at 2.
        cap: Largest rate. Without it the early rates are so large that the rule, which is stable near the teacher
            only, leaves the teacher. A cap of 0.3 is enough for the paper's Figure 2.
    """

    overlap: float
    eta0: float = 2.0
    cap: float = 0.3

    def __post_init__(self) -> None:
        positive(eta0=self.eta0, cap=self.cap)

    def __call__(self, time: Time) -> jax.Array:
        """The rate η at a time > 0, any shape."""
        return jnp.minimum(self.eta0 * math.sqrt(math.pi / 2.0) * math.exp(self.overlap**2 / 2.0) / time, self.cap)


class ShiftedWeights(NamedTuple):
    """Arrays of the shifted rule.

    Attributes:
        weights: ``(N,)`` the weights.
        labelled: ``(N,)`` the sum of σS over the rows.
        balance: ``()`` the sum of σ over the rows.
    """

    weights: jax.Array
    labelled: jax.Array
    balance: jax.Array


class SmoothWeights(NamedTuple):
    """Arrays of the rule for smooth functions.

    Attributes:
        weights: Pytree of arrays, the second argument of f.
    """

    weights: Any


@dataclass(frozen=True)
class Perceptron(LinearLearner[Weights]):
    """W' = W + (η/N) σ S on a wrong label, then |W| = 1: equation (2). The loss is 1 for a wrong label.

    ``init`` takes ``weights``, ``(N,)``, of which only the direction counts; without them it draws a direction.

    Args:
        schedule: The learning rate η as a function of α = n/N.
    """

    schedule: Schedule = Annealed()

    def initial(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, **options: Any) -> Weights:
        """The direction of ``weights``, or a random direction."""
        return Weights(random_direction(rng_key, shape, dtype, **options))

    def step(self, arrays: Weights, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[Weights, jax.Array]:
        """Learns one row by equation (2)."""
        mistake = wrong(arrays.weights @ row, target)
        rate = self.schedule(count / row.size) / row.size
        return Weights(unit(arrays.weights + rate * mistake * target * row)), mistake


@dataclass(frozen=True)
class ShiftedPerceptron(LinearLearner[ShiftedWeights]):
    """W' = W + (η/N) σ (S − T) on a wrong label, then |W| = 1: equations (10) to (12), for labels with output noise.

    T = ⟨σS⟩/⟨σ⟩ is computed by running averages that include the row. T is undefined if there have been equally many
    labels of each kind; a row at such a time changes the averages only. Labels that stay balanced cannot be learned
    this way. The rule converges from a start near the teacher only, so a random direction is a bad start. For inputs
    centred at U with mostly negative labels, start from ``weights=-U``. The loss is 1 for a wrong label.

    Args:
        schedule: The learning rate η as a function of α = n/N.
    """

    schedule: Schedule

    def initial(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, **options: Any) -> ShiftedWeights:
        """The direction of ``weights`` or a random direction, and sums of 0."""
        weights = random_direction(rng_key, shape, dtype, **options)
        return ShiftedWeights(weights, jnp.zeros_like(weights), jnp.zeros((), dtype))

    def step(
        self, arrays: ShiftedWeights, row: jax.Array, target: jax.Array, count: jax.Array
    ) -> tuple[ShiftedWeights, jax.Array]:
        """Learns one row by equations (10) and (12)."""
        mistake = wrong(arrays.weights @ row, target)
        labelled, balance = arrays.labelled + target * row, arrays.balance + target
        defined = balance != 0
        shift = labelled / jnp.where(defined, balance, 1.0)
        rate = self.schedule(count / row.size) / row.size * mistake * defined
        weights = unit(arrays.weights + rate * target * (row - shift))
        return ShiftedWeights(weights, labelled, balance), mistake


@dataclass(frozen=True)
class Rosenblatt(LinearLearner[Weights]):
    """w' = w + σ x on a wrong label, from w = 0 and without normalisation. The error falls as 0.28/α^{1/3}.

    Table I of de Oliveira and Alamino (2007). The rate at which the direction turns falls by itself, because |w| grows.
    A field of exactly 0 counts as a wrong label. The loss is 1 for a wrong label. ``init`` takes ``weights``.
    """

    def initial(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, **options: Any) -> Weights:
        """The arrays with ``weights``, or zeros."""
        return Weights(zero_weights(shape, dtype, **options))

    def step(self, arrays: Weights, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[Weights, jax.Array]:
        """Adds the row times the sign of its label, if the label was wrong."""
        mistake = wrong(arrays.weights @ row, target)
        return Weights(arrays.weights + mistake * target * row), mistake


@dataclass(frozen=True)
class ThresholdedSmooth(Learner[SmoothWeights]):
    """W' = W + η σ ∇f(S; W) on a wrong label, where the student's label is sgn f: equation (20), by autodiff.

    ``init`` needs ``weights``, a pytree of arrays as ``f`` takes it. The loss is 1 for a wrong label.

    Args:
        f: ``f(row, weights)``, a smooth function whose value is one number; the sign of that number is the label.
        schedule: The learning rate η as a function of n, the number of the row; this rule has no number of weights N.
    """

    f: Callable[[jax.Array, Any], jax.Array]
    schedule: Schedule

    def initial(
        self, rng_key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, weights: Any = None, **options: Any
    ) -> SmoothWeights:
        """The arrays with ``weights`` and the number type of the data."""
        refuse_options(options, "weights")
        if weights is None:
            raise ValueError(
                "ThresholdedSmooth cannot know what weights f has, and init got none: give init weights=, the initial "
                "weights."
            )
        weights = jax.tree.map(lambda a: jnp.asarray(a, dtype), weights)
        value = jax.eval_shape(self.f, jax.ShapeDtypeStruct(shape, dtype), weights)
        if getattr(value, "shape", None) != ():
            raise ValueError(f"f(row, weights) must be one number for a row of shape {shape}; it is {value}.")
        return SmoothWeights(weights)

    def output(self, arrays: SmoothWeights, row: jax.Array) -> jax.Array:
        """``()`` the value of f."""
        return self.f(row, arrays.weights)

    def step(
        self, arrays: SmoothWeights, row: jax.Array, target: jax.Array, count: jax.Array
    ) -> tuple[SmoothWeights, jax.Array]:
        """Learns one row by equation (20)."""
        value, slope = jax.value_and_grad(self.f, argnums=1)(row, arrays.weights)
        mistake = wrong(value, target)
        move = self.schedule(count) * mistake * target
        return SmoothWeights(jax.tree.map(lambda a, g: a + move * g, arrays.weights, slope)), mistake

    def estimate(self, arrays: SmoothWeights) -> Estimate:
        """The weights of f."""
        return Estimate(arrays.weights)
