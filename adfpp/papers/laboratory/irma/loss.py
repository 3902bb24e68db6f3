"""Figure 1 of the paper on IRMA: the cumulative loss of online regression."""

import numpy as np

from adfpp.papers.baselines import IRMA, GradientDescent, Polynomial, RecursiveLeastSquares
from adfpp.papers.laboratory.bench import Bench, Outcome
from adfpp.papers.laboratory.irma.curves import (
    NOISE,
    RARE,
    ROWS,
    UNKNOWN,
    baseline_entry,
    bayes_entry,
    course_of,
    run_streams,
)
from adfpp.papers.laboratory.record import Line, Panel, measured


def loss(bench: Bench) -> Outcome:
    """Figure 1: the cumulative loss over 150 rows."""
    runs, basis = 500, Polynomial(6)
    gd, irma = GradientDescent(basis), IRMA(basis)
    entries = {
        "GD": baseline_entry(gd),
        "RLS": baseline_entry(RecursiveLeastSquares(basis)),
        "IRMA": baseline_entry(irma),
        "Bayes": bayes_entry(basis),
        "Bayes, Gram prior": bayes_entry(basis, 0.0),
        "Bayes, noise learned": bayes_entry(basis, noise=None),
    }
    measures = run_streams(bench, "irma-loss", entries, runs)
    courses = {"GD": course_of(gd), "IRMA": course_of(irma)}
    totals = {name: np.cumsum(m.loss, 1) for name, m in measures.items()}
    findings, lines = [], []
    for name, total in totals.items():
        theory = float(courses[name].loss.sum()) if name in courses else None
        held = "theory" if name == "IRMA" else None
        why = {"GD": RARE, "RLS": UNKNOWN}.get(name, "")
        findings.append(measured("loss over 150 rows", name, total[:, -1], theory=theory, held=held, why=why))
        lines.append(Line(name, np.arange(1, ROWS + 1), total.mean(0), total.std(0, ddof=1), "band"))
        if name.startswith("Bayes"):
            apart = total[:, -1] - totals["IRMA"][:, -1]
            findings.append(measured("loss beyond IRMA's", name, apart, theory=0.0, held="below"))
    lines += [
        Line(f"{name}, exact mean", np.arange(1, ROWS + 1), np.cumsum(course.loss), kind="theory")
        for name, course in courses.items()
    ]
    spread = ", ".join(
        f"{name} {total[:, -1].mean():.3g} ± {total[:, -1].std(ddof=1):.2g}" for name, total in totals.items()
    )
    notes = [
        f"Mean ± standard deviation over the streams: {spread}. Whoever knew the target would lose the noise alone, "
        f"{ROWS * NOISE**2:.3f}.",
    ]
    few = tuple(line for line in lines if line.label.startswith(("IRMA", "Bayes")))
    panels = [
        Panel("Mean and standard deviation, order 6", "rows", "cumulative loss", tuple(lines), "y"),
        Panel("Of these the lowest", "rows", "cumulative loss", few),
    ]
    return Outcome(findings, panels, notes, {"runs": runs, "rows": ROWS, "order": 6})
