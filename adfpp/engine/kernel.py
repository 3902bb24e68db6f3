"""The kernel: visits one factor (cavity → tilt → judge → exchange → accept), one row, and a sequence of rows.

Every learner visits factors through ``visit``. In assumed-density filtering factors have no sites, and are absorbed
once. In expectation propagation a factor has a site approximation, which is removed from the belief before the visit
and replaced by a new one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import PyTree

from adfpp.engine.dynamics import Dynamics, Setup, Static
from adfpp.engine.factor import Factor, ReadyFactor
from adfpp.engine.families.base import Answer, Belief, Exchange, Family, Gaussian, Outside, Update, Window
from adfpp.engine.status import RowInfo, Status, VisitInfo, empty_info, is_refused, join, join_all, worst_of
from adfpp.engine.tilt import Index


class Draws(NamedTuple):
    """The source of random points for Monte Carlo rules: the key of a row is ``fold_in(key, number of the row)``.

    Attributes:
        key: A JAX key.
        numbers: ``()`` the number of the first row, which increases with every absorbed row; or ``(n,)`` the number of
            each row, for rows that are visited repeatedly with the same points.
    """

    key: jax.Array
    numbers: jax.Array


class Moving(NamedTuple):
    """The state of the dynamics between rows.

    Attributes:
        clock: ``()`` time since the belief was last moved.
        started: ``()`` whether any row has been absorbed.
        setup: The arrays that the dynamics needs.
    """

    clock: jax.Array
    started: jax.Array
    setup: Setup


Flags = Sequence[jax.Array]  # (counted, supported, finite) of a factor: booleans


_ROUNDING = 4096.0  # rounding error of the log of a probability near 1, in eps; 4096 leaves a wide margin

# ------------------------------------------------------------------------------------------ one factor


def judge(answer: Answer, limit: float | None, flags: Flags, discrete: bool = False) -> jax.Array:
    """Computes the ``Status`` of one factor's tilted moments.

    Args:
        answer: The tilted distribution.
        limit: The estimated error above which a row is marked; None for exact moments.
        flags: Whether the factor exists (and is not masked out), whether its value lies in the support, and whether
            all its numbers are finite.
        discrete: Whether the factor is the probability of a discrete value, and not a density.
    """
    counted, supported, finite = flags
    tilted = answer.tilted
    # fields 1 and 2 are the shift and root of tilted moments, or the slope and precision of a message
    proper = (tilted.log_z < jnp.inf) & jnp.all(jnp.isfinite(tilted[1])) & jnp.all(jnp.isfinite(tilted[2]))
    proper &= tilted.positive
    if limit is not None:
        proper &= jnp.isfinite(tilted.error)
    status = jnp.where(proper, Status.OK, Status.IMPROPER)
    if limit is not None:
        status = worst_of(status, jnp.where(tilted.error <= limit, Status.OK, Status.INACCURATE))
    possible = supported
    if not tilted.drawn:
        possible &= ~(tilted.log_z == -jnp.inf)
    else:  # if all random points miss the row's mass, this does not prove that there is none
        status = worst_of(status, jnp.where(tilted.drawn.rounds > 0, Status.TEMPERED, Status.OK))
        status = jnp.where(tilted.drawn.reliable, status, Status.UNRELIABLE)
    if discrete:
        rounding = _ROUNDING * float(jnp.finfo(tilted.log_z.dtype).eps)
        # an error that does not mark the row excuses an excess; a larger one shows that the moments mean nothing
        status = jnp.where(tilted.log_z > max(limit or 0.0, rounding), Status.ABOVE_ONE, status)
    if answer.saturated is not None:
        status = worst_of(status, jnp.where(answer.saturated, Status.SATURATED, Status.OK))
    status = jnp.where(possible, status, Status.OUT_OF_SUPPORT)
    status = jnp.where(finite, status, Status.NOT_FINITE)
    return jnp.where(counted, status, Status.OK).astype(jnp.int32)


class Visit(NamedTuple):
    """The result of a visit of one factor.

    Attributes:
        update: The proposed change of the belief.
        accepted: ``()`` whether the change is accepted.
        site: The factor's site after the visit; None for a factor without one.
        info: ``RowInfo``, or ``VisitInfo`` for a factor with a site.
    """

    update: Update
    accepted: jax.Array
    site: jax.Array | None
    info: RowInfo | VisitInfo


def visit_in_cavity(
    family: Family,
    outside: Outside,
    factor: Factor,
    ready: ReadyFactor,
    element: Index,
    flags: Flags,
    site: jax.Array | None,
    exchange: Exchange | None,
) -> Visit:
    """Computes a factor's tilted moments in its cavity distribution, judges and projects them.

    Args:
        family: How the belief is stored.
        outside: The cavity distribution.
        factor: The factor's group.
        ready: The group at this row.
        element: The number of the element in the group.
        flags: As in ``judge``.
        site: The factor's site before the visit; None to absorb the factor without a site.
        exchange: The power and damping for the exchange of the site.
    """
    counted, supported, finite = flags
    dtype = outside.mean.dtype
    answer = family.tilt(outside, factor, ready, element)
    flags = (counted, supported, finite & outside.finite)
    status = judge(answer, family.error_limit(factor, dtype), flags, factor.observation.discrete)
    update = family.exchange(outside, answer, factor, site, exchange)
    error = jnp.asarray(answer.tilted.error, dtype)
    if site is None or update.site is None or update.evidence is None:
        status = jnp.where(counted & ~update.proper & ~is_refused(status), Status.IMPROPER, status).astype(jnp.int32)
        accepted = counted & ~is_refused(status)
        log_z = jnp.where(accepted, answer.tilted.log_z, 0.0)
        return Visit(update, accepted, None, RowInfo(log_z, status, jnp.where(accepted, error, 0.0)))
    happened = jnp.where(update.proper, jnp.where(outside.whole, Status.OK, Status.PARTIAL), Status.HELD)
    status = worst_of(status, jnp.where(counted, happened, Status.OK)).astype(jnp.int32)
    accepted = counted & (status < Status.HELD)
    # the evidence counts even if the site is not exchanged
    there = counted & ~is_refused(status) & jnp.isfinite(update.evidence)
    info = VisitInfo(
        jnp.where(there, answer.tilted.log_z, 0.0),
        status,
        jnp.where(accepted, error, 0.0),
        jnp.where(there, update.evidence, 0.0),
        (update.clamped & accepted).astype(jnp.int32),
    )
    return Visit(update, accepted, jnp.where(accepted, update.site, site), info)


def visit_constant(
    factor: Factor, ready: ReadyFactor, element: Index, flags: Flags, site: jax.Array | None, dtype: DTypeLike
) -> tuple[jax.Array | None, RowInfo | VisitInfo]:
    """Visits a factor that does not depend on θ: it contributes only to the evidence."""
    answer = Answer(ready.tilt(element, jnp.zeros(0, dtype), jnp.zeros((0, 0), dtype)))
    status = judge(answer, factor.rule.reported(dtype, 0), flags, factor.observation.discrete)
    accepted = flags[0] & ~is_refused(status)
    log_z = jnp.where(accepted, answer.tilted.log_z, 0.0)
    info = RowInfo(log_z, status, jnp.where(accepted, jnp.asarray(answer.tilted.error, dtype), 0.0))
    if site is None:
        return None, info
    return site, VisitInfo(*info, info.log_z, jnp.zeros((), jnp.int32))


def visit(
    family: Family,
    window: Window,
    slot: Index,
    factor: Factor,
    ready: ReadyFactor,
    element: Index,
    flags: Flags,
    site: jax.Array | None,
    exchange: Exchange | None,
) -> tuple[Window, jax.Array | None, RowInfo | VisitInfo]:
    """Visits one element of a factor group, and applies the update to the window's belief."""
    if factor.field_size == 0:
        return window, *visit_constant(factor, ready, element, flags, site, window.matrix.dtype)
    outside = family.cavity(window, slot, factor, site, exchange)
    visited = visit_in_cavity(family, outside, factor, ready, element, flags, site, exchange)
    window = family.accept(window, slot, visited.update, visited.accepted)
    return window, visited.site, visited.info


