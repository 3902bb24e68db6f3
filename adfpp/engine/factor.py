"""Factors: an observed site's elements, each with its field and the rule that computes its tilted moments.

Between the trace of a row (``field``) and the kernel: elements of a site whose fields are alike form one group, so that
a row with a hundred independent elements compiles once, not a hundred times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from adfpp.engine.linalg import whiten
from adfpp.engine.tilt import ClosedForm, Conditional, Moments, MonteCarlo, Quadrature, Tilted, whole_line
from adfpp.engine.trace.split import (
    Cut,
    Degree,
    Reach,
    Trace,
    affine_part,
    behind_alone,
    depends_on,
    gaussian_but_for,
    known_value,
    part_of,
    reach,
    smallest_cut,
    tail_part,
)


class Observation(NamedTuple):
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
        components: For each element what it has to do with local latents (``numbers``: places of its own among the
            row's continuous ones); empty for a site that no local latent touches.
        terms: ``(J, E)`` output whose log-sum-exp over J > 1 combinations of discrete local values is ``log_prob``.
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
    components: tuple[Any, ...] = ()
    terms: Any = None


class LocalBase(NamedTuple):
    """Where a row's continuous local numbers z stand in the traced vector (θ, z), and their Gaussian base.

    Attributes:
        start: Length of θ.
        mean: ``(m,)`` output.
        sd: ``(m,)`` output.
    """

    start: int
    mean: Any
    sd: Any


class LocalMoments(NamedTuple):
    """A row's posterior of the local latents of one factor.

    Attributes:
        mean: ``(m,)`` of the factor's own continuous numbers.
        sd: ``(m,)``.
        weights: ``(J,)`` probabilities of the combinations of discrete values.
    """

    mean: jax.Array
    sd: jax.Array
    weights: jax.Array


class LocalRules(NamedTuple):
    """What can be asked of a row's factor beside its tilt.

    Attributes:
        marginal: ``marginal(e, field (k,)) -> ()``: its log-density at a fixed θ, the local latents integrated out.
        posterior: ``posterior(e, mean (k,), scale (k, k)) -> LocalMoments`` given a cavity of the field.
    """

    marginal: Callable[[Any, jax.Array], jax.Array]
    posterior: Callable[[Any, jax.Array, jax.Array], LocalMoments]


@dataclass(frozen=True)
class LocalFactor:
    """What local latents have to do with the factors of a group.

    Attributes:
        components: One an element, as the model room describes them.
        numbers: How many continuous local numbers each factor has of its own.
        combinations: How many combinations of discrete values are summed over.
        prepare: ``prepare(*inputs) -> LocalRules``.
    """

    components: tuple[Any, ...]
    numbers: int
    combinations: int
    prepare: Callable[..., LocalRules]


@dataclass(frozen=True, eq=False)
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
        prepare: ``prepare(*inputs) -> tilt`` with ``tilt(e, mean (k,), scale (k, k), power=None) -> Tilted``; closed
            forms know the whole factor only, power None, and so do factors with continuous local latents: a power of
            a marginal is not the marginal of a power. A tilt that ``draws`` takes a key after that.
        local: Of factors that local latents enter.
        density: ``density(*inputs) -> (log_factor, marks)``: ``log_factor(h (k,), e)`` is the factor's log-density.
        reach: Which coordinates of θ the numbers of the fields read.
    """

    name: str
    elements: tuple[int, ...]
    field_size: int
    field: str
    rule: ClosedForm | Quadrature | Conditional | MonteCarlo
    why: str
    matrices: Callable[..., tuple[jax.Array, jax.Array]]
    flags: Callable[..., tuple[jax.Array, jax.Array, jax.Array]]
    prepare: Callable[..., Callable[..., Tilted]]
    local: LocalFactor | None = None
    density: Callable[..., Any] | None = None
    reach: Callable[[Sequence[np.ndarray]], Reach] | None = None

    @property
    def count(self) -> int:
        """Number of factors in the group."""
        return len(self.elements)

    @property
    def divisible(self) -> bool:
        """Whether the tilt takes a power."""
        return not isinstance(self.rule, ClosedForm) and not (self.local is not None and self.local.numbers)

    @property
    def draws(self) -> bool:
        """Whether the tilt takes a key for random points."""
        return isinstance(self.rule, MonteCarlo)


