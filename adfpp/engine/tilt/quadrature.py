"""Adaptive quadrature for tilted moments of small fields.

One dimension, in three tiers:

1. Gauss-Hermite on the cavity. The same nodes also give the Hermite coefficients of the factor. Their continuation
   beyond the rule gives an estimate of the error.
2. Kronrod panels of fixed width across the cavity (not for factors with a landmark that may be a narrow peak).
3. The peak of the tilt is located on a graded grid, which is refined around its best point. The range in which the tilt
   is not negligible is integrated by globally adaptive Gauss-Kronrod panels. Their first edges are the peak and the
   landmarks.

No derivatives are taken, so a factor may have kinks, steps and zeros. Two and three dimensions are in ``tensor``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.polynomial.hermite_e import hermegauss, hermevander

from adfpp.engine.tilt.base import LogFactor, Tilted
from adfpp.engine.tilt.landmarks import Landmarks
from adfpp.engine.tilt.rules import LOST, kronrod, once, tail_error
from adfpp.engine.tilt.tensor import two_or_three_dimensions

# The log of a factor, or of a tilt, at many values of a field of one number.
LogValues: TypeAlias = Callable[[Float[Array, " n"]], Float[Array, " n"]]

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Quadrature:
    """Adaptive quadrature of the tilted distribution.

    Attributes:
        tol: Target of the estimated error in float64. (In float32 it is about 1e-6, the smallest possible error.)
        report: A row whose estimated error is above this is marked ``Status.INACCURATE``.
        report_tensor: The same for fields of two and three numbers.
        nodes: Gauss-Hermite nodes of the first tier.
        tensor_tol: Target of the estimated error for fields of two and three numbers.
        tensor_nodes: Gauss nodes of a panel in three dimensions.
        max_panels: Panels that the adaptive tier may evaluate before it accepts what it has.
    """

    exact: ClassVar[bool] = False
    divisible: ClassVar[bool] = True
    power_limit: ClassVar[bool] = False
    draws: ClassVar[bool] = False

    tol: float = 1e-7
    report: float = 1e-6
    report_tensor: float = 2e-2
    nodes: int = 20
    tensor_tol: float = 1e-5
    tensor_nodes: int = 3
    max_panels: int = 100

    def reported(self, dtype: DTypeLike, size: int = 1) -> float:
        """The error above which a row is marked, for this dtype and size of field."""
        # 2e4 eps is 2e-3 in float32: rounding errors of a likelihood alone may be so large.
        return max(self.report if size == 1 else self.report_tensor, 2e4 * float(jnp.finfo(dtype).eps))

    def __call__(
        self,
        log_factor: LogFactor,
        mean: Float[Array, " k"],
        scale: Float[Array, "k k"],
        landmarks: Landmarks | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Tilted:
        """Computes the moments of ``N(u; 0, I) exp(log_factor(mean + scale @ u))``.

        Args:
            log_factor: Log of the factor as a function of the field.
            mean: The cavity's mean.
            scale: Lower triangular root of the cavity's covariance.
            landmarks: Where a scalar factor may have peaks or kinks, if this is known.
            key: Not used.
        """
        tol = max(self.tol, 8.0 * float(jnp.finfo(mean.dtype).eps))
        if mean.shape[0] == 1:
            known = landmarks if landmarks is not None else Landmarks(jnp.zeros(0, mean.dtype), 0)
            return _one_dimension(log_factor, mean[0], scale[0, 0], known, self, tol)
        return two_or_three_dimensions(log_factor, mean, scale, max(self.tensor_tol, tol), self.tensor_nodes)


# ---------------------------------------------------------------------------------------------- one dimension


@cache
def hermite(nodes: int) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n n"]]:
    """Nodes, and the matrix that turns factor values there into coefficients of normalised Hermite polynomials."""
    x, w = hermegauss(nodes)
    norms = np.sqrt([math.factorial(j) for j in range(nodes)])
    return x, (hermevander(x, nodes - 1) / norms).T * (w / w.sum())


def _one_dimension(
    log_factor: LogFactor,
    centre: Float[Array, ""],
    sd: Float[Array, ""],
    landmarks: Landmarks,
    rule: Quadrature,
    tol: float,
) -> Tilted:
    dtype, nodes = centre.dtype, rule.nodes
    eps = float(jnp.finfo(dtype).eps)
    values = jax.vmap(lambda h: log_factor(h[None]))

    x, matrix = hermite(nodes)
    tails = (slice(nodes - 12, nodes - 8), slice(nodes - 4, nodes))
    chosen = np.concatenate([matrix[:3], *[matrix[t] for t in tails]])
    log_values = values(centre + sd * jnp.asarray(x, dtype))
    top = jnp.max(log_values)
    factor = jnp.exp(log_values - top)
    c = jnp.asarray(chosen, dtype) @ factor
    shift = c[1] / c[0]
    variance = 1.0 + math.sqrt(2.0) * c[2] / c[0] - shift * shift
    sizes = jnp.abs(c) / c[0]
    error = 2.0 * tail_error(jnp.max(sizes[3:7]), jnp.max(sizes[7:])) / variance
    if landmarks.centres:
        error = error + _hidden(values, centre, sd, landmarks.at[: landmarks.centres], factor, top, c[0], nodes)
    easy = (error < tol) & (variance > 0)
    rounding = eps * (LOST + 4.0 * jnp.max(jnp.abs(log_values)) + jnp.where(sd > 0, 2.0 * jnp.abs(centre) / sd, 0.0))
    first = Tilted(top + jnp.log(c[0]), shift[None], jnp.sqrt(variance)[None, None], error + rounding)

    def adaptive() -> Tilted:
        tilted = _adaptive(values, centre, sd, landmarks, rule, tol)
        # a certain field has no width: the factor is a constant, which all nodes give
        certain = Tilted(log_values[0], jnp.zeros(1, dtype), jnp.ones((1, 1), dtype), jnp.zeros_like(centre))
        return jax.tree.map(lambda a, b: jnp.where(sd <= 0, a, b), certain, tilted)

    def harder() -> Tilted:
        if landmarks.centres:  # panels of fixed width may miss a narrow peak
            return adaptive()
        second, error = _composite(values, centre, sd)
        return jax.lax.cond(error < tol, lambda: second, adaptive)

    return jax.lax.cond(easy, lambda: first, harder)


def _hidden(
    values: LogValues,
    centre: Float[Array, ""],
    sd: Float[Array, ""],
    at: Float[Array, " m"],
    factor: Float[Array, " n"],
    top: Float[Array, ""],
    mass: Float[Array, ""],
    nodes: int,
) -> Float[Array, ""]:
    """The fraction of the mass that the nodes may miss, in a narrow peak at a landmark.

    It is estimated from the difference between the factor there and the interpolant through its values at the nodes.
    """
    _, matrix = hermite(nodes)
    u = jnp.where(jnp.isnan(at), 0.0, (at - centre) / sd)
    near = jnp.abs(u) < 6.0
    v = jnp.where(near, u, 0.0)
    polynomials = [jnp.ones_like(v), v]
    for j in range(1, nodes - 1):  # normalised: √(j+1) p_{j+1} = v p_j - √j p_{j-1}
        polynomials.append((v * polynomials[j] - math.sqrt(j) * polynomials[j - 1]) / math.sqrt(j + 1))
    interpolant = (jnp.asarray(matrix, v.dtype) @ factor) @ jnp.stack(polynomials)
    there = jnp.exp(values(centre + sd * u) - top - 0.5 * u * u)
    missed = jnp.where(near, jnp.abs(there - interpolant * jnp.exp(-0.5 * v * v)), there)
    # a peak whose sd is 0.05 cavity sds has a mass of 0.05 times its height; the nodes do not miss wider peaks
    return 0.05 * jnp.max(jnp.where(jnp.isnan(at), 0.0, missed)) / mass


_GRID = np.sinh(np.linspace(-6.5, 6.5, 66))  # an even number of points, so that 0 is not one of them; up to ±332 sd
_LADDER = 1.7 ** np.arange(-2, 46)  # from a third of a step to far beyond the grid
_MAX_ZOOMS = 7  # each reduces the bracket to 2/47 of its width or less, and all of them to 1e-9


def _sorted(a: Float[Array, " n"]) -> Float[Array, " n"]:
    """Sorts a small array by counting: the library's sort would take much longer for each row."""
    i = jnp.arange(a.shape[0])
    before = (a[None, :] < a[:, None]) | ((a[None, :] == a[:, None]) & (i[None, :] < i[:, None]))
    rank = jnp.sum(before, 1)
    return jnp.sum(jnp.where(rank[None, :] == i[:, None], a[None, :], 0.0), 1)


