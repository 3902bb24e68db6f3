"""Smoothing against a textbook Rauch-Tung-Striebel smoother, and against the exact answer on a grid."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS
from scipy.special import expit, gammaln, logsumexp, ndtr

from adfpp import ADF, EP, Discount, NotConverged, OrnsteinUhlenbeck, RandomWalk, RowsMarked, Status
from adfpp.distributions import Probit
from adfpp.learn.smoothing import Smoothed, smooth

ROWS = 24
PRIOR_MEAN, PRIOR = np.array([0.5, 0.5, -1.0]), np.diag([1.0, 1.0, 4.0])
NOISE = 0.5


def linear(x: Any, y: Any = None) -> None:
    """Linear regression: two slopes and an intercept."""
    w = numpyro.sample("w", dist.Normal(0.5, 1).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(-1, 2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w + b, NOISE), obs=y)


def stream(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, outputs, time gaps."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 2))
    y = x @ np.array([1.0, -1.0]) + np.sin(np.arange(ROWS) / 5) + NOISE * rng.normal(size=ROWS)
    return x, y, rng.exponential(size=ROWS)


Move = Callable[[np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray, float]]


def rauch_tung_striebel(x: np.ndarray, y: np.ndarray, gaps: np.ndarray, move: Move) -> tuple[Any, Any, Any, float]:
    """The textbook smoother in covariances; ``move(m, C, gap)`` gives m⁻, C⁻ and f. A row that is NaN says nothing."""
    filtered, moved = [], []
    m, c, log_z = PRIOR_MEAN, PRIOR, 0.0
    for t, (row, target) in enumerate(zip(np.column_stack([x, np.ones(len(x))]), y, strict=True)):
        factor = 1.0
        if t > 0:
            m, c, factor = move(m, c, gaps[t])
        moved.append((m, c, factor))
        if np.isfinite(target):
            s = row @ c @ row + NOISE**2
            gain = c @ row / s
            log_z += -0.5 * (target - row @ m) ** 2 / s - 0.5 * np.log(2 * np.pi * s)
            m, c = m + gain * (target - row @ m), c - np.outer(gain, gain) * s
        filtered.append((m, c))
    smoothed = [filtered[-1]]
    for t in range(len(y) - 2, -1, -1):
        (m, c), (m_next, c_next, factor) = filtered[t], moved[t + 1]
        gain = factor * c @ np.linalg.inv(c_next)
        ms, cs = smoothed[0]
        smoothed.insert(0, (m + gain @ (ms - m_next), c + gain @ (cs - c_next) @ gain.T))
    means, covariances = (np.array(a) for a in zip(*smoothed, strict=True))
    return means, covariances, np.array([m for m, _ in filtered]), log_z


def walk(q: np.ndarray) -> Move:
    """A random walk."""
    return lambda m, c, gap: (m, c + gap * q, 1.0)


def fade(m: np.ndarray, c: np.ndarray, gap: float) -> tuple[np.ndarray, np.ndarray, float]:
    """An Ornstein-Uhlenbeck process of timescale 5."""
    phi = float(np.exp(-gap / 5.0))
    return PRIOR_MEAN + phi * (m - PRIOR_MEAN), phi**2 * c + (1 - phi**2) * PRIOR, phi


MATRIX = 0.2 * np.ones((3, 3)) + 0.1 * np.eye(3)
MOVES: dict[str, tuple[Any, Move]] = {
    "scalar": (RandomWalk(0.1), walk(0.1 * np.eye(3))),
    "site": (RandomWalk({"b": 0.3}), walk(np.diag([0, 0, 0.3]))),
    "matrix": (RandomWalk(MATRIX), walk(MATRIX)),
    "returning": (OrnsteinUhlenbeck(5.0), fade),
    "discount": (Discount(0.9), lambda m, c, gap: (m, c / 0.9**gap, 1.0)),
}


@cache
def learner(kind: str) -> ADF:
    """Its compiled passes serve several tests."""
    return ADF(linear, dynamics=MOVES[kind][0])


def covariances(smoothed: Smoothed) -> np.ndarray:
    """(n, N, N)."""
    root = np.asarray(smoothed.belief.scale)
    return root @ root.transpose(0, 2, 1)


@pytest.mark.parametrize("kind", MOVES)
def test_it_is_rauch_tung_striebel(kind: str) -> None:
    """Smoothed and filtered moments and the evidence of a linear Gaussian model with irregular gaps, to 1e-8.

    The third sweep checks that sites in the place of the rows, and EP's evidence from them, change nothing: one and two
    sweeps are exact, so the run ends by itself.
    """
    x, y, gaps = stream(1)
    means, spreads, filtered, log_z = rauch_tung_striebel(x, y, gaps, MOVES[kind][1])
    adf = learner(kind)
    for sweeps in (1, 9):
        got = smooth(adf, x, y=y, dt=gaps, sweeps=sweeps, progress_bar=False)
        assert got.mean.shape == got.sd.shape == (ROWS, 3)
        np.testing.assert_allclose(got.mean, means, atol=1e-8)
        np.testing.assert_allclose(covariances(got), spreads, atol=1e-8)
        np.testing.assert_allclose(got.sd, np.sqrt(np.diagonal(spreads, axis1=1, axis2=2)), atol=1e-8)
        np.testing.assert_allclose(got.filtered_mean, filtered, atol=1e-8)
        np.testing.assert_allclose(got.log_evidence, log_z, rtol=1e-8)
        assert (got.status == Status.OK).all()
        assert got.converged == (sweeps > 1) and len(got.steps) == min(sweeps, 2)


def test_a_posterior_of_each_row() -> None:
    """``at`` gives the whole belief; the last row's is the filter's own; without dt a gap is 1."""
    x, y, gaps = stream(1)
    adf = learner("scalar")
    got = smooth(adf, x, y=y, progress_bar=False)
    means, spreads, *_ = rauch_tung_striebel(x, y, np.ones(ROWS), walk(0.1 * np.eye(3)))
    posterior = got.at(5)
    np.testing.assert_allclose(np.append(posterior.mean()["b"], posterior.mean()["w"]), np.roll(means[5], 1), atol=1e-8)
    np.testing.assert_allclose(posterior.belief.scale @ posterior.belief.scale.T, spreads[5], atol=1e-8)
    last = adf.run(jax.random.key(0), x, y=y, progress_bar=False)
    np.testing.assert_allclose(got.mean[-1], last.state.belief.mean, atol=1e-12)
    np.testing.assert_allclose(got.log_evidence, last.log_evidence, rtol=1e-12)


def test_missing_rows_are_bridged() -> None:
    """A refused row's belief is what the others say of its time, at the ends of the stream as within it."""
    x, y, gaps = stream(2)
    y[[4, 5, 11, ROWS - 1]] = np.nan
    means, spreads, filtered, log_z = rauch_tung_striebel(x, y, gaps, fade)
    adf = learner("returning")
    for sweeps in (1, 9):
        with pytest.warns(RowsMarked, match="4 of 24 rows: 4 NOT_FINITE"):
            got = smooth(adf, x, y=y, dt=gaps, sweeps=sweeps, progress_bar=False)
        np.testing.assert_allclose(got.mean, means, atol=1e-8)
        np.testing.assert_allclose(covariances(got), spreads, atol=1e-8)
        np.testing.assert_allclose(got.filtered_mean, filtered, atol=1e-8)
        np.testing.assert_allclose(got.log_evidence, log_z, rtol=1e-8)
        assert list(np.flatnonzero(got.status == Status.NOT_FINITE)) == [4, 5, 11, ROWS - 1]


