"""Which arguments carry rows."""

import pickle
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adfpp
from tests.model.common import (
    GROUP,
    KEY,
    ROWS,
    SCALE,
    Array,
    X,
    Y,
    assert_exact,
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


def test_refuses_empty_arrays() -> None:
    """At ``init`` and at ``update``."""
    says(refusal(linear, X[:0], y=Y[:0]), "'x'", "no rows", "at least one")
    adf = adfpp.ADF(linear)
    state = adf.init(KEY, X, y=Y)
    with pytest.raises(adfpp.ModelError, match="'x'"):
        adf.update(state, X[:0], y=Y[:0])


@pytest.mark.parametrize("length", [1, 4])
def test_refuses_rows_of_different_lengths(length: int) -> None:
    """A single y is not stretched over the rows of x."""
    says(refusal(linear, X, y=Y[:length]), "x", "y", str(ROWS), str(length), "length")
    adf = adfpp.ADF(linear)
    state = adf.init(KEY, X, y=Y)
    with pytest.raises(adfpp.ModelError) as refused:
        adf.update(state, X, y=Y[:length])
    says(str(refused.value), "x", "y", str(ROWS), str(length), "length")


def test_rows_are_found_and_can_be_said() -> None:
    """An array that happens to be as long as the data is told apart by ``rows``."""

    def model(x: Array, shifts: Array, y: Array | None = None) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w + shifts.sum(), SCALE), obs=y)

    shifts = np.linspace(0.1, 0.6, ROWS)
    says(refusal(model, X, shifts, y=Y), "'y'", "rows=(...)")
    adf = adfpp.ADF(model, rows=("x", "y"))
    assert_exact(learned(model, X, shifts, y=Y, adf=adf), y=Y - shifts.sum())
    explained = adf.explain(X, shifts, y=Y)
    assert explained.rows == ("x", "y")
    assert explained.constants == ("shifts",)


def test_a_shared_array_may_change_its_length() -> None:
    """The model is read anew; nothing is taken from the old length."""

    def model(x: Array, shifts: Array, y: Array | None = None) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w + shifts.mean(), SCALE), obs=y)

    adf = adfpp.ADF(model)
    state = adf.init(KEY, X, np.ones(3), y=Y)
    state, _ = adf.update(state, X, np.array([0.0, 0.0, 0.0, 2.5, 0.0]), y=Y)
    np.testing.assert_allclose(state.belief.mean, exact(y=Y - 0.5)[0], atol=1e-10)


def test_scalar_rows() -> None:
    """x of shape (n,)."""

    def model(x: Array, y: Array | None = None) -> None:
        w = sample("w", dist.Normal(0, 1))
        with rows(x):
            sample("y", dist.Normal(x * w, SCALE), obs=y)

    assert_exact(learned(model, X[:, 0], y=Y), X[:, :1])


def test_options_of_different_types_are_different() -> None:
    """1, 1.0 and True are equal, and a model may do different things with them."""

    def model(x: Array, power: Any, y: Array) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    layouts = [program(model, X, power, Y).layout for power in (1, 1.0, True, 1)]
    assert layouts[0] == layouts[3]
    assert len(set(layouts)) == 3
    assert layouts[0] == layouts[1].with_fixed([1, X, Y])


def test_arguments_come_back_in_their_places() -> None:
    """Rows, shared arrays and fixed values of a nested argument."""

    def model(data: dict[str, Any], n_groups: int) -> None:
        w = sample("w", dist.Normal(data["scale"][0], 1).expand([n_groups]))
        with rows(data["x"]):
            sample("y", dist.Normal(data["x"][:, 0] * w[data["group"]], SCALE), obs=data["y"])

    data = {"x": X, "group": GROUP, "scale": np.ones(2), "y": Y}
    layout = program(model, data, 3).layout
    rows_, shared = layout.split(jax.tree.leaves({"data": data, "n_groups": 3}))
    assert len(rows_) == 3
    assert len(shared) == 1
    rebuilt = layout.rebuild_from([*rows_, *shared])
    assert rebuilt["n_groups"] == 3
    assert all(rebuilt["data"][name] is data[name] for name in data)


def schools(n: int, sigma: Array, y: Array | None = None) -> None:
    """The plate of the observations has a whole number of its own; a latent of each row is inside."""
    mu = sample("mu", dist.Normal(0, 2))
    with numpyro.plate("schools", n):
        theta = sample("theta", dist.Normal(mu, 0.5))
        sample("y", dist.Normal(theta, sigma), obs=y)


SIGMA = np.linspace(0.4, 1.2, ROWS)


def schools_exact() -> tuple[float, float]:
    """Posterior mean and variance of the common mean."""
    precision = 1 / (SIGMA**2 + 0.25)
    return float(precision @ Y / (precision.sum() + 0.25)), float(1 / (precision.sum() + 0.25))


@pytest.mark.slow
def test_a_whole_number_that_sizes_the_plate_follows_the_rows() -> None:
    """Batches come with their own number, and no program is read again."""
    adf = adfpp.ADF(schools)
    plan = adf.explain(ROWS, SIGMA, y=Y)
    assert plan.rows == ("n", "sigma", "y") and plan.constants == () and [v.name for v in plan.local] == ["theta"]
    state = adf.init(KEY, ROWS, SIGMA, y=Y)
    for some in (slice(0, 2), slice(2, 5), slice(5, ROWS)):
        state, _ = adf.update(state, len(Y[some]), SIGMA[some], y=Y[some])
    mean, variance = schools_exact()
    np.testing.assert_allclose(state.belief.mean, [mean], atol=1e-9)
    np.testing.assert_allclose(state.belief.scale[0, 0] ** 2, variance, rtol=1e-9)
    with pytest.raises(adfpp.ModelError, match="2 rows, and 'n'.* is 6.*Pass 2"):
        adf.update(state, ROWS, SIGMA[:2], y=Y[:2])


def test_a_number_of_rows_can_be_said() -> None:
    """Where another number is the same, and in a pickle of the program."""

    def model(n: int, k: int, x: Array, y: Array | None = None) -> None:
        w = sample("w", dist.Normal(0, 1).expand([k]).to_event(1))
        with numpyro.plate("rows", n):
            sample("y", dist.Normal(x * w.sum(), SCALE), obs=y)

    for names in (None, ("n", "x", "y")):
        adf = adfpp.ADF(model, rows=names)
        assert adf.explain(ROWS, ROWS, X[:, 0], y=Y).rows == ("n", "x", "y")
        assert adf.init(KEY, ROWS, ROWS, X[:, 0], y=Y).belief.mean.shape == (ROWS,)
    assert pickle.loads(pickle.dumps(program(schools, ROWS, SIGMA, Y))).layout.carriers == ("n", "sigma", "y")
    with pytest.raises(adfpp.ModelError, match="no array, only"):
        adfpp.ADF(schools, rows=("n",)).init(KEY, ROWS, SIGMA, y=Y)
