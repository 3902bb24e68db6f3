"""Cells of a table as numbers, or as the text of categories."""

import itertools
from typing import Any

import numpy as np

from adfpp.io.tables import Column

MISSING = ("", "na", "n/a", "nan", "null", "none")  # in upper or lower case, with or without spaces around
_TRUTH = {"true": 1.0, "false": 0.0}


def spellings_of_missing() -> list[str]:
    """All spellings of a missing cell, for readers that distinguish upper and lower case."""
    words = (itertools.product(*[{c.lower(), c.upper()} for c in word]) for word in MISSING)
    return sorted("".join(letters) for spelt in words for letters in spelt)


def numbers(cells: Column) -> np.ndarray:
    """Cells as floats, with NaN for missing cells.

    Raises:
        ValueError: If a cell is not a number.
    """
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiub":
        return np.array(cells, np.float32 if cells.dtype == np.float32 else float)
    if isinstance(cells, np.ndarray) and cells.dtype.kind not in "OUT":
        raise ValueError(cells.dtype)
    try:
        return np.array(cells, float) if len(cells) else np.zeros(0)
    except (ValueError, TypeError):
        return np.array([number(c) for c in cells], float)


def number(cell: Any) -> float:
    """One cell as a float; raises ``ValueError`` if it is not a number."""
    if cell is None:
        return float("nan")
    if isinstance(cell, str):
        text = cell.strip().lower()
        return float("nan") if text in MISSING else _TRUTH[text] if text in _TRUTH else float(text)
    try:
        return float(cell)
    except TypeError as error:
        raise ValueError(str(cell)) from error


def is_number(cell: object) -> bool:
    """Whether a cell can be read as a number."""
    try:
        number(cell)
    except ValueError:
        return False
    return True


def texts(cells: Column) -> list[str | None]:
    """Cells as the text of categories, with None for missing cells."""
    out: list[str | None] = []
    for cell in cells.tolist() if isinstance(cells, np.ndarray) else cells:
        text = "" if cell is None else str(cell).strip()
        out.append(None if text.lower() in MISSING else text)
    return out
