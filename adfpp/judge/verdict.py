"""Verdicts: a grade and its reasons as data, and the thresholds that decide them.

A ``Verdict`` is data until it is printed: the wording of each reason is in ``Cause`` only, and no part of the package
reads the words. The thresholds, the wording, and which cause leads to which grade may be changed here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum

import numpy as np

from adfpp.engine.status import Status
from adfpp.learn.ep import EPInfo
from adfpp.learn.importance import GOOD_K

# Limits of the grades: error of a mean in posterior sds, and error of an sd relative to the true one. Below 0.05 two
# posteriors cannot be told apart in a picture; at 0.3 an interval of 90 % still holds about 88 %; at 1 a mean lies a
# whole sd off.
SAME, CLOSE, ROUGH = 0.05, 0.3, 1.0
NOISE = 3.0  # standard errors of the reference that are added to a limit: a difference below them may be chance
R_HAT, ESS = 1.01, 400.0  # Vehtari et al. (2021): draws that miss these are not a clean reference
HOPELESS_R_HAT, HOPELESS_ESS = 1.1, 50.0  # draws that miss these carry no information about the posterior

_UNCALIBRATED = 1e-3  # p-value of the predictions; a well-calibrated check crosses it once in a thousand
_MANY_REFUSED = 0.05  # share of refused rows above which the posterior is not that of the data
_MOST_EFFECTIVE = 0.9  # share of effective draws above which heavy tails of the weights concern the far tails alone
_NAMED_ROWS = 5  # rows named in a message


class Grade(StrEnum):
    """How good a posterior is: the first eight are grades of a comparison, the others those of a self-check."""

    AS_GOOD = "as good as the reference can tell"
    CLOSE = "close"
    ROUGH = "rough"
    WRONG = "wrong"
    FAILED = "failed"
    NOT_JUDGED = "cannot be judged"
    REFERENCE = "reference"
    UNCLEAN_REFERENCE = "reference, NOT to be called the truth"
    TRUST = "trust it"
    RUN_EP = "run EP"
    RUN_NUTS = "run NUTS"
    RUN_GIBBS = "run Gibbs sampling"
    DO_NOT_USE = "do not use it as it is"


class Weight(IntEnum):
    """The consequence of a reason for the use of the posterior."""

    STOP = 0  # the posterior should not be used
    IMPROVE = 1  # another method should be run before the posterior is used
    NOTE = 2  # the user should know the reason


class Cause(Enum):
    """Everything that a verdict can give as a reason, with its wording; figures are filled in by ``str.format``."""

    # for a run that is compared with a reference
    ERRORS = (
        "means within {error:.2f} sd (the reference's own error is {noise:.2f}), sds {low:.2f} to {high:.2f} times the "
        "reference's"
    )
    PROBABILITIES = "probabilities within {error:.2g} (the reference's own error is {noise:.2g})"
    NOT_FINITE = "its moments are not finite"
    RUN_OTHER = "the error is largest in {worst}; run {cure} before an interval is reported"
    UNUSABLE = "the error is largest in {worst}; do not use it"
    REMARK = "{remark}"
    UNCLEAN = "but the reference is not clean"
    NO_REFERENCE = "{reference} did not converge. Give it {advice} or look at adfpp.check"
    # for a reference
    APPROXIMATION = "an approximation, not the truth"
    HIGH_R_HAT = "R-hat {r_hat:.3f} of {parameter}, above {limit:g}"
    LOW_ESS = "ESS {ess:.0f} of {parameter}, below {limit:g}"
    ENUMERATED = "exact, all {count} combinations enumerated"
    CLEAN = "R-hat at most {r_hat:.3f}, ESS at least {ess:.0f}{divergences}"
    # for a posterior in a self-check
    MANY_REFUSED = "{share:.0%} of the rows were refused: look at info.status, and correct the data or the likelihood"
    SOME_REFUSED = "{share:.2%} of the rows were refused and are not part of the posterior: look at info.status"
    ORDER_DECIDES = (
        "a mean lies {shift:.2g} posterior sds from the average over random orders of the same rows: the order of the "
        "rows decides the result. Shuffle them (run(..., shuffle=True)) or run EP"
    )
    ORDER_MATTERS = "the means move by up to {shift:.2f} posterior sds with the order of the rows: {cure}"
    PROBABILITY_OFF = (
        "a probability is off by {error:.2g} (all combinations of discrete values were enumerated): use .reweighted"
    )
    MEAN_OFF = "importance weights{good} move a mean by {error:.2f} posterior sds: use .reweighted, or {cure}"
    SD_OFF = (
        "the posterior sds are {low:.2f} to {high:.2f} times those that the importance weights give: use .reweighted, "
        "or {cure}"
    )
    LIGHT_TAILS = (
        "the far tails are lighter than those of the true posterior (k-hat {k_hat:.2f}, although {effective:.0%} of "
        "the draws are effective): do not report probabilities below about 1 %"
    )
    HEAVY_WEIGHTS = (
        "the importance weights are heavy-tailed (k-hat {k_hat:.2f}): the posterior misses part of the true "
        "posterior's mass. Before intervals or tail probabilities are reported, {cure}"
    )
    MISFIT = "the rows do not agree with the {predictions} (p = {p:.1g}): the model does not fit the data{also}"
    NOT_SETTLED = (
        "EP has {settling}. Give it more max_sweeps, a smaller damping, schedule='sequential' or power=0.5; or run "
        "{sampler}"
    )
    ROWS_HELD = (
        "the site approximations of {count} rows ({rows}) are held back, because the rows could not be visited again: "
        "run {sampler}"
    )
    PRIORS_HELD = (
        "the site approximations of prior factors ({factors}) are held back, because the factors could not be visited "
        "again: run {sampler}"
    )
    PRIORS_REFUSED = (
        "the prior of {latents} could not be used, so that the latents in it are not learned from it: run {sampler}"
    )
    NEVER_DRAWN = (
        "a value of a discrete latent is so improbable that it was never drawn: importance weights cannot tell whether "
        "it really is so improbable. If this latent depends on others, compare with Gibbs sampling"
    )
    NOTHING = "no problem was found"
    NOTHING_ELSE = "no other problem was found, for a posterior of this model"


@dataclass(frozen=True)
class Reason:
    """One reason of a verdict; ``str`` gives it in words.

    Attributes:
        cause: The kind of reason, with its wording.
        figures: The numbers and names that are filled into the wording.
        weight: The consequence for the grade.
    """

    cause: Cause
    figures: Mapping[str, float | str] = field(default_factory=dict)
    weight: Weight = Weight.NOTE

    def __str__(self) -> str:
        return self.cause.value.format(**self.figures)


@dataclass(frozen=True)
class Verdict:
    """A grade and the reasons for it.

    Attributes:
        grade: How good the posterior is.
        reasons: The reasons, with advice; the most important first.
    """

    grade: Grade
    reasons: tuple[Reason, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Each reason in words."""
        return tuple(map(str, self.reasons))

    def __str__(self) -> str:
        return f"{self.grade}: {'; '.join(self.words)}"


