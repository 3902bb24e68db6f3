"""Baselines as fits: a learner's weights as a point in the model's θ, or its spherical belief as a posterior.

A baseline has no model. It is compared on a model whose only latent site is its weights, called with rows x and y.
"""

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from numpyro.distributions.transforms import IdentityTransform

from adfpp.engine.families import Belief, family_named
from adfpp.engine.status import Status
from adfpp.judge.clock import timed
from adfpp.judge.fits import Fit, gaussian_fit
from adfpp.learn.posterior import Posterior
from adfpp.learn.stream import RowsMarked, Trajectory
from adfpp.model import Program, stripped
from adfpp.papers.baselines.base import Info, Learner, State

POINT = "a point, without uncertainty"
_STEPS = 64  # of a learning curve, at most


@dataclass(frozen=True, eq=False)
class LearnerRun:
    """A baseline's run, as plots and comparisons read it.

    Attributes:
        state: The state reached.
        info: What became of the rows.
        trajectory: The weights along the run; sds are 0 for a learner of a point.
        direction: Whether the weights' length says nothing.
    """

    state: State
    info: Info
    trajectory: Trajectory
    direction: bool

    def scaled_to(self, fit: Fit, truth: Fit) -> Fit:
        """The fit of a learner of a direction, with weights as long as the reference's mean."""
        if not self.direction:
            return fit
        length = np.linalg.norm(truth.in_space_of(fit.program).mean(0))
        path = self.trajectory._replace(mean=_as_long(self.trajectory.mean, length))
        notes = tuple("a direction, as long as the reference's mean" if n == POINT else n for n in fit.notes)
        return replace(fit, theta=_as_long(fit.theta, length), source=replace(self, trajectory=path), notes=notes)


def fit_learner(
    name: str,
    learner: Learner,
    program: Program,
    rng_key: jax.Array,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    num_samples: int,
) -> Fit:
    """Runs a baseline on the model's rows.

    Args:
        name: Of the run.
        learner: The baseline.
        program: The model, of one real latent site that stands for the weights.
        rng_key: Key.
        args: The model's arguments: x and y.
        kwargs: Its keyword arguments.
        num_samples: Draws, which are all the same for a learner of a point.
    """
    x, y = _rows(name, learner, program, args, kwargs)

    def again() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RowsMarked)  # the first run has warned of them
            learner.run(rng_key, x, y, progress_bar=False)

    result, seconds = timed(lambda: learner.run(rng_key, x, y, progress_bar=False), again)
    estimate = learner.estimate(result.state.kept)
    _refuse_unlike(name, learner, program, np.shape(estimate.weights))
    counts = np.bincount(np.asarray(result.info.status), minlength=len(Status))
    notes = tuple(f"{counts[s]} rows {s.name}" for s in Status if s.warned and counts[s])
    source = LearnerRun(result.state, result.info, _trajectory(learner, rng_key, x, y), estimate.direction)
    rest: dict[str, Any] = {"source": source, **seconds._asdict()}
    method = f"{type(learner).__name__}, baseline"
    if estimate.sd is not None:
        belief = Belief(estimate.weights, estimate.sd)
        post = Posterior(program, family_named("spherical"), belief)
        return gaussian_fit(name, method, post, jax.random.fold_in(rng_key, 1), num_samples, notes=notes, **rest)
    theta = np.broadcast_to(np.asarray(estimate.weights, float), (1, num_samples, program.size))
    return Fit(name, method, program, theta, None, np.full((1, num_samples), np.inf), notes=(*notes, POINT), **rest)


def _as_long(weights: np.ndarray, length: Any) -> np.ndarray:
    own = np.linalg.norm(weights, axis=-1, keepdims=True)
    return weights * (length / np.where(own > 0, own, 1.0))


def _rows(
    name: str, learner: Learner, program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Rows and labels among the arguments that the model is called with."""
    given = dict(inspect.signature(program.model).bind(*args, **kwargs).arguments)
    others = [k for k, v in given.items() if k not in ("x", "y") and np.ndim(v)]
    if others or given.get("x") is None or given.get("y") is None:
        raise ValueError(
            f"Run {name!r} is a {type(learner).__name__}, which learns from rows x and labels y alone, and the model "
            f"is called with {', '.join(given)}. Name its arguments x and y, or leave the run out."
        )
    return given["x"], given["y"]


def _refuse_unlike(name: str, learner: Learner, program: Program, shape: tuple[int, ...]) -> None:
    sites = {s.name: s.shape for s in program.latents}
    site = program.latents[0] if len(sites) == 1 else None
    real = site is not None and site.native is None and isinstance(stripped(site.transform), IdentityTransform)
    if list(sites.values()) != [shape] or not real:
        raise ValueError(
            f"Run {name!r} is a {type(learner).__name__} with {shape} weights; it can be compared on a model whose "
            "only latent site is those weights, real and without bounds, held as a Gaussian. The model's sites are "
            f"{sites}."
        )


def _trajectory(learner: Learner, rng_key: jax.Array, x: Any, y: Any) -> Trajectory:
    """The weights after so many rows, learned once more."""
    total = np.shape(x)[0]
    every = 1 << max(0, (total // _STEPS).bit_length() - 1)
    state, rows, means, sds = learner.init(rng_key, x), [], [], []
    for start in range(0, total, every):
        stop = min(start + every, total)
        state, _ = learner.update(state, x[start:stop], y[start:stop])
        estimate = learner.estimate(state.kept)
        mean = np.asarray(estimate.weights, float)
        rows.append(stop)
        means.append(mean)
        sds.append(np.full(mean.shape, 0.0 if estimate.sd is None else float(estimate.sd)))
    blank = np.full(len(rows), np.nan)
    return Trajectory(np.array(rows), np.stack(means), np.stack(sds), blank, np.zeros(len(rows), int))
