"""The one kernel: cavity → tilt → project → guard → absorb, for one factor, one row, and a stretch of rows."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.dynamics import Dynamics, Static
from adfpp.factors import FactorGroup
from adfpp.families import Belief, Family
from adfpp.families.gaussian import Window
from adfpp.tilt import ClosedForm, Tilted


class Status(IntEnum):
    """What became of a row. Codes from ``NOT_FINITE`` on are refusals: the belief is as it was before."""

    OK = 0
    INACCURATE = 1
    NOT_FINITE = 2
    OUT_OF_SUPPORT = 3
    IMPROPER = 4

    @property
    def refused(self) -> bool:
        """Whether the row was left out."""
        return self >= Status.NOT_FINITE

    @property
    def advice(self) -> str:
        """What it means and what to do."""
        return _ADVICE[self]


_ADVICE = {
    Status.OK: "absorbed",
    Status.INACCURATE: (
        "absorbed, though the integral's estimated error is above what is asked for; try moments='accurate'"
    ),
    Status.NOT_FINITE: "refused: NaN or infinite values in the row; drop, impute or mask them",
    Status.OUT_OF_SUPPORT: "refused: the observed value has probability zero under the model; check the labels' coding",
    Status.IMPROPER: "refused: the tilted moments are not finite or not proper; check the scale of the row",
}


class RowInfo(NamedTuple):
    """What became of each row.

    Attributes:
        log_z: log predictive density of the row before it was absorbed; 0 for a refused row.
        status: ``Status`` code.
        error: Estimated error of its tilted moments; 0 for closed forms.
    """

    log_z: jax.Array | np.ndarray
    status: jax.Array | np.ndarray
    error: jax.Array | np.ndarray


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


def whiten(f: jax.Array) -> tuple[jax.Array, jax.Array]:
    """F = L Q, with L ``(k, k)`` lower triangular and the rows of Q ``(k, N)`` orthonormal, 0 where F is deficient."""
    size = f.shape[0]
    if size == 1:
        norm = jnp.sqrt(f[0] @ f[0])
        return norm[None, None], _over(f, norm, (norm > 0) & (norm < jnp.inf))
    if size <= 3:
        return _gram_schmidt(f)
    q, r = jnp.linalg.qr(f.T)
    sign = jnp.where(jnp.diagonal(r) < 0, -1.0, 1.0)
    return (r * sign[:, None]).T, _over((q * sign).T, jnp.ones((), f.dtype), jnp.all(jnp.isfinite(r)))


def _over(a: jax.Array, norm: jax.Array, usable: jax.Array) -> jax.Array:
    """A / norm, or zero: a row that is not finite must not reach the belief even when multiplied by nothing."""
    return jnp.where(usable, a * (1.0 / jnp.where(usable, norm, 1.0)), 0.0)


def _gram_schmidt(f: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gram-Schmidt, each row cleaned twice: enough for any conditioning."""
    size, dtype = f.shape[0], f.dtype
    rows: list[jax.Array] = []
    scale = [[jnp.zeros((), dtype)] * size for _ in range(size)]
    tiny = 4.0 * float(jnp.finfo(dtype).eps)
    for i in range(size):
        rest, before = f[i], jnp.sqrt(f[i] @ f[i])
        for _ in range(2):
            for j, q in enumerate(rows):
                part = q @ rest
                scale[i][j] = scale[i][j] + part
                rest = rest - part * q
        norm = jnp.sqrt(rest @ rest)
        usable = (norm > tiny * before) & (norm < jnp.inf)
        # NaN stays in the scale, for the guard to see
        scale[i][i] = jnp.where(norm <= tiny * before, 0.0, norm)
        rows.append(_over(rest, norm, usable))
    return jnp.stack([jnp.stack(r) for r in scale]), jnp.stack(rows)


