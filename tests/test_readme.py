"""The README's code runs and prints what it shows; the pages and the code that a page names exist."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adfpp
from adfpp.show.arviz_versions import groups

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


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
    """Every relative link of a page is a file or folder, and every anchor is a heading (or a named place) there."""
    links = [
        (page, *match)
        for page in PAGES
        for match in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 50 and sum(bool(anchor) for *_, anchor in links) > 5
    broken = []
    for page, name, anchor in links:
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{page.relative_to(ROOT)}: {name}#{anchor}")
    assert not broken


def anchors(page: Path) -> set[str]:
    """The anchors of a page: GitHub makes one of each heading; others are written out."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    made = {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


def test_the_code_that_a_page_names_exists() -> None:
    """Files and the functions in them: `engine/kernel.py:visit` in the map of the packages, `adfpp/cli/` elsewhere."""
    named = list(named_code())
    assert sum(name is not None for _, _, name in named) > 30
    missing = [
        f"{page.name}: {path.relative_to(ROOT)}{f':{name}' if name else ''}"
        for page, path, name in named
        if not path.exists() or (name is not None and name not in definitions(path))
    ]
    assert not missing


def named_code() -> Iterator[tuple[Path, Path, str | None]]:
    """(page, path, name) of all code that the map and the guide name; the name is "visit" or "Session.resolve"."""
    for page in (ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"):
        for line in page.read_text(encoding="utf-8").splitlines():
            row = re.match(r"\| `(\w+)` \|", line)  # of the table of packages: paths are relative to the package
            package = row.group(1) if row and (ROOT / "adfpp" / row.group(1)).is_dir() else None
            for text, name in re.findall(r"`([\w/]+(?:\.py|/))(?::([\w.]+))?`", line):
                top = text.split("/")[0]
                below = ROOT / "adfpp" / package if package else ROOT / "adfpp"
                yield page, (ROOT if (ROOT / top).exists() and "/" in text else below) / text, name or None


def definitions(path: Path) -> set[str]:
    """The names that a module defines at its top level, and the methods of its classes."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        names |= {getattr(t, "name", None) or getattr(t, "id", "") for t in targets}
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def test_code_in_the_docs_is_python() -> None:
    """Blocks in docs/ at least compile."""
    blocks = [
        b for p in (ROOT / "docs").rglob("*.md") for b in re.findall(r"```python\n(.*?)```", p.read_text("utf-8"), re.S)
    ]
    assert len(blocks) >= 4
    for block in blocks:
        compile(block, "docs", "exec")
