"""Conjugate models and their data, and the textbook's updates for them in NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import digamma, gammaln, logsumexp

from adfpp.learn.vmp import sweeps

KEY = jax.random.key(0)


def normal(y: Any) -> None:
    """A normal sample with unknown mean and precision."""
    mu: Any = numpyro.sample("mu", dist.Normal(1.0, 3.0))
    tau: Any = numpyro.sample("tau", dist.Gamma(2.0, 1.5))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, 1.0 / jnp.sqrt(tau)), obs=y)


def linear(x: Any, y: Any = None) -> None:
    """Linear regression with known noise: one Gaussian block, so that the bound is the evidence."""
    w: Any = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([x.shape[-1]]).to_event(1))
    b: Any = numpyro.sample("b", dist.Normal(1.0, 3.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w + b, 0.7), obs=y)


def precision_matrix(y: Any) -> None:
    """A normal sample in the plane with known mean and unknown precision matrix."""
    prior = dist.Wishart(5.0, rate_matrix=jnp.array([[2.0, 0.4], [0.4, 1.0]]))
    p: Any = numpyro.sample("P", prior)
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(2), precision_matrix=p), obs=y)


def mixture(y: Any, components: int = 3) -> None:
    """A mixture of spherical Gaussians with unknown weights, means and precisions."""
    weights: Any = numpyro.sample("weights", dist.Dirichlet(1.5 * jnp.ones(components)))
    mu: Any = numpyro.sample("mu", dist.Normal(0.0, 10.0).expand([components, y.shape[-1]]).to_event(2))
    tau: Any = numpyro.sample("tau", dist.Gamma(2.0, 3.0).expand([components]).to_event(1))
    with numpyro.plate("rows", y.shape[0]):
        chances: Any = dist.Categorical(weights)
        z: Any = numpyro.sample("z", chances, infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(mu[z], 1.0 / jnp.sqrt(tau[z])[..., None]).to_event(1), obs=y)


def factor_analysis(y: Any, factors: int = 2) -> None:
    """Factor analysis with automatic relevance determination of the columns of W."""
    d = y.shape[-1]
    alpha: Any = numpyro.sample("alpha", dist.Gamma(1.0, 1.0).expand([factors]).to_event(1))
    w: Any = numpyro.sample("w", dist.Normal(0.0, 1.0 / jnp.sqrt(alpha)).expand([d, factors]).to_event(2))
    mu: Any = numpyro.sample("mu", dist.Normal(0.0, 10.0).expand([d]).to_event(1))
    tau: Any = numpyro.sample("tau", dist.Gamma(1.0, 1.0).expand([d]).to_event(1))
    with numpyro.plate("rows", y.shape[0]):
        z: Any = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([factors]).to_event(1))
        numpyro.sample("y", dist.Normal(z @ w.T + mu, 1.0 / jnp.sqrt(tau)).to_event(1), obs=y)


def ppca(y: Any, factors: int = 2) -> None:
    """Probabilistic principal components: factor analysis with one noise precision, and a vague prior of W."""
    d = y.shape[-1]
    w: Any = numpyro.sample("w", dist.Normal(0.0, 30.0).expand([d, factors]).to_event(2))
    tau: Any = numpyro.sample("tau", dist.Gamma(0.01, 0.01))
    with numpyro.plate("rows", y.shape[0]):
        z: Any = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([factors]).to_event(1))
        numpyro.sample("y", dist.Normal(z @ w.T, 1.0 / jnp.sqrt(tau)).to_event(1), obs=y)


def clusters(seed: int = 1, count: int = 60) -> np.ndarray:
    """Three clusters in the plane."""
    rng = np.random.default_rng(seed)
    centres = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
    return centres[rng.integers(3, size=count)] + rng.normal(size=(count, 2))


def factors(seed: int = 2, count: int = 60, size: int = 4) -> np.ndarray:
    """Rows with two factors."""
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(size, 2))
    return rng.normal(size=(count, 2)) @ loadings.T + 0.4 * rng.normal(size=(count, size)) + 1.0


def parts_of(vmp: Any, state: Any) -> dict[str, Any]:
    """The values of the parts by the name of their first latent."""
    program = vmp.get_posterior(state).program
    return {p.names[0]: v for p, v in zip(sweeps.joint_of(program).parts, state.belief.parts, strict=True)}


def swept(vmp: Any, state: Any, y: np.ndarray) -> Any:
    """One sweep from a state: the new values by latent, and the result."""
    program = vmp.get_posterior(state).program
    rows = sweeps.Rows((jnp.asarray(y),), jnp.ones(len(y)))
    combinations = len(sweeps.joint_of(program).combinations)
    hint = np.zeros((len(y), combinations)) if combinations > 1 else None
    values, zero = state.belief.parts, np.asarray(0.0)
    result = program.compiled(sweeps.sweep)(values, values, zero, rows, [], state.absorbed, hint, zero)
    return state._replace(belief=program.family.belief(result.values)), result


class TextbookMixture:
    """Coordinate ascent for ``mixture`` as in Bishop, section 10.2, with spherical precisions."""

    def __init__(self, y: np.ndarray, alpha: Any, mean: Any, variance: Any, shape: Any, rate: Any) -> None:
        self.y: Any = y
        self.alpha: Any = alpha
        self.mean, self.variance, self.shape, self.rate = mean, variance, shape, rate

    def logits(self) -> np.ndarray:
        """Unnormalised log responsibilities, ``(n, K)``."""
        log_pi = digamma(self.alpha) - digamma(np.sum(self.alpha))
        log_tau, tau = digamma(self.shape) - np.log(self.rate), self.shape / self.rate
        square = ((self.y[:, None] - self.mean) ** 2 + self.variance).sum(-1)
        d = self.y.shape[1]
        return log_pi + 0.5 * d * (log_tau - np.log(2 * np.pi)) - 0.5 * tau * square

    def shares(self) -> np.ndarray:
        """Responsibilities."""
        logits = self.logits()
        return np.exp(logits - logsumexp(logits, 1, keepdims=True))

    def sweep(self) -> float:
        """Updates responsibilities, weights, means and precisions; returns the lower bound."""
        r, tau = self.shares(), (self.shape / self.rate)[:, None]
        self.alpha = 1.5 + r.sum(0)
        precision = 0.01 + tau * r.sum(0)[:, None]
        self.mean, self.variance = tau * (r.T @ self.y) / precision, (1.0 / precision) * np.ones((1, 2))
        square = ((self.y[:, None] - self.mean) ** 2 + self.variance).sum(-1)
        self.shape, self.rate = 2.0 + r.sum(0) * self.y.shape[1] / 2, 3.0 + 0.5 * (r * square).sum(0)
        return self.bound()

    def bound(self) -> float:
        """The lower bound: rows with the best responsibilities, minus the divergences from the priors."""
        k = len(self.alpha)
        a0, log_pi = 1.5 * np.ones(k), digamma(self.alpha) - digamma(self.alpha.sum())
        dirichlet = gammaln(self.alpha.sum()) - gammaln(self.alpha).sum() - gammaln(a0.sum()) + gammaln(a0).sum()
        dirichlet += ((self.alpha - a0) * log_pi).sum()
        gaussian = 0.5 * (0.01 * (self.mean**2 + self.variance) - 1 - np.log(0.01 * self.variance)).sum()
        log_tau = digamma(self.shape) - np.log(self.rate)
        gamma = (self.shape - 2) * log_tau - gammaln(self.shape) + gammaln(2.0) + self.shape * np.log(self.rate)
        gamma += -2 * np.log(3.0) + (3.0 - self.rate) * self.shape / self.rate
        return float(np.logaddexp.reduce(self.logits(), 1).sum() - dirichlet - gaussian - gamma.sum())


class TextbookFactors:
    """Coordinate ascent for ``factor_analysis``: rows of (W, mu) are Gaussian blocks of three numbers."""

    def __init__(self, y: np.ndarray, alpha: Any, mean: Any, covariance: Any, tau: Any) -> None:
        self.y, self.mean, self.covariance = y, mean, covariance
        self.alpha: Any = alpha
        self.tau: Any = tau

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Means ``(n, 3)`` of (z, 1), and the sum of the second moments ``(3, 3)``."""
        tau = self.tau[0] / self.tau[1]
        second = self.covariance + self.mean[:, :, None] * self.mean[:, None]
        precision = np.eye(2) + np.einsum("j,jkl->kl", tau, second[:, :2, :2])
        slope = np.einsum("j,nj,jk->nk", tau, self.y, self.mean[:, :2]) - np.einsum("j,jk->k", tau, second[:, :2, 2])
        c = np.linalg.inv(precision)
        z = np.concatenate([slope @ c, np.ones((len(self.y), 1))], 1)
        total = z.T @ z
        total[:2, :2] += len(self.y) * c
        return z, total

    def sweep(self) -> None:
        """Updates the factors z, alpha, the rows of (W, mu), and tau."""
        z, total = self.moments()
        square = self.mean[:, :2] ** 2 + np.diagonal(self.covariance, axis1=1, axis2=2)[:, :2]
        d = len(self.mean)
        self.alpha = (1.0 + d / 2) * np.ones(2), 1.0 + 0.5 * square.sum(0)
        tau = self.tau[0] / self.tau[1]
        prior = np.diag([*(self.alpha[0] / self.alpha[1]), 0.01])
        self.covariance = np.linalg.inv(prior + tau[:, None, None] * total)
        self.mean = np.einsum("jkl,nl,nj,j->jk", self.covariance, z, self.y, tau)
        second = self.covariance + self.mean[:, :, None] * self.mean[:, None]
        square = (self.y**2).sum(0) - 2 * np.einsum("nj,nk,jk->j", self.y, z, self.mean)
        square += np.einsum("kl,jkl->j", total, second)
        self.tau = (1.0 + len(self.y) / 2) * np.ones(d), 1.0 + 0.5 * square
