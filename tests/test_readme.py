"""The README's code runs as it stands, its plan is what is printed, and the pages it names exist."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adfpp
from adfpp.show.arviz_versions import groups

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is left after running all Python blocks in order, in an empty folder."""
    folder, before = tmp_path_factory.mktemp("readme"), Path.cwd()
    space: dict[str, Any] = {"folder": folder}
    os.chdir(folder)
    try:
        for block in re.findall(r"```python\n(.*?)```", README, re.S):
            exec(compile(block, "README.md", "exec"), space)
    finally:
        os.chdir(before)  # other tests may come next in this process
    return space


@pytest.mark.slow
def test_the_code_runs(namespace: dict[str, Any]) -> None:
    """It learns what the data was made with, and every name it shows is what the text says."""
    slopes = np.asarray(namespace["post"].mean()["w"])
    sds = np.asarray(namespace["post"].sd()["w"])
    assert (np.abs(slopes - [1.0, -1.0, 0.5]) < 4 * sds).all()
    assert list(namespace["post"].summary().columns) == ["mean", "sd", "5%", "95%"]
    assert namespace["info"].log_z.shape == (1,)
    assert isinstance(namespace["drifting"], adfpp.ADF)
    assert namespace["comparison"].overview.loc["adf", "error_max"] < 0.5
    assert (namespace["folder"] / "report.html").stat().st_size > 10_000
    assert "trajectory" in groups(namespace["idata"])


@pytest.mark.slow
def test_the_plan_shown_is_the_plan_printed(namespace: dict[str, Any]) -> None:
    """``explain`` prints what the README shows."""
    shown = re.search(r"`explain` prints\n\n```\n(.*?)\n```", README, re.S)
    assert shown is not None
    assert str(namespace["adf"].explain(namespace["X"], y=namespace["y"])) == shown.group(1)


def test_links_lead_somewhere() -> None:
    """Every relative link of the README and of the pages in docs/ is a file or folder."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert len(pages) > 5
    links = [(p, m) for p in pages for m in re.findall(r"\]\((?!https?:)([^)#]+)\)", p.read_text(encoding="utf-8"))]
    assert len(links) > 10
    broken = [f"{p.relative_to(ROOT)}: {m}" for p, m in links if not (p.parent / m).exists()]
    assert not broken


def test_code_in_the_docs_is_python() -> None:
    """Blocks in docs/ at least compile."""
    blocks = [
        b for p in (ROOT / "docs").rglob("*.md") for b in re.findall(r"```python\n(.*?)```", p.read_text("utf-8"), re.S)
    ]
    assert len(blocks) >= 4
    for block in blocks:
        compile(block, "docs", "exec")
