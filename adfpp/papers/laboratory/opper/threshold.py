"""Figure 1 of Opper (1998): a noisy threshold, compared with the Cramér-Rao line."""

import math
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from jax.scipy.special import log_ndtr

from adfpp.distributions import Probit
from adfpp.papers.laboratory.bench import Bench, Outcome, learn_stream
from adfpp.papers.laboratory.record import Line, Panel, against_theory, measured, points
from adfpp.papers.laboratory.students import Rows, Student, adf_student, joint_student
from adfpp.papers.theory.perceptron import cramer_rao_threshold

FULL, EXACT = "ADF, full", "exact Bayes"
GRADIENT, SOON, LATE = "natural gradient", "natural gradient, 1/J(0) late", "natural gradient, late"
THRESHOLD, SPREAD = 0.1, 0.5  # θ*, σ0


def threshold_model(x: jax.Array, y: jax.Array | None = None) -> None:
    """A noisy threshold with the prior N(0, 1)."""
    theta = cast(jax.Array, numpyro.sample("theta", dist.Normal(0, 1)))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x - theta, SPREAD), obs=y)


def threshold_gradient(delay: float = 0.0) -> Student:
    """Natural gradient (4.4) for P(σ|θ, x) = Φ(σ(x − θ)/σ0), x uniform on [−1, 1], from θ = 0 at rate 1/(t + delay).

    Args:
        delay: Number of rows by which the rate is delayed.
    """
    nodes, weights = np.polynomial.legendre.leggauss(12)

    def step(state: Rows, row: Rows) -> tuple[Rows, None]:
        (theta, t), (x, y) = state, row
        sign, u, at = 2 * y - 1, (nodes - theta) / SPREAD, (x - theta) / SPREAD
        fisher = 0.5 * weights @ jnp.exp(-(u**2) - log_ndtr(u) - log_ndtr(-u)) / (2 * math.pi * SPREAD**2)
        score = -sign * jnp.exp(-0.5 * at**2 - log_ndtr(sign * at)) / (math.sqrt(2 * math.pi) * SPREAD)
        return (theta + score / fisher / (t + 1 + delay), t + 1), None

    return (jnp.zeros(()), jnp.zeros(())), lambda state, rows: lax.scan(step, state, rows)[0]


def late_gradient(times: np.ndarray, delay: float, information: float) -> np.ndarray:
    """t·J·E(θ_t − θ*)² of `threshold_gradient` when its steps are so short that the score is linear in θ.

    Then ε_t = (1 − γ_t) ε_{t−1} + γ_t ξ_t with Var ξ = 1/J and γ_t = 1/(t + delay), so (t + delay) ε_t is the sum of
    delay · ε_0 and t terms ξ.

    Args:
        times: ``(n,)`` rows t.
        delay: Number of rows by which the rate is delayed.
        information: J.
    """
    return (times / (times + delay)) ** 2 * (1 + information * (delay * THRESHOLD) ** 2 / times)


def exact_threshold() -> tuple[Student, Callable[[jax.Array], jax.Array]]:
    """Bayes' rule on a grid of θ, and its mean: exact while the posterior is on the grid and wider than a step."""
    grid = THRESHOLD + 0.03 * jnp.arange(-30, 31)

    def learn(log_belief: jax.Array, rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        x, y = rows
        return log_belief + log_ndtr((2 * y - 1)[:, None] * (x[:, None] - grid) / SPREAD).sum(0)

    return (-0.5 * grid**2, learn), lambda log_belief: jax.nn.softmax(log_belief) @ grid


def threshold(bench: Bench) -> Outcome:
    """t·J·E(θ_t − θ*)² of a noisy threshold, which is 1 at the Cramér-Rao line."""
    chunk, steps, runs, delay = 10, 100, bench.pick(1024, 16384), 10.0
    times, blank = chunk * np.arange(1, steps + 1), np.zeros(chunk)
    bound = cramer_rao_threshold(times, THRESHOLD, SPREAD)
    linear = late_gradient(times, delay, 1 / float(cramer_rao_threshold(1, THRESHOLD, SPREAD)))
    short = float(cramer_rao_threshold(1, 0.0, SPREAD))  # 1/J(0)
    bayes, mean_of = exact_threshold()
    students = {
        FULL: adf_student(threshold_model, blank, blank),
        EXACT: bayes,
        GRADIENT: threshold_gradient(),
        SOON: threshold_gradient(short),
        LATE: threshold_gradient(delay),
    }
    start, update = joint_student(students)

    def draw(key: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        key_x, key_noise = jax.random.split(key)
        x = jax.random.uniform(key_x, (chunk,), minval=-1.0, maxval=1.0)
        return x, (x - THRESHOLD + SPREAD * jax.random.normal(key_noise, (chunk,)) > 0).astype(x.dtype)

    def measure(states: dict[str, Any]) -> dict[str, jax.Array]:
        theta = {FULL: states[FULL].belief.mean[0], EXACT: mean_of(states[EXACT])}
        theta |= {name: states[name][0] for name in (GRADIENT, SOON, LATE)}
        return {name: (value - THRESHOLD) ** 2 for name, value in theta.items()}

    squares = bench.replicate("threshold", lambda key: learn_stream(update, start, draw, measure, key, steps), runs)
    ratio = {name: values / bound for name, values in squares.items()}
    findings = []
    for t in (30, 100, 300, 1000):
        what, at = f"t·J·E(θ − θ*)², t = {t}", t // chunk - 1
        unless = "" if t == times[-1] else "the line is where t → ∞"
        # The grid of exact Bayes is made for narrow posteriors.
        findings += [
            against_theory(what, n, ratio[n][:, at], 1.0, unless) for n in (FULL, EXACT) if n == FULL or t >= 300
        ]
        unless = "" if t >= 100 else "the theory is linear in θ − θ*, and early steps are long"
        findings.append(against_theory(what, LATE, ratio[LATE][:, at], linear[at], unless))
    apart = measured("t·J·(squared error above exact Bayes)", FULL, (ratio[FULL] - ratio[EXACT])[:, -1])
    # A run is lost if it ends five standard errors away, or at NaN, because J underflows far from the rows.
    lost = {n: ~(ratio[n][:, -1] < 25.0) for n in (GRADIENT, SOON, LATE)}
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
        Line("natural gradient, late, linear", times[9:], linear[9:], kind="theory", group=LATE),
    ]
    notes = [
        f"On the same streams one pass of ADF and exact Bayes differ by {apart.value:+.4f} ± {apart.se:.4f} of the "
        f"bound at t = {times[-1]}: that is what projecting after every row has cost.",
        f"The natural gradient with the rate 1/t loses {lost[GRADIENT].sum()} of {runs} runs: an early step takes θ to "
        f"where no label tells anything, J(θ) is next to 0, and the next step is as long as its inverse. With the rate "
        f"1/(t + {short:.2f}), late by 1/J(0) rows, it still loses {lost[SOON].sum()}; with 1/(t + {delay:g}) it "
        f"loses {lost[LATE].sum()}. That one stays below the line, by theory at {linear[-1]:.3f} of it at t = "
        f"{times[-1]}, only because it starts at 0, which is near the truth, and moves slowly.",
    ]
    return Outcome(
        findings,
        [
            Panel("Squared error of a noisy threshold", "rows t", "E(θ − θ*)²", tuple(lines), "xy"),
            Panel("In units of the line", "rows t", "t·J·E(θ − θ*)²", tuple(scaled), "x"),
        ],
        notes,
        {"rows": int(times[-1]), "runs": runs},
    )