def _relative(
    errors: Float[Array, "3"], total: Float[Array, ""], offset: Float[Array, ""], variance: Float[Array, ""]
) -> Float[Array, ""]:
    """The worst error of (mean in sds, variance, log Z), from those of the integrals of 1, v, v²."""
    mean = errors[1] / (total * jnp.sqrt(variance))
    return jnp.maximum(
        errors[0] / total,
        jnp.maximum(mean, (errors[2] + 2.0 * jnp.abs(offset) * errors[1]) / (total * variance)),
    )


_PANELS = np.linspace(-9.13, 9.31, 9)  # no edge at a round number, where a likelihood is likely to have a step


def _composite(values: LogValues, centre: Float[Array, ""], sd: Float[Array, ""]) -> tuple[Tilted, Float[Array, ""]]:
    """Kronrod panels of fixed width over the whole cavity: accurate if the factor is not narrower than a panel.

    Returns:
        The moments, and their error without rounding errors, which more nodes would not reduce.
    """
    dtype = centre.dtype
    eps = float(jnp.finfo(dtype).eps)
    x, weights = kronrod()
    half = 0.5 * (_PANELS[1] - _PANELS[0])
    u = (0.5 * (_PANELS[1:] + _PANELS[:-1])[:, None] + half * x).astype(dtype)
    logs = once(values(centre + sd * jnp.asarray(u.reshape(-1))).reshape(u.shape) - 0.5 * u * u)
    top = jnp.max(logs)
    density = once(jnp.exp(logs - top))
    powers = np.stack([np.ones_like(u), u, u * u], -1) * half
    both = np.concatenate([powers * weights[0][:, None], powers * weights[1][:, None]], -1).astype(dtype)
    sums = jnp.einsum("pn,pnk->pk", density, both)  # (panels, 3 powers by either rule)
    total, first, second = jnp.sum(sums[:, :3], 0)
    gap = jnp.abs(sums[:, :3] - sums[:, 3:])
    size = jnp.stack([total, jnp.sqrt(total * second), second])
    relative = gap / size
    errors = size * jnp.sum(jnp.minimum(relative, (60.0 * relative) ** 1.5), 0)
    mean = first / total
    variance = second / total - mean * mean
    ends = (
        jnp.maximum(density[0, 0], density[-1, -1]) / total * 1e3
    )  # the mass outside of the panels must be negligible
    rounding = eps * (
        LOST
        + 4.0 * jnp.max(jnp.abs(top))
        + 8.0 * (9.0 + jnp.where(sd > 0, jnp.abs(centre) / sd, 0.0)) / jnp.sqrt(variance)
    )
    rounding = rounding + eps * 100.0 * mean * mean / variance
    error = _relative(errors, total, mean, variance) + ends
    log_z = top + jnp.log(total) - _HALF_LOG_2PI
    return Tilted(log_z, mean[None], jnp.sqrt(variance)[None, None], error + rounding), error


