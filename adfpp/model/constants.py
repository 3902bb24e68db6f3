"""Statements that are observed once, at values that are not data: latents that a user has fixed.

``numpyro.sample("sigma", dist.HalfNormal(1), obs=2.0)``, or ``handlers.condition`` around a model, fixes a latent. Its
density depends neither on the rows nor on the other latents. It is a constant, which does not change the posterior, and
it must not be counted once for each row.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from adfpp.engine.trace import depends_on, reads, trace
from adfpp.model.arguments import Bound, Model, ModelError, canonical_dtype
from adfpp.model.elements import AnyDistribution, is_factor
from adfpp.model.layout import Layout
from adfpp.model.outline import Outlines
from adfpp.model.visit import visit


def constant_observations(model: Model, bound: Bound, layout: Layout, outlines: Sequence[Outlines]) -> frozenset[str]:
    """The observations whose density depends neither on rows nor on latents. Factors are none of them.

    Args:
        model: The model.
        bound: The arguments of a call.
        layout: How they are split.
        outlines: The shapes of the model on all rows, on one row and on two rows.

    Raises:
        ModelError: When an observation depends on latents and not on rows, so that it belongs to the prior.
    """
    first, *others = outlines
    names = [
        name
        for name, observation in first.observations.items()
        if not is_factor(observation.fn) and all(_same_elements(name, first, other) for other in others)
    ]
    if not names:
        return frozenset()
    one = outlines[1].latents
    ends = np.cumsum([0, *(math.prod(latent.shape) for latent in one.values())])
    where = {name: slice(a, b) for name, a, b in zip(one, ends[:-1], ends[1:], strict=True)}

    def densities(flat: jax.Array, *inputs: ArrayLike) -> list[jax.Array]:
        """The log-densities of the candidates at these values of the latents."""

        def values(name: str, fn: AnyDistribution) -> jax.Array:
            value = flat[where[name]].reshape(one[name].shape)
            return value.astype(int) if one[name].discrete else value

        found = visit(model, layout.rebuild_from(inputs), values).observations
        return [jnp.asarray(found[name].fn.log_prob(found[name].value)) for name in names]

    rows, shared = layout.split(bound.leaves)
    shapes = [(1, *a.shape[1:]) for a in rows] + [a.shape for a in shared]
    inputs = [jax.ShapeDtypeStruct(s, canonical_dtype(a)) for s, a in zip(shapes, (*rows, *shared), strict=True)]
    traced = trace(densities, jax.ShapeDtypeStruct((int(ends[-1]),), jnp.zeros(()).dtype), *inputs)
    out = set()
    for name, output in zip(names, traced.outputs, strict=True):
        if reads(traced, output, traced.inputs[: len(rows)]):
            continue
        read = depends_on(traced, output)
        latents = [latent for latent, places in where.items() if read[places].any()]
        if latents:
            raise ModelError(
                f"Observation {name!r} depends on latent {latents[0]!r} and not on the rows: it is observed once, "
                "outside of the plate of the rows, and would be counted once for each row. It belongs to the "
                f"prior. Leave it out of the model, and give {latents[0]!r} the prior that it leads to; or pass it as "
                "data, with a mask that counts it in one row only (handlers.mask)."
            )
        out.add(name)
    return frozenset(out)


def _same_elements(name: str, first: Outlines, other: Outlines) -> bool:
    """Whether an observation has as many elements with another number of rows."""
    return name in other.observations and (
        math.prod(first.observations[name].element_shape) == math.prod(other.observations[name].element_shape)
    )
