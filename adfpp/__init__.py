"""Online Bayesian inference for NumPyro models: ADF and expectation propagation, checked against NUTS."""

# after `import arviz` 1.x, NumPyro must be imported whole before any of its modules is: else it is run twice
import numpyro as _numpyro  # noqa: F401

from adfpp import checkpoint, distributions
from adfpp._version import __version__ as __version__
from adfpp.adf import ADF, ADFInfo, ADFResult, ADFState, RowRefused
from adfpp.checkpoint import CheckpointError
from adfpp.compare import Comparison, compare
from adfpp.dynamics import Discount, OrnsteinUhlenbeck, RandomWalk, Static
from adfpp.engine.status import Status
from adfpp.ep import EP, EPInfo, EPResult, EPState
from adfpp.export import ExportWarning, loo, to_arviz
from adfpp.families import Belief, Diagonal, Full, Spherical
from adfpp.importance import Reweighted
from adfpp.model import ModelError
from adfpp.posterior import Posterior
from adfpp.prior import PriorError
from adfpp.selfcheck import Check, check
from adfpp.smoothing import Smoothed, smooth
from adfpp.stream import ADFTotals, NotConverged, RowsMarked, Trajectory
from adfpp.tilt import Moments, MonteCarlo, Quadrature, Tilted, register_tilt

__all__ = [
    "ADF",
    "EP",
    "EPInfo",
    "EPResult",
    "EPState",
    "NotConverged",
    "ADFInfo",
    "ADFResult",
    "ADFState",
    "ADFTotals",
    "Belief",
    "Check",
    "CheckpointError",
    "Comparison",
    "Diagonal",
    "Discount",
    "ExportWarning",
    "Full",
    "ModelError",
    "Moments",
    "MonteCarlo",
    "OrnsteinUhlenbeck",
    "Posterior",
    "PriorError",
    "Quadrature",
    "RandomWalk",
    "Reweighted",
    "RowRefused",
    "RowsMarked",
    "Smoothed",
    "Spherical",
    "Static",
    "Status",
    "Tilted",
    "Trajectory",
    "check",
    "checkpoint",
    "compare",
    "distributions",
    "loo",
    "register_tilt",
    "smooth",
    "to_arviz",
]
