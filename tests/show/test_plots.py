"""Pictures of a comparison and its page: what is drawn and written is what was measured, and nothing is left behind."""

import base64
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.colors
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import adfpp
from adfpp.judge.compare import Comparison, compare
from adfpp.judge.fits import Fit
from adfpp.show.plots import REFERENCE_COLOUR, colours

ADF, ROUGH = "<b>adf</b>", "_rough $x$"  # names that HTML, Matplotlib's formulas and its legends trip over
N_ROWS = 60
PRIORS: dict[str, Any] = {"p": dist.Beta(2.0, 2.0), "q": dist.Dirichlet(np.ones(3))}


def linear(x: Any, y: Any = None) -> None:
    """Gaussian rows: the posterior is a Gaussian <known> exactly."""
    w: Any = numpyro.sample("w", dist.Normal(0, 2).expand([x.shape[-1]]).to_event(1))
    b: Any = numpyro.sample("b", dist.Normal(1, 3))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w + b, 0.7), obs=y)


def coins(y: Any, z: Any) -> None:
    """Two observed sites, and a latent one with a transform."""
    p: Any = numpyro.sample("p", PRIORS["p"])
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.BernoulliProbs(p), obs=y)
        numpyro.sample("z", dist.CategoricalProbs(jnp.stack([p, 1.0 - p])), obs=z)


def shares(z: Any) -> None:
    """The transform mixes the numbers of q."""
    q: Any = numpyro.sample("q", PRIORS["q"])
    with numpyro.plate("rows", z.shape[0]):
        numpyro.sample("z", dist.CategoricalProbs(q), obs=z)


