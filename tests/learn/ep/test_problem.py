"""A data set as the schedules see it: any family, any precision, warm starts, and rows that are refused."""

import jax
import numpy as np
import pytest

import adfpp
from adfpp import EP, Status
from tests.learn.ep.common import BATTERY, data, exact_linear, linear, logistic, mean_and_sd, moments, probit, run

KEY = jax.random.key(0)


@pytest.mark.parametrize("family", ["diagonal", "spherical"])
def test_families_that_forget_correlations(family: str) -> None:
    """Where each row looks at one column there are none to forget, and a linear-Gaussian model is exact."""
    _, y, _ = data(30, 3)
    x = np.eye(3)[np.arange(30) % 3]
    result = run(linear, x, of={"y": y}, family=family, tol=1e-8, max_sweeps=400)
    mean, covariance, _ = exact_linear(x, y)
    assert result.info.converged
    sd = np.sqrt(np.diag(covariance))
    # a common variance is not exact row by row, but nearly so where all columns know as much
    near = 1e-7 if family == "diagonal" else 0.1
    np.testing.assert_allclose((moments(result)[0] - mean) / sd, 0.0, atol=near)
    np.testing.assert_allclose(np.sqrt(np.diag(moments(result)[1])) / sd, 1.0, atol=near)
    assert result.state.sites[0].shape == (30, 1, 6 if family == "diagonal" else 4)


@pytest.mark.slow
def test_adf_hands_its_state_on() -> None:
    """From a belief that has seen the rows, EP needs fewer sweeps and ends in the same place."""
    x, _, y = data(200, 3, seed=8)
    adf = adfpp.ADF(probit)
    passed = adf.run(KEY, x, y=y, progress_bar=False)
    cold = run(probit, x, of={"y": y}, tol=1e-6)
    for given in (passed, passed.state):
        warm = run(probit, x, of={"y": y}, state=given, tol=1e-6)
        assert warm.info.converged
        np.testing.assert_allclose(warm.state.belief.mean, cold.state.belief.mean, atol=1e-5)
    again = run(probit, x, of={"y": y}, state=cold, tol=1e-6)
    assert again.info.converged and again.info.sweeps == 1


def test_refused_rows_are_left_out() -> None:
    """NaN and impossible rows are coded, counted and told; the rest is as without them."""
    x, _, y = data(30, 3)
    bad, labels = x.copy(), y.astype(float)
    bad[4, 0], labels[9] = np.nan, 7.0
    with pytest.warns(adfpp.RowsMarked, match="2 of 30 rows"):
        result = run(logistic, bad, of={"y": labels}, tol=1e-7)
    good = np.delete(np.arange(30), [4, 9])
    clean = run(logistic, x[good], of={"y": y[good].astype(float)}, tol=1e-7)
    assert result.info.status[4] == Status.NOT_FINITE and result.info.status[9] == Status.OUT_OF_SUPPORT
    assert int(result.state.rows) == 28 and result.info.converged
    np.testing.assert_allclose(result.state.belief.mean, clean.state.belief.mean, atol=1e-5)
    assert result.log_evidence == pytest.approx(clean.log_evidence, abs=1e-5)
    for a in result.state.sites:
        np.testing.assert_array_equal(a[[4, 9]], 0.0)


@pytest.mark.slow
def test_single_precision() -> None:
    """float32 throughout, vague prior and near-collinear columns: proper, and near float64."""
    model, (x,), kwargs = BATTERY["near-collinear columns"]
    double = run(model, x, of=kwargs)
    with jax.enable_x64(False):
        single = EP(model).run(KEY, x.astype(np.float32), progress_bar=False, **kwargs)
    assert single.state.belief.mean.dtype == np.float32 and single.state.sites[0].dtype == np.float32
    mean, sd = mean_and_sd(double)
    assert single.info.converged
    np.testing.assert_allclose((moments(single)[0] - mean) / sd, 0.0, atol=0.05)
