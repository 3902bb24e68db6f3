"""Gaussian beliefs over the flat unconstrained θ: full, diagonal, spherical.

A belief is a mean and a *root* of its covariance, C = S Sᵀ. In the coordinates whitened by the root, a factor with
field ``h = A θ + b`` touches only the k directions ``F = A S``; with ``F = L Q`` (Q orthonormal rows) the tilted
covariance of ``u`` is ``M = R Rᵀ`` in those directions and I elsewhere. So, whatever the family,

    m += S Qᵀ d,        C' = S (I + Qᵀ (M - I) Q) Sᵀ,

and the families differ only in how they hold the last bracket: the full one absorbs its root, ``S += S Qᵀ (R - I) Q``,
the diagonal one its diagonal, the spherical one its trace. For k = 1 this is Opper's (7.1)-(7.2) and (9.4). A root can
never become indefinite, at any precision.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.sites import site_size
from adfpp.engine.tilt import Message


class Belief(NamedTuple):
    """A Gaussian over θ.

    Attributes:
        mean: ``(N,)``.
        scale: A root of the covariance: ``(N, N)`` full, ``(N,)`` diagonal, ``()`` spherical.
    """

    mean: jax.Array
    scale: jax.Array


class Window(NamedTuple):
    """A belief while a few rows are folded into it, slot by slot; a slot is one row of A.

    Attributes:
        belief: As it stands (row by row), or as it stood when the window was opened (blocked).
        matrix: ``(T, N)``: the fields' A, or A S when blocked.
        value: ``(T,)``: the fields at the mean when the window was opened.
        start: ``(N,)`` that mean; blocked it is the belief's.
        directions: ``(T, N)`` blocked only: Q of the slots absorbed so far.
        weights: ``(T, T)`` blocked only: W with the root now S (I + Uᵀ W U), U the directions.
        steps: ``(T,)`` blocked only: the mean now m + S Uᵀ y.
    """

    belief: Any
    matrix: jax.Array
    value: jax.Array
    start: jax.Array
    directions: Any = ()
    weights: Any = ()
    steps: Any = ()


class Family(Protocol):
    """What is asked of every family.

    A family whose projection is no more than a change in the field has its sites there (``sites_in_field``). One that
    forgets more has them in θ, as vectors of natural parameters: it is an ``InTheta``, too.
    """

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    sites_in_field: ClassVar[bool]

    def start(self, blocks: Sequence[Any], size: int, dtype: Any) -> Any:
        """The belief that matches independent prior blocks."""
        ...

    def blocks(self, belief: Any) -> list[Any]:
        """The belief as independent blocks: (places, mean, root), and natural parameters if it is not Gaussian."""
        ...

    def rows_per_window(self, size: int, slots: int) -> int:
        """How many rows are worth folding behind one window."""
        ...

    def width(self, size: int) -> int:
        """Length to which θ is padded with zeros while rows are folded one by one, for even vector registers."""
        ...

    def pad(self, belief: Any, width: int) -> Any:
        """The belief padded to this length."""
        ...

    def trim(self, belief: Any, size: int) -> Any:
        """The belief without its padding."""
        ...

    def origin(self, mean: jax.Array) -> jax.Array:
        """The θ at which fields are expanded."""
        ...

    def open(self, belief: Any, matrix: jax.Array, value: jax.Array, blocked: bool) -> Window:
        """Opens a window on the fields of some rows: ``matrix (T, N)``, ``value (T,)`` at the belief's origin."""
        ...

    def look(self, window: Window, slot: Any, size: int) -> tuple[jax.Array, jax.Array]:
        """Cavity of the field at slots [slot, slot + size): of a Gaussian its mean ``(k,)`` and F = A S ``(k, N)``."""
        ...

    def close(self, window: Window) -> Any:
        """The belief with everything in the window absorbed."""
        ...

    def spread(self, belief: Any, size: int) -> jax.Array:
        """Marginal sds ``(N,)``."""
        ...

    def site_numbers(self, field_size: int, size: int) -> int:
        """Numbers that the site of a factor holds."""
        ...


class Gaussian(Family, Protocol):
    """What is asked of Gaussian families beside."""

    def absorb(self, window: Window, slot: Any, q: jax.Array, shift: jax.Array, root: jax.Array) -> Window:
        """Absorbs tilted moments: directions ``q (k, N)``, ``shift (k,)``, ``root (k, k)``."""
        ...

    def widen(self, belief: Belief, factor: jax.Array, noise: jax.Array) -> Belief:
        """Covariance times factor², plus noise noiseᵀ (the noise in the family's own shape of root)."""
        ...

    def noise(self, root: np.ndarray, dtype: Any) -> np.ndarray:
        """A noise root ``(N,)`` or ``(N, N)``, projected to the family's shape of root."""
        ...


