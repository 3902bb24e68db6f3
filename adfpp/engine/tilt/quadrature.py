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
from functools import cache, partial, reduce
from typing import ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.polynomial.hermite_e import hermegauss, hermevander

from adfpp.engine.tilt.base import LogFactor, Tilted
from adfpp.engine.tilt.landmarks import Landmarks
from adfpp.engine.tilt.rules import LOST, kronrod, legendre, once, tail_error
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
_LADDER = 2.0 ** np.arange(-2, 32)  # from a quarter of a step to far beyond the grid
_MAX_ZOOMS = 7  # each reduces the bracket to 2/33 of its width or less, and all of them to 1e-8


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


@cache
def _panel() -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"], Float[np.ndarray, "10 n"]]:
    """A panel of half-width 1: its nodes with both ends, their weights, and rows that show the error.

    The rows give how far the values at the ends are from the polynomial through the nodes, four Legendre coefficients
    from the middle of this polynomial, and its last four.
    """
    x, (weights, _, *ends) = kronrod()
    coefficients = legendre(x)
    rows = np.concatenate([-np.stack(ends), coefficients[9:13], coefficients[17:21]])
    at_ends = np.pad(np.eye(2), ((0, 8), (0, 0)))
    return np.append(x, [-1.0, 1.0]), np.pad(weights, (0, 2)), np.hstack([rows, at_ends])


def _integrals(
    density: Float[Array, "n p"], v: Float[Array | np.ndarray, "n p"], half: Float[Array, " p"] | float
) -> tuple[Float[Array, "3 p"], Float[Array, "3 p"]]:
    """The integrals of 1, v, v² over panels of these half-widths, and their errors. Panels are the last axis.

    The error is estimated from how fast the coefficients fall. (The difference between two rules is no estimate for a
    kink, where both may be wrong by the same amount.)
    """
    dtype = density.dtype
    _, weights, rows = _panel()
    powers = once(jnp.stack([density, density * v, density * v * v]))
    # written as sums, because a small matrix product would be a slow library call in the loop over rows
    integrals = half * jnp.sum(powers * jnp.asarray(weights[:, None], dtype), 1)
    left, right, *tails = jnp.abs(jnp.sum(density * jnp.asarray(rows[..., None], dtype), 1))
    middle, last = reduce(jnp.maximum, tails[:4]), reduce(jnp.maximum, tails[4:])
    # a step, whose coefficients hardly fall, costs no more than the last of them
    beyond = jnp.minimum(tail_error(middle, last), last)
    # the ends of a panel are not nodes: if the values there differ from the polynomial, there may be a peak or a kink
    # between the end and the last node
    error = half * (beyond + 0.005 * (left + right))
    far = jnp.maximum(jnp.abs(v[-2]), jnp.abs(v[-1]))
    return integrals, jnp.stack([error, error * far, error * far * far])


_PANELS = np.linspace(-9.13, 9.31, 9)  # no edge at a round number, where a likelihood is likely to have a step


