"""Passes over the rows of a state-space model: the filter, the forward pass with sites, the backward pass, visits.

The belief of a filter at row t is the belief given the rows up to t. With a move ``θ⁺ = c + f θ + R w``
(``Transition``) between rows, the belief given all rows follows from the last row backwards (Rauch, Tung and Striebel
1965). With roots of covariances, one QR decomposition writes the uncertainty of θ and θ⁺ in common coordinates,

    θ⁺ - m⁻ = T a,        θ - m = X a + Y b,        a, b ~ N(0, I),

so that, with (mₛ⁺, Sₛ⁺) the smoothed belief of θ⁺,

    mₛ = m + X T⁻¹ (mₛ⁺ - m⁻),        Cₛ = Y Yᵀ + (X T⁻¹ Sₛ⁺)(X T⁻¹ Sₛ⁺)ᵀ.

This covariance is a sum of squares, which is proper at any precision. X T⁻¹ is the gain ``f C (C⁻)⁻¹``.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.dynamics import Dynamics
from adfpp.engine.families import Belief, Exchange
from adfpp.engine.kernel import Moving, visit_rows
from adfpp.engine.sites import unpack
from adfpp.engine.status import VisitInfo, is_refused
from adfpp.learn.ep.iterate import Progress
from adfpp.learn.ep.sweeps import Sites, Summed, propose_sites, sum_sites
from adfpp.learn.stream import DataArray, suitable_chunk
from adfpp.model import Program
from adfpp.model.environment import Same

T = TypeVar("T")  # arrays, or a pytree of arrays

_CHUNK_BYTES = 1 << 25  # 32 MB of roots in one chunk, a small part of the memory
_LEAST_LEFT = 0.01  # the part of a belief's precision that a site of negative precision must leave in any direction
# (fraction of the old sites, fraction of the new sites): from all of the change to none of it, then from all of the
# old sites to none of them
_SHARES = ((0.0, 1.0), (0.5, 0.5), (0.75, 0.25), (1.0, 0.0), (0.5, 0.0), (0.25, 0.0), (0.0, 0.0))


class Filtered(NamedTuple):
    """The result of the filter.

    Attributes:
        belief: Mean ``(n, N)`` and root ``(n, N, N)`` at the time of each row, given the rows so far.
        gaps: ``(n,)`` the time for which the belief moved before each row; 0 until the first row was absorbed.
        sites: For each group of factors ``(n, E, numbers)``.
        info: What happened to each row.
    """

    belief: Belief
    gaps: Any
    sites: Sites
    info: VisitInfo


class Replayed(NamedTuple):
    """The result of a forward pass with sites in the place of the rows.

    Attributes:
        belief: As in ``Filtered``.
        moved: ``(n, N)`` mean of the belief before each row's site is absorbed.
        log_norm: Log of the integral of the state-space prior times all sites, each divided by its value at ``moved``.
        sites: The sites that were absorbed, for each group of factors ``(n, E, numbers)``.
        held: ``(n,)`` booleans: whether the absorbed sites differ from the requested ones.
    """

    belief: Belief
    moved: Any
    log_norm: Any
    sites: Sites
    held: Any


class Passes:
    """The passes over all rows, chunk by chunk. All chunks have the same length, and the last is padded."""

    def __init__(
        self,
        program: Program,
        dynamics: Same,
        rows: Sequence[DataArray],
        shared: Sequence[DataArray],
        setup: Any,
        progress: Progress,
        tol: float,
    ) -> None:
        self.program, self.dynamics, self.progress, self.tol = program, dynamics, progress, tol
        self.rows, self.shared, self.setup = rows, [jnp.asarray(a) for a in shared], setup
        self.total = rows[0].shape[0]
        fitting = max(1, _CHUNK_BYTES // (8 * max(1, self.program.size) ** 2))
        self.chunk = min(suitable_chunk(rows, self.total), 1 << (fitting.bit_length() - 1))

    def stretches(self) -> Iterator[tuple[slice, int]]:
        """Gives each chunk and its number of rows."""
        for start in range(0, self.total, self.chunk):
            stop = min(start + self.chunk, self.total)
            yield slice(start, stop), stop - start

    def padded(self, arrays: T, some: slice) -> T:
        """One chunk of arrays of rows, padded with zeros."""

        def one(a: DataArray) -> np.ndarray:
            part = np.asarray(a[some])
            return np.pad(part, [(0, self.chunk - len(part)), *[(0, 0)] * (part.ndim - 1)])

        return jax.tree.map(one, arrays)

    def there(self, count: int) -> np.ndarray:
        """Booleans: which rows of a chunk are not padding."""
        return np.arange(self.chunk) < count

    def filter(self, start: Belief, gaps: np.ndarray) -> Filtered:
        """Runs ADF, and stores the belief and the sites of each row."""
        zero = jnp.zeros((), start.mean.dtype)
        carry, parts = (start, Moving(zero, jnp.zeros((), bool), self.setup)), []
        for some, count in self.stretches():
            rows = self.padded([*self.rows], some)
            carry, out = self.program.compiled(_filter, self.dynamics)(
                carry, rows, self.shared, self.padded(gaps, some), self.there(count)
            )
            parts.append(jax.tree.map(lambda a, n=count: np.asarray(a)[:n], out))
            self.progress.rows(count)
        return _joined(parts)

    def replay(self, start: Belief, gaps: np.ndarray, sites: Sites, trial: Sites) -> Replayed:
        """Runs the forward pass with the sites ``trial``, or with as much of the change as keeps all beliefs proper."""
        belief, parts = start, []
        for some, count in self.stretches():
            rows, old, new = self.padded([*self.rows], some), self.padded(sites, some), self.padded(trial, some)
            moves = self.padded(gaps, some), self.setup
            belief, out = self.program.compiled(_replay, self.dynamics)(
                belief, rows, self.shared, old, new, *moves, self.there(count)
            )
            parts.append(jax.tree.map(lambda a, n=count: np.asarray(a)[:n], out))
            self.progress.rows(count)
        out = _joined(parts)
        return out._replace(log_norm=float(np.sum(out.log_norm, dtype=float)))

    def backward(self, filtered: Belief, gaps: np.ndarray) -> Belief:
        """Computes the smoothed beliefs from those of a forward pass."""
        dtype = filtered.mean.dtype
        later = Belief(jnp.asarray(filtered.mean[-1]), jnp.asarray(filtered.scale[-1]))
        carry, parts = (later, jnp.zeros((), dtype), jnp.zeros((), bool)), []
        for some, count in reversed(list(self.stretches())):
            there = self.there(count)
            own, moves = self.padded(filtered, some), self.padded(gaps, some)
            carry, out = self.program.compiled(_backward, self.dynamics)(carry, own, moves, self.setup, there)
            parts.append(jax.tree.map(lambda a, n=count: np.asarray(a)[:n], out))
        return _joined(parts[::-1])

    def propose(
        self, belief: Belief, moved: np.ndarray, sites: Sites, taken: np.ndarray
    ) -> tuple[Sites, VisitInfo, np.ndarray]:
        """Computes the new sites, what happened to each row, and each row's result of ``_between``."""
        parts = []
        for some, count in self.stretches():
            rows, own = self.padded([*self.rows], some), self.padded(sites, some)
            at = self.padded((belief, moved), some)
            out = self.program.compiled(_propose)(*at, rows, self.shared, own, self.padded(taken, some))
            parts.append(jax.tree.map(lambda a, n=count: np.asarray(a)[:n], out))
            self.progress.rows(count)
        return _joined(parts)


