"""What changes with the number of rows and must not, or does not and must, is refused with a message that helps."""

import numpyro
import numpyro.distributions as dist
import pytest

from tests.model.common import (
    ROWS,
    SCALE,
    Array,
    X,
    Y,
    refusal,
    rows,
    sample,
    says,
    weights,
)


@pytest.mark.parametrize("size", [ROWS, ROWS - 2, 2 * ROWS])
def test_refuses_a_hard_coded_plate(size: int) -> None:
    """Whether or not its size happens to be that of the data."""

    def model(x: Array, y: Array | None = None) -> None:
        w = weights()
        with numpyro.plate("rows", size):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    says(refusal(model, X, y=Y), "y", "plate", "shapes", "x.shape[0]")


def test_refuses_a_hard_coded_plate_that_broadcasts() -> None:
    """One row's parameter stretched over the whole plate would be counted as often."""

    def model(y: Array | None = None) -> None:
        w = sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", ROWS):
            sample("y", dist.Normal(w, SCALE), obs=y)

    says(refusal(model, y=Y), "y", "plate", str(ROWS), "x.shape[0]")


def test_refuses_a_series_without_its_first_rows() -> None:
    """One row, and so no observation, is left of it."""

    def model(y: Array) -> None:
        w = sample("w", dist.Normal(0, 1).expand([2]))
        sample("y", dist.Normal(w[0] * y[1:-1] + w[1] * y[:-2], SCALE), obs=y[2:])

    says(refusal(model, Y), "'y'", "does not follow the rows", "autoregression", "columns")


def test_refuses_correlated_rows() -> None:
    """A random walk over the rows is one event, not as many rows."""

    def model(y: Array) -> None:
        scale = sample("scale", dist.HalfNormal(1))
        sample("y", dist.GaussianRandomWalk(scale, y.shape[0]), obs=y)

    says(refusal(model, Y), "'y'", "rows")


def test_refuses_a_support_that_depends_on_another_latent() -> None:
    """Its unconstrained coordinate would change meaning."""

    def model(x: Array, y: Array | None = None) -> None:
        a = sample("a", dist.HalfNormal(1))
        u = sample("u", dist.Uniform(0, a))
        with rows(x):
            sample("y", dist.Normal(x * u, SCALE), obs=y)

    says(refusal(model, X[:, 0], y=Y), "'u'", "'a'", "support", "standardised")