def visit_elements(
    family: Family,
    window: Window,
    slot: Index,
    factor: Factor,
    ready: ReadyFactor,
    flags: Flags,
    sites: jax.Array | None,
    exchange: Exchange | None,
) -> tuple[Window, jax.Array | None, RowInfo | VisitInfo]:
    """Visits the elements of a factor group one after the other; ``sites`` are ``(E, numbers)``."""

    def step(carry: Window, e: jax.Array) -> tuple[Window, tuple[jax.Array | None, RowInfo | VisitInfo]]:
        site = None if sites is None else sites[e]
        at, own = slot + e * factor.field_size, tuple(f[e] for f in flags)
        window, site, info = visit(family, carry, at, factor, ready, e, own, site, exchange)
        return window, (site, info)

    window, (new, infos) = jax.lax.scan(step, window, jnp.arange(factor.count))
    return window, new, join(infos)


# ------------------------------------------------------------------------------------------ one row


def visit_row(
    family: Family,
    window: Window,
    slot: Index,
    factors: Sequence[Factor],
    inputs: Sequence[ArrayLike],
    flags: Sequence[Flags],
    sites: Sequence[jax.Array] | None = None,
    exchange: Exchange | None = None,
    key: jax.Array | None = None,
) -> tuple[Window, Any, Any]:
    """Visits one row. Either all of its factors are accepted, or none."""
    before, infos, after = window, [], []
    for i, (factor, own) in enumerate(zip(factors, flags, strict=True)):
        ready = ReadyFactor(factor, inputs, key_of_group(key, i))
        site = None if sites is None else sites[i]
        if factor.count == 1:  # a scan would cost more than the factor
            first = tuple(f[0] for f in own)
            window, new, info = visit(
                family, window, slot, factor, ready, 0, first, None if site is None else site[0], exchange
            )
            new = None if new is None else new[None]
        else:
            window, new, info = visit_elements(family, window, slot, factor, ready, own, site, exchange)
        slot = slot + factor.count * factor.field_size
        infos.append(info)
        after.append(new)
    if len(infos) == 1 and factors[0].count == 1:
        return window, None if sites is None else tuple(after), infos[0]
    info = join_all(infos)
    accepted = ~is_refused(info.status)
    window = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), window, before)
    if sites is None:
        return window, None, info
    return window, tuple(jnp.where(accepted, a, b) for a, b in zip(after, sites, strict=True)), info


