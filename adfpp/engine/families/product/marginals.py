"""What a factor says to each part of a product belief: its tilted marginals.

The field ``h = A θ + b`` of a factor is a sum over the parts. Three kinds of parts enter it, in their own ways:

- a *few* components, over which the factor is summed and integrated by their families' own quadratures, or drawn;
- a *crowd* of many independent components, whose sum is Gaussian by the central limit theorem, the more so the more
  they are. Component i, held at s while the others stay random, moves the field by a (s - m): it sees the factor
  ``log Z(μ + a (s - m))``, whose expansion has the tilted moments of the field for coefficients,
  ``d·a (s - m) + (a (s - m))² (M - 1) / 2`` in the whitened field (first order in each component's share, O(N) a row),
  or is evaluated as it is with the component's own variance left out (*one out*);
- Gaussian blocks, which are Gaussian in the field as they are.

Given the few, the rest is a Gaussian field, and the rules of ``tilt`` integrate it; the few themselves are for
``components``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.factor import FactorGroup
from adfpp.engine.families.product.components import EFFECTIVE, Line, drawn, integrate, own_moments, tensor
from adfpp.engine.families.product.exponential import Exponential, Finite
from adfpp.engine.families.product.product import Product, ProductBelief
from adfpp.engine.linalg import inverse_lower, whiten
from adfpp.engine.tilt import ClosedForm, Conditional, MonteCarlo, Quadrature, Tilted
from adfpp.engine.tilt.base import Drawn

_STATES = 1 << 14  # combinations of discrete values that are summed over
_NODES = 1 << 14  # nodes of a tensor
_AXES = 3  # dimensions of a tensor
_ONE_OUT = 64  # components of a crowd that are each left out in turn
_EXPANDED = 0.005  # error of a crowd's expansion at its largest move, above which it is not trusted
_FEW = 3  # components whose sum is not yet a crowd where enumeration is too long


@dataclass(frozen=True, eq=False)
class Few:
    """Components of a part that are summed or integrated over.

    Attributes:
        part: Which part.
        count: How many of its components a row touches at most.
        candidates: ``(c,)`` which they may be; those with the largest share in the field where c > count.
    """

    part: int
    count: int
    candidates: np.ndarray


@dataclass(frozen=True, eq=False)
class Roster:
    """How the parts of a product enter a group's fields.

    Attributes:
        few: Components that are integrated over one by one.
        crowd: Parts that enter as a Gaussian sum.
        blocks: Gaussian parts.
        inner: ``(g,)`` the numbers of the field that crowd and blocks enter.
        how: "enumerated", "quadrature", "one out", "first order", "drawn" or "Gaussian".
        why: In words.
        level: Of the quadratures' nodes.
        one_out: Whether the components of the crowd can be left out in turn.
        closed: Whether that is a closed form.
    """

    few: tuple[Few, ...]
    crowd: tuple[int, ...]
    blocks: tuple[int, ...]
    inner: np.ndarray
    how: str
    why: str
    level: int
    one_out: bool
    closed: bool


class Answer(NamedTuple):
    """The belief after a factor.

    Attributes:
        belief: The projected belief.
        tilted: log Z, shift and root of the inner field, and the error.
        proper: ``()`` whether its parts are.
        saturated: ``()`` whether a probability was held at the most certain that the dtype can say.
    """

    belief: ProductBelief
    tilted: Tilted
    proper: jax.Array
    saturated: jax.Array


def roster(product: Product, group: FactorGroup) -> Roster:
    """How the parts of a product enter a group's fields; from shapes alone."""
    known = product.known.get(id(group))
    if known is None:  # the group is kept, so that its identity stays its own
        known = product.known[id(group)] = (group, _roster(product, group))
    return known[1]


