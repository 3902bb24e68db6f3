"""Tilted moments of fields of two and three numbers.

There are two tiers. The first is tensor Gauss-Hermite on the cavity, whose error is estimated from its Hermite
coefficients. The rule is then fitted to the resulting moments, as long as this lowers the estimated error. If this is
not enough, the second tier uses tensor Kronrod panels along the principal axes of the tilt's curvature, graded around
the peak. Their edges are the peak, the points where the log tilt has dropped by 2 and where it has become negligible,
and the end of the cavity. Gauss-Hermite is then fitted to the resulting moments.
"""

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int
from numpy.polynomial.hermite_e import hermegauss, hermevander

from adfpp.engine.linalg import product, small_cholesky
from adfpp.engine.tilt.base import LogFactor, Tilted
from adfpp.engine.tilt.peak import peak_fit
from adfpp.engine.tilt.rules import LOST, kronrod, tail_error

A = TypeVar("A")  # an array of NumPy or of JAX


class _Tensor(NamedTuple, Generic[A]):
    """A tensor Gauss-Hermite rule, with the rows that convert factor values to Hermite coefficients."""

    points: A  # (n, k)
    zeroth: A  # (n,)
    first: A  # (k, n)
    second: A  # (k * k, n): the coefficient of t_i t_j - δ_ij
    middle: A  # (m, n): degrees around the middle along each axis, low ones along the others
    last: A  # (m, n): the highest degrees along each axis, low ones along the others


@cache
def _tensor(size: int) -> _Tensor[np.ndarray]:
    nodes = {2: 20, 3: 14}[size]
    x, w = hermegauss(nodes)
    w = w / w.sum()
    points = np.array(list(itertools.product(x, repeat=size)))
    weights = np.prod(np.array(list(itertools.product(w, repeat=size))), axis=1)
    norms = np.sqrt([math.factorial(j) for j in range(nodes)])
    axes = [hermevander(points[:, i], nodes - 1) / norms for i in range(size)]
    second = [points[:, i] * points[:, j] - (i == j) for i in range(size) for j in range(size)]

    def along(degrees: range) -> Float[np.ndarray, "m n"]:
        rows = []
        for i, axis in enumerate(axes):
            others = axes[:i] + axes[i + 1 :]
            for low in itertools.product(range(3 if size == 2 else 2), repeat=size - 1):
                rest = np.prod([other[:, d] for other, d in zip(others, low, strict=True)], axis=0)
                rows += [axis[:, j] * rest for j in degrees]
        return np.array(rows) * weights

    return _Tensor(
        points,
        weights,
        points.T * weights,
        np.array(second) * weights,
        along(range(nodes - 10, nodes - 8)),
        along(range(nodes - 2, nodes)),
    )


def tensor_rule(size: int, dtype: DTypeLike) -> _Tensor[Array]:
    """The Gauss-Hermite rule for fields of two and three numbers."""
    return _Tensor(*(jnp.asarray(a, dtype) for a in _tensor(size)))


def moments_of(
    tensor: _Tensor[Array], density: Float[Array, " n"]
) -> tuple[Float[Array, ""], Float[Array, " k"], Float[Array, "k k"], Float[Array, ""]]:
    """Mass, mean, covariance and estimated error of a density that is given relatively to the standard normal one."""
    size = tensor.points.shape[1]
    c0 = tensor.zeroth @ density
    shift = tensor.first @ density / c0
    covariance = (tensor.second @ density).reshape(size, size) / c0 + jnp.eye(size, dtype=density.dtype)
    covariance = covariance - jnp.outer(shift, shift)
    middle, last = (jnp.max(jnp.abs(rows @ density)) / c0 for rows in (tensor.middle, tensor.last))
    return c0, shift, covariance, 2.0 * tail_error(middle, last) / jnp.min(jnp.diagonal(covariance))