def key_of_group(key: jax.Array | None, i: int) -> jax.Array | None:
    """The key of the i-th factor group of a row."""
    return None if key is None else jax.random.fold_in(key, i)


def slots_per_row(factors: Sequence[Factor]) -> int:
    """The number of rows of A for one row of data."""
    return sum(f.count * f.field_size for f in factors)


# ------------------------------------------------------------------------------------------ a sequence of rows


def visit_rows(
    family: Family,
    dynamics: Dynamics,
    factors: Sequence[Factor],
    belief: Belief,
    moving: Moving,
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
    gaps: jax.Array | None,
    count: jax.Array,
    sites: Sequence[jax.Array] | None = None,
    exchange: Exchange | None = None,
    draws: Draws | None = None,
) -> tuple[Belief, Moving, Any, Any]:
    """Visits the first ``count`` of some rows in order.

    Args:
        family: How the belief is stored.
        dynamics: How the belief moves between rows.
        factors: A row's factors.
        belief: The belief before the rows.
        moving: The state of the dynamics before the rows.
        rows: Row arrays with a common leading axis n.
        shared: Shared arrays.
        gaps: ``(n,)`` time since the row before, or None for 1.
        count: ``()`` the number of rows; the rest of the n rows is padding and costs nothing.
        sites: The sites of each group of factors ``(n, E, numbers)``; None to absorb the rows without sites.
        exchange: The power and damping for the exchange of sites.
        draws: The source of random points for Monte Carlo rules; None for fixed points.

    Returns:
        The belief, the state of the dynamics, and the sites after the rows; and ``RowInfo`` or, with sites,
        ``VisitInfo`` of arrays ``(n,)`` (zeros for padding).
    """
    length, size, dtype = rows[0].shape[0], belief.mean.shape[0], belief.mean.dtype
    static = isinstance(dynamics, Static)
    per_row = slots_per_row(factors)
    block = min(length, family.rows_per_window(size, per_row)) if static else 1
    whole = -(-length // block) * block  # inside a user's jit a batch may have any length
    rows = [jnp.pad(a, [(0, whole - length), *[(0, 0)] * (a.ndim - 1)]) for a in rows]
    empty = empty_info(whole, dtype, sites is not None)
    if sites is not None:
        sites = tuple(jnp.pad(a, [(0, whole - length), (0, 0), (0, 0)]) for a in sites)
    width = family.width(size) if block == 1 and static else size
    belief = family.pad(belief, width)
    # the number of rows absorbed so far, which is needed only if a rule draws random points
    counting = draws is not None and any(family.draws(f) for f in factors)
    seen = draws.numbers if counting and draws is not None and draws.numbers.ndim == 0 else None

    def key_of(t: jax.Array, seen: jax.Array | None) -> jax.Array | None:
        if not counting or draws is None:
            return None
        return jax.random.fold_in(draws.key, draws.numbers[t] if seen is None else seen)

    def counted_on(seen: jax.Array | None, info: RowInfo | VisitInfo) -> jax.Array | None:
        return None if seen is None else seen + (~is_refused(info.status)).astype(seen.dtype)

    def fields(theta: jax.Array, *row: jax.Array) -> tuple[jax.Array, jax.Array, list[Flags]]:
        """The matrix A ``(T, N)``, h at theta ``(T,)`` and the flags of one row."""
        inputs = [*[a[None] for a in row], *shared]
        matrices, values = zip(*(g.matrices(theta, *inputs) for g in factors), strict=True)
        matrix = jnp.concatenate([m.reshape(-1, size) for m in matrices])
        value = jnp.concatenate([v.reshape(-1) for v in values])
        return jnp.pad(matrix, ((0, 0), (0, width - size))), value, [g.flags(*inputs) for g in factors]

    def one_row(t: jax.Array, carry: tuple) -> tuple:
        belief, moving, sites, info, seen = carry
        row = [jax.lax.dynamic_index_in_dim(a, t, keepdims=False) for a in rows]
        before, moved = belief, belief
        gap = moving.clock
        if not static:
            gap = gap + jnp.where(moving.started, 1.0 if gaps is None else gaps[t], 0.0)
            moved = dynamics.move(cast(Gaussian, family), belief, moving.setup, gap)
        matrix, value, flags = fields(family.origin(moved.mean[:size]), *row)
        window = family.open(moved, matrix, value, False)
        inputs = [*[a[None] for a in row], *shared]
        own = None if sites is None else [jax.lax.dynamic_index_in_dim(a, t, keepdims=False) for a in sites]
        window, own, now = visit_row(family, window, 0, factors, inputs, flags, own, exchange, key_of(t, seen))
        belief = family.close(window)
        if not static:
            accepted = ~is_refused(now.status)
            belief = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), belief, before)
            moving = Moving(jnp.where(accepted, 0.0, gap), moving.started | accepted, moving.setup)
        return belief, moving, _put(sites, own, t), _put(info, now, t), counted_on(seen, now)

    def one_block(b: jax.Array, carry: tuple) -> tuple:
        belief, moving, sites, info, seen = carry
        first = b * block
        some = [jax.lax.dynamic_slice_in_dim(a, first, block) for a in rows]
        matrix, value, flags = jax.vmap(fields, (None, *[0] * len(some)))(belief.mean, *some)
        window = family.open(belief, matrix.reshape(-1, size), value.reshape(-1), True)

        def step(r: jax.Array, inner: tuple) -> tuple:
            window, sites, info, seen = inner

            def take(a: jax.Array) -> jax.Array:
                return jax.lax.dynamic_index_in_dim(a, r, keepdims=False)

            there = first + r < count
            own = jax.tree.map(take, flags)
            own = [(counted & there, supported, finite) for counted, supported, finite in own]
            inputs = [*[take(a)[None] for a in some], *shared]
            before = (
                None if sites is None else [jax.lax.dynamic_index_in_dim(a, first + r, keepdims=False) for a in sites]
            )
            key = key_of(first + r, seen)
            window, new, now = visit_row(family, window, r * per_row, factors, inputs, own, before, exchange, key)
            return window, _put(sites, new, first + r), _put(info, now, first + r), counted_on(seen, now)

        window, sites, info, seen = jax.lax.fori_loop(0, block, step, (window, sites, info, seen))
        return family.close(window), moving, sites, info, seen

    blocks = (count + block - 1) // block
    one = one_row if block == 1 else one_block
    initial = (belief, moving, sites, empty, seen)
    if length == 1:  # a loop would cost more than the row
        belief, moving, sites, info, _ = one(jnp.zeros((), int), initial)
    else:
        belief, moving, sites, info, _ = jax.lax.fori_loop(0, blocks, one, initial)
    belief = family.trim(belief, size)
    return belief, moving, jax.tree.map(lambda a: a[:length], sites), jax.tree.map(lambda a: a[:length], info)


