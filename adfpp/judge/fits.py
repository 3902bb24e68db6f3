"""What a run of any method leaves behind in one form: draws of θ, moments, densities, seconds, and its health."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS, SVI, DiscreteGibbs, DiscreteHMCGibbs, HMCGibbs
from numpyro.infer.autoguide import AutoGuide, AutoLaplaceApproximation, AutoMultivariateNormal

from adfpp.engine.families import Belief, Product, family_named
from adfpp.engine.status import Status
from adfpp.learn.ep.ep import EPInfo, NotConverged
from adfpp.learn.posterior import Posterior, scalar_names
from adfpp.learn.stream import RowsMarked
from adfpp.model import Joint, Program, guide_draws, same_space
from adfpp.model.discrete import combinations, discrete_latents, listed, log_joint_of

REPEAT_FOR = 1.0  # seconds spent on repeating a run to time it without compilation


@dataclass
class Clock:
    """Seconds of a stretch of work, those of compilation apart."""

    wall: float = 0.0
    spans: list[tuple[float, float]] = field(default_factory=list)

    @property
    def compiling(self) -> float:
        """Seconds in which something was traced, lowered or compiled; nested stretches count once."""
        total, reached = 0.0, -np.inf
        for start, stop in sorted(self.spans):
            total += max(0.0, stop - max(start, reached))
            reached = max(reached, stop)
        return min(total, self.wall)

    @property
    def running(self) -> float:
        """The rest."""
        return self.wall - self.compiling


@contextmanager
def clock() -> Iterator[Clock]:
    """Times what happens inside."""
    out = Clock()

    def heard(event: str, duration_secs: float, **kwargs: Any) -> None:
        if "/compile/" in event:
            now = time.perf_counter()
            out.spans.append((now - duration_secs, now))

    jax.monitoring.register_event_duration_secs_listener(heard)
    begin = time.perf_counter()
    try:
        yield out
    finally:
        out.wall = time.perf_counter() - begin
        jax.monitoring.unregister_event_duration_listener(heard)


class Table(NamedTuple):
    """A posterior of discrete latents, enumerated.

    Attributes:
        theta: ``(M, N)`` every combination of their values.
        log_weights: ``(M,)`` its log posterior probability.
    """

    theta: np.ndarray
    log_weights: np.ndarray


@runtime_checkable
class Comparable(Protocol):
    """A learner of another kind than ``ADF`` and ``EP`` that knows how to be compared on a model."""

    def compared(
        self,
        name: str,
        program: Program,
        rng_key: jax.Array,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        num_samples: int,
    ) -> "Fit":
        """Runs the learner on the model's rows and returns the fit."""
        ...


