"""Reading a NumPyro model: latent sites, prior, factors, rows, and the model check.

The only room that knows NumPyro's internals. What comes out is a ``Program``: functions of a flat unconstrained θ, the
arrays of one row, and the arrays that every row shares.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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


def bind(
    model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Any], list[str], Any]:
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
    for name, value in bound.items():
        if isinstance(value, list) and all(isinstance(v, int | float) for v in jax.tree.leaves(value)):
            raise TypeError(f"Argument {name!r} is a list of numbers. Pass an array: numpy.asarray({name}).")
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
        event_dim: Of its distribution.
        transform: From unconstrained to constrained.
    """

    name: str
    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]
    where: slice
    event_dim: int
    transform: Any

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
                    jnp.broadcast_to(mask, fn.batch_shape),
                    fn.batch_shape + (1,) * fn.reinterpreted_batch_ndims,
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
        if msg["type"] != "sample" or msg["name"] not in self.priors:
            return
        own, new = msg["fn"], self.priors[msg["name"]]
        shape = tuple(own.batch_shape) + tuple(own.event_shape)
        new = new.expand(shape[: len(shape) - new.event_dim])
        if len(own.event_shape) > new.event_dim:
            new = new.to_event(len(own.event_shape) - new.event_dim)
        if not _same(biject_to(new.support), biject_to(own.support)):
            raise ModelError(
                f"The prior given for site {msg['name']!r} has support {_spoken(new.support)}, the site "
                f"{_spoken(own.support)}. Give a distribution over the site's own support."
            )
        msg["fn"] = new


def _spoken(support: Any) -> str:
    """A support in words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(support).__name__.strip("_")).lower()


def stripped(transform: Any) -> Any:
    """A transform without the wrapper that makes several elements one event."""
    while hasattr(transform, "base_transform"):
        transform = transform.base_transform
    return transform


def _same(one: Any, other: Any) -> bool:
    """Whether two transforms map the same numbers to the same numbers."""
    one, other = stripped(one), stripped(other)
    (leaves, structure), (others, other_structure) = jax.tree.flatten(one), jax.tree.flatten(other)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in (*leaves, *others)):
        return type(one) is type(other)
    if one == other:
        return True
    return structure == other_structure and all(
        np.allclose(a, b) for a, b in zip(leaves, others, strict=True)
    )


def same_space(site: LatentSite, other: LatentSite) -> bool:
    """Whether an unconstrained value means the same at two sites."""
    return site.unconstrained_shape == other.unconstrained_shape and _same(site.transform, other.transform)


def _neutral(site: dict[str, Any]) -> Any:
    """A value in the support of a latent site, for looking at a model: no prior needs to be sampled."""
    if (
        site["type"] != "sample"
        or site["is_observed"]
        or site["fn"].support is None
        or site["fn"].support.is_discrete
    ):
        return None
    transform = biject_to(site["fn"].support)
    return transform(
        jnp.zeros(transform.inverse_shape(tuple(site["fn"].batch_shape) + tuple(site["fn"].event_shape)))
    )


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
        values: ``site -> value or None`` for latent sites; something in the support by default.
        priors: Distributions to put in the place of the model's own.
    """
    watch = _Watch(lambda: call(model, bound))
    substituted = handlers.substitute(_Replace(watch, priors or {}), substitute_fn=values or _neutral)
    try:
        with _quiet():
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
        if not site["is_observed"] and name.endswith("_unobserved"):
            raise ModelError(
                f"Latent site {name!r} comes from obs_mask: one latent value a row, which is not supported yet. Use "
                "handlers.mask (or .mask on the distribution) to leave out what was not observed."
            )
        if not site["is_observed"] and _masked(site["fn"]):
            raise ModelError(
                f"Site {name!r} is under handlers.mask, which makes its prior flat. Mask observed sites only, and give latent "
                "ones a proper prior."
            )
    return Visit(latents, observed)


