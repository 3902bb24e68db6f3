"""Reading a NumPyro model: its arguments, latents, prior, factors, and the numeric check of its rows.

This is the only package that knows NumPyro's internals. ``read`` turns a model and the shapes of one call into a
``Program``: functions of a flat unconstrained θ, the arrays of one row, and the arrays that all rows share.

    arguments, layout      which arguments carry rows, which are shared, which are fixed options
    visit, outline         one run of the model; its latents and observations, and their shapes
    elements               one distribution: its independent elements, kind and support
    latents                latents that all rows share
    families               the family of each latent, native families included
    constants              latents that are fixed by an observed value
    local/                 latents of single rows
    observations           one row as a traced function, cut into factors
    reader, refusals       the steps of reading, and what is refused
    priors/                the prior: density, projection, factors
    program                the result of reading
    check                  the numeric check that rows add up
    joint, forward         densities at many θ; draws of everything in the model
    discrete, guides       enumeration; draws of NumPyro guides
    closed_forms           the registry of closed-form tilts
    environment, reference what a model function depends on, as a cache key; a model inside a pickle
    location               the user's line that led to an error
"""

import numpyro as _numpyro  # noqa: F401 (as a whole, before its modules: see adfpp._public)

from adfpp.model.arguments import Model, ModelError, bind, is_array, refuse_clashes
from adfpp.model.check import RowCheck
from adfpp.model.elements import stripped
from adfpp.model.guides import guide_draws
from adfpp.model.joint import Joint
from adfpp.model.latents import Latent, same_space
from adfpp.model.layout import Layout
from adfpp.model.local.posterior import local_posterior
from adfpp.model.priors import PriorGroup, block_of_draws, prior_groups
from adfpp.model.program import Program
from adfpp.model.reader import read
from adfpp.model.visit import READING

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
