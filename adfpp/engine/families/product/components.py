"""Projects a small number of components times a factor, with the quadratures of their families.

The components are integrated against the members of their families that are nearest to cavity times factor. For this,
the part of the log factor that is linear in the sufficient statistics is added to the natural parameters, and only the
rest is integrated. In a conjugate model the rest is 0.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.families.product.exponential import Exponential
from adfpp.engine.families.product.nodes import Nodes
from adfpp.engine.tilt import Tilted
from adfpp.engine.tilt.rules import kronrod

DRAWS = 1 << 12
EFFECTIVE = DRAWS / 20  # effective sample size below which a projection is not used
_ROUNDS = 3  # rounds of fitting the proposals
_TOL = 1e-8  # estimated error at which the proposals are good enough


class Grid(NamedTuple):
    """Points for the joint values of several components.

    Attributes:
        values: For each component its values ``(M, dim)``.
        stats: For each component its sufficient statistics ``(M, numbers)``.
        log_weights: ``(M,)`` log weights under the proposals.
        ratio: ``(M,)`` weights of a coarser rule, divided by the weights.
        drawn: Whether the points are independent draws.
    """

    values: list[jax.Array]
    stats: list[jax.Array]
    log_weights: jax.Array
    ratio: jax.Array
    drawn: bool = False


class Line:
    """A Gaussian number as one of the components: natural parameters slope and precision, T = (u, -u²/2)."""

    name, dim, numbers, axes = "normal", 1, 2, 1
    levels: tuple[float, ...] = ()  # as in ``Exponential``: no finite support

    def proper(self, eta: jax.Array) -> jax.Array:
        """Whether the precision is positive."""
        return (eta[..., 1] > 0) & jnp.all(jnp.isfinite(eta), -1)

    def log_norm(self, eta: jax.Array) -> jax.Array:
        """The log normaliser, without ½ log 2π."""
        return 0.5 * (eta[..., 0] ** 2 / eta[..., 1] - jnp.log(eta[..., 1]))

    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """The member whose first two moments differ by the change."""
        mean = eta[0] / eta[1] + change[0]
        variance = 1.0 / eta[1] - 2.0 * change[1] - (mean - eta[0] / eta[1]) * (mean + eta[0] / eta[1])
        return jnp.stack([mean / variance, 1.0 / variance])

    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """A quadrature by Kronrod panels on both sides of the mean."""
        x, (fine, coarse, *_) = kronrod(10 if level < 2 else 5)
        ends = 8.7 * np.array([-1.0, 1.0])
        z = np.concatenate([0.5 * (1.0 + x) * end for end in ends])
        u = eta[0] / eta[1] + jnp.asarray(z, eta.dtype) / jnp.sqrt(eta[1])
        density = np.exp(-0.5 * z * z)
        weights, rough = (np.concatenate([w, w]) * density for w in (fine, coarse))
        weights, rough = (jnp.asarray(w / w.sum(), eta.dtype) for w in (weights, rough))
        return Nodes(u[:, None], jnp.stack([u, -0.5 * u * u], -1), weights, rough)

    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws independent values."""
        noise = jax.random.normal(key, (*shape, 1), eta.dtype)
        return eta[0] / eta[1] + noise / jnp.sqrt(eta[1])

    def stats(self, s: jax.Array) -> jax.Array:
        """The sufficient statistics (u, -u²/2)."""
        return jnp.concatenate([s, -0.5 * s * s], -1)


def tensor(families: Sequence[Exponential | Line], level: int) -> Callable[[Sequence[jax.Array]], Grid]:
    """Makes the tensor product of the families' quadratures."""

    def grid(etas: Sequence[jax.Array]) -> Grid:
        own = [f.nodes(eta, level - max(f.axes, 1) + 1) for f, eta in zip(families, etas, strict=True)]
        counts = [n.weights.shape[0] for n in own]
        index = [i.reshape(-1) for i in np.meshgrid(*[np.arange(c) for c in counts], indexing="ij")]
        values = [n.values[i] for n, i in zip(own, index, strict=True)]
        stats = [n.stats[i] for n, i in zip(own, index, strict=True)]
        # logarithms for discrete values: a value of tiny probability may become likely again
        logs = [
            f.log_prob(eta, n.values) if isinstance(f, Exponential) and f.levels else jnp.log(n.weights)
            for f, eta, n in zip(families, etas, own, strict=True)
        ]
        log_weights = sum(a[i] for a, i in zip(logs, index, strict=True))
        ratios = [jnp.ones_like(n.weights) if f.levels else _ratio(n) for f, n in zip(families, own, strict=True)]
        ratio = math.prod((a[i] for a, i in zip(ratios, index, strict=True)), start=jnp.ones((), values[0].dtype))
        return Grid(values, stats, jnp.asarray(log_weights), jnp.asarray(ratio))

    return grid


