"""Opper's page: laws at many rows and the curve of full ADF, against integrals and simulations made without them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from adfpp.papers.laboratory import mean_and_error
from adfpp.papers.laboratory.opper import laws as opper_laws
from adfpp.papers.laboratory.opper import threshold
from adfpp.papers.laboratory.opper.perceptron import control_variate
from adfpp.papers.theory.asymptotics import nearest_probit, probit_link
from adfpp.papers.theory.channel import information
from adfpp.papers.theory.covariance import full_online, full_online_constant
from adfpp.papers.theory.perceptron import bayes_batch, cramer_rao_threshold, optimal_online

pytestmark = pytest.mark.papers

# The nearest probit


def test_the_truth_is_nearest_to_itself() -> None:
    """For labels of a probit, the nearest model has the length of the teacher, no floor, and A = B = J."""
    for length, noise, flip in ((1.3, 0.7, 0.0), (2.0, 1.0, 0.1)):
        actual = nearest_probit(probit_link(length, noise, flip), noise, flip)
        np.testing.assert_allclose(actual.length, length, rtol=1e-12)
        np.testing.assert_allclose(actual.floor, 0.0, atol=1e-14)
        np.testing.assert_allclose(actual.score, actual.curvature, rtol=1e-11)
        np.testing.assert_allclose(actual.fisher, actual.curvature, rtol=1e-11)
        assert actual.plugged_in(4) == pytest.approx(4.0) == actual.predictive(4)


def test_the_nearest_probit_is_least_by_scipy() -> None:
    """Length, floor and A along θ* follow from the relative entropy, integrated and minimised by SciPy."""
    link, noise = probit_link(2.0, 1.0, 0.1), 0.8

    def entropy(length: float) -> float:
        def integrand(z: float) -> float:
            g = float(link(np.array(z)))
            u = length * z / noise
            return float(norm.pdf(z)) * (g * (np.log(g) - log_ndtr(u)) + (1 - g) * (np.log1p(-g) - log_ndtr(-u)))

        return 2.0 * quad(integrand, 0.0, 12.0, epsabs=1e-13, epsrel=1e-12, limit=200)[0]

    actual = nearest_probit(link, noise)
    least: Any = minimize_scalar(entropy, bounds=(0.1, 3.0), method="bounded", options={"xatol": 1e-10})
    np.testing.assert_allclose(actual.length, least.x, rtol=1e-6)
    np.testing.assert_allclose(actual.floor, least.fun, rtol=1e-10)
    bent = sum(w * entropy(actual.length + s * 1e-2) for s, w in ((-2, -1), (-1, 16), (0, -30), (1, 16), (2, -1)))
    np.testing.assert_allclose(actual.curvature.along, bent / 12e-4, rtol=1e-6)
    assert actual.score.along > 1.3 * actual.curvature.along
    np.testing.assert_allclose(actual.score.across, actual.curvature.across, rtol=1e-11)


def test_matrices_are_averages_over_drawn_rows() -> None:
    """A and B in three dimensions as means of 400 000 outer products, within 4 standard errors."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(400_000, 3))
    link = probit_link(2.0, 1.0, 0.1)
    sign = np.where(rng.random(len(x)) < link(x[:, 0]), 1.0, -1.0)
    actual = nearest_probit(link)
    u = sign * actual.length * x[:, 0]
    hazard = np.exp(norm.logpdf(u) - log_ndtr(u))
    for matrix, factor in ((actual.curvature, hazard * (hazard + u)), (actual.score, hazard**2)):
        products = factor[:, None, None] * x[:, :, None] * x[:, None, :]
        error = products.std(0) / np.sqrt(len(x))
        expected = np.diag([matrix.along, matrix.across, matrix.across])
        assert np.abs((products.mean(0) - expected) / error).max() < 4.0


