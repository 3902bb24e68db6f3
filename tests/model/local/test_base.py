"""Continuous local latents: a Gaussian base and the rest of their prior, against exact answers and quadrature."""

from functools import cache
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy import integrate

import adfpp
from adfpp.model import Joint, Program, local_posterior
from tests.model.common import program
from tests.model.local.common import (
    COUNTS,
    KEY,
    PAIRS,
    ROWS,
    Array,
    X,
    Y,
    brute,
    dist,
    indicators,
    poisson,
    root_of,
    run,
    sample,
    stats,
    tilted,
    weights,
)


def test_random_effect_is_conjugate() -> None:
    """In a linear-Gaussian model a random effect is more noise: closed form, and exact to rounding."""

    def model(x: Array, y: Array = None) -> None:
        w = weights(scale=2.0)
        with numpyro.plate("rows", x.shape[0]):
            z = sample("z", dist.Normal(0.5, 0.7))
            sample("y", dist.Normal(x @ w + z, 0.3), obs=y)

    result = run(model, X, y=Y)
    variance = 0.7**2 + 0.3**2
    covariance = np.linalg.inv(np.eye(2) / 4 + X.T @ X / variance)
    mean = covariance @ X.T @ (Y - 0.5) / variance
    root = np.asarray(result.state.belief.scale)
    np.testing.assert_allclose(result.state.belief.mean, mean, atol=1e-9)
    np.testing.assert_allclose(root @ root.T, covariance, atol=1e-9)
    evidence = stats.multivariate_normal(np.full(ROWS, 0.5), variance * np.eye(ROWS) + 4 * X @ X.T).logpdf(Y)
    np.testing.assert_allclose(np.sum(result.info.log_z), evidence, atol=1e-9)
    # the row's own effect, given a belief that has not seen it: a Gaussian again
    belief = np.array([[0.6, 0.1], [0.1, 0.4]])
    z_mean, z_sd = local_posterior(program(model, X, y=Y), np.array([0.2, -0.1]), root_of(belief), [X, Y], [])["z"]
    total = np.einsum("ni,ij,nj->n", X, belief, X) + 0.3**2 + 0.7**2
    np.testing.assert_allclose(z_mean, 0.5 + 0.7**2 / total * (Y - X @ [0.2, -0.1] - 0.5), atol=1e-9)
    np.testing.assert_allclose(z_sd, np.sqrt(0.7**2 - 0.7**4 / total), atol=1e-9)


def test_an_effect_that_two_values_share_is_conjugate() -> None:
    """A field of two, all Gaussian."""

    def model(y: Array = None) -> None:
        w = weights()
        with numpyro.plate("rows", y.shape[0], dim=-2):
            z = sample("z", dist.Normal(0, 0.7))
            with numpyro.plate("columns", 2, dim=-1):
                sample("y", dist.Normal(w + z, 0.6), obs=y)

    log_z, mean, covariance = tilted(program(model, y=PAIRS), [0.1, -0.3], np.diag([0.5, 2.0]), PAIRS[0])
    noise = 0.7**2 * np.ones((2, 2)) + 0.6**2 * np.eye(2)
    gain = np.diag([0.5, 2.0]) @ np.linalg.inv(np.diag([0.5, 2.0]) + noise)
    np.testing.assert_allclose(mean, [0.1, -0.3] + gain @ (PAIRS[0] - [0.1, -0.3]), atol=1e-6)
    np.testing.assert_allclose(covariance, np.diag([0.5, 2.0]) - gain @ np.diag([0.5, 2.0]), atol=1e-6)
    expected = stats.multivariate_normal([0.1, -0.3], np.diag([0.5, 2.0]) + noise).logpdf(PAIRS[0])
    np.testing.assert_allclose(log_z, expected, atol=1e-6)


@cache
def poisson_program() -> Program:
    """Read once, so that its tilt is compiled once."""
    return program(poisson, X, y=COUNTS)


