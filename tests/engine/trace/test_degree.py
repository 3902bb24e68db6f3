"""Degrees in θ: constant, affine, nonlinear; and degrees of polynomials."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from adfpp.engine.trace import Degree, trace
from adfpp.engine.trace.degree import BEYOND, polynomial_degree

Array = Any
TWO = jax.ShapeDtypeStruct((2,), jnp.float64)

OUTPUTS: list[tuple[Callable[[Array, Array], Array], Degree]] = [
    (lambda t, r: r + 1.0, Degree.CONSTANT),
    (lambda t, r: t @ r, Degree.AFFINE),
    (lambda t, r: -t[1:] / r[0] - 3.0, Degree.AFFINE),
    (lambda t, r: jnp.where(r > 0, t, 0.0), Degree.AFFINE),
    (lambda t, r: jnp.stack([t[0], t[1]]), Degree.AFFINE),
    (lambda t, r: jnp.zeros(3).at[1].set(t[0]), Degree.AFFINE),
    (lambda t, r: jnp.zeros(3).at[r[0].astype(int)].add(t[0]), Degree.AFFINE),
    (lambda t, r: t[r[0].astype(int)], Degree.AFFINE),
    (lambda t, r: jax.lax.integer_pow(t, 1), Degree.AFFINE),
    (lambda t, r: t * t, Degree.NONLINEAR),
    (lambda t, r: r / t, Degree.NONLINEAR),
    (lambda t, r: r[t[0].astype(int)], Degree.NONLINEAR),
    (lambda t, r: jnp.where(t > 0, r, 0.0), Degree.NONLINEAR),
    (lambda t, r: (t > 0) * 1.0, Degree.NONLINEAR),
    (lambda t, r: t.astype(int), Degree.NONLINEAR),
    (lambda t, r: t.astype(int).astype(float), Degree.NONLINEAR),
    (lambda t, r: r[jnp.argmax(t)], Degree.NONLINEAR),
    (lambda t, r: jnp.abs(t), Degree.NONLINEAR),
]


def test_degrees() -> None:
    """A comparison of θ is nonlinear, a comparison of the data constant."""
    program = trace(lambda t, r: [f(t, r) for f, _ in OUTPUTS], TWO, TWO)
    for i, (output, (_, degree)) in enumerate(zip(program.outputs, OUTPUTS, strict=True)):
        assert program.degree(output) == degree, i


@pytest.mark.parametrize(
    ("f", "degree"),
    [
        (lambda t, r: r * 2.0, 0),
        (lambda t, r: 3.0 * t[0] + r[0] - t[1], 1),
        (lambda t, r: t[0] * t[1] + t[0], 2),
        (lambda t, r: (t @ r) ** 2 / r[0], 2),
        (lambda t, r: jnp.square(t[0]) * t[1], BEYOND),
        (lambda t, r: t[0] ** 3, BEYOND),
        (lambda t, r: r[0] / t[0], BEYOND),
        (lambda t, r: jnp.where(r[0] > 0, t[0] * t[1], t[0]), 2),
        (lambda t, r: jnp.where(t[0] > 0, 1.0, 0.0), BEYOND),
        (lambda t, r: jnp.floor(t[0]), BEYOND),
        (lambda t, r: jnp.exp(r[0]) * t[0] ** 2, 2),
    ],
)
def test_degrees_of_polynomials(f: Callable[[Array, Array], Array], degree: int) -> None:
    """In all of θ together; what is no polynomial counts as one of any degree."""
    program = trace(lambda t, r: [f(t, r)], TWO, TWO)
    assert polynomial_degree(program.equations, [program.theta], program.outputs[0]) == degree
