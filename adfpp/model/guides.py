"""Draws and densities of a NumPyro guide, whatever it is made of."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer.util import compute_log_probs


def guide_draws(
    guide: Callable[..., object],
    params: Mapping[str, object],
    rng_key: jax.Array,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    count: int,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Runs a guide several times.

    Returns:
        ``({latent: (count, *shape)}, log density (count,))`` in the latents' native spaces: of all that the guide
        draws, its factors included, which is what the weights of a guide with auxiliary variables (``AutoDAIS``) are
        made of.
    """

    def one(key: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
        # A latent that is a mere function of another is a Delta which carries the volume of that function.
        logs, messages = compute_log_probs(handlers.seed(guide, rng_seed=key), args, dict(kwargs), dict(params))
        drawn = {n: m["value"] for n, m in messages.items() if m["type"] == "sample" and not m["is_observed"]}
        return drawn, jnp.sum(jnp.stack(list(logs.values())))

    return jax.device_get(jax.jit(jax.vmap(one))(jax.random.split(rng_key, count)))