def _masked(fn: Any) -> bool:
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        if isinstance(fn, dist.MaskedDistribution):
            return True
        fn = fn.base_dist
    return False


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
        pinned: The shared arrays, where a support depends on them: they must stay what they are.
    """

    model: Model
    layout: Layout
    sites: tuple[LatentSite, ...]
    factors: tuple[FactorGroup, ...]
    row_shapes: tuple[jax.ShapeDtypeStruct, ...]
    dtype: Any
    trace: Trace
    pinned: tuple[np.ndarray, ...] | None = None

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

    def project_prior(
        self, rows: Sequence[Any], shared: Sequence[Any], priors: Mapping[str, Any] | None = None
    ) -> list[Block]:
        """The prior as independent Gaussian blocks in unconstrained space.

        Args:
            rows: One row's arrays, leading axis 1 (a prior must not depend on them).
            shared: The shared arrays.
            priors: Distributions to put in the place of the model's own priors.
        """
        priors = priors or {}
        self._check_priors(priors)
        logs = _prior_logs(self.model, self.layout, self.sites, priors)
        inputs = [jnp.zeros((1, *s.shape), s.dtype) for s in self.row_shapes] + [
            jnp.asarray(a) for a in shared
        ]
        theta = jax.ShapeDtypeStruct((self.size,), self.dtype)
        traced = trace(logs, theta, *inputs)
        bound = self.layout.rebuild(inputs[: len(rows)], inputs[len(rows) :])

        def draw(key: jax.Array) -> jax.Array:
            with _quiet(), handlers.seed(rng_seed=key):
                found = handlers.trace(_Replace(lambda: call(self.model, bound), priors)).get_trace()
            values = {
                n: s["value"] for n, s in found.items() if s["type"] == "sample" and not s["is_observed"]
            }
            return self.unconstrain(values)[0]

        return project_prior(_components(traced, self.sites), lambda t: logs(t, *inputs), draw, self.dtype)

    def _check_priors(self, priors: Mapping[str, Any]) -> None:
        names = [s.name for s in self.sites]
        for name, prior in priors.items():
            if name not in names:
                raise ModelError(f"prior names the site {name!r}; the model's latent sites are {names}.")
            if not isinstance(prior, dist.Distribution):
                raise TypeError(
                    f"prior gives site {name!r} a {type(prior).__name__}; it takes a NumPyro distribution, e.g. "
                    f"prior={{{name!r}: dist.Normal(0, 10)}}."
                )


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
) -> Program:
    """Reads a model into a program. Shapes only are read from the data.

    Args:
        model: The NumPyro model.
        args: Its positional arguments, as NUTS would get them.
        kwargs: Its keyword arguments.
        rows: Parameters that carry rows; found from the model when None.
        moments: How tilted moments are computed.

    Raises:
        ModelError: When the model cannot be folded row by row.
    """
    bound, leaves, names, treedef = bind(model, args, kwargs)
    _refuse_empty(leaves, names)
    try:
        whole = _abstract_visit(model, treedef, leaves)
    except ModelError:
        raise
    except Exception as error:
        shapes = ", ".join(
            f"{n} {leaf.shape}" for n, leaf in zip(names, leaves, strict=True) if is_array(leaf)
        )
        raise ModelError(
            f"The model does not run on arguments of these shapes: {shapes}. {_first_line(error)} All arguments that carry rows "
            "must have the same length, and plates must be sized from them: numpyro.plate('rows', x.shape[0])."
        ) from error
    if not whole.observed:
        raise ModelError(
            "The model has no observed site, so there is nothing to learn from. Pass the data that numpyro.sample(..., "
            "obs=...) expects (was it left at None?)."
        )
    layout = _find_rows(whole, bound, leaves, names, treedef, rows)
    _refuse_latents(whole)
    n = next(leaf.shape[0] for leaf, k in zip(leaves, layout.kinds, strict=True) if k == "row")
    _refuse_stretched(whole, n, names, leaves)
    try:
        one, two = (_abstract_visit(model, treedef, leaves, layout.kinds, length) for length in (1, 2))
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"The model does not run on a single row of {', '.join(layout.named('row'))}: {_first_line(error)} Size the data "
            f"plate and all shapes from the arguments (numpyro.plate('rows', x.shape[0]); here {_plates(whole)}), and say which "
            "arguments carry rows with rows=(...) if others were taken for them."
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
    sites = _latent_sites(whole)
    row_outputs = _RowOutputs(model, layout, sites)
    theta = jax.ShapeDtypeStruct((sum(s.size for s in sites),), dtype)
    inputs = [jax.ShapeDtypeStruct((1, *s.shape), s.dtype) for s in row_shapes] + shared_shapes
    _refuse_dynamic_supports(sites, row_outputs, theta, inputs)
    traced, factors = _analyse(row_outputs, theta, inputs, moments, sites)
    sites, pinned = _with_transforms(model, layout, leaves, sites)
    return Program(model, layout, sites, tuple(factors), row_shapes, dtype, traced, pinned)


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
    kinds: Sequence[str] | None = None,
    length: int | None = None,
) -> Visit:
    """Visits a model with shapes for arrays, row arrays cut or stretched to ``length``."""
    seen: list[Visit] = []
    arrays = []
    for i, leaf in enumerate(leaves):
        if is_array(leaf):
            shape = (
                leaf.shape
                if length is None or kinds is None or kinds[i] != "row"
                else (length, *leaf.shape[1:])
            )
            arrays.append(jax.ShapeDtypeStruct(shape, _canonical(leaf)))

    def run(*traced: Any) -> None:
        pool = iter(traced)
        full = [next(pool) if is_array(leaf) else leaf for leaf in leaves]
        found = visit(model, jax.tree.unflatten(treedef, full))
        for site in found.latents.values():
            discrete = site["fn"].support is None or site["fn"].support.is_discrete
            shape = () if discrete else biject_to(site["fn"].support).inverse_shape(jnp.shape(site["value"]))
            site["unconstrained_shape"] = tuple(shape)
        for site in found.observed.values():
            site["element_shape"] = tuple(elements(site["fn"], site["value"]).log_prob.shape)
        seen.append(found)

    jax.eval_shape(run, *arrays)
    return seen[0]


def _plates(seen: Visit) -> str:
    """The observed sites' plates in words."""
    sizes = {
        f"plate {f.name!r} has size {f.size}" for s in seen.observed.values() for f in s["cond_indep_stack"]
    }
    return ", ".join(sorted(sizes)) or "there is no plate"


