"""Noisy perceptron, or probit regression without an intercept: P(y = 1) = flip + (1 − 2 flip) Φ(x·w / noise).

Equation (9.1) of Opper, A Bayesian approach to online learning, there with labels ±1 and no flips. His
Figure 2 is `simulate(rng_key, num_rows, num_features=50, noise=6.24)`.
"""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from adfpp.distributions import Probit
from models import Array, Simulation


def model(x: Array, y: Array | None = None, noise: float = 1.0, flip: float = 0.0, scale: float = 1.0) -> None:
    """Noisy perceptron.

    Args:
        x: inputs, (rows, d).
        y: labels 0 or 1, (rows,), or None to predict them.
        noise: standard deviation of the noise on the field x·w.
        flip: probability that a label is flipped after the noise.
        scale: prior standard deviation of `w`, (d,).
    """
    w = numpyro.sample("w", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x @ w, noise, flip), obs=y)


def simulate(
    rng_key: jax.Array, num_rows: int, num_features: int = 5, noise: float = 1.0, flip: float = 0.0
) -> Simulation:
    """Draw standard normal inputs and weights, and labels from the sign of the noisy field.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        num_features: d, the number of columns of `x`.
        noise: standard deviation of the noise on the field.
        flip: probability that a label is flipped after the noise.

    Returns:
        Data x (num_rows, d), y (num_rows,), noise and flip; truth w (d,).
    """
    key_x, key_w, key_noise, key_flip = jax.random.split(rng_key, 4)
    x = jax.random.normal(key_x, (num_rows, num_features))
    w = jax.random.normal(key_w, (num_features,))
    positive = x @ w + noise * jax.random.normal(key_noise, (num_rows,)) > 0
    flipped = jax.random.bernoulli(key_flip, flip, (num_rows,))
    y = (positive ^ flipped).astype(int)
    return Simulation(
        data={"x": np.array(x), "y": np.array(y), "noise": noise, "flip": flip},
        truth={"w": np.array(w)},
    )
