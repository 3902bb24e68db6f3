"""References: chooses one that a model can have, runs it, and decides whether it may be called the truth."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.infer import HMC, MCMC, NUTS, DiscreteGibbs, DiscreteHMCGibbs
from numpyro.infer.mcmc import MCMCKernel

from adfpp.judge.clock import clock
from adfpp.judge.fits import Fit, Kind, Table
from adfpp.judge.runs import diverging_of, fit_draws, fit_mcmc
from adfpp.judge.verdict import ESS, HOPELESS_ESS, HOPELESS_R_HAT, R_HAT, Cause, Grade, Reason, Verdict
from adfpp.model import Joint, Model, Program
from adfpp.model.discrete import MOST, combinations, discrete_latents, listed, log_joint_of

REFERENCES = ("auto", "nuts", "enumeration", "gibbs")
Reference = str | MCMC | Mapping[str, ArrayLike]


def kind_of(reference: str, program: Program) -> str:
    """Replaces "auto" by a reference, and refuses a reference that the model cannot have.

    Args:
        reference: One of ``REFERENCES``.
        program: The model as it was read.

    Returns:
        "nuts", "enumeration" or "gibbs".
    """
    shared = [latent.name for latent in discrete_latents(program)]
    names = shared + [latent.name for latent in program.local if latent.support is not None]
    others = [latent.name for latent in program.latents if not latent.discrete and latent.size]
    every = None if reference == "nuts" else combinations(program)
    if reference == "auto":
        return "nuts" if not names else "gibbs" if every is None else "enumeration"
    if reference == "nuts" and names:
        raise ValueError(
            f"Latent {names[0]!r} is discrete, and NUTS samples continuous latents only, by following a gradient. "
            'Leave reference="auto", or use reference="enumeration" or "gibbs".'
        )
    if reference == "enumeration" and every is None:
        if not shared:
            cause = "it has no discrete latent"
        elif others:
            cause = f"latent {others[0]!r} is continuous"
        else:
            cause = f"there are more than {MOST} combinations of values"
        cure = '"gibbs"' if shared else '"nuts"'
        raise ValueError(f"The posterior of this model cannot be enumerated: {cause}. Use reference={cure}.")
    if reference == "gibbs":
        _refuse_gibbs(program, names)
    return reference


def _refuse_gibbs(program: Program, names: list[str]) -> None:
    if not names:
        raise ValueError("reference='gibbs' samples discrete latents, and the model has none: use reference='nuts'.")
    for latent in discrete_latents(program):
        values = latent.native.values
        if values != tuple(range(len(values))):
            raise ValueError(
                f"Latent {latent.name!r} has the values {values}, and NumPyro's Gibbs sampler takes 0, 1, 2, … only. "
                "Write the model with such a code and compute the values from it, e.g. 2 * sign - 1."
            )


def refuse_discrete(runs: Mapping[str, object], program: Program) -> None:
    """Refuses a user's HMC or NUTS for a model with discrete latents that all rows share."""
    discrete = discrete_latents(program)
    for name, run in runs.items():
        if discrete and isinstance(run, MCMC) and isinstance(run.sampler, HMC) and run.last_state is None:
            raise ValueError(
                f"{name!r} is an MCMC with {type(run.sampler).__name__}, which samples continuous latents only, and "
                f"latent {discrete[0].name!r} is discrete. Use NumPyro's DiscreteHMCGibbs, or give draws."
            )


