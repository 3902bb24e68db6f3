"""Figure 2 of Opper (1998), the perceptron with noise; and the perceptron without noise, its open question."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import adfpp
from adfpp.papers.baselines import NaturalGradient
from adfpp.papers.laboratory.bench import Bench, Outcome, learn_stream
from adfpp.papers.laboratory.record import Finding, Line, Panel, against_theory, mean_and_error, measured, points
from adfpp.papers.laboratory.students import (
    Rows,
    Student,
    adf_student,
    disagreement,
    ep_mean,
    joint_student,
    learner_student,
    noisy_rows,
    perceptron,
    weights_of,
)
from adfpp.papers.theory.covariance import full_online, full_online_constant
from adfpp.papers.theory.perceptron import bayes_batch, optimal_online

FULL, SPHERICAL, DIAGONAL, EP = "ADF, full", "ADF, spherical", "ADF, diagonal", "EP"
GRADIENT, LATE = "natural gradient", "natural gradient, late"
NOISE = 6.24 / math.sqrt(50)  # noise of the field, in units of the field's standard deviation


def task(
    key: jax.Array, size: int, noise: float
) -> tuple[jax.Array, Callable[[jax.Array, jax.Array], Rows], jax.Array]:
    """A teacher N(0, I), a function that draws N of its rows for `learn_stream`, and the key for the rows."""
    key_teacher, key = jax.random.split(key)
    teacher = jax.random.normal(key_teacher, (size,))
    return teacher, lambda key, step: noisy_rows(teacher, key, size, noise * math.sqrt(size)), key


def curves_of(
    bench: Bench, name: str, size: int, noise: float, top: int, runs: int, more: Mapping[str, Student]
) -> dict[str, np.ndarray]:
    """Errors (9.3) of full ADF and of other students after each N rows.

    Args:
        bench: The bench.
        name: Name of the simulation.
        size: N.
        noise: Noise of the field, in units of its standard deviation.
        top: The last α.
        runs: Number of runs.
        more: The other students.

    Returns:
        ``{student: (runs, top)}``.
    """
    blank, model = np.zeros((size, size)), perceptron(noise * math.sqrt(size))
    start, update = joint_student({FULL: adf_student(model, blank, blank[0]), **more})

    def one(key: jax.Array) -> dict[str, jax.Array]:
        teacher, draw, key = task(key, size, noise)

        def measure(states: dict[str, Any]) -> dict[str, jax.Array]:
            return {n: disagreement(weights_of(state), teacher) for n, state in states.items()}

        return learn_stream(update, start, draw, measure, key, top)

    return bench.replicate(name, one, runs)


def restricted(size: int, noise: float, family: str) -> Student:
    """An ADF of a perceptron with another family."""
    blank = np.zeros((size, size))
    return adf_student(perceptron(noise * math.sqrt(size)), blank, blank[0], family=family)


def ep_errors(
    bench: Bench, name: str, size: int, noise: float, runs: Mapping[int, int]
) -> tuple[dict[int, np.ndarray], str]:
    """Errors of EP on the first rows of the first runs that `curves_of` made with the same name.

    The runs are the same because the first keys into which a key is split do not depend on the number of keys.

    Args:
        bench: The bench.
        name: Name of the runs.
        size: N.
        noise: Noise of the field, in units of its standard deviation.
        runs: Number of runs at each α.

    Returns:
        ``{α: (runs,)}``, and a note on the number of runs in which EP has converged.
    """
    top = max(runs)

    def one(key: jax.Array) -> Any:
        teacher, draw, key = task(key, size, noise)
        chunks = lax.map(lambda step: draw(*step), (jax.random.split(key, top), jnp.arange(top)))
        return teacher, jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), chunks)

    teachers, (x, y) = bench.replicate(name, one, max(runs.values()))
    ep, errors, converged = adfpp.EP(perceptron(noise * math.sqrt(size))), {}, 0
    for alpha, count in runs.items():
        errors[alpha] = np.empty(count)
        for i in bench.counted(f"EP, N = {size}, α = {alpha}", count):
            mean, done = ep_mean(ep, x[i, : alpha * size], y[i, : alpha * size])
            errors[alpha][i], converged = disagreement(mean, teachers[i]), converged + done
    return errors, f"EP has settled in {converged} of {sum(runs.values())} runs."


def control_variate(some: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of a student with few runs, with the help of another student with more runs.

    The estimate is the mean of the other student over all its runs, minus the mean difference over the common runs.
    With equally many runs of both it has the variance of `some`; a difference from fewer runs adds its own variance.

    Args:
        some: ``(checked, …)`` the student with few runs.
        other: ``(runs, …)`` the other student; its first runs are on the same rows as those of `some`.
    """
    checked, runs = len(some), len(other)
    apart = other[:checked] - some
    variance = some.var(0, ddof=1) / runs + apart.var(0, ddof=1) * (1 / checked - 1 / runs)
    return other.mean(0) - apart.mean(0), np.sqrt(variance)


