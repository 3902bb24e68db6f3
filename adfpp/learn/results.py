"""The result of a run: its final state, what happened to its rows, and how the run was made."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from adfpp.learn.keys import PickledByFields
from adfpp.learn.posterior import GivenPrior, Posterior
from adfpp.learn.stream import ADFTotals, NotConverged, RowsMarked, Trajectory


@dataclass(frozen=True, eq=False)
class Run(PickledByFields):
    """How a result was made: the learner, the start and the options of the run.

    Attributes:
        learner: The learner that made the run.
        posterior: The posterior at the end of the run.
        start: The start of the run, if it was not the model's prior: the belief of a state or posterior, or the given
            prior distributions ``{latent: distribution}``. Otherwise None.
        trajectory: The belief along the run, if it was recorded.
        rows: Number of rows absorbed or refused.
        order: ``(n,)`` the order in which the rows were absorbed, if they were shuffled.
        rng_key: The key of the run.
        options: The other options that determine the run.
    """

    learner: Any
    posterior: Posterior
    start: GivenPrior
    trajectory: Trajectory | None
    rows: int
    order: np.ndarray | None
    rng_key: jax.Array
    options: dict[str, Any]


class Result:
    """The result of ``run``: its final state and what happened to the rows.

    It unpacks into these two, ``state, info = adf.run(...)``, and is a pytree of them. The result that ``run`` itself
    returned, and its copies and pickles, also have a record of the run. A result made by ``jax.tree.map`` has none.

    Attributes:
        state: The final state.
        info: What happened to the rows.
    """

    def __init__(self, state: Any, info: Any, run: Run | None = None) -> None:
        self.state, self.info, self._run = state, info, run

    def __iter__(self) -> Iterator[Any]:
        yield self.state
        yield self.info

    def __len__(self) -> int:
        return 2

    def _replace(self, **changes: object) -> "Result":
        """Returns the result with another state or info, and without the record of the run."""
        return Result(changes.get("state", self.state), changes.get("info", self.info))

    def __getitem__(self, index: int) -> Any:
        return (self.state, self.info)[index]

    def __repr__(self) -> str:
        return f"Result(state={self.state!r}, info={self.info!r})"

    @property
    def remembered(self) -> Run | None:
        """The record of the run, or None if there is none."""
        return self._run

    @property
    def run(self) -> Run:
        """The record of the run."""
        if self._run is None:
            raise ValueError(
                "This result has no record of its run and its model: it was made by jax.tree.map or by hand. Use "
                "adf.get_posterior(result), e.g. adfpp.to_arviz(adf.get_posterior(result), X, y=y)."
            )
        return self._run

    @property
    def posterior(self) -> Posterior:
        """The posterior at the end of the run."""
        return self.run.posterior

    @property
    def log_evidence(self) -> float:
        """Log evidence of the rows absorbed: EP's estimate, or the sum of ADF's log predictive densities.

        It is unknown after a run that kept the info of some rows only.
        """
        known = getattr(self.info, "log_evidence", None)
        if known is not None:
            return float(known)
        if not isinstance(self.info, ADFTotals) and len(self.info.log_z) != self.run.rows:
            raise ValueError("The run kept the info of some rows only: run it with info='all' or info='totals'.")
        return float(np.sum(self.info.log_z, dtype=np.float64))

    @property
    def trajectory(self) -> Trajectory | None:
        """The belief along the run, if it was run with ``snapshots``."""
        return self.run.trajectory

    def again(self, *args: Any, snapshots: int | None = None, **kwargs: Any) -> "Result":
        """Repeats the run without a progress bar or warnings, with the same key, start, order and chunks.

        Args:
            *args: The model's arguments, with the same data.
            snapshots: As in ``ADF.run``, for a learner that takes it.
            **kwargs: The model's keyword arguments.
        """
        run = self.run
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RowsMarked)  # the first run has given these warnings
            warnings.simplefilter("ignore", NotConverged)
            kept = {} if snapshots is None else {"snapshots": snapshots}
            return run.learner.run(run.rng_key, *args, progress_bar=False, **kept, **run.options, **kwargs)


jax.tree_util.register_pytree_node(Result, lambda result: (tuple(result), None), lambda _, parts: Result(*parts))
