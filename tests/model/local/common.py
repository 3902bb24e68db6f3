"""What the tests of local latents share: models, the tilted moments of one row, and integrals by a grid."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions
import scipy.stats
from numpy.polynomial.hermite_e import hermegauss

import adfpp
from adfpp.engine.linalg import whiten
from adfpp.learn.adf import ADFResult
from adfpp.model import Program

KEY = jax.random.key(0)
RNG = np.random.default_rng(7)
ROWS = 6
X = RNG.normal(size=(ROWS, 2))
Y = RNG.normal(size=ROWS) + np.where(np.arange(ROWS) % 2, 2.0, -2.0)
COUNTS = np.array([0, 1, 3, 0, 7, 2])
PAIRS = RNG.normal(size=(ROWS, 2))

# what their type stubs do not know
Array = Any
dist: Any = numpyro.distributions
sample: Any = numpyro.sample
stats: Any = scipy.stats


def run(model: Callable[..., Any], *args: Any, **kwargs: Any) -> ADFResult:
    """One pass over the data."""
    return adfpp.ADF(model).run(KEY, *args, progress_bar=False, **kwargs)


def weights(size: int = 2, scale: float = 1.0) -> jax.Array:
    """Coefficients."""
    return sample("w", dist.Normal(0, scale).expand([size]).to_event(1))


def root_of(covariance: np.ndarray) -> jax.Array:
    """Its lower Cholesky root."""
    return jnp.asarray(np.linalg.cholesky(covariance))


@partial(jax.jit, static_argnums=0)
def _moments(
    program: Program, mean: jax.Array, covariance: jax.Array, inputs: list[jax.Array]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    (group,) = program.factors
    assert group.count == 1
    matrix, field = group.matrices(mean, *inputs)
    root = jnp.linalg.cholesky(covariance)
    scale, q = whiten(matrix[0] @ root)
    tilt: Any = group.prepare(*inputs)(0, field[0], scale)
    bracket = jnp.eye(len(mean)) + q.T @ (tilt.root @ tilt.root.T - jnp.eye(len(scale))) @ q
    return tilt.log_z, mean + root @ q.T @ tilt.shift, root @ bracket @ root.T


def tilted(program: Program, mean: Array, covariance: Array, *row: Array) -> tuple[float, np.ndarray, np.ndarray]:
    """(log Z, mean, covariance) of N(mean, covariance) over θ times the only factor of one row."""
    inputs = [jnp.asarray(a)[None] for a in row]
    out = _moments(program, jnp.asarray(mean, float), jnp.asarray(covariance, float), inputs)
    return float(out[0]), np.asarray(out[1]), np.asarray(out[2])


def brute(log_factor: Callable[..., np.ndarray], sds: list[float], nodes: int = 60) -> tuple[float, np.ndarray]:
    """log ∫ and the means of independent normals of mean 0 times a factor, by a Gauss-Hermite grid."""
    x, w = hermegauss(nodes)
    grids = np.meshgrid(*[s * x for s in sds], indexing="ij")
    weight = np.ones(())
    for _ in sds:
        weight = np.multiply.outer(weight, w / w.sum())
    mass = weight * np.exp(log_factor(*grids))
    return float(np.log(mass.sum())), np.array([(mass * g).sum() for g in grids]) / mass.sum()


def indicators(y: Array = None) -> None:
    """The same with an indicator a row, as NumPyro's enumeration takes it."""
    mu = sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 3.0).to_event(1))
    with numpyro.plate("rows", y.shape[0]):
        which = sample("which", dist.Categorical(probs=jnp.array([0.4, 0.6])), infer={"enumerate": "parallel"})
        sample("y", dist.Normal(mu[which], 1.0), obs=y)


def zero_inflated(x: Array, y: Array = None) -> None:
    """A gate a row: where it is shut only 0 is possible."""
    w, p = weights(), sample("p", dist.Beta(2, 2))
    with numpyro.plate("rows", x.shape[0]):
        gate = sample("gate", dist.Bernoulli(p))
        sample("y", dist.Poisson(jnp.where(gate == 1, jnp.exp(x @ w), 0.0)), obs=y)


def poisson(x: Array, y: Array = None) -> None:
    """A random intercept a row."""
    w = weights()
    with numpyro.plate("rows", x.shape[0]):
        z = sample("z", dist.Normal(0, 0.7))
        sample("y", dist.Poisson(jnp.exp(x @ w + z)), obs=y)


def outliers(y: Array = None) -> None:
    """A random effect and an indicator in one row."""
    w = weights(1)
    with numpyro.plate("rows", y.shape[0]):
        bad = sample("bad", dist.Bernoulli(0.2))
        z = sample("z", dist.Normal(0, 0.5))
        sample("y", dist.Normal(w[0] + z, jnp.where(bad == 1, 4.0, 0.3)), obs=y)
