"""Rows of a table as arguments: kinds of columns, missing cells, categories, and errors that name the place."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from adfpp.io.mapping import parse_mapping
from adfpp.io.rows import read_rows
from adfpp.io.tables import TableError
from tests.io.tables import rows_of, standard_input, whole


def test_csv_agrees_with_pandas(people: Path):
    """Numbers, empty cells as NaN, whole numbers, a matrix, and codes by the alphabet."""
    rows = rows_of(people, "y=label:int,x=age+income,one=n+,g=city:code")
    arguments, frame = whole(rows), pd.read_csv(people)
    assert np.array_equal(arguments["y"], frame["label"]) and arguments["y"].dtype == np.int64
    assert np.array_equal(arguments["x"], frame[["age", "income"]].to_numpy(), equal_nan=True)
    assert arguments["one"].shape == (5, 1) and arguments["one"].dtype == float
    assert rows.categories == {"city": ["Bonn", "Oslo", "Rome"]}
    assert np.array_equal(arguments["g"], pd.Categorical(frame["city"]).codes)
    assert rows.category_count("g") == 3 and rows.category_count("x") is None
    assert rows.arguments == ("y", "x", "one", "g")


def test_a_column_can_be_a_number_and_a_category(tmp_path: Path):
    (tmp_path / "a.csv").write_text("y,n\n1,10\n2,9\n3,10\n")
    arguments = whole(rows_of(tmp_path / "a.csv", "y=y,x=n,g=n:code"))
    assert np.array_equal(arguments["x"], [10.0, 9.0, 10.0]) and np.array_equal(arguments["g"], [1, 0, 1])


def test_missing_whole_numbers_mark_their_row(tmp_path: Path):
    """An empty index or category makes the row's real numbers NaN, so that the engine refuses and counts it."""
    (tmp_path / "a.csv").write_text("y,g,c\n1.5,0,b\n2.5,,a\n3.5,2,NA\n4.5,1,a\n")
    arguments = whole(rows_of(tmp_path / "a.csv", "y=y,g=g:int,c=c:code"), 4)
    assert np.array_equal(arguments["y"], [1.5, np.nan, np.nan, 4.5], equal_nan=True)
    assert np.array_equal(arguments["g"], [0, 0, 2, 1]) and np.array_equal(arguments["c"], [1, 0, 0, 0])
    with pytest.raises(TableError, match=r"row 2 \(line 3\) has an empty cell.*Drop the row"):
        whole(rows_of(tmp_path / "a.csv", "g=g:int"))


def test_categories_are_fixed(people: Path):
    """Given ones keep their order; a category that is not among them is an error."""
    rows = rows_of(people, "g=city:code,y=label", city=["Rome", "Oslo", "Bonn", "Kyiv"])
    assert np.array_equal(whole(rows)["g"], [0, 1, 0, 2, 1]) and rows.category_count("g") == 4
    with pytest.raises(TableError, match=r"row 4 \(line 5\), column 'city': 'Bonn' is not one of its 2 categories"):
        whole(rows_of(people, "g=city:code,y=label", city=["Rome", "Oslo"]))
    with pytest.raises(TableError, match="--categories names 'age'"):
        rows_of(people, "g=city:code", age=["1"])


@pytest.mark.parametrize(
    ("cells", "categories"),
    [
        (["10", "9", "2", "10"], ["2", "9", "10"]),
        (["b", "10", "9"], ["10", "9", "b"]),
        (["True", "False", "True"], ["False", "True"]),
        (["0.50", "0.5", "NA", "-1"], ["-1", "0.5", "0.50"]),
    ],
    ids=["numbers", "words", "truth values", "spellings"],
)
def test_categories_of_a_file_are_in_order(cells: list[str], categories: list[str], tmp_path: Path):
    """In the order of numbers where all are numbers, else in that of the alphabet."""
    (tmp_path / "n.csv").write_text("g,y\n" + "".join(f"{c},1\n" for c in cells))
    assert rows_of(tmp_path / "n.csv", "g=g:code,y=y").categories == {"g": categories}


def test_a_column_without_categories_is_an_error(tmp_path: Path):
    (tmp_path / "a.csv").write_text("g,y\n,1\nNA,2\n")
    with pytest.raises(TableError, match="column 'g' is empty, so it has no categories"):
        rows_of(tmp_path / "a.csv", "g=g:code,y=y")


def test_categories_of_standard_input_have_to_be_given():
    with pytest.raises(TableError, match="Standard input can be read only once.*--categories c=first,second"):
        read_rows(standard_input("y,c\n1,2\n"), parse_mapping("g=c:code"), {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.csv is empty"),
        ("\n\n", "a.csv is empty"),
        ("1,2.5\n3,4\n", "a.csv has no header: its first line is 1, 2.5"),
        ("y,y\n1,2\n", "names the column 'y' twice"),
        ("y,x\n1,2\n3,4,5\n", r"a.csv, row 2 \(line 3\) has 3 cells; the header has 2"),
        ("y,x\n1,2\n3\n", r"row 2 \(line 3\) has 1 cells"),
        ("y,x\n1,2\n\n3,old\n", r"a.csv, row 2 \(line 4\), column 'x': 'old' is not a number.*x=x:code"),
        ('y,x\n"1\n",2\n3,old\n', r"a.csv, row 2 \(line 4\), column 'x': 'old' is not a number"),
        ('y,x\n1,"2\n', "a.csv, line 2: unexpected end of data"),
        ("y,x\n1,\xff\n", "line 2 is not text in UTF-8"),
    ],
)
def test_errors_name_the_place(text: str, message: str, tmp_path: Path):
    """File, row, line and column, and what to do."""
    (tmp_path / "a.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(TableError, match=message):
        whole(rows_of(tmp_path / "a.csv", "y=y,x=x"), 8)


@pytest.mark.parametrize("cell", ["2.5", "1e17", "inf"])
def test_what_is_no_whole_number(cell: str, tmp_path: Path):
    """Fractions, and numbers above 2**53, which floats do not tell apart."""
    (tmp_path / "a.csv").write_text(f"y,n\n1,3\n1,{cell}\n")
    with pytest.raises(TableError, match=r"row 2 \(line 3\), column 'n': .* is not a whole number"):
        whole(rows_of(tmp_path / "a.csv", "x=n:int,y=y"))
