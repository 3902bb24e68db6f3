"""Online algorithms of the papers, with `init`, `update` and `run` like those of `adfpp.ADF`.

`base` has the loop over rows and `linear` the common parts of learners with a linear field. `perceptron` has the rules
with a learning rate, `bayes` those whose rate comes from a belief or from the order parameters, and `regression` those
that fit a linear combination of the functions in `bases`. `fits` runs a baseline for `adfpp.compare`.
"""

import numpyro as _numpyro  # noqa: F401 (as a whole, before its modules: see adfpp._public)

from adfpp.papers.baselines.base import Estimate, Info, Learner, Result, State
from adfpp.papers.baselines.bases import Basis, Fourier, Polynomial, RadialBasis
from adfpp.papers.baselines.bayes import NaturalGradient, ScalarBOnA, VariationalOptimum
from adfpp.papers.baselines.perceptron import (
    Annealed,
    Constant,
    Perceptron,
    Power,
    Rosenblatt,
    Schedule,
    ShiftedAnnealed,
    ShiftedPerceptron,
    ThresholdedSmooth,
)
from adfpp.papers.baselines.regression import IRMA, GradientDescent, RecursiveLeastSquares

__all__ = [
    "IRMA",
    "Annealed",
    "Basis",
    "Constant",
    "Estimate",
    "Fourier",
    "GradientDescent",
    "Info",
    "Learner",
    "NaturalGradient",
    "Perceptron",
    "Polynomial",
    "Power",
    "RadialBasis",
    "RecursiveLeastSquares",
    "Result",
    "Rosenblatt",
    "ScalarBOnA",
    "Schedule",
    "ShiftedAnnealed",
    "ShiftedPerceptron",
    "State",
    "ThresholdedSmooth",
    "VariationalOptimum",
]
