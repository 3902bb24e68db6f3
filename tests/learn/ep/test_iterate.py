"""The loop of steps: it converges, says when it has not, and hands back what was reached."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from adfpp import EP, NotConverged, Status
from tests.learn.ep.common import BATTERY, clutter, data, moments, probit, run

KEY = jax.random.key(0)


def by_importance(log_joint: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, covariance: np.ndarray) -> Any:
    """Evidence, means and sds by 200,000 draws from a heavy-tailed proposal, and how many draws they are worth."""
    student: Any = stats.multivariate_t
    proposal = student(mean, 1.5 * covariance, df=4, seed=1)
    draws = proposal.rvs(200_000).reshape(200_000, len(mean))
    logs = log_joint(draws) - np.atleast_1d(proposal.logpdf(draws))
    weights = np.exp(logs - logs.max())
    evidence = logs.max() + np.log(weights.mean())
    weights /= weights.sum()
    centre = weights @ draws
    return evidence, centre, np.sqrt(weights @ (draws - centre) ** 2), 1.0 / np.sum(weights**2)


def log_joint_of(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """The log joint density of a model of the battery, written anew."""
    model, args, kwargs = BATTERY[name]
    if model is clutter:
        y = args[0][:, None]

        def of_clutter(mu: np.ndarray) -> np.ndarray:
            inside, outside = stats.norm.logpdf(y, mu[:, 0], 1.0), stats.norm.logpdf(y, 0.0, 10.0)
            return np.logaddexp(inside, outside).sum(0) + len(y) * np.log(0.5) + stats.norm.logpdf(mu[:, 0], 0, 10)

        return of_clutter
    (x,), y, scale = args, kwargs["y"], kwargs.get("scale", 2.5)

    def of_logistic(w: np.ndarray) -> np.ndarray:
        return -np.logaddexp(0, -(2 * y - 1)[:, None] * (x @ w.T)).sum(0) + stats.norm.logpdf(w, 0, scale).sum(1)

    return of_logistic


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n.startswith("separable") else n for n in BATTERY]
)
def test_default_settings_settle(name: str) -> None:
    """Converged, no row held back, and near the true posterior and its evidence."""
    model, args, kwargs = BATTERY[name]
    ep = EP(model)
    result = ep.run(KEY, *args, progress_bar=False, **kwargs)
    info = result.info
    assert info.converged and info.step[-1] <= ep.tol and (info.status == Status.OK).all()
    mean, covariance = moments(result)
    evidence, exact, sd, draws = by_importance(log_joint_of(name), mean, covariance)
    assert draws > 2000  # so that what they say is good to a few hundredths
    # one-sided posteriors, whose sds no Gaussian's agree with: the means do
    loose = 3.0 if name in ("separable, prior sd 100", "duplicated rows") else 1.0
    np.testing.assert_allclose((mean - exact) / sd, 0.0, atol=0.1)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)) / sd, 1.0, atol=0.1 * loose)
    assert info.log_evidence == pytest.approx(evidence, abs=0.1 * loose)


def test_says_when_it_has_not_settled() -> None:
    """Too few sweeps: a warning with the step, the rows and the cures, and a proper belief."""
    x, _, y = data(40, 3)
    with pytest.warns(NotConverged, match=r"after 1 sweep:.*rows move most.*damping") as told:
        result = run(probit, x, of={"y": y}, max_sweeps=1, tol=1e-9)
    assert not result.info.converged and len(told) == 1
    assert np.linalg.eigvalsh(moments(result)[1]).min() > 0


def test_interrupted_it_hands_back_a_belief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the third sweep: a warning, and the belief of the sites reached."""
    from adfpp.learn.ep.problem import Problem

    x, _, y = data(40, 3)
    real, calls = Problem.visit_in_order, {"count": 0}

    def fold(self: Any, *args: Any) -> Any:
        calls["count"] += 1
        if calls["count"] == 3:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(Problem, "visit_in_order", fold)
    with pytest.warns(UserWarning, match="Interrupted after 1 sweeps"):
        result = run(probit, x, of={"y": y}, tol=1e-9)
    assert not result.info.converged and np.linalg.eigvalsh(moments(result)[1]).min() > 0
