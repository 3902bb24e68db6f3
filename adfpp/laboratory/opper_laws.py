"""The laws at many rows of Opper, A Bayesian approach to online learning (1998): squared and entropic errors.

A probit model in a few dimensions learns labels of its own kind, and labels of which one in ten is flipped, without
knowing it and knowing it.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import xlogy

from adfpp.laboratory.bench import Bench, Found, along
from adfpp.laboratory.record import Finding, Line, Panel, mean_and_error
from adfpp.laboratory.students import adf_of, perceptron, rows_of
from adfpp.theory.asymptotics import Nearest, nearest_probit, probit_link
from adfpp.theory.channel import log_label

SIZE, FLIP = 3, 0.1


class Case(NamedTuple):
    """A teacher along the first axis, and a model of it.

    Attributes:
        name: What it is called.
        length: Of the teacher's weights; its noise is 1.
        flip: Probability that its labels are turned over.
        known: The same, of the model.
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
        times: ``(n,)`` rows.
        means: ``(runs, n, N)``.
        covariances: ``(runs, n, N, N)``.
    """

    times: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


@lru_cache(maxsize=3)
def beliefs(bench: Bench, case: Case) -> Beliefs:
    """One pass of ADF, at times a factor 2 apart; the two experiments look at the same runs."""
    chunk, doublings, runs = 100, bench.pick(6, 8), bench.pick(1024, 4096)
    start, update = adf_of(perceptron(1.0, case.known), np.zeros((chunk, SIZE)), np.zeros(chunk))
    teacher = case.length * jnp.eye(SIZE)[0]
    kept = 2 ** np.arange(doublings + 1) - 1

    def one(key: jax.Array) -> Any:
        def draw(key: jax.Array, step: jax.Array) -> Any:
            return rows_of(teacher, key, chunk, 1.0, case.flip)

        means, roots = along(update, start, draw, lambda state: tuple(state.belief), key, 2**doublings)
        return means[kept], roots[kept] @ roots[kept].mT

    return Beliefs(chunk * (kept + 1), *bench.replicate(case.name, one, runs, 256))


def split(squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parts along the first axis and across it (their mean) of matrices ``(…, N, N)``."""
    return squares[..., 0, 0], squares[..., range(1, SIZE), range(1, SIZE)].mean(-1)


def settings(bench: Bench) -> dict[str, Any]:
    """Sizes and number of runs."""
    found = beliefs(bench, OWN)
    return {"N": SIZE, "rows": int(found.times[-1]), "runs": len(found.means)}


def asymptotics(bench: Bench) -> Found:
    """t·E[εεᵀ] against J⁻¹ and A⁻¹BA⁻¹."""
    findings, panels, notes = [], [], []
    for case in CASES:
        nearest, (times, means, covariances), entry = case.theory, beliefs(bench, case), f"ADF, {case.name}"
        off = means - nearest.length * np.eye(SIZE)[0]
        squares = times[:, None, None] * off[..., :, None] * off[..., None, :]
        along_it, across = split(squares)
        limit, width = nearest.sandwich, nearest.curvature.inverse()
        parts = {
            "t·E[εεᵀ] along θ*": (along_it, limit.along),
            "t·E[εεᵀ] across θ*": (across, limit.across),
            "trace of t·E[εεᵀ]": (along_it + (SIZE - 1) * across, limit.trace(SIZE)),
            "t·E[εεᵀ] off the diagonal": (squares[..., 0, 1:].mean(-1), 0.0),
        }
        slow = "the length of θ*, of which steep labels tell little, is still being learned"
        for what, (values, theory) in parts.items():
            hidden = slow if case is KNOWN and values is not across and theory else ""
            for at, unless in ((2, "terms of order 1/t"), (-1, hidden)):
                findings.append(compared(f"{what}, t = {times[at]}", entry, values[:, at], theory, unless))
        for where, values, theory in zip(("along", "across"), split(covariances), width, strict=True):
            own, unless = times[-1] * values[:, -1], slow if case is KNOWN else ""
            held, allowed = (None, 0.0) if unless else ("theory", 0.02 * theory)
            why = unless or "of order ln t/t: the prior, and rows seen while θ was far"
            what = f"t·C, its own covariance, {where} θ*, t = {times[-1]}"
            findings.append(measured(what, entry, own, theory=theory, held=held, tolerance=allowed, why=why))
        if case is OTHER:
            for matrix, theory in (("A⁻¹", width.along), ("J⁻¹", 1.0 / nearest.fisher.along)):
                what = f"t·E[εεᵀ] along θ* is above {matrix}"
                findings.append(measured(what, entry, along_it[:, -1], theory=theory, held="above"))
            ratio = math.sqrt(along_it[:, -1].mean() / split(covariances)[0][:, -1].mean() / times[-1])
            notes.append(
                f"With one label in ten flipped and a model that does not know it, θ* has length {nearest.length:.3f} "
                f"where the teacher's is {case.length:g}. Along it the error is {ratio:.2f} times what the belief says "
                f"of itself, {math.sqrt(limit.along / width.along):.2f} in theory: ADF's covariance tends to A⁻¹/t, "
                "as the exact posterior's does, and not to the sandwich."
            )
        lines = [
            level("A⁻¹BA⁻¹ along θ*", times, limit.along, "along"),
            level("A⁻¹BA⁻¹ across", times, limit.across, "across"),
            *([level("A⁻¹ along θ*", times, width.along)] if case is OTHER else []),
            points("along θ*", times, along_it, "along"),
            points("across", times, across, "across"),
        ]
        panels.append(Panel(f"Probit, N = {SIZE}, {case.name}", "rows t", "t·E[εεᵀ]", tuple(lines), "xy"))
    angles = [math.degrees(1.0) ** 2 * c.theory.sandwich.across / c.theory.length**2 for c in (OTHER, KNOWN)]
    notes.append(
        f"A model that knows of the flips finds the teacher itself, length included, and its direction to the same "
        f"accuracy from {angles[0] / angles[1]:.2f} times fewer rows."
    )
    return Found(findings, panels, notes, settings(bench))


