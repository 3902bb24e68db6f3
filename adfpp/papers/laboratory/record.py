"""What an experiment found: figures beside theory and paper, curves to draw, and all of it as text.

A figure is held against one number and passes within a band of standard errors. Where there is no statistical error,
as between two algorithms that should be one, the band is an absolute tolerance.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from scipy import stats

__all__ = ["Finding", "Line", "Panel", "Record", "mean_and_error", "measured", "points"]

BAND = 3.0


@dataclass(frozen=True)
class Finding:
    """One figure.

    Attributes:
        what: What it is, e.g. "error at α = 4".
        entry: Which algorithm, e.g. "ADF, full".
        value: The figure measured.
        se: Its standard error over the runs; 0 where nothing is random.
        theory: What `adfpp.papers.theory` says, or None.
        paper: What the paper says, or None.
        held: Which of the two it must agree with; "above" and "below" ask for a value beyond the theory's by the band,
            None asks for nothing (the figure is reported).
        band: Standard errors within which it must, if the standard error were known; from few runs it is not, and the
            band is as much wider as Student's distribution says.
        runs: How many runs the standard error comes from; 0 for very many.
        tolerance: What is allowed besides, of known size: rounding, finite N, the digits that the paper prints.
        why: What the tolerance is for, or why nothing is held.
    """

    what: str
    entry: str
    value: float
    se: float = 0.0
    theory: float | None = None
    paper: float | None = None
    held: Literal["theory", "paper", "above", "below"] | None = None
    band: float = BAND
    tolerance: float = 0.0
    why: str = ""
    runs: int = 0

    def __post_init__(self) -> None:
        if self.held is not None and self.target is None:
            raise ValueError(f"{self.what} of {self.entry} is held against {self.held}, which is not given.")
        if self.tolerance and not self.why:
            raise ValueError(f"{self.what} of {self.entry} has a tolerance: say what for.")

    @property
    def target(self) -> float | None:
        """What it is held against."""
        return self.paper if self.held == "paper" else self.theory if self.held else None

    @property
    def z(self) -> float | None:
        """Standard errors from the target; from the theory, or else the paper, where nothing is held."""
        target = self.target if self.held else self.theory if self.theory is not None else self.paper
        return None if target is None or not self.se > 0 else (self.value - target) / self.se

    @property
    def chance(self) -> float:
        """Probability of being outside where nothing is wrong, normal errors taken for granted."""
        if self.passes is None or not self.se > 0 or self.held in ("above", "below"):
            return 0.0
        return float(2 * stats.norm.sf(self.band))

    @property
    def reach(self) -> float:
        """The band in standard errors as they were estimated."""
        return self.band if self.runs < 2 else float(stats.t.isf(stats.norm.sf(self.band), self.runs - 1))

    @property
    def verdict(self) -> str:
        """In a word: "ok", with the side that was asked for if it was one; "" where nothing is held."""
        if self.passes is None:
            return ""
        return f"ok{ {'above': ' >', 'below': ' <'}.get(self.held or '', '') }" if self.passes else "OUTSIDE"

    @property
    def passes(self) -> bool | None:
        """Whether it is within the band; None where nothing is held."""
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
        label: In the legend.
        x: ``(n,)``.
        y: ``(n,)``.
        se: ``(n,)`` standard errors, or None.
        kind: "theory" is drawn as a line, "simulation" as points with error bars (of many some),
            "paper" as black crosses or a dashed line, "band" as a line with its standard errors shaded.
        group: Curves of one group have one colour; its label by default.
    """

    label: str
    x: Any
    y: Any
    se: Any = None
    kind: Literal["theory", "simulation", "paper", "band"] = "simulation"
    group: str = ""


