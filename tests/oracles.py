"""References for tilted moments: written without JAX, and without a line of the package that they judge.

A tilt is a Gaussian cavity ``N(mean, sd²)`` times a factor ``exp(log_factor(h))``. Its moments are given in
the cavity's own units, as the package gives them: tilted mean ``mean + sd * shift``, sd ``sd * root``.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
from numpy.polynomial.legendre import leggauss

LogFactor = Callable[[np.ndarray], np.ndarray]

_NODES = 32
_UNSEEN = 75.0  # a tilt lower than its peak by this much is not integrated: exp(-75) = 3e-33
_DIGITS = 80  # of mpmath: enough for a variance that is the small difference of two large moments


class Moments(NamedTuple):
    """Moments of cavity times factor: log of the mass, shift of the mean and remaining sd in cavity sds."""

    log_z: float
    shift: float
    root: float


# ------------------------------------------------------------------------------------------------ any factor


def tilted_moments(
    log_factor: LogFactor, mean: float, sd: float, points: Sequence[float] = (), width: float = 1.0
) -> Moments:
    """Tilted moments by Gauss-Legendre panels, bisected until their halves agree, in NumPy's longest floats.

    The factor is looked at on a fine grid of the cavity and on graded grids around ``points``, and the
    integral is split at every peak found and at the points. The variance is an integral about the mean.

    Args:
        log_factor: Vectorised, and at home with ``np.longdouble``. May have steps, kinks and ``-inf``.
        mean: Of the cavity.
        sd: Of the cavity, > 0.
        points: Where the factor has a kink, a step or a peak that a search might miss.
        width: The smallest distance over which the factor changes.
    """
    m, s, w = (np.longdouble(x) for x in (mean, sd, width))
    marks = np.array([*points, mean], np.longdouble)

    def log_tilt(h: np.ndarray) -> np.ndarray:
        u = (h - m) / s
        with np.errstate(all="ignore"):
            return np.asarray(log_factor(h), np.longdouble) - u * u / 2

    peak, top, breaks = _survey(log_factor, log_tilt, m, s, w, marks)

    def density(h: np.ndarray, offset: np.ndarray) -> np.ndarray:
        return np.exp(log_tilt(h) - top)

    # about the peak first, then about the mean itself
    zeroth, first, _ = _integrals(density, breaks - peak, peak)
    centre = peak + first / zeroth
    zeroth, first, second = _integrals(density, breaks - centre, centre)
    rest = first / zeroth  # what rounding has left of the mean about the mean
    variance = second / zeroth - rest * rest
    log_z = top + np.log(zeroth / s) - np.log(2 * np.longdouble(np.pi)) / 2
    return Moments(float(log_z), float((centre - m + rest) / s), float(np.sqrt(variance) / s))


def _survey(
    log_factor: LogFactor,
    log_tilt: LogFactor,
    m: np.longdouble,
    s: np.longdouble,
    w: np.longdouble,
    marks: np.ndarray,
) -> tuple[np.longdouble, np.longdouble, np.ndarray]:
    """The highest peak, its height, and where to split the integral, from end to end."""
    graded = np.sinh(np.linspace(-32, 32, 1281, dtype=np.longdouble)) / 1000
    graded = graded[np.abs(graded) < 1e9]
    near = np.concatenate([mark + unit * graded for mark in marks for unit in (w, s)])
    with np.errstate(all="ignore"):
        ceiling = np.nanmax(np.asarray(log_factor(near), np.longdouble))
    height = np.nanmax(log_tilt(near))
    # beyond this many sds even the factor's greatest value is out of sight
    reach = np.sqrt(2 * max(ceiling - height, np.longdouble(0)) + 2 * _UNSEEN)
    grid = m + s * np.linspace(-reach, reach, 8001, dtype=np.longdouble)
    grid = np.unique(np.concatenate([grid, near[np.abs(near - m) <= reach * s]]))
    heights = log_tilt(grid)
    inner = heights[1:-1]
    is_peak = (inner >= heights[:-2]) & (inner >= heights[2:]) & (inner > heights.max() - _UNSEEN)
    where = np.flatnonzero(is_peak) + 1
    if where.size > 50:  # a plateau, or rounding on one: the ends and the middle say enough
        where = where[np.linspace(0, where.size - 1, 50).astype(int)]
    peaks = np.array([_climb(log_tilt, grid[i - 1], grid[i + 1]) for i in where] or [grid[np.argmax(heights)]])
    at_peaks = log_tilt(peaks)
    peak, top = peaks[np.argmax(at_peaks)], at_peaks.max()
    seen = np.flatnonzero(heights > top - _UNSEEN)
    low, high = grid[max(seen[0] - 1, 0)], grid[min(seen[-1] + 1, grid.size - 1)]
    steps = (high - low) * np.longdouble(4) ** -np.arange(0, 16)
    ladders = np.concatenate([p + sign * steps for p in peaks for sign in (-1, 1)])
    breaks = np.concatenate([[low, high], peaks, marks, ladders])
    return peak, top, np.unique(breaks[(breaks >= low) & (breaks <= high)])


def _climb(log_tilt: LogFactor, low: np.longdouble, high: np.longdouble) -> np.longdouble:
    """The highest point of a bracket that holds one peak."""
    for _ in range(12):
        points = np.linspace(low, high, 17, dtype=np.longdouble)
        best = int(np.argmax(log_tilt(points)))
        low, high = points[max(best - 1, 0)], points[min(best + 1, 16)]
    return (low + high) / 2


@cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights in the longest floats: NumPy's, polished by Newton."""

    def legendre(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        before, value = np.ones_like(x), x
        for n in range(1, _NODES):
            before, value = value, ((2 * n + 1) * x * value - n * before) / (n + 1)
        return value, _NODES * (x * value - before) / (x * x - 1)

    x = leggauss(_NODES)[0].astype(np.longdouble)
    for _ in range(3):
        value, slope = legendre(x)
        x = x - value / slope
    _, slope = legendre(x)
    return x, 2 / ((1 - x * x) * slope * slope)


def _integrals(
    density: Callable[[np.ndarray, np.ndarray], np.ndarray], breaks: np.ndarray, centre: np.longdouble
) -> np.ndarray:
    """Integrals of 1, v, v² under ``density``, v the distance from the centre; ``breaks`` are in v too."""
    nodes, weights = _legendre()
    precision = max(1e-17, 20 * float(np.finfo(np.longdouble).eps))

    def panel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        half = (b - a) / 2
        v = (a + b)[:, None] / 2 + half[:, None] * nodes
        mass = density(centre + v, v) * weights * half[:, None]
        return np.stack([mass.sum(1), (mass * v).sum(1), (mass * v * v).sum(1)])

    a, b = breaks[:-1], breaks[1:]
    whole = panel(a, b)
    done = np.zeros(3, np.longdouble)
    for _ in range(70):
        middle = (a + b) / 2
        left, right = panel(a, middle), panel(middle, b)
        halves = left + right
        zeroth, _, second = done + halves.sum(1)
        size = np.stack([zeroth, np.sqrt(zeroth * second), second])
        rough = (np.abs(halves - whole) > precision * size[:, None]).any(0)
        rough &= (middle > a) & (middle < b)
        done = done + halves[:, ~rough].sum(1)
        if not rough.any():
            return done
        a, b, whole = (
            np.concatenate([a[rough], middle[rough]]),
            np.concatenate([middle[rough], b[rough]]),
            np.concatenate([left[:, rough], right[:, rough]], 1),
        )
    return done + whole.sum(1)


# --------------------------------------------------------------------------------------------- exact answers


def gaussian_moments(value: float, noise: float, mean: float, sd: float) -> Moments:
    """The tilt by ``N(value; h, noise²)``."""
    with mp.workdps(_DIGITS):
        total = mp.mpf(noise) ** 2 + mp.mpf(sd) ** 2
        gap = mp.mpf(value) - mp.mpf(mean)
        log_z = -(gap**2) / (2 * total) - mp.log(2 * mp.pi * total) / 2
        return Moments(float(log_z), float(sd * gap / total), float(noise / mp.sqrt(total)))


def probit_moments(label: int, mean: float, sd: float, noise: float = 1.0, flip: float = 0.0) -> Moments:
    """The tilt by ``flip + (1 - 2 flip) Φ(s h / noise)``, by derivatives of log Z with respect to the mean.

    Z(m) = flip + (1 - 2 flip) Φ(s m / √(noise² + sd²)); the tilted mean is m + sd² (log Z)' and the tilted
    variance sd² + sd⁴ (log Z)''.
    """
    with mp.workdps(_DIGITS):
        m, s, f = mp.mpf(mean), mp.mpf(sd), mp.mpf(flip)
        sign = 1 if label else -1
        total = mp.sqrt(mp.mpf(noise) ** 2 + s**2)
        z = sign * m / total
        mass = f + (1 - 2 * f) * mp.erfc(-z / mp.sqrt(2)) / 2
        slope = (1 - 2 * f) * sign * mp.exp(-(z**2) / 2) / mp.sqrt(2 * mp.pi) / total / mass
        bend = -slope * z * sign / total - slope**2
        return Moments(float(mp.log(mass)), float(s * slope), float(mp.sqrt(1 + s**2 * bend)))


def rosenblatt_moments(label: int, mean: float, sd: float, beta: float) -> Moments:
    """The tilt by ``exp(-beta max(0, -s h))``, from the raw moments of its two pieces."""
    with mp.workdps(_DIGITS):
        sign = 1 if label else -1
        z = sign * mp.mpf(mean) / mp.mpf(sd)  # the edge is at u = -z
        right = _raw_moments(mp.mpf(0), -z)
        if mp.isinf(beta):
            left = [mp.mpf(0)] * 3
        else:
            # for u < -z: exp(beta sd (u + z)), the same piece of -u with the mean beta sd to the left
            tilt = mp.mpf(beta) * mp.mpf(sd)
            scale = mp.exp(tilt * z + tilt**2 / 2)
            mirrored = _raw_moments(-tilt, z)
            left = [scale * mirrored[0], -scale * mirrored[1], scale * mirrored[2]]
        zeroth, first, second = (a + b for a, b in zip(right, left, strict=True))
        shift = first / zeroth
        root: Any = mp.sqrt(second / zeroth - shift**2)
        log_z: Any = mp.log(zeroth)
        return Moments(float(log_z), float(sign * shift), float(root))


def _raw_moments(centre: Any, edge: Any) -> list[Any]:
    """Integrals of 1, u, u² over (edge, ∞) under N(centre, 1)."""
    x = edge - centre
    mass = mp.erfc(x / mp.sqrt(2)) / 2
    height = mp.exp(-(x**2) / 2) / mp.sqrt(2 * mp.pi)
    return [mass, centre * mass + height, (1 + centre**2) * mass + (edge + centre) * height]
