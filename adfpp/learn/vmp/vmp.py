"""Variational message passing: the third point between filtering and expectation propagation, for conjugate models."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.families import Conjugate, ProductBelief, asked_family
from adfpp.engine.status import RowInfo, Status
from adfpp.learn.ep.iterate import History, Limits, Progress, iterate
from adfpp.learn.keys import PickledByFields, checked_key
from adfpp.learn.learner import Learner, refuse_tracers, state_of
from adfpp.learn.posterior import Posterior
from adfpp.learn.results import Result, Run
from adfpp.learn.session import Call
from adfpp.learn.stream import NotConverged, warn_of_rows
from adfpp.learn.vmp import sweeps
from adfpp.learn.vmp.explain import VMPExplanation, vmp_explanation
from adfpp.learn.vmp.schedule import Coordinate, Current, Problem
from adfpp.learn.vmp.start import Starts, initial_values
from adfpp.model import ModelError, Program
from adfpp.model.arguments import Model
from adfpp.model.forward import Forward

_FORGETTING = 0.7  # the power of the step sizes: above 1/2, so that their noise averages out, and below 1
_PROBED = 64  # rows with which the model is checked for conjugacy


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("belief", "absorbed", "rows", "steps", "rng_key"),
    meta_fields=("fingerprint",),
)
@dataclass(frozen=True)
class VMPState(PickledByFields):
    """The state of variational message passing.

    Attributes:
        belief: The approximate posterior of the latents that all rows share.
        absorbed: For each part of the belief, what the rows so far have added to its natural parameters.
        rows: ``()`` number of rows absorbed.
        steps: ``()`` number of natural-gradient steps.
        rng_key: The key of the start.
        fingerprint: As in ``ADFState``.
    """

    belief: Any
    absorbed: tuple[jax.Array, ...]
    rows: jax.Array
    steps: jax.Array
    rng_key: jax.Array
    fingerprint: str | None = None

    def _replace(self, **changes: object) -> "VMPState":
        """Returns the state with other values in some fields."""
        return replace(self, **changes)


class VMPInfo(NamedTuple):
    """What happened in a run.

    Attributes:
        converged: Whether the last sweep raised the lower bound by no more than ``tol``.
        sweeps: Number of sweeps of the start that was continued.
        bound: ``(sweeps,)`` the lower bound of the log evidence after each sweep. It never falls.
        log_evidence: The last of them. If one part stores all latents, it is the log evidence itself.
        log_z: ``(n,)`` each row's share of the bound; 0 for a refused row.
        status: ``(n,)`` ``Status`` codes.
        error: ``(n,)`` zeros: the expectations are exact.
        starts: The lower bounds that the starts had reached when the best of them was chosen.
        residual: How far the log joint was from being linear in the statistics of each part; rounding errors only.
    """

    converged: bool
    sweeps: int
    bound: np.ndarray
    log_evidence: float
    log_z: np.ndarray
    status: np.ndarray
    error: np.ndarray
    starts: np.ndarray
    residual: float


class Prediction(NamedTuple):
    """A prediction of the rows' values of one observation.

    Attributes:
        mean: ``(n, ...)`` the predictive mean.
        sd: ``(n, ...)`` the predictive standard deviation.
        draws: ``(draws, n, ...)`` what they were computed from, for quantiles and probabilities.
    """

    mean: np.ndarray
    sd: np.ndarray
    draws: np.ndarray


class VMP(Learner):
    """Variational message passing for conjugate models: a product approximation, updated part by part.

    Example:
        ::

            vmp = adfpp.VMP(model)
            print(vmp.explain(X))
            result = vmp.run(jax.random.key(0), X)
            vmp.get_posterior(result).summary()
            result.info.bound, result.log_evidence

    Args:
        model: An ordinary NumPyro model, the callable that NUTS takes.
        family: ``{latent: family}`` for latents whose family does not follow from their prior: "gamma",
            "inverse_gamma", "beta", "dirichlet", or "full" for a Gaussian in unconstrained space.
        tol: The run has converged when a sweep raises the lower bound by at most ``tol`` nats.
        max_sweeps: The largest number of sweeps.
        starts: Number of random starts. The start whose bound is highest after some sweeps is continued. When None, it
            is 4 if rows have discrete latents, and 1 otherwise.
        rows: Names of the arguments that carry rows. When None, they are derived from the model; when empty, all data
            of a call are one row.
    """

    def __init__(
        self,
        model: Model,
        family: Mapping[str, str] | None = None,
        tol: float = 1e-4,
        max_sweeps: int = 1000,
        starts: int | None = None,
        rows: Sequence[str] | None = None,
    ) -> None:
        """Checks the options. The model is read at the first call with data, which shows the shapes."""
        if not tol > 0.0 or max_sweeps < 1:
            raise ValueError(f"tol must be positive and max_sweeps at least 1; they are {tol} and {max_sweeps}.")
        if starts is not None and starts < 1:
            raise ValueError(f"starts must be at least 1, or None; it is {starts}.")
        self.tol, self.max_sweeps, self.starts = tol, max_sweeps, starts
        families: Any = _families(family)
        super().__init__(model, families, "auto", rows, revisited=True)

    def _options(self) -> dict[str, object]:
        options: dict[str, object] = {"family": dict(self.family.given) or None}
        return options | {name: getattr(self, name) for name in ("tol", "max_sweeps", "starts", "rows")}

    # ------------------------------------------------------------------------------------------ reading

    def explain(self, *args: Any, **kwargs: Any) -> VMPExplanation:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Describes the parts of the approximation, and whether the model is conjugate in each of them.

        Args:
            *args: The model's arguments.
            **kwargs: The model's keyword arguments.
        """
        refuse_tracers("vmp.explain", _INSTEAD, args, kwargs)
        call = self.resolve(args, kwargs)
        self.session.check(call)
        values = initial_values(call.program, call.shared, jax.random.key(0))
        rows, _ = self._rows(call, values)
        found = self._residuals(call.program, values, rows, call.shared)
        return vmp_explanation(call.program, found, _limit(call.program))

    def init(self, rng_key: jax.Array, *args: Any, **kwargs: Any) -> VMPState:
        """Makes the state before any row: a random start of the approximation.

        Args:
            rng_key: The key of the start.
            *args: The model's arguments: some rows.
            **kwargs: The model's keyword arguments.
        """
        refuse_tracers("vmp.init", _INSTEAD, rng_key, args, kwargs)
        rng_key = checked_key(rng_key, "vmp.init")
        call = self.resolve(args, kwargs)
        self.session.check(call)
        self.session.latest = call.program
        return self._state(call.program, initial_values(call.program, call.shared, rng_key), rng_key)

    def _state(self, program: Program, values: sweeps.Values, rng_key: jax.Array) -> VMPState:
        zero = jnp.zeros((), int)
        belief = _belief(program, values)
        return VMPState(belief, _nothing(program), zero, zero, jnp.array(rng_key), program.fingerprint)

    # ------------------------------------------------------------------------------------------ learning

    def run(
        self,
        rng_key: jax.Array,
        *args: Any,
        state: VMPState | Result | None = None,
        progress_bar: bool = True,
        **kwargs: Any,
    ) -> Result:
        """Sweeps over all parts until the lower bound settles, with a progress bar.

        When it is interrupted (Ctrl-C), it warns how many sweeps were made, and returns the result so far.

        Args:
            rng_key: Key of the random starts.
            *args: The model's arguments: all rows.
            state: The state or result to start from. When None, the starts are random.
            progress_bar: Whether to show a progress bar.
            **kwargs: The model's keyword arguments.

        Returns:
            ``Result(state, info)``, see ``VMPState`` and ``VMPInfo``. The result also has ``posterior`` and
            ``log_evidence``.
        """
        refuse_tracers("vmp.run", _INSTEAD, rng_key, args, kwargs, state)
        rng_key = checked_key(rng_key, "vmp.run")
        given = None if state is None else state_of(state, VMPState)
        call = self.resolve(args, kwargs, given)
        self.session.check(call)
        program = call.program
        if given is not None:
            self.session.refuse_foreign(given, program)
        self.session.latest = program
        values = initial_values(program, call.shared, rng_key) if given is None else given.belief.parts
        rows, status = self._rows(call, values)
        nothing = _nothing(program)
        with Progress(progress_bar, "nats") as progress:
            problem = Problem(program, rows, call.shared, nothing, self._tol(program), progress)
            residual = self._refuse_not_conjugate(problem, values)
            starts = Starts(problem, rng_key, self._starts(program) if given is None else 0, values)
            current, reached = starts.best()
            limits = Limits(problem.tol, self.max_sweeps)
            history = iterate(Coordinate(), problem, current, limits, progress)
        converged = bool(history.steps) and history.steps[-1].done
        info = VMPInfo(
            converged,
            len(current.bounds),
            np.array(current.bounds),
            float(current.bounds[-1]) if current.bounds else float("nan"),
            np.asarray(current.log_z),
            status,
            np.zeros(len(status), program.dtype),
            np.array(reached),
            residual,
        )
        if not converged and not history.interrupted:
            warnings.warn(_not_converged(info, self.tol), NotConverged, stacklevel=2)
        warn_of_rows(np.bincount(status, minlength=len(Status)), stacklevel=3)
        absorbed = jnp.asarray(int((status == Status.OK).sum()))
        belief = _belief(program, current.values)
        final = VMPState(
            belief, current.messages, absorbed, jnp.zeros((), int), jnp.array(rng_key), program.fingerprint
        )
        run = Run(self, self._posterior(program, belief), None, None, len(status), None, rng_key, {"state": state})
        return Result(final, info, run)

    def update(
        self, state: VMPState | Result, *args: Any, total: int | None = None, **kwargs: Any
    ) -> tuple[VMPState, RowInfo]:
        """Updates a state with some rows, without those that it has absorbed before.

        Without ``total`` the rows are new, and what earlier rows have added to the natural parameters stays as it is:
        streaming variational inference. It gives the result of ``run`` if one part stores all latents and rows have no
        latents of their own; otherwise earlier rows are not revisited, as in ADF. With ``total`` the rows are a random
        minibatch of so many rows, which may come again: a natural-gradient step of stochastic variational inference.
        Its size falls with the number of steps, so that repeated passes settle at a result of ``run``.

        Args:
            state: The state before these rows, or a result that contains it.
            *args: The model's arguments.
            total: The number of rows that the minibatch is drawn from, if it is one.
            **kwargs: The model's keyword arguments.

        Returns:
            ``(state, info)`` with ``info.log_z``, each row's share of the lower bound, ``info.status`` and
            ``info.error``, of shape ``(n,)``. If no row can be used, the state is the given one.
        """
        refuse_tracers("vmp.update", _INSTEAD, state, args, kwargs)
        state = cast(VMPState, state_of(state, VMPState))
        call = self.resolve(args, kwargs, state)
        program = call.program
        self.session.refuse_foreign(state, program)
        self.session.check(call)
        taken = self._usable(call, state.belief.parts)
        if isinstance(taken, np.ndarray):
            nothing = np.zeros(len(taken), program.dtype)
            return state, RowInfo(nothing, taken, nothing)
        rows, status = taken
        good, steps, absorbed = int((status == Status.OK).sum()), state.steps, state.absorbed
        if total is None:
            problem = Problem(program, rows, call.shared, absorbed, self._tol(program), Progress(False))
            if not int(state.rows):
                self._refuse_not_conjugate(problem, state.belief.parts)
            current = Current(state.belief.parts, absorbed, rows.weight)
            for _ in range(self.max_sweeps):
                if Coordinate().step(problem, current, 1.0, History()).done:
                    break
        else:
            if total < good:
                raise ValueError(f"total={total} is the number of rows that these {good} rows are drawn from.")
            rate = (1.0 + float(steps)) ** -_FORGETTING
            rows = rows._replace(weight=rows.weight * (rate * total / good))
            absorbed = tuple((1.0 - rate) * a for a in absorbed)
            problem = Problem(program, rows, call.shared, absorbed, self._tol(program), Progress(False))
            swept = problem.sweep(state.belief.parts)
            log_z = swept.log_z / jnp.where(rows.weight > 0, rows.weight, 1.0)
            current, steps = Current(swept.values, swept.messages, log_z), steps + 1
        together = tuple(a + b for a, b in zip(absorbed, current.messages, strict=True))
        belief = _belief(program, current.values)
        new = state._replace(belief=belief, absorbed=together, rows=state.rows + good, steps=steps)
        return new, RowInfo(np.asarray(current.log_z), status, np.zeros(len(status), program.dtype))

    def predict(
        self, state: Any, *args: Any, rng_key: jax.Array | None = None, num_samples: int = 1000, **kwargs: Any
    ) -> dict[str, Prediction]:
        """Predicts the observations of new rows, from draws of the posterior and of the rows' own latents.

        Args:
            state: A state, a result or a ``Posterior``.
            *args: The model's arguments for the new rows. Observed values may be left out, and are not used.
            rng_key: Key for the draws; ``jax.random.key(0)`` when None.
            num_samples: Number of draws.
            **kwargs: The model's keyword arguments.

        Returns:
            ``{observation: Prediction}`` with ``mean``, ``sd`` and ``draws``.
        """
        post = state if isinstance(state, Posterior) else self.get_posterior(state)
        first, second = jax.random.split(checked_key(rng_key) if rng_key is not None else jax.random.key(0))
        names = sweeps.observations_of(post.program)
        each = Forward(post.program, args, kwargs).draw(second, post.draw(first, num_samples), names)
        return {name: Prediction(a.mean(0), a.std(0), a) for name, a in each.items()}

    def _posterior(self, program: Program, belief: ProductBelief) -> Posterior:
        return Posterior(program, program.family, belief)

    def _starts(self, program: Program) -> int:
        if self.starts is not None:
            return self.starts
        return 4 if len(sweeps.joint_of(program).combinations) > 1 else 1

    def _tol(self, program: Program) -> float:
        return self.tol

    def _rows(self, call: Call, values: sweeps.Values) -> tuple[sweeps.Rows, np.ndarray]:
        """The rows of a call, and their ``Status`` codes. A refused row gets the numbers of another and weight 0."""
        taken = self._usable(call, values)
        if isinstance(taken, np.ndarray):
            worst = Status(int(taken.max()))
            raise ModelError(f"None of the {len(taken)} rows can be used: {worst.name}, {worst.advice}.")
        return taken

    def _usable(self, call: Call, values: sweeps.Values) -> tuple[sweeps.Rows, np.ndarray] | np.ndarray:
        """As ``_rows``, but the codes alone if no row can be used."""
        program = call.program
        arrays = tuple(jnp.asarray(a) for a in call.rows)
        theta = _belief(program, values).mean
        status = np.asarray(program.compiled(sweeps.row_status, effort="light")(theta, arrays, list(call.shared)))
        good = status == Status.OK
        if not good.any():
            return status
        chosen = np.where(good, np.arange(len(good)), np.flatnonzero(good)[0])
        weight = jnp.asarray(good, program.dtype)
        return sweeps.Rows(arrays if good.all() else tuple(a[chosen] for a in arrays), weight), status

    # ------------------------------------------------------------------------------------------ conjugacy

    def _residuals(
        self, program: Program, values: sweeps.Values, rows: sweeps.Rows, shared: Sequence[Any]
    ) -> np.ndarray:
        """How far the log joint is from being linear in each part and in the local latents, with some rows."""
        chosen = np.flatnonzero(np.asarray(rows.weight))[:_PROBED]
        some = sweeps.Rows(tuple(a[chosen] for a in rows.arrays), rows.weight[chosen])
        read = program.compiled(sweeps.messages, effort="least")
        near, far = (read(values, some, list(shared), np.asarray(which, program.dtype)) for which in (0.0, 1.0))
        return np.array([float(sweeps.apart(a, b)) for a, b in zip(near, far, strict=True)])

    def _refuse_not_conjugate(self, problem: Problem, values: sweeps.Values) -> float:
        """How much a sweep depends on the probes at which messages are read; raises if this is no rounding error.

        Raises:
            ModelError: It names the latents in which the model is not conjugate.
        """
        residual = problem.residual(values)
        if residual <= _limit(problem.program):
            return residual
        found = self._residuals(problem.program, values, problem.rows, problem.shared)
        wrong = [
            ", ".join(part.names)
            for part, r in zip(problem.joint.parts, found[:-1], strict=True)
            if not r <= _limit(problem.program)
        ]
        if not found[-1] <= _limit(problem.program):
            wrong.append(", ".join(s.name for s in problem.program.local))
        raise ModelError(
            f"The model is not conjugate in {' and in '.join(wrong) or 'its latents'}: given the other latents, its "
            "log joint is not linear in the statistics of the family that stores it. Use a conjugate prior or another "
            "parameter (a Gamma precision in the place of a HalfNormal scale), or learn the model with adfpp.EP, for "
            "which it need not be conjugate. vmp.explain shows the latents and the families."
        )

    def get_local(self, state: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Computes the approximate posteriors of the local latents of some rows.

        Args:
            state: A state or result.
            *args: The model's arguments: rows that the state has absorbed, or new ones.
            **kwargs: The model's keyword arguments.

        Returns:
            For a discrete latent ``{latent: probabilities (n, ..., K)}`` over the values of its support, for a
            continuous one ``{latent: (mean, sd)}``, each ``(n, ...)``, in unconstrained space. A refused row has NaN.
        """
        state = state_of(state, VMPState)
        call = self.resolve(args, kwargs, state)
        self.session.refuse_foreign(state, call.program)
        rows, status = self._rows(call, state.belief.parts)
        found = call.program.compiled(sweeps.local_posteriors)(state.belief.parts, rows, list(call.shared))
        out = sweeps.local_marginals(call.program, found)
        refused = status != Status.OK

        def marked(a: jax.Array) -> np.ndarray:
            return np.where(refused.reshape((-1,) + (1,) * (a.ndim - 1)), np.nan, np.asarray(a))

        return jax.tree.map(marked, out)


_INSTEAD = "Call it in a Python loop, one data set at a time."


def _families(family: Mapping[str, str] | None) -> Conjugate:
    """The option ``family`` as a family by latent."""
    if family is None:
        return Conjugate()
    if isinstance(family, Conjugate):
        return family
    if not isinstance(family, Mapping):
        raise TypeError(
            f"family must be a dict {{latent: family}} or None; it is {family!r}. Variational message passing takes "
            "the families from the priors of the latents."
        )
    return Conjugate(asked_family(family).given)


def _limit(program: Program) -> float:
    """The largest residual of linearity that rounding errors explain."""
    return 1e-8 if program.dtype == np.float64 else 1e-2


def _belief(program: Program, values: sweeps.Values) -> ProductBelief:
    family: Any = program.family
    return family.belief(values)


def _nothing(program: Program) -> tuple[jax.Array, ...]:
    """Natural parameters that add nothing, for each part."""
    return tuple(jnp.zeros(part.numbers, program.dtype) for part in sweeps.joint_of(program).parts)


def _not_converged(info: VMPInfo, tol: float) -> str:
    last = f"{info.bound[-1] - info.bound[-2]:.2g}" if len(info.bound) > 1 else "an unknown number of"
    return (
        f"VMP has not converged after {info.sweeps} sweeps: the last one raised the lower bound by {last} nats (tol "
        f"{tol:g}). Continue with state=result, or use a larger max_sweeps or tol."
    )