def two_or_three_dimensions(
    log_factor: LogFactor, mean: Float[Array, " k"], scale: Float[Array, "k k"], enough: float, nodes: int
) -> Tilted:
    """Computes the moments of ``N(u; 0, I) exp(log_factor(mean + scale @ u))`` for u of two or three numbers.

    Args:
        log_factor: Log of the factor as a function of the field.
        mean: The cavity's mean.
        scale: Lower triangular root of the cavity's covariance.
        enough: The estimated error at which it stops.
        nodes: Number of Gauss nodes of a panel in three dimensions; the Kronrod rule has twice as many plus one.
    """
    size, dtype = mean.shape[0], mean.dtype
    tensor = tensor_rule(size, dtype)

    def in_cavity(u: Float[Array, " k"]) -> Float[Array, ""]:
        return log_factor(mean + product(scale, u[:, None])[:, 0])

    def log_tilt(u: Float[Array, "n k"]) -> Float[Array, " n"]:
        logs = jax.vmap(in_cavity)(u) - 0.5 * jnp.sum(u * u, -1)
        return jnp.where(jnp.isnan(logs), -jnp.inf, logs)

    def fitted(centre: Float[Array, " k"], root: Float[Array, "k k"]) -> Tilted:
        """The moments by a rule centred at ``centre`` and scaled by ``root``; exact if these are the tilted moments."""
        logs = log_tilt(centre + product(tensor.points, root.T)) + 0.5 * jnp.sum(tensor.points**2, -1)
        top = jnp.max(logs)
        density = jnp.exp(logs - jnp.where(top > -jnp.inf, top, 0.0))
        c0, shift, covariance, error = moments_of(tensor, density)
        lower = small_cholesky(root @ covariance @ root.T)
        error = jnp.where(jnp.all(jnp.isfinite(lower)), error, jnp.inf)
        log_z = top + jnp.log(c0) + jnp.sum(jnp.log(jnp.diagonal(root)))
        return Tilted(log_z, centre + root @ shift, lower, error)

    def refined(start: Tilted) -> Tilted:
        """Fits the rule to the moments so far, as long as this lowers the estimated error."""

        def again(carry: _Refinement) -> _Refinement:
            best, _, count = carry
            new = fitted(best.shift, best.root)
            better = jnp.asarray(new.error < best.error)
            best = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, best)
            return _Refinement(best, better, count + 1)

        def unfinished(carry: _Refinement) -> Bool[Array, ""]:
            best, better, count = carry
            return (best.error >= enough) & better & (count < _REFINEMENTS)

        return jax.lax.while_loop(unfinished, again, _Refinement(start, jnp.asarray(True), jnp.asarray(0))).best

    zero, unknown = jnp.zeros((), dtype), jnp.full((), jnp.inf, dtype)
    first = refined(Tilted(zero, jnp.zeros(size, dtype), jnp.eye(size, dtype=dtype), unknown))
    best = jax.lax.cond(
        first.error < enough, lambda: first, lambda: refined(_graded(in_cavity, log_tilt, size, dtype, nodes))
    )
    # rounding errors are reported, but more nodes would not reduce them
    return best._replace(error=best.error + float(jnp.finfo(dtype).eps) * (LOST + 4.0 * jnp.abs(best.log_z)))


_REFINEMENTS = 5  # fits: one that has not converged after four refinements does not converge


class _Refinement(NamedTuple):
    """The state of repeated fits: the best one so far, whether the last one was better, and their number."""

    best: Tilted
    better: Bool[Array, ""]
    count: Int[Array, ""]


_LADDER = 1.7 ** np.arange(-2, 22)  # from a third of the peak's width to 7e4 times it


