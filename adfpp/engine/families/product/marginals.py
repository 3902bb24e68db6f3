"""Computes the tilted marginals of each part of a product belief after one factor.

``field_split`` decides how each part enters the field ``h = A θ + b``. If component i of a central-limit block is fixed
at s while the others stay random, the mean of the field moves by a (s - m). The log factor for this component is then
``log Z(μ + a (s - m))``. There are two ways to compute it. Its expansion is ``d·a (s - m) + (a (s - m))² (M - 1) / 2``
in the whitened field, with the tilted moments d and M of the field as coefficients; it is of first order in each
component's share, and costs O(N) for each row. Or it is evaluated without the component's own variance (*one out*).
Given the enumerated components, the rest of the field is Gaussian, and the rules of ``tilt`` integrate over it. The
enumerated components are integrated by ``components``.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.factor import Factor, ReadyFactor
from adfpp.engine.families.product.components import EFFECTIVE, Line, drawn, integrate, own_moments, tensor
from adfpp.engine.families.product.exponential import Exponential
from adfpp.engine.families.product.field_split import FieldSplit
from adfpp.engine.families.product.parts import Part, PartValue
from adfpp.engine.linalg import inverse_lower, whiten
from adfpp.engine.tilt import Index, IntegralRule, MonteCarlo, Quadrature, Tilted
from adfpp.engine.tilt.base import Drawn

if TYPE_CHECKING:
    from adfpp.engine.families.product.product import ProductBelief


class Marginals(NamedTuple):
    """The parts of the belief after a factor.

    Attributes:
        parts: The values of the parts.
        tilted: Log Z, the shift and root of the Gaussian numbers of the field, and the error.
        proper: ``()`` whether the parts are proper.
        saturated: ``()`` whether a probability was limited to the largest certainty of the dtype.
    """

    parts: list[PartValue]
    tilted: Tilted
    proper: jax.Array
    saturated: jax.Array


class _Gaussian(NamedTuple):
    """The Gaussian part of a field, ``h[inner] = centre + lower @ u`` with u whitened, and the parts' shares of u."""

    lower: jax.Array
    shares: list[jax.Array]  # each (g, n); their columns together have orthonormal rows


def tilted_marginals(
    parts: Sequence[Part],
    split: FieldSplit,
    factor: Factor,
    ready: ReadyFactor,
    element: Index,
    belief: "ProductBelief",
    matrix: jax.Array,
    field: jax.Array,
    power: jax.Array | None,
) -> Marginals:
    """Computes the marginals of a product times one element of a factor.

    Args:
        parts: The parts of the product.
        split: How the parts enter the field.
        factor: The factor group.
        ready: The group at one row.
        element: The number of the element in the group.
        belief: The cavity.
        matrix: ``(k, N)`` A of the field.
        field: ``(k,)`` the field with the cavity's Gaussian blocks at their means, and all components at 0.
        power: The power of the factor.
    """
    mean = field
    for i in split.central:
        where = parts[i].where
        mean = mean + (matrix @ belief.mean if len(where) == matrix.shape[1] else matrix[:, where] @ belief.mean[where])
    inside = _gaussian_part(parts, split, belief, matrix)

    log_density = ready.log_density()

    def at(h: jax.Array) -> jax.Array:
        value = log_density(h, element).astype(h.dtype)
        return value if power is None else power * value

    within = _inner_rule(split, ready, at, element, inside.lower, power)
    values, saturated = list(belief.parts), jnp.zeros((), bool)
    if not split.enumerated:
        tilted = within(mean)
    else:
        components = _components(parts, split, belief, matrix)
        key = ready.key_of(element)
        tilted, after, saturated = _integrate(components, split, mean, within, at, inside.lower, factor.rule.exact, key)
        values = _placed(split, belief, components, after)
    values, error, certain = _central_moved(parts, split, belief, matrix, mean, inside, tilted, within, values)
    tilted = tilted._replace(error=tilted.error + error)
    values = _blocks_moved(parts, split, belief, inside, tilted, values)
    moved = [i for i, (now, old) in enumerate(zip(values, belief.parts, strict=True)) if now is not old]
    proper = jnp.ones((), bool)
    for i in moved:
        proper &= parts[i].proper(values[i])
    return Marginals(values, tilted, proper, saturated | certain)


