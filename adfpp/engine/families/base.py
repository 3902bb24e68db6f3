"""The protocol of families of approximate posteriors, which the kernel, the learners and the judges use.

A family is a frozen class without state. It defines how a belief is made from a prior, the cavity distribution of a
factor, the change of the belief and of the factor's site that follows from tilted moments, and the marginals, draws and
densities of a belief. The code outside of this package works for every family.

There are two kinds. For the full Gaussian, the projection changes only the field of the factor. A site is then a
Gaussian in the field, and ``sites_in_field`` is true. For the other families, the projection also forgets correlations.
A site is then a vector of natural parameters of θ itself (``InTheta`` in ``in_theta.py``).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from typing_extensions import override

from adfpp.engine.factor import Factor, ReadyFactor
from adfpp.engine.tilt import Index, Message, Tilted

if TYPE_CHECKING:
    from adfpp.engine.families.product.product import ProductBelief


BeliefT = TypeVar("BeliefT", bound="Belief | ProductBelief")  # the class of a family's beliefs


class Belief(NamedTuple):
    """A Gaussian over θ.

    Attributes:
        mean: ``(N,)`` the mean.
        scale: A root of the covariance: ``(N, N)`` full, ``(N,)`` diagonal, ``()`` spherical.
    """

    mean: jax.Array
    scale: jax.Array


class Block(NamedTuple):
    """An independent block of the prior: Gaussian in unconstrained space, or of one latent in its native space.

    Attributes:
        where: Its places in θ ``(d,)``.
        mean: ``(d,)``.
        root: ``(d,)`` sds of independent elements, or a ``(d, d)`` root of the covariance.
        how: How it was computed, in words.
        natural: ``(n, numbers)`` of a latent in its native space: the natural parameters of its n components.
        log_mass: Log of the integral of the density that the block stands for: 0 unless terms of the prior, which need
            not be normalised, are part of it.
    """

    where: np.ndarray
    mean: np.ndarray
    root: np.ndarray
    how: str
    natural: np.ndarray | None = None
    log_mass: float = 0.0


class Window(NamedTuple, Generic[BeliefT]):
    """A belief while a small number of rows is absorbed, slot by slot. A slot is one row of A.

    Attributes:
        belief: The current belief (row by row), or the belief before the window (blocked).
        matrix: ``(T, N)`` A of the fields, or A S when blocked.
        value: ``(T,)`` the fields at the mean when the window was opened.
        start: ``(N,)`` that mean; when blocked, it is the mean of the belief.
        directions: ``(T, N)`` blocked only: Q of the slots absorbed so far.
        weights: ``(T, T)`` blocked only: W, such that the current root is S (I + Uᵀ W U), with U the directions.
        steps: ``(T,)`` blocked only: y, such that the current mean is m + S Uᵀ y.
    """

    belief: BeliefT
    matrix: jax.Array
    value: jax.Array
    start: jax.Array
    directions: Any = ()
    weights: Any = ()
    steps: Any = ()


class Exchange(NamedTuple):
    """How site approximations are exchanged for new ones.

    Attributes:
        power: ``()`` the power of a factor that is multiplied in at a time.
        damping: ``()`` the fraction of the step that is applied, in (0, 1].
    """

    power: jax.Array
    damping: jax.Array


class Outside(NamedTuple):
    """The cavity distribution of one factor: the belief without (a fraction of) the factor's site.

    Attributes:
        mean: ``(k,)`` mean of the field.
        scale: ``(k, k)`` lower triangular root of the field's covariance.
        power: The power of the factor in the tilted distribution; None for the factor itself.
        finite: ``()`` whether the numbers of the field are finite.
        whole: ``()`` whether the requested fraction of the site could be removed.
        own: Other values that the family needs for the next steps.
    """

    mean: jax.Array
    scale: jax.Array
    power: jax.Array | None
    finite: jax.Array
    whole: jax.Array
    own: Any


class Answer(NamedTuple):
    """The tilted distribution of one factor.

    Attributes:
        tilted: The moments of its field, or the message where the rule gives one.
        saturated: ``()`` whether a probability was limited to the dtype's largest certainty; None if the family has no
            probabilities.
        own: Other values that the family needs for the projection.
    """

    tilted: Tilted | Message
    saturated: jax.Array | None = None
    own: Any = None


class Update(NamedTuple):
    """The proposed change by one factor.

    Attributes:
        site: The factor's site after the visit; None for a factor that has no site.
        evidence: ``()`` the factor's contribution to the log evidence; None for a factor that has no site.
        clamped: ``()`` whether the site's precision was set to 0, because it was negative by no more than its error.
        proper: ``()`` whether cavity and projection are proper.
        own: The change of the belief, in the form that the family uses.
    """

    site: jax.Array | None
    evidence: jax.Array | None
    clamped: jax.Array
    proper: jax.Array
    own: Any


class Family(ABC, Generic[BeliefT]):
    """A family of approximate posteriors: a frozen dataclass of settings, without arrays and without state."""

    sites_in_field: ClassVar[bool]
    gaussian: ClassVar[bool] = False  # whether the belief is one Gaussian over the unconstrained θ

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the family for users."""

    # ---------------------------------------------------------------------------------- from the prior, and back

    def split(self, blocks: Sequence[Block]) -> list[Block]:
        """Splits the prior's independent blocks where the family splits θ into parts."""
        return list(blocks)

    @abstractmethod
    def start(self, blocks: Sequence[Block], size: int, dtype: DTypeLike) -> BeliefT:
        """Makes the belief that matches independent prior blocks."""

    @abstractmethod
    def blocks(self, belief: BeliefT) -> list[tuple[np.ndarray, ...]]:
        """Returns the belief as independent blocks: (places, mean, root), and natural parameters if not Gaussian."""

    # ---------------------------------------------------------------------------------- rows in a window

    def rows_per_window(self, size: int, slots: int) -> int:
        """The best number of rows in a window. It is 1 for families that project after each row."""
        return 1

    def width(self, size: int) -> int:
        """Length to which θ is padded with zeros while rows are absorbed one by one, to fill whole vector registers."""
        return size

    def pad(self, belief: BeliefT, width: int) -> BeliefT:
        """Pads the belief to this length."""
        return belief

    def trim(self, belief: BeliefT, size: int) -> BeliefT:
        """Removes the padding of the belief."""
        return belief

    def origin(self, mean: jax.Array) -> jax.Array:
        """The θ at which h of the fields is computed: the mean, unless a family needs exact values at another θ."""
        return mean

    def open(self, belief: BeliefT, matrix: jax.Array, value: jax.Array, blocked: bool) -> Window[BeliefT]:
        """Opens a window on the fields of some rows: ``matrix (T, N)``, ``value (T,)`` at the belief's origin."""
        return Window(belief, matrix, value, self.origin(belief.mean))

    def close(self, window: Window[BeliefT]) -> BeliefT:
        """Returns the belief after all rows of the window."""
        return window.belief

    # ---------------------------------------------------------------------------------- one factor

    def draws(self, factor: Factor) -> bool:
        """Whether the tilted moments of a factor are computed from random points."""
        return factor.draws

    def error_limit(self, factor: Factor, dtype: DTypeLike) -> float | None:
        """The estimated error above which a row is marked as inaccurate; None for exact moments."""
        return factor.rule.reported(dtype, factor.field_size)

    @abstractmethod
    def cavity(
        self, window: Window[BeliefT], slot: Index, factor: Factor, site: jax.Array | None, exchange: Exchange | None
    ) -> Outside:
        """Computes the cavity distribution of a factor; without a site it is the belief."""

    def tilt(self, outside: Outside, factor: Factor, ready: ReadyFactor, element: Index) -> Answer:
        """Computes the tilted distribution of one element of a factor group."""
        return Answer(ready.tilt(element, outside.mean, outside.scale, outside.power))

    @abstractmethod
    def exchange(
        self,
        outside: Outside,
        answer: Answer,
        factor: Factor,
        site: jax.Array | None,
        exchange: Exchange | None,
    ) -> Update:
        """Projects the tilted distribution, and computes the new site if the factor has a site."""

    @abstractmethod
    def accept(self, window: Window[BeliefT], slot: Index, update: Update, accepted: jax.Array) -> Window[BeliefT]:
        """Applies an update if it is accepted; otherwise the window stays the same bit for bit."""

    def initial_damping(self, factors: Sequence[Factor]) -> float:
        """The damping of the first sequential sweep."""
        return 1.0

    # ---------------------------------------------------------------------------------- natural parameters

    @abstractmethod
    def site_numbers(self, field_size: int, size: int) -> int:
        """The number of numbers in the site of a factor."""

    @abstractmethod
    def natural(self, belief: BeliefT) -> jax.Array:
        """Returns the natural parameters in one vector; for a Gaussian these are slope and precision."""

    @abstractmethod
    def from_natural(self, natural: jax.Array, size: int) -> tuple[BeliefT, jax.Array]:
        """Returns the belief with these natural parameters, and whether it is proper."""

    @abstractmethod
    def log_norm(self, belief: BeliefT) -> jax.Array:
        """Log of the integral of ``exp(natural · T)``, without the terms ½ log 2π of Gaussian numbers."""

    @abstractmethod
    def gaussian_size(self, size: int) -> int:
        """The number of Gaussian numbers in θ: for each of them ``log_norm`` omits ½ log 2π."""

    # ---------------------------------------------------------------------------------- properties of a belief

    @abstractmethod
    def spread(self, belief: BeliefT, size: int) -> jax.Array:
        """Marginal standard deviations ``(N,)``."""

    @abstractmethod
    def distance(self, before: BeliefT, after: BeliefT) -> jax.Array:
        """How far a belief has moved: an upper bound of the moves of means (in sds) and of sds (relatively)."""

    @abstractmethod
    def sample(self, rng_key: jax.Array, belief: BeliefT, count: int) -> jax.Array:
        """Draws ``count`` independent samples ``(count, N)`` of θ."""

    @abstractmethod
    def log_prob(self, belief: BeliefT, theta: jax.Array) -> jax.Array:
        """Log density ``(...)`` at θ ``(..., N)``."""

    def family_of(self, latent: str) -> str:
        """The name of the family that stores a latent."""
        return self.name

    def describe(self, factor: Factor) -> tuple[str, str]:
        """Describes the rule that computes a factor's moments under this family, and the reason for it."""
        return type(factor.rule).__name__, factor.why


