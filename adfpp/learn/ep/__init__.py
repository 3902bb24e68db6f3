"""Expectation propagation: the learner, the loop over sweeps, the schedules and the compiled sweeps."""

from adfpp.learn.ep.ep import EP, EPInfo, EPResult, EPState

__all__ = ["EP", "EPInfo", "EPResult", "EPState"]
