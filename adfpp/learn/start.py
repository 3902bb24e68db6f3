"""Makes the belief that learning starts from, and its parts.

The *base* is the Gaussian part of the prior, ``exp(-|K θ - c|²/2)``. It need not be proper in all directions of θ. The
rest of the prior are *prior factors*: those of latents whose prior depends on other latents or is not Gaussian. Each
gets an initial site approximation from draws or moments of the prior. The base times these sites is a proper belief.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.compilation import run_once
from adfpp.engine.factor import Factor
from adfpp.engine.families import Belief, Exchange, Family
from adfpp.engine.kernel import visit_prior
from adfpp.model import PriorGroup, block_of_draws
from adfpp.model.priors import Block, prior_draws

_DRAWS = 4096
_LARGEST_DRAW = 1e100  # its square is a number, and it is larger than all float32 numbers


class Base(NamedTuple):
    """The Gaussian part of a prior: ``exp(constant - |root θ - centre|²/2)``.

    Attributes:
        root: ``(r, N)`` K.
        centre: ``(r,)`` c.
        constant: ``()``.
    """

    root: jax.Array
    centre: jax.Array
    constant: jax.Array


class ThetaBase(NamedTuple):
    """The part of a prior that belongs to the family itself, for families whose sites are natural parameters of θ.

    Attributes:
        natural: Natural parameters of the prior's blocks; those of a flat density in coordinates without a block.
        log_norm: ``()`` log of the integral of the blocks as unnormalised densities.
    """

    natural: jax.Array
    log_norm: jax.Array


class Prior(NamedTuple):
    """A prior, split into a Gaussian part and factors.

    Attributes:
        blocks: The Gaussian part.
        factors: The other factors, each with the Gaussian that matches the prior of its latent, if this is known.
    """

    blocks: Sequence[Block]
    factors: Sequence[tuple[PriorGroup, Block | None]]


class Start(NamedTuple):
    """The belief and the sites before any row.

    Attributes:
        belief: The belief before any row.
        priors: ``{key: (E, numbers)}`` the sites of the prior factors.
    """

    belief: Belief
    priors: dict[str, jax.Array]


def base_of(blocks: Sequence[Block], size: int, dtype: np.dtype) -> Base:
    """Makes the Gaussian part of a prior from its blocks."""
    return Base(*(jnp.asarray(a, dtype) for a in _base_of(blocks, size)))


def _base_of(blocks: Sequence[Block], size: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Root, centre and constant of the Gaussian part of a prior, in float64."""
    roots, centres, constant = [], [], 0.0
    for block in blocks:
        wide = np.zeros((len(block.where), size))
        inverse = np.diag(1.0 / block.root) if block.root.ndim == 1 else np.linalg.inv(block.root)
        wide[:, block.where] = inverse
        roots.append(wide)
        centres.append(inverse @ block.mean)
        constant += np.linalg.slogdet(inverse)[1] - 0.5 * len(block.where) * math.log(2.0 * math.pi) + block.log_mass
    root = np.concatenate(roots) if roots else np.zeros((0, size))
    centre = np.concatenate(centres) if centres else np.zeros(0)
    return root, centre, constant


def theta_base(family: Any, start: "Start", blocks: Sequence[Block]) -> ThetaBase:
    """As ``base_of``, for families whose sites are natural parameters of θ."""
    belief: Any = start.belief
    priors = start.priors
    natural = family.natural(belief) - sum(jnp.sum(a, 0) for a in priors.values())
    covered = np.zeros(belief.mean.shape[0], bool)
    for block in blocks:
        covered[block.where] = True
    total = family.prior_log_norm(belief, blocks, covered) - sum(block.log_mass for block in blocks)
    return ThetaBase(natural, jnp.asarray(total, natural.dtype))


