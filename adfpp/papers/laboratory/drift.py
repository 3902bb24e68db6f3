"""A teacher that turns: the case that the authors of the Bayesian online algorithm for the perceptron point to."""

import math
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
from adfpp.papers.baselines import Perceptron, Schedule
from adfpp.papers.laboratory.bench import Bench, Experiment, Found, along
from adfpp.papers.laboratory.record import Finding, Line, Panel, measured, points
from adfpp.papers.laboratory.students import disagreement, flipped
from adfpp.papers.theory.drift import (
    best_rate,
    constant_rate_course,
    small_drift,
    spherical,
    spherical_course,
)

__all__ = ["EXPERIMENTS", "Follower"]

DRIFTS = np.geomspace(0.003, 0.3, 5)
FLIP = 0.1
OFF = (0.5, 1.0, 2.0)  # times the best rate
RIVALS = ("ADF, spherical", "RLS, forgetting", "perceptron", "ADF, static")  # ADF must be ahead of them
KIN = ("ADF, random walk", "ADF, discount")  # and these are compared with it
LAWLESS = "there is no law of this difference"

Errors = dict[str, np.ndarray]


class Follower(NamedTuple):
    """An online learner with one number to set, which may be traced.

    Attributes:
        state: Before any row.
        update: ``update(state, x, y, flip, setting)``, the rows being a stretch of the stream.
        read: From a state to the weights ``(N,)``.
        settings: ``(S, K)`` what is tried for each teacher.
    """

    state: Any
    update: Callable[[Any, Any, Any, Any, Any], Any]
    read: Callable[[Any], jax.Array]
    settings: np.ndarray


@dataclass(frozen=True)
class Given(Schedule):
    """η as it is given, a traced number too."""

    rate: Any

    def __call__(self, time: Any) -> Any:
        """The rate η, whatever the time."""
        return jnp.broadcast_to(self.rate, jnp.shape(time))


def squares(x: Any, flip: Any, y: Any = None) -> None:
    """Least squares on signs."""
    w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 1.0), obs=2.0 * y - 1.0 if y is not None else None)


def with_adf(
    size: int, settings: np.ndarray, dynamics: Any = None, family: str = "full", model: Any = flipped
) -> Follower:
    """An ADF whose dynamics goes ``setting`` units of time from row to row."""
    adf = adfpp.ADF(model, family=family, dynamics=dynamics, rows=("x", "y"))
    state = adf.init(jax.random.key(0), np.zeros((1, size)), 0.0, y=np.zeros(1))

    def update(state: Any, x: Any, y: Any, flip: Any, setting: Any) -> Any:
        if dynamics is None:
            return adf.update(state, x, flip, y=y)[0]
        return adf.update(state, x, flip, y=y, dt=jnp.broadcast_to(setting, y.shape))[0]

    return Follower(state, update, lambda s: s.belief.mean, settings)


def with_rate(size: int, settings: np.ndarray) -> Follower:
    """The perceptron with a constant rate, its weights normalised after each row."""

    def update(weights: Any, x: Any, y: Any, flip: Any, setting: Any) -> Any:
        learner = Perceptron(Given(setting))

        def one(weights: Any, row: tuple[Any, Any]) -> tuple[Any, None]:
            return learner.step(weights, row[0], 2.0 * row[1] - 1.0, jnp.ones(()))[0], None

        return jax.lax.scan(one, weights, (x, y))[0]

    begin = Perceptron().init(jax.random.key(1), np.zeros((1, size))).kept
    return Follower(begin, update, lambda s: s.weights, settings)


