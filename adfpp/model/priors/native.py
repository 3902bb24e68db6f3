"""Projects the prior of a latent onto its native family, exactly if it is a member, else by moments."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from adfpp.engine.compilation import run_once
from adfpp.engine.families.product.components import own_moments
from adfpp.engine.families.product.exponential import Exponential
from adfpp.model.arguments import ModelError
from adfpp.model.latents import Latent
from adfpp.model.priors.density import prior_draws
from adfpp.model.priors.gaussian import Block, tight

_DRAWS = 4096  # enough, since they only say where a quadrature starts, and whether a mean exists


def block_of_draws(latent: Latent, draws: np.ndarray, dtype: DTypeLike) -> Block:
    """The member of a native latent's family with the expected statistics of draws ``(S, N)`` of θ."""
    values = np.asarray(draws[:, latent.places], float).reshape(len(draws), -1, latent.native.dim)
    natural, proper = latent.native.match(values, dtype)
    if not proper:
        _refuse_tails(latent)
    zeros = np.zeros(latent.size)
    return Block(latent.places, zeros, zeros + 1.0, "marginal statistics of draws", natural)


def _refuse_tails(latent: Latent) -> None:
    raise ModelError(
        f"The prior of latent {latent.name!r} has no {latent.native.name} with its expected statistics: give it a "
        "proper prior with lighter tails, or leave the latent Gaussian in unconstrained space."
    )


def native_block(
    latent: Latent,
    log_prior: Callable[[jax.Array], jax.Array],
    theta: jax.Array,
    sampler: Callable[[jax.Array], jax.Array],
) -> Block:
    """The prior of a native latent that depends on no other latent, exactly if it is a member of the family.

    Args:
        latent: The latent.
        log_prior: ``θ -> (n,)`` the log prior of each component.
        theta: Any θ in the support.
        sampler: ``key -> θ``, a draw from the prior.
    """
    family: Exponential = latent.native
    places = latent.places.reshape(-1, family.dim)
    count = len(places)
    dtype = theta.dtype

    def at(values: jax.Array) -> jax.Array:
        """Log prior ``(n,)`` with all components at ``values (n, dim)``."""
        return log_prior(theta.at[places.reshape(-1)].set(values.reshape(-1)))

    if family.levels:
        levels = jnp.stack([at(jnp.full((count, 1), v, dtype)) for v in family.levels], -1)
        natural, how = np.asarray(levels[:, 1:] - levels[:, :1], float), "exact"
    else:
        natural, exact = _linear(family, at, count, dtype)
        if not exact.all():
            if family.axes > 2:
                raise ModelError(
                    f"The prior of latent {latent.name!r} is no Dirichlet, and a simplex of {family.dim} numbers is "
                    "too large for a quadrature. Give it a Dirichlet prior, or leave it Gaussian in unconstrained "
                    "space."
                )
            draws = prior_draws(sampler, _DRAWS)
            drawn = np.abs(draws[:, places.ravel()])
            largest = np.sort(drawn, 0)[-_DRAWS // 1000 :].sum(0) / drawn.sum(0)
            if not (largest < 0.3).all():  # a few draws make up the mean, so that there may be none
                _refuse_tails(latent)
            near = np.asarray(block_of_draws(latent, draws, dtype).natural)
            for c in _first_of_alike(natural, exact):
                natural[c.alike] = _projected(latent, at, near[c.first], c.first, dtype)
        how = "exact" if exact.all() else "moments by quadrature"
    mean, variance = family.moments(jnp.asarray(natural, dtype))
    sd = np.sqrt(np.asarray(variance, float)).ravel()
    return Block(latent.places, np.asarray(mean, float).ravel(), sd, how, natural)


def _linear(
    family: Exponential, at: Callable[[jax.Array], jax.Array], count: int, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters ``(n, numbers)`` by least squares, and whether the log prior is linear in the statistics."""
    points = jnp.asarray(family.probes(), dtype)
    logs = run_once(jax.vmap(lambda s: at(jnp.broadcast_to(s, (count, family.dim)))), points)
    even = jnp.ones(family.numbers, dtype)
    ratio = np.asarray(logs, float) - np.asarray(family.log_prob(even, points), float)[:, None]
    features = np.concatenate([np.ones((len(points), 1)), np.asarray(family.stats(points), float)], 1)
    slopes = np.linalg.lstsq(features, np.where(np.isfinite(ratio), ratio, 0.0), rcond=None)[0]
    left = np.abs(ratio - features @ slopes).max(0)
    natural = 1.0 + slopes[1:].T
    exact = (left <= tight(dtype) * (1.0 + np.abs(ratio).max(0))) & (natural > 0).all(1)
    if not exact.any():
        return natural, exact
    # The log prior must also be linear where the fitted member has its mass.
    members = jnp.asarray(np.where(exact[:, None], natural, 1.0), dtype)
    values = run_once(lambda: family.sample(jax.random.key(7), members, (32,)))  # (32, n, dim)
    ratio = np.asarray(run_once(jax.vmap(at), values), float) - np.asarray(family.log_prob(even, values), float)
    fitted = slopes[0] + np.einsum("snj,nj->sn", np.asarray(family.stats(values), float), slopes[1:].T)
    return natural, exact & (np.abs(ratio - fitted) <= 8.0 * tight(dtype) * (1.0 + np.abs(ratio))).all(0)


class _Alike(NamedTuple):
    """Components with the same prior, and the first of them."""

    first: int
    alike: np.ndarray


def _first_of_alike(natural: np.ndarray, exact: np.ndarray) -> list[_Alike]:
    """Groups the components whose priors are not in the family: those with equal priors form one group."""
    left = np.flatnonzero(~exact)
    if not len(left):
        return []
    _, first, back = np.unique(natural[left], axis=0, return_index=True, return_inverse=True)
    return [_Alike(int(left[f]), left[back.ravel() == i]) for i, f in enumerate(first)]


def _projected(
    latent: Latent, at: Callable[[jax.Array], jax.Array], near: np.ndarray, c: int, dtype: np.dtype
) -> np.ndarray:
    """The member with the expected statistics of component c's prior."""
    family = latent.native
    count = latent.size // family.dim
    start = jnp.asarray(near, dtype)

    def log_ratio(s: jax.Array) -> jax.Array:
        return at(jnp.broadcast_to(s, (count, family.dim)))[c] - family.log_prob(start, s)

    _, natural, error = run_once(lambda: own_moments(family, start, log_ratio))
    if not float(error) < (1e-5 if dtype == jnp.float64 else 1e-2):
        _refuse_tails(latent)
    return np.asarray(natural, float)
