"""Defines a table: named columns, whose rows are read from the beginning, one batch after the other.

A new file format is a class with the methods of ``Table``, and a suffix in ``files.open_table``. A format may return
batches of any convenient length; ``regrouped`` cuts them into batches of the length that is needed.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

LOOK = 1000  # rows at the beginning of a file that show which of its columns hold numbers

Column: TypeAlias = list[str] | np.ndarray
"""The cells of a column: their text, or an array of the values in a typed file."""


class TableError(ValueError):
    """A data file or a mapping that cannot be used. The message names the file, the place, the cause and the remedy."""


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
    """Named columns, which can be read from the beginning several times, unless the table is live.

    Attributes:
        name: The name of the file, for messages.
        live: Whether the rows can be read only once, as those of standard input.
        typed: Whether the columns are the user's arrays, which keep their dtype if no kind is given.
    """

    name: str
    live: bool
    typed: bool

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        ...

    def look(self) -> dict[str, Column]:
        """The first cells of each column. Afterwards reading starts at the same row, also for a live table."""
        ...

    def batches(self, size: int, wanted: Sequence[str] | None = None, text: Collection[str] = ()) -> Iterator[Batch]:
        """The rows in order, in batches of any lengths that suit the format.

        Args:
            size: The number of rows that will be used at a time; a live table returns them as soon as it has so many.
            wanted: The columns that are needed; None for all.
            text: The needed columns whose text is used; the others contain numbers.
        """
        ...


def regrouped(batches: Iterable[Batch], size: int, skip: int, live: bool) -> Iterator[Batch]:
    """Cuts batches of any lengths into batches of ``size`` rows, from row ``skip`` on; the last may be shorter.

    Args:
        batches: The batches of a table.
        size: The number of rows in a batch.
        skip: The number of rows at the beginning to leave out.
        live: Whether rows that do not make a complete batch are returned before an error. Those of a file are not, so
            that the corrected file is cut into the same batches as if it had never had the error.
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
    # a column of numbers may be an array in one batch, and text in a batch with a cell in an unusual spelling
    return [cell for part in parts for cell in part]
