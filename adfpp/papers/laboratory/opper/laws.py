"""The laws at many rows of Opper, A Bayesian approach to online learning (1998): squared and entropic errors.

A probit model in a few dimensions learns three kinds of labels: labels of its own kind, labels of which one in ten is
flipped without the model knowing it, and the same labels with a model that knows it.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from scipy.special import xlogy

import adfpp
from adfpp.distributions import Probit
from adfpp.papers.laboratory.bench import Bench, Outcome, learn_stream
from adfpp.papers.laboratory.record import Line, Panel, against_theory, mean_and_error, measured, points
from adfpp.papers.laboratory.students import Rows, noisy_rows, normal_weights
from adfpp.papers.theory.asymptotics import Nearest, nearest_probit, probit_link
from adfpp.papers.theory.channel import log_label

SIZE, FLIP = 3, 0.1
STEP = 3  # doublings between the three times of `limit`: far enough apart to separate the two terms that it removes


class Case(NamedTuple):
    """A teacher along the first axis, and a model of it.

    Attributes:
        name: Name of the case.
        length: Length of the teacher's weights; its noise is 1.
        flip: Probability that a label of the teacher is flipped.
        known: Probability of a flip in the model.
    """

    name: str
    length: float
    flip: float = 0.0
    known: float = 0.0

    @property
    def theory(self) -> Nearest:
        """The model nearest to the teacher."""
        return nearest_probit(probit_link(self.length, flip=self.flip), flip=self.known)


OWN, OTHER, KNOWN = CASES = (
    Case("well specified", 1.0),
    Case("flips unknown", 2.0, FLIP),
    Case("flips known", 2.0, FLIP, FLIP),
)


class Beliefs(NamedTuple):
    """Beliefs of many runs at a few times.

    Attributes:
        times: ``(n,)`` the numbers of rows.
        means: ``(runs, n, N)`` the means.
        covariances: ``(runs, n, N, N)`` the covariances.
    """

    times: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


def probit_with_flips(x: jax.Array, flip: jax.Array, y: jax.Array | None = None) -> None:
    """A probit with noise 1, with the probability of a flip of each label as an argument."""
    w = normal_weights(SIZE)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x @ w, 1.0, flip), obs=y)


def beliefs(bench: Bench, runs: int) -> dict[Case, Beliefs]:
    """Beliefs of one pass of ADF, at times a factor 2 apart; the cases see the same inputs and noise."""
    chunk, doublings = 100, 8
    adf, blank = adfpp.ADF(probit_with_flips), np.zeros(chunk)
    start = adf.init(jax.random.key(0), np.zeros((chunk, SIZE)), blank, y=blank)
    steps = 2 ** np.arange(doublings + 1) - 1

    def one(key: jax.Array) -> Any:
        def of(length: jax.Array, flip: jax.Array, known: jax.Array) -> Any:
            def draw(key: jax.Array, step: jax.Array) -> Rows:
                return noisy_rows(length * jnp.eye(SIZE)[0], key, chunk, 1.0, flip)

            def update(state: Any, rows: Rows) -> Any:
                x, y = rows
                return adf.update(state, x, jnp.broadcast_to(known, y.shape), y=y)[0]

            means, roots = learn_stream(update, start, draw, lambda state: tuple(state.belief), key, 2**doublings)
            return means[steps], roots[steps] @ roots[steps].mT

        return jax.vmap(of)(*(jnp.array(v) for v in zip(*(c[1:] for c in CASES), strict=True)))

    means, covariances = bench.replicate("probit", one, runs, 128)
    return {c: Beliefs(chunk * (steps + 1), means[:, k], covariances[:, k]) for k, c in enumerate(CASES)}


def split(squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The part of matrices ``(…, N, N)`` along the first axis, and the mean of their parts across it."""
    return squares[..., 0, 0], squares[..., range(1, SIZE), range(1, SIZE)].mean(-1)


def limit(times: np.ndarray, values: np.ndarray, last: int = -1) -> np.ndarray:
    """The limit of values that differ from it by (a + b ln t)/t, extrapolated from three times with equal ratios.

    The second difference of t times the value in ln t contains neither a nor b. The prior causes a; b is caused by
    rows that were learned while the mean had a variance of order 1/t. The remaining error is of order (ln t/t)²: see
    `remainder_note`.

    Args:
        times: ``(n,)`` rows, each twice the one before.
        values: ``(…, n)`` the values at these times.
        last: Index of the last of the three times.

    Returns:
        ``(…,)`` the limits.
    """
    weights = np.zeros(len(times))
    weights[[last, last - STEP, last - 2 * STEP]] = 1.0, -2.0, 1.0
    return values @ (weights * times) / (weights @ times)


