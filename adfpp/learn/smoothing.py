"""Smoothing: with dynamics, what all rows say of θ at the time of each row.

A filter's belief at row t knows the rows up to t. With a move ``θ⁺ = c + f θ + R w`` (``Transition``) between rows, the
belief given all rows follows from the last row backwards (Rauch, Tung and Striebel 1965). In roots: one QR
decomposition writes what is not known of θ and θ⁺ in common coordinates,

    θ⁺ - m⁻ = T a,        θ - m = X a + Y b,        a, b ~ N(0, I),

so that, with (mₛ⁺, Sₛ⁺) the smoothed belief of θ⁺,

    mₛ = m + X T⁻¹ (mₛ⁺ - m⁻),        Cₛ = Y Yᵀ + (X T⁻¹ Sₛ⁺)(X T⁻¹ Sₛ⁺)ᵀ:

a sum of squares, proper at any precision. X T⁻¹ is the gain ``f C (C⁻)⁻¹``.

The filter's approximation of a row was made from the rows before it. Further sweeps are EP on the state-space model: a
row's site is exchanged for a new one against its cavity under the smoothed belief, and both passes are made again with
the sites in the place of the rows.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.dynamics import Dynamics, Static
from adfpp.engine.families import Belief, ByLatent, Gaussian, Product
from adfpp.engine.kernel import Exchange, Moving, fold_rows
from adfpp.engine.sites import unpack
from adfpp.engine.status import RowInfo, Status, VisitInfo
from adfpp.learn.adf import ADF
from adfpp.learn.ep.schedules import Progress
from adfpp.learn.ep.sweeps import Gathered, Sites, gather, survey
from adfpp.learn.posterior import Posterior
from adfpp.learn.stream import Log, NotConverged, suitable_chunk
from adfpp.model import Program

_RESERVED = frozenset("sweeps tol".split())
_MOST_BYTES = 2e9
_CHUNK_BYTES = 1 << 25
_LEAST = 0.05  # damping
_LEAST_LEFT = 0.01  # of a belief's precision in any direction, once a site that is negative there is absorbed
# of the old sites and of the new: all of the change, less of it, none; and less of the old, down to nothing
_SHARES = ((0.0, 1.0), (0.5, 0.5), (0.75, 0.25), (1.0, 0.0), (0.5, 0.0), (0.25, 0.0), (0.0, 0.0))


@dataclass(frozen=True, eq=False)
class Smoothed:
    """The beliefs of the flat unconstrained θ at the time of each row, given all rows.

    It holds a root ``(N, N)`` for each of the n rows.

    Attributes:
        program: The model as it was read.
        family: How the beliefs are held.
        belief: Mean ``(n, N)`` and root ``(n, N, N)``.
        filtered_mean: ``(n, N)`` as the filter had it: given the rows up to this one.
        filtered_sd: ``(n, N)``.
        log_evidence: Log p(data): the sum of the filter's log predictive densities; after more sweeps EP's estimate.
        status: ``(n,)`` ``Status`` codes. At a refused row the belief is what the other rows say of that time.
        steps: ``(sweeps,)`` how far each sweep moved the beliefs, undamped: the largest move of a mean in sds or of an
            sd relatively; the first from the filter's.
        converged: Whether the last sweep moved them by no more than ``tol``, with no site held back.
    """

    program: Program
    family: Gaussian
    belief: Belief
    filtered_mean: np.ndarray
    filtered_sd: np.ndarray
    log_evidence: float
    status: np.ndarray
    steps: np.ndarray
    converged: bool

    @property
    def mean(self) -> np.ndarray:
        """``(n, N)`` means."""
        return np.asarray(self.belief.mean)

    @property
    def sd(self) -> np.ndarray:
        """``(n, N)`` marginal sds."""
        return _spread(np.asarray(self.belief.scale))

    def at(self, row: int) -> Posterior:
        """The belief at the time of a row, as the posterior that it is."""
        mean, scale = self.belief
        return Posterior(self.program, self.family, Belief(jnp.asarray(mean[row]), jnp.asarray(scale[row])))


def smooth(
    adf: ADF,
    *args: Any,
    rng_key: jax.Array | None = None,
    prior: Any = None,
    dt: Any = None,
    sweeps: int = 1,
    tol: float = 1e-3,
    progress_bar: bool = True,
    **kwargs: Any,
) -> Smoothed:
    """Filters a whole stream of rows and smooths it backwards.

    For a linear Gaussian model this is the Kalman filter with the Rauch-Tung-Striebel smoother, and exact. For others
    the filter's approximation of each row remains; ``sweeps`` above 1 mend it, as EP does for a model that stands
    still. Up to three ``(N, N)`` roots a row are in memory at a time: 10,000 rows of 20 numbers take 96 MB. What would
    take more than 2 GB is refused.

    Example:
        ::

            adf = adfpp.ADF(model, dynamics=adfpp.RandomWalk(0.01))
            smoothed = adfpp.smooth(adf, X, y=y, sweeps=20)
            smoothed.mean, smoothed.sd              # (n, N)
            smoothed.at(100).summary()

    Args:
        adf: An ``ADF`` with dynamics, of the full family.
        *args: The model's arguments: all rows, in the order of time.
        rng_key: As for ``adf.init``.
        prior: As for ``adf.init``.
        dt: ``(n,)`` time since the row before; 1 when None.
        sweeps: How often the rows are visited at most: 1 for a filter and one backward pass.
        tol: With more sweeps, what no mean (in sds) and no sd (relatively) may move by for them to end.
        progress_bar: Whether to show one.
        **kwargs: The model's keyword arguments.
    """
    _check(adf, sweeps, tol)
    if dt is not None:
        kwargs = {**kwargs, "dt": dt}
    own, gaps = adf.without_dt(kwargs)
    plan, rows, shared = adf.calls.planned(args, own)
    if isinstance(plan.program.family, Product):  # discrete sites are held so by themselves
        raise ValueError(_no_product({s.name: s.native.name for s in plan.program.latents if s.native is not None}))
    key = jax.random.key(0) if rng_key is None else rng_key
    state = adf.init(key, *args, prior=prior, **kwargs)
    total, size = rows[0].shape[0], plan.program.size
    dtype = np.dtype(plan.program.dtype)
    _refuse_large(total, size, dtype)
    compiled = vars(adf).setdefault("_smoothing", {})
    if id(plan.program) not in compiled:
        compiled[id(plan.program)] = _compiled(adf.family, adf.dynamics, plan.program)
    gaps = _checked_gaps(gaps, total, dtype)
    with Progress(progress_bar) as progress:
        passes = _Passes(compiled[id(plan.program)], plan.program, rows, shared, state.setup, progress)
        smoothed, log = _smoothed(adf, passes, state.belief, gaps, sweeps, tol)
    log.warn()
    if sweeps > 1 and not smoothed.converged:
        held = int((smoothed.status == Status.HELD).sum())
        warnings.warn(
            f"Smoothing did not converge in {len(smoothed.steps)} sweeps: the last moved the beliefs by "
            f"{smoothed.steps[-1]:.2g} sd{f', and {held} rows are held as they were' if held else ''}. Allow more "
            "sweeps, or a larger tol; rows that stay held do not fit a Gaussian, and the rest is as good as it gets.",
            NotConverged,
            stacklevel=2,
        )
    return smoothed


def _check(adf: ADF, sweeps: int, tol: float) -> None:
    """Refuses what cannot be smoothed."""
    if not isinstance(adf, ADF):
        raise TypeError(f"smooth takes an adfpp.ADF with dynamics; it was given a {type(adf).__name__}.")
    if isinstance(adf.dynamics, Static):
        raise ValueError(
            "There is nothing to smooth: without dynamics θ is the same at every row, and the posterior is of all of "
            "them. Give the ADF dynamics=adfpp.RandomWalk(...), say; for a better posterior of a constant θ use "
            "adfpp.EP."
        )
    if not hasattr(adf.dynamics, "transition"):
        raise TypeError(f"{type(adf.dynamics).__name__} needs a method transition(belief, setup, gap) to be smoothed.")
    if isinstance(adf.family, ByLatent):
        raise ValueError(_no_product(dict(adf.family.given)))
    if not adf.family.sites_in_field:
        raise ValueError(
            f"smooth needs family='full': the {adf.family.name} family forgets how θ at one row hangs together with θ "
            "at the next. Make the learner with adfpp.ADF(model, family='full', dynamics=...)."
        )
    if sweeps < 1 or not tol > 0.0:
        raise ValueError(f"sweeps must be at least 1 and tol positive; they are {sweeps} and {tol}.")
    clashes = sorted(_RESERVED & set(inspect.signature(adf.model).parameters))
    if clashes:
        raise ValueError(f"The model's argument {clashes[0]!r} is also an option of smooth; rename it.")


def _no_product(held: Mapping[str, str]) -> str:
    told = ", ".join(f"{site}: {family}" for site, family in held.items())
    return (
        f"smooth needs one full Gaussian over all sites, and this learner holds a product ({told}), which forgets how "
        "a site hangs together with the others and with itself a row later. Make the learner with adfpp.ADF(model, "
        "family='full', dynamics=...); a model with discrete latent sites cannot be smoothed."
    )


def _refuse_large(total: int, size: int, dtype: np.dtype) -> None:
    needed = 3.0 * total * size * size * dtype.itemsize
    if needed > _MOST_BYTES:
        raise ValueError(
            f"Smoothing {total} rows of {size} numbers would take {needed / 1e9:.1f} GB for covariances; at most "
            f"{_MOST_BYTES / 1e9:.0f} GB are allowed. Smooth a stretch of the rows at a time, beginning from the "
            "posterior of those before: prior=adf.get_posterior(state)."
        )


def _checked_gaps(gaps: Any, total: int, dtype: np.dtype) -> np.ndarray:
    gaps = np.broadcast_to(np.asarray(1.0 if gaps is None else gaps, dtype), (total,))
    if not np.isfinite(gaps).all() or (gaps < 0).any():
        raise ValueError("dt must be finite and not negative: the time since the row before.")
    return gaps


def _spread(scale: Any) -> np.ndarray:
    """Marginal sds ``(n, N)`` of roots ``(n, N, N)``."""
    return np.sqrt(np.einsum("tij,tij->ti", scale, scale))


# ------------------------------------------------------------------------------------------ the schedule


def _smoothed(
    adf: ADF, passes: "_Passes", start: Belief, gaps: np.ndarray, sweeps: int, tol: float
) -> tuple[Smoothed, Log]:
    """Filter, smooth, and the sweeps after the first."""
    first = passes.filter(start, gaps)
    gaps, sites, status = first.gaps, first.sites, first.info.status
    log_evidence, taken = float(np.sum(first.info.log_z, dtype=float)), status < Status.NOT_FINITE
    filtered_mean, filtered_sd = np.array(first.belief.mean), _spread(first.belief.scale)
    belief, info = passes.backward(first.belief, gaps), first.info
    del first  # its roots are no longer needed
    steps = [_step(filtered_mean, filtered_sd, belief, 1.0)]
    passes.progress.sweep(1, steps[0])
    damping, held = 1.0, np.zeros(len(status), bool)
    stood = passes.replay(start, gaps, sites, sites) if sweeps > 1 else None
    while len(steps) < sweeps and stood is not None:
        moved, log_norm, sites = stood.moved, stood.log_norm, stood.sites
        del stood
        proposed, visited, between = passes.survey(belief, moved, sites, taken)
        status = np.where(taken, np.minimum(visited.status, Status.HELD), info.status)
        if not (taken & (visited.status >= Status.NOT_FINITE)).any():
            log_evidence = log_norm + float(np.sum(visited.evidence + between, dtype=float))
        trial = tuple(a + damping * (b - a) for a, b in zip(sites, proposed, strict=True))
        stood = passes.replay(start, gaps, sites, trial)
        status = np.where(taken & stood.held, Status.HELD, status)
        held = taken & (status == Status.HELD)
        mean, sd = belief.mean, _spread(belief.scale)
        del belief
        belief = passes.backward(stood.belief, gaps)
        steps.append(_step(mean, sd, belief, damping))
        passes.progress.sweep(len(steps), steps[-1])
        if steps[-1] <= tol and not stood.held.any():
            break
        if len(steps) > 2:
            damping = min(1.0, 1.25 * damping) if steps[-1] < steps[-2] else max(_LEAST, 0.5 * damping)
    converged = bool(len(steps) > 1 and steps[-1] <= tol and not held.any())
    log = Log("totals", len(status), None)
    log.add(RowInfo(info.log_z, status, info.error), 0)
    posterior = passes.program, adf.family, belief
    told = float(log_evidence), np.asarray(status), np.array(steps), converged
    return Smoothed(*posterior, filtered_mean, filtered_sd, *told), log


def _step(mean: Any, sd: np.ndarray, after: Belief, damping: float) -> float:
    """The largest move of a mean, in the smaller of both sds, or of an sd relatively, had it not been damped."""
    new = _spread(np.asarray(after.scale))
    moved = np.abs(np.asarray(after.mean) - mean) / np.minimum(sd, new)
    return float(max(moved.max(), np.abs(np.log(new / sd)).max())) / damping


class _Filtered(NamedTuple):
    """A filter's pass.

    Attributes:
        belief: Mean ``(n, N)`` and root ``(n, N, N)`` at the time of each row, given the rows so far.
        gaps: ``(n,)`` by how much it moved before each row: nothing before the first row that was absorbed.
        sites: Of each group ``(n, E, numbers)``.
        info: What became of each row.
    """

    belief: Belief
    gaps: Any
    sites: Sites
    info: VisitInfo


class _Replayed(NamedTuple):
    """A forward pass with sites in the place of the rows.

    Attributes:
        belief: As in ``_Filtered``.
        moved: ``(n, N)`` mean before each row's site.
        log_norm: Log of the integral of the state-space prior times all sites, each over its value at ``moved``.
        sites: Those that were absorbed, of each group ``(n, E, numbers)``.
        held: ``(n,)`` whether they are not quite those that were to be.
    """

    belief: Belief
    moved: Any
    log_norm: Any
    sites: Sites
    held: Any


class _Compiled(NamedTuple):
    """The passes over a chunk of rows, compiled for a program."""

    filter: Callable[..., Any]
    replay: Callable[..., Any]
    backward: Callable[..., Any]
    survey: Callable[..., Any]


def _compiled(family: Gaussian, dynamics: Dynamics, program: Program) -> _Compiled:
    some = (_filter, _replay, _backward, _survey)
    return _Compiled(*(jax.jit(partial(f, family, dynamics, program)) for f in some))


class _Passes:
    """The passes over all rows, a chunk at a time: all chunks have one length, and the last is padded."""

    def __init__(
        self,
        compiled: _Compiled,
        program: Program,
        rows: Sequence[Any],
        shared: Sequence[Any],
        setup: Any,
        progress: Progress,
    ) -> None:
        self.compiled, self.program, self.progress = compiled, program, progress
        self.rows, self.shared, self.setup = rows, [jnp.asarray(a) for a in shared], setup
        self.total = rows[0].shape[0]
        fitting = max(1, _CHUNK_BYTES // (8 * max(1, program.size) ** 2))
        self.chunk = min(suitable_chunk(rows, self.total), 1 << (fitting.bit_length() - 1))

    def stretches(self) -> Iterator[tuple[slice, int]]:
        """Each chunk, and how many rows it has."""
        for start in range(0, self.total, self.chunk):
            stop = min(start + self.chunk, self.total)
            yield slice(start, stop), stop - start

    def padded(self, arrays: Any, some: slice) -> Any:
        """A chunk of arrays of rows."""

        def one(a: Any) -> np.ndarray:
            part = np.asarray(a[some])
            return np.pad(part, [(0, self.chunk - len(part)), *[(0, 0)] * (part.ndim - 1)])

        return jax.tree.map(one, arrays)

    def there(self, count: int) -> np.ndarray:
        """Which rows of a chunk are not padding."""
        return np.arange(self.chunk) < count

    def filter(self, start: Belief, gaps: np.ndarray) -> _Filtered:
        """ADF, with the belief and the sites of each row kept."""
        zero = jnp.zeros((), start.mean.dtype)
        carry, parts = (start, Moving(zero, jnp.zeros((), bool), self.setup)), []
        for some, count in self.stretches():
            rows = self.padded([*self.rows], some)
            carry, out = self.compiled.filter(carry, rows, self.shared, self.padded(gaps, some), self.there(count))
            parts.append(jax.tree.map(lambda a, n=count: np.asarray(a)[:n], out))
            self.progress.rows(count)
        return _joined(parts)

    def replay(self, start: Belief, gaps: np.ndarray, sites: Sites, trial: Sites) -> _Replayed:
        """The forward pass with the sites to try, or with as much of the change as a belief can take."""
        belief, parts = start, []
        for some, count in self.stretches():
            rows, old, new = self.padded([*self.rows], some), self.padded(sites, some), self.padded(trial, some)
            moves = self.padded(gaps, some), self.setup
            belief, out = self.compiled.replay(belief, rows, self.shared, old, new, *moves, self.there(count))
            parts.append(jax.tree.map(lambda a, n=count: np.asarray(a)[:n], out))
            self.progress.rows(count)
        out = _joined(parts)
        return out._replace(log_norm=float(np.sum(out.log_norm, dtype=float)))

    def backward(self, filtered: Belief, gaps: np.ndarray) -> Belief:
        """The smoothed beliefs of a forward pass."""
        dtype = filtered.mean.dtype
        later = Belief(jnp.asarray(filtered.mean[-1]), jnp.asarray(filtered.scale[-1]))
        carry, parts = (later, jnp.zeros((), dtype), jnp.zeros((), bool)), []
        for some, count in reversed(list(self.stretches())):
            there = self.there(count)
            own, moves = self.padded(filtered, some), self.padded(gaps, some)
            carry, out = self.compiled.backward(carry, own, moves, self.setup, there)
            parts.append(jax.tree.map(lambda a, n=count: np.asarray(a)[:n], out))
        return _joined(parts[::-1])

    def survey(
        self, belief: Belief, moved: np.ndarray, sites: Sites, taken: np.ndarray
    ) -> tuple[Sites, VisitInfo, np.ndarray]:
        """The sites that should stand there, what became of each row, and the third part of the evidence."""
        parts = []
        for some, count in self.stretches():
            rows, own = self.padded([*self.rows], some), self.padded(sites, some)
            at = self.padded((belief, moved), some)
            out = self.compiled.survey(*at, rows, self.shared, own, self.padded(taken, some))
            parts.append(jax.tree.map(lambda a, n=count: np.asarray(a)[:n], out))
            self.progress.rows(count)
        return _joined(parts)


def _joined(parts: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *a: np.concatenate(a), *parts) if len(parts) > 1 else parts[0]


# ------------------------------------------------------------------------------------ passes over a chunk


def _one(arrays: Sequence[jax.Array]) -> list[jax.Array]:
    return [a[None] for a in arrays]


def _filter(
    family: Gaussian,
    dynamics: Dynamics,
    program: Program,
    carry: tuple[Belief, Moving],
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
    gaps: jax.Array,
    there: jax.Array,
) -> tuple[tuple[Belief, Moving], _Filtered]:
    """The kernel row by row, from sites that say nothing."""
    one = jnp.ones((), carry[0].mean.dtype)
    zeros = [
        jnp.zeros((1, g.count, family.site_numbers(g.field_size, program.size)), one.dtype) for g in program.factors
    ]

    def step(carry: tuple[Belief, Moving], now: tuple) -> tuple[tuple[Belief, Moving], _Filtered]:
        before, moving = carry
        row, gap, here = now
        belief, after, sites, info = fold_rows(
            family,
            dynamics,
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
            return dynamics.move(family, belief, moving.setup, after.clock)

        # a refused row leaves the belief where it was; here time has passed all the same
        refused = info.status[0] >= Status.NOT_FINITE
        stands = jax.lax.cond(refused, waited, lambda b: b, belief)
        out = _Filtered(
            stands,
            jnp.where(moving.started, gap, 0.0),
            jax.tree.map(lambda a: a[0], tuple(sites)),
            jax.tree.map(lambda a: a[0], info),
        )
        return jax.tree.map(lambda new, old: jnp.where(here, new, old), (belief, after), carry), out

    return jax.lax.scan(step, carry, (tuple(rows), gaps, there))


def _replay(
    family: Gaussian,
    dynamics: Dynamics,
    program: Program,
    belief: Belief,
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
    sites: Sites,
    trial: Sites,
    gaps: jax.Array,
    setup: Any,
    there: jax.Array,
) -> tuple[Belief, _Replayed]:
    """Moves and absorbs each row's sites: the new ones, or the nearest to them that leave the belief proper."""
    shares = jnp.asarray(_SHARES, belief.mean.dtype)

    def step(belief: Belief, now: tuple) -> tuple[Belief, _Replayed]:
        row, old, new, gap, here = now
        moved = dynamics.move(family, belief, setup, gap)

        def mixed(share: jax.Array) -> Sites:
            return tuple(share[0] * a + share[1] * b for a, b in zip(old, new, strict=True))

        def tried(i: Any) -> tuple:
            said = gather(program.factors, moved, _one(row), shared, tuple(a[None] for a in mixed(shares[i])), 1)
            return i, *_absorbed(moved, said)

        i, absorbed, log_norm, _ = jax.lax.while_loop(lambda c: ~c[-1], lambda c: tried(c[0] + 1), tried(0))
        out = _Replayed(absorbed, moved.mean, jnp.where(here, log_norm, 0.0), mixed(shares[i]), (i > 0) & here)
        return jax.tree.map(lambda new, old: jnp.where(here, new, old), absorbed, belief), out

    return jax.lax.scan(step, belief, (tuple(rows), sites, trial, gaps, there))


