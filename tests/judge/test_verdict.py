"""Verdicts are data: which figures lead to which grade and reasons, and the words that are made of them at the end."""

import math
import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adfpp.judge.references import doubts_about, is_hopeless, verdict_on_reference, verdict_without_reference
from adfpp.judge.verdict import (
    Cause,
    Errors,
    Grade,
    Verdict,
    Weight,
    named,
    verdict_beside_reference,
)

# ------------------------------------------------------------------------------------------- beside a reference


@pytest.mark.parametrize(
    ("figures", "grade"),
    [
        ((0.02, 0.02, 0.98, 1.02, 0.02), Grade.AS_GOOD),
        ((0.049, 0.0, 1.0, 1.0, 0.0), Grade.AS_GOOD),
        ((0.051, 0.0, 1.0, 1.0, 0.0), Grade.CLOSE),
        ((0.051, 0.001, 1.0, 1.0, 0.0), Grade.AS_GOOD),  # within three standard errors of the reference
        ((0.0, 0.0, 1.0, 1.051, 0.0), Grade.CLOSE),
        ((0.0, 0.0, 1.0, 1.051, 0.001), Grade.AS_GOOD),
        ((0.15, 0.01, 0.95, 1.1, 0.01), Grade.CLOSE),
        ((0.29, 0.0, 1.0, 1.0, 0.0), Grade.CLOSE),
        ((0.31, 0.0, 1.0, 1.0, 0.0), Grade.ROUGH),
        ((0.15, 0.01, 0.5, 1.0, 0.01), Grade.ROUGH),
        ((0.5, 0.01, 0.95, 1.1, 0.01), Grade.ROUGH),
        ((1.01, 0.0, 1.0, 1.0, 0.0), Grade.WRONG),
        ((0.01, 0.01, 0.3, 1.0, 0.01), Grade.WRONG),
        ((99.0, 0.01, 2.6, 2.6, 0.01), Grade.WRONG),
        ((0.01, 0.01, 0.0, 0.0, 0.01), Grade.WRONG),
        ((math.nan, 0.01, 1.0, 1.0, 0.01), Grade.FAILED),
        ((0.01, 0.01, math.nan, 1.0, 0.01), Grade.FAILED),
    ],
)
def test_grades_beside_a_reference(figures: tuple[float, float, float, float, float], grade: Grade) -> None:
    verdict = verdict_beside_reference(Errors(*figures, "w"), "EP or NUTS")
    assert verdict.grade is grade and str(verdict).startswith(f"{grade.value}: ")


def test_reasons_beside_a_reference() -> None:
    """The largest error, what to do about it, and what else is known, as data and in words."""
    rough = verdict_beside_reference(Errors(0.5, 0.01, 0.95, 1.1, 0.01, "w[1]"), "NUTS", ["3 rows HELD"], unclean=True)
    assert [r.cause for r in rough.reasons] == [Cause.ERRORS, Cause.RUN_OTHER, Cause.REMARK, Cause.UNCLEAN]
    assert rough.reasons[0].figures == {"error": 0.5, "noise": 0.01, "low": 0.95, "high": 1.1}
    assert str(rough) == (
        "rough: means within 0.50 sd (the reference's own error is 0.01), sds 0.95 to 1.10 times the reference's; the "
        "error is largest in w[1]; run NUTS before an interval is reported; 3 rows HELD; but the reference is not clean"
    )
    assert pickle.loads(pickle.dumps(rough)) == rough
    wrong = verdict_beside_reference(Errors(5.0, 0.01, 0.95, 1.1, 0.01, "b"), "NUTS")
    assert "largest in b; do not use it" in str(wrong)


def test_discrete_parameters_have_no_sds() -> None:
    """An error is twice that of a probability; ratios of sds, which are NaN there, count for nothing."""
    errors = Errors(0.4, 0.02, math.nan, math.nan, math.nan, "s[0]", discrete=True)
    verdict = verdict_beside_reference(errors, "Gibbs sampling")
    assert verdict.grade is Grade.ROUGH
    assert verdict.words[0] == "probabilities within 0.2 (the reference's own error is 0.01)"
    assert verdict_beside_reference(replace(errors, error=math.nan), "").grade is Grade.FAILED


# ------------------------------------------------------------------------------------------- references


def draws(**figures: Any) -> Any:
    """What a reference tells of itself: a sampler's clean draws of two parameters, unless said otherwise."""
    clean = {
        "is_sampler": True,
        "r_hat": np.array([1.0, 1.004]),
        "ess": np.array([900.0, 500.0]),
        "names": ["a", "b"],
        "notes": (),
        "table": None,
        "source": None,
        "discrete": np.array([False, False]),
    }
    return SimpleNamespace(**(clean | figures))


@pytest.mark.parametrize(
    ("figures", "causes", "words"),
    [
        ({}, [], "reference: R-hat at most 1.004, ESS at least 500"),
        ({"table": SimpleNamespace(theta=np.zeros((8, 2)))}, [], "reference: exact, all 8 combinations enumerated"),
        ({"is_sampler": False}, [Cause.APPROXIMATION], "reference: an approximation, not the truth"),
        ({"r_hat": np.array([1.0, 1.02])}, [Cause.HIGH_R_HAT], "truth: R-hat 1.020 of b, above 1.01"),
        ({"r_hat": np.array([math.nan, math.nan])}, [Cause.HIGH_R_HAT], "truth: R-hat nan of a, above 1.01"),
        ({"ess": np.array([399.0, 500.0])}, [Cause.LOW_ESS], "truth: ESS 399 of a, below 400"),
        ({"notes": ("3 divergences",)}, [Cause.REMARK], "truth: 3 divergences"),
    ],
)
def test_doubts_about_a_reference(figures: dict[str, Any], causes: list[Cause], words: str) -> None:
    doubts = doubts_about(draws(**figures))
    assert [doubt.cause for doubt in doubts] == causes
    verdict = verdict_on_reference(draws(**figures), doubts)
    assert str(verdict).endswith(words)
    assert (verdict.grade is Grade.UNCLEAN_REFERENCE) == (bool(causes) and causes != [Cause.APPROXIMATION])


def test_a_hopeless_reference_judges_nothing() -> None:
    assert not is_hopeless(draws())
    assert is_hopeless(draws(r_hat=np.array([1.0, 1.11]))) and is_hopeless(draws(ess=np.array([49.0, 500.0])))
    assert is_hopeless(draws(r_hat=np.array([1.0, math.nan])))
    assert not is_hopeless(draws(is_sampler=False, ess=np.zeros(2)))
    assert "more warm-up" in str(verdict_without_reference("nuts", draws()))
    gibbs = verdict_without_reference("gibbs", draws(discrete=np.array([True, False])))
    assert gibbs.grade is Grade.NOT_JUDGED
    assert str(gibbs).startswith("cannot be judged: gibbs did not converge. Give it many more samples")


def test_grades_are_strings_and_long_lists_are_cut() -> None:
    """A grade compares with the words that it is."""
    assert Grade.TRUST == "trust it" and f"{Grade.RUN_EP}" == "run EP"
    assert Verdict(Grade.TRUST, ()).words == () and Weight.STOP < Weight.IMPROVE < Weight.NOTE
    assert named(range(5)) == "0, 1, 2, 3, 4" and named(range(6)) == "0, 1, 2, 3, 4, …"
