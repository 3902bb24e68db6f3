"""Random starts of variational message passing, and the choice among several of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from adfpp.learn.ep.iterate import History
from adfpp.learn.vmp import sweeps
from adfpp.learn.vmp.schedule import Coordinate, Current, Problem
from adfpp.model import Program

_SWEEPS = 20  # after which the best of several starts is chosen
_VAGUE = 1e3  # ratio of quartiles above which a prior of a positive latent does not tell its scale


def initial_values(program: Program, shared: Sequence[ArrayLike], rng_key: jax.Array) -> sweeps.Values:
    """A vague start near the prior's median.

    Gaussian means get random numbers, so that latents that the model does not tell apart have different means. Where
    the prior is wider than 1, the numbers have a standard deviation of 1.
    """
    low, middle, high = np.nan_to_num(
        np.asarray(program.compiled(sweeps.quartiles, effort="least")(list(shared)), float)
    )
    noise = np.asarray(jax.random.normal(rng_key, (program.size,)), float)
    out = []
    for part in sweeps.joint_of(program).parts:
        where = part.where
        centre, spread = middle[where], np.clip((high - low)[where] / 1.349, 1e-6, 1.0)
        if part.gaussian:
            centre = np.where(np.abs(centre) < _VAGUE, centre, 0.0) + spread * noise[where]
        else:
            centre = np.where(high[where] < _VAGUE * low[where], centre, 1.0)
        out.append(part.initial(centre, spread, program.dtype))
    return tuple(out)


@dataclass
class Starts:
    """Several random starts of a run.

    Attributes:
        problem: The data and the options.
        rng_key: The key of the starts.
        count: How many starts there are; 0 to continue from ``values``.
        values: The values of the first start.
    """

    problem: Problem
    rng_key: jax.Array
    count: int
    values: sweeps.Values

    def best(self) -> tuple[Current, list[float]]:
        """The start with the highest bound after some sweeps, and the bounds of all of them."""
        if not self.count:
            return self._begun(self.values), []
        tried = []
        for i in range(self.count):
            key = jax.random.fold_in(self.rng_key, i)
            values = initial_values(self.problem.program, self.problem.shared, key) if i else self.values
            current = self._begun(self._spread(values, key))
            for _ in range(_SWEEPS if self.count > 1 else 0):
                if Coordinate().step(self.problem, current, 1.0, History()).done:
                    break
            tried.append(current)
        reached = [c.bounds[-1] for c in tried if c.bounds]
        return tried[int(np.argmax(reached)) if reached else 0], reached

    def _begun(self, values: sweeps.Values) -> Current:
        length = len(self.problem.rows.weight)
        return Current(values, self.problem.absorbed, np.zeros(length, self.problem.program.dtype))

    def _spread(self, values: sweeps.Values, key: jax.Array) -> sweeps.Values:
        """Gives each combination of discrete values a random row, after a sweep that learns the scale of the data.

        Without this, components of a mixture whose prior is narrower or wider than the data would begin alike.
        """
        combinations, weight = len(self.problem.joint.combinations), np.asarray(self.problem.rows.weight)
        good = np.flatnonzero(weight)
        if combinations == 1 or len(good) < combinations:
            return values
        values = self.problem.sweep(values).values
        rows = np.asarray(jax.random.choice(key, jnp.asarray(good), (combinations,), replace=False))
        hint = np.zeros((len(weight), combinations), self.problem.program.dtype)
        hint[rows] = np.where(np.eye(combinations, dtype=bool), 0.0, -np.inf)
        anchors = np.zeros_like(weight)
        anchors[rows] = 1.0
        some: Any = self.problem.rows._replace(weight=jnp.asarray(anchors))
        return self.problem.sweep(values, hint=hint, rows=some).values
