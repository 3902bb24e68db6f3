"""The prior of the latents that all rows share: its density, its projection onto blocks, and its factors.

``density`` is the log prior of a model as a function of θ. ``projection`` writes it as independent blocks as far as
possible: ``gaussian`` in unconstrained space, ``native`` for latents whose belief is kept in their native space. The
other priors, which depend on other latents, are cut into factors by ``factors``. They are learned like rows.
"""

from adfpp.model.priors.density import ModelPrior, prior_draws
from adfpp.model.priors.factors import PriorGroup, prior_groups
from adfpp.model.priors.gaussian import Block, PriorError, Projection
from adfpp.model.priors.native import block_of_draws

__all__ = [
    "Block",
    "ModelPrior",
    "PriorError",
    "PriorGroup",
    "Projection",
    "block_of_draws",
    "prior_draws",
    "prior_groups",
]
