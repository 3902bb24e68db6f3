"""Triangular roots of a few numbers, written out: a call of the library would cost a row more than its arithmetic."""

from typing import Any

import jax
import jax.numpy as jnp

_WRITTEN_OUT = 4


def whiten(f: jax.Array) -> tuple[jax.Array, jax.Array]:
    """F = L Q, with L ``(k, k)`` lower triangular and the rows of Q ``(k, N)`` orthonormal, 0 where F is deficient."""
    size = f.shape[0]
    if size == 0:
        return jnp.zeros((0, 0), f.dtype), f
    if size == 1:
        norm = jnp.sqrt(f[0] @ f[0])
        return norm[None, None], _over(f, norm, (norm > 0) & (norm < jnp.inf))
    if size <= _WRITTEN_OUT:
        return _gram_schmidt(f)
    q, r = jnp.linalg.qr(f.T)
    sign = jnp.where(jnp.diagonal(r) < 0, -1.0, 1.0)
    return (r * sign[:, None]).T, _over((q * sign).T, jnp.ones((), f.dtype), jnp.all(jnp.isfinite(r)))


def _over(a: jax.Array, norm: jax.Array, usable: jax.Array) -> jax.Array:
    """A / norm, or zero: a row that is not finite must not reach the belief even when multiplied by nothing."""
    return jnp.where(usable, a * (1.0 / jnp.where(usable, norm, 1.0)), 0.0)


def _gram_schmidt(f: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gram-Schmidt, each row cleaned twice: enough for any conditioning."""
    size, dtype = f.shape[0], f.dtype
    rows: list[jax.Array] = []
    scale = [[jnp.zeros((), dtype)] * size for _ in range(size)]
    tiny = 4.0 * float(jnp.finfo(dtype).eps)
    for i in range(size):
        rest, before = f[i], jnp.sqrt(f[i] @ f[i])
        for _ in range(2):
            for j, q in enumerate(rows):
                part = q @ rest
                scale[i][j] = scale[i][j] + part
                rest = rest - part * q
        norm = jnp.sqrt(rest @ rest)
        usable = (norm > tiny * before) & (norm < jnp.inf)
        # NaN stays in the scale, for the guard to see
        scale[i][i] = jnp.where(norm <= tiny * before, 0.0, norm)
        rows.append(_over(rest, norm, usable))
    return jnp.stack([jnp.stack(r) for r in scale]), jnp.stack(rows)


def small_cholesky(a: jax.Array) -> jax.Array:
    """Lower Cholesky root of a 2×2 or 3×3 matrix, written out: NaN where it is not positive definite."""
    size = a.shape[0]
    rows: list[list[jax.Array]] = []
    for i in range(size):
        row: list[jax.Array] = []
        for j in range(i):
            row.append((a[i, j] - sum(row[m] * rows[j][m] for m in range(j))) / rows[j][j])
        row.append(jnp.sqrt(a[i, i] - sum(x * x for x in row)))
        rows.append(row)
    zero = jnp.zeros((), a.dtype)
    return jnp.stack([jnp.stack(row + [zero] * (size - len(row))) for row in rows])


def reversed_cholesky(a: jax.Array) -> jax.Array:
    """Upper triangular U with U Uᵀ = a, NaN where a is not positive definite."""
    size = a.shape[0]
    if size == 1:
        return jnp.sqrt(a)
    if size > _WRITTEN_OUT:
        return jnp.linalg.cholesky(a[::-1, ::-1])[::-1, ::-1]
    u: list[list[Any]] = [[jnp.zeros((), a.dtype)] * size for _ in range(size)]
    for j in reversed(range(size)):
        u[j][j] = jnp.sqrt(a[j, j] - sum(u[j][m] * u[j][m] for m in range(j + 1, size)))
        for i in range(j):
            u[i][j] = (a[i, j] - sum(u[i][m] * u[j][m] for m in range(j + 1, size))) / u[j][j]
    return jnp.stack([jnp.stack(row) for row in u])


def inverse_lower(a: jax.Array) -> jax.Array:
    """Inverse of a lower triangular matrix."""
    size = a.shape[0]
    if size == 1:
        return 1.0 / a
    if size > _WRITTEN_OUT:
        return jax.scipy.linalg.solve_triangular(a, jnp.eye(size, dtype=a.dtype), lower=True)
    x: list[list[Any]] = [[jnp.zeros((), a.dtype)] * size for _ in range(size)]
    for i in range(size):
        x[i][i] = 1.0 / a[i, i]
        for j in range(i):
            x[i][j] = -x[i][i] * sum(a[i, m] * x[m][j] for m in range(j, i))
    return jnp.stack([jnp.stack(row) for row in x])


def inverse_upper(a: jax.Array) -> jax.Array:
    """Inverse of an upper triangular matrix."""
    return inverse_lower(a.T).T


def inverse_of(root: jax.Array) -> jax.Array:
    """Inverse of any small root."""
    size = root.shape[0]
    if size == 1:
        return 1.0 / root
    return jnp.linalg.inv(root) if size > 2 else _inverse_two(root)


def _inverse_two(a: jax.Array) -> jax.Array:
    determinant = a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
    return jnp.stack([jnp.stack([a[1, 1], -a[0, 1]]), jnp.stack([-a[1, 0], a[0, 0]])]) / determinant
