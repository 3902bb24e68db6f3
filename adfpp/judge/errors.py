"""Measures the errors of a posterior from its model and data: draws from it, their weights, and further methods."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from adfpp.judge.drift import NOT_TESTED, Drift, drift_of_scores
from adfpp.judge.moments import CHAINS, Measured, by_reweighted, measure
from adfpp.judge.walk import Base
from adfpp.learn.importance import Reweighted, reweighted
from adfpp.learn.posterior import GivenPrior, Posterior, scalar_names

_MOST = 10**9  # log-likelihoods of rows that a walk may evaluate: about half a minute for a simple likelihood
_MOST_WEIGHTED = 10 * _MOST  # the same for the draws that are weighted: about five minutes
_FEWEST_DRAWS = 200  # that are weighted at any cost


class Errors(NamedTuple):
    """The posterior corrected by importance weights, the errors of its moments, and changes along the rows."""

    weighted: Reweighted
    measured: Measured
    drift: Drift


def errors_of(
    post: Posterior,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    prior: GivenPrior,
    absorbed: np.ndarray,
    rng_key: jax.Array,
    num_samples: int,
    further: bool,
) -> Errors:
    """Measures the errors of a posterior, and tests whether the scores of the rows change along them.

    Args:
        post: The posterior.
        args: The model's arguments.
        kwargs: The model's keyword arguments.
        prior: What learning started from, if it was not the model's prior.
        absorbed: ``(n,)`` booleans: which rows were absorbed.
        rng_key: Key.
        num_samples: Number of draws that are weighted; fewer, but at least 200, if they would take minutes.
        further: Whether the errors should be measured beyond importance weights, if these are not good enough.
    """
    rows, names = np.flatnonzero(absorbed), names_of(post)
    mean, sd = np.asarray(post.belief.mean), np.asarray(post.family.spread(post.belief, post.program.size))
    joint = post.joint(*args, prior=prior, **kwargs)
    cost = max(1, len(rows)) * joint.row_cost
    num_samples = min(num_samples, max(_FEWEST_DRAWS, _MOST_WEIGHTED // cost))
    if not post.family.gaussian:
        weighted = post.weighted(rng_key, args, kwargs, num_samples, prior, absorbed)
        found = by_reweighted(names, weighted, mean, sd)
        possible = not np.isnan(weighted.ess)
    else:

        def log_joint(theta: np.ndarray) -> np.ndarray:
            parts = [theta[i : i + CHAINS] for i in range(0, len(theta), CHAINS)]  # one shape, compiled once
            return np.concatenate([joint.log_joint(part, rows) for part in parts])

        rng = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)))
        theta = np.asarray(post.draw(rng_key, num_samples), float)
        log_p = log_joint(theta)
        possible = bool(np.isfinite(log_p).any())
        if not possible:
            post.refuse_impossible(joint, theta[:64], rows)
        base = base_of(post, rng)
        weighted = reweighted(theta, log_p, -0.5 * base.distance(theta), post.program.constrain)
        found = by_reweighted(names, weighted, mean, sd)
        if further and possible:
            found = measure(base, log_joint, theta, log_p, found, rng, _MOST // cost)
    if not possible or weighted.exact or not len(rows):  # combinations of discrete values are no draws
        return Errors(weighted, found, NOT_TESTED)
    draws = weighted.theta[:CHAINS]
    standard = (draws - mean) / np.where(sd > 0.0, sd, 1.0)
    return Errors(weighted, found, drift_of_scores(joint, draws, standard, rows, names))


def base_of(post: Posterior, rng: np.random.Generator) -> Base:
    """A Gaussian posterior as the base of a walk.

    Args:
        post: The posterior, of a Gaussian family.
        rng: The generator of the random numbers of its draws.
    """
    mean = np.asarray(post.belief.mean, float)
    [(_, _, root)] = post.family.blocks(post.belief)
    if root.ndim == 1:
        return Base(
            mean,
            root,
            lambda count: mean + root * rng.normal(size=(count, len(mean))),
            lambda theta: np.sum(((theta - mean) / root) ** 2, 1),
            lambda chosen: np.where(np.arange(len(mean)) == chosen[:, None], root, 0.0),
        )
    covariance, inverse = root @ root.T, np.linalg.inv(root)
    sd = np.sqrt(np.diag(covariance))
    return Base(
        mean,
        sd,
        lambda count: mean + rng.normal(size=(count, len(mean))) @ root.T,
        lambda theta: np.sum(((theta - mean) @ inverse.T) ** 2, 1),
        lambda chosen: (covariance / sd[:, None])[chosen],
    )


def names_of(post: Posterior) -> tuple[str, ...]:
    """``(N,)`` the names of the coordinates of θ: the latents, with an index in unconstrained space."""
    return tuple(name for v in post.latents for name in scalar_names(v.name, () if v.size == 1 else (v.size,)))
