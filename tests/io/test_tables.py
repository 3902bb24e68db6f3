"""Data files to model arguments: the mapping, the kinds of columns, the errors, and reading in pieces."""

import gzip
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adfpp.io.tables import (
    Assignment,
    Csv,
    Rows,
    TableError,
    format_mapping,
    matching_names,
    open_table,
    parse_mapping,
    read_rows,
    resolve,
)

TEXT = """label,age,income,city,n
1,30,2.5,Rome,4
0,41,,Oslo,5
1,,-1e3,Rome,6
0,28,0,Bonn,7
1,33,7,Oslo,8
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "people.csv").write_text(TEXT)
    return tmp_path / "people.csv"


def rows_of(path: Path, mapping: str, **categories: list[str]) -> Rows:
    return read_rows(open_table(path), parse_mapping(mapping), categories)


def whole(rows: Rows, size: int = 2, skip: int = 0) -> dict[str, np.ndarray]:
    batches = list(rows.batches(size, skip))
    return {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}


def live(text: str, header: list[str] | None = None) -> Csv:
    return Csv("standard input", lambda: io.BytesIO(text.encode()), live=True, header=header)


# mapping


def test_mapping_is_read():
    """Vector, matrix, matrix of one column, all others, kinds, and names in quotes."""
    found = parse_mapping(' y = label:int, x=age+income ,z=age+, "a,b"="income (k=1)"+"say ""hi""":code,rest=*')
    assert found == (
        Assignment("y", ("label",), False, "int"),
        Assignment("x", ("age", "income"), True),
        Assignment("z", ("age",), True),
        Assignment("a,b", ("income (k=1)", 'say "hi"'), True, "code"),
        Assignment("rest", (), True),
    )


names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1).filter(lambda t: t.strip())


@given(
    st.dictionaries(
        names.map(str.strip),
        st.tuples(st.lists(names.map(str.strip), min_size=1, max_size=3), st.booleans()),
        min_size=1,
    )
)
def test_mapping_is_written_as_it_is_read(items: dict[str, tuple[list[str], bool]]):
    """Whatever the names are, the text of a mapping reads back as the mapping."""
    mapping = tuple(Assignment(a, tuple(c), m or len(c) > 1, "code" if m else None) for a, (c, m) in items.items())
    assert parse_mapping(format_mapping(mapping)) == mapping


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "argument's name is missing"),
        ("y", "'y' is not followed by ="),
        ("y=", "a column's name is missing"),
        ("y=a:float", "kind 'float' is not known; the kinds are number, int, code"),
        ("y=a,y=b", "names the argument 'y' twice"),
        ("x=*,y=*", "Only one argument"),
        ("y=a=b", "'=' is where a comma should be"),
        ('y="a', "a double quote is not closed"),
        ("y=a,", "argument's name is missing"),
    ],
)
def test_mapping_errors(text: str, told: str):
    with pytest.raises(TableError, match=told):
        parse_mapping(text)


def test_missing_column_is_told(path: Path):
    """The message has the nearest name, and all of them."""
    with pytest.raises(TableError, match="no column 'incom'. Did you mean 'income'.*label, age, income, city, n"):
        rows_of(path, "x=incom")


def test_all_other_numeric_columns(path: Path):
    """The star leaves out the columns that others name, and text."""
    found = resolve(parse_mapping("y=label,x=*"), open_table(path))
    assert found[1] == Assignment("x", ("age", "income", "n"), True)
    with pytest.raises(TableError, match="no numeric column is left for x="):
        resolve(parse_mapping("y=label,z=age+income+n,x=*"), open_table(path))


def test_mapping_by_names(path: Path):
    """Without a mapping, columns go to the arguments of their names, and the rest to the one argument left."""
    table = open_table(path)
    assert format_mapping(matching_names(table, ["x"], ["label", "scale"])) == "label=label,x=*"
    with pytest.raises(TableError, match="which columns make the arguments x, z.*--rows x=label"):
        matching_names(table, ["x", "z"], ["label"])


# values


