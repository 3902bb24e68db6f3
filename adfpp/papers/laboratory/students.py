"""Models, teachers and rows that several papers share.

All inputs are standard normal, so a field w·x/√N has the teacher's variance |w|²/N, and the cosine between teacher and
student tells the probability that they disagree: arccos(ρ)/π.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import adfpp
from adfpp.distributions import Probit

__all__ = [
    "Start",
    "adf_of",
    "clean",
    "disagreement",
    "flipped",
    "perceptron",
    "rows_of",
    "settled",
    "together",
    "turned",
]

Start = tuple[Any, Callable[[Any, Any], Any]]  # a state before any row, and update(state, rows)


def perceptron(noise: float = 0.0, flip: float = 0.0) -> Callable[..., None]:
    """The model of a perceptron with weights N(0, 1) and field w·x: P(y = 1) = flip + (1 − 2 flip) Φ(w·x/noise)."""

    def model(x: Any, y: Any = None) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", Probit(x @ w, noise, flip), obs=y)

    return model


def flipped(x: Any, flip: Any, y: Any = None) -> None:
    """The noise-free perceptron that is told how likely each label is turned over: flip + (1 − 2 flip) Θ(w·x)."""
    w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x @ w, 0.0, flip), obs=y)


def clean(teacher: jax.Array, rng_key: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Standard normal inputs ``(count, N)`` and a teacher's labels ``(count,)``, without noise.

    The inputs are drawn with 24 bits, which takes half the time, and given in the teacher's precision.
    """
    x = jax.random.normal(rng_key, (count, teacher.size), jnp.float32).astype(teacher.dtype)
    return x, (x @ teacher > 0).astype(x.dtype)


def rows_of(
    teacher: jax.Array, rng_key: jax.Array, count: int, noise: float = 0.0, flip: float | jax.Array = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Standard normal inputs and their labels.

    Args:
        teacher: ``(N,)`` weights.
        rng_key: Key.
        count: Rows.
        noise: Standard deviation of the noise on the field w·x.
        flip: Probability that a label is turned over after the noise.

    Returns:
        x ``(count, N)`` and y ``(count,)`` in {0, 1}.
    """
    key_x, key_noise, key_flip = jax.random.split(rng_key, 3)
    x = jax.random.normal(key_x, (count, teacher.size))
    field = x @ teacher
    # what is known to be 0 is not drawn: random numbers are most of what there is to compile
    if not (isinstance(noise, float) and noise == 0):
        field += noise * jax.random.normal(key_noise, (count,))
    return x, turned(field > 0, key_flip, flip).astype(x.dtype)


def turned(labels: jax.Array, rng_key: jax.Array, flip: float | jax.Array) -> jax.Array:
    """Labels, each turned over with a probability.

    Args:
        labels: ``(n,)`` booleans.
        rng_key: Key.
        flip: The probability; nothing is drawn where it is the number 0.
    """
    if isinstance(flip, float) and flip == 0:
        return labels
    return labels ^ jax.random.bernoulli(rng_key, flip, labels.shape)


def disagreement(weights: jax.Array, teacher: jax.Array) -> jax.Array:
    """Probability that two perceptrons differ on a standard normal input: arccos(ρ)/π, equation (9.3) of Opper.

    Args:
        weights: ``(…, N)``; zeros are wrong half of the time.
        teacher: ``(N,)``.
    """
    unit = teacher / jnp.linalg.norm(teacher)
    along = weights @ unit
    # the part across, rather than 1 − ρ², keeps the digits of small angles
    across = jnp.linalg.norm(weights - along[..., None] * unit, axis=-1)
    return jnp.where((along == 0) & (across == 0), 0.5, jnp.arctan2(across, along) / math.pi)


def adf_of(model: Callable[..., None], x: Any, y: Any, **options: Any) -> Start:
    """An ADF ready to be traced: its state before any row, and ``update(state, (x, y))``.

    Args:
        model: As NUTS takes it.
        x: Rows to read shapes from.
        y: Their labels.
        **options: Of ``adfpp.ADF``.
    """
    adf = adfpp.ADF(model, **options)
    state = adf.init(jax.random.key(0), x, y=y)
    return state, lambda state, rows: adf.update(state, rows[0], y=rows[1])[0]


def together(students: Mapping[Any, Start]) -> Start:
    """Several students of one stream as one: their states by name, and the update of all.

    JAX sorts the names: ask for states by name, not in order.
    """
    states = {name: state for name, (state, _) in students.items()}
    return states, lambda states, rows: {name: learn(states[name], rows) for name, (_, learn) in students.items()}


def settled(ep: adfpp.EP, x: Any, y: Any) -> tuple[jax.Array, bool]:
    """The posterior mean ``(N,)`` that EP ends at, of a model of one site, and whether it has settled there."""
    result = ep.run(jax.random.key(0), x, y=y, progress_bar=False)
    ((_, mean),) = result.posterior.mean().items()
    return mean, bool(result.info.converged)
