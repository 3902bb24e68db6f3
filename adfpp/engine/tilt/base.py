"""What a tilt is.

A tilt is asked in the *whitened* coordinates of the cavity: the field is ``h = mean + scale @ u`` with
``u ~ N(0, I)`` before the factor is seen. It answers with the moments of ``u`` after it is seen. In these units a
factor that says nothing gives shift 0 and root 1, and a posterior ten orders of magnitude narrower than its cavity
is a small number, never a difference of large ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

Rule = Callable[..., "Tilted"]


class Drawn(NamedTuple):
    """What a rule that draws points says of them.

    Attributes:
        effective: ``()`` effective sample size.
        rounds: ``()`` rounds of tempering that the proposal needed; 0 for none.
        reliable: ``()`` whether the effective sample size is large enough for the moments to be used.
    """

    effective: jax.Array
    rounds: jax.Array
    reliable: jax.Array


class Tilted(NamedTuple):
    """Moments of cavity times factor, in the whitened field.

    Attributes:
        log_z: ``()``, log of the factor's expectation under the cavity: the log predictive density of the element.
        shift: ``(k,)``, mean of the tilted ``u``; for scalar fields the tilted mean minus the cavity mean, in
            cavity sds.
        root: ``(k, k)``, any matrix with ``root @ root.T`` the covariance of the tilted ``u``; for scalar fields
            the tilted sd over the cavity sd.
        error: ``()``, estimated error of the worst of the three: the mean in tilted sds, the variance relative,
            log_z absolute. Zero for a closed form.
        drawn: Of rules that draw points; empty for others.
    """

    log_z: jax.Array
    shift: jax.Array
    root: jax.Array
    error: jax.Array | float = 0.0
    drawn: Drawn | tuple[()] = ()

    @property
    def positive(self) -> jax.Array:
        """``()`` whether the root has a positive diagonal, as a triangular root of a covariance has."""
        return jnp.all(jnp.diagonal(self.root) > 0)


class Message(NamedTuple):
    """What a factor says, as a Gaussian in the whitened field: ``exp(slope @ u - u @ precision @ u / 2)``.

    Attributes:
        log_z: ``()``, log of the factor's expectation under the cavity; in the limit of power 0 the expectation of its
            log.
        slope: ``(k,)``, its gradient at u = 0.
        precision: ``(k, k)``; may be zero, negative or singular.
        error: ``()``, as in ``Tilted``.
    """

    log_z: jax.Array
    slope: jax.Array
    precision: jax.Array
    error: jax.Array | float = 0.0

    @property
    def drawn(self) -> tuple[()]:
        """No rule for messages draws points."""
        return ()

    @property
    def positive(self) -> jax.Array:
        """``()`` true: a message may have any precision."""
        return jnp.ones((), bool)


@dataclass(frozen=True)
class ClosedForm:
    """A rule that knows the tilted moments of one distribution class exactly.

    Attributes:
        rule: ``rule(value, mean, scale, *constants) -> Tilted``.
        field: The attribute of the distribution that must be affine in the latent variables.
        constants: The attributes that must not depend on them; passed on in this order.
        event_dim: 0 when the field of one element is a number, 1 when it is a vector.
    """

    rule: Rule
    field: str
    constants: tuple[str, ...]
    event_dim: int
    exact: ClassVar[bool] = True
    power_limit: ClassVar[bool] = False

    def reported(self, dtype: Any, size: int = 1) -> None:
        """A closed form has no error to report."""
        return None


def whole_line(rule: Rule) -> Rule:
    """A scalar rule with the shapes of a vector one: mean and shift ``(1,)``, scale and root ``(1, 1)``."""

    def vector(value: jax.Array, mean: jax.Array, scale: jax.Array, *constants: Any) -> Tilted:
        out = rule(value, mean[0], scale[0, 0], *constants)
        return Tilted(out.log_z, out.shift.reshape(1), out.root.reshape(1, 1), out.error)

    return vector
