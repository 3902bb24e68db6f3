"""Export to ArviZ: draws, predictives and densities of a posterior, as ``InferenceData`` or ``DataTree``.

The groups are made in ``groups``, leave-one-out is in ``loo``, and the differences between ArviZ 0.23 and 1.x are in
``arviz_versions``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from adfpp._version import __version__
from adfpp.judge.fits import Fit
from adfpp.learn.ep import EPInfo
from adfpp.learn.keys import checked_key
from adfpp.learn.posterior import GivenPrior, Posterior
from adfpp.learn.results import Result
from adfpp.learn.stream import ADFTotals
from adfpp.learn.vmp import VMPInfo
from adfpp.model import refuse_clashes
from adfpp.show import arviz_versions
from adfpp.show.arviz_versions import Group
from adfpp.show.groups import Draws, ExportWarning, Wanted, groups_of
from adfpp.show.loo import loo

__all__ = ["ExportWarning", "fit_to_arviz", "loo", "to_arviz"]


def to_arviz(
    result_or_posterior: Result | Posterior,
    *args: Any,
    rng_key: jax.Array | None = None,
    num_samples: int = 1000,
    num_chains: int = 4,
    coords: Mapping[str, object] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    predictive: bool = True,
    log_likelihood: bool = True,
    trajectory: bool = True,
    prior: GivenPrior = None,
    **kwargs: Any,
) -> Any:
    """Exports a posterior to ArviZ: ``InferenceData`` on ArviZ 0.23, ``DataTree`` on 1.x.

    Groups: ``posterior`` (latents and deterministic values), ``prior``, ``posterior_predictive``, ``prior_predictive``,
    ``log_likelihood``, ``log_prior``, ``observed_data``, ``constant_data``, ``unconstrained_posterior`` (latents that
    are Gaussian there; those kept in their native space are only in ``posterior``), ``sample_stats``, and
    ``trajectory`` for ADF or ``cavities`` for EP (``log_z``: log predictive density of each row given all other rows).
    All draws are independent, and draw i is the same in every group. For leave-one-out use ``adfpp.loo``: ArviZ's own
    ``loo`` would treat them as draws from the exact posterior.

    Example:
        ::

            idata = adfpp.to_arviz(result, X, y=y, coords={"column": names}, dims={"w": ["column"]})
            arviz.summary(idata)
            adfpp.loo(idata)

    Args:
        result_or_posterior: The result of ``run`` or ``get_posterior`` of an ``ADF`` or ``EP``.
        *args: The model's arguments: the rows that were absorbed. If there are none, as after a stream that was not
            kept, only the posterior's draws and their ``log_q`` are exported.
        rng_key: Key for the draws; ``jax.random.key(0)`` when None.
        num_samples: Total number of draws.
        num_chains: Number of equal chains that the draws are split into, because R-hat and ESS compare chains.
        coords: Values of dimensions.
        dims: Names of the axes of a latent, an observation or an argument. The axes of plates have their names.
        predictive: Whether to draw the observations, and the deterministic values of every row.
        log_likelihood: Whether to keep the log-likelihood of each row at each draw; ``adfpp.loo`` needs it.
        trajectory: Whether to add the belief along a run of ADF. If it was not kept, the rows are absorbed again,
            except if factors of the prior are visited between batches: other batches would give another posterior.
        prior: The prior of the run, if it was not that of the model; not needed for a result.
        **kwargs: The model's keyword arguments.
    """
    run = result_or_posterior.run if isinstance(result_or_posterior, Result) else None
    post = run.posterior if run is not None else result_or_posterior
    if not isinstance(post, Posterior):
        raise TypeError(
            "to_arviz takes the result of run or get_posterior of an ADF or EP; it got a "
            f"{type(post).__name__}. For a state use adf.get_posterior(state); for an MCMC use "
            "arviz.from_numpyro."
        )
    if num_samples < 1 or num_chains < 1 or num_samples % num_chains:
        raise ValueError(
            f"num_samples={num_samples} draws cannot be split into num_chains={num_chains} equal chains; take "
            f"{-(-max(num_samples, 1) // max(num_chains, 1)) * max(num_chains, 1)}, for example."
        )
    draw_key, key = jax.random.split(checked_key(rng_key) if rng_key is not None else jax.random.key(0))
    theta = post.draw(draw_key, num_samples)
    draws = Draws(post.program, theta, np.asarray(post.distribution.log_prob(theta), np.float64), num_chains)
    result = result_or_posterior if isinstance(result_or_posterior, Result) else None
    wanted = Wanted(predictive, log_likelihood, trajectory, prior)
    if args or kwargs:
        refuse_clashes(post.program.model, to_arviz, args)
    groups = groups_of(draws, result, key, wanted, args, kwargs)
    return arviz_versions.inference_data(_named(groups, dims or {}), coords or {}, _attrs(post.family.name, result))


def fit_to_arviz(
    fit: Fit,
    *args: Any,
    rng_key: jax.Array | None = None,
    coords: Mapping[str, object] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    predictive: bool = True,
    log_likelihood: bool = True,
    trajectory: bool = True,
    prior: GivenPrior = None,
    **kwargs: Any,
) -> Any:
    """Exports one run of a comparison, of any method, with the draws that were compared.

    Draws of MCMC have no ``log_q``; use ``arviz.loo`` for their leave-one-out.

    Args:
        fit: The run.
        *args: The model's arguments.
        rng_key: Key for the predictives and the prior.
        coords: Values of dimensions, as in ``to_arviz``.
        dims: Names of axes, as in ``to_arviz``.
        predictive: Whether to draw the observations.
        log_likelihood: Whether to keep the log-likelihood of each row at each draw.
        trajectory: Whether to add the belief along a run of ADF.
        prior: The prior of the run, if it was not that of the model.
        **kwargs: The model's keyword arguments.
    """
    result = fit.source if isinstance(fit.source, Result) else None
    log_q = None if fit.log_q is None else np.asarray(fit.log_q, np.float64).reshape(-1)
    draws = Draws(fit.program, jnp.asarray(fit.flat, fit.program.dtype), log_q, fit.theta.shape[0])
    key = checked_key(rng_key) if rng_key is not None else jax.random.key(0)
    if args or kwargs:
        refuse_clashes(fit.program.model, to_arviz, args)
    groups = groups_of(draws, result, key, Wanted(predictive, log_likelihood, trajectory, prior), args, kwargs)
    attrs = _attrs(fit.posterior.family.name if fit.posterior is not None else None, result) | {"method": fit.method}
    if result is None:
        if fit.table is None:
            attrs |= {"inference_library": "numpyro", "inference_library_version": numpyro.__version__}
        if np.isfinite(fit.log_evidence):
            attrs["log_evidence"] = float(fit.log_evidence)
    return arviz_versions.inference_data(_named(groups, dims or {}), coords or {}, attrs)


# ------------------------------------------------------------------------------------------------ details


def _named(groups: dict[str, Group], dims: Mapping[str, Sequence[str]]) -> dict[str, Group]:
    """The groups, with the names of axes that the user has given instead of the model's."""
    known = {name for group in groups.values() for name in group.values}
    unknown = sorted(set(dims) - known)
    if unknown:
        raise ValueError(
            f"dims names {unknown}, which is neither a latent, an observation nor an argument; there are "
            f"{sorted(known)}."
        )
    out = {}
    for name, group in groups.items():
        mine = dict(group.dims)
        for variable, axes in dims.items():
            if variable not in group.values or name in ("trajectory", "cavities"):
                continue
            size = group.values[variable].ndim - 2 * group.sampled
            given = list(mine.get(variable, ()))
            if name == "unconstrained_posterior" and given:
                if str(given[0]).startswith(f"{variable}_unconstrained_dim"):
                    continue
            mine[variable] = list(axes)[:size]
        out[name] = group._replace(dims=mine)
    return _without_clashes(out)


def _without_clashes(groups: dict[str, Group]) -> dict[str, Group]:
    """Renames dimensions that have the name of a variable of their group, which xarray would take for a coordinate."""
    out = {}
    for name, group in groups.items():
        dims = {}
        for variable, axes in group.dims.items():
            dims[variable] = [f"{d}_dim" if d in group.values else d for d in axes]
        out[name] = group._replace(dims=dims)
    return out


def _attrs(family: str | None, result: Result | None) -> dict[str, object]:
    attrs: dict[str, object] = {"inference_library": "adfpp", "inference_library_version": __version__}
    attrs |= {} if family is None else {"family": family}
    if result is None:
        return attrs
    if isinstance(result.info, EPInfo | VMPInfo):
        # netCDF has no booleans
        attrs |= {"sweeps": result.info.sweeps, "converged": int(result.info.converged)}
    if isinstance(result.info, ADFTotals) or len(result.info.log_z) == result.run.rows:
        if np.isfinite(result.log_evidence):
            attrs["log_evidence"] = result.log_evidence
    return attrs