def ep_points(label: str, some: Mapping[int, np.ndarray], other: np.ndarray, times: bool = False) -> Line:
    """A curve of EP's errors, estimated by their difference from the errors of another student.

    Args:
        label: Its text in the legend.
        some: ``{α: (checked,)}`` errors of EP.
        other: ``(runs, αs)`` errors of the other student.
        times: Whether to multiply the errors by α.
    """
    at = np.array(list(some))
    mean, error = np.array([control_variate(errors, other[:, alpha - 1]) for alpha, errors in some.items()]).T
    scale = at if times else 1.0
    return Line(label, at, scale * mean, scale * error, group=EP)


def ep_findings(what: str, where: str, ep: np.ndarray, full: np.ndarray, batch: float, passed: float) -> list[Finding]:
    """EP compared with batch Bayes, and the difference between full ADF and EP on the same rows.

    Args:
        what: Name of the quantity.
        where: The α and N, in words.
        ep: ``(checked,)``, EP on the first runs.
        full: ``(runs,)``, full ADF on all of them.
        batch: Theory of batch Bayes.
        passed: Theory of full ADF.
    """
    mean, error = (float(v) for v in control_variate(ep, full))
    return [
        Finding(f"{what} {where}", EP, mean, error, theory=float(batch), held="theory", runs=len(ep)),
        against_theory(f"{what} above EP's {where}", FULL, full[: len(ep)] - ep, passed - batch),
    ]


def noisy_perceptron(bench: Bench) -> Outcome:
    """Error against α for N = 50 and a larger N, beside the curves for N → ∞."""
    top, alphas = 10, (2, 4, 10)
    runs, large, fewer, checked = (
        bench.pick(512, 4096),
        bench.pick(200, 400),
        bench.pick(32, 64),
        bench.pick({10: 16}, {2: 50, 4: 50, 10: 400}),
    )
    late = 0.5 * math.pi * 6.24**2  # 1/J at θ = 0
    rules = {GRADIENT: NaturalGradient(6.24), LATE: NaturalGradient(6.24, late)}
    more = {name: learner_student(rule, 50) for name, rule in rules.items()}
    more |= {SPHERICAL: restricted(50, NOISE, "spherical"), DIAGONAL: restricted(50, NOISE, "diagonal")}
    small = curves_of(bench, "perceptron", 50, NOISE, top, runs, more)
    big = curves_of(
        bench, "large perceptron", large, NOISE, top, fewer, {SPHERICAL: restricted(large, NOISE, "spherical")}
    )
    ep, ep_note = ep_errors(bench, "perceptron", 50, NOISE, checked)
    every = np.arange(1, top + 1)
    theory = {FULL: full_online, SPHERICAL: optimal_online, EP: bayes_batch}
    theory = {name: curve(every, NOISE).error for name, curve in theory.items()}

    findings = []
    for alpha in alphas:
        for size, values in ((50, small), (large, big)):
            what = f"error at α = {alpha}, N = {size}"
            findings += [
                against_theory(what, n, values[n][:, alpha - 1], theory[n][alpha - 1]) for n in (FULL, SPHERICAL)
            ]
        what = f"error at α = {alpha}, N = 50"
        findings += [measured(what, name, small[name][:, alpha - 1]) for name in (DIAGONAL, LATE, GRADIENT)]
        if alpha in ep:
            expected = (theory[n][alpha - 1] for n in (EP, FULL))
            findings += ep_findings("error", f"at α = {alpha}, N = 50", ep[alpha], small[FULL][:, alpha - 1], *expected)
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
        ep_note,
    ]
    labels = {EP: "batch Bayes", FULL: "full ADF, N → ∞", SPHERICAL: "spherical ADF, N → ∞"}
    lines = [Line(label, every, theory[n], kind="theory", group=n) for n, label in labels.items()]
    ep_line = ep_points("EP, N = 50", ep, small[FULL])
    shown = [points(f"{n}, N = 50", every, small[n], n) for n in (FULL, SPHERICAL, LATE)]
    wide = [points(f"{n}, N = {large}", every, values, n) for n, values in big.items()]
    curves = (*lines, *(points(n, every, small[n]) for n in (FULL, SPHERICAL, DIAGONAL, LATE)), ep_line)
    beyond = tuple(replace(line, y=np.asarray(line.y) - theory[EP][np.asarray(line.x) - 1]) for line in curves)
    axes = "α = rows / N", "error"
    panels = [
        Panel("Noisy perceptron, N = 50", *axes, (*lines, *shown, ep_line)),
        Panel("N = 50, what is lost", axes[0], "error less that of batch Bayes", beyond),
        Panel(f"N = {large}", *axes, (*lines, *wide)),
    ]
    return Outcome(
        findings,
        panels,
        notes,
        {"N": f"50 and {large}", "rows": f"{top} N", "runs": f"{runs} and {fewer}", "EP runs": listed(checked)},
    )


