"""Assumed-density filtering: update by Bayes' rule, project onto the family, once a row."""

import contextlib
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from adfpp.engine.dynamics import Dynamics, Places, Static
from adfpp.engine.families import Belief, Family, Gaussian, Product, asked_family
from adfpp.engine.kernel import Draws, Exchange, Moving, fold_prior, fold_rows
from adfpp.engine.status import RowInfo, Status
from adfpp.engine.tilt import Moments, moments_named
from adfpp.learn.explain import Explanation, explanation
from adfpp.learn.posterior import Posterior
from adfpp.learn.results import Result, Run, remembering
from adfpp.learn.session import Calls, Plan
from adfpp.learn.stream import (
    Interrupted,
    Log,
    Recorder,
    interruptible,
    padded,
    progress,
    stretches,
    suitable_chunk,
)
from adfpp.model import ModelError, PriorGroup, Program, local_posterior

ADFInfo = RowInfo
ADFResult = Result


class ADFState(NamedTuple):
    """What an online learner keeps: a pytree of arrays, whatever the length of the stream.

    Attributes:
        belief: The approximate posterior of the flat unconstrained θ.
        rows: ``()`` rows absorbed so far.
        clock: ``()`` time since the belief was last moved (always 0 without dynamics).
        setup: What the dynamics keeps.
        rng_key: For moment rules that draw: a row's points come from this key and the number of rows absorbed before,
            so that the same state and rows give the same belief, in one batch or in many.
        priors: ``{key: (E, numbers)}`` sites of the prior's factors, of latent sites whose prior depends on others:
            they are visited again at the end of every batch, so that the scales of groups learn on a stream.
    """

    belief: Any
    rows: jax.Array
    clock: jax.Array
    setup: Any
    rng_key: jax.Array
    priors: dict[str, jax.Array]


class RowRefused(ValueError):
    """Raised with ``strict=True`` when a row was refused.

    Attributes:
        row: The first refused row, counted from the first row of the call.
        status: Why.
        result: The state and info reached, with the refused rows left out.
    """

    def __init__(self, row: int, status: Status, result: ADFResult) -> None:
        """Names the row and the reason."""
        super().__init__(f"row {row}: {status.name}, {status.advice}")
        self.row, self.status, self.result = row, status, result


_RESERVED = frozenset("rng_key strict shuffle progress_bar info state prior chunk_size snapshots".split())
_OFTEN = 8  # calls with the same odd length after which its trimming is worth compiling


