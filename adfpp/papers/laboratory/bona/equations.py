"""Compares the update of the letter, equations (10) and (11), with that of ADF with a spherical family, row by row."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from adfpp.papers.baselines import ScalarBOnA
from adfpp.papers.laboratory.bench import Bench, Outcome, learn_stream
from adfpp.papers.laboratory.bona.streams import (
    CHUNK,
    draw_chunk,
    draw_teacher,
    exact_finding,
    simulation,
    soft_perceptron,
    spherical_student,
)
from adfpp.papers.laboratory.record import Finding, Line, Panel, mean_and_error
from adfpp.papers.laboratory.students import Rows, joint_student, learner_student, perceptron

SIZES = (100, 900)  # N, a factor of 9 apart: orders 1/N and 1/√N differ by factors of 9 and 3
LENGTH = {True: "|ξ|² = N", False: "|ξ|² as it is"}


def equations(bench: Bench) -> Outcome:
    """Compares the updates of the letter and of ADF, row by row, and measures the effect of taking |ξ|² = N."""
    size, alpha, runs = bench.pick(100, 200), bench.pick(10, 20), bench.pick(4, 16)
    kinds = {"step": (perceptron(), math.inf), "β = 2": (soft_perceptron(2.0), 2.0)}
    engines = {k: spherical_student(model, size) for k, (model, _) in kinds.items()}
    letters = {
        (k, m): learner_student(ScalarBOnA(beta, mean_length=m), size) for k, (_, beta) in kinds.items() for m in LENGTH
    }

    def one(key: jax.Array) -> Any:
        teacher, rows_key = draw_teacher(key, size)

        def update(states: dict[tuple[str, bool], Any], rows: Rows) -> dict[tuple[str, bool], Any]:
            x, y = rows
            scaled = {True: (x * math.sqrt(size) / jnp.linalg.norm(x, axis=1, keepdims=True), y), False: rows}
            return {
                (k, m): (engines[k][1](adf, scaled[m]), letters[k, m][1](letter, scaled[m]))
                for (k, m), (adf, letter) in states.items()
            }

        def measure(states: dict[tuple[str, bool], Any]) -> dict[tuple[str, bool], Rows]:
            def apart(adf: Any, letter: Any) -> tuple[jax.Array, jax.Array]:
                weights, width = letter.arrays
                return jnp.abs(adf.belief.mean - weights).max(), jnp.abs(adf.belief.scale**2 / width - 1.0)

            return {k: apart(*both) for k, both in states.items()}

        start = {k: (engines[k[0]][0], letter) for k, (letter, _) in letters.items()}
        return learn_stream(update, start, partial(draw_chunk, teacher), measure, rows_key, alpha * size // CHUNK)

    differences = bench.replicate("equations (10) and (11)", one, runs)
    findings = [
        exact_finding(f"largest {what}", f"{k}, {LENGTH[m]}", part.max(), 0.0, 1e-10, "rounding")
        for (k, m), parts in differences.items()
        for what, part in zip(("difference of a weight ω", "relative difference of ζ"), parts, strict=True)
    ]
    notes = [
        f"The largest difference between the engine and the letter's update is {max(f.value for f in findings):.1e}"
        f" over {alpha * size} rows in each of {runs} streams."
    ]
    neglected, note, panel = neglect(bench, 5)
    return Outcome([*findings, *neglected], [panel], [*notes, note], {"N": size, "rows": alpha * size, "streams": runs})


def neglect(bench: Bench, alpha: int) -> tuple[list[Finding], str, Panel]:
    """The change of ζ by taking |ξ|² = N, and the variation of ζ over streams."""
    runs, findings, spread = bench.pick(32, 128), [], []
    for size in SIZES:
        both = joint_student({m: learner_student(ScalarBOnA(mean_length=m), size) for m in LENGTH})

        def measure(states: dict[bool, Any], teacher: jax.Array) -> jax.Array:
            return jnp.stack([states[m].arrays.width for m in LENGTH])

        one = simulation(*both, measure, size, (alpha,))
        mean, exact = bench.replicate(f"|ξ|² = N, N = {size}", one, runs, 16)[:, 0].T
        spread.append(100.0 * float(exact.std(ddof=1) / exact.mean()))
        square, doubt = (float(v) for v in mean_and_error((mean / exact - 1.0) ** 2))
        root = math.sqrt(square)
        what = f"change of ζ at α = {alpha}, N = {size}, %"
        findings.append(Finding(what, "|ξ|² = N", 100 * root, 50 * doubt / root, runs=runs))
    changes = [f.value for f in findings]
    note = (
        f"Taking |ξ|² = N, as the letter does, changes ζ by {' and '.join(f'{v:.2g}%' for v in changes)} (root mean "
        f"square at α = {alpha}) at N = {' and '.join(str(n) for n in SIZES)}, and ζ itself varies by "
        f"{' and '.join(f'{v:.2g}%' for v in spread)} from stream to stream: orders 1/N and 1/√N."
    )
    lines = (
        Line("by |ξ|² = N against own lengths", SIZES, changes, [f.se for f in findings]),
        Line("sd over streams", SIZES, spread),
    )
    return findings, note, Panel("How much ζ varies", "N", "% of ζ", lines, "xy")
