"""A comparison as one self-contained HTML page."""

import base64
import contextlib
import inspect
import io
import math
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from adfpp._version import __version__
from adfpp.show.plots import Compared, by_error, colours, draw

_PACKAGES = ("numpyro", "jax", "jaxlib", "arviz", "numpy", "matplotlib")
_FIRST, _MOST = 15, 500  # parameters of the table that are seen at once, and in all
_DPI = 130


class Reported(Compared, Protocol):
    """What is used of a ``Comparison``."""

    @property
    def overview(self) -> Any:
        """A row a run."""
        ...

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the reference is not to be called the truth."""
        ...

    @property
    def explanation(self) -> Any:
        """How the model was understood, or None."""
        ...

    @property
    def options(self) -> dict[str, Any]:
        """With which it was made, the key's data among them."""
        ...


def write_report(comparison: Reported, path: Path) -> Path:
    """Writes the page, at once and whole, in a folder that is made if need be.

    Every number stands in the page twice: rounded to be read, and exactly, as the ``value`` of a ``<data>`` element.

    Args:
        comparison: Of which runs.
        path: Of the page; its folder is made if it is not there.

    Returns:
        The path written.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the page a name in it, e.g. {path / 'report.html'}.")
    page = _page(comparison)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(page, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def _page(comparison: Reported) -> str:
    runs = ", ".join(comparison.names)
    title = f"{runs} against {comparison.reference}"
    sections = [
        ("In words", _summary(comparison)),
        ("Overview", _overview(comparison)),
        ("Pictures", _pictures(comparison)),
        ("Parameters", _parameters(comparison)),
        ("How the model was understood", _understood(comparison)),
        ("How to repeat it", _repeat(comparison)),
    ]
    body = "\n".join(f"<section>\n<h2>{escape(head)}</h2>\n{text}\n</section>" for head, text in sections if text)
    joint, truth = comparison.joint, comparison.truth
    about = f"{joint.length} rows, {len(truth.names)} parameters, reference: {truth.method}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<header>\n"
        f"<h1>How far from {escape(comparison.reference)}</h1>\n"
        f"<p class='about'>{escape(title)}. {escape(about)}.</p>\n</header>\n{body}\n</body>\n</html>\n"
    )


# ------------------------------------------------------------------------------------------------- the sections


def _summary(comparison: Reported) -> str:
    verdicts = comparison.overview["verdict"]
    items = []
    for name in comparison.names:
        grade, _, rest = str(verdicts[name]).partition(": ")
        method = f"<span class='method'>{escape(comparison.fits[name].method)}.</span>"
        items.append(f"<li>{_run(comparison, name)} <strong>{escape(grade)}</strong> {escape(rest)}. {method}</li>")
    reference = escape(comparison.reference)
    if comparison.problems:
        why = escape("; ".join(comparison.problems))
        words = (
            f"<p class='warning'><strong>The reference {reference} is not to be called the truth:</strong> {why}. "
            "What follows says how far the runs are from it, not how far they are from the posterior.</p>"
        )
    else:
        why = escape(str(verdicts[comparison.reference]).removeprefix("reference: "))
        words = f"<p>The reference {reference} is clean: {why}.</p>"
    return f"<ul class='verdicts'>\n{chr(10).join(items)}\n</ul>\n{words}"


class _Column(NamedTuple):
    """A column of the page: its heading, the overview's columns in it, and that of their standard error."""

    heading: str
    columns: tuple[str, ...]
    noise: str | None = None
    percent: bool = False


