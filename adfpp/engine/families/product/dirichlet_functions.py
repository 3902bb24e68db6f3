"""Functions of the Dirichlet distribution's α ``(..., K)``. Beta is the case K = 2.

As in ``gamma_functions``, ``jax.jit`` makes JAX trace each function once for each shape.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.families.product.gamma_functions import (
    gap_fall,
    log_gap,
    log_power,
    peak_height,
    ratio_excess,
    shape_divergence,
)

_STEPS = 100  # the largest number of Newton steps


class Shares(NamedTuple):
    """Sums and quotients of α, each computed without cancellation.

    Attributes:
        total: ``(..., 1)`` Σα.
        others: ``(..., K)`` for each coordinate, the sum of the other α.
        share: ``(..., K)`` the means α / total.
        log_share: ``(..., K)`` logarithms of the means.
        other: ``(..., K)`` one minus the means.
    """

    total: jax.Array
    others: jax.Array
    share: jax.Array
    log_share: jax.Array
    other: jax.Array


@jax.jit
def shares_of(alpha: jax.Array) -> Shares:
    """Computes the ``Shares`` of ``alpha (..., K)``."""
    ends = jnp.zeros_like(alpha[..., :1])
    before = jnp.concatenate([ends, jnp.cumsum(alpha[..., :-1], -1)], -1)
    after = jnp.concatenate([jnp.flip(jnp.cumsum(jnp.flip(alpha[..., 1:], -1), -1), -1), ends], -1)
    others = before + after
    total = jnp.sum(alpha, -1, keepdims=True)
    return Shares(total, others, alpha / total, -jnp.log1p(others / alpha), others / total)


@jax.jit
def expected_logs(alpha: jax.Array) -> jax.Array:
    """E log s, ``(..., K)``: ψ(α_k) - ψ(Σα)."""
    shares = shares_of(alpha)
    return shares.log_share - gap_fall(alpha, shares.others)


@jax.jit
def moments(alpha: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Means and variances of the coordinates, both ``(..., K)``."""
    shares = shares_of(alpha)
    return shares.share, shares.share * shares.other / (shares.total + 1.0)


def _height(alpha: jax.Array) -> jax.Array:
    """The log of Π (α_k/α_0)^α_k / B(α), which is the log-density of the log-ratios at their mode."""
    total = jnp.sum(alpha, -1)
    return jnp.sum(peak_height(alpha), -1) - peak_height(total)


@jax.jit
def log_multivariate_beta(alpha: jax.Array) -> jax.Array:
    """The log ``(...)`` of the multivariate beta function."""
    return jnp.sum(alpha * shares_of(alpha).log_share, -1) - _height(alpha)


@jax.jit
def log_prob(alpha: jax.Array, s: jax.Array) -> jax.Array:
    """The log-density ``(...)`` of the first K - 1 of the coordinates ``s (..., K)``."""
    share = shares_of(alpha).share
    return _height(alpha) + jnp.sum(log_power(alpha, s, share), -1)


@jax.jit
def divergence(alpha: jax.Array, beta: jax.Array) -> jax.Array:
    """KL(α || β): the divergence of the means, weighted with β, plus those of the shapes minus that of the sum."""
    ours, theirs = shares_of(alpha), shares_of(beta)
    means = jnp.sum(beta * ratio_excess(ours.share, theirs.share), -1)
    together = shape_divergence(ours.total[..., 0], theirs.total[..., 0])
    return means + jnp.sum(shape_divergence(alpha, beta), -1) - together


@jax.jit
def shifted(alpha: jax.Array, change: jax.Array) -> jax.Array:
    """Finds α' with the expected logs of α plus ``change``, by one-dimensional Newton steps for v = 1/Σα'.

    With s_k' the new share and u_k = log s_k'/s_k, ψ(α_k') - ψ(Σα') = E log s_k + change_k reads

        u_k - (g(s_k'/v) - g(1/v)) = change_k - (g(α_k) - g(Σα)),

    which has one solution u_k for every v, and v is determined by Σ s_k' = 1. This sum is an increasing concave
    function of v. Near v = 0 it is the line 1 - slack + v (K - 1 + slack)/2; if a step leads to a negative v, the root
    of this line is used instead. From the second step on v increases, so the iteration ends with the first step that
    does not increase it, which is a rounding error.
    """
    total, others, share, log_share, other = shares_of(alpha)
    known = change - gap_fall(alpha, others)
    # 1 - Σ exp E log s'; a member exists if it is positive
    slack = -jnp.sum(share * jnp.expm1(known), -1, keepdims=True)
    slack = jnp.where((slack > 0.0) & jnp.isfinite(slack), slack, jnp.nan)
    least = 2.0 * slack / (alpha.shape[-1] - 1 + slack)
    tolerance = 0.01 * float(np.sqrt(jnp.finfo(alpha.dtype).eps))

    def ratios(v: jax.Array) -> tuple[jax.Array, jax.Array]:
        """``u`` and its derivative with respect to -log v."""
        g, slope_total = log_gap(1.0 / v)
        inverse_digamma = 1.0 / jnp.logaddexp(0.0, -(log_share + known - g - jnp.log(v)))  # within 6%
        u = jnp.log(inverse_digamma * v) - log_share

        def step(u: jax.Array, _: None) -> tuple[jax.Array, None]:
            new = share * jnp.exp(u) / v
            fall = gap_fall(new, (other - share * jnp.expm1(u)) / v)
            return u - (u - fall - known) / (1.0 - log_gap(new)[1]), None

        u = jax.lax.scan(step, u, length=4)[0]
        slope = log_gap(share * jnp.exp(u) / v)[1]
        return u, (slope - slope_total) / (1.0 - slope)

    def more(state: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return jnp.any(~state[1]) & (state[2] < _STEPS)

    def improve(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        v, done, steps = state
        u, slope = ratios(v)
        excess = jnp.sum(share * jnp.expm1(u), -1, keepdims=True)
        grown = excess / jnp.sum(share * jnp.exp(u) * slope, -1, keepdims=True)
        new = jnp.where(done, v, jnp.maximum(v * (1.0 + grown), least))
        converged = (jnp.abs(grown) < tolerance) | ((steps > 0) & (grown <= 0.0)) | ~jnp.isfinite(new)
        return new, done | converged, steps + 1

    start = (1.0 / total, jnp.isnan(slack), jnp.asarray(0))
    v, done, _ = jax.lax.while_loop(more, improve, start)
    return jnp.where(done & (slack > 0.0), share * jnp.exp(ratios(v)[0]) / v, jnp.nan)