@dataclass(frozen=True)
class Panel:
    """One set of axes.

    Attributes:
        title: Above it.
        x: Label of the axis.
        y: Label of the axis.
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
    """What an experiment found.

    Attributes:
        name: Of the experiment, e.g. "opper-perceptron".
        title: What it shows.
        source: Which figure, table or equation of which paper.
        findings: The figures.
        panels: The picture.
        notes: What is to be said about them; written by the run, with its numbers in it.
        settings: Sizes, numbers of runs and the seed.
        command: That repeats it.
        seconds: That it took.
        versions: Of the software that made it.
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
        """Figures outside of their band."""
        return tuple(f for f in self.findings if f.passes is False)

    @property
    def remarks(self) -> dict[str, str]:
        """Why something is allowed beyond a band, or not held, and the letter that stands for it in the table."""
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
        told = [f"{letter}: {self.remark(why)}" for why, letter in self.remarks.items()]
        return "\n".join([f"{self.title} ({self.source})", *(line.rstrip() for line in lines), *told, *self.notes])

    def remark(self, why: str) -> str:
        """A remark with the tolerances that it is the reason of."""
        meant = [f for f in self.findings if f.why == why]
        allowed = sorted({f.tolerance for f in meant if f.tolerance})
        if not allowed:
            return f"not held: {why}"
        most = f" to {allowed[-1]:.2g}" if len(allowed) > 1 else ""
        beyond = " beyond the band" if any(f.se > 0 for f in meant) else ""
        return f"{allowed[0]:.2g}{most} allowed{beyond}: {why}"

    def markdown(self) -> str:
        """The same as a block of a page."""
        head, *rows = self.table()
        marks = ["---:" if name in ("found", "theory", "paper", "z") else "---" for name in head]
        lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in [head, marks, *rows]]
        sizes = ", ".join(f"{k} {v}" for k, v in self.settings.items())
        told = [f"`{self.command}` ({'; '.join(t for t in (sizes, f'{self.seconds:.0f} s', self.versions) if t)})"]
        for why, letter in self.remarks.items():
            told += ["", f"*{letter}*: {self.remark(why)}"]
        return "\n".join([*lines, "", *told, *(part for note in self.notes for part in ("", note))])

    def json(self) -> str:
        """All of it, curves included."""

        def plain(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return [float(f"{v:.6g}") for v in value.ravel()]
            return value.item() if isinstance(value, np.generic) else list(value)

        return json.dumps(asdict(self), default=plain, indent=1, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str) -> "Record":
        """The record that `json` wrote."""
        found = json.loads(text)
        found["findings"] = tuple(Finding(**f) for f in found["findings"])
        panels = [p | {"lines": tuple(Line(**one) for one in p["lines"])} for p in found["panels"]]
        found["panels"], found["notes"] = tuple(Panel(**p) for p in panels), tuple(found["notes"])
        return Record(**found)


def mean_and_error(values: Any, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the runs and its standard error.

    Args:
        values: ``(runs, …)``, at least two runs.
        axis: Of the runs.
    """
    values = np.asarray(values, float)
    count = values.shape[axis]
    if count < 2:
        raise ValueError(f"A standard error needs at least 2 runs; there is {count}.")
    return values.mean(axis), values.std(axis, ddof=1) / math.sqrt(count)


def measured(what: str, entry: str, values: Any, **more: Any) -> Finding:
    """The mean of some values over the runs.

    Args:
        what: What it is.
        entry: Which algorithm.
        values: ``(runs,)``.
        **more: What else `Finding` takes.
    """
    mean, se = mean_and_error(values)
    return Finding(what, entry, float(mean), float(se), **more, runs=len(np.asarray(values)))


def points(
    label: str, x: Any, values: Any, group: str = "", kind: Literal["simulation", "band"] = "simulation"
) -> Line:
    """A curve of means over the runs with their standard errors.

    Args:
        label: In the legend.
        x: ``(n,)``.
        values: ``(runs, n)``.
        group: Curves of one group have one colour; the label by default.
        kind: How it is drawn.
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
    """A number as the value with this standard error is printed: two digits of the error."""
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
    """The power of ten that numbers are better written with; 0 for those that are not."""
    largest = max(abs(value), se)
    if math.isfinite(largest) and (places(se) > (6 if largest < 1e-3 else 8) or largest >= 1e5):
        return max(math.floor(math.log10(largest)), -places(se))
    return 0
