"""Estimates how far off a posterior is, without a reference.

``check`` asks four questions: how far the means and sds are from the exact ones (``moments``), whether the result
depends on the order of the rows (ADF) or has settled (EP), whether all rows follow the same model (``drift``), and
whether the predictions of the rows are calibrated (``ranks``). ``evidence`` makes a grade of the answers.
"""

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from adfpp.engine.dynamics import Static
from adfpp.engine.status import Status
from adfpp.judge.drift import NOT_TESTED, Drift, drift_of_ranks, is_sorted, strongest
from adfpp.judge.errors import Errors, errors_of
from adfpp.judge.evidence import MISLEADING, Evidence, Settling, verdict_by_itself
from adfpp.judge.moments import Measured
from adfpp.judge.ranks import Ranked, calibration, left_out, one_step_ahead
from adfpp.judge.runs import left_out_densities
from adfpp.judge.verdict import Grade, Verdict
from adfpp.learn.adf import ADF
from adfpp.learn.ep import EP, EPInfo, EPState
from adfpp.learn.importance import GOOD_K, NEARLY_EQUAL, Reweighted
from adfpp.learn.keys import checked_key
from adfpp.learn.learner import state_of
from adfpp.learn.posterior import GivenPrior, Posterior
from adfpp.learn.results import Run
from adfpp.learn.stream import NotConverged, RowsMarked, announced, refused_priors
from adfpp.learn.vmp import VMP, VMPInfo
from adfpp.model import Joint, RowCheck, refuse_clashes
from adfpp.model.arguments import signature_of
from adfpp.model.discrete import discrete_latents, levels


