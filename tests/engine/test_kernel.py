"""One row by the kernel: absorbed whole or refused, counted once, and scored by its exact evidence."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

import adfpp
from adfpp import ADF, EP, Status
from adfpp.distributions import Probit
from adfpp.engine.families.base import Answer
from adfpp.engine.kernel import judge
from adfpp.engine.tilt import Tilted
from tests.learn.common import equal, labels, logistic


def regression(x: Any, y: Any = None, noise: float = 1.0) -> None:
    """One slope, known noise."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(w * x, noise), obs=y)


def two_outputs(x: Any, y: Any = None, count: Any = None) -> None:
    """A vector of two independent outputs and a count share their weights: three factors a row."""
    w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1], 2]).to_event(2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 0.5).to_event(1), obs=y)
        numpyro.sample("count", dist.Poisson(jnp.exp(x @ w[:, 0])), obs=count)


@pytest.mark.parametrize(
    "family",
    ["full", pytest.param("diagonal", marks=pytest.mark.slow), pytest.param("spherical", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(
    ("where", "value", "status"),
    [("x", np.nan, Status.NOT_FINITE), ("x", -np.inf, Status.NOT_FINITE), ("y", 2, Status.OUT_OF_SUPPORT)],
)
def test_bad_rows_leave_the_state_bit_for_bit(family: str, where: str, value: float, status: Status) -> None:
    """A refused row is coded; the state is untouched, alone or among good rows."""
    x, y = labels(6, 8)
    adf = ADF(logistic, family=family)
    start, _ = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y)
    bad_x, bad_y = x.copy(), y.copy()
    if where == "x":
        bad_x[3, 1] = value
    else:
        bad_y[3] = value
    alone, info = adf.update(start, bad_x[3:4], y=bad_y[3:4])
    assert equal(alone, start)
    assert int(info.status[0]) == status and float(info.log_z[0]) == 0.0
    among, info = adf.update(start, bad_x, y=bad_y)
    without, _ = adf.update(start, np.delete(x, 3, 0), y=np.delete(y, 3))
    assert np.asarray(info.status).tolist() == [0, 0, 0, status, 0, 0, 0, 0]
    np.testing.assert_allclose(among.belief.mean, without.belief.mean, atol=1e-14)
    assert int(among.rows) == int(without.rows) == 15


@pytest.mark.slow
def test_a_row_is_absorbed_whole_or_not_at_all() -> None:
    """Three factors a row, the last one out of support: the first two are taken back."""
    rng = np.random.default_rng(7)
    x, y, count = rng.normal(size=(4, 3)), rng.normal(size=(4, 2)), np.array([1, 0, -1, 2])
    adf = ADF(two_outputs)
    start = adf.init(jax.random.key(0), x, y=y, count=np.abs(count))
    state, info = adf.update(start, x[2:3], y=y[2:3], count=count[2:3])
    assert equal(state, start) and int(info.status[0]) == Status.OUT_OF_SUPPORT
    y[1, 0] = np.nan
    state, info = adf.update(start, x, y=y, count=count)
    assert np.asarray(info.status).tolist() == [0, Status.NOT_FINITE, Status.OUT_OF_SUPPORT, 0]
    good, _ = adf.update(start, x[[0, 3]], y=y[[0, 3]], count=count[[0, 3]])
    np.testing.assert_allclose(state.belief.mean, good.belief.mean, atol=1e-14)


def test_surprising_rows_keep_their_evidence() -> None:
    """A row 40 sd away: its log Z is in logs, not floored, and it moves the belief as it should (trap 6)."""

    def model(x: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", Probit(w * x + 40.0, 0.1), obs=y)

    x, y = np.ones(2), np.array([0, 1])
    adf = ADF(model)
    state, info = adf.update(adf.init(jax.random.key(0), x, y=y), x[:1], y=y[:1])
    z = -40.0 / np.sqrt(1.01)
    np.testing.assert_allclose(info.log_z[0], norm.logcdf(z), rtol=1e-12)
    shift = -np.exp(norm.logpdf(z) - norm.logcdf(z)) / np.sqrt(1.01)
    np.testing.assert_allclose(state.belief.mean[0], shift, rtol=1e-10)


def test_a_row_is_counted_once() -> None:
    """Linear-Gaussian: one row of precision 1 on a prior of precision 1 leaves variance exactly a half (trap 1)."""
    adf = ADF(regression)
    x, y = np.ones(1), np.ones(1)
    state, _ = adf.update(adf.init(jax.random.key(0), np.ones(2), y=np.ones(2)), x, y=y)
    np.testing.assert_allclose(state.belief.scale**2, [[0.5]], rtol=1e-14)
    np.testing.assert_allclose(state.belief.mean, [0.5], rtol=1e-14)


def test_unseen_directions_keep_their_prior() -> None:
    """One row in five dimensions leaves the other four as they were, at full rank (trap 2)."""
    x, y = np.zeros((2, 5)), np.array([1, 0])
    x[:, 0] = 1.0
    adf = ADF(logistic)
    state, _ = adf.update(adf.init(jax.random.key(0), x, y=y), x[:1], y=y[:1])
    cov = np.asarray(state.belief.scale @ state.belief.scale.T)
    np.testing.assert_allclose(cov[1:5, 1:5], np.eye(4), atol=1e-14)
    assert np.linalg.matrix_rank(cov) == 6


def test_evidence_of_discrete_data_sums_to_one() -> None:
    """Σ_y Z(y) = 1 for a binary and a count likelihood (trap 3)."""
    x, y = labels(8, 20)
    adf = ADF(logistic)
    state, _ = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y)
    z = [float(np.exp(adf.update(state, x[:1], y=np.array([v]))[1].log_z[0])) for v in (0, 1)]
    np.testing.assert_allclose(sum(z), 1.0, atol=1e-8)

    def counts(x: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0, 0.5))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Poisson(jnp.exp(w * x)), obs=y)

    poisson = ADF(counts)
    many = np.arange(80)
    start = poisson.init(jax.random.key(0), np.ones(80), y=many)
    total = sum(float(np.exp(poisson.update(start, np.ones(1), y=many[k : k + 1])[1].log_z[0])) for k in many)
    np.testing.assert_allclose(total, 1.0, atol=1e-6)


