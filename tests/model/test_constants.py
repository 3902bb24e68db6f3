"""Statements that are observed once: constants, which leave the posterior as it is, and terms of the prior."""

from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats

import adfpp
from adfpp.model import Joint
from adfpp.model.forward import Forward
from tests.model.common import (
    GROUP,
    KEY,
    SCALE,
    Array,
    X,
    Y,
    assert_exact,
    exact,
    learned,
    program,
    refusal,
    rows,
    sample,
    says,
    weights,
)


def fixed(x: Array, y: Array | None = None) -> None:
    """``linear``, with a known noise as a statement."""
    w = weights()
    sigma = sample("sigma", dist.HalfNormal(1), obs=SCALE)
    with rows(x):
        sample("y", dist.Normal(x @ w, sigma), obs=y)


def free(x: Array, y: Array | None = None) -> None:
    """``linear``, with latents that ``handlers.condition`` can fix, in a plate of their own too."""
    w = weights()
    sigma = sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("shifts", 2):
        shift = sample("shift", dist.Normal(0, sigma))
    with rows(x):
        sample("y", dist.Normal(x @ w + jnp.sum(shift), sigma), obs=y)


def given(x: Array, scale: Array, y: Array | None = None) -> None:
    """The fixed value comes as an argument that all rows share."""
    w = weights()
    sigma = sample("sigma", dist.HalfNormal(1), obs=scale)
    with rows(x):
        sample("y", dist.Normal(x @ w, sigma), obs=y)


CONDITIONED = handlers.condition(free, {"sigma": SCALE, "shift": jnp.array([1.0, -1.0])})


def test_a_fixed_latent_is_a_constant() -> None:
    """The posterior is that of the model with the number in its place."""
    assert_exact(learned(fixed, X, y=Y))
    assert_exact(learned(CONDITIONED, X, y=Y))
    assert_exact(learned(given, X, np.asarray(SCALE), y=Y))
    assert program(CONDITIONED, X, y=Y).constants == {"sigma", "shift"}
    assert program(fixed, X, y=Y).constants == {"sigma"}


def test_it_does_not_count_in_densities_and_evidence() -> None:
    """Of EP, of importance weights and of single rows."""
    result = adfpp.EP(fixed).run(KEY, X, y=Y, progress_bar=False)
    assert abs(result.log_evidence - exact()[2]) < 1e-8
    assert abs(result.posterior.reweighted(KEY, X, y=Y).log_evidence - exact()[2]) < 1e-6
    logs = Joint(program(fixed, X, y=Y), (X,), {"y": Y}).log_likelihood(np.zeros((1, 2)))
    assert set(logs) == {"y"}
    np.testing.assert_allclose(logs["y"][0], dist.Normal(0, SCALE).log_prob(Y), rtol=1e-10)


def test_it_is_never_drawn() -> None:
    """New observations have the fixed noise."""
    forward = Forward(program(fixed, X, y=Y), (X,), {"y": Y})
    assert {name: form.kind for name, form in forward.forms.items()} == {
        "w": "latent",
        "sigma": "deterministic",
        "y": "observed",
    }
    drawn = forward.draw(KEY, np.zeros((500, 2)), ["sigma", "y"])
    np.testing.assert_array_equal(drawn["sigma"], np.full(500, SCALE))
    assert abs(drawn["y"].std() / SCALE - 1.0) < 0.05  # 3,000 draws: 4 standard errors


def pseudo_observation(x: Array, y: Array | None = None) -> None:
    """An observation that depends on a latent and not on the rows."""
    w = weights()
    sample("guess", dist.Normal(w[0] + w[1], 0.1), obs=0.5)
    with rows(x):
        sample("y", dist.Normal(x @ w, SCALE), obs=y)


def penalty(x: Array, y: Array | None = None) -> None:
    """The same, as a factor."""
    w = weights()
    numpyro.factor("guess", dist.Normal(w[0] + w[1], 0.1).log_prob(0.5))
    with rows(x):
        sample("y", dist.Normal(x @ w, SCALE), obs=y)


@pytest.mark.parametrize("model", [pseudo_observation, penalty])
def test_a_statement_that_no_row_enters_is_a_term_of_the_prior(model: Any) -> None:
    """It counts once, and the posterior is that of a row more."""
    read_as = program(model, X, y=Y)
    assert read_as.prior_terms == ("guess",) and [f.name for f in read_as.factors] == ["y"]
    mean, covariance, info = learned(model, X, y=Y)
    scale = SCALE / 0.1  # makes the noise of the extra row that of the others
    expected = exact(np.vstack([X, [scale, scale]]), np.append(Y, 0.5 * scale))
    np.testing.assert_allclose(mean, expected[0], atol=1e-8)
    np.testing.assert_allclose(covariance, expected[1], atol=1e-8)
    log_guess = stats.norm.logpdf(0.5, 0.0, np.sqrt(2.0 + 0.1**2))
    np.testing.assert_allclose(np.sum(info.log_z), expected[2] + np.log(scale) - log_guess, atol=1e-7)


