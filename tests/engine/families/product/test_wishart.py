"""The Wishart family against SciPy's Wishart, and against the Gamma in one dimension."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import adfpp
from adfpp.engine.families.product.gamma import Gamma
from adfpp.engine.families.product.wishart import Wishart
from tests.learn.vmp import models

FREEDOM = 7.3
RATE = np.array([[3.0, 1.0, -0.5], [1.0, 2.0, 0.3], [-0.5, 0.3, 1.5]])
ETA = jnp.concatenate([jnp.array([FREEDOM / 2.0]), jnp.asarray(RATE / 2.0).ravel()])
EXACT = stats.wishart(FREEDOM, np.linalg.inv(RATE))
FAMILY = Wishart(3)


def test_density_and_moments_are_those_of_scipy() -> None:
    values = EXACT.rvs(5, random_state=1)
    densities = [EXACT.logpdf(v) for v in values]
    np.testing.assert_allclose(FAMILY.log_prob(ETA, jnp.asarray(values.reshape(5, 9))), densities, rtol=1e-12)
    mean, variance = FAMILY.moments(ETA)
    np.testing.assert_allclose(mean, EXACT.mean().ravel(), rtol=1e-12)
    np.testing.assert_allclose(variance, EXACT.var().ravel(), rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(FAMILY.covariance(ETA)), variance, rtol=1e-12)


def test_draws_and_quantiles_agree() -> None:
    draws = np.asarray(FAMILY.sample(jax.random.key(0), ETA, (20000,)))
    error = 4.0 * np.sqrt(np.diagonal(FAMILY.covariance(ETA)) / 20000)
    assert (np.abs(draws.mean(0) - EXACT.mean().ravel()) < error).all()
    for q in (0.1, 0.9):
        below = (draws < FAMILY.quantile(np.asarray(ETA), q)).mean(0)
        np.testing.assert_allclose(below, q, atol=4.0 * np.sqrt(0.09 / 20000))


def test_one_dimension_is_a_gamma() -> None:
    eta, change = jnp.array([2.5, 3.0]), jnp.array([0.1, -0.2])
    for name in ("log_norm", "expected", "entropy"):
        np.testing.assert_allclose(getattr(Wishart(1), name)(eta), getattr(Gamma(), name)(eta), rtol=1e-12)
    np.testing.assert_allclose(Wishart(1).shifted(eta, change), Gamma().shifted(eta, change), rtol=1e-10)


@pytest.mark.parametrize("factor", [0.6, 1.0, 40.0])
def test_members_are_found_from_their_expected_statistics(factor: float) -> None:
    other = ETA * jnp.concatenate([jnp.array([factor]), jnp.full(9, 1.7)])
    change = FAMILY.expected(other) - FAMILY.expected(ETA)
    np.testing.assert_allclose(FAMILY.shifted(ETA, change), other, rtol=1e-9)
    assert float(FAMILY.kl(ETA, other)) > 0.0 and abs(float(FAMILY.kl(other, other))) < 1e-12
    assert not bool(FAMILY.proper(-ETA))


@pytest.mark.slow
def test_evidence_of_a_precision_matrix_is_exact() -> None:
    y = np.random.default_rng(0).normal(size=(40, 2)) @ np.array([[1.0, 0.5], [0.0, 0.7]])
    learner = adfpp.VMP(models.precision_matrix)
    found = learner.run(jax.random.key(0), y, progress_bar=False)
    freedom, rate = 5.0, np.array([[2.0, 0.4], [0.4, 1.0]])
    prior = Wishart(2).log_norm(jnp.asarray([freedom / 2, *(rate / 2).ravel()]))
    after = (rate + y.T @ y) / 2
    exact = Wishart(2).log_norm(jnp.asarray([(freedom + 40) / 2, *after.ravel()])) - prior - 40 * np.log(2.0 * np.pi)
    np.testing.assert_allclose(found.log_evidence, exact, rtol=1e-12)
    with pytest.raises(adfpp.ModelError, match=r"'wishart'.*adfpp\.VMP"):
        adfpp.ADF(models.precision_matrix, family={"P": "wishart"}).run(jax.random.key(0), y, progress_bar=False)
