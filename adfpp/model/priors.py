"""Prior factors: the prior of a site that depends on other sites, or is no Gaussian, cut into factors with fields."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Literal

from adfpp.engine.factor import FactorGroup, Observation
from adfpp.engine.grouping import build_factors
from adfpp.engine.tilt import Moments
from adfpp.engine.trace import Trace, depends_on, summands, trace
from adfpp.model.program import Latent, Program


class PriorGroup(NamedTuple):
    """Factors of one latent site's prior.

    Attributes:
        key: Unique name: the site's, with a number where it has several groups.
        site: The site.
        factors: The factors; they take ``Program.prior_inputs`` in the place of a row's arrays.
    """

    key: str
    site: Latent
    factors: FactorGroup


def prior_groups(program: Program) -> dict[str, tuple[PriorGroup, ...]]:
    """The prior of every latent site as factor groups, ``{site: groups}``.

    A site with independent scalar elements has a factor an element; a log prior that is a sum, as a random walk's is,
    has a factor a summand where that makes the fields smaller.

    Args:
        program: The model as it was read.
    """
    theta = jax.ShapeDtypeStruct((program.size,), program.dtype)
    shapes = [jax.ShapeDtypeStruct((1, *s.shape), s.dtype) for s in program.row_shapes]
    traced = trace(program.prior_logs(), theta, *shapes, *program.shared_shapes)
    names = [(s.name, s.where) for s in program.latents]
    out = {}
    for site, output in zip(program.latents, traced.outputs, strict=True):
        groups = _groups(traced, site, output, program.moments, names)
        out[site.name] = tuple(
            PriorGroup(site.name if i == 0 else f"{site.name}#{i}", site, g) for i, g in enumerate(groups)
        )
    return out


def _groups(
    traced: Trace, site: Latent, output: Any, moments: Moments, names: Sequence[tuple[str, slice]]
) -> list[FactorGroup]:
    if isinstance(output, Literal) or not depends_on(traced, output).any():
        return []

    def built(value: Any) -> list[FactorGroup]:
        count = int(np.prod(value.aval.shape))
        outputs = Observation(site.name, count, value, None, None, None)
        return build_factors(traced, [outputs], moments, names)

    whole = built(output)
    if output.aval.shape != (1,):
        return whole
    parts = [v for v in summands(traced, output) if not (isinstance(v, Literal) and np.all(v.val == 0))]
    if any(isinstance(v, Literal) for v in parts):
        return whole
    pieces = [g for value in parts for g in built(value)]
    smaller = max(g.field_size for g in pieces) < max(g.field_size for g in whole)
    return pieces if smaller else whole
