"""Perceptron rules with a learning rate on centred inputs and clean labels, and ADF on the same rows."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from adfpp.papers.baselines import (
    Annealed,
    Constant,
    Learner,
    Perceptron,
    Power,
    Schedule,
)
from adfpp.papers.baselines.linear import unit
from adfpp.papers.laboratory.bench import Bench, Outcome, learn_stream
from adfpp.papers.laboratory.dichotomies.laws import FAR, PACE, SPHERICAL, capped, exponent, tends
from adfpp.papers.laboratory.record import Finding, Line, Panel, measured, points
from adfpp.papers.laboratory.students import Rows, adf_student, clean_rows, disagreement, perceptron, weights_of
from adfpp.papers.theory import dichotomies as theory
from adfpp.papers.theory.bona import bona
from adfpp.papers.theory.covariance import full_online
from adfpp.papers.theory.perceptron import (
    annealed_perceptron,
    annealed_perceptron_law,
    bayes_batch,
    constant_rate_floor,
)


def students_of(
    rules: dict[str, Learner],
    size: int,
    rows: int,
    steps: int,
    start: float = 0.5,
    adf: tuple[str, ...] = (),
) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """A simulation for `Bench.replicate`: students of one noise-free teacher on the same rows.

    Args:
        rules: Rules with a learning rate, which all start from the same weights.
        size: N.
        rows: Rows between two measurements.
        steps: Number of measurements.
        start: Error of the rules before any row.
        adf: Families of ADF, which start from the prior.

    Returns:
        A function from a key to the errors of each student, ``(steps,)``.
    """
    parts = parts_of(rows, size)
    x, y = np.zeros((1, size)), np.zeros(1)
    beliefs = {f"ADF, {family}": adf_student(perceptron(), x, y, family=family) for family in adf}
    updates = {k: lambda s, data, r=r: r.update(s, data[0], y=data[1])[0] for k, r in rules.items()}
    updates |= {k: update for k, (_, update) in beliefs.items()}

    def one(rng_key: jax.Array) -> dict[str, jax.Array]:
        key_teacher, key_start, key_rows = jax.random.split(rng_key, 3)
        teacher = unit(jax.random.normal(key_teacher, (size,)))
        other = jax.random.normal(key_start, (size,))
        other = unit(other - (other @ teacher) * teacher)
        weights = math.cos(math.pi * start) * teacher + math.sin(math.pi * start) * other
        initial = {k: r.init(rng_key, x, weights=weights) for k, r in rules.items()}
        initial |= {k: state for k, (state, _) in beliefs.items()}

        def update(states: dict[str, Any], data: Rows) -> dict[str, Any]:
            return {k: learn(states[k], data) for k, learn in updates.items()}

        def measure(states: dict[str, Any]) -> dict[str, jax.Array]:
            return {k: disagreement(weights_of(state), teacher) for k, state in states.items()}

        def draw(key: jax.Array, _: jax.Array) -> Rows:
            return clean_rows(teacher, key, rows // parts)

        errors = learn_stream(update, initial, draw, measure, key_rows, steps * parts)
        return {k: error[parts - 1 :: parts] for k, error in errors.items()}

    return one


def parts_of(rows: int, size: int) -> int:
    """The least number of equal parts of the rows between two measurements such that a part fits into memory.

    Rows are drawn for all runs that are mapped: with a quarter of a million numbers in a run, 32 runs take 64 MB.
    """
    return next(parts for parts in range(1, rows + 1) if rows % parts == 0 and rows // parts * size <= 250_000)


def constant(bench: Bench) -> Outcome:
    """Equations (4) and (5), with ADF on the rows of one student; and rates α^{−z} with z below and above 1."""
    size, runs, steps = bench.pick(250, 1000), bench.pick(16, 32), 16
    findings, lines, notes = [], [], []
    rates = bench.pick((0.25, 1.0), (0.25, 0.5, 1.0))
    for rate in rates:
        end = 8.0 * PACE / rate  # eight relaxation times: exp(−8) of the start remains
        rows = 10 * round(end * size / steps / 10)
        alpha = np.arange(1, steps + 1) * rows / size
        floor, law = float(theory.constant_rate_error(rate)), float(constant_rate_floor(rate))
        families = ("spherical",) if rate == min(rates) else ()
        name = f"η = {rate}"
        simulated = students_of({name: Perceptron(Constant(rate))}, size, rows, steps, 3.0 * floor, families)
        errors = bench.replicate(name, simulated, runs)
        error = errors[name]
        curve = theory.normalised_perceptron(alpha, lambda _, rate=rate: rate, 3.0 * floor)
        findings.append(
            measured("e∞/η", name, error[:, -1] / rate, theory=floor / rate, paper=law / rate, held="theory")
        )
        at = 2  # from the start to one and a half relaxation times
        left = error[:, at].mean() - floor
        logs = math.log(left / (2.0 * floor)) + (error[:, at] - error[:, at].mean()) / left  # the delta method
        pace = -PACE / rate / alpha[at]
        wanted = pace * math.log((curve[at] - floor) / (2.0 * floor))
        what = "rate of approach, in units of η/√(2π)"
        findings.append(measured(what, name, pace * logs, theory=wanted, paper=1.0, held="theory"))
        lines += [
            Line(f"equation (4), {name}", alpha, curve, kind="theory", group=name),
            points(name, alpha, error),
            Line("equation (5)" if rate == 1.0 else "", alpha[-1:], np.array([law]), kind="paper", group=name),
        ]
        for who in errors.keys() - {name}:
            curve = bona(alpha).error
            what = f"error at α = {alpha[-1]:.0f}"
            findings.append(measured(what, who, errors[who][:, -1], theory=float(curve[-1]), held="theory"))
            what = f"error less that of {name} at α = {alpha[-1]:.0f}"
            findings.append(measured(what, who, (errors[who] - error)[:, -1], theory=0.0, held="below"))
            lines.append(Line(f"{who}, N → ∞", alpha, curve, kind="theory", group=who))
            lines.append(points(who, alpha, errors[who]))
    ends = {rate: float(theory.constant_rate_error(rate) / constant_rate_floor(rate)) for rate in (0.25, 1.0)}
    notes.append(
        f"Law (5) is for small η: the fixed point of (4) lies {100 * (1 - ends[0.25]):.1f}% below it at η = 0.25 and "
        f"{100 * (1 - ends[1.0]):.1f}% at η = 1."
    )
    power, more = powers(bench, size, runs)
    panels = [
        Panel("constant η", "α", "error", tuple(lines), "y"),
        Panel("η = √(2π) α^(−z)", "α", "error", tuple(power[1]), "xy"),
    ]
    return Outcome(findings + power[0], panels, notes + more, {"N": size, "runs": runs})


def powers(bench: Bench, size: int, runs: int) -> tuple[tuple[list[Finding], list[Line]], list[str]]:
    """Figures, curves and notes of the schedules α^{−z}."""
    rows, steps, cap = 4 * size, 16, 5.0
    alpha = np.arange(1, steps + 1) * rows / size
    schedules: dict[float, Schedule] = {z: Power(PACE, z, cap) for z in (0.5, 2.0)}
    rules: dict[str, Learner] = {f"z = {z}": Perceptron(s) for z, s in schedules.items()}
    errors = bench.replicate("α^(−z)", students_of(rules, size, rows, steps, adf=("spherical",)), runs)
    findings, lines = [], []
    curves = {}
    for z in schedules:
        name = f"z = {z}"
        curve = curves[z] = theory.normalised_perceptron(alpha, capped(lambda a, z=z: PACE * a**-z, cap))
        lines += [
            Line(f"equation (4), {name}", alpha, curve, kind="theory", group=name),
            points(name, alpha, errors[name]),
        ]
        for i in (3, steps - 1):
            what = f"error at α = {alpha[i]:.0f}"
            findings.append(measured(what, name, errors[name][:, i], theory=curve[i], held="theory"))
    spherical = bona(alpha).error
    for i in (3, steps - 1):
        what = f"error at α = {alpha[i]:.0f}"
        findings.append(measured(what, SPHERICAL, errors[SPHERICAL][:, i], theory=float(spherical[i]), held="theory"))
    lines.append(Line(f"{SPHERICAL}, N → ∞", alpha, spherical, kind="theory", group=SPHERICAL))
    lines.append(points(SPHERICAL, alpha, errors[SPHERICAL]))
    adiabatic = constant_rate_floor(PACE * alpha**-0.5)
    lines.append(Line("e∞(η(α))", alpha, adiabatic, kind="theory", group="adiabatic"))
    moved = errors["z = 2.0"][:, -1] - errors["z = 2.0"][:, 3]
    late = curves[2.0][-1] - curves[2.0][3]
    what = f"change of the error from α = {alpha[3]:.0f} to {alpha[-1]:.0f}"
    findings.append(measured(what, "z = 2.0", moved, theory=late, held="theory"))
    notes = [
        f"z = 0.5 follows its rate: at α = {alpha[-1]:.0f} the error of (4) is "
        f"{curves[0.5][-1] / adiabatic[-1]:.3f} times e∞(η(α)), to first order 1 + z α^(z−1) = "
        f"{1 + 0.5 * alpha[-1] ** -0.5:.3f}. z = 2 stops: by (4) it ends at "
        f"{theory.normalised_perceptron(1e5, capped(lambda a: PACE * a**-2.0, cap)):.4f} from a random start."
    ]
    return (findings, lines), notes


def annealed(bench: Bench) -> Outcome:
    """Equation (6) at five rates, Figure 1, and ADF on Figure 1's rows."""
    size, runs, steps, cap = bench.pick(250, 1000), bench.pick(16, 32), 25, 2.0
    rates = (4.0, 2.0, 1.5, 1.0, 0.5)
    alpha = 4.0 * np.arange(1, steps + 1)
    rules: dict[str, Learner] = {f"η0 = {r:g}": Perceptron(Annealed(r, cap)) for r in rates}
    errors = bench.replicate("equation 6", students_of(rules, size, 4 * size, steps, adf=("spherical",)), runs)
    findings, laws, lines, ratios = [], [], [], []
    for rate in rates:
        name = f"η0 = {rate:g}"
        schedule = capped(lambda a, rate=rate: rate * PACE / a, cap)
        curve = theory.normalised_perceptron(alpha, schedule)
        late = theory.normalised_perceptron(FAR, schedule)
        law = annealed_perceptron_law(alpha, rate) if rate >= 1 else late[-1] * (FAR[-1] / alpha) ** rate
        scaled, what = errors[name][:, -1] * alpha[-1], f"e·α at α = {alpha[-1]:.0f}"
        findings.append(measured(what, name, scaled, theory=curve[-1] * alpha[-1], held="theory"))
        if rate < 1:
            wanted = math.log(curve[5] / curve[-1]) / math.log(alpha[-1] / alpha[5])
            what = f"exponent, α = {alpha[5]:.0f} to {alpha[-1]:.0f}"
            findings.append(exponent(what, name, errors[name], alpha, 5, theory=wanted, paper=rate, held="theory"))
        laws.append(law_6(rate, late))
        ratios.append(f"{law[-1] / curve[-1]:.3f} at η0 = {rate:g}")
        lines += [
            Line(f"(4), {name}", alpha, curve, kind="theory", group=name),
            points(name, alpha[::4], errors[name][:, ::4]),
            Line("law (6)" if rate == rates[-1] else "", alpha[-1:], law[-1:], kind="paper", group=name),
        ]
    notes = [f"Law (6) over equation (4), at α = {alpha[-1]:.0f}: {', '.join(ratios)}."]
    error, spherical = errors[SPHERICAL], bona(alpha).error
    what = f"e·α at α = {alpha[-1]:.0f}"
    findings.append(
        measured(what, SPHERICAL, error[:, -1] * alpha[-1], theory=spherical[-1] * alpha[-1], held="theory")
    )
    lines.append(Line(f"{SPHERICAL}, N → ∞", alpha, spherical, kind="theory", group=SPHERICAL))
    lines.append(points(SPHERICAL, alpha[::4], error[:, ::4]))
    figure, more = figure_1(bench)
    panels = [Panel("equation (6): η = η0 √(2π)/α", "α", "error", tuple(lines), "xy"), figure[1]]
    settings = {"N": size, "runs": runs} | figure[2]
    return Outcome(findings + laws + figure[0], panels, notes + more, settings)


