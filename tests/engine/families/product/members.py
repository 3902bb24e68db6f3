"""Members of the exponential families, and exact answers about them in 40 digits of mpmath."""

from functools import cache, partial
from itertools import product
from typing import Any

import jax
import mpmath
import numpy as np

from adfpp.engine.families.product.exponential import Exponential
from adfpp.engine.families.product.finite import Finite

FINITE: list[Exponential] = [Finite((-1.0, 1.0)), Finite((0.0, 1.0, 2.0))]

# what each natural parameter may be
RANGES = {
    "bernoulli": [(-700.0, 700.0)],
    "categorical": [(-700.0, 700.0)] * 2,
    "gamma": [(1e-2, 1e6), (1e-3, 1e3)],
    "inverse_gamma": [(1e-2, 1e6), (1e-3, 1e3)],
    "beta": [(1e-3, 1e3)] * 2,
    "dirichlet": [(1e-3, 1e4)] * 3,
}

SIZE = 96  # members at a time: one compilation a family


def members(family: Exponential, count: int = SIZE, seed: int = 0) -> np.ndarray:
    """Members from all over the ranges, their corners first."""
    ranges = np.array(RANGES[family.name])[: family.numbers]
    drawn = np.random.default_rng(seed).uniform(size=(count, family.numbers))
    corners = np.array(list(product((0.0, 1.0), repeat=family.numbers)))
    drawn[: len(corners)] = corners[:count]
    low, high = ranges.T
    return low + (high - low) * drawn if family.axes == 0 else low ** (1 - drawn) * high**drawn


mp: Any = mpmath.mp.clone()
mp.dps = 60


def exact_expected(family: Exponential, eta: np.ndarray) -> list[Any]:
    """E[T] of one member, in many digits."""
    e = [mp.mpf(float(x)) for x in eta]
    if family.axes == 0:
        total = 1 + mp.fsum(mp.exp(x) for x in e)
        return [mp.exp(x) / total for x in e]
    if family.name in ("gamma", "inverse_gamma"):
        return [mp.digamma(e[0]) - mp.log(e[1]), -e[0] / e[1]]
    return [mp.digamma(x) - mp.digamma(mp.fsum(e)) for x in e]


@cache
def quadrature(family: Exponential, level: int) -> Any:
    return jax.jit(jax.vmap(partial(family.nodes, level=level)))
