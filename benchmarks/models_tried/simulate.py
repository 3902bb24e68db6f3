"""Draws the data of a case from its own model, with fixed integer seeds."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from numpyro.handlers import seed, substitute, trace

_DIGITS = 8  # so that all versions of JAX draw the same numbers, whose last bits may differ


def drawn(
    model: Callable[..., None], number: int, values: Mapping[str, Any], *observed: str, **inputs: Any
) -> dict[str, Any]:
    """The inputs, and a draw of the model's observations given these values of some latents.

    Args:
        model: A NumPyro model whose observations have the names of its arguments.
        number: The seed.
        values: Latents with known values; the others are drawn from their priors.
        observed: Names of the observations.
        **inputs: The model's other arguments.
    """
    known: dict[str, Any] = {name: np.asarray(value, float) for name, value in values.items()}
    found = trace(seed(substitute(model, data=known), jax.random.key(number))).get_trace(**inputs)
    drawn_values = {name: np.asarray(found[name]["value"]) for name in observed}
    return {**inputs, **{name: value.round(_DIGITS) for name, value in drawn_values.items()}}


def standardised(x: Any) -> np.ndarray:
    """Columns with mean 0 and sd 1."""
    x = np.asarray(x, float)
    return (x - x.mean(0)) / x.std(0)
