"""Compiled sweeps over all factors of a data set: one row after the other, or all rows in parallel.

A parallel sweep takes all cavities from one belief. It uses the coordinates that are whitened by the belief's root S,
where the fields of all rows are ``F = A S``. The cavities are computed from the rows of F. The new sites add ``Fᵀ Λ F``
and ``Fᵀ (ν - Λ h)`` to the whitened precision and gradient, where ν and Λ are the slope and precision of a site, and a
Cholesky factor of the sum gives the next root. A sweep costs two matrix products. The numbers stay near 1 even if the
prior is vague or the posterior narrow.

The functions are called through ``Program.compiled``: learners of the same model share what is compiled.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.dynamics import Static
from adfpp.engine.factor import Factor, ReadyFactor
from adfpp.engine.families import Belief, Exchange
from adfpp.engine.kernel import (
    Draws,
    Flags,
    Moving,
    key_of_group,
    visit_constant,
    visit_in_cavity,
    visit_prior,
    visit_rows,
)
from adfpp.engine.linalg import whiten
from adfpp.engine.sites import unpack
from adfpp.engine.status import VisitInfo, empty_info, is_refused, join, join_all
from adfpp.learn.start import Base
from adfpp.model import Program

Sites = tuple[jax.Array, ...]


class Summed(NamedTuple):
    """A sum of sites in a belief's whitened coordinates.

    Attributes:
        precision: ``(N, N)`` sum of their precisions.
        slope: ``(N,)`` sum of their gradients at the belief's mean.
    """

    precision: jax.Array
    slope: jax.Array


class Rebuilt(NamedTuple):
    """A belief rebuilt from its sites.

    Attributes:
        belief: The new belief; the old one if the new one would be improper.
        damping: ``()`` the applied fraction of the change: the requested one, or less to keep the belief proper.
        step: ``()`` how far the whole change would move the belief (``Full.distance``).
    """

    belief: Belief
    damping: jax.Array
    step: jax.Array


def visit_in_order(
    program: Program,
    belief: Any,
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
    sites: Sites,
    exchange: Exchange,
    count: int | jax.Array,
    draws: Draws | None = None,
) -> tuple[Any, Sites, VisitInfo]:
    """Visits the first ``count`` of some rows one after the other, each with the belief after the row before it."""
    moving = Moving(jnp.zeros((), belief.mean.dtype), jnp.zeros((), bool), ())
    rows = [jnp.asarray(a) for a in rows]
    belief, _, sites, info = visit_rows(
        program.family,
        Static(),
        program.factors,
        belief,
        moving,
        rows,
        shared,
        None,
        jnp.asarray(count),
        sites,
        exchange,
        draws,
    )
    return belief, sites, info


def propose_sites(
    program: Program,
    belief: Belief,
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
    sites: Sites,
    power: jax.Array,
    count: int | jax.Array,
    draws: Draws | None = None,
) -> tuple[Sites, VisitInfo, Summed]:
    """Visits rows in parallel: every cavity comes from the same belief.

    Returns:
        The new sites without damping, what happened to each row, and the sum of the new sites.
    """
    family: Any = program.family
    rows = [jnp.asarray(a) for a in rows]
    length, dtype = rows[0].shape[0], belief.mean.dtype
    exchange = Exchange(power, jnp.ones((), dtype))
    there = jnp.arange(length) < count
    proposed, infos, fields = [], [], []
    for i, (factor, own) in enumerate(zip(program.factors, sites, strict=True)):
        matrix, value, flags = _fields(factor, belief, rows, shared, there)

        def one(args: tuple, i: int = i, factor: Factor = factor) -> Any:
            row, f, h, site, flag, number = args
            inputs = [*[a[None] for a in row], *shared]
            key = None if draws is None or not factor.draws else jax.random.fold_in(draws.key, number)
            ready = ReadyFactor(factor, inputs, key_of_group(key, i))

            def element(e: int | jax.Array, f: jax.Array, h: jax.Array, site: jax.Array, flag: Flags) -> Any:
                if factor.field_size == 0:
                    return visit_constant(factor, ready, e, flag, site, dtype)
                outside = family.cavity_in_field(h, _lower(f), factor, site, exchange)
                visited = visit_in_cavity(family, outside, factor, ready, e, flag, site, exchange)
                return visited.site, visited.info

            if factor.count == 1:
                new, info = element(0, f[0], h[0], site[0], tuple(a[0] for a in flag))
                return new[None], info
            news, infos = jax.lax.map(lambda a: element(*a), (jnp.arange(factor.count), f, h, site, flag))
            return news, join(infos)

        args = (rows, matrix, value, own, flags, None if draws is None else draws.numbers)
        # not vectorised where this would cost more: it would run all branches of a quadrature, and store many points
        new, info = jax.lax.map(one, args) if factor.divisible or factor.draws else jax.vmap(one)(args)
        proposed.append(new)
        infos.append(info)
        fields.append((matrix, value))
    info = join_all(infos)
    refused = is_refused(info.status)
    kept = tuple(jnp.where(refused[:, None, None], old, new) for new, old in zip(proposed, sites, strict=True))
    return kept, info, _sum_of(program.factors, fields, kept)


def sum_sites(
    program: Program,
    belief: Belief,
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
    sites: Sites,
    count: int | jax.Array,
) -> Summed:
    """Sums the sites of some rows."""
    rows = [jnp.asarray(a) for a in rows]
    there = jnp.arange(rows[0].shape[0]) < count
    fields = [_fields(factor, belief, rows, shared, there)[:2] for factor in program.factors]
    return _sum_of(program.factors, fields, sites)


def _fields(
    factor: Factor, belief: Belief, rows: Sequence[jax.Array], shared: Sequence[jax.Array], there: jax.Array
) -> tuple[jax.Array, jax.Array, Flags]:
    """Whitened matrices ``(n, E, k, N)``, values ``(n, E, k)`` and flags of the fields of some rows."""

    def of_row(row: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array, Flags]:
        inputs = [*[a[None] for a in row], *shared]
        return (*factor.matrices(belief.mean, *inputs), factor.flags(*inputs))

    matrix, value, (counted, supported, finite) = jax.vmap(of_row)(rows)
    sound = jnp.all(jnp.isfinite(matrix), (2, 3)) & jnp.all(jnp.isfinite(value), 2)
    matrix = jnp.where(sound[:, :, None, None], matrix, 0.0)
    value = jnp.where(sound[:, :, None], value, 0.0)
    size = belief.mean.shape[0]
    white = (matrix.reshape(-1, size) @ belief.scale).reshape(matrix.shape)
    return white, value, (counted & there[:, None], supported, finite & sound)


def _lower(f: jax.Array) -> jax.Array:
    """The lower triangular root of F Fᵀ."""
    if f.shape[0] == 1:
        return jnp.sqrt(f @ f.T)
    return whiten(f)[0]


def _sum_of(factors: Sequence[Factor], fields: Sequence[tuple[jax.Array, jax.Array]], sites: Sites) -> Summed:
    precision: Any = 0.0
    gradient: Any = 0.0
    for factor, (matrix, value), own in zip(factors, fields, sites, strict=True):
        k, size = factor.field_size, matrix.shape[-1]
        slope, weight = unpack(own, k)
        flat = matrix.reshape(-1, size)
        if k == 1:
            weighted = flat * weight.reshape(-1, 1)
            pull = slope - weight[..., 0] * value
        else:
            weighted = jnp.einsum("neij,nejs->neis", weight, matrix).reshape(-1, size)
            pull = slope - jnp.einsum("neij,nej->nei", weight, value)
        precision = precision + flat.T @ weighted
        gradient = gradient + flat.T @ pull.reshape(-1)
    return Summed(precision, gradient)


def prior_in(
    program: Program, belief: Belief, base: Base, priors: Mapping[str, jax.Array], shared: Sequence[jax.Array]
) -> Summed:
    """Sums the base and the sites of the prior factors in a belief's whitened coordinates."""
    mean, scale = belief
    size = mean.shape[0]
    root = base.root @ scale
    precision, slope = root.T @ root, root.T @ (base.centre - base.root @ mean)
    groups = prior_factors(program, priors)
    if not groups:
        return Summed(precision, slope)
    inputs = program.prior_inputs(shared)
    fields = []
    for factor in groups.values():
        matrix, value = factor.matrices(mean, *inputs)
        fields.append(((matrix.reshape(-1, size) @ scale).reshape(1, *matrix.shape), value[None]))
    added = _sum_of(list(groups.values()), fields, tuple(priors[key][None] for key in groups))
    return Summed(precision + added.precision, slope + added.slope)


