"""Tilted moments: log Z, mean and covariance of cavity times factor, by closed form, quadrature or Monte Carlo."""

from adfpp.engine.tilt.base import (
    ClosedForm,
    Drawn,
    Index,
    IntegralRule,
    LogFactor,
    Message,
    Rule,
    Tilt,
    Tilted,
    whole_line,
)
from adfpp.engine.tilt.closed import gaussian_tilt, normal_tail, normal_tilt, probit_tilt, rosenblatt_tilt
from adfpp.engine.tilt.conditional import Conditional
from adfpp.engine.tilt.landmarks import Landmarks
from adfpp.engine.tilt.montecarlo import MonteCarlo
from adfpp.engine.tilt.quadrature import Quadrature
from adfpp.engine.tilt.strategy import ACCURATE, AUTO, MONTE_CARLO, QUADRATURE, Choice, Moments, moments_named
from adfpp.engine.tilt.variational import Variational

__all__ = [
    "ACCURATE",
    "AUTO",
    "MONTE_CARLO",
    "QUADRATURE",
    "Choice",
    "ClosedForm",
    "Conditional",
    "Drawn",
    "Index",
    "IntegralRule",
    "Landmarks",
    "LogFactor",
    "Message",
    "Moments",
    "MonteCarlo",
    "Quadrature",
    "Rule",
    "Tilt",
    "Tilted",
    "Variational",
    "gaussian_tilt",
    "moments_named",
    "normal_tail",
    "normal_tilt",
    "probit_tilt",
    "rosenblatt_tilt",
    "whole_line",
]
