"""A run over a stream: its chunks, its log, its progress bar and its interruption."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from adfpp.engine.status import RowInfo, Status


class ADFTotals(NamedTuple):
    """The info of a run reduced to totals.

    Attributes:
        log_z: Sum of the log predictive densities: the log evidence of the rows absorbed.
        counts: Rows by ``Status`` code, ``(len(Status),)``.
        error: The largest estimated error.
    """

    log_z: np.ndarray
    counts: np.ndarray
    error: np.ndarray


class Trajectory(NamedTuple):
    """The belief along a run, as it was after some of its rows.

    Attributes:
        rows: ``(T,)`` rows of the run seen so far, in the order in which they were folded.
        mean: ``(T, N)`` mean of the flat unconstrained θ.
        sd: ``(T, N)`` its marginal sds.
        log_z: ``(T,)`` sum of the log predictive densities since the step before.
        status: ``(T,)`` the worst ``Status`` code since the step before.
    """

    rows: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    log_z: np.ndarray
    status: np.ndarray


class Recorder:
    """Keeps the belief after every so many rows, and what became of the rows in between."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.steps: list[tuple[int, np.ndarray, np.ndarray, float, int]] = []
        self.log_z, self.status = 0.0, 0

    def add(self, now: RowInfo, stop: int, total: int, moments: Callable[[], tuple[Any, Any]]) -> None:
        """Takes in a chunk's info, and at a step's end the belief's mean and sds."""
        self.log_z += float(np.sum(now.log_z, dtype=float))
        self.status = max(self.status, int(np.max(now.status)))
        if stop % self.every == 0 or stop == total:
            mean, sd = moments()
            self.steps.append((stop, np.asarray(mean), np.asarray(sd), self.log_z, self.status))
            self.log_z, self.status = 0.0, 0

    def trajectory(self, size: int) -> Trajectory:
        """All steps so far."""
        if not self.steps:
            return Trajectory(np.zeros(0, int), np.zeros((0, size)), np.zeros((0, size)), np.zeros(0), np.zeros(0, int))
        rows, mean, sd, log_z, status = zip(*self.steps, strict=True)
        return Trajectory(np.array(rows), np.stack(mean), np.stack(sd), np.array(log_z), np.array(status))


class RowsMarked(UserWarning):
    """Some rows of a run were refused or absorbed inaccurately."""


class NotConverged(UserWarning):
    """A run of EP ended before its sites had settled."""


class Log:
    """What a run keeps of its rows' info: all of it, some of it, or totals."""

    def __init__(self, keep: str | int, total: int, order: np.ndarray | None) -> None:
        self.keep, self.total, self.order, self.seen = keep, total, order, 0
        self.parts: list[RowInfo] = []
        self.log_z, self.error = 0.0, 0.0
        self.counts = np.zeros(len(Status), int)

    def add(self, now: RowInfo, start: int) -> None:
        """Takes in a chunk's info, whose first row is the ``start``-th."""
        self.seen = start + len(now.status)
        self.log_z += float(np.sum(now.log_z, dtype=float))
        self.error = max(self.error, float(np.max(now.error)))
        self.counts += np.bincount(now.status, minlength=len(Status))
        if self.keep == "all":
            self.parts.append(now)
        elif isinstance(self.keep, int):
            self.parts.append(RowInfo(*(a[-start % self.keep :: self.keep] for a in now)))

    def info(self, seen: int) -> Any:
        """What the user gets, in the order of the data where all rows were seen."""
        if self.keep == "totals":
            return ADFTotals(np.asarray(self.log_z), self.counts, np.asarray(self.error))
        if not self.parts:
            return RowInfo(np.zeros(0), np.zeros(0, np.int32), np.zeros(0))
        joined = RowInfo(*(np.concatenate(p) for p in zip(*self.parts, strict=True)))
        if self.keep == "all" and self.order is not None and seen == self.total:
            back = np.argsort(self.order)
            joined = RowInfo(*(a[back] for a in joined))
        return joined

    def warn(self) -> None:
        """One warning a run, with counts and advice."""
        warn_of_rows(self.counts, stacklevel=4)


def warn_of_rows(counts: np.ndarray, stacklevel: int) -> None:
    """Warns about rows that were refused or absorbed inaccurately; ``counts`` are of rows by ``Status`` code."""
    bad = [(s, int(counts[s])) for s in Status if s.warned and counts[s]]
    if bad:
        words = "; ".join(f"{c} {s.name} ({s.advice})" for s, c in bad)
        rows = f"{sum(c for _, c in bad)} of {int(counts.sum())} rows"
        warnings.warn(f"{rows}: {words}.", RowsMarked, stacklevel=stacklevel)


class Interrupted(Exception):
    """Ctrl-C inside a run."""


@contextlib.contextmanager
def interruptible(reached: int, total: int) -> Iterator[None]:
    """Turns Ctrl-C inside into a warning and ``Interrupted``."""
    try:
        yield
    except KeyboardInterrupt:
        warnings.warn(f"Interrupted after {reached} of {total} rows; the state reached is returned.", stacklevel=4)
        raise Interrupted from None


@contextlib.contextmanager
def progress(total: int, show: bool, score: str = "log score {:.3f}") -> Iterator[Callable[[int, Log], None]]:
    """A function ``bar(rows, log)`` that moves a progress bar, or does nothing.

    Args:
        total: Rows.
        show: Whether there is a bar.
        score: What to say of the mean of what the log sums, over the rows that were not refused.
    """
    if not show:
        yield lambda rows, log: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, unit="row", unit_scale=True) as bar:

        def move(rows: int, log: Log) -> None:
            refused = int(log.counts[Status.NOT_FINITE :].sum())
            note = score.format(log.log_z / max(1, log.seen - refused))
            bar.set_postfix_str(note + (f", {refused} refused" if refused else ""), refresh=False)
            bar.update(rows)

        yield move


@contextlib.contextmanager
def announced(total: int, unit: str, show: bool) -> Iterator[Callable[[str], None]]:
    """A function that says which of some long parts begins, on a progress bar with a step a part."""
    if not show:
        yield lambda name: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, unit=unit) as bar:
        begun: list[str] = []

        def say(name: str) -> None:
            bar.update(len(begun[-1:]))
            bar.set_description(name)
            begun.append(name)

        yield say
        bar.update(len(begun[-1:]))


def stretches(total: int, chunk: int, every: int | None) -> Iterator[tuple[int, int]]:
    """Where chunks of at most ``chunk`` rows start and stop, such that every ``every``-th row ends one."""
    every = every or total
    for begin in range(0, total, every):
        end = min(begin + every, total)
        for start in range(begin, end, chunk):
            yield start, min(start + chunk, end)


def padded(a: Any, length: int) -> Any:
    """Rows with zeros behind them, ``length`` in all; as they are where there are as many."""
    if a.shape[0] == length:
        return a
    a = np.asarray(a)
    out = np.zeros((length, *a.shape[1:]), a.dtype)
    out[: len(a)] = a
    return out


_CHUNK_BYTES = 1 << 26


def suitable_chunk(rows: Sequence[Any], total: int) -> int:
    """Rows a chunk: a power of two that fits the memory set aside and reaches no further than the stream."""
    row_bytes = sum(max(1, int(np.prod(a.shape[1:]))) * a.dtype.itemsize for a in rows)
    largest = max(1, min(8192, _CHUNK_BYTES // max(1, row_bytes)))
    return min(1 << (largest.bit_length() - 1), 1 << (total - 1).bit_length())
