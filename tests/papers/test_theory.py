"""Learning curves: figures of the papers, integrals by SciPy, and small simulations in plain NumPy."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import dblquad, quad
from scipy.special import erfc, log_ndtr
from scipy.stats import norm

from adfpp.papers.theory import ising, perceptron
from adfpp.papers.theory.bona import bona, bona_beta_law, bona_drift
from adfpp.papers.theory.channel import evidence_rate, information

Floats = NDArray[np.float64]
CHANNELS = [(0.0, 0.0), (0.5, 0.0), (0.0, 0.1), (0.3, 1e-3), (2.0, 0.3)]
SEEDS = 8


def average(f: Callable[[float], float], variance: float) -> float:
    """E f(u), u ~ N(0, variance), by SciPy's adaptive quadrature in pieces."""
    scale = np.sqrt(variance)
    edges = [-38.0 * scale, *(e for e in (-8.0, -2.0, 0.0, 2.0, 8.0) if abs(e) < 38.0 * scale), 38.0 * scale]
    pieces = [
        quad(lambda u: f(u) * norm.pdf(u, scale=scale), low, high, epsabs=1e-13, epsrel=1e-11, limit=200)[0]
        for low, high in zip(edges[:-1], edges[1:], strict=True)
    ]
    return float(np.sum(pieces))


# The channel


@pytest.mark.parametrize(("noise", "flip"), CHANNELS)
@pytest.mark.parametrize("q", [0.01, 0.5, 0.99])
def test_channel_is_the_average_over_rows(q: float, noise: float, flip: float) -> None:
    """Information and evidence of a label agree with adaptive quadrature."""
    spread = 1.0 - q + noise**2

    def label(u: float) -> float:
        return flip + (1.0 - 2.0 * flip) * float(norm.cdf(u))

    def squared_score(u: float) -> float:
        slope = (1.0 - 2.0 * flip) * norm.pdf(u)
        return float(slope**2 * (1.0 / label(u) + 1.0 / label(-u)) / spread) if abs(u) < 37 else 0.0

    def entropy(u: float) -> float:
        return sum(label(s * u) * np.log(label(s * u)) for s in (-1, 1) if label(s * u) > 0)

    actual = information(1.0 - q, noise, flip), evidence_rate(1.0 - q, noise, flip)
    expected = average(squared_score, q / spread), average(entropy, q / spread)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


@pytest.mark.parametrize(("noise", "flip"), CHANNELS)
def test_evidence_grows_by_half_the_information(noise: float, flip: float) -> None:
    """dΨ/dq = I/2, by central differences; Ψ goes from −ln 2 to minus the entropy of the noise."""
    gap, step = np.array([0.9, 0.4, 0.1]), 1e-5
    slope = (evidence_rate(gap - step, noise, flip) - evidence_rate(gap + step, noise, flip)) / (2 * step)
    np.testing.assert_allclose(slope, information(gap, noise, flip) / 2, rtol=1e-7)
    np.testing.assert_allclose(evidence_rate(1.0, noise, flip), -np.log(2))
    if noise == 0:
        entropy = -flip * np.log(flip) - (1 - flip) * np.log(1 - flip) if flip else 0.0
        np.testing.assert_allclose(evidence_rate(0.0, noise, flip), -entropy, atol=1e-15)


def test_information_diverges_where_a_noise_free_label_is_certain() -> None:
    """I √(1 − q) tends to a constant for the step, also at gaps below the rounding error of q."""
    gap = np.array([1e-12, 1e-60, 1e-250])
    scaled = information(gap) * np.sqrt(gap)
    np.testing.assert_allclose(scaled, scaled[0], rtol=1e-10)
    assert information(0.0) == np.inf
    assert np.isfinite(information(0.0, 0.1))


@pytest.mark.parametrize(("noise", "flip"), [(-1.0, 0.0), (np.inf, 0.0), (0.0, 0.5), (0.0, -0.1)])
def test_impossible_channels_are_refused(noise: float, flip: float) -> None:
    """A negative noise, and flips that leave no information in a label, are refused."""
    with pytest.raises(ValueError, match="noise|flip"):
        ising.bayes_batch(1.0, noise, flip)


