"""What the tests of priors share: a projected prior, its mean, covariance and how it was computed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import adfpp

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


def of(
    latents: Callable[[], Array], family: str = "full", **options: Any
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Mean and covariance of a projected prior, and how each site's was found.

    Args:
        latents: Samples the latent sites and returns a number or an array of them.
        family: Of the belief.
        **options: Of ``init``.
    """

    def model(x: Array, y: Array) -> None:
        observed(x, y, jnp.sum(latents()))

    adf = adfpp.ADF(model, family=family)
    mean, scale = adf.init(KEY, X, Y, **options).belief
    mean, scale = np.asarray(mean), np.asarray(scale)
    covariance = scale @ scale.T if scale.ndim == 2 else scale**2 * np.eye(len(mean))
    return mean, covariance, tuple(site.prior for site in adf.explain(X, Y).latents)


def latent(prior: Any, name: str = "w") -> Callable[[], Array]:
    """A model's only latent site."""
    return lambda: sample(name, prior)
