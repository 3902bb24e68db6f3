"""Native families: which values a latent's family has, where it is probed, and its member that matches some draws.

Each function asks a family something that only its class can know. They stand together because they are the only place
in this package that tells one native family from another.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.families.product.exponential import Exponential


def is_enumerable(family: Exponential) -> bool:
    """Whether a family has finitely many values: then there is no axis to integrate over."""
    return family.axes == 0


def finite_values(family: Exponential) -> tuple[float, ...]:
    """The values of an enumerable family."""
    return family.values  # pyright: ignore[reportAttributeAccessIssue]  (not yet in the protocol)


def interior_values(family: Exponential, rng: np.random.Generator, count: int) -> np.ndarray:
    """Values ``(count · dim,)`` of some components, well inside the support."""
    if is_enumerable(family):
        return rng.choice(np.asarray(finite_values(family)), count)
    if family.name == "beta":
        return rng.uniform(0.2, 0.8, count)
    if family.name == "dirichlet":
        return rng.dirichlet(np.full(family.dim, 4.0), count).ravel()
    return rng.uniform(0.5, 1.5, count)


def probe_values(family: Exponential) -> np.ndarray:
    """Values ``(M, dim)`` over the middle of a continuous family's support, more than it has natural parameters."""
    if family.name == "dirichlet":
        return np.random.default_rng(6).dirichlet(np.full(family.dim, 2.0), 16 * family.dim)
    line = np.linspace(-3.0, 3.0, 25)[:, None]
    return 1.0 / (1.0 + np.exp(-line)) if family.name == "beta" else np.exp(line)


def natural_of_draws(family: Exponential, values: np.ndarray, dtype: Any) -> tuple[np.ndarray, bool]:
    """Natural parameters ``(n, numbers)`` that match draws ``(S, n, dim)`` in expected statistics; are they proper?"""
    least = float(jnp.finfo(dtype).tiny)
    if family.name in ("beta", "dirichlet"):  # a draw may round to the edge of the support
        values = np.clip(values, least, 1.0 - float(jnp.finfo(dtype).eps))
    elif not is_enumerable(family):
        values = np.clip(values, least, 1.0 / least)
    stats = np.asarray(family.stats(jnp.asarray(values, dtype)), float)
    if is_enumerable(family):
        # As if one more draw had been even: a value that was never drawn is not impossible.
        chances = (stats.sum(0) + 1.0 / len(finite_values(family))) / (len(values) + 1.0)
        natural = np.log(chances) - np.log(1.0 - chances.sum(-1, keepdims=True))
    else:
        start = jnp.ones((values.shape[1], family.numbers), dtype)
        change = jnp.asarray(stats.mean(0), dtype) - family.expected(start)
        natural = np.asarray(jax.jit(family.shifted)(start, change), float)
    return natural, bool(np.asarray(family.proper(jnp.asarray(natural, dtype))).all())