def test_a_term_of_the_prior_counts_in_densities_and_evidence() -> None:
    """In EP's evidence, in the log joint and in importance weights, and it has no rows."""
    result = adfpp.EP(pseudo_observation).run(KEY, X, y=Y, progress_bar=False)
    expected = exact(np.vstack([X, [7.0, 7.0]]), np.append(Y, 3.5))[2] + np.log(7.0)
    assert abs(result.log_evidence - expected) < 1e-7
    assert abs(result.posterior.reweighted(KEY, X, y=Y).log_evidence - expected) < 1e-6
    joint = Joint(program(pseudo_observation, X, y=Y), (X,), {"y": Y})
    theta = np.array([[0.3, -0.2]])
    assert set(joint.log_likelihood(theta)) == {"y"}
    np.testing.assert_allclose(joint.log_prior(theta)["guess"], stats.norm.logpdf(0.5, [0.1], 0.1), rtol=1e-10)


@pytest.mark.parametrize("family", [pytest.param("diagonal", marks=pytest.mark.slow), "spherical"])
def test_other_families_take_terms_of_the_prior(family: str) -> None:
    """Independent numbers get the moments of the prior with its terms, here by the factor's site."""

    def model(x: Array, y: Array | None = None) -> None:
        w = weights()
        numpyro.factor("peaks", -0.25 * jnp.sum(w**4))
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    belief = adfpp.ADF(model, family=family).init(KEY, X, y=Y).belief
    u = np.linspace(-6.0, 6.0, 4001)
    weight = np.exp(-0.5 * u**2 - 0.25 * u**4)
    sd = np.sqrt(weight @ u**2 / weight.sum())
    np.testing.assert_allclose(belief.mean, 0.0, atol=1e-6)
    np.testing.assert_allclose(belief.scale, sd, rtol=1e-5)


def test_a_term_of_the_prior_is_never_drawn() -> None:
    """Its value is fixed, and prior draws, which would not know of it, are left out of ArviZ data."""
    result = adfpp.ADF(pseudo_observation).run(KEY, X, y=Y, progress_bar=False)
    data: Any = adfpp.to_arviz(result, X, y=Y)
    listed = (
        data.groups if not callable(data.groups) else data.groups()
    )  # a method or a property, by the version of ArviZ
    names = {str(g).strip("/") for g in cast(list, listed)}
    assert "posterior_predictive" in names and not names & {"prior", "prior_predictive"}
    assert list(data["posterior_predictive"].data_vars) == ["y"]
    assert set(data["log_prior"].data_vars) == {"w", "guess"}


def test_a_factor_that_is_multiplied_by_the_number_of_rows_is_one_of_the_rows() -> None:
    """Each row then brings its share: here the log-density of a value that all rows have."""

    def model(x: Array) -> None:
        mu = sample("mu", dist.Normal(0, 1))
        numpyro.factor("all", x.shape[0] * dist.Normal(mu, 1.0).log_prob(0.8))

    assert program(model, X).prior_terms == ()
    mean, covariance, _ = learned(model, X)
    np.testing.assert_allclose([mean[0], covariance[0, 0]], [0.8 * len(X) / (1 + len(X)), 1 / (1 + len(X))], rtol=1e-7)


def test_refuses_data_of_another_length() -> None:
    """They would be counted with each row. The cure: one plate for both kinds of data, and a mask for each."""

    def apart(y: Array, v: Array) -> None:
        mu = sample("mu", dist.Normal(0, 1))
        with rows(y):
            sample("y", dist.Normal(mu, 1.0), obs=y)
        with numpyro.plate("others", len(v)):
            sample("v", dist.Normal(mu, 0.5), obs=v)

    def together(value: Array, other: Array) -> None:
        mu = sample("mu", dist.Normal(0, 1))
        with rows(value):
            with handlers.mask(mask=~other):
                sample("y", dist.Normal(mu, 1.0), obs=value)
            with handlers.mask(mask=other):
                sample("v", dist.Normal(mu, 0.5), obs=value)

    y, v = np.array([0.3, -0.4, 1.0]), np.array([0.9, 1.1])
    says(refusal(apart, y, v), "'v'", "'mu'", "another length", "handlers.mask", "numpyro.factor")
    mean, covariance, _ = learned(together, np.concatenate([y, v]), np.arange(5) > 2)
    precision = 1.0 + 3.0 + 2.0 / 0.25
    np.testing.assert_allclose([mean[0], covariance[0, 0]], [(y.sum() + v.sum() / 0.25) / precision, 1 / precision])


def test_rows_are_those_of_an_observation_before_those_of_a_factor() -> None:
    """The edges of a graph are no rows, although they have a plate and come first."""

    def model(nodes: Array, area: Array, y: Array) -> None:
        with numpyro.plate("areas", 3):
            w = sample("w", dist.Normal(0, 1))
        with numpyro.plate("edges", nodes.shape[0]):
            numpyro.factor("ties", -0.5 * (w[nodes[:, 0]] - w[nodes[:, 1]]) ** 2)
        with rows(area):
            sample("y", dist.Normal(w[area], SCALE), obs=y)

    read_as = program(model, np.array([[0, 1], [1, 2]]), GROUP, Y)
    assert read_as.layout.named("row") == ("area", "y") and read_as.prior_terms == ("ties",)


