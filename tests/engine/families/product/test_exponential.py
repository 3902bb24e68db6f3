"""Components in their native space, against SciPy, NumPyro and 40 digits of mpmath."""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from adfpp.engine.families.product.dirichlet import Beta, Dirichlet
from adfpp.engine.families.product.exponential import Exponential
from adfpp.engine.families.product.finite import Finite
from adfpp.engine.families.product.gamma import Gamma, InverseGamma
from tests.engine.families.product.members import FINITE, RANGES, SIZE, exact_expected, members, mp

CONTINUOUS: list[Exponential] = [Gamma(), InverseGamma(), Beta(), Dirichlet(3)]
FAMILIES = FINITE + CONTINUOUS
each_family = pytest.mark.parametrize("family", FAMILIES, ids=str)
each_continuous = pytest.mark.parametrize("family", CONTINUOUS, ids=str)


class Answers(NamedTuple):
    """What a family says of many members."""

    proper: Any
    log_norm: Any
    expected: Any
    mean: Any
    variance: Any
    covariance: Any
    shifted: Any
    kl: Any
    log_prob: Any
    stats: Any


@cache
def asked(family: Exponential) -> Any:
    def answers(eta: jax.Array, other: jax.Array, change: jax.Array, s: jax.Array) -> Answers:
        return Answers(
            family.proper(eta),
            family.log_norm(eta),
            family.expected(eta),
            *family.moments(eta),
            family.covariance(eta),
            family.shifted(eta, change),
            family.kl(eta, other),
            family.log_prob(eta, s),
            family.stats(s),
        )

    return jax.jit(answers)


def ask(family: Exponential, eta: Any, other: Any = None, change: Any = None, s: Any = None) -> Answers:
    """The answers as float64, asked in the dtype of η for SIZE members at a time."""
    count, dtype = len(eta), eta.dtype
    other = eta if other is None else other
    change = np.zeros_like(eta) if change is None else change
    s = middle(family, eta) if s is None else s
    rows = np.arange(SIZE) % count
    out = asked(family)(*(np.asarray(each, dtype)[rows] for each in (eta, other, change, s)))
    return jax.tree.map(lambda each: np.asarray(each)[:count], out)


def neighbours(family: Exponential, eta: np.ndarray, seed: int = 1) -> np.ndarray:
    """Members about as far as a few rows of data might carry a belief."""
    steps = np.random.default_rng(seed).normal(size=eta.shape)
    if family.axes == 0:
        return eta + steps
    if family.name in ("gamma", "inverse_gamma"):
        shape, mean = (np.exp(0.3 * steps / np.sqrt(1.0 + eta[:, :1]))).T
        return np.stack([eta[:, 0] * shape, eta[:, 1] * shape / mean], -1)
    return eta * np.exp(0.3 * steps / np.sqrt(1.0 + eta))


def middle(family: Exponential, eta: np.ndarray) -> np.ndarray:
    """A value of each member inside the support."""
    if isinstance(family, Finite):
        return np.full((len(eta), 1), family.values[-1])
    if isinstance(family, Dirichlet):
        raw = np.exp(special.digamma(np.maximum(eta, 0.3)))
        return raw / raw.sum(-1, keepdims=True)
    with np.errstate(under="ignore"):
        return np.clip(family.quantile(eta, 0.4), 1e-30, 1 - 1e-9 if isinstance(family, Beta) else 1e30)


def exact_norm(family: Exponential, eta: np.ndarray) -> Any:
    """A(η) of one member, in many digits."""
    e = [mp.mpf(float(x)) for x in eta]
    if family.axes == 0:
        return mp.log(1 + mp.fsum(mp.exp(x) for x in e))
    if family.name in ("gamma", "inverse_gamma"):
        return mp.loggamma(e[0]) - e[0] * mp.log(e[1])
    return mp.fsum(mp.loggamma(x) for x in e) - mp.loggamma(mp.fsum(e))


def exact_change(family: Exponential, eta: np.ndarray, other: np.ndarray) -> np.ndarray:
    """E[T] of one list of members less that of the other, correctly rounded."""
    pairs = zip(eta, other, strict=True)
    with mp.workdps(700 if family.axes == 0 else mp.dps):
        return np.array(
            [
                [float(b - a) for a, b in zip(exact_expected(family, x), exact_expected(family, y), strict=True)]
                for x, y in pairs
            ]
        )