class InTheta(Family, Protocol):
    """What is asked of families whose sites are natural parameters of θ."""

    def natural(self, belief: Any) -> jax.Array:
        """Natural parameters in one vector; of a Gaussian slope and precision."""
        ...

    def from_natural(self, natural: jax.Array, size: int) -> tuple[Any, jax.Array]:
        """The belief, and whether it is proper."""
        ...

    def share(self, belief: Any, site: jax.Array) -> jax.Array:
        """Shares of the belief's precisions that a site makes up."""
        ...

    def part(self, belief: Any, own: jax.Array) -> jax.Array:
        """A site that makes up these shares ``(N,)`` of the belief."""
        ...

    def log_norm(self, belief: Any) -> jax.Array:
        """Log of the integral of ``exp(natural · T)``, without its multiple of log 2π."""
        ...

    def gaussian_size(self, size: int) -> int:
        """Of how many Gaussian numbers: half as many multiples of log 2π are left out."""
        ...


def _slots(array: jax.Array, slot: Any, size: int) -> jax.Array:
    if array.shape[0] == size:
        return array
    return jax.lax.dynamic_slice_in_dim(array, slot, size)


def _mean_of(blocks: Sequence[Any], size: int) -> np.ndarray:
    mean = np.zeros(size)
    for block in blocks:
        mean[block.where] = block.mean
    return mean


def _variances_of(blocks: Sequence[Any], size: int) -> np.ndarray:
    variances = np.zeros(size)
    for block in blocks:
        variances[block.where] = block.root**2 if block.root.ndim == 1 else (block.root**2).sum(1)
    return variances


def _row_by_row(belief: Belief, matrix: jax.Array, value: jax.Array) -> Window:
    return Window(belief, matrix, value, belief.mean)


def _field_now(window: Window, slot: Any, size: int) -> tuple[jax.Array, jax.Array]:
    """A and mean of the field at a slot, while rows are folded one by one."""
    rows = _slots(window.matrix, slot, size)
    if window.matrix.shape[0] == size:  # the only factor of its row: nothing has moved
        return rows, window.value
    return rows, _slots(window.value, slot, size) + rows @ (window.belief.mean - window.start)


def _bracket(q: jax.Array, root: jax.Array) -> jax.Array:
    """Diagonal of I + Qᵀ (M - I) Q, ``(N,)``."""
    if root.shape[0] == 1:
        return 1.0 + (root[0, 0] ** 2 - 1.0) * q[0] * q[0]
    excess = root @ root.T - jnp.eye(root.shape[0], dtype=root.dtype)
    return 1.0 + jnp.sum(q * (excess @ q), 0)


