"""The experiments on the incremental risk functional: their exact parts."""

from collections.abc import Callable

import jax
import numpy as np
import pytest
from scipy.integrate import quad

from adfpp.papers.baselines import IRMA, Fourier, GradientDescent, Polynomial
from adfpp.papers.laboratory import EXPERIMENTS, Bench
from adfpp.papers.laboratory.irma.curves import (
    DOMAIN,
    GRID,
    NOISE,
    Entry,
    baseline_entry,
    course_of,
    draw_rows,
    learn_all,
    prior_root,
    target,
)
from adfpp.papers.theory.regression import Course, irma_course, least_error, normalised_gradient_course

pytestmark = pytest.mark.papers


def powers(x: np.ndarray) -> np.ndarray:
    """The functions 1, x and x²."""
    return x[..., None] ** np.arange(3)


def brute(course: Course, rows: int, step: Callable[[np.ndarray, np.ndarray, float, int], np.ndarray]) -> None:
    """Compares a course with the mean over all streams whose inputs are on a grid and whose noise has two values."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    at, weights = 1.5 * (1.0 + nodes), 0.5 * weights
    thetas, chances = np.zeros((1, 3)), np.ones(1)
    features = powers(at)
    for count in range(1, rows + 1):
        predicted = thetas @ features.T  # (streams, x)
        gap = np.mean([(target(at) + s * NOISE - predicted) ** 2 for s in (-1.0, 1.0)], 0)
        np.testing.assert_allclose(course.loss[count - 1], chances @ gap @ weights, rtol=1e-8)
        new, mass = [], []
        for sign in (-1.0, 1.0):
            for x, y, w in zip(features, target(at) + sign * NOISE, weights, strict=True):
                new.append(np.array([step(theta, x, y, count) for theta in thetas]))
                mass.append(0.5 * w * chances)
        thetas, chances = np.concatenate(new), np.concatenate(mass)
        off = (thetas @ features.T - target(at)) ** 2
        np.testing.assert_allclose(course.error[count - 1], chances @ off @ weights, rtol=1e-8)


def test_course_of_irma_is_the_mean_over_all_streams() -> None:
    """By enumeration of two rows, with equation (8) and a Gram matrix on another domain."""
    gram = np.array([[quad(lambda x, k=i + j: x**k, -0.2, 3.1)[0] for j in range(3)] for i in range(3)])

    def step(theta: np.ndarray, x: np.ndarray, y: float, count: int) -> np.ndarray:
        lam = 0.2 * 1.3 ** (count - 1)
        return np.linalg.solve(gram + np.outer(x, x) / lam, gram @ theta + x * y / lam)

    brute(irma_course(powers, target, 2, NOISE, lam=0.2, growth=1.3, gram_domain=(-0.2, 3.1)), 2, step)


def test_course_of_the_gradient_is_the_mean_over_all_streams() -> None:
    """By enumeration of two rows, with rate and ridge."""

    def step(theta: np.ndarray, x: np.ndarray, y: float, count: int) -> np.ndarray:
        return theta + 0.7 * ((y - theta @ x) * x - 0.3 * theta) / (x @ x + 0.3)

    brute(normalised_gradient_course(powers, target, 2, NOISE, rate=0.7, ridge=0.3), 2, step)


def test_courses_and_baselines_are_of_the_same_algorithms() -> None:
    """The mean over 400 runs of 12 rows agrees within 4 standard errors, so the settings of the two agree."""
    for learner in (IRMA(Fourier(1)), GradientDescent(Fourier(1))):
        entry = baseline_entry(learner)
        at = learner.basis.values(GRID, np)

        def one(rng_key: jax.Array, entry: Entry = entry, at: np.ndarray = at) -> jax.Array:
            return ((learn_all(entry, *draw_rows(rng_key, 12)) @ at.T - target(GRID)) ** 2).mean(1)

        with jax.enable_x64(True):
            error = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 400)))
        doubt = error.std(0, ddof=1) / 20
        assert np.all(np.abs(error.mean(0) - course_of(learner).error[:12]) < 4 * doubt)
        assert np.all(doubt < 0.12 * error.mean(0))


def test_least_error() -> None:
    """The best line through the target, by normal equations with adaptive quadrature."""

    def integral(f: Callable[[float], float]) -> float:
        return quad(f, *DOMAIN, epsabs=1e-13)[0]

    a = np.array([[3.0, 4.5], [4.5, 9.0]])
    b = np.array([integral(target), integral(lambda x: x * target(x))])
    c = np.linalg.solve(a, b)
    expected = integral(lambda x: (target(x) - c[0] - c[1] * x) ** 2) / 3
    assert least_error(lambda x: x[:, None] ** np.arange(2), target) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("length", [0.0, 1.0])
def test_prior_of_curves(length: float) -> None:
    """UᵀU is proportional to the Gram matrices of φ and φ'', and the mean variance of the curve is 1/4."""
    with jax.enable_x64(True):
        root = prior_root(Polynomial(3), length)
    values = [lambda x, k=k: x**k for k in range(4)]
    bends = [lambda x, k=k: k * (k - 1) * x ** max(k - 2, 0) for k in range(4)]

    def gram(f: list[Callable[[float], float]]) -> np.ndarray:
        return np.array([[quad(lambda x, a=a, b=b: a(x) * b(x), *DOMAIN)[0] for b in f] for a in f])

    expected = gram(values) + length**4 * gram(bends)
    actual = root.T @ root
    np.testing.assert_allclose(actual / actual[0, 0], expected / expected[0, 0], rtol=1e-9, atol=1e-9)
    assert np.trace(np.linalg.solve(actual, gram(values))) / 3 == pytest.approx(0.25, rel=1e-9)


def test_kernel_experiment_passes() -> None:
    """IRMA and RLS agree with ADF's update to rounding error."""
    with jax.enable_x64(True):
        actual = EXPERIMENTS["irma-kernel"].run(Bench(quick=True))
    held = [f for f in actual.findings if f.held]
    assert len(held) == 11 and all(f.passes for f in held)
    (reported,) = (f for f in actual.findings if not f.held)
    assert reported.entry == "ADF, covariance reset" and "order 10" in reported.what and 1e-5 < reported.value < 1e-2