# The Ising perceptron


@pytest.mark.parametrize("signal", [1e-3, 0.3, 2.0, 30.0])
def test_ising_gap(signal: float) -> None:
    """Both forms of the overlap, E tanh and E tanh² over N(q̂, q̂), and the gap of large signals to all digits."""
    actual = 1.0 - ising.gap(signal)
    root = np.sqrt(signal)
    np.testing.assert_allclose(actual, average(lambda z: float(np.tanh(signal + root * z)), 1.0), rtol=1e-9)
    np.testing.assert_allclose(actual, average(lambda z: float(np.tanh(signal + root * z)) ** 2, 1.0), rtol=1e-9)
    # e^{−q̂/2} ∫ sech λ dλ/√(2πq̂) = e^{−q̂/2} √(π/2q̂) for large signals
    np.testing.assert_allclose(ising.gap(1000.0), np.exp(-500.0) * np.sqrt(np.pi / 2000.0), rtol=2e-3)


def test_ising_transition_of_the_step() -> None:
    """Known since 1990: the posterior jumps at α = 1.245, and the uninformed state vanishes at 1.493."""
    actual = ising.transition()
    assert actual is not None
    np.testing.assert_allclose(actual.equilibrium, 1.245, atol=5e-4)
    np.testing.assert_allclose(actual.vanishes, 1.493, atol=5e-4)
    assert actual.appears == 0.0
    curve = ising.bayes_batch([1.24, 1.25, 1.49, 1.4950])
    np.testing.assert_array_equal(curve.equilibrium.overlap == 1.0, [False, True, True, True])
    np.testing.assert_array_equal(curve.low.overlap == 1.0, [False, False, False, True])
    np.testing.assert_allclose(curve.high.free_entropy, -np.log(2))


def test_ising_transition_needs_little_noise() -> None:
    """The transition is at larger α with noise and flips; noise on the field of 0.2 makes it smooth."""
    quiet, noisy, flipped = ising.transition(), ising.transition(0.1), ising.transition(0.0, 0.1)
    assert quiet is not None and noisy is not None and flipped is not None
    assert 1.0 < noisy.appears < noisy.equilibrium < noisy.vanishes
    assert quiet.equilibrium < noisy.equilibrium < flipped.equilibrium
    assert ising.transition(0.2) is None


@pytest.mark.parametrize(
    ("alpha", "noise", "flip"), [(1.0, 0.0, 0.0), (1.53, 0.1, 0.0), (2.0, 0.5, 0.0), (2.0, 0.0, 0.1)]
)
def test_ising_branches_are_the_ends_of_iteration(alpha: float, noise: float, flip: float) -> None:
    """Iterating q̂ ← α I(q) from q = 0 and from q = 1 converges to the low and to the high branch."""
    actual = ising.bayes_batch(alpha, noise, flip)
    for branch, gap in ((actual.low, 1.0), (actual.high, 0.0)):
        for _ in range(300):
            signal = alpha * information(gap, noise, flip)
            gap = float(ising.gap(signal))
        np.testing.assert_allclose(branch.gap, gap, rtol=1e-8)


@pytest.mark.parametrize(("noise", "flip"), [(0.0, 0.0), (0.5, 0.0), (0.2, 0.1)])
def test_ising_free_entropy_is_stationary(noise: float, flip: float) -> None:
    """Along a branch dΦ/dα = Ψ(q), because the contributions of q̂ cancel."""
    alpha, step = np.array([0.3, 1.0]), 1e-5
    below, at, above = (ising.bayes_batch(alpha + s, noise, flip).low for s in (-step, 0.0, step))
    slope = (above.free_entropy - below.free_entropy) / (2 * step)
    np.testing.assert_allclose(slope, evidence_rate(at.gap, noise, flip), rtol=1e-8)
    np.testing.assert_allclose(ising.bayes_batch(0.0, noise, flip).low.free_entropy, 0.0, atol=1e-12)


