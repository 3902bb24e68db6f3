"""Negative binomial regression with a log link, for counts with a larger variance than Poisson counts.

The mean is m = exp(x·w + b) and the variance m + m² / c, where c = exp(log_dispersion) is what NumPyro calls the
concentration. For large `log_dispersion` the counts are nearly Poisson.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(x: Array, y: Array | None = None, scale: float = 1.0) -> None:
    """Negative binomial regression.

    Args:
        x: inputs, (rows, d).
        y: counts, (rows,), or None to predict them.
        scale: prior standard deviation of `w`, (d,), and `b`; that of `log_dispersion` is 1.
    """
    w = numpyro.sample("w", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, scale))
    log_dispersion = numpyro.sample("log_dispersion", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        likelihood = dist.NegativeBinomial2(mean=jnp.exp(x @ w + b), concentration=jnp.exp(log_dispersion))
        numpyro.sample("y", likelihood, obs=y)


def simulate(rng_key: jax.Array, num_rows: int, num_features: int = 5) -> Simulation:
    """Draw standard normal inputs, means of about 1 to 10, and counts as Poisson draws at Gamma rates.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        num_features: d, the number of columns of `x`.

    Returns:
        Data x (num_rows, d) and y (num_rows,); truth w (d,), b () and log_dispersion ().
    """
    key_x, key_w, key_b, key_c, key_rate, key_y = jax.random.split(rng_key, 6)
    x = jax.random.normal(key_x, (num_rows, num_features))
    w = 0.6 * jax.random.normal(key_w, (num_features,)) / jnp.sqrt(num_features)
    b = 1.0 + 0.3 * jax.random.normal(key_b)
    log_dispersion = 0.5 * jax.random.normal(key_c)
    concentration = jnp.exp(log_dispersion)
    rate = jnp.exp(x @ w + b) * jax.random.gamma(key_rate, concentration, (num_rows,)) / concentration
    y = jax.random.poisson(key_y, rate)
    return Simulation(
        data={"x": np.array(x), "y": np.array(y)},
        truth={"w": np.array(w), "b": np.array(b), "log_dispersion": np.array(log_dispersion)},
    )
