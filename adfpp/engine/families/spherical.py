"""The spherical Gaussian: means and one common variance (Opper's (9.4); the scalar BOnA)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from adfpp.engine.families.base import Belief, Block
from adfpp.engine.families.in_theta import IndependentGaussian


@dataclass(frozen=True)
class Spherical(IndependentGaussian):
    """A Gaussian with independent numbers of equal variance: N means and one variance."""

    @property
    @override
    def name(self) -> str:
        return "spherical"

    @override
    def sds(self, variances: np.ndarray) -> np.ndarray:
        return np.sqrt(variances.mean())

    @override
    def kept(self, bracket: jax.Array) -> jax.Array:
        return jnp.mean(bracket)

    @override
    def site_numbers(self, field_size: int, size: int) -> int:
        return size + 1

    @override
    def from_natural(self, natural: jax.Array, size: int) -> tuple[Belief, jax.Array]:
        precision = natural[size]
        proper = (precision > 0) & jnp.isfinite(precision)
        return Belief(natural[:size] / precision, 1.0 / jnp.sqrt(precision)), proper

    @override
    def first_site(self, belief: Belief, shares: jax.Array) -> jax.Array:
        return self.natural(belief) * jnp.concatenate([shares, jnp.mean(shares)[None]])

    @override
    def log_norm(self, belief: Belief) -> jax.Array:
        squares = (belief.mean / belief.scale) @ (belief.mean / belief.scale)
        return belief.mean.shape[0] * jnp.log(belief.scale) + 0.5 * squares

    @override
    def prior_log_norm(self, belief: Belief, blocks: Sequence[Block], covered: np.ndarray) -> float:
        if covered.any() and not covered.all():
            return math.nan  # the common variance does not belong to the blocks alone
        mean, sd = np.asarray(belief.mean, float)[covered], float(belief.scale)
        return float(np.sum(math.log(sd) + 0.5 * (mean / sd) ** 2 + 0.5 * math.log(2.0 * math.pi)))
