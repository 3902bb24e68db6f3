"""What every test shares: the CPU, float64, no display, and the same Hypothesis examples each time."""

import os

# Read when JAX and Matplotlib are first imported, and handed on to the programs that a test starts.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["MPLBACKEND"] = "Agg"

from collections.abc import Iterator

import hypothesis
import jax
import pytest

# Most tests compare with an oracle to 1e-8 or better, which float32 cannot tell from a mistake. Arrays made
# before the switch keep their precision, so it comes first. Tests of float32 ask for the fixture below.
jax.config.update("jax_enable_x64", True)

hypothesis.settings.register_profile("adfpp", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("adfpp")


def pytest_configure(config: pytest.Config) -> None:
    """Import ArviZ once before the workers start.

    On its first import of the day ArviZ 0.23 writes a stamp file, by way of a temporary file whose name is
    always the same: two workers that import it at once can take it from each other, and the import fails.
    """
    if not hasattr(config, "workerinput"):
        import arviz  # noqa: F401


@pytest.fixture
def float32() -> Iterator[None]:
    """Switch to JAX's default of float32 for one test."""
    with jax.enable_x64(False):
        yield
