"""Schedules of EP. They define the order in which rows are visited, the belief for the cavities, and the damping.

A schedule is a frozen class with ``init``, ``step`` and ``finish``; the loop that runs it is in ``iterate``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from adfpp.engine.families import Belief
from adfpp.engine.status import Status
from adfpp.learn.ep import sweeps
from adfpp.learn.ep.iterate import History, Limits, Schedule, Step
from adfpp.learn.ep.problem import Current, Problem, put
from adfpp.learn.ep.sweeps import Summed

_LEAST_DAMPING = 0.02  # a step that is damped below this fraction is not worth a sweep
_LEAST_DAMPING_IN_ORDER = 0.1  # rows in sequence need less damping: each depends on the rows before it
_SMALL = 64  # length of θ below which a rank-one update costs no more than a row's part in the matrix products
_SPOILT = 0.25  # a sweep in sequence is undone if more than this fraction of the rows is newly held or refused
_STALLED = 12  # sweeps without progress after which "auto" continues in sequence


class EPSchedule(Schedule[Problem, Current]):
    """The base of EP's schedules: the first pass over the rows, and the evidence at the end."""

    @override
    def init(self, problem: Problem, current: Current) -> None:
        if problem.resumed:
            return
        if problem.warm is not None:
            _first_sites(problem, current, problem.warm)
        else:  # ADF over the rows in random order
            order = problem.order()
            current.belief = problem.visit_in_order(current.belief, current.sites, current.info, order, 1.0)
        current.belief = problem.visit_priors(current, current.belief, 1.0)

    @override
    def finish(self, problem: Problem, current: Current, history: History) -> None:
        current.log_evidence = problem.evidence(current)

    @override
    def recover(self, problem: Problem, current: Current) -> None:
        if problem.family.sites_in_field:  # in the middle of a sweep some sites may be newer than the belief
            current.belief = problem.from_sites(current.belief, current.sites, current.priors)


class _Undoable(EPSchedule):
    """A schedule that undoes steps after which the belief is worse, unless the user has set the damping."""

    @override
    def save(self, current: Current) -> object:
        info = [a.copy() for a in current.info]
        return current.belief, current.copied_sites(), current.priors, current.prior_info, info

    @override
    def restore(self, current: Current, saved: object) -> None:
        assert isinstance(saved, tuple)
        current.belief, sites, current.priors, current.prior_info, info = saved
        put(current.sites, sites, slice(None), len(current.info.status))
        put(current.info, info, slice(None), len(current.info.status))

    def may_undo(self, problem: Problem, history: History) -> bool:
        """Whether a step can be compared with the one before it. A resumed run does not know the status of its rows."""
        return problem.limits.damping is None and (len(history) > 0 or not problem.resumed)

    def spoils_priors(self, current: Current, before: Mapping[str, int]) -> bool:
        """Whether a prior factor is held or refused that was neither before."""
        return any(status >= Status.HELD > before.get(key, 0) for key, status in current.prior_status.items())


def _first_sites(problem: Problem, current: Current, warm: Belief) -> None:
    """Makes the initial sites from a belief that has absorbed all n rows already.

    Each row is assumed to have contributed the n-th part of the information in the belief.
    """
    prior = problem.prior_in(warm, current.priors)
    share = 1.0 - 1.0 / problem.total
    identity = jnp.eye(problem.program.size, dtype=problem.dtype)
    rest = Summed(share * (identity - prior.precision), -share * prior.slope)
    outside, _, _ = problem.rebuild(warm, current.priors, rest)
    proposed, info, summed = problem.propose_all(outside, current.sites)
    new, share, _ = problem.rebuild(outside, current.priors, summed)
    if share > 0:
        current.belief = new
        put(current.sites, proposed, slice(None), problem.total)
        put(current.info, info, slice(None), problem.total)


def _update_infos(problem: Problem, current: Current, history: History) -> None:
    """Computes the infos of all rows under the final belief."""
    if not history.interrupted:
        _, current.info, _ = problem.propose_all(current.belief, current.sites)


@dataclass(frozen=True)
class Sequential(_Undoable):
    """Visits one row after the other, in a new random order in each sweep.

    A sweep is undone if a prior factor or many rows are held or refused after it that were neither before.
    """

    @override
    def first_damping(self, problem: Problem) -> float:
        return problem.family.initial_damping(problem.program.factors)

    @override
    def next_damping(self, history: History, damping: float) -> float:
        if history.steps[-1].undo or not history.shrinks_over(4):
            return max(0.5 * damping, _LEAST_DAMPING_IN_ORDER)
        sizes = history.of_stage[-4:]
        steady = len(sizes) == 4 and all(after < before for before, after in pairwise(sizes))
        return min(history.first_damping, 1.5 * damping) if steady else damping

    @override
    def step(self, problem: Problem, current: Current, damping: float, history: History) -> Step:
        before, sound, priors = current.belief, current.info.status < Status.HELD, current.prior_status
        belief = problem.visit_in_order(before, current.sites, current.info, problem.order(), damping)
        belief = problem.from_sites(belief, current.sites, current.priors)
        current.belief = problem.visit_priors(current, belief, damping)
        size = problem.distance(before, current.belief) / damping
        rows = np.mean(sound & (current.info.status >= Status.HELD))
        worse = rows > _SPOILT or self.spoils_priors(current, priors)
        if worse and self.may_undo(problem, history) and damping > _LEAST_DAMPING_IN_ORDER:
            return Step(size, 0.0, undo=1)
        return Step(size, damping, done=size <= problem.limits.tol)


