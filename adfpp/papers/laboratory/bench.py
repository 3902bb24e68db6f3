"""Tools to run experiments: sizes, random keys, and many runs of one simulation at once.

A simulation is a function of a key that JAX can trace. `Bench.replicate` maps it over keys in groups and reports the
progress. `learn_stream` learns a stream that is drawn chunk by chunk, so that the whole stream is never in memory.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adfpp.papers.laboratory.record import Finding, Panel

__all__ = ["Bench", "Outcome", "learn_stream"]

Size = TypeVar("Size")
State = TypeVar("State")
Rows = TypeVar("Rows")
Measures = TypeVar("Measures")


class Outcome(NamedTuple):
    """Result of an experiment, from which a `Record` is made.

    Attributes:
        findings: The figures.
        panels: The picture.
        notes: Remarks on the figures, which contain numbers of the run.
        settings: Sizes and numbers of runs.
    """

    findings: list[Finding]
    panels: list[Panel]
    notes: list[str]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """The kind of run that an experiment makes, its random keys, and its progress.

    Attributes:
        quick: Whether to make the short run: seconds, with larger standard errors.
        seed: Seed of all keys.
        report: Called as ``report(what, done, total)``.
    """

    quick: bool = False
    seed: int = 0
    report: Callable[[str, int, int], None] = lambda what, done, total: None

    def pick(self, quick: Size, full: Size) -> Size:
        """The size for this kind of run."""
        return quick if self.quick else full

    def key(self, name: str) -> jax.Array:
        """A key for each name, made from the seed."""
        return jax.random.fold_in(jax.random.key(self.seed), zlib.crc32(name.encode()))

    def counted(self, what: str, total: int) -> Iterator[int]:
        """Counts up to a total and reports the progress, for runs that cannot be mapped."""
        for i in range(total):
            self.report(what, i, total)
            yield i
        self.report(what, total, total)

    def replicate(self, what: str, one: Callable[[jax.Array], Any], runs: int, at_once: int = 64) -> Any:
        """Makes many runs of a simulation.

        Args:
            what: Name of the simulation, from which its keys are made: two simulations with one name see the same
                random numbers.
            one: The simulation, from a key to a pytree of arrays.
            runs: Number of runs.
            at_once: Number of runs in one compiled call.

        Returns:
            The pytree with NumPy arrays ``(runs, …)``.
        """
        at_once = min(at_once, runs)
        group = jax.jit(jax.vmap(one))
        padded = -(-runs // at_once) * at_once
        keys = jax.random.split(self.key(what), padded)
        groups = []
        for start in range(0, padded, at_once):
            self.report(what, start, runs)
            groups.append(jax.tree.map(np.asarray, group(keys[start : start + at_once])))
        self.report(what, runs, runs)
        return jax.tree.map(lambda *parts: np.concatenate(parts)[:runs], *groups)


def learn_stream(
    update: Callable[[State, Rows], State],
    state: State,
    draw: Callable[[jax.Array, jax.Array], Rows],
    measure: Callable[[State], Measures],
    rng_key: jax.Array,
    steps: int,
) -> Measures:
    """Learns a stream that is drawn chunk by chunk, and measures the state after each chunk.

    Args:
        update: ``update(state, rows)`` returns the state after a chunk.
        state: The state before any row.
        draw: ``draw(key, step)`` returns a chunk, of the same shape every time.
        measure: From a state to a pytree of arrays.
        rng_key: Key.
        steps: Number of chunks.

    Returns:
        The measures, ``(steps, …)``.
    """

    def one(state: State, scanned: tuple[jax.Array, jax.Array]) -> tuple[State, Measures]:
        key, step = scanned
        state = update(state, draw(key, step))
        return state, measure(state)

    return lax.scan(one, state, (jax.random.split(rng_key, steps), jnp.arange(steps)))[1]
