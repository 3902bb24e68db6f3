"""What a family of approximate posteriors has to know: the protocol that the kernel, the learners and judges use.

A family is a frozen class without state. It says how a belief starts from a prior, what the cavity distribution of a
factor is, what a factor's tilted moments make of the belief and of the factor's site, and what the belief's marginals,
draws and densities are. Nothing outside of this package asks which family it has.

There are two kinds. Where the projection changes nothing but the field (the full Gaussian), a site is a Gaussian in the
field: ``sites_in_field`` is true. Where the projection also forgets correlations, a site is a vector of natural
parameters of θ itself (``InTheta`` in ``in_theta.py``).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from adfpp.engine.factor import Factor, ReadyFactor
from adfpp.engine.tilt import Message, Tilted


class Belief(NamedTuple):
    """A Gaussian over θ.

    Attributes:
        mean: ``(N,)``.
        scale: A root of the covariance: ``(N, N)`` full, ``(N,)`` diagonal, ``()`` spherical.
    """

    mean: jax.Array
    scale: jax.Array


class Window(NamedTuple):
    """A belief while a few rows are absorbed, slot by slot; a slot is one row of A.

    Attributes:
        belief: The current one (row by row), or the one from before the window (blocked).
        matrix: ``(T, N)``: the fields' A, or A S when blocked.
        value: ``(T,)``: the fields at the mean when the window was opened.
        start: ``(N,)`` that mean; blocked it is the belief's.
        directions: ``(T, N)`` blocked only: Q of the slots absorbed so far.
        weights: ``(T, T)`` blocked only: W, such that the root is now S (I + Uᵀ W U), U the directions.
        steps: ``(T,)`` blocked only: y, such that the mean is now m + S Uᵀ y.
    """

    belief: Any
    matrix: jax.Array
    value: jax.Array
    start: jax.Array
    directions: Any = ()
    weights: Any = ()
    steps: Any = ()


class Exchange(NamedTuple):
    """How site approximations are exchanged for new ones.

    Attributes:
        power: ``()`` the fraction of a factor that is tilted with at a time.
        damping: ``()`` the fraction of the step that is applied, in (0, 1].
    """

    power: jax.Array
    damping: jax.Array


class Outside(NamedTuple):
    """The cavity distribution of one factor: the belief without (a fraction of) the factor's site.

    Attributes:
        mean: ``(k,)`` of the field.
        scale: ``(k, k)`` lower triangular root of the field's covariance.
        power: What the factor is raised to in the tilted distribution; None for the factor as it is.
        finite: ``()`` whether the numbers of the field are finite.
        whole: ``()`` whether all of the site could be removed that was asked for.
        own: What else the family needs to go on from here.
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
        saturated: ``()`` whether a probability was limited to the dtype's largest certainty; None where there is none.
        own: What else the family needs to project.
    """

    tilted: Tilted | Message
    saturated: jax.Array | None = None
    own: Any = None


class Update(NamedTuple):
    """What one factor would change.

    Attributes:
        site: The factor's site after the visit; None for a factor that has no site.
        evidence: ``()`` what the factor adds to the log evidence; None for a factor that has no site.
        clamped: ``()`` whether the site's precision was set to 0, being negative by no more than its error.
        proper: ``()`` whether cavity and projection are proper.
        own: What the family applies to its belief.
    """

    site: jax.Array | None
    evidence: jax.Array | None
    clamped: jax.Array
    proper: jax.Array
    own: Any


class Family(ABC):
    """A family of approximate posteriors: a frozen dataclass of settings, without arrays and without state."""

    sites_in_field: ClassVar[bool]
    gaussian: ClassVar[bool] = False  # whether the belief is one Gaussian over the unconstrained θ

    @property
    @abstractmethod
    def name(self) -> str:
        """What users call the family."""

    # ---------------------------------------------------------------------------------- from the prior, and back

    def split(self, blocks: Sequence[Any]) -> list[Any]:
        """The prior's independent blocks, cut where the family cuts θ into parts."""
        return list(blocks)

    @abstractmethod
    def start(self, blocks: Sequence[Any], size: int, dtype: Any) -> Any:
        """The belief that matches independent prior blocks."""

    @abstractmethod
    def blocks(self, belief: Any) -> list[Any]:
        """The belief as independent blocks: (places, mean, root), and natural parameters if it is not Gaussian."""

    # ---------------------------------------------------------------------------------- rows in a window

    def rows_per_window(self, size: int, slots: int) -> int:
        """How many rows are worth one window. More than one only where rows can be absorbed before the projection."""
        return 1

    def width(self, size: int) -> int:
        """Length to which θ is padded with zeros while rows are absorbed one by one, for even vector registers."""
        return size

    def pad(self, belief: Any, width: int) -> Any:
        """The belief padded to this length."""
        return belief

    def trim(self, belief: Any, size: int) -> Any:
        """The belief without its padding."""
        return belief

    def origin(self, mean: jax.Array) -> jax.Array:
        """The θ at which fields are expanded: the mean, unless a family needs exact values elsewhere."""
        return mean

    def open(self, belief: Any, matrix: jax.Array, value: jax.Array, blocked: bool) -> Window:
        """Opens a window on the fields of some rows: ``matrix (T, N)``, ``value (T,)`` at the belief's origin."""
        return Window(belief, matrix, value, self.origin(belief.mean))

    def close(self, window: Window) -> Any:
        """The belief with everything in the window absorbed."""
        return window.belief

    # ---------------------------------------------------------------------------------- one factor

    def draws(self, factor: Factor) -> bool:
        """Whether the tilted moments of a factor are made of random points."""
        return factor.draws

    def error_limit(self, factor: Factor, dtype: Any) -> float | None:
        """The estimated error above which a row is marked as inaccurate; None for exact moments."""
        return factor.rule.reported(dtype, factor.field_size)

    @abstractmethod
    def cavity(
        self, window: Window, slot: Any, factor: Factor, site: jax.Array | None, exchange: Exchange | None
    ) -> Outside:
        """The cavity distribution of a factor; without a site it is the belief."""

    def tilt(self, outside: Outside, factor: Factor, ready: ReadyFactor, element: Any) -> Answer:
        """The tilted distribution of one element of a factor group."""
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
        """The projection, and with a site the site that takes the place of the old one."""

    @abstractmethod
    def accept(self, window: Window, slot: Any, update: Update, accepted: jax.Array) -> Window:
        """Applies an update where it is accepted; otherwise the window stays the same bit for bit."""

    def initial_damping(self, factors: Sequence[Factor]) -> float:
        """The damping with which sweeps in sequence begin."""
        return 1.0

    # ---------------------------------------------------------------------------------- natural parameters

    @abstractmethod
    def site_numbers(self, field_size: int, size: int) -> int:
        """Numbers that the site of a factor holds."""

    @abstractmethod
    def natural(self, belief: Any) -> jax.Array:
        """Natural parameters in one vector; of a Gaussian slope and precision."""

    @abstractmethod
    def from_natural(self, natural: jax.Array, size: int) -> tuple[Any, jax.Array]:
        """The belief with these natural parameters, and whether it is proper."""

    @abstractmethod
    def log_norm(self, belief: Any) -> jax.Array:
        """Log of the integral of ``exp(natural · T)``, without its multiple of log 2π."""

    @abstractmethod
    def gaussian_size(self, size: int) -> int:
        """How many of the numbers are Gaussian: half as many multiples of log 2π are left out of ``log_norm``."""

    # ---------------------------------------------------------------------------------- what others ask of a belief

    @abstractmethod
    def spread(self, belief: Any, size: int) -> jax.Array:
        """Marginal standard deviations ``(N,)``."""

    @abstractmethod
    def distance(self, before: Any, after: Any) -> jax.Array:
        """How far a belief has moved: no direction's mean by more standard deviations, no spread by more relatively."""

    @abstractmethod
    def sample(self, rng_key: jax.Array, belief: Any, count: int) -> jax.Array:
        """Independent draws ``(count, N)`` of θ."""

    @abstractmethod
    def log_prob(self, belief: Any, theta: jax.Array) -> jax.Array:
        """Log density ``(...)`` at θ ``(..., N)``."""

    def family_of(self, latent: str) -> str:
        """Name of the family that holds a latent."""
        return self.name

    def describe(self, factor: Factor) -> tuple[str, str]:
        """The rule that computes a factor's moments under this family, and the reason for it, in words."""
        return type(factor.rule).__name__, factor.why


