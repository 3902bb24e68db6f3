"""Barkai, Seung and Sompolinsky, On-line learning of dichotomies (1995), section 4: thresholded smooth functions.

A rate η moves the weights by η, and n counts rows.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtr
from scipy.stats import norm

import adfpp
from adfpp.distributions import Probit
from adfpp.papers.baselines import Constant, Power, Schedule, ThresholdedSmooth
from adfpp.papers.laboratory.bench import Bench, Found, along
from adfpp.papers.laboratory.record import Finding, Line, Panel, measured, points
from adfpp.papers.laboratory.students import adf_of, turned
from adfpp.papers.theory import dichotomies as theory

Array = Any
SETTLED = 1024  # rows, after which what is left of the rule's start is less than a hundredth of its error
INTEGRATED = ("tanh", "phase")  # tasks with f not affine in the weights, whose moments ADF takes by quadrature
FACTORS = {"threshold": 6.0, "wave": 30.0, "tanh": 20.0, "phase": 8.0}  # c of the rule's η = c/n
FEW = 64  # runs, of which an exponent comes out too uncertain to be held
SECOND = 1  # index of the look from which ADF's law is held: it has no start to forget


class Task(NamedTuple):
    """A class of dichotomies sgn f(S; W), and a teacher of the class.

    Attributes:
        f: ``f(row, weights)``; of rows and weights with axes before, too.
        teacher: ``(k,)``.
        size: Numbers a row.
        circular: Whether the last of them is uniform on the circle; all others are standard normal.
        apart: Probability that weights ``(k,)`` differ from the teacher.
    """

    f: Callable[[Array, Array], Array]
    teacher: np.ndarray
    size: int
    circular: bool
    apart: Callable[[jax.Array], jax.Array]

    def draw(self, rng_key: jax.Array, rows: int, flip: float = 0.0) -> tuple[jax.Array, jax.Array]:
        """Rows and their labels, turned over with a probability."""
        key_x, key_angle, key_flip = jax.random.split(rng_key, 3)
        x = jax.random.normal(key_x, (rows, self.size))
        if self.circular:
            x = x.at[:, -1].set(jax.random.uniform(key_angle, (rows,), float, -math.pi, math.pi))
        return x, turned(self.f(x, self.teacher) > 0, key_flip, flip).astype(x.dtype)

    def model(self, flip: float) -> Callable[..., None]:
        """As a NumPyro model: weights within 0.5 of (1, 1), and the step of f."""

        def model(x: Array, y: Array = None) -> None:
            w: Array = numpyro.sample("w", dist.Normal(1.0, 0.5).expand([self.teacher.size]).to_event(1))
            with numpyro.plate("rows", x.shape[0]):
                numpyro.sample("y", Probit(self.f(x, w), 0.0, flip), obs=y)

        return model


def crossing(g: Callable[[Array, Array], Array], teacher: np.ndarray) -> Task:
    """F = s2 − g(s1; w): what lies above a curve."""
    grid = np.linspace(-6.0, 6.0, 601)
    mass, wanted = norm.pdf(grid) * (grid[1] - grid[0]), norm.cdf(np.asarray(g(grid, teacher)))
    return Task(
        lambda x, w: x[..., 1] - g(x[..., 0], w),
        teacher,
        2,
        False,
        lambda w: mass @ jnp.abs(ndtr(g(grid, w)) - wanted),
    )


def bumps(s: Array) -> Array:
    """``(…, 2)`` what the wave's weights multiply."""
    return jnp.stack([jnp.asarray(s), jnp.sin(2.0 * s)], -1)


def phase_apart(w: jax.Array) -> jax.Array:
    """How far the angle is turned, on average, over π."""
    grid = np.linspace(-6.0, 6.0, 601)
    turned = (w[0] - PHASE[0]) + (w[1] - PHASE[1]) * grid
    turned = jnp.abs(jnp.arctan2(jnp.sin(turned), jnp.cos(turned)))
    return (norm.pdf(grid) * (grid[1] - grid[0])) @ turned / math.pi