@pytest.mark.parametrize("count", [0, 40])
def test_poisson_with_a_random_intercept(count: int) -> None:
    """Nested integrals by scipy."""
    x, mean, sd = np.array([1.0, 0.0]), 0.4, 1.3
    read_as = poisson_program()
    assert read_as.factors[0].field_size == 1
    log_z, new, covariance = tilted(read_as, [mean, 0.0], np.diag([sd**2, 1.0]), x, np.asarray(count))

    def inner(f: float) -> float:
        peak = np.log(max(count, 0.5)) - f

        def joint(z: float) -> float:
            return float(np.exp(stats.poisson.logpmf(count, np.exp(f + z)) + stats.norm.logpdf(z, 0, 0.7)))

        return integrate.quad(joint, -6, 6, points=[np.clip(peak * 0.5, -5, 5)], epsabs=0, epsrel=1e-9)[0]

    grid, w = np.polynomial.legendre.leggauss(60)
    f = mean + 7 * sd * grid
    mass = w * np.array([inner(v) for v in f]) * stats.norm.pdf(f, mean, sd) * 7 * sd
    first = (mass @ f) / mass.sum()
    np.testing.assert_allclose(log_z, np.log(mass.sum()), atol=1e-6)
    np.testing.assert_allclose(new[0], first, atol=1e-6)
    np.testing.assert_allclose(covariance[0, 0], (mass @ (f - first) ** 2) / mass.sum(), atol=1e-6)


def scaled(x: Array, y: Array = None, centred: bool = False) -> None:
    """A random intercept whose scale is learned."""
    w = sample("w", dist.Normal(0, 1))
    log_tau = sample("log_tau", dist.Normal(0, 0.5))
    with numpyro.plate("rows", x.shape[0]):
        if centred:
            z = sample("z", dist.Normal(w * x, jnp.exp(log_tau)))
        else:
            z = w * x + jnp.exp(log_tau) * sample("z", dist.Normal(0, 1))
        sample("y", dist.Bernoulli(logits=z), obs=y)


@pytest.mark.slow
@pytest.mark.parametrize("centred", [False, True])
def test_a_random_intercept_of_unknown_scale(centred: bool) -> None:
    """A joint field of three, two of them θ's; the centred one has a base fitted to draws. To 1e-3."""
    x = np.array([1.0, 2.0])
    read_as = program(scaled, x, y=np.array([1, 0]), centred=centred)
    (group,) = read_as.factors
    assert group.field_size == 2
    log_z, mean, _ = tilted(read_as, np.zeros(2), np.diag([1.0, 0.25]), np.asarray(1.5), np.asarray(1))
    expected, means = brute(lambda w, t, z: -np.logaddexp(0, -(1.5 * w + np.exp(t) * z)), [1.0, 0.5, 1.0])
    np.testing.assert_allclose(log_z, expected, atol=1e-3)
    np.testing.assert_allclose(mean, means[:2], atol=1e-3)
    # at a fixed θ one dimension is left, which is integrated to quadrature's own accuracy
    theta = np.array([[0.7, 0.2], [-0.3, -1.0]])
    data = {"y": np.array([1, 0]), "centred": centred}
    logs = Joint(read_as, (x,), data).log_likelihood(theta)["y"]
    for (w, t), found in zip(theta, logs, strict=True):
        one = [brute(lambda z, m=m, s=s, t=t: -np.logaddexp(0, -s * (m + np.exp(t) * z)), [1.0])[0]
               for m, s in ((w * 1.0, 1), (w * 2.0, -1))]  # fmt: skip
        np.testing.assert_allclose(found, one, atol=1e-6)


def measured(x_seen: Array, y: Array = None) -> None:
    """A covariate that was measured with error."""
    w = weights()
    with numpyro.plate("rows", x_seen.shape[0]):
        x = sample("x", dist.Normal(0, 1.5))
        sample("x_seen", dist.Normal(x, 0.5), obs=x_seen)
        sample("y", dist.Normal(w[0] + w[1] * x, 0.4), obs=y)


@pytest.mark.slow
def test_measurement_error() -> None:
    """Two observations, one factor: at a fixed θ a bivariate normal; under a belief by a grid."""
    read_as = program(measured, X[:, 0], y=Y)
    assert [g.name for g in read_as.factors] == ["x_seen, y"]
    theta = np.array([[0.3, -1.2]])
    logs = Joint(read_as, (X[:, 0],), {"y": Y}).log_likelihood(theta)["x_seen, y"]
    a, b, s = 0.3, -1.2, 1.5**2
    exact = stats.multivariate_normal([0.0, a], [[s + 0.25, b * s], [b * s, b * b * s + 0.16]])
    np.testing.assert_allclose(logs[0], exact.logpdf(np.stack([X[:, 0], Y], 1)), atol=1e-6)
    log_z, mean, _ = tilted(read_as, np.zeros(2), np.diag([0.3, 0.3]), np.asarray(0.8), np.asarray(0.5))

    def seen(w0: np.ndarray, w1: np.ndarray, x: np.ndarray) -> np.ndarray:
        return stats.norm.logpdf(0.8, x, 0.5) + stats.norm.logpdf(0.5, w0 + w1 * x, 0.4)

    expected, means = brute(seen, [0.3**0.5, 0.3**0.5, 1.5])
    np.testing.assert_allclose(log_z, expected, atol=1e-3)
    np.testing.assert_allclose(mean, means[:2], atol=1e-3)
    found = local_posterior(read_as, theta[0], 1e-9 * np.eye(2), [X[:, 0], Y], [])["x"]
    variance = 1 / (1 / s + 1 / 0.25 + b * b / 0.16)
    np.testing.assert_allclose(found[0], variance * (X[:, 0] / 0.25 + b * (Y - a) / 0.16), atol=1e-4)
    np.testing.assert_allclose(found[1], np.sqrt(variance), atol=1e-4)


