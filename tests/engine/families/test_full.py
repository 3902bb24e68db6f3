"""The full Gaussian family against exact answers: batch Bayesian regression, and Opper's (7.1)-(7.2)."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import norm

import adfpp
from tests.engine.families.common import covariance, step


def linear(x: Any, y: Any = None, noise: Any = 0.5, scale: Any = 2.0) -> None:
    """Linear regression with intercept."""
    w = numpyro.sample("w", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(1, 3))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w + b, noise), obs=y)


def batch_regression(
    x: np.ndarray, y: np.ndarray, noise: np.ndarray | float, mean: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Textbook posterior of linear regression."""
    precision = np.linalg.inv(covariance) + x.T @ (x / np.broadcast_to(noise, y.shape)[:, None] ** 2)
    right = np.linalg.solve(covariance, mean) + x.T @ (y / np.broadcast_to(noise, y.shape) ** 2)
    posterior = np.linalg.inv(precision)
    return posterior @ right, posterior


def test_linear_gaussian_is_exact_in_any_order() -> None:
    """Any order of the rows gives batch Bayesian regression to 1e-9, and the exact evidence."""
    rng = np.random.default_rng(1)
    x, n = rng.normal(size=(64, 4)), 64
    y = x @ np.array([1.0, -2.0, 0.5, 0.0]) + 1.0 + 0.5 * rng.normal(size=n)
    design = np.column_stack([x, np.ones(n)])
    prior_mean, prior = np.array([0, 0, 0, 0, 1.0]), np.diag([4.0] * 4 + [9.0])
    mean, cov = batch_regression(design, y, 0.5, prior_mean, prior)
    total = design @ prior @ design.T + 0.25 * np.eye(n)
    residual = y - design @ prior_mean
    evidence = -0.5 * (residual @ np.linalg.solve(total, residual) + np.linalg.slogdet(2 * np.pi * total)[1])
    adf = adfpp.ADF(linear)
    for order in (np.arange(n), np.arange(n)[::-1], rng.permutation(n)):
        state, info = adf.update(adf.init(jax.random.key(0), x, y=y), x[order], y=y[order])
        np.testing.assert_allclose(state.belief.mean, mean, atol=1e-9)
        np.testing.assert_allclose(covariance(state.belief), cov, atol=1e-9)
        np.testing.assert_allclose(np.sum(info.log_z), evidence, rtol=1e-9)


def test_blocked_rows_equal_row_by_row() -> None:
    """Above 96 dimensions rows are folded in blocks: the same answer as one at a time, refused rows included."""
    rng = np.random.default_rng(2)
    n, size = 80, 120
    x = rng.normal(size=(n, size))
    y = (rng.normal(size=n) > 0).astype(int)
    x[5, 3], y[9] = np.nan, 2
    adf = adfpp.ADF(step)
    start = adf.init(jax.random.key(0), x[10:], y=y[10:], noise=1.0)
    blocked, info = adf.update(start, x, y=y, noise=1.0)
    single = start
    for i in range(n):
        single, one = adf.update(single, x[i : i + 1], y=y[i : i + 1], noise=1.0)
        np.testing.assert_allclose(one.log_z[0], info.log_z[i], atol=1e-10)
        assert int(one.status[0]) == int(info.status[i])
    np.testing.assert_allclose(blocked.belief.mean, single.belief.mean, atol=1e-11)
    np.testing.assert_allclose(covariance(blocked.belief), covariance(single.belief), atol=1e-11)
    assert [int(info.status[i]) for i in (5, 9)] == [adfpp.Status.NOT_FINITE, adfpp.Status.OUT_OF_SUPPORT]


def test_full_family_is_opper_7_1_and_7_2() -> None:
    """One probit row: m + C x ∂ log Z, C + C x ∂² log Z xᵀ C with the derivatives of (9.2)."""
    rng = np.random.default_rng(3)
    x, noise = rng.normal(size=(6, 5)), 0.7
    mean, cov = np.zeros(5), np.eye(5)
    adf = adfpp.ADF(step)
    labels = np.array([1, 0, 1, 1, 0, 0])
    state, _ = adf.update(adf.init(jax.random.key(0), x, y=labels, noise=noise), x, y=labels, noise=noise)
    for row, label in zip(x, labels, strict=True):
        s, total = 2 * label - 1, noise**2 + row @ cov @ row
        z = s * (mean @ row) / np.sqrt(total)
        ratio = norm.pdf(z) / norm.cdf(z)
        first, second = ratio * s / np.sqrt(total), -ratio * (z + ratio) / total
        mean, cov = mean + cov @ row * first, cov + second * np.outer(cov @ row, cov @ row)
    np.testing.assert_allclose(state.belief.mean, mean, atol=1e-12)
    np.testing.assert_allclose(covariance(state.belief), cov, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("x64", [False, True])
def test_full_family_stays_definite_through_a_million_rows(x64: bool) -> None:
    """Nearly collinear columns, prior sd 100, noise sd 1e-3: no negative variance, no NaN, in either precision."""
    with jax.enable_x64(x64):
        rng = np.random.default_rng(6)
        n, chunk = 1 << 20, 1 << 15
        base = rng.normal(size=(chunk, 1)).astype(np.float32)
        wiggle = 1e-4 * rng.normal(size=(chunk, 4)).astype(np.float32)
        x = base + wiggle if not x64 else (base + wiggle).astype(float)
        truth = np.array([1.0, -2.0, 3.0, 0.5])
        y = (x @ truth + 1e-3 * rng.normal(size=chunk)).astype(x.dtype)
        adf = adfpp.ADF(linear)
        state = adf.init(jax.random.key(0), x, y=y, noise=1e-3, scale=100.0)
        assert state.belief.mean.dtype == x.dtype
        for _ in range(n // chunk):
            state, info = adf.update(state, x, y=y, noise=1e-3, scale=100.0)
            assert (np.asarray(info.status) == adfpp.Status.OK).all()
        assert int(state.rows) == n
        scale = np.asarray(state.belief.scale, float)
        assert np.isfinite(scale).all()
        variances = (scale**2).sum(1)
        assert (variances > 0).all() and (variances <= 1.01e4).all()
        assert np.linalg.svd(scale, compute_uv=False).min() > 0
        design = np.column_stack([x, np.ones(chunk)]).astype(float)
        repeated = np.tile(design, (1, 1))
        precision = np.diag([1e-4] * 4 + [1 / 9]) + (n // chunk) * 1e6 * repeated.T @ repeated
        exact = np.sqrt(np.diagonal(np.linalg.inv(precision)))
        ratio = np.sqrt(variances) / exact
        assert (np.abs(np.log(ratio)) < (1e-6 if x64 else 0.5)).all(), ratio
