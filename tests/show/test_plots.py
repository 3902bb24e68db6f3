"""Pictures of a comparison and of a check: what is drawn is what was measured, and nothing is left behind."""

import io
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.colors
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import ExpTransform, IdentityTransform, StickBreakingTransform
from scipy import stats

import adfpp
from adfpp.judge.compare import Comparison, compare
from adfpp.judge.fits import Fit, Kind
from adfpp.model import Latent
from adfpp.show.plots import draw_check
from adfpp.show.series import curve_columns
from adfpp.show.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, colours
from tests.comparisons import N_ROWS, Line, chosen
from tests.comparisons import comparison as shared_comparison
from tests.comparisons import known as known_line
from tests.products import Enumerated

ADF, ROUGH = "<b>adf</b>", "_rough $x$"  # names that HTML, Matplotlib's formulas and its legends trip over
PRIORS: dict[str, Any] = {"p": dist.Beta(2.0, 2.0), "q": dist.Dirichlet(np.ones(3))}


def coins(y: Any, z: Any) -> None:
    """Two observations, and a latent with a transform."""
    p: Any = numpyro.sample("p", PRIORS["p"])
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.BernoulliProbs(p), obs=y)
        numpyro.sample("z", dist.CategoricalProbs(jnp.stack([p, 1.0 - p])), obs=z)


def shares(z: Any) -> None:
    """The transform mixes the numbers of q."""
    q: Any = numpyro.sample("q", PRIORS["q"])
    with numpyro.plate("rows", z.shape[0]):
        numpyro.sample("z", dist.CategoricalProbs(q), obs=z)


@pytest.fixture(scope="module")
def known() -> Line:
    return known_line()


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return chosen(shared_comparison(), {"adf": ADF, "spherical": ROUGH})


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


def test_each_method_has_its_colour() -> None:
    """ADF blue, EP orange, NUTS and other draws grey, the truth black; a second run of a method has another colour."""
    tint = colours(shared_comparison())
    assert tint == {
        "reference": GREY,
        "adf": BLUE,
        "ep": ORANGE,
        "spherical": SKY,
        "laplace": GREEN,
        "mean-field": PURPLE,
        "point": tint["point"],
    }
    assert len(set(tint.values())) == 7

    def tints(reference: Kind, *kinds: Kind) -> list[str]:
        names = [f"run {i}" for i in range(len(kinds))]
        fits = {name: SimpleNamespace(kind=kind) for name, kind in zip(names, kinds, strict=True)}
        some: Any = SimpleNamespace(
            reference="truth", names=names, fits=fits | {"truth": SimpleNamespace(kind=reference)}
        )
        return list(colours(some).values())

    assert tints(Kind.ENUMERATION, Kind.EP, Kind.ADF, Kind.EP) == [BLACK, ORANGE, BLUE, VERMILLION]
    assert tints(Kind.MCMC, Kind.SVI) == [GREY, GREEN]
    assert tints(Kind.EP, Kind.ADF) == [ORANGE, BLUE]  # a run that is the reference keeps its colour
    many = tints(Kind.MCMC, *[Kind.ADF] * 12)
    assert len(many) == 13 and len(set(many)) == 8 and GREY not in many[1:] and ORANGE not in many


def test_colours_and_legend_are_the_same_everywhere(comparison: Comparison) -> None:
    tint = colours(comparison)
    for kind in ("forest", "marginals", "learning"):
        (legend,) = comparison.plot(kind).legends
        texts = [text.get_text() for text in legend.get_texts()]
        assert texts == ["reference", ADF, r" _rough \$x\$"]
        drawn = [line.get_color() for line in legend.get_lines()]
        assert drawn == [tint["reference"], tint[ADF], tint[ROUGH]] == [GREY, BLUE, SKY]


def test_forest_draws_the_intervals_of_each_run(comparison: Comparison, known: Line) -> None:
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


