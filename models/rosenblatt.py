"""Perceptron with the likelihood exp(−beta max(0, −s h)) for a row, where h = x·w / √d and s = 2y − 1.

Equations (8)–(9) of de Oliveira and Alamino, Performance of the Bayesian online algorithm for the perceptron. At the
default beta = inf the likelihood is a step: the posterior is the prior restricted to the w that get every label right,
and the length of w cannot be learned. A step has no gradient, so NUTS cannot sample that case; give it a finite beta.
At a finite beta the likelihoods of the two labels do not sum to one: they are not probabilities.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from adfpp.distributions import Rosenblatt
from models import Array, Simulation


def model(x: Array, y: Array | None = None, beta: float = float("inf"), scale: float = 1.0) -> None:
    """Perceptron whose errors are penalised in proportion to the field.

    Args:
        x: inputs, (rows, d).
        y: labels 0 or 1, (rows,), or None to predict them.
        beta: inverse temperature, the penalty; inf allows no error, and NUTS cannot sample it.
        scale: prior standard deviation of `w`, (d,).
    """
    w = numpyro.sample("w", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Rosenblatt(x @ w / jnp.sqrt(x.shape[-1]), beta), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, num_features: int = 5) -> Simulation:
    """Draw standard normal inputs and teacher weights, and the teacher's labels without noise (beta = inf).

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        num_features: d, the number of columns of `x`.

    Returns:
        Data x (num_rows, d) and y (num_rows,); truth w (d,), the teacher.
    """
    key_x, key_w = jax.random.split(rng_key)
    x = jax.random.normal(key_x, (num_rows, num_features))
    w = jax.random.normal(key_w, (num_features,))
    y = (x @ w / jnp.sqrt(num_features) > 0).astype(int)
    return Simulation(
        data={"x": np.array(x), "y": np.array(y)},
        truth={"w": np.array(w)},
    )
