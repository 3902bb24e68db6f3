"""What happened to a row: status codes ordered by severity, and the one place where several infos become one."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np


class Status(IntEnum):
    """What happened to a row, in the order of severity; the worst status of several factors is the largest.

    Codes from ``NOT_FINITE`` on are refusals: the belief is as it was before the row.
    """

    OK = 0
    TEMPERED = 1
    SATURATED = 2
    PARTIAL = 3
    INACCURATE = 4
    HELD = 5
    NOT_FINITE = 6
    OUT_OF_SUPPORT = 7
    IMPROPER = 8
    UNRELIABLE = 9

    @property
    def refused(self) -> bool:
        """Whether the row was left out."""
        return self >= Status.NOT_FINITE

    @property
    def warned(self) -> bool:
        """Whether a run warns about such rows when it ends. The milder statuses are only counted."""
        return self >= Status.INACCURATE

    @property
    def advice(self) -> str:
        """What the status means and what to do about it."""
        return _ADVICE[self]


_ADVICE = {
    Status.OK: "absorbed",
    Status.TEMPERED: "absorbed; the Monte Carlo proposal had to be tempered in several steps to reach the row's mass",
    Status.SATURATED: (
        "absorbed; the probability of a discrete latent was limited to the largest certainty that the dtype can express"
    ),
    Status.PARTIAL: (
        "absorbed; only a fraction of its site approximation was exchanged at a time, because the belief is improper "
        "without the whole of it"
    ),
    Status.INACCURATE: (
        "absorbed, but the estimated error of its integral is larger than requested; try moments='accurate'"
    ),
    Status.HELD: (
        "absorbed with the site approximation of an earlier visit, because the belief would be improper without it or "
        "with its replacement"
    ),
    Status.NOT_FINITE: "refused: the row has NaN or infinite values; drop, impute or mask them",
    Status.OUT_OF_SUPPORT: (
        "refused: the observed value has probability zero under the model; check how the labels are coded"
    ),
    Status.IMPROPER: "refused: the tilted moments are not finite or not proper; check the scale of the row's values",
    Status.UNRELIABLE: (
        "refused: too few Monte Carlo points lie where the row's mass is, even after tempering; give the rule more "
        "points or rounds (adfpp.MonteCarlo), or start from a narrower prior"
    ),
}


class RowInfo(NamedTuple):
    """What happened to a row that was absorbed once.

    Attributes:
        log_z: Log predictive density of the row before it was absorbed; 0 for a refused row.
        status: ``Status`` code.
        error: Estimated error of its tilted moments; 0 for closed forms.
    """

    log_z: jax.Array | np.ndarray
    status: jax.Array | np.ndarray
    error: jax.Array | np.ndarray


class VisitInfo(NamedTuple):
    """What happened to a row that was visited again: as ``RowInfo``, against the row's cavity distribution.

    Attributes:
        log_z: Log predictive density of the row given all the others (of a fraction of it where the power is below 1).
        status: ``Status`` code.
        error: Estimated error of its tilted moments.
        evidence: What the row adds to the log evidence (see ``sites``).
        clamped: Number of factors whose site precision was negative by no more than the error of its moments, and was
            set to 0.
    """

    log_z: Any
    status: Any
    error: Any
    evidence: Any
    clamped: Any


Info = TypeVar("Info", RowInfo, VisitInfo)

_SUMMED = ("log_z", "evidence", "clamped")  # the status and the error of a row are the worst of its factors'


def join(infos: Info) -> Info:
    """The info of a row from those of its factors, which lie along the leading axis of every field.

    A row is absorbed as a whole or not at all: one refused factor refuses the row, and everything but the status of a
    refused row is 0.
    """
    status = jnp.max(infos.status, 0)
    refused = is_refused(status)
    joined: dict[str, Any] = {"status": status}
    for name in infos._fields:
        if name != "status":
            reduce = jnp.sum if name in _SUMMED else jnp.max
            whole = reduce(getattr(infos, name), 0).astype(getattr(infos, name).dtype)
            joined[name] = jnp.where(refused, 0, whole)
    return type(infos)(**joined)


def join_all(infos: Sequence[Info]) -> Info:
    """As ``join``, of infos that are not stacked yet."""
    return join(jax.tree.map(lambda *a: jnp.stack(a), *infos))


def is_refused(status: Any) -> Any:
    """Elementwise, whether status codes say that a row was left out."""
    return status >= Status.NOT_FINITE


def worst_of(*statuses: Any) -> Any:
    """Elementwise, the most severe of several statuses."""
    worst = statuses[0]
    for status in statuses[1:]:
        worst = jnp.maximum(worst, status)
    return worst


def empty_info(rows: int, dtype: Any, visited: bool) -> RowInfo | VisitInfo:
    """The info of rows that have not been visited yet."""
    real, whole = jnp.zeros(rows, dtype), jnp.zeros(rows, jnp.int32)
    return VisitInfo(real, whole, real, real, whole) if visited else RowInfo(real, whole, real)
