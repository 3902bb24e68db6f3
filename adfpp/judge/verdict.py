"""Verdicts: a grade and its reasons as data, and the grades of runs beside a reference.

A ``Verdict`` is data until it is printed: the wording of each reason is in ``Cause`` only, and no part of the package
reads the words. The thresholds, the wording, and which cause leads to which grade may be changed here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum

import numpy as np

# Limits of the grades: error of a mean in posterior sds, and error of an sd relative to the true one. Below 0.05 two
# posteriors cannot be told apart in a picture; at 0.3 an interval of 90 % still holds about 88 %; at 1 a mean lies a
# whole sd off.
SAME, CLOSE, ROUGH = 0.05, 0.3, 1.0
NOISE = 3.0  # standard errors of the reference that are added to a limit: a difference below them may be chance
R_HAT, ESS = 1.01, 400.0  # Vehtari et al. (2021): draws that miss these are not a clean reference
HOPELESS_R_HAT, HOPELESS_ESS = 1.1, 50.0  # draws that miss these carry no information about the posterior

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
    DRIFT = (
        "the rows up to number {row} and the rows after it do not follow the same model (p = {p:.1g}): {where} "
        "changes. If the order of the rows is that of time, use dynamics (ADF(model, dynamics=...)), or learn from the "
        "parts of the data separately. If it has no meaning, such as rows grouped by their outcomes, shuffle the rows "
        "and check again"
    )
    ORDER_DECIDES = (
        "a mean lies {shift:.2g} posterior sds from the average over random orders of the same rows: the order of the "
        "rows decides the result. Shuffle them (run(..., shuffle=True)) or run EP"
    )
    ORDER_MATTERS = "the means move by up to {shift:.2f} posterior sds with the order of the rows: {cure}"
    ORDER_NOTED = "the means move by up to {shift:.2f} posterior sds with the order of the rows, but these are right"
    PROBABILITY_OFF = (
        "a probability is off by {error:.2g} (all combinations of discrete values were enumerated): use .reweighted"
    )
    MEAN_OFF = "the mean of {where} is off by {error:.2f} posterior sds (by {method}): {cure}"
    SD_OFF = "the sd of {where} is {ratio:.2f} times the exact one (by {method}): {cure}"
    TAIL_OFF = (
        "{where} has probability {probability:.1%} instead of 5 %: the posterior is skewed, and an interval of 90 % is "
        "in the wrong place although mean and sd are right"
    )
    NOT_MEASURED = (
        "the error could not be measured to within 0.1 posterior sds (k-hat {k_hat:.2f}, {ess:.0f} effective draws): "
        "{cure}"
    )
    IMPOSSIBLE = (
        "no draw of the posterior has a finite density under the model with these data, because learning has diverged: "
        "{cure}"
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
    UNSETTLED_NOTED = "EP has {settling}, but the moments of its posterior are right"
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


def relative_error(low: float, high: float) -> float:
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
        return 0.0 if self.discrete else relative_error(self.low, self.high)

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