def _adaptive(
    values: LogValues,
    centre: Float[Array, ""],
    sd: Float[Array, ""],
    landmarks: Landmarks,
    rule: Quadrature,
    tol: float,
) -> Tilted:
    dtype = centre.dtype
    eps = float(jnp.finfo(dtype).eps)

    def log_tilt(u: Float[Array, " n"]) -> Float[Array, " n"]:
        out = values(centre + sd * u) - 0.5 * u * u
        return jnp.where(jnp.isnan(out), -jnp.inf, out)

    known = (landmarks.at - centre) / sd
    known = jnp.where(jnp.abs(known) < _GRID[-1], known, 0.0)  # NaN fails the comparison, too
    peak, top, width, edges = frame(log_tilt, known)
    unit, (total, first, second), errors = _integrate(log_tilt, peak, top, width, edges, rule.max_panels, tol)
    offset = first / total
    variance = second / total - offset * offset
    width = jnp.sqrt(variance)
    height = jnp.abs(unit + 0.5 * peak * peak)
    rounding = eps * (LOST + 4.0 * height + 8.0 * (jnp.abs(peak) + jnp.abs(centre) / sd) / width)
    error = rounding + _relative(errors, total, offset, variance)
    log_z = unit + jnp.log(total) - _HALF_LOG_2PI
    return Tilted(log_z, (peak + offset)[None], width[None, None], error)


