"""Linear regression with automatic relevance determination: y ~ Normal(x·w, 1/sqrt(tau)), w ~ Normal(0, 1/sqrt(alpha)).

Coefficients of covariates that do not matter get a large precision, and shrink to 0.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(x: Array, y: Array | None = None) -> None:
    """Linear regression with a relevance for each covariate.

    Args:
        x: covariates, (rows, features).
        y: responses, (rows,), or None to predict them.
    """
    features = x.shape[-1]
    alpha: Any = numpyro.sample("alpha", dist.Gamma(1e-2, 1e-2).expand([features]).to_event(1))
    w: Any = numpyro.sample("w", dist.Normal(0, 1 / jnp.sqrt(alpha)).to_event(1))
    tau: Any = numpyro.sample("tau", dist.Gamma(1e-2, 1e-2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 1 / jnp.sqrt(tau)), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, features: int = 6, relevant: int = 2, sd: float = 0.5) -> Simulation:
    """Draw standard normal covariates, of which only the first ones matter.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        features: number of covariates.
        relevant: number of coefficients that are not 0.
        sd: sd of the noise.

    Returns:
        Data x (num_rows, features) and y (num_rows,); truth w (features,) and tau ().
    """
    key_x, key_w, key_y = jax.random.split(rng_key, 3)
    x = jax.random.normal(key_x, (num_rows, features))
    w = jnp.where(jnp.arange(features) < relevant, 1.0 + jax.random.uniform(key_w, (features,)), 0.0)
    y = x @ w + sd * jax.random.normal(key_y, (num_rows,))
    truth = {"w": np.array(w), "tau": np.array(sd**-2)}
    return Simulation(data={"x": np.array(x), "y": np.array(y)}, truth=truth)
