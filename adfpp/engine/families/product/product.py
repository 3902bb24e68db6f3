"""Products of families: each latent in its native space by a family of its own, the others as Gaussian blocks.

If a latent is stored in its native space (an indicator, a rate, a probability), its coordinates in θ are the values
themselves; if it is Gaussian, they are unconstrained numbers. The projection onto a product keeps the marginals: the
expected sufficient statistics of every component, and the mean and the covariance of every Gaussian block (in the
block's own shape: full, diagonal or spherical).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from typing_extensions import override

from adfpp.engine.factor import Factor, ReadyFactor
from adfpp.engine.families.base import Answer, Block, Outside, Window, slots_of
from adfpp.engine.families.in_theta import InTheta, Taken
from adfpp.engine.families.product.field_split import FieldSplit, Splitting, split_field
from adfpp.engine.families.product.marginals import tilted_marginals
from adfpp.engine.families.product.parts import Part, PartValue
from adfpp.engine.tilt import Index, Message


class ProductBelief(NamedTuple):
    """A belief that is a product.

    Attributes:
        mean: ``(N,)`` means of the coordinates, computed from ``parts``.
        scale: ``(N,)`` standard deviations of the coordinates, computed from ``parts``.
        parts: For each part a Gaussian ``Belief``, or natural parameters ``(n, numbers)`` of n components.
    """

    mean: jax.Array
    scale: jax.Array
    parts: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Product(InTheta[ProductBelief]):
    """A product of families, one for each part of θ.

    Attributes:
        parts: The parts in the order of θ. All latents with the family "full" share one Gaussian block.
        splitting: The limits that decide when components are enumerated, and when the central limit theorem is used.
    """

    parts: tuple[Part, ...]
    splitting: Splitting = field(default_factory=Splitting)

    @property
    @override
    def name(self) -> str:
        return f"product({', '.join(f'{n}: {p.family.name}' for p in self.parts for n in p.names)})"

    @property
    def size(self) -> int:
        """The length of θ."""
        return sum(len(p.where) for p in self.parts)

    def part_of(self, latent: str) -> Part:
        """The part that stores a latent."""
        return next(p for p in self.parts if latent in p.names)

    @override
    def family_of(self, latent: str) -> str:
        return self.part_of(latent).family.name

    def split_of(self, factor: Factor) -> FieldSplit:
        """Decides how the parts enter a factor's field."""
        return split_field(self.parts, self.splitting, factor)

    @override
    def describe(self, factor: Factor) -> tuple[str, str]:
        rule, split = type(factor.rule).__name__, self.split_of(factor)
        if split.how == "Gaussian":
            return rule, split.why
        inside = len(split.inner) and not (split.how == "quadrature" and len(split.inner) > 1)
        return f"{split.how}, {rule}" if inside else split.how, split.why

    # ------------------------------------------------------------------------------------------ beliefs

    @override
    def split(self, blocks: Sequence[Block]) -> list[Block]:
        # a block that spans several parts is replaced by its marginals
        out = []
        for block in blocks:
            inside = [np.isin(block.where, p.where) for p in self.parts]
            for mine in (m for m in inside if m.any()):
                if mine.all():
                    out.append(block)
                    continue
                root = block.root[mine]
                if block.root.ndim == 2:
                    root = np.linalg.cholesky(root @ root.T)
                out.append(block._replace(where=block.where[mine], mean=block.mean[mine], root=root))
        return out

    @override
    def start(self, blocks: Sequence[Block], size: int, dtype: DTypeLike) -> ProductBelief:
        return self.belief([p.start(blocks, size, dtype) for p in self.parts])

    def belief(self, values: Sequence[PartValue]) -> ProductBelief:
        """Makes the belief from these parts, with the moments of its coordinates."""
        moments = [p.moments(value) for p, value in zip(self.parts, values, strict=True)]
        if len(self.parts) == 1:
            return ProductBelief(*moments[0], tuple(values))
        dtype = jax.tree.leaves(values)[0].dtype
        mean, scale = jnp.zeros(self.size, dtype), jnp.zeros(self.size, dtype)
        for part, (centre, sd) in zip(self.parts, moments, strict=True):
            mean, scale = mean.at[part.where].set(centre), scale.at[part.where].set(sd)
        return ProductBelief(mean, scale, tuple(values))

    @override
    def blocks(self, belief: ProductBelief) -> list[tuple[np.ndarray, ...]]:
        return [block for part, value in self._each(belief) for block in part.blocks(value)]

    def _each(self, belief: ProductBelief) -> list[tuple[Part, PartValue]]:
        return list(zip(self.parts, belief.parts, strict=True))

    # ------------------------------------------------------------------------------------------ one factor

    @override
    def origin(self, mean: jax.Array) -> jax.Array:
        # Gaussian coordinates are at their means, those of components at 0. So A s for values s of the components is
        # added without rounding errors of their means: a likelihood may test whether an indicator is exactly 0.
        return jnp.where(self._gaussian, mean, 0.0)

    @property
    def _gaussian(self) -> np.ndarray:
        out = np.zeros(self.size, bool)
        for part in self.parts:
            out[part.where] = part.gaussian
        return out

    @override
    def draws(self, factor: Factor) -> bool:
        return factor.draws or (factor.field_size > 0 and self.split_of(factor).how == "drawn")

    @override
    def error_limit(self, factor: Factor, dtype: DTypeLike) -> float | None:
        return self.split_of(factor).error_limit(factor, dtype)

    @override
    def initial_damping(self, factors: Sequence[Factor]) -> float:
        # steps of central-limit blocks of discrete components are too large if a component is nearly certain
        crowded = any(self.split_of(f).central for f in factors if f.field_size)
        return 0.5 if crowded else 1.0

    @override
    def field(self, window: Window[ProductBelief], cavity: ProductBelief, slot: Index, factor: Factor) -> Outside:
        # the mean of the field is computed with Gaussian blocks at their means and all components at 0
        size = factor.field_size
        rows, value = slots_of(window.matrix, slot, size), slots_of(window.value, slot, size)
        if window.matrix.shape[0] != size:
            value = value + rows @ (self.origin(window.belief.mean) - window.start)
        if cavity is not window.belief:
            value = value + rows @ (self.origin(cavity.mean) - self.origin(window.belief.mean))
        finite = jnp.all(jnp.isfinite(value)) & jnp.all(jnp.isfinite(rows))
        rows, value = jnp.where(finite, rows, 0.0), jnp.where(finite, value, 0.0)
        return Outside(value, jnp.zeros((0, 0), value.dtype), None, finite, jnp.ones((), bool), rows)

    @override
    def tilt(self, outside: Outside, factor: Factor, ready: ReadyFactor, element: Index) -> Answer:
        taken: Taken[ProductBelief] = outside.own
        split = self.split_of(factor)
        marginals = tilted_marginals(
            self.parts, split, factor, ready, element, taken.belief, taken.field, outside.mean, outside.power
        )
        return Answer(marginals.tilted, marginals.saturated, marginals)

    @override
    def project(self, taken: Taken[ProductBelief], answer: Answer) -> tuple[ProductBelief, jax.Array]:
        return self.belief(answer.own.parts), answer.own.proper

    @override
    def message(self, taken: Taken[ProductBelief], message: Message) -> jax.Array:
        raise NotImplementedError("Products of families have no message in the limit of power 0.")

    # ------------------------------------------------------------------------------------------ natural parameters

    @override
    def site_numbers(self, field_size: int, size: int) -> int:
        return sum(p.numbers for p in self.parts)

    @override
    def gaussian_size(self, size: int) -> int:
        return int(self._gaussian.sum())

    def _cut(self, natural: jax.Array) -> list[jax.Array]:
        return jnp.split(natural, np.cumsum([p.numbers for p in self.parts])[:-1])

    @override
    def natural(self, belief: ProductBelief) -> jax.Array:
        return jnp.concatenate([part.natural(value) for part, value in self._each(belief)])

    @override
    def from_natural(self, natural: jax.Array, size: int) -> tuple[ProductBelief, jax.Array]:
        built = [p.from_natural(n) for p, n in zip(self.parts, self._cut(natural), strict=True)]
        return self.belief([value for value, _ in built]), jnp.all(jnp.stack([proper for _, proper in built]))

    @override
    def share(self, belief: ProductBelief, site: jax.Array) -> jax.Array:
        shares = [part.share(value, n) for (part, value), n in zip(self._each(belief), self._cut(site), strict=True)]
        return jnp.concatenate([jnp.zeros(1, site.dtype), *shares])

    @override
    def first_site(self, belief: ProductBelief, shares: jax.Array) -> jax.Array:
        return jnp.concatenate([part.first_site(value, shares[part.where]) for part, value in self._each(belief)])

    @override
    def log_norm(self, belief: ProductBelief) -> jax.Array:
        return sum((p.log_norm(value) for p, value in self._each(belief)), jnp.zeros((), belief.mean.dtype))

    @override
    def prior_log_norm(self, belief: ProductBelief, blocks: Sequence[Block], covered: np.ndarray) -> float:
        total = 0.0
        for part, value in self._each(belief):
            mine = [b for b in blocks if b.where[0] in part.where]
            total += part.prior_log_norm(value, mine, covered[part.where])
        return total

    # ------------------------------------------------------------------------------------------ properties of a belief

    @override
    def spread(self, belief: ProductBelief, size: int) -> jax.Array:
        return belief.scale

    @override
    def distance(self, before: ProductBelief, after: ProductBelief) -> jax.Array:
        """The largest distance of a part: natural parameters relatively, log odds below 1 absolutely."""
        steps = [p.distance(a, b) for p, a, b in zip(self.parts, before.parts, after.parts, strict=True)]
        return jnp.max(jnp.stack(steps))

    @override
    def sample(self, rng_key: jax.Array, belief: ProductBelief, count: int) -> jax.Array:
        out = jnp.zeros((count, self.size), belief.mean.dtype)
        for i, (part, value) in enumerate(self._each(belief)):
            out = out.at[:, part.where].set(part.sample(jax.random.fold_in(rng_key, i), value, count))
        return out

    @override
    def log_prob(self, belief: ProductBelief, theta: jax.Array) -> jax.Array:
        return sum(
            (part.log_prob(value, theta[..., part.where]) for part, value in self._each(belief)),
            jnp.zeros(theta.shape[:-1], theta.dtype),
        )
