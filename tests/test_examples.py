"""Every script of examples/ runs, says something, and draws the picture that it names; the docs lead to it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(p for p in (ROOT / "examples").rglob("*.py") if p.name != "demo.py")  # CI runs that one by itself

OPTIONS = {"ising": ["--teachers", "2", "--weights", "200"]}  # what makes a long script shorter


def run(script: Path, cwd: Path, out: Path) -> str:
    """What a script prints on a clean run in a process of its own; warnings of ours end it with an error."""
    call = [sys.executable, "-W", "error::UserWarning", str(script), "--out", str(out), *OPTIONS.get(script.stem, [])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(call, cwd=cwd, env=environment, capture_output=True, text=True, timeout=1200)  # if it hangs
    assert done.returncode == 0, done.stderr
    return done.stdout


def refuse_blank(picture: Path) -> None:
    """A PNG of the size of a page's figure, with ink of more than one colour in every quarter."""
    from matplotlib.image import imread

    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert 20_000 < picture.stat().st_size < 500_000
    pixels = np.asarray(imread(picture))[..., :3]
    height, width, _ = pixels.shape
    assert 300 <= height <= 2000 and 500 <= width <= 2400
    assert len(np.unique((pixels * 255).astype(int).reshape(-1, 3), axis=0)) > 20
    for rows in (slice(None, height // 2), slice(height // 2, None)):
        for columns in (slice(None, width // 2), slice(width // 2, None)):
            assert pixels[rows, columns].std() > 0.03, "a quarter of the picture is blank"


def test_there_are_scripts() -> None:
    """The parametrised test below would pass with none."""
    assert {"custom_likelihood.py", "posterior_as_prior.py", "drifting_stream.py"} <= {p.name for p in SCRIPTS}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_it_runs_and_draws(script: Path, tmp_path: Path) -> None:
    """It ends well, prints a result, and its only picture is the one that it says it wrote."""
    out = tmp_path / "made" / "by it"
    printed = run(script, tmp_path, out)
    named = re.findall(r"^picture: (.+)$", printed, re.M)
    assert len(named) == 1
    assert len(printed.splitlines()) > 3, "it prints nothing but the picture's place"
    assert [p.resolve() for p in out.rglob("*.png")] == [Path(named[0]).resolve()]
    assert not (tmp_path / "example_output").exists(), "it writes where it was not told to"
    refuse_blank(Path(named[0]))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_the_docs_lead_to_it(script: Path) -> None:
    """A page links to the script, and its docstring says how to call it."""
    pages, where = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")], script.relative_to(ROOT).as_posix()
    assert any(f"{where})" in p.read_text(encoding="utf-8") for p in pages)
    assert f"python {where} [--out DIR]" in script.read_text(encoding="utf-8")
