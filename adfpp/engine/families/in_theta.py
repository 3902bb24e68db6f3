"""Families that forget correlations after each factor. Their sites are vectors of natural parameters of θ.

With ``natural`` the natural parameters of a belief, those of the cavity are ``natural - α site``. The new site is the
difference between the natural parameters of the projected tilted distribution and those of the cavity, divided by α.
The code here is the same for all such families; they differ in ``field``, ``project`` and the natural parameters.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from typing_extensions import override

from adfpp.engine.factor import Factor
from adfpp.engine.families.base import (
    Answer,
    Belief,
    BeliefT,
    Block,
    Exchange,
    Family,
    Gaussian,
    Outside,
    Update,
    Window,
    diagonal_of_bracket,
    field_of,
    mean_of_blocks,
    narrows,
    variances_of_blocks,
)
from adfpp.engine.linalg import whiten
from adfpp.engine.sites import least_pivot
from adfpp.engine.tilt import Index, Message

_FAR = 1e8  # a shift of the field's mean, in its sds, after which a mean may be infinite


class Taken(NamedTuple, Generic[BeliefT]):
    """Values of a factor's cavity that a family in θ needs for the projection.

    Attributes:
        before: The belief.
        belief: The cavity as a belief; the belief itself if the cavity would be improper.
        field: The family's values of the field.
        natural: Natural parameters of the belief; this and the following are None if no site was removed.
        fraction: ``()`` the fraction of the site that was removed.
        proper: ``()`` whether the cavity is proper.
    """

    before: BeliefT
    belief: BeliefT
    field: jax.Array
    natural: jax.Array | None = None
    fraction: jax.Array | None = None
    proper: jax.Array | None = None


class InTheta(Family[BeliefT]):
    """The base class of families whose sites are natural parameters of θ."""

    sites_in_field: ClassVar[bool] = False

    @abstractmethod
    def field(self, window: Window[BeliefT], cavity: BeliefT, slot: Index, factor: Factor) -> Outside:
        """Computes the field of a factor under a cavity, with the values that ``project`` needs in ``own``."""

    @abstractmethod
    def project(self, taken: Taken[BeliefT], answer: Answer) -> tuple[BeliefT, jax.Array]:
        """Projects the tilted distribution onto the family. Also returns whether the result is proper."""

    @abstractmethod
    def share(self, belief: BeliefT, site: jax.Array) -> jax.Array:
        """The share of a site in each of the belief's precisions (and positive parameters)."""

    @abstractmethod
    def first_site(self, belief: BeliefT, shares: jax.Array) -> jax.Array:
        """Makes a site that has these shares ``(N,)`` of the belief."""

    @abstractmethod
    def prior_log_norm(self, belief: BeliefT, blocks: Sequence[Block], covered: np.ndarray) -> float:
        """Log of the integral of the prior's blocks as unnormalised members of the family.

        Args:
            belief: The belief before any row.
            blocks: The blocks.
            covered: ``(N,)`` booleans: which coordinates of θ they cover.
        """

    @abstractmethod
    def message(self, taken: Taken[BeliefT], message: Message) -> jax.Array:
        """Converts a message in the whitened field to a site in θ."""

    @override
    def cavity(
        self, window: Window[BeliefT], slot: Index, factor: Factor, site: jax.Array | None, exchange: Exchange | None
    ) -> Outside:
        before = window.belief
        if site is None or exchange is None:
            view = self.field(window, before, slot, factor)
            return view._replace(own=Taken(before, before, view.own))
        size, dtype = before.mean.shape[0], before.mean.dtype
        limit, divisible = factor.rule.power_limit, factor.divisible
        natural = self.natural(before)
        fraction = jnp.zeros((), dtype) if limit else exchange.power
        most = jnp.max(self.share(before, site))
        whole = 1.0 - fraction * most > least_pivot(dtype)
        if divisible and not limit:
            fraction = jnp.where(whole, fraction, jnp.minimum(fraction, 0.9 / jnp.maximum(most, 0.9)))
        cavity, proper = self.from_natural(natural - fraction * site, size)
        proper &= 1.0 - fraction * most > least_pivot(dtype)
        cavity = jax.tree.map(lambda a, b: jnp.where(proper, a, b), cavity, before)
        view = self.field(window, cavity, slot, factor)
        power = fraction if divisible and not limit else None
        return view._replace(power=power, whole=whole, own=Taken(before, cavity, view.own, natural, fraction, proper))

    @override
    def exchange(
        self,
        outside: Outside,
        answer: Answer,
        factor: Factor,
        site: jax.Array | None,
        exchange: Exchange | None,
    ) -> Update:
        taken: Taken[BeliefT] = outside.own
        never = jnp.zeros((), bool)
        if site is None or exchange is None or taken.natural is None or taken.fraction is None or taken.proper is None:
            projected, proper = self.project(taken, answer)
            return Update(None, None, never, proper, projected)
        tilted: Any = answer.tilted
        if factor.rule.power_limit:
            proposed, proper = self.message(taken, tilted), ~never
            evidence = tilted.log_z + 0.5 * jnp.sum(self.share(taken.before, site))
        else:
            projected, proper = self.project(taken, answer)
            proposed = (self.natural(projected) - self.natural(taken.belief)) / taken.fraction
            evidence = tilted.log_z + self.log_norm(taken.belief) - self.log_norm(taken.before)
            evidence = evidence / taken.fraction
        new = site + exchange.damping * (proposed - site)
        after, fine = self.from_natural(taken.natural + (new - site), taken.before.mean.shape[0])
        fine = fine & taken.proper & proper & jnp.all(jnp.isfinite(proposed))
        return Update(new, evidence, never, fine, after)

    @override
    def accept(self, window: Window[BeliefT], slot: Index, update: Update, accepted: jax.Array) -> Window[BeliefT]:
        belief = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), update.own, window.belief)
        return window._replace(belief=belief)


