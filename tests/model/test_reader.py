"""Reading a model: the steps together."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import betainc
from scipy import stats

from tests.model.common import (
    GROUP,
    ROWS,
    SCALE,
    Array,
    X,
    Y,
    factor_log_density,
    linear,
    program,
    refusal,
    rows,
    sample,
    says,
    weights,
)


def test_refuses_a_model_without_observation() -> None:
    """``y`` left at None."""
    says(refusal(linear, X), "no observation", "obs=", "None")


def test_refuses_a_model_without_latent() -> None:
    """Nothing to learn."""

    def model(x: Array, y: Array | None = None) -> None:
        with rows(x):
            sample("y", dist.Normal(x, SCALE), obs=y)

    says(refusal(model, X[:, 0], y=Y), "no latent")


def test_refuses_a_shape_that_is_not_the_rows() -> None:
    """A model that runs on all rows and not on one: the arguments that carry rows are named."""

    def matrix(x: Array, y: Array) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(jnp.eye(ROWS) @ (x @ w), SCALE), obs=y)

    says(refusal(matrix, X, Y), "single row of x, y", "rows=(...)")


def grouped(x: Array, group: Array, offsets: Array, n_groups: int, y: Array) -> None:
    """Arguments of every kind: rows, a shared array and a fixed number."""
    w = sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    z = sample("z", dist.Normal(0, jnp.exp(offsets[0])).expand([n_groups]))
    with rows(x):
        sample("y", dist.StudentT(4.0, x @ w + z[group] + offsets[1], SCALE), obs=y)


def test_only_shapes_are_read() -> None:
    """A program read from shapes has the factors and densities of one read from arrays."""
    offsets = np.array([0.2, -0.3, 0.0])
    arrays = (X, GROUP, offsets, 3, Y)
    shapes = tuple(a if isinstance(a, int) else jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays)
    one, other = program(grouped, *arrays), program(grouped, *shapes)
    assert one.layout == other.layout
    assert one.layout.named("row") == ("group", "x", "y")
    assert one.layout.named("shared") == ("offsets",)
    assert (one.row_shapes, one.shared_shapes, one.pinned) == (other.row_shapes, other.shared_shapes, None)
    theta = np.random.default_rng(2).normal(size=(3, 5))
    location = theta[:, :2] @ X[1] + theta[:, 2 + GROUP[1]] + offsets[1]
    expected = stats.t.logpdf(Y[1], 4.0, location, SCALE)
    for read_as in (one, other):
        assert [(g.name, g.field_size, g.count) for g in read_as.factors] == [("y", 1, 1)]
        got = factor_log_density(read_as, theta, GROUP[1], X[1], Y[1], shared=[offsets])
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_the_number_of_rows_does_not_matter() -> None:
    """Not to the layout, nor to the shapes."""
    many, few = program(linear, X, y=Y), program(linear, X[:2], y=Y[:2])
    assert many.layout == few.layout
    assert many.row_shapes == few.row_shapes


MISTAKES: dict[str, tuple[Callable[[Array], Array], str]] = {
    "AttributeError": (lambda x: x.flaten(), "`x.flaten`"),
    "KeyError": (lambda x: {"a": x}["b"], '`{"a": x}["b"]`'),
    "TypeError": (lambda x: x + "1", '`x + "1"`'),
    "ValueError": (lambda x: float("one") * x, '`float("one")`'),
    "ZeroDivisionError": (lambda x: x / (1 // 0), "`1 // 0`"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_an_error_of_the_model_comes_first(kind: str) -> None:
    """With its line, and without advice about plates, which have nothing to do with it."""
    mistake, code = MISTAKES[kind]

    def model(x: Array, y: Array | None = None) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(mistake(x) @ w, SCALE), obs=y)

    message = refusal(model, X, y=Y)
    assert message.startswith(f"The model raises {kind} at line ")
    says(message, "test_reader.py", code)
    assert "plate" not in message


def test_an_error_about_shapes_has_advice_about_plates() -> None:
    """Behind the error and its line."""

    def model(x: Array, y: Array | None = None) -> None:
        w = weights(3)
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    message = refusal(model, X, y=Y)
    assert message.startswith("The model raises TypeError at line ")
    says(message, "`x @ w`", "shape", "x (6, 2)", "plates must be sized")


def test_refuses_a_likelihood_without_derivatives() -> None:
    """JAX has none of the incomplete beta function with respect to its parameters; NUTS needs it as well."""

    def model(y: Array) -> None:
        a: Array = sample("a", dist.LogNormal(0, 1).expand([4]).to_event(1))
        numpyro.factor("y", jnp.log(betainc(a[0], a[1], y) * betainc(a[2], a[3], y)))

    says(refusal(model, np.array([0.2, 0.7])), "no derivative", "betainc", "NUTS")