def visit_prior(
    family: Family,
    factors: Mapping[str, Factor],
    belief: Belief,
    sites: Mapping[str, jax.Array],
    inputs: Sequence[ArrayLike],
    exchange: Exchange,
) -> tuple[Belief, dict[str, jax.Array], dict[str, VisitInfo]]:
    """Visits the prior factors once, one after the other.

    Args:
        family: How the belief is stored.
        factors: ``{key: factor group}``.
        belief: The belief before the visit.
        sites: ``{key: (E, numbers)}`` the sites of the prior factors.
        inputs: The arrays that the factors take in the place of a row's arrays.
        exchange: The power and damping for the exchange of sites.

    Returns:
        The belief, the sites, and the infos ``{key: VisitInfo}``, whose fields are numbers.
    """
    after, infos = {}, {}
    for key, factor in factors.items():
        matrix, value = factor.matrices(family.origin(belief.mean), *inputs)
        window = family.open(belief, matrix.reshape(-1, belief.mean.shape[0]), value.reshape(-1), False)
        flags, own = [factor.flags(*inputs)], [sites[key]]
        window, (after[key],), infos[key] = visit_row(family, window, 0, [factor], inputs, flags, own, exchange)
        belief = family.close(window)
    return belief, after, infos


def _put(arrays: PyTree, now: PyTree, t: jax.Array) -> PyTree:
    """Writes the values of row t into arrays of rows."""
    return jax.tree.map(lambda a, x: jax.lax.dynamic_update_index_in_dim(a, x, t, 0), arrays, now)
