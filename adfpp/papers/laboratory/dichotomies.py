"""Barkai, Seung and Sompolinsky, On-line learning of dichotomies (1995): rules with a learning rate, and ADF beside.

The perceptron rules; thresholded smooth functions have a room of their own.
A rate η moves the weights by η/N, and α = rows / N, as in the paper.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

import adfpp
from adfpp.papers.baselines import (
    Annealed,
    Constant,
    Learner,
    Perceptron,
    Power,
    Schedule,
    ShiftedAnnealed,
    ShiftedPerceptron,
)
from adfpp.papers.laboratory.bench import Bench, Experiment, Found, along
from adfpp.papers.laboratory.dichotomies_smooth import exponent, smooth
from adfpp.papers.laboratory.record import Finding, Line, Panel, measured, points
from adfpp.papers.laboratory.students import adf_of, clean, disagreement, flipped, perceptron
from adfpp.papers.theory import dichotomies as theory
from adfpp.papers.theory.covariance import full_online
from adfpp.papers.theory.perceptron import (
    annealed_perceptron,
    annealed_perceptron_law,
    bayes_batch,
    bona,
    constant_rate_floor,
    output_noise_law,
)

PACE = math.sqrt(2.0 * math.pi)
SPHERICAL = "ADF, spherical"
FAR = np.array([1e2, 1e4, 1e6])  # α at which laws of large α are held

# ------------------------------------------------------------------------------------------ centred inputs


def students_of(
    rules: dict[str, Learner],
    size: int,
    rows: int,
    steps: int,
    start: float = 0.5,
    adf: tuple[str, ...] = (),
) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """One run: students of one noise-free teacher on the same rows.

    Args:
        rules: Those with a rate, which begin at one place.
        size: N.
        rows: Rows between two looks.
        steps: Looks.
        start: Error of the rules before any row.
        adf: Families of those without, which begin at the prior.

    Returns:
        From a key to the errors of each, ``(steps,)``.
    """
    parts = divided(rows, size)
    x, y = np.zeros((1, size)), np.zeros(1)
    beliefs = {f"ADF, {family}": adf_of(perceptron(), x, y, family=family) for family in adf}
    updates = {k: lambda s, data, r=r: r.update(s, data[0], y=data[1])[0] for k, r in rules.items()}
    updates |= {k: update for k, (_, update) in beliefs.items()}

    def one(rng_key: jax.Array) -> dict[str, jax.Array]:
        key_teacher, key_start, key_rows = jax.random.split(rng_key, 3)
        teacher = unit(jax.random.normal(key_teacher, (size,)))
        other = jax.random.normal(key_start, (size,))
        other = unit(other - (other @ teacher) * teacher)
        weights = math.cos(math.pi * start) * teacher + math.sin(math.pi * start) * other
        begun = {k: r.init(rng_key, x, weights=weights) for k, r in rules.items()}
        begun |= {k: state for k, (state, _) in beliefs.items()}

        def update(states: Any, data: tuple[jax.Array, jax.Array]) -> Any:
            return {k: go(states[k], data) for k, go in updates.items()}

        def measure(states: Any) -> Any:
            means = {k: s.kept.weights if k in rules else s.belief.mean for k, s in states.items()}
            return {k: disagreement(w, teacher) for k, w in means.items()}

        def draw(key: jax.Array, _: jax.Array) -> tuple[jax.Array, jax.Array]:
            return clean(teacher, key, rows // parts)

        seen = along(update, begun, draw, measure, key_rows, steps * parts)
        return {k: error[parts - 1 :: parts] for k, error in seen.items()}

    return one


def divided(rows: int, size: int) -> int:
    """Into how many parts, as few as can be, the rows between two looks are divided so that a part is soon drawn.

    Rows are drawn for all runs that are mapped: with a quarter of a million numbers a run, 32 runs take 64 MB.
    """
    return next(parts for parts in range(1, rows + 1) if rows % parts == 0 and rows // parts * size <= 250_000)


def unit(weights: jax.Array) -> jax.Array:
    """Of length 1."""
    return weights / jnp.linalg.norm(weights)


def tends(what: str, entry: str, found: Any, law: float, power: float) -> Finding:
    """A figure of an equation at two α, the later 100 times the other, against the law of the paper that it tends to.

    What is missing at the first falls by 100^(−power) to the second. Twice that is allowed, as higher orders may count
    at the first; and 1e-6 of the law for the solver, whose absolute tolerance is a quarter of that in an angle of 4/α.
    """
    near, far = (float(f) for f in found)
    tolerance = 2.0 * abs(near - law) * 100.0**-power + 1e-6 * law
    why = f"the next order at α = {FAR[-1]:,.0f}, judged by that at {FAR[-2]:,.0f}, and the solver's accuracy"
    return Finding(what, entry, far, paper=law, held="paper", tolerance=tolerance, why=why)


def constant(bench: Bench) -> Found:
    """Equations (4) and (5), with ADF on the rows of one student, and α^{−z} below and above z = 1."""
    size, runs, steps = bench.pick(250, 1000), bench.pick(16, 32), 16
    findings, lines, notes = [], [], []
    rates = bench.pick((0.25, 1.0), (0.25, 0.5, 1.0))
    for rate in rates:
        end = 8.0 * PACE / rate  # eight times the time of relaxation
        rows = 10 * round(end * size / steps / 10)
        alpha = np.arange(1, steps + 1) * rows / size
        floor, law = float(theory.constant_rate_error(rate)), float(constant_rate_floor(rate))
        beside = ("spherical",) if rate == min(rates) else ()
        name = f"η = {rate}"
        simulated = students_of({name: Perceptron(Constant(rate))}, size, rows, steps, 3.0 * floor, beside)
        found = bench.replicate(name, simulated, runs)
        error = found[name]
        curve = theory.normalised_perceptron(alpha, lambda _, rate=rate: rate, 3.0 * floor)
        findings.append(
            measured("e∞/η", name, error[:, -1] / rate, theory=floor / rate, paper=law / rate, held="theory")
        )
        at = 2  # between the start and one and a half times of relaxation
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
        for who in found.keys() - {name}:
            curve = bona(alpha).error
            what = f"error at α = {alpha[-1]:.0f}"
            findings.append(measured(what, who, found[who][:, -1], theory=float(curve[-1]), held="theory"))
            what = f"error less that of {name} at α = {alpha[-1]:.0f}"
            findings.append(measured(what, who, (found[who] - error)[:, -1], theory=0.0, held="below"))
            lines.append(Line(f"{who}, N → ∞", alpha, curve, kind="theory", group=who))
            lines.append(points(who, alpha, found[who]))
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
    return Found(findings + power[0], panels, notes + more, {"N": size, "runs": runs})


def powers(bench: Bench, size: int, runs: int) -> tuple[tuple[list[Finding], list[Line]], list[str]]:
    """The schedules α^{−z}."""
    rows, steps, cap = 4 * size, 16, 5.0
    alpha = np.arange(1, steps + 1) * rows / size
    schedules: dict[float, Schedule] = {z: Power(PACE, z, cap) for z in (0.5, 2.0)}
    rules: dict[str, Learner] = {f"z = {z}": Perceptron(s) for z, s in schedules.items()}
    found = bench.replicate("α^(−z)", students_of(rules, size, rows, steps, adf=("spherical",)), runs)
    findings, lines = [], []
    curves = {}
    for z in schedules:
        name = f"z = {z}"
        curve = curves[z] = theory.normalised_perceptron(alpha, capped(lambda a, z=z: PACE * a**-z, cap))
        lines += [
            Line(f"equation (4), {name}", alpha, curve, kind="theory", group=name),
            points(name, alpha, found[name]),
        ]
        for i in (3, steps - 1):
            what = f"error at α = {alpha[i]:.0f}"
            findings.append(measured(what, name, found[name][:, i], theory=curve[i], held="theory"))
    own = bona(alpha).error
    for i in (3, steps - 1):
        what = f"error at α = {alpha[i]:.0f}"
        findings.append(measured(what, SPHERICAL, found[SPHERICAL][:, i], theory=float(own[i]), held="theory"))
    lines.append(Line(f"{SPHERICAL}, N → ∞", alpha, own, kind="theory", group=SPHERICAL))
    lines.append(points(SPHERICAL, alpha, found[SPHERICAL]))
    followed = constant_rate_floor(PACE * alpha**-0.5)
    lines.append(Line("e∞(η(α))", alpha, followed, kind="theory", group="adiabatic"))
    moved = found["z = 2.0"][:, -1] - found["z = 2.0"][:, 3]
    late = curves[2.0][-1] - curves[2.0][3]
    what = f"change of the error from α = {alpha[3]:.0f} to {alpha[-1]:.0f}"
    findings.append(measured(what, "z = 2.0", moved, theory=late, held="theory"))
    notes = [
        f"z = 0.5 follows its rate: at α = {alpha[-1]:.0f} the error of (4) is "
        f"{curves[0.5][-1] / followed[-1]:.3f} times e∞(η(α)), to first order 1 + z α^(z−1) = "
        f"{1 + 0.5 * alpha[-1] ** -0.5:.3f}. z = 2 stops: by (4) it ends at "
        f"{theory.normalised_perceptron(1e5, capped(lambda a: PACE * a**-2.0, cap)):.4f} from a random start."
    ]
    return (findings, lines), notes


def capped(rate: Callable[[float], float], cap: float) -> Callable[[float], float]:
    """A rate, and no more than its cap."""
    return lambda alpha: min(rate(alpha), cap) if alpha > 0 else cap


def annealed(bench: Bench) -> Found:
    """Equation (6) at five rates, Figure 1, and ADF on Figure 1's rows."""
    size, runs, steps, cap = bench.pick(250, 1000), bench.pick(16, 32), 25, 2.0
    rates = (4.0, 2.0, 1.5, 1.0, 0.5)
    alpha = 4.0 * np.arange(1, steps + 1)
    rules: dict[str, Learner] = {f"η0 = {r:g}": Perceptron(Annealed(r, cap)) for r in rates}
    found = bench.replicate("equation 6", students_of(rules, size, 4 * size, steps, adf=("spherical",)), runs)
    findings, laws, lines, ratios = [], [], [], []
    for rate in rates:
        name = f"η0 = {rate:g}"
        own = capped(lambda a, rate=rate: rate * PACE / a, cap)
        curve = theory.normalised_perceptron(alpha, own)
        late = theory.normalised_perceptron(FAR, own)
        law = annealed_perceptron_law(alpha, rate) if rate >= 1 else late[-1] * (FAR[-1] / alpha) ** rate
        scaled, what = found[name][:, -1] * alpha[-1], f"e·α at α = {alpha[-1]:.0f}"
        findings.append(measured(what, name, scaled, theory=curve[-1] * alpha[-1], held="theory"))
        if rate < 1:
            wanted = math.log(curve[5] / curve[-1]) / math.log(alpha[-1] / alpha[5])
            what = f"exponent, α = {alpha[5]:.0f} to {alpha[-1]:.0f}"
            findings.append(exponent(what, name, found[name], alpha, 5, theory=wanted, paper=rate, held="theory"))
        laws.append(law_6(rate, late))
        ratios.append(f"{law[-1] / curve[-1]:.3f} at η0 = {rate:g}")
        lines += [
            Line(f"(4), {name}", alpha, curve, kind="theory", group=name),
            points(name, alpha[::4], found[name][:, ::4]),
            Line("law (6)" if rate == rates[-1] else "", alpha[-1:], law[-1:], kind="paper", group=name),
        ]
    notes = [f"Law (6) over equation (4), at α = {alpha[-1]:.0f}: {', '.join(ratios)}."]
    beside, own = found[SPHERICAL], bona(alpha).error
    what = f"e·α at α = {alpha[-1]:.0f}"
    findings.append(measured(what, SPHERICAL, beside[:, -1] * alpha[-1], theory=own[-1] * alpha[-1], held="theory"))
    lines.append(Line(f"{SPHERICAL}, N → ∞", alpha, own, kind="theory", group=SPHERICAL))
    lines.append(points(SPHERICAL, alpha[::4], beside[:, ::4]))
    figure, more = figure_1(bench)
    panels = [Panel("equation (6): η = η0 √(2π)/α", "α", "error", tuple(lines), "xy"), figure[1]]
    settings = {"N": size, "runs": runs} | figure[2]
    return Found(findings + laws + figure[0], panels, notes + more, settings)