def _composite(values: LogValues, centre: Float[Array, ""], sd: Float[Array, ""]) -> tuple[Tilted, Float[Array, ""]]:
    """Kronrod panels of fixed width over the whole cavity: accurate if the factor is not narrower than a panel.

    Returns:
        The moments, and their error without rounding errors, which more nodes would not reduce.
    """
    dtype = centre.dtype
    eps = float(jnp.finfo(dtype).eps)
    half = 0.5 * (_PANELS[1] - _PANELS[0])
    u = (0.5 * (_PANELS[1:] + _PANELS[:-1]) + half * _panel()[0][:, None]).astype(dtype)
    logs = once(values(centre + sd * jnp.asarray(u.reshape(-1))).reshape(u.shape) - 0.5 * u * u)
    top = jnp.max(logs)
    density = once(jnp.exp(logs - top))
    integrals, errors = (jnp.sum(a, 1) for a in _integrals(density, u, half))
    total, first, second = integrals
    mean = first / total
    variance = second / total - mean * mean
    ends = jnp.maximum(density[-2, 0], density[-1, -1]) / total * 1e3  # the mass outside must be negligible
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
        points: The next points: the grid and the landmarks, then points inside the bracket, at last the ladder.
        bracket: The highest point, and its neighbours on the left and on the right.
        top: The log-tilt at the highest point.
        passes: How often the bracket has been found.
        on_ladder: Whether the next points are the ladder.
        finished: Whether the ladder has been evaluated.
        heights: The log-tilt on the grid and at the landmarks.
        logs: The log-tilt at the last points.
    """

    points: Float[Array, "2 n"]
    bracket: Float[Array, "3"]
    top: Float[Array, ""]
    passes: Int[Array, ""]
    on_ladder: Bool[Array, ""]
    finished: Bool[Array, ""]
    heights: Float[Array, "2 n"]
    logs: Float[Array, "2 n"]


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
    half = max(len(_LADDER), (len(_GRID) + len(known) + 1) // 2)
    first = jnp.concatenate([grid, known, jnp.full(2 * half - len(_GRID) - len(known), grid[-1])]).reshape(2, half)
    shares = jnp.asarray(np.stack([np.arange(half) / half, np.linspace(0.0, 1.0, half)]), dtype)
    rungs = jnp.asarray(np.multiply.outer([1.0, -1.0], np.pad(_LADDER, (0, half - len(_LADDER)))), dtype)
    closest = 4 * float(jnp.finfo(dtype).eps)

    def step_of(bracket: Float[Array, "3"]) -> Float[Array, ""]:
        return jnp.maximum(bracket[2] - bracket[0], jnp.abs(bracket[1]) * closest)

    def search(framing: _Framing) -> _Framing:
        points, old, on_ladder = framing.points, framing.bracket, framing.on_ladder
        logs = once(log_tilt(points.reshape(-1))).reshape(2, half)
        at = points.reshape(-1)[jnp.argmax(logs)]
        left, right = points < at, points > at
        # as one operation: the next points on both sides, and how high the tilt is there
        sides = [jnp.where(left, points, old[0]), jnp.where(right, -points, -old[2])]
        sides += [jnp.where(left, logs, -jnp.inf), jnp.where(right, logs, -jnp.inf), logs]
        low, high, *beside, top = jnp.max(jnp.stack(sides).reshape(5, -1), -1)
        bracket = jnp.where(on_ladder, old, jnp.stack([low, at, -high]))
        narrow = top - jnp.minimum(*beside) > 2.0  # if the peak is not narrow, these points show its width
        zoom = (framing.passes == 0) | (narrow & (framing.passes < _MAX_ZOOMS) & ~on_ladder)
        # the ends and the middle are evaluated again, so that all points are in order
        inside = bracket[:2, None] + (bracket[1:, None] - bracket[:2, None]) * shares
        return _Framing(
            points=jnp.where(zoom, inside, bracket[1] + step_of(bracket) * rungs),
            bracket=bracket,
            top=jnp.where(on_ladder, framing.top, top),
            passes=framing.passes + 1,
            on_ladder=~zoom,
            finished=on_ladder,
            heights=jnp.where(framing.passes == 0, logs, framing.heights),
            logs=logs,
        )

    no, zero, blank = jnp.asarray(False), jnp.zeros((), dtype), jnp.zeros((2, half), dtype)
    ends = jnp.asarray([2.0 * _GRID[0], 0.0, 2.0 * _GRID[-1]], dtype)
    start = _Framing(first, ends, zero, jnp.asarray(0), no, no, blank, blank)
    framing = jax.lax.while_loop(lambda framing: ~framing.finished, search, start)
    peak, top, sides = framing.bracket[1], framing.top, framing.logs[:, : len(_LADDER)]
    steps = step_of(framing.bracket) * ladder

    # a larger drop of the log contributes nothing to a sum in this dtype
    visible = 38.0 if dtype == jnp.float64 else 20.0
    numbers = jnp.arange(1, len(_LADDER) + 1)
    # a heavy tail contributes to the variance in proportion to the squared distance
    weight = jnp.asarray(2.0 * np.log(np.maximum(_LADDER, 1.0)), dtype)
    # on each side, the first rungs beyond which the tilt stays lower than 2 below the peak, and is negligible
    near_or_far = jnp.stack([sides > top - 2.0, sides + weight > top - visible])
    near, far = steps[jnp.clip(jnp.max(jnp.where(near_or_far, numbers, 0), -1), 0, len(_LADDER) - 1)]
    # the ladder may miss a second peak that the grid or a landmark shows: integrate up to that peak's neighbours
    seen = jnp.where(framing.heights > top - visible, first, peak)
    highest, lowest, right, left = jnp.max(seen), jnp.min(seen), peak + far[0], peak - far[1]
    beyond_right = jnp.min(jnp.where(grid > highest, grid, grid[-1]))
    beyond_left = jnp.max(jnp.where(grid < lowest, grid, grid[0]))
    widest = jnp.where(highest > right, beyond_right, right), jnp.where(lowest < left, beyond_left, left)
    edges = jnp.stack([widest[1], left, peak - near[1], peak, peak + near[0], right, widest[0]])
    if len(known):
        edges = _sorted(jnp.concatenate([edges, jnp.clip(known, widest[1], widest[0])]))
    return peak, top, 0.5 * (near[0] + near[1]), edges


class _Panels(NamedTuple):
    """The panels of an integral, so far, in groups that are halved together.

    Attributes:
        table: For each panel its ends, the integrals of 1, v, v² over it (v the distance from the peak), their errors.
        chosen: The ends of the panels to be integrated now: the two halves of each panel of a group.
        place: The group that they replace; the right halves become a new group.
        used: How many groups there are.
        finished: Whether the errors are small enough, or the table is full.
    """

    table: Float[Array, "G p 8"]
    chosen: Float[Array, "2 p 2"]
    place: Int[Array, ""]
    used: Int[Array, ""]
    finished: Bool[Array, ""]


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

    The first panels are two groups, and the worst group is halved as a whole. So all passes of the loop are equal, and
    the program is short: it contains the tilt once, and finds the worst of a few groups in place of that many panels.

    Returns:
        The log of the unit, the integrals of 1, v, v² in this unit and their errors, v the distance from the peak.
    """
    dtype = peak.dtype
    eps = float(jnp.finfo(dtype).eps)
    nodes = jnp.asarray(_panel()[0], dtype)
    top = jnp.where(top > -jnp.inf, top, 0.0)
    # a higher peak that ``frame`` has missed must not overflow: it is limited here, and makes the panel's error large
    ceiling = 600.0 if dtype == jnp.float64 else 60.0
    # the least mass of a peak of this width: errors are relative to it
    least = 0.3 * width * jnp.stack([jnp.ones_like(width), width, width * width])

    def size_of(sums: Float[Array, "3 ..."]) -> Float[Array, "3 ..."]:
        """The sizes of the integrals of 1, v, v², by which their errors are divided."""
        return jnp.stack([sums[0], jnp.sqrt(jnp.maximum(sums[0] * sums[2], 0.0)), sums[2]])

    def measure(edges: Float[Array, "n 2"]) -> Float[Array, "n 8"]:
        """Integrates panels: their rows of the table."""
        half, middle = 0.5 * (edges[:, 1] - edges[:, 0]), 0.5 * (edges[:, 0] + edges[:, 1])
        u = middle + half * nodes[:, None]  # panels are the last axis, along which XLA vectorises the sums
        logs = once(log_tilt(u.reshape(-1))).reshape(u.shape) - top
        fine, error = _integrals(once(jnp.exp(jnp.minimum(logs, ceiling))), u - peak, half)
        flat = half <= 8.0 * eps * jnp.abs(middle)
        return jnp.concatenate([edges.T, fine, jnp.where(flat, 0.0, error)]).T

    count = edges.shape[0] - 1
    group = (count + 1) // 2
    room = 2 + max_panels // group
    last = jnp.broadcast_to(edges[-1], (2 * group - count,))  # an odd number of panels is completed by an empty one
    first = jnp.stack([edges[:-1], edges[1:]], -1)
    first = jnp.concatenate([first, jnp.stack([last, last], -1)]).reshape(2, group, 2)
    put = partial(jax.lax.dynamic_update_index_in_dim, axis=0, allow_negative_indices=False)

    def step(panels: _Panels) -> _Panels:
        new = measure(panels.chosen.reshape(-1, 2)).reshape(2, group, 8)
        table = put(put(panels.table, new[0], index=panels.place), new[1], index=panels.used)
        used = panels.used + 1
        of_groups = jnp.sum(table[..., 2:], 1)
        total = jnp.sum(of_groups, 0)
        scale = size_of(jnp.maximum(total[:3], least))
        worst = jnp.argmax(jnp.max(of_groups[:, 3:] / scale, -1))
        ends = jax.lax.dynamic_index_in_dim(table, worst, keepdims=False, allow_negative_indices=False)[:, :2]
        middle = jnp.mean(ends, 1, keepdims=True)
        halves = jnp.stack([jnp.concatenate([ends[:, :1], middle], 1), jnp.concatenate([middle, ends[:, 1:]], 1)])
        accurate = jnp.max(total[3:] / scale) <= 0.5 * tol
        return _Panels(table, halves, worst, used, accurate | (used == room))

    start = _Panels(jnp.zeros((room, group, 8), dtype), first, jnp.asarray(0), jnp.asarray(1), jnp.asarray(False))
    done = jax.lax.while_loop(lambda panels: ~panels.finished, step, start)
    sums = jnp.sum(done.table[..., 2:], (0, 1))
    return top, sums[:3], sums[3:]
