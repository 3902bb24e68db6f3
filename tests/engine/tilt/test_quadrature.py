"""One-dimensional quadrature: moments and their estimated errors against answers found another way."""

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
from scipy.stats import norm

from adfpp.distributions import Probit, Rosenblatt
from adfpp.engine.tilt import ACCURATE, AUTO, Landmarks, Quadrature, Tilted, rosenblatt_tilt
from adfpp.engine.trace import scalar_factor
from benchmarks.accuracy import BATTERY, Likelihood
from tests.engine.tilt.common import Line, quadrature_of, stacked, worst
from tests.oracles import Moments, probit_moments, tilted_moments

DEFAULT, PRECISE = quadrature_of(AUTO), quadrature_of(ACCURATE)

# ------------------------------------------------------------------------------------------- single factors

LINE = Line(
    DEFAULT,
    {
        "probit": lambda h, y: Probit(h).log_prob(y),
        "Rosenblatt": lambda h, y: Rosenblatt(h, 3.0).log_prob(y),
        "Bernoulli": lambda h, y: dist.Bernoulli(logits=h).log_prob(y),
        "binomial": lambda h, y: dist.Binomial(4, logits=h).log_prob(y),
        "Poisson": lambda h, y: dist.Poisson(jnp.exp(h)).log_prob(y),
        "constant": lambda h, y: jnp.full_like(h, -2.5),
        "step": lambda h, y: jnp.where(h > 0, 0.0, -jnp.inf),
        "log": lambda h, y: jnp.log(h),
        "window": lambda h, y: jnp.where((h > 0) & (h < 1), 0.0, -jnp.inf),
        "impossible": lambda h, y: jnp.where(h < 0, -jnp.inf, jnp.nan),
    },
)


def test_a_certain_field_only_weighs_the_label() -> None:
    out = LINE("probit", 1, 0.7, 0.0)
    assert_allclose(out.log_z, probit_moments(1, 0.7, 1e-30).log_z, rtol=1e-12)
    assert_allclose(out.shift, 0.0, atol=1e-15)
    assert_allclose(out.root, 1.0, rtol=1e-15)


@pytest.mark.parametrize(("name", "total"), [("Bernoulli", 1), ("binomial", 4)])
def test_the_outcomes_of_a_count_share_all_the_mass(name: str, total: int) -> None:
    for mean, sd in ((0.0, 1.0), (3.0, 0.1), (-20.0, 30.0), (500.0, 200.0)):
        mass = np.exp(LINE(name, np.arange(total + 1), mean, sd).log_z).sum()
        assert_allclose(mass, 1.0, rtol=1e-6)


def test_the_closed_form_and_the_quadrature_agree() -> None:
    means, sds = jnp.asarray([0.3, -2.0, 5.0]), jnp.asarray([1.0, 0.2, 4.0])
    out = LINE("Rosenblatt", 0, means, sds)
    exact = rosenblatt_tilt(0, means, sds, 3.0)
    assert np.all(worst(out, stacked([Moments(*x) for x in zip(*exact[:3], strict=True)])) < 1e-6)


def test_a_factor_without_information_changes_nothing() -> None:
    out = LINE("constant", 0, [0.0, 1e4], [1e-3, 30.0])
    assert_allclose(out.log_z, -2.5, rtol=1e-13)
    assert_allclose(out.shift, 0.0, atol=1e-12)
    assert_allclose(out.root, 1.0, rtol=1e-12)


def test_steps_and_undefined_halves() -> None:
    means, sds = [0.5, -3.0, 20.0, -20.0], [1.0, 2.0, 3.0, 4.0]
    exact = stacked([probit_moments(1, m, s, noise=0.0) for m, s in zip(means, sds, strict=True)])
    assert np.all(worst(LINE("step", 0, means, sds), exact) < 1e-6)

    # the log of a negative number is no number: such a field has no weight
    def log_field(h: np.ndarray) -> np.ndarray:
        return np.where(h > 0, np.log(np.where(h > 0, h, 1)), -np.inf)

    exact = stacked([tilted_moments(log_field, m, s, points=[0.0]) for m, s in zip(means, sds, strict=True)])
    assert np.all(worst(LINE("log", 0, means, sds), exact) < 1e-6)


def test_a_window_is_integrated_or_marked() -> None:
    def log_window(h: np.ndarray) -> np.ndarray:
        return np.where((h > 0) & (h < 1), 0.0, -np.inf)

    means, sds = [0.3, 0.5, -4.0, 0.3, 200.0], [0.1, 1.0, 2.0, 10.0, 3.0]
    out = LINE("window", 0, means, sds)
    cavities = zip(means, sds, strict=True)
    truth = stacked([tilted_moments(log_window, m, s, points=[0.0, 1.0], width=0.1) for m, s in cavities])
    errors = worst(out, truth)
    assert np.all(errors[:3] < 1e-6)
    # a tenth of a sd wide, or 67 sds away: these may be missed, but the estimate has to show it
    assert np.all((errors < 1e-6) | ~(np.asarray(out.error) <= 1e-6))


