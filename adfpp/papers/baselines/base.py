"""The loop of all baselines: one `lax.scan` over the rows in order, in which refused rows are counted but not learned.

A new algorithm is a frozen dataclass that derives from `Learner` and implements `initial`, `output`, `step` and
`estimate`. Algorithms with a linear field w·x derive from `adfpp.papers.baselines.linear.LinearLearner` instead.
"""

import contextlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from numpy.typing import ArrayLike

from adfpp.engine.status import RowInfo, Status
from adfpp.learn.stream import Interrupted, Log, interruptible, padded, progress, stretches, suitable_chunk

if TYPE_CHECKING:
    from adfpp.judge.fits import Fit
    from adfpp.model import Program

Arrays = TypeVar("Arrays")  # the state of an algorithm between rows: an array or a pytree of arrays


class State(NamedTuple, Generic[Arrays]):
    """State of a baseline between two rows.

    Attributes:
        arrays: The algorithm's own arrays, a pytree.
        rows: ``()`` number of rows learned so far; refused rows are not counted.
    """

    arrays: Arrays
    rows: jax.Array

    @property
    def kept(self) -> Arrays:
        """The name of ``arrays`` in version 0.1."""
        warnings.warn("State.kept is now State.arrays; the old name will go in 0.3.", DeprecationWarning, stacklevel=2)
        return self.arrays


class Info(NamedTuple):
    """Outcome of each row. All fields have shape ``(n,)``; the first two are 0 for a refused row.

    Attributes:
        prediction: The prediction made before the row was learned: the value, or for labels the field, whose sign is
            the predicted label.
        loss: The algorithm's own loss of that prediction; the docstring of its class says which loss that is.
        status: ``adfpp.Status`` code.
    """

    prediction: jax.Array | np.ndarray
    loss: jax.Array | np.ndarray
    status: jax.Array | np.ndarray


class Result(NamedTuple, Generic[Arrays]):
    """Result of ``run``.

    Attributes:
        state: The state after the last row.
        info: The outcome of every row, as NumPy arrays.
    """

    state: State[Arrays]
    info: Info


class Estimate(NamedTuple):
    """A learner's estimate of the weights.

    Attributes:
        weights: The weights themselves, or the mean of the belief. ``ThresholdedSmooth`` has a pytree here.
        sd: ``()`` standard deviation of each weight in a spherical belief; None if the estimate is a point.
        direction: Whether only the direction of the weights counts, and not their length.
    """

    weights: Any
    sd: jax.Array | None = None
    direction: bool = False


