"""What the experiments on dichotomies are held against: averages, fixed points and laws by other ways to them."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

import adfpp
from adfpp.papers.baselines import Constant, Perceptron
from adfpp.papers.laboratory.dichotomies import centred, laws, smooth
from adfpp.papers.laboratory.students import flip_perceptron, perceptron
from adfpp.papers.theory import dichotomies as theory
from adfpp.papers.theory.bona import bona
from adfpp.papers.theory.perceptron import (
    annealed_perceptron,
    annealed_perceptron_law,
    constant_rate_floor,
    output_noise_law,
)

pytestmark = pytest.mark.papers

Floats = NDArray[np.float64]


# ------------------------------------------------------------------------------------------ averages over rows


@pytest.mark.parametrize(
    ("r", "q", "q0"),
    [(0.3, 0.5, -1.0), (0.9, -2.0, -1.95), (-0.4, 0.0, 1.0), (0.5, 0.0, -1.0), (0.5, -1.0, 0.0), (0.2, 0.0, 0.0)],
)
def test_disagreement_is_a_bivariate_normal(r: float, q: float, q0: float) -> None:
    """SciPy's joint distribution function gives the same probability, for centred and other inputs."""
    joint = multivariate_normal(np.array([q, q0]), np.array([[1.0, r], [r, 1.0]]))  # pyright: ignore[reportArgumentType]
    expected = norm.cdf(-q) + norm.cdf(-q0) - 2 * joint.cdf([0.0, 0.0])
    np.testing.assert_allclose(theory.disagreement(r, q, q0), expected, atol=1e-7)


def test_disagreement_keeps_its_digits_close_to_the_teacher() -> None:
    """At a small angle α to the teacher, in the plane across the centre, the probability is φ(q0) α √(2/π)."""
    angle = 1e-6
    actual = theory.disagreement(math.cos(angle), -1.3 * math.cos(angle), -1.3)
    np.testing.assert_allclose(actual, norm.pdf(1.3) * angle * math.sqrt(2 / math.pi), rtol=1e-4)


def averages(r: float, q: float, q0: float, flip: float) -> Floats:
    """⟨ε⟩, ⟨εσ⟩, ⟨εσ h0⟩ and ⟨εσ h⟩ by an integral over the teacher's field; the student's field given it is normal."""
    width = math.sqrt(1 - r * r)

    def part(y: float, what: int) -> float:
        h0, total = q0 + y, 0.0
        mean = q + r * y
        for label in (-1.0, 1.0):
            chance = 1 - flip if label * h0 > 0 else flip
            wrong = float(norm.cdf(-label * mean / width))
            field = mean * wrong - label * width * float(norm.pdf(mean / width))  # E[h; label·h < 0]
            total += chance * (wrong, label * wrong, label * wrong * h0, label * field)[what]
        return total * float(norm.pdf(y))

    def whole(what: int) -> float:
        edges = [-9.0, -q0, 9.0]
        return sum(
            quad(part, a, b, args=(what,), epsabs=1e-12, limit=200)[0]
            for a, b in zip(edges[:-1], edges[1:], strict=True)
        )

    return np.array([whole(i) for i in range(4)])


@pytest.mark.parametrize(("r", "q"), [(0.4875, -2.5), (0.95, -1.7), (0.2, 0.6)])
def test_motion_is_the_average_of_the_rules(r: float, q: float) -> None:
    """The slopes are averages of equations (2) and (10), normalised, without the identity εσ = (σ − sgn h)/2."""
    q0, length, flip = -1.2, 3.0, 0.2
    wrong, sign, along_teacher, along_student = averages(r, q, q0, flip)
    np.testing.assert_allclose(theory.balance(q, q0, flip), sign, rtol=1e-8)
    np.testing.assert_allclose(flip + (1 - 2 * flip) * theory.disagreement(r, q, q0), wrong, rtol=1e-8)
    # the row along the centre, given both fields: linear in them
    to_teacher, to_student = np.linalg.solve([[1, r], [r, 1]], [q0, q])
    fields = along_teacher - q0 * sign, along_student - q * sign
    along_centre = length**2 * sign + to_teacher * fields[0] + to_student * fields[1]
    step = 2 * norm.pdf(q0) / math.erf(q0 / math.sqrt(2))  # of (13): T = U + step W0
    shift = np.array([q0 + step, q + step * r, length**2 + step * q0])
    for shifted in (False, True):
        taken = sign * shift * shifted
        moved = np.array([along_teacher, along_student, along_centre]) - taken
        expected = [moved[0] - r * moved[1], moved[2] - q * moved[1], 0.0]
        actual = theory.motion(np.array([r, q, 0.0]), flip, length, q0, shifted)
        np.testing.assert_allclose(actual, expected, atol=1e-9)


# ------------------------------------------------------------------------------------------ the perceptron, clean


