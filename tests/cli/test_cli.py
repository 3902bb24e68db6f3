"""The command line: what it prints, what it keeps, and that going on gives the bits of never having stopped."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import xarray

import adfpp
from adfpp.cli import UsageError, main
from adfpp.io import checkpoint

REPOSITORY = Path(__file__).parents[2]
MODELS = """
import numpyro, numpyro.distributions as dist

def model(x, y=None, noise=1.0):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, noise), obs=y)

def groups(g, n_groups, y=None):
    with numpyro.plate("groups", n_groups):
        z = numpyro.sample("z", dist.Normal(0, 2))
    with numpyro.plate("rows", g.shape[0]):
        numpyro.sample("y", dist.Normal(z[g], 1.0), obs=y)

constant = 3
"""
HEADER = "label,a,b,city\n"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a folder with a model file and data; standard input is ``text``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODELS)
    (tmp_path / "d.csv").write_text(HEADER + lines(0, 50))

    def command(*words: str, text: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        code = main(words)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return command


def numbers() -> np.ndarray:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(120, 2)).round(3)
    y = (x @ [1.0, -2.0] + rng.normal(size=120)).round(3)
    return np.column_stack([y, x])


def lines(start: int, stop: int) -> str:
    rows = zip(range(start, stop), numbers()[start:stop], strict=True)
    return "".join(f"{y},{a},{b},{['Rome', 'Oslo', 'Bonn'][i % 3]}\n" for i, (y, a, b) in rows)


def arrays(path: str | Path) -> dict[str, bytes]:
    """The state in a checkpoint, as bytes."""
    with np.load(path, allow_pickle=False) as archive:
        return {n: archive[n].tobytes() for n in archive.files if n.startswith("state")}


def state_of(path: str | Path) -> dict[str, np.ndarray]:
    """The state in a checkpoint by name, read with NumPy alone."""
    with np.load(path, allow_pickle=False) as archive:
        names = [e["name"] for e in json.loads(archive["header"].tobytes())["state"]]
        return {name: archive[f"state{i}"] for i, name in enumerate(names)}


STREAM = ("stream", "m.py", "--rows", "y=label,x=a+b", "--chunk", "16", "--every", "16", "--data")


def test_version_and_help(capsys: pytest.CaptureFixture[str]):
    for words, told in (["--version"], adfpp.__version__), (["stream", "--help"], "--checkpoint"):
        with pytest.raises(SystemExit) as exit:
            main(words)
        assert exit.value.code == 0
        assert told in capsys.readouterr().out


def test_explain_is_explain(run: Run):
    """The command prints what Python does; without --rows it finds the columns by name."""
    data = numbers()[:50]
    space: dict[str, Any] = {}
    exec(MODELS, space)
    expected = str(adfpp.ADF(space["model"]).explain(data[:, 1:], y=data[:, 0]))
    code, out, _ = run("explain", "m.py:model", "--data", "d.csv", "--rows", "y=label,x=a+b")
    assert (code, out.strip()) == (0, expected)
    code, out, err = run("explain", "m.py", "--data", "-", text="y,a,b\n1,2,3\n")
    assert (code, out.strip()) == (0, expected)
    assert "--rows y=y,x=a+b" in err


def test_stream_is_update(run: Run):
    """A file in chunks is ``update`` chunk by chunk, bit for bit; refused rows are counted, results written."""
    Path("d.csv").write_text(HEADER + lines(0, 20) + ",1,2,Rome\n" + lines(20, 49))
    code, out, _ = run(*STREAM, "d.csv", "--checkpoint", "c", "--out", "out", "--seed", "5")
    assert code == 0
    data = np.insert(numbers()[:49], 20, [np.nan, 1.0, 2.0], 0)
    space: dict[str, Any] = {}
    exec(MODELS, space)
    adf = adfpp.ADF(space["model"])
    state, score = adf.init(jax.random.key(5), data[:16, 1:], y=data[:16, 0]), 0.0
    for start in range(0, 50, 16):
        part = data[start : start + 16]
        state, info = adf.update(state, part[:, 1:], y=part[:, 0])
        score += float(np.sum(info.log_z))
    found = state_of("c")
    assert np.array_equal(found[".belief.mean"], state.belief.mean)
    assert np.array_equal(found[".belief.scale"], state.belief.scale)
    assert np.array_equal(found[".rng_key"], jax.random.key_data(jax.random.key(5)))
    assert out.splitlines()[0].startswith("rows 16  log score ") and out.splitlines()[2].startswith("rows 48  log")
    assert f"rows 50  log score {score / 49:.4f}  refused 1" in out
    assert "49 OK: absorbed" in out and "1 NOT_FINITE: refused" in out
    summary = pd.read_csv("out/summary.csv", index_col=0)
    np.testing.assert_allclose(summary["mean"], state.belief.mean, rtol=1e-12)
    with xarray.open_dataset("out/posterior.nc", group="posterior") as draws:
        assert dict(draws.sizes) == {"chain": 4, "draw": 1000, "w_dim_0": 2}
        error = (draws["w"].mean(("chain", "draw")).values - summary["mean"]) / (summary["sd"] / np.sqrt(4000))
        np.testing.assert_allclose(error, 0.0, atol=4.5)
        np.testing.assert_allclose(draws["w"].std(("chain", "draw")), summary["sd"], rtol=0.06)


def test_stopped_file_goes_on_to_the_same_bits(run: Run, monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C in the middle of a file: a checkpoint, code 130, and the rest later as if it had never happened."""
    assert run(*STREAM, "d.csv", "--checkpoint", "unbroken")[0] == 0
    save, calls = checkpoint.save, []

    def interrupted(*args: Any, **kwargs: Any) -> None:
        save(*args, **kwargs)
        calls.append(None)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save", interrupted)
        code, out, err = run(*STREAM, "d.csv", "--checkpoint", "c")
    assert code == 130 and "stopped after 32 rows; the same command goes on from here" in err
    assert "w[1]" in out and checkpoint.peek("c")["seen"] == 32
    code, out, err = run("stream", "m.py", "--data", "d.csv", "--checkpoint", "c")  # all options are remembered
    assert code == 0 and "going on after row 32 of d.csv" in err and "rows 50 " in out
    assert arrays("c") == arrays("unbroken")


