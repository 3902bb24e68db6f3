"""A noisy threshold on the real line: P(y = 1) = Φ((x − theta) / noise).

The one-dimensional example of Opper, A Bayesian approach to online learning, Figure 1: theta = 0.1, noise =
0.5 and x uniform on [−1, 1].
"""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from adfpp.distributions import Probit
from models import Array, Simulation


def model(x: Array, y: Array | None = None, noise: float = 0.5, scale: float = 1.0) -> None:
    """Noisy threshold.

    Args:
        x: positions, (rows,).
        y: labels 0 or 1, (rows,), or None to predict them.
        noise: standard deviation of the noise on x − theta.
        scale: prior standard deviation of `theta`, a scalar.
    """
    theta = numpyro.sample("theta", dist.Normal(0, scale))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x - theta, noise), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, noise: float = 0.5, theta: float = 0.1) -> Simulation:
    """Draw positions uniform on [−1, 1], and labels from the sign of the noisy distance to the threshold.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        noise: standard deviation of the noise on x − theta.
        theta: the true threshold.

    Returns:
        Data x (num_rows,), y (num_rows,) and noise; truth theta ().
    """
    key_x, key_noise = jax.random.split(rng_key)
    x = jax.random.uniform(key_x, (num_rows,), minval=-1.0, maxval=1.0)
    y = (x - theta + noise * jax.random.normal(key_noise, (num_rows,)) > 0).astype(int)
    return Simulation(
        data={"x": np.array(x), "y": np.array(y), "noise": noise},
        truth={"theta": np.array(theta, x.dtype)},
    )