def exact_log_prob(family: Exponential, eta: np.ndarray, s: np.ndarray) -> float:
    """η·T(s) - A(η) and the base measure, in many digits."""
    e, v = [mp.mpf(float(x)) for x in eta], [mp.mpf(float(x)) for x in s]
    norm = exact_norm(family, eta)
    if isinstance(family, Finite):
        return float(([mp.mpf(0), *e])[family.values.index(float(s[0]))] - norm)
    if family.name == "gamma":
        return float(e[0] * mp.log(v[0]) - e[1] * v[0] - mp.log(v[0]) - norm)
    if family.name == "inverse_gamma":
        return float(-e[0] * mp.log(v[0]) - e[1] / v[0] - mp.log(v[0]) - norm)
    v = v if family.dim > 1 else [v[0], 1 - v[0]]
    return float(mp.fsum((a - 1) * mp.log(x) for a, x in zip(e, v, strict=True)) - norm)


def numpyro_member(family: Exponential, eta: np.ndarray) -> Any:
    """The same members as NumPyro has them."""
    match family.name:
        case "gamma":
            return dist.Gamma(eta[:, 0], eta[:, 1])
        case "inverse_gamma":
            return dist.InverseGamma(eta[:, 0], eta[:, 1])
        case "beta":
            return dist.Beta(eta[:, 0], eta[:, 1])
        case "dirichlet":
            return dist.Dirichlet(jnp.asarray(eta))
        case "bernoulli":
            return dist.Bernoulli(logits=jnp.asarray(eta[:, 0]))
        case _:
            return dist.Categorical(logits=jnp.concatenate([jnp.zeros((len(eta), 1)), eta], -1))


@each_family
def test_log_density(family: Exponential):
    """The textbook's density: 60 digits at the extremes, NumPyro where it is accurate."""
    eta = members(family)
    s = middle(family, eta)
    found = ask(family, eta, s=s).log_prob
    exact = np.array([exact_log_prob(family, e, v) for e, v in zip(eta, s, strict=True)])
    np.testing.assert_allclose(found, exact, rtol=1e-11, atol=1e-9)
    mild = 0.5 + 3 * np.random.default_rng(2).uniform(size=(20, family.numbers))
    s = middle(family, mild)
    plain = s if family.dim > 1 else s[:, 0]
    if isinstance(family, Finite):
        plain = np.full(20, family.numbers)  # the number of the last value
    theirs = numpyro_member(family, mild).log_prob(plain)
    np.testing.assert_allclose(ask(family, mild, s=s).log_prob, theirs, rtol=1e-11, atol=1e-12)


@each_family
def test_norm_and_expected_statistics(family: Exponential):
    """A and its gradient."""
    eta = members(family)
    found = ask(family, eta)
    assert found.proper.all()
    np.testing.assert_allclose(found.log_norm, [float(exact_norm(family, e)) for e in eta], rtol=1e-13, atol=1e-12)
    exact = np.array([[float(x) for x in exact_expected(family, e)] for e in eta])
    np.testing.assert_allclose(found.expected, exact, rtol=1e-12, atol=0.0 if family.name == "beta" else 1e-13)


@each_family
def test_moments(family: Exponential):
    """Means, variances and covariances of the coordinates, as SciPy has them."""
    eta = members(family)
    found = ask(family, eta)
    a, b = eta[:, 0], eta[:, -1]
    match family.name:
        case "gamma":
            mean, variance = stats.gamma.stats(a, scale=1 / b)
        case "inverse_gamma":
            safe = np.maximum(a, 3.0)
            mean, variance = stats.invgamma.stats(safe, scale=b)
            mean, variance = (
                np.where(a < 3.0, found.mean[:, 0], mean),
                np.where(a < 3.0, found.variance[:, 0], variance),
            )
        case "beta":
            mean, variance = stats.beta.stats(a, b)
        case "dirichlet":
            mean = np.array([stats.dirichlet.mean(e) for e in eta])
            variance = np.array([stats.dirichlet.var(e) for e in eta])
            covariance = np.array([stats.dirichlet.cov(e) for e in eta])
            np.testing.assert_allclose(found.covariance, covariance, rtol=1e-9, atol=1e-15)
        case _:
            assert isinstance(family, Finite)
            p = special.softmax(np.concatenate([np.zeros((SIZE, 1)), eta], -1), -1)
            mean = p @ family.values
            variance = ((np.array(family.values) - mean[:, None]) ** 2 * p).sum(-1)
    mean, variance = (np.reshape(each, (SIZE, -1)) for each in (mean, variance))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-9, atol=1e-16)
    np.testing.assert_array_equal(np.diagonal(found.covariance, axis1=1, axis2=2), found.variance)