_DISTANCES = (
    _Column("largest error", ("error_max",), "error_max_mcse"),
    _Column("rms error", ("error_rms",), "error_rms_mcse"),
    _Column("sd ratio", ("sd_ratio_min", "sd_ratio_max"), "sd_ratio_mcse"),
    _Column("KL", ("kl",), "kl_mcse"),
    _Column("W1", ("w1_max",), "w1_max_mcse"),
    _Column("k̂", ("k_hat",)),
)
_SCORES = (
    _Column("elpd", ("elpd",), "elpd_se"),
    _Column("good rows", ("elpd_good",), percent=True),
    _Column("log evidence", ("log_evidence",)),
    _Column("compile, s", ("compile_seconds",)),
    _Column("run, s", ("run_seconds",)),
    _Column("sampling, s", ("sampling_seconds",)),
    _Column("speed-up", ("speed_up",)),
)
_MEANINGS = {
    "largest error, rms error": (
        "of the posterior means, in the reference's standard deviations: at 0.1 the two can hardly be told apart in "
        "a picture, at 1 a mean is a whole standard deviation off. After ±: the reference's own Monte-Carlo "
        "standard error, below which nothing can be said. Of discrete parameters, whose standard deviation goes to 0 "
        "as they become certain: twice the total variation distance, that is how far a probability is off, which is "
        "in standard deviations of a fair coin."
    ),
    "sd ratio": (
        "the smallest and the largest ratio of the run's posterior standard deviations to the reference's. Below 1 "
        "the run is too sure of itself. Blank for discrete parameters, whose probabilities tell it."
    ),
    "KL": (
        "Kullback–Leibler divergence of the run from the reference in nats, both taken as Gaussians in the run's "
        "coordinates: it sees correlations, which the columns before do not. Of discrete sites that of the marginals, "
        "or, against an enumerated reference, that of the whole. After ±: about how much of it "
        "is the reference's sampling error."
    ),
    "W1": (
        "the worst Wasserstein-1 distance of a parameter's marginal from the reference's, in its standard "
        "deviations: it sees the shape as well."
    ),
    "k̂": (
        "Pareto k̂ of the run as a proposal for the posterior. Below 0.5 importance weights repair what is wrong "
        "with it, above 0.7 they cannot."
    ),
    "elpd": (
        "expected log predictive density of new rows, by leave-one-out cross-validation, ± its standard error. "
        "Higher is better."
    ),
    "good rows": "the share of rows whose part of the elpd can be relied on.",
    "log evidence": "log probability of the data under the model, where the run tells it.",
    "compile, run, sampling": (
        "seconds to compile; seconds of the run itself once compiled (of MCMC: warm-up and sampling); of these, "
        "what is left without MCMC's warm-up."
    ),
    "speed-up": "the reference's run over this run's, both once compiled.",
}


def _overview(comparison: Reported) -> str:
    meanings = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in _MEANINGS.items())
    parts = [
        "<h3>Distance from the reference</h3>",
        _table(comparison, "overview", _DISTANCES, [n for n in comparison.overview.index if n != comparison.reference]),
        "<h3>Scores and seconds</h3>",
        _table(comparison, "overview-scores", _SCORES, list(comparison.overview.index)),
        f"<h3>What the columns mean</h3>\n<dl>{meanings}</dl>",
    ]
    return "\n".join(parts)


def _table(comparison: Reported, which: str, columns: Sequence[_Column], names: Sequence[str]) -> str:
    """Some columns of the overview, a row a run."""
    table = comparison.overview
    head = "".join(f"<th scope='col'>{escape(c.heading)}</th>" for c in columns)
    rows = []
    for name in names:
        cells = []
        for column in columns:
            around = float(table.loc[name, column.noise]) if column.noise is not None else math.nan
            values = {c: float(table.loc[name, c]) for c in column.columns}
            cells.append(_cell(values, column.noise, around, percent=column.percent))
        row = f"<th scope='row'>{_run(comparison, name)}</th>{''.join(cells)}"
        rows.append(f'<tr data-run="{escape(name)}">{row}</tr>')
    return (
        f"<div class='box'><table id='{which}'>\n"
        f"<thead><tr><th scope='col'>run</th>{head}</tr></thead>\n"
        f"<tbody>\n{chr(10).join(rows)}\n</tbody></table></div>"
    )


_CAPTIONS = {
    "forest": (
        "Posterior intervals of all runs, side by side. Where a coloured interval lies on the grey one, the run "
        "says what the reference says."
    ),
    "marginals": (
        "Marginal posteriors. Grey: the reference. A curve beside it is a wrong mean, a narrower one is too sure of "
        "itself."
    ),
    "probabilities": (
        "Probability of each value of the discrete sites, under a run and under the reference. A dot off the line is a "
        "probability that is wrong."
    ),
    "predictions": (
        "What each row of the data is expected to be, under a run and under the reference. Errors of parameters "
        "matter as far as they are seen here."
    ),
    "learning": (
        "What the online runs believed while the rows came in, towards what the reference finds with all rows at "
        "once. A last jump or a drift away from the grey band shows that the order of the rows matters."
    ),
}


def _pictures(comparison: Reported) -> str:
    try:
        figures = draw(comparison, "all")
    except ImportError as error:
        return f"<p>There are no pictures in this page. {escape(str(error))}</p>"
    parts = []
    for kind, figure in figures.items():
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=_DPI, metadata={"Software": None})
        image = base64.b64encode(out.getvalue()).decode("ascii")
        caption = escape(_CAPTIONS[kind])
        parts.append(
            f"<figure id='{kind}'><div class='box'><img src='data:image/png;base64,{image}' alt='{caption}'></div>"
            f"<figcaption>{caption}</figcaption></figure>"
        )
    return "\n".join(parts)


