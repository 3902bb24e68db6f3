"""Families by name, as users give them: for the whole of θ, or for single latents."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from adfpp.engine.families.base import Family, Gaussian
from adfpp.engine.families.diagonal import Diagonal
from adfpp.engine.families.full import Full
from adfpp.engine.families.product.dirichlet import Beta, Dirichlet
from adfpp.engine.families.product.exponential import Exponential
from adfpp.engine.families.product.field_split import Splitting
from adfpp.engine.families.product.finite import Finite
from adfpp.engine.families.product.gamma import Gamma, InverseGamma
from adfpp.engine.families.product.wishart import Wishart
from adfpp.engine.families.spherical import Spherical

_GAUSSIAN: dict[str, Gaussian] = {"full": Full(), "diagonal": Diagonal(), "spherical": Spherical()}
_NATIVE: dict[str, Exponential] = {"gamma": Gamma(), "inverse_gamma": InverseGamma(), "beta": Beta()}
_ALIASES = {"normal": "diagonal", "lognormal": "diagonal", "inversegamma": "inverse_gamma"}
LATENT_FAMILIES = (
    "full",
    "diagonal",
    "normal",
    "lognormal",
    "spherical",
    "bernoulli",
    "categorical",
    *_NATIVE,
    "dirichlet",
    "wishart",
)


@dataclass(frozen=True)
class ByLatent:
    """The names of families for some latents, as a user gave them. The others follow from the supports.

    Attributes:
        given: Pairs of latent and family.
        splitting: As in ``Product``.
    """

    given: tuple[tuple[str, str], ...]
    splitting: Splitting = Splitting()
    sites_in_field: ClassVar[bool] = False
    gaussian: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """``by latent (w: full, sigma: gamma)``."""
        return f"by latent ({', '.join(f'{latent}: {family}' for latent, family in self.given)})"


@dataclass(frozen=True)
class Conjugate(ByLatent):
    """The families of variational message passing: those that the user gave, else those of the latents' priors."""

    given: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """``conjugate (sigma: gamma)``."""
        return f"conjugate ({', '.join(f'{latent}: {family}' for latent, family in self.given)})"


def family_named(family: str | Family) -> Gaussian:
    """Returns the family with this name, or the given family."""
    if not isinstance(family, str):
        if isinstance(family, Gaussian):
            return family
        raise ValueError(f"family={family!r} is not supported; use one of {sorted(_GAUSSIAN)}.")
    if family not in _GAUSSIAN:
        raise ValueError(f"family={family!r} is not known; use one of {sorted(_GAUSSIAN)}.")
    return _GAUSSIAN[family]


def asked_family(family: Any) -> Any:
    """Converts the user's option ``family`` to a family, or to a family for each of some latents."""
    if not isinstance(family, Mapping):
        return family if isinstance(family, ByLatent) else family_named(family)
    named = []
    for latent, own in family.items():
        name = own if isinstance(own, str) else getattr(own, "name", repr(own))
        if name not in LATENT_FAMILIES and name not in _ALIASES:
            raise ValueError(
                f"family {name!r} of latent {latent!r} is not known; it may be one of {sorted(LATENT_FAMILIES)}."
            )
        named.append((latent, name))
    return ByLatent(tuple(named))


def latent_family(name: str, size: int, values: tuple[float, ...] | None) -> Exponential | Gaussian:
    """Returns the family with this name for a latent.

    Args:
        name: One of ``LATENT_FAMILIES``.
        size: Length of the latent's event, for "dirichlet" and "wishart".
        values: The values of a discrete latent.
    """
    name = _ALIASES.get(name, name)
    if name in _GAUSSIAN:
        return _GAUSSIAN[name]
    if name == "dirichlet":
        return Dirichlet(size)
    if name == "wishart":
        return Wishart(size)
    if name in ("bernoulli", "categorical"):
        assert values is not None
        return Finite(values)
    return _NATIVE[name]