@each_family
def test_divergence(family: Exponential):
    """Against its definition in 60 digits, between members that have nothing to do with each other and near ones."""
    eta = members(family, 40)
    for other, floor in ((members(family, 40, seed=3)[::-1], 1e-10), (neighbours(family, eta), 1e-11)):
        exact = []
        for x, y in zip(eta, other, strict=True):
            along = mp.fsum(
                (mp.mpf(float(p)) - mp.mpf(float(q))) * t
                for p, q, t in zip(x, y, exact_expected(family, x), strict=True)
            )
            exact.append(float(along - exact_norm(family, x) + exact_norm(family, y)))
        np.testing.assert_allclose(ask(family, eta, other).kl, exact, rtol=1e-9, atol=floor)


def test_divergence_as_numpyro_has_it():
    """Closed forms written by others, at ordinary parameters."""
    rng = np.random.default_rng(4)
    eta, other = 0.5 + 5 * rng.uniform(size=(2, 30, 2))
    for family in (Gamma(), Beta()):
        theirs = dist.kl_divergence(numpyro_member(family, eta), numpyro_member(family, other))
        np.testing.assert_allclose(ask(family, eta, other).kl, theirs, rtol=1e-9, atol=1e-12)


@each_family
def test_shift_to_a_neighbour(family: Exponential):
    """The member that rows of data lead to, to 1e-10, from every corner of the ranges."""
    eta = members(family)
    if family.name == "categorical":
        eta *= 0.01  # the first value's probability must not drown among the others'
    goal = neighbours(family, eta)
    found = ask(family, eta, change=exact_change(family, eta, goal)).shifted
    np.testing.assert_allclose(found, goal, rtol=1e-10, atol=1e-10 if family.axes == 0 else 0.0)


def residual(family: Exponential, eta: np.ndarray, change: np.ndarray, found: np.ndarray) -> float:
    """What E[T] of the member found misses, beside the rounding of the numbers that go in."""
    worst = 0.0
    for e, c, f in zip(eta, change, found, strict=True):
        before, after = exact_expected(family, e), exact_expected(family, f)
        for b, d, a in zip(before, c, after, strict=True):
            size = max(abs(b), abs(mp.mpf(float(d))), abs(a))
            worst = max(worst, float(abs(b + mp.mpf(float(d)) - a) / size) if size else 0.0)
    return worst


@each_continuous
def test_shift_from_anywhere_to_anywhere(family: Exponential):
    """From one end of the ranges to the other: E[T] is what was asked for, to 1e-10 of the largest number involved."""
    eta = members(family, 60, seed=5)
    goal = members(family, 60, seed=6)[::-1]
    change = exact_change(family, eta, goal)
    found = ask(family, eta, change=change).shifted
    assert np.isfinite(found).all()
    assert residual(family, eta, change, found) < 1e-10


@each_family
def test_no_change_is_no_change(family: Exponential):
    """Bit for bit."""
    eta = members(family)
    np.testing.assert_array_equal(ask(family, eta).shifted, eta)


@pytest.mark.parametrize(
    ("family", "eta", "changes"),
    [
        (Finite((0.0, 1.0)), [0.3], [[0.5], [-0.7], [np.nan]]),
        (Finite((0.0, 1.0, 2.0)), [0.0, 0.0], [[0.3, 0.2], [-0.4, 0.0]]),
        (Gamma(), [2.0, 1.0], [[0.0, 2.0], [0.3, 0.0], [0.0, 3.0], [np.inf, 0.0], [0.0, np.nan]]),
        (InverseGamma(), [1e6, 1.0], [[1e-6, 0.0], [0.0, 1e4]]),
        (Beta(), [1e-3, 1e3], [[1000.0, 0.0], [2000.0, 1.0], [np.nan, 0.0]]),
        (Dirichlet(3), [1.0, 1.0, 1.0], [[1.0, 1.0, 1.0], [0.0, 0.0, 1.5], [np.inf, 0.0, 0.0]]),
    ],
    ids=str,
)
def test_impossible_change_is_refused(family: Exponential, eta: list[float], changes: list[list[float]]):
    """NaN in all numbers, and an end to the search; a change that is possible goes through beside it."""
    change = np.array([*changes, [-1e-9] + [1e-9] * (family.numbers - 1)])
    if family.name == "beta":
        change[-1, 1] = 0.0
    found = ask(family, np.tile(np.array(eta), (len(change), 1)), change=change).shifted
    assert np.isnan(found[:-1]).all()
    assert np.isfinite(found[-1]).all()


