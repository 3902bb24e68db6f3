"""Families of approximate posteriors. ``base`` defines the protocol, and each family has its own module."""

from adfpp.engine.families.base import Belief, Block, Exchange, Family, Gaussian, Outside, Window, combine
from adfpp.engine.families.diagonal import Diagonal
from adfpp.engine.families.full import Full
from adfpp.engine.families.in_theta import InTheta
from adfpp.engine.families.named import ByLatent, Conjugate, asked_family, family_named, latent_family
from adfpp.engine.families.product.parts import ComponentPart, GaussianPart, Part
from adfpp.engine.families.product.product import Product, ProductBelief
from adfpp.engine.families.spherical import Spherical

__all__ = [
    "Belief",
    "Block",
    "ByLatent",
    "ComponentPart",
    "Conjugate",
    "Diagonal",
    "Exchange",
    "Family",
    "Full",
    "Gaussian",
    "GaussianPart",
    "InTheta",
    "Outside",
    "Part",
    "Product",
    "ProductBelief",
    "Spherical",
    "Window",
    "asked_family",
    "combine",
    "family_named",
    "latent_family",
]
