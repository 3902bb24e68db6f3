"""Finds which observed elements a row's local latents connect, and how each latent is integrated out."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from adfpp.engine.trace import depends_on, trace
from adfpp.model.arguments import ModelError
from adfpp.model.elements import elements
from adfpp.model.local.base import Base, DrawLatents, fitted_base, gaussian_prior, prior_elements
from adfpp.model.local.latents import LocalLatent
from adfpp.model.visit import Visit

MOST_COMBINATIONS = 256  # of the values of discrete latents; a row is visited once for each


@dataclass(frozen=True)
class Component:
    """Local numbers of a row and the observed elements that they connect.

    Attributes:
        numbers: Places of its continuous numbers.
        discrete: Places of its discrete numbers.
        combinations: ``(J, len(discrete))`` the J combinations of values of the discrete numbers.
        observed: Observed elements as (observation, element).
        priors: Elements of local priors that are part of the factor, as (latent, element).
    """

    numbers: tuple[int, ...]
    discrete: tuple[int, ...]
    combinations: np.ndarray
    observed: tuple[tuple[str, int], ...]
    priors: tuple[tuple[str, int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the observations in the component."""
        return tuple(dict.fromkeys(name for name, _ in self.observed))


@dataclass(frozen=True)
class LocalPlan:
    """How the local latents of a row are integrated out.

    Attributes:
        latents: The local latents.
        start: Length of θ; the continuous local numbers follow θ in the traced vector.
        size: Number of continuous local numbers of a row.
        components: The components whose observations are not in ``separate``.
        separate: Observations whose elements remain separate factors, with the component of each element.
        base: ``base(*inputs) -> (mean (m,), sd (m,))`` of the numbers whose base is not their prior; the entries of
            other numbers are not used.
    """

    latents: tuple[LocalLatent, ...]
    start: int
    size: int
    components: tuple[Component, ...]
    separate: Mapping[str, tuple[Component, ...]]
    base: Base

    @property
    def visits(self) -> int:
        """How many times a row is visited: once for each combination of discrete values."""
        return max((len(c.combinations) for c in self.components), default=1)

    def values(self, visit: int) -> dict[str, np.ndarray]:
        """The discrete latents' values in one of the visits; each component runs through its own combinations."""
        flat = {i: s.support[0] for s in self.latents if s.support is not None for i in s.places}
        for c in self.components:
            flat.update(zip(c.discrete, c.combinations[min(visit, len(c.combinations) - 1)], strict=True))
        return {
            s.name: np.array([flat[i] for i in s.places], s.support.dtype).reshape(s.shape)
            for s in self.latents
            if s.support is not None
        }


class _Output(NamedTuple):
    """One scalar of a row: an observed element, an element of a local prior, or a parameter of such a prior."""

    what: Literal["observed", "prior", "parameter"]
    name: str
    element: int


RunRow = Callable[[jax.Array, Sequence[ArrayLike], Mapping[str, ArrayLike]], Visit]


def plan_locals(
    run: RunRow,
    draw: DrawLatents,
    latents: Sequence[LocalLatent],
    start: int,
    dtype: np.dtype,
    inputs: Sequence[jax.ShapeDtypeStruct],
) -> LocalPlan:
    """Finds which observed elements depend on which local numbers, and chooses the base of the continuous ones.

    Args:
        run: ``run((θ, z), inputs, discrete values)`` visits one row.
        draw: ``draw(key, inputs)`` draws the latents of one row from their priors.
        latents: The local latents.
        start: Length of θ.
        dtype: The dtype of θ.
        inputs: Shapes of one row's arrays and of the shared ones.
    """
    size = sum(s.size for s in latents if s.support is None)
    discrete = sum(s.size for s in latents if s.support is not None)
    outputs: list[_Output] = []

    def everything(v: jax.Array, *rest: ArrayLike) -> list[jax.Array]:
        outputs.clear()
        out: list[jax.Array] = []

        def put(what: Literal["observed", "prior", "parameter"], name: str, flat: jax.Array) -> None:
            for e in range(flat.shape[0]):
                outputs.append(_Output(what, name, e))
                out.append(jax.lax.index_in_dim(flat, e, keepdims=False))

        values = {
            s.name: v[start + size :][s.where].reshape(s.shape).astype(s.support.dtype)
            for s in latents
            if s.support is not None
        }
        seen = run(v[: start + size], rest, values)
        for name, observed in seen.observations.items():
            put("observed", name, jnp.ravel(elements(observed.fn, observed.value).masked_log_prob()))
        for s in latents:
            put("prior", s.name, prior_elements(seen.latents[s.name], s, v[: start + size], start))
            normal = gaussian_prior(seen.latents[s.name], s) if s.support is None else None
            for parameter in normal or ():
                put("parameter", s.name, jnp.ravel(parameter))
        return out

    total = start + size + discrete
    traced = trace(everything, jax.ShapeDtypeStruct((total,), dtype), *inputs)
    reads = [np.flatnonzero(depends_on(traced, o)) for o in traced.outputs]
    with_parameters = {output.name for output in outputs if output.what == "parameter"}
    moving = {o.name for o, read in zip(outputs, reads, strict=True) if o.what == "parameter" and len(read)}
    exact = with_parameters - moving
    parts = _connected(start, size + discrete, outputs, reads, exact)
    components = tuple(c for c in (_component(latents, size, exact, *p) for p in parts) if c is not None)
    separate = _separate(components, outputs)
    joined = tuple(c for c in components if not set(c.names) <= set(separate))
    used = {name for c in components for name in _latents_of(c, latents)}
    described = tuple(_described(s, s.name in exact, s.name in used) for s in latents)
    return LocalPlan(described, start, size, joined, separate, fitted_base(described, draw, size, dtype, inputs))