@each_family
def test_improper_members_are_said_to_be(family: Exponential):
    """Zero, negative and infinite parameters of densities; infinite log odds."""
    eta = np.tile(members(family, 1, seed=7), (4, 1))
    eta[1, 0], eta[2, -1], eta[3, 0] = np.inf, np.nan, -1.0
    value = middle(family, eta[:1]).repeat(4, 0)
    found = ask(family, eta, change=np.full_like(eta, -1e-6), s=value)
    np.testing.assert_array_equal(found.proper, [True, False, False, family.axes == 0])
    assert np.isnan(found.shifted[~found.proper]).all()


@pytest.mark.parametrize("family", [Finite((0.0, 1.0, 2.0)), Gamma(), Beta(), Dirichlet(3)], ids=str)
@settings(max_examples=40)
@given(data=st.data())
def test_round_trip_and_no_nan(family: Exponential, data: st.DataObject):
    """Whatever the members: all answers are numbers, KL ≥ 0, and the way there and back ends where it started."""
    unit = st.lists(st.floats(0.0, 1.0), min_size=family.numbers, max_size=family.numbers)
    low, high = np.array(RANGES[family.name]).T

    def member() -> np.ndarray:
        place = np.array([data.draw(unit)])
        return low + (high - low) * place if family.axes == 0 else low ** (1 - place) * high**place

    eta, other = member(), member()
    found, theirs = ask(family, eta, other), ask(family, other)
    for each in found:
        assert np.isfinite(each).all()
    assert found.kl[0] >= -1e-10
    change = theirs.expected - found.expected
    there = ask(family, eta, change=change).shifted
    if family.axes == 0 and np.isnan(there).any():
        # probabilities that differ by less than one rounding of 1 can be lost in a difference
        assert np.ptp([0.0, *other[0]]) > 30.0
        return
    if family.axes:
        assert residual(family, eta, change, there) < 1e-10
    back = ask(family, there, change=-change).shifted
    if not np.isnan(back).any():
        p, q = ask(family, back).expected, found.expected
        np.testing.assert_allclose(p, q, rtol=1e-8, atol=1e-12 * np.abs(change).max() + 1e-14)


@pytest.mark.slow
@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize("family", [*FINITE, Gamma(), Dirichlet(3)], ids=str)
def test_float32(family: Exponential):
    """The same in JAX's default precision: nothing is NaN, and steps to a neighbour are exact to 1e-5 or to what their
    rounded inputs allow.
    """
    eta = members(family)
    if family.axes == 0:
        eta *= 0.1 if family.numbers == 1 else 0.01  # beyond, probabilities are too small for the dtype
    goal = neighbours(family, eta)
    change = exact_change(family, eta, goal)
    single, rounded = eta.astype(np.float32), change.astype(np.float32)
    found = ask(family, single, goal.astype(np.float32), rounded, middle(family, eta))
    assert found.shifted.dtype == np.float32
    for name, each in found._asdict().items():
        assert not np.isnan(each).any(), name
    np.testing.assert_allclose(found.expected, ask(family, eta).expected, rtol=1e-5, atol=1e-6)
    if family.axes == 0:
        np.testing.assert_allclose(found.shifted, goal, atol=1e-4)
        return
    with jax.enable_x64(True):
        allowed = ask(family, single.astype(float), change=rounded.astype(float)).shifted
    # ψ of a large shape is known to one rounding of the change: the shape, to that over its variance
    known = np.abs(change).max(-1, keepdims=True) * eta.max(-1, keepdims=True) * 6e-8
    slack = known if family.name in ("gamma", "inverse_gamma") else 0.1 * known
    assert (np.abs(found.shifted / allowed - 1) <= 1e-5 + slack).all()


SAMPLED = {
    "bernoulli": [[0.4], [-3.0]],
    "categorical": [[0.4, -1.0], [3.0, 2.0]],
    "gamma": [[0.05, 2.0], [30.0, 0.1]],
    "inverse_gamma": [[0.05, 2.0], [30.0, 0.1]],
    "beta": [[0.05, 0.3], [20.0, 3.0]],
    "dirichlet": [[0.3, 2.0, 0.1], [20.0, 3.0, 1.0]],
}


