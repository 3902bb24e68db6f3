"""A level that drifts: y ~ Normal(level[time], noise), where the level is a random walk with steps Normal(0, tau).

The latents are the steps of the walk, in a plate, so that each step's prior depends on tau alone; a row's level is the
sum of the steps up to its time. Rows may come in any order, and there may be several rows or none for a time.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(time: Array, n_times: int, y: Array | None = None, noise: float = 1.0) -> None:
    """Local-level model.

    Args:
        time: when each row was observed, 0, ..., n_times − 1, (rows,).
        n_times: number of times.
        y: real responses, (rows,), or None to predict them.
        noise: standard deviation of the responses about the level.
    """
    start = numpyro.sample("start", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("times", n_times):
        step = numpyro.sample("step", dist.Normal(0, tau))
    level = start + jnp.cumsum(step)
    with numpyro.plate("rows", time.shape[0]):
        numpyro.sample("y", dist.Normal(level[time], noise), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, n_times: int = 40, noise: float = 1.0) -> Simulation:
    """Draw times at random, a standard normal start, and tau between 1/4 and 3/4.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        n_times: number of times.
        noise: standard deviation of the responses about the level.

    Returns:
        Data time (num_rows,), n_times, y (num_rows,) and noise; truth start (), tau () and step (n_times,).
    """
    key_time, key_start, key_tau, key_step, key_y = jax.random.split(rng_key, 5)
    time = jax.random.randint(key_time, (num_rows,), 0, n_times)
    start = jax.random.normal(key_start)
    tau = jax.random.uniform(key_tau, minval=0.25, maxval=0.75)
    step = tau * jax.random.normal(key_step, (n_times,))
    y = (start + jnp.cumsum(step))[time] + noise * jax.random.normal(key_y, (num_rows,))
    return Simulation(
        data={"time": np.array(time), "n_times": n_times, "y": np.array(y), "noise": noise},
        truth={"start": np.array(start), "tau": np.array(tau), "step": np.array(step)},
    )
