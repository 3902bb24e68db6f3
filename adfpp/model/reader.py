"""Reading a model into a program: the steps in their order, from the arguments of one call to the factors of one row.

Only shapes are read from the data, with one exception: shared arrays that a support depends on (``Program.pinned``).
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from adfpp.engine.families import ByLatent, Family, Full
from adfpp.engine.tilt import Moments
from adfpp.model.arguments import Bound, Model, ModelError, bind, canonical_dtype
from adfpp.model.families import native_families, resolved_family
from adfpp.model.latents import shared_latents, with_transforms, with_whole_numbers
from adfpp.model.layout import Layout, find_layout, refuse_empty, shapes_in_words
from adfpp.model.local import local_latents
from adfpp.model.observations import RowModel, traced_factors
from adfpp.model.outline import Outlines, outline
from adfpp.model.program import Program
from adfpp.model.reference import ModelReference
from adfpp.model.refusals import plates_in_words, refuse_changes, refuse_dynamic_supports, refuse_stretched


def read(
    model: Model,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    rows: Sequence[str] | None,
    moments: Moments,
    family: Family | ByLatent | None = None,
) -> Program:
    """Reads a model into a program.

    Args:
        model: The NumPyro model.
        args: Its positional arguments, as NUTS would get them. ``jax.ShapeDtypeStruct`` does for arrays of rows.
        kwargs: Its keyword arguments.
        rows: Parameters that carry rows; found from the model when None.
        moments: How tilted moments are computed.
        family: The family of the belief: one for all latents, or by latent; a full Gaussian when None.

    Raises:
        ModelError: When the model cannot be learned row by row.
    """
    bound = bind(model, args, kwargs)
    refuse_empty(bound)
    whole = _outline_of_call(model, bound)
    layout = find_layout(whole, bound, rows)
    row_arrays, shared_arrays = layout.split(bound.leaves)
    count = row_arrays[0].shape[0]
    refuse_stretched(whole, count, bound)
    one, two = (_outline_of_rows(model, bound, layout, whole, length) for length in (1, 2))
    local = local_latents(whole, count, one, two)
    local_names = frozenset(s.name for s in local)
    asked = family if family is not None else Full()
    native = native_families(asked, {n: s for n, s in whole.latents.items() if n not in local_names})
    refuse_changes(whole, count, one, two, local_names)

    dtype = jnp.zeros(()).dtype
    row_shapes = tuple(jax.ShapeDtypeStruct(a.shape[1:], canonical_dtype(a)) for a in row_arrays)
    shared_shapes = tuple(jax.ShapeDtypeStruct(a.shape, canonical_dtype(a)) for a in shared_arrays)
    latents = shared_latents(whole, local_names, native)
    belief_family = resolved_family(asked, latents)
    local_numbers = sum(s.size for s in local if s.support is None)
    theta = jax.ShapeDtypeStruct((sum(latent.size for latent in latents) + local_numbers,), dtype)
    inputs = [*(jax.ShapeDtypeStruct((1, *s.shape), s.dtype) for s in row_shapes), *shared_shapes]
    latents = with_whole_numbers(
        latents, lambda some, flat, rest: RowModel(model, layout, some, local).visit(flat, rest), theta, inputs
    )
    row_model = RowModel(model, layout, latents, local)
    refuse_dynamic_supports(latents, row_model.visit, theta, inputs)
    row_model = row_model.planned(dtype, inputs)
    traced, factors = traced_factors(row_model, theta, inputs, moments)
    latents, pinned = with_transforms(model, layout, bound.leaves, latents)
    return Program(
        model,
        layout,
        latents,
        tuple(factors),
        row_shapes,
        dtype,
        traced,
        belief_family,
        pinned,
        row_model.local,
        shared_shapes,
        moments,
        asked,
    )


def read_again(
    reference: ModelReference,
    call: Mapping[str, object],
    rows: Sequence[str],
    moments: Moments,
    asked: Family | ByLatent | None,
    fingerprint: str,
) -> Program:
    """Reads the program of a pickle.

    Args:
        reference: To the model.
        call: The arguments by name, with shapes in the place of arrays.
        rows: Parameters that carry rows.
        moments: How tilted moments are computed.
        asked: As ``family`` of ``read``.
        fingerprint: Of the program that was pickled.

    Raises:
        ModelError: When another program comes out, as when the model has changed since.
    """
    program = read(reference.model, (), call, rows, moments, asked)
    if program.fingerprint != fingerprint:
        raise ModelError(
            f"The pickle was made with another program: {program.differences(fingerprint)}. Read it with the model and "
            "the precision (jax_enable_x64) that it was made with."
        )
    return program


def _outline_of_call(model: Model, bound: Bound) -> Outlines:
    """The model on the call's arguments as they are."""
    try:
        whole = outline(model, bound)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"The model does not run on arguments of these shapes: {shapes_in_words(bound)}. {_first_line(error)} All "
            "arguments that carry rows must have the same length, and plates must be sized from them: "
            "numpyro.plate('rows', x.shape[0])."
        ) from error
    if not whole.observations:
        raise ModelError(
            "The model has no observation, so there is nothing to learn from. Pass the data that numpyro.sample(..., "
            "obs=...) expects (was it left at None?)."
        )
    return whole


def _outline_of_rows(model: Model, bound: Bound, layout: Layout, whole: Outlines, length: int) -> Outlines:
    """The model on this number of rows."""
    try:
        return outline(model, bound, layout.kinds, length)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"The model does not run on a single row of {', '.join(layout.named('row'))}: {_first_line(error)} Size "
            "the data plate and all shapes from the arguments (numpyro.plate('rows', x.shape[0]); here "
            f"{plates_in_words(whole)}), and say which arguments carry rows with rows=(...) if others were taken for "
            "them."
        ) from error


def _first_line(error: Exception) -> str:
    line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return line if line.endswith(".") else line + "."
