"""Your own learning rule beside those of the papers: Hebb's rule on the noise-free perceptron.

    python examples/reproduce/your_learner.py [--out DIR]

A rule consists of its initial arrays, its prediction, and one step. As a `Learner` it has `init`, `update` and `run`
like those of `adfpp.ADF`, can be traced and mapped over seeds, and can be given to `adfpp.compare`. This example makes
32 runs of Hebb's rule and 32 of ADF on the same rows, holds each against its theory, and draws the curves of
`adfpp.papers.theory` beside them.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.papers.baselines import Estimate, Learner
from adfpp.papers.laboratory import Bench, Line, Panel, Record, learn_stream, measured, points
from adfpp.papers.laboratory.picture import save
from adfpp.papers.laboratory.students import (
    Rows,
    adf_student,
    disagreement,
    joint_student,
    learner_student,
    noisy_rows,
    perceptron,
)
from adfpp.papers.theory.covariance import full_online
from adfpp.papers.theory.perceptron import bayes_batch, optimal_online

WEIGHTS, RUNS, ALPHAS = 200, 32, 10


@dataclass(frozen=True)
class Hebb(Learner[jax.Array]):
    """w' = w + σ x, for right and wrong labels alike."""

    def initial(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, **options: Any) -> jax.Array:
        return jnp.zeros(shape, dtype)

    def output(self, arrays: jax.Array, row: jax.Array) -> jax.Array:
        return arrays @ row

    def step(
        self, arrays: jax.Array, row: jax.Array, target: jax.Array, count: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return arrays + target * row, (arrays @ row * target <= 0).astype(row.dtype)

    def estimate(self, arrays: jax.Array) -> Estimate:
        return Estimate(arrays, direction=True)


def main() -> None:
    """Runs both, prints the table and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("example_output"), help="where the picture goes")
    out = parser.parse_args().out
    x, y = np.zeros((WEIGHTS, WEIGHTS)), np.zeros(WEIGHTS)
    students = {"Hebb": learner_student(Hebb(), WEIGHTS), "ADF": adf_student(perceptron(), x, y)}
    start, update = joint_student(students)

    def one(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        key_teacher, key_rows = jax.random.split(key)
        teacher = jax.random.normal(key_teacher, (WEIGHTS,))

        def rows(key: jax.Array, step: jax.Array) -> Rows:
            return noisy_rows(teacher, key, WEIGHTS)

        def measure(states: dict[str, Any]) -> tuple[jax.Array, jax.Array]:
            weights = states["Hebb"].arrays, states["ADF"].belief.mean
            return disagreement(weights[0], teacher), disagreement(weights[1], teacher)

        return learn_stream(update, start, rows, measure, key_rows, ALPHAS)

    alpha, grid = np.arange(1, ALPHAS + 1), np.linspace(0.5, ALPHAS, 100)
    hebb_error, adf_error = Bench().replicate("hebb", one, RUNS)
    theory = np.arccos(np.sqrt(2 * alpha / (2 * alpha + np.pi))) / np.pi, full_online(alpha).error
    findings = [
        measured(f"error at α = {a}", name, error[:, a - 1], theory=float(curve[a - 1]), held="theory")
        for name, error, curve in zip(("Hebb", "ADF, full"), (hebb_error, adf_error), theory, strict=True)
        for a in (2, 5, 10)
    ]
    lines = (
        points("Hebb's rule", alpha, hebb_error, "Hebb"),
        Line("its theory", alpha, theory[0], kind="theory", group="Hebb"),
        points("ADF, full, one pass", alpha, adf_error, "ADF"),
        Line("its theory, N → ∞", alpha, theory[1], kind="theory", group="ADF"),
        Line("best rule without a covariance", grid, optimal_online(grid).error, kind="theory"),
        Line("batch Bayes", grid, bayes_batch(grid).error, kind="theory"),
    )
    panel = Panel(f"{WEIGHTS} weights, {RUNS} runs", "α: rows a weight", "wrong labels", lines, "xy")
    record = Record("hebb", "Hebb's rule and ADF", "noise-free perceptron", tuple(findings), (panel,))
    print(record.text())
    out.mkdir(parents=True, exist_ok=True)
    print(f"\npicture: {save(record, out / 'your_learner.png')}")


if __name__ == "__main__":
    main()