class ADF:
    """Online Bayesian inference by assumed-density filtering ("posterior as prior", one row at a time).

    Example:
        ::

            adf = adfpp.ADF(model)
            state = adf.init(jax.random.key(0), X, y=y)
            state, info = adf.update(state, X[:100], y=y[:100])
            adf.get_posterior(state).summary()

    Args:
        model: An ordinary NumPyro model, the callable that NUTS takes.
        family: "full", "diagonal" or "spherical" Gaussian in unconstrained space; or ``{site: family}``, where a site
            may also be "bernoulli", "categorical", "beta", "gamma", "inverse_gamma" or "dirichlet" in its own space.
            Discrete sites are Bernoulli or categorical by themselves.
        moments: "auto", "accurate", "quadrature", "montecarlo", or an ``adfpp.Moments``.
        dynamics: How θ moves between rows: ``adfpp.RandomWalk``, ``Discount``, ``OrnsteinUhlenbeck``; it stays put
            when None.
        rows: Names of the arguments that carry rows; found from the model when None.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        family: str | Family | Mapping[str, str] = "full",
        moments: str | Moments = "auto",
        dynamics: Dynamics | None = None,
        rows: Sequence[str] | None = None,
    ) -> None:
        """Checks the options; the model is read when data first shows its shapes."""
        if not callable(model):
            raise TypeError(f"model must be a callable with numpyro.sample statements; it is {model!r}.")
        self.model = model
        self.family = asked_family(family)
        self.moments = moments_named(moments)
        self.dynamics = dynamics if dynamics is not None else Static()
        self.rows = (rows,) if isinstance(rows, str) else tuple(rows) if rows is not None else None
        parameters = inspect.signature(model).parameters
        clashes = sorted(_RESERVED & set(parameters))
        if clashes:
            raise ValueError(f"The model's argument {clashes[0]!r} is also an option of ADF's methods; rename it.")
        self._takes_dt = "dt" in parameters
        self.calls = Calls(model, self.rows, self.moments, self.family, self._compiled)
        self._lengths: Counter[int] = Counter()

    # ------------------------------------------------------------------------------------------ reading

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """How the model is understood: sites, factors with their fields and moment rules, rows and constants.

        Args:
            *args: The model's arguments.
            **kwargs: The model's keyword arguments.
        """
        prior = kwargs.pop("prior", None)
        kwargs = self.without_dt(kwargs)[0]
        plan, rows, shared = self.calls.planned(args, kwargs)
        self.calls.check(plan.program, rows, shared)
        found = self.calls.prior(plan.program, rows, shared, prior, revisited=False)
        return explanation(plan.program, found)

    def init(self, rng_key: jax.Array, *args: Any, prior: Any = None, **kwargs: Any) -> ADFState:
        """The state before any row. Shapes only are read from the data.

        Args:
            rng_key: Key, kept in the state for moment rules that draw.
            *args: The model's arguments.
            prior: A ``Posterior`` to start from instead of the model's prior (posterior as prior), of this model or
                another with the same latent sites; or ``{site: distribution}`` in the place of some sites' priors.
            **kwargs: The model's keyword arguments.
        """
        kwargs = self.without_dt(kwargs)[0]
        if prior is not None and not isinstance(prior, Posterior | Mapping):
            raise TypeError(
                f"prior must be a Posterior or a dict {{site: distribution}}; it is a {type(prior).__name__}."
            )
        plan, rows, shared = self.calls.planned(args, kwargs)
        program = plan.program
        self.calls.check(program, rows, shared)
        self._refuse_moving(program)
        _, (belief, priors) = self.calls.start(program, rows, shared, prior, revisited=False)
        if not isinstance(self.dynamics, Static):
            priors = {}  # what the prior says of θ at the beginning, it does not say of θ later
        self.calls.latest = program
        places = [Places(s.name, s.where, s.unconstrained_shape) for s in program.latents]
        setup = self.dynamics.setup(cast(Gaussian, program.family), places, belief)
        return ADFState(belief, jnp.zeros((), int), jnp.zeros((), program.dtype), setup, rng_key, priors)

    def _refuse_moving(self, program: Program) -> None:
        if isinstance(program.family, Product) and not isinstance(self.dynamics, Static):
            names = ", ".join(s.name for s in program.latents if s.native is not None) or "the blocks"
            raise ModelError(
                f"dynamics={type(self.dynamics).__name__} moves Gaussian beliefs; this is a product ({names} in "
                "its own space). Hold all sites as one Gaussian, family='full', or leave the dynamics out."
            )

    def _compiled(self, program: Program) -> Callable[..., Any]:
        """The program's fold, compiled for each length of batch."""
        return jax.jit(
            partial(_fold, program.family, self.dynamics, program, partial(self.calls.prior_groups, program))
        )

    # ------------------------------------------------------------------------------------------ folding

    def update(self, state: ADFState, *args: Any, strict: bool = False, **kwargs: Any) -> tuple[ADFState, ADFInfo]:
        """Folds some rows in, in order.

        It can be used inside ``jax.jit``, ``vmap`` and ``scan``. It waits for the result only if ``strict``, and
        in the first few calls with a length that is not a power of two, whose info comes back as NumPy arrays.

        Args:
            state: The state before.
            *args: The model's arguments, any number of rows.
            strict: Whether to raise ``RowRefused`` at the first row that was refused.
            **kwargs: The model's keyword arguments; also ``dt``, ``(n,)`` time since the row before, for dynamics.

        Returns:
            ``(state, info)`` with ``info.log_z``, ``info.status`` and ``info.error`` of shape ``(n,)``.
        """
        gaps = None
        if "dt" in kwargs:
            kwargs, gaps = self.without_dt(kwargs)
        plan, rows, shared = self.calls.planned(args, kwargs, going_on=True)
        self.calls.refuse_foreign(state.belief.mean.shape[-1], plan.program)
        if not isinstance(state.belief.mean, Tracer):
            self.calls.check(plan.program, rows, shared)
        count = rows[0].shape[0]
        state, info = self._fold(plan, state, rows, shared, gaps, count)
        if strict:
            _raise_first(info.status, ADFResult(state, info))
        return state, info

    def without_dt(self, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """The model's keyword arguments, and the time gaps."""
        if "dt" not in kwargs:
            return dict(kwargs), None
        gaps = kwargs["dt"]
        if isinstance(self.dynamics, Static) and not self._takes_dt:
            raise ValueError("dt has no effect without dynamics: pass dynamics=adfpp.RandomWalk(...), say, to ADF.")
        if not self._takes_dt:
            kwargs = {k: v for k, v in kwargs.items() if k != "dt"}
        return dict(kwargs), gaps

    def _fold(
        self, plan: Plan, state: ADFState, rows: list[Any], shared: list[Any], gaps: Any, count: int
    ) -> tuple[ADFState, ADFInfo]:
        """Pads to a power of two, folds, trims."""
        if gaps is not None:
            gaps = _checked_gaps(gaps, count, state.clock.dtype)
        length = 1 << (count - 1).bit_length()
        if length == count or any(isinstance(a, Tracer) for a in (*rows, state.belief.mean)):
            return plan.compiled(state, rows, shared, gaps, count)
        rows = [padded(a, length) for a in rows]
        state, info = plan.compiled(state, rows, shared, None if gaps is None else padded(gaps, length), count)
        self._lengths[count] += 1
        if self._lengths[count] >= _OFTEN:
            return state, _trim(info, count)
        # compiling a slice for every length a stream may come in would cost more than waiting
        return state, RowInfo(*(np.asarray(a)[:count] for a in info))

    def run(
        self,
        rng_key: jax.Array,
        *args: Any,
        state: ADFState | None = None,
        prior: Any = None,
        shuffle: bool = False,
        progress_bar: bool = True,
        info: str | int = "all",
        chunk_size: int | None = None,
        strict: bool = False,
        snapshots: int | None = None,
        **kwargs: Any,
    ) -> ADFResult:
        """Folds a whole stream, chunk by chunk, with a progress bar.

        Interrupted (Ctrl-C), it warns how far it came and gives back what was reached.

        Args:
            rng_key: Key, for ``init`` and for shuffling.
            *args: The model's arguments: the whole stream. NumPy memory maps are read a chunk at a time.
            state: Where to go on from; the prior when None.
            prior: As in ``init``.
            shuffle: Whether to fold the rows in random order. Do so for data sets that are not time series: one pass
                over rows sorted by label or group is badly off.
            progress_bar: Whether to show one.
            info: "all" rows' info, every k-th row's (an integer k), or "totals".
            chunk_size: Rows a chunk; by default a power of two that fits 64 MB.
            strict: Whether to raise ``RowRefused`` at the first chunk with a refused row.
            snapshots: Keeps the belief after every so many rows, and at the end, in ``result.trajectory``.
            **kwargs: The model's keyword arguments; also ``dt``.

        Returns:
            ``ADFResult(state, info)``: info is ``ADFInfo`` of NumPy arrays in the order of the data ("all"), of every
            k-th row folded, or ``ADFTotals``. The result also has ``posterior`` and ``trajectory``, and runs ``again``.
        """
        if info not in ("all", "totals") and not (isinstance(info, int) and info >= 1):
            raise ValueError(f'info must be "all", "totals" or a whole number of rows; it is {info!r}.')
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1; it is {chunk_size}.")
        if snapshots is not None and snapshots < 1:
            raise ValueError(f"snapshots must be a number of rows, at least 1; it is {snapshots}.")
        options = {"state": state, "prior": prior, "shuffle": shuffle, "chunk_size": chunk_size}
        kwargs, gaps = self.without_dt(kwargs)
        init_key, shuffle_key = jax.random.split(rng_key)
        if state is None:
            state = self.init(init_key, *args, prior=prior, **kwargs)
        elif prior is not None:
            raise ValueError("Give either state (to go on) or prior (to begin), not both.")
        plan, rows, shared = self.calls.planned(args, kwargs)
        self.calls.refuse_foreign(state.belief.mean.shape[-1], plan.program)
        self.calls.check(plan.program, rows, shared)
        total = rows[0].shape[0]
        if gaps is not None:
            gaps = _checked_gaps(gaps, total, state.clock.dtype)
        order = np.asarray(jax.random.permutation(shuffle_key, total)) if shuffle else None
        chunk = chunk_size or suitable_chunk(rows, total)
        log = Log(info, total, order)
        recorder = Recorder(snapshots) if snapshots is not None else None
        begun = prior
        if options["state"] is not None or isinstance(prior, Posterior):
            begun = Posterior(plan.program, plan.program.family, state.belief)

        def reached(state: ADFState, seen: int) -> ADFResult:
            trajectory = recorder.trajectory(plan.program.size) if recorder is not None else None
            posterior = Posterior(plan.program, plan.program.family, state.belief)
            run = Run(self, posterior, begun, trajectory, seen, order, rng_key, options)
            return remembering(ADFResult(state, log.info(seen)), run)

        with progress(total, progress_bar) as bar, contextlib.suppress(Interrupted):
            for start, stop in stretches(total, chunk, snapshots):
                some = slice(start, stop) if order is None else order[start:stop]
                taken = [a[some] for a in rows]
                with interruptible(start, total):
                    new, now = self._fold(
                        plan, state, taken, shared, None if gaps is None else gaps[some], stop - start
                    )
                    now = jax.device_get(now)
                state = new
                log.add(now, start)
                if recorder is not None:
                    recorder.add(now, stop, total, partial(self._moments, plan.program, state.belief))
                if strict and now.status.max() >= Status.NOT_FINITE:
                    row = int(np.argmax(now.status >= Status.NOT_FINITE))
                    where = start + row if order is None else int(order[start + row])
                    raise RowRefused(where, Status(int(now.status[row])), reached(state, stop))
                bar(stop - start, log)
        result = reached(state, log.seen)
        log.warn()
        return result

    def _moments(self, program: Program, belief: Belief) -> Any:
        return jax.device_get((belief.mean, program.family.spread(belief, program.size)))

    def get_posterior(self, state: ADFState | ADFResult) -> Posterior:
        """The posterior that a state (or a result) holds."""
        belief = (state.state if isinstance(state, ADFResult) else state).belief
        program = self.calls.posterior_program(belief.mean.shape[-1])
        return Posterior(program, program.family, belief)

    def get_local(self, state: ADFState | ADFResult, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Posteriors of the latent sites in the data plate of new rows, given what the state has learned.

        Args:
            state: The state or result reached. Of rows that it has absorbed already it would make too much; ``EP``
                keeps their sites, and takes them out.
            *args: The model's arguments.
            **kwargs: The model's keyword arguments.

        Returns:
            For a discrete site ``{site: probabilities (n, ..., K)}`` over the values of its support, for a continuous
            one ``{site: (mean, sd)}``, each ``(n, ...)``, in unconstrained space.
        """
        belief = (state.state if isinstance(state, ADFResult) else state).belief
        plan, rows, shared = self.calls.planned(args, self.without_dt(kwargs)[0])
        return local_posterior(plan.program, belief.mean, belief.scale, rows, shared)


def _fold(
    family: Family,
    dynamics: Dynamics,
    program: Program,
    prior_groups: Callable[[Sequence[Any]], dict[str, tuple[PriorGroup, ...]]],
    state: ADFState,
    rows: list[Any],
    shared: list[Any],
    gaps: Any,
    count: Any,
) -> tuple[ADFState, ADFInfo]:
    """One compiled call: the rows through the kernel."""
    rows = [jnp.asarray(a) for a in rows]
    moving = Moving(state.clock, state.rows > 0, state.setup)
    belief, moving, _, info = fold_rows(
        family,
        dynamics,
        program.factors,
        state.belief,
        moving,
        rows,
        shared,
        gaps,
        jnp.asarray(count),
        draws=Draws(state.rng_key, state.rows),
    )
    there = jnp.arange(rows[0].shape[0]) < count
    absorbed = jnp.sum(there & (info.status < Status.NOT_FINITE)).astype(state.rows.dtype)
    priors = state.priors
    if priors:
        groups = {g.key: g.factors for some in prior_groups(shared).values() for g in some if g.key in priors}
        one = jnp.ones((), belief.mean.dtype)
        inputs = program.prior_inputs(shared)
        belief, priors, _ = fold_prior(family, groups, belief, priors, inputs, Exchange(one, one))
    return ADFState(belief, state.rows + absorbed, moving.clock, state.setup, state.rng_key, priors), info


@partial(jax.jit, static_argnums=1)
def _trim(info: ADFInfo, count: int) -> ADFInfo:
    return jax.tree.map(lambda a: a[:count], info)


def _checked_gaps(gaps: Any, count: int, dtype: Any) -> Any:
    if isinstance(gaps, Tracer):
        return jnp.broadcast_to(gaps, (count,)).astype(dtype)
    gaps = np.broadcast_to(np.asarray(gaps, dtype), (count,))
    if not np.isfinite(gaps).all() or (gaps < 0).any():
        raise ValueError("dt must be finite and not negative: the time since the row before.")
    return gaps


def _raise_first(status: Any, result: ADFResult) -> None:
    codes = np.asarray(status)
    if (codes >= Status.NOT_FINITE).any():
        row = int(np.argmax(codes >= Status.NOT_FINITE))
        raise RowRefused(row, Status(int(codes[row])), result)