class Gaussian(Family[Belief]):
    """A family of Gaussians over the unconstrained θ."""

    gaussian: ClassVar[bool] = True

    @abstractmethod
    def look(self, window: Window[Belief], slot: Index, size: int) -> tuple[jax.Array, jax.Array]:
        """The field at slots [slot, slot + size) under the window's belief: mean ``(k,)`` and F = A S ``(k, N)``."""

    @abstractmethod
    def absorb(
        self, window: Window[Belief], slot: Index, q: jax.Array, shift: jax.Array, root: jax.Array
    ) -> Window[Belief]:
        """Absorbs tilted moments: directions ``q (k, N)``, ``shift (k,)``, ``root (k, k)``."""

    @abstractmethod
    def share(self, belief: Belief, site: jax.Array) -> jax.Array:
        """The share ``(N,)`` of a site in θ in each of the belief's precisions, or upper bounds of the shares."""

    @abstractmethod
    def first_site(self, belief: Belief, shares: jax.Array) -> jax.Array:
        """Makes a site in θ that has these shares ``(N,)`` of the belief."""

    @abstractmethod
    def prior_log_norm(self, belief: Belief, blocks: Sequence[Block], covered: np.ndarray) -> float:
        """Log of the integral of the prior's blocks, which cover these coordinates, as unnormalised Gaussians."""

    @abstractmethod
    def widen(self, belief: Belief, factor: jax.Array, noise: jax.Array) -> Belief:
        """Multiplies the covariance by factor², and adds noise noiseᵀ (noise has the family's shape of a root)."""

    @abstractmethod
    def noise(self, root: np.ndarray, dtype: DTypeLike) -> np.ndarray:
        """Projects a noise root ``(N,)`` or ``(N, N)`` to the shape of root that the family uses."""

    @override
    def gaussian_size(self, size: int) -> int:
        return size

    @override
    def sample(self, rng_key: jax.Array, belief: Belief, count: int) -> jax.Array:
        noise = jax.random.normal(rng_key, (count, belief.mean.shape[0]), belief.mean.dtype)
        return belief.mean + (noise @ belief.scale.T if belief.scale.ndim == 2 else noise * belief.scale)

    @override
    def log_prob(self, belief: Belief, theta: jax.Array) -> jax.Array:
        size = belief.mean.shape[0]
        if belief.scale.ndim == 2:
            white = jnp.linalg.solve(belief.scale, (theta - belief.mean)[..., None])[..., 0]
            volume = jnp.linalg.slogdet(belief.scale)[1]
        else:
            white = (theta - belief.mean) / belief.scale
            volume = jnp.sum(jnp.log(jnp.broadcast_to(belief.scale, belief.mean.shape)))
        return -0.5 * jnp.sum(white**2, -1) - volume - 0.5 * size * math.log(2.0 * math.pi)


