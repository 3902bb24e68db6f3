"""Small programs ``f(theta, row, code)`` of many kinds, which the tests of this package take apart."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.engine.trace import Trace, trace
from adfpp.engine.trace.interpret import evaluate, read

Array = Any

N = 6


def gather(theta: Array, row: Array, code: Array) -> Array:
    return jnp.tanh(theta[code] * row[0]) + theta[(code + 1) % N]


def concatenate(theta: Array, row: Array, code: Array) -> Array:
    both = jnp.concatenate([theta[:2] * row, jnp.exp(theta[2:4]), row])
    return jnp.sum(jnp.sin(both)) + both[0]


def where(theta: Array, row: Array, code: Array) -> Array:
    return jnp.log1p(jnp.where(row[0] > 0, theta @ jnp.arange(6.0), theta[code]) ** 2)


def einsum(theta: Array, row: Array, code: Array) -> Array:
    return jax.nn.logsumexp(jnp.einsum("i,ijk->jk", row[:2], theta.reshape(2, 3, 1)))


def cumsum(theta: Array, row: Array, code: Array) -> Array:
    return jnp.sum(jnp.cos(jnp.cumsum(theta[:3]) * row[0]))


def sort(theta: Array, row: Array, code: Array) -> Array:
    return jnp.sort(theta[:3] * row[0])[0] + theta[4] ** 3


def scan(theta: Array, row: Array, code: Array) -> Array:
    def step(c: Array, t: Array) -> tuple[Array, None]:
        return jnp.tanh(c + t * row[0]), None

    return jax.lax.scan(step, theta[0], theta[1:4])[0]


def while_loop(theta: Array, row: Array, code: Array) -> Array:
    return jax.lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) + row @ theta[:2], theta[5])


def cond(theta: Array, row: Array, code: Array) -> Array:
    return jax.lax.cond(row[0] > 0, lambda t: t @ t, lambda t: jnp.sum(jnp.abs(t)), theta[:3])


def scatter(theta: Array, row: Array, code: Array) -> Array:
    return jnp.sum(jnp.exp(jnp.zeros(3).at[code % 3].add(theta[0] * 2.0).at[0].set(theta[1])))


def update(theta: Array, row: Array, code: Array) -> Array:
    moved = jax.lax.dynamic_update_slice(theta, 3.0 * theta[:2], (code,))
    return jnp.sum(jnp.sin(jax.lax.dynamic_slice(moved, (code,), (2,))))


def solve(theta: Array, row: Array, code: Array) -> Array:
    tril = jnp.array([[2.0, 0.0], [1.0, 3.0]])
    return jnp.sum(jnp.exp(jax.scipy.linalg.solve_triangular(tril, theta[:2], lower=True)))


def integers(theta: Array, row: Array, code: Array) -> Array:
    return jnp.floor(theta[0] * 3).astype(int) * row[0] + theta[1].astype(int)


def products(theta: Array, row: Array, code: Array) -> Array:
    return (theta[0] * row[0]) * (theta[1] + 1.0) + theta[2] / (1.0 + theta[3] ** 2) + row[0] / (2.0 + theta[4] ** 2)


def both_sides(theta: Array, row: Array, code: Array) -> Array:
    h = theta @ jnp.arange(6.0)
    return h * jnp.exp(-h)


def stopped(theta: Array, row: Array, code: Array) -> Array:
    h = theta[:2] @ row
    return jnp.exp(-h) + jax.lax.stop_gradient(h) ** 2 + 0.0 * jax.lax.stop_gradient(theta[3])


def stopped_affine(theta: Array, row: Array, code: Array) -> Array:
    return jax.nn.softplus(jax.lax.stop_gradient(theta[:2]) @ row + theta[2])


def stack(theta: Array, row: Array, code: Array) -> Array:
    return jnp.sum(jnp.stack([theta[:2] * row[:2], theta[2:4], jnp.ones(2)]) ** 3)


def moves(theta: Array, row: Array, code: Array) -> Array:
    moved = jnp.flip(theta.reshape(2, 3).T, 0)[1:, None, :]
    return jnp.sum(jnp.tanh(jnp.pad(moved, ((1, 0), (0, 0), (0, 1)), constant_values=0.5)))


def convolution(theta: Array, row: Array, code: Array) -> Array:
    return jnp.sum(jnp.exp(jnp.convolve(theta[:4], row[:2])))


def minmax(theta: Array, row: Array, code: Array) -> Array:
    return jnp.max(theta[:3]) * jnp.min(theta[3:]) + jnp.clip(theta[0], -0.5, 0.5) + jnp.argmax(theta)


def affine(theta: Array, row: Array, code: Array) -> Array:
    return theta @ jnp.arange(6.0) + row[0]


def constant(theta: Array, row: Array, code: Array) -> Array:
    return row[0] ** 2


def itself(theta: Array, row: Array, code: Array) -> Array:
    return theta


def elements(theta: Array, row: Array, code: Array) -> Array:
    h = theta[:4].reshape(2, 2) @ row[:2]
    return jnp.exp(h) + theta[4] * h


def broadcast(theta: Array, row: Array, code: Array) -> Array:
    table = theta[:2][:, None] * theta[2:5][None, :] + row[0] * theta[:2][:, None]
    return jnp.sin(table - theta[5].reshape(1, 1)).reshape(-1)


def gathered_rows(theta: Array, row: Array, code: Array) -> Array:
    return jnp.take_along_axis(jnp.tanh(theta.reshape(3, 2)), jnp.array([[0], [1], [0]]), 1)[:, 0]


def batched_products(theta: Array, row: Array, code: Array) -> Array:
    batch = theta.reshape(3, 1, 2)
    return jnp.exp(jnp.einsum("bij,bjk->bik", batch, jnp.ones((3, 2, 2)) * row[0])).reshape(-1)


def transposed_product(theta: Array, row: Array, code: Array) -> Array:
    return jnp.exp(jnp.tensordot(row[:2], theta.reshape(3, 2), ((0,), (1,))) * jnp.arange(1.0, 4.0))


def fftlike(theta: Array, row: Array, code: Array) -> Array:
    return jnp.abs(jnp.fft.fft(theta[:4]))


def mixed(theta: Array, row: Array, code: Array) -> Array:
    return jnp.tanh(jnp.concatenate([(theta[:2] @ row)[None], jnp.sin(theta[2:4]), row]))


def shifted(theta: Array, row: Array, code: Array) -> Array:
    return jnp.exp(theta[:3] * row[0] + 1.0) * jnp.array([0.5, 1.5, -1.0])


PROGRAMS: dict[str, Callable[..., Array]] = {
    f.__name__: f
    for f in (
        gather,
        concatenate,
        where,
        einsum,
        cumsum,
        sort,
        scan,
        while_loop,
        cond,
        scatter,
        update,
        solve,
        integers,
        products,
        both_sides,
        stopped,
        stopped_affine,
        stack,
        moves,
        convolution,
        minmax,
        affine,
        constant,
        itself,
        elements,
        broadcast,
        gathered_rows,
        batched_products,
        transposed_product,
        fftlike,
        shifted,
        mixed,
    )
}
ROW, CODE = jax.ShapeDtypeStruct((2,), jnp.float64), jax.ShapeDtypeStruct((), jnp.int64)
THETA = jax.ShapeDtypeStruct((N,), jnp.float64)


@cache
def traced(name: str, look_inside: bool = True) -> Trace:
    """The trace of one of the programs."""
    f = PROGRAMS[name]
    return trace(lambda *a: [jnp.asarray(f(*a))], THETA, ROW, CODE, look_inside=look_inside)


NUMBERS = 30  # of θ, for functions of θ and of a place
OfPlaces = Callable[[jax.Array, jax.Array], jax.Array]


def rewritten(f: OfPlaces) -> tuple[Any, Callable[..., np.ndarray]]:
    """The trace of a function, and the function that it computes."""
    traced = trace(
        lambda u, i: [f(u, i)], jax.ShapeDtypeStruct((NUMBERS,), jnp.float64), jax.ShapeDtypeStruct((1,), int)
    )

    def values(u: np.ndarray, i: np.ndarray) -> np.ndarray:
        env = traced.environment([i]) | {traced.theta: jnp.asarray(u)}
        evaluate(traced.equations, env)
        return np.asarray(read(traced.outputs[0], env))

    return traced, values