@pytest.mark.parametrize(("noise", "flip"), CHANNELS)
def test_ising_online_solves_its_equation(noise: float, flip: float) -> None:
    """dq̂/dα = I(q) by central differences, from no signal at α = 0; batch Bayes has the smaller gap at any α."""
    assert ising.adf_online(0.0, noise, flip).signal == 0.0
    alpha, step = np.array([1e-3, 0.5, 1.0, 3.0]), 1e-5
    below, at, above = (ising.adf_online(alpha + s, noise, flip) for s in (-step, 0.0, step))
    slope = (above.signal - below.signal) / (2 * step)
    np.testing.assert_allclose(slope, information(at.gap, noise, flip), rtol=1e-6)
    assert np.all(at.gap > ising.bayes_batch(alpha, noise, flip).low.gap)


def test_ising_online_knows_the_teacher_at_last() -> None:
    """Without noise on the field the signal diverges at a finite α; with noise it does not."""
    curve = ising.adf_online([4.3, 4.4])
    assert 0 < curve.gap[0] < 1e-2
    assert curve.gap[1] == curve.error[1] == curve.wrong_bits[1] == curve.clipped_error[1] == 0
    noisy = ising.adf_online([10.0, 5000.0], 0.5)
    assert np.all(np.isfinite(noisy.signal))
    assert np.all(np.diff(noisy.signal) > 0)


def learn_signs(
    rule: str, noise: float, flip: float, alphas: tuple[float, ...], size: int = 400
) -> list[tuple[Floats, Floats]]:
    """Overlaps and shares of wrong bits at each α, (SEEDS,), of ADF with a product of Bernoulli beliefs."""
    rng = np.random.default_rng(5)
    teacher = rng.choice([-1.0, 1.0], (SEEDS, size))
    logit = np.zeros((SEEDS, size))
    actual = []
    for t in range(1, round(max(alphas) * size) + 1):
        x = rng.standard_normal((SEEDS, size)) / np.sqrt(size)
        label = np.sign(np.sum(x * teacher, axis=1) + noise * rng.standard_normal(SEEDS))
        label *= np.where(rng.random(SEEDS) < flip, -1.0, 1.0)
        mean = np.tanh(logit)
        share = x**2 * (1.0 - mean**2)
        field, variance = np.sum(x * mean, axis=1), np.sum(share, axis=1)
        if rule == "without the weight":  # the label's log odds between w_i = 1 and −1, the others a Gaussian field
            rest = field[:, None] - x * mean
            sd = np.sqrt(variance[:, None] - share + noise**2)

            def log_label(
                sign: float, rest: Floats = rest, sd: Floats = sd, x: Floats = x, y: Floats = label
            ) -> Floats:
                step = log_ndtr(y[:, None] * (rest + sign * x) / sd)
                return np.log(flip + (1.0 - 2.0 * flip) * np.exp(step)) if flip else step

            logit = logit + 0.5 * (log_label(1.0) - log_label(-1.0))
        else:  # first order, the weight's own part left in the field
            sd = np.sqrt(variance + noise**2)
            u = label * field / sd
            ratio = np.exp(norm.logpdf(u) - log_ndtr(u))
            logit = logit + x * (label * ratio / sd)[:, None]
        if any(t == round(alpha * size) for alpha in alphas):
            actual.append((np.mean(np.tanh(logit) * teacher, axis=1), np.mean(np.sign(logit) != teacher, axis=1)))
    return actual


def deviation(sample: Floats, expected: float) -> float:
    """Difference between the sample's mean and `expected`, in standard errors."""
    return float(abs(sample.mean() - expected) / (sample.std(ddof=1) / np.sqrt(sample.size)))


@pytest.mark.papers
@pytest.mark.parametrize(("noise", "flip"), [(0.0, 0.0), (0.5, 0.0), (0.2, 0.1)])
def test_ising_online_curve_is_what_a_simulation_does(noise: float, flip: float) -> None:
    """Overlap and wrong bits of eight learners of 400 weights, within 4 standard errors."""
    alphas = (0.5, 1.0, 2.0)
    curve = ising.adf_online(alphas, noise, flip)
    for k, (overlap, wrong) in enumerate(learn_signs("without the weight", noise, flip, alphas)):
        assert deviation(overlap, curve.overlap[k]) < 4
        assert deviation(wrong, curve.wrong_bits[k]) < 4


