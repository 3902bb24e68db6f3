"""Section 4 of Barkai, Seung and Sompolinsky (1995): thresholded smooth functions, and ADF on the same rows.

A rate η moves the weights by η, and n is the number of rows.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.scipy.special import ndtr
from scipy.stats import norm

import adfpp
from adfpp.distributions import Probit
from adfpp.papers.baselines import Constant, Power, Schedule, ThresholdedSmooth
from adfpp.papers.laboratory.bench import Bench, Outcome, learn_stream
from adfpp.papers.laboratory.dichotomies.laws import exponent
from adfpp.papers.laboratory.record import Finding, Line, Panel, measured, points
from adfpp.papers.laboratory.students import Rows, adf_student, flip_labels, normal_weights, weights_of
from adfpp.papers.theory import dichotomies as theory

Array = jax.Array | np.ndarray
FORGOTTEN = 1024  # rows after which the contribution of the rule's start is below a hundredth of its error
INTEGRATED = ("tanh", "phase")  # tasks with f not affine in the weights: ADF computes their moments by quadrature
FACTORS = {"threshold": 6.0, "wave": 30.0, "tanh": 20.0, "phase": 8.0}  # c of the rule's η = c/n
FEW = 64  # runs; with fewer runs an exponent is too uncertain to be compared with a law
SECOND = 1  # index of the measurement from which ADF's law is compared: ADF starts from its prior, without a bad start


class Task(NamedTuple):
    """A class of dichotomies sgn f(S; W), and a teacher of the class.

    Attributes:
        f: ``f(row, weights)``; rows and weights may have leading axes.
        teacher: ``(k,)`` weights of the teacher.
        size: Numbers in a row.
        circular: Whether the last number of a row is uniform on the circle; all others are standard normal.
        apart: Probability that weights ``(k,)`` and the teacher differ on a row.
    """

    f: Callable[[jax.Array, Array], jax.Array]
    teacher: np.ndarray
    size: int
    circular: bool
    apart: Callable[[jax.Array], jax.Array]

    def draw(self, rng_key: jax.Array, rows: int, flip: float = 0.0) -> Rows:
        """Rows and their labels, which are flipped with a probability."""
        key_x, key_angle, key_flip = jax.random.split(rng_key, 3)
        x = jax.random.normal(key_x, (rows, self.size))
        if self.circular:
            x = x.at[:, -1].set(jax.random.uniform(key_angle, (rows,), float, -math.pi, math.pi))
        return x, flip_labels(self.f(x, self.teacher) > 0, key_flip, flip).astype(x.dtype)

    def model(self, flip: float) -> Callable[..., None]:
        """The NumPyro model: weights N(1, 0.5²), and the step of f with flipped labels."""

        def model(x: jax.Array, y: jax.Array | None = None) -> None:
            w = normal_weights(self.teacher.size, mean=1.0, sd=0.5)
            with numpyro.plate("rows", x.shape[0]):
                numpyro.sample("y", Probit(self.f(x, w), 0.0, flip), obs=y)

        return model


def above_curve(g: Callable[[Array, Array], jax.Array], teacher: np.ndarray) -> Task:
    """The task f = s2 − g(s1; w): whether a row is above a curve."""
    grid = np.linspace(-6.0, 6.0, 601)
    mass, below = norm.pdf(grid) * (grid[1] - grid[0]), norm.cdf(np.asarray(g(grid, teacher)))
    return Task(
        lambda x, w: x[..., 1] - g(x[..., 0], w),
        teacher,
        2,
        False,
        lambda w: mass @ jnp.abs(ndtr(g(grid, w)) - below),
    )


def wave_features(s: Array) -> jax.Array:
    """``(…, 2)`` the functions that the weights of the wave multiply."""
    return jnp.stack([jnp.asarray(s), jnp.sin(2.0 * s)], -1)


def phase_apart(w: jax.Array) -> jax.Array:
    """The mean absolute difference of the phases of student and teacher, divided by π."""
    grid = np.linspace(-6.0, 6.0, 601)
    difference = (w[0] - PHASE[0]) + (w[1] - PHASE[1]) * grid
    difference = jnp.abs(jnp.arctan2(jnp.sin(difference), jnp.cos(difference)))
    return (norm.pdf(grid) * (grid[1] - grid[0])) @ difference / math.pi


PHASE = np.array([1.2, 0.8])
TASKS = {
    "threshold": Task(lambda x, w: x[..., 0] - w[0], np.zeros(1), 1, False, lambda w: jnp.abs(ndtr(w[0]) - 0.5)),
    "wave": above_curve(lambda s, w: wave_features(s) @ w, np.array([0.8, 1.2])),
    "tanh": above_curve(lambda s, w: w[0] * jnp.tanh(s + w[1]), np.array([1.2, 0.5])),
    "phase": Task(lambda x, w: jnp.sin(x[..., 1] - w[0] - w[1] * x[..., 0]), PHASE, 2, True, phase_apart),
}


class Stream(NamedTuple):
    """Sizes of a simulation.

    Attributes:
        runs: Number of runs.
        every: Rows between two measurements of the error.
        looks: Number of measurements.
    """

    runs: int
    every: int
    looks: int = 16

    @property
    def n(self) -> np.ndarray:
        """``(looks,)`` rows learned before each measurement."""
        return self.every * np.arange(1, self.looks + 1)


def run_students(
    bench: Bench,
    name: str,
    students: Mapping[str, tuple[Schedule, float]],
    stream: Stream,
    flip: float = 0.0,
    adf: bool = False,
) -> dict[str, np.ndarray]:
    """Probabilities to differ from the teacher, ``(runs, looks)``: rule (20) at some rates, and ADF, on the same rows.

    Args:
        bench: The bench.
        name: Name of the task.
        students: For each student its rate, and the standard deviation of its initial weights around the teacher's.
        stream: Sizes.
        flip: Probability that a label is flipped, which the model of ADF contains.
        adf: Whether ADF also learns the rows, from its prior.
    """
    task = TASKS[name]
    rules = {k: ThresholdedSmooth(task.f, schedule) for k, (schedule, _) in students.items()}
    x, y = np.zeros((stream.every, task.size)), np.zeros(stream.every)
    belief, absorb = adf_student(task.model(flip), x, y) if adf else (None, lambda state, data: state)

    def one(rng_key: jax.Array) -> dict[str, jax.Array]:
        key_start, key_rows = jax.random.split(rng_key)
        away = jax.random.normal(key_start, task.teacher.shape)
        initial = {k: r.init(rng_key, x, weights=task.teacher + students[k][1] * away) for k, r in rules.items()}

        def update(states: tuple[Any, Any], data: Rows) -> tuple[Any, Any]:
            learners, belief = states
            new = {k: r.update(learners[k], data[0], y=data[1])[0] for k, r in rules.items()}
            return new, absorb(belief, data)

        def measure(states: tuple[Any, Any]) -> dict[str, jax.Array]:
            learners, belief = states
            students = learners | ({"ADF": belief} if adf else {})
            return {k: task.apart(weights_of(state)) for k, state in students.items()}

        def draw(key: jax.Array, _: jax.Array) -> Rows:
            return task.draw(key, stream.every, flip)

        return learn_stream(update, (initial, belief), draw, measure, key_rows, stream.looks)

    # Mapped runs with adaptive quadrature wait for each other, so they are run one by one.
    return bench.replicate(f"{name}, flip {flip}", one, stream.runs, 1 if adf and name in INTEGRATED else 1024)


class Streams(NamedTuple):
    """Sizes of the experiment.

    Attributes:
        alone: Sizes for the rule alone, which is cheap.
        noisy: Sizes for the rule on flipped labels. Its mistakes add a share ∝ n^(−1/2) to their noise, so that the law
            holds at large n only.
        paired: Sizes for ADF and the rule on the same rows, by name of the task.
        factors: c of η = c/n, by name of the task.
    """

    alone: Stream
    noisy: Stream
    paired: dict[str, Stream]
    factors: dict[str, float]


def streams(bench: Bench) -> Streams:
    """Sizes for this kind of run. ADF is slow where it uses quadrature, and slowest for the tanh."""
    every, more = bench.pick(256, 512), bench.pick(8, 16)
    with_adf = bench.pick({"wave": 128, "phase": 16}, {"threshold": 2048, "wave": 2048, "tanh": 32, "phase": 256})
    pairs = {name: Stream(runs, every) for name, runs in with_adf.items()}
    factors = {name: c for name, c in FACTORS.items() if name != "tanh" or not bench.quick}
    return Streams(Stream(bench.pick(256, 4096), every), Stream(bench.pick(128, 512), more * every), pairs, factors)


def smooth(bench: Bench) -> Outcome:
    """Rule (20) on four classes, with clean and with noisy labels, and ADF and EP on the same rows."""
    slow, sizes = bench.pick(0.1, 0.05), streams(bench)
    n = sizes.alone.n
    falls, floors, lines, ends = [], [], [], []
    for name, rate in sizes.factors.items():
        fast, steady = f"η = {rate:g}/n", {"whole": slow, "half": slow / 2}
        annealed = {fast: (Power(rate, 1.0, 0.2), 0.2)}
        constant = {k: (Constant(eta), eta / 2) for k, eta in steady.items()}
        alone = run_students(bench, name, annealed | constant, sizes.alone)
        more, line = small_rates(name, slow, alone["whole"], alone["half"])
        floors += more
        ends.append(line)
        paired = run_students(bench, name, annealed, sizes.paired[name], adf=True) if name in sizes.paired else {}
        errors = {fast: alone[fast]} | {k: error for k, error in paired.items() if k == "ADF"}
        for who, error in errors.items():
            entry, first = f"{name}, {who}", SECOND if who == "ADF" else int(np.searchsorted(n, FORGOTTEN))
            few = len(error) < FEW
            fields: dict[str, Any] = {"why": f"{len(error)} runs are too few"} if few else {"held": "theory"}
            falls += [
                measured(f"e·n at n = {n[-1]}", entry, error[:, -1] * n[-1]),
                exponent(f"exponent, n = {n[first]} to {n[-1]}", entry, error, n, first, theory=1.0, **fields),
            ]
            if who == "ADF":
                gap = (error - paired[fast])[:, -1] * n[-1]
                falls.append(measured(f"e·n less that of {fast}", entry, gap, theory=0.0, held="below"))
            lines.append(points(entry, n, error * n))
    rates = np.array([slow / 2, slow])
    ends.append(Line("threshold, law", rates, theory.threshold_floor(rates), kind="theory", group="threshold"))
    left = Panel("clean labels, constant η", "η", "error", tuple(ends), "xy")
    right = Panel("clean labels, η ∝ 1/n", "n", "error · n", tuple(lines), "x")
    more, noisy, notes = flipped_labels(bench, sizes)
    ep_findings, ep_notes = repeated_rows(bench)
    settings = {"runs": sizes.alone.runs, "on noisy labels": sizes.noisy.runs}
    settings |= {f"with ADF on the {name}": stream.runs for name, stream in sizes.paired.items()}
    return Outcome(floors + falls + more + ep_findings, [left, right, noisy], notes + ep_notes, settings)


def small_rates(name: str, rate: float, whole: np.ndarray, half: np.ndarray) -> tuple[list[Finding], Line]:
    """The ratio of the errors at a constant rate, and at half the rate after twice as many rows: by theory it is 2.

    Args:
        name: Name of the task.
        rate: η.
        whole: ``(runs, looks)`` errors at η.
        half: ``(runs, looks)`` errors at η/2, on the same rows.
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


