"""Linear regression with known noise: y ~ Normal(x·w + b, noise).

Everything is Gaussian, so the exact posterior is known, and online updates are exact.
"""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(x: Array, y: Array | None = None, noise: float = 1.0, scale: float = 1.0) -> None:
    """Linear regression.

    Args:
        x: inputs, (rows, d).
        y: real responses, (rows,), or None to predict them.
        noise: standard deviation of the responses about the line.
        scale: prior standard deviation of `w`, (d,), and `b`.
    """
    w = numpyro.sample("w", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, scale))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w + b, noise), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, num_features: int = 5, noise: float = 1.0) -> Simulation:
    """Draw standard normal inputs, and weights and intercept of the default prior's scale.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        num_features: d, the number of columns of `x`.
        noise: standard deviation of the responses about the line.

    Returns:
        Data x (num_rows, d), y (num_rows,) and noise; truth w (d,) and b ().
    """
    key_x, key_w, key_b, key_y = jax.random.split(rng_key, 4)
    x = jax.random.normal(key_x, (num_rows, num_features))
    w = jax.random.normal(key_w, (num_features,))
    b = jax.random.normal(key_b)
    y = x @ w + b + noise * jax.random.normal(key_y, (num_rows,))
    return Simulation(
        data={"x": np.array(x), "y": np.array(y), "noise": noise},
        truth={"w": np.array(w), "b": np.array(b)},
    )