def rebuild(
    program: Program,
    belief: Belief,
    base: Base,
    priors: Mapping[str, jax.Array],
    shared: Sequence[jax.Array],
    summed: Summed,
    damping: jax.Array,
    fresh: jax.Array,
) -> Rebuilt:
    """Makes the belief from the base, the sites of the prior factors and the sum of the rows' sites.

    Args:
        program: The model as it was read.
        belief: The belief whose whitened coordinates ``summed`` is in.
        base: The Gaussian part of the prior.
        priors: The sites of the prior factors.
        shared: The shared arrays.
        summed: The sum of the new sites of all rows.
        damping: The requested fraction of the change.
        fresh: Whether the belief is not the one of the old sites: then the whole change is applied.
    """
    dtype = belief.mean.dtype
    prior = prior_in(program, belief, base, priors, shared)
    precision, slope = summed.precision + prior.precision, summed.slope + prior.slope
    precision = 0.5 * (precision + precision.T)
    _, shift, sound = _changed(belief, precision, slope, jnp.ones((), dtype))
    # as in ``Full.distance``, in coordinates that are whitened already
    change = precision - jnp.eye(precision.shape[0], dtype=dtype)
    step = jnp.where(sound, jnp.sqrt(shift @ shift + 0.5 * jnp.sum(change * change)), jnp.inf)
    new, share = _proper(belief, precision, slope, jnp.where(fresh, 1.0, damping).astype(dtype))
    return Rebuilt(new, share, step)