@dataclass(frozen=True)
class Parallel(_Undoable):
    """Visits all rows with cavities from one belief.

    A step is undone if a prior factor is held or refused after it that was neither before. It is also undone if the
    next one would be much longer, or if more rows are held after it.

    Attributes:
        patience: The number of sweeps without progress after which the next stage takes over; never when None.
    """

    patience: int | None = None

    @override
    def finish(self, problem: Problem, current: Current, history: History) -> None:
        # the infos of the last sweep belong to the belief before it; to compute them again costs no compilation
        _update_infos(problem, current, history)
        super().finish(problem, current, history)

    @override
    def next_damping(self, history: History, damping: float) -> float:
        last = history.steps[-1]
        if last.undo:
            return max(0.25 * damping, _LEAST_DAMPING)
        if last.applied == 0:
            return damping
        before = history.accepted[-2] if len(history.accepted) > 1 else np.inf
        # of a step in the right direction the fraction 1 - applied is left
        if last.size > (1.0 - 0.2 * last.applied) * before:
            return max(0.6 * last.applied, _LEAST_DAMPING)
        return min(1.0, 1.5 * last.applied) if last.size < (1.0 - 0.5 * last.applied) * before else last.applied

    @override
    def stuck(self, history: History) -> bool:
        return self.patience is not None and history.steps_since_progress() >= self.patience

    @override
    def step(self, problem: Problem, current: Current, damping: float, history: History) -> Step:
        tol, priors = problem.limits.tol, current.prior_status
        proposed, info, summed = problem.propose_all(current.belief, current.sites)
        new, applied, size = problem.rebuild(current.belief, current.priors, summed, damping, fresh=False)
        held, held_before = (int((i.status == Status.HELD).sum()) for i in (info, current.info))
        last = history.accepted[-1] if history.accepted else np.inf
        away = size > 4.0 * last or held > held_before
        if history.revocable and away and size > tol and damping > _LEAST_DAMPING:
            return Step(size, 0.0, undo=2)
        for a, b in zip(current.sites, proposed, strict=True):
            a += applied * (b - a)
        put(current.info, info, slice(None), problem.total)
        damping = applied or damping
        current.belief = problem.visit_priors(current, new, damping)
        if current.priors:
            size = max(size, problem.distance(new, current.belief) / damping)
        if self.spoils_priors(current, priors) and self.may_undo(problem, history) and damping > _LEAST_DAMPING:
            return Step(size, 0.0, undo=1)
        return Step(size, applied, done=size <= tol)


