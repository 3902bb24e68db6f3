"""Draws and densities of a NumPyro guide, whatever it is made of."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers


def guide_draws(
    guide: Callable[..., Any],
    params: Mapping[str, Any],
    rng_key: jax.Array,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    count: int,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Runs a guide several times.

    Returns:
        ``({site: (count, *shape)}, log density (count,))`` in the sites' own spaces.
    """

    def one(key: jax.Array) -> tuple[dict[str, Any], jax.Array]:
        seeded = handlers.seed(handlers.substitute(guide, data=dict(params)), rng_seed=key)
        sites = handlers.trace(seeded).get_trace(*args, **kwargs)
        drawn = {n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
        # a site that is a mere function of another is a Delta which carries the volume of that function
        logs = [jnp.sum(s["fn"].log_prob(s["value"])) for s in drawn.values()]
        return {n: s["value"] for n, s in drawn.items()}, jnp.sum(jnp.stack(logs))

    return jax.device_get(jax.jit(jax.vmap(one))(jax.random.split(rng_key, count)))
