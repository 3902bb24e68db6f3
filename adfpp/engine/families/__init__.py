"""Families of approximate posteriors: one class a family."""

from adfpp.engine.families.gaussian import Belief, Diagonal, Family, Full, Gaussian, InTheta, Spherical, family_named
from adfpp.engine.families.product.product import ByLatent, Part, Product, ProductBelief, asked_family

__all__ = [
    "Belief",
    "ByLatent",
    "Diagonal",
    "Family",
    "Full",
    "Gaussian",
    "InTheta",
    "Part",
    "Product",
    "ProductBelief",
    "Spherical",
    "asked_family",
    "family_named",
]
