"""Finitely many values: Bernoulli and Categorical."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from scipy import special
from typing_extensions import override

from adfpp.engine.families.product.exponential import Exponential, quantile_arguments
from adfpp.engine.families.product.gamma_functions import exp_excess
from adfpp.engine.families.product.nodes import Nodes


@dataclass(frozen=True)
class Finite(Exponential):
    """Finitely many values: Bernoulli (0, 1), a sign (-1, 1), Categorical (0, …, K-1).

    η: log odds against the first value, ``(K-1,)``. T: indicators of the others.

    Attributes:
        values: The values, at least two and all different.
    """

    values: tuple[float, ...]
    name: str = field(init=False, repr=False)
    numbers: int = field(init=False, repr=False)
    dim = 1
    axes = 0

    def __post_init__(self) -> None:
        if len(set(self.values)) != len(self.values) or len(self.values) < 2:
            raise ValueError(f"values={self.values} must be two or more different numbers.")
        object.__setattr__(self, "name", "bernoulli" if len(self.values) == 2 else "categorical")
        object.__setattr__(self, "numbers", len(self.values) - 1)

    @property
    @override
    def levels(self) -> tuple[float, ...]:
        return self.values

    @property
    @override
    def flat(self) -> np.ndarray:
        return np.zeros(self.numbers)

    @override
    def share(self, eta: jax.Array, site: jax.Array) -> jax.Array:
        return jnp.zeros(0, site.dtype)

    @override
    def unit(self, eta: jax.Array) -> jax.Array:
        """The units are 1 + |η|: the standard deviation of an almost certain value would be too small a unit."""
        return 1.0 + jnp.abs(eta)

    @override
    def proper(self, eta: jax.Array) -> jax.Array:
        return jnp.all(jnp.isfinite(eta), -1)

    @override
    def log_norm(self, eta: jax.Array) -> jax.Array:
        if len(self.values) == 2:
            return jax.nn.softplus(eta[..., 0])
        return jax.nn.logsumexp(_with_first(eta), -1)

    @override
    def stats(self, s: jax.Array) -> jax.Array:
        return self._indicators(s)[..., 1:]

    @override
    def expected(self, eta: jax.Array) -> jax.Array:
        return self._probabilities(eta)[..., 1:]

    @override
    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        if len(self.values) == 2:  # 1 - p to its own precision
            first, step = self.values[0], self.values[1] - self.values[0]
            p = jax.nn.sigmoid(eta)
            return first + step * p, step * step * (p * jax.nn.sigmoid(-eta))
        p = self._probabilities(eta)
        values = jnp.asarray(self.values, p.dtype)
        mean = jnp.sum(p * values, -1, keepdims=True)
        return mean, jnp.sum(p * (values - mean) ** 2, -1, keepdims=True)

    @override
    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """Closed form, by ratios of new to old probabilities: these stay exact where one of them is tiny.

        Only the first value's probability, whose change is not given, is lost to rounding when it is much smaller than
        two others.
        """
        change = jnp.asarray(change, eta.dtype)
        log_p = jax.nn.log_softmax(_with_first(eta), -1)
        p = jnp.exp(log_p)
        change_p = jnp.concatenate([-jnp.sum(change, -1, keepdims=True), change], -1)
        near = (jnp.abs(change_p) < 0.5 * p) | (change_p == 0.0)
        ratio = jnp.where(
            near,
            jnp.log1p(jnp.where(near & (change_p != 0.0), change_p / p, 0.0)),
            jnp.log(jnp.where(near, 1.0, p + change_p)) - log_p,
        )
        return self.accepted(eta, change, eta + ratio[..., 1:] - ratio[..., :1])

    @override
    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """KL as a sum of terms that are not negative, p (q/p - 1 - log(q/p))."""
        log_p, log_q = (jax.nn.log_softmax(_with_first(each), -1) for each in (eta, other))
        p, gap = jnp.exp(log_p), log_q - log_p
        near = jnp.abs(gap) < 1.0
        return jnp.sum(jnp.where(near, p * exp_excess(jnp.where(near, gap, 0.0)), jnp.exp(log_q) - p - p * gap), -1)

    @override
    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """Log-probability; -inf for a number that is not among the values."""
        log_p = jax.nn.log_softmax(_with_first(eta), -1)
        return jnp.max(jnp.where(self._indicators(s) > 0, log_p, -jnp.inf), -1)

    @override
    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        drawn = jax.random.categorical(key, _with_first(eta), shape=(*shape, *eta.shape[:-1]))
        return jnp.asarray(self.values, eta.dtype)[drawn][..., None]

    @override
    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """The smallest value up to which the probability is at least q."""
        eta, q = quantile_arguments(eta, q)
        order = np.argsort(self.values)
        p = special.softmax(np.concatenate([np.zeros_like(eta[..., :1]), eta], -1), -1)[..., order]
        # summed from both ends: rounding in the sum must not make the last probability unreachable
        below = np.minimum(np.cumsum(p, -1), 1.0)[..., :-1]
        return np.asarray(self.values, float)[order][(q[..., None] > below).sum(-1)][..., None]

    @override
    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        p = self._probabilities(eta)
        values = jnp.asarray(self.values, p.dtype)[:, None]
        return Nodes(values, self.stats(values).astype(p.dtype), p, p)

    @override
    def points_of(self, expected: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The values, weighted by their probabilities; for one component, because the weights are its own."""
        first = 1.0 - jnp.sum(expected, -1, keepdims=True)
        weights = jnp.concatenate([first, expected], -1).reshape(-1)
        shape = (len(self.values), *expected.shape[:-1], 1)
        values = jnp.asarray(self.values, expected.dtype).reshape((-1,) + (1,) * (len(shape) - 1))
        return weights, jnp.broadcast_to(values, shape)

    @override
    def vague(self, mean: np.ndarray) -> np.ndarray:
        return np.zeros((len(mean), self.numbers))

    @override
    def probe(self, eta: jax.Array, wide: ArrayLike = 1.0) -> jax.Array:
        return jnp.full_like(eta, wide / (2.0 * len(self.values)))

    @override
    def interior(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.choice(np.asarray(self.values), (count, 1))

    @override
    def probes(self) -> np.ndarray:
        return np.asarray(self.values)[:, None]

    @override
    def inside(self, values: np.ndarray, dtype: DTypeLike) -> np.ndarray:
        return values

    @override
    def match(self, values: np.ndarray, dtype: DTypeLike) -> tuple[np.ndarray, bool]:
        """The members by counts, to which one more draw is added, spread evenly: no value becomes impossible."""
        counts = np.asarray(self.stats(jnp.asarray(values, dtype)), float).sum(0)
        chances = (counts + 1.0 / len(self.values)) / (len(values) + 1.0)
        natural = np.log(chances) - np.log(1.0 - chances.sum(-1, keepdims=True))
        return natural, bool(np.isfinite(natural).all())

    def _probabilities(self, eta: jax.Array) -> jax.Array:
        return jax.nn.softmax(_with_first(eta), -1)

    def _indicators(self, s: jax.Array) -> jax.Array:
        s = jnp.asarray(s)
        kind = jnp.result_type(s.dtype, float) if not jnp.issubdtype(s.dtype, jnp.floating) else s.dtype
        return (s == jnp.asarray(self.values, kind)).astype(kind)


def _with_first(eta: jax.Array) -> jax.Array:
    """Log odds with those of the first value, 0."""
    return jnp.concatenate([jnp.zeros_like(eta[..., :1]), eta], -1)
