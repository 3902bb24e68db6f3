"""How experiments are run: their sizes, their keys, and many runs of one simulation at once.

A simulation is a function of a key that JAX can trace. `Bench.replicate` maps it over keys in groups, and says on a
progress bar how far it is. `along` folds a stream that is drawn as it is learned, so that it is never held whole.
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

__all__ = ["Bench", "Experiment", "Found", "along"]

Size = TypeVar("Size")


class Found(NamedTuple):
    """What an experiment gives back, which becomes a `Record`.

    Attributes:
        findings: The figures.
        panels: The picture.
        notes: What is to be said about them, with the run's numbers in it.
        settings: Sizes and numbers of runs.
    """

    findings: list[Finding]
    panels: list[Panel]
    notes: list[str]
    settings: dict[str, Any]


class Experiment(NamedTuple):
    """One figure, table or equation of a paper, made again.

    Attributes:
        name: "paper-figure", the first word being the paper's page.
        title: What it shows.
        source: Which figure, table or equation.
        run: Makes it.
    """

    name: str
    title: str
    source: str
    run: Callable[["Bench"], Found]


@dataclass(frozen=True)
class Bench:
    """What an experiment is given.

    Attributes:
        quick: Whether it is to be short: seconds, with wider standard errors.
        seed: Of all keys.
        report: Called as ``report(what, done, total)``.
    """

    quick: bool = False
    seed: int = 0
    report: Callable[[str, int, int], None] = lambda what, done, total: None

    def pick(self, quick: Size, full: Size) -> Size:
        """The size for this kind of run."""
        return quick if self.quick else full

    def key(self, name: str) -> jax.Array:
        """A key for each name, from the seed."""
        return jax.random.fold_in(jax.random.key(self.seed), zlib.crc32(name.encode()))

    def counted(self, what: str, total: int) -> Iterator[int]:
        """Counts up to a total, telling how far it is: for runs that cannot be mapped."""
        for i in range(total):
            self.report(what, i, total)
            yield i
        self.report(what, total, total)

    def replicate(self, what: str, one: Callable[[jax.Array], Any], runs: int, at_once: int = 64) -> Any:
        """Many runs of a simulation.

        Args:
            what: Its name, of which the keys are made: two simulations with one name see the same randomness.
            one: From a key to a pytree of arrays.
            runs: How many.
            at_once: Runs in one compiled call.

        Returns:
            The pytree with arrays ``(runs, …)``, of NumPy.
        """
        at_once = min(at_once, runs)
        group = jax.jit(jax.vmap(one))
        padded = -(-runs // at_once) * at_once
        keys = jax.random.split(self.key(what), padded)
        found = []
        for start in range(0, padded, at_once):
            self.report(what, start, runs)
            found.append(jax.tree.map(np.asarray, group(keys[start : start + at_once])))
        self.report(what, runs, runs)
        return jax.tree.map(lambda *parts: np.concatenate(parts)[:runs], *found)


def along(
    update: Callable[[Any, Any], Any],
    state: Any,
    draw: Callable[[jax.Array, jax.Array], Any],
    measure: Callable[[Any], Any],
    rng_key: jax.Array,
    steps: int,
) -> Any:
    """Learns a stream that is drawn a chunk at a time, and measures what was learned after each.

    Args:
        update: ``update(state, data)`` gives the state with the chunk folded in.
        state: Before any row.
        draw: ``draw(key, step)`` gives a chunk, the same shape every time.
        measure: From a state to a pytree of arrays.
        rng_key: Key.
        steps: Chunks.

    Returns:
        The measures, ``(steps, …)``.
    """

    def one(state: Any, now: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
        key, step = now
        state = update(state, draw(key, step))
        return state, measure(state)

    return lax.scan(one, state, (jax.random.split(rng_key, steps), jnp.arange(steps)))[1]
