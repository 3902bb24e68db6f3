"""Jacobians of functions that may have only one of JAX's two modes of differentiation."""

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
