"""How models of many kinds are taken apart: factors of a row, and the size of their fields."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adfpp

Array = Any
sample: Callable[..., Any] = numpyro.sample

ROWS, WIDTH = 5, 4
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(ROWS, 2))
Y = _RNG.normal(size=ROWS)
CLASS = np.array([0, 1, 2, 0, 1])
WIDE = _RNG.normal(size=(ROWS, WIDTH))
COUNTS = np.abs(WIDE).round().astype(int)


def normal(name: str, *shape: int) -> Array:
    """A latent of this shape, standard normal."""
    return sample(name, dist.Normal(0, 1).expand(shape).to_event(len(shape)))


def rows(x: Array) -> Any:
    """The data plate."""
    return numpyro.plate("rows", x.shape[0])


def factors(model: Callable[..., Any], *args: Any) -> list[tuple[str, int, int]]:
    """(observation, how many elements, field size) of each factor."""
    return [(f.name, f.count, f.field_size) for f in adfpp.ADF(model).explain(*args).factors]


def made_of(model: Callable[..., Any], *args: Any) -> str:
    """What the field of the only factor is made of, in words."""
    (factor,) = adfpp.ADF(model).explain(*args).factors
    return factor.field


# ------------------------------------------------------------------------------------- one number a row


def logistic(x: Array, y: Array) -> None:
    """Slope and intercept are latents of their own."""
    w, b = normal("w", 2), normal("b")
    with rows(x):
        sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)


def softmax(x: Array, y: Array) -> None:
    """Three classes."""
    w, b = normal("w", 2, 3), normal("b", 3)
    with rows(x):
        sample("y", dist.Categorical(logits=x @ w + b), obs=y)


def heteroscedastic(x: Array, y: Array) -> None:
    """A predictor for the location, one for the log scale."""
    w, z = normal("w", 2), normal("z", 2)
    with rows(x):
        sample("y", dist.Normal(x @ w, jnp.exp(x @ z)), obs=y)


def negative_binomial(x: Array, y: Array) -> None:
    """A log dispersion."""
    w, a = normal("w", 2), normal("a")
    with rows(x):
        sample("y", dist.NegativeBinomial2(jnp.exp(x @ w), jnp.exp(a)), obs=y)


def vander(x: Array, y: Array) -> None:
    """A polynomial basis from jnp.vander."""
    w, a = normal("w", 4), normal("a")
    with rows(x):
        sample("y", dist.Normal(jnp.vander(x[:, 0], 4) @ w, jnp.exp(a)), obs=y)


def powers(x: Array, y: Array) -> None:
    """A polynomial basis from powers."""
    w = normal("w", 4)
    with rows(x):
        sample("y", dist.Poisson(jnp.exp(sum(w[i] * x[:, 0] ** i for i in range(4)))), obs=y)


def spline(x: Array, y: Array) -> None:
    """Truncated powers of x."""
    w = normal("w", 4)
    knots = jnp.linspace(-1.0, 1.0, 3)
    basis = jnp.concatenate([x[:, :1], jnp.maximum(x[:, :1] - knots, 0.0) ** 3], 1)
    with rows(x):
        sample("y", dist.Poisson(jnp.exp(basis @ w)), obs=y)


def stacked(x: Array, y: Array) -> None:
    """Coefficients put together from scalar latents."""
    w = jnp.stack([normal("a"), normal("b")])
    with rows(x):
        sample("y", dist.Logistic(x @ w, 1.0), obs=y)


def nested_jit(x: Array, y: Array) -> None:
    """Compiled parts in compiled parts."""
    w, b = normal("w", 2), normal("b")
    inner = jax.jit(lambda h: h + b)
    with rows(x):
        sample("y", dist.Poisson(jnp.exp(jax.jit(lambda u, v: inner(u @ v))(x, w))), obs=y)


def rematerialised(x: Array, y: Array) -> None:
    """A checkpointed predictor."""
    w, b = normal("w", 2), normal("b")
    with rows(x):
        sample("y", dist.Poisson(jnp.exp(jax.checkpoint(lambda v, c: x @ v + c)(w, b))), obs=y)


@jax.custom_jvp
def doubled(a: Array) -> Array:
    """An affine function with a derivative rule of its own."""
    return 2.0 * a + 1.0


doubled.defjvp(lambda primals, tangents: (doubled(primals[0]), 2.0 * tangents[0]))


def custom_before(x: Array, y: Array) -> None:
    """The derivative rule stands before the field: it has to be looked into."""
    w = normal("w", 2)
    with rows(x):
        sample("y", dist.Logistic(doubled(x * w).sum(-1), 1.0), obs=y)


def log_sum(x: Array, y: Array) -> None:
    """A logsumexp over three predictors."""
    w = normal("w", 2, 3)
    with rows(x):
        sample("y", dist.Normal(jax.nn.logsumexp(x @ w, -1), 1.0), obs=y)


def chosen(x: Array, y: Array) -> None:
    """One of two affine functions, chosen by the data."""
    w, b = normal("w", 2), normal("b")
    with rows(x):
        sample("y", dist.Logistic(jnp.where(x[:, 0] > 0, x @ w, b), 1.0), obs=y)


def summed_up(x: Array, y: Array) -> None:
    """The end of a cumulative sum."""
    w, b = normal("w", 2), normal("b")
    with rows(x):
        sample("y", dist.Logistic(jnp.cumsum(x * w, -1)[:, -1] + b, 1.0), obs=y)


def irreducible(x: Array, y: Array) -> None:
    """A sum of squares has no field smaller than θ."""
    w = normal("w", 5)
    with rows(x):
        sample("y", dist.Normal(jnp.sum(w**2) * x[:, 0], 1.0), obs=y)


SIZES = [
    (logistic, CLASS % 2, 1),
    (softmax, CLASS, 2),  # the logits may be shifted
    (heteroscedastic, Y, 2),
    (negative_binomial, CLASS, 2),
    (vander, Y, 2),
    (powers, CLASS, 1),
    (spline, CLASS, 1),
    (stacked, Y, 1),
    (nested_jit, CLASS, 1),
    (rematerialised, CLASS, 1),
    (custom_before, Y, 1),
    (log_sum, Y, 3),
    (chosen, Y, 1),
    (summed_up, Y, 1),
    (irreducible, Y, 5),
]


@pytest.mark.parametrize(("model", "y", "size"), SIZES, ids=[m.__name__ for m, _, _ in SIZES])
def test_field_size(model: Callable[..., None], y: np.ndarray, size: int) -> None:
    """One factor a row, with the smallest field there is."""
    assert factors(model, X, y) == [("y", 1, size)]


@pytest.mark.parametrize("name", ["relu", "silu", "softplus", "gelu", "log_sigmoid"])
def test_activations(name: str) -> None:
    """Functions with derivative rules of their own, of the predictor and of the data."""
    activation = getattr(jax.nn, name)

    def behind(x: Array, y: Array) -> None:
        w, b = normal("w", 2), normal("b")
        with rows(x):
            sample("y", dist.Logistic(activation(x @ w) + b, 1.0), obs=y)

    def before(x: Array, y: Array) -> None:
        w, b = normal("w", 2), normal("b")
        with rows(x):
            sample("y", dist.Logistic(activation(x) @ w + b, 1.0), obs=y)

    assert factors(behind, X, Y) == [("y", 1, 2)]
    assert factors(before, X, Y) == [("y", 1, 1)]


@pytest.mark.parametrize("n_groups", [8, 1000])
def test_hierarchy(n_groups: int) -> None:
    """Mean, log scale and the row's own group, however many groups there are."""

    def model(group: Array, y: Array) -> None:
        mu, tau = normal("mu"), sample("tau", dist.LogNormal(0, 1))
        with numpyro.plate("groups", n_groups):
            z = sample("z", dist.Normal(0, 1))
        with rows(group):
            sample("y", dist.Normal(mu + tau * z[group], 1.0), obs=y)

    assert factors(model, CLASS, Y) == [("y", 1, 3)]
    described = made_of(model, CLASS, Y)
    assert all(name in described for name in ("mu", "tau", "z"))


