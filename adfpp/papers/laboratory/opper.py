"""Opper, A Bayesian approach to online learning (1998): both figures, what is exact, and what the outlook leaves open.

The laws at many rows are in `opper_laws`.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from jax.scipy.special import log_ndtr

import adfpp
from adfpp.distributions import Probit
from adfpp.papers.baselines import NaturalGradient
from adfpp.papers.laboratory.bench import Bench, Experiment, Found, along
from adfpp.papers.laboratory.opper_laws import asymptotics, compared, entropy
from adfpp.papers.laboratory.record import Finding, Line, Panel, mean_and_error, measured, points
from adfpp.papers.laboratory.students import Start, adf_of, disagreement, perceptron, rows_of, settled, together
from adfpp.papers.theory.covariance import full_online, full_online_constant
from adfpp.papers.theory.perceptron import bayes_batch, cramer_rao_threshold, optimal_online

FULL, SPHERICAL, DIAGONAL, EP = "ADF, full", "ADF, spherical", "ADF, diagonal", "EP"
GRADIENT, SOON, LATE = "natural gradient", "natural gradient, 1/J(0) late", "natural gradient, late"
EXACT = "exact Bayes"
Draw = Callable[[jax.Array, jax.Array], Any]


# ---------------------------------------------------------------------------------------------- Figure 1


THRESHOLD, SPREAD = 0.1, 0.5  # θ*, σ0


def threshold_model(x: Any, y: Any = None) -> None:
    """A noisy threshold with the prior N(0, 1)."""
    theta: Any = numpyro.sample("theta", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x - theta, SPREAD), obs=y)


def threshold_gradient(delay: float = 0.0) -> Start:
    """Natural gradient (4.4) for P(σ|θ, x) = Φ(σ(x − θ)/σ0), x uniform on [−1, 1]: from 0, the rate 1/(t + delay)."""
    nodes, weights = np.polynomial.legendre.leggauss(12)

    def step(state: Any, row: Any) -> tuple[Any, None]:
        (theta, t), (x, y) = state, row
        sign, u, at = 2 * y - 1, (nodes - theta) / SPREAD, (x - theta) / SPREAD
        fisher = 0.5 * weights @ jnp.exp(-(u**2) - log_ndtr(u) - log_ndtr(-u)) / (2 * math.pi * SPREAD**2)
        score = -sign * jnp.exp(-0.5 * at**2 - log_ndtr(sign * at)) / (math.sqrt(2 * math.pi) * SPREAD)
        return (theta + score / fisher / (t + 1 + delay), t + 1), None

    return (jnp.zeros(()), jnp.zeros(())), lambda state, rows: lax.scan(step, state, rows)[0]


def late_gradient(times: np.ndarray, delay: float, information: float) -> np.ndarray:
    """t·J·E(θ_t − θ*)² of `threshold_gradient` where its steps are so short that the score is linear in θ.

    Then ε_t = (1 − γ_t) ε_{t−1} + γ_t ξ_t with Var ξ = 1/J and γ_t = 1/(t + delay), so (t + delay) ε_t is delay · ε_0
    plus t such ξ.
    """
    return (times / (times + delay)) ** 2 * (1 + information * (delay * THRESHOLD) ** 2 / times)


def exact_threshold() -> tuple[Start, Callable[[jax.Array], jax.Array]]:
    """Bayes' rule on a grid of θ, and its mean: exact while the posterior lies on the grid and is wider than a step."""
    grid = THRESHOLD + 0.03 * jnp.arange(-30, 31)

    def learn(log_belief: jax.Array, rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        x, y = rows
        return log_belief + log_ndtr((2 * y - 1)[:, None] * (x[:, None] - grid) / SPREAD).sum(0)

    return (-0.5 * grid**2, learn), lambda log_belief: jax.nn.softmax(log_belief) @ grid


def threshold(bench: Bench) -> Found:
    """t·J·E(θ_t − θ*)² of a noisy threshold, which is 1 at the Cramér-Rao line."""
    chunk, steps, runs, delay = 10, 100, bench.pick(1024, 16384), 10.0
    times, blank = chunk * np.arange(1, steps + 1), np.zeros(chunk)
    bound = cramer_rao_threshold(times, THRESHOLD, SPREAD)
    own = late_gradient(times, delay, 1 / float(cramer_rao_threshold(1, THRESHOLD, SPREAD)))
    short = float(cramer_rao_threshold(1, 0.0, SPREAD))  # 1/J(0)
    bayes, mean_of = exact_threshold()
    students = {
        FULL: adf_of(threshold_model, blank, blank),
        EXACT: bayes,
        GRADIENT: threshold_gradient(),
        SOON: threshold_gradient(short),
        LATE: threshold_gradient(delay),
    }
    start, update = together(students)

    def draw(key: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        key_x, key_noise = jax.random.split(key)
        x = jax.random.uniform(key_x, (chunk,), minval=-1.0, maxval=1.0)
        return x, (x - THRESHOLD + SPREAD * jax.random.normal(key_noise, (chunk,)) > 0).astype(x.dtype)

    def measure(states: Any) -> dict[str, jax.Array]:
        theta = {FULL: states[FULL].belief.mean[0], EXACT: mean_of(states[EXACT])}
        theta |= {name: states[name][0] for name in (GRADIENT, SOON, LATE)}
        return {name: (value - THRESHOLD) ** 2 for name, value in theta.items()}

    squares = bench.replicate("threshold", lambda key: along(update, start, draw, measure, key, steps), runs)
    ratio = {name: values / bound for name, values in squares.items()}
    findings = []
    for t in (30, 100, 300, 1000):
        what, at = f"t·J·E(θ − θ*)², t = {t}", t // chunk - 1
        unless = "" if t == times[-1] else "the line is where t → ∞"
        # the grid of exact Bayes is for narrow posteriors
        findings += [compared(what, n, ratio[n][:, at], 1.0, unless) for n in (FULL, EXACT) if n == FULL or t >= 300]
        unless = "" if t >= 100 else "the theory is linear in θ − θ*, and early steps are long"
        findings.append(compared(what, LATE, ratio[LATE][:, at], own[at], unless))
    apart = measured("t·J·(squared error above exact Bayes)", FULL, (ratio[FULL] - ratio[EXACT])[:, -1])
    lost = {n: ~(ratio[n][:, -1] < 25.0) for n in (GRADIENT, SOON, LATE)}  # not a number where θ left the reach of J
    findings += [apart, *(measured("share of runs lost", name, runs_lost) for name, runs_lost in lost.items())]
    seen, late = slice(2, None, 3), slice(29, None, 3)
    lines = [
        Line("Cramér-Rao, 1/(t·J)", times, bound, kind="theory"),
        *(points(name, times[seen], squares[name][:, seen]) for name in (FULL, LATE)),
        points(EXACT, times[late], squares[EXACT][:, late]),
    ]
    scaled = [
        Line("Cramér-Rao", times, np.ones(steps), kind="theory"),
        *(points(name, times[seen], ratio[name][:, seen]) for name in (FULL, LATE)),
        points(EXACT, times[late], ratio[EXACT][:, late]),
        Line("natural gradient, late, linear", times[9:], own[9:], kind="theory", group=LATE),
    ]
    notes = [
        f"On the same streams one pass of ADF and exact Bayes differ by {apart.value:+.4f} ± {apart.se:.4f} of the "
        f"bound at t = {times[-1]}: that is what projecting after every row has cost.",
        f"The natural gradient with the rate 1/t loses {lost[GRADIENT].sum()} of {runs} runs: an early step takes θ to "
        f"where no label tells anything, J(θ) is next to 0, and the next step is as long as its inverse. With the rate "
        f"1/(t + {short:.2f}), late by 1/J(0) rows, it still loses {lost[SOON].sum()}; with 1/(t + {delay:g}) it "
        f"loses {lost[LATE].sum()}. That one stays below the line, by theory at {own[-1]:.3f} of it at t = "
        f"{times[-1]}, only because it starts at 0, which is near the truth, and moves slowly.",
    ]
    return Found(
        findings,
        [
            Panel("Squared error of a noisy threshold", "rows t", "E(θ − θ*)²", tuple(lines), "xy"),
            Panel("In units of the line", "rows t", "t·J·E(θ − θ*)²", tuple(scaled), "x"),
        ],
        notes,
        {"rows": int(times[-1]), "runs": runs},
    )


# ---------------------------------------------------------------------------------------------- Figure 2


NOISE = 6.24 / math.sqrt(50)  # of the field, in units of its own standard deviation


def task(key: jax.Array, size: int, noise: float) -> tuple[jax.Array, Draw, jax.Array]:
    """A teacher N(0, I), its rows as `along` wants them, N a chunk, and the key for them."""
    key_teacher, key = jax.random.split(key)
    teacher = jax.random.normal(key_teacher, (size,))
    return teacher, lambda key, step: rows_of(teacher, key, size, noise * math.sqrt(size)), key


def curves_of(
    bench: Bench, name: str, size: int, noise: float, top: int, runs: int, more: Mapping[str, Start]
) -> dict[str, np.ndarray]:
    """Errors (9.3) after each N rows, `top` times, of full ADF and more: ``{student: (runs, top)}``."""
    blank, model = np.zeros((size, size)), perceptron(noise * math.sqrt(size))
    start, update = together({FULL: adf_of(model, blank, blank[0]), **more})

    def one(key: jax.Array) -> dict[str, jax.Array]:
        teacher, draw, key = task(key, size, noise)

        def measure(states: Any) -> dict[str, jax.Array]:
            means = {n: s.kept.weights if hasattr(s, "kept") else s.belief.mean for n, s in states.items()}
            return {n: disagreement(mean, teacher) for n, mean in means.items()}

        return along(update, start, draw, measure, key, top)

    return bench.replicate(name, one, runs)


def restricted(size: int, noise: float, family: str) -> Start:
    """An ADF of a perceptron with another family."""
    blank = np.zeros((size, size))
    return adf_of(perceptron(noise * math.sqrt(size)), blank, blank[0], family=family)


def settled_errors(
    bench: Bench, name: str, size: int, noise: float, runs: Mapping[int, int]
) -> tuple[dict[int, np.ndarray], str]:
    """Errors of EP on the first rows of the first runs of `curves_of` of that name.

    Keys that a key is split into do not depend on how many there are.

    Args:
        bench: The bench.
        name: Of the runs.
        size: N.
        noise: Of the field, in units of its standard deviation.
        runs: How many at each α.

    Returns:
        ``{α: (runs,)}``, and a note on how many have settled.
    """
    top = max(runs)

    def one(key: jax.Array) -> Any:
        teacher, draw, key = task(key, size, noise)
        chunks = lax.map(lambda now: draw(*now), (jax.random.split(key, top), jnp.arange(top)))
        return teacher, jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), chunks)

    teachers, (x, y) = bench.replicate(name, one, max(runs.values()))
    ep, found, have = adfpp.EP(perceptron(noise * math.sqrt(size))), {}, 0
    for alpha, count in runs.items():
        found[alpha] = np.empty(count)
        for i in bench.counted(f"EP, N = {size}, α = {alpha}", count):
            mean, done = settled(ep, x[i, : alpha * size], y[i, : alpha * size])
            found[alpha][i], have = disagreement(mean, teachers[i]), have + done
    return found, f"EP has settled in {have} of {sum(runs.values())} runs."


