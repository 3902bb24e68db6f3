"""The registry of distributions whose tilted moments have a closed form; NumPyro's Gaussians are registered here."""

from collections.abc import Callable
from typing import TypeVar

import numpyro.distributions as dist

from adfpp.engine.tilt.base import ClosedForm, TiltFunction
from adfpp.engine.tilt.closed import gaussian_tilt, normal_tilt

R = TypeVar("R", bound=TiltFunction)

_REGISTRY: dict[type, ClosedForm] = {}


def register_tilt(
    distribution: type, *, field: str, constants: tuple[str, ...] = (), event_dim: int = 0
) -> Callable[[R], R]:
    """Registers a closed-form tilt for a likelihood's distribution class.

    The rule is used for every observation of exactly this class whose ``field`` parameter is affine in the latent
    variables and whose ``constants`` do not depend on them; every other observation falls back to quadrature.

    Example:
        A Gaussian of unit variance::

            @register_tilt(UnitNormal, field="loc")
            def unit_normal(value, mean, scale):
                total = 1.0 + scale**2                      # predictive variance
                log_z = -0.5 * (value - mean) ** 2 / total - 0.5 * jnp.log(2 * jnp.pi * total)
                return Tilted(log_z, scale * (value - mean) / total, 1 / jnp.sqrt(total))

    Args:
        distribution: The class, e.g. ``numpyro.distributions.Normal``.
        field: Name of its parameter (an attribute) that carries the field.
        constants: Names of the other parameters that the rule takes.
        event_dim: 0 for a scalar field, for which ``mean``, ``scale`` and the answer are numbers; 1 for a vector
            field of length k, for which they are ``(k,)``, ``(k, k)`` lower triangular, ``(k,)`` and ``(k, k)``.

    Returns:
        A decorator that registers the rule and returns it.
    """

    def decorate(rule: R) -> R:
        _REGISTRY[distribution] = ClosedForm(rule, field, tuple(constants), event_dim)
        return rule

    return decorate


def registered_tilts() -> frozenset[tuple[type, ClosedForm]]:
    """All closed forms registered so far. A program that was read with other closed forms is another program."""
    return frozenset(_REGISTRY.items())


def closed_form(distribution: object) -> ClosedForm | None:
    """The closed form registered for exactly the class of this distribution, or None.

    A subclass may override ``log_prob``, so it does not inherit its parent's rule.
    """
    return _REGISTRY.get(type(distribution))


register_tilt(dist.Normal, field="loc", constants=("scale",))(normal_tilt)
register_tilt(dist.MultivariateNormal, field="loc", constants=("scale_tril",), event_dim=1)(gaussian_tilt)
