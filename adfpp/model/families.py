"""The family of each latent, native ones checked against its support, and the family of the whole belief."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer
from numpyro.distributions import constraints

from adfpp.engine.families import (
    ByLatent,
    ComponentPart,
    Conjugate,
    Family,
    GaussianPart,
    Part,
    Product,
    family_named,
    latent_family,
)
from adfpp.engine.families.product.dirichlet import Beta, Dirichlet
from adfpp.engine.families.product.exponential import Exponential
from adfpp.engine.families.product.finite import Finite
from adfpp.engine.families.product.gamma import Gamma, InverseGamma
from adfpp.engine.families.product.wishart import Wishart
from adfpp.model.arguments import ModelError
from adfpp.model.elements import scalar_base
from adfpp.model.latents import Latent
from adfpp.model.outline import Outline

_GAUSSIAN = (None, "full", "diagonal", "normal", "spherical")  # None: chosen by the latent's support
_SUPPORTS = {
    "gamma": "positive numbers",
    "inverse_gamma": "positive numbers",
    "inversegamma": "positive numbers",
    "lognormal": "positive numbers",
    "beta": "the unit interval",
    "dirichlet": "a simplex",
    "wishart": "positive definite matrices",
    "bernoulli": "two values",
    "categorical": "finitely many values",
}


# the families of priors whose own family is that of the approximation in variational message passing
_CONJUGATE: tuple[tuple[tuple[type, ...], Exponential], ...] = (
    ((dist.Gamma, dist.Exponential), Gamma()),
    ((dist.InverseGamma,), InverseGamma()),
    ((dist.Beta, dist.BetaProportion, dist.Uniform), Beta()),
)


def _by_latent(asked: Family | ByLatent) -> dict[str, str] | None:
    """``{latent: family}`` where the user asked for families by latent."""
    return dict(asked.given) if isinstance(asked, ByLatent) else None


def native_families(asked: Family | ByLatent, latents: Mapping[str, Outline]) -> dict[str, Exponential]:
    """The families of the latents whose belief is kept in native space, ``{latent: family}``.

    Args:
        asked: The family or families that the user asked for: one for all latents, or by latent.
        latents: The latents that rows share.

    Raises:
        ModelError: When a latent's support does not fit the family that was asked for, or cannot be listed.
    """
    given = _by_latent(asked) or {}
    unknown = sorted(set(given) - set(latents))
    if unknown:
        raise ModelError(f"family names the latent {unknown[0]!r}; the model's latents are {list(latents)}.")
    out: dict[str, Exponential] = {}
    for name, latent in latents.items():
        wanted = given.get(name)
        if latent.discrete:
            out[name] = _finite(latent, wanted)
        elif wanted is None and isinstance(asked, Conjugate):
            natural = _of_prior(latent)
            if natural is not None:
                out[name] = natural
        elif wanted not in _GAUSSIAN:
            _refuse_support(latent, wanted)
            if wanted == "wishart" and not isinstance(asked, Conjugate):
                raise ModelError(
                    f"family={{{name!r}: 'wishart'}} is for adfpp.VMP: a Wishart has no quadrature. Learn the model "
                    "with adfpp.VMP, or leave the latent Gaussian in unconstrained space."
                )
            if wanted != "lognormal":
                size = latent.shape[-1] if wanted in ("dirichlet", "wishart") else 1
                out[name] = latent_family(wanted, size, None)  # pyright: ignore[reportArgumentType]
    return out


def _of_prior(latent: Outline) -> Exponential | None:
    """The family of a latent's prior, for variational message passing; None for a Gaussian in unconstrained space."""
    prior = scalar_base(latent.fn)
    if isinstance(prior, dist.Dirichlet):
        return Dirichlet(latent.shape[-1])
    if isinstance(prior, dist.Wishart):
        return Wishart(latent.shape[-1])
    if isinstance(prior, dist.Uniform) and _bounds(prior.support) != (0.0, 1.0):
        return None
    return next((family for kinds, family in _CONJUGATE if isinstance(prior, kinds)), None)


