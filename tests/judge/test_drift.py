"""Changes along the rows: found where they are, and not where there are none."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adfpp
from adfpp.engine.tilt import moments_named
from adfpp.judge.drift import NOT_TESTED, Drift, drift_of_ranks, drift_of_scores, is_sorted, strongest
from adfpp.model import Joint, read
from tests.models import Data, linear, values


def scores_of(y: np.ndarray, data: Data, off: float = 0.0) -> Drift:
    """The test of the scores of the linear model at its exact posterior, or with means that are off by so many sds."""
    program = read(linear, (data.x,), {"y": y}, None, moments_named("auto"))
    joint = Joint(program, (data.x,), {"y": y})
    precision = np.eye(program.size) + data.x.T @ data.x / 0.25  # a standard normal prior, noise of 0.5
    root = np.linalg.cholesky(np.linalg.inv(precision))
    mean = np.linalg.solve(precision, data.x.T @ y / 0.25)
    standard = np.random.default_rng(0).normal(size=(500, program.size)) @ root.T
    sd = standard.std(0)
    theta = mean + off * sd + standard
    return drift_of_scores(joint, theta, standard / sd, np.arange(len(y)), [f"w[{i}]" for i in range(program.size)])


def test_scores_find_a_coefficient_that_changes() -> None:
    data = values(count=256)
    assert scores_of(data.y, data).p > 0.01
    changed = data.y.copy()
    start = int(0.6 * len(changed))
    changed[start:] -= 2.0 * data.x[start:, 1]
    found = scores_of(changed, data)
    assert found.p < 1e-6 and found.where == "w[1]" and abs(found.row - start) < 0.1 * len(changed)


def test_a_posterior_that_is_off_is_no_change_along_the_rows() -> None:
    """All scores then have the same sign on average: their sum does not return to 0, but it grows evenly."""
    data = values(count=256)
    assert scores_of(data.y, data, 4.0).p > 0.01


def intercepts(group: Any, treatment: Any, y: Any = None) -> None:
    a: Any = numpyro.sample("a", dist.Normal(0, 1.5).expand([4]))
    b: Any = numpyro.sample("b", dist.Normal(0, 1.0).expand([2]))
    numpyro.sample("y", dist.Bernoulli(logits=a[group] + b[treatment]), obs=y)


@pytest.mark.parametrize("seed", [0, 2])
def test_a_group_with_nearly_certain_outcomes_is_no_change(seed: int) -> None:
    """All outcomes of the second group are 1: their scores are small, and have the same sign."""
    rng = np.random.default_rng(seed)
    group, treatment, y = np.repeat(np.arange(4), 80), rng.integers(0, 2, 320), rng.integers(0, 2, 320)
    y[group == 1] = 1
    learner = adfpp.EP(intercepts)
    belief = learner.run(jax.random.key(0), group, treatment, y=y, progress_bar=False).state.belief
    program = learner.session.latest
    assert program is not None
    theta = np.asarray(belief.mean) + rng.normal(size=(500, 6)) @ np.asarray(belief.scale).T
    names = ["a[0]", "a[1]", "a[2]", "a[3]", "b[0]", "b[1]"]

    def tested(y: np.ndarray) -> Drift:
        joint = Joint(program, (group, treatment), {"y": y})
        return drift_of_scores(joint, theta, (theta - theta.mean(0)) / theta.std(0), np.arange(320), names)

    assert tested(y).p > 0.01  # without the information of the rows it was 2e-5
    y[:80] = np.arange(80) >= 40  # within the first group
    changed = tested(y)
    assert changed.p < 1e-6 and changed.where == "a[0]" and 35 < changed.row < 45


def test_ranks_that_become_extreme_are_found() -> None:
    rng = np.random.default_rng(1)
    uniform, rows = rng.random(400), np.arange(0, 800, 2)
    assert drift_of_ranks(uniform, rows).p > 0.01
    wide = np.where(np.arange(400) < 250, uniform, np.where(uniform < 0.5, uniform**6, 1 - (1 - uniform) ** 6))
    found = drift_of_ranks(wide, rows)
    assert found.p < 1e-6 and found.where == "the spread of the rows" and 420 < found.row < 560
    high = np.where(np.arange(400) < 250, uniform, uniform**0.3)
    assert drift_of_ranks(high, rows).where == "the ranks of the rows"
    assert drift_of_ranks(uniform[:19], rows[:19]) == NOT_TESTED


def test_p_values_are_those_of_chance() -> None:
    """Of 400 streams without a change about 5 % have a p-value below 0.05; the bound is conservative."""
    rng = np.random.default_rng(2)
    p = np.array([drift_of_ranks(rng.random(300), np.arange(300)).p for _ in range(400)])
    assert 0.01 < np.mean(p < 0.05) < 0.08 and p.min() > 1e-4


def test_the_strongest_test_is_corrected_for_their_number() -> None:
    one, other = Drift(0.01, 5, "w"), Drift(0.2, 9, "u")
    assert strongest(one, other) == Drift(0.02, 5, "w") and strongest(one, NOT_TESTED) == one
    assert strongest(NOT_TESTED) == NOT_TESTED and strongest(other, other, other, other, other, other).p == 1.0


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (np.repeat([0, 1], 10), True),
        (np.repeat([1, 0], 10), True),
        (np.repeat([2, 0, 1], 10), True),  # grouped by label
        (np.sort(np.random.default_rng(0).normal(size=20)), True),
        (np.random.default_rng(0).normal(size=20), False),  # nearly all values differ: these are no groups
        (np.tile([0, 1], 10), False),
        (np.r_[np.repeat([0, 1], 10), 0], False),
        (np.zeros(20), False),
        (np.array([1.0, 2.0]), False),
    ],
)
def test_sorted_values_have_no_order_of_time(observed: np.ndarray, expected: bool) -> None:
    assert is_sorted(observed) is expected
