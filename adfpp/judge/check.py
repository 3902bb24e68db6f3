"""What a posterior says of its own error, without a reference: weights, order of the rows or settling, predictions."""

import copy
import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.dynamics import Static
from adfpp.engine.status import Status
from adfpp.judge.fits import left_out_densities, not_settled
from adfpp.learn.ep.ep import EP, EPInfo, EPState, NotConverged
from adfpp.learn.importance import GOOD_K, Reweighted, psislw
from adfpp.learn.posterior import Posterior
from adfpp.learn.stream import RowsMarked, announced
from adfpp.model import Joint, Program, refuse_clashes
from adfpp.model.discrete import discrete_latents, levels

TRUST = "trust it"
RUN_EP = "run EP"
RUN_NUTS = "run NUTS"
RUN_GIBBS = "run Gibbs sampling"
DO_NOT_USE = "do not use it as it is"

# in posterior sds: where the order of the rows begins to show, and where it decides the result
_SHOWS, _DECIDES = 0.3, 1.0
_UNCALIBRATED = 1e-3  # p-value of predictions
_REFUSED = 0.05  # share of rows
_FEW_LOST = 0.9  # share of effective draws above which heavy tails of the weights concern the far tails alone
_DRAWS = 200  # replications of a row behind its rank
_RANKED = 0.9  # share of rows whose weights must be good for leave-one-out ranks


@dataclass(frozen=True, eq=False)
class Check:
    """What the self-check found; prints as a page of plain words.

    Attributes:
        verdict: "trust it", "run EP" (of ADF) or "run NUTS" (of EP; "run Gibbs sampling" with discrete latents, which
            NUTS does not sample), or "do not use it as it is".
        reasons: Why, in words, with what to do.
        k_hat: Pareto k̂ of the posterior as a proposal for the true one; NaN with dynamics.
        ess: Effective number of draws of ``reweighted``; NaN with dynamics.
        error: How far importance weights move a mean at most, in the smaller of the sds before and after: the error of
            the means, if ``k_hat`` is good; NaN with dynamics. Of discrete sites twice the total variation distance of
            a marginal, which is in sds of a fair coin: their own sd goes to 0 as they become certain.
        sd_ratio: Smallest and largest ratio of an sd to what the weights make of it.
        order_shift: Largest distance of a mean from where the rows lead in random order, in posterior sds, of discrete
            sites in half the range of their values; NaN for EP, which has no order.
        order_spread: Largest sd of a mean over random orders, in posterior sds; NaN for EP.
        orders: Random orders folded.
        pit: Where each looked-at row fell among its predictions, one step ahead or, of EP, from all the other rows:
            uniform on (0, 1) if they are calibrated.
        pit_p: P-value of a Kolmogorov-Smirnov test of that.
        log_z: ``(n,)`` log predictive density of each row before it was absorbed, in the order folded; of EP given all
            the others, in the order of the data, NaN for rows of which it is not known.
        statuses: Rows by status name.
        reweighted: The posterior corrected by importance weights; None with dynamics.
        settling: How EP settled, in words; None for ADF.
    """

    verdict: str
    reasons: tuple[str, ...]
    k_hat: float
    ess: float
    error: float
    sd_ratio: tuple[float, float]
    order_shift: float
    order_spread: float
    orders: int
    pit: np.ndarray
    pit_p: float
    log_z: np.ndarray
    statuses: dict[str, int]
    reweighted: Reweighted | None = field(repr=False)
    settling: str | None = None

    @property
    def score(self) -> float:
        """Mean log predictive density of a row, over the rows absorbed: before it was, or, of EP, given all the others.

        NaN where it is known of no row.
        """
        if self.settling is not None:
            known = self.log_z[~np.isnan(self.log_z)]
            return float(known.mean()) if len(known) else math.nan
        refused = sum(count for name, count in self.statuses.items() if Status[name].refused)
        return float(self.log_z.sum() / max(1, len(self.log_z) - refused))

    def __str__(self) -> str:
        """The verdict, why, and the figures."""
        counts = ", ".join(f"{count} {name}" for name, count in self.statuses.items())
        weights = self.reweighted
        if weights is not None and weights.exact:
            figures = [
                ("exact enumeration", f"of {len(weights.theta)} combinations"),
                ("", f"which moves the probabilities by up to {self.error / 2.0:.2g}"),
            ]
        else:
            sds = f" to {self.sd_ratio[1]:.2f} of what they make of them"
            figures = [
                ("importance weights", _figure(self.k_hat, "k-hat {:.2f}", f" (good below {GOOD_K})")),
                ("", _figure(self.error, "which move the means by up to {:.2f} sd", "")),
                ("", _figure(self.sd_ratio[0], "sds are {:.2f}", sds)),
            ]
            if weights is not None and any(weights.levels):
                figures.append(("", "a discrete site counts in sds of a fair coin: twice what its probabilities move"))
        if self.settling is None:
            shift = _figure(self.order_shift, "means {:.2f} sd from", f" {self.orders} random orders'")
            figures += [
                ("order of the rows", shift),
                ("", _figure(self.order_spread, "which are {:.2f} sd apart", "")),
            ]
        else:
            figures += [("sweeps", self.settling)]
        one_out = "leave-one-out " if self.settling is not None else ""
        figures += [
            ("predictions", _figure(self.pit_p, "calibrated with p = {:.2g}", f" ({len(self.pit)} ranks)")),
            ("", _figure(self.score, f"mean {one_out}log predictive density {{:.4g}}", "")),
            ("rows", counts),
        ]
        lines = [self.verdict, *(f"  - {reason}" for reason in self.reasons), ""]
        return "\n".join([*lines, *(f"  {name:<19}{words}" for name, words in figures)])

    __repr__ = __str__

    def plot(self) -> Any:
        """Histogram of the rows' ranks among their predictions and the running log score, as a Matplotlib figure."""
        from adfpp.show.plots import draw_check

        return draw_check(self.pit, self.log_z, self.settling is not None)


