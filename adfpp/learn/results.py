"""What a run gives back: the state reached, what became of the rows, and what is remembered of the run itself."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from adfpp.learn.posterior import Posterior
from adfpp.learn.stream import ADFTotals, NotConverged, RowsMarked, Trajectory


class _StateAndInfo(NamedTuple):
    """The two fields of a result, which are what JAX sees of it."""

    state: Any
    info: Any


class Run(NamedTuple):
    """What a result remembers of the run that made it.

    Attributes:
        learner: Whose run it was.
        posterior: What it reached.
        start: What it began from in the place of the model's prior: the state's or the posterior's belief, the prior's
            distributions by site, or None.
        trajectory: The belief along the run, if it was kept.
        rows: Rows folded or refused.
        order: ``(n,)`` in which the rows were folded, if they were shuffled.
        rng_key: The key of the run.
        options: The other options that shape it.
    """

    learner: Any
    posterior: Posterior
    start: Posterior | Mapping[str, Any] | None
    trajectory: Trajectory | None
    rows: int
    order: np.ndarray | None
    rng_key: jax.Array
    options: dict[str, Any]


class Result(_StateAndInfo):
    """What ``run`` gives back: the state reached and what became of the rows.

    It unpacks into the two and is a pytree of them. The result that ``run`` itself returned also remembers the run:
    a copy made by ``jax.tree.map``, ``_replace`` or pickling does not.

    Attributes:
        state: The state reached.
        info: What became of the rows.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or a pickle holds the arrays alone: compiled functions cannot travel."""
        return type(self), tuple(self)

    @property
    def run(self) -> Run:
        """What is remembered of the run."""
        run = vars(self).get("_run")
        if run is None:
            raise ValueError(
                "This result no longer knows its model: it was copied, mapped or read back from a pickle. Use "
                "adf.get_posterior(result), e.g. adfpp.to_arviz(adf.get_posterior(result), X, y=y)."
            )
        return run

    @property
    def posterior(self) -> Posterior:
        """The posterior reached."""
        return self.run.posterior

    @property
    def log_evidence(self) -> float:
        """Log evidence of the rows absorbed: EP's estimate, or the sum of ADF's log predictive densities.

        Of a run that kept only some rows' info it is not known.
        """
        known = getattr(self.info, "log_evidence", None)
        if known is not None:
            return float(known)
        if not isinstance(self.info, ADFTotals) and len(self.info.log_z) != self.run.rows:
            raise ValueError("The run kept only some rows' info: run it with info='all' or info='totals'.")
        return float(np.sum(self.info.log_z, dtype=np.float64))

    @property
    def trajectory(self) -> Trajectory | None:
        """The belief along the run, if it was made with ``snapshots``."""
        return self.run.trajectory

    def again(self, *args: Any, snapshots: int | None = None, **kwargs: Any) -> "Result":
        """The same run once more, without a progress bar or warnings: same key, start, order and chunks.

        Args:
            *args: The model's arguments, the same data.
            snapshots: As in ``ADF.run``, for a learner that takes it.
            **kwargs: The model's keyword arguments.
        """
        made = self.run
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RowsMarked)  # said once is enough
            warnings.simplefilter("ignore", NotConverged)
            kept = {} if snapshots is None else {"snapshots": snapshots}
            return made.learner.run(made.rng_key, *args, progress_bar=False, **kept, **made.options, **kwargs)


def remembering(result: Result, run: Run) -> Result:
    """The result with what is remembered of its run."""
    vars(result)["_run"] = run
    return result
