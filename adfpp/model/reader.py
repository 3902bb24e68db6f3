"""Reads a model into a program, step by step, from the arguments of one call to the factors of one row.

Only the shapes of the data are used, except for shared arrays that a support depends on (``Program.pinned``).
"""

import re
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from adfpp.engine.factor import Factor
from adfpp.engine.families import ByLatent, Conjugate, Family, Full, Product
from adfpp.engine.tilt import Moments
from adfpp.engine.trace import Trace
from adfpp.model.arguments import Bound, Model, ModelError, ValueNeeded, bind, canonical_dtype
from adfpp.model.conjugate import ConjugateModel, conjugate_model
from adfpp.model.constants import Once, digest_of, observed_once
from adfpp.model.families import native_families, resolved_family
from adfpp.model.latents import shared_latents, with_transforms, with_whole_numbers
from adfpp.model.layout import Layout, find_layout, refuse_empty, shapes_in_words, with_counts
from adfpp.model.local import local_latents
from adfpp.model.location import first_line, raised_at
from adfpp.model.observations import RowModel, traced_factors
from adfpp.model.outline import Outlines, outline
from adfpp.model.priors.density import ModelPrior
from adfpp.model.program import Program
from adfpp.model.reference import ModelReference
from adfpp.model.refusals import (
    follow_rows,
    numbers_of,
    one_row_advice,
    plates_in_words,
    refuse_changes,
    refuse_dynamic_supports,
    refuse_stretched,
)
from adfpp.model.sizes import SizedModel, with_sizes

# What JAX says of an operation without a derivative. Other errors may speak of gradients, too, and are another cause.
_NO_DERIVATIVE = re.compile("gradient .*not supported|[Dd]ifferentiation rule for .* not implemented", re.DOTALL)


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
        args: Its positional arguments, as for NUTS. Arrays of rows may be given as ``jax.ShapeDtypeStruct``.
        kwargs: Its keyword arguments.
        rows: Parameters that carry rows; None to find them from the model, and none if the whole call is one row.
        moments: How tilted moments are computed.
        family: The family of the belief: one for all latents, or by latent; a full Gaussian when None.

    Raises:
        ModelError: When the model cannot be learned row by row.
    """
    bound = bind(model, args, kwargs)
    refuse_empty(bound)
    try:
        whole = _outline_of_call(model, bound)
    except ValueNeeded as error:
        model = with_sizes(model, bound.arguments, error)
        whole = _outline_of_call(model, bound)
    layout = find_layout(whole, bound, rows)
    row_arrays, shared_arrays = layout.split(bound.leaves)
    count = row_arrays[0].shape[0]
    layout, one, two = _outlines_of_rows(model, bound, layout, whole, count)
    once = Once() if layout.whole else observed_once(model, bound, layout, (whole, one, two))
    whole, one, two = (outlines.without(once.names) for outlines in (whole, one, two))
    _refuse_unobserved(whole)
    local = () if layout.whole else local_latents(whole, count, one, two)
    local_names = frozenset(s.name for s in local)
    asked = family if family is not None else Full()
    native = native_families(asked, {n: s for n, s in whole.latents.items() if n not in local_names})
    if not layout.whole:
        refuse_changes(whole, count, one, two, local_names)

    dtype = jnp.zeros(()).dtype
    row_shapes = tuple(jax.ShapeDtypeStruct(a.shape[1:], canonical_dtype(a)) for a in row_arrays)
    shared_shapes = tuple(jax.ShapeDtypeStruct(a.shape, canonical_dtype(a)) for a in shared_arrays)
    latents = shared_latents(whole, local_names, native)
    belief_family: Family = resolved_family(asked, latents)
    local_numbers = sum(s.size for s in local if s.support is None)
    theta = jax.ShapeDtypeStruct((sum(latent.size for latent in latents) + local_numbers,), dtype)
    inputs = [*(jax.ShapeDtypeStruct((1, *s.shape), s.dtype) for s in row_shapes), *shared_shapes]
    latents = with_whole_numbers(
        latents, lambda some, flat, rest: RowModel(model, layout, some, local).visit(flat, rest), theta, inputs
    )
    row_model = RowModel(model, layout, latents, local, without=once.names)
    refuse_dynamic_supports(latents, row_model.visit, theta, inputs)
    conjugate: ConjugateModel | None = None
    traced: Trace | None = None
    factors: Sequence[Factor] = ()
    if isinstance(asked, Conjugate):
        row_model = row_model.checked(theta, inputs)
        prior = ModelPrior(model, layout, latents, row_shapes, dtype, terms=once.prior_terms)
        conjugate = conjugate_model(row_model, prior, theta, inputs)
        belief_family = Product(conjugate.joint.parts)
    else:
        row_model = row_model.planned(dtype, inputs).checked(theta, inputs)
        traced, factors = _factors(row_model, theta, inputs, moments)
    latents, pinned = with_transforms(model, layout, bound.leaves, latents)
    known = not any(isinstance(a, jax.ShapeDtypeStruct | Tracer) for a in shared_arrays)
    if isinstance(model, SizedModel) or (once.read and known):
        pinned = tuple(np.asarray(a) for a in shared_arrays)
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
        once.constants,
        once.prior_terms,
        digest_of([np.asarray(shared_arrays[i]) for i in once.read]) if once.read and known else "",
        conjugate,
    )


def _factors(
    row_model: RowModel, theta: jax.ShapeDtypeStruct, inputs: Sequence[jax.ShapeDtypeStruct], moments: Moments
) -> tuple[Trace, list[Factor]]:
    """The trace of a row and its factors.

    Raises:
        ModelError: When the log-density of a row has no derivative.
    """
    try:
        return traced_factors(row_model, theta, inputs, moments)
    except (ValueError, TypeError, NotImplementedError) as error:
        if isinstance(error, ModelError) or not _NO_DERIVATIVE.search(str(error)):
            raise
        raise ModelError(
            f"The log-density of a row has no derivative with respect to a latent: {first_line(error)} Neither adfpp "
            "nor NUTS can learn this latent. Give its value as an argument, or use another likelihood."
        ) from error


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
        reference: A reference to the model.
        call: The arguments by name, with shapes in the place of arrays.
        rows: Parameters that carry rows.
        moments: How tilted moments are computed.
        asked: The argument ``family`` of ``read``.
        fingerprint: The fingerprint of the program that was pickled.

    Raises:
        ModelError: When the result is another program, e.g. because the model has changed since.
    """
    program = read(reference.model, (), call, rows, moments, asked)
    if program.fingerprint != fingerprint:
        raise ModelError(
            f"The pickle was made with another program: {program.differences(fingerprint)}. Read it with the model and "
            "the precision (jax_enable_x64) that it was made with."
        )
    return program


