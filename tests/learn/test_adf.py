"""Assumed-density filtering as a user meets it: precision, shuffling, and the traps that peers fell into."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import ndtr
from scipy.stats import norm

import adfpp
from adfpp import ADF, Status
from adfpp.distributions import Probit
from tests.learn.common import TRACES, equal, labels, logistic


@pytest.mark.slow
def test_float32_by_default(float32: None) -> None:
    """Without x64 everything is float32 and close to the float64 answer; nothing is promoted."""
    x, y = labels(3, 128)
    adf = ADF(logistic)
    state, info = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y)
    assert state.belief.mean.dtype == info.log_z.dtype == jnp.float32
    with jax.enable_x64(True):
        wide = ADF(logistic)
        exact, exact_info = wide.update(wide.init(jax.random.key(0), x, y=y), x, y=y)
    np.testing.assert_allclose(np.asarray(state.belief.mean), np.asarray(exact.belief.mean), atol=2e-4)
    np.testing.assert_allclose(np.asarray(info.log_z).sum(), np.asarray(exact_info.log_z).sum(), rtol=1e-5)


@pytest.mark.slow
def test_random_batch_lengths_compile_at_most_a_dozen_times() -> None:
    """A thousand batches of random length: the model is traced for the reader and for a few padded lengths."""
    rng = np.random.default_rng(4)
    x, y = labels(4, 1000)
    adf = ADF(logistic)
    state = adf.init(jax.random.key(0), x, y=y)
    folds = {"count": 0}

    def listen(event: str, duration_secs: float, **kwargs: Any) -> None:
        folds["count"] += event.endswith("backend_compile_duration")

    jax.monitoring.register_event_duration_secs_listener(listen)
    before = TRACES["count"]
    try:
        total = 0
        for n in rng.integers(1, 1001, size=1000):
            state, info = adf.update(state, x[:n], y=y[:n])
            assert info.log_z.shape == (n,)
            total += int(n)
    finally:
        jax.monitoring.clear_event_listeners()
    assert int(state.rows) == total
    assert 0 < folds["count"] <= 12
    assert TRACES["count"] == before  # the model itself is not run again: its trace is


def test_shuffled_run_is_the_same_rows_in_another_order(learner: Any) -> None:
    """Shuffling is by the key; info stays in the order of the data; sorted labels stop mattering."""
    adf, _, x, y = learner
    order = np.argsort(y, kind="stable")
    shuffled = adf.run(jax.random.key(5), x, y=y, shuffle=True, progress_bar=False)
    again = adf.run(jax.random.key(5), x, y=y, shuffle=True, progress_bar=False)
    assert equal(shuffled.state, again.state)
    assert not np.allclose(
        shuffled.state.belief.mean, adf.run(jax.random.key(5), x, y=y, progress_bar=False).state.belief.mean
    )
    bad = y.copy()
    bad[17] = 3
    with pytest.warns(adfpp.RowsMarked, match="1 OUT_OF_SUPPORT"):
        told = adf.run(jax.random.key(5), x, y=bad, shuffle=True, progress_bar=False, chunk_size=32)
    assert np.flatnonzero(told.info.status).tolist() == [17]
    ordered = adf.run(jax.random.key(5), x[order], y=y[order], progress_bar=False)
    mixed = adf.run(jax.random.key(5), x[order], y=y[order], shuffle=True, progress_bar=False)
    distance = [np.abs(r.state.belief.mean - shuffled.state.belief.mean).max() for r in (ordered, mixed)]
    assert distance[1] < 0.5 * distance[0]


def test_precision_and_covariance_agree_after_forgetting() -> None:
    """sd is an sd: summary, sample and the state tell one story after discounting (trap 5)."""
    x, y = labels(9, 64)
    adf = ADF(logistic, dynamics=adfpp.Discount(0.95))
    post = adf.get_posterior(adf.run(jax.random.key(0), x, y=y, progress_bar=False).state)
    draws = post.sample(jax.random.key(1), (20_000,))
    np.testing.assert_allclose(np.std(draws["w"], 0), post.sd()["w"], rtol=0.03)
    np.testing.assert_allclose(post.summary().loc["b", "sd"], float(post.sd()["b"]), rtol=1e-12)
    distribution: Any = post.distribution
    cov = np.asarray(distribution.covariance_matrix)
    np.testing.assert_allclose(np.sqrt(np.diagonal(cov))[:3], post.sd()["w"], rtol=1e-10)


@pytest.mark.slow
def test_clipped_probit_is_why_there_is_a_probit() -> None:
    """Bernoulli(probs=ndtr(h)) loses mass in the tail; Probit agrees with the integral there (trap 12)."""
    h = jnp.asarray(-12.0)
    assert float(Probit(h).log_prob(1)) == pytest.approx(norm.logcdf(-12.0), rel=1e-12)
    assert float(dist.Bernoulli(probs=ndtr(-h)).log_prob(0)) - norm.logcdf(-12.0) > 10
    assert float(Probit(-h).log_prob(0)) == pytest.approx(norm.logcdf(-12.0), rel=1e-12)
    assert np.isfinite(float(jax.grad(jax.grad(lambda v: Probit(v).log_prob(1)))(h)))


def test_vague_prior_collinear_columns_in_float32(float32: None) -> None:
    """Prior sd 100, columns equal to 1e-3: float32 answers within a fifth of an sd of float64 (trap 13)."""

    def model(x: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0, 100).expand([x.shape[-1]]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)

    rng = np.random.default_rng(10)
    base = rng.normal(size=(500, 1))
    x = np.concatenate([base, base + 1e-3 * rng.normal(size=(500, 2))], 1)
    y = (base[:, 0] + rng.logistic(size=500) > 0).astype(int)
    x = x.astype(np.float32)
    narrow = ADF(model)
    state, info = narrow.update(narrow.init(jax.random.key(0), x, y=y), x, y=y)
    assert (np.asarray(info.status) < Status.NOT_FINITE).all()
    with jax.enable_x64(True):
        wide = ADF(model)
        exact, _ = wide.update(wide.init(jax.random.key(0), x.astype(float), y=y), x.astype(float), y=y)
    sd = np.linalg.norm(np.asarray(exact.belief.scale), axis=1)
    assert (np.abs(np.asarray(state.belief.mean) - np.asarray(exact.belief.mean)) < 0.2 * sd).all()
    assert (np.abs(np.linalg.norm(np.asarray(state.belief.scale), axis=1) / sd - 1) < 0.1).all()


@pytest.mark.slow
def test_any_length_inside_jit() -> None:
    """A traced batch whose length no block divides is folded as an eager one is; so is one with a traced state only."""
    rng = np.random.default_rng(12)
    x, y = rng.normal(size=(100, 120)), rng.integers(0, 2, 100)
    adf = ADF(logistic)
    start = adf.init(jax.random.key(0), x, y=y)
    eager, info = adf.update(start, x, y=y)
    for function, arguments in (
        (lambda s, a, b: adf.update(s, a, y=b), (start, x, y)),
        (lambda s: adf.update(s, x, y=y), (start,)),
    ):
        traced, traced_info = jax.jit(function)(*arguments)
        np.testing.assert_allclose(traced.belief.mean, eager.belief.mean, atol=1e-12)
        np.testing.assert_allclose(traced_info.log_z, info.log_z, atol=1e-12)


def test_gaps_without_dynamics_are_refused(learner: Any) -> None:
    """``dt`` would be ignored."""
    adf, start, x, y = learner
    with pytest.raises(ValueError, match="dynamics"):
        adf.update(start, x, y=y, dt=np.ones(len(y)))
