"""Expectation propagation: rows are visited repeatedly, each with the update and projection of ADF.

Before a row is visited, its site approximation is removed from the belief, so that the row is not counted twice.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.families import Family
from adfpp.engine.status import Status, VisitInfo, empty_info, is_refused
from adfpp.engine.tilt import Moments, Variational
from adfpp.learn.adf import ADFState
from adfpp.learn.ep.iterate import History, Limits, Progress, iterate
from adfpp.learn.ep.problem import Current, Problem
from adfpp.learn.ep.schedules import SCHEDULES, schedule_named
from adfpp.learn.explain import Explanation
from adfpp.learn.keys import PickledByFields, checked_key
from adfpp.learn.learner import Learner, checked_prior, refuse_tracers, state_of
from adfpp.learn.posterior import GivenPrior, Posterior
from adfpp.learn.results import Result, Run
from adfpp.learn.session import Call
from adfpp.learn.start import Base, Start, ThetaBase, base_of, theta_base
from adfpp.learn.stream import NotConverged, suitable_chunk, warn_of_priors, warn_of_rows
from adfpp.model import Model, ModelError, Program, local_posterior

EPResult = Result


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("belief", "sites", "priors", "base", "rows", "rng_key"),
    meta_fields=("fingerprint",),
)
@dataclass(frozen=True)
class EPState(PickledByFields):
    """The state of EP: the belief, and the site approximations that make up the belief.

    Attributes:
        belief: The approximate posterior of the flat unconstrained θ: the base times all sites.
        sites: For each group of a row's factors, sites ``(n, E, numbers)``.
        priors: ``{key: (E, numbers)}`` sites of the prior factors.
        base: The part of the prior that belongs to the family itself.
        rows: ``()`` number of rows absorbed.
        rng_key: The key of moment rules that draw random points. The points of a row are the same in every sweep.
        fingerprint: As in ``ADFState``.
    """

    belief: Any
    sites: tuple[np.ndarray, ...]
    priors: dict[str, jax.Array]
    base: Base | ThetaBase
    rows: jax.Array
    rng_key: jax.Array
    fingerprint: str | None = None

    def _replace(self, **changes: object) -> "EPState":
        """Returns the state with other values in some fields."""
        return replace(self, **changes)


class EPInfo(NamedTuple):
    """What happened in a run.

    Attributes:
        converged: Whether the last sweep, without damping, would have moved the belief by no more than ``tol``, and all
            sites could be exchanged. It is false if a prior factor or every row was refused.
        sweeps: Number of sweeps.
        step: ``(sweeps,)`` how far each sweep would have moved the belief without damping.
        damping: ``(sweeps,)`` the fraction of each sweep's change that was applied; 0 if it was undone.
        log_evidence: EP's estimate of log p(data); under "window" that of ADF, under "stochastic" there is none (NaN).
        log_z: ``(n,)`` log predictive density of each row given all the others; 0 for a refused row. If a row has
            several factors, it is the sum over the factors, each given all the others. (With a power below 1 it is that
            of the power of the row; under "window" it is given the rows before; under "stochastic" given almost all.)
        status: ``(n,)`` ``Status`` codes.
        error: ``(n,)`` estimated error of the tilted moments.
        clamped: Number of sites in the last sweep whose precision was set to 0, because it was negative by no more than
            that error.
        priors: ``{key: status}`` the worst ``Status`` code of each group of prior factors.
    """

    converged: bool
    sweeps: int
    step: np.ndarray
    damping: np.ndarray
    log_evidence: float
    log_z: np.ndarray
    status: np.ndarray
    error: np.ndarray
    clamped: int
    priors: dict[str, int]


_INSTEAD = (
    "Call it in a Python loop, one data set at a time. The functions init and update of an ADF can be transformed."
)


class EP(Learner):
    """Bayesian inference by expectation propagation: rows are visited until their site approximations converge.

    Example:
        ::

            ep = adfpp.EP(model)
            result = ep.run(jax.random.key(0), X, y=y)
            ep.get_posterior(result).summary()
            result.info.converged, result.info.log_evidence

    Args:
        model: An ordinary NumPyro model, the callable that NUTS takes.
        family: As for ``ADF``.
        moments: As for ``ADF``.
        power: Fraction of a factor that is multiplied in at a time, in (0, 1]; 0 for the limit, where EP becomes
            variational inference (exclusive KL).
        schedule: "parallel" visits all rows from one belief, "sequential" one after the other, "minibatch" in batches;
            "stochastic" has one site that all rows share; "window" keeps the sites of the last rows only. "auto" first
            passes over the rows once as ADF does, in random order. It continues with "sequential" if θ is short. If θ
            is long, it continues with "parallel", and changes to "sequential" if that makes no progress.
        damping: Fraction of each step that is applied, in (0, 1]; chosen automatically when None.
        tol: The run has converged when the size of a sweep without damping is at most ``tol``. The mean in any
            direction of θ then moves by no more than ``tol`` standard deviations, and the standard deviation in any
            direction by no more than that relatively.
        max_sweeps: The largest number of sweeps.
        batch_size: Number of rows visited at a time by "minibatch" and "stochastic".
        window: Number of rows that keep their sites under "window".
        rows: Names of the arguments that carry rows. When None, they are derived from the model; when empty, all data
            of a call are one row.
    """

    def __init__(
        self,
        model: Model,
        family: str | Family | Mapping[str, str] = "full",
        moments: str | Moments = "auto",
        power: float = 1.0,
        schedule: str = "auto",
        damping: float | None = None,
        tol: float = 1e-3,
        max_sweeps: int = 200,
        batch_size: int | None = None,
        window: int | None = None,
        rows: Sequence[str] | None = None,
    ) -> None:
        """Checks the options. The model is read at the first call with data, which shows the shapes."""
        _check_options(power, schedule, damping, tol, max_sweeps, batch_size, window)
        self.power, self.schedule, self.damping, self.tol, self.max_sweeps = power, schedule, damping, tol, max_sweeps
        self.batch_size, self.window = batch_size, window
        super().__init__(model, family, moments, rows, revisited=True)
        if not self.family.sites_in_field and schedule not in ("auto", "sequential"):
            raise ValueError(
                f"schedule={schedule!r} needs family='full': the {self.family.name} family forgets correlations after "
                "each row, so rows are visited in sequence."
            )
        # the limit of power 0 starts from the result of power 1: under a vague belief the mean of a log-likelihood may
        # be infinite
        self._first = None
        if power == 0.0:
            moments = replace(self.moments, closed=False)
            self._first = EP(model, self.family, moments, 1.0, "auto", damping, tol, max_sweeps, rows=self.rows)

    def _rules(self) -> Moments:
        # a closed form is for the whole factor, not for a power of it
        moments = self.moments if self.power == 1.0 else replace(self.moments, closed=False)
        if self.power > 0.0:
            return moments
        rule: Any = Variational()
        return replace(moments, quadrature=rule, monte_carlo=rule)

    def _options(self) -> dict[str, object]:
        names = "family moments power schedule damping tol max_sweeps batch_size window rows".split()
        return {name: getattr(self, name) for name in names}

    # ------------------------------------------------------------------------------------------ reading

    def explain(self, *args: Any, prior: GivenPrior = None, **kwargs: Any) -> Explanation:
        """Describes how the model is understood: latents, factors with their fields and moment rules, rows, constants.

        Args:
            *args: The model's arguments.
            prior: As in ``run``.
            **kwargs: The model's keyword arguments.
        """
        return self._explain(prior, args, kwargs)

    def init(self, rng_key: jax.Array, *args: Any, prior: GivenPrior = None, **kwargs: Any) -> EPState:
        """Makes the state before any row: the prior, and constant sites.

        Args:
            rng_key: Key, stored in the state for moment rules that draw random points.
            *args: The model's arguments: all rows.
            prior: A ``Posterior`` that replaces the model's prior, or ``{latent: distribution}``, which replaces the
                priors of some latents.
            **kwargs: The model's keyword arguments.
        """
        refuse_tracers("ep.init", _INSTEAD, rng_key, args, kwargs)
        rng_key = checked_key(rng_key, "ep.init")
        call = self.resolve(args, kwargs)
        self.session.check(call)
        return self._initial(call, rng_key, checked_prior(prior))

    def _initial(self, call: Call, rng_key: jax.Array, prior: GivenPrior) -> EPState:
        program = call.program
        self._refuse_schedule(program)
        self._refuse_divided(program)
        start_prior, (belief, priors) = self.session.start(call, prior, revisited=True)
        self.session.latest = program
        if program.family.sites_in_field:
            base: Base | ThetaBase = base_of(start_prior.blocks, program.size, program.dtype)
        else:
            base = theta_base(program.family, Start(belief, priors), start_prior.blocks)
        total, dtype = call.rows[0].shape[0], np.dtype(program.dtype)
        sites = tuple(
            np.zeros((total, f.count, program.family.site_numbers(f.field_size, program.size)), dtype)
            for f in program.factors
        )
        rows = jnp.zeros((), int)
        return EPState(belief, sites, priors, base, rows, jnp.array(rng_key), program.fingerprint)

    def _refuse_schedule(self, program: Program) -> None:
        if not program.family.gaussian and self.power == 0.0:
            raise ModelError(
                "power=0, the variational limit, is for Gaussian families. This belief is a product of other families: "
                "use a power above 0."
            )
        if not program.family.sites_in_field and self.schedule not in ("auto", "sequential"):
            raise ModelError(
                f"schedule={self.schedule!r} needs a full Gaussian, and this model's family is {program.family.name}: "
                "its rows are visited in sequence."
            )

    def _refuse_divided(self, program: Program) -> None:
        whole = [f.name for f in program.factors if f.local is not None and f.local.numbers]
        if whole and self.power < 1.0:
            names = ", ".join(latent.name for latent in program.local if latent.support is None)
            raise ModelError(
                f"power={self.power:g} with local latents: {names} is integrated out of observation {whole[0]!r} row "
                "by row, and the power of a marginal is not the marginal of a power. Use power=1, or make it a global "
                "latent with a value for each row."
            )

    # ------------------------------------------------------------------------------------------ running

    def run(
        self,
        rng_key: jax.Array,
        *args: Any,
        state: Any = None,
        prior: GivenPrior = None,
        progress_bar: bool = True,
        **kwargs: Any,
    ) -> Result:
        """Visits all rows until their sites converge, with a progress bar.

        When it is interrupted (Ctrl-C), it warns how many sweeps were made, and returns the result so far.

        Args:
            rng_key: Key for the orders in which rows are visited, and for moment rules that draw random points.
            *args: The model's arguments: all rows. NumPy memory maps are read a chunk at a time.
            state: The state or result to continue from: of EP with the same rows, or of an ``ADF`` that has absorbed
                them. When None, the run starts from the prior.
            prior: As in ``init``.
            progress_bar: Whether to show a progress bar.
            **kwargs: The model's keyword arguments.

        Returns:
            ``Result(state, info)``, see ``EPState`` and ``EPInfo``. The result also has ``posterior`` and
            ``log_evidence``, and a method ``again`` that repeats the run.
        """
        refuse_tracers("ep.run", _INSTEAD, rng_key, args, kwargs, state)
        rng_key = checked_key(rng_key, "ep.run")
        init_key, order_key = jax.random.split(rng_key)
        given = state
        if isinstance(state, Result) and prior is None and state.remembered is not None:
            prior = state.remembered.start
        if state is not None:
            state = state_of(state, EPState, ADFState)
        if self._first is not None and state is None:
            state = self._first.run(init_key, *args, prior=prior, progress_bar=progress_bar, **kwargs).state
        call = self.resolve(args, kwargs, state)
        self.session.check(call)
        program, total = call.program, call.rows[0].shape[0]
        first = self._initial(call, init_key, checked_prior(prior))
        if self.schedule == "stochastic":
            first = first._replace(sites=tuple(a[:0] for a in first.sites))
        warm = None
        if state is not None:
            self.session.refuse_foreign(state, program)
        if isinstance(state, EPState):
            self._refuse_other_rows(state, first)
            first = state._replace(sites=tuple(np.array(a) for a in state.sites), base=first.base)
        elif state is not None:
            if not program.family.sites_in_field or state.belief.scale.ndim != 2:
                raise ValueError("EP can continue from a state of ADF only if both have family='full'.")
            warm = state.belief
        limits = Limits(self.tol, self.max_sweeps, self.damping)
        current = Current(first.belief, first.sites, first.priors, _blank(total, program))
        with Progress(progress_bar) as progress:
            problem = Problem(
                program,
                call.rows,
                call.shared,
                first.base,
                suitable_chunk(call.rows, total),
                order_key,
                first.rng_key,
                self.power,
                limits,
                self.batch_size,
                progress,
                warm,
                resumed=isinstance(state, EPState) and int(state.rows) > 0,
            )
            schedule = schedule_named(self.schedule, self.window)
            history = iterate(schedule, problem, current, limits, progress)
        self.session.check_at(call, current.belief)
        options = {"state": given, "prior": prior}
        return self._result(
            history,
            current,
            first,
            program,
            Run(self, Posterior(program, program.family, current.belief), prior, None, total, None, rng_key, options),
        )

    def _refuse_other_rows(self, state: EPState, first: EPState) -> None:
        shapes = [a.shape for a in first.sites]
        if [a.shape for a in state.sites] != shapes:
            raise ValueError(
                f"The state has sites of shapes {[a.shape for a in state.sites]}; these rows and this model need "
                f"{shapes}. Continue with the rows that it has absorbed, or start again with "
                "prior=ep.get_posterior(state)."
            )

    def _result(self, history: History, current: Current, first: EPState, program: Program, run: Run) -> Result:
        rows = current.info
        absorbed = jnp.asarray(int((~is_refused(rows.status)).sum()))
        base = first.base if current.base is None else current.base
        sites = current.sites if current.kept is None else tuple(a[current.kept] for a in current.sites)
        state = EPState(current.belief, sites, current.priors, base, absorbed, first.rng_key, program.fingerprint)
        info = EPInfo(
            current.converged(history, self.tol),
            len(history),
            np.array(history.sizes),
            np.array([step.applied for step in history.steps]),
            current.log_evidence,
            rows.log_z,
            rows.status,
            rows.error,
            int(rows.clamped.sum()),
            current.prior_status,
        )
        if self.power == 0.0 and (rows.status == Status.OUT_OF_SUPPORT).any():
            # these rows keep the sites of power 1
            info = info._replace(converged=False)
            warnings.warn(
                "The limit of power 0 does not exist for rows whose likelihood is zero somewhere: the mean of its "
                "logarithm is infinite. Use a power above 0, or a likelihood without zeros.",
                NotConverged,
                stacklevel=3,
            )
        elif not info.converged and not history.interrupted and not current.refused:
            self._warn_of_sweeps(info, current)
        warn_of_priors(program.latents_of_priors(info.priors), stacklevel=4)
        warn_of_rows(np.bincount(info.status, minlength=len(Status)), stacklevel=4)
        return Result(state, info, run)

    def _warn_of_sweeps(self, info: EPInfo, current: Current) -> None:
        held = np.flatnonzero(info.status == Status.HELD)
        words = f" Rows whose sites could not be exchanged: {_listed(held)}." if len(held) else ""
        prior = [k for k, s in info.priors.items() if s == Status.HELD]
        words += f" Prior factors whose sites could not be exchanged: {', '.join(prior)}." if prior else ""
        last = f"{info.step[-1]:.2g}" if len(info.step) else "nan"
        plural = "s" if info.sweeps != 1 else ""
        slowest = current.least_converged()
        moving = f" The sites of these rows move most: {_listed(slowest)}." if len(slowest) else ""
        warnings.warn(
            f"EP has not converged after {info.sweeps} sweep{plural}: without damping, the last sweep moves the belief "
            f"by {last} sds (tol {self.tol:g}).{moving}{words} The result is the last proper belief. Try more "
            "max_sweeps, a damping such as 0.3, schedule='sequential' or power=0.5, and check the result against NUTS.",
            NotConverged,
            stacklevel=4,
        )

    def get_local(self, state: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Computes the posteriors of the local latents, which are integrated out row by row.

        Args:
            state: A state or result.
            *args: The model's arguments: the rows that the state has absorbed.
            **kwargs: The model's keyword arguments.

        Returns:
            For a discrete latent ``{latent: probabilities (n, ..., K)}`` over the values of its support, for a
            continuous one ``{latent: (mean, sd)}``, each ``(n, ...)``, in unconstrained space.
        """
        state = state_of(state, EPState)
        call = self.resolve(args, kwargs, state)
        self.session.refuse_foreign(state, call.program)
        total = call.rows[0].shape[0]
        if any(a.shape[0] != total for a in state.sites):
            raise ValueError(
                f"The state has sites for {state.sites[0].shape[0]} rows, and this call has {total} rows: pass the "
                "rows that the state was learned from."
            )
        if not call.program.family.sites_in_field:
            raise ValueError(f"Posteriors by row need family='full'; this is {call.program.family.name}.")
        belief = state.belief
        return local_posterior(call.program, belief.mean, belief.scale, call.rows, call.shared, state.sites)


