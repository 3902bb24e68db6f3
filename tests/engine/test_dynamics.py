"""Dynamics against a textbook Kalman filter and recursive least squares with forgetting."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from adfpp import ADF, Discount, OrnsteinUhlenbeck, RandomWalk
from adfpp.engine.status import Status


def linear(x: Any, y: Any = None, noise: float = 0.5) -> None:
    """Linear regression: slopes and an intercept."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w + b, noise), obs=y)


PRIOR = np.diag([1.0, 1.0, 1.0, 4.0])


def stream(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, outputs, time gaps."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    y = x @ np.array([1.0, -1.0, 0.5]) + np.sin(np.arange(n) / 10) + 0.5 * rng.normal(size=n)
    return x, y, rng.exponential(size=n)


def kalman(x: np.ndarray, y: np.ndarray, move: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """A textbook filter: ``move(m, C, t)`` predicts before every row but the first."""
    m, c, log_z = np.zeros(4), PRIOR.copy(), 0.0
    for t, (row, target) in enumerate(zip(np.column_stack([x, np.ones(len(x))]), y, strict=True)):
        if t > 0:
            m, c = move(m, c, t)
        s = row @ c @ row + 0.25
        k = c @ row / s
        log_z += -0.5 * (target - row @ m) ** 2 / s - 0.5 * np.log(2 * np.pi * s)
        m, c = m + k * (target - row @ m), c - np.outer(k, k) * s
    return m, c, log_z


WALKS = {
    "scalar": (0.1, 0.1 * np.eye(4)),
    "site": ({"b": 0.3}, np.diag([0, 0, 0, 0.3])),
    "elements": ({"w": np.array([0.1, 0.2, 0.0])}, np.diag([0.1, 0.2, 0, 0])),
    "matrix": (0.2 * np.ones((4, 4)) + 0.1 * np.eye(4), 0.2 * np.ones((4, 4)) + 0.1 * np.eye(4)),
}


@pytest.mark.parametrize("kind", WALKS)
@pytest.mark.parametrize("timed", [False, True])
def test_random_walk_is_a_kalman_filter(kind: str, timed: bool) -> None:
    """Mean, covariance and evidence to 1e-9, with and without time gaps; in one batch or in pieces."""
    x, y, gaps = stream(1)
    variance, q = WALKS[kind]
    m, c, log_z = kalman(x, y, lambda m, c, t: (m, c + q * (gaps[t] if timed else 1.0)))
    adf = ADF(linear, dynamics=RandomWalk(variance))
    state = adf.init(jax.random.key(0), x, y=y)
    total = 0.0
    for part in (slice(0, 32), slice(32, 60)):
        dt: dict[str, Any] = {"dt": gaps[part]} if timed else {}
        state, info = adf.update(state, x[part], y=y[part], **dt)
        total += float(np.sum(info.log_z))
    np.testing.assert_allclose(state.belief.mean, m, atol=1e-9)
    np.testing.assert_allclose(state.belief.scale @ state.belief.scale.T, c, atol=1e-9)
    np.testing.assert_allclose(total, log_z, rtol=1e-9)


def test_discounting_is_rls_with_forgetting() -> None:
    """C / λ before each row is RLS: mean to 1e-9, and the precision is the discounted sum."""
    x, y, _ = stream(2)
    adf = ADF(linear, dynamics=Discount(0.9))
    result = adf.run(jax.random.key(0), x, y=y, progress_bar=False)
    design = np.column_stack([x, np.ones(len(x))])
    theta, p = np.zeros(4), PRIOR / 0.25  # RLS holds C in units of the noise variance
    for t, (row, target) in enumerate(zip(design, y, strict=True)):
        p = p / (0.9 if t else 1.0)
        gain = p @ row / (1 + row @ p @ row)
        theta, p = theta + gain * (target - row @ theta), p - np.outer(gain, row @ p)
    np.testing.assert_allclose(result.state.belief.mean, theta, atol=1e-9)
    cov = np.asarray(result.state.belief.scale @ result.state.belief.scale.T)
    np.testing.assert_allclose(cov, 0.25 * p, atol=1e-9)
    weights = 0.9 ** np.arange(len(x))[::-1]
    precision = weights[0] * np.linalg.inv(PRIOR) + (design * weights[:, None]).T @ design / 0.25
    np.testing.assert_allclose(np.linalg.inv(cov), precision, rtol=1e-8)


def test_ornstein_uhlenbeck_returns_to_the_prior() -> None:
    """A Kalman filter with φ = exp(-dt/timescale); after a long gap the belief is the prior."""
    x, y, gaps = stream(3)
    tau = 5.0

    def move(m: np.ndarray, c: np.ndarray, t: int) -> tuple[np.ndarray, np.ndarray]:
        phi = np.exp(-gaps[t] / tau)
        return phi * m, phi**2 * c + (1 - phi**2) * PRIOR

    m, c, log_z = kalman(x, y, move)
    adf = ADF(linear, dynamics=OrnsteinUhlenbeck(tau))
    state, info = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y, dt=gaps)
    np.testing.assert_allclose(state.belief.mean, m, atol=1e-9)
    np.testing.assert_allclose(state.belief.scale @ state.belief.scale.T, c, atol=1e-9)
    np.testing.assert_allclose(np.sum(info.log_z), log_z, rtol=1e-9)
    late, late_info = adf.update(state, x[:1], y=y[:1], dt=np.array([1e4]))
    fresh, fresh_info = adf.update(adf.init(jax.random.key(0), x, y=y), x[:1], y=y[:1])
    np.testing.assert_allclose(late.belief.mean, fresh.belief.mean, atol=1e-12)
    np.testing.assert_allclose(late_info.log_z, fresh_info.log_z, atol=1e-12)


@pytest.mark.parametrize("family", ["diagonal", "spherical"])
def test_simple_families_diffuse_by_the_projected_noise(family: str) -> None:
    """A gap with an uninformative row adds the diagonal (or mean) of Q to the variance."""
    x, y, _ = stream(4)
    matrix = 0.2 * np.ones((4, 4)) + np.diag([0.1, 0.2, 0.3, 0.4])
    adf = ADF(linear, family=family, dynamics=RandomWalk(matrix))
    state, _ = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y)
    later, _ = adf.update(state, np.zeros((1, 3)), y=np.zeros(1), dt=np.array([3.0]), noise=1e9)
    added = np.asarray(later.belief.scale) ** 2 - np.asarray(state.belief.scale) ** 2
    expected = 3.0 * np.diagonal(matrix)
    np.testing.assert_allclose(added, expected if family == "diagonal" else expected.mean(), rtol=1e-6)


