"""The page of a comparison: what is written is what was measured, whatever the names are."""

import base64
import io
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

import adfpp
from adfpp.judge.compare import Comparison
from adfpp.judge.verdict import Cause, Reason
from adfpp.show.report import page_of, rendered
from models import measurement_error
from tests.comparisons import N_ROWS, chosen
from tests.comparisons import comparison as shared_comparison

ADF, ROUGH = "<b>adf</b>", "_rough $x$"  # names that HTML, Matplotlib's formulas and its legends trip over
# opens a tag, ends an attribute of either kind of quotes, an element and a comment, and would be run by Jinja2
HOSTILE = (
    """</pre></code></style><script>alert(1)</script><img src=x onerror="alert(2)" '">{{ 7 * 7 }}{% raw %}--><!--"""
)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return chosen(shared_comparison(), {"adf": ADF, "spherical": ROUGH})


ROOT = Path(__file__).parents[2]
TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "h3", "p", "section", "ul", "li", "strong",
    "span", "div", "table", "thead", "tbody", "tr", "th", "td", "data", "dl", "dt", "dd", "pre", "code",
}  # fmt: skip
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """A page taken apart; complains where a tag is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.data: dict[tuple[str | None, str | None, str | None], list[tuple[float, str]]] = {}
        self._table: str | None = None
        self._row: str | None = None
        self._datum: tuple[str | None, float] | None = None
        self.feed(text)
        self.close()
        assert self.open == []

    def page_texts(self, part: str) -> list[str]:
        """The texts with this part."""
        return [words for _, words in self.texts if part in words]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self._table = found.get("id")
        if tag == "tr":
            self._row = found.get("data-run") or found.get("data-parameter")
        if tag == "data":
            self._datum = (found["class"], float(found["value"] or "nan"))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))
        if self._datum is not None and self.open[-1] == "data":
            key = (self._table, self._row, self._datum[0])
            self.data.setdefault(key, []).append((self._datum[1], data))
            self._datum = None


@pytest.fixture(scope="module")
def text(comparison: Comparison, tmp_path_factory: Any) -> str:
    path = tmp_path_factory.mktemp("report") / "not" / "there yet" / "page.html"
    assert comparison.report(path) == path
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def shown(page: Page) -> Iterator[tuple[str | None, str | None, float, str]]:
    for (_, row, column), values in page.data.items():
        for value, words in values:
            yield row, column, value, words


def test_the_page_has_its_parts_in_order(page: Page) -> None:
    heads = [words for tag, words in page.texts if tag == "h2"]
    assert heads == [
        "In words",
        "Overview",
        "Pictures",
        "Parameters",
        "How the model was understood",
        "How to repeat it",
    ]
    words = "".join(words for _, words in page.texts)
    assert "full Gaussian over 3 unconstrained numbers" in words  # explain
    assert "the posterior is a Gaussian, and ADF and EP are exact." in words  # the source
    assert f"array ({N_ROWS}, 2) float64" in words
    for name in ("adfpp", "numpyro", "jax", "arviz", "Python"):
        assert ("th", name) in page.texts


def test_numbers_in_the_page_are_those_of_the_comparison(page: Page, comparison: Comparison) -> None:
    overview = comparison.overview
    seen = set()
    for name in overview.index:
        for column in overview.columns.drop(["method", "verdict"]):
            expected = float(overview.loc[name, column])
            for table in ("overview", "overview-scores"):
                for value, _ in page.data.get((table, name, column), []):
                    seen.add((name, column))
                    assert value == expected or (np.isnan(value) and np.isnan(expected))
            if np.isfinite(expected):
                assert (name, column) in seen, (name, column)
    for parameter in ("w[0]", "w[1]", "b"):
        for column, names in (("mean", ["reference", *comparison.names]), ("error", comparison.names)):
            values = [value for value, _ in page.data["parameters", parameter, column]]
            assert values == [float(comparison.parameters.loc[(name, parameter), column]) for name in names]


def test_rounded_numbers_are_near_the_exact_ones(page: Page) -> None:
    count = 0
    for row, column, value, words in shown(page):
        number = words.replace("−", "-").replace(",", "")
        factor = 0.01 if number.endswith("%") else 1.0
        read = float(number.removesuffix("%")) * factor
        digits = len(number.removesuffix(" %").partition(".")[2])
        if "e" not in number:
            assert abs(read - value) <= factor * (0.5000001 * 10.0**-digits), (row, column, words)
            count += 1
    assert count > 40


def test_errors_stand_beside_their_standard_errors(text: str) -> None:
    plain = re.sub(r"<[^>]+>", "", text[text.index('<table id="overview">') :])
    assert re.search(r"\d\.\d\d ± 0\.0\d", plain)


def test_verdicts_and_the_reference_are_in_words(page: Page, comparison: Comparison, tmp_path: Path) -> None:
    words = "".join(words for _, words in page.texts)
    for name in comparison.names:
        verdict = comparison.verdicts[name]
        assert ("strong", verdict.grade.value) in page.texts and "; ".join(verdict.words) in words
        assert comparison.fits[name].method in words
    assert f"is clean: {comparison.verdicts['reference'].words[0]}" in words
    doubt = Reason(Cause.HIGH_R_HAT, {"r_hat": 1.3, "parameter": "b", "limit": 1.01})
    doubtful = replace(comparison, doubts=(doubt,))
    other = doubtful.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "not to be called the truth:</strong> R-hat 1.300 of b, above 1.01." in other and "is clean" not in other


def test_the_page_stands_alone(text: str, page: Page) -> None:
    images = [attrs for tag, attrs in page.tags if tag == "img"]
    assert len(images) == 4
    for attrs in images:
        kind, _, code = (attrs["src"] or "").partition(",")
        assert kind == "data:image/png;base64" and attrs["alt"]
        assert plt.imread(io.BytesIO(base64.b64decode(code))).std() > 0.02
    assert not re.search(r"https?:|url\(|@import|<script|<link", text)
    assert all("href" not in attrs for _, attrs in page.tags)


def test_the_page_says_how_to_repeat_it(text: str) -> None:
    """Its call has the key and the options that the comparison was made with."""
    call = unescape(text)
    found = re.search(r"wrap_key_data\(jax\.numpy\.array\(\[(.*?)\], dtype='uint32'\)\)", call)
    assert found is not None
    np.testing.assert_array_equal([int(n) for n in found.group(1).split(",")], jax.random.key_data(jax.random.key(0)))
    assert "num_samples=4000," in call and "num_chains=4," in call


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:1 of 20 rows")  # one integral is marked INACCURATE
def test_given_draws_and_observations_that_a_latent_joins(tmp_path: Path) -> None:
    """The pictures show the predictions of each observation, and the call leaves a place for the draws."""
    data = measurement_error.simulate(jax.random.key(0), 20).data
    learner = adfpp.ADF(measurement_error.model)
    result = learner.run(jax.random.key(1), progress_bar=False, **data)
    draws = learner.get_posterior(result).sample(jax.random.key(2), (400,))
    found = adfpp.compare(
        jax.random.key(3), {"adf": learner}, **data, reference=draws, num_samples=400, progress_bar=False
    )
    text = unescape(found.report(tmp_path / "page.html").read_text(encoding="utf-8"))
    figure = found.plot("predictions")
    assert [axes.get_xlabel() for axes in figure.axes] == [f"mean of {y}\nunder reference" for y in ("x_seen", "y")]
    plt.close(figure)
    assert "reference=...,  # given draws" in text


def test_names_are_escaped(text: str, page: Page) -> None:
    assert "<b>" not in text and "&lt;b&gt;adf&lt;/b&gt;" in text
    assert ("span", ADF) in page.texts and "b" not in {tag for tag, _ in page.tags}


def test_nothing_that_a_user_names_gets_into_the_markup(comparison: Comparison, monkeypatch: Any) -> None:
    """Hostile names of runs, parameters, arguments and methods, and a hostile source and explanation, are only text."""
    monkeypatch.setattr("adfpp.show.report._source", lambda model: f"def model(): {HOSTILE}")
    monkeypatch.setattr("adfpp.show.report.draw", lambda comparison, kind: {})
    fits = {
        name: replace(fit, method=f"{fit.method} {HOSTILE}", notes=(HOSTILE,)) for name, fit in comparison.fits.items()
    }
    hostile = chosen(
        replace(
            comparison,
            fits=fits,
            doubts=(Reason(Cause.REMARK, {"remark": HOSTILE}),),
            explanation=HOSTILE,  # pyright: ignore[reportArgumentType]
            data=((comparison.data[0]), comparison.data[1] | {"option": HOSTILE}),
        ),
        {ADF: HOSTILE, ROUGH: ROUGH},
    )
    for fit in hostile.fits.values():
        fit.__dict__["names"] = [f"w{HOSTILE}", "w[1]", "b"]  # as a latent of this name has it
    text = rendered(hostile)
    page = Page(text)  # complains where a tag is not closed
    assert {tag for tag, _ in page.tags} <= TAGS
    attributes = {(tag, name) for tag, found in page.tags for name in found}
    assert not [pair for pair in attributes if pair[1].startswith("on") or pair[1] in ("src", "href")]
    for tag in ("span", "th", "pre", "code"):
        assert any(HOSTILE in words for where, words in page.texts if where == tag), tag
    assert [found["data-run"] for tag, found in page.tags if tag == "tr" and "data-run" in found][0] == HOSTILE
    assert any(found.get("data-parameter") == f"w{HOSTILE}" for _, found in page.tags)
    assert text.count(HOSTILE) == 0 and len(page.page_texts(HOSTILE)) >= 8


def test_the_templates_are_packaged() -> None:
    """The patterns of the package's data name every template."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["adfpp"]
    packed = {path for pattern in patterns for path in (ROOT / "adfpp").glob(pattern)}
    templates = set((ROOT / "adfpp" / "show" / "templates").iterdir())
    assert {path.name for path in templates} == {"report.css", "report.html"} and templates <= packed


