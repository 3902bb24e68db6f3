"""Makes the factors of a traced row: groups the elements of each observation by field, and chooses their rules.

This is where a new kind of factor, or a new reason for choosing a rule, belongs.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Array, Float

from adfpp.engine.compilation import evaluated
from adfpp.engine.factor import (
    ClosedFactor,
    Factor,
    IntegralFactor,
    LocalBase,
    Observation,
    entered_by_locals,
    entered_by_theta,
)
from adfpp.engine.local_factor import with_local_latents
from adfpp.engine.tilt import ClosedForm, Index, Moments
from adfpp.engine.trace import (
    Cut,
    Degree,
    Trace,
    depends_on,
    dtype_of,
    gaussian_but_for,
    only_moves,
    reduced_field,
    shape_of,
    size_of,
    smallest_cut,
)

_FEWEST = 3  # numbers of a field from which on it is worth looking for directions that do not matter

Names = Sequence[tuple[str, slice]]


def build_factors(
    trace: Trace,
    observations: Sequence[Observation],
    moments: Moments,
    names: Names,
    base: LocalBase | None = None,
    combined: bool = True,
) -> list[Factor]:
    """Groups every element of every observation by field and rule.

    Args:
        trace: The trace of one row, ``f(theta, *inputs)``; with a base it is ``f((θ, z), *inputs)``.
        observations: Which outputs of the trace belong to each observation.
        moments: How tilted moments are to be computed.
        names: The latents and their places in θ, for the description of fields.
        base: The Gaussian base of the continuous local numbers z, if there are any.
        combined: Whether a number of a field may be a combination of several, which no latent in its native space is.
    """
    factors: list[Factor] = []
    for observation in observations:
        form = observation.closed if moments.closed else None
        closed = None if form is None else _closed_cuts(trace, observation)
        if closed is None:
            form, cuts = None, [smallest_cut(trace, observation.log_prob, e) for e in range(observation.count)]
        else:
            cuts = closed
        for elements in _groups_of_elements(trace, observation, cuts, base):
            factors.append(_factor(trace, observation, elements, cuts, form, moments, names, base, combined))
    return factors


def _closed_cuts(trace: Trace, observation: Observation) -> list[Cut] | None:
    """The fields for a closed form, if the distribution's parameters depend on θ as the closed form needs."""
    fixed = (*observation.constants, observation.value, observation.counted)
    constant = all(o is None or trace.degree(o) == Degree.CONSTANT for o in fixed)
    if not constant or trace.degree(observation.field) != Degree.AFFINE:
        return None
    size = size_of(observation.field) // observation.count
    return [Cut((observation.field,), (np.arange(e * size, (e + 1) * size),)) for e in range(observation.count)]


def _groups_of_elements(
    trace: Trace, observation: Observation, cuts: Sequence[Cut], base: LocalBase | None
) -> list[tuple[int, ...]]:
    """Groups the elements that one factor can contain: cut through the same values, with equally many numbers."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for e, cut in enumerate(cuts):
        entered = tuple(entered_by_theta(trace, cut, base))
        key = (cut.values, tuple(len(i) for i in cut.indices), _local_numbers(observation, e), entered)
        groups.setdefault(key, []).append(e)
    return [tuple(elements) for elements in groups.values()]


def _local_numbers(observation: Observation, element: int) -> int:
    """How many continuous local numbers enter an element."""
    return len(observation.components[element].numbers) if observation.components else 0


def _factor(
    trace: Trace,
    observation: Observation,
    elements: tuple[int, ...],
    all_cuts: Sequence[Cut],
    form: ClosedForm | None,
    moments: Moments,
    names: Names,
    base: LocalBase | None,
    combined: bool,
) -> Factor:
    cuts = tuple(all_cuts[e] for e in elements)
    size, described = cuts[0].size, _describe(trace, cuts[0], names)
    numbers = _local_numbers(observation, elements[0])
    inner = moments.choose(max(numbers, 1))
    if form is not None:
        constants = ", ".join(form.constants)
        why = f"closed form: {form.field} is affine" + (f", {constants} constant" if constants else "")
        factor: ClosedFactor | IntegralFactor = ClosedFactor(
            trace=trace,
            observation=observation,
            elements=elements,
            cuts=cuts,
            rule=form,
            why=why,
            field=described,
            base=base,
        )
    else:
        rule, why = moments.choose(size)
        factor = IntegralFactor(
            trace=trace,
            observation=observation,
            elements=elements,
            cuts=cuts,
            rule=rule,
            why=why,
            field=described,
            base=base,
        )
        if moments.reduced and combined and size >= _FEWEST and base is None and not observation.components:
            factor = _without_constant_directions(factor, moments)
        outer = gaussian_but_for(trace, cuts[0], observation.log_prob) if size > 1 and moments.conditional else None
        if outer is not None and factor.reduced is not None:
            places = factor.reduced.places.tolist()
            outer = tuple(places.index(p) for p in outer if p in places)
        choice = None if outer is None else moments.choose_conditional(outer)
        if choice is not None:
            factor = replace(factor, rule=choice.rule, why=choice.why)
        local = entered_by_locals(trace, cuts[0], base)
        if outer is not None and not any(local[i] for i in outer):  # Gaussian in the local numbers, once θ is fixed
            inner = moments.choose_conditional(()) or inner
    if not observation.components:
        return factor
    return with_local_latents(factor, numbers, inner.rule)


def _without_constant_directions(factor: IntegralFactor, moments: Moments) -> IntegralFactor:
    """The factor with a smaller field, if it is constant in some directions of its field."""

    def log_factor(inputs: Sequence[Array], h: Float[Array, " k"], e: Index) -> Float[Array, ""]:
        return factor.tail(*inputs).log_factor(h, e)

    trace = factor.trace
    dtype = np.dtype(dtype_of(trace.theta))
    with evaluated():  # the model may be read while a user's function is traced
        reduced = reduced_field(log_factor, factor.field_size, factor.count, trace.inputs, dtype)
    if reduced is None:
        return factor
    rule, why = moments.choose(len(reduced.places))
    return replace(
        factor, reduced=reduced, rule=rule, why=why, field=f"{len(reduced.places)} combinations of {factor.field}"
    )


def _describe(trace: Trace, cut: Cut, names: Names) -> str:
    """Describes a field in words: for each value that is cut through, its size and the latents that enter it."""
    pieces = []
    for value, indices in zip(cut.values, cut.indices, strict=True):
        if value is trace.theta:
            touched = np.zeros(shape_of(value), bool)
            touched[indices] = True
        else:
            touched = depends_on(trace, value)
        latents = [name for name, where in names if touched[where].any()]
        exact = value is trace.theta or (len(latents) == 1 and only_moves(trace, value))
        words = ", ".join(latents) if exact else f"affine in {', '.join(latents)}"
        pieces.append(f"{words} ({len(indices)})" if len(indices) > 1 else words)
    return "; ".join(pieces) if pieces else "none: the row does not depend on the latents"
