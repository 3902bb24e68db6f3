"""The result of reading a model: functions of a flat unconstrained θ, one row's arrays and the shared ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from adfpp.engine.factor import FactorGroup
from adfpp.engine.families import Family
from adfpp.engine.trace.field import Trace
from adfpp.model.arguments import Model
from adfpp.model.latents import Latent, substitution, unconstrain
from adfpp.model.layout import Layout
from adfpp.model.local import LocalLatent
from adfpp.model.priors.density import ModelPrior
from adfpp.model.priors.gaussian import Projection
from adfpp.model.priors.projection import project_prior
from adfpp.model.visit import Values


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
    """

    model: Model
    layout: Layout
    latents: tuple[Latent, ...]
    factors: tuple[FactorGroup, ...]
    row_shapes: tuple[jax.ShapeDtypeStruct, ...]
    dtype: Any
    trace: Trace
    family: Family
    pinned: tuple[np.ndarray, ...] | None = None
    local: tuple[LocalLatent, ...] = ()
    shared_shapes: tuple[jax.ShapeDtypeStruct, ...] = ()

    @property
    def size(self) -> int:
        """Length of θ."""
        return sum(latent.size for latent in self.latents)

    def fits(self, shared: Sequence[ArrayLike]) -> bool:
        """Whether shared arrays give the supports that the program was read with."""
        return self.pinned is None or all(np.array_equal(a, b) for a, b in zip(self.pinned, shared, strict=True))

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

    def prior_inputs(self, shared: Sequence[ArrayLike]) -> list[jax.Array]:
        """The inputs of prior factors: zeros in the place of a row's arrays, and the shared arrays."""
        return self.prior().inputs(shared)

    def prior_sampler(
        self, shared: Sequence[ArrayLike], replaced: Mapping[str, Distribution] | None = None
    ) -> Callable[[jax.Array], jax.Array]:
        """``key -> θ``, a draw from the prior."""
        return self.prior(replaced).sampler(shared)