def test_separated_labels_have_no_nearest_probit() -> None:
    """Labels without noise have no nearest probit, because a longer θ is always nearer."""
    with pytest.raises(ValueError, match="separates"):
        nearest_probit(lambda z: (z > 0).astype(float))


@pytest.mark.parametrize("case", opper_laws.CASES, ids=lambda case: case.name)
def test_entropic_laws_follow_from_the_normal_law_of_the_mean(case: opper_laws.Case) -> None:
    """With θ̂ ~ N(θ*, A⁻¹BA⁻¹/t) and C = A⁻¹/t: Tr(BA⁻¹)/2t plugged in, N/2t of the predictive distribution."""
    t, actual = 1e6, case.theory
    width = np.diag([actual.curvature.inverse().along] + 2 * [actual.curvature.inverse().across]) / t
    spread = np.sqrt(np.diag([actual.sandwich.along] + 2 * [actual.sandwich.across]) / t)
    steps, chances = np.polynomial.hermite_e.hermegauss(3)
    grid = np.stack([a.ravel() for a in np.meshgrid(steps, steps, steps, indexing="ij")], -1)
    weights = np.prod(np.meshgrid(*3 * [chances / chances.sum()], indexing="ij"), 0).ravel()
    means = actual.length * np.eye(3)[0] + grid @ spread
    for covariance, law in ((None, actual.plugged_in(3)), (np.tile(width, (27, 1, 1)), actual.predictive(3))):
        # from the error at θ* itself, so that the rule's own error is not multiplied by 2t
        least = opper_laws.entropic_error(case, actual.length * np.eye(3)[:1], None)
        excess = 2 * t * (weights @ opper_laws.entropic_error(case, means, covariance) - least[0])
        np.testing.assert_allclose(excess, law, rtol=2e-3)


def test_entropic_error_is_the_integral() -> None:
    """A belief that differs from the teacher in its length only leaves one integral, which SciPy computes."""
    for case in opper_laws.CASES:
        mean, variance, link = 1.2, 0.3, probit_link(case.length, flip=case.flip)
        model = probit_link(1.0, flip=case.known)

        def integrand(z: float, link=link, model=model, mean=mean, variance=variance) -> float:
            g, p = (float(f) for f in (link(np.array(z)), model(np.array(mean * z / np.sqrt(1 + variance * z * z)))))
            return float(norm.pdf(z)) * (g * np.log(g / p) + (1 - g) * np.log((1 - g) / (1 - p)))

        expected = 2.0 * quad(integrand, 0.0, 8.0, epsabs=1e-12, limit=200)[0]
        covariance = np.diag([variance, 0.0, 0.0])[None]
        actual = opper_laws.entropic_error(case, mean * np.eye(3)[:1], covariance)
        np.testing.assert_allclose(actual, expected, atol=2e-7)


def test_limit_of_what_is_learned_by_rows() -> None:
    """Terms (a + b ln t)/t are removed exactly, for any last time."""
    times = 100 * 2 ** np.arange(9)
    values = np.stack([c + (a + b * np.log(times)) / times for c, a, b in ((2.0, -30.0, 7.0), (0.6, 80.0, 0.0))])
    for last in (-1, -3):
        np.testing.assert_allclose(opper_laws.limit(times, values, last), [2.0, 0.6], rtol=1e-12)


# The curve of full ADF


