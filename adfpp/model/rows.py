"""What one row of a model puts out, traced and cut into factors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from adfpp.engine.factor import FactorGroup, LocalBase, Observation
from adfpp.engine.grouping import build_factors
from adfpp.engine.tilt import Moments
from adfpp.engine.trace import Trace, trace
from adfpp.model.arguments import Layout, Model
from adfpp.model.closed_forms import closed_form
from adfpp.model.local import (
    Component,
    LocalLatent,
    LocalPlan,
    base_log_density,
    evaluated_once,
    exact_base,
    plan_locals,
    prior_draws,
    prior_elements,
)
from adfpp.model.program import Latent, substitution
from adfpp.model.visit import Visit, elements, quiet, visit


class RowOutputs:
    """The outputs of one row, as a function of ((θ, z), *inputs), with a record of which is which.

    Args:
        model: The model.
        layout: How its arguments split.
        sites: Latent sites of θ.
        local: Latent sites of the row, whose continuous numbers z follow θ.
    """

    def __init__(
        self, model: Model, layout: Layout, sites: Sequence[Latent], local: Sequence[LocalLatent] = ()
    ) -> None:
        self.model, self.layout, self.latents, self.local = model, layout, sites, tuple(local)
        self.plan: LocalPlan | None = None
        self.record: list[dict[str, Any]] = []
        self.base: tuple[int, int] | None = None
        start = sum(s.size for s in sites)
        self.continuous = tuple(
            Latent(s.name, s.shape, s.unconstrained_shape, slice(start + s.where.start, start + s.where.stop), 0, None)
            for s in local
            if s.support is None
        )

    def plan_locals(self, dtype: Any, inputs: Sequence[Any]) -> None:
        """Finds out how the local sites are integrated out."""
        if self.local:
            start = sum(s.size for s in self.latents)
            self.plan = plan_locals(self.seen, self._draw, self.local, start, dtype, inputs)

    def seen(self, theta: jax.Array, inputs: Sequence[Any], discrete: Mapping[str, Any] | None = None) -> Visit:
        """Visits the model at (θ, z) and these values of its discrete local sites, with one row's arrays."""
        places = substitution((*self.latents, *self.continuous), theta)

        def values(site: dict[str, Any]) -> Any:
            if discrete is not None and site["type"] == "sample" and site["name"] in discrete:
                return jnp.asarray(discrete[site["name"]])
            return places(site)

        return visit(self.model, self._bound(inputs), values)

    def _draw(self, key: jax.Array, inputs: Sequence[Any]) -> dict[str, dict[str, Any]]:
        """Visits the model with every latent site drawn from its prior."""
        return visit(self.model, self._bound(inputs), prior_draws(key)).latents

    def _bound(self, inputs: Sequence[Any]) -> dict[str, Any]:
        rows = sum(k == "row" for k in self.layout.kinds)
        return self.layout.rebuild(inputs[:rows], inputs[rows:])

    def __call__(self, theta: jax.Array, *inputs: Any) -> list[jax.Array]:
        """The outputs, flat; ``record`` says which is which."""
        self.record, self.base = [], None
        outputs: list[jax.Array] = []

        def put(a: Any) -> int:
            outputs.append(jnp.asarray(a))
            return len(outputs) - 1

        if self.plan is None:
            for name, site in self.seen(theta, inputs).observed.items():
                self.record.append(self._entry(name, site, put))
            return outputs
        visits = [self.seen(theta, inputs, self.plan.values(j)) for j in range(self.plan.visits)]
        joined = {name for c in self.plan.components for name in c.names}
        for name, site in visits[0].observed.items():
            if name not in joined:
                members = self.plan.separate.get(name, ())
                self.record.append(self._entry(name, site, put) | {"components": members})
        mean, sd = self._base(visits[0], inputs)
        if self.plan.size:
            self.base = put(mean), put(sd)
        shares = [_shares(v, self.plan, theta) for v in visits]
        beside = base_log_density(self.plan, theta, mean, sd)
        alike: dict[tuple, list[Component]] = {}
        for c in self.plan.components:
            alike.setdefault((c.names, len(c.combinations)), []).append(c)
        for (names, count), members in alike.items():
            self.record.append(self._joined(names, shares[:count], members, beside, put))
        return outputs

    def _base(self, seen: Visit, inputs: Sequence[Any]) -> tuple[jax.Array, jax.Array]:
        """Mean and sd ``(m,)`` of the continuous local numbers' base."""
        assert self.plan is not None
        mean, sd = (jnp.asarray(a, float) for a in self.plan.base(*inputs))
        for s in self.plan.latents:
            if s.exact:
                own = exact_base(seen.latents[s.name], s)
                mean, sd = mean.at[s.where].set(own[0]), sd.at[s.where].set(own[1])
        return mean, sd

    def _joined(
        self,
        names: tuple[str, ...],
        shares: "Sequence[_Shares]",
        members: Sequence[Component],
        beside: Sequence[tuple[jax.Array, int]],
        put: Callable[[Any], int],
    ) -> dict[str, Any]:
        """Components with the same sites and as many combinations, as the elements of one output."""
        assert self.plan is not None
        exact = {i for s in self.plan.latents if s.exact for i in range(s.where.start, s.where.stop)}

        def term(c: Component, share: _Shares) -> jax.Array:
            total = _some(share.log_prob, c.observed) + _some(share.prior, c.priors)
            return total - sum(_one(*beside[i]) for i in c.numbers if i not in exact)

        terms = jnp.stack([jnp.stack([term(c, share) for c in members]) for share in shares])
        log_prob = terms[0]
        if len(shares) > 1:
            # written out: where all terms are -inf there is no NaN
            top = jax.lax.stop_gradient(jnp.max(terms, 0))
            top = jnp.where(jnp.isfinite(top), top, 0.0)
            log_prob = jnp.log(jnp.sum(jnp.exp(terms - top), 0)) + top
        entry: dict[str, Any] = {"name": ", ".join(names), "count": len(members), "closed": None}
        entry["log_prob"], entry["components"] = put(log_prob), tuple(members)
        entry["terms"] = put(terms) if len(shares) > 1 else None

        def flags(of: str, share: _Shares) -> list[jax.Array]:
            found: dict[str, Any] = getattr(share, of)
            return [jnp.stack([_one(found[n], e) for n, e in c.observed]) for c in members]

        counted = flags("counted", shares[0])
        entry["counted"] = put(jnp.stack([jnp.any(a) for a in counted]))
        each = [[jnp.all(a | ~there) for a, there in zip(flags("supported", s), counted, strict=True)] for s in shares]
        entry["supported"] = put(jnp.stack([jnp.any(jnp.stack(a)) for a in zip(*each, strict=True)]))
        finite = zip(flags("finite", shares[0]), counted, strict=True)
        entry["finite"] = put(jnp.stack([jnp.all(a | ~there) for a, there in finite]))
        return entry

    def _entry(self, name: str, site: dict[str, Any], put: Callable[[Any], int]) -> dict[str, Any]:
        """The outputs of one observed site."""
        fn, value = site["fn"], jnp.asarray(site["value"])
        each = elements(fn, value)
        count = each.log_prob.size
        shape = each.log_prob.shape
        entry: dict[str, Any] = {"name": name, "count": count, "log_prob": put(each.log_prob.reshape(-1))}
        entry["counted"] = None if each.mask is None else put(jnp.broadcast_to(each.mask, shape).reshape(-1))
        auxiliary = isinstance(each.inner, dist.Unit)
        event = () if auxiliary else tuple(each.inner.event_shape)
        full = shape + event
        if auxiliary:
            entry["supported"] = entry["finite"] = None
        else:
            value = jnp.broadcast_to(value, full)
            inside = _inside(each.inner, value, shape)
            entry["supported"] = None if inside is None else put(inside)
            entry["finite"] = put(_all_finite(value, count))
        form = None if auxiliary else closed_form(each.inner)
        entry["closed"] = form
        if form is not None:
            entry["value"] = put(value.reshape((count, *event)))
            field = jnp.broadcast_to(getattr(each.inner, form.field), full[: len(shape) + form.event_dim])
            entry["field"] = put(field.reshape((count, *event[: form.event_dim])))
            entry["constants"] = [
                put(self._per_element(getattr(each.inner, c), each.inner, c, shape, count)) for c in form.constants
            ]
        return entry

    @staticmethod
    def _per_element(parameter: Any, inner: Any, name: str, shape: tuple[int, ...], count: int) -> jax.Array:
        parameter = jnp.asarray(parameter)
        event_dim = getattr(inner.arg_constraints.get(name), "event_dim", 0)
        event = parameter.shape[parameter.ndim - event_dim :] if event_dim else ()
        return jnp.broadcast_to(parameter, shape + event).reshape((count, *event))

    def described(self, outputs: Sequence[Any]) -> list[Observation]:
        """The record with the trace's variables in the places of positions."""

        def at(i: int | None) -> Any:
            return None if i is None else outputs[i]

        return [
            Observation(
                r["name"],
                r["count"],
                at(r["log_prob"]),
                at(r["counted"]),
                at(r["supported"]),
                at(r["finite"]),
                r["closed"],
                at(r.get("value")),
                at(r.get("field")),
                tuple(at(c) for c in r.get("constants", ())),
                r.get("components", ()),
                at(r.get("terms")),
            )
            for r in self.record
        ]

    def described_base(self, outputs: Sequence[Any]) -> LocalBase | None:
        """The base of the continuous local numbers, as the trace's variables."""
        if self.base is None or self.plan is None:
            return None
        return LocalBase(self.plan.start, outputs[self.base[0]], outputs[self.base[1]])