def build_factors(
    trace: Trace,
    sites: Sequence[Observation],
    moments: Moments,
    names: Sequence[tuple[str, slice]],
    base: LocalBase | None = None,
) -> list[FactorGroup]:
    """Groups every element of every observed site by field and rule.

    Args:
        trace: Of one row: ``f(theta, *inputs)``; with a base, of ``f((θ, z), *inputs)``.
        sites: Where in its outputs each observed site stands.
        moments: How tilted moments are to be computed.
        names: Latent sites and where each stands in θ, for the description of fields.
        base: Of the continuous local numbers z, if there are any.
    """
    groups = []
    for site in sites:
        closed = _closed_cuts(trace, site)
        if closed is not None and moments.closed:
            groups += _grouped(trace, site, closed, moments, names, site.closed, base)
        else:
            cuts = [smallest_cut(trace, site.log_prob, e) for e in range(site.count)]
            groups += _grouped(trace, site, cuts, moments, names, None, base)
    return groups


def _closed_cuts(trace: Trace, site: Observation) -> list[Cut] | None:
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
    site: Observation,
    cuts: list[Cut],
    moments: Moments,
    names: Sequence[tuple[str, slice]],
    form: ClosedForm | None,
    base: LocalBase | None,
) -> list[FactorGroup]:
    alike: dict[tuple, list[int]] = {}
    for e, cut in enumerate(cuts):
        own = len(site.components[e].numbers) if site.components else 0
        # which numbers of the field θ enters; of a field with local latents alone it says nothing
        entered = tuple(_entered(trace, cut, base))
        alike.setdefault((cut.values, tuple(len(i) for i in cut.indices), own, entered), []).append(e)
    groups = []
    for (*_, own, entered), elements in alike.items():
        members = [cuts[e] for e in elements]
        whole = len(entered)
        rule, why = moments.choose(whole, form)
        if form is not None and rule is form:
            tilts = _closed_prepare(trace, site, elements, form)
            behind = None
        else:
            behind = tail_part(trace, members, site.log_prob, elements)
            left = gaussian_but_for(trace, members[0], site.log_prob) if whole > 1 and moments.max_quadrature else None
            if left is not None and isinstance(moments.quadrature, Quadrature):
                rule = Conditional(None if left < 0 else left, moments.quadrature)
                why = "Gaussian: by algebra" if left < 0 else "1-dimensional integral: Gaussian in the rest"
            tilts = _general_prepare(behind, rule)
        outer = np.flatnonzero(entered)
        prepare, local = tilts, None
        if site.components:
            terms = _terms(trace, site, members, elements)
            asked = _Asked(own, outer, rule, moments.choose(max(own, 1), None)[0])
            prepare, local = _with_locals(trace, site, members, elements, base, asked, (tilts, behind, terms))
            if own:
                why = f"{why}, {own} local number{'s' if own > 1 else ''} in it"
                if isinstance(rule, Quadrature) and whole > 1 >= len(outer):
                    rule = replace(rule, report=rule.report_tensor)  # the field is small, the integral is not
        groups.append(
            FactorGroup(
                site.name,
                tuple(elements),
                len(outer),
                _describe(trace, members[0], names),
                rule,
                why,
                _matrices(trace, members, outer, base),
                _flags(trace, site, elements),
                prepare,
                local,
                behind if behind is not None else _separated(trace, members, site.log_prob, elements),
                partial(reach, trace, members),
            )
        )
    return groups


def _separated(trace: Trace, cuts: list[Cut], output: Any, elements: list[int]) -> Callable[..., Any] | None:
    """What lies behind a closed form's field, if the log-density depends on θ by way of it alone."""
    if not behind_alone(trace, cuts[0].values, output):
        return None
    return tail_part(trace, cuts, output, elements)


