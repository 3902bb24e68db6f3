"""Dynamics: how θ, and with it the belief, changes between rows.

θ may stay the same, take random steps, be forgotten gradually, or return to its prior.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from adfpp.engine.families import Belief, Gaussian


class Places(NamedTuple):
    """The place of one latent in θ: its name, its slice of θ, the shape of its unconstrained value."""

    name: str
    where: slice
    shape: tuple[int, ...]


class Transition(NamedTuple):
    """A move as a linear map with noise, ``θ⁺ = shift + factor θ + noise w``, w ~ N(0, I).

    Attributes:
        factor: ``()`` the factor of θ.
        shift: ``(N,)`` the shift.
        noise: ``(N, N)`` a root R of the noise's covariance R Rᵀ.
    """

    factor: jax.Array
    shift: jax.Array
    noise: jax.Array


Setup: TypeAlias = Any  # the arrays that a kind of dynamics needs, in a structure of its own


class Dynamics(Protocol):
    """Moves a belief over a gap of time. Gaps add up: moving twice by 1 is moving once by 2."""

    def setup(self, family: Gaussian, places: Sequence[Places], prior: Belief) -> Setup:
        """Computes, once from the prior, the arrays that ``move`` needs. They are stored in the state."""
        ...

    def move(self, family: Gaussian, belief: Belief, setup: Setup, gap: jax.Array) -> Belief:
        """Returns the belief after ``gap`` units of time."""
        ...

    def transition(self, belief: Belief, setup: Setup, gap: jax.Array) -> Transition:
        """Returns the move of θ itself, for a belief of the full family. Only smoothing needs it."""
        ...


@dataclass(frozen=True)
class Static:
    """θ does not change."""

    def setup(self, family: Gaussian, places: Sequence[Places], prior: Belief) -> tuple[()]:
        """Returns no arrays, because ``move`` needs none."""
        return ()

    def move(self, family: Gaussian, belief: Belief, setup: tuple[()], gap: jax.Array) -> Belief:
        """Returns the same belief."""
        return belief

    def transition(self, belief: Belief, setup: tuple[()], gap: jax.Array) -> Transition:
        """Returns the identity without noise."""
        return Transition(jnp.ones_like(gap), jnp.zeros_like(belief.mean), jnp.zeros_like(belief.scale))


@dataclass(frozen=True, eq=False)
class RandomWalk:
    """θ takes independent Gaussian steps. The covariance C of the belief becomes C + gap·Q.

    Attributes:
        variance: The covariance Q of the steps in one unit of time, in unconstrained space. It is a number (times I), a
            dict ``{latent: number or array of the latent's shape}`` (other latents do not move), or an ``(N, N)``
            covariance matrix.
    """

    variance: float | Mapping[str, ArrayLike] | np.ndarray

    def setup(self, family: Gaussian, places: Sequence[Places], prior: Belief) -> jax.Array:
        """Computes a root of Q."""
        size = prior.mean.shape[0]
        if isinstance(self.variance, Mapping):
            unknown = set(self.variance) - {p.name for p in places}
            if unknown:
                known = [p.name for p in places]
                raise ValueError(f"RandomWalk names latents {sorted(unknown)}; the model has {known}.")
            root = np.zeros(size)
            for p in places:
                q = np.broadcast_to(np.asarray(self.variance.get(p.name, 0.0), float), p.shape)
                root[p.where] = np.sqrt(_proper(q, f"of latent {p.name!r}")).reshape(-1)
        elif np.ndim(self.variance) == 2:
            q = np.asarray(self.variance, float)
            if q.shape != (size, size) or not np.allclose(q, q.T):
                raise ValueError(f"RandomWalk's matrix must be symmetric and ({size}, {size}); its shape is {q.shape}.")
            values, vectors = np.linalg.eigh(q)
            if values.min() < -1e-10 * max(values.max(), 0.0):
                raise ValueError("RandomWalk's matrix has negative eigenvalues; it must be a covariance.")
            root = vectors * np.sqrt(np.maximum(values, 0.0))
        else:
            root = np.full(size, math.sqrt(float(_proper(np.asarray(self.variance, float), ""))))
        return jnp.asarray(family.noise(root, prior.mean.dtype))

    def move(self, family: Gaussian, belief: Belief, setup: jax.Array, gap: jax.Array) -> Belief:
        """Adds the covariance of the steps to that of the belief."""
        return family.widen(belief, jnp.ones_like(gap), jnp.sqrt(gap) * setup)

    def transition(self, belief: Belief, setup: jax.Array, gap: jax.Array) -> Transition:
        """Returns the identity with noise of covariance gap·Q."""
        return Transition(jnp.ones_like(gap), jnp.zeros_like(belief.mean), jnp.sqrt(gap) * setup)


def _proper(q: np.ndarray, what: str) -> np.ndarray:
    if not np.isfinite(q).all() or (q < 0).any():
        raise ValueError(f"RandomWalk's variance {what} must be finite and not negative; it is {q}.")
    return q


@dataclass(frozen=True)
class Discount:
    """Old rows count less: the covariance C of the belief becomes C / forgetting^gap.

    For a Gaussian likelihood this is recursive least squares with forgetting.

    Attributes:
        forgetting: The weight of a row after one unit of time, in (0, 1].
    """

    forgetting: float

    def __post_init__(self) -> None:
        """Checks the range of the option."""
        if not 0.0 < self.forgetting <= 1.0:
            raise ValueError(f"Discount needs 0 < forgetting <= 1; it is {self.forgetting}.")

    def setup(self, family: Gaussian, places: Sequence[Places], prior: Belief) -> tuple[()]:
        """Returns no arrays, because ``move`` needs none."""
        return ()

    def move(self, family: Gaussian, belief: Belief, setup: tuple[()], gap: jax.Array) -> Belief:
        """Divides the covariance by forgetting^gap."""
        return belief._replace(scale=belief.scale * jnp.exp(-0.5 * math.log(self.forgetting) * gap))

    def transition(self, belief: Belief, setup: tuple[()], gap: jax.Array) -> Transition:
        """Returns the identity with noise of covariance (forgetting^-gap - 1) C, with C that of the belief."""
        noise = jnp.sqrt(jnp.expm1(-math.log(self.forgetting) * gap)) * belief.scale
        return Transition(jnp.ones_like(gap), jnp.zeros_like(belief.mean), noise)


@dataclass(frozen=True)
class OrnsteinUhlenbeck:
    """θ returns to its prior.

    With φ = exp(-gap / timescale), the mean m becomes m₀ + φ(m - m₀), and the covariance C becomes φ²C + (1 - φ²)C₀,
    where m₀ and C₀ are those of the prior.

    Attributes:
        timescale: The time after which the deviation from the prior has decreased by a factor e; positive.
    """

    timescale: float

    def __post_init__(self) -> None:
        """Checks the range of the option."""
        if not self.timescale > 0.0:
            raise ValueError(f"OrnsteinUhlenbeck needs timescale > 0; it is {self.timescale}.")

    def setup(self, family: Gaussian, places: Sequence[Places], prior: Belief) -> Belief:
        """Returns the prior."""
        return prior

    def move(self, family: Gaussian, belief: Belief, setup: Belief, gap: jax.Array) -> Belief:
        """Moves the mean and the covariance towards those of the prior."""
        kept, noise = self._fading(setup, gap)
        faded = family.widen(belief, kept, noise)
        return faded._replace(mean=setup.mean + kept * (belief.mean - setup.mean))

    def transition(self, belief: Belief, setup: Belief, gap: jax.Array) -> Transition:
        """Returns the move towards m₀, with the noise under which the prior stays the same."""
        kept, noise = self._fading(setup, gap)
        return Transition(kept, -jnp.expm1(-gap / self.timescale) * setup.mean, noise)

    def _fading(self, setup: Belief, gap: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Computes φ, and a root of the noise's covariance in the shape that the family uses."""
        kept = jnp.exp(-gap / self.timescale)
        return kept, jnp.sqrt(-jnp.expm1(-2.0 * gap / self.timescale)) * setup.scale