def test_kinks_at_unknown_places_are_integrated_or_marked() -> None:
    """Two rules can agree on a kink by accident, and a kink may be between the end of a panel and its last node."""
    rng = np.random.default_rng(8)
    at, means, sds = rng.uniform(0.2, 2, 4000), rng.normal(0, 2, 4000), np.exp(rng.uniform(-1, 3, 4000))

    def tilt(case: jax.Array) -> Tilted:
        return DEFAULT(lambda h: -5.0 * jnp.abs(h[0] - case[0]), case[1:2], case[2:, None])

    out = jax.jit(lambda cases: jax.lax.map(tilt, cases))(np.stack([at, means, sds], 1))
    # each side is a Gaussian with a moved mean, up to the kink
    growth = 12.5 * sds**2
    left = norm.logcdf(at, means + 5 * sds**2, sds) + 5 * (means - at) + growth
    right = norm.logsf(at, means - 5 * sds**2, sds) - 5 * (means - at) + growth
    errors = np.abs(np.asarray(out.log_z) - np.logaddexp(left, right))
    assert np.all((errors < 1e-6) | (np.asarray(out.error) > 1e-6))
    assert np.mean(np.asarray(out.error) > 1e-6) < 0.01


def test_an_impossible_factor_has_no_mass() -> None:
    """Whether it is -inf or no number at all."""
    out = LINE("impossible", 0, [-1e3, 0.0, 1e3], 1.0)
    assert_array_equal(out.log_z, -np.inf)
    # marked, whatever the moments
    assert not np.any(np.asarray(out.error) <= DEFAULT.reported(jnp.dtype("float64")))


def test_a_batch_gives_what_each_cavity_gives() -> None:
    def one(mean: jax.Array, sd: jax.Array) -> Tilted:
        return DEFAULT(lambda h: dist.Poisson(jnp.exp(h[0])).log_prob(1), mean[None], sd[None, None])

    means, sds = jnp.asarray([0.0, 5.0, -30.0]), jnp.asarray([0.01, 1.0, 100.0])
    together, alone = jax.jit(jax.vmap(one))(means, sds), LINE("Poisson", 1, means, sds)
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@settings(max_examples=40)
@given(distance=st.floats(-30, 30), log_sd=st.floats(-7, 7))
def test_a_log_concave_factor_narrows_and_its_mirror_image_mirrors(distance: float, log_sd: float) -> None:
    sd = math.exp(log_sd)
    out = LINE("Bernoulli", [1, 0], [distance * sd, -distance * sd], sd)
    assert out.root[0, 0, 0] <= 1 + 1e-7
    assert out.shift[0] >= -1e-7  # the label 1 is evidence that the field is larger
    assert out.log_z[0] <= 1e-7
    assert_allclose(out.log_z[0], out.log_z[1], atol=2e-6)
    assert_allclose(out.shift[0], -out.shift[1], atol=2e-6 * float(out.root[0, 0, 0]))


def test_a_narrow_peak_at_a_landmark_is_found_in_any_units() -> None:
    """Half of the mass lies in a peak between the nodes, 0.01 cavity standard deviations wide."""
    at, width = 0.2, 0.01  # in cavity standard deviations

    def one(sd: jax.Array) -> Tilted:
        where = 3.0 + at * sd

        def log_factor(h: jax.Array) -> jax.Array:
            return jnp.logaddexp(0.0, math.log(1.0 / width) - 0.5 * ((h[0] - where) / (width * sd)) ** 2)

        return DEFAULT(log_factor, jnp.array([3.0]), sd[None, None], Landmarks(where[None], 1))

    out = jax.jit(lambda sds: jax.lax.map(one, sds))(jnp.array([0.05, 1.0, 20.0]))
    # the cavity is N(0, 1), and the peak is a multiple of a Gaussian density: their product is one, too
    variance = width**2 / (1.0 + width**2)
    mass = math.exp(-0.5 * at**2 / (1.0 + width**2)) / math.sqrt(1.0 + width**2)
    mean, share = at / (1.0 + width**2), mass / (1.0 + mass)
    spread = (1.0 - share) + share * variance + share * (1.0 - share) * mean**2
    assert_allclose(out.log_z, math.log1p(mass), atol=1e-6)
    assert_allclose(out.shift[:, 0], share * mean, atol=1e-6)
    assert_allclose(out.root[:, 0, 0], math.sqrt(spread), atol=1e-6)


def test_float32_is_kept_and_good_to_its_rounding(float32: None) -> None:
    means, sds = [0.0, 2.0, -5.0], [0.1, 1.0, 10.0]
    out = Line(DEFAULT, {"probit": lambda h, y: Probit(h).log_prob(y)})("probit", 1, means, sds, jnp.float32)
    assert {a.dtype for a in jax.tree.leaves(out)} == {jnp.dtype("float32")}
    truth = stacked([probit_moments(1, m, sd) for m, sd in zip(means, sds, strict=True)])
    assert np.all(worst(out, truth) < 2e-3)
    assert np.all(np.asarray(out.error) < DEFAULT.reported(jnp.dtype("float32")))
    assert DEFAULT.reported(jnp.dtype("float32")) > DEFAULT.reported(jnp.dtype("float64"))


