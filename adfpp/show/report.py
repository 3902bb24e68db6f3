"""Writes a comparison as one self-contained HTML page.

``page_of`` collects the content of the page as data; ``templates/report.html`` lays it out. Jinja2 escapes all text,
because names of runs and latents come from the user and may contain any characters.
"""

import base64
import contextlib
import inspect
import io
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adfpp._version import __version__
from adfpp.judge.compare import Comparison
from adfpp.judge.verdict import Grade
from adfpp.show.plots import draw
from adfpp.show.series import by_error
from adfpp.show.style import colours

if TYPE_CHECKING:
    import pandas as pd

_PACKAGES = ("numpyro", "jax", "jaxlib", "arviz", "numpy", "matplotlib")
_FIRST, _MOST = 15, 500  # parameters of the table: those that are visible at once, and all
_DPI = 130  # 1,040 pixels for a figure of 8 inches, which is sharp at the page's 900
_LONGEST = 200  # characters of an argument's value
_READ_AS = 30.0  # means are shown to a thirtieth of their sd: finer digits are noise


def write_report(comparison: Comparison, path: Path) -> Path:
    """Writes the page atomically, and creates its folder if necessary.

    Every number is in the page twice: rounded for readers, and exactly, as the ``value`` of a ``<data>`` element.

    Args:
        comparison: The comparison.
        path: The path of the page.

    Returns:
        The path written.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the page a name in it, e.g. {path / 'report.html'}.")
    text = rendered(comparison)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def rendered(comparison: Comparison) -> str:
    """The page as HTML."""
    try:
        import jinja2
    except ImportError as error:
        raise ImportError('The report needs Jinja2: pip install "adfpp[report]"') from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("adfpp.show"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html").render(page=page_of(comparison))


# ------------------------------------------------------------------------------------------------- the page as data


class Run(NamedTuple):
    """A run's name and its colour in the pictures."""

    name: str
    colour: str


class Number(NamedTuple):
    """A number: its column, its exact value for programs, and its rounded value for readers."""

    column: str
    value: str
    shown: str


class Cell(NamedTuple):
    """A number or the two ends of a range, with the standard error; empty if the number is not known."""

    numbers: tuple[Number, ...] = ()
    noise: Number | None = None


class RunRow(NamedTuple):
    """A row of the overview."""

    run: Run
    cells: list[Cell]


class ParameterRow(NamedTuple):
    """A row of the table of parameters."""

    name: str
    cells: list[Cell]


class Table(NamedTuple):
    """Some columns of the overview, with one row for each run."""

    id: str
    headings: list[str]
    rows: list[RunRow]


class VerdictLine(NamedTuple):
    """The verdict on a run."""

    run: Run
    grade: Grade
    words: str
    method: str


class Picture(NamedTuple):
    """A picture as PNG in base 64."""

    kind: str
    png: str
    caption: str


@dataclass(frozen=True)
class Page:
    """The content of the page; the fields have the names of its sections."""

    title: str
    about: str
    reference: Run
    runs: list[Run]
    verdicts: list[VerdictLine]
    doubts: str
    reference_words: str
    distances: Table
    scores: Table
    meanings: Mapping[str, str]
    pictures: list[Picture]
    without_pictures: str
    parameters: list[ParameterRow]
    more_parameters: list[ParameterRow]
    parameters_left_out: int
    explanation: str
    source: str
    call: str
    versions: Mapping[str, str]


def page_of(comparison: Comparison) -> Page:
    """Collects the content of the page."""
    tint, overview = colours(comparison), comparison.overview
    runs = {name: Run(name, tint[name]) for name in comparison.fits}
    verdicts = comparison.verdicts
    parameters = _parameters(comparison)
    pictures, without_pictures = _pictures(comparison)
    return Page(
        title=f"{', '.join(comparison.names)} against {comparison.reference}",
        about=(
            f"{comparison.joint.length} rows, {len(comparison.truth.names)} parameters, reference: "
            f"{comparison.truth.method}"
        ),
        reference=runs[comparison.reference],
        runs=[runs[name] for name in comparison.names],
        verdicts=[
            VerdictLine(runs[name], verdicts[name].grade, "; ".join(verdicts[name].words), comparison.fits[name].method)
            for name in comparison.names
        ],
        doubts="; ".join(comparison.problems),
        reference_words="; ".join(verdicts[comparison.reference].words),
        distances=_table("overview", _DISTANCES, overview, [runs[name] for name in comparison.names]),
        scores=_table("overview-scores", _SCORES, overview, [runs[name] for name in overview.index]),
        meanings=_MEANINGS,
        pictures=pictures,
        without_pictures=without_pictures,
        parameters=parameters[:_FIRST],
        more_parameters=parameters[_FIRST:],
        parameters_left_out=len(comparison.truth.names) - len(parameters),
        explanation="" if comparison.explanation is None else str(comparison.explanation),
        source=_source(comparison.joint.program.model),
        call=_call(comparison),
        versions=_versions(comparison),
    )


