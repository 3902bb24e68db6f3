"""A data set as the schedules use it: chunks of rows for the compiled sweeps, and the results so far."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.families import Belief, Exchange
from adfpp.engine.kernel import Draws
from adfpp.engine.status import Status, VisitInfo, empty_info, is_refused
from adfpp.learn.ep import sweeps
from adfpp.learn.ep.iterate import History, Limits, Progress
from adfpp.learn.ep.sweeps import Sites, Summed
from adfpp.learn.start import Base
from adfpp.learn.stream import DataArray, padded
from adfpp.model import Program

Where: TypeAlias = slice | np.ndarray  # the places of the rows of a chunk

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_FEW_NUMBERS = 1000  # up to here programs that are compiled with little effort make EP no slower
_PRIOR_PASSES = 2  # visits of the prior factors in a sweep: they are cheap, and depend closely on each other


@dataclass
class Current:
    """The results of a run of EP so far.

    Attributes:
        belief: The last proper belief.
        sites: The rows' sites in this belief, NumPy arrays that are written to.
        priors: The sites of the prior factors.
        info: What happened to the rows, NumPy arrays ``(n,)``.
        prior_info: What happened to the prior factors at their last visit.
        base: A base that replaces the original one, if rows have been absorbed into it.
        kept: The rows that keep their sites; None if all do.
        memory: Values that the schedule needs between steps.
        before: The sites before the last step, to find the rows whose sites move most.
        log_evidence: EP's estimate of the log evidence.
    """

    belief: Any
    sites: tuple[np.ndarray, ...]
    priors: dict[str, jax.Array]
    info: VisitInfo
    prior_info: dict[str, VisitInfo] = field(default_factory=dict)
    base: Base | None = None
    kept: np.ndarray | None = None
    memory: Any = None
    before: tuple[np.ndarray, ...] | None = None
    log_evidence: float = np.nan

    def copied_sites(self) -> tuple[np.ndarray, ...]:
        """Copies the rows' sites, and stores the copy in ``before``."""
        self.before = tuple(a.copy() for a in self.sites)
        return self.before

    @property
    def prior_status(self) -> dict[str, int]:
        """The worst status of each group of prior factors."""
        return {key: int(info.status) for key, info in self.prior_info.items()}

    @property
    def held(self) -> bool:
        """Whether the site of some factor could not be exchanged."""
        return bool((self.info.status == Status.HELD).any()) or Status.HELD in self.prior_status.values()

    @property
    def refused(self) -> bool:
        """Whether a prior factor or every row was refused, so that a small step says nothing."""
        priors = any(is_refused(status) for status in self.prior_status.values())
        return priors or bool(is_refused(self.info.status).all())

    def converged(self, history: History, tol: float) -> bool:
        """Whether the last step was small enough, all sites could be exchanged, and no prior was refused."""
        if not len(history) or history.steps[-1].undo:
            return False
        return history.sizes[-1] <= tol and not self.held and not self.refused

    def least_converged(self) -> np.ndarray:
        """The rows whose sites moved most in the last step."""
        if self.before is None:
            return np.zeros(0, int)
        change = sum(
            np.abs(a - b).reshape(len(a), -1).sum(1) / (np.abs(a).reshape(len(a), -1).max(1) + 1e-300)
            for a, b in zip(self.sites, self.before, strict=True)
        )
        most = np.argsort(-np.asarray(change))[:5]
        return most[np.asarray(change)[most] > 0.0]


