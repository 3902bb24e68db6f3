"""One run of a model: its latents and observations, and the refusal of statements that cannot be learned by rows.

NumPyro records a run as a dictionary of messages, which it calls sites. Only this module reads them; the rest of adfpp
works with ``Sampled`` and ``Recorded``.
"""

import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.core import Tracer
from jax.typing import ArrayLike
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.primitives import Messenger

from adfpp.model.arguments import Model, ModelError, ValueNeeded, call
from adfpp.model.elements import AnyDistribution, is_factor, is_improper, is_masked, same_transform, support_in_words
from adfpp.model.location import is_users, raised_at

# NumPyro keeps its stack of handlers for the whole process, so that only one thread at a time may run a model.
READING = threading.RLock()

Message = dict[str, Any]  # NumPyro's record of one statement of a run
# The value of a latent from its name and distribution; None lets NumPyro draw it.
Values = Callable[[str, AnyDistribution], ArrayLike | None]


class Plate(NamedTuple):
    """A plate around a statement: its name, its axis counted from the right, and its length."""

    name: str
    dim: int
    size: int


class Sampled(NamedTuple):
    """One ``numpyro.sample`` or ``numpyro.factor`` statement of a run.

    Attributes:
        name: The name of the latent or observation.
        fn: Its distribution.
        value: The value that was drawn or observed.
        plates: The plates around it.
    """

    name: str
    fn: AnyDistribution
    value: Any
    plates: tuple[Plate, ...]


class Visit(NamedTuple):
    """The latents and observations of one run, by name, and the observations that are terms of the prior."""

    latents: dict[str, Sampled]
    observations: dict[str, Sampled]
    prior_terms: Mapping[str, Sampled] = MappingProxyType({})

    def apart(self, constants: Collection[str], prior_terms: Collection[str]) -> "Visit":
        """The visit with these observations left out, and these moved to the terms of the prior."""
        terms = {name: self.observations[name] for name in prior_terms}
        return self.without({*constants, *prior_terms})._replace(prior_terms=terms)

    def without(self, names: Collection[str]) -> "Visit":
        """The visit without some of the observations."""
        return self._replace(observations={n: o for n, o in self.observations.items() if n not in names})


class Recorded(NamedTuple):
    """A named value of one run.

    Attributes:
        name: The name of the latent, observation, factor or deterministic value.
        kind: Which of these four it is.
        fn: Its distribution; None for a deterministic value.
        value: Its value.
        plates: The plates around it.
        event_dims: The names of the axes of one event, given by ``infer={"event_dims": ...}``.
    """

    name: str
    kind: Literal["latent", "observed", "factor", "deterministic"]
    fn: AnyDistribution | None
    value: Any
    plates: tuple[Plate, ...]
    event_dims: tuple[str, ...]


_VALUE_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


def visit(
    model: Model,
    arguments: Mapping[str, object],
    values: Values | None = None,
    priors: Mapping[str, AnyDistribution] | None = None,
) -> Visit:
    """Runs a model once and sorts its latents and observations.

    Args:
        model: The model.
        arguments: Its arguments by name.
        values: Values of latents; some value in the support by default.
        priors: Distributions to put in the place of the model's own priors.

    Raises:
        ModelError: When the model does something that cannot be learned row by row, whatever its shapes.
    """
    watch = _Watch(_run(model, arguments))
    substituted = _substituted(_Replace(watch, priors or {}), values or _neutral)
    try:
        with quiet():
            messages = handlers.trace(handlers.seed(substituted, rng_seed=0)).get_trace()
    except _VALUE_ERRORS as error:
        after = f"after {watch.last}" if watch.last else "before its first latent or observation"
        after += f", {raised_at(error)}" if raised_at(error) else ""
        count = (
            "such as a number of groups taken from the data, must not change when rows come one at a time: compute it "
            "with NumPy, len(np.unique(group)) or int(np.max(group)) + 1, which adfpp reads out of all the data of "
            "init or run; or compute it outside and pass it as a Python number, e.g. model(x, group, n_groups=8)."
        )
        if isinstance(error, jax.errors.TracerArrayConversionError):
            raise ValueNeeded(
                f"The model gives a traced value to NumPy or SciPy ({after}), which need numbers: use the function of "
                f"jax.numpy (jnp) or jax.scipy in its place. A value that has to be a number, {count}"
            ) from error
        raise ValueNeeded(
            f"The model reads a value out of its data arguments or latents ({after}). For a condition use jnp.where, "
            f"and jnp in the place of Python's math. A value that has to be a number, {count}"
        ) from error
    latents, observations = {}, {}
    for name, site in messages.items():
        _refuse(name, site, messages)
        if site["type"] == "sample":
            (observations if site["is_observed"] else latents)[name] = Sampled(
                name, site["fn"], site["value"], _plates(site)
            )
    return Visit(latents, observations)