def _connected(
    start: int, count: int, outputs: Sequence[_Output], reads: Sequence[np.ndarray], exact: set[str]
) -> list[tuple[list[int], list[_Output]]]:
    """Groups local numbers (discrete ones after the continuous ones) by the outputs that connect them.

    An element that reads no local number is a separate group if other elements of its observation read some.

    Args:
        start: Length of θ; the local numbers follow θ.
        count: The number of local numbers.
        outputs: The scalars of a row.
        reads: For each output the places that it reads.
        exact: Latents whose prior is the base, so that it connects no numbers.
    """
    together = list(range(count))

    def root(i: int) -> int:
        while together[i] != i:
            i = together[i]
        return i

    alone: list[tuple[list[int], list[_Output]]] = []
    reading = {o.name for o, read in zip(outputs, reads, strict=True) if o.what == "observed" and (read >= start).any()}
    anchors: list[tuple[int, _Output]] = []
    for output, read in zip(outputs, reads, strict=True):
        if output.what == "parameter" or (output.what == "prior" and output.name in exact):
            continue
        numbers = read[read >= start] - start
        for i in numbers[1:]:
            together[root(int(i))] = root(int(numbers[0]))
        if len(numbers):
            anchors.append((int(numbers[0]), output))
        elif output.what == "observed" and output.name in reading:
            alone.append(([], [output]))
    tied: dict[int, list[_Output]] = {}
    for anchor, output in anchors:
        tied.setdefault(root(anchor), []).append(output)
    members: dict[int, list[int]] = {}
    for i in range(count):
        members.setdefault(root(i), []).append(i)
    return [(numbers, tied.get(r, [])) for r, numbers in members.items()] + alone


def _component(
    latents: Sequence[LocalLatent], size: int, exact: set[str], numbers: Sequence[int], outputs: Sequence[_Output]
) -> Component | None:
    """A component; None if no observation depends on it, because it integrates to one then."""
    observed = tuple((o.name, o.element) for o in outputs if o.what == "observed")
    if not observed:
        return None
    discrete = tuple(i - size for i in numbers if i >= size)
    supports, names = [], []
    for i in discrete:
        latent = next(s for s in latents if s.support is not None and i in s.places)
        if latent.unlisted:
            raise ModelError(
                f"Latent {latent.name!r} is drawn for every row from {latent.unlisted}, whose values cannot be "
                "enumerated: there are infinitely many, or their number depends on data. Use a Categorical over 0, "
                "..., K - 1 with K large enough, or integrate it out in the model (a Poisson with a Gamma rate is a "
                "NegativeBinomial2)."
            )
        supports.append(latent.support)
        names.append(latent.name)
    count = math.prod(len(s) for s in supports)
    if count > MOST_COMBINATIONS:
        pieces = ", ".join(f"{n} {len(s)}" for n, s in zip(names, supports, strict=True))
        raise ModelError(
            f"The discrete local latents {sorted(set(names))} of one row have {count} combinations of values together "
            f"({pieces}); at most {MOST_COMBINATIONS} are enumerated. Sum some of them out in the model (e.g. with "
            "MixtureSameFamily), or let each observed value depend on fewer of them."
        )
    combinations = np.array(list(product(*supports))).reshape(count, len(discrete))
    priors = tuple((o.name, o.element) for o in outputs if o.what == "prior" and o.name not in exact)
    return Component(tuple(i for i in numbers if i < size), discrete, combinations, observed, priors)


def _separate(components: Sequence[Component], outputs: Sequence[_Output]) -> dict[str, tuple[Component, ...]]:
    """Observations whose elements are all separate components that contain only exact numbers."""
    counts: dict[str, int] = {}
    for output in outputs:
        counts[output.name] = counts.get(output.name, 0) + (output.what == "observed")
    alone: dict[str, dict[int, Component]] = {}
    for c in components:
        if len(c.observed) == 1 and not c.priors and not c.discrete:
            name, e = c.observed[0]
            alone.setdefault(name, {})[e] = c
    return {name: tuple(per[e] for e in range(counts[name])) for name, per in alone.items() if len(per) == counts[name]}


def _latents_of(component: Component, latents: Sequence[LocalLatent]) -> list[str]:
    """The names of the local latents in a component."""
    pairs = ((s, component.numbers if s.support is None else component.discrete) for s in latents)
    return [s.name for s, places in pairs if any(i in s.places for i in places)]


def _described(latent: LocalLatent, exact: bool, used: bool) -> LocalLatent:
    """The latent, with a description of how it is integrated out."""
    if not used:
        how = "no observation depends on it"
    elif latent.support is not None:
        how = f"enumerated: {len(latent.support)} values"
    else:
        how = "joint field with a Gaussian base" + (": its prior" if exact else " fitted to draws of its prior")
    return replace(latent, exact=exact, how=how)