@pytest.mark.papers
def test_ising_online_needs_the_field_without_the_weight() -> None:
    """With the weight's own part left in the field the first-order rule learns much more slowly."""
    ((overlap, _),) = learn_signs("with the weight", 0.5, 0.0, (2.0,))
    assert overlap.mean() < ising.adf_online(2.0, 0.5).overlap - 0.05
    assert deviation(overlap, float(ising.adf_online(2.0, 0.5).overlap)) > 8


def test_ising_errors_follow_from_the_overlap() -> None:
    """Errors are arccos and Φ of overlap and signal; the Bayes rule beats clipping, and batch beats online."""
    batch, online = ising.bayes_batch([0.5, 1.2]).low, ising.adf_online([0.5, 1.2])
    for curve in (batch, online):
        np.testing.assert_allclose(curve.error, np.arccos(np.sqrt(curve.overlap)) / np.pi)
        np.testing.assert_allclose(curve.wrong_bits, norm.sf(np.sqrt(curve.signal)))
        np.testing.assert_allclose(curve.clipped_error, np.arccos(1 - 2 * curve.wrong_bits) / np.pi)
        assert np.all(curve.error < curve.clipped_error)
    assert np.all(batch.error < online.error)
    wrong, error = ising.clipped(np.sqrt(perceptron.optimal_online([0.5, 1.2]).overlap))
    assert np.all(online.clipped_error < error)
    np.testing.assert_allclose(wrong, norm.sf(np.sqrt(perceptron.optimal_online([0.5, 1.2]).signal)))


# The perceptron with real weights


def test_batch_bayes_figures() -> None:
    """Opper's Figure 2, noise² = 0.7788, and the Bayes rule without noise, to the known digits."""
    alpha = np.array([1.0, 2.0, 4.0, 6.0, 8.0, 10.0])
    expected = [0.3206, 0.2618, 0.2002, 0.1671, 0.1460, 0.1311]
    np.testing.assert_allclose(perceptron.bayes_batch(alpha, np.sqrt(0.7788)).error, expected, atol=5.1e-5)
    alpha = np.array([1.0, 2.0, 4.0, 10.0, 300.0])
    expected = [0.2544, 0.3491, 0.4091, 0.4357, 0.4417]
    np.testing.assert_allclose(alpha * perceptron.bayes_batch(alpha).error, expected, atol=5.1e-5)


def test_bona_figures() -> None:
    """Corrected, (22) gives the errors of simulations, 0.88/α and ζα² → 7.7; as printed it gives no constant."""
    alpha = np.array([1.0, 2.0, 5.0, 10.0, 50.0, 1000.0])
    curve = bona(alpha)
    np.testing.assert_allclose(alpha * curve.error, [0.2711, 0.4085, 0.5980, 0.7117, 0.8423, 0.8812], atol=5.1e-5)
    np.testing.assert_allclose(curve.width[-1] * alpha[-1] ** 2, 7.66, atol=6e-3)
    np.testing.assert_allclose(bona(1000.0, as_printed=True).error, 2.80 / 1000, atol=5e-6)


def test_bona_from_the_prior_is_the_optimum() -> None:
    """The letter's three equations and dq̂/dα = I give the same curve, on which Q + ζ = 1 and ρ² = Q."""
    alpha = np.array([0.01, 1.0, 30.0, 1e4, 1e6])
    curve, best = bona(alpha), perceptron.optimal_online(alpha)
    np.testing.assert_allclose(curve.error, best.error, rtol=1e-6)
    np.testing.assert_allclose(curve.length + curve.width, 1.0, rtol=1e-7)
    np.testing.assert_allclose(curve.overlap**2, curve.length, rtol=1e-7)
    wider = bona(alpha, width=9.0)
    np.testing.assert_allclose(wider.error, curve.error, rtol=1e-6)
    np.testing.assert_allclose(wider.width, 9 * curve.width, rtol=1e-6)


