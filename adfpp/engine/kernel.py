"""The one kernel: cavity → tilt → project → guard → absorb, for one factor, one row, and a stretch of rows."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from adfpp.engine.dynamics import Dynamics, Static
from adfpp.engine.factor import FactorGroup
from adfpp.engine.families import Belief, Family, Gaussian, Product
from adfpp.engine.families.gaussian import Window
from adfpp.engine.families.product.marginals import reported, respond, roster
from adfpp.engine.linalg import inverse_upper, reversed_cholesky, whiten
from adfpp.engine.sites import cavity, least_pivot, site_of, told
from adfpp.engine.status import RowInfo, Status, VisitInfo, empty_info, is_refused, join, join_all, worst_of
from adfpp.engine.tilt import ClosedForm, Message, Tilted, Variational
from adfpp.engine.tilt.base import Drawn


class Exchange(NamedTuple):
    """How sites are exchanged for new ones.

    Attributes:
        power: ``()`` the fraction of a factor that is tilted with at a time.
        damping: ``()`` how much of the step is taken, in (0, 1].
    """

    power: jax.Array
    damping: jax.Array


class Draws(NamedTuple):
    """What the random points of Monte Carlo rules are made from; a row's key is ``key`` folded with its number.

    Attributes:
        key: A JAX key.
        numbers: ``()`` rows absorbed so far: the first row's number, those after it count on over what is absorbed;
            or ``(n,)`` each row's own number, for rows that are visited again with the same points.
    """

    key: jax.Array
    numbers: jax.Array


class Moving(NamedTuple):
    """The time side of a fold.

    Attributes:
        clock: ``()`` time since the belief was last moved.
        started: ``()`` whether any row has been absorbed.
        setup: What the dynamics keeps.
    """

    clock: jax.Array
    started: jax.Array
    setup: Any


def judge(
    group: FactorGroup,
    tilted: Tilted | Message,
    counted: jax.Array,
    supported: jax.Array,
    finite: jax.Array,
    worst: float | None = None,
    saturated: jax.Array | None = None,
) -> jax.Array:
    """The guard: the ``Status`` of one factor's tilted moments.

    Args:
        group: The factor's group.
        tilted: Its moments.
        counted: Whether it is there.
        supported: Whether its value lies in the support.
        finite: Whether all its numbers are.
        worst: The error above which it is marked; that of the group's rule when None.
        saturated: Whether a probability was held at the most certain that the dtype can say; None where there is none.
    """
    exact = isinstance(group.rule, ClosedForm) and worst is None
    proper = (tilted.log_z < jnp.inf) & jnp.all(jnp.isfinite(tilted[1])) & jnp.all(jnp.isfinite(tilted[2]))
    if isinstance(tilted, Tilted):
        proper &= jnp.all(jnp.diagonal(tilted.root) > 0)
    if not exact:
        proper &= jnp.isfinite(tilted.error)
    status = jnp.where(proper, Status.OK, Status.IMPROPER)
    if not exact:
        if worst is None:
            assert not isinstance(group.rule, ClosedForm)
            worst = group.rule.reported(tilted[1].dtype, group.field_size)
        inaccurate = ~(tilted.error <= worst)
        status = worst_of(status, jnp.where(inaccurate, Status.INACCURATE, Status.OK))
    drawn = tilted.drawn if isinstance(tilted, Tilted) else ()
    if isinstance(drawn, Drawn):
        status = worst_of(status, jnp.where(drawn.rounds > 0, Status.TEMPERED, Status.OK))
        status = jnp.where(drawn.reliable, status, Status.UNRELIABLE)
    if saturated is not None:
        status = worst_of(status, jnp.where(saturated, Status.SATURATED, Status.OK))
    possible = supported
    if not isinstance(drawn, Drawn):  # points that all miss the row's mass do not show that it has none
        possible &= ~(tilted.log_z == -jnp.inf)
    status = jnp.where(possible, status, Status.OUT_OF_SUPPORT)
    status = jnp.where(finite, status, Status.NOT_FINITE)
    return jnp.where(counted, status, Status.OK).astype(jnp.int32)


class Visit(NamedTuple):
    """One factor visited in its field, before the belief moves.

    Attributes:
        site: Its site after the visit.
        shift: ``(k,)`` where the belief's whitened field moves to.
        root: ``(k, k)`` a root of its covariance then.
        info: Its ``VisitInfo``.
    """

    site: jax.Array
    shift: jax.Array
    root: jax.Array
    info: VisitInfo


def visit_factor(
    group: FactorGroup,
    tilt: Any,
    e: Any,
    mean: jax.Array,
    scale: jax.Array,
    flags: Sequence[jax.Array],
    site: jax.Array,
    exchange: Exchange,
) -> Visit:
    """Takes a factor's site out of the belief in its field, tilts, and gives the site that should stand there.

    Args:
        group: The factor's group.
        tilt: Its prepared tilt.
        e: Which of the group's elements.
        mean: ``(k,)`` of the field under the belief.
        scale: ``(k, k)`` lower triangular root of its covariance.
        flags: (counted, supported, finite).
        site: ``(k + k(k+1)/2,)`` as it stands.
        exchange: The power and the damping.
    """
    counted, supported, finite = flags
    size, dtype = group.field_size, mean.dtype
    finite = finite & jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(scale))
    usable = jnp.where(finite, 1.0, 0.0)
    mean, scale = jnp.where(finite, mean, 0.0), jnp.where(finite, scale, 0.0)
    whole = not group.divisible
    limit = isinstance(group.rule, Variational)
    power = jnp.zeros((), dtype) if limit else exchange.power
    outside = cavity(site, mean, scale, power, divisible=not whole and not limit)
    tilted = tilt(e, outside.mean, outside.scale, None if whole or limit else outside.fraction)
    status = judge(group, tilted, counted, supported, finite)
    message, clamped = told(tilted, outside)
    proposed = site_of(message, mean, scale)
    gained = exchange.damping * (message.precision - outside.precision)
    pull = exchange.damping * (message.slope - outside.slope)
    upper = reversed_cholesky(jnp.eye(size, dtype=dtype) + gained)
    inverse = inverse_upper(upper)
    root, shift = inverse.T, inverse.T @ (inverse @ pull)
    fine = (
        outside.proper
        & jnp.all(jnp.diagonal(upper) > 0)
        & jnp.all(jnp.isfinite(proposed))
        & jnp.all(jnp.isfinite(shift))
    )
    status = _exchanged(status, counted, outside.whole, fine)
    accepted = counted & (status < Status.HELD)
    if limit:
        evidence = tilted.log_z + 0.5 * jnp.trace(outside.precision)
    else:
        evidence = (tilted.log_z + outside.evidence) / outside.fraction
    # a site that is held still counts as it stands, whatever its cavity would be worth
    there = counted & ~is_refused(status) & jnp.isfinite(evidence)
    info = VisitInfo(
        jnp.where(there, tilted.log_z, 0.0),
        status,
        jnp.where(accepted, jnp.asarray(tilted.error, dtype), 0.0) * usable,
        jnp.where(there, evidence, 0.0),
        (clamped & accepted).astype(jnp.int32),
    )
    return Visit(
        jnp.where(accepted, site + exchange.damping * (proposed - site), site),
        jnp.where(accepted, shift, 0.0),
        jnp.where(accepted, root, jnp.eye(size, dtype=dtype)),
        info,
    )


def _exchanged(status: jax.Array, counted: jax.Array, whole: jax.Array, fine: jax.Array) -> jax.Array:
    """The status of a factor once its site has been exchanged: in part, or not at all."""
    happened = jnp.where(fine, jnp.where(whole, Status.OK, Status.PARTIAL), Status.HELD)
    return worst_of(status, jnp.where(counted, happened, Status.OK)).astype(jnp.int32)


def fold_factor(
    family: Family,
    window: Window,
    group: FactorGroup,
    tilt: Any,
    e: Any,
    slot: Any,
    flags: Sequence[jax.Array],
    site: jax.Array | None,
    exchange: Exchange | None,
) -> tuple[Window, jax.Array | None, RowInfo | VisitInfo]:
    """Folds one factor into the window, with its flags (counted, supported, finite): look, tilt, judge, absorb.

    With a site, the factor is visited again: its site is taken out of the belief first, and the new one given back.
    """
    if group.field_size and (isinstance(family, Product) or (site is not None and not family.sites_in_field)):
        return _fold_in_theta(family, window, group, tilt, e, slot, flags, site, exchange)
    gaussian = cast(Gaussian, family)
    counted, supported, finite = flags
    mean, f = family.look(window, slot, group.field_size)
    # what is not finite shows in the field's mean or its root: both are made of every number in the row's A
    scale, q = whiten(f) if group.field_size else (jnp.zeros((0, 0), f.dtype), f)
    if site is not None and exchange is not None and group.field_size:
        visit = visit_factor(group, tilt, e, mean, scale, flags, site, exchange)
        window = gaussian.absorb(window, slot, q, visit.shift, visit.root)
        return window, visit.site, visit.info
    finite = finite & jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(scale))
    tilted = tilt(e, mean, scale)
    status = judge(group, tilted, counted, supported, finite)
    accepted = counted & ~is_refused(status)
    if group.field_size:
        shift = jnp.where(accepted, tilted.shift, 0.0)
        root = jnp.where(accepted, tilted.root, jnp.eye(group.field_size, dtype=mean.dtype))
        window = gaussian.absorb(window, slot, q, shift, root)
    log_z = jnp.where(accepted, tilted.log_z, 0.0)
    info = RowInfo(log_z, status, jnp.where(accepted, jnp.asarray(tilted.error, mean.dtype), 0.0))
    if site is None:
        return window, None, info
    return window, site, VisitInfo(*info, info.log_z, jnp.zeros((), jnp.int32))


class _Response(NamedTuple):
    """What a factor makes of a belief.

    Attributes:
        tilted: The tilted moments of its field.
        belief: The projection; with a message, the belief as it was.
        q: ``(k, N)`` the field's whitened directions, of a Gaussian family.
        proper: ``()`` whether the projection is.
        saturated: ``()`` whether one of its probabilities was held; None of a Gaussian family.
    """

    tilted: Tilted | Message
    belief: Any
    q: jax.Array | None
    proper: jax.Array
    saturated: jax.Array | None = None


def _respond(
    family: Family,
    window: Window,
    outside: Any,
    group: FactorGroup,
    tilt: Any,
    e: Any,
    slot: Any,
    power: jax.Array | None,
) -> tuple[_Response, jax.Array]:
    """Tilts another belief than the window's and projects; also gives whether the field is finite."""
    if isinstance(family, Product):
        rule, density, key = tilt
        field, rows = family.look(window, slot, group.field_size)
        if outside is not window.belief:
            field = field + rows @ (family.origin(outside.mean) - family.origin(window.belief.mean))
        sound = jnp.all(jnp.isfinite(field)) & jnp.all(jnp.isfinite(rows))
        rows, field = jnp.where(sound, rows, 0.0), jnp.where(sound, field, 0.0)
        key = None if key is None else jax.random.fold_in(key, e)
        answer = respond(family, group, (rule, density), e, outside, rows, field, power, key)
        return _Response(answer.tilted, answer.belief, None, answer.proper, answer.saturated), sound
    mean, _ = family.look(window, slot, group.field_size)
    _, f = family.look(window._replace(belief=outside), slot, group.field_size)
    mean = mean + f @ ((outside.mean - window.belief.mean) / outside.scale)
    scale, q = whiten(f)
    sound = jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(scale))
    tilted = tilt(e, mean, scale, power)
    if isinstance(tilted, Message):
        return _Response(tilted, outside, q, jnp.ones((), bool)), sound
    moved = cast(Gaussian, family).absorb(window._replace(belief=outside), slot, q, tilted.shift, tilted.root).belief
    return _Response(tilted, moved, q, jnp.ones((), bool)), sound


