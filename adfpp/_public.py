"""The public names of adfpp, and the modules that they are in. A name is imported when it is first used."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adfpp import distributions as distributions
    from adfpp.engine import dynamics as dynamics
    from adfpp.engine.dynamics import Discount as Discount
    from adfpp.engine.dynamics import OrnsteinUhlenbeck as OrnsteinUhlenbeck
    from adfpp.engine.dynamics import RandomWalk as RandomWalk
    from adfpp.engine.status import Status as Status
    from adfpp.engine.tilt import Moments as Moments
    from adfpp.engine.tilt import MonteCarlo as MonteCarlo
    from adfpp.engine.tilt import Quadrature as Quadrature
    from adfpp.engine.tilt import Tilted as Tilted
    from adfpp.io.checkpoint import CheckpointError as CheckpointError
    from adfpp.io.checkpoint import load as load
    from adfpp.io.checkpoint import save as save
    from adfpp.judge.check import check as check
    from adfpp.judge.compare import compare as compare
    from adfpp.learn.adf import ADF as ADF
    from adfpp.learn.adf import RowRefused as RowRefused
    from adfpp.learn.ep import EP as EP
    from adfpp.learn.posterior import Posterior as Posterior
    from adfpp.learn.smoothing import smooth as smooth
    from adfpp.learn.stream import NotConverged as NotConverged
    from adfpp.learn.stream import RowsMarked as RowsMarked
    from adfpp.learn.vmp import VMP as VMP
    from adfpp.model import ModelError as ModelError
    from adfpp.model.closed_forms import register_tilt as register_tilt
    from adfpp.model.priors import PriorError as PriorError
    from adfpp.show.export import ExportWarning as ExportWarning
    from adfpp.show.export import loo as loo
    from adfpp.show.export import to_arviz as to_arviz

# The modules of the names; ``distributions`` and ``dynamics`` are modules themselves.
HOMES = {
    "ADF": "adfpp.learn.adf",
    "EP": "adfpp.learn.ep",
    "VMP": "adfpp.learn.vmp",
    "CheckpointError": "adfpp.io.checkpoint",
    "Discount": "adfpp.engine.dynamics",
    "ExportWarning": "adfpp.show.export",
    "ModelError": "adfpp.model",
    "Moments": "adfpp.engine.tilt",
    "MonteCarlo": "adfpp.engine.tilt",
    "NotConverged": "adfpp.learn.stream",
    "OrnsteinUhlenbeck": "adfpp.engine.dynamics",
    "Posterior": "adfpp.learn.posterior",
    "PriorError": "adfpp.model.priors",
    "Quadrature": "adfpp.engine.tilt",
    "RandomWalk": "adfpp.engine.dynamics",
    "RowRefused": "adfpp.learn.adf",
    "RowsMarked": "adfpp.learn.stream",
    "Status": "adfpp.engine.status",
    "Tilted": "adfpp.engine.tilt",
    "check": "adfpp.judge.check",
    "compare": "adfpp.judge.compare",
    "distributions": "adfpp.distributions",
    "dynamics": "adfpp.engine.dynamics",
    "load": "adfpp.io.checkpoint",
    "loo": "adfpp.show.export",
    "register_tilt": "adfpp.model.closed_forms",
    "save": "adfpp.io.checkpoint",
    "smooth": "adfpp.learn.smoothing",
    "to_arviz": "adfpp.show.export",
}