def _gaussian_part(parts: Sequence[Part], split: FieldSplit, belief: "ProductBelief", matrix: jax.Array) -> _Gaussian:
    rows = matrix if len(split.inner) == matrix.shape[0] else matrix[split.inner]
    pieces = []
    for i in (*split.central, *split.blocks):
        part, block = parts[i], belief.parts[i]
        own = rows[:, part.where] if len(parts) > 1 else rows
        if part.gaussian:
            pieces.append(own @ block.scale if block.scale.ndim == 2 else own * block.scale)
        else:
            pieces.append(own * (belief.scale[part.where] if len(parts) > 1 else belief.scale))
    if not pieces:
        return _Gaussian(jnp.zeros((0, 0), matrix.dtype), [])
    lower, q = whiten(jnp.concatenate(pieces, 1) if len(pieces) > 1 else pieces[0])
    return _Gaussian(lower, jnp.split(q, np.cumsum([p.shape[1] for p in pieces])[:-1], 1))


def _inner_rule(
    split: FieldSplit,
    ready: ReadyFactor,
    at: Callable[[jax.Array], jax.Array],
    element: Index,
    lower: jax.Array,
    power: jax.Array | None,
) -> Callable[..., Tilted]:
    """The tilt of the Gaussian part of the field, as a function of the field's mean ``(k,)``."""
    size = len(split.inner)

    def within(centre: jax.Array, lower: jax.Array = lower) -> Tilted:
        if size == 0:
            nothing = jnp.zeros(0, centre.dtype)
            return Tilted(at(centre), nothing, jnp.zeros((0, 0), centre.dtype), jnp.zeros((), centre.dtype))
        if size == centre.shape[0]:
            return ready.tilt(element, centre, lower, power)
        rule: IntegralRule = Quadrature() if size <= split.limits.axes else MonteCarlo()
        return rule(lambda u: at(centre.at[split.inner].set(u)), centre[split.inner], lower)

    return within


def _central_moved(
    parts: Sequence[Part],
    split: FieldSplit,
    belief: "ProductBelief",
    matrix: jax.Array,
    mean: jax.Array,
    inside: _Gaussian,
    tilted: Tilted,
    within: Callable[..., Tilted],
    values: list[PartValue],
) -> tuple[list[PartValue], jax.Array, jax.Array]:
    """Moves the central-limit blocks. Also returns the expansion's error, and whether a probability was limited."""
    error, saturated = jnp.zeros((), mean.dtype), jnp.zeros((), bool)
    if not split.central:
        return values, error, saturated
    rows = matrix if len(split.inner) == matrix.shape[0] else matrix[split.inner]
    excess = tilted.root @ tilted.root.T - jnp.eye(len(split.inner), dtype=mean.dtype)
    pivots = jnp.diagonal(inside.lower)
    # a direction of the field without uncertainty does not contribute
    back = inverse_lower(inside.lower + jnp.diag(jnp.where(pivots > 0, 0.0, jnp.inf)))
    for i in split.central:
        part, natural = parts[i], belief.parts[i]
        centre, sd = belief.mean[part.where], belief.scale[part.where]

        def left_out(part: Part = part, centre: jax.Array = centre, sd: jax.Array = sd) -> jax.Array:
            a = matrix[0, part.where]
            return _one_out(part.family, a, centre, sd, mean, inside.lower[0, 0], within, split.closed)

        if split.how == "one out":
            values[i], limited = _within_certainty(natural, left_out())
            saturated |= limited
            continue
        # if component j changes by 1, the whitened field changes by effects[:, j]
        effects = back @ (rows if len(parts) == 1 else rows[:, part.where])
        slope = tilted.shift @ effects
        bend = jnp.sum(effects * (excess @ effects), 0)
        if part.family.axes > 0:
            values[i], errors = jax.vmap(lambda eta, g, b, m, f=part.family: _alone(f, eta, g, b, m))(
                natural, slope, bend, centre
            )
            error = jnp.maximum(error, jnp.max(errors))
            continue
        states = jnp.asarray(part.family.levels, mean.dtype)
        # log f(v) - log f(v0), with log f(s) = slope (s - m) + bend (s - m)² / 2
        step, middle = states[1:] - states[0], 0.5 * (states[1:] + states[0])
        change = step * (slope[:, None] + bend[:, None] * (middle - centre[:, None]))
        if split.one_out:
            missed = _expansion_error(matrix[0, part.where], part.family, mean, inside.lower[0, 0], tilted, within)
            fine = missed < split.limits.expanded
            if split.closed:
                change = jax.lax.cond(~fine, left_out, lambda change=change: change)
            else:
                error = jnp.maximum(error, jnp.where(fine, 0.0, missed))
        values[i], limited = _within_certainty(natural, change)
        saturated |= limited
    return values, error, saturated


