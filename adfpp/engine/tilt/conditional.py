"""Tilted moments of factors that are Gaussian in all numbers of the field except one, if that number is fixed.

A normal density with an unknown scale is such a factor, as a likelihood and as the prior of a group's members: for a
fixed log scale, its logarithm is quadratic in the other numbers. The Gaussian part is integrated by algebra. The
remaining number is integrated by quadrature: Gauss-Hermite on its cavity if the Hermite coefficients show that this is
accurate, else Kronrod panels around its peak.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from adfpp.engine.linalg import small_cholesky, whiten
from adfpp.engine.tilt.base import LogFactor, Tilted
from adfpp.engine.tilt.landmarks import Landmarks
from adfpp.engine.tilt.quadrature import Quadrature, frame, hermite
from adfpp.engine.tilt.rules import LOST, kronrod, once, tail_error

_PIECES = 3  # panels between two edges


class _Given(NamedTuple):
    """The Gaussian part at n values of the remaining number."""

    log_mass: Float[Array, " n"]
    mean: Float[Array, "n m"]
    covariance: Float[Array, "n m m"]


@dataclass(frozen=True)
class Conditional:
    """Quadrature over one number of the field, and algebra over the others.

    Attributes:
        outer: The place of this number in the field; None if the factor is Gaussian in the whole field.
        rule: The quadrature rule whose tolerances are used.
    """

    exact: ClassVar[bool] = False
    divisible: ClassVar[bool] = True
    power_limit: ClassVar[bool] = False
    draws: ClassVar[bool] = False

    outer: int | None
    rule: Quadrature = field(default_factory=Quadrature)

    def reported(self, dtype: DTypeLike, size: int = 1) -> float:
        """The error above which a row is marked: that of a one-dimensional integral, for all sizes of the field."""
        return self.rule.reported(dtype, 1)

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
        first = [] if self.outer is None else [self.outer]
        order = np.array([*first, *(i for i in range(size) if i != self.outer)])
        back = np.argsort(order)
        # with the outer number first in the field, it depends on the first whitened coordinate alone
        lower, turn = whiten(scale[order])

        def at(outer: Float[Array, " o"], inner: Float[Array, " m"]) -> Float[Array, ""]:
            return log_factor((mean[order] + lower @ jnp.concatenate([outer, inner]))[back])

        def given(outer: Float[Array, "n o"]) -> _Given:
            """The Gaussian part at n values of the outer number (o is 1, or 0 if there is no outer number)."""
            zero = jnp.zeros(size - len(first), dtype)

            def one(o: Float[Array, " o"]) -> _Given:
                slope = jax.grad(lambda i: at(o, i))(zero)
                curvature = jax.jacfwd(jax.grad(lambda i: at(o, i)))(zero)
                root = small_cholesky(jnp.eye(len(zero), dtype=dtype) - 0.5 * (curvature + curvature.T))
                inverse = _inverse(root)
                mean = inverse.T @ (inverse @ slope)
                # computed at the mean, where no large numbers cancel
                log_mass = at(o, mean) - 0.5 * mean @ mean - jnp.sum(jnp.log(jnp.diagonal(root)))
                return _Given(jnp.where(jnp.isnan(log_mass), -jnp.inf, log_mass), mean, inverse.T @ inverse)

            parts = jax.vmap(one)(outer)
            possible = parts.log_mass > -jnp.inf
            # NaN times a weight of 0 is NaN, so a value without mass is set to 0
            return _Given(
                parts.log_mass,
                jnp.where(possible[:, None], parts.mean, 0.0),
                jnp.where(possible[:, None, None], parts.covariance, 0.0),
            )

        if self.outer is None:
            exact = given(jnp.zeros((1, 0), dtype))
            return _turned(exact.log_mass[0], exact.mean[0], exact.covariance[0], turn, jnp.zeros((), dtype))
        tol = max(self.rule.tol, 8.0 * float(jnp.finfo(dtype).eps))
        easy = _on_cavity(given, dtype, self.rule.nodes)
        log_z, shift, covariance, error = jax.lax.cond(easy[3] < tol, lambda: easy, lambda: _around_peak(given, dtype))
        rounding = float(jnp.finfo(dtype).eps) * (LOST + 4.0 * jnp.abs(log_z))
        return _turned(log_z, shift, covariance, turn, error + rounding)


def _inverse(root: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """Inverse of a lower triangular root."""
    if root.shape[0] == 1:
        return 1.0 / root
    return jax.scipy.linalg.solve_triangular(root, jnp.eye(root.shape[0], dtype=root.dtype), lower=True)


def _turned(
    log_z: Float[Array, ""],
    shift: Float[Array, " k"],
    covariance: Float[Array, "k k"],
    turn: Float[Array, "k k"],
    error: Float[Array, ""],
) -> Tilted:
    """Converts moments of ``turn @ u`` to moments of u; the directions outside of ``turn`` keep their moments."""
    rest = jnp.eye(turn.shape[1], dtype=turn.dtype) - turn.T @ turn
    root = turn.T @ small_cholesky(covariance) + rest
    return Tilted(log_z, turn.T @ shift, whiten(root)[0], error)


# log Z, shift, covariance and error, with the outer number first
_Answer: TypeAlias = tuple[Float[Array, ""], Float[Array, " k"], Float[Array, "k k"], Float[Array, ""]]


def _moments(
    weights: Float[Array, " n"], outer: Float[Array, " n"], given: _Given
) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
    """Mean and covariance of (outer, inner) under normalised weights, computed about the heaviest point."""
    points = jnp.concatenate([outer[:, None], given.mean], 1)
    heaviest = points[jnp.argmax(weights)]
    away = points - heaviest
    shift = weights @ away
    centred = away - shift
    covariance = (centred * weights[:, None]).T @ centred
    inside = jnp.einsum("n,nij->ij", weights, given.covariance)
    return heaviest + shift, covariance.at[1:, 1:].add(inside)


def _on_cavity(given: Callable[[Array], _Given], dtype: DTypeLike, nodes: int) -> _Answer:
    """Gauss-Hermite on the cavity of the outer number."""
    x, matrix = hermite(nodes)
    inner = given(jnp.asarray(x, dtype)[:, None])
    top = jnp.max(inner.log_mass)
    density = jnp.exp(inner.log_mass - jnp.where(top > -jnp.inf, top, 0.0))
    weights = jnp.asarray(matrix[0], dtype) * density
    total = jnp.sum(weights)
    shift, covariance = _moments(weights / total, jnp.asarray(x, dtype), inner)
    # Hermite coefficients of the factor, and of the inner moments times the factor
    middle, last = (matrix[nodes - 12 : nodes - 8], matrix[nodes - 4 :])
    variances = jnp.diagonal(inner.covariance, axis1=1, axis2=2)
    spread = jnp.sqrt(jnp.diagonal(covariance)[1:])
    moments = [(inner.mean - shift[1:]) / spread, variances / spread**2]
    carried = density[:, None] * jnp.concatenate([jnp.ones_like(density)[:, None], *moments], 1)
    sizes = [jnp.max(jnp.abs(jnp.asarray(rows, dtype) @ carried), 0) / total for rows in (middle, last)]
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
        return (total, *_moments(w / total, u, inner))

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
