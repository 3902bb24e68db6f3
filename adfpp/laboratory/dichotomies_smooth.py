"""Barkai, Seung and Sompolinsky, On-line learning of dichotomies (1995), section 4: thresholded smooth functions.

A rate η moves the weights by η, and n counts rows.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtr
from scipy.stats import norm

import adfpp
from adfpp.baselines import Constant, Power, Schedule, ThresholdedSmooth
from adfpp.distributions import Probit
from adfpp.laboratory.bench import Bench, Found, along
from adfpp.laboratory.record import Finding, Line, Panel, mean_and_error
from adfpp.laboratory.students import adf_of
from adfpp.theory import dichotomies as theory

Array = Any


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
        y = (self.f(x, self.teacher) > 0) ^ jax.random.bernoulli(key_flip, flip, (rows,))
        return x, y.astype(x.dtype)

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


def average(values: Any) -> tuple[float, float]:
    """Mean over the runs and its standard error, of one number a run."""
    mean, se = mean_and_error(values)
    return float(mean), float(se)


def learned(
    bench: Bench,
    name: str,
    schedules: dict[str, Schedule],
    sizes: tuple[int, int, int],
    flip: float = 0.0,
    adf: bool = False,
) -> dict[str, np.ndarray]:
    """Probabilities to differ from the teacher, ``(runs, looks)``: rule (20) at some rates, and ADF, on the same rows.

    Args:
        bench: Where it is run.
        name: Of the task.
        schedules: Rates. The rule starts 0.2 a weight from the teacher.
        sizes: Runs, rows between two looks, looks.
        flip: Probability that a label is turned over; ADF is told.
        adf: Whether ADF learns too, from its prior.
    """
    task = TASKS[name]
    runs, rows, steps = sizes
    rules = {k: ThresholdedSmooth(task.f, s) for k, s in schedules.items()}
    x, y = np.zeros((rows, task.size)), np.zeros(rows)
    belief, fold = adf_of(task.model(flip), x, y) if adf else (None, lambda state, data: state)

    def one(rng_key: jax.Array) -> dict[str, jax.Array]:
        key_start, key_rows = jax.random.split(rng_key)
        start = task.teacher + 0.2 * jax.random.normal(key_start, task.teacher.shape)
        begun = {k: r.init(rng_key, x, weights=start) for k, r in rules.items()}

        def update(states: Any, data: Any) -> Any:
            students, belief = states
            new = {k: r.update(students[k], data[0], y=data[1])[0] for k, r in rules.items()}
            return new, fold(belief, data)

        def measure(states: Any) -> Any:
            students, belief = states
            seen = {k: task.apart(s.kept.weights) for k, s in students.items()}
            return seen | ({"ADF": task.apart(belief.belief.mean)} if adf else {})

        return along(update, (begun, belief), lambda k, _: task.draw(k, rows, flip), measure, key_rows, steps)

    # runs that integrate by adaptive quadrature wait for each other when they are mapped
    at_once = 1 if adf and name == "phase" else 128
    return bench.replicate(f"{name}, flip {flip}", one, runs, at_once)


def smooth(bench: Bench) -> Found:
    """Rule (20) on four classes, clean and noisy labels, with ADF and EP beside."""
    sizes = bench.pick(32, 256), bench.pick(128, 512), 16
    slow = bench.pick(0.1, 0.05)
    n = sizes[1] * np.arange(1, sizes[2] + 1)
    findings, floors, lines, ends = [], [], [], []
    for name, rate in (("threshold", 6.0), ("wave", 30.0), ("tanh", 20.0), ("phase", 8.0)):
        fast = f"η = {rate:g}/n"
        schedules = {fast: Power(rate, 1.0, 0.2), "whole": Constant(slow), "half": Constant(slow / 2)}
        found = learned(bench, name, schedules, sizes, adf=name in ("wave", "phase"))
        more, line = small_rates(name, slow, found.pop("whole"), found.pop("half"))
        floors += more
        ends.append(line)
        for who, error in found.items():
            mean, se = mean_and_error(error * n)
            change = average((error * n)[:, -1] - (error * n)[:, 7])
            entry = f"{name}, {who}"
            findings += [
                Finding(f"e·n at n = {n[-1]}", entry, mean[-1], se[-1]),
                Finding(f"change of e·n from n = {n[7]}", entry, *change, theory=0.0, held="theory"),
            ]
            if who == "ADF":
                gap, doubt = average((error - found[fast])[:, -1] * n[-1])
                findings.append(Finding("e·n less that of the rule", entry, gap, doubt, 0.0, held="below"))
            lines.append(Line(entry, n, mean / n, se / n, group=entry))
    rates = np.array([slow / 2, slow])
    ends.append(Line("threshold, law", rates, theory.threshold_floor(rates), kind="theory", group="threshold"))
    left = Panel("clean labels, constant η", "η", "error", tuple(ends), "xy")
    right = Panel("clean labels, η ∝ 1/n", "n", "error", tuple(lines), "xy")
    more, noisy, notes = turned_over(bench, sizes)
    last, told = revisited(bench)
    settings = {"runs": sizes[0], "rows": int(n[-1])}
    return Found(floors + findings + more + last, [left, right, noisy], notes + told, settings)


def small_rates(name: str, rate: float, whole: np.ndarray, half: np.ndarray) -> tuple[list[Finding], Line]:
    """The error at a constant rate and at half of it, over the later half of the rows.

    Args:
        name: Of the task.
        rate: η.
        whole: ``(runs, looks)`` errors at η.
        half: And at η/2.
    """
    late = whole[:, whole.shape[1] // 2 :].mean(1), half[:, half.shape[1] // 2 :].mean(1)
    (upper, doubt), (lower, less) = average(late[0]), average(late[1])
    ratio = upper / lower
    se = average(late[0] - ratio * late[1])[1] / lower
    findings = [Finding(f"e∞(η)/e∞(η/2), η = {rate}", name, ratio, se, 2.0, held="theory")]
    if name == "threshold":
        findings.append(
            Finding(f"e∞, η = {rate}", name, upper, doubt, float(theory.threshold_floor(rate)), held="theory")
        )
    return findings, Line(
        name, np.array([rate / 2, rate]), np.array([lower, upper]), np.array([less, doubt]), group=name
    )


def turned_over(bench: Bench, sizes: tuple[int, int, int]) -> tuple[list[Finding], Panel, list[str]]:
    """One label in ten turned over: where rule (20) goes, with symmetry and without, and ADF."""
    flip = 0.1
    n = sizes[1] * np.arange(1, sizes[2] + 1)
    best = math.pi / (1.0 - 2.0 * flip)
    limit = theory.affine_noise_limit(lambda s: np.asarray(bumps(s)), TASKS["wave"].teacher, flip)[1]
    curves = {"phase": theory.circle_noise_law(n, flip, best), "wave": np.full(len(n), limit)}
    findings, lines = [], []
    for name, rate in (("phase", best), ("wave", 30.0)):
        found = learned(bench, name, {"rule": Power(rate, 1.0, 0.1)}, sizes, flip, adf=True)
        for who, error in found.items():
            mean, se = mean_and_error(error)
            entry, own = f"{name}, {who}, p = {flip}", who == "rule"
            wanted, held = (float(curves[name][-1]), "theory") if own else (None, None)
            findings.append(
                Finding(f"probability to differ at n = {n[-1]}", entry, mean[-1], se[-1], wanted, held=held)
            )
            lines.append(Line(entry, n, mean, se, group=entry))
            if name == "phase" or who == "ADF":
                power = math.log(mean[3] / mean[-1]) / math.log(n[-1] / n[3])
                doubt = mean_and_error(error[:, -1] / mean[-1] - error[:, 3] / mean[3])[1] / math.log(n[-1] / n[3])
                what = f"exponent, n = {n[3]} to {n[-1]}"
                findings.append(
                    Finding(what, entry, power, float(doubt), 0.5, held="theory")
                    if own
                    else Finding(what, entry, power, float(doubt), 1.0, why="the exponent of large n")
                )
        gap, doubt = average((found["ADF"] - found["rule"])[:, -1])
        what = f"probability to differ less that of the rule at n = {n[-1]}"
        findings.append(Finding(what, f"{name}, ADF, p = {flip}", gap, doubt, 0.0, held="below"))
        lines.append(Line(f"{name}, theory", n, curves[name], kind="theory", group=f"{name}, rule, p = {flip}"))
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
            findings.append(Finding(f"e·n at n = {n}", f"{name}, {who}", *average(scaled[:, j])))
        gap = average(scaled[:, 1] - scaled[:, 0])
        findings.append(Finding(f"e·n less that of ADF at n = {n}", f"{name}, EP", *gap, theory=0.0))
        notes.append(f"EP on {n} rows of the {name}: {runs - unsettled} of {runs} runs settled within 50 sweeps.")
    return findings, notes