def _joined(parts: Sequence[T]) -> T:
    return jax.tree.map(lambda *a: np.concatenate(a), *parts) if len(parts) > 1 else parts[0]


# ------------------------------------------------------------------------------------ passes over a chunk


def _one(arrays: Sequence[jax.Array]) -> list[jax.Array]:
    return [a[None] for a in arrays]


def _filter(
    program: Program,
    dynamics: Same,
    carry: tuple[Belief, Moving],
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
    gaps: jax.Array,
    there: jax.Array,
) -> tuple[tuple[Belief, Moving], Filtered]:
    """Runs the kernel row by row, with constant initial sites."""
    family: Any = program.family
    one = jnp.ones((), carry[0].mean.dtype)
    zeros = [
        jnp.zeros((1, g.count, family.site_numbers(g.field_size, program.size)), one.dtype) for g in program.factors
    ]

    def step(carry: tuple[Belief, Moving], now: tuple) -> tuple[tuple[Belief, Moving], Filtered]:
        before, moving = carry
        row, gap, here = now
        belief, after, sites, info = visit_rows(
            family,
            dynamics.value,
            program.factors,
            before,
            moving,
            _one(row),
            shared,
            gap[None],
            jnp.ones((), int),
            zeros,
            Exchange(one, one),
        )

        def waited(belief: Belief) -> Belief:
            return dynamics.value.move(family, belief, moving.setup, after.clock)

        # a refused row leaves the belief as it was, but here the time before it must pass nevertheless
        refused = is_refused(info.status[0])
        belief_then = jax.lax.cond(refused, waited, lambda b: b, belief)
        out = Filtered(
            belief_then,
            jnp.where(moving.started, gap, 0.0),
            jax.tree.map(lambda a: a[0], tuple(sites)),
            jax.tree.map(lambda a: a[0], info),
        )
        return jax.tree.map(lambda new, old: jnp.where(here, new, old), (belief, after), carry), out

    return jax.lax.scan(step, carry, (tuple(rows), gaps, there))


