"""The verdict of a self-check: which measurements lead to which grade.

The grades of a self-check have fixed meanings. "trust it": no mean is off by more than 0.1 posterior sds, and no sd by
more than 10 %. "do not use it as it is": a mean is off by more than 1 sd, an sd by more than a factor of 2, the rows
follow no common model, or priors or many rows were refused. Everything between them is a reason to run another method.
Each measurement has its own noise, and counts as far as it exceeds this noise. The thresholds may be changed here.
"""

import math
from dataclasses import dataclass

import numpy as np

from adfpp.engine.status import Status
from adfpp.judge.drift import Drift
from adfpp.judge.moments import Measured, Method
from adfpp.judge.verdict import CLOSE, Cause, Grade, Reason, Verdict, Weight, named
from adfpp.learn.ep import EPInfo
from adfpp.learn.vmp import VMPInfo

MEAN, SD = 0.1, 0.1  # the largest errors that are trusted: of a mean in sds, and of an sd relative to the exact one
MISLEADING, FACTOR = 1.0, 2.0  # errors above which the answer misleads: of a mean in sds, and of an sd as a factor

_UNCALIBRATED = 1e-3  # p-value of the predictions; a well-calibrated check crosses it once in a thousand
_DRIFT = 1e-4  # p-value of a change along the rows; one stream in ten thousand without a change crosses it
_MANY_REFUSED = 0.05  # share of refused rows above which the posterior is not that of the data
_TAILS = (0.02, 0.10)  # probabilities of a tail of 5 % outside which an interval is in the wrong place


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
    def of(cls, info: EPInfo | VMPInfo) -> "Settling":
        """The end of a run, from its info; for VMP that of a run that has converged."""
        if isinstance(info, VMPInfo):
            return cls(info.converged, info.sweeps, 0.0, (), ())
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
    """The measurements of a self-check; NaN or None for those that were not made.

    Attributes:
        measured: The errors of the posterior's moments.
        k_hat: Pareto k̂ of the importance weights of its draws.
        ess: Effective number of these draws; NaN if none has a finite density.
        never_drawn: Whether a value of a discrete latent was never drawn.
        order_shift: Largest distance of a mean from its average over random orders of the rows.
        order_spread: Sd of a mean over random orders.
        calibration: P-value of the rows' ranks among their predictions.
        drift: The largest sign of a change along the rows.
        refused: Share of refused rows.
        refused_priors: Latents whose prior factors were refused.
        static: Whether the parameters are constant (no dynamics).
        settling: How EP ended; None for ADF.
        discrete: Whether the model has discrete latents, which NUTS does not sample.
    """

    measured: Measured | None
    k_hat: float
    ess: float
    never_drawn: bool
    order_shift: float
    order_spread: float
    calibration: float
    drift: Drift
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

    @property
    def known_right(self) -> bool:
        """Whether the errors were measured and are small, so that doubts about the way to the result do not count."""
        found = self.measured
        return found is not None and found.resolved and not _of_moments(self)


def verdict_by_itself(seen: Evidence) -> Verdict:
    """Grades a posterior by the measurements of a self-check."""
    reasons = [*_of_settling(seen), *_of_refusals(seen), *_of_drift(seen), *_of_order(seen)]
    if not any(r.cause in (Cause.ORDER_DECIDES, Cause.NOT_SETTLED) and r.weight == Weight.STOP for r in reasons):
        reasons += _of_moments(seen)  # else the posterior is too far off for its error to be measured
    reasons += [*_of_tails(seen), *_of_calibration(seen)]
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


def _of_moments(seen: Evidence) -> list[Reason]:
    found = seen.measured
    if found is None:
        return []
    if math.isnan(seen.ess):
        return [Reason(Cause.IMPOSSIBLE, {"cure": seen.cure}, Weight.STOP)]
    out = []
    error, width = found.error, found.width
    beyond = error.value - error.noise
    figures = {"where": error.where, "error": error.value, "method": str(found.method), "cure": seen.cure}
    if found.reliable and beyond > MISLEADING:
        out.append(Reason(Cause.MEAN_OFF, figures, Weight.STOP))
    elif found.reliable and beyond > MEAN and found.method == Method.EXACT:
        out.append(Reason(Cause.PROBABILITY_OFF, {"error": error.value / 2.0}, Weight.IMPROVE))
    elif found.reliable and beyond > MEAN:
        out.append(Reason(Cause.MEAN_OFF, figures, Weight.IMPROVE))
    factor = math.exp(max(0.0, abs(math.log(width.value)) - width.noise))
    figures = {"where": width.where, "ratio": width.value, "method": str(found.method), "cure": seen.cure}
    if found.reliable and factor > 1.0 + SD:
        out.append(Reason(Cause.SD_OFF, figures, Weight.STOP if factor > FACTOR else Weight.IMPROVE))
    if not out and not found.resolved:
        figures = {"k_hat": seen.k_hat, "ess": seen.ess, "cure": seen.cure}
        out.append(Reason(Cause.NOT_MEASURED, figures, Weight.IMPROVE))
    return out


def _of_tails(seen: Evidence) -> list[Reason]:
    if not seen.known_right or seen.measured is None:
        return []
    tail = seen.measured.tail
    if _TAILS[0] <= tail.value <= _TAILS[1]:
        return []
    return [Reason(Cause.TAIL_OFF, {"where": tail.where, "probability": tail.value})]


def _of_settling(seen: Evidence) -> list[Reason]:
    """The reasons if EP has not settled. It may still be used if its moments were measured and are right."""
    settling = seen.settling
    if settling is None or settling.converged:
        return []
    if seen.known_right:
        return [Reason(Cause.UNSETTLED_NOTED, {"settling": str(settling)})]
    out = []
    if settling.held_rows:
        figures = {"count": len(settling.held_rows), "rows": named(settling.held_rows), "sampler": seen.sampler}
        out.append(Reason(Cause.ROWS_HELD, figures, Weight.IMPROVE))
    if settling.held_priors:
        figures = {"factors": ", ".join(settling.held_priors), "sampler": seen.sampler}
        out.append(Reason(Cause.PRIORS_HELD, figures, Weight.IMPROVE))
    near = seen.measured is not None and seen.measured.resolved and seen.measured.error.value <= CLOSE
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


def _of_drift(seen: Evidence) -> list[Reason]:
    if not seen.drift.p < _DRIFT:
        return []
    figures = {"row": seen.drift.row, "p": seen.drift.p, "where": seen.drift.where}
    return [Reason(Cause.DRIFT, figures, Weight.STOP)]


def _of_order(seen: Evidence) -> list[Reason]:
    moved = float(np.fmax(seen.order_shift, seen.order_spread))
    if not moved > CLOSE:
        return []
    if seen.known_right:
        return [Reason(Cause.ORDER_NOTED, {"shift": moved})]
    if seen.order_shift > MISLEADING:
        return [Reason(Cause.ORDER_DECIDES, {"shift": seen.order_shift}, Weight.STOP)]
    return [Reason(Cause.ORDER_MATTERS, {"shift": moved, "cure": seen.cure}, Weight.IMPROVE)]


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
