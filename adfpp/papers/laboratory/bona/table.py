"""Table I of the letter, with full-covariance ADF and EP as new columns."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

import adfpp
from adfpp.papers.baselines import Rosenblatt, VariationalOptimum
from adfpp.papers.laboratory.bench import Bench, Outcome
from adfpp.papers.laboratory.bona.curve import DIGITS
from adfpp.papers.laboratory.bona.streams import draw_teacher, simulation, spherical_student
from adfpp.papers.laboratory.record import Finding, Line, Panel, against_theory, mean_and_error, measured, points
from adfpp.papers.laboratory.students import (
    adf_student,
    clean_rows,
    disagreement,
    ep_mean,
    joint_student,
    learner_student,
    perceptron,
    weights_of,
)
from adfpp.papers.theory import perceptron as theory
from adfpp.papers.theory.bona import bona
from adfpp.papers.theory.covariance import full_online

CURVES: dict[str, Callable[[ArrayLike], np.ndarray]] = {
    "Rosenblatt online": theory.rosenblatt_online,
    "variational optimum": lambda alpha: theory.optimal_online(alpha).error,
    "BOnA (ADF, spherical)": lambda alpha: bona(alpha).error,
    "batch Bayes (EP)": lambda alpha: theory.bayes_batch(alpha).error,
}
LAWS = dict(zip(CURVES, ((0.28, 1 / 3), (0.88, 1.0), (0.88, 1.0), (0.44, 1.0)), strict=True))  # c/α^p, Table I
ROSENBLATT, OPTIMUM, BONA, BATCH = CURVES
FULL = "ADF, full, one pass"
CURVES[FULL] = lambda alpha: full_online(alpha).error
NO_DIFFERENCE = "0 as N → ∞; at finite N it helps a little, early on, to be told ρ"


def law(name: str, alpha: Any) -> Any:
    """The error at large α according to Table I, for a number or an array α."""
    constant, power = LAWS[name]
    return constant / alpha**power


def table(bench: Bench) -> Outcome:
    """Table I as a simulation, with full-covariance ADF and EP as new columns."""
    size, runs = 1000, bench.pick(32, 64)
    alphas = bench.pick((5.0, 10.0), (5.0, 10.0, 50.0))
    errors = bench.replicate("Table I, online", one_pass(size, alphas), runs, 16)
    at, grid, late = np.array(alphas), np.geomspace(1.0, 1000.0, 61), np.array([100.0, 1000.0])
    online = (ROSENBLATT, OPTIMUM, BONA)
    findings = [
        against_theory(f"error at α = {a:g}", name, errors[:, k, j], CURVES[name](at)[k], paper=law(name, a))
        for j, name in enumerate(online)
        for k, a in enumerate(alphas)
    ]
    findings += [
        measured(
            f"error at α = {a:g}, less the optimum's on the same rows", BONA, values, theory=0.0, why=NO_DIFFERENCE
        )
        for a, values in zip(alphas, (errors[..., 2] - errors[..., 1]).T, strict=True)
    ]
    small, marks = bench.pick(100, 200), (5, 10)
    again, ep_note = repeated(bench, small, marks, bench.pick(12, 32))
    more, notes, both = beyond(again, marks)
    distinct = (ROSENBLATT, BONA, BATCH)  # the curve of the variational optimum is BOnA's
    shown = (*distinct, FULL)
    lines = [Line(f"{n}, theory", grid, CURVES[n](grid) * grid, kind="theory", group=n) for n in shown]
    lines += [points(n, at, errors[..., j] * at, n) for j, n in enumerate(online)]
    crosses = np.concatenate([law(n, late) * late for n in distinct])
    lines.append(Line("letter, asymptotic", np.tile(late, len(distinct)), crosses, kind="paper"))
    settings = {"N": size, "runs": runs, "rows": round(alphas[-1] * size)}
    settings |= {"N of full ADF and EP": small, "runs of full ADF and EP": len(again)}
    panel = Panel("Table I", "α", "error · α", (*lines, *both), "xy")
    return Outcome([*limits(), *findings, *more], [panel], [*notes, ep_note], settings)


def limits() -> list[Finding]:
    """The constants that the letter prints, from the curves at large α."""
    far = 1e8
    scaled = {name: float(CURVES[name](far)) * far**power for name, (_, power) in LAWS.items()}
    shown = {1.0: "error · α", 1 / 3: "error · α^(1/3)"}
    return [
        Finding(
            f"{shown[p]} at α → ∞, by theory", name, scaled[name], paper=c, held="paper", tolerance=5e-3, why=DIGITS
        )
        for name, (c, p) in LAWS.items()
    ]


def one_pass(size: int, alphas: tuple[float, ...]) -> Callable[[jax.Array], jax.Array]:
    """The errors ``(αs, 3)`` of Table I's online algorithms on one stream."""
    optimum = learner_student(VariationalOptimum(), size, teacher=jnp.ones(size))
    online = {
        ROSENBLATT: learner_student(Rosenblatt(), size),
        OPTIMUM: optimum,
        BONA: spherical_student(perceptron(), size),
    }
    initial, update = joint_student(online)

    def start(teacher: jax.Array) -> dict[str, Any]:
        arrays = initial[OPTIMUM].arrays._replace(teacher=teacher / jnp.linalg.norm(teacher))
        return initial | {OPTIMUM: initial[OPTIMUM]._replace(arrays=arrays)}

    def measure(states: dict[str, Any], teacher: jax.Array) -> jax.Array:
        weights = jnp.stack([weights_of(states[name]) for name in (ROSENBLATT, OPTIMUM, BONA)])
        return disagreement(weights, teacher)

    return simulation(start, update, measure, size, alphas)


