"""Figure 1 of the letter, the learning curve; and equation (22), corrected and as printed."""

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
    spherical_student,
)
from adfpp.papers.laboratory.record import Finding, Line, Panel, against_theory, mean_and_error, points
from adfpp.papers.laboratory.students import clean_rows, disagreement, perceptron
from adfpp.papers.theory import perceptron as theory
from adfpp.papers.theory.bona import bona, bona_drift

MARKS = np.array([1.0, 2.0, 5.0, 10.0, 50.0, 1000.0])
PRINTED, CORRECTED = "(22) as printed", "(22) corrected"
DIGITS = "the two digits that the letter prints"


def curve(bench: Bench) -> Outcome:
    """Figure 1 and all four order parameters, by ADF."""
    size, runs = bench.pick(1000, 2000), bench.pick(32, 64)
    alphas = bench.pick((1.0, 2.0, 5.0, 10.0), (1.0, 2.0, 5.0, 10.0, 20.0, 50.0))

    def measure(state: Any, teacher: Any) -> jax.Array:
        return order_parameters(state.belief.mean, state.belief.scale**2, teacher)

    one = simulation(*spherical_student(perceptron(), size), measure, size, alphas)
    orders = bench.replicate("spherical ADF", one, runs, 16)
    at, error = np.array(alphas), orders[..., 0]
    corrected, printed = bona(at), bona(at, as_printed=True)
    on_curve = order_findings("ADF, spherical", alphas, orders, corrected)
    against = [
        against_theory(f"error at α = {a:g}", f"ADF, spherical, against {PRINTED}", values, target, held="below")
        for a, values, target in zip(alphas, error.T, printed.error, strict=True)
    ]
    grid, late = np.geomspace(0.1, 1000.0, 81), np.array([30.0, 100.0, 300.0, 1000.0])
    right, wrong = bona(grid), bona(grid, as_printed=True)
    figure = (
        Line("error, theory", grid, right.error, kind="theory", group="e"),
        points("error, ADF", at, error, "e"),
        Line("ζ, theory", grid, right.width, kind="theory", group="z"),
        points("ζ, ADF", at, orders[..., 2], "z"),
        Line("letter: 0.88/α", late, 0.88 / late, kind="paper"),
    )
    both = (
        Line(CORRECTED, grid, right.error * grid, kind="theory", group="e"),
        points("ADF", at, error * at, "e"),
        Line(PRINTED, grid, wrong.error * grid, kind="theory"),
        Line("letter: 0.88/α", late, np.full(4, 0.88), kind="paper"),
    )
    panels = [Panel("Figure 1", "α", "error, ζ", figure, "xy"), Panel("The erratum", "α", "error · α", both, "xy")]
    notes = [
        f"error · α along the corrected equations is {', '.join(f'{v:.4f}' for v in bona(MARKS).error * MARKS)} "
        f"at α = {', '.join(f'{a:g}' for a in MARKS)}; with (22) as printed it is {wrong.error[-1] * 1000:.2f} at "
        f"α = 1000 and still rises. ζ α² is {right.width[-1] * 1e6:.2f} at α = 1000.",
        f"The engine is within {max(abs(f.z or 0) for f in on_curve):.1f} standard errors of the corrected curve, and "
        f"at least {min(-(f.z or 0) for f in against):.0f} below the errors that the printed equation gives.",
    ]
    settings = {"N": size, "runs": runs, "rows": round(alphas[-1] * size)}
    return Outcome([*on_curve, *against, *constants()], panels, notes, settings)


