"""Projects priors onto Gaussian blocks in unconstrained space, exactly if they are Gaussian, else by moments."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.compilation import run_once
from adfpp.engine.derivatives import value_and_jacobian
from adfpp.engine.families import Block
from adfpp.model.priors.density import prior_draws

LogPrior = Callable[[jax.Array], list[jax.Array]]


class Component(NamedTuple):
    """Latents whose priors are connected, because one depends on another.

    Attributes:
        names: The latents.
        members: Their positions among the latents of the model.
        where: Their places in θ ``(d,)``.
        scalar: Whether the elements are independent scalars.
        roots: If there are several latents: those whose prior depends on no other latent, each as a component.
        dependents: The positions of the latents that are not roots.
        terms: The positions, in the log prior, of the terms of the prior that belong to it.
    """

    names: tuple[str, ...]
    members: tuple[int, ...]
    where: np.ndarray
    scalar: bool
    roots: tuple["Component", ...] = ()
    dependents: tuple[int, ...] = ()
    terms: tuple[int, ...] = ()


_POINTS = (0.0, 0.7, -1.3)  # a log density whose curvature is the same at three uneven points is taken for quadratic
_LARGEST_HESSIAN = 512  # beyond it the (d, d) Hessian at two points costs more than draws do
_LARGEST_END = 1e-3  # share of a variance at the ends of the grid beyond which it counts as infinite
_SAMPLES = 1 << 14  # draws, for moments to about 1 % of an sd
_GRID = np.linspace(-18.0, 18.0, 7201)  # in t with u = sinh(t): reaches 3e7 scales, with 200 points in each unit of t


def tight(dtype: np.dtype) -> float:
    """The relative error up to which two numbers that were computed in this dtype count as equal."""
    return 1e-9 if dtype == jnp.float64 else 1e-4


class PriorError(ValueError):
    """A prior that has no Gaussian projection. The message names the latent, the cause and the remedy."""


class Projection(NamedTuple):
    """The part of a prior that consists of independent blocks.

    Attributes:
        blocks: The blocks of all latents except the coupled ones.
        coupled: The positions of latents whose priors depend on other latents and are not jointly Gaussian with them.
        terms: The names of the terms of the prior that are not part of a block.
    """

    blocks: list[Block]
    coupled: tuple[int, ...]
    terms: tuple[str, ...] = ()

    def draws(self, rng: np.random.Generator, count: int, size: int) -> np.ndarray | None:
        """Draws ``(count, N)`` of θ, without the terms. None unless all latents are in Gaussian blocks."""
        if self.coupled or any(block.natural is not None for block in self.blocks):
            return None
        out = np.zeros((count, size))
        for block in self.blocks:
            noise = rng.standard_normal((count, len(block.where)))
            out[:, block.where] = block.mean + (noise @ block.root.T if block.root.ndim == 2 else noise * block.root)
        return out


def project_gaussian(
    components: Sequence[Component],
    log_prior: LogPrior,
    sampler: Callable[[jax.Array], jax.Array],
    size: int,
    dtype: np.dtype,
) -> Projection:
    """Projects each component of a prior for which that is possible.

    Args:
        components: The connected latents.
        log_prior: ``θ -> [log prior of each latent]``, elementwise for scalar components.
        sampler: ``key -> θ``, one prior draw.
        size: Length of θ.
        dtype: The dtype of θ.
    """
    blocks: list[Block] = []
    coupled: list[int] = []
    left = []
    for c in components:
        block = None if c.scalar else exact_block(c, log_prior, size, dtype)
        if block is not None:
            blocks.append(block)
        elif c.dependents:
            left += c.roots
            coupled += c.dependents
        else:
            left.append(c)
    scalar = [c for c in left if c.scalar]
    if scalar:
        blocks += _scalars(scalar, log_prior, size, dtype)
    sampled = []
    for c in left:
        if not c.scalar:
            # The joint density of a component of several latents has been tried, but not that of this root.
            block = None if any(c is other for other in components) else exact_block(c, log_prior, size, dtype)
            if block is None:
                sampled.append(c)
            else:
                blocks.append(block)
    if sampled:
        blocks += _sampled(sampled, sampler)
    return Projection(blocks, tuple(coupled))


def _scalars(components: Sequence[Component], log_prior: LogPrior, size: int, dtype: np.dtype) -> list[Block]:
    """All scalar components at once: the elements are independent, so one derivative serves them all."""
    order = np.concatenate([c.where for c in components])

    def log_density(theta: jax.Array) -> jax.Array:
        logs = log_prior(theta)
        return jnp.concatenate([logs[c.members[0]] for c in components])

    def derivatives(u: jax.Array) -> tuple[jax.Array, jax.Array]:
        theta = jnp.full(size, u, dtype)
        ones = jnp.ones(size, dtype)

        def slope(t: jax.Array) -> jax.Array:
            return jax.jvp(log_density, (t,), (ones,))[1]

        return jax.jvp(slope, (theta,), (ones,))

    slopes, curvatures = (np.asarray(a, float) for a in run_once(jax.vmap(derivatives), jnp.asarray(_POINTS, dtype)))
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.abs(curvatures - curvatures[0]).max(0)
        gaussian = (curvatures[0] < 0) & (spread <= tight(dtype) * np.abs(curvatures[0])) & np.isfinite(slopes).all(0)
        mean, sd = -slopes[0] / curvatures[0], 1.0 / np.sqrt(-curvatures[0])
    if not gaussian.all():
        by_quadrature = _quadrature(log_density, order, size, dtype)
        mean = np.where(gaussian, mean, by_quadrature[0])
        sd = np.where(gaussian, sd, by_quadrature[1])
        lost = ~gaussian & ~(by_quadrature[2] < _LARGEST_END)
    else:
        lost = np.zeros_like(gaussian)
    blocks, start = [], 0
    for c in components:
        part = slice(start, start + len(c.where))
        start += len(c.where)
        if lost[part].any():
            raise PriorError(
                f"The prior of latent {c.names[0]!r} has no finite mean and variance in unconstrained space (heavy "
                "tails, as a Cauchy has, or none at all), so no Gaussian matches it. Use a lighter one, or start from "
                f"another: prior={{{c.names[0]!r}: dist.Normal(0, 10)}}."
            )
        how = "exact" if gaussian[part].all() else "moments by quadrature"
        blocks.append(Block(c.where, mean[part], sd[part], how))
    return blocks


def _quadrature(
    log_density: Callable[[jax.Array], jax.Array], order: np.ndarray, size: int, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, sd and the ends' share of the variance by the trapezoidal rule in t, u = centre + scale·sinh(t).

    All densities here are smooth, and sinh turns their tails into double exponentials, for which the trapezoidal rule
    converges exponentially. The centre and scale of the first grid are 0 and 1, then twice the highest point and the
    spacing around it, then twice the mean and a quarter of the sd (a kink costs the square of the spacing).
    """
    t = jnp.asarray(_GRID, dtype)
    spacing = float(_GRID[1] - _GRID[0])
    place = np.full(size, len(order))  # where each number of θ is among the components' numbers, which a 0 follows
    place[order] = np.arange(len(order))

    def add(grid: tuple[jax.Array, jax.Array], so_far: tuple[jax.Array, ...], s: jax.Array) -> tuple[jax.Array, ...]:
        """Adds a point of the grid to the highest point and to the sums, which are in units of that point."""
        top, at, *sums = so_far
        centre, scale = grid
        v = scale * jnp.sinh(s)
        height = log_density(jnp.append(centre + v, 0.0)[place]) + jnp.log(jnp.cosh(s))
        height = jnp.where(jnp.isfinite(height), height, -jnp.inf)
        higher = height > top
        new = jnp.where(higher, height, top)
        old, w = (jnp.where(a > -jnp.inf, jnp.exp(a - new), 0.0) for a in (top, height))
        end = jnp.where(jnp.abs(s) > 0.98 * _GRID[-1], v * v, 0.0)
        sums = (old * a + w * b for a, b in zip(sums, (1.0, v, v * v, end), strict=True))
        return new, jnp.where(higher, s, at), *sums

    def step(i: jax.Array, before: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        grid, zero = (before[0], before[1]), jnp.zeros_like(before[0])
        start = (jnp.full_like(zero, -jnp.inf), zero, zero, zero, zero, zero)
        _, at, mass, first, second, end = jax.lax.scan(lambda a, s: (add(grid, a, s), None), start, t)[0]
        offset = first / mass
        mean, sd = grid[0] + offset, jnp.sqrt(second / mass - offset * offset)
        usable = jnp.isfinite(mean) & (sd > 0) & jnp.isfinite(sd)
        centre = jnp.where(i < 2, grid[0] + grid[1] * jnp.sinh(at), jnp.where(usable, mean, grid[0]))
        scale = jnp.where(i < 2, grid[1] * jnp.cosh(at) * spacing, jnp.where(usable, 0.25 * sd, grid[1]))
        return centre, scale, mean, sd, end / second

    def run() -> tuple[jax.Array, ...]:
        zero = jnp.zeros(len(order), dtype)
        return jax.lax.fori_loop(0, 5, step, (zero, zero + 1.0, zero, zero, zero))[2:]

    mean, sd, ends = (np.asarray(a, float) for a in run_once(run))
    return mean, sd, np.where(np.isfinite(mean) & np.isfinite(sd), ends, np.inf)


def exact_block(c: Component, log_prior: LogPrior, size: int, dtype: np.dtype) -> Block | None:
    """The component as a Gaussian if its log density is quadratic, else None."""
    d = len(c.where)
    if d > _LARGEST_HESSIAN:
        return None

    def log_density(u: jax.Array) -> jax.Array:
        logs = log_prior(jnp.zeros(size, dtype).at[c.where].set(u))
        return sum((jnp.sum(logs[i]) for i in (*c.members, *c.terms)), jnp.zeros((), dtype))

    points = np.random.default_rng(4).normal(size=(2, d))
    if _clearly_not_quadratic(log_density, points, dtype):
        return None
    gradient = jax.grad(log_density)
    slopes, hessians = (
        np.asarray(a, float) for a in run_once(jax.vmap(value_and_jacobian(gradient)), jnp.asarray(points, dtype))
    )
    change = np.abs(hessians[0] - hessians[1]).max()
    if not np.isfinite(hessians).all() or change > tight(dtype) * np.abs(hessians[0]).max():
        return None
    precision = -0.5 * (hessians[0] + hessians[0].T)
    sizes = np.linalg.eigvalsh(precision)
    # terms may leave directions open, whose precision is then a rounding error of that of the others
    least = d * float(jnp.finfo(dtype).eps) * sizes.max() if c.terms else 0.0
    if sizes.min() <= least:
        return None
    mean = points[0] + np.linalg.solve(precision, slopes[0])
    # precision = K Kᵀ, so K⁻ᵀ is a root of the covariance
    root = np.linalg.inv(np.linalg.cholesky(precision)).T
    how = "exact" if len(c.members) == 1 else f"exact, jointly with {', '.join(c.names)}"
    if not c.terms:
        return Block(c.where, mean, root, how)
    highest = float(jax.jit(log_density)(jnp.asarray(mean, dtype)))
    log_mass = highest + np.linalg.slogdet(root)[1] + 0.5 * d * np.log(2.0 * np.pi)
    return Block(c.where, mean, root, f"{how}, with its constraints", log_mass=float(log_mass))


def _clearly_not_quadratic(log_density: Callable[[jax.Array], jax.Array], points: np.ndarray, dtype: np.dtype) -> bool:
    """Whether the third difference of a log density along the line through two points is far from 0.

    So the Hessian of most hierarchies is never compiled. The limit is far above the rounding errors of a quadratic
    function in float32. A density that stays below it is judged by its Hessian.
    """
    line = points[0] + np.arange(4)[:, None] * (points[1] - points[0])
    values = np.asarray(run_once(jax.vmap(log_density), jnp.asarray(line, dtype)), float)
    third = abs(values @ [-1.0, 3.0, -3.0, 1.0])
    return bool(np.isfinite(values).all() and third > 0.01 * np.abs(values).max())


def _sampled(components: Sequence[Component], sampler: Callable[[jax.Array], jax.Array]) -> list[Block]:
    draws = prior_draws(sampler, _SAMPLES)
    blocks = []
    for c in components:
        mine = draws[:, c.where]
        if not np.isfinite(mine).all() or 4 * len(c.where) > _SAMPLES:
            raise PriorError(
                f"The prior of latent {c.names[0]!r} could not be matched by sampling ({len(c.where)} coupled "
                "elements). Draw independent standardised elements and transform them, or pass prior=."
            )
        spread = np.sort((mine - mine.mean(0)) ** 2, 0)
        if (spread[-_SAMPLES // 1000 :].sum(0) > 0.5 * spread.sum(0)).any():
            raise PriorError(
                f"The prior of latent {c.names[0]!r} has tails so heavy that a few draws make up its variance: no "
                "Gaussian matches it. Draw independent standardised elements and scale them, use lighter tails, or "
                "pass prior=."
            )
        covariance = np.atleast_2d(np.cov(mine.T))
        blocks.append(Block(c.where, mine.mean(0), np.linalg.cholesky(covariance), f"moments by {_SAMPLES} draws"))
    return blocks
