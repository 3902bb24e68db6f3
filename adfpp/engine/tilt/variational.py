"""The limit of power 0: a factor's message to its exclusive-KL (variational) Gaussian site.

With ``h = mean + scale @ u``, ``u ~ N(0, I)`` the belief itself, the site of the best Gaussian in KL(q || p) has slope
``E[∇ log f]`` and precision ``-E[∇∇ log f]`` (Opper and Archambeau 2009). By Stein's identity they are
``E[u log f]`` and ``-E[(u uᵀ - I) log f]``. These are Hermite coefficients of log f; they need no derivatives, and
log f may have kinks. If f is 0 somewhere, the expectation of its log is -inf, and there is no such site.

Fields of one number use Gauss-Hermite, with an error estimate from the higher coefficients, else adaptive panels across
the belief. Two and three numbers use tensor Gauss-Hermite. More numbers use Sobol points and their mirror images, with
log f projected onto quadratic functions by least squares.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.polynomial.hermite_e import hermegauss, hermevander

from adfpp.engine.tilt.base import LogFactor, Message
from adfpp.engine.tilt.landmarks import Landmarks
from adfpp.engine.tilt.montecarlo import normal_points
from adfpp.engine.tilt.rules import LOST, kronrod, once, tail_error

# The log of a factor at n values of the field, minus its value at the mean.
_Rises: TypeAlias = Callable[[Float[Array, "n k"]], Float[Array, " n"]]
# The errors of log Z, slope and precision.
_Errors: TypeAlias = tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]

_TOL = 1e-7  # target of the estimated error, as that of ``Quadrature``
_SQRT2 = math.sqrt(2.0)


@dataclass(frozen=True)
class Variational:
    """Expectations of log f, its slope and its curvature under the belief.

    Attributes:
        nodes: Number of Gauss-Hermite nodes along each axis for one and two numbers, at least 24; half as many for
            three.
        points: Number of quasi-Monte-Carlo points for larger fields; more if the quadratic functions need them.
        report: A row whose estimated error is above this is marked ``Status.INACCURATE``.
        report_tensor: The same for fields of two and three numbers.
        report_points: The same for larger fields.
    """

    exact: ClassVar[bool] = False
    divisible: ClassVar[bool] = True
    power_limit: ClassVar[bool] = True
    draws: ClassVar[bool] = False

    nodes: int = 32
    points: int = 4096
    report: float = 1e-4
    report_tensor: float = 2e-2
    report_points: float = 0.1

    def __post_init__(self) -> None:
        if self.nodes < 24:
            raise ValueError(f"Variational needs at least 24 nodes to judge its own error; nodes={self.nodes}.")

    def reported(self, dtype: DTypeLike, size: int = 1) -> float:
        """The error above which a row is marked, for this dtype and size of field."""
        requested = self.report if size == 1 else self.report_tensor if size <= 3 else self.report_points
        # 2e4 eps is 2e-3 in float32: rounding errors of a likelihood alone may be so large
        return max(requested, 2e4 * float(jnp.finfo(dtype).eps))

    def __call__(
        self,
        log_factor: LogFactor,
        mean: Float[Array, " k"],
        scale: Float[Array, "k k"],
        landmarks: Landmarks | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Message:
        """Computes the best Gaussian site for ``exp(log_factor(mean + scale @ u))`` under ``u ~ N(0, I)``.

        The error is the largest of three: that of the slope in sds of belief times site, that of the precision relative
        to the precision of belief times site, and that of log_z relative to 1 + |log_z|.

        Args:
            log_factor: Log of the factor as a function of the field.
            mean: The belief's mean.
            scale: Lower triangular root of the belief's covariance.
            landmarks: Where a scalar factor may have peaks or kinks, if this is known.
            key: Not used.

        Returns:
            The message. If log f is not finite at some node, its log_z is -inf, and there is no site.
        """
        size, dtype = mean.shape[0], mean.dtype
        centre = log_factor(mean)
        centre = jnp.where(jnp.isfinite(centre), centre, 0.0)

        def rises(u: Float[Array, "n k"]) -> Float[Array, " n"]:
            """Log f minus its value at the mean, because a large constant in log f would cost digits."""
            return once(jax.vmap(log_factor)(mean + u @ scale.T)) - centre

        lost = float(jnp.finfo(dtype).eps) * _lost_digits(mean, scale)
        if size == 1:
            return _line(rises, centre, (mean, scale, landmarks), self.nodes, lost)
        if size <= 3:
            return _by_tensor(rises, centre, size, self.nodes if size == 2 else self.nodes // 2, lost)
        return _by_points(rises, centre, size, self.points, lost)


def _lost_digits(mean: Float[Array, " k"], scale: Float[Array, "k k"]) -> Float[Array, ""]:
    """Rounding errors in log f, in units of its spread: of log f itself, and of a field many sds away from 0."""
    sd = jnp.sqrt(jnp.sum(scale * scale, -1))
    return 4.0 + jnp.max(jnp.where(sd > 0, 2.0 * jnp.abs(mean) / jnp.where(sd > 0, sd, 1.0), 0.0))


def _message(
    centre: Float[Array, ""],
    log_z: Float[Array, ""],
    slope: Float[Array, " k"],
    precision: Float[Array, "k k"],
    errors: _Errors,
    rounding: Float[Array, ""],
) -> Message:
    """Makes the message from its parts; ``errors`` are absolute."""
    unit = _unit(precision)
    total = centre + log_z
    error = _relative(errors, total, unit)
    eps = float(jnp.finfo(log_z.dtype).eps)
    rounding = eps * (LOST + 4.0 * jnp.abs(centre) / jnp.sqrt(unit)) + rounding / jnp.sqrt(unit)
    fine = jnp.isfinite(total) & jnp.all(jnp.isfinite(slope)) & jnp.all(jnp.isfinite(precision))
    return Message(jnp.where(fine, total, -jnp.inf), slope, precision, error + rounding)


def _unit(precision: Float[Array, "*k"]) -> Float[Array, ""]:
    """The approximate size of the precision of belief times site, the unit of errors."""
    return 1.0 + jnp.max(jnp.abs(precision))


def _relative(errors: _Errors, log_z: Float[Array, ""], unit: Float[Array, ""]) -> Float[Array, ""]:
    """The largest of the three errors, as ``Variational`` defines them."""
    of_log_z, of_slope, of_precision = errors
    return jnp.maximum(of_log_z / (1.0 + jnp.abs(log_z)), jnp.maximum(of_slope / jnp.sqrt(unit), of_precision / unit))


# ---------------------------------------------------------------------------------------------- one number


@cache
def _hermite(nodes: int) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, "nodes nodes"]]:
    """Nodes, and the matrix from values there to coefficients of normalised Hermite polynomials."""
    x, w = hermegauss(nodes)
    norms = np.sqrt([float(math.factorial(j)) for j in range(nodes)])
    return x, (hermevander(x, nodes - 1) / norms).T * (w / w.sum())


def _line(
    rises: _Rises,
    centre: Float[Array, ""],
    field: tuple[Float[Array, "1"], Float[Array, "1 1"], Landmarks | None],
    nodes: int,
    lost: Float[Array, ""],
) -> Message:
    """Gauss-Hermite if its coefficients decrease fast enough, else panels; ``field`` is (mean, scale, landmarks)."""
    dtype = centre.dtype
    tol = max(_TOL, 32.0 * float(jnp.finfo(dtype).eps))
    x, matrix = _hermite(nodes)
    g = rises(jnp.asarray(x, dtype)[:, None])
    c = jnp.asarray(matrix, dtype) @ g
    spread = 1.0 + jnp.sqrt(jnp.sum(c * c))
    precision = -_SQRT2 * c[2]
    sizes = jnp.abs(c) / spread
    tail = 2.0 * spread * tail_error(jnp.max(sizes[nodes - 12 : nodes - 8]), jnp.max(sizes[nodes - 4 :]))
    first = _message(centre, c[0], c[1:2], precision[None, None], (tail, tail, tail), lost * spread)
    easy = _relative((tail, tail, tail), centre + c[0], _unit(precision)) < tol
    return jax.lax.cond(easy, lambda: first, lambda: _panels(rises, centre, field, tol, lost))


_EDGES = np.linspace(-9.13, 9.31, 11)  # no edge at 0, where a likelihood is likely to have a kink
_HALVINGS = 48  # a kink at an unknown place needs about 15 of them: its panel shrinks to 1e-4 sds


class _Sums(NamedTuple):
    """The panels of an integral, so far."""

    edges: Float[Array, "P 2"]
    sums: Float[Array, "P 4"]  # expectations of g, u g, (u² - 1) g, g² over each panel
    errors: Float[Array, "P 3"]  # errors of the first three
    used: Int[Array, ""]


def _panels(
    rises: _Rises,
    centre: Float[Array, ""],
    field: tuple[Float[Array, "1"], Float[Array, "1 1"], Landmarks | None],
    tol: float,
    lost: Float[Array, ""],
) -> Message:
    """Gauss-Kronrod panels across the belief with edges at the landmarks; the worst is halved repeatedly."""
    dtype = centre.dtype
    mean, scale, landmarks = field
    x, weights = kronrod()
    nodes, fine, coarse = (jnp.asarray(a, dtype) for a in (x, weights[0], weights[1]))

    def measure(edges: Float[Array, "p 2"]) -> tuple[Float[Array, "p 4"], Float[Array, "p 3"]]:
        half, middle = 0.5 * (edges[:, 1] - edges[:, 0]), 0.5 * (edges[:, 0] + edges[:, 1])
        u = middle[:, None] + half[:, None] * nodes
        g = rises(u.reshape(-1, 1)).reshape(u.shape)
        density = jnp.exp(-0.5 * u * u) * (half[:, None] / math.sqrt(2.0 * math.pi))
        # a panel of width 0 has no weight, even if f is not finite there
        parts = jnp.stack([density, density * u, density * (u * u - 1.0)], -1)
        parts = jnp.where(half[:, None, None] > 0, parts * g[..., None], 0.0)
        squares = jnp.where(half[:, None] > 0, density * g * g, 0.0)
        by_fine, by_coarse = jnp.einsum("pnk,n->pk", parts, fine), jnp.einsum("pnk,n->pk", parts, coarse)
        sums = jnp.concatenate([by_fine, (squares @ fine)[:, None]], -1)
        # across a kink the errors of the two rules are of the same size, and the rules may agree by chance
        return sums, 10.0 * jnp.abs(by_fine - by_coarse)

    edges = jnp.asarray(_EDGES, dtype)
    if landmarks is not None and landmarks.at.shape[0]:
        sd = scale[0, 0]
        at = (landmarks.at - mean[0]) / jnp.where(sd > 0, sd, 1.0)
        inside = (jnp.abs(at) < 9.0) & (sd > 0)  # false if it is NaN
        edges = jnp.sort(jnp.concatenate([edges, jnp.where(inside, at, edges[0])]))
    count = edges.shape[0] - 1
    first = jnp.stack([edges[:-1], edges[1:]], -1)
    sums, errors = measure(first)

    def padded(a: Float[Array, "p columns"]) -> Float[Array, "P columns"]:
        return jnp.zeros((count + _HALVINGS, a.shape[1]), dtype).at[:count].set(a)

    def judged(errors: Float[Array, "*p 3"], panels: _Sums) -> Float[Array, "*p"]:
        total = jnp.sum(panels.sums, 0)
        each = (errors[..., 0], errors[..., 1], errors[..., 2])
        return _relative(each, centre + total[0], 1.0 + jnp.abs(total[2]))

    def unfinished(panels: _Sums) -> Bool[Array, ""]:
        return (judged(jnp.sum(panels.errors, 0), panels) > 0.5 * tol) & (panels.used < count + _HALVINGS)

    def halve(panels: _Sums) -> _Sums:
        worst = jnp.argmax(judged(panels.errors, panels))
        a, b = panels.edges[worst]
        middle = 0.5 * (a + b)
        halves = jnp.stack([jnp.stack([a, middle]), jnp.stack([middle, b])])
        new = (halves, *measure(halves))
        both = [old.at[worst].set(n[0]).at[panels.used].set(n[1]) for old, n in zip(panels[:3], new, strict=True)]
        return _Sums(both[0], both[1], both[2], panels.used + 1)

    start = _Sums(padded(first), padded(sums), padded(errors), jnp.asarray(count))
    done = jax.lax.while_loop(unfinished, halve, start)
    log_z, slope, curvature, square = jnp.sum(done.sums, 0)
    left = jnp.sum(done.errors, 0)
    # the integral beyond the ends is estimated by the integrand at the ends
    ends = jnp.asarray([_EDGES[0], _EDGES[-1]], dtype)
    beyond = jnp.max(jnp.abs(rises(ends[:, None])) * jnp.exp(-0.5 * ends * ends) * ends * ends)
    left = left + beyond
    spread = 1.0 + jnp.sqrt(jnp.maximum(square, 0.0))
    errors_of = (left[0], left[1], left[2])
    return _message(centre, log_z, slope[None], -curvature[None, None], errors_of, lost * spread)


# ------------------------------------------------------------------------------------------ several numbers


def _pairs(size: int) -> list[tuple[int, int]]:
    """The index pairs of the quadratic functions u_i u_j: the upper triangle."""
    return [(i, j) for i in range(size) for j in range(i, size)]


def _quadratics(u: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n P"]:
    """Orthonormal Hermite polynomials up to degree 2: 1, u_i, and u_i u_j or (u_i² - 1) / √2."""
    second = [(u[:, i] * u[:, j] - (i == j)) / (_SQRT2 if i == j else 1.0) for i, j in _pairs(u.shape[1])]
    return np.column_stack([np.ones(len(u)), u, *second])


def _assembled(c: Float[Array, " P"], size: int) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
    """Computes slope and precision from the coefficients of the quadratic functions."""
    i, j = np.array(_pairs(size)).T
    second = c[1 + size :] * jnp.asarray(np.where(i == j, _SQRT2, 1.0), c.dtype)
    precision = jnp.zeros((size, size), c.dtype).at[i, j].set(-second).at[j, i].set(-second)
    return c[1 : 1 + size], precision


class _Tensor(NamedTuple):
    """Points, with the rows that convert values at the points to Hermite coefficients."""

    points: Float[np.ndarray, "n k"]
    quadratic: Float[np.ndarray, "P n"]
    middle: Float[np.ndarray, "m n"]  # degrees around the middle along each axis, low ones along the others
    last: Float[np.ndarray, "m n"]  # the highest degrees along each axis, low ones along the others
    weights: Float[np.ndarray, " n"]


@cache
def _tensor(size: int, nodes: int) -> _Tensor:
    x, w = hermegauss(nodes)
    points = np.array(list(product(x, repeat=size)))
    weights = np.prod(np.array(list(product(w / w.sum(), repeat=size))), axis=1)
    norms = np.sqrt([float(math.factorial(j)) for j in range(nodes)])
    axes = [hermevander(points[:, i], nodes - 1) / norms for i in range(size)]

    def along(degrees: range) -> Float[np.ndarray, "m n"]:
        rows = []
        for i, axis in enumerate(axes):
            others = axes[:i] + axes[i + 1 :]
            for low in product(range(3 if size == 2 else 2), repeat=size - 1):
                rest = np.prod([other[:, d] for other, d in zip(others, low, strict=True)], axis=0)
                rows += [axis[:, j] * rest for j in degrees]
        return np.array(rows) * weights

    return _Tensor(
        points,
        _quadratics(points).T * weights,
        along(range(nodes - 10, nodes - 8)),
        along(range(nodes - 2, nodes)),
        weights,
    )


def _by_tensor(rises: _Rises, centre: Float[Array, ""], size: int, nodes: int, lost: Float[Array, ""]) -> Message:
    """Tensor Gauss-Hermite, for two and three numbers."""
    rule = _tensor(size, nodes)
    dtype = centre.dtype
    g = rises(jnp.asarray(rule.points, dtype))
    slope, precision = _assembled(c := jnp.asarray(rule.quadratic, dtype) @ g, size)
    spread = 1.0 + jnp.sqrt(jnp.asarray(rule.weights, dtype) @ (g * g))
    middle, last = (jnp.max(jnp.abs(jnp.asarray(rows, dtype) @ g)) / spread for rows in (rule.middle, rule.last))
    tail = 2.0 * spread * tail_error(middle, last)
    return _message(centre, c[0], slope, precision, (tail, tail, tail), lost * spread)


@cache
def _projection(
    size: int, points: int
) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "n P"], Float[np.ndarray, "P n"]]:
    """Points, the quadratic functions at the points, and the least-squares projection onto these functions."""
    count = 1 + size + size * (size + 1) // 2
    # a power of two; with the mirror images at least eight points for each coefficient
    half = 1 << max(points // 2 - 1, 4 * count - 1).bit_length()
    u = normal_points(half, size)
    u = np.concatenate([u, -u])
    basis = _quadratics(u)
    return u, basis, np.linalg.pinv(basis)


def _by_points(rises: _Rises, centre: Float[Array, ""], size: int, points: int, lost: Float[Array, ""]) -> Message:
    """Least squares at quasi-random points, for fields of more than three numbers."""
    u, basis, projection = (jnp.asarray(a, centre.dtype) for a in _projection(size, points))
    g = rises(u)
    c = projection @ g
    rest = g - basis @ c
    errors = jnp.sqrt((projection * projection) @ (rest * rest))
    slope, precision = _assembled(c, size)
    of_slope, of_precision = jnp.max(errors[1 : 1 + size]), _SQRT2 * jnp.max(errors[1 + size :])
    spread = 1.0 + jnp.sqrt(jnp.mean(g * g))
    return _message(centre, c[0], slope, precision, (errors[0], of_slope, of_precision), lost * spread)
