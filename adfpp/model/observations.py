"""One row of a model as a traced function: its observed elements, and the factors that it is cut into."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions.transforms import IdentityTransform

from adfpp.engine.factor import Factor, LocalBase, Observation
from adfpp.engine.grouping import build_factors
from adfpp.engine.tilt import ClosedForm, Moments
from adfpp.engine.trace import Atom, Trace, trace
from adfpp.model.arguments import Model
from adfpp.model.closed_forms import closed_form
from adfpp.model.elements import AnyDistribution, Elements, elements, is_discrete, is_factor
from adfpp.model.indices import Inside, index_checks
from adfpp.model.latents import Latent, substitution
from adfpp.model.layout import Layout
from adfpp.model.local import (
    Component,
    LocalLatent,
    LocalPlan,
    base_log_density,
    exact_base,
    plan_locals,
    prior_elements,
)
from adfpp.model.visit import Sampled, Visit, prior_draws_of, quiet, visit

Put = Callable[[ArrayLike], int]  # keeps an array as an output of the row and returns its position


class _Entry(NamedTuple):
    """An ``Observation`` of the engine, with positions among the row's outputs in the place of traced values."""

    name: str
    count: int
    log_prob: int
    counted: int | None
    supported: int | None
    finite: int | None
    closed: ClosedForm | None = None
    value: int | None = None
    field: int | None = None
    constants: tuple[int, ...] = ()
    components: tuple[Component, ...] = ()
    terms: int | None = None
    discrete: bool = False

    def observation(self, outputs: Sequence[Atom]) -> Observation:
        """The entry with the trace's variables in the places of positions."""

        def at(i: int | None) -> Any:
            return None if i is None else outputs[i]

        return Observation(
            self.name,
            self.count,
            at(self.log_prob),
            at(self.counted),
            at(self.supported),
            at(self.finite),
            self.closed,
            at(self.value),
            at(self.field),
            tuple(at(c) for c in self.constants),
            self.components,
            at(self.terms),
            self.discrete,
        )


class _Outputs(NamedTuple):
    """The outputs of one row.

    Attributes:
        arrays: The outputs themselves.
        entries: Which of them describe which observation.
        base: Positions of the mean and sd of the continuous local numbers' base, if there are such numbers.
    """

    arrays: list[jax.Array]
    entries: list[_Entry]
    base: tuple[int, int] | None


