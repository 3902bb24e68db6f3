"""Models and helpers that the tests of Gaussian families share."""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist

from adfpp.distributions import Probit
from adfpp.engine.families import Belief


def step(x: Any, y: Any = None, noise: float = 0.0) -> None:
    """A perceptron without intercept."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x @ w, noise), obs=y)


def covariance(belief: Belief) -> np.ndarray:
    """C = S Sᵀ."""
    return np.asarray(belief.scale @ belief.scale.T)