def _parameters(comparison: Reported) -> str:
    table, names = comparison.parameters, comparison.truth.names
    order = [names[i] for i in by_error(comparison)]
    found = {name: table.loc[name] for name in comparison.fits}
    lines = []
    for parameter in order[:_MOST]:
        truth = found[comparison.reference].loc[parameter]
        decimals = _decimals(float(truth["sd"]) / 30.0, float(truth["mean"]))
        cells = [_cell({c: float(truth[c])}, decimals=decimals) for c in ("mean", "sd")]
        for name in comparison.names:
            row = found[name].loc[parameter]
            cells += [_cell({c: float(row[c])}, decimals=decimals) for c in ("mean", "sd")]
            cells.append(_cell({"error": float(row["error"])}, "mcse", float(row["mcse"])))
            cells += [_cell({c: float(row[c])}, decimals=_decimals(0.01, float(row[c]))) for c in ("sd_ratio", "w1")]
        lines.append(
            f'<tr data-parameter="{escape(parameter)}"><th scope="row">{escape(parameter)}</th>{"".join(cells)}</tr>'
        )
    runs = "".join(
        f"<th scope='colgroup' colspan='5' class='first'>{_run(comparison, n)}</th>" for n in comparison.names
    )
    each = "<th class='first'>mean</th><th>sd</th><th>error</th><th>sd ratio</th><th>W1</th>" * len(comparison.names)
    head = (
        f"<thead><tr><th></th><th scope='colgroup' colspan='2'>{_run(comparison, comparison.reference)}</th>{runs}</tr>"
        f"<tr><th scope='col'>parameter</th><th>mean</th><th>sd</th>{each}</tr></thead>"
    )

    def boxed(some: list[str], which: str) -> str:
        body = f"<tbody>\n{chr(10).join(some)}\n</tbody>"
        return f"<div class='box'><table class='parameters' id='{which}'>{head}{body}</table></div>"

    out = "<p>The largest error of any run first. Errors and W1 are in the reference's standard deviations.</p>"
    out += boxed(lines[:_FIRST], "parameters")
    rest = lines[_FIRST:]
    if rest:
        out += f"<details><summary>{len(rest)} more</summary>{boxed(rest, 'parameters-more')}</details>"
    if len(order) > _MOST:
        out += f"<p>{len(order) - _MOST} more have smaller errors; <code>comparison.parameters</code> has all.</p>"
    return out


def _understood(comparison: Reported) -> str:
    parts = []
    if comparison.explanation is not None:
        parts.append(f"<div class='box'><pre>{escape(str(comparison.explanation))}</pre></div>")
    else:
        parts.append("<p>None of the runs is one of adfpp's, which would tell.</p>")
    source = _source(comparison.joint.program.model)
    if source:
        parts.append(f"<h3>The model</h3>\n<div class='box'><pre><code>{escape(source)}</code></pre></div>")
    return "\n".join(parts)


def _source(model: Any) -> str:
    """The model's source text, where it can be found."""
    while hasattr(model, "func"):  # functools.partial
        model = model.func
    with contextlib.suppress(OSError, TypeError):
        return inspect.cleandoc("\n" + inspect.getsource(model))
    return ""


def _repeat(comparison: Reported) -> str:
    args, kwargs = comparison.data
    runs = [f"    {name!r}: ...,  # {comparison.fits[name].method}" for name in comparison.names]
    options = dict(comparison.options)
    key = options.pop("rng_key")
    given = [f"    {_described(a)}," for a in args]
    given += [f"    {name}={_described(a)}," for name, a in kwargs.items()]
    given += [f"    {name}={value!r}," for name, value in options.items()]
    first = f"jax.random.wrap_key_data(jax.numpy.array({key}, dtype='uint32'))"
    call = "\n".join(["runs = {", *runs, "}", "comparison = adfpp.compare(", f"    {first},", "    runs,", *given, ")"])
    rows = [("rows", str(comparison.joint.length)), ("made", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))]
    rows += [("Python", platform.python_version()), ("adfpp", __version__)]
    rows += [(name, found) for name in _PACKAGES if (found := _version(name))]
    rows += [("numbers", str(np.dtype(comparison.joint.program.dtype)))]
    body = "".join(f"<tr><th scope='row'>{escape(k)}</th><td class='words'>{escape(v)}</td></tr>" for k, v in rows)
    versions = f"<table id='versions'><tbody>{body}</tbody></table>"
    return f"<div class='box'><pre><code>{escape(call)}</code></pre></div>\n{versions}"


