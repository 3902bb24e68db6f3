"""Comma-separated text with a header: files, and standard input as it arrives.

There are two readers, which give the same cells, rows and errors. Python's ``csv`` module reads standard input, where a
row must be available as soon as its line has arrived, and any unusual text. pyarrow reads the usual blocks of a file:
those without double quotes, with as many cells in each line as in the header, and with numbers that it can parse (it
rounds them correctly, so the bits are the same). It is several times as fast. It is not used for other blocks, because
it accepts quotes that are not closed, as in a line that is only half written, and its errors do not name the line.
(pandas is not used, because its fast reader pads lines that have too few cells without telling the user.)

Nothing here depends on pyarrow: without it, the ``csv`` module reads everything.
"""

import contextlib
import csv
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from adfpp.io.cells import is_number, spellings_of_missing
from adfpp.io.tables import LOOK, Batch, Column, TableError

BLOCK = 1 << 18  # bytes of a file that are read at once: large enough for pyarrow to be fast, small in memory
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PIECE = 1 << 16  # the largest number of bytes that are read at once to find the end of a line
_MISSING = spellings_of_missing()


class ByteSource(Protocol):
    """An open file of bytes. A file with the attribute ``stopped`` may end before its text is complete."""

    def read1(self, size: int, /) -> bytes:
        """Up to ``size`` bytes, at least one unless the end is reached."""
        ...

    def close(self) -> None:
        """Closes the file."""
        ...


_Row: TypeAlias = tuple[list[str], int]
"""The cells of a row, and the number of its (last) line, from 1."""


