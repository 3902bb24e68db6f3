"""``adfpp stream``: what it prints and keeps, and that continuing gives the bits of a run that never stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import xarray

import adfpp
from adfpp.cli import UsageError, main
from adfpp.cli.inputs import family_of as parsed_family
from adfpp.io import checkpoint
from tests.cli.conftest import Run
from tests.cli.data import HEADER, REPOSITORY, STREAM, arrays, lines, numbers, state_of
from tests.cli.sample_models import model


def test_stream_is_update(run: Run):
    """A file in chunks is ``update`` chunk by chunk, bit for bit; refused rows are counted, results written."""
    Path("d.csv").write_text(HEADER + lines(0, 20) + ",1,2,Rome\n" + lines(20, 49))
    code, out, _ = run(*STREAM, "d.csv", "--checkpoint", "c", "--out", "out", "--seed", "5")
    assert code == 0
    data = np.insert(numbers()[:49], 20, [np.nan, 1.0, 2.0], 0)
    adf = adfpp.ADF(model)
    state, score = adf.init(jax.random.key(5), data[:16, 1:], y=data[:16, 0]), 0.0
    for start in range(0, 50, 16):
        part = data[start : start + 16]
        state, info = adf.update(state, part[:, 1:], y=part[:, 0])
        score += float(np.sum(info.log_z))
    saved = state_of("c")
    assert np.array_equal(saved[".belief.mean"], state.belief.mean)
    assert np.array_equal(saved[".belief.scale"], state.belief.scale)
    assert np.array_equal(saved[".rng_key"], jax.random.key_data(jax.random.key(5)))
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


def stopping_at(monkeypatch: pytest.MonkeyPatch, save_number: int, *signals: int) -> None:
    """Sends signals to this process after a checkpoint was written."""
    save, calls = checkpoint.save, []

    def interrupted(*args: Any, **kwargs: Any) -> None:
        save(*args, **kwargs)
        calls.append(None)
        if len(calls) == save_number:
            for number in signals:
                signal.raise_signal(number)

    monkeypatch.setattr(checkpoint, "save", interrupted)


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_file_continues_to_the_same_bits(run: Run, monkeypatch: pytest.MonkeyPatch, number: int, expected: int):
    """A signal in the middle of a file: a checkpoint, its exit code, and the rest later as if it had never happened."""
    assert run(*STREAM, "d.csv", "--checkpoint", "unbroken")[0] == 0
    before = signal.getsignal(number)
    with monkeypatch.context() as patched:
        stopping_at(patched, 2, number)
        code, out, err = run(*STREAM, "d.csv", "--checkpoint", "c")
    assert code == expected and "stopped after 32 rows; the same command continues from here" in err
    assert "w[1]" in out and checkpoint.peek("c")["seen"] == 32
    assert signal.getsignal(number) is before
    code, out, err = run("stream", "m.py", "--data", "d.csv", "--checkpoint", "c")  # all options are remembered
    assert code == 0 and "continuing after row 32 of d.csv" in err and "rows 50 " in out
    assert arrays("c") == arrays("unbroken")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where a shell has started the tests in the background and ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_second_signal_does_not_wait(run: Run, monkeypatch: pytest.MonkeyPatch):
    """The command ends at once; the checkpoint that was written before is whole."""
    stopping_at(monkeypatch, 2, signal.SIGINT, signal.SIGINT)
    code, out, err = run(*STREAM, "d.csv", "--checkpoint", "c")
    assert code == 130 and "adfpp: interrupted" in err and "w[1]" not in out
    assert checkpoint.peek("c")["seen"] == 32


def test_stopped_standard_input_continues_to_the_same_bits(run: Run, tmp_path: Path):
    """A process that is stopped while it waits for lines keeps all that it has read, also rows not yet absorbed."""
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
    assert "stopped after 64 rows and 6 that wait in the checkpoint for their chunk to be complete" in err
    progress = checkpoint.peek("c")
    assert progress["seen"] == 64 and len(progress["pending"]["y"]) == 6

    assert run("stream", "m.py", "--data", "-", "--checkpoint", "c", text=lines(70, 120))[0] == 0  # no header again
    assert run(*STREAM, "-", "--checkpoint", "unbroken", text=HEADER + lines(0, 120))[0] == 0
    assert arrays("c") == arrays("unbroken")
    assert checkpoint.peek("c")["seen"] == 120 and not checkpoint.peek("c")["pending"]
    code, out, _ = run("stream", "m.py", "--data", "-", "--checkpoint", "c")  # nothing more: still reports
    assert code == 0 and "rows 120 " in out and arrays("c") == arrays("unbroken")


def test_files_are_known_by_their_rows(run: Run):
    """Nothing is counted twice: a finished file, a copy, a file that grew, another file, a changed file."""
    go = ("--checkpoint", "c")
    assert run(*STREAM, "d.csv", *go)[0] == 0
    before = arrays("c")
    Path("copy.csv").write_text(HEADER + lines(0, 50))
    for name in ("d.csv", "copy.csv"):
        code, _, err = run(*STREAM, name, *go)
        assert code == 0 and f"continuing after row 50 of {name}" in err and arrays("c") == before

    Path("d.csv").write_text(HEADER + lines(0, 60))
    assert "continuing after row 50" in run(*STREAM, "d.csv", *go)[2]
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
    ("words", "message"),
    [
        (("--rows", "y=label,x=b+a"), "--rows y=label,x=b+a differs from that of the checkpoint, y=label,x=a+b"),
        (("--set", "noise=2.0"), "argument 'noise'"),
        (("--family", "diagonal"), "family: type is Full in the checkpoint and Diagonal here"),
        (("--dynamics", "discount=0.9"), "dynamics: type is Static in the checkpoint and Discount here"),
        (("--float32",), "precision is float64 in the checkpoint and float32 here"),
    ],
)
def test_other_options_are_refused(run: Run, words: tuple[str, ...], message: str):
    """A checkpoint continues only with the options that it was started with, and is left alone otherwise."""
    assert run(*STREAM, "d.csv", "--checkpoint", "c")[0] == 0
    content = Path("c").read_bytes()
    code, _, err = run("stream", "m.py", "--data", "d.csv", "--checkpoint", "c", *words)
    assert code == 1 and message in err and Path("c").read_bytes() == content


def test_foreign_checkpoints_are_refused(run: Run):
    """A file that is no checkpoint, and a checkpoint that does not say how far a stream was read."""
    Path("c").write_text("precious")
    code, _, err = run(*STREAM, "d.csv", "--checkpoint", "c")
    assert code == 1 and "c is not a checkpoint of adfpp" in err and Path("c").read_text() == "precious"
    adf, data = adfpp.ADF(model), numbers()
    adfpp.save("own", adf, adf.init(jax.random.key(0), data[:, 1:], y=data[:, 0]))
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
    """An error in the middle of a file ends with a checkpoint; the corrected file continues from there."""
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
    adf, (y, a, gap) = adfpp.ADF(model, dynamics=adfpp.RandomWalk(0.1)), numbers()[:10].T
    call: dict[str, Any] = {"x": a[:, None], "y": y, "dt": abs(gap)}
    state, _ = adf.update(adf.init(jax.random.key(0), **call), **call)
    assert np.array_equal(state_of("c")[".belief.mean"], state.belief.mean)
    assert run(*words, "--float32", "--checkpoint", "single")[0] == 0
    assert state_of("single")[".belief.mean"].dtype == np.float32


def with_counts(path: str, counts: Any) -> None:
    """The same checkpoint with other counts of rows by status."""
    data = numbers()
    adf = adfpp.ADF(model)
    state, progress = adfpp.load(path, adf, x=data[:1, 1:], y=data[:1, 0])
    adfpp.save(path, adf, state, **(progress | {"counts": counts}))


def test_statuses_are_kept_by_name(run: Run):
    """Their codes may be numbered in another way by the version that continues."""
    Path("d.csv").write_text(HEADER + lines(0, 20) + ",1,2,Rome\n" + lines(20, 49))
    assert run(*STREAM, "d.csv", "--checkpoint", "c")[0] == 0
    counts = {status.name: 0 for status in adfpp.Status} | {"OK": 49, "NOT_FINITE": 1}
    assert checkpoint.peek("c")["counts"] == counts

    with_counts("c", {"UNRELIABLE": 2, "TEMPERED": 3, "OK": 45})  # in another order, and without the other names
    code, out, _ = run("stream", "m.py", "--data", "d.csv", "--checkpoint", "c")
    assert code == 0 and "rows 50 " in out and "refused 2" in out
    counted = [line.split(":")[0].split() for line in out.splitlines() if "absorbed" in line or ": refused" in line]
    assert counted == [["45", "OK"], ["3", "TEMPERED"], ["2", "UNRELIABLE"]]

    for unknown in ([49, 0, 1], {"OK": 49, "LOST": 1}):
        with_counts("c", unknown)
        content = Path("c").read_bytes()
        code, _, err = run("stream", "m.py", "--data", "d.csv", "--checkpoint", "c")
        assert code == 1 and "another version of adfpp, whose counts of rows by status cannot be read" in err
        assert Path("c").read_bytes() == content


def test_a_growing_file_may_end_in_half_a_line(run: Run):
    """The half line is an error that costs nothing: when it is whole, the stream continues to the same bits."""
    full = HEADER + lines(0, 50)
    Path("d.csv").write_text(full)
    assert run(*STREAM, "d.csv", "--checkpoint", "unbroken")[0] == 0
    Path("d.csv").write_text(full[: full.index(lines(40, 50)) + 6])
    code, _, err = run(*STREAM, "d.csv", "--checkpoint", "c")
    assert code == 1 and "row 41 (line 42) has" in err and checkpoint.peek("c")["seen"] == 32
    Path("d.csv").write_text(full)
    assert "continuing after row 32" in run(*STREAM, "d.csv", "--checkpoint", "c")[2]
    assert arrays("c") == arrays("unbroken")


def test_a_file_whose_first_chunk_was_bad_can_be_corrected(run: Run):
    """Nothing was absorbed of it, so it has not changed since."""
    assert run(*STREAM, "d.csv", "--checkpoint", "c")[0] == 0
    Path("e.csv").write_text(HEADER + "old,1,2,Rome\n" + lines(61, 80))
    assert run(*STREAM, "e.csv", "--checkpoint", "c")[0] == 1
    Path("e.csv").write_text(HEADER + lines(60, 80))
    code, _, err = run(*STREAM, "e.csv", "--checkpoint", "c")
    assert code == 0, err
    assert checkpoint.peek("c")["seen"] == 70


@pytest.mark.slow
@pytest.mark.parametrize("saves", [1, 3])
def test_a_killed_process_continues_to_the_same_bits(saves: int, run: Run, tmp_path: Path):
    """After SIGKILL, which nothing can answer, the last checkpoint is whole and the stream continues from it."""
    Path("d.csv").write_text(HEADER + "".join(lines(0, 120) for _ in range(100)))
    assert run(*STREAM, "d.csv", "--checkpoint", "unbroken")[0] == 0
    words = [sys.executable, "-m", "adfpp", *STREAM, "d.csv", "--checkpoint", "c"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, cwd=tmp_path) as process:
        assert process.stdout is not None
        for _ in range(saves):
            process.stdout.readline()
        process.kill()
    assert process.returncode == -signal.SIGKILL
    seen = checkpoint.peek("c")["seen"]
    assert 16 * saves <= seen < 12_000 and seen % 16 == 0
    code, _, err = run("stream", "m.py", "--data", "d.csv", "--checkpoint", "c")
    assert code == 0 and f"continuing after row {seen}" in err
    assert arrays("c") == arrays("unbroken")


@pytest.mark.slow
def test_command_line_by_site(coins: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert parsed_family("diagonal") == "diagonal"
    assert parsed_family("precision=gamma, sign=bernoulli") == {"precision": "gamma", "sign": "bernoulli"}
    for text, words in (("round", "--family round: it is one of"), ("p=betta", "Did you mean 'beta'"), ("p=", "like")):
        with pytest.raises(UsageError, match=words):
            parsed_family(text)
    with pytest.raises(UsageError, match="'p' twice"):
        parsed_family("p=beta,p=full")
    (tmp_path / "m.py").write_text(
        "import numpyro, numpyro.distributions as dist\n"
        "def model(y):\n"
        "    p = numpyro.sample('p', dist.Beta(2.0, 3.0))\n"
        "    with numpyro.plate('rows', y.shape[0]):\n"
        "        numpyro.sample('y', dist.Bernoulli(p), obs=y)\n"
    )
    (tmp_path / "d.csv").write_text("y\n" + "\n".join(map(str, coins)) + "\n")
    words = ["stream", str(tmp_path / "m.py"), "--data", str(tmp_path / "d.csv"), "--rows", "y=y:int"]
    assert main([*words, "--family", "p=beta", "--checkpoint", str(tmp_path / "c")]) == 0
    mean = (2 + coins.sum()) / (5 + len(coins))
    assert f"p  {mean:.2f}" in capsys.readouterr().out
    assert main([*words, "--checkpoint", str(tmp_path / "c")]) == 0  # remembered
    assert f"p  {mean:.2f}" in capsys.readouterr().out
