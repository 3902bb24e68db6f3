"""Exponential families of one component of a latent, in the latent's native space.

A component has the density ``exp(η · T(s) - A(η))`` with respect to a base measure. The base measure is chosen so that
the natural parameters η are the textbook ones (a shape is a shape, not a shape minus one): very small ones keep their
relative precision. Every function is vectorised over leading axes: η is ``(..., numbers)``, s is ``(..., dim)``.

A projection often changes a belief by little. The families therefore compute changes without subtracting large numbers
that are nearly equal, so that float32 is enough: see ``gamma_functions`` and ``dirichlet_functions`` for the special
functions, and ``nodes`` for the quadratures.

To add a family, write a frozen dataclass with the abstract methods below in a module of its own, give it a name in
``families/named.py``, and name the supports that it fits in ``model/families.py``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from adfpp.engine.families.product.nodes import Nodes


class Exponential(ABC):
    """The protocol of a family of one component.

    The methods of the protocol that have a body are right for a continuous family whose natural parameters are
    positive.

    Attributes:
        name: The name that users give it.
        dim: Coordinates of a value.
        numbers: Number of natural parameters.
        axes: Continuous dimensions to integrate over; 0 for a finite support.
    """

    name: str
    dim: int
    numbers: int
    axes: int

    @property
    def levels(self) -> tuple[float, ...]:
        """The values of a finite support; empty if the family is continuous."""
        return ()

    @property
    @abstractmethod
    def flat(self) -> np.ndarray:
        """Natural parameters of the flat density with respect to ds, proper or not."""

    @abstractmethod
    def log_norm(self, eta: jax.Array) -> jax.Array:
        """The logarithm of the normalising constant A(η), ``(...)``."""

    @abstractmethod
    def stats(self, s: jax.Array) -> jax.Array:
        """The sufficient statistics T(s), ``(..., numbers)``."""

    @abstractmethod
    def expected(self, eta: jax.Array) -> jax.Array:
        """E[T(s)], ``(..., numbers)``: the gradient of A."""

    @abstractmethod
    def moments(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the coordinates, both ``(..., dim)``; inf where there is none."""

    @abstractmethod
    def shifted(self, eta: jax.Array, change: jax.Array) -> jax.Array:
        """The member whose expected statistics are those of η plus ``change (..., numbers)``.

        A change of exactly 0 gives η back bit for bit; one that no member has gives NaN.
        """

    @abstractmethod
    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """KL(η || other), ``(...)``."""

    @abstractmethod
    def log_prob(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """Log-density with respect to ds, or log-probability, ``(...)``."""

    @abstractmethod
    def sample(self, key: jax.Array, eta: jax.Array, shape: Sequence[int] = ()) -> jax.Array:
        """Draws inside the support, ``(*shape, ..., dim)``."""

    @abstractmethod
    def quantile(self, eta: np.ndarray, q: np.ndarray | float) -> np.ndarray:
        """Marginal quantiles, ``q.shape + (..., dim)``; computed by SciPy, outside of JAX."""

    @abstractmethod
    def nodes(self, eta: jax.Array, level: int = 0) -> Nodes:
        """A quadrature against the density of one component, η ``(numbers,)``; higher levels have fewer nodes."""

    @abstractmethod
    def interior(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Values ``(count, dim)`` well inside the support."""

    @abstractmethod
    def probes(self) -> np.ndarray:
        """Values ``(M, dim)`` over the middle of the support, enough of them to identify the natural parameters."""

    @abstractmethod
    def inside(self, values: np.ndarray, dtype: DTypeLike) -> np.ndarray:
        """Draws ``(..., dim)``, moved from the edge of the support, where rounding may put them, to its inside."""

    def points(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A few points that stand for a member in variational message passing.

        Returns:
            Weights ``(P,)``, and values ``(P, ..., dim)`` whose weighted statistics are E[T(s)]: the expectation of a
            function that is linear in T(s) is exact.
        """
        return self.points_of(self.expected(eta))

    def points_of(self, expected: jax.Array) -> tuple[jax.Array, jax.Array]:
        """As ``points``, from the expected statistics ``(..., numbers)``, and differentiable in them.

        The values need not lie in the support, and the statistics need not be those of a member.
        """
        raise NotImplementedError(f"The family {self.name!r} has no points for variational message passing.")

    def probe(self, eta: jax.Array, wide: ArrayLike = 1.0) -> jax.Array:
        """Expected statistics ``(..., numbers)`` at which a linear function of T(s) is differentiated accurately.

        Args:
            eta: The natural parameters of a member, near which the statistics lie.
            wide: How far apart the points are; another number gives other statistics.
        """
        return self.expected(eta) * wide

    def vague(self, mean: np.ndarray) -> np.ndarray:
        """Natural parameters ``(n, numbers)`` of vague members with about the means ``(n, dim)``."""
        raise NotImplementedError(f"The family {self.name!r} has no start for variational message passing.")

    def entropy(self, eta: jax.Array) -> jax.Array:
        """The entropy with respect to ds, ``(...)``."""
        flat = jnp.asarray(self.flat, eta.dtype)
        return self.log_norm(eta) - jnp.sum((eta - flat) * self.expected(eta), -1)

    def covariance(self, eta: jax.Array) -> jax.Array:
        """Covariance of the coordinates, ``(..., dim, dim)``."""
        return self.moments(eta)[1][..., None]

    def share(self, eta: jax.Array, site: jax.Array) -> jax.Array:
        """The fraction of each positive parameter that a site makes up; empty where any parameter is proper."""
        return site / eta

    def unit(self, eta: jax.Array) -> jax.Array:
        """The unit in which a change of the natural parameters is measured.

        It is relative, because the standard deviation of a positive family may be infinite.
        """
        return jnp.maximum(jnp.abs(eta), float(jnp.finfo(eta.dtype).tiny))

    def proper(self, eta: jax.Array) -> jax.Array:
        """Whether η belongs to a member, ``(...)``."""
        return jnp.all((eta > 0.0) & jnp.isfinite(eta), -1)

    def match(self, values: np.ndarray, dtype: DTypeLike) -> tuple[np.ndarray, bool]:
        """The members with the expected statistics of draws.

        Args:
            values: Draws ``(S, n, dim)`` of n components.
            dtype: The precision to compute with.

        Returns:
            The natural parameters ``(n, numbers)``, and whether all of them are proper.
        """
        stats = np.asarray(self.stats(jnp.asarray(self.inside(values, dtype), dtype)), float)
        start = jnp.ones((values.shape[1], self.numbers), dtype)
        change = jnp.asarray(stats.mean(0), dtype) - self.expected(start)
        natural = jax.jit(self.shifted)(start, change)
        return np.asarray(natural, float), bool(np.asarray(self.proper(natural)).all())

    def accepted(self, eta: jax.Array, change: jax.Array, new: jax.Array) -> jax.Array:
        """The result of ``shifted``: η where nothing changes, else ``new`` if it is proper, else NaN."""
        new = jnp.where((self.proper(new) & self.proper(eta))[..., None], new, jnp.nan)
        return jnp.where(jnp.all(change == 0.0, -1, keepdims=True), eta, new)


def inside_half_line(s: jax.Array) -> jax.Array:
    """Values kept away from 0 and infinity."""
    limits = jnp.finfo(s.dtype)
    return jnp.clip(s, float(limits.tiny), float(limits.max))


def inside_interval(s: jax.Array) -> jax.Array:
    """Values kept away from 0 and 1."""
    limits = jnp.finfo(s.dtype)
    return jnp.clip(s, float(limits.tiny), 1.0 - float(limits.epsneg))


def log_gamma_draws(key: jax.Array, shape_parameter: jax.Array, shape: Sequence[int]) -> jax.Array:
    """Logarithms of draws from Gammas of rate 1, ``(*shape, *shape_parameter.shape)``."""
    return jax.random.loggamma(
        key, shape_parameter, shape=(*shape, *shape_parameter.shape), dtype=shape_parameter.dtype
    )


def quantile_arguments(eta: np.ndarray, q: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Both as float64, and q with room for the leading axes of η."""
    eta, q = np.asarray(eta, float), np.asarray(q, float)
    return eta, q.reshape(q.shape + (1,) * (eta.ndim - 1))
