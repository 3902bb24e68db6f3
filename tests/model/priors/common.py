"""What the tests of priors share: a projected prior, its mean, covariance and how it was computed."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import adfpp
from tests.model.common import program

Array = Any
sample: Callable[..., Any] = numpyro.sample

KEY = jax.random.key(0)
X = np.array([[0.5, -1.0], [1.5, 0.3], [-0.2, 0.8]])
Y = np.array([0.1, 1.0, -0.4])
TRIL = np.array([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [-0.3, 0.1, 0.7]])


def observed(x: Array, y: Array, field: Array) -> None:
    """The rows, which the prior has nothing to do with."""
    with numpyro.plate("rows", x.shape[0]):
        sample("y", dist.Normal(x[:, 0] * field, 1.0), obs=y)


def model_of(latents: Callable[[], Array]) -> Callable[..., None]:
    """A model with these latents, which the rows have nothing to do with."""

    def model(x: Array, y: Array) -> None:
        observed(x, y, jnp.sum(latents()))

    return model


def of(
    latents: Callable[[], Array], prior: Mapping[str, Any] | None = None
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Mean and covariance of a projected prior, and how each of its blocks was computed.

    Args:
        latents: Samples the latents and returns a number or an array of them.
        prior: Distributions in the place of the model's own.
    """
    read_as = program(model_of(latents), X, Y)
    projection = read_as.project_prior([], prior)
    assert not projection.coupled
    mean, covariance = np.full(read_as.size, np.nan), np.zeros((read_as.size, read_as.size))
    for block in projection.blocks:
        root = np.diag(block.root) if block.root.ndim == 1 else block.root
        mean[block.where] = block.mean
        covariance[np.ix_(block.where, block.where)] = root @ root.T
    return mean, covariance, tuple(block.how for block in projection.blocks)


def started(
    latents: Callable[[], Array], family: str = "full", **options: Any
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Mean and covariance of the belief that learning starts from, and how the prior of each latent was computed.

    Args:
        latents: Samples the latents and returns a number or an array of them.
        family: Of the belief.
        **options: Of ``init``.
    """
    adf = adfpp.ADF(model_of(latents), family=family)
    mean, scale = adf.init(KEY, X, Y, **options).belief
    mean, scale = np.asarray(mean), np.asarray(scale)
    covariance = scale @ scale.T if scale.ndim == 2 else scale**2 * np.eye(len(mean))
    return mean, covariance, tuple(latent.prior for latent in adf.explain(X, Y).latents)


def latent(prior: Any, name: str = "w") -> Callable[[], Array]:
    """A model's only latent."""
    return lambda: sample(name, prior)
