"""The data of a run of variational message passing, what the run changes, and its schedule for the loop."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from adfpp.engine.message_passing import LogJoint
from adfpp.learn.ep.iterate import History, Progress, Schedule, Step
from adfpp.learn.vmp import sweeps
from adfpp.model import Program


@dataclass
class Current:
    """The results of a run so far.

    Attributes:
        values: The values of the parts.
        messages: For each part, what the rows add to its natural parameters.
        bounds: The lower bound after each sweep.
        log_z: ``(n,)`` each row's share of the bound.
        previous: The values before the last sweep.
        momentum: The number of sweeps since the last one that started without momentum, as Nesterov's sequence.
    """

    values: sweeps.Values
    messages: tuple[jax.Array, ...]
    log_z: Any
    bounds: list[float] = field(default_factory=list)
    previous: sweeps.Values | None = None
    momentum: float = 1.0


@dataclass
class Problem:
    """A data set, and the options of a run.

    Attributes:
        program: The model as it was read.
        rows: The rows.
        shared: The shared arrays.
        absorbed: For each part, what other rows have added to its natural parameters.
        tol: The run has converged when a sweep raises the lower bound by at most this.
        progress: The progress bar.
    """

    program: Program
    rows: sweeps.Rows
    shared: Sequence[Any]
    absorbed: tuple[jax.Array, ...]
    tol: float
    progress: Progress

    @property
    def joint(self) -> LogJoint:
        """The log joint of the model."""
        return sweeps.joint_of(self.program)

    def sweep(
        self,
        values: sweeps.Values,
        previous: sweeps.Values | None = None,
        beyond: float = 0.0,
        hint: Any = None,
        far: float = 0.0,
        rows: sweeps.Rows | None = None,
    ) -> sweeps.Swept:
        """Makes a sweep. If rows have discrete latents, there is always a hint, so that one program serves all."""
        rows = self.rows if rows is None else rows
        combinations = len(self.joint.combinations)
        if hint is None and combinations > 1:
            hint = np.zeros((len(rows.weight), combinations), self.program.dtype)
        compiled = self.program.compiled(sweeps.sweep, effort="light")
        before = values if previous is None else previous
        where, probe = (np.asarray(a, self.program.dtype) for a in (beyond, far))
        return compiled(values, before, where, rows, list(self.shared), self.absorbed, hint, probe)

    def residual(self, values: sweeps.Values) -> float:
        """How much a sweep depends on the probes at which messages are read; 0 in a conjugate model."""
        near, far = (self.sweep(values, far=which) for which in (0.0, 1.0))
        pairs = zip((*near.messages, near.log_z), (*far.messages, far.log_z), strict=True)
        return max(float(sweeps.apart(a, b)) for a, b in pairs)


class Coordinate(Schedule[Problem, Current]):
    """Updates every part in turn. The lower bound never falls.

    A sweep starts beyond the result of the last one, by Nesterov's sequence of multiples of the last step. If the bound
    is lower after such a sweep, it is undone, and the next one starts without momentum. Plain sweeps would take several
    times as many where latents depend closely on each other, as factors and their loadings do.
    """

    def step(self, problem: Problem, current: Current, damping: float, history: History) -> Step:
        """Makes one sweep."""
        now = current.bounds[-1] if current.bounds else -np.inf
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * current.momentum**2))
        beyond = (current.momentum - 1.0) / following
        # a gain of the size of rounding errors is none
        least = max(problem.tol, 8.0 * float(np.finfo(problem.program.dtype).eps) * abs(now) if current.bounds else 0.0)
        swept = problem.sweep(current.values, current.previous, beyond)
        if beyond > 0.0 and not float(swept.bound) >= now:
            following, beyond = 1.0, 0.0
            swept = problem.sweep(current.values)
        gain = float(swept.bound) - now
        plain = beyond == 0.0
        current.momentum = following if gain > least else 1.0  # the last sweep of a run is a plain one
        current.previous, current.values = current.values, swept.values
        current.messages, current.log_z = swept.messages, swept.log_z
        current.bounds.append(float(swept.bound))
        problem.progress.rows(len(problem.rows.weight))
        return Step(abs(gain), 1.0, done=plain and gain <= least)