def test_stopped_standard_input_goes_on_to_the_same_bits(run: Run, tmp_path: Path):
    """A process that is stopped while it waits for more lines keeps all it has read, also rows not yet folded."""
    words = [sys.executable, "-m", "adfpp", *STREAM, "-", "--checkpoint", "c"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=tmp_path
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write((HEADER + lines(0, 70)).encode())  # less than a pipe takes at once
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith(b"rows 64 "):
                break
        process.send_signal(signal.SIGINT)
        err = process.stderr.read().decode()
        assert process.wait() == 130, err
    assert "stopped after 64 rows and 6 that wait in the checkpoint for a whole chunk" in err
    progress = checkpoint.peek("c")
    assert progress["seen"] == 64 and len(progress["pending"]["y"]) == 6

    assert run("stream", "m.py", "--data", "-", "--checkpoint", "c", text=lines(70, 120))[0] == 0  # no header again
    assert run(*STREAM, "-", "--checkpoint", "unbroken", text=HEADER + lines(0, 120))[0] == 0
    assert arrays("c") == arrays("unbroken")
    assert checkpoint.peek("c")["seen"] == 120 and not checkpoint.peek("c")["pending"]
    code, out, _ = run("stream", "m.py", "--data", "-", "--checkpoint", "c")  # nothing more: still tells
    assert code == 0 and "rows 120 " in out and arrays("c") == arrays("unbroken")


def test_files_are_known_by_their_rows(run: Run):
    """Nothing is counted twice: a finished file, a copy, a file that grew, another file, a changed file."""
    go = ("--checkpoint", "c")
    assert run(*STREAM, "d.csv", *go)[0] == 0
    before = arrays("c")
    Path("copy.csv").write_text(HEADER + lines(0, 50))
    for name in ("d.csv", "copy.csv"):
        code, _, err = run(*STREAM, name, *go)
        assert code == 0 and f"going on after row 50 of {name}" in err and arrays("c") == before

    Path("d.csv").write_text(HEADER + lines(0, 60))
    assert "going on after row 50" in run(*STREAM, "d.csv", *go)[2]
    assert checkpoint.peek("c")["seen"] == 60
    Path("e.csv").write_text(HEADER + lines(60, 80))
    assert run(*STREAM, "e.csv", *go)[0] == 0 and checkpoint.peek("c")["seen"] == 80
    assert run(*STREAM, "d.csv", *go)[0] == 0 and checkpoint.peek("c")["seen"] == 80

    content = Path("c").read_bytes()
    Path("d.csv").write_text(HEADER + lines(1, 60))
    code, _, err = run(*STREAM, "d.csv", *go)
    assert code == 1 and "d.csv has changed" in err and "--from-start" in err and Path("c").read_bytes() == content
    assert run(*STREAM, "d.csv", *go, "--from-start")[0] == 0 and checkpoint.peek("c")["seen"] == 139


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rows", "y=label,x=b+a"), "--rows y=label,x=b+a differs from the checkpoint's, y=label,x=a+b"),
        (("--set", "noise=2.0"), "argument 'noise'"),
        (("--family", "diagonal"), "family: type is Full in the checkpoint and Diagonal here"),
        (("--dynamics", "discount=0.9"), "dynamics: type is Static in the checkpoint and Discount here"),
        (("--float32",), "precision is float64 in the checkpoint and float32 here"),
    ],
)
def test_other_options_are_refused(run: Run, words: tuple[str, ...], told: str):
    """A checkpoint goes on only with what it was begun with, and is left alone otherwise."""
    assert run(*STREAM, "d.csv", "--checkpoint", "c")[0] == 0
    content = Path("c").read_bytes()
    code, _, err = run("stream", "m.py", "--data", "d.csv", "--checkpoint", "c", *words)
    assert code == 1 and told in err and Path("c").read_bytes() == content