def judge(group: FactorGroup, tilted: Tilted, counted: jax.Array, supported: jax.Array, finite: jax.Array) -> jax.Array:
    """The guard: the ``Status`` of one factor's tilted moments."""
    proper = jnp.all(jnp.isfinite(tilted.shift)) & jnp.all(jnp.isfinite(tilted.root)) & (tilted.log_z < jnp.inf)
    proper &= jnp.all(jnp.diagonal(tilted.root) > 0)
    if not isinstance(group.rule, ClosedForm):
        proper &= jnp.isfinite(tilted.error)
    status = jnp.where(proper, Status.OK, Status.IMPROPER)
    if not isinstance(group.rule, ClosedForm):
        inaccurate = ~(tilted.error <= group.rule.reported(tilted.shift.dtype, group.field_size))
        status = jnp.where(proper & inaccurate, Status.INACCURATE, status)
    status = jnp.where(supported & ~(tilted.log_z == -jnp.inf), status, Status.OUT_OF_SUPPORT)
    status = jnp.where(finite, status, Status.NOT_FINITE)
    return jnp.where(counted, status, Status.OK).astype(jnp.int32)


def fold_factor(
    family: Family,
    window: Window,
    group: FactorGroup,
    tilt: Any,
    e: Any,
    slot: Any,
    flags: Sequence[jax.Array],
) -> tuple[Window, RowInfo]:
    """Folds one factor into the window, with its flags (counted, supported, finite): look, tilt, judge, absorb."""
    counted, supported, finite = flags
    mean, f = family.look(window, slot, group.field_size)
    # what is not finite shows in the field's mean or its root: both are made of every number in the row's A
    scale, q = whiten(f) if group.field_size else (jnp.zeros((0, 0), f.dtype), f)
    finite = finite & jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(scale))
    tilted = tilt(e, mean, scale)
    status = judge(group, tilted, counted, supported, finite)
    accepted = counted & (status < Status.NOT_FINITE)
    if group.field_size:
        shift = jnp.where(accepted, tilted.shift, 0.0)
        root = jnp.where(accepted, tilted.root, jnp.eye(group.field_size, dtype=mean.dtype))
        window = family.absorb(window, slot, q, shift, root)
    log_z = jnp.where(accepted, tilted.log_z, 0.0)
    return window, RowInfo(log_z, status, jnp.where(accepted, jnp.asarray(tilted.error, mean.dtype), 0.0))


def _fold_group(
    family: Family,
    window: Window,
    group: FactorGroup,
    inputs: Sequence[Any],
    slot: Any,
    flags: Sequence[jax.Array],
) -> tuple[Window, RowInfo]:
    """Folds all elements of one site at one row, one after the other."""
    tilt = group.prepare(*inputs)
    if group.count == 1:
        return fold_factor(family, window, group, tilt, 0, slot, tuple(f[0] for f in flags))

    def step(carry: Window, e: jax.Array) -> tuple[Window, RowInfo]:
        return fold_factor(family, carry, group, tilt, e, slot + e * group.field_size, tuple(f[e] for f in flags))

    window, info = jax.lax.scan(step, window, jnp.arange(group.count))
    return window, RowInfo(jnp.sum(info.log_z), jnp.max(info.status), jnp.max(info.error))