@pytest.mark.slow
@each_family
def test_draws(family: Exponential):
    """Sample means of the statistics are within 4 standard errors of E[T]; shapes; no draw at the ends."""
    eta = jnp.asarray(np.array(SAMPLED[family.name])[:, : family.numbers])
    draw = jax.jit(partial(family.sample, shape=(4000,)))
    drawn = np.asarray(draw(jax.random.key(1), eta))
    assert drawn.shape == (4000, 2, family.dim)
    t = np.asarray(family.stats(jnp.asarray(drawn)))
    off = (t.mean(0) - np.asarray(family.expected(eta))) / (t.std(0) / np.sqrt(4000))
    assert np.abs(off).max() < 4.0
    if family.axes:
        tiny = np.asarray(draw(jax.random.key(2), jnp.full_like(eta, 1e-3)))
        assert (tiny > 0.0).all() and np.isfinite(tiny).all()
        assert (tiny < 1.0).all() or family.name in ("gamma", "inverse_gamma")
        # most of these are nearer to an end than the dtype can tell
        assert (tiny < 1e-300).any() or (tiny > 1e300).any()


@each_family
def test_quantiles(family: Exponential):
    """SciPy's distribution functions lead back to q; the leading axes are those of q and then those of η."""
    eta = np.array(SAMPLED[family.name])[:, : family.numbers]
    q = np.array([0.1, 0.5, 0.9])
    found = family.quantile(eta, q)
    assert found.shape == (3, 2, family.dim)
    assert family.quantile(eta[0], 0.5).shape == (family.dim,)
    a, b = eta[:, 0], eta[:, -1]
    match family.name:
        case "gamma":
            back = stats.gamma.cdf(found[..., 0], a, scale=1 / b)[..., None]
        case "inverse_gamma":
            back = stats.invgamma.cdf(found[..., 0], a, scale=b)[..., None]
        case "beta":
            back = stats.beta.cdf(found[..., 0], a, b)[..., None]
        case "dirichlet":
            back = stats.beta.cdf(found, eta, eta.sum(-1, keepdims=True) - eta)
        case _:
            assert isinstance(family, Finite)
            p = np.asarray(family.expected(jnp.asarray(eta)))
            cdf = np.cumsum(np.concatenate([1 - p.sum(-1, keepdims=True), p], -1), -1)
            expected = np.array([[family.values[int((each < x).sum())] for each in cdf] for x in q])
            np.testing.assert_array_equal(found[..., 0], expected)
            return
    np.testing.assert_allclose(back, np.broadcast_to(q[:, None, None], back.shape), rtol=1e-9)


def test_leading_axes_and_scan():
    """Functions work under any leading axes, and inside a scan; families are values that can be compared and hashed."""
    assert len({*FAMILIES, Gamma(), Dirichlet(3), Finite((-1.0, 1.0))}) == len(FAMILIES)
    eta = jnp.asarray(members(Beta(), 6)).reshape(2, 3, 2)
    change = 0.01 * jnp.asarray([-1.0, 0.5])
    flat = np.asarray(eta).reshape(6, 2)
    at_once = ask(Beta(), flat, change=np.tile(np.asarray(change), (6, 1))).shifted.reshape(2, 3, 2)

    def one(_: None, each: jax.Array) -> tuple[None, jax.Array]:
        return None, jax.vmap(lambda e: Beta().shifted(e, change))(each)

    _, one_by_one = jax.lax.scan(one, None, eta)
    assert jax.eval_shape(Beta().shifted, eta, change).shape == (2, 3, 2)
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-13)
    assert jax.eval_shape(Beta().kl, eta, eta).shape == jax.eval_shape(Beta().log_norm, eta).shape == (2, 3)
    assert jax.eval_shape(Dirichlet(3).covariance, jnp.ones((4, 3))).shape == (4, 3, 3)


def test_families_that_cannot_be():
    """One value, the same value twice, one coordinate."""
    for values in ((1.0,), (1.0, 1.0, 2.0)):
        with pytest.raises(ValueError, match="different numbers"):
            Finite(values)
    with pytest.raises(ValueError, match="two or more"):
        Dirichlet(1)


