"""Random starts."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adfpp
from adfpp.learn.vmp.start import initial_values
from tests.learn.vmp import models
from tests.learn.vmp.models import KEY, parts_of


@pytest.mark.slow
def test_starts_find_the_clusters_and_rows_their_cluster() -> None:
    y = models.clusters()
    vmp = adfpp.VMP(models.mixture)
    result = vmp.run(KEY, y, progress_bar=False)
    mean = np.asarray(vmp.get_posterior(result).mean()["mu"])
    nearest = np.abs(mean[:, None] - np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])).sum(-1).argmin(1)
    assert sorted(nearest) == [0, 1, 2]
    assert len(result.info.starts) == 4 and result.info.bound[-1] >= result.info.starts.max() - 1e-9
    shares = vmp.get_local(result, y)["z"]
    parts = parts_of(vmp, result.state)
    gamma, scale = np.asarray(parts["tau"]), np.asarray(parts["mu"].scale)
    book = models.TextbookMixture(
        y, np.asarray(parts["weights"])[0], mean, (scale**2).reshape(3, 2), gamma[:, 0], gamma[:, 1]
    )
    np.testing.assert_allclose(shares, book.shares(), atol=1e-9)


def test_start_of_vague_priors_is_moderate_and_random() -> None:
    def model(y: Any) -> None:
        mu: Any = numpyro.sample("mu", dist.Normal(0.0, 1e6).expand([3]).to_event(1))
        numpyro.sample("tau", dist.Gamma(1e-3, 1e-3))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(mu, 1.0).to_event(1), obs=y)

    vmp = adfpp.VMP(model)
    state = vmp.init(KEY, np.zeros((4, 3)))
    program = vmp.get_posterior(state).program
    one, other = (initial_values(program, [], jax.random.key(seed)) for seed in (1, 2))
    means = [np.asarray(values[0].mean) for values in (one, other)]
    assert np.abs(means).max() < 10.0 and np.abs(means[0] - means[1]).min() > 1e-3
    np.testing.assert_allclose(one[1], [[3.0, 3.0]])  # a mean of 1, because quartiles of the prior do not tell a scale
