"""Eight schools, centred: y ~ Normal(effect[school], error), effect ~ Normal(mu, tau).

Rubin's parallel experiments: each row is an estimate of one school's effect with a known standard error. The prior
of the effects depends on mu and tau, so a row of one school also changes the belief about the scale of all schools.
"""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation

# the published estimates: coaching effects on test scores, and their standard errors
DATA = {
    "school": np.arange(8),
    "error": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
    "n_schools": 8,
    "y": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
}


def model(school: Array, error: Array, n_schools: int, y: Array | None = None, scale: float = 5.0) -> None:
    """Hierarchy of effects in the usual, centred form.

    Args:
        school: the school of each row, 0, ..., n_schools − 1, (rows,).
        error: standard error of each row's estimate, (rows,).
        n_schools: number of schools.
        y: estimated effects, (rows,), or None to predict them.
        scale: prior scale of `mu` and `tau`.
    """
    mu = numpyro.sample("mu", dist.Normal(0, scale))
    tau = numpyro.sample("tau", dist.HalfCauchy(scale))
    with numpyro.plate("schools", n_schools):
        effect = numpyro.sample("effect", dist.Normal(mu, tau))
    with numpyro.plate("rows", school.shape[0]):
        numpyro.sample("y", dist.Normal(effect[school], error), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, n_schools: int = 8) -> Simulation:
    """Draw each row's school at random, standard errors and tau between 1/2 and 3/2, and mu standard normal.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        n_schools: number of schools.

    Returns:
        Data school (num_rows,), error (num_rows,), n_schools and y (num_rows,); truth mu (), tau () and effect
        (n_schools,).
    """
    key_school, key_error, key_mu, key_tau, key_effect, key_y = jax.random.split(rng_key, 6)
    school = jax.random.randint(key_school, (num_rows,), 0, n_schools)
    error = jax.random.uniform(key_error, (num_rows,), minval=0.5, maxval=1.5)
    mu = jax.random.normal(key_mu)
    tau = jax.random.uniform(key_tau, minval=0.5, maxval=1.5)
    effect = mu + tau * jax.random.normal(key_effect, (n_schools,))
    y = effect[school] + error * jax.random.normal(key_y, (num_rows,))
    return Simulation(
        data={"school": np.array(school), "error": np.array(error), "n_schools": n_schools, "y": np.array(y)},
        truth={"mu": np.array(mu), "tau": np.array(tau), "effect": np.array(effect)},
    )
