"""Infos about visited rows: status codes in the order of severity, and the only functions that join several infos."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike


class Status(IntEnum):
    """Status codes of a row, in the order of severity. The worst status of several factors is the largest.

    Codes from ``NOT_FINITE`` on are refusals: the belief is the same as before the row.
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
    ABOVE_ONE = 10

    @property
    def refused(self) -> bool:
        """Whether the row was refused."""
        return self >= Status.NOT_FINITE

    @property
    def warned(self) -> bool:
        """Whether a run warns about such rows when it ends. The milder statuses are only counted."""
        return self >= Status.INACCURATE

    @property
    def advice(self) -> str:
        """The meaning of the status, and what to do about it."""
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
        "refused: the observed value has probability zero under the model, or an index selects what does not exist; "
        "check how the labels and groups are coded"
    ),
    Status.IMPROPER: "refused: the tilted moments are not finite or not proper; check the scale of the row's values",
    Status.UNRELIABLE: (
        "refused: too few Monte Carlo points lie where the row's mass is, even after tempering; give the rule more "
        "points or rounds (adfpp.MonteCarlo), or start from a narrower prior"
    ),
    Status.ABOVE_ONE: (
        "refused: the model gives the observed value a probability above 1, because rounding errors of its log-density "
        "are large (or because it is not normalised); compute in float64 (jax_enable_x64), or use a prior that keeps "
        "parameters such as concentrations within a realistic range"
    ),
}


class RowInfo(NamedTuple):
    """Info about a row that was absorbed once.

    Attributes:
        log_z: Log predictive density of the row before it was absorbed; 0 for a refused row.
        status: The ``Status`` code of the row.
        error: Estimated error of its tilted moments; 0 for closed forms.
    """

    log_z: jax.Array | np.ndarray
    status: jax.Array | np.ndarray
    error: jax.Array | np.ndarray


class VisitInfo(NamedTuple):
    """Info about a row that is visited repeatedly: as ``RowInfo``, but with respect to the row's cavity distribution.

    Attributes:
        log_z: Log predictive density of the row given all the others (of that power of the row, if it is below 1).
        status: The ``Status`` code of the row.
        error: Estimated error of its tilted moments.
        evidence: The contribution of the row to the log evidence (see ``sites``).
        clamped: Number of factors whose site precision was set to 0, because it was negative by no more than the error
            of the moments.
    """

    log_z: Any
    status: Any
    error: Any
    evidence: Any
    clamped: Any


Info = TypeVar("Info", bound=RowInfo | VisitInfo)

_SUMMED = ("log_z", "evidence", "clamped")  # the status and the error of a row are the worst of its factors'


def join(infos: Info) -> Info:
    """Joins the infos of a row's factors, which are stacked along the leading axis of every field.

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
    """As ``join``, for infos that are not stacked yet."""
    return join(jax.tree.map(lambda *a: jnp.stack(a), *infos))


def is_refused(status: Any) -> Any:
    """Whether rows were refused, elementwise from their status codes."""
    return status >= Status.NOT_FINITE


def worst_of(*statuses: Any) -> Any:
    """The most severe of several statuses, elementwise."""
    worst = statuses[0]
    for status in statuses[1:]:
        worst = jnp.maximum(worst, status)
    return worst


def empty_info(rows: int, dtype: DTypeLike, visited: bool) -> RowInfo | VisitInfo:
    """Makes the info of rows that have not been visited yet."""
    real, whole = jnp.zeros(rows, dtype), jnp.zeros(rows, jnp.int32)
    return VisitInfo(real, whole, real, real, whole) if visited else RowInfo(real, whole, real)