def test_csv_agrees_with_pandas(path: Path):
    """Numbers, empty cells as NaN, whole numbers, a matrix, and codes by the alphabet."""
    rows = rows_of(path, "y=label:int,x=age+income,one=n+,g=city:code")
    found, frame = whole(rows), pd.read_csv(path)
    assert np.array_equal(found["y"], frame["label"]) and found["y"].dtype == np.int64
    assert np.array_equal(found["x"], frame[["age", "income"]].to_numpy(), equal_nan=True)
    assert found["one"].shape == (5, 1) and found["one"].dtype == float
    assert rows.categories == {"city": ["Bonn", "Oslo", "Rome"]}
    assert np.array_equal(found["g"], pd.Categorical(frame["city"]).codes)
    assert rows.count("g") == 3 and rows.count("x") is None


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_pieces_make_the_whole(path: Path, size: int, suffix: str):
    """Batches of any size, from any row on, are the same rows; each but the last has that size."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
        frame, path = pd.read_csv(path), path.with_suffix(suffix)
        frame.to_parquet(path, row_group_size=2)
    rows = rows_of(path, "y=label,x=age+income,g=city:code")
    everything = whole(rows, 5)
    for skip in (0, 1, 4):
        batches = list(rows.batches(size, skip))
        assert [len(b["y"]) for b in batches[:-1]] == [size] * (len(batches) - 1)
        found = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
        for name, values in found.items():
            assert np.array_equal(values, everything[name][skip:], equal_nan=name != "g")
    assert list(rows.batches(size, 5)) == []


def test_formats_agree(path: Path):
    """CSV, TSV, Parquet and npz give the same arguments, categories included."""
    pytest.importorskip("pyarrow")
    frame = pd.read_csv(path)
    frame.to_csv(path.with_suffix(".tsv"), sep="\t", index=False)
    frame.to_parquet(path.with_suffix(".parquet"))
    arrays: dict[str, Any] = {c: frame[c].to_numpy() for c in ("label", "age", "income")}
    np.savez(path.with_suffix(".npz"), allow_pickle=False, **arrays, city=np.array(list(frame["city"])))
    mapping = "y=label:int,x=age+income,g=city:code"
    expected = whole(rows_of(path, mapping))
    for suffix in (".tsv", ".parquet", ".npz"):
        rows = rows_of(path.with_suffix(suffix), mapping)
        assert rows.categories == {"city": ["Bonn", "Oslo", "Rome"]}
        for name, values in whole(rows).items():
            assert np.array_equal(values, expected[name], equal_nan=values.dtype == float), (suffix, name)
            assert values.dtype == expected[name].dtype


def test_npz_keeps_shapes_and_types(tmp_path: Path):
    """Arrays go to arguments as they are; float32 and whole numbers stay what they are."""
    big = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.savez(tmp_path / "a.npz", X=big, g=np.array([0, 2, 1, 0], np.int32), s=3.0)
    found = whole(rows_of(tmp_path / "a.npz", "x=X,g=g"))
    assert np.array_equal(found["x"], big) and found["x"].dtype == np.float32 and found["g"].dtype == np.int32
    with pytest.raises(TableError, match="'s' is a single number. Give it as --set s="):
        whole(rows_of(tmp_path / "a.npz", "s=s"))
    np.savez(tmp_path / "b.npz", x=np.zeros(3), y=np.zeros(4))
    with pytest.raises(TableError, match="differ in length: {'x': 3, 'y': 4}"):
        whole(rows_of(tmp_path / "b.npz", "x=x,y=y"))
    np.savez(tmp_path / "c.npz", x=np.array([{}], object))
    with pytest.raises(TableError, match="Python objects, which are never loaded"):
        open_table(tmp_path / "c.npz")


def test_missing_whole_numbers_mark_their_row(tmp_path: Path):
    """An empty index or category makes the row's real numbers NaN, so that the engine refuses and counts it."""
    (tmp_path / "a.csv").write_text("y,g,c\n1.5,0,b\n2.5,,a\n3.5,2,NA\n4.5,1,a\n")
    found = whole(rows_of(tmp_path / "a.csv", "y=y,g=g:int,c=c:code"), 4)
    assert np.array_equal(found["y"], [1.5, np.nan, np.nan, 4.5], equal_nan=True)
    assert np.array_equal(found["g"], [0, 0, 2, 1]) and np.array_equal(found["c"], [1, 0, 0, 0])
    with pytest.raises(TableError, match=r"row 2 \(line 3\) has an empty cell.*Drop the row"):
        whole(rows_of(tmp_path / "a.csv", "g=g:int"))


