"""Factors with local latents: latents of a single row, which are integrated out together with the row.

The numbers z of continuous local latents join the field, which is then affine in (θ, z); discrete ones are summed over
in the log-density. A ``LocalFactor`` wraps the factor of the joint field and is, for the kernel, a factor of the part
of the field that θ enters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PRNGKeyArray

from adfpp.engine.derivatives import jacobian
from adfpp.engine.factor import ClosedFactor, Factor, IntegralFactor
from adfpp.engine.linalg import root_of_product, whiten
from adfpp.engine.tilt import Conditional, Index, IntegralRule, Message, Quadrature, Tilt, Tilted
from adfpp.engine.trace import Atom, Tail, Trace, dtype_of, known_value, part_of, shape_of


class LocalMoments(NamedTuple):
    """A row's posterior of the local latents of one factor.

    Attributes:
        mean: Means of the factor's continuous local numbers.
        sd: Their standard deviations.
        weights: Probabilities of the J combinations of discrete values.
    """

    mean: Float[Array, " m"]
    sd: Float[Array, " m"]
    weights: Float[Array, " J"]


class LocalRules(NamedTuple):
    """Two more functions of a factor with local latents at one row, beside its tilt.

    Attributes:
        marginal: ``marginal(e, field (k,)) -> ()``: its log-density at a fixed θ, without the local latents.
        posterior: ``posterior(e, mean (k,), scale (k, k)) -> LocalMoments`` given a cavity of the field.
    """

    marginal: Callable[[Index, Float[Array, " k"]], Float[Array, ""]]
    posterior: Callable[[Index, Float[Array, " k"], Float[Array, "k k"]], LocalMoments]


class _Joint(NamedTuple):
    """The joint field of one element: ``centre + (θ's part - its mean) + spread @ ζ`` with ``z = mean + sd ζ``.

    Attributes:
        centre: The field at the given mean of θ's part, and the base's mean of z.
        spread: The derivative of the field by ζ ~ N(0, I).
        mean: The base's mean of z.
        sd: The base's sd of z.
    """

    centre: Float[Array, " size"]
    spread: Float[Array, "size m"]
    mean: Float[Array, " m"]
    sd: Float[Array, " m"]


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalFactor(Factor):
    """A factor with local latents.

    Given the cavity N(mean, T Tᵀ) of θ's part of the field and the base N(z0, s0²), the joint field is
    h = c + [T, B s0] (v, ζ) with (v, ζ) ~ N(0, I). With [T, B s0] = L Q, where Q has orthonormal rows, the rule for the
    joint field sees h = c + L u and gives u's mean d and covariance R Rᵀ; then (v, ζ) has the mean Qᵀ d and the
    covariance root I + Qᵀ (R - I) Q.

    Attributes:
        joint: The factor of the joint field.
        inner_rule: The rule for the local numbers alone, once θ is fixed.
    """

    joint: ClosedFactor | IntegralFactor
    inner_rule: IntegralRule

    @property
    def local(self) -> "LocalFactor":
        """The factor itself."""
        return self

    @property
    def components(self) -> tuple[Any, ...]:
        """The local latents of each element, as the model package describes them."""
        return tuple(self.observation.components[e] for e in self.elements)

    @cached_property
    def places(self) -> Int[np.ndarray, "E m"]:
        """The places of each element's continuous local numbers in z."""
        numbers = [component.numbers for component in self.components]
        return np.array(numbers, int).reshape(self.count, len(numbers[0]))

    @property
    def numbers(self) -> int:
        """How many continuous local numbers each element has."""
        return self.places.shape[1]

    @property
    def integrated(self) -> int:
        """How many numbers a quadrature runs over once θ is fixed: none if the factor is Gaussian in the local ones."""
        by_algebra = isinstance(self.joint, ClosedFactor) or isinstance(self.inner_rule, Conditional)
        return 0 if by_algebra else min(self.numbers, self._joint_size)

    @property
    def combinations(self) -> int:
        """How many combinations of discrete values are summed over."""
        return 1 if self.observation.terms is None else shape_of(self.observation.terms)[0]

    @property
    def divisible(self) -> bool:
        """Whether the tilt can use a power. It cannot with continuous local latents, which are integrated out first."""
        return super().divisible and not self.numbers

    @property
    def tail(self) -> Tail | None:
        """The tail of the joint factor; None with continuous local latents: the log-density is then an integral."""
        return None if self.numbers else self.joint.tail

    # ---------------------------------------------------------------------------------------- the joint field

    @cached_property
    def _terms(self) -> list[Tail]:
        """The term of each combination of discrete values in the factor, if there is more than one combination."""
        count = self.observation.count
        return [
            Tail(self.trace, self.cuts, self.observation.terms, [j * count + e for e in self.elements])
            for j in range(self.combinations)
            if self.combinations > 1
        ]

    @property
    def _joint_size(self) -> int:
        return self.cuts[0].size

    def _prepare_joint(self, inputs: Sequence[ArrayLike]) -> Callable[[Index, Float[Array, " k"]], _Joint]:
        """Prepares the joint field at one row, as a function of an element and the mean of θ's part of the field."""
        size, base = self._joint_size, self.base
        if not self.numbers or not size or base is None:

            def plain(e: Index, mean: Float[Array, " k"]) -> _Joint:
                unknown = jnp.full(self.numbers, jnp.nan, mean.dtype)
                return _Joint(mean, jnp.zeros((size, 0), mean.dtype), unknown, unknown)

            return plain
        base_mean, base_sd = (_output_of(self.trace, o)(*inputs) for o in (base.mean, base.sd))
        dtype = dtype_of(self.trace.theta)

        def at(z: Float[Array, " z"]) -> Float[Array, "E size"]:
            return self.fields(jnp.concatenate([jnp.zeros(base.start, z.dtype), z]), *inputs)[1]

        zero = jnp.zeros(self.trace.size - base.start, dtype)
        offset, matrix = at(zero), jacobian(at)(zero)
        alike = (self.places == self.places[:1]).all()

        def joint(e: Index, mean: Float[Array, " k"]) -> _Joint:
            places = self.places[0] if alike else jnp.asarray(self.places)[e]
            z0, sd = (jnp.asarray(a, mean.dtype)[places] for a in (base_mean, base_sd))
            b = matrix[e][:, places].astype(mean.dtype)
            centre = offset[e].astype(mean.dtype).at[self.outer].set(mean) + b @ z0
            return _Joint(centre, b * sd, z0, sd)

        return joint

    def _whitened(self, scale: Float[Array, "k k"], spread: Array) -> tuple[Array, Array]:
        """Computes L and Q of [T, B s0] = L Q."""
        size, k = self._joint_size, self.field_size
        top = scale if k == size else jnp.zeros((size, k), scale.dtype).at[self.outer].set(scale)
        return whiten(jnp.concatenate([top, spread], 1))

    # ---------------------------------------------------------------------------------------- tilted moments

    def prepare(self, *inputs: ArrayLike) -> Tilt:
        """Prepares the tilt of the elements at one row, with the local latents integrated out."""
        tilt = self.joint.prepare(*inputs)
        if not self.numbers or not self._joint_size:
            return tilt
        joint, k = self._prepare_joint(inputs), self.field_size

        def marginal_tilt(
            e: Index,
            mean: Float[Array, " k"],
            scale: Float[Array, "k k"],
            power: Float[Array, ""] | float | None = None,
            key: PRNGKeyArray | None = None,
        ) -> Tilted:
            if power is not None:
                raise ValueError(
                    f"EP asked for a power of the factor of {self.name!r}, but its local latents are integrated out "
                    "together with θ: power < 1 with continuous local latents is not supported. Use power=1."
                )
            field = joint(e, mean)
            lower, q = self._whitened(scale, field.spread)
            tilted = tilt(e, field.centre, lower, None, key)
            if isinstance(tilted, Message):
                raise ValueError(
                    f"EP asked for the limit of power 0 of the factor of {self.name!r}, but its local latents are "
                    "integrated out together with θ: the limit is not supported with continuous local latents. Use "
                    "power=1."
                )
            if k == 0:
                return tilted._replace(shift=mean, root=scale)
            root = root_of_product(_joint_root(q, tilted.root)[:k])
            return tilted._replace(shift=q[:, :k].T @ tilted.shift, root=root)

        return marginal_tilt

    def rules(self, *inputs: ArrayLike) -> LocalRules:
        """Prepares the log-density without the local latents, and their posterior, at one row."""
        tilt, joint = self.joint.prepare(*inputs), self._prepare_joint(inputs)
        log_factor: Callable[..., Array] | None = None
        if isinstance(self.joint, IntegralFactor):
            log_factor = self.joint.tail(*inputs).log_factor
        terms = [tail(*inputs).log_factor for tail in self._terms]
        own, size, k = self.numbers, self._joint_size, self.field_size

        def marginal(e: Index, field: Float[Array, " k"]) -> Float[Array, ""]:
            (centre, spread, _, _), density = joint(e, field), log_factor
            if density is None or (0 < size <= own and self.integrated):
                return tilt(e, centre, whiten(spread)[0]).log_z
            if not own or not size:
                return density(centre, e).astype(field.dtype)

            def inner(zeta: Float[Array, " m"]) -> Float[Array, ""]:
                return density(centre + spread @ zeta, e).astype(field.dtype)

            return self.inner_rule(inner, jnp.zeros(own, field.dtype), jnp.eye(own, dtype=field.dtype)).log_z

        def posterior(e: Index, mean: Float[Array, " k"], scale: Float[Array, "k k"]) -> LocalMoments:
            centre, spread, z0, sd = joint(e, mean)
            lower, q = self._whitened(scale, spread)
            weights = jnp.ones(1, mean.dtype)
            if terms:
                shares = [self._share(partial(term, e=e), centre, lower) for term in terms]
                weights = jax.nn.softmax(jnp.stack(shares))
            if not own or not size:
                return LocalMoments(z0, sd, weights)
            tilted = tilt(e, centre, lower)
            assert isinstance(tilted, Tilted)
            root = _joint_root(q, tilted.root)[k:]
            moved = z0 + sd * (q[:, k:].T @ tilted.shift)
            return LocalMoments(moved, sd * jnp.sqrt(jnp.sum(root * root, 1)), weights)

        return LocalRules(marginal, posterior)

    def _share(self, term: Callable[..., Array], centre: Array, lower: Array) -> Float[Array, ""]:
        """The log of the expectation of one combination's term under a cavity of the joint field."""

        def log_factor(h: Float[Array, " size"]) -> Float[Array, ""]:
            return term(h).astype(h.dtype)

        if not self._joint_size:
            return log_factor(centre)
        assert isinstance(self.joint, IntegralFactor)  # a sum over discrete values has no closed form
        return self.joint.rule(log_factor, centre, lower).log_z


def with_local_latents(joint: ClosedFactor | IntegralFactor, numbers: int, inner_rule: IntegralRule) -> LocalFactor:
    """Makes the factor of θ's part of a joint field.

    Args:
        joint: The factor of the joint field.
        numbers: How many continuous local numbers each element has.
        inner_rule: The rule for the local numbers alone.
    """
    rule, why = joint.rule, joint.why
    if numbers:
        why = f"{why}, including {numbers} local number{'s' if numbers > 1 else ''}"
    factor = LocalFactor(
        trace=joint.trace,
        observation=joint.observation,
        elements=joint.elements,
        cuts=joint.cuts,
        rule=rule,
        why=why,
        field=joint.field,
        base=joint.base,
        joint=joint,
        inner_rule=inner_rule,
    )
    if numbers and isinstance(rule, Quadrature) and joint.cuts[0].size > 1 >= factor.field_size:
        # θ's part of the field is one number, but the integral has more dimensions, with a larger error
        return replace(factor, rule=replace(rule, report=rule.report_tensor))
    return factor


def _joint_root(q: Float[Array, "size n"], root: Float[Array, "size size"]) -> Float[Array, "n n"]:
    """I + Qᵀ (R - I) Q, which is a root of the covariance of (v, ζ)."""
    excess = root - jnp.eye(root.shape[0], dtype=root.dtype)
    return jnp.eye(q.shape[1], dtype=q.dtype) + q.T @ (excess @ q)


def _output_of(trace: Trace, output: Atom) -> Callable[..., Array | np.ndarray]:
    """An output that does not depend on θ, as a function of the inputs; a constant function if its value is known."""
    known = known_value(trace, output)
    return part_of(trace, output) if known is None else lambda *inputs: known
