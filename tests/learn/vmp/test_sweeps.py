"""One sweep against the textbook's updates."""

import numpy as np
import pytest

import adfpp
from tests.learn.vmp import models
from tests.learn.vmp.models import KEY, parts_of, swept


@pytest.mark.slow
def test_mean_and_precision_are_those_of_the_textbook() -> None:
    y = np.random.default_rng(3).normal(2.0, 0.5, 40)
    vmp = adfpp.VMP(models.normal)
    state = vmp.init(KEY, y)
    for _ in range(20):  # a bound that no longer rises leaves the square root of its rounding in the values
        state, _ = swept(vmp, state, y)
    shape, rate, m, v = 2.0 + len(y) / 2, 1.0, 0.0, 1.0
    for _ in range(200):
        precision = 1 / 9 + len(y) * shape / rate
        m, v = (1 / 9 + y.sum() * shape / rate) / precision, 1 / precision
        rate = 1.5 + 0.5 * ((y - m) ** 2 + v).sum()
    parts = parts_of(vmp, state)
    np.testing.assert_allclose(parts["mu"].mean, [[m]], rtol=1e-9)
    np.testing.assert_allclose(parts["mu"].scale, [[[np.sqrt(v)]]], rtol=1e-9)
    np.testing.assert_allclose(parts["tau"], [[shape, rate]], rtol=1e-9)
    mean = vmp.get_posterior(state).mean()
    np.testing.assert_allclose([mean["mu"], mean["tau"]], [m, shape / rate], rtol=1e-9)


@pytest.mark.slow
def test_mixture_follows_the_textbook_sweep_by_sweep() -> None:
    y = models.clusters()
    vmp = adfpp.VMP(models.mixture)
    state = vmp.init(KEY, y)
    start = parts_of(vmp, state)
    mean, scale = (np.asarray(a, float) for a in start["mu"])
    gamma = np.asarray(start["tau"], float)
    book = models.TextbookMixture(
        y,
        np.asarray(start["weights"], float)[0],
        mean.reshape(3, 2),
        (scale**2).reshape(3, 2),
        gamma[:, 0],
        gamma[:, 1],
    )
    bounds = []
    for _ in range(12):
        state, result = swept(vmp, state, y)
        bounds.append(float(result.bound))
        np.testing.assert_allclose(bounds[-1], book.sweep(), rtol=1e-10)
    parts = parts_of(vmp, state)
    np.testing.assert_allclose(parts["weights"], [book.alpha], rtol=1e-9)
    np.testing.assert_allclose(np.reshape(parts["mu"].mean, (3, 2)), book.mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(parts["tau"], np.stack([book.shape, book.rate], 1), rtol=1e-9)
    assert np.all(np.diff(bounds) > -1e-9)


@pytest.mark.slow
def test_factor_analysis_follows_the_textbook_sweep_by_sweep() -> None:
    y = models.factors()
    vmp = adfpp.VMP(models.factor_analysis)
    state = vmp.init(KEY, y)
    start = parts_of(vmp, state)
    mean, scale = (np.asarray(a, float) for a in start["w"])
    alpha, tau = (np.asarray(start[name], float).T for name in ("alpha", "tau"))
    book = models.TextbookFactors(y, alpha, mean, scale @ np.swapaxes(scale, 1, 2), tau)
    bounds = []
    for _ in range(8):
        state, result = swept(vmp, state, y)
        bounds.append(float(result.bound))
        book.sweep()
    parts = parts_of(vmp, state)
    np.testing.assert_allclose(parts["w"].mean, book.mean, rtol=1e-7, atol=1e-9)
    covariance = np.asarray(parts["w"].scale) @ np.swapaxes(parts["w"].scale, 1, 2)
    np.testing.assert_allclose(covariance, book.covariance, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(np.asarray(parts["tau"]).T, book.tau, rtol=1e-8)
    np.testing.assert_allclose(np.asarray(parts["alpha"]).T, book.alpha, rtol=1e-8)
    assert np.all(np.diff(bounds) > -1e-9)
    z, _ = book.moments()
    np.testing.assert_allclose(vmp.get_local(state, y)["z"][0], z[:, :2], rtol=1e-7, atol=1e-8)