def test_a_factor_of_latents_of_rows_may_be_a_sum() -> None:
    """It reads no argument, but each row has its share: it is part of the local latent's prior."""

    def model(y: Array) -> None:
        with rows(y):
            z = sample("z", dist.Normal(0, 1))
        mu = sample("mu", dist.Normal(0, 1))  # after a latent of the rows
        numpyro.factor("narrow", -0.5 * jnp.sum(z**2))
        numpyro.factor("level", -0.5 * mu**2)
        with rows(y):
            sample("y", dist.Normal(mu + z, SCALE), obs=y)

    assert program(model, Y).prior_terms == ("level",)
    mean, covariance, _ = learned(model, Y)
    noise = SCALE**2 + 0.5  # two standard normal densities of z make a variance of one half, as those of mu do
    precision = 2.0 + len(Y) / noise
    np.testing.assert_allclose([mean[0], covariance[0, 0]], [Y.sum() / noise / precision, 1 / precision], rtol=1e-5)


def adjacent(x: Array, area: Array, n_areas: int, y: Array | None, local: bool, factor: bool) -> None:
    """Effects of areas, which a statement ties together."""
    b = sample("b", dist.Normal(0, 1))
    with numpyro.plate("areas", x.shape[0] if local else n_areas):
        phi = sample("phi", dist.Normal(0, 1))
    if factor:
        numpyro.factor("ties", dist.Normal(0.0, 0.1).log_prob(phi.sum()))
    else:
        sample("ties", dist.Normal(phi.sum(), 0.1), obs=0.0)
    with rows(x):
        sample("y", dist.Normal(b * x + (phi if local else phi[area]), SCALE), obs=y)


@pytest.mark.parametrize("count", [2, 1])
def test_refuses_other_data_of_a_term(count: int) -> None:
    """The belief contains the term with the first ones, whether or not the next ones have the same shape."""

    def model(others: Array, x: Array, y: Array) -> None:
        mu = sample("mu", dist.Normal(0, 1))
        numpyro.factor("others", dist.Normal(mu, 1.0).log_prob(others))
        with rows(x):
            sample("y", dist.Normal(mu * x, SCALE), obs=y)

    adf, others = adfpp.ADF(model), np.array([0.2, 0.7])
    state = adf.init(KEY, others, X[:, 0], Y)
    state, _ = adf.update(state, others, X[:1, 0], Y[:1])
    with pytest.raises(adfpp.ModelError, match=r"'others'.* has changed|terms of its prior read \(others\)"):
        adf.update(state, others[:count] + 0.1, X[1:, 0], Y[1:])
    mean = adfpp.ADF(model).init(KEY, others[:count] + 0.1, X[:, 0], Y).belief.mean
    np.testing.assert_allclose(mean, (others[:count] + 0.1).sum() / (1 + count), rtol=1e-9)


@pytest.mark.parametrize("factor", [False, True])
def test_refuses_a_term_of_latents_of_rows(factor: bool) -> None:
    """No row can be learned without the others. The cure: draw the latent for areas, and index it by the rows."""
    x, area = X[:, 0], np.arange(len(X))
    message = refusal(adjacent, x, area, len(x), Y, True, factor)
    says(message, "'ties'", "'phi'", "n_areas a Python number", "phi[area]", "rows=(...)")
    adf = adfpp.ADF(adjacent, rows=("x", "area", "y"))
    mean, covariance, _ = learned(adjacent, x, area, len(x), Y, False, factor, adf=adf)
    design = np.column_stack([x, np.eye(len(x))])
    precision = np.eye(1 + len(x)) + design.T @ design / SCALE**2
    precision[1:, 1:] += 1 / 0.1**2
    np.testing.assert_allclose(mean, np.linalg.solve(precision, design.T @ Y / SCALE**2), atol=1e-8)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), atol=1e-8)


def test_refuses_a_model_of_constants_alone() -> None:
    """There is nothing to learn from."""

    def model(x: Array) -> None:
        weights()
        sample("sigma", dist.HalfNormal(1), obs=SCALE)

    says(refusal(model, X), "no observation")


@pytest.mark.parametrize("length", [1, 4])
def test_data_are_no_constants(length: int) -> None:
    """Rows that do not enter the density of an observed value, or one value for all of them, are still rows."""

    def intercept(y: Array) -> None:
        mu = sample("mu", dist.Normal(0, 1))
        with rows(y):
            sample("y", dist.Normal(mu, 1.0), obs=y)

    y: Any = np.arange(float(length))
    assert program(intercept, y).constants == frozenset()
    mean, covariance, _ = learned(intercept, y)
    np.testing.assert_allclose([mean[0], covariance[0, 0]], [y.sum() / (1 + length), 1 / (1 + length)], rtol=1e-10)
