"""Assumed-density filtering: update by Bayes' rule, project onto the family, once a row."""

import contextlib
import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from adfpp.dynamics import Dynamics, Places, Static
from adfpp.explain import Explanation, explanation
from adfpp.families import Belief, Family, family_named
from adfpp.kernel import Moving, RowInfo, Status, fold_rows
from adfpp.model import Layout, ModelError, Program, RowCheck, bind, is_array, read, same_space
from adfpp.posterior import Posterior
from adfpp.prior import Block
from adfpp.stream import (
    Interrupted,
    Log,
    Recorder,
    RowsMarked,
    Trajectory,
    interruptible,
    progress,
    stretches,
    suitable_chunk,
)
from adfpp.tilt import Moments, moments_named

ADFInfo = RowInfo


class ADFState(NamedTuple):
    """What an online learner keeps: a pytree of arrays, whatever the length of the stream.

    Attributes:
        belief: The approximate posterior of the flat unconstrained θ.
        rows: ``()`` rows absorbed so far.
        clock: ``()`` time since the belief was last moved (always 0 without dynamics).
        setup: What the dynamics keeps.
        rng_key: Kept for moment rules that draw; none does so yet (Monte Carlo uses fixed points).
    """

    belief: Belief
    rows: jax.Array
    clock: jax.Array
    setup: Any
    rng_key: jax.Array


class _StateAndInfo(NamedTuple):
    """The two fields of a result, which are what JAX sees of it."""

    state: ADFState
    info: Any


class Run(NamedTuple):
    """What a result remembers of the run that made it.

    Attributes:
        adf: Whose run it was.
        posterior: What it reached.
        start: What it began from in the place of the model's prior: the state's or the posterior's belief, the prior's
            distributions by site, or None.
        trajectory: The belief along the run, if it was kept.
        rows: Rows folded or refused.
        order: ``(n,)`` in which the rows were folded, if they were shuffled.
        rng_key: The key of the run.
        options: The other options that shape it.
    """

    adf: "ADF"
    posterior: Posterior
    start: Posterior | Mapping[str, Any] | None
    trajectory: Trajectory | None
    rows: int
    order: np.ndarray | None
    rng_key: jax.Array
    options: dict[str, Any]


class ADFResult(_StateAndInfo):
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
    def trajectory(self) -> Trajectory | None:
        """The belief along the run, if it was made with ``snapshots``."""
        return self.run.trajectory

    def again(self, *args: Any, snapshots: int | None = None, **kwargs: Any) -> "ADFResult":
        """The same run once more, without a progress bar or warnings: same key, start, order and chunks.

        Args:
            *args: The model's arguments, the same data.
            snapshots: As in ``ADF.run``.
            **kwargs: The model's keyword arguments.
        """
        made = self.run
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RowsMarked)
            return made.adf.run(made.rng_key, *args, snapshots=snapshots, progress_bar=False, **made.options, **kwargs)


def _remembering(result: ADFResult, run: Run) -> ADFResult:
    vars(result)["_run"] = run
    return result


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


class _Plan(NamedTuple):
    """A program and its compiled fold."""

    program: Program
    fold: Callable[..., Any]


class _Call(NamedTuple):
    """A call's signature: its plan, and where its rows and shared arrays stand among its leaves."""

    plan: _Plan
    order_rows: list[int]
    order_shared: list[int]
    rows_at: frozenset[int]


