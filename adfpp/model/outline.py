"""A model seen by shapes alone: what its latents and observations look like for some number of rows."""

from collections.abc import Sequence
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
        name: Of the latent or observation.
        fn: Its distribution; the arrays in it are abstract.
        shape: Of its value.
        element_shape: Of its independent elements.
        plates: The plates around it.
        unconstrained_shape: Of a continuous latent's unconstrained value.
        discrete: Whether its values are discrete.
        values: Of a discrete latent the values of one element, or None where they cannot be listed.
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


def outline(model: Model, bound: Bound, kinds: Sequence[str] | None = None, length: int | None = None) -> Outlines:
    """Runs a model on shapes; nothing is computed.

    Args:
        model: The model.
        bound: The arguments of a call.
        kinds: For each leaf of the arguments whether it carries rows.
        length: A number of rows to which arguments that carry rows are cut or stretched; None for their own.
    """
    seen: list[Outlines] = []
    arrays = []
    for i, leaf in enumerate(bound.leaves):
        if is_array(leaf):
            stretched = length is not None and kinds is not None and kinds[i] == "row"
            shape = (length, *leaf.shape[1:]) if stretched else leaf.shape
            arrays.append(jax.ShapeDtypeStruct(shape, canonical_dtype(leaf)))

    def run(*traced: ArrayLike) -> None:
        pool = iter(traced)
        leaves = [next(pool) if is_array(leaf) else leaf for leaf in bound.leaves]
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