def _entered(trace: Trace, cut: Cut, base: LocalBase | None) -> list[bool]:
    """For each number of a field, whether θ enters it."""
    out: list[bool] = []
    for value, indices in zip(cut.values, cut.indices, strict=True):
        if base is None:
            out += [True] * len(indices)
        elif value is trace.theta:
            out += [bool(i < base.start) for i in indices]
        else:
            out += [bool(depends_on(trace, value)[: base.start].any())] * len(indices)
    return out


def _matrices(
    trace: Trace, cuts: list[Cut], outer: np.ndarray, base: LocalBase | None
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """The field's numbers that θ enters, at z = 0."""
    if not len(outer):

        def nothing(theta: jax.Array, *inputs: Any) -> tuple[jax.Array, jax.Array]:
            return jnp.zeros((len(cuts), 0, theta.shape[0]), theta.dtype), jnp.zeros((len(cuts), 0), theta.dtype)

        return nothing
    whole = affine_part(trace, cuts)
    if base is None:
        return whole
    more = trace.theta.aval.shape[0] - base.start

    def matrices(theta: jax.Array, *inputs: Any) -> tuple[jax.Array, jax.Array]:
        matrix, field = whole(jnp.pad(theta, (0, more)), *inputs)
        if len(outer) == field.shape[1]:
            return matrix[:, :, : base.start], field
        return matrix[:, outer, : base.start], field[:, outer]

    return matrices


def _flags(
    trace: Trace, site: Observation, elements: list[int]
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


def _general_prepare(behind: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    """Tilts by integrating what lies behind the cut."""

    def prepare(*inputs: Any) -> Callable[[Any, jax.Array, jax.Array], Tilted]:
        log_factor, marks = behind(*inputs)

        def tilt(e: Any, mean: jax.Array, scale: jax.Array, power: Any = None, key: Any = None) -> Tilted:
            def raised(h: jax.Array) -> jax.Array:
                value = log_factor(h, e).astype(mean.dtype)
                return value if power is None else power * value

            if mean.shape[0] == 0:  # the row says nothing about θ, only about the evidence
                return Tilted(raised(mean), mean, scale, jnp.zeros((), mean.dtype))
            if isinstance(rule, MonteCarlo):
                return rule(raised, mean, scale, None, key)
            return rule(raised, mean, scale, marks(mean.dtype, e))

        return tilt

    return prepare


def _closed_prepare(trace: Trace, site: Observation, elements: list[int], form: ClosedForm) -> Callable[..., Any]:
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

        def tilt(e: Any, mean: jax.Array, scale: jax.Array, power: Any = None) -> Tilted:
            assert power is None, "a closed form knows the whole factor only"
            arguments = [_constant_at(k, chosen, e) if v is None else v[e] for k, v in zip(known, varying, strict=True)]
            out = rule(values[e], mean, scale, *arguments)
            log_z, shift, root, error = (jnp.asarray(a, mean.dtype) for a in out[:4])
            return Tilted(log_z, shift, root, error)

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


# ------------------------------------------------------------------------------------------ local latents


class _Asked(NamedTuple):
    """How the factors of a group are integrated.

    Attributes:
        own: How many local numbers each has.
        outer: Which numbers of the joint field θ enters.
        rule: For the joint field.
        inner_rule: For the local numbers alone.
    """

    own: int
    outer: np.ndarray
    rule: Any
    inner_rule: Any


def _terms(
    trace: Trace, site: Observation, cuts: list[Cut], elements: list[int]
) -> tuple[int, Callable[..., Any] | None]:
    """J, and ``prepare(*inputs) -> f(j, h, e)``: the log of one combination's share of a factor; (1, None) without."""
    if site.terms is None:
        return 1, None
    count = site.terms.aval.shape[0]
    each = [tail_part(trace, cuts, site.terms, [j * site.count + e for e in elements]) for j in range(count)]

    def prepare(*inputs: Any) -> Callable[[int, jax.Array, Any], jax.Array]:
        ready = [behind(*inputs)[0] for behind in each]
        return lambda j, h, e: ready[j](h, e).astype(h.dtype)

    return count, prepare


def _with_locals(
    trace: Trace,
    site: Observation,
    cuts: list[Cut],
    elements: list[int],
    base: LocalBase | None,
    asked: _Asked,
    parts: tuple[Callable[..., Any], Callable[..., Any] | None, tuple[int, Callable[..., Any] | None]],
) -> tuple[Callable[..., Any], LocalFactor]:
    """Tilts of the part of the field that θ enters, by the rule for the joint field of θ and the local numbers.

    Given the cavity N(mean, T Tᵀ) of θ's part and the base N(z0, s0²), the joint field is h = c + [T, B s0] (v, ζ) with
    (v, ζ) ~ N(0, I). With [T, B s0] = L Q, Q of orthonormal rows, the rule sees h = c + L u and gives u's mean d and
    covariance R Rᵀ; then (v, ζ) has mean Qᵀ d and the covariance root I + Qᵀ (R - I) Q.
    """
    tilts, behind, (combinations, terms) = parts
    own, outer, rule, inner_rule = asked
    numbers = np.array([site.components[e].numbers for e in elements], int).reshape(len(elements), own)
    fields = affine_part(trace, cuts) if own and cuts[0].size and base is not None else None
    size, k = cuts[0].size, len(outer)

    def prepare_joint(*inputs: Any) -> tuple[Any, Any]:
        """The prepared tilt of the joint field, and functions that give it from θ's part of it."""
        tilt = tilts(*inputs)
        if fields is None or base is None:

            def plain(e: Any, mean: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
                nothing = jnp.full(own, jnp.nan, mean.dtype)
                return mean, jnp.zeros((size, 0), mean.dtype), nothing, nothing

            return tilt, plain
        mean_of, sd_of = (_output_of(trace, o) for o in (base.mean, base.sd))
        z0, s0 = mean_of(*inputs), sd_of(*inputs)
        whole, start = fields, base.start

        def at(z: jax.Array) -> jax.Array:
            return whole(jnp.concatenate([jnp.zeros(start, z.dtype), z]), *inputs)[1]

        zero = jnp.zeros(trace.theta.aval.shape[0] - start, trace.theta.aval.dtype)
        offset, matrix = at(zero), jax.jacfwd(at)(zero)  # (E, size), (E, size, m)

        def joint(e: Any, mean: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
            """(c, B s0, z0, s0) of one element at this mean of θ's part."""
            places = numbers[0] if (numbers == numbers[:1]).all() else jnp.asarray(numbers)[e]
            shift, spread = (jnp.asarray(a, mean.dtype)[places] for a in (z0, s0))
            b = matrix[e][:, places].astype(mean.dtype)
            centre = offset[e].astype(mean.dtype).at[outer].set(mean) + b @ shift
            return centre, b * spread, shift, spread

        return tilt, joint

    def whitened(scale: jax.Array, spread: jax.Array) -> tuple[jax.Array, jax.Array]:
        """L and Q of [T, B s0]."""
        top = scale if k == size else jnp.zeros((size, k), scale.dtype).at[outer].set(scale)
        return whiten(jnp.concatenate([top, spread], 1))

    def prepare(*inputs: Any) -> Callable[..., Tilted]:
        tilt, joint = prepare_joint(*inputs)
        if not own or not size:
            return tilt

        def marginal_tilt(e: Any, mean: jax.Array, scale: jax.Array, power: Any = None, key: Any = None) -> Tilted:
            if power is not None:
                raise ValueError(
                    f"A power of the factor of {site.name!r} is asked for, whose local latents are integrated out with "
                    "θ in one go: power < 1 with continuous local latents is not supported. Use power=1."
                )
            centre, spread, _, _ = joint(e, mean)
            lower, q = whitened(scale, spread)
            found = tilt(e, centre, lower) if key is None else tilt(e, centre, lower, None, key)
            if not isinstance(found, Tilted):
                raise ValueError(
                    f"The limit of power 0 is asked for the factor of {site.name!r}, whose local latents are "
                    "integrated out with θ in one go: it is not supported with continuous local latents. Use power=1."
                )
            if k == 0:
                return found._replace(shift=mean, root=scale)
            return found._replace(shift=q[:, :k].T @ found.shift, root=field_root(_joint_root(q, found.root)[:k]))

        return marginal_tilt

    def prepare_rules(*inputs: Any) -> LocalRules:
        tilt, joint = prepare_joint(*inputs)
        log_factor = None if behind is None else behind(*inputs)[0]
        of_term = None if terms is None else terms(*inputs)

        def marginal(e: Any, field: jax.Array) -> jax.Array:
            centre, spread, _, _ = joint(e, field)
            if log_factor is None or 0 < size <= own:
                return tilt(e, centre, whiten(spread)[0]).log_z
            of = partial(log_factor, e=e)
            if not own or not size:
                return of(centre).astype(field.dtype)
            zero, one = jnp.zeros(own, field.dtype), jnp.eye(own, dtype=field.dtype)
            return inner_rule(lambda zeta: of(centre + spread @ zeta).astype(field.dtype), zero, one).log_z

        def posterior(e: Any, mean: jax.Array, scale: jax.Array) -> LocalMoments:
            centre, spread, shift, sd = joint(e, mean)
            lower, q = whitened(scale, spread)
            weights = jnp.ones(1, mean.dtype)
            if of_term is not None:
                shares = []
                for of in (partial(of_term, j, e=e) for j in range(combinations)):
                    shares.append(rule(of, centre, lower, None).log_z if size else of(centre))
                weights = jax.nn.softmax(jnp.stack(shares))
            if not own or not size:
                return LocalMoments(shift, sd, weights)
            found = tilt(e, centre, lower)
            root = _joint_root(q, found.root)[k:]
            moved = shift + sd * (q[:, k:].T @ found.shift)
            return LocalMoments(moved, sd * jnp.sqrt(jnp.sum(root * root, 1)), weights)

        return LocalRules(marginal, posterior)

    return prepare, LocalFactor(tuple(site.components[e] for e in elements), own, combinations, prepare_rules)


def _joint_root(q: jax.Array, root: jax.Array) -> jax.Array:
    """I + Qᵀ (R - I) Q: a root of the covariance of (v, ζ)."""
    excess = root - jnp.eye(root.shape[0], dtype=root.dtype)
    return jnp.eye(q.shape[1], dtype=q.dtype) + q.T @ (excess @ q)


def _output_of(trace: Trace, output: Any) -> Callable[..., Any]:
    """An output that does not depend on θ: its value if that is known, else a function of the inputs."""
    known = known_value(trace, output)
    return part_of(trace, output) if known is None else lambda *inputs: known


def field_root(f: jax.Array) -> jax.Array:
    """Lower triangular L ``(k, k)`` with L Lᵀ = F Fᵀ for F ``(k, n)``."""
    return jnp.sqrt(jnp.sum(f * f, 1, keepdims=True)) if f.shape[0] == 1 else whiten(f)[0]


class ReadyFactor:
    """A factor group at one row: what depends on the row alone is computed, and a cavity can be tilted.

    Args:
        factor: The group.
        inputs: The row's arrays with a leading axis of 1, and the shared arrays.
        key: For moments made of random points; the same points in every call when None.
    """

    def __init__(self, factor: FactorGroup, inputs: Sequence[Any], key: jax.Array | None) -> None:
        self.factor, self.inputs, self.key = factor, inputs, key
        prepared = factor.prepare(*inputs)

        def drawing(element: Any, mean: jax.Array, scale: jax.Array, power: Any = None) -> Any:
            return prepared(element, mean, scale, power, self.key_of(element))

        #: ``tilt(element, mean, scale, power=None)``: tilted moments of one element's field under a cavity
        self.tilt: Callable[..., Any] = drawing if key is not None and factor.draws else prepared

    def key_of(self, element: Any) -> jax.Array | None:
        """The key of one element."""
        return None if self.key is None else jax.random.fold_in(self.key, element)

    def log_density(self) -> Callable[[jax.Array, Any], jax.Array]:
        """``log_density(h (k,), element) -> ()``.

        Where a closed form hides the density, it is the log normaliser of a cavity without width.
        """
        if self.factor.density is not None:
            return self.factor.density(*self.inputs)[0]

        def at(h: jax.Array, element: Any) -> jax.Array:
            return self.tilt(element, h, jnp.zeros((h.shape[0], h.shape[0]), h.dtype)).log_z

        return at