def _expansion_error(
    a: jax.Array, family: Exponential, mean: jax.Array, lower: jax.Array, tilted: Tilted, within: Callable[..., Tilted]
) -> jax.Array:
    """The error of the second-order expansion at the largest move of one component, to both sides.

    This move may be large: if only a small number of components is uncertain, one of them moves the field by more than
    the sd of the field.
    """
    move = (max(family.levels) - min(family.levels)) * jnp.max(jnp.abs(a))
    sides = jnp.array([-1.0, 1.0], mean.dtype) * move
    exact = jnp.stack([within(mean + s).log_z for s in sides])
    u = sides / lower
    expanded = tilted.log_z + u * tilted.shift[0] + 0.5 * u * u * (tilted.root[0, 0] ** 2 - 1.0)
    return jnp.where(move > 0, jnp.max(jnp.abs(exact - expanded)), 0.0)


def _one_out(
    family: Exponential,
    a: jax.Array,
    centre: jax.Array,
    sd: jax.Array,
    mean: jax.Array,
    lower: jax.Array,
    within: Callable[..., Tilted],
    closed: bool,
) -> jax.Array:
    """Changes of log odds ``(n, K - 1)``, from the factor's expectation with the component at each of its values."""
    values = jnp.asarray(family.levels, mean.dtype)

    def at(a: jax.Array, centre: jax.Array, sd: jax.Array, value: jax.Array) -> jax.Array:
        rest = jnp.sqrt(jnp.maximum(lower * lower - (a * sd) ** 2, 0.0))
        return within(mean + a * (value - centre), rest[None, None]).log_z

    def values_of(own: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return jnp.stack([at(*own, v) for v in values])

    # not vectorised, because a vectorised loop would run all tiers of a quadrature
    log_z = jax.vmap(lambda *own: values_of(own))(a, centre, sd) if closed else jax.lax.map(values_of, (a, centre, sd))
    top = jnp.max(log_z, -1, keepdims=True)
    # A factor that is 0 for all values carries no information about them. The floor is far below the limit of
    # ``_within_certainty``; it only prevents differences of infinities.
    log_z = jnp.where(jnp.isfinite(top), jnp.maximum(log_z, top - 1e4), 0.0)
    return log_z[:, 1:] - log_z[:, :1]


def _within_certainty(natural: jax.Array, change: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log odds after a change, limited by the rounding errors of the dtype, and whether any was limited.

    More certainty than that would not be justified by the central limit theorem.
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
    """Projects a continuous component of a central-limit block times a log-quadratic factor. Also returns the error."""

    def log_factor(s: jax.Array) -> jax.Array:
        return slope * (s[0] - centre) + 0.5 * bend * (s[0] - centre) ** 2

    _, natural, error = own_moments(family, eta, log_factor)
    return natural, error


def _blocks_moved(
    parts: Sequence[Part],
    split: FieldSplit,
    belief: "ProductBelief",
    inside: _Gaussian,
    tilted: Tilted,
    values: list[PartValue],
) -> list[PartValue]:
    """Moves the Gaussian blocks, each in its share of the field's whitened directions."""
    for i, share in zip(split.blocks, inside.shares[len(split.central) :], strict=True):
        family, now = parts[i].family, belief.parts[i]
        shift, root, q = tilted.shift, tilted.root, share
        if len(split.blocks) + len(split.central) > 1:
            # the block has a share of the directions that all parts span together
            lower, q = whiten(share)
            excess = root @ root.T - jnp.eye(len(shift), dtype=root.dtype)
            shift = lower.T @ shift
            root = jnp.linalg.cholesky(jnp.eye(len(shift), dtype=root.dtype) + lower.T @ excess @ lower)
        window = family.open(now, q, jnp.zeros(q.shape[0], q.dtype), False)
        values[i] = family.close(family.absorb(window, 0, q, shift, root))
    return values


# ------------------------------------------------------------------------------------------ enumerated components


class Component(NamedTuple):
    """A component over which the factor is summed or integrated.

    Attributes:
        family: The family of the component.
        eta: ``(numbers,)`` natural parameters of its cavity.
        at: The place of the component in its part.
        effect: ``(k, dim)`` its columns of A, the derivative of the field.
    """

    family: Exponential
    eta: jax.Array
    at: Index
    effect: jax.Array


def _components(
    parts: Sequence[Part], split: FieldSplit, belief: "ProductBelief", matrix: jax.Array
) -> list[Component]:
    out = []
    for component in split.enumerated:
        part, natural = parts[component.part], belief.parts[component.part]
        effects = matrix[:, part.where].reshape(matrix.shape[0], part.count, -1)
        chosen: np.ndarray | jax.Array = component.candidates
        if component.count < len(component.candidates):
            size = jnp.sum(jnp.abs(effects[:, component.candidates]), (0, 2))
            chosen = jnp.asarray(component.candidates)[jax.lax.top_k(size, component.count)[1]]
        for j in range(component.count):
            c = chosen[j]
            out.append(Component(part.family, natural[c], c, effects[:, c]))
    return out


def _placed(
    split: FieldSplit, belief: "ProductBelief", comps: Sequence[Component], after: Sequence[jax.Array]
) -> list[PartValue]:
    """Writes the components' new natural parameters to the parts."""
    values, j = list(belief.parts), 0
    for component in split.enumerated:
        for _ in range(component.count):
            values[component.part] = values[component.part].at[comps[j].at].set(after[j])
            j += 1
    return values


def _integrate(
    comps: Sequence[Component],
    split: FieldSplit,
    mean: jax.Array,
    within: Callable[..., Tilted],
    at: Callable[[jax.Array], jax.Array],
    lower: jax.Array,
    quick: bool,
    key: jax.Array | None,
) -> tuple[Tilted, list[jax.Array], jax.Array]:
    """Integrates over the enumerated components.

    Returns:
        The tilted moments of the Gaussian numbers, the components' natural parameters, and whether one was limited.
    """
    families: list[Exponential | Line] = [c.family for c in comps]
    etas = [c.eta for c in comps]
    inner, count = len(split.inner), len(comps)
    in_tensor = inner > 1 and split.how == "quadrature"  # whether Gaussian numbers are axes of the tensor
    if in_tensor:
        families += [Line()] * inner
        etas += [jnp.array([0.0, 1.0], mean.dtype)] * inner

    def moved(own: Sequence[jax.Array]) -> jax.Array:
        return sum((c.effect @ s for c, s in zip(comps, own, strict=False)), mean)

    def evaluate(values: Sequence[jax.Array]) -> Tilted:
        if in_tensor:
            return jax.vmap(lambda own: flat(moved(own[:count]), jnp.concatenate(own[count:])))(tuple(values))
        if inner == 0 or quick:
            return jax.vmap(lambda own: within(moved(own)))(tuple(values))
        return jax.lax.map(lambda own: within(moved(own)), tuple(values))

    def flat(centre: jax.Array, u: jax.Array) -> Tilted:
        """The factor at a point of the whitened field, as a tilt of width 0 at this point."""
        nothing = jnp.zeros((inner, inner), u.dtype)
        return Tilted(at(centre.at[split.inner].add(lower @ u)), u, nothing, jnp.zeros((), u.dtype))

    grids = tensor(families, split.level) if split.how != "drawn" else drawn(families, key)
    log_z, after, error, weights, inside, effective, saturated = integrate(families, etas, evaluate, grids)
    drawn_points: Drawn | None = None
    if split.how == "drawn":
        drawn_points = Drawn(effective, jnp.zeros((), jnp.int32), effective >= EFFECTIVE)
    if not inner:
        nothing = jnp.zeros(0, mean.dtype)
        return Tilted(log_z, nothing, jnp.zeros((0, 0), mean.dtype), error, drawn_points), after, saturated
    # if a node is so far from the mass that its own integral fails, its weight is added to the error
    sound = jnp.all(jnp.isfinite(inside.shift), -1) & jnp.all(jnp.isfinite(inside.root), (-2, -1))
    sound &= jnp.isfinite(inside.error)
    shifts, roots = jnp.where(sound[:, None], inside.shift, 0.0), jnp.where(sound[:, None, None], inside.root, 0.0)
    shift = weights @ shifts
    apart = shifts - shift
    covariance = jnp.einsum("m,mij,mkj->ik", weights, roots, roots)
    covariance += jnp.einsum("m,mi,mj->ij", weights, apart, apart)
    error = error + weights @ jnp.where(sound, inside.error, 1.0)
    return Tilted(log_z, shift, jnp.linalg.cholesky(covariance), error, drawn_points), after[:count], saturated