@dataclass(frozen=True, eq=False)
class Check:
    """The measurements of a self-check and the verdict that follows from them; ``print`` shows them in plain words.

    Attributes:
        judgement: The verdict as data: its grade and the reasons for it.
        k_hat: Pareto k̂ of the posterior as a proposal for the true one; NaN with dynamics.
        ess: Effective number of draws of ``reweighted``; NaN with dynamics.
        error: The largest estimated error of a mean, in exact posterior sds; NaN with dynamics. For discrete latents it
            is twice the total variation distance of a marginal, which is a distance in sds of a fair coin: the sd of a
            latent that is almost certain is nearly 0, so that errors cannot be measured in it.
        sd_ratio: Smallest and largest estimated ratio of an sd to the exact one.
        measured: The errors of all means and sds with their standard errors, and how they were measured; None with
            dynamics.
        drift: The largest sign of a change along the rows: its p-value, the row, and what changes.
        order_shift: Largest distance of a mean from the average over random orders of the rows, in posterior sds (for
            discrete latents in half the range of their values); NaN for EP, which has no order.
        order_spread: Largest sd of a mean over random orders, in posterior sds; NaN for EP.
        orders: Number of random orders in which the rows were absorbed.
        pit: Rank of each predicted row among its predictions (its probability integral transform). The predictions
            are one step ahead, or for EP from all other rows. Ranks of calibrated ones are uniform on (0, 1).
        pit_p: P-value of a Kolmogorov-Smirnov test that the ranks are uniform.
        log_z: ``(n,)`` log predictive density of each row before it was absorbed, in the order of absorption; for EP
            given all other rows, in the order of the data, NaN for rows where it is not known.
        statuses: Number of rows by the name of their status.
        reweighted: The posterior corrected by importance weights; None with dynamics.
        settling: Whether EP's site approximations have settled, in words; None for ADF.
    """

    judgement: Verdict
    k_hat: float
    ess: float
    measured: Measured | None = field(repr=False)
    order_shift: float
    order_spread: float
    orders: int
    drift: Drift
    pit: np.ndarray
    pit_p: float
    log_z: np.ndarray
    statuses: dict[str, int]
    reweighted: Reweighted | None = field(repr=False)
    settling: str | None = None

    @property
    def verdict(self) -> Grade:
        """The grade, as a string.

        It is "trust it", "run EP" (for ADF), "run NUTS" (for EP; "run Gibbs sampling" with discrete latents, which NUTS
        does not sample), or "do not use it as it is".
        """
        return self.judgement.grade

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons for the verdict, in words, with advice."""
        return self.judgement.words

    @property
    def error(self) -> float:
        """The largest estimated error of a mean, in exact posterior sds."""
        return math.nan if self.measured is None else float(np.max(np.abs(self.measured.shift)))

    @property
    def sd_ratio(self) -> tuple[float, float]:
        """The smallest and the largest estimated ratio of an sd to the exact one."""
        return (math.nan, math.nan) if self.measured is None else self.measured.ratios

    @property
    def score(self) -> float:
        """Mean log predictive density of the absorbed rows: before each was absorbed, or for EP given all other rows.

        NaN if it is not known for any row.
        """
        if self.settling is not None:
            known = self.log_z[~np.isnan(self.log_z)]
            return float(known.mean()) if len(known) else math.nan
        refused = sum(count for name, count in self.statuses.items() if Status[name].refused)
        return float(self.log_z.sum() / max(1, len(self.log_z) - refused))

    def __str__(self) -> str:
        """The verdict, the reasons for it, and the figures."""
        lines = [str(self.verdict), *(f"  - {reason}" for reason in self.reasons), ""]
        figures = [*self._errors_in_words(), *self._order_in_words(), *self._predictions_in_words()]
        return "\n".join([*lines, *(f"  {name:<19}{words}" for name, words in figures)])

    __repr__ = __str__

    def _errors_in_words(self) -> list[tuple[str, str]]:
        weights, found = self.reweighted, self.measured
        if weights is None or found is None:
            return [("errors", "not measured: the parameters move")]
        if weights.exact:
            return [
                ("exact enumeration", f"of {len(weights.theta)} combinations"),
                ("", f"which moves the probabilities by up to {self.error / 2.0:.2g}"),
            ]
        low, high = found.ratios
        errors = f"means up to {self.error:.2f} posterior sds, sds {low:.2f} to {high:.2f} times the exact ones"
        out = [
            ("errors", errors if found.reliable else "not known: the exact posterior is too far away"),
            ("", f"measured by {found.method}" + f", with a noise of {found.noise:.2f}" * found.reliable),
        ]
        if math.isnan(weights.ess):
            return [*out, ("importance weights", "none: no draw has a finite density")]
        effective = f"{weights.ess:.0f} of {len(weights.theta)} draws are effective"
        if weights.ess < NEARLY_EQUAL * len(weights.theta):  # k-hat means nothing if the weights are nearly equal
            effective += f", k-hat {self.k_hat:.2f} (good below {GOOD_K})"
        out.append(("importance weights", effective))
        if any(weights.levels):
            out.append(("", "discrete latents count in sds of a fair coin: twice the change of a probability"))
        return out

    def _order_in_words(self) -> list[tuple[str, str]]:
        if self.settling is not None:
            return [("sweeps", self.settling)]
        shift = f"the means are up to {self.order_shift:.2f} posterior sds from those of {self.orders} random orders"
        spread = f"which are {self.order_spread:.2f} posterior sds apart"
        return [
            ("order of the rows", _measured(self.order_shift, shift)),
            ("", _measured(self.order_spread, spread)),
        ]

    def _predictions_in_words(self) -> list[tuple[str, str]]:
        kind = "leave-one-out " if self.settling is not None else ""
        counts = ", ".join(f"{count} {name}" for name, count in self.statuses.items())
        return [
            ("predictions", _measured(self.pit_p, f"calibrated with p = {self.pit_p:.2g} ({len(self.pit)} ranks)")),
            ("", _measured(self.score, f"mean {kind}log predictive density {self.score:.4g} per row")),
            ("", _measured(self.drift.p, f"no change along the rows has p = {self.drift.p:.2g}")),
            ("rows", counts),
        ]

    def plot(self) -> Any:
        """Histogram of the rows' ranks among their predictions and the running log score, as a Matplotlib figure."""
        from adfpp.show.plots import draw_check

        return draw_check(self)


