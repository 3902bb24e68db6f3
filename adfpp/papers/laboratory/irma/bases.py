"""IRMA on other bases than powers."""

import jax.numpy as jnp
import numpy as np

from adfpp.papers.baselines import IRMA, Fourier, GradientDescent, Polynomial
from adfpp.papers.laboratory.bench import Bench, Outcome
from adfpp.papers.laboratory.irma.curves import (
    GRID,
    RARE,
    ROWS,
    SEEN,
    baseline_entry,
    bayes_entry,
    bumps,
    course_of,
    draw_rows,
    learn_all,
    run_streams,
    stream_panels,
    target,
)
from adfpp.papers.laboratory.record import measured
from adfpp.papers.theory.regression import least_error


def bases(bench: Bench) -> Outcome:
    """Errors of IRMA, gradient descent and Bayes on powers, a Fourier series and bumps."""
    runs = bench.pick(200, 1000)
    x, y = (np.asarray(a) for a in draw_rows(bench.key("irma-figure-2")))
    findings, notes, fits = [], [], {}
    for name, basis in {"powers": Polynomial(6), "Fourier": Fourier(3), "bumps": bumps()}.items():
        irma, gd, constant = IRMA(basis), GradientDescent(basis), IRMA(basis, growth=1.0)
        entries = {
            "IRMA": baseline_entry(irma),
            "IRMA, λ constant": baseline_entry(constant),
            "GD": baseline_entry(gd),
            "Bayes": bayes_entry(basis),
        }
        measures = run_streams(bench, "irma-bases", entries, runs)
        theory = {"IRMA": course_of(irma), "IRMA, λ constant": course_of(constant), "GD": course_of(gd)}
        for entry, m in measures.items():
            for i, n in enumerate(SEEN):
                exact = float(theory[entry].error[n - 1]) if entry in theory else None
                heavy_tails = entry == "GD" and name == "powers"
                findings.append(
                    measured(
                        f"{name}, {n} rows",
                        entry,
                        m.error[:, i],
                        theory=exact,
                        held="theory" if exact is not None and not heavy_tails else None,
                        why=RARE if heavy_tails else "",
                    )
                )
        apart = measures["Bayes"].error[:, -1] - measures["IRMA"].error[:, -1]
        findings.append(measured(f"{name}, 150 rows: beyond IRMA's", "Bayes", apart, theory=0.0, held="below"))
        nearest = least_error(lambda x, basis=basis: basis.values(x, np), target)
        ratio = theory["GD"].error[-1] / theory["IRMA, λ constant"].error[-1]
        notes.append(
            f"{name}: no combination is nearer to the target than {nearest:.1e}; after 150 rows the gradient's mean "
            f"distance is {ratio:.3g} times that of IRMA with λ = 0.1 throughout."
        )
        path = np.asarray(learn_all(entries["IRMA"], jnp.asarray(x), jnp.asarray(y)))
        fits[f"IRMA, {name}"] = path[np.array(SEEN) - 1] @ basis.values(GRID, np).T
    return Outcome(findings, stream_panels(x, y, fits), notes, {"runs": runs, "rows": ROWS, "functions": 7})