def _ratio(nodes: Nodes) -> jax.Array:
    there = nodes.weights > 0
    return jnp.where(there, nodes.coarse / jnp.where(there, nodes.weights, 1.0), 0.0)


def drawn(families: Sequence[Exponential | Line], key: jax.Array | None) -> Callable[[Sequence[jax.Array]], Grid]:
    """Makes points by independent draws, which are the same in every call with the same key."""
    key = jax.random.key(24) if key is None else key

    def grid(etas: Sequence[jax.Array]) -> Grid:
        values = [
            f.sample(jax.random.fold_in(key, i), eta, (DRAWS,))
            for i, (f, eta) in enumerate(zip(families, etas, strict=True))
        ]
        stats = [f.stats(s) for f, s in zip(families, values, strict=True)]
        even = jnp.full(DRAWS, -math.log(DRAWS), values[0].dtype)
        return Grid(values, stats, even, jnp.ones_like(even), True)

    return grid


def integrate(
    families: Sequence[Exponential | Line],
    etas: Sequence[jax.Array],
    evaluate: Callable[[Sequence[jax.Array]], Tilted],
    grid: Callable[[Sequence[jax.Array]], Grid],
) -> "Projected":
    """Projects independent components times a factor.

    Args:
        families: The families of the components.
        etas: The natural parameters of the components.
        evaluate: The factor at values ``(M, dim)`` of each component. Its ``log_z`` is the log factor; the other fields
            at the last points are returned.
        grid: Makes points for given proposals.
    """
    finite = [bool(f.levels) for f in families]
    dtype = etas[0].dtype
    if all(finite):
        points = grid(etas)
        inside = evaluate(points.values)
        log_tilted = points.log_weights + _no_nan(inside.log_z)
        log_z = jax.nn.logsumexp(log_tilted)
        weights = jnp.exp(log_tilted - jnp.where(jnp.isfinite(log_z), log_z, 0.0))
        after, limited = zip(*(_log_odds(stats, log_tilted) for stats in points.stats), strict=True)
        # states at which the model gives NaN are omitted, and their probability is part of the error
        lost = jnp.exp(points.log_weights) @ jnp.isnan(inside.log_z).astype(dtype)
        effective = 1.0 / jnp.sum(weights**2)
        return Projected(log_z, list(after), lost, weights, inside, effective, jnp.any(jnp.stack(limited)))

    points = grid(etas)
    drawing = jnp.asarray(points.drawn)
    inside = evaluate(points.values)
    fitted, constant, rest = _linear_part(points, inside.log_z, etas)

    def allowed(wanted: Sequence[jax.Array]) -> list[jax.Array]:
        """Proposals, if they are proper. A finite component keeps its own: all its values are summed."""
        return [
            eta if f.levels else jnp.where(_proper(f, new), new, eta)
            for f, new, eta in zip(families, wanted, etas, strict=True)
        ]

    proposals = allowed([eta + c for eta, c in zip(etas, fitted, strict=True)])

    def conjugate() -> Projected:
        volume = sum(f.log_norm(now) - f.log_norm(eta) for f, now, eta in zip(families, proposals, etas, strict=True))
        weights = jnp.exp(points.log_weights)
        zero, many = jnp.zeros((), dtype), jnp.full((), weights.shape[0], dtype)
        return Projected(constant + volume, proposals, zero, weights, inside, many, jnp.zeros((), bool))

    def general() -> Projected:
        # the first round and the others share one loop body, which is the largest part of the compiled program
        zero, endless = jnp.zeros((), dtype), jnp.full((), jnp.inf, dtype)
        blank = jax.tree.map(jnp.zeros_like, inside)
        weights = jnp.zeros_like(points.log_weights)
        first = Projected(zero, proposals, endless, weights, blank, zero, jnp.zeros((), bool))

        def again(state: tuple[jax.Array, Projected]) -> tuple[jax.Array, Projected]:
            count, last = state
            # a proposal from a small effective number of draws is not used
            good = (count == 0) | ~drawing | (last.effective >= EFFECTIVE)
            wanted = [jnp.where(good, new, old) for new, old in zip(last.after, proposals, strict=True)]
            return count + 1, _project(families, etas, allowed(wanted), grid, evaluate)

        def rough(state: tuple[jax.Array, Projected]) -> jax.Array:
            return (state[0] < _ROUNDS) & ~(state[1].error < tol)

        tol = max(_TOL, 64.0 * float(jnp.finfo(dtype).eps))
        return jax.lax.while_loop(rough, again, (jnp.zeros((), int), first))[1]

    if any(finite) or inside.shift.shape[-1]:
        return general()
    eps = float(jnp.finfo(dtype).eps)
    largest = jnp.max(jnp.where(jnp.isfinite(inside.log_z), jnp.abs(inside.log_z), 0.0))
    proper = jnp.all(jnp.stack([_proper(f, eta + c) for f, eta, c in zip(families, etas, fitted, strict=True)]))
    exact = proper & (rest <= 256.0 * eps * (1.0 + largest))
    return jax.lax.cond(exact, conjugate, general)