def _refuse_stretched(whole: Visit, n: int, names: Sequence[str], leaves: Sequence[Any]) -> None:
    """A single observed value must not be stretched over the rows."""
    for name, site in whole.observed.items():
        value, shape = jnp.shape(site["value"]), site["element_shape"]
        if (
            n > 1
            and len(value) >= len(shape) > 0
            and any(a == 1 and b == n for a, b in zip(value, shape, strict=False))
        ):
            lengths = {
                a: leaf.shape[0]
                for a, leaf in zip(names, leaves, strict=True)
                if is_array(leaf) and leaf.ndim
            }
            raise ModelError(
                f"One value of observed site {name!r} would be stretched over {n} rows: the arguments' lengths are {lengths}. Pass "
                "one value a row."
            )


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
        chosen = {
            (n, leaf.shape[0] if leaf.ndim else 0)
            for n, leaf in zip(names, leaves, strict=True)
            if n in rows and is_array(leaf)
        }
        if len({length for _, length in chosen}) != 1:
            raise ModelError(
                f"The arguments named in rows differ in their leading axes: {dict(sorted(chosen))}."
            )
        carries = [n in rows and is_array(leaf) for n, leaf in zip(names, leaves, strict=True)]
    else:
        n = _row_count(whole, lengths)
        if n is None:
            shapes = {m: leaf.shape for m, leaf in zip(names, leaves, strict=True) if is_array(leaf)}
            plates = {f.name: f.size for s in whole.observed.values() for f in s["cond_indep_stack"]}
            raise ModelError(
                f"No argument carries rows for the observed sites {sorted(whole.observed)}: their plates are {plates}, "
                f"the arrays' shapes {shapes}. Size the data plate from an argument, numpyro.plate('rows', x.shape[0]), "
                "and pass the data as arguments, rows along the leading axis."
            )
        carries = [is_array(leaf) and leaf.ndim > 0 and leaf.shape[0] == n for leaf in leaves]
    kinds = tuple(
        "row" if c else "shared" if is_array(leaf) else "fixed"
        for c, leaf in zip(carries, leaves, strict=True)
    )
    fixed = tuple(leaf for leaf in leaves if not is_array(leaf))
    return Layout(treedef, tuple(names), kinds, fixed)