def test_time_passes_over_a_refused_row() -> None:
    """A refused row leaves the belief bit for bit, and the next one moves it by both gaps."""
    x, y, gaps = stream(5, 8)
    bad = x.copy()
    bad[4] = np.nan
    adf = ADF(linear, dynamics=RandomWalk(0.1))
    start = adf.init(jax.random.key(0), x, y=y)
    before, _ = adf.update(start, x[:4], y=y[:4], dt=gaps[:4])
    refused, info = adf.update(before, bad[4:5], y=y[4:5], dt=gaps[4:5])
    assert int(info.status[0]) == Status.NOT_FINITE
    assert np.array_equal(refused.belief.mean, before.belief.mean)
    assert np.array_equal(refused.belief.scale, before.belief.scale)
    np.testing.assert_allclose(refused.clock, gaps[4])
    after, _ = adf.update(refused, x[5:], y=y[5:], dt=gaps[5:])
    keep = [0, 1, 2, 3, 5, 6, 7]
    joined = gaps.copy()
    joined[5] += joined[4]
    direct, _ = adf.update(start, x[keep], y=y[keep], dt=joined[keep])
    np.testing.assert_allclose(after.belief.mean, direct.belief.mean, atol=1e-12)


def test_bad_dynamics_are_named() -> None:
    """Wrong sites, matrices, factors and gaps are refused in words."""
    x, y, _ = stream(6, 4)
    with pytest.raises(ValueError, match="latents.*nope"):
        ADF(linear, dynamics=RandomWalk({"nope": 1.0})).init(jax.random.key(0), x, y=y)
    with pytest.raises(ValueError, match="negative eigenvalues"):
        ADF(linear, dynamics=RandomWalk(np.diag([1.0, 1, 1, -1]))).init(jax.random.key(0), x, y=y)
    with pytest.raises(ValueError, match="not negative"):
        ADF(linear, dynamics=RandomWalk(-1.0)).init(jax.random.key(0), x, y=y)
    with pytest.raises(ValueError, match="forgetting"):
        Discount(1.5)
    with pytest.raises(ValueError, match="timescale"):
        OrnsteinUhlenbeck(0.0)
    adf = ADF(linear, dynamics=RandomWalk(0.1))
    state = adf.init(jax.random.key(0), x, y=y)
    with pytest.raises(ValueError, match="dt must be"):
        adf.update(state, x, y=y, dt=-np.ones(4))


def test_predict_step_is_not_thrown_away() -> None:
    """Diffusion widens the posterior: with a random walk it does not shrink as 1/n (peers' trap)."""
    x, y, _ = stream(7)
    static = ADF(linear).run(jax.random.key(0), x, y=y, progress_bar=False).state
    moving = ADF(linear, dynamics=RandomWalk(0.1)).run(jax.random.key(0), x, y=y, progress_bar=False).state
    ratio = np.linalg.norm(moving.belief.scale, axis=1) / np.linalg.norm(static.belief.scale, axis=1)
    assert (ratio > 2).all()
