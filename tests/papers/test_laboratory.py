"""The laboratory: bands, tables, pages, pictures, the list of experiments, and runs at the same time.

The results of its experiments are checked by the experiments themselves, in ``adfpp reproduce``.
"""

import ast
import json
import math
import multiprocessing
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from adfpp import cli
from adfpp.papers import laboratory
from adfpp.papers.laboratory import (
    Bench,
    Experiment,
    Finding,
    Line,
    Outcome,
    Panel,
    Record,
    catalogue,
    learn_stream,
    mean_and_error,
    measured,
)
from adfpp.papers.laboratory.pages import BLOCK, filled, read_records, write_record
from adfpp.papers.laboratory.picture import draw
from adfpp.papers.laboratory.students import disagreement, noisy_rows
from adfpp.papers.theory.bona import bona_beta_law
from adfpp.papers.theory.covariance import full_online_constant
from adfpp.papers.theory.dichotomies import annealed_spread
from adfpp.papers.theory.perceptron import bayes_batch

PAGES = Path(__file__).parents[2] / "docs" / "papers"


def record() -> Record:
    findings = (
        Finding("error at α = 1", "ADF", 0.3211, 0.0042, theory=0.3206, paper=0.32, held="theory"),
        Finding("error at α = 2", "ADF", 0.281, 0.002, theory=0.2618, held="theory"),
    )
    line = Line("ADF", np.array([1.0, 2.0]), np.array([0.32, 0.28]), np.array([0.004, 0.002]))
    panels = (Panel("curve", "α", "error", (line, Line("theory", [1, 2], [0.32, 0.26], kind="theory")), "y"),)
    return Record("a-b", "A curve", "Figure 1", findings, panels, ("a note",), {"seed": 0}, command="go", seconds=2.0)


def test_bands_are_standard_errors() -> None:
    inside = Finding("a", "b", 1.0, 0.1, theory=1.29, held="theory")
    assert inside.passes and inside.z == pytest.approx(-2.9)
    assert Finding("a", "b", 1.0, 0.1, theory=1.31, held="theory").passes is False
    assert Finding("a", "b", 1.0, 0.1, theory=1.31, held="theory", tolerance=0.02, why="rounding").passes
    assert Finding("a", "b", 1.0, 0.1, paper=2.0).passes is None
    assert Finding("a", "b", 1.0, 0.1, theory=0.6, held="above").passes
    assert Finding("a", "b", 1.0, 0.1, theory=0.6, held="above").verdict == "ok >"
    assert Finding("a", "b", 1.0, 0.1, theory=1.4, held="below").verdict == "ok <"
    assert Finding("a", "b", 1.0, 0.1, theory=0.8, held="above").passes is False
    assert Finding("a", "b", 1.0, 0.1, theory=1.2, held="below").passes is False
    assert Finding("a", "b", math.nan, 0.1, theory=1.2, held="theory").passes is False
    assert Finding("a", "b", 1.0, math.inf, theory=1.2, held="theory").passes is False
    with pytest.raises(ValueError, match="its target is not given: give paper="):
        Finding("a", "b", 1.0, held="paper")
    with pytest.raises(ValueError, match="without a reason: give why="):
        Finding("a", "b", 1.0, theory=1.0, held="theory", tolerance=1.0)


@pytest.mark.papers
def test_bands_of_few_runs_are_as_rarely_left_as_those_of_many() -> None:
    """Means of 8 normal numbers are outside their own band with the probability of three standard deviations."""
    draws = np.random.default_rng(3).normal(size=(20_000, 8))
    actual = [measured("a", "b", values, theory=0.0, held="theory") for values in draws]
    outside = sum(not f.passes for f in actual)
    expected = sum(f.chance for f in actual)
    assert expected == pytest.approx(20_000 * 0.0026998, rel=1e-4)
    assert abs(outside - expected) < 4 * np.sqrt(expected)
    naive = sum(abs(f.z or 0.0) > 3.0 for f in actual)
    assert naive > 5 * expected


def test_tables_show_as_many_digits_as_are_known() -> None:
    head, first, second = record().table()
    assert head == ["what", "entry", "found", "theory", "paper", "z", ""]
    assert first == ["error at α = 1", "ADF", "0.3211 ± 0.0042", "0.3206", "0.32", "+0.1", "ok"]
    assert second[2:] == ["0.2810 ± 0.0020", "0.2618", "", "+9.6", "OUTSIDE"]
    assert [f.what for f in record().failed] == ["error at α = 2"]