@lru_cache(maxsize=2)
def entropic_rule(points: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Points for x ~ N(0, I), ``(m, N)``, and weights, for even functions of x: Gauss-Legendre along the first axis.

    Args:
        points: In each direction; along the first axis in each of some pieces of its positive half.
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
    """E ln Q(y)/P(y), (8.11), by quadrature over x: of predictive distributions, or of means plugged in.

    Args:
        case: Teacher and model.
        mean: ``(n, N)``.
        covariance: ``(n, N, N)``, or None to plug the mean in.

    Returns:
        ``(n,)``.
    """
    x, weights = entropic_rule()
    chance = np.exp(log_label(case.length * x[:, 0], case.flip))
    certain = weights @ (xlogy(chance, chance) + xlogy(1 - chance, 1 - chance))
    variance = 1.0 if covariance is None else 1.0 + np.einsum("ki,nij,kj->nk", x, covariance, x, optimize=True)
    u = mean @ x.T / np.sqrt(variance)
    return certain - (chance * log_label(u, case.known) + (1 - chance) * log_label(-u, case.known)) @ weights


def entropy(bench: Bench) -> Found:
    """2t times the entropic error above its floor, of the predictive distribution and of the mean plugged in."""
    findings, panels, notes = [], [], []
    for case in CASES:
        nearest, (times, means, covariances), entry = case.theory, beliefs(bench, case), f"ADF, {case.name}"
        excess, lines = {}, []
        for kind, theory in (("plugged in", nearest.plugged_in(SIZE)), ("predictive", nearest.predictive(SIZE))):
            widths = [None] * len(times) if kind == "plugged in" else list(covariances.swapaxes(0, 1))
            errors = [entropic_error(case, means[:, i], wide) for i, wide in enumerate(widths)]
            values = excess[kind] = 2 * times * (np.stack(errors, 1) - nearest.floor)
            what = f"2t(ε − floor), {kind}, t = "
            for at, unless in ((2, "terms of order 1/t"), (-1, "")):
                findings.append(compared(f"{what}{times[at]}", entry, values[:, at], theory, unless))
            lines += [level(f"{kind}, t → ∞", times, theory, kind), points(kind, times, values, kind)]
        panels.append(Panel(f"Entropic error, {case.name}", "rows t", "2t (ε − floor)", tuple(lines), "x"))
        if case is OTHER:
            sandwich = nearest.plugged_in(SIZE)
            apart = (excess["plugged in"] - excess["predictive"])[:, -1]
            why = "terms of order 1/t, by the bias of the mean and by C: about 60/t"
            held: Any = {"held": "theory", "tolerance": 60 / times[-1], "why": why}
            what = f"2t(plugged in − predictive), t = {times[-1]}"
            findings.append(measured(what, entry, apart, theory=sandwich - SIZE, **held))
            notes.append(
                f"(8.12) is the law of the mean plugged in, Tr(BA⁻¹) = {sandwich:.3f} where the flips are unknown. The "
                f"predictive distribution, of which (8.11) speaks, has N = {SIZE} there too: the width of the belief "
                f"takes off {apart.mean():.3f} ± {mean_and_error(apart)[1]:.3f}."
            )
        if case is KNOWN:
            floor, error = OTHER.theory.floor, excess["predictive"][:, -1] / (2 * times[-1])
            what = f"ε, predictive, t = {times[-1]}, below the floor of the model without flips"
            findings.append(measured(what, entry, error, theory=floor, held="below"))
            notes.append(
                f"No number of rows takes the model without flips below {floor:.4f} nats. With the flips in the model "
                f"the error at t = {times[-1]} is {error.mean():.1e}."
            )
    return Found(findings, panels, notes, settings(bench))


# ------------------------------------------------------------------------------------------- figures and curves


def measured(what: str, entry: str, values: Any, **more: Any) -> Finding:
    """The mean over runs ``(runs,)`` as a figure; what it is to be compared with is handed on."""
    mean, error = mean_and_error(values)
    return Finding(what, entry, float(mean), float(error), **more)


def compared(what: str, entry: str, values: Any, theory: Any, unless: str = "") -> Finding:
    """A figure held against its theory, unless there is a reason not to."""
    return measured(what, entry, values, theory=float(theory), held=None if unless else "theory", why=unless)


def points(label: str, x: Any, values: Any, group: str = "", scale: Any = 1.0) -> Line:
    """The means of values ``(runs, n)`` with their standard errors."""
    mean, error = mean_and_error(values)
    return Line(label, x, scale * mean, scale * error, group=group)


def level(label: str, x: np.ndarray, height: float, group: str = "") -> Line:
    """A horizontal line of theory."""
    return Line(label, x[[0, -1]], np.full(2, height), kind="theory", group=group)
