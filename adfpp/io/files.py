"""Data files: comma-separated text, Parquet, and NumPy archives."""

import difflib
import zipfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adfpp.io.csv_reader import Csv
from adfpp.io.tables import LOOK, Batch, Column, Table, TableError

SUFFIXES = (".csv", ".tsv", ".parquet", ".npz")


def open_table(path: str | Path) -> Table:
    """The table in a file; the suffix of the name determines the format."""
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


class Parquet:
    """A Parquet file, read a batch at a time; needs pyarrow."""

    live = False
    typed = False

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError:
            raise TableError(
                f"{path}: Parquet files are read by pyarrow, which is not installed: pip install 'adfpp[parquet]'."
            ) from None
        self.name = str(path)
        self._path, self._open = path, parquet.ParquetFile
        try:
            with self._open(path) as file:
                self._columns = [str(n) for n in file.schema_arrow.names]
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise TableError(f"{path} is not a Parquet file, or is cut short: {error}") from None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._columns

    def look(self) -> dict[str, Column]:
        """The first cells of each column."""
        first = next(self.batches(LOOK), None)
        return {c: [] for c in self._columns} if first is None else first.columns

    def batches(self, size: int, wanted: Sequence[str] | None = None, text: Collection[str] = ()) -> Iterator[Batch]:
        """The rows in order."""
        start = 0
        with self._open(self._path) as file:
            for part in file.iter_batches(size, columns=list(wanted or self._columns)):
                if part.num_rows:
                    columns: dict[str, Column] = {
                        n: _from_arrow(part.column(i)) for i, n in enumerate(part.schema.names)
                    }
                    yield Batch(columns, start)
                    start += part.num_rows


def _from_arrow(column: Any) -> np.ndarray:
    """A column of pyarrow as an array; of objects if integers are missing, so that large ones are not rounded."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_integer(column.type) and column.null_count:
        return np.array(column.to_pylist(), object)
    return column.to_numpy(zero_copy_only=False)


class Npz:
    """The arrays of a NumPy archive by name, with rows along their leading axis; the whole archive is in memory."""

    live = False
    typed = True

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
            cause = (
                "it holds Python objects, which are never loaded; save numbers and strings" if objects else str(error)
            )
            raise TableError(f"{path} cannot be read: {cause}.") from None
        except (OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
            raise TableError(f"{path} is not an npz archive, or is cut short: {error}.") from None

    @property
    def columns(self) -> list[str]:
        """The names of the arrays."""
        return self._columns

    def look(self) -> dict[str, Column]:
        """The first entries of each array."""
        return {n: a[:LOOK] if a.ndim else a for n, a in self._arrays.items()}

    def batches(self, size: int, wanted: Sequence[str] | None = None, text: Collection[str] = ()) -> Iterator[Batch]:
        """The rows in order."""
        chosen = {n: self._arrays[n] for n in wanted or self._columns}
        flat = [n for n, a in chosen.items() if a.ndim == 0]
        if flat:
            raise TableError(f"{self.name}: the array {flat[0]!r} is a single number. Give it as --set {flat[0]}=….")
        lengths = {n: len(a) for n, a in chosen.items()}
        if len(set(lengths.values())) > 1:
            raise TableError(f"{self.name}: the arrays differ in length: {lengths}.")
        for start in range(0, next(iter(lengths.values()), 0), size):
            yield Batch({n: a[start : start + size] for n, a in chosen.items()}, start)