def _roster(product: Product, group: FactorGroup) -> Roster:
    assert group.reach is not None
    touched, most = group.reach(tuple(p.where for p in product.parts))
    touched = touched[:, : product.size]
    few: list[Few] = []
    numbers: dict[int, np.ndarray] = {}  # of the field, that a part enters
    for i, part in enumerate(product.parts):
        mine = touched[:, part.where]
        if not mine.any():
            continue
        numbers[i] = np.flatnonzero(mine.any(1))
        if not part.gaussian:
            possible = np.flatnonzero(mine.any(0).reshape(part.count, -1).any(1))
            few.append(Few(i, min(len(possible), int(most[numbers[i], i].sum())), possible))
    blocks = tuple(i for i in numbers if product.parts[i].gaussian)
    crowd: list[int] = []

    def inner() -> np.ndarray:
        return np.unique(np.concatenate([np.zeros(0, int), *(numbers[i] for i in (*blocks, *crowd))]))

    def fits() -> tuple[bool, int]:
        axes = sum(f.count * product.parts[f.part].family.axes for f in few)
        states = math.prod(
            len(f_.values) ** f.count for f in few if isinstance(f_ := product.parts[f.part].family, Finite)
        )
        if axes == 0:
            return states <= _STATES, 0
        gaussian = len(inner())
        axes += gaussian if gaussian > 1 else 0  # one is integrated by itself, inside the others
        level = min(axes, _AXES) - 1
        nodes = {0: 168, 1: 42, 2: 22}[level] ** axes if axes <= _AXES else _NODES + 1
        return axes + (gaussian == 1) <= _AXES and nodes * states <= _NODES, level

    while not fits()[0]:
        # the part with most components in a number of the field joins the crowd
        able = [f for f in few if f.count > _FEW and product.parts[f.part].family.dim == 1]
        if not able:
            break
        largest = max(able, key=lambda f: f.count)
        few.remove(largest)
        crowd.append(largest.part)
    fine, level = fits()
    gaussian, one_out, closed = inner(), False, False
    names = ", ".join(n for f in few for n in product.parts[f.part].names)
    finite = all(isinstance(product.parts[f.part].family, Finite) for f in few)
    size = sum(int(touched[:, product.parts[i].where].any(0).sum()) for i in crowd)
    if crowd:
        closed = isinstance(group.rule, ClosedForm)
        single = group.field_size == 1 and not few
        only_finite = all(isinstance(product.parts[i].family, Finite) for i in crowd)
        one_out = single and only_finite
        how = "one out" if one_out and size <= _ONE_OUT else "first order"
        expansion = "each left out in turn" if how == "one out" else "first-order expansion"
        why = f"central-limit field of {size} components, {expansion}"
        why += f"; {names} summed over" if few and finite else f"; {names} integrated" if few else ""
    elif not few:
        how, why = "Gaussian", group.why
    elif not fine:
        how, why = "drawn", f"Monte Carlo over {names}: too many dimensions for a tensor"
    elif finite:
        states = math.prod(len(product.parts[f.part].family.values) ** f.count for f in few)
        how, why = "enumerated", f"enumeration of {states} states" + (f", then {group.why}" if len(gaussian) else "")
    else:
        own = sum(f.count * product.parts[f.part].family.axes for f in few)
        how, several = "quadrature", len(gaussian) > 1
        why = f"{own + len(gaussian) * several}-dimensional quadrature: {names}"
        why += f" and {len(gaussian)} Gaussian numbers" if several else ", and the Gaussian number inside"
        why = (
            why
            if len(gaussian)
            else f"{own}-dimensional quadrature: {names} in {'its' if own == 1 else 'their'} own space"
        )
    if few and crowd and not fine:
        how = "drawn"
    return Roster(tuple(few), tuple(crowd), blocks, gaussian, how, why, level, one_out, closed)


def reported(found: Roster, group: FactorGroup, dtype: Any) -> float:
    """The estimated error above which a row is marked."""
    if found.how == "drawn":
        return MonteCarlo().report
    rule = group.rule if isinstance(group.rule, Quadrature | MonteCarlo | Conditional) else Quadrature()
    size = len(found.inner) + sum(f.count for f in found.few)
    return rule.reported(dtype, max(size, 1)) if found.how != "quadrature" else max(1e-4, rule.reported(dtype, size))