def _refuse(name: str, site: Message, messages: Mapping[str, Message]) -> None:
    """Refuses statements that have no meaning when rows come one by one."""
    if site["type"] == "param":
        raise ModelError(
            f"Parameter {name!r} is a numpyro.param: it has no prior to update. Give it one with numpyro.sample, or "
            "pass its value as an argument."
        )
    if site["type"] == "plate":
        size, subsample = site["args"]
        if subsample is not None and subsample != size:
            raise ModelError(
                f"Plate {name!r} subsamples ({subsample} of {size}). Rows arrive one by one anyway: drop "
                "subsample_size and pass the batches to adf.update."
            )
    if site["type"] != "sample":
        return
    kind = "observation" if site["is_observed"] else "latent"
    if not _is_one(site["scale"]):
        raise ModelError(
            f"The {kind} {name!r} is under handlers.scale (or a subsampling plate), which would count its rows more or "
            "less than once. Remove the scale; to weigh rows, raise the likelihood to a power with numpyro.factor."
        )
    if site["is_observed"]:
        return
    if is_masked(site["fn"]) and not _of_obs_mask(name, messages):
        raise ModelError(
            f"The latent {name!r} is under handlers.mask, which makes its prior flat, and so improper, where the mask "
            "is False. Draw the latent outside of the mask, and put only the observations under "
            "handlers.mask. An element that no observation reads then keeps its prior, and changes nothing else."
        )


def _of_obs_mask(name: str, messages: Mapping[str, Message]) -> bool:
    """Whether a latent comes from ``obs_mask``, which draws the values that were not observed.

    Such a latent is masked where the value was observed, and is not used there: the model then reads the observed
    value. Its prior may therefore be taken as if it were not masked.
    """
    base = name.removesuffix("_unobserved")
    return base != name and f"{base}_observed" in messages and messages.get(base, {}).get("type") == "deterministic"


def _is_one(scale: ArrayLike | None) -> bool:
    """Whether a statement counts once, because it has no scale, or one that is known to be 1."""
    return scale is None or (not isinstance(scale, Tracer) and bool(np.all(np.asarray(scale) == 1)))


def record(
    model: Model,
    arguments: Mapping[str, object],
    values: Values,
    key: jax.Array | int,
    redraw: bool,
    constants: Collection[str] = (),
) -> dict[str, Recorded]:
    """Runs a model once and keeps every named value, deterministic ones included, in the model's order.

    Args:
        model: The model.
        arguments: Its arguments by name.
        values: Values of latents.
        key: The key for random draws.
        redraw: Whether new observations are drawn; factors stay unchanged.
        constants: Observations that belong to no row: they are never drawn, and count as deterministic values.
    """
    run = _run(model, arguments)
    substituted = _substituted(_Unobserved(run, constants) if redraw else run, values)
    with quiet():
        messages = handlers.trace(handlers.seed(substituted, rng_seed=key)).get_trace()
    out = {}
    for name, site in messages.items():
        if site["type"] not in ("sample", "deterministic"):
            continue
        fn = site["fn"] if site["type"] == "sample" else None
        fn = None if fn is not None and name in constants and not is_factor(fn) else fn
        kind = "deterministic" if fn is None else "observed" if site["is_observed"] else "latent"
        kind = "factor" if fn is not None and is_factor(fn) else kind
        event_dims = tuple((site.get("infer") or {}).get("event_dims", ()))
        out[name] = Recorded(name, kind, fn, site["value"], _plates(site), event_dims)
    return out


