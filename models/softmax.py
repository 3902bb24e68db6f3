"""Multinomial logistic regression: P(y = c) ∝ exp(x·w_c + b_c).

Adding one vector to every w_c changes nothing in the likelihood; only the prior determines that direction.
"""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(x: Array, y: Array | None = None, n_classes: int = 3, scale: float = 1.0) -> None:
    """Multinomial logistic regression.

    Args:
        x: inputs, (rows, d).
        y: labels 0, ..., n_classes − 1, (rows,), or None to predict them.
        n_classes: number of classes.
        scale: prior standard deviation of `w`, (d, n_classes), and `b`, (n_classes,).
    """
    w = numpyro.sample("w", dist.Normal(0, scale).expand([x.shape[-1], n_classes]).to_event(2))
    b = numpyro.sample("b", dist.Normal(0, scale).expand([n_classes]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=x @ w + b), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, num_features: int = 5, n_classes: int = 3) -> Simulation:
    """Draw standard normal inputs, and weights and intercepts from the default prior.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        num_features: d, the number of columns of `x`.
        n_classes: number of classes.

    Returns:
        Data x (num_rows, d), y (num_rows,) and n_classes; truth w (d, n_classes) and b (n_classes,).
    """
    key_x, key_w, key_b, key_y = jax.random.split(rng_key, 4)
    x = jax.random.normal(key_x, (num_rows, num_features))
    w = jax.random.normal(key_w, (num_features, n_classes))
    b = jax.random.normal(key_b, (n_classes,))
    y = jax.random.categorical(key_y, x @ w + b)
    return Simulation(
        data={"x": np.array(x), "y": np.array(y), "n_classes": n_classes},
        truth={"w": np.array(w), "b": np.array(b)},
    )