# ------------------------------------------------------------------------------------------ one factor


class _Gaussian(NamedTuple):
    """The Gaussian part of a field: ``h[inner] = centre + lower @ u``, u whitened, the parts' shares of it."""

    lower: jax.Array
    shares: list[jax.Array]  # (g, n) orthonormal together


def respond(
    product: Product,
    group: FactorGroup,
    prepared: tuple[Callable[..., Tilted], Callable[..., jax.Array]],
    e: Any,
    belief: ProductBelief,
    matrix: jax.Array,
    field: jax.Array,
    power: Any = None,
    key: Any = None,
) -> Answer:
    """The projection of a product times a factor.

    Args:
        product: The family.
        group: The factor's group.
        prepared: Its tilt and its log-density ``(h (k,), e) -> ()``.
        e: Which of the group's elements.
        belief: The cavity.
        matrix: ``(k, N)`` A.
        field: ``(k,)`` with the cavity's Gaussian blocks at their means, and all components at 0.
        power: Of the factor.
        key: For rules that draw.
    """
    found = roster(product, group)
    mean = field
    for i in found.crowd:
        where = product.parts[i].where
        mean = mean + (matrix @ belief.mean if len(where) == matrix.shape[1] else matrix[:, where] @ belief.mean[where])
    inside = _gaussian_part(product, found, belief, matrix)
    at = _density(prepared[1], e, power)
    within = _inner_rule(group, found, prepared[0], at, e, inside.lower, power)
    if not found.few:
        tilted = within(mean)
        held, saturated = list(belief.parts), jnp.zeros((), bool)
    else:
        comps = _components(product, found, belief, matrix)
        quick = isinstance(group.rule, ClosedForm)
        tilted, after, saturated = _integrate(comps, found, mean, within, at, inside.lower, quick, key)
        held = _placed(product, found, belief, comps, after)
    held, error, certain = _crowd_moved(product, found, belief, matrix, mean, inside, tilted, within, held)
    tilted = tilted._replace(error=tilted.error + error)
    held = _blocks_moved(product, found, belief, inside, tilted, held)
    moved = [i for i, (now, old) in enumerate(zip(held, belief.parts, strict=True)) if now is not old]
    proper = jnp.ones((), bool)
    for i in moved:
        if not product.parts[i].gaussian:
            proper &= jnp.all(product.parts[i].family.proper(held[i]))
    return Answer(product.belief(held), tilted, proper, saturated | certain)


def _gaussian_part(product: Product, found: Roster, belief: ProductBelief, matrix: jax.Array) -> _Gaussian:
    rows = matrix if len(found.inner) == matrix.shape[0] else matrix[found.inner]
    pieces = []
    for i in (*found.crowd, *found.blocks):
        part, held = product.parts[i], belief.parts[i]
        own = rows[:, part.where] if len(product.parts) > 1 else rows
        if part.gaussian:
            pieces.append(own @ held.scale if held.scale.ndim == 2 else own * held.scale)
        else:
            pieces.append(own * (belief.scale[part.where] if len(product.parts) > 1 else belief.scale))
    if not pieces:
        return _Gaussian(jnp.zeros((0, 0), matrix.dtype), [])
    lower, q = whiten(jnp.concatenate(pieces, 1) if len(pieces) > 1 else pieces[0])
    return _Gaussian(lower, jnp.split(q, np.cumsum([p.shape[1] for p in pieces])[:-1], 1))


def _density(log_factor: Callable[..., jax.Array], e: Any, power: Any) -> Callable[[jax.Array], jax.Array]:
    """The log factor, or a power of it, at a field."""

    def at(h: jax.Array) -> jax.Array:
        value = log_factor(h, e).astype(h.dtype)
        return value if power is None else power * value

    return at