def draw_latents(
    model: Model,
    arguments: Mapping[str, object],
    priors: Mapping[str, AnyDistribution],
    key: jax.Array,
    improper: bool = False,
) -> dict[str, jax.Array]:
    """Runs a model once with every latent drawn: ``{latent: value}``. No ``numpyro.factor`` counts.

    Args:
        model: The model.
        arguments: Its arguments by name.
        priors: Distributions to put in the place of the model's own priors.
        key: The key for the draws.
        improper: Whether latents with an improper prior, which has no draws, get some value in the support.
    """

    def values(name: str, fn: AnyDistribution) -> ArrayLike | None:
        return _neutral(name, fn) if improper and is_improper(fn) else None

    with quiet(), handlers.seed(rng_seed=key):
        replaced = _Replace(_run(model, arguments), priors)
        messages = handlers.trace(_substituted(replaced, values)).get_trace()
    return {n: site["value"] for n, site in messages.items() if _is_latent(site)}


def prior_draws_of(key: jax.Array, only: tuple[str, ...] | None = None) -> Values:
    """Draws latents from their priors, for ``visit``: those in ``only``, or all."""
    order: list[str] = []

    def values(name: str, fn: AnyDistribution) -> ArrayLike | None:
        if only is not None and name not in only:
            return None
        order.append(name)
        try:
            return fn.sample(jax.random.fold_in(key, len(order)))
        except NotImplementedError:  # an improper prior, which the user will replace
            transform = biject_to(fn.support)
            return transform(jnp.zeros(transform.inverse_shape(fn.shape())))

    return values


@contextmanager
def quiet() -> Iterator[None]:
    """Switches NumPyro's validation off: a value outside a support is reported by a row's status, not raised."""
    with numpyro.validation_enabled(False):
        yield


def _run(model: Model, arguments: Mapping[str, object]) -> Callable[[], object]:
    """A model that is called with these arguments, and whose distributions have the shapes of their values."""
    return _Shaped(lambda: call(model, arguments))


def _substituted(fn: Callable[..., object], values: Values) -> Callable[..., object]:
    """A function whose latents get these values."""

    def value(site: Message) -> ArrayLike | None:
        return values(site["name"], site["fn"]) if _is_latent(site) else None

    return handlers.substitute(fn, substitute_fn=value)


def _is_latent(site: Message) -> bool:
    return site["type"] == "sample" and not site["is_observed"]


def _plates(site: Message) -> tuple[Plate, ...]:
    return tuple(Plate(frame.name, frame.dim, frame.size) for frame in site.get("cond_indep_stack", ()))


def _neutral(name: str, fn: AnyDistribution) -> ArrayLike | None:
    """A value in the support of a latent, with which a model can be run without draws from its priors."""
    if fn.support is None or fn.support.is_discrete:
        return None
    transform = biject_to(fn.support)
    return transform(jnp.zeros(transform.inverse_shape(tuple(fn.batch_shape) + tuple(fn.event_shape))))