def test_rows_before_the_first_are_at_its_time() -> None:
    """There is no move before the first row that is absorbed, as in a run of ADF."""
    x, y, gaps = stream(2)
    y[:2] = np.nan
    adf = learner("scalar")
    with pytest.warns(RowsMarked):
        got = smooth(adf, x, y=y, dt=gaps, progress_bar=False)
        run = adf.run(jax.random.key(0), x, y=y, dt=gaps, progress_bar=False)
    np.testing.assert_allclose(got.mean[-1], run.state.belief.mean, atol=1e-12)
    np.testing.assert_allclose(got.mean[:2], got.mean[[2, 2]], atol=1e-12)
    np.testing.assert_allclose(got.filtered_mean[1], PRIOR_MEAN, atol=1e-12)


def test_one_row() -> None:
    """Its smoothed belief is its filtered one, with more sweeps too."""
    x, y, _ = stream(3)
    adf = learner("scalar")
    for sweeps in (1, 3):
        got = smooth(adf, x[:1], y=y[:1], sweeps=sweeps, progress_bar=False)
        means, spreads, _, log_z = rauch_tung_striebel(x[:1], y[:1], np.ones(1), walk(np.eye(3)))
        np.testing.assert_allclose(got.mean, means, atol=1e-10)
        np.testing.assert_allclose(covariances(got), spreads, atol=1e-10)
        np.testing.assert_allclose(got.log_evidence, log_z, rtol=1e-10)


# ------------------------------------------------------------------------- against the exact answer on a grid

STEPS, WALK, FIRST_SD = 60, 0.08, 1.0


def counts(y: Any) -> None:
    """Counts whose log rate is θ."""
    rate = numpyro.sample("rate", dist.Normal(0, FIRST_SD))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Poisson(jax.numpy.exp(rate)), obs=y)


def flips(y: Any) -> None:
    """Coins whose log odds are θ."""
    odds = numpyro.sample("odds", dist.Normal(0, FIRST_SD))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=odds), obs=y)


