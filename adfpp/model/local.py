"""Local latents: latent sites with values of their own in every row, summed or integrated out row by row.

A discrete one is enumerated: the row is visited once with each combination of values, and its log-density is their
log-sum-exp. A continuous one joins the field: the row's field is affine in (θ, z), z the row's unconstrained local
numbers, which have a Gaussian base; what their prior has more than the base is part of the factor (``factors``).
Observed elements that hang together through local latents make one factor, a *component*.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer
from jax.extend.core import Literal
from numpyro.distributions import biject_to

from adfpp.engine.linalg import root_of_product
from adfpp.engine.sites import cavity
from adfpp.engine.trace import depends_on, known_value, trace
from adfpp.model.arguments import ModelError
from adfpp.model.visit import Visit, elements, scalar_base

if TYPE_CHECKING:
    from adfpp.model.program import Program

MOST_COMBINATIONS = 256
_DRAWS, _DRAWS_PER_ROW = 2048, 64  # a base may be rough: it is divided out again


@dataclass(frozen=True)
class LocalLatent:
    """A latent site in the data plate, as one row has it.

    Attributes:
        name: Its name.
        shape: Of its value in one row; the rows' axis has length 1.
        axis: The rows' axis.
        unconstrained_shape: Of its unconstrained value; for a discrete site its shape.
        where: Its place among the row's local numbers: continuous ones in z, discrete ones in an order of their own.
        support: ``(K,)`` the values of a discrete site; None for a continuous one.
        exact: Whether its prior is a Gaussian that does not depend on other latent sites: then it is the base itself.
        how: How it is integrated out, in words.
    """

    name: str
    shape: tuple[int, ...]
    axis: int
    unconstrained_shape: tuple[int, ...]
    where: slice
    support: np.ndarray | None
    exact: bool = False
    how: str = ""

    @property
    def size(self) -> int:
        """Number of unconstrained (or discrete) scalars of a row."""
        return self.where.stop - self.where.start

    def per_row(self, a: jax.Array) -> jax.Array:
        """Numbers ``(..., size)`` in the shape of one row's unconstrained value, without the rows' axis."""
        shape = self.unconstrained_shape
        return a.reshape(a.shape[:-1] + shape[: self.axis] + shape[self.axis + 1 :])


@dataclass(frozen=True)
class Component:
    """Local numbers of a row and the observed elements that hang together through them.

    Attributes:
        numbers: Places of its continuous numbers.
        discrete: Places of its discrete numbers.
        combinations: ``(J, len(discrete))`` values that these take together.
        observed: Observed elements as (site, element).
        priors: Elements of local priors that are part of the factor, as (site, element).
    """

    numbers: tuple[int, ...]
    discrete: tuple[int, ...]
    combinations: np.ndarray
    observed: tuple[tuple[str, int], ...]
    priors: tuple[tuple[str, int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The observed sites."""
        return tuple(dict.fromkeys(name for name, _ in self.observed))


@dataclass(frozen=True)
class LocalPlan:
    """How the local latents of a row are integrated out.

    Attributes:
        latents: The local latents.
        start: Length of θ, after which the continuous local numbers stand.
        size: Number of continuous local numbers of a row.
        components: What hangs together; components without local numbers are left out.
        separate: Observed sites whose elements remain factors of their own, with the component of each.
        base: ``base(*inputs) -> (mean (m,), sd (m,))`` of the numbers whose base is not their prior; anything for the
            others.
    """

    latents: tuple[LocalLatent, ...]
    start: int
    size: int
    components: tuple[Component, ...]
    separate: Mapping[str, tuple[Component, ...]]
    base: Callable[..., tuple[Any, Any]]

    @property
    def visits(self) -> int:
        """How often a row is visited: once for each combination of discrete values."""
        return max((len(c.combinations) for c in self.components), default=1)

    def values(self, visit: int) -> dict[str, np.ndarray]:
        """The discrete sites' values in one of the visits; every component goes through its own combinations."""
        flat = {
            i: s.support[0] for s in self.latents if s.support is not None for i in range(s.where.start, s.where.stop)
        }
        for c in self.components:
            flat.update(zip(c.discrete, c.combinations[min(visit, len(c.combinations) - 1)], strict=True))
        return {
            s.name: np.array([flat[i] for i in range(s.where.start, s.where.stop)], s.support.dtype).reshape(s.shape)
            for s in self.latents
            if s.support is not None
        }