@dataclass(frozen=True)
class RowModel:
    """A model of one row, as a function of ((θ, z), *inputs).

    Attributes:
        model: The model.
        layout: How its arguments are split.
        latents: The latents that all rows share, in the order of θ.
        local: Local latents, whose continuous numbers z follow θ.
        plan: How the local latents are integrated out, once that is known.
        without: Observations that are left out, because they belong to no row.
        selections: For each entry of the outputs, a check of the indices that it depends on, once that is known.
    """

    model: Model
    layout: Layout
    latents: tuple[Latent, ...]
    local: tuple[LocalLatent, ...] = ()
    plan: LocalPlan | None = None
    without: frozenset[str] = frozenset()
    selections: tuple[Inside | None, ...] = ()

    @property
    def continuous(self) -> tuple[Latent, ...]:
        """The continuous local latents, as latents with places in (θ, z)."""
        start = sum(latent.size for latent in self.latents)
        return tuple(
            Latent(
                s.name,
                s.shape,
                s.unconstrained_shape,
                slice(start + s.where.start, start + s.where.stop),
                0,
                IdentityTransform(),
            )
            for s in self.local
            if s.support is None
        )

    def planned(self, dtype: np.dtype, inputs: Sequence[jax.ShapeDtypeStruct]) -> "RowModel":
        """This row model with a plan of how its local latents are integrated out."""
        if not self.local:
            return self
        start = sum(latent.size for latent in self.latents)
        plan = plan_locals(self.visit, self._draw, self.local, start, dtype, inputs)
        return replace(self, local=plan.latents, plan=plan)

    def checked(self, theta: jax.ShapeDtypeStruct, inputs: Sequence[jax.ShapeDtypeStruct]) -> "RowModel":
        """This row model with checks of the indices that a row selects with."""
        kept: list[_Outputs] = []

        def arrays(flat: jax.Array, *rest: ArrayLike) -> list[jax.Array]:
            kept.append(self.outputs(flat, rest))
            return kept[-1].arrays

        rows = 0 if self.layout.whole else len(self.layout.leaf_names("row"))
        checks = index_checks(arrays, theta, inputs, rows)
        return replace(self, selections=tuple(checks[entry.log_prob] for entry in kept[-1].entries))

    def visit(
        self, theta: jax.Array, inputs: Sequence[ArrayLike], discrete: Mapping[str, ArrayLike] | None = None
    ) -> Visit:
        """Visits the model at (θ, z) and these values of its discrete local latents, with one row's arrays."""
        continuous = substitution((*self.latents, *self.continuous), theta)

        def values(name: str, fn: AnyDistribution) -> ArrayLike | None:
            if discrete is not None and name in discrete:
                return jnp.asarray(discrete[name])
            return continuous(name, fn)

        return visit(self.model, self.layout.rebuild_from(inputs), values).without(self.without)

    def _draw(self, key: jax.Array, inputs: Sequence[ArrayLike]) -> dict[str, Sampled]:
        """The latents of one row, drawn from their priors."""
        return visit(self.model, self.layout.rebuild_from(inputs), prior_draws_of(key)).latents

    def outputs(self, theta: jax.Array, inputs: Sequence[ArrayLike]) -> _Outputs:
        """The outputs of one row, from which its factors are built."""
        found = self._outputs(theta, inputs)
        for i, inside in enumerate(self.selections):
            if inside is None:
                continue
            entry, ok = found.entries[i], inside(*inputs)
            ok = jnp.broadcast_to(ok, (entry.count,))
            found.arrays.append(ok if entry.supported is None else ok & found.arrays[entry.supported])
            found.entries[i] = entry._replace(supported=len(found.arrays) - 1)
        return found

    def _outputs(self, theta: jax.Array, inputs: Sequence[ArrayLike]) -> _Outputs:
        arrays: list[jax.Array] = []

        def put(a: ArrayLike) -> int:
            arrays.append(jnp.asarray(a))
            return len(arrays) - 1

        if self.plan is None:
            seen = self.visit(theta, inputs)
            return _Outputs(arrays, [_entry(observed, put) for observed in seen.observations.values()], None)
        plan = self.plan
        visits = [self.visit(theta, inputs, plan.values(j)) for j in range(plan.visits)]
        joined = {name for c in plan.components for name in c.names}
        entries = [
            _entry(observed, put)._replace(components=plan.separate.get(name, ()))
            for name, observed in visits[0].observations.items()
            if name not in joined
        ]
        mean, sd = _base(plan, visits[0], inputs)
        base = (put(mean), put(sd)) if plan.size else None
        shares = [_shares(v, plan, theta) for v in visits]
        beside = base_log_density(plan.latents, plan.start, plan.size, theta, mean, sd)
        alike: dict[tuple[tuple[str, ...], int], list[Component]] = {}
        for c in plan.components:
            alike.setdefault((c.names, len(c.combinations)), []).append(c)
        for (names, count), members in alike.items():
            discrete = all(is_discrete(visits[0].observations[n].fn) for n in names)
            entries.append(_joined(plan, names, shares[:count], members, beside, put)._replace(discrete=discrete))
        return _Outputs(arrays, entries, base)


def traced_factors(
    row_model: RowModel, theta: jax.ShapeDtypeStruct, inputs: Sequence[jax.ShapeDtypeStruct], moments: Moments
) -> tuple[Trace, list[Factor]]:
    """Traces a row and cuts it. Functions with custom derivatives stay whole, unless a field is smaller without."""
    names = [(latent.name, latent.where) for latent in (*row_model.latents, *row_model.continuous)]
    best: tuple[Trace, list[Factor]] | None = None
    for look_inside in (False, True):
        kept: list[_Outputs] = []

        def arrays(flat: jax.Array, *rest: ArrayLike, kept: list[_Outputs] = kept) -> list[jax.Array]:
            kept.append(row_model.outputs(flat, rest))
            return kept[-1].arrays

        traced = trace(arrays, theta, *inputs, look_inside=look_inside)
        observations = [entry.observation(traced.outputs) for entry in kept[-1].entries]
        base = None
        if kept[-1].base is not None and row_model.plan is not None:
            base = LocalBase(row_model.plan.start, *(traced.outputs[i] for i in kept[-1].base))
        gaussian = all(latent.native is None for latent in row_model.latents)
        factors = build_factors(traced, observations, moments, names, base, combined=gaussian)
        if best is None or _numbers(factors) < _numbers(best[1]):
            best = traced, factors
        if look_inside or not any(e.primitive.name.startswith("custom_") for e in traced.equations):
            break
    assert best is not None
    return best


