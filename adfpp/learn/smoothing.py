"""Smoothing: with dynamics, the belief about θ at the time of each row, given all rows.

The filter approximates a row given only the rows before it. Further sweeps are EP on the state-space model: each row's
site is replaced by a new one, computed in its cavity under the smoothed belief, and both passes are repeated with the
sites in the place of the rows. The passes are in ``passes``; the loop is that of EP, ``adfpp.learn.ep.iterate``.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from adfpp.engine.dynamics import Static
from adfpp.engine.families import Belief, Gaussian
from adfpp.engine.status import RowInfo, Status, VisitInfo, is_refused
from adfpp.learn.adf import ADF, checked_gaps
from adfpp.learn.ep.iterate import History, Limits, Progress, Schedule, Step, iterate
from adfpp.learn.ep.sweeps import Sites
from adfpp.learn.learner import refuse_tracers
from adfpp.learn.passes import Passes, Replayed
from adfpp.learn.posterior import GivenPrior, Posterior
from adfpp.learn.stream import DataArray, Log, NotConverged
from adfpp.model import Program
from adfpp.model.arguments import signature_of

_RESERVED = frozenset("sweeps tol".split())
_MOST_BYTES = 2e9  # for covariances: more would not fit into the memory of a laptop
_LEAST = 0.05  # damping below which a sweep is not worth its time


@dataclass(frozen=True, eq=False)
class Smoothed:
    """The beliefs of the flat unconstrained θ at the time of each row, given all rows.

    It has one root ``(N, N)`` of a covariance for each of the n rows.

    Attributes:
        program: The model as it was read.
        family: How the beliefs are stored.
        belief: Mean ``(n, N)`` and root ``(n, N, N)``.
        filtered_mean: ``(n, N)`` means of the filter, given the rows up to this one.
        filtered_sd: ``(n, N)`` standard deviations of the filter.
        log_evidence: Log p(data): the sum of the filter's log predictive densities; after more sweeps EP's estimate.
        status: ``(n,)`` ``Status`` codes. At a refused row the belief depends on the other rows only.
        steps: ``(sweeps,)`` how far each sweep moved the beliefs, without damping: the largest move of a mean in sds,
            or of an sd relatively. The first number is the distance from the beliefs of the filter.
        converged: Whether the last sweep moved the beliefs by no more than ``tol``, and exchanged all sites.
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
        """The posterior at the time of a row."""
        mean, scale = self.belief
        return Posterior(self.program, self.family, Belief(jnp.asarray(mean[row]), jnp.asarray(scale[row])))


def smooth(
    adf: ADF,
    *args: Any,
    rng_key: jax.Array | None = None,
    prior: GivenPrior = None,
    dt: npt.ArrayLike | None = None,
    sweeps: int = 1,
    tol: float = 1e-3,
    progress_bar: bool = True,
    **kwargs: Any,
) -> Smoothed:
    """Filters a whole stream of rows and smooths it backwards.

    For a linear Gaussian model this is the Kalman filter with the Rauch-Tung-Striebel smoother, and exact. For other
    models each row is approximated given the rows before it; more than one of ``sweeps`` improve this, as EP does for a
    constant θ.

    Up to three ``(N, N)`` roots for each row are in memory at a time: 10,000 rows of 20 numbers take 96 MB. A call that
    would take more than 2 GB is refused.

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
        sweeps: The largest number of sweeps; 1 means the filter and one backward pass.
        tol: Sweeps end when no mean moves by more than this (in sds), and no sd (relatively).
        progress_bar: Whether to show a progress bar.
        **kwargs: The model's keyword arguments.
    """
    _check(adf, sweeps, tol)
    refuse_tracers("adfpp.smooth", "Call it in a Python loop, one stream at a time.", rng_key, args, kwargs, dt)
    if dt is not None:
        kwargs = {**kwargs, "dt": dt}
    own, gaps = adf.without_dt(kwargs)
    call = adf.resolve(args, own)
    program, total = call.program, call.rows[0].shape[0]
    if not program.family.sites_in_field:  # a discrete latent always makes the family a product
        raise ValueError(_no_product({v.name: v.native.name for v in program.latents if v.native is not None}))
    dtype = np.dtype(program.dtype)
    _refuse_large(total, program.size, dtype)
    key = jax.random.key(0) if rng_key is None else rng_key
    state = adf.init(key, *args, prior=prior, **kwargs)
    gaps = checked_gaps(1.0 if gaps is None else gaps, total, dtype)
    with Progress(progress_bar) as progress:
        passes = Passes(program, adf.motion, call.rows, call.shared, state.setup, progress, tol)
        current = _filter_and_smooth(passes, state.belief, gaps)
        history = iterate(_Smoothing(), passes, current, Limits(tol, sweeps), progress, stacklevel=3)
    steps = np.array(history.sizes)
    converged = bool(len(steps) > 1 and steps[-1] <= tol and not current.held.any())
    log = Log("totals", total, None)
    log.add(RowInfo(current.info.log_z, current.status, current.info.error), 0)
    log.warn()
    if sweeps > 1 and not converged and not history.interrupted:
        held = int((current.status == Status.HELD).sum())
        warnings.warn(
            f"Smoothing did not converge in {len(steps)} sweeps: the last moved the beliefs by "
            f"{steps[-1]:.2g} sd{f', and {held} rows keep the sites of earlier sweeps' if held else ''}. Allow more "
            "sweeps, or a larger tol. Rows that keep earlier sites do not fit a Gaussian; the other rows are as good "
            "as they can get.",
            NotConverged,
            stacklevel=2,
        )
    return Smoothed(
        program,
        adf.family,
        current.belief,
        current.filtered_mean,
        current.filtered_sd,
        float(current.log_evidence),
        np.asarray(current.status),
        steps,
        converged,
    )


