"""Local latents: latent sites in the data plate, against exact answers, scipy's quadrature and enumeration by hand."""

import itertools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions
import pytest
import scipy.stats
from numpy.polynomial.hermite_e import hermegauss
from scipy import integrate, special

import adfpp
from adfpp.engine.linalg import whiten
from adfpp.engine.tilt import AUTO
from adfpp.learn.adf import ADFResult
from adfpp.model import Joint, Program, read
from adfpp.model.local.posterior import local_posterior

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


def program(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Program:
    """The model as it is read."""
    return read(model, args, kwargs, None, AUTO)


def run(model: Callable[..., Any], *args: Any, **kwargs: Any) -> ADFResult:
    """One pass over the data."""
    return adfpp.ADF(model).run(KEY, *args, progress_bar=False, **kwargs)


def weights(size: int = 2, scale: float = 1.0) -> jax.Array:
    """Coefficients."""
    return sample("w", dist.Normal(0, scale).expand([size]).to_event(1))


def root_of(covariance: np.ndarray) -> jax.Array:
    """Its lower Cholesky root."""
    return jnp.asarray(np.linalg.cholesky(covariance))


def tilted(program: Program, mean: Array, covariance: Array, *row: Array) -> tuple[float, np.ndarray, np.ndarray]:
    """(log Z, mean, covariance) of N(mean, covariance) over θ times the only factor of one row."""
    (group,) = program.factors
    assert group.count == 1
    mean, covariance = jnp.asarray(mean, float), jnp.asarray(covariance, float)
    inputs = [jnp.asarray(a)[None] for a in row]

    @jax.jit
    def moments(*inputs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        matrix, field = group.matrices(mean, *inputs)
        scale, q = whiten(matrix[0] @ jnp.linalg.cholesky(covariance))
        found = group.prepare(*inputs)(0, field[0], scale)
        bracket = jnp.eye(len(mean)) + q.T @ (found.root @ found.root.T - jnp.eye(len(scale))) @ q
        root = jnp.linalg.cholesky(covariance)
        return found.log_z, mean + root @ q.T @ found.shift, root @ bracket @ root.T

    log_z, new_mean, new_covariance = moments(*inputs)
    return float(log_z), np.asarray(new_mean), np.asarray(new_covariance)


# ------------------------------------------------------------------------------------------ discrete ones


def mixture(y: Array = None) -> None:
    """Two components, summed out by NumPyro."""
    mu = sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 3.0).to_event(1))
    chances = dist.Categorical(probs=jnp.array([0.4, 0.6]))
    with numpyro.plate("rows", y.shape[0]):
        sample("y", dist.MixtureSameFamily(chances, dist.Normal(mu, 1.0)), obs=y)


def indicators(y: Array = None) -> None:
    """The same with an indicator a row, as NumPyro's enumeration takes it."""
    mu = sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 3.0).to_event(1))
    with numpyro.plate("rows", y.shape[0]):
        which = sample("which", dist.Categorical(probs=jnp.array([0.4, 0.6])), infer={"enumerate": "parallel"})
        sample("y", dist.Normal(mu[which], 1.0), obs=y)


def test_indicators_are_a_mixture() -> None:
    """Row by row and in the belief."""
    one, other = run(mixture, y=Y), run(indicators, y=Y)
    np.testing.assert_allclose(other.info.log_z, one.info.log_z, atol=1e-10)
    np.testing.assert_allclose(other.state.belief.mean, one.state.belief.mean, atol=1e-10)
    np.testing.assert_allclose(other.state.belief.scale, one.state.belief.scale, atol=1e-10)
    assert set(np.asarray(other.info.status)) == {adfpp.Status.OK}


