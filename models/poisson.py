"""Poisson regression with a log link: y ~ Poisson(exp(x·w + b))."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(x: Array, y: Array | None = None, scale: float = 1.0) -> None:
    """Poisson regression.

    Args:
        x: inputs, (rows, d).
        y: counts, (rows,), or None to predict them.
        scale: prior standard deviation of `w`, (d,), and `b`.
    """
    w = numpyro.sample("w", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, scale))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(x @ w + b)), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, num_features: int = 5) -> Simulation:
    """Draw standard normal inputs and rates of about 1 to 10.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        num_features: d, the number of columns of `x`.

    Returns:
        Data x (num_rows, d) and y (num_rows,); truth w (d,) and b ().
    """
    key_x, key_w, key_b, key_y = jax.random.split(rng_key, 4)
    x = jax.random.normal(key_x, (num_rows, num_features))
    w = 0.6 * jax.random.normal(key_w, (num_features,)) / jnp.sqrt(num_features)
    b = 1.0 + 0.3 * jax.random.normal(key_b)
    y = jax.random.poisson(key_y, jnp.exp(x @ w + b))
    return Simulation(
        data={"x": np.array(x), "y": np.array(y)},
        truth={"w": np.array(w), "b": np.array(b)},
    )