def repeated(bench: Bench, size: int, marks: tuple[int, int], runs: int) -> tuple[np.ndarray, str]:
    """Errors ``(runs, αs, 3)`` of spherical ADF, full ADF and EP on the same rows, and a note on EP's convergence."""
    count = marks[0] * size
    empty = np.zeros((count, size)), np.zeros(count)
    learners = [adf_student(perceptron(), *empty, family=family) for family in ("spherical", "full")]

    def one(key: jax.Array) -> Any:
        teacher, rows_key = draw_teacher(key, size)
        x, y = clean_rows(teacher, rows_key, marks[1] * size)
        errors = []
        for state, update in learners:
            for stop in (a * size for a in marks):
                state = update(state, (x[stop - count : stop], y[stop - count : stop]))
                errors.append(disagreement(state.belief.mean, teacher))
        return jnp.stack(errors).reshape(2, len(marks)).T, teacher, x, y

    errors, teachers, x, y = bench.replicate("Table I, the same rows again", one, runs, 8)
    ep, converged = adfpp.EP(perceptron()), 0
    last = np.empty((runs, len(marks), 1))
    for i in bench.counted("Table I, EP", runs):
        for k, a in enumerate(marks):
            mean, done = ep_mean(ep, x[i, : a * size], y[i, : a * size])
            last[i, k, 0], converged = disagreement(mean, jnp.asarray(teachers[i])), converged + done
    return np.concatenate([errors, last], axis=2), f"EP has settled in {converged} of {last.size} runs."


def beyond(errors: np.ndarray, marks: tuple[int, int]) -> tuple[list[Finding], list[str], list[Line]]:
    """Full ADF and EP, compared with their theories, and with each other on the same rows."""
    at = np.array(marks, float)
    batch, full = CURVES[BATCH](at), CURVES[FULL](at)
    value, se = mean_and_error(errors * at[:, None])
    less = np.diff(errors, axis=2)
    findings, notes = [], []
    for k, a in enumerate(marks):
        findings += [
            against_theory(f"error at α = {a}", FULL, errors[:, k, 1], full[k]),
            against_theory(f"error at α = {a}", BATCH, errors[:, k, 2], batch[k], paper=law(BATCH, a)),
            against_theory(f"error at α = {a}, less BOnA's on the same rows", FULL, less[:, k, 0], 0.0, held="below"),
            against_theory(
                f"error at α = {a}, less full ADF's on the same rows", BATCH, less[:, k, 1], 0.0, held="below"
            ),
        ]
        scalar, whole, again = value[k]
        notes.append(
            f"error · α at α = {a}: BOnA {scalar:.3f}, full ADF {whole:.3f} ± {se[k, 1]:.3f}, EP {again:.3f} ± "
            f"{se[k, 2]:.3f}, and batch Bayes by theory {batch[k] * a:.3f}. Full covariances in one pass go "
            f"{100 * (scalar - whole) / (scalar - batch[k] * a):.0f}% of the way from BOnA to batch Bayes."
        )
    return findings, notes, [points(name, at, errors[..., j] * at) for j, name in ((1, FULL), (2, BATCH))]
