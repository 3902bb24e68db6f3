"""The full Gaussian over the flat unconstrained θ.

A belief is a mean and a *root* of its covariance, C = S Sᵀ. In the coordinates whitened by the root, a factor with
field ``h = A θ + b`` touches only the k directions ``F = A S``; with ``F = L Q`` (Q orthonormal rows) the tilted
covariance of ``u`` is ``M = R Rᵀ`` in those directions and I in the others. With d the tilted mean of ``u``, the new
mean and covariance are

    m + S Qᵀ d,        C' = S (I + Qᵀ (M - I) Q) Sᵀ.

The root is multiplied by the bracket's root, ``S += S Qᵀ (R - I) Q``. For k = 1 this is Opper's (7.1)-(7.2). A root can
never become indefinite, at any precision. The diagonal and the spherical family keep only a part of the same bracket.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from typing_extensions import override

from adfpp.engine.factor import Factor
from adfpp.engine.families.base import (
    Answer,
    Belief,
    Block,
    Exchange,
    Gaussian,
    Outside,
    Update,
    Window,
    expressible,
    field_of,
    mean_of_blocks,
    slots_of,
)
from adfpp.engine.linalg import inverse_upper, product, reversed_cholesky, whiten
from adfpp.engine.sites import Cavity, cavity, message_of, pack, site_of, site_size, unpack
from adfpp.engine.tilt import Index


class InField(NamedTuple):
    """Values of a factor's cavity that ``Full`` needs for the projection.

    Attributes:
        q: ``(k, N)`` the field's whitened directions; None if only the field is known.
        mean: ``(k,)`` mean of the field under the belief.
        scale: ``(k, k)`` root of the field's covariance under the belief.
        taken: The cavity, if a site was removed from the belief.
    """

    q: jax.Array | None
    mean: jax.Array
    scale: jax.Array
    taken: Cavity | None


class Moved(NamedTuple):
    """A change of the belief in a factor's whitened directions.

    Attributes:
        q: As in ``InField``.
        shift: ``(k,)`` shift of the mean.
        root: ``(k, k)`` root of the covariance after the change.
    """

    q: jax.Array | None
    shift: jax.Array
    root: jax.Array

    def where(self, accepted: jax.Array) -> "Moved":
        """Returns the change if it is accepted, else no change."""
        identity = jnp.eye(self.root.shape[0], dtype=self.root.dtype)
        return Moved(self.q, jnp.where(accepted, self.shift, 0.0), jnp.where(accepted, self.root, identity))


@dataclass(frozen=True)
class Full(Gaussian):
    """A Gaussian with all correlations: N(N+1)/2 + N numbers, rank-k updates of a square root."""

    sites_in_field: ClassVar[bool] = True

    @property
    @override
    def name(self) -> str:
        return "full"

    @override
    def start(self, blocks: Sequence[Block], size: int, dtype: DTypeLike) -> Belief:
        scale = np.zeros((size, size))
        for block in blocks:
            root = np.diag(block.root) if block.root.ndim == 1 else block.root
            scale[np.ix_(block.where, block.where)] = root
        # + 0 removes negative zeros, to which an update that adds nothing would give the other sign
        return Belief(jnp.asarray(mean_of_blocks(blocks, size) + 0.0, dtype), jnp.asarray(scale + 0.0, dtype))

    @override
    def blocks(self, belief: Belief) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return [(np.arange(len(belief.mean)), np.asarray(belief.mean, float), np.asarray(belief.scale, float))]

    @override
    def rows_per_window(self, size: int, slots: int) -> int:
        # one row at a time while the root fits the fastest cache; else blocks, which cost two matrix products each
        if size < 96:
            return 1
        wanted = (
            16 if size < 400 else 32
        )  # measured: for larger blocks the work inside the block takes longer than is gained
        return max(1, 1 << int(np.log2(max(1, wanted // max(1, slots)))))

    @override
    def width(self, size: int) -> int:
        # fill whole vector registers: otherwise matrix products take up to a third longer
        return size if size < 16 else -(-size // 8) * 8

    @override
    def pad(self, belief: Belief, width: int) -> Belief:
        more = width - belief.mean.shape[0]
        return belief if not more else Belief(jnp.pad(belief.mean, (0, more)), jnp.pad(belief.scale, (0, more)))

    @override
    def trim(self, belief: Belief, size: int) -> Belief:
        return belief if belief.mean.shape[0] == size else Belief(belief.mean[:size], belief.scale[:size, :size])

    @override
    def open(self, belief: Belief, matrix: jax.Array, value: jax.Array, blocked: bool) -> Window[Belief]:
        if not blocked:
            return super().open(belief, matrix, value, blocked)
        # one product F = A S for all rows; no directions have been absorbed yet
        slots = matrix.shape[0]
        weights, steps = jnp.zeros((slots, slots), matrix.dtype), jnp.zeros(slots, matrix.dtype)
        return Window(belief, matrix @ belief.scale, value, belief.mean, jnp.zeros_like(matrix), weights, steps)

    @override
    def look(self, window: Window[Belief], slot: Index, size: int) -> tuple[jax.Array, jax.Array]:
        if isinstance(window.directions, tuple):
            rows, mean = field_of(window, slot, size)
            return mean, product(rows, window.belief.scale)
        # F of the window, corrected for the changes of root and mean by earlier slots
        rows = slots_of(window.matrix, slot, size)
        overlap = rows @ window.directions.T
        mean = slots_of(window.value, slot, size) + overlap @ window.steps
        return mean, rows + (overlap @ window.weights) @ window.directions

    @override
    def absorb(
        self, window: Window[Belief], slot: Index, q: jax.Array, shift: jax.Array, root: jax.Array
    ) -> Window[Belief]:
        # S ← S (I + Qᵀ (R - I) Q), m ← m + S Qᵀ d
        excess = root - jnp.eye(root.shape[0], dtype=root.dtype)
        if isinstance(window.directions, tuple):
            mean, scale = window.belief
            image = product(scale, q.T)
            if q.shape[0] == 1:
                moved = Belief(mean + image[:, 0] * shift[0], scale + (excess[0, 0] * image) * q)
            else:
                moved = Belief(mean + image @ shift, scale + product(product(image, excess), q))
            return window._replace(belief=moved)
        slots, size = window.directions.shape[0], q.shape[0]
        unit = (jnp.arange(slots)[:, None] == slot + jnp.arange(size)[None, :]).astype(q.dtype)
        # W is still 0 in the columns of q, so q may be among the directions already: the buffer is not read as it was
        # before, and is written without a copy
        directions = jax.lax.dynamic_update_slice_in_dim(window.directions, q, slot, 0)
        image = unit + window.weights @ (directions @ q.T)
        return window._replace(
            directions=directions,
            weights=jax.lax.dynamic_update_slice_in_dim(window.weights, image @ excess, slot, 1),
            steps=window.steps + image @ shift,
        )

    @override
    def close(self, window: Window[Belief]) -> Belief:
        if isinstance(window.directions, tuple):
            return window.belief
        # one product S Uᵀ and one update of rank T
        mean, scale = window.belief
        image = scale @ window.directions.T
        return Belief(mean + image @ window.steps, scale + (image @ window.weights) @ window.directions)

    # ---------------------------------------------------------------------------------- one factor

    @override
    def cavity(
        self, window: Window[Belief], slot: Index, factor: Factor, site: jax.Array | None, exchange: Exchange | None
    ) -> Outside:
        mean, f = self.look(window, slot, factor.field_size)
        # the mean and the root of the field contain every number in the row's A, and show if one is not finite
        scale, q = whiten(f)
        return self.cavity_in_field(mean, scale, factor, site, exchange, q)

    def cavity_in_field(
        self,
        mean: jax.Array,
        scale: jax.Array,
        factor: Factor,
        site: jax.Array | None,
        exchange: Exchange | None,
        q: jax.Array | None = None,
    ) -> Outside:
        """The cavity of a factor, from the mean and the root of its field under the belief."""
        finite, sure = jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(scale)), jnp.ones((), bool)
        if site is None or exchange is None:
            return Outside(mean, scale, None, finite, sure, InField(q, mean, scale, None))
        mean, scale = jnp.where(finite, mean, 0.0), jnp.where(finite, scale, 0.0)
        limit, divisible = factor.rule.power_limit, factor.divisible
        power = jnp.zeros((), mean.dtype) if limit else exchange.power
        taken = cavity(site, mean, scale, power, divisible=divisible and not limit)
        applied = taken.fraction if divisible and not limit else None
        return Outside(taken.mean, taken.scale, applied, finite, taken.whole, InField(q, mean, scale, taken))

    @override
    def exchange(
        self,
        outside: Outside,
        answer: Answer,
        factor: Factor,
        site: jax.Array | None,
        exchange: Exchange | None,
    ) -> Update:
        view: InField = outside.own
        tilted: Any = answer.tilted
        sure, taken = jnp.ones((), bool), view.taken
        if site is None or exchange is None or taken is None:
            proper = expressible(view.scale, tilted.root)
            return Update(None, None, ~sure, proper, Moved(view.q, tilted.shift, tilted.root))
        size, dtype = factor.field_size, outside.mean.dtype
        limit = factor.rule.power_limit
        message, clamped = (tilted, ~sure) if limit else message_of(tilted, taken)
        proposed = site_of(message, view.mean, view.scale)
        gained = exchange.damping * (message.precision - taken.precision)
        pull = exchange.damping * (message.slope - taken.slope)
        upper = reversed_cholesky(jnp.eye(size, dtype=dtype) + gained)
        inverse = inverse_upper(upper)
        shift = inverse.T @ (inverse @ pull)
        proper = (
            taken.proper
            & jnp.all(jnp.diagonal(upper) > 0)
            & jnp.all(jnp.isfinite(proposed))
            & jnp.all(jnp.isfinite(shift))
            & expressible(view.scale, inverse.T)
        )
        if limit:
            evidence = tilted.log_z + 0.5 * jnp.trace(taken.precision)
        else:
            evidence = (tilted.log_z + taken.evidence) / taken.fraction
        after = site + exchange.damping * (proposed - site)
        return Update(after, evidence, clamped, proper, Moved(view.q, shift, inverse.T))

    @override
    def accept(self, window: Window[Belief], slot: Index, update: Update, accepted: jax.Array) -> Window[Belief]:
        return self.absorb(window, slot, *update.own.where(accepted))

    # ---------------------------------------------------------------------------------- natural parameters

    @override
    def site_numbers(self, field_size: int, size: int) -> int:
        return site_size(field_size)

    @override
    def natural(self, belief: Belief) -> jax.Array:
        inverse = jnp.linalg.inv(belief.scale)
        precision = inverse.T @ inverse
        return pack(precision @ belief.mean, precision)

    @override
    def from_natural(self, natural: jax.Array, size: int) -> tuple[Belief, jax.Array]:
        slope, precision = unpack(natural, size)
        lower = jnp.linalg.cholesky(precision)
        root = jax.scipy.linalg.solve_triangular(lower, jnp.eye(size, dtype=lower.dtype), lower=True).T
        return Belief(root @ (root.T @ slope), root), jnp.all(jnp.isfinite(root))

    @override
    def log_norm(self, belief: Belief) -> jax.Array:
        white = jnp.linalg.solve(belief.scale, belief.mean)
        return jnp.linalg.slogdet(belief.scale)[1] + 0.5 * white @ white

    @override
    def share(self, belief: Belief, site: jax.Array) -> jax.Array:
        _, precision = unpack(site, belief.mean.shape[0])
        white = belief.scale.T @ precision @ belief.scale
        return jnp.sum(jnp.abs(white), -1)  # no eigenvalue exceeds the largest of these sums

    @override
    def first_site(self, belief: Belief, shares: jax.Array) -> jax.Array:
        slope, precision = unpack(self.natural(belief), belief.mean.shape[0])
        root = jnp.sqrt(shares)
        return pack(slope * shares, precision * root * root[:, None])

    @override
    def prior_log_norm(self, belief: Belief, blocks: Sequence[Block], covered: np.ndarray) -> float:
        total = 0.0
        for block in blocks:
            root = np.diag(block.root) if block.root.ndim == 1 else block.root
            white = np.linalg.solve(root, block.mean)
            half = 0.5 * math.log(2.0 * math.pi) * len(block.where)
            total += float(np.linalg.slogdet(root)[1] + 0.5 * white @ white + half)
        return total

    # ---------------------------------------------------------------------------------- properties of a belief

    @override
    def spread(self, belief: Belief, size: int) -> jax.Array:
        return jnp.linalg.norm(belief.scale, axis=-1)

    @override
    def distance(self, before: Belief, after: Belief) -> jax.Array:
        """√2 times the root of the Kullback-Leibler divergence between the two, to second order.

        With u the shift of the mean in coordinates whitened by the belief before, and C the covariance after in the
        same coordinates, it is √(|u|² + |C - I|² / 2). The mean in any direction moves by no more standard deviations
        than this, and the standard deviation in any direction by no more relatively (to first order). Directions in
        which the posterior is narrow count as much as all others. An estimate of the rounding error is subtracted.
        """
        sd = self.spread(before, before.mean.shape[0])[:, None]
        root = before.scale / sd  # without the units of the numbers
        inverse = jnp.linalg.inv(root)
        shift = inverse @ ((after.mean - before.mean) / sd[:, 0])
        white = inverse @ (after.scale / sd)
        change = white @ white.T - jnp.eye(white.shape[0], dtype=white.dtype)
        step = jnp.sqrt(shift @ shift + 0.5 * jnp.sum(change * change))
        rounding = 4.0 * float(jnp.finfo(step.dtype).eps) * jnp.linalg.norm(inverse) * jnp.linalg.norm(root)
        return jnp.maximum(step - rounding, 0.0)

    @override
    def widen(self, belief: Belief, factor: jax.Array, noise: jax.Array) -> Belief:
        # a triangular root of the stacked roots, by QR: proper at any precision
        stacked = jnp.concatenate([factor * belief.scale.T, noise.T])
        return belief._replace(scale=jnp.linalg.qr(stacked, mode="r").T)

    @override
    def noise(self, root: np.ndarray, dtype: DTypeLike) -> np.ndarray:
        return np.asarray(np.diag(root) if root.ndim == 1 else root, dtype)
