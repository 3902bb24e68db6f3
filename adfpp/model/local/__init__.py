"""Local latents: latents that have a separate value in every row, and are summed or integrated out row by row.

A discrete one is enumerated: the row is visited once with each combination of values, and its log-density is their
log-sum-exp. A continuous one becomes part of the field: the row's field is affine in (θ, z), where z are the row's
unconstrained local numbers. They have a Gaussian base, and the ratio of their prior to the base is part of the factor.

``latents`` finds local latents, ``plan`` sorts observed elements by the local numbers that they depend on, ``base``
chooses the Gaussian base, and ``posterior`` computes the posteriors of local latents on request.
"""

from adfpp.model.local.base import base_log_density, exact_base, prior_elements
from adfpp.model.local.latents import LocalLatent, local_latents
from adfpp.model.local.plan import Component, LocalPlan, plan_locals

__all__ = [
    "Component",
    "LocalLatent",
    "LocalPlan",
    "base_log_density",
    "exact_base",
    "local_latents",
    "plan_locals",
    "prior_elements",
]
