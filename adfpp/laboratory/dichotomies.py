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
import numpyro
import numpyro.distributions as dist
from scipy.stats import norm

import adfpp
from adfpp.baselines import (
    Annealed,
    Constant,
    Learner,
    Perceptron,
    Power,
    Schedule,
    ShiftedAnnealed,
    ShiftedPerceptron,
)
from adfpp.distributions import Probit
from adfpp.laboratory.bench import Bench, Experiment, Found, along
from adfpp.laboratory.dichotomies_smooth import average, smooth
from adfpp.laboratory.record import Finding, Line, Panel, mean_and_error
from adfpp.laboratory.students import adf_of, disagreement, perceptron
from adfpp.theory import dichotomies as theory
from adfpp.theory.covariance import full_online
from adfpp.theory.perceptron import (
    annealed_perceptron,
    annealed_perceptron_law,
    bayes_batch,
    bona,
    constant_rate_floor,
    output_noise_law,
)

Array = Any
PACE = math.sqrt(2.0 * math.pi)

# ------------------------------------------------------------------------------------------ centred inputs


def students_of(
    rules: dict[str, Learner], size: int, rows: int, steps: int, start: float = 0.5
) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """One run: students of one noise-free teacher on the same rows, from the same start.

    Args:
        rules: The students.
        size: N.
        rows: Rows between two looks.
        steps: Looks.
        start: Their error before any row.

    Returns:
        From a key to the errors of each, ``(steps,)``.
    """

    def one(rng_key: jax.Array) -> dict[str, jax.Array]:
        key_teacher, key_start, key_rows = jax.random.split(rng_key, 3)
        teacher = unit(jax.random.normal(key_teacher, (size,)))
        other = jax.random.normal(key_start, (size,))
        other = unit(other - (other @ teacher) * teacher)
        weights = math.cos(math.pi * start) * teacher + math.sin(math.pi * start) * other
        begun = {k: r.init(rng_key, jnp.zeros((1, size)), weights=weights) for k, r in rules.items()}

        def update(states: Any, data: tuple[jax.Array, jax.Array]) -> Any:
            return {k: r.update(states[k], data[0], y=data[1])[0] for k, r in rules.items()}

        def measure(states: Any) -> Any:
            return {k: disagreement(s.kept.weights, teacher) for k, s in states.items()}

        return along(update, begun, lambda key, _: clean(teacher, key, rows), measure, key_rows, steps)

    return one


def clean(teacher: jax.Array, rng_key: jax.Array, rows: int) -> tuple[jax.Array, jax.Array]:
    """Standard normal inputs, drawn in single precision, and a teacher's labels."""
    x = normals(rng_key, (rows, teacher.size))
    return x, (x @ teacher > 0).astype(x.dtype)