class Csv:
    """A table of comma-separated text. Blank lines are not rows.

    Args:
        name: The name of the file, for messages.
        open_file: Opens the bytes from the beginning.
        delimiter: The character that separates cells.
        live: Whether the bytes can be read only once, as those of standard input.
        header: The names of the columns, for text that may continue without them: the first line is then a row, unless
            it contains these names.
        block: How many bytes of a file are read at once.
    """

    typed = False

    def __init__(
        self,
        name: str,
        open_file: Callable[[], ByteSource],
        delimiter: str = ",",
        live: bool = False,
        header: Sequence[str] | None = None,
        block: int = BLOCK,
    ) -> None:
        self.name, self.delimiter, self.live, self.block = name, delimiter, live, block
        self._open, self._given = open_file, None if header is None else list(header)
        self._header: list[str] | None = None
        self._text: _Text | None = None  # of a live table: the text that has not been read yet
        self._ahead: list[_Row] = []  # of a live table: rows that ``look`` has read
        self._count = 0  # of a live table: number of rows that have been returned

    @property
    def columns(self) -> list[str]:
        """The names of the columns: the first line."""
        if self._header is None:
            if self.live:
                self._text = _Text(self._open(), self.name)
                self._header = self._take_header(self._text)
            else:
                with contextlib.closing(self._open()) as file:
                    self._header = self._take_header(_Text(file, self.name))
        return self._header

    def look(self) -> dict[str, Column]:
        """The first cells of each column as text; for a live table those of the next row only."""
        columns = self.columns
        if self.live:
            if not self._ahead and self._text is not None:
                self._ahead += itertools.islice(self._rows(self._text), 1)
            row = self._ahead[0][0] if self._ahead else []
            return {c: row[i : i + 1] for i, c in enumerate(columns)}
        with contextlib.closing(self._open()) as file:
            text = _Text(file, self.name)
            self._take_header(text)
            places = {c: i for i, c in enumerate(columns)}
            first = next(self._batched(self._rows(text), LOOK, places, 0), None)
        return {c: [] for c in columns} if first is None else first.columns

    def batches(self, size: int, wanted: Sequence[str] | None = None, text: Collection[str] = ()) -> Iterator[Batch]:
        """The rows in order; for a live table those that have not been taken yet."""
        columns = self.columns
        places = {c: columns.index(c) for c in (columns if wanted is None else wanted)}
        if self.live:
            for batch in self._batched(self._remaining(), size, places, self._count):
                self._count = batch.start + len(batch)
                yield batch
            return
        with contextlib.closing(self._open()) as file:
            content = _Text(file, self.name)
            self._take_header(content)
            yield from self._by_blocks(content, size, places, frozenset(text))

    def _by_blocks(
        self, content: "_Text", size: int, places: Mapping[str, int], text: Collection[str]
    ) -> Iterator[Batch]:
        """The rows of a file: each block is read by pyarrow if possible, else by the csv module."""
        start = 0
        while block := content.take_block(self.block):
            whole = self._parsed(block, content.line, places, text)
            if whole is not None:
                batches = iter((replace(whole, start=start),))
            else:
                end = content.line
                content.put_back(block)
                batches = self._batched(self._rows(content, end), size, places, start)
            for batch in batches:
                yield batch
                start += len(batch)

    def _parsed(self, block: bytes, end: int, places: Mapping[str, int], text: Collection[str]) -> Batch | None:
        """Reads a block whose last line is ``end`` by pyarrow; None if the csv module has to read it."""
        if b'"' in block or block.count(b"\r") != block.count(b"\r\n") or not _is_utf8(block):
            return None
        try:
            import pyarrow
            from pyarrow import csv as arrow
        except ModuleNotFoundError:
            return None
        reading = arrow.ReadOptions(use_threads=False, column_names=self.columns, block_size=len(block))
        converting = arrow.ConvertOptions(
            column_types={c: pyarrow.string() if c in text else pyarrow.float64() for c in places},
            include_columns=list(places),
            null_values=_MISSING,
            strings_can_be_null=False,
        )
        try:
            table = arrow.read_csv(
                pyarrow.BufferReader(block), reading, arrow.ParseOptions(delimiter=self.delimiter), converting
            )
        except pyarrow.ArrowException:
            return None
        lines = _row_lines(block, end)
        if len(lines) != table.num_rows:
            return None
        cells = {c: table.column(i) for i, c in enumerate(places)}
        return Batch({c: a.to_pylist() if c in text else a.to_numpy() for c, a in cells.items()}, 0, lines)

    def _remaining(self) -> Iterator[_Row]:
        """The rows of a live table that have not been taken yet."""
        while self._ahead:
            yield self._ahead.pop(0)
        if self._text is not None:
            yield from self._rows(self._text)

    def _batched(self, rows: Iterator[_Row], size: int, places: Mapping[str, int], start: int) -> Iterator[Batch]:
        """Batches of ``size`` rows of text, after checking that each row has as many cells as the header."""
        width = len(self.columns)
        waiting: list[list[str]] = []
        lines: list[int] = []

        def batch() -> Batch:
            columns: dict[str, Column] = {c: [cells[i] for cells in waiting] for c, i in places.items()}
            return Batch(columns, start, lines)

        try:
            for cells, line in rows:
                if len(cells) != width:
                    raise TableError(
                        f"{self.name}, row {start + len(waiting) + 1} (line {line}) has {len(cells)} cells; the header "
                        f"has {width}. Correct the line: put a cell that contains a comma in double quotes."
                    )
                waiting.append(cells)
                lines.append(line)
                if len(waiting) == size:
                    yield batch()
                    start += size
                    waiting, lines = [], []
        except TableError:
            if waiting:
                yield batch()
            raise
        if waiting:
            yield batch()

    def _take_header(self, content: "_Text") -> list[str]:
        """Reads the header, and checks the names of the columns."""
        first = next(self._rows(content), None)
        if first is None:
            if self._given is not None:
                return self._given
            raise TableError(f"{self.name} is empty: the first line must hold the names of the columns.")
        names = [cell.strip() for cell in first[0]]
        if self._given is not None and not set(self._given) <= set(names):
            self._ahead.append(first)
            return self._given
        if all(is_number(n) for n in names):
            shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
            raise TableError(
                f"{self.name} has no header: its first line is {shown}. Put the names of the columns there."
            )
        doubled = [n for n in names if names.count(n) > 1]
        if doubled:
            raise TableError(f"{self.name}: the header names the column {doubled[0]!r} twice. Rename one of them.")
        return names

    def _rows(self, content: "_Text", end: int | None = None) -> Iterator[_Row]:
        """Reads the lines that are not blank as rows by the csv module, up to line ``end`` if it is given.

        A cell in quotes may continue beyond that line. Nothing is lost if not all rows are taken, because the csv
        module takes the lines of one row at a time.
        """
        reader = csv.reader(content, delimiter=self.delimiter, strict=True)
        while end is None or content.line < end:
            try:
                cells = next(reader, None)
            except csv.Error as error:
                if content.stopped:
                    return
                raise TableError(f"{self.name}, line {content.line}: {error}.") from None
            if cells is None:
                return
            if cells:
                yield cells, content.line


