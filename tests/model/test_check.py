"""The numeric check: the log-densities of rows add up to that of the batch."""

from typing import Any

import jax
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
    looked_at,
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
    assert [looked_at(check, X[t : t + 1], y[t : t + 1]) for t in range(3)] == [False, False, True]


def test_the_check_gives_up_on_rows_that_cannot_be_compared() -> None:
    """After a hundred calls with one and the same row."""
    check = RowCheck(program(linear, X, y=Y))
    through = [looked_at(check, X[:1], Y[:1]) for _ in range(100)]
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
    through = [looked_at(check, x[i : i + 5], y[i : i + 5]) for i in range(0, 40, 5)]
    assert all(through)  # at some draw of w two rows are possible


def test_refuses_a_prior_that_looks_at_the_data() -> None:
    """Its shape does not change, its values do."""

    def model(x: Array, y: Array | None = None) -> None:
        w = sample("w", dist.Normal(x.mean(0), 1).to_event(1))
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    says(refusal(model, X, y=Y), "prior", "rows", "arguments of their own")


# ------------------------------------------------------------------------------- coupling that hides


def lagged(y: Array, n_lags: int = 12) -> None:
    """An autoregression that shifts its own rows, padded with zeros."""
    phi = sample("phi", dist.Normal(0, 0.5))
    before = jnp.concatenate([jnp.zeros(n_lags), y[:-n_lags]]) if y.shape[0] > n_lags else jnp.zeros(y.shape[0])
    with rows(y):
        sample("obs", dist.Normal(phi * before, 0.1), obs=y)


def kernel(x: Array, y: Array) -> None:
    """Regression with a kernel whose length scale has its prior near 6: near 0 the rows are all but independent."""
    rho = sample("rho", dist.Gamma(25, 4))
    covariance = jnp.exp(-0.5 * ((x[:, None] - x) / rho) ** 2) + 0.1 * jnp.eye(x.shape[0])
    numpyro.factor("gp", jax.scipy.stats.multivariate_normal.logpdf(y, jnp.zeros(x.shape[0]), covariance))


def after_the_fourth(x: Array, y: Array | None = None) -> None:
    """From the fifth row on, a row uses the one before it."""
    w = sample("w", dist.Normal(0, 1))
    shifted = jnp.concatenate([x[:4], x[3:-1]]) if x.shape[0] > 4 else x
    with rows(x):
        sample("y", dist.Normal(w * shifted, 1.0), obs=y)


AUTOREGRESSION = np.sin(np.arange(60.0))
PLACES = np.linspace(0.0, 120.0, 12)  # far apart for length scales near 1


@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize("name", ["lagged", "kernel", "after the fourth"])
def test_refuses_coupling_that_few_rows_or_values_near_zero_do_not_show(name: str, x64: bool) -> None:
    """The message has the numbers of the comparison, and the values of the latents at which it was made."""
    with jax.enable_x64(x64):
        if name == "lagged":
            message = refusal(lagged, AUTOREGRESSION)
            says(message, "'obs'", "do not add up", "by itself", "among all 60 rows", "at phi = ", "y_before")
        elif name == "kernel":
            says(refusal(kernel, PLACES, y=np.cos(PLACES)), "'gp'", "together", "one by one", "at rho = ")
        else:
            says(refusal(after_the_fourth, np.arange(9.0), y=np.zeros(9)), "the log-density of row", "at w = ")


def tied_far_out(x: Array, y: Array | None = None) -> None:
    """Rows are tied together only where w is larger than any draw of its prior."""
    w = sample("w", dist.Normal(0, 1))
    others = jnp.where(w > 8.0, x.sum() - x, 0.0)
    with rows(x):
        sample("y", dist.Normal(w * x + others, 0.1), obs=y)


def test_compares_again_at_the_belief_reached() -> None:
    """The data say 12. The run warns; the check refuses."""
    x = np.linspace(1.0, 2.0, 8)
    adf = adfpp.ADF(tied_far_out)
    with pytest.warns(adfpp.RowsMarked, match=r"not the posterior of this model.*do not add up.*w = 1\d\."):
        result = adf.run(KEY, x, y=12.0 * x, progress_bar=False)
    with pytest.raises(adfpp.ModelError, match="do not add up"):
        adfpp.check(adf, result, x, y=12.0 * x, progress_bar=False)


def branching(c: Array, centre: Array, y: Array) -> None:
    """A softmax whose first logit counts twice beyond a limit: no direction of the logits can be left out."""
    w: Array = sample("w", dist.Normal(centre, 1.0).expand([3]).to_event(1))
    logits = w + jnp.where(jnp.sum(w) > 3e3, w, 0.0) * jnp.eye(3)[0]
    with rows(y):
        sample("y", dist.Categorical(logits=logits + c[:, None]), obs=y)


def test_compares_fields_without_constant_directions_at_the_data() -> None:
    """Near 0, where the model is read, the logits can be shifted; where the prior is, they cannot."""
    c, y, far = np.zeros(4), np.array([0, 1, 2, 1]), np.asarray(2e3)
    says(refusal(branching, c, far, y=y), "'y'", "constant in some directions", "w = [", "Moments(reduced=False)")
    for moments, centre, size in ((adfpp.Moments(), 0.0 * far, 2), (adfpp.Moments(reduced=False), far, 3)):
        assert adfpp.ADF(branching, moments=moments).explain(c, centre, y=y).factors[0].field_size == size
