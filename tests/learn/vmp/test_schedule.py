"""The schedule of sweeps, with momentum."""

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import adfpp
from adfpp.learn.ep.iterate import History, Progress
from adfpp.learn.vmp.schedule import Coordinate, Current, Problem
from adfpp.learn.vmp.sweeps import Rows, Swept
from tests.learn.vmp import models
from tests.learn.vmp.models import KEY


@pytest.mark.slow
def test_momentum_saves_sweeps_and_the_bound_never_falls() -> None:
    y = models.factors()
    vmp = adfpp.VMP(models.factor_analysis)
    state = vmp.init(KEY, y)
    program = vmp.get_posterior(state).program
    problem = Problem(program, Rows((jnp.asarray(y),), jnp.ones(len(y))), [], state.absorbed, 1e-9, Progress(False))
    plain = [problem.sweep(state.belief.parts)]
    for _ in range(60):
        plain.append(problem.sweep(plain[-1].values))
    current = Current(state.belief.parts, state.absorbed, np.zeros(len(y)))
    for _ in range(61):
        Coordinate().step(problem, current, 1.0, History())
    assert np.diff(current.bounds).min() >= 0.0
    assert current.bounds[-1] > float(plain[-1].bound) + 0.01


def test_step_that_lowers_the_bound_is_undone() -> None:
    """A sweep from beyond the last values reaches 5, where the bound was 6; the plain sweep reaches 7."""
    asked = []

    def sweep(values: Any, previous: Any = None, beyond: float = 0.0) -> Swept:
        asked.append(beyond)
        return Swept(
            ("beyond",) if beyond else ("plain",), (), jnp.asarray(5.0 if beyond else 7.0), jnp.zeros(2), jnp.ones(0)
        )

    program = SimpleNamespace(dtype=np.float64)
    problem: Any = SimpleNamespace(
        sweep=sweep, tol=1e-4, program=program, rows=Rows((), jnp.ones(2)), progress=Progress(False)
    )
    current = Current(("now",), (), np.zeros(2), [6.0], ("before",), momentum=3.0)
    step = Coordinate().step(problem, current, 1.0, History())
    assert asked[0] > 0.0 and asked[1] == 0.0
    assert current.values == ("plain",) and current.previous == ("now",) and current.bounds == [6.0, 7.0]
    assert current.momentum == 1.0 and not step.done
    last = Coordinate().step(problem, current, 1.0, History())
    assert last.done and asked[2:] == [0.0]  # a gain of 0, in a sweep without momentum