# ------------------------------------------------------------------------------------------ which sites are local


def local_latents(whole: Visit, rows: int, one: Visit, two: Visit) -> tuple[LocalLatent, ...]:
    """The latent sites that have one entry a row; sites that grow with the rows in another way are left to refuse."""
    out, numbers, discretes = [], 0, 0
    for name, site in whole.latents.items():
        if name not in one.latents or name not in two.latents:
            continue
        shapes = [tuple(jnp.shape(seen.latents[name]["value"])) for seen in (one, two, whole)]
        axis = _growing_axis(shapes[0], shapes[1], shapes[2], rows)
        if axis is None:
            continue
        first, second = one.latents[name], two.latents[name]
        counts = [math.prod(s["element_shape"]) for s in (first, second)]
        if counts[1] != 2 * counts[0]:
            raise ModelError(
                f"Latent site {name!r} has an entry for every row, but its prior ties them together "
                f"({type(scalar_base(site['fn'])).__name__} over all rows at once), so that no row can be folded "
                "without the others. Draw it inside the data plate, one independent value a row; for values that "
                "drift from row to row use dynamics=adfpp.RandomWalk(...)."
            )
        if isinstance(scalar_base(site["fn"]), dist.ImproperUniform):
            raise ModelError(
                f"Latent site {name!r} is drawn for every row from an improper prior, over which no row can be "
                "integrated. Give it a proper prior."
            )
        support = None
        if first["discrete"]:
            support = first["values"]
            if support is None:
                raise ModelError(
                    f"Latent site {name!r} is drawn for every row from {type(scalar_base(site['fn'])).__name__}, whose "
                    "values cannot be enumerated: there are infinitely many, or their number depends on data. Use a "
                    "Categorical over 0, ..., K - 1 with K large enough, or integrate it out in the model (a Poisson "
                    "with a Gamma rate is a NegativeBinomial2)."
                )
        shape = shapes[0]
        unconstrained = shape if support is not None else first["unconstrained_shape"]
        size, start = math.prod(unconstrained), numbers if support is None else discretes
        out.append(LocalLatent(name, shape, axis, unconstrained, slice(start, start + size), support))
        numbers, discretes = numbers + size * (support is None), discretes + size * (support is not None)
    return tuple(out)


def _growing_axis(one: tuple[int, ...], two: tuple[int, ...], whole: tuple[int, ...], rows: int) -> int | None:
    """The only axis along which a shape is as long as there are rows."""
    if not len(one) == len(two) == len(whole):
        return None
    grown = [i for i, lengths in enumerate(zip(one, two, whole, strict=True)) if len(set(lengths[:2])) > 1]
    fits = len(grown) == 1 and (one[grown[0]], two[grown[0]], whole[grown[0]]) == (1, 2, rows)
    if not fits or any(a != c for i, (a, c) in enumerate(zip(one, whole, strict=True)) if i != grown[0]):
        return None
    return grown[0]