def _row_count(whole: Visit, lengths: set[int]) -> int | None:
    """The size of the observed sites' outermost plate (or axis) that is also the leading axis of an argument."""
    for site in whole.observed.values():
        frames = sorted(site["cond_indep_stack"], key=lambda f: f.dim)
        for size in [f.size for f in frames] or site["element_shape"][:1]:
            if size in lengths:
                return size
    for site in whole.observed.values():
        for size in site["element_shape"]:
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
    """Latent sites and their places in θ; their transforms are filled in by ``_with_transforms``."""
    sites, start = [], 0
    for name, site in seen.latents.items():
        unconstrained = site["unconstrained_shape"]
        size = int(np.prod(unconstrained))
        shape = tuple(jnp.shape(site["value"]))
        sites.append(
            LatentSite(
                name, shape, unconstrained, slice(start, start + size), len(site["fn"].event_shape), None
            )
        )
        start += size
    if not sites:
        raise ModelError("The model has no latent site: there is nothing to learn.")
    return tuple(sites)


def _with_transforms(
    model: Model, layout: Layout, leaves: Sequence[Any], sites: Sequence[LatentSite]
) -> tuple[tuple[LatentSite, ...], tuple[np.ndarray, ...] | None]:
    """The sites with their transforms, whose arrays, if any, are computed from the shared arguments.

    Returns:
        The sites, and the shared arrays if a transform depends on them.
    """
    rows, shared = layout.split(leaves)
    seen: dict[str, Any] = {}

    def supports(*inputs: Any) -> list[jax.Array]:
        """Keeps the supports, taken apart; gives the arrays in them that are computed."""
        found = visit(model, layout.rebuild(inputs[: len(rows)], inputs[len(rows) :])).latents
        seen["leaves"], seen["treedef"] = jax.tree.flatten([found[site.name]["fn"].support for site in sites])
        return [leaf for leaf in seen["leaves"] if isinstance(leaf, jax.core.Tracer)]

    empty = [jnp.zeros((1, *a.shape[1:]), _canonical(a)) for a in rows]
    given = [jax.ShapeDtypeStruct(a.shape, _canonical(a)) for a in shared]
    computed = jax.eval_shape(supports, *empty, *given)
    flat = seen["leaves"]
    if computed:
        values = iter(jax.jit(supports)(*empty, *[jnp.asarray(a) for a in shared]))
        flat = [next(values) if isinstance(leaf, jax.core.Tracer) else leaf for leaf in seen["leaves"]]
    done = [
        replace(site, transform=biject_to(support))
        for site, support in zip(sites, jax.tree.unflatten(seen["treedef"], flat), strict=True)
    ]
    return tuple(done), tuple(np.asarray(a) for a in shared) if computed and shared else None