def test_two_observations() -> None:
    """Two factors of size 1 on the same weights."""

    def model(x: Array, y: Array, c: Array) -> None:
        w = normal("w", 2)
        with rows(x):
            sample("y", dist.Normal(x @ w, 1.0), obs=y)
            sample("c", dist.Poisson(jnp.exp(x @ w)), obs=c)

    assert factors(model, X, Y, CLASS) == [("y", 1, 1), ("c", 1, 1)]


def test_network() -> None:
    """A layer of tanh: its inputs and the output weights; the description names the latents."""
    hidden = 3

    def model(x: Array, y: Array) -> None:
        inner, bias = normal("inner", 2, hidden), normal("bias", hidden)
        outer, shift = normal("outer", hidden), normal("shift")
        with rows(x):
            sample("y", dist.Normal(jnp.tanh(x @ inner + bias) @ outer + shift, 0.5), obs=y)

    assert factors(model, X, Y) == [("y", 1, 2 * hidden + 1)]
    described = made_of(model, X, Y)
    assert all(name in described for name in ("inner", "bias", "outer", "shift"))


def test_an_observation_without_latents() -> None:
    """No latent enters one of two observations: a field of size 0, which adds to the evidence alone."""

    def model(x: Array, y: Array, c: Array) -> None:
        w = normal("w", 2)
        with rows(x):
            sample("y", dist.Normal(x @ w, 1.0), obs=y)
            sample("c", dist.Poisson(jnp.exp(x[:, 0])), obs=c)

    adf = adfpp.ADF(model)
    assert factors(model, X, Y, CLASS) == [("y", 1, 1), ("c", 1, 0)]
    state, info = adf.update(adf.init(jax.random.key(0), X, Y, CLASS), X, Y, CLASS)
    covariance = np.linalg.inv(np.eye(2) + X.T @ X)
    np.testing.assert_allclose(state.belief.mean, covariance @ X.T @ Y, atol=1e-10)
    marginal = X @ X.T + np.eye(ROWS)
    evidence = -0.5 * (Y @ np.linalg.solve(marginal, Y) + np.linalg.slogdet(2 * np.pi * marginal)[1])
    evidence += float(dist.Poisson(jnp.exp(X[:, 0])).log_prob(CLASS).sum())
    np.testing.assert_allclose(np.sum(info.log_z), evidence, atol=1e-9)