def _check(adf: ADF, sweeps: int, tol: float) -> None:
    """Refuses learners and options that cannot be smoothed."""
    if not isinstance(adf, ADF):
        raise TypeError(f"smooth takes an adfpp.ADF with dynamics; it was given a {type(adf).__name__}.")
    if isinstance(adf.dynamics, Static):
        raise ValueError(
            "There is nothing to smooth: without dynamics θ is the same at every row, and there is one posterior "
            "for all of them. Give the ADF dynamics, for example dynamics=adfpp.RandomWalk(...). For a better "
            "posterior of a constant θ use adfpp.EP."
        )
    if not hasattr(adf.dynamics, "transition"):
        raise TypeError(f"{type(adf.dynamics).__name__} needs a method transition(belief, setup, gap) to be smoothed.")
    given = getattr(adf.family, "given", None)  # families latent by latent
    if given is not None:
        raise ValueError(_no_product(dict(given)))
    if not adf.family.sites_in_field:
        raise ValueError(
            f"smooth needs family='full': the {adf.family.name} family forgets how θ at one row depends on θ "
            "at the next row. Make the learner with adfpp.ADF(model, family='full', dynamics=...)."
        )
    if sweeps < 1 or not tol > 0.0:
        raise ValueError(f"sweeps must be at least 1 and tol positive; they are {sweeps} and {tol}.")
    clashes = sorted(_RESERVED & set(signature_of(adf.model).parameters))
    if clashes:
        raise ValueError(f"The model's argument {clashes[0]!r} is also an option of smooth; rename it.")


def _no_product(stored: Mapping[str, str]) -> str:
    families = ", ".join(f"{latent}: {family}" for latent, family in stored.items())
    return (
        f"smooth needs one full Gaussian over all latents, and this learner stores a product ({families}), which "
        "forgets how a latent depends on the others and on itself a row earlier. Make the learner with "
        "adfpp.ADF(model, family='full', dynamics=...); a model with discrete latents cannot be smoothed."
    )


def _refuse_large(total: int, size: int, dtype: np.dtype) -> None:
    needed = 3.0 * total * size * size * dtype.itemsize
    if needed > _MOST_BYTES:
        raise ValueError(
            f"Smoothing {total} rows of {size} numbers would take {needed / 1e9:.1f} GB for covariances; at most "
            f"{_MOST_BYTES / 1e9:.0f} GB are allowed. Smooth the rows in parts, each starting from the "
            "posterior of the rows before it: prior=adf.get_posterior(state)."
        )


# ------------------------------------------------------------------------------------------ the schedule


