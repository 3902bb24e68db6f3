"""What a run gives back: the state reached, what became of the rows, and what is remembered of the run itself."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from adfpp.learn.keys import PickledByFields
from adfpp.learn.posterior import Posterior
from adfpp.learn.stream import ADFTotals, NotConverged, RowsMarked, Trajectory


@dataclass(frozen=True, eq=False)
class Run(PickledByFields):
    """What a result remembers of the run that made it.

    Attributes:
        learner: Whose run it was.
        posterior: What it reached.
        start: What it began from in the place of the model's prior: the state's or the posterior's belief, the prior's
            distributions by site, or None.
        trajectory: The belief along the run, if it was kept.
        rows: Rows absorbed or refused.
        order: ``(n,)`` in which the rows were absorbed, if they were shuffled.
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


class Result:
    """What ``run`` returns: the state reached and what happened to the rows.

    It unpacks into the two, ``state, info = adf.run(...)``, and is a pytree of them. The result that ``run`` itself
    returned, and its copies and pickles, also remember the run; what ``jax.tree.map`` makes of it does not.

    Attributes:
        state: The state reached.
        info: What happened to the rows.
    """

    def __init__(self, state: Any, info: Any, run: Run | None = None) -> None:
        self.state, self.info, self._run = state, info, run

    def __iter__(self) -> Iterator[Any]:
        yield self.state
        yield self.info

    def __len__(self) -> int:
        return 2

    def _replace(self, **changes: Any) -> "Result":
        """The result with another state or info; it no longer remembers the run."""
        return Result(changes.get("state", self.state), changes.get("info", self.info))

    def __getitem__(self, index: int) -> Any:
        return (self.state, self.info)[index]

    def __repr__(self) -> str:
        return f"Result(state={self.state!r}, info={self.info!r})"

    @property
    def remembered(self) -> Run | None:
        """What is remembered of the run, if anything is."""
        return self._run

    @property
    def run(self) -> Run:
        """What is remembered of the run."""
        if self._run is None:
            raise ValueError(
                "This result no longer knows its model: it was made by jax.tree.map or by hand. Use "
                "adf.get_posterior(result), e.g. adfpp.to_arviz(adf.get_posterior(result), X, y=y)."
            )
        return self._run

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
            warnings.simplefilter("ignore", RowsMarked)  # a second warning would say nothing new
            warnings.simplefilter("ignore", NotConverged)
            kept = {} if snapshots is None else {"snapshots": snapshots}
            return made.learner.run(made.rng_key, *args, progress_bar=False, **kept, **made.options, **kwargs)


jax.tree_util.register_pytree_node(Result, lambda result: (tuple(result), None), lambda _, parts: Result(*parts))
