"""Parts of a run over a stream: its chunks, its log, its progress bar and its interruption."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jax.typing import ArrayLike

from adfpp.engine.status import RowInfo, Status, is_refused

DataArray: TypeAlias = np.ndarray | jax.Array  # an argument of a model, or a part of it


class ADFTotals(NamedTuple):
    """The info of a run, as totals over all rows.

    Attributes:
        log_z: Sum of the log predictive densities: the log evidence of the rows absorbed.
        counts: ``(len(Status),)`` number of rows with each ``Status`` code.
        error: The largest estimated error.
    """

    log_z: np.ndarray
    counts: np.ndarray
    error: np.ndarray


class Trajectory(NamedTuple):
    """The belief after some of the rows of a run.

    Attributes:
        rows: ``(T,)`` number of rows absorbed or refused so far.
        mean: ``(T, N)`` mean of the flat unconstrained θ.
        sd: ``(T, N)`` marginal standard deviations of θ.
        log_z: ``(T,)`` sum of the log predictive densities since the step before.
        status: ``(T,)`` the worst ``Status`` code since the step before.
    """

    rows: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    log_z: np.ndarray
    status: np.ndarray


class Recorder:
    """Records the belief after every ``every`` rows, and what happened to the rows in between."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.steps: list[tuple[int, np.ndarray, np.ndarray, float, int]] = []
        self.log_z, self.status = 0.0, 0

    def add(self, now: RowInfo, stop: int, total: int, moments: Callable[[], tuple[ArrayLike, ArrayLike]]) -> None:
        """Adds the info of a chunk, and at the end of a step the mean and the sds of the belief."""
        self.log_z += float(np.sum(now.log_z, dtype=float))
        self.status = max(self.status, int(np.max(now.status)))
        if stop % self.every == 0 or stop == total:
            mean, sd = moments()
            self.steps.append((stop, np.asarray(mean), np.asarray(sd), self.log_z, self.status))
            self.log_z, self.status = 0.0, 0

    def trajectory(self, size: int) -> Trajectory:
        """All steps so far, as arrays."""
        if not self.steps:
            return Trajectory(np.zeros(0, int), np.zeros((0, size)), np.zeros((0, size)), np.zeros(0), np.zeros(0, int))
        rows, mean, sd, log_z, status = zip(*self.steps, strict=True)
        return Trajectory(np.array(rows), np.stack(mean), np.stack(sd), np.array(log_z), np.array(status))


class RowsMarked(UserWarning):
    """Some rows of a run were refused or absorbed inaccurately."""


class PriorRefused(RowsMarked):
    """The prior of some latents, which depends on other latents, could not be used."""


class NotConverged(UserWarning):
    """A run of EP or of smoothing ended before it had converged."""


class Log:
    """Collects the info of the rows of a run: of all rows, of some rows, or totals."""

    def __init__(self, keep: str | int, total: int, order: np.ndarray | None) -> None:
        self.keep, self.total, self.order, self.seen = keep, total, order, 0
        self.parts: list[RowInfo] = []
        self.log_z, self.error = 0.0, 0.0
        self.counts = np.zeros(len(Status), int)

    def add(self, now: RowInfo, start: int) -> None:
        """Adds the info of a chunk, whose first row has the number ``start``."""
        self.seen = start + len(now.status)
        self.log_z += float(np.sum(now.log_z, dtype=float))
        self.error = max(self.error, float(np.max(now.error)))
        self.counts += np.bincount(now.status, minlength=len(Status))
        if self.keep == "all":
            self.parts.append(now)
        elif isinstance(self.keep, int):
            self.parts.append(RowInfo(*(a[-start % self.keep :: self.keep] for a in now)))

    def info(self, seen: int) -> RowInfo | ADFTotals:
        """The info for the user, in the order of the data if all rows were visited."""
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
        """Gives one warning for the whole run, with counts and advice."""
        warn_of_rows(self.counts, stacklevel=4)


