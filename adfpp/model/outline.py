"""The shapes of a model's latents and observations for a given number of rows."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import biject_to

from adfpp.model.arguments import Bound, Model, canonical_dtype, is_array
from adfpp.model.elements import AnyDistribution, elements, enumerable_values
from adfpp.model.visit import Plate, Sampled, visit


class Outline(NamedTuple):
    """The shape of one latent or observation.

    Attributes:
        name: The name of the latent or observation.
        fn: Its distribution; the arrays in it are abstract.
        shape: The shape of its value.
        element_shape: The shape of the array of its independent elements.
        plates: The plates around it.
        unconstrained_shape: The shape of a continuous latent's unconstrained value.
        discrete: Whether its values are discrete.
        values: For a discrete latent the possible values of one element, or None if they cannot be listed.
    """

    name: str
    fn: AnyDistribution
    shape: tuple[int, ...]
    element_shape: tuple[int, ...]
    plates: tuple[Plate, ...]
    unconstrained_shape: tuple[int, ...] = ()
    discrete: bool = False
    values: np.ndarray | None = None


class Outlines(NamedTuple):
    """The latents and observations of a model, by name."""

    latents: dict[str, Outline]
    observations: dict[str, Outline]

    def without(self, names: Collection[str]) -> "Outlines":
        """The outlines without some of the observations."""
        return self._replace(observations={n: o for n, o in self.observations.items() if n not in names})


def outline(model: Model, bound: Bound, kinds: Sequence[str] | None = None, length: int | None = None) -> Outlines:
    """Runs a model on shapes; nothing is computed.

    Args:
        model: The model.
        bound: The arguments of a call.
        kinds: For each leaf of the arguments "row", "shared", "fixed" or "count".
        length: The number of rows that the arguments are taken to have; None for the actual number.
    """
    seen: list[Outlines] = []
    kinds = kinds if kinds is not None and length is not None else ["whole"] * len(bound.leaves)
    arrays = []
    for leaf, kind in zip(bound.leaves, kinds, strict=True):
        if is_array(leaf):
            shape = (length, *leaf.shape[1:]) if kind == "row" else leaf.shape
            arrays.append(jax.ShapeDtypeStruct(shape, canonical_dtype(leaf)))
    numbers = [length if kind == "count" else leaf for leaf, kind in zip(bound.leaves, kinds, strict=True)]

    def run(*traced: ArrayLike) -> None:
        pool = iter(traced)
        leaves = [next(pool) if is_array(leaf) else leaf for leaf in numbers]
        found = visit(model, jax.tree.unflatten(bound.treedef, leaves))
        latents = {name: _latent(sampled) for name, sampled in found.latents.items()}
        seen.append(Outlines(latents, {name: _outlined(sampled) for name, sampled in found.observations.items()}))

    jax.eval_shape(run, *arrays)
    return seen[0]


def _outlined(sampled: Sampled) -> Outline:
    shape = tuple(jnp.shape(sampled.value))
    return Outline(sampled.name, sampled.fn, shape, elements(sampled.fn, sampled.value).shape, sampled.plates)


def _latent(sampled: Sampled) -> Outline:
    known = _outlined(sampled)
    if sampled.fn.support is None or sampled.fn.support.is_discrete:
        return known._replace(discrete=True, values=enumerable_values(sampled.fn))
    return known._replace(unconstrained_shape=tuple(biject_to(sampled.fn.support).inverse_shape(known.shape)))
