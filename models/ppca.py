"""Probabilistic principal components: y ~ Normal(W z + mu, 1/sqrt(tau)), z ~ Normal(0, 1) for each row.

Each column of W has a precision of its own, so that columns which the data does not need shrink to 0.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(y: Array, factors: int = 3) -> None:
    """Probabilistic principal components with a relevance for each column.

    Args:
        y: real vectors, (rows, d).
        factors: number of columns of W.
    """
    d = y.shape[-1]
    alpha: Any = numpyro.sample("alpha", dist.Gamma(1e-3, 1e-3).expand([factors]).to_event(1))
    w: Any = numpyro.sample("w", dist.Normal(0, 1 / jnp.sqrt(alpha)).expand([d, factors]).to_event(2))
    mu: Any = numpyro.sample("mu", dist.Normal(0, 10).expand([d]).to_event(1))
    tau: Any = numpyro.sample("tau", dist.Gamma(1e-3, 1e-3))
    with numpyro.plate("rows", y.shape[0]):
        z: Any = numpyro.sample("z", dist.Normal(0, 1).expand([factors]).to_event(1))
        numpyro.sample("y", dist.Normal(z @ w.T + mu, 1 / jnp.sqrt(tau)).to_event(1), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, d: int = 6, rank: int = 2, sd: float = 0.5) -> Simulation:
    """Draw loadings of sd 1.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        d: length of a row.
        rank: number of factors that the rows have.
        sd: sd of the noise.

    Returns:
        Data y (num_rows, d); truth w (d, rank), mu (d,), tau () and z (num_rows, rank).
    """
    key_w, key_mu, key_z, key_y = jax.random.split(rng_key, 4)
    w = jax.random.normal(key_w, (d, rank))
    mu = jax.random.normal(key_mu, (d,))
    z = jax.random.normal(key_z, (num_rows, rank))
    y = z @ w.T + mu + sd * jax.random.normal(key_y, (num_rows, d))
    truth = {"w": w, "mu": mu, "tau": jnp.asarray(sd**-2), "z": z}
    return Simulation(data={"y": np.array(y)}, truth={name: np.array(a) for name, a in truth.items()})