def _replay(
    program: Program,
    dynamics: Same,
    belief: Belief,
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
    sites: Sites,
    trial: Sites,
    gaps: jax.Array,
    setup: Any,
    there: jax.Array,
) -> tuple[Belief, Replayed]:
    """Moves the belief, and absorbs each row's new sites, or the nearest ones that leave the belief proper."""
    family: Any = program.family
    shares = jnp.asarray(_SHARES, belief.mean.dtype)

    def step(belief: Belief, now: tuple) -> tuple[Belief, Replayed]:
        row, old, new, gap, here = now
        moved = dynamics.value.move(family, belief, setup, gap)

        def mixed(share: jax.Array) -> Sites:
            return tuple(share[0] * a + share[1] * b for a, b in zip(old, new, strict=True))

        def attempt(i: int | jax.Array) -> tuple:
            summed = sum_sites(program, moved, _one(row), shared, tuple(a[None] for a in mixed(shares[i])), 1)
            return i, *_absorbed(moved, summed)

        i, absorbed, log_norm, _ = jax.lax.while_loop(lambda c: ~c[-1], lambda c: attempt(c[0] + 1), attempt(0))
        out = Replayed(absorbed, moved.mean, jnp.where(here, log_norm, 0.0), mixed(shares[i]), (i > 0) & here)
        return jax.tree.map(lambda new, old: jnp.where(here, new, old), absorbed, belief), out

    return jax.lax.scan(step, belief, (tuple(rows), sites, trial, gaps, there))


def _absorbed(belief: Belief, summed: Summed) -> tuple[Belief, jax.Array, jax.Array]:
    """Multiplies a belief by sites.

    Returns:
        The new belief, the log of the sites' expectation divided by their value at the belief's mean, and whether
        enough precision is left in every direction.
    """
    mean, scale = belief
    identity = jnp.eye(mean.shape[0], dtype=mean.dtype)
    lower = jnp.linalg.cholesky(identity + 0.5 * (summed.precision + summed.precision.T))
    half = jax.scipy.linalg.solve_triangular(lower, summed.slope, lower=True)
    moved = jax.scipy.linalg.solve_triangular(lower, half, lower=True, trans=1)
    wide = jax.scipy.linalg.solve_triangular(lower, scale.T, lower=True).T  # S L⁻ᵀ
    pivots = jnp.diagonal(lower)
    proper = jnp.all(jnp.isfinite(wide)) & jnp.all(jnp.isfinite(moved)) & jnp.all(pivots * pivots > _LEAST_LEFT)
    log_norm = 0.5 * half @ half - jnp.sum(jnp.log(pivots))
    return Belief(mean + scale @ moved, wide), log_norm, proper


