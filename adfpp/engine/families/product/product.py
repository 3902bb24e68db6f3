"""Products over sites: each own-space site a family of its own, the others Gaussian blocks in unconstrained space.

The coordinates of θ are the values themselves where a site is held in its own space (an indicator, a rate, a
probability), and unconstrained numbers where it is Gaussian. A projection onto a product keeps the marginals: of every
component its expected sufficient statistics, of every Gaussian block its mean and its shape of covariance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.families.gaussian import Belief, Diagonal, Full, Spherical, Window, family_named
from adfpp.engine.families.product.exponential import Beta, Dirichlet, Exponential, Finite, Gamma, InverseGamma
from adfpp.engine.sites import pack, unpack

_PARTS = {"gamma": Gamma(), "inverse_gamma": InverseGamma(), "beta": Beta()}
_GAUSSIAN = {"full": Full(), "diagonal": Diagonal(), "spherical": Spherical()}
_ALIASES = {"normal": "diagonal", "lognormal": "diagonal", "inversegamma": "inverse_gamma"}
LATENT_FAMILIES = (
    "full",
    "diagonal",
    "normal",
    "lognormal",
    "spherical",
    "bernoulli",
    "categorical",
    *_PARTS,
    "dirichlet",
)


class ProductBelief(NamedTuple):
    """A belief that is a product.

    Attributes:
        mean: ``(N,)`` means of the coordinates.
        scale: ``(N,)`` their sds; like the means they follow from
        parts: for each part a Gaussian ``Belief``, or natural parameters ``(n, numbers)`` of n components.
    """

    mean: jax.Array
    scale: jax.Array
    parts: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """Some coordinates of θ and the family that holds them.

    Attributes:
        names: The sites.
        family: Gaussian, or of exponential form over each of
        count: n components (1 for a Gaussian block),
        where: whose places in θ are these, component by component.
    """

    names: tuple[str, ...]
    family: Any
    count: int
    where: np.ndarray

    @property
    def gaussian(self) -> bool:
        """Whether it is a Gaussian block in unconstrained space."""
        return isinstance(self.family, Full | Diagonal | Spherical)

    @property
    def places(self) -> np.ndarray:
        """``(n, dim)`` places in θ of the components' coordinates."""
        return self.where.reshape(self.count, -1)

    @property
    def numbers(self) -> int:
        """Natural parameters of the whole part."""
        if not self.gaussian:
            return self.count * self.family.numbers
        size = len(self.where)
        return size + {"full": size * (size + 1) // 2, "diagonal": size, "spherical": 1}[self.family.name]


@dataclass(frozen=True, eq=False)
class Product:
    """A product over sites of families of their own.

    Attributes:
        parts: In the order of θ's sites; sites said to be "full" share one block.
        known: What has been found out about factors, by their identity.
    """

    parts: tuple[Part, ...]
    known: dict[int, Any] = field(default_factory=dict, repr=False)
    sites_in_field: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """``product(w: full, sigma: gamma)``."""
        return f"product({', '.join(f'{n}: {p.family.name}' for p in self.parts for n in p.names)})"

    @property
    def size(self) -> int:
        """N."""
        return sum(len(p.where) for p in self.parts)

    def part_of(self, name: str) -> Part:
        """The part that holds a site."""
        return next(p for p in self.parts if name in p.names)

    def split(self, blocks: Sequence[Any]) -> list[Any]:
        """Prior blocks of one part each: of one that spans several each part has its marginal."""
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

    # ------------------------------------------------------------------------------------------ beliefs

    def start(self, blocks: Sequence[Any], size: int, dtype: Any) -> ProductBelief:
        """The belief of independent prior blocks, Gaussian and own-space ones."""
        held = []
        for part in self.parts:
            if part.gaussian:
                inside = np.full(size, -1)
                inside[part.where] = np.arange(len(part.where))
                own = [b._replace(where=inside[b.where]) for b in blocks if inside[b.where[0]] >= 0]
                held.append(part.family.start(own, len(part.where), dtype))
            else:
                natural = np.zeros((part.count, part.family.numbers))
                for b in blocks:
                    if b.where[0] in part.where:
                        natural[np.isin(part.places[:, 0], b.where)] = b.natural
                held.append(jnp.asarray(natural, dtype))
        return self.belief(held)

    def belief(self, held: Sequence[Any]) -> ProductBelief:
        """The belief of these parts, with the moments of its coordinates."""
        dtype = jax.tree.leaves(held)[0].dtype
        mean, scale = jnp.zeros(self.size, dtype), jnp.zeros(self.size, dtype)
        for part, now in zip(self.parts, held, strict=True):
            centre, sd = self.moments_of(part, now)
            if len(self.parts) == 1:
                return ProductBelief(centre, sd, tuple(held))
            mean, scale = mean.at[part.where].set(centre), scale.at[part.where].set(sd)
        return ProductBelief(mean, scale, tuple(held))

    @staticmethod
    def moments_of(part: Part, held: Any) -> tuple[jax.Array, jax.Array]:
        """Means and sds of a part's coordinates."""
        if part.gaussian:
            return held.mean, part.family.spread(held, len(part.where))
        mean, variance = part.family.moments(held)
        return mean.reshape(-1), jnp.sqrt(variance).reshape(-1)

    def blocks(self, belief: ProductBelief) -> list[Any]:
        """The belief as independent blocks: Gaussian (places, mean, root), own-space ones with their parameters."""
        out: list[Any] = []
        for part, held in zip(self.parts, belief.parts, strict=True):
            if part.gaussian:
                out += [(part.where[w], mean, root) for w, mean, root in part.family.blocks(held)]
            else:
                sd = np.asarray(belief.scale, float)[part.where]
                out.append((part.where, np.asarray(belief.mean, float)[part.where], sd, np.asarray(held, float)))
        return out

    def spread(self, belief: ProductBelief, size: int) -> jax.Array:
        """Sds of the coordinates ``(N,)``."""
        return belief.scale

    # ------------------------------------------------------------------------------------------ in a fold

    def rows_per_window(self, size: int, slots: int) -> int:
        """Row by row: the projection comes between rows."""
        return 1

    def width(self, size: int) -> int:
        """No padding."""
        return size

    def pad(self, belief: ProductBelief, width: int) -> ProductBelief:
        """As it is."""
        return belief

    def trim(self, belief: ProductBelief, size: int) -> ProductBelief:
        """As it is."""
        return belief

    def gaussian_size(self, size: int) -> int:
        """Those of the Gaussian blocks."""
        return int(self._gaussian.sum())

    def origin(self, mean: jax.Array) -> jax.Array:
        """Gaussian coordinates at their means, those of components at 0: a field there plus A s is exact to rounding.

        From the means it would be off by their rounding, and a likelihood may ask whether an indicator is 0.
        """
        return jnp.where(self._gaussian, mean, 0.0)

    @property
    def _gaussian(self) -> np.ndarray:
        out = np.zeros(self.size, bool)
        for part in self.parts:
            out[part.where] = part.gaussian
        return out

    def open(self, belief: Any, matrix: jax.Array, value: jax.Array, blocked: bool) -> Window:
        """Row by row."""
        return Window(belief, matrix, value, self.origin(belief.mean))

    def look(self, window: Window, slot: Any, size: int) -> tuple[jax.Array, jax.Array]:
        """The field ``(k,)`` at the belief's origin, and A ``(k, N)``: the components are looked at one by one."""
        rows, value = window.matrix, window.value
        if rows.shape[0] != size:
            rows, value = (jax.lax.dynamic_slice_in_dim(a, slot, size) for a in (rows, value))
            value = value + rows @ (self.origin(window.belief.mean) - window.start)
        return value, rows

    def close(self, window: Window) -> Any:
        """Nothing is pending."""
        return window.belief

    # ------------------------------------------------------------------------------------------ sites in θ

    def site_numbers(self, field_size: int, size: int) -> int:
        """All natural parameters."""
        return sum(p.numbers for p in self.parts)

    def _split(self, natural: jax.Array) -> list[jax.Array]:
        return jnp.split(natural, np.cumsum([p.numbers for p in self.parts])[:-1])

    def natural(self, belief: ProductBelief) -> jax.Array:
        """Natural parameters of all parts, one after the other."""
        return jnp.concatenate([_natural(p, held) for p, held in zip(self.parts, belief.parts, strict=True)])

    def from_natural(self, natural: jax.Array, size: int) -> tuple[ProductBelief, jax.Array]:
        """The belief, and whether all its parts are proper."""
        held, proper = [], jnp.ones((), bool)
        for part, own in zip(self.parts, self._split(natural), strict=True):
            now, fine = _from_natural(part, own)
            held.append(now)
            proper &= fine
        return self.belief(held), proper

    def share(self, belief: ProductBelief, site: jax.Array) -> jax.Array:
        """Shares of the belief's precisions and positive parameters that a site makes up, as bounds from above."""
        shares = []
        for part, held, own in zip(self.parts, belief.parts, self._split(site), strict=True):
            if not part.gaussian:
                if not isinstance(part.family, Finite):
                    shares.append(own / held.reshape(-1))
            elif isinstance(part.family, Full):
                _, precision = unpack(own, len(part.where))
                white = held.scale.T @ precision @ held.scale
                shares.append(jnp.sum(jnp.abs(white), -1))  # no eigenvalue exceeds the largest
            else:
                shares.append(part.family.share(held, own))
        return jnp.concatenate([jnp.zeros(1, site.dtype), *shares])

    def part(self, belief: ProductBelief, own: jax.Array) -> jax.Array:
        """A site that makes up these shares ``(N,)`` of what the belief has more than a flat density."""
        out = []
        for part, held in zip(self.parts, belief.parts, strict=True):
            mine = own[part.where]
            if not part.gaussian:
                flat = jnp.asarray(_flat(part.family), held.dtype)
                out.append(((held - flat) * mine.reshape(part.count, -1)[:, :1]).reshape(-1))
            elif isinstance(part.family, Full):
                slope, precision = unpack(_natural(part, held), len(part.where))
                root = jnp.sqrt(mine)
                out.append(pack(slope * mine, precision * root * root[:, None]))
            else:
                out.append(part.family.part(held, mine))
        return jnp.concatenate(out)

    def log_norm(self, belief: ProductBelief) -> jax.Array:
        """A sum over the parts."""
        total = jnp.zeros((), belief.mean.dtype)
        for part, held in zip(self.parts, belief.parts, strict=True):
            if not part.gaussian:
                total += jnp.sum(part.family.log_norm(held))
            elif isinstance(part.family, Full):
                white = jnp.linalg.solve(held.scale, held.mean)
                total += jnp.linalg.slogdet(held.scale)[1] + 0.5 * white @ white
            else:
                total += part.family.log_norm(held)
        return total

    def moved(self, before: ProductBelief, after: ProductBelief) -> jax.Array:
        """How far a belief has moved: Gaussian means in sds and sds relatively; other parameters relatively.

        Log odds count as they are, relatively beyond 1: the sd of a component that is all but certain is no unit.
        """
        steps = []
        for i, part in enumerate(self.parts):
            if isinstance(part.family, Finite):
                old, now = before.parts[i], after.parts[i]
                steps.append(jnp.max(jnp.abs(now - old) / (1.0 + jnp.abs(old))))
                continue
            if not part.gaussian:  # sds may be infinite
                old, now = before.parts[i], after.parts[i]
                steps.append(jnp.max(jnp.abs(now - old) / jnp.maximum(jnp.abs(old), float(jnp.finfo(old.dtype).tiny))))
                continue
            shift = jnp.abs(after.mean[part.where] - before.mean[part.where])
            sd, new = before.scale[part.where], after.scale[part.where]
            steps += [jnp.max(shift / jnp.minimum(sd, new)), jnp.max(jnp.abs(jnp.log(new / sd)))]
        return jnp.max(jnp.stack(steps))

    # ------------------------------------------------------------------------------------------ for the posterior

    def sample(self, rng_key: jax.Array, belief: ProductBelief, count: int) -> jax.Array:
        """Independent draws ``(count, N)`` of θ."""
        out = jnp.zeros((count, self.size), belief.mean.dtype)
        for i, (part, held) in enumerate(zip(self.parts, belief.parts, strict=True)):
            key = jax.random.fold_in(rng_key, i)
            if part.gaussian:
                noise = jax.random.normal(key, (count, len(part.where)), held.mean.dtype)
                drawn = held.mean + (noise @ held.scale.T if held.scale.ndim == 2 else noise * held.scale)
            else:
                drawn = part.family.sample(key, held, (count,)).reshape(count, -1)
            out = out.at[:, part.where].set(drawn)
        return out

    def log_prob(self, belief: ProductBelief, theta: jax.Array) -> jax.Array:
        """Log density ``(...)`` at θ ``(..., N)``."""
        total = jnp.zeros(theta.shape[:-1], theta.dtype)
        for part, held in zip(self.parts, belief.parts, strict=True):
            own = theta[..., part.where]
            if not part.gaussian:
                values = own.reshape((*own.shape[:-1], part.count, -1))
                total += jnp.sum(part.family.log_prob(held, values), -1)
                continue
            if held.scale.ndim == 2:
                white = jnp.linalg.solve(held.scale, (own - held.mean)[..., None])[..., 0]
                volume = jnp.linalg.slogdet(held.scale)[1]
            else:
                white = (own - held.mean) / held.scale
                volume = jnp.sum(jnp.log(jnp.broadcast_to(held.scale, held.mean.shape)))
            half = 0.5 * len(part.where) * np.log(2.0 * np.pi)
            total += -0.5 * jnp.sum(white**2, -1) - volume - half
        return total


def _flat(family: Exponential) -> np.ndarray:
    """Natural parameters of a flat density, proper or not."""
    if isinstance(family, Finite):
        return np.zeros(family.numbers)
    if isinstance(family, Beta | Dirichlet):
        return np.ones(family.numbers)
    return np.array([1.0 if isinstance(family, Gamma) else -1.0, 0.0])


def _natural(part: Part, held: Any) -> jax.Array:
    if not part.gaussian:
        return held.reshape(-1)
    if not isinstance(part.family, Full):
        return part.family.natural(held)
    inverse = jnp.linalg.inv(held.scale)
    precision = inverse.T @ inverse
    return pack(precision @ held.mean, precision)


def _from_natural(part: Part, natural: jax.Array) -> tuple[Any, jax.Array]:
    if not part.gaussian:
        held = natural.reshape(part.count, -1)
        return held, jnp.all(part.family.proper(held))
    size = len(part.where)
    if not isinstance(part.family, Full):
        return part.family.from_natural(natural, size)
    slope, precision = unpack(natural, size)
    lower = jnp.linalg.cholesky(precision)
    root = jax.scipy.linalg.solve_triangular(lower, jnp.eye(size, dtype=lower.dtype), lower=True).T
    return Belief(root @ (root.T @ slope), root), jnp.all(jnp.isfinite(root))


@dataclass(frozen=True)
class ByLatent:
    """What a user asks for: a family for some sites, by name; the others are Gaussian, or follow from their support.

    Attributes:
        given: Pairs of site and family.
    """

    given: tuple[tuple[str, str], ...]
    sites_in_field: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """``by site (w: full, sigma: gamma)``."""
        return f"by site ({', '.join(f'{site}: {family}' for site, family in self.given)})"


def asked_family(family: Any) -> Any:
    """A family by its name, families by site, or a family as it is."""
    if not isinstance(family, Mapping):
        return family if isinstance(family, ByLatent) else family_named(family)
    named = []
    for site, own in family.items():
        name = own if isinstance(own, str) else getattr(own, "name", repr(own))
        if name not in LATENT_FAMILIES and name not in _ALIASES:
            raise ValueError(f"family gives site {site!r} {name!r}; it may be one of {sorted(LATENT_FAMILIES)}.")
        named.append((site, name))
    return ByLatent(tuple(named))


def latent_family(name: str, size: int, values: tuple[float, ...] | None) -> Exponential | Full | Diagonal | Spherical:
    """The family with this name for a site.

    Args:
        name: One of ``LATENT_FAMILIES``.
        size: Length of the site's event, for "dirichlet".
        values: Of a discrete site.
    """
    name = _ALIASES.get(name, name)
    if name in _GAUSSIAN:
        return _GAUSSIAN[name]
    if name == "dirichlet":
        return Dirichlet(size)
    if name in ("bernoulli", "categorical"):
        assert values is not None
        return Finite(values)
    return _PARTS[name]
