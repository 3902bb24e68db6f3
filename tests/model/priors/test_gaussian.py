"""Priors as Gaussian blocks: exact where they are Gaussian, else the right moments in unconstrained space."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to
from scipy import integrate, special, stats

import adfpp
from tests.model.common import program
from tests.model.priors.common import TRIL, Array, X, Y, latent, observed, of, sample

# ------------------------------------------------------------------------------------- exact


_STEPS = np.tril(np.ones((3, 3)))
_NEIGHBOURS = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
EXACT: dict[str, tuple[Any, Any, np.ndarray]] = {
    "Normal": (dist.Normal(1.5, 0.3).expand([3]), 1.5, 0.09 * np.eye(3)),
    "Normals": (
        dist.Normal(np.array([1.0, 2.0]), np.array([0.5, 3.0])).to_event(1),
        [1.0, 2.0],
        np.diag([0.25, 9.0]),
    ),
    "far": (dist.Normal(1e4, 1e-3), 1e4, np.array([[1e-6]])),
    "LogNormal": (dist.LogNormal(0.7, 0.4), 0.7, np.array([[0.16]])),
    "MultivariateNormal": (
        dist.MultivariateNormal(jnp.array([1.0, 2.0, 3.0]), scale_tril=TRIL),
        [1.0, 2.0, 3.0],
        TRIL @ TRIL.T,
    ),
    "GaussianRandomWalk": (dist.GaussianRandomWalk(0.5, 3), 0.0, 0.25 * _STEPS @ _STEPS.T),
    "CAR": (
        dist.CAR(0.0, 0.4, 2.0, jnp.asarray(_NEIGHBOURS)),
        0.0,
        np.linalg.inv(2.0 * (np.diag(_NEIGHBOURS.sum(0)) - 0.4 * _NEIGHBOURS)),
    ),
    "logit-normal": (
        dist.TransformedDistribution(dist.Normal(0.2, 1.1), dist.transforms.SigmoidTransform()),
        0.2,
        np.array([[1.21]]),
    ),
}


SCALARS = ("Normal", "Normals", "far", "LogNormal", "logit-normal")


def test_gaussian_priors_are_exact() -> None:
    """Whatever is Gaussian in unconstrained space is taken as it is; independent ones in one model."""
    mean, covariance, how = of(lambda: sum(jnp.sum(sample(name, EXACT[name][0])) for name in SCALARS))
    start = 0
    for name in SCALARS:
        _, expected, expected_covariance = EXACT[name]
        part = slice(start, start + len(expected_covariance))
        np.testing.assert_allclose(mean[part], np.broadcast_to(expected, mean[part].shape), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(covariance[part, part], expected_covariance, rtol=1e-8, atol=1e-10)
        start = part.stop
    assert set(how) == {"exact"}


@pytest.mark.parametrize("name", [name for name in EXACT if name not in SCALARS])
def test_correlated_gaussian_priors_are_exact(name: str) -> None:
    """By their Hessian."""
    prior, mean, covariance = EXACT[name]
    got = of(latent(prior))
    np.testing.assert_allclose(got[0], np.broadcast_to(mean, got[0].shape), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got[1], covariance, rtol=1e-8, atol=1e-10)
    assert got[2] == ("exact",)


# ------------------------------------------------------------------------------------- by quadrature


def by_scipy(density: Any, transform: str, centre: float = 0.0, reach: float = 60.0) -> tuple[float, float]:
    """Mean and variance of u = g(x) for x with a scipy density, in two pieces from a centre."""
    outward = {"exp": np.exp, "sigmoid": special.expit, "identity": lambda u: u}[transform]
    slope = {
        "exp": np.exp,
        "sigmoid": lambda u: special.expit(u) * special.expit(-u),
        "identity": np.ones_like,
    }[transform]

    def moment(f: Callable[[float], float]) -> float:
        pieces = [(centre - reach, centre), (centre, centre + reach)]
        if transform == "identity":
            pieces = [(-np.inf, centre), (centre, np.inf)]
        total = 0.0
        for low, high in pieces:
            total += integrate.quad(
                lambda u: f(u) * density.pdf(outward(u)) * slope(u),
                low,
                high,
                epsabs=1e-13,
                epsrel=1e-11,
                limit=500,
            )[0]
        return total

    mass = moment(lambda u: 1.0)
    mean = moment(lambda u: u) / mass
    return mean, moment(lambda u: (u - mean) ** 2) / mass


_GAMMA = special.polygamma
MOMENTS: dict[str, tuple[Any, tuple[float, float]]] = {
    "HalfNormal": (dist.HalfNormal(2.0), by_scipy(stats.halfnorm(scale=2.0), "exp")),
    "Exponential": (dist.Exponential(3.0), (special.digamma(1) - np.log(3), float(_GAMMA(1, 1)))),
    "Gamma": (dist.Gamma(2.0, 3.0), (special.digamma(2) - np.log(3), float(_GAMMA(1, 2)))),
    "vague Gamma": (dist.Gamma(0.1, 0.1), (special.digamma(0.1) - np.log(0.1), float(_GAMMA(1, 0.1)))),
    "Beta": (
        dist.Beta(2.0, 3.0),
        (special.digamma(2) - special.digamma(3), float(_GAMMA(1, 2) + _GAMMA(1, 3))),
    ),
    "Uniform": (dist.Uniform(0.0, 1.0), (0.0, np.pi**2 / 3)),
    "Uniform elsewhere": (dist.Uniform(-3.0, 11.0), (0.0, np.pi**2 / 3)),
    "HalfCauchy": (dist.HalfCauchy(1.0), (0.0, np.pi**2 / 4)),
    "StudentT": (dist.StudentT(3.0, 0.5, 2.0), (0.5, 12.0)),
    "StudentT(5)": (dist.StudentT(5.0, -20.0, 3.0), (-20.0, 15.0)),
    "Logistic": (dist.Logistic(1.0, 0.5), (1.0, np.pi**2 / 12)),
    "Gumbel": (dist.Gumbel(1.0, 2.0), (1.0 + 2.0 * np.euler_gamma, 4 * np.pi**2 / 6)),
    "Weibull": (dist.Weibull(2.0, 1.5), (np.log(2.0) - np.euler_gamma / 1.5, np.pi**2 / 6 / 1.5**2)),
    "TruncatedNormal": (
        dist.TruncatedNormal(1.0, 1.5, low=0.0),
        by_scipy(stats.truncnorm(-1.0 / 1.5, np.inf, 1.0, 1.5), "exp"),
    ),
    "two modes": (
        dist.MixtureSameFamily(
            dist.Categorical(probs=jnp.array([0.25, 0.75])), dist.Normal(jnp.array([-4.0, 4.0]), 0.5)
        ),
        (2.0, 0.25 + 12.0),
    ),
    "Laplace": (dist.Laplace(0.0, 2.0), (0.0, 8.0)),
}
# narrow for where they stand, or hard to evaluate far from there
HARD: dict[str, tuple[Any, tuple[float, float]]] = {
    "InverseGamma": (dist.InverseGamma(3.0, 2.0), (np.log(2) - special.digamma(3), float(_GAMMA(1, 3)))),
    "StudentT far away": (dist.StudentT(4.0, 1000.0, 1.0), (1000.0, 2.0)),
    "Laplace away": (dist.Laplace(3.0, 0.1), (3.0, 0.02)),
    "narrow Gamma": (dist.Gamma(1e5, 1.0), (special.digamma(1e5), float(_GAMMA(1, 1e5)))),
    "narrow Beta": (
        dist.Beta(3e5, 5e5),
        (special.digamma(3e5) - special.digamma(5e5), float(_GAMMA(1, 3e5) + _GAMMA(1, 5e5))),
    ),
}


def test_moments_by_quadrature() -> None:
    """Means to 1e-6 sds and variances to 1e-6, all priors in one model; a kink away from 0 costs some digits."""
    cases = MOMENTS | HARD
    mean, covariance, how = of(lambda: sum(sample(name, prior) for name, (prior, _) in cases.items()))
    variance = np.diag(covariance)
    wrong = {}
    for i, (name, (_, (expected, spread))) in enumerate(cases.items()):
        tol = 1e-4 if name == "Laplace away" else 1e-6
        off = abs(mean[i] - expected) / np.sqrt(spread), abs(variance[i] / spread - 1.0)
        if not max(off) <= tol:
            wrong[name] = off
    assert not wrong
    np.testing.assert_array_equal(covariance, np.diag(variance))
    assert set(how) == {"moments by quadrature"}


def test_elements_of_a_latent_may_differ() -> None:
    """Each has its own moments."""
    rates = np.array([0.5, 3.0])
    mean, covariance, _ = of(latent(dist.Exponential(rates).to_event(1)))
    np.testing.assert_allclose(mean, special.digamma(1) - np.log(rates), atol=1e-8)
    np.testing.assert_allclose(np.diag(covariance), _GAMMA(1, 1), rtol=1e-8)


def test_scale_of_a_shared_argument() -> None:
    """A prior may depend on an argument that all rows share; the program was read with other values."""

    def model(x: Array, y: Array, width: Array) -> None:
        observed(x, y, sample("w", dist.HalfNormal(width)).sum())

    width = np.array([3.0, 2.0])
    (block,) = program(model, X, Y, np.array([1.0, 2.0])).project_prior([width]).blocks
    np.testing.assert_allclose(block.mean, np.log(2) / 2 + special.digamma(0.5) / 2 + np.log(width), atol=1e-8)


# ------------------------------------------------------------------------------------- refused


def test_refuses_heavy_tails() -> None:
    """No finite variance, no Gaussian: at two degrees of freedom it just diverges."""
    with pytest.raises(adfpp.PriorError) as refused:
        of(latent(dist.StudentT(2.0).expand([2])))
    for word in ("'w'", "no finite", "dist.Normal(0, 10)"):
        assert word in str(refused.value)


# ------------------------------------------------------------------------------------- by sampling

_DRAWS = 1 << 18


@pytest.mark.slow
@pytest.mark.parametrize("x64", [True, False], ids=["float64", "float32"])
def test_vague_priors_of_probabilities_and_scales(x64: bool) -> None:
    """Digammas and trigammas, also where most of the mass is at values that the dtype rounds to 0, 1 or infinity.

    Stick k of a Dirichlet is Beta(a_k, rest), seen through the logit and moved by the log of the sticks to come.
    """
    weights = np.array([0.3, 0.5, 1.0])
    rest = np.cumsum(weights[::-1])[::-1][1:]
    offset = np.log(np.arange(len(weights) - 1, 0, -1))
    moments = {
        "beta": (0.0, 2 * _GAMMA(1, 0.1)),
        "uneven": (special.digamma(0.2) - special.digamma(3.0), _GAMMA(1, 0.2) + _GAMMA(1, 3.0)),
        "two": (0.0, 2 * _GAMMA(1, 0.5)),
        "three": (
            special.digamma(weights[:-1]) - special.digamma(rest) + offset,
            _GAMMA(1, weights[:-1]) + _GAMMA(1, rest),
        ),
        "rate": (special.digamma(0.01) - np.log(2.0), _GAMMA(1, 0.01)),
        "variance": (np.log(1e-3) - special.digamma(1e-3), _GAMMA(1, 1e-3)),
    }

    def latents() -> Any:
        priors = {
            "beta": dist.Beta(0.1, 0.1),
            "uneven": dist.Beta(0.2, 3.0),
            "two": dist.Dirichlet(jnp.array([0.5, 0.5])),
            "three": dist.Dirichlet(jnp.asarray(weights)),
            "rate": dist.Gamma(0.01, 2.0),
            "variance": dist.InverseGamma(1e-3, 1e-3),
        }
        return sum(jnp.sum(sample(name, prior)) for name, prior in priors.items())

    with jax.enable_x64(x64):
        mean, covariance, how = of(latents)
    expected = np.concatenate([np.ravel(m) for m, _ in moments.values()])
    variance = np.concatenate([np.ravel(v) for _, v in moments.values()]).astype(float)
    tol = np.where(np.sqrt(variance) > 500.0, 1e-4, 1e-6 if x64 else 1e-4)  # as steep as a kink in such a wide prior
    assert set(how) == {"moments by quadrature"}
    np.testing.assert_array_less(np.abs(mean - expected) / np.sqrt(variance), tol)
    np.testing.assert_array_less(np.abs(np.diag(covariance) / variance - 1.0), tol)
    assert not (covariance - np.diag(np.diag(covariance))).any()


def test_correlation() -> None:
    """An LKJ prior of two variables has one number: (1 + r) / 2 is Beta."""
    mean, covariance, _ = of(latent(dist.LKJCholesky(2, 1.5)))
    np.testing.assert_allclose(mean, 0.0, atol=1e-8)
    np.testing.assert_allclose(covariance, 0.25 * 2 * _GAMMA(1, 1.5), rtol=1e-6)


@pytest.mark.slow
def test_correlation_matrix() -> None:
    """An LKJ prior of three variables against a large independent sample."""
    prior = dist.LKJCholesky(3, 1.5)
    mean, covariance, how = of(latent(prior))
    draws = int(how[0].split()[2])
    sample = jax.jit(lambda key: biject_to(prior.support).inv(prior.sample(key, (_DRAWS,))))(jax.random.key(11))
    flat = np.asarray(sample)
    spread = np.sqrt(1 / draws + 1 / _DRAWS)
    np.testing.assert_array_less(np.abs(mean - flat.mean(0)), 5 * flat.std(0) * spread)
    fourth = np.mean((flat - flat.mean(0)) ** 4, 0) / flat.var(0) ** 2 - 1
    np.testing.assert_array_less(np.abs(np.diag(covariance) / flat.var(0) - 1), 5 * np.sqrt(fourth) * spread)


# ------------------------------------------------------------------------------------- prior=


def test_priors_can_be_replaced() -> None:
    """By scalar, elementwise and joint distributions, in any form of the latent."""
    event, batch = dist.Normal(0, 1).expand([2]).to_event(1), dist.Normal(0, 1).expand([2])
    elementwise = dist.Normal(np.array([1.0, 2.0]), 3.0)
    joint = dist.MultivariateNormal(jnp.ones(2), scale_tril=TRIL[:2, :2])
    cases: list[tuple[Any, Any, Any, np.ndarray]] = [
        (event, dist.Normal(2.0, 3.0), [2.0, 2.0], 9.0 * np.eye(2)),
        (event, elementwise, [1.0, 2.0], 9.0 * np.eye(2)),
        (event, joint, [1.0, 1.0], TRIL[:2, :2] @ TRIL[:2, :2].T),
        (batch, elementwise, [1.0, 2.0], 9.0 * np.eye(2)),
        (batch, dist.Normal(2.0, 3.0).expand([2]).to_event(1), [2.0, 2.0], 9.0 * np.eye(2)),
    ]
    for own, prior, mean, covariance in cases:
        got = of(latent(own), prior={"w": prior})
        np.testing.assert_allclose(got[0], mean, atol=1e-10)
        np.testing.assert_allclose(got[1], covariance, atol=1e-10)


def test_projection_in_float32(float32: None) -> None:
    """Single precision takes the same priors."""

    def prior() -> Array:
        w = sample("w", dist.Normal(1.5, 0.3).expand([2]))
        return w.sum() + sample("s", dist.HalfNormal(2.0))

    mean, covariance, how = of(prior)
    expected, variance = MOMENTS["HalfNormal"][1]
    np.testing.assert_allclose(mean[:2], 1.5, rtol=1e-6)
    np.testing.assert_allclose(np.diag(covariance)[:2], 0.09, rtol=1e-5)
    np.testing.assert_allclose(mean[2], expected, atol=1e-4)
    np.testing.assert_allclose(covariance[2, 2], variance, rtol=1e-3)
    assert how == ("exact", "moments by quadrature")
