"""The result of reading a model: functions of a flat unconstrained θ, one row's arrays and the shared ones."""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from adfpp.engine.compilation import Compiled, Effort
from adfpp.engine.factor import Factor
from adfpp.engine.families import ByLatent, Family
from adfpp.engine.tilt import AUTO, Moments
from adfpp.engine.trace import Trace
from adfpp.model.arguments import Model, ModelError
from adfpp.model.conjugate import ConjugateModel
from adfpp.model.latents import Latent, substitution, unconstrain
from adfpp.model.layout import Layout
from adfpp.model.local import LocalLatent
from adfpp.model.priors.density import ModelPrior
from adfpp.model.priors.factors import PriorGroup, prior_groups
from adfpp.model.priors.gaussian import Projection
from adfpp.model.priors.projection import project_prior
from adfpp.model.reference import ModelReference, model_name
from adfpp.model.sizes import SizedModel
from adfpp.model.visit import READING, Values, Visit, visit

_FEW_NUMBERS = 16  # up to here a row takes as long if its program is compiled with little effort
_MOST_FUNCTIONS = 64  # compiled functions of one program: a learner needs about ten, a comparison as many again


@dataclass(frozen=True, eq=False)
class Program:
    """A model as functions of (θ, row arrays, shared arrays).

    It follows from the model, the structure and shapes of its arguments, their fixed values, the dtype, the family and
    the accuracy of tilted moments. It holds no values of arrays, except those that a support depends on. Two programs
    are equal only if they are the same object.

    Attributes:
        model: The model it was read from.
        layout: How its arguments are split.
        latents: The latents that all rows share, in the order of θ.
        factors: The factors of a row, in the order in which they are absorbed.
        row_shapes: Shape and dtype of each row array, without the leading axis.
        dtype: The dtype of θ.
        trace: The trace of one row.
        family: The family of the belief.
        pinned: The shared arrays if a support or a term of the prior depends on them; they must not change then.
        local: Latents of single rows, integrated out row by row: they have no place in θ.
        shared_shapes: Shape and dtype of each shared array.
        moments: How tilted moments are computed.
        asked: The family or families that the user asked for.
        constants: Observations that are fixed latents, whose density does not count (see ``model/constants.py``).
        prior_terms: Observations and factors that depend on latents and on no row: they belong to the prior.
        term_data: A digest of the shared arrays that they read, which must not change.
        conjugate: The model as variational message passing reads it. There are no factors and no trace then.
    """

    model: Model
    layout: Layout
    latents: tuple[Latent, ...]
    factors: tuple[Factor, ...]
    row_shapes: tuple[jax.ShapeDtypeStruct, ...]
    dtype: np.dtype
    trace: Trace | None
    family: Family
    pinned: tuple[np.ndarray, ...] | None = None
    local: tuple[LocalLatent, ...] = ()
    shared_shapes: tuple[jax.ShapeDtypeStruct, ...] = ()
    moments: Moments = AUTO
    asked: Family | ByLatent | None = None
    constants: frozenset[str] = frozenset()
    prior_terms: tuple[str, ...] = ()
    term_data: str = ""
    conjugate: ConjugateModel | None = None

    @property
    def size(self) -> int:
        """Length of θ."""
        return sum(latent.size for latent in self.latents)

    def fits(self, shared: Sequence[ArrayLike]) -> bool:
        """Whether shared arrays give the supports and the terms of the prior that the program was read with."""
        return self.pinned is None or all(np.array_equal(a, b) for a, b in zip(self.pinned, shared, strict=True))

    @cached_property
    def compiled(self) -> Any:
        """``compiled(function, *options)`` is ``function(self, *options, ...)`` as a compiled program.

        The ``effort`` of the compiler is less for beliefs of few numbers, which take little time, unless it is given. A
        function that is called a few times only is compiled with ``effort="least"``.

        All learners of the program share the compiled functions, which live as long as the program. If the program were
        a static argument of ``jax.jit``, they would live as long as the process, and each takes some hundred of the
        65,530 memory maps that Linux allows a process.
        """
        usual: Effort = "light" if self.size <= _FEW_NUMBERS else "full"

        @lru_cache(_MOST_FUNCTIONS)
        def compiled(function: Callable[..., Any], *options: Hashable, effort: Effort = usual) -> Compiled:
            return Compiled(partial(function, self, *options), effort)

        return compiled

    # ------------------------------------------------------------------------------------------ identity

    @cached_property
    def fingerprint(self) -> str:
        """The properties that a state and this program must have in common, as JSON text."""
        latents = [[v.name, list(v.unconstrained_shape), v.space] for v in self.latents if v.size]
        parts = {"model": model_name(self.model), "family": self.family.name, "dtype": str(np.dtype(self.dtype))}
        if isinstance(self.model, SizedModel):
            parts["sizes"] = self.model.digest
        if self.term_data:
            parts["term_data"] = self.term_data
        return json.dumps(parts | {"latents": latents})

    def differences(self, fingerprint: str) -> str:
        """In words, what differs between this program and a fingerprint."""
        theirs, ours = json.loads(fingerprint), json.loads(self.fingerprint)
        words = [
            f"its {what} is {theirs[what]}, here it is {ours[what]}"
            for what in ("model", "family", "dtype")
            if theirs[what] != ours[what]
        ]
        if theirs["dtype"] != ours["dtype"]:
            words[-1] += " (jax_enable_x64 has changed since)"
        if theirs.get("sizes") != ours.get("sizes"):
            words.append("the model reads other sizes out of the data, such as the number of groups")
        if theirs.get("term_data") != ours.get("term_data"):
            words.append(
                f"the arguments that the terms of its prior read ({', '.join(self.prior_terms)}) had other values"
            )
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
        """Pickles the inputs of ``read``, because compiled and traced functions cannot be pickled but made again."""
        from adfpp.model.reader import read_again

        specs = [jax.ShapeDtypeStruct((3, *s.shape), s.dtype) for s in self.row_shapes]
        call = self.layout.rebuild(specs, self.pinned or self.shared_shapes)
        rows = self.layout.carriers
        return read_again, (ModelReference(self.model), call, rows, self.moments, self.asked, self.fingerprint)

    def refuse_lower_precision(self) -> None:
        """Refuses float64 results where JAX computes in float32 by now.

        Raises:
            ModelError: When jax_enable_x64 has been switched off since.
        """
        if jnp.zeros(()).dtype != self.dtype == np.float64:
            raise ModelError(
                "This result was computed in float64, and JAX now computes in float32: jax_enable_x64 has been "
                "switched off since. Switch it on again, jax.config.update('jax_enable_x64', True), or learn again."
            )

    @property
    def once(self) -> frozenset[str]:
        """Observations and factors that belong to no row."""
        return self.constants.union(self.prior_terms)

    # ------------------------------------------------------------------------------------------ θ and values

    def visit(
        self, arguments: Mapping[str, object], values: Values, priors: Mapping[str, Distribution] | None = None
    ) -> Visit:
        """Runs the model once, see ``model/visit.py:visit``. Its observations are those of rows."""
        return visit(self.model, arguments, values, priors).apart(self.constants, self.prior_terms)

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
        return ModelPrior(
            self.model, self.layout, self.latents, self.row_shapes, self.dtype, replaced or {}, self.prior_terms
        )

    def project_prior(
        self, shared: Sequence[ArrayLike], replaced: Mapping[str, Distribution] | None = None
    ) -> Projection:
        """The prior as independent blocks as far as possible, Gaussian in unconstrained space or in native families.

        Args:
            shared: The shared arrays.
            replaced: Distributions to put in the place of the model's own priors.
        """
        return project_prior(self.prior(replaced), shared)

    @cached_property
    def prior_factors(self) -> dict[str, tuple[PriorGroup, ...]]:
        """The prior as factor groups, by latent and prior term."""
        with READING:
            return prior_groups(self)

    def latents_of_priors(self, statuses: Mapping[str, Any]) -> dict[str, int]:
        """The worst status of the prior factors of each latent and prior term, from those of the factors by key."""
        worst: dict[str, int] = {}
        for name, groups in self.prior_factors.items() if statuses else ():
            codes = [int(statuses[g.key]) for g in groups if g.key in statuses]
            if codes:
                worst[name] = max(codes)
        return worst

    def prior_inputs(self, shared: Sequence[ArrayLike]) -> list[jax.Array]:
        """The inputs of prior factors: zeros in the place of a row's arrays, and the shared arrays."""
        return self.prior().inputs(shared)

    def prior_sampler(
        self, shared: Sequence[ArrayLike], replaced: Mapping[str, Distribution] | None = None
    ) -> Callable[[jax.Array], jax.Array]:
        """``key -> θ``, a draw from the prior."""
        return self.prior(replaced).sampler(shared)