def enumerable(fn: Any) -> np.ndarray | None:
    """All values of one element of a discrete distribution, or None where they cannot be listed."""
    inner = scalar_base(fn)
    if inner.event_dim or not inner.has_enumerate_support:
        return None
    try:
        with jax.ensure_compile_time_eval():
            return np.asarray(inner.enumerate_support(expand=False)).reshape(-1)
    except (NotImplementedError, jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        return None


# ------------------------------------------------------------------------------------------ what hangs together

Seen = Callable[[jax.Array, Sequence[Any], Mapping[str, Any]], Visit]


def plan_locals(
    seen: Seen, draw: Callable[..., Any], sites: Sequence[LocalLatent], start: int, dtype: Any, inputs: Sequence[Any]
) -> LocalPlan:
    """Finds out what depends on which local numbers, and chooses the base of the continuous ones.

    Args:
        seen: ``seen((θ, z), inputs, discrete values)``: a visit of one row.
        draw: ``draw(key, inputs)``: a visit with every latent site drawn from its prior.
        sites: The local sites.
        start: Length of θ.
        dtype: Of θ.
        inputs: Shapes of one row's arrays and of the shared ones.
    """
    size = sum(s.size for s in sites if s.support is None)
    discrete = sum(s.size for s in sites if s.support is not None)
    outputs: list[tuple[str, str, int]] = []  # (what, site, element)

    def everything(v: jax.Array, *rest: Any) -> list[jax.Array]:
        outputs.clear()
        out: list[jax.Array] = []

        def put(what: str, name: str, flat: jax.Array) -> None:
            for e in range(flat.shape[0]):
                outputs.append((what, name, e))
                out.append(jax.lax.index_in_dim(flat, e, keepdims=False))

        values = {
            s.name: v[start + size :][s.where].reshape(s.shape).astype(s.support.dtype)
            for s in sites
            if s.support is not None
        }
        found = seen(v[: start + size], rest, values)
        for name, site in found.observed.items():
            each = elements(site["fn"], site["value"])
            log_prob = each.log_prob if each.mask is None else jnp.where(each.mask, each.log_prob, 0.0)
            put("observed", name, jnp.ravel(log_prob))
        for s in sites:
            put("prior", s.name, prior_elements(found.latents[s.name], s, v[: start + size], start))
            normal = _normal(found.latents[s.name], s) if s.support is None else None
            for parameter in normal or ():
                put("parameter", s.name, jnp.ravel(parameter))
        return out

    total = start + size + discrete
    traced = trace(everything, jax.ShapeDtypeStruct((total,), dtype), *inputs)
    touches = [np.flatnonzero(depends_on(traced, o)) for o in traced.outputs]
    parameters = {name for what, name, _ in outputs if what == "parameter"}
    moving = {n for (what, n, _), t in zip(outputs, touches, strict=True) if what == "parameter" and len(t)}
    exact = parameters - moving
    parts = _connected(sites, start, size, discrete, outputs, touches, exact)
    components = tuple(c for c in (_component(sites, size, exact, *p) for p in parts) if c is not None)
    separate = _separate(components, outputs)
    joined = tuple(c for c in components if not set(c.names) <= set(separate))
    described = tuple(_described(s, s.name in exact) for s in sites)
    base = _base(described, draw, size, dtype, inputs)
    return LocalPlan(described, start, size, joined, separate, base)


def own_numbers(local: LocalLatent, theta: jax.Array, start: int) -> jax.Array:
    """A continuous site's numbers in (θ, z), taken as ``substitution`` takes them: the same value, not an equal one."""
    return theta[start + local.where.start : start + local.where.stop]


def prior_elements(site: dict[str, Any], local: LocalLatent, theta: jax.Array, start: int) -> jax.Array:
    """Log prior of a local site's elements in unconstrained space, ``(E,)``."""
    each = elements(site["fn"], site["value"])
    if local.support is not None:
        return jnp.ravel(each.log_prob)
    u = own_numbers(local, theta, start).reshape(local.unconstrained_shape)
    volume = biject_to(each.inner.support).log_abs_det_jacobian(u, site["value"])
    if volume.shape == each.log_prob.shape:
        return jnp.ravel(each.log_prob + volume)
    return (jnp.sum(each.log_prob) + jnp.sum(volume))[None]


def _normal(site: dict[str, Any], local: LocalLatent) -> tuple[jax.Array, jax.Array] | None:
    """(mean, sd) of the unconstrained value, in its shape, where the prior is Gaussian there."""
    inner = scalar_base(site["fn"])
    if type(inner) not in (dist.Normal, dist.LogNormal) or local.unconstrained_shape != local.shape:
        return None
    return jnp.broadcast_to(inner.loc, local.shape), jnp.broadcast_to(inner.scale, local.shape)


def exact_base(site: dict[str, Any], local: LocalLatent) -> tuple[jax.Array, jax.Array]:
    """(mean, sd) of a site whose base is its prior, both flat."""
    found = _normal(site, local)
    assert found is not None
    return jnp.ravel(found[0]), jnp.ravel(found[1])


def _connected(
    sites: Sequence[LocalLatent],
    start: int,
    size: int,
    discrete: int,
    outputs: Sequence[tuple[str, str, int]],
    touches: Sequence[np.ndarray],
    exact: set[str],
) -> list[tuple[list[int], list[tuple[str, str, int]]]]:
    """Local numbers, discrete ones after the continuous, with the outputs that tie them together.

    Observed elements of a site some of whose elements touch no number are parts of their own if others do.
    """
    together = list(range(size + discrete))

    def root(i: int) -> int:
        while together[i] != i:
            i = together[i]
        return i

    mine: dict[int, list[tuple[str, str, int]]] = {}
    alone: list[tuple[list[int], list[tuple[str, str, int]]]] = []
    touching = {o[1] for o, t in zip(outputs, touches, strict=True) if o[0] == "observed" and (t >= start).any()}
    anchors: list[tuple[int, tuple[str, str, int]]] = []
    for output, touched in zip(outputs, touches, strict=True):
        if output[0] == "parameter" or (output[0] == "prior" and output[1] in exact):
            continue
        numbers = touched[touched >= start] - start
        for i in numbers[1:]:
            together[root(int(i))] = root(int(numbers[0]))
        if len(numbers):
            anchors.append((int(numbers[0]), output))
        elif output[0] == "observed" and output[1] in touching:
            alone.append(([], [output]))
    for anchor, output in anchors:
        mine.setdefault(root(anchor), []).append(output)
    members: dict[int, list[int]] = {}
    for i in range(size + discrete):
        members.setdefault(root(i), []).append(i)
    return [(numbers, mine.get(r, [])) for r, numbers in members.items()] + alone


def _component(
    sites: Sequence[LocalLatent],
    size: int,
    exact: set[str],
    numbers: Sequence[int],
    outputs: Sequence[tuple[str, str, int]],
) -> Component | None:
    """A component, unless nothing observed depends on it: then it integrates to one."""
    observed = tuple((n, e) for what, n, e in outputs if what == "observed")
    if not observed:
        return None
    discrete = tuple(i - size for i in numbers if i >= size)
    supports, names = [], []
    for i in discrete:
        site = next(s for s in sites if s.support is not None and s.where.start <= i < s.where.stop)
        supports.append(site.support)
        names.append(site.name)
    count = math.prod(len(s) for s in supports)
    if count > MOST_COMBINATIONS:
        pieces = ", ".join(f"{n} {len(s)}" for n, s in zip(names, supports, strict=True))
        raise ModelError(
            f"The discrete local latents {sorted(set(names))} of one row have {count} combinations of values together "
            f"({pieces}); at most {MOST_COMBINATIONS} are enumerated. Sum some of them out in the model (e.g. with "
            "MixtureSameFamily), or let fewer of them meet in one observed value."
        )
    combinations = np.array(list(product(*supports))).reshape(count, len(discrete))
    priors = tuple((n, e) for what, n, e in outputs if what == "prior" and n not in exact)
    return Component(tuple(i for i in numbers if i < size), discrete, combinations, observed, priors)


def _separate(
    components: Sequence[Component], outputs: Sequence[tuple[str, str, int]]
) -> dict[str, tuple[Component, ...]]:
    """Sites of which every element is a component of its own with nothing in it but exact numbers."""
    counts: dict[str, int] = {}
    for what, name, _ in outputs:
        counts[name] = counts.get(name, 0) + (what == "observed")
    found: dict[str, dict[int, Component]] = {}
    for c in components:
        if len(c.observed) == 1 and not c.priors and not c.discrete:
            name, e = c.observed[0]
            found.setdefault(name, {})[e] = c
    return {name: tuple(per[e] for e in range(counts[name])) for name, per in found.items() if len(per) == counts[name]}


def _described(site: LocalLatent, exact: bool) -> LocalLatent:
    if site.support is not None:
        how = f"enumerated: {len(site.support)} values"
    else:
        how = "joint field with a Gaussian base" + (": its prior" if exact else " fitted to draws of its prior")
    return LocalLatent(**{**vars(site), "exact": exact, "how": how})


# ------------------------------------------------------------------------------------------ the Gaussian base


def _base(
    sites: Sequence[LocalLatent], draw: Callable[..., Any], size: int, dtype: Any, inputs: Sequence[Any]
) -> Callable[..., tuple[Any, Any]]:
    """Median and spread of prior draws of the local numbers: constants, unless they depend on the arguments."""
    inexact = [s for s in sites if s.support is None and not s.exact]
    if not inexact:
        return lambda *inputs: (np.zeros(size), np.ones(size))

    def moments(count: int, *given: Any) -> tuple[jax.Array, jax.Array]:
        def one(key: jax.Array) -> jax.Array:
            latents = draw(key, given)
            z = jnp.zeros(size, dtype)
            for s in inexact:
                site = latents[s.name]
                z = z.at[s.where].set(jnp.ravel(biject_to(site["fn"].support).inv(site["value"])).astype(dtype))
            return z

        z = jax.vmap(one)(jax.random.split(jax.random.key(11), count))
        low, middle, high = jnp.nanquantile(z, jnp.asarray([0.25, 0.5, 0.75], dtype), axis=0)
        sd = 0.7413 * (high - low)
        return jnp.where(jnp.isfinite(middle), middle, 0.0), jnp.where((sd > 0) & (sd < jnp.inf), sd, 1.0)

    traced = trace(
        lambda _, *given: list(moments(_DRAWS, *given)), jax.ShapeDtypeStruct((1,), dtype), *inputs, look_inside=False
    )
    known = [known_value(traced, o) for o in traced.outputs]
    if known[0] is not None and known[1] is not None:
        constants = known[0], known[1]
        return lambda *inputs: constants
    return partial(moments, _DRAWS_PER_ROW)


def base_log_density(plan: LocalPlan, theta: jax.Array, mean: jax.Array, sd: jax.Array) -> list[tuple[jax.Array, int]]:
    """For each local number an array of log-densities under the base, and its place in it; 0 where exact."""
    out: list[tuple[jax.Array, int]] = [(jnp.zeros(1, theta.dtype), 0)] * plan.size
    for s in plan.latents:
        if s.support is None and not s.exact:
            u = own_numbers(s, theta, plan.start)
            logs = dist.Normal(mean[s.where], sd[s.where]).log_prob(u)
            out[s.where] = [(logs, i) for i in range(s.size)]
    return out


def prior_draws(key: jax.Array, only: Sequence[str] | None = None) -> Callable[[dict[str, Any]], Any]:
    """Draws of latent sites from their priors, for ``visit``: of these, or of all."""
    order: list[str] = []

    def values(site: dict[str, Any]) -> Any:
        if site["type"] != "sample" or site["is_observed"] or (only is not None and site["name"] not in only):
            return None
        order.append(site["name"])
        try:
            return site["fn"].sample(jax.random.fold_in(key, len(order)))
        except NotImplementedError:  # an improper prior, which another one will replace
            transform = biject_to(site["fn"].support)
            return transform(jnp.zeros(transform.inverse_shape(site["fn"].shape())))

    return values


# ------------------------------------------------------------------------------------------ what visits share


def evaluated_once(f: Callable[..., list[jax.Array]]) -> Callable[..., list[jax.Array]]:
    """A function whose equal parts are evaluated once.

    The visits of a row differ in the values of its discrete latents alone. What they have in common, such as x @ w, is
    to be one number of the field, not one for each visit.
    """

    def g(*args: Any) -> list[jax.Array]:
        closed = jax.make_jaxpr(f)(*args)
        done: dict[Any, list[Any]] = {}
        return _evaluate(closed.jaxpr, [done.setdefault(_content(c), [c])[0] for c in closed.consts], args, done)

    return g


def _evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], done: dict[Any, list[Any]]) -> list[Any]:
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        operands = [v.val if isinstance(v, Literal) else env[v] for v in eqn.invars]
        inside = eqn.params.get("jaxpr") if eqn.primitive.name in ("jit", "pjit") else None
        if inside is not None:
            values = _evaluate(
                inside.jaxpr, [done.setdefault(_content(c), [c])[0] for c in inside.consts], operands, done
            )
        else:
            names = tuple(_content(a) for a in operands)
            try:
                key: Any = (eqn.primitive, tuple(sorted(eqn.params.items())), names)
                known = done.get(key)
            except TypeError:  # parameters that cannot be compared
                key, known = object(), None
            if known is None:
                out = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
                known = done[key] = list(out) if eqn.primitive.multiple_results else [out]
            values = known
        env.update(zip(eqn.outvars, values, strict=True))
    return [v.val if isinstance(v, Literal) else env[v] for v in jaxpr.outvars]


