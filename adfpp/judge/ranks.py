"""Ranks of rows among their predictions, which are made one step ahead or from all other rows.

If the predictions are calibrated, the ranks are uniform on (0, 1).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.status import Status
from adfpp.learn.adf import ADF
from adfpp.learn.importance import Reweighted, good_rows, psislw
from adfpp.learn.posterior import GivenPrior
from adfpp.model import Joint
from adfpp.model.arguments import is_whole_number, signature_of

_DRAWS = 200  # predictive draws of a row, among which it is ranked
_RANKED = 0.9  # share of rows whose weights must be good for leave-one-out ranks
_FEWEST = 10  # ranks that a test of their distribution needs


class Ranked(NamedTuple):
    """Some rows among their predictions, in the order of the data.

    Attributes:
        ranks: Ranks in (0, 1); one for each observation of a row.
        rows: The rows that they belong to.
        values: The observed values that were ranked, or those of the rows if none could be ranked.
    """

    ranks: np.ndarray
    rows: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, ranked: list[tuple[int, float, float]]) -> "Ranked":
        """The ranks from tuples of row, rank and value, in any order."""
        ranked = sorted(ranked, key=lambda one: one[0])
        rows, ranks, values = zip(*ranked, strict=True) if ranked else ((), (), ())
        return cls(np.array(ranks, float), np.array(rows, int), np.array(values, float))


class Replay(NamedTuple):
    """The result of absorbing the rows once more, with predictions of some of them.

    Attributes:
        ranked: The rows that were predicted.
        log_z: ``(n,)`` log predictive density of each row before it was absorbed, in the order of absorption.
        status: ``(n,)`` the status of each row.
    """

    ranked: Ranked
    log_z: np.ndarray
    status: np.ndarray


def one_step_ahead(
    learner: ADF,
    joint: Joint,
    rng_key: jax.Array,
    order: np.ndarray,
    prior: GivenPrior,
    most: int,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> Replay:
    """Absorbs the rows once more and ranks some of them among predictions made just before they were absorbed.

    Args:
        learner: The ``ADF``.
        joint: The model with its data.
        rng_key: Key.
        order: The order in which the rows are absorbed.
        prior: As in ``ADF.init``.
        most: The largest number of rows to predict.
        args: The model's arguments.
        kwargs: The model's keyword arguments.
    """
    state = learner.init(rng_key, *args, prior=prior, **kwargs)
    stride = max(1, -(-joint.length // most))
    stride = 1 << (stride - 1).bit_length()  # batches of a power of two are absorbed without padding
    ranked: list[tuple[int, float, float]] = []
    log_z, statuses = [], []
    for step, start in enumerate(range(0, joint.length, stride)):
        batch = order[start : start + stride]
        keys = jax.random.split(jax.random.fold_in(rng_key, step), 3)
        theta = learner.get_posterior(state).draw(keys[0], _DRAWS)
        replicas = joint.replicate(keys[1], theta, int(batch[0]))
        batch_args, batch_kwargs = _rows(joint, batch, args, kwargs)
        state, info = learner.update(state, *batch_args, **batch_kwargs)
        info = jax.device_get(info)
        log_z.append(info.log_z)
        statuses.append(info.status)
        if info.status[0] < Status.NOT_FINITE:
            ranked += _ranked(replicas, keys[2], step, int(batch[0]))
    return Replay(Ranked.of(ranked), np.concatenate(log_z), np.concatenate(statuses))


def left_out(joint: Joint, weighted: Reweighted, rng_key: jax.Array, absorbed: np.ndarray, most: int) -> Ranked:
    """Ranks of some rows among predictions from all other rows, by importance weights of draws.

    Args:
        joint: The model with its data.
        weighted: The posterior of all absorbed rows, by importance weights.
        rng_key: Key.
        absorbed: Numbers of the rows that were absorbed.
        most: The largest number of rows to rank.

    Returns:
        The rows, without ranks if the weights are not good enough for most of them.
    """
    rows = absorbed[:: max(1, -(-len(absorbed) // max(most, 1)))] if most > 0 else absorbed[:0]
    if not len(rows):
        return Ranked.of([])
    logs = joint.log_likelihood(weighted.theta, rows)
    log_lik = np.sum([a.reshape(*a.shape[:2], -1).sum(-1) for a in logs.values()], 0).T  # (rows, S)
    with np.errstate(invalid="ignore"):  # a draw under which a row is impossible has weight 0
        ratios = np.where(np.isfinite(log_lik), weighted.log_weights - log_lik, -np.inf)
    if weighted.exact:  # these are all values of θ: there is no tail to smooth
        log_weights = ratios - np.logaddexp.reduce(ratios, axis=-1, keepdims=True)
    else:
        log_weights, k = psislw(ratios)
        if np.mean(good_rows(log_weights, k)) < _RANKED:
            replicas = (joint.replicate(rng_key, jnp.asarray(weighted.theta[:_DRAWS]), int(row)) for row in rows)
            return Ranked.of([])._replace(values=np.array([float(v[0]) for r in replicas for _, v in r.values()]))
    ranked: list[tuple[int, float, float]] = []
    for step, (row, log_weight) in enumerate(zip(rows, log_weights, strict=True)):
        keys = jax.random.split(jax.random.fold_in(rng_key, step), 3)
        chosen = np.asarray(jax.random.choice(keys[0], len(log_weight), (_DRAWS,), p=jnp.exp(log_weight)))
        replicas = joint.replicate(keys[1], jnp.asarray(weighted.theta[chosen]), int(row))
        ranked += _ranked(replicas, keys[2], step, int(row))
    return Ranked.of(ranked)


def calibration(ranks: np.ndarray) -> float:
    """P-value of a Kolmogorov-Smirnov test that ranks are uniform; NaN for too few ranks."""
    from scipy import stats  # imported here, because it is slow

    return float(stats.kstest(ranks, "uniform").pvalue) if len(ranks) >= _FEWEST else math.nan


def _ranked(
    replicas: Mapping[str, tuple[np.ndarray, np.ndarray]], rng_key: jax.Array, step: int, row: int
) -> list[tuple[int, float, float]]:
    """The row, and the rank and the value of one element of each of its observations."""
    uniform = np.asarray(jax.random.uniform(rng_key, (len(replicas),)))
    return [
        (row, _rank(drawn, value, u, step), float(value[step % value.size]))
        for (drawn, value), u in zip(replicas.values(), uniform, strict=True)
    ]


def _rank(drawn: np.ndarray, value: np.ndarray, uniform: float, step: int) -> float:
    """Rank of one element of an observed value ``(elements,)`` among its replicas, ties broken at random."""
    element = step % value.size
    below, equal = np.sum(drawn[:, element] < value[element]), np.sum(drawn[:, element] == value[element])
    return float((below + uniform * (equal + 1)) / (len(drawn) + 1))


def _rows(
    joint: Joint, batch: np.ndarray, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[tuple[object, ...], dict[str, Any]]:
    """The call's arguments, cut to some rows where they carry rows, with the number of rows where they are counts."""
    carriers = {id(a) for a in joint.rows}
    counts = set(joint.layout.named("count"))

    def cut(value: object, name: str) -> object:
        def leaf(leaf: Any) -> object:
            if name in counts and is_whole_number(leaf) and leaf == joint.length:
                return len(batch)
            return np.asarray(leaf[batch]) if id(leaf) in carriers else leaf

        return jax.tree.map(leaf, value)

    names = list(signature_of(joint.program.model).parameters)
    some = {name: cut(value, name) for name, value in kwargs.items()}
    if "dt" in kwargs:
        some["dt"] = np.broadcast_to(np.asarray(kwargs["dt"]), (joint.length,))[batch]
    return tuple(cut(value, name) for value, name in zip(args, names, strict=False)), some
