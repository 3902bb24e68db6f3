"""Algebra of small triangular matrices, against NumPy's; both the sizes written out and those left to a library."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adfpp.engine.linalg import (
    inverse_lower,
    inverse_of,
    inverse_upper,
    product,
    reversed_cholesky,
    root_of_product,
    small_cholesky,
    small_triangular_solve,
    whiten,
)

SIZES = [1, 2, 3, 4, 6]  # up to 4 is written out


def matrix(size: int, columns: int, seed: int = 0) -> np.ndarray:
    """Entries drawn from a normal distribution."""
    return np.random.default_rng(seed).normal(size=(size, columns))


@pytest.mark.parametrize("size", SIZES)
def test_whitening(size: int) -> None:
    """F = L Q, L lower triangular with a diagonal that is not negative, Q Qᵀ = I."""
    f = matrix(size, 9)
    lower, q = whiten(jnp.asarray(f))
    np.testing.assert_allclose(lower @ q, f, atol=1e-13)
    np.testing.assert_allclose(q @ q.T, np.eye(size), atol=1e-13)
    np.testing.assert_array_equal(np.triu(lower, 1), 0.0)
    assert (np.diagonal(lower) > 0).all()
    np.testing.assert_allclose(root_of_product(jnp.asarray(f)), lower, atol=1e-13)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(2, 3, 4), (300, 2, 50), (20, 30, 10), (1, 0, 2)])
def test_products(rows: int, inner: int, columns: int) -> None:
    """Small ones, long thin ones, ones that are left to a library, and empty ones."""
    a, b = matrix(rows, inner), matrix(inner, columns, 1)
    np.testing.assert_allclose(product(jnp.asarray(a), jnp.asarray(b)), a @ b, rtol=1e-12, atol=1e-12)


def test_whitening_nothing() -> None:
    lower, q = whiten(jnp.zeros((0, 5)))
    assert lower.shape == (0, 0) and q.shape == (0, 5)


@pytest.mark.parametrize("size", [1, 3, 6])
def test_dependent_rows_have_no_direction(size: int) -> None:
    """Their pivot is 0 exactly, and so is their row of Q."""
    f = matrix(size, 7)
    place = 4 if size == 6 else -1
    f[place] = 0.0 if size == 1 else f[0] - 2.0 * f[1]
    lower, q = whiten(jnp.asarray(f))
    assert float(lower[place, place]) == 0.0
    np.testing.assert_array_equal(q[place], 0.0)
    np.testing.assert_allclose(lower @ q, f, atol=1e-13)


def test_nearly_dependent_rows_stay_orthogonal() -> None:
    """A single pass of Gram-Schmidt would lose ten digits here."""
    f = matrix(3, 8)
    f[1] = f[0] + 1e-10 * f[1]
    _, q = whiten(jnp.asarray(f))
    np.testing.assert_allclose(q @ q.T, np.eye(3), atol=1e-14)


@pytest.mark.parametrize("size", [1, 2, 6])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_stay_out_of_the_directions(size: int, bad: float) -> None:
    """They show in L, where the guard finds them, but Q has no NaN that could reach a belief."""
    f = matrix(size, 7)
    f[-1, 2] = bad
    lower, q = whiten(jnp.asarray(f))
    assert np.isfinite(q).all() and not np.isfinite(lower).all()


def spd(size: int) -> np.ndarray:
    """A positive definite matrix."""
    a = matrix(size, size, 1)
    return a @ a.T + 0.1 * np.eye(size)


@pytest.mark.parametrize("size", SIZES)
def test_cholesky_roots(size: int) -> None:
    a = jnp.asarray(spd(size))
    upper = reversed_cholesky(a)
    np.testing.assert_allclose(upper @ upper.T, a, atol=1e-12)
    np.testing.assert_array_equal(np.tril(upper, -1), 0.0)
    np.testing.assert_allclose(small_cholesky(a), np.linalg.cholesky(a), atol=1e-12)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_roots_of_indefinite_matrices_are_no_numbers(size: int) -> None:
    a = jnp.asarray(spd(size)).at[0, 0].set(-1.0)
    assert np.isnan(reversed_cholesky(a)).any() and np.isnan(small_cholesky(a)).any()


@pytest.mark.parametrize("size", SIZES)
def test_inverses(size: int) -> None:
    lower, whole = np.linalg.cholesky(spd(size)), matrix(size, size, 2) + 3.0 * np.eye(size)
    np.testing.assert_allclose(inverse_lower(jnp.asarray(lower)), np.linalg.inv(lower), atol=1e-11)
    np.testing.assert_allclose(inverse_upper(jnp.asarray(lower.T)), np.linalg.inv(lower.T), atol=1e-11)
    np.testing.assert_allclose(inverse_of(jnp.asarray(whole)), np.linalg.inv(whole), atol=1e-11)
    if size > 1:
        np.testing.assert_array_equal(np.triu(inverse_lower(jnp.asarray(lower)), 1), 0.0)


@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=15, deadline=None)
def test_whiten_factorises_any_field(seed: int, size: int) -> None:
    """F = L Q with Q orthonormal, even when rows of F repeat or vanish."""
    rng = np.random.default_rng(seed)
    f = rng.normal(size=(size, 9)) * 10.0 ** rng.integers(-6, 6)
    if size > 1:
        f[-1] = f[0] * rng.choice([0.0, 1.0, -3.0])
    scale, q = whiten(jnp.asarray(f))
    np.testing.assert_allclose(scale @ q, f, atol=1e-12 * np.abs(f).max())
    np.testing.assert_allclose(scale @ scale.T, f @ f.T, atol=1e-11 * np.abs(f).max() ** 2)
    gram = np.asarray(q @ q.T)
    np.testing.assert_allclose(gram, np.diag(np.round(np.diagonal(gram))), atol=1e-12)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("left_side", [False, True])
@pytest.mark.parametrize("unit_diagonal", [False, True])
def test_small_triangular_systems(left_side: bool, lower: bool, transpose_a: bool, unit_diagonal: bool) -> None:
    """Against NumPy's general solver, with the batch axes that the density of a plate has."""
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=(2, 3, 3)) + 3.0 * np.eye(3), rng.normal(size=(2, 3, 3))
    matrix = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        matrix = np.where(np.eye(3) > 0, 1.0, matrix)
    matrix = np.swapaxes(matrix, 1, 2) if transpose_a else matrix
    got = small_triangular_solve(
        jnp.asarray(a),
        jnp.asarray(b),
        left_side=left_side,
        lower=lower,
        transpose_a=transpose_a,
        unit_diagonal=unit_diagonal,
    )
    expected = np.linalg.solve(matrix, b) if left_side else b @ np.linalg.inv(matrix)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
