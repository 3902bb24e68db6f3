"""Local factor analysis, a mixture of factor analysers: y ~ Normal(mu[which] + W[which] z, 1/sqrt(tau)).

Each row has a component and factors. Each column of each W has a precision of its own, so that every component finds
how many factors it needs.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(y: Array, components: int = 2, factors: int = 2) -> None:
    """Mixture of factor analysers.

    Args:
        y: real vectors, (rows, d).
        components: number of components.
        factors: number of factors of each component.
    """
    d = y.shape[-1]
    weights: Any = numpyro.sample("weights", dist.Dirichlet(jnp.ones(components)))
    alpha: Any = numpyro.sample("alpha", dist.Gamma(1e-3, 1e-3).expand([components, factors]).to_event(2))
    spread = 1 / jnp.sqrt(alpha)[:, None, :]
    w: Any = numpyro.sample("w", dist.Normal(0, spread).expand([components, d, factors]).to_event(3))
    mu: Any = numpyro.sample("mu", dist.Normal(0, 10).expand([components, d]).to_event(2))
    tau: Any = numpyro.sample("tau", dist.Gamma(1, 1).expand([components, d]).to_event(2))
    with numpyro.plate("rows", y.shape[0]):
        chances: Any = dist.Categorical(weights)
        which: Any = numpyro.sample("which", chances, infer={"enumerate": "parallel"})
        z: Any = numpyro.sample("z", dist.Normal(0, 1).expand([factors]).to_event(1))
        mean = mu[which] + jnp.einsum("...df,...f->...d", w[which], z)
        numpyro.sample("y", dist.Normal(mean, 1 / jnp.sqrt(tau[which])).to_event(1), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, components: int = 2, d: int = 4, rank: int = 1) -> Simulation:
    """Draw means of sd 4, loadings of sd 1.5, and noise of sd 0.5.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        components: number of components.
        d: length of a row.
        rank: number of factors of each component.

    Returns:
        Data y (num_rows, d) and components; truth w (components, d, rank), mu (components, d), tau (components, d),
        which (num_rows,) and z (num_rows, rank).
    """
    key_w, key_mu, key_which, key_z, key_y = jax.random.split(rng_key, 5)
    w = 1.5 * jax.random.normal(key_w, (components, d, rank))
    mu = 4.0 * jax.random.normal(key_mu, (components, d))
    which = jax.random.randint(key_which, (num_rows,), 0, components)
    z = jax.random.normal(key_z, (num_rows, rank))
    noise = 0.5 * jax.random.normal(key_y, (num_rows, d))
    y = mu[which] + jnp.einsum("ndf,nf->nd", w[which], z) + noise
    truth = {"w": w, "mu": mu, "tau": jnp.full((components, d), 4.0), "which": which, "z": z}
    return Simulation(
        data={"y": np.array(y), "components": components}, truth={name: np.array(a) for name, a in truth.items()}
    )
