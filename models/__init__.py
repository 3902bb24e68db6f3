"""Plain NumPyro models, each with a function `simulate` that draws data from known values of the latents.

Each file has one model: `model` is an ordinary NumPyro model with one observation `y` in a plate `rows` that is sized
from its arguments, and `simulate(rng_key, num_rows, ...)` returns a `Simulation`:

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

# The prior of one of their latents depends on another latent, except in the non-centred form.
HIERARCHIES = (
    "eight_schools",
    "eight_schools_noncentred",
    "varying_intercepts",
    "item_response",
    "random_walk",
)

# Their latents are discrete, so that NUTS cannot sample them.
DISCRETE = ("ising_perceptron",)

# Some of their latents have a native family: a precision, a rate, a probability.
PRODUCTS = ("unknown_noise", "zero_inflated", "mixture_weights")

# Their rows depend on nearly all latents without a small affine field, so their moments are computed by Monte Carlo.
NETWORKS = ("network",)

# All of their latents have conjugate priors, and most of them have rows with latents of their own.
CONJUGATE = (
    "mixture_of_gaussians",
    "ppca",
    "factor_analysis",
    "local_factor_analysis",
    "lda",
    "bayesian_linear_ard",
)

Array = jax.Array | np.ndarray


class Simulation(NamedTuple):
    """Data drawn from a model, and the true values of its latents.

    Attributes:
        data: keyword arguments of the model: arrays with one entry for each row, and constants as Python numbers.
        truth: the true value of every latent, by name.
    """

    data: dict[str, Any]
    truth: dict[str, np.ndarray]