@dataclass
class Problem:
    """A data set, and the options of a run.

    Attributes:
        program: The model as it was read.
        rows: All row arrays.
        shared: The shared arrays.
        base: The part of the prior that belongs to the family: a ``Base``, or a ``ThetaBase`` for sites in θ.
        chunk: Number of rows in a chunk.
        rng_key: The key for the orders in which rows are visited.
        draw_key: The key for moment rules that draw random points.
        power: The fraction of a factor that is multiplied in at a time.
        limits: The limits of the loop.
        batch_size: Number of rows visited at a time by some schedules.
        progress: The progress bar.
        warm: A belief that has absorbed all rows already, from which the initial sites are made.
        resumed: Whether the sites are those of an earlier run.
    """

    program: Program
    rows: Sequence[DataArray]
    shared: Sequence[DataArray]
    base: Any
    chunk: int
    rng_key: jax.Array
    draw_key: jax.Array | None
    power: float
    limits: Limits
    batch_size: int | None
    progress: Progress
    warm: Belief | None = None
    resumed: bool = False
    orders: int = 0
    _kept: list[DataArray] | None = None

    def __post_init__(self) -> None:
        self.shared = [jnp.asarray(a) for a in self.shared]
        if not any(self.family.draws(f) for f in self.program.factors):
            self.draw_key = None

    @property
    def family(self) -> Any:
        """How the belief is stored."""
        return self.program.family

    @property
    def total(self) -> int:
        """Number of rows."""
        return self.rows[0].shape[0]

    @property
    def dtype(self) -> np.dtype:
        """The dtype of θ."""
        return self.program.dtype

    @cached_property
    def _compiled(self) -> Any:
        """As ``Program.compiled``, with little effort of the compiler for beliefs of few numbers."""
        return partial(self.program.compiled, effort="light" if self.program.size <= _FEW_NUMBERS else "full")

    def order(self) -> np.ndarray:
        """Draws a new random order of the rows."""
        self.orders += 1
        return np.asarray(self.program.compiled(_order, self.total, effort="least")(self.rng_key, self.orders))

    def chunks(
        self, order: np.ndarray | None = None, size: int | None = None, alike: bool = False
    ) -> Iterator[tuple[Where, list[DataArray], int]]:
        """Gives chunks of rows: (their places, their arrays padded to a power of two, their number).

        With ``alike`` the last one is padded like the others, so that nothing has to be compiled for another length. A
        program that visits rows in order takes no time for padding, but one that computes all rows at once does.
        """
        size = min(size or self.chunk, self.chunk)
        total = self.total if order is None else len(order)
        if order is None and total <= size:
            if self._kept is None:
                self._kept = [jnp.asarray(padded(a, padded_length(total))) for a in self.rows]
            yield slice(0, total), self._kept, total
            return
        for start in range(0, total, size):
            where: Where = slice(start, min(start + size, total)) if order is None else order[start : start + size]
            count = min(size, total - start)
            length = padded_length(min(size, total) if alike else count)
            yield where, [padded(a[where], length) for a in self.rows], count

    def sites_of(self, sites: Sequence[np.ndarray], where: Where, length: int) -> Sites:
        """The sites of a chunk, padded to this length."""
        return tuple(padded(a[where], length) for a in sites)

    def draws(self, where: Where, length: int) -> Draws | None:
        """Keys of a chunk. A row has the same random points in every sweep; otherwise its site would never converge."""
        if self.draw_key is None:
            return None
        return Draws(self.draw_key, padded(np.arange(self.total)[where], length))

    def exchange(self, damping: float) -> Exchange:
        """The power and the damping with which sites are exchanged."""
        return Exchange(jnp.asarray(self.power, self.dtype), jnp.asarray(damping, self.dtype))

    def blank(self) -> VisitInfo:
        """The info of rows that have not been visited."""
        return VisitInfo(*(np.array(a) for a in empty_info(self.total, self.dtype, True)))

    # ------------------------------------------------------------------------------------------ sweeps

    def visit_in_order(
        self, belief: Any, sites: Sequence[np.ndarray], info: VisitInfo, order: np.ndarray, damping: float
    ) -> Any:
        """Visits rows one after the other in this order, and writes to ``sites`` and ``info``."""
        visit = self._compiled(sweeps.visit_in_order)
        for where, rows, count in self.chunks(order, alike=True):
            length, exchange = len(rows[0]), self.exchange(damping)
            own, draws = self.sites_of(sites, where, length), self.draws(where, length)
            belief, new, now = visit(belief, rows, self.shared, own, exchange, count, draws)
            put(sites, new, where, count)
            put(info, now, where, count)
            self.progress.rows(count)
        return belief

    def propose(
        self, belief: Belief, where: Where, rows: Sequence[DataArray], count: int, sites: Sequence[DataArray]
    ) -> tuple[Sites, VisitInfo, Summed]:
        """Computes the new sites of a chunk, with all cavities from one belief."""
        power, draws = jnp.asarray(self.power, self.dtype), self.draws(where, len(rows[0]))
        propose = self._compiled(sweeps.propose_sites)
        return propose(belief, rows, self.shared, tuple(sites), power, count, draws)

    def propose_all(self, belief: Belief, sites: Sequence[np.ndarray]) -> tuple[list[np.ndarray], VisitInfo, Summed]:
        """Computes the new sites of all rows, with all cavities from one belief."""
        proposed = [np.empty_like(a) for a in sites]
        info, total = self.blank(), None
        for where, rows, count in self.chunks():
            new, now, summed = self.propose(belief, where, rows, count, self.sites_of(sites, where, len(rows[0])))
            total = summed if total is None else jax.tree.map(jnp.add, total, summed)
            put(proposed, new, where, count)
            put(info, now, where, count)
            self.progress.rows(count)
        assert total is not None
        return proposed, info, total

    def sum(self, belief: Belief, rows: Sequence[DataArray], count: int, sites: Sequence[DataArray]) -> Summed:
        """Sums the sites of a chunk."""
        return self._compiled(sweeps.sum_sites)(belief, rows, self.shared, tuple(sites), count)

    def sum_all(self, belief: Belief, sites: Sequence[np.ndarray], order: np.ndarray | None = None) -> Summed:
        """Sums the sites of all rows, or of the rows in ``order``."""
        total = None
        for where, rows, count in self.chunks(order, alike=True):
            summed = self.sum(belief, rows, count, self.sites_of(sites, where, len(rows[0])))
            total = summed if total is None else jax.tree.map(jnp.add, total, summed)
        assert total is not None
        return total

    def rebuild(
        self, belief: Belief, priors: Mapping[str, jax.Array], summed: Summed, damping: float = 1.0, fresh: bool = True
    ) -> tuple[Belief, float, float]:
        """Makes the belief from base, prior sites and summed sites. Also returns the applied fraction and step size."""
        new, share, step = self._compiled(sweeps.rebuild)(
            belief,
            self.base,
            priors,
            self.shared,
            summed,
            jnp.asarray(damping, self.dtype),
            jnp.asarray(fresh),
        )
        share, step = jax.device_get((share, step))
        return new, float(share), float(step)

    def from_sites(self, belief: Any, sites: Sequence[np.ndarray], priors: Mapping[str, jax.Array]) -> Any:
        """Computes the belief anew from the base and all sites."""
        if self.family.sites_in_field:
            return self.rebuild(belief, priors, self.sum_all(belief, sites))[0]
        natural = self.base.natural + sum(jnp.sum(jnp.asarray(a), (0, 1)) for a in sites)
        natural = natural + sum(jnp.sum(a, 0) for a in priors.values())
        new, proper = self.family.from_natural(natural, self.program.size)
        return new if bool(proper) else belief

    def from_flat(self, near: Belief, summed: Summed, priors: Mapping[str, jax.Array]) -> Belief:
        """Makes the belief from base, prior sites, and a precision and slope in θ itself (at θ = 0)."""
        root, mean = near.scale, near.mean
        white = Summed(root.T @ summed.precision @ root, root.T @ (summed.slope - summed.precision @ mean))
        return self.rebuild(near, priors, white)[0]

    def prior_in(self, belief: Belief, priors: Mapping[str, jax.Array]) -> Summed:
        """Sums the base and the sites of the prior factors in the belief's whitened coordinates."""
        return self._compiled(sweeps.prior_in)(belief, self.base, priors, self.shared)

    def absorbed(
        self, belief: Belief, sites: Sequence[np.ndarray], priors: Mapping[str, jax.Array], kept: np.ndarray
    ) -> Base | None:
        """Makes a base that includes all rows except these, if it is proper; otherwise returns None."""
        recent, prior, base = (
            self.sum_all(belief, sites, kept),
            self.prior_in(belief, priors),
            self.prior_in(belief, {}),
        )
        size = self.program.size
        white = np.eye(size) - recent.precision - (prior.precision - base.precision)
        slope = -(np.asarray(recent.slope) + np.asarray(prior.slope - base.slope))
        values, vectors = np.linalg.eigh(0.5 * (white + white.T))
        if values.min() <= 0.0:
            return None
        root = (np.sqrt(values)[:, None] * vectors.T) @ np.linalg.inv(np.asarray(belief.scale))
        centre = root @ np.asarray(belief.mean) + (vectors.T @ slope) / np.sqrt(values)
        # normalised to a density, because the evidence of the absorbed rows is in info
        constant = np.linalg.slogdet(root)[1] - 0.5 * size * np.log(2.0 * np.pi)
        return Base(*(jnp.asarray(a, self.dtype) for a in (root, centre, constant)))

    def visit_priors(self, current: Current, belief: Any, damping: float) -> Any:
        """Visits the prior factors, writes their sites and infos to ``current``, and returns the belief."""
        if not current.priors:
            return belief
        visit = self._compiled(sweeps.visit_priors, _PRIOR_PASSES)
        belief, current.priors, current.prior_info = visit(belief, current.priors, self.shared, self.exchange(damping))
        return belief

    def distance(self, before: object, after: object) -> float:
        """Measures how far a belief has moved."""
        return float(self._compiled(sweeps.distance)(before, after))

    def evidence(self, current: Current) -> float:
        """Computes EP's log evidence."""
        added = float(np.sum(current.info.evidence, dtype=float))
        if self.family.sites_in_field:
            return sweeps.log_evidence(current.belief, self.base, added, current.prior_info)
        volume = float(self.family.log_norm(current.belief))
        volume += self.family.gaussian_size(self.program.size) * _HALF_LOG_2PI
        prior = sum(float(i.evidence) for i in current.prior_info.values())
        return volume - float(self.base.log_norm) + added + prior


def _order(_: Program, total: int, rng_key: jax.Array, number: int) -> jax.Array:
    """The random order of the rows that has this number."""
    return jax.random.permutation(jax.random.fold_in(rng_key, number), total)


def padded_length(count: int) -> int:
    """The power of two to which ``count`` rows are padded."""
    return 1 << (count - 1).bit_length()


def put(arrays: Sequence[np.ndarray], new: Sequence[DataArray], where: Where, count: int) -> None:
    """Writes the first ``count`` of the new values to their places."""
    for a, b in zip(arrays, new, strict=True):
        a[where] = np.asarray(b)[:count]
