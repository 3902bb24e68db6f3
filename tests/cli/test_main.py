"""The entry point: help, exit codes, and errors in one message each."""

import os
import re
import subprocess
import sys
from typing import Any

import pytest

import adfpp
from adfpp.cli import UsageError, commands, main
from adfpp.cli.main import WHOLE_LOOPS
from tests.cli.conftest import Run
from tests.cli.data import REPOSITORY, STREAM

DATA = ("--data", "d.csv", "--rows", "y=label,x=a+b")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--version"], adfpp.__version__),
        (["--help"], "{explain,stream,check,compare,reproduce}|explain .*stream .*check .*compare .*reproduce"),
        (["stream", "--help"], "--checkpoint"),
        (["compare", "--help"], "--reference"),
        (["reproduce", "--help"], "--pages"),
    ],
)
def test_version_and_help(words: list[str], text: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit:
        main(words)
    assert exit.value.code == 0
    assert re.search(text, capsys.readouterr().out, re.DOTALL)


@pytest.mark.parametrize("given", ["", "--xla_cpu_multi_thread_eigen=false"])
def test_the_command_compiles_whole_loops(given: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["adfpp", "--version"])
    monkeypatch.setenv("XLA_FLAGS", given)
    with pytest.raises(SystemExit):
        main()
    assert os.environ["XLA_FLAGS"].split() == [*given.split(), WHOLE_LOOPS]  # XLA knows the option: the tests use it
    own = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1"
    monkeypatch.setenv("XLA_FLAGS", own)
    with pytest.raises(SystemExit):
        main()
    assert os.environ["XLA_FLAGS"] == own


def test_help_imports_nothing_that_is_slow():
    """JAX and NumPyro come with the commands and the public names of adfpp, not with the parser."""
    code = (
        "import sys\n"
        "from adfpp.cli import main\n"  # as the installed command does it
        "try: main(['--help'])\n"
        "finally: assert not {'jax', 'numpyro', 'numpy', 'scipy', 'pandas'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0 and "COMMAND" in done.stdout, done.stderr


def test_unknown_commands_are_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit:
        main(["nothing"])
    assert exit.value.code == 2
    listed = capsys.readouterr().err.rpartition("choose from")[2]
    assert all(name in listed for name in commands.COMMANDS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("explain", "n.py:model", "--data", "d.csv"), "There is no file n.py"),
        (("explain", "own.py:modle", "--data", "d.csv"), "no function 'modle'. Its functions are first, second: write"),
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
        ((*STREAM, "d.csv", "--checkpoint", "."), "is a folder; give a file's name"),
        (("explain", "m.py", *DATA, "--set", "noise=[1]"), "constants are numbers, true, false or words"),
        (("explain", "m.py", *DATA, "--categories", "city"), "like --categories city=Rome,Oslo; this is not: 'city'"),
        (("explain", "m.py", *DATA, "--categories", "city=Rome,Rome"), "has 'Rome' twice"),
        (("explain", "m.py", *DATA, "--categories", "city=Rome"), "--categories names 'city'"),
        (("explain", "m.py", *DATA, "--family", "round"), "it is one of full, diagonal, spherical for all latents"),
        (("reproduce",), "Name papers or experiments, or give --all"),
        (("reproduce", "opper", "--all"), "Name papers or experiments, or give --all"),
        (("reproduce", "opper", "--quick", "--pages", "."), "leave out --quick, or use --out"),
        (("reproduce", "opper", "--pages", "nowhere"), "There is no folder nowhere"),
    ],
)
def test_user_errors(run: Run, words: tuple[str, ...], message: str):
    """Code 1 and one message with the cause, not a traceback."""
    code, out, err = run(*words)
    assert code == 1 and out == ""
    assert err.splitlines()[-1].startswith("adfpp: ") and message in err


def test_traceback_on_request(run: Run):
    with pytest.raises(UsageError, match="There is no file"):
        run("explain", "n.py:model", "--data", "d.csv", "--traceback")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("It is wrong. Do this."), "adfpp: It is wrong. Do this."),
        (KeyError("w"), "adfpp: KeyError: 'w'. --traceback shows where it arose."),
        (TypeError("indices must have integer type."), "an index needs whole numbers: read its column as :int"),
    ],
)
def test_errors_become_messages(error: Exception, message: str, run: Run, monkeypatch: pytest.MonkeyPatch):
    """Those of adfpp say what to do; of others the type is named, and how to see more."""

    def fails(args: Any) -> int:
        raise error

    monkeypatch.setitem(commands.COMMANDS, "explain", fails)
    code, _, err = run("explain", "m.py", "--data", "d.csv")
    assert code == 1 and message in err
    with pytest.raises(type(error)):
        run("explain", "m.py", "--data", "d.csv", "--traceback")
