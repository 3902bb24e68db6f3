"""Derivatives of functions that may have only one of JAX's two modes of differentiation."""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float


def jacobian(f: Callable[[Float[Array, " k"]], Array]) -> Callable[[Float[Array, " k"]], Array]:
    """The Jacobian of ``f``, by forward mode if ``f`` has it, else by reverse mode.

    A function with ``jax.custom_vjp``, such as ``jax.experimental.ode.odeint``, has only reverse mode, and so has its
    gradient. Reverse mode costs more memory and time where both exist.
    """

    def at(u: Float[Array, " k"]) -> Array:
        try:
            return jax.jacfwd(f)(u)
        except (TypeError, NotImplementedError):  # JAX raises either, depending on the rule that is missing
            return jax.jacrev(f)(u)

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