def combine(
    family: Family[BeliefT], prior: BeliefT, posteriors: Sequence[BeliefT], size: int
) -> tuple[BeliefT, jax.Array]:
    """Combines several posteriors that were learned from the same prior and different rows.

    Their changes of natural parameters since the prior are added. The result is exact where each posterior is.

    Returns:
        The belief, and whether it is proper.
    """
    base = family.natural(prior)
    return family.from_natural(base + sum(family.natural(p) - base for p in posteriors), size)


def slots_of(array: jax.Array, slot: Index, size: int) -> jax.Array:
    """Returns the rows [slot, slot + size) of an array."""
    if array.shape[0] == size:
        return array
    return jax.lax.dynamic_slice_in_dim(array, slot, size)


def mean_of_blocks(blocks: Sequence[Block], size: int) -> np.ndarray:
    """The mean ``(N,)`` of independent prior blocks."""
    mean = np.zeros(size)
    for block in blocks:
        mean[block.where] = block.mean
    return mean


def variances_of_blocks(blocks: Sequence[Block], size: int) -> np.ndarray:
    """The marginal variances ``(N,)`` of independent prior blocks."""
    variances = np.zeros(size)
    for block in blocks:
        variances[block.where] = block.root**2 if block.root.ndim == 1 else (block.root**2).sum(1)
    return variances


