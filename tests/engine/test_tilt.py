"""Tilted moments: closed forms, quadrature and Monte Carlo against answers found another way."""

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from adfpp.distributions import Probit, Rosenblatt
from adfpp.engine.tilt import (
    ACCURATE,
    AUTO,
    MONTE_CARLO,
    QUADRATURE,
    MonteCarlo,
    Quadrature,
    Tilted,
    gaussian_tilt,
    moments_named,
    normal_tail,
    normal_tilt,
    probit_tilt,
    rosenblatt_tilt,
    whole_line,
)
from adfpp.engine.trace.split import scalar_factor
from adfpp.model.closed_forms import closed_form, register_tilt
from benchmarks.accuracy import BATTERY, Likelihood
from tests.oracles import Moments, gaussian_moments, probit_moments, rosenblatt_moments, tilted_moments

# z of the tail formulas: both sides of the switch at -4.5, and as far as they claim to hold
TAILS = (-1e3, -100.0, -30.0, -8.0, -4.6, -4.4, -1.0, 0.0, 0.5, 4.4, 9.0, 40.0, 1e3)


def worst(out: Any, truth: Moments) -> np.ndarray:
    """The largest error: mean in tilted sds, variance relative, log Z absolute. NaN counts as infinite."""
    shift, root = np.reshape(out.shift, np.shape(truth.shift)), np.reshape(out.root, np.shape(truth.root))
    each = [
        np.abs(shift - truth.shift) / truth.root,
        np.abs((root / np.asarray(truth.root)) ** 2 - 1),
        np.abs(np.asarray(out.log_z) - truth.log_z),
    ]
    return np.nan_to_num(np.stack(each), nan=np.inf).max(0)


def stacked(moments: list[Moments]) -> Moments:
    """Many references as one, each field an array."""
    return Moments(*np.array(moments).T)


def assert_exact(out: Tilted, truth: Moments) -> None:
    """Equal up to the rounding of each number itself, the shift also up to 1e-12 tilted sds."""
    assert_allclose(out.log_z, truth.log_z, rtol=1e-12, atol=1e-14)
    assert np.all(np.abs(out.shift - truth.shift) <= 1e-12 * (np.abs(truth.shift) + truth.root))
    assert_allclose(out.root, truth.root, rtol=1e-10)


# -------------------------------------------------------------------------------------------- the oracles


