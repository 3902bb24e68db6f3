"""Linear regression whose noise is unknown: y ~ Normal(x·w, 1 / √precision), precision ~ Gamma.

With family={"precision": "gamma"} the belief about the precision is a Gamma distribution, and each row is integrated
over two numbers: the field x·w, which is Gaussian, and the precision.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(x: Array, y: Array | None = None, scale: float = 2.0) -> None:
    """Linear regression with unknown noise, without an intercept.

    Args:
        x: inputs, (rows, d).
        y: real values, (rows,), or None to predict them.
        scale: prior standard deviation of `w`, (d,).
    """
    w = numpyro.sample("w", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    precision: Any = numpyro.sample("precision", dist.Gamma(2.0, 1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 1.0 / jnp.sqrt(precision)), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, num_features: int = 4, precision: float = 3.0) -> Simulation:
    """Draw standard normal inputs and weights.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        num_features: d, the number of columns of `x`.
        precision: one over the variance of the noise.

    Returns:
        Data x (num_rows, d) and y (num_rows,); truth w (d,) and precision ().
    """
    key_x, key_w, key_y = jax.random.split(rng_key, 3)
    x = jax.random.normal(key_x, (num_rows, num_features))
    w = jax.random.normal(key_w, (num_features,))
    y = x @ w + jax.random.normal(key_y, (num_rows,)) / np.sqrt(precision)
    return Simulation(
        data={"x": np.array(x), "y": np.array(y)},
        truth={"w": np.array(w), "precision": np.array(precision)},
    )