def test_bona_recovers_from_a_wrong_start() -> None:
    """A confident belief in a wrong direction has a larger error at first, and the same law at large α."""
    alpha = np.array([1.0, 1e6])
    wrong, right = bona(alpha, length=4.0, width=0.5, overlap=0.05), bona(alpha)
    assert wrong.error[0] > 1.2 * right.error[0]
    np.testing.assert_allclose(wrong.error[1], right.error[1], rtol=1e-3)
    np.testing.assert_allclose(bona(0.0, length=4.0, width=0.5, overlap=0.05).width, 0.5)
    with pytest.raises(ValueError, match="overlap with the teacher"):
        bona(alpha, length=1.0)


def whole(f: Callable[[float], float]) -> float:
    """∫ f over the line by SciPy, in pieces; f is below 1e-40 beyond 12."""
    edges = [-12.0, -4.0, -1.0, -0.2, 0.0, 0.2, 1.0, 4.0, 12.0]
    parts = [quad(f, a, b, epsabs=0, epsrel=1e-10, limit=200)[0] for a, b in zip(edges[:-1], edges[1:], strict=True)]
    return float(np.sum(parts))


@pytest.mark.parametrize("state", [(0.3, 0.7, 0.4), (0.9, 0.05, 0.95), (2.0, 0.5, 0.1)])
def test_bona_drift_is_the_letters_equations(state: tuple[float, float, float]) -> None:
    """The slopes are (17), (18) and (22) in the letter's variables, with the 2 of (22) corrected and as printed."""
    length, width, rho = state
    r, ratio = 1.0 / rho**2 - 1.0, length / width

    def big(t: float) -> float:  # e^{−Qt²/ζ}/erfc(−t√(Q/ζ))
        return float(np.exp(-ratio * t**2 - np.log(2.0) - log_ndtr(np.sqrt(2.0 * ratio) * t)))

    def agree(t: float) -> float:
        return float(np.exp(-(t**2)) * erfc(-t / np.sqrt(r)) * big(t))

    root = np.sqrt(ratio)
    longer = 2 * width / np.pi * whole(lambda t: agree(t) * (2 * t * root + big(t) / np.sqrt(np.pi)))
    wider = -2 * width / np.pi * whole(lambda t: agree(t) * (t * root + big(t) / np.sqrt(np.pi)))
    first = 2 * rho / np.pi**1.5 * np.sqrt(r / ratio) * whole(lambda t: np.exp(-(t**2) - t**2 / r) * big(t))
    second = rho / (np.pi**1.5 * ratio) * whole(lambda t: agree(t) * big(t))
    angle = np.arccos(rho)
    for as_printed in (False, True):
        actual = bona_drift(length, width, angle, as_printed=as_printed)
        np.testing.assert_allclose(actual[:2], [longer, wider], rtol=1e-8)
        np.testing.assert_allclose(-np.sin(angle) * actual.angle, first - (1 + as_printed) * second, rtol=1e-8)


@pytest.mark.papers
def test_bona_erratum_is_an_average_of_21() -> None:
    """The corrected (22) is the average of (21) over both fields and the teacher's labels, by SciPy."""
    length, width, rho = 0.4, 0.6, 0.5

    def gained(teacher: float, student: float) -> float:  # both labels alike: that of 1, twice
        z = student * np.sqrt(length / width)
        force = np.exp(-0.5 * z**2 - np.log(2.0) - log_ndtr(z))
        pull = np.sqrt(2 * width / (np.pi * length)) * (teacher - rho * student) * force
        chance = norm.pdf(student) * norm.pdf(teacher, rho * student, np.sqrt(1 - rho**2))
        return float(2 * chance * (pull - rho * width / (np.pi * length) * force**2))

    expected = dblquad(gained, -9, 9, 0, 9, epsabs=1e-10)[0]
    angle = np.arccos(rho)
    right, printed = (bona_drift(length, width, angle, as_printed=k).angle for k in (False, True))
    np.testing.assert_allclose(-np.sin(angle) * right, expected, rtol=1e-7)
    assert abs(np.sin(angle) * printed + expected) > 0.3 * expected


