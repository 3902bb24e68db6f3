"""What an online posterior says of its own error, without a reference: weights, order of the rows, predictions."""

import inspect
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from adfpp.dynamics import Static
from adfpp.explain import advice, untouched_sites
from adfpp.importance import GOOD_K, Reweighted
from adfpp.kernel import Status
from adfpp.model import Joint, refuse_clashes
from adfpp.posterior import Posterior
from adfpp.stream import RowsMarked, announced

TRUST = "trust it"
RUN_EP = "run EP"
DO_NOT_USE = "do not use it as it is"

# in posterior sds: where the order of the rows begins to show, and where it decides the result
_SHOWS, _DECIDES = 0.3, 1.0
_UNCALIBRATED = 1e-3  # p-value of one-step-ahead predictions
_REFUSED = 0.05  # share of rows
_FEW_LOST = 0.9  # share of effective draws above which heavy tails of the weights concern the far tails alone
_DRAWS = 200  # replications of a row behind its rank


@dataclass(frozen=True, eq=False)
class Check:
    """What the self-check found; prints as a page of plain words.

    Attributes:
        verdict: "trust it", "run EP" or "do not use it as it is".
        reasons: Why, in words, with what to do.
        k_hat: Pareto k̂ of the posterior as a proposal for the true one; NaN with dynamics.
        ess: Effective number of draws of ``reweighted``; NaN with dynamics.
        error: How far importance weights move a mean at most, in the smaller of the sds before and after: the error of
            the means, if ``k_hat`` is good; NaN with dynamics.
        sd_ratio: Smallest and largest ratio of an sd to what the weights make of it.
        order_shift: Largest distance of a mean from where the rows lead in random order, in posterior sds.
        order_spread: Largest sd of a mean over random orders, in posterior sds.
        orders: Random orders folded.
        pit: Where each looked-at row fell among its one-step-ahead predictions: uniform on (0, 1) if they are
            calibrated.
        pit_p: P-value of a Kolmogorov-Smirnov test of that.
        log_z: ``(n,)`` log predictive density of each row before it was absorbed, in the order folded.
        statuses: Rows by status name.
        reweighted: The posterior corrected by importance weights; None with dynamics.
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

    @property
    def score(self) -> float:
        """Mean log predictive density of a row before it was absorbed, over the rows absorbed."""
        refused = sum(count for name, count in self.statuses.items() if Status[name].refused)
        return float(self.log_z.sum() / max(1, len(self.log_z) - refused))

    def __str__(self) -> str:
        """The verdict, why, and the figures."""
        counts = ", ".join(f"{count} {name}" for name, count in self.statuses.items())
        figures = [
            ("importance weights", _figure(self.k_hat, "k-hat {:.2f}", f" (good below {GOOD_K})")),
            ("", _figure(self.error, "which move the means by up to {:.2f} sd", "")),
            ("", _figure(self.sd_ratio[0], "sds are {:.2f}", f" to {self.sd_ratio[1]:.2f} of what they make of them")),
            ("order of the rows", _figure(self.order_shift, "means {:.2f} sd from", f" {self.orders} random orders'")),
            ("", _figure(self.order_spread, "which are {:.2f} sd apart", "")),
            ("predictions", _figure(self.pit_p, "calibrated with p = {:.2g}", f" ({len(self.pit)} ranks)")),
            ("", f"mean log predictive density {self.score:.4g}"),
            ("rows", counts),
        ]
        # until there is an EP to run
        stand_in = " (which is not built yet: run NUTS)" if self.verdict == RUN_EP else ""
        lines = [f"{self.verdict}{stand_in}", *(f"  - {reason}" for reason in self.reasons), ""]
        return "\n".join([*lines, *(f"  {name:<19}{words}" for name, words in figures)])

    __repr__ = __str__

    def plot(self) -> Any:
        """Histogram of the one-step-ahead ranks and the running log score, as a Matplotlib figure."""
        from adfpp.plots import draw_check

        return draw_check(self.pit, self.log_z)


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
    """Checks an online posterior against its own model and data, without NUTS.

    Three questions: does importance weighting find the posterior close to the true one; does it depend on the order in
    which the rows came; were the rows where the one-step-ahead predictions expected them. With dynamics, where the
    order is part of the model, only the third is asked.

    Example:
        ::

            result = adf.run(jax.random.key(0), X, y=y)
            found = adfpp.check(adf, result, X, y=y)
            print(found)
            found.reweighted.mean()

    Args:
        learner: The ``ADF`` (or ``EP``) that learned.
        state: The state or result that it reached after all these rows. Rows that it refused are left out here too.
        *args: The model's arguments: all rows, in the order in which they were folded, unless ``state`` is a result
            made with ``shuffle=True``, whose order is known.
        rng_key: Key; a fixed one by default.
        prior: As given to ``init`` or ``run``; known if ``state`` is a result.
        orders: Random orders to fold the rows in.
        predictions: Rows to predict, at most, evenly spread.
        num_samples: Draws for the importance weights.
        progress_bar: Whether to show one.
        **kwargs: The model's keyword arguments.
    """
    refuse_clashes(learner.model, check, args)
    key = jax.random.key(0) if rng_key is None else rng_key
    weight_key, order_key, predict_key = jax.random.split(key, 3)
    post = learner.get_posterior(state)
    run = _run_of(state)
    prior = prior if run is None or prior is not None else run.start
    static = isinstance(learner.dynamics, Static)
    takes = inspect.signature(learner.model).parameters
    model_kwargs = {name: value for name, value in kwargs.items() if name != "dt" or "dt" in takes}
    joint = Joint(post.program, args, model_kwargs)
    if run is not None and run.rows != joint.length:
        raise ValueError(
            f"The run folded {run.rows} rows, and these are {joint.length}: pass all the rows that were folded."
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
    counts = np.bincount(status, minlength=len(Status))
    statuses = {s.name: int(counts[s]) for s in Status if counts[s]}
    k_hat = math.nan if weighted is None else weighted.k_hat
    refused = float((status >= Status.NOT_FINITE).mean())
    ess = math.nan if weighted is None else weighted.ess
    error, sds = moved[0], (moved[1], moved[2])
    untouched = untouched_sites(post.program)
    verdict, reasons = _judge(
        k_hat,
        ess,
        num_samples,
        error,
        sds,
        shift,
        spread,
        pit_p,
        refused,
        static,
        [*advice(untouched)] * bool(untouched),
    )
    return Check(verdict, reasons, k_hat, ess, error, sds, shift, spread, orders, pit, pit_p, log_z, statuses, weighted)


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
    """How far the posterior is from random orders' average, and these from one another, in their sds."""
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
    unlearned: Sequence[str],
) -> tuple[str, tuple[str, ...]]:
    """The verdict and its reasons."""
    stop, mend, note = [], [" ".join(unlearned)] * bool(unlearned), []
    effective = ess / draws
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
        mend.append(f"means move by up to {max(shift, spread):.2f} sd with the order of the rows: run EP, or NUTS")
    if error > _SHOWS and not stop:
        good = ", which are good," if k_hat <= GOOD_K else ""
        mend.append(f"importance weights{good} move a mean by {error:.2f} sd: use .reweighted, or run EP or NUTS")
    if not stop and max(1.0 / sds[0], sds[1]) - 1.0 > _SHOWS + 3.0 / math.sqrt(2.0 * ess):
        mend.append(
            f"sds are {sds[0]:.2f} to {sds[1]:.2f} of what importance weights make of them: use .reweighted, or run "
            "EP or NUTS"
        )
    if not stop and k_hat > GOOD_K and effective > _FEW_LOST:
        note.append(
            f"the far tails are lighter than the true posterior's (k-hat {k_hat:.2f}, though {effective:.0%} of the "
            "draws are effective): do not report probabilities below a percent or so"
        )
    elif not stop and k_hat > GOOD_K:
        mend.append(
            f"importance weights are heavy-tailed (k-hat {k_hat:.2f}): the posterior misses some of the true one's "
            "mass. Run EP, or NUTS, before intervals or tails are reported"
        )
    if pit_p < _UNCALIBRATED:
        words = f"rows did not fall where the one-step-ahead predictions expected them (p = {pit_p:.1g}): "
        words += "the model does not fit the data" + (" or their order" if static else ", or drifts otherwise")
        note.append(words)
    if stop:
        return DO_NOT_USE, (*stop, *mend, *note)
    if mend:
        return RUN_EP, (*mend, *note)
    if note:
        return TRUST, (*note, "nothing else was found against it as the posterior of this model")
    return TRUST, ("nothing was found against it",)
