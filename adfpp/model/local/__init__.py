"""Local latents: latents with values of their own in every row, summed or integrated out row by row.

A discrete one is enumerated: the row is visited once with each combination of values, and its log-density is their
log-sum-exp. A continuous one joins the field: the row's field is affine in (θ, z), z the row's unconstrained local
numbers, which have a Gaussian base; what their prior has more than the base is part of the factor.

``latents`` finds them, ``plan`` sorts observed elements by the local numbers that they depend on, ``base`` chooses the
Gaussian base, and ``posterior`` computes their posteriors on request.
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