def _measured(value: float, words: str) -> str:
    return "not measured" if math.isnan(value) else words


def check(
    learner: ADF | EP | VMP,
    state: object,
    *args: Any,
    rng_key: jax.Array | None = None,
    prior: GivenPrior = None,
    orders: int = 4,
    predictions: int = 500,
    num_samples: int = 2000,
    progress_bar: bool = True,
    **kwargs: Any,
) -> Check:
    """Checks a posterior of ADF, EP or VMP against its own model and data, without NUTS.

    It asks four questions. How far are the means and sds from the exact ones? Does the posterior depend on the order of
    the rows? Do all rows follow the same model? Are the one-step-ahead predictions of the rows calibrated? With
    dynamics, where the order is part of the model, only the last is asked. For EP and VMP, which have no order, the
    second is whether the run has settled, and the last is about predictions from all other rows.

    Example:
        ::

            result = adf.run(jax.random.key(0), X, y=y)
            found = adfpp.check(adf, result, X, y=y)
            print(found)
            found.reweighted.mean()

    Args:
        learner: The ``ADF`` or ``EP`` that learned.
        state: The state or result that it reached after all these rows. Rows that it refused are left out here too.
            From a state of ``EP`` one more sweep is made, because a state does not contain the statuses of the rows.
        *args: The model's arguments: all rows, in the order in which they were absorbed, unless ``state`` is a result
            made with ``shuffle=True``, whose order is known.
        rng_key: Key; a fixed one by default.
        prior: The prior that was given to ``init`` or ``run``; not needed if ``state`` is a result.
        orders: Number of random orders in which ``ADF`` absorbs the rows once more.
        predictions: The largest number of rows to predict; they are evenly spread.
        num_samples: Number of draws for the importance weights; fewer, but at least 200, if they would take minutes.
            The check shows how many they are.
        progress_bar: Whether to show a progress bar with a step for each question.
        **kwargs: The model's keyword arguments.
    """
    refuse_clashes(learner.model, check, args)
    keys = jax.random.split(jax.random.key(0) if rng_key is None else checked_key(rng_key), 3)
    if not isinstance(learner, EP) and isinstance(getattr(state, "info", state), EPInfo | EPState):
        raise TypeError("The result is one of EP, and the learner is not: pass the EP that made it.")
    post = learner.get_posterior(state)
    run = _run_of(state)
    prior = prior if run is None or prior is not None else run.start
    takes = signature_of(learner.model).parameters
    model_kwargs = {name: value for name, value in kwargs.items() if name != "dt" or "dt" in takes}
    joint = Joint(post.program, args, model_kwargs)
    if run is not None:
        _refuse_other_length(run, joint.length)
    RowCheck(post.program).at(post.belief.mean, joint.rows, joint.shared)
    task = _Task(learner, state, post, joint, prior, run, args, kwargs, predictions, num_samples, orders, *keys)
    static = isinstance(getattr(learner, "dynamics", Static()), Static)
    revisits = isinstance(learner, EP | VMP)
    parts = 2 if revisits else 3 if static else 1
    with announced(parts, "part", progress_bar) as announce:
        return _check_ep(task, announce) if revisits else _check_adf(task, static, announce)


