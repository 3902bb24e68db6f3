"""Steps are counted undamped in every schedule, so that a small damping does not look like convergence."""

import warnings

import jax
import pytest

import adfpp
from tests.models import probit, rows

DATA = rows(3)


def first_step(schedule: str, damping: float) -> tuple[float, float]:
    """How far the first sweep would have moved the belief undamped, and how much of that was done."""
    ep = adfpp.EP(probit, schedule=schedule, damping=damping, max_sweeps=1)
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
        adfpp.EP(probit, schedule="sequential", damping=damping, tol=limit).run(
            jax.random.key(0), DATA.x, y=DATA.y, progress_bar=False
        )
        for damping, limit in ((1.0, 1e-8), (0.1, tol))
    )
    assert damped.info.converged and damped.info.sweeps > 10
    off = abs(damped.state.belief.mean - exact.state.belief.mean) / exact.posterior.family.spread(exact.state.belief, 3)
    assert off.max() < 2.0 * tol
