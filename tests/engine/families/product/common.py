"""Models and references that several tests of products share."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import special

import adfpp

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def folded(model: Callable[..., Any], family: Any, *args: Any, **kwargs: Any) -> Any:
    """One pass of ADF."""
    return adfpp.ADF(model, family=family).run(KEY, *args, progress_bar=False, **kwargs)


class Conjugate(NamedTuple):
    """A conjugate model, its data, and Bayes' answer: natural parameters and log evidence."""

    model: Callable[..., Any]
    family: str
    y: np.ndarray
    natural: np.ndarray
    evidence: float


def plate(prior: Any, likelihood: Callable[[Any], Any]) -> Callable[..., Any]:
    def model(y: Any) -> None:
        theta = numpyro.sample("theta", prior)
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", likelihood(theta), obs=y)

    return model


def _coin() -> Conjugate:
    y = RNG.integers(0, 2, 40)
    a, b = 0.5 + y.sum(), 3.0 + (1 - y).sum()
    model = plate(dist.Beta(0.5, 3.0), lambda p: dist.Bernoulli(probs=p))
    return Conjugate(model, "beta", y, np.array([a, b]), special.betaln(a, b) - special.betaln(0.5, 3.0))


def _binomial() -> Conjugate:
    y = RNG.binomial(7, 0.8, 40)
    a, b = 2.0 + y.sum(), 3.0 + (7 - y).sum()
    model = plate(dist.Beta(2.0, 3.0), lambda p: dist.Binomial(7, probs=p))
    evidence = special.betaln(a, b) - special.betaln(2.0, 3.0) + np.log(special.comb(7, y)).sum()
    return Conjugate(model, "beta", y, np.array([a, b]), evidence)


def _counts() -> Conjugate:
    y = RNG.poisson(4.0, 40)
    a, b = 2.0 + y.sum(), 0.3 + len(y)
    model = plate(dist.Gamma(2.0, 0.3), dist.Poisson)
    evidence = special.gammaln(a) - a * np.log(b) - special.gammaln(2.0) + 2.0 * np.log(0.3)
    return Conjugate(model, "gamma", y, np.array([a, b]), evidence - special.gammaln(y + 1.0).sum())


def _waiting() -> Conjugate:
    y = RNG.exponential(2.0, 40)
    a, b = 1.0 + len(y), 0.7 + y.sum()
    model = plate(dist.Exponential(0.7), dist.Exponential)  # an exponential prior is a gamma
    evidence = special.gammaln(a) - a * np.log(b) + np.log(0.7)
    return Conjugate(model, "gamma", y, np.array([a, b]), evidence)


def _variance() -> Conjugate:
    y = RNG.normal(1.0, 2.0, 40)
    a, b = 2.0 + 0.5 * len(y), 3.0 + 0.5 * ((y - 1.0) ** 2).sum()
    model = plate(dist.InverseGamma(2.0, 3.0), lambda v: dist.Normal(1.0, jnp.sqrt(v)))
    evidence = special.gammaln(a) - a * np.log(b) + 2.0 * np.log(3.0) - 0.5 * len(y) * np.log(2.0 * np.pi)
    return Conjugate(model, "inverse_gamma", y, np.array([a, b]), evidence)


def _die() -> Conjugate:
    y = RNG.integers(0, 3, 40)
    start = np.array([1.0, 0.4, 3.0])
    alpha = start + np.bincount(y)
    model = plate(dist.Dirichlet(jnp.array(start)), lambda p: dist.Categorical(probs=p))

    def log_beta(a: np.ndarray) -> float:
        return special.gammaln(a).sum() - special.gammaln(a.sum())

    return Conjugate(model, "dirichlet", y, alpha, log_beta(alpha) - log_beta(start))


CONJUGATE = {f.__name__[1:]: f() for f in (_coin, _binomial, _counts, _waiting, _variance, _die)}


def signs(n: int) -> np.ndarray:
    """All vectors of n signs."""
    return np.array(list(itertools.product([-1.0, 1.0], repeat=n)))


def bernoulli(p: Any) -> Any:
    return dist.Bernoulli(probs=p)


def categorical(*p: float) -> Any:
    return dist.Categorical(probs=jnp.array(p))
