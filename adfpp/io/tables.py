"""What a table is: named columns, whose rows are read from the beginning, one batch after the other.

A new file format is a class with the methods of ``Table``, and a suffix in ``files.open_table``. ``regrouped`` cuts the
batches that a format finds convenient into those that were asked for, so that a format need not care.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

LOOK = 1000  # rows at the beginning of a file that show which of its columns hold numbers

Column: TypeAlias = list[str] | np.ndarray
"""The cells of a column: their text, or an array of what a typed file holds."""


class TableError(ValueError):
    """A data file or a mapping that cannot be used. The message names the file, the place, the cause and the cure."""


@dataclass(frozen=True)
class Batch:
    """Some consecutive rows of a table.

    Attributes:
        columns: The cells of each column.
        start: The number of the first row, from 0.
        lines: The line of each row in the file, for formats that have lines.
    """

    columns: dict[str, Column]
    start: int
    lines: Sequence[int] | None = None

    def __len__(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def part(self, start: int, stop: int) -> "Batch":
        """The rows from ``start`` to ``stop``, counted within the batch."""
        columns = {name: cells[start:stop] for name, cells in self.columns.items()}
        return Batch(columns, self.start + start, None if self.lines is None else self.lines[start:stop])


class Table(Protocol):
    """Named columns, read from the beginning as often as asked.

    Attributes:
        name: The name of the file, for messages.
        live: Whether the rows can be read only once, as those of standard input.
        typed: Whether the columns are arrays of the user's own, which keep their dtype where no kind is given.
    """

    name: str
    live: bool
    typed: bool

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        ...

    def look(self) -> dict[str, Column]:
        """The first cells of each column. Reading starts at the same row afterwards, also for a live table."""
        ...

    def batches(self, size: int, wanted: Sequence[str] | None = None, text: Collection[str] = ()) -> Iterator[Batch]:
        """The rows in order, in batches of whatever lengths suit the format.

        Args:
            size: How many rows will be used at a time: a live table gives them as soon as it has so many.
            wanted: The columns that are needed; None for all.
            text: Those of them whose text is needed; the others hold numbers.
        """
        ...


def regrouped(batches: Iterable[Batch], size: int, skip: int, live: bool) -> Iterator[Batch]:
    """Batches of ``size`` rows, counted from row ``skip``, whatever the lengths of the given ones; the last is shorter.

    Args:
        batches: The batches of a table.
        size: How many rows a batch shall have.
        skip: How many rows at the beginning are left out.
        live: Whether rows that do not make a whole batch are given out before an error. Those of a file are not, so
            that the mended file is cut into the same batches as if it had never had the error.
    """
    waiting: list[Batch] = []
    count, incoming = 0, iter(batches)
    while True:
        try:
            batch = next(incoming, None)
        except TableError:
            if waiting and live:
                yield _joined(waiting)
            raise
        if batch is None:
            break
        if batch.start < skip:
            batch = batch.part(min(skip - batch.start, len(batch)), len(batch))
        if not len(batch):
            continue
        waiting.append(batch)
        count += len(batch)
        if count < size:
            continue
        whole, start = _joined(waiting), 0
        while count - start >= size:
            yield whole.part(start, start + size)
            start += size
        waiting = [whole.part(start, count)] if start < count else []
        count -= start
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    columns = {name: _concatenated([b.columns[name] for b in batches]) for name in batches[0].columns}
    lines = None if batches[0].lines is None else [n for b in batches for n in b.lines or ()]
    return Batch(columns, batches[0].start, lines)


def _concatenated(parts: Sequence[Column]) -> Column:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    # a column of numbers may be an array in one batch and text in the next, where a cell is spelt in an unusual way
    return [cell for part in parts for cell in part]