PHASE = np.array([1.2, 0.8])
TASKS = {
    "threshold": Task(lambda x, w: x[..., 0] - w[0], np.zeros(1), 1, False, lambda w: jnp.abs(ndtr(w[0]) - 0.5)),
    "wave": crossing(lambda s, w: bumps(s) @ w, np.array([0.8, 1.2])),
    "tanh": crossing(lambda s, w: w[0] * jnp.tanh(s + w[1]), np.array([1.2, 0.5])),
    "phase": Task(lambda x, w: jnp.sin(x[..., 1] - w[0] - w[1] * x[..., 0]), PHASE, 2, True, phase_apart),
}


class Stream(NamedTuple):
    """How much is learned.

    Attributes:
        runs: How many.
        every: Rows between two looks.
        looks: At the errors.
    """

    runs: int
    every: int
    looks: int = 16

    @property
    def n(self) -> np.ndarray:
        """``(looks,)`` rows learned before each look."""
        return self.every * np.arange(1, self.looks + 1)


def exponent(what: str, entry: str, error: np.ndarray, time: np.ndarray, first: int, **more: Any) -> Finding:
    """How fast the mean error falls: −d ln(error)/d ln(time) between two looks.

    Args:
        what: What it is.
        entry: Which algorithm.
        error: ``(runs, looks)``.
        time: ``(looks,)``.
        first: Index of the first of the two looks; the other is the last.
        **more: What else `Finding` takes.
    """
    early, late = error[:, first] / error[:, first].mean(), error[:, -1] / error[:, -1].mean()
    fall = math.log(error[:, first].mean() / error[:, -1].mean())
    # the delta method: what each run adds to the logarithm of a mean is its own share, less 1
    return measured(what, entry, (fall + early - late) / math.log(time[-1] / time[first]), **more)


def learned(
    bench: Bench,
    name: str,
    students: Mapping[str, tuple[Schedule, float]],
    stream: Stream,
    flip: float = 0.0,
    adf: bool = False,
) -> dict[str, np.ndarray]:
    """Probabilities to differ from the teacher, ``(runs, looks)``: rule (20) at some rates, and ADF, on the same rows.

    Args:
        bench: Where it is run.
        name: Of the task.
        students: Their rates, and how far from the teacher's each of their weights starts: a standard deviation.
        stream: Sizes.
        flip: Probability that a label is turned over; ADF is told.
        adf: Whether ADF learns too, from its prior.
    """
    task = TASKS[name]
    rules = {k: ThresholdedSmooth(task.f, schedule) for k, (schedule, _) in students.items()}
    x, y = np.zeros((stream.every, task.size)), np.zeros(stream.every)
    belief, fold = adf_of(task.model(flip), x, y) if adf else (None, lambda state, data: state)

    def one(rng_key: jax.Array) -> dict[str, jax.Array]:
        key_start, key_rows = jax.random.split(rng_key)
        away = jax.random.normal(key_start, task.teacher.shape)
        begun = {k: r.init(rng_key, x, weights=task.teacher + students[k][1] * away) for k, r in rules.items()}

        def update(states: Any, data: Any) -> Any:
            learners, belief = states
            new = {k: r.update(learners[k], data[0], y=data[1])[0] for k, r in rules.items()}
            return new, fold(belief, data)

        def measure(states: Any) -> Any:
            learners, belief = states
            seen = {k: task.apart(s.kept.weights) for k, s in learners.items()}
            return seen | ({"ADF": task.apart(belief.belief.mean)} if adf else {})

        def draw(key: jax.Array, _: Any) -> Any:
            return task.draw(key, stream.every, flip)

        return along(update, (begun, belief), draw, measure, key_rows, stream.looks)

    # runs that integrate by adaptive quadrature wait for each other when they are mapped
    return bench.replicate(f"{name}, flip {flip}", one, stream.runs, 1 if adf and name in INTEGRATED else 1024)


class Streams(NamedTuple):
    """Sizes of the experiment.

    Attributes:
        alone: For the rule, which is cheap.
        noisy: For the rule on labels that are turned over: its own mistakes add a share ∝ n^(−1/2) to their noise, so
            the law sets in late.
        beside: For ADF and the rule on the same rows, by name of the task.
        factors: c of η = c/n, by name of the task.
    """

    alone: Stream
    noisy: Stream
    beside: dict[str, Stream]
    factors: dict[str, float]


