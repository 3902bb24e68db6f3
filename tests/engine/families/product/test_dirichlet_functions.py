"""Functions of the Dirichlet's α against mpmath and SciPy."""

from typing import Any

import jax
import numpy as np
from scipy.stats import dirichlet

from adfpp.engine.families.product.dirichlet_functions import (
    divergence,
    expected_logs,
    log_multivariate_beta,
    log_prob,
    moments,
    shifted,
)
from tests.engine.families.product.members import mp

ALPHA = np.array([[0.3, 0.3, 0.3], [1e-3, 2.0, 1e3], [7.0, 1.5, 40.0], [1e4, 1e4, 1e-2]])
OTHER = np.array([[0.4, 0.2, 0.9], [2e-3, 1.0, 2e3], [7.1, 1.4, 41.0], [0.9e4, 1.1e4, 3e-2]])


def exact_logs(alpha: np.ndarray) -> list[list[float]]:
    return [[float(mp.digamma(a) - mp.digamma(mp.fsum(row))) for a in row] for row in alpha.tolist()]


def exact_log_beta(row: list[float]) -> Any:
    return mp.fsum(mp.loggamma(a) for a in row) - mp.loggamma(mp.fsum(row))


def test_expectations() -> None:
    """The expected logs, the normaliser and the divergence to 40 digits; means and variances as in SciPy."""
    np.testing.assert_allclose(jax.jit(expected_logs)(ALPHA), exact_logs(ALPHA), rtol=1e-13)
    norms = [float(exact_log_beta(row)) for row in ALPHA.tolist()]
    np.testing.assert_allclose(jax.jit(log_multivariate_beta)(ALPHA), norms, rtol=1e-12)
    logs = [[mp.digamma(a) - mp.digamma(mp.fsum(row)) for a in row] for row in ALPHA.tolist()]
    kl = [
        exact_log_beta(theirs)
        - exact_log_beta(ours)
        + mp.fsum((a - b) * log for a, b, log in zip(ours, theirs, row, strict=True))
        for ours, theirs, row in zip(ALPHA.tolist(), OTHER.tolist(), logs, strict=True)
    ]
    np.testing.assert_allclose(jax.jit(divergence)(ALPHA, OTHER), [float(x) for x in kl], rtol=1e-9)
    mean, variance = jax.jit(moments)(ALPHA)
    np.testing.assert_allclose(mean, [dirichlet.mean(a) for a in ALPHA], rtol=1e-13)
    np.testing.assert_allclose(variance, [dirichlet.var(a) for a in ALPHA], rtol=1e-12)


def test_density() -> None:
    """The log-density as in SciPy."""
    points = np.array([[0.2, 0.3, 0.5]] * len(ALPHA))
    expected = [dirichlet.logpdf(s, a) for s, a in zip(points, ALPHA, strict=True)]
    np.testing.assert_allclose(jax.jit(log_prob)(ALPHA, points), expected, rtol=1e-11)


def test_the_member_with_changed_expected_logs() -> None:
    """The expected logs of the result are those of α plus the change; a change that no member has gives NaN."""
    change = np.array(exact_logs(OTHER)) - np.array(exact_logs(ALPHA))
    found = np.asarray(jax.jit(shifted)(ALPHA, change))
    np.testing.assert_allclose(exact_logs(found), exact_logs(OTHER), rtol=1e-12)
    np.testing.assert_allclose(found, OTHER, rtol=1e-8)
    assert np.isnan(np.asarray(jax.jit(shifted)(ALPHA[2:3], np.full((1, 3), 1.0)))).all()
