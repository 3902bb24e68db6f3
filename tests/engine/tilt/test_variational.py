"""The limit of power 0: expectations of log f, against exact answers and scipy's quadrature."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad

from adfpp.engine.tilt import Landmarks, Message, Variational
from adfpp.engine.tilt.montecarlo import normal_points
from tests.engine.tilt.common import Line

RULE = Variational()
CAVITIES = ((0.3, 0.2), (0.3, 1.0), (-1.5, 3.0), (4.0, 10.0))  # mean and sd


def message(log_factor: Callable[[Any], Any], mean: Any, scale: Any, rule: Variational = RULE, **rest: Any) -> Message:
    """The rule on a field of any size, compiled."""
    mean, scale = jnp.atleast_1d(jnp.asarray(mean)), jnp.atleast_2d(jnp.asarray(scale))
    return jax.jit(lambda m, s: rule(log_factor, m, s, **rest))(mean, scale)


def by_scipy(log_factor: Callable[[float], float], mean: float, sd: float, breaks: Sequence[float] = ()) -> np.ndarray:
    """(E[log f], E[u log f], -E[(u² - 1) log f]) in pieces between the breaks."""
    edges = np.unique(np.clip([-12.0, *np.linspace(-8, 8, 5), *((np.asarray(breaks) - mean) / sd), 12.0], -12, 12))

    def integral(power: Callable[[float], float]) -> float:
        def integrand(u: float) -> float:
            return power(u) * log_factor(mean + sd * u) * math.exp(-0.5 * u * u) / math.sqrt(2 * math.pi)

        pieces = zip(edges[:-1], edges[1:], strict=True)
        return math.fsum(quad(integrand, a, b, epsabs=1e-11, epsrel=1e-11, limit=200)[0] for a, b in pieces)

    return np.array([integral(lambda u: 1.0), integral(lambda u: u), integral(lambda u: 1.0 - u * u)])


def worst(out: Message, truth: np.ndarray) -> float:
    """The largest error of a scalar message, as the rule counts it."""
    log_z, slope, precision = truth
    unit = 1 + abs(precision)
    return max(
        abs(float(out.log_z) - log_z) / (1 + abs(log_z)),
        abs(float(out.slope[0]) - slope) / math.sqrt(unit),
        abs(float(out.precision[0, 0]) - precision) / unit,
    )


# ---------------------------------------------------------------------------------------------- one number


Y, V = 1.2, 0.09  # of the Gaussian factor
LIKELIHOODS = {
    "logistic": (lambda h: -jnp.logaddexp(0.0, -h), lambda h: -np.logaddexp(0.0, -h), (0.0,)),
    "Student-t": (
        lambda h: -2.0 * jnp.log1p(((h - 0.2) / 0.3) ** 2 / 3),
        lambda h: -2.0 * math.log1p(((h - 0.2) / 0.3) ** 2 / 3),
        (-0.8, 0.2, 1.2),
    ),
    "Laplace": (lambda h: -jnp.abs(h - 0.2) / 0.1, lambda h: -abs(h - 0.2) / 0.1, (0.2,)),
    "two kinks": (
        lambda h: -3.0 * jnp.abs(h - 0.2) - jnp.maximum(h, 1.1),
        lambda h: -3.0 * abs(h - 0.2) - max(h, 1.1),
        (0.2, 1.1),
    ),
}
VANISHING = {
    "step": lambda h: jnp.where(h > 0, 0.0, -jnp.inf),
    "NaN outside the support": lambda h: jnp.where(h > 0, -0.5 * h, jnp.nan),
    "log": lambda h: jnp.log(h + 1.0) - h,
    "overflow": lambda h: h - jnp.exp(jnp.exp(h)),
}
SMOOTH = {
    "Gaussian": lambda h: -0.5 * (Y - h) ** 2 / V,
    "Poisson": lambda h: 3 * h - jnp.exp(h),
    "large": lambda h: 5000.0 - 0.5 * (h - 1.0) ** 2,
}
FACTORS = {name: f for name, (f, _, _) in LIKELIHOODS.items()} | VANISHING | SMOOTH
LINE = Line(RULE, {name: lambda h, _, f=f: f(h) for name, f in FACTORS.items()})


def on_the_line(name: str, mean: float, sd: float, dtype: Any = float) -> Message:
    """The message of one of the factors."""
    return jax.tree.map(lambda a: a[0], LINE(name, 0.0, mean, sd, dtype))


@pytest.mark.parametrize(("mean", "sd"), CAVITIES)
def test_a_gaussian_factor_is_its_own_site(mean: float, sd: float) -> None:
    """exp(-(y - h)² / 2v): slope sd (y - mean) / v, precision sd² / v, and the usual expected log."""
    out = on_the_line("Gaussian", mean, sd)
    assert_allclose(out.slope, [sd * (Y - mean) / V], rtol=1e-11)
    assert_allclose(out.precision, [[sd * sd / V]], rtol=1e-11)
    assert_allclose(out.log_z, -0.5 * ((Y - mean) ** 2 + sd * sd) / V, rtol=1e-11)
    assert out.error < 1e-10


@pytest.mark.parametrize(("mean", "sd"), CAVITIES[:3])
def test_poisson_is_a_log_normal_mean(mean: float, sd: float) -> None:
    """E[exp h] = exp(mean + sd²/2), and each derivative by the mean brings down an sd."""
    rate, y = math.exp(mean + 0.5 * sd * sd), 3
    out = on_the_line("Poisson", mean, sd)
    truth = np.array([y * mean - rate, sd * (y - rate), sd * sd * rate])
    assert worst(out, truth) < 1e-7
    assert worst(out, truth) <= out.error < RULE.reported(jnp.dtype("float64"))


@cache
def truth_of(name: str, mean: float, sd: float) -> np.ndarray:
    """SciPy's expectations for one of the likelihoods."""
    _, plain, breaks = LIKELIHOODS[name]
    return by_scipy(plain, mean, sd, breaks)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_scalar_likelihoods_against_scipy(name: str) -> None:
    """To 1e-6 on beliefs from narrow to wide, kinks at unknown places included, and the estimate covers the error."""
    for mean, sd in CAVITIES:
        out, truth = on_the_line(name, mean, sd), truth_of(name, mean, sd)
        assert worst(out, truth) < 1e-6, (mean, sd)
        assert worst(out, truth) <= out.error + 1e-10, (mean, sd)  # the error of SciPy's integrals
        assert out.error < RULE.report, (mean, sd)