def remainder_note(times: np.ndarray, *series: np.ndarray) -> str:
    """A note on the remaining error of the limits of some series, from their limits at a quarter of the rows.

    Args:
        times: ``(n,)`` rows, each twice the one before.
        *series: ``(runs, n)`` each.
    """
    moved = [mean_and_error(limit(times, values) - limit(times, values, -3)) for values in series]
    now, before = (limit(times, (np.log(times) / times) ** 2, last) for last in (-1, -3))
    return (
        f"The limits t → ∞ are extrapolated from t = {', '.join(str(t) for t in times[-1 - 2 * STEP :: STEP])}, so "
        f"that terms (a + b ln t)/t drop out. From a quarter of these rows they come out lower by "
        f"{', '.join(f'{m:.4f} ± {e:.4f}' for m, e in moved)}, in the order of the table. That is what is neglected, "
        f"of order (ln t/t)², and {100 * now / (before - now):.0f}% of it is left here."
    )


def settings(of_case: dict[Case, Beliefs]) -> dict[str, Any]:
    """Sizes and number of runs."""
    return {"N": SIZE, "rows": int(of_case[OWN].times[-1]), "runs": len(of_case[OWN].means)}


def asymptotics(bench: Bench) -> Outcome:
    """Compares t·E[εεᵀ] with J⁻¹ and A⁻¹BA⁻¹."""
    findings, panels, notes, widths = [], [], [], []
    of_case = beliefs(bench, bench.pick(256, 4096))
    for case, (times, means, covariances) in of_case.items():
        nearest, entry = case.theory, f"ADF, {case.name}"
        off = means - nearest.length * np.eye(SIZE)[0]
        squares = times[:, None, None] * off[..., :, None] * off[..., None, :]
        along_it, across = split(squares)
        spread, width = nearest.sandwich, nearest.curvature.inverse()
        parts = {
            "t·E[εεᵀ] along θ*": (along_it, spread.along),
            "t·E[εεᵀ] across θ*": (across, spread.across),
            "trace of t·E[εεᵀ]": (along_it + (SIZE - 1) * across, spread.trace(SIZE)),
            "t·E[εεᵀ] off the diagonal": (squares[..., 0, 1:].mean(-1), 0.0),
        }
        slow = "the length of θ*, of which steep labels tell little, is still being learned"
        for what, (values, theory) in parts.items():
            hidden = slow if case is KNOWN and values is not across and theory else ""
            for at, unless in ((2, "terms of order 1/t"), (-1, hidden)):
                findings.append(against_theory(f"{what}, t = {times[at]}", entry, values[:, at], theory, unless))
        for where, values, theory in zip(("along", "across"), split(covariances), width, strict=True):
            width_values, what = times * values, f"t·C, its own covariance, {where} θ*, t "
            if case is KNOWN:
                findings.append(against_theory(f"{what}= {times[-1]}", entry, width_values[:, -1], theory, slow))
            else:
                findings.append(against_theory(f"{what}→ ∞", entry, limit(times, width_values), theory))
                widths.append(width_values)
        if case is OTHER:
            for matrix, theory in (("A⁻¹", width.along), ("J⁻¹", 1.0 / nearest.fisher.along)):
                what = f"t·E[εεᵀ] along θ* is above {matrix}"
                findings.append(measured(what, entry, along_it[:, -1], theory=theory, held="above"))
            ratio = math.sqrt(along_it[:, -1].mean() / split(covariances)[0][:, -1].mean() / times[-1])
            notes.append(
                f"With one label in ten flipped and a model that does not know it, θ* has length {nearest.length:.3f} "
                f"where the teacher's is {case.length:g}. Along it the error's sd is {ratio:.2f} times the belief's "
                f"own, {math.sqrt(spread.along / width.along):.2f} in theory: ADF's covariance tends to A⁻¹/t, "
                "as the exact posterior's does, and not to the sandwich."
            )
        lines = [
            level("A⁻¹BA⁻¹ along θ*", times, spread.along, "along"),
            level("A⁻¹BA⁻¹ across", times, spread.across, "across"),
            *([level("A⁻¹ along θ*", times, width.along)] if case is OTHER else []),
            points("along θ*", times, along_it, "along"),
            points("across", times, across, "across"),
        ]
        panels.append(Panel(f"Probit, N = {SIZE}, {case.name}", "rows t", "t·E[εεᵀ]", tuple(lines), "xy"))
    notes.append(remainder_note(of_case[OWN].times, *widths))
    angles = [math.degrees(1.0) ** 2 * c.theory.sandwich.across / c.theory.length**2 for c in (OTHER, KNOWN)]
    notes.append(
        f"A model that knows of the flips finds the teacher itself, length included. For the same accuracy of the "
        f"direction the model without flips needs {angles[0] / angles[1]:.2f} times as many rows, by theory."
    )
    return Outcome(findings, panels, notes, settings(of_case))