class _Shaped(Messenger):
    """Gives every distribution the batch shape of its value.

    NumPyro repeats a distribution for the ``sample_shape`` of its statement, and for an observed array that has more
    elements than the distribution. The distribution itself does not have these axes.
    """

    def process_message(self, msg: Message) -> None:
        """Expands the distribution of a statement before other handlers look at it."""
        if msg["type"] != "sample":
            return
        fn, shape = msg["fn"], tuple(msg["fn"].batch_shape)
        if msg["kwargs"].get("sample_shape"):
            msg["fn"] = fn.expand((*msg["kwargs"]["sample_shape"], *shape))
            msg["kwargs"]["sample_shape"] = ()
        elif msg["is_observed"] and jnp.ndim(msg["value"]) >= fn.event_dim:
            given = tuple(jnp.shape(msg["value"]))
            given = given[: len(given) - fn.event_dim]
            try:
                both = jnp.broadcast_shapes(given, shape)
            except ValueError:  # the log-density will raise an error that names the shapes
                return
            if both not in (given, shape):
                raise ModelError(
                    f"The values of observation {msg['name']!r} have the shape {given}, and its distribution has the "
                    f"shape {shape}: together they would be stretched to {both}, where each value is compared with "
                    f"every element of the distribution. Pass values of the shape {shape}."
                )
            if both != shape:
                msg["fn"] = fn.expand(both)


class _Replace(Messenger):
    """Replaces priors of a model."""

    def __init__(self, fn: Callable[..., object], priors: Mapping[str, AnyDistribution]) -> None:
        self.priors = priors
        super().__init__(fn)

    def process_message(self, msg: Message) -> None:
        """Replaces a latent's distribution before a value is drawn from it."""
        if msg["type"] != "sample" or msg["name"] not in self.priors:
            return
        model_prior, new = msg["fn"], self.priors[msg["name"]]
        shape = tuple(model_prior.batch_shape) + tuple(model_prior.event_shape)
        new = new.expand(shape[: len(shape) - new.event_dim])
        if len(model_prior.event_shape) > new.event_dim:
            new = new.to_event(len(model_prior.event_shape) - new.event_dim)
        if not same_transform(biject_to(new.support), biject_to(model_prior.support)):
            raise ModelError(
                f"The prior given for latent {msg['name']!r} has support {support_in_words(new)}, the latent "
                f"{support_in_words(model_prior)}. Give a distribution over the latent's own support."
            )
        msg["fn"] = new


class _Watch(Messenger):
    """Remembers the last latent or observation of a run, for error messages, and refuses random numbers."""

    def __init__(self, fn: Callable[..., object]) -> None:
        self.last = ""
        super().__init__(fn)

    def process_message(self, msg: Message) -> None:
        """Refuses a key that the model draws for itself, or for a latent that it hides."""
        if msg["type"] == "prng_key" and _drawn_by_user():
            after = f" (after {self.last})" if self.last else ""
            raise ModelError(
                f"The model draws a random key{after}: it calls numpyro.prng_key(), or hides a latent with "
                "handlers.block. Its rows would then have random log-likelihoods. Make a random quantity a latent with "
                "numpyro.sample, or pass numbers that were drawn outside as arguments."
            )

    def postprocess_message(self, msg: Message) -> None:
        if msg["type"] == "sample":
            self.last = f"{'observation' if msg['is_observed'] else 'latent'} {msg['name']!r}"


def _drawn_by_user() -> bool:
    """Whether a key is drawn by the model, and not by one of NumPyro's modules, whose parameters need one."""
    for frame, _ in traceback.walk_stack(None):
        module = frame.f_globals.get("__name__", "")
        if module.startswith("numpyro.contrib."):
            return False
        if is_users(frame):
            break
    return True


class _Unobserved(Messenger):
    """Draws new observations, except for factors, which have no values to draw, and those that belong to no row."""

    def __init__(self, fn: Callable[..., object], constants: Collection[str]) -> None:
        self.constants = constants
        super().__init__(fn)

    def process_message(self, msg: Message) -> None:
        """Removes the observed value, so that a new one is drawn."""
        if msg["type"] == "sample" and msg["is_observed"] and not is_factor(msg["fn"]):
            if msg["name"] not in self.constants:
                msg["is_observed"], msg["value"] = False, None