def _finite(latent: Outline, wanted: str | None) -> Exponential:
    """The family of a discrete latent."""
    name = latent.name
    if 0 in latent.shape:
        raise ModelError(f"Discrete latent {name!r} has no elements (shape {latent.shape}): leave it out.")
    if latent.values is None:
        raise ModelError(
            f"Latent {name!r} is a discrete variable that all rows share, and its values cannot be listed (a Poisson "
            "has infinitely many). Give it a distribution with finitely many values, e.g. Categorical or Binomial with "
            "a fixed count, or make it continuous."
        )
    if wanted not in (None, "bernoulli", "categorical"):
        raise ModelError(
            f"Latent {name!r} is discrete, and family={{{name!r}: {wanted!r}}} is not: use 'bernoulli' or "
            "'categorical', or leave it out."
        )
    if wanted == "bernoulli" and len(latent.values) != 2:
        raise ModelError(
            f"Latent {name!r} has {len(latent.values)} values, and a 'bernoulli' has two: use 'categorical'."
        )
    return Finite(tuple(float(v) for v in latent.values))


def _refuse_support(latent: Outline, wanted: str) -> None:
    support = scalar_base(latent.fn).support
    if wanted in ("bernoulli", "categorical"):
        fits = False
    elif wanted == "dirichlet":
        fits = support is constraints.simplex
    elif wanted == "wishart":
        fits = support is constraints.positive_definite
    elif wanted == "beta":
        fits = support is constraints.unit_interval or _bounds(support) == (0.0, 1.0)
    else:
        fits = support in (constraints.positive, constraints.nonnegative) or _bounds(support) == (0.0, np.inf)
    if not fits:
        raise ModelError(
            f"family={{{latent.name!r}: {wanted!r}}} is for {_SUPPORTS[wanted]}, and latent {latent.name!r} is a "
            f"{type(scalar_base(latent.fn)).__name__} with another support. Leave it Gaussian in unconstrained space, "
            "or transform it in the model: numpyro.deterministic of a latent with that support."
        )


def _bounds(support: object) -> tuple[float, float] | None:
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", np.inf)
    if low is None or any(isinstance(a, Tracer) or np.ndim(a) for a in (low, high)):
        return None
    return float(low), float(high)


def resolved_family(asked: Family | ByLatent, latents: Sequence[Latent]) -> Family:
    """The family of the belief: the one that was asked for, or a product if latents have different families.

    Args:
        asked: The family or families that the user asked for.
        latents: The latents, each with ``native``.
    """
    given = _by_latent(asked)
    if given is None:
        if all(latent.native is None for latent in latents):
            return asked  # pyright: ignore[reportReturnType]
        gaussian = {latent.name: asked.name for latent in latents if latent.native is None}
    else:
        gaussian = {
            latent.name: _gaussian_name(given.get(latent.name, "full")) for latent in latents if latent.native is None
        }
        if len(gaussian) == len(latents) and len(set(gaussian.values())) == 1 and "spherical" not in gaussian.values():
            return family_named(next(iter(gaussian.values())))
    parts: list[Part] = []
    for name in ("full", "diagonal"):
        together = [latent for latent in latents if gaussian.get(latent.name) == name and latent.size]
        if together:
            where = np.concatenate([latent.places for latent in together])
            parts.append(GaussianPart(tuple(latent.name for latent in together), family_named(name), where))
    for latent in latents:
        if latent.native is not None:
            count = latent.size // latent.native.dim
            parts.append(ComponentPart((latent.name,), latent.native, latent.places, count))
        elif gaussian[latent.name] == "spherical" and latent.size:
            parts.append(GaussianPart((latent.name,), family_named("spherical"), latent.places))
    parts.sort(key=lambda p: int(p.where[0]))
    return Product(tuple(parts), asked.splitting) if isinstance(asked, ByLatent) else Product(tuple(parts))


def _gaussian_name(name: str) -> str:
    return {"normal": "diagonal", "lognormal": "diagonal"}.get(name, name)
