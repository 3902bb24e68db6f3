"""De Oliveira and Alamino, Performance of the Bayesian online algorithm for the perceptron (2007), made again."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import adfpp
from adfpp.distributions import Rosenblatt as Soft
from adfpp.papers.baselines import Learner, Rosenblatt, ScalarBOnA, VariationalOptimum
from adfpp.papers.laboratory.bench import Bench, Experiment, Found, along
from adfpp.papers.laboratory.record import Finding, Line, Panel, mean_and_error, measured, points
from adfpp.papers.laboratory.students import Start, adf_of, clean, disagreement, perceptron, settled, together
from adfpp.papers.theory import perceptron as theory
from adfpp.papers.theory.covariance import full_online

SOURCE = "de Oliveira and Alamino (2007)"
CHUNK = 50
SIZES = (100, 900)
LENGTH = {True: "|ξ|² = N", False: "|ξ|² as it is"}
MARKS = np.array([1.0, 2.0, 5.0, 10.0, 50.0, 1000.0])
PRINTED, CORRECTED = "(22) as printed", "(22) corrected"
DIGITS = "the two digits that the letter prints"


def soft_perceptron(beta: float) -> Callable[..., None]:
    """The letter's model (8)-(9): weights N(0, 1), field w·x/√N, and exp(−β max(0, −σ field)) for a label."""

    def model(x: Any, y: Any = None) -> None:
        size = x.shape[-1]
        w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([size]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", Soft(x @ w / math.sqrt(size), beta), obs=y)

    return model


def rows_at(teacher: jax.Array, key: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A chunk of a stream, as `along` draws it."""
    return clean(teacher, key, CHUNK)


def drawn(rng_key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """A teacher ``(N,)`` and a key for its rows."""
    key, rows = jax.random.split(rng_key)
    return jax.random.normal(key, (size,)), rows


def orders(mean: jax.Array, width: jax.Array, teacher: jax.Array) -> jax.Array:
    """``(4,)`` error, Q, ζ and ρ."""
    angle = disagreement(mean, teacher) * math.pi
    return jnp.stack([angle / math.pi, mean @ mean / mean.size, width, jnp.cos(angle)])


def held(what: str, entry: str, values: Any, target: Any, kind: Any = "theory", **more: Any) -> Finding:
    """The mean of values ``(runs,)``, held against a number of the theory's."""
    return measured(what, entry, values, theory=float(target), held=kind, **more)


def sure(what: str, entry: str, value: Any, target: Any, tolerance: float, why: str) -> Finding:
    """A figure in which nothing is random, held against a number of the theory's."""
    return Finding(what, entry, float(value), theory=float(target), held="theory", tolerance=tolerance, why=why)


def four(entry: str, alphas: tuple[float, ...], values: np.ndarray, law: theory.BonaCurve) -> list[Finding]:
    """The figures of `orders`, ``(runs, αs, 4)``, against a curve."""
    lines = (("error", law.error), ("Q", law.length), ("ζ", law.width), ("ρ", law.overlap))
    return [
        held(f"{what} at α = {a:g}", entry, values[:, k, i], line[k])
        for i, (what, line) in enumerate(lines)
        for k, a in enumerate(alphas)
    ]


def baseline(learner: Learner, size: int, **given: Any) -> Start:
    """A baseline as `adf_of` gives an ADF: its state before any row, and ``update(state, (x, y))``."""
    state = learner.init(jax.random.key(0), jnp.zeros((1, size)), **given)
    return state, lambda state, rows: learner.update(state, rows[0], y=rows[1])[0]


def spherical(model: Callable[..., None], size: int, rows: int = CHUNK) -> Start:
    """The engine with a spherical Gaussian."""
    return adf_of(model, np.zeros((rows, size)), np.zeros(rows), family="spherical")


def places(alphas: tuple[float, ...], size: int) -> np.ndarray:
    """Which of the measures of `along` are at these α."""
    return np.array([round(a * size / CHUNK) - 1 for a in alphas])


def stream(
    start: Any, update: Callable[[Any, Any], Any], measure: Callable[[Any, Any], Any], size: int, alphas: Any
) -> Callable[[jax.Array], Any]:
    """A simulation for `Bench.replicate`: ``measure(state, teacher)`` at each α of a stream of noise-free rows."""

    def one(key: jax.Array) -> Any:
        teacher, rows_key = drawn(key, size)
        begin = start(teacher) if callable(start) else start
        steps = round(alphas[-1] * size) // CHUNK
        found = along(update, begin, partial(rows_at, teacher), lambda now: measure(now, teacher), rows_key, steps)
        return jax.tree.map(lambda a: a[places(alphas, size)], found)

    return one


# ------------------------------------------------------------------------------------------ equations (10) and (11)


def equations(bench: Bench) -> Found:
    """The letter's update and the engine's, row by row; and what |ξ|² = N neglects."""
    size, alpha, runs = bench.pick(100, 200), bench.pick(10, 20), bench.pick(4, 16)
    kinds = {"step": (perceptron(), math.inf), "β = 2": (soft_perceptron(2.0), 2.0)}
    engines = {k: spherical(model, size) for k, (model, _) in kinds.items()}
    letters = {
        (k, m): baseline(ScalarBOnA(beta, mean_length=m), size) for k, (_, beta) in kinds.items() for m in LENGTH
    }

    def one(key: jax.Array) -> Any:
        teacher, rows_key = drawn(key, size)

        def update(states: Any, rows: Any) -> Any:
            x, y = rows
            given = {True: (x * math.sqrt(size) / jnp.linalg.norm(x, axis=1, keepdims=True), y), False: rows}
            return {
                (k, m): (engines[k][1](adf, given[m]), letters[k, m][1](letter, given[m]))
                for (k, m), (adf, letter) in states.items()
            }

        def measure(states: Any) -> Any:
            def apart(adf: Any, letter: Any) -> tuple[jax.Array, jax.Array]:
                weights, width = letter.kept
                return jnp.abs(adf.belief.mean - weights).max(), jnp.abs(adf.belief.scale**2 / width - 1.0)

            return {k: apart(*both) for k, both in states.items()}

        start = {k: (engines[k[0]][0], letter) for k, (letter, _) in letters.items()}
        return along(update, start, partial(rows_at, teacher), measure, rows_key, alpha * size // CHUNK)

    found = bench.replicate("equations (10) and (11)", one, runs)
    findings = [
        sure(f"largest {what}", f"{k}, {LENGTH[m]}", part.max(), 0.0, 1e-10, "rounding")
        for (k, m), parts in found.items()
        for what, part in zip(("difference of a weight ω", "relative difference of ζ"), parts, strict=True)
    ]
    notes = [
        f"The largest difference between the engine and the letter's update is {max(f.value for f in findings):.1e}"
        f" over {alpha * size} rows in each of {runs} streams."
    ]
    neglected, note, panel = neglect(bench, 5)
    return Found([*findings, *neglected], [panel], [*notes, note], {"N": size, "rows": alpha * size, "streams": runs})


def neglect(bench: Bench, alpha: int) -> tuple[list[Finding], str, Panel]:
    """What |ξ|² = N changes in ζ, and how much ζ varies over streams."""
    runs, findings, spread = bench.pick(32, 128), [], []
    for size in SIZES:
        both = together({m: baseline(ScalarBOnA(mean_length=m), size) for m in LENGTH})

        def measure(states: Any, teacher: Any) -> jax.Array:
            return jnp.stack([states[m].kept.width for m in LENGTH])

        one = stream(*both, measure, size, (alpha,))
        mean, own = bench.replicate(f"|ξ|² = N, N = {size}", one, runs, 16)[:, 0].T
        spread.append(100.0 * float(own.std(ddof=1) / own.mean()))
        square, doubt = (float(v) for v in mean_and_error((mean / own - 1.0) ** 2))
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


# ------------------------------------------------------------------------------------------ Figure 1


def curve(bench: Bench) -> Found:
    """Figure 1 and all four order parameters, through the engine."""
    size, runs = bench.pick(1000, 2000), bench.pick(32, 64)
    alphas = bench.pick((1.0, 2.0, 5.0, 10.0), (1.0, 2.0, 5.0, 10.0, 20.0, 50.0))

    def measure(state: Any, teacher: Any) -> jax.Array:
        return orders(state.belief.mean, state.belief.scale**2, teacher)

    one = stream(*spherical(perceptron(), size), measure, size, alphas)
    found = bench.replicate("spherical ADF", one, runs, 16)
    at, error = np.array(alphas), found[..., 0]
    wanted, printed = theory.bona(at), theory.bona(at, as_printed=True)
    on_curve = four("ADF, spherical", alphas, found, wanted)
    against = [
        held(f"error at α = {a:g}", f"ADF, spherical, against {PRINTED}", values, target, "below")
        for a, values, target in zip(alphas, error.T, printed.error, strict=True)
    ]
    grid, late = np.geomspace(0.1, 1000.0, 81), np.array([30.0, 100.0, 300.0, 1000.0])
    right, wrong = theory.bona(grid), theory.bona(grid, as_printed=True)
    figure = (
        Line("error, theory", grid, right.error, kind="theory", group="e"),
        points("error, ADF", at, error, "e"),
        Line("ζ, theory", grid, right.width, kind="theory", group="z"),
        points("ζ, ADF", at, found[..., 2], "z"),
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
        f"error · α along the corrected equations is {', '.join(f'{v:.4f}' for v in theory.bona(MARKS).error * MARKS)} "
        f"at α = {', '.join(f'{a:g}' for a in MARKS)}; with (22) as printed it is {wrong.error[-1] * 1000:.2f} at "
        f"α = 1000 and still rises. ζ α² is {right.width[-1] * 1e6:.2f} at α = 1000.",
        f"The engine is within {max(abs(f.z or 0) for f in on_curve):.1f} standard errors of the corrected curve, and "
        f"at least {min(-(f.z or 0) for f in against):.0f} below the errors that the printed equation gives.",
    ]
    settings = {"N": size, "runs": runs, "rows": round(alphas[-1] * size)}
    return Found([*on_curve, *against, *constants()], panels, notes, settings)


def constants() -> list[Finding]:
    """The order-parameter equations against another route to them, and against the letter's constant."""
    right, best = theory.bona(MARKS), theory.optimal_online(MARKS)
    why = "the integrators' own errors; theory is dq̂/dα = I(q), the optimum of Kinouchi and Caticha"
    findings = [
        sure(f"error · α at α = {a:g}", CORRECTED, e, other, 1e-6, why)
        for a, e, other in zip(MARKS, right.error * MARKS, best.error * MARKS, strict=True)
    ]
    width, gap = 1e6 * right.width[-1], 1e6 * (1.0 - best.overlap[-1])
    square = sure("ζ · α² at α = 1000", CORRECTED, width, gap, 1e-4, why)
    last = "error · α at α = 1000, in the letter"
    wrong = float(theory.bona(1000.0, as_printed=True).error * 1000.0)
    letter = Finding(last, CORRECTED, findings[-1].value, paper=0.88, held="paper", tolerance=5e-3, why=DIGITS)
    misprint = Finding(last, PRINTED, wrong, paper=0.88, why="the misprint: no constant")
    return [*findings, square, letter, misprint]


# ------------------------------------------------------------------------------------------ equation (22)


def erratum(bench: Bench) -> Found:
    """What one row does to ρ, from states on the curve, against (22) corrected and as printed."""
    size, rows, alphas = 1000, bench.pick(16_000, 128_000), (0.5, 2.0, 10.0, 50.0)
    start, update = spherical(perceptron(), size, 1)
    states = theory.optimal_online(np.array(alphas))
    teacher = jnp.zeros(size).at[0].set(1.0)

    def one(key: jax.Array) -> jax.Array:
        row = clean(teacher, key, 1)

        def gained(length: Any, width: Any, angle: Any) -> jax.Array:
            mean = jnp.zeros(size).at[0].set(jnp.cos(angle)).at[1].set(jnp.sin(angle)) * jnp.sqrt(size * length)
            belief = start.belief._replace(mean=mean, scale=jnp.sqrt(width))
            after = update(start._replace(belief=belief), row).belief.mean
            return size * (jnp.cos(disagreement(after, teacher) * math.pi) - jnp.cos(angle))

        return jnp.stack([gained(q, 1.0 - q, math.pi * e) for q, e in zip(states.overlap, states.error, strict=True)])

    found, at = bench.replicate("one row", one, rows, 1000), np.array(alphas)
    value, se = mean_and_error(found)
    slopes = [gain(states, as_printed) for as_printed in (False, True)]
    findings = [
        held(f"dρ/dα at α = {a:g}", f"ADF, one row, against {name}", values, slope, kind)
        for a, values, *both in zip(alphas, found.T, *slopes, strict=True)
        for name, slope, kind in zip((CORRECTED, PRINTED), both, ("theory", "above"), strict=True)
    ]
    grid = np.geomspace(0.1, 100.0, 41)
    there = theory.optimal_online(grid)
    lines = [
        Line(name, grid, grid * gain(there, as_printed), kind="theory", group=name)
        for name, as_printed in ((CORRECTED, False), (PRINTED, True))
    ]
    row_points = points("ADF, one row", at, found * at, CORRECTED)
    notes = [
        f"The mean change of ρ by one row, times N = {size}, over {rows} rows at each of {len(alphas)} states on the "
        f"corrected curve: {', '.join(f'{v:.3g} ± {s:.1g}' for v, s in zip(value, se, strict=True))}. The printed "
        f"equation says {', '.join(f'{v:.3g}' for v in slopes[1])}: on this curve, where Q = ρ² and ζ = 1 − Q, its "
        "two terms cancel, and a student on it would not gain by the next row."
    ]
    panel = Panel("What a row gains, on the corrected curve", "α", "α dρ/dα", (*lines, row_points), "x")
    return Found(findings, [panel], notes, {"N": size, "rows": rows})


def gain(states: theory.Curve, as_printed: bool) -> np.ndarray:
    """dρ/dα in some states of a curve on which Q = ρ² and ζ = 1 − Q."""
    angles = math.pi * states.error
    drifts = [
        theory.bona_drift(q, 1.0 - q, angle, as_printed=as_printed).angle
        for q, angle in zip(states.overlap, angles, strict=True)
    ]
    return np.round(-np.sin(angles) * drifts, 12) + 0.0  # as printed 0 but for rounding


# ------------------------------------------------------------------------------------------ finite β


def finite_beta(bench: Bench) -> Found:
    """The likelihood (8) at finite β beside its order-parameter equations; what it costs without noise."""
    size, runs = bench.pick(1000, 2000), bench.pick(24, 32)
    alphas = bench.pick((2.0, 10.0), (2.0, 10.0, 40.0))
    betas = (0.3, 1.0, 3.0)
    soft = {b: spherical(soft_perceptron(b), size) for b in betas}
    engines = together({**soft, math.inf: spherical(perceptron(), size)})

    def measure(states: Any, teacher: Any) -> jax.Array:
        beliefs = [states[b].belief for b in (*betas, math.inf)]
        return jnp.stack([orders(belief.mean, belief.scale**2, teacher) for belief in beliefs])

    one = stream(*engines, measure, size, alphas)
    found = bench.replicate("finite β", one, runs, 8)
    error = found[..., 0]
    extra, last = error - error[..., -1:], error[:, -1].mean(0)
    at, grid, far = np.array(alphas), np.geomspace(0.1, 1e5, 91), np.array([1e9, 1e10])
    step = theory.bona(at)
    lines = [
        Line("step, theory", grid, theory.bona(grid).error * grid, kind="theory", group="step"),
        points("step, ADF", at, error[..., -1] * at, "step"),
    ]
    findings, notes = [], []
    for j, b in enumerate(betas):
        here, whole, end = (theory.bona(a, beta=b) for a in (at, grid, far))
        label, entry = f"β = {b:g}", f"ADF, spherical, β = {b:g}"
        findings += four(entry, alphas, found[:, :, j], here)
        findings += [
            held(f"error at α = {a:g}, above the step's on the same rows", entry, values, target)
            for a, values, target in zip(alphas, extra[..., j].T, here.error - step.error, strict=True)
        ]
        law = end.error[0] / theory.bona_beta_law(far[0], b, end.length[0])
        what, why = "error at α = 10⁹, of its law c (β√Q)^(−1/4) α^(−3/4)", "the law's next term"
        findings.append(sure(what, f"theory, {label}", law, 1.0, 0.01, why))
        lines.append(Line(f"{label}, theory", grid, whole.error * grid, kind="theory", group=label))
        lines.append(points(f"{label}, ADF", at, error[..., j] * at, label))
        notes.append(
            f"{label}: {100 * (here.error[-1] / step.error[-1] - 1):.0f}% more errors than the step at "
            f"α = {alphas[-1]:g} by theory, {100 * (last[j] / last[-1] - 1):.0f}% measured; at α = 10⁹ "
            f"the error falls as α^({math.log10(end.error[1] / end.error[0]):.3f})."
        )
    panel = Panel("Finite β on noise-free labels", "α", "error · α", tuple(lines), "xy")
    return Found(findings, [panel], notes, {"N": size, "runs": runs, "rows": round(alphas[-1] * size)})


# ------------------------------------------------------------------------------------------ Table I


CURVES: dict[str, Callable[[Any], Any]] = {
    "Rosenblatt online": theory.rosenblatt_online,
    "variational optimum": lambda alpha: theory.optimal_online(alpha).error,
    "BOnA (ADF, spherical)": lambda alpha: theory.bona(alpha).error,
    "batch Bayes (EP)": lambda alpha: theory.bayes_batch(alpha).error,
}
LAWS = dict(zip(CURVES, ((0.28, 1 / 3), (0.88, 1.0), (0.88, 1.0), (0.44, 1.0)), strict=True))  # c/α^p, Table I
ROSENBLATT, OPTIMUM, BONA, BATCH = CURVES
FULL = "ADF, full, one pass"
CURVES[FULL] = lambda alpha: full_online(alpha).error
TOLD = "0 as N → ∞; at finite N it helps a little, early on, to be told ρ"


def law(name: str, alpha: Any) -> Any:
    """What Table I says of the error at large α."""
    constant, power = LAWS[name]
    return constant / alpha**power


def table(bench: Bench) -> Found:
    """Table I as a simulation, with full-covariance ADF and EP as new columns."""
    size, runs = 1000, bench.pick(32, 64)
    alphas = bench.pick((5.0, 10.0), (5.0, 10.0, 50.0))
    errors = bench.replicate("Table I, online", one_pass(size, alphas), runs, 16)
    at, grid, late = np.array(alphas), np.geomspace(1.0, 1000.0, 61), np.array([100.0, 1000.0])
    online = (ROSENBLATT, OPTIMUM, BONA)
    findings = [
        held(f"error at α = {a:g}", name, errors[:, k, j], CURVES[name](at)[k], paper=law(name, a))
        for j, name in enumerate(online)
        for k, a in enumerate(alphas)
    ]
    findings += [
        measured(f"error at α = {a:g}, less the optimum's on the same rows", BONA, values, theory=0.0, why=TOLD)
        for a, values in zip(alphas, (errors[..., 2] - errors[..., 1]).T, strict=True)
    ]
    small, marks = bench.pick(100, 200), (5, 10)
    again, told = revisited(bench, small, marks, bench.pick(12, 32))
    more, notes, both = beyond(again, marks)
    drawn_once = (ROSENBLATT, BONA, BATCH)  # the curve of the variational optimum is BOnA's
    shown = (*drawn_once, FULL)
    lines = [Line(f"{n}, theory", grid, CURVES[n](grid) * grid, kind="theory", group=n) for n in shown]
    lines += [points(n, at, errors[..., j] * at, n) for j, n in enumerate(online)]
    crosses = np.concatenate([law(n, late) * late for n in drawn_once])
    lines.append(Line("letter, asymptotic", np.tile(late, len(drawn_once)), crosses, kind="paper"))
    settings = {"N": size, "runs": runs, "rows": round(alphas[-1] * size)}
    settings |= {"N of full ADF and EP": small, "runs of full ADF and EP": len(again)}
    panel = Panel("Table I", "α", "error · α", (*lines, *both), "xy")
    return Found([*limits(), *findings, *more], [panel], [*notes, told], settings)


def limits() -> list[Finding]:
    """The constants that the letter prints, from the curves at large α."""
    far = 1e8
    found = {name: float(CURVES[name](far)) * far**power for name, (_, power) in LAWS.items()}
    shown = {1.0: "error · α", 1 / 3: "error · α^(1/3)"}
    return [
        Finding(f"{shown[p]} at α → ∞, by theory", name, found[name], paper=c, held="paper", tolerance=5e-3, why=DIGITS)
        for name, (c, p) in LAWS.items()
    ]


def one_pass(size: int, alphas: tuple[float, ...]) -> Callable[[jax.Array], jax.Array]:
    """The errors ``(αs, 3)`` of Table I's online algorithms on one stream."""
    optimum = baseline(VariationalOptimum(), size, teacher=jnp.ones(size))
    online = {ROSENBLATT: baseline(Rosenblatt(), size), OPTIMUM: optimum, BONA: spherical(perceptron(), size)}
    begun, update = together(online)

    def start(teacher: jax.Array) -> dict[str, Any]:
        told = begun[OPTIMUM].kept._replace(teacher=teacher / jnp.linalg.norm(teacher))
        return begun | {OPTIMUM: begun[OPTIMUM]._replace(kept=told)}

    def measure(states: Any, teacher: jax.Array) -> jax.Array:
        weights = [*(states[name].kept.weights for name in (ROSENBLATT, OPTIMUM)), states[BONA].belief.mean]
        return disagreement(jnp.stack(weights), teacher)

    return stream(start, update, measure, size, alphas)


def revisited(bench: Bench, size: int, marks: tuple[int, int], runs: int) -> tuple[np.ndarray, str]:
    """Errors ``(runs, αs, 3)`` of spherical ADF, full ADF and EP on the same rows; a note on how many have settled."""
    count = marks[0] * size
    empty = np.zeros((count, size)), np.zeros(count)
    learners = [adf_of(perceptron(), *empty, family=family) for family in ("spherical", "full")]

    def one(key: jax.Array) -> Any:
        teacher, rows_key = drawn(key, size)
        x, y = clean(teacher, rows_key, marks[1] * size)
        errors = []
        for state, update in learners:
            for stop in (a * size for a in marks):
                state = update(state, (x[stop - count : stop], y[stop - count : stop]))
                errors.append(disagreement(state.belief.mean, teacher))
        return jnp.stack(errors).reshape(2, len(marks)).T, teacher, x, y

    errors, teachers, x, y = bench.replicate("Table I, the same rows again", one, runs, 8)
    ep, have = adfpp.EP(perceptron()), 0
    last = np.empty((runs, len(marks), 1))
    for i in bench.counted("Table I, EP", runs):
        for k, a in enumerate(marks):
            mean, done = settled(ep, x[i, : a * size], y[i, : a * size])
            last[i, k, 0], have = disagreement(mean, jnp.asarray(teachers[i])), have + done
    return np.concatenate([errors, last], axis=2), f"EP has settled in {have} of {last.size} runs."


def beyond(errors: np.ndarray, marks: tuple[int, int]) -> tuple[list[Finding], list[str], list[Line]]:
    """Findings of full ADF and EP: against batch Bayes, and against each other on the same rows."""
    at = np.array(marks, float)
    batch, full = CURVES[BATCH](at), CURVES[FULL](at)
    value, se = mean_and_error(errors * at[:, None])
    less = np.diff(errors, axis=2)
    findings, notes = [], []
    for k, a in enumerate(marks):
        findings += [
            held(f"error at α = {a}", FULL, errors[:, k, 1], full[k]),
            held(f"error at α = {a}", BATCH, errors[:, k, 2], batch[k], paper=law(BATCH, a)),
            held(f"error at α = {a}, less BOnA's on the same rows", FULL, less[:, k, 0], 0.0, "below"),
            held(f"error at α = {a}, less full ADF's on the same rows", BATCH, less[:, k, 1], 0.0, "below"),
        ]
        scalar, whole, again = value[k]
        notes.append(
            f"error · α at α = {a}: BOnA {scalar:.3f}, full ADF {whole:.3f} ± {se[k, 1]:.3f}, EP {again:.3f} ± "
            f"{se[k, 2]:.3f}, and batch Bayes by theory {batch[k] * a:.3f}. Full covariances in one pass go "
            f"{100 * (scalar - whole) / (scalar - batch[k] * a):.0f}% of the way from BOnA to batch Bayes."
        )
    return findings, notes, [points(name, at, errors[..., j] * at) for j, name in ((1, FULL), (2, BATCH))]


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment("bona-equations", "Scalar BOnA and spherical ADF are one algorithm", f"{SOURCE}, (10), (11)", equations),
    Experiment("bona-curve", "The learning curve of scalar BOnA", f"{SOURCE}, Figure 1", curve),
    Experiment("bona-erratum", "What one row gains: equation (22) corrected", f"{SOURCE}, (22)", erratum),
    Experiment("bona-beta", "BOnA at finite β", f"{SOURCE}, (8), (9)", finite_beta),
    Experiment("bona-table", "Table I, with full covariances and EP", f"{SOURCE}, Table I", table),
)
