"""The one loop: steps until nothing moves, with damping, steps taken back, progress, Ctrl-C, and a history.

A ``Schedule`` says what one step is and what is done before the first and after the last. EP's schedules and smoothing
are schedules of this loop; no other module has a loop of its own.
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
        tol: The size of an undamped step below which the belief counts as settled.
        max_steps: Steps at most.
        damping: The fraction of each step that is applied; found by the schedule when None.
    """

    tol: float
    max_steps: int
    damping: float | None = None


class Step(NamedTuple):
    """One step.

    Attributes:
        size: How far it would have moved the belief, undamped.
        applied: The fraction of it that was applied.
        rejected: Whether the step before it turned out to lead away, so that both are taken back.
        done: Whether this is the last step.
    """

    size: float
    applied: float
    rejected: bool = False
    done: bool = False


@dataclass
class History:
    """All steps so far.

    Attributes:
        steps: The steps.
        revocable: Whether the step before the one under way can be taken back.
        interrupted: Whether Ctrl-C ended the loop.
    """

    steps: list[Step] = field(default_factory=list)
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
        """The sizes of the steps that were not taken back at once."""
        return [step.size for step in self.steps if not step.rejected]

    def shrinks_over(self, count: int) -> bool:
        """Whether the last step is clearly smaller than those before it, looking back over so many steps."""
        sizes = self.sizes
        if len(sizes) <= count:
            return True
        return sizes[-1] <= 0.7 * sizes[-1 - count] or sizes[-1] <= 0.5 * min(sizes[-count:])

    def steps_since_progress(self) -> int:
        """Accepted steps since the smallest one became smaller by a tenth."""
        best, since = np.inf, 0
        for size in self.accepted:
            since = 0 if size < 0.9 * best else since + 1
            best = min(best, size)
        return since


class Schedule(ABC, Generic[Problem, Current]):
    """What a step is. A schedule is a frozen class without state; what it remembers between steps is in ``Current``.

    ``Current`` is what the steps change. It is consistent whenever no step is under way.
    """

    def stages(self, problem: Problem) -> Sequence["Schedule[Problem, Current]"]:
        """The schedules that are run one after the other, each when the one before it makes no progress."""
        return [self]

    def init(self, problem: Problem, current: Current) -> None:
        """Makes the first pass over the rows."""
        return None

    @abstractmethod
    def step(self, problem: Problem, current: Current, damping: float, history: History) -> Step:
        """Makes one step."""

    def finish(self, problem: Problem, current: Current, history: History) -> None:
        """Computes what is known only at the end."""
        return None

    def max_steps(self, problem: Problem, limits: Limits) -> int:
        """Steps at most."""
        return limits.max_steps

    def first_damping(self, problem: Problem) -> float:
        """The damping of the first step, unless the user asks for another."""
        return 1.0

    def next_damping(self, history: History, damping: float) -> float:
        """The damping of the next step, unless the user asks for another."""
        return damping

    def stuck(self, history: History) -> bool:
        """Whether the next stage should take over."""
        return False

    def save(self, current: Current) -> Any:
        """A copy of what a step changes, for steps that may be taken back; None where none is."""
        return None

    def restore(self, current: Current, saved: Any) -> None:
        """Takes steps back."""
        raise NotImplementedError

    def recover(self, problem: Problem, current: Current) -> None:
        """Makes what was reached consistent after an interruption in the middle of a step."""
        return None


class Progress:
    """A progress bar over visits of rows, if one is shown."""

    def __init__(self, show: bool) -> None:
        self.bar: Any = None
        if show:
            from tqdm.auto import tqdm

            self.bar = tqdm(unit="row", unit_scale=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.close()

    def rows(self, count: int) -> None:
        """So many rows have been visited."""
        if self.bar is not None:
            self.bar.update(count)

    def sweep(self, number: int, step: float) -> None:
        """A sweep has ended."""
        if self.bar is not None:
            self.bar.set_postfix_str(f"sweep {number}, step {step:.2g} sd")


def iterate(
    schedule: Schedule[Problem, Current],
    problem: Problem,
    current: Current,
    limits: Limits,
    progress: Progress,
    stacklevel: int = 4,
) -> History:
    """Runs a schedule's stages until one of them is done, no steps are left, or Ctrl-C is pressed.

    Interrupted, it warns, and ``current`` is what was reached.
    """
    history, stage = History(), schedule
    try:
        schedule.init(problem, current)
        for stage in schedule.stages(problem):
            if _run_stage(stage, problem, current, limits, progress, history):
                break
    except KeyboardInterrupt:
        warnings.warn(
            f"Interrupted after {len(history)} sweeps; the belief reached is returned.", stacklevel=stacklevel
        )
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
    """Steps until the stage is done; False where it is stuck and another may do better."""
    damping = limits.damping or stage.first_damping(problem)
    before_last: Any = None
    while len(history) < stage.max_steps(problem, limits):
        saved = stage.save(current)
        history.revocable = before_last is not None and limits.damping is None
        step = stage.step(problem, current, damping, history)
        if step.rejected:
            stage.restore(current, before_last)
        before_last = None if step.rejected else saved
        history.steps.append(step)
        progress.sweep(len(history), step.size)
        if step.done:
            return True
        if limits.damping is None:
            damping = stage.next_damping(history, damping)
        if stage.stuck(history):
            return False
    return True