def from_some(some: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of a student that only the first runs have, by its difference from one that all have.

    The mean of the other student, less the mean difference over the first runs, is what is estimated. With as many
    runs of both it would have the variance of `some`; the difference, of fewer runs, adds its own.

    Args:
        some: ``(checked, …)``.
        other: ``(runs, …)``, of which the first are on the same rows as `some`.
    """
    checked, runs = len(some), len(other)
    apart = other[:checked] - some
    variance = some.var(0, ddof=1) / runs + apart.var(0, ddof=1) * (1 / checked - 1 / runs)
    return other.mean(0) - apart.mean(0), np.sqrt(variance)


def settled_points(label: str, some: Mapping[int, np.ndarray], other: np.ndarray, times: bool = False) -> Line:
    """EP's errors ``{α: (checked,)}`` by their difference from another student's ``(runs, αs)``, times α if asked."""
    at = np.array(list(some))
    mean, error = np.array([from_some(errors, other[:, alpha - 1]) for alpha, errors in some.items()]).T
    scale = at if times else 1.0
    return Line(label, at, scale * mean, scale * error, group=EP)


def beside(what: str, where: str, ep: np.ndarray, full: np.ndarray, batch: float, passed: float) -> list[Finding]:
    """EP against batch Bayes, and how much full ADF is above it on the same rows.

    Args:
        what: The quantity.
        where: At which α and N.
        ep: ``(checked,)``, EP on the first runs.
        full: ``(runs,)``, full ADF on all of them.
        batch: Theory of batch Bayes.
        passed: Theory of full ADF.
    """
    mean, error = (float(v) for v in from_some(ep, full))
    return [
        Finding(f"{what} {where}", EP, mean, error, theory=float(batch), held="theory", runs=len(ep)),
        compared(f"{what} above EP's {where}", FULL, full[: len(ep)] - ep, passed - batch),
    ]


def noisy_perceptron(bench: Bench) -> Found:
    """Error against α for N = 50 and a larger N, beside the curves for N → ∞."""
    top, alphas = 10, (2, 4, 10)
    runs, large, fewer, checked = (
        bench.pick(512, 4096),
        bench.pick(200, 400),
        bench.pick(32, 64),
        bench.pick({10: 16}, {2: 50, 4: 50, 10: 400}),
    )
    late = 0.5 * math.pi * 6.24**2  # 1/J at θ = 0
    blank = np.zeros((50, 50))
    rules = {GRADIENT: NaturalGradient(6.24), LATE: NaturalGradient(6.24, late)}
    more: dict[str, Start] = {
        name: (rule.init(jax.random.key(0), blank), lambda state, rows, rule=rule: rule.update(state, *rows)[0])
        for name, rule in rules.items()
    }
    more |= {SPHERICAL: restricted(50, NOISE, "spherical"), DIAGONAL: restricted(50, NOISE, "diagonal")}
    small = curves_of(bench, "perceptron", 50, NOISE, top, runs, more)
    big = curves_of(
        bench, "large perceptron", large, NOISE, top, fewer, {SPHERICAL: restricted(large, NOISE, "spherical")}
    )
    ep, told = settled_errors(bench, "perceptron", 50, NOISE, checked)
    every = np.arange(1, top + 1)
    theory = {FULL: full_online, SPHERICAL: optimal_online, EP: bayes_batch}
    theory = {name: curve(every, NOISE).error for name, curve in theory.items()}

    findings = []
    for alpha in alphas:
        for size, values in ((50, small), (large, big)):
            what = f"error at α = {alpha}, N = {size}"
            findings += [compared(what, n, values[n][:, alpha - 1], theory[n][alpha - 1]) for n in (FULL, SPHERICAL)]
        what = f"error at α = {alpha}, N = 50"
        findings += [measured(what, name, small[name][:, alpha - 1]) for name in (DIAGONAL, LATE, GRADIENT)]
        if alpha in ep:
            expected = (theory[n][alpha - 1] for n in (EP, FULL))
            findings += beside("error", f"at α = {alpha}, N = 50", ep[alpha], small[FULL][:, alpha - 1], *expected)
    cost, doubt = mean_and_error((small[SPHERICAL] - small[FULL])[:, -1])
    ends = {name: float(values[:, -1].mean()) for name, values in small.items()}
    off = {n: 100 * (v[FULL][:, -1].mean() / theory[FULL][-1] - 1) for n, v in ((50, small), (large, big))}
    notes = [
        f"The curve for full ADF is this project's own, and lies {theory[FULL][-1] - theory[EP][-1]:.4f} above batch "
        f"Bayes at α = {top}: what one pass costs at N → ∞. Full ADF is {off[50]:+.1f}% from it at N = 50 and "
        f"{off[large]:+.1f}% at N = {large}.",
        f"Dropping the correlations costs {cost:.4f} ± {doubt:.4f} of error at α = {top}, N = 50 (spherical against "
        f"full); in theory {theory[SPHERICAL][-1] - theory[FULL][-1]:.4f}.",
        f"The natural gradient with the rate 1/t begins with a step of {late:.0f} times the score, does not come back, "
        f"and ends at {ends[GRADIENT]:.3f}. Started {late:.0f} rows late, which is 1/J(0) and what the prior amounts "
        f"to, it ends at {ends[LATE]:.4f}; full ADF ends at {ends[FULL]:.4f}, without being told the distribution of "
        "the inputs.",
        told,
    ]
    labels = {EP: "batch Bayes", FULL: "full ADF, N → ∞", SPHERICAL: "spherical ADF, N → ∞"}
    lines = [Line(label, every, theory[n], kind="theory", group=n) for n, label in labels.items()]
    settled_at = settled_points("EP, N = 50", ep, small[FULL])
    shown = [points(f"{n}, N = 50", every, small[n], n) for n in (FULL, SPHERICAL, LATE)]
    wide = [points(f"{n}, N = {large}", every, values, n) for n, values in big.items()]
    close = (*lines, *(points(n, every, small[n]) for n in (FULL, SPHERICAL, DIAGONAL, LATE)), settled_at)
    beyond = tuple(replace(line, y=line.y - theory[EP][line.x - 1]) for line in close)
    axes = "α = rows / N", "error"
    panels = [
        Panel("Noisy perceptron, N = 50", *axes, (*lines, *shown, settled_at)),
        Panel("N = 50, what is lost", axes[0], "error less that of batch Bayes", beyond),
        Panel(f"N = {large}", *axes, (*lines, *wide)),
    ]
    return Found(
        findings,
        panels,
        notes,
        {"N": f"50 and {large}", "rows": f"{top} N", "runs": f"{runs} and {fewer}", "EP runs": listed(checked)},
    )


# ---------------------------------------------------------------------------------------------- what is exact


def linear(bench: Bench) -> Found:
    """A linear model: ADF is Bayes' rule, whatever the order of the rows."""
    size, rows, noise = 8, bench.pick(200, 2000), 0.7

    def model(x: Any, y: Any = None) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([size]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ w, noise), obs=y)

    key_x, key_y, key_w, key_order = jax.random.split(bench.key("linear"), 4)
    x = np.asarray(jax.random.normal(key_x, (rows, size))) * np.linspace(0.2, 2.0, size)
    y = x @ np.asarray(jax.random.normal(key_w, (size,))) + noise * np.asarray(jax.random.normal(key_y, (rows,)))
    covariance = np.linalg.inv(np.eye(size) + x.T @ x / noise**2)
    mean, sds = covariance @ x.T @ y / noise**2, np.sqrt(np.diag(covariance))
    root = np.linalg.cholesky(x @ x.T + noise**2 * np.eye(rows))
    white = np.linalg.solve(root, y)
    evidence = -0.5 * white @ white - np.log(np.diag(root)).sum() - 0.5 * rows * math.log(2 * math.pi)
    orders = {
        "as they came": np.arange(rows),
        "shuffled": np.asarray(jax.random.permutation(key_order, rows)),
        "sorted by y": np.argsort(y),
    }
    findings, adf = [], adfpp.ADF(model)
    for name, order in orders.items():
        state, info = adf.run(jax.random.key(0), x[order], y=y[order], progress_bar=False)
        scale = np.asarray(state.belief.scale)
        apart = {
            "mean, in sds": np.abs((np.asarray(state.belief.mean) - mean) / sds).max(),
            "covariance, in sds": np.abs((scale @ scale.T - covariance) / np.outer(sds, sds)).max(),
            "log evidence, relative": abs(float(np.sum(info.log_z)) / evidence - 1),
        }
        for what, value in apart.items():
            held: Any = {"theory": 0.0, "held": "theory", "tolerance": 1e-10, "why": "rounding"}
            findings.append(Finding(f"from the batch: {what}", f"ADF, rows {name}", float(value), **held))
    return Found(findings, [], [f"The log evidence of the {rows} rows is {evidence:.3f}."], {"N": size, "rows": rows})