@dataclass
class _Current:
    """The results of smoothing so far.

    Attributes:
        start: The belief before the first row.
        gaps: ``(n,)`` the time for which θ moves before each row.
        taken: ``(n,)`` booleans: which rows were absorbed by the filter.
        belief: The smoothed beliefs.
        sites: The rows' sites.
        info: What happened to the rows in the filter.
        status: ``(n,)`` ``Status`` codes of the last sweep.
        filtered_mean: ``(n, N)`` means of the filter.
        filtered_sd: ``(n, N)`` standard deviations of the filter.
        log_evidence: Log evidence of all rows.
        held: ``(n,)`` booleans: rows whose sites could not be exchanged in the last sweep.
        replayed: The forward pass with the sites in the place of the rows.
    """

    start: Belief
    gaps: np.ndarray
    taken: np.ndarray
    belief: Belief
    sites: Sites
    info: VisitInfo
    status: np.ndarray
    filtered_mean: np.ndarray
    filtered_sd: np.ndarray
    log_evidence: float
    held: np.ndarray
    replayed: Replayed | None = None


def _filter_and_smooth(passes: Passes, start: Belief, gaps: np.ndarray) -> _Current:
    filtered = passes.filter(start, gaps)
    info, status = filtered.info, filtered.info.status
    mean, sd = np.array(filtered.belief.mean), _spread(filtered.belief.scale)
    belief = passes.backward(filtered.belief, filtered.gaps)
    evidence, taken = float(np.sum(info.log_z, dtype=float)), ~is_refused(status)
    held = np.zeros(len(status), bool)
    return _Current(start, filtered.gaps, taken, belief, filtered.sites, info, status, mean, sd, evidence, held)


@dataclass(frozen=True)
class _Smoothing(Schedule[Passes, _Current]):
    """The first step is the filter with one backward pass. The other steps exchange the rows' sites."""

    @override
    def next_damping(self, history: History, damping: float) -> float:
        if len(history) < 3:
            return damping
        before, last = history.sizes[-2:]
        return min(1.0, 1.25 * damping) if last < before else max(_LEAST, 0.5 * damping)

    @override
    def step(self, problem: Passes, current: _Current, damping: float, history: History) -> Step:
        if not len(history):
            return Step(_step(current.filtered_mean, current.filtered_sd, current.belief, 1.0), 1.0)
        before = current.replayed
        if before is None:
            before = problem.replay(current.start, current.gaps, current.sites, current.sites)
        proposed, visited, between = problem.propose(current.belief, before.moved, before.sites, current.taken)
        status = np.where(current.taken, np.minimum(visited.status, Status.HELD), current.info.status)
        if not (current.taken & is_refused(visited.status)).any():
            current.log_evidence = before.log_norm + float(np.sum(visited.evidence + between, dtype=float))
        trial = tuple(a + damping * (b - a) for a, b in zip(before.sites, proposed, strict=True))
        after = problem.replay(current.start, current.gaps, before.sites, trial)
        status = np.where(current.taken & after.held, Status.HELD, status)
        mean, sd = current.belief.mean, _spread(current.belief.scale)
        current.belief = problem.backward(after.belief, current.gaps)
        current.status, current.held = status, current.taken & (status == Status.HELD)
        current.sites = after.sites
        # the next step does not need the beliefs of the forward pass, which are as large as the smoothed ones
        current.replayed = after._replace(belief=None)
        size = _step(mean, sd, current.belief, damping)
        return Step(size, damping, done=size <= problem.tol and not after.held.any())


def _step(mean: DataArray, sd: np.ndarray, after: Belief, damping: float) -> float:
    """The size of a step without damping: the largest move of a mean (in the smaller sd) or of an sd (relatively)."""
    new = _spread(np.asarray(after.scale))
    moved = np.abs(np.asarray(after.mean) - mean) / np.minimum(sd, new)
    return float(max(moved.max(), np.abs(np.log(new / sd)).max())) / damping


def _spread(scale: DataArray) -> np.ndarray:
    """Marginal sds ``(n, N)`` of roots ``(n, N, N)``."""
    return np.sqrt(np.einsum("tij,tij->ti", scale, scale))
