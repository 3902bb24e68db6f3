"""Plain NumPyro models, each with a `simulate` that draws data from it at a known truth.

One file a model. Every file holds `model`, an ordinary NumPyro model with one observed site `y` in a plate
`rows` sized from its arguments, and `simulate(rng_key, num_rows, ...)`, which returns a `Simulation`:

    from models import logistic

    data, truth = logistic.simulate(jax.random.key(0), 500)
    MCMC(NUTS(logistic.model), num_warmup=500, num_samples=500).run(jax.random.key(1), **data)
"""

from typing import Any, NamedTuple

import jax
import numpy as np

NAMES = (
    "linear",
    "logistic",
    "probit",
    "rosenblatt",
    "threshold",
    "poisson",
    "negative_binomial",
    "student_t",
    "softmax",
    "heteroscedastic",
    "hierarchy",
)

# The prior of one of their sites depends on another site, all but in the non-centred form.
HIERARCHIES = (
    "eight_schools",
    "eight_schools_noncentred",
    "varying_intercepts",
    "item_response",
    "random_walk",
)

# Their latent sites are discrete: NUTS cannot sample them.
DISCRETE = ("ising_perceptron",)

# Some of their sites are at home in a space of their own: a precision, a rate, a probability.
PRODUCTS = ("unknown_noise", "zero_inflated", "mixture_weights")

# Their rows depend on nearly all latent numbers in no affine way: Monte Carlo moments.
NETWORKS = ("network",)

Array = jax.Array | np.ndarray


class Simulation(NamedTuple):
    """Data drawn from a model, and the latent values they were drawn at.

    Attributes:
        data: keyword arguments of the model: arrays with one entry a row, and constants as Python numbers.
        truth: the true value of every latent site, by name.
    """

    data: dict[str, Any]
    truth: dict[str, np.ndarray]