@dataclass(frozen=True)
class Minibatch(EPSchedule):
    """Visits rows in batches: those of one batch from the same belief, the next batch from the belief after it."""

    @override
    def next_damping(self, history: History, damping: float) -> float:
        return damping if history.shrinks_over(3) else max(0.6 * damping, _LEAST_DAMPING_IN_ORDER)

    @override
    def finish(self, problem: Problem, current: Current, history: History) -> None:
        _update_infos(problem, current, history)
        super().finish(problem, current, history)

    @override
    def step(self, problem: Problem, current: Current, damping: float, history: History) -> Step:
        size = problem.batch_size or min(1024, max(1, problem.total // 8))
        before = belief = current.belief
        current.copied_sites()
        for where, rows, count in problem.chunks(problem.order(), size):
            old = problem.sites_of(current.sites, where, len(rows[0]))
            proposed, info, _ = problem.propose(belief, where, rows, count, old)
            change = tuple(new - was for new, was in zip(proposed, old, strict=True))
            summed = problem.sum(belief, rows, count, change)
            belief, applied = sweeps.apply_change(belief, summed, jnp.asarray(damping, problem.dtype))
            put(
                current.sites,
                tuple(was + applied * c for was, c in zip(old, change, strict=True)),
                where,
                count,
            )
            put(current.info, info, where, count)
            problem.progress.rows(count)
        belief = problem.from_sites(belief, current.sites, current.priors)
        current.belief = problem.visit_priors(current, belief, damping)
        step = problem.distance(before, current.belief) / damping
        return Step(step, damping, done=step <= problem.limits.tol)


@dataclass(frozen=True)
class Stochastic(EPSchedule):
    """Stochastic EP: all n rows share one site, and each row is assumed to contribute the n-th part of it.

    The joint contribution of the rows is stored as natural parameters of θ. The cavity of a row is the belief without
    the n-th part of it. The first sweep adds up the rows batch by batch, as ADF does. Each later sweep sums the
    contributions of all rows in the cavity from the sweep before. There is no estimate of the evidence, because the
    cavity of a row still contains most of the row's own contribution.
    """

    @override
    def init(self, problem: Problem, current: Current) -> None:
        size = problem.program.size
        current.memory = Summed(jnp.zeros((size, size), problem.dtype), jnp.zeros(size, problem.dtype))

    @override
    def finish(self, problem: Problem, current: Current, history: History) -> None:
        current.log_evidence = np.nan

    @override
    def recover(self, problem: Problem, current: Current) -> None:
        return None  # the belief is replaced only at the end of a sweep

    @override
    def next_damping(self, history: History, damping: float) -> float:
        return damping if history.shrinks_over(3) else max(0.6 * damping, _LEAST_DAMPING_IN_ORDER)

    @override
    def step(self, problem: Problem, current: Current, damping: float, history: History) -> Step:
        first, tied = not len(history), current.memory
        batch = min(problem.batch_size or max(1, min(256, problem.total // 8)), problem.total)
        size, dtype = problem.program.size, problem.dtype
        flat = Belief(jnp.zeros(size, dtype), jnp.eye(size, dtype=dtype))
        before = outside = current.belief
        total = Summed(*(jnp.zeros_like(a) for a in tied))
        if not first:
            rest = Summed(*((1.0 - 1.0 / problem.total) * a for a in tied))
            outside = problem.from_flat(before, rest, current.priors)
        for where, rows, count in problem.chunks(problem.order() if first else None, batch if first else None):
            empty = tuple(np.zeros((len(rows[0]), *a.shape[1:]), a.dtype) for a in current.sites)
            proposed, info, _ = problem.propose(outside, where, rows, count, empty)
            summed = problem.sum(flat, rows, count, proposed)
            total = Summed(*(t + s for t, s in zip(total, summed, strict=True)))
            put(current.info, info, where, count)
            problem.progress.rows(count)
            if first:
                outside = problem.from_flat(outside, total, current.priors)
        applied = 1.0 if first else damping
        current.memory = Summed(*(t + applied * (new - t) for t, new in zip(tied, total, strict=True)))
        belief = problem.from_flat(before, current.memory, current.priors)
        current.belief = problem.visit_priors(current, belief, applied)
        step = problem.distance(before, current.belief) / applied
        return Step(step, applied, done=step <= problem.limits.tol)


@dataclass(frozen=True)
class Windowed(EPSchedule):
    """ADF with a memory: the last rows keep their sites and are visited repeatedly, older rows stay absorbed.

    The info of each row and the evidence are those of ADF: log predictive densities before a row is absorbed.

    Attributes:
        window: Number of rows that keep their sites.
    """

    window: int

    @override
    def init(self, problem: Problem, current: Current) -> None:
        current.memory = 0  # rows absorbed so far

    def stride(self, problem: Problem) -> int:
        """The number of new rows in a step."""
        return max(1, min(self.window // 4, problem.chunk))

    @override
    def max_steps(self, problem: Problem, limits: Limits) -> int:
        return -(-problem.total // self.stride(problem))

    @override
    def step(self, problem: Problem, current: Current, damping: float, history: History) -> Step:
        start: int = current.memory
        stop = min(start + self.stride(problem), problem.total)
        belief = problem.visit_in_order(current.belief, current.sites, current.info, np.arange(start, stop), damping)
        recent, scratch, last = np.arange(max(0, stop - self.window), stop), problem.blank(), stop == problem.total
        size = np.inf
        for _ in range(problem.limits.max_steps if last else 2):
            before = belief
            belief = problem.visit_in_order(belief, current.sites, scratch, recent, damping)
            belief = problem.visit_priors(current, belief, damping)
            size = problem.distance(before, belief) / damping
            if size <= problem.limits.tol:
                break
        current.belief, current.memory = belief, stop
        return Step(size, damping, done=last)

    @override
    def finish(self, problem: Problem, current: Current, history: History) -> None:
        kept = current.kept = np.arange(max(0, current.memory - self.window), current.memory)
        current.base = problem.absorbed(current.belief, current.sites, current.priors, kept)
        current.log_evidence = float(np.sum(current.info.log_z, dtype=float))


@dataclass(frozen=True)
class Auto(Sequential):
    """Sequential if θ is short or the family needs it; otherwise parallel, then sequential if there is no progress."""

    @override
    def stages(self, problem: Problem) -> Sequence[Schedule[Problem, Current]]:
        if problem.program.size < _SMALL or not problem.family.sites_in_field:
            return [Sequential()]
        return [Parallel(_STALLED), SequentialAfterParallel()]


@dataclass(frozen=True)
class SequentialAfterParallel(Sequential):
    """Sequential sweeps after parallel ones. The evidence is computed with all cavities from the final belief."""

    @override
    def finish(self, problem: Problem, current: Current, history: History) -> None:
        _update_infos(problem, current, history)
        super().finish(problem, current, history)


def schedule_named(name: str, window: int | None) -> EPSchedule:
    """Returns the schedule with this name."""
    return Windowed(window or 0) if name == "window" else _NAMED[name]


_NAMED: dict[str, EPSchedule] = {
    "auto": Auto(),
    "parallel": Parallel(),
    "sequential": Sequential(),
    "minibatch": Minibatch(),
    "stochastic": Stochastic(),
}
SCHEDULES = (*_NAMED, "window")