# ------------------------------------------------------------------------------------------------- the overview


class _Column(NamedTuple):
    """A column of the page: its heading, the columns of the overview in it, and the column of the standard error."""

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
        "Errors of the posterior means, in standard deviations of the reference. At 0.1 two posteriors can hardly be "
        "told apart in a picture; at 1 a mean is a whole standard deviation off. The number after ± is the reference's "
        "own Monte-Carlo standard error: differences below it may be chance. The standard deviation of a discrete "
        "parameter goes to 0 as the parameter becomes certain, so its error is twice the total variation distance, "
        "which is twice the error of a probability and a distance in standard deviations of a fair coin."
    ),
    "sd ratio": (
        "The smallest and the largest ratio of the run's posterior standard deviations to those of the reference. "
        "Below 1 the run is overconfident. It is blank for discrete parameters, whose probabilities determine it."
    ),
    "KL": (
        "Kullback–Leibler divergence of the run from the reference in nats. Both are taken as Gaussians in the run's "
        "coordinates, so that it also measures correlations, unlike the columns before. For discrete latents it "
        "is the divergence of the marginals, or, against an enumerated reference, that of the whole posterior. The "
        "number after ± is the approximate share of the reference's sampling error."
    ),
    "W1": (
        "The largest Wasserstein-1 distance of a parameter's marginal from that of the reference, in its standard "
        "deviations. It also measures the shape."
    ),
    "k̂": (
        "Pareto k̂ of the run as a proposal for the posterior. Below 0.5 importance weights correct its errors well; "
        "above 0.7 they cannot."
    ),
    "elpd": (
        "Expected log predictive density of new rows, by leave-one-out cross-validation, ± its standard error. Higher "
        "is better."
    ),
    "good rows": "The share of rows whose contribution to the elpd can be relied on.",
    "log evidence": "Log probability of the data under the model, where the run estimates it.",
    "compile, run, sampling": (
        "Seconds to compile; seconds of the run itself once it is compiled (for MCMC: warm-up and sampling); the same "
        "without MCMC's warm-up."
    ),
    "speed-up": "Seconds of the reference's run divided by those of this run, both once compiled.",
}


def _table(name: str, columns: Sequence[_Column], overview: "pd.DataFrame", runs: Sequence[Run]) -> Table:
    rows = []
    for run in runs:
        values = overview.loc[run.name]
        cells = []
        for column in columns:
            noise = float(values[column.noise]) if column.noise is not None else math.nan
            numbers = {c: float(values[c]) for c in column.columns}
            cells.append(_cell(numbers, column.noise, noise, percent=column.percent))
        rows.append(RunRow(run, cells))
    return Table(name, [column.heading for column in columns], rows)


# ------------------------------------------------------------------------------------------------- the pictures

_CAPTIONS = {
    "forest": (
        "Posterior intervals of all runs, side by side. A run agrees with the reference if their intervals coincide."
    ),
    "marginals": (
        "Marginal posteriors. The reference is shaded. A curve beside it has a wrong mean; a narrower one is "
        "overconfident."
    ),
    "probabilities": (
        "Probability of each value of the discrete latents, under a run and under the reference. A dot off the line is "
        "a probability that is wrong."
    ),
    "predictions": (
        "The prediction of each row of the data, under a run and under the reference. This shows how much the errors "
        "of the parameters matter for predictions."
    ),
    "learning": (
        "The beliefs of the online runs after so many rows, and the reference, which is given all rows. A jump at the "
        "end or a drift away from the reference shows that the order of the rows matters."
    ),
}


def _pictures(comparison: Comparison) -> tuple[list[Picture], str]:
    """The pictures, or the reason why there are none."""
    try:
        figures: dict[str, Any] = draw(comparison, "all")  # pyright: ignore[reportAssignmentType] ("all" is a dict)
    except ImportError as error:
        return [], f"{error}"
    out = []
    for kind, figure in figures.items():
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=_DPI, metadata={"Software": None})
        out.append(Picture(kind, base64.b64encode(png.getvalue()).decode("ascii"), _CAPTIONS[kind]))
    return out, ""