def _absorbed(belief: Belief, said: Gathered) -> tuple[Belief, jax.Array, jax.Array]:
    """A belief times sites, log of their expectation over their value at its mean, and whether it is well proper."""
    mean, scale = belief
    identity = jnp.eye(mean.shape[0], dtype=mean.dtype)
    lower = jnp.linalg.cholesky(identity + 0.5 * (said.precision + said.precision.T))
    half = jax.scipy.linalg.solve_triangular(lower, said.slope, lower=True)
    moved = jax.scipy.linalg.solve_triangular(lower, half, lower=True, trans=1)
    wide = jax.scipy.linalg.solve_triangular(lower, scale.T, lower=True).T  # S L⁻ᵀ
    pivots = jnp.diagonal(lower)
    proper = jnp.all(jnp.isfinite(wide)) & jnp.all(jnp.isfinite(moved)) & jnp.all(pivots * pivots > _LEAST_LEFT)
    log_norm = 0.5 * half @ half - jnp.sum(jnp.log(pivots))
    return Belief(mean + scale @ moved, wide), log_norm, proper


def _backward(
    family: Gaussian,
    dynamics: Dynamics,
    program: Program,
    carry: tuple[Belief, jax.Array, jax.Array],
    filtered: Belief,
    gaps: jax.Array,
    setup: Any,
    there: jax.Array,
) -> tuple[tuple[Belief, jax.Array, jax.Array], Belief]:
    """The smoothed beliefs, from the last row to the first.

    Args:
        family: How beliefs are held.
        dynamics: How they move.
        program: The model.
        carry: The smoothed belief of the row after, the gap before that row, and whether there is one.
        filtered: Mean ``(n, N)`` and root ``(n, N, N)``.
        gaps: ``(n,)`` before each row.
        setup: What the dynamics keeps.
        there: ``(n,)`` which rows are not padding.
    """

    def step(carry: tuple, now: tuple) -> tuple[tuple, Belief]:
        later, wait, last = carry
        belief, gap, here = now
        smoothed = _behind(dynamics, belief, setup, wait, later)
        smoothed = jax.tree.map(lambda a, b: jnp.where(last, a, b), smoothed, belief)
        carry = jax.tree.map(lambda a, b: jnp.where(here, a, b), (smoothed, gap, here), carry)
        return carry, smoothed

    return jax.lax.scan(step, carry, (filtered, gaps, there), reverse=True)


