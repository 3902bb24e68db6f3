"""From words to what a command works on: models, constants, families."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from adfpp.cli import UsageError
from adfpp.cli.inputs import family_of, model_named
from tests.cli.conftest import Run
from tests.cli.data import REPOSITORY, state_of


def test_models_by_name(monkeypatch: pytest.MonkeyPatch):
    """A name stands for a model of the folder ``models`` here; of other names the nearest is shown."""
    monkeypatch.chdir(REPOSITORY)
    assert model_named("linear").__module__ == "models.linear"
    with pytest.raises(UsageError, match="There is no model 'logistik'. Did you mean logistic.*student_t"):
        model_named("logistik")


def test_a_model_file_imports_its_neighbours(run: Run):
    """As a script does; and the search path is as before afterwards."""
    Path("neighbour.py").write_text("def model(x): ...\n")
    Path("imports.py").write_text("from neighbour import model as other\ndef model(x): ...\n")
    before = list(sys.path)
    assert model_named("imports.py:other").__module__ == "neighbour"
    assert model_named("imports.py").__name__ == "model" and sys.path == before


def test_constants(run: Run):
    """Numbers, truth values and words reach the model as such; ``count`` is a number of categories."""
    Path("c.py").write_text("def model(x, n, flag, word, g=None):\n    raise ValueError(repr((n, flag, word)))\n")
    words = ("explain", "c.py", "--data", "d.csv", "--rows", "x=a,g=city:code")
    code, _, err = run(*words, "--set", "n=count(g),flag=True", "--set", "word=two words")
    assert code == 1 and "(3, True, 'two words')" in err


def test_families_by_latent():
    assert family_of("diagonal") == "diagonal"
    assert family_of("precision=gamma, sign=bernoulli") == {"precision": "gamma", "sign": "bernoulli"}
    for text, message in (
        ("round", "--family round: it is one of"),
        ("p=betta", "no family 'betta' of a latent. Did you mean 'beta'"),
        ("p=", "like --family precision=gamma,w=full"),
        ("p=beta,p=full", "names the latent 'p' twice"),
    ):
        with pytest.raises(UsageError, match=message):
            family_of(text)


@pytest.mark.slow
def test_a_family_by_latent_is_remembered(run: Run, tmp_path: Path):
    """A conjugate model in its native space is exact; the stream continues in the same family."""
    (tmp_path / "y.csv").write_text("y\n1\n0\n1\n")
    words = ("stream", "m.py:coin", "--data", "y.csv", "--rows", "y=y:int", "--checkpoint", "c")
    code, out, err = run(*words, "--family", "p=beta")
    assert code == 0 and re.search(r"^p +0\.5 +0\.166667 ", out, re.MULTILINE), err  # Beta(4, 4)
    before = state_of("c")
    code, out, err = run(*words)
    assert code == 0 and re.search(r"^p +0\.5 +0\.166667 ", out, re.MULTILINE) and "continuing after row 3" in err
    assert np.array_equal(state_of("c")[".belief.parts[0]"], before[".belief.parts[0]"])
