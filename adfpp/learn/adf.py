"""Assumed-density filtering: each row once updates the belief by Bayes' rule, and the result is projected.

The projection gives the member of the family that is nearest to the updated belief.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.core import Tracer

from adfpp.engine.dynamics import Dynamics, Places, Static
from adfpp.engine.families import Belief, Exchange, Family, Gaussian
from adfpp.engine.kernel import Draws, Moving, visit_prior, visit_rows
from adfpp.engine.status import RowInfo, Status, is_refused
from adfpp.engine.tilt import Moments
from adfpp.learn.explain import Explanation
from adfpp.learn.keys import PickledByFields, checked_key
from adfpp.learn.learner import Learner, checked_prior, refuse_tracers, state_of
from adfpp.learn.posterior import GivenPrior, Posterior
from adfpp.learn.results import Result, Run
from adfpp.learn.session import Call
from adfpp.learn.stream import (
    DataArray,
    Interrupted,
    Log,
    Recorder,
    interruptible,
    padded,
    progress,
    stretches,
    suitable_chunk,
    warn_of_priors,
)
from adfpp.model import Model, ModelError, Program, local_posterior
from adfpp.model.arguments import signature_of
from adfpp.model.environment import Same

ADFInfo = RowInfo
ADFResult = Result


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("belief", "rows", "clock", "setup", "rng_key", "priors", "prior_status"),
    meta_fields=("fingerprint",),
)
@dataclass(frozen=True)
class ADFState(PickledByFields):
    """The state of an online learner: a pytree of arrays whose size does not depend on the length of the stream.

    Attributes:
        belief: The approximate posterior of the flat unconstrained θ.
        rows: ``()`` number of rows absorbed so far.
        clock: ``()`` time since the belief was last moved (always 0 without dynamics).
        setup: The arrays that the dynamics needs.
        rng_key: The key of moment rules that draw random points. The points of a row follow from this key and the
            number of rows absorbed before, so that the same state and rows give the same belief, in one batch or many.
        priors: ``{key: (E, numbers)}`` site approximations of the prior factors, which belong to latents whose prior
            depends on other latents. These factors are visited again at the end of every batch, so that the scales of
            groups are learned on a stream.
        prior_status: ``{key: ()}`` the ``Status`` code of each of these factors at its last visit.
        fingerprint: Identifies the model, family, dtype and latents that the state belongs to. It is not an array: JAX
            treats it as part of the state's structure.
    """

    belief: Any
    rows: jax.Array
    clock: jax.Array
    setup: Any
    rng_key: jax.Array
    priors: dict[str, jax.Array]
    prior_status: dict[str, jax.Array]
    fingerprint: str | None = None

    def _replace(self, **changes: object) -> "ADFState":
        """Returns the state with other values in some fields."""
        return replace(self, **changes)


class RowRefused(ValueError):
    """Raised with ``strict=True`` when a row was refused.

    Attributes:
        row: The first refused row, counted from the first row of the call.
        status: The reason.
        result: The state and info after the rows so far, without the refused rows.
    """

    def __init__(self, row: int, status: Status, result: ADFResult) -> None:
        """Makes a message that names the row and the reason."""
        super().__init__(f"row {row}: {status.name}, {status.advice}")
        self.row, self.status, self.result = row, status, result


_OFTEN = 8  # calls with the same odd length after which it is worth compiling a function that cuts the info to it


class ADF(Learner):
    """Online Bayesian inference by assumed-density filtering ("posterior as prior", one row at a time).

    Example:
        ::

            adf = adfpp.ADF(model)
            state = adf.init(jax.random.key(0), X, y=y)
            state, info = adf.update(state, X[:100], y=y[:100])
            adf.get_posterior(state).summary()

    Args:
        model: An ordinary NumPyro model, the callable that NUTS takes.
        family: "full", "diagonal" or "spherical" Gaussian in unconstrained space; or ``{latent: family}``, where a
            latent may also be "bernoulli", "categorical", "beta", "gamma", "inverse_gamma" or "dirichlet" in its native
            space. Discrete latents are always Bernoulli or categorical.
        moments: "auto", "accurate", "quadrature", "montecarlo", or an ``adfpp.Moments``.
        dynamics: How θ moves between rows: ``adfpp.RandomWalk``, ``Discount``, ``OrnsteinUhlenbeck``; it does not move
            when None.
        rows: Names of the arguments that carry rows. When None, they are derived from the model; when empty, all data
            of a call are one row.
    """

    def __init__(
        self,
        model: Model,
        family: str | Family | Mapping[str, str] = "full",
        moments: str | Moments = "auto",
        dynamics: Dynamics | None = None,
        rows: Sequence[str] | None = None,
    ) -> None:
        """Checks the options. The model is read at the first call with data, which shows the shapes."""
        super().__init__(model, family, moments, rows, revisited=False)
        self.dynamics = dynamics if dynamics is not None else Static()
        self._takes_dt = "dt" in signature_of(model).parameters
        self._lengths: Counter[int] = Counter()
        self.motion = Same(self.dynamics)

    def _options(self) -> dict[str, object]:
        return {"family": self.family, "moments": self.moments, "dynamics": self.dynamics, "rows": self.rows}

    # ------------------------------------------------------------------------------------------ reading

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Describes how the model is understood: latents, factors with their fields and moment rules, rows, constants.

        Args:
            *args: The model's arguments.
            **kwargs: The model's keyword arguments; also ``prior``, as in ``init``.
        """
        prior = kwargs.pop("prior", None)
        return self._explain(prior, args, self.without_dt(kwargs)[0])

    def init(self, rng_key: jax.Array, *args: Any, prior: GivenPrior = None, **kwargs: Any) -> ADFState:
        """Makes the state before any row. Only the shapes of the data are used.

        Args:
            rng_key: Key (or a whole number), stored in the state for moment rules that draw random points.
            *args: The model's arguments.
            prior: A ``Posterior`` that replaces the model's prior (posterior as prior), of this model or of another
                with the same latents; or ``{latent: distribution}``, which replaces the priors of some latents.
            **kwargs: The model's keyword arguments.
        """
        key = checked_key(rng_key, "adf.init")
        call = self.resolve(args, self.without_dt(kwargs)[0])
        program = call.program
        self.session.check(call)
        self._refuse_moving(program)
        _, (belief, priors) = self.session.start(call, checked_prior(prior), revisited=False)
        setup: Any = ()
        if not isinstance(self.dynamics, Static):
            priors = {}  # the prior describes θ at the first row, and not at later ones
            places = [Places(v.name, v.where, v.unconstrained_shape) for v in program.latents]
            setup = self.dynamics.setup(cast(Gaussian, program.family), places, belief)
        self.session.latest = program
        zero = jnp.zeros((), program.dtype)
        statuses = {key: jnp.zeros((), jnp.int32) for key in priors}
        rows = jnp.zeros((), int)
        return ADFState(belief, rows, zero, setup, jnp.array(key), priors, statuses, program.fingerprint)

    def _refuse_moving(self, program: Program) -> None:
        if not program.family.gaussian and not isinstance(self.dynamics, Static):
            names = ", ".join(v.name for v in program.latents if v.native is not None) or "the blocks"
            raise ModelError(
                f"dynamics={type(self.dynamics).__name__} moves Gaussian beliefs; this belief is a product ({names} in "
                "native space). Store all latents as one Gaussian, family='full', or leave the dynamics out."
            )

    # ------------------------------------------------------------------------------------------ updating

    def update(
        self, state: ADFState | ADFResult, *args: Any, strict: bool = False, **kwargs: Any
    ) -> tuple[ADFState, ADFInfo]:
        """Updates a state with some rows, in order.

        It can be used inside ``jax.jit``, ``vmap`` and ``scan``. It waits for the result only if ``strict``, and
        in the first few calls with a length that is not a power of two, whose info comes back as NumPy arrays.

        Args:
            state: The state before these rows, or a result that contains it.
            *args: The model's arguments, any number of rows.
            strict: Whether to raise ``RowRefused`` at the first row that was refused.
            **kwargs: The model's keyword arguments; also ``dt``, ``(n,)`` time since the row before, for dynamics.

        Returns:
            ``(state, info)`` with ``info.log_z``, ``info.status`` and ``info.error`` of shape ``(n,)``.
        """
        state = cast(ADFState, state_of(state, ADFState))
        gaps = None
        if "dt" in kwargs:
            kwargs, gaps = self.without_dt(kwargs)
        call = self.resolve(args, kwargs, state)
        self.session.refuse_foreign(state, call.program)
        if not call.entry.checked and not isinstance(state.belief.mean, Tracer):
            self.session.check(call)
        count = call.rows[0].shape[0]
        state, info = self._absorb(call, state, call.rows, gaps, count)
        if strict:
            _raise_first(info.status, ADFResult(state, info))
        return state, info

    def without_dt(self, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], npt.ArrayLike | None]:
        """Returns the model's keyword arguments, and the time gaps apart."""
        if "dt" not in kwargs:
            return dict(kwargs), None
        gaps = kwargs["dt"]
        if isinstance(self.dynamics, Static) and not self._takes_dt:
            raise ValueError("dt has no effect without dynamics: pass dynamics=adfpp.RandomWalk(...), say, to ADF.")
        if not self._takes_dt:
            kwargs = {k: v for k, v in kwargs.items() if k != "dt"}
        return dict(kwargs), gaps

    def _absorb(
        self, call: Call, state: ADFState, rows: list[DataArray], gaps: Any, count: int, longest: int = 0
    ) -> tuple[ADFState, ADFInfo]:
        """Pads the rows to a power of two, absorbs them, and cuts the info to their number.

        Padding costs memory alone. All chunks of a stream are padded like its ``longest``, because another length would
        have to be compiled.
        """
        if gaps is not None:
            gaps = checked_gaps(gaps, count, state.clock.dtype)
        absorb, shared = call.program.compiled(_absorb, self.motion), call.shared
        length = 1 << (max(count, longest) - 1).bit_length()
        if length == count or any(isinstance(a, Tracer) for a in (*rows, state.belief.mean)):
            return absorb(state, rows, shared, gaps, count)
        rows = [padded(a, length) for a in rows]
        state, info = absorb(state, rows, shared, None if gaps is None else padded(gaps, length), count)
        self._lengths[count] += 1
        if self._lengths[count] >= _OFTEN:
            return state, _trim(info, count)
        # compiling a slice for every length that a stream may have would cost more than waiting for the result
        return state, RowInfo(*(np.asarray(a)[:count] for a in info))

    def run(
        self,
        rng_key: jax.Array,
        *args: Any,
        state: ADFState | ADFResult | None = None,
        prior: GivenPrior = None,
        shuffle: bool = False,
        progress_bar: bool = True,
        info: str | int = "all",
        chunk_size: int | None = None,
        strict: bool = False,
        snapshots: int | None = None,
        **kwargs: Any,
    ) -> ADFResult:
        """Absorbs a whole stream, chunk by chunk, with a progress bar.

        When it is interrupted (Ctrl-C), it warns how many rows were absorbed, and returns the result so far.

        Args:
            rng_key: Key, for ``init`` and for shuffling.
            *args: The model's arguments: the whole stream. NumPy memory maps are read a chunk at a time.
            state: The state or result to continue from; the prior when None.
            prior: As in ``init``.
            shuffle: Whether to absorb the rows in random order. Do so for data sets that are not time series: the
                result of one pass over rows that are sorted by label or group is far from the posterior.
            progress_bar: Whether to show a progress bar.
            info: "all" for the info of all rows, an integer k for that of every k-th row, or "totals".
            chunk_size: Number of rows in a chunk; by default a power of two that fits 64 MB.
            strict: Whether to raise ``RowRefused`` at the first chunk with a refused row.
            snapshots: A number of rows. The belief after every so many rows, and at the end, is recorded in
                ``result.trajectory``.
            **kwargs: The model's keyword arguments; also ``dt``.

        Returns:
            ``ADFResult(state, info)``: info is ``ADFInfo`` of NumPy arrays in the order of the data ("all"), of every
            k-th row absorbed, or ``ADFTotals``. The result also has ``posterior`` and ``trajectory``, and a method
            ``again`` that repeats the run.
        """
        if info not in ("all", "totals") and not (isinstance(info, int) and info >= 1):
            raise ValueError(f'info must be "all", "totals" or a whole number of rows; it is {info!r}.')
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1; it is {chunk_size}.")
        if snapshots is not None and snapshots < 1:
            raise ValueError(f"snapshots must be a number of rows, at least 1; it is {snapshots}.")
        refuse_tracers("adf.run", "Use adf.init and adf.update there.", rng_key, args, kwargs, state)
        rng_key = checked_key(rng_key, "adf.run")
        if state is not None:
            state = cast(ADFState, state_of(state, ADFState))
        options = {"state": state, "prior": prior, "shuffle": shuffle, "chunk_size": chunk_size}
        kwargs, gaps = self.without_dt(kwargs)
        init_key, shuffle_key = jax.random.split(rng_key)
        if state is None:
            state = self.init(init_key, *args, prior=prior, **kwargs)
        elif prior is not None:
            raise ValueError("Give either state (to continue) or prior (to start), not both.")
        call = self.resolve(args, kwargs, state)
        program, rows = call.program, call.rows
        self.session.refuse_foreign(state, program)
        self.session.check(call)
        total = rows[0].shape[0]
        if gaps is not None:
            gaps = checked_gaps(gaps, total, state.clock.dtype)
        order = np.asarray(jax.random.permutation(shuffle_key, total)) if shuffle else None
        chunk = chunk_size or suitable_chunk(rows, total)
        longest = min(chunk, total, snapshots or total)
        log = Log(info, total, order)
        recorder = Recorder(snapshots) if snapshots is not None else None
        start = prior
        if options["state"] is not None or isinstance(prior, Posterior):
            start = Posterior(program, program.family, state.belief)

        def reached(state: ADFState, seen: int) -> ADFResult:
            trajectory = recorder.trajectory(program.size) if recorder is not None else None
            posterior = Posterior(program, program.family, state.belief)
            run = Run(self, posterior, start, trajectory, seen, order, rng_key, options)
            return ADFResult(state, log.info(seen), run)

        with progress(total, progress_bar) as bar, contextlib.suppress(Interrupted):
            for first, stop in stretches(total, chunk, snapshots):
                some = slice(first, stop) if order is None else order[first:stop]
                taken = [a[some] for a in rows]
                with interruptible(first, total):
                    own_gaps = None if gaps is None else gaps[some]
                    new, now = self._absorb(call, state, taken, own_gaps, stop - first, longest)
                    now = jax.device_get(now)
                state = new
                log.add(now, first)
                if recorder is not None:
                    recorder.add(now, stop, total, partial(_moments, program, state.belief))
                if strict and is_refused(now.status).any():
                    row = int(np.argmax(is_refused(now.status)))
                    where = first + row if order is None else int(order[first + row])
                    raise RowRefused(where, Status(int(now.status[row])), reached(state, stop))
                bar(stop - first, log)
        result = reached(state, log.seen)
        log.warn()
        self.session.check_at(call, result.state.belief)
        warn_of_priors(program.latents_of_priors(result.state.prior_status), stacklevel=3)
        return result

    def get_local(self, state: ADFState | ADFResult, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Computes the posteriors of the local latents of new rows, given what the state has learned.

        Args:
            state: A state or result. Do not pass rows that it has absorbed already: they would be counted twice.
                (``EP`` has their site approximations, and removes them first.)
            *args: The model's arguments.
            **kwargs: The model's keyword arguments.

        Returns:
            For a discrete latent ``{latent: probabilities (n, ..., K)}`` over the values of its support, for a
            continuous one ``{latent: (mean, sd)}``, each ``(n, ...)``, in unconstrained space.
        """
        state = cast(ADFState, state_of(state, ADFState))
        belief = state.belief
        call = self.resolve(args, self.without_dt(kwargs)[0], state)
        self.session.refuse_foreign(state, call.program)
        return local_posterior(call.program, belief.mean, belief.scale, call.rows, call.shared)


def _absorb(
    program: Program,
    dynamics: Same,
    state: ADFState,
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
    gaps: jax.Array | None,
    count: jax.Array,
) -> tuple[ADFState, ADFInfo]:
    """One compiled call: visits the rows, then the prior factors once more."""
    rows = [jnp.asarray(a) for a in rows]
    belief, moving, _, info = visit_rows(
        program.family,
        dynamics.value,
        program.factors,
        state.belief,
        Moving(state.clock, state.rows > 0, state.setup),
        rows,
        shared,
        gaps,
        jnp.asarray(count),
        draws=Draws(state.rng_key, state.rows),
    )
    there = jnp.arange(rows[0].shape[0]) < count
    absorbed = jnp.sum(there & ~is_refused(info.status)).astype(state.rows.dtype)
    priors, statuses = state.priors, state.prior_status
    if priors:
        groups = {g.key: g.factors for some in program.prior_factors.values() for g in some if g.key in priors}
        one = jnp.ones((), belief.mean.dtype)
        inputs = program.prior_inputs(shared)
        belief, priors, infos = visit_prior(program.family, groups, belief, priors, inputs, Exchange(one, one))
        statuses = {key: now.status.astype(jnp.int32) for key, now in infos.items()}
    after = state._replace(
        belief=belief, rows=state.rows + absorbed, clock=moving.clock, priors=priors, prior_status=statuses
    )
    return after, info


def _moments(program: Program, belief: Belief) -> tuple[np.ndarray, np.ndarray]:
    return jax.device_get((belief.mean, program.family.spread(belief, program.size)))


@partial(jax.jit, static_argnums=1)
def _trim(info: ADFInfo, count: int) -> ADFInfo:
    return jax.tree.map(lambda a: a[:count], info)


def checked_gaps(gaps: npt.ArrayLike, count: int, dtype: np.dtype) -> Any:
    """Checks that ``(count,)`` times since the row before are finite and not negative."""
    if isinstance(gaps, Tracer):
        return jnp.broadcast_to(gaps, (count,)).astype(dtype)
    gaps = np.broadcast_to(np.asarray(gaps, dtype), (count,))
    if not np.isfinite(gaps).all() or (gaps < 0).any():
        raise ValueError("dt must be finite and not negative: the time since the row before.")
    return gaps


def _raise_first(status: DataArray, result: ADFResult) -> None:
    codes = np.asarray(status)
    if is_refused(codes).any():
        row = int(np.argmax(is_refused(codes)))
        raise RowRefused(row, Status(int(codes[row])), result)