def noise_free(bench: Bench) -> Outcome:
    """Error times α of the noise-free perceptron, which the outlook of the paper leaves open."""
    top, large = bench.pick(20, 50), bench.pick(200, 400)
    sizes = bench.pick({large: 32}, {100: 512, large: 64})
    checked = bench.pick({5: 8}, {2: 16, 5: 16, 10: 16})
    more = {large: {SPHERICAL: restricted(large, 0.0, "spherical")}}
    errors = {
        n: curves_of(bench, f"noise-free, N = {n}", n, 0.0, top, runs, more.get(n, {})) for n, runs in sizes.items()
    }
    ep, ep_note = ep_errors(bench, f"noise-free, N = {large}", large, 0.0, checked)
    every = np.arange(1, top + 1)
    theory = {FULL: full_online, SPHERICAL: optimal_online, EP: bayes_batch}
    theory = {name: every * curve(every).error for name, curve in theory.items()}
    scaled = {n: {name: every * values for name, values in by.items()} for n, by in errors.items()}

    findings = []
    for alpha in sorted({1, 2, 5, 10, 20, top}):
        for size, by in scaled.items():
            unless = "" if size == large else "at N = 100 terms of order 1/N are seen"
            for name, values in by.items():
                value, expected = values[:, alpha - 1], theory[name][alpha - 1]
                findings.append(against_theory(f"e·α at α = {alpha}, N = {size}", name, value, expected, unless))
        if alpha in ep:
            expected, where = (theory[n][alpha - 1] for n in (EP, FULL)), f"at α = {alpha}, N = {large}"
            findings += ep_findings("e·α", where, alpha * ep[alpha], scaled[large][FULL][:, alpha - 1], *expected)
    span, what = math.log(top / 5), f"exponent from α = 5 to {top}, N = {large}"
    for name, values in errors[large].items():
        decay = -np.log(values[:, -1] / values[:, 4]) / span
        findings.append(against_theory(what, name, decay, 1 - math.log(theory[name][-1] / theory[name][4]) / span))
    constant, batch = full_online_constant(), float(1e4 * bayes_batch(1e4).error)
    ends = {n: mean_and_error(by[FULL][:, -1]) for n, by in scaled.items()}
    saved = [errors[large][FULL][:n, a - 1].mean() / ep[a].mean() - 1 for a, n in checked.items()]
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
        f"{100 * (constant / batch - 1):.0f}% as α → ∞. {ep_note}",
    ]
    labels = {EP: "batch Bayes", FULL: "full ADF, N → ∞", SPHERICAL: "spherical ADF, N → ∞"}
    lines = [Line(label, every, theory[n], kind="theory", group=n) for n, label in labels.items()]
    at = np.array([a for a in (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50) if a <= top])
    lines += [points(f"{n}, N = {large}", at, values[:, at - 1], n) for n, values in scaled[large].items()]
    lines.append(ep_points(f"EP, N = {large}", ep, errors[large][FULL], times=True))
    return Outcome(
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
