"""Curves of a teacher that turns, and the learners that are held against them."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import dblquad, solve_ivp

from adfpp.papers.laboratory.drift.followers import with_rate
from adfpp.papers.laboratory.drift.tracking import candidates
from adfpp.papers.theory import drift as theory
from adfpp.papers.theory.channel import information
from adfpp.papers.theory.perceptron import optimal_online

pytestmark = pytest.mark.papers


def test_spherical_without_drift_is_the_optimal_online_curve() -> None:
    """At a negligible drift the course is the optimal online curve."""
    alpha = np.array([0.1, 1.0, 10.0])
    np.testing.assert_allclose(theory.spherical_course(alpha, 1e-12), optimal_online(alpha).error, rtol=1e-6)
    noisy = theory.spherical_course(alpha, 1e-12, 0.5, 0.1)
    np.testing.assert_allclose(noisy, optimal_online(alpha, 0.5, 0.1).error, rtol=1e-6)


@pytest.mark.parametrize("flip", [0.0, 0.1])
def test_courses_end_in_the_steady_states(flip: float) -> None:
    """At large α the courses are at the steady states."""
    best = theory.best_rate(0.05, flip)
    assert theory.spherical_course(400.0, 0.05, flip=flip) == pytest.approx(float(theory.spherical(0.05, flip=flip)))
    course = theory.constant_rate_course(400.0, 0.05, float(best.rate), flip)
    assert course == pytest.approx(float(best.error), rel=1e-6)


def test_spherical_course_is_the_equation_for_q() -> None:
    """Another solver of dq/dα = (1 − q)² I(1 − q) − 2·drift·q gives the same error."""

    def slope(alpha: float, q: np.ndarray) -> np.ndarray:
        return (1 - q) ** 2 * information(1 - q, 0.0, 0.1) - 2 * 0.03 * q

    solved = solve_ivp(slope, (0.0, 5.0), [0.0], method="DOP853", rtol=1e-10, atol=1e-12)
    expected = math.acos(math.sqrt(solved.y[0, -1])) / math.pi
    assert theory.spherical_course(5.0, 0.03, flip=0.1) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("flip", [0.0, 0.2])
def test_constant_rate_against_integrals_over_the_fields(flip: float) -> None:
    """dρ/dα from its definition, by quadrature over both fields, vanishes with the drift at the steady state."""
    drift, rate = 0.04, 0.5
    theta = math.pi * float(theory.constant_rate(drift, rate, flip))
    rho = math.cos(theta)

    def edge(h: float) -> float:
        """The z at which b changes its sign."""
        return float(np.clip(-rho * h / math.sin(theta), -12.0, 12.0))

    def mean(of: Callable[[float, float, float], float]) -> float:
        """Mean over h and z, b = ρh + √(1 − ρ²)z, and over flips of the label; split where the signs change."""
        total = 0.0
        for turned, chance in ((1.0, 1.0 - flip), (-1.0, flip)):
            if chance == 0.0:
                continue

            def f(z: float, h: float, turned: float = turned) -> float:
                b = rho * h + math.sin(theta) * z
                label = turned * math.copysign(1.0, b)
                wrong = label * h < 0
                return wrong * of(h, b, label) * math.exp(-0.5 * (h * h + z * z)) / (2 * math.pi)

            for low, high in ((-9.0, 0.0), (0.0, 9.0)):
                total += chance * dblquad(f, low, high, -12.0, edge)[0]
                total += chance * dblquad(f, low, high, edge, 12.0)[0]
        return total

    pull = mean(lambda h, b, label: label * (b - rho * h))
    wrong = mean(lambda h, b, label: 1.0)
    assert rate * pull - 0.5 * rate**2 * rho * wrong - drift * rho == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("flip", [0.0, 0.1])
def test_best_rate_is_the_best(flip: float) -> None:
    """No rate on a fine grid has a smaller error."""
    rates = np.geomspace(0.05, 5.0, 2001)
    for drift in (0.003, 0.3):
        best = theory.best_rate(drift, flip)
        errors = theory.constant_rate(drift, rates, flip)
        assert float(best.error) <= errors.min() <= float(best.error) * (1 + 1e-5)
        assert float(best.rate) == pytest.approx(rates[errors.argmin()], rel=0.01)


def test_laws_at_small_drift() -> None:
    """At a drift of 1e-9 the errors are at their laws within 1e-4."""
    adf, rule = theory.small_drift(1e-9)
    assert float(theory.spherical(1e-9)) == pytest.approx(float(adf), rel=1e-4)
    assert float(theory.best_rate(1e-9).error) == pytest.approx(float(rule), rel=1e-4)


@pytest.mark.parametrize("call", [lambda: theory.spherical(0.0), lambda: theory.constant_rate(0.1, -1.0)])
def test_refusals(call: Callable[[], object]) -> None:
    """Numbers that are not positive are refused."""
    with pytest.raises(ValueError, match="above 0"):
        call()


def test_followers_are_moved_as_the_teacher_is() -> None:
    """After rows without information (x = 0), the belief is where the transition of each dynamics puts it."""
    size, drift, setting = 3, 0.2, 0
    with jax.enable_x64(True):
        some = candidates(size, np.array([[drift, 0.0]]))
        x, y = jnp.eye(size)[:1], jnp.ones(1)
        nothing = jnp.zeros((4, size))
        for name, decay, spread in (
            ("ADF", math.exp(-4 * drift / size), lambda v, k: k**2 * v + 1 - k**2),
            ("ADF, spherical", math.exp(-4 * drift / size), lambda v, k: k**2 * v + 1 - k**2),
            ("ADF, random walk", 1.0, lambda v, k: v + 4 * 2 * drift / size),
            ("ADF, discount", 1.0, lambda v, k: v * math.exp(4 * drift ** (2 / 3) / size)),
            ("ADF, static", 1.0, lambda v, k: v),
        ):
            follower = some[name]
            dt = follower.settings[0, setting]
            learned = follower.update(follower.state, x, y, 0.1, dt)
            later = follower.update(learned, nothing, jnp.ones(4), 0.1, dt)
            np.testing.assert_allclose(later.belief.mean, decay * learned.belief.mean, rtol=1e-10)
            before, after = (
                np.diag(np.atleast_2d(b.scale @ b.scale.T)) if np.ndim(b.scale) == 2 else b.scale**2
                for b in (learned.belief, later.belief)
            )
            np.testing.assert_allclose(after, spread(np.asarray(before), decay), rtol=1e-10)


def test_perceptron_with_a_given_rate() -> None:
    """The weights are those of a loop in NumPy."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 4)), rng.integers(0, 2, 20).astype(float)
    with jax.enable_x64(True):
        follower = with_rate(4, np.array([[0.7]]))
        weights = np.asarray(follower.read(follower.state), float)
        actual = follower.read(follower.update(follower.state, jnp.asarray(x), jnp.asarray(y), 0.0, 0.7))
    for row, label in zip(x, 2 * y - 1, strict=True):
        if label * (weights @ row) <= 0:
            weights = weights + 0.7 / 4 * label * row
        weights = weights / np.linalg.norm(weights)
    np.testing.assert_allclose(actual, weights, rtol=1e-6)
