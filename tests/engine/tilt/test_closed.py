"""Closed-form tilts against exact answers in 80 digits, as far out as they claim to hold."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from adfpp.engine.tilt import gaussian_tilt, normal_tail, normal_tilt, probit_tilt, rosenblatt_tilt
from tests.engine.tilt.common import assert_exact, exact_gaussian, spd_root, stacked, worst
from tests.oracles import gaussian_moments, probit_moments, rosenblatt_moments, tilted_moments

# z of the tail formulas: both sides of the switch at -4.5, and as far as they claim to hold
TAILS = (-1e3, -100.0, -30.0, -8.0, -4.6, -4.4, -1.0, 0.0, 0.5, 4.4, 9.0, 40.0, 1e3)


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


def test_the_normal_tail_is_exact_to_a_thousand_sds() -> None:
    log_mass, hazard, gap, variance = normal_tail(jnp.asarray(TAILS))
    # a step under a cavity N(z, 1): its shift is the hazard and its root squared the variance of the tail
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
    # a flip that is known only when the program runs takes another branch
    assert_exact(PROBIT(labels, means, sds, jnp.asarray(noise), jnp.asarray(flip)), truth)


PROBIT = jax.jit(probit_tilt)


@pytest.mark.parametrize("beta", [0.1, 1.0, 10.0, 1000.0, math.inf])
def test_rosenblatt_is_exact(beta: float) -> None:
    cases = [(label, z * sd, sd) for label, z, sd in itertools.product((0, 1), TAILS, (0.02, 1.0, 30.0))]
    labels, means, sds = (jnp.asarray(x) for x in zip(*cases, strict=True))
    truth = stacked([rosenblatt_moments(*case, beta=beta) for case in cases])
    assert_exact(rosenblatt_tilt(labels, means, sds, beta), truth)


def test_a_certain_field_only_weighs_the_label() -> None:
    certain = probit_tilt(1, jnp.asarray(0.7), jnp.asarray(0.0), 1.0)
    assert_allclose(certain.log_z, probit_moments(1, 0.7, 1e-30).log_z, rtol=1e-13)
    assert (certain.shift, certain.root) == (0.0, 1.0)
    step = probit_tilt(1, jnp.asarray([0.7, -0.7]), jnp.asarray(0.0), 0.0)
    assert_array_equal(step.log_z, [0.0, -np.inf])


def test_normal_is_exact_regression() -> None:
    cases = list(itertools.product((-3.0, 1e5), (1e-6, 0.3, 1e4), (0.5, -20.0), (1e-5, 2.0, 1e6)))
    value, noise, mean, sd = (jnp.asarray(x) for x in zip(*cases, strict=True))
    assert_exact(normal_tilt(value, mean, sd, noise), stacked([gaussian_moments(*case) for case in cases]))


def test_a_correlated_vector_is_exact_regression() -> None:
    value, mean = np.array([0.3, -1.0, 2.0]), np.array([1.0, 0.0, -0.5])
    scale, noise = spd_root(1, 3), spd_root(2, 3)
    out = gaussian_tilt(jnp.asarray(value), jnp.asarray(mean), jnp.asarray(scale), jnp.asarray(noise))
    log_z, shift, covariance = exact_gaussian(value, mean, scale, noise)
    assert_allclose(out.log_z, log_z, rtol=1e-12)
    assert_allclose(out.shift, shift, rtol=1e-11)
    assert_allclose(out.root @ out.root.T, covariance, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("noise", "flip"), [(1.0, 0.0), (0.0, 0.0), (0.5, 0.2), (1.0, 0.9)])
def test_the_labels_of_a_probit_share_all_the_mass(noise: float, flip: float) -> None:
    means, sds = (x.ravel() for x in jnp.meshgrid(jnp.linspace(-40, 40, 9), jnp.asarray([0.1, 1.0, 50.0])))
    mass = sum(jnp.exp(probit_tilt(label, means, sds, noise, flip).log_z) for label in (0, 1))
    assert_allclose(mass, 1.0, rtol=1e-13)