def _fold_in_theta(
    family: Any,
    window: Window,
    group: FactorGroup,
    tilt: Any,
    e: Any,
    slot: Any,
    flags: Sequence[jax.Array],
    site: jax.Array | None,
    exchange: Exchange | None,
) -> tuple[Window, jax.Array | None, RowInfo | VisitInfo]:
    """As ``fold_factor`` for a family that forgets correlations: its sites are natural parameters of θ.

    With ``natural`` parameters of a belief, cavity = natural - α site, and the new site is what the projected tilt has
    more than the cavity, over α. Without a site the cavity is the belief, and the projection stays.
    """
    counted, supported, finite = flags
    before = window.belief
    size, dtype = before.mean.shape[0], before.mean.dtype
    product = isinstance(family, Product)
    worst = reported(roster(family, group), group, dtype) if product else None
    if site is None or exchange is None:
        response, sound = _respond(family, window, before, group, tilt, e, slot, None)
        status = judge(group, response.tilted, counted, supported, finite & sound, worst, response.saturated)
        improper = counted & ~response.proper & ~is_refused(status)
        status = jnp.where(improper, Status.IMPROPER, status).astype(jnp.int32)
        accepted = counted & ~is_refused(status)
        belief = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), response.belief, before)
        log_z = jnp.where(accepted, response.tilted.log_z, 0.0)
        error = jnp.where(accepted, jnp.asarray(response.tilted.error, dtype), 0.0)
        return window._replace(belief=belief), None, RowInfo(log_z, status, error)
    limit = isinstance(group.rule, Variational)
    whole = not group.divisible
    natural = family.natural(before)
    fraction = jnp.zeros((), dtype) if limit else exchange.power
    most = jnp.max(family.share(before, site))
    complete = 1.0 - fraction * most > least_pivot(dtype)
    if not whole and not limit:
        fraction = jnp.where(complete, fraction, jnp.minimum(fraction, 0.9 / jnp.maximum(most, 0.9)))
    outside, proper = family.from_natural(natural - fraction * site, size)
    proper &= 1.0 - fraction * most > least_pivot(dtype)
    outside = jax.tree.map(lambda a, b: jnp.where(proper, a, b), outside, before)
    power = None if whole or limit else fraction
    response, sound = _respond(family, window, outside, group, tilt, e, slot, power)
    tilted = response.tilted
    status = judge(group, tilted, counted, supported, finite & sound, worst, response.saturated)
    if isinstance(tilted, Message):
        assert response.q is not None
        proposed = family.message(outside, response.q, tilted)
        evidence = tilted.log_z + 0.5 * jnp.sum(family.share(before, site))
    else:
        proposed = (family.natural(response.belief) - family.natural(outside)) / fraction
        evidence = (tilted.log_z + family.log_norm(outside) - family.log_norm(before)) / fraction
    after, fine = family.from_natural(natural + exchange.damping * (proposed - site), size)
    fine = fine & proper & response.proper & jnp.all(jnp.isfinite(proposed))
    status = _exchanged(status, counted, complete, fine)
    accepted = counted & (status < Status.HELD)
    there = counted & ~is_refused(status) & jnp.isfinite(evidence)
    belief = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), after, before)
    info = VisitInfo(
        jnp.where(there, tilted.log_z, 0.0),
        status,
        jnp.where(accepted, jnp.asarray(tilted.error, dtype), 0.0),
        jnp.where(there, evidence, 0.0),
        jnp.zeros((), jnp.int32),
    )
    new = jnp.where(accepted, site + exchange.damping * (proposed - site), site)
    return window._replace(belief=belief), new, info


