"""Schedules of EP: in which order rows are visited, from which belief, and when it is enough."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.families import Belief, Family, Product
from adfpp.engine.families.product.marginals import roster
from adfpp.engine.kernel import Draws, Exchange
from adfpp.engine.status import Status, VisitInfo, empty_info
from adfpp.learn.ep.sweeps import Compiled, Gathered, Sites, log_evidence, moved_by
from adfpp.learn.start import Base
from adfpp.learn.stream import padded
from adfpp.model import Program

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_LEAST = 0.02  # damping below which a step is not worth making
_PRIOR_PASSES = 2  # visits of the prior's factors a sweep: they are few, and hang together closely
_SMALL = 64  # length of θ below which a rank-one update costs no more than a row's part in the matrix products
_STALLED = 12  # sweeps without progress after which "auto" goes on in sequence


class Settings(NamedTuple):
    """The options of a run, see ``EP``."""

    power: float
    damping: float | None
    tol: float
    max_sweeps: int
    batch_size: int | None
    window: int | None


@dataclass
class Reached:
    """What a schedule has reached.

    Attributes:
        belief: The last proper belief.
        sites: The rows' sites that it is made of.
        priors: The prior's sites.
        info: What became of the rows, NumPy arrays ``(n,)``.
        steps: How far each sweep would have moved the belief.
        dampings: How much of it was done.
        converged: Whether the last step was small enough.
        log_evidence: EP's estimate.
        prior_status: The worst status of the prior's factors.
        unsettled: Rows whose sites moved most in the last sweep, if it did not converge.
        base: What stands for the base, where rows have been absorbed into it.
        interrupted: Whether Ctrl-C ended the run.
    """

    belief: Belief
    sites: tuple[np.ndarray, ...]
    priors: dict[str, jax.Array]
    info: VisitInfo
    steps: list[float] = field(default_factory=list)
    dampings: list[float] = field(default_factory=list)
    converged: bool = False
    log_evidence: float = np.nan
    prior_status: dict[str, int] = field(default_factory=dict)
    unsettled: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    base: Base | None = None
    interrupted: bool = False


class Progress:
    """A progress bar over visits of rows, if one is shown."""

    def __init__(self, show: bool) -> None:
        self.bar: Any = None
        if show:
            from tqdm.auto import tqdm

            self.bar = tqdm(unit="row", unit_scale=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.close()

    def rows(self, count: int) -> None:
        """So many rows have been visited."""
        if self.bar is not None:
            self.bar.update(count)

    def sweep(self, number: int, step: float) -> None:
        """A sweep has ended."""
        if self.bar is not None:
            self.bar.set_postfix_str(f"sweep {number}, step {step:.2g} sd")


class Task:
    """A data set, and what is compiled for it, a chunk of rows at a time."""

    def __init__(
        self,
        family: Family,
        program: Program,
        compiled: Compiled,
        rows: Sequence[Any],
        shared: Sequence[Any],
        base: Any,
        chunk: int,
        rng_key: jax.Array,
        settings: Settings,
        draw_key: jax.Array,
    ) -> None:
        self.family: Any = family
        self.program, self.compiled = program, compiled
        self.rows, self.shared, self.base, self.chunk = rows, [jnp.asarray(a) for a in shared], base, chunk
        self.total = rows[0].shape[0]
        self.rng_key, self.settings = rng_key, settings
        self.draw_key = draw_key if any(g.draws for g in program.factors) else None
        self.dtype = program.dtype
        self.power = jnp.asarray(settings.power, self.dtype)
        self._kept: list[Any] | None = None
        self._orders = 0

    def order(self) -> np.ndarray:
        """A new random order of the rows."""
        self._orders += 1
        return np.asarray(jax.random.permutation(jax.random.fold_in(self.rng_key, self._orders), self.total))

    def pieces(self, order: np.ndarray | None = None, size: int | None = None) -> Iterator[tuple[Any, list[Any], int]]:
        """Chunks of rows as (their places, their arrays padded to a power of two, how many they are)."""
        size = min(size or self.chunk, self.chunk)
        total = self.total if order is None else len(order)
        if order is None and total <= size:
            if self._kept is None:
                self._kept = [jnp.asarray(padded(a, _length(total))) for a in self.rows]
            yield slice(0, total), self._kept, total
            return
        for start in range(0, total, size):
            where: Any = slice(start, min(start + size, total)) if order is None else order[start : start + size]
            count = min(size, total - start)
            yield where, [padded(a[where], _length(count)) for a in self.rows], count

    def taken(self, sites: Sequence[np.ndarray], where: Any, count: int) -> Sites:
        """The sites of a chunk."""
        return tuple(padded(a[where], _length(count)) for a in sites)

    def draws(self, where: Any, count: int) -> Draws | None:
        """A row's random points are the same in every sweep, or the sites would never settle."""
        if self.draw_key is None:
            return None
        return Draws(self.draw_key, padded(np.arange(self.total)[where], _length(count)))

    def exchange(self, damping: float) -> Exchange:
        """How sites are exchanged."""
        return Exchange(self.power, jnp.asarray(damping, self.dtype))

    def blank(self) -> VisitInfo:
        """The info of rows of which nothing has become yet."""
        return VisitInfo(*(np.array(a) for a in empty_info(self.total, self.dtype, True)))

    # ------------------------------------------------------------------------------------------ sweeps

    def fold(
        self,
        belief: Belief,
        sites: Sequence[np.ndarray],
        info: VisitInfo,
        order: np.ndarray,
        damping: float,
        progress: Progress,
    ) -> Belief:
        """Visits rows in this order; ``sites`` and ``info`` are written to."""
        for where, rows, count in self.pieces(order):
            belief, new, now = self.compiled.fold(
                belief,
                rows,
                self.shared,
                self.taken(sites, where, count),
                self.exchange(damping),
                count,
                self.draws(where, count),
            )
            _put(sites, new, where, count)
            _put(info, now, where, count)
            progress.rows(count)
        return belief

    def survey(
        self, belief: Belief, sites: Sequence[np.ndarray], progress: Progress
    ) -> tuple[list[np.ndarray], VisitInfo, Gathered]:
        """Visits all rows at once."""
        proposed = [np.empty_like(a) for a in sites]
        info, total = self.blank(), None
        for where, rows, count in self.pieces():
            new, now, gathered = self.compiled.survey(
                belief,
                rows,
                self.shared,
                self.taken(sites, where, count),
                self.power,
                count,
                self.draws(where, count),
            )
            total = gathered if total is None else jax.tree.map(jnp.add, total, gathered)
            _put(proposed, new, where, count)
            _put(info, now, where, count)
            progress.rows(count)
        assert total is not None
        return proposed, info, total

    def gather(self, belief: Belief, sites: Sequence[np.ndarray], order: np.ndarray | None = None) -> Gathered:
        """What the rows' sites add up to."""
        total = None
        for where, rows, count in self.pieces(order):
            gathered = self.compiled.gather(belief, rows, self.shared, self.taken(sites, where, count), count)
            total = gathered if total is None else jax.tree.map(jnp.add, total, gathered)
        assert total is not None
        return total

    def settle(
        self, belief: Belief, priors: Mapping[str, jax.Array], gathered: Gathered, damping: float, fresh: bool
    ) -> tuple[Belief, float, float]:
        """The belief made anew: itself, how much of the change was made, and how far all of it would move."""
        new, share, step = self.compiled.settle(
            belief, self.base, priors, self.shared, gathered, jnp.asarray(damping, self.dtype), jnp.asarray(fresh)
        )
        share, step = jax.device_get((share, step))
        return new, float(share), float(step)

    def rebuild(self, belief: Belief, sites: Sequence[np.ndarray], priors: Mapping[str, jax.Array]) -> Belief:
        """The belief of the base and all sites."""
        if self.family.sites_in_field:
            return self.settle(belief, priors, self.gather(belief, sites), 1.0, True)[0]
        natural = self.base.natural + sum(jnp.sum(jnp.asarray(a), (0, 1)) for a in sites)
        natural = natural + sum(jnp.sum(a, 0) for a in priors.values())
        new, proper = self.family.from_natural(natural, self.program.size)
        return new if bool(proper) else belief

    def from_flat(self, near: Belief, held: Gathered, priors: Mapping[str, jax.Array]) -> Belief:
        """The belief of base, prior sites and what rows hold in θ itself: precision, and slope at θ = 0."""
        root, mean = near.scale, near.mean
        white = Gathered(root.T @ held.precision @ root, root.T @ (held.slope - held.precision @ mean))
        return self.settle(near, priors, white, 1.0, True)[0]

    def absorbed(
        self, belief: Belief, sites: Sequence[np.ndarray], priors: Mapping[str, jax.Array], kept: np.ndarray
    ) -> Base | None:
        """What stands for the base once all rows but these are part of it, if that is proper."""
        recent, prior = self.gather(belief, sites, kept), self.compiled.prior_in(belief, self.base, priors, self.shared)
        only_base = self.compiled.prior_in(belief, self.base, {}, self.shared)
        size = self.program.size
        white = np.eye(size) - recent.precision - (prior.precision - only_base.precision)
        slope = -(np.asarray(recent.slope) + np.asarray(prior.slope - only_base.slope))
        values, vectors = np.linalg.eigh(0.5 * (white + white.T))
        if values.min() <= 0.0:
            return None
        root = (np.sqrt(values)[:, None] * vectors.T) @ np.linalg.inv(np.asarray(belief.scale))
        centre = root @ np.asarray(belief.mean) + (vectors.T @ slope) / np.sqrt(values)
        # normalised as a density of its own: what the absorbed rows said of the evidence is in info
        constant = np.linalg.slogdet(root)[1] - 0.5 * size * np.log(2.0 * np.pi)
        return Base(*(jnp.asarray(a, self.dtype) for a in (root, centre, constant)))

    def visit_priors(
        self, belief: Belief, priors: dict[str, jax.Array], damping: float
    ) -> tuple[Belief, dict[str, jax.Array], dict[str, VisitInfo]]:
        """Visits the prior's factors."""
        if not priors:
            return belief, priors, {}
        return self.compiled.visit_priors(belief, priors, self.shared, self.exchange(damping), _PRIOR_PASSES)

    def evidence(self, belief: Belief, info: VisitInfo, priors: Mapping[str, VisitInfo]) -> float:
        """EP's log evidence."""
        added = float(np.sum(info.evidence, dtype=float))
        if self.family.sites_in_field:
            return log_evidence(belief, self.base, added, priors)
        volume = float(self.family.log_norm(belief)) + self.family.gaussian_size(self.program.size) * _HALF_LOG_2PI
        whole = volume - float(self.base.log_norm)
        return whole + added + sum(float(i.evidence) for i in priors.values())