class _Shares(NamedTuple):
    """What one visit has of each site's elements, all flat: ``{site: (E,)}``."""

    log_prob: dict[str, jax.Array]
    counted: dict[str, jax.Array]
    supported: dict[str, jax.Array]
    finite: dict[str, jax.Array]
    prior: dict[str, jax.Array]


def _shares(seen: Visit, plan: LocalPlan, theta: jax.Array) -> _Shares:
    out = _Shares({}, {}, {}, {}, {})
    for name in dict.fromkeys(n for c in plan.components for n in c.names):
        fn, value = seen.observed[name]["fn"], jnp.asarray(seen.observed[name]["value"])
        each = elements(fn, value)
        count, shape = each.log_prob.size, each.log_prob.shape
        every = jnp.ones(count, bool)
        out.counted[name] = every if each.mask is None else jnp.broadcast_to(each.mask, shape).reshape(-1)
        out.supported[name] = out.finite[name] = every
        log_prob = each.log_prob.reshape(-1)
        if not isinstance(each.inner, dist.Unit):
            value = jnp.broadcast_to(value, shape + tuple(each.inner.event_shape))
            inside = _inside(each.inner, value, shape)
            out.supported[name] = every if inside is None else inside
            out.finite[name] = _all_finite(value, count)
        out.log_prob[name] = log_prob if each.mask is None else jnp.where(out.counted[name], log_prob, 0.0)
    for s in plan.latents:
        out.prior[s.name] = prior_elements(seen.latents[s.name], s, theta, plan.start)
    return out