def _draws(family: Family, group: FactorGroup) -> bool:
    """Whether a group's moments are made of random points."""
    return group.draws or (isinstance(family, Product) and roster(family, group).how == "drawn")


def tilt_of(group: FactorGroup, inputs: Sequence[Any], key: jax.Array | None) -> Any:
    """A group's tilt at one row, ``tilt(e, mean, scale, power=None)``; with a key its points are drawn anew."""
    tilt = group.prepare(*inputs)
    if key is None or not group.draws:
        return tilt

    def drawing(e: Any, mean: jax.Array, scale: jax.Array, power: Any = None) -> Tilted:
        return tilt(e, mean, scale, power, jax.random.fold_in(key, e))

    return drawing


def _density(group: FactorGroup, inputs: Sequence[Any], tilt: Any) -> Any:
    """The log factor at a field: a tilt of a cavity without width where the field hides it."""
    if group.density is not None:
        return group.density(*inputs)[0]

    def at(h: jax.Array, e: Any) -> jax.Array:
        return tilt(e, h, jnp.zeros((h.shape[0], h.shape[0]), h.dtype)).log_z

    return at


def fold_group(
    family: Family,
    window: Window,
    group: FactorGroup,
    inputs: Sequence[Any],
    slot: Any,
    flags: Sequence[jax.Array],
    sites: jax.Array | None = None,
    exchange: Exchange | None = None,
    key: jax.Array | None = None,
) -> tuple[Window, jax.Array | None, Any]:
    """Folds all elements of one site at one row, one after the other; ``sites`` are ``(E, numbers)``."""
    tilt = tilt_of(group, inputs, key)
    if isinstance(family, Product) and group.field_size:
        tilt = tilt, _density(group, inputs, tilt), key
    if group.count == 1:
        own = None if sites is None else sites[0]
        window, own, info = fold_factor(family, window, group, tilt, 0, slot, tuple(f[0] for f in flags), own, exchange)
        return window, None if own is None else own[None], info

    def step(carry: Window, e: jax.Array) -> tuple[Window, tuple[Any, Any]]:
        own = None if sites is None else sites[e]
        at = slot + e * group.field_size
        window, own, info = fold_factor(family, carry, group, tilt, e, at, tuple(f[e] for f in flags), own, exchange)
        return window, (own, info)

    window, (new, infos) = jax.lax.scan(step, window, jnp.arange(group.count))
    return window, new, join(infos)


