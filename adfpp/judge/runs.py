"""Runs each kind of method on a model and its data, and returns the posterior as a ``Fit``."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.infer import MCMC, SVI, DiscreteHMCGibbs, HMCGibbs
from numpyro.infer.autoguide import AutoGuide, AutoLaplaceApproximation, AutoMultivariateNormal

from adfpp.engine.families import Belief, Family, family_named
from adfpp.engine.status import Status
from adfpp.judge.clock import Seconds, clock, timed
from adfpp.judge.evidence import Settling
from adfpp.judge.fits import Fit, Kind, gaussian_fit
from adfpp.learn.adf import ADF
from adfpp.learn.ep import EP, EPInfo
from adfpp.learn.posterior import Posterior
from adfpp.learn.results import Result
from adfpp.learn.stream import NotConverged, RowsMarked
from adfpp.model import Program, guide_draws
from adfpp.model.discrete import discrete_latents

# ------------------------------------------------------------------------------------------------ ADF and EP


def fit_online(
    name: str,
    learner: Any,
    rng_key: jax.Array,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    num_samples: int,
) -> Fit:
    """Runs ``ADF``, ``EP`` or another learner with their ``run`` and ``get_posterior``.

    The learner is run again without its warnings, to measure the time without compilation.
    """

    def run() -> Result:
        result = learner.run(rng_key, *args, progress_bar=False, **kwargs)
        jax.block_until_ready(result.state)
        return result

    def again() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RowsMarked)
            warnings.simplefilter("ignore", NotConverged)
            run()

    result, seconds = timed(run, again)
    post, info = learner.get_posterior(result), result.info
    counts = np.bincount(np.asarray(info.status), minlength=len(Status))
    notes = tuple(f"{counts[status]} rows {status.name}" for status in Status if status.warned and counts[status])
    method = f"{type(learner).__name__}, {_family_in_words(post.family)}"
    kind = Kind.ADF if isinstance(learner, ADF) else Kind.OTHER
    if isinstance(info, EPInfo):
        kind = Kind.EP
        method += f"{_unusual_options(learner)}, {info.sweeps} sweep{'s' * (info.sweeps != 1)}"
        notes = (str(Settling.of(info)),) * (not info.converged) + notes
    return gaussian_fit(
        name,
        method,
        post,
        jax.random.fold_in(rng_key, 1),
        num_samples,
        log_evidence=result.log_evidence,
        notes=notes,
        source=result,
        kind=kind,
        **seconds._asdict(),
    )


def left_out_densities(learner: EP, info: EPInfo) -> np.ndarray | None:
    """Log predictive density of each row given all the others, from the cavity distributions of a run of EP.

    Returns:
        ``(n,)``, NaN for rows that were refused or whose site approximation could not be removed completely; None where
        a site approximation is not that of a single complete row: with a power below 1, with one site for all rows, or
        with rows that stay absorbed.
    """
    if learner.power != 1.0 or learner.schedule in ("stochastic", "window"):
        return None
    status = np.asarray(info.status)
    whole = (status < Status.HELD) & (status != Status.PARTIAL)
    return np.where(whole, np.asarray(info.log_z, float), np.nan)


def _family_in_words(family: Family) -> str:
    parts = getattr(family, "parts", None)
    if parts is None:
        return f"{family.name} Gaussian"
    each = [f"{part.family.name}{' Gaussian' * part.gaussian} of {', '.join(part.names)}" for part in parts]
    return f"product: {'; '.join(each)}" if len(each) > 1 else each[0]


def _unusual_options(learner: Any) -> str:
    """The options of an ``EP`` that change the solution to which it converges."""
    words = f", power {learner.power:g}" * (learner.power != 1.0)
    return words + f", schedule {learner.schedule}" * (learner.schedule in ("stochastic", "window"))


# ------------------------------------------------------------------------------------------------ SVI


def fit_svi(
    name: str,
    svi: SVI,
    program: Program,
    rng_key: jax.Array,
    args: tuple[object, ...],
    kwargs: Mapping[str, Any],
    num_samples: int,
    steps: int,
) -> Fit:
    """Runs an ``SVI`` and returns the posterior of its guide."""
    guide: Callable[..., object] = svi.guide
    if isinstance(guide, AutoGuide) and discrete_latents(program):
        raise ValueError(
            f"Run {name!r} is an SVI with {type(guide).__name__}, which cannot hold a discrete latent, and the model "
            f"has {discrete_latents(program)[0].name!r}. Leave the run out, or write a guide that samples this latent."
        )
    run_key, draw_key = jax.random.split(rng_key)
    with clock() as taken:
        result = svi.run(run_key, steps, *args, progress_bar=False, **kwargs)
        params = jax.block_until_ready(result.params)
        belief = _gaussian_of(guide, params, program)
    seconds = Seconds(taken.compiling, taken.running, taken.running)._asdict()
    notes = () if np.isfinite(result.losses[-1]) else ("the loss is not finite",)
    words = type(guide).__name__ if isinstance(guide, AutoGuide) else getattr(guide, "__name__", "a guide")
    method = f"SVI, {words}, {steps} steps"
    rest: dict[str, Any] = {"source": result, "kind": Kind.SVI, **seconds}
    if belief is not None:
        post = Posterior(program, family_named("full"), belief)
        return gaussian_fit(name, method, post, draw_key, num_samples, notes=notes, **rest)
    theta, log_q = _draws_of(guide, params, program, draw_key, args, kwargs, num_samples)
    if len(theta) > 1 and (theta == theta[0]).all():
        log_q, notes = np.full(len(theta), np.inf), (*notes, "a point, without uncertainty")
    return Fit(name, method, program, theta[None], None, log_q[None], notes=notes, **rest)


def _gaussian_of(guide: Callable[..., object], params: Mapping[str, object], program: Program) -> Belief | None:
    """A Gaussian guide as a belief; None for other guides."""
    if not isinstance(guide, AutoLaplaceApproximation | AutoMultivariateNormal):
        return None
    gaussian: Any = guide.get_posterior(params)
    # The guide concatenates the latents in its own order. The median for increasing numbers as its location shows this
    # order.
    growing = jnp.linspace(-0.5, 0.5, gaussian.loc.shape[-1])
    median = guide.median({**params, f"{guide.prefix}_loc": growing})
    _refuse_missing(median, program)
    ours = np.asarray(program.unconstrain(median)[0])
    if ours.shape != gaussian.loc.shape:
        raise ValueError(
            f"The guide has {gaussian.loc.shape[-1]} numbers and the model {program.size}: the guide was made for "
            "another model."
        )
    order = np.argsort(np.argsort(ours))
    return Belief(
        jnp.asarray(gaussian.loc[order], program.dtype), jnp.asarray(gaussian.scale_tril[order], program.dtype)
    )


def _draws_of(
    guide: Callable[..., object],
    params: Mapping[str, object],
    program: Program,
    rng_key: jax.Array,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    count: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws ``(S, N)`` from any guide in unconstrained space, and their log density ``(S,)`` there."""
    values, log_q = guide_draws(guide, params, rng_key, args, kwargs, count)
    _refuse_missing(values, program)
    theta, log_volume = program.unconstrain(values)
    return np.asarray(theta), np.asarray(log_q + log_volume)


