"""Runs commands within the process of the tests: starting another one costs seconds."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from adfpp.cli import main
from tests.cli.data import HEADER, lines
from tests.products import coins  # noqa: F401

Run: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a folder with a model file and data; standard input is ``text``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text("from tests.cli.sample_models import coin, groups, model\n\nconstant = 3\n")
    (tmp_path / "own.py").write_text("from math import floor\n\ndef first(x): ...\n\ndef second(x): ...\n")
    (tmp_path / "d.csv").write_text(HEADER + lines(0, 50))

    def command(*words: str, text: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        code = main(words)
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return code, output.out, output.err

    return command