# ------------------------------------------------------------------------------------- vector-valued rows


LIKELIHOODS: dict[str, tuple[Callable[[Array], Any], np.ndarray]] = {
    "Normal": (lambda h: dist.Normal(h, 1.0), WIDE),
    "Logistic": (lambda h: dist.Logistic(h, 1.0), WIDE),
    "StudentT": (lambda h: dist.StudentT(3.0, h, 1.0), WIDE),
    "Bernoulli": (lambda h: dist.Bernoulli(logits=h), COUNTS % 2),
    "Poisson": (lambda h: dist.Poisson(jnp.exp(h)), COUNTS),
    "Binomial": (lambda h: dist.Binomial(5, logits=h), COUNTS),
    "ZeroInflated": (lambda h: dist.ZeroInflatedPoisson(0.2, jnp.exp(h)), COUNTS),
}
FORMS = ["event", "plate"]


def observe(form: str, name: str, distribution: Any, x: Array, y: Array) -> None:
    """A vector a row, as an event or in a second plate."""
    if form == "event":
        with rows(x):
            sample(name, distribution.to_event(1), obs=y)
    else:
        with numpyro.plate("rows", x.shape[0], dim=-2), numpyro.plate("columns", y.shape[1]):
            sample(name, distribution, obs=y)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_independent_elements(kind: str, form: str) -> None:
    """D independent elements are D factors of size 1."""
    make, y = LIKELIHOODS[kind]

    def model(x: Array, y: Array) -> None:
        w = normal("w", 2, WIDTH)
        observe(form, "y", make(x @ w), x, y)

    assert factors(model, X, y) == [("y", WIDTH, 1)]


@pytest.mark.parametrize("form", FORMS)
def test_more_elements_than_latents(form: str) -> None:
    """D elements of one scalar latent: D factors of size 1, not one of size D."""

    def model(x: Array, y: Array) -> None:
        w = normal("w")
        observe(form, "y", dist.Logistic(w * jnp.ones_like(y), 1.0), x, y)

    assert factors(model, X, WIDE) == [("y", WIDTH, 1)]


SCALED: dict[str, tuple[Callable[[Array, Array], Any], np.ndarray]] = {
    "Normal": (lambda h, a: dist.Normal(h, jnp.exp(a)), WIDE),
    "Laplace": (lambda h, a: dist.Laplace(h, jnp.exp(a)), WIDE),
    "NegativeBinomial2": (lambda h, a: dist.NegativeBinomial2(jnp.exp(h), jnp.exp(a)), COUNTS),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", SCALED)
def test_elements_that_share_a_scale(kind: str, form: str) -> None:
    """Each element has a field of 2: its own predictor and the common log scale."""
    make, y = SCALED[kind]

    def model(x: Array, y: Array) -> None:
        w, a = normal("w", 2, WIDTH), normal("a")
        observe(form, "y", make(x @ w, a), x, y)

    assert factors(model, X, y) == [("y", WIDTH, 2)]


def test_several_categorical_elements() -> None:
    """Two elements of three classes: two factors of size 2, because the logits may be shifted."""

    def model(x: Array, y: Array) -> None:
        w = normal("w", 2, 2, 3)
        each: Any = dist.Categorical(logits=jnp.einsum("ni,ijk->njk", x, w))
        with rows(x):
            sample("y", each.to_event(1), obs=y)

    assert factors(model, X, np.stack([CLASS, CLASS], 1)) == [("y", 2, 2)]


def test_correlated_elements_stay_together() -> None:
    """A multivariate normal row is one factor of its length."""

    def model(x: Array, y: Array) -> None:
        w = normal("w", 2)
        tril = jnp.array([[1.0, 0.0], [0.5, 1.0]])
        with rows(x):
            sample("y", dist.MultivariateNormal(x * w, scale_tril=tril), obs=y)

    assert factors(model, X, X) == [("y", 1, 2)]