def _some(arrays: Mapping[str, jax.Array], chosen: Sequence[tuple[str, int]]) -> jax.Array:
    """Sum of some elements of some arrays."""
    total = jnp.zeros(())
    for name in dict.fromkeys(n for n, _ in chosen):
        mine, array = [e for n, e in chosen if n == name], arrays[name]
        if len(mine) == array.shape[0]:
            total = total + jnp.sum(array)
        else:
            total = total + sum(_one(array, e) for e in mine)
    return total


def _one(array: jax.Array, e: int) -> jax.Array:
    return jax.lax.index_in_dim(array, e, keepdims=False)


def _inside(inner: Any, value: jax.Array, shape: tuple[int, ...]) -> jax.Array | None:
    """Whether each element lies in its support, flat; None where the support cannot tell."""
    try:
        with quiet():
            return jnp.broadcast_to(inner.support(value), shape).reshape(-1)
    except NotImplementedError:
        return None


def _all_finite(value: jax.Array, count: int) -> jax.Array:
    finite = jnp.isfinite(value) if jnp.issubdtype(value.dtype, jnp.inexact) else jnp.ones(value.shape, bool)
    return jnp.all(finite.reshape((count, -1)), -1)


def analyse(
    row_outputs: RowOutputs, theta: Any, inputs: Sequence[Any], moments: Moments, sites: Sequence[Latent]
) -> tuple[Trace, list[FactorGroup]]:
    """Traces a row and cuts it; keeps custom derivatives whole unless looking into them makes a field smaller."""
    names = [(s.name, s.where) for s in (*sites, *row_outputs.continuous)]
    best: tuple[Trace, list[FactorGroup]] | None = None
    for look_inside in (False, True):
        outputs = row_outputs if row_outputs.plan is None else evaluated_once(row_outputs)
        traced = trace(outputs, theta, *inputs, look_inside=look_inside)
        described = row_outputs.described(traced.outputs)
        base = row_outputs.described_base(traced.outputs)
        factors = build_factors(traced, described, moments, names, base)
        total = sum(g.field_size * g.count for g in factors)
        if best is None or total < sum(g.field_size * g.count for g in best[1]):
            best = traced, factors
        if look_inside or not any(e.primitive.name.startswith("custom_") for e in traced.equations):
            break
    assert best is not None
    return best