def test_marginals_are_densities_of_the_draws(comparison: Comparison, known: Line) -> None:
    axes = comparison.plot("marginals", parameters=["w[1]"]).axes[0]
    curves = {line.get_color(): line.get_xydata() for line in axes.lines}
    assert set(curves) == set(colours(comparison).values())
    grid, height = np.asarray(curves[GREY]).T
    exact = stats.norm.pdf(grid, known.mean[1], known.sd[1])
    assert np.max(np.abs(height - exact)) < 0.12 * exact.max()
    assert len(axes.collections) == 1  # the reference is filled


def test_predictions_are_those_of_each_run(comparison: Comparison, known: Line) -> None:
    figure = comparison.plot("predictions")
    assert len(figure.axes) == len(comparison.names)
    axes = figure.axes[1]
    cloud, ring = (np.asarray(c.get_offsets()) for c in axes.collections)
    mean = comparison.fits[ROUGH].mean
    # 1000 independent draws of the reference
    reach = 5 * np.sqrt(np.einsum("ri,ij,rj->r", known.design, known.covariance, known.design) / 1000)
    assert np.all(np.abs(cloud[:, 0] - known.design @ known.mean) < reach)
    assert np.allclose(cloud[:, 1], known.design @ mean, atol=0.05)
    gap = np.abs(cloud[:, 1] - cloud[:, 0])
    assert np.allclose(ring[0], cloud[np.argmax(gap)])
    (remark,) = axes.texts
    assert remark.get_text() == f"off by up to {gap.max():.2g}\n(row {np.argmax(gap)})"
    assert axes.get_xlabel() == "mean of y\nunder reference"
    assert axes.get_ylabel() == "mean of y\nunder  _rough \\$x\\$"


def test_learning_ends_at_the_posterior(comparison: Comparison, known: Line) -> None:
    figure = comparison.plot("learning", parameters=["w"])
    for i, axes in enumerate(figure.axes):
        lines = {line.get_color(): np.asarray(line.get_xydata()) for line in axes.lines}
        curve = lines[colours(comparison)[ADF]]
        assert np.array_equal(curve[:, 0], np.arange(1, N_ROWS + 1))
        assert curve[-1, 1] == pytest.approx(known.mean[i], abs=1e-6)  # ADF is exact here
        grey: Any = axes.patches[0]
        assert grey.get_height() == pytest.approx(2 * known.sd[i], rel=0.1)
        assert abs(lines[GREY][0, 1] - known.mean[i]) < 0.15 * known.sd[i]
        band = axes.collections[0].get_paths()[0].vertices
        assert np.ptp(band[band[:, 0] == N_ROWS, 1]) == pytest.approx(2 * known.sd[i], rel=1e-4)


def test_a_trajectory_that_was_kept_is_used(comparison: Comparison, known: Line) -> None:
    kept = comparison.learners[ADF].run(jax.random.key(0), known.x, y=known.y, snapshots=32, progress_bar=False)
    fits = comparison.fits | {ADF: replace(comparison.fits[ADF], source=kept)}
    axes = replace(comparison, fits=fits).plot("learning", parameters="b").axes[0]
    lines = {line.get_color(): np.asarray(line.get_xydata()) for line in axes.lines}
    assert list(lines[colours(comparison)[ADF]][:, 0]) == [32, N_ROWS]


def test_ep_has_intervals_and_no_learning_curve() -> None:
    """It goes over the rows again and again: there is no belief after so many rows."""
    comparison = chosen(shared_comparison(), {"ep": "ep"})
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
    assert '<strong class="grade failed">failed</strong>' in page


