"""The parts of a product in variational message passing: independent Gaussian blocks, and native components.

In a conjugate model the log joint is linear in the sufficient statistics of each part, the others being fixed. Two
things follow, and a part has a method for each. The expectation over a part is exact with a few *points* whose weighted
statistics are the expected ones. The natural parameters of the optimal part are the derivatives of the expected log
joint with respect to its expected statistics; they can be taken at any statistics, so that a *probe* is chosen where
they are accurate, and a second probe shows whether the log joint is linear at all.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from scipy.linalg import hadamard
from typing_extensions import override

from adfpp.engine.families.base import Belief, Block
from adfpp.engine.families.product.parts import ComponentPart, Part, V

Points: TypeAlias = tuple[jax.Array, jax.Array]  # weights (P,) and coordinates (P, n)

_WIDE = 8.0  # sds between a Gaussian probe and its mean: a difference of slopes is then far above their rounding errors


class ConjugatePart(Part[V]):
    """What variational message passing asks of a part. A *moment* is a pytree that fixes the expected statistics."""

    @property
    @abstractmethod
    def point_count(self) -> int:
        """The number of points."""

    @abstractmethod
    def points(self, value: V) -> Points:
        """Points whose weighted statistics are the expected ones."""

    @abstractmethod
    def probe(self, value: V, far: ArrayLike = 0.0) -> Any:
        """A moment at which derivatives are accurate; ``far`` between 0 and 1 gives another one."""

    @abstractmethod
    def points_of(self, moment: Any) -> Points:
        """As ``points``, differentiable in the moment."""

    @abstractmethod
    def read(self, moment: Any, slope: Any) -> jax.Array:
        """The natural parameters, in one vector, of the optimal part.

        Args:
            moment: The moment at which the expected log joint was differentiated.
            slope: Its derivative, of the same structure.
        """

    @abstractmethod
    def entropy(self, value: V) -> jax.Array:
        """The entropy of the part with respect to the coordinates of θ."""

    @abstractmethod
    def expected_sum(self, value: V, natural: jax.Array) -> jax.Array:
        """The sum of the expected statistics, each times its entry in a vector of natural parameters."""

    @abstractmethod
    def initial(self, mean: np.ndarray, sd: np.ndarray, dtype: DTypeLike) -> V:
        """A vague part with about these means and standard deviations ``(n,)`` of its coordinates."""


@dataclass(frozen=True, eq=False)
class GaussianBlocks(ConjugatePart[Belief]):
    """Independent full Gaussians of the same size: its value is a ``Belief`` of ``(B, D)`` and ``(B, D, D)``.

    Attributes:
        names: The latents.
        where: The places in θ, block by block.
        count: The number of blocks B.
    """

    names: tuple[str, ...]
    where: np.ndarray
    count: int
    gaussian: ClassVar[bool] = True

    @property
    def family(self) -> "GaussianBlocks":
        """The part is its own family: it has the name."""
        return self

    @property
    def name(self) -> str:
        """The name of the family in plans."""
        return "full" if self.count == 1 else "blocks"

    @property
    def size(self) -> int:
        """Numbers D of a block."""
        return len(self.where) // self.count

    @property
    @override
    def numbers(self) -> int:
        return self.count * (self.size + self.size * (self.size + 1) // 2)

    # ------------------------------------------------------------------------------------------ messages

    @property
    @override
    def point_count(self) -> int:
        return len(signs_of(self.size))

    @override
    def points(self, value: Belief) -> Points:
        return self.points_of(value)

    @override
    def probe(self, value: Belief, far: ArrayLike = 0.0) -> Belief:
        sd = jnp.sqrt(jnp.sum(value.scale**2, -1)) * _WIDE
        scale = (1.0 + 0.7 * jnp.asarray(far)) * sd[..., None] * jnp.eye(self.size, dtype=sd.dtype)
        return Belief(value.mean + 0.7 * jnp.asarray(far) * sd, scale)

    @override
    def points_of(self, moment: Belief) -> Points:
        """Points ``mean + scale @ signs``, where the signs ``(P, D)`` have mean 0 and covariance I."""
        signs = jnp.asarray(signs_of(self.size), moment.mean.dtype)
        values = moment.mean + jnp.einsum("bij,pj->pbi", moment.scale, signs)
        return jnp.full(len(signs), 1.0 / len(signs), signs.dtype), values.reshape(len(signs), -1)

    @override
    def read(self, moment: Belief, slope: Belief) -> jax.Array:
        """The slope in a column of the scale is minus the precision times this column; the scale is diagonal."""
        precision = -slope.scale / jnp.diagonal(moment.scale, axis1=-2, axis2=-1)[..., None, :]
        precision = 0.5 * (precision + jnp.swapaxes(precision, -1, -2))
        tilt = slope.mean + jnp.einsum("bij,bj->bi", precision, moment.mean)
        return self._packed(tilt, precision)

    @override
    def entropy(self, value: Belief) -> jax.Array:
        return self.log_norm(value) + 0.5 * len(self.where) * (1.0 + np.log(2.0 * np.pi))

    @override
    def expected_sum(self, value: Belief, natural: jax.Array) -> jax.Array:
        tilt, precision = self._unpacked(natural)
        spread = jnp.einsum("bij,bik,bkj->", value.scale, precision, value.scale)
        return jnp.sum(tilt * value.mean) - 0.5 * (
            jnp.einsum("bi,bij,bj->", value.mean, precision, value.mean) + spread
        )

    @override
    def initial(self, mean: np.ndarray, sd: np.ndarray, dtype: DTypeLike) -> Belief:
        shape = (self.count, self.size)
        scale = np.asarray(sd).reshape(shape)[..., None] * np.eye(self.size)
        return Belief(jnp.asarray(np.asarray(mean).reshape(shape), dtype), jnp.asarray(scale, dtype))

    # ------------------------------------------------------------------------------------------ a part of a product

    def _packed(self, tilt: jax.Array, precision: jax.Array) -> jax.Array:
        i, j = np.tril_indices(self.size)
        return jnp.concatenate([tilt.reshape(-1), precision[:, i, j].reshape(-1)])

    def _unpacked(self, natural: jax.Array) -> tuple[jax.Array, jax.Array]:
        b, d = self.count, self.size
        i, j = np.tril_indices(d)
        lower = natural[b * d :].reshape(b, -1)
        precision = jnp.zeros((b, d, d), natural.dtype).at[:, i, j].set(lower).at[:, j, i].set(lower)
        return natural[: b * d].reshape(b, d), precision

    @override
    def natural(self, value: Belief) -> jax.Array:
        inverse = jnp.linalg.inv(value.scale)
        precision = jnp.swapaxes(inverse, -1, -2) @ inverse
        return self._packed(jnp.einsum("bij,bj->bi", precision, value.mean), precision)

    @override
    def from_natural(self, natural: jax.Array) -> tuple[Belief, jax.Array]:
        """The part with these natural parameters, scaled to a unit diagonal before the factorisation."""
        d = self.size
        tilt, precision = self._unpacked(natural)
        unit = jax.lax.rsqrt(jnp.diagonal(precision, axis1=-2, axis2=-1))
        factor = jnp.linalg.cholesky(precision * unit[..., None] * unit[..., None, :])
        eye = jnp.broadcast_to(jnp.eye(d, dtype=natural.dtype), precision.shape)
        inverse = jax.scipy.linalg.solve_triangular(factor, eye, lower=True)
        scale = unit[..., None] * jnp.swapaxes(inverse, -1, -2)
        scale = jnp.linalg.qr(jnp.swapaxes(scale, -1, -2), mode="r")
        scale = jnp.swapaxes(scale, -1, -2)  # a lower triangular root of the same covariance
        value = Belief(jnp.einsum("bij,bkj,bk->bi", scale, scale, tilt), scale)
        return value, jnp.all(jnp.isfinite(value.mean)) & jnp.all(jnp.isfinite(scale))

    @override
    def start(self, blocks: Sequence[Block], size: int, dtype: DTypeLike) -> Belief:
        raise NotImplementedError("Variational message passing starts from `initial`.")

    @override
    def moments(self, value: Belief) -> tuple[jax.Array, jax.Array]:
        return value.mean.reshape(-1), jnp.sqrt(jnp.sum(value.scale**2, -1)).reshape(-1)

    @override
    def blocks(self, value: Belief) -> list[tuple[np.ndarray, ...]]:
        mean, scale = (np.asarray(a, float) for a in value)
        return [(where, mean[i], scale[i]) for i, where in enumerate(self.places)]

    @override
    def proper(self, value: Belief) -> jax.Array:
        return jnp.ones((), bool)

    @override
    def share(self, value: Belief, site: jax.Array) -> jax.Array:
        raise NotImplementedError("Blocks have no site approximations.")

    @override
    def first_site(self, value: Belief, shares: jax.Array) -> jax.Array:
        raise NotImplementedError("Blocks have no site approximations.")

    @override
    def log_norm(self, value: Belief) -> jax.Array:
        return jnp.sum(jnp.log(jnp.abs(jnp.diagonal(value.scale, axis1=-2, axis2=-1))))

    @override
    def prior_log_norm(self, value: Belief, blocks: Sequence[Block], covered: np.ndarray) -> float:
        raise NotImplementedError("Blocks have no site approximations.")

    @override
    def distance(self, before: Belief, after: Belief) -> jax.Array:
        """The largest move of a mean in sds, or relative change of an sd."""
        (mean, sd), (new, after_sd) = self.moments(before), self.moments(after)
        return jnp.max(jnp.maximum(jnp.abs(new - mean) / sd, jnp.abs(after_sd / sd - 1.0)))

    @override
    def sample(self, rng_key: jax.Array, value: Belief, count: int) -> jax.Array:
        noise = jax.random.normal(rng_key, (count, self.count, self.size), value.mean.dtype)
        return (value.mean + jnp.einsum("bij,sbj->sbi", value.scale, noise)).reshape(count, -1)

    @override
    def log_prob(self, value: Belief, theta: jax.Array) -> jax.Array:
        apart = theta.reshape((*theta.shape[:-1], self.count, self.size)) - value.mean
        inverse = jnp.linalg.inv(value.scale)
        white = jnp.einsum("bij,...bj->...bi", inverse, apart)
        constant = self.log_norm(value) + 0.5 * len(self.where) * np.log(2.0 * np.pi)
        return -0.5 * jnp.sum(white**2, (-2, -1)) - constant


@dataclass(frozen=True, eq=False)
class ConjugateComponents(ComponentPart, ConjugatePart[jax.Array]):
    """Independent components of an exponential family in native space. All components have the same weights."""

    @property
    @override
    def point_count(self) -> int:
        return jax.eval_shape(self.family.points, jnp.ones((1, self.family.numbers)))[0].shape[0]

    @override
    def points(self, value: jax.Array) -> Points:
        return self._flat(self.family.points(value))

    @override
    def probe(self, value: jax.Array, far: ArrayLike = 0.0) -> jax.Array:
        return self.family.probe(value, 1.0 + 0.5 * jnp.asarray(far))

    @override
    def points_of(self, moment: jax.Array) -> Points:
        return self._flat(self.family.points_of(moment))

    def _flat(self, points: Points) -> Points:
        weights, values = points
        return weights, values.reshape(len(weights), -1)

    @override
    def read(self, moment: jax.Array, slope: jax.Array) -> jax.Array:
        return (slope + jnp.asarray(self.family.flat, slope.dtype)).reshape(-1)

    @override
    def entropy(self, value: jax.Array) -> jax.Array:
        return jnp.sum(self.family.entropy(value))

    @override
    def expected_sum(self, value: jax.Array, natural: jax.Array) -> jax.Array:
        return jnp.sum(natural.reshape(value.shape) * self.family.expected(value))

    @override
    def initial(self, mean: np.ndarray, sd: np.ndarray, dtype: DTypeLike) -> jax.Array:
        return jnp.asarray(self.family.vague(np.asarray(mean, float).reshape(self.count, -1)), dtype)


def signs_of(size: int) -> np.ndarray:
    """Signs ``(P, size)`` with mean 0 and covariance I over the P points: columns of a Hadamard matrix."""
    count = 2
    while count < size + 1:
        count *= 2
    return hadamard(count)[:, 1 : size + 1].astype(float)
