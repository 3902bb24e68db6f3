"""Reading a NumPyro model: latent sites, prior, factors, rows, and the model check.

The only room that knows NumPyro's internals. What comes out is a ``Program``: functions of a flat unconstrained θ, the
arrays of one row, and the arrays that every row shares.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to

from adfpp.factors import FactorGroup, SiteOutputs, build_factors
from adfpp.field import Trace, depends_on, trace
from adfpp.prior import Block, Component, project_prior
from adfpp.tilt import Moments, closed_form

Model = Callable[..., Any]


class ModelError(ValueError):
    """A model that adfpp cannot fold row by row. The message names the site, the cause and the cure."""


# ---------------------------------------------------------------------------------------------- arguments


class Layout(NamedTuple):
    """How a call's arguments split into rows, shared arrays and fixed values.

    Attributes:
        treedef: Of the arguments, bound to the model's parameter names.
        names: For each leaf, the parameter it belongs to.
        kinds: For each leaf "row", "shared" or "fixed".
        fixed: The fixed leaves' values (Python numbers, strings, …), in order.
    """

    treedef: Any
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    fixed: tuple[Any, ...]

    def rebuild(self, rows: Sequence[Any], shared: Sequence[Any]) -> dict[str, Any]:
        """The bound arguments, with these arrays in their places."""
        pools = {"row": iter(rows), "shared": iter(shared), "fixed": iter(self.fixed)}
        return jax.tree.unflatten(self.treedef, [next(pools[k]) for k in self.kinds])

    def split(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """(row arrays, shared arrays) among the leaves of a call."""
        rows = [a for a, k in zip(leaves, self.kinds, strict=True) if k == "row"]
        return rows, [a for a, k in zip(leaves, self.kinds, strict=True) if k == "shared"]

    def named(self, kind: str) -> tuple[str, ...]:
        """Parameters with leaves of this kind."""
        return tuple(dict.fromkeys(n for n, k in zip(self.names, self.kinds, strict=True) if k == kind))


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array (NumPy, JAX or traced), as opposed to a Python number, a string, …"""
    return isinstance(leaf, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct)


def bind(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any], list[str], Any]:
    """Binds a call to the model's parameter names.

    Returns:
        ``(bound, leaves, names, treedef)`` with one name a leaf.
    """
    signature = inspect.signature(model)
    bound: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        if signature.parameters[name].kind == inspect.Parameter.VAR_KEYWORD:
            bound |= value
        else:
            bound[name] = value
    bound = {name: value for name, value in bound.items() if value is not None}
    with_path, treedef = jax.tree_util.tree_flatten_with_path(bound)
    names = [path[0].key for path, _ in with_path]
    for name, leaf in zip(names, [leaf for _, leaf in with_path], strict=True):
        if not is_array(leaf) and hasattr(leaf, "__array__"):
            raise TypeError(
                f"Argument {name!r} is a {type(leaf).__name__}. Pass an array: {name}.to_numpy() or "
                f"numpy.asarray({name})."
            )
        if is_array(leaf) and not isinstance(leaf, jax.ShapeDtypeStruct) and leaf.dtype.kind in "OUSMm":
            raise TypeError(
                f"Argument {name!r} has dtype {leaf.dtype}, which JAX does not take. Encode it as numbers first "
                "(categories as integer codes, times as floats)."
            )
    return bound, [leaf for _, leaf in with_path], names, treedef


def call(model: Model, bound: Mapping[str, Any]) -> Any:
    """Calls a model with arguments bound by name."""
    positional, keyword, rest = [], {}, dict(bound)
    for name, parameter in inspect.signature(model).parameters.items():
        if name not in rest:
            continue
        if parameter.kind == inspect.Parameter.POSITIONAL_ONLY:
            positional.append(rest.pop(name))
        elif parameter.kind == inspect.Parameter.VAR_POSITIONAL:
            raise ModelError(
                f"The model takes *{name}. Rows are told apart by parameter name: give the model named parameters."
            )
        else:
            keyword[name] = rest.pop(name)
    return model(*positional, **keyword, **rest)


# ---------------------------------------------------------------------------------------------- sites