def test_first_row_is_the_exact_tilt() -> None:
    """With one latent, one row of ADF is moment matching: log Z, mean and variance against quadrature."""

    def model(x: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0.5, 2))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.StudentT(3.0, w * x, 0.4), obs=y)

    x, y = np.array([1.5, 1.0]), np.array([4.0, 1.0])
    adf = ADF(model)
    state, info = adf.update(adf.init(jax.random.key(0), x, y=y), x[:1], y=y[:1])
    from scipy.stats import t

    def f(w: float, p: int) -> Any:
        return w**p * norm.pdf(w, 0.5, 2) * t.pdf((4.0 - 1.5 * w) / 0.4, 3) / 0.4

    z, first, second = (quad(f, -20, 20, args=(p,), points=[0.5, 8 / 3], limit=400, epsabs=1e-14)[0] for p in range(3))
    np.testing.assert_allclose(info.log_z[0], np.log(z), atol=1e-7)
    np.testing.assert_allclose(state.belief.mean[0], first / z, atol=1e-7)
    np.testing.assert_allclose(state.belief.scale[0, 0] ** 2, second / z - (first / z) ** 2, rtol=1e-6)


@pytest.mark.slow
def test_large_field_goes_to_monte_carlo() -> None:
    """A tiny network: its field is too large for quadrature, it says so, learns, and repeats bit for bit."""

    def net(x: Any, y: Any = None) -> None:
        a = numpyro.sample("a", dist.Normal(0, 1).expand([x.shape[-1], 3]).to_event(2))
        c = numpyro.sample("c", dist.Normal(0, 1).expand([3]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.StudentT(5.0, jnp.tanh(x @ a) @ c, 0.2), obs=y)

    rng = np.random.default_rng(11)
    x = rng.normal(size=(64, 2))
    y = np.tanh(x[:, 0]) - np.tanh(x[:, 1]) + 0.2 * rng.normal(size=64)
    adf = ADF(net)
    plan = adf.explain(x, y=y).factors[0]
    assert plan.field_size == 6 and plan.rule == "MonteCarlo"
    start = adf.init(jax.random.key(0), x, y=y)
    state, info = adf.update(start, x, y=y)
    again, _ = adf.update(start, x, y=y)
    assert equal(state, again)
    assert not (np.asarray(info.status) >= Status.NOT_FINITE).any()
    assert np.mean(info.log_z[-16:]) > np.mean(info.log_z[:16])


@pytest.mark.parametrize("x64", [pytest.param(False, marks=pytest.mark.slow), True])
def test_rows_of_zeros_are_rows(x64: bool) -> None:
    """A row that says nothing about θ is absorbed: its evidence counts, the belief stays."""

    def model(x: Any, offset: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Poisson(jnp.exp(x @ w + offset)), obs=y)

    with jax.enable_x64(x64):
        x, offset, y = np.zeros((4, 2)), np.full(4, 0.5), np.array([0, 1, 2, 3])
        x[3] = 1.0
        adf = ADF(model)
        start = adf.init(jax.random.key(0), x, offset, y=y)
        state, info = adf.update(start, x[:3], offset[:3], y=y[:3])
        assert np.asarray(info.status).tolist() == [0, 0, 0]
        expected = y[:3] * 0.5 - np.exp(0.5) - np.log([1, 1, 2])
        np.testing.assert_allclose(np.asarray(info.log_z), expected, rtol=1e-5)
        np.testing.assert_allclose(np.asarray(state.belief.scale), np.eye(2), rtol=1e-6, atol=1e-7)


def test_elements_that_do_not_depend_on_a_latent_site_count_into_the_evidence() -> None:
    """A site of two elements with nothing to learn from, beside one with something."""

    def model(x: Any, y: Any = None) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("z", dist.Normal(0.5, 2.0).expand([2]).to_event(1), obs=x)
            numpyro.sample("y", dist.Normal(w * x[:, 0], 1.0), obs=y)

    x = np.random.default_rng(0).normal(size=(5, 2))
    y = x[:, 0] + 0.1
    adf = adfpp.ADF(model)
    state, info = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y)
    precision = 1.0 + x[:, 0] @ x[:, 0]
    assert float(state.belief.mean[0]) == pytest.approx(x[:, 0] @ y / precision, rel=1e-10)
    total = np.eye(5) + np.outer(x[:, 0], x[:, 0])
    normal: Any = multivariate_normal
    expected = norm.logpdf(x, 0.5, 2.0).sum() + normal.logpdf(y, np.zeros(5), total)
    assert float(info.log_z.sum()) == pytest.approx(expected, rel=1e-10)


