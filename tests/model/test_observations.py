"""One row as factors: every way to write a likelihood, with masks and Jacobians."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats

from adfpp.engine.tilt import ClosedForm
from adfpp.model import RowCheck
from tests.model.common import (
    HOLES,
    SCALE,
    SEEN,
    Array,
    X,
    Y,
    assert_exact,
    factor_log_density,
    learned,
    looked_at,
    program,
    rows,
    sample,
    weights,
)

THETAS = np.random.default_rng(3).normal(size=(3, 2))


def mask_handler(x: Array, seen: Array, y: Array) -> None:
    """Masked by the handler."""
    w = weights()
    with rows(x), handlers.mask(mask=seen):
        sample("y", dist.Normal(x @ w, SCALE), obs=y)


def mask_distribution(x: Array, seen: Array, y: Array) -> None:
    """Masked by the distribution, under to_event over the rows."""
    w = weights()
    sample("y", dist.Normal(x @ w, SCALE).mask(seen).to_event(1), obs=y)


def mask_inferred(x: Array, seen: Array, y: Array) -> None:
    """Masked where y is NaN."""
    w = weights()
    with rows(x):
        sample("y", dist.Normal(x @ w, SCALE).mask(~jnp.isnan(y)), obs=y)


@pytest.mark.parametrize("model", [mask_handler, mask_distribution, mask_inferred])
def test_masked_rows_are_left_out(model: Callable[..., None]) -> None:
    """Masked rows, NaN in them or not, leave no trace."""
    got = learned(model, X, SEEN, HOLES)
    assert_exact(got, X[SEEN], Y[SEEN])
    np.testing.assert_array_equal(np.asarray(got[2].log_z)[~SEEN], 0.0)


def test_masked_rows_are_left_out_by_algebra() -> None:
    """The same where there is no closed form: the latent stands in the observed value. What is read is learned."""

    def model(x: Array, seen: Array, y: Array) -> None:
        w = weights()
        with rows(x), handlers.mask(mask=seen):
            sample("y", dist.Normal(0.0, SCALE), obs=y - x @ w)

    got = learned(model, X, SEEN, HOLES)
    assert_exact(got, X[SEEN], Y[SEEN])
    np.testing.assert_array_equal(np.asarray(got[2].log_z)[~SEEN], 0.0)


def test_masked_elements_are_left_out() -> None:
    """A mask over the elements of a vector-valued row."""
    y = np.stack([HOLES, Y], 1)

    def model(x: Array, y: Array) -> None:
        w = weights()
        with numpyro.plate("rows", x.shape[0], dim=-2), numpyro.plate("columns", 2):
            sample("y", dist.Normal((x @ w)[:, None], SCALE).mask(~jnp.isnan(y)), obs=y)

    assert_exact(learned(model, X, y), np.concatenate([X[SEEN], X]), np.concatenate([Y[SEEN], Y]))


def test_a_masked_value_beside_a_seen_one_of_the_same_local_latent_is_left_out() -> None:
    """Two measurements of what is drawn for a row hang together, and the second one is missing."""

    def model(x: Array, y: Array, v: Array) -> None:
        w = weights()
        with rows(x):
            z = sample("z", dist.Normal(0.0, 0.4))
            sample("y", dist.Normal(x @ w + z, SCALE), obs=y)
            sample("v", dist.Normal(z, SCALE).mask(~jnp.isnan(v)), obs=v)

    mean, covariance, info = learned(model, X, Y, np.full(len(Y), np.nan))
    np.testing.assert_array_equal(info.status, 0)
    noise = SCALE**2 + 0.4**2  # of y about x @ w, the local latent integrated out
    precision = np.eye(2) + X.T @ X / noise
    np.testing.assert_allclose(mean, np.linalg.solve(precision, X.T @ Y / noise), atol=1e-5)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), atol=1e-5)
    normal: Any = stats.multivariate_normal  # its stubs know scalar covariances only
    evidence = normal.logpdf(Y, np.zeros(len(Y)), X @ X.T + noise * np.eye(len(Y)))
    np.testing.assert_allclose(np.sum(info.log_z), evidence, atol=1e-5)


def factor_per_row(x: Array, y: Array) -> None:
    """The likelihood as a vector of factors."""
    numpyro.factor("y", dist.Normal(x @ weights(), SCALE).log_prob(y))


def factor_in_plate(x: Array, y: Array) -> None:
    """The likelihood as a factor in the data plate."""
    w = weights()
    with rows(x):
        numpyro.factor("y", dist.Normal(x @ w, SCALE).log_prob(y))


def factor_summed(x: Array, y: Array) -> None:
    """The likelihood as one number: its rows add up, so it is one."""
    numpyro.factor("y", dist.Normal(x @ weights(), SCALE).log_prob(y).sum())


def no_plate(x: Array, y: Array) -> None:
    """An observation without a plate."""
    sample("y", dist.Normal(x @ weights(), SCALE), obs=y)


def event_over_rows(x: Array, y: Array) -> None:
    """The rows as an event of independent elements."""
    sample("y", dist.Normal(x @ weights(), SCALE).to_event(1), obs=y)


class Bell(dist.Distribution):
    """A user's own distribution; it cannot even sample."""

    arg_constraints = {"loc": dist.constraints.real}
    support = dist.constraints.real  # pyright: ignore[reportAssignmentType]

    def __init__(self, loc: Array, *, validate_args: bool | None = None) -> None:
        self.loc = loc
        super().__init__(jnp.shape(loc), (), validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        return -0.5 * ((value - self.loc) / SCALE) ** 2 - jnp.log(SCALE * jnp.sqrt(2 * jnp.pi))


class Subclass(dist.Normal):
    """A subclass may mean something else, so it does not inherit a closed form."""

    def log_prob(self, value: Array) -> Array:
        return 2.0 * super().log_prob(value)


def own_distribution(x: Array, y: Array) -> None:
    """A user's own likelihood."""
    w = weights()
    with rows(x):
        sample("y", Bell(x @ w), obs=y)


def latent_in_the_value(x: Array, y: Array) -> None:
    """The observed value is a residual."""
    w = weights()
    with rows(x):
        sample("y", dist.Normal(0.0, SCALE), obs=y - x @ w)


def latent_in_value_and_field(x: Array, y: Array) -> None:
    """Half of the predictor stands on each side."""
    w = weights()
    with rows(x):
        sample("y", dist.Normal(x[:, 0] * w[0], SCALE), obs=y - x[:, 1] * w[1])


def one_distribution_for_all_rows(x: Array, y: Array) -> None:
    """A distribution without rows and an array of values: NumPyro repeats the distribution for each."""
    w = weights()
    sample("y", dist.Normal(0.0, SCALE), obs=y - x @ w)


@pytest.mark.parametrize(
    "model",
    [
        factor_per_row,
        factor_in_plate,
        factor_summed,
        no_plate,
        event_over_rows,
        own_distribution,
        latent_in_the_value,
        latent_in_value_and_field,
        one_distribution_for_all_rows,
    ],
)
def test_ways_to_write_a_likelihood(model: Callable[..., None]) -> None:
    """All are read as one number of a field, with the density of the plain model, and their rows add up."""
    read_as = program(model, X, Y)
    assert [(group.field_size, group.count) for group in read_as.factors] == [(1, 1)]
    for x, y in zip(X[:2], Y[:2], strict=True):
        expected = stats.norm.logpdf(y, THETAS @ x, SCALE)
        np.testing.assert_allclose(factor_log_density(read_as, THETAS, x, y), expected, rtol=1e-12)
    assert looked_at(RowCheck(read_as), X, Y)


def test_a_subclass_keeps_its_own_density() -> None:
    """Its log density counts, here every row twice, and no closed form is taken from its parent."""

    def model(x: Array, y: Array) -> None:
        w = weights()
        with rows(x):
            sample("y", Subclass(x @ w, SCALE), obs=y)

    read_as = program(model, X, Y)
    assert not isinstance(read_as.factors[0].rule, ClosedForm)
    expected = 2.0 * stats.norm.logpdf(Y[0], THETAS @ X[0], SCALE)
    np.testing.assert_allclose(factor_log_density(read_as, THETAS, X[0], Y[0]), expected, rtol=1e-12)


def test_two_observations() -> None:
    """Each row brings both."""

    def model(x: Array, y: Array, v: Array) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)
            sample("v", dist.Normal(2 * x @ w, SCALE), obs=v)

    v = 2 * Y + 0.1
    assert_exact(learned(model, X, Y, v), np.concatenate([X, 2 * X]), np.concatenate([Y, v]))


def test_two_observations_of_different_shapes() -> None:
    """A vector and a number a row, without plates."""

    def model(x: Array, y: Array, v: Array) -> None:
        w = weights()
        sample("v", dist.Normal(x * w, SCALE).to_event(2), obs=v)
        sample("y", dist.Normal(x @ w, SCALE).to_event(1), obs=y)

    v = X * np.array([0.9, -0.4])
    stacked = np.concatenate([*[np.diag(x) for x in X], X])
    assert_exact(learned(model, X, Y, v), stacked, np.concatenate([v.reshape(-1), Y]))


def test_a_transformed_likelihood_keeps_its_jacobian() -> None:
    """LogNormal data have the density of the data, not of their logarithms."""

    def model(x: Array, y: Array) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.LogNormal(x @ w, SCALE), obs=y)

    y = np.exp(Y)
    expected = stats.lognorm.logpdf(y[0], SCALE, scale=np.exp(THETAS @ X[0]))
    np.testing.assert_allclose(factor_log_density(program(model, X, y), THETAS, X[0], y[0]), expected, rtol=1e-12)