class Gaussian(Family):
    """A family of Gaussians over the unconstrained θ."""

    gaussian: ClassVar[bool] = True

    @abstractmethod
    def look(self, window: Window, slot: Any, size: int) -> tuple[jax.Array, jax.Array]:
        """The field at slots [slot, slot + size) under the window's belief: mean ``(k,)`` and F = A S ``(k, N)``."""

    @abstractmethod
    def absorb(self, window: Window, slot: Any, q: jax.Array, shift: jax.Array, root: jax.Array) -> Window:
        """Absorbs tilted moments: directions ``q (k, N)``, ``shift (k,)``, ``root (k, k)``."""

    @abstractmethod
    def share(self, belief: Belief, site: jax.Array) -> jax.Array:
        """Shares ``(N,)`` of the belief's precisions that a site in θ makes up, or bounds of them from above."""

    @abstractmethod
    def first_site(self, belief: Belief, shares: jax.Array) -> jax.Array:
        """A site in θ that makes up these shares ``(N,)`` of the belief."""

    @abstractmethod
    def prior_log_norm(self, belief: Belief, blocks: Sequence[Any], covered: np.ndarray) -> float:
        """Log of the integral of the prior's blocks, which cover these coordinates, as unnormalised Gaussians."""

    @abstractmethod
    def widen(self, belief: Belief, factor: jax.Array, noise: jax.Array) -> Belief:
        """Covariance times factor², plus noise noiseᵀ (the noise in the family's own shape of root)."""

    @abstractmethod
    def noise(self, root: np.ndarray, dtype: Any) -> np.ndarray:
        """A noise root ``(N,)`` or ``(N, N)``, projected to the family's shape of root."""

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