def begin(
    family: Family,
    size: int,
    dtype: np.dtype,
    prior: Prior,
    inputs: Sequence[jax.Array],
    sampler: Callable[[jax.Array], jax.Array],
) -> Start:
    """Makes the belief and the sites of the prior factors before any row.

    Args:
        family: How the belief is stored.
        size: Length of θ.
        dtype: The dtype of θ.
        prior: The prior.
        inputs: The arrays that the prior factors take in the place of a row's arrays.
        sampler: ``key -> θ``, a draw from the prior, for factors without a known Gaussian.
    """
    blocks, factors = prior
    if not factors:
        return Start(family.start(blocks, size, dtype), {})
    draws = None
    if any(block is None and group.latent is not None for group, block in factors):
        draws = _usable(prior_draws(sampler, _DRAWS))
    if not family.sites_in_field:
        start = _begin_in_theta(family, size, dtype, blocks, factors, draws)
        return _with_terms(family, start, factors, inputs)
    root, centre, _ = _base_of(blocks, size)
    precision, slope = root.T @ root, root.T @ centre
    sites = {}
    for group, block in factors:
        matrix, offset = _fields(group.factors, size, dtype, inputs)
        own = _places(group)
        rows = []
        for a, b in zip(matrix, offset, strict=True):
            nu, weight = _first_site(a, b, own, block, draws, dtype)
            precision += a.T @ weight @ a
            slope += a.T @ (nu - weight @ b)
            i, j = np.tril_indices(len(b))
            rows.append(np.concatenate([nu, weight[i, j]]))
        sites[group.key] = jnp.asarray(np.stack(rows), dtype)
    # scaled to a unit diagonal, so that narrow directions are not lost in the rounding of vague ones
    unit = 1.0 / np.sqrt(np.diag(precision))
    lower = np.linalg.cholesky(precision * np.outer(unit, unit))
    root = unit[:, None] * np.linalg.inv(lower).T
    mean = root @ (root.T @ slope)
    start = Start(Belief(jnp.asarray(mean, dtype), jnp.asarray(root, dtype)), sites)
    return _with_terms(family, start, factors, inputs)


def _places(group: PriorGroup) -> np.ndarray:
    """The places in θ of the latent whose prior the factors are; none for a term of the prior."""
    latent = group.latent
    return np.zeros(0, int) if latent is None else np.arange(latent.where.start, latent.where.stop)


_VISITS = 2  # of the terms of a prior: the first visit of each does not know of those that come after it


def _with_terms(
    family: Family, start: Start, factors: Sequence[tuple[PriorGroup, Block | None]], inputs: Sequence[jax.Array]
) -> Start:
    """The start after visits of the terms of the prior, whose initial sites are constant."""
    terms = {group.key: group.factors for group, _ in factors if group.latent is None}
    if not terms:
        return start

    def visited(_: object, now: Any) -> Any:
        belief, sites = now
        one = jnp.ones((), belief.mean.dtype)
        return visit_prior(family, terms, belief, sites, inputs, Exchange(one, one))[:2]

    initial = start.belief, {key: start.priors[key] for key in terms}
    belief, sites = jax.jit(lambda now: jax.lax.fori_loop(0, _VISITS, visited, now))(initial)
    return Start(belief, start.priors | sites)


def _usable(draws: np.ndarray) -> np.ndarray:
    """Draws without NaN, and with finite numbers in the place of infinite ones.

    A vague prior of a variance, such as an inverse gamma of shape 0.001, has its mass where a dtype overflows. Draws
    of the latents below it are then infinite, or NaN as differences of infinite numbers.
    """
    numbers = np.where(np.isnan(draws), 0.0, draws)
    kept = ~np.isnan(draws).any(1)
    if kept.sum() >= len(draws) // 8:  # enough for quartiles; with fewer, NaN counts as an unknown number near 0
        numbers = numbers[kept]
    return np.clip(numbers, -_LARGEST_DRAW, _LARGEST_DRAW)


def _fields(factors: Factor, size: int, dtype: np.dtype, inputs: Sequence[jax.Array]) -> tuple[np.ndarray, np.ndarray]:
    matrix, offset = run_once(factors.matrices, jnp.zeros(size, dtype), *inputs)
    return np.asarray(matrix, float), np.asarray(offset, float)


