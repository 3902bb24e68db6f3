"""The models whose posteriors are checked, with simulated data: some for calibration, others for the report."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from adfpp.distributions import Probit

Data = dict[str, Any]


@dataclass(frozen=True)
class Simulated:
    """A model, and a function that simulates its data.

    Attributes:
        name: The name in the tables.
        model: The NumPyro model; its observed argument is called y.
        draw: Simulates the data of n rows from a generator, with a factor ``(n,)`` for the effects in each row, which
            is 1 for a model that does not drift.
        rows: Number of rows.
        spoil: Changes an observed value into an outlier that is possible under the model; None if there is none.
        accept: NUTS's target acceptance probability.
    """

    name: str
    model: Callable[..., None]
    draw: Callable[[np.random.Generator, int, np.ndarray], Data]
    rows: int
    spoil: Callable[[np.random.Generator, np.ndarray], np.ndarray] | None = None
    accept: float = 0.8


def _columns(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    x = rng.normal(size=(n, k))
    x[:, 1:] += 0.4 * x[:, :1]  # correlated columns
    return x


def _weights(k: int, sd: float = 1.0) -> Any:
    return numpyro.sample("w", dist.Normal(0, sd).expand([k]).to_event(1))


def _scaled(k: int) -> np.ndarray:
    return np.linspace(1.0, -0.6, k)


# ------------------------------------------------------------------------------------------------ for calibration


def logistic(x: Any, y: Any = None) -> None:
    """A logistic regression with an intercept."""
    w: Any = _weights(x.shape[-1], 2.5)
    b: Any = numpyro.sample("b", dist.Normal(0, 2.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)


def _logistic(rng: np.random.Generator, n: int, effect: np.ndarray) -> Data:
    x = _columns(rng, n, 4)
    return {"x": x, "y": (rng.random(n) < 1 / (1 + np.exp(-effect * (x @ _scaled(4)) - 0.3))).astype(int)}


def poisson(x: Any, y: Any = None) -> None:
    """A Poisson regression with a log link."""
    w: Any = _weights(x.shape[-1])
    b: Any = numpyro.sample("b", dist.Normal(0, 2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(x @ w + b)), obs=y)


def _poisson(rng: np.random.Generator, n: int, effect: np.ndarray) -> Data:
    x = _columns(rng, n, 3)
    return {"x": x, "y": rng.poisson(np.exp(effect * (x @ _scaled(3)) * 0.5 + 0.5))}


def robust(x: Any, y: Any = None) -> None:
    """A regression with Student-t noise of unknown scale."""
    w: Any = _weights(x.shape[-1])
    s: Any = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.StudentT(4.0, x @ w, s), obs=y)


def _robust(rng: np.random.Generator, n: int, effect: np.ndarray) -> Data:
    x = _columns(rng, n, 3)
    return {"x": x, "y": effect * (x @ _scaled(3)) + 0.7 * rng.standard_t(4, n)}


def groups_centred(group: Any, groups: int, y: Any = None) -> None:
    """Normal data in groups with a common mean and a scale between them, centred."""
    mu: Any = numpyro.sample("mu", dist.Normal(0, 3))
    tau: Any = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", groups):
        a: Any = numpyro.sample("a", dist.Normal(mu, tau))
    with numpyro.plate("rows", group.shape[0]):
        numpyro.sample("y", dist.Normal(a[group], 1.0), obs=y)


def _groups(rng: np.random.Generator, n: int, effect: np.ndarray) -> Data:
    group = rng.integers(0, 8, n)
    return {"group": group, "groups": 8, "y": 0.5 + effect * (0.7 * rng.normal(size=8))[group] + rng.normal(size=n)}


def mixture(y: Any) -> None:
    """A mixture of two normal distributions with known scales, whose order is fixed by the prior."""
    mean: Any = numpyro.sample("mean", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
    share: Any = numpyro.sample("share", dist.Beta(2, 2))
    with numpyro.plate("rows", y.shape[0]):
        parts = dist.Normal(mean, 1.0)
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(jnp.stack([share, 1 - share])), parts), obs=y)


def _mixture(rng: np.random.Generator, n: int, effect: np.ndarray) -> Data:
    second = rng.random(n) < 0.6
    return {"y": effect * np.where(second, 1.2, -1.2) + rng.normal(size=n)}


# ------------------------------------------------------------------------------------------------ for the report


def probit(x: Any, y: Any = None) -> None:
    """A probit regression."""
    w = _weights(x.shape[-1], 2.0)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x @ w), obs=y)


def _probit(rng: np.random.Generator, n: int, effect: np.ndarray) -> Data:
    x = _columns(rng, n, 5)
    return {"x": x, "y": (effect * (x @ _scaled(5)) + rng.normal(size=n) > 0).astype(int)}


def cloglog(x: Any, y: Any = None) -> None:
    """Events with a complementary log-log link."""
    w: Any = _weights(x.shape[-1], 1.5)
    b: Any = numpyro.sample("b", dist.Normal(0, 1.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=-jnp.expm1(-jnp.exp(x @ w + b))), obs=y)


def _cloglog(rng: np.random.Generator, n: int, effect: np.ndarray) -> Data:
    x = _columns(rng, n, 2)
    p = 1 - np.exp(-np.exp(effect * (x @ np.array([0.8, -0.5])) - 0.7))
    return {"x": x, "y": (rng.random(n) < p).astype(int)}


def negative_binomial(x: Any, y: Any = None) -> None:
    """Overdispersed counts."""
    w: Any = _weights(x.shape[-1])
    b: Any = numpyro.sample("b", dist.Normal(0, 2))
    phi: Any = numpyro.sample("phi", dist.Gamma(2.0, 0.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(x @ w + b), phi), obs=y)


def _negative_binomial(rng: np.random.Generator, n: int, effect: np.ndarray) -> Data:
    x = _columns(rng, n, 2)
    rate = np.exp(effect * (x @ np.array([0.6, -0.4])) + 1.0)
    return {"x": x, "y": rng.poisson(rate * rng.gamma(2.0, 0.5, n))}


def gamma(x: Any, y: Any = None) -> None:
    """Positive values with a log link and an unknown shape."""
    w: Any = _weights(x.shape[-1])
    b: Any = numpyro.sample("b", dist.Normal(0, 2))
    shape: Any = numpyro.sample("shape", dist.LogNormal(0.5, 1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Gamma(shape, shape * jnp.exp(-(x @ w + b))), obs=y)


def _gamma(rng: np.random.Generator, n: int, effect: np.ndarray) -> Data:
    x = _columns(rng, n, 2)
    return {"x": x, "y": np.exp(effect * (x @ np.array([0.5, -0.3])) + 0.5) * rng.gamma(2.0, 0.5, n)}


def linear(x: Any, y: Any = None) -> None:
    """A linear regression with unknown noise."""
    w: Any = _weights(x.shape[-1])
    s: Any = numpyro.sample("sigma", dist.Exponential(1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, s), obs=y)


def _linear(rng: np.random.Generator, n: int, effect: np.ndarray) -> Data:
    x = _columns(rng, n, 6)
    return {"x": x, "y": effect * (x @ _scaled(6)) + 0.8 * rng.normal(size=n)}


def poisson_groups(group: Any, groups: int, x: Any, y: Any = None) -> None:
    """Counts in groups whose log rates vary."""
    mu: Any = numpyro.sample("mu", dist.Normal(0, 2))
    tau: Any = numpyro.sample("tau", dist.HalfNormal(1))
    b: Any = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("groups", groups):
        a: Any = numpyro.sample("a", dist.Normal(mu, tau))
    with numpyro.plate("rows", group.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(a[group] + b * x)), obs=y)


def _poisson_groups(rng: np.random.Generator, n: int, effect: np.ndarray) -> Data:
    group, x = rng.integers(0, 12, n), rng.normal(size=n)
    rate = np.exp(0.8 + (0.5 * rng.normal(size=12))[group] + 0.5 * effect * x)
    return {"group": group, "groups": 12, "x": x, "y": rng.poisson(rate)}


def means_noncentred(group: Any, groups: int, y: Any = None) -> None:
    """Normal data in few groups, non-centred, with little information about the scale between them."""
    mu: Any = numpyro.sample("mu", dist.Normal(0, 3))
    tau: Any = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", groups):
        z: Any = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", group.shape[0]):
        numpyro.sample("y", dist.Normal((mu + tau * z)[group], 1.5), obs=y)


def _means(rng: np.random.Generator, n: int, effect: np.ndarray) -> Data:
    group = rng.integers(0, 6, n)
    return {
        "group": group,
        "groups": 6,
        "y": 1.0 + effect * (0.3 * rng.normal(size=6))[group] + 1.5 * rng.normal(size=n),
    }


def spread(x: Any, y: Any = None) -> None:
    """A normal distribution whose mean and log scale depend on a covariate."""
    a: Any = numpyro.sample("a", dist.Normal(0, 2).expand([2]).to_event(1))
    c: Any = numpyro.sample("c", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(a[0] + a[1] * x, jnp.exp(c[0] + c[1] * x)), obs=y)


def _spread(rng: np.random.Generator, n: int, effect: np.ndarray) -> Data:
    x = rng.normal(size=n)
    return {"x": x, "y": 0.5 + effect * x + np.exp(-0.3 + 0.3 * x) * rng.normal(size=n)}


def _far(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    return y + 6.0 * rng.choice([-1.0, 1.0], len(y))


def _flipped(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    return 1 - y


def _large(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    return (4 * y + 5).astype(y.dtype)


CALIBRATION = (
    Simulated("logistic", logistic, _logistic, 150, _flipped),
    Simulated("Poisson", poisson, _poisson, 200, _large),
    Simulated("Student-t", robust, _robust, 200, _far),
    Simulated("groups, centred", groups_centred, _groups, 120, _far, 0.95),
    Simulated("mixture", mixture, _mixture, 150, _far),
)
REPORT = (
    Simulated("probit", probit, _probit, 300, _flipped),
    Simulated("cloglog", cloglog, _cloglog, 120, _flipped),
    Simulated("negative binomial", negative_binomial, _negative_binomial, 200, _large),
    Simulated("gamma", gamma, _gamma, 250, lambda rng, y: 8.0 * y),
    Simulated("linear", linear, _linear, 400, _far),
    Simulated("Poisson in groups", poisson_groups, _poisson_groups, 300, _large, 0.95),
    Simulated("means, non-centred", means_noncentred, _means, 90, _far, 0.97),
    Simulated("normal, log scale", spread, _spread, 200, _far),
)
