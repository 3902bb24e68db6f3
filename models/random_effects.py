"""Poisson regression with a random effect for every row: y ~ Poisson(exp(x·w + b + tau z)), z ~ Normal(0, 1).

The effects give the counts a larger variance than that of a Poisson. Every row has one effect, which is integrated out
row by row: the belief is about w, b and, unless it is given, tau.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(x: Array, y: Array | None = None, tau: float | None = None) -> None:
    """Poisson regression with random effects.

    Args:
        x: covariates, (rows, features).
        y: counts, (rows,), or None to predict them.
        tau: sd of the effects on the log scale; learned when None.
    """
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    spread = numpyro.sample("tau", dist.HalfNormal(1)) if tau is None else tau
    with numpyro.plate("rows", x.shape[0]):
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("y", dist.Poisson(jnp.exp(x @ w + b + spread * z)), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, features: int = 3, tau: float = 0.7) -> Simulation:
    """Draw standard normal covariates, and coefficients of sd 1/2.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        features: number of covariates.
        tau: sd of the effects.

    Returns:
        Data x (num_rows, features) and y (num_rows,); truth w (features,), b (), tau () and z (num_rows,).
    """
    key_x, key_w, key_b, key_z, key_y = jax.random.split(rng_key, 5)
    x = jax.random.normal(key_x, (num_rows, features))
    w = 0.5 * jax.random.normal(key_w, (features,))
    b = 0.5 * jax.random.normal(key_b)
    z = jax.random.normal(key_z, (num_rows,))
    y = jax.random.poisson(key_y, jnp.exp(x @ w + b + tau * z))
    return Simulation(
        data={"x": np.array(x), "y": np.array(y)},
        truth={"w": np.array(w), "b": np.array(b), "tau": np.array(tau), "z": np.array(z)},
    )
