"""The benchmarks of published models and of verdicts: their models and streams, and their pages."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.models_tried import cases
from benchmarks.models_tried.__main__ import kept
from benchmarks.models_tried.cases import CASES, RUNS, Case
from benchmarks.models_tried.page import page
from benchmarks.models_tried.run import Record, digest, errors, expected, record_path, runs_under_numpyro, versions
from benchmarks.references import Reference
from benchmarks.verdicts import cases as verdicts
from benchmarks.verdicts.page import page as verdicts_page


def case_named(name: str) -> Case:
    """The case with this name."""
    return next(case for case in CASES if case.name == name)


def record(case: Case, **rest: object) -> Record:
    """A tiny record of a case."""
    return {"name": case.name, "digest": digest(case), "versions": versions(), **rest}


def one_learner(**rest: object) -> Record:
    """What a record has about ADF or EP."""
    plain = {"first_seconds": 1.5, "seconds": 0.1, "marked": {"HELD": 2}, "verdict": "trust", "grade": "trust it"}
    figures = {"mean_error": 0.5, "mcse": 0.01, "worst": "b0", "sd_low": 0.8, "sd_high": 1.0}
    return {**plain, **figures, "right": False, "silently_wrong": True, **rest}


# Drawing the data of all of them takes half a minute.
EVERY_CASE = [pytest.param(c, id=c.name, marks=() if c.common else pytest.mark.slow) for c in CASES]


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY_CASE)
def test_every_model_runs_under_numpyro(case: Case) -> None:
    """Each has observations, by shapes alone, and a smallest field or a reason for which it should be refused."""
    sampled = runs_under_numpyro(case)
    assert len(sampled) >= 2  # a latent and an observation
    assert (case.smallest is None) == (case.expectation != RUNS)
    assert (case.sampling is None) == bool(case.unjudged)


def test_names_are_unique_and_twenty_are_common() -> None:
    assert len({record_path(case, Path()) for case in CASES}) == len(CASES) >= 64
    assert sum(case.common for case in CASES) == 20


def test_the_page_shows_what_ran_and_what_was_refused() -> None:
    """A model that is silently wrong, and one that is refused with the right reason."""
    ran, refused = case_named("kidiq"), case_named("AR(1)")
    shape = {"rows": 434, "numbers": 4, "fields": [3], "prior_fields": [2], "rules": [], "local": []}
    nuts = {"r_hat": 1.0, "mcse": 0.01, "divergences": 0, "seconds": 1.0, "clean": True}
    good = one_learner(mean_error=0.02, right=True, silently_wrong=False, converged=True, sweeps=3, marked={})
    text = page(
        [
            record(ran, outcome="ran", adf=one_learner(), ep=good, nuts=nuts, **shape),
            record(
                refused, outcome="refused", stage="adf", message="ModelError: It does not follow the rows: no. More."
            ),
        ]
    )
    assert "| ran | 1 |" in text and "| refused rightly | 1 |" in text
    assert "| ADF, wrong | 1 | 0 | 0 |" in text and "| EP, right | 1 | 0 | 0 |" in text
    assert "a mean is off by more than 0.3 sd: kidiq (ADF)." in text
    assert (
        "| kidiq | Gelman & Hill | 434 | 4 | 3; 2 (2) | 1.5 + 1.5 | ADF | 0.50 (0.01), b0 | 0.80 – 1.00 | no |" in text
    )
    assert f"| AR(1) | {refused.source} | {refused.expectation} | refused rightly | ModelError: It does not" in text
    assert "in 0 of 1 models" in text


def test_a_refusal_for_another_reason_is_no_right_one() -> None:
    case = case_named("AR(1)")
    assert expected(case, record(case, outcome="refused", message="No reason.")) == "refused for another reason"
    assert expected(case, record(case, outcome="ran")) == "accepted wrongly"
    assert expected(case_named("kidiq"), record(case, outcome="refused", message="")) == "refused wrongly"


def test_errors_count_up_to_the_noise_of_the_reference() -> None:
    """Means of 0.12 and 0.5 sd off, with an MCSE of 0.01: the first is within 0.1 sd + 3 MCSE, the second is not."""

    class Latent:
        name, size = "w", 2

    class Stub:
        latents, size = [Latent()], 2

    class Post:
        program = Stub()

        def __init__(self, *mean: float) -> None:
            self.belief = type("Belief", (), {"mean": np.array(mean)})()
            self.family = type("Family", (), {"spread": staticmethod(lambda belief, size: np.array([2.0, 1.0]))})()

    truth = Reference(np.zeros(2), np.array([2.0, 1.0]), np.full(2, 0.01), np.full(2, 0.01), 1.0, 0, 1.0, 1.0)
    near, far = errors(Post(0.24, 0.0), truth, "trust"), errors(Post(0.0, -0.5), truth, "trust")
    assert near["right"] and math.isclose(near["mean_error"], 0.12) and near["worst"] == "w[0]"
    assert not far["right"] and far["silently_wrong"] and far["worst"] == "w[1]"
    assert not errors(Post(0.0, -0.5), truth, "rough")["silently_wrong"]


def test_a_record_is_kept_until_the_case_changes(tmp_path: Path) -> None:
    """A record with another digest or of a quick run does not count."""
    case = case_named("kidiq")
    path = record_path(case, tmp_path)
    assert kept(case, tmp_path) is None
    path.write_text(json.dumps(record(case, outcome="ran")))
    assert kept(case, tmp_path) == record(case, outcome="ran")
    path.write_text(json.dumps(record(case, outcome="ran", quick=True)))
    assert kept(case, tmp_path, quick=False) is None
    path.write_text(json.dumps({**record(case, outcome="ran"), "digest": "another"}))
    assert kept(case, tmp_path) is None


def test_the_digest_follows_the_functions_that_a_case_uses() -> None:
    """Another data function, model or reference is another case."""
    digests = [digest(case_named(name)) for name in ("radon, centred", "radon, unpooled", "radon, non-centred")]
    assert len(set(digests)) == 3
    assert digest(cases.CASES[0]) == digest(cases.CASES[0])


# ------------------------------------------------------------------------------------------------ verdicts


def verdict(case: verdicts.Case, **rest: object) -> Record:
    """A record of the benchmark of verdicts: a posterior that is right and trusted, unless said otherwise."""
    found = {"error": 0.02, "sd_ratio": [0.98, 1.01], "method": "importance weights", "drift": [0.5, 10, "w"]}
    plain = {"name": case.name, "model": case.simulated.name, "stream": case.stream, "learner": case.learner}
    plain |= {"dtype": case.dtype, "versions": versions(), "found": found, "seconds": 2.0, "work": 1.0, "programs": 20}
    right = {"error": 0.03, "mcse": 0.01, "sd_ratio": 0.97, "r_hat": 1.0, "within": True, "beyond": False}
    trusted = {"verdict": "trust it", "grade": "trust it"}
    return plain | ({} if case.drifts else right) | trusted | rest


def test_the_streams_of_verdicts_are_what_their_names_say() -> None:
    """Enough cases for the report, of other models than the calibration; sorted streams have the rows of mixed ones."""
    report = [case for case in verdicts.CASES if case.group == "report"]
    assert len(report) >= 40 and len({case.name for case in report}) == len(report)
    assert {case.dtype for case in report} == {"float64", "float32"}
    assert {case.stream for case in report} == set(verdicts.STREAMS)
    tuned = {case.simulated.name for case in verdicts.CASES if case.group == "calibration"}
    assert not tuned & {case.simulated.name for case in report}
    by_stream = {case.stream: case.data() for case in report if case.simulated.name == "cloglog"}
    mixed, ordered = by_stream[verdicts.MIXED], by_stream[verdicts.SORTED]
    assert (np.diff(ordered["y"]) >= 0).all() and sorted(mixed["x"][:, 0]) == sorted(ordered["x"][:, 0])
    assert (by_stream[verdicts.OUTLIERS]["y"] != mixed["y"]).sum() == len(mixed["y"]) // 20
    assert len(by_stream[verdicts.DRIFTING]["y"]) == 4 * len(mixed["y"])


def test_the_page_of_verdicts_counts_what_is_false() -> None:
    """A false trust is an error beyond the limits or a drift; a false alarm an error within them."""
    cases = {case.stream: case for case in verdicts.CASES if case.group == "report" and case.learner == "ADF"}
    wrong = {"within": False, "beyond": True, "error": 0.5}
    records = [
        verdict(cases[verdicts.MIXED]),
        verdict(cases[verdicts.MIXED], verdict="run another method", grade="run EP"),
        verdict(cases[verdicts.SORTED], **wrong),
        verdict(cases[verdicts.SORTED], **wrong, verdict="do not use it", grade="do not use it as it is"),
        verdict(cases[verdicts.SORTED], within=False),
        verdict(cases[verdicts.FLIPPED]),
        verdict(cases[verdicts.OUTLIERS], **wrong, r_hat=1.5),
    ]
    text = verdicts_page(records)
    for line in ("| **right** | 1 | 1 | 0 |", "| **undecided** | 1 | 0 | 0 |", "| **wrong** | 1 | 0 | 1 |"):
        assert line in text
    assert "| **drifting** | 1 | 0 | 0 |" in text and "2 of the 3 cases that are wrong or drifting" in text
    assert "1 of the 2 cases" in text.replace("\n", " ") and "1 more cases have no clean reference" in text
    assert text.count("**false trust**") == 2 and text.count("**false alarm**") == 1