class Linear:
    """Data, and the posterior by the textbook's formula."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(N_ROWS, 2)) + [0.0, 1.5]
        self.y = self.x @ [1.0, -2.0] + 0.5 + 0.7 * rng.normal(size=N_ROWS)
        self.design = np.column_stack([self.x, np.ones(N_ROWS)])
        prior = np.diag([1 / 4, 1 / 4, 1 / 9])
        self.covariance = np.linalg.inv(prior + self.design.T @ self.design / 0.49)
        self.mean = self.covariance @ (prior @ [0, 0, 1] + self.design.T @ self.y / 0.49)
        self.sd = np.sqrt(np.diag(self.covariance))

    def draws(self) -> dict[str, np.ndarray]:
        theta = np.random.default_rng(1).multivariate_normal(self.mean, self.covariance, (2, 1000))
        return {"w": theta[..., :2], "b": theta[..., 2]}


@pytest.fixture(scope="module")
def known() -> Linear:
    return Linear()


@pytest.fixture(scope="module")
def comparison(known: Linear) -> Comparison:
    runs = {ADF: adfpp.ADF(linear), ROUGH: adfpp.ADF(linear, family="spherical")}
    return compare(
        jax.random.key(0), runs, known.x, y=known.y, reference=known.draws(), num_samples=1000, progress_bar=False
    )


def segments(axes: Any, colour: str) -> list[tuple[float, float, float]]:
    """``(y, left, right)`` of all horizontal lines of a colour, however they were drawn."""
    out = []
    for line in axes.lines:
        if matplotlib.colors.same_color(line.get_color(), colour) and len(line.get_xdata()) == 2:
            (left, right), (y, _) = sorted(line.get_xdata()), line.get_ydata()
            out.append((float(y), float(left), float(right)))
    for lines in axes.collections:
        if hasattr(lines, "get_segments") and matplotlib.colors.same_color(lines.get_edgecolor()[0], colour):
            out += [(float(s[0, 1]), float(s[:, 0].min()), float(s[:, 0].max())) for s in lines.get_segments()]
    return out


def inked(figure: Any) -> float:
    """The share of a rendered figure that is not white."""
    out = io.BytesIO()
    figure.savefig(out, format="rgba", dpi=50)
    pixels = np.frombuffer(out.getvalue(), np.uint8).reshape(-1, 4)
    return float(np.mean((pixels[:, :3] < 250).any(1)))


def test_all_pictures_are_drawn_and_none_is_left_behind(comparison: Comparison) -> None:
    before = plt.get_fignums()
    figures = comparison.plot()
    assert list(figures) == ["forest", "marginals", "predictions", "learning"]
    assert {kind: len(f.axes) for kind, f in figures.items()} == {
        "forest": 1,
        "marginals": 3,
        "predictions": 2,
        "learning": 3,
    }
    for figure in figures.values():
        assert inked(figure) > 0.02
        assert any(axes.get_xlabel() for axes in figure.axes)
    assert plt.get_fignums() == before


def test_colours_and_legend_are_the_same_everywhere(comparison: Comparison) -> None:
    tint = colours(comparison)
    assert tint["reference"] == REFERENCE_COLOUR and len(set(tint.values())) == 3
    for kind in ("forest", "marginals", "learning"):
        (legend,) = comparison.plot(kind).legends
        texts = [text.get_text() for text in legend.get_texts()]
        assert texts == ["reference (reference)", ADF, r" _rough \$x\$"]
        drawn = [line.get_color() for line in legend.get_lines()]
        assert drawn == [tint["reference"], tint[ADF], tint[ROUGH]]


def test_forest_draws_the_intervals_of_each_run(comparison: Comparison, known: Linear) -> None:
    axes = comparison.plot("forest", parameters=["b", "w"]).axes[0]
    places = {label.get_text(): y for y, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)}
    assert list(places) == ["b", "w[0]", "w[1]"]
    assert places["b"] > places["w[0]"] > places["w[1]"]
    found = {name: dict(zip(("w[0]", "w[1]", "b"), comparison.fits[name].sd, strict=True)) for name in comparison.names}
    found["reference"] = dict(zip(("w[0]", "w[1]", "b"), known.sd, strict=True))
    for name, colour in colours(comparison).items():
        lines = segments(axes, colour)
        for parameter, y in places.items():
            step = abs(places["b"] - places["w[0]"])
            near = [right - left for at, left, right in lines if abs(at - y) < step / 2]
            inner, outer = min(near), max(near)
            # the shortest interval of noisy draws is a little short
            assert outer == pytest.approx(2 * 1.645 * found[name][parameter], rel=0.12)
            assert inner == pytest.approx(2 * 0.674 * found[name][parameter], rel=0.2)


def test_forest_shows_the_worst_parameters_and_says_so(comparison: Comparison, monkeypatch: Any) -> None:
    monkeypatch.setattr("adfpp.show.plots._MOST", {"forest": 2, "marginals": 2, "learning": 2})
    errors = comparison.parameters["error"].abs().groupby("parameter").max().sort_values(ascending=False)
    figure = comparison.plot("forest")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list(errors.index[:2])
    assert "2 of 3 parameters, largest error first" in figure.get_suptitle()
    titles = [axes.get_title(loc="left") for axes in comparison.plot("marginals").axes]
    assert titles == list(errors.index[:2])


def test_marginals_are_densities_of_the_draws(comparison: Comparison, known: Linear) -> None:
    axes = comparison.plot("marginals", parameters=["w[1]"]).axes[0]
    curves = {line.get_color(): line.get_xydata() for line in axes.lines}
    assert set(curves) == set(colours(comparison).values())
    grid, height = np.asarray(curves[REFERENCE_COLOUR]).T
    exact = stats.norm.pdf(grid, known.mean[1], known.sd[1])
    assert np.max(np.abs(height - exact)) < 0.12 * exact.max()
    assert len(axes.collections) == 1  # the reference is filled


def test_predictions_are_those_of_each_run(comparison: Comparison, known: Linear) -> None:
    figure = comparison.plot("predictions")
    assert len(figure.axes) == len(comparison.names)
    axes = figure.axes[1]
    cloud, ring = (np.asarray(c.get_offsets()) for c in axes.collections)
    mean = comparison.fits[ROUGH].mean
    # 1000 draws each; the reference's are independent
    reach = 5 * np.sqrt(np.einsum("ri,ij,rj->r", known.design, known.covariance, known.design) / 1000)
    assert np.all(np.abs(cloud[:, 0] - known.design @ known.mean) < reach)
    assert np.allclose(cloud[:, 1], known.design @ mean, atol=0.05)
    gap = np.abs(cloud[:, 1] - cloud[:, 0])
    assert np.allclose(ring[0], cloud[np.argmax(gap)])
    assert f"(row {np.argmax(gap)})" in axes.get_title(loc="right")
    assert axes.get_xlabel() == "mean of y\nunder reference"
    assert axes.get_ylabel() == "mean of y\nunder  _rough \\$x\\$"


def test_learning_ends_at_the_posterior(comparison: Comparison, known: Linear) -> None:
    figure = comparison.plot("learning", parameters=["w"])
    for i, axes in enumerate(figure.axes):
        lines = {line.get_color(): np.asarray(line.get_xydata()) for line in axes.lines}
        curve = lines[colours(comparison)[ADF]]
        assert np.array_equal(curve[:, 0], np.arange(1, N_ROWS + 1))
        assert curve[-1, 1] == pytest.approx(known.mean[i], abs=1e-6)  # ADF is exact here
        grey: Any = axes.patches[0]
        assert grey.get_height() == pytest.approx(2 * known.sd[i], rel=0.1)
        assert abs(lines[REFERENCE_COLOUR][0, 1] - known.mean[i]) < 0.15 * known.sd[i]
        band = axes.collections[0].get_paths()[0].vertices
        assert np.ptp(band[band[:, 0] == N_ROWS, 1]) == pytest.approx(2 * known.sd[i], rel=1e-4)


def test_a_trajectory_that_was_kept_is_used(comparison: Comparison, known: Linear) -> None:
    kept = comparison.learners[ADF].run(jax.random.key(0), known.x, y=known.y, snapshots=32, progress_bar=False)
    fits = comparison.fits | {ADF: replace(comparison.fits[ADF], source=kept)}
    axes = replace(comparison, fits=fits).plot("learning", parameters="b").axes[0]
    lines = {line.get_color(): np.asarray(line.get_xydata()) for line in axes.lines}
    assert list(lines[colours(comparison)[ADF]][:, 0]) == [32, N_ROWS]


def test_ep_has_intervals_and_no_learning_curve(known: Linear) -> None:
    """It goes over the rows again and again: there is no belief after so many rows."""
    runs = {"ep": adfpp.EP(linear)}
    comparison = compare(
        jax.random.key(0), runs, known.x, y=known.y, reference=known.draws(), num_samples=200, progress_bar=False
    )
    assert list(comparison.plot()) == ["forest", "marginals", "predictions"]
    with pytest.raises(ValueError, match="none of the runs learns online"):
        comparison.plot("learning")


@pytest.mark.slow
def test_sites_with_transforms() -> None:
    rng = np.random.default_rng(2)
    y, z = rng.binomial(1, 0.7, 32), rng.binomial(1, 0.3, 32)
    ones = y.sum() + (1 - z).sum()
    draws = {"p": rng.beta(2 + ones, 2 + 64 - ones, 2000)}
    runs = {"adf": adfpp.ADF(coins)}
    comparison = compare(jax.random.key(0), runs, y, z, reference=draws, num_samples=500, progress_bar=False)
    assert [axes.get_xlabel() for axes in comparison.plot("predictions").axes] == [
        "probability of y = 1\nunder reference",
        "probability of the observed z\nunder reference",
    ]
    (axes,) = comparison.plot("learning").axes
    band: Any = axes.collections[0].get_paths()[0].vertices
    last = band[band[:, 0] == 32, 1]
    exact = stats.beta(2 + ones, 2 + 64 - ones).ppf([0.158655, 0.841345])
    assert (last.min(), last.max()) == pytest.approx(exact, abs=0.01)


@pytest.mark.slow
def test_a_site_whose_transform_mixes_has_no_learning_curve() -> None:
    rng = np.random.default_rng(3)
    z = rng.choice(3, 32, p=[0.5, 0.3, 0.2])
    draws = {"q": rng.dirichlet(1.0 + np.bincount(z, minlength=3), 2000)}
    runs = {"adf": adfpp.ADF(shares)}
    comparison = compare(jax.random.key(0), runs, z, reference=draws, num_samples=500, progress_bar=False)
    with pytest.raises(ValueError, match=r"no learning curve of q\[1\].*simplex"):
        comparison.plot("learning", parameters=["q[1]"])
    assert list(comparison.plot()) == ["forest", "marginals", "predictions"]


def test_a_run_that_failed_is_named_and_left_out(comparison: Comparison, tmp_path: Path) -> None:
    fit = comparison.fits[ROUGH]
    broken = Fit(ROUGH, fit.method, fit.program, np.full_like(fit.theta, np.nan), log_q=fit.log_q)
    failed = replace(comparison, fits=comparison.fits | {ROUGH: broken}, learners={})
    with pytest.raises(ValueError, match="none of the runs learns online"):
        failed.plot("learning")
    figures = failed.plot()
    assert list(figures) == ["forest", "marginals", "predictions"]
    assert "not finite" in figures["forest"].legends[0].get_texts()[2].get_text()
    page = failed.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<strong>failed</strong>" in page


def test_what_cannot_be_drawn_is_refused(comparison: Comparison, monkeypatch: Any) -> None:
    with pytest.raises(
        ValueError, match=r"no picture 'florest' \(did you mean 'forest'\?\); there are forest, marginals"
    ):
        comparison.plot("florest")
    with pytest.raises(ValueError, match=r"no parameter 'w\[7\]' \(did you mean 'w\[[01]\]'\?\).*w\[0\], w\[1\], b"):
        comparison.plot("marginals", parameters=["b", "w[7]"])
    with pytest.raises(ValueError, match="parameters is empty"):
        comparison.plot("forest", parameters=[])
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install adfpp\[plots\]"):
        comparison.plot("forest")


# ------------------------------------------------------------------------------------------------------- the page

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
    assert 'the posterior is a Gaussian <known> exactly."""' in words  # the source
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
    plain = re.sub(r"<[^>]+>", "", text[text.index("<table id='overview'>") :])
    assert re.search(r"\d\.\d\d ± 0\.0\d", plain)


def test_verdicts_and_the_reference_are_in_words(page: Page, comparison: Comparison, tmp_path: Path) -> None:
    words = "".join(words for _, words in page.texts)
    for name in comparison.names:
        grade, _, rest = comparison.overview.loc[name, "verdict"].partition(": ")
        assert ("strong", grade) in page.texts and rest in words
    assert "is clean" in words
    doubtful = replace(comparison, problems=("R-hat 1.300 of b, above 1.01",))
    other = doubtful.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "not to be called the truth:</strong> R-hat 1.300 of b" in other and "is clean" not in other


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
    assert "num_samples=1000," in call and "num_chains=4," in call


def test_names_are_escaped(text: str, page: Page) -> None:
    assert "<b>" not in text and "&lt;b&gt;adf&lt;/b&gt;" in text
    assert ("span", ADF) in page.texts and "b" not in {tag for tag, _ in page.tags}


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
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    page = comparison.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "pip install adfpp[plots]" in page and "<img" not in page