@pytest.mark.parametrize("sd", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("distance", [0.0, -3.0, 30.0])
def test_the_integrating_oracle_agrees_with_the_exact_ones(sd: float, distance: float) -> None:
    def log_gauss(h: np.ndarray) -> np.ndarray:
        return -(((h - np.longdouble(0.2)) / np.longdouble(0.3)) ** 2) / 2 - math.log(0.3 * math.sqrt(2 * math.pi))

    def energy(h: np.ndarray) -> np.ndarray:
        return -10 * np.maximum(0, -h)

    mean = distance * sd
    gauss = tilted_moments(log_gauss, mean, sd, points=[0.2], width=0.3)
    assert worst(gauss, gaussian_moments(0.2, 0.3, mean, sd)) < 1e-12
    assert worst(tilted_moments(energy, mean, sd, points=[0.0]), rosenblatt_moments(1, mean, sd, 10.0)) < 1e-12


# ------------------------------------------------------------------------------------------- closed forms


def test_the_normal_tail_is_exact_to_a_thousand_sds() -> None:
    log_mass, hazard, gap, variance = normal_tail(jnp.asarray(TAILS))
    # a step seen by a cavity N(z, 1): its shift is the hazard and its root squared the variance of the tail
    truth = stacked([probit_moments(1, z, 1.0, noise=0.0) for z in TAILS])
    assert_allclose(log_mass, truth.log_z, rtol=1e-13, atol=1e-15)
    assert_allclose(hazard, truth.shift, rtol=1e-12, atol=1e-300)
    assert_allclose(variance, np.asarray(truth.root) ** 2, rtol=1e-10)
    # the mean of an exponential tail lies 1/x - 2/x³ + ... inside its edge
    assert_allclose(gap[0], 1e-3 - 2e-9 + 10e-15, rtol=1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("flip", [0.0, 0.1, 0.5, 0.9])
def test_probit_is_exact(noise: float, flip: float) -> None:
    cases = [
        (label, z * math.hypot(noise, sd), sd) for label, z, sd in itertools.product((0, 1), TAILS, (0.02, 1.0, 30.0))
    ]
    labels, means, sds = (jnp.asarray(x) for x in zip(*cases, strict=True))
    truth = stacked([probit_moments(*case, noise=noise, flip=flip) for case in cases])
    assert_exact(probit_tilt(labels, means, sds, noise, flip), truth)
    # a flip known only when the program runs takes the other road
    assert_exact(jax.jit(probit_tilt)(labels, means, sds, jnp.asarray(noise), jnp.asarray(flip)), truth)


@pytest.mark.parametrize("beta", [0.1, 1.0, 10.0, 1000.0, math.inf])
def test_rosenblatt_is_exact(beta: float) -> None:
    cases = [(label, z * sd, sd) for label, z, sd in itertools.product((0, 1), TAILS, (0.02, 1.0, 30.0))]
    labels, means, sds = (jnp.asarray(x) for x in zip(*cases, strict=True))
    truth = stacked([rosenblatt_moments(*case, beta=beta) for case in cases])
    assert_exact(rosenblatt_tilt(labels, means, sds, beta), truth)


def test_a_sure_field_only_weighs_the_label() -> None:
    certain = probit_tilt(1, jnp.asarray(0.7), jnp.asarray(0.0), 1.0)
    assert_allclose(certain.log_z, probit_moments(1, 0.7, 1e-30).log_z, rtol=1e-13)
    assert (certain.shift, certain.root) == (0.0, 1.0)
    step = probit_tilt(1, jnp.asarray([0.7, -0.7]), jnp.asarray(0.0), 0.0)
    assert_array_equal(step.log_z, [0.0, -np.inf])
    integral = on_the_line(AUTO.quadrature, lambda h: Probit(h).log_prob(1))([0.7], [0.0])
    assert_allclose(integral.log_z, certain.log_z, rtol=1e-12)
    assert_allclose(integral.shift, 0.0, atol=1e-15)
    assert_allclose(integral.root, 1.0, rtol=1e-15)


def test_normal_is_exact_regression() -> None:
    cases = list(itertools.product((-3.0, 1e5), (1e-6, 0.3, 1e4), (0.5, -20.0), (1e-5, 2.0, 1e6)))
    value, noise, mean, sd = (jnp.asarray(x) for x in zip(*cases, strict=True))
    assert_exact(normal_tilt(value, mean, sd, noise), stacked([gaussian_moments(*case) for case in cases]))


def spd_root(seed: int, size: int) -> np.ndarray:
    """A lower triangular root of a covariance that is far from diagonal."""
    a = np.random.default_rng(seed).normal(size=(size, size))
    return np.linalg.cholesky(a @ a.T + 0.1 * np.eye(size))


def exact_gaussian(
    value: np.ndarray, mean: np.ndarray, scale: np.ndarray, noise: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """log Z, shift and covariance of u by textbook regression on the innovation."""
    total = scale @ scale.T + noise @ noise.T
    gain = scale.T @ np.linalg.inv(total)
    gap = value - mean
    log_z = -0.5 * (gap @ np.linalg.solve(total, gap) + np.linalg.slogdet(2 * np.pi * total)[1])
    return log_z, gain @ gap, np.eye(len(mean)) - gain @ scale


def test_a_correlated_vector_is_exact_regression() -> None:
    value, mean = np.array([0.3, -1.0, 2.0]), np.array([1.0, 0.0, -0.5])
    scale, noise = spd_root(1, 3), spd_root(2, 3)
    out = gaussian_tilt(value, jnp.asarray(mean), jnp.asarray(scale), noise)
    log_z, shift, covariance = exact_gaussian(value, mean, scale, noise)
    assert_allclose(out.log_z, log_z, rtol=1e-12)
    assert_allclose(out.shift, shift, rtol=1e-11)
    assert_allclose(out.root @ out.root.T, covariance, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("noise", "flip"), [(1.0, 0.0), (0.0, 0.0), (0.5, 0.2), (1.0, 0.9)])
def test_the_labels_of_a_probit_share_all_the_mass(noise: float, flip: float) -> None:
    means, sds = (x.ravel() for x in jnp.meshgrid(jnp.linspace(-40, 40, 9), jnp.asarray([0.1, 1.0, 50.0])))
    mass = sum(jnp.exp(probit_tilt(label, means, sds, noise, flip).log_z) for label in (0, 1))
    assert_allclose(mass, 1.0, rtol=1e-13)


# ------------------------------------------------------------------------------------------------- quadrature


def on_the_line(rule: Quadrature, log_factor: Callable[[jax.Array], jax.Array]) -> Callable[..., Tilted]:
    """The rule as a compiled function of many cavities ``(mean (n,), sd (n,))``, one after the other."""

    def one(cavity: tuple[jax.Array, jax.Array]) -> Tilted:
        return rule(lambda h: log_factor(h[0]), cavity[0][None], cavity[1][None, None])

    return jax.jit(lambda means, sds: jax.lax.map(one, (jnp.asarray(means), jnp.asarray(sds))))


# (sd of the cavity in widths of the likelihood, distance of its mean in cavity sds)
CELLS = (
    (1e-3, 0.0),
    (1e-3, 3.0),
    (0.1, -30.0),
    (1.0, 1.0),
    (3.0, -3.0),
    (10.0, 10.0),
    (100.0, 1.0),
    (1e3, 0.0),
    (1e3, -1.0),
    (1e3, 30.0),
    (1e3, -30.0),
)
NAMED = {likelihood.name: likelihood for likelihood in BATTERY}
HARD = ("probit", "Laplace", "Student-t, 3 df", "mixture, spike aside")
# A rule that is told nothing of where a factor peaks or bends cannot be sure to see a spike.
SMOOTH = (
    "logit",
    "Poisson-log, y=0",
    "binomial, 3 of 20",
    "Gamma-log, y=1.5",
    "Student-t, 3 df",
    "mixture, ±1",
)


class Answers(NamedTuple):
    """What a rule made of some likelihoods on all the cells, and its true errors; ``(trials,)``."""

    trials: list[tuple[Likelihood, float, float]]
    estimates: np.ndarray
    errors: np.ndarray

    def complaint(self, bad: np.ndarray) -> str:
        """The trials that went wrong, for the message of a failing test."""
        return "\n".join(
            f"{likelihood.name}, width {width:g}, distance {distance:g}: "
            f"error {self.errors[i]:.1e}, estimate {self.estimates[i]:.1e}"
            for i, (likelihood, width, distance) in enumerate(self.trials)
            if bad[i]
        )


@cache
def answers(rule: Quadrature, names: tuple[str, ...], told: bool = True) -> Answers:
    """The answers of a rule that is ``told`` the landmarks of each factor, as in a run, or nothing."""

    trials = [(NAMED[name], width, distance) for name in names for width, distance in CELLS]
    which = np.repeat(np.arange(len(names)), len(CELLS))
    sds = np.array([width * likelihood.width for likelihood, width, _ in trials])
    means = np.array([x.location + d * sd for (x, _, d), sd in zip(trials, sds, strict=True)])
    truth = stacked([x.reference(m, sd) for (x, _, _), m, sd in zip(trials, means, sds, strict=True)])

    def log_factor(likelihood: Likelihood) -> Callable[[jax.Array], Any]:
        return lambda h: likelihood.distribution(h[0]).log_prob(jnp.asarray(likelihood.value))

    plain = [log_factor(NAMED[name]) for name in names]

    def untold(i: jax.Array, mean: jax.Array, scale: jax.Array) -> Tilted:
        return rule(lambda h: jax.lax.switch(i, plain, h), mean, scale)  # one rule for all compiles faster

    def with_landmarks(i: jax.Array, mean: jax.Array, scale: jax.Array) -> Tilted:
        prepared = [scalar_factor(f, mean.dtype) for f in plain]
        return jax.lax.switch(i, [lambda m, s, f=f, x=x: rule(f, m, s, x) for f, x in prepared], mean, scale)

    def one(trial: tuple[jax.Array, jax.Array, jax.Array]) -> Tilted:
        i, mean, sd = trial
        return (with_landmarks if told else untold)(i, mean[None], sd[None, None])

    out = jax.jit(lambda t: jax.lax.map(one, t))((jnp.asarray(which), jnp.asarray(means), jnp.asarray(sds)))
    return Answers(trials, np.asarray(out.error), worst(out, truth))


def keeps_its_bounds(found: Answers, which: int) -> None:
    """Every error within the bound of its likelihood, and none much above its own estimate."""
    bad = ~(found.errors <= [likelihood.bounds[which] for likelihood, _, _ in found.trials])
    assert not bad.any(), found.complaint(bad)
    # an estimate may be too small where a part too small to matter was missed: far below what would be marked
    slack = 1e-10 if which else 1e-7
    bad = ~(found.errors <= found.estimates + slack)
    assert not bad.any(), found.complaint(bad)


@pytest.mark.slow
def test_the_default_quadrature_keeps_its_bounds_and_knows_its_error() -> None:
    keeps_its_bounds(answers(AUTO.quadrature, HARD), 0)


def test_the_accurate_quadrature_keeps_its_bounds_and_knows_its_error() -> None:
    keeps_its_bounds(answers(ACCURATE.quadrature, HARD[1:3]), 1)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "which"), [(AUTO.quadrature, 0), (ACCURATE.quadrature, 1)])
def test_every_likelihood_of_the_battery_keeps_its_bounds(rule: Quadrature, which: int) -> None:
    keeps_its_bounds(answers(rule, tuple(NAMED)), which)


@pytest.mark.slow
def test_smooth_factors_need_no_landmarks() -> None:
    keeps_its_bounds(answers(AUTO.quadrature, SMOOTH, told=False), 0)


@pytest.mark.slow
def test_a_rule_that_may_not_work_says_so() -> None:
    """With no panels to spend, the hard cells are wrong: every one that misses its bound has to be marked."""
    rule = Quadrature(max_panels=1)
    found = answers(rule, SMOOTH, told=False)
    wrong = found.errors > [likelihood.bounds[0] for likelihood, _, _ in found.trials]
    assert wrong.sum() > 5
    silent = wrong & (found.estimates <= rule.reported(jnp.dtype("float64")))
    assert not silent.any(), found.complaint(silent)


@pytest.mark.parametrize(
    ("total", "make"),
    [(1, lambda h: dist.Bernoulli(logits=h)), (4, lambda h: dist.Binomial(4, logits=h))],
    ids=["Bernoulli", "Binomial"],
)
def test_the_outcomes_of_a_count_share_all_the_mass(total: int, make: Callable[[jax.Array], Any]) -> None:
    @jax.jit
    def log_z(value: jax.Array, mean: jax.Array, sd: jax.Array) -> jax.Array:
        return AUTO.quadrature(lambda h: make(h[0]).log_prob(value), mean[None], sd[None, None]).log_z

    for mean, sd in ((0.0, 1.0), (3.0, 0.1), (-20.0, 30.0), (500.0, 200.0)):
        mass = sum(math.exp(log_z(jnp.asarray(float(y)), jnp.asarray(mean), jnp.asarray(sd))) for y in range(total + 1))
        assert_allclose(mass, 1.0, rtol=1e-6)


def test_the_closed_form_and_the_quadrature_agree() -> None:
    means, sds = jnp.asarray([0.3, -2.0, 5.0]), jnp.asarray([1.0, 0.2, 4.0])
    out = on_the_line(AUTO.quadrature, lambda h: Rosenblatt(h, 3.0).log_prob(0))(means, sds)
    exact = rosenblatt_tilt(0, means, sds, 3.0)
    assert np.all(worst(out, stacked([Moments(*x) for x in zip(*exact[:3], strict=True)])) < 1e-6)


def test_a_factor_that_says_nothing_changes_nothing() -> None:
    out = on_the_line(AUTO.quadrature, lambda h: jnp.full_like(h, -2.5))([0.0, 1e4], [1e-3, 30.0])
    assert_allclose(out.log_z, -2.5, rtol=1e-13)
    assert_allclose(out.shift, 0.0, atol=1e-12)
    assert_allclose(out.root, 1.0, rtol=1e-12)


def test_steps_and_undefined_halves() -> None:
    means, sds = [0.5, -3.0, 20.0, -20.0], [1.0, 2.0, 3.0, 4.0]
    step = on_the_line(AUTO.quadrature, lambda h: jnp.where(h > 0, 0.0, -jnp.inf))(means, sds)
    exact = stacked([probit_moments(1, m, s, noise=0.0) for m, s in zip(means, sds, strict=True)])
    assert np.all(worst(step, exact) < 1e-6)

    # the log of a negative number is no number: such a field has no weight
    def log_field(h: np.ndarray) -> np.ndarray:
        return np.where(h > 0, np.log(np.where(h > 0, h, 1)), -np.inf)

    root = on_the_line(AUTO.quadrature, jnp.log)(means, sds)
    exact = stacked([tilted_moments(log_field, m, s, points=[0.0]) for m, s in zip(means, sds, strict=True)])
    assert np.all(worst(root, exact) < 1e-6)


def test_a_window_is_integrated_or_owned_up_to() -> None:
    def log_window(h: Any, xp: Any) -> Any:
        return xp.where((h > 0) & (h < 1), 0.0, -xp.inf)

    means, sds = [0.3, 0.5, -4.0, 0.3, 200.0], [0.1, 1.0, 2.0, 10.0, 3.0]
    out = on_the_line(AUTO.quadrature, lambda h: log_window(h, jnp))(means, sds)
    truth = stacked(
        [
            tilted_moments(lambda h: log_window(h, np), m, s, points=[0.0, 1.0], width=0.1)
            for m, s in zip(means, sds, strict=True)
        ]
    )
    errors = worst(out, truth)
    assert np.all(errors[:3] < 1e-6)
    # a tenth of a sd wide, or 67 sds away: these may be missed, but not in silence
    assert np.all((errors < 1e-6) | ~(np.asarray(out.error) <= 1e-6))


def test_an_impossible_factor_has_no_mass() -> None:
    """Whether it says so by -inf or by what is not a number."""
    rule = AUTO.quadrature
    out = on_the_line(rule, lambda h: jnp.where(h < 0, -jnp.inf, jnp.nan))([-1e3, 0.0, 1e3], [1.0, 1.0, 1.0])
    assert_array_equal(out.log_z, -np.inf)
    # marked, whatever the moments
    assert not np.any(np.asarray(out.error) <= rule.reported(jnp.dtype("float64")))


def test_a_batch_gives_what_each_cavity_gives() -> None:
    def one(mean: jax.Array, sd: jax.Array) -> Tilted:
        return AUTO.quadrature(lambda h: dist.Poisson(jnp.exp(h[0])).log_prob(1), mean[None], sd[None, None])

    means, sds = jnp.asarray([0.0, 5.0, -30.0]), jnp.asarray([0.01, 1.0, 100.0])
    together = jax.jit(jax.vmap(one))(means, sds)
    alone = on_the_line(AUTO.quadrature, lambda h: dist.Poisson(jnp.exp(h)).log_prob(1))(means, sds)
    for a, b in zip(together, alone, strict=True):
        assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@cache
def logit_answer() -> Callable[[float, float], tuple[Tilted, Tilted]]:
    """Both labels of a logit on one cavity."""

    @jax.jit
    def answer(mean: jax.Array, sd: jax.Array) -> tuple[Tilted, Tilted]:
        one, zero = (
            AUTO.quadrature(lambda h, y=y: dist.Bernoulli(logits=h[0]).log_prob(y), sign * mean[None], sd[None, None])
            for y, sign in ((1, 1), (0, -1))
        )
        return one, zero

    return lambda mean, sd: answer(jnp.asarray(mean), jnp.asarray(sd))


@settings(max_examples=40)
@given(distance=st.floats(-30, 30), log_sd=st.floats(-7, 7))
def test_a_log_concave_factor_narrows_and_its_mirror_image_mirrors(distance: float, log_sd: float) -> None:
    sd = math.exp(log_sd)
    one, zero = logit_answer()(distance * sd, sd)
    assert one.root[0, 0] <= 1 + 1e-7
    assert one.shift[0] >= -1e-7  # the label 1 says that the field is larger
    assert one.log_z <= 1e-7
    assert_allclose(one.log_z, zero.log_z, atol=2e-6)
    assert_allclose(one.shift, -zero.shift, atol=2e-6 * float(one.root[0, 0]))


def test_float32_is_kept_and_good_to_its_rounding(float32: None) -> None:
    rule = AUTO.quadrature
    means, sds = np.array([0.0, 2.0, -5.0], np.float32), np.array([0.1, 1.0, 10.0], np.float32)
    out = on_the_line(rule, lambda h: Probit(h).log_prob(1))(means, sds)
    assert {x.dtype for x in map(jnp.asarray, out)} == {jnp.dtype("float32")}
    truth = stacked([probit_moments(1, float(m), float(sd)) for m, sd in zip(means, sds, strict=True)])
    assert np.all(worst(out, truth) < 2e-3)
    assert np.all(np.asarray(out.error) < rule.reported(jnp.dtype("float32")))
    assert rule.reported(jnp.dtype("float32")) > rule.reported(jnp.dtype("float64"))


# ------------------------------------------------------------------------------------- two, three and more


def brute_force(
    log_factor: Callable[[np.ndarray], np.ndarray],
    mean: np.ndarray,
    scale: np.ndarray,
    points: int,
    reach: float,
) -> tuple[float, np.ndarray, np.ndarray]:
    """log Z, shift and covariance of u on an even grid: exact to exp(-1/spacing²) on smooth tilts."""
    axis = np.linspace(-reach, reach, points)
    u = np.stack(np.meshgrid(*[axis] * len(mean), indexing="ij"), -1).reshape(-1, len(mean))
    logs = log_factor(mean + u @ scale.T) - 0.5 * (u * u).sum(1)
    top = logs.max()
    weights = np.exp(logs - top)
    total = weights.sum()
    shift = weights @ u / total
    centred = u - shift
    log_z = top + math.log(total) + len(mean) * (math.log(axis[1] - axis[0]) - 0.5 * math.log(2 * math.pi))
    return log_z, shift, (weights[:, None] * centred).T @ centred / total


def vector_errors(out: Tilted, truth: tuple[float, np.ndarray, np.ndarray]) -> float:
    """The largest error of the moments of a vector: in tilted sds, relative to them, and of log Z."""
    log_z, shift, covariance = truth
    sds = np.sqrt(np.diag(covariance))
    root = np.asarray(out.root)
    return max(
        float(np.max(np.abs(np.asarray(out.shift) - shift) / sds)),
        float(np.max(np.abs(root @ root.T - covariance) / np.outer(sds, sds))),
        abs(float(out.log_z) - log_z),
    )


def softmax_factor(
    chosen: int,
) -> tuple[Callable[[jax.Array], jax.Array], Callable[[np.ndarray], np.ndarray]]:
    """The log probability of one class, for the package and for the grid."""

    def grid(h: np.ndarray) -> np.ndarray:
        return h[:, chosen] - np.log(np.exp(h).sum(1))

    def factor(h: jax.Array) -> Any:
        likelihood: Any = dist.Categorical(logits=h)
        return likelihood.log_prob(chosen)

    return factor, grid


def spread_factor(
    value: float,
) -> tuple[Callable[[jax.Array], jax.Array], Callable[[np.ndarray], np.ndarray]]:
    """A normal value whose mean and log sd are both fields."""

    def grid(h: np.ndarray) -> np.ndarray:
        return -0.5 * ((value - h[:, 0]) * np.exp(-h[:, 1])) ** 2 - h[:, 1] - 0.5 * math.log(2 * math.pi)

    return lambda h: dist.Normal(h[0], jnp.exp(h[1])).log_prob(value), grid


PAIRS = {
    "easy": (np.array([0.1, -0.3]), 0.3 * spd_root(3, 2), 0.5),
    "usual": (np.array([0.0, 0.2]), np.array([[0.8, 0.0], [0.3, 0.5]]), 1.5),
    "surprising": (np.array([0.0, -0.5]), np.array([[0.6, 0.0], [-0.2, 0.6]]), 4.0),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_fields_against_a_grid(name: str) -> None:
    mean, scale, value = PAIRS[name]
    factor, on_grid = spread_factor(value)
    truth = brute_force(on_grid, mean, scale, points=601, reach=12.0)
    out = jax.jit(lambda m, s: QUADRATURE.quadrature(factor, m, s))(jnp.asarray(mean), jnp.asarray(scale))
    error = vector_errors(out, truth)
    assert error <= 2 * float(out.error) + 1e-9
    assert error < {"easy": 1e-6, "usual": 1e-3, "surprising": 1e-2}[name]


@pytest.mark.parametrize("size", [0.4, 1.5])
def test_three_fields_against_a_grid(size: float) -> None:
    mean, scale = np.array([0.5, -0.2, 0.1]), size * spd_root(4, 3) / 2
    factor, on_grid = softmax_factor(1)
    truth = brute_force(on_grid, mean, scale, points=91, reach=9.0)
    out = jax.jit(lambda m, s: QUADRATURE.quadrature(factor, m, s))(jnp.asarray(mean), jnp.asarray(scale))
    error = vector_errors(out, truth)
    assert error <= 2 * float(out.error) + 1e-9
    assert error < {0.4: 1e-7, 1.5: 1e-4}[size]


def test_several_fields_with_a_gaussian_factor_are_exact() -> None:
    for size in (2, 3):
        value, mean = np.arange(size) - 0.5, np.linspace(-1, 1, size)
        scale, noise = 3 * spd_root(5, size), spd_root(6, size)
        truth = exact_gaussian(value, mean, scale, noise)
        normal: Any = dist.MultivariateNormal(value, scale_tril=noise)
        rule = jax.jit(lambda m, s, normal=normal: AUTO.quadrature(normal.log_prob, m, s))
        out = rule(jnp.asarray(mean), jnp.asarray(scale))
        assert vector_errors(out, truth) < 1e-8


def test_monte_carlo_on_a_gaussian_factor() -> None:
    size = 6
    value, mean = np.linspace(-1, 2, size), np.linspace(1, -1, size)
    scale, noise = spd_root(7, size), spd_root(8, size)
    truth = exact_gaussian(value, mean, scale, noise)
    normal: Any = dist.MultivariateNormal(value, scale_tril=noise)
    out = jax.jit(lambda m, s: MonteCarlo()(normal.log_prob, m, s))(jnp.asarray(mean), jnp.asarray(scale))
    error = vector_errors(out, truth)
    assert error <= 4 * float(out.error) + 1e-9
    assert float(out.error) < 0.1


@pytest.mark.slow
def test_monte_carlo_against_a_grid_and_better_with_more_points() -> None:
    mean, scale = np.array([0.5, -0.2, 0.1, 1.0]), spd_root(9, 4) / 2
    factor, on_grid = softmax_factor(2)
    truth = brute_force(on_grid, mean, scale, points=41, reach=8.0)
    few, many = (
        jax.jit(lambda m, s, n=n: MonteCarlo(points=n)(factor, m, s))(jnp.asarray(mean), jnp.asarray(scale))
        for n in (256, 8192)
    )
    for out in (few, many):
        assert vector_errors(out, truth) <= 4 * float(out.error)
    assert float(many.error) < 0.4 * float(few.error) < 0.1


def test_monte_carlo_of_an_impossible_factor_has_no_mass() -> None:
    nowhere = jax.jit(lambda m, s: MonteCarlo(points=64)(lambda h: jnp.full((), -jnp.inf) - 0 * h[0], m, s))
    out = nowhere(jnp.zeros(4), jnp.eye(4))
    assert out.log_z == -np.inf
    assert not out.error <= MonteCarlo().reported(jnp.dtype("float64"))


# -------------------------------------------------------------------------------------- which rule, and why


def test_a_users_closed_form_is_registered_and_used() -> None:
    class UnitNormal(dist.Normal):
        pass

    class Narrower(UnitNormal):
        pass

    assert closed_form(UnitNormal(0.0)) is None  # a subclass does not inherit the rule of Normal

    @register_tilt(UnitNormal, field="loc")
    def unit_normal(value: Any, mean: Any, scale: Any) -> Tilted:
        total = 1.0 + scale**2
        log_z = -0.5 * (value - mean) ** 2 / total - 0.5 * jnp.log(2 * jnp.pi * total)
        return Tilted(log_z, scale * (value - mean) / total, 1 / jnp.sqrt(total))

    form = closed_form(UnitNormal(0.0))
    assert form is not None
    assert (form.field, form.constants, form.event_dim) == ("loc", (), 0)
    assert form.rule is unit_normal
    assert closed_form(Narrower(0.0)) is None
    out = whole_line(form.rule)(jnp.asarray(0.7), jnp.asarray([0.1]), jnp.asarray([[2.0]]))
    assert (out.shift.shape, out.root.shape, out.error) == ((1,), (1, 1), 0.0)
    assert worst(out, gaussian_moments(0.7, 1.0, 0.1, 2.0)) < 1e-14


def test_the_shipped_forms_are_registered() -> None:
    for likelihood, rule, constants in (
        (Probit(0.0), probit_tilt, ("noise", "flip")),
        (Rosenblatt(0.0), rosenblatt_tilt, ("beta",)),
        (dist.Normal(0.0, 1.0), normal_tilt, ("scale",)),
    ):
        form = closed_form(likelihood)
        assert form is not None
        assert (form.rule, form.constants, form.event_dim) == (rule, constants, 0)
    assert closed_form(dist.Bernoulli(logits=0.0)) is None


def test_the_strategy_prefers_closed_forms_then_quadrature_then_monte_carlo() -> None:
    form = closed_form(Probit(0.0))
    assert AUTO.choose(1, form)[0] is form
    assert isinstance(AUTO.choose(3, None)[0], Quadrature)
    assert isinstance(AUTO.choose(4, None)[0], MonteCarlo)
    assert isinstance(QUADRATURE.choose(1, form)[0], Quadrature)
    assert isinstance(MONTE_CARLO.choose(1, form)[0], MonteCarlo)
    assert moments_named("accurate") is ACCURATE
    assert moments_named(ACCURATE) is ACCURATE
    with pytest.raises(ValueError, match=r"moments='best' is not known; use one of .*'accurate'"):
        moments_named("best")
