"""opper (to be written)."""

from adfpp.laboratory.bench import Experiment

EXPERIMENTS: tuple[Experiment, ...] = ()