def warn_of_rows(counts: np.ndarray, stacklevel: int) -> None:
    """Warns about rows that were refused or absorbed inaccurately; ``counts`` has their numbers by ``Status`` code."""
    bad = [(s, int(counts[s])) for s in Status if s.warned and counts[s]]
    if bad:
        words = "; ".join(f"{c} {s.name} ({s.advice})" for s, c in bad)
        rows = f"{sum(c for _, c in bad)} of {int(counts.sum())} rows"
        warnings.warn(f"{rows}: {words}.", RowsMarked, stacklevel=stacklevel)


class Interrupted(Exception):
    """A run was interrupted by Ctrl-C."""


@contextlib.contextmanager
def interruptible(reached: int, total: int) -> Iterator[None]:
    """Turns Ctrl-C inside of it into a warning and ``Interrupted``."""
    try:
        yield
    except KeyboardInterrupt:
        warnings.warn(
            f"Interrupted after {reached} of {total} rows; the state after these rows is returned.", stacklevel=4
        )
        raise Interrupted from None


@contextlib.contextmanager
def progress(total: int, show: bool, score: str = "log score {:.3f}") -> Iterator[Callable[[int, Log], None]]:
    """Gives a function ``bar(rows, log)`` that moves a progress bar, or does nothing.

    Args:
        total: Number of rows.
        show: Whether to show a bar.
        score: The format of the mean log predictive density over the rows that were not refused.
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
    """Gives a function that shows which part of a long run begins, on a progress bar with one step for each part."""
    if not show:
        yield lambda name: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, unit=unit) as bar:
        started: list[str] = []

        def announce(name: str) -> None:
            bar.update(len(started[-1:]))
            bar.set_description(name)
            started.append(name)

        yield announce
        bar.update(len(started[-1:]))


def stretches(total: int, chunk: int, every: int | None) -> Iterator[tuple[int, int]]:
    """Start and stop of chunks of at most ``chunk`` rows, such that a chunk ends after every ``every`` rows."""
    every = every or total
    for begin in range(0, total, every):
        end = min(begin + every, total)
        for start in range(begin, end, chunk):
            yield start, min(start + chunk, end)


def padded(a: DataArray, length: int) -> Any:
    """Rows padded with zeros to ``length`` rows; unchanged if they are as many."""
    if a.shape[0] == length:
        return a
    a = np.asarray(a)
    out = np.zeros((length, *a.shape[1:]), a.dtype)
    out[: len(a)] = a
    return out


_CHUNK_BYTES = 1 << 26  # 64 MB of rows in one chunk, a small part of the memory


def suitable_chunk(rows: Sequence[DataArray], total: int) -> int:
    """The number of rows in a chunk: a power of two that takes at most 64 MB and is no longer than the stream."""
    row_bytes = sum(max(1, int(np.prod(a.shape[1:]))) * a.dtype.itemsize for a in rows)
    largest = max(1, min(8192, _CHUNK_BYTES // max(1, row_bytes)))
    return min(1 << (largest.bit_length() - 1), 1 << (total - 1).bit_length())


def warn_of_priors(statuses: Mapping[str, int], stacklevel: int) -> None:
    """Warns about latents whose prior factors were refused.

    Args:
        statuses: ``{latent: Status code}``.
        stacklevel: As that of ``warnings.warn``.
    """
    refused = refused_priors(statuses)
    if refused:
        words = ", ".join(f"{name!r} ({Status(statuses[name]).name})" for name in refused)
        warnings.warn(
            f"The prior of {words} depends on several latents, and its integral could not be computed. The belief has "
            "at most a first approximation of it, so that the latents in it, such as scales of groups, are not learned "
            "from it. See explain for the size of its field; give the rule more points, "
            "moments=adfpp.MonteCarlo(...), or run NUTS.",
            PriorRefused,
            stacklevel=stacklevel + 1,
        )


def refused_priors(statuses: Mapping[str, int]) -> tuple[str, ...]:
    """The latents whose prior factors were refused, from ``{latent: Status code}``."""
    return tuple(name for name, status in statuses.items() if is_refused(status))
