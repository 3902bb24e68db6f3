"""Mixture of two Gaussians with unknown weights and means: weights ~ Dirichlet(1, 1), mu ~ Normal.

With family={"weights": "dirichlet"} the belief about the weights is a Dirichlet distribution, and each row is
integrated over them and over both means.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(y: Array, scale: float = 1.0) -> None:
    """Mixture of two components, which the means of their priors distinguish.

    Args:
        y: real values, (rows,).
        scale: standard deviation within a component.
    """
    weights: Any = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    mu: Any = numpyro.sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
    with numpyro.plate("rows", y.shape[0]):
        mixture = dist.MixtureSameFamily(dist.Categorical(probs=weights), dist.Normal(mu, scale))
        numpyro.sample("y", mixture, obs=y)


def simulate(rng_key: jax.Array, num_rows: int, weight: float = 0.3, scale: float = 1.0) -> Simulation:
    """Draw means about -2 and 2.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        weight: probability of the first component.
        scale: standard deviation within a component.

    Returns:
        Data y (num_rows,) and scale; truth weights (2,) and mu (2,).
    """
    key_mu, key_which, key_y = jax.random.split(rng_key, 3)
    mu = jnp.array([-2.0, 2.0]) + 0.5 * jax.random.normal(key_mu, (2,))
    which = jax.random.bernoulli(key_which, 1.0 - weight, (num_rows,)).astype(int)
    y = mu[which] + scale * jax.random.normal(key_y, (num_rows,))
    return Simulation(
        data={"y": np.array(y), "scale": scale},
        truth={"weights": np.array([weight, 1.0 - weight]), "mu": np.array(mu)},
    )
