"""Leave-one-out cross-validation from exported draws, with importance weights for draws of an approximation."""

import warnings
from typing import Any

import numpy as np
from scipy.special import logsumexp

from adfpp.learn.importance import left_out
from adfpp.show import arviz_versions
from adfpp.show.groups import ExportWarning


def loo(data: Any, var_name: str | None = None) -> Any:
    """Leave-one-out cross-validation from draws of an approximate posterior, in ArviZ's own form.

    If row i is left out, the weight of a draw θ is p(θ | y)/q(θ), divided by p(yᵢ | θ). ArviZ's ``loo`` omits the first
    ratio, which is right for MCMC and wrong here. ArviZ 1.x's ``loo_approximate_posterior`` gives the same result.

    Args:
        data: Data of ``to_arviz``, or any data with ``log_likelihood``, and ``log_p``, ``log_q`` in ``sample_stats``.
        var_name: Name of the observation; needed if there are several.

    Returns:
        ``ELPDData`` with pointwise values, for ``arviz.compare``, ``arviz.plot_khat`` and ``print``.
    """
    have = arviz_versions.groups(data)
    if "log_likelihood" not in have:
        raise ValueError("loo needs the group log_likelihood: export with log_likelihood=True.")
    stats = arviz_versions.group(data, "sample_stats") if "sample_stats" in have else {}
    if "log_p" not in stats or "log_q" not in stats:
        raise ValueError(
            "loo needs log_p and log_q in sample_stats. to_arviz writes them, except where parameters move between "
            "rows (dynamics): there, score the one-step-ahead predictions, result.info.log_z. For draws of MCMC use "
            "arviz.loo."
        )
    logs = arviz_versions.group(data, "log_likelihood")
    names = list(logs.data_vars)
    if var_name is None and len(names) > 1:
        raise ValueError(f"There are several observations, {names}: choose one with var_name.")
    name = names[0] if var_name is None else var_name
    if name not in names:
        raise ValueError(f"There is no observation {name!r}; there are {names}.")
    sample = list(arviz_versions.SAMPLE_DIMS)
    log_lik = logs[name].transpose(..., *sample)
    ratio = (stats["log_p"] - stats["log_q"]).transpose(*sample).values.reshape(-1)
    values = log_lik.values.reshape(*log_lik.shape[:-2], -1).astype(np.float64)
    bad = ~np.isfinite(values).all(-1)
    if bad.any() or not np.isfinite(ratio).all():
        where = "log_p" if not bad.any() else f"the log-likelihood of {int(bad.sum())} of {bad.size} observations"
        raise ValueError(
            f"loo: {where} is not finite, as for rows that were refused. Drop them from the data and export again."
        )
    lppd = logsumexp(values, axis=-1) - np.log(values.shape[-1])
    good_k = min(1.0 - 1.0 / np.log10(values.shape[-1]), 0.7) if values.shape[-1] > 1 else 0.7
    elpd, k, good = left_out(values, ratio, good_k)
    if not good.all():
        warnings.warn(
            f"Pareto k is above {good_k:.2f} for {int((~good).sum())} of {k.size} observations, and their weights are "
            "unequal: leave-one-out from this posterior is not reliable. If this is so for most of them, the posterior "
            "is too far from the true one; if it is so for a few, these rows are influential.",
            ExportWarning,
            stacklevel=2,
        )
    form = log_lik.isel(dict.fromkeys(sample, 0), drop=True)
    return arviz_versions.elpd_data(
        form.copy(data=elpd), form.copy(data=k), float((lppd - elpd).sum()), values.shape[-1], float(good_k)
    )