@pytest.mark.slow
def test_a_base_that_is_no_gaussian() -> None:
    """A gamma effect makes a Poisson a negative binomial; at the scale of each row."""

    def model(size: Array, y: Array = None) -> None:
        w = weights(1)
        with numpyro.plate("rows", size.shape[0]):
            rate = sample("rate", dist.Gamma(3.0 * size, 2.0))
            sample("y", dist.Poisson(jnp.exp(w[0]) * rate), obs=y)

    size = np.array([0.5, 1.0, 2.0, 4.0, 1.0, 1.0])
    logs = Joint(program(model, size, y=COUNTS), (size,), {"y": COUNTS}).log_likelihood(np.array([[0.4]]))["y"]
    chance = 2.0 / (2.0 + np.exp(0.4))
    np.testing.assert_allclose(logs[0], stats.nbinom(3.0 * size, chance).logpmf(COUNTS), atol=1e-6)
    log_z, mean, covariance = tilted(program(model, size, y=COUNTS), [0.1], [[0.8]], np.asarray(4.0), np.asarray(7))
    grid, step = np.linspace(-6, 6, 4001, retstep=True)
    weight = stats.norm.pdf(grid, 0.1, 0.8**0.5) * stats.nbinom(12.0, 2.0 / (2.0 + np.exp(grid))).pmf(7) * step
    first = weight @ grid / weight.sum()
    np.testing.assert_allclose(log_z, np.log(weight.sum()), atol=1e-4)
    np.testing.assert_allclose(mean[0], first, atol=1e-4)
    np.testing.assert_allclose(covariance[0, 0], weight @ (grid - first) ** 2 / weight.sum(), atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::adfpp.RowsMarked")
@pytest.mark.parametrize("name", ["random_effects", "measurement_error", "mixture"])
def test_models_are_learned(name: str) -> None:
    """The simulations' truth lies within four sds, and every sd is much less than the prior's."""
    data, truth = import_module(f"models.{name}").simulate(jax.random.key(3), 400)
    adf = adfpp.ADF(import_module(f"models.{name}").model)
    posterior = adf.get_posterior(adf.run(KEY, progress_bar=False, **data).state)
    mean, sd = posterior.mean(), posterior.sd()
    assert set(mean) == {name for name, value in truth.items() if np.shape(value)[:1] != (400,)}
    for latent, value in mean.items():
        assert np.all(np.abs(value - truth[latent]) < 4 * sd[latent]), latent
        assert np.all(sd[latent] < 0.2), latent


def test_a_power_is_refused() -> None:
    """A power of a marginal is not the marginal of a power; summed out, a factor has powers."""
    (group,) = poisson_program().factors
    assert not group.divisible
    inputs = [jnp.asarray(X[:1]), jnp.asarray(COUNTS[:1])]
    with pytest.raises(ValueError, match=r"'y'.*power < 1 with continuous local latents"):
        group.prepare(*inputs)(0, jnp.zeros(1), jnp.eye(1), 0.5)
    (group,) = program(indicators, y=Y).factors
    assert group.divisible


def test_a_power_of_a_marginal_is_refused() -> None:
    """Continuous locals are integrated out first: what is left has no power."""

    def model(y: Array) -> None:
        mu = sample("mu", dist.Normal(0, 1))
        with numpyro.plate("rows", y.shape[0]):
            z = sample("z", dist.Normal(0, 1))
            sample("y", dist.Poisson(jnp.exp(mu + z)), obs=y)

    with pytest.raises(adfpp.ModelError, match="z is integrated out of observation 'y'"):
        adfpp.EP(model, power=0.5).run(jax.random.key(0), np.array([1, 2]), progress_bar=False)
