"""The record of an experiment: figures with those of theory and paper, curves to draw, and the record as text.

A figure is held against one number, its target: it passes if it lies within a band of standard errors around it. If
there is no statistical error, as between two algorithms that should be equal, the band is an absolute tolerance.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

__all__ = ["Finding", "Line", "Panel", "Record", "against_theory", "mean_and_error", "measured", "points"]

BAND = 3.0  # standard errors; a figure is outside by chance once in 370 times
Held = Literal["theory", "paper", "above", "below"]


@dataclass(frozen=True)
class Finding:
    """One figure: a measured number, and the numbers with which it is compared.

    Attributes:
        what: Name of the quantity, e.g. "error at α = 4".
        entry: Name of the algorithm, e.g. "ADF, full".
        value: The measured value.
        se: Its standard error over the runs; 0 if nothing is random.
        theory: The value according to `adfpp.papers.theory`, or None.
        paper: The value according to the paper, or None.
        held: The target against which the value is held: the theory or the paper. "above" and "below" require a value
            beyond the theory's by more than the band. None requires nothing: the figure is reported only.
        band: Width of the band in standard errors, for a standard error that is known exactly. If it is estimated from
            few runs, the band is wider, by Student's distribution.
        tolerance: An additional allowance of known size: rounding, finite N, the digits that the paper prints.
        why: The reason for the tolerance, or for not holding the figure against anything.
        runs: Number of runs from which the standard error was estimated; 0 for very many.
    """

    what: str
    entry: str
    value: float
    se: float = 0.0
    theory: float | None = None
    paper: float | None = None
    held: Held | None = None
    band: float = BAND
    tolerance: float = 0.0
    why: str = ""
    runs: int = 0

    def __post_init__(self) -> None:
        if self.held is not None and self.target is None:
            missing = "paper" if self.held == "paper" else "theory"
            raise ValueError(
                f"{self.what} of {self.entry} has held={self.held!r}, but its target is not given: give {missing}=, or "
                "leave held out."
            )
        if self.tolerance and not self.why:
            raise ValueError(f"{self.what} of {self.entry} has a tolerance without a reason: give why=.")

    @property
    def target(self) -> float | None:
        """The number against which the value is held."""
        return self.paper if self.held == "paper" else self.theory if self.held else None

    @property
    def z(self) -> float | None:
        """Distance from the target in standard errors; without a target, from the theory or else from the paper."""
        target = self.target if self.held else self.theory if self.theory is not None else self.paper
        return None if target is None or not self.se > 0 else (self.value - target) / self.se

    @property
    def chance(self) -> float:
        """Probability of being outside the band although nothing is wrong, for normal errors."""
        if self.passes is None or not self.se > 0 or self.held in ("above", "below"):
            return 0.0
        return float(2 * stats.norm.sf(self.band))

    @property
    def reach(self) -> float:
        """Width of the band in estimated standard errors."""
        return self.band if self.runs < 2 else float(stats.t.isf(stats.norm.sf(self.band), self.runs - 1))

    @property
    def verdict(self) -> str:
        """The result in a word: "ok", with the required side if there is one, "OUTSIDE", or "" without a target."""
        if self.passes is None:
            return ""
        return f"ok{ {'above': ' >', 'below': ' <'}.get(self.held or '', '') }" if self.passes else "OUTSIDE"

    @property
    def passes(self) -> bool | None:
        """Whether the value is within the band; None without a target."""
        if self.held is None or self.target is None:
            return None
        apart, allowed = self.value - self.target, self.reach * self.se + self.tolerance
        if not math.isfinite(allowed):
            return False
        if self.held == "above":
            return bool(apart > allowed)
        if self.held == "below":
            return bool(apart < -allowed)
        return bool(abs(apart) <= allowed)


@dataclass(frozen=True)
class Line:
    """One curve of a panel.

    Attributes:
        label: Its text in the legend.
        x: ``(n,)`` horizontal values.
        y: ``(n,)`` vertical values.
        se: ``(n,)`` standard errors of y, or None.
        kind: "theory" is drawn as a line, "simulation" as points with error bars (some of them, if there are many),
            "paper" as black crosses or a dashed line, "band" as a line with its standard errors shaded.
        group: Curves of one group have one colour; the label by default.
    """

    label: str
    x: ArrayLike
    y: ArrayLike
    se: ArrayLike | None = None
    kind: Literal["theory", "simulation", "paper", "band"] = "simulation"
    group: str = ""


@dataclass(frozen=True)
class Panel:
    """One set of axes.

    Attributes:
        title: Title above the axes.
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
        lines: The curves.
        log: Which axes are logarithmic: "", "x", "y" or "xy".
    """

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    log: str = ""


@dataclass(frozen=True)
class Record:
    """The results of one run of an experiment.

    Attributes:
        name: Name of the experiment, e.g. "opper-perceptron".
        title: What the experiment shows.
        source: The figure, table or equation, and its paper.
        findings: The figures.
        panels: The picture.
        notes: Remarks on the figures, written by the run with its numbers.
        settings: Sizes, numbers of runs and the seed.
        command: The command that repeats the run.
        seconds: Duration of the run.
        versions: Versions of the software that made it.
    """

    name: str
    title: str
    source: str
    findings: tuple[Finding, ...]
    panels: tuple[Panel, ...] = ()
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    seconds: float = math.nan
    versions: str = ""

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The figures outside their bands."""
        return tuple(f for f in self.findings if f.passes is False)

    @property
    def remarks(self) -> dict[str, str]:
        """The reasons for tolerances and for missing targets, each with its letter in the table."""
        whys = dict.fromkeys(f.why for f in self.findings if f.why)
        return {why: chr(ord("a") + i) for i, why in enumerate(whys)}

    def table(self) -> list[list[str]]:
        """Header and rows of text; letters in the last column are those of `remarks`."""
        remarks = self.remarks
        columns = ("what", "entry", "found", "theory", "paper", "z", "")
        rows = [
            [
                f.what,
                f.entry,
                with_error(f.value, f.se),
                "" if f.theory is None else digits(f.theory, f.value, f.se),
                "" if f.paper is None else f"{f.paper:.4g}",
                "" if f.z is None else f"{f.z:+.1f}",
                " ".join(w for w in (f.verdict, remarks.get(f.why, "")) if w),
            ]
            for f in self.findings
        ]
        used = [i for i, name in enumerate(columns) if i < 3 or any(row[i] for row in rows)]
        return [[line[i] for i in used] for line in [list(columns), *rows]]

    def text(self) -> str:
        """The table and the notes, for a terminal."""
        rows = self.table()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        right = {i for i, name in enumerate(rows[0]) if name in ("found", "theory", "paper", "z")}
        lines = [
            "  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True)))
            for r in rows
        ]
        remarks = [f"{letter}: {self.remark(why)}" for why, letter in self.remarks.items()]
        return "\n".join([f"{self.title} ({self.source})", *(line.rstrip() for line in lines), *remarks, *self.notes])

    def remark(self, why: str) -> str:
        """A reason, after the tolerances that it explains."""
        findings = [f for f in self.findings if f.why == why]
        allowed = sorted({f.tolerance for f in findings if f.tolerance})
        if not allowed:
            return f"not held: {why}"
        most = f" to {allowed[-1]:.2g}" if len(allowed) > 1 else ""
        beyond = " beyond the band" if any(f.se > 0 for f in findings) else ""
        return f"{allowed[0]:.2g}{most} allowed{beyond}: {why}"

    def markdown(self) -> str:
        """The table and the notes, for a block of a page."""
        head, *rows = self.table()
        marks = ["---:" if name in ("found", "theory", "paper", "z") else "---" for name in head]
        lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in [head, marks, *rows]]
        sizes = ", ".join(f"{k} {v}" for k, v in self.settings.items())
        below = [f"`{self.command}` ({'; '.join(t for t in (sizes, f'{self.seconds:.0f} s', self.versions) if t)})"]
        for why, letter in self.remarks.items():
            below += ["", f"*{letter}*: {self.remark(why)}"]
        return "\n".join([*lines, "", *below, *(part for note in self.notes for part in ("", note))])

    def json(self) -> str:
        """The whole record, curves included, as JSON."""

        def plain(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return [float(f"{v:.6g}") for v in value.ravel()]
            return value.item() if isinstance(value, np.generic) else list(value)

        return json.dumps(asdict(self), default=plain, indent=1, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str) -> "Record":
        """The record that `json` wrote."""
        fields = json.loads(text)
        fields["findings"] = tuple(Finding(**f) for f in fields["findings"])
        panels = [p | {"lines": tuple(Line(**one) for one in p["lines"])} for p in fields["panels"]]
        fields["panels"], fields["notes"] = tuple(Panel(**p) for p in panels), tuple(fields["notes"])
        return Record(**fields)


def mean_and_error(values: ArrayLike, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the runs and its standard error.

    Args:
        values: ``(runs, …)``, at least two runs.
        axis: The axis of the runs.
    """
    values = np.asarray(values, float)
    count = values.shape[axis]
    if count < 2:
        raise ValueError(f"A standard error needs at least 2 runs; there is {count}: make more runs.")
    return values.mean(axis), values.std(axis, ddof=1) / math.sqrt(count)


def measured(what: str, entry: str, values: ArrayLike, **fields: Any) -> Finding:
    """A figure that is the mean of some values over the runs.

    Args:
        what: Name of the quantity.
        entry: Name of the algorithm.
        values: ``(runs,)`` the value in each run.
        **fields: Other fields of `Finding`.
    """
    mean, se = mean_and_error(values)
    return Finding(what, entry, float(mean), float(se), **fields, runs=len(np.asarray(values)))


def against_theory(
    what: str,
    entry: str,
    values: ArrayLike,
    theory: SupportsFloat,
    unless: str = "",
    held: Held = "theory",
    paper: float | None = None,
) -> Finding:
    """The mean of some values over the runs, held against the theory.

    Args:
        what: Name of the quantity.
        entry: Name of the algorithm.
        values: ``(runs,)`` the value in each run.
        theory: The value according to the theory.
        unless: A reason for reporting the figure only; "" if it is held.
        held: As in `Finding`.
        paper: As in `Finding`.
    """
    return measured(what, entry, values, theory=float(theory), paper=paper, held=None if unless else held, why=unless)


def points(
    label: str, x: ArrayLike, values: ArrayLike, group: str = "", kind: Literal["simulation", "band"] = "simulation"
) -> Line:
    """A curve of means over the runs with their standard errors.

    Args:
        label: Its text in the legend.
        x: ``(n,)`` horizontal values.
        values: ``(runs, n)`` vertical values in each run.
        group: Curves of one group have one colour; the label by default.
        kind: How the curve is drawn.
    """
    return Line(label, x, *mean_and_error(values), kind, group)


def with_error(value: float, se: float) -> str:
    """A value with as many digits as its standard error allows."""
    if not se > 0:
        return f"{value:.4g}"
    power = exponent(value, se)
    if power:
        return f"({value / 10**power:.{places(se) + power}f} ± {se / 10**power:.{places(se) + power}f})e{power:+03d}"
    return f"{digits(value, value, se)} ± {digits(se, value, se)}"


def digits(number: float, value: float, se: float) -> str:
    """A number with as many digits as the value with this standard error: two digits of the error are shown."""
    if not (se > 0 and math.isfinite(se) and math.isfinite(value)):
        return f"{number:.4g}"
    if number == 0:
        return "0"
    power = exponent(value, se)
    tail = f"e{power:+03d}" if power else ""
    return f"{number / 10**power:.{places(se) + power}f}{tail}"


def places(se: float) -> int:
    """Decimals that show two digits of a standard error."""
    return max(0, 1 - math.floor(math.log10(se)))


def exponent(value: float, se: float) -> int:
    """The power of ten with which a number is better written; 0 if it is better written without one."""
    largest = max(abs(value), se)
    if math.isfinite(largest) and (places(se) > (6 if largest < 1e-3 else 8) or largest >= 1e5):
        return max(math.floor(math.log10(largest)), -places(se))
    return 0