def flipped_labels(bench: Bench, sizes: Streams) -> tuple[list[Finding], Panel, list[str]]:
    """One label in ten flipped: the limit of rule (20), for a task with and one without a symmetry, and ADF."""
    flip = 0.1
    best = math.pi / (1.0 - 2.0 * flip)
    limit = theory.affine_noise_limit(lambda s: np.asarray(wave_features(s)), TASKS["wave"].teacher, flip)[1]
    findings, lines = [], []
    for name, rate in (("phase", best), ("wave", 30.0)):
        rule = {"rule": (Power(rate, 1.0, 0.1), 0.2)}
        alone, common = sizes.noisy, sizes.paired[name]
        with_adf = not (bench.quick and name in INTEGRATED)
        paired = run_students(bench, name, rule, common, flip, adf=True) if with_adf else {}
        errors = paired | {"rule": run_students(bench, name, rule, alone, flip)["rule"]}
        law = theory.circle_noise_law(alone.n, flip, best) if name == "phase" else np.full(alone.looks, limit)
        for who, error in errors.items():
            is_rule, entry = who == "rule", f"{name}, {who}, p = {flip}"
            n, first, power = (alone.n, len(law) // 4 - 1, 0.5) if is_rule else (common.n, SECOND, 1.0)
            fields: dict[str, Any] = {"theory": float(law[-1]), "held": "theory"} if is_rule else {}
            findings.append(measured(f"probability to differ at n = {n[-1]}", entry, error[:, -1], **fields))
            if name == "phase" or not is_rule:
                what = f"exponent, n = {n[first]} to {n[-1]}"
                findings.append(exponent(what, entry, error, n, first, theory=power, held="theory"))
            lines.append(points(entry, n, error))
        if paired:
            gap = (paired["ADF"] - paired["rule"])[:, -1]
            what = f"probability to differ less that of the rule at n = {common.n[-1]}"
            findings.append(measured(what, f"{name}, ADF, p = {flip}", gap, theory=0.0, held="below"))
        lines.append(Line(f"{name}, theory", alone.n, law, kind="theory", group=f"{name}, rule, p = {flip}"))
    notes = [
        f"Labels turned over move the end of rule (20) unless ⟨sgn(f) ∂f⟩ is 0 at the teacher. In the phase it is, and "
        f"the error falls as n^(−1/2); in the wave it is not, and the rule ends {limit:.4f} from the teacher."
    ]
    return findings, Panel(f"labels turned over, p = {flip}", "n", "probability to differ", tuple(lines), "xy"), notes


def repeated_rows(bench: Bench) -> tuple[list[Finding], list[str]]:
    """ADF and EP on the same few rows, for f affine and not affine in the weights."""
    runs, n = bench.pick(16, 64), 256
    findings, notes = [], []
    for name in bench.pick(("wave",), ("wave", "phase", "tanh")):
        task = TASKS[name]
        state, absorb = adf_student(task.model(0.0), *task.draw(jax.random.key(0), n))
        absorb, ep, unsettled = jax.jit(absorb), adfpp.EP(task.model(0.0), max_sweeps=50), 0
        scaled = np.zeros((runs, 2))
        for i in bench.counted(f"EP, {name}", runs):
            x, y = task.draw(jax.random.fold_in(bench.key(f"EP, {name}"), i), n)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # runs that have not converged are counted
                result = ep.run(jax.random.key(0), x, y=y, progress_bar=False)
            unsettled += not result.info.converged
            scaled[i] = [n * task.apart(s.belief.mean) for s in (absorb(state, (x, y)), result.state)]
        for j, who in enumerate(("ADF", "EP")):
            findings.append(measured(f"e·n at n = {n}", f"{name}, {who}", scaled[:, j]))
        gap, why = scaled[:, 1] - scaled[:, 0], "there is no law of how much EP gains over one pass"
        findings.append(measured(f"e·n less that of ADF at n = {n}", f"{name}, EP", gap, theory=0.0, why=why))
        notes.append(f"EP on {n} rows of the {name}: {runs - unsettled} of {runs} runs settled within 50 sweeps.")
    return findings, notes