def law_6(rate: float, late: np.ndarray) -> Finding:
    """Equation (4) at `FAR`, compared with law (6).

    The compared figure is the factor of the law for η0 > 1, the factor of the logarithm at η0 = 1, and the exponent for
    η0 < 1. The neglected terms are smaller by α^(1 − η0), or by α^(η0 − 1) for η0 < 1; and by α^−2, up to logarithms,
    because angles are not small.

    Args:
        rate: η0.
        late: Errors of equation (4) at `FAR`.
    """
    name, last = f"(4), η0 = {rate:g}", f"{FAR[-1]:,.0f}"
    scaled, logs = late * FAR, np.diff(np.log(FAR))
    if rate > 1:
        law = float(annealed_perceptron_law(1.0, rate))
        return tends(f"e·α at α = {last}", name, scaled[1:], law, min(rate - 1.0, 2.0))
    if rate == 1:
        slope = np.diff(scaled) / logs
        return tends(f"change of e·α with ln α, up to α = {last}", name, slope, 1.0 / math.pi, 2.0)
    power = -np.diff(np.log(late)) / logs
    return tends(f"exponent, up to α = {last}", name, power, rate, 1.0 - rate)


def figure_1(bench: Bench) -> tuple[tuple[list[Finding], Panel, dict[str, Any]], list[str]]:
    """Figure 1: N = 50, η0 = 2, and ADF with the noise-free step on the same rows."""
    size, runs, steps = 50, bench.pick(40, 400), bench.pick(25, 50)
    alpha = 4.0 * np.arange(1, steps + 1)
    students = students_of({"η0 = 2": Perceptron(Annealed(2.0))}, size, 4 * size, steps, adf=("spherical", "full"))
    errors = bench.replicate("Figure 1", students, runs)
    correction = theory.annealed_spread(2.0) / size
    curves = {
        "η0 = 2": annealed_perceptron(alpha, 2.0, start=1.0 / size) * (1.0 - correction),  # from the first row on
        SPHERICAL: bona(alpha).error,
        "ADF, full": full_online(alpha).error,
    }
    findings, lines = [], []
    for name, curve in curves.items():
        lines.append(points(name, alpha, errors[name]))
        rule = name == "η0 = 2"
        where = f"(4), N = {size}" if rule else f"{name}, N → ∞"
        lines.append(Line(where, alpha, curve, kind="theory", group=name))
        fields: dict[str, Any] = (
            {"paper": 4.0 / math.pi, "held": "theory"} if rule else {"why": "the curve is for N → ∞"}
        )
        for i in (steps // 2, steps - 1):
            what, scaled = f"e·α at α = {alpha[i]:.0f}, N = {size}", errors[name][:, i] * alpha[i]
            findings.append(measured(what, name, scaled, theory=curve[i] * alpha[i], **fields))
    for better, worse in ((SPHERICAL, "η0 = 2"), ("ADF, full", SPHERICAL)):
        gap = (errors[better] - errors[worse])[:, -1] * alpha[-1]
        what = f"e·α less that of {worse} at α = {alpha[-1]:.0f}, N = {size}"
        findings.append(measured(what, better, gap, theory=0.0, held="below"))
    lines += [
        Line("1.27/α", alpha, 4.0 / math.pi / alpha, kind="paper", group="paper"),
        Line("batch Bayes, N → ∞", alpha, bayes_batch(alpha).error, kind="theory", group="Bayes"),
    ]
    batch = float(bayes_batch(alpha[-1]).error) * alpha[-1]
    full = errors["ADF, full"][:, -1].mean() * alpha[-1]
    notes = [
        f"Figure 1 at α = {alpha[-1]:.0f}: e·α at the best schedule is {curves['η0 = 2'][-1] * alpha[-1]:.3f} by (4), "
        f"{100 * correction:.1f}% having been taken off for N = {size}, and tends to 4/π = {4 / math.pi:.3f} for "
        f"N → ∞. One pass of ADF with a full covariance, which has no schedule, reaches {full:.3f}; the batch Bayes "
        f"rule, for N → ∞, {batch:.3f}."
    ]
    panel = Panel(f"Figure 1, N = {size}", "α", "error", tuple(lines), "xy")
    return (findings, panel, {"N of Figure 1": size, "its runs": runs}), notes
