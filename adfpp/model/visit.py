"""Running a model once and sorting its sites; what can be said of one site's distribution and transform."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.core import Tracer
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.primitives import Messenger

from adfpp.model.arguments import Model, ModelError, call

# NumPyro keeps its stack of handlers for the whole process, so that only one thread at a time may run a model.
READING = threading.RLock()


class Visit(NamedTuple):
    """What one run of a model showed."""

    latents: dict[str, dict[str, Any]]
    observed: dict[str, dict[str, Any]]


_VALUE_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


def visit(
    model: Model,
    bound: Mapping[str, Any],
    values: Callable[[dict[str, Any]], Any] | None = None,
    priors: Mapping[str, Any] | None = None,
) -> Visit:
    """Runs a model once and sorts its sites.

    Args:
        model: The model.
        bound: Its arguments by name.
        values: ``site -> value or None`` for latent sites; something in the support by default.
        priors: Distributions to put in the place of the model's own.
    """
    watch = _Watch(lambda: call(model, bound))
    substituted = handlers.substitute(Replace(watch, priors or {}), substitute_fn=values or _neutral)
    try:
        with quiet():
            sites = handlers.trace(handlers.seed(substituted, rng_seed=0)).get_trace()
    except _VALUE_ERRORS as error:
        after = f"after site {watch.last!r}" if watch.last else "before its first site"
        raise ModelError(
            f"The model reads a value out of its data arguments ({after}), such as a number of groups taken from the "
            "data. One row at a time that value would change. Compute it outside and pass it as a Python number, "
            "e.g. model(x, group, n_groups=8)."
        ) from error
    latents, observed = {}, {}
    for name, site in sites.items():
        if site["type"] == "param":
            raise ModelError(
                f"Site {name!r} is a numpyro.param: it has no prior to update. Give it one with numpyro.sample, or "
                "pass its value as an argument."
            )
        if site["type"] == "plate":
            size, subsample = site["args"]
            if subsample is not None and subsample != size:
                raise ModelError(
                    f"Plate {name!r} subsamples ({subsample} of {size}). Rows arrive one by one anyway: drop "
                    "subsample_size and fold the batches with adf.update."
                )
        if site["type"] != "sample":
            continue
        if site["scale"] is not None:
            raise ModelError(
                f"Site {name!r} is under handlers.scale (or a subsampling plate), which would count its rows more or "
                "less than once. Remove the scale; to weigh rows, raise the likelihood to a power with numpyro.factor."
            )
        (observed if site["is_observed"] else latents)[name] = site
        if not site["is_observed"] and name.endswith("_unobserved"):
            raise ModelError(
                f"Latent site {name!r} comes from obs_mask: one latent value a row under a name of its own. Use "
                "handlers.mask (or .mask on the distribution) to leave out what was not observed, or write the latent "
                "site into the data plate yourself."
            )
        if not site["is_observed"] and _masked(site["fn"]):
            raise ModelError(
                f"Site {name!r} is under handlers.mask, which makes its prior flat. Mask observed sites only, and give "
                "latent ones a proper prior."
            )
    return Visit(latents, observed)


@contextmanager
def quiet() -> Iterator[None]:
    """No validation inside: what lies outside a support is told by status, not raised."""
    with numpyro.validation_enabled(False):
        yield


class Replace(Messenger):
    """Puts other priors in the place of a model's own."""

    def __init__(self, fn: Any, priors: Mapping[str, Any]) -> None:
        self.priors = priors
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        """Exchanges a latent site's distribution before it is drawn from."""
        if msg["type"] != "sample" or msg["name"] not in self.priors:
            return
        own, new = msg["fn"], self.priors[msg["name"]]
        shape = tuple(own.batch_shape) + tuple(own.event_shape)
        new = new.expand(shape[: len(shape) - new.event_dim])
        if len(own.event_shape) > new.event_dim:
            new = new.to_event(len(own.event_shape) - new.event_dim)
        if not same_transform(biject_to(new.support), biject_to(own.support)):
            raise ModelError(
                f"The prior given for site {msg['name']!r} has support {_spoken(new.support)}, the site "
                f"{_spoken(own.support)}. Give a distribution over the site's own support."
            )
        msg["fn"] = new


def _spoken(support: Any) -> str:
    """A support in words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(support).__name__.strip("_")).lower()


class _Watch(Messenger):
    """Remembers the last site visited, for error messages."""

    def __init__(self, fn: Any) -> None:
        self.last = ""
        super().__init__(fn)

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample":
            self.last = msg["name"]


def _neutral(site: dict[str, Any]) -> Any:
    """A value in the support of a latent site, for looking at a model: no prior needs to be sampled."""
    if site["type"] != "sample" or site["is_observed"] or site["fn"].support is None or site["fn"].support.is_discrete:
        return None
    transform = biject_to(site["fn"].support)
    return transform(jnp.zeros(transform.inverse_shape(tuple(site["fn"].batch_shape) + tuple(site["fn"].event_shape))))


class _Elements(NamedTuple):
    log_prob: jax.Array
    mask: Any
    inner: Any


def elements(fn: Any, value: Any) -> _Elements:
    """The log-density of each independent element of an observed value.

    ``to_event``, ``expand`` and ``mask`` are taken off the distribution; a correlated event stays one element.
    """
    mask: Any = None
    shape = tuple(fn.batch_shape)
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        if isinstance(fn, dist.MaskedDistribution):
            own = jnp.asarray(fn._mask)
            mask = own if mask is None else jnp.logical_and(_aligned(mask, fn.batch_shape), own)
        if isinstance(fn, dist.Independent):
            shape = shape + tuple(fn.event_shape[: fn.reinterpreted_batch_ndims])
            if mask is not None:
                mask = jnp.reshape(
                    jnp.broadcast_to(mask, fn.batch_shape),
                    fn.batch_shape + (1,) * fn.reinterpreted_batch_ndims,
                )
        fn = fn.base_dist
    return _Elements(jnp.broadcast_to(fn.log_prob(value), shape), mask, fn)


def _aligned(mask: Any, batch_shape: tuple[int, ...]) -> Any:
    return jnp.broadcast_to(mask, batch_shape)


def scalar_base(fn: Any) -> Any:
    """A distribution without the wrappers that repeat, group or mask it."""
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        fn = fn.base_dist
    return fn


def _masked(fn: Any) -> bool:
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        if isinstance(fn, dist.MaskedDistribution):
            return True
        fn = fn.base_dist
    return False


def stripped(transform: Any) -> Any:
    """A transform without the wrapper that makes several elements one event."""
    while hasattr(transform, "base_transform"):
        transform = transform.base_transform
    return transform


def same_transform(one: Any, other: Any) -> bool:
    """Whether two transforms map the same numbers to the same numbers."""
    one, other = stripped(one), stripped(other)
    (leaves, structure), (others, other_structure) = jax.tree.flatten(one), jax.tree.flatten(other)
    if any(isinstance(leaf, Tracer) for leaf in (*leaves, *others)):
        return type(one) is type(other)
    if one == other:
        return True
    return structure == other_structure and all(np.allclose(a, b) for a, b in zip(leaves, others, strict=True))