def named(items: Sequence[object]) -> str:
    """The first few of many items, for a message."""
    return ", ".join(map(str, items[:_NAMED_ROWS])) + (", …" if len(items) > _NAMED_ROWS else "")


def _relative_error(low: float, high: float) -> float:
    """The largest relative error of an sd whose ratios to the true one lie between ``low`` and ``high``."""
    return max(1.0 / low if low != 0.0 else math.inf, high) - 1.0


# ------------------------------------------------------------------------------------------- beside a reference


@dataclass(frozen=True)
class Errors:
    """The largest errors of a run, in the units of its reference.

    Attributes:
        error: Largest error of a mean in sds of the reference; for discrete latents twice the error of a probability.
        noise: The reference's Monte-Carlo standard error of that mean.
        low: Smallest ratio of an sd to the reference's.
        high: Largest ratio of an sd to the reference's.
        sd_noise: Monte-Carlo standard error of these ratios.
        worst: The parameter with the largest error.
        discrete: Whether all parameters are discrete, so that sds do not matter.
    """

    error: float
    noise: float
    low: float
    high: float
    sd_noise: float
    worst: str
    discrete: bool = False

    @property
    def sd_error(self) -> float:
        """The largest relative error of an sd, whether it is too small or too large."""
        return 0.0 if self.discrete else _relative_error(self.low, self.high)

    def within(self, limit: float) -> bool:
        """Whether no error is above a limit by more than the reference's own error allows."""
        sd_noise = 0.0 if self.discrete else self.sd_noise
        return self.error <= limit + NOISE * self.noise and self.sd_error <= limit + NOISE * sd_noise