class _Framing(NamedTuple):
    """The search for the peak and for the range of a tilt, so far.

    Attributes:
        stage: What the next points are: the grid, points inside the bracket, the ladder; then the search has ended.
        points: The next points.
        bracket: Three points around the peak.
        around: The log-tilt at these.
        zooms: How often the bracket has been refined.
        heights: The log-tilt on the grid and at the landmarks.
        sides: The log-tilt on the ladder, on both sides of the peak.
    """

    stage: Int[Array, ""]
    points: Float[Array, "2 n"]
    bracket: Float[Array, "3"]
    around: Float[Array, "3"]
    zooms: Int[Array, ""]
    heights: Float[Array, " grid"]
    sides: Float[Array, "2 rungs"]


_ON_GRID, _IN_BRACKET, _ON_LADDER, _ENDED = range(4)


def frame(
    log_tilt: LogValues, known: Float[Array, " m"]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""], Float[Array, " edges"]]:
    """Finds the peak of the tilt, the log-tilt there, its width, and sorted edges for the panels.

    The edges are the peak, the points on either side where the tilt has dropped by 2 and where it has become
    negligible, the ends of the range in which the tilt is not negligible on the grid, and the landmarks.

    All stages of the search are passes of one loop with equally many points, so that the program contains the tilt
    once: it may be most of what has to be compiled.
    """
    dtype = known.dtype
    grid, ladder = jnp.asarray(_GRID, dtype), jnp.asarray(_LADDER, dtype)
    points = jnp.concatenate([grid, known])
    half = max(len(_LADDER), (len(points) + 1) // 2)
    shares = jnp.stack([jnp.arange(half, dtype=dtype) / half, jnp.linspace(0.0, 1.0, half, dtype=dtype)])
    signs = jnp.asarray([[1.0], [-1.0]], dtype)
    rungs = jnp.pad(ladder, (0, half - len(ladder)))

    def top_of(framing: _Framing) -> tuple[Float[Array, ""], Float[Array, ""]]:
        highest = jnp.argmax(framing.around)
        return framing.bracket[highest], framing.around[highest]

    def step_of(framing: _Framing) -> Float[Array, ""]:
        bracket = framing.bracket
        return jnp.maximum(bracket[2] - bracket[0], jnp.abs(top_of(framing)[0]) * 4 * float(jnp.finfo(dtype).eps))

    def on_grid(framing: _Framing, logs: Float[Array, "2 n"]) -> _Framing:
        heights = logs.reshape(-1)[: len(points)]
        at = points[jnp.argmax(heights)]
        low = jnp.max(jnp.where(points < at, points, 2.0 * _GRID[0]))
        high = jnp.min(jnp.where(points > at, points, 2.0 * _GRID[-1]))
        # -inf for the heights of the neighbours, so that the first zoom is made; it evaluates points between them
        around = jnp.full(3, -jnp.inf, dtype).at[1].set(jnp.max(heights))
        return framing._replace(bracket=jnp.stack([low, at, high]), around=around, heights=heights)

    def in_bracket(framing: _Framing, logs: Float[Array, "2 n"]) -> _Framing:
        first = jnp.clip(jnp.argmax(logs) - 1, 0, logs.size - 3)
        bracket, around = (jax.lax.dynamic_slice_in_dim(a.reshape(-1), first, 3) for a in (framing.points, logs))
        return framing._replace(bracket=bracket, around=around, zooms=framing.zooms + 1)

    def search(framing: _Framing) -> _Framing:
        logs = once(log_tilt(framing.points.reshape(-1))).reshape(2, -1)
        stage = framing.stage
        passes = (on_grid(framing, logs), in_bracket(framing, logs))
        new = jax.tree.map(lambda a, b, c: jnp.where(stage == 0, a, jnp.where(stage == 1, b, c)), *passes, framing)
        low = new.bracket[:2, None]  # the ends and the middle are evaluated again, so that all points are in order
        inside = low + (new.bracket[1:, None] - low) * shares
        on_ladder = top_of(new)[0] + signs * (step_of(new) * rungs)
        zoom = (new.around[1] - jnp.min(new.around) > 2.0) & (new.zooms < _MAX_ZOOMS)
        last = stage == _ON_LADDER
        return new._replace(
            stage=jnp.where(last, _ENDED, jnp.where(zoom, _IN_BRACKET, _ON_LADDER)),
            points=jnp.where(zoom, inside, on_ladder),
            sides=jnp.where(last, logs[:, : len(ladder)], new.sides),
        )

    zeros, blank = jnp.zeros(3, dtype), jnp.zeros((2, len(_LADDER)), dtype)
    first = jnp.pad(points, (0, 2 * half - len(points))).reshape(2, half)
    start = _Framing(jnp.asarray(_ON_GRID), first, zeros, zeros, jnp.asarray(0), 0.0 * points, blank)
    framing = jax.lax.while_loop(lambda framing: framing.stage < _ENDED, search, start)
    peak, top = top_of(framing)
    steps, sides, heights = step_of(framing) * ladder, framing.sides, framing.heights

    visible = (
        38.0 if dtype == jnp.float64 else 20.0
    )  # a larger drop of the log contributes nothing to a sum in this dtype
    numbers = jnp.arange(1, len(_LADDER) + 1)
    # a heavy tail contributes to the variance in proportion to the squared distance
    weight = jnp.asarray(2.0 * np.log(np.maximum(_LADDER, 1.0)), dtype)

    def reach(heights: Float[Array, "2 rungs"], drop: float) -> Float[Array, "2"]:
        """On each side, the first rung beyond which these heights stay lower than the peak by ``drop``."""
        rung = jnp.max(jnp.where(heights > top - drop, numbers, 0), -1)
        return steps[jnp.clip(rung, 0, len(_LADDER) - 1)]

    near, far = reach(sides, 2.0), reach(sides + weight, visible)
    # the ladder may miss a second peak that the grid or a landmark shows: integrate up to that peak's neighbours
    seen = jnp.where(heights > top - visible, points, peak)
    right, left = jnp.maximum(jnp.max(seen), peak + far[0]), jnp.minimum(jnp.min(seen), peak - far[1])
    beyond_right, beyond_left = (
        jnp.min(jnp.where(grid > right, grid, grid[-1])),
        jnp.max(jnp.where(grid < left, grid, grid[0])),
    )
    right = jnp.where(jnp.max(seen) > peak + far[0], beyond_right, right)
    left = jnp.where(jnp.min(seen) < peak - far[1], beyond_left, left)
    fixed = jnp.stack([left, peak - far[1], peak - near[1], peak, peak + near[0], peak + far[0], right])
    return (
        peak,
        top,
        0.5 * (near[0] + near[1]),
        _sorted(jnp.concatenate([fixed, jnp.clip(known, left, right)])),
    )


class _Panels(NamedTuple):
    """The panels of an integral, so far."""

    edges: Float[Array, "P 2"]
    sums: Float[Array, "P 3"]  # integrals of 1, v, v² over each panel, v the distance from the peak
    errors: Float[Array, "P 3"]
    used: Int[Array, ""]


def _integrate(
    log_tilt: LogValues,
    peak: Float[Array, ""],
    top: Float[Array, ""],
    width: Float[Array, ""],
    edges: Float[Array, " edges"],
    max_panels: int,
    tol: float,
) -> tuple[Float[Array, ""], Float[Array, "3"], Float[Array, "3"]]:
    """Integrates adaptively: halves the panels with the largest errors until the sum of the errors is small enough.

    As many panels are halved together as there are first ones, so that the program contains the tilt once.

    Returns:
        The log of the unit, the integrals of 1, v, v² in this unit and their errors, v the distance from the peak.
    """
    dtype = peak.dtype
    eps = float(jnp.finfo(dtype).eps)
    x, weights = (jnp.asarray(a, dtype) for a in kronrod())
    nodes = jnp.concatenate([x, jnp.asarray([-1.0, 1.0], dtype)])
    top = jnp.where(top > -jnp.inf, top, 0.0)
    # a higher peak that ``frame`` has missed must not overflow: it is limited here, and makes the panel's error large
    ceiling = 600.0 if dtype == jnp.float64 else 60.0
    # the least mass of a peak of this width: errors are relative to it
    least = 0.3 * width * jnp.stack([jnp.ones_like(width), width, width * width])

    def measure(edges: Float[Array, "p 2"]) -> tuple[Float[Array, "p 3"], Float[Array, "p 3"]]:
        """The sums and errors of panels."""
        half, middle = 0.5 * (edges[:, 1] - edges[:, 0]), 0.5 * (edges[:, 0] + edges[:, 1])
        u = middle + half * nodes[:, None]  # panels are the last axis, along which XLA vectorises the sums
        logs = once(log_tilt(u.reshape(-1))).reshape(u.shape) - top
        density = once(jnp.exp(jnp.minimum(logs, ceiling)) * half)
        v = u - peak
        powers = [once(density), once(density * v), once(density * v * v)]
        # written as sums, because a small matrix product would be a slow library call in the loop over rows
        fine, coarse, first, last = (jnp.stack([jnp.sum(a[:-2] * w[:, None], 0) for a in powers], -1) for w in weights)
        ends = [jnp.stack([a[i] for a in powers], -1) for i in (-2, -1)]
        size = jnp.stack([fine[:, 0], jnp.sqrt(jnp.maximum(fine[:, 0] * fine[:, 2], 0.0)), fine[:, 2]], 1)
        gap = jnp.abs(fine - coarse)
        # the Kronrod sum is much more accurate than the Gauss sum, hence the usual power 3/2
        relative = gap / jnp.where(size > 0, size, 1.0)
        error = jnp.where(size > 0, size * jnp.minimum(relative, (60.0 * relative) ** 1.5), gap)
        # the ends of a panel are not nodes: if the values there differ from the polynomial through the nodes, there may
        # be a peak between the end and the last node
        error = error + 0.005 * (jnp.abs(ends[0] - first) + jnp.abs(ends[1] - last))
        flat = half <= 8.0 * eps * jnp.abs(middle)
        return fine, jnp.where(flat[:, None], 0.0, error)

    def judged(errors: Float[Array, "*p 3"], sums: Float[Array, "P 3"]) -> Float[Array, "*p"]:
        """Errors relative to the integrals, the largest for the three powers."""
        total = jnp.maximum(jnp.sum(sums, 0), least)
        scale = jnp.stack([total[0], jnp.sqrt(total[0] * total[2]), total[2]])
        return jnp.max(errors / scale, -1)

    count = edges.shape[0] - 1
    split = (count + 1) // 2  # how many panels are halved together
    room = 2 * split + max_panels
    given = jnp.full((room, 2), edges[-1]).at[:count].set(jnp.stack([edges[:-1], edges[1:]], -1))
    blank = jnp.zeros((room, 3), dtype)
    start = _Panels(given, blank, blank, jnp.asarray(0))

    def unfinished(panels: _Panels) -> Bool[Array, ""]:
        inaccurate = judged(jnp.sum(panels.errors, 0), panels.sums) > 0.5 * tol
        return (panels.used == 0) | (inaccurate & (panels.used + split <= room))

    def more(panels: _Panels) -> _Panels:
        first = panels.used == 0
        inaccuracy, worst = judged(panels.errors, panels.sums), []
        for _ in range(split):
            worst.append(jnp.argmax(inaccuracy))
            inaccuracy = jax.lax.dynamic_update_index_in_dim(inaccuracy, -1.0, worst[-1], 0)
        places = [jnp.where(first, i, w) for i, w in enumerate(worst)]
        index = jax.lax.dynamic_index_in_dim
        a, b = jnp.stack([index(panels.edges, w, keepdims=False) for w in worst]).T
        middle = 0.5 * (a + b)
        halves = jnp.concatenate([jnp.stack([a, middle], -1), jnp.stack([middle, b], -1)])
        edges = jnp.where(first, panels.edges[: 2 * split], halves)
        new = (edges, *measure(edges))
        used = jnp.where(first, split, panels.used)
        put = jax.lax.dynamic_update_slice_in_dim
        both = []
        for old, n in zip(panels[:3], new, strict=True):
            for i, place in enumerate(places):
                old = put(old, n[i : i + 1], place, 0)
            both.append(put(old, n[split:], used, 0))
        return _Panels(both[0], both[1], both[2], used + split)

    done = jax.lax.while_loop(unfinished, more, start)
    return top, jnp.sum(done.sums, 0), jnp.sum(done.errors, 0)
