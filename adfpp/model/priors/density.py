"""The log prior of a model as a function of θ, and draws from it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, biject_to

from adfpp.engine.compilation import run_once
from adfpp.model.arguments import Model, ModelError
from adfpp.model.densities import unconstrained_log_density
from adfpp.model.elements import elements, is_improper
from adfpp.model.latents import Latent, substitution, unconstrain
from adfpp.model.layout import Layout
from adfpp.model.visit import draw_latents, visit


@dataclass(frozen=True, eq=False)
class ModelPrior:
    """The prior of the latents that all rows share.

    Attributes:
        model: The model.
        layout: How its arguments are split.
        latents: The latents, in the order of θ.
        row_shapes: Shape and dtype of each row array, without the leading axis.
        dtype: The dtype of θ.
        replaced: Distributions that replace the model's own priors.
        terms: Observations and factors that belong to the prior.
    """

    model: Model
    layout: Layout
    latents: tuple[Latent, ...]
    row_shapes: tuple[jax.ShapeDtypeStruct, ...]
    dtype: np.dtype
    replaced: Mapping[str, Distribution] = field(default_factory=dict)
    terms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuses priors for latents that do not exist.

        Raises:
            ModelError: When a name is not that of a latent.
            TypeError: When a prior is not a distribution.
        """
        names = [latent.name for latent in self.latents]
        for name, prior in self.replaced.items():
            if name not in names:
                raise ModelError(f"prior names the latent {name!r}; the model's latents are {names}.")
            if not isinstance(prior, Distribution):
                raise TypeError(
                    f"prior gives latent {name!r} a {type(prior).__name__}; it takes a NumPyro distribution, e.g. "
                    f"prior={{{name!r}: dist.Normal(0, 10)}}."
                )

    @property
    def size(self) -> int:
        """Length of θ."""
        return sum(latent.size for latent in self.latents)

    def inputs(self, shared: Sequence[ArrayLike]) -> list[jax.Array]:
        """Zeros in the place of a row's arrays, on which a prior does not depend, and the shared arrays."""
        return [jnp.zeros((1, *s.shape), s.dtype) for s in self.row_shapes] + [jnp.asarray(a) for a in shared]

    def logs(self, theta: jax.Array, *inputs: ArrayLike) -> list[jax.Array]:
        """The log prior of each latent in unconstrained space, followed by each term of the prior.

        A latent or term with independent elements, scalars or events, gives one number for each element, a latent in
        its native space one for each component, and any other latent a single number. An improper prior is 0, if there
        are terms that may make it proper.
        """
        found = visit(self.model, self.layout.rebuild_from(inputs), substitution(self.latents, theta), self.replaced)
        out = []
        for latent in self.latents:
            fn, value = found.latents[latent.name].fn, found.latents[latent.name].value
            if is_improper(fn):
                if not self.terms or latent.native is not None:
                    refuse_improper_prior(latent.name)
                out.append(jnp.zeros(1, self.dtype))
                continue
            u = theta[latent.where].reshape(latent.unconstrained_shape)
            each = elements(fn, value)
            if latent.native is not None:
                out.append(jnp.ravel(each.log_prob))
                continue
            exact = unconstrained_log_density(each.inner, u)
            jacobian = biject_to(each.inner.support).log_abs_det_jacobian(u, value)
            if exact is not None:
                out.append(jnp.ravel(exact))
            elif jacobian.shape == each.log_prob.shape:
                out.append(jnp.ravel(each.log_prob + jacobian))
            else:
                out.append((_total(each.log_prob) + _total(jacobian))[None])
        for name in self.terms:
            term = found.observations[name]
            out.append(jnp.ravel(elements(term.fn, term.value).masked_log_prob()))
        return out

    def sampler(self, shared: Sequence[ArrayLike]) -> Callable[[jax.Array], jax.Array]:
        """``key -> θ``, a draw from the latents' priors without the terms, with some value for an improper one."""
        arguments = self.layout.rebuild_from(self.inputs(shared))

        def draw(key: jax.Array) -> jax.Array:
            drawn = draw_latents(self.model, arguments, self.replaced, key, improper=bool(self.terms))
            return unconstrain(self.latents, drawn, self.dtype)[0]

        return draw


def refuse_improper_prior(name: str) -> NoReturn:
    """Raises the error for an improper prior."""
    raise ModelError(
        f"Latent {name!r} has an improper prior, from which no online update can start. Give it a proper one in the "
        f"model, or start from one: prior={{{name!r}: dist.Normal(0, 10)}} (or a posterior)."
    )


def _total(a: jax.Array) -> jax.Array:
    """The sum of an array. A single number is returned unchanged, so that its own summands can still be found."""
    return a if a.ndim == 0 else jnp.sum(a)


def prior_draws(sampler: Callable[[jax.Array], jax.Array], count: int, seed: int = 5) -> np.ndarray:
    """Draws ``(count, N)`` of θ from its prior, the same in every call."""
    return np.asarray(
        run_once(lambda key: jax.vmap(sampler)(jax.random.split(key, count)), jax.random.key(seed)), float
    )