def _refuse_missing(values: Mapping[str, ArrayLike], program: Program) -> None:
    missing = [latent.name for latent in program.latents if latent.name not in values]
    if missing:
        raise ValueError(f"The guide does not sample the model's latents {missing}: was it made for another model?")


# ------------------------------------------------------------------------------------------------ draws


def fit_mcmc(
    name: str,
    mcmc: MCMC,
    program: Program,
    rng_key: jax.Array,
    args: tuple[object, ...],
    kwargs: Mapping[str, Any],
) -> Fit:
    """Runs an ``MCMC``, or uses the samples of one that has already run."""
    seconds = Seconds()
    fields = ("hmc_state.diverging",) * isinstance(mcmc.sampler, DiscreteHMCGibbs | HMCGibbs)
    if mcmc.last_state is None:
        warm_key, run_key = jax.random.split(rng_key)
        with clock() as warming:
            mcmc.warmup(warm_key, *args, extra_fields=fields, **kwargs)
            jax.block_until_ready(mcmc.post_warmup_state)
        with clock() as sampling:
            mcmc.run(run_key, *args, extra_fields=fields, **kwargs)
            jax.block_until_ready(mcmc.get_samples())
        seconds = Seconds(warming.compiling + sampling.compiling, warming.running + sampling.running, sampling.running)
    theta = _unconstrained(program, mcmc.get_samples(group_by_chain=True), name)
    diverging = diverging_of(mcmc)
    divergences = 0 if diverging is None else int(np.sum(diverging))
    chains, draws = theta.shape[:2]
    notes = (f"{divergences} divergences",) if divergences else ()
    method = f"{type(mcmc.sampler).__name__}, {chains} x {draws} draws"
    return Fit(name, method, program, theta, notes=notes, source=mcmc, kind=Kind.MCMC, **seconds._asdict())


def diverging_of(mcmc: MCMC) -> jax.Array | None:
    """Which draws diverged, if the sampler records it, else None."""
    fields = mcmc.get_extra_fields(group_by_chain=True)
    return next((a for name, a in fields.items() if name.rpartition(".")[2] == "diverging"), None)


def fit_draws(name: str, draws: Mapping[str, ArrayLike], program: Program) -> Fit:
    """The fit of draws from the user, ``{latent: (draw, *shape)}`` or ``{latent: (chain, draw, *shape)}``."""
    grouped = {}
    for latent in program.latents:
        if latent.name not in draws:
            raise ValueError(f"The draws given as reference have no latent {latent.name!r}; they have {sorted(draws)}.")
        a = np.asarray(draws[latent.name])
        lead = a.ndim - len(latent.shape)
        if a.shape[lead:] != latent.shape or lead not in (1, 2):
            raise ValueError(
                f"The draws of latent {latent.name!r} have shape {a.shape}; they must be (draw, …) or (chain, draw, …) "
                f"with … = {latent.shape}."
            )
        grouped[latent.name] = a if lead == 2 else a[None]
    theta = _unconstrained(program, grouped, name)
    return Fit(name, f"given draws, {theta.shape[0]} x {theta.shape[1]}", program, theta, kind=Kind.DRAWS)


def _unconstrained(program: Program, draws: Mapping[str, ArrayLike], name: str) -> np.ndarray:
    missing = [latent.name for latent in program.latents if latent.name not in draws]
    if missing:
        raise ValueError(f"Run {name!r} has no draws of the latents {missing}: it is of another model.")
    return np.asarray(program.unconstrain(draws)[0])
