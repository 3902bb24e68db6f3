"""The cases: a model, a stream of its data, a learner and a precision."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.verdicts.models import CALIBRATION, REPORT, Data, Simulated

MIXED, SORTED, OUTLIERS, FLIPPED, DRIFTING = "mixed", "sorted", "outliers", "change point", "drifting"
STREAMS = {
    MIXED: "rows in random order",
    SORTED: "the same rows, sorted by the observed value",
    OUTLIERS: "5 % of the rows are outliers",
    FLIPPED: "the effects change their sign after 60 % of the rows",
    DRIFTING: "the effects go from their value to its negative, step by step",
}
_SEEDS = {"calibration": 100, "report": 3000}


@dataclass(frozen=True)
class Case:
    """One verdict.

    Attributes:
        group: "calibration" or "report".
        simulated: The model.
        stream: The kind of stream.
        learner: "ADF" or "EP".
        dtype: "float64" or "float32".
    """

    group: str
    simulated: Simulated
    stream: str
    learner: str
    dtype: str = "float64"

    @property
    def name(self) -> str:
        """The name of its record."""
        return ", ".join([self.simulated.name, self.stream, self.learner, self.dtype])

    @property
    def drifts(self) -> bool:
        """Whether the parameters change along the rows, so that no posterior of the model should be trusted."""
        return self.stream in (FLIPPED, DRIFTING)

    @property
    def posterior(self) -> str:
        """The name of the exact posterior, which mixed and sorted streams of the same rows share."""
        return f"{self.simulated.name}, {MIXED if self.stream == SORTED else self.stream}"

    def data(self) -> Data:
        """The model's keyword arguments, in the order of the stream."""
        chosen = CALIBRATION if self.group == "calibration" else REPORT
        rng = np.random.default_rng(_SEEDS[self.group] + chosen.index(self.simulated))
        n = self.simulated.rows * (4 if self.drifts else 1)
        effect = np.ones(n)
        if self.stream == FLIPPED:
            effect[int(0.6 * n) :] = -1.0
        elif self.stream == DRIFTING:
            effect = np.linspace(1.0, -1.0, n)
        data = self.simulated.draw(rng, n, effect)
        y = data["y"]
        if self.stream == OUTLIERS and self.simulated.spoil is not None:
            far = rng.choice(n, n // 20, replace=False)
            y = y.copy()
            y[far] = self.simulated.spoil(rng, y[far])
            data = data | {"y": y}
        order = np.argsort(y, kind="stable") if self.stream == SORTED else np.arange(n)
        return {name: self._cast(a[order] if np.ndim(a) else a) for name, a in data.items()}

    def _cast(self, a: Any) -> Any:
        return a.astype(np.float32) if self.dtype == "float32" and np.asarray(a).dtype == np.float64 else a


def _cases(group: str, models: tuple[Simulated, ...], streams: dict[str, tuple[str, ...]]) -> list[Case]:
    out = []
    for stream, names in streams.items():
        for simulated in models:
            if not names or simulated.name in names:
                out += [Case(group, simulated, stream, learner) for learner in ("ADF", "EP")]
    return out


def _single(group: str, models: tuple[Simulated, ...], names: tuple[str, ...]) -> list[Case]:
    chosen = [m for m in models if m.name in names]
    return [Case(group, m, MIXED, learner, "float32") for m in chosen for learner in ("ADF", "EP")]


CASES = (
    *_cases(
        "calibration",
        CALIBRATION,
        {
            MIXED: (),
            SORTED: ("logistic", "Student-t", "mixture"),
            OUTLIERS: ("Student-t", "logistic"),
            FLIPPED: ("logistic", "Poisson"),
            DRIFTING: ("Student-t",),
        },
    ),
    *_single("calibration", CALIBRATION, ("logistic", "Student-t")),
    *_cases(
        "report",
        REPORT,
        {
            MIXED: (),
            SORTED: (),
            OUTLIERS: ("cloglog", "gamma", "linear", "normal, log scale"),
            FLIPPED: ("probit", "negative binomial", "linear", "Poisson in groups"),
            DRIFTING: ("cloglog", "gamma", "normal, log scale"),
        },
    ),
    *_single("report", REPORT, ("probit", "gamma", "Poisson in groups", "means, non-centred")),
)