def _compare(whole: Visit, n: int, one: Visit, two: Visit) -> None:
    """Refuses what changes with the number of rows and must not, or does not and must."""
    for name, site in whole.latents.items():
        for other, length in ((one, 1), (two, 2)):
            there = other.latents.get(name)
            if there is None or jnp.shape(there["value"]) != jnp.shape(site["value"]):
                shapes = f"{jnp.shape(site['value'])} with {n} rows, "
                shapes += (
                    f"{jnp.shape(there['value'])} with {length}"
                    if there is not None
                    else f"absent with {length}"
                )
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
            raise ModelError(
                f"Observed site {name!r} is missing when the model gets fewer rows. Observe it for all."
            )
        counts = [int(np.prod(s.observed[name]["element_shape"])) for s in (one, two)]
        # a factor summed over the rows is one number whatever their number; the numeric check judges it
        scalar = site["element_shape"] == ()
        if counts[1] != 2 * counts[0] and not scalar:
            sizes = {f.name: f.size for f in one.observed[name]["cond_indep_stack"]}
            stuck = [p for p, s in sizes.items() if s > 1]
            plate = (
                f"plate {stuck[0]!r} has {sizes[stuck[0]]} elements"
                if stuck
                else f"it has {counts[0]} elements"
            )
            raise ModelError(
                f"Observed site {name!r} does not follow the rows: {plate} even when the model gets one row. Size the plate "
                "from an argument, e.g. numpyro.plate('rows', x.shape[0])."
            )


class _RowOutputs:
    """The outputs of one row, as a function of (θ, *inputs), with a record of which is which."""

    def __init__(self, model: Model, layout: Layout, sites: Sequence[LatentSite]) -> None:
        self.model, self.layout, self.sites = model, layout, sites
        self.record: list[dict[str, Any]] = []

    def seen(self, theta: jax.Array, inputs: Sequence[Any]) -> Visit:
        rows = sum(k == "row" for k in self.layout.kinds)
        bound = self.layout.rebuild(inputs[:rows], inputs[rows:])
        return visit(self.model, bound, _substitution(self.sites, theta))

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
            entry["counted"] = (
                None if each.mask is None else put(jnp.broadcast_to(each.mask, shape).reshape(-1))
            )
            auxiliary = isinstance(each.inner, dist.Unit)
            event = () if auxiliary else tuple(each.inner.event_shape)
            full = shape + event
            if auxiliary:
                entry["supported"] = entry["finite"] = None
            else:
                value = jnp.broadcast_to(value, full)
                entry["supported"] = self._supported(each.inner, value, shape, put)
                finite = (
                    jnp.isfinite(value) if jnp.issubdtype(value.dtype, jnp.inexact) else jnp.ones(full, bool)
                )
                entry["finite"] = put(jnp.all(finite.reshape((count, -1)), -1))
            form = None if auxiliary else closed_form(each.inner)
            entry["closed"] = form
            if form is not None:
                entry["value"] = put(value.reshape((count, *event)))
                field = jnp.broadcast_to(getattr(each.inner, form.field), full[: len(shape) + form.event_dim])
                entry["field"] = put(field.reshape((count, *event[: form.event_dim])))
                entry["constants"] = [
                    put(self._per_element(getattr(each.inner, c), each.inner, c, shape, count))
                    for c in form.constants
                ]
            self.record.append(entry)
        return outputs

    @staticmethod
    def _supported(
        inner: Any, value: jax.Array, shape: tuple[int, ...], put: Callable[[Any], int]
    ) -> int | None:
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
            if isinstance(_scalar_base(fn), dist.ImproperUniform):
                raise ModelError(
                    f"Site {site.name!r} has an improper prior, from which no online update can start. Give it a proper one "
                    f"in the model, or start from one: prior={{{site.name!r}: dist.Normal(0, 10)}} (or a posterior)."
                )
            u = theta[site.where].reshape(site.unconstrained_shape)
            each, transform = elements(fn, value), biject_to(fn.support)
            jacobian = transform.log_abs_det_jacobian(u, value)
            if _scalar_elements(fn, site):
                inner = biject_to(_scalar_base(fn).support)
                out.append(jnp.ravel(each.log_prob + inner.log_abs_det_jacobian(u, value)))
            else:
                out.append((jnp.sum(each.log_prob) + jnp.sum(jacobian))[None])
        return out

    return logs


def _scalar_base(fn: Any) -> Any:
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        fn = fn.base_dist
    return fn


def _scalar_elements(fn: Any, site: LatentSite) -> bool:
    support = _scalar_base(fn).support
    transform = biject_to(support)
    return (
        site.unconstrained_shape == site.shape
        and support.event_dim == 0
        and transform.domain.event_dim == 0
        and transform.codomain.event_dim == 0
    )


