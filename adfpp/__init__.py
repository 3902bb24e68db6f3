"""Online Bayesian inference for NumPyro models: assumed-density filtering, checked against NUTS."""

from adfpp import distributions
from adfpp.adf import ADF, ADFInfo, ADFResult, ADFState, RowRefused
from adfpp.dynamics import Discount, OrnsteinUhlenbeck, RandomWalk, Static
from adfpp.families import Belief, Diagonal, Full, Spherical
from adfpp.kernel import Status
from adfpp.model import ModelError
from adfpp.posterior import Posterior
from adfpp.prior import PriorError
from adfpp.stream import ADFTotals, RowsMarked
from adfpp.tilt import Moments, MonteCarlo, Quadrature, Tilted, register_tilt

__version__ = "0.1.0"

__all__ = [
    "ADF",
    "ADFInfo",
    "ADFResult",
    "ADFState",
    "ADFTotals",
    "Belief",
    "Diagonal",
    "Discount",
    "Full",
    "ModelError",
    "Moments",
    "MonteCarlo",
    "OrnsteinUhlenbeck",
    "Posterior",
    "PriorError",
    "Quadrature",
    "RandomWalk",
    "RowRefused",
    "RowsMarked",
    "Spherical",
    "Static",
    "Status",
    "Tilted",
    "distributions",
    "register_tilt",
]