def test_learned_weights_and_scales_are_a_mixture() -> None:
    """The rows' densities, where weights, means and scales of three components are learned."""

    def model(y: Array = None, summed: bool = False) -> None:
        p = sample("p", dist.Dirichlet(jnp.ones(3)))
        mu, scale = sample("mu", dist.Normal(0, 3).expand([3])), sample("scale", dist.HalfNormal(1).expand([3]))
        with numpyro.plate("rows", y.shape[0]):
            if summed:
                sample("y", dist.MixtureSameFamily(dist.Categorical(probs=p), dist.Normal(mu, scale)), obs=y)
            else:
                c = sample("c", dist.Categorical(probs=p))
                sample("y", dist.Normal(mu[c], scale[c]), obs=y)

    theta = np.random.default_rng(1).normal(size=(3, 8))
    logs = [
        Joint(program(model, y=Y, summed=s), (), {"y": Y, "summed": s}).log_likelihood(theta)["y"]
        for s in (True, False)
    ]
    assert logs[0].shape == (3, ROWS)
    np.testing.assert_allclose(logs[1], logs[0], atol=1e-10)


def test_responsibilities() -> None:
    """p(c | y) ∝ π_c N(y; m_c, v_c + 1) under a belief with variances v, by hand."""
    mean, covariance = np.array([-1.0, 2.0]), np.array([[0.5, 0.1], [0.1, 0.3]])
    found = local_posterior(program(indicators, y=Y), mean, root_of(covariance), [Y], [])["which"]
    each = np.array([0.4, 0.6]) * stats.norm(mean, np.sqrt(np.diag(covariance) + 1.0)).pdf(Y[:, None])
    assert found.shape == (ROWS, 2)
    np.testing.assert_allclose(found, each / each.sum(1, keepdims=True), atol=1e-6)


def zero_inflated(x: Array, y: Array = None) -> None:
    """A gate a row: where it is shut only 0 is possible."""
    w, p = weights(), sample("p", dist.Beta(2, 2))
    with numpyro.plate("rows", x.shape[0]):
        gate = sample("gate", dist.Bernoulli(p))
        sample("y", dist.Poisson(jnp.where(gate == 1, jnp.exp(x @ w), 0.0)), obs=y)


def test_impossible_combinations_count_nothing() -> None:
    """A zero-inflated Poisson, whose gate cannot be shut where something was counted."""
    theta = np.random.default_rng(2).normal(size=(2, 3))
    logs = Joint(program(zero_inflated, X, y=COUNTS), (X,), {"y": COUNTS}).log_likelihood(theta)["y"]
    p, rate = special.expit(theta[:, 2:]), np.exp(theta[:, :2] @ X.T)
    expected = np.log(p * stats.poisson(rate).pmf(COUNTS) + (1 - p) * (COUNTS == 0))
    np.testing.assert_allclose(logs, expected, atol=1e-10)


@pytest.mark.slow
def test_an_impossible_value_has_no_responsibility() -> None:
    """Exactly none, and no NaN."""
    found = local_posterior(program(zero_inflated, X, y=COUNTS), np.zeros(3), np.eye(3), [X, COUNTS], [])["gate"]
    assert np.all(found[COUNTS > 0] == [0.0, 1.0])
    assert np.all((found[COUNTS == 0] > 0.1) & (found[COUNTS == 0] < 0.9))


@pytest.mark.filterwarnings("ignore::adfpp.learn.stream.RowsMarked")
def test_a_support_rules_a_combination_out() -> None:
    """A row is refused only where no combination allows it."""

    def model(y: Array = None) -> None:
        p = sample("p", dist.Beta(2, 3))
        with numpyro.plate("rows", y.shape[0]):
            late = sample("late", dist.Bernoulli(p))
            shift = dist.transforms.AffineTransform(2.0 * late, 1.0, domain=dist.constraints.positive)
            sample("y", dist.TransformedDistribution(dist.Exponential(1.0), shift), obs=y)

    y = np.array([3.0, 1.0, -1.0])
    result = run(model, y=y)
    assert [adfpp.Status(int(s)).refused for s in result.info.status] == [False, False, True]
    assert adfpp.Status(int(result.info.status[2])) == adfpp.Status.OUT_OF_SUPPORT
    logs = Joint(program(model, y=y), (), {"y": y}).log_likelihood(np.zeros((1, 1)))["y"]
    expected = [np.log(0.5 * np.exp(-3.0) + 0.5 * np.exp(-1.0)), np.log(0.5) - 1.0, -np.inf]
    np.testing.assert_allclose(logs[0], expected, rtol=1e-10)


