"""Errors of an approximation, measured by weights and by a walk, against posteriors whose moments are known."""

import numpy as np
import pytest
from scipy import special

from adfpp.judge.moments import CHAINS, Measured, Method, by_paths, by_reweighted, measure
from adfpp.judge.walk import Base, walk
from adfpp.learn.importance import good_rows, good_weights, reweighted

NAMES = ("a", "b")
ROOT = np.array([[1.0, 0.0], [0.6, 0.8]])  # of a correlation of 0.6


def base(
    rng: np.random.Generator, mean: tuple[float, float] = (0.0, 0.0), sd: tuple[float, float] = (1.0, 1.0)
) -> Base:
    """A Gaussian with a correlation of 0.6."""
    root = np.diag(sd) @ ROOT
    covariance, inverse = root @ root.T, np.linalg.inv(root)
    return Base(
        np.array(mean),
        np.array(sd),
        lambda count: np.array(mean) + rng.normal(size=(count, 2)) @ root.T,
        lambda theta: np.sum(((theta - np.array(mean)) @ inverse.T) ** 2, 1),
        lambda chosen: (covariance / np.array(sd)[:, None])[chosen],
    )


def gaussian(theta: np.ndarray) -> np.ndarray:
    """A log density with standard normal marginals and a correlation of 0.6."""
    return -0.5 * np.sum((theta @ np.linalg.inv(ROOT).T) ** 2, 1)


def log_gamma(theta: np.ndarray) -> np.ndarray:
    """The logs of two independent gamma numbers with shapes 0.7 and 9: the first has a long left tail."""
    return np.sum(SHAPES * theta - np.exp(theta), 1)


SHAPES = np.array([0.7, 9.0])
MEANS, SDS = special.digamma(SHAPES), np.sqrt(special.polygamma(1, SHAPES))


def measured(one: Base, log_joint: object, rng: np.random.Generator, most: int = 10**6) -> Measured:
    theta = one.draw(2000)
    log_p = log_joint(theta)  # type: ignore[operator]
    weighted = reweighted(theta, log_p, -0.5 * one.distance(theta), lambda t: {})
    first = by_reweighted(NAMES, weighted, one.mean, one.sd)
    return measure(one, log_joint, theta, log_p, first, rng, most)  # type: ignore[arg-type]


def test_an_exact_approximation_has_no_error() -> None:
    """Weights that are all equal have no noise, and need no further method."""
    rng = np.random.default_rng(0)
    found = measured(base(rng), gaussian, rng)
    assert found.method is Method.WEIGHTS and found.reliable and found.noise < 1e-9
    assert found.error.value < 1e-9 and found.ratios == pytest.approx((1.0, 1.0))
    assert found.tails == pytest.approx(np.full((2, 2), 0.05), abs=0.02)


@pytest.mark.parametrize(
    ("mean", "sd"),
    [((0.3, 0.0), (1.0, 1.0)), ((0.0, 0.0), (0.5, 1.0)), ((0.0, -0.5), (0.8, 1.5))],
)
def test_shifts_and_widths_are_found(mean: tuple[float, float], sd: tuple[float, float]) -> None:
    """Gaussians with other moments; sds of one half are too narrow for weights of their own draws."""
    rng = np.random.default_rng(1)
    found = measured(base(rng, mean, sd), gaussian, rng)
    assert found.reliable
    assert np.all(np.abs(found.shift - mean) < 4 * found.shift_se + 1e-3)
    assert np.all(np.abs(found.log_ratio - np.log(sd)) < 4 * found.log_ratio_se + 1e-3)
    assert found.error.noise < 0.2 * max(1.0, found.error.value)


@pytest.mark.parametrize("off", [4.0, 31.0])
def test_an_approximation_that_is_far_off_is_known_to_be(off: float) -> None:
    """The chains are under way for most of the walk, so that the estimate may be low, but it is far above one sd."""
    rng = np.random.default_rng(1)
    found = measured(base(rng, (off, 0.0)), gaussian, rng)
    assert found.reliable and found.method is Method.WALK
    assert 1.5 < found.error.value - found.error.noise < off and found.error.where == "a"


def test_a_skewed_log_scale_is_found() -> None:
    """A Gaussian at the mode with the curvature there: the left tail of the log of a gamma number is beyond it."""
    rng = np.random.default_rng(2)
    mode, curvature = np.log(SHAPES), 1.0 / np.sqrt(SHAPES)
    narrow = Base(
        mode,
        curvature,
        lambda count: mode + curvature * rng.normal(size=(count, 2)),
        lambda theta: np.sum(((theta - mode) / curvature) ** 2, 1),
        lambda chosen: np.where(np.arange(2) == chosen[:, None], curvature, 0.0),
    )
    found = measured(narrow, log_gamma, rng)
    assert found.reliable and found.method is Method.WIDER
    assert found.noise < 0.1
    assert np.all(np.abs(found.shift - (mode - MEANS) / SDS) < 4 * found.shift_se)  # 0.51 and 0.17
    assert np.all(np.abs(found.log_ratio - np.log(curvature / SDS)) < 4 * found.log_ratio_se)  # 0.71 and 0.97 as ratios
    below = special.gammainc(SHAPES[0], np.exp(mode[0] + curvature[0] * special.ndtri(0.05)))
    assert found.tail.where == "the lower tail of a" and found.tail.value == pytest.approx(below, abs=0.015)