def streams(bench: Bench) -> Streams:
    """Sizes for this kind of run; quadrature makes ADF slow, and slower for the tanh."""
    every, more = bench.pick(256, 512), bench.pick(8, 16)
    with_adf = bench.pick({"wave": 128, "phase": 16}, {"threshold": 2048, "wave": 2048, "tanh": 32, "phase": 256})
    beside = {name: Stream(runs, every) for name, runs in with_adf.items()}
    factors = {name: c for name, c in FACTORS.items() if name != "tanh" or not bench.quick}
    return Streams(Stream(bench.pick(256, 4096), every), Stream(bench.pick(128, 512), more * every), beside, factors)


def smooth(bench: Bench) -> Found:
    """Rule (20) on four classes, clean and noisy labels, with ADF and EP beside."""
    slow, sizes = bench.pick(0.1, 0.05), streams(bench)
    n = sizes.alone.n
    falls, floors, lines, ends = [], [], [], []
    for name, rate in sizes.factors.items():
        fast, steady = f"η = {rate:g}/n", {"whole": slow, "half": slow / 2}
        annealed = {fast: (Power(rate, 1.0, 0.2), 0.2)}
        constant = {k: (Constant(eta), eta / 2) for k, eta in steady.items()}
        found = learned(bench, name, annealed | constant, sizes.alone)
        more, line = small_rates(name, slow, found["whole"], found["half"])
        floors += more
        ends.append(line)
        paired = learned(bench, name, annealed, sizes.beside[name], adf=True) if name in sizes.beside else {}
        errors = {fast: found[fast]} | {k: error for k, error in paired.items() if k == "ADF"}
        for who, error in errors.items():
            entry, first = f"{name}, {who}", SECOND if who == "ADF" else int(np.searchsorted(n, SETTLED))
            few = len(error) < FEW
            held: dict[str, Any] = {"why": f"{len(error)} runs are too few"} if few else {"held": "theory"}
            falls += [
                measured(f"e·n at n = {n[-1]}", entry, error[:, -1] * n[-1]),
                exponent(f"exponent, n = {n[first]} to {n[-1]}", entry, error, n, first, theory=1.0, **held),
            ]
            if who == "ADF":
                gap = (error - paired[fast])[:, -1] * n[-1]
                falls.append(measured(f"e·n less that of {fast}", entry, gap, theory=0.0, held="below"))
            lines.append(points(entry, n, error * n))
    rates = np.array([slow / 2, slow])
    ends.append(Line("threshold, law", rates, theory.threshold_floor(rates), kind="theory", group="threshold"))
    left = Panel("clean labels, constant η", "η", "error", tuple(ends), "xy")
    right = Panel("clean labels, η ∝ 1/n", "n", "error · n", tuple(lines), "x")
    more, noisy, notes = turned_over(bench, sizes)
    last, told = revisited(bench)
    settings = {"runs": sizes.alone.runs, "on noisy labels": sizes.noisy.runs}
    settings |= {f"with ADF on the {name}": stream.runs for name, stream in sizes.beside.items()}
    return Found(floors + falls + more + last, [left, right, noisy], notes + told, settings)