def test_a_batch_gives_what_each_belief_gives() -> None:
    means, sds = (jnp.asarray(a) for a in zip(*CAVITIES, strict=True))
    laplace = LIKELIHOODS["Laplace"][0]
    together = jax.jit(jax.vmap(lambda m, s: RULE(lambda h: laplace(h[0]), m[None], s[None, None])))(means, sds)
    alone = LINE("Laplace", 0.0, means, sds)
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", VANISHING)
def test_there_is_no_limit_where_the_factor_vanishes(name: str) -> None:
    """log_z = -inf, which the kernel refuses."""
    assert on_the_line(name, 2.0, 3.0).log_z == -jnp.inf


def test_a_kink_known_in_advance_costs_nothing() -> None:
    """With its landmark given a Laplace likelihood is exact: E|u| and the like, in closed form."""
    scale, at = 0.1, 0.2
    landmarks = Landmarks(jnp.array([jnp.nan, at]), 0)
    out = message(lambda h: -jnp.abs(h[0] - at) / scale, 0.3, 1.0, landmarks=landmarks)
    z = 0.3 - at  # in sds
    density, mass = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi), math.erf(z / math.sqrt(2))
    truth = np.array([-(2 * density + z * mass), -mass, 2 * density]) / scale
    assert worst(out, truth) < 1e-12


def test_a_certain_field_gets_no_message() -> None:
    """sd 0: the factor is a number."""
    out = message(lambda h: -jnp.abs(h[0]), 1.5, 0.0, landmarks=Landmarks(jnp.array([0.0]), 0))
    assert_allclose([out.log_z, out.slope[0], out.precision[0, 0]], [-1.5, 0.0, 0.0], atol=1e-13)


def test_too_few_nodes_are_refused() -> None:
    """The error is estimated from the last coefficients."""
    with pytest.raises(ValueError, match="at least 24"):
        Variational(nodes=10)


# ------------------------------------------------------------------------------------------ several numbers


def test_a_sum_over_two_numbers_is_two_messages() -> None:
    """Log-factors that add up in independent numbers give their own messages side by side."""
    sds = np.array([0.5, 1.2])
    means = np.array([0.4, -0.3])
    out = message(lambda h: 2 * h[0] - jnp.exp(h[0]) - jnp.logaddexp(0.0, h[1]), means, np.diag(sds))
    rate = math.exp(means[0] + 0.5 * sds[0] ** 2)
    truth = np.stack(
        [
            [2 * means[0] - rate, sds[0] * (2 - rate), sds[0] ** 2 * rate],
            by_scipy(lambda h: -np.logaddexp(0.0, h), means[1], sds[1], [0.0]),
        ]
    )
    assert_allclose(out.log_z, truth[:, 0].sum(), rtol=1e-10)
    assert_allclose(out.slope, truth[:, 1], rtol=1e-8)
    assert_allclose(out.precision, np.diag(truth[:, 2]), rtol=1e-8, atol=1e-9)
    assert out.error < 1e-6


