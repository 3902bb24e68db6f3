"""What every test shares: the CPU, float64, no display, and the same Hypothesis examples each time."""

import gc
import os
from pathlib import Path

# Read when JAX and Matplotlib are first imported, and handed on to the programs that a test starts.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["MPLBACKEND"] = "Agg"

from collections.abc import Iterator

import hypothesis
import jax
import jaxlib
import pytest

from adfpp.cli.main import WHOLE_LOOPS

# Most of the time goes into compiling, and the workers, the slow tests and the next run compile the same programs.
# A program that is read while another worker writes it, or was cut off, is compiled again (pyproject.toml ignores that
# warning); the programs that a test starts make warnings errors themselves, and do without.
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).resolve().parents[1] / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
# The places in the source of each operation are written into a program only for profilers. Error messages do without.
jax.config.update("jax_traceback_in_locations_limit", 0)
# Traces make many objects that live long. Python's default looks for garbage among them after every 700 new objects.
gc.set_threshold(1_000_000, 20, 100)

# Most tests compare with an oracle to 1e-8 or better, which float32 cannot tell from a mistake. Arrays made
# before the switch keep their precision, so it comes first. Tests of float32 ask for the fixture below.
jax.config.update("jax_enable_x64", True)

hypothesis.settings.register_profile("adfpp", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("adfpp")


def pytest_configure(config: pytest.Config) -> None:
    """Compile programs without optimisation, and import ArviZ once before the workers start.

    Most of the time of the tests goes into making programs, and optimising a program takes most of the time of its
    compilation. Only the tests of the papers, which compute more than they compile, run what users of the command line
    run. XLA usually compiles a program in 32 parts at once. This saves time only on cores that would be idle, and a
    program in one part has fewer memory maps. XLA reads its flags when JAX first computes. A ``conftest.py`` therefore
    must not compute anything when it is imported.

    On its first import of the day ArviZ 0.23 writes a stamp file, by way of a temporary file whose name is
    always the same: two workers that import it at once can take it from each other, and the import fails.
    """
    flags = ["--xla_cpu_parallel_codegen_split_count=1", WHOLE_LOOPS]
    if config.option.markexpr != "papers":
        flags += ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
        if jaxlib.version.__version_info__ < (0, 11):  # later versions have no such emitters
            flags.append("--xla_cpu_use_fusion_emitters=false")
    os.environ["XLA_FLAGS"] = " ".join([*flags, os.environ.get("XLA_FLAGS", "")])  # XLA reads it when it starts
    if not hasattr(config, "workerinput"):
        import arviz  # noqa: F401


@pytest.fixture(scope="module", autouse=True)
def bounded_memory_maps() -> Iterator[None]:
    """Forget compiled programs between files before the process has too many memory maps.

    Linux allows a process 65,530 of them, and each compiled program takes several hundred.
    """
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and len(maps.read_bytes().splitlines()) > 30_000:
        jax.clear_caches()


@pytest.fixture
def float32() -> Iterator[None]:
    """Switch to JAX's default of float32 for one test."""
    with jax.enable_x64(False):
        yield