def _inner_rule(
    group: FactorGroup,
    found: Roster,
    tilt: Callable[..., Tilted],
    at: Callable[[jax.Array], jax.Array],
    e: Any,
    lower: jax.Array,
    power: Any,
) -> Callable[..., Tilted]:
    """The tilt of the Gaussian part of the field, given the mean ``(k,)`` that the few put it at."""
    size = len(found.inner)

    def within(centre: jax.Array, lower: jax.Array = lower) -> Tilted:
        if size == 0:
            nothing = jnp.zeros(0, centre.dtype)
            return Tilted(at(centre), nothing, jnp.zeros((0, 0), centre.dtype), jnp.zeros((), centre.dtype))
        if size == centre.shape[0]:
            return tilt(e, centre, lower, power)
        rule: Any = Quadrature() if size <= _AXES else MonteCarlo()
        return rule(lambda u: at(centre.at[found.inner].set(u)), centre[found.inner], lower)

    return within


def _crowd_moved(
    product: Product,
    found: Roster,
    belief: ProductBelief,
    matrix: jax.Array,
    mean: jax.Array,
    inside: _Gaussian,
    tilted: Tilted,
    within: Callable[[jax.Array], Tilted],
    held: list[Any],
) -> tuple[list[Any], jax.Array, jax.Array]:
    """The crowd's parts moved, the error that its expansion adds, and whether a certainty was held."""
    error, saturated = jnp.zeros((), mean.dtype), jnp.zeros((), bool)
    if not found.crowd:
        return held, error, saturated
    rows = matrix if len(found.inner) == matrix.shape[0] else matrix[found.inner]
    excess = tilted.root @ tilted.root.T - jnp.eye(len(found.inner), dtype=mean.dtype)
    pivots = jnp.diagonal(inside.lower)
    back = inverse_lower(inside.lower + jnp.diag(jnp.where(pivots > 0, 0.0, jnp.inf)))  # of what is certain, nothing
    for i in found.crowd:
        part, natural = product.parts[i], belief.parts[i]
        sd = belief.scale[part.where]
        centre = belief.mean[part.where]
        if found.how == "one out":
            a = matrix[0, part.where]
            change = _one_out(part.family, a, centre, sd, mean, inside.lower[0, 0], within, found.closed)
            held[i], certain = _certain(natural, change)
            saturated |= certain
            continue
        # a move of component j by one moves the whitened field by effects[:, j]
        effects = back @ (rows if len(product.parts) == 1 else rows[:, part.where])
        slope = tilted.shift @ effects
        bend = jnp.sum(effects * (excess @ effects), 0)
        if isinstance(part.family, Finite):
            values = jnp.asarray(part.family.values, mean.dtype)
            step = values[1:] - values[0]  # f(v) - f(v0), with f(s) = slope (s - m) + bend (s - m)² / 2
            middle = 0.5 * (values[1:] + values[0])
            change = step * (slope[:, None] + bend[:, None] * (middle - centre[:, None]))
            if found.one_out:
                # where few are left that are not certain, one of them moves the field by more than its sd: is the
                # expansion right for the largest move, to both sides?
                a, width = matrix[0, part.where], max(part.family.values) - min(part.family.values)
                move = width * jnp.max(jnp.abs(a))
                sides = jnp.array([-1.0, 1.0], mean.dtype) * move
                exact = jnp.stack([within(mean + s).log_z for s in sides])
                u = sides / inside.lower[0, 0]
                expanded = tilted.log_z + u * tilted.shift[0] + 0.5 * u * u * excess[0, 0]
                missed = jnp.where(move > 0, jnp.max(jnp.abs(exact - expanded)), 0.0)
                if found.closed:
                    change = jax.lax.cond(
                        ~(missed < _EXPANDED),
                        lambda c, f=part.family, a=a, m=centre, sd=sd: _one_out(
                            f, a, m, sd, mean, inside.lower[0, 0], within, True
                        ),
                        lambda c: c,
                        change,
                    )
                else:
                    error = jnp.maximum(error, jnp.where(missed < _EXPANDED, 0.0, missed))
            held[i], certain = _certain(natural, change)
            saturated |= certain
        else:
            held[i], errors = jax.vmap(lambda eta, g, b, m, f=part.family: _alone(f, eta, g, b, m))(
                natural, slope, bend, centre
            )
            error = jnp.maximum(error, jnp.max(errors))
    return held, error, saturated