def _figure(value: float, words: str, rest: str) -> str:
    return "not looked at" if math.isnan(value) else words.format(value) + rest


def check(
    learner: Any,
    state: Any,
    *args: Any,
    rng_key: jax.Array | None = None,
    prior: Posterior | Mapping[str, Any] | None = None,
    orders: int = 4,
    predictions: int = 500,
    num_samples: int = 2000,
    progress_bar: bool = True,
    **kwargs: Any,
) -> Check:
    """Checks a posterior of ADF or EP against its own model and data, without NUTS.

    Three questions: does importance weighting find the posterior close to the true one; does it depend on the order in
    which the rows came; were the rows where the one-step-ahead predictions expected them. With dynamics, where the
    order is part of the model, only the third is asked. Of EP, which has no order, the second is whether its sites have
    settled, and the third is about predictions from all the other rows.

    Example:
        ::

            result = adf.run(jax.random.key(0), X, y=y)
            found = adfpp.check(adf, result, X, y=y)
            print(found)
            found.reweighted.mean()

    Args:
        learner: The ``ADF`` or ``EP`` that learned.
        state: The state or result that it reached after all these rows. Rows that it refused are left out here too.
            From a state of ``EP`` one more sweep is made, to see what became of the rows.
        *args: The model's arguments: all rows, in the order in which they were folded, unless ``state`` is a result
            made with ``shuffle=True``, whose order is known.
        rng_key: Key; a fixed one by default.
        prior: As given to ``init`` or ``run``; known if ``state`` is a result.
        orders: Random orders to fold the rows in, of ``ADF``.
        predictions: Rows to predict, at most, evenly spread.
        num_samples: Draws for the importance weights.
        progress_bar: Whether to show one.
        **kwargs: The model's keyword arguments.
    """
    refuse_clashes(learner.model, check, args)
    key = jax.random.key(0) if rng_key is None else rng_key
    weight_key, order_key, predict_key = jax.random.split(key, 3)
    if not isinstance(learner, EP) and isinstance(getattr(state, "info", state), EPInfo | EPState):
        raise TypeError("The result is one of EP, and the learner is not: pass the EP that made it.")
    post = learner.get_posterior(state)
    run = _run_of(state)
    prior = prior if run is None or prior is not None else run.start
    static = isinstance(getattr(learner, "dynamics", Static()), Static)
    takes = inspect.signature(learner.model).parameters
    model_kwargs = {name: value for name, value in kwargs.items() if name != "dt" or "dt" in takes}
    joint = Joint(post.program, args, model_kwargs)
    if run is not None and run.rows != joint.length:
        raise ValueError(
            f"The run folded {run.rows} rows, and these are {joint.length}: pass all the rows that were folded."
        )
    if isinstance(learner, EP):
        with announced(2, "part", progress_bar) as begun:
            return _check_ep(
                learner, state, joint, weight_key, predict_key, prior, predictions, num_samples, begun, args, kwargs
            )
    order = np.arange(joint.length) if run is None or run.order is None else run.order
    with announced(3 if static else 1, "part", progress_bar) as begun:
        begun("one-step-ahead predictions")
        pit, log_z, status = _predicted(learner, joint, predict_key, order, prior, predictions, args, kwargs)
        absorbed = np.ones(joint.length, bool)
        absorbed[order] = status < Status.NOT_FINITE
        if run is None:
            _refuse_other_rows(state, int(absorbed.sum()))
        weighted, moved, shift, spread = None, (math.nan,) * 3, math.nan, math.nan
        if static:
            begun("importance weights")
            weighted = post.reweighted(
                weight_key, *args, num_samples=num_samples, prior=prior, absorbed=absorbed, **kwargs
            )
            moved = weighted.moved(post.belief.mean, post.family.spread(post.belief, post.program.size))
            begun("random orders")
            shift, spread = _order_sensitivity(learner, post, order_key, orders, prior, args, kwargs)
    pit_p = _uniform(pit) if len(pit) >= 10 else math.nan
    statuses = _counted(status)
    k_hat = math.nan if weighted is None else weighted.k_hat
    refused = float((status >= Status.NOT_FINITE).mean())
    ess = math.nan if weighted is None else weighted.ess
    error, sds = moved[0], (moved[1], moved[2])
    exact = weighted is not None and weighted.exact
    judged = _judge(k_hat, ess, num_samples, error, sds, shift, spread, pit_p, refused, static, exact=exact)
    verdict, reasons = _said_of(post.program, weighted, *judged)
    return Check(verdict, reasons, k_hat, ess, error, sds, shift, spread, orders, pit, pit_p, log_z, statuses, weighted)