def test_standard_errors_are_those_of_the_mean() -> None:
    draws = np.random.default_rng(0).normal(3.0, 2.0, (400, 2))
    mean, error = mean_and_error(draws)
    assert np.allclose(mean, draws.mean(0)) and np.allclose(error, np.std(draws, 0, ddof=1) / 20.0)
    with pytest.raises(ValueError, match="at least 2 runs"):
        mean_and_error(draws[:1])


def test_a_record_is_kept_whole(tmp_path: Path) -> None:
    """A record is read back as it was written, except that curves are rounded to six digits; the page shows it."""
    written = write_record(record(), tmp_path)
    assert [path.suffix for path in written] == [".json", ".md", ".png"]
    back = read_records(tmp_path)["a-b"]
    assert back.findings == record().findings and back.markdown() == record().markdown()
    assert np.allclose(back.panels[0].lines[0].y, [0.32, 0.28])
    page = "before\n<!-- reproduce: a-b -->\nold\n<!-- end -->\n<!-- reproduce: other -->\nkept\n<!-- end -->\n"
    once = filled(page, {"a-b": back}, "results")
    assert "0.3211 ± 0.0042" in once and "old" not in once and "kept" in once and "results/a-b.png" in once
    assert filled(once, {"a-b": back}, "results") == once
    assert len(draw(record()).axes) == 1


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_pages_show_what_the_runs_found(page: Path) -> None:
    """Tables in the pages are those of the committed records, which are of full runs, and all experiments are shown."""
    records, text = read_records(PAGES / "results"), page.read_text(encoding="utf-8")
    assert filled(text, records, "results") == text
    for experiment in laboratory.PAPERS.get(page.stem, ()):
        assert f"<!-- reproduce: {experiment.name} -->" in text
        record = records[experiment.name]
        assert record.command == f"adfpp reproduce {experiment.name} --seed 0"
        assert (record.title, record.source) == (experiment.title, experiment.source)


def test_constants_in_the_prose_are_those_of_the_theory() -> None:
    """The prose of the pages has these constants of laws; they are computed here."""

    def prose(page: str) -> str:
        return " ".join(BLOCK.sub("", (PAGES / f"{page}.md").read_text(encoding="utf-8")).split())

    one_pass, batch = full_online_constant(), float(1e6 * bayes_batch(1e6).error)
    for page in ("opper", "bona", "dichotomies"):
        assert f"{one_pass:.3f}" in prose(page)
    assert f"at {one_pass / batch:.2f} times the error of batch Bayes" in prose("opper")
    assert f"{float(bona_beta_law(1.0, 1.0)):.3f} (β√Q)^{{−1/4}} α^{{−3/4}}" in prose("bona")
    assert f"which is {annealed_spread(2.0):.2f}/N at η0 = 2" in prose("dichotomies")
    assert f"exp(q0²/2) = {np.exp(1.95**2 / 2):.1f} times" in prose("dichotomies")
    assert f"on {100 * norm.cdf(1.95):.0f}% of the rows" in prose("dichotomies")


def test_an_experiment_runs_on_the_bench() -> None:
    """The short run of the linear model: its figures hold, and its record has the command that repeats it."""
    steps: list[tuple[str, int, int]] = []
    (record,) = laboratory.reproduce(["opper-linear"], quick=True, seed=2, report=lambda *step: steps.append(step))
    assert len(record.findings) == 9 and not record.failed and all(f.passes for f in record.findings)
    assert record.command == "adfpp reproduce opper-linear --quick --seed 2"
    assert record.settings == {"N": 8, "rows": 200, "seed": 2}


def test_every_experiment_can_be_imported() -> None:
    """The names of modules and functions in the list are right, and no function is in it twice."""
    functions = [e.run.load() for e in laboratory.EXPERIMENTS.values() if isinstance(e.run, catalogue.Lazy)]
    assert all(map(callable, functions)) and len(set(functions)) == len(functions) == 21


