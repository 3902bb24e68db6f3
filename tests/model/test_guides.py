"""Draws and densities of a NumPyro guide."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats

from adfpp.model import guide_draws


def test_draws_come_with_their_density() -> None:
    """Of all that the guide draws, its factors included, at the parameters given."""

    def guide(scale: float) -> None:
        loc = numpyro.param("loc", 0.0)
        a = numpyro.sample("a", dist.Normal(loc, scale))
        numpyro.sample("b", dist.LogNormal(a, 0.5).expand([2]).to_event(1))
        numpyro.factor("weight", -3.0)

    drawn, log_density = guide_draws(guide, {"loc": 2.0}, jax.random.key(0), (0.1,), {}, 50)
    assert {name: a.shape for name, a in drawn.items()} == {"a": (50,), "b": (50, 2)}
    assert np.abs(drawn["a"].mean() - 2.0) < 5 * 0.1 / np.sqrt(50)
    log_b = stats.norm.logpdf(np.log(drawn["b"]), drawn["a"][:, None], 0.5) - np.log(drawn["b"])
    expected = stats.norm.logpdf(drawn["a"], 2.0, 0.1) + log_b.sum(1) - 3.0
    np.testing.assert_allclose(log_density, expected, rtol=1e-10)