class Projected(NamedTuple):
    """Components after a factor.

    Attributes:
        log_z: ``()`` log of the factor's expectation.
        after: The natural parameters of the components.
        error: ``()`` estimated error.
        weights: ``(M,)`` tilted weights of the points.
        inside: The values of the factor at the points.
        effective: ``()`` effective sample size.
        saturated: ``()`` whether a probability was limited to the smallest one of the dtype.
    """

    log_z: jax.Array
    after: list[jax.Array]
    error: jax.Array
    weights: jax.Array
    inside: Tilted
    effective: jax.Array
    saturated: jax.Array


def _project(
    families: Sequence[Exponential | Line],
    etas: Sequence[jax.Array],
    proposals: Sequence[jax.Array],
    grid: Callable[[Sequence[jax.Array]], Grid],
    evaluate: Callable[[Sequence[jax.Array]], Tilted],
) -> Projected:
    """Computes the projections, with points of the proposals."""
    points = grid(proposals)
    inside = evaluate(points.values)
    left = _no_nan(inside.log_z)
    volume = jnp.zeros((), left.dtype)
    for f, eta, now, stats in zip(families, etas, proposals, points.stats, strict=True):
        left = left - stats @ (now - eta)
        volume = volume + f.log_norm(now) - f.log_norm(eta)
    log_mass = points.log_weights + left
    top = jnp.max(log_mass)
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    base = jnp.exp(points.log_weights)
    mass = jnp.exp(log_mass - top)
    total = jnp.sum(mass)
    weights = mass / total
    rough = mass * points.ratio
    rough_total = jnp.sum(rough)
    rough_weights = rough / rough_total
    error = jnp.abs(jnp.log(rough_total / total)) + base @ jnp.isnan(inside.log_z).astype(base.dtype)
    effective = 1.0 / jnp.sum(weights**2)
    if points.drawn:
        error = error + jnp.sqrt(jnp.maximum(1.0 / effective - 1.0 / DRAWS, 0.0))
    after, saturated = [], jnp.zeros((), bool)
    for f, now, stats in zip(families, proposals, points.stats, strict=True):
        change = (weights - base) @ stats
        if f.levels:
            odds, limited = _log_odds(stats, log_mass)
            after.append(odds)
            saturated |= limited
            continue
        expected = weights @ stats
        spread = jnp.sqrt(jnp.maximum(weights @ (stats - expected) ** 2, 0.0))
        spread = jnp.where(spread > 0, spread, 1.0)
        if points.drawn:
            apart = jnp.sqrt(jnp.sum((weights[:, None] * (stats - expected)) ** 2, 0))
        else:
            apart = jnp.abs((rough_weights - weights) @ stats - (base * points.ratio - base) @ stats)
        error = jnp.maximum(error, jnp.max(apart / spread))
        after.append(f.shifted(now, change))
    return Projected(top + jnp.log(total) + volume, after, error, weights, inside, effective, saturated)


