"""One distribution of a model: its independent elements, what kind it is, and how its support is transformed."""

import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer
from jax.typing import ArrayLike
from numpyro.distributions.transforms import Transform

from adfpp.model.densities import log_density

# Wrappers that repeat, group or mask a distribution and leave the density of one element as it is.
_WRAPPERS = (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)
# A distribution as Any, because NumPyro's stubs declare fewer attributes than its distributions have.
AnyDistribution = Any


class Elements(NamedTuple):
    """The independent elements of a distribution at some value.

    Attributes:
        log_prob: The log-density of each element, with one axis for each axis of elements.
        mask: Which elements count, to be broadcast to ``log_prob``; None if all do.
        inner: The distribution without ``to_event``, ``expand`` and ``mask``.
    """

    log_prob: jax.Array
    mask: jax.Array | None
    inner: AnyDistribution

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array of elements."""
        return tuple(self.log_prob.shape)

    def counted(self) -> jax.Array:
        """Which elements count, in the shape of ``log_prob``."""
        return jnp.broadcast_to(True if self.mask is None else self.mask, self.shape)

    def masked_log_prob(self) -> jax.Array:
        """The log-density of each element, 0 for those that do not count."""
        return self.log_prob if self.mask is None else jnp.where(self.counted(), self.log_prob, 0.0)


def elements(fn: AnyDistribution, value: ArrayLike) -> Elements:
    """The log-density of each independent element of a value.

    ``to_event``, ``expand`` and ``mask`` are taken off the distribution; a correlated event stays one element.
    """
    mask: jax.Array | None = None
    shape = tuple(fn.batch_shape)
    while isinstance(fn, _WRAPPERS):
        if isinstance(fn, dist.MaskedDistribution):
            inner = jnp.asarray(fn._mask)
            mask = inner if mask is None else jnp.logical_and(jnp.broadcast_to(mask, fn.batch_shape), inner)
        if isinstance(fn, dist.Independent):
            shape = shape + tuple(fn.event_shape[: fn.reinterpreted_batch_ndims])
            if mask is not None:
                mask = jnp.reshape(
                    jnp.broadcast_to(mask, fn.batch_shape), fn.batch_shape + (1,) * fn.reinterpreted_batch_ndims
                )
        fn = fn.base_dist
    return Elements(jnp.broadcast_to(log_density(fn, value), shape), mask, fn)


def scalar_base(fn: AnyDistribution) -> AnyDistribution:
    """A distribution without the wrappers that repeat, group or mask it."""
    while isinstance(fn, _WRAPPERS):
        fn = fn.base_dist
    return fn


def is_factor(fn: AnyDistribution) -> bool:
    """Whether a distribution comes from ``numpyro.factor``, which has a log-density and no values to draw."""
    return isinstance(scalar_base(fn), dist.Unit)


def is_discrete(fn: AnyDistribution) -> bool:
    """Whether the values of a distribution are discrete, so that its log-density is the log of a probability."""
    try:
        return not is_factor(fn) and bool(scalar_base(fn).support.is_discrete)
    except NotImplementedError:
        return False


def is_improper(fn: AnyDistribution) -> bool:
    """Whether a distribution is an improper prior, which has no density."""
    return isinstance(scalar_base(fn), dist.ImproperUniform)


def is_masked(fn: AnyDistribution) -> bool:
    """Whether a distribution has a mask that may be False somewhere."""
    while isinstance(fn, _WRAPPERS):
        if isinstance(fn, dist.MaskedDistribution) and not _is_true(fn._mask):
            return True
        fn = fn.base_dist
    return False


def _is_true(mask: ArrayLike) -> bool:
    """Whether a mask is known to be True everywhere."""
    return not isinstance(mask, Tracer) and bool(np.all(np.asarray(mask)))


def enumerable_values(fn: AnyDistribution) -> np.ndarray | None:
    """All values of one element of a discrete distribution, or None where they cannot be listed."""
    inner = scalar_base(fn)
    if inner.event_dim or not inner.has_enumerate_support:
        return None
    try:
        with jax.ensure_compile_time_eval():
            return np.asarray(inner.enumerate_support(expand=False)).reshape(-1)
    except (NotImplementedError, jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        return None


def support_in_words(fn: AnyDistribution) -> str:
    """The name of a distribution's support, for messages."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(fn.support).__name__.strip("_")).lower()


def stripped(transform: Any) -> Any:
    """A transform without the wrapper that makes several elements one event."""
    while hasattr(transform, "base_transform"):
        transform = transform.base_transform
    return transform


def same_transform(one: Transform, other: Transform) -> bool:
    """Whether two transforms map the same numbers to the same numbers."""
    one, other = stripped(one), stripped(other)
    (leaves, structure), (others, other_structure) = jax.tree.flatten(one), jax.tree.flatten(other)
    if any(isinstance(leaf, Tracer) for leaf in (*leaves, *others)):
        return type(one) is type(other)
    if one == other:
        return True
    return structure == other_structure and all(np.allclose(a, b) for a, b in zip(leaves, others, strict=True))