@dataclass(frozen=True)
class _Number:
    """A leaf's number, in its place."""

    value: int


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
        family: "full", "diagonal" or "spherical" Gaussian in unconstrained space.
        moments: "auto", "accurate", "quadrature", "montecarlo", or an ``adfpp.Moments``.
        dynamics: How θ moves between rows: ``adfpp.RandomWalk``, ``Discount``, ``OrnsteinUhlenbeck``; it stays put
            when None.
        rows: Names of the arguments that carry rows; found from the model when None.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        family: str | Family = "full",
        moments: str | Moments = "auto",
        dynamics: Dynamics | None = None,
        rows: Sequence[str] | None = None,
    ) -> None:
        """Checks the options; the model is read when data first shows its shapes."""
        if not callable(model):
            raise TypeError(f"model must be a callable with numpyro.sample statements; it is {model!r}.")
        self.model = model
        self.family = family_named(family)
        self.moments = moments_named(moments)
        self.dynamics = dynamics if dynamics is not None else Static()
        self.rows = (rows,) if isinstance(rows, str) else tuple(rows) if rows is not None else None
        parameters = inspect.signature(model).parameters
        clashes = sorted(_RESERVED & set(parameters))
        if clashes:
            raise ValueError(f"The model's argument {clashes[0]!r} is also an option of ADF's methods; rename it.")
        self._takes_dt = "dt" in parameters
        self._plans: dict[Any, _Plan] = {}
        self._calls: dict[Any, _Call] = {}
        self._rows_at: dict[Any, frozenset[int]] = {}
        self._latest: Program | None = None
        self._checks: dict[int, RowCheck] = {}
        self._projected: dict[int, tuple[list[np.ndarray], list[Block]]] = {}
        self._lengths: Counter[int] = Counter()
        self._folding = False

    # ------------------------------------------------------------------------------------------ reading

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """How the model is understood: sites, factors with their fields and moment rules, rows and constants.

        Args:
            *args: The model's arguments.
            **kwargs: The model's keyword arguments.
        """
        prior = kwargs.pop("prior", None)
        kwargs = self._without_dt(kwargs)[0]
        plan, rows, shared = self._planned(args, kwargs)
        self._check(plan.program, rows, shared)
        if isinstance(prior, Posterior):
            self._from_posterior(plan.program, prior)
            blocks = [Block(np.arange(plan.program.size), np.zeros(0), np.zeros(0), "given")]
        else:
            blocks = self._project(plan.program, rows, shared, prior)
        return explanation(plan.program, self.family, blocks)

    def init(self, rng_key: jax.Array, *args: Any, prior: Any = None, **kwargs: Any) -> ADFState:
        """The state before any row. Shapes only are read from the data.

        Args:
            rng_key: Key, kept in the state for moment rules that draw.
            *args: The model's arguments.
            prior: A ``Posterior`` to start from instead of the model's prior (posterior as prior), of this model or
                another with the same latent sites; or ``{site: distribution}`` in the place of some sites' priors.
            **kwargs: The model's keyword arguments.
        """
        kwargs = self._without_dt(kwargs)[0]
        if prior is not None and not isinstance(prior, Posterior | Mapping):
            raise TypeError(
                f"prior must be a Posterior or a dict {{site: distribution}}; it is a {type(prior).__name__}."
            )
        plan, rows, shared = self._planned(args, kwargs)
        program = plan.program
        self._check(program, rows, shared)
        if isinstance(prior, Posterior):
            belief = self._from_posterior(program, prior)
        else:
            blocks = self._project(program, rows, shared, prior)
            belief = self.family.start(blocks, program.size, program.dtype)
        self._latest = program
        places = [Places(s.name, s.where, s.unconstrained_shape) for s in program.sites]
        setup = self.dynamics.setup(self.family, places, belief)
        return ADFState(belief, jnp.zeros((), int), jnp.zeros((), program.dtype), setup, rng_key)

    def _from_posterior(self, program: Program, prior: Posterior) -> Belief:
        """The other posterior's belief in this program's order of sites and this family."""
        theirs = {s.name: s for s in prior.sites}
        order = []
        for site in program.sites:
            other = theirs.get(site.name)
            if other is None or other.unconstrained_shape != site.unconstrained_shape:
                shape = None if other is None else other.shape
                raise ModelError(
                    f"prior does not fit: site {site.name!r} has shape {site.shape} in this model and {shape} in the "
                    "posterior. Both models need the same latent sites."
                )
            if not same_space(site, other):
                raise ModelError(
                    f"prior does not fit: site {site.name!r} has another support in the posterior's model."
                )
            order.append(np.arange(other.where.start, other.where.stop))
        extra = set(theirs) - {s.name for s in program.sites}
        if extra:
            raise ModelError(f"prior does not fit: this model has no sites {sorted(extra)}.")
        places = np.concatenate(order)
        back = np.argsort(places)
        blocks = [Block(back[where], mean, root, "given") for where, mean, root in prior.family.blocks(prior.belief)]
        return self.family.start(blocks, program.size, program.dtype)

    def _project(self, program: Program, rows: Sequence[Any], shared: Sequence[Any], priors: Any) -> list[Block]:
        """The prior's blocks; the model's own are kept for the next call with the same shared arrays."""
        if priors:
            return program.project_prior(rows, shared, priors)
        kept = self._projected.get(id(program))
        if kept is None or not all(np.array_equal(a, b) for a, b in zip(kept[0], shared, strict=True)):
            kept = ([np.array(a) for a in shared], program.project_prior(rows, shared))
            self._projected[id(program)] = kept
        return kept[1]

    def _check(self, program: Program, rows: Sequence[Any], shared: Sequence[Any]) -> None:
        """The numeric model check, as soon as two rows have been seen; traced rows cannot be looked at."""
        check = self._checks.get(id(program))
        if check is None or any(isinstance(a, Tracer) for a in (*rows, *shared)):
            return
        if check.done(rows, shared):
            del self._checks[id(program)]

    def _planned(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[_Plan, list[Any], list[Any]]:
        """Finds or makes the plan for a call's signature; the quick way is a flatten and a look-up."""
        leaves, treedef = jax.tree.flatten((args, kwargs))
        rows_at = self._rows_at.get(treedef, frozenset())
        key = (
            treedef,
            *[
                ((a.shape[1:] if i in rows_at else a.shape), a.dtype) if hasattr(a, "dtype") else a
                for i, a in enumerate(leaves)
            ],
        )
        try:
            found = self._calls.get(key)
        except TypeError:
            bind(self.model, args, kwargs)  # names the argument if it is a kind of table
            raise TypeError(
                "An argument of the model is neither an array nor hashable; pass data as arrays and options as Python "
                "numbers, strings or tuples."
            ) from None
        if found is None:
            found = self._learn(args, kwargs)
            if found.rows_at == rows_at:
                self._calls[key] = found
            self._rows_at[treedef] = found.rows_at
        rows, shared = [leaves[i] for i in found.order_rows], [leaves[i] for i in found.order_shared]
        length = rows[0].shape[0]
        if length == 0 or any(a.shape[0] != length for a in rows):
            self._refuse_lengths(found.plan.program, rows)
        pinned = found.plan.program.pinned
        if pinned is not None and not any(isinstance(a, Tracer) for a in shared):
            if not all(np.array_equal(a, b) for a, b in zip(pinned, shared, strict=True)):
                raise ModelError(
                    "An argument that sets the support of a latent site has changed: the belief is held in that "
                    "support's unconstrained space. Use another ADF object for another support."
                )
        return found.plan, rows, shared

    def _refuse_lengths(self, program: Program, rows: Sequence[Any]) -> None:
        names = [n for n, k in zip(program.layout.names, program.layout.kinds, strict=True) if k == "row"]
        lengths = {n: a.shape[0] for n, a in zip(names, rows, strict=True)}
        if not all(lengths.values()):
            raise ModelError(f"No rows: the arguments that carry them have lengths {lengths}.")
        raise ModelError(f"The arguments that carry rows differ in length: {lengths}.")

    def _learn(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Call:
        """Reads a call of a new signature."""
        bound, leaves, names, treedef = bind(self.model, args, kwargs)
        # the order of the call's own leaves among the bound ones
        flat, structure = jax.tree.flatten((args, dict(kwargs)))
        numbered = jax.tree.unflatten(structure, [_Number(i) for i in range(len(flat))])
        order = [leaf.value for leaf in bind(self.model, *numbered)[1]]
        plan = self._known_plan(leaves, treedef)
        if plan is None:
            self._explain_mismatch(names, leaves)
            program = read(self.model, args, kwargs, self.rows, self.moments)
            plan = _Plan(program, jax.jit(partial(_fold, self.family, self.dynamics, program)))
            self._plans[_plan_key(program.layout, leaves)] = plan
            self._checks[id(program)] = RowCheck(program)
            self._latest = self._latest or program
        kinds = plan.program.layout.kinds

        def at(kind: str) -> list[int]:
            return [i for i, k in zip(order, kinds, strict=True) if k == kind]

        return _Call(plan, at("row"), at("shared"), frozenset(at("row")))

    def _known_plan(self, leaves: list[Any], treedef: Any) -> _Plan | None:
        """The plan that takes these arguments, if some of their kind have been read before."""
        for key, plan in self._plans.items():
            layout = plan.program.layout
            if layout.treedef == treedef and _plan_key(layout, leaves) == key:
                return plan
        return None

    def _explain_mismatch(self, names: list[str], leaves: list[Any]) -> None:
        """In the middle of a stream, names the argument whose rows are not of the shape that it began with."""
        if not self._folding or self._latest is None:
            return
        layout = self._latest.layout
        row_names = [n for n, k in zip(layout.names, layout.kinds, strict=True) if k == "row"]
        expected = dict(zip(row_names, self._latest.row_shapes, strict=True))
        for name, leaf in zip(names, leaves, strict=True):
            if name in expected and is_array(leaf) and leaf.shape[1:] != expected[name].shape:
                raise ModelError(
                    f"Argument {name!r} has rows of shape {leaf.shape[1:]}; the stream began with rows of shape "
                    f"{expected[name].shape}."
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
            kwargs, gaps = self._without_dt(kwargs)
        self._folding = True
        try:
            plan, rows, shared = self._planned(args, kwargs)
        finally:
            self._folding = False
        self._refuse_foreign(state, plan.program)
        if self._checks and not isinstance(state.belief.mean, Tracer):
            self._check(plan.program, rows, shared)
        count = rows[0].shape[0]
        state, info = self._fold(plan, state, rows, shared, gaps, count)
        if strict:
            _raise_first(info.status, ADFResult(state, info))
        return state, info

    def _refuse_foreign(self, state: ADFState, program: Program) -> None:
        """A state goes on only in the unconstrained space that it was begun in."""
        if state.belief.mean.shape[-1] != program.size:
            raise ModelError(
                f"The state holds {state.belief.mean.shape[-1]} numbers, the model here {program.size}: it "
                "belongs to another."
            )
        begun = self._latest
        if begun is program or begun is None:
            return
        same = len(begun.sites) == len(program.sites)
        if not same or not all(
            a.name == b.name and same_space(a, b) for a, b in zip(begun.sites, program.sites, strict=True)
        ):
            raise ModelError(
                "The latent sites or their supports are not what they were at init: an argument changed their names, "
                "shapes or bounds. Begin again with init, or use another ADF object."
            )

    def _without_dt(self, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
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
        self, plan: _Plan, state: ADFState, rows: list[Any], shared: list[Any], gaps: Any, count: int
    ) -> tuple[ADFState, ADFInfo]:
        """Pads to a power of two, folds, trims."""
        if gaps is not None:
            gaps = _checked_gaps(gaps, count, state.clock.dtype)
        length = 1 << (count - 1).bit_length()
        if length == count or any(isinstance(a, Tracer) for a in (*rows, state.belief.mean)):
            return plan.fold(state, rows, shared, gaps, count)
        rows = [_padded(a, length) for a in rows]
        state, info = plan.fold(state, rows, shared, None if gaps is None else _padded(gaps, length), count)
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
        kwargs, gaps = self._without_dt(kwargs)
        init_key, shuffle_key = jax.random.split(rng_key)
        if state is None:
            state = self.init(init_key, *args, prior=prior, **kwargs)
        elif prior is not None:
            raise ValueError("Give either state (to go on) or prior (to begin), not both.")
        plan, rows, shared = self._planned(args, kwargs)
        self._refuse_foreign(state, plan.program)
        self._check(plan.program, rows, shared)
        total = rows[0].shape[0]
        if gaps is not None:
            gaps = _checked_gaps(gaps, total, state.clock.dtype)
        order = np.asarray(jax.random.permutation(shuffle_key, total)) if shuffle else None
        chunk = chunk_size or suitable_chunk(rows, total)
        log = Log(info, total, order)
        recorder = Recorder(snapshots) if snapshots is not None else None
        begun = prior
        if options["state"] is not None or isinstance(prior, Posterior):
            begun = Posterior(plan.program, self.family, state.belief)

        def reached(state: ADFState, seen: int) -> ADFResult:
            trajectory = recorder.trajectory(plan.program.size) if recorder is not None else None
            posterior = Posterior(plan.program, self.family, state.belief)
            run = Run(self, posterior, begun, trajectory, seen, order, rng_key, options)
            return _remembering(ADFResult(state, log.info(seen)), run)

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
        return jax.device_get((belief.mean, self.family.spread(belief, program.size)))

    def get_posterior(self, state: ADFState | ADFResult) -> Posterior:
        """The posterior that a state (or a result) holds."""
        state = state.state if isinstance(state, ADFResult) else state
        program = self._latest
        if program is None:
            raise ModelError("The model has not been read yet: call init or explain with data first.")
        if state.belief.mean.shape[-1] != program.size:
            raise ModelError(
                f"The state holds {state.belief.mean.shape[-1]} numbers, the model {program.size}: it belongs to "
                "another."
            )
        return Posterior(program, self.family, state.belief)


def _fold(
    family: Family,
    dynamics: Dynamics,
    program: Program,
    state: ADFState,
    rows: list[Any],
    shared: list[Any],
    gaps: Any,
    count: Any,
) -> tuple[ADFState, ADFInfo]:
    """One compiled call: the rows through the kernel."""
    rows = [jnp.asarray(a) for a in rows]
    moving = Moving(state.clock, state.rows > 0, state.setup)
    belief, moving, info = fold_rows(
        family, dynamics, program.factors, state.belief, moving, rows, shared, gaps, jnp.asarray(count)
    )
    there = jnp.arange(rows[0].shape[0]) < count
    absorbed = jnp.sum(there & (info.status < Status.NOT_FINITE)).astype(state.rows.dtype)
    return ADFState(belief, state.rows + absorbed, moving.clock, state.setup, state.rng_key), info


@partial(jax.jit, static_argnums=1)
def _trim(info: ADFInfo, count: int) -> ADFInfo:
    return jax.tree.map(lambda a: a[:count], info)


def _plan_key(layout: Layout, leaves: Sequence[Any]) -> Any:
    """What a program depends on: the fixed values, and the shapes of rows and shared arrays."""
    parts = []
    for leaf, kind in zip(leaves, layout.kinds, strict=True):
        if not is_array(leaf):
            parts.append(("fixed", leaf))
        else:
            dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
            parts.append((kind, leaf.shape[1:] if kind == "row" else leaf.shape, dtype))
    return (layout.treedef, *parts)


def _padded(a: Any, length: int) -> np.ndarray:
    a = np.asarray(a)
    out = np.zeros((length, *a.shape[1:]), a.dtype)
    out[: len(a)] = a
    return out


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