def test_foreign_checkpoints_are_refused(run: Run):
    """A file that is no checkpoint, and a checkpoint that does not say how far a stream was read."""
    Path("c").write_text("precious")
    code, _, err = run(*STREAM, "d.csv", "--checkpoint", "c")
    assert code == 1 and "c is not a checkpoint of adfpp" in err and Path("c").read_text() == "precious"
    space: dict[str, Any] = {}
    exec(MODELS, space)
    adf, data = adfpp.ADF(space["model"]), numbers()
    checkpoint.save("own", adf, adf.init(jax.random.key(0), data[:, 1:], y=data[:, 0]))
    code, _, err = run(*STREAM, "d.csv", "--checkpoint", "own")
    assert code == 1 and "not written by adfpp stream" in err


def test_categories_stay_what_they_were(run: Run):
    """Codes are learned once and kept: a later file with fewer of them has the same codes."""
    words = ("stream", "m.py:groups", "--rows", "y=label,g=city:code", "--set", "n_groups=count(g)")
    assert run(*words, "--data", "d.csv", "--checkpoint", "c")[0] == 0
    assert checkpoint.peek("c")["categories"] == {"city": ["Bonn", "Oslo", "Rome"]}
    before = state_of("c")[".belief.mean"]
    assert before.shape == (3,)
    Path("e.csv").write_text("city,label\nRome,2.5\n")
    assert run("stream", "m.py:groups", "--data", "e.csv", "--checkpoint", "c")[0] == 0
    assert np.array_equal(state_of("c")[".belief.mean"] != before, [False, False, True])
    Path("f.csv").write_text("city,label\nKyiv,2.5\n")
    code, _, err = run("stream", "m.py:groups", "--data", "f.csv", "--checkpoint", "c")
    assert code == 1 and "row 1 (line 2), column 'city': 'Kyiv' is not one of its 3 categories" in err


def test_a_bad_row_keeps_what_came_before(run: Run):
    """An error in the middle of a file ends with a checkpoint; the mended file goes on from there."""
    Path("d.csv").write_text(HEADER + lines(0, 40) + "old,1,2,Rome\n" + lines(41, 50))
    code, _, err = run(*STREAM, "d.csv", "--checkpoint", "c")
    assert code == 1 and "row 41 (line 42), column 'label': 'old' is not a number" in err
    assert checkpoint.peek("c")["seen"] == 32
    Path("d.csv").write_text(HEADER + lines(0, 50))
    assert run(*STREAM, "d.csv", "--checkpoint", "c")[0] == 0
    assert run(*STREAM, "d.csv", "--checkpoint", "unbroken")[0] == 0
    assert arrays("c") == arrays("unbroken")


def test_dynamics_and_time_gaps(run: Run):
    """--dynamics and a column of time gaps are ADF's dynamics and dt; --float32 is single precision."""
    Path("t.csv").write_text("y,a,gap\n" + "".join(f"{y},{a},{abs(b)}\n" for y, a, b in numbers()[:10]))
    words = ("stream", "m.py", "--data", "t.csv", "--rows", "y=y,x=a+,dt=gap", "--dynamics", "random-walk=0.1")
    assert run(*words, "--checkpoint", "c")[0] == 0
    space: dict[str, Any] = {}
    exec(MODELS, space)
    adf, (y, a, gap) = adfpp.ADF(space["model"], dynamics=adfpp.RandomWalk(0.1)), numbers()[:10].T
    call: dict[str, Any] = {"x": a[:, None], "y": y, "dt": abs(gap)}
    state, _ = adf.update(adf.init(jax.random.key(0), **call), **call)
    assert np.array_equal(state_of("c")[".belief.mean"], state.belief.mean)
    assert run(*words, "--float32", "--checkpoint", "single")[0] == 0
    assert state_of("single")[".belief.mean"].dtype == np.float32


