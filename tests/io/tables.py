"""What the tests of tables share: a small table, and ways to read one."""

import io
from pathlib import Path

import numpy as np

from adfpp.io.csv_reader import Csv
from adfpp.io.files import open_table
from adfpp.io.mapping import parse_mapping
from adfpp.io.rows import Rows, read_rows

PEOPLE = """label,age,income,city,n
1,30,2.5,Rome,4
0,41,,Oslo,5
1,,-1e3,Rome,6
0,28,0,Bonn,7
1,33,7,Oslo,8
"""


def rows_of(path: Path, mapping: str, **categories: list[str]) -> Rows:
    return read_rows(open_table(path), parse_mapping(mapping), categories)


def whole(rows: Rows, size: int = 2, skip: int = 0) -> dict[str, np.ndarray]:
    """All rows, read ``size`` at a time."""
    batches = list(rows.batches(size, skip))
    return {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}


def standard_input(text: str, header: list[str] | None = None) -> Csv:
    return Csv("standard input", lambda: io.BytesIO(text.encode()), live=True, header=header)
