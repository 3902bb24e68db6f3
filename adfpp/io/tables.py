"""Data files as model arguments, a batch of rows at a time: CSV, Parquet, npz, and CSV on standard input.

A *mapping* says which columns make which argument::

    mapping   =  item , item , …              y=label,x=age+income,g=city:code
    item      =  argument = columns [: kind]
    columns   =  column                       a vector (n,)
              |  column + column + …          a matrix (n, k); "age+" is one column as a matrix (n, 1)
              |  *                            a matrix of all numeric columns that no other item names
    kind      =  number | int | code          number where it is left out

A name that holds one of ``, + = : * "`` is put in double quotes. ``number`` gives floats, with NaN where a cell is
empty; ``int`` whole numbers, for labels and indices; ``code`` the place 0, 1, … of the cell's text in a fixed list of
categories.
"""

import csv
import difflib
import itertools
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

KINDS = ("number", "int", "code")
SUFFIXES = (".csv", ".tsv", ".parquet", ".npz")
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none"))
_TRUTH = {"true": 1.0, "false": 0.0}
_LOOK = 1000  # rows of a file that show which of its columns are numbers
_BYTES = 1 << 16  # read at once
_TOKEN = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([,+=:*])|([^,+=:*"]+))')


class TableError(ValueError):
    """A data file or a mapping that cannot be used. The message names the file, the place, the cause and the cure."""


class _RowError(TableError):
    """One bad row of a batch, counted from the batch's first."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True)
class Assignment:
    """One item of a mapping.

    Attributes:
        argument: The model's argument.
        columns: The columns it is made of; empty for ``*``.
        matrix: Whether it is a matrix, as opposed to a vector.
        kind: "number", "int" or "code"; None where it is left out.
    """

    argument: str
    columns: tuple[str, ...]
    matrix: bool
    kind: str | None = None

    def __str__(self) -> str:
        """As it is written in a mapping."""
        columns = "+".join(_quoted(c) for c in self.columns) if self.columns else "*"
        columns += "+" if self.matrix and len(self.columns) == 1 else ""
        return f"{_quoted(self.argument)}={columns}" + (f":{self.kind}" if self.kind else "")


class Batch(NamedTuple):
    """Some rows of a table, untouched.

    Attributes:
        columns: Each column's cells: text (a list), or an array.
        start: Number of the first row, from 0.
        lines: Line of each row in the file, where it has lines.
    """

    columns: dict[str, Any]
    start: int
    lines: Sequence[int] | None = None


class Table(Protocol):
    """A file of named columns, read from its beginning as often as asked."""

    name: str
    live: bool

    @property
    def columns(self) -> list[str]:
        """The columns' names."""
        ...

    def look(self) -> dict[str, Any]:
        """The first cells of each column, left where they are."""
        ...

    def batches(self, size: int, wanted: Sequence[str] | None = None) -> Iterator[Batch]:
        """The rows in order, ``size`` at a time; the last batch may be shorter."""
        ...


# ------------------------------------------------------------------------------------------------- mapping


def parse_mapping(text: str) -> tuple[Assignment, ...]:
    """Reads a mapping, as written on a command line."""
    tokens = _tokens(text)
    items, at = [], 0

    def take(what: str) -> str:
        nonlocal at
        kind, value = tokens[at] if at < len(tokens) else ("end", "the end")
        if kind != "name":
            raise _malformed(
                text, f"a {what} is missing before {value!r}" if kind == "mark" else f"a {what} is missing"
            )
        at += 1
        return value

    def mark(one: str) -> bool:
        nonlocal at
        if at < len(tokens) and tokens[at] == ("mark", one):
            at += 1
            return True
        return False

    while True:
        argument = take("argument's name")
        if not mark("="):
            raise _malformed(text, f"{argument!r} is not followed by =")
        columns, matrix = [], False
        if mark("*"):
            matrix = True
        else:
            columns.append(take("column's name"))
            while mark("+"):
                matrix = True
                if at < len(tokens) and tokens[at][0] == "name":
                    columns.append(take("column's name"))
        kind = take("kind") if mark(":") else None
        if kind is not None and kind not in KINDS:
            raise TableError(f"{argument}: the kind {kind!r} is not known; the kinds are {', '.join(KINDS)}.")
        if argument in [i.argument for i in items]:
            raise TableError(f"The mapping names the argument {argument!r} twice: {text}.")
        items.append(Assignment(argument, tuple(columns), matrix, kind))
        if at == len(tokens):
            break
        if not mark(","):
            raise _malformed(text, f"{tokens[at][1]!r} is where a comma should be")
    if sum(not i.columns for i in items) > 1:
        raise TableError(f"Only one argument can have all the other columns: {text} has several *.")
    return tuple(items)


def format_mapping(mapping: Sequence[Assignment]) -> str:
    """The text of a mapping."""
    return ",".join(map(str, mapping))


def matching_names(table: Table, required: Sequence[str], optional: Sequence[str]) -> tuple[Assignment, ...]:
    """The mapping where none is given: columns called like an argument, and all the others to the one that is left.

    Args:
        table: The file.
        required: The model's arguments that have to be given.
        optional: Those that have a default.
    """
    found = [Assignment(n, (n,), False) for n in (*required, *optional) if n in table.columns]
    left = [n for n in required if n not in table.columns]
    if len(left) == 1:
        found.append(Assignment(left[0], (), True))
    elif left or not found:
        raise TableError(
            f"{table.name}: which columns make the arguments {', '.join(left or optional)}? Say so with --rows, for "
            f"example --rows {(left or [*optional])[0]}={table.columns[0]}. The columns are {_listed(table.columns)}."
        )
    return tuple(found)


def resolve(mapping: Sequence[Assignment], table: Table) -> tuple[Assignment, ...]:
    """The mapping with ``*`` spelt out, after checking that every column is there."""
    for item in mapping:
        for column in item.columns:
            if column not in table.columns:
                near = difflib.get_close_matches(column, table.columns, 1, 0.5)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise TableError(
                    f"{table.name} has no column {column!r}.{hint} Its columns are {_listed(table.columns)}."
                )
    named = {c for item in mapping for c in item.columns}
    out = []
    for item in mapping:
        if not item.columns:
            others = _numeric(table, [c for c in table.columns if c not in named])
            if not others:
                raise TableError(f"{table.name}: no numeric column is left for {item.argument}=*.")
            item = replace(item, columns=tuple(others))
        out.append(item)
    return tuple(out)


def _tokens(text: str) -> list[tuple[str, str]]:
    out, at = [], 0
    end = len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise _malformed(text, "a double quote is not closed")
        quoted, mark, name = found.groups()
        if mark:
            out.append(("mark", mark))
        elif quoted is not None:
            out.append(("name", quoted.replace('""', '"')))
        elif name.strip():
            out.append(("name", name.strip()))
        at = found.end()
    return out


def _malformed(text: str, cause: str) -> TableError:
    return TableError(
        f"Cannot read the mapping {text!r}: {cause}. It is written like y=label,x=age+income,g=city:code."
    )


def _quoted(name: str) -> str:
    if re.search(r'[,+=:*"]', name) or name != name.strip():
        return '"' + name.replace('"', '""') + '"'
    return name


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _numeric(table: Table, candidates: Sequence[str]) -> list[str]:
    """The columns that hold numbers, as far as the first rows show (of standard input, the first row)."""
    first = table.look()
    out = []
    for column in candidates:
        try:
            values = _numbers(first[column])
        except ValueError:
            continue
        if values.ndim == 1:
            out.append(column)
    return out


# --------------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Rows:
    """A table read as model arguments.

    Attributes:
        table: The file.
        mapping: With ``*`` spelt out.
        categories: For each column of the kind "code", its categories in order.
    """

    table: Table
    mapping: tuple[Assignment, ...]
    categories: Mapping[str, Sequence[str]]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that carry rows."""
        return tuple(item.argument for item in self.mapping)

    def count(self, argument: str) -> int | None:
        """How many categories the argument's columns have between them at most; None where it has none."""
        item = next((i for i in self.mapping if i.argument == argument and i.kind == "code"), None)
        return None if item is None else max(len(self.categories[c]) for c in item.columns)

    def batches(self, size: int, skip: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """Rows as ``{argument: array}``, ``size`` at a time; the last batch may be shorter.

        A bad row raises ``TableError``; of standard input, which cannot be read again, the rows before it come first.

        Args:
            size: Rows in a batch.
            skip: Rows at the beginning to leave out.
        """
        wanted = list(dict.fromkeys(c for item in self.mapping for c in item.columns))
        for batch in _skipped(self.table.batches(size, wanted), skip, size):
            try:
                out = self._arguments(batch)
            except _RowError as error:
                if self.table.live:
                    yield from self._before(batch, error.row)
                raise
            yield out

    def _before(self, batch: Batch, row: int) -> Iterator[dict[str, np.ndarray]]:
        """The rows of a batch before a bad one."""
        while row:
            try:
                yield self._arguments(_part(batch, 0, row))
                return
            except _RowError as earlier:
                row = earlier.row

    def _arguments(self, batch: Batch) -> dict[str, np.ndarray]:
        out: dict[str, np.ndarray] = {}
        bad: np.ndarray | None = None
        for item in self.mapping:
            parts = []
            for column in item.columns:
                values, missing = self._converted(batch, item, column)
                parts.append(values)
                if missing is not None and missing.any():
                    bad = missing if bad is None else bad | missing
            out[item.argument] = np.stack(parts, 1) if item.matrix and parts[0].ndim == 1 else self._only(item, parts)
        if bad is not None:
            _blank(out, bad, self._where(batch, int(np.argmax(bad))))
        return out

    def _only(self, item: Assignment, parts: list[np.ndarray]) -> np.ndarray:
        if len(parts) > 1:
            raise TableError(
                f"{self.table.name}: {item} joins arrays that have columns of their own; give one of them."
            )
        return parts[0]

    def _converted(self, batch: Batch, item: Assignment, column: str) -> tuple[np.ndarray, np.ndarray | None]:
        """A column's values, and where a value that floats cannot stand for is missing."""
        cells = batch.columns[column]
        if item.kind == "code":
            return self._codes(batch, cells, column)
        typed = isinstance(cells, np.ndarray) and cells.dtype.kind in "iub"
        if item.kind is None and typed and isinstance(self.table, Npz):
            return cells, None
        try:
            numbers = _numbers(cells)
        except ValueError:
            row = next((i for i in range(len(cells)) if not _is_number(cells[i])), 0)
            raise _RowError(
                f"{self._where(batch, row)}, column {column!r}: {str(cells[row])!r} is not a number. Mend the "
                f"cell, leave it empty, or take the column as categories with {item.argument}={column}:code.",
                row,
            ) from None
        if item.kind != "int":
            return numbers, None
        if typed:
            return np.asarray(cells, np.int64), None
        missing: np.ndarray = np.asarray(np.isnan(numbers))
        wrong = ~missing & ((numbers != np.floor(numbers)) | (np.abs(numbers) > 2.0**53))
        if wrong.any():
            row = int(np.argmax(np.any(wrong.reshape(len(wrong), -1), 1)))
            raise _RowError(f"{self._where(batch, row)}, column {column!r}: {cells[row]} is not a whole number.", row)
        empty = np.any(missing.reshape(len(missing), -1), 1)
        return np.where(missing, 0, numbers).astype(np.int64), np.asarray(empty)

    def _codes(self, batch: Batch, cells: Any, column: str) -> tuple[np.ndarray, np.ndarray]:
        places = {text: i for i, text in enumerate(self.categories[column])}
        texts = _texts(cells)
        codes = np.array([places.get(t or "", -1) for t in texts], np.int64)
        missing = np.array([t is None for t in texts], bool)
        unknown = (codes < 0) & ~missing
        if unknown.any():
            row = int(np.argmax(unknown))
            raise _RowError(
                f"{self._where(batch, row)}, column {column!r}: {texts[row]!r} is not one of its {len(places)} "
                f"categories ({_listed(list(places))}), which are fixed when a stream begins. Begin with "
                f"a list that has room for it: --categories {_quoted(column)}={','.join([*list(places)[:2], '…'])}.",
                row,
            )
        return np.where(missing, 0, codes), missing

    def _where(self, batch: Batch, row: int) -> str:
        line = "" if batch.lines is None else f" (line {batch.lines[row]})"
        return f"{self.table.name}, row {batch.start + row + 1}{line}"


def read_rows(
    table: Table,
    mapping: Sequence[Assignment],
    categories: Mapping[str, Sequence[str]] | None = None,
) -> Rows:
    """A table as model arguments; categories that are not given are learned in a pass through the file.

    Args:
        table: The file.
        mapping: Which columns make which argument.
        categories: For columns of the kind "code", their categories in order.
    """
    mapping = resolve(mapping, table)
    coded = list(dict.fromkeys(c for item in mapping if item.kind == "code" for c in item.columns))
    known = {c: list(v) for c, v in (categories or {}).items()}
    for column in known:
        if column not in coded:
            raise TableError(f"--categories names {column!r}, which the mapping does not take as :code.")
    missing = [c for c in coded if c not in known]
    if missing:
        if table.live:
            raise TableError(
                f"Standard input can be read only once, so the categories of {missing[0]!r} must be given: "
                f"--categories {_quoted(missing[0])}=first,second,…"
            )
        known |= _learned(table, missing)
    return Rows(table, mapping, known)


def _learned(table: Table, columns: Sequence[str]) -> dict[str, list[str]]:
    """The distinct texts of some columns, in order: of numbers where all are, else of the alphabet."""
    seen: dict[str, set[str]] = {c: set() for c in columns}
    for batch in table.batches(8192, columns):
        for column in columns:
            seen[column].update(t for t in _texts(batch.columns[column]) if t is not None)
    out = {}
    for column, texts in seen.items():
        if not texts:
            raise TableError(f"{table.name}: column {column!r} is empty, so it has no categories.")
        numbers = all(_is_number(t) for t in texts)
        out[column] = sorted(texts, key=lambda t: (float(t), t)) if numbers else sorted(texts)
    return out


def _blank(arguments: dict[str, np.ndarray], bad: np.ndarray, where: str) -> None:
    """Makes rows that lack a whole number or a category NaN, which the engine refuses and counts."""
    real = [name for name, a in arguments.items() if a.dtype.kind == "f"]
    if not real:
        raise TableError(
            f"{where} has an empty cell, and none of the arguments holds real numbers, in which it could be marked as "
            "missing. Drop the row."
        )
    for name in real:
        arguments[name][bad] = np.nan


def _numbers(cells: Any) -> np.ndarray:
    """Cells as floats, NaN where empty; ``ValueError`` where one is not a number."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiub":
        return np.array(cells, np.float32 if cells.dtype == np.float32 else float)
    if isinstance(cells, np.ndarray) and cells.dtype.kind not in "OUT":
        raise ValueError(cells.dtype)
    try:
        return np.array(cells, float) if len(cells) else np.zeros(0)
    except (ValueError, TypeError):
        return np.array([_number(c) for c in cells], float)


def _number(cell: Any) -> float:
    if cell is None:
        return float("nan")
    if isinstance(cell, str):
        text = cell.strip().lower()
        return float("nan") if text in _MISSING else _TRUTH[text] if text in _TRUTH else float(text)
    if isinstance(cell, int | float | np.number | np.bool_):
        return float(cell)
    try:
        return float(cell)
    except TypeError as error:
        raise ValueError(str(cell)) from error


def _is_number(cell: Any) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def _texts(cells: Any) -> list[str | None]:
    """Cells as the text of categories, None where empty."""
    if isinstance(cells, np.ndarray):
        cells = cells.tolist()
    out: list[str | None] = []
    for cell in cells:
        text = "" if cell is None else str(cell).strip()
        out.append(None if text.lower() in _MISSING else text)
    return out


def _part(batch: Batch, start: int, stop: int) -> Batch:
    columns = {name: cells[start:stop] for name, cells in batch.columns.items()}
    return Batch(columns, batch.start + start, None if batch.lines is None else batch.lines[start:stop])


def _skipped(batches: Iterable[Batch], skip: int, size: int) -> Iterator[Batch]:
    """Batches of ``size`` counted from row ``skip``, whatever size they come in."""
    waiting: list[Batch] = []
    held, coming = 0, iter(batches)
    while True:
        try:
            batch = next(coming, None)
        except TableError:
            if waiting:
                yield _joined(waiting)
            raise
        if batch is None:
            break
        length = len(next(iter(batch.columns.values())))
        if batch.start + length <= skip:
            continue
        if batch.start < skip:
            batch = _part(batch, skip - batch.start, length)
            length = len(next(iter(batch.columns.values())))
        if not waiting and length == size:
            yield batch
            continue
        waiting.append(batch)
        held += length
        if held >= size:
            whole = _joined(waiting)
            yield _part(whole, 0, size)
            waiting, held = ([_part(whole, size, held)], held - size) if held > size else ([], 0)
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    columns: dict[str, Any] = {}
    for name, first in batches[0].columns.items():
        parts = [b.columns[name] for b in batches]
        columns[name] = np.concatenate(parts) if isinstance(first, np.ndarray) else [c for p in parts for c in p]
    lines = None if batches[0].lines is None else [n for b in batches for n in b.lines or ()]
    return Batch(columns, batches[0].start, lines)


# -------------------------------------------------------------------------------------------------- files


def open_table(path: str | Path) -> Table:
    """The table in a file, by its suffix."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise TableError(f"{path}: the suffix {suffix!r} is not known; data files end in {', '.join(SUFFIXES)}.")
    if not path.is_file():
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*")], 1, 0.6)
        hint = f" Did you mean {path.parent / near[0]}?" if near else ""
        raise TableError(f"There is no file {path}.{hint}")
    if suffix == ".parquet":
        return Parquet(path)
    if suffix == ".npz":
        return Npz(path)
    return Csv(str(path), lambda: path.open("rb"), delimiter="\t" if suffix == ".tsv" else ",")


class Csv:
    """Comma-separated text with a header. Rows are parsed as they are asked for; a blank line is no row.

    Args:
        name: For messages.
        open_file: Opens the bytes from the beginning.
        delimiter: Between cells.
        live: Whether the bytes can be read only once, as those of standard input.
        header: Column names where the text may go on without: its first line is then a row, unless it names them.
    """

    def __init__(
        self,
        name: str,
        open_file: Callable[[], Any],
        delimiter: str = ",",
        live: bool = False,
        header: Sequence[str] | None = None,
    ) -> None:
        self.name, self.delimiter, self.live = name, delimiter, live
        self._open, self._given = open_file, None if header is None else list(header)
        self._header: list[str] | None = None
        self._reading: Iterator[tuple[list[str], int]] | None = None  # of live text, which goes on where it stands
        self._ahead: list[tuple[list[str], int]] = []
        self._count = 0

    @property
    def columns(self) -> list[str]:
        """The columns' names: the first line."""
        if self._header is None:
            if self.live:
                self._reading = self._lines(self._open())
                self._header = self._first(self._reading)
            else:
                with self._open() as file:
                    self._header = self._first(self._lines(file))
        return self._header

    def batches(self, size: int, wanted: Sequence[str] | None = None) -> Iterator[Batch]:
        """The rows in order; of live text, those that have not been taken yet."""
        columns = self.columns
        wanted = columns if wanted is None else wanted
        places = {c: columns.index(c) for c in wanted}
        if not self.live:
            with self._open() as file:
                lines = self._lines(file)
                self._first(lines)
                yield from self._grouped(lines, size, places, 0)
            return
        yield from self._grouped(self._rest(), size, places, self._count)

    def look(self) -> dict[str, Any]:
        """The first cells of each column: of live text, of the one row that comes next."""
        columns = self.columns
        if not self.live:
            first = next(self.batches(_LOOK), None)
            return {c: [] for c in columns} if first is None else first.columns
        if not self._ahead:
            self._ahead += itertools.islice(self._reading or (), 1)
        row = self._ahead[0] if self._ahead else ([], 0)
        return {c: row[0][i : i + 1] for i, c in enumerate(columns)}

    def _rest(self) -> Iterator[tuple[list[str], int]]:
        """Live text from where it stands."""
        assert self._reading is not None
        while self._ahead:
            yield self._ahead.pop(0)
        # not "yield from", which would end the reading where no other batch is asked for
        while (row := next(self._reading, None)) is not None:
            yield row

    def _grouped(
        self, lines: Iterator[tuple[list[str], int]], size: int, places: Mapping[str, int], start: int
    ) -> Iterator[Batch]:
        width, cells, numbers = len(self.columns), [], []

        def made() -> Batch:
            nonlocal start
            batch = Batch({c: [row[i] for row in cells] for c, i in places.items()}, start, list(numbers))
            start += len(cells)
            self._count = start
            cells.clear()
            numbers.clear()
            return batch

        try:
            for row, line in lines:
                if len(row) != width:
                    raise TableError(
                        f"{self.name}, row {start + len(cells) + 1} (line {line}) has {len(row)} cells; the header has "
                        f"{width}. Mend the line: a cell that holds a comma is put in double quotes."
                    )
                cells.append(row)
                numbers.append(line)
                if len(cells) == size:
                    yield made()
        except TableError:
            if self.live and cells:
                yield made()
            raise
        if cells:
            yield made()

    def _first(self, lines: Iterator[tuple[list[str], int]]) -> list[str]:
        """Takes the header off."""
        first = next(lines, None)
        if first is None:
            if self._given is not None:
                return self._given
            raise TableError(f"{self.name} is empty: the first line must hold the columns' names.")
        names = [cell.strip() for cell in first[0]]
        if self._given is not None and not set(self._given) <= set(names):
            self._ahead.append(first)
            return self._given
        if all(_is_number(n) for n in names):
            shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
            raise TableError(f"{self.name} has no header: its first line is {shown}. Put the columns' names there.")
        doubled = [n for n in names if names.count(n) > 1]
        if doubled:
            raise TableError(f"{self.name}: the header names the column {doubled[0]!r} twice. Rename one of them.")
        return names

    def _lines(self, file: Any) -> Iterator[tuple[list[str], int]]:
        """Cells of each line that is not blank, and its number."""
        reader = csv.reader(_decoded(file, self.name), delimiter=self.delimiter, strict=True)
        while True:
            try:
                row = next(reader, None)
            except csv.Error as error:
                if getattr(file, "stopped", False):
                    return
                raise TableError(f"{self.name}, line {reader.line_num}: {error}.") from None
            if row is None:
                return
            if row:
                yield row, reader.line_num


def _decoded(file: Any, name: str) -> Iterator[str]:
    """Lines of text, read a few bytes at a time; a line is given out as soon as it is there."""
    rest, first = b"", True
    read = getattr(file, "read1", file.read)
    while True:
        block = read(_BYTES)
        if not block:
            break
        if first and block.startswith(b"\xef\xbb\xbf"):
            block = block[3:]
        first = False
        *whole, rest = (rest + block).split(b"\n") if b"\n" in block else [rest + block]
        for line in whole:
            yield _text(line, name) + "\n"
    # where reading was stopped, as opposed to the end of the text, the last line is not whole
    if rest and not getattr(file, "stopped", False):
        yield _text(rest, name) + "\n"


def _text(line: bytes, name: str) -> str:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        raise TableError(f"{name} is not text in UTF-8: {line[:40]!r}. Save it as UTF-8.") from None


class Parquet:
    """A Parquet file, read a batch at a time; needs pyarrow."""

    live = False

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError:
            raise TableError(
                f"{path}: Parquet files are read by pyarrow, which is not installed: pip install 'adfpp[parquet]'."
            ) from None
        self.name = str(path)
        self._path = path
        self._open: Any = parquet.ParquetFile
        try:
            with self._open(path) as file:
                self._columns = [str(n) for n in file.schema_arrow.names]
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise TableError(f"{path} is not a Parquet file, or is cut short: {error}") from None

    @property
    def columns(self) -> list[str]:
        """The columns' names."""
        return self._columns

    def look(self) -> dict[str, Any]:
        """The first cells of each column."""
        first = next(self.batches(_LOOK), None)
        return {c: [] for c in self._columns} if first is None else first.columns

    def batches(self, size: int, wanted: Sequence[str] | None = None) -> Iterator[Batch]:
        """The rows in order."""
        start = 0
        with self._open(self._path) as file:
            for part in file.iter_batches(size, columns=list(wanted or self._columns)):
                if part.num_rows:
                    columns = {n: _from_arrow(part.column(i)) for i, n in enumerate(part.schema.names)}
                    yield Batch(columns, start)
                    start += part.num_rows


def _from_arrow(column: Any) -> np.ndarray:
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_integer(column.type) and column.null_count:
        return np.array(column.to_pylist(), object)
    return column.to_numpy(zero_copy_only=False)


class Npz:
    """Arrays of a NumPy archive by name, rows along the leading axis; held in memory."""

    live = False

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._arrays: dict[str, np.ndarray] = {}
        try:
            archive = np.load(path, allow_pickle=False)
            self._columns = list(archive.files)
            for name in self._columns:
                self._arrays[name] = archive[name]
        except ValueError as error:
            objects = "Object arrays" in str(error)
            cure = (
                "it holds Python objects, which are never loaded; save numbers and strings" if objects else str(error)
            )
            raise TableError(f"{path} cannot be read: {cure}.") from None
        except (OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
            raise TableError(f"{path} is not an npz archive, or is cut short: {error}.") from None

    @property
    def columns(self) -> list[str]:
        """The arrays' names."""
        return self._columns

    def look(self) -> dict[str, Any]:
        """The first entries of each array."""
        return {n: a[:_LOOK] if a.ndim else a for n, a in self._arrays.items()}

    def batches(self, size: int, wanted: Sequence[str] | None = None) -> Iterator[Batch]:
        """The rows in order."""
        chosen = {n: self._arrays[n] for n in wanted or self._columns}
        flat = [n for n, a in chosen.items() if a.ndim == 0]
        if flat:
            raise TableError(f"{self.name}: array {flat[0]!r} is a single number. Give it as --set {flat[0]}=….")
        lengths = {n: len(a) for n, a in chosen.items()}
        if len(set(lengths.values())) > 1:
            raise TableError(f"{self.name}: the arrays differ in length: {lengths}.")
        for start in range(0, next(iter(lengths.values()), 0), size):
            yield Batch({n: a[start : start + size] for n, a in chosen.items()}, start)