def _content(a: Any) -> Any:
    """What tells two operands apart: a traced value its identity, a known array its numbers."""
    if isinstance(a, Tracer):
        return id(a)
    if not isinstance(a, np.ndarray | np.generic | int | float | jax.Array) or not hasattr(np.asarray(a), "tobytes"):
        return id(a)
    known = np.asarray(a)
    return str(known.dtype), known.shape, known.tobytes()


# ------------------------------------------------------------------------------------------ posteriors on request


def local_posterior(
    program: "Program",
    mean: Any,
    scale: Any,
    rows: Sequence[Any],
    shared: Sequence[Any],
    sites: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """Posteriors of the local latents of some rows, given a Gaussian belief over θ.

    Each row's are computed from (belief × row) by the rule that also tilts it. A belief that already holds the row
    would count it twice: with the rows' sites it is taken out first.

    Args:
        program: The model as it was read.
        mean: ``(N,)`` of the belief.
        scale: A root of its covariance: ``(N, N)``, ``(N,)`` or ``()``.
        rows: Row arrays with a common leading axis n.
        shared: Shared arrays.
        sites: Where the belief holds the rows, their sites: for each group of factors ``(n, E, numbers)``.

    Returns:
        For discrete sites ``{site: probabilities (n, ..., K)}`` over the K values of the support; for continuous ones
        ``{site: (mean (n, ...), sd (n, ...))}`` in unconstrained space. Sites that no observed site depends on are
        left out.
    """
    mean, scale = jnp.asarray(mean, program.dtype), jnp.asarray(scale, program.dtype)
    discrete = {s.name: s for s in program.local if s.support is not None}
    continuous = {s.name: s for s in program.local if s.support is None}

    def one(row: Sequence[jax.Array], own: Sequence[jax.Array] | None) -> dict[str, Any]:
        inputs = [*[a[None] for a in row], *[jnp.asarray(a) for a in shared]]
        numbers: dict[int, tuple[jax.Array, jax.Array]] = {}
        chances: dict[int, jax.Array] = {}
        for i, group in enumerate(program.factors):
            if group.local is None:
                continue
            matrix, field = group.matrices(mean, *inputs)
            posterior = group.local.rules(*inputs).posterior
            for e, component in enumerate(group.local.components):
                root = root_of_product(matrix[e] @ scale if scale.ndim == 2 else matrix[e] * scale)
                centre = field[e]
                if own is not None and group.field_size:
                    outside = cavity(own[i][e], centre, root, jnp.ones((), mean.dtype), False)
                    centre, root = outside.mean, outside.scale
                found = posterior(e, centre, root)
                for j, number in enumerate(component.numbers):
                    numbers[number] = found.mean[j], found.sd[j]
                for j, number in enumerate(component.discrete):
                    site = next(s for s in discrete.values() if s.where.start <= number < s.where.stop)
                    assert site.support is not None
                    alike = component.combinations[:, j][None] == site.support[:, None]
                    chances[number] = jnp.asarray(alike, mean.dtype) @ found.weights
        out: dict[str, Any] = {}
        for s in continuous.values():
            places = range(s.where.start, s.where.stop)
            if all(i in numbers for i in places):
                both = [jnp.stack([numbers[i][j] for i in places]) for j in (0, 1)]
                out[s.name] = (s.per_row(both[0]), s.per_row(both[1]))
        for s in discrete.values():
            places = range(s.where.start, s.where.stop)
            if all(i in chances for i in places):
                stacked = jnp.stack([chances[i] for i in places], -1)
                out[s.name] = jnp.moveaxis(s.per_row(stacked), 0, -1)
        return out

    arrays = [jnp.asarray(a) for a in rows]
    given = None if sites is None else [jnp.asarray(a) for a in sites]
    return jax.device_get(jax.jit(lambda a: jax.lax.map(lambda row: one(*row), a, batch_size=256))((arrays, given)))
