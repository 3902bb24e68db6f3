"""Derivatives of functions with either of the two modes of differentiation."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adfpp.engine.derivatives import gradient, jacobian

Array = Any


def reverse_only() -> Callable[[Array], Array]:
    """A cubic without a forward mode, whose derivative has none either."""

    @jax.custom_vjp
    def cube(u: Array) -> Array:
        return u**3

    @jax.custom_vjp
    def slope(u: Array) -> Array:
        return 3.0 * u**2

    cube.defvjp(lambda u: (cube(u), u), lambda u, g: (slope(u) * g,))
    slope.defvjp(lambda u: (slope(u), u), lambda u, g: (6.0 * u * g,))
    return cube


def forward_only(u: Array) -> Array:
    """The same cubic by a loop, of which JAX has no reverse mode."""
    return jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * u), (0, u))[1]


@pytest.mark.parametrize("f", [reverse_only(), forward_only, lambda u: u**3], ids=["reverse", "forward", "both"])
def test_either_mode(f: Callable[[Array], Array]) -> None:
    """The derivative of a cube."""
    u = jnp.array([0.5, -2.0])
    np.testing.assert_allclose(jax.jit(jacobian(f))(u), np.diag([0.75, 12.0]), rtol=1e-12)
    np.testing.assert_allclose(jax.jit(gradient(lambda u: jnp.sum(f(u))))(u), [0.75, 12.0], rtol=1e-12)


def test_a_hessian_in_reverse() -> None:
    """The second derivative, where even the gradient has no forward mode."""
    f = reverse_only()
    slope = jax.grad(lambda u: jnp.sum(f(u)))
    np.testing.assert_allclose(jacobian(slope)(jnp.array([0.5, -2.0])), np.diag([3.0, -12.0]), rtol=1e-12)


def test_an_error_of_the_function_stays_one() -> None:
    """A mistake in the function is raised, and not taken for a missing mode."""
    with pytest.raises(TypeError, match="shapes"):
        jacobian(lambda u: u + jnp.ones(3))(jnp.ones(2))
