"""Linear regression whose log noise is a second linear regression: y ~ Normal(x·w, exp(z·g)).

A row depends on the latents through two numbers, its mean and its log noise.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(x: Array, z: Array, y: Array | None = None, scale: float = 1.0) -> None:
    """Linear regression with a regression of the log noise.

    Args:
        x: inputs of the mean, (rows, d).
        z: inputs of the log noise, (rows, k); a column of ones is its intercept.
        y: real responses, (rows,), or None to predict them.
        scale: prior standard deviation of `w`, (d,), and `g`, (k,).
    """
    w = numpyro.sample("w", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    g = numpyro.sample("g", dist.Normal(0, scale).expand([z.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, jnp.exp(z @ g)), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, num_features: int = 5, num_noise_features: int = 2) -> Simulation:
    """Draw standard normal inputs, weights of the default prior's scale and noise of about 1/3 to 3.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        num_features: d, the number of columns of `x`.
        num_noise_features: k, the number of columns of `z`; the first is all ones.

    Returns:
        Data x (num_rows, d), z (num_rows, k) and y (num_rows,); truth w (d,) and g (k,).
    """
    key_x, key_z, key_w, key_g, key_y = jax.random.split(rng_key, 5)
    x = jax.random.normal(key_x, (num_rows, num_features))
    z = jax.random.normal(key_z, (num_rows, num_noise_features)).at[:, 0].set(1.0)
    w = jax.random.normal(key_w, (num_features,))
    g = 0.5 * jax.random.normal(key_g, (num_noise_features,))
    y = x @ w + jnp.exp(z @ g) * jax.random.normal(key_y, (num_rows,))
    return Simulation(
        data={"x": np.array(x), "z": np.array(z), "y": np.array(y)},
        truth={"w": np.array(w), "g": np.array(g)},
    )