@pytest.mark.papers
def test_the_list_of_experiments_imports_none_of_them() -> None:
    """Listing needs neither the packages of the papers, nor baselines and theory, nor Matplotlib."""
    code = (
        "import sys; from adfpp.cli import main; assert main(['reproduce', '--list']) == 0; "
        "print([m for m in sys.modules if m.startswith('adfpp.papers.')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *listed, imported = run.stdout.splitlines()
    assert sum("opper-" in line for line in listed) == 6
    packages = {name.split(".")[2] for name in ast.literal_eval(imported)}
    modules = {name.split(".")[3] for name in ast.literal_eval(imported) if name.count(".") > 2}
    assert packages == {"laboratory"}
    assert modules <= {"bench", "catalogue", "pages", "picture", "record", "workers"}


def test_every_paper_has_a_page() -> None:
    assert set(laboratory.PAPERS) <= {page.stem for page in PAGES.glob("*.md")}
    for paper, experiments in laboratory.PAPERS.items():
        assert experiments and all(e.name.startswith(f"{paper}-") for e in experiments)


def test_runs_side_by_side_are_runs_one_by_one() -> None:
    """The size of the groups and their padding change nothing, and the name decides on the random numbers."""
    bench, messages = Bench(report=lambda *now: messages.append(now)), []

    def one(key: jax.Array) -> jax.Array:
        return jax.random.normal(key, (2,))

    together = bench.replicate("x", one, 5)
    assert np.array_equal(together, bench.replicate("x", one, 5, at_once=2))
    assert np.array_equal(together[3], one(jax.random.split(bench.key("x"), 5)[3]))
    assert messages[-1] == ("x", 5, 5)
    assert not np.array_equal(together, bench.replicate("y", one, 5))
    assert not np.array_equal(together, Bench(seed=1).replicate("x", one, 5))


def test_a_stream_is_measured_as_it_is_learned() -> None:
    actual = learn_stream(
        lambda total, rows: total + rows.sum(),
        jnp.zeros(()),
        lambda key, step: jnp.full(3, step),
        lambda total: 2 * total,
        jax.random.key(0),
        3,
    )
    assert np.array_equal(actual, [0.0, 6.0, 18.0])


@pytest.mark.papers
def test_labels_and_errors_are_those_of_the_perceptron() -> None:
    teacher = jnp.array([3.0, 4.0])
    x, y = noisy_rows(teacher, jax.random.key(0), 4000, noise=5.0, flip=0.1)
    chance = 0.1 + 0.8 * norm.cdf(np.asarray(x @ teacher) / 5.0)
    assert abs(np.mean((y - chance) / np.sqrt(chance * (1 - chance)))) < 3 / np.sqrt(4000)
    tests = np.random.default_rng(0).normal(size=(100_000, 2))
    student = jnp.array([1.0, 0.0])
    wrong = np.mean((tests @ np.asarray(teacher) > 0) != (tests @ np.asarray(student) > 0))
    assert float(disagreement(student, teacher)) == pytest.approx(wrong, abs=0.005)
    assert float(disagreement(jnp.zeros(2), teacher)) == 0.5


def test_the_command_tells_what_is_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 1 and each figure outside its band is named; pages are filled from the run."""
    good, bad = record().findings

    def experiment(name: str, *findings: Finding) -> Experiment:
        return Experiment(name, "T", "S", lambda bench: Outcome(list(findings), [], [], {"quick": bench.quick}))

    papers = {"a": (experiment("a-one", good), experiment("a-two", bad))}
    for module in (laboratory, catalogue):
        monkeypatch.setattr(module, "PAPERS", papers)
        monkeypatch.setattr(module, "EXPERIMENTS", {e.name: e for e in papers["a"]})
    (tmp_path / "a.md").write_text("<!-- reproduce: a-one -->\n<!-- end -->\n", encoding="utf-8")
    assert cli.main(["reproduce", "a-one", "--seed", "3", "--pages", str(tmp_path)]) == 0
    assert "0.3211" in (tmp_path / "a.md").read_text(encoding="utf-8")
    saved = json.loads((tmp_path / "results" / "a-one.json").read_text(encoding="utf-8"))
    assert saved["command"] == "adfpp reproduce a-one --seed 3" and saved["settings"] == {"quick": False, "seed": 3}
    assert cli.main(["reproduce", "a-one", "--quick", "--out", str(tmp_path / "new")]) == 0
    saved = json.loads((tmp_path / "new" / "a-one.json").read_text(encoding="utf-8"))
    assert saved["command"] == "adfpp reproduce a-one --quick --seed 0" and saved["settings"]["quick"] is True
    assert cli.main(["reproduce", "a-one", "--quick", "--pages", str(tmp_path)]) == 1
    capsys.readouterr()
    assert cli.main(["reproduce", "a", "--jobs", "1"]) == 1
    assert "1 of 2 figures" in (out := capsys.readouterr().out) and "a-two: error at α = 2, ADF" in out
    assert cli.main(["reproduce", "b"]) == 1 and "no experiment 'b'" in capsys.readouterr().err
    assert cli.main(["reproduce"]) == 1 and "--list" in capsys.readouterr().err
    assert cli.main(["reproduce", "--list"]) == 0 and "a-two" in capsys.readouterr().out


@pytest.mark.papers
def test_experiments_at_the_same_time_give_the_same() -> None:
    """Processes change neither the findings nor their order; the progress is that of the experiment that is next."""
    names, messages = ["bona-erratum", "opper-linear"], []
    alone = list(laboratory.reproduce(names, quick=True, seed=3))
    both = list(laboratory.reproduce(names, True, 3, lambda *now: messages.append(now), jobs=2))
    assert [r.name for r in both] == ["opper-linear", "bona-erratum"] == [r.name for r in alone]
    assert [r.findings for r in both] == [r.findings for r in alone]
    assert messages and {what for what, _, _ in messages} == {"one row"}
    assert not multiprocessing.active_children()


@pytest.mark.papers
def test_workers_end_with_their_caller() -> None:
    """A caller that closes the generator leaves no process behind, and an error in a worker reaches the caller."""
    first = laboratory.reproduce(["opper-linear", "irma-table"], quick=True, jobs=2)
    assert next(first).name == "opper-linear" and multiprocessing.active_children()
    first.close()
    assert not multiprocessing.active_children()
    with pytest.raises(OverflowError):
        next(laboratory.reproduce(["opper-linear", "bona-erratum"], seed=10**30, jobs=2))


def test_tables_explain_tolerances() -> None:
    """A letter in the last column is explained below the table."""
    findings = (
        Finding("a", "x", 1.0, 0.1, theory=1.5, held="theory", tolerance=0.3, why="finite N"),
        Finding("b", "x", 1.0, 0.1, theory=1.5, why="the limit only"),
        Finding("c", "x", 1.0, theory=1.0, held="theory", tolerance=1e-10, why="rounding"),
    )
    explained = Record("n", "T", "S", findings)
    assert [row[-1] for row in explained.table()[1:]] == ["ok a", "b", "ok c"]
    for line in (
        "a: 0.3 allowed beyond the band: finite N",
        "b: not held: the limit only",
        "c: 1e-10 allowed: rounding",
    ):
        assert line in explained.text() and f"*{line[0]}*{line[1:]}" in explained.markdown()


WITHOUT_EXTRAS = """
import importlib, pkgutil, sys

for name in ("matplotlib", "jinja2", "h5netcdf", "h5py", "netCDF4", "pyarrow", "sklearn", "statsmodels", "mpmath"):
    sys.modules[name] = None  # as if it were not installed
import adfpp.papers

modules = [m.name for m in pkgutil.walk_packages(adfpp.papers.__path__, "adfpp.papers.")]
for name in modules:
    importlib.import_module(name)
assert {"adfpp.papers.laboratory.picture", "adfpp.papers.theory.bona"} <= set(modules)
"""


def test_the_papers_need_no_extra(tmp_path: Path) -> None:
    """All their modules are imported and a table is computed; that there is no picture is said, with the remedy."""
    words = ["reproduce", "opper-linear", "--quick", "--out", str(tmp_path / "o")]
    runs = f"sys.exit(main({words}) or main(['reproduce', '--all', '--pages', '.']))"
    code = f"{WITHOUT_EXTRAS}\nfrom adfpp.cli import main\n{runs}"
    done = subprocess.run([sys.executable, "-c", code], cwd=PAGES.parents[1], capture_output=True, text=True)
    table, pages = [line for line in done.stderr.splitlines() if line.startswith("adfpp: ")]
    assert done.returncode == 1 and "are within their bands" in done.stdout
    assert {path.name for path in (tmp_path / "o").iterdir()} == {"opper-linear.json", "opper-linear.md"}
    assert table.startswith("adfpp: only tables and numbers are written. Matplotlib")
    assert pages.startswith("adfpp: The pages show pictures. Matplotlib") and "pip install 'adfpp[papers]'" in pages


def test_a_picture_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    with pytest.raises(ImportError, match=r'need Matplotlib: pip install "adfpp\[papers\]"'):
        draw(record())
