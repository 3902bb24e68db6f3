"""Online learners of a curve on a basis, followed over streams of single rows: what the experiments of IRMA share."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular

import adfpp
from adfpp.papers.baselines import IRMA, Basis, RadialBasis
from adfpp.papers.laboratory.bench import Bench, along
from adfpp.papers.theory.regression import Course, irma_course, normalised_gradient_course

__all__ = [
    "DOMAIN",
    "GRID",
    "NOISE",
    "ROWS",
    "SEEN",
    "SPREAD",
    "Entry",
    "Measured",
    "bayes",
    "bumps",
    "course_of",
    "followed",
    "of_paper",
    "prior_root",
    "rows_drawn",
    "streams",
    "target",
]

DOMAIN = (0.0, 3.0)
SPREAD = 0.05  # the noise is uniform in ±SPREAD
NOISE = SPREAD / math.sqrt(3.0)
ROWS = 150
SEEN = (10, 80, 150)
GRID = DOMAIN[0] + (DOMAIN[1] - DOMAIN[0]) * (np.arange(1000) + 0.5) / 1000
HEIGHT = 0.5  # prior sd of the curve, on average over the domain: its values are about that large
LENGTH = 1.0  # over which the curve of the smooth prior bends: a third of the domain


def target(x: Any) -> Any:
    """The paper's curve x e^{−x²}, equation (15)."""
    return x * (jnp if isinstance(x, jax.Array) else np).exp(-(x**2))


def rows_drawn(rng_key: jax.Array, count: int = ROWS) -> tuple[jax.Array, jax.Array]:
    """Inputs uniform on the domain and the target with uniform noise, ``(count,)`` each."""
    key_x, key_noise = jax.random.split(rng_key)
    x = jax.random.uniform(key_x, (count,), minval=DOMAIN[0], maxval=DOMAIN[1])
    return x, target(x) + jax.random.uniform(key_noise, (count,), minval=-SPREAD, maxval=SPREAD)


class Entry(NamedTuple):
    """An online learner of a curve.

    Attributes:
        state: Before any row.
        update: ``update(state, (x, y))``.
        read: From a state to the coefficients ``(M,)``.
        functions: What they are coefficients of, ``(n,)`` to ``(n, M)``.
    """

    state: Any
    update: Callable[[Any, Any], Any]
    read: Callable[[Any], jax.Array]
    functions: Callable[[Any], Any]


def of_paper(learner: Any) -> Entry:
    """A learner of the paper."""
    state = learner.init(jax.random.key(0), np.zeros(1))
    return Entry(state, lambda s, r: learner.update(s, r[0], y=r[1])[0], lambda s: s.kept.coefficients, learner.basis)


def bayes(basis: Basis, length: float = LENGTH, noise: float | None = NOISE) -> Entry:
    """ADF of the linear model on the basis, in coordinates in which the prior is N(0, 1).

    Args:
        basis: The functions.
        length: Of the prior, as in `prior_root`.
        noise: Standard deviation of the noise; it is learned when None, from LogNormal(log 0.1, 1).
    """
    root = prior_root(basis, length)

    def functions(x: Any) -> jax.Array:
        return solve_triangular(jnp.asarray(root), basis(x).T, trans=1).T

    def model(x: Any, y: Any = None) -> None:
        theta: Any = numpyro.sample("theta", dist.Normal(0, 1).expand([basis.size]).to_event(1))
        sd = numpyro.sample("zeta", dist.LogNormal(math.log(0.1), 1.0)) if noise is None else noise
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(functions(x) @ theta, sd), obs=y)

    adf, nothing = adfpp.ADF(model), np.zeros(1)
    state = adf.init(jax.random.key(0), nothing, y=nothing)
    # sites stand in the order of their names' appearance: theta first
    return Entry(state, lambda s, r: adf.update(s, r[0], y=r[1])[0], lambda s: s.belief.mean[: basis.size], functions)


def prior_root(basis: Basis, length: float) -> np.ndarray:
    """``(M, M)`` upper triangular U of a prior N(0, (UᵀU)⁻¹) on the coefficients, of a curve with sd HEIGHT on average.

    UᵀU is in proportion to ∫ φφᵀ + length⁴ φ''φ''ᵀ dx. At length 0 it is the Gram matrix: all functions in the span are
    as likely as their square integral says. Above, those that bend within the length are less so.
    """
    nodes, weights = np.polynomial.legendre.leggauss(200)
    half = 0.5 * (DOMAIN[1] - DOMAIN[0])
    x, scale = jnp.asarray(DOMAIN[0] + half * (1.0 + nodes)), np.sqrt(0.5 * weights)[:, None]
    values, bends = np.asarray(basis(x)), np.asarray(jax.vmap(jax.jacfwd(jax.jacfwd(basis)))(x))
    _, root = np.linalg.qr(np.concatenate([scale * values, length**2 * scale * bends]))
    variance = np.sum((scale * np.linalg.solve(root.T, values.T).T) ** 2)
    return root * math.sqrt(variance) / HEIGHT


def followed(entry: Entry, x: jax.Array, y: jax.Array) -> jax.Array:
    """``(rows, M)`` the coefficients after each row."""
    return along(
        entry.update, entry.state, lambda _, t: (x[t][None], y[t][None]), entry.read, jax.random.key(0), x.shape[0]
    )


class Measured(NamedTuple):
    """Of one stream.

    Attributes:
        loss: ``(rows,)`` squared error of the prediction of each row before it was learned.
        error: ``(3,)`` mean squared distance to the target after as many rows as SEEN says.
    """

    loss: Any
    error: Any


def on_stream(entry: Entry, x: jax.Array, y: jax.Array) -> Measured:
    """Follows a stream."""
    path = followed(entry, x, y)
    before = jnp.concatenate([entry.read(entry.state)[None], path[:-1]])
    loss = (y - jnp.sum(entry.functions(x) * before, 1)) ** 2
    off = path[np.array(SEEN) - 1] @ entry.functions(jnp.asarray(GRID)).T - target(GRID)
    return Measured(loss, jnp.mean(off**2, 1))


def streams(bench: Bench, what: str, entries: dict[str, Entry], runs: int) -> dict[str, Measured]:
    """All entries on the same streams, ``(runs, …)``."""

    def one(rng_key: jax.Array) -> dict[str, Measured]:
        x, y = rows_drawn(rng_key)
        return {name: on_stream(entry, x, y) for name, entry in entries.items()}

    found = bench.replicate(what, one, runs, at_once=100)
    return {name: found[name] for name in entries}


def course_of(learner: Any, gram_domain: tuple[float, float] | None = None) -> Course:
    """What theory says of IRMA and of gradient descent."""

    def functions(x: np.ndarray) -> np.ndarray:
        return learner.basis.values(x, np)

    if isinstance(learner, IRMA):
        return irma_course(functions, target, ROWS, NOISE, DOMAIN, learner.lam, learner.growth, gram_domain)
    return normalised_gradient_course(functions, target, ROWS, NOISE, DOMAIN, learner.rate, learner.ridge)


def bumps() -> RadialBasis:
    """Seven radial functions half a unit apart."""
    return RadialBasis(np.linspace(*DOMAIN, 7).tolist(), 0.5)