@dataclass(frozen=True, eq=False)
class Fit:
    """One method's posterior of one model and data.

    Attributes:
        name: What the run is called.
        method: How it was made, in words.
        program: The model as it was read.
        theta: ``(chain, draw, N)`` draws, in the program's coordinates: unconstrained, or in the space of sites that
            are held in their own.
        posterior: The Gaussian in unconstrained space or the product over sites, where the approximation is one.
        log_q: ``(chain, draw)`` log density of the draws under the approximation, infinite for a point estimate; None
            for MCMC and given draws.
        log_evidence: The method's own log p(data), where it has one.
        compile_seconds: To trace and compile.
        run_seconds: Of the run itself: for MCMC warm-up and sampling.
        sampling_seconds: Of MCMC's sampling alone, else the same as ``run_seconds``.
        notes: What is to be said of the run: divergences, refused rows.
        source: The run's own result.
        table: The exact posterior, if it was enumerated: the draws are then independent draws from it.
    """

    name: str
    method: str
    program: Program
    theta: np.ndarray
    posterior: Posterior | None = None
    log_q: np.ndarray | None = None
    log_evidence: float = np.nan
    compile_seconds: float = np.nan
    run_seconds: float = np.nan
    sampling_seconds: float = np.nan
    notes: tuple[str, ...] = ()
    source: Any = None
    table: Table | None = None

    def beside(self, truth: "Fit") -> "Fit":
        """The fit in the units of a reference, for sources whose own scale means nothing; others are unchanged."""
        scaled = getattr(self.source, "scaled_to", None)
        return self if scaled is None else scaled(self, truth)

    @property
    def is_sampler(self) -> bool:
        """Whether the draws are meant to be from the posterior itself."""
        return self.log_q is None

    @property
    def is_ep(self) -> bool:
        """Whether its rows were visited again: there is no stream, and EP is no cure."""
        return isinstance(getattr(self.source, "info", None), EPInfo)

    @property
    def is_point(self) -> bool:
        """Whether it is a point estimate, without uncertainty."""
        return self.log_q is not None and bool((self.log_q == np.inf).all())

    @cached_property
    def flat(self) -> np.ndarray:
        """``(S, N)``: the draws of all chains."""
        return self.theta.reshape(-1, self.theta.shape[-1])

    @cached_property
    def draws(self) -> dict[str, np.ndarray]:
        """``{site: (chain, draw, *site_shape)}`` in the sites' own spaces."""
        return {name: np.asarray(a) for name, a in self.program.constrain(jnp.asarray(self.theta)).items()}

    @cached_property
    def names(self) -> list[str]:
        """Names of the scalar parameters, in the order of ``scalars``; those that cannot vary have no place in it."""
        names = [n for s in self.program.latents for n in scalar_names(s.name, s.shape)]
        return [n for n, varies in zip(names, self._varying, strict=True) if varies]

    @cached_property
    def _varying(self) -> np.ndarray:
        """Which scalars depend on θ at all: the zeros and the first element of a Cholesky factor do not."""
        theta = np.random.default_rng(0).normal(size=(8, self.program.size))
        values = self.program.constrain(jnp.asarray(theta, self.program.dtype))
        flat = np.concatenate([np.asarray(values[s.name]).reshape(len(theta), -1) for s in self.program.latents], -1)
        own = np.concatenate([np.full(int(np.prod(s.shape)), s.native is not None) for s in self.program.latents])
        return own | (np.ptp(flat, 0) > 64 * float(jnp.finfo(self.program.dtype).eps) * np.abs(flat).max(0))

    @cached_property
    def levels(self) -> list[tuple[float, ...] | None]:
        """``(P,)`` the values of each scalar parameter if it is discrete, else None."""
        each = [
            s.native.values if s.discrete else None for s in self.program.latents for _ in range(int(np.prod(s.shape)))
        ]
        return [v for v, varies in zip(each, self._varying, strict=True) if varies]

    @cached_property
    def discrete(self) -> np.ndarray:
        """``(P,)`` which scalar parameters are discrete."""
        return np.array([v is not None for v in self.levels], bool)

    @cached_property
    def log_probabilities(self) -> dict[int, np.ndarray]:
        """Of each discrete parameter, by its number, the log-probability of each of its values ``(K,)``."""
        if self.posterior is None:
            weights = np.full(len(self.flat), 1.0 / len(self.flat))
            flat = self._flat_scalars
            if self.table is not None:
                weights, flat = np.exp(self.table.log_weights), self._table_scalars
            with np.errstate(divide="ignore"):
                return {
                    int(i): np.log(np.minimum(weights @ (flat[:, [i]] == np.asarray(self.levels[i])), 1.0))
                    for i in np.flatnonzero(self.discrete)
                }
        family, found = self.posterior.family, []
        for site in discrete_latents(self.program):
            part = family.part_of(site.name)
            held = self.posterior.belief.parts[family.parts.index(part)]
            logs = [part.family.log_prob(held, jnp.full((part.count, 1), v, held.dtype)) for v in site.native.values]
            found += list(np.stack([np.asarray(a, float) for a in logs], -1))
        return dict(zip(np.flatnonzero(self.discrete).tolist(), found, strict=True))

    @cached_property
    def probability_se(self) -> dict[int, np.ndarray]:
        """Their Monte-Carlo standard errors, of the probabilities: 0 where they are exact.

        A value that was never drawn, or always, is known to one draw of all: that is the least they are.
        """
        out = {}
        for i, logs in self.log_probabilities.items():
            p = np.exp(logs)
            out[i] = np.zeros(len(p))
            if self.posterior is None and self.table is None:
                hits = (self.scalars[..., [i]] == np.asarray(self.levels[i])).astype(float)
                effective = _quietly(effective_sample_size, hits)
                count = len(self.flat)
                effective = np.where((hits == hits[:1, :1]).all((0, 1)), count, effective)
                with np.errstate(divide="ignore", invalid="ignore"):  # NaN where chains stay apart
                    out[i] = np.maximum(np.sqrt(p * (1.0 - p) / effective), 1.0 / count)
        return out

    def in_space_of(self, program: Program) -> np.ndarray:
        """``(S, N)``: the draws as another program's coordinates, which holds some sites in another space."""
        if same_coordinates(self.program, program):
            return self.flat
        values = {name: a.reshape(-1, *a.shape[2:]) for name, a in self.draws.items()}
        return np.asarray(program.unconstrain(values)[0])

    @cached_property
    def scalars(self) -> np.ndarray:
        """``(chain, draw, P)``: the draws as scalar parameters."""
        lead = self.theta.shape[:2]
        flat = np.concatenate([self.draws[s.name].reshape((*lead, -1)) for s in self.program.latents], -1)
        return flat[..., self._varying]

    @property
    def _flat_scalars(self) -> np.ndarray:
        return self.scalars.reshape(-1, len(self.names))

    @cached_property
    def _table_scalars(self) -> np.ndarray:
        """``(M, P)``: the combinations as scalar parameters."""
        assert self.table is not None
        values = self.program.constrain(jnp.asarray(self.table.theta))
        count = len(self.table.theta)
        flat = np.concatenate([np.asarray(values[s.name]).reshape(count, -1) for s in self.program.latents], -1)
        return flat[:, self._varying]

    @cached_property
    def mean(self) -> np.ndarray:
        """``(P,)`` posterior means; without sampling error where they are known."""
        if self.posterior is not None:
            return self._joined(self.posterior.mean())
        if self.table is not None:
            return np.exp(self.table.log_weights) @ self._table_scalars
        return self.scalars.mean((0, 1))

    @cached_property
    def sd(self) -> np.ndarray:
        """``(P,)`` posterior sds; without sampling error where they are known."""
        if self.posterior is not None:
            return self._joined(self.posterior.sd())
        if self.table is not None:
            return np.sqrt(np.exp(self.table.log_weights) @ (self._table_scalars - self.mean) ** 2)
        return self.scalars.reshape(-1, len(self.names)).std(0, ddof=1)

    def quantiles(self, q: np.ndarray) -> np.ndarray:
        """``(len(q), P)`` marginal quantiles."""
        if self.posterior is not None:
            found = self.posterior.quantile(q)
            flat = np.concatenate([np.asarray(found[s.name]).reshape(len(q), -1) for s in self.program.latents], -1)
            return flat[:, self._varying]
        if self.table is not None:
            order = np.argsort(self._table_scalars, 0, kind="stable")
            below = np.cumsum(np.exp(self.table.log_weights)[order], 0)
            at = [np.searchsorted(c, np.asarray(q) * c[-1]) for c in below.T]
            values = np.take_along_axis(self._table_scalars, order, 0)
            return np.stack([v[np.minimum(i, len(v) - 1)] for v, i in zip(values.T, at, strict=True)], -1)
        return np.quantile(self.scalars.reshape(-1, len(self.names)), q, axis=0)

    @cached_property
    def unconstrained(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean ``(N,)`` and covariance ``(N, N)`` in the program's coordinates."""
        if self.posterior is not None and isinstance(self.posterior.family, Product):
            return _product_moments(self.posterior.family, self.posterior.belief)
        if self.posterior is not None:
            mean, scale = (np.asarray(a) for a in self.posterior.belief)
            return mean, scale @ scale.T if scale.ndim == 2 else np.diag(np.broadcast_to(scale**2, mean.shape))
        return self.flat.mean(0), np.atleast_2d(np.cov(self.flat.T))

    @cached_property
    def ess(self) -> np.ndarray:
        """``(P,)`` effective sample sizes of the means; infinite where they are exact."""
        if self.posterior is not None or self.table is not None:
            return np.full(len(self.names), np.inf)
        return np.where(self._settled, len(self.flat), _quietly(effective_sample_size, self.scalars))

    @cached_property
    def mcse(self) -> np.ndarray:
        """``(P,)`` Monte-Carlo standard errors of the means, in this fit's sds."""
        return 1.0 / np.sqrt(self.ess)

    @cached_property
    def sd_mcse(self) -> np.ndarray:
        """``(P,)`` Monte-Carlo standard errors of the sds, relative."""
        if self.posterior is not None or self.table is not None:
            return np.zeros(len(self.names))
        squares = (self.scalars - self.mean) ** 2
        effective = _quietly(effective_sample_size, squares)
        with np.errstate(divide="ignore", invalid="ignore"):  # draws that do not move
            return 0.5 * squares.reshape(-1, len(self.names)).std(0) / (self.sd**2 * np.sqrt(effective))

    @cached_property
    def r_hat(self) -> np.ndarray:
        """``(P,)`` split R-hat of the draws."""
        if self.table is not None:
            return np.ones(len(self.names))
        return np.where(self._settled, 1.0, _quietly(split_gelman_rubin, self.scalars))

    @cached_property
    def _settled(self) -> np.ndarray:
        """``(P,)`` discrete parameters that all chains hold at one value: the diagnostics know nothing of these."""
        return self.discrete & (self.scalars == self.scalars[:1, :1]).all((0, 1))

    def _joined(self, values: Mapping[str, Any]) -> np.ndarray:
        return np.concatenate([np.asarray(values[s.name]).reshape(-1) for s in self.program.latents])[self._varying]


def same_coordinates(one: Program, other: Program) -> bool:
    """Whether a θ means the same to two programs."""
    return one is other or all(same_space(a, b) for a, b in zip(one.latents, other.latents, strict=True))


def _product_moments(family: Product, belief: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean ``(N,)`` and covariance ``(N, N)`` of a product."""
    covariance = np.zeros((family.size, family.size))
    for part, held in zip(family.parts, belief.parts, strict=True):
        if part.gaussian:
            root = np.asarray(held.scale, float)
            own = root @ root.T if root.ndim == 2 else np.diag(np.broadcast_to(root**2, len(part.where)))
            covariance[np.ix_(part.where, part.where)] = own
        else:
            places = part.places
            covariance[places[:, :, None], places[:, None, :]] = np.asarray(part.family.covariance(held))
    return np.asarray(belief.mean, float), covariance


def _quietly(diagnostic: Callable[[Any], Any], draws: np.ndarray) -> np.ndarray:
    """A diagnostic of ``(chain, draw, P)``; NaN, and no warning, where draws do not move."""
    with np.errstate(all="ignore"):
        return np.atleast_1d(np.asarray(diagnostic(draws)))


# -------------------------------------------------------------------------------------------- from each kind of run


def fit_online(
    name: str,
    learner: Any,
    rng_key: jax.Array,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    num_samples: int,
) -> Fit:
    """Runs ``ADF``, ``EP`` (or what has their ``run`` and ``get_posterior``)."""
    begin = time.perf_counter()
    result = learner.run(rng_key, *args, progress_bar=False, **kwargs)
    jax.block_until_ready(result.state)
    first = time.perf_counter() - begin
    taken: list[float] = []
    with warnings.catch_warnings():
        for said_once in (RowsMarked, NotConverged):
            warnings.simplefilter("ignore", said_once)
        while sum(taken) < REPEAT_FOR and len(taken) < 5:
            begin = time.perf_counter()
            jax.block_until_ready(learner.run(rng_key, *args, progress_bar=False, **kwargs).state)
            taken.append(time.perf_counter() - begin)
    post = learner.get_posterior(result)
    info = result.info
    counts = np.bincount(np.asarray(info.status), minlength=len(Status))
    notes = tuple(f"{counts[s]} rows {s.name}" for s in Status if s.warned and counts[s])
    method = f"{type(learner).__name__}, {_family_words(post.family)}"
    if isinstance(info, EPInfo):
        method += f"{_unusual(learner)}, {info.sweeps} sweep{'s' * (info.sweeps != 1)}"
        notes = (not_settled(info),) * (not info.converged) + notes
    return gaussian_fit(
        name,
        method,
        post,
        jax.random.fold_in(rng_key, 1),
        num_samples,
        log_evidence=result.log_evidence,
        compile_seconds=max(0.0, first - min(taken)),
        run_seconds=min(taken),
        sampling_seconds=min(taken),
        notes=notes,
        source=result,
    )


def _family_words(family: Any) -> str:
    if not isinstance(family, Product):
        return f"{family.name} Gaussian"
    each = [f"{p.family.name}{' Gaussian' * p.gaussian} of {', '.join(p.names)}" for p in family.parts]
    return f"product: {'; '.join(each)}" if len(each) > 1 else each[0]


def _unusual(learner: Any) -> str:
    """The options of an ``EP`` that change what it settles at."""
    words = f", power {learner.power:g}" * (learner.power != 1.0)
    return words + f", schedule {learner.schedule}" * (learner.schedule in ("stochastic", "window"))


def not_settled(info: EPInfo) -> str:
    """That a run of EP has not settled, in words."""
    if not len(info.step):
        return "not settled: it made no sweep"
    made = f"{info.sweeps} sweep{'s' * (info.sweeps != 1)}"
    return f"not settled after {made}: the last would move it by {info.step[-1]:.2g} sd"


def left_out_densities(learner: Any, info: EPInfo) -> np.ndarray | None:
    """Log predictive density of each row given all the others, from the cavities of a run of EP.

    Returns:
        ``(n,)``, NaN for rows that were refused or whose site could not be taken out whole; None where sites are not
        of single whole rows: with a power below 1, or one site for all rows, or rows that stay absorbed.
    """
    if learner.power != 1.0 or learner.schedule in ("stochastic", "window"):
        return None
    status = np.asarray(info.status)
    whole = (status < Status.HELD) & (status != Status.PARTIAL)
    return np.where(whole, np.asarray(info.log_z, float), np.nan)


def gaussian_fit(name: str, method: str, post: Posterior, rng_key: jax.Array, num_samples: int, **rest: Any) -> Fit:
    """Draws from a posterior that is known, and their densities."""
    theta = post.draw(rng_key, num_samples)
    log_q = np.asarray(post.distribution.log_prob(theta))
    return Fit(name, method, post.program, np.asarray(theta)[None], post, log_q[None], **rest)


def fit_svi(
    name: str,
    svi: SVI,
    program: Program,
    rng_key: jax.Array,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    num_samples: int,
    steps: int,
) -> Fit:
    """Runs an ``SVI`` and takes its guide's posterior."""
    if isinstance(svi.guide, AutoGuide) and discrete_latents(program):
        raise ValueError(
            f"Run {name!r} is an SVI with {type(svi.guide).__name__}, which holds no discrete site, and the model has "
            f"{discrete_latents(program)[0].name!r}. Leave the run out, or write a guide that samples this site."
        )
    run_key, draw_key = jax.random.split(rng_key)
    guide = svi.guide
    with clock() as taken:
        result = svi.run(run_key, steps, *args, progress_bar=False, **kwargs)
        params = jax.block_until_ready(result.params)
        belief = _flat_gaussian(guide, params, program)
    notes = () if np.isfinite(result.losses[-1]) else ("the loss is not finite",)
    words = type(guide).__name__ if isinstance(guide, AutoGuide) else getattr(guide, "__name__", "a guide of its own")
    words = f"SVI, {words}, {steps} steps"
    seconds: dict[str, Any] = dict(
        compile_seconds=taken.compiling, run_seconds=taken.running, sampling_seconds=taken.running
    )
    if belief is not None:
        post = Posterior(program, family_named("full"), belief)
        return gaussian_fit(name, words, post, draw_key, num_samples, notes=notes, source=result, **seconds)
    theta, log_q = _from_guide(guide, params, program, draw_key, args, kwargs, num_samples)
    if len(theta) > 1 and (theta == theta[0]).all():
        log_q, notes = np.full(len(theta), np.inf), (*notes, "a point, without uncertainty")
    return Fit(name, words, program, theta[None], None, log_q[None], notes=notes, source=result, **seconds)


def _flat_gaussian(guide: Any, params: Mapping[str, Any], program: Program) -> Belief | None:
    """A Gaussian guide as a belief; None for other guides."""
    if not isinstance(guide, AutoLaplaceApproximation | AutoMultivariateNormal):
        return None
    found: Any = guide.get_posterior(params)
    # in which order the guide flattens the sites is told by the median that it would have with growing numbers in it
    growing = jnp.linspace(-0.5, 0.5, found.loc.shape[-1])
    median = guide.median({**params, f"{guide.prefix}_loc": growing})
    _refuse_missing(median, program)
    ours = np.asarray(program.unconstrain(median)[0])
    if ours.shape != found.loc.shape:
        raise ValueError(
            f"The guide has {found.loc.shape[-1]} numbers, the model {program.size}: it is of another model."
        )
    order = np.argsort(np.argsort(ours))
    return Belief(jnp.asarray(found.loc[order], program.dtype), jnp.asarray(found.scale_tril[order], program.dtype))


def _refuse_missing(values: Mapping[str, Any], program: Program) -> None:
    missing = [s.name for s in program.latents if s.name not in values]
    if missing:
        raise ValueError(f"The guide has no sites {missing}, which the model has.")


def _from_guide(
    guide: Any,
    params: Mapping[str, Any],
    program: Program,
    rng_key: jax.Array,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    count: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws ``(S, N)`` from any guide, and their log density ``(S,)``, unconstrained."""
    values, log_q = guide_draws(guide, params, rng_key, args, kwargs, count)
    _refuse_missing(values, program)
    theta, log_volume = program.unconstrain(values)
    return np.asarray(theta), np.asarray(log_q + log_volume)


def fit_mcmc(
    name: str,
    mcmc: MCMC,
    program: Program,
    rng_key: jax.Array,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Fit:
    """Runs an ``MCMC`` (or takes the samples of one that has run)."""
    seconds: dict[str, Any] = {}
    fields = ("hmc_state.diverging",) * isinstance(mcmc.sampler, DiscreteHMCGibbs | HMCGibbs)
    if mcmc.last_state is None:
        warm_key, run_key = jax.random.split(rng_key)
        with clock() as warming:
            mcmc.warmup(warm_key, *args, extra_fields=fields, **kwargs)
            jax.block_until_ready(mcmc.post_warmup_state)
        with clock() as sampling:
            mcmc.run(run_key, *args, extra_fields=fields, **kwargs)
            jax.block_until_ready(mcmc.get_samples())
        seconds = {
            "compile_seconds": warming.compiling + sampling.compiling,
            "run_seconds": warming.running + sampling.running,
            "sampling_seconds": sampling.running,
        }
    theta = _unconstrained(program, mcmc.get_samples(group_by_chain=True), name)
    diverging = diverging_of(mcmc)
    divergences = 0 if diverging is None else int(np.sum(diverging))
    chains, draws = theta.shape[:2]
    notes = (f"{divergences} divergences",) if divergences else ()
    method = f"{type(mcmc.sampler).__name__}, {chains} x {draws} draws"
    return Fit(name, method, program, theta, notes=notes, source=mcmc, **seconds)


def diverging_of(mcmc: MCMC) -> Any:
    """Which draws diverged, of a sampler that tells."""
    fields = mcmc.get_extra_fields(group_by_chain=True)
    return next((a for name, a in fields.items() if name.rpartition(".")[2] == "diverging"), None)


def fit_enumerated(
    name: str, joint: Joint, rng_key: jax.Array, rows: np.ndarray, num_samples: int, num_chains: int
) -> Fit:
    """The exact posterior of discrete latents: every combination of their values, and draws from it.

    Args:
        name: What the run is called.
        joint: Model and data.
        rng_key: Key for the draws.
        rows: The rows that count.
        num_samples: Draws in all.
        num_chains: How they are grouped.
    """
    program = joint.program
    theta = combinations(program)
    assert theta is not None
    with clock() as taken:
        log_joint = log_joint_of(joint, theta, rows)
    log_joint = np.where(np.isnan(log_joint), -np.inf, log_joint)
    log_evidence = float(np.logaddexp.reduce(log_joint))
    log_weights = log_joint - log_evidence
    draws = -(-num_samples // num_chains)
    chosen = np.asarray(jax.random.categorical(rng_key, log_weights, shape=(num_chains, draws)))
    return Fit(
        name,
        f"enumeration of {len(theta)} combinations",
        program,
        theta[chosen],
        log_evidence=log_evidence,
        compile_seconds=taken.compiling,
        run_seconds=taken.running,
        sampling_seconds=taken.running,
        table=Table(theta, log_weights),
    )


def fit_draws(name: str, draws: Mapping[str, Any], program: Program) -> Fit:
    """Takes given draws ``{site: (draw, *shape)}`` or ``{site: (chain, draw, *shape)}``."""
    grouped = {}
    for site in program.latents:
        if site.name not in draws:
            raise ValueError(f"The draws given as reference have no site {site.name!r}; they have {sorted(draws)}.")
        a = np.asarray(draws[site.name])
        lead = a.ndim - len(site.shape)
        if a.shape[lead:] != site.shape or lead not in (1, 2):
            raise ValueError(
                f"The draws of site {site.name!r} have shape {a.shape}; they must be (draw, …) or (chain, draw, …) "
                f"with … = {site.shape}."
            )
        grouped[site.name] = a if lead == 2 else a[None]
    theta = _unconstrained(program, grouped, name)
    return Fit(name, f"given draws, {theta.shape[0]} x {theta.shape[1]}", program, theta)


def _unconstrained(program: Program, draws: Mapping[str, Any], name: str) -> np.ndarray:
    missing = [s.name for s in program.latents if s.name not in draws]
    if missing:
        raise ValueError(f"Run {name!r} has no draws of the sites {missing}: it is of another model.")
    return np.asarray(program.unconstrain(draws)[0])


def nuts(model: Any, num_warmup: int, num_samples: int, num_chains: int) -> MCMC:
    """NUTS as the default reference is run."""
    return _mcmc(NUTS(model), num_warmup, num_samples, num_chains)


def gibbs(model: Any, continuous: bool, num_warmup: int, num_samples: int, num_chains: int) -> MCMC:
    """Gibbs sampling of discrete sites, element by element, with NUTS for the continuous ones if there are any."""
    own = listed(model)
    kernel = DiscreteHMCGibbs(NUTS(own)) if continuous else DiscreteGibbs(own)
    return _mcmc(kernel, num_warmup, num_samples, num_chains)


def _mcmc(kernel: Any, num_warmup: int, num_samples: int, num_chains: int) -> MCMC:
    method = "parallel" if jax.local_device_count() >= num_chains else "sequential"
    return MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method=method,
        progress_bar=False,
    )