def combine(family: Family, prior: Any, posteriors: Sequence[Any], size: int) -> tuple[Any, jax.Array]:
    """The belief that adds up what several posteriors have learned since the prior that they started from.

    Their changes of natural parameters add up. The result is exact where each posterior is.

    Returns:
        The belief, and whether it is proper.
    """
    base = family.natural(prior)
    return family.from_natural(base + sum(family.natural(p) - base for p in posteriors), size)


def slots_of(array: jax.Array, slot: Any, size: int) -> jax.Array:
    """The rows [slot, slot + size) of an array."""
    if array.shape[0] == size:
        return array
    return jax.lax.dynamic_slice_in_dim(array, slot, size)


def mean_of_blocks(blocks: Sequence[Any], size: int) -> np.ndarray:
    """``(N,)`` mean of independent prior blocks."""
    mean = np.zeros(size)
    for block in blocks:
        mean[block.where] = block.mean
    return mean


def variances_of_blocks(blocks: Sequence[Any], size: int) -> np.ndarray:
    """``(N,)`` marginal variances of independent prior blocks."""
    variances = np.zeros(size)
    for block in blocks:
        variances[block.where] = block.root**2 if block.root.ndim == 1 else (block.root**2).sum(1)
    return variances


def field_of(window: Window, slot: Any, size: int) -> tuple[jax.Array, jax.Array]:
    """A and mean of the field at a slot, while rows are absorbed one by one."""
    rows = slots_of(window.matrix, slot, size)
    if window.matrix.shape[0] == size:  # the only factor of its row: nothing has moved
        return rows, window.value
    return rows, slots_of(window.value, slot, size) + rows @ (window.belief.mean - window.start)


def diagonal_of_bracket(q: jax.Array, root: jax.Array) -> jax.Array:
    """Diagonal of I + Qᵀ (M - I) Q, ``(N,)``."""
    if root.shape[0] == 1:
        return 1.0 + (root[0, 0] ** 2 - 1.0) * q[0] * q[0]
    excess = root @ root.T - jnp.eye(root.shape[0], dtype=root.dtype)
    return 1.0 + jnp.sum(q * (excess @ q), 0)