def _check_options(
    power: float,
    schedule: str,
    damping: float | None,
    tol: float,
    max_sweeps: int,
    batch_size: int | None,
    window: int | None,
) -> None:
    if not 0.0 <= power <= 1.0:
        raise ValueError(f"power must lie in (0, 1], or be 0 for the variational limit; it is {power}.")
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule={schedule!r} is not known; use one of {sorted(SCHEDULES)}.")
    if damping is not None and not 0.0 < damping <= 1.0:
        raise ValueError(f"damping must lie in (0, 1]; it is {damping}.")
    if not tol > 0.0 or max_sweeps < 1:
        raise ValueError(f"tol must be positive and max_sweeps at least 1; they are {tol} and {max_sweeps}.")
    for name, value, of in (
        ("batch_size", batch_size, ("minibatch", "stochastic")),
        ("window", window, ("window",)),
    ):
        if value is not None and (value < 1 or schedule not in of):
            raise ValueError(f"{name}={value}: it must be at least 1, and belongs to schedule {' or '.join(of)}.")
    if schedule == "window" and window is None:
        raise ValueError("schedule='window' needs window=: how many rows keep their sites.")


def _blank(total: int, program: Program) -> VisitInfo:
    return VisitInfo(*(np.array(a) for a in empty_info(total, program.dtype, True)))


def _listed(rows: np.ndarray) -> str:
    return ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
