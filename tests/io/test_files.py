"""Data files: every format gives the same arguments, in pieces of any size; what cannot be read is named."""

import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from adfpp.io.files import open_table
from adfpp.io.tables import TableError
from tests.io.tables import rows_of, whole


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_pieces_make_the_whole(people: Path, size: int, suffix: str):
    """Batches of any size, from any row on, are the same rows; each but the last has that size."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
        frame, people = pd.read_csv(people), people.with_suffix(suffix)
        frame.to_parquet(people, row_group_size=2)
    rows = rows_of(people, "y=label,x=age+income,g=city:code")
    everything = whole(rows, 5)
    for skip in (0, 1, 4):
        batches = list(rows.batches(size, skip))
        assert [len(b["y"]) for b in batches[:-1]] == [size] * (len(batches) - 1)
        pieces = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
        for name, values in pieces.items():
            assert np.array_equal(values, everything[name][skip:], equal_nan=name != "g")
    assert list(rows.batches(size, 5)) == []


def test_formats_agree(people: Path):
    """CSV, TSV, Parquet and npz give the same arguments, categories included."""
    pytest.importorskip("pyarrow")
    frame = pd.read_csv(people)
    frame.to_csv(people.with_suffix(".tsv"), sep="\t", index=False)
    frame.to_parquet(people.with_suffix(".parquet"))
    arrays: dict[str, Any] = {c: frame[c].to_numpy() for c in ("label", "age", "income")}
    np.savez(people.with_suffix(".npz"), allow_pickle=False, **arrays, city=np.array(list(frame["city"])))
    mapping = "y=label:int,x=age+income,g=city:code"
    expected = whole(rows_of(people, mapping))
    for suffix in (".tsv", ".parquet", ".npz"):
        rows = rows_of(people.with_suffix(suffix), mapping)
        assert rows.categories == {"city": ["Bonn", "Oslo", "Rome"]}
        for name, values in whole(rows).items():
            assert np.array_equal(values, expected[name], equal_nan=values.dtype == float), (suffix, name)
            assert values.dtype == expected[name].dtype


def test_parquet_of_other_types(tmp_path: Path):
    """Whole numbers with gaps, dictionaries, truth values and single precision."""
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(
        {
            "n": pd.array([1, None, 2**53 - 1], "Int64"),
            "c": pd.Categorical(["b", None, "a"]),
            "t": [True, False, True],
            "f": np.array([0.1, 0.2, 0.3], np.float32),
        }
    )
    frame.to_parquet(tmp_path / "a.parquet")
    arguments = whole(rows_of(tmp_path / "a.parquet", "n=n:int,g=c:code,t=t,f=f"), 3)
    assert arguments["n"].tolist() == [1, 0, 2**53 - 1] and arguments["g"].tolist() == [1, 0, 0]
    assert np.array_equal(arguments["t"], [1.0, np.nan, 1.0], equal_nan=True)  # its row lacks n and c
    assert arguments["f"].dtype == np.float32 and arguments["f"][2] == np.float32(0.3)


def test_npz_keeps_shapes_and_types(tmp_path: Path):
    """Arrays go to arguments as they are; float32 and whole numbers stay what they are."""
    big = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.savez(tmp_path / "a.npz", X=big, g=np.array([0, 2, 1, 0], np.int32), s=3.0)
    arguments = whole(rows_of(tmp_path / "a.npz", "x=X,g=g"))
    assert np.array_equal(arguments["x"], big) and arguments["x"].dtype == np.float32
    assert np.array_equal(arguments["g"], [0, 2, 1, 0]) and arguments["g"].dtype == np.int32
    with pytest.raises(TableError, match="'s' is a single number. Give it as --set s="):
        whole(rows_of(tmp_path / "a.npz", "s=s"))
    with pytest.raises(TableError, match=r"x=X\+g joins arrays that already have several columns"):
        whole(rows_of(tmp_path / "a.npz", "x=X+g"))
    np.savez(tmp_path / "b.npz", x=np.zeros(3), y=np.zeros(4))
    with pytest.raises(TableError, match="differ in length: {'x': 3, 'y': 4}"):
        whole(rows_of(tmp_path / "b.npz", "x=x,y=y"))
    np.savez(tmp_path / "c.npz", x=np.array([{}], object))
    with pytest.raises(TableError, match="Python objects, which are never loaded"):
        open_table(tmp_path / "c.npz")


def test_unknown_files(people: Path):
    with pytest.raises(TableError, match="suffix '.xlsx' is not known; data files end in .csv"):
        open_table("data.xlsx")
    with pytest.raises(TableError, match=r"There is no file .*peple.csv. Did you mean .*people.csv"):
        open_table(people.with_name("peple.csv"))
    for suffix in (".parquet", ".npz"):
        people.with_suffix(suffix).write_bytes(gzip.compress(b"no table"))
        with pytest.raises(TableError, match="is not a|cannot be read"):
            open_table(people.with_suffix(suffix))


def test_parquet_without_pyarrow_names_the_extra(people: Path, monkeypatch: pytest.MonkeyPatch):
    people.with_suffix(".parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"pip install 'adfpp\[parquet\]'"):
        open_table(people.with_suffix(".parquet"))
