"""The numeric check: the log-densities of rows add up to that of the batch."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adfpp
from adfpp.model import RowCheck
from tests.model.common import (
    KEY,
    SCALE,
    Array,
    X,
    Y,
    exact,
    learned,
    linear,
    program,
    refusal,
    rows,
    sample,
    says,
    weights,
)


def centred(x: Array, y: Array | None = None) -> None:
    """Standardises inside the model."""
    w = weights()
    x = x - x.mean(0)
    with rows(x):
        sample("y", dist.Normal(x @ w, SCALE), obs=y)


def test_refuses_rows_that_use_each_other() -> None:
    """``x - x.mean()``."""
    says(refusal(centred, X, y=Y), "'y'", "add up", "several rows", "x.mean()", "before the model")


def test_checks_rows_as_soon_as_there_are_two() -> None:
    """With one row at ``init`` nothing can be told; the next row tells."""
    adf = adfpp.ADF(centred)
    state = adf.init(KEY, X[:1], y=Y[:1])
    with pytest.raises(adfpp.ModelError, match="add up"):
        adf.update(state, X[1:2], y=Y[1:2])


def test_checks_rows_although_the_first_has_nan() -> None:
    """A first row that cannot be used does not put off the check for good."""
    broken = X.copy()
    broken[[0, 2]] = np.nan
    says(refusal(centred, broken, y=Y), "'y'", "add up")
    adf = adfpp.ADF(centred)
    state = adf.init(KEY, broken[:1], y=Y[:1])
    state, _ = adf.update(state, X[1:2], y=Y[1:2])
    with pytest.raises(adfpp.ModelError, match="add up"):
        adf.update(state, X[3:4], y=Y[3:4])


def test_nan_among_the_first_rows_is_no_obstacle() -> None:
    """They are refused one by one, and the others learned."""
    broken = X.copy()
    broken[[0, 2]] = np.nan
    whole = np.isfinite(broken[:, 0])
    mean, covariance, info = learned(linear, broken, y=Y)
    expected = exact(X[whole], Y[whole])
    np.testing.assert_allclose(mean, expected[0], atol=1e-10)
    np.testing.assert_allclose(covariance, expected[1], atol=1e-10)
    np.testing.assert_array_equal(np.asarray(info.status) == adfpp.Status.NOT_FINITE, ~whole)


def test_check_ends_although_the_first_row_is_impossible() -> None:
    """A first row of probability zero does not have the model checked again and again."""

    def model(x: Array, y: Array | None = None) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Gamma(2.0, jnp.exp(x @ w)), obs=y)

    y = np.abs(Y)
    y[0] = -1.0
    check = RowCheck(program(model, X, y=y))
    assert [check.done([X[t : t + 1], y[t : t + 1]], []) for t in range(3)] == [False, False, True]


def test_the_check_gives_up_on_rows_that_cannot_be_compared() -> None:
    """After a hundred calls with one and the same row."""
    check = RowCheck(program(linear, X, y=Y))
    through = [check.done([X[:1], Y[:1]], []) for _ in range(100)]
    assert through == [False] * 99 + [True]


def test_rows_of_probability_zero_do_not_break_the_check() -> None:
    """A noise-free likelihood makes many rows impossible at a random draw; they are neither an error nor proof."""

    def step(x: Any, y: Any = None) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", adfpp.distributions.Probit(x @ w, noise=0.0), obs=y)

    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    y = (x @ [1.0, -1.0] > 0).astype(int)
    check = RowCheck(program(step, x, y=y))
    through = [check.done([x[i : i + 5], y[i : i + 5]], []) for i in range(0, 40, 5)]
    assert not any(through)  # no two rows are possible at the same three draws of w


def test_refuses_a_prior_that_looks_at_the_data() -> None:
    """Its shape does not change, its values do."""

    def model(x: Array, y: Array | None = None) -> None:
        w = sample("w", dist.Normal(x.mean(0), 1).to_event(1))
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    says(refusal(model, X, y=Y), "prior", "rows", "arguments of their own")
