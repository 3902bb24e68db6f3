"""A model run forwards with all its data: names of its dimensions, what it observes, and draws of every site."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.primitives import Messenger

from adfpp.model.arguments import bind, call, is_array
from adfpp.model.program import Program
from adfpp.model.visit import quiet, scalar_base

_NUMBERS = 1 << 22  # numbers of one site computed at once


@dataclass(frozen=True)
class SiteForm:
    """What a site of a model looks like.

    Attributes:
        name: Its name.
        kind: "latent", "observed", "factor" or "deterministic".
        shape: Of its value.
        dims: A name for each axis: of a plate, or given by ``infer={"event_dims": ...}``; None for the others.
        event_dim: Axes of one event (0 for deterministic sites).
        value: The observed value.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dims: tuple[str | None, ...]
    event_dim: int
    value: np.ndarray | None


class Forward:
    """A model and the data of one call, run forwards.

    Args:
        program: The model as it was read.
        args: The model's arguments, with or without the observed data.
        kwargs: Its keyword arguments.
    """

    def __init__(self, program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.program = program
        self.bound, self._leaves, _, self._treedef = bind(program.model, args, kwargs)
        self._at = [i for i, leaf in enumerate(self._leaves) if is_array(leaf)]

    @cached_property
    def forms(self) -> dict[str, SiteForm]:
        """Every sample and deterministic site, in the model's order."""
        out = {}
        theta = jnp.zeros(self.program.size, self.program.dtype)
        for name, site in self._trace(self.bound, theta, 0, False).items():
            if site["type"] in ("sample", "deterministic"):
                out[name] = _form(name, site)
        return out

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Arrays and numbers among the arguments by name, as ``x``, or ``data.x`` inside a dict."""
        with_path, _ = jax.tree_util.tree_flatten_with_path(self.bound)
        named = {".".join(str(getattr(p, "key", getattr(p, "idx", p))) for p in path): leaf for path, leaf in with_path}
        arrays = {name: np.asarray(leaf) for name, leaf in named.items()}
        return {name: a for name, a in arrays.items() if a.dtype.kind in "biufc"}

    def draw(self, rng_key: jax.Array, theta: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Values ``{site: (S, *shape)}`` at ``(S, N)`` θ, observed sites drawn anew.

        Args:
            rng_key: Key for the observed sites.
            theta: Where.
            names: Sites wanted.
        """
        keys = jax.random.split(rng_key, len(theta))
        largest = max((int(np.prod(self.forms[n].shape)) for n in names), default=1)
        batch = max(1, min(len(theta), _NUMBERS // max(1, largest)))
        arrays = [jnp.asarray(self._leaves[i]) for i in self._at]
        return jax.device_get(self._draw(jnp.asarray(theta, self.program.dtype), keys, arrays, tuple(names), batch))

    @cached_property
    def _draw(self) -> Callable[..., Any]:
        def many(theta: Any, keys: Any, arrays: Any, names: tuple[str, ...], batch: int) -> dict[str, jax.Array]:
            leaves = list(self._leaves)
            for i, a in zip(self._at, arrays, strict=True):
                leaves[i] = a
            bound = jax.tree.unflatten(self._treedef, leaves)

            def one(at: tuple[jax.Array, jax.Array]) -> dict[str, jax.Array]:
                sites = self._trace(bound, at[0], at[1], True)
                return {n: jnp.asarray(sites[n]["value"]) for n in names}

            return jax.lax.map(one, (theta, keys), batch_size=batch)

        return jax.jit(many, static_argnums=(3, 4))

    def _trace(self, bound: Mapping[str, Any], theta: jax.Array, key: Any, anew: bool) -> Mapping[str, Any]:
        def run() -> Any:
            return call(self.program.model, bound)

        fn = _Unobserved(run) if anew else run
        substituted = handlers.substitute(fn, substitute_fn=self.program.substitution(theta))
        with quiet():
            return handlers.trace(handlers.seed(substituted, rng_seed=key)).get_trace()


class _Unobserved(Messenger):
    """Draws the observed sites; factors have nothing to draw."""

    def process_message(self, msg: dict[str, Any]) -> None:
        """Takes the observation away."""
        if msg["type"] == "sample" and msg["is_observed"] and not _is_factor(msg["fn"]):
            msg["is_observed"], msg["value"] = False, None


def _is_factor(fn: Any) -> bool:
    return isinstance(scalar_base(fn), dist.Unit)


def _form(name: str, site: Mapping[str, Any]) -> SiteForm:
    fn = site.get("fn") if site["type"] == "sample" else None
    kind = "deterministic" if fn is None else "latent" if not site["is_observed"] else "observed"
    kind = "factor" if fn is not None and _is_factor(fn) else kind
    shape = tuple(np.shape(site["value"]))
    event_dim = 0 if fn is None else fn.event_dim
    dims: list[str | None] = [None] * len(shape)
    frames = sorted(site.get("cond_indep_stack", ()), key=lambda frame: frame.dim)
    for place, frame in enumerate(frames):
        # what a deterministic site's trailing axes mean is not known: its plates come first, as ArviZ has it
        axis = place if fn is None else len(shape) - event_dim + frame.dim
        if 0 <= axis < len(shape) and shape[axis] == frame.size:
            dims[axis] = frame.name
    named = list((site.get("infer") or {}).get("event_dims", ()))
    begin = len(shape) - event_dim if fn is not None else len(frames)
    for axis, dim in zip(range(begin, len(shape)), named, strict=False):
        dims[axis] = dim
    value = np.asarray(site["value"]) if kind == "observed" else None
    return SiteForm(name, kind, shape, tuple(dims), event_dim, value)
