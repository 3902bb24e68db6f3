"""Runs of product families whose posteriors are known exactly, for tests of what comes after learning.

The conftest of a folder imports the fixtures that its tests use.
"""

import itertools
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

import adfpp
from adfpp.judge.compare import compare
from models import ising_perceptron

ISING_NOISE = 0.5


class Enumerated(NamedTuple):
    """A posterior over bits, enumerated."""

    bits: np.ndarray
    log_weights: np.ndarray
    log_lik: np.ndarray
    log_evidence: float

    @property
    def mean(self) -> np.ndarray:
        return np.exp(self.log_weights) @ self.bits


def enumerated(x: np.ndarray, y: np.ndarray) -> Enumerated:
    bits = np.array(list(itertools.product([0.0, 1.0], repeat=x.shape[1])))
    log_lik = stats.norm.logcdf((2 * y - 1) * ((2 * bits - 1) @ x.T) / ISING_NOISE)  # (M, rows)
    log_joint = log_lik.sum(1) + x.shape[1] * np.log(0.5)
    log_evidence = float(np.asarray(logsumexp(log_joint)))
    return Enumerated(bits, log_joint - log_evidence, log_lik, log_evidence)


def beta_bernoulli(y: Any) -> None:
    p: Any = numpyro.sample("p", dist.Beta(2.0, 3.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)


@pytest.fixture(scope="session")
def ising() -> dict[str, Any]:
    data, _ = ising_perceptron.simulate(jax.random.key(0), 15, num_features=6, noise=ISING_NOISE)
    return data


@pytest.fixture(scope="session")
def exact_ising(ising: Any) -> Enumerated:
    return enumerated(ising["x"], ising["y"])


@pytest.fixture(scope="session")
def ising_learners() -> dict[str, Any]:
    return {"adf": adfpp.ADF(ising_perceptron.model), "ep": adfpp.EP(ising_perceptron.model)}


@pytest.fixture(scope="session")
def ising_results(ising_learners: Any, ising: Any) -> dict[str, Any]:
    return {
        name: learner.run(jax.random.key(0), progress_bar=False, **ising) for name, learner in ising_learners.items()
    }


@pytest.fixture(scope="session")
def ising_comparison(ising_learners: Any, ising: Any) -> Any:
    return compare(jax.random.key(1), ising_learners, progress_bar=False, num_samples=2000, **ising)


@pytest.fixture(scope="session")
def coins() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 2, 20)


@pytest.fixture(scope="session")
def beta(coins: Any) -> Any:
    return adfpp.ADF(beta_bernoulli, family={"p": "beta"}).run(jax.random.key(0), coins, progress_bar=False)


class Pair(NamedTuple):
    """A rate in its native space beside a Gaussian, both conjugate and independent of one another."""

    learner: Any
    data: dict[str, Any]
    result: Any
    rate: Any
    mean: Any

    def draws(self) -> dict[str, np.ndarray]:
        """Draws from the exact posterior."""
        rng = np.random.default_rng(5)
        return {"p": self.rate.rvs((4, 600), rng), "w": self.mean.rvs((4, 600), rng)}


def rate_and_mean(y: Any, z: Any) -> None:
    p: Any = numpyro.sample("p", dist.Beta(2.0, 3.0))
    w: Any = numpyro.sample("w", dist.Normal(0.0, 2.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)
        numpyro.sample("z", dist.Normal(w, 1.0), obs=z)


@pytest.fixture(scope="session")
def pair(coins: Any) -> Pair:
    z = 0.5 + np.random.default_rng(4).normal(size=len(coins))
    data = {"y": coins, "z": z}
    adf = adfpp.ADF(rate_and_mean, family={"p": "beta"})
    result = adf.run(jax.random.key(0), progress_bar=False, snapshots=len(z), **data)
    rate: Any = stats.beta(2 + coins.sum(), 3 + len(coins) - coins.sum())
    precision = 0.25 + len(z)
    return Pair(adf, data, result, rate, stats.norm(z.sum() / precision, precision**-0.5))