def _graded(
    in_cavity: LogFactor, log_tilt: Callable[[Array], Array], size: int, dtype: DTypeLike, nodes: int
) -> Tilted:
    """Tensor Kronrod panels along the principal axes of the peak, graded away from it to the end of the cavity."""
    mode, root = peak_fit(in_cavity, size, dtype)
    widths = jnp.sqrt(jnp.sum(root * root, 0))
    axes = root / widths  # orthonormal columns: the cavity is a sphere
    top = log_tilt(mode[None])[0]
    end = 9.0 + jnp.sqrt(mode @ mode)  # beyond 9 sds the cavity holds less than 1e-18
    # no further than that: a model may be costly to compute far away, as a differential equation that gets stiff
    steps = jnp.minimum(widths[:, None] * jnp.asarray(_LADDER, dtype), end)  # (size, rungs)
    sides = jnp.stack([steps, -steps])[..., None] * axes.T[:, None, :]  # (2, size, rungs, size)
    drops = log_tilt((mode + sides).reshape(-1, size)).reshape(2, size, -1)
    rungs = jnp.arange(1, len(_LADDER) + 1)

    def reach(drop: float) -> Float[Array, "2 k"]:
        """How far on both sides of each axis the log of the tilt stays within ``drop`` of its peak."""
        rung = jnp.max(jnp.where(drops > top - drop, rungs, 0), -1)
        at = jnp.clip(rung, 0, len(_LADDER) - 1)
        return jnp.minimum(jnp.take_along_axis(jnp.stack([steps, steps]), at[..., None], -1)[..., 0], end)

    near, far = reach(2.0), reach(38.0 if dtype == jnp.float64 else 20.0)  # beyond these, nothing contributes to a sum
    ends = jnp.full_like(widths, end)
    edges = jnp.stack([-ends, -far[1], -near[1], 0.0 * ends, near[0], far[0], ends], -1)  # (size, 7)
    x, weights = kronrod(10 if size == 2 else nodes)
    half, middle = 0.5 * (edges[:, 1:] - edges[:, :-1]), 0.5 * (edges[:, 1:] + edges[:, :-1])
    t = (middle[..., None] + half[..., None] * jnp.asarray(x, dtype)).reshape(size, -1)  # (size, n)
    fine, coarse = ((half[..., None] * jnp.asarray(w, dtype)).reshape(size, -1) for w in weights[:2])

    grid = jnp.stack(jnp.meshgrid(*t, indexing="ij"), -1)
    logs = log_tilt(mode + product(grid.reshape(-1, size), axes.T)).reshape(grid.shape[:-1])
    highest = jnp.max(logs)
    density = jnp.exp(logs - jnp.where(highest > -jnp.inf, highest, 0.0))

    def moments(w: Float[Array, "k n"]) -> tuple[Float[Array, ""], Float[Array, " k"], Float[Array, "k k"]]:
        """Mass, first and second moments about the peak, with these weights along each axis."""
        letters = "abc"[:size]

        def total(*powers: int) -> Float[Array, ""]:
            scaled = [w[i] * t[i] ** powers.count(i) for i in range(size)]
            return jnp.einsum(f"{letters},{','.join(letters)}->", density, *scaled)

        second = [[total(i, j) for j in range(size)] for i in range(size)]
        return total(), jnp.stack([total(i) for i in range(size)]), jnp.stack([jnp.stack(r) for r in second])

    mass, first, second = moments(fine)
    rough_mass, rough_first, rough_second = moments(coarse)
    shift = first / mass
    covariance = second / mass - jnp.outer(shift, shift)
    sd = jnp.sqrt(jnp.diagonal(covariance))
    gaps = jnp.stack(
        [
            jnp.abs(rough_mass / mass - 1.0),
            jnp.max(jnp.abs(rough_first - first) / (mass * sd)),
            jnp.max(jnp.abs(rough_second - second) / (mass * jnp.outer(sd, sd))),
        ]
    )
    # as in one dimension, the finer rule is much more accurate than the difference of the rules, hence the power 3/2
    error = jnp.max(jnp.minimum(gaps, (60.0 * gaps) ** 1.5))
    lower = small_cholesky(axes @ covariance @ axes.T)
    error = jnp.where(jnp.all(jnp.isfinite(lower)) & (mass > 0), error, jnp.inf)
    log_z = highest + jnp.log(mass) - 0.5 * size * math.log(2.0 * math.pi)
    return Tilted(log_z, mode + axes @ shift, lower, error)
