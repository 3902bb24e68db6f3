"""Sweeps of smoothing against the exact answer on a grid, NUTS and expectation propagation; refusals."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS
from scipy.special import expit, gammaln, logsumexp, ndtr

import adfpp
from adfpp import ADF, EP, NotConverged, RandomWalk, Status
from adfpp.distributions import Probit
from adfpp.learn.smoothing import smooth
from models import ising_perceptron
from tests.learn.state_space import ROWS, covariances, learner, linear, rauch_tung_striebel, stream, walk
from tests.products import beta_bernoulli


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


@pytest.mark.slow
@pytest.mark.parametrize("model", [counts, flips, returns])
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    with pytest.raises(ValueError, match="GB.*Smooth the rows in parts"):
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


def test_products_are_not_smoothed(ising: Any, coins: Any) -> None:
    with pytest.raises(ValueError, match=r"stores a product \(p: beta\)"):
        adfpp.smooth(adfpp.ADF(beta_bernoulli, family={"p": "beta"}, dynamics=RandomWalk(0.1)), coins)
    with pytest.raises(ValueError, match=r"stores a product \(sign: bernoulli\).*cannot be smoothed"):
        adfpp.smooth(adfpp.ADF(ising_perceptron.model, dynamics=RandomWalk(0.1)), **ising)