@lru_cache(maxsize=2)
def entropic_rule(points: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Points for x ~ N(0, I), ``(m, N)``, and weights, for even functions of x: Gauss-Legendre along the first axis.

    Args:
        points: Number of points in each direction, and in each of some pieces of the positive half of the first axis.
    """
    nodes, weights = np.polynomial.legendre.leggauss(points)
    edges = np.array([0.0, 0.5, 1.2, 2.2, 3.5, 5.5, 9.0])
    half = 0.5 * np.diff(edges)[:, None]
    first = (edges[:-1, None] + half * (1 + nodes)).ravel()
    density = (half * weights).ravel() * np.exp(-0.5 * first**2) * math.sqrt(2.0 / math.pi)
    others, chances = np.polynomial.hermite_e.hermegauss(points)
    axes, parts = [first] + [others] * (SIZE - 1), [density] + [chances / chances.sum()] * (SIZE - 1)
    x = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], -1)
    return x, np.prod(np.meshgrid(*parts, indexing="ij"), 0).ravel()


def entropic_error(case: Case, mean: np.ndarray, covariance: np.ndarray | None) -> np.ndarray:
    """E ln Q(y)/P(y), (8.11), by quadrature over x, for predictive distributions or for plugged-in means.

    Args:
        case: Teacher and model.
        mean: ``(n, N)`` the means of the beliefs.
        covariance: ``(n, N, N)`` their covariances, or None to plug the mean in.

    Returns:
        ``(n,)`` the errors.
    """
    x, weights = entropic_rule()
    chance = np.exp(log_label(case.length * x[:, 0], case.flip))
    certain = weights @ (xlogy(chance, chance) + xlogy(1 - chance, 1 - chance))
    variance = 1.0 if covariance is None else 1.0 + np.einsum("ki,nij,kj->nk", x, covariance, x, optimize=True)
    u = mean @ x.T / np.sqrt(variance)
    return certain - (chance * log_label(u, case.known) + (1 - chance) * log_label(-u, case.known)) @ weights


def entropy(bench: Bench) -> Outcome:
    """2t times the entropic error above its floor, for the predictive distribution and for the plugged-in mean."""
    findings, panels, notes = [], [], []
    of_case = beliefs(bench, bench.pick(256, 4096))
    for case, (times, means, covariances) in of_case.items():
        nearest, entry = case.theory, f"ADF, {case.name}"
        excess, lines = {}, []
        for kind, theory in (("plugged in", nearest.plugged_in(SIZE)), ("predictive", nearest.predictive(SIZE))):
            widths = [None] * len(times) if kind == "plugged in" else list(covariances.swapaxes(0, 1))
            errors = [entropic_error(case, means[:, i], wide) for i, wide in enumerate(widths)]
            values = excess[kind] = 2 * times * (np.stack(errors, 1) - nearest.floor)
            what = f"2t(ε − floor), {kind}, t = "
            for at, unless in ((2, "terms of order 1/t"), (-1, "")):
                findings.append(against_theory(f"{what}{times[at]}", entry, values[:, at], theory, unless))
            lines += [level(f"{kind}, t → ∞", times, theory, kind), points(kind, times, values, kind)]
        panels.append(Panel(f"Entropic error, {case.name}", "rows t", "2t (ε − floor)", tuple(lines), "x"))
        if case is OTHER:
            sandwich = nearest.plugged_in(SIZE)
            apart = excess["plugged in"] - excess["predictive"]
            what = "2t(plugged in − predictive), t "
            findings.append(
                against_theory(f"{what}= {times[-1]}", entry, apart[:, -1], sandwich - SIZE, "terms of order 1/t")
            )
            findings.append(against_theory(f"{what}→ ∞", entry, limit(times, apart), sandwich - SIZE))
            notes.append(
                f"(8.12) is the law of the mean plugged in, Tr(BA⁻¹) = {sandwich:.3f} where the flips are unknown. The "
                f"predictive distribution, of which (8.11) speaks, has N = {SIZE} there too: the width of the belief "
                f"takes off {findings[-1].value:.4f} ± {findings[-1].se:.4f} as t → ∞."
            )
            notes.append(remainder_note(times, apart))
        if case is KNOWN:
            floor, error = OTHER.theory.floor, excess["predictive"][:, -1] / (2 * times[-1])
            what = f"ε, predictive, t = {times[-1]}, below the floor of the model without flips"
            findings.append(measured(what, entry, error, theory=floor, held="below"))
            notes.append(
                f"No number of rows takes the model without flips below {floor:.4f} nats. With the flips in the model "
                f"the error at t = {times[-1]} is {error.mean():.1e}."
            )
    return Outcome(findings, panels, notes, settings(of_case))


def level(label: str, x: np.ndarray, height: float, group: str = "") -> Line:
    """A horizontal line for the theory."""
    return Line(label, x[[0, -1]], np.full(2, height), kind="theory", group=group)