def constants() -> list[Finding]:
    """Compares the order-parameter equations with another derivation of them, and with the letter's constant."""
    right, best = bona(MARKS), theory.optimal_online(MARKS)
    why = "the integrators' own errors; theory is dq̂/dα = I(q), the optimum of Kinouchi and Caticha"
    findings = [
        exact_finding(f"error · α at α = {a:g}", CORRECTED, e, other, 1e-6, why)
        for a, e, other in zip(MARKS, right.error * MARKS, best.error * MARKS, strict=True)
    ]
    width, gap = 1e6 * right.width[-1], 1e6 * (1.0 - best.overlap[-1])
    square = exact_finding("ζ · α² at α = 1000", CORRECTED, width, gap, 1e-4, why)
    last = "error · α at α = 1000, in the letter"
    wrong = float(bona(1000.0, as_printed=True).error * 1000.0)
    letter = Finding(last, CORRECTED, findings[-1].value, paper=0.88, held="paper", tolerance=5e-3, why=DIGITS)
    misprint = Finding(last, PRINTED, wrong, paper=0.88, why="the misprint: no constant")
    return [*findings, square, letter, misprint]


def erratum(bench: Bench) -> Outcome:
    """The change of ρ by one row, in states on the curve, compared with (22) corrected and as printed."""
    size, rows, alphas = 1000, bench.pick(16_000, 128_000), (0.5, 2.0, 10.0, 50.0)
    start, update = spherical_student(perceptron(), size, 1)
    states = theory.optimal_online(np.array(alphas))
    teacher = jnp.zeros(size).at[0].set(1.0)

    def one(key: jax.Array) -> jax.Array:
        row = clean_rows(teacher, key, 1)

        def gained(length: float, width: float, angle: float) -> jax.Array:
            mean = jnp.zeros(size).at[0].set(jnp.cos(angle)).at[1].set(jnp.sin(angle)) * jnp.sqrt(size * length)
            belief = start.belief._replace(mean=mean, scale=jnp.sqrt(width))
            after = update(start._replace(belief=belief), row).belief.mean
            return size * (jnp.cos(disagreement(after, teacher) * math.pi) - jnp.cos(angle))

        return jnp.stack([gained(q, 1.0 - q, math.pi * e) for q, e in zip(states.overlap, states.error, strict=True)])

    changes, at = bench.replicate("one row", one, rows, 1000), np.array(alphas)
    value, se = mean_and_error(changes)
    slopes = [gain(states, as_printed) for as_printed in (False, True)]
    findings = [
        against_theory(f"dρ/dα at α = {a:g}", f"ADF, one row, against {name}", values, slope, held=kind)
        for a, values, *both in zip(alphas, changes.T, *slopes, strict=True)
        for name, slope, kind in zip((CORRECTED, PRINTED), both, ("theory", "above"), strict=True)
    ]
    grid = np.geomspace(0.1, 100.0, 41)
    there = theory.optimal_online(grid)
    lines = [
        Line(name, grid, grid * gain(there, as_printed), kind="theory", group=name)
        for name, as_printed in ((CORRECTED, False), (PRINTED, True))
    ]
    row_points = points("ADF, one row", at, changes * at, CORRECTED)
    notes = [
        f"The mean change of ρ by one row, times N = {size}, over {rows} rows at each of {len(alphas)} states on the "
        f"corrected curve: {', '.join(f'{v:.3g} ± {s:.1g}' for v, s in zip(value, se, strict=True))}. The printed "
        f"equation says {', '.join(f'{v:.3g}' for v in slopes[1])}: on this curve, where Q = ρ² and ζ = 1 − Q, its "
        "two terms cancel, and a student on it would not gain by the next row."
    ]
    panel = Panel("What a row gains, on the corrected curve", "α", "α dρ/dα", (*lines, row_points), "x")
    return Outcome(findings, [panel], notes, {"N": size, "rows": rows})


def gain(states: theory.Curve, as_printed: bool) -> np.ndarray:
    """dρ/dα in some states of a curve on which Q = ρ² and ζ = 1 − Q."""
    angles = math.pi * states.error
    drifts = [
        bona_drift(q, 1.0 - q, angle, as_printed=as_printed).angle
        for q, angle in zip(states.overlap, angles, strict=True)
    ]
    return np.round(-np.sin(angles) * drifts, 12) + 0.0  # (22) as printed gives 0 up to rounding errors