@pytest.mark.parametrize(("noise", "flip"), [(0.0, 0.0), (0.8825, 0.0), (0.3, 0.05)])
def test_full_online_solves_its_equation(noise: float, flip: float) -> None:
    """1/G = 1 + ∫ dα' E k/(1 − k(G' − G)) at α = 3, each row's average by SciPy."""
    alpha = 3.0
    nodes, weights = np.polynomial.legendre.leggauss(16)
    # rows come at α' = α s², where the integrand is smooth in s
    s, weights = 0.5 * (1.0 + nodes), 0.5 * weights
    gaps = 1.0 - full_online(alpha * s**2, noise, flip).overlap
    now = 1.0 - float(full_online(alpha, noise, flip).overlap)

    def information_of_row(gap: float) -> float:
        spread = gap + noise**2
        variance = (1 - gap) / spread

        def integrand(u: float) -> float:
            chance = flip + (1 - 2 * flip) * ndtr(u)
            hazard = (1 - 2 * flip) * np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi) / chance
            bend = hazard * (hazard + u)
            density = np.exp(-0.5 * u**2 / variance) / np.sqrt(2 * np.pi * variance)
            return float(2 * density * chance * bend / (spread - bend * (gap - now)))

        return sum(quad(integrand, *piece, epsabs=1e-11, limit=200)[0] for piece in ((-20, -2), (-2, 2), (2, 20)))

    total = sum(w * 2 * alpha * at * information_of_row(gap) for at, w, gap in zip(s, weights, gaps, strict=True))
    np.testing.assert_allclose(1.0 / now, 1.0 + total, rtol=2e-6)


def test_full_online_lies_between_batch_and_spherical() -> None:
    """The order holds at all α; with few rows full ADF agrees with batch Bayes, and with noise also at large α."""
    alpha = np.logspace(-4, 3, 15)
    for noise in (0.0, 0.8825):
        batch, full, spherical = (f(alpha, noise).error for f in (bayes_batch, full_online, optimal_online))
        assert (batch < full).all() and (full < spherical).all()
        np.testing.assert_allclose(full[0], batch[0], rtol=1e-4)
    np.testing.assert_allclose(full[-1], batch[-1], rtol=1e-3)
    first = float(full_online(1e-9, 0.5).signal) / 1e-9
    np.testing.assert_allclose(first, information(1.0, 0.5), rtol=1e-6)


def test_constants_of_the_noise_free_laws() -> None:
    """Error times α at large α: the closed form and the curve agree, with w instead of the logarithm, and with 2w."""
    np.testing.assert_allclose(1e5 * full_online(1e4).error / 10, full_online_constant(), rtol=3e-4)
    np.testing.assert_allclose(1e5 * full_online(1e5).error, full_online_constant(), rtol=3e-5)

    def weight(u: float) -> float:
        hazard = np.exp(norm.logpdf(u) - log_ndtr(u))
        return float(norm.cdf(u) * hazard * (hazard + u))

    spherical = np.sqrt(2 / np.pi) / sum(quad(weight, *piece)[0] for piece in ((-20, -2), (-2, 2), (2, 20)))
    np.testing.assert_allclose(1e5 * bayes_batch(1e5).error, spherical / 2, rtol=1e-4)
    np.testing.assert_allclose(1e5 * optimal_online(1e5).error, spherical, rtol=1e-4)


def test_full_online_is_what_equations_7_give() -> None:
    """(7.1)-(7.2) in plain NumPy at N = 60, noise-free and noisy, within 4 standard errors and 1.5/N."""
    rng = np.random.default_rng(5)
    runs, size, alpha = 48, 60, 4
    for noise in (0.0, 0.8825):
        teacher = rng.normal(size=(runs, size))
        mean, covariance = np.zeros((runs, size)), np.tile(np.eye(size), (runs, 1, 1))
        for _ in range(alpha * size):
            x = rng.normal(size=(runs, size)) / np.sqrt(size)
            sign = np.sign((x * teacher).sum(1) + noise * rng.normal(size=runs))
            pushed = np.einsum("rij,rj->ri", covariance, x)
            spread = (pushed * x).sum(1) + noise**2
            u = sign * (mean * x).sum(1) / np.sqrt(spread)
            hazard = np.exp(norm.logpdf(u) - log_ndtr(u))
            mean += (sign * hazard / np.sqrt(spread))[:, None] * pushed
            covariance -= (hazard * (hazard + u) / spread)[:, None, None] * pushed[:, :, None] * pushed[:, None, :]
        cosine = (mean * teacher).sum(1) / np.linalg.norm(mean, axis=1) / np.linalg.norm(teacher, axis=1)
        theory = full_online(alpha, noise)
        for values, expected in (
            (np.arccos(cosine) / np.pi, theory.error),
            (np.trace(covariance, axis1=1, axis2=2) / size, 1.0 - theory.overlap),
        ):
            apart = values.mean() / expected - 1.0
            assert abs(apart) < 4 * values.std() / np.sqrt(runs) / expected + 1.5 / size


