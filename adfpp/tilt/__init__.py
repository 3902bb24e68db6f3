"""Tilted moments: (log Z, mean, covariance) of cavity times factor, by closed form, quadrature or Monte Carlo."""

from adfpp.tilt.base import ClosedForm, Message, Tilted, closed_form, register_tilt, whole_line
from adfpp.tilt.closed import gaussian_tilt, normal_tail, normal_tilt, probit_tilt, rosenblatt_tilt
from adfpp.tilt.conditional import Conditional
from adfpp.tilt.montecarlo import MonteCarlo
from adfpp.tilt.quadrature import Quadrature
from adfpp.tilt.strategy import ACCURATE, AUTO, MONTE_CARLO, QUADRATURE, Moments, moments_named
from adfpp.tilt.variational import Variational

__all__ = [
    "ACCURATE",
    "AUTO",
    "MONTE_CARLO",
    "QUADRATURE",
    "ClosedForm",
    "Conditional",
    "Message",
    "Moments",
    "MonteCarlo",
    "Quadrature",
    "Tilted",
    "Variational",
    "closed_form",
    "gaussian_tilt",
    "moments_named",
    "normal_tail",
    "normal_tilt",
    "probit_tilt",
    "register_tilt",
    "rosenblatt_tilt",
    "whole_line",
]
