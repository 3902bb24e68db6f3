"""Eight schools, non-centred: y ~ Normal(mu + tau z[school], error), z ~ Normal(0, 1).

The effects have the same posterior as in `eight_schools`, with other latents: their priors are independent, and each
row depends on three of them.
"""

import jax
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation, eight_schools
from models.eight_schools import DATA as DATA


def model(school: Array, error: Array, n_schools: int, y: Array | None = None, scale: float = 5.0) -> None:
    """Hierarchy of standardised effects.

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
        z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", school.shape[0]):
        numpyro.sample("y", dist.Normal(mu + tau * z[school], error), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, n_schools: int = 8) -> Simulation:
    """Draw the same data as `eight_schools.simulate`.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        n_schools: number of schools.

    Returns:
        Data school (num_rows,), error (num_rows,), n_schools and y (num_rows,); truth mu (), tau () and z
        (n_schools,).
    """
    data, truth = eight_schools.simulate(rng_key, num_rows, n_schools)
    mu, tau, effect = truth["mu"], truth["tau"], truth["effect"]
    return Simulation(data, {"mu": mu, "tau": tau, "z": (effect - mu) / tau})