def test_full_online_refuses_what_it_has_no_table_for() -> None:
    """Negative α, and α beyond the table, are refused."""
    for alpha in (-1.0, 1e9):
        with pytest.raises(ValueError, match="rows per weight"):
            full_online(alpha)


# The threshold


def test_threshold_gradient_and_exact_bayes() -> None:
    """One natural step is computed by hand; the posterior mean on the grid is that of SciPy's quadrature."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, 300)
    y = (x - threshold.THRESHOLD + threshold.SPREAD * rng.normal(size=300) > 0).astype(float)
    with jax.enable_x64(True):
        start, update = threshold.threshold_gradient(4.0)
        theta, count = update(start, (jnp.asarray([0.3]), jnp.asarray([1.0])))
        (log_belief, learn), mean_of = threshold.exact_threshold()
        mean = float(mean_of(learn(log_belief, (jnp.asarray(x), jnp.asarray(y)))))
    step = -norm.pdf(0.6) / norm.cdf(0.6) / 0.5 * float(cramer_rao_threshold(1, 0.0, 0.5)) / 5.0
    np.testing.assert_allclose(float(theta), step, rtol=1e-10)
    assert count == 1

    def posterior(value: float) -> float:
        return float(np.exp(log_ndtr((2 * y - 1) * (x - value) / 0.5).sum() - 0.5 * value**2 + 130.0))

    moments = [quad(lambda v, k=k: v**k * posterior(v), -0.8, 1.0, epsabs=0, limit=200)[0] for k in (0, 1)]
    np.testing.assert_allclose(mean, moments[1] / moments[0], atol=1e-7)


def test_late_gradient_is_the_variance_of_the_linear_recursion() -> None:
    """The recursion ε ← (1 − γ) ε + γ ξ from −θ*, row by row, has the stated variance."""
    information, delay, square, times = 1.7, 10.0, threshold.THRESHOLD**2, np.arange(1, 201)
    squares = []
    for t in times:
        rate = 1 / (t + delay)
        square = (1 - rate) ** 2 * square + rate**2 / information
        squares.append(t * information * square)
    np.testing.assert_allclose(threshold.late_gradient(times, delay, information), squares, rtol=1e-12)


# EP beside ADF


def test_few_runs_helped_by_many() -> None:
    """Over repetitions the mean is unbiased and its error is right, each within 4 standard errors."""
    rng = np.random.default_rng(6)
    repeats, checked, runs = 4000, 12, 40
    common, own, other = (rng.normal(size=(runs, repeats)) for _ in range(3))
    some, many = 1.0 + common + 0.2 * own, 3.0 + common + 0.3 * other
    mean, error = control_variate(some[:checked], many)
    assert abs(mean.mean() - 1.0) < 4 * mean.std() / np.sqrt(repeats)
    apart = (mean - 1.0) ** 2 - error**2
    assert abs(apart.mean()) < 4 * apart.std() / np.sqrt(repeats)
    assert error.mean() < 0.75 * (some[:checked].std(0, ddof=1) / np.sqrt(checked)).mean()
    for actual, expected in zip(control_variate(some, many), mean_and_error(some), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_curves_see_the_rows_that_ep_sees() -> None:
    """The first keys into which a key is split do not depend on their number."""
    few, many = (jax.random.key_data(jax.random.split(jax.random.key(4), n)) for n in (8, 512))
    np.testing.assert_array_equal(few, many[:8])