def returns(y: Any) -> None:
    """Stochastic volatility: each factor has information on one side of θ only, and its log is not concave in tails."""
    level = numpyro.sample("level", dist.Normal(0, FIRST_SD))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(0, jax.numpy.exp(0.5 * level)), obs=y)


def on_a_grid(log_factor: np.ndarray, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Forward and backward sums over a fine grid: means, sds and the evidence; ``log_factor`` is (T, grid)."""
    width = grid[1] - grid[0]
    step = -0.5 * (grid[:, None] - grid) ** 2 / WALK - 0.5 * np.log(2 * np.pi * WALK) + np.log(width)
    step = np.exp(step)
    forward, backward, scales = [], [np.ones(len(grid))], []
    density = np.exp(-0.5 * grid**2 / FIRST_SD**2) / np.sqrt(2 * np.pi) / FIRST_SD * width
    for t, log_f in enumerate(log_factor):
        density = (density if t == 0 else step @ density) * np.exp(log_f)
        scales.append(density.sum())
        density = density / scales[-1]
        forward.append(density)
    for log_f in log_factor[:0:-1]:
        behind = step @ (np.exp(log_f) * backward[0])
        backward.insert(0, behind / behind.max())
    joint = np.array(forward) * np.array(backward)
    joint /= joint.sum(1, keepdims=True)
    mean = joint @ grid
    return mean, np.sqrt(joint @ grid**2 - mean**2), float(np.log(scales).sum())


def simulate(kind: str) -> tuple[np.ndarray, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """Data (T, 1) of a local level, and the factor's log."""
    rng = np.random.default_rng({"counts": 11, "flips": 12, "returns": 13}[kind])
    level = np.cumsum(np.sqrt(WALK) * rng.normal(size=STEPS))
    if kind == "counts":
        return rng.poisson(np.exp(level)), lambda y, h: y * h - np.exp(h) - gammaln(y + 1)
    if kind == "flips":
        return (rng.random(STEPS) < expit(level)).astype(int), lambda y, h: y * h - logsumexp([h, 0 * h], axis=0)
    scale = np.exp(0.5 * level)
    return scale * rng.normal(size=STEPS), lambda y, h: -0.5 * (y**2 * np.exp(-h) + h + np.log(2 * np.pi))


@pytest.fixture(scope="module")
def counting() -> ADF:
    """A learner of counts: its compiled passes serve several tests."""
    return ADF(counts, dynamics=RandomWalk(WALK))


@pytest.mark.parametrize("model", [counts, *(pytest.param(m, marks=pytest.mark.slow) for m in (flips, returns))])
def test_sweeps_come_to_the_exact_answer(model: Any, counting: ADF) -> None:
    """Means within .02 sd, sds within 3%, the evidence within .05 of forward-backward sums on a grid."""
    y, log_factor = simulate(model.__name__)
    grid = np.linspace(-9.0, 7.0, 1201)
    mean, sd, log_z = on_a_grid(np.array([log_factor(v, grid) for v in y]), grid)
    adf = counting if model is counts else ADF(model, dynamics=RandomWalk(WALK))
    once = smooth(adf, y, progress_bar=False)
    got = smooth(adf, y, sweeps=30, tol=1e-4, progress_bar=False)
    assert got.converged and len(got.steps) < 30
    assert np.abs((got.mean[:, 0] - mean) / sd).max() < 0.02
    assert np.abs(got.sd[:, 0] / sd - 1).max() < 0.03
    assert abs(got.log_evidence - log_z) < 0.05
    # one backward pass alone keeps the filter's errors
    assert np.abs((once.mean[:, 0] - mean) / sd).max() > 0.03
    assert np.abs(once.sd[:, 0] / sd - 1).max() > 0.03


def levels(y: Any) -> None:
    """A level and a log scale that both move."""
    level = numpyro.sample("level", dist.Normal(0, 1))
    width = numpyro.sample("width", dist.LogNormal(0, 1))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(level, width), obs=y)


