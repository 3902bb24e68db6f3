"""Long runs of NUTS as references, in unconstrained space, which other benchmarks keep in a cache."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS, init_to_uniform

from adfpp.judge.clock import clock

CHAINS = 4
TIMED = 2500  # draws of each chain in NUTS's time, although the reference may have more


@dataclass(frozen=True)
class Sampling:
    """How NUTS samples a reference.

    Attributes:
        draws: NUTS's draws in each chain: enough for its own error to be small compared with the bound.
        accept: NUTS's target acceptance probability.
        dense: Whether NUTS adapts a full mass matrix, which is faster if parameters are correlated.
        sampled: A model with the same posterior that is easier for NUTS, and the map from its draws to the model's.
        init: Where the chains start.
        vectorized: Whether the chains run side by side, which is faster for small data.
    """

    draws: int = 10_000
    accept: float = 0.8
    dense: bool = True
    sampled: tuple[Callable[..., None], Callable[[dict[str, Any]], dict[str, Any]]] | None = None
    init: Callable[..., Any] = init_to_uniform
    vectorized: bool = False


class Reference(NamedTuple):
    """NUTS's posterior in unconstrained space.

    Attributes:
        mean: ``(N,)`` posterior means.
        sd: ``(N,)`` posterior sds.
        mcse: ``(N,)`` Monte-Carlo standard errors of the means, in sds.
        sd_mcse: ``(N,)`` Monte-Carlo standard errors of the sds, relative.
        r_hat: The largest R-hat.
        divergences: Number of divergences in all chains.
        warm_seconds: Seconds of warm-up, without compilation.
        sampling_seconds: Seconds of 2500 draws from each chain, without compilation.
    """

    mean: np.ndarray
    sd: np.ndarray
    mcse: np.ndarray
    sd_mcse: np.ndarray
    r_hat: float
    divergences: int
    warm_seconds: float
    sampling_seconds: float


def reference(
    name: str,
    model: Callable[..., None],
    data: dict[str, Any],
    program: Any,
    sampling: Sampling,
    cache: Path | None,
    digest: str = "",
) -> Reference:
    """Runs NUTS, or reads its draws from the cache.

    Args:
        name: The name of the model, and of its file in the cache.
        model: The model.
        data: Its keyword arguments.
        program: The model as adfpp has read it, which gives the unconstrained space.
        sampling: How NUTS samples.
        cache: A folder for the draws; None to keep none.
        digest: What the draws depend on beyond the other arguments.
    """
    path = None if cache is None else cache / _file_name(name, data, program, sampling, digest)
    if path is not None and path.exists():
        with np.load(path) as kept:
            warm, drawing = (float(a) for a in kept["seconds"])
            return _summarised(kept["theta"], warm, drawing, int(kept["divergences"]))
    sampled, to_ours = sampling.sampled or (model, dict)
    mcmc = MCMC(
        NUTS(sampled, target_accept_prob=sampling.accept, dense_mass=sampling.dense, init_strategy=sampling.init),
        num_warmup=1000,
        num_samples=sampling.draws,
        num_chains=CHAINS,
        chain_method="vectorized" if sampling.vectorized else "sequential",
        progress_bar=False,
    )
    warm_key, run_key = jax.random.split(jax.random.key(0))
    with clock() as warming:
        mcmc.warmup(warm_key, **data)
        jax.block_until_ready(mcmc.post_warmup_state)
    with clock() as running:
        mcmc.run(run_key, **data)
        draws = jax.block_until_ready(mcmc.get_samples(group_by_chain=True))
    theta = np.asarray(program.unconstrain(to_ours(draws))[0])
    divergences = int(np.sum(mcmc.get_extra_fields()["diverging"]))
    warm, drawing = warming.running, running.running * TIMED / sampling.draws
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, theta=theta, seconds=[warm, drawing], divergences=divergences)
    return _summarised(theta, warm, drawing, divergences)


def _file_name(name: str, data: dict[str, Any], program: Any, sampling: Sampling, digest: str) -> str:
    """A name that differs if anything differs that the draws depend on."""
    latents = [latent.name for latent in program.latents]
    sizes = [name, sampling.draws, CHAINS, sampling.accept, sampling.dense, sampling.sampled is None, latents]
    hashed = hashlib.sha256(repr(sizes).encode() + digest.encode())
    for argument in sorted(data):
        hashed.update(argument.encode() + np.ascontiguousarray(data[argument]).tobytes())
    return f"{name.replace(', ', '-').replace(' ', '-')}-{hashed.hexdigest()[:12]}.npz"


def _summarised(theta: np.ndarray, warm: float, sampling: float, divergences: int) -> Reference:
    mean, sd = theta.mean((0, 1)), theta.std((0, 1), ddof=1)
    squares = (theta - mean) ** 2
    return Reference(
        mean,
        sd,
        1.0 / np.sqrt(effective_sample_size(theta)),
        0.5 * squares.std((0, 1)) / (sd**2 * np.sqrt(effective_sample_size(squares))),
        float(np.max(split_gelman_rubin(theta))),
        divergences,
        warm,
        sampling,
    )