def _fold_row(
    family: Family,
    window: Window,
    groups: Sequence[FactorGroup],
    inputs: Sequence[Any],
    slot: Any,
    flags: Sequence[Sequence[jax.Array]],
) -> tuple[Window, RowInfo]:
    """Folds one row: all of it, or nothing."""
    before, infos = window, []
    for group, own in zip(groups, flags, strict=True):
        window, info = _fold_group(family, window, group, inputs, slot, own)
        slot = slot + group.count * group.field_size
        infos.append(info)
    if len(infos) == 1 and groups[0].count == 1:
        return window, infos[0]
    status = jnp.max(jnp.stack([i.status for i in infos]))
    accepted = status < Status.NOT_FINITE
    window = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), window, before)
    log_z = jnp.where(accepted, sum(i.log_z for i in infos), 0.0)
    error = jnp.where(accepted, jnp.max(jnp.stack([i.error for i in infos])), 0.0)
    return window, RowInfo(log_z, status, error)


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
) -> tuple[Belief, Moving, RowInfo]:
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

    Returns:
        The belief, its time side, and ``RowInfo`` of arrays ``(n,)`` (zeros for padding).
    """
    length, size, dtype = rows[0].shape[0], belief.mean.shape[0], belief.mean.dtype
    static = isinstance(dynamics, Static)
    per_row = slots_per_row(groups)
    block = min(length, family.rows_per_window(size, per_row)) if static else 1
    whole = -(-length // block) * block  # inside somebody's jit a batch may have any length
    rows = [jnp.pad(a, [(0, whole - length), *[(0, 0)] * (a.ndim - 1)]) for a in rows]
    empty = RowInfo(jnp.zeros(whole, dtype), jnp.zeros(whole, jnp.int32), jnp.zeros(whole, dtype))
    width = family.width(size) if block == 1 and static else size
    belief = family.pad(belief, width)

    def fields(theta: jax.Array, *row: jax.Array) -> tuple[jax.Array, jax.Array, list[Any]]:
        """A ``(T, N)``, h at theta ``(T,)`` and flags of one row."""
        inputs = [*[a[None] for a in row], *shared]
        matrices, values = zip(*(g.matrices(theta, *inputs) for g in groups), strict=True)
        matrix = jnp.concatenate([m.reshape(-1, size) for m in matrices])
        value = jnp.concatenate([v.reshape(-1) for v in values])
        return jnp.pad(matrix, ((0, 0), (0, width - size))), value, [g.flags(*inputs) for g in groups]

    def one_row(t: jax.Array, carry: tuple) -> tuple:
        belief, moving, info = carry
        row = [jax.lax.dynamic_index_in_dim(a, t, keepdims=False) for a in rows]
        before, moved = belief, belief
        gap = moving.clock
        if not static:
            gap = gap + jnp.where(moving.started, 1.0 if gaps is None else gaps[t], 0.0)
            moved = dynamics.move(family, belief, moving.setup, gap)
        matrix, value, flags = fields(moved.mean[:size], *row)
        window = family.open(moved, matrix, value, False)
        inputs = [*[a[None] for a in row], *shared]
        window, now = _fold_row(family, window, groups, inputs, 0, flags)
        belief = family.close(window)
        if not static:
            accepted = now.status < Status.NOT_FINITE
            belief = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), belief, before)
            moving = Moving(jnp.where(accepted, 0.0, gap), moving.started | accepted, moving.setup)
        return belief, moving, _put(info, now, t)

    def one_block(b: jax.Array, carry: tuple) -> tuple:
        belief, moving, info = carry
        first = b * block
        some = [jax.lax.dynamic_slice_in_dim(a, first, block) for a in rows]
        matrix, value, flags = jax.vmap(fields, (None, *[0] * len(some)))(belief.mean, *some)
        window = family.open(belief, matrix.reshape(-1, size), value.reshape(-1), True)

        def step(r: jax.Array, inner: tuple) -> tuple:
            window, info = inner

            def take(a: jax.Array) -> jax.Array:
                return jax.lax.dynamic_index_in_dim(a, r, keepdims=False)

            there = first + r < count
            own = jax.tree.map(take, flags)
            own = [(counted & there, supported, finite) for counted, supported, finite in own]
            inputs = [*[take(a)[None] for a in some], *shared]
            window, now = _fold_row(family, window, groups, inputs, r * per_row, own)
            return window, _put(info, now, first + r)

        window, info = jax.lax.fori_loop(0, block, step, (window, info))
        return family.close(window), moving, info

    blocks = (count + block - 1) // block
    one = one_row if block == 1 else one_block
    if length == 1:  # a loop would cost more than the row
        belief, moving, info = one(jnp.zeros((), int), (belief, moving, empty))
    else:
        belief, moving, info = jax.lax.fori_loop(0, blocks, one, (belief, moving, empty))
    return family.trim(belief, size), moving, RowInfo(*(a[:length] for a in info))


def _put(info: RowInfo, now: RowInfo, t: Any) -> RowInfo:
    return RowInfo(*(jax.lax.dynamic_update_index_in_dim(a, x, t, 0) for a, x in zip(info, now, strict=True)))