def test_constant_rate_ends_at_the_fixed_point() -> None:
    """The equation tends to the fixed point, which is law (5) at small η, and differences decay at the stated rate."""
    rate = np.array([1e-4, 0.3, 2.0])
    end = theory.constant_rate_error(rate)
    np.testing.assert_allclose(end[0], constant_rate_floor(1e-4), rtol=1e-6)
    actual = [theory.normalised_perceptron(200.0, lambda _, r=r: r) for r in rate[1:]]
    np.testing.assert_allclose(actual, end[1:], rtol=1e-7)
    np.testing.assert_allclose(theory.constant_rate_relaxation(1e-4), 1e-4 / math.sqrt(2 * math.pi), rtol=1e-4)
    near = [
        theory.normalised_perceptron(np.array([8.0, 9.0]), lambda _: 2.0, float(end[2]) * (1 + s)) for s in (0, 1e-3)
    ]
    fall = np.log((near[1] - near[0])[0] / (near[1] - near[0])[1])
    np.testing.assert_allclose(fall, theory.constant_rate_relaxation(2.0), rtol=1e-2)


@pytest.mark.parametrize("rate", [4.0, 1.5])
def test_annealed_equation_reaches_law_6(rate: float) -> None:
    """From α = 0 with a cap and from α = 1 without one, the error tends to (6), at η0 = 1.5 as α^(1 − η0)."""
    pace = math.sqrt(2 * math.pi)
    alpha = np.array([1e4, 1e6])
    actual = theory.normalised_perceptron(alpha, laws.capped(lambda a: rate * pace / a, 2.0))
    law = annealed_perceptron_law(alpha, rate)
    # what is left of the start: A α^(-η0) against law/α
    np.testing.assert_allclose(actual, law, rtol=2e-2 if rate < 2 else 1e-5)
    np.testing.assert_allclose(annealed_perceptron(alpha, rate), law, rtol=2e-2 if rate < 2 else 1e-5)
    assert abs(actual[1] / law[1] - 1) < 2e-3


def test_spread_of_the_annealed_perceptron() -> None:
    """N var/mean² and the mean of e α at η0 = 2, N = 40, agree with 2000 students in plain NumPy."""
    rng, size, runs, alpha = np.random.default_rng(3), 40, 2000, 30
    w = rng.normal(size=(runs, size))
    for n in range(1, alpha * size + 1):
        x = rng.normal(size=(runs, size))
        sign = np.sign(x[:, 0])
        wrong = np.einsum("ij,ij->i", w, x) * sign <= 0
        w[wrong] += (2 * math.sqrt(2 * math.pi) / n * sign[:, None] * x)[wrong]
        w /= np.linalg.norm(w, axis=1, keepdims=True)
    error = np.arccos(w[:, 0]) / math.pi
    spread = theory.annealed_spread(2.0)
    np.testing.assert_allclose(size * error.var() / error.mean() ** 2, spread, rtol=0.15)
    expected = annealed_perceptron(float(alpha), 2.0, start=0.02) * (1 - spread / size)
    assert abs(error.mean() - expected) < 3.5 * error.std() / runs**0.5
    assert error.std() / runs**0.5 < 0.5 * spread / size * expected
    np.testing.assert_allclose(theory.annealed_spread(1e9), 2 - math.pi / 2)


# ------------------------------------------------------------------------------------------ output noise


def test_law_18_in_both_readings() -> None:
    """At η0 = 2 the law is the disagreement for a known T, and the error on noisy labels for a learned T."""
    alpha, flip = np.array([10.0, 300.0]), 0.2
    law = output_noise_law(alpha, flip) - flip
    np.testing.assert_allclose(theory.shifted_law(alpha, flip, learned=False), law, rtol=1e-12)
    np.testing.assert_allclose((1 - 2 * flip) * theory.shifted_law(alpha, flip), law, rtol=1e-12)
    with pytest.raises(ValueError, match="eta0"):
        theory.shifted_law(alpha, flip, 1.0)


@pytest.mark.parametrize("learned", [False, True])
def test_shifted_equations_reach_their_law(learned: bool) -> None:
    """At α = 1e6, after a start 40° off, the equations are at their law."""
    q0, length, flip, alpha, eta0 = -1.0, 2.0, 0.1, 1e6, 3.0
    rate = laws.capped(lambda a: eta0 / (2 * float(norm.pdf(q0)) * a), 0.3)
    shift = "learned" if learned else "known"
    actual = theory.output_noise(alpha, rate, flip, length, q0, 0.77, -1.8, shift)
    np.testing.assert_allclose(actual.apart, theory.shifted_law(alpha, flip, eta0, learned), rtol=5e-3)
    np.testing.assert_allclose(actual.error, flip + (1 - 2 * flip) * actual.apart)