def _components(traced: Trace, sites: Sequence[LatentSite]) -> list[Component]:
    """Sites whose priors hang together, and whether a component's elements are independent scalars."""
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

_DRAWS, _ROWS = 3, 4


class RowCheck:
    """Proves at several draws of θ that rows' log-likelihoods add up to the batch's, site by site.

    It needs two different rows of positive probability, and collects them from the calls it is shown.
    """

    def __init__(self, program: Program) -> None:
        """Nothing is computed before there are two rows."""
        self.program = program
        self.kept: list[np.ndarray] | None = None
        self.tries = 0

    def done(self, rows: Sequence[Any], shared: Sequence[Any]) -> bool:
        """Looks at a call's first rows; says whether the check is through.

        Raises:
            ModelError: When rows do not add up, or the prior changes with them.
        """
        self.tries += 1
        head = [np.asarray(a[:_ROWS]) for a in rows]
        if self.kept is not None:
            head = [np.concatenate([k, h]) for k, h in zip(self.kept, head, strict=True)]
        good = np.ones(len(head[0]), bool)
        for a in head:
            if a.dtype.kind in "fc":
                good &= np.isfinite(a.reshape(len(a), -1)).all(1)
        head = [a[good] for a in head]
        while len(head[0]) >= 2 and any((a != a[:1]).any() for a in head):
            fine = self._compare([np.resize(a, (_ROWS, *a.shape[1:])) for a in head], shared)
            if fine is None:
                return True
            head = [a[fine[: len(a)]] for a in head]
        self.kept = [a[-1:] for a in head] if len(head[0]) else self.kept
        return self.tries >= 100

    @cached_property
    def _logs(self) -> Callable[..., Any]:
        program = self.program
        names = list(dict.fromkeys(g.name for g in program.factors))

        def log_densities(
            flat: jax.Array, some: Sequence[Any], rest: Sequence[Any]
        ) -> tuple[jax.Array, jax.Array]:
            seen = visit(
                program.model, program.layout.rebuild(some, rest), _substitution(program.sites, flat)
            )
            logs = jnp.stack(
                [jnp.sum(seen.observed[n]["fn"].log_prob(seen.observed[n]["value"])) for n in names]
            )
            prior = sum(jnp.sum(_log_prior(s)) for s in seen.latents.values())
            return logs, jnp.asarray(prior)

        def both_ways(flats: jax.Array, some: Sequence[Any], rest: Sequence[Any]) -> tuple[jax.Array, ...]:
            def per_draw(flat: jax.Array) -> tuple[jax.Array, ...]:
                one, prior_one = jax.vmap(lambda row: log_densities(flat, [a[None] for a in row], rest))(some)
                batch, prior_batch = log_densities(flat, some, rest)
                return one, batch, prior_one, jnp.broadcast_to(prior_batch, prior_one.shape)

            return jax.vmap(per_draw)(flats)

        return jax.jit(both_ways)

    def _compare(self, rows: Sequence[np.ndarray], shared: Sequence[Any]) -> np.ndarray | None:
        """None when rows add up; which of them are possible at all when some are not."""
        program = self.program
        theta = jax.random.uniform(jax.random.key(3), (_DRAWS, program.size), program.dtype, -1.0, 1.0)
        one_by_one, batch, prior_one, prior_batch = jax.device_get(
            self._logs(theta, list(rows), list(shared))
        )
        possible = np.isfinite(one_by_one).all((0, 2))
        if not possible.all():
            return possible
        tolerance = 1e-8 if program.dtype == jnp.float64 else 1e-3
        for i, name in enumerate(dict.fromkeys(g.name for g in program.factors)):
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
        return None


def _log_prior(site: dict[str, Any]) -> Any:
    """Log prior density of a latent site; 0 for an improper one, which has none."""
    if isinstance(_scalar_base(site["fn"]), dist.ImproperUniform):
        return jnp.zeros(())
    return site["fn"].log_prob(site["value"])