def test_a_page_is_written_whole_or_not_at_all(comparison: Comparison, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "page.html"
    path.write_text("the old page")
    with pytest.raises(IsADirectoryError, match=r"report\.html"):
        comparison.report(tmp_path)

    def broken(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="no space left"):
        comparison.report(path)
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"] and path.read_text() == "the old page"


def test_a_page_without_matplotlib_says_what_is_missing(
    comparison: Comparison, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = comparison.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "pip install &#34;adfpp[plots]&#34;" in page and "<img" not in page


def test_a_page_without_jinja_says_what_to_install(comparison: Comparison, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r'^The report needs Jinja2: pip install "adfpp\[report\]"$'):
        comparison.report(tmp_path / "folder" / "page.html")
    assert not (tmp_path / "folder").exists()


def test_many_parameters_are_folded_away(comparison: Comparison, monkeypatch: Any) -> None:
    """The first are seen, more are behind a click, and the rest are counted."""
    monkeypatch.setattr("adfpp.show.report.draw", lambda comparison, kind: {})
    monkeypatch.setattr("adfpp.show.report._FIRST", 1)
    monkeypatch.setattr("adfpp.show.report._MOST", 2)
    page, text = page_of(comparison), rendered(comparison)
    assert [len(page.parameters), len(page.more_parameters), page.parameters_left_out] == [1, 1, 1]
    errors = comparison.parameters["error"].abs().groupby("parameter").max().sort_values(ascending=False)
    assert [row.name for row in (*page.parameters, *page.more_parameters)] == list(errors.index[:2])
    assert "<summary>1 more</summary>" in text and "1 more have smaller errors" in text
