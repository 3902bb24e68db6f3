"""The loop that all baselines share: rows in order through one `lax.scan`, refused rows left out and counted."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from adfpp.engine.status import RowInfo, Status
from adfpp.learn.stream import Interrupted, Log, interruptible, padded, progress, stretches, suitable_chunk


class State(NamedTuple):
    """What a baseline keeps between rows.

    Attributes:
        kept: The algorithm's own arrays, a pytree.
        rows: ``()`` rows learned so far; refused ones are not counted.
    """

    kept: Any
    rows: jax.Array


class Info(NamedTuple):
    """What became of each row, ``(n,)`` each; 0 in the first two for a refused row.

    Attributes:
        prediction: What was predicted before the row was learned: the value, or for labels the field, whose sign
            tells the label.
        loss: The algorithm's own loss of that prediction, which its class names.
        status: ``adfpp.Status`` code.
    """

    prediction: Any
    loss: Any
    status: Any


class Result(NamedTuple):
    """What ``run`` gives back.

    Attributes:
        state: The state reached.
        info: What became of the rows, of NumPy arrays.
    """

    state: State
    info: Info


class Estimate(NamedTuple):
    """What a learner says of the weights.

    Attributes:
        weights: Their values, or the mean of the belief.
        sd: ``()`` of each in a spherical belief; None for a point.
        direction: Whether their length says nothing.
    """

    weights: Any
    sd: Any = None
    direction: bool = False


class Learner(ABC):
    """One online algorithm: a frozen dataclass of its settings, with the arrays that it learns kept in a ``State``.

    An algorithm is what it begins with, what it predicts, and one step; `init`, `update` and `run` are the same for
    all. Settings are static: a learner with other settings is compiled anew.
    """

    labels: ClassVar[bool] = True  # whether y is a label in {0, 1}, given to `step` as a sign

    @abstractmethod
    def begin(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, **given: Any) -> Any:
        """What is kept before any row.

        Args:
            rng_key: Key, for algorithms that start at random.
            shape: Of a row's x.
            dtype: Of what is kept.
            **given: What the caller of ``init`` gave besides.
        """

    @abstractmethod
    def output(self, kept: Any, row: jax.Array) -> jax.Array:
        """``()`` the prediction for a row."""

    @abstractmethod
    def step(self, kept: Any, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[Any, jax.Array]:
        """Learns one row.

        Args:
            kept: What is kept.
            row: The row's x.
            target: ``()`` sign of the label, or the value.
            count: ``()`` the row's number among those learned, from 1.

        Returns:
            What is kept now, and the loss before, ``()``.
        """

    @abstractmethod
    def estimate(self, kept: Any) -> Estimate:
        """What is said of the weights.

        Args:
            kept: What is kept.
        """

    def compared(
        self,
        name: str,
        program: Any,
        rng_key: jax.Array,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        num_samples: int,
    ) -> Any:
        """Runs the learner on the rows of a model, for ``adfpp.compare``."""
        from adfpp.papers.baselines.fits import fit_learner

        return fit_learner(name, self, program, rng_key, args, kwargs, num_samples)

    def expected(self, kept: Any) -> tuple[int, ...] | None:
        """Shape that a row's x must have; None if any will do."""
        return None

    def begun(self, **given: Any) -> "Learner":
        """The same learner with what ``init`` must be given, e.g. ``teacher=``; `adfpp.compare` gives nothing.

        Args:
            **given: What ``init`` takes besides the rows.
        """
        return _Begun(self, given)

    def init(self, rng_key: jax.Array, x: Any, y: Any = None, **given: Any) -> State:
        """The state before any row. Shape and dtype only are read from the data.

        Args:
            rng_key: Key, for algorithms that start at random.
            x: ``(n, ...)`` rows.
            y: Not looked at.
            **given: What else the algorithm starts from, e.g. ``weights=``.
        """
        kept = self.begin(rng_key, tuple(np.shape(x)[1:]), _floating(x), **given)
        return State(kept, jnp.zeros((), int))

    def update(self, state: State, x: Any, y: Any = None) -> tuple[State, Info]:
        """Learns some rows, in order. It can be used inside ``jax.jit``, ``vmap`` and ``scan``.

        Args:
            state: The state before.
            x: ``(n, ...)`` rows.
            y: ``(n,)`` labels in {0, 1} or values.

        Returns:
            ``(state, info)``.
        """
        self._check(state, x, y)
        return _fold(self, state, jnp.asarray(x, _floating(x)), jnp.asarray(y), np.shape(x)[0])

    def predict(self, state: State, x: Any) -> jax.Array:
        """``(n,)`` what is predicted for new rows ``x``: values, or for labels the fields.

        Args:
            state: The state reached.
            x: ``(n, ...)`` rows.
        """
        return jax.vmap(partial(self.output, state.kept))(jnp.asarray(x, _floating(x)))

    def run(
        self,
        rng_key: jax.Array,
        x: Any,
        y: Any = None,
        state: State | None = None,
        progress_bar: bool = True,
        chunk_size: int | None = None,
        **given: Any,
    ) -> Result:
        """Learns a whole stream, chunk by chunk. Refused rows are counted in one warning at the end.

        Interrupted (Ctrl-C), it warns how far it came and gives back what was reached.

        Args:
            rng_key: Key, for ``init``.
            x: ``(n, ...)`` rows.
            y: ``(n,)`` labels in {0, 1} or values.
            state: Where to go on from.
            progress_bar: Whether to show one.
            chunk_size: Rows a chunk; by default a power of two that fits 64 MB.
            **given: What ``init`` takes besides, if there is no ``state``.
        """
        if isinstance(x, Tracer) or isinstance(y, Tracer):
            raise TypeError("run reads its data chunk by chunk; inside jit, vmap or scan use init and update.")
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1; it is {chunk_size}.")
        if state is not None and given:
            raise ValueError(f"Give either state (to go on) or {', '.join(given)} (to begin), not both.")
        reached = self.init(rng_key, x, **given) if state is None else state
        self._check(reached, x, y)
        dtype, total = _floating(x), np.shape(x)[0]
        x, y = np.asarray(x), np.asarray(y)
        chunk = chunk_size or suitable_chunk([x, y], total)
        log, parts = Log("totals", total, None), []
        with progress(total, progress_bar, "mean loss {:.3g}") as bar, contextlib.suppress(Interrupted):
            for start, stop in stretches(total, chunk, None):
                with interruptible(start, total):
                    count = stop - start
                    rows = padded(x[start:stop].astype(dtype), chunk)
                    new, now = _fold(self, reached, rows, padded(y[start:stop], chunk), count)
                    now = Info(*(np.asarray(a)[:count] for a in now))
                reached = new
                parts.append(now)
                log.add(RowInfo(now.loss, now.status, np.zeros(count)), start)
                bar(count, log)
        log.warn()
        return Result(
            reached, Info(*(np.concatenate(p) for p in zip(*parts, strict=True))) if parts else _nothing(dtype)
        )

    def _check(self, state: State, x: Any, y: Any) -> None:
        name = type(self).__name__
        if y is None:
            raise ValueError(
                f"{name} learns from labelled rows: give y, {'labels in {0, 1}' * self.labels or 'values'}."
            )
        if not np.ndim(x) or not np.shape(x)[0]:
            raise ValueError(f"No rows: x has shape {np.shape(x)}; it must be (n, ...) with n at least 1.")
        if np.shape(y) != np.shape(x)[:1]:
            raise ValueError(f"y has shape {np.shape(y)} and x {np.shape(x)}; y must be {np.shape(x)[:1]}, one a row.")
        shape = self.expected(state.kept)
        if shape is not None and np.shape(x)[1:] != shape:
            raise ValueError(f"x has rows of shape {np.shape(x)[1:]}; {name}'s state was begun for rows of {shape}.")