def _described(value: Any) -> str:
    """An argument in the call: shape and kind of an array, the value of anything small."""
    shape, kind = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and kind is not None:
        return f"<array {tuple(shape)} {kind}>"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {_described(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        inner = ", ".join(_described(v) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


# ------------------------------------------------------------------------------------------------- numbers and runs


def _run(comparison: Reported, name: str) -> str:
    """A run's name with its colour in the pictures."""
    return f"<span class='run' style='--run: {colours(comparison)[name]}'>{escape(name)}</span>"


def _cell(
    values: Mapping[str, float],
    noise: str | None = None,
    around: float = math.nan,
    decimals: int | None = None,
    percent: bool = False,
) -> str:
    """A table cell: one number or a range, and its standard error where it has one."""
    if all(math.isnan(v) for v in values.values()):
        return "<td>–</td>"
    if decimals is None:
        decimals = 0 if percent else _decimals(around, *values.values())
    text = " to ".join(_data(column, v, decimals, percent) for column, v in values.items())
    if noise is not None and math.isfinite(around):
        text += f" <span class='noise'>± {_data(noise, around, decimals)}</span>"
    return f"<td>{text}</td>"


def _data(column: str, value: float, decimals: int, percent: bool = False) -> str:
    """A number: exactly for programs, rounded for readers."""
    if not math.isfinite(value):
        shown = "–" if math.isnan(value) else "infinite"
    elif percent:
        shown = f"{100.0 * value:.{decimals}f} %"
    elif abs(value) >= 1e7 or decimals > 7:
        shown = f"{value:.2e}"
    else:
        shown = f"{value:,.{decimals}f}"
        shown = shown if shown.strip("-0.,") else shown.removeprefix("-")
    return f'<data class="{column}" value="{value!r}">{shown.replace("-", "−")}</data>'


def _decimals(around: float, *values: float) -> int:
    """How many decimals are worth reading: up to the first digit of the error; without one, three digits in all."""
    if math.isfinite(around) and around > 0.0:
        return max(0, -math.floor(math.log10(around)))
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    return max(0, 2 - math.floor(math.log10(largest))) if largest > 0.0 else 0


_STYLE = """
:root { color-scheme: light; --ink: #222; --soft: #666; --line: #ddd }
* { box-sizing: border-box }
body {
  margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 64rem; background: #fff; color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; font-weight: 650 }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .7rem; padding-top: .8rem; border-top: 1px solid var(--line) }
h3 { font-size: 1rem; margin: 1.2rem 0 .4rem }
h1, .about, li { overflow-wrap: anywhere }
.about, figcaption, dd, .noise, .method { color: var(--soft) }
.about { margin: 0 }
.run { font-weight: 600 }
.run::before {
  content: ""; display: inline-block; width: .65em; height: .65em; margin-right: .4em; border-radius: 50%;
  background: var(--run); print-color-adjust: exact;
}
.verdicts { list-style: none; padding: 0 }
.verdicts li { margin: .4rem 0 }
.verdicts strong {
  padding: .05em .5em; margin: 0 .3em; border: 1px solid #bbb; border-radius: .6em; background: #f6f6f6;
  font-weight: 600; font-size: .9em;
}
.warning { padding: .7rem 1rem; border-left: 4px solid #c77700; background: #fff7e8 }
.box { overflow-x: auto; max-width: 100% }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line) }
thead th { vertical-align: bottom; color: var(--soft); font-weight: 600 }
thead tr:last-child th { border-bottom: 1px solid #999 }
tbody th, th:first-child, .words { text-align: left }
th[scope="colgroup"] { text-align: center }
th:first-child { position: sticky; left: 0; background: #fff }
.parameters td:nth-child(5n+4), .first { border-left: 1px solid var(--line) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; font-size: .88rem; margin: 1rem 0 }
dt { font-weight: 600 }
dd { margin: 0 }
figure { margin: 1.2rem 0 2rem }
figure img { display: block; width: 100%; min-width: 34rem; max-width: 56rem; height: auto }
figcaption { font-size: .9rem; margin-top: .3rem }
pre {
  margin: .4rem 0; padding: .8rem 1rem; width: max-content; min-width: 100%; background: #f6f6f6;
  font: .82rem/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
}
summary { cursor: pointer; margin: .6rem 0 }
@media (max-width: 40rem) {
  dl { display: block }
  dd { margin: 0 0 .5rem }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt }
  .box { overflow: visible }
  figure, tr { break-inside: avoid }
  figure img { min-width: 0; max-width: 100%; max-height: 85vh; object-fit: contain; object-position: left }
  table { font-size: 7pt }
  th, td { padding: .15rem .3rem }
  .parameters { font-size: 6pt }
  pre { white-space: pre-wrap; width: auto }
  details::details-content { content-visibility: visible; block-size: auto }
}
"""