@jax.jit
def apply_change(belief: Belief, change: Summed, damping: jax.Array) -> tuple[Belief, jax.Array]:
    """Changes a belief by a change of its sites. Also returns the fraction of the change that could be applied."""
    identity = jnp.eye(belief.mean.shape[0], dtype=belief.mean.dtype)
    precision = identity + 0.5 * (change.precision + change.precision.T)
    return _proper(belief, precision, change.slope, damping)


def _changed(
    belief: Belief, precision: jax.Array, slope: jax.Array, share: jax.Array
) -> tuple[Belief, jax.Array, jax.Array]:
    """Moves a belief by the fraction ``share`` of the way to a whitened precision and slope.

    Returns:
        The belief, the shift of the mean in whitened coordinates, and whether the belief is proper.
    """
    mean, scale = belief
    identity = jnp.eye(mean.shape[0], dtype=mean.dtype)
    lower = jnp.linalg.cholesky(identity + share * (precision - identity))
    half = jax.scipy.linalg.solve_triangular(lower, share * slope, lower=True)
    shift = jax.scipy.linalg.solve_triangular(lower, half, lower=True, trans=1)
    wide = jax.scipy.linalg.solve_triangular(lower, scale.T, lower=True).T  # S L⁻ᵀ
    proper = jnp.all(jnp.isfinite(wide)) & jnp.all(jnp.isfinite(shift))
    return Belief(mean + scale @ shift, wide), shift, proper


def _proper(belief: Belief, precision: jax.Array, slope: jax.Array, damping: jax.Array) -> tuple[Belief, jax.Array]:
    """Applies the requested fraction of a change, halved until the belief is proper. Also returns the fraction."""

    def improper(carry: tuple) -> jax.Array:
        return ~carry[2] & (carry[0] > 1e-3)  # a smaller step is not worth a sweep

    def halved(carry: tuple) -> tuple:
        share = 0.5 * carry[0]
        new, _, proper = _changed(belief, precision, slope, share)
        return share, new, proper

    # a loop from twice the fraction contains the change once, which is half as much to compile
    first = (2.0 * damping, belief, jnp.zeros((), bool))
    share, new, proper = jax.lax.while_loop(improper, halved, first)
    return jax.tree.map(lambda a, b: jnp.where(proper, a, b), new, belief), jnp.where(proper, share, 0.0)


def distance(program: Program, before: object, after: object) -> jax.Array:
    """Measures how far a belief has moved, in the way of its family."""
    return program.family.distance(before, after)


def visit_priors(
    program: Program,
    passes: int,
    belief: Any,
    priors: Mapping[str, jax.Array],
    shared: Sequence[jax.Array],
    exchange: Exchange,
) -> tuple[Any, dict[str, jax.Array], dict[str, VisitInfo]]:
    """Visits the prior factors ``passes`` times. The ``{key: VisitInfo}`` are those of the last visit."""
    factors = prior_factors(program, priors)
    inputs = program.prior_inputs(shared)

    def again(_: object, carry: tuple) -> tuple:
        belief, priors, _ = carry
        return visit_prior(program.family, factors, belief, priors, inputs, exchange)

    empty = {key: jax.tree.map(lambda a: a[0], empty_info(1, belief.mean.dtype, True)) for key in factors}
    return jax.lax.fori_loop(0, passes, again, (belief, dict(priors), empty))


def prior_factors(program: Program, priors: Mapping[str, jax.Array]) -> dict[str, Factor]:
    """The groups of prior factors that have sites."""
    if not priors:
        return {}
    return {g.key: g.factors for some in program.prior_factors.values() for g in some if g.key in priors}


def log_evidence(belief: Belief, base: Base, rows: float, priors: Mapping[str, VisitInfo]) -> float:
    """EP's estimate of the log evidence at a fixed point, where the belief's mean is the mode of base times sites.

    Args:
        belief: A full Gaussian, the product of the base and the sites.
        base: The Gaussian part of the prior.
        rows: The contribution of all rows, the sum of ``VisitInfo.evidence``.
        priors: What happened to the prior factors.
    """
    mean, scale = (np.asarray(a, float) for a in belief)
    off = np.asarray(base.root, float) @ mean - np.asarray(base.centre, float)
    log_volume = np.linalg.slogdet(scale)[1] + 0.5 * len(mean) * math.log(2.0 * math.pi)
    added = sum(float(np.asarray(i.evidence)) for i in priors.values())
    return float(base.constant) - 0.5 * float(off @ off) + float(log_volume) + float(rows) + added
