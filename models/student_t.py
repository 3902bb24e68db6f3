"""Robust linear regression: y ~ StudentT(df, x·w + b, noise).

The likelihood is not log-concave, so a surprising row can widen the posterior instead of narrowing it.
"""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(x: Array, y: Array | None = None, df: float = 4.0, noise: float = 1.0, scale: float = 1.0) -> None:
    """Linear regression with Student-t noise.

    Args:
        x: inputs, (rows, d).
        y: real responses, (rows,), or None to predict them.
        df: degrees of freedom; the smaller, the heavier the tails.
        noise: scale of the noise.
        scale: prior standard deviation of `w`, (d,), and `b`.
    """
    w = numpyro.sample("w", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, scale))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.StudentT(df, x @ w + b, noise), obs=y)


def simulate(
    rng_key: jax.Array, num_rows: int, num_features: int = 5, df: float = 4.0, noise: float = 1.0
) -> Simulation:
    """Draw standard normal inputs, and weights and intercept of the default prior's scale.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        num_features: d, the number of columns of `x`.
        df: degrees of freedom of the noise.
        noise: scale of the noise.

    Returns:
        Data x (num_rows, d), y (num_rows,), df and noise; truth w (d,) and b ().
    """
    key_x, key_w, key_b, key_y = jax.random.split(rng_key, 4)
    x = jax.random.normal(key_x, (num_rows, num_features))
    w = jax.random.normal(key_w, (num_features,))
    b = jax.random.normal(key_b)
    y = x @ w + b + noise * jax.random.t(key_y, df, (num_rows,))
    return Simulation(
        data={"x": np.array(x), "y": np.array(y), "df": df, "noise": noise},
        truth={"w": np.array(w), "b": np.array(b)},
    )
