"""Learners with a linear field w·x: the methods and the checks of arguments that they share."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpy.typing import ArrayLike

from adfpp.papers.baselines.base import Estimate, Learner, refuse_options


class HasWeights(Protocol):
    """Arrays that include a vector of weights."""

    @property
    def weights(self) -> jax.Array:
        """``(N,)`` the weights."""
        ...


WithWeights = TypeVar("WithWeights", bound=HasWeights)


class Weights(NamedTuple):
    """Arrays of a learner that keeps only its weights.

    Attributes:
        weights: ``(N,)`` the weights.
    """

    weights: jax.Array


class LinearLearner(Learner[WithWeights]):
    """A learner that predicts by the field w·x. Only the direction of w counts, unless ``estimate`` is overridden."""

    def output(self, arrays: WithWeights, row: jax.Array) -> jax.Array:
        """``()`` the field w·x."""
        return arrays.weights @ row

    def estimate(self, arrays: WithWeights) -> Estimate:
        """The weights, as a direction."""
        return Estimate(arrays.weights, direction=True)

    def row_shape(self, arrays: WithWeights) -> tuple[int, ...]:
        """A row has as many numbers as there are weights."""
        return arrays.weights.shape


def initial_weights(
    weights: ArrayLike | None, shape: tuple[int, ...], dtype: np.dtype, default: Callable[[], jax.Array]
) -> jax.Array:
    """The ``(N,)`` initial weights of a linear field.

    Args:
        weights: The argument of ``init``, or None.
        shape: Shape of one row of x.
        dtype: Data type of the weights.
        default: Makes the weights if there is no argument.
    """
    if len(shape) != 1:
        raise ValueError(f"x has rows of shape {shape}, but a linear field needs one axis of features: give x (n, N).")
    initial = default() if weights is None else jnp.asarray(weights)
    if initial.shape != shape:
        raise ValueError(
            f"weights have shape {initial.shape} and the rows of x have shape {shape}: give one weight for each number "
            "of a row."
        )
    return initial.astype(dtype)


def zero_weights(
    shape: tuple[int, ...], dtype: np.dtype, weights: ArrayLike | None = None, **options: Any
) -> jax.Array:
    """The initial weights ``(N,)``: ``weights``, or zeros."""
    refuse_options(options, "weights")
    return initial_weights(weights, shape, dtype, lambda: jnp.zeros(shape))


def random_direction(
    rng_key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, weights: ArrayLike | None = None, **options: Any
) -> jax.Array:
    """``weights`` scaled to length 1, or a random direction, ``(N,)``."""
    refuse_options(options, "weights")
    return unit(initial_weights(weights, shape, dtype, lambda: jax.random.normal(rng_key, shape)))


def unit(weights: jax.Array) -> jax.Array:
    """Weights scaled to length 1; raises for weights that have no direction."""
    length = jnp.linalg.norm(weights)
    if not isinstance(length, Tracer) and not 0 < length < np.inf:
        raise ValueError(f"weights of length {length} have no direction: give finite weights that are not all 0.")
    return weights / length


def wrong(field: jax.Array, sign: jax.Array) -> jax.Array:
    """1 if the sign of the field is not the label, or if the field is exactly 0; else 0."""
    return (field * sign <= 0).astype(field.dtype)
