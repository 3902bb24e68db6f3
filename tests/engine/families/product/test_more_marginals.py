"""Tilted marginals of the parts of a product: which components a row touches, and what it makes of them."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats

import adfpp
from adfpp.distributions import Probit

GROUP = np.array([2, 0, 1, 2, 0, 2])
X = np.array([-1.5, 0.7, -0.4, 1.1, -2.0, -0.3])
Y = np.array([1, 0, 1, 1, 0, 0])


def switches(x: Any, group: Any, y: Any = None) -> None:
    """One switch for each group: a row reads the switch of its own group alone."""
    on: Any = numpyro.sample("on", dist.Bernoulli(0.4).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x * on[group]), obs=y)


def test_a_row_learns_of_the_component_that_it_touches_whatever_the_sign_of_its_effect() -> None:
    """The groups share no row, so that Bayes' rule for each of them by itself is the exact posterior."""
    adf = adfpp.ADF(switches)
    result = adf.run(jax.random.key(0), X, GROUP, y=Y, progress_bar=False)
    off, on = np.full(len(Y), np.log(0.5)), stats.norm.logcdf((2 * Y - 1) * X)
    log_odds, evidence = np.empty(3), 0.0
    for g in range(3):
        both = np.log([0.6, 0.4]) + [off[g == GROUP].sum(), on[g == GROUP].sum()]
        log_odds[g], evidence = both[1] - both[0], evidence + np.logaddexp(*both)
    np.testing.assert_allclose(result.posterior.mean()["on"], 1 / (1 + np.exp(-log_odds)), rtol=1e-10)
    np.testing.assert_allclose(np.sum(result.info.log_z), evidence, rtol=1e-10)