def _numbers(factors: Sequence[Factor]) -> int:
    """Sum of the sizes of all fields."""
    return sum(group.field_size * group.count for group in factors)


# ------------------------------------------------------------------------------------------ one observation


def _entry(observed: Sampled, put: Put) -> _Entry:
    """The outputs of one observation, each of whose elements is a factor of its own."""
    value = jnp.asarray(observed.value)
    each = elements(observed.fn, value)
    count = each.log_prob.size
    entry = _Entry(observed.name, count, put(each.log_prob.reshape(-1)), None, None, None)
    if each.mask is not None:
        entry = entry._replace(counted=put(each.counted().reshape(-1)))
    if is_factor(each.inner):
        return entry
    event = tuple(each.inner.event_shape)
    full = each.shape + event
    value = jnp.broadcast_to(value, full)
    inside = _in_support(each, value)
    entry = entry._replace(
        supported=None if inside is None else put(inside),
        finite=put(_all_finite(value, each.shape)),
        discrete=is_discrete(each.inner),
    )
    form = closed_form(each.inner)
    if form is None:
        return entry
    positions = put(value.reshape((count, *event)))
    field = jnp.broadcast_to(getattr(each.inner, form.field), full[: len(each.shape) + form.event_dim])
    return entry._replace(
        closed=form,
        value=positions,
        field=put(field.reshape((count, *event[: form.event_dim]))),
        constants=tuple(put(_per_element(each, c, count)) for c in form.constants),
    )


def _per_element(each: Elements, parameter_name: str, count: int) -> jax.Array:
    """A distribution's parameter ``(count, *event)``, repeated for each element."""
    parameter = jnp.asarray(getattr(each.inner, parameter_name))
    event_dim = getattr(each.inner.arg_constraints.get(parameter_name), "event_dim", 0)
    event = parameter.shape[parameter.ndim - event_dim :] if event_dim else ()
    return jnp.broadcast_to(parameter, each.shape + event).reshape((count, *event))


def _in_support(each: Elements, value: jax.Array) -> jax.Array | None:
    """Whether each element lies in its support, ``(E,)``; None if the support cannot be checked."""
    try:
        with quiet():
            return jnp.broadcast_to(each.inner.support(value), each.shape).reshape(-1)
    except NotImplementedError:
        return None