def normals(rng_key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard normal numbers of 24 bits, which are drawn in half the time, as numbers of double precision."""
    return jax.random.normal(rng_key, shape, jnp.float32).astype(float)


def unit(weights: jax.Array) -> jax.Array:
    """Of length 1."""
    return weights / jnp.linalg.norm(weights)


def constant(bench: Bench) -> Found:
    """Equations (4) and (5), and α^{−z} below and above z = 1."""
    size, runs, steps = bench.pick(250, 1000), bench.pick(16, 32), 16
    findings, lines, notes = [], [], []
    for rate in bench.pick((0.25, 1.0), (0.25, 0.5, 1.0)):
        end = 8.0 * PACE / rate  # eight times the time of relaxation
        rows = round(end * size / steps)
        alpha = np.arange(1, steps + 1) * rows / size
        floor, law = float(theory.constant_rate_error(rate)), float(constant_rate_floor(rate))
        simulated = students_of({"plain": Perceptron(Constant(rate))}, size, rows, steps, 3.0 * floor)
        error, se = mean_and_error(bench.replicate(f"η = {rate}", simulated, runs)["plain"])
        curve = theory.normalised_perceptron(alpha, lambda _, rate=rate: rate, 3.0 * floor)
        name = f"η = {rate}"
        findings.append(Finding("e∞/η", name, error[-1] / rate, se[-1] / rate, floor / rate, law / rate, "theory"))
        # between the start and one and a half times of relaxation
        at = 2
        found = -math.log((error[at] - floor) / (2.0 * floor)) / alpha[at] * PACE / rate
        wanted = -math.log((curve[at] - floor) / (2.0 * floor)) / alpha[at] * PACE / rate
        doubt = se[at] / (error[at] - floor) / alpha[at] * PACE / rate
        findings.append(Finding("rate of approach, in units of η/√(2π)", name, found, doubt, wanted, 1.0, "theory"))
        lines += [
            Line(f"equation (4), {name}", alpha, curve, kind="theory", group=name),
            Line(name, alpha, error, se, group=name),
            Line("equation (5)" if rate == 1.0 else "", alpha[-1:], np.array([law]), kind="paper", group=name),
        ]
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
    found = bench.replicate("α^(−z)", students_of(rules, size, rows, steps), runs)
    findings, lines = [], []
    curves = {}
    for z in schedules:
        name = f"z = {z}"
        error, se = mean_and_error(found[name])
        curve = curves[z] = theory.normalised_perceptron(alpha, capped(lambda a, z=z: PACE * a**-z, cap))
        lines += [
            Line(f"equation (4), {name}", alpha, curve, kind="theory", group=name),
            Line(name, alpha, error, se, group=name),
        ]
        for i in (3, steps - 1):
            findings.append(Finding(f"error at α = {alpha[i]:.0f}", name, error[i], se[i], curve[i], held="theory"))
    followed = constant_rate_floor(PACE * alpha**-0.5)
    lines.append(Line("e∞(η(α))", alpha, followed, kind="theory", group="adiabatic"))
    moved, doubt = average(found["z = 2.0"][:, -1] - found["z = 2.0"][:, 3])
    late = curves[2.0][-1] - curves[2.0][3]
    what = f"change of the error from α = {alpha[3]:.0f} to {alpha[-1]:.0f}"
    findings.append(Finding(what, "z = 2.0", moved, doubt, late, held="theory"))
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
    found = bench.replicate("equation 6", students_of(rules, size, 4 * size, steps), runs)
    findings, lines, notes = [], [], []
    for rate in rates:
        name = f"η0 = {rate:g}"
        error, se = mean_and_error(found[name])
        own = capped(lambda a, rate=rate: rate * PACE / a, cap)
        curve = theory.normalised_perceptron(alpha, own)
        late = theory.normalised_perceptron(np.array([5e3, 1e4]), own)
        law = annealed_perceptron_law(alpha, rate) if rate >= 1 else late[1] * (1e4 / alpha) ** rate
        what = f"e·α at α = {alpha[-1]:.0f}"
        findings.append(
            Finding(what, name, error[-1] * alpha[-1], se[-1] * alpha[-1], curve[-1] * alpha[-1], held="theory")
        )
        notes.append(f"η0 = {rate:g}: law (6) over equation (4) is {law[-1] / curve[-1]:.3f} at α = {alpha[-1]:.0f}.")
        lines += [
            Line(f"(4), {name}", alpha, curve, kind="theory", group=name),
            Line(name, alpha[::4], error[::4], se[::4], group=name),
            Line("law (6)" if rate == rates[-1] else "", alpha[-1:], law[-1:], kind="paper", group=name),
        ]
        if rate < 1:
            where = (5, steps - 1)
            first, last = error[list(where)]
            span = math.log(alpha[where[1]] / alpha[where[0]])
            doubt = average(found[name][:, where[1]] / last - found[name][:, where[0]] / first)[1] / span
            wanted = math.log(curve[where[0]] / curve[where[1]]) / span
            findings.append(
                Finding("exponent of the error", name, math.log(first / last) / span, doubt, wanted, rate, "theory")
            )
    figure, more = figure_1(bench)
    panels = [Panel("equation (6): η = η0 √(2π)/α", "α", "error", tuple(lines), "xy"), figure[1]]
    settings = {"N": size, "runs": runs} | figure[2]
    return Found(findings + figure[0], panels, notes + more, settings)


def figure_1(bench: Bench) -> tuple[tuple[list[Finding], Panel, dict[str, Any]], list[str]]:
    """N = 50, η0 = 2, and ADF with the noise-free step on the same rows."""
    size, runs, steps = 50, bench.pick(40, 400), bench.pick(25, 50)
    rows, alpha = 4 * size, 4.0 * np.arange(1, steps + 1)
    rule = Perceptron(Annealed(2.0))
    x, y = np.zeros((rows, size)), np.zeros(rows)
    adf = {f: adf_of(perceptron(), x, y, family=f) for f in ("spherical", "full")}

    def one(rng_key: jax.Array) -> dict[str, jax.Array]:
        key_teacher, key_start, key_rows = jax.random.split(rng_key, 3)
        teacher = unit(jax.random.normal(key_teacher, (size,)))
        begun = {"η0 = 2": rule.init(key_start, jnp.zeros((1, size)))} | {f"ADF, {f}": s for f, (s, _) in adf.items()}

        def update(states: Any, data: tuple[jax.Array, jax.Array]) -> Any:
            new = {"η0 = 2": rule.update(states["η0 = 2"], data[0], y=data[1])[0]}
            return new | {f"ADF, {f}": go(states[f"ADF, {f}"], data) for f, (_, go) in adf.items()}

        def measure(states: Any) -> Any:
            means = {k: s.kept.weights if k == "η0 = 2" else s.belief.mean for k, s in states.items()}
            return {k: disagreement(w, teacher) for k, w in means.items()}

        return along(update, begun, lambda key, _: clean(teacher, key, rows), measure, key_rows, steps)

    found = bench.replicate("Figure 1", one, runs)
    correction = theory.annealed_spread(2.0) / size
    curves = {
        "η0 = 2": annealed_perceptron(alpha, 2.0, start=0.02) * (1.0 - correction),
        "ADF, spherical": bona(alpha).error,
        "ADF, full": full_online(alpha).error,
    }
    findings, lines = [], []
    for name, curve in curves.items():
        error, se = mean_and_error(found[name])
        lines.append(Line(name, alpha, error, se, group=name))
        where = f"(4), N = {size}" if name == "η0 = 2" else f"{name}, N → ∞"
        lines.append(Line(where, alpha, curve, kind="theory", group=name))
        for i in (steps // 2, steps - 1):
            findings.append(
                Finding(
                    f"e·α at α = {alpha[i]:.0f}, N = {size}",
                    name,
                    error[i] * alpha[i],
                    se[i] * alpha[i],
                    curve[i] * alpha[i],
                    4.0 / math.pi if name == "η0 = 2" else None,
                    "theory" if name == "η0 = 2" else None,
                    why="" if name == "η0 = 2" else "the curve is for N → ∞",
                )
            )
    ahead = [("ADF, spherical", "η0 = 2"), ("ADF, full", "ADF, spherical")]
    for better, worse in ahead:
        gap, se = average((found[better] - found[worse])[:, -1] * alpha[-1])
        what = f"e·α less that of {worse} at α = {alpha[-1]:.0f}, N = {size}"
        findings.append(Finding(what, better, gap, se, 0.0, held="below"))
    lines += [
        Line("1.27/α", alpha, 4.0 / math.pi / alpha, kind="paper", group="paper"),
        Line("batch Bayes, N → ∞", alpha, bayes_batch(alpha).error, kind="theory", group="Bayes"),
    ]
    batch = float(bayes_batch(alpha[-1]).error) * alpha[-1]
    full = mean_and_error(found["ADF, full"])[0][-1] * alpha[-1]
    notes = [
        f"Figure 1 at α = {alpha[-1]:.0f}: at the best schedule e·α is {curves['η0 = 2'][-1] * alpha[-1]:.3f} by (4), "
        f"less {100 * correction:.1f}% for N = {size}, and tends to 4/π = {4 / math.pi:.3f} for N → ∞. One pass of ADF "
        f"with a full covariance, which has no schedule, is at {full:.3f}; the batch Bayes rule, for N → ∞, at "
        f"{batch:.3f}."
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
        x = normals(key_x, (rows, size)) + centre
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
    names = ("plain", "shifted", "ADF, full", "ADF, spherical", *told_wrong)
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
        mean, se = mean_and_error(error[name])
        curve = curves.get(name)
        for i in looks:
            findings.append(
                Finding(
                    f"error at α = {alpha[i]:.0f}",
                    name,
                    mean[i],
                    se[i],
                    None if curve is None else curve[i],
                    {"plain": 0.32, "shifted": float(law[i])}.get(name),
                    None if curve is None else "theory",
                )
            )
        lines.append(Line(name, alpha, mean, se, group=name))
        if curve is not None:
            lines.append(Line(f"{name}, N → ∞", alpha, curve, kind="theory", group=name))
    for name in names[2:]:
        gap, se = average((error[name] - error["shifted"])[:, -1])
        findings.append(Finding(f"error less that of shifted at α = {alpha[-1]:.0f}", name, gap, se, 0.0, held="below"))
    for name in ("ADF, spherical", "ADF, full"):
        mean, se = average(error[name][:, -1])
        findings.append(
            Finding(f"error at α = {alpha[-1]:.0f} against always −1", name, mean, se, always, held="below")
        )
    lines += [
        Line("shifted, T known, N → ∞", alpha, known.error, kind="theory", group="known"),
        Line("law (18)", alpha, law, kind="paper", group="law"),
        Line("always −1", alpha[[0, -1]], np.array([always] * 2), kind="theory", group="always"),
    ]
    far = theory.output_noise(np.array([1e4, 1e6]), rates[1], *first)
    wide = math.sqrt(2 * flip / math.pi)
    notes = [
        f"Errors are on noisy labels: p + (1 − 2p) times the probability to differ from the teacher, from R and q "
        f"exactly. At α = {alpha[-1]:.0f} the shifted student differs with probability "
        f"{mean_and_error(apart[:, -1, 1])[0]:.4f}.",
        f"Law (18): of the equations with a learned T the excess times √α is "
        f"{(far.error[0] - flip) * 100:.4f} at α = 1e4 and {(far.error[1] - flip) * 1e3:.4f} at 1e6, and √(2p/π) is "
        f"{wide:.4f}. With T known from the start the probability to differ, times √α, tends to that: "
        f"{theory.output_noise(1e6, rates[1], *first, shift='known').apart * 1e3:.4f} at 1e6.",
        f"The rule without a shift ends, as η → 0, at {float(theory.output_noise_limit(flip, length, q0).error):.4f}.",
        f"Labels are so uneven that always answering −1 has an error of {always:.4f}. At α = {alpha[-1]:.0f} the "
        f"shifted rule is above it, at {mean_and_error(error['shifted'][:, -1])[0]:.4f}, and by law (18) it is "
        f"below from α = {2 * flip / math.pi / (always - flip) ** 2:.0f} on; full ADF is at "
        f"{mean_and_error(error['ADF, full'][:, -1])[0]:.4f}.",
    ]
    panel = Panel("Figure 2: p = 0.2, |U| = 4, q0 = −1.95", "α", "error on noisy labels", tuple(lines))
    return Found(findings, [panel], notes, {"N": size, "runs": runs})


def flipped(x: Array, flip: Array, y: Array = None) -> None:
    """A noise-free perceptron whose labels are turned over with a probability that is told."""
    w: Array = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x @ w, 0.0, flip), obs=y)


EXPERIMENTS = (
    Experiment("dichotomies-constant", "Perceptron at a constant rate, and at α^(−z)", "equations (4), (5)", constant),
    Experiment("dichotomies-annealed", "Perceptron at η0 √(2π)/α, and ADF beside", "equation (6), Figure 1", annealed),
    Experiment("dichotomies-noise", "Labels turned over, inputs off centre", "Figure 2, equations (7)-(18)", noise),
    Experiment("dichotomies-smooth", "Thresholded smooth functions", "equations (19)-(27)", smooth),
)
