"""Reading a NumPyro model: latent sites, prior, factors, rows, and the model check.

The only room that knows NumPyro's internals. What comes out is a ``Program``: functions of a flat unconstrained θ, the
arrays of one row, and the arrays that every row shares.
"""

from adfpp.model.arguments import Layout, Model, ModelError, bind, is_array, refuse_clashes
from adfpp.model.check import RowCheck
from adfpp.model.guides import guide_draws
from adfpp.model.joint import Joint
from adfpp.model.local import local_posterior
from adfpp.model.native import block_of_draws
from adfpp.model.priors import PriorGroup, prior_groups
from adfpp.model.program import Latent, Program, same_space
from adfpp.model.reader import read
from adfpp.model.visit import READING, stripped

__all__ = [
    "READING",
    "Joint",
    "Latent",
    "Layout",
    "Model",
    "ModelError",
    "PriorGroup",
    "Program",
    "RowCheck",
    "bind",
    "block_of_draws",
    "guide_draws",
    "is_array",
    "local_posterior",
    "prior_groups",
    "read",
    "refuse_clashes",
    "same_space",
    "stripped",
]