def test_what_cannot_be_drawn_is_refused(comparison: Comparison, monkeypatch: Any) -> None:
    with pytest.raises(
        ValueError, match=r"no picture 'florest' \(did you mean 'forest'\?\); there are forest, marginals"
    ):
        comparison.plot("florest")
    with pytest.raises(ValueError, match=r"no parameter 'w\[7\]' \(did you mean 'w\[[01]\]'\?\).*w\[0\], w\[1\], b"):
        comparison.plot("marginals", parameters=["b", "w[7]"])
    with pytest.raises(ValueError, match="parameters is empty"):
        comparison.plot("forest", parameters=[])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install \"adfpp\[plots\]\""):
        comparison.plot("forest")


def test_columns_of_curves_skip_what_cannot_vary() -> None:
    """The numbers of parameters count those that vary; the columns of a curve, latents held number by number."""

    def latent(name: str, shape: tuple[int, ...], unconstrained: tuple[int, ...], start: int, transform: Any) -> Latent:
        size = int(np.prod(unconstrained))
        return Latent(name, shape, unconstrained, slice(start, start + size), len(shape), transform)

    latents = (
        latent("first", (), (), 0, ExpTransform()),
        latent("L", (3,), (2,), 1, StickBreakingTransform()),
        latent("w", (2,), (2,), 3, IdentityTransform()),
    )
    fit: Any = SimpleNamespace(
        program=SimpleNamespace(latents=latents), names=["first", "L[1]", "L[2]", "w[0]", "w[1]"]
    )
    assert curve_columns(fit) == {0: 0, 3: 1, 4: 2}


@pytest.mark.parametrize(("settling", "colour"), [(None, BLUE), ("settled after 3 sweeps", ORANGE)])
def test_picture_of_a_check(settling: str | None, colour: str) -> None:
    """Counts of ranks, the band that they are expected in, and the mean of the scores so far."""
    rng = np.random.default_rng(0)
    log_z = rng.normal(size=100)
    log_z[[3, 50]] = np.nan
    pit = rng.random(200)
    check: Any = SimpleNamespace(pit=pit, log_z=log_z, settling=settling)
    ranks, score = draw_check(check).axes
    bars = ranks.patches[:10]
    assert [bar.get_height() for bar in bars] == np.histogram(pit, 10, (0, 1))[0].tolist()  # pyright: ignore
    assert all(matplotlib.colors.same_color(bar.get_facecolor()[:3], colour) for bar in bars)
    band: Any = ranks.patches[10]
    assert band.get_y() == pytest.approx(20 - 2 * np.sqrt(18)) and band.get_height() == pytest.approx(4 * np.sqrt(18))
    known = log_z[~np.isnan(log_z)]
    np.testing.assert_allclose(np.asarray(score.lines[0].get_ydata(), float), np.cumsum(known) / np.arange(1, 99))
    assert ranks.get_ylabel() == "number of rows" and "nats" in score.get_ylabel()


@pytest.mark.slow
def test_pictures_of_discrete_latents(ising_comparison: Any, exact_ising: Enumerated, tmp_path: Path) -> None:
    figures = ising_comparison.plot()
    assert list(figures) == ["marginals", "probabilities", "predictions", "learning"]
    axes = next(a for a in figures["marginals"].axes if a.get_title("left") == "sign[5]")
    heights = [bar.get_height() for bar in axes.patches]  # of the reference, of adf, of ep: first 0, then 1
    np.testing.assert_allclose(heights[:2], [1 - exact_ising.mean[5], exact_ising.mean[5]], atol=1e-9)
    assert len(heights) == 6
    dots = figures["probabilities"].axes[0].collections[0].get_offsets()
    np.testing.assert_allclose(np.asarray(dots)[:, 0], exact_ising.mean, atol=1e-9)
    line = figures["learning"].axes[0].lines[-1].get_ydata()
    assert len(set(np.round(line, 6))) > 5  # means, which are no whole numbers
    with pytest.raises(ValueError, match='Intervals of discrete latents .* "probabilities"'):
        ising_comparison.plot("forest")
    page = ising_comparison.report(tmp_path / "report.html").read_text()
    assert "enumeration of 64 combinations" in page and "total variation" in page
