"""Tests whether rows that come later follow another model than rows that come earlier.

The sum of a row's scores (the derivatives of its log-likelihood) over the rows up to t fluctuates like a Brownian
bridge if all rows follow the same model (Zeileis and Hornik, 2007). The same holds for the ranks of rows among their
predictions. A parameter that changes along the rows makes one of these sums leave its band.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from adfpp.model import Joint

_BLOCKS = 4096  # places along the rows at which sums are compared, so that long streams need little memory
_CHUNK = 4096  # rows whose log-likelihoods are in memory at once


class Drift(NamedTuple):
    """The largest sign of a change along the rows.

    Attributes:
        p: The probability of a sign as large if there is no change, with Bonferroni's correction for all sums.
        row: The last row before the change; -1 if nothing was tested.
        where: The coordinate that changes, or the aspect of the predictions.
    """

    p: float
    row: int
    where: str


NOT_TESTED = Drift(math.nan, -1, "")


def drift_of_scores(
    joint: Joint, theta: np.ndarray, standard: np.ndarray, rows: np.ndarray, names: Sequence[str]
) -> Drift:
    """Tests whether the scores of the rows change along the rows.

    The score of a row, averaged over the posterior, is the regression of its log-likelihood on θ over draws from the
    posterior (Stein's identity), so that no derivatives are needed.

    Args:
        joint: The model with its data.
        theta: ``(S, N)`` draws from the posterior.
        standard: ``(S, N)`` the same in standard units.
        rows: Numbers of the rows that the posterior has absorbed, in their order.
        names: The names of the coordinates.
    """
    each = max(1, -(-len(rows) // _BLOCKS))
    centred = standard - standard.mean(0)
    sums, squares, total = [], [], np.zeros(len(theta))
    for start in range(0, len(rows), _CHUNK - _CHUNK % each):
        chosen = rows[start : start + _CHUNK - _CHUNK % each]
        logs = joint.log_likelihood(theta, chosen)
        row_logs = sum(a.reshape(*a.shape[:2], -1).sum(-1) for a in logs.values())
        row_logs = _finite(np.asarray(row_logs, float))
        total += row_logs.sum(1)
        scores = row_logs.T @ centred / len(theta)
        edges = np.arange(0, len(chosen), each)
        sums.append(np.add.reduceat(scores, edges))
        squares.append(np.add.reduceat(scores**2, edges))
    found = _largest(np.concatenate(sums), np.concatenate(squares), _information(total, centred))
    last = min(len(rows), (found[1] + 1) * each) - 1
    return Drift(found[0], int(rows[last]), names[found[2]])


def drift_of_ranks(ranks: np.ndarray, rows: np.ndarray) -> Drift:
    """Tests whether the ranks of rows among their predictions, or their distances from 1/2, change along the rows.

    Args:
        ranks: Ranks in (0, 1).
        rows: The rows that they belong to, in their order.
    """
    if len(ranks) < 20:  # the law of the largest deviation is that of many rows
        return NOT_TESTED
    aspects = np.stack([ranks, np.abs(2.0 * ranks - 1.0)], -1)
    aspects -= aspects.mean(0)
    found = _largest(aspects, aspects**2)
    return Drift(found[0], int(rows[found[1]]), ("the ranks of the rows", "the spread of the rows")[found[2]])


def strongest(*tests: Drift) -> Drift:
    """The test with the smallest probability, corrected for the number of tests."""
    made = [test for test in tests if not math.isnan(test.p)]
    if not made:
        return NOT_TESTED
    best = min(made, key=lambda test: test.p)
    return best._replace(p=min(1.0, best.p * len(made)))


def is_sorted(values: np.ndarray) -> bool:
    """Whether observed values are sorted or grouped, so that their order is no order of time.

    Args:
        values: ``(rows,)`` observed values in the order of the rows.
    """
    if len(values) < 3:
        return False
    steps, levels = np.diff(values), len(np.unique(values))
    repeated = levels <= len(values) // 4  # else nearly all values differ, and any order of them is one of groups
    grouped = repeated and int(np.sum(steps != 0.0)) == levels - 1
    return levels > 1 and (grouped or bool((steps >= 0.0).all() or (steps <= 0.0).all()))


def _information(logs: np.ndarray, standard: np.ndarray) -> np.ndarray:
    """The variance that the sum of all scores should have, from the second derivatives of the log-likelihood.

    The squares of the scores are much less than this where outcomes were nearly certain and none was a surprise: rows
    with a probability of 0.99 have small scores, all of the same sign. It is 0, which says nothing, if there are too
    few draws for the regression on products of coordinates.

    Args:
        logs: ``(S,)`` the sum of the rows' log-likelihoods at draws from the posterior.
        standard: ``(S, N)`` the draws in standard units, without their mean.
    """
    rows, columns = np.triu_indices(standard.shape[1])
    if len(logs) < 2 * (1 + standard.shape[1] + len(rows)):
        return np.zeros(standard.shape[1])
    products = standard[:, rows] * standard[:, columns]
    terms = np.concatenate([np.ones((len(logs), 1)), standard, products], 1)
    found = np.linalg.lstsq(terms, logs, rcond=None)[0]
    second = np.zeros((standard.shape[1],) * 2)
    second[rows, columns] = found[1 + standard.shape[1] :]
    correlation = standard.T @ standard / len(standard)
    # a score is averaged over the posterior, and so contains the coordinates that are correlated with its own
    return np.maximum(-np.diagonal(correlation @ (second + second.T) @ correlation), 0.0)


def _largest(sums: np.ndarray, squares: np.ndarray, least: np.ndarray | float = 0.0) -> tuple[float, int, int]:
    """The smallest p-value of all columns, its block and its column.

    A column's sum up to t, without the part that is proportional to its variance up to t, is a Brownian bridge in the
    clock of this variance. Its largest absolute value exceeds x standard deviations with probability 2 exp(-2 x²).

    Args:
        sums: Sums of the blocks.
        squares: Their variances.
        least: The least variance of the sum of all blocks, if it is known.
    """
    clock = np.cumsum(squares, 0)
    total = clock[-1]
    with np.errstate(all="ignore"):
        path = np.cumsum(sums, 0)
        bridge = np.abs(path - clock / total * path[-1]) / np.sqrt(np.maximum(total, least))
    bridge = np.where(np.isfinite(bridge), bridge, 0.0)
    block, column = np.unravel_index(int(np.argmax(bridge)), bridge.shape)
    p = 2.0 * np.exp(-2.0 * bridge[block, column] ** 2) * int(np.sum(total > 0.0))
    return float(min(1.0, p)), int(block), int(column)


def _finite(logs: np.ndarray) -> np.ndarray:
    """Log-likelihoods with impossible draws at the row's lowest finite value."""
    if np.isfinite(logs).all():
        return logs
    low = np.min(np.where(np.isfinite(logs), logs, np.inf), 0)
    return np.where(np.isfinite(logs), logs, np.where(np.isfinite(low), low, 0.0))
