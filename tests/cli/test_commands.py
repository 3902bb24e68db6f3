"""The commands other than ``stream``: each does what Python does, prints it and writes it."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import xarray

import adfpp
from tests.cli.conftest import Run
from tests.cli.data import STREAM, numbers
from tests.cli.sample_models import model


def test_explain_is_explain(run: Run):
    """The command prints what Python does; without --rows it finds the columns by name."""
    data = numbers()[:50]
    expected = str(adfpp.ADF(model).explain(data[:, 1:], y=data[:, 0]))
    code, out, _ = run("explain", "m.py:model", "--data", "d.csv", "--rows", "y=label,x=a+b")
    assert (code, out.strip()) == (0, expected)
    code, out, err = run("explain", "m.py", "--data", "-", text="y,a,b\n1,2,3\n")
    assert (code, out.strip()) == (0, expected)
    assert "--rows y=y,x=a+b" in err


def test_missing_netcdf_is_noticed_before_the_work(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, err = run(*STREAM, "d.csv", "--checkpoint", "c", "--out", "o")
    assert code == 1 and "pip install 'adfpp[netcdf]'" in err and not Path("c").exists() and not Path("o").exists()


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_a_report_that_cannot_be_written_is_noticed_before_the_work(
    run: Run, monkeypatch: pytest.MonkeyPatch, missing: str
):
    """Before NUTS runs, and before anything is read or written."""
    monkeypatch.setattr(adfpp, "compare", lambda *args, **kwargs: pytest.fail("it was run"))
    monkeypatch.setitem(sys.modules, missing, None)  # as if it were not installed
    code, out, err = run("compare", "m.py", "--data", "d.csv", "--rows", "y=label,x=a+b", "--out", "o")
    assert code == 1 and out == "" and not Path("o").exists()
    assert err.lower().startswith(f"adfpp: --out writes a report by {missing}, which is not installed")
    assert "pip install 'adfpp[report]'" in err


def test_compare_hands_over_and_writes(run: Run, monkeypatch: pytest.MonkeyPatch):
    """The arguments that ``compare`` gets, and the files that are made of what it gives back."""
    seen: dict[str, Any] = {}

    def stand_in(key: jax.Array, runs: Any, *args: Any, **kwargs: Any) -> Any:
        seen.update(kwargs, key=key, runs=runs, args=args, x64=jax.numpy.zeros(()).dtype == float)
        table = pd.DataFrame({"error_max": [0.25], "verdict": ["rather good"]}, index=["adf"])
        return SimpleNamespace(
            overview=table,
            parameters=table,
            report=lambda path: Path(path).write_text("<html>"),
            to_arviz=lambda: {"adf": SimpleNamespace(to_netcdf=lambda path: Path(path).write_bytes(b"CDF"))},
        )

    monkeypatch.setattr(adfpp, "compare", stand_in)
    words = ("compare", "m.py", "--data", "d.csv", "--rows", "y=label,x=a+b", "--set", "noise=0.5", "--out", "o")
    code, out, _ = run(*words, "--samples", "30", "--warmup", "20", "--chains", "2", "--seed", "9")
    assert code == 0 and "0.25" in out and "adf: rather good" in out
    assert {p.name for p in Path("o").iterdir()} == {"overview.csv", "parameters.csv", "report.html", "adf.nc"}
    assert np.array_equal(seen["x"], numbers()[:50, 1:]) and np.array_equal(seen["y"], numbers()[:50, 0])
    assert list(seen["runs"]) == ["adf", "ep"] and isinstance(seen["runs"]["ep"], adfpp.EP)
    assert isinstance(seen["runs"]["adf"], adfpp.ADF) and seen["noise"] == 0.5 and seen["reference"] == "auto"
    assert (seen["num_samples"], seen["num_warmup"], seen["num_chains"]) == (30, 20, 2)
    assert seen["key"] == jax.random.key(9) and seen["args"] == () and seen["x64"]
    assert run(*words[:-2], "--runs", "svi, laplace,ep")[0] == 0
    assert [type(r).__name__ for r in seen["runs"].values()] == ["SVI", "SVI", "EP"]
    assert type(seen["runs"]["svi"].guide).__name__ == "AutoMultivariateNormal"
    assert type(seen["runs"]["laplace"].guide).__name__ == "AutoLaplaceApproximation"


def test_runs_and_options_that_do_not_go_together_are_refused(run: Run):
    data = ("m.py", "--data", "d.csv", "--rows", "y=label,x=a+b")
    code, _, err = run("compare", *data, "--runs", "adf,gibbs")
    assert code == 1 and "no run 'gibbs'; the runs are adf, ep, laplace, svi" in err
    for words in (("compare", *data), ("check", *data, "--ep")):
        code, _, err = run(*words, "--dynamics", "discount=0.99")
        assert code == 1 and "parameters that do not change in time" in err


@pytest.mark.parametrize("words", [(), ("--shuffle",), ("--ep",)])
def test_check_prints_the_posterior_and_what_it_says_of_itself(run: Run, words: tuple[str, ...]):
    """A linear model, of which every learner is exact."""
    code, out, err = run("check", "m.py", "--data", "d.csv", "--rows", "y=label,x=a+b", *words)
    assert code == 0, err
    x, y = numbers()[:50, 1:], numbers()[:50, 0]
    mean = np.linalg.solve(np.eye(2) / 4 + x.T @ x, x.T @ y)
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.startswith("w[")}
    assert [float(rows[f"w[{i}]"][1]) for i in range(2)] == pytest.approx(mean, rel=1e-4)
    assert "trust it" in out and ("sweeps  " in out) == ("--ep" in words)


@pytest.mark.slow
def test_compare_end_to_end(run: Run):
    """With NUTS itself, which agrees with this linear model's online posterior; every file is written."""
    words = ("compare", "m.py", "--data", "d.csv", "--rows", "y=label,x=a+b", "--out", "o")
    code, out, err = run(*words, "--samples", "2000", "--warmup", "500", "--chains", "2")
    assert code == 0, err
    assert "adf: " in out and "ep: " in out and "nuts: " in out
    assert {p.name for p in Path("o").iterdir()} == {
        "overview.csv",
        "parameters.csv",
        "report.html",
        "adf.nc",
        "ep.nc",
        "nuts.nc",
    }
    overview = pd.read_csv("o/overview.csv", index_col=0)
    for name in ("adf", "ep"):
        assert overview.loc[name, "error_max"] < 0.15 and 0.9 < overview.loc[name, "sd_ratio_min"]
    with xarray.open_dataset("o/nuts.nc", group="posterior") as draws:
        assert draws["w"].shape == (2, 1000, 2)
