"""The result of reading a model: functions of a flat unconstrained θ, one row's arrays and the shared ones."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from adfpp.engine.factor import Factor
from adfpp.engine.families import ByLatent, Family
from adfpp.engine.tilt import AUTO, Moments
from adfpp.engine.trace import Trace
from adfpp.model.arguments import Model
from adfpp.model.latents import Latent, substitution, unconstrain
from adfpp.model.layout import Layout
from adfpp.model.local import LocalLatent
from adfpp.model.priors.density import ModelPrior
from adfpp.model.priors.factors import PriorGroup, prior_groups
from adfpp.model.priors.gaussian import Projection
from adfpp.model.priors.projection import project_prior
from adfpp.model.reference import ModelReference, model_name
from adfpp.model.visit import READING, Values

_MOST_FUNCTIONS = 64  # compiled functions of one program: a learner needs about ten, a comparison as many again


@dataclass(frozen=True, eq=False)
class Program:
    """A model as functions of (θ, row arrays, shared arrays).

    It follows from the model, the structure and shapes of its arguments, their fixed values, the dtype, the family and
    the accuracy of tilted moments. It holds no values of arrays, except those that a support depends on. Two programs
    are equal only if they are the same object.

    Attributes:
        model: The model it was read from.
        layout: How its arguments split.
        latents: The latents that all rows share, in the order of θ.
        factors: Factor groups, in the order in which a row's factors are absorbed.
        row_shapes: Shape and dtype of each row array, without the leading axis.
        dtype: Of θ.
        trace: Of one row.
        family: Of the belief.
        pinned: The shared arrays, where a support depends on them: they must stay what they are.
        local: Latents of single rows, integrated out row by row: they have no place in θ.
        shared_shapes: Shape and dtype of each shared array.
        moments: How tilted moments are computed.
        asked: The family or families that the user asked for.
    """

    model: Model
    layout: Layout
    latents: tuple[Latent, ...]
    factors: tuple[Factor, ...]
    row_shapes: tuple[jax.ShapeDtypeStruct, ...]
    dtype: np.dtype
    trace: Trace
    family: Family
    pinned: tuple[np.ndarray, ...] | None = None
    local: tuple[LocalLatent, ...] = ()
    shared_shapes: tuple[jax.ShapeDtypeStruct, ...] = ()
    moments: Moments = AUTO
    asked: Family | ByLatent | None = None

    @property
    def size(self) -> int:
        """Length of θ."""
        return sum(latent.size for latent in self.latents)

    def fits(self, shared: Sequence[ArrayLike]) -> bool:
        """Whether shared arrays give the supports that the program was read with."""
        return self.pinned is None or all(np.array_equal(a, b) for a, b in zip(self.pinned, shared, strict=True))

    @cached_property
    def compiled(self) -> Any:
        """``compiled(function, *options)`` is ``function(self, *options, ...)`` under ``jax.jit``.

        All learners of the program share what is compiled. It lives as long as the program: with the program as a
        static argument of ``jax.jit`` it would stay for as long as the process, some hundred memory maps each time, of
        which a process may have 65,530 on Linux.
        """
        return lru_cache(_MOST_FUNCTIONS)(lambda function, *options: jax.jit(partial(function, self, *options)))

    # ------------------------------------------------------------------------------------------ identity

    @cached_property
    def fingerprint(self) -> str:
        """What a state has to agree on to belong to this program, as text."""
        latents = [[v.name, list(v.unconstrained_shape), v.space] for v in self.latents if v.size]
        parts = {"model": model_name(self.model), "family": self.family.name, "dtype": str(np.dtype(self.dtype))}
        return json.dumps(parts | {"latents": latents})

    def differences(self, fingerprint: str) -> str:
        """In words, what differs between this program and a fingerprint."""
        theirs, ours = json.loads(fingerprint), json.loads(self.fingerprint)
        words = [
            f"its {what} is {theirs[what]}, here it is {ours[what]}"
            for what in ("model", "family", "dtype")
            if theirs[what] != ours[what]
        ]
        there, here = ({name: (tuple(shape), space) for name, shape, space in f["latents"]} for f in (theirs, ours))
        for name in dict.fromkeys([*there, *here]):
            if name not in here:
                words.append(f"it has the latent {name!r}, which this model does not have")
            elif name not in there:
                words.append(f"it lacks the latent {name!r}")
            else:
                for what, a, b in zip(("shape", "space"), there[name], here[name], strict=True):
                    if a != b:
                        words.append(f"its latent {name!r} has the {what} {a}, here it has {b}")
        return "; ".join(words) or "its latents come in another order"

    def __reduce__(self) -> tuple[object, ...]:
        """What the program was read from: compiled and traced functions cannot be pickled, but can be made again."""
        from adfpp.model.reader import read_again

        specs = [jax.ShapeDtypeStruct((3, *s.shape), s.dtype) for s in self.row_shapes]
        call = self.layout.rebuild(specs, self.pinned or self.shared_shapes)
        rows = self.layout.named("row")
        return read_again, (ModelReference(self.model), call, rows, self.moments, self.asked, self.fingerprint)

    # ------------------------------------------------------------------------------------------ θ and values

    def substitution(self, theta: jax.Array) -> Values:
        """Constrained values of the latents that all rows share, for ``visit``."""
        return substitution(self.latents, theta)

    def constrain(self, theta: jax.Array) -> dict[str, jax.Array]:
        """``{latent: value}`` of a flat ``(..., N)`` θ."""
        return {latent.name: latent.value(theta[..., latent.where], latent.integral) for latent in self.latents}

    def unconstrain(self, values: Mapping[str, ArrayLike]) -> tuple[jax.Array, jax.Array]:
        """Flat θ ``(..., N)`` of constrained values, and the log-volume of the transform there ``(...)``."""
        return unconstrain(self.latents, values, self.dtype)

    # ------------------------------------------------------------------------------------------ the prior

    def prior(self, replaced: Mapping[str, Distribution] | None = None) -> ModelPrior:
        """The prior of the latents that all rows share.

        Args:
            replaced: Distributions to put in the place of the model's own priors.
        """
        return ModelPrior(self.model, self.layout, self.latents, self.row_shapes, self.dtype, replaced or {})

    def project_prior(
        self, shared: Sequence[ArrayLike], replaced: Mapping[str, Distribution] | None = None
    ) -> Projection:
        """The prior as independent blocks, Gaussian in unconstrained space or native, as far as it is made of such.

        Args:
            shared: The shared arrays.
            replaced: Distributions to put in the place of the model's own priors.
        """
        return project_prior(self.prior(replaced), shared)

    @cached_property
    def prior_factors(self) -> dict[str, tuple[PriorGroup, ...]]:
        """The prior as factor groups, by latent."""
        with READING:
            return prior_groups(self)

    def prior_inputs(self, shared: Sequence[ArrayLike]) -> list[jax.Array]:
        """The inputs of prior factors: zeros in the place of a row's arrays, and the shared arrays."""
        return self.prior().inputs(shared)

    def prior_sampler(
        self, shared: Sequence[ArrayLike], replaced: Mapping[str, Distribution] | None = None
    ) -> Callable[[jax.Array], jax.Array]:
        """``key -> θ``, a draw from the prior."""
        return self.prior(replaced).sampler(shared)