def paths(y: Any) -> None:
    """The same as one model of all rows, for NUTS."""
    steps = numpyro.sample("steps", dist.Normal(0, 1).expand([2, len(y)]).to_event(2))
    level, log_width = jax.numpy.cumsum(steps * jax.numpy.full(len(y), 0.2).at[0].set(1.0), 1)
    numpyro.deterministic("path", jax.numpy.stack([level, log_width], 1))
    numpyro.sample("y", dist.Normal(level, jax.numpy.exp(log_width)).to_event(1), obs=y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::adfpp.RowsMarked", "ignore::adfpp.NotConverged")
def test_two_moving_numbers_against_nuts() -> None:
    """Sites that are negative for some rows: within .2 sd and 20% of NUTS, from 1 sd; what is held is said to be."""
    rng = np.random.default_rng(3)
    scale = np.exp(np.sin(np.arange(80) / 15))
    y = np.cumsum(0.2 * rng.normal(size=80)) + scale * rng.normal(size=80)
    nuts = MCMC(NUTS(paths), num_warmup=500, num_samples=3000, progress_bar=False)
    nuts.run(jax.random.key(0), y)
    draws = nuts.get_samples()["path"]
    mean, sd = np.mean(draws, 0), np.std(draws, 0)
    adf = ADF(levels, dynamics=RandomWalk(0.04))
    once, got = (smooth(adf, y, sweeps=sweeps, progress_bar=False) for sweeps in (1, 40))
    assert np.abs((once.mean - mean) / sd).max() > 0.5
    assert np.abs((got.mean - mean) / sd).max() < 0.2
    assert np.abs(got.sd / sd - 1).max() < 0.2
    assert got.converged != bool((got.status == Status.HELD).any())


def pairs(x: Any, y: Any = None) -> None:
    """Two answers a row."""
    w = numpyro.sample("w", dist.Normal(0, 1.5).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(jax.numpy.stack([x @ w, -0.5 * (x @ w)], -1)).to_event(1), obs=y)


def test_without_noise_it_is_expectation_propagation() -> None:
    """A random walk that takes no steps: every row's belief is EP's posterior of a constant, and so is the evidence."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(20, 2))
    y = (rng.random((20, 2)) < ndtr(np.stack([x[:, 0], -0.5 * x[:, 0]], 1))).astype(int)
    got = smooth(ADF(pairs, dynamics=RandomWalk(0.0)), x, y=y, sweeps=60, tol=1e-7, progress_bar=False)
    reference = EP(pairs, tol=1e-7).run(jax.random.key(0), x, y=y, progress_bar=False)
    belief = reference.state.belief
    assert got.converged
    np.testing.assert_allclose(got.mean, np.tile(belief.mean, (20, 1)), atol=1e-6)
    np.testing.assert_allclose(covariances(got)[3], belief.scale @ belief.scale.T, atol=1e-6)
    np.testing.assert_allclose(got.log_evidence, reference.log_evidence, atol=1e-6)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are passed over in padded chunks when they are many."""
    x, y, gaps = stream(5)
    adf = learner("returning")
    whole = smooth(adf, x, y=y, dt=gaps, sweeps=2, progress_bar=False)
    monkeypatch.setattr("adfpp.learn.passes.suitable_chunk", lambda rows, total: 16)
    parts = smooth(adf, x, y=y, dt=gaps, sweeps=2, progress_bar=False)
    assert whole.converged and parts.converged
    np.testing.assert_allclose(parts.mean, whole.mean, atol=1e-12)
    np.testing.assert_allclose(parts.sd, whole.sd, atol=1e-12)
    np.testing.assert_allclose(parts.log_evidence, whole.log_evidence, rtol=1e-12)


def test_it_says_so_when_sweeps_did_not_suffice(counting: ADF, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning with the cure; the beliefs reached come back. The bar shows what the last sweep moved."""
    y, _ = simulate("counts")
    with pytest.warns(NotConverged, match="2 sweeps.*Allow more"):
        got = smooth(counting, y, sweeps=2, tol=1e-9)
    assert not got.converged and np.isfinite(got.mean).all()
    assert "sweep 2, step" in capsys.readouterr().err


def test_what_cannot_be_smoothed_is_refused() -> None:
    """In words, with the cure."""
    x, y, _ = stream(4)
    moving = learner("scalar")
    with pytest.raises(ValueError, match="nothing to smooth.*adfpp.EP"):
        smooth(ADF(linear), x, y=y)
    with pytest.raises(ValueError, match="family='full'"):
        smooth(ADF(linear, family="diagonal", dynamics=RandomWalk(0.1)), x, y=y)
    with pytest.raises(TypeError, match="takes an adfpp.ADF"):
        smooth(EP(linear), x, y=y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sweeps must be"):
        smooth(moving, x, y=y, sweeps=0)
    with pytest.raises(ValueError, match="dt must be"):
        smooth(moving, x, y=y, dt=-np.ones(ROWS))
    wide = np.broadcast_to(np.zeros(300), (4000, 300))
    with pytest.raises(ValueError, match="GB.*stretch of the rows"):
        smooth(moving, wide, y=np.broadcast_to(0.0, 4000))

    class Own:
        def setup(self, *_: Any) -> Any:
            return ()

    with pytest.raises(TypeError, match="Own needs a method transition"):
        smooth(ADF(linear, dynamics=Own()), x, y=y)  # type: ignore[arg-type]

    def swept(x: Any, sweeps: Any = None) -> None:
        linear(x)

    with pytest.raises(ValueError, match="'sweeps' is also an option"):
        smooth(ADF(swept, dynamics=RandomWalk(0.1)), x)