def _check_ep(
    learner: EP,
    state: Any,
    joint: Joint,
    weight_key: jax.Array,
    predict_key: jax.Array,
    prior: Any,
    most: int,
    num_samples: int,
    begun: Callable[[str], None],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Check:
    info = getattr(state, "info", None)
    if isinstance(state, EPState):
        info = _looked_at_again(learner, state, prior, args, kwargs)
    if not isinstance(info, EPInfo):
        raise TypeError(f"check of an EP takes what ep.run gave; it got a {type(state).__name__} of another learner.")
    status = np.asarray(info.status)
    if len(status) != joint.length:
        raise ValueError(
            f"The run had {len(status)} rows, and these are {joint.length}: pass all the rows that it had."
        )
    begun("importance weights")
    post, absorbed = learner.get_posterior(state), status < Status.NOT_FINITE
    weighted = post.reweighted(weight_key, *args, num_samples=num_samples, prior=prior, absorbed=absorbed, **kwargs)
    error, low, high = weighted.moved(post.belief.mean, post.family.spread(post.belief, post.program.size))
    begun("leave-one-out predictions")
    pit = _left_out_ranks(joint, weighted, predict_key, np.flatnonzero(absorbed), most)
    pit_p = _uniform(pit) if len(pit) >= 10 else math.nan
    log_z = left_out_densities(learner, info)
    log_z = np.full(len(status), math.nan) if log_z is None else log_z
    k_hat, ess = weighted.k_hat, weighted.ess
    refused, nan = float((~absorbed).mean()), math.nan
    sds = (low, high)
    judged = _judge(k_hat, ess, num_samples, error, sds, nan, nan, pit_p, refused, True, info, weighted.exact)
    verdict, reasons = _said_of(post.program, weighted, *judged)
    settling = f"settled after {info.sweeps}" if info.converged else not_settled(info)
    counts = _counted(status)
    return Check(verdict, reasons, k_hat, ess, error, sds, nan, nan, 0, pit, pit_p, log_z, counts, weighted, settling)


def _looked_at_again(
    learner: EP, state: EPState, prior: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> EPInfo:
    """What one more sweep says of the rows of a state, which does not say it itself."""
    if learner.schedule in ("stochastic", "window"):
        raise ValueError(
            f"A state of schedule={learner.schedule!r} does not say what became of its rows: pass the result of run."
        )
    once = copy.copy(learner)
    once.max_sweeps = 1
    with warnings.catch_warnings():
        for told in (RowsMarked, NotConverged):  # that is in the check's own words
            warnings.simplefilter("ignore", told)
        return once.run(state.rng_key, *args, state=state, prior=prior, progress_bar=False, **kwargs).info


def _left_out_ranks(
    joint: Joint, weighted: Reweighted, rng_key: jax.Array, absorbed: np.ndarray, most: int
) -> np.ndarray:
    """Ranks of some rows among what the rest of the data predicts of them, by importance weights of draws.

    None where the weights are not good enough for most rows.
    """
    rows = absorbed[:: max(1, -(-len(absorbed) // max(most, 1)))] if most > 0 else absorbed[:0]
    if not len(rows):
        return np.zeros(0)
    logs = joint.log_likelihood(weighted.theta, rows)
    log_lik = np.sum([a.reshape(*a.shape[:2], -1).sum(-1) for a in logs.values()], 0).T  # (rows, S)
    with np.errstate(invalid="ignore"):  # a draw that a row makes impossible has no weight either
        ratios = np.where(np.isfinite(log_lik), weighted.log_weights - log_lik, -np.inf)
    if weighted.exact:  # of all that there is, there are no tails to smooth
        log_weights = ratios - np.logaddexp.reduce(ratios, axis=-1, keepdims=True)
    else:
        log_weights, k = psislw(ratios)
        if np.mean(k <= GOOD_K) < _RANKED:
            return np.zeros(0)
    ranks = []
    for step, (row, log_weight) in enumerate(zip(rows, log_weights, strict=True)):
        keys = jax.random.split(jax.random.fold_in(rng_key, step), 3)
        chosen = np.asarray(jax.random.categorical(keys[0], log_weight, shape=(_DRAWS,)))
        replicas = joint.replicate(keys[1], jnp.asarray(weighted.theta[chosen]), int(row))
        uniform = np.asarray(jax.random.uniform(keys[2], (len(replicas),)))
        ranks += [_rank(*pair, u, step) for pair, u in zip(replicas.values(), uniform, strict=True)]
    return np.array(ranks)


def _counted(status: np.ndarray) -> dict[str, int]:
    """Rows by status name."""
    counts = np.bincount(status, minlength=len(Status))
    return {s.name: int(counts[s]) for s in Status if counts[s]}


def _run_of(state: Any) -> Any:
    """What a result remembers of its run, if it is one that does."""
    try:
        return state.run
    except (AttributeError, ValueError):
        return None


def _refuse_other_rows(state: Any, absorbed: int) -> None:
    """A state that has absorbed another number of rows was not reached by these."""
    rows = getattr(getattr(state, "state", state), "rows", absorbed)
    if int(rows) != absorbed:
        raise ValueError(
            f"The state has absorbed {int(rows)} rows, and folding these again absorbs {absorbed}: pass all the rows "
            "since it began, in their order. If it went on from another stream, check the result of run(..., state=…), "
            "which knows where it began."
        )


def _predicted(
    learner: Any,
    joint: Joint,
    rng_key: jax.Array,
    order: np.ndarray,
    prior: Any,
    most: int,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Folds the rows again and ranks some of them among what was predicted before they were absorbed.

    Returns:
        ``(ranks in (0, 1), log_z (n,), status (n,))``.
    """
    state = learner.init(rng_key, *args, prior=prior, **kwargs)
    stride = max(1, -(-joint.length // most))
    stride = 1 << (stride - 1).bit_length()  # the length of batch that is folded without waste
    ranks, log_z, statuses = [], [], []
    for step, start in enumerate(range(0, joint.length, stride)):
        some = order[start : start + stride]
        keys = jax.random.split(jax.random.fold_in(rng_key, step), 3)
        theta = learner.get_posterior(state).draw(keys[0], _DRAWS)
        replicas = joint.replicate(keys[1], theta, int(some[0]))
        batch_args, batch_kwargs = _rows(learner, joint, some, args, kwargs)
        state, info = learner.update(state, *batch_args, **batch_kwargs)
        info = jax.device_get(info)
        log_z.append(info.log_z)
        statuses.append(info.status)
        if info.status[0] < Status.NOT_FINITE:
            uniform = np.asarray(jax.random.uniform(keys[2], (len(replicas),)))
            ranks += [_rank(*pair, u, step) for pair, u in zip(replicas.values(), uniform, strict=True)]
    return np.array(ranks), np.concatenate(log_z), np.concatenate(statuses)


def _uniform(ranks: np.ndarray) -> float:
    """P-value of a Kolmogorov-Smirnov test."""
    from scipy import stats  # a slow import

    return float(stats.kstest(ranks, "uniform").pvalue)


def _rank(drawn: np.ndarray, value: np.ndarray, uniform: float, step: int) -> float:
    """Rank of one element of an observed value ``(elements,)`` among its replicas, ties broken at random."""
    element = step % value.size
    below, equal = np.sum(drawn[:, element] < value[element]), np.sum(drawn[:, element] == value[element])
    return float((below + uniform * (equal + 1)) / (len(drawn) + 1))


def _rows(
    learner: Any, joint: Joint, some: np.ndarray, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call's arguments with some rows of those that carry rows."""
    carriers = {id(a) for a in joint.rows}

    def cut(leaf: Any) -> Any:
        return np.asarray(leaf[some]) if id(leaf) in carriers else leaf

    out = jax.tree.map(cut, (args, dict(kwargs)))
    if "dt" in kwargs:
        out[1]["dt"] = np.broadcast_to(np.asarray(kwargs["dt"]), (joint.length,))[some]
    return out


def _order_sensitivity(
    learner: Any,
    post: Posterior,
    rng_key: jax.Array,
    orders: int,
    prior: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> tuple[float, float]:
    """How far the posterior is from random orders' average, and these from one another, in their sds.

    Of a discrete site in half the range of its values, an upper bound of its sd.
    """
    if orders < 1:
        return math.nan, math.nan
    means, sds = [], []
    for key in jax.random.split(rng_key, orders):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RowsMarked)  # they were told of when the rows were folded first
            again = learner.run(key, *args, prior=prior, shuffle=True, progress_bar=False, info="totals", **kwargs)
        other = learner.get_posterior(again)
        means.append(np.asarray(other.belief.mean))
        sds.append(np.asarray(other.family.spread(other.belief, other.program.size)))
    centre, sd = np.mean(means, 0), np.mean(sds, 0)
    for i, values in enumerate(levels(post.program)):
        if values is not None:  # whose sd goes to 0 as it becomes certain
            sd[i] = 0.5 * (max(values) - min(values))
    shift = np.max(np.abs(np.asarray(post.belief.mean) - centre) / sd)
    return float(shift), float(np.max(np.std(means, 0, ddof=1) / sd)) if orders > 1 else math.nan


def _judge(
    k_hat: float,
    ess: float,
    draws: int,
    error: float,
    sds: tuple[float, float],
    shift: float,
    spread: float,
    pit_p: float,
    refused: float,
    static: bool,
    visited: EPInfo | None = None,
    exact: bool = False,
) -> tuple[str, tuple[str, ...]]:
    """The verdict and its reasons.

    ``visited`` is what became of a run of EP, ``exact`` whether the weights are, for all that θ can be was enumerated.
    """
    stop, mend, note = [], [], []
    effective = ess / draws
    cure = "run EP, or NUTS" if visited is None else "run NUTS"
    if visited is not None:
        stop, mend = _unsettled(visited, k_hat <= GOOD_K and error <= _SHOWS)
    if refused > _REFUSED:
        stop.append(f"{refused:.0%} of the rows were refused: see info.status, and mend the data or the likelihood")
    elif refused > 0.0:
        note.append(f"{refused:.2%} of the rows were refused, and are no part of it: see info.status")
    if shift > _DECIDES:
        stop.append(
            f"a mean lies {shift:.2g} sd from where the same rows lead in random order: the order of the rows decides "
            "the result. Shuffle them (run(..., shuffle=True)) or run EP"
        )
    elif max(shift, spread) > _SHOWS:
        mend.append(f"means move by up to {max(shift, spread):.2f} sd with the order of the rows: {cure}")
    if error > _SHOWS and not stop and exact:
        mend.append(f"a probability is {error / 2.0:.2g} off (all combinations were enumerated): use .reweighted")
    elif error > _SHOWS and not stop:
        good = ", which are good," if k_hat <= GOOD_K else ""
        mend.append(f"importance weights{good} move a mean by {error:.2f} sd: use .reweighted, or {cure}")
    if not stop and max(1.0 / sds[0], sds[1]) - 1.0 > _SHOWS + 3.0 / math.sqrt(2.0 * ess):
        mend.append(
            f"sds are {sds[0]:.2f} to {sds[1]:.2f} of what importance weights make of them: use .reweighted, or {cure}"
        )
    if not stop and k_hat > GOOD_K and effective > _FEW_LOST:
        note.append(
            f"the far tails are lighter than the true posterior's (k-hat {k_hat:.2f}, though {effective:.0%} of the "
            "draws are effective): do not report probabilities below a percent or so"
        )
    elif not stop and k_hat > GOOD_K:
        mend.append(
            f"importance weights are heavy-tailed (k-hat {k_hat:.2f}): the posterior misses some of the true one's "
            f"mass. {cure[0].upper()}{cure[1:]}, before intervals or tails are reported"
        )
    if pit_p < _UNCALIBRATED:
        expected = "one-step-ahead predictions" if visited is None else "predictions from all the others"
        words = (
            f"rows did not fall where the {expected} expected them (p = {pit_p:.1g}): the model does not fit the data"
        )
        if visited is None:
            words += " or their order" if static else ", or drifts otherwise"
        note.append(words)
    if stop:
        return DO_NOT_USE, (*stop, *mend, *note)
    if mend:
        return RUN_EP if visited is None else RUN_NUTS, (*mend, *note)
    if note:
        return TRUST, (*note, "nothing else was found against it as the posterior of this model")
    return TRUST, ("nothing was found against it",)


def _said_of(
    program: Program, weighted: Reweighted | None, verdict: str, reasons: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """The same with a cure that there is (NUTS samples no discrete sites), and with what weights cannot tell."""
    if not discrete_latents(program):
        return verdict, reasons
    reasons = tuple(r.replace("NUTS", "Gibbs sampling") for r in reasons)
    if weighted is not None and weighted.unseen:
        reasons = (
            "a value of a discrete site is so improbable that it was never drawn: importance weights cannot tell "
            "whether it is as improbable as that. Where such a site is tied to others, compare with Gibbs sampling",
            *reasons,
        )
    return verdict.replace(RUN_NUTS, RUN_GIBBS), reasons


def _unsettled(info: EPInfo, near: bool) -> tuple[list[str], list[str]]:
    """What is to be said of sites that have not settled: reasons not to use the posterior, and reasons to mend it.

    Args:
        info: Of the run.
        near: Whether good importance weights say that the posterior is near the true one all the same.
    """
    if info.converged:
        return [], []
    mend = []
    held = np.flatnonzero(np.asarray(info.status) == Status.HELD)
    if len(held):
        told = ", ".join(map(str, held[:5])) + (", …" if len(held) > 5 else "")
        mend.append(f"{len(held)} rows ({told}) are held back: they could not be visited again. Run NUTS")
    stuck = [key for key, status in info.priors.items() if status == Status.HELD]
    if stuck:
        mend.append(
            f"factors of the prior ({', '.join(stuck)}) are held back: they could not be visited again. Run NUTS"
        )
    last = float(info.step[-1]) if len(info.step) else math.inf
    words = (
        f"EP has {not_settled(info)}. Give it more max_sweeps, a smaller damping, schedule='sequential' or power=.5; "
        "or run NUTS"
    )
    if not (last <= _SHOWS or near):
        return [words], mend
    return [], mend or [words]
