"""Refuses models by their shapes: latents that change with the number of rows, and observations that do not.

The numeric check that the rows' log-likelihoods add up to that of the batch is in ``adfpp.model.check``.
"""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from adfpp.engine.trace import depends_on, trace
from adfpp.model.arguments import Bound, ModelError
from adfpp.model.latents import Latent
from adfpp.model.layout import leading_lengths
from adfpp.model.outline import Outlines
from adfpp.model.visit import Visit

_FEW = 8  # numbers of all latents up to which quasi-Monte-Carlo integrals over all of them were tried


def one_row_advice(numbers: int) -> str:
    """Advice for rows that belong together, if the model has few enough parameters; else nothing.

    Args:
        numbers: The number of unconstrained numbers of all latents.
    """
    if numbers > _FEW:
        return ""
    return (
        f" If the rows belong together, as in a Gaussian process or a hidden Markov model, take all data of a call as "
        f"one row: rows=(). Its integral is over at most {numbers} numbers, those of all latents."
    )


def numbers_of(whole: Outlines) -> int:
    """The number of unconstrained numbers of all latents."""
    return sum(math.prod(v.shape if v.discrete else v.unconstrained_shape) for v in whole.latents.values())


def refuse_stretched(whole: Outlines, rows: int, bound: Bound) -> None:
    """Refuses a single observed value that would be broadcast over the rows."""
    for name, observation in whole.observations.items():
        value, shape = observation.shape, observation.element_shape
        stretched = any(a == 1 and b == rows for a, b in zip(value, shape, strict=False))
        if rows > 1 and len(value) >= len(shape) > 0 and stretched:
            raise ModelError(
                f"One value of observation {name!r} would be stretched over {rows} rows: the arguments' lengths are "
                f"{leading_lengths(bound)}. Pass one value for each row."
            )


def follow_rows(one: Outlines, two: Outlines) -> bool:
    """Whether all observations have twice as many elements with two rows as with one row."""
    return all(_follows(name, one, two) for name in one.observations)


def _follows(name: str, one: Outlines, two: Outlines) -> bool:
    # A factor that is summed over the rows is one number for any number of rows; the numeric check judges it.
    if name not in two.observations or one.observations[name].element_shape == ():
        return name in two.observations
    return _count(two, name) == 2 * _count(one, name)


def _count(outlines: Outlines, name: str) -> int:
    """The number of elements of an observation."""
    return math.prod(outlines.observations[name].element_shape)


def refuse_changes(whole: Outlines, rows: int, one: Outlines, two: Outlines, local: frozenset[str]) -> None:
    """Compares the model's shapes on all rows with those on one row and on two rows.

    Args:
        whole: The shapes on all rows.
        rows: The number of rows.
        one: The shapes on one row.
        two: The shapes on two rows.
        local: Names of the latents of single rows, which may grow with the rows.

    Raises:
        ModelError: When another latent changes with the number of rows, or an observation does not.
    """
    for name, latent in whole.latents.items():
        if name in local:
            continue
        for other, length in ((one, 1), (two, 2)):
            there = other.latents.get(name)
            if there is None or there.shape != latent.shape:
                shapes = f"{latent.shape} with {rows} rows, "
                shapes += f"{there.shape} with {length}" if there is not None else f"absent with {length}"
                plates = [plate.name for plate in latent.plates]
                inside = f" (it is inside plate {plates[0]!r})" if plates else ""
                raise ModelError(
                    f"Latent {name!r} changes with the number of rows: {shapes}{inside}. A latent of single rows must "
                    "have one entry for each row, along one axis: draw it inside the data plate. If it has one element "
                    "for each group, index it by the rows: numpyro.plate('groups', n_groups), z[group]."
                    f"{one_row_advice(numbers_of(whole))}"
                )
    for name in [*one.latents, *two.latents]:
        if name not in whole.latents:
            raise ModelError(f"Latent {name!r} appears only for some numbers of rows. Draw it for all.")
    for name in whole.observations:
        if name not in one.observations or name not in two.observations:
            raise ModelError(f"Observation {name!r} is missing when the model gets fewer rows. Observe it for all.")
        if not _count(one, name) and not _count(two, name):
            raise ModelError(
                f"Observation {name!r} does not follow the rows: it has no element when the model gets one row or two. "
                "The model leaves out some of its rows, as an autoregression does with the first ones (y[1:]). Pass "
                "earlier values as columns of their own (y_before=...), so that each row has all that it needs."
                f"{one_row_advice(numbers_of(whole))}"
            )
        if not _follows(name, one, two):
            sizes = {plate.name: plate.size for plate in one.observations[name].plates}
            stuck = [p for p, s in sizes.items() if s > 1]
            plate = (
                f"plate {stuck[0]!r} has {sizes[stuck[0]]} elements"
                if stuck
                else f"it has {_count(one, name)} elements"
            )
            raise ModelError(
                f"Observation {name!r} does not follow the rows: {plate} even when the model gets one row. Size the "
                "plate from an argument, e.g. numpyro.plate('rows', x.shape[0]). If a row's density reads the rows "
                "before it, pass earlier values as columns of their own (y_before=...)."
                f"{one_row_advice(numbers_of(whole))}"
            )


def refuse_dynamic_supports(
    latents: Sequence[Latent],
    run: Callable[[jax.Array, Sequence[ArrayLike]], Visit],
    theta: jax.ShapeDtypeStruct,
    inputs: Sequence[jax.ShapeDtypeStruct],
) -> None:
    """Refuses latents whose value depends on the unconstrained values of other latents.

    Args:
        latents: The latents that rows share.
        run: ``run(θ, inputs)`` visits one row.
        theta: Shape of θ.
        inputs: Shapes of one row's arrays and of the shared ones.
    """

    def values(flat: jax.Array, *rest: ArrayLike) -> list[jax.Array]:
        found = run(flat, rest).latents
        return [jnp.asarray(found[latent.name].value) for latent in latents]

    traced = trace(values, theta, *inputs)
    for latent, output in zip(latents, traced.outputs, strict=True):
        touched = depends_on(traced, output)
        touched[latent.where] = False
        others = [other.name for other in latents if touched[other.where].any()]
        if others:
            raise ModelError(
                f"The support of latent {latent.name!r} depends on latent {others[0]!r}, so its unconstrained "
                f"coordinate changes meaning as {others[0]!r} is learned. Draw a standardised variable and transform "
                f"it, e.g. u ~ Uniform(0, 1) and {latent.name} = {others[0]} * u."
            )


def plates_in_words(whole: Outlines) -> str:
    """The sizes of the observations' plates."""
    sizes = {f"plate {p.name!r} has size {p.size}" for o in whole.observations.values() for p in o.plates}
    return ", ".join(sorted(sizes)) or "there is no plate"