def _length(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _put(arrays: Sequence[np.ndarray], new: Sequence[Any], where: Any, count: int) -> None:
    for a, b in zip(arrays, new, strict=True):
        a[where] = np.asarray(b)[:count]


# ------------------------------------------------------------------------------------------ schedules


def _first_pass(task: Task, reached: Reached, warm: Belief | None, progress: Progress) -> None:
    """The sites' first values: ADF over the rows in random order, or from a belief that has seen them already."""
    if warm is None:
        reached.belief = task.fold(reached.belief, reached.sites, reached.info, task.order(), 1.0, progress)
        return
    # of a belief that holds n rows, each is taken to hold the n-th part
    prior = task.compiled.prior_in(warm, task.base, reached.priors, task.shared)
    share = 1.0 - 1.0 / task.total
    rest = Gathered(share * (jnp.eye(task.program.size, dtype=task.dtype) - prior.precision), -share * prior.slope)
    outside, _, _ = task.settle(warm, reached.priors, rest, 1.0, True)
    proposed, info, gathered = task.survey(outside, reached.sites, progress)
    new, share, _ = task.settle(outside, reached.priors, gathered, 1.0, True)
    if share > 0:
        reached.belief = new
        for a, b in zip(reached.sites, proposed, strict=True):
            a[...] = b
        _put(reached.info, info, slice(None), task.total)


def _finish(
    task: Task, reached: Reached, priors: Mapping[str, VisitInfo], at_once: bool | float, progress: Progress
) -> Reached:
    """The evidence and the rows' predictive densities.

    They are those of the last sweep if it was one in sequence, and of the belief that was reached if rows are visited
    at once: then looking again costs no compilation.
    """
    if at_once is True and task.family.sites_in_field:
        _, reached.info, _ = task.survey(reached.belief, reached.sites, progress)
    reached.prior_status = {k: int(i.status) for k, i in priors.items()}
    known = isinstance(at_once, float)
    reached.log_evidence = float(at_once) if known else task.evidence(reached.belief, reached.info, priors)
    held = bool((reached.info.status == Status.HELD).any()) or Status.HELD in reached.prior_status.values()
    reached.converged = bool(reached.steps) and reached.steps[-1] <= task.settings.tol and not held
    return reached


def _sequential(task: Task, reached: Reached, progress: Progress, damping: float | None) -> dict[str, VisitInfo]:
    """Sweeps in sequence until the belief settles; damped more where it does not.

    Crowds of discrete components overshoot near certainty, and are damped from the beginning.
    """
    settings, share = task.settings, damping or (0.5 if _crowded(task) else 1.0)
    infos: dict[str, VisitInfo] = {}
    while len(reached.steps) < settings.max_sweeps:
        before, stood = reached.belief, [a.copy() for a in reached.sites]
        belief = task.fold(before, reached.sites, reached.info, task.order(), share, progress)
        belief = task.rebuild(belief, reached.sites, reached.priors)
        belief, reached.priors, infos = task.visit_priors(belief, reached.priors, share)
        step = float(moved_by(task.family, before, belief)) / share
        reached.belief = belief
        _note(task, reached, step, share, stood, progress)
        if step <= settings.tol:
            break
        if damping is None and _not_shrinking(reached.steps, 4):
            share = max(0.5 * share, 0.1)
    return infos


def _crowded(task: Task) -> bool:
    family = task.family
    return isinstance(family, Product) and any(roster(family, g).crowd for g in task.program.factors)


def _not_shrinking(steps: Sequence[float], over: int) -> bool:
    return len(steps) > over and steps[-1] > 0.7 * steps[-1 - over] and steps[-1] > 0.5 * min(steps[-over:])


def _note(
    task: Task, reached: Reached, step: float, share: float, stood: Sequence[np.ndarray], progress: Progress
) -> None:
    reached.steps.append(step)
    reached.dampings.append(share)
    progress.sweep(len(reached.steps), step)
    if step > task.settings.tol and len(reached.steps) >= task.settings.max_sweeps:
        change = sum(
            np.abs(a - b).reshape(len(a), -1).sum(1) / (np.abs(a).reshape(len(a), -1).max(1) + 1e-300)
            for a, b in zip(reached.sites, stood, strict=True)
        )
        reached.unsettled = np.argsort(-np.asarray(change))[:5]


def _parallel(
    task: Task, reached: Reached, progress: Progress, damping: float | None, patience: int | None
) -> tuple[dict[str, VisitInfo], bool]:
    """Sweeps at once until the belief settles.

    A step that turns out to have led away is taken back. Without a given damping it is found: less where the belief
    does not settle, more where it does.

    Returns:
        What became of the prior's factors, and whether patience ended before the belief had settled.
    """
    settings, share = task.settings, damping or 1.0
    infos: dict[str, VisitInfo] = {}
    best, since, last = np.inf, 0, np.inf
    previous: tuple[Belief, list[np.ndarray], dict[str, jax.Array]] | None = None
    while len(reached.steps) < settings.max_sweeps:
        proposed, info, gathered = task.survey(reached.belief, reached.sites, progress)
        new, made, step = task.settle(reached.belief, reached.priors, gathered, share, False)
        held = int((info.status == Status.HELD).sum())
        lost = not np.isfinite(step) or step > 4.0 * last or held > int((reached.info.status == Status.HELD).sum())
        if previous is not None and lost and step > settings.tol and share > _LEAST and damping is None:
            reached.belief, sites, reached.priors = previous
            _put(reached.sites, sites, slice(None), task.total)
            previous, share = None, max(0.25 * share, _LEAST)
            reached.steps.append(step)
            reached.dampings.append(0.0)
            continue
        previous = (reached.belief, [a.copy() for a in reached.sites], reached.priors)
        for a, b in zip(reached.sites, proposed, strict=True):
            a += made * (b - a)
        _put(reached.info, info, slice(None), task.total)
        moved, reached.priors, infos = task.visit_priors(new, reached.priors, 1.0)
        if reached.priors:
            step = max(step, float(moved_by(task.family, new, moved)))
        reached.belief = moved
        _note(task, reached, step, made, previous[1], progress)
        if step <= settings.tol:
            return infos, False
        if damping is None and made > 0:
            share = made
            if step > 0.8 * last:
                share = max(0.6 * share, _LEAST)
            elif step < 0.5 * last:
                share = min(1.0, 1.5 * share)
        since = 0 if step < 0.9 * best else since + 1
        best, last = min(best, step), step
        if patience is not None and since >= patience:
            return infos, True
    return infos, True


def _minibatches(task: Task, reached: Reached, progress: Progress, damping: float | None) -> dict[str, VisitInfo]:
    """Sweeps in batches: the rows of one are visited at once, the next from the belief that it has left."""
    settings, share = task.settings, damping or 1.0
    size = settings.batch_size or min(1024, max(1, task.total // 8))
    infos: dict[str, VisitInfo] = {}
    while len(reached.steps) < settings.max_sweeps:
        before, stood = reached.belief, [a.copy() for a in reached.sites]
        belief = before
        for where, rows, count in task.pieces(task.order(), size):
            old = task.taken(reached.sites, where, count)
            drawn = task.draws(where, count)
            proposed, now, _ = task.compiled.survey(belief, rows, task.shared, old, task.power, count, drawn)
            change = tuple(new - was for new, was in zip(proposed, old, strict=True))
            gathered = task.compiled.gather(belief, rows, task.shared, change, count)
            belief, made = task.compiled.nudge(belief, gathered, jnp.asarray(share, task.dtype))
            new = tuple(was + made * c for was, c in zip(old, change, strict=True))
            _put(reached.sites, new, where, count)
            _put(reached.info, now, where, count)
            progress.rows(count)
        belief = task.rebuild(belief, reached.sites, reached.priors)
        belief, reached.priors, infos = task.visit_priors(belief, reached.priors, share)
        step = float(moved_by(task.family, before, belief)) / share
        reached.belief = belief
        _note(task, reached, step, share, stood, progress)
        if step <= settings.tol:
            break
        if damping is None and _not_shrinking(reached.steps, 3):
            share = max(0.6 * share, 0.1)
    return infos


def _tied(task: Task, reached: Reached, progress: Progress) -> tuple[dict[str, VisitInfo], float]:
    """One site tied across all rows: what they hold together is kept, in θ, and each is taken to hold the n-th part.

    The cavity of a row is the belief without an n-th of what the rows hold. The first sweep adds the rows up batch by
    batch, as ADF does; every other sums what they say of the cavity that the last has left. There is no evidence: a
    row's cavity still holds most of what the row says.
    """
    settings, size = task.settings, task.program.size
    batch = min(settings.batch_size or max(1, min(256, task.total // 8)), task.total)
    flat = Belief(jnp.zeros(size, task.dtype), jnp.eye(size, dtype=task.dtype))
    held = Gathered(jnp.zeros((size, size), task.dtype), jnp.zeros(size, task.dtype))
    infos: dict[str, VisitInfo] = {}
    share = settings.damping or 1.0
    order: np.ndarray | None = task.order()
    while len(reached.steps) < settings.max_sweeps:
        before, first = reached.belief, order is not None
        outside, total = before, Gathered(*(jnp.zeros_like(a) for a in held))
        if not first:
            rest = Gathered(*((1.0 - 1.0 / task.total) * a for a in held))
            outside = task.from_flat(before, rest, reached.priors)
        for where, rows, count in task.pieces(order, batch if first else None):
            empty = tuple(np.zeros((_length(count), *a.shape[1:]), a.dtype) for a in reached.sites)
            drawn = task.draws(where, count)
            proposed, now, _ = task.compiled.survey(outside, rows, task.shared, empty, task.power, count, drawn)
            said = task.compiled.gather(flat, rows, task.shared, proposed, count)
            total = Gathered(*(t + s for t, s in zip(total, said, strict=True)))
            _put(reached.info, now, where, count)
            progress.rows(count)
            if first:
                outside = task.from_flat(outside, total, reached.priors)
        made = 1.0 if first else share
        held = Gathered(*(h + made * (t - h) for h, t in zip(held, total, strict=True)))
        belief = task.from_flat(before, held, reached.priors)
        reached.belief, reached.priors, infos = task.visit_priors(belief, reached.priors, made)
        step = float(moved_by(task.family, before, reached.belief)) / made
        reached.steps.append(step)
        reached.dampings.append(made)
        progress.sweep(len(reached.steps), step)
        order = None
        if step <= settings.tol:
            break
        if settings.damping is None and _not_shrinking(reached.steps, 3):
            share = max(0.6 * share, 0.1)
    return infos, np.nan


def _windowed(task: Task, reached: Reached, progress: Progress) -> tuple[dict[str, VisitInfo], float]:
    """ADF with a memory: the last rows keep their sites and are visited again, older ones stay absorbed.

    What comes back of each row, and as evidence, is as in ADF its log predictive density before it was absorbed.
    """
    settings = task.settings
    assert settings.window is not None
    stride, step = max(1, min(settings.window // 4, task.chunk)), np.inf
    infos: dict[str, VisitInfo] = {}
    damping = settings.damping or 1.0
    scratch = task.blank()
    for start in range(0, task.total, stride):
        stop = min(start + stride, task.total)
        belief = task.fold(reached.belief, reached.sites, reached.info, np.arange(start, stop), damping, progress)
        recent = np.arange(max(0, stop - settings.window), stop)
        most = 2 if stop < task.total else settings.max_sweeps
        for _ in range(most):
            before = belief
            belief = task.fold(belief, reached.sites, scratch, recent, damping, progress)
            belief, reached.priors, infos = task.visit_priors(belief, reached.priors, damping)
            step = float(moved_by(task.family, before, belief)) / damping
            if step <= settings.tol:
                break
        reached.belief = belief
        reached.steps.append(step)
        reached.dampings.append(damping)
        progress.sweep(len(reached.steps), step)
    kept = np.arange(max(0, task.total - settings.window), task.total)
    reached.base = task.absorbed(reached.belief, reached.sites, reached.priors, kept)
    return infos, float(np.sum(reached.info.log_z, dtype=float))


def _run(
    sweeps: Callable[[Task, Reached, Progress], tuple[dict[str, VisitInfo], bool | float]],
    first: bool,
    task: Task,
    belief: Belief,
    sites: tuple[np.ndarray, ...],
    priors: dict[str, jax.Array],
    warm: Belief | None,
    started: bool,
    progress: Progress,
) -> Reached:
    """One schedule from beginning to end: a first pass, its sweeps, and the evidence.

    ``sweeps`` says beside what became of the prior's factors whether rows are visited at once, or the evidence.
    """
    reached = Reached(belief, sites, priors, task.blank())
    infos: dict[str, VisitInfo] = {}
    at_once: bool | float = False
    try:
        if first and not started:
            _first_pass(task, reached, warm, progress)
            reached.belief, reached.priors, infos = task.visit_priors(reached.belief, reached.priors, 1.0)
        now, at_once = sweeps(task, reached, progress)
        infos = now or infos
    except KeyboardInterrupt:
        warnings.warn(f"Interrupted after {len(reached.steps)} sweeps; the belief reached is returned.", stacklevel=4)
        reached.interrupted = True
        if task.family.sites_in_field:  # in the middle of a sweep some sites may be newer than the belief
            reached.belief = task.rebuild(reached.belief, reached.sites, reached.priors)
    return _finish(task, reached, infos, at_once, progress)


def _auto(task: Task, reached: Reached, progress: Progress) -> tuple[dict[str, VisitInfo], bool]:
    """In sequence while θ is small, and for families that need it; else at once, and then in sequence if need be."""
    damping = task.settings.damping
    if task.program.size < _SMALL or not task.family.sites_in_field:
        return _sequential(task, reached, progress, damping), False
    infos, stuck = _parallel(task, reached, progress, damping, _STALLED)
    return (_sequential(task, reached, progress, damping) or infos) if stuck else infos, True


Schedule = Callable[..., Reached]

SCHEDULES: dict[str, Schedule] = {
    "auto": partial(_run, _auto, True),
    "parallel": partial(_run, lambda t, r, p: (_parallel(t, r, p, t.settings.damping, None)[0], True), True),
    "sequential": partial(_run, lambda t, r, p: (_sequential(t, r, p, t.settings.damping), False), True),
    "minibatch": partial(_run, lambda t, r, p: (_minibatches(t, r, p, t.settings.damping), True), True),
    "stochastic": partial(_run, _tied, False),
    "window": partial(_run, _windowed, False),
}