def _backward(
    program: Program,
    dynamics: Same,
    carry: tuple[Belief, jax.Array, jax.Array],
    filtered: Belief,
    gaps: jax.Array,
    setup: Any,
    there: jax.Array,
) -> tuple[tuple[Belief, jax.Array, jax.Array], Belief]:
    """Computes the smoothed beliefs, from the last row to the first.

    Args:
        program: The model as it was read.
        dynamics: How θ moves.
        carry: The smoothed belief of the next row, the gap before that row, and whether there is a next row.
        filtered: Mean ``(n, N)`` and root ``(n, N, N)``.
        gaps: ``(n,)`` the time before each row.
        setup: The arrays that the dynamics needs.
        there: ``(n,)`` booleans: which rows are not padding.
    """

    def step(carry: tuple, now: tuple) -> tuple[tuple, Belief]:
        later, wait, last = carry
        belief, gap, here = now
        smoothed = _smoothed(dynamics.value, belief, setup, wait, later)
        smoothed = jax.tree.map(lambda a, b: jnp.where(last, a, b), smoothed, belief)
        carry = jax.tree.map(lambda a, b: jnp.where(here, a, b), (smoothed, gap, here), carry)
        return carry, smoothed

    return jax.lax.scan(step, carry, (filtered, gaps, there), reverse=True)


def _smoothed(dynamics: Dynamics, belief: Belief, setup: Any, gap: jax.Array, later: Belief) -> Belief:
    """The smoothed belief, from the filtered belief and the smoothed belief a gap of time later."""
    mean, scale = belief
    size = mean.shape[0]
    factor, shift, noise = dynamics.transition(belief, setup, gap)
    # θ⁺ - m⁻ = f S u + R w, and the columns of q are (u, w) in the coordinates (a, b)
    q, upper = jnp.linalg.qr(jnp.concatenate([factor * scale.T, noise.T]), mode="complete")
    ahead = upper[:size].T
    ahead = ahead + jnp.diag(jnp.where(jnp.diagonal(ahead) == 0, 1.0, 0.0))
    shared, own = scale @ q[:size, :size], scale @ q[:size, size:]
    change = jax.scipy.linalg.solve_triangular(ahead, later.mean - shift - factor * mean, lower=True)
    root = shared @ jax.scipy.linalg.solve_triangular(ahead, later.scale, lower=True)
    return Belief(mean + shared @ change, jnp.linalg.qr(jnp.concatenate([own.T, root.T]), mode="r").T)


def _propose(
    program: Program,
    belief: Belief,
    moved: jax.Array,
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
    sites: Sites,
    taken: jax.Array,
) -> tuple[Sites, VisitInfo, jax.Array]:
    """Visits each row under its own smoothed belief."""
    power = jnp.ones((), belief.mean.dtype)

    def one(now: tuple) -> tuple[Sites, VisitInfo, jax.Array]:
        belief, moved, row, own, here = now
        count = here.astype(int)
        current = tuple(a[None] for a in own)
        proposed, info, _ = propose_sites(program, belief, _one(row), shared, current, power, count)
        proposed, info = jax.tree.map(lambda a: a[0], (tuple(proposed), info))
        return proposed, info, _between(program, moved, belief.mean, row, shared, own)

    return jax.lax.map(one, (belief, moved, tuple(rows), sites, taken))


def _between(
    program: Program,
    first: jax.Array,
    second: jax.Array,
    row: Sequence[jax.Array],
    shared: Sequence[jax.Array],
    sites: Sites,
) -> jax.Array:
    """Log of the ratio of a row's sites at one θ to the sites at another θ, which EP's evidence needs.

    The forward pass gives the integral of all sites divided by their values at the filtered means. The visits give the
    part of each row, divided by the values of its sites at the smoothed means. This ratio connects the two. It is
    computed directly, because it is a small difference of large numbers.
    """
    inputs = [*_one(row), *shared]
    total = jnp.zeros((), first.dtype)
    for group, own in zip(program.factors, sites, strict=True):
        slope, precision = unpack(own, group.field_size)
        matrix, here = group.matrices(first, *inputs)
        change = jnp.einsum("eij,j->ei", matrix, second - first)
        sound = jnp.all(jnp.isfinite(matrix), (1, 2)) & jnp.all(jnp.isfinite(here), 1)
        here, change = jnp.where(sound[:, None], here, 0.0), jnp.where(sound[:, None], change, 0.0)
        pull = slope - jnp.einsum("eij,ej->ei", precision, here)
        bent = jnp.einsum("ei,eij,ej->e", change, precision, change)
        total = total + jnp.sum(0.5 * bent) - jnp.sum(pull * change)
    return total
