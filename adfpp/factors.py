"""Factors: an observed site's elements, each with its field and the rule that computes its tilted moments.

Between the trace of a row (``field``) and the kernel: elements of a site whose fields are alike form one group, so that
a row with a hundred independent elements compiles once, not a hundred times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from adfpp.field import (
    Cut,
    Degree,
    Trace,
    affine_part,
    depends_on,
    known_value,
    part_of,
    smallest_cut,
    tail_part,
)
from adfpp.tilt import ClosedForm, Moments, MonteCarlo, Quadrature, Tilted, whole_line


class SiteOutputs(NamedTuple):
    """Which outputs of a traced row describe one observed site; all flattened to its E independent elements.

    Attributes:
        name: The site.
        count: E.
        log_prob: ``(E,)`` output.
        counted: ``(E,)`` booleans: not masked out.
        supported: ``(E,)`` booleans: the value lies in the support.
        finite: ``(E,)`` booleans: the value is finite.
        closed: The closed form registered for the distribution, if any, with
        value: ``(E, *event)``,
        field: ``(E,)`` or ``(E, k)``,
        constants: each with leading axis E.
    """

    name: str
    count: int
    log_prob: Any
    counted: Any
    supported: Any
    finite: Any
    closed: ClosedForm | None = None
    value: Any = None
    field: Any = None
    constants: tuple[Any, ...] = ()


@dataclass(frozen=True)
class FactorGroup:
    """Elements of one observed site with fields of the same kind and size.

    Attributes:
        name: The site.
        elements: Which of its elements.
        field_size: k.
        field: What the field is made of, in words.
        rule: What computes the tilted moments.
        why: The reason for that rule, in words.
        matrices: ``matrices(theta, *inputs) -> (A (E, k, N), h (E, k))``: the fields are h at theta and change by
            ``A @ change``.
        flags: ``flags(*inputs) -> (counted, supported, finite)``, each ``(E,)`` booleans: not masked out, value in the
            support, value finite.
        prepare: ``prepare(*inputs) -> tilt`` with ``tilt(e, mean (k,), scale (k, k)) -> Tilted``.
    """

    name: str
    elements: tuple[int, ...]
    field_size: int
    field: str
    rule: ClosedForm | Quadrature | MonteCarlo
    why: str
    matrices: Callable[..., tuple[jax.Array, jax.Array]]
    flags: Callable[..., tuple[jax.Array, jax.Array, jax.Array]]
    prepare: Callable[..., Callable[[Any, jax.Array, jax.Array], Tilted]]

    @property
    def count(self) -> int:
        """Number of factors in the group."""
        return len(self.elements)


def build_factors(
    trace: Trace, sites: Sequence[SiteOutputs], moments: Moments, names: Sequence[tuple[str, slice]]
) -> list[FactorGroup]:
    """Groups every element of every observed site by field and rule.

    Args:
        trace: Of one row: ``f(theta, *inputs)``.
        sites: Where in its outputs each observed site stands.
        moments: How tilted moments are to be computed.
        names: Latent sites and where each stands in θ, for the description of fields.
    """
    groups = []
    for site in sites:
        closed = _closed_cuts(trace, site)
        if closed is not None and moments.closed:
            groups += _grouped(trace, site, closed, moments, names, site.closed)
        else:
            cuts = [smallest_cut(trace, site.log_prob, e) for e in range(site.count)]
            groups += _grouped(trace, site, cuts, moments, names, None)
    return groups


def _closed_cuts(trace: Trace, site: SiteOutputs) -> list[Cut] | None:
    """The fields for a closed form, if its parameters depend on θ as it needs."""
    if site.closed is None:
        return None
    fixed = (*site.constants, site.value, *([] if site.counted is None else [site.counted]))
    constant = all(_degree(trace, c) == Degree.CONSTANT for c in fixed)
    if not constant or _degree(trace, site.field) != Degree.AFFINE:
        return None
    size = int(np.prod(site.field.aval.shape)) // site.count
    return [Cut((site.field,), (np.arange(e * size, (e + 1) * size),)) for e in range(site.count)]


def _degree(trace: Trace, output: Any) -> Degree:
    """A literal is in no table, and constant."""
    return Degree.CONSTANT if isinstance(output, Literal) else trace.degrees[output]


def _grouped(
    trace: Trace,
    site: SiteOutputs,
    cuts: list[Cut],
    moments: Moments,
    names: Sequence[tuple[str, slice]],
    form: ClosedForm | None,
) -> list[FactorGroup]:
    alike: dict[tuple, list[int]] = {}
    for e, cut in enumerate(cuts):
        alike.setdefault((cut.values, tuple(len(i) for i in cut.indices)), []).append(e)
    groups = []
    for elements in alike.values():
        members = [cuts[e] for e in elements]
        size = members[0].size
        rule, why = moments.choose(size, form)
        if form is not None and rule is form:
            prepare = _closed_prepare(trace, site, elements, form)
        else:
            prepare = _general_prepare(trace, site, members, elements, rule)
        groups.append(
            FactorGroup(
                site.name,
                tuple(elements),
                size,
                _describe(trace, members[0], names),
                rule,
                why,
                _matrices(trace, members),
                _flags(trace, site, elements),
                prepare,
            )
        )
    return groups


def _matrices(trace: Trace, cuts: list[Cut]) -> Callable[..., tuple[jax.Array, jax.Array]]:
    if cuts[0].size:
        return affine_part(trace, cuts)

    def nothing(theta: jax.Array, *inputs: Any) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros((len(cuts), 0, theta.shape[0]), theta.dtype), jnp.zeros((len(cuts), 0), theta.dtype)

    return nothing


def _flags(
    trace: Trace, site: SiteOutputs, elements: list[int]
) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    """What depends on θ is left to the log-density to judge."""
    chosen = np.asarray(elements)

    def flag(output: Any) -> Callable[..., jax.Array]:
        if output is None or _degree(trace, output) != Degree.CONSTANT:
            return lambda *inputs: jnp.ones(len(chosen), bool)
        evaluate = part_of(trace, output)
        return lambda *inputs: jnp.asarray(evaluate(*inputs))[chosen]

    counted, supported, finite = flag(site.counted), flag(site.supported), flag(site.finite)
    return lambda *inputs: (counted(*inputs), supported(*inputs), finite(*inputs))


def _general_prepare(
    trace: Trace, site: SiteOutputs, cuts: list[Cut], elements: list[int], rule: Any
) -> Callable[..., Any]:
    """Tilts by integrating what lies behind the cut."""
    behind = tail_part(trace, cuts, site.log_prob, elements)

    def prepare(*inputs: Any) -> Callable[[Any, jax.Array, jax.Array], Tilted]:
        log_factor, marks = behind(*inputs)

        def tilt(e: Any, mean: jax.Array, scale: jax.Array) -> Tilted:
            if mean.shape[0] == 0:  # the row says nothing about θ, only about the evidence
                return Tilted(log_factor(mean, e).astype(mean.dtype), mean, scale, jnp.zeros((), mean.dtype))
            return rule(lambda h: log_factor(h, e).astype(mean.dtype), mean, scale, marks(mean.dtype, e))

        return tilt

    return prepare


def _closed_prepare(trace: Trace, site: SiteOutputs, elements: list[int], form: ClosedForm) -> Callable[..., Any]:
    """Tilts by the distribution's own closed form."""
    rule = form.rule if form.event_dim else whole_line(form.rule)
    value = part_of(trace, site.value)
    known = [known_value(trace, c) for c in site.constants]
    constants = [part_of(trace, c) for c in site.constants]
    chosen = np.asarray(elements)

    def prepare(*inputs: Any) -> Callable[[Any, jax.Array, jax.Array], Tilted]:
        values = jnp.asarray(value(*inputs))[chosen]
        varying = [
            jnp.asarray(c(*inputs))[chosen] if k is None else None for c, k in zip(constants, known, strict=True)
        ]

        def tilt(e: Any, mean: jax.Array, scale: jax.Array) -> Tilted:
            arguments = [_constant_at(k, chosen, e) if v is None else v[e] for k, v in zip(known, varying, strict=True)]
            out = rule(values[e], mean, scale, *arguments)
            return Tilted(*(jnp.asarray(a, mean.dtype) for a in out))

        return tilt

    return prepare