@dataclass(frozen=True)
class Full:
    """All means, variances and correlations: N(N+1)/2 + N numbers, rank-k updates of a square root."""

    name: str = "full"
    sites_in_field: ClassVar[bool] = True

    def start(self, blocks: Sequence[Any], size: int, dtype: Any) -> Belief:
        """Puts the blocks on the diagonal."""
        scale = np.zeros((size, size))
        for block in blocks:
            root = np.diag(block.root) if block.root.ndim == 1 else block.root
            scale[np.ix_(block.where, block.where)] = root
        # + 0: no negative zeros, which adding nothing would turn round
        return Belief(jnp.asarray(_mean_of(blocks, size) + 0.0, dtype), jnp.asarray(scale + 0.0, dtype))

    def blocks(self, belief: Belief) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """One block."""
        return [(np.arange(len(belief.mean)), np.asarray(belief.mean, float), np.asarray(belief.scale, float))]

    def rows_per_window(self, size: int, slots: int) -> int:
        """Row by row while the root fits the fastest cache; then blocks, whose cost is two matrix products."""
        if size < 96:
            return 1
        wanted = 16 if size < 400 else 32
        return max(1, 1 << int(np.log2(max(1, wanted // max(1, slots)))))

    def width(self, size: int) -> int:
        """Whole vector registers: a ragged end costs the matrix products up to a third."""
        return size if size < 16 else -(-size // 8) * 8

    def pad(self, belief: Belief, width: int) -> Belief:
        """Zeros below and to the right."""
        more = width - belief.mean.shape[0]
        return belief if not more else Belief(jnp.pad(belief.mean, (0, more)), jnp.pad(belief.scale, (0, more)))

    def trim(self, belief: Belief, size: int) -> Belief:
        """The leading corner."""
        return belief if belief.mean.shape[0] == size else Belief(belief.mean[:size], belief.scale[:size, :size])

    def origin(self, mean: jax.Array) -> jax.Array:
        """The mean."""
        return mean

    def open(self, belief: Belief, matrix: jax.Array, value: jax.Array, blocked: bool) -> Window:
        """Blocked: one product F = A S for all rows, and an empty transformation."""
        if not blocked:
            return _row_by_row(belief, matrix, value)
        slots = matrix.shape[0]
        zero = jnp.zeros_like(matrix)
        weights = jnp.zeros((slots, slots), matrix.dtype)
        steps = jnp.zeros(slots, matrix.dtype)
        return Window(belief, matrix @ belief.scale, value, belief.mean, zero, weights, steps)

    def look(self, window: Window, slot: Any, size: int) -> tuple[jax.Array, jax.Array]:
        """Blocked: the window's F, moved by what the earlier slots did to the root and the mean."""
        if isinstance(window.directions, tuple):
            rows, mean = _field_now(window, slot, size)
            return mean, rows @ window.belief.scale
        rows = _slots(window.matrix, slot, size)
        overlap = rows @ window.directions.T
        return _slots(window.value, slot, size) + overlap @ window.steps, rows + (
            overlap @ window.weights
        ) @ window.directions

    def absorb(self, window: Window, slot: Any, q: jax.Array, shift: jax.Array, root: jax.Array) -> Window:
        """S ← S (I + Qᵀ (R - I) Q), m ← m + S Qᵀ d."""
        excess = root - jnp.eye(root.shape[0], dtype=root.dtype)
        if isinstance(window.directions, tuple):
            mean, scale = window.belief
            image = scale @ q.T
            if q.shape[0] == 1:
                moved = Belief(mean + image[:, 0] * shift[0], scale + (excess[0, 0] * image) * q)
            else:
                moved = Belief(mean + image @ shift, scale + (image @ excess) @ q)
            return window._replace(belief=moved)
        slots, size = window.directions.shape[0], q.shape[0]
        unit = (jnp.arange(slots)[:, None] == slot + jnp.arange(size)[None, :]).astype(q.dtype)
        image = unit + window.weights @ (window.directions @ q.T)
        return window._replace(
            directions=jax.lax.dynamic_update_slice_in_dim(window.directions, q, slot, 0),
            weights=jax.lax.dynamic_update_slice_in_dim(window.weights, image @ excess, slot, 1),
            steps=window.steps + image @ shift,
        )

    def close(self, window: Window) -> Belief:
        """Blocked: one product S Uᵀ and one rank-T update."""
        if isinstance(window.directions, tuple):
            return window.belief
        mean, scale = window.belief
        image = scale @ window.directions.T
        return Belief(mean + image @ window.steps, scale + (image @ window.weights) @ window.directions)

    def spread(self, belief: Belief, size: int) -> jax.Array:
        """Row norms of the root."""
        return jnp.sqrt(jnp.sum(belief.scale**2, -1))

    def widen(self, belief: Belief, factor: jax.Array, noise: jax.Array) -> Belief:
        """A triangular root of the stacked roots, by QR: proper at any precision."""
        stacked = jnp.concatenate([factor * belief.scale.T, noise.T])
        return belief._replace(scale=jnp.linalg.qr(stacked, mode="r").T)

    def noise(self, root: np.ndarray, dtype: Any) -> np.ndarray:
        """As it is; independent noise on the diagonal."""
        return np.asarray(np.diag(root) if root.ndim == 1 else root, dtype)

    def site_numbers(self, field_size: int, size: int) -> int:
        """Those of the field."""
        return site_size(field_size)


@dataclass(frozen=True)
class Diagonal:
    """Means and variances, correlations dropped after each row: 2N numbers, O(N) a row."""

    name: str = "diagonal"
    sites_in_field: ClassVar[bool] = False

    def start(self, blocks: Sequence[Any], size: int, dtype: Any) -> Belief:
        """Marginal variances of the blocks."""
        sd = np.sqrt(_variances_of(blocks, size))
        return Belief(jnp.asarray(_mean_of(blocks, size) + 0.0, dtype), jnp.asarray(sd, dtype))

    def blocks(self, belief: Belief) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """One block of independent elements."""
        return [(np.arange(len(belief.mean)), np.asarray(belief.mean, float), np.asarray(belief.scale, float))]

    def rows_per_window(self, size: int, slots: int) -> int:
        """Row by row: the projection comes between rows."""
        return 1

    def width(self, size: int) -> int:
        """No padding: the work is one pass over memory."""
        return size

    def pad(self, belief: Belief, width: int) -> Belief:
        """As it is."""
        return belief

    def trim(self, belief: Belief, size: int) -> Belief:
        """As it is."""
        return belief

    def gaussian_size(self, size: int) -> int:
        """All of them."""
        return size

    def origin(self, mean: jax.Array) -> jax.Array:
        """The mean."""
        return mean

    def open(self, belief: Belief, matrix: jax.Array, value: jax.Array, blocked: bool) -> Window:
        """Row by row."""
        return _row_by_row(belief, matrix, value)

    def look(self, window: Window, slot: Any, size: int) -> tuple[jax.Array, jax.Array]:
        """F = A diag(sd)."""
        rows, mean = _field_now(window, slot, size)
        return mean, rows * window.belief.scale

    def absorb(self, window: Window, slot: Any, q: jax.Array, shift: jax.Array, root: jax.Array) -> Window:
        """Keeps the diagonal of the new covariance."""
        mean, scale = window.belief
        return window._replace(belief=Belief(mean + scale * (shift @ q), scale * jnp.sqrt(_bracket(q, root))))

    def close(self, window: Window) -> Belief:
        """Nothing is pending."""
        return window.belief

    def spread(self, belief: Belief, size: int) -> jax.Array:
        """The sds themselves."""
        return belief.scale

    def widen(self, belief: Belief, factor: jax.Array, noise: jax.Array) -> Belief:
        """Elementwise."""
        return belief._replace(scale=jnp.sqrt((factor * belief.scale) ** 2 + noise**2))

    def noise(self, root: np.ndarray, dtype: Any) -> np.ndarray:
        """Marginal sds of the noise."""
        return np.asarray(root if root.ndim == 1 else np.sqrt((root**2).sum(1)), dtype)

    def site_numbers(self, field_size: int, size: int) -> int:
        """N slopes and N precisions."""
        return 2 * size

    def natural(self, belief: Belief) -> jax.Array:
        """N slopes and N precisions."""
        precision = 1.0 / (belief.scale * belief.scale)
        return jnp.concatenate([belief.mean * precision, precision])

    def from_natural(self, natural: jax.Array, size: int) -> tuple[Belief, jax.Array]:
        """Proper if all precisions are."""
        precision = natural[size:]
        proper = jnp.all((precision > 0) & jnp.isfinite(precision))
        return Belief(natural[:size] / precision, 1.0 / jnp.sqrt(precision)), proper

    def share(self, belief: Belief, site: jax.Array) -> jax.Array:
        """Elementwise."""
        return site[belief.mean.shape[0] :] * belief.scale**2

    def part(self, belief: Belief, own: jax.Array) -> jax.Array:
        """Elementwise."""
        return self.natural(belief) * jnp.concatenate([own, own])

    def message(self, belief: Belief, q: jax.Array, message: Message) -> jax.Array:
        """Its diagonal."""
        precision = jnp.sum(q * (message.precision @ q), 0) / belief.scale**2
        return jnp.concatenate([(message.slope @ q) / belief.scale + precision * belief.mean, precision])

    def log_norm(self, belief: Belief) -> jax.Array:
        """A sum over elements."""
        return jnp.sum(jnp.log(belief.scale) + 0.5 * (belief.mean / belief.scale) ** 2)


@dataclass(frozen=True)
class Spherical:
    """Means and one common variance: N + 1 numbers (Opper's (9.4), the scalar BOnA)."""

    name: str = "spherical"
    sites_in_field: ClassVar[bool] = False

    def start(self, blocks: Sequence[Any], size: int, dtype: Any) -> Belief:
        """The mean of the marginal variances."""
        sd = np.sqrt(_variances_of(blocks, size).mean())
        return Belief(jnp.asarray(_mean_of(blocks, size) + 0.0, dtype), jnp.asarray(sd, dtype))

    def blocks(self, belief: Belief) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """One block of independent elements."""
        n = len(belief.mean)
        return [(np.arange(n), np.asarray(belief.mean, float), np.full(n, float(belief.scale)))]

    def rows_per_window(self, size: int, slots: int) -> int:
        """Row by row: the projection comes between rows."""
        return 1

    def width(self, size: int) -> int:
        """No padding: the work is one pass over memory."""
        return size

    def pad(self, belief: Belief, width: int) -> Belief:
        """As it is."""
        return belief

    def trim(self, belief: Belief, size: int) -> Belief:
        """As it is."""
        return belief

    def gaussian_size(self, size: int) -> int:
        """All of them."""
        return size

    def origin(self, mean: jax.Array) -> jax.Array:
        """The mean."""
        return mean

    def open(self, belief: Belief, matrix: jax.Array, value: jax.Array, blocked: bool) -> Window:
        """Row by row."""
        return _row_by_row(belief, matrix, value)

    def look(self, window: Window, slot: Any, size: int) -> tuple[jax.Array, jax.Array]:
        """F = sd A."""
        rows, mean = _field_now(window, slot, size)
        return mean, rows * window.belief.scale

    def absorb(self, window: Window, slot: Any, q: jax.Array, shift: jax.Array, root: jax.Array) -> Window:
        """Keeps the mean of the diagonal: c ← c (1 + tr(Qᵀ (M - I) Q) / N)."""
        mean, scale = window.belief
        return window._replace(belief=Belief(mean + scale * (shift @ q), scale * jnp.sqrt(jnp.mean(_bracket(q, root)))))

    def close(self, window: Window) -> Belief:
        """Nothing is pending."""
        return window.belief

    def spread(self, belief: Belief, size: int) -> jax.Array:
        """The common sd."""
        return jnp.broadcast_to(belief.scale, (size,))

    def widen(self, belief: Belief, factor: jax.Array, noise: jax.Array) -> Belief:
        """One number."""
        return belief._replace(scale=jnp.sqrt((factor * belief.scale) ** 2 + noise**2))

    def noise(self, root: np.ndarray, dtype: Any) -> np.ndarray:
        """The root mean square of the marginal sds."""
        variances = root**2 if root.ndim == 1 else (root**2).sum(1)
        return np.asarray(np.sqrt(variances.mean()), dtype)

    def site_numbers(self, field_size: int, size: int) -> int:
        """N slopes and one precision."""
        return size + 1

    def natural(self, belief: Belief) -> jax.Array:
        """N slopes and one precision."""
        precision = 1.0 / (belief.scale * belief.scale)
        return jnp.concatenate([belief.mean * precision, precision[None]])

    def from_natural(self, natural: jax.Array, size: int) -> tuple[Belief, jax.Array]:
        """Proper if the precision is."""
        precision = natural[size]
        proper = (precision > 0) & jnp.isfinite(precision)
        return Belief(natural[:size] / precision, 1.0 / jnp.sqrt(precision)), proper

    def share(self, belief: Belief, site: jax.Array) -> jax.Array:
        """The same for all."""
        size = belief.mean.shape[0]
        return jnp.broadcast_to(site[size] * belief.scale**2, (size,))

    def part(self, belief: Belief, own: jax.Array) -> jax.Array:
        """Slopes elementwise, and the precision by how many elements it is."""
        return self.natural(belief) * jnp.concatenate([own, jnp.mean(own)[None]])

    def message(self, belief: Belief, q: jax.Array, message: Message) -> jax.Array:
        """The mean of its diagonal."""
        precision = jnp.mean(jnp.sum(q * (message.precision @ q), 0)) / belief.scale**2
        slope = (message.slope @ q) / belief.scale + precision * belief.mean
        return jnp.concatenate([slope, precision[None]])

    def log_norm(self, belief: Belief) -> jax.Array:
        """A sum over elements."""
        squares = (belief.mean / belief.scale) @ (belief.mean / belief.scale)
        return belief.mean.shape[0] * jnp.log(belief.scale) + 0.5 * squares


_NAMED = {"full": Full(), "diagonal": Diagonal(), "spherical": Spherical()}


def family_named(family: str | Family) -> Family:
    """The family with this name; a family is passed through."""
    if not isinstance(family, str):
        if isinstance(family, Full | Diagonal | Spherical):
            return family
        raise ValueError(f"family={family!r} is not supported; use one of {sorted(_NAMED)}.")
    if family not in _NAMED:
        raise ValueError(f"family={family!r} is not known; use one of {sorted(_NAMED)}.")
    return _NAMED[family]
