"""Sweeps over all factors of a data set, compiled: one after the other, or all at once from one belief.

At once, the fields of all rows are seen in coordinates whitened by the belief's root S, ``F = A S``: the cavities come
from F's rows, the new sites add ``Fᵀ Λ F`` and ``Fᵀ (ν - Λ h)`` to the whitened precision and gradient, and a Cholesky
factor of the sum gives the next root. These are two matrix products a sweep. The numbers stay near 1 however vague the
prior or narrow the posterior.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.dynamics import Static
from adfpp.engine.factor import FactorGroup
from adfpp.engine.families import Belief, Family, Product
from adfpp.engine.kernel import (
    Draws,
    Exchange,
    Moving,
    fold_prior,
    fold_rows,
    part_key,
    tilt_of,
    visit_factor,
    whiten,
)
from adfpp.engine.sites import unpack
from adfpp.engine.status import VisitInfo, empty_info, is_refused, join, join_all
from adfpp.learn.start import Base
from adfpp.model import PriorGroup, Program

Sites = tuple[jax.Array, ...]


class Gathered(NamedTuple):
    """What sites add up to in a belief's whitened coordinates.

    Attributes:
        precision: ``(N, N)``.
        slope: ``(N,)`` gradient at the belief's mean.
    """

    precision: jax.Array
    slope: jax.Array


class Settled(NamedTuple):
    """A belief made anew from its sites.

    Attributes:
        belief: The new belief; the old one where the new one would be improper.
        damping: ``()`` how much of the change was made: what was asked for, or less to stay proper.
        step: ``()`` the largest move of a mean in sds, or of an sd relatively, that the whole change would make.
    """

    belief: Belief
    damping: jax.Array
    step: jax.Array


class Compiled(NamedTuple):
    """The compiled parts of a sweep; each takes the arguments of its namesake here, from ``belief`` on."""

    fold: Callable[..., Any]
    survey: Callable[..., Any]
    gather: Callable[..., Any]
    settle: Callable[..., Any]
    nudge: Callable[..., Any]
    prior_in: Callable[..., Any]
    visit_priors: Callable[..., Any]


def compiled(
    family: Family, program: Program, prior_groups: Callable[[Sequence[Any]], Mapping[str, Sequence[PriorGroup]]]
) -> Compiled:
    """The sweeps of a program."""
    return Compiled(
        jax.jit(partial(fold, family, program.factors)),
        jax.jit(partial(survey, program.factors)),
        jax.jit(partial(gather, program.factors)),
        jax.jit(partial(settle, program, prior_groups)),
        jax.jit(nudge),
        jax.jit(partial(prior_in, program, prior_groups)),
        jax.jit(partial(visit_priors, family, program, prior_groups)),
    )


def fold(
    family: Family,
    groups: Sequence[FactorGroup],
    belief: Belief,
    rows: Sequence[Any],
    shared: Sequence[Any],
    sites: Sites,
    exchange: Exchange,
    count: Any,
    draws: Draws | None = None,
) -> tuple[Belief, Sites, VisitInfo]:
    """Visits the first ``count`` of some rows one after the other, each from the belief that the last has left."""
    zero = jnp.zeros((), belief.mean.dtype)
    moving = Moving(zero, jnp.zeros((), bool), ())
    rows = [jnp.asarray(a) for a in rows]
    belief, _, sites, info = fold_rows(
        family, Static(), groups, belief, moving, rows, shared, None, jnp.asarray(count), sites, exchange, draws
    )
    return belief, sites, info


def survey(
    groups: Sequence[FactorGroup],
    belief: Belief,
    rows: Sequence[Any],
    shared: Sequence[Any],
    sites: Sites,
    power: jax.Array,
    count: Any,
    draws: Draws | None = None,
) -> tuple[Sites, VisitInfo, Gathered]:
    """Visits rows all at once: every cavity comes from the same belief.

    Returns:
        The sites that should stand there (undamped), what became of each row, and what the new sites add up to.
    """
    rows = [jnp.asarray(a) for a in rows]
    length, dtype = rows[0].shape[0], belief.mean.dtype
    exchange = Exchange(power, jnp.ones((), dtype))
    there = jnp.arange(length) < count
    proposed, infos, fields = [], [], []
    for i, (group, own) in enumerate(zip(groups, sites, strict=True)):
        matrix, value, flags = _fields(group, belief, rows, shared, there)

        def one(args: Any, i: int = i, group: FactorGroup = group) -> Any:
            row, f, h, site, flag, number = args
            inputs = [*[a[None] for a in row], *shared]
            key = None if draws is None or not group.draws else jax.random.fold_in(draws.key, number)
            tilt = tilt_of(group, inputs, part_key(key, i))

            def element(e: Any, f: jax.Array, h: jax.Array, site: jax.Array, flag: Any) -> Any:
                scale = _lower(f) if group.field_size else jnp.zeros((0, 0), dtype)
                visit = visit_factor(group, tilt, e, h, scale, flag, site, exchange)
                return visit.site, visit.info

            if group.count == 1:
                new, info = element(0, f[0], h[0], site[0], tuple(a[0] for a in flag))
                return new[None], info
            news, infos = jax.lax.map(lambda a: element(*a), (jnp.arange(group.count), f, h, site, flag))
            return news, join(infos)

        args = (rows, matrix, value, own, flags, None if draws is None else draws.numbers)
        # the tiers of a quadrature are branches, of which a vectorised loop would run all; points are many
        new, info = jax.lax.map(one, args) if group.divisible or group.draws else jax.vmap(one)(args)
        proposed.append(new)
        infos.append(info)
        fields.append((matrix, value))
    info = join_all(infos)
    refused = is_refused(info.status)
    proposed = tuple(jnp.where(refused[:, None, None], old, new) for new, old in zip(proposed, sites, strict=True))
    return proposed, info, _added(groups, fields, proposed)


def gather(
    groups: Sequence[FactorGroup],
    belief: Belief,
    rows: Sequence[Any],
    shared: Sequence[Any],
    sites: Sites,
    count: Any,
) -> Gathered:
    """What the sites of some rows add up to."""
    rows = [jnp.asarray(a) for a in rows]
    there = jnp.arange(rows[0].shape[0]) < count
    fields = [_fields(group, belief, rows, shared, there)[:2] for group in groups]
    return _added(groups, fields, sites)


def _fields(
    group: FactorGroup, belief: Belief, rows: Sequence[jax.Array], shared: Sequence[Any], there: jax.Array
) -> tuple[jax.Array, jax.Array, Any]:
    """Whitened matrices ``(n, E, k, N)``, values ``(n, E, k)`` and flags of the fields of some rows."""

    def of_row(row: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array, Any]:
        inputs = [*[a[None] for a in row], *shared]
        return (*group.matrices(belief.mean, *inputs), group.flags(*inputs))

    matrix, value, (counted, supported, finite) = jax.vmap(of_row)(rows)
    sound = jnp.all(jnp.isfinite(matrix), (2, 3)) & jnp.all(jnp.isfinite(value), 2)
    matrix = jnp.where(sound[:, :, None, None], matrix, 0.0)
    value = jnp.where(sound[:, :, None], value, 0.0)
    size = belief.mean.shape[0]
    white = (matrix.reshape(-1, size) @ belief.scale).reshape(matrix.shape)
    return white, value, (counted & there[:, None], supported, finite & sound)


def _lower(f: jax.Array) -> jax.Array:
    """Lower triangular root of F Fᵀ."""
    if f.shape[0] == 1:
        return jnp.sqrt(f @ f.T)
    return whiten(f)[0]


def _added(groups: Sequence[FactorGroup], fields: Sequence[tuple[jax.Array, jax.Array]], sites: Sites) -> Gathered:
    precision: Any = 0.0
    gradient: Any = 0.0
    for group, (matrix, value), own in zip(groups, fields, sites, strict=True):
        k, size = group.field_size, matrix.shape[-1]
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
    return Gathered(precision, gradient)


def prior_in(
    program: Program,
    prior_groups: Callable[[Sequence[Any]], Mapping[str, Sequence[PriorGroup]]],
    belief: Belief,
    base: Base,
    priors: Mapping[str, jax.Array],
    shared: Sequence[Any],
) -> Gathered:
    """The base and the prior's sites in a belief's whitened coordinates."""
    mean, scale = belief
    size = mean.shape[0]
    root = base.root @ scale
    precision, slope = root.T @ root, root.T @ (base.centre - base.root @ mean)
    groups = chosen(prior_groups(shared), priors)
    if not groups:
        return Gathered(precision, slope)
    inputs = program.prior_inputs(shared)
    fields = []
    for group in groups.values():
        matrix, value = group.matrices(mean, *inputs)
        fields.append(((matrix.reshape(-1, size) @ scale).reshape(1, *matrix.shape), value[None]))
    added = _added(list(groups.values()), fields, tuple(priors[key][None] for key in groups))
    return Gathered(precision + added.precision, slope + added.slope)


def settle(
    program: Program,
    prior_groups: Callable[[Sequence[Any]], Mapping[str, Sequence[PriorGroup]]],
    belief: Belief,
    base: Base,
    priors: Mapping[str, jax.Array],
    shared: Sequence[Any],
    gathered: Gathered,
    damping: jax.Array,
    fresh: jax.Array,
) -> Settled:
    """The belief of the base, the prior's sites and what the rows' sites add up to.

    Args:
        program: The model as it was read.
        prior_groups: Its prior factors.
        belief: In whose coordinates ``gathered`` is.
        base: The Gaussian part of the prior.
        priors: The sites of the prior factors.
        shared: The shared arrays.
        gathered: What the new sites of all rows add up to.
        damping: How much of the change is to be made.
        fresh: Whether the belief is not that of the old sites: then all of the change is made.
    """
    dtype = belief.mean.dtype
    prior = prior_in(program, prior_groups, belief, base, priors, shared)
    precision, slope = gathered.precision + prior.precision, gathered.slope + prior.slope
    whole, sound = _changed(belief, precision, slope, jnp.ones((), dtype))
    step = jnp.where(sound, moved_by(program.family, belief, whole), jnp.inf)
    new, share = _proper(belief, precision, slope, jnp.where(fresh, 1.0, damping).astype(dtype))
    return Settled(new, share, step)


def nudge(belief: Belief, change: Gathered, damping: jax.Array) -> tuple[Belief, jax.Array]:
    """The belief after its sites have changed, and how much of the change could be made."""
    identity = jnp.eye(belief.mean.shape[0], dtype=belief.mean.dtype)
    return _proper(belief, identity + change.precision, change.slope, damping)


def _changed(belief: Belief, precision: jax.Array, slope: jax.Array, share: jax.Array) -> tuple[Belief, jax.Array]:
    """The belief moved this share of the way to a whitened precision and slope, and whether it is proper there."""
    mean, scale = belief
    identity = jnp.eye(mean.shape[0], dtype=mean.dtype)
    lower = jnp.linalg.cholesky(identity + share * (0.5 * (precision + precision.T) - identity))
    half = jax.scipy.linalg.solve_triangular(lower, share * slope, lower=True)
    moved = jax.scipy.linalg.solve_triangular(lower, half, lower=True, trans=1)
    wide = jax.scipy.linalg.solve_triangular(lower, scale.T, lower=True).T  # S L⁻ᵀ
    return Belief(mean + scale @ moved, wide), jnp.all(jnp.isfinite(wide)) & jnp.all(jnp.isfinite(moved))


def _proper(belief: Belief, precision: jax.Array, slope: jax.Array, damping: jax.Array) -> tuple[Belief, jax.Array]:
    """As much of the change as leaves the belief proper, halving what was asked for; and how much that is."""

    def less(carry: tuple) -> tuple:
        share = 0.5 * carry[0]
        return share, *_changed(belief, precision, slope, share)

    def improper(carry: tuple) -> jax.Array:
        return ~carry[2] & (carry[0] > 1e-3)

    first = (damping, *_changed(belief, precision, slope, damping))
    share, new, proper = jax.lax.while_loop(improper, less, first)
    return jax.tree.map(lambda a, b: jnp.where(proper, a, b), new, belief), jnp.where(proper, share, 0.0)


def moved_by(family: Family, before: Any, after: Any) -> jax.Array:
    """The largest move of a mean, in the smaller of both sds, or of an sd relatively; of a probability as it is."""
    if isinstance(family, Product):
        return family.moved(before, after)
    if before.scale.ndim == 2:
        sd, new = (jnp.sqrt(jnp.sum(b.scale**2, -1)) for b in (before, after))
    else:
        sd, new = before.scale, after.scale
    return jnp.maximum(
        jnp.max(jnp.abs(after.mean - before.mean) / jnp.minimum(sd, new)), jnp.max(jnp.abs(jnp.log(new / sd)))
    )


def visit_priors(
    family: Family,
    program: Program,
    prior_groups: Callable[[Sequence[Any]], Mapping[str, Sequence[PriorGroup]]],
    belief: Belief,
    priors: Mapping[str, jax.Array],
    shared: Sequence[Any],
    exchange: Exchange,
    passes: int,
) -> tuple[Belief, dict[str, jax.Array], dict[str, VisitInfo]]:
    """Visits the prior's factors, a few times; ``{key: VisitInfo}`` is of the last."""
    groups = chosen(prior_groups(shared), priors)
    inputs = program.prior_inputs(shared)

    def again(_: Any, carry: tuple) -> tuple:
        belief, priors, _ = carry
        return fold_prior(family, groups, belief, priors, inputs, exchange)

    empty = {key: jax.tree.map(lambda a: a[0], empty_info(1, belief.mean.dtype, True)) for key in groups}
    return jax.lax.fori_loop(0, passes, again, (belief, dict(priors), empty))


def chosen(groups: Mapping[str, Sequence[PriorGroup]], priors: Mapping[str, jax.Array]) -> dict[str, FactorGroup]:
    """The factor groups that have sites."""
    return {g.key: g.factors for some in groups.values() for g in some if g.key in priors}


def log_evidence(belief: Belief, base: Base, rows: Any, priors: Mapping[str, VisitInfo]) -> float:
    """EP's estimate of the log evidence at a fixed point, where the belief's mean is its sites' mode.

    Args:
        belief: Full, made of the base and the sites.
        base: The Gaussian part of the prior.
        rows: What all rows add (``VisitInfo.evidence``, summed).
        priors: What became of the prior's factors.
    """
    mean, scale = (np.asarray(a, float) for a in belief)
    off = np.asarray(base.root, float) @ mean - np.asarray(base.centre, float)
    log_volume = np.linalg.slogdet(scale)[1] + 0.5 * len(mean) * math.log(2.0 * math.pi)
    added = sum(float(np.asarray(i.evidence)) for i in priors.values())
    return float(base.constant) - 0.5 * float(off @ off) + float(log_volume) + float(rows) + added