def test_without_a_shift_the_rule_ends_elsewhere() -> None:
    """At a small rate the rule tends to the stated limit, which to first order in p is (9) with the exact E|c + z|."""
    q0, length = -1.95, 4.0
    limit = theory.output_noise_limit(0.2, length, q0)
    actual = theory.output_noise(3e6, lambda _: 1e-4, 0.2, length, q0, 0.9, -2.0, "none")
    np.testing.assert_allclose([actual.overlap, actual.centre], [limit.overlap, limit.centre], rtol=5e-4)
    c = math.sqrt(length**2 - q0**2)
    away = c * math.erf(c / math.sqrt(2)) + 2 * norm.pdf(c)
    first = math.erf(abs(q0) / math.sqrt(2)) * c * away / (1 + c * c)
    limit = theory.output_noise_limit(1e-5, length, q0)
    np.testing.assert_allclose(limit.apart / 1e-5, first, rtol=1e-3)
    np.testing.assert_allclose(first, math.erf(abs(q0) / math.sqrt(2)) / (1 + 1 / c**2), rtol=1e-3)


def test_shifted_rule_leaves_from_the_wrong_side() -> None:
    """Started along U, where the teacher's labels are negative, the rule moves away: it converges locally only."""
    q0 = -1.95
    actual = theory.output_noise(50.0, lambda _: 0.1, 0.2, 4.0, q0, -0.4875, 4.0, "known")
    assert actual.apart > 0.9


def test_told_flips_are_those_of_the_shared_model() -> None:
    """A flip probability that is an argument gives the same belief as one that is a constant of the model."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 3)), (rng.uniform(size=64) > 0.5).astype(float)
    with jax.enable_x64(True):
        beliefs: list[Any] = []
        for model, args in ((flip_perceptron, (x, 0.2)), (perceptron(0.0, 0.2), (x,))):
            adf = adfpp.ADF(model)
            state, _ = adf.update(adf.init(jax.random.key(0), *args, y=y), *args, y=y)
            beliefs.append(state.belief)
        np.testing.assert_allclose(beliefs[0].mean, beliefs[1].mean, rtol=1e-10)
        np.testing.assert_allclose(beliefs[0].scale, beliefs[1].scale, rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------------------------------ smooth functions


def test_triangle_of_a_threshold() -> None:
    """The stationary error of δ' = δ − η sgn(δ) with probability |Φ(δ) − 1/2|, by powers of its matrix on a grid."""
    rate, cells = 0.02, 50
    delta = np.arange(-2 * cells, 2 * cells) * rate / cells + rate / (2 * cells)
    leave = np.abs(norm.cdf(delta) - 0.5)
    chain = np.diag(1 - leave)
    target = np.arange(len(delta)) - np.sign(delta).astype(int) * cells
    chain[target, np.arange(len(delta))] += leave
    inside = np.where(np.abs(delta) < rate, 1.0, 0.0)
    mass = np.linalg.matrix_power(chain, 1 << 20) @ (inside / inside.sum())
    np.testing.assert_allclose(mass @ leave, theory.threshold_floor(rate), rtol=1e-3)


def test_circle_noise_law_is_its_recursion() -> None:
    """Spring and noise are sums over a grid of rows, and the second moment follows row by row."""
    flip, rate, rows = 0.1, 5.0, 200_000
    angle = (np.arange(20_000) + 0.5) * 2 * math.pi / 20_000
    # of the first weight, at s1 = 0: f = sin(s2 − w), the teacher's w being 0
    f0, off = np.sin(angle), 0.1
    drift = [
        np.mean(0.5 * ((1 - 2 * flip) * np.sign(f0) - np.sign(np.sin(angle - d))) * -np.cos(angle - d))
        for d in (-off, 0.0, off)
    ]
    spring = (drift[0] - drift[2]) / 2 / math.sin(off)
    noise = flip * np.mean(np.cos(angle) ** 2)
    assert abs(drift[1]) < 1e-4  # noise does not move the end
    moment = 0.0
    for n in range(20, rows):
        moment = (1 - rate / n * spring) ** 2 * moment + (rate / n) ** 2 * noise
    hypot = quad(lambda s: math.hypot(1, s) * float(norm.pdf(s)), -9, 9)[0]
    expected = math.sqrt(2 * moment / math.pi) / math.pi * hypot
    np.testing.assert_allclose(theory.circle_noise_law(rows, flip, rate), expected, rtol=2e-3)
    with pytest.raises(ValueError, match="rate"):
        theory.circle_noise_law(rows, flip, 1.0)


