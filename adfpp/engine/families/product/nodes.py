"""Quadratures against the density of one component of an exponential family."""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.families.product.dirichlet_functions import shares_of
from adfpp.engine.families.product.gamma_functions import exp_excess, log_excess
from adfpp.engine.tilt.rules import kronrod

_DROP = 38.0  # drop of the log-density from its peak to the last node: beyond it nothing contributes in float64
_WIDTH = 3.0  # scale of a factor's features in log s or logit s: panels farther from the peak than this are longer
_RULES = ((4, 10), (1, 10), (1, 5), (1, 3))  # (panels on each side, points of the Gauss rule) for each level


class Nodes(NamedTuple):
    """A quadrature against the density of one component.

    Attributes:
        values: ``(M, dim)`` nodes inside the support, rounded to the nearest number there.
        stats: ``(M, numbers)`` sufficient statistics of the nodes before that rounding.
        weights: ``(M,)`` weights with sum 1.
        coarse: ``(M,)`` weights of a coarser rule on some of the nodes, with sum 1. The difference between the two
            rules is an estimate of the error.
    """

    values: jax.Array
    stats: jax.Array
    weights: jax.Array
    coarse: jax.Array


@cache
def _side(level: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes on [0, 1] with the weights of Kronrod and of Gauss."""
    panels, points = _RULES[min(level, len(_RULES) - 1)]
    x, rows = kronrod(points)
    nodes = np.concatenate([(panel + 0.5 + 0.5 * x) / panels for panel in range(panels)])
    return nodes, np.tile(rows[0], panels), np.tile(rows[1], panels)


def _distances(end: jax.Array, level: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Distances ``(M,)`` from a peak up to ``end``, evenly spread in asinh(distance/width), with both weights."""
    unit, fine, coarse = (jnp.asarray(each, end.dtype) for each in _side(level))
    reach = jnp.arcsinh(end / _WIDTH)
    angle = unit * reach
    stretch = reach * jnp.cosh(angle)
    return _WIDTH * jnp.sinh(angle), fine * stretch, coarse * stretch


def _normalised(drop: jax.Array, fine: jax.Array, coarse: jax.Array) -> tuple[jax.Array, jax.Array]:
    density = jnp.exp(-drop)
    fine, coarse = fine * density, coarse * density
    return fine / jnp.sum(fine), coarse / jnp.sum(coarse)


@partial(jax.jit, static_argnames="level")
def gamma_nodes(a: jax.Array, level: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Nodes t = log(s/mean) and weights. The log-density of t is -a (eᵗ - 1 - t) plus a constant."""
    level_at = _DROP / a
    # both starts are too far from the peak, from where Newton's method decreases to the root of a convex function
    left = 0.5 * level_at + jnp.sqrt(0.25 * level_at**2 + 2.0 * level_at)
    right = jnp.log1p(level_at + jnp.sqrt(2.0 * level_at))
    for _ in range(3):
        left = left - (exp_excess(-left) - level_at) / -jnp.expm1(-left)
        right = right - (exp_excess(right) - level_at) / jnp.expm1(right)
    down, fine_left, coarse_left = _distances(left, level)
    up, fine_right, coarse_right = _distances(right, level)
    t = jnp.concatenate([-down, up])
    weights = _normalised(
        a * exp_excess(t),
        jnp.concatenate([fine_left, fine_right]),
        jnp.concatenate([coarse_left, coarse_right]),
    )
    return t, *weights


@partial(jax.jit, static_argnames="level")
def beta_nodes(eta: jax.Array, level: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Logarithms of s and 1 - s ``(M, 2)``, and weights, by nodes in logit s on both sides of the mean."""
    total, _, share, log_share, other = shares_of(eta)
    side = jax.vmap(partial(_beta_side, level=level), in_axes=(0, None, 0, 0, 0, 0))
    logs, *parts = side(eta, total[0], share, other, log_share, log_share[::-1])
    logs = jnp.concatenate([logs[0], logs[1, :, ::-1]])
    return logs, *_normalised(*(part.reshape(-1) for part in parts))


def _beta_side(
    a: jax.Array, total: jax.Array, p: jax.Array, q: jax.Array, log_p: jax.Array, log_q: jax.Array, level: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Nodes below the mean p = a/total = 1 - q: logarithms of s and 1 - s, drop of the log-density, both weights.

    At a distance r in logit s the log-density has dropped by a r + total log(q + p e⁻ʳ).
    """

    def log_mixed(r: jax.Array) -> jax.Array:
        return jnp.where(r < 1.0, jnp.log1p(p * jnp.expm1(-r)), jnp.log(q + p * jnp.exp(-r)))

    def drop(r: jax.Array) -> jax.Array:
        near = a * exp_excess(-r) - total * log_excess(p * jnp.expm1(-r))
        return jnp.where(r < 1.0, near, a * r + total * log_mixed(r))

    flat = _DROP / (a * q)
    end = jnp.minimum(0.5 * flat + jnp.sqrt(0.25 * flat**2 + 2.0 * flat), (_DROP - total * log_q) / a)
    for _ in range(4):
        # the slope is a - total·s, with s the value at the node
        slope = -a * q * jnp.expm1(-end) / (q + p * jnp.exp(-end))
        end = end - (drop(end) - _DROP) / slope
    r, fine, coarse = _distances(end, level)
    mixed = log_mixed(r)
    return jnp.stack([log_p - r - mixed, log_q - mixed], -1), drop(r), fine, coarse