def _fold_row(
    family: Family,
    window: Window,
    groups: Sequence[FactorGroup],
    inputs: Sequence[Any],
    slot: Any,
    flags: Sequence[Sequence[jax.Array]],
    sites: Sequence[jax.Array] | None = None,
    exchange: Exchange | None = None,
    key: jax.Array | None = None,
) -> tuple[Window, Any, Any]:
    """Folds one row: all of it, or nothing."""
    before, infos, after = window, [], []
    for i, (group, own) in enumerate(zip(groups, flags, strict=True)):
        site = None if sites is None else sites[i]
        window, new, info = fold_group(family, window, group, inputs, slot, own, site, exchange, part_key(key, i))
        slot = slot + group.count * group.field_size
        infos.append(info)
        after.append(new)
    if len(infos) == 1 and groups[0].count == 1:
        return window, None if sites is None else tuple(after), infos[0]
    info = join_all(infos)
    accepted = ~is_refused(info.status)
    window = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), window, before)
    if sites is None:
        return window, None, info
    return window, tuple(jnp.where(accepted, a, b) for a, b in zip(after, sites, strict=True)), info


def part_key(key: jax.Array | None, i: int) -> jax.Array | None:
    """The key of a row's i-th group."""
    return None if key is None else jax.random.fold_in(key, i)


