"""Mixture of two Gaussians with one indicator per row: which ~ Categorical(weights), y ~ Normal(mu[which], scale).

The indicators are enumerated row by row; their posteriors are the responsibilities. The model is that of
`MixtureSameFamily`, with explicit indicators. NUTS can sample it if funsor is installed, which also enumerates the
indicators.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(y: Array, weight: float = 0.4, scale: float = 1.0) -> None:
    """Mixture of two components, which the means of their priors distinguish.

    Args:
        y: real values, (rows,).
        weight: probability of the first component.
        scale: standard deviation within a component.
    """
    mu: Any = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 3.0).to_event(1))
    with numpyro.plate("rows", y.shape[0]):
        chances: Any = dist.Categorical(probs=jnp.array([weight, 1.0 - weight]))
        which: Any = numpyro.sample("which", chances, infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(mu[which], scale), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, weight: float = 0.4, scale: float = 1.0) -> Simulation:
    """Draw means about -2 and 2.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        weight: probability of the first component.
        scale: standard deviation within a component.

    Returns:
        Data y (num_rows,), weight and scale; truth mu (2,) and which (num_rows,).
    """
    key_mu, key_which, key_y = jax.random.split(rng_key, 3)
    mu = jnp.array([-2.0, 2.0]) + 0.5 * jax.random.normal(key_mu, (2,))
    which = jax.random.bernoulli(key_which, 1.0 - weight, (num_rows,)).astype(int)
    y = mu[which] + scale * jax.random.normal(key_y, (num_rows,))
    return Simulation(
        data={"y": np.array(y), "weight": weight, "scale": scale},
        truth={"mu": np.array(mu), "which": np.array(which)},
    )