class Learner(ABC, Generic[Arrays]):
    """One online algorithm: a frozen dataclass of its settings, whose learned arrays are in a `State`.

    An algorithm defines its initial arrays, its prediction and one step; `init`, `update`, `predict` and `run` are the
    same for all. The settings are static: a learner with other settings is compiled again.
    """

    labels: ClassVar[bool] = True  # whether y is a label in {0, 1}, which `step` receives as a sign

    @abstractmethod
    def initial(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, **options: Any) -> Arrays:
        """The arrays before any row.

        Args:
            rng_key: Key, for algorithms with a random start.
            shape: Shape of one row of x.
            dtype: Data type of the arrays.
            **options: The additional arguments of ``init``.
        """

    @abstractmethod
    def output(self, arrays: Arrays, row: jax.Array) -> jax.Array:
        """``()`` the prediction for a row."""

    @abstractmethod
    def step(self, arrays: Arrays, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[Arrays, jax.Array]:
        """Learns one row.

        Args:
            arrays: The arrays before the row.
            row: One row of x.
            target: ``()`` sign of the label, or the value.
            count: ``()`` number of this row among the rows learned, from 1.

        Returns:
            The arrays after the row, and the loss ``()`` of the prediction made before it.
        """

    @abstractmethod
    def estimate(self, arrays: Arrays) -> Estimate:
        """The estimate of the weights.

        Args:
            arrays: The algorithm's arrays.
        """

    def compared(
        self,
        name: str,
        program: "Program",
        rng_key: jax.Array,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        num_samples: int,
    ) -> "Fit":
        """Runs the learner on the rows of a model; `adfpp.compare` calls it (`adfpp.judge.fits.Comparable`)."""
        from adfpp.papers.baselines.fits import fit_learner

        return fit_learner(name, self, program, rng_key, args, kwargs, num_samples)

    def row_shape(self, arrays: Arrays) -> tuple[int, ...] | None:
        """Shape that one row of x must have; None if any shape is accepted."""
        return None

    def with_init(self, **options: Any) -> "Learner[Arrays]":
        """The same learner whose ``init`` always receives these options.

        `adfpp.compare` gives no options to ``init``. A learner that needs some, such as the ``teacher`` of
        `VariationalOptimum`, is prepared with this method.

        Args:
            **options: Arguments of ``init`` besides the rows.
        """
        return _WithInit(self, options)

    def begun(self, **options: Any) -> "Learner[Arrays]":
        """The name of `with_init` in version 0.1."""
        message = "Learner.begun is now Learner.with_init; the old name will go in 0.3."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return self.with_init(**options)

    def init(self, rng_key: jax.Array, x: ArrayLike, y: ArrayLike | None = None, **options: Any) -> State[Arrays]:
        """The state before any row. Only shape and data type are read from the data.

        Args:
            rng_key: Key, for algorithms with a random start.
            x: ``(n, ...)`` rows.
            y: Not used.
            **options: Initial values of the algorithm, such as ``weights=``.
        """
        arrays = self.initial(rng_key, tuple(np.shape(x)[1:]), _floating(x), **options)
        return State(arrays, jnp.zeros((), int))

    def update(self, state: State[Arrays], x: ArrayLike, y: ArrayLike | None = None) -> tuple[State[Arrays], Info]:
        """Learns some rows, in order. It can be used inside ``jax.jit``, ``vmap`` and ``scan``.

        Args:
            state: The state before these rows.
            x: ``(n, ...)`` rows.
            y: ``(n,)`` labels in {0, 1} or values.

        Returns:
            ``(state, info)``.
        """
        self._check(state, x, y)
        return _absorb(self, state, jnp.asarray(x, _floating(x)), jnp.asarray(y), np.shape(x)[0])

    def predict(self, state: State[Arrays], x: ArrayLike) -> jax.Array:
        """``(n,)`` predictions for new rows ``x``: values, or for labels the fields.

        Args:
            state: The state after learning.
            x: ``(n, ...)`` rows.
        """
        return jax.vmap(partial(self.output, state.arrays))(jnp.asarray(x, _floating(x)))

    def run(
        self,
        rng_key: jax.Array,
        x: ArrayLike,
        y: ArrayLike | None = None,
        state: State[Arrays] | None = None,
        progress_bar: bool = True,
        chunk_size: int | None = None,
        **options: Any,
    ) -> Result[Arrays]:
        """Learns a whole stream, chunk by chunk. Refused rows are counted in one warning at the end.

        When it is interrupted (Ctrl-C), it warns how many rows were learned and returns the state after them.

        Args:
            rng_key: Key, for ``init``.
            x: ``(n, ...)`` rows.
            y: ``(n,)`` labels in {0, 1} or values.
            state: The state from which to continue; by default ``init`` is called.
            progress_bar: Whether to show a progress bar.
            chunk_size: Rows in a chunk; by default the power of two whose rows take at most 64 MB.
            **options: Additional arguments of ``init``, if there is no ``state``.
        """
        if isinstance(x, Tracer) or isinstance(y, Tracer):
            raise TypeError(
                "run reads its data chunk by chunk on the host, which is not possible inside jit, vmap or scan: "
                "use init and update there."
            )
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1; it is {chunk_size}.")
        if state is not None and options:
            raise ValueError(
                f"run was given a state to continue from and also {', '.join(options)}, which only a new state takes: "
                "leave one of the two out."
            )
        current = self.init(rng_key, x, **options) if state is None else state
        self._check(current, x, y)
        dtype, total = _floating(x), np.shape(x)[0]
        x, y = np.asarray(x), np.asarray(y)
        chunk = chunk_size or suitable_chunk([x, y], total)
        log, parts = Log("totals", total, None), [_no_rows(dtype)]
        with progress(total, progress_bar, "mean loss {:.3g}") as bar, contextlib.suppress(Interrupted):
            for start, stop in stretches(total, chunk, None):
                with interruptible(start, total):
                    count = stop - start
                    rows = padded(x[start:stop].astype(dtype), chunk)
                    new, info = _absorb(self, current, rows, padded(y[start:stop], chunk), count)
                    info = Info(*(np.asarray(a)[:count] for a in info))
                current = new
                parts.append(info)
                log.add(RowInfo(info.loss, info.status, np.zeros(count)), start)
                bar(count, log)
        log.warn()
        return Result(current, Info(*(np.concatenate(part) for part in zip(*parts, strict=True))))

    def _check(self, state: State[Arrays], x: ArrayLike, y: ArrayLike | None) -> None:
        name = type(self).__name__
        if y is None:
            kind = "labels in {0, 1}" if self.labels else "values"
            raise ValueError(f"{name} learns from labelled rows, and y is missing: give y, {kind}, one for each row.")
        if not np.ndim(x) or not np.shape(x)[0]:
            raise ValueError(f"No rows: x has shape {np.shape(x)}; it must be (n, ...) with n at least 1.")
        if np.shape(y) != np.shape(x)[:1]:
            raise ValueError(
                f"y has shape {np.shape(y)} and x has shape {np.shape(x)}: y must be {np.shape(x)[:1]}, one number for "
                "each row."
            )
        shape = self.row_shape(state.arrays)
        if shape is not None and np.shape(x)[1:] != shape:
            raise ValueError(
                f"x has rows of shape {np.shape(x)[1:]}, and the state of {name} was made for rows of shape {shape}: "
                "give rows of that shape, or a new state from init."
            )


@dataclass(frozen=True, eq=False)  # the options are arrays, which have no hash
class _WithInit(Learner[Arrays]):
    """A learner whose ``init`` always receives the same options."""

    learner: Learner[Arrays]
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", self.learner.labels)

    def initial(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, **options: Any) -> Arrays:
        return self.learner.initial(rng_key, shape, dtype, **{**self.options, **options})

    def output(self, arrays: Arrays, row: jax.Array) -> jax.Array:
        return self.learner.output(arrays, row)

    def step(self, arrays: Arrays, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[Arrays, jax.Array]:
        return self.learner.step(arrays, row, target, count)

    def estimate(self, arrays: Arrays) -> Estimate:
        return self.learner.estimate(arrays)

    def row_shape(self, arrays: Arrays) -> tuple[int, ...] | None:
        return self.learner.row_shape(arrays)


@partial(jax.jit, static_argnums=0)
def _absorb(
    learner: Learner[Arrays], state: State[Arrays], x: ArrayLike, y: ArrayLike, count: int
) -> tuple[State[Arrays], Info]:
    """Learns the first ``count`` rows of a batch; the rows after them are padding."""

    def one(state: State[Arrays], scanned: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[State[Arrays], Info]:
        row, target, place = scanned
        finite = jnp.isfinite(row).all() & jnp.isfinite(target)
        in_support = (target == 0) | (target == 1) if learner.labels else jnp.bool_(True)
        if learner.labels:
            target = 2.0 * target - 1.0
        prediction = learner.output(state.arrays, row)
        arrays, loss = learner.step(state.arrays, row, target, (state.rows + 1).astype(row.dtype))
        proper = jnp.stack([jnp.isfinite(a).all() for a in jax.tree.leaves((arrays, loss, prediction))]).all()
        reasons = [~finite, ~in_support, ~proper]
        codes = [Status.NOT_FINITE, Status.OUT_OF_SUPPORT, Status.IMPROPER]
        status = jnp.select(reasons, [jnp.int32(c) for c in codes], jnp.int32(Status.OK))
        good = (status == Status.OK) & (place < count)
        arrays = jax.tree.map(lambda new, old: jnp.where(good, new, old), arrays, state.arrays)
        info = Info(jnp.where(good, prediction, 0.0), jnp.where(good, loss, 0.0), status)
        return State(arrays, state.rows + good.astype(state.rows.dtype)), info

    x, y = jnp.asarray(x), jnp.asarray(y)
    return lax.scan(one, state, (x, y.astype(x.dtype), jnp.arange(x.shape[0])))


def refuse_options(options: Mapping[str, Any], accepted: str = "") -> None:
    """Raises for arguments of ``init`` that an algorithm does not have.

    Args:
        options: The arguments that nothing has used.
        accepted: The argument that the algorithm does have, if there is one.
    """
    if options:
        allowed = f"only {accepted}=" if accepted else "nothing"
        raise TypeError(f"init takes {allowed} besides the data here, and not {', '.join(options)}: leave it out.")


def positive(**settings: float) -> None:
    """Raises for settings that are not positive numbers."""
    for name, value in settings.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0; it is {value!r}.")


def not_negative(**settings: float) -> None:
    """Raises for settings below 0."""
    for name, value in settings.items():
        if not value >= 0:
            raise ValueError(f"{name} must not be below 0; it is {value!r}.")


def _floating(x: ArrayLike) -> np.dtype:
    """The data type to compute in: that of x if it is floating, else JAX's default."""
    dtype = getattr(x, "dtype", None)
    floating = dtype if dtype is not None and jnp.issubdtype(dtype, jnp.floating) else float
    return np.dtype(jax.dtypes.canonicalize_dtype(floating))


def _no_rows(dtype: np.dtype) -> Info:
    return Info(np.zeros(0, dtype), np.zeros(0, dtype), np.zeros(0, np.int32))