class _Task(NamedTuple):
    """The arguments of a call of ``check``, with the posterior and the model that follow from them."""

    learner: Any
    state: Any
    post: Posterior
    joint: Joint
    prior: GivenPrior
    run: Run | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    predictions: int
    num_samples: int
    orders: int
    weight_key: jax.Array
    order_key: jax.Array
    predict_key: jax.Array

    def errors(self, absorbed: np.ndarray, further: bool) -> Errors:
        """The errors of the posterior; ``further`` says whether to measure them beyond importance weights."""
        given = self.args, self.kwargs, self.prior
        return errors_of(self.post, *given, absorbed, self.weight_key, self.num_samples, further)

    def refused_priors(self) -> tuple[str, ...]:
        """The latents whose prior factors were refused at their last visit."""
        statuses = getattr(state_of(self.state), "prior_status", None)
        if statuses is None:
            statuses = getattr(getattr(self.state, "info", None), "priors", {})
        return refused_priors(self.post.program.latents_of_priors(statuses))

    def conclude(
        self,
        errors: Errors | None,
        ranked: Ranked,
        log_z: np.ndarray,
        status: np.ndarray,
        *,
        order: tuple[float, float] = (math.nan, math.nan),
        static: bool = True,
        settling: Settling | None = None,
    ) -> Check:
        """The check, with the verdict that follows from these measurements."""
        weighted = None if errors is None else errors.weighted
        k_hat, ess = (math.nan, math.nan) if weighted is None else (weighted.k_hat, weighted.ess)
        pit_p = calibration(ranked.ranks)
        drift = NOT_TESTED
        if errors is not None and not is_sorted(ranked.values):
            drift = strongest(errors.drift, drift_of_ranks(ranked.ranks, ranked.rows))
        evidence = Evidence(
            measured=None if errors is None else errors.measured,
            k_hat=k_hat,
            ess=ess,
            never_drawn=weighted is not None and weighted.unseen,
            order_shift=order[0],
            order_spread=order[1],
            calibration=pit_p,
            drift=drift,
            refused=float((status >= Status.NOT_FINITE).mean()),
            refused_priors=self.refused_priors(),
            static=static,
            settling=settling,
            discrete=bool(discrete_latents(self.post.program)),
        )
        counts = np.bincount(status, minlength=len(Status))
        return Check(
            judgement=verdict_by_itself(evidence),
            k_hat=k_hat,
            ess=ess,
            measured=evidence.measured,
            order_shift=order[0],
            order_spread=order[1],
            orders=self.orders if static and settling is None else 0,
            drift=drift,
            pit=ranked.ranks,
            pit_p=pit_p,
            log_z=log_z,
            statuses={s.name: int(counts[s]) for s in Status if counts[s]},
            reweighted=weighted,
            settling=None if settling is None else str(settling),
        )


def _run_of(state: Any) -> Run | None:
    """The run that a result keeps, or None if it keeps none."""
    try:
        return state.run
    except (AttributeError, ValueError):
        return None


def _refuse_other_length(run: Run, given: int) -> None:
    """Refuses another number of rows than those of the run, which may have ended early."""
    if run.rows == given:
        return
    early = ""
    if run.order is not None and len(run.order) > run.rows:
        early = " It ended early, in random order: they are the rows result.run.order[:result.run.rows], in this order."
    raise ValueError(
        f"The run absorbed or refused {run.rows} rows, and these are {given}: pass all the rows of the run.{early}"
    )


# ------------------------------------------------------------------------------------------------ ADF


def _check_adf(task: _Task, static: bool, announce: Callable[[str], None]) -> Check:
    joint, run = task.joint, task.run
    order = np.arange(joint.length)
    if run is not None and run.order is not None and len(run.order) == run.rows:
        order = run.order  # the rows of a run that has ended early are given in the order in which they were absorbed
    announce("one-step-ahead predictions")
    replay = one_step_ahead(
        task.learner, joint, task.predict_key, order, task.prior, task.predictions, task.args, task.kwargs
    )
    absorbed = np.ones(joint.length, bool)
    absorbed[order] = replay.status < Status.NOT_FINITE
    if run is None:
        _refuse_other_rows(task.state, int(absorbed.sum()))
    if not static:
        return task.conclude(None, *replay, static=False)
    announce("random orders")
    orders = _order_sensitivity(task)
    announce("errors of the moments")
    far = orders[0] > MISLEADING  # then the posterior is wrong, and a walk would not come to the exact one
    return task.conclude(task.errors(absorbed, not far), *replay, order=orders)


