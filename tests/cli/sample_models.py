"""Models of the tests of the command line: one function each, so that what is compiled for them is shared."""

from typing import Any

import numpyro
import numpyro.distributions as dist


def model(x: Any, y: Any = None, noise: float = 1.0) -> None:
    """Linear regression: every learner is exact."""
    w: Any = numpyro.sample("w", dist.Normal(0, 2).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, noise), obs=y)


def groups(g: Any, n_groups: int, y: Any = None) -> None:
    """A mean for each group."""
    with numpyro.plate("groups", n_groups):
        z: Any = numpyro.sample("z", dist.Normal(0, 2))
    with numpyro.plate("rows", g.shape[0]):
        numpyro.sample("y", dist.Normal(z[g], 1.0), obs=y)


def coin(y: Any) -> None:
    """A conjugate model of a probability."""
    p = numpyro.sample("p", dist.Beta(2.0, 3.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)
