"""Converts rows of a table to arguments of a model: arrays of numbers, whole numbers and codes of categories."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adfpp.io.cells import is_number, number, numbers, texts
from adfpp.io.mapping import Assignment, listed, quoted, resolve
from adfpp.io.tables import Batch, Column, Table, TableError, regrouped

_SCAN = 8192  # rows at a time when a file is read for its categories


class _RowError(TableError):
    """An error in one row of a batch; ``row`` is its position in the batch."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True)
class Rows:
    """A table that is read as arguments of a model.

    Attributes:
        table: The table.
        mapping: Which columns make which argument, with the columns that ``*`` stands for.
        categories: For each column of the kind "code", its categories in order.
    """

    table: Table
    mapping: tuple[Assignment, ...]
    categories: Mapping[str, Sequence[str]]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that carry rows."""
        return tuple(item.argument for item in self.mapping)

    def category_count(self, argument: str) -> int | None:
        """The number of categories of an argument (the largest of its columns); None if it does not have codes."""
        item = next((i for i in self.mapping if i.argument == argument and i.kind == "code"), None)
        return None if item is None else max(len(self.categories[c]) for c in item.columns)

    def batches(self, size: int, skip: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """Rows as ``{argument: array}``, ``size`` at a time; the last batch may be shorter.

        A bad row raises ``TableError``. The rows of standard input cannot be read again, so the rows before the bad one
        are returned first.

        Args:
            size: Rows in a batch.
            skip: Number of rows at the beginning to leave out.
        """
        wanted = list(dict.fromkeys(c for item in self.mapping for c in item.columns))
        live = self.table.live
        for batch in regrouped(self.table.batches(size, wanted, set(self.categories)), size, skip, live):
            try:
                out = self._arguments(batch)
            except _RowError as error:
                if live:
                    yield from self._before(batch, error.row)
                raise
            yield out

    def _before(self, batch: Batch, row: int) -> Iterator[dict[str, np.ndarray]]:
        """The rows of a batch before a bad row. Another column may have an earlier bad row."""
        while row:
            try:
                yield self._arguments(batch.part(0, row))
                return
            except _RowError as earlier:
                row = earlier.row

    def _arguments(self, batch: Batch) -> dict[str, np.ndarray]:
        out: dict[str, np.ndarray] = {}
        incomplete = np.zeros(len(batch), bool)
        for item in self.mapping:
            parts = []
            for column in item.columns:
                values, missing = self._converted(batch, item, column)
                parts.append(values)
                if missing is not None:
                    incomplete |= missing
            if item.matrix and parts[0].ndim == 1:
                out[item.argument] = np.stack(parts, 1)
            elif len(parts) == 1:
                out[item.argument] = parts[0]
            else:
                raise TableError(
                    f"{self.table.name}: {item} joins arrays that already have several columns; give one of them."
                )
        if incomplete.any():
            _mark_missing(out, incomplete, self._place(batch, int(np.argmax(incomplete))))
        return out

    def _converted(self, batch: Batch, item: Assignment, column: str) -> tuple[np.ndarray, np.ndarray | None]:
        """The values of a column, and for types without NaN which rows have a missing value (None for floats)."""
        cells = batch.columns[column]
        if item.kind == "code":
            return self._codes(batch, cells, column)
        whole = isinstance(cells, np.ndarray) and cells.dtype.kind in "iub"
        if item.kind is None and whole and self.table.typed:
            return np.asarray(cells), None
        try:
            values = numbers(cells)
        except ValueError:
            row = next((i for i in range(len(cells)) if not is_number(cells[i])), 0)
            raise _RowError(
                f"{self._place(batch, row)}, column {column!r}: {str(cells[row])!r} is not a number. Correct the "
                f"cell, leave it empty, or read the column as categories with {item.argument}={column}:code.",
                row,
            ) from None
        if item.kind != "int":
            return values, None
        if whole:
            return np.asarray(cells, np.int64), None
        missing: np.ndarray = np.asarray(np.isnan(values))
        # floats cannot represent all whole numbers above 2**53
        wrong = ~missing & ((values != np.floor(values)) | (np.abs(values) > 2.0**53))
        if wrong.any():
            row = int(np.argmax(_any_of_row(wrong)))
            raise _RowError(f"{self._place(batch, row)}, column {column!r}: {cells[row]} is not a whole number.", row)
        return np.where(missing, 0, values).astype(np.int64), _any_of_row(missing)

    def _codes(self, batch: Batch, cells: Column, column: str) -> tuple[np.ndarray, np.ndarray]:
        places = {text: i for i, text in enumerate(self.categories[column])}
        spelt = texts(cells)
        codes = np.array([places.get(t or "", -1) for t in spelt], np.int64)
        missing = np.array([t is None for t in spelt], bool)
        unknown = (codes < 0) & ~missing
        if unknown.any():
            row = int(np.argmax(unknown))
            raise _RowError(
                f"{self._place(batch, row)}, column {column!r}: {spelt[row]!r} is not one of its {len(places)} "
                f"categories ({listed(list(places))}), which are fixed when a stream starts. Start with a list "
                f"that contains it: --categories {quoted(column)}={','.join([*list(places)[:2], '…'])}.",
                row,
            )
        return np.where(missing, 0, codes), missing

    def _place(self, batch: Batch, row: int) -> str:
        line = "" if batch.lines is None else f" (line {batch.lines[row]})"
        return f"{self.table.name}, row {batch.start + row + 1}{line}"


def read_rows(
    table: Table,
    mapping: Sequence[Assignment],
    categories: Mapping[str, Sequence[str]] | None = None,
) -> Rows:
    """Prepares a table as model arguments. Categories that are not given are collected in a pass through the file.

    Args:
        table: The table.
        mapping: Which columns make which argument.
        categories: For columns of the kind "code", their categories in order.
    """
    mapping = resolve(mapping, table)
    coded = list(dict.fromkeys(c for item in mapping if item.kind == "code" for c in item.columns))
    known = {c: list(v) for c, v in (categories or {}).items()}
    for column in known:
        if column not in coded:
            raise TableError(f"--categories names {column!r}, which the mapping does not read as :code.")
    missing = [c for c in coded if c not in known]
    if missing:
        if table.live:
            raise TableError(
                f"Standard input can be read only once, so the categories of {missing[0]!r} must be given: "
                f"--categories {quoted(missing[0])}=first,second,…"
            )
        known |= _collected(table, missing)
    return Rows(table, mapping, known)


def _collected(table: Table, columns: Sequence[str]) -> dict[str, list[str]]:
    """The distinct texts of some columns, in numerical order if all are numbers, else in alphabetical order."""
    seen: dict[str, set[str]] = {c: set() for c in columns}
    for batch in table.batches(_SCAN, columns, columns):
        for column in columns:
            seen[column].update(t for t in texts(batch.columns[column]) if t is not None)
    out = {}
    for column, words in seen.items():
        if not words:
            raise TableError(f"{table.name}: column {column!r} is empty, so it has no categories.")
        numeric = all(is_number(w) for w in words)
        out[column] = sorted(words, key=lambda w: (number(w), w)) if numeric else sorted(words)
    return out


def _any_of_row(marked: np.ndarray) -> np.ndarray:
    """Which rows have a marked element, ``(n,)``."""
    return np.asarray(np.any(marked.reshape(len(marked), -1), 1))


def _mark_missing(arguments: dict[str, np.ndarray], incomplete: np.ndarray, place: str) -> None:
    """Sets the real numbers of incomplete rows to NaN, so that the engine refuses and counts these rows."""
    real = [name for name, a in arguments.items() if a.dtype.kind == "f"]
    if not real:
        raise TableError(
            f"{place} has an empty cell, and none of the arguments holds real numbers, in which it could be marked as "
            "missing. Drop the row."
        )
    for name in real:
        arguments[name][incomplete] = np.nan