class _Text:
    """Bytes as lines of text, or as blocks of whole lines.

    Attributes:
        line: The number of lines that have been taken.
    """

    def __init__(self, file: ByteSource, name: str) -> None:
        self.line = 0
        self._file, self._name = file, name
        self._bytes, self._at, self._ended = b"", 0, False  # the bytes from _at on have not been taken yet

    @property
    def stopped(self) -> bool:
        """Whether reading was stopped before the end of the text."""
        return bool(getattr(self._file, "stopped", False))

    def __iter__(self) -> Iterator[str]:
        """The remaining lines, each as soon as it is available. The iterator itself has no state."""
        while (end := self._line_end()) is not None:
            line, self._at = self._bytes[self._at : end], end + 1
            if self.line == 0:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            self.line += 1
            try:
                text = line.removesuffix(b"\r").decode()
            except UnicodeDecodeError:
                raise TableError(
                    f"{self._name}, line {self.line} is not text in UTF-8: {line[:40]!r}. Save the file as UTF-8."
                ) from None
            yield text + "\n"

    def _line_end(self) -> int | None:
        """Where the next line ends, after reading more bytes if necessary; None if there is no other line."""
        end = self._bytes.find(b"\n", self._at)
        while end < 0 and not self._ended:
            searched = len(self._bytes) - self._at
            self._read(_PIECE)
            end = self._bytes.find(b"\n", searched)
        if end >= 0:
            return end
        # if reading was stopped before the end of the text, the last line is not complete
        return None if self._at >= len(self._bytes) or self.stopped else len(self._bytes)

    def take_block(self, size: int) -> bytes:
        """Takes complete lines with line feeds: at most ``size`` bytes, but at least one line, except at the end."""
        while not self._ended and len(self._bytes) - self._at < size:
            self._read(size)
        end = self._bytes.rfind(b"\n", self._at, self._at + size) + 1
        if not end:  # a line that is longer than the block, or has no line feed
            end = self._line_end()
            if end is None:
                return b""
            end += 1
            self._bytes += b"\n" if end > len(self._bytes) else b""
        block, self._at = self._bytes[self._at : end], end
        self.line += block.count(b"\n")
        return block

    def put_back(self, block: bytes) -> None:
        """Undoes ``take_block``, provided that nothing has been taken since."""
        self._at -= len(block)
        self.line -= block.count(b"\n")

    def _read(self, size: int) -> None:
        """Reads up to ``size`` more bytes, and drops those that have been taken."""
        piece = self._file.read1(size)
        self._bytes, self._at = self._bytes[self._at :] + piece, 0
        self._ended = not piece


def _row_lines(block: bytes, end: int) -> Sequence[int]:
    """The numbers of the lines of a block that are not blank; the number of its last line is ``end``."""
    first = end - block.count(b"\n") + 1
    if not block.startswith((b"\n", b"\r\n")) and b"\n\n" not in block and b"\n\r\n" not in block:
        return range(first, end + 1)
    return [first + i for i, line in enumerate(block.split(b"\n")[:-1]) if line not in (b"", b"\r")]


def _is_utf8(block: bytes) -> bool:
    try:
        return block.isascii() or bool(block.decode())
    except UnicodeDecodeError:
        return False