def _all_finite(value: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Whether all numbers of each element are finite, ``(E,)``, for elements of this shape."""
    finite = jnp.isfinite(value) if jnp.issubdtype(value.dtype, jnp.inexact) else jnp.ones(value.shape, bool)
    return jnp.all(finite, tuple(range(len(shape), value.ndim))).reshape(-1)


# ------------------------------------------------------------------------------------------ with local latents


class _Shares(NamedTuple):
    """The contributions of one visit, all flat: by observation, and by local latent for ``prior``; each ``(E,)``."""

    log_prob: dict[str, jax.Array]
    counted: dict[str, jax.Array]
    supported: dict[str, jax.Array]
    finite: dict[str, jax.Array]
    prior: dict[str, jax.Array]


def _shares(seen: Visit, plan: LocalPlan, theta: jax.Array) -> _Shares:
    out = _Shares({}, {}, {}, {}, {})
    for name in dict.fromkeys(n for c in plan.components for n in c.names):
        value = jnp.asarray(seen.observations[name].value)
        each = elements(seen.observations[name].fn, value)
        if each.mask is not None:
            each = elements(seen.observations[name].fn, possible_where_masked(each, value))
        count = each.log_prob.size
        every = jnp.ones(count, bool)
        out.counted[name] = every if each.mask is None else each.counted().reshape(-1)
        out.supported[name] = out.finite[name] = every
        if not is_factor(each.inner):
            value = jnp.broadcast_to(value, each.shape + tuple(each.inner.event_shape))
            inside = _in_support(each, value)
            out.supported[name] = every if inside is None else inside
            out.finite[name] = _all_finite(value, each.shape)
        log_prob = each.log_prob.reshape(-1)
        out.log_prob[name] = log_prob if each.mask is None else jnp.where(out.counted[name], log_prob, 0.0)
    for s in plan.latents:
        out.prior[s.name] = prior_elements(seen.latents[s.name], s, theta, plan.start)
    return out


def possible_where_masked(each: Elements, value: jax.Array) -> jax.Array:
    """The value, with masked elements replaced by numbers in the support.

    Masked elements do not count, but some rules differentiate a sum that contains them, and the derivative of a density
    at NaN would make the derivatives for the other elements NaN, too.
    """
    event = tuple(each.inner.event_shape)
    value = jnp.broadcast_to(value, each.shape + event)
    try:
        possible = each.inner.support.feasible_like(value)
    except NotImplementedError:
        return value
    return jnp.where(each.counted().reshape(each.shape + (1,) * len(event)), value, possible)


def _base(plan: LocalPlan, seen: Visit, inputs: Sequence[ArrayLike]) -> tuple[jax.Array, jax.Array]:
    """Mean and sd ``(m,)`` of the continuous local numbers' base."""
    mean, sd = (jnp.asarray(a, float) for a in plan.base(*inputs))
    for s in plan.latents:
        if s.exact:
            prior_mean, prior_sd = exact_base(seen.latents[s.name], s)
            mean, sd = mean.at[s.where].set(prior_mean), sd.at[s.where].set(prior_sd)
    return mean, sd


def _joined(
    plan: LocalPlan,
    names: tuple[str, ...],
    shares: Sequence[_Shares],
    members: Sequence[Component],
    beside: Sequence[tuple[jax.Array, int]],
    put: Put,
) -> _Entry:
    """Components with the same observations and the same number of combinations, as the elements of one output."""
    exact = {i for s in plan.latents if s.exact for i in s.places}

    def term(c: Component, share: _Shares) -> jax.Array:
        total = _sum_of(share.log_prob, c.observed) + _sum_of(share.prior, c.priors)
        return total - sum(_one(*beside[i]) for i in c.numbers if i not in exact)

    terms = jnp.stack([jnp.stack([term(c, share) for c in members]) for share in shares])
    log_prob = terms[0]
    if len(shares) > 1:
        # The log-sum-exp is written out, so that it is -inf and not NaN where all terms are -inf.
        top = jax.lax.stop_gradient(jnp.max(terms, 0))
        top = jnp.where(jnp.isfinite(top), top, 0.0)
        log_prob = jnp.log(jnp.sum(jnp.exp(terms - top), 0)) + top
    log_prob_at = put(log_prob)
    terms_at = put(terms) if len(shares) > 1 else None

    def flags(by_name: Mapping[str, jax.Array]) -> list[jax.Array]:
        return [jnp.stack([_one(by_name[n], e) for n, e in c.observed]) for c in members]

    counted = flags(shares[0].counted)
    counted_at = put(jnp.stack([jnp.any(a) for a in counted]))
    each = [[jnp.all(a | ~there) for a, there in zip(flags(s.supported), counted, strict=True)] for s in shares]
    supported_at = put(jnp.stack([jnp.any(jnp.stack(a)) for a in zip(*each, strict=True)]))
    finite = zip(flags(shares[0].finite), counted, strict=True)
    finite_at = put(jnp.stack([jnp.all(a | ~there) for a, there in finite]))
    return _Entry(
        ", ".join(names),
        len(members),
        log_prob_at,
        counted_at,
        supported_at,
        finite_at,
        components=tuple(members),
        terms=terms_at,
    )


def _sum_of(arrays: Mapping[str, jax.Array], chosen: Sequence[tuple[str, int]]) -> jax.Array:
    """Sum of some elements of some arrays."""
    total = jnp.zeros(())
    for name in dict.fromkeys(n for n, _ in chosen):
        places, array = [e for n, e in chosen if n == name], arrays[name]
        if len(places) == array.shape[0]:
            total = total + jnp.sum(array)
        else:
            total = total + sum(_one(array, e) for e in places)
    return total


def _one(array: jax.Array, e: int) -> jax.Array:
    return jax.lax.index_in_dim(array, e, keepdims=False)