def small_rates(name: str, rate: float, whole: np.ndarray, half: np.ndarray) -> tuple[list[Finding], Line]:
    """The errors at a constant rate, and at half of it after twice the rows, which are as 2 to 1.

    Args:
        name: Of the task.
        rate: η.
        whole: ``(runs, looks)`` errors at η.
        half: And at η/2, on the same rows.
    """
    looks = whole.shape[1]
    upper = whole[:, looks // 4 : looks // 2].mean(1)
    lower = half[:, looks // 2 + 1 :: 2].mean(1)
    ratio = upper.mean() / lower.mean()
    each = ratio + (upper - ratio * lower) / lower.mean()  # the delta method for a ratio of means
    findings = [measured(f"e(η)/e(η/2) at one ηn, η = {rate}", name, each, theory=2.0, held="theory")]
    if name == "threshold":
        law = float(theory.threshold_floor(rate))
        findings.append(measured(f"e∞, η = {rate}", name, whole[:, looks // 2 :].mean(1), theory=law, held="theory"))
    return findings, points(name, np.array([rate / 2, rate]), np.stack([lower, upper], 1))


def turned_over(bench: Bench, sizes: Streams) -> tuple[list[Finding], Panel, list[str]]:
    """One label in ten turned over: where rule (20) goes, with symmetry and without, and ADF."""
    flip = 0.1
    best = math.pi / (1.0 - 2.0 * flip)
    limit = theory.affine_noise_limit(lambda s: np.asarray(bumps(s)), TASKS["wave"].teacher, flip)[1]
    findings, lines = [], []
    for name, rate in (("phase", best), ("wave", 30.0)):
        rule = {"rule": (Power(rate, 1.0, 0.1), 0.2)}
        alone, beside = sizes.noisy, sizes.beside[name]
        with_adf = not (bench.quick and name in INTEGRATED)
        paired = learned(bench, name, rule, beside, flip, adf=True) if with_adf else {}
        errors = paired | {"rule": learned(bench, name, rule, alone, flip)["rule"]}
        law = theory.circle_noise_law(alone.n, flip, best) if name == "phase" else np.full(alone.looks, limit)
        for who, error in errors.items():
            own, entry = who == "rule", f"{name}, {who}, p = {flip}"
            n, first, power = (alone.n, len(law) // 4 - 1, 0.5) if own else (beside.n, SECOND, 1.0)
            held: dict[str, Any] = {"theory": float(law[-1]), "held": "theory"} if own else {}
            findings.append(measured(f"probability to differ at n = {n[-1]}", entry, error[:, -1], **held))
            if name == "phase" or not own:
                what = f"exponent, n = {n[first]} to {n[-1]}"
                findings.append(exponent(what, entry, error, n, first, theory=power, held="theory"))
            lines.append(points(entry, n, error))
        if paired:
            gap = (paired["ADF"] - paired["rule"])[:, -1]
            what = f"probability to differ less that of the rule at n = {beside.n[-1]}"
            findings.append(measured(what, f"{name}, ADF, p = {flip}", gap, theory=0.0, held="below"))
        lines.append(Line(f"{name}, theory", alone.n, law, kind="theory", group=f"{name}, rule, p = {flip}"))
    notes = [
        f"Labels turned over move the end of rule (20) unless ⟨sgn(f) ∂f⟩ is 0 at the teacher. In the phase it is, and "
        f"the error falls as n^(−1/2); in the wave it is not, and the rule ends {limit:.4f} from the teacher."
    ]
    return findings, Panel(f"labels turned over, p = {flip}", "n", "probability to differ", tuple(lines), "xy"), notes


def revisited(bench: Bench) -> tuple[list[Finding], list[str]]:
    """ADF and EP on the same few rows, f affine in the weights and not."""
    runs, n = bench.pick(16, 64), 256
    findings, notes = [], []
    for name in bench.pick(("wave",), ("wave", "phase", "tanh")):
        task = TASKS[name]
        state, fold = adf_of(task.model(0.0), *task.draw(jax.random.key(0), n))
        fold, ep, unsettled = jax.jit(fold), adfpp.EP(task.model(0.0), max_sweeps=50), 0
        scaled = np.zeros((runs, 2))
        for i in bench.counted(f"EP, {name}", runs):
            x, y = task.draw(jax.random.fold_in(bench.key(f"EP, {name}"), i), n)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they are counted
                found = ep.run(jax.random.key(0), x, y=y, progress_bar=False)
            unsettled += not found.info.converged
            scaled[i] = [n * task.apart(s.belief.mean) for s in (fold(state, (x, y)), found.state)]
        for j, who in enumerate(("ADF", "EP")):
            findings.append(measured(f"e·n at n = {n}", f"{name}, {who}", scaled[:, j]))
        gap, why = scaled[:, 1] - scaled[:, 0], "there is no law of how much EP gains over one pass"
        findings.append(measured(f"e·n less that of ADF at n = {n}", f"{name}, EP", gap, theory=0.0, why=why))
        notes.append(f"EP on {n} rows of the {name}: {runs - unsettled} of {runs} runs settled within 50 sweeps.")
    return findings, notes
