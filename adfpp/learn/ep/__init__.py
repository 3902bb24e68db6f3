"""Expectation propagation: the learner, its loop, its schedules and the compiled sweeps."""

from adfpp.learn.ep.ep import EP, EPInfo, EPResult, EPState

__all__ = ["EP", "EPInfo", "EPResult", "EPState"]
