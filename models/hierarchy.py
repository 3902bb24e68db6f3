"""Normal hierarchy of group means, non-centred: y ~ Normal(mu + tau z[group], noise), z ~ Normal(0, 1).

Each row depends on three latents, mu, tau and the z of its group, however many groups there are.
"""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(group: Array, n_groups: int, y: Array | None = None, noise: float = 1.0) -> None:
    """Normal hierarchy of group means, non-centred.

    Args:
        group: the group of each row, 0, ..., n_groups − 1, (rows,).
        n_groups: number of groups, including those not seen yet.
        y: real responses, (rows,), or None to predict them.
        noise: standard deviation of the responses within a group.
    """
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", n_groups):
        z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", group.shape[0]):
        numpyro.sample("y", dist.Normal(mu + tau * z[group], noise), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, n_groups: int = 8, noise: float = 1.0) -> Simulation:
    """Draw each row's group at random, and tau between 1/2 and 3/2.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        n_groups: number of groups.
        noise: standard deviation of the responses within a group.

    Returns:
        Data group (num_rows,), n_groups, y (num_rows,) and noise; truth mu (), tau () and z (n_groups,).
    """
    key_group, key_mu, key_tau, key_z, key_y = jax.random.split(rng_key, 5)
    group = jax.random.randint(key_group, (num_rows,), 0, n_groups)
    mu = jax.random.normal(key_mu)
    tau = jax.random.uniform(key_tau, minval=0.5, maxval=1.5)
    z = jax.random.normal(key_z, (n_groups,))
    y = mu + tau * z[group] + noise * jax.random.normal(key_y, (num_rows,))
    return Simulation(
        data={"group": np.array(group), "n_groups": n_groups, "y": np.array(y), "noise": noise},
        truth={"mu": np.array(mu), "tau": np.array(tau), "z": np.array(z)},
    )
