"""The diagonal Gaussian: means and variances, with correlations dropped after each factor."""

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
class Diagonal(IndependentGaussian):
    """A Gaussian with independent numbers: N means and N variances, O(N) operations for each row."""

    @property
    @override
    def name(self) -> str:
        return "diagonal"

    @override
    def sds(self, variances: np.ndarray) -> np.ndarray:
        return np.sqrt(variances)

    @override
    def kept(self, bracket: jax.Array) -> jax.Array:
        return bracket

    @override
    def site_numbers(self, field_size: int, size: int) -> int:
        return 2 * size

    @override
    def from_natural(self, natural: jax.Array, size: int) -> tuple[Belief, jax.Array]:
        precision = natural[size:]
        proper = jnp.all((precision > 0) & jnp.isfinite(precision))
        return Belief(natural[:size] / precision, 1.0 / jnp.sqrt(precision)), proper

    @override
    def first_site(self, belief: Belief, shares: jax.Array) -> jax.Array:
        return self.natural(belief) * jnp.concatenate([shares, shares])

    @override
    def log_norm(self, belief: Belief) -> jax.Array:
        return jnp.sum(jnp.log(belief.scale) + 0.5 * (belief.mean / belief.scale) ** 2)

    @override
    def prior_log_norm(self, belief: Belief, blocks: Sequence[Block], covered: np.ndarray) -> float:
        mean, sd = np.asarray(belief.mean, float)[covered], np.asarray(belief.scale, float)[covered]
        return float(np.sum(np.log(sd) + 0.5 * (mean / sd) ** 2 + 0.5 * math.log(2.0 * math.pi)))