def test_categories_are_fixed(path: Path):
    """Given ones keep their order; unknown ones are told; those of numbers are sorted as numbers."""
    rows = rows_of(path, "g=city:code,y=label", city=["Rome", "Oslo", "Bonn", "Kyiv"])
    assert np.array_equal(whole(rows)["g"], [0, 1, 0, 2, 1]) and rows.count("g") == 4
    with pytest.raises(TableError, match=r"row 4 \(line 5\), column 'city': 'Bonn' is not one of its 2 categories"):
        whole(rows_of(path, "g=city:code,y=label", city=["Rome", "Oslo"]))
    with pytest.raises(TableError, match="--categories names 'age'"):
        rows_of(path, "g=city:code", age=["1"])
    (path.parent / "n.csv").write_text("g\n10\n9\n2\n10\n")
    assert rows_of(path.parent / "n.csv", "g=g:code").categories == {"g": ["2", "9", "10"]}


# errors


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a.csv is empty"),
        ("\n\n", "a.csv is empty"),
        ("1,2.5\n3,4\n", "a.csv has no header: its first line is 1, 2.5"),
        ("y,y\n1,2\n", "names the column 'y' twice"),
        ("y,x\n1,2\n3,4,5\n", r"a.csv, row 2 \(line 3\) has 3 cells; the header has 2"),
        ("y,x\n1,2\n3\n", r"row 2 \(line 3\) has 1 cells"),
        ("y,x\n1,2\n\n3,old\n", r"a.csv, row 2 \(line 4\), column 'x': 'old' is not a number.*x=x:code"),
        ('y,x\n1,"2\n', "a.csv, line 2: unexpected end of data"),
        ("y,x\n1,\xff\n", "is not text in UTF-8"),
    ],
)
def test_errors_name_the_place(text: str, told: str, tmp_path: Path):
    """File, row, line and column, and what to do."""
    (tmp_path / "a.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(TableError, match=told):
        whole(rows_of(tmp_path / "a.csv", "y=y,x=x"), 8)


def test_fractions_are_no_whole_numbers(path: Path):
    with pytest.raises(TableError, match=r"row 1 \(line 2\), column 'income': 2.5 is not a whole number"):
        whole(rows_of(path, "x=income:int,y=label"))


def test_unknown_files_are_told(path: Path):
    with pytest.raises(TableError, match="suffix '.xlsx' is not known; data files end in .csv"):
        open_table("data.xlsx")
    with pytest.raises(TableError, match=r"There is no file .*peple.csv. Did you mean .*people.csv"):
        open_table(path.with_name("peple.csv"))
    for suffix in (".parquet", ".npz"):
        path.with_suffix(suffix).write_bytes(gzip.compress(b"no table"))
        with pytest.raises(TableError, match="is not a|cannot be read"):
            open_table(path.with_suffix(suffix))


def test_parquet_without_pyarrow_names_the_extra(path: Path, monkeypatch: pytest.MonkeyPatch):
    path.with_suffix(".parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"pip install 'adfpp\[parquet\]'"):
        open_table(path.with_suffix(".parquet"))


def test_windows_files(tmp_path: Path):
    """A byte-order mark, carriage returns, quoted commas and line breaks."""
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfy,"x, m"\r\n1,"2"\r\n3,4\r\n')
    assert np.array_equal(whole(rows_of(tmp_path / "a.csv", 'y=y,x="x, m"'))["x"], [2, 4])
    (tmp_path / "b.csv").write_text('c,y\n"a\nb",1\nc,2\n')
    assert rows_of(tmp_path / "b.csv", "g=c:code").categories == {"c": ["a\nb", "c"]}


# streams


class Endless(io.RawIOBase):
    """More rows than could ever be held; counts the bytes that are taken."""

    def __init__(self) -> None:
        self.taken = 0
        self.lines: Iterator[bytes] = (b"y,x\n" if i == 0 else b"%d,%d.5\n" % (i % 2, i) for i in range(10**12))

    def read1(self, size: int) -> bytes:
        block = b"".join(next(self.lines) for _ in range(size // 20))
        self.taken += len(block)
        return block


def test_memory_is_bounded():
    """From a file without end, no more is read than the rows asked for and a buffer."""
    opened: list[Endless] = []

    def open_file() -> Endless:
        opened.append(Endless())
        return opened[-1]

    rows = read_rows(Csv("endless", open_file), parse_mapping("y=y,x=*"), {})
    assert format_mapping(rows.mapping) == "y=y,x=x+"
    batches = rows.batches(1000)
    for k in range(20):
        assert next(batches)["x"][0, 0] == 1000 * k + 1.5
    assert opened[-1].taken < 20_000 * 10 + 2 * (1 << 16)
    assert sum(file.taken for file in opened[:-1]) < 4 * (1 << 16)


class Drip(io.RawIOBase):
    """Bytes that arrive a few at a time, cutting lines anywhere."""

    def __init__(self, text: str, size: int) -> None:
        self.blocks = iter([text.encode()[i : i + size] for i in range(0, len(text.encode()), size)])
        self.given = 0

    def read1(self, size: int) -> bytes:
        self.given += 1
        return next(self.blocks, b"")


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_live_text_may_arrive_in_any_pieces(size: int):
    """Each row is there as soon as its line is, whatever the pieces."""
    text = "y,c\n" + "".join(f"{i},{'äbc'[i % 3]}\n" for i in range(20))
    drip = Drip(text, size)
    table = Csv("standard input", lambda: drip, live=True)
    rows = read_rows(table, parse_mapping("y=y,g=c:code"), {"c": ["ä", "b", "c"]})
    batches = rows.batches(5)
    assert np.array_equal(next(batches)["y"], range(5))
    assert drip.given <= len("y,c\n0,ä\n1,b\n2,c\n3,ä\n4,b\n".encode()) // size + 1
    rest = list(batches)
    assert np.array_equal(np.concatenate([b["g"] for b in rest]), np.arange(5, 20) % 3)


def test_live_text_is_read_once():
    """A star looks at the first row and leaves it there; categories have to be given."""
    rows = read_rows(live("y,a,c,b\n1,2,z,3\n4,5,z,6\n"), parse_mapping("y=y,x=*"), {})
    assert format_mapping(rows.mapping) == "y=y,x=a+b"
    assert np.array_equal(whole(rows)["x"], [[2, 3], [5, 6]])
    with pytest.raises(TableError, match="Standard input can be read only once.*--categories c=first,second"):
        read_rows(live("y,c\n1,2\n"), parse_mapping("g=c:code"), {})


@pytest.mark.parametrize("text", ["1,2\n3,4\n", "y,x\n1,2\n3,4\n", "x,y\n2,1\n4,3\n"])
def test_live_text_may_go_on_without_header(text: str):
    """Where the columns are known, a first line that does not name them is a row."""
    found = whole(read_rows(live(text, ["y", "x"]), parse_mapping("y=y,x=x"), {}))
    assert np.array_equal(found["y"], [1, 3]) and np.array_equal(found["x"], [2, 4])
    assert list(read_rows(live("", ["y", "x"]), parse_mapping("y=y"), {}).batches(2)) == []


@pytest.mark.parametrize("bad", ["5,6,7", "old,6"])
def test_rows_before_a_bad_one_are_not_lost(bad: str):
    """Of live text, the rows before a bad one come first, then the error."""
    rows = read_rows(live(f"y,x\n1,2\n3,4\n{bad}\n7,8\n"), parse_mapping("y=y,x=x"), {})
    batches: Any = rows.batches(10)
    assert np.array_equal(next(batches)["y"], [1, 3])
    with pytest.raises(TableError, match=r"standard input, row 3 \(line 4\)"):
        next(batches)
