"""Reading a model into a program: which arguments carry rows, which sites are latent, and what is refused."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpyro.distributions import biject_to
from numpyro.distributions.transforms import IdentityTransform

from adfpp.engine.families import ByLatent, Family, Full
from adfpp.engine.families.product.exponential import Finite
from adfpp.engine.tilt import Moments
from adfpp.engine.trace import depends_on, trace
from adfpp.model.arguments import Layout, Model, ModelError, bind, is_array
from adfpp.model.local import enumerable, local_latents
from adfpp.model.native import own_families, resolved
from adfpp.model.program import Latent, Program
from adfpp.model.rows import RowOutputs, analyse
from adfpp.model.visit import Visit, elements, visit


def read(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    rows: Sequence[str] | None,
    moments: Moments,
    family: Family | ByLatent | None = None,
) -> Program:
    """Reads a model into a program. Shapes only are read from the data.

    Args:
        model: The NumPyro model.
        args: Its positional arguments, as NUTS would get them.
        kwargs: Its keyword arguments.
        rows: Parameters that carry rows; found from the model when None.
        moments: How tilted moments are computed.
        family: How the belief is held: one family, or by site; a full Gaussian when None.

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
        shapes = ", ".join(f"{n} {leaf.shape}" for n, leaf in zip(names, leaves, strict=True) if is_array(leaf))
        raise ModelError(
            f"The model does not run on arguments of these shapes: {shapes}. {_first_line(error)} All arguments that "
            "carry rows must have the same length, and plates must be sized from them: numpyro.plate('rows', "
            "x.shape[0])."
        ) from error
    if not whole.observed:
        raise ModelError(
            "The model has no observed site, so there is nothing to learn from. Pass the data that numpyro.sample(..., "
            "obs=...) expects (was it left at None?)."
        )
    layout = _find_rows(whole, bound, leaves, names, treedef, rows)
    n = next(leaf.shape[0] for leaf, k in zip(leaves, layout.kinds, strict=True) if k == "row")
    _refuse_stretched(whole, n, names, leaves)
    try:
        one, two = (_abstract_visit(model, treedef, leaves, layout.kinds, length) for length in (1, 2))
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"The model does not run on a single row of {', '.join(layout.named('row'))}: {_first_line(error)} Size "
            "the data plate and all shapes from the arguments (numpyro.plate('rows', x.shape[0]); here "
            f"{_plates(whole)}), and say which arguments carry rows with rows=(...) if others were taken for them."
        ) from error
    local = local_latents(whole, n, one, two)
    apart = frozenset(s.name for s in local)
    asked = family if family is not None else Full()
    own = own_families(asked, {n: s for n, s in whole.latents.items() if n not in apart})
    _compare(whole, n, one, two, apart)
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
    sites = _latents(whole, apart, own)
    held = resolved(asked, sites)
    row_outputs = RowOutputs(model, layout, sites, local)
    local_numbers = sum(s.size for s in local if s.support is None)
    theta = jax.ShapeDtypeStruct((sum(s.size for s in sites) + local_numbers,), dtype)
    inputs = [jax.ShapeDtypeStruct((1, *s.shape), s.dtype) for s in row_shapes] + shared_shapes
    sites = _with_whole_numbers(model, layout, sites, local, theta, inputs)
    row_outputs = RowOutputs(model, layout, sites, local)
    _refuse_dynamic_supports(sites, row_outputs, theta, inputs)
    row_outputs.plan_locals(dtype, inputs)
    local = row_outputs.plan.latents if row_outputs.plan is not None else local
    traced, factors = analyse(row_outputs, theta, inputs, moments, sites)
    sites, pinned = _with_transforms(model, layout, leaves, sites)
    return Program(
        model,
        layout,
        sites,
        tuple(factors),
        row_shapes,
        dtype,
        traced,
        held,
        pinned,
        local,
        tuple(shared_shapes),
        moments,
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
                f"Argument {name!r} has no rows (shape {leaf.shape}). Pass at least one: the model is read from its "
                "shapes."
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
            shape = leaf.shape if length is None or kinds is None or kinds[i] != "row" else (length, *leaf.shape[1:])
            arrays.append(jax.ShapeDtypeStruct(shape, _canonical(leaf)))

    def run(*traced: Any) -> None:
        pool = iter(traced)
        full = [next(pool) if is_array(leaf) else leaf for leaf in leaves]
        found = visit(model, jax.tree.unflatten(treedef, full))
        for site in found.latents.values():
            discrete = site["fn"].support is None or site["fn"].support.is_discrete
            shape = () if discrete else biject_to(site["fn"].support).inverse_shape(jnp.shape(site["value"]))
            site["unconstrained_shape"] = tuple(shape)
            site["element_shape"] = tuple(elements(site["fn"], site["value"]).log_prob.shape)
            site["discrete"] = discrete
            site["values"] = enumerable(site["fn"]) if discrete else None
        for site in found.observed.values():
            site["element_shape"] = tuple(elements(site["fn"], site["value"]).log_prob.shape)
        seen.append(found)

    jax.eval_shape(run, *arrays)
    return seen[0]


def _plates(seen: Visit) -> str:
    """The observed sites' plates in words."""
    sizes = {f"plate {f.name!r} has size {f.size}" for s in seen.observed.values() for f in s["cond_indep_stack"]}
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
            lengths = {a: leaf.shape[0] for a, leaf in zip(names, leaves, strict=True) if is_array(leaf) and leaf.ndim}
            raise ModelError(
                f"One value of observed site {name!r} would be stretched over {n} rows: the arguments' lengths are "
                f"{lengths}. Pass one value a row."
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
            raise ModelError(f"The arguments named in rows differ in their leading axes: {dict(sorted(chosen))}.")
        carries = [n in rows and is_array(leaf) for n, leaf in zip(names, leaves, strict=True)]
    else:
        n = _row_count(whole, lengths)
        if n is None:
            shapes = {m: leaf.shape for m, leaf in zip(names, leaves, strict=True) if is_array(leaf)}
            plates = {f.name: f.size for s in whole.observed.values() for f in s["cond_indep_stack"]}
            raise ModelError(
                f"No argument carries rows for the observed sites {sorted(whole.observed)}: their plates are {plates}, "
                f"the arrays' shapes {shapes}. Size the data plate from an argument, numpyro.plate('rows', "
                "x.shape[0]), and pass the data as arguments, rows along the leading axis."
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
        for size in [f.size for f in frames] or site["element_shape"][:1]:
            if size in lengths:
                return size
    for site in whole.observed.values():
        for size in site["element_shape"]:
            if size in lengths:
                return size
    # a factor summed over its rows shows no size; all arrays of one length leave no doubt
    return next(iter(lengths)) if len(lengths) == 1 else None


def _latents(seen: Visit, local: frozenset[str], own: Mapping[str, Any]) -> tuple[Latent, ...]:
    """Latent sites that rows share and their places in θ; transforms are filled in by ``_with_transforms``."""
    sites, start = [], 0
    for name, site in seen.latents.items():
        if name in local:
            continue
        shape = tuple(jnp.shape(site["value"]))
        unconstrained = shape if name in own else site["unconstrained_shape"]
        size = int(np.prod(unconstrained))
        where = slice(start, start + size)
        sites.append(Latent(name, shape, unconstrained, where, len(site["fn"].event_shape), None, own.get(name)))
        start += size
    if not sites:
        if local:
            raise ModelError(
                f"All latent sites ({sorted(local)}) are drawn for every row: there is nothing that one row could "
                "learn for the next. Give the rows a parameter in common."
            )
        raise ModelError("The model has no latent site: there is nothing to learn.")
    return tuple(sites)


def _with_transforms(
    model: Model, layout: Layout, leaves: Sequence[Any], sites: Sequence[Latent]
) -> tuple[tuple[Latent, ...], tuple[np.ndarray, ...] | None]:
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
        return [leaf for leaf in seen["leaves"] if isinstance(leaf, Tracer)]

    empty = [jnp.zeros((1, *a.shape[1:]), _canonical(a)) for a in rows]
    given = [jax.ShapeDtypeStruct(a.shape, _canonical(a)) for a in shared]
    computed = jax.eval_shape(supports, *empty, *given)
    flat = seen["leaves"]
    if computed:
        values = iter(jax.jit(supports)(*empty, *[jnp.asarray(a) for a in shared]))
        flat = [next(values) if isinstance(leaf, Tracer) else leaf for leaf in seen["leaves"]]
    done = [
        replace(site, transform=IdentityTransform() if site.native is not None else biject_to(support))
        for site, support in zip(sites, jax.tree.unflatten(seen["treedef"], flat), strict=True)
    ]
    return tuple(done), tuple(np.asarray(a) for a in shared) if computed and shared else None


def _compare(whole: Visit, n: int, one: Visit, two: Visit, local: frozenset[str]) -> None:
    """Refuses what changes with the number of rows and must not, or does not and must."""
    for name, site in whole.latents.items():
        if name in local:
            continue
        for other, length in ((one, 1), (two, 2)):
            there = other.latents.get(name)
            if there is None or jnp.shape(there["value"]) != jnp.shape(site["value"]):
                shapes = f"{jnp.shape(site['value'])} with {n} rows, "
                shapes += f"{jnp.shape(there['value'])} with {length}" if there is not None else f"absent with {length}"
                plates = [f.name for f in site["cond_indep_stack"]]
                inside = f" (it is inside plate {plates[0]!r})" if plates else ""
                raise ModelError(
                    f"Latent site {name!r} changes with the number of rows: {shapes}{inside}. A latent site of the "
                    "rows' own must have one entry a row, along one axis: draw it inside the data plate. If it has one "
                    "element a group, index it by the rows: numpyro.plate('groups', n_groups), z[group]."
                )
    for name in [*one.latents, *two.latents]:
        if name not in whole.latents:
            raise ModelError(f"Latent site {name!r} appears only for some numbers of rows. Draw it for all.")
    for name, site in whole.observed.items():
        if name not in one.observed or name not in two.observed:
            raise ModelError(f"Observed site {name!r} is missing when the model gets fewer rows. Observe it for all.")
        counts = [int(np.prod(s.observed[name]["element_shape"])) for s in (one, two)]
        # a factor summed over the rows is one number whatever their number; the numeric check judges it
        scalar = site["element_shape"] == ()
        if counts[1] != 2 * counts[0] and not scalar:
            sizes = {f.name: f.size for f in one.observed[name]["cond_indep_stack"]}
            stuck = [p for p, s in sizes.items() if s > 1]
            plate = f"plate {stuck[0]!r} has {sizes[stuck[0]]} elements" if stuck else f"it has {counts[0]} elements"
            raise ModelError(
                f"Observed site {name!r} does not follow the rows: {plate} even when the model gets one row. Size the "
                "plate from an argument, e.g. numpyro.plate('rows', x.shape[0])."
            )


def _with_whole_numbers(
    model: Model, layout: Layout, sites: tuple[Latent, ...], local: Sequence[Any], theta: Any, inputs: Sequence[Any]
) -> tuple[Latent, ...]:
    """The sites, discrete ones given to the model as whole numbers where it does not run on floats (``mean[z]``).

    As floats they may be summed and multiplied into a field; whole numbers are opaque to it.
    """
    if not any(isinstance(s.native, Finite) for s in sites):
        return sites

    def runs(sites: tuple[Latent, ...]) -> None:
        outputs = RowOutputs(model, layout, sites, local)

        def priors(flat: jax.Array, *rest: Any) -> list[jax.Array]:
            latents = outputs.seen(flat, rest).latents
            # a Categorical looks its own value up in a table
            return [elements(latents[s.name]["fn"], latents[s.name]["value"]).log_prob for s in sites if s.discrete]

        jax.eval_shape(priors, theta, *inputs)

    try:
        runs(sites)
    except ModelError:
        raise
    except (TypeError, ValueError, IndexError):  # what indexing by a float, and shapes made of one, give
        whole = tuple(replace(s, whole=True) if isinstance(s.native, Finite) else s for s in sites)
        runs(whole)
        return whole
    return sites


def _refuse_dynamic_supports(
    sites: Sequence[Latent], row_outputs: RowOutputs, theta: Any, inputs: Sequence[Any]
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
                f"The support of site {site.name!r} depends on site {others[0]!r}, so its unconstrained coordinate "
                f"changes meaning as {others[0]!r} is learned. Draw a standardised variable and transform it, e.g. "
                f"u ~ Uniform(0, 1) and {site.name} = {others[0]} * u."
            )
