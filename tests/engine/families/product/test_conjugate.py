"""Points, probes and entropies of the parts in variational message passing."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from adfpp.engine.families import Belief
from adfpp.engine.families.product.conjugate import ConjugateComponents, GaussianBlocks, signs_of
from adfpp.engine.families.product.dirichlet import Beta, Dirichlet
from adfpp.engine.families.product.finite import Finite
from adfpp.engine.families.product.gamma import Gamma, InverseGamma
from adfpp.engine.families.product.wishart import Wishart

MEMBERS: list[tuple[Any, np.ndarray]] = [
    (Gamma(), np.array([[0.5, 2.0], [300.0, 7.0], [1e6, 3.0]])),
    (InverseGamma(), np.array([[0.7, 2.0], [40.0, 7.0]])),
    (Beta(), np.array([[0.5, 2.0], [300.0, 7.0], [2e4, 3e4]])),
    (Dirichlet(3), np.array([[0.5, 2.0, 1.0], [300.0, 7.0, 0.1]])),
    (Finite((0.0, 1.0, 2.0)), np.array([[0.3, -1.0]])),
    (Wishart(2), np.array([[1.2, 2.0, 0.5, 0.5, 1.0], [300.0, 7.0, -2.0, -2.0, 40.0]])),
]


@pytest.mark.parametrize(("family", "eta"), MEMBERS)
def test_points_have_the_expected_statistics(family: Any, eta: np.ndarray) -> None:
    weights, values = family.points(jnp.asarray(eta))
    stats_of = jnp.tensordot(weights, family.stats(values).astype(float), 1)
    np.testing.assert_allclose(stats_of, family.expected(jnp.asarray(eta)), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("family", "eta"), MEMBERS)
def test_natural_parameters_are_read_at_any_probe(family: Any, eta: np.ndarray) -> None:
    """The log-density of a member is linear in its statistics, so that every probe gives its natural parameters."""
    part = ConjugateComponents(("s",), family, np.arange(eta.shape[0] * family.dim), eta.shape[0])
    tilt = jnp.asarray(eta - family.flat)
    near = jnp.asarray(np.abs(eta) + 1.0)

    def expected(moment: Any) -> jax.Array:
        weights, values = part.points_of(moment)
        statistics = family.stats(values.reshape((len(weights), *near.shape[:1], -1))).astype(float)
        return jnp.sum(tilt * jnp.tensordot(weights, statistics, 1))

    for far in (0.0, 1.0):
        moment = part.probe(near, far)
        slope = jax.grad(expected)(moment)
        if isinstance(family, Finite):  # its statistics are indicators, which the weights differentiate
            np.testing.assert_allclose(slope, tilt, rtol=1e-10)
        np.testing.assert_allclose(part.read(moment, slope), eta.ravel(), rtol=1e-9)


@pytest.mark.parametrize(
    ("family", "eta", "exact"),
    [
        (Gamma(), [3.0, 2.0], stats.gamma(3.0, scale=0.5)),
        (InverseGamma(), [3.0, 2.0], stats.invgamma(3.0, scale=2.0)),
        (Beta(), [0.7, 2.0], stats.beta(0.7, 2.0)),
        (Dirichlet(3), [0.7, 2.0, 1.5], stats.dirichlet([0.7, 2.0, 1.5])),
        (Wishart(2), [1.7, 2.0, 0.5, 0.5, 1.0], stats.wishart(3.4, np.linalg.inv([[4.0, 1.0], [1.0, 2.0]]))),
    ],
)
def test_entropies_are_those_of_scipy(family: Any, eta: list[float], exact: Any) -> None:
    np.testing.assert_allclose(family.entropy(jnp.asarray(eta)), exact.entropy(), rtol=1e-12)


def blocks() -> tuple[GaussianBlocks, Belief]:
    """Two blocks of three numbers, whose places alternate."""
    rng = np.random.default_rng(0)
    scale = np.tril(rng.normal(size=(2, 3, 3))) + 2.0 * np.eye(3)
    return GaussianBlocks(("w",), np.array([0, 2, 4, 1, 3, 5]), 2), Belief(
        jnp.asarray(rng.normal(size=(2, 3))), jnp.asarray(scale)
    )


def test_signs_are_uncorrelated() -> None:
    for size in (1, 2, 3, 4, 7, 8, 30):
        signs = signs_of(size)
        np.testing.assert_array_equal(signs.mean(0), 0.0)
        np.testing.assert_allclose(signs.T @ signs / len(signs), np.eye(size), atol=1e-15)


def test_gaussian_blocks_have_points_densities_and_natural_parameters() -> None:
    part, value = blocks()
    weights, points = part.points(value)
    values = np.asarray(points).reshape(len(weights), 2, 3)
    covariance = np.asarray(value.scale) @ np.swapaxes(value.scale, 1, 2)
    for b in range(2):
        np.testing.assert_allclose(np.asarray(weights) @ values[:, b], value.mean[b], atol=1e-14)
        np.testing.assert_allclose(np.cov(values[:, b].T, aweights=np.asarray(weights), bias=True), covariance[b])
    exact = [stats.multivariate_normal(value.mean[b], covariance[b]) for b in range(2)]  # pyright: ignore
    theta = np.random.default_rng(1).normal(size=(4, 6))
    densities = sum(e.logpdf(theta.reshape(4, 2, 3)[:, b]) for b, e in enumerate(exact))
    np.testing.assert_allclose(part.log_prob(value, jnp.asarray(theta)), densities, rtol=1e-12)
    np.testing.assert_allclose(part.entropy(value), sum(e.entropy() for e in exact), rtol=1e-12)
    again, proper = part.from_natural(part.natural(value))
    assert bool(proper)
    np.testing.assert_allclose(again.mean, value.mean, rtol=1e-11)
    np.testing.assert_allclose(np.asarray(again.scale) @ np.swapaxes(again.scale, 1, 2), covariance, rtol=1e-11)


def test_gaussian_natural_parameters_are_read_at_any_probe() -> None:
    part, value = blocks()
    natural = np.asarray(part.natural(value))

    def expected(moment: Belief) -> jax.Array:
        weights, points = part.points_of(moment)
        return weights @ part.log_prob(value, points)

    elsewhere = part.initial(np.zeros(6), np.full(6, 0.3), float)
    for far in (0.0, 1.0):
        moment = part.probe(elsewhere, far)
        np.testing.assert_allclose(part.read(moment, jax.grad(expected)(moment)), natural, rtol=1e-9, atol=1e-10)
    constant = float(part.log_prob(value, jnp.zeros(6)))
    np.testing.assert_allclose(part.expected_sum(value, jnp.asarray(natural)) + constant, expected(value), rtol=1e-12)
    _, proper = part.from_natural(jnp.asarray(-natural))
    assert not bool(proper)
