"""Measures the seconds of a run, with those of compilation counted separately."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import jax
import numpy as np

T = TypeVar("T")

REPEAT_FOR = 1.0  # seconds spent on repeating a run that has been compiled; 0 for a single repetition
_REPETITIONS = 5  # at most; the fastest of five is repeatable to a few per cent


@dataclass
class Clock:
    """Seconds of some work, with those of compilation counted separately.

    Attributes:
        wall: All seconds, by the wall clock.
        spans: Begin and end of every step of tracing, lowering or compiling.
    """

    wall: float = 0.0
    spans: list[tuple[float, float]] = field(default_factory=list)

    @property
    def compiling(self) -> float:
        """Seconds in which something was traced, lowered or compiled; nested spans count once."""
        total, reached = 0.0, -np.inf
        for start, stop in sorted(self.spans):
            total += max(0.0, stop - max(start, reached))
            reached = max(reached, stop)
        return min(total, self.wall)

    @property
    def running(self) -> float:
        """Seconds without compilation."""
        return self.wall - self.compiling


@contextmanager
def clock() -> Iterator[Clock]:
    """Measures the seconds of the ``with`` block."""
    out = Clock()

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if "/compile/" in event:
            now = time.perf_counter()
            out.spans.append((now - duration_secs, now))

    jax.monitoring.register_event_duration_secs_listener(listen)
    begin = time.perf_counter()
    try:
        yield out
    finally:
        out.wall = time.perf_counter() - begin
        jax.monitoring.unregister_event_duration_listener(listen)


class Seconds(NamedTuple):
    """Seconds of one run.

    Attributes:
        compile_seconds: Seconds to trace and compile.
        run_seconds: Seconds of the run itself; for MCMC of warm-up and sampling.
        sampling_seconds: Seconds of MCMC's sampling alone; for other methods the same as ``run_seconds``.
    """

    compile_seconds: float = np.nan
    run_seconds: float = np.nan
    sampling_seconds: float = np.nan


def timed(run: Callable[[], T], again: Callable[[], object]) -> tuple[T, Seconds]:
    """Times a function that is run twice or more: the first run compiles, the fastest of the others does not.

    Args:
        run: The function; its result is returned.
        again: The same function without warnings, which the first run has already given.
    """
    begin = time.perf_counter()
    result = run()
    first = time.perf_counter() - begin
    taken: list[float] = []
    while not taken or (sum(taken) < REPEAT_FOR and len(taken) < _REPETITIONS):
        begin = time.perf_counter()
        again()
        taken.append(time.perf_counter() - begin)
    fastest = min(taken)
    return result, Seconds(max(0.0, first - fastest), fastest, fastest)
