"""Counts with too many zeros: y is 0 with probability gate, and Poisson(rate) otherwise.

Both parameters have native families: family={"gate": "beta", "rate": "gamma"}.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(y: Array) -> None:
    """Zero-inflated Poisson model with an unknown gate and rate.

    Args:
        y: counts, (rows,).
    """
    gate = numpyro.sample("gate", dist.Beta(1.0, 1.0))
    rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.ZeroInflatedPoisson(gate, rate), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, gate: float = 0.3, rate: float = 2.5) -> Simulation:
    """Draw counts, which are 0 with probability gate and Poisson otherwise.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        gate: probability of a zero that does not come from the Poisson distribution.
        rate: rate of the Poisson distribution.

    Returns:
        Data y (num_rows,); truth gate () and rate ().
    """
    key_gate, key_y = jax.random.split(rng_key)
    counts = jax.random.poisson(key_y, rate, (num_rows,))
    y = jnp.where(jax.random.bernoulli(key_gate, gate, (num_rows,)), 0, counts)
    return Simulation(data={"y": np.array(y)}, truth={"gate": np.array(gate), "rate": np.array(rate)})
