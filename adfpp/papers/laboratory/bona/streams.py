"""Models, streams of rows and order parameters that the experiments on BOnA share."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, SupportsFloat

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from adfpp.distributions import Rosenblatt as Soft
from adfpp.papers.laboratory.bench import learn_stream
from adfpp.papers.laboratory.record import Finding, against_theory
from adfpp.papers.laboratory.students import Rows, Student, adf_student, clean_rows, disagreement, normal_weights
from adfpp.papers.theory.bona import BonaCurve

CHUNK = 50  # rows drawn at a time: α N is a multiple of it for all α and N that are used


def soft_perceptron(beta: float) -> Callable[..., None]:
    """The letter's model (8)-(9): weights N(0, 1), field w·x/√N, and exp(−β max(0, −σ field)) for a label."""

    def model(x: jax.Array, y: jax.Array | None = None) -> None:
        size = x.shape[-1]
        w = normal_weights(size)
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", Soft(x @ w / math.sqrt(size), beta), obs=y)

    return model


def draw_chunk(teacher: jax.Array, key: jax.Array, step: jax.Array) -> Rows:
    """A chunk of a stream, for `learn_stream`."""
    return clean_rows(teacher, key, CHUNK)


def draw_teacher(rng_key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """A teacher ``(N,)`` and a key for its rows."""
    key, rows = jax.random.split(rng_key)
    return jax.random.normal(key, (size,)), rows


def order_parameters(mean: jax.Array, width: jax.Array, teacher: jax.Array) -> jax.Array:
    """``(4,)`` error, Q, ζ and ρ."""
    angle = disagreement(mean, teacher) * math.pi
    return jnp.stack([angle / math.pi, mean @ mean / mean.size, width, jnp.cos(angle)])


def exact_finding(
    what: str, entry: str, value: SupportsFloat, target: SupportsFloat, tolerance: float, why: str
) -> Finding:
    """A figure without randomness, compared with a number of the theory."""
    return Finding(what, entry, float(value), theory=float(target), held="theory", tolerance=tolerance, why=why)


def order_findings(entry: str, alphas: tuple[float, ...], values: np.ndarray, law: BonaCurve) -> list[Finding]:
    """The figures of `order_parameters`, ``(runs, αs, 4)``, compared with a curve."""
    lines = (("error", law.error), ("Q", law.length), ("ζ", law.width), ("ρ", law.overlap))
    return [
        against_theory(f"{what} at α = {a:g}", entry, values[:, k, i], line[k])
        for i, (what, line) in enumerate(lines)
        for k, a in enumerate(alphas)
    ]


def spherical_student(model: Callable[..., None], size: int, rows: int = CHUNK) -> Student:
    """The student that learns by ADF with a spherical Gaussian."""
    return adf_student(model, np.zeros((rows, size)), np.zeros(rows), family="spherical")


def chunk_indices(alphas: tuple[float, ...], size: int) -> np.ndarray:
    """Indices of the chunks of `learn_stream` after which α N rows have been learned."""
    return np.array([round(a * size / CHUNK) - 1 for a in alphas])


def simulation(
    start: Any,
    update: Callable[[Any, Any], Any],
    measure: Callable[[Any, Any], Any],
    size: int,
    alphas: tuple[float, ...],
) -> Callable[[jax.Array], Any]:
    """A simulation for `Bench.replicate` that learns a stream of noise-free rows.

    Args:
        start: The state before any row, or a function that makes it from the teacher.
        update: ``update(state, rows)``.
        measure: ``measure(state, teacher)``, called at each α.
        size: N.
        alphas: The times α at which to measure.
    """

    def one(key: jax.Array) -> Any:
        teacher, rows_key = draw_teacher(key, size)
        initial = start(teacher) if callable(start) else start
        steps = round(alphas[-1] * size) // CHUNK
        draw = partial(draw_chunk, teacher)
        measures = learn_stream(update, initial, draw, lambda state: measure(state, teacher), rows_key, steps)
        return jax.tree.map(lambda a: a[chunk_indices(alphas, size)], measures)

    return one