def slots_per_row(groups: Sequence[FactorGroup]) -> int:
    """Rows of A that one row of data has."""
    return sum(g.count * g.field_size for g in groups)


def fold_rows(
    family: Family,
    dynamics: Dynamics,
    groups: Sequence[FactorGroup],
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
    """Folds the first ``count`` of some rows into a belief, in order.

    Args:
        family: How the belief is held.
        dynamics: How it moves between rows.
        groups: A row's factors.
        belief: Before the rows.
        moving: Its time side.
        rows: Row arrays with a common leading axis n.
        shared: Shared arrays.
        gaps: ``(n,)`` time since the row before, or None for 1.
        count: ``()`` how many of the n rows are there; the rest is padding and costs nothing.
        sites: For rows that are visited again, each group's sites ``(n, E, numbers)``; None to fold them for good.
        exchange: How sites are exchanged for new ones.
        draws: For rules that draw; None for fixed points.

    Returns:
        The belief, its time side, the sites after, and ``RowInfo`` or, with sites, ``VisitInfo`` of arrays ``(n,)``
        (zeros for padding).
    """
    length, size, dtype = rows[0].shape[0], belief.mean.shape[0], belief.mean.dtype
    static = isinstance(dynamics, Static)
    per_row = slots_per_row(groups)
    block = min(length, family.rows_per_window(size, per_row)) if static else 1
    whole = -(-length // block) * block  # inside somebody's jit a batch may have any length
    rows = [jnp.pad(a, [(0, whole - length), *[(0, 0)] * (a.ndim - 1)]) for a in rows]
    empty = empty_info(whole, dtype, sites is not None)
    if sites is not None:
        sites = tuple(jnp.pad(a, [(0, whole - length), (0, 0), (0, 0)]) for a in sites)
    width = family.width(size) if block == 1 and static else size
    belief = family.pad(belief, width)
    # rows absorbed so far; nothing at all where no rule draws
    counting = draws is not None and any(_draws(family, g) for g in groups)
    seen = draws.numbers if counting and draws is not None and draws.numbers.ndim == 0 else None

    def key_of(t: jax.Array, seen: jax.Array | None) -> jax.Array | None:
        if not counting or draws is None:
            return None
        return jax.random.fold_in(draws.key, draws.numbers[t] if seen is None else seen)

    def counted_on(seen: jax.Array | None, info: Any) -> jax.Array | None:
        return None if seen is None else seen + (~is_refused(info.status)).astype(seen.dtype)

    def fields(theta: jax.Array, *row: jax.Array) -> tuple[jax.Array, jax.Array, list[Any]]:
        """A ``(T, N)``, h at theta ``(T,)`` and flags of one row."""
        inputs = [*[a[None] for a in row], *shared]
        matrices, values = zip(*(g.matrices(theta, *inputs) for g in groups), strict=True)
        matrix = jnp.concatenate([m.reshape(-1, size) for m in matrices])
        value = jnp.concatenate([v.reshape(-1) for v in values])
        return jnp.pad(matrix, ((0, 0), (0, width - size))), value, [g.flags(*inputs) for g in groups]

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
        window, own, now = _fold_row(family, window, groups, inputs, 0, flags, own, exchange, key_of(t, seen))
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
            stood = (
                None if sites is None else [jax.lax.dynamic_index_in_dim(a, first + r, keepdims=False) for a in sites]
            )
            key = key_of(first + r, seen)
            window, new, now = _fold_row(family, window, groups, inputs, r * per_row, own, stood, exchange, key)
            return window, _put(sites, new, first + r), _put(info, now, first + r), counted_on(seen, now)

        window, sites, info, seen = jax.lax.fori_loop(0, block, step, (window, sites, info, seen))
        return family.close(window), moving, sites, info, seen

    blocks = (count + block - 1) // block
    one = one_row if block == 1 else one_block
    start = (belief, moving, sites, empty, seen)
    if length == 1:  # a loop would cost more than the row
        belief, moving, sites, info, _ = one(jnp.zeros((), int), start)
    else:
        belief, moving, sites, info, _ = jax.lax.fori_loop(0, blocks, one, start)
    belief = family.trim(belief, size)
    return belief, moving, jax.tree.map(lambda a: a[:length], sites), jax.tree.map(lambda a: a[:length], info)


def fold_prior(
    family: Family,
    groups: Mapping[str, FactorGroup],
    belief: Belief,
    sites: Mapping[str, jax.Array],
    inputs: Sequence[Any],
    exchange: Exchange,
) -> tuple[Belief, dict[str, jax.Array], dict[str, VisitInfo]]:
    """Visits the prior's factors once, one after the other.

    Args:
        family: How the belief is held.
        groups: ``{key: factors}``.
        belief: Before the visit.
        sites: ``{key: (E, numbers)}``.
        inputs: What the factors take in the place of a row's arrays.
        exchange: How sites are exchanged for new ones.

    Returns:
        The belief, the sites and what became of them, ``{key: VisitInfo}`` of numbers.
    """
    after, infos = {}, {}
    for key, group in groups.items():
        matrix, value = group.matrices(family.origin(belief.mean), *inputs)
        window = family.open(belief, matrix.reshape(-1, belief.mean.shape[0]), value.reshape(-1), False)
        flags = group.flags(*inputs)
        window, after[key], infos[key] = fold_group(family, window, group, inputs, 0, flags, sites[key], exchange)
        belief = family.close(window)
    return belief, after, infos


def _put(arrays: Any, now: Any, t: Any) -> Any:
    """One row's values put into its place in arrays of rows."""
    return jax.tree.map(lambda a, x: jax.lax.dynamic_update_index_in_dim(a, x, t, 0), arrays, now)
