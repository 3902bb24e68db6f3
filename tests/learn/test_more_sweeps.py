"""The evidence of EP where the prior has factors of its own."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import adfpp


def unknown_scale(x: Any, y: Any = None) -> None:
    """The prior of ``w`` depends on another latent: it is a factor, and has a site."""
    tau = numpyro.sample("tau", dist.LogNormal(-0.5, 0.5))
    w: Any = numpyro.sample("w", dist.Normal(0.5, tau))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(w * x, 0.5), obs=y)


def test_the_evidence_counts_the_factors_of_the_prior() -> None:
    """Against a sum over a grid of (log tau, w)."""
    y = np.array([1.3, 0.8, 1.9, 1.1])
    result = adfpp.EP(unknown_scale).run(jax.random.key(0), np.ones(4), y=y, progress_bar=False)
    log_tau, w = np.linspace(-3.5, 2.5, 601), np.linspace(-3.0, 5.0, 1601)
    joint = (
        stats.norm.logpdf(log_tau, -0.5, 0.5)[:, None]
        + stats.norm.logpdf(w, 0.5, np.exp(log_tau)[:, None])
        + stats.norm.logpdf(y[:, None], w, 0.5).sum(0)
    )
    evidence = np.log(np.exp(joint).sum() * (log_tau[1] - log_tau[0]) * (w[1] - w[0]))
    assert result.info.converged and list(result.info.priors.values()) == [adfpp.Status.OK]
    # the only factor that is not Gaussian has an exact cavity distribution, so that EP's estimate is exact
    assert result.log_evidence == pytest.approx(evidence, abs=1e-6)
