"""Tilted moments of factors that are Gaussian in most numbers of the field, if the others are fixed.

A normal density with an unknown scale is such a factor, as a likelihood and as the prior of a group's members: for a
fixed log scale, its logarithm is quadratic in the other numbers. A multivariate normal density with unknown scales and
correlations is another one. The Gaussian part is integrated by algebra. What remains is an integral over the *outer*
numbers, those that are fixed. One outer number is integrated by quadrature: Gauss-Hermite on its cavity if the Hermite
coefficients show that this is accurate, else Kronrod panels around its peak. For several outer numbers, points are
fitted to the tilt repeatedly: those of a tensor Gauss-Hermite rule for two and three numbers, quasi-random ones for
more.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from adfpp.engine.derivatives import value_and_jacobian
from adfpp.engine.linalg import inverse_lower, product, small_cholesky, whiten
from adfpp.engine.tilt.base import Drawn, LogFactor, Tilted
from adfpp.engine.tilt.landmarks import Landmarks
from adfpp.engine.tilt.montecarlo import MonteCarlo, blocks, draw_points, standard_error
from adfpp.engine.tilt.quadrature import Quadrature, frame, hermite
from adfpp.engine.tilt.rules import LOST, kronrod, once, tail_error
from adfpp.engine.tilt.tensor import moments_of, tensor_rule

_PIECES = 3  # panels between two edges


class _Given(NamedTuple):
    """The Gaussian part at n values of the remaining number."""

    log_mass: Float[Array, " n"]
    mean: Float[Array, "n m"]
    covariance: Float[Array, "n m m"]


@dataclass(frozen=True)
class Conditional:
    """An integral over the outer numbers of the field, and algebra over the others.

    Attributes:
        outer: The places of the outer numbers in the field; none if the factor is Gaussian in the whole field.
        rule: The rule for the outer numbers.
    """

    exact: ClassVar[bool] = False
    divisible: ClassVar[bool] = True
    power_limit: ClassVar[bool] = False
    draws: ClassVar[bool] = False

    outer: tuple[int, ...]
    rule: Quadrature | MonteCarlo = field(default_factory=Quadrature)

    def reported(self, dtype: DTypeLike, size: int = 1) -> float:
        """The error above which a row is marked: that of the integral over the outer numbers."""
        return self.rule.reported(dtype, max(1, len(self.outer)))

    def __call__(
        self,
        log_factor: LogFactor,
        mean: Float[Array, " k"],
        scale: Float[Array, "k k"],
        landmarks: Landmarks | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Tilted:
        """Computes the moments of ``N(u; 0, I) exp(log_factor(mean + scale @ u))``; arguments as in ``Quadrature``."""
        size, dtype = mean.shape[0], mean.dtype
        outer = len(self.outer)
        order = np.array([*self.outer, *(i for i in range(size) if i not in self.outer)])
        # with the outer numbers first in the field, they depend on the first whitened coordinates alone
        lower, turn = whiten(scale[order])
        lower = lower[np.argsort(order)]

        def at(outer: Float[Array, " o"], inner: Float[Array, " m"]) -> Float[Array, ""]:
            parts = (lower[:, : len(self.outer)], outer), (lower[:, len(self.outer) :], inner)
            return log_factor(mean + sum(product(columns, u[:, None])[:, 0] for columns, u in parts))

        def given(values: Float[Array, "n o"]) -> _Given:
            """The Gaussian part at n values of the o outer numbers."""
            zero = jnp.zeros(size - outer, dtype)

            def one(o: Float[Array, " o"]) -> _Given:
                slope, curvature = value_and_jacobian(jax.grad(lambda i: at(o, i)))(zero)
                root = small_cholesky(jnp.eye(len(zero), dtype=dtype) - 0.5 * (curvature + curvature.T))
                inverse = inverse_lower(root)
                covariance = product(inverse.T, inverse)
                mean = product(covariance, slope[:, None])[:, 0]
                # computed at the mean, where no large numbers cancel
                log_mass = at(o, mean) - 0.5 * mean @ mean - jnp.sum(jnp.log(jnp.diagonal(root)))
                return _Given(jnp.where(jnp.isnan(log_mass), -jnp.inf, log_mass), mean, covariance)

            parts = jax.vmap(one)(values)
            possible = parts.log_mass > -jnp.inf
            # NaN times a weight of 0 is NaN, so a value without mass is set to 0
            return _Given(
                parts.log_mass,
                jnp.where(possible[:, None], parts.mean, 0.0),
                jnp.where(possible[:, None, None], parts.covariance, 0.0),
            )

        if outer == 0:
            exact = given(jnp.zeros((1, 0), dtype))
            return _turned(exact.log_mass[0], exact.mean[0], exact.covariance[0], turn, jnp.zeros((), dtype))
        if outer > 1:
            fit = _fitted(given, self.rule, outer, dtype, key)
            return _turned(fit.log_z, fit.shift, fit.covariance, turn, fit.error)._replace(drawn=fit.drawn)
        assert isinstance(self.rule, Quadrature)
        tol = max(self.rule.tol, 8.0 * float(jnp.finfo(dtype).eps))
        easy = _on_cavity(given, dtype, self.rule.nodes)
        log_z, shift, covariance, error = jax.lax.cond(easy[3] < tol, lambda: easy, lambda: _around_peak(given, dtype))
        rounding = float(jnp.finfo(dtype).eps) * (LOST + 4.0 * jnp.abs(log_z))
        return _turned(log_z, shift, covariance, turn, error + rounding)


@dataclass(frozen=True)
class DrawnConditional(Conditional):
    """A ``Conditional`` whose outer numbers are integrated with random points."""

    draws: ClassVar[bool] = True

    rule: Quadrature | MonteCarlo = field(default_factory=MonteCarlo)


def _turned(
    log_z: Float[Array, ""],
    shift: Float[Array, " k"],
    covariance: Float[Array, "k k"],
    turn: Float[Array, "k k"],
    error: Float[Array, ""],
) -> Tilted:
    """Converts moments of ``turn @ u`` to moments of u; the directions outside of ``turn`` keep their moments."""
    rest = jnp.eye(turn.shape[1], dtype=turn.dtype) - product(turn.T, turn)
    root = product(turn.T, small_cholesky(covariance)) + rest
    return Tilted(log_z, turn.T @ shift, whiten(root)[0], error)


# log Z, shift, covariance and error, with the outer number first in the field
_Answer: TypeAlias = tuple[Float[Array, ""], Float[Array, " k"], Float[Array, "k k"], Float[Array, ""]]


def _moments(
    weights: Float[Array, " n"], outer: Float[Array, "n o"], given: _Given
) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
    """Mean and covariance of (outer, inner) under normalised weights, computed about the heaviest point."""
    points = jnp.concatenate([outer, given.mean], 1)
    heaviest = points[jnp.argmax(weights)]
    away = points - heaviest
    shift = weights @ away
    centred = away - shift
    covariance = product((centred * weights[:, None]).T, centred)
    inside = jnp.sum(weights[:, None, None] * given.covariance, 0)
    first = outer.shape[1]
    return heaviest + shift, covariance.at[first:, first:].add(inside)


# ---------------------------------------------------------------------------------------------- several numbers

_LEAST_SHARE = 0.05  # of the points' mass that has to be effective for a fit; below it, the weights are tempered
_ROUNDS = 6


class _Fit(NamedTuple):
    """Moments of (outer, inner) by points that are fitted to the outer numbers.

    Attributes:
        log_z: Log of the factor's expectation.
        shift: Mean.
        covariance: Covariance.
        error: The estimated error.
        centre: Centre for the next points.
        root: Their scale.
        drawn: The quality of random points; None for a tensor rule.
    """

    log_z: Float[Array, ""]
    shift: Float[Array, " k"]
    covariance: Float[Array, "k k"]
    error: Float[Array, ""]
    centre: Float[Array, " o"]
    root: Float[Array, "o o"]
    drawn: Drawn | None


class _Search(NamedTuple):
    """The state of repeated fits: the latest one, the best one so far, and their number."""

    latest: _Fit
    best: _Fit
    count: Int[Array, ""]


def _fitted(
    given: Callable[[Array], _Given],
    rule: Quadrature | MonteCarlo,
    size: int,
    dtype: DTypeLike,
    key: PRNGKeyArray | None,
) -> _Fit:
    """Moments by points that are fitted to the tilt, starting from the cavity, until their error is small enough.

    The points of a fit that has most of its mass in few points are weighted by a power of the tilt below 1, so that the
    next points are nearer to its peak.
    """
    tensor = None if isinstance(rule, MonteCarlo) else tensor_rule(size, dtype)
    if isinstance(rule, MonteCarlo):
        points = draw_points(key, 0, rule.points, size, dtype)[1]
        prior, enough = jnp.full(rule.points, 1.0 / rule.points, dtype), 0.25 * rule.report
    else:
        assert tensor is not None
        points, prior = tensor.points, tensor.zeroth
        enough = max(rule.tensor_tol, 8.0 * float(jnp.finfo(dtype).eps))
    length = jnp.asarray(0.5 * jnp.sum(points * points, -1))

    def fit(centre: Float[Array, " o"], root: Float[Array, "o o"], count: Int[Array, ""]) -> _Fit:
        u = centre + product(points, root.T)
        inner = given(u)
        logs = inner.log_mass - 0.5 * jnp.sum(u * u, -1) + length
        logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
        top = jnp.max(logs)
        logs = logs - jnp.where(top > -jnp.inf, top, 0.0)
        density = jnp.exp(logs)
        total = prior @ density
        weights = prior * density / total
        shift, covariance = _moments(weights, u, inner)
        effective = 1.0 / jnp.sum(weights * weights / prior)  # as a share of the mass
        drawn = None
        if isinstance(rule, MonteCarlo):
            count_of = effective * len(prior)
            drawn = Drawn(count_of, count, count_of >= rule.least(size))
            error = _error_of_blocks(weights, u, inner, covariance)
        else:
            assert tensor is not None
            error = moments_of(tensor, density)[3]
        fine = jnp.all(jnp.isfinite(covariance)) & jnp.all(jnp.diagonal(covariance) > 0) & (top > -jnp.inf)
        error = jnp.where(fine & (effective >= _LEAST_SHARE) & ~jnp.isnan(error), error, jnp.inf)
        nearer, wider = _tempered(prior, logs, u)
        usable = jnp.all(jnp.isfinite(nearer)) & jnp.all(jnp.isfinite(wider))
        log_z = top + jnp.log(total) + jnp.sum(jnp.log(jnp.abs(jnp.diagonal(root))))
        return _Fit(
            log_z,
            shift,
            covariance,
            error,
            jnp.where(usable, nearer, centre),
            jnp.where(usable, wider, root),
            drawn,
        )

    def again(search: _Search) -> _Search:
        new = fit(search.latest.centre, search.latest.root, search.count)
        better = (new.error < search.best.error) | (search.count == 0)
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, search.best)
        return _Search(new, best, search.count + 1)

    def unfinished(search: _Search) -> Bool[Array, ""]:
        return (search.count == 0) | ((search.best.error >= enough) & (search.count < _ROUNDS))

    start = (jnp.zeros(size, dtype), jnp.eye(size, dtype=dtype))
    blank = jax.tree.map(
        lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(fit, *start, jnp.zeros((), jnp.int32))
    )._replace(centre=start[0], root=start[1])
    best = jax.lax.while_loop(unfinished, again, _Search(blank, blank, jnp.zeros((), jnp.int32))).best
    rounding = float(jnp.finfo(dtype).eps) * (LOST + 4.0 * jnp.abs(best.log_z))
    return best._replace(error=best.error + rounding)


def _tempered(
    prior: Float[Array, " n"], logs: Float[Array, " n"], points: Float[Array, "n o"]
) -> tuple[Float[Array, " o"], Float[Array, "o o"]]:
    """Centre and root of the points under the largest power of the weights that leaves enough of them effective."""

    def share(power: Float[Array, ""]) -> Float[Array, ""]:
        density = jnp.exp(power * logs)
        return (prior @ density) ** 2 / (prior @ density**2)

    def halve(_: Int[Array, ""], ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        fine = share(middle) >= 2.0 * _LEAST_SHARE
        return jnp.where(fine, middle, low), jnp.where(fine, high, middle)

    one = jnp.ones((), logs.dtype)
    power = jax.lax.fori_loop(0, 20, halve, (0.0 * one, one))[0]
    power = jnp.where(share(one) >= 2.0 * _LEAST_SHARE, 1.0, power)
    weights = prior * jnp.exp(power * logs)
    weights = weights / jnp.sum(weights)
    centre = weights @ points
    away = points - centre
    return centre, small_cholesky((away * weights[:, None]).T @ away)


def _error_of_blocks(
    weights: Float[Array, " n"], outer: Float[Array, "n o"], inner: _Given, covariance: Float[Array, "k k"]
) -> Float[Array, ""]:
    """The largest standard error of log Z, of a mean in sds, and of the covariance in products of sds."""
    sd = jnp.sqrt(jnp.diagonal(covariance))
    points = jnp.concatenate([outer, inner.mean], 1)
    centred = (points - weights @ points) / sd
    size, first = covariance.shape[0], outer.shape[1]
    second = centred[:, :, None] * centred[:, None, :]
    second = second.at[:, first:, first:].add(inner.covariance / (sd[first:, None] * sd[first:]))
    total = weights @ second.reshape(-1, size * size)
    values = [jnp.ones_like(weights)[:, None], centred, second.reshape(-1, size * size) - total]
    parts = jnp.sum(blocks(weights[:, None] * jnp.concatenate(values, 1)), 1)
    return jnp.max(standard_error(parts - jnp.mean(parts, 0)))


# ---------------------------------------------------------------------------------------------- one number


def _on_cavity(given: Callable[[Array], _Given], dtype: DTypeLike, nodes: int) -> _Answer:
    """Gauss-Hermite on the cavity of the outer number."""
    x, matrix = hermite(nodes)
    inner = given(jnp.asarray(x, dtype)[:, None])
    top = jnp.max(inner.log_mass)
    density = jnp.exp(inner.log_mass - jnp.where(top > -jnp.inf, top, 0.0))
    weights = jnp.asarray(matrix[0], dtype) * density
    total = jnp.sum(weights)
    shift, covariance = _moments(weights / total, jnp.asarray(x, dtype)[:, None], inner)
    # Hermite coefficients of the factor, and of the inner moments times the factor
    middle, last = (matrix[nodes - 12 : nodes - 8], matrix[nodes - 4 :])
    variances = jnp.diagonal(inner.covariance, axis1=1, axis2=2)
    spread = jnp.sqrt(jnp.diagonal(covariance)[1:])
    moments = [(inner.mean - shift[1:]) / spread, variances / spread**2]
    carried = density[:, None] * jnp.concatenate([jnp.ones_like(density)[:, None], *moments], 1)
    rows = jnp.asarray(np.concatenate([middle, last])[..., None], dtype)
    sizes = jnp.max(jnp.abs(jnp.sum(rows * carried, 1)).reshape(2, 4, -1), 1) / total
    error = 2.0 * jnp.max(tail_error(*sizes)) / jnp.minimum(covariance[0, 0], 1.0)
    proper = jnp.all(jnp.isfinite(shift)) & jnp.all(jnp.isfinite(covariance)) & (covariance[0, 0] > 0)
    return top + jnp.log(total), shift, covariance, jnp.where(proper & ~jnp.isnan(error), error, jnp.inf)


def _around_peak(given: Callable[[Array], _Given], dtype: DTypeLike) -> _Answer:
    """Kronrod panels between the edges of the outer number's peak."""

    def log_tilt(u: Float[Array, " n"]) -> Float[Array, " n"]:
        return given(u[:, None]).log_mass - 0.5 * u * u

    _, _, _, edges = frame(log_tilt, jnp.zeros(0, dtype))
    steps = jnp.linspace(0.0, 1.0, _PIECES + 1, dtype=dtype)
    cuts = (edges[:-1, None] + (edges[1:] - edges[:-1])[:, None] * steps).reshape(-1, _PIECES + 1)
    low, high = cuts[:, :-1].reshape(-1), cuts[:, 1:].reshape(-1)
    x, weights = kronrod()
    half = 0.5 * (high - low)
    u = once((0.5 * (low + high)[:, None] + half[:, None] * jnp.asarray(x, dtype)).reshape(-1))
    inner = given(u[:, None])
    logs = inner.log_mass - 0.5 * u * u
    top = jnp.max(logs)
    density = jnp.exp(logs - jnp.where(top > -jnp.inf, top, 0.0))

    def by(rule: Float[np.ndarray, " nodes"]) -> tuple[Float[Array, ""], Float[Array, " k"], Float[Array, "k k"]]:
        """The mass, mean and covariance that a rule gives."""
        w = (half[:, None] * jnp.asarray(rule, dtype)).reshape(-1) * density
        total = jnp.sum(w)
        return (total, *_moments(w / total, u[:, None], inner))

    total, shift, covariance = by(weights[0])
    rough, rough_shift, rough_covariance = by(weights[1])
    sd = jnp.sqrt(jnp.diagonal(covariance))
    gaps = jnp.stack(
        [
            jnp.abs(rough / total - 1.0),
            jnp.max(jnp.abs(rough_shift - shift) / sd),
            jnp.max(jnp.abs(rough_covariance - covariance) / jnp.outer(sd, sd)),
        ]
    )
    # the finer rule is much more accurate than the difference of the rules, hence the usual power 3/2
    error = jnp.max(jnp.minimum(gaps, (60.0 * gaps) ** 1.5))
    log_z = top + jnp.log(total) - 0.5 * math.log(2.0 * math.pi)
    return log_z, shift, covariance, jnp.where(jnp.isnan(error), jnp.inf, error)