def test_several_sites_hang_together() -> None:
    """Two observed sites that share an indicator are one factor; a third that does not stays apart, closed form."""

    def model(y: Array = None, pairs: Array = None) -> None:
        w = weights()
        with numpyro.plate("rows", y.shape[0]):
            c = sample("c", dist.Bernoulli(0.3))
            sample("y", dist.Normal(w[0] + 3.0 * c, 1.0), obs=y)
            there = jnp.stack([jnp.ones(y.shape[0], bool), y > 0], -1)
            sample("pairs", dist.Normal(c[:, None] * 1.0, 0.5).mask(there).to_event(1), obs=pairs)
            sample("last", dist.Normal(w[1], 1.0), obs=y)

    read_as = program(model, y=Y, pairs=PAIRS)
    assert [(g.name, g.field_size, g.count) for g in read_as.factors] == [("last", 1, 1), ("y, pairs", 1, 1)]
    assert type(read_as.factors[0].rule).__name__ == "ClosedForm"
    theta = np.array([[0.3, -0.2]])
    logs = Joint(read_as, (), {"y": Y, "pairs": PAIRS}).log_likelihood(theta)
    shares = []
    for c, chance in ((0, 0.7), (1, 0.3)):
        pairs = stats.norm(c, 0.5).logpdf(PAIRS)
        shares.append(
            np.log(chance) + stats.norm(0.3 + 3 * c).logpdf(Y) + pairs[:, 0] + np.where(Y > 0, pairs[:, 1], 0)
        )
    assert set(logs) == {"y, pairs", "last"}
    np.testing.assert_allclose(logs["y, pairs"][0], np.logaddexp(*shares), atol=1e-10)
    found = local_posterior(read_as, theta[0], 1e-9 * np.eye(2), [PAIRS, Y], [])["c"]
    np.testing.assert_allclose(found[:, 1], np.exp(shares[1] - np.logaddexp(*shares)), atol=1e-6)


def test_elements_with_latents_of_their_own_stay_apart() -> None:
    """Two indicators a row, each for an element: two factors with a field of two, not one with four combinations."""

    def model(y: Array = None) -> None:
        mu = sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 2.0).to_event(1))
        with numpyro.plate("rows", y.shape[0], dim=-2), numpyro.plate("columns", 2, dim=-1):
            c = sample("c", dist.Bernoulli(0.5))
            sample("y", dist.Normal(jnp.where(c == 1, mu[0], mu[1]), 1.0), obs=y)

    (group,) = program(model, y=PAIRS).factors
    assert (group.count, group.field_size) == (2, 2)
    assert group.local is not None
    assert group.local.combinations == 2
    theta = np.array([[-0.5, 1.5]])
    logs = Joint(program(model, y=PAIRS), (), {"y": PAIRS}).log_likelihood(theta)["y"]
    each = np.log(0.5 * stats.norm(-0.5).pdf(PAIRS) + 0.5 * stats.norm(1.5).pdf(PAIRS))
    np.testing.assert_allclose(logs[0], each, atol=1e-10)


def test_what_combinations_share_is_one_number() -> None:
    """x @ w is the same for all values of the indicator."""

    def model(x: Array, y: Array = None) -> None:
        w = weights()
        with numpyro.plate("rows", x.shape[0]):
            c = sample("c", dist.Categorical(probs=jnp.array([0.2, 0.3, 0.5])))
            sample("y", dist.Normal(x @ w, jnp.array([0.1, 1.0, 5.0])[c]), obs=y)

    (group,) = program(model, X, y=Y).factors
    assert group.field_size == 1


# ------------------------------------------------------------------------------------------ continuous ones


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
    z_mean, z_sd = local_posterior(program(model, X, y=Y), [0.2, -0.1], root_of(belief), [X, Y], [])["z"]
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


