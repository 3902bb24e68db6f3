"""Online learners of a curve on a basis, and streams of rows, which the experiments on IRMA share."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular
from numpy.typing import ArrayLike

import adfpp
from adfpp.papers.baselines import IRMA, Basis, GradientDescent, RadialBasis
from adfpp.papers.baselines.regression import BasisLearner
from adfpp.papers.laboratory.bench import Bench, learn_stream
from adfpp.papers.laboratory.record import Line, Panel
from adfpp.papers.laboratory.students import Rows, normal_weights
from adfpp.papers.theory.regression import Course, irma_course, normalised_gradient_course

__all__ = [
    "DOMAIN",
    "GRID",
    "NOISE",
    "RARE",
    "ROWS",
    "SEEN",
    "SPREAD",
    "UNKNOWN",
    "Entry",
    "Measures",
    "baseline_entry",
    "bayes_entry",
    "bumps",
    "course_of",
    "draw_rows",
    "learn_all",
    "prior_root",
    "run_streams",
    "stream_panels",
    "target",
]

DOMAIN = (0.0, 3.0)
SPREAD = 0.05  # the noise is uniform in ±SPREAD
NOISE = SPREAD / math.sqrt(3.0)
ROWS = 150
SEEN = (10, 80, 150)  # rows after which Table I has figures
GRID = DOMAIN[0] + (DOMAIN[1] - DOMAIN[0]) * (np.arange(1000) + 0.5) / 1000
HEIGHT = 0.5  # prior sd of the curve, on average over the domain: the largest value of the target is 0.43
LENGTH = 1.0  # length over which the curve of the smooth prior bends: a third of the domain
RARE = "rare streams make up the mean"
UNKNOWN = "there is no theory of it"


def target(x: Any) -> Any:
    """The paper's curve x e^{−x²}, equation (15), of a number or of an array of NumPy or JAX."""
    return x * (jnp if isinstance(x, jax.Array) else np).exp(-(x**2))


def draw_rows(rng_key: jax.Array, count: int = ROWS) -> Rows:
    """Inputs uniform on the domain and the target with uniform noise, ``(count,)`` each."""
    key_x, key_noise = jax.random.split(rng_key)
    x = jax.random.uniform(key_x, (count,), minval=DOMAIN[0], maxval=DOMAIN[1])
    return x, target(x) + jax.random.uniform(key_noise, (count,), minval=-SPREAD, maxval=SPREAD)


class Entry(NamedTuple):
    """An online learner of a curve.

    Attributes:
        state: The state before any row.
        update: ``update(state, (x, y))``.
        read: From a state to the coefficients ``(M,)``.
        functions: The functions φ, from ``(n,)`` to ``(n, M)``.
    """

    state: Any
    update: Callable[[Any, Rows], Any]
    read: Callable[[Any], jax.Array]
    functions: Callable[[ArrayLike], jax.Array]


def baseline_entry(learner: BasisLearner[Any]) -> Entry:
    """A learner of the paper."""
    state = learner.init(jax.random.key(0), np.zeros(1))
    return Entry(state, lambda s, r: learner.update(s, r[0], y=r[1])[0], lambda s: s.arrays.coefficients, learner.basis)


def bayes_entry(basis: Basis, length: float = LENGTH, noise: float | None = NOISE) -> Entry:
    """ADF of the linear model on the basis, in coordinates in which the prior is N(0, 1).

    Args:
        basis: The functions.
        length: Length of the prior, as in `prior_root`.
        noise: Standard deviation of the noise; None if it is learned, with the prior LogNormal(log 0.1, 1).
    """
    root = prior_root(basis, length)

    def functions(x: Any) -> jax.Array:
        return solve_triangular(jnp.asarray(root), basis(x).T, trans=1).T

    def model(x: jax.Array, y: jax.Array | None = None) -> None:
        theta = normal_weights(basis.size, "theta")
        sd = numpyro.sample("zeta", dist.LogNormal(math.log(0.1), 1.0)) if noise is None else noise
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(functions(x) @ theta, sd), obs=y)

    adf, blank = adfpp.ADF(model), np.zeros(1)
    state = adf.init(jax.random.key(0), blank, y=blank)
    # Latents are in the order in which the model samples them: theta is first.
    return Entry(state, lambda s, r: adf.update(s, r[0], y=r[1])[0], lambda s: s.belief.mean[: basis.size], functions)