# ---------------------------------------------------------------------------------------------- the open question


def noise_free(bench: Bench) -> Found:
    """Error times α of the noise-free perceptron, which the outlook leaves open."""
    top, large = bench.pick(20, 50), bench.pick(200, 400)
    sizes = bench.pick({large: 32}, {100: 512, large: 64})
    checked = bench.pick({5: 8}, {2: 16, 5: 16, 10: 16})
    more = {large: {SPHERICAL: restricted(large, 0.0, "spherical")}}
    found = {
        n: curves_of(bench, f"noise-free, N = {n}", n, 0.0, top, runs, more.get(n, {})) for n, runs in sizes.items()
    }
    ep, told = settled_errors(bench, f"noise-free, N = {large}", large, 0.0, checked)
    every = np.arange(1, top + 1)
    theory = {FULL: full_online, SPHERICAL: optimal_online, EP: bayes_batch}
    theory = {name: every * curve(every).error for name, curve in theory.items()}
    scaled = {n: {name: every * values for name, values in by.items()} for n, by in found.items()}

    findings = []
    for alpha in sorted({1, 2, 5, 10, 20, top}):
        for size, by in scaled.items():
            unless = "" if size == large else "at N = 100 terms of order 1/N are seen"
            for name, values in by.items():
                value, expected = values[:, alpha - 1], theory[name][alpha - 1]
                findings.append(compared(f"e·α at α = {alpha}, N = {size}", name, value, expected, unless))
        if alpha in ep:
            expected, where = (theory[n][alpha - 1] for n in (EP, FULL)), f"at α = {alpha}, N = {large}"
            findings += beside("e·α", where, alpha * ep[alpha], scaled[large][FULL][:, alpha - 1], *expected)
    span, what = math.log(top / 5), f"exponent from α = 5 to {top}, N = {large}"
    for name, values in found[large].items():
        decay = -np.log(values[:, -1] / values[:, 4]) / span
        findings.append(compared(what, name, decay, 1 - math.log(theory[name][-1] / theory[name][4]) / span))
    constant, batch = full_online_constant(), float(1e4 * bayes_batch(1e4).error)
    ends = {n: mean_and_error(by[FULL][:, -1]) for n, by in scaled.items()}
    saved = [found[large][FULL][:n, a - 1].mean() / ep[a].mean() - 1 for a, n in checked.items()]
    lead = theory[FULL] / theory[EP] - 1
    notes = [
        f"With its full covariance one pass of ADF reaches e·α = {ends[large][0]:.3f} ± {ends[large][1]:.3f} at "
        f"α = {top}, N = {large}. The theory of this project, for N → ∞, has {theory[FULL][-1]:.4f} there and tends to "
        f"{constant:.4f}: an error of {constant:.3f}/α, {constant / batch:.2f} times that of batch Bayes, where the "
        "spherical family has twice.",
        *(
            f"At N = {n} it is {at:.3f} ± {se:.3f}, {100 * (at / theory[FULL][-1] - 1):+.1f}% from the theory."
            for n, (at, se) in ends.items()
            if n != large
        ),
        f"On the same rows, one pass makes {percent(saved)} more errors than EP at α = "
        f"{', '.join(f'{a}' for a in checked)}, N = {large}; by theory {percent(lead[a - 1] for a in checked)}, and "
        f"{100 * (constant / batch - 1):.0f}% as α → ∞. {told}",
    ]
    labels = {EP: "batch Bayes", FULL: "full ADF, N → ∞", SPHERICAL: "spherical ADF, N → ∞"}
    lines = [Line(label, every, theory[n], kind="theory", group=n) for n, label in labels.items()]
    at = np.array([a for a in (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50) if a <= top])
    lines += [points(f"{n}, N = {large}", at, values[:, at - 1], n) for n, values in scaled[large].items()]
    lines.append(settled_points(f"EP, N = {large}", ep, found[large][FULL], times=True))
    return Found(
        findings,
        [Panel("Perceptron without noise", "α = rows / N", "e·α", tuple(lines), "x")],
        notes,
        {
            "N": both(sizes),
            "rows": f"{top} N",
            "runs": both(sizes.values()),
            "EP runs": listed(checked),
        },
    )


def both(numbers: Iterable[int]) -> str:
    """One number or two, as text."""
    return " and ".join(str(n) for n in numbers)


def listed(runs: Mapping[int, int]) -> str:
    """Numbers of runs by α, as text."""
    return ", ".join(f"{count} at α = {alpha}" for alpha, count in runs.items())


def percent(shares: Iterable[float]) -> str:
    """Shares as a list in text."""
    return ", ".join(f"{100 * share:.0f}%" for share in shares)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment("opper-threshold", "A noisy threshold against the Cramér-Rao line", "Opper 1998, Figure 1", threshold),
    Experiment("opper-perceptron", "The perceptron with noise", "Opper 1998, Figure 2", noisy_perceptron),
    Experiment("opper-asymptotics", "Squared errors at many rows", "Opper 1998, (8.10)", asymptotics),
    Experiment("opper-entropy", "Entropic errors at many rows", "Opper 1998, (8.11)-(8.12)", entropy),
    Experiment("opper-linear", "The linear model is exact", "Opper 1998, section 9", linear),
    Experiment("opper-noise-free", "The perceptron without noise", "Opper 1998, section 10", noise_free),
)
