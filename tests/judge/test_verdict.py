"""Verdicts are data: which figures lead to which grade and reasons, and the words that are made of them at the end."""

import math
import pickle
from dataclasses import replace
from string import Formatter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adfpp.engine.status import Status
from adfpp.judge.references import doubts_about, is_hopeless, verdict_on_reference, verdict_without_reference
from adfpp.judge.verdict import (
    Cause,
    Errors,
    Evidence,
    Grade,
    Settling,
    Verdict,
    Weight,
    named,
    verdict_beside_reference,
    verdict_by_itself,
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


# ---------------------------------------------------------------------------------------------- by itself

GOOD = Evidence(
    k_hat=0.1,
    effective=0.97,
    sd_noise=0.02,
    error=0.05,
    sd_ratio=(0.97, 1.02),
    exact=False,
    never_drawn=False,
    order_shift=0.05,
    order_spread=0.05,
    calibration=0.5,
    refused=0.0,
    refused_priors=(),
    static=True,
    settling=None,
    discrete=False,
)
SETTLED = Settling(True, 5, 1e-4, (), ())
NO_ORDER = {"order_shift": math.nan, "order_spread": math.nan}
ADF_CASES = [
    ({}, Grade.TRUST, [Cause.NOTHING]),
    ({"refused": 0.05}, Grade.TRUST, [Cause.SOME_REFUSED, Cause.NOTHING_ELSE]),
    ({"refused": 0.051}, Grade.DO_NOT_USE, [Cause.MANY_REFUSED]),
    ({"refused_priors": ("w",)}, Grade.DO_NOT_USE, [Cause.PRIORS_REFUSED]),
    ({"order_shift": 1.01}, Grade.DO_NOT_USE, [Cause.ORDER_DECIDES]),
    ({"order_shift": 0.31}, Grade.RUN_EP, [Cause.ORDER_MATTERS]),
    ({"order_spread": 0.31}, Grade.RUN_EP, [Cause.ORDER_MATTERS]),
    ({"order_shift": 0.29, "order_spread": math.nan}, Grade.TRUST, [Cause.NOTHING]),
    ({"error": 0.31}, Grade.RUN_EP, [Cause.MEAN_OFF]),
    ({"error": 0.31, "exact": True, "k_hat": 0.0}, Grade.RUN_EP, [Cause.PROBABILITY_OFF]),
    ({"error": 0.31, "order_shift": 1.01}, Grade.DO_NOT_USE, [Cause.ORDER_DECIDES]),  # weights say nothing there
    ({"sd_ratio": (0.7, 1.0)}, Grade.RUN_EP, [Cause.SD_OFF]),
    ({"sd_ratio": (1.0, 1.37)}, Grade.RUN_EP, [Cause.SD_OFF]),
    ({"sd_ratio": (1.0, 1.35)}, Grade.TRUST, [Cause.NOTHING]),  # within three standard errors of 1.3
    ({"sd_ratio": (0.0, 1.0)}, Grade.RUN_EP, [Cause.SD_OFF]),
    ({"k_hat": 0.71}, Grade.TRUST, [Cause.LIGHT_TAILS, Cause.NOTHING_ELSE]),
    ({"k_hat": 0.71, "effective": 0.89}, Grade.RUN_EP, [Cause.HEAVY_WEIGHTS]),
    ({"calibration": 0.0009}, Grade.TRUST, [Cause.MISFIT, Cause.NOTHING_ELSE]),
    ({"calibration": math.nan}, Grade.TRUST, [Cause.NOTHING]),
    ({"never_drawn": True, "discrete": True}, Grade.TRUST, [Cause.NEVER_DRAWN, Cause.NOTHING]),
    (
        {"refused": 0.01, "error": 0.31, "calibration": 0.0001},
        Grade.RUN_EP,
        [Cause.MEAN_OFF, Cause.SOME_REFUSED, Cause.MISFIT],
    ),
]
EP_CASES = [
    ({}, {}, Grade.TRUST, [Cause.NOTHING]),
    ({"error": 0.31}, {}, Grade.RUN_NUTS, [Cause.MEAN_OFF]),
    ({"error": 0.31, "discrete": True}, {}, Grade.RUN_GIBBS, [Cause.MEAN_OFF]),
    # not settled: far from it, near by the last step, near by good weights
    ({"error": 0.31}, {"converged": False, "last_step": 0.31}, Grade.DO_NOT_USE, [Cause.NOT_SETTLED]),
    ({"error": 0.2}, {"converged": False, "last_step": 9.0}, Grade.RUN_NUTS, [Cause.NOT_SETTLED]),
    ({"error": 0.31}, {"converged": False, "last_step": 0.29}, Grade.RUN_NUTS, [Cause.NOT_SETTLED, Cause.MEAN_OFF]),
    ({"k_hat": 0.8}, {"converged": False, "last_step": 9.0}, Grade.DO_NOT_USE, [Cause.NOT_SETTLED]),
    ({}, {"converged": False, "held_rows": (7,)}, Grade.RUN_NUTS, [Cause.ROWS_HELD]),
    ({}, {"converged": False, "held_priors": ("u",)}, Grade.RUN_NUTS, [Cause.PRIORS_HELD]),
    (
        {"error": 2.0},
        {"converged": False, "last_step": 9.0, "held_rows": (7,)},
        Grade.DO_NOT_USE,
        [Cause.NOT_SETTLED, Cause.ROWS_HELD],
    ),
]


@pytest.mark.parametrize(("figures", "grade", "causes"), ADF_CASES)
def test_grades_of_adf_by_itself(figures: dict[str, Any], grade: Grade, causes: list[Cause]) -> None:
    verdict = verdict_by_itself(replace(GOOD, **figures))
    assert (verdict.grade, [r.cause for r in verdict.reasons]) == (grade, causes)
    weights = [r.weight for r in verdict.reasons if r.cause is not Cause.NEVER_DRAWN]
    assert weights == sorted(weights)


@pytest.mark.parametrize(("figures", "ended", "grade", "causes"), EP_CASES)
def test_grades_of_ep_by_itself(
    figures: dict[str, Any], ended: dict[str, Any], grade: Grade, causes: list[Cause]
) -> None:
    verdict = verdict_by_itself(replace(GOOD, **NO_ORDER, settling=replace(SETTLED, **ended), **figures))
    assert (verdict.grade, [r.cause for r in verdict.reasons]) == (grade, causes)


def test_every_cause_is_given_somewhere_and_its_wording_is_filled_in() -> None:
    """No wording is without a use, and none asks for a figure that is not there."""
    verdicts = [verdict_by_itself(replace(GOOD, **figures)) for figures, _, _ in ADF_CASES]
    verdicts += [
        verdict_by_itself(replace(GOOD, **NO_ORDER, settling=replace(SETTLED, **ended), **figures))
        for figures, ended, _, _ in EP_CASES
    ]
    for figures in ((0.1, 0.1), (0.5, 0.0), (9.0, 0.0), (math.nan, 0.0)):
        errors = Errors(*figures, 1.0, 1.0, 0.0, "w")
        verdicts += [verdict_beside_reference(replace(errors, discrete=d), "EP", ["remark"], True) for d in (0, 1)]
    for reference in (
        draws(is_sampler=False),
        draws(r_hat=np.array([1.0, 2.0]), ess=np.array([1.0, 2.0])),
        draws(table=SimpleNamespace(theta=np.zeros((4, 2)))),
        draws(),
    ):
        verdicts.append(verdict_on_reference(reference, doubts_about(reference)))
    verdicts.append(verdict_without_reference("nuts", draws()))
    given = [reason for verdict in verdicts for reason in verdict.reasons]
    assert {reason.cause for reason in given} == set(Cause)
    for reason in given:
        fields = {name for _, name, _, _ in Formatter().parse(reason.cause.value) if name}
        assert fields == set(reason.figures), reason.cause
        assert "{" not in str(reason) and len(str(reason)) > 5


def test_the_cure_is_one_that_the_model_can_have() -> None:
    """NUTS is not recommended for discrete latents, nor EP for what EP has done."""
    ep = replace(GOOD, **NO_ORDER, settling=SETTLED, error=0.5)
    for seen, cure in (
        (replace(GOOD, error=0.5), "run EP or NUTS"),
        (replace(GOOD, error=0.5, discrete=True), "run EP or Gibbs sampling"),
        (ep, "run NUTS"),
        (replace(ep, discrete=True), "run Gibbs sampling"),
    ):
        assert verdict_by_itself(seen).words[0].endswith(f"use .reweighted, or {cure}")
    held = replace(ep, discrete=True, settling=replace(SETTLED, converged=False, held_rows=(1, 2)))
    words = " ".join(verdict_by_itself(held).words)
    assert "2 rows (1, 2)" in words and "NUTS" not in words


def test_misfit_says_of_which_predictions() -> None:
    bad = replace(GOOD, calibration=1e-5)
    assert "one-step-ahead predictions" in verdict_by_itself(bad).words[0]
    assert verdict_by_itself(bad).words[0].endswith("does not fit the data or their order")
    assert verdict_by_itself(replace(bad, static=False)).words[0].endswith("parameters move in another way")
    left_out = verdict_by_itself(replace(bad, settling=SETTLED, **NO_ORDER)).words[0]
    assert "predictions from all other rows" in left_out and left_out.endswith("does not fit the data")


def test_settling_in_words() -> None:
    info: Any = SimpleNamespace(
        converged=False,
        sweeps=2,
        step=np.array([2.0, 0.9]),
        status=np.array([0, Status.HELD, 0]),
        priors={"u": Status.HELD, "v": 0},
    )
    settling = Settling.of(info)
    assert (settling.held_rows, settling.held_priors) == ((1,), ("u",))
    assert str(settling) == "not settled after 2 sweeps: the last one would move the belief by 0.9 posterior sds"
    assert str(Settling(True, 1, 0.0, (), ())) == "settled after 1 sweep"
    info.sweeps, info.step = 0, np.zeros(0)
    assert str(Settling.of(info)) == "not settled: it made no sweep" and Settling.of(info).last_step == math.inf


def test_grades_are_strings_and_long_lists_are_cut() -> None:
    """A grade compares with the words that it is."""
    assert Grade.TRUST == "trust it" and f"{Grade.RUN_EP}" == "run EP"
    assert Verdict(Grade.TRUST, ()).words == () and Weight.STOP < Weight.IMPROVE < Weight.NOTE
    assert named(range(5)) == "0, 1, 2, 3, 4" and named(range(6)) == "0, 1, 2, 3, 4, …"
