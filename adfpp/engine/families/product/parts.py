"""The parts of a product: Gaussian blocks in unconstrained space, and independent components in their native space."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from typing_extensions import override

from adfpp.engine.families.base import Belief, Block, Gaussian
from adfpp.engine.families.product.exponential import Exponential

V = TypeVar("V", Belief, jax.Array)  # the class of a part's values
PartValue: TypeAlias = Belief | jax.Array


class Part(ABC, Generic[V]):
    """Some coordinates of θ, and the family that stores the belief about them.

    Attributes:
        names: The latents.
        where: The places in θ, component by component.
        count: The number of independent components; 1 for a Gaussian block.
    """

    gaussian: ClassVar[bool]
    names: tuple[str, ...]
    family: Any
    where: np.ndarray
    count: int

    @property
    def places(self) -> np.ndarray:
        """The places ``(count, dim)`` in θ of the components' coordinates."""
        return self.where.reshape(self.count, -1)

    @property
    @abstractmethod
    def numbers(self) -> int:
        """The number of natural parameters of the whole part."""

    @abstractmethod
    def start(self, blocks: Sequence[Block], size: int, dtype: DTypeLike) -> V:
        """Makes the part of the belief that matches the prior's blocks; ``size`` is the length of θ."""

    @abstractmethod
    def moments(self, value: V) -> tuple[jax.Array, jax.Array]:
        """Means and standard deviations of the part's coordinates."""

    @abstractmethod
    def blocks(self, value: V) -> list[tuple[np.ndarray, ...]]:
        """Returns the part as independent blocks: (places, mean, root), and natural parameters of components."""

    @abstractmethod
    def natural(self, value: V) -> jax.Array:
        """Returns the natural parameters in one vector."""

    @abstractmethod
    def from_natural(self, natural: jax.Array) -> tuple[V, jax.Array]:
        """Returns the part with these natural parameters, and whether it is proper."""

    @abstractmethod
    def proper(self, value: V) -> jax.Array:
        """Whether the part is proper, as a boolean ``()``."""

    @abstractmethod
    def share(self, value: V, site: jax.Array) -> jax.Array:
        """Upper bounds of a site's shares in the precisions and positive parameters."""

    @abstractmethod
    def first_site(self, value: V, shares: jax.Array) -> jax.Array:
        """Makes a site with these shares of the part's natural parameters minus those of a flat density."""

    @abstractmethod
    def log_norm(self, value: V) -> jax.Array:
        """Log of the integral of the unnormalised density, without the terms ½ log 2π of Gaussian numbers."""

    @abstractmethod
    def prior_log_norm(self, value: V, blocks: Sequence[Block], covered: np.ndarray) -> float:
        """Log of the integral of the prior's blocks in this part as unnormalised members of the family."""

    @abstractmethod
    def distance(self, before: V, after: V) -> jax.Array:
        """How far the part has moved."""

    @abstractmethod
    def sample(self, rng_key: jax.Array, value: V, count: int) -> jax.Array:
        """Draws ``count`` independent samples ``(count, coordinates)``."""

    @abstractmethod
    def log_prob(self, value: V, theta: jax.Array) -> jax.Array:
        """Log density ``(...)`` at coordinates ``(..., coordinates)``."""


