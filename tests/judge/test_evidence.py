"""The verdict of a self-check: which measurements lead to which grade and reasons."""

import math
from dataclasses import replace
from string import Formatter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adfpp.engine.status import Status
from adfpp.judge.drift import NOT_TESTED, Drift
from adfpp.judge.evidence import Evidence, Settling, verdict_by_itself
from adfpp.judge.moments import Measured, Method
from adfpp.judge.references import doubts_about, verdict_on_reference, verdict_without_reference
from adfpp.judge.verdict import Cause, Errors, Grade, verdict_beside_reference
from tests.judge.test_verdict import draws


def found(
    error: float = 0.02,
    ratio: float = 1.01,
    *,
    se: float = 0.01,
    tail: float = 0.05,
    method: Method = Method.WEIGHTS,
    reliable: bool = True,
) -> Measured:
    """The errors of one coordinate: that of its mean and the ratio of its sds, both with the same standard error."""
    shift, log_ratio, noise = np.array([error]), np.array([math.log(ratio)]), np.array([se])
    return Measured(("w",), shift, noise, log_ratio, noise, np.array([[0.05, tail]]), method, reliable)


LARGEST = math.sqrt(2.0 * math.log(2.0))  # of one coordinate: the noise of an estimate is so many standard errors
GOOD = Evidence(
    measured=found(),
    k_hat=0.1,
    ess=1900.0,
    never_drawn=False,
    order_shift=0.05,
    order_spread=0.05,
    calibration=0.5,
    drift=Drift(0.5, 100, "w"),
    refused=0.0,
    refused_priors=(),
    static=True,
    settling=None,
    discrete=False,
)
SETTLED = Settling(True, 5, 1e-4, (), ())
NO_ORDER = {"order_shift": math.nan, "order_spread": math.nan}
UNKNOWN = found(se=0.2)  # the noise is above the limits
ADF_CASES = [
    ({}, Grade.TRUST, [Cause.NOTHING]),
    ({"measured": None}, Grade.TRUST, [Cause.NOTHING]),  # with dynamics
    ({"refused": 0.05}, Grade.TRUST, [Cause.SOME_REFUSED, Cause.NOTHING_ELSE]),
    ({"refused": 0.051}, Grade.DO_NOT_USE, [Cause.MANY_REFUSED]),
    ({"refused_priors": ("w",)}, Grade.DO_NOT_USE, [Cause.PRIORS_REFUSED]),
    # errors of means and sds, beyond their noise
    ({"measured": found(0.099 + 0.01 * LARGEST)}, Grade.TRUST, [Cause.NOTHING]),
    ({"measured": found(-0.101 - 0.01 * LARGEST)}, Grade.RUN_EP, [Cause.MEAN_OFF]),
    ({"measured": found(0.99, se=0.0)}, Grade.RUN_EP, [Cause.MEAN_OFF]),
    ({"measured": found(31.0, se=2.0)}, Grade.DO_NOT_USE, [Cause.MEAN_OFF]),
    ({"measured": found(0.11, se=0.0, method=Method.EXACT)}, Grade.RUN_EP, [Cause.PROBABILITY_OFF]),
    ({"measured": found(ratio=1.09, se=0.0)}, Grade.TRUST, [Cause.NOTHING]),
    ({"measured": found(ratio=1.11, se=0.0)}, Grade.RUN_EP, [Cause.SD_OFF]),
    ({"measured": found(ratio=0.79)}, Grade.RUN_EP, [Cause.SD_OFF]),
    ({"measured": found(ratio=0.30)}, Grade.DO_NOT_USE, [Cause.SD_OFF]),
    ({"measured": found(ratio=2.1)}, Grade.DO_NOT_USE, [Cause.SD_OFF]),
    ({"measured": found(0.5, 0.5)}, Grade.RUN_EP, [Cause.MEAN_OFF, Cause.SD_OFF]),
    ({"measured": UNKNOWN}, Grade.RUN_EP, [Cause.NOT_MEASURED]),
    ({"measured": found(5.0, reliable=False)}, Grade.RUN_EP, [Cause.NOT_MEASURED]),
    ({"measured": found(math.nan, reliable=False), "ess": math.nan}, Grade.DO_NOT_USE, [Cause.IMPOSSIBLE]),
    ({"measured": found(tail=0.11)}, Grade.TRUST, [Cause.TAIL_OFF, Cause.NOTHING_ELSE]),
    ({"measured": found(tail=0.01)}, Grade.TRUST, [Cause.TAIL_OFF, Cause.NOTHING_ELSE]),
    ({"measured": found(0.5, tail=0.11)}, Grade.RUN_EP, [Cause.MEAN_OFF]),
    # k-hat is no reason by itself
    ({"k_hat": 2.56}, Grade.TRUST, [Cause.NOTHING]),
    # the order of the rows counts unless the errors are known
    ({"order_shift": 5.0}, Grade.TRUST, [Cause.ORDER_NOTED, Cause.NOTHING_ELSE]),
    ({"order_shift": 1.01, "measured": UNKNOWN}, Grade.DO_NOT_USE, [Cause.ORDER_DECIDES]),
    ({"order_shift": 0.31, "measured": UNKNOWN}, Grade.RUN_EP, [Cause.ORDER_MATTERS, Cause.NOT_MEASURED]),
    ({"order_spread": 0.31, "measured": found(0.2)}, Grade.RUN_EP, [Cause.ORDER_MATTERS, Cause.MEAN_OFF]),
    ({"order_shift": 0.29, "order_spread": math.nan}, Grade.TRUST, [Cause.NOTHING]),
    # a change along the rows
    ({"drift": Drift(9e-5, 1200, "w")}, Grade.DO_NOT_USE, [Cause.DRIFT]),
    ({"drift": Drift(1.1e-4, 1200, "w")}, Grade.TRUST, [Cause.NOTHING]),
    ({"drift": NOT_TESTED}, Grade.TRUST, [Cause.NOTHING]),
    ({"calibration": 0.0009}, Grade.TRUST, [Cause.MISFIT, Cause.NOTHING_ELSE]),
    ({"calibration": math.nan}, Grade.TRUST, [Cause.NOTHING]),
    ({"never_drawn": True, "discrete": True}, Grade.TRUST, [Cause.NEVER_DRAWN, Cause.NOTHING]),
    (
        {"refused": 0.01, "measured": found(0.31), "calibration": 0.0001},
        Grade.RUN_EP,
        [Cause.MEAN_OFF, Cause.SOME_REFUSED, Cause.MISFIT],
    ),
]
OFF = {"measured": found(0.2)}
EP_CASES = [
    ({}, {}, Grade.TRUST, [Cause.NOTHING]),
    (OFF, {}, Grade.RUN_NUTS, [Cause.MEAN_OFF]),
    (OFF | {"discrete": True}, {}, Grade.RUN_GIBBS, [Cause.MEAN_OFF]),
    # not settled: with the right moments, near by the last step, near by the measured error, far from it
    ({}, {"converged": False, "last_step": 9.0}, Grade.TRUST, [Cause.UNSETTLED_NOTED, Cause.NOTHING_ELSE]),
    ({}, {"converged": False, "held_rows": (7,)}, Grade.TRUST, [Cause.UNSETTLED_NOTED, Cause.NOTHING_ELSE]),
    (OFF, {"converged": False, "last_step": 0.29}, Grade.RUN_NUTS, [Cause.NOT_SETTLED, Cause.MEAN_OFF]),
    (OFF, {"converged": False, "last_step": 9.0}, Grade.RUN_NUTS, [Cause.NOT_SETTLED, Cause.MEAN_OFF]),
    ({"measured": UNKNOWN}, {"converged": False, "last_step": 0.31}, Grade.DO_NOT_USE, [Cause.NOT_SETTLED]),
    ({"measured": found(0.5)}, {"converged": False, "last_step": 9.0}, Grade.DO_NOT_USE, [Cause.NOT_SETTLED]),
    (OFF, {"converged": False, "held_rows": (7,)}, Grade.RUN_NUTS, [Cause.ROWS_HELD, Cause.MEAN_OFF]),
    (OFF, {"converged": False, "held_priors": ("u",)}, Grade.RUN_NUTS, [Cause.PRIORS_HELD, Cause.MEAN_OFF]),
    (
        {"measured": UNKNOWN},
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


def test_noise_grows_with_the_number_of_coordinates() -> None:
    """The largest of a hundred errors that are noise alone is no alarm, even if it is above the limit."""
    noise = 0.03 * np.random.default_rng(0).normal(size=100)
    noise[3] = 0.105  # 3.5 standard errors: once in 2000 numbers
    several = Measured(
        [f"w[{i}]" for i in range(100)],
        noise,
        np.full(100, 0.03),
        np.zeros(100),
        np.full(100, 0.01),
        np.full((100, 2), 0.05),
        Method.WALK,
        True,
    )
    assert several.largest == pytest.approx(math.sqrt(2 * math.log(200)))
    assert verdict_by_itself(replace(GOOD, measured=several)).grade is Grade.TRUST
    assert (
        verdict_by_itself(replace(GOOD, measured=replace(several, shift_se=np.full(100, 1e-3)))).grade is Grade.RUN_EP
    )
    noise[[7, 50]] = -0.3, 0.25
    off = verdict_by_itself(replace(GOOD, measured=several))
    assert off.grade is Grade.RUN_EP and off.words[0].startswith("the mean of w[7] is off by 0.30 posterior sds")


def test_the_cure_is_one_that_the_model_can_have() -> None:
    """NUTS is not recommended for discrete latents, nor EP for what EP has done."""
    ep = replace(GOOD, **NO_ORDER, settling=SETTLED, measured=found(0.5))
    for seen, cure in (
        (replace(GOOD, measured=found(0.5)), "run EP or NUTS"),
        (replace(GOOD, measured=found(0.5), discrete=True), "run EP or Gibbs sampling"),
        (ep, "run NUTS"),
        (replace(ep, discrete=True), "run Gibbs sampling"),
    ):
        assert verdict_by_itself(seen).words[0].endswith(cure)
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
