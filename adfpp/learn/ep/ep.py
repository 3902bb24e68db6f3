"""Expectation propagation: the same update and projection as ADF, visited again with each row's old say taken out."""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.families import Belief, Family, Product, asked_family
from adfpp.engine.status import Status
from adfpp.engine.tilt import Moments, Variational, moments_named
from adfpp.learn.ep.schedules import SCHEDULES, Progress, Reached, Settings, Task
from adfpp.learn.ep.sweeps import Compiled, compiled
from adfpp.learn.explain import Explanation, explanation
from adfpp.learn.posterior import Posterior
from adfpp.learn.results import Result, Run, remembering
from adfpp.learn.session import Calls
from adfpp.learn.start import Base, Start, ThetaBase, base_of, theta_base
from adfpp.learn.stream import NotConverged, RowsMarked, suitable_chunk
from adfpp.model import ModelError, Program, local_posterior

EPResult = Result


class EPState(NamedTuple):
    """What EP keeps: the belief and the sites that it is made of.

    Attributes:
        belief: The approximate posterior of the flat unconstrained θ: base times all sites.
        sites: For each group of a row's factors ``(n, E, numbers)``.
        priors: ``{key: (E, numbers)}`` sites of the prior's factors.
        base: What of the prior is of the family itself.
        rows: ``()`` rows absorbed.
        rng_key: For moment rules that draw: a row's points are the same in every sweep.
    """

    belief: Any
    sites: tuple[np.ndarray, ...]
    priors: dict[str, jax.Array]
    base: Base | ThetaBase
    rows: jax.Array
    rng_key: jax.Array


