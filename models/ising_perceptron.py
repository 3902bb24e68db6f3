"""Ising perceptron: weights ±1 and P(y = 1) = flip + (1 − 2 flip) Φ(x·w / noise), which is a step at noise 0.

The weights are `w` = 2 `sign` − 1, where the latents `sign` are fair bits. Inputs are scaled so that the field x·w has
unit variance, and `noise` is in units of its standard deviation. Winther and Solla, Optimal Bayesian online learning,
learn this model online; `adfpp.papers.theory.ising` has the learning curves at large d. NUTS cannot sample the bits:
enumerate them if d is small, or use DiscreteHMCGibbs.
"""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from adfpp.distributions import Probit
from models import Array, Simulation


def model(x: Array, y: Array | None = None, noise: float = 1.0, flip: float = 0.0) -> None:
    """Perceptron with binary weights.

    Args:
        x: inputs, (rows, d).
        y: labels 0 or 1, (rows,), or None to predict them.
        noise: standard deviation of the noise on the field x·w; 0 is the noise-free step.
        flip: probability that a label is flipped after the noise.
    """
    sign = numpyro.sample("sign", dist.Bernoulli(0.5).expand([x.shape[-1]]).to_event(1))
    w = numpyro.deterministic("w", 2.0 * sign - 1.0)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x @ w, noise, flip), obs=y)


def simulate(
    rng_key: jax.Array, num_rows: int, num_features: int = 10, noise: float = 1.0, flip: float = 0.0
) -> Simulation:
    """Draw inputs N(0, 1/d), fair signs, and labels from the sign of the noisy field.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        num_features: d, the number of columns of `x`.
        noise: standard deviation of the noise on the field.
        flip: probability that a label is flipped after the noise.

    Returns:
        Data x (num_rows, d), y (num_rows,), noise and flip; truth sign (d,), 0 or 1.
    """
    key_x, key_sign, key_noise, key_flip = jax.random.split(rng_key, 4)
    x = jax.random.normal(key_x, (num_rows, num_features)) / np.sqrt(num_features)
    sign = jax.random.bernoulli(key_sign, 0.5, (num_features,)).astype(int)
    positive = x @ (2.0 * sign - 1.0) + noise * jax.random.normal(key_noise, (num_rows,)) > 0
    flipped = jax.random.bernoulli(key_flip, flip, (num_rows,))
    y = (positive ^ flipped).astype(int)
    return Simulation(
        data={"x": np.array(x), "y": np.array(y), "noise": noise, "flip": flip},
        truth={"sign": np.array(sign)},
    )
