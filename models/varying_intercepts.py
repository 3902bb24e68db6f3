"""Intercepts that vary by group, centred: y ~ Normal(w[group] + slope x, noise), w ~ Normal(mu, tau).

This is the well-known model of radon in houses: groups are counties of very different sizes, x is the floor of the
measurement, and small groups learn from large ones through mu and tau. The noise is learned as well.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(group: Array, x: Array, n_groups: int, y: Array | None = None) -> None:
    """Regression with one intercept for each group.

    Args:
        group: the group of each row, 0, ..., n_groups − 1, (rows,).
        x: 1 for the upper floor and 0 for the basement, (rows,).
        n_groups: number of groups, including those not seen yet.
        y: real responses, (rows,), or None to predict them.
    """
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    noise = numpyro.sample("noise", dist.HalfNormal(2))
    with numpyro.plate("groups", n_groups):
        w = numpyro.sample("w", dist.Normal(mu, tau))
    with numpyro.plate("rows", group.shape[0]):
        numpyro.sample("y", dist.Normal(w[group] + slope * x, noise), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, n_groups: int = 85) -> Simulation:
    """Draw groups with frequencies proportional to rank^(−1.2), and one row in four from the upper floor.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        n_groups: number of groups.

    Returns:
        Data group (num_rows,), x (num_rows,), n_groups and y (num_rows,); truth mu (), tau (), slope (), noise () and w
        (n_groups,).
    """
    key_group, key_x, key_mu, key_tau, key_slope, key_noise, key_w, key_y = jax.random.split(rng_key, 8)
    log_frequency = -1.2 * jnp.log1p(jnp.arange(n_groups))
    group = jax.random.categorical(key_group, log_frequency, shape=(num_rows,))
    x = jax.random.bernoulli(key_x, 0.25, (num_rows,)).astype(float)
    mu = 1.0 + 0.5 * jax.random.normal(key_mu)
    tau = jax.random.uniform(key_tau, minval=0.3, maxval=0.8)
    slope = -0.5 + 0.3 * jax.random.normal(key_slope)
    noise = jax.random.uniform(key_noise, minval=0.6, maxval=1.0)
    w = mu + tau * jax.random.normal(key_w, (n_groups,))
    y = w[group] + slope * x + noise * jax.random.normal(key_y, (num_rows,))
    truth = {"mu": mu, "tau": tau, "slope": slope, "noise": noise, "w": w}
    return Simulation(
        data={"group": np.array(group), "x": np.array(x), "n_groups": n_groups, "y": np.array(y)},
        truth={name: np.array(value) for name, value in truth.items()},
    )