def prior_root(basis: Basis, length: float) -> np.ndarray:
    """``(M, M)`` upper triangular U of a prior N(0, (UᵀU)⁻¹) on the coefficients.

    The curve has the standard deviation HEIGHT on average over the domain. UᵀU is proportional to
    ∫ φφᵀ + length⁴ φ''φ''ᵀ dx. At length 0 it is the Gram matrix, and the prior probability of a curve depends on its
    square integral alone. At a positive length, curves that bend within that length are less probable.
    """
    nodes, weights = np.polynomial.legendre.leggauss(200)
    half = 0.5 * (DOMAIN[1] - DOMAIN[0])
    x, scale = jnp.asarray(DOMAIN[0] + half * (1.0 + nodes)), np.sqrt(0.5 * weights)[:, None]
    values, bends = np.asarray(basis(x)), np.asarray(jax.vmap(jax.jacfwd(jax.jacfwd(basis)))(x))
    _, root = np.linalg.qr(np.concatenate([scale * values, length**2 * scale * bends]))
    variance = np.sum((scale * np.linalg.solve(root.T, values.T).T) ** 2)
    return root * math.sqrt(variance) / HEIGHT


def learn_all(entry: Entry, x: jax.Array, y: jax.Array) -> jax.Array:
    """``(rows, M)`` the coefficients after each row."""
    return learn_stream(
        entry.update, entry.state, lambda _, t: (x[t][None], y[t][None]), entry.read, jax.random.key(0), x.shape[0]
    )


class Measures(NamedTuple):
    """Measures of one stream.

    Attributes:
        loss: ``(rows,)`` squared error of the prediction of each row before it was learned.
        error: ``(3,)`` mean squared distance to the target after the numbers of rows in SEEN.
    """

    loss: jax.Array
    error: jax.Array


def measure_stream(entry: Entry, x: jax.Array, y: jax.Array) -> Measures:
    """Learns a stream row by row and measures loss and error."""
    path = learn_all(entry, x, y)
    before = jnp.concatenate([entry.read(entry.state)[None], path[:-1]])
    loss = (y - jnp.sum(entry.functions(x) * before, 1)) ** 2
    off = path[np.array(SEEN) - 1] @ entry.functions(jnp.asarray(GRID)).T - target(GRID)
    return Measures(loss, jnp.mean(off**2, 1))


def run_streams(bench: Bench, what: str, entries: dict[str, Entry], runs: int) -> dict[str, Measures]:
    """Measures ``(runs, …)`` of all entries on the same streams."""

    def one(rng_key: jax.Array) -> dict[str, Measures]:
        x, y = draw_rows(rng_key)
        return {name: measure_stream(entry, x, y) for name, entry in entries.items()}

    measures = bench.replicate(what, one, runs, at_once=100)
    return {name: measures[name] for name in entries}


def course_of(learner: IRMA | GradientDescent, gram_domain: tuple[float, float] | None = None) -> Course:
    """The exact means of IRMA or of gradient descent.

    Args:
        learner: The learner.
        gram_domain: As in `irma_course`.
    """

    def functions(x: np.ndarray) -> np.ndarray:
        return learner.basis.values(x, np)

    if isinstance(learner, IRMA):
        return irma_course(functions, target, ROWS, NOISE, DOMAIN, learner.lam, learner.growth, gram_domain)
    return normalised_gradient_course(functions, target, ROWS, NOISE, DOMAIN, learner.rate, learner.ridge)


def bumps() -> RadialBasis:
    """Seven radial functions half a unit apart."""
    return RadialBasis(np.linspace(*DOMAIN, 7).tolist(), 0.5)


def stream_panels(
    x: np.ndarray, y: np.ndarray, fits: dict[str, np.ndarray], whole: dict[str, np.ndarray] | None = None
) -> list[Panel]:
    """Panels of one stream after 10, 80 and 150 rows, and of a fit to all rows at once: the paper's Figure 2.

    Args:
        x: ``(ROWS,)`` the inputs.
        y: ``(ROWS,)`` the values.
        fits: Curves at `GRID` after each of `SEEN`, ``(3, n)``, by name.
        whole: Curves at `GRID` from all rows, ``(n,)``, by name.
    """
    some = slice(None, None, 5)

    def panel(title: str, curves: dict[str, np.ndarray], n: int) -> Panel:
        bands = (Line(name, GRID[some], curve[some], kind="band") for name, curve in curves.items())
        exact = Line("target", GRID[some], target(GRID[some]), kind="theory")
        return Panel(title, "x", "y", (exact, *bands, Line("rows", x[:n], y[:n])))

    panels = [
        panel(f"One stream after {n} rows", {name: fit[i] for name, fit in fits.items()}, n) for i, n in enumerate(SEEN)
    ]
    return [*panels, *([panel(f"Least squares on all {ROWS} rows", whole, ROWS)] if whole else [])]