def test_models_by_name(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A name stands for a model of the folder ``models`` here; other names are told what there is."""
    monkeypatch.chdir(REPOSITORY)
    data = str(tmp_path / "d.csv")
    code, out, _ = run("explain", "linear", "--data", data, "--rows", "y=label,x=a+b")
    assert code == 0 and "factors of a row" in out
    code, _, err = run("explain", "logistik", "--data", data)
    assert code == 1 and "There is no model 'logistik'. Did you mean logistic?" in err and "student_t" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("explain", "n.py:model", "--data", "d.csv"), "There is no file n.py"),
        (("explain", "m.py:modle", "--data", "d.csv"), "no function 'modle'. Its functions are model, groups"),
        (("explain", "m.py:constant", "--data", "d.csv"), "no function 'constant'"),
        (("explain", "m.py", "--data", "e.csv"), "There is no file e.csv"),
        (("explain", "m.py", "--data", "m.py"), "the suffix '.py' is not known"),
        (("explain", "m.py", "--data", "d.csv", "--rows", "y=label,xx=a"), "no argument 'xx'. Did you mean 'x'?"),
        (("explain", "m.py", "--data", "d.csv", "--rows", "y=label"), "needs its argument 'x'"),
        (("explain", "m.py", "--data", "d.csv", "--rows", "y=lable,x=a+b"), "Did you mean 'label'?"),
        (("explain", "m.py", "--data", "d.csv", "--rows", "y=label,x=a+", "--set", "x=3"), "'x' is given twice"),
        (("explain", "m.py", "--data", "d.csv", "--set", "noise"), "this is not: 'noise'"),
        (
            ("explain", "m.py", "--data", "d.csv", "--rows", "y=label,x=a+b", "--set", "noise=count(x)"),
            "no argument 'x'",
        ),
        (("explain", "m.py", "--data", "d.csv", "--dynamics", "walk=1"), "--dynamics walk=1: it takes a name"),
        (
            ("explain", "m.py", "--data", "d.csv", "--rows", "y=label,x=a+b", "--dynamics", "discount=2"),
            "0 < forgetting",
        ),
        (
            ("explain", "m.py:groups", "--data", "d.csv", "--rows", "y=label,g=a", "--set", "n_groups=3"),
            ":int or :code",
        ),
        (("explain", "m.py", "--data", "-", "--rows", "y=label,x=a+b"), "standard input is empty"),
        ((*STREAM, "d.csv", "--checkpoint", "no/c"), "there is no folder"),
        ((*STREAM, "d.csv", "--chunk", "0"), "take whole numbers from 1 on"),
        ((*STREAM, "-"), "standard input is empty"),
    ],
)
def test_user_errors(run: Run, words: tuple[str, ...], told: str):
    """Code 1 and one message with the cause, not a traceback."""
    code, out, err = run(*words)
    assert code == 1 and out == ""
    assert err.splitlines()[-1].startswith("adfpp: ") and told in err


def test_netcdf_is_missed_before_the_work(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, err = run(*STREAM, "d.csv", "--checkpoint", "c", "--out", "o")
    assert code == 1 and "pip install 'adfpp[netcdf]'" in err and not Path("c").exists() and not Path("o").exists()


def test_traceback_on_request(run: Run):
    with pytest.raises(UsageError, match="There is no file"):
        run("explain", "n.py:model", "--data", "d.csv", "--traceback")


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

    import adfpp.judge.compare  # noqa: F401

    monkeypatch.setattr(sys.modules["adfpp.judge.compare"], "compare", stand_in)
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


def test_runs_and_options_that_do_not_go_together_are_told(run: Run):
    data = ("m.py", "--data", "d.csv", "--rows", "y=label,x=a+b")
    code, _, err = run("compare", *data, "--runs", "adf,gibbs")
    assert code == 1 and "no 'gibbs'; the runs are adf, ep, laplace, svi" in err
    for words in (("compare", *data), ("check", *data, "--ep")):
        code, _, err = run(*words, "--dynamics", "discount=0.99")
        assert code == 1 and "parameters that stay" in err


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
    """The real thing: NUTS agrees with this linear model's online posterior, and every file is there."""
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
