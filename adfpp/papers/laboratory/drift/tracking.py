"""All learners on the same streams of a drifting teacher."""

import math

import numpy as np

import adfpp
from adfpp.papers.laboratory.bench import Bench, Outcome
from adfpp.papers.laboratory.drift.followers import (
    DRIFTS,
    FLIP,
    Course,
    Errors,
    Follower,
    error_name,
    run_followers,
    squares,
    with_adf,
    with_rate,
)
from adfpp.papers.laboratory.record import Line, Panel, measured, points
from adfpp.papers.theory.drift import (
    best_rate,
    constant_rate_course,
    spherical,
    spherical_course,
)

RIVALS = ("ADF, spherical", "RLS, forgetting", "perceptron", "ADF, static")  # ADF must have a smaller error than these
VARIANTS = ("ADF, random walk", "ADF, discount")  # differences from ADF are reported for these
LAWLESS = "there is no law of this difference"


def tracking(bench: Bench) -> Outcome:
    """All learners on the same streams."""
    course = Course(50, bench.pick(24, 60), 1.0, bench.pick(16, 96))
    drifts = bench.pick(DRIFTS[::2], DRIFTS)
    teachers = np.array([(d, 0.0) for d in drifts] + [(d, FLIP) for d in DRIFTS[::2]])
    followers = candidates(course.size, teachers)
    errors = run_followers(bench, "drift-tracking", course, teachers, followers)
    late = {name: e[:, :, course.late].mean(2) for name, e in errors.items()}  # (runs, S, K)
    chosen = {name: e.mean(0).argmin(1) for name, e in late.items()}
    best = {name: np.take_along_axis(e, chosen[name][None, :, None], 2)[..., 0] for name, e in late.items()}
    findings, times = [], course.alpha[course.late]
    for s, (drift, flip) in enumerate(teachers):
        if drift not in DRIFTS[::2]:
            continue  # this drift is in the picture only
        what = error_name(drift, flip)
        rate = float(followers["perceptron"].settings[s, chosen["perceptron"][s]])
        curves = {
            "ADF, spherical": float(spherical_course(times, drift, flip=flip).mean()),
            "perceptron": float(constant_rate_course(times, drift, rate, flip).mean()),
        }
        for name, e in best.items():
            why = "the curve is for N → ∞" if name in curves else ""
            findings.append(measured(what, name, e[:, s], theory=curves.get(name), why=why))
        for rival in RIVALS:
            apart = best["ADF"][:, s] - best[rival][:, s]
            findings.append(measured(f"{what}, less that of {rival}", "ADF", apart, theory=0.0, held="below"))
        for name in VARIANTS:
            apart = best[name][:, s] - best["ADF"][:, s]
            findings.append(measured(f"{what}, less that of ADF", name, apart, theory=0.0, why=LAWLESS))
        for other in ("ADF, discount", "RLS, forgetting"):
            apart = best["ADF, random walk"][:, s] - best[other][:, s]
            findings.append(
                measured(f"{what}, less that of {other}", "ADF, random walk", apart, theory=0.0, why=LAWLESS)
            )
    settings = {"N": course.size, "runs": course.runs, "measured at α": "{:g} to {:g}".format(*course.window)}
    notes = tracking_notes(best, chosen, followers, course, drifts)
    return Outcome(findings, tracking_panels(best, errors, chosen, course, drifts), notes, settings)


def candidates(size: int, teachers: np.ndarray) -> dict[str, Follower]:
    """The learners of the same streams.

    Some know the true drift, some have a setting whose best value is used, and one assumes a constant teacher.

    Args:
        size: N.
        teachers: ``(S, 2)`` drift and flip probability of each stream.
    """
    drifts = teachers[:, :1]
    rates = np.array([float(best_rate(d, p).rate) for d, p in teachers])[:, None] * np.array([0.5, 0.7, 1.0, 1.4, 2.0])
    memory = drifts ** (2 / 3) * np.array([1.0, 2.0, 4.0, 8.0, 16.0]) / size
    forgetting = adfpp.Discount(math.exp(-1.0))
    return {
        "ADF": with_adf(size, drifts / size, adfpp.OrnsteinUhlenbeck(1.0)),
        "ADF, spherical": with_adf(size, drifts / size, adfpp.OrnsteinUhlenbeck(1.0), "spherical"),
        "ADF, random walk": with_adf(size, 2.0 * drifts / size, adfpp.RandomWalk(1.0)),
        "ADF, discount": with_adf(size, memory, forgetting),
        "ADF, static": with_adf(size, drifts),
        "RLS, forgetting": with_adf(size, memory, forgetting, model=squares),
        "perceptron": with_rate(size, rates),
    }


def tracking_panels(best: Errors, errors: Errors, chosen: Errors, course: Course, drifts: np.ndarray) -> list[Panel]:
    """Panels of the error against the drift, without and with flips, and of the error against α."""
    fine, count = np.geomspace(drifts[0], drifts[-1], 40), len(drifts)
    panels = []
    for at, flip, some in ((slice(0, count), 0.0, drifts), (slice(count, None), FLIP, DRIFTS[::2])):
        lines = [
            Line(
                "spherical, N → ∞, in the end", fine, spherical(fine, flip=flip), kind="theory", group="ADF, spherical"
            ),
            Line("perceptron, N → ∞, in the end", fine, best_rate(fine, flip).error, kind="theory", group="perceptron"),
        ]
        for name, e in best.items():
            lines.append(points(name, some, e[:, at]))
        title = "No flips" if flip == 0 else f"Labels flipped with probability {flip:g}"
        panels.append(Panel(title, "drift", "error", tuple(lines), "xy"))
    middle = count // 2
    way = []
    for name, e in errors.items():
        way.append(points(name, course.alpha, e[:, middle, :, chosen[name][middle]], kind="band"))
    title = f"Drift {drifts[middle]:.2g}, no flips"
    return [*panels, Panel(title, "α = rows / N", "error", tuple(way), "y")]


def tracking_notes(
    best: Errors, chosen: Errors, followers: dict[str, Follower], course: Course, drifts: np.ndarray
) -> list[str]:
    """Notes on the learners of the same streams."""
    middle, slow = len(drifts) // 2, float(drifts[0])
    late, best_one = course.alpha[course.late], best_rate(slow)
    on_its_way = constant_rate_course(late, slow, float(best_one.rate)).mean()

    def shown(name: str) -> str:
        return f"{best[name][:, middle].mean():.3f}"

    memories = ", ".join(
        f"{1.0 / (course.size * followers['ADF, discount'].settings[s, chosen['ADF, discount'][s]]):.2g}"
        for s in range(len(drifts))
    )
    return [
        f"At drift {drifts[middle]:.2g} without flips: ADF {shown('ADF')}, spherical {shown('ADF, spherical')}, the "
        f"best of five discounts {shown('ADF, discount')}, random walk {shown('ADF, random walk')}, RLS "
        f"{shown('RLS, forgetting')}, perceptron {shown('perceptron')}, static {shown('ADF, static')}.",
        "ADF and spherical ADF are told the drift. Of the discounts and of the rates the best on these very streams is "
        f"taken, which flatters them. As the drift grows, the best discounts forget over α = {memories}.",
        "Static ADF's error depends on how long the stream is: ADF becomes ever more certain of a teacher that has "
        f"moved. The perceptron begins in a random direction: at drift {slow:.2g} without flips and at the best rate, "
        f"its mean error for N → ∞ is {on_its_way:.4f} over these times, and {float(best_one.error):.4f} in the end.",
    ]
