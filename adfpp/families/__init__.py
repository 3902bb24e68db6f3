"""Families of approximate posteriors: one class a family."""

from adfpp.families.gaussian import Belief, Diagonal, Family, Full, Spherical, family_named

__all__ = ["Belief", "Diagonal", "Family", "Full", "Spherical", "family_named"]