# ------------------------------------------------------------------------------- the battery of likelihoods

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
# A rule that does not know where a factor peaks or bends cannot be sure to find a spike.
SMOOTH = (
    "logit",
    "Poisson-log, y=0",
    "binomial, 3 of 20",
    "Gamma-log, y=1.5",
    "Student-t, 3 df",
    "mixture, ±1",
)


class Answers(NamedTuple):
    """The estimates of a rule for some likelihoods on all the cells, and its true errors; ``(trials,)``."""

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
def answers(rule: Quadrature, names: tuple[str, ...], with_landmarks: bool = True) -> Answers:
    """The answers of a rule that knows the landmarks of each factor, as in a run, or does not."""
    trials = [(NAMED[name], width, distance) for name in names for width, distance in CELLS]
    which = np.repeat(np.arange(len(names)), len(CELLS))
    sds = np.array([width * likelihood.width for likelihood, width, _ in trials])
    means = np.array([x.location + d * sd for (x, _, d), sd in zip(trials, sds, strict=True)])
    truth = stacked([x.reference(m, sd) for (x, _, _), m, sd in zip(trials, means, sds, strict=True)])

    def log_factor(likelihood: Likelihood) -> Callable[[jax.Array], Any]:
        return lambda h: likelihood.distribution(h[0]).log_prob(jnp.asarray(likelihood.value))

    plain = [log_factor(NAMED[name]) for name in names]

    def without(i: jax.Array, mean: jax.Array, scale: jax.Array) -> Tilted:
        return rule(lambda h: jax.lax.switch(i, plain, h), mean, scale)  # one rule for all compiles faster

    def knowing(i: jax.Array, mean: jax.Array, scale: jax.Array) -> Tilted:
        prepared = [scalar_factor(f, mean.dtype) for f in plain]
        return jax.lax.switch(i, [lambda m, s, f=f, x=x: rule(f, m, s, x) for f, x in prepared], mean, scale)

    def one(trial: tuple[jax.Array, jax.Array, jax.Array]) -> Tilted:
        i, mean, sd = trial
        return (knowing if with_landmarks else without)(i, mean[None], sd[None, None])

    out = jax.jit(lambda t: jax.lax.map(one, t))((jnp.asarray(which), jnp.asarray(means), jnp.asarray(sds)))
    return Answers(trials, np.asarray(out.error), worst(out, truth))


def keeps_its_bounds(given: Answers, which: int) -> None:
    """Every error within the bound of its likelihood, and none much above its own estimate."""
    bad = ~(given.errors <= [likelihood.bounds[which] for likelihood, _, _ in given.trials])
    assert not bad.any(), given.complaint(bad)
    # an estimate may be too small where a part too small to matter was missed: far below what would be marked
    slack = 1e-10 if which else 1e-7
    bad = ~(given.errors <= given.estimates + slack)
    assert not bad.any(), given.complaint(bad)


@pytest.mark.slow
def test_the_default_quadrature_keeps_its_bounds_and_knows_its_error() -> None:
    keeps_its_bounds(answers(DEFAULT, HARD), 0)


@pytest.mark.slow
def test_the_accurate_quadrature_keeps_its_bounds_and_knows_its_error() -> None:
    keeps_its_bounds(answers(PRECISE, HARD[1:3]), 1)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "which"), [(DEFAULT, 0), (PRECISE, 1)])
def test_every_likelihood_of_the_battery_keeps_its_bounds(rule: Quadrature, which: int) -> None:
    keeps_its_bounds(answers(rule, tuple(NAMED)), which)


@pytest.mark.slow
def test_smooth_factors_need_no_landmarks() -> None:
    keeps_its_bounds(answers(DEFAULT, SMOOTH, with_landmarks=False), 0)


@pytest.mark.slow
def test_a_rule_that_may_not_work_says_so() -> None:
    """With no panels to spend, the hard cells are wrong: every one that misses its bound has to be marked."""
    rule = Quadrature(max_panels=1)
    given = answers(rule, SMOOTH, with_landmarks=False)
    wrong = given.errors > [likelihood.bounds[0] for likelihood, _, _ in given.trials]
    assert wrong.sum() >= 5
    silent = wrong & (given.estimates <= rule.reported(jnp.dtype("float64")))
    assert not silent.any(), given.complaint(silent)


@pytest.mark.parametrize(("name", "label"), [("logit", "Bernoulli"), ("probit", "probit")])
def test_the_default_quadrature_needs_no_landmarks_for_smooth_factors(name: str, label: str) -> None:
    """On every cell within its bound, and the estimate covers the error."""
    likelihood = NAMED[name]
    sds = np.array([width * likelihood.width for width, _ in CELLS])
    means = likelihood.location + np.array([d for _, d in CELLS]) * sds
    out = LINE(label, likelihood.value, means, sds)
    truth = stacked([likelihood.reference(m, sd) for m, sd in zip(means, sds, strict=True)])
    trials = [(likelihood, *cell) for cell in CELLS]
    keeps_its_bounds(Answers(trials, np.asarray(out.error), worst(out, truth)), 0)