def poisson(x: Array, y: Array = None) -> None:
    """A random intercept a row."""
    w = weights()
    with numpyro.plate("rows", x.shape[0]):
        z = sample("z", dist.Normal(0, 0.7))
        sample("y", dist.Poisson(jnp.exp(x @ w + z)), obs=y)


@pytest.mark.parametrize("count", [0, 40])
def test_poisson_with_a_random_intercept(count: int) -> None:
    """Nested integrals by scipy."""
    x, mean, sd = np.array([1.0, 0.0]), 0.4, 1.3
    read_as = program(poisson, X, y=COUNTS)
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


def brute(log_factor: Callable[..., np.ndarray], sds: list[float], nodes: int = 60) -> tuple[float, np.ndarray]:
    """log ∫ and the means of independent normals of mean 0 times a factor, by a Gauss-Hermite grid."""
    x, w = hermegauss(nodes)
    grids = np.meshgrid(*[s * x for s in sds], indexing="ij")
    weight = np.ones(())
    for _ in sds:
        weight = np.multiply.outer(weight, w / w.sum())
    mass = weight * np.exp(log_factor(*grids))
    return float(np.log(mass.sum())), np.array([(mass * g).sum() for g in grids]) / mass.sum()


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
    """Two observed sites, one factor: at a fixed θ a bivariate normal; under a belief by a grid."""
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


def outliers(y: Array = None) -> None:
    """A random effect and an indicator in one row."""
    w = weights(1)
    with numpyro.plate("rows", y.shape[0]):
        bad = sample("bad", dist.Bernoulli(0.2))
        z = sample("z", dist.Normal(0, 0.5))
        sample("y", dist.Normal(w[0] + z, jnp.where(bad == 1, 4.0, 0.3)), obs=y)


@pytest.mark.slow
def test_both_kinds_in_one_row() -> None:
    """A mixture of two Gaussians, whose moments are exact."""
    y, mean, variance = 1.7, 0.2, 0.8
    read_as = program(outliers, y=Y)
    log_z, new, covariance = tilted(read_as, [mean], [[variance]], np.asarray(y))
    noise = np.array([0.3**2, 4.0**2])
    totals = variance + 0.25 + noise
    shares = np.log([0.8, 0.2]) + stats.norm.logpdf(y, mean, np.sqrt(totals))
    chances = np.exp(shares - np.logaddexp(*shares))

    def mixed(m: float, v: float) -> tuple[float, float]:
        """Mean and variance of a part with variance v of the sum."""
        means, left = m + v / totals * (y - mean), v - v**2 / totals
        first = chances @ means
        return first, chances @ (left + (means - first) ** 2)

    np.testing.assert_allclose(log_z, np.logaddexp(*shares), atol=1e-6)
    np.testing.assert_allclose([new[0], covariance[0, 0]], mixed(mean, variance), atol=1e-6)
    found = local_posterior(read_as, [mean], [[variance**0.5]], [np.array([y])], [])
    np.testing.assert_allclose(found["bad"][0], chances, atol=1e-6)
    expected = mixed(0.0, 0.25)
    np.testing.assert_allclose([found["z"][0][0], found["z"][1][0] ** 2], expected, atol=1e-6)


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
@pytest.mark.filterwarnings("ignore::adfpp.learn.stream.RowsMarked")
@pytest.mark.parametrize("name", ["random_effects", "measurement_error", "mixture"])
def test_models_are_learned(name: str) -> None:
    """The simulations' truth lies within four sds, and every sd is much less than the prior's."""
    data, truth = import_module(f"models.{name}").simulate(jax.random.key(3), 400)
    adf = adfpp.ADF(import_module(f"models.{name}").model)
    posterior = adf.get_posterior(adf.run(KEY, progress_bar=False, **data).state)
    mean, sd = posterior.mean(), posterior.sd()
    assert set(mean) == {site for site, value in truth.items() if np.shape(value)[:1] != (400,)}
    for site, value in mean.items():
        assert np.all(np.abs(value - truth[site]) < 4 * sd[site]), site
        assert np.all(sd[site] < 0.2), site


# ------------------------------------------------------------------------------------------ around them


