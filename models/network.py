"""Two-layer network: P(y = 1) = 1 / (1 + exp(−(Σ_h c_h tanh(x·a_h + b_h) + bias))).

Opper, A Bayesian approach to online learning, mentions such models in his outlook: their Gaussian averages need Monte
Carlo. The prior means of the input weights point in fixed, different directions. Without them all hidden units could be
exchanged or change their sign, and a Gaussian belief, which averages over these cases, would learn nothing in one pass.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def directions(num_features: int, hidden: int) -> np.ndarray:
    """Fixed vectors of length 1.5 in different directions, one in each column, (d, hidden)."""
    if num_features == 2:
        angles = 2 * np.pi * np.arange(hidden) / hidden
        return 1.5 * np.stack([np.cos(angles), np.sin(angles)])
    found = np.random.default_rng(0).normal(size=(num_features, hidden))
    return 1.5 * found / np.linalg.norm(found, axis=0)


def model(x: Array, y: Array | None = None, hidden: int = 6, scale: float = 0.7) -> None:
    """Two-layer network.

    Args:
        x: inputs, (rows, d).
        y: labels 0 or 1, (rows,), or None to predict them.
        hidden: number of hidden units.
        scale: prior standard deviation of the input weights `a`, (d, hidden), about `directions`, and of `b` (hidden,);
            that of the output weights `c`, (hidden,), is 2, and that of `bias` 1.
    """
    centre = directions(x.shape[-1], hidden)
    a = numpyro.sample("a", dist.Normal(centre, scale).to_event(2))
    b = numpyro.sample("b", dist.Normal(0, scale).expand([hidden]).to_event(1))
    c = numpyro.sample("c", dist.Normal(0, 2).expand([hidden]).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.tanh(x @ a + b) @ c + bias), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, num_features: int = 2, hidden: int = 6) -> Simulation:
    """Draw standard normal inputs, weights from the prior, and labels from the network.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        num_features: d, the number of columns of `x`.
        hidden: number of hidden units.

    Returns:
        Data x (num_rows, d), y (num_rows,) and hidden; truth a (d, hidden), b (hidden,), c (hidden,) and bias ().
    """
    key_x, key_a, key_b, key_c, key_bias, key_y = jax.random.split(rng_key, 6)
    x = jax.random.normal(key_x, (num_rows, num_features))
    a = directions(num_features, hidden) + 0.7 * jax.random.normal(key_a, (num_features, hidden))
    b = 0.7 * jax.random.normal(key_b, (hidden,))
    c = 2 * jax.random.normal(key_c, (hidden,))
    bias = jax.random.normal(key_bias)
    y = jax.random.bernoulli(key_y, jax.nn.sigmoid(jnp.tanh(x @ a + b) @ c + bias)).astype(int)
    return Simulation(
        data={"x": np.array(x), "y": np.array(y), "hidden": hidden},
        truth={"a": np.array(a), "b": np.array(b), "c": np.array(c), "bias": np.array(bias)},
    )
