"""What happens to a belief between rows: nothing, diffusion, forgetting, or return to the prior."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.families import Belief, Gaussian


class Places(NamedTuple):
    """Where each latent site stands in θ: its name, its slice, the shape of its unconstrained value."""

    name: str
    where: slice
    shape: tuple[int, ...]


class Transition(NamedTuple):
    """A move as a linear map with noise, ``θ⁺ = shift + factor θ + noise w``, w ~ N(0, I).

    Attributes:
        factor: ``()``.
        shift: ``(N,)``.
        noise: ``(N, N)`` a root of the noise's covariance.
    """

    factor: jax.Array
    shift: jax.Array
    noise: jax.Array


class Dynamics(Protocol):
    """Moves a belief over a gap of time. Gaps add up: moving twice by 1 is moving once by 2."""

    def setup(self, family: Gaussian, places: Sequence[Places], prior: Belief) -> Any:
        """Arrays that ``move`` needs, made once from the prior and kept in the state."""
        ...

    def move(self, family: Gaussian, belief: Belief, setup: Any, gap: jax.Array) -> Belief:
        """The belief after ``gap`` units of time."""
        ...

    def transition(self, belief: Belief, setup: Any, gap: jax.Array) -> Transition:
        """How θ itself moves, for a belief of the full family: what smoothing asks."""
        ...


@dataclass(frozen=True)
class Static:
    """θ does not change."""

    def setup(self, family: Gaussian, places: Sequence[Places], prior: Belief) -> Any:
        """Nothing."""
        return ()

    def move(self, family: Gaussian, belief: Belief, setup: Any, gap: jax.Array) -> Belief:
        """As it was."""
        return belief

    def transition(self, belief: Belief, setup: Any, gap: jax.Array) -> Transition:
        """It stays put."""
        return Transition(jnp.ones_like(gap), jnp.zeros_like(belief.mean), jnp.zeros_like(belief.scale))


@dataclass(frozen=True, eq=False)
class RandomWalk:
    """θ takes independent Gaussian steps: C ← C + gap·Q.

    Attributes:
        variance: Q per unit of time, in unconstrained space: a number (times I), ``{site: number or array of the site's
            shape}`` (sites left out stay put), or an ``(N, N)`` covariance matrix.
    """

    variance: float | Mapping[str, Any] | np.ndarray

    def setup(self, family: Gaussian, places: Sequence[Places], prior: Belief) -> Any:
        """The root of Q."""
        size = prior.mean.shape[0]
        if isinstance(self.variance, Mapping):
            unknown = set(self.variance) - {p.name for p in places}
            if unknown:
                raise ValueError(f"RandomWalk names sites {sorted(unknown)}; the model has {[p.name for p in places]}.")
            root = np.zeros(size)
            for p in places:
                q = np.broadcast_to(np.asarray(self.variance.get(p.name, 0.0), float), p.shape)
                root[p.where] = np.sqrt(_proper(q, f"of site {p.name!r}")).reshape(-1)
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

    def move(self, family: Gaussian, belief: Belief, setup: Any, gap: jax.Array) -> Belief:
        """Diffuses."""
        return family.widen(belief, jnp.ones_like(gap), jnp.sqrt(gap) * setup)

    def transition(self, belief: Belief, setup: Any, gap: jax.Array) -> Transition:
        """Steps of covariance gap·Q."""
        return Transition(jnp.ones_like(gap), jnp.zeros_like(belief.mean), jnp.sqrt(gap) * setup)


def _proper(q: np.ndarray, what: str) -> np.ndarray:
    if not np.isfinite(q).all() or (q < 0).any():
        raise ValueError(f"RandomWalk's variance {what} must be finite and not negative; it is {q}.")
    return q


@dataclass(frozen=True)
class Discount:
    """Old rows count less: C ← C / forgetting^gap (recursive least squares with forgetting, for a Gaussian likelihood).

    Attributes:
        forgetting: In (0, 1]: the weight of a row one unit of time ago.
    """

    forgetting: float

    def __post_init__(self) -> None:
        """Checks the range."""
        if not 0.0 < self.forgetting <= 1.0:
            raise ValueError(f"Discount needs 0 < forgetting <= 1; it is {self.forgetting}.")

    def setup(self, family: Gaussian, places: Sequence[Places], prior: Belief) -> Any:
        """Nothing."""
        return ()

    def move(self, family: Gaussian, belief: Belief, setup: Any, gap: jax.Array) -> Belief:
        """Flattens."""
        return belief._replace(scale=belief.scale * jnp.exp(-0.5 * math.log(self.forgetting) * gap))

    def transition(self, belief: Belief, setup: Any, gap: jax.Array) -> Transition:
        """Steps in proportion to what is not known: their covariance is (forgetting^-gap - 1) C."""
        noise = jnp.sqrt(jnp.expm1(-math.log(self.forgetting) * gap)) * belief.scale
        return Transition(jnp.ones_like(gap), jnp.zeros_like(belief.mean), noise)


@dataclass(frozen=True)
class OrnsteinUhlenbeck:
    """θ returns to its prior: with φ = exp(-gap / timescale), m ← m₀ + φ(m - m₀), C ← φ²C + (1 - φ²)C₀.

    Attributes:
        timescale: Time over which what was learned fades, > 0.
    """

    timescale: float

    def __post_init__(self) -> None:
        """Checks the range."""
        if not self.timescale > 0.0:
            raise ValueError(f"OrnsteinUhlenbeck needs timescale > 0; it is {self.timescale}.")

    def setup(self, family: Gaussian, places: Sequence[Places], prior: Belief) -> Any:
        """The prior."""
        return prior

    def move(self, family: Gaussian, belief: Belief, setup: Any, gap: jax.Array) -> Belief:
        """Fades."""
        kept, noise = self._fading(setup, gap)
        faded = family.widen(belief, kept, noise)
        return faded._replace(mean=setup.mean + kept * (belief.mean - setup.mean))

    def transition(self, belief: Belief, setup: Any, gap: jax.Array) -> Transition:
        """Towards m₀, with as much noise as keeps the prior what it is."""
        kept, noise = self._fading(setup, gap)
        return Transition(kept, -jnp.expm1(-gap / self.timescale) * setup.mean, noise)

    def _fading(self, setup: Any, gap: jax.Array) -> tuple[jax.Array, jax.Array]:
        """φ, and the noise's root in the family's own shape."""
        kept = jnp.exp(-gap / self.timescale)
        return kept, jnp.sqrt(-jnp.expm1(-2.0 * gap / self.timescale)) * setup.scale