@dataclass(frozen=True)
class LatentSite:
    """A latent site.

    Attributes:
        name: Its name.
        shape: Of its value.
        unconstrained_shape: Of its unconstrained value.
        where: Its place in the flat θ.
        transform: From unconstrained to constrained.
        support: Its constraint.
        prior: How its prior was projected onto the family, in words (empty until ``init`` or ``explain``).
    """

    name: str
    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]
    where: slice
    transform: Any
    support: Any

    @property
    def size(self) -> int:
        """Number of unconstrained scalars."""
        return self.where.stop - self.where.start


class _Elements(NamedTuple):
    log_prob: jax.Array
    mask: Any
    inner: Any


def elements(fn: Any, value: Any) -> _Elements:
    """The log-density of each independent element of an observed value.

    ``to_event``, ``expand`` and ``mask`` are taken off the distribution; a correlated event stays one element.
    """
    mask: Any = None
    shape = tuple(fn.batch_shape)
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        if isinstance(fn, dist.MaskedDistribution):
            own = jnp.asarray(fn._mask)
            mask = own if mask is None else jnp.logical_and(_aligned(mask, fn.batch_shape), own)
        if isinstance(fn, dist.Independent):
            shape = shape + tuple(fn.event_shape[: fn.reinterpreted_batch_ndims])
            if mask is not None:
                mask = jnp.reshape(
                    jnp.broadcast_to(mask, fn.batch_shape), fn.batch_shape + (1,) * fn.reinterpreted_batch_ndims
                )
        fn = fn.base_dist
    return _Elements(jnp.broadcast_to(fn.log_prob(value), shape), mask, fn)


def _aligned(mask: Any, batch_shape: tuple[int, ...]) -> Any:
    return jnp.broadcast_to(mask, batch_shape)


class Visit(NamedTuple):
    """What one run of a model showed."""

    latents: dict[str, dict[str, Any]]
    observed: dict[str, dict[str, Any]]


class _Replace(numpyro.primitives.Messenger):
    """Puts other priors in the place of a model's own."""

    def __init__(self, fn: Any, priors: Mapping[str, Any]) -> None:
        self.priors = priors
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["name"] in self.priors:
            own, new = msg["fn"], self.priors[msg["name"]]
            shape = tuple(own.batch_shape) + tuple(own.event_shape)
            lifted = new.expand(shape[: len(shape) - new.event_dim]) if tuple(new.batch_shape) != shape else new
            reinterpreted = len(own.event_shape) - lifted.event_dim
            msg["fn"] = lifted.to_event(reinterpreted) if reinterpreted > 0 else lifted


class _Watch(numpyro.primitives.Messenger):
    """Remembers the last site visited, for error messages."""

    def __init__(self, fn: Any) -> None:
        self.last = ""
        super().__init__(fn)

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample":
            self.last = msg["name"]


_VALUE_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


def visit(
    model: Model,
    bound: Mapping[str, Any],
    values: Callable[[dict[str, Any]], Any] | None = None,
    priors: Mapping[str, Any] | None = None,
) -> Visit:
    """Runs a model once and sorts its sites.

    Args:
        model: The model.
        bound: Its arguments by name.
        values: ``site -> value or None`` for latent sites; the prior is sampled where it gives None.
        priors: Distributions to put in the place of the model's own.
    """
    watch = _Watch(lambda: call(model, bound))
    substituted = handlers.substitute(_Replace(watch, priors or {}), substitute_fn=values or (lambda site: None))
    try:
        sites = handlers.trace(handlers.seed(substituted, rng_seed=0)).get_trace()
    except _VALUE_ERRORS as error:
        after = f"after site {watch.last!r}" if watch.last else "before its first site"
        raise ModelError(
            f"The model reads a value out of its data arguments ({after}), such as a number of groups taken from the "
            "data. One row at a time that value would change. Compute it outside and pass it as a Python number, "
            "e.g. model(x, group, n_groups=8)."
        ) from error
    latents, observed = {}, {}
    for name, site in sites.items():
        if site["type"] == "param":
            raise ModelError(
                f"Site {name!r} is a numpyro.param: it has no prior to update. Give it one with numpyro.sample, or pass "
                "its value as an argument."
            )
        if site["type"] == "plate":
            size, subsample = site["args"]
            if subsample is not None and subsample != size:
                raise ModelError(
                    f"Plate {name!r} subsamples ({subsample} of {size}). Rows arrive one by one anyway: drop "
                    "subsample_size and fold the batches with adf.update."
                )
        if site["type"] != "sample":
            continue
        if site["scale"] is not None:
            raise ModelError(
                f"Site {name!r} is under handlers.scale (or a subsampling plate), which would count its rows more or less "
                "than once. Remove the scale; to weigh rows, raise the likelihood to a power with numpyro.factor."
            )
        (observed if site["is_observed"] else latents)[name] = site
    return Visit(latents, observed)