def test_densities_at_the_ends_of_the_support():
    """Zero, infinite or 1, as the powers of s and 1 - s say; nothing is NaN."""
    shapes = np.array([[0.5, 2.0], [1.0, 1.0], [2.0, 0.5]])
    zero, one = np.zeros((3, 1)), np.ones((3, 1))
    np.testing.assert_allclose(ask(Beta(), shapes, s=zero).log_prob, [np.inf, 0.0, -np.inf], atol=1e-12)
    np.testing.assert_allclose(ask(Beta(), shapes, s=one).log_prob, [-np.inf, 0.0, np.inf], atol=1e-12)
    np.testing.assert_allclose(ask(Gamma(), shapes, s=zero).log_prob, [np.inf, 0.0, -np.inf], atol=1e-12)
    np.testing.assert_array_equal(ask(InverseGamma(), shapes, s=zero).log_prob, [-np.inf] * 3)
    np.testing.assert_array_equal(ask(Finite((-1.0, 1.0)), shapes[:, :1], s=zero).log_prob, [-np.inf] * 3)


GENERATOR = np.random.default_rng(0)
TWO, THREE = np.array([0.0, 1.0]), np.array([-1.0, 0.0, 2.0])
CHANCES = np.array([2.0, 4.0, 1.0]) / 7
# A family, natural parameters of a member, and draws of it by NumPy (a Dirichlet is matched as a Beta is).
KNOWN: dict[str, tuple[Exponential, list[float], np.ndarray | None]] = {
    "gamma": (Gamma(), [3.0, 2.0], GENERATOR.gamma(3.0, 1 / 2.0, 20000)),
    "beta": (Beta(), [2.0, 3.0], GENERATOR.beta(2.0, 3.0, 20000)),
    "dirichlet": (Dirichlet(3), [2.0, 3.0, 4.0], None),
    "bernoulli": (Finite(tuple(TWO)), [np.log(3.0)], GENERATOR.choice(TWO, 20000, p=[0.25, 0.75])),
    "categorical": (Finite(tuple(THREE)), [np.log(2.0), np.log(0.5)], GENERATOR.choice(THREE, 20000, p=CHANCES)),
}
LIMITS = {"gamma": (0.0, np.inf), "beta": (0.0, 1.0), "dirichlet": (0.0, 1.0)}

each_known = pytest.mark.parametrize("name", KNOWN)


@each_known
def test_interior_values_lie_in_the_support(name: str) -> None:
    """Strictly inside, whatever the number of components."""
    family = KNOWN[name][0]
    values = family.interior(np.random.default_rng(0), 5)
    assert values.shape == (5, family.dim)
    if family.levels:
        assert set(values.ravel()) <= set(family.levels)
    else:
        low, high = LIMITS[name]
        assert np.all((low < values) & (values < high))
    if name == "dirichlet":
        np.testing.assert_allclose(values.sum(1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("name", [name for name, (_, _, draws) in KNOWN.items() if draws is not None])
def test_draws_are_matched(name: str) -> None:
    """The member with the expected statistics of many draws of a member is that member, to sampling error."""
    family, eta, draws = KNOWN[name]
    assert draws is not None
    natural, proper = family.match(draws.reshape(len(draws), 1, -1), jnp.float64)
    assert proper
    np.testing.assert_allclose(natural, [eta], atol=0.15)


@each_known
def test_probes_identify_a_member(name: str) -> None:
    """A continuous family is probed at more points than it has parameters, whose statistics are independent."""
    family, _, _ = KNOWN[name]
    if family.levels:
        assert len(family.levels) == family.numbers + 1
        return
    probes = family.probes()
    features = np.concatenate([np.ones((len(probes), 1)), np.asarray(family.stats(jnp.asarray(probes)))], 1)
    assert np.linalg.matrix_rank(features) == family.numbers + 1


def test_a_value_that_was_never_drawn_stays_possible() -> None:
    """As if one more draw had been even."""
    natural, proper = Finite((0.0, 1.0)).match(np.zeros((9, 1, 1)), jnp.float64)
    assert proper
    np.testing.assert_allclose(natural, np.log([[0.05 / 0.95]]), rtol=1e-12)


def test_draws_at_the_edge_of_a_support_are_moved_inside() -> None:
    """A Beta draw may round to 1; draws that are all the same have no member."""
    values = np.array([0.2, 0.6, 1.0]).reshape(3, 1, 1)
    natural, proper = Beta().match(values, jnp.float64)
    assert proper
    assert np.isfinite(natural).all()
    _, proper = Gamma().match(np.ones((3, 1, 1)), jnp.float64)
    assert not proper
