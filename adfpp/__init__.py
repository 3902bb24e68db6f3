"""Online Bayesian inference for NumPyro models: ADF and expectation propagation, checked against NUTS."""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from adfpp._version import __version__ as __version__

if TYPE_CHECKING:
    from adfpp._public import *  # noqa: F403

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
    """Imports the public names when one of them is first used, so that ``adfpp --help`` does not import JAX.

    Names of the first edition come with a warning that says where they are now.
    """
    if name == "__all__" or not name.startswith("__"):  # Python itself asks for names such as __path__
        public = importlib.import_module("adfpp._public")
        globals().update({key: getattr(public, key) for key in ("__all__", *public.__all__)})
    if name in globals():  # a public name, or a package that they have imported, such as adfpp.learn
        return globals()[name]
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
    return sorted({*globals(), *__getattr__("__all__")})