def _behind(dynamics: Dynamics, belief: Belief, setup: Any, gap: jax.Array, later: Belief) -> Belief:
    """A belief, given the smoothed one a gap of time later."""
    mean, scale = belief
    size = mean.shape[0]
    factor, shift, noise = dynamics.transition(belief, setup, gap)
    # θ⁺ - m⁻ = f S u + R w, and the columns of q are (u, w) in the coordinates (a, b)
    q, upper = jnp.linalg.qr(jnp.concatenate([factor * scale.T, noise.T]), mode="complete")
    ahead = upper[:size].T
    ahead = ahead + jnp.diag(jnp.where(jnp.diagonal(ahead) == 0, 1.0, 0.0))
    shared, own = scale @ q[:size, :size], scale @ q[:size, size:]
    told = jax.scipy.linalg.solve_triangular(ahead, later.mean - shift - factor * mean, lower=True)
    root = shared @ jax.scipy.linalg.solve_triangular(ahead, later.scale, lower=True)
    return Belief(mean + shared @ told, jnp.linalg.qr(jnp.concatenate([own.T, root.T]), mode="r").T)


def _survey(
    family: Gaussian,
    dynamics: Dynamics,
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
        standing = tuple(a[None] for a in own)
        proposed, info, _ = survey(program.factors, belief, _one(row), shared, standing, power, count)
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
    """Log of the value of a row's sites at one θ over that at another, which EP's evidence needs.

    The forward pass gives the integral of all sites over their values at the means moved to, the visits each row's
    part over its sites' values at the smoothed means: the difference is small where both are large.
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