def two_sensors(x: Any, y: Any = None, k: Any = None) -> None:
    """Two observations of one row, and so two factors: a real number and a count."""
    w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 0.5), obs=y)
        numpyro.sample("k", dist.Poisson(jnp.exp(x @ w)), obs=k)


@pytest.fixture(scope="module")
def sensors() -> tuple[ADF, Any, np.ndarray, np.ndarray, np.ndarray]:
    """A learner that has absorbed four rows, and four others."""
    rng = np.random.default_rng(7)
    x, y, k = rng.normal(size=(4, 2)), rng.normal(size=4), np.array([1, 0, 3, 2])
    adf = ADF(two_sensors)
    state, _ = adf.update(adf.init(jax.random.key(0), x, y=y, k=k), x, y=y, k=k)
    return adf, state, x[::-1], y[::-1], k[::-1]


@pytest.mark.parametrize(
    ("column", "value", "status"), [("y", np.nan, Status.NOT_FINITE), ("k", -1, Status.OUT_OF_SUPPORT)]
)
def test_a_row_with_one_refused_observation_changes_nothing(
    sensors: Any, column: str, value: float, status: Status
) -> None:
    """The other observation of the row is fine, and is not absorbed either: before it or after it."""
    adf, state, x, y, k = sensors
    data = {"y": y.copy(), "k": k.copy()}
    data[column][:] = value
    after, info = adf.update(state, x, **data)
    assert np.asarray(info.status).tolist() == [status] * 4
    np.testing.assert_array_equal(info.log_z, 0.0)
    for now, before in zip(jax.tree.leaves(after.belief), jax.tree.leaves(state.belief), strict=True):
        np.testing.assert_array_equal(now, before)
    assert int(after.rows) == int(state.rows) == 4


def test_the_rows_around_a_refused_row_are_absorbed(sensors: Any) -> None:
    adf, state, x, y, k = sensors
    bad = k.copy()
    bad[2] = -1
    among, info = adf.update(state, x, y=y, k=bad)
    assert np.asarray(info.status).tolist() == [0, 0, Status.OUT_OF_SUPPORT, 0]
    where = [0, 1, 3, 3]  # as many rows, so that nothing is compiled again; the last one is refused
    rest = k[where]
    rest[3] = -1
    without, _ = adf.update(state, x[where], y=y[where], k=rest)
    np.testing.assert_allclose(among.belief.mean, without.belief.mean, rtol=1e-12)
    np.testing.assert_allclose(among.belief.scale, without.belief.scale, rtol=1e-12, atol=1e-14)


