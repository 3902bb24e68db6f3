"""The field: its size for models of many kinds, and that nothing is lost behind the cut."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adfpp
from adfpp.engine.trace.split import (
    Cut,
    Degree,
    _minimum_vertex_cut,
    affine_part,
    depends_on,
    part_of,
    smallest_cut,
    tail_part,
    trace,
)

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
    """A latent site of this shape, standard normal."""
    return sample(name, dist.Normal(0, 1).expand(shape).to_event(len(shape)))


def rows(x: Array) -> Any:
    """The data plate."""
    return numpyro.plate("rows", x.shape[0])


def factors(model: Callable[..., Any], *args: Any) -> list[tuple[str, int, int]]:
    """(site, how many factors, field size) of each group of factors."""
    return [(f.name, f.count, f.field_size) for f in adfpp.ADF(model).explain(*args).factors]


def made_of(model: Callable[..., Any], *args: Any) -> str:
    """What the field of the only group is made of, in words."""
    (factor,) = adfpp.ADF(model).explain(*args).factors
    return factor.field


# ------------------------------------------------------------------------------------- one number a row


def logistic(x: Array, y: Array) -> None:
    """Slope and intercept are sites of their own."""
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
    """Coefficients put together from scalar sites."""
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
    (softmax, CLASS, 3),
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
        mu, tau = normal("mu"), sample("tau", dist.HalfNormal(1))
        with numpyro.plate("groups", n_groups):
            z = sample("z", dist.Normal(0, 1))
        with rows(group):
            sample("y", dist.Normal(mu + tau * z[group], 1.0), obs=y)

    assert factors(model, CLASS, Y) == [("y", 1, 3)]
    described = made_of(model, CLASS, Y)
    assert all(name in described for name in ("mu", "tau", "z"))


def test_two_observed_sites() -> None:
    """Two factors of size 1 on the same weights."""

    def model(x: Array, y: Array, c: Array) -> None:
        w = normal("w", 2)
        with rows(x):
            sample("y", dist.Normal(x @ w, 1.0), obs=y)
            sample("c", dist.Poisson(jnp.exp(x @ w)), obs=c)

    assert factors(model, X, Y, CLASS) == [("y", 1, 1), ("c", 1, 1)]


def test_network() -> None:
    """A layer of tanh: its inputs and the output weights; the description names the sites."""
    hidden = 3

    def model(x: Array, y: Array) -> None:
        inner, bias = normal("inner", 2, hidden), normal("bias", hidden)
        outer, shift = normal("outer", hidden), normal("shift")
        with rows(x):
            sample("y", dist.Normal(jnp.tanh(x @ inner + bias) @ outer + shift, 0.5), obs=y)

    assert factors(model, X, Y) == [("y", 1, 2 * hidden + 1)]
    described = made_of(model, X, Y)
    assert all(name in described for name in ("inner", "bias", "outer", "shift"))


def test_a_row_that_says_nothing() -> None:
    """No latent site enters one of two observed sites: a field of size 0, and no harm."""

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
    """Two elements of three classes: two factors of size 3."""

    def model(x: Array, y: Array) -> None:
        w = normal("w", 2, 2, 3)
        each: Any = dist.Categorical(logits=jnp.einsum("ni,ijk->njk", x, w))
        with rows(x):
            sample("y", each.to_event(1), obs=y)

    assert factors(model, X, np.stack([CLASS, CLASS], 1)) == [("y", 2, 3)]


def test_correlated_elements_stay_together() -> None:
    """A multivariate normal row is one factor of its length."""

    def model(x: Array, y: Array) -> None:
        w = normal("w", 2)
        tril = jnp.array([[1.0, 0.0], [0.5, 1.0]])
        with rows(x):
            sample("y", dist.MultivariateNormal(x * w, scale_tril=tril), obs=y)

    assert factors(model, X, X) == [("y", 1, 2)]


# ------------------------------------------------------------------------------------- nothing is lost


N = 6


def _gather(theta: Array, row: Array, code: Array) -> Array:
    return jnp.tanh(theta[code] * row[0]) + theta[(code + 1) % N]


def _concatenate(theta: Array, row: Array, code: Array) -> Array:
    both = jnp.concatenate([theta[:2] * row, jnp.exp(theta[2:4]), row])
    return jnp.sum(jnp.sin(both)) + both[0]


def _where(theta: Array, row: Array, code: Array) -> Array:
    return jnp.log1p(jnp.where(row[0] > 0, theta @ jnp.arange(6.0), theta[code]) ** 2)


def _einsum(theta: Array, row: Array, code: Array) -> Array:
    return jax.nn.logsumexp(jnp.einsum("i,ijk->jk", row[:2], theta.reshape(2, 3, 1)))


def _cumsum(theta: Array, row: Array, code: Array) -> Array:
    return jnp.sum(jnp.cos(jnp.cumsum(theta[:3]) * row[0]))


def _sort(theta: Array, row: Array, code: Array) -> Array:
    return jnp.sort(theta[:3] * row[0])[0] + theta[4] ** 3


def _scan(theta: Array, row: Array, code: Array) -> Array:
    def step(c: Array, t: Array) -> tuple[Array, None]:
        return jnp.tanh(c + t * row[0]), None

    return jax.lax.scan(step, theta[0], theta[1:4])[0]


def _while(theta: Array, row: Array, code: Array) -> Array:
    return jax.lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) + row @ theta[:2], theta[5])


def _cond(theta: Array, row: Array, code: Array) -> Array:
    return jax.lax.cond(row[0] > 0, lambda t: t @ t, lambda t: jnp.sum(jnp.abs(t)), theta[:3])


def _scatter(theta: Array, row: Array, code: Array) -> Array:
    return jnp.sum(jnp.exp(jnp.zeros(3).at[code % 3].add(theta[0] * 2.0).at[0].set(theta[1])))


def _update(theta: Array, row: Array, code: Array) -> Array:
    moved = jax.lax.dynamic_update_slice(theta, 3.0 * theta[:2], (code,))
    return jnp.sum(jnp.sin(jax.lax.dynamic_slice(moved, (code,), (2,))))


def _solve(theta: Array, row: Array, code: Array) -> Array:
    tril = jnp.array([[2.0, 0.0], [1.0, 3.0]])
    return jnp.sum(jnp.exp(jax.scipy.linalg.solve_triangular(tril, theta[:2], lower=True)))


def _integers(theta: Array, row: Array, code: Array) -> Array:
    return jnp.floor(theta[0] * 3).astype(int) * row[0] + theta[1].astype(int)


def _products(theta: Array, row: Array, code: Array) -> Array:
    return (theta[0] * row[0]) * (theta[1] + 1.0) + theta[2] / (1.0 + theta[3] ** 2) + row[0] / (2.0 + theta[4] ** 2)


def _both_sides(theta: Array, row: Array, code: Array) -> Array:
    h = theta @ jnp.arange(6.0)
    return h * jnp.exp(-h)


def _stopped(theta: Array, row: Array, code: Array) -> Array:
    h = theta[:2] @ row
    return jnp.exp(-h) + jax.lax.stop_gradient(h) ** 2 + 0.0 * jax.lax.stop_gradient(theta[3])


def _stopped_affine(theta: Array, row: Array, code: Array) -> Array:
    return jax.nn.softplus(jax.lax.stop_gradient(theta[:2]) @ row + theta[2])


def _stack(theta: Array, row: Array, code: Array) -> Array:
    return jnp.sum(jnp.stack([theta[:2] * row[:2], theta[2:4], jnp.ones(2)]) ** 3)


def _moves(theta: Array, row: Array, code: Array) -> Array:
    moved = jnp.flip(theta.reshape(2, 3).T, 0)[1:, None, :]
    return jnp.sum(jnp.tanh(jnp.pad(moved, ((1, 0), (0, 0), (0, 1)), constant_values=0.5)))


def _convolution(theta: Array, row: Array, code: Array) -> Array:
    return jnp.sum(jnp.exp(jnp.convolve(theta[:4], row[:2])))


def _minmax(theta: Array, row: Array, code: Array) -> Array:
    return jnp.max(theta[:3]) * jnp.min(theta[3:]) + jnp.clip(theta[0], -0.5, 0.5) + jnp.argmax(theta)


def _affine(theta: Array, row: Array, code: Array) -> Array:
    return theta @ jnp.arange(6.0) + row[0]


def _constant(theta: Array, row: Array, code: Array) -> Array:
    return row[0] ** 2


def _itself(theta: Array, row: Array, code: Array) -> Array:
    return theta


def _elements(theta: Array, row: Array, code: Array) -> Array:
    h = theta[:4].reshape(2, 2) @ row[:2]
    return jnp.exp(h) + theta[4] * h


def _broadcast(theta: Array, row: Array, code: Array) -> Array:
    table = theta[:2][:, None] * theta[2:5][None, :] + row[0] * theta[:2][:, None]
    return jnp.sin(table - theta[5].reshape(1, 1)).reshape(-1)


def _gathered_rows(theta: Array, row: Array, code: Array) -> Array:
    return jnp.take_along_axis(jnp.tanh(theta.reshape(3, 2)), jnp.array([[0], [1], [0]]), 1)[:, 0]


def _batched_products(theta: Array, row: Array, code: Array) -> Array:
    batch = theta.reshape(3, 1, 2)
    return jnp.exp(jnp.einsum("bij,bjk->bik", batch, jnp.ones((3, 2, 2)) * row[0])).reshape(-1)


def _transposed_product(theta: Array, row: Array, code: Array) -> Array:
    return jnp.exp(jnp.tensordot(row[:2], theta.reshape(3, 2), ((0,), (1,))) * jnp.arange(1.0, 4.0))


def _fftlike(theta: Array, row: Array, code: Array) -> Array:
    return jnp.abs(jnp.fft.fft(theta[:4]))


PROGRAMS = [
    _gather, _concatenate, _where, _einsum, _cumsum, _sort, _scan, _while, _cond, _scatter, _update, _solve,
    _integers, _products, _both_sides, _stopped, _stopped_affine, _stack, _moves, _convolution, _minmax,
    _affine, _constant, _itself, _elements, _broadcast, _gathered_rows, _batched_products,
    _transposed_product, _fftlike,
]  # fmt: skip
SHAPES = (jax.ShapeDtypeStruct((2,), jnp.float64), jax.ShapeDtypeStruct((), jnp.int64))


def tail(traced: Any, cuts: list[Cut], output: Any, elements: list[int], *inputs: Any) -> Callable[..., Array]:
    """What lies behind some cuts, as a function of the field."""
    log_factor, _ = tail_part(traced, cuts, output, elements)(*inputs)
    return log_factor


def halves(f: Callable[..., Array], look_inside: bool) -> tuple[int, Callable[..., Array], list[Cut]]:
    """The output's size, the way through its fields, and the cuts.

    The way: ``(theta, origin, *inputs) -> output``; the fields at theta are those at the origin, moved by A.
    """
    traced = trace(
        lambda *a: [jnp.asarray(f(*a))],
        jax.ShapeDtypeStruct((N,), jnp.float64),
        *SHAPES,
        look_inside=look_inside,
    )
    (output,) = traced.outputs
    count = int(np.prod(getattr(output, "aval", np.zeros(())).shape))
    cuts = [smallest_cut(traced, output, e) for e in range(count)]

    def through(theta: Array, origin: Array, *inputs: Array) -> Array:
        out = []
        for e, cut in enumerate(cuts):
            h = jnp.zeros(0)
            if cut.size:
                matrix, there = affine_part(traced, [cut])(origin, *inputs)
                h = there[0] + matrix[0] @ (theta - origin)
            out.append(tail(traced, [cut], output, [e], *inputs)(h))
        return jnp.stack([jnp.asarray(o, float) for o in out])

    return count, through, cuts


@pytest.mark.parametrize("look_inside", [False, True])
@pytest.mark.parametrize("f", PROGRAMS, ids=[f.__name__[1:] for f in PROGRAMS])
def test_tail_of_field_is_the_function(f: Callable[..., Array], look_inside: bool) -> None:
    """tail(A θ + b) equals the function at random θ and rows, element by element."""
    rng = np.random.default_rng(1)
    _, through, cuts = halves(f, look_inside)
    run = jax.jit(through)
    for code in (0, 2):
        theta, origin = rng.normal(size=N), rng.normal(size=N)
        row = rng.normal(size=2)
        expected = np.ravel(np.asarray(f(jnp.asarray(theta), jnp.asarray(row), jnp.asarray(code)), float))
        got = run(theta, origin, row, jnp.asarray(code))
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    assert all(cut.size <= N for cut in cuts)


def test_grouped_tails_agree_with_single_ones() -> None:
    """Elements cut through the same values may be evaluated by one function with an index."""
    for f in (_elements, _broadcast, _transposed_product, _batched_products):
        traced = trace(lambda *a, f=f: [f(*a)], jax.ShapeDtypeStruct((N,), jnp.float64), *SHAPES)
        (output,) = traced.outputs
        cuts = [smallest_cut(traced, output, e) for e in range(output.aval.size)]
        alike = {(c.values, tuple(map(len, c.indices))) for c in cuts}
        assert len(alike) == 1, f.__name__
        theta, row = np.random.default_rng(2).normal(size=N), np.array([0.4, -1.2])
        matrices, fields = affine_part(traced, cuts)(jnp.zeros(N), row, 1)
        log_factor = tail(traced, cuts, output, list(range(len(cuts))), row, 1)
        got = [log_factor(matrices[e] @ theta + fields[e], jnp.asarray(e)) for e in range(len(cuts))]
        np.testing.assert_allclose(got, f(jnp.asarray(theta), row, 1), rtol=1e-12)


SMALLEST = {"where": 1, "einsum": 3, "concatenate": 4, "stack": 4, "affine": 1, "constant": 0, "itself": 1}
SMALLEST |= {"elements": 2, "transposed_product": 1, "batched_products": 1, "convolution": 4, "solve": 2}
SMALLEST |= {"broadcast": 3}


@pytest.mark.parametrize("name", SMALLEST)
def test_smallest_field(name: str) -> None:
    """The sizes that a pencil finds, for the first element."""
    _, _, cuts = halves(globals()["_" + name], True)
    assert cuts[0].size == min(SMALLEST[name], N)


def test_degrees() -> None:
    """Constant, affine, nonlinear; a comparison of θ is nonlinear, a comparison of the data constant."""
    outputs: list[tuple[Callable[[Array, Array], Array], Degree]] = [
        (lambda t, r: r + 1.0, Degree.CONSTANT),
        (lambda t, r: t @ r, Degree.AFFINE),
        (lambda t, r: -t[1:] / r[0] - 3.0, Degree.AFFINE),
        (lambda t, r: jnp.where(r > 0, t, 0.0), Degree.AFFINE),
        (lambda t, r: jnp.stack([t[0], t[1]]), Degree.AFFINE),
        (lambda t, r: t * t, Degree.NONLINEAR),
        (lambda t, r: r / t, Degree.NONLINEAR),
        (lambda t, r: jnp.where(t > 0, r, 0.0), Degree.NONLINEAR),
        (lambda t, r: (t > 0) * 1.0, Degree.NONLINEAR),
        (lambda t, r: t.astype(int), Degree.NONLINEAR),
        (lambda t, r: t.astype(int).astype(float), Degree.NONLINEAR),
        (lambda t, r: r[jnp.argmax(t)], Degree.NONLINEAR),
        (lambda t, r: jnp.abs(t), Degree.NONLINEAR),
    ]
    two = jax.ShapeDtypeStruct((2,), jnp.float64)
    traced = trace(lambda t, r: [f(t, r) for f, _ in outputs], two, two)
    for i, (output, (_, degree)) in enumerate(zip(traced.outputs, outputs, strict=True)):
        assert traced.degrees[output] == degree, i


def test_depends_on() -> None:
    """Which elements of θ an output can see."""
    shape = jax.ShapeDtypeStruct((N,), jnp.float64)
    traced = trace(lambda t: [jnp.exp(t[1:3]).sum(), jnp.zeros(2), t, t[4] * t[5]], shape)
    seen = [np.flatnonzero(depends_on(traced, o)).tolist() for o in traced.outputs]
    assert seen == [[1, 2], [], list(range(N)), [4, 5]]


def test_part_of() -> None:
    """An output that does not depend on θ, without θ."""
    two = jax.ShapeDtypeStruct((2,), jnp.float64)
    traced = trace(lambda t, r: [t @ r, r**2 + 1.0], two, two)
    np.testing.assert_allclose(part_of(traced, traced.outputs[1])(np.array([1.0, 3.0])), [2.0, 10.0])


# ------------------------------------------------------------------------------------- the cut itself


def _separates(cut: tuple[int, ...], edges: set[tuple[int, int]], source: int, sink: int) -> bool:
    reached, waiting = set(), [source] if source not in cut else []
    while waiting:
        a = waiting.pop()
        reached.add(a)
        waiting += [b for x, b in edges if x == a and b not in cut and b not in reached]
    return sink not in reached


def _brute_force(weights: list[int], edges: set[tuple[int, int]], source: int, sink: int) -> int:
    subsets = (c for k in range(len(weights) + 1) for c in combinations(range(len(weights)), k))
    return min(sum(weights[v] for v in c) for c in subsets if _separates(c, edges, source, sink))


@st.composite
def _graphs(draw: st.DrawFn) -> tuple[list[int], set[tuple[int, int]]]:
    size = draw(st.integers(2, 8))
    weights = draw(st.lists(st.integers(1, 6), min_size=size, max_size=size))
    pairs = list(combinations(range(size), 2))
    edges = draw(st.sets(st.sampled_from(pairs), max_size=len(pairs)))
    return weights, edges


@settings(max_examples=150)
@given(_graphs())
def test_minimum_vertex_cut_against_enumeration(graph: tuple[list[int], set[tuple[int, int]]]) -> None:
    """It separates, and no set of vertices does so for less."""
    weights, edges = graph
    source, sink = 0, len(weights) - 1
    cut = _minimum_vertex_cut(weights, edges, source, sink)
    assert _separates(tuple(cut), edges, source, sink)
    assert sum(weights[v] for v in cut) == _brute_force(weights, edges, source, sink)


def test_minimum_vertex_cut_is_nearest_to_the_sink() -> None:
    """Among cuts of equal weight the last one is taken, so that least is left behind it."""
    assert _minimum_vertex_cut([1, 1, 1, 9], {(0, 1), (1, 2), (2, 3)}, 0, 3) == [2]


def test_the_field_stands_as_late_as_it_can() -> None:
    """Of a chain of affine values the last is the field."""
    two = jax.ShapeDtypeStruct((1,), jnp.float64)
    traced = trace(lambda t: [jnp.exp(jnp.sum(3.0 * (t + 1.0)) / 2.0)], two)
    cut = smallest_cut(traced, traced.outputs[0], 0)
    matrix, field = affine_part(traced, [cut])(jnp.zeros(1))
    np.testing.assert_allclose([matrix[0, 0, 0], field[0, 0]], [1.5, 1.5])


def test_dead_code_is_dropped() -> None:
    """What the output does not need makes the field no larger."""

    def f(theta: Array) -> list[Array]:
        unused = jnp.exp(theta).sum()
        del unused
        return [jnp.exp(theta[0])]

    traced = trace(f, jax.ShapeDtypeStruct((N,), jnp.float64))
    assert smallest_cut(traced, traced.outputs[0], 0).size == 1


def test_the_matrix_does_not_depend_on_where_it_is_taken() -> None:
    """A is the same at every θ, and the field is the affine value there."""
    traced = trace(lambda t, r: [jnp.exp(t @ r + 2.0)], jax.ShapeDtypeStruct((2,), jnp.float64), SHAPES[0])
    cut = smallest_cut(traced, traced.outputs[0], 0)
    row = np.array([0.5, -2.0])
    for theta in (np.zeros(2), np.array([3.0, -1.0])):
        matrix, field = affine_part(traced, [cut])(jnp.asarray(theta), row)
        np.testing.assert_allclose(matrix[0, 0], row)
        np.testing.assert_allclose(field[0, 0], theta @ row + 2.0)