def test_forwards() -> None:
    """Replicates and means vary with the local latents, whose priors are no part of θ's."""
    joint = Joint(program(indicators, y=Y), (), {"y": Y})
    theta = np.tile([-50.0, 50.0], (400, 1))
    drawn, seen = joint.replicate(KEY, jnp.asarray(theta), 2)["y"]
    assert seen == Y[2]
    assert abs(np.mean(drawn > 0) - 0.6) < 4 * np.sqrt(0.24 / 400)
    assert np.all(np.abs(joint.predicted(theta)["y"] - 10.0) < 4 * 50 * np.sqrt(0.96 / 400))
    assert set(joint.log_prior(theta[:1])) == {"mu"}
    assert joint.draw_prior(KEY, 2).shape == (2, 2)


def test_explain_shows_local_latents() -> None:
    """What they are and how they are integrated out."""
    plan = adfpp.ADF(outliers).explain(y=Y)
    assert [s.name for s in plan.latents] == ["w"]
    assert "bad   (1,)            enumerated: 2 values" in str(plan)
    assert "z     (1,)            joint field with a Gaussian base: its prior" in str(plan)
    assert "1 local number in it" in str(plan)


def test_a_power_is_refused() -> None:
    """A power of a marginal is not the marginal of a power; summed out, a factor has powers."""
    (group,) = program(poisson, X, y=COUNTS).factors
    assert not group.divisible
    inputs = [jnp.asarray(X[:1]), jnp.asarray(COUNTS[:1])]
    with pytest.raises(ValueError, match=r"'y'.*power < 1 with continuous local latents"):
        group.prepare(*inputs)(0, jnp.zeros(1), jnp.eye(1), 0.5)
    (group,) = program(indicators, y=Y).factors
    assert group.divisible