# ------------------------------------------------------------------------------------------------- the parameters


def _parameters(comparison: Comparison) -> list[ParameterRow]:
    """One row for each parameter; the one with the largest error comes first."""
    table, names = comparison.parameters, comparison.truth.names
    of_run = {name: table.loc[name] for name in comparison.fits}
    rows = []
    for parameter in [names[i] for i in by_error(comparison)][:_MOST]:
        truth = of_run[comparison.reference].loc[parameter]
        decimals = _decimals(float(truth["sd"]) / _READ_AS, float(truth["mean"]))
        cells = [_cell({c: float(truth[c])}, decimals=decimals) for c in ("mean", "sd")]
        for name in comparison.names:
            row = of_run[name].loc[parameter]
            cells += [_cell({c: float(row[c])}, decimals=decimals) for c in ("mean", "sd")]
            cells.append(_cell({"error": float(row["error"])}, "mcse", float(row["mcse"])))
            cells += [_cell({c: float(row[c])}, decimals=_decimals(0.01, float(row[c]))) for c in ("sd_ratio", "w1")]
        rows.append(ParameterRow(parameter, cells))
    return rows


# ------------------------------------------------------------------------------------------------- how to repeat it


def _source(model: Any) -> str:
    """The model's source text, or an empty string if Python cannot find it."""
    while hasattr(model, "func"):  # functools.partial
        model = model.func
    with contextlib.suppress(OSError, TypeError):
        return inspect.cleandoc("\n" + inspect.getsource(model))
    return ""


def _call(comparison: Comparison) -> str:
    """The code that repeats the comparison."""
    args, kwargs = comparison.data
    runs = [f"    {name!r}: ...,  # {comparison.fits[name].method}" for name in comparison.names]
    options = dict(comparison.options)
    key = options.pop("rng_key")
    given = [f"    {_described(a)}," for a in args]
    given += [f"    {name}={_described(a)}," for name, a in kwargs.items()]
    if options["reference"] is None:  # it was a sampler or draws
        given.append(f"    reference=...,  # {comparison.truth.method}")
        del options["reference"]
    given += [f"    {name}={value!r}," for name, value in options.items()]
    first = f"jax.random.wrap_key_data(jax.numpy.array({key}, dtype='uint32'))"
    lines = ["runs = {", *runs, "}", "comparison = adfpp.compare(", f"    {first},", "    runs,", *given, ")"]
    return "\n".join(lines)


def _described(value: object) -> str:
    """An argument as text: shape and dtype of an array, the value of a small object."""
    shape, kind = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and kind is not None:
        return f"<array {tuple(shape)} {kind}>"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {_described(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        inner = ", ".join(_described(v) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _versions(comparison: Comparison) -> dict[str, str]:
    out = {
        "rows": str(comparison.joint.length),
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Python": platform.python_version(),
        "adfpp": __version__,
    }
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            out[package] = version(package)
    return out | {"numbers": str(np.dtype(comparison.joint.program.dtype))}


# ------------------------------------------------------------------------------------------------- numbers


def _cell(
    values: Mapping[str, float],
    noise: str | None = None,
    around: float = math.nan,
    decimals: int | None = None,
    percent: bool = False,
) -> Cell:
    """The cell of one number or a range, with the standard error if there is one."""
    if all(math.isnan(value) for value in values.values()):
        return Cell()
    if decimals is None:
        decimals = 0 if percent else _decimals(around, *values.values())
    numbers = tuple(_number(column, value, decimals, percent) for column, value in values.items())
    if noise is None or not math.isfinite(around):
        return Cell(numbers)
    return Cell(numbers, _number(noise, around, decimals))


def _number(column: str, value: float, decimals: int, percent: bool = False) -> Number:
    if not math.isfinite(value):
        shown = "–" if math.isnan(value) else "infinite"
    elif percent:
        shown = f"{100.0 * value:.{decimals}f} %"
    elif abs(value) >= 1e7 or decimals > 7:
        shown = f"{value:.2e}"
    else:
        shown = f"{value:,.{decimals}f}"
        shown = shown if shown.strip("-0.,") else shown.removeprefix("-")
    return Number(column, repr(value), shown.replace("-", "−"))


def _decimals(around: float, *values: float) -> int:
    """The number of decimals: up to the first digit of the error, or three significant digits without an error."""
    if math.isfinite(around) and around > 0.0:
        return max(0, -math.floor(math.log10(around)))
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    return max(0, 2 - math.floor(math.log10(largest))) if largest > 0.0 else 0
