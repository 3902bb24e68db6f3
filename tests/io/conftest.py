"""Fixtures of the tests of reading and writing."""

from pathlib import Path

import pytest

from tests.io.tables import PEOPLE
from tests.products import beta, coins, ising, ising_learners, ising_results, pair  # noqa: F401


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A CSV file with numbers, an empty cell of each kind, and text."""
    (tmp_path / "people.csv").write_text(PEOPLE)
    return tmp_path / "people.csv"
