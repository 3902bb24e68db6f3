"""Derivatives of functions that may have only one of JAX's two modes of differentiation."""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float


def jacobian(f: Callable[[Float[Array, " k"]], Array]) -> Callable[[Float[Array, " k"]], Array]:
    """The Jacobian of ``f``, by forward mode if ``f`` has it, else by reverse mode; see ``value_and_jacobian``."""
    both = value_and_jacobian(f)
    return lambda u: both(u)[1]


def value_and_jacobian(
    f: Callable[[Float[Array, " k"]], Array],
) -> Callable[[Float[Array, " k"]], tuple[Array, Array]]:
    """The value and the Jacobian of ``f``, by forward mode if ``f`` has it, else by reverse mode.

    A function with ``jax.custom_vjp``, such as ``jax.experimental.ode.odeint``, has only reverse mode, and so has its
    gradient. Reverse mode costs more memory and time where both exist.
    """

    def twice(u: Float[Array, " k"]) -> tuple[Array, Array]:
        value = f(u)
        return value, value

    def at(u: Float[Array, " k"]) -> tuple[Array, Array]:
        try:
            slopes, value = jax.jacfwd(twice, has_aux=True)(u)
        except (TypeError, NotImplementedError):  # JAX raises either, depending on the rule that is missing
            slopes, value = jax.jacrev(twice, has_aux=True)(u)
        return value, slopes

    return at


def gradient(f: Callable[[Float[Array, " k"]], Float[Array, ""]]) -> Callable[[Float[Array, " k"]], Float[Array, " k"]]:
    """The gradient of ``f``, by reverse mode if ``f`` has it, else by forward mode.

    A ``while_loop`` has only forward mode. It is inside of ``odeint`` when its own rule for reverse mode is not used.
    """

    def at(u: Float[Array, " k"]) -> Float[Array, " k"]:
        try:
            return jax.grad(f)(u)
        except (TypeError, ValueError, NotImplementedError):  # JAX raises one of them, depending on what is missing
            return jax.jacfwd(f)(u)

    return at
