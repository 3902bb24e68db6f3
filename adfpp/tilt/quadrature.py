"""Adaptive quadrature for tilted moments of small fields.

One dimension, in two tiers:

1. Gauss-Hermite on the cavity. The Hermite coefficients of the factor come for free from the same nodes; where they
   have died out at the end of the rule, the moments are exact to about the square of the last ones, and we are done.
2. Where they have not (a cavity wider than the factor, a surprising row, heavy tails, a kink): find the peak of the
   tilt by a graded grid that is refined around its best point, find on each side where the tilt has dropped out of
   sight, and integrate between by adaptive Gauss-Kronrod panels split at the peak. No derivatives are taken, so a
   factor may have kinks, steps and zeros.

Two and three dimensions: a Gaussian fitted to the peak, then tensor Gauss-Hermite refitted to its own moments.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial.hermite_e import hermegauss, hermevander
from numpy.polynomial.legendre import leggauss

from adfpp.tilt.base import Tilted
from adfpp.tilt.peak import peak_fit

LogFactor = Callable[[jax.Array], jax.Array]
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Quadrature:
    """Adaptive quadrature of the tilted distribution.

    Attributes:
        tol: Target of the estimated error in float64 (float32 cannot do better than about 1e-6 and uses that).
        report: A row whose estimated error is above this is marked ``Status.INACCURATE``.
        nodes: Gauss-Hermite nodes of the first tier.
        max_panels: Panels that the adaptive tier may evaluate before it accepts what it has.
    """

    tol: float = 1e-8
    report: float = 1e-6
    nodes: int = 20
    max_panels: int = 60

    def reported(self, dtype: jnp.dtype) -> float:
        """The error above which a row is marked, for this dtype."""
        return max(self.report, 2e4 * float(jnp.finfo(dtype).eps))

    def __call__(self, log_factor: LogFactor, mean: jax.Array, scale: jax.Array) -> Tilted:
        """Moments of ``N(u; 0, I) exp(log_factor(mean + scale @ u))``.

        Args:
            log_factor: ``(k,) -> ()``, log of the factor as a function of the field.
            mean: ``(k,)``, cavity mean.
            scale: ``(k, k)``, lower triangular root of the cavity covariance.
        """
        tol = max(self.tol, 8.0 * float(jnp.finfo(mean.dtype).eps))
        if mean.shape[0] == 1:
            return _one_dimension(log_factor, mean, scale, self, tol)
        return _few_dimensions(log_factor, mean, scale, self, tol)


# ---------------------------------------------------------------------------------------------- one dimension


@cache
def _hermite(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes, and rows that turn factor values there into Hermite coefficients 0, 1, 2 and the last four."""
    x, w = hermegauss(nodes)
    w = w / w.sum()
    norms = np.sqrt([math.factorial(j) for j in range(nodes)])
    coefficients = (hermevander(x, nodes - 1) / norms).T * w
    return x, coefficients[[0, 1, 2, -4, -3, -2, -1]]


def _one_dimension(log_factor: LogFactor, mean: jax.Array, scale: jax.Array, rule: Quadrature, tol: float) -> Tilted:
    centre, sd = mean[0], scale[0, 0]
    values = jax.vmap(lambda h: log_factor(h[None]))

    x, coefficients = _hermite(rule.nodes)
    log_values = values(centre + sd * jnp.asarray(x, mean.dtype))
    top = jnp.max(log_values)
    c = jnp.asarray(coefficients, mean.dtype) @ jnp.exp(log_values - top)
    shift = c[1] / c[0]
    variance = 1.0 + math.sqrt(2.0) * c[2] / c[0] - shift * shift
    leftover = jnp.max(jnp.abs(c[3:])) / c[0]
    error = 4.0 * leftover * leftover / variance
    easy = (error < tol) & (variance > 0)
    first = Tilted(top + jnp.log(c[0]), shift[None], jnp.sqrt(variance)[None, None], error)
    return jax.lax.cond(easy, lambda: first, lambda: _adaptive(values, centre, sd, rule, tol))


_GRID = np.sinh(np.linspace(-6.5, 6.5, 66))  # an even number: 0 is no special point; ±332 sd
_LADDER = 1.7 ** np.arange(-2, 46)
_ZOOM = np.linspace(0.0, 1.0, 10)[1:-1]
_MAX_ZOOMS = 14