def _log_odds(stats: jax.Array, log_weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log odds of a component's values against the first, from weights of all points, and whether one was limited.

    A value that has been excluded keeps the smallest probability of the dtype. So the log odds are finite, and those of
    the other values stay accurate.
    """
    first = jnp.sum(stats, -1) == 0
    none = jax.nn.logsumexp(jnp.where(first, log_weights, -jnp.inf))
    each = jax.nn.logsumexp(jnp.where(stats > 0, log_weights[:, None], -jnp.inf), 0)
    levels = jnp.concatenate([none[None], each])
    limits = jnp.finfo(levels.dtype)
    least = jnp.max(levels) + math.log(float(limits.tiny))
    rounding = 64.0 * float(limits.eps) * jnp.abs(least)  # of a probability at the limit that the row does not change
    limited = jnp.any(levels < least - rounding)
    levels = jnp.maximum(levels, least)
    return levels[1:] - levels[0], limited


def _linear_part(
    points: Grid, log_factor: jax.Array, etas: Sequence[jax.Array]
) -> tuple[list[jax.Array], jax.Array, jax.Array]:
    """The part of the log factor that is linear in the statistics, by least squares: slopes, constant, largest rest."""
    numbers = [eta.shape[0] for eta in etas]
    stats = jnp.concatenate(points.stats, 1)
    there = jnp.isfinite(log_factor)
    values = jnp.where(there, log_factor, 0.0)
    top = jnp.max(jnp.where(there, values, -jnp.inf))
    base = jnp.exp(points.log_weights)
    tilted = base * jnp.exp(jnp.where(there, values - top, -jnp.inf))
    weights = jnp.where(there, base + tilted / jnp.sum(tilted), 0.0)
    weights = weights / jnp.sum(weights)
    centre = weights @ stats
    apart = stats - centre
    scale = jnp.sqrt(weights @ apart**2)
    usable = scale > 0
    scale = jnp.where(usable, scale, 1.0)
    root = jnp.sqrt(weights)[:, None]
    features = jnp.where(usable, apart / scale, 0.0)
    q, r = jnp.linalg.qr(jnp.concatenate([root, root * features], 1))
    right = q.T @ (root[:, 0] * values)
    eps = float(jnp.finfo(values.dtype).eps)
    sound = jnp.abs(jnp.diagonal(r)) > 4.0 * eps
    r = jnp.where(sound[:, None] & sound[None, :], r, jnp.eye(r.shape[0], dtype=r.dtype))
    coefficients = jax.scipy.linalg.solve_triangular(r, jnp.where(sound, right, 0.0))
    slope = jnp.where(usable, coefficients[1:] / scale, 0.0)
    slope = jnp.where(jnp.all(jnp.isfinite(slope)), slope, 0.0)
    left = values - stats @ slope
    middle = weights @ left
    rest = jnp.max(jnp.where(there, jnp.abs(left - middle), jnp.inf))
    return jnp.split(slope, np.cumsum(numbers)[:-1]), middle, rest


def _proper(family: Exponential | Line, eta: jax.Array) -> jax.Array:
    return family.proper(eta) & jnp.all(jnp.isfinite(eta))


def _no_nan(a: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(a), -jnp.inf, a)


def own_moments(
    family: Exponential | Line, eta: jax.Array, log_factor: Callable[[jax.Array], jax.Array]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Log Z, natural parameters and error of one component times ``exp(log_factor(s (dim,)))``."""

    def evaluate(values: Sequence[jax.Array]) -> Tilted:
        logs = jax.vmap(log_factor)(values[0])
        nothing = jnp.zeros((logs.shape[0], 0), logs.dtype)
        return Tilted(logs, nothing, jnp.zeros((logs.shape[0], 0, 0), logs.dtype), jnp.zeros_like(logs))

    projected = integrate([family], [eta], evaluate, tensor([family], 0))
    return projected.log_z, projected.after[0], projected.error
