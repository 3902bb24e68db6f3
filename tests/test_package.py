"""The package as it is imported: when it imports what it depends on, and in which order."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def printed(code: str, cwd: Path = ROOT, *options: str) -> str:
    """What a fresh interpreter prints when it runs some code in a folder."""
    done = subprocess.run([sys.executable, *options, "-c", code], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


LAZY_NUMPYRO = """
import importlib.machinery, importlib.util, sys
from collections import Counter

run, exec_module = Counter(), importlib.machinery.SourceFileLoader.exec_module
def counted(self, module):
    run[module.__name__] += 1
    exec_module(self, module)
importlib.machinery.SourceFileLoader.exec_module = counted

spec = importlib.util.find_spec("numpyro")
spec.loader = importlib.util.LazyLoader(spec.loader)
sys.modules["numpyro"] = lazy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lazy)
"""


@pytest.mark.parametrize(
    "use",
    [
        "import adfpp; adfpp.ADF",
        "from adfpp.model import read",
        "from adfpp.judge.compare import compare",
        "import adfpp.distributions",
        "import adfpp.papers.baselines",
    ],
)
def test_a_numpyro_that_is_loaded_on_first_use_is_run_once(use: str) -> None:
    """ArviZ 1.x leaves such a NumPyro behind; a module of NumPyro that is run twice has a second stack of handlers."""
    code = (
        LAZY_NUMPYRO
        + use
        + "\nprint(run['numpyro.handlers'], [m for m, n in run.items() if n > 1 and m.startswith('numpyro')])"
    )
    assert printed(code) == "1 []\n"


def test_public_names_are_loaded_on_first_use() -> None:
    """All of them at the first one, and with them the packages that they come from."""
    code = """
import sys, adfpp
print(adfpp.__version__ != "", "jax" in sys.modules)
print(adfpp.ADF is adfpp.learn.adf.ADF, "ADF" in dir(adfpp), "EP" in vars(adfpp))
from adfpp import *
print(EP is adfpp.EP)
"""
    assert printed(code).split() == "True False True True True True".split()
