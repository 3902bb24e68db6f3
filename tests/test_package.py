"""The package as it is imported and as it is distributed: what is imported when, and what the archives contain."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent


def printed(code: str, cwd: Path = ROOT, *options: str) -> str:
    """What a fresh interpreter prints when it runs some code in a folder."""
    return ran(*options, "-c", code, cwd=cwd)


def ran(*words: str, cwd: Path) -> str:
    """What Python prints on a clean run in a folder; nothing but this folder and what is installed is on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
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
    """Each by itself; packages can be reached without an import of their own."""
    code = """
import sys, adfpp
print(adfpp.__version__ != "", "jax" in sys.modules)
print(adfpp.ADF is adfpp.learn.adf.ADF, "ADF" in dir(adfpp), "adfpp.show" in sys.modules)
from adfpp import *
print(EP is adfpp.EP, check is adfpp.judge.check.check, distributions is sys.modules["adfpp.distributions"])
"""
    assert printed(code).split() == "True False True True False True True True".split()


class Built(NamedTuple):
    """The source distribution, unpacked, and the wheels that were built from it."""

    sources: Path
    wheel: Path
    editable: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """What pip would build, without its environment for the build, which needs a network."""
    folder = tmp_path_factory.mktemp("built")
    hidden = [p.name for p in ROOT.iterdir() if p.name.startswith(".") and p.name != ".ci"]  # environments, caches
    shutil.copytree(
        ROOT, folder / "clone", ignore=shutil.ignore_patterns(*hidden, "__pycache__", "build", "dist", "*.egg-info")
    )
    archive = build("sdist", folder / "clone", folder)
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "unpacked", filter="data")
    (sources,) = (folder / "unpacked").iterdir()
    clone = sources.rename(folder / "unpacked" / "adfpp")  # the name that a clone has
    return Built(clone, build("wheel", clone, folder), build("editable", clone, folder / "unpacked"))


def build(kind: str, source: Path, into: Path) -> Path:
    """Builds a "sdist", a "wheel" or an "editable" wheel with the backend that pyproject.toml names."""
    call = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(into)!r}))"
    return into / ran("-c", call, cwd=source).splitlines()[-1]


def files(folder: Path) -> set[str]:
    """The files in a folder that are no caches, relative to it."""
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    return {name for name in found if "__pycache__" not in name}


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    """All modules, the templates and the marker of types; no tests, no models, no caches."""
    names = set(zipfile.ZipFile(built.wheel).namelist())
    package = {name for name in names if not re.match(r"adfpp-[\w.]+\.dist-info/", name)}
    assert package == {f"adfpp/{name}" for name in files(ROOT / "adfpp")}
    others = {name for name in package if not name.endswith(".py")}
    assert others == {
        "adfpp/py.typed",
        *(f"adfpp/show/templates/{p.name}" for p in (ROOT / "adfpp/show/templates").iterdir()),
    }


@pytest.mark.slow
def test_the_source_distribution_holds_what_its_tests_need(built: Built) -> None:
    """Every file of these folders; all tests can be collected from it, and some quick ones pass."""
    for name in ("adfpp", "tests", "models", "examples", "benchmarks", "docs", ".ci"):
        assert files(built.sources / name) == files(ROOT / name)
    where = ran("-c", "import adfpp; print(adfpp.__file__)", cwd=built.sources)
    assert Path(where.strip()).is_relative_to(built.sources)
    collected = ran("-m", "pytest", "-n", "0", "-q", "-m", "", "--collect-only", cwd=built.sources)  # refuses errors
    assert re.search(r"^\d{4} tests collected in ", collected, re.M)
    # these read files that are not Python; all other files were compared above
    chosen = [
        "tests/test_architecture.py",
        "tests/test_readme.py",
        "tests/cli/test_main.py",
        "tests/engine/test_linalg.py",
        "tests/judge/test_verdict.py",
        "tests/tools/test_plant_faults.py",
    ]
    assert " passed" in ran("-m", "pytest", "-n", "0", "-q", *chosen, cwd=built.sources)


@pytest.mark.slow
def test_an_editable_install_is_found_from_the_folder_above_the_clone(built: Built) -> None:
    """Where a folder called adfpp, the clone, could be taken for a namespace package. Nothing else is installed."""
    site = built.editable.parent / "site"
    zipfile.ZipFile(built.editable).extractall(site)
    code = f"import site; site.addsitedir({str(site)!r}); import adfpp; print(adfpp.__file__, adfpp.__version__)"
    found, version = printed(code, built.sources.parent, "-S").split()
    assert Path(found) == built.sources / "adfpp" / "__init__.py" and version
