"""Prior factors: priors that depend on other latents, or are not Gaussian, cut into factors with fields."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Literal

from adfpp.engine.factor import Factor, Observation
from adfpp.engine.grouping import build_factors
from adfpp.engine.trace import Atom, Trace, depends_on, known_value, summands, trace
from adfpp.model.latents import Latent

if TYPE_CHECKING:
    from adfpp.model.program import Program


class PriorGroup(NamedTuple):
    """Factors of one latent's prior, or of one term of the prior.

    Attributes:
        key: A unique name: that of the latent or term, with a number if it has several groups.
        latent: The latent; None for a term of the prior.
        factors: The factors; they take ``Program.prior_inputs`` in the place of a row's arrays.
    """

    key: str
    latent: Latent | None
    factors: Factor


def prior_groups(program: "Program") -> dict[str, tuple[PriorGroup, ...]]:
    """The prior as factor groups, ``{name of a latent or of a term of the prior: groups}``.

    A latent with independent scalar elements has one factor for each element. A log prior that is a sum, such as that
    of a random walk, has one factor for each summand if that makes the fields smaller.

    Args:
        program: The model as it was read. The values of arrays are not used here; they are inputs of the factors.
    """
    theta = jax.ShapeDtypeStruct((program.size,), program.dtype)
    shapes = [jax.ShapeDtypeStruct((1, *s.shape), s.dtype) for s in program.row_shapes]
    traced = trace(program.prior().logs, theta, *shapes, *program.shared_shapes)
    names = [(latent.name, latent.where) for latent in program.latents]
    out = {}
    owners = [*((latent.name, latent) for latent in program.latents), *((name, None) for name in program.prior_terms)]
    for (name, latent), output in zip(owners, traced.outputs, strict=True):
        groups = _groups(traced, name, output, program, names)
        out[name] = tuple(PriorGroup(name if i == 0 else f"{name}#{i}", latent, g) for i, g in enumerate(groups))
    return out


def _groups(
    traced: Trace, name: str, output: Any, program: "Program", names: Sequence[tuple[str, slice]]
) -> list[Factor]:
    if isinstance(output, Literal) or not depends_on(traced, output).any():
        return []

    def built(value: Any) -> list[Factor]:
        count = int(np.prod(value.aval.shape))
        observation = Observation(name, count, value, None, None, None)
        gaussian = all(other.native is None for other in program.latents)
        return build_factors(traced, [observation], program.moments, names, combined=gaussian)

    whole = built(output)
    if output.aval.shape != (1,):
        return whole
    parts = [v for v in summands(traced, output) if not _is_zero(traced, v)]
    if any(isinstance(v, Literal) for v in parts):
        return whole
    pieces = [g for value in parts for g in built(value)]
    smaller = max(g.field_size for g in pieces) < max(g.field_size for g in whole)
    return pieces if smaller else whole


def _is_zero(traced: Trace, value: Atom) -> bool:
    """Whether a summand is known to be 0, as the log-volume of an identity is."""
    known = value.val if isinstance(value, Literal) else known_value(traced, value)
    return known is not None and bool(np.all(np.asarray(known) == 0))
