"""Randomised quasi-Monte-Carlo importance sampling for tilts of larger fields.

Scrambled Sobol points, which a key gives random digital shifts, are drawn from a mixture of the cavity and a Gaussian:
first a Gaussian that is fitted to the tilt's peak. If too small a number of points then has most of the weight,
Gaussians are fitted to the weighted points by tempering. The cavity's part of the mixture bounds the weights wherever
the factor is bounded. In the coordinates v of the Gaussian, Stein's identity for the tilted density p,
``E[∇ log p] = 0`` and ``E[∇ log p (v - c)ᵀ] = -I``, gives control variates of mean zero. For a Gaussian tilt they
remove the error entirely.

The points are divided into blocks with independent random shifts. Standard errors follow from the differences between
the sums of the blocks.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt

from adfpp.engine.linalg import whiten
from adfpp.engine.tilt.base import Drawn, LogFactor, Tilted
from adfpp.engine.tilt.landmarks import Landmarks
from adfpp.engine.tilt.peak import rough_peak

_BLOCKS = 16  # enough for a standard error whose own relative error is about a fifth
_FIXED = 20  # the seed of points that are the same in every call
_DISTRUST = 4.5  # with a mean farther from 0 than this many standard errors, a control variate is not used


class Estimates(NamedTuple):
    """Tilted moments and their standard errors, in the whitened field.

    Attributes:
        tilted: The moments.
        log_z: Standard error of log Z.
        shift: Standard errors of the tilted mean.
        covariance: Standard errors of the tilted covariance.
    """

    tilted: Tilted
    log_z: Float[Array, ""]
    shift: Float[Array, " k"]
    covariance: Float[Array, "k k"]


class _Proposal(NamedTuple):
    """The Gaussian part of the mixture from which points are drawn: u = centre + root @ v."""

    centre: Float[Array, " k"]
    root: Float[Array, "k k"]
    inverse: Float[Array, "k k"]
    log_volume: Float[Array, ""]  # log |det inverse|


class _Sample(NamedTuple):
    """Weighted points."""

    u: Float[Array, "n k"]
    log_weights: Float[Array, " n"]
    slopes: Float[Array, "n k"]  # gradients of the log factor
    surplus: Float[Array, " n"]  # density of the cavity over that of the proposal, minus 1: it has mean zero
    effective: Float[Array, ""]  # effective sample size


class _Best(NamedTuple):
    """The proposal whose points have the largest effective sample size, and the rounds of tempering before it."""

    proposal: _Proposal
    sample: _Sample
    rounds: Int[Array, ""]


class _Search(NamedTuple):
    """The state of the tempering iteration.

    Attributes:
        proposal: The latest proposal.
        sample: The points of this proposal.
        rounds: Number of rounds of tempering so far.
        best: The best proposal so far.
    """

    proposal: _Proposal
    sample: _Sample
    rounds: Int[Array, ""]
    best: _Best


@dataclass(frozen=True)
class MonteCarlo:
    """Importance sampling of the tilted distribution.

    Attributes:
        points: Number of points, a power of two.
        defensive: Fraction of the points that is drawn from the cavity.
        report: A row whose estimated error is above this is marked ``Status.INACCURATE``.
        ess_min: The effective sample size below which a proposal is not good enough; a twentieth of the points, and at
            least two for each number of the field, when None.
        rounds: Number of rounds of tempering after which a row whose proposal is not good enough is refused
            (``Status.UNRELIABLE``).
    """

    exact: ClassVar[bool] = False
    divisible: ClassVar[bool] = True
    power_limit: ClassVar[bool] = False
    draws: ClassVar[bool] = True

    points: int = 1024
    defensive: float = 0.25
    report: float = 0.1
    ess_min: float | None = None
    rounds: int = 6

    def __post_init__(self) -> None:
        if self.points < 4 * _BLOCKS or self.points & (self.points - 1):
            raise ValueError(f"points must be a power of two, at least {4 * _BLOCKS}; it is {self.points}.")
        if not 0.0 < self.defensive < 1.0:
            raise ValueError(f"defensive must lie in (0, 1); it is {self.defensive}.")

    def reported(self, dtype: DTypeLike, size: int = 1) -> float:
        """The error above which a row is marked."""
        return self.report

    def least(self, size: int) -> float:
        """The effective sample size below which a proposal is not good enough for a field of this size."""
        return max(self.points / 20, 2.0 * size) if self.ess_min is None else self.ess_min

    def __call__(
        self,
        log_factor: LogFactor,
        mean: Float[Array, " k"],
        scale: Float[Array, "k k"],
        landmarks: Landmarks | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Tilted:
        """Computes the moments of ``N(u; 0, I) exp(log_factor(mean + scale @ u))``; arguments as in ``Quadrature``.

        With a key the points are random; without one they are the same in every call.
        """
        return self.estimates(log_factor, mean, scale, key).tilted

    def estimates(
        self,
        log_factor: LogFactor,
        mean: Float[Array, " k"],
        scale: Float[Array, "k k"],
        key: PRNGKeyArray | None = None,
    ) -> Estimates:
        """As ``__call__``, with a standard error of every moment."""
        size, dtype = mean.shape[0], mean.dtype

        def in_cavity(u: Float[Array, " k"]) -> Float[Array, ""]:
            return log_factor(mean + scale @ u)

        def sample(proposal: _Proposal, number: int | Int[Array, ""]) -> _Sample:
            chosen, normal = draw_points(key, number, self.points, size, dtype)
            return _weighted(in_cavity, proposal, chosen < self.defensive, normal, self.defensive)

        least = self.least(size)

        def unfit(search: _Search) -> Bool[Array, ""]:
            possible = jnp.max(search.sample.log_weights) > -jnp.inf
            return (search.best.sample.effective < least) & (search.rounds < self.rounds) & possible

        def temper(search: _Search) -> _Search:
            proposal = _refitted(search.proposal, search.sample, min(2.0 * least, 0.5 * self.points))
            rounds = search.rounds + 1
            new = _Best(proposal, sample(proposal, rounds), rounds)
            better = new.sample.effective > search.best.sample.effective
            best = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, search.best)
            return _Search(*new, best)

        mode, root, inverse = rough_peak(in_cavity, size, dtype)
        first = _Proposal(mode, root, inverse, jnp.linalg.slogdet(inverse)[1])
        initial = _Best(first, sample(first, 0), jnp.zeros((), jnp.int32))
        best = jax.lax.while_loop(unfit, temper, _Search(*initial, initial)).best
        effective = best.sample.effective
        return _estimates(best.proposal, best.sample, Drawn(effective, best.rounds, effective >= least))


# ---------------------------------------------------------------------------------------------- proposals


def _weighted(
    in_cavity: LogFactor,
    proposal: _Proposal,
    from_cavity: Bool[Array, " n"],
    normal: Float[Array, "n k"],
    share: float,
) -> _Sample:
    """Draws points of the mixture, and computes their weights."""
    u = jnp.where(from_cavity[:, None], normal, proposal.centre + normal @ proposal.root.T)
    log_cavity = -0.5 * jnp.sum(u * u, -1)
    log_fit = -0.5 * jnp.sum(((u - proposal.centre) @ proposal.inverse.T) ** 2, -1) + proposal.log_volume
    log_ratio = log_cavity - jnp.logaddexp(math.log(share) + log_cavity, math.log1p(-share) + log_fit)
    values, slopes = jax.vmap(jax.value_and_grad(in_cavity))(u)
    log_weights = values + log_ratio
    log_weights = jnp.where(jnp.isnan(log_weights), -jnp.inf, log_weights)
    return _Sample(u, log_weights, slopes, jnp.exp(log_ratio) - 1.0, _effective(log_weights))


def _normalised(log_weights: Float[Array, " n"]) -> Float[Array, " n"]:
    """Normalised weights, which add up to 1."""
    top = jnp.max(log_weights)
    weights = jnp.exp(log_weights - jnp.where(top > -jnp.inf, top, 0.0))
    return weights / jnp.sum(weights)


def _effective(log_weights: Float[Array, " n"]) -> Float[Array, ""]:
    """The effective sample size."""
    weights = _normalised(log_weights)
    return jnp.nan_to_num(1.0 / jnp.sum(weights * weights), nan=0.0)


def _refitted(proposal: _Proposal, now: _Sample, enough: float) -> _Proposal:
    """Fits a Gaussian to the points with tempered weights: the largest power with a large enough effective sample size.

    Weights to the power b are those of the density ``proposal^(1 - b) tilt^b``, which lies between the two.
    """
    size, dtype = proposal.centre.shape[0], proposal.centre.dtype

    def halve(_: Int[Array, ""], ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        fine = _effective(middle * now.log_weights) >= enough
        return jnp.where(fine, middle, low), jnp.where(fine, high, middle)

    ends = (jnp.asarray(1e-6, dtype), jnp.ones((), dtype))
    power = jax.lax.fori_loop(0, 20, halve, ends)[0]  # to 1e-6
    weights = _normalised(power * now.log_weights)
    centre = weights @ now.u
    away = now.u - centre
    # a fit to this effective sample size underestimates a covariance by about this factor
    wider = 1.0 + size * jnp.sum(weights * weights)
    root = jnp.linalg.cholesky(wider * (away * weights[:, None]).T @ away)
    inverse = jax.scipy.linalg.solve_triangular(root, jnp.eye(size, dtype=dtype), lower=True)
    new = _Proposal(centre, root, inverse, -jnp.sum(jnp.log(jnp.diagonal(root))))
    fine = jnp.all(jnp.isfinite(inverse)) & jnp.all(jnp.isfinite(centre))
    return jax.tree.map(lambda a, b: jnp.where(fine, a, b), new, proposal)


# ---------------------------------------------------------------------------------------------- moments


def _estimates(proposal: _Proposal, now: _Sample, drawn: Drawn) -> Estimates:
    size, dtype = proposal.centre.shape[0], proposal.centre.dtype
    count, root = now.u.shape[0], proposal.root
    top = jnp.max(now.log_weights)
    top = jnp.where(top > -jnp.inf, top, 0.0)
    raw = blocks(jnp.exp(now.log_weights - top))
    even = jnp.full(_BLOCKS, 1.0 / _BLOCKS, dtype)
    masses = jnp.sum(raw, 1) / count
    mass, mass_parts = _ratio(masses, jnp.sum(blocks(now.surplus), 1) / count, even, jnp.ones((), bool))
    plain_mass, plain_parts = _ratio(masses, masses, even, jnp.zeros((), bool))
    sound = mass > 0.1 * plain_mass  # otherwise the control variate has removed nearly the whole sum, or more
    mass, mass_parts = jnp.where(sound, mass, plain_mass), jnp.where(sound, mass_parts, plain_parts)

    weights = raw / (count * plain_mass)
    share = jnp.sum(weights, 1)
    v = blocks((now.u - proposal.centre) @ proposal.inverse.T)
    score = now.slopes - now.u
    score = blocks(jnp.where(jnp.isfinite(score), score, 0.0) @ root)
    firsts, controls = jnp.einsum("bn,bni->bi", weights, v), jnp.einsum("bn,bni->bi", weights, score)
    # Stein's identity does not hold for a factor with a jump: the means of the control variates are then far from 0
    trusted = _surprise(weights, score) < _DISTRUST
    trusted &= _surprise(weights, score * (v - jnp.sum(firsts, 0)) + 1.0) < _DISTRUST
    shift, shift_parts = _ratio(firsts, controls, share, trusted)
    centred = v - shift
    weighted = centred * weights[:, :, None]
    seconds = jnp.einsum("bni,bnj->bij", weighted, centred)
    controls = jnp.einsum("bni,bnj->bij", score, weighted)
    controls = 0.5 * (controls + jnp.swapaxes(controls, 1, 2)) + share[:, None, None] * jnp.eye(size, dtype=dtype)
    second, second_parts = _ratio(seconds, controls, share, trusted)
    plain_second, plain_parts = _ratio(seconds, controls, share, jnp.zeros((), bool))
    inner = jnp.linalg.cholesky(second)
    fine = jnp.all(jnp.isfinite(inner))
    inner = jnp.where(fine, inner, jnp.linalg.cholesky(plain_second))
    second_parts = jnp.where(fine, second_parts, plain_parts)

    tilted_root = whiten(root @ inner)[0]
    log_z_error = standard_error(mass_parts) / mass
    shift_error = standard_error(shift_parts @ root.T)
    covariance_error = standard_error(root @ second_parts @ root.T)
    sd = jnp.sqrt(jnp.sum(tilted_root**2, -1))
    errors = [log_z_error, jnp.max(shift_error / sd), jnp.max(covariance_error / (sd[:, None] * sd))]
    error = jnp.max(jnp.stack(errors))  # NaN if one of them is NaN
    tilted = Tilted(
        top + jnp.log(mass),
        proposal.centre + root @ shift,
        tilted_root,
        jnp.where(jnp.isnan(error), jnp.inf, error),
        drawn,
    )
    return Estimates(tilted, log_z_error, shift_error, covariance_error)


def blocks(a: Float[Array, " n *rest"]) -> Float[Array, " b n_b *rest"]:
    """Arranges points by block."""
    return a.reshape(_BLOCKS, -1, *a.shape[1:])


def _apart(
    sums: Float[Array, " b *moment"], share: Float[Array, " b"]
) -> tuple[Float[Array, " *moment"], Float[Array, " b *moment"]]:
    """The total of sums over blocks, and the difference of each block from its share of the total."""
    total = jnp.sum(sums, 0)
    return total, sums - share.reshape((-1,) + (1,) * total.ndim) * total


def _ratio(
    sums: Float[Array, " b *moment"],
    controls: Float[Array, " b *moment"],
    share: Float[Array, " b"],
    trusted: Bool[Array, ""],
) -> tuple[Float[Array, " *moment"], Float[Array, " b *moment"]]:
    """Elementwise, a weighted mean minus a multiple of a control variate of mean zero.

    Args:
        sums: Weighted sums over blocks.
        controls: Weighted sums of the control variate over blocks.
        share: The blocks' weights, which add up to 1.
        trusted: Whether the control variate is used.

    Returns:
        The mean, and the contribution of each block to the error of the mean.
    """
    mean, parts = _apart(sums, share)
    offset, known = _apart(controls, share)
    square = jnp.sum(known * known, 0)
    # a control variate has a size of about 1; if it is below 1e4 eps, it consists of rounding errors
    usable = square > (1e4 * float(jnp.finfo(mean.dtype).eps)) ** 2
    slope = jnp.sum(parts * known, 0) / jnp.where(usable, square, 1.0)
    slope = jnp.where(trusted & usable & jnp.isfinite(slope), slope, 0.0)
    # NaN times 0 is NaN, so a control variate that is not finite is replaced
    offset, known = jnp.where(slope == 0.0, 0.0, offset), jnp.where(slope == 0.0, 0.0, known)
    return mean - slope * offset, parts - slope * known


def standard_error(parts: Float[Array, " b *moment"]) -> Float[Array, " *moment"]:
    """The standard error of a sum over blocks."""
    # minus two degrees of freedom: one for the mean, one for the slope of the control variate
    return jnp.sqrt(jnp.sum(parts * parts, 0) * (_BLOCKS / (_BLOCKS - 2.0)))


def _surprise(weights: Float[Array, "b n_b"], controls: Float[Array, "b n_b k"]) -> Float[Array, ""]:
    """The largest distance of a control variate's mean from 0, in standard errors of independent points."""
    offset = jnp.einsum("bn,bni->i", weights, controls)
    square = jnp.einsum("bn,bni->i", weights**2, controls**2)
    return jnp.max(jnp.abs(offset) / jnp.sqrt(jnp.where(square > 0, square, 1.0)))