@pytest.mark.parametrize("q", [1e-3, 0.4, 0.99, 1 - 1e-6])
def test_bona_as_printed_stands_still_where_the_belief_is_right(q: float) -> None:
    """Where Q = ρ² and ζ = 1 − Q the two terms of (22) as printed cancel; corrected it is dq = (1 − q)² I dα."""
    angle = np.arctan2(np.sqrt(1 - q), np.sqrt(q))
    right = bona_drift(q, 1 - q, angle)
    printed = bona_drift(q, 1 - q, angle, as_printed=True)
    assert abs(printed.angle) < 1e-9 * abs(right.angle)
    gained = (1 - q) ** 2 * information(1 - q)
    np.testing.assert_allclose(-2 * np.sin(angle) * np.cos(angle) * right.angle, gained, rtol=1e-9)
    np.testing.assert_allclose([right.length, -right.width], gained, rtol=1e-9)


def panels(edges: Floats) -> tuple[Floats, Floats]:
    """Nodes and weights of Gauss–Legendre rules between some distances from 0, on both sides."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    half = 0.5 * np.diff(edges)[:, None]
    right, part = (edges[:-1, None] + half * (1.0 + nodes)).ravel(), (half * weights).ravel()
    return np.concatenate([-right, right]), np.concatenate([part, part])


@pytest.mark.parametrize(("beta", "state"), [(0.3, (0.2, 0.9, 0.5)), (2.0, (0.8, 0.3, 0.9)), (40.0, (0.5, 0.5, 0.7))])
def test_bona_drift_at_finite_beta(beta: float, state: tuple[float, float, float]) -> None:
    """g and g′ from the moments of the tilted field, (mean − τ)/ζ and (variance − ζ)/ζ², by Gauss–Legendre panels."""
    length, width, rho = state
    angle, sd = np.arccos(rho), np.sqrt(width)

    def tilted(tau: float) -> tuple[float, float]:
        h, part = panels(sd * np.array([0.0, 0.03, 0.15, 0.6, 2.0, 5.0, 20.0]))
        log = -0.5 * (h - tau) ** 2 / width - beta * np.maximum(0.0, -h)
        chance = part * np.exp(log - log.max())
        chance /= chance.sum()
        mean = chance @ h
        return (mean - tau) / width, (chance @ (h - mean) ** 2 - width) / width**2

    u, part = panels(np.array([0.0, 0.1, 0.5, 2.0, 5.0, 10.0]))
    weight = 2.0 * part * norm.pdf(u)
    slope, bend = np.array([tilted(np.sqrt(length) * v) for v in u]).T
    seen = weight * norm.cdf(u / np.tan(angle))
    turn = weight * norm.pdf(u / np.tan(angle))
    expected = [
        np.sum(seen * (2 * width * np.sqrt(length) * u * slope + width**2 * slope**2)),
        np.sum(seen * width**2 * bend),
        width / np.sqrt(length) * np.sin(angle) * np.sum(turn * slope)
        - rho * width**2 / (2 * length) * np.sum(seen * slope**2),
    ]
    actual = bona_drift(length, width, angle, beta)
    np.testing.assert_allclose([actual.length, actual.width, -np.sin(angle) * actual.angle], expected, rtol=1e-8)


def test_bona_at_finite_beta_between_two_limits() -> None:
    """At large β/√ζ the curve is that of the step; later it has the law α^(−3/4), with a next term of α^(−1/4)."""
    alpha = np.array([0.1, 3.0, 100.0])
    cold, step = bona(alpha, beta=1e6), bona(alpha)
    np.testing.assert_allclose(cold.error, step.error, rtol=1e-6)
    np.testing.assert_allclose(cold.width, step.width, rtol=1e-3)
    for beta in (0.3, 5.0):
        far = np.array([1e6, 1e9])
        curve = bona(far, beta=beta)
        apart = curve.error / bona_beta_law(far, beta, curve.length[-1]) - 1.0
        assert np.all(np.abs(apart) < [2e-2, 2e-3])
        np.testing.assert_allclose(curve.width * far * beta, np.sqrt(2 * np.pi * curve.length), rtol=1e-2)


def cosine(w: Floats, teacher: Floats) -> Floats:
    """Cosine between the rows of two arrays, (SEEDS,)."""
    return np.sum(w * teacher, axis=1) / np.linalg.norm(w, axis=1) / np.linalg.norm(teacher, axis=1)


@pytest.mark.papers
def test_optimal_online_is_what_a_simulation_does() -> None:
    """Spherical ADF, (9.4) of Opper, of a ±1 teacher with noise: its error, and the wrong signs of its mean."""
    size, noise, alpha = 400, 0.5, 3.0
    rng = np.random.default_rng(6)
    teacher = rng.choice([-1.0, 1.0], (SEEDS, size))
    mean, width = np.zeros((SEEDS, size)), np.ones(SEEDS)
    for _ in range(round(alpha * size)):
        x = rng.standard_normal((SEEDS, size)) / np.sqrt(size)
        label = np.sign(np.sum(x * teacher, axis=1) + noise * rng.standard_normal(SEEDS))
        square = np.sum(x**2, axis=1)
        sd = np.sqrt(noise**2 + width * square)
        u = label * np.sum(x * mean, axis=1) / sd
        ratio = np.exp(norm.logpdf(u) - log_ndtr(u))
        mean = mean + x * (width * label * ratio / sd)[:, None]
        width = width - width**2 * ratio * (u + ratio) / sd**2 * square / size
    curve = perceptron.optimal_online(alpha, noise)
    assert deviation(np.arccos(cosine(mean, teacher)) / np.pi, float(curve.error)) < 4
    assert deviation(width, 1.0 - float(curve.overlap)) < 4
    assert deviation(np.mean(np.sign(mean) != teacher, axis=1), float(ising.clipped(np.sqrt(curve.overlap))[0])) < 4


def perceptron_rule(rates: Floats, normalise: bool, size: int, start: float, seed: int) -> tuple[Floats, Floats]:
    """Errors after each row, (rows, SEEDS), of w += rate/N y x on a mistake, and of the last vector; `start` is ρ."""
    rng = np.random.default_rng(seed)
    teacher = rng.standard_normal((SEEDS, size))
    teacher /= np.linalg.norm(teacher, axis=1, keepdims=True)
    across = rng.standard_normal((SEEDS, size))
    across -= np.sum(across * teacher, axis=1, keepdims=True) * teacher
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    w = start * teacher + np.sqrt(1 - start**2) * across if normalise else np.zeros((SEEDS, size))
    errors = []
    for rate in rates:
        x = rng.standard_normal((SEEDS, size))
        label = np.sign(np.sum(x * teacher, axis=1))
        wrong = np.sum(x * w, axis=1) * label <= 0
        w = w + (rate / size * label * wrong)[:, None] * x
        if normalise:
            w = w / np.linalg.norm(w, axis=1, keepdims=True)
            errors.append(np.arccos(np.clip(cosine(w, teacher), -1, 1)) / np.pi)
    return np.array(errors), np.arccos(cosine(w, teacher)) / np.pi


def test_rosenblatt_online() -> None:
    """The law is (2/3)^{1/3}/(π α^{1/3}) = 0.28/α^{1/3}, and a simulation at α = 6 is on the curve."""
    np.testing.assert_allclose(perceptron.rosenblatt_online(1e9) * 1e3, (2 / 3) ** (1 / 3) / np.pi, rtol=1e-4)
    _, last = perceptron_rule(np.ones(6 * 300), normalise=False, size=300, start=0.0, seed=7)
    assert deviation(last, float(perceptron.rosenblatt_online(6.0))) < 4


@pytest.mark.parametrize("rate", [1.0, 2.0, 3.0])
def test_annealed_perceptron_tends_to_its_law(rate: float) -> None:
    """The curve is at (6) at α = 1e8; at rate 1 up to a constant beside ln α."""
    actual = perceptron.annealed_perceptron(1e8, rate) / perceptron.annealed_perceptron_law(1e8, rate)
    np.testing.assert_allclose(actual, 1.0, rtol=0.1 if rate == 1 else 1e-4)


def test_annealed_perceptron_is_slower_below_rate_one() -> None:
    """The error falls as α^{−rate}; the law, which depends on the start, is refused; rate 2 is the best."""
    actual = perceptron.annealed_perceptron([1e6, 1e8], 0.5)
    np.testing.assert_allclose(actual[0] / actual[1], 10.0, rtol=1e-2)
    with pytest.raises(ValueError, match="rate must be at least 1"):
        perceptron.annealed_perceptron_law(10.0, 0.5)
    laws = [float(perceptron.annealed_perceptron_law(1.0, rate)) for rate in (1.8, 2.0, 2.2)]
    assert min(laws) == laws[1] == 4 / np.pi


@pytest.mark.papers
def test_annealed_perceptron_is_what_a_simulation_does() -> None:
    """A simulation with rate 2 from α = 5 with an error of 0.1, at α = 12, N = 300, is on the curve."""
    size = 300
    alpha = 5.0 + np.arange(7 * size) / size
    _, last = perceptron_rule(2 * np.sqrt(2 * np.pi) / alpha, True, size, np.cos(0.1 * np.pi), seed=8)
    assert deviation(last, float(perceptron.annealed_perceptron(12.0, 2.0, 5.0, 0.1))) < 4


@pytest.mark.papers
def test_constant_rate_ends_at_its_floor() -> None:
    """At η = 0.3, N = 150 the mean error of the last half of 120 N rows is η/√(2π³) within 3%."""
    errors, _ = perceptron_rule(np.full(120 * 150, 0.3), True, 150, np.cos(0.12), seed=9)
    np.testing.assert_allclose(errors[len(errors) // 2 :].mean(), perceptron.constant_rate_floor(0.3), rtol=0.03)


def test_output_noise_law() -> None:
    """p + √(2p/(πα)) at p = 0.2, α = 300 is 0.2206."""
    np.testing.assert_allclose(perceptron.output_noise_law(300.0, 0.2), 0.2206, atol=5e-5)


def test_cramer_rao_threshold() -> None:
    """1/(t J) with J = E_x Σ_y (∂ ln P)² P, the derivative taken by differences and the average by SciPy."""

    def score(x: float) -> float:
        total = 0.0
        for sign in (-1, 1):
            up, down = (norm.cdf(sign * (x - 0.1 - s) / 0.5) for s in (1e-5, -1e-5))
            total += float(((up - down) / 2e-5) ** 2 / norm.cdf(sign * (x - 0.1) / 0.5))
        return total

    fisher = quad(score, -1.0, 1.0, epsrel=1e-10)[0] / 2.0
    np.testing.assert_allclose(perceptron.cramer_rao_threshold([1, 50]), [1 / fisher, 1 / (50 * fisher)], rtol=1e-8)


@pytest.mark.parametrize(
    "curve", [ising.bayes_batch, ising.adf_online, perceptron.bayes_batch, perceptron.optimal_online]
)
def test_curves_keep_shapes_and_refuse_negative_times(curve: Callable[[object], object]) -> None:
    """Results have the shape of α; the error is 1/2 at the start and decreases."""
    for alpha in (1.0, [[0.0, 0.1], [0.2, 0.3]]):
        actual = curve(alpha)
        actual = actual.low if isinstance(actual, ising.BatchCurve) else actual
        assert isinstance(actual, ising.Curve | perceptron.Curve)
        assert np.shape(actual.error) == np.shape(actual.overlap) == np.shape(alpha)
    assert actual.error[0, 0] == 0.5
    assert np.all(np.diff(actual.error.ravel()) < 0)
    with pytest.raises(ValueError, match="alpha"):
        curve(-1.0)
