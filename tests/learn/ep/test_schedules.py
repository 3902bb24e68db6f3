"""The schedules: exact where that is possible, and with one fixed point."""

import warnings
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import adfpp
from adfpp.learn.ep import schedules
from adfpp.learn.ep.iterate import Step
from tests.learn.ep.common import data, exact_linear, linear, logistic, mean_and_sd, moments, probit, run, sorted_stream
from tests.models import probit as small_probit
from tests.models import rows


@pytest.mark.parametrize("schedule", ["sequential", "parallel", "minibatch", "stochastic"])
def test_linear_gaussian_models_are_exact(schedule: str) -> None:
    """Posterior, evidence and leave-one-out densities of the textbook, whatever the schedule."""
    x, y, _ = data()
    result = run(linear, x, of={"y": y}, schedule=schedule)
    mean, covariance, evidence = exact_linear(x, y)
    got = moments(result)
    assert result.info.converged
    np.testing.assert_allclose(got[0], mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(got[1], covariance, rtol=1e-9, atol=1e-12)
    if schedule == "stochastic":
        assert np.isnan(result.log_evidence)
        return
    assert result.log_evidence == pytest.approx(evidence, abs=1e-8)
    for i in (0, 7):
        rest = np.arange(len(y)) != i
        without_mean, without_cov, _ = exact_linear(x[rest], y[rest])
        sd = np.sqrt(0.49 + x[i] @ without_cov @ x[i])
        assert result.info.log_z[i] == pytest.approx(stats.norm.logpdf(y[i], x[i] @ without_mean, sd), abs=1e-8)


@pytest.mark.slow
def test_schedules_share_their_fixed_points() -> None:
    """Sequential, parallel, in batches, and a window that holds all rows: the same belief."""
    x, _, y = data(60, 3, seed=6)
    whole = run(probit, x, of={"y": y}, tol=1e-7)
    different: list[dict[str, Any]] = [
        {"schedule": "parallel"},
        {"schedule": "minibatch", "batch_size": 16},
        {"schedule": "window", "window": 60},
    ]
    for options in different:
        other = run(probit, x, of={"y": y}, tol=1e-7, **options)
        assert other.info.converged
        np.testing.assert_allclose(other.state.belief.mean, whole.state.belief.mean, atol=1e-5)
        np.testing.assert_allclose(moments(other)[1], moments(whole)[1], atol=1e-5)


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_a_step_that_is_undone_leaves_nothing_behind(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The belief, the sites and the infos are those before it to the bit, and it is no step of a converged run."""
    x, y, _ = rows()
    kind = {"sequential": schedules.Sequential, "parallel": schedules.Parallel}[schedule]
    made = kind.step

    def undone(*args: Any) -> Step:
        return Step(made(*args).size, 0.0, undo=1)

    found = []
    for step in (undone, lambda *args: Step(1.0, 1.0)):
        monkeypatch.setattr(kind, "step", step)
        with pytest.warns(adfpp.NotConverged):
            found.append(run(small_probit, x, of={"y": y}, schedule=schedule, max_sweeps=1))
    one, other = (jax.tree.leaves((r.state.belief, r.state.sites, r.info.status, r.info.log_z)) for r in found)
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert not found[0].info.converged and found[0].info.damping.tolist() == [0.0]


def test_a_resumed_run_does_not_blame_its_first_sweep_for_refused_rows() -> None:
    """What happened to the rows is no part of a state, so that a sweep after it cannot be compared."""
    x, y, _ = rows()
    holed = np.where(np.arange(len(x))[:, None] % 2, x, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adfpp.RowsMarked)
        first = run(small_probit, holed, of={"y": y})
        again = run(small_probit, holed, of={"y": y}, state=first.state)
    assert first.info.converged and again.info.converged and again.info.sweeps == 1
    assert (again.info.status == first.info.status).all() and again.info.damping.tolist() == [1.0]


def local_level(t: Any, y: Any = None, steps: int = 70) -> None:
    """A random walk that is seen with noise, both of unknown size."""
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    level: Any = numpyro.sample("level", dist.GaussianRandomWalk(tau, num_steps=steps))
    with numpyro.plate("rows", len(t)):
        numpyro.sample("y", dist.Normal(level[t], sigma), obs=y)


def exact_local_level(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and sds of log tau, log sigma and the levels: a grid over the scales, and algebra at each point."""
    place = np.arange(1.0, len(y) + 1.0)
    sizes, vectors = np.linalg.eigh(np.minimum.outer(place, place))  # the covariance of a walk of unit steps
    log_tau, log_sigma = (a.ravel() for a in np.meshgrid(*2 * [np.linspace(-5.0, 2.0, 141)], indexing="ij"))
    walk, noise, turned = np.exp(2 * log_tau)[:, None] * sizes, np.exp(2 * log_sigma)[:, None], vectors.T @ y
    log_p = stats.norm.logpdf(turned, 0.0, np.sqrt(walk + noise)).sum(1) + log_tau + log_sigma
    log_p += stats.halfnorm.logpdf(np.exp(log_tau)) + stats.halfnorm.logpdf(np.exp(log_sigma))
    weights = np.exp(log_p - log_p.max()) / np.exp(log_p - log_p.max()).sum()
    means = np.column_stack([log_tau, log_sigma, (walk / (walk + noise) * turned) @ vectors.T])
    variances = np.pad((walk * noise / (walk + noise)) @ vectors.T**2, ((0, 0), (2, 0)))
    mean = weights @ means
    return mean, np.sqrt(weights @ (variances + (means - mean) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_the_scales_of_a_local_level_are_learned(seed: int) -> None:
    """Undamped sweeps do not converge here: the scale of the walk depends on all levels, and they depend on it."""
    rng, t = np.random.default_rng(seed), np.arange(70)
    y = np.cumsum(0.3 * rng.normal(size=70)) + 0.75 * rng.normal(size=70)
    result = run(local_level, t, of={"y": y})
    mean, sd = exact_local_level(y)
    got, covariance = moments(result)
    assert result.info.converged and (result.info.status == adfpp.Status.OK).all()
    assert np.max(np.abs(got - mean) / sd) < 0.3
    ratio = np.sqrt(np.diag(covariance)) / sd
    assert ratio[2:].min() > 0.8 and ratio[2:].max() < 1.2
    assert ratio[:2].min() > 0.8 and ratio[:2].max() < 1.4  # their posterior is skewed: seed 6 has 1.39


@pytest.mark.slow
def test_windows_tend_to_ep() -> None:
    """A longer memory is nearer to EP, and what is older is absorbed: L sites are kept."""
    _, (x,), kwargs = sorted_stream()
    x, y = x[::24], kwargs["y"][::24]
    whole = run(probit, x, of={"y": y})
    mean, sd = mean_and_sd(whole)
    errors = []
    for window in (4, 64, 128):
        got = run(probit, x, of={"y": y}, schedule="window", window=window)
        errors.append(np.abs((np.asarray(got.state.belief.mean) - mean) / sd).max())
        assert got.state.sites[0].shape[0] == min(window, len(y))
    assert errors[0] > 3.0 * errors[1] > 9.0 * errors[2] and errors[2] < 0.01


@pytest.mark.slow
def test_one_tied_site() -> None:
    """Stochastic EP is EP at n = 1, near it at n = 200, and keeps nothing by row."""
    x, _, y = data(200, 3, seed=7)
    one = run(probit, x[:1], of={"y": y[:1]}, schedule="stochastic")
    np.testing.assert_allclose(moments(one)[0], moments(run(probit, x[:1], of={"y": y[:1]}))[0], atol=1e-9)
    tied, whole = run(probit, x, of={"y": y}, schedule="stochastic", tol=3e-3), run(probit, x, of={"y": y})
    mean, sd = mean_and_sd(whole)
    np.testing.assert_allclose((moments(tied)[0] - mean) / sd, 0.0, atol=0.05)
    np.testing.assert_allclose(np.sqrt(np.diag(moments(tied)[1])) / sd, 1.0, atol=0.03)
    assert all(a.shape[0] == 0 for a in tied.state.sites)


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
@pytest.mark.parametrize("turned", [False, True], ids=["in order", "turned round"])
def test_convergence_looks_at_narrow_directions(schedule: str, turned: bool) -> None:
    """Nearly equal columns under a vague prior: no marginal sd sees the direction that the rows determine."""
    rng = np.random.default_rng(2)
    shared = rng.normal(size=50)
    x = shared[:, None] + 1e-6 * rng.normal(size=(50, 2))
    y = (shared + rng.logistic(size=50) > 0).astype(int)
    order = slice(None, None, -1 if turned else 1)
    found = [
        run(logistic, x[order], of={"y": y[order], "scale": 1e4}, schedule=schedule, tol=tol, max_sweeps=400)
        for tol in (1e-3, 1e-10)
    ]
    assert all(r.info.converged for r in found)
    evidence = [r.log_evidence for r in found]
    narrow = [np.sqrt(np.linalg.eigvalsh(moments(r)[1])[0]) for r in found]
    wide = [np.sqrt(np.linalg.eigvalsh(moments(r)[1])[1]) for r in found]
    assert wide[1] > 100 * narrow[1]
    assert evidence[0] == pytest.approx(evidence[1], abs=0.01)
    assert narrow[0] == pytest.approx(narrow[1], rel=0.01)


DATA = rows(3)


def first_step(schedule: str, damping: float) -> tuple[float, float]:
    """How far the first sweep would have moved the belief undamped, and how much of that was done."""
    ep = adfpp.EP(small_probit, schedule=schedule, damping=damping, max_sweeps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adfpp.NotConverged)
        info = ep.run(jax.random.key(0), DATA.x, y=DATA.y, progress_bar=False).info
    return float(info.step[0]), float(info.damping[0])


@pytest.mark.parametrize("schedule", ["sequential", "parallel", "minibatch"])
def test_the_size_of_a_step_does_not_depend_on_its_damping(schedule: str) -> None:
    """Within a fifth: what the first rows of a sweep have changed is seen by the others."""
    whole, all_of_it = first_step(schedule, 1.0)
    damped, part_of_it = first_step(schedule, 0.1)
    assert (all_of_it, part_of_it) == (1.0, 0.1)
    assert damped == pytest.approx(whole, rel=0.2)


def test_a_damped_run_has_converged_no_sooner_than_its_error_is_small() -> None:
    """Damped to a tenth, it is as near to the fixed point as the tolerance promises."""
    tol = 0.01
    exact, damped = (
        adfpp.EP(small_probit, schedule="sequential", damping=damping, tol=limit).run(
            jax.random.key(0), DATA.x, y=DATA.y, progress_bar=False
        )
        for damping, limit in ((1.0, 1e-8), (0.1, tol))
    )
    assert damped.info.converged and damped.info.sweeps > 10
    off = abs(damped.state.belief.mean - exact.state.belief.mean) / exact.posterior.family.spread(exact.state.belief, 3)
    assert off.max() < 2.0 * tol
