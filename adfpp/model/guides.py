"""Draws and densities of a NumPyro guide of any kind."""

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
        ``({latent: (count, *shape)}, log density (count,))`` in the latents' native spaces. The density covers all
        variables and factors of the guide, because the weights of a guide with auxiliary variables (``AutoDAIS``)
        need them.
    """

    def one(key: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
        # A latent that is a function of another one is a Delta, whose log-density is the log-volume of that function.
        logs, messages = compute_log_probs(handlers.seed(guide, rng_seed=key), args, dict(kwargs), dict(params))
        drawn = {n: m["value"] for n, m in messages.items() if m["type"] == "sample" and not m["is_observed"]}
        return drawn, jnp.sum(jnp.stack(list(logs.values())))

    return jax.device_get(jax.jit(jax.vmap(one))(jax.random.split(rng_key, count)))