def field_of(window: Window[Belief], slot: Index, size: int) -> tuple[jax.Array, jax.Array]:
    """A and mean of the field at a slot, while rows are absorbed one by one."""
    rows = slots_of(window.matrix, slot, size)
    if window.matrix.shape[0] == size:  # it is the only factor of its row, so the belief has not moved
        return rows, window.value
    return rows, slots_of(window.value, slot, size) + rows @ (window.belief.mean - window.start)


def diagonal_of_bracket(q: jax.Array, root: jax.Array) -> jax.Array:
    """The diagonal ``(N,)`` of I + Qᵀ (M - I) Q, as the sum of I - Qᵀ Q and Qᵀ M Q, of which neither is negative."""
    share = jnp.sum(q * q, 0)
    outside = jnp.maximum(1.0 - share, 0.0)
    if root.shape[0] == 1:
        # The shares add up to 1: if one is near 1, the sum of the others is accurate, and its difference from 1 is not.
        others = jax.lax.cond(
            narrows(root), lambda: jnp.sum(jnp.where(share > 0.5, 0.0, share)), lambda: 0.0 * root[0, 0]
        )
        outside = jnp.where(narrows(root) & (share > 0.5), others, outside)
    turned = root.T @ q
    return outside + jnp.sum(turned * turned, 0)


def narrows(root: jax.Array) -> jax.Array:
    """Whether a factor narrows its field by so much that rounding errors and underflow have to be looked for."""
    return jnp.any(jnp.sum(root * root, 0) < 0.01)


def expressible(scale: jax.Array, root: jax.Array) -> jax.Array:
    """Whether a root of the belief can express a factor's narrowing: the dtype does not lose it, and no sd becomes 0.

    Args:
        scale: ``(k, k)`` lower triangular root of the field's covariance.
        root: ``(k, k)`` root of the covariance in the whitened field after the change.
    """
    tiny, least = float(jnp.finfo(root.dtype).tiny), 2.0 * float(jnp.finfo(root.dtype).eps)
    before, after = jnp.max(jnp.abs(scale), -1), jnp.max(jnp.abs(scale @ root), -1)
    # the change is stored as root - I, which loses a root below eps
    return jnp.all(jnp.sum(root * root, 0) > least * least) & jnp.all((after > tiny) | (before <= tiny))
