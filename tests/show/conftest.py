"""Runs are timed by a single repetition here: the tests do not look at how fast they are."""

from collections.abc import Iterator

import pytest

from adfpp.judge import clock
from tests.products import coins, exact_ising, ising, ising_comparison, ising_learners, ising_results, pair  # noqa: F401


@pytest.fixture(autouse=True, scope="session")
def single_repetition() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "REPEAT_FOR", 0.0)
        yield