# ---------------------------------------------------------------------------------------------- the program


@dataclass(frozen=True, eq=False)
class Program:
    """A model as functions of (θ, row arrays, shared arrays).

    Attributes:
        model: The model it was read from.
        layout: How its arguments split.
        sites: Latent sites in the order of θ.
        factors: Factor groups, in the order in which a row's factors are folded.
        row_shapes: Shape and dtype of each row array, without the leading axis.
        dtype: Of θ.
        trace: Of one row.
    """

    model: Model
    layout: Layout
    sites: tuple[LatentSite, ...]
    factors: tuple[FactorGroup, ...]
    row_shapes: tuple[jax.ShapeDtypeStruct, ...]
    dtype: Any
    trace: Trace
    log_probs: tuple[Any, ...]
    priors: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Length of θ."""
        return sum(s.size for s in self.sites)

    def substitution(self, theta: jax.Array) -> Callable[[dict[str, Any]], Any]:
        """Constrained values of the latent sites, for ``visit``."""
        return _substitution(self.sites, theta)

    def constrain(self, theta: jax.Array) -> dict[str, jax.Array]:
        """``{site: value}`` of a flat ``(..., N)`` θ."""
        out = {}
        for site in self.sites:
            flat = theta[..., site.where]
            u = flat.reshape(flat.shape[:-1] + site.unconstrained_shape)
            value = site.transform(u)
            out[site.name] = value
        return out

    def unconstrain(self, values: Mapping[str, Any]) -> tuple[jax.Array, jax.Array]:
        """Flat θ ``(..., N)`` of constrained values, and the log-volume of the transform there ``(...)``."""
        parts, log_volume = [], jnp.zeros((), self.dtype)
        for site in self.sites:
            value = jnp.asarray(values[site.name], self.dtype)
            u = site.transform.inv(value)
            lead = u.shape[: u.ndim - len(site.unconstrained_shape)]
            jacobian = site.transform.log_abs_det_jacobian(u, value)
            log_volume = log_volume + jnp.sum(jacobian.reshape((*lead, -1)), -1)
            parts.append(u.reshape((*lead, -1)))
        return jnp.concatenate(parts, -1), log_volume

    @cached_property
    def prior_terms(self) -> Trace:
        """Traced ``θ, *inputs -> log prior of each site`` (elementwise where the site's elements are independent)."""
        return _prior_trace(self)

    def project_prior(self, rows: Sequence[Any], shared: Sequence[Any]) -> list[Block]:
        """The prior as independent Gaussian blocks in unconstrained space.

        Args:
            rows: One row's arrays, leading axis 1 (a prior must not depend on them).
            shared: The shared arrays.
        """
        bound = self.layout.rebuild(rows, shared)
        for site in visit(self.model, bound, priors=self.priors).latents.values():
            base = site["fn"]
            while hasattr(base, "base_dist"):
                base = base.base_dist
            if isinstance(base, dist.ImproperUniform):
                raise ModelError(
                    f"Site {site['name']!r} has an improper prior, from which no online update can start. Give it a "
                    f"proper one in the model, or start from one: prior={{{site['name']!r}: dist.Normal(0, 10)}} (or a "
                    "posterior)."
                )
        inputs = [jnp.asarray(a) for a in (*rows, *shared)]
        return project_prior(_components(self), self._prior_function(inputs), self._prior_sampler(bound), self.dtype)

    def _prior_function(self, inputs: Sequence[Any]) -> Callable[[jax.Array], list[jax.Array]]:
        run = _prior_logs(self.model, self.layout, self.sites, self.priors)
        return lambda theta: run(theta, *inputs)

    def _prior_sampler(self, bound: Mapping[str, Any]) -> Callable[[jax.Array], jax.Array]:
        def draw(key: jax.Array) -> jax.Array:
            with handlers.seed(rng_seed=key):
                latents = visit_seeded(self.model, bound, self.priors)
            return self.unconstrain(latents)[0]

        return draw


def visit_seeded(model: Model, bound: Mapping[str, Any], priors: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the latent sites in one prior draw, under the caller's seed."""
    sites = handlers.trace(_Replace(lambda: call(model, bound), priors)).get_trace()
    return {n: s["value"] for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}


def _substitution(sites: Sequence[LatentSite], theta: jax.Array) -> Callable[[dict[str, Any]], Any]:
    places = {s.name: s for s in sites}

    def values(site: dict[str, Any]) -> Any:
        mine = places.get(site["name"])
        if site["type"] != "sample" or mine is None or site["is_observed"]:
            return None
        # the support at hand, not the one remembered: it may depend on other sites, which the reader refuses
        return biject_to(site["fn"].support)(theta[mine.where].reshape(mine.unconstrained_shape))

    return values


def read(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    rows: Sequence[str] | None,
    moments: Moments,
    priors: Mapping[str, Any] | None = None,
) -> Program:
    """Reads a model into a program. Shapes only are read from the data.

    Args:
        model: The NumPyro model.
        args: Its positional arguments, as NUTS would get them.
        kwargs: Its keyword arguments.
        rows: Parameters that carry rows; found from the model when None.
        moments: How tilted moments are computed.
        priors: Distributions to put in the place of the model's own priors.

    Raises:
        ModelError: When the model cannot be folded row by row.
    """
    bound, leaves, names, treedef = bind(model, args, kwargs)
    _refuse_empty(leaves, names)
    whole = _abstract_visit(model, treedef, leaves, lambda a: a.shape, priors)
    if not whole.observed:
        raise ModelError(
            "The model has no observed site, so there is nothing to learn from. Pass the data that numpyro.sample(..., "
            "obs=...) expects (was it left at None?)."
        )
    layout = _find_rows(whole, bound, leaves, names, treedef, rows)
    _refuse_latents(whole)
    n = next(leaf.shape[0] for leaf, k in zip(leaves, layout.kinds, strict=True) if k == "row")
    sites = _latent_sites(whole)
    try:
        one = _abstract_visit(
            model, treedef, leaves, lambda a, k=layout.kinds: a.shape, priors, kinds=layout.kinds, length=1
        )
        two = _abstract_visit(model, treedef, leaves, lambda a: a.shape, priors, kinds=layout.kinds, length=2)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"The model does not run on a single row of {', '.join(layout.named('row'))}: {_first_line(error)} Size plates "
            "and shapes from the arguments, e.g. numpyro.plate('rows', x.shape[0]), and say which arguments carry rows "
            "with rows=(...) if others were taken for them."
        ) from error
    _compare(whole, n, one, two)
    dtype = jnp.zeros(()).dtype
    row_shapes = tuple(
        jax.ShapeDtypeStruct(leaf.shape[1:], _canonical(leaf))
        for leaf, k in zip(leaves, layout.kinds, strict=True)
        if k == "row"
    )
    shared_shapes = [
        jax.ShapeDtypeStruct(leaf.shape, _canonical(leaf))
        for leaf, k in zip(leaves, layout.kinds, strict=True)
        if k == "shared"
    ]
    row_outputs = _RowOutputs(model, layout, sites, priors or {})
    theta = jax.ShapeDtypeStruct((sum(s.size for s in sites),), dtype)
    inputs = [jax.ShapeDtypeStruct((1, *s.shape), s.dtype) for s in row_shapes] + shared_shapes
    _refuse_dynamic_supports(sites, row_outputs, theta, inputs)
    traced, described, factors = _analyse(row_outputs, theta, inputs, moments, sites)
    return Program(
        model,
        layout,
        sites,
        tuple(factors),
        row_shapes,
        dtype,
        traced,
        tuple(d.log_prob for d in described),
        priors or {},
    )


def _canonical(leaf: Any) -> Any:
    return jax.dtypes.canonicalize_dtype(leaf.dtype)


def _first_line(error: Exception) -> str:
    line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return line if line.endswith(".") else line + "."


def _refuse_empty(leaves: Sequence[Any], names: Sequence[str]) -> None:
    for leaf, name in zip(leaves, names, strict=True):
        if is_array(leaf) and leaf.ndim > 0 and leaf.shape[0] == 0:
            raise ModelError(
                f"Argument {name!r} has no rows (shape {leaf.shape}). Pass at least one: the model is read from its shapes."
            )


def _abstract_visit(
    model: Model,
    treedef: Any,
    leaves: Sequence[Any],
    shape: Callable[[Any], tuple[int, ...]],
    priors: Mapping[str, Any] | None,
    kinds: Sequence[str] | None = None,
    length: int | None = None,
) -> Visit:
    """Visits a model with shapes for arrays, row arrays cut or stretched to ``length``."""
    seen: list[Visit] = []
    arrays = []
    for i, leaf in enumerate(leaves):
        if is_array(leaf):
            s = leaf.shape if length is None or kinds is None or kinds[i] != "row" else (length, *leaf.shape[1:])
            arrays.append(jax.ShapeDtypeStruct(s, _canonical(leaf)))

    def run(*traced: Any) -> None:
        pool = iter(traced)
        full = [next(pool) if is_array(leaf) else leaf for leaf in leaves]
        seen.append(visit(model, jax.tree.unflatten(treedef, full), priors=priors))

    jax.eval_shape(run, *arrays)
    return seen[0]


def _element_shape(site: dict[str, Any]) -> tuple[int, ...]:
    """Shape of an observed site's independent elements."""
    return tuple(jax.eval_shape(lambda: elements(site["fn"], site["value"]).log_prob).shape)


def _find_rows(
    whole: Visit,
    bound: Mapping[str, Any],
    leaves: Sequence[Any],
    names: Sequence[str],
    treedef: Any,
    rows: Sequence[str] | None,
) -> Layout:
    lengths = {leaf.shape[0] for leaf in leaves if is_array(leaf) and leaf.ndim > 0}
    if rows is not None:
        unknown = [r for r in rows if r not in bound]
        if unknown:
            raise ModelError(f"rows names {unknown}, but the model was called with {sorted(bound)}.")
        chosen = {(n, leaf.shape[0] if leaf.ndim else 0) for n, leaf in zip(names, leaves, strict=True) if n in rows and is_array(leaf)}
        if len({length for _, length in chosen}) != 1:
            raise ModelError(f"The arguments named in rows differ in their leading axes: {dict(sorted(chosen))}.")
        carries = [n in rows and is_array(leaf) for n, leaf in zip(names, leaves, strict=True)]
    else:
        n = _row_count(whole, lengths)
        if n is None:
            shapes = {m: leaf.shape for m, leaf in zip(names, leaves, strict=True) if is_array(leaf)}
            plates = {
                f.name: f.size for s in whole.observed.values() for f in s["cond_indep_stack"]
            }
            raise ModelError(
                f"No argument carries rows for the observed sites {sorted(whole.observed)}: their plates are {plates}, "
                f"the arrays' shapes {shapes}. Size the data plate from an argument, numpyro.plate('rows', x.shape[0]), "
                "and pass the data as arguments, rows along the leading axis."
            )
        carries = [is_array(leaf) and leaf.ndim > 0 and leaf.shape[0] == n for leaf in leaves]
    kinds = tuple(
        "row" if c else "shared" if is_array(leaf) else "fixed" for c, leaf in zip(carries, leaves, strict=True)
    )
    fixed = tuple(leaf for leaf in leaves if not is_array(leaf))
    return Layout(treedef, tuple(names), kinds, fixed)


def _row_count(whole: Visit, lengths: set[int]) -> int | None:
    """The size of the observed sites' outermost plate (or axis) that is also the leading axis of an argument."""
    for site in whole.observed.values():
        frames = sorted(site["cond_indep_stack"], key=lambda f: f.dim)
        for size in [f.size for f in frames] or _element_shape(site)[:1]:
            if size in lengths:
                return size
    for site in whole.observed.values():
        for size in _element_shape(site):
            if size in lengths:
                return size
    # a factor summed over its rows shows no size; all arrays of one length leave no doubt
    return next(iter(lengths)) if len(lengths) == 1 else None


def _refuse_latents(whole: Visit) -> None:
    for name, site in whole.latents.items():
        if site["fn"].support is not None and site["fn"].support.is_discrete:
            raise ModelError(
                f"Site {name!r} is a discrete latent variable; the Gaussian families cannot hold it. Sum it out in the "
                "model (e.g. with MixtureSameFamily), or make it continuous."
            )


def _latent_sites(seen: Visit) -> tuple[LatentSite, ...]:
    sites, start = [], 0
    for name, site in seen.latents.items():
        transform = biject_to(site["fn"].support)
        shape = tuple(jnp.shape(site["value"]))
        unconstrained = tuple(transform.inverse_shape(shape))
        size = int(np.prod(unconstrained))
        sites.append(LatentSite(name, shape, unconstrained, slice(start, start + size), transform, site["fn"].support))
        start += size
    if not sites:
        raise ModelError("The model has no latent site: there is nothing to learn.")
    return tuple(sites)


def _compare(whole: Visit, n: int, one: Visit, two: Visit) -> None:
    """Refuses what changes with the number of rows and must not, or does not and must."""
    for name, site in whole.latents.items():
        for other, length in ((one, 1), (two, 2)):
            there = other.latents.get(name)
            if there is None or jnp.shape(there["value"]) != jnp.shape(site["value"]):
                shapes = f"{jnp.shape(site['value'])} with {n} rows, "
                shapes += f"{jnp.shape(there['value'])} with {length}" if there is not None else f"absent with {length}"
                plates = [f.name for f in site["cond_indep_stack"]]
                inside = f" (it is inside plate {plates[0]!r})" if plates else ""
                raise ModelError(
                    f"Latent site {name!r} changes with the number of rows: {shapes}{inside}. Latent sites in the data "
                    "plate (one a row) are not supported yet; sum or integrate them out in the model. If it has one "
                    "element a group, index it by the rows: numpyro.plate('groups', n_groups), z[group]."
                )
    for name in [*one.latents, *two.latents]:
        if name not in whole.latents:
            raise ModelError(f"Latent site {name!r} appears only for some numbers of rows. Draw it for all.")
    for name, site in whole.observed.items():
        if name not in one.observed or name not in two.observed:
            raise ModelError(f"Observed site {name!r} is missing when the model gets fewer rows. Observe it for all.")
        counts = [
            int(np.prod(_element_shape(s.observed[name]))) for s in (one, two)
        ]
        # a factor summed over the rows is one number whatever their number; the numeric check judges it
        scalar = _element_shape(site) == ()
        if counts[1] != 2 * counts[0] and not scalar:
            sizes = {f.name: f.size for f in one.observed[name]["cond_indep_stack"]}
            stuck = [p for p, s in sizes.items() if s > 1]
            plate = f"plate {stuck[0]!r} has {sizes[stuck[0]]} elements" if stuck else f"it has {counts[0]} elements"
            raise ModelError(
                f"Observed site {name!r} does not follow the rows: {plate} even when the model gets one row. Size the plate "
                "from an argument, e.g. numpyro.plate('rows', x.shape[0])."
            )


class _RowOutputs:
    """The outputs of one row, as a function of (θ, *inputs), with a record of which is which."""

    def __init__(
        self, model: Model, layout: Layout, sites: Sequence[LatentSite], priors: Mapping[str, Any]
    ) -> None:
        self.model, self.layout, self.sites, self.priors = model, layout, sites, priors
        self.record: list[dict[str, Any]] = []

    def seen(self, theta: jax.Array, inputs: Sequence[Any]) -> Visit:
        rows = sum(k == "row" for k in self.layout.kinds)
        bound = self.layout.rebuild(inputs[:rows], inputs[rows:])
        return visit(self.model, bound, _substitution(self.sites, theta), self.priors)

    def __call__(self, theta: jax.Array, *inputs: Any) -> list[jax.Array]:
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
            with _quiet():
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
        at = lambda i: None if i is None else outputs[i]  # noqa: E731
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


@contextmanager
def _quiet() -> Iterator[None]:
    """No validation inside: what lies outside a support is told by status, not raised."""
    with numpyro.validation_enabled(False):
        yield


def _analyse(
    row_outputs: _RowOutputs, theta: Any, inputs: Sequence[Any], moments: Moments, sites: Sequence[LatentSite]
) -> tuple[Trace, list[SiteOutputs], list[FactorGroup]]:
    """Traces a row and cuts it; keeps custom derivatives whole unless looking into them makes a field smaller."""
    names = [(s.name, s.where) for s in sites]
    best: tuple[Trace, list[SiteOutputs], list[FactorGroup]] | None = None
    for look_inside in (False, True):
        traced = trace(row_outputs, theta, *inputs, look_inside=look_inside)
        described = row_outputs.described(traced.outputs)
        factors = build_factors(traced, described, moments, names)
        total = sum(g.field_size * g.count for g in factors)
        if best is None or total < sum(g.field_size * g.count for g in best[2]):
            best = traced, described, factors
        if look_inside or not any(e.primitive.name.startswith("custom_") for e in traced.equations):
            break
    assert best is not None
    return best


def _refuse_dynamic_supports(
    sites: Sequence[LatentSite], row_outputs: _RowOutputs, theta: Any, inputs: Sequence[Any]
) -> None:
    """A latent site's value must be a function of its own unconstrained value alone."""

    def values(flat: jax.Array, *rest: Any) -> list[jax.Array]:
        latents = row_outputs.seen(flat, rest).latents
        return [jnp.asarray(latents[s.name]["value"]) for s in sites]

    traced = trace(values, theta, *inputs)
    for site, output in zip(sites, traced.outputs, strict=True):
        touched = depends_on(traced, output)
        touched[site.where] = False
        others = [s.name for s in sites if touched[s.where].any()]
        if others:
            raise ModelError(
                f"The support of site {site.name!r} depends on site {others[0]!r}, so its unconstrained coordinate changes "
                f"meaning as {others[0]!r} is learned. Draw a standardised variable and transform it, e.g. "
                f"u ~ Uniform(0, 1) and {site.name} = {others[0]} * u."
            )


# ---------------------------------------------------------------------------------------------- the prior


def _prior_logs(
    model: Model, layout: Layout, sites: Sequence[LatentSite], priors: Mapping[str, Any]
) -> Callable[..., list[jax.Array]]:
    """``θ, *inputs -> [log prior of each site in unconstrained space]``.

    A site with independent scalar elements gives one number an element, any other site one number.
    """
    rows = sum(k == "row" for k in layout.kinds)

    def logs(theta: jax.Array, *inputs: Any) -> list[jax.Array]:
        bound = layout.rebuild(inputs[:rows], inputs[rows:])
        latents = visit(model, bound, _substitution(sites, theta), priors).latents
        out = []
        for site in sites:
            fn, value = latents[site.name]["fn"], latents[site.name]["value"]
            u = theta[site.where].reshape(site.unconstrained_shape)
            each, transform = elements(fn, value), biject_to(fn.support)
            jacobian = transform.log_abs_det_jacobian(u, value)
            if _scalar_elements(fn, site):
                inner = biject_to(_scalar_support(fn))
                out.append(jnp.ravel(each.log_prob + inner.log_abs_det_jacobian(u, value)))
            else:
                out.append((jnp.sum(each.log_prob) + jnp.sum(jacobian))[None])
        return out

    return logs


def _scalar_support(fn: Any) -> Any:
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        fn = fn.base_dist
    return fn.support


def _scalar_elements(fn: Any, site: LatentSite) -> bool:
    support = _scalar_support(fn)
    transform = biject_to(support)
    return (
        site.unconstrained_shape == site.shape
        and support.event_dim == 0
        and transform.domain.event_dim == 0
        and transform.codomain.event_dim == 0
    )


def _prior_trace(program: Program) -> Trace:
    run = _prior_logs(program.model, program.layout, program.sites, program.priors)
    return trace(run, jax.ShapeDtypeStruct((program.size,), program.dtype), *[v.aval for v in program.trace.inputs])


def _components(program: Program) -> list[Component]:
    """Sites whose priors hang together, and whether a component's elements are independent scalars."""
    traced, sites = program.prior_terms, program.sites
    together = list(range(len(sites)))

    def root(i: int) -> int:
        while together[i] != i:
            i = together[i]
        return i

    for i, output in enumerate(traced.outputs):
        touched = depends_on(traced, output)
        for j, other in enumerate(sites):
            if touched[other.where].any():
                together[root(j)] = root(i)
    components: dict[int, list[int]] = {}
    for i in range(len(sites)):
        components.setdefault(root(i), []).append(i)
    out = []
    for members in components.values():
        where = np.concatenate([np.arange(sites[i].where.start, sites[i].where.stop) for i in members])
        scalar = len(members) == 1 and traced.outputs[members[0]].aval.shape == (sites[members[0]].size,)
        out.append(Component(tuple(sites[i].name for i in members), tuple(members), where, scalar))
    return out


# ---------------------------------------------------------------------------------------------- the numeric check

_DRAWS = 3


def check_rows(program: Program, rows: Sequence[Any], shared: Sequence[Any]) -> bool:
    """Proves at several draws of θ that rows' log-likelihoods add up to the batch's, site by site.

    Args:
        program: The program.
        rows: Row arrays with the same leading axis M ≥ 2; rows that are not finite are left out.
        shared: Shared arrays.

    Returns:
        Whether there were two usable rows to check with.

    Raises:
        ModelError: When they do not add up, or the prior changes with the number of rows.
    """
    rows = [np.asarray(a) for a in rows]
    usable = np.ones(len(rows[0]), bool)
    for a in rows:
        if a.dtype.kind in "fc":
            usable &= np.isfinite(a.reshape(len(a), -1)).all(1)
    rows = [a[usable] for a in rows]
    if len(rows[0]) < 2:
        return False
    theta = jax.random.uniform(jax.random.key(3), (_DRAWS, program.size), program.dtype, -1.0, 1.0)
    one_by_one, batch, prior_one, prior_batch = jax.device_get(_both_ways(program, theta, rows, shared))
    names = list(dict.fromkeys(g.name for g in program.factors))
    tolerance = 1e-8 if program.dtype == jnp.float64 else 1e-3
    finite = np.isfinite(one_by_one).all((0, 2))
    if finite.sum() < len(finite):
        if finite.sum() < 2:
            return False
        return check_rows(program, [a[finite] for a in rows], shared)
    for i, name in enumerate(names):
        apart = np.abs(one_by_one[:, :, i].sum(1) - batch[:, i])
        if not (apart <= tolerance * (1.0 + np.abs(one_by_one[:, :, i]).sum(1))).all():
            raise ModelError(
                f"The rows of site {name!r} do not add up: together their log-density is {batch[0, i]:.6g}, one by one "
                f"{one_by_one[0, :, i].sum():.6g}. Something in the model uses several rows at once (x - x.mean(), a "
                "cumulative sum) or is not counted once a row (a numpyro.factor that belongs to the prior, a plate "
                "nested the wrong way). Standardise before the model, make factors one number a row, and name the "
                "arguments that carry rows with rows=(...) if one was mistaken."
            )
    if not np.allclose(prior_one, prior_batch, rtol=tolerance, atol=tolerance, equal_nan=True):
        raise ModelError(
            "The prior of the latent sites changes with the number of rows or with the rows themselves. A prior must not "
            "look at the data: pass its parameters as arguments of their own."
        )
    return True


def _both_ways(program: Program, theta: jax.Array, rows: Sequence[Any], shared: Sequence[Any]) -> tuple[jax.Array, ...]:
    names = list(dict.fromkeys(g.name for g in program.factors))
    sites, layout = program.sites, program.layout

    def log_densities(flat: jax.Array, some: Sequence[Any], rest: Sequence[Any]) -> tuple[jax.Array, jax.Array]:
        seen = visit(program.model, layout.rebuild(some, rest), _substitution(sites, flat), program.priors)
        logs = jnp.stack([jnp.sum(seen.observed[n]["fn"].log_prob(seen.observed[n]["value"])) for n in names])
        prior = sum(jnp.sum(s["fn"].log_prob(s["value"])) for s in seen.latents.values())
        return logs, jnp.asarray(prior)

    @jax.jit
    def run(flats: jax.Array, some: Sequence[Any], rest: Sequence[Any]) -> tuple[jax.Array, ...]:
        def per_draw(flat: jax.Array) -> tuple[jax.Array, ...]:
            def per_row(row: Sequence[Any]) -> tuple[jax.Array, jax.Array]:
                return log_densities(flat, [a[None] for a in row], rest)

            one, prior_one = jax.vmap(per_row)(some)
            batch, prior_batch = log_densities(flat, some, rest)
            return one, batch, prior_one, jnp.broadcast_to(prior_batch, prior_one.shape)

        return jax.vmap(per_draw)(flats)

    return run(theta, list(rows), list(shared))