def _outline_of_call(model: Model, bound: Bound) -> Outlines:
    """The shapes of the model on all rows of the call."""
    try:
        whole = outline(model, bound)
    except ModelError:
        raise
    except Exception as error:
        advice = (
            f" The arguments have the shapes {shapes_in_words(bound)}. All arguments that carry rows must have the "
            "same length, and plates must be sized from them: numpyro.plate('rows', x.shape[0])."
        )
        raise ModelError(f"{_in_words(error)}{advice if _is_about_shapes(error) else _none_in_words(bound)}") from error
    _refuse_unobserved(whole)
    return whole


def _refuse_unobserved(whole: Outlines) -> None:
    """Refuses a model without observations."""
    if not whole.observations:
        raise ModelError(
            "The model has no observation, so there is nothing to learn from. Pass the data that numpyro.sample(..., "
            "obs=...) expects (was it left at None?)."
        )


def _outlines_of_rows(
    model: Model, bound: Bound, layout: Layout, whole: Outlines, count: int
) -> tuple[Layout, Outlines, Outlines]:
    """The shapes of the model on one row and on two rows.

    If the observations do not follow the rows, because a whole number among the arguments sizes their plate, the layout
    that is returned has this number as a count.
    """
    if layout.whole:
        return layout, whole, whole
    refuse_stretched(whole, count, bound)
    failed: ModelError | None = None
    first: tuple[Layout, Outlines, Outlines] | None = None
    for candidate in (layout, *with_counts(layout, bound.leaves, count)):
        try:
            one, two = (_outline_of_rows(model, bound, candidate, whole, length) for length in (1, 2))
        except ModelError as error:
            failed = failed or error
            continue
        first = first or (candidate, one, two)
        if follow_rows(one, two):
            return candidate, one, two
    if failed is not None:
        raise failed
    assert first is not None
    return first


def _outline_of_rows(model: Model, bound: Bound, layout: Layout, whole: Outlines, length: int) -> Outlines:
    """The shapes of the model on this number of rows."""
    try:
        return outline(model, bound, layout.kinds, length)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"{_in_words(error)} It runs on all rows, but not on {'a single row' if length == 1 else 'two rows'} of "
            f"{', '.join(layout.named('row'))}. Size the data plate and all shapes from the arguments "
            f"(numpyro.plate('rows', x.shape[0]); here {plates_in_words(whole)}), and say which arguments carry rows "
            "with rows=(...) if others were taken for them. If a row's density reads the rows before it, pass earlier "
            f"values as columns of their own (y_before=...).{one_row_advice(numbers_of(whole))}"
        ) from error


def _in_words(error: Exception) -> str:
    """The error that the model raised, and its place."""
    at = raised_at(error)
    return f"The model raises {type(error).__name__}{f' at {at}' if at else ''}: {first_line(error)}"


def _is_about_shapes(error: Exception) -> bool:
    """Whether an error is that of an operation on arrays whose shapes do not fit."""
    words = ("shape", "broadcast", "dimension", "size", "axis", "axes", "rank")
    return isinstance(error, TypeError | ValueError | IndexError) and any(w in str(error).lower() for w in words)


def _none_in_words(bound: Bound) -> str:
    """The arguments that are None, which may be why a model does not run; empty if there are none."""
    names = ", ".join(name for name, value in bound.arguments.items() if value is None)
    return f" It was called with None for {names}." if names else ""
