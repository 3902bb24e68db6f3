"""Online Bayesian inference for NumPyro models: ADF and expectation propagation, checked against NUTS."""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from adfpp._public import HOMES
from adfpp._version import __version__ as __version__

if TYPE_CHECKING:
    from adfpp._public import *  # noqa: F403

_PACKAGES = ("engine", "io", "judge", "learn", "model", "show")

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
    """Imports a public name when it is first used, so that ``adfpp --help`` does not import JAX.

    Names of the first edition come with a warning that says where they are now.
    """
    if name == "__all__":
        return [*HOMES]
    if name in HOMES:
        # ArviZ 1.x puts a NumPyro into sys.modules that is loaded when it is first used. It must be imported as a whole
        # before any of its modules is, or else it is run twice. Packages that begin with a module of NumPyro do this.
        importlib.import_module("numpyro")
        module = importlib.import_module(HOMES[name])
        return globals().setdefault(name, getattr(module, name, module))
    if name in _PACKAGES:
        return importlib.import_module(f"adfpp.{name}")
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


def __dir__() -> list[str]:
    """The public names, too, before one of them is used."""
    return sorted({*globals(), *HOMES})
