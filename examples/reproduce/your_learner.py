"""A learning rule of your own beside the papers': Hebb's rule on the noise-free perceptron.

    python examples/reproduce/your_learner.py [--out DIR]

A rule is what it begins with, what it predicts, and one step. As a `Learner` it has `init`, `update` and `run` like
those of `adfpp.ADF`, can be traced and mapped over seeds, and goes into `adfpp.compare`. Here 32 runs of it stand
beside as many of ADF on the same rows, each held against its own theory, and the curves of `adfpp.papers.theory`.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.papers.baselines import Estimate, Learner
from adfpp.papers.laboratory import Bench, Line, Panel, Record, along, measured, points
from adfpp.papers.laboratory.picture import save
from adfpp.papers.laboratory.students import adf_of, disagreement, perceptron, rows_of
from adfpp.papers.theory.covariance import full_online
from adfpp.papers.theory.perceptron import bayes_batch, optimal_online

WEIGHTS, RUNS, ALPHAS = 200, 32, 10


@dataclass(frozen=True)
class Hebb(Learner):
    """w' = w + σ x, whatever was predicted."""

    def begin(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, **given: Any) -> jax.Array:
        return jnp.zeros(shape, dtype)

    def output(self, kept: jax.Array, row: jax.Array) -> jax.Array:
        return kept @ row

    def step(self, kept: jax.Array, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[jax.Array, jax.Array]:
        return kept + target * row, (kept @ row * target <= 0).astype(row.dtype)

    def estimate(self, kept: jax.Array) -> Estimate:
        return Estimate(kept, direction=True)


def main() -> None:
    """Runs both, prints the table and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("example_output"), help="where the picture goes")
    out = parser.parse_args().out
    x, y = np.zeros((WEIGHTS, WEIGHTS)), np.zeros(WEIGHTS)
    hebb = Hebb()
    start, fold = adf_of(perceptron(), x, y)

    def one(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        key_teacher, key_rows = jax.random.split(key)
        teacher = jax.random.normal(key_teacher, (WEIGHTS,))

        def rows(key: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
            return rows_of(teacher, key, WEIGHTS)

        by_hebb = along(
            lambda state, data: hebb.update(state, *data)[0], hebb.init(key, x), rows,
            lambda state: disagreement(state.kept, teacher), key_rows, ALPHAS,
        )  # fmt: skip
        by_adf = along(fold, start, rows, lambda state: disagreement(state.belief.mean, teacher), key_rows, ALPHAS)
        return by_hebb, by_adf

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
