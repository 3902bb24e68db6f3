"""Tilts and the rules that compute them.

A *tilt* gives the moments of the tilted distribution: cavity times factor, normalised. It is computed in the *whitened*
coordinates u of the cavity distribution: the field is ``h = mean + scale @ u`` with ``u ~ N(0, I)`` under the cavity,
and a rule gives the moments of ``u`` under the tilted distribution. In these units a factor without information gives
shift 0 and root 1. If the tilted distribution is ten orders of magnitude narrower than the cavity, its root is a small
number, and not a difference of large numbers.

A new rule is a frozen dataclass that satisfies the protocol ``IntegralRule``; ``Moments`` in ``strategy`` chooses
between rules.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from adfpp.engine.tilt.landmarks import Landmarks

Index: TypeAlias = Int[Array, ""] | int  # the number of an element of a factor, or of a slot of a window
LogFactor: TypeAlias = Callable[[Float[Array, " k"]], Float[Array, ""]]


# ---------------------------------------------------------------------------------------------- results


class Drawn(NamedTuple):
    """The quality of a rule's random points.

    Attributes:
        effective: Effective sample size.
        rounds: Number of rounds of tempering that the proposal needed.
        reliable: Whether the effective sample size is large enough for the moments to be used.
    """

    effective: Float[Array, ""]
    rounds: Int[Array, ""]
    reliable: Bool[Array, ""]


class Message(NamedTuple):
    """A factor's message: the Gaussian ``exp(slope @ u - u @ precision @ u / 2)`` in the whitened field.

    Attributes:
        log_z: Log of the factor's expectation under the cavity; in the limit of power 0 the expectation of its log.
        slope: The gradient at u = 0.
        precision: The precision, which may be zero, negative or singular.
        error: As in ``Tilted``.
    """

    log_z: Float[Array, ""]
    slope: Float[Array, " k"]
    precision: Float[Array, "k k"]
    error: Float[Array, ""] | float = 0.0

    @property
    def drawn(self) -> Drawn | None:
        """None, because rules that give messages draw no points."""
        return None

    @property
    def positive(self) -> Bool[Array, ""]:
        """True, because a message may have any precision."""
        return jnp.ones((), bool)


class Tilted(NamedTuple):
    """Moments of the tilted distribution, in the whitened field.

    Attributes:
        log_z: Log of the factor's expectation under the cavity: the log predictive density of the element.
        shift: Mean of the tilted ``u``; for scalar fields the tilted mean minus the cavity mean, in cavity sds.
        root: Any matrix with ``root @ root.T`` the covariance of the tilted ``u``; for scalar fields the tilted sd
            divided by the cavity sd.
        error: The largest of three estimated errors: of the mean in tilted sds, of the variance relatively, of log_z
            absolutely. It is 0 for a closed form.
        drawn: The quality of the random points; None for rules that draw none.
    """

    log_z: Float[Array, ""]
    shift: Float[Array, " k"]
    root: Float[Array, "k k"]
    error: Float[Array, ""] | float = 0.0
    drawn: Drawn | None = None

    @property
    def positive(self) -> Bool[Array, ""]:
        """Whether the root has a positive diagonal, as a triangular root of a covariance has."""
        return jnp.all(jnp.diagonal(self.root) > 0)


# ------------------------------------------------------------------------------------------------ rules


class Rule(Protocol):
    """A rule that computes the tilted moments of a factor, as the kernel uses it.

    Attributes:
        exact: Whether the moments have only rounding errors, so that no error is estimated.
        divisible: Whether a power of the factor may be multiplied in instead of the factor.
        power_limit: Whether the rule gives the limit of power 0: a ``Message`` under the belief itself.
        draws: Whether the rule draws points, and takes a key for them.
    """

    exact: ClassVar[bool]
    divisible: ClassVar[bool]
    power_limit: ClassVar[bool]
    draws: ClassVar[bool]

    def reported(self, dtype: DTypeLike, size: int = 1) -> float | None:
        """The estimated error above which a row is marked, for this dtype and size of field; None for an exact rule."""
        ...


class IntegralRule(Rule, Protocol):
    """A rule that computes the moments of any factor from its log-density."""

    def reported(self, dtype: DTypeLike, size: int = 1) -> float:
        """As for ``Rule``; an integral always has an error."""
        ...

    def __call__(
        self,
        log_factor: LogFactor,
        mean: Float[Array, " k"],
        scale: Float[Array, "k k"],
        landmarks: Landmarks | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Tilted | Message:
        """Computes the moments of ``N(u; 0, I) exp(log_factor(mean + scale @ u))``.

        Args:
            log_factor: Log of the factor as a function of the field.
            mean: The cavity's mean.
            scale: Lower triangular root of the cavity's covariance.
            landmarks: Where a scalar factor may have peaks or kinks, if this is known.
            key: The key for random points; without it the points are the same in every call.
        """
        ...


class Tilt(Protocol):
    """The tilt of a factor's elements at one row."""

    def __call__(
        self,
        e: Index,
        mean: Float[Array, " k"],
        scale: Float[Array, "k k"],
        power: Float[Array, ""] | float | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Tilted | Message:
        """Computes the moments of a cavity times element e, or times a power of it.

        Args:
            e: The number of the element.
            mean: The cavity's mean.
            scale: Lower triangular root of the cavity's covariance.
            power: The power of the factor; None for 1. Only divisible factors take a power.
            key: The key for random points; without it the points are the same in every call.
        """
        ...


TiltFunction: TypeAlias = Callable[..., Tilted]


@dataclass(frozen=True)
class ClosedForm:
    """A rule with the exact tilted moments of one class of distributions.

    Attributes:
        rule: ``rule(value, mean, scale, *constants) -> Tilted``.
        field: The attribute of the distribution that must be affine in the latents.
        constants: The attributes that must not depend on them; passed on in this order.
        event_dim: 0 when the field of one element is a number, 1 when it is a vector.
    """

    exact: ClassVar[bool] = True
    divisible: ClassVar[bool] = False
    power_limit: ClassVar[bool] = False
    draws: ClassVar[bool] = False

    rule: TiltFunction
    field: str
    constants: tuple[str, ...]
    event_dim: int

    def reported(self, dtype: DTypeLike, size: int = 1) -> None:
        """Returns None: there is no error to estimate, and no row is marked."""
        return None


def whole_line(rule: TiltFunction) -> TiltFunction:
    """Gives a scalar rule the shapes of a vector rule: mean and shift ``(1,)``, scale and root ``(1, 1)``."""

    def vector(value: Array, mean: Float[Array, "1"], scale: Float[Array, "1 1"], *constants: ArrayLike) -> Tilted:
        out = rule(value, mean[0], scale[0, 0], *constants)
        return Tilted(out.log_z, out.shift.reshape(1), out.root.reshape(1, 1), out.error)

    return vector
