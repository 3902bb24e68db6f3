"""Variational message passing: the expected log joint of a product of parts, its derivatives, and rows' local latents.

The log joint is a sum of terms, each of which reads some parts. Its expectation is computed with the points of these
parts (``families/product/conjugate.py``): a term is evaluated at all combinations of their points. In a conjugate model
this is exact, and the derivative with respect to a part's expected statistics is the message to this part.

The local latents of a row are one part, discrete values times Gaussian numbers given these. Given the expected
statistics of the other parts, its optimum has a closed form; it is computed anew in each pass over the rows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from adfpp.engine.families.base import Belief
from adfpp.engine.families.product.conjugate import ConjugatePart, Points, signs_of

# the arrays of log-densities of the terms, at θ and the row's local numbers and discrete values, from inputs
Terms: TypeAlias = Callable[[jax.Array, jax.Array, Sequence[jax.Array]], Sequence[jax.Array]]


class Group(NamedTuple):
    """Log-densities that read the same parts.

    Attributes:
        parts: The places of the parts.
        local: Whether they read continuous local numbers.
        elements: For each array of log-densities that they are in, its place and the places of its elements.
    """

    parts: tuple[int, ...]
    local: bool
    elements: tuple[tuple[int, np.ndarray], ...]


class Local(NamedTuple):
    """The local latents of one row under the optimal approximation.

    Attributes:
        log_z: ``()`` the row's share of the lower bound.
        log_p: ``(C,)`` log-probabilities of the combinations of discrete values.
        mean: ``(C, m)`` means of the continuous numbers given the discrete ones.
        scale: ``(C, m, m)`` roots of their covariances.
    """

    log_z: jax.Array
    log_p: jax.Array
    mean: jax.Array
    scale: jax.Array


@dataclass(frozen=True, eq=False)
class LogJoint:
    """The log joint of a model as terms, and the parts that approximate its posterior.

    Attributes:
        size: The length of θ.
        parts: The parts of the latents that all rows share.
        prior: The log-densities of the priors; without local numbers and discrete values.
        row: The log-densities of one row.
        prior_groups: The groups of the prior.
        row_groups: The groups of a row.
        combinations: ``(C, d)`` the combinations of a row's discrete values.
        numbers: How many continuous local numbers m a row has.
    """

    size: int
    parts: tuple[ConjugatePart[Any], ...]
    prior: Terms
    row: Terms
    prior_groups: tuple[Group, ...]
    row_groups: tuple[Group, ...]
    combinations: np.ndarray
    numbers: int

    def points(self, values: Sequence[Any]) -> list[Points]:
        """The points of all parts."""
        return [part.points(value) for part, value in zip(self.parts, values, strict=True)]

    def expected_prior(self, points: Sequence[Points], inputs: Sequence[jax.Array], k: int | None = None) -> jax.Array:
        """The expected log-density of the priors; without the terms that part k does not enter, if it is given."""
        nothing = jnp.zeros(0, points[0][1].dtype)
        return _expected(self, self.prior, _entered_by(self.prior_groups, k), points, None, nothing, inputs)

    def expected_row(
        self,
        points: Sequence[Points],
        local: Points,
        discrete: jax.Array,
        inputs: Sequence[jax.Array],
        k: int | None = None,
    ) -> jax.Array:
        """The expected log-density of a row for one combination of discrete values; k as in ``expected_prior``."""
        return _expected(self, self.row, _entered_by(self.row_groups, k), points, local, discrete, inputs)

    # ------------------------------------------------------------------------------------------ local latents

    def local_posterior(self, points: Sequence[Points], inputs: Sequence[jax.Array], far: ArrayLike = 0.0) -> Local:
        """The optimal approximation of a row's local latents.

        Given the discrete values, the expected log-density is quadratic in the continuous numbers z. Its slope and
        curvature at a probe give the Gaussian, and the Gaussian integral gives the probability of the discrete values.

        Args:
            points: The points of the parts.
            inputs: The row's arrays and the shared ones.
            far: Which probe is used, as in ``ConjugatePart.probe``.
        """
        m, dtype = self.numbers, points[0][1].dtype

        def of(discrete: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            if not m:
                value = self.expected_row(points, _point(dtype), discrete, inputs)
                return value, jnp.zeros(0, dtype), jnp.zeros((0, 0), dtype)
            wide = 1.0 + 0.7 * jnp.asarray(far, dtype)
            start = Belief(jnp.full(m, 0.7, dtype) * far, wide * jnp.eye(m, dtype=dtype))

            def expected(moment: Belief) -> jax.Array:
                return self.expected_row(points, local_points(moment), discrete, inputs)

            value, slope = jax.value_and_grad(expected)(start)
            precision = -0.5 * (slope.scale + slope.scale.T) / wide
            root = jnp.linalg.cholesky(precision)
            white = jax.scipy.linalg.solve_triangular(root, slope.mean, lower=True)
            scale = jax.scipy.linalg.solve_triangular(root, jnp.eye(m, dtype=dtype), lower=True).T
            log_z = value + 0.5 * wide**2 * jnp.trace(precision) + 0.5 * white @ white + 0.5 * m * np.log(2.0 * np.pi)
            return log_z - jnp.sum(jnp.log(jnp.diag(root))), start.mean + scale @ white, scale

        log_z, mean, scale = jax.vmap(of)(jnp.asarray(self.combinations))
        total = jax.nn.logsumexp(log_z)
        return Local(total, log_z - total, mean, scale)

    def row_value(self, points: Sequence[Points], local: Local, inputs: Sequence[jax.Array], k: int) -> jax.Array:
        """The terms of a row that part k enters, expected under a given approximation of its local latents."""

        def of(discrete: jax.Array, log_p: jax.Array, mean: jax.Array, scale: jax.Array) -> jax.Array:
            inside = local_points(Belief(mean, scale)) if self.numbers else _point(mean.dtype)
            return jnp.exp(log_p) * self.expected_row(points, inside, discrete, inputs, k)

        return jnp.sum(jax.vmap(of)(jnp.asarray(self.combinations), local.log_p, local.mean, local.scale))

    # ------------------------------------------------------------------------------------------ messages

    def local_posteriors(
        self, values: Sequence[Any], rows: Sequence[jax.Array], shared: Sequence[jax.Array], far: ArrayLike = 0.0
    ) -> Local:
        """``local_posterior`` of rows ``(n, ...)``, with the rows along the leading axes."""
        points = self.points(values)

        def of(row: Sequence[jax.Array]) -> Local:
            return self.local_posterior(points, [*(a[None] for a in row), *shared], far)

        return mapped(of, list(rows), self.batch)

    def global_bound(self, values: Sequence[Any], inputs: Sequence[jax.Array]) -> jax.Array:
        """The lower bound without rows: the expected log prior plus the entropies of the parts."""
        entropies = [part.entropy(value) for part, value in zip(self.parts, values, strict=True)]
        return self.expected_prior(self.points(values), inputs) + sum(entropies)

    def message(
        self,
        k: int,
        values: Sequence[Any],
        rows: Sequence[jax.Array],
        shared: Sequence[jax.Array],
        weight: jax.Array,
        local: Local,
        far: ArrayLike = 0.0,
    ) -> jax.Array:
        """The message of rows to part k: what they add to its natural parameters.

        Args:
            k: The place of the part.
            values: The values of all parts.
            rows: Row arrays ``(n, ...)``.
            shared: Shared arrays.
            weight: ``(n,)`` how often a row counts.
            local: The approximations of the rows' local latents.
            far: Which probe is used, as in ``ConjugatePart.probe``.
        """
        part, fixed = self.parts[k], self.points(values)
        if not _entered_by(self.row_groups, k):
            return jnp.zeros(part.numbers, weight.dtype)
        moment = part.probe(values[k], far)

        def value(moment: Any, rows: tuple[Sequence[jax.Array], jax.Array, Local]) -> jax.Array:
            points = [*fixed[:k], part.points_of(moment), *fixed[k + 1 :]]

            def one(row: Sequence[jax.Array], local: Local) -> jax.Array:
                return self.row_value(points, local, [*(a[None] for a in row), *shared], k)

            return rows[1] @ jax.vmap(one)(rows[0], rows[2])

        slopes = _summed(partial(jax.grad(value), moment), (list(rows), weight, local), self.batch)
        return part.read(moment, slopes) - part.read(moment, jax.tree.map(jnp.zeros_like, slopes))

    def prior_message(
        self, k: int, values: Sequence[Any], inputs: Sequence[jax.Array], far: ArrayLike = 0.0
    ) -> jax.Array:
        """The natural parameters of part k that follow from the priors alone."""
        part, fixed = self.parts[k], self.points(values)
        moment = part.probe(values[k], far)

        def value(moment: Any) -> jax.Array:
            return self.expected_prior([*fixed[:k], part.points_of(moment), *fixed[k + 1 :]], inputs, k)

        return part.read(moment, jax.grad(value)(moment))

    @property
    def batch(self) -> int:
        """Rows that are computed at once: fewer, the more points a term has."""
        most = max((_count(self, g) for g in self.row_groups), default=1) * len(self.combinations)
        return max(8, min(512, _NUMBERS // most))


_NUMBERS = 1 << 12  # combinations of points and rows at once: more would not fit into the cache of a core


def local_points(moment: Belief) -> Points:
    """The points of one Gaussian."""
    signs = jnp.asarray(signs_of(moment.mean.shape[0]), moment.mean.dtype)
    return jnp.full(len(signs), 1.0 / len(signs), signs.dtype), moment.mean + signs @ moment.scale.T


def _point(dtype: Any) -> Points:
    """The single point of a row without continuous local numbers."""
    return jnp.ones(1, dtype), jnp.zeros((1, 0), dtype)


def _entered_by(groups: Sequence[Group], k: int | None) -> list[Group]:
    """The groups of terms that a part enters; all of them if there is no part."""
    return [g for g in groups if k is None or k in g.parts]


def _count(joint: LogJoint, group: Group) -> int:
    """How many combinations of points a group of terms is evaluated at."""
    count = math.prod(joint.parts[k].point_count for k in group.parts)
    return count * (len(signs_of(joint.numbers)) if group.local else 1)


def mapped(f: Callable[[Any], Any], rows: Any, batch: int) -> Any:
    """A pytree-valued function of each row, batch by batch.

    It is as ``jax.lax.map``, which cannot join batches of arrays without elements.
    """
    length = jax.tree.leaves(rows)[0].shape[0]
    batch = min(batch, length)
    out = jax.lax.map(jax.vmap(f), jax.tree.map(lambda a: _cut(a, batch), rows))
    return jax.tree.map(lambda a: a.reshape((a.shape[0] * batch, *a.shape[2:]))[:length], out)


def _cut(a: jax.Array, batch: int) -> jax.Array:
    """Rows as batches ``(count, batch, ...)``, with copies of the first row at the end."""
    count = -(-a.shape[0] // batch)
    extra = count * batch - a.shape[0]
    filled = jnp.concatenate([a, jnp.broadcast_to(a[:1], (extra, *a.shape[1:]))]) if extra else a
    return filled.reshape((count, batch, *a.shape[1:]))


def _summed(f: Callable[[Any], Any], rows: Any, batch: int) -> Any:
    """The sum of a pytree-valued function of batches of rows. The rows are padded with rows of weight 0."""
    arrays, weight, local = rows
    batch = min(batch, weight.shape[0])
    extra = -weight.shape[0] % batch
    padded = jnp.concatenate([weight, jnp.zeros(extra, weight.dtype)]).reshape(-1, batch)
    pieces = (*jax.tree.map(lambda a: _cut(a, batch), (arrays,)), padded, jax.tree.map(lambda a: _cut(a, batch), local))

    def add(total: Any, piece: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, f(piece)), None

    shapes = jax.eval_shape(f, jax.tree.map(lambda a: a[0], pieces))
    start = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return jax.lax.scan(add, start, pieces)[0]


def _expected(
    joint: LogJoint,
    terms: Terms,
    groups: Sequence[Group],
    points: Sequence[Points],
    local: Points | None,
    discrete: jax.Array,
    inputs: Sequence[jax.Array],
) -> jax.Array:
    """The sum of the groups' expectations, each over the combinations of the points that it reads."""
    dtype = points[0][1].dtype
    base = jnp.zeros(joint.size, dtype)
    for part, (_, values) in zip(joint.parts, points, strict=True):
        base = base.at[part.where].set(jax.lax.stop_gradient(values[0]))
    rest = jnp.zeros(joint.numbers if local is not None else 0, dtype)
    total = jnp.zeros((), dtype)
    for group in groups:
        chosen = [points[k] for k in group.parts]
        if group.local and local is not None:
            chosen.append(local)
        index = np.indices([len(w) for w, _ in chosen]).reshape(len(chosen), -1)
        weight = jnp.ones(index.shape[1], dtype)
        theta = jnp.broadcast_to(base, (index.shape[1], joint.size))
        numbers = jnp.broadcast_to(rest, (index.shape[1], rest.shape[0]))
        for axis, (w, values) in enumerate(chosen):
            weight = weight * w[index[axis]]
            if axis < len(group.parts):
                theta = theta.at[:, joint.parts[group.parts[axis]].where].set(values[index[axis]])
            else:
                numbers = values[index[axis]]

        def log_density(theta: jax.Array, numbers: jax.Array, group: Group = group) -> jax.Array:
            logs = terms(jnp.concatenate([theta, numbers]), discrete, inputs)
            return sum((jnp.sum(jnp.ravel(logs[o])[e]) for o, e in group.elements), jnp.zeros((), dtype))

        total = total + weight @ jax.vmap(log_density)(theta, numbers)
    return total