@cache
def _kronrod() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes of the 21-point Kronrod rule on [-1, 1], its weights, and those of the 10-point Gauss rule inside.

    The Kronrod nodes are the zeros of the Stieltjes polynomial E with ∫ P_10 E P_j = 0 for j ≤ 10; solved for here in
    extended precision by Newton from the interlacing points, with the weights by matching moments of Legendre
    polynomials.
    """
    n = 10
    gauss_x, gauss_w = leggauss(n)
    fine_x, fine_w = leggauss(4 * n)
    legendre = np.polynomial.legendre.legvander(fine_x, n + 1)
    weight = fine_w * legendre[:, n]
    # E = P_{n+1} + sum_j a_j P_j of the same parity, orthogonal to all lower degrees under the weight P_n
    js = np.arange((n + 1) % 2, n + 1, 2)
    rows = (legendre[:, js] * weight[:, None]).T @ legendre[:, js]
    right = -(legendre[:, js] * weight[:, None]).T @ legendre[:, n + 1]
    a = np.zeros(n + 2)
    a[n + 1] = 1.0
    a[js] = np.linalg.lstsq(rows, right, rcond=None)[0]
    extra_x = np.sort(np.polynomial.legendre.legroots(a).real)
    for _ in range(3):
        derivative = np.polynomial.legendre.legder(a)
        extra_x = extra_x - np.polynomial.legendre.legval(extra_x, a) / np.polynomial.legendre.legval(
            extra_x, derivative
        )
    x = np.sort(np.concatenate([gauss_x, extra_x]))
    x = 0.5 * (x - x[::-1])
    vander = np.polynomial.legendre.legvander(x, len(x) - 1)
    target = np.zeros(len(x))
    target[0] = 2.0
    kronrod_w = np.linalg.solve(vander.T, target)
    inner = np.zeros(len(x))
    inner[1::2] = gauss_w
    return x, kronrod_w, inner


class _Walk(NamedTuple):
    """The adaptive integral under way: a stack of panels, depth first, and what has been summed."""

    panels: jax.Array  # (depth, 2)
    depth: jax.Array
    used: jax.Array
    top: jax.Array  # log of the unit in which the sums are held
    sums: jax.Array  # (3,): integrals of 1, v, v² with v the distance from the peak
    errors: jax.Array  # (3,)


def _adaptive(values: LogFactor, centre: jax.Array, sd: jax.Array, rule: Quadrature, tol: float) -> Tilted:
    dtype = centre.dtype

    def log_tilt(u: jax.Array) -> jax.Array:
        out = values(centre + sd * u) - 0.5 * u * u
        return jnp.where(jnp.isnan(out), -jnp.inf, out)

    peak, left, right, near_left, near_right, top = _frame(log_tilt, dtype)
    walk = _integrate(log_tilt, peak, (left, near_left, near_right, right), top, rule.max_panels, tol)
    total = walk.sums[0]
    offset = walk.sums[1] / total
    variance = walk.sums[2] / total - offset * offset
    width = jnp.sqrt(variance)
    rounding = float(jnp.finfo(dtype).eps) * (8.0 + (jnp.abs(peak) + jnp.abs(centre) / sd) / width)
    error = rounding + jnp.max(
        jnp.stack(
            [
                walk.errors[0] / total,
                walk.errors[1] / (total * width),
                (walk.errors[2] + 2.0 * jnp.abs(offset) * walk.errors[1]) / (total * variance),
            ]
        )
    )
    log_z = walk.top + jnp.log(total) - _HALF_LOG_2PI
    # a sure field has nothing to integrate: the factor is a constant
    sure = sd <= 0
    return Tilted(
        jnp.where(sure, values(centre[None])[0], log_z),
        jnp.where(sure, 0.0, peak + offset)[None],
        jnp.where(sure, 1.0, width)[None, None],
        jnp.where(sure, 0.0, error),
    )


def _frame(log_tilt: LogFactor, dtype: jnp.dtype) -> tuple[jax.Array, ...]:
    """The peak of the tilt, where it has dropped out of sight on either side, and a first grading in between.

    Returns:
        ``(peak, far_left, far_right, near_left, near_right, log-tilt at the peak)``.
    """
    grid = jnp.asarray(_GRID, dtype)
    heights = log_tilt(grid)
    best = jnp.clip(jnp.argmax(heights), 1, len(_GRID) - 2)
    inner = jnp.asarray(_ZOOM, dtype)

    def unresolved(carry: tuple) -> jax.Array:
        _, around, count = carry
        return (around[1] - jnp.min(around) > 2.0) & (count < _MAX_ZOOMS)

    def refine(carry: tuple) -> tuple:
        (low, middle, high), (at_low, at_middle, at_high), count = carry
        left, right = low + (middle - low) * inner, middle + (high - middle) * inner
        ends = (jnp.stack([low]), left, jnp.stack([middle]), right, jnp.stack([high]))
        points = jnp.concatenate(ends)
        new = log_tilt(jnp.concatenate([left, right]))
        half = len(_ZOOM)
        logs = jnp.concatenate(
            [jnp.stack([at_low]), new[:half], jnp.stack([at_middle]), new[half:], jnp.stack([at_high])]
        )
        first = jnp.clip(jnp.argmax(logs) - 1, 0, 2 * half)
        return (
            jax.lax.dynamic_slice_in_dim(points, first, 3),
            jax.lax.dynamic_slice_in_dim(logs, first, 3),
            count + 1,
        )

    start = (
        jax.lax.dynamic_slice_in_dim(grid, best - 1, 3),
        jax.lax.dynamic_slice_in_dim(heights, best - 1, 3),
        0,
    )
    bracket, around, _ = jax.lax.while_loop(unresolved, refine, start)
    at_best = jnp.argmax(around)
    peak, top = bracket[at_best], around[at_best]

    visible = 38.0 if dtype == jnp.float64 else 20.0
    step = jnp.maximum(bracket[2] - bracket[0], jnp.abs(peak) * 4 * float(jnp.finfo(dtype).eps))
    steps = step * jnp.asarray(_LADDER, dtype)
    rungs = jnp.arange(1, len(_LADDER) + 1)
    up, down = log_tilt(peak + steps), log_tilt(peak - steps)

    def reach(side: jax.Array, drop: float) -> jax.Array:
        """The first rung beyond which this side stays lower than the peak by ``drop``."""
        rung = jnp.max(jnp.where(side > top - drop, rungs, 0))
        return steps[jnp.clip(rung, 0, len(_LADDER) - 1)]

    # the ladder may step over a second peak that the grid has seen
    seen = heights > top - visible
    first = grid[jnp.maximum(jnp.argmax(seen) - 1, 0)]
    last = grid[jnp.minimum(len(_GRID) - jnp.argmax(seen[::-1]), len(_GRID) - 1)]
    far_left, far_right = peak - reach(down, visible), peak + reach(up, visible)
    far_left = jnp.where(jnp.any(seen), jnp.minimum(far_left, first), far_left)
    far_right = jnp.where(jnp.any(seen), jnp.maximum(far_right, last), far_right)
    return peak, far_left, far_right, peak - reach(down, 2.0), peak + reach(up, 2.0), top


def _integrate(
    log_tilt: LogFactor, peak: jax.Array, edges: tuple[jax.Array, ...], top: jax.Array, max_panels: int, tol: float
) -> _Walk:
    dtype = peak.dtype
    nodes, kronrod, gauss = (jnp.asarray(a, dtype) for a in _kronrod())
    far_left, near_left, near_right, far_right = edges
    # the innermost panels are last on the stack: the sums are of the right size before the tails are judged
    panels = jnp.stack(
        [
            jnp.stack([far_left, near_left]),
            jnp.stack([near_right, far_right]),
            jnp.stack([near_left, peak]),
            jnp.stack([peak, near_right]),
        ]
    )
    deep = 48
    zero = jnp.zeros((), dtype)
    start = _Walk(
        jnp.zeros((deep, 2), dtype).at[:4].set(panels),
        jnp.asarray(4),
        jnp.asarray(0),
        jnp.where(top > -jnp.inf, top, 0.0),
        jnp.stack([zero, zero, zero]),
        jnp.stack([zero, zero, zero]),
    )

    def step(walk: _Walk) -> _Walk:
        a, b = jax.lax.dynamic_index_in_dim(walk.panels, walk.depth - 1, keepdims=False)
        half, middle = 0.5 * (b - a), 0.5 * (a + b)
        u = middle + half * nodes
        logs = log_tilt(u)
        top = jnp.maximum(walk.top, jnp.max(logs))
        rescale = jnp.exp(walk.top - top)
        density = jnp.exp(logs - top) * half
        v = u - peak
        powers = jnp.stack([density, density * v, density * v * v])
        fine, coarse = powers @ kronrod, powers @ gauss
        size = jnp.stack([fine[0], jnp.sqrt(fine[0] * fine[2]), fine[2]])
        gap = jnp.abs(fine - coarse)
        # the Kronrod sum is far better than the Gauss sum within it: the usual 3/2 power
        relative = gap / jnp.where(size > 0, size, 1.0)
        error = jnp.where(size > 0, size * jnp.minimum(relative, (60.0 * relative) ** 1.5), 0.0)
        sums, errors = walk.sums * rescale, walk.errors * rescale
        held = sums + fine
        scale = jnp.stack([held[0], jnp.sqrt(held[0] * held[2]), held[2]])
        fits = jnp.all(error <= 0.25 * tol * scale)
        spent = (walk.used >= max_panels) | (walk.depth >= deep - 1)
        flat = jnp.abs(half) <= 8.0 * float(jnp.finfo(dtype).eps) * jnp.maximum(jnp.abs(middle), 1e-30)
        keep = fits | spent | flat
        halves = jnp.stack([jnp.stack([a, middle]), jnp.stack([middle, b])])
        # the half nearer the peak goes on top
        halves = jnp.where(middle > peak, halves[::-1], halves)
        split = jax.lax.dynamic_update_slice(walk.panels, halves, (walk.depth - 1, 0))
        return _Walk(
            jnp.where(keep, walk.panels, split),
            jnp.where(keep, walk.depth - 1, walk.depth + 1),
            walk.used + 1,
            top,
            jnp.where(keep, sums + fine, sums),
            jnp.where(keep, errors + error, errors),
        )

    return jax.lax.while_loop(lambda walk: walk.depth > 0, step, start)


# ---------------------------------------------------------------------------------------------- two and three


class _Tensor(NamedTuple):
    """A tensor Gauss-Hermite rule with the rows that turn factor values into Hermite coefficients."""

    points: np.ndarray  # (n, k)
    zeroth: np.ndarray  # (n,)
    first: np.ndarray  # (k, n)
    second: np.ndarray  # (k * k, n): the coefficient of t_i t_j - δ_ij
    last: np.ndarray  # (4 k, n): the highest ones along each axis


@cache
def _tensor(size: int) -> _Tensor:
    nodes = {2: 20, 3: 14}[size]
    x, w = hermegauss(nodes)
    w = w / w.sum()
    points = np.array(list(product(x, repeat=size)))
    weights = np.prod(np.array(list(product(w, repeat=size))), axis=1)
    norms = np.sqrt([math.factorial(j) for j in range(nodes)])
    axes = [hermevander(points[:, i], nodes - 1) / norms for i in range(size)]
    second = [points[:, i] * points[:, j] - (i == j) for i in range(size) for j in range(size)]
    last = [axis[:, j] for axis in axes for j in range(nodes - 4, nodes)]
    return _Tensor(points, weights, points.T * weights, np.array(second) * weights, np.array(last) * weights)


def _few_dimensions(log_factor: LogFactor, mean: jax.Array, scale: jax.Array, rule: Quadrature, tol: float) -> Tilted:
    size, dtype = mean.shape[0], mean.dtype
    tensor = _Tensor(*(jnp.asarray(a, dtype) for a in _tensor(size)))

    def in_cavity(u: jax.Array) -> jax.Array:
        return log_factor(mean + scale @ u)

    def fitted(centre: jax.Array, root: jax.Array) -> Tilted:
        """The moments by a rule centred at ``centre`` and scaled by ``root``; exact where both are the answer."""
        u = centre + tensor.points @ root.T
        logs = jax.vmap(in_cavity)(u) - 0.5 * jnp.sum(u * u, -1) + 0.5 * jnp.sum(tensor.points**2, -1)
        logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
        top = jnp.max(logs)
        density = jnp.exp(logs - jnp.where(top > -jnp.inf, top, 0.0))
        c0 = tensor.zeroth @ density
        shift = tensor.first @ density / c0
        covariance = (tensor.second @ density).reshape(size, size) / c0 + jnp.eye(size, dtype=dtype)
        covariance = covariance - jnp.outer(shift, shift)
        leftover = jnp.max(jnp.abs(tensor.last @ density)) / c0
        error = 4.0 * leftover * leftover / jnp.min(jnp.diagonal(covariance))
        inner = jnp.linalg.cholesky(covariance)
        error = jnp.where(jnp.all(jnp.isfinite(inner)), error, jnp.inf)
        log_z = top + jnp.log(c0) + jnp.linalg.slogdet(root)[1]
        return Tilted(log_z, centre + root @ shift, root @ inner, error)

    def refit() -> Tilted:
        def again(carry: tuple[Tilted, Tilted, jax.Array]) -> tuple[Tilted, Tilted, jax.Array]:
            best, last, count = carry
            new = fitted(last.shift, last.root)
            better = new.error < best.error
            best = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, best)
            usable = jnp.isfinite(new.error)
            return best, jax.tree.map(lambda a, b: jnp.where(usable, a, b), new, last), count + 1

        start = fitted(*peak_fit(in_cavity, size, dtype))
        best, _, _ = jax.lax.while_loop(lambda c: (c[0].error >= tol) & (c[2] < 8), again, (start, start, 0))
        return best

    identity = jnp.eye(size, dtype=dtype)
    first = fitted(jnp.zeros(size, dtype), identity)
    return jax.lax.cond(first.error < tol, lambda: first, refit)
