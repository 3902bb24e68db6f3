"""Online Bayesian inference for NumPyro models: ADF and expectation propagation, checked against NUTS."""

import importlib
import warnings
from typing import Any

# After `import arviz` 1.x, NumPyro must be imported as a whole before any of its modules is, or else it is run twice.
import numpyro as _numpyro  # noqa: F401

from adfpp import distributions
from adfpp._version import __version__ as __version__
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

# Names of the first edition that are reached through their modules now. They keep working for one release.
_MOVED = {
    "ADFInfo": "adfpp.learn.adf",
    "ADFResult": "adfpp.learn.adf",
    "ADFState": "adfpp.learn.adf",
    "ADFTotals": "adfpp.learn.stream",
    "Belief": "adfpp.engine.families",
    "Check": "adfpp.judge.check",
    "Comparison": "adfpp.judge.compare",
    "Diagonal": "adfpp.engine.families",
    "EPInfo": "adfpp.learn.ep",
    "EPResult": "adfpp.learn.ep",
    "EPState": "adfpp.learn.ep",
    "Full": "adfpp.engine.families",
    "Reweighted": "adfpp.learn.importance",
    "Smoothed": "adfpp.learn.smoothing",
    "Spherical": "adfpp.engine.families",
    "Static": "adfpp.engine.dynamics",
    "Trajectory": "adfpp.learn.stream",
}
_MOVED_MODULES = {
    "baselines": "adfpp.papers.baselines",
    "checkpoint": "adfpp.io.checkpoint",
    "families": "adfpp.engine.families",
    "laboratory": "adfpp.papers.laboratory",
    "theory": "adfpp.papers.theory",
    "tilt": "adfpp.engine.tilt",
}


def __getattr__(name: str) -> Any:
    """Names of the first edition, with a warning that says where they are now."""
    if name in _MOVED:
        new = f"{_MOVED[name]}.{name}"
        found = getattr(importlib.import_module(_MOVED[name]), name)
    elif name in _MOVED_MODULES:
        new = _MOVED_MODULES[name]
        found = importlib.import_module(new)
    else:
        raise AttributeError(f"module 'adfpp' has no attribute {name!r}")
    warnings.warn(f"adfpp.{name} is now {new}; the old name will go in 0.3.", DeprecationWarning, stacklevel=2)
    return found
