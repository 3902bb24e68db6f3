"""Posteriors of local latents, given a Gaussian belief over θ."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from adfpp.engine.linalg import root_of_product
from adfpp.engine.sites import cavity

if TYPE_CHECKING:
    from adfpp.model.program import Program

# Probabilities of a discrete latent; mean and sd of a continuous one.
_Marginal: TypeAlias = jax.Array | tuple[jax.Array, jax.Array]

_BATCH = 256  # rows computed at once


def local_posterior(
    program: "Program",
    mean: ArrayLike,
    scale: ArrayLike,
    rows: Sequence[ArrayLike],
    shared: Sequence[ArrayLike],
    sites: Sequence[ArrayLike] | None = None,
) -> dict[str, Any]:
    """Posteriors of the local latents of some rows, given a Gaussian belief over θ.

    The posterior in a row is computed from (belief × row) by the rule that computes the row's tilted moments. A belief
    that has absorbed the row would count it twice; pass ``sites`` to divide the rows out of the belief first.

    Args:
        program: The model as it was read.
        mean: ``(N,)`` the mean of the belief.
        scale: A root of the belief's covariance: ``(N, N)``, ``(N,)`` or ``()``.
        rows: Row arrays with a common leading axis n.
        shared: Shared arrays.
        sites: The rows' sites if the belief has absorbed them: for each group of factors ``(n, E, numbers)``.

    Returns:
        For discrete latents ``{latent: probabilities (n, ..., K)}`` over the K values of the support; for continuous
        ones ``{latent: (mean (n, ...), sd (n, ...))}`` in unconstrained space. Latents that no observation depends on
        are left out.
    """
    arrays = [jnp.asarray(a) for a in rows]
    given = None if sites is None else [jnp.asarray(a) for a in sites]
    mean, scale = jnp.asarray(mean, program.dtype), jnp.asarray(scale, program.dtype)
    return jax.device_get(program.compiled(_of_rows)(mean, scale, arrays, [jnp.asarray(a) for a in shared], given))


def _of_rows(
    program: "Program",
    mean: jax.Array,
    scale: jax.Array,
    rows: list[jax.Array],
    shared: list[jax.Array],
    sites: list[jax.Array] | None,
) -> dict[str, _Marginal]:
    def of(row: tuple[list[jax.Array], list[jax.Array] | None]) -> dict[str, _Marginal]:
        return _of_row(program, mean, scale, row[0], shared, row[1])

    return jax.lax.map(of, (rows, sites), batch_size=_BATCH)


def _of_row(
    program: "Program",
    mean: jax.Array,
    scale: jax.Array,
    row: list[jax.Array],
    shared: list[jax.Array],
    sites: list[jax.Array] | None,
) -> dict[str, _Marginal]:
    discrete = [s for s in program.local if s.support is not None]
    inputs = [*[a[None] for a in row], *shared]
    numbers: dict[int, tuple[jax.Array, jax.Array]] = {}  # (mean, sd) of each continuous number
    chances: dict[int, jax.Array] = {}  # (K,) probabilities of each discrete number
    for i, group in enumerate(program.factors):
        if group.local is None:
            continue
        matrix, field = group.matrices(mean, *inputs)
        posterior = group.local.rules(*inputs).posterior
        for e, component in enumerate(group.local.components):
            root = root_of_product(matrix[e] @ scale if scale.ndim == 2 else matrix[e] * scale)
            centre = field[e]
            if sites is not None and group.field_size:
                outside = cavity(sites[i][e], centre, root, jnp.ones((), mean.dtype), False)
                centre, root = outside.mean, outside.scale
            moments = posterior(e, centre, root)
            for j, number in enumerate(component.numbers):
                numbers[number] = moments.mean[j], moments.sd[j]
            for j, number in enumerate(component.discrete):
                latent = next(s for s in discrete if number in s.places)
                assert latent.support is not None
                alike = component.combinations[:, j][None] == latent.support[:, None]
                chances[number] = jnp.asarray(alike, mean.dtype) @ moments.weights
    out: dict[str, _Marginal] = {}
    for s in program.local:
        if s.support is None and all(i in numbers for i in s.places):
            both = [jnp.stack([numbers[i][j] for i in s.places]) for j in (0, 1)]
            out[s.name] = (s.per_row(both[0]), s.per_row(both[1]))
    for s in discrete:
        if all(i in chances for i in s.places):
            stacked = jnp.stack([chances[i] for i in s.places], -1)
            out[s.name] = jnp.moveaxis(s.per_row(stacked), 0, -1)
    return out
