"""Which latents are local, and which of them are refused."""

import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy import integrate

import adfpp
from tests.model.common import SEEN, factor_log_density, program, refusal
from tests.model.local.common import (
    COUNTS,
    KEY,
    PAIRS,
    Array,
    X,
    Y,
    dist,
    sample,
    stats,
    weights,
)


def test_refuses_an_infinite_support() -> None:
    """A Poisson number a row."""

    def model(y: Array = None) -> None:
        w = weights(1)
        with numpyro.plate("rows", y.shape[0]):
            number = sample("number", dist.Poisson(3.0))
            sample("y", dist.Normal(w[0] * number, 1.0), obs=y)

    message = refusal(model, y=Y)
    assert "'number'" in message
    assert "Poisson" in message
    assert "Categorical" in message


def test_a_value_that_was_not_counted_is_no_latent() -> None:
    """``obs_mask`` draws a Poisson number for every row, which cannot be enumerated, and on which nothing depends."""

    def model(x: Array, seen: Array, y: Array = None) -> None:
        w = weights()
        with numpyro.plate("rows", x.shape[0]):
            sample("y", dist.Poisson(jnp.exp(x @ w)), obs=y, obs_mask=seen)

    read_as = program(model, X, SEEN, y=COUNTS)
    assert [(s.name, s.how) for s in read_as.local] == [("y_unobserved", "no observation depends on it")]
    theta = np.array([[0.3, -0.2]])
    for row, seen in ((0, SEEN[0]), (2, SEEN[2])):
        expected = stats.poisson(np.exp(theta @ X[row])).logpmf(COUNTS[row]) if seen else [0.0]
        got = factor_log_density(read_as, theta, np.asarray(seen), X[row], COUNTS[row])
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert SEEN[0] and not SEEN[2]


def test_a_missing_covariate_is_integrated_out() -> None:
    """``obs_mask`` of a covariate: moments of its coefficient by SciPy, in a row with and a row without it."""

    def model(x: Array, seen: Array, y: Array = None) -> None:
        b = sample("b", dist.Normal(0.5, 1.0))
        with numpyro.plate("rows", x.shape[0]):
            whole = sample("x", dist.Normal(0.2, 1.5), obs=x, obs_mask=seen)
            sample("y", dist.Normal(b * whole, 0.7), obs=y)

    x, seen, y = np.array([1.2, np.nan]), np.array([True, False]), np.array([0.9, 1.4])
    adf = adfpp.ADF(model)
    start = adf.init(KEY, x, seen, y=y)
    for i in (0, 1):
        state, info = adf.update(start, x[i : i + 1], seen[i : i + 1], y=y[i : i + 1])

        def weight(b: float, i: int = i) -> float:
            given = (b * x[i], 0.7) if seen[i] else (0.2 * b, np.hypot(1.5 * b, 0.7))
            return stats.norm.pdf(y[i], *given) * stats.norm.pdf(b, 0.5, 1.0)

        mass, first, second = (integrate.quad(lambda b, k=k: b**k * weight(b), -9, 10, limit=200)[0] for k in range(3))
        mean = first / mass
        np.testing.assert_allclose(state.belief.mean, mean, atol=1e-6)
        np.testing.assert_allclose(state.belief.scale**2, second / mass - mean**2, rtol=1e-5)
        log_x = stats.norm.logpdf(x[i], 0.2, 1.5) if seen[i] else 0.0
        np.testing.assert_allclose(info.log_z, np.log(mass) + log_x, atol=1e-6)


@pytest.mark.parametrize("how", ["walk", "sum", "prior", "lone", "extra"])
def test_refuses_rows_that_depend_on_each_other(how: str) -> None:
    """Through their latents: a prior over all rows at once, a sum over rows, a prior that looks at others."""

    def model(y: Array = None) -> None:
        n, z = y.shape[0], 0.0
        w = weights(1)
        if how == "walk":
            z = sample("z", dist.GaussianRandomWalk(0.5, num_steps=n))
        elif how == "extra":
            z = sample("z", dist.Normal(0, 1).expand([n + 1]))[1:]
        with numpyro.plate("rows", n):
            if how == "sum":
                z = jnp.cumsum(sample("z", dist.Normal(0, 1)))
            elif how == "prior":
                z = sample("z", dist.Normal(y.mean(), 1))
            elif how == "lone":
                z = sample("z", dist.ImproperUniform(dist.constraints.real, (), ()))
            sample("y", dist.Normal(w[0] + z, 1.0), obs=y)

    says = {
        "walk": "ties them together",
        "sum": "'y' do not add up",
        "prior": "ties rows together",
        "lone": "improper",
        "extra": "one entry for each row",
    }
    message = refusal(model, y=Y)
    assert says[how] in message
    assert "'z'" in message or how == "sum"


def test_refuses_a_model_with_nothing_in_common() -> None:
    """Only local latents: nothing to learn."""

    def model(y: Array = None) -> None:
        with numpyro.plate("rows", y.shape[0]):
            z = sample("z", dist.Normal(0, 1))
            sample("y", dist.Normal(z, 1.0), obs=y)

    assert "in common" in refusal(model, y=Y)


def model(y: Array = None) -> None:
    """A latent for every row and element, along the rows' axis in front, and an indicator."""
    w = weights(2)
    with numpyro.plate("rows", y.shape[0], dim=-2), numpyro.plate("columns", 2):
        z = sample("z", dist.LogNormal(0.0, 1.0))
        c = sample("c", dist.Categorical(probs=jnp.ones(3) / 3))
        sample("y", dist.Normal(w + z + c, 1.0), obs=y)


def test_latents_of_the_data_plate_are_local() -> None:
    """As one row has them; the others have their places in θ."""
    read_as = program(model, y=PAIRS)
    assert [latent.name for latent in read_as.latents] == ["w"]
    z, c = read_as.local
    assert (z.name, z.shape, z.axis, z.unconstrained_shape, z.places, z.support) == (
        "z",
        (1, 2),
        0,
        (1, 2),
        range(2),
        None,
    )
    assert (c.name, c.shape, c.axis, c.places) == ("c", (1, 2), 0, range(2))
    np.testing.assert_array_equal(c.support, [0, 1, 2])
    assert z.per_row(jnp.zeros((5, 2))).shape == (5, 2)
