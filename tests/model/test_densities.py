"""Log-densities against mpmath with 50 digits, in both precisions, for moderate and extreme parameters."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import adfpp
from adfpp.model.densities import log_density, unconstrained_log_density

Number = Any


def _log_beta(a: Number, b: Number) -> Number:
    return mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(a + b)


def _multiset(a: Number, k: Number) -> Number:
    return mpmath.loggamma(a + k) - mpmath.loggamma(a) - mpmath.loggamma(k + 1)


def _beta_binomial(a: Number, b: Number, n: Number, k: Number) -> Number:
    return _multiset(a, k) + _multiset(b, n - k) - _multiset(a + b, n)


def _gamma_poisson(a: Number, r: Number, k: Number) -> Number:
    return _multiset(a, k) - a * mpmath.log1p(1 / r) - k * mpmath.log1p(r)


def _beta_negative_binomial(a: Number, b: Number, n: Number, k: Number) -> Number:
    return _multiset(n, k) + _log_beta(a + k, b + n) - _log_beta(a, b)


def _gamma(c: Number, r: Number, x: Number) -> Number:
    return c * mpmath.log(r) - mpmath.loggamma(c) + (c - 1) * mpmath.log(x) - r * x


def _inverse_gamma(c: Number, r: Number, x: Number) -> Number:
    return _gamma(c, r, 1 / x) - 2 * mpmath.log(x)


def _beta(a: Number, b: Number, x: Number) -> Number:
    return (a - 1) * mpmath.log(x) + (b - 1) * mpmath.log(1 - x) - _log_beta(a, b)


def _student(df: Number, x: Number) -> Number:
    height = mpmath.loggamma((df + 1) / 2) - mpmath.loggamma(df / 2) - mpmath.log(df * mpmath.pi) / 2
    return height - (df + 1) / 2 * mpmath.log1p(x * x / df)


Case = tuple[Callable[..., Any], Callable[..., Number], list[tuple[float, ...]]]
# the distribution, its log-density, and (*parameters, value); the numbers are exact in float32
CASES: dict[str, Case] = {
    "BetaBinomial": (
        dist.BetaBinomial,
        _beta_binomial,
        [
            (0.25, 0.75, 45, 18),
            (1024.0, 3072.0, 45, 18),
            (2.0**27, 3 * 2.0**27, 45, 18),
            (2.0**46, 3 * 2.0**46, 45, 45),
            (7.0, 2.0, 45, 0),
            (0.5, 0.5, 10000, 3000),
            (9.75, 10.5, 45, 3),
        ],
    ),
    "GammaPoisson": (
        dist.GammaPoisson,
        _gamma_poisson,
        [(2.0, 0.5, 3), (2.0**27, 2.0**25, 3), (2.0**-10, 0.5, 0), (2.0**40, 2.0**31, 480), (0.125, 128.0, 7)],
    ),
    "BetaNegativeBinomial": (
        dist.BetaNegativeBinomial,
        _beta_negative_binomial,
        [(0.75, 3.0, 2.5, 4), (2.0**27, 2.0**27, 2.5, 4)],
    ),
    "Gamma": (dist.Gamma, _gamma, [(2.0, 3.0, 0.5), (2.0**26, 2.0**26, 1.0), (2.0**-10, 2.0**-10, 0.25)]),
    "InverseGamma": (dist.InverseGamma, _inverse_gamma, [(2.0, 3.0, 0.5), (2.0**26, 2.0**26, 1.0)]),
    "Beta": (
        dist.Beta,
        _beta,
        [(2.0, 3.0, 0.5), (0.125, 0.125, 2.0**-20), (2.0**26, 3 * 2.0**26, 0.25), (0.125, 50.0, 0.875)],
    ),
    "StudentT": (dist.StudentT, _student, [(3.0, 0.5), (2.0**27, 2.0), (0.125, 3.0)]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("x64", [True, False], ids=["float64", "float32"])
def test_densities_keep_their_digits(name: str, x64: bool) -> None:
    """The error is a few eps of the largest term that is needed: value times the log of a parameter, or the result."""
    make, exact, cases = CASES[name]
    function = jax.jit(lambda v, g: log_density(make(*g), v))  # as tracers, parameters may be large
    with jax.enable_x64(x64), mpmath.workdps(50):
        for case in cases:
            *parameters, value = case
            given = [int(p) if isinstance(p, int) else jnp.asarray(p) for p in parameters]
            got = function(jnp.asarray(value), given)
            expected = float(exact(*(mpmath.mpf(p) for p in case)))
            largest = 10.0 + abs(expected) + value * np.log(1.0 + max(parameters))
            tol = 16.0 * float(jnp.finfo(got.dtype).eps) * largest
            assert abs(float(got) - expected) < tol, (case, float(got), expected)


@pytest.mark.parametrize("x64", [True, False], ids=["float64", "float32"])
def test_densities_of_vectors_keep_their_digits(x64: bool) -> None:
    """A Dirichlet, and counts under it, with concentrations of very different sizes."""
    with jax.enable_x64(x64), mpmath.workdps(50):
        a, p, k = jnp.array([0.125, 2.0, 2.0**20]), jnp.array([0.0625, 0.25, 0.6875]), jnp.array([3, 0, 9])
        each = [(mpmath.mpf(float(c)), mpmath.mpf(float(x)), int(n)) for c, x, n in zip(a, p, k, strict=True)]
        total = sum(c for c, _, _ in each)
        counts = float(sum(_multiset(c, n) for c, _, n in each) - _multiset(total, 12))
        eps = float(jnp.finfo(a.dtype).eps)
        got = log_density(dist.DirichletMultinomial(a, 12), k)
        np.testing.assert_allclose(float(got), counts, atol=100 * eps * abs(counts))
        shares = mpmath.loggamma(total) + sum((c - 1) * mpmath.log(x) - mpmath.loggamma(c) for c, x, _ in each)
        got = log_density(dist.Dirichlet(a), p)
        np.testing.assert_allclose(float(got), float(shares), rtol=100 * eps)


@pytest.mark.parametrize("x64", [True, False], ids=["float64", "float32"])
def test_densities_of_unconstrained_numbers_keep_their_tails(x64: bool) -> None:
    """They are right where the constrained value is 0, 1 or infinite in the dtype."""
    with jax.enable_x64(x64), mpmath.workdps(50):
        rtol = 100 * float(jnp.finfo(jnp.zeros(()).dtype).eps)
        a, b = mpmath.mpf(0.125), mpmath.mpf(0.5)
        for u in (-1000.0, -30.0, 0.5, 40.0, 2000.0):
            softplus = [mpmath.log1p(mpmath.exp(s * u)) for s in (-1, 1)]
            expected = float(-a * softplus[0] - b * softplus[1] - _log_beta(a, b))
            got: Any = unconstrained_log_density(dist.Beta(0.125, 0.5), jnp.asarray(u))
            np.testing.assert_allclose(got, expected, rtol=rtol)
            sticks: Any = unconstrained_log_density(dist.Dirichlet(jnp.array([0.125, 0.5])), jnp.asarray([u]))
            np.testing.assert_allclose(sticks, [expected], rtol=rtol)
        for u in (-2000.0, 0.5, 3.0):
            expected = float(a * u - b * mpmath.exp(u) + a * mpmath.log(b) - mpmath.loggamma(a))
            got: Any = unconstrained_log_density(dist.Gamma(0.125, 0.5), jnp.asarray(u))
            np.testing.assert_allclose(got, expected, rtol=rtol)
            got: Any = unconstrained_log_density(dist.InverseGamma(0.125, 0.5), jnp.asarray(-u))
            np.testing.assert_allclose(got, expected, rtol=rtol)


def test_a_subclass_keeps_its_own_density() -> None:
    """It may mean something else by it."""

    class Shifted(dist.StudentT):
        def log_prob(self, value: Any) -> Any:
            return super().log_prob(value) + 1.0

    plain = float(dist.StudentT(200.0).log_prob(0.5))
    np.testing.assert_allclose(float(log_density(Shifted(200.0), 0.5)), plain + 1.0)
    assert unconstrained_log_density(dist.HalfNormal(1.0), jnp.zeros(())) is None


HITS = np.array([18, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7])


def baseball(at_bats: Any, hits: Any = None) -> None:
    """The chances of players have a common beta distribution, whose concentration has a prior up to e^50 and more."""
    phi: Any = numpyro.sample("phi", dist.Uniform(0.0, 1.0))
    kappa: Any = jnp.exp(jnp.asarray(numpyro.sample("kappa_log", dist.Exponential(1.5))))
    with numpyro.plate("players", at_bats.shape[0]):
        numpyro.sample("hits", dist.BetaBinomial(phi * kappa, (1.0 - phi) * kappa, at_bats), obs=hits)


@pytest.mark.slow
@pytest.mark.parametrize("x64", [True, False], ids=["float64", "float32"])
def test_a_vague_concentration_does_not_make_counts_certain(x64: bool) -> None:
    """Posterior means of EP within 0.1 sd of a sum over a grid; every count has a probability below 1."""
    phi, log_kappa = np.linspace(0.1, 0.5, 201)[:, None], np.linspace(0.01, 15.0, 400)[None]
    kappa = np.exp(log_kappa)
    log_weight = -1.5 * log_kappa + sum(stats.betabinom.logpmf(k, 45, phi * kappa, (1 - phi) * kappa) for k in HITS)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    expected = {"phi": (weight * phi).sum(), "kappa_log": (weight * log_kappa).sum()}
    with jax.enable_x64(x64):
        result = adfpp.EP(baseball).run(jax.random.key(0), np.full(18, 45), hits=HITS, progress_bar=False)
        mean, sd = result.posterior.mean(), result.posterior.sd()
    assert not np.asarray(result.info.status).any() and (np.asarray(result.info.log_z) < 0).all()
    for name, value in expected.items():
        assert abs(float(mean[name]) - value) < 0.1 * float(sd[name]), (name, mean[name], value)


def truncated_exactly(y: float, loc: float, scale: float, low: float, high: float) -> float:
    """The log-density of a truncated normal distribution, with 400 digits."""
    if low + high > 2.0 * loc or high == math.inf:
        a, b = (mpmath.mpf(low) - loc) / scale, (mpmath.mpf(high) - loc) / scale
    else:
        a, b = (loc - mpmath.mpf(high)) / scale, (loc - mpmath.mpf(low)) / scale
    with mpmath.workdps(400):
        mass = (mpmath.erfc(a / mpmath.sqrt(2)) - mpmath.erfc(b / mpmath.sqrt(2))) / 2
        square = ((mpmath.mpf(y) - loc) / scale) ** 2
        return float(-square / 2 - mpmath.log(scale) - mpmath.log(2 * mpmath.pi) / 2 - mpmath.log(mass))


@pytest.mark.parametrize(("low", "high"), [(0.0, math.inf), (-math.inf, 1.5), (0.0, 1.5), (0.25, 0.75)])
def test_truncated_normal_densities_are_finite_wherever_the_mean_is(low: float, high: float) -> None:
    """NumPyro divides by a mass of 0 if the bounds are far from the mean, and a row with such a prior was refused."""
    loc, scale = (a.ravel() for a in np.meshgrid([-300.0, -30.0, -0.5, 0.5, 3.0, 500.0], [0.25, 1.0, 8.0, 65536.0]))
    bounds: Any = {name: end for name, end in (("low", low), ("high", high)) if math.isfinite(end)}
    expected = [truncated_exactly(0.5, m, s, low, high) for m, s in zip(loc, scale, strict=True)]
    fn = dist.TruncatedNormal(loc, scale, **bounds)
    np.testing.assert_allclose(log_density(fn, 0.5), expected, rtol=1e-11, atol=1e-11)
    assert np.isinf(np.asarray(fn.log_prob(0.5))).any()


def test_other_truncated_distributions_keep_their_density() -> None:
    """The forms are those of a normal distribution."""
    fn = dist.LeftTruncatedDistribution(dist.Cauchy(0.3, 2.0), 0.0)
    np.testing.assert_array_equal(log_density(fn, 0.5), fn.log_prob(0.5))