def verdict_beside_reference(errors: Errors, cure: str, remarks: Sequence[str] = (), unclean: bool = False) -> Verdict:
    """Grades a run by its distance from a reference.

    Args:
        errors: The largest errors of the run.
        cure: The method to run instead of a rough run.
        remarks: Further remarks on the run.
        unclean: Whether there are doubts about the reference.
    """
    also = [Reason(Cause.REMARK, {"remark": remark}) for remark in remarks]
    also += [Reason(Cause.UNCLEAN)] * unclean
    needed = [errors.error] if errors.discrete else [errors.error, errors.low, errors.high]
    if not np.isfinite(needed).all():
        return Verdict(Grade.FAILED, (Reason(Cause.NOT_FINITE, weight=Weight.STOP), *also))
    if errors.discrete:  # the error is twice the error of a probability
        distance = Reason(Cause.PROBABILITIES, {"error": 0.5 * errors.error, "noise": 0.5 * errors.noise})
    else:
        figures = {"error": errors.error, "noise": errors.noise, "low": errors.low, "high": errors.high}
        distance = Reason(Cause.ERRORS, figures)
    if errors.within(SAME):
        return Verdict(Grade.AS_GOOD, (distance, *also))
    if errors.within(CLOSE):
        return Verdict(Grade.CLOSE, (distance, *also))
    if errors.within(ROUGH):
        other = Reason(Cause.RUN_OTHER, {"worst": errors.worst, "cure": cure}, Weight.IMPROVE)
        return Verdict(Grade.ROUGH, (distance, other, *also))
    return Verdict(Grade.WRONG, (distance, Reason(Cause.UNUSABLE, {"worst": errors.worst}, Weight.STOP), *also))


# ---------------------------------------------------------------------------------------------- by itself


@dataclass(frozen=True)
class Settling:
    """How a run of EP ended.

    Attributes:
        converged: Whether the site approximations have settled.
        sweeps: Number of sweeps.
        last_step: How far the last sweep would have moved the belief undamped, in sds; infinite without a sweep.
        held_rows: Rows whose site approximations are held back.
        held_priors: Prior factors whose site approximations are held back.
    """

    converged: bool
    sweeps: int
    last_step: float
    held_rows: tuple[int, ...]
    held_priors: tuple[str, ...]

    @classmethod
    def of(cls, info: EPInfo) -> "Settling":
        """The end of a run, from its info."""
        return cls(
            bool(info.converged),
            int(info.sweeps),
            float(info.step[-1]) if len(info.step) else math.inf,
            tuple(np.flatnonzero(np.asarray(info.status) == Status.HELD).tolist()),
            tuple(name for name, status in info.priors.items() if status == Status.HELD),
        )

    def __str__(self) -> str:
        made = f"{self.sweeps} sweep{'s' * (self.sweeps != 1)}"
        if self.converged:
            return f"settled after {made}"
        if not self.sweeps:
            return "not settled: it made no sweep"
        return f"not settled after {made}: the last one would move the belief by {self.last_step:.2g} posterior sds"


@dataclass(frozen=True)
class Evidence:
    """The measurements of a self-check; NaN for those that were not made.

    Attributes:
        k_hat: Pareto k̂ of the importance weights.
        effective: Number of effective draws over the number of draws.
        sd_noise: Relative error of the sds that the weights give, one standard error.
        error: How far the weights move a mean, in posterior sds.
        sd_ratio: Smallest and largest ratio of an sd to the sd that the weights give.
        exact: Whether the weights are exact, because all values of θ were enumerated.
        never_drawn: Whether a value of a discrete latent was never drawn.
        order_shift: Largest distance of a mean from its average over random orders of the rows.
        order_spread: Sd of a mean over random orders.
        calibration: P-value of the rows' ranks among their predictions.
        refused: Share of refused rows.
        refused_priors: Latents whose prior factors were refused.
        static: Whether the parameters are constant (no dynamics).
        settling: How EP ended; None for ADF.
        discrete: Whether the model has discrete latents, which NUTS does not sample.
    """

    k_hat: float
    effective: float
    sd_noise: float
    error: float
    sd_ratio: tuple[float, float]
    exact: bool
    never_drawn: bool
    order_shift: float
    order_spread: float
    calibration: float
    refused: float
    refused_priors: tuple[str, ...]
    static: bool
    settling: Settling | None
    discrete: bool

    @property
    def sampler(self) -> str:
        """The sampler that can be run on the model."""
        return "Gibbs sampling" if self.discrete else "NUTS"

    @property
    def cure(self) -> str:
        """The methods that can be run instead, as advice."""
        return f"run EP or {self.sampler}" if self.settling is None else f"run {self.sampler}"


