"""Online learners that follow a teacher whose weights drift, and the simulation that they share."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import adfpp
from adfpp.engine.dynamics import Dynamics
from adfpp.papers.baselines import Perceptron, Schedule
from adfpp.papers.baselines.linear import Weights
from adfpp.papers.laboratory.bench import Bench, learn_stream
from adfpp.papers.laboratory.students import Rows, disagreement, flip_perceptron, normal_weights

FLIP = 0.1
DRIFTS = np.geomspace(0.003, 0.3, 5)
Number = jax.Array | float
Errors = dict[str, np.ndarray]
States = tuple[jax.Array, dict[str, Any]]  # of the teacher and of the learners


class Follower(NamedTuple):
    """An online learner with one setting, a number that may be traced.

    Attributes:
        state: The state before any row.
        update: ``update(state, x, y, flip, setting)``, where x and y are consecutive rows of the stream.
        read: From a state to the weights ``(N,)``.
        settings: ``(S, K)`` the settings that are tried for each teacher.
    """

    state: Any
    update: Callable[[Any, jax.Array, jax.Array, Number, Number], Any]
    read: Callable[[Any], jax.Array]
    settings: np.ndarray


@dataclass(frozen=True)
class TracedRate(Schedule):
    """A constant rate η that may be traced."""

    rate: Number

    def __call__(self, time: Number) -> jax.Array:
        """The rate η, which does not depend on the time."""
        return jnp.broadcast_to(self.rate, jnp.shape(time))


def squares(x: jax.Array, flip: float | jax.Array, y: jax.Array | None = None) -> None:
    """The model of least squares on signs."""
    w = normal_weights(x.shape[-1])
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 1.0), obs=2.0 * y - 1.0 if y is not None else None)


def with_adf(
    size: int,
    settings: np.ndarray,
    dynamics: Dynamics | None = None,
    family: str = "full",
    model: Callable[..., None] = flip_perceptron,
) -> Follower:
    """An ADF whose dynamics advances by ``setting`` units of time from row to row."""
    adf = adfpp.ADF(model, family=family, dynamics=dynamics, rows=("x", "y"))
    state = adf.init(jax.random.key(0), np.zeros((1, size)), 0.0, y=np.zeros(1))

    def update(state: Any, x: jax.Array, y: jax.Array, flip: Number, setting: Number) -> Any:
        if dynamics is None:
            return adf.update(state, x, flip, y=y)[0]
        return adf.update(state, x, flip, y=y, dt=jnp.broadcast_to(setting, y.shape))[0]

    return Follower(state, update, lambda s: s.belief.mean, settings)


def with_rate(size: int, settings: np.ndarray) -> Follower:
    """The perceptron with a constant rate, its weights normalised after each row."""

    def update(arrays: Weights, x: jax.Array, y: jax.Array, flip: Number, setting: Number) -> Weights:
        learner = Perceptron(TracedRate(setting))

        def one(arrays: Weights, row: Rows) -> tuple[Weights, None]:
            return learner.step(arrays, row[0], 2.0 * row[1] - 1.0, jnp.ones(()))[0], None

        return jax.lax.scan(one, arrays, (x, y))[0]

    initial = Perceptron().init(jax.random.key(1), np.zeros((1, size))).arrays
    return Follower(initial, update, lambda arrays: arrays.weights, settings)


class Course(NamedTuple):
    """Sizes of an experiment.

    Attributes:
        size: N.
        steps: Number of times at which errors are measured.
        every: α between these times.
        runs: Number of runs.
    """

    size: int
    steps: int
    every: float
    runs: int

    @property
    def alpha(self) -> np.ndarray:
        """``(steps,)`` the times α of the measurements."""
        return self.every * np.arange(1, self.steps + 1)

    @property
    def window(self) -> tuple[float, float]:
        """The first and the last α of the late measurements."""
        late = self.alpha[self.late]
        return float(late[0]), float(late[-1])

    @property
    def late(self) -> slice:
        """The late measurements: the last third."""
        return slice(self.steps - self.steps // 3, None)


def run_followers(
    bench: Bench, what: str, course: Course, teachers: np.ndarray, followers: dict[str, Follower]
) -> Errors:
    """Errors of all followers on the same streams.

    Args:
        bench: The bench.
        what: Name of the streams.
        course: Sizes.
        teachers: ``(S, 2)`` drift and flip probability of each stream.
        followers: The learners, with settings for each teacher.

    Returns:
        ``{name: (runs, S, steps, K)}``.
    """
    size, count = course.size, round(course.every * course.size)

    def draw(rng_key: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        key_x, key_turn, key_flip = jax.random.split(rng_key, 3)
        shape = (count, size)
        return (
            jax.random.normal(key_x, shape),
            jax.random.normal(key_turn, shape),
            jax.random.uniform(key_flip, (count,)),
        )

    def at(
        key: jax.Array, first: jax.Array, teacher: jax.Array, settings: dict[str, jax.Array]
    ) -> dict[str, jax.Array]:
        drift, flip = teacher
        decay, noise = jnp.exp(-drift / size), jnp.sqrt(-jnp.expm1(-2.0 * drift / size))

        def turn(weights: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            weights = decay * weights + noise * row[1]
            return weights, weights @ row[0] > 0

        def learn(state: States, chunk: tuple[jax.Array, jax.Array, jax.Array]) -> States:
            x, moves, chance = chunk
            weights, positive = jax.lax.scan(turn, state[0], (x, moves))
            y = (positive ^ (chance < flip)).astype(x.dtype)

            def update(name: str) -> Any:
                several = jax.vmap(followers[name].update, (0, None, None, None, 0))
                return several(state[1][name], x, y, flip, settings[name])

            return weights, {name: update(name) for name in followers}

        def measure(state: States) -> dict[str, jax.Array]:
            return {name: disagreement(jax.vmap(f.read)(state[1][name]), state[0]) for name, f in followers.items()}

        def several(follower: Follower) -> Any:
            tries = follower.settings.shape[1]
            return jax.tree.map(lambda a: jnp.broadcast_to(a, (tries, *jnp.shape(a))), follower.state)

        initial = first, {name: several(f) for name, f in followers.items()}
        return learn_stream(learn, initial, draw, measure, key, course.steps)

    def one(rng_key: jax.Array) -> dict[str, jax.Array]:
        key_teacher, key_rows = jax.random.split(rng_key)
        first = jax.random.normal(key_teacher, (size,))
        settings = {name: jnp.asarray(f.settings) for name, f in followers.items()}
        return jax.vmap(partial(at, key_rows, first))(jnp.asarray(teachers), settings)

    errors = bench.replicate(what, one, course.runs, at_once=4)
    return {name: errors[name] for name in followers}


def error_name(drift: float, flip: float) -> str:
    """Name of the error with a teacher."""
    return f"error at drift {drift:.2g}" + (f", flips {flip:g}" if flip else "")
