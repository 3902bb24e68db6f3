"""Mixture of Gaussians with unknown weights, means and precision matrices, for variational message passing.

which ~ Categorical(weights), y ~ Normal(mu[which], precision[which]⁻¹). Components that the data does not need end with
the weight of the prior.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(y: Array, components: int = 3) -> None:
    """Mixture of Gaussians.

    Args:
        y: real vectors, (rows, d).
        components: number of components.
    """
    d = y.shape[-1]
    weights: Any = numpyro.sample("weights", dist.Dirichlet(jnp.ones(components)))
    mu: Any = numpyro.sample("mu", dist.Normal(0, 10).expand([components, d]).to_event(2))
    prior = dist.Wishart(d + 2.0, rate_matrix=jnp.eye(d))
    precision: Any = numpyro.sample("precision", prior.expand([components]).to_event(1))
    with numpyro.plate("rows", y.shape[0]):
        chances: Any = dist.Categorical(weights)
        which: Any = numpyro.sample("which", chances, infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.MultivariateNormal(mu[which], precision_matrix=precision[which]), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, components: int = 3, d: int = 2) -> Simulation:
    """Draw means of sd 5, and covariances whose correlations are moderate.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        components: number of components.
        d: length of a row.

    Returns:
        Data y (num_rows, d) and components; truth weights (components,), mu (components, d), precision
        (components, d, d) and which (num_rows,).
    """
    key_mu, key_root, key_which, key_y = jax.random.split(rng_key, 4)
    weights = np.full(components, 1.0 / components)
    mu = 5.0 * jax.random.normal(key_mu, (components, d))
    root = jnp.eye(d) + 0.4 * jax.random.normal(key_root, (components, d, d))
    which = jax.random.randint(key_which, (num_rows,), 0, components)
    y = mu[which] + jnp.einsum("nij,nj->ni", root[which], jax.random.normal(key_y, (num_rows, d)))
    precision = np.linalg.inv(np.asarray(root @ jnp.swapaxes(root, -1, -2)))
    return Simulation(
        data={"y": np.array(y), "components": components},
        truth={"weights": weights, "mu": np.array(mu), "precision": precision, "which": np.array(which)},
    )