def test_noise_moves_the_end_of_a_line() -> None:
    """For b(s) = s: w/√(1 + w²) = (1 − 2p) w0/√(1 + w0²); without noise the limit is the teacher."""
    actual, _ = theory.affine_noise_limit(lambda s: s[:, None], [1.3], 0.1)
    sine = 0.8 * 1.3 / math.hypot(1, 1.3)
    np.testing.assert_allclose(actual, [sine / math.sqrt(1 - sine**2)], rtol=1e-6)
    at_rest, apart = theory.affine_noise_limit(lambda s: np.asarray(smooth.wave_features(s)), [0.8, 1.2], 0.0)
    np.testing.assert_allclose([*at_rest, apart], [0.8, 1.2, 0.0], atol=1e-6)


@pytest.mark.parametrize("name", ["wave", "tanh", "phase"])
def test_apart_is_the_share_of_rows(name: str) -> None:
    """The probability is the share of 200,000 rows on which weights and teacher differ, within 3.5 standard errors."""
    task = smooth.TASKS[name]
    with jax.enable_x64(True):
        weights = jnp.asarray(task.teacher + np.array([0.3, -0.25]))
        x, y = task.draw(jax.random.key(1), 200_000)
        share = float(jnp.mean((task.f(x, weights) > 0) != y))
        expected = float(task.apart(weights))
        assert float(task.apart(jnp.asarray(task.teacher))) < 1e-12
    assert abs(share - expected) < 3.5 * math.sqrt(expected / 200_000)


def test_students_start_where_they_are_told() -> None:
    """At a rate of nearly 0 the error stays at that of the start."""
    rule = Perceptron(Constant(1e-12))
    with jax.enable_x64(True):
        actual = centred.students_of({"still": rule}, 20, 10, 2, 0.07)(jax.random.key(0))
    np.testing.assert_allclose(actual["still"], 0.07, rtol=1e-9)


def test_rows_are_learned_in_parts() -> None:
    """Errors of streams drawn in two parts are on the curves, within 3.5 sds √(0.9/N) of a run (`annealed_spread`)."""
    assert [centred.parts_of(*sizes) for sizes in ((4000, 1000), (5010, 1000), (1000, 250), (1000, 500))] == [
        16,
        30,
        1,
        2,
    ]
    size, alpha = 500, np.array([2.0, 4.0, 6.0])
    with jax.enable_x64(True):
        run = centred.students_of({"rule": Perceptron()}, size, 2 * size, 3, adf=("spherical",))
        actual = jax.jit(run)(jax.random.key(0))
    for name, curve in (("rule", annealed_perceptron(alpha, start=1 / size)), ("ADF, spherical", bona(alpha).error)):
        np.testing.assert_allclose(actual[name], curve, rtol=3.5 * math.sqrt(0.9 / size))


# ------------------------------------------------------------------------------------------ figures and their errors


def test_exponent_and_its_error() -> None:
    """The exponent is that of the mean errors; its error is that of a thousand bootstrap samples, within 15%."""
    rng, time = np.random.default_rng(0), np.array([10.0, 20.0, 160.0])
    error = rng.gamma(3.0, 1.0, (400, 1)) * rng.gamma(5.0, 1.0, (400, 3)) * time**-1.5
    actual = laws.exponent("exponent", "a rule", error, time, 1)

    def plainly(some: Floats) -> float:
        return float(np.log(some[:, 1].mean() / some[:, 2].mean()) / np.log(8.0))

    assert actual.value == pytest.approx(plainly(error), rel=1e-12)
    assert actual.runs == 400
    again = [plainly(error[rng.integers(0, 400, 400)]) for _ in range(1000)]
    assert actual.se == pytest.approx(np.std(again), rel=0.15)


def test_small_rates_are_compared_at_the_same_time() -> None:
    """Errors η F(ηn) have the ratio 2 for any F, also before they are stationary; errors η² F(ηn) have the ratio 4."""
    rng, looks = np.random.default_rng(0), np.arange(1, 17)
    each = rng.uniform(0.9, 1.1, (50, 1))
    for power, ratio in ((1, 2.0), (2, 4.0)):
        whole, half = (each * eta**power * (1 + np.exp(-eta * looks)) for eta in (0.1, 0.05))
        (actual,), line = smooth.small_rates("wave", 0.1, whole, half)
        assert actual.value == pytest.approx(ratio, rel=1e-12)
        assert actual.passes is (power == 1)
        lower, upper = np.asarray(line.y)
        np.testing.assert_allclose(upper / lower, ratio)


def test_a_law_is_held_only_where_its_next_order_falls() -> None:
    """2 + 3/√α passes at 1e6 after 1e4; a figure that tends to 2.1, or does not converge, fails."""
    near, far = 2 + 3 * np.array([1e4, 1e6]) ** -0.5
    assert laws.tends("a", "b", (near, far), 2.0, 0.5).passes
    for last in (2.1, near, 2.0 + 2.5 * (far - 2.0)):
        assert laws.tends("a", "b", (near, last), 2.0, 0.5).passes is False
