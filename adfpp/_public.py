"""The public names of adfpp. The package imports this module when one of them is first used."""

# ArviZ 1.x puts a NumPyro into sys.modules that is loaded when it is first used. It must be imported as a whole before
# any of its modules is, or else it is run twice. Packages of adfpp that begin with a module of NumPyro do the same.
import numpyro as _numpyro  # noqa: F401

from adfpp import distributions
from adfpp.engine import dynamics
from adfpp.engine.dynamics import Discount, OrnsteinUhlenbeck, RandomWalk
from adfpp.engine.status import Status
from adfpp.engine.tilt import Moments, MonteCarlo, Quadrature, Tilted
from adfpp.io.checkpoint import CheckpointError, load, save
from adfpp.judge.check import check
from adfpp.judge.compare import compare
from adfpp.learn.adf import ADF, RowRefused
from adfpp.learn.ep import EP
from adfpp.learn.posterior import Posterior
from adfpp.learn.smoothing import smooth
from adfpp.learn.stream import NotConverged, RowsMarked
from adfpp.model import ModelError
from adfpp.model.closed_forms import register_tilt
from adfpp.model.priors import PriorError
from adfpp.show.export import ExportWarning, loo, to_arviz

__all__ = [
    "ADF",
    "EP",
    "CheckpointError",
    "Discount",
    "ExportWarning",
    "ModelError",
    "Moments",
    "MonteCarlo",
    "NotConverged",
    "OrnsteinUhlenbeck",
    "Posterior",
    "PriorError",
    "Quadrature",
    "RandomWalk",
    "RowRefused",
    "RowsMarked",
    "Status",
    "Tilted",
    "check",
    "compare",
    "distributions",
    "dynamics",
    "load",
    "loo",
    "register_tilt",
    "save",
    "smooth",
    "to_arviz",
]