@dataclass(frozen=True, eq=False)
class GaussianPart(Part[Belief]):
    """A Gaussian block in unconstrained space: its value is a ``Belief``."""

    names: tuple[str, ...]
    family: Gaussian
    where: np.ndarray
    count: int = 1
    gaussian: ClassVar[bool] = True

    @property
    @override
    def numbers(self) -> int:
        size = len(self.where)
        # a Gaussian site on all numbers of the block
        return self.family.site_numbers(size, size)

    @override
    def start(self, blocks: Sequence[Block], size: int, dtype: DTypeLike) -> Belief:
        inside = np.full(size, -1)
        inside[self.where] = np.arange(len(self.where))
        own = [b._replace(where=inside[b.where]) for b in blocks if inside[b.where[0]] >= 0]
        return self.family.start(own, len(self.where), dtype)

    @override
    def moments(self, value: Belief) -> tuple[jax.Array, jax.Array]:
        return value.mean, self.family.spread(value, len(self.where))

    @override
    def blocks(self, value: Belief) -> list[tuple[np.ndarray, ...]]:
        return [(self.where[places], mean, root) for places, mean, root in self.family.blocks(value)]

    @override
    def natural(self, value: Belief) -> jax.Array:
        return self.family.natural(value)

    @override
    def from_natural(self, natural: jax.Array) -> tuple[Belief, jax.Array]:
        return self.family.from_natural(natural, len(self.where))

    @override
    def proper(self, value: Belief) -> jax.Array:
        return jnp.ones((), bool)

    @override
    def share(self, value: Belief, site: jax.Array) -> jax.Array:
        return self.family.share(value, site)

    @override
    def first_site(self, value: Belief, shares: jax.Array) -> jax.Array:
        return self.family.first_site(value, shares)

    @override
    def log_norm(self, value: Belief) -> jax.Array:
        return self.family.log_norm(value)

    @override
    def prior_log_norm(self, value: Belief, blocks: Sequence[Block], covered: np.ndarray) -> float:
        return self.family.prior_log_norm(value, blocks, covered)

    @override
    def distance(self, before: Belief, after: Belief) -> jax.Array:
        return self.family.distance(before, after)

    @override
    def sample(self, rng_key: jax.Array, value: Belief, count: int) -> jax.Array:
        return self.family.sample(rng_key, value, count)

    @override
    def log_prob(self, value: Belief, theta: jax.Array) -> jax.Array:
        return self.family.log_prob(value, theta)


@dataclass(frozen=True, eq=False)
class ComponentPart(Part[jax.Array]):
    """Independent components of an exponential family: its value is their natural parameters ``(count, numbers)``."""

    names: tuple[str, ...]
    family: Exponential
    where: np.ndarray
    count: int
    gaussian: ClassVar[bool] = False

    @property
    @override
    def numbers(self) -> int:
        return self.count * self.family.numbers

    @override
    def start(self, blocks: Sequence[Block], size: int, dtype: DTypeLike) -> jax.Array:
        natural = np.zeros((self.count, self.family.numbers))
        for block in blocks:
            if block.where[0] in self.where:
                natural[np.isin(self.places[:, 0], block.where)] = block.natural
        return jnp.asarray(natural, dtype)

    @override
    def moments(self, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, variance = self.family.moments(value)
        return mean.reshape(-1), jnp.sqrt(variance).reshape(-1)

    @override
    def blocks(self, value: jax.Array) -> list[tuple[np.ndarray, ...]]:
        mean, sd = (np.asarray(a, float) for a in self.moments(value))
        return [(self.where, mean, sd, np.asarray(value, float))]

    @override
    def natural(self, value: jax.Array) -> jax.Array:
        return value.reshape(-1)

    @override
    def from_natural(self, natural: jax.Array) -> tuple[jax.Array, jax.Array]:
        value = natural.reshape(self.count, -1)
        return value, self.proper(value)

    @override
    def proper(self, value: jax.Array) -> jax.Array:
        return jnp.all(self.family.proper(value))

    @override
    def share(self, value: jax.Array, site: jax.Array) -> jax.Array:
        return self.family.share(value.reshape(-1), site)

    @override
    def first_site(self, value: jax.Array, shares: jax.Array) -> jax.Array:
        excess = value - jnp.asarray(self.family.flat, value.dtype)
        return (excess * shares.reshape(self.count, -1)[:, :1]).reshape(-1)

    @override
    def log_norm(self, value: jax.Array) -> jax.Array:
        return jnp.sum(self.family.log_norm(value))

    @override
    def prior_log_norm(self, value: jax.Array, blocks: Sequence[Block], covered: np.ndarray) -> float:
        there = covered.reshape(self.count, -1)[:, 0]
        return float(np.sum(np.asarray(self.family.log_norm(value), float)[there]))

    @override
    def distance(self, before: jax.Array, after: jax.Array) -> jax.Array:
        return jnp.max(jnp.abs(after - before) / self.family.unit(before))

    @override
    def sample(self, rng_key: jax.Array, value: jax.Array, count: int) -> jax.Array:
        return self.family.sample(rng_key, value, (count,)).reshape(count, -1)

    @override
    def log_prob(self, value: jax.Array, theta: jax.Array) -> jax.Array:
        values = theta.reshape((*theta.shape[:-1], self.count, -1))
        return jnp.sum(self.family.log_prob(value, values), -1)