class EPInfo(NamedTuple):
    """What became of a run.

    Attributes:
        converged: Whether the last sweep would have moved no mean by more than ``tol`` sds and no sd by more than that
            relatively, undamped, with no site held back.
        sweeps: Sweeps made.
        step: ``(sweeps,)`` how far each sweep would have moved the belief, undamped.
        damping: ``(sweeps,)`` how much of it was done.
        log_evidence: EP's estimate of log p(data); under "window" that of ADF, under "stochastic" there is none (NaN).
        log_z: ``(n,)`` log predictive density of each row given all the others, 0 for a refused row; of a row with
            several factors the sum of theirs, each given all the others. (With a power below 1, of that power of the
            row; under "window" given the rows before it; under "stochastic" given almost all.)
        status: ``(n,)`` ``Status`` codes.
        error: ``(n,)`` estimated error of the tilted moments.
        clamped: Sites whose precision was negative by no more than that error, and was set to 0, in the last sweep.
        priors: ``{key: status}`` the worst ``Status`` code of the prior's factors.
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


_RESERVED = frozenset("rng_key state prior progress_bar".split())


class EP:
    """Bayesian inference by expectation propagation: ADF's rows are visited again until they agree.

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
        power: Fraction of a factor that is tilted with at a time, in (0, 1]; 0 for the limit, where EP becomes
            variational inference (exclusive KL).
        schedule: "parallel" visits all rows from one belief, "sequential" one after the other, "minibatch" some at a
            time; "stochastic" keeps one site tied across all rows; "window" keeps the sites of the last rows only.
            "auto" passes over the rows once as ADF does, in random order, and goes on in sequence while θ is small, in
            parallel while it is large, and then in sequence where that does not settle.
        damping: How much of each step is done, in (0, 1]; found by itself when None.
        tol: Convergence: what no mean (in sds) and no sd (relatively) may move by in an undamped sweep.
        max_sweeps: Sweeps after which the run ends.
        batch_size: Rows visited at a time by "minibatch" and "stochastic".
        window: Rows that keep their sites under "window".
        rows: Names of the arguments that carry rows; found from the model when None.
    """

    def __init__(
        self,
        model: Callable[..., Any],
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
        """Checks the options; the model is read when data first shows its shapes."""
        if not callable(model):
            raise TypeError(f"model must be a callable with numpyro.sample statements; it is {model!r}.")
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
        self.model = model
        self.family = asked_family(family)
        if not self.family.sites_in_field and schedule not in ("auto", "sequential"):
            raise ValueError(
                f"schedule={schedule!r} needs family='full': the {self.family.name} family forgets correlations after "
                "each row, so rows are visited in sequence."
            )
        self.power, self.schedule, self.damping, self.tol, self.max_sweeps = power, schedule, damping, tol, max_sweeps
        self.batch_size, self.window = batch_size, window
        self.moments = moments_named(moments)
        if power < 1.0:  # closed forms know the whole factor
            self.moments = replace(self.moments, closed=False)
        self.rows = (rows,) if isinstance(rows, str) else tuple(rows) if rows is not None else None
        clashes = sorted(_RESERVED & set(inspect.signature(model).parameters))
        if clashes:
            raise ValueError(f"The model's argument {clashes[0]!r} is also an option of EP's methods; rename it.")
        self.calls = Calls(model, self.rows, self._rules(), self.family, self._compiled)
        # the limit of power 0 starts from where power 1 ends: under a vague belief the mean of a log-likelihood may be
        # infinite
        self._first = None
        if power == 0.0:
            self._first = EP(model, self.family, self.moments, 1.0, "auto", damping, tol, max_sweeps, rows=self.rows)

    def _rules(self) -> Moments:
        if self.power > 0.0:
            return self.moments
        rule = Variational()
        return replace(self.moments, quadrature=rule, monte_carlo=rule)

    def _compiled(self, program: Program) -> Compiled:
        return compiled(program.family, program, partial(self.calls.prior_groups, program))

    # ------------------------------------------------------------------------------------------ reading

    def explain(self, *args: Any, prior: Any = None, **kwargs: Any) -> Explanation:
        """How the model is understood: sites, factors with their fields and moment rules, rows and constants.

        Args:
            *args: The model's arguments.
            prior: As in ``run``.
            **kwargs: The model's keyword arguments.
        """
        plan, rows, shared = self.calls.planned(args, kwargs)
        self.calls.check(plan.program, rows, shared)
        found = self.calls.prior(plan.program, rows, shared, prior, revisited=True)
        return explanation(plan.program, found)

    def init(self, rng_key: jax.Array, *args: Any, prior: Any = None, **kwargs: Any) -> EPState:
        """The state before any row: the prior, and sites that say nothing.

        Args:
            rng_key: Key, kept in the state for moment rules that draw.
            *args: The model's arguments: all rows.
            prior: A ``Posterior`` to start from instead of the model's prior, or ``{site: distribution}`` in the place
                of some sites' priors.
            **kwargs: The model's keyword arguments.
        """
        if prior is not None and not isinstance(prior, Posterior | Mapping):
            raise TypeError(
                f"prior must be a Posterior or a dict {{site: distribution}}; it is a {type(prior).__name__}."
            )
        plan, rows, shared = self.calls.planned(args, kwargs)
        program = plan.program
        self.calls.check(program, rows, shared)
        self._refuse_schedule(program)
        self._refuse_divided(program)
        found, (belief, priors) = self.calls.start(program, rows, shared, prior, revisited=True)
        self.calls.latest = program
        if program.family.sites_in_field:
            base: Any = base_of(found.blocks, program.size, program.dtype)
        else:
            base = theta_base(program.family, Start(belief, priors), found.blocks)
        total = rows[0].shape[0]
        dtype = np.dtype(program.dtype)
        sites = tuple(
            np.zeros((total, g.count, program.family.site_numbers(g.field_size, program.size)), dtype)
            for g in program.factors
        )
        return EPState(belief, sites, priors, base, jnp.zeros((), int), rng_key)

    def _refuse_schedule(self, program: Program) -> None:
        if isinstance(program.family, Product) and self.power == 0.0:
            raise ModelError(
                "power=0, the variational limit, is for Gaussian families: a product of others has no such message. "
                "Use a power above 0."
            )
        if not program.family.sites_in_field and self.schedule not in ("auto", "sequential"):
            raise ModelError(
                f"schedule={self.schedule!r} needs a full Gaussian, and this model's family is {program.family.name}: "
                "its rows are visited in sequence."
            )

    def _refuse_divided(self, program: Program) -> None:
        whole = [g.name for g in program.factors if g.local is not None and g.local.numbers]
        if whole and self.power < 1.0:
            names = ", ".join(s.name for s in program.local if s.support is None)
            raise ModelError(
                f"power={self.power:g} with local latents: {names} is integrated out of site {whole[0]!r} by row, "
                "and a power of what is left is not what is left of a power. Use power=1, or make it a global site "
                "with a value for each row."
            )

    # ------------------------------------------------------------------------------------------ running

    def run(
        self,
        rng_key: jax.Array,
        *args: Any,
        state: Any = None,
        prior: Any = None,
        progress_bar: bool = True,
        **kwargs: Any,
    ) -> Result:
        """Visits all rows until their sites settle, with a progress bar.

        Interrupted (Ctrl-C), it warns how far it came and gives back what was reached.

        Args:
            rng_key: Key for the orders in which rows are visited, and for moment rules that draw.
            *args: The model's arguments: all rows. NumPy memory maps are read a chunk at a time.
            state: Where to go on from: EP's own state or result with the same rows, or that of an ``ADF`` that has
                folded them; the prior when None.
            prior: As in ``init``.
            progress_bar: Whether to show one.
            **kwargs: The model's keyword arguments.

        Returns:
            ``Result(state, info)``, see ``EPState`` and ``EPInfo``. The result also has ``posterior`` and
            ``log_evidence``, and runs ``again``.
        """
        init_key, order_key = jax.random.split(rng_key)
        given = state
        if isinstance(state, Result):
            remembered = vars(state).get("_run")
            if prior is None and remembered is not None:
                prior = remembered.start
            state = state.state
        if self._first is not None and state is None:
            state = self._first.run(init_key, *args, prior=prior, progress_bar=progress_bar, **kwargs).state
        plan, rows, shared = self.calls.planned(args, kwargs)
        program, total = plan.program, rows[0].shape[0]
        begun = self.init(init_key, *args, prior=prior, **kwargs)
        if self.schedule == "stochastic":
            begun = begun._replace(sites=tuple(a[:0] for a in begun.sites))
        warm = None
        if isinstance(state, EPState):
            shapes = [a.shape for a in begun.sites]
            if [a.shape for a in state.sites] != shapes:
                raise ValueError(
                    f"The state holds sites of shapes {[a.shape for a in state.sites]}; these rows and this model need "
                    f"{shapes}. Go on with the rows that it has seen, or begin anew with "
                    "prior=ep.get_posterior(state)."
                )
            begun = state._replace(sites=tuple(np.array(a) for a in state.sites), base=begun.base)
        elif state is not None:
            self.calls.refuse_foreign(state.belief.mean.shape[-1], program)
            if not program.family.sites_in_field or state.belief.scale.ndim != 2:
                raise ValueError("Only a state of the full family can be handed on to EP with family='full'.")
            warm = state.belief
        settings = Settings(self.power, self.damping, self.tol, self.max_sweeps, self.batch_size, self.window)
        task = Task(
            program.family,
            program,
            plan.compiled,
            rows,
            shared,
            begun.base,
            suitable_chunk(rows, total),
            order_key,
            settings,
            begun.rng_key,
        )
        started = isinstance(state, EPState) and int(state.rows) > 0
        with Progress(progress_bar) as progress:
            reached = SCHEDULES[self.schedule](task, begun.belief, begun.sites, begun.priors, warm, started, progress)
        return self._result(reached, begun, program, rng_key, prior, given, total)

    def _result(
        self,
        reached: Reached,
        begun: EPState,
        program: Program,
        rng_key: jax.Array,
        prior: Any,
        given: Any,
        total: int,
    ) -> Result:
        rows = reached.info
        absorbed = jnp.asarray(int((rows.status < Status.NOT_FINITE).sum()))
        base = begun.base if reached.base is None else reached.base
        sites = reached.sites
        if self.window is not None:
            sites = tuple(a[-self.window :] for a in sites)
        state = EPState(reached.belief, sites, reached.priors, base, absorbed, begun.rng_key)
        info = EPInfo(
            reached.converged,
            len(reached.steps),
            np.array(reached.steps),
            np.array(reached.dampings),
            reached.log_evidence,
            rows.log_z,
            rows.status,
            rows.error,
            int(rows.clamped.sum()),
            reached.prior_status,
        )
        if self.power == 0.0 and (rows.status == Status.OUT_OF_SUPPORT).any():
            # what these rows hold is what power 1 made of them
            info = info._replace(converged=False)
            warnings.warn(
                "The limit of power 0 does not exist for rows whose likelihood is zero somewhere: the mean of its "
                "logarithm is infinite. Use a power above 0, or a likelihood without zeros.",
                NotConverged,
                stacklevel=3,
            )
        posterior = Posterior(program, program.family, reached.belief)
        options = {"state": given, "prior": prior}
        result = remembering(Result(state, info), Run(self, posterior, prior, None, total, None, rng_key, options))
        self._warn(info, reached)
        return result

    def _warn(self, info: EPInfo, reached: Reached) -> None:
        if not reached.converged and not reached.interrupted:
            moved = np.flatnonzero(info.status == Status.HELD)
            held = f" Rows held back: {_listed(moved)}." if len(moved) else ""
            prior = [k for k, s in info.priors.items() if s == Status.HELD]
            held += f" Prior factors held back: {', '.join(prior)}." if prior else ""
            last = f"{info.step[-1]:.2g}" if len(info.step) else "nan"
            plural = "s" if info.sweeps != 1 else ""
            unsettled = f" The rows that move most: {_listed(reached.unsettled)}." if len(reached.unsettled) else ""
            warnings.warn(
                f"EP has not settled after {info.sweeps} sweep{plural}: undamped, the last moves the belief by "
                f"{last} sds (tol {self.tol:g}).{unsettled}{held} What is returned is the last proper "
                "belief. Give it more max_sweeps, a damping such as .3, schedule='sequential' or power=.5, and check "
                "it against NUTS.",
                NotConverged,
                stacklevel=4,
            )
        counts = np.bincount(info.status, minlength=len(Status))
        bad = [(s, int(counts[s])) for s in Status if s.warned and counts[s]]
        if bad:
            told = "; ".join(f"{c} {s.name} ({s.advice})" for s, c in bad)
            warnings.warn(f"{sum(c for _, c in bad)} of {len(info.status)} rows: {told}.", RowsMarked, stacklevel=4)

    def get_posterior(self, state: Any) -> Posterior:
        """The posterior that a state (or a result) holds."""
        state = state.state if isinstance(state, Result) else state
        program = self.calls.posterior_program(state.belief.mean.shape[-1])
        return Posterior(program, program.family, state.belief)

    def get_local(self, state: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Posteriors of the latent sites in the data plate, which are integrated out row by row.

        Args:
            state: The state or result reached.
            *args: The model's arguments: the rows that it holds.
            **kwargs: The model's keyword arguments.

        Returns:
            For a discrete site ``{site: probabilities (n, ..., K)}`` over the values of its support, for a continuous
            one ``{site: (mean, sd)}``, each ``(n, ...)``, in unconstrained space.
        """
        state = state.state if isinstance(state, Result) else state
        plan, rows, shared = self.calls.planned(args, kwargs)
        if any(a.shape[0] != rows[0].shape[0] for a in state.sites):
            raise ValueError(
                f"The state holds sites of {state.sites[0].shape[0]} rows, and these are {rows[0].shape[0]}: pass the "
                "rows that it holds."
            )
        if not plan.program.family.sites_in_field:
            raise ValueError(f"Posteriors by row need family='full'; this is {plan.program.family.name}.")
        belief: Belief = state.belief
        return local_posterior(plan.program, belief.mean, belief.scale, rows, shared, state.sites)


def _listed(rows: np.ndarray) -> str:
    return ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
