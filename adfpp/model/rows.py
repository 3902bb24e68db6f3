"""What one row of a model puts out, traced and cut into factors."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from adfpp.factors import FactorGroup, SiteOutputs, build_factors
from adfpp.field import Trace, trace
from adfpp.model.arguments import Layout, Model
from adfpp.model.program import LatentSite, substitution
from adfpp.model.visit import Visit, elements, quiet, visit
from adfpp.tilt import Moments, closed_form


class RowOutputs:
    """The outputs of one row, as a function of (θ, *inputs), with a record of which is which."""

    def __init__(self, model: Model, layout: Layout, sites: Sequence[LatentSite]) -> None:
        self.model, self.layout, self.sites = model, layout, sites
        self.record: list[dict[str, Any]] = []

    def seen(self, theta: jax.Array, inputs: Sequence[Any]) -> Visit:
        """Visits the model at θ, with one row's arrays."""
        rows = sum(k == "row" for k in self.layout.kinds)
        bound = self.layout.rebuild(inputs[:rows], inputs[rows:])
        return visit(self.model, bound, substitution(self.sites, theta))

    def __call__(self, theta: jax.Array, *inputs: Any) -> list[jax.Array]:
        """The outputs, flat; ``record`` says which is which."""
        self.record = []
        outputs: list[jax.Array] = []

        def put(a: Any) -> int:
            outputs.append(jnp.asarray(a))
            return len(outputs) - 1

        for name, site in self.seen(theta, inputs).observed.items():
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
                entry["supported"] = self._supported(each.inner, value, shape, put)
                finite = jnp.isfinite(value) if jnp.issubdtype(value.dtype, jnp.inexact) else jnp.ones(full, bool)
                entry["finite"] = put(jnp.all(finite.reshape((count, -1)), -1))
            form = None if auxiliary else closed_form(each.inner)
            entry["closed"] = form
            if form is not None:
                entry["value"] = put(value.reshape((count, *event)))
                field = jnp.broadcast_to(getattr(each.inner, form.field), full[: len(shape) + form.event_dim])
                entry["field"] = put(field.reshape((count, *event[: form.event_dim])))
                entry["constants"] = [
                    put(self._per_element(getattr(each.inner, c), each.inner, c, shape, count)) for c in form.constants
                ]
            self.record.append(entry)
        return outputs

    @staticmethod
    def _supported(inner: Any, value: jax.Array, shape: tuple[int, ...], put: Callable[[Any], int]) -> int | None:
        try:
            with quiet():
                inside = inner.support(value)
        except NotImplementedError:
            return None
        return put(jnp.broadcast_to(inside, shape).reshape(-1))

    @staticmethod
    def _per_element(parameter: Any, inner: Any, name: str, shape: tuple[int, ...], count: int) -> jax.Array:
        parameter = jnp.asarray(parameter)
        event_dim = getattr(inner.arg_constraints.get(name), "event_dim", 0)
        event = parameter.shape[parameter.ndim - event_dim :] if event_dim else ()
        return jnp.broadcast_to(parameter, shape + event).reshape((count, *event))

    def described(self, outputs: Sequence[Any]) -> list[SiteOutputs]:
        """The record with the trace's variables in the places of positions."""

        def at(i: int | None) -> Any:
            return None if i is None else outputs[i]

        return [
            SiteOutputs(
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
            )
            for r in self.record
        ]


def analyse(
    row_outputs: RowOutputs, theta: Any, inputs: Sequence[Any], moments: Moments, sites: Sequence[LatentSite]
) -> tuple[Trace, list[FactorGroup]]:
    """Traces a row and cuts it; keeps custom derivatives whole unless looking into them makes a field smaller."""
    names = [(s.name, s.where) for s in sites]
    best: tuple[Trace, list[FactorGroup]] | None = None
    for look_inside in (False, True):
        traced = trace(row_outputs, theta, *inputs, look_inside=look_inside)
        described = row_outputs.described(traced.outputs)
        factors = build_factors(traced, described, moments, names)
        total = sum(g.field_size * g.count for g in factors)
        if best is None or total < sum(g.field_size * g.count for g in best[1]):
            best = traced, factors
        if look_inside or not any(e.primitive.name.startswith("custom_") for e in traced.equations):
            break
    assert best is not None
    return best