@dataclass(frozen=True, eq=False)  # what is given are arrays, which have no hash
class _Begun(Learner):
    """A learner whose ``init`` is given something every time."""

    learner: Learner
    given: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", self.learner.labels)

    def begin(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, **given: Any) -> Any:
        return self.learner.begin(rng_key, shape, dtype, **{**self.given, **given})

    def output(self, kept: Any, row: jax.Array) -> jax.Array:
        return self.learner.output(kept, row)

    def step(self, kept: Any, row: jax.Array, target: jax.Array, count: jax.Array) -> tuple[Any, jax.Array]:
        return self.learner.step(kept, row, target, count)

    def estimate(self, kept: Any) -> Estimate:
        return self.learner.estimate(kept)

    def expected(self, kept: Any) -> tuple[int, ...] | None:
        return self.learner.expected(kept)


@partial(jax.jit, static_argnums=0)
def _fold(learner: Learner, state: State, x: jax.Array, y: jax.Array, count: Any) -> tuple[State, Info]:
    """The first ``count`` rows of a batch through the learner's step."""

    def one(state: State, now: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[State, Info]:
        row, target, place = now
        finite = jnp.isfinite(row).all() & jnp.isfinite(target)
        known = (target == 0) | (target == 1) if learner.labels else jnp.bool_(True)
        if learner.labels:
            target = 2.0 * target - 1.0
        prediction = learner.output(state.kept, row)
        kept, loss = learner.step(state.kept, row, target, (state.rows + 1).astype(x.dtype))
        proper = jnp.stack([jnp.isfinite(a).all() for a in jax.tree.leaves((kept, loss, prediction))]).all()
        reasons = [~finite, ~known, ~proper]
        codes = [Status.NOT_FINITE, Status.OUT_OF_SUPPORT, Status.IMPROPER]
        status = jnp.select(reasons, [jnp.int32(c) for c in codes], jnp.int32(Status.OK))
        good = (status == Status.OK) & (place < count)
        kept = jax.tree.map(lambda new, old: jnp.where(good, new, old), kept, state.kept)
        info = Info(jnp.where(good, prediction, 0.0), jnp.where(good, loss, 0.0), status)
        return State(kept, state.rows + good.astype(state.rows.dtype)), info

    return lax.scan(one, state, (x, y.astype(x.dtype), jnp.arange(x.shape[0])))


def start_weights(given: Any, shape: tuple[int, ...], dtype: Any, otherwise: Callable[[], jax.Array]) -> jax.Array:
    """The ``(N,)`` weights that a learner of a linear field starts from.

    Args:
        given: The caller's, or None.
        shape: Of a row's x.
        dtype: Of the weights.
        otherwise: Makes them where none were given.
    """
    if len(shape) != 1:
        raise ValueError(f"x has rows of shape {shape}; a linear field takes x of shape (n, N).")
    weights = otherwise() if given is None else jnp.asarray(given)
    if weights.shape != shape:
        raise ValueError(f"weights have shape {weights.shape}; the rows of x have shape {shape}: give as many.")
    return weights.astype(dtype)


def direction(weights: jax.Array) -> jax.Array:
    """Weights of length 1, of which the length given does not count."""
    length = jnp.linalg.norm(weights)
    if not isinstance(length, Tracer) and not 0 < length < np.inf:
        raise ValueError(f"weights of length {length} have no direction: give finite ones that are not all 0.")
    return weights / length


def positive(**settings: float) -> None:
    """Refuses settings that are not positive numbers."""
    for name, value in settings.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0; it is {value!r}.")


def _floating(x: Any) -> Any:
    """The dtype to compute in: x's own if it is floating."""
    dtype = getattr(x, "dtype", None)
    own = dtype if dtype is not None and jnp.issubdtype(dtype, jnp.floating) else float
    return jax.dtypes.canonicalize_dtype(own)


def _nothing(dtype: Any) -> Info:
    return Info(np.zeros(0, dtype), np.zeros(0, dtype), np.zeros(0, np.int32))