def test_a_scale_of_a_hierarchy_is_right() -> None:
    """log N(w | mu, exp(s)) in (w, mu, s): everything is a Gaussian or a log-normal expectation."""
    mean = np.array([0.5, -0.2, 0.1])
    root = np.array([[0.6, 0, 0], [0.1, 0.4, 0], [0.15, -0.1, 0.5]])
    out = message(lambda h: -h[2] - 0.5 * (h[0] - h[1]) ** 2 * jnp.exp(-2 * h[2]), mean, root)
    # under u, exp(-2 s) tilts the Gaussian: mean moves by -2 cov(., s), weight exp(-2 m + 2 v)
    weight = math.exp(-2 * mean[2] + 2 * root[2] @ root[2])
    d = root[0] - root[1]  # d·u is the spread of w - mu
    gap = mean[0] - mean[1] - 2 * d @ root[2]
    square = gap**2 + d @ d
    assert_allclose(out.log_z, -mean[2] - 0.5 * weight * square, rtol=1e-6)
    # E[∇(a b)] in the tilted Gaussian: gradients of -s - (w - mu)² e^(-2s) / 2
    slope = -root[2] - weight * gap * d + weight * square * root[2]
    assert_allclose(out.slope, slope, rtol=1e-6)
    outer = np.outer(d, root[2])
    precision = weight * (np.outer(d, d) - 2 * gap * (outer + outer.T) + 2 * square * np.outer(root[2], root[2]))
    assert_allclose(out.precision, precision, atol=1e-5)
    assert out.error < RULE.reported(jnp.dtype("float64"), 3)


def test_a_gaussian_in_four_numbers_is_exact() -> None:
    """A quadratic is its own projection, at however few points."""
    rng = np.random.default_rng(3)
    root, half = np.tril(rng.normal(size=(4, 4))), rng.normal(size=(4, 4))
    mean, at, matrix = rng.normal(size=4), rng.normal(size=4), half @ half.T
    out = message(lambda h: -0.5 * (h - at) @ jnp.asarray(matrix) @ (h - at), mean, root, Variational(points=256))
    assert_allclose(out.slope, root.T @ matrix @ (at - mean), rtol=1e-10)
    assert_allclose(out.precision, root.T @ matrix @ root, rtol=1e-10)
    expected = (mean - at) @ matrix @ (mean - at) + np.trace(root.T @ matrix @ root)
    assert_allclose(out.log_z, -0.5 * expected, rtol=1e-10)
    assert out.error < 1e-9


def test_rates_in_five_numbers_are_near() -> None:
    """-exp of an affine function: a log-normal mean; the error stays below its estimate, and both are small."""
    a, sd = np.array([0.5, -0.3, 0.2, 0.4, -0.1]), np.full(5, 0.8)
    out = message(lambda h: -jnp.exp(h @ a), np.zeros(5), np.diag(sd))
    s = a * sd
    rate = math.exp(0.5 * s @ s)
    slope_error = np.abs(out.slope + rate * s).max()
    precision_error = np.abs(out.precision - rate * np.outer(s, s)).max()
    assert abs(out.log_z + rate) < 1e-3 and slope_error < 2e-3 and precision_error < 5e-3
    assert max(slope_error, precision_error) / 2 <= out.error < RULE.reported(jnp.dtype("float64"), 5)


def test_points_are_many_enough_for_the_quadratics() -> None:
    """A field of 12 numbers has 91 coefficients: 64 points become more."""
    out = message(lambda h: -0.5 * h @ h, np.ones(12), np.eye(12), Variational(points=64))
    assert_allclose(out.precision, np.eye(12), atol=1e-10)
    assert normal_points(64, 2).shape == (64, 2)


# ----------------------------------------------------------------------------------------------- precision


@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_float32_is_right_to_its_digits(name: str) -> None:
    """The same beliefs in single precision, with the dtype kept and nothing marked."""
    for mean, sd in CAVITIES:
        out = on_the_line(name, mean, sd, jnp.float32)
        assert {a.dtype for a in jax.tree.leaves(out)} == {jnp.dtype("float32")}
        assert worst(out, truth_of(name, mean, sd)) < 2e-4, (mean, sd)
        assert out.error < RULE.reported(jnp.dtype("float32")), (mean, sd)


@pytest.mark.usefixtures("float32")
def test_float32_survives_a_large_constant() -> None:
    """A large constant in log f is taken out before it costs digits."""
    out = on_the_line("large", 0.3, 1.0, jnp.float32)
    assert_allclose([out.slope[0], out.precision[0, 0]], [0.7, 1.0], atol=5e-3)
    assert_allclose(out.log_z, 5000.0 - 0.5 * (0.49 + 1.0), rtol=1e-6)