def _constant_at(known: Any, elements: np.ndarray, e: Any) -> Any:
    """Element e of a parameter known when the program is built: a NumPy value wherever it can stay one."""
    mine = known[elements]
    if len(mine) == 1 or np.all(mine == mine[:1]):
        return mine[0]
    return jnp.asarray(mine)[e]


def _describe(trace: Trace, cut: Cut, names: Sequence[tuple[str, slice]]) -> str:
    """What a field is made of: for each value cut through, its size and the latent sites that enter it."""
    pieces = []
    for value, indices in zip(cut.values, cut.indices, strict=True):
        touched = depends_on(trace, value)
        sites = [name for name, where in names if touched[where].any()]
        count = len(indices)
        if value is trace.theta:
            sites = [name for name, where in names if np.isin(np.arange(where.start, where.stop), indices).any()]
        exact = value is trace.theta or (len(sites) == 1 and _only_moves(trace, value))
        words = ", ".join(sites) if exact else f"affine in {', '.join(sites)}"
        pieces.append(f"{words} ({count})" if count > 1 else words)
    return "; ".join(pieces) if pieces else "none: the row does not depend on the latent sites"


def _only_moves(trace: Trace, value: Any) -> bool:
    """Whether a value is latent variables as they are, merely picked out."""
    while value is not trace.theta:
        eqn = trace.equations[trace.producers[value]]
        if eqn.primitive.name not in (
            "slice",
            "squeeze",
            "reshape",
            "gather",
            "broadcast_in_dim",
            "dynamic_slice",
            "copy",
        ):
            return False
        value = eqn.invars[0]
    return True
