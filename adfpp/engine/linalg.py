"""Algebra of small triangular matrices.

Up to four rows the algebra is written out number by number: for matrices this small, the call of a library function
takes longer than the arithmetic.
"""

from functools import reduce

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

_WRITTEN_OUT = 4  # for larger matrices the written-out program is larger and no faster


_SUMMED = 1024  # multiplications of a matrix product up to which a library is no faster than a loop


def product(a: Float[Array, "m k"], b: Float[Array, "k n"]) -> Float[Array, "m n"]:
    """The product of two matrices, as a sum if they are small or k is.

    XLA calls a library for most products of two matrices, though not for those with a vector. A loop over rows that
    calls one is not compiled as one function: this takes longer, and so does each row.
    """
    inner = a.shape[1]
    if 0 < inner <= _WRITTEN_OUT:
        return reduce(jnp.add, [a[:, i, None] * b[i] for i in range(inner)])
    if min(a.shape[0], b.shape[1]) == 1 or a.shape[0] * inner * b.shape[1] > _SUMMED:
        return a @ b
    return jnp.sum(a[:, :, None] * b[None, :, :], 1)


def whiten(f: Float[Array, "k n"]) -> tuple[Float[Array, "k k"], Float[Array, "k n"]]:
    """Returns L and Q with F = L Q: L lower triangular, the rows of Q orthonormal (0 for dependent rows of F)."""
    size = f.shape[0]
    if size == 0:
        return jnp.zeros((0, 0), f.dtype), f
    if size == 1:
        norm = jnp.sqrt(f[0] @ f[0])
        return norm[None, None], _over(f, norm, (norm > 0) & (norm < jnp.inf))
    if size <= _WRITTEN_OUT:
        return _gram_schmidt(f)
    return _gram_schmidt_by_loop(f)


def root_of_product(f: Float[Array, "k n"]) -> Float[Array, "k k"]:
    """Returns the lower triangular L with L Lᵀ = F Fᵀ."""
    return jnp.sqrt(jnp.sum(f * f, 1, keepdims=True)) if f.shape[0] == 1 else whiten(f)[0]


def _over(a: Float[Array, "*n"], norm: Float[Array, ""], usable: Bool[Array, ""]) -> Float[Array, "*n"]:
    """Returns a / norm, or 0 if it is not usable: NaN times 0 is NaN, so a row that is not finite must not remain."""
    return jnp.where(usable, a * (1.0 / jnp.where(usable, norm, 1.0)), 0.0)


def _gram_schmidt(f: Float[Array, "k n"]) -> tuple[Float[Array, "k k"], Float[Array, "k n"]]:
    """The Gram-Schmidt process. Each row is orthogonalised twice, which is enough for any conditioning."""
    size, dtype = f.shape[0], f.dtype
    rows: list[Float[Array, " n"]] = []
    scale = [[jnp.zeros((), dtype)] * size for _ in range(size)]
    tiny = 4.0 * float(jnp.finfo(dtype).eps)  # a smaller remainder consists of rounding errors
    for i in range(size):
        rest, before = f[i], jnp.sqrt(f[i] @ f[i])
        for _ in range(2):
            for j, q in enumerate(rows):
                part = q @ rest
                scale[i][j] = scale[i][j] + part
                rest = rest - part * q
        norm = jnp.sqrt(rest @ rest)
        usable = (norm > tiny * before) & (norm < jnp.inf)
        # NaN stays in the scale, where the kernel detects it
        scale[i][i] = jnp.where(norm <= tiny * before, 0.0, norm)
        rows.append(_over(rest, norm, usable))
    return jnp.stack([jnp.stack(r) for r in scale]), jnp.stack(rows)


def _gram_schmidt_by_loop(f: Float[Array, "k n"]) -> tuple[Float[Array, "k k"], Float[Array, "k n"]]:
    """As ``_gram_schmidt``, for more rows.

    A QR decomposition would give a dependent row a direction of its own, with a pivot that is a rounding error.
    """
    size, dtype = f.shape[0], f.dtype
    tiny = 4.0 * size * float(jnp.finfo(dtype).eps)

    def step(i: Int[Array, ""], done: tuple[Array, Array]) -> tuple[Array, Array]:
        scale, rows = done
        before = jnp.sqrt(f[i] @ f[i])
        part = rows @ f[i]
        rest = f[i] - part @ rows
        again = rows @ rest
        rest = rest - again @ rows
        norm = jnp.sqrt(rest @ rest)
        usable = (norm > tiny * before) & (norm < jnp.inf)
        pivot = jnp.where(norm <= tiny * before, 0.0, norm)
        return scale.at[i].set((part + again).at[i].set(pivot)), rows.at[i].set(_over(rest, norm, usable))

    return jax.lax.fori_loop(0, size, step, (jnp.zeros((size, size), dtype), jnp.zeros_like(f)))


