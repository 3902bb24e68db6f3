"""Variational message passing for conjugate models."""

from adfpp.learn.vmp.vmp import VMP, VMPInfo, VMPState

__all__ = ["VMP", "VMPInfo", "VMPState"]