def refusal(model: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """What the model is refused with."""
    with pytest.raises(adfpp.ModelError) as error:
        adfpp.ADF(model).init(KEY, *args, **kwargs)
    return str(error.value)


def test_refuses_too_many_combinations() -> None:
    """Nine binary values that meet in one observed one."""

    def model(y: Array = None) -> None:
        w = weights(9)
        with numpyro.plate("rows", y.shape[0], dim=-2), numpyro.plate("bits", 9, dim=-1):
            bits = sample("bits_of", dist.Bernoulli(0.5))
        with numpyro.plate("data", y.shape[0]):
            sample("y", dist.Normal(bits @ w, 1.0), obs=y)

    message = refusal(model, y=Y)
    assert "'bits_of'" in message
    assert "512 combinations" in message
    assert "MixtureSameFamily" in message


def test_refuses_an_infinite_support() -> None:
    """A Poisson number a row."""

    def model(y: Array = None) -> None:
        w = weights(1)
        with numpyro.plate("rows", y.shape[0]):
            number = sample("number", dist.Poisson(3.0))
            sample("y", dist.Normal(w[0] * number, 1.0), obs=y)

    message = refusal(model, y=Y)
    assert "'number'" in message
    assert "Poisson" in message
    assert "Categorical" in message


def test_refuses_one_for_all_rows() -> None:
    """A discrete latent that all rows share and whose values cannot be listed."""

    def model(y: Array = None) -> None:
        w, c = weights(1), sample("c", dist.Poisson(0.5))
        with numpyro.plate("rows", y.shape[0]):
            sample("y", dist.Normal(w[0] * c, 1.0), obs=y)

    message = refusal(model, y=Y)
    assert "'c'" in message
    assert "all rows share" in message


@pytest.mark.parametrize("how", ["walk", "sum", "prior", "lone", "extra"])
def test_refuses_rows_that_talk_to_each_other(how: str) -> None:
    """Through their latents: a prior over all rows at once, a sum over rows, a prior that looks at others."""

    def model(y: Array = None) -> None:
        n, z = y.shape[0], 0.0
        w = weights(1)
        if how == "walk":
            z = sample("z", dist.GaussianRandomWalk(0.5, num_steps=n))
        elif how == "extra":
            z = sample("z", dist.Normal(0, 1).expand([n + 1]))[1:]
        with numpyro.plate("rows", n):
            if how == "sum":
                z = jnp.cumsum(sample("z", dist.Normal(0, 1)))
            elif how == "prior":
                z = sample("z", dist.Normal(y.mean(), 1))
            elif how == "lone":
                z = sample("z", dist.ImproperUniform(dist.constraints.real, (), ()))
            sample("y", dist.Normal(w[0] + z, 1.0), obs=y)

    says = {
        "walk": "ties them together",
        "sum": "'y' do not add up",
        "prior": "ties rows together",
        "lone": "improper",
        "extra": "one entry a row",
    }
    message = refusal(model, y=Y)
    assert says[how] in message
    assert "'z'" in message or how == "sum"


def test_refuses_a_model_with_nothing_in_common() -> None:
    """Only local latents: nothing to learn."""

    def model(y: Array = None) -> None:
        with numpyro.plate("rows", y.shape[0]):
            z = sample("z", dist.Normal(0, 1))
            sample("y", dist.Normal(z, 1.0), obs=y)

    assert "in common" in refusal(model, y=Y)


# ------------------------------------------------------------------------------------- EP


@pytest.mark.slow
def test_ep_of_local_indicators_is_that_of_the_mixture() -> None:
    """Responsibilities come back by row, from the row's own cavity; the belief is that of the marginal model."""

    def indicators(y: Array) -> None:
        mu = sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
        with numpyro.plate("rows", y.shape[0]):
            z = sample("z", dist.Categorical(probs=jnp.array([0.3, 0.7])))
            sample("y", dist.Normal(mu[z], 1.0), obs=y)

    def marginal(y: Array) -> None:
        mu = sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
        with numpyro.plate("rows", y.shape[0]):
            parts = dist.Normal(mu, 1.0)
            sample("y", dist.MixtureSameFamily(dist.Categorical(probs=jnp.array([0.3, 0.7])), parts), obs=y)

    rng = np.random.default_rng(0)
    y = np.where(rng.random(12) < 0.3, -2.0, 2.0) + rng.normal(size=12)
    ep = adfpp.EP(indicators, tol=1e-8)
    result = ep.run(jax.random.key(0), y, progress_bar=False)
    other = adfpp.EP(marginal, tol=1e-8).run(jax.random.key(0), y, progress_bar=False)
    np.testing.assert_allclose(result.state.belief.mean, other.state.belief.mean, atol=1e-9)
    assert result.log_evidence == pytest.approx(other.log_evidence, abs=1e-9)
    got = ep.get_local(result, y)["z"]
    # brute force: 2^12 assignments, each Gaussian
    logs, bits = [], np.array(list(itertools.product([0, 1], repeat=12)))
    for z in bits:
        log = np.log([0.3, 0.7])[z].sum()
        for k, centre in enumerate((-2.0, 2.0)):
            mine = y[z == k]
            cov = np.eye(len(mine)) + 1.0
            log += stats.multivariate_normal.logpdf(mine, np.full(len(mine), centre), cov) if len(mine) else 0.0
        logs.append(log)
    weight = np.exp(np.array(logs) - max(logs))
    exact = (weight[:, None] * bits).sum(0) / weight.sum()
    np.testing.assert_allclose(got[:, 1], exact, atol=5e-3)
    np.testing.assert_allclose(got.sum(1), 1.0, atol=1e-12)
    assert result.log_evidence == pytest.approx(np.log(weight.sum()) + max(logs), abs=0.01)


def test_a_power_of_a_marginal_is_refused() -> None:
    """Continuous locals are integrated out first: what is left has no power."""

    def model(y: Array) -> None:
        mu = sample("mu", dist.Normal(0, 1))
        with numpyro.plate("rows", y.shape[0]):
            z = sample("z", dist.Normal(0, 1))
            sample("y", dist.Poisson(jnp.exp(mu + z)), obs=y)

    with pytest.raises(adfpp.ModelError, match="z is integrated out of site 'y'"):
        adfpp.EP(model, power=0.5).run(jax.random.key(0), np.array([1, 2]), progress_bar=False)
