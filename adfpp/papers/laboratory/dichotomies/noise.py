"""Figure 2 of Barkai, Seung and Sompolinsky (1995): inputs whose mean is not 0, and one label in five flipped."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

import adfpp
from adfpp.papers.baselines import (
    Annealed,
    Perceptron,
    ShiftedAnnealed,
    ShiftedPerceptron,
)
from adfpp.papers.laboratory.bench import Bench, Outcome, learn_stream
from adfpp.papers.laboratory.dichotomies.laws import FAR, PACE, SPHERICAL, capped, tends
from adfpp.papers.laboratory.record import Line, Panel, measured, points
from adfpp.papers.laboratory.students import Rows, flip_perceptron, weights_of
from adfpp.papers.theory import dichotomies as theory
from adfpp.papers.theory.perceptron import (
    output_noise_law,
)


def noise(bench: Bench) -> Outcome:
    """Figure 2: inputs whose mean is not 0, and one label in five flipped."""
    size, length, q0, flip = 250, 4.0, -1.95, 0.2
    runs, steps, rows = bench.pick(16, 32), bench.pick(15, 75), 4 * size
    alpha = 4.0 * np.arange(1, steps + 1)
    centre = np.zeros(size)
    centre[:2] = q0, math.sqrt(length**2 - q0**2)
    assumed = jnp.array([flip, 0.1, 0.3])  # flip probabilities that the spherical ADFs assume
    plain, shifted = Perceptron(Annealed(2.0, 5.0)), ShiftedPerceptron(ShiftedAnnealed(q0))
    full, spherical = adfpp.ADF(flip_perceptron), adfpp.ADF(flip_perceptron, family="spherical")
    x, y = np.zeros((rows, size)), np.zeros(rows)
    beliefs = [a.init(jax.random.key(0), x, flip, y=y) for a in (full, spherical)]
    weights = [r.init(jax.random.key(0), x, weights=-centre) for r in (plain, shifted)]

    def draw(rng_key: jax.Array, _: jax.Array) -> Rows:
        key_x, key_flip = jax.random.split(rng_key)
        x = jax.random.normal(key_x, (rows, size), jnp.float32) + centre
        return x, ((x[:, 0] > 0) ^ jax.random.bernoulli(key_flip, flip, (rows,))).astype(x.dtype)

    def update(states: tuple[Any, ...], data: Rows) -> tuple[Any, ...]:
        x, y = data
        several = jax.vmap(lambda state, p: spherical.update(state, x, p, y=y)[0])(states[3], assumed)
        one = full.update(states[2], x, flip, y=y)[0]
        return plain.update(states[0], x, y=y)[0], shifted.update(states[1], x, y=y)[0], one, several

    def measure(states: tuple[Any, ...]) -> jax.Array:
        w = jnp.stack([weights_of(s) for s in states[:3]] + [*states[3].belief.mean])
        return jnp.stack([w[:, 0], w @ centre]) / jnp.linalg.norm(w, axis=1)

    start = (*weights, beliefs[0], jax.tree.map(lambda a: jnp.stack([a] * len(assumed)), beliefs[1]))
    projections = bench.replicate(
        "Figure 2", lambda key: learn_stream(update, start, draw, measure, key, steps), runs, 16
    )
    apart = theory.disagreement(projections[:, :, 0], projections[:, :, 1], q0)
    misinformed = [f"ADF, spherical, told p = {p}" for p in (0.1, 0.3)]
    names = ("plain", "shifted", "ADF, full", SPHERICAL, *misinformed)
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
            fields: dict[str, Any] = {} if curve is None else {"theory": curve[i], "held": "theory"}
            fields["paper"] = {"plain": 0.32, "shifted": float(law[i])}.get(name)
            findings.append(measured(f"error at α = {alpha[i]:.0f}", name, error[name][:, i], **fields))
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
    # The next order, by 1/√α: the student's mistakes add to the noise of the flips.
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
    start_error = flip + (1 - 2 * flip) * float(theory.disagreement(first[3], first[4], q0))
    notes = [
        f"Errors are on noisy labels: p + (1 − 2p) times the probability to differ from the teacher, which R and q "
        f"give exactly. At α = {alpha[-1]:.0f} the shifted student differs with probability "
        f"{apart[:, -1, 1].mean():.4f}.",
        f"Law (18) is held against the equations at large α, as √(2p/π): of the error's excess over p when T is "
        f"learned, of the probability to differ when T is known. At α = {FAR[1]:,.0f} the two are at "
        f"{excess[0]:.4f} and {differ[0]:.4f}, still above {wide:.4f}.",
        f'Started at {start_error:.4f}, like "always −1", the shifted rule first gets worse: to '
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
    return Outcome(findings, [panel], notes, {"N": size, "runs": runs})
