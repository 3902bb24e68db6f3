"""Where rows fall among what was predicted of them."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import adfpp
from adfpp.judge.ranks import one_step_ahead
from adfpp.model import Joint

NOISE = 0.1


def level(x: Any, y: Any = None) -> None:
    """One unknown level: a row tells nearly all of it."""
    w: Any = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(w * x, NOISE), obs=y)


def counted(n: int, x: Any, y: Any = None) -> None:
    """The same with the number of rows as an argument."""
    w: Any = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", n):
        numpyro.sample("y", dist.Normal(w * x, NOISE), obs=y)


@pytest.mark.parametrize(("model", "args"), [(level, (np.ones(8),)), (counted, (8, np.ones(8)))])
def test_a_row_is_ranked_among_what_the_rows_before_it_predict(model: Any, args: tuple[Any, ...]) -> None:
    """Each row lies 1.5 standard deviations off, above and below in turn, by Bayes' rule for a Gaussian level."""
    mean, variance, y, log_z = 0.0, 1.0, np.empty(8), np.empty(8)
    for t in range(8):
        total = variance + NOISE**2
        y[t] = mean + 1.5 * (-1) ** t * np.sqrt(total)
        log_z[t] = stats.norm.logpdf(y[t], mean, np.sqrt(total))
        mean, variance = mean + variance / total * (y[t] - mean), variance * NOISE**2 / total
    adf = adfpp.ADF(model)
    state = adf.init(jax.random.key(0), *args, y=y)
    joint = Joint(adf.get_posterior(state).program, args, {"y": y})
    replay = one_step_ahead(adf, joint, jax.random.key(1), np.arange(8), None, 8, args, {"y": y})
    np.testing.assert_allclose(replay.log_z, log_z, rtol=1e-10)
    np.testing.assert_array_equal(replay.status, adfpp.Status.OK)
    # 200 replicas of each row: four standard errors of a probability
    below = stats.norm.cdf([1.5, -1.5] * 4)
    np.testing.assert_allclose(replay.ranked.ranks, below, atol=4 * np.sqrt(0.07 * 0.93 / 200))