def fit_reference(
    name: str,
    reference: Reference,
    joint: Joint,
    rng_key: jax.Array,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    num_warmup: int,
    num_samples: int,
    num_chains: int,
) -> Fit:
    """Runs a reference, or wraps given draws, as a fit.

    Args:
        name: The name of the run.
        reference: "nuts", "enumeration" or "gibbs"; an ``MCMC``; or draws ``{latent: array}``.
        joint: The model with its data.
        rng_key: Key.
        args: The model's arguments.
        kwargs: The model's keyword arguments.
        num_warmup: Number of warm-up steps of a chain.
        num_samples: Total number of draws.
        num_chains: Number of chains.
    """
    program = joint.program
    if isinstance(reference, Mapping):
        return fit_draws(name, reference, program)
    if reference == "enumeration":
        return fit_enumerated(name, joint, rng_key, np.arange(joint.length), num_samples, num_chains)
    if isinstance(reference, str):
        lengths = num_warmup, -(-num_samples // num_chains), num_chains
        if reference == "nuts":
            reference = _mcmc(NUTS(program.model), *lengths)
        else:
            shared = any(not latent.discrete for latent in program.latents)
            local = any(latent.support is None for latent in program.local)
            reference = gibbs(program.model, shared or local, *lengths)
    return fit_mcmc(name, reference, program, rng_key, args, kwargs)


def gibbs(model: Model, continuous: bool, num_warmup: int, num_samples: int, num_chains: int) -> MCMC:
    """Gibbs sampling of discrete latents, element by element, with NUTS for the continuous ones if there are any."""
    enumerable = listed(model)
    kernel = DiscreteHMCGibbs(NUTS(enumerable)) if continuous else DiscreteGibbs(enumerable)
    return _mcmc(kernel, num_warmup, num_samples, num_chains)


def _mcmc(kernel: MCMCKernel, num_warmup: int, num_samples: int, num_chains: int) -> MCMC:
    method = "parallel" if jax.local_device_count() >= num_chains else "sequential"
    return MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method=method,
        progress_bar=False,
    )


def fit_enumerated(
    name: str, joint: Joint, rng_key: jax.Array, rows: np.ndarray, num_samples: int, num_chains: int
) -> Fit:
    """The exact posterior of discrete latents: every combination of their values, and draws from it.

    Args:
        name: The name of the run.
        joint: Model and data.
        rng_key: Key for the draws.
        rows: The rows whose likelihood is included.
        num_samples: Total number of draws.
        num_chains: Number of chains into which the draws are arranged.
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
    chosen = np.asarray(jax.random.choice(rng_key, len(log_weights), (num_chains, draws), p=jnp.exp(log_weights)))
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
        kind=Kind.ENUMERATION,
    )


# ------------------------------------------------------------------------------------------ is it the truth?


def doubts_about(fit: Fit) -> tuple[Reason, ...]:
    """Why a reference should not be called the truth; empty if it is clean."""
    if not fit.is_sampler:
        return (Reason(Cause.APPROXIMATION),)
    out = []
    worst = np.nanmax(fit.r_hat) if np.isfinite(fit.r_hat).any() else np.nan
    if not worst <= R_HAT:
        parameter = fit.names[int(np.nanargmax(np.nan_to_num(fit.r_hat)))]
        out.append(Reason(Cause.HIGH_R_HAT, {"r_hat": worst, "parameter": parameter, "limit": R_HAT}))
    if not np.min(fit.ess) >= ESS:
        parameter = fit.names[int(np.argmin(fit.ess))]
        out.append(Reason(Cause.LOW_ESS, {"ess": np.min(fit.ess), "parameter": parameter, "limit": ESS}))
    return (*out, *(Reason(Cause.REMARK, {"remark": note}) for note in fit.notes))


def is_hopeless(fit: Fit) -> bool:
    """Whether the draws of a sampler are far from its target distribution."""
    return fit.is_sampler and not (np.max(fit.r_hat) <= HOPELESS_R_HAT and np.min(fit.ess) >= HOPELESS_ESS)


def verdict_on_reference(fit: Fit, doubts: tuple[Reason, ...]) -> Verdict:
    """The verdict on a reference, given the doubts about it."""
    if not fit.is_sampler:
        return Verdict(Grade.REFERENCE, doubts)
    if doubts:
        return Verdict(Grade.UNCLEAN_REFERENCE, doubts)
    if fit.table is not None:
        return Verdict(Grade.REFERENCE, (Reason(Cause.ENUMERATED, {"count": len(fit.table.theta)}),))
    counts_them = isinstance(fit.source, MCMC) and diverging_of(fit.source) is not None
    divergences = ", no divergences" if counts_them else ""
    figures = {"r_hat": np.nanmax(fit.r_hat), "ess": np.min(fit.ess), "divergences": divergences}
    return Verdict(Grade.REFERENCE, (Reason(Cause.CLEAN, figures),))


def verdict_without_reference(name: str, fit: Fit) -> Verdict:
    """The verdict on a run whose reference is useless, because its draws are far from their target distribution."""
    advice = "more warm-up, standardise columns of very different sizes,"
    if fit.discrete.any():
        advice = "many more samples, because it changes one discrete value at a time,"
    return Verdict(Grade.NOT_JUDGED, (Reason(Cause.NO_REFERENCE, {"reference": name, "advice": advice}),))
