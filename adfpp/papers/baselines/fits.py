"""Runs a baseline for `adfpp.compare`, which sees its weights as a point in the model's space, or its belief.

A baseline has no model. It is compared on a model whose only latent is its weights, called with rows ``x`` and ``y``.
"""

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike
from numpyro.distributions.transforms import IdentityTransform

from adfpp.engine.families import Belief, family_named
from adfpp.engine.status import Status
from adfpp.judge.clock import timed
from adfpp.judge.fits import Fit, gaussian_fit
from adfpp.learn.posterior import Posterior
from adfpp.learn.stream import RowsMarked, Trajectory
from adfpp.model import Program, stripped
from adfpp.papers.baselines.base import Estimate, Info, Learner, State

POINT = "a point, without uncertainty"
SCALED = "a direction, scaled to the length of the reference's mean"
_STEPS = 64  # the largest number of points on a learning curve; more cannot be told apart in a plot


@dataclass(frozen=True, eq=False)
class LearnerRun:
    """A run of a baseline, in the form that plots and comparisons read.

    Attributes:
        state: The state after the last row.
        info: The outcome of every row.
        trajectory: The weights along the run; their standard deviations are 0 if the estimate is a point.
        direction: Whether only the direction of the weights counts.
    """

    state: State[Any]
    info: Info
    trajectory: Trajectory
    direction: bool

    def scaled_to(self, fit: Fit, truth: Fit) -> Fit:
        """The fit with its weights scaled to the length of the reference's mean, if only their direction counts."""
        if not self.direction:
            return fit
        length = float(np.linalg.norm(truth.in_space_of(fit.program).mean(0)))
        trajectory = self.trajectory._replace(mean=_scaled(self.trajectory.mean, length))
        notes = tuple(SCALED if note == POINT else note for note in fit.notes)
        source = replace(self, trajectory=trajectory)
        return replace(fit, theta=_scaled(fit.theta, length), source=source, notes=notes)


def fit_learner(
    name: str,
    learner: Learner[Any],
    program: Program,
    rng_key: jax.Array,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    num_samples: int,
) -> Fit:
    """Runs a baseline on the rows of a model.

    Args:
        name: Name of the run.
        learner: The baseline.
        program: The model, whose one real latent stands for the weights.
        rng_key: Key.
        args: The model's arguments: x and y.
        kwargs: The model's keyword arguments.
        num_samples: Number of draws, which are all equal if the estimate is a point.
    """
    x, y = _rows(name, learner, program, args, kwargs)

    def again() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RowsMarked)  # the first run has already warned of them
            learner.run(rng_key, x, y, progress_bar=False)

    result, seconds = timed(lambda: learner.run(rng_key, x, y, progress_bar=False), again)
    estimate = learner.estimate(result.state.arrays)
    _check_latents(name, learner, program, estimate)
    counts = np.bincount(np.asarray(result.info.status), minlength=len(Status))
    notes = tuple(f"{counts[s]} rows {s.name}" for s in Status if s.warned and counts[s])
    trajectory = _trajectory(learner, rng_key, np.asarray(x), np.asarray(y))
    source = LearnerRun(result.state, result.info, trajectory, estimate.direction)
    fields: dict[str, Any] = {"source": source, **seconds._asdict()}
    method = f"{type(learner).__name__}, baseline"
    if estimate.sd is not None:
        post = Posterior(program, family_named("spherical"), Belief(estimate.weights, estimate.sd))
        return gaussian_fit(name, method, post, jax.random.fold_in(rng_key, 1), num_samples, notes=notes, **fields)
    theta = np.broadcast_to(np.asarray(estimate.weights, float), (1, num_samples, program.size))
    log_q = np.full((1, num_samples), np.inf)
    return Fit(name, method, program, theta, None, log_q, notes=(*notes, POINT), **fields)


def _scaled(weights: np.ndarray, length: float) -> np.ndarray:
    current = np.linalg.norm(weights, axis=-1, keepdims=True)
    return weights * (length / np.where(current > 0, current, 1.0))


def _rows(
    name: str, learner: Learner[Any], program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[ArrayLike, ArrayLike]:
    """Rows and labels among the arguments with which the model is called."""
    arguments = dict(inspect.signature(program.model).bind(*args, **kwargs).arguments)
    others = [key for key, value in arguments.items() if key not in ("x", "y") and np.ndim(value)]
    if others or arguments.get("x") is None or arguments.get("y") is None:
        raise ValueError(
            f"Run {name!r} is a {type(learner).__name__}, which learns from rows x and labels y alone, and the model "
            f"is called with {', '.join(arguments)}. Name its arguments x and y, or leave the run out."
        )
    return arguments["x"], arguments["y"]


def _check_latents(name: str, learner: Learner[Any], program: Program, estimate: Estimate) -> None:
    """Raises unless the model's only latent is the learner's weights, on the real line."""
    shape = np.shape(estimate.weights)
    shapes = {latent.name: latent.shape for latent in program.latents}
    latent = program.latents[0] if len(shapes) == 1 else None
    real = latent is not None and latent.native is None and isinstance(stripped(latent.transform), IdentityTransform)
    if list(shapes.values()) != [shape] or not real:
        raise ValueError(
            f"Run {name!r} is a {type(learner).__name__} with {shape} weights; it can be compared on a model whose "
            "only latent is those weights, real and without bounds, with a Gaussian belief. The latents of this model "
            f"are {shapes}: leave the run out, or compare it on such a model."
        )


def _trajectory(learner: Learner[Any], rng_key: jax.Array, x: np.ndarray, y: np.ndarray) -> Trajectory:
    """The weights at several times of one more run."""
    total = len(x)
    every = 1 << max(0, (total // _STEPS).bit_length() - 1)
    state, rows, means, sds = learner.init(rng_key, x), [], [], []
    for start in range(0, total, every):
        stop = min(start + every, total)
        state, _ = learner.update(state, x[start:stop], y[start:stop])
        estimate = learner.estimate(state.arrays)
        mean = np.asarray(estimate.weights, float)
        rows.append(stop)
        means.append(mean)
        sds.append(np.full(mean.shape, 0.0 if estimate.sd is None else float(estimate.sd)))
    log_z = np.full(len(rows), np.nan)
    return Trajectory(np.array(rows), np.stack(means), np.stack(sds), log_z, np.zeros(len(rows), int))
