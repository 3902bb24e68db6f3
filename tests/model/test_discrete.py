"""Models with discrete latents: all their combinations, and densities at them."""

import itertools

import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats

from adfpp.model import Joint
from adfpp.model.discrete import combinations, discrete_latents, levels, listed, log_joint_of
from tests import models
from tests.model.common import SCALE, Array, X, Y, program, rows, sample

DATA = models.rows()


def test_all_combinations_of_a_discrete_model() -> None:
    """In every order; none beside a continuous latent, and none if there are too many."""
    read_as = program(models.signs, DATA.x, DATA.y)
    assert [latent.name for latent in discrete_latents(read_as)] == ["s"]
    assert levels(read_as) == [(0.0, 1.0)] * 3
    grid = combinations(read_as)
    assert grid is not None
    assert {tuple(row) for row in grid} == set(itertools.product([0.0, 1.0], repeat=3))
    assert combinations(read_as, most=7) is None

    def mixed(x: Array, y: Array) -> None:
        c, w = sample("c", dist.Bernoulli(0.5)), sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        with rows(x):
            sample("y", dist.Normal(x @ w + c, SCALE), obs=y)

    both = program(mixed, X, Y)
    assert levels(both) == [(0.0, 1.0), None, None]
    assert combinations(both) is None


def test_the_joint_at_all_combinations() -> None:
    """Prior and likelihood of some rows, by SciPy."""
    read_as = program(models.signs, DATA.x, DATA.y)
    grid, chosen = combinations(read_as), np.array([0, 2, 5])
    assert grid is not None
    got = log_joint_of(Joint(read_as, (DATA.x, DATA.y), {}), grid, chosen)
    fields = (2.0 * grid - 1.0) @ DATA.x[chosen].T
    logs = stats.norm.logcdf(np.where(DATA.y[chosen] == 1, fields, -fields))
    np.testing.assert_allclose(got, 3 * np.log(0.5) + logs.sum(1), rtol=1e-10)


def test_events_list_their_values() -> None:
    """NumPyro's Gibbs kernels ask a latent for its values, which an event of several does not give."""

    def model() -> None:
        numpyro.sample("s", dist.Bernoulli(0.5).expand([3]).to_event(1))

    seen = numpyro.handlers.trace(numpyro.handlers.seed(listed(model), 0)).get_trace()
    np.testing.assert_array_equal(seen["s"]["fn"].enumerate_support(expand=False).reshape(-1), [0, 1])
