"""Models and data that several tests of learners share."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

TRACES = {"count": 0}


def logistic(x: Any, y: Any = None) -> None:
    """Logistic regression; counts how often it is traced."""
    TRACES["count"] += 1
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 3))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)


def labels(seed: int, n: int = 200, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A small classification stream."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, (x @ np.array([1.0, -1.0, 0.5])[:d] + rng.logistic(size=n) > 0).astype(int)


def equal(a: Any, b: Any) -> bool:
    """Bit for bit."""

    def strip(s: Any) -> Any:
        return s._replace(rng_key=jax.random.key_data(s.rng_key))

    return all(np.array_equal(p, q) for p, q in zip(jax.tree.leaves(strip(a)), jax.tree.leaves(strip(b)), strict=True))