class Course(NamedTuple):
    """Sizes of an experiment.

    Attributes:
        size: N.
        steps: Times at which errors are measured.
        every: α between them.
        runs: How many.
    """

    size: int
    steps: int
    every: float
    runs: int

    @property
    def alpha(self) -> np.ndarray:
        """``(steps,)`` when they are measured."""
        return self.every * np.arange(1, self.steps + 1)

    @property
    def window(self) -> tuple[float, float]:
        """The first and the last of the late ones."""
        late = self.alpha[self.late]
        return float(late[0]), float(late[-1])

    @property
    def late(self) -> slice:
        """The last third of them."""
        return slice(self.steps - self.steps // 3, None)


def followed(bench: Bench, what: str, course: Course, teachers: np.ndarray, followers: dict[str, Follower]) -> Errors:
    """Errors of all followers on the same streams.

    Args:
        bench: The bench.
        what: Name of the streams.
        course: Sizes.
        teachers: ``(S, 2)`` drift and flip of each stream.
        followers: With as many settings as there are teachers.

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
        kept, noise = jnp.exp(-drift / size), jnp.sqrt(-jnp.expm1(-2.0 * drift / size))

        def turn(weights: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            weights = kept * weights + noise * now[1]
            return weights, weights @ now[0] > 0

        def learn(state: Any, drawn: Any) -> Any:
            x, moves, chance = drawn
            weights, positive = jax.lax.scan(turn, state[0], (x, moves))
            y = (positive ^ (chance < flip)).astype(x.dtype)

            def update(name: str) -> Any:
                several = jax.vmap(followers[name].update, (0, None, None, None, 0))
                return several(state[1][name], x, y, flip, settings[name])

            return weights, {name: update(name) for name in followers}

        def measure(state: Any) -> dict[str, jax.Array]:
            return {name: disagreement(jax.vmap(f.read)(state[1][name]), state[0]) for name, f in followers.items()}

        def several(follower: Follower) -> Any:
            tries = follower.settings.shape[1]
            return jax.tree.map(lambda a: jnp.broadcast_to(a, (tries, *jnp.shape(a))), follower.state)

        begin = first, {name: several(f) for name, f in followers.items()}
        return along(learn, begin, draw, measure, key, course.steps)

    def one(rng_key: jax.Array) -> dict[str, jax.Array]:
        key_teacher, key_rows = jax.random.split(rng_key)
        first = jax.random.normal(key_teacher, (size,))
        settings = {name: jnp.asarray(f.settings) for name, f in followers.items()}
        return jax.vmap(partial(at, key_rows, first))(jnp.asarray(teachers), settings)

    found = bench.replicate(what, one, course.runs, at_once=4)
    return {name: found[name] for name in followers}


# ------------------------------------------------------------------------------------------------ against theory


def laws(bench: Bench) -> Found:
    """Spherical ADF told the drift, and the perceptron at its best constant rate and off it."""
    course = Course(bench.pick(300, 1000), bench.pick(24, 48), 1.0, bench.pick(16, 32))
    teachers = np.array([(d, 0.0) for d in DRIFTS] + [(d, FLIP) for d in DRIFTS[1::2]])
    best = np.array([float(best_rate(d, p).rate) for d, p in teachers])
    followers = {
        "ADF, spherical": with_adf(
            course.size, teachers[:, :1] / course.size, adfpp.OrnsteinUhlenbeck(1.0), "spherical"
        ),
        "perceptron": with_rate(course.size, best[:, None] * np.array(OFF)),
    }
    found = followed(bench, "drift-laws", course, teachers, followers)
    late = course.alpha[course.late]
    findings, at = [], {}
    for s, (drift, flip) in enumerate(teachers):
        what = told(drift, flip)
        exact = spherical_course(late, drift, flip=flip).mean()
        values = found["ADF, spherical"][:, s, course.late, 0].mean(1)
        findings.append(measured(what, "ADF, spherical", values, theory=float(exact), held="theory"))
        at["ADF, spherical", s] = findings[-1]
        for k, times in enumerate(OFF):
            exact = constant_rate_course(late, drift, best[s] * times, flip).mean()
            values = found["perceptron"][:, s, course.late, k].mean(1)
            entry = f"perceptron, {'' if times == 1 else f'{times:g} times '}the best rate"
            findings.append(measured(what, entry, values, theory=float(exact), held="theory"))
            at[f"perceptron {times:g}", s] = findings[-1]
    settings = {"N": course.size, "runs": course.runs, "measured at α": "{:g} to {:g}".format(*course.window)}
    return Found(findings, law_panels(at, best, late), law_notes(), settings)


def law_panels(at: dict[tuple[str, int], Finding], best: np.ndarray, late: np.ndarray) -> list[Panel]:
    """Error against drift, and against the rate."""
    fine = np.geomspace(DRIFTS[0], DRIFTS[-1], 17)
    adf, rule = small_drift(fine)
    at_best = [constant_rate_course(late, d, float(best_rate(d).rate)).mean() for d in fine]
    lines = [
        Line("ADF, spherical", fine, [spherical_course(late, d).mean() for d in fine], kind="theory"),
        Line("perceptron, best rate", fine, at_best, kind="theory"),
        Line("ADF's law at small drift", fine, adf, kind="theory"),
        Line("perceptron's law", fine, rule, kind="theory"),
    ]
    for name, key in (("ADF, spherical", "ADF, spherical"), ("perceptron, best rate", "perceptron 1")):
        some = [at[key, s] for s in range(len(DRIFTS))]
        lines.append(Line(f"{name}, runs", DRIFTS, [f.value for f in some], [f.se for f in some], group=name))
    against = []
    for s in range(0, len(DRIFTS), 2):
        rates = best[s] * np.geomspace(0.4, 2.5, 13)
        name = f"drift {DRIFTS[s]:.2g}"
        exact = [constant_rate_course(late, DRIFTS[s], rate).mean() for rate in rates]
        against.append(Line(name, rates, exact, kind="theory"))
        some = [at[f"perceptron {times:g}", s] for times in OFF]
        tried = best[s] * np.array(OFF)
        against.append(Line(f"{name}, runs", tried, [f.value for f in some], [f.se for f in some], group=name))
    when = f"α from {late[0]:g} to {late[-1]:g}, no flips"
    return [
        Panel(f"Followed, {when}", "drift", "error", tuple(lines), "xy"),
        Panel(f"The perceptron's rate, {when}", "rate η", "error", tuple(against), "xy"),
    ]


def law_notes() -> list[str]:
    """What the laws say."""
    adf, rule = (float(law) for law in small_drift(1.0))
    slow = DRIFTS[0]
    return [
        f"As the drift goes to 0 the errors are {adf:.3f} drift^(1/3) for spherical ADF and {rule:.3f} drift^(1/3) for "
        f"the perceptron at its best constant rate. At drift {slow:.2g} they end at {float(spherical(slow)):.4f} and "
        f"{float(best_rate(slow).error):.4f}. The best rate is {float(best_rate(slow).rate):.3f} there, and "
        f"{float(best_rate(DRIFTS[-1]).rate):.3f} at drift {DRIFTS[-1]:.2g}: the perceptron has to be given it.",
    ]


# ------------------------------------------------------------------------------------------------ all of them


def tracking(bench: Bench) -> Found:
    """Everything that could follow, on the same streams."""
    course = Course(50, bench.pick(24, 60), 1.0, bench.pick(16, 96))
    drifts = bench.pick(DRIFTS[::2], DRIFTS)
    teachers = np.array([(d, 0.0) for d in drifts] + [(d, FLIP) for d in DRIFTS[::2]])
    followers = candidates(course.size, teachers)
    found = followed(bench, "drift-tracking", course, teachers, followers)
    late = {name: e[:, :, course.late].mean(2) for name, e in found.items()}  # (runs, S, K)
    chosen = {name: e.mean(0).argmin(1) for name, e in late.items()}
    best = {name: np.take_along_axis(e, chosen[name][None, :, None], 2)[..., 0] for name, e in late.items()}
    findings, times = [], course.alpha[course.late]
    for s, (drift, flip) in enumerate(teachers):
        if drift not in DRIFTS[::2]:
            continue  # in the picture only
        what = told(drift, flip)
        rate = float(followers["perceptron"].settings[s, chosen["perceptron"][s]])
        curves = {
            "ADF, spherical": float(spherical_course(times, drift, flip=flip).mean()),
            "perceptron": float(constant_rate_course(times, drift, rate, flip).mean()),
        }
        for name, e in best.items():
            why = "the curve is for N → ∞" if name in curves else ""
            findings.append(measured(what, name, e[:, s], theory=curves.get(name), why=why))
        for rival in RIVALS:
            apart = best["ADF"][:, s] - best[rival][:, s]
            findings.append(measured(f"{what}, less that of {rival}", "ADF", apart, theory=0.0, held="below"))
        for name in KIN:
            apart = best[name][:, s] - best["ADF"][:, s]
            findings.append(measured(f"{what}, less that of ADF", name, apart, theory=0.0, why=LAWLESS))
        for other in ("ADF, discount", "RLS, forgetting"):
            apart = best["ADF, random walk"][:, s] - best[other][:, s]
            findings.append(
                measured(f"{what}, less that of {other}", "ADF, random walk", apart, theory=0.0, why=LAWLESS)
            )
    settings = {"N": course.size, "runs": course.runs, "measured at α": "{:g} to {:g}".format(*course.window)}
    notes = tracking_notes(best, chosen, followers, course, drifts)
    return Found(findings, tracking_panels(best, found, chosen, course, drifts), notes, settings)


def candidates(size: int, teachers: np.ndarray) -> dict[str, Follower]:
    """Those told the drift, those with a setting of which the best is taken, and one for which nothing moves."""
    drifts = teachers[:, :1]
    rates = np.array([float(best_rate(d, p).rate) for d, p in teachers])[:, None] * np.array([0.5, 0.7, 1.0, 1.4, 2.0])
    memory = drifts ** (2 / 3) * np.array([1.0, 2.0, 4.0, 8.0, 16.0]) / size
    forgetting = adfpp.Discount(math.exp(-1.0))
    return {
        "ADF": with_adf(size, drifts / size, adfpp.OrnsteinUhlenbeck(1.0)),
        "ADF, spherical": with_adf(size, drifts / size, adfpp.OrnsteinUhlenbeck(1.0), "spherical"),
        "ADF, random walk": with_adf(size, 2.0 * drifts / size, adfpp.RandomWalk(1.0)),
        "ADF, discount": with_adf(size, memory, forgetting),
        "ADF, static": with_adf(size, drifts),
        "RLS, forgetting": with_adf(size, memory, forgetting, model=squares),
        "perceptron": with_rate(size, rates),
    }


def tracking_panels(best: Errors, found: Errors, chosen: Errors, course: Course, drifts: np.ndarray) -> list[Panel]:
    """Error against drift, without and with flips; and on the way."""
    fine, count = np.geomspace(drifts[0], drifts[-1], 40), len(drifts)
    panels = []
    for at, flip, some in ((slice(0, count), 0.0, drifts), (slice(count, None), FLIP, DRIFTS[::2])):
        lines = [
            Line(
                "spherical, N → ∞, in the end", fine, spherical(fine, flip=flip), kind="theory", group="ADF, spherical"
            ),
            Line("perceptron, N → ∞, in the end", fine, best_rate(fine, flip).error, kind="theory", group="perceptron"),
        ]
        for name, e in best.items():
            lines.append(points(name, some, e[:, at]))
        title = "No flips" if flip == 0 else f"Labels flipped with probability {flip:g}"
        panels.append(Panel(title, "drift", "error", tuple(lines), "xy"))
    middle = count // 2
    way = []
    for name, e in found.items():
        way.append(points(name, course.alpha, e[:, middle, :, chosen[name][middle]], kind="band"))
    title = f"Drift {drifts[middle]:.2g}, no flips"
    return [*panels, Panel(title, "α = rows / N", "error", tuple(way), "y")]


def tracking_notes(
    best: Errors, chosen: Errors, followers: dict[str, Follower], course: Course, drifts: np.ndarray
) -> list[str]:
    """What is to be said of it."""
    middle, slow = len(drifts) // 2, float(drifts[0])
    late, best_one = course.alpha[course.late], best_rate(slow)
    on_its_way = constant_rate_course(late, slow, float(best_one.rate)).mean()

    def shown(name: str) -> str:
        return f"{best[name][:, middle].mean():.3f}"

    memories = ", ".join(
        f"{1.0 / (course.size * followers['ADF, discount'].settings[s, chosen['ADF, discount'][s]]):.2g}"
        for s in range(len(drifts))
    )
    return [
        f"At drift {drifts[middle]:.2g} without flips: ADF {shown('ADF')}, spherical {shown('ADF, spherical')}, the "
        f"best of five discounts {shown('ADF, discount')}, random walk {shown('ADF, random walk')}, RLS "
        f"{shown('RLS, forgetting')}, perceptron {shown('perceptron')}, static {shown('ADF, static')}.",
        "ADF and spherical ADF are told the drift. Of the discounts and of the rates the best on these very streams is "
        f"taken, which flatters them. As the drift grows, the best discounts forget over α = {memories}.",
        "Static ADF's error depends on how long the stream is: ADF becomes ever more certain of a teacher that has "
        f"moved. The perceptron begins in a random direction: at drift {slow:.2g} without flips and at the best rate, "
        f"its mean error for N → ∞ is {on_its_way:.4f} over these times, and {float(best_one.error):.4f} in the end.",
    ]


def told(drift: float, flip: float) -> str:
    """What is measured: the error with a teacher."""
    return f"error at drift {drift:.2g}" + (f", flips {flip:g}" if flip else "")


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment("drift-laws", "A teacher that turns, followed at N → ∞", "order-parameter equations", laws),
    Experiment("drift-tracking", "A teacher that turns, followed by all learners", "not in a paper", tracking),
)
