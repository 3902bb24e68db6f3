"""The letter's likelihood (8) at finite β, compared with its order-parameter equations."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.papers.laboratory.bench import Bench, Outcome
from adfpp.papers.laboratory.bona.streams import (
    exact_finding,
    order_findings,
    order_parameters,
    simulation,
    soft_perceptron,
    spherical_student,
)
from adfpp.papers.laboratory.record import Line, Panel, against_theory, points
from adfpp.papers.laboratory.students import joint_student, perceptron
from adfpp.papers.theory.bona import bona, bona_beta_law


def finite_beta(bench: Bench) -> Outcome:
    """The likelihood (8) at finite β, compared with its order-parameter equations; its cost on noise-free labels."""
    size, runs = bench.pick(1000, 2000), bench.pick(24, 32)
    alphas = bench.pick((2.0, 10.0), (2.0, 10.0, 40.0))
    betas = (0.3, 1.0, 3.0)
    soft = {b: spherical_student(soft_perceptron(b), size) for b in betas}
    engines = joint_student({**soft, math.inf: spherical_student(perceptron(), size)})

    def measure(states: dict[float, Any], teacher: jax.Array) -> jax.Array:
        beliefs = [states[b].belief for b in (*betas, math.inf)]
        return jnp.stack([order_parameters(belief.mean, belief.scale**2, teacher) for belief in beliefs])

    one = simulation(*engines, measure, size, alphas)
    orders = bench.replicate("finite β", one, runs, 8)
    error = orders[..., 0]
    extra, last = error - error[..., -1:], error[:, -1].mean(0)
    at, grid, far = np.array(alphas), np.geomspace(0.1, 1e5, 91), np.array([1e9, 1e10])
    step = bona(at)
    lines = [
        Line("step, theory", grid, bona(grid).error * grid, kind="theory", group="step"),
        points("step, ADF", at, error[..., -1] * at, "step"),
    ]
    findings, notes = [], []
    for j, b in enumerate(betas):
        here, whole, end = (bona(a, beta=b) for a in (at, grid, far))
        label, entry = f"β = {b:g}", f"ADF, spherical, β = {b:g}"
        findings += order_findings(entry, alphas, orders[:, :, j], here)
        findings += [
            against_theory(f"error at α = {a:g}, above the step's on the same rows", entry, values, target)
            for a, values, target in zip(alphas, extra[..., j].T, here.error - step.error, strict=True)
        ]
        law = end.error[0] / bona_beta_law(far[0], b, end.length[0])
        what, why = "error at α = 10⁹, of its law c (β√Q)^(−1/4) α^(−3/4)", "the law's next term"
        findings.append(exact_finding(what, f"theory, {label}", law, 1.0, 0.01, why))
        lines.append(Line(f"{label}, theory", grid, whole.error * grid, kind="theory", group=label))
        lines.append(points(f"{label}, ADF", at, error[..., j] * at, label))
        notes.append(
            f"{label}: {100 * (here.error[-1] / step.error[-1] - 1):.0f}% more errors than the step at "
            f"α = {alphas[-1]:g} by theory, {100 * (last[j] / last[-1] - 1):.0f}% measured; at α = 10⁹ "
            f"the error falls as α^({math.log10(end.error[1] / end.error[0]):.3f})."
        )
    panel = Panel("Finite β on noise-free labels", "α", "error · α", tuple(lines), "xy")
    return Outcome(findings, [panel], notes, {"N": size, "runs": runs, "rows": round(alphas[-1] * size)})
