"""A regression after half of its rows, shared by the tests of posteriors and of where learning starts."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import adfpp
from adfpp.learn.adf import ADFState

Array = Any
sample: Callable[..., Any] = numpyro.sample
FAMILIES = ["full", "diagonal", "spherical"]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 2))
Y = RNG.normal(size=8)


def regression(x: Array, y: Array | None = None) -> None:
    """Two sites, one of them positive."""
    w = sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    s = sample("s", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("rows", x.shape[0]):
        sample("y", dist.Normal(x @ w + jnp.log(s), 0.7), obs=y)


@cache
def first_half(family: str) -> tuple[adfpp.ADF, ADFState]:
    """The regression after half of its rows."""
    adf = adfpp.ADF(regression, family=family)
    return adf, adf.update(adf.init(jax.random.key(0), X, y=Y), X[:4], y=Y[:4])[0]