@pytest.mark.parametrize("seed", range(3))
def test_a_walk_comes_to_the_exact_moments(seed: int) -> None:
    """From a Gaussian that is too narrow and off; the errors are those of the noise that the paths report."""
    rng = np.random.default_rng(seed)
    one = base(rng, (0.4, -0.2), (0.6, 1.2))
    start = one.draw(CHAINS)
    made = walk(one, gaussian, start, 24, rng)
    assert made.paths.shape == (25, CHAINS, 2)
    np.testing.assert_allclose(made.paths[0], (start - one.mean) / one.sd)
    found = by_paths(NAMES, made.paths)
    assert found.reliable and found.noise < 0.2
    assert np.all(np.abs(found.shift - [0.4, -0.2]) < 4 * found.shift_se)
    assert np.all(np.abs(found.log_ratio - np.log([0.6, 1.2])) < 4 * found.log_ratio_se)


def test_a_walk_leaves_the_exact_posterior_as_it_is() -> None:
    """Draws of the exact distribution stay draws of it, step by step, although the ellipses are off."""
    rng = np.random.default_rng(5)
    theta = np.log(rng.gamma(SHAPES, size=(4000, 2)))
    one = base(rng, (-0.5, 2.0), (1.5, 0.3))
    paths = one.mean + one.sd * walk(one, log_gamma, theta, 6, rng).paths
    for step in (1, 2, 6):
        moved = paths[step]
        assert np.all(np.abs(moved.mean(0) - MEANS) < 4 * SDS / np.sqrt(4000))
        assert np.all(np.abs(moved.std(0) / SDS - 1.0) < 0.06)
    assert np.mean(np.all(paths[6] == paths[0], 1)) < 0.01  # and they do move


def test_a_path_that_remembers_its_start_is_extrapolated() -> None:
    """An autoregression that has made half of the way in each step of the record, and one that has hardly moved."""
    rng = np.random.default_rng(6)
    for kept, reliable in ((0.6, True), (0.995, False)):
        z = rng.normal(size=(20_000, 1))
        paths = [z]
        for _ in range(6):
            z = 0.5 + kept * (z - 0.5) + np.sqrt(1 - kept**2) * rng.normal(size=z.shape)  # its mean is 0.5
            paths.append(z)
        found = by_paths(("a",), np.stack(paths))
        assert found.reliable is reliable
        if reliable:
            assert found.shift[0] == pytest.approx(-0.5, abs=4 * found.shift_se[0]) and found.shift_se[0] < 0.06


def test_a_walk_that_is_too_expensive_is_not_made() -> None:
    rng = np.random.default_rng(7)
    found = measured(base(rng, (30.0, 0.0)), gaussian, rng, most=100)
    assert found.method is Method.WIDER and not found.resolved


def test_discrete_coordinates_count_in_probabilities() -> None:
    """Draws of a fair coin, weighted to a probability of 0.8: twice the total variation distance is 0.6."""
    theta = np.repeat([[0.0], [1.0]], 500, 0)
    log_p = np.where(theta[:, 0] == 1.0, np.log(0.8), np.log(0.2))
    found = by_reweighted(("z",), reweighted(theta, log_p, np.zeros(1000), lambda t: {}, [(0.0, 1.0)]), [0.5], [0.5])
    assert found.shift == pytest.approx([0.6]) and found.log_ratio == pytest.approx([0.0])
    assert 0.0 < found.shift_se[0] < 0.1 and found.ratios == (1.0, 1.0)


def test_k_hat_does_not_count_if_the_weights_are_nearly_equal() -> None:
    assert good_weights(2.56, 998.0, 1000) and good_weights(0.69, 500.0, 1000)
    assert not good_weights(2.56, 950.0, 1000) and not good_weights(0.1, 150.0, 1000)
    log_weights = np.log(np.full((2, 100), 0.01))
    log_weights[1] = np.log(np.r_[0.5, np.full(99, 0.5 / 99)])
    np.testing.assert_array_equal(good_rows(log_weights, np.array([2.56, 2.56])), [True, False])
    np.testing.assert_array_equal(good_rows(log_weights, np.array([0.1, 0.1])), [True, True])