def small_cholesky(a: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The lower Cholesky root of a small matrix; it has NaN if the matrix is not positive definite."""
    size = a.shape[0]
    if size > _WRITTEN_OUT:
        return jnp.linalg.cholesky(a)
    rows: list[list[Float[Array, ""]]] = []
    for i in range(size):
        row: list[Float[Array, ""]] = []
        for j in range(i):
            row.append((a[i, j] - sum(row[m] * rows[j][m] for m in range(j))) / rows[j][j])
        row.append(jnp.sqrt(a[i, i] - sum(x * x for x in row)))
        rows.append(row)
    zero = jnp.zeros((), a.dtype)
    return jnp.stack([jnp.stack(row + [zero] * (size - len(row))) for row in rows])


def reversed_cholesky(a: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The upper triangular U with U Uᵀ = a; it has NaN if a is not positive definite."""
    size = a.shape[0]
    if size == 1:
        return jnp.sqrt(a)
    if size > _WRITTEN_OUT:
        return jnp.linalg.cholesky(a[::-1, ::-1])[::-1, ::-1]
    u: list[list[Float[Array, ""]]] = [[jnp.zeros((), a.dtype)] * size for _ in range(size)]
    for j in reversed(range(size)):
        u[j][j] = jnp.sqrt(a[j, j] - sum(u[j][m] * u[j][m] for m in range(j + 1, size)))
        for i in range(j):
            u[i][j] = (a[i, j] - sum(u[i][m] * u[j][m] for m in range(j + 1, size))) / u[j][j]
    return jnp.stack([jnp.stack(row) for row in u])


def inverse_lower(a: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The inverse of a lower triangular matrix."""
    size = a.shape[0]
    if size == 1:
        return 1.0 / a
    if size > _WRITTEN_OUT:
        return jax.scipy.linalg.solve_triangular(a, jnp.eye(size, dtype=a.dtype), lower=True)
    x: list[list[Float[Array, ""]]] = [[jnp.zeros((), a.dtype)] * size for _ in range(size)]
    for i in range(size):
        x[i][i] = 1.0 / a[i, i]
        for j in range(i):
            x[i][j] = -x[i][i] * sum(a[i, m] * x[m][j] for m in range(j, i))
    return jnp.stack([jnp.stack(row) for row in x])


def small_triangular_solve(
    a: Float[Array, "*batch n n"],
    b: Float[Array, "*batch n m"],
    *,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    unit_diagonal: bool,
) -> Float[Array, "*batch n m"]:
    """Solves a small triangular system by substitution, written out; the arguments are those of JAX's own solver."""
    if transpose_a == left_side:  # x a = b is aᵀ xᵀ = bᵀ
        a, lower = jnp.swapaxes(a, -1, -2), not lower
    b = b if left_side else jnp.swapaxes(b, -1, -2)
    places = range(a.shape[-1]) if lower else reversed(range(a.shape[-1]))
    x: dict[int, Float[Array, "*batch m"]] = {}
    for i in places:
        rest = b[..., i, :] - sum(a[..., i, j, None] * known for j, known in x.items())
        x[i] = rest if unit_diagonal else rest / a[..., i, i, None]
    out = jnp.stack([x[i] for i in range(len(x))], -2)
    return out if left_side else jnp.swapaxes(out, -1, -2)


def inverse_upper(a: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The inverse of an upper triangular matrix."""
    return inverse_lower(a.T).T


def inverse_of(root: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The inverse of any small matrix."""
    size = root.shape[0]
    if size == 1:
        return 1.0 / root
    if size == 2:
        return _inverse_two(root)
    if size > _WRITTEN_OUT:
        return jnp.linalg.inv(root)
    lower, q = whiten(root)
    return product(q.T, inverse_lower(lower))


def _inverse_two(a: Float[Array, "2 2"]) -> Float[Array, "2 2"]:
    determinant = a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
    return jnp.stack([jnp.stack([a[1, 1], -a[0, 1]]), jnp.stack([-a[1, 0], a[0, 0]])]) / determinant
