"""Linear regression on a covariate measured with error: x_seen ~ Normal(x, error), y ~ Normal(a + b x, noise).

Regression on x_seen itself would find a slope that is too small, by the share of the error in the variance of x_seen.
Every row has its own true covariate, which is integrated out row by row.
"""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(x_seen: Array, y: Array | None = None, error: float = 0.5, noise: float = 0.5) -> None:
    """Linear regression with an error in the covariate.

    Args:
        x_seen: the covariate as it was measured, (rows,).
        y: real responses, (rows,), or None to predict them.
        error: standard deviation of the measurement.
        noise: standard deviation of the responses.
    """
    a = numpyro.sample("a", dist.Normal(0, 2))
    b = numpyro.sample("b", dist.Normal(0, 2))
    with numpyro.plate("rows", x_seen.shape[0]):
        x = numpyro.sample("x", dist.Normal(0, 1))
        numpyro.sample("x_seen", dist.Normal(x, error), obs=x_seen)
        numpyro.sample("y", dist.Normal(a + b * x, noise), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, error: float = 0.5, noise: float = 0.5) -> Simulation:
    """Draw a standard normal covariate, and a slope between 1 and 2.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        error: standard deviation of the measurement.
        noise: standard deviation of the responses.

    Returns:
        Data x_seen (num_rows,), y (num_rows,), error and noise; truth a (), b () and x (num_rows,).
    """
    key_a, key_b, key_x, key_seen, key_y = jax.random.split(rng_key, 5)
    a = jax.random.normal(key_a)
    b = jax.random.uniform(key_b, minval=1.0, maxval=2.0)
    x = jax.random.normal(key_x, (num_rows,))
    x_seen = x + error * jax.random.normal(key_seen, (num_rows,))
    y = a + b * x + noise * jax.random.normal(key_y, (num_rows,))
    return Simulation(
        data={"x_seen": np.array(x_seen), "y": np.array(y), "error": error, "noise": noise},
        truth={"a": np.array(a), "b": np.array(b), "x": np.array(x)},
    )
