"""Perceptron rules with a learning rate: Barkai, Seung and Sompolinsky, On-line learning of dichotomies (1995).

A row is learned when the student's label is wrong. Times are in rows a weight, α = n/N, and a rate η moves the
weights by η/N, as in the paper; fields are w·x.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from adfpp.papers.baselines.base import Estimate, Learner, direction, positive, start_weights


class Schedule(ABC):
    """How the learning rate falls with time."""

    @abstractmethod
    def __call__(self, time: Any) -> Any:
        """The rate η at a time > 0, any shape."""


@dataclass(frozen=True)
class Constant(Schedule):
    """η = rate. The normalised perceptron then ends at an error of rate/√(2π³), equation (5)."""

    rate: float

    def __post_init__(self) -> None:
        positive(rate=self.rate)

    def __call__(self, time: Any) -> Any:
        """The rate η, whatever the time."""
        return jnp.full(jnp.shape(time), self.rate, jnp.result_type(time, 0.0))


@dataclass(frozen=True)
class Power(Schedule):
    """η = rate·time^(−exponent), and no more than ``cap``."""

    rate: float
    exponent: float = 1.0
    cap: float = math.inf

    def __post_init__(self) -> None:
        positive(rate=self.rate, cap=self.cap)

    def __call__(self, time: Any) -> Any:
        """The rate η at a time > 0, any shape."""
        return jnp.minimum(self.rate * time**-self.exponent, self.cap)


@dataclass(frozen=True)
class Annealed(Schedule):
    """η = eta0·√(2π)/α, and no more than ``cap``: at eta0 = 2 the fastest, to an error of 1.27/α, equation (6)."""

    eta0: float = 2.0
    cap: float = math.inf

    def __post_init__(self) -> None:
        positive(eta0=self.eta0, cap=self.cap)

    def __call__(self, time: Any) -> Any:
        """The rate η at a time > 0, any shape."""
        return jnp.minimum(self.eta0 * math.sqrt(2.0 * math.pi) / time, self.cap)


@dataclass(frozen=True)
class ShiftedAnnealed(Schedule):
    """η = eta0·√(π/2)·exp(overlap²/2)/α, and no more than ``cap``: for the shifted rule, above equation (16).

    Args:
        overlap: q0 of the paper, the projection of the inputs' centre onto the teacher.
        eta0: At 2 the fastest.
        cap: The early rates of the bare law are so large that the rule, stable only near the teacher, wanders off: 0.3
            is enough for the paper's Figure 2.
    """

    overlap: float
    eta0: float = 2.0
    cap: float = 0.3

    def __post_init__(self) -> None:
        positive(eta0=self.eta0, cap=self.cap)

    def __call__(self, time: Any) -> Any:
        """The rate η at a time > 0, any shape."""
        return jnp.minimum(self.eta0 * math.sqrt(math.pi / 2.0) * math.exp(self.overlap**2 / 2.0) / time, self.cap)


class Weights(NamedTuple):
    """What a rule without memory keeps.

    Attributes:
        weights: ``(N,)``.
    """

    weights: jax.Array


class ShiftedWeights(NamedTuple):
    """What the shifted rule keeps.

    Attributes:
        weights: ``(N,)``.
        labelled: ``(N,)`` sum of σS over the rows.
        balance: ``()`` sum of σ.
    """

    weights: jax.Array
    labelled: jax.Array
    balance: jax.Array


@dataclass(frozen=True)
class Perceptron(Learner):
    """W' = W + (η/N) σ S on a wrong label, then |W| = 1: equation (2). The loss is 1 for a wrong label.

    ``init`` takes ``weights``, ``(N,)``, of which the direction counts; it draws one otherwise.

    Args:
        schedule: The learning rate η as a function of α = n/N.
    """

    schedule: Schedule = Annealed()

    def begin(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, **given: Any) -> Weights:
        """A direction: ``weights``, or one at random."""
        return Weights(_direction(rng_key, shape, dtype, **given))

    def output(self, kept: Weights, row: jax.Array) -> jax.Array:
        """``()`` the field."""
        return kept.weights @ row

    def step(self, kept: Weights, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[Weights, jax.Array]:
        """Equation (2)."""
        wrong = _wrong(kept.weights @ row, target)
        rate = self.schedule(count / row.size) / row.size
        return Weights(_unit(kept.weights + rate * wrong * target * row)), wrong

    def estimate(self, kept: Weights) -> Estimate:
        """A direction."""
        return Estimate(kept.weights, direction=True)

    def expected(self, kept: Weights) -> tuple[int, ...]:
        """As many numbers as weights."""
        return kept.weights.shape


@dataclass(frozen=True)
class ShiftedPerceptron(Learner):
    """W' = W + (η/N) σ (S − T) on a wrong label, then |W| = 1: equations (10) to (12), for labels with output noise.

    T = ⟨σS⟩/⟨σ⟩ by running averages that include the row. It is undefined while as many labels of each kind were seen,
    and such a row moves the averages alone; labels that are balanced for ever cannot be learned this way. The rule
    converges from near the teacher only: start it from something better than a random direction, for inputs
    centred at U with mostly negative labels from ``weights=-U``. The loss is 1 for a wrong label.

    Args:
        schedule: The learning rate η as a function of α = n/N.
    """

    schedule: Schedule

    def begin(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, **given: Any) -> ShiftedWeights:
        """A direction: ``weights``, or one at random; and no averages."""
        weights = _direction(rng_key, shape, dtype, **given)
        return ShiftedWeights(weights, jnp.zeros_like(weights), jnp.zeros((), dtype))

    def output(self, kept: ShiftedWeights, row: jax.Array) -> jax.Array:
        """``()`` the field."""
        return kept.weights @ row

    def step(
        self, kept: ShiftedWeights, row: jax.Array, target: jax.Array, count: jax.Array
    ) -> tuple[ShiftedWeights, jax.Array]:
        """Equations (10) and (12)."""
        wrong = _wrong(kept.weights @ row, target)
        labelled, balance = kept.labelled + target * row, kept.balance + target
        defined = balance != 0
        shift = labelled / jnp.where(defined, balance, 1.0)
        rate = self.schedule(count / row.size) / row.size * wrong * defined
        weights = _unit(kept.weights + rate * target * (row - shift))
        return ShiftedWeights(weights, labelled, balance), wrong

    def estimate(self, kept: ShiftedWeights) -> Estimate:
        """A direction."""
        return Estimate(kept.weights, direction=True)

    def expected(self, kept: ShiftedWeights) -> tuple[int, ...]:
        """As many numbers as weights."""
        return kept.weights.shape


@dataclass(frozen=True)
class Rosenblatt(Learner):
    """w' = w + σ x on a wrong label, from w = 0 and never normalised: an error of 0.28/α^{1/3}.

    Table I of de Oliveira and Alamino (2007). Its rate, in terms of the direction, falls by itself as |w| grows. A
    field of exactly 0 is wrong. The loss is 1 for a wrong label. ``init`` takes ``weights``.
    """

    def begin(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, **given: Any) -> Weights:
        """``weights``, or zeros."""
        return Weights(zero_weights(shape, dtype, **given))

    def output(self, kept: Weights, row: jax.Array) -> jax.Array:
        """``()`` the field."""
        return kept.weights @ row

    def step(self, kept: Weights, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[Weights, jax.Array]:
        """The row with its sign, if it was wrong."""
        wrong = _wrong(kept.weights @ row, target)
        return Weights(kept.weights + wrong * target * row), wrong

    def estimate(self, kept: Weights) -> Estimate:
        """A direction."""
        return Estimate(kept.weights, direction=True)

    def expected(self, kept: Weights) -> tuple[int, ...]:
        """As many numbers as weights."""
        return kept.weights.shape


@dataclass(frozen=True)
class ThresholdedSmooth(Learner):
    """W' = W + η σ ∇f(S; W) on a wrong label, the student's label being sgn f: equation (20), with autodiff.

    ``init`` must be given ``weights``, a pytree of arrays as ``f`` takes it. The loss is 1 for a wrong label.

    Args:
        f: ``f(row, weights)``, a smooth function with one number as value; its sign is the label.
        schedule: The learning rate η as a function of n, the number of the row: there is no N here.
    """

    f: Callable[[Any, Any], Any]
    schedule: Schedule

    def begin(
        self, rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, weights: Any = None, **given: Any
    ) -> Weights:
        """The weights given."""
        _refuse(given)
        if weights is None:
            raise ValueError("ThresholdedSmooth does not know the weights of f: give init weights=, to start from.")
        weights = jax.tree.map(lambda a: jnp.asarray(a, dtype), weights)
        value = jax.eval_shape(self.f, jax.ShapeDtypeStruct(shape, dtype), weights)
        if getattr(value, "shape", None) != ():
            raise ValueError(f"f(row, weights) must be one number, for a row of shape {shape}; it is {value}.")
        return Weights(weights)

    def output(self, kept: Weights, row: jax.Array) -> jax.Array:
        """``()`` the value of f."""
        return self.f(row, kept.weights)

    def step(self, kept: Weights, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[Weights, jax.Array]:
        """Equation (20)."""
        value, slope = jax.value_and_grad(self.f, argnums=1)(row, kept.weights)
        wrong = _wrong(value, target)
        move = self.schedule(count) * wrong * target
        return Weights(jax.tree.map(lambda a, g: a + move * g, kept.weights, slope)), wrong

    def estimate(self, kept: Weights) -> Estimate:
        """The weights of f."""
        return Estimate(kept.weights)


def zero_weights(shape: tuple[int, ...], dtype: Any, weights: Any = None, **given: Any) -> jax.Array:
    """``weights``, or zeros, ``(N,)``."""
    _refuse(given)
    return start_weights(weights, shape, dtype, lambda: jnp.zeros(shape))


def _direction(rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, weights: Any = None, **given: Any) -> jax.Array:
    _refuse(given)
    return direction(start_weights(weights, shape, dtype, lambda: jax.random.normal(rng_key, shape)))


def _refuse(given: dict[str, Any]) -> None:
    if given:
        raise TypeError(f"init takes weights= here, and not {', '.join(given)}.")


def _unit(weights: jax.Array) -> jax.Array:
    return weights / jnp.linalg.norm(weights)


def _wrong(field: jax.Array, sign: jax.Array) -> jax.Array:
    """1 for a label that the field gets wrong, as one of 0 does."""
    return (field * sign <= 0).astype(field.dtype)