class Overconfident(dist.Distribution):
    """A label in {0, 1} whose log probability comes out too large, as by rounding errors."""

    support = dist.constraints.boolean  # pyright: ignore[reportAssignmentType]

    def __init__(self, field: Any, excess: Any) -> None:
        self.field, self.excess = field, excess
        super().__init__(batch_shape=jnp.shape(field))

    def log_prob(self, value: Any) -> Any:
        """That of a logistic label, plus the excess."""
        return dist.Bernoulli(logits=self.field).log_prob(value) + self.excess


def overconfident(x: Any, y: Any = None) -> None:
    """The excess of each row is its second number."""
    w: Any = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Overconfident(x[:, 0] * w, x[:, 1]), obs=y)


@pytest.mark.parametrize("kind", ["adf", "ep"])
@pytest.mark.parametrize("x64", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["float64", "float32"])
@pytest.mark.filterwarnings("ignore::adfpp.RowsMarked")
def test_a_probability_above_one_is_refused(kind: str, x64: bool) -> None:
    """A log probability of 0 is possible, one above 0 is not; the belief is as if the row had not been there."""
    excess = np.array([0.0, np.log(2.0), 1.0, 16380.0])  # log Z is -log 2 plus the excess, because w is symmetric
    x, y = np.stack([np.array([0.0, 0.0, 0.0, 1.0]), excess], -1), np.array([1, 1, 1, 0])
    with jax.enable_x64(x64):
        if kind == "adf":
            adf = ADF(overconfident)
            start = adf.init(jax.random.key(0), x, y=y)
            state, info = adf.update(start, x, y=y)
            for now, before in zip(state.belief, start.belief, strict=True):
                np.testing.assert_array_equal(now, before)
        else:
            result = EP(overconfident).run(jax.random.key(0), x, y=y, progress_bar=False)
            info = result.info
            np.testing.assert_allclose(result.posterior.sd()["w"], 1.0, rtol=1e-6)
    assert np.asarray(info.status).tolist() == [Status.OK, Status.OK, Status.ABOVE_ONE, Status.ABOVE_ONE]
    np.testing.assert_allclose(info.log_z, [-np.log(2.0), 0.0, 0.0, 0.0], atol=1e-5)


def two_scales(x: Any, y: Any = None) -> None:
    """A number with a very vague prior beside a number of unit scale, and precise rows."""
    a: Any = numpyro.sample("a", dist.Normal(0, 1e9))
    b: Any = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(a + b * x, 1e-9), obs=y)


@pytest.mark.parametrize("family", ["full", "diagonal"])
@pytest.mark.parametrize("x64", [True, False], ids=["float64", "float32"])
def test_no_standard_deviation_becomes_zero(family: str, x64: bool) -> None:
    """A row narrows the vague number by a factor of 1e18: the sd is that of the conjugate formula, or it is refused."""
    x, y = np.zeros(2), np.full(2, 3.0)
    with jax.enable_x64(x64):
        adf = ADF(two_scales, family=family)
        start = adf.init(jax.random.key(0), x, y=y)
        state, info = adf.update(start, x[:1], y=y[:1])
    if int(info.status[0]) == Status.OK:
        np.testing.assert_allclose(np.asarray(state.belief.mean), [3.0, 0.0], atol=1e-6)
        np.testing.assert_allclose(np.asarray(state.belief.scale)[0], 1e-9, rtol=1e-6)
    else:
        assert family == "full" and int(info.status[0]) == Status.IMPROPER
        for now, before in zip(state.belief, start.belief, strict=True):
            np.testing.assert_array_equal(now, before)


@pytest.mark.parametrize(
    ("log_z", "error", "status"),
    [
        (0.01, 0.015, Status.OK),
        (-0.5, 0.8, Status.INACCURATE),
        (0.5, 0.8, Status.ABOVE_ONE),
        (0.5, 0.0, Status.ABOVE_ONE),
    ],
)
def test_an_inaccurate_row_has_no_probability_above_one(log_z: float, error: float, status: Status) -> None:
    """Only an error that does not mark the row excuses a log probability above 0."""
    tilted = Tilted(jnp.asarray(log_z), jnp.zeros(1), jnp.eye(1), jnp.asarray(error))
    yes = jnp.ones((), bool)
    assert judge(Answer(tilted), 0.02, (yes, yes, yes), discrete=True) == status
    assert judge(Answer(tilted), 0.02, (yes, yes, yes)) == max(Status.INACCURATE * (error > 0.02), Status.OK)
