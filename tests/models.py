"""Small models and data with fixed shapes, shared by all tests so that each is traced and compiled once a worker.

Every model takes ``x`` of shape ``(ROWS, 3)`` unless its docstring says otherwise. A test that needs another shape or
another model writes its own, and pays for the compilation.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from adfpp.distributions import Probit

ROWS, SIZE, GROUPS = 64, 3, 4


class Data(NamedTuple):
    """Arguments of one of the models: ``model(x, y=y)``, or ``model(x, group, y=y)`` for ``groups``."""

    x: np.ndarray
    y: np.ndarray
    group: np.ndarray


def rows(seed: int = 1, count: int = ROWS) -> Data:
    """Features, binary labels of a logistic teacher, and the group of each row."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, SIZE))
    y = (x @ [1.0, -0.5, 0.25] + rng.logistic(size=count) > 0).astype(int)
    return Data(x, y, np.arange(count) % GROUPS)


def values(seed: int = 1, count: int = ROWS) -> Data:
    """As ``rows``, with real values: a linear teacher and noise of standard deviation 0.5."""
    x, _, group = rows(seed, count)
    rng = np.random.default_rng(seed + 1)
    return Data(x, x @ [1.0, -0.5, 0.25] + 0.5 * rng.normal(size=count), group)


def counts(seed: int = 1, count: int = ROWS) -> Data:
    """As ``rows``, with counts of a log-linear teacher."""
    x, _, group = rows(seed, count)
    rng = np.random.default_rng(seed + 1)
    return Data(x, rng.poisson(np.exp(x @ [0.5, -0.25, 0.125])), group)


def _weights() -> Any:
    return numpyro.sample("w", dist.Normal(0, 1).expand([SIZE]).to_event(1))


def logistic(x: Any, y: Any = None) -> None:
    """Logistic regression: one-dimensional quadrature."""
    w = _weights()
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def probit(x: Any, y: Any = None) -> None:
    """Probit regression: a closed form."""
    w = _weights()
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x @ w), obs=y)


def linear(x: Any, y: Any = None) -> None:
    """Linear regression with known noise: exact."""
    w = _weights()
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 0.5), obs=y)


def unknown_noise(x: Any, y: Any = None) -> None:
    """Linear regression with unknown noise: Gaussian given the log scale."""
    w = _weights()
    sigma = numpyro.sample("sigma", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, sigma), obs=y)


def poisson(x: Any, y: Any = None) -> None:
    """Poisson regression."""
    w = _weights()
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(x @ w)), obs=y)


def groups(x: Any, group: Any, y: Any = None) -> None:
    """A centred hierarchy of intercepts: prior factors that couple latents."""
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    tau = numpyro.sample("tau", dist.LogNormal(-0.5, 0.5))
    with numpyro.plate("groups", GROUPS):
        a: Any = numpyro.sample("a", dist.Normal(mu, tau))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=a[group] + x[:, 0]), obs=y)


def clicks(shown: Any, clicked: Any = None) -> None:
    """A rate, conjugate in its native space. ``shown`` and ``clicked`` are ``(ROWS,)`` whole numbers."""
    rate = numpyro.sample("rate", dist.Beta(1, 1))
    with numpyro.plate("days", shown.shape[0]):
        numpyro.sample("clicked", dist.Binomial(shown, probs=rate), obs=clicked)


def signs(x: Any, y: Any = None) -> None:
    """Binary weights behind a probit link: discrete latents."""
    s: Any = numpyro.sample("s", dist.Bernoulli(0.5).expand([SIZE]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x @ (2.0 * s - 1.0)), obs=y)
