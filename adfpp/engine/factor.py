"""Factors: the elements of an observation, each with its field and the rule that computes its tilted moments.

A factor of a row is a function of its field: a small vector of numbers that are affine in θ. Elements of an observation
whose fields are alike are put into one ``Factor``, so that a row with a hundred independent elements is compiled once,
and not a hundred times.

``build_factors`` makes the factors of a traced row: ``ClosedFactor`` where a closed form applies, else
``IntegralFactor``, and ``LocalFactor`` (in ``local_factor``) around either where latents of the row itself enter.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from adfpp.engine.tilt import ClosedForm, Index, IntegralRule, Message, Rule, Tilt, Tilted, whole_line
from adfpp.engine.trace import (
    Atom,
    Cut,
    Degree,
    Fields,
    Reach,
    Reduced,
    Tail,
    Trace,
    affine_part,
    behind_alone,
    depends_on,
    known_value,
    nudged,
    part_of,
    reach_of_cuts,
)

if TYPE_CHECKING:
    from adfpp.engine.local_factor import LocalFactor

_Output: TypeAlias = Callable[..., Array | np.ndarray]  # an output of the trace, as a function of the inputs
Flags = tuple[Bool[Array, " E"], Bool[Array, " E"], Bool[Array, " E"]]


class Observation(NamedTuple):
    """The outputs of a traced row that describe one observation, flattened to its E independent elements.

    Attributes:
        name: The name of the observation.
        count: The number E of elements.
        log_prob: ``(E,)`` log-densities.
        counted: ``(E,)`` booleans: the element is not masked out.
        supported: ``(E,)`` booleans: the value lies in the support.
        finite: ``(E,)`` booleans: the value is finite.
        closed: The closed form registered for the distribution, if any. Its arguments are
        value: ``(E, *event)`` the observed value,
        field: ``(E,)`` or ``(E, k)`` the parameter that is affine in θ,
        constants: and the other parameters, each with leading axis E.
        components: For each element the local latents that enter it, as the model package describes them
            (``numbers``: its places among the row's continuous local numbers). Empty if no element has any.
        terms: ``(J, E)`` output whose log-sum-exp over J > 1 combinations of discrete local values is ``log_prob``.
        discrete: Whether the observed values are discrete, so that ``log_prob`` is the log of a probability.
    """

    name: str
    count: int
    log_prob: Atom
    counted: Atom | None
    supported: Atom | None
    finite: Atom | None
    closed: ClosedForm | None = None
    value: Any = None
    field: Any = None
    constants: tuple[Atom, ...] = ()
    components: tuple[Any, ...] = ()
    terms: Any = None
    discrete: bool = False


class LocalBase(NamedTuple):
    """The place of a row's continuous local numbers z in the traced vector (θ, z), and their Gaussian base.

    Attributes:
        start: Length of θ.
        mean: ``(m,)`` mean of the base.
        sd: ``(m,)`` standard deviation of the base.
    """

    start: int
    mean: Atom
    sd: Atom


@dataclass(frozen=True, eq=False, kw_only=True)
class Factor(ABC):
    """Elements of one observation with fields of the same kind and size. The kernel visits them one after the other.

    Attributes:
        trace: The trace of a row, ``f(theta, *inputs)``; with a base it is ``f((θ, z), *inputs)``.
        observation: The outputs of the trace that describe the observation.
        elements: The places of the elements in the observation.
        cuts: The field of each element; all are cut through the same values.
        rule: The rule that computes the tilted moments.
        why: The reason for that rule, in words.
        field: A description of the field, in words.
        base: The Gaussian base of the row's continuous local numbers, if there are any.
        reduced: The smaller field, if the factor is constant in some directions of the cuts' numbers.
    """

    trace: Trace
    observation: Observation
    elements: tuple[int, ...]
    cuts: tuple[Cut, ...]
    rule: Rule
    why: str
    field: str
    base: LocalBase | None = None
    reduced: Reduced | None = None

    # -------------------------------------------------------------------------------------- properties

    @property
    def name(self) -> str:
        """The name of the observation."""
        return self.observation.name

    @property
    def count(self) -> int:
        """The number of elements."""
        return len(self.elements)

    @property
    def field_size(self) -> int:
        """The number k of scalars in the field of an element."""
        return len(self.outer) if self.reduced is None else len(self.reduced.places)

    @property
    def divisible(self) -> bool:
        """Whether the tilt can use a power of the factor."""
        return self.rule.divisible

    @property
    def draws(self) -> bool:
        """Whether the tilt takes a key for random points."""
        return self.rule.draws

    @property
    def local(self) -> "LocalFactor | None":
        """The factor itself if local latents of the row enter it, else None."""
        return None

    # ------------------------------------------------------------------------------------------ field

    @cached_property
    def outer(self) -> Int[np.ndarray, " k"]:
        """Places in the cut of the numbers that belong to the field: those that depend on θ."""
        entered = entered_by_theta(self.trace, self.cuts[0], self.base)
        return np.flatnonzero(entered)

    @cached_property
    def fields(self) -> Callable[..., Fields]:
        """The numbers of the cuts, as affine functions of the traced vector."""
        return affine_part(self.trace, self.cuts)

    def matrices(self, theta: Float[Array, " N"], *inputs: ArrayLike) -> Fields:
        """Computes A and h of all fields: the field at ``theta + d`` is ``h + A @ d``. Local numbers are 0.

        Args:
            theta: The θ at which h is computed; A does not depend on it.
            inputs: The row's arrays and the shared ones.

        Returns:
            ``(A, h)``.
        """
        if not len(self.outer):
            empty = jnp.zeros((self.count, 0, theta.shape[0]), theta.dtype)
            return empty, jnp.zeros((self.count, 0), theta.dtype)
        if self.base is None:
            matrix, field = self.fields(theta, *inputs)
            if self.reduced is None:
                return matrix, field
            change = jnp.asarray(self.reduced.matrix, field.dtype)
            return jnp.einsum("rk,ekn->ern", change, matrix), field @ change.T
        matrix, field = self.fields(jnp.pad(theta, (0, self.trace.size - self.base.start)), *inputs)
        matrix = matrix[:, :, : self.base.start]
        if len(self.outer) == field.shape[1]:
            return matrix, field
        return matrix[:, self.outer], field[:, self.outer]

    def reach(self, parts: Sequence[np.ndarray]) -> Reach:
        """Which coordinates of θ, and of some parts of it, the numbers of the fields read."""
        whole = reach_of_cuts(self.trace, self.cuts, parts)
        if self.reduced is None:
            return whole
        used = self.reduced.matrix != 0.0
        touched = used @ whole.touched
        most = np.minimum(used @ whole.most, [len(part) for part in parts])
        return Reach(touched, most)

    # ------------------------------------------------------------------------------------------ values

    def flags(self, *inputs: ArrayLike) -> Flags:
        """For each element: whether it is not masked out, its value is in the support, its value is finite.

        A flag that depends on θ counts as true, because the log-density contains the same information.
        """
        counted, supported, finite = (self._flag(part, inputs) for part in self._flag_parts)
        return counted, supported, finite

    def _flag(self, part: _Output | None, inputs: Sequence[ArrayLike]) -> Bool[Array, " E"]:
        if part is None:
            return jnp.ones(self.count, bool)
        return jnp.asarray(part(*inputs))[np.asarray(self.elements)]

    @cached_property
    def _flag_parts(self) -> list[_Output | None]:
        outputs = (self.observation.counted, self.observation.supported, self.observation.finite)
        constant = [o is not None and self.trace.degree(o) == Degree.CONSTANT for o in outputs]
        return [part_of(self.trace, o) if o is not None and c else None for o, c in zip(outputs, constant, strict=True)]

    @property
    @abstractmethod
    def tail(self) -> Tail | None:
        """The log-density of the elements as a function of the field; None if the field does not determine it."""

    @abstractmethod
    def prepare(self, *inputs: ArrayLike) -> Tilt:
        """Prepares the tilt of the elements at one row."""


def entered_by_theta(trace: Trace, cut: Cut, base: LocalBase | None) -> list[bool]:
    """Whether each number of a cut depends on θ, and not on local numbers alone."""
    return [True] * cut.size if base is None else _entered(trace, cut, slice(base.start))


def entered_by_locals(trace: Trace, cut: Cut, base: LocalBase | None) -> list[bool]:
    """Whether each number of a cut depends on local numbers."""
    return [False] * cut.size if base is None else _entered(trace, cut, slice(base.start, None))


def _entered(trace: Trace, cut: Cut, places: slice) -> list[bool]:
    """Whether each number of a cut depends on these places of the traced vector."""
    entered: list[bool] = []
    for value, indices in zip(cut.values, cut.indices, strict=True):
        if value is trace.theta:
            entered += np.isin(indices, np.arange(trace.size)[places]).tolist()
        else:
            entered += [bool(depends_on(trace, value)[places].any())] * len(indices)
    return entered


# ------------------------------------------------------------------------------------------------ kinds


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegralFactor(Factor):
    """A factor whose moments are integrals of its log-density.

    Attributes:
        rule: The rule that computes them.
    """

    rule: IntegralRule

    @cached_property
    def tail(self) -> Tail:
        """The log-density of the elements as a function of the field."""
        return Tail(self.trace, self.cuts, self.observation.log_prob, self.elements, self.reduced)

    def both_ways(self, theta: Float[Array, " N"], *inputs: ArrayLike) -> Float[Array, "3 E"]:
        """Log-densities at one θ and row, with the whole field, the reduced one, and the whole one nudged."""
        whole = Tail(self.trace, self.cuts, self.observation.log_prob, self.elements)(*inputs).log_factor
        h, elements = self.fields(theta, *inputs)[1], jnp.arange(self.count)
        reduced = jax.vmap(self.tail(*inputs).log_factor)(self.matrices(theta, *inputs)[1], elements)
        return jnp.stack([jax.vmap(whole)(h, elements), reduced, jax.vmap(whole)(nudged(h), elements)])

    def prepare(self, *inputs: ArrayLike) -> Tilt:
        """Prepares the tilt of the elements at one row."""
        tail = self.tail(*inputs)

        def tilt(
            e: Index,
            mean: Float[Array, " k"],
            scale: Float[Array, "k k"],
            power: Float[Array, ""] | float | None = None,
            key: PRNGKeyArray | None = None,
        ) -> Tilted | Message:
            def raised(h: Float[Array, " k"]) -> Float[Array, ""]:
                value = tail.log_factor(h, e).astype(mean.dtype)
                return value if power is None else power * value

            if mean.shape[0] == 0:  # no information about θ: the factor contributes only to the evidence
                return Tilted(raised(mean), mean, scale, jnp.zeros((), mean.dtype))
            landmarks = None if self.rule.draws else tail.landmarks(mean.dtype, e)
            return self.rule(raised, mean, scale, landmarks, key)

        return tilt


@dataclass(frozen=True, eq=False, kw_only=True)
class ClosedFactor(Factor):
    """A factor whose moments are given by the closed form of its distribution.

    Attributes:
        rule: The closed form.
    """

    rule: ClosedForm

    @cached_property
    def tail(self) -> Tail | None:
        """The log-density as a function of the field; None if it depends on θ also in another way."""
        if not behind_alone(self.trace, self.cuts[0].values, self.observation.log_prob):
            return None
        return Tail(self.trace, self.cuts, self.observation.log_prob, self.elements)

    def prepare(self, *inputs: ArrayLike) -> Tilt:
        """Prepares the tilt of the elements at one row, for the whole factor and not for a power of it."""
        rule = self.rule.rule if self.rule.event_dim else whole_line(self.rule.rule)
        value, constants = self._arguments
        chosen = np.asarray(self.elements)
        values = jnp.asarray(value(*inputs))[chosen]
        # values that are known when the program is built stay NumPy values, so that the rule can branch on them
        arguments = [c[chosen] if isinstance(c, np.ndarray) else jnp.asarray(c(*inputs))[chosen] for c in constants]

        def tilt(
            e: Index,
            mean: Float[Array, " k"],
            scale: Float[Array, "k k"],
            power: Float[Array, ""] | float | None = None,
            key: PRNGKeyArray | None = None,
        ) -> Tilted:
            assert power is None, "a closed form is for the whole factor, not for a power of it"
            out = rule(values[e], mean, scale, *(_entry(a, e) for a in arguments))
            log_z, shift, root, error = (jnp.asarray(a, mean.dtype) for a in out[:4])
            return Tilted(log_z, shift, root, error)

        return tilt

    @cached_property
    def _arguments(
        self,
    ) -> tuple[_Output, list[np.ndarray | _Output]]:
        """The value and the constants: NumPy values if they are known, else functions of the inputs."""
        constants: list[np.ndarray | _Output] = []
        for output in self.observation.constants:
            known = known_value(self.trace, output)
            constants.append(part_of(self.trace, output) if known is None else known)
        return part_of(self.trace, self.observation.value), constants


def _entry(argument: Array | np.ndarray, e: Index) -> Any:
    """Entry e of an array; a NumPy value if all entries are known and equal."""
    if isinstance(argument, np.ndarray):
        if len(argument) == 1 or np.all(argument == argument[:1]):
            return argument[0]
        return jnp.asarray(argument)[e]
    return argument[e]


# ------------------------------------------------------------------------------------------------ at one row


class ReadyFactor:
    """A factor at one row. Everything that depends only on the row is computed once, for all cavities.

    Args:
        factor: The factor.
        inputs: The row's arrays with a leading axis of 1, and the shared arrays.
        key: The key for random points; when None, the points are the same in every call.
    """

    def __init__(self, factor: Factor, inputs: Sequence[ArrayLike], key: PRNGKeyArray | None) -> None:
        self.factor, self.inputs, self.key = factor, inputs, key
        self._prepared = factor.prepare(*inputs)

    def tilt(
        self,
        element: Index,
        mean: Float[Array, " k"],
        scale: Float[Array, "k k"],
        power: Float[Array, ""] | float | None = None,
    ) -> Any:
        """Computes the tilted moments of one element's field in a cavity; with ``rule.power_limit`` its message."""
        key = self.key_of(element) if self.factor.draws else None
        return self._prepared(element, mean, scale, power, key)

    def key_of(self, element: Index) -> PRNGKeyArray | None:
        """The key of one element."""
        return None if self.key is None else jax.random.fold_in(self.key, element)

    def log_density(self) -> Callable[..., Float[Array, ""]]:
        """``log_density(h, element)``: the log-density of an element at a field.

        If the field does not determine it, it is the log of the factor's expectation under a cavity of width 0.
        """
        tail = self.factor.tail
        if tail is not None:
            return tail(*self.inputs).log_factor

        def at(h: Float[Array, " k"], element: Index = 0) -> Float[Array, ""]:
            return self.tilt(element, h, jnp.zeros((h.shape[0], h.shape[0]), h.dtype)).log_z

        return at