# ---------------------------------------------------------------------------------------------- points


@cache
def normal_points(points: int, size: int) -> Float[np.ndarray, "points size"]:
    """Scrambled Sobol points as standard normal draws, the same in every call."""
    from scipy.special import ndtri

    uniform = _sobol(points, size)
    half = 0.5 / points  # shifts the points away from 0, so that their normal quantiles are finite
    return ndtri(np.clip(uniform, half, 1.0 - half))


def _sobol(points: int, size: int) -> Float[np.ndarray, "points size"]:
    """Scrambled Sobol points in the unit cube."""
    from scipy.stats import qmc

    return qmc.Sobol(size, scramble=True, rng=np.random.default_rng(20)).random(points)


@cache
def _sobol_bits(points: int, size: int) -> UInt[np.ndarray, "points size"]:
    """Scrambled Sobol points as 32 binary digits each."""
    return np.floor(_sobol(points, size) * 2.0**32).astype(np.uint32)


def draw_points(
    key: PRNGKeyArray | None, number: int | Int[Array, ""], points: int, size: int, dtype: DTypeLike
) -> tuple[Float[Array, " points"], Float[Array, "points size"]]:
    """Draws set ``number`` of points: uniform numbers and standard normal vectors.

    A digital shift adds the same random digits to all points of a block, without carry. Each point is then uniformly
    distributed, and the points together are as even as before.
    """
    if key is None and isinstance(number, int):
        with jax.ensure_compile_time_eval():
            fixed = jax.random.fold_in(jax.random.key(_FIXED), number)
            return _shifted(fixed, points, size, dtype)
    base = jax.random.key(_FIXED) if key is None else key
    return _shifted(jax.random.fold_in(base, number), points, size, dtype)


def _shifted(
    key: PRNGKeyArray, points: int, size: int, dtype: DTypeLike
) -> tuple[Float[Array, " points"], Float[Array, "points size"]]:
    shifts = jax.random.bits(key, (_BLOCKS, 1, size + 1), jnp.uint32)
    digits = (jnp.asarray(_sobol_bits(points // _BLOCKS, size + 1)) ^ shifts).reshape(points, size + 1)
    kept = (
        32 if jnp.finfo(dtype).bits >= 64 else 23
    )  # the number of digits for which a point plus half a step is a number of this dtype
    uniform = (jnp.right_shift(digits, jnp.uint32(32 - kept)).astype(dtype) + 0.5) / 2.0**kept
    return uniform[:, 0], math.sqrt(2.0) * jax.lax.erf_inv(2.0 * uniform[:, 1:] - 1.0)