def _refuse_other_rows(state: object, absorbed: int) -> None:
    """Refuses a state that has absorbed another number of rows, because these rows did not lead to it."""
    rows = getattr(getattr(state, "state", state), "rows", absorbed)
    if int(rows) != absorbed:
        raise ValueError(
            f"The state has absorbed {int(rows)} rows, but {absorbed} of the rows passed here are absorbed: pass all "
            "the rows since its prior, in their order. If the state continues an earlier one, check the result of "
            "run(..., state=…), which keeps the state from which it started."
        )


def _order_sensitivity(task: _Task) -> tuple[float, float]:
    """How far the posterior is from the average over random orders, and how far these are apart, in posterior sds.

    For a discrete latent the unit is half the range of its values, an upper bound of its sd.
    """
    if task.orders < 1:
        return math.nan, math.nan
    means, sds = [], []
    for key in jax.random.split(task.order_key, task.orders):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RowsMarked)  # the run that is checked has already warned of them
            again = task.learner.run(
                key, *task.args, prior=task.prior, shuffle=True, progress_bar=False, info="totals", **task.kwargs
            )
        other = task.learner.get_posterior(again)
        means.append(np.asarray(other.belief.mean))
        sds.append(np.asarray(other.family.spread(other.belief, other.program.size)))
    centre, sd = np.mean(means, 0), np.mean(sds, 0)
    for i, values in enumerate(levels(task.post.program)):
        if values is not None:  # the sd of a latent that becomes certain goes to 0
            sd[i] = 0.5 * (max(values) - min(values))
    shift = np.max(np.abs(np.asarray(task.post.belief.mean) - centre) / sd)
    spread = float(np.max(np.std(means, 0, ddof=1) / sd)) if task.orders > 1 else math.nan
    return float(shift), spread


# ------------------------------------------------------------------------------------------------ EP


def _check_ep(task: _Task, announce: Callable[[str], None]) -> Check:
    info = getattr(task.state, "info", None)
    if isinstance(task.state, EPState):
        info = _visit_again(task)
    if not isinstance(info, VMPInfo if isinstance(task.learner, VMP) else EPInfo):
        kind = type(task.learner).__name__
        raise TypeError(
            f"check of {'an' if kind == 'EP' else 'a'} {kind} takes the result of {kind.lower()}.run; it got a "
            f"{type(task.state).__name__} of another learner."
        )
    if isinstance(info, VMPInfo) and not info.converged:
        raise ValueError(
            f"The run of VMP has not converged after {info.sweeps} sweeps: continue it with vmp.run(..., state=result)."
        )
    status = np.asarray(info.status)
    if len(status) != task.joint.length:
        raise ValueError(
            f"The run had {len(status)} rows, and these are {task.joint.length}: pass all the rows of the run."
        )
    announce("errors of the moments")
    absorbed = status < Status.NOT_FINITE
    errors = task.errors(absorbed, True)
    announce("leave-one-out predictions")
    ranked = left_out(task.joint, errors.weighted, task.predict_key, np.flatnonzero(absorbed), task.predictions)
    learner = task.learner
    log_z = left_out_densities(learner, info) if isinstance(learner, EP) and isinstance(info, EPInfo) else None
    log_z = np.full(len(status), math.nan) if log_z is None else log_z
    return task.conclude(errors, ranked, log_z, status, settling=Settling.of(info))


def _visit_again(task: _Task) -> EPInfo:
    """The info of one more sweep, because a state does not contain the statuses of the rows."""
    if task.learner.schedule in ("stochastic", "window"):
        raise ValueError(
            f"A state of schedule={task.learner.schedule!r} does not contain the statuses of its rows: pass the result "
            "of run."
        )
    once = copy.copy(task.learner)
    once.max_sweeps = 1
    state = task.state
    with warnings.catch_warnings():
        for category in (RowsMarked, NotConverged):  # the check reports them itself
            warnings.simplefilter("ignore", category)
        run = once.run(state.rng_key, *task.args, state=state, prior=task.prior, progress_bar=False, **task.kwargs)
    return run.info
