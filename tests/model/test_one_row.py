"""``rows=()``: all data of a call are one row, so that its values may depend on each other."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from scipy import integrate

import adfpp
from tests.model.common import KEY, SCALE, Array, refusal, sample, says

_RNG = np.random.default_rng(4)
SERIES = np.cumsum(0.4 * _RNG.normal(size=12))
TIMES = np.linspace(-1.0, 1.0, 12)
STATES = np.where(np.arange(12) % 6 < 3, 0.0, 2.0) + 0.5 * _RNG.normal(size=12)


def autoregression(y: Array) -> None:
    """Each value is a factor, which reads the one before."""
    phi = sample("phi", dist.Normal(0, 1))
    sample("y", dist.Normal(phi * y[:-1], SCALE), obs=y[1:])


def process(x: Array, y: Array) -> None:
    """A Gaussian process of unknown length-scale: one factor."""
    length = sample("length", dist.LogNormal(-0.5, 0.5))
    covariance = jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + 0.1 * jnp.eye(x.shape[0])
    sample("y", dist.MultivariateNormal(jnp.zeros(x.shape[0]), covariance), obs=y)


def hidden(y: Array) -> None:
    """A Markov chain of two hidden states, summed out in a loop."""
    mu = sample("mu", dist.Normal(1.0, 1.0))
    chances = jnp.log(jnp.array([[0.8, 0.2], [0.2, 0.8]]))

    def each(y_t: Array) -> Array:
        return dist.Normal(jnp.stack([jnp.zeros(()), mu]), 0.5).log_prob(y_t)

    def step(log_p: Array, y_t: Array) -> tuple[Array, None]:
        return logsumexp(log_p[:, None] + chances, axis=0) + each(y_t), None

    last, _ = jax.lax.scan(step, each(y[0]) + jnp.log(0.5), y[1:])
    numpyro.factor("y", logsumexp(last))


def learned(model: Callable[..., None], *series: tuple[Array, ...]) -> tuple[adfpp.ADF, object, float]:
    """The learner, its state after some calls, and the log evidence."""
    adf = adfpp.ADF(model, rows=())
    state, total = adf.init(KEY, *series[0]), 0.0
    for one in series:
        state, info = adf.update(state, *one)
        assert np.asarray(info.status).tolist() == [adfpp.Status.OK]
        total += float(info.log_z[0])
    return adf, state, total


def assert_autoregression(state: object, log_z: float, before: np.ndarray, after: np.ndarray) -> None:
    """The posterior is that of a linear regression on the values before."""
    precision = 1 + before @ before / SCALE**2
    marginal = np.outer(before, before) + SCALE**2 * np.eye(len(after))
    evidence = -0.5 * (after @ np.linalg.solve(marginal, after) + np.linalg.slogdet(2 * np.pi * marginal)[1])
    belief = state.belief  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(belief.mean, [before @ after / SCALE**2 / precision], atol=1e-9)
    np.testing.assert_allclose(belief.scale @ belief.scale.T, [[1 / precision]], atol=1e-9)
    np.testing.assert_allclose(log_z, evidence, atol=1e-7)


def test_an_autoregression_is_exact() -> None:
    """Its values are factors of their own."""
    _, state, log_z = learned(autoregression, (SERIES,))
    assert_autoregression(state, log_z, SERIES[:-1], SERIES[1:])


def test_each_call_is_a_row() -> None:
    """Independent series, of different lengths."""
    _, state, log_z = learned(autoregression, (SERIES[:8],), (SERIES[2:7],))
    before = np.concatenate([SERIES[:7], SERIES[2:6]])
    assert_autoregression(state, log_z, before, np.concatenate([SERIES[1:8], SERIES[3:7]]))


def gaussian(y: np.ndarray, covariance: np.ndarray) -> float:
    """Log-density of a Gaussian of mean 0."""
    return -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])


def process_density(u: float) -> float:
    """Density of the data and of the log length-scale."""
    covariance = np.exp(-0.5 * ((TIMES[:, None] - TIMES) / np.exp(u)) ** 2) + 0.1 * np.eye(12)
    return float(np.exp(gaussian(SERIES, covariance) - 0.5 * ((u + 0.5) / 0.5) ** 2) / (0.5 * np.sqrt(2 * np.pi)))


def hidden_density(u: float) -> float:
    """The same for the mean, by summing over all paths step by step."""
    means, p = np.array([0.0, u]), np.array([0.5, 0.5])
    for t, y in enumerate(STATES):
        p = (p @ np.array([[0.8, 0.2], [0.2, 0.8]]) if t else p) * np.exp(-0.5 * ((y - means) / 0.5) ** 2)
        p = p / (0.5 * np.sqrt(2 * np.pi))
    return float(p.sum() * np.exp(-0.5 * (u - 1) ** 2) / np.sqrt(2 * np.pi))


@pytest.mark.parametrize(
    ("model", "data", "density"),
    [(process, (TIMES, SERIES), process_density), (hidden, (STATES,), hidden_density)],
)
def test_values_that_depend_on_each_other_are_one_integral(
    model: Callable[..., None], data: tuple[Array, ...], density: Callable[[float], float]
) -> None:
    """Of a Gaussian process and of a hidden Markov model, against SciPy."""
    total, first, second = (
        integrate.quad(lambda u, k=k: u**k * density(u), -8, 8, points=[-1.0, 0.0, 2.0], limit=400, epsabs=0)[0]
        for k in range(3)
    )
    adf, state, log_z = learned(model, data)
    belief = state.belief  # pyright: ignore[reportAttributeAccessIssue]
    mean = first / total
    np.testing.assert_allclose(log_z, np.log(total), atol=1e-6)
    np.testing.assert_allclose(belief.mean, [mean], atol=1e-6)
    np.testing.assert_allclose(belief.scale[0, 0] ** 2, second / total - mean**2, rtol=1e-5)
    plan = adf.explain(*data)
    assert plan.rows == () and plan.factors[0].field_size == 1
    says(str(plan), "1-dimensional integral", "all data of a call are one row")


def test_the_data_may_set_a_prior() -> None:
    """All rows share the data, as the samplers of NumPyro see it."""

    def model(y: Array) -> None:
        mu = sample("mu", dist.Normal(jnp.mean(y), jnp.std(y)))
        with numpyro.plate("times", y.shape[0]):
            sample("y", dist.Normal(mu, SCALE), obs=y)

    _, state, _ = learned(model, (SERIES,))
    precision = 1 / SERIES.var() + 12 / SCALE**2
    belief = state.belief  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(belief.mean, [SERIES.mean()], atol=1e-9)
    np.testing.assert_allclose(belief.scale[0, 0] ** -2, precision, rtol=1e-9)


@pytest.mark.parametrize(
    ("model", "data"), [(autoregression, (SERIES,)), (process, (TIMES, SERIES)), (hidden, (STATES,))]
)
def test_a_refusal_of_dependent_rows_suggests_it(model: Callable[..., None], data: tuple[Array, ...]) -> None:
    """And columns of earlier values."""
    says(refusal(model, *data), "rows=()", "y_before", "1 number")


def test_it_is_not_suggested_with_many_latents() -> None:
    """The integral would be over all of them."""

    def model(x: Array, y: Array) -> None:
        z = sample("z", dist.Normal(0, 1).expand([20]).to_event(1))
        sample("y", dist.Normal(z[0] + x - x.mean(), SCALE), obs=y)

    message = refusal(model, TIMES, SERIES)
    says(message, "do not add up")
    assert "rows=()" not in message


def three(x: Array, y: Array) -> None:
    """A Gaussian process with three unknown scales."""
    variance, noise, length = (sample(name, dist.LogNormal(0.0, 0.7)) for name in ("variance", "noise", "length"))
    k = variance * jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + (noise + 1e-6) * jnp.eye(x.shape[0])
    sample("y", dist.MultivariateNormal(jnp.zeros(x.shape[0]), k), obs=y)


@pytest.mark.slow
def test_three_scales_of_a_gaussian_process() -> None:
    """Against a grid of 45 x 45 x 45 points."""
    axis = np.linspace(-4.5, 3.0, 45)

    @jax.jit
    def log_density(u: Array) -> Array:
        variance, noise, length = jnp.exp(u)
        k = variance * jnp.exp(-0.5 * ((TIMES[:, None] - TIMES) / length) ** 2) + (noise + 1e-6) * jnp.eye(12)
        log_likelihood = dist.MultivariateNormal(jnp.zeros(12), k).log_prob(SERIES)
        return log_likelihood + dist.Normal(0.0, 0.7).log_prob(u).sum()

    points = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    logs = np.asarray(jax.lax.map(log_density, jnp.asarray(points), batch_size=1024))
    weights = np.exp(logs - logs.max())
    mean = weights @ points / weights.sum()
    sd = np.sqrt(weights @ (points - mean) ** 2 / weights.sum())
    evidence = np.log(weights.sum()) + logs.max() + 3 * np.log(axis[1] - axis[0])
    adf = adfpp.ADF(three, rows=())
    state, info = adf.update(adf.init(KEY, TIMES, SERIES), TIMES, SERIES)
    root = np.asarray(state.belief.scale)
    np.testing.assert_allclose((np.asarray(state.belief.mean) - mean) / sd, 0.0, atol=2e-3)
    np.testing.assert_allclose(np.sqrt(np.diag(root @ root.T)) / sd, 1.0, atol=2e-3)
    np.testing.assert_allclose(info.log_z[0], evidence, atol=2e-3)
