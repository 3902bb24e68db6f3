"""Comma-separated text: two readers that agree on everything, bounded memory, and standard input as it arrives."""

import io
import itertools
import re
import sys
from collections.abc import Iterator
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adfpp.io.csv_reader import BLOCK, Csv
from adfpp.io.mapping import format_mapping, parse_mapping
from adfpp.io.rows import Rows, read_rows
from adfpp.io.tables import TableError
from tests.io.tables import rows_of, standard_input, whole


def file_of(text: str | bytes, block: int = BLOCK) -> Csv:
    """A table that is read as a file is, ``block`` bytes at a time."""
    content = text.encode() if isinstance(text, str) else text
    return Csv("standard input", lambda: io.BytesIO(content), block=block)


@pytest.fixture
def arrow_reads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether pyarrow could read, for each block that it was given."""
    arrow: Any = pytest.importorskip("pyarrow.csv")
    read, reads = arrow.read_csv, []

    def counting(*args: Any) -> Any:
        reads.append(False)
        table = read(*args)
        reads[-1] = True
        return table

    monkeypatch.setattr(arrow, "read_csv", counting)
    return reads


# the two readers


def outcome(table: Csv, size: int) -> tuple[list[dict[str, Any]], str]:
    """Everything that can be seen of reading a table: the batches, and the error that ends them."""
    mapping = parse_mapping("y=y,x=x+y,g=c:code")
    batches, message = [], ""
    try:
        rows = read_rows(table, mapping, {"c": ["a", "b", "1", "true"]})
        for batch in rows.batches(size):
            batches.append({name: a.tobytes() for name, a in batch.items()})
    except TableError as error:
        message = str(error)
    return batches, message


def line_of(message: str) -> int:
    line = re.search(r"line (\d+)", message)
    assert line is not None, message
    return int(line[1])


CELLS = st.sampled_from(
    ["1", "-2.5", "1e-3", "a", "b", "", " ", "NA", "n/a", "NaN", "null", "true", "FALSE", " 7 ", "+3", "1_0", "inf"]
    + ["1e400", "old", '"1"', '"a', 'a"b', '"a""b"', '"1\n"', '"\r\n1"', "é", "\t2", "0.1", "9007199254740993"]
)
LINES = st.builds(
    lambda cells, end: ",".join(cells) + end,
    st.one_of(st.lists(CELLS, min_size=3, max_size=3), st.lists(CELLS, max_size=4)),
    st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "\r\n\r\n", "\n \n", "\r", ""]),
)


@example(["1,1,1\n", "1,1,1\n", "1,2,1\n", "1\n"], 23, 3)  # the whole batch before the error spans blocks
@given(st.lists(LINES, max_size=12), st.integers(1, 60), st.integers(1, 4))
def test_files_are_read_as_standard_input_is(lines: list[str], block: int, size: int):
    """The same cells to the same bits, and the same errors.

    A file keeps back the rows of a batch that has an error. Of two errors in one batch, it names a line with a wrong
    number of cells before a cell with a wrong text.
    """
    text = "y,x,c\n" + "".join(lines)
    batches, message = outcome(file_of(text, block), size)
    expected, expected_message = outcome(standard_input(text), size)
    assert batches == (expected[: len(batches)] if message else expected)
    assert sum(len(b["y"]) for b in expected[len(batches) :]) // 8 < size
    if message != expected_message:
        assert ", column " in expected_message and ", column " not in message
        assert line_of(expected_message) < line_of(message)
    with mock.patch.dict(sys.modules, {"pyarrow": None}):
        assert outcome(file_of(text, block), size) == (batches, message)


def test_floats_are_read_to_the_same_bits(arrow_reads: list[bool]):
    """Each spelling of a float gives the float that Python reads, also where it lies halfway between two floats."""
    rng = np.random.default_rng(3)
    values = rng.integers(0, 2**64, 3000, np.uint64).view(float)
    words = [f(float(v)) for v in values[np.isfinite(values)] for f in (repr, "{:.20g}".format, "{:.5e}".format)]
    with localcontext() as context:
        context.prec = 100
        for mantissa, exponent in zip(rng.integers(2**52, 2**53, 1000), rng.integers(-60, 60, 1000), strict=True):
            halfway = (2 * int(mantissa) + 1) * Decimal(2) ** int(exponent)
            words += [str(halfway), str(halfway.next_plus())]
    words += ["-0", "0.0", "5e-324", "2.4703282292062327e-324", "1.7976931348623159e308", "1e400", "inf", "-Infinity"]
    values = whole(read_rows(file_of("y\n" + "\n".join(words)), parse_mapping("y=y")), 1000)["y"]
    assert values.tobytes() == np.array([float(w) for w in words]).tobytes()
    assert arrow_reads and all(arrow_reads)


def text_of(rows: int, quote: str = "") -> str:
    """Numbers with and without fractions, missing cells and text."""
    rng = np.random.default_rng(4)
    cells = zip(rng.normal(size=rows).tolist(), rng.integers(0, 9, rows), rng.integers(0, 3, rows), strict=True)
    return "y,x,c\n" + "".join(f"{y!r},{'' if x == 0 else x},{quote}{'äbc'[c]}{quote}\n" for y, x, c in cells)


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_file_of_many_blocks_is_read_from_any_row(quote: str, arrow_reads: list[bool]):
    """The same bits from every row on, whatever the sizes of blocks and batches; pyarrow reads all but quotes."""
    text, mapping, categories = text_of(400, quote), parse_mapping("y=y,x=x,g=c:code"), {"c": ["ä", "b", "c"]}
    everything = whole(read_rows(standard_input(text), mapping, categories), 400)
    for block, size, skip in itertools.product((300, 5000), (7, 64, 1000), (0, 1, 63, 399)):
        rows = read_rows(file_of(text, block), mapping, categories)
        batches = list(rows.batches(size, skip))
        assert [len(b["y"]) for b in batches[:-1]] == [size] * (len(batches) - 1)
        for name, values in everything.items():
            assert np.concatenate([b[name] for b in batches]).tobytes() == values[skip:].tobytes()
    assert all(arrow_reads) and bool(arrow_reads) == (quote == "")


def test_one_unusual_cell_does_not_slow_down_the_rest(arrow_reads: list[bool]):
    """Blocks before and after the one that pyarrow cannot read are read by pyarrow, and all rows are there."""
    lines = [f"{i},{i}.5,a\n" for i in range(300)]
    lines[150] = "150,TRUE,a\n"
    values = whole(read_rows(file_of("y,x,c\n" + "".join(lines), 500), parse_mapping("y=y,x=x")), 64)
    assert np.array_equal(values["y"], np.arange(300))
    assert values["x"][150] == 1.0 and np.array_equal(np.delete(values["x"], 150) % 1, np.full(299, 0.5))
    assert arrow_reads.count(False) == 1 and arrow_reads[0] and arrow_reads[-1]


@pytest.mark.parametrize(
    ("half", "message"),
    [
        ("5", r"row 3 \(line 4\) has 1 cells"),
        ("5,6,", r"row 3 \(line 4\), column 'c': '' is not one|has an empty cell"),
        ('5,6,"Os', "line 4: unexpected end of data"),
    ],
)
def test_a_line_that_is_only_half_written_is_an_error(half: str, message: str):
    """Neither a short line nor an open quote passes for a row: pandas and pyarrow would let one of them pass."""
    text = "y,x,c\n1,2,Oslo\n3,4,Os\n"
    for size in (1, 10):
        rows = read_rows(file_of(text + half), parse_mapping("x=x:int,g=c:code"), {"c": ["Oslo", "Os"]})
        with pytest.raises(TableError, match=message):
            whole(rows, size)


@pytest.mark.parametrize("bad", ["5,6,7", "old,6"])
def test_whole_batches_before_a_bad_row_come_first(bad: str):
    """Of a file only whole batches, so that the mended file goes on with the same ones; of live text all rows."""
    text = "y,x\n" + "".join(f"{i},{i}\n" for i in range(7)) + bad + "\n8,8\n"
    for table, sizes in ((file_of(text), [3]), (standard_input(text), [3, 2])):
        batches = read_rows(table, parse_mapping("y=y,x=x")).batches(3, skip=2)
        seen = []
        with pytest.raises(TableError, match=r"row 8 \(line 9\)"):
            for batch in batches:
                seen.append(len(batch["y"]))
        assert seen == sizes


# text


def test_windows_files(tmp_path: Path):
    """A byte-order mark, carriage returns, quoted commas and line breaks."""
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfy,"x, m"\r\n1,"2"\r\n3,4\r\n')
    assert np.array_equal(whole(rows_of(tmp_path / "a.csv", 'y=y,x="x, m"'))["x"], [2, 4])
    (tmp_path / "b.csv").write_text('c,y\n"a\nb",1\nc,2\n')
    assert rows_of(tmp_path / "b.csv", "g=c:code").categories == {"c": ["a\nb", "c"]}


def test_lines_may_be_longer_than_a_block():
    long = "a" * 500
    rows = read_rows(file_of(f"y,c\n1,{long}\n2,b", 64), parse_mapping("y=y,g=c:code"))
    assert rows.categories == {"c": [long, "b"]} and np.array_equal(whole(rows)["g"], [0, 1])


class Endless(io.RawIOBase):
    """More rows than could ever be held; counts the bytes that are taken."""

    def __init__(self, quote: str) -> None:
        self.taken = 0
        self.lines: Iterator[bytes] = (
            b"y,x\n" if i == 0 else f"{i % 2},{quote}{i}.5{quote}\n".encode() for i in range(10**12)
        )

    def read1(self, size: int, /) -> bytes:
        block = b"".join(next(self.lines) for _ in range(size // 20))
        self.taken += len(block)
        return block


@pytest.mark.parametrize("quote", ["", '"'])
def test_memory_is_bounded(quote: str):
    """From a file without end, no more is read than the rows asked for and a block."""
    opened: list[Endless] = []

    def open_file() -> Endless:
        opened.append(Endless(quote))
        return opened[-1]

    rows = read_rows(Csv("endless", open_file, block=1 << 16), parse_mapping("y=y,x=*"), {})
    assert format_mapping(rows.mapping) == "y=y,x=x+"
    batches = rows.batches(1000)
    for k in range(20):
        assert next(batches)["x"][0, 0] == 1000 * k + 1.5
    assert opened[-1].taken < 20_000 * 12 + 2 * (1 << 16)
    assert sum(file.taken for file in opened[:-1]) < 4 * (1 << 16)


# standard input


class Drip(io.RawIOBase):
    """Bytes that arrive a few at a time, cutting lines anywhere."""

    def __init__(self, text: str, size: int) -> None:
        self.blocks = iter([text.encode()[i : i + size] for i in range(0, len(text.encode()), size)])
        self.given = 0

    def read1(self, size: int, /) -> bytes:
        self.given += 1
        return next(self.blocks, b"")


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_live_text_may_arrive_in_any_pieces(size: int):
    """Each row is there as soon as its line is, whatever the pieces."""
    text = "\N{BYTE ORDER MARK}y,c\n" + "".join(f"{i},{'äbc'[i % 3]}\n" for i in range(20))
    drip = Drip(text, size)
    table = Csv("standard input", lambda: drip, live=True)
    rows = read_rows(table, parse_mapping("y=y,g=c:code"), {"c": ["ä", "b", "c"]})
    batches = rows.batches(5)
    assert np.array_equal(next(batches)["y"], range(5))
    assert drip.given <= len("\N{BYTE ORDER MARK}y,c\n0,ä\n1,b\n2,c\n3,ä\n4,b\n".encode()) // size + 1
    rest = list(batches)
    assert np.array_equal(np.concatenate([b["g"] for b in rest]), np.arange(5, 20) % 3)


def test_live_text_is_read_once():
    """A star looks at the first row and leaves it there; a second reading goes on where the first one ended."""
    rows = read_rows(standard_input("y,a,c,b\n1,2,z,3\n4,5,z,6\n7,8,z,9\n"), parse_mapping("y=y,x=*"), {})
    assert format_mapping(rows.mapping) == "y=y,x=a+b"
    assert np.array_equal(next(rows.batches(2))["x"], [[2, 3], [5, 6]])
    assert np.array_equal(whole(rows)["x"], [[8, 9]])


@pytest.mark.parametrize("text", ["1,2\n3,4\n", "y,x\n1,2\n3,4\n", "x,y\n2,1\n4,3\n"])
def test_live_text_may_go_on_without_header(text: str):
    """Where the columns are known, a first line that does not name them is a row."""
    arguments = whole(read_rows(standard_input(text, ["y", "x"]), parse_mapping("y=y,x=x"), {}))
    assert np.array_equal(arguments["y"], [1, 3]) and np.array_equal(arguments["x"], [2, 4])
    assert list(read_rows(standard_input("", ["y", "x"]), parse_mapping("y=y"), {}).batches(2)) == []


@pytest.mark.parametrize("bad", ["5,6,7", "old,6"])
def test_live_rows_before_a_bad_one_are_not_lost(bad: str):
    rows: Rows = read_rows(standard_input(f"y,x\n1,2\n3,4\n{bad}\n7,8\n"), parse_mapping("y=y,x=x"), {})
    batches: Any = rows.batches(10)
    assert np.array_equal(next(batches)["y"], [1, 3])
    with pytest.raises(TableError, match=r"standard input, row 3 \(line 4\)"):
        next(batches)
