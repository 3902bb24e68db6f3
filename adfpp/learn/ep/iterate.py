"""The only loop over sweeps: it makes steps until the belief has converged.

It handles damping, undone steps, the progress bar, Ctrl-C and the history. A ``Schedule`` defines one step, and what is
done before the first step and after the last. EP's schedules and smoothing are schedules of this loop; no other module
has a loop of its own.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

Problem = TypeVar("Problem")
Current = TypeVar("Current")


class Limits(NamedTuple):
    """When the loop ends.

    Attributes:
        tol: The belief has converged when the size of an undamped step is at most this.
        max_steps: The largest number of steps.
        damping: The fraction of each step that is applied; chosen by the schedule when None.
    """

    tol: float
    max_steps: int
    damping: float | None = None


class Step(NamedTuple):
    """The result of one step.

    Attributes:
        size: How far it would have moved the belief without damping.
        applied: The fraction of the step that was applied.
        undo: The number of steps that are undone: this one if it made the belief worse, or this one and the one before
            it if that one did.
        done: Whether this is the last step.
    """

    size: float
    applied: float
    undo: int = 0
    done: bool = False


@dataclass
class History:
    """All steps so far.

    Attributes:
        steps: The steps.
        stage_start: The number of steps before the current stage.
        first_damping: The damping of the first step of the current stage.
        revocable: Whether the step before the current one can be undone.
        interrupted: Whether Ctrl-C ended the loop.
    """

    steps: list[Step] = field(default_factory=list)
    stage_start: int = 0
    first_damping: float = 1.0
    revocable: bool = False
    interrupted: bool = False

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def sizes(self) -> list[float]:
        """The size of each step."""
        return [step.size for step in self.steps]

    @property
    def accepted(self) -> list[float]:
        """The sizes of the steps that were not undone at once."""
        return [step.size for step in self.steps if not step.undo]

    @property
    def of_stage(self) -> list[float]:
        """The sizes of the steps of the current stage that were not undone at once."""
        return [step.size for step in self.steps[self.stage_start :] if not step.undo]

    def shrinks_over(self, count: int) -> bool:
        """Whether the last step is clearly smaller than those before it, among the last ``count`` of this stage."""
        sizes = self.of_stage
        if len(sizes) <= count:
            return True
        return sizes[-1] <= 0.7 * sizes[-1 - count] or sizes[-1] <= 0.5 * min(sizes[-count:])

    def steps_since_progress(self) -> int:
        """The number of accepted steps since the smallest size decreased by a tenth."""
        best, since = np.inf, 0
        for size in self.accepted:
            since = 0 if size < 0.9 * best else since + 1
            best = min(best, size)
        return since


class Schedule(ABC, Generic[Problem, Current]):
    """Defines a step. A schedule is a frozen class without state.

    Everything that the steps change is in ``Current``, also the values that a schedule needs between steps. ``Current``
    is consistent between steps.
    """

    def stages(self, problem: Problem) -> Sequence["Schedule[Problem, Current]"]:
        """The schedules that are run one after the other: the next starts when the one before it makes no progress."""
        return [self]

    def init(self, problem: Problem, current: Current) -> None:
        """Makes the first pass over the rows."""
        return None

    @abstractmethod
    def step(self, problem: Problem, current: Current, damping: float, history: History) -> Step:
        """Makes one step."""

    def finish(self, problem: Problem, current: Current, history: History) -> None:
        """Computes the results that need the final belief, such as the evidence."""
        return None

    def max_steps(self, problem: Problem, limits: Limits) -> int:
        """The largest number of steps."""
        return limits.max_steps

    def first_damping(self, problem: Problem) -> float:
        """The damping of the first step, unless the user has set it."""
        return 1.0

    def next_damping(self, history: History, damping: float) -> float:
        """The damping of the next step, unless the user has set it."""
        return damping

    def stuck(self, history: History) -> bool:
        """Whether the next stage should take over."""
        return False

    def save(self, current: Current) -> object:
        """Copies what a step changes, so that it can be undone. Schedules that never undo a step return None."""
        return None

    def restore(self, current: Current, saved: Any) -> None:
        """Undoes steps: restores a copy that ``save`` has made."""
        raise NotImplementedError

    def recover(self, problem: Problem, current: Current) -> None:
        """Makes ``current`` consistent after an interruption in the middle of a step."""
        return None


class Progress:
    """A progress bar that counts visits of rows, if it is shown.

    Args:
        show: Whether it is shown.
        unit: The unit of the size of a step.
    """

    def __init__(self, show: bool, unit: str = "sd") -> None:
        self.bar: Any = None
        self.unit = unit
        if show:
            from tqdm.auto import tqdm

            self.bar = tqdm(unit="row", unit_scale=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def rows(self, count: int) -> None:
        """Notes that ``count`` more rows have been visited."""
        if self.bar is not None:
            self.bar.update(count)

    def sweep(self, number: int, step: float) -> None:
        """Notes the end of a sweep."""
        if self.bar is not None:
            self.bar.set_postfix_str(f"sweep {number}, step {step:.2g} {self.unit}")


def iterate(
    schedule: Schedule[Problem, Current],
    problem: Problem,
    current: Current,
    limits: Limits,
    progress: Progress,
    stacklevel: int = 4,
) -> History:
    """Runs a schedule's stages until one of them is done, no steps are left, or Ctrl-C is pressed.

    When it is interrupted, it warns, and ``current`` has the results so far.
    """
    history, stage = History(), schedule
    try:
        schedule.init(problem, current)
        for stage in schedule.stages(problem):
            if _run_stage(stage, problem, current, limits, progress, history):
                break
    except KeyboardInterrupt:
        warnings.warn(f"Interrupted after {len(history)} sweeps; the belief so far is returned.", stacklevel=stacklevel)
        history.interrupted = True
        stage.recover(problem, current)
    stage.finish(problem, current, history)
    return history


def _run_stage(
    stage: Schedule[Problem, Current],
    problem: Problem,
    current: Current,
    limits: Limits,
    progress: Progress,
    history: History,
) -> bool:
    """Makes steps until the stage is done. Returns False if it is stuck and the next stage may do better."""
    history.stage_start = len(history)
    damping = history.first_damping = limits.damping or stage.first_damping(problem)
    before_last: object = None
    while len(history) < stage.max_steps(problem, limits):
        saved = stage.save(current)
        history.revocable = before_last is not None and limits.damping is None
        step = stage.step(problem, current, damping, history)
        if step.undo:
            stage.restore(current, saved if step.undo == 1 else before_last)
        before_last = None if step.undo else saved
        history.steps.append(step)
        progress.sweep(len(history), step.size)
        if step.done:
            return True
        if limits.damping is None:
            damping = stage.next_damping(history, damping)
        if stage.stuck(history):
            return False
    return True
