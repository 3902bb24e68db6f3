"""Models, teachers and rows that several experiments share.

All inputs are standard normal, so a field w·x/√N has the teacher's variance |w|²/N, and the cosine ρ between teacher
and student gives the probability that they disagree: arccos(ρ)/π.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import adfpp
from adfpp.distributions import Probit
from adfpp.papers.baselines import Learner, State

__all__ = [
    "Rows",
    "Student",
    "adf_student",
    "clean_rows",
    "disagreement",
    "ep_mean",
    "flip_labels",
    "flip_perceptron",
    "joint_student",
    "learner_student",
    "noisy_rows",
    "normal_weights",
    "perceptron",
    "weights_of",
]

Array = jax.Array | np.ndarray
Rows = tuple[jax.Array, jax.Array]  # inputs (n, N) and labels (n,)
# The state before any row, and update(state, rows). It is Any because learners have states of different types.
Student = tuple[Any, Callable[[Any, Any], Any]]
Name = TypeVar("Name")


def normal_weights(size: int, name: str = "w", mean: float = 0.0, sd: float = 1.0) -> jax.Array:
    """``(size,)`` weights N(mean, sd²): the latent of a NumPyro model."""
    return cast(jax.Array, numpyro.sample(name, dist.Normal(mean, sd).expand([size]).to_event(1)))


def perceptron(noise: float = 0.0, flip: float = 0.0) -> Callable[..., None]:
    """The model of a perceptron with weights N(0, 1) and field w·x: P(y = 1) = flip + (1 − 2 flip) Φ(w·x/noise)."""

    def model(x: jax.Array, y: Array | None = None) -> None:
        w = normal_weights(x.shape[-1])
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", Probit(x @ w, noise, flip), obs=y)

    return model


def flip_perceptron(x: jax.Array, flip: float | jax.Array, y: Array | None = None) -> None:
    """The noise-free perceptron with the probability of a flipped label as an argument: flip + (1 − 2 flip) Θ(w·x)."""
    w = normal_weights(x.shape[-1])
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x @ w, 0.0, flip), obs=y)


def clean_rows(teacher: jax.Array, rng_key: jax.Array, count: int) -> Rows:
    """Standard normal inputs ``(count, N)`` and the labels ``(count,)`` of a teacher, without noise.

    The inputs are drawn in single precision, which takes half the time, and returned in the teacher's precision.
    """
    x = jax.random.normal(rng_key, (count, teacher.size), jnp.float32).astype(teacher.dtype)
    return x, (x @ teacher > 0).astype(x.dtype)


def noisy_rows(
    teacher: jax.Array, rng_key: jax.Array, count: int, noise: float | jax.Array = 0.0, flip: float | jax.Array = 0.0
) -> Rows:
    """Standard normal inputs and their labels.

    Args:
        teacher: ``(N,)`` weights.
        rng_key: Key.
        count: Number of rows.
        noise: Standard deviation of the noise on the field w·x.
        flip: Probability that a label is flipped after the noise.

    Returns:
        x ``(count, N)`` and y ``(count,)`` in {0, 1}.
    """
    key_x, key_noise, key_flip = jax.random.split(rng_key, 3)
    x = jax.random.normal(key_x, (count, teacher.size))
    field = x @ teacher
    # Noise that is known to be 0 is not drawn, because random numbers take most of the time to compile.
    if not (isinstance(noise, float) and noise == 0):
        field += noise * jax.random.normal(key_noise, (count,))
    return x, flip_labels(field > 0, key_flip, flip).astype(x.dtype)


def flip_labels(labels: jax.Array, rng_key: jax.Array, flip: float | jax.Array) -> jax.Array:
    """Labels, each flipped with a probability.

    Args:
        labels: ``(n,)`` booleans.
        rng_key: Key.
        flip: The probability; if it is the Python number 0 nothing is drawn.
    """
    if isinstance(flip, float) and flip == 0:
        return labels
    return labels ^ jax.random.bernoulli(rng_key, flip, labels.shape)


def disagreement(weights: jax.Array, teacher: jax.Array) -> jax.Array:
    """Probability that two perceptrons differ on a standard normal input: arccos(ρ)/π, equation (9.3) of Opper.

    Args:
        weights: ``(…, N)``; zeros are wrong half of the time.
        teacher: ``(N,)`` the teacher's weights.
    """
    unit = teacher / jnp.linalg.norm(teacher)
    along = weights @ unit
    # The part across the teacher keeps the digits of small angles, which 1 − ρ² would lose.
    across = jnp.linalg.norm(weights - along[..., None] * unit, axis=-1)
    return jnp.where((along == 0) & (across == 0), 0.5, jnp.arctan2(across, along) / math.pi)


def adf_student(model: Callable[..., None], x: Array, y: Array, **options: Any) -> Student:
    """An ADF that can be traced: its state before any row, and ``update(state, (x, y))``.

    Args:
        model: A NumPyro model.
        x: Rows from which shapes are read.
        y: Their labels.
        **options: Options of ``adfpp.ADF``.
    """
    adf = adfpp.ADF(model, **options)
    state = adf.init(jax.random.key(0), x, y=y)
    return state, lambda state, rows: adf.update(state, rows[0], y=rows[1])[0]


def learner_student(learner: Learner[Any], size: int, **options: Any) -> Student:
    """A baseline in the form of `adf_student`.

    Args:
        learner: The baseline.
        size: Number of weights.
        **options: Options of its ``init``.
    """
    state = learner.init(jax.random.key(0), jnp.zeros((1, size)), **options)
    return state, lambda state, rows: learner.update(state, rows[0], y=rows[1])[0]


def joint_student(students: Mapping[Name, Student]) -> Student:
    """Several students of one stream as one: a dictionary of their states, and the update of all of them.

    JAX sorts the names, so states must be looked up by name and not by position.
    """
    states = {name: state for name, (state, _) in students.items()}
    return states, lambda states, rows: {name: update(states[name], rows) for name, (_, update) in students.items()}


def weights_of(state: Any) -> jax.Array:
    """The weights in the state of a baseline, or the mean in the state of an ADF."""
    return state.arrays.weights if isinstance(state, State) else state.belief.mean


def ep_mean(ep: adfpp.EP, x: Array, y: Array) -> tuple[jax.Array, bool]:
    """The posterior mean ``(N,)`` of EP, for a model with one latent, and whether EP has converged."""
    result = ep.run(jax.random.key(0), x, y=y, progress_bar=False)
    ((_, mean),) = result.posterior.mean().items()
    return mean, bool(result.info.converged)
