"""Models, data and references that several tests of expectation propagation share."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats

from adfpp import EP
from adfpp.distributions import Probit

Array = Any
sample: Callable[..., Any] = numpyro.sample


def linear(x: Array, y: Array | None = None) -> None:
    """Linear regression with known noise."""
    w = sample("w", dist.Normal(0.5, 2.0).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        sample("y", dist.Normal(x @ w, 0.7), obs=y)


def probit(x: Array, y: Array | None = None) -> None:
    """Probit regression."""
    w = sample("w", dist.Normal(0, 2.0).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        sample("y", Probit(x @ w), obs=y)


def logistic(x: Array, y: Array | None = None, scale: float = 2.5) -> None:
    """Logistic regression."""
    w = sample("w", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def clutter(y: Array) -> None:
    """A location among outliers: rows that say little have sites of negative precision."""
    mu = sample("mu", dist.Normal(0, 10))
    parts = [dist.Normal(mu, 1.0), dist.Normal(0.0, 10.0)]
    with numpyro.plate("rows", y.shape[0]):
        sample("y", dist.MixtureGeneral(dist.Categorical(probs=jnp.array([0.5, 0.5])), parts), obs=y)


def data(rows: int = 40, columns: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Design, real and binary responses."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns))
    field = x @ np.linspace(1.0, -1.0, columns)
    return x, field + 0.7 * rng.normal(size=rows), (field + rng.logistic(size=rows) > 0).astype(int)


def run(
    model: Any, *args: Any, key: int = 0, state: Any = None, prior: Any = None, of: Any = None, **options: Any
) -> Any:
    """A run without a progress bar; the model's keyword arguments are given as ``of``."""
    given = {} if of is None else of
    return EP(model, **options).run(jax.random.key(key), *args, state=state, prior=prior, progress_bar=False, **given)


def moments(result: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of θ."""
    mean, scale = (np.asarray(a) for a in result.state.belief)
    return mean, scale @ scale.T if scale.ndim == 2 else np.diag(np.broadcast_to(scale**2, mean.shape))


def exact_linear(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """The textbook's posterior and evidence of ``linear``."""
    n, d = x.shape
    precision = np.eye(d) / 4.0 + x.T @ x / 0.49
    mean = np.linalg.solve(precision, x.T @ y / 0.49 + 0.5 * np.ones(d) / 4.0)
    normal: Any = stats.multivariate_normal
    marginal = normal(x @ (0.5 * np.ones(d)), 4.0 * x @ x.T + 0.49 * np.eye(n))
    return mean, np.linalg.inv(precision), float(marginal.logpdf(y))


def sorted_stream() -> tuple[Any, ...]:
    rng = np.random.default_rng(2)
    x = np.column_stack([np.ones(3000), rng.normal(size=(3000, 3))])
    y = (x @ [0.3, 1.0, -1.0, 0.5] + rng.logistic(size=3000) > 0).astype(int)
    order = np.argsort(y, kind="stable")
    return logistic, (x[order],), {"y": y[order]}


def _battery() -> dict[str, tuple[Any, ...]]:
    rng = np.random.default_rng(4)
    x = np.column_stack([np.ones(64), rng.normal(size=(64, 3))])
    y = (x[:, 1] + rng.logistic(size=64) > 0).astype(int)
    near = np.column_stack([x[:, :3], x[:, 1] + 1e-6 * rng.normal(size=64)])
    constant = np.column_stack([x[:, :2], np.zeros(64), np.full(64, 3.0)])
    outliers = np.concatenate([2.0 + rng.normal(size=30), 10.0 * rng.normal(size=32), [40.0, -35.0]])
    return {
        "separable": (logistic, (x,), {"y": (x[:, 1] > 0).astype(int)}),
        "separable, prior sd 100": (logistic, (x,), {"y": (x[:, 1] > 0).astype(int), "scale": 100.0}),
        "duplicated rows": (logistic, (np.tile(x[:2], (32, 1)),), {"y": np.tile(y[:2], 32)}),
        "near-collinear columns": (logistic, (near,), {"y": y, "scale": 100.0}),
        "a constant column": (logistic, (constant,), {"y": y, "scale": 100.0}),
        "negative sites": (clutter, (outliers,), {}),
    }


BATTERY = _battery()


def mean_and_sd(result: Any) -> tuple[np.ndarray, np.ndarray]:
    mean, covariance = moments(result)
    return mean, np.sqrt(np.diag(covariance))