def law_6(rate: float, late: np.ndarray) -> Finding:
    """Equation (4) at `FAR` against law (6): its factor, at η0 = 1 that of the logarithm, and below the exponent.

    What is left out is smaller by α^(1 − η0), or by α^(η0 − 1) below 1; and by α^−2, logarithms apart, where angles are
    not small.
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
    """N = 50, η0 = 2, and ADF with the noise-free step on the same rows."""
    size, runs, steps = 50, bench.pick(40, 400), bench.pick(25, 50)
    alpha = 4.0 * np.arange(1, steps + 1)
    students = students_of({"η0 = 2": Perceptron(Annealed(2.0))}, size, 4 * size, steps, adf=("spherical", "full"))
    found = bench.replicate("Figure 1", students, runs)
    correction = theory.annealed_spread(2.0) / size
    curves = {
        "η0 = 2": annealed_perceptron(alpha, 2.0, start=1.0 / size) * (1.0 - correction),  # from the first row on
        SPHERICAL: bona(alpha).error,
        "ADF, full": full_online(alpha).error,
    }
    findings, lines = [], []
    for name, curve in curves.items():
        lines.append(points(name, alpha, found[name]))
        rule = name == "η0 = 2"
        where = f"(4), N = {size}" if rule else f"{name}, N → ∞"
        lines.append(Line(where, alpha, curve, kind="theory", group=name))
        held: dict[str, Any] = {"paper": 4.0 / math.pi, "held": "theory"} if rule else {"why": "the curve is for N → ∞"}
        for i in (steps // 2, steps - 1):
            what, scaled = f"e·α at α = {alpha[i]:.0f}, N = {size}", found[name][:, i] * alpha[i]
            findings.append(measured(what, name, scaled, theory=curve[i] * alpha[i], **held))
    for better, worse in ((SPHERICAL, "η0 = 2"), ("ADF, full", SPHERICAL)):
        gap = (found[better] - found[worse])[:, -1] * alpha[-1]
        what = f"e·α less that of {worse} at α = {alpha[-1]:.0f}, N = {size}"
        findings.append(measured(what, better, gap, theory=0.0, held="below"))
    lines += [
        Line("1.27/α", alpha, 4.0 / math.pi / alpha, kind="paper", group="paper"),
        Line("batch Bayes, N → ∞", alpha, bayes_batch(alpha).error, kind="theory", group="Bayes"),
    ]
    batch = float(bayes_batch(alpha[-1]).error) * alpha[-1]
    full = found["ADF, full"][:, -1].mean() * alpha[-1]
    notes = [
        f"Figure 1 at α = {alpha[-1]:.0f}: e·α at the best schedule is {curves['η0 = 2'][-1] * alpha[-1]:.3f} by (4), "
        f"{100 * correction:.1f}% having been taken off for N = {size}, and tends to 4/π = {4 / math.pi:.3f} for "
        f"N → ∞. One pass of ADF with a full covariance, which has no schedule, reaches {full:.3f}; the batch Bayes "
        f"rule, for N → ∞, {batch:.3f}."
    ]
    panel = Panel(f"Figure 1, N = {size}", "α", "error", tuple(lines), "xy")
    return (findings, panel, {"N of Figure 1": size, "its runs": runs}), notes


# ------------------------------------------------------------------------------------------ output noise


def noise(bench: Bench) -> Found:
    """Figure 2: inputs off centre, one label in five turned over."""
    size, length, q0, flip = 250, 4.0, -1.95, 0.2
    runs, steps, rows = bench.pick(16, 32), bench.pick(15, 75), 4 * size
    alpha = 4.0 * np.arange(1, steps + 1)
    centre = np.zeros(size)
    centre[:2] = q0, math.sqrt(length**2 - q0**2)
    told = jnp.array([flip, 0.1, 0.3])
    plain, shifted = Perceptron(Annealed(2.0, 5.0)), ShiftedPerceptron(ShiftedAnnealed(q0))
    full, spherical = adfpp.ADF(flipped), adfpp.ADF(flipped, family="spherical")
    x, y = np.zeros((rows, size)), np.zeros(rows)
    beliefs = [a.init(jax.random.key(0), x, flip, y=y) for a in (full, spherical)]
    begun = [r.init(jax.random.key(0), x, weights=-centre) for r in (plain, shifted)]

    def draw(rng_key: jax.Array, _: jax.Array) -> tuple[jax.Array, jax.Array]:
        key_x, key_flip = jax.random.split(rng_key)
        x = jax.random.normal(key_x, (rows, size), jnp.float32) + centre
        return x, ((x[:, 0] > 0) ^ jax.random.bernoulli(key_flip, flip, (rows,))).astype(x.dtype)

    def update(states: Any, data: tuple[jax.Array, jax.Array]) -> Any:
        x, y = data
        folded = jax.vmap(lambda state, p: spherical.update(state, x, p, y=y)[0])(states[3], told)
        one = full.update(states[2], x, flip, y=y)[0]
        return plain.update(states[0], x, y=y)[0], shifted.update(states[1], x, y=y)[0], one, folded

    def measure(states: Any) -> jax.Array:
        w = jnp.stack([s.kept.weights for s in states[:2]] + [states[2].belief.mean, *states[3].belief.mean])
        return jnp.stack([w[:, 0], w @ centre]) / jnp.linalg.norm(w, axis=1)

    start = (*begun, beliefs[0], jax.tree.map(lambda a: jnp.stack([a] * len(told)), beliefs[1]))
    seen = bench.replicate("Figure 2", lambda key: along(update, start, draw, measure, key, steps), runs, 16)
    apart = theory.disagreement(seen[:, :, 0], seen[:, :, 1], q0)
    told_wrong = [f"ADF, spherical, told p = {p}" for p in (0.1, 0.3)]
    names = ("plain", "shifted", "ADF, full", SPHERICAL, *told_wrong)
    error = dict(zip(names, np.moveaxis(flip + (1 - 2 * flip) * apart, -1, 0), strict=True))

    rates = capped(lambda a: 2.0 * PACE / a, 5.0), capped(lambda a: PACE * math.exp(q0**2 / 2) / a, 0.3)
    first = (flip, length, q0, -q0 / length, -length)
    curves = {
        "plain": theory.output_noise(alpha, rates[0], *first, shift="none").error,
        "shifted": theory.output_noise(alpha, rates[1], *first, shift="learned").error,
    }
    known = theory.output_noise(alpha, rates[1], *first, shift="known")
    law, always = output_noise_law(alpha, flip), flip + (1 - 2 * flip) * float(norm.sf(abs(q0)))
    findings, lines = [], []
    looks = sorted({14, steps - 1})
    for name in names:
        curve = curves.get(name)
        for i in looks:
            held: dict[str, Any] = {} if curve is None else {"theory": curve[i], "held": "theory"}
            held["paper"] = {"plain": 0.32, "shifted": float(law[i])}.get(name)
            findings.append(measured(f"error at α = {alpha[i]:.0f}", name, error[name][:, i], **held))
        lines.append(points(name, alpha, error[name]))
        if curve is not None:
            lines.append(Line(f"{name}, N → ∞", alpha, curve, kind="theory", group=name))
    for name in names[2:]:
        gap, what = (error[name] - error["shifted"])[:, -1], f"error less that of shifted at α = {alpha[-1]:.0f}"
        findings.append(measured(what, name, gap, theory=0.0, held="below"))
    for name in (SPHERICAL, "ADF, full"):
        what = f"error at α = {alpha[-1]:.0f} against always −1"
        findings.append(measured(what, name, error[name][:, -1], theory=always, held="below"))
    wide = math.sqrt(2 * flip / math.pi)
    far = theory.output_noise(FAR[1:], rates[1], *first)
    excess = (far.error - flip) * np.sqrt(FAR[1:])
    differ = theory.output_noise(FAR[1:], rates[1], *first, shift="known").apart * np.sqrt(FAR[1:])
    # next, by 1/√α: the student's own mistakes stand beside p in the noise
    last = f"{FAR[-1]:,.0f}"
    findings.append(tends(f"excess over p times √α at α = {last}", "T learned, N → ∞", excess, wide, 0.5))
    findings.append(tends(f"probability to differ times √α at α = {last}", "T known, N → ∞", differ, wide, 0.5))
    lines += [
        Line("shifted, T known, N → ∞", alpha, known.error, kind="theory", group="known"),
        Line("law (18)", alpha, law, kind="paper", group="law"),
        Line("always −1", alpha[[0, -1]], np.array([always] * 2), kind="theory", group="always"),
    ]
    fine = np.arange(1.0, 301.0)
    peak = theory.output_noise(fine, rates[1], *first, shift="learned").error
    start = flip + (1 - 2 * flip) * float(theory.disagreement(first[3], first[4], q0))
    notes = [
        f"Errors are on noisy labels: p + (1 − 2p) times the probability to differ from the teacher, which R and q "
        f"give exactly. At α = {alpha[-1]:.0f} the shifted student differs with probability "
        f"{apart[:, -1, 1].mean():.4f}.",
        f"Law (18) is held against the equations at large α, as √(2p/π): of the error's excess over p when T is "
        f"learned, of the probability to differ when T is known. At α = {FAR[1]:,.0f} the two are at "
        f"{excess[0]:.4f} and {differ[0]:.4f}, still above {wide:.4f}.",
        f'Started at {start:.4f}, like "always −1", the shifted rule first gets worse: to '
        f"{error['shifted'].mean(0).max():.4f} at α = {alpha[error['shifted'].mean(0).argmax()]:.0f}, by the equations "
        f"{peak.max():.4f} at α = {fine[peak.argmax()]:.0f}, while it learns T. Its rate is at the cap until "
        f"α = {PACE * math.exp(q0**2 / 2) / 0.3:.0f}.",
        f"The rule without a shift ends, as η → 0, at {float(theory.output_noise_limit(flip, length, q0).error):.4f}.",
        f"Labels are so uneven that always answering −1 has an error of {always:.4f}. At α = {alpha[-1]:.0f} the "
        f"shifted rule is above it, at {error['shifted'][:, -1].mean():.4f}, and by law (18) it is "
        f"below from α = {2 * flip / math.pi / (always - flip) ** 2:.0f} on; full ADF is at "
        f"{error['ADF, full'][:, -1].mean():.4f}.",
    ]
    panel = Panel("Figure 2: p = 0.2, |U| = 4, q0 = −1.95", "α", "error on noisy labels", tuple(lines))
    return Found(findings, [panel], notes, {"N": size, "runs": runs})


EXPERIMENTS = (
    Experiment("dichotomies-constant", "Perceptron at a constant rate, and at α^(−z)", "equations (4), (5)", constant),
    Experiment("dichotomies-annealed", "Perceptron at η0 √(2π)/α, and ADF beside", "equation (6), Figure 1", annealed),
    Experiment("dichotomies-noise", "Labels turned over, inputs off centre", "Figure 2, equations (7)-(18)", noise),
    Experiment("dichotomies-smooth", "Thresholded smooth functions", "equations (19)-(27)", smooth),
)