def verdict_by_itself(seen: Evidence) -> Verdict:
    """Grades a posterior by the measurements of a self-check."""
    reasons = [*_of_settling(seen), *_of_refusals(seen), *_of_order(seen)]
    if not any(r.weight == Weight.STOP for r in reasons):  # else the weights carry little information
        reasons += _of_weights(seen)
    reasons += _of_calibration(seen)
    reasons.sort(key=lambda reason: reason.weight)
    first = reasons[0].weight if reasons else None
    if first is None or first == Weight.NOTE:
        grade = Grade.TRUST
        reasons.append(Reason(Cause.NOTHING_ELSE if reasons else Cause.NOTHING))
    elif first == Weight.STOP:
        grade = Grade.DO_NOT_USE
    elif seen.settling is None:
        grade = Grade.RUN_EP
    else:
        grade = Grade.RUN_GIBBS if seen.discrete else Grade.RUN_NUTS
    if seen.never_drawn:
        reasons.insert(0, Reason(Cause.NEVER_DRAWN))
    return Verdict(grade, tuple(reasons))


def _of_settling(seen: Evidence) -> list[Reason]:
    """The reasons if EP has not settled. It may still be used if good weights find it near the true posterior."""
    settling = seen.settling
    if settling is None or settling.converged:
        return []
    out = []
    if settling.held_rows:
        figures = {"count": len(settling.held_rows), "rows": named(settling.held_rows), "sampler": seen.sampler}
        out.append(Reason(Cause.ROWS_HELD, figures, Weight.IMPROVE))
    if settling.held_priors:
        figures = {"factors": ", ".join(settling.held_priors), "sampler": seen.sampler}
        out.append(Reason(Cause.PRIORS_HELD, figures, Weight.IMPROVE))
    near = seen.k_hat <= GOOD_K and seen.error <= CLOSE
    figures = {"settling": str(settling), "sampler": seen.sampler}
    if not (settling.last_step <= CLOSE or near):
        return [Reason(Cause.NOT_SETTLED, figures, Weight.STOP), *out]
    return out or [Reason(Cause.NOT_SETTLED, figures, Weight.IMPROVE)]


def _of_refusals(seen: Evidence) -> list[Reason]:
    out = []
    if seen.refused_priors:
        figures = {"latents": named([repr(name) for name in seen.refused_priors]), "sampler": seen.sampler}
        out.append(Reason(Cause.PRIORS_REFUSED, figures, Weight.STOP))
    if seen.refused > _MANY_REFUSED:
        return [*out, Reason(Cause.MANY_REFUSED, {"share": seen.refused}, Weight.STOP)]
    return [*out, Reason(Cause.SOME_REFUSED, {"share": seen.refused})] if seen.refused > 0.0 else out


def _of_order(seen: Evidence) -> list[Reason]:
    if seen.order_shift > ROUGH:
        return [Reason(Cause.ORDER_DECIDES, {"shift": seen.order_shift}, Weight.STOP)]
    moved = max(seen.order_shift, seen.order_spread)
    if moved > CLOSE:
        return [Reason(Cause.ORDER_MATTERS, {"shift": moved, "cure": seen.cure}, Weight.IMPROVE)]
    return []


def _of_weights(seen: Evidence) -> list[Reason]:
    out = []
    if seen.error > CLOSE and seen.exact:
        out.append(Reason(Cause.PROBABILITY_OFF, {"error": seen.error / 2.0}, Weight.IMPROVE))
    elif seen.error > CLOSE:
        good = ", which are good," if seen.k_hat <= GOOD_K else ""
        out.append(Reason(Cause.MEAN_OFF, {"good": good, "error": seen.error, "cure": seen.cure}, Weight.IMPROVE))
    low, high = seen.sd_ratio
    if _relative_error(low, high) > CLOSE + NOISE * seen.sd_noise:
        out.append(Reason(Cause.SD_OFF, {"low": low, "high": high, "cure": seen.cure}, Weight.IMPROVE))
    if seen.k_hat > GOOD_K and seen.effective > _MOST_EFFECTIVE:
        out.append(Reason(Cause.LIGHT_TAILS, {"k_hat": seen.k_hat, "effective": seen.effective}))
    elif seen.k_hat > GOOD_K:
        out.append(Reason(Cause.HEAVY_WEIGHTS, {"k_hat": seen.k_hat, "cure": seen.cure}, Weight.IMPROVE))
    return out


def _of_calibration(seen: Evidence) -> list[Reason]:
    if not seen.calibration < _UNCALIBRATED:
        return []
    figures: dict[str, float | str] = {"p": seen.calibration, "also": ""}
    if seen.settling is not None:
        figures["predictions"] = "predictions from all other rows"
    else:
        figures["predictions"] = "one-step-ahead predictions"
        figures["also"] = " or their order" if seen.static else ", or the parameters move in another way"
    return [Reason(Cause.MISFIT, figures)]