def _first_site(
    a: np.ndarray, b: np.ndarray, own: np.ndarray, block: Block | None, draws: np.ndarray | None, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Slope ``(k,)`` and precision ``(k, k)`` of a factor's initial site.

    The site has the prior's moments in the directions of the field that the factor's own latent enters. In the other
    directions it is constant.
    """
    if not len(b):
        return np.zeros(0), np.zeros((0, 0))
    if not len(own):  # a term of the prior, which is visited before any row
        return np.zeros(len(b)), np.zeros((len(b), len(b)))
    left, sizes, _ = np.linalg.svd(a[:, own])
    rank = int((sizes > 1e-10 * max(sizes.max(), 1e-300)).sum())
    directions = left[:, :rank]  # (k, r)
    if block is not None:
        places = np.searchsorted(own, block.where)
        covariance = np.zeros((len(own), len(own)))
        root = np.diag(block.root) if block.root.ndim == 1 else block.root
        covariance[np.ix_(places, places)] = root @ root.T
        mean = np.zeros(len(own))
        mean[places] = block.mean
        part = directions.T @ a[:, own]
        centre, spread = part @ mean + directions.T @ b, part @ covariance @ part.T
    else:
        assert draws is not None
        touched = np.flatnonzero(np.abs(a).max(0))
        values = (draws[:, touched] @ a[:, touched].T + b) @ directions
        centre, spread = _robust(values, dtype)
    weight = directions @ np.linalg.inv(spread) @ directions.T
    return weight @ (directions @ centre), weight


def _robust(values: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of draws ``(S, r)``; robust estimates where the draws have heavy tails.

    Draws that are wider than 1/eps, from which no row of unit scale could narrow the belief in this dtype, get an sd of
    1/√eps. This is the width of an initial site only, which the first visit of the prior factor replaces.
    """
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    inner = (high - low) / 1.349
    sd = values.std(0)
    heavy = ~(sd < 3.0 * inner)
    centre = np.where(heavy, middle, values.mean(0))
    limited = np.clip(values - centre, -4.0 * inner, 4.0 * inner)
    correlation = np.atleast_2d(np.corrcoef(limited.T)) if values.shape[1] > 1 else np.ones((1, 1))
    eps = float(np.finfo(dtype).eps)
    vague, most = ~(inner <= 1.0 / eps), 1.0 / math.sqrt(eps)
    wide = np.where(vague, most, np.where(heavy, inner, sd))
    centre = np.where(vague, np.clip(middle, -most, most), centre)
    return centre, correlation * np.outer(wide, wide)


def _begin_in_theta(
    family: Any,
    size: int,
    dtype: np.dtype,
    blocks: Sequence[Block],
    factors: Sequence[tuple[PriorGroup, Block | None]],
    draws: np.ndarray | None,
) -> Start:
    """For families that forget correlations: all factors of a latent together have its marginal moments initially."""
    given = list(blocks)
    owned = {g.latent.name: (g.latent, block) for g, block in factors if g.latent is not None}
    for latent, block in owned.values():
        where = np.arange(latent.where.start, latent.where.stop)
        if block is not None:
            given.append(block)
        elif latent.native is not None:
            assert draws is not None
            given.append(block_of_draws(latent, draws, dtype))
        else:
            assert draws is not None
            centre, spread = zip(*(_robust(draws[:, i : i + 1], dtype) for i in where), strict=True)
            given.append(Block(where, np.concatenate(centre), np.sqrt(np.ravel(spread)), "marginal moments of draws"))
    belief = family.start(given, size, dtype)
    sites = {}
    for group, _ in factors:
        siblings = sum(other.latent is group.latent for other, _ in factors)
        count = group.factors.count
        own = np.zeros((count, size))
        where = _places(group)
        elements = np.asarray(group.factors.elements)
        if not len(where):
            pass  # a term of the prior, which is visited before any row
        elif count == len(where) and siblings == 1:
            own[np.arange(count), where[elements]] = 1.0
        else:  # the factors of one latent divide its precision equally
            own[:, where] = 1.0 / (count * siblings)
        sites[group.key] = jax.vmap(lambda part: family.first_site(belief, part))(jnp.asarray(own, dtype))
    return Start(belief, sites)
