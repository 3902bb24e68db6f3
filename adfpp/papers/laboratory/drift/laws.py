"""Spherical ADF and the perceptron with a constant rate, compared with their theories for a drifting teacher."""

import numpy as np

import adfpp
from adfpp.papers.laboratory.bench import Bench, Outcome
from adfpp.papers.laboratory.drift.followers import DRIFTS, FLIP, Course, error_name, run_followers, with_adf, with_rate
from adfpp.papers.laboratory.record import Finding, Line, Panel, measured
from adfpp.papers.theory.drift import (
    best_rate,
    constant_rate_course,
    small_drift,
    spherical,
    spherical_course,
)

FACTORS = (0.5, 1.0, 2.0)  # rates, as multiples of the best rate


def laws(bench: Bench) -> Outcome:
    """Spherical ADF with the true drift, and the perceptron at its best constant rate and at other rates."""
    course = Course(bench.pick(300, 1000), bench.pick(24, 48), 1.0, bench.pick(16, 32))
    teachers = np.array([(d, 0.0) for d in DRIFTS] + [(d, FLIP) for d in DRIFTS[1::2]])
    best = np.array([float(best_rate(d, p).rate) for d, p in teachers])
    followers = {
        "ADF, spherical": with_adf(
            course.size, teachers[:, :1] / course.size, adfpp.OrnsteinUhlenbeck(1.0), "spherical"
        ),
        "perceptron": with_rate(course.size, best[:, None] * np.array(FACTORS)),
    }
    errors = run_followers(bench, "drift-laws", course, teachers, followers)
    late = course.alpha[course.late]
    findings, of_learner = [], {}
    for s, (drift, flip) in enumerate(teachers):
        what = error_name(drift, flip)
        exact = spherical_course(late, drift, flip=flip).mean()
        values = errors["ADF, spherical"][:, s, course.late, 0].mean(1)
        findings.append(measured(what, "ADF, spherical", values, theory=float(exact), held="theory"))
        of_learner["ADF, spherical", s] = findings[-1]
        for k, times in enumerate(FACTORS):
            exact = constant_rate_course(late, drift, best[s] * times, flip).mean()
            values = errors["perceptron"][:, s, course.late, k].mean(1)
            entry = f"perceptron, {'' if times == 1 else f'{times:g} times '}the best rate"
            findings.append(measured(what, entry, values, theory=float(exact), held="theory"))
            of_learner[f"perceptron {times:g}", s] = findings[-1]
    settings = {"N": course.size, "runs": course.runs, "measured at α": "{:g} to {:g}".format(*course.window)}
    return Outcome(findings, law_panels(of_learner, best, late), law_notes(), settings)


def law_panels(of_learner: dict[tuple[str, int], Finding], best: np.ndarray, late: np.ndarray) -> list[Panel]:
    """Panels of the error against the drift, and against the rate."""
    fine = np.geomspace(DRIFTS[0], DRIFTS[-1], 17)
    adf, rule = small_drift(fine)
    at_best = [constant_rate_course(late, d, float(best_rate(d).rate)).mean() for d in fine]
    lines = [
        Line("ADF, spherical", fine, [spherical_course(late, d).mean() for d in fine], kind="theory"),
        Line("perceptron, best rate", fine, at_best, kind="theory"),
        Line("ADF's law at small drift", fine, adf, kind="theory"),
        Line("perceptron's law", fine, rule, kind="theory"),
    ]
    for name, key in (("ADF, spherical", "ADF, spherical"), ("perceptron, best rate", "perceptron 1")):
        some = [of_learner[key, s] for s in range(len(DRIFTS))]
        lines.append(Line(f"{name}, runs", DRIFTS, [f.value for f in some], [f.se for f in some], group=name))
    against = []
    for s in range(0, len(DRIFTS), 2):
        rates = best[s] * np.geomspace(0.4, 2.5, 13)
        name = f"drift {DRIFTS[s]:.2g}"
        exact = [constant_rate_course(late, DRIFTS[s], rate).mean() for rate in rates]
        against.append(Line(name, rates, exact, kind="theory"))
        some = [of_learner[f"perceptron {times:g}", s] for times in FACTORS]
        tried = best[s] * np.array(FACTORS)
        against.append(Line(f"{name}, runs", tried, [f.value for f in some], [f.se for f in some], group=name))
    when = f"α from {late[0]:g} to {late[-1]:g}, no flips"
    return [
        Panel(f"Followed, {when}", "drift", "error", tuple(lines), "xy"),
        Panel(f"The perceptron's rate, {when}", "rate η", "error", tuple(against), "xy"),
    ]


def law_notes() -> list[str]:
    """Notes on the laws."""
    adf, rule = (float(law) for law in small_drift(1.0))
    slow = DRIFTS[0]
    return [
        f"As the drift goes to 0 the errors are {adf:.3f} drift^(1/3) for spherical ADF and {rule:.3f} drift^(1/3) for "
        f"the perceptron at its best constant rate. At drift {slow:.2g} they end at {float(spherical(slow)):.4f} and "
        f"{float(best_rate(slow).error):.4f}. The best rate is {float(best_rate(slow).rate):.3f} there, and "
        f"{float(best_rate(DRIFTS[-1]).rate):.3f} at drift {DRIFTS[-1]:.2g}: the perceptron has to be given it.",
    ]