class IndependentGaussian(InTheta[Belief], Gaussian):
    """The base class of the diagonal and the spherical Gaussian: one variance for each number, or one for all."""

    @abstractmethod
    def sds(self, variances: np.ndarray) -> np.ndarray:
        """The root in the family's shape for these marginal variances ``(N,)``."""

    @abstractmethod
    def kept(self, bracket: jax.Array) -> jax.Array:
        """Projects values ``(N,)``, one for each number of θ, to the family's shape of a root."""

    @override
    def start(self, blocks: Sequence[Block], size: int, dtype: DTypeLike) -> Belief:
        sd = self.sds(variances_of_blocks(blocks, size))
        # + 0 removes negative zeros, to which an update that adds nothing would give the other sign
        return Belief(jnp.asarray(mean_of_blocks(blocks, size) + 0.0, dtype), jnp.asarray(sd, dtype))

    @override
    def blocks(self, belief: Belief) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        size = len(belief.mean)
        sd = np.broadcast_to(np.asarray(belief.scale, float), (size,))
        return [(np.arange(size), np.asarray(belief.mean, float), np.array(sd))]

    @override
    def look(self, window: Window[Belief], slot: Index, size: int) -> tuple[jax.Array, jax.Array]:
        rows, mean = field_of(window, slot, size)
        return mean, rows * window.belief.scale

    @override
    def absorb(
        self, window: Window[Belief], slot: Index, q: jax.Array, shift: jax.Array, root: jax.Array
    ) -> Window[Belief]:
        return window._replace(belief=self._moved(window.belief, q, shift, root))

    def _moved(self, belief: Belief, q: jax.Array, shift: jax.Array, root: jax.Array) -> Belief:
        mean, scale = belief
        return Belief(mean + scale * (shift @ q), scale * jnp.sqrt(self.kept(diagonal_of_bracket(q, root))))

    @override
    def field(self, window: Window[Belief], cavity: Belief, slot: Index, factor: Factor) -> Outside:
        rows, mean = field_of(window, slot, factor.field_size)
        if cavity is not window.belief:
            mean = mean + rows @ (cavity.mean - window.belief.mean)
        scale, q = whiten(rows * cavity.scale)
        finite = jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(scale))
        return Outside(mean, scale, None, finite, jnp.ones((), bool), q)

    @override
    def project(self, taken: Taken[Belief], answer: Answer) -> tuple[Belief, jax.Array]:
        tilted: Any = answer.tilted
        moved = self._moved(taken.belief, taken.field, tilted.shift, tilted.root)
        before, tiny = taken.belief.scale, float(jnp.finfo(moved.scale.dtype).tiny)

        def proper() -> jax.Array:
            """Whether no mean is infinite, and no precision, of which sites consist."""
            kept = (moved.scale * moved.scale > tiny) | (before * before <= tiny)
            return jnp.all(kept) & jnp.all(jnp.isfinite(moved.mean))

        # looking at each number would take half as long as the rest of the update
        extreme = narrows(tilted.root) | jnp.any(jnp.abs(tilted.shift) > _FAR)
        return moved, jax.lax.cond(extreme, proper, lambda: jnp.ones((), bool))

    @override
    def message(self, taken: Taken[Belief], message: Message) -> jax.Array:
        mean, scale = taken.belief
        q = taken.field
        precision = self.kept(jnp.sum(q * (message.precision @ q), 0)) / scale**2
        return jnp.concatenate([(message.slope @ q) / scale + precision * mean, jnp.atleast_1d(precision)])

    @override
    def natural(self, belief: Belief) -> jax.Array:
        precision = 1.0 / (belief.scale * belief.scale)
        return jnp.concatenate([belief.mean * precision, jnp.atleast_1d(precision)])

    @override
    def share(self, belief: Belief, site: jax.Array) -> jax.Array:
        size = belief.mean.shape[0]
        return jnp.broadcast_to(site[size:] * belief.scale**2, (size,))

    @override
    def spread(self, belief: Belief, size: int) -> jax.Array:
        return jnp.broadcast_to(belief.scale, (size,))

    @override
    def distance(self, before: Belief, after: Belief) -> jax.Array:
        """The largest move of a mean in the smaller standard deviation, or of a standard deviation relatively."""
        shift = jnp.abs(after.mean - before.mean) / jnp.minimum(before.scale, after.scale)
        return jnp.maximum(jnp.max(shift), jnp.max(jnp.abs(jnp.log(after.scale / before.scale))))

    @override
    def widen(self, belief: Belief, factor: jax.Array, noise: jax.Array) -> Belief:
        return belief._replace(scale=jnp.sqrt((factor * belief.scale) ** 2 + noise**2))

    @override
    def noise(self, root: np.ndarray, dtype: DTypeLike) -> np.ndarray:
        return np.asarray(self.sds(root**2 if root.ndim == 1 else (root**2).sum(1)), dtype)