def _one_out(
    family: Finite,
    a: jax.Array,
    centre: jax.Array,
    sd: jax.Array,
    mean: jax.Array,
    lower: jax.Array,
    within: Callable[..., Tilted],
    closed: bool,
) -> jax.Array:
    """Changes of log odds ``(n, K - 1)``: the factor's mean with the component at each of its values."""
    values = jnp.asarray(family.values, mean.dtype)

    def at(a: jax.Array, centre: jax.Array, sd: jax.Array, value: jax.Array) -> jax.Array:
        rest = jnp.sqrt(jnp.maximum(lower * lower - (a * sd) ** 2, 0.0))
        return within(mean + a * (value - centre), rest[None, None]).log_z

    def values_of(own: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return jnp.stack([at(*own, v) for v in values])

    # the tiers of a quadrature are branches, of which a vectorised loop would run all
    log_z = jax.vmap(lambda *own: values_of(own))(a, centre, sd) if closed else jax.lax.map(values_of, (a, centre, sd))
    top = jnp.max(log_z, -1, keepdims=True)
    # impossible whichever value: says nothing about it. The floor, far below what ``_certain`` holds log odds at (and
    # tells), only keeps infinities out of their differences
    log_z = jnp.where(jnp.isfinite(top), jnp.maximum(log_z, top - 1e4), 0.0)
    return log_z[:, 1:] - log_z[:, :1]


def _certain(natural: jax.Array, change: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log odds after a change, as far as a probability near 1 can follow, and whether any was held there.

    A crowd's certainty beyond that is not earned.
    """
    limit = -math.log(float(jnp.finfo(natural.dtype).eps))
    both = jnp.concatenate([jnp.zeros_like(natural[:, :1]), natural + change], -1)
    if natural.shape[-1] == 1:
        most = jnp.maximum(limit, jnp.abs(natural))
        after = jnp.clip(both[:, 1:], -most, most)
    else:
        both = jnp.maximum(both, jnp.max(both, -1, keepdims=True) - limit)
        after = jnp.where(change == 0.0, natural, both[:, 1:] - both[:, :1])
    return after, jnp.any(after != natural + change)


def _alone(
    family: Exponential, eta: jax.Array, slope: jax.Array, bend: jax.Array, centre: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """A continuous component of a crowd, after a factor that is quadratic in it, and the error."""

    def log_factor(s: jax.Array) -> jax.Array:
        return slope * (s[0] - centre) + 0.5 * bend * (s[0] - centre) ** 2

    _, natural, error = own_moments(family, eta, log_factor)
    return natural, error


def _blocks_moved(
    product: Product, found: Roster, belief: ProductBelief, inside: _Gaussian, tilted: Tilted, held: list[Any]
) -> list[Any]:
    for i, share in zip(found.blocks, inside.shares[len(found.crowd) :], strict=True):
        family, now = product.parts[i].family, belief.parts[i]
        shift, root, q = tilted.shift, tilted.root, share
        if len(found.blocks) + len(found.crowd) > 1:
            # of the directions that the parts span together, the block has a part
            lower, q = whiten(share)
            excess = root @ root.T - jnp.eye(len(shift), dtype=root.dtype)
            shift = lower.T @ shift
            root = jnp.linalg.cholesky(jnp.eye(len(shift), dtype=root.dtype) + lower.T @ excess @ lower)
        window = family.open(now, q, jnp.zeros(q.shape[0], q.dtype), False)
        held[i] = family.close(family.absorb(window, 0, q, shift, root))
    return held


# ------------------------------------------------------------------------------------------ the few


class Component(NamedTuple):
    """A component that is integrated over.

    Attributes:
        family: Its family.
        eta: ``(numbers,)`` its cavity.
        at: Its place among its part's components.
        effect: ``(k, dim)`` what it does to the field.
    """

    family: Any
    eta: jax.Array
    at: Any
    effect: jax.Array


def _components(product: Product, found: Roster, belief: ProductBelief, matrix: jax.Array) -> list[Component]:
    out = []
    for few in found.few:
        part, natural = product.parts[few.part], belief.parts[few.part]
        effects = matrix[:, part.where].reshape(matrix.shape[0], part.count, -1)
        chosen: Any = few.candidates
        if few.count < len(few.candidates):
            size = jnp.sum(jnp.abs(effects[:, few.candidates]), (0, 2))
            chosen = jnp.asarray(few.candidates)[jax.lax.top_k(size, few.count)[1]]
        for j in range(few.count):
            c = chosen[j]
            out.append(Component(part.family, natural[c], c, effects[:, c]))
    return out


def _placed(
    product: Product, found: Roster, belief: ProductBelief, comps: Sequence[Component], after: Sequence[jax.Array]
) -> list[Any]:
    """The parts with the components' new natural parameters, as changes: a component may not be touched at all."""
    held, j = list(belief.parts), 0
    for few in found.few:
        for _ in range(few.count):
            held[few.part] = held[few.part].at[comps[j].at].set(after[j])
            j += 1
    return held


def _integrate(
    comps: Sequence[Component],
    found: Roster,
    mean: jax.Array,
    within: Callable[..., Tilted],
    at: Callable[[jax.Array], jax.Array],
    lower: jax.Array,
    quick: bool,
    key: Any,
) -> tuple[Tilted, list[jax.Array], jax.Array]:
    """The few integrated over: the Gaussian part's tilted moments, the components' parameters, whether one was held."""
    families: list[Any] = [c.family for c in comps]
    etas = [c.eta for c in comps]
    inner, count = len(found.inner), len(comps)
    lines = inner > 1 and found.how == "quadrature"
    if lines:
        families += [Line()] * inner
        etas += [jnp.array([0.0, 1.0], mean.dtype)] * inner

    def moved(own: Sequence[jax.Array]) -> jax.Array:
        return sum((c.effect @ s for c, s in zip(comps, own, strict=False)), mean)

    def evaluate(values: Sequence[jax.Array]) -> Tilted:
        if lines:
            return jax.vmap(lambda own: flat(moved(own[:count]), jnp.concatenate(own[count:])))(tuple(values))
        if inner == 0 or quick:
            return jax.vmap(lambda own: within(moved(own)))(tuple(values))
        return jax.lax.map(lambda own: within(moved(own)), tuple(values))

    def flat(centre: jax.Array, u: jax.Array) -> Tilted:
        """The factor at a point of the whitened field, as a tilt of no width there."""
        nothing = jnp.zeros((inner, inner), u.dtype)
        return Tilted(at(centre.at[found.inner].add(lower @ u)), u, nothing, jnp.zeros((), u.dtype))

    grids = tensor(families, found.level) if found.how != "drawn" else drawn(families, key)
    log_z, after, error, weights, inside, effective, saturated = integrate(families, etas, evaluate, grids)
    said: Any = ()
    if found.how == "drawn":
        said = Drawn(effective, jnp.zeros((), jnp.int32), effective >= EFFECTIVE)
    if not inner:
        nothing = jnp.zeros(0, mean.dtype)
        return Tilted(log_z, nothing, jnp.zeros((0, 0), mean.dtype), error, said), after, saturated
    # where a node lies so far out that its own integral fails, what it weighs is an error
    sound = jnp.all(jnp.isfinite(inside.shift), -1) & jnp.all(jnp.isfinite(inside.root), (-2, -1))
    sound &= jnp.isfinite(inside.error)
    shifts, roots = jnp.where(sound[:, None], inside.shift, 0.0), jnp.where(sound[:, None, None], inside.root, 0.0)
    shift = weights @ shifts
    apart = shifts - shift
    covariance = jnp.einsum("m,mij,mkj->ik", weights, roots, roots)
    covariance += jnp.einsum("m,mi,mj->ij", weights, apart, apart)
    error = error + weights @ jnp.where(sound, inside.error, 1.0)
    return Tilted(log_z, shift, jnp.linalg.cholesky(covariance), error, said), after[:count], saturated
