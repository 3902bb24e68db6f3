"""What reading a model gives: functions of a flat unconstrained θ, and its prior as Gaussian blocks."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to

from adfpp.engine.factor import FactorGroup
from adfpp.engine.families import Family
from adfpp.engine.families.product.exponential import Finite
from adfpp.engine.tilt import AUTO, Moments
from adfpp.engine.trace import Trace, depends_on, shape_of, trace
from adfpp.model.arguments import Layout, Model, ModelError, call
from adfpp.model.local import LocalLatent
from adfpp.model.native import inside, own_block
from adfpp.model.projection import Component, Projection, project_prior
from adfpp.model.visit import READING, Replace, elements, quiet, same_transform, scalar_base, stripped, visit

if TYPE_CHECKING:
    from adfpp.model.priors import PriorGroup


@dataclass(frozen=True)
class Latent:
    """A latent site.

    Attributes:
        name: Its name.
        shape: Of its value.
        unconstrained_shape: Of its unconstrained value.
        where: Its place in the flat θ.
        event_dim: Of its distribution.
        transform: From unconstrained to constrained; the identity where the belief is held in the site's own space.
        native: The family of each of its components in its own space, or None for a Gaussian in unconstrained space.
        whole: Whether a discrete site's values are handed to the model as whole numbers.
    """

    name: str
    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]
    where: slice
    event_dim: int
    transform: Any
    native: Any = None
    whole: bool = False

    @property
    def size(self) -> int:
        """Number of unconstrained scalars."""
        return self.where.stop - self.where.start

    @property
    def discrete(self) -> bool:
        """Whether its values can be listed."""
        return isinstance(self.native, Finite)

    def value(self, flat: jax.Array, whole: bool) -> jax.Array:
        """Its value ``(..., *shape)`` at ``(..., size)`` coordinates; of a discrete site as whole numbers if asked."""
        u = flat.reshape(flat.shape[:-1] + self.unconstrained_shape)
        if self.native is None:
            return self.transform(u)
        return jnp.round(u).astype(int) if whole and self.discrete else u

    @property
    def integral(self) -> bool:
        """Whether it is discrete and its values are whole numbers."""
        return self.discrete and all(float(v).is_integer() for v in self.native.values)


def same_space(site: Latent, other: Latent) -> bool:
    """Whether an unconstrained value means the same at two sites."""
    same = site.unconstrained_shape == other.unconstrained_shape and site.native == other.native
    return same and same_transform(site.transform, other.transform)


def substitution(sites: Sequence[Latent], theta: jax.Array) -> Callable[[dict[str, Any]], Any]:
    """Constrained values of the sites at a flat θ, for ``visit``."""
    places = {s.name: s for s in sites}

    def values(site: dict[str, Any]) -> Any:
        mine = places.get(site["name"])
        if site["type"] != "sample" or mine is None or site["is_observed"]:
            return None
        if mine.native is not None:
            return mine.value(theta[mine.where], mine.whole)
        # the support at hand, not the one remembered: it may depend on other sites, which the reader refuses
        return biject_to(site["fn"].support)(theta[mine.where].reshape(mine.unconstrained_shape))

    return values


def model_name(model: Any) -> str:
    """The name of a model function, or of the class of a callable object."""
    inner = getattr(model, "func", None)  # of functools.partial
    if inner is not None:
        return model_name(inner)
    return getattr(model, "__qualname__", type(model).__qualname__)


def _space(latent: Latent) -> str:
    """In words, the space that a latent's coordinates lie in: its native family, or its transform with the bounds."""
    if latent.native is not None:
        return repr(latent.native)
    name = type(stripped(latent.transform)).__name__.removesuffix("Transform").lower()
    bounds = [np.asarray(a) for a in jax.tree.leaves(latent.transform)]
    if not bounds:
        return name
    if all(a.size == 1 for a in bounds):
        return f"{name} with bounds from {', '.join(f'{a.item():.12g}' for a in bounds)}"
    return f"{name} with bounds {hashlib.sha256(b''.join(a.astype(float).tobytes() for a in bounds)).hexdigest()[:12]}"


@dataclass(frozen=True, eq=False)
class Program:
    """A model as functions of (θ, row arrays, shared arrays).

    Attributes:
        model: The model it was read from.
        layout: How its arguments split.
        latents: Latents in the order of θ.
        factors: Factor groups, in the order in which a row's factors are folded.
        row_shapes: Shape and dtype of each row array, without the leading axis.
        dtype: Of θ.
        trace: Of one row.
        family: How the belief is held.
        pinned: The shared arrays, where a support depends on them: they must stay what they are.
        local: Latents of the data plate, integrated out row by row: they have no place in θ.
        shared_shapes: Shape and dtype of each shared array.
        moments: How tilted moments are computed.
    """

    model: Model
    layout: Layout
    latents: tuple[Latent, ...]
    factors: tuple[FactorGroup, ...]
    row_shapes: tuple[jax.ShapeDtypeStruct, ...]
    dtype: Any
    trace: Trace
    family: Family
    pinned: tuple[np.ndarray, ...] | None = None
    local: tuple[LocalLatent, ...] = ()
    shared_shapes: tuple[jax.ShapeDtypeStruct, ...] = ()
    moments: Moments = AUTO

    @cached_property
    def fingerprint(self) -> str:
        """What a state has to agree on to belong to this program, as text."""
        latents = [
            [latent.name, list(latent.unconstrained_shape), _space(latent)] for latent in self.latents if latent.size
        ]
        parts = {"model": model_name(self.model), "family": self.family.name, "dtype": str(np.dtype(self.dtype))}
        return json.dumps(parts | {"latents": latents})

    def differences(self, fingerprint: str) -> str:
        """In words, what another fingerprint has that this program has not."""
        theirs, ours = json.loads(fingerprint), json.loads(self.fingerprint)
        words = [
            f"its {what} is {theirs[what]}, here it is {ours[what]}"
            for what in ("model", "family", "dtype")
            if theirs[what] != ours[what]
        ]
        there, here = ({name: (tuple(shape), space) for name, shape, space in f["latents"]} for f in (theirs, ours))
        for name in dict.fromkeys([*there, *here]):
            if name not in here:
                words.append(f"it has the latent {name!r}, which this model does not have")
            elif name not in there:
                words.append(f"it lacks the latent {name!r}")
            elif there[name] != here[name]:
                words.append(f"its latent {name!r} has shape and space {there[name]}, here {here[name]}")
        if not words:
            words.append("its latents come in another order")
        return "; ".join(words)

    @cached_property
    def prior_factors(self) -> "dict[str, tuple[PriorGroup, ...]]":
        """The prior as factor groups, by latent."""
        from adfpp.model.priors import prior_groups

        with READING:
            return prior_groups(self)

    @property
    def size(self) -> int:
        """Length of θ."""
        return sum(s.size for s in self.latents)

    def substitution(self, theta: jax.Array) -> Callable[[dict[str, Any]], Any]:
        """Constrained values of the latent sites, for ``visit``."""
        return substitution(self.latents, theta)

    def constrain(self, theta: jax.Array) -> dict[str, jax.Array]:
        """``{site: value}`` of a flat ``(..., N)`` θ."""
        out = {}
        for site in self.latents:
            out[site.name] = site.value(theta[..., site.where], site.integral)
        return out

    def unconstrain(self, values: Mapping[str, Any]) -> tuple[jax.Array, jax.Array]:
        """Flat θ ``(..., N)`` of constrained values, and the log-volume of the transform there ``(...)``."""
        parts, log_volume = [], jnp.zeros((), self.dtype)
        for site in self.latents:
            value = jnp.asarray(values[site.name], self.dtype)
            if site.native is not None:
                parts.append(value.reshape((*value.shape[: value.ndim - len(site.shape)], -1)))
                continue
            u = site.transform.inv(value)
            lead = u.shape[: u.ndim - len(site.unconstrained_shape)]
            jacobian = site.transform.log_abs_det_jacobian(u, value)
            log_volume = log_volume + jnp.sum(jacobian.reshape((*lead, -1)), -1)
            parts.append(u.reshape((*lead, -1)))
        return jnp.concatenate(parts, -1), log_volume

    def project_prior(
        self, rows: Sequence[Any], shared: Sequence[Any], priors: Mapping[str, Any] | None = None
    ) -> Projection:
        """The prior as independent Gaussian blocks in unconstrained space, as far as it is made of such.

        Args:
            rows: One row's arrays, leading axis 1 (a prior must not depend on them).
            shared: The shared arrays.
            priors: Distributions to put in the place of the model's own priors.
        """
        priors = priors or {}
        self._check_priors(priors)
        logs = self.prior_logs(priors)
        inputs = self.prior_inputs(shared)
        theta = jax.ShapeDtypeStruct((self.size,), self.dtype)
        traced = trace(logs, theta, *inputs)
        somewhere = jnp.asarray(inside(self.latents, np.random.default_rng(7), self.size), self.dtype)
        draw = self.prior_sampler(shared, priors)
        gaussian, blocks, coupled = [], [], []
        for c in _components(traced, self.latents):
            if all(self.latents[i].native is None for i in c.members):
                gaussian.append(c)
                continue
            # sites of which some are in their own space are never jointly Gaussian
            coupled += c.dependents
            for root in c.roots or (c,):
                site = self.latents[root.members[0]]
                if site.native is None:
                    gaussian.append(root)
                else:
                    blocks.append(own_block(site, lambda t, i=root.members[0]: logs(t, *inputs)[i], somewhere, draw))
        found = project_prior(gaussian, lambda t: logs(t, *inputs), draw, self.size, self.dtype)
        return Projection([*blocks, *found.blocks], tuple(sorted([*coupled, *found.coupled])))

    def prior_logs(self, priors: Mapping[str, Any] | None = None) -> Callable[..., list[jax.Array]]:
        """``θ, *inputs -> [log prior of each site in unconstrained space]``, elementwise where elements are scalars."""
        return _prior_logs(self.model, self.layout, self.latents, priors or {})

    def prior_inputs(self, shared: Sequence[Any]) -> list[jax.Array]:
        """What stands in for a row where only the prior is looked at, and the shared arrays."""
        return [jnp.zeros((1, *s.shape), s.dtype) for s in self.row_shapes] + [jnp.asarray(a) for a in shared]

    def prior_sampler(
        self, shared: Sequence[Any], priors: Mapping[str, Any] | None = None
    ) -> Callable[[jax.Array], jax.Array]:
        """``key -> θ``, a draw from the prior."""
        inputs = self.prior_inputs(shared)
        bound = self.layout.rebuild(inputs[: len(self.row_shapes)], inputs[len(self.row_shapes) :])

        def draw(key: jax.Array) -> jax.Array:
            with quiet(), handlers.seed(rng_seed=key):
                found = handlers.trace(Replace(lambda: call(self.model, bound), priors or {})).get_trace()
            values = {n: s["value"] for n, s in found.items() if s["type"] == "sample" and not s["is_observed"]}
            return self.unconstrain(values)[0]

        return draw

    def _check_priors(self, priors: Mapping[str, Any]) -> None:
        names = [s.name for s in self.latents]
        for name, prior in priors.items():
            if name not in names:
                raise ModelError(f"prior names the site {name!r}; the model's latent sites are {names}.")
            if not isinstance(prior, dist.Distribution):
                raise TypeError(
                    f"prior gives site {name!r} a {type(prior).__name__}; it takes a NumPyro distribution, e.g. "
                    f"prior={{{name!r}: dist.Normal(0, 10)}}."
                )


def _prior_logs(
    model: Model, layout: Layout, sites: Sequence[Latent], priors: Mapping[str, Any]
) -> Callable[..., list[jax.Array]]:
    """``θ, *inputs -> [log prior of each site in unconstrained space]``.

    A site with independent scalar elements gives one number an element, as one in its own space gives one a component;
    any other site gives one number.
    """
    rows = sum(k == "row" for k in layout.kinds)

    def logs(theta: jax.Array, *inputs: Any) -> list[jax.Array]:
        bound = layout.rebuild(inputs[:rows], inputs[rows:])
        latents = visit(model, bound, substitution(sites, theta), priors).latents
        out = []
        for site in sites:
            fn, value = latents[site.name]["fn"], latents[site.name]["value"]
            if isinstance(scalar_base(fn), dist.ImproperUniform):
                raise ModelError(
                    f"Site {site.name!r} has an improper prior, from which no online update can start. Give it a "
                    f"proper one in the model, or start from one: prior={{{site.name!r}: dist.Normal(0, 10)}} (or a "
                    "posterior)."
                )
            u = theta[site.where].reshape(site.unconstrained_shape)
            each = elements(fn, value)
            if site.native is not None:
                out.append(jnp.ravel(each.log_prob))
                continue
            transform = biject_to(fn.support)
            jacobian = transform.log_abs_det_jacobian(u, value)
            if _scalar_elements(fn, site):
                inner = biject_to(scalar_base(fn).support)
                out.append(jnp.ravel(each.log_prob + inner.log_abs_det_jacobian(u, value)))
            else:
                out.append((jnp.sum(each.log_prob) + jnp.sum(jacobian))[None])
        return out

    return logs


def _scalar_elements(fn: Any, site: Latent) -> bool:
    support = scalar_base(fn).support
    transform = biject_to(support)
    return (
        site.unconstrained_shape == site.shape
        and support.event_dim == 0
        and transform.domain.event_dim == 0
        and transform.codomain.event_dim == 0
    )


def _components(traced: Trace, sites: Sequence[Latent]) -> list[Component]:
    """Sites whose priors hang together, and whether a component's elements are independent scalars."""
    together = list(range(len(sites)))

    def root(i: int) -> int:
        while together[i] != i:
            i = together[i]
        return i

    for i, output in enumerate(traced.outputs):
        touched = depends_on(traced, output)
        for j, other in enumerate(sites):
            if touched[other.where].any():
                together[root(j)] = root(i)
    components: dict[int, list[int]] = {}
    for i in range(len(sites)):
        components.setdefault(root(i), []).append(i)
    places = [np.arange(s.where.start, s.where.stop) for s in sites]
    alone = [
        Component((s.name,), (i,), places[i], shape_of(traced.outputs[i]) == (s.size,)) for i, s in enumerate(sites)
    ]
    out = []
    for members in components.values():
        if len(members) == 1:
            out.append(alone[members[0]])
            continue
        looks = {i: depends_on(traced, traced.outputs[i]) for i in members}
        dependents = tuple(i for i in members if any(looks[i][places[j]].any() for j in members if j != i))
        roots = tuple(alone[i] for i in members if i not in dependents)
        where = np.concatenate([places[i] for i in members])
        out.append(Component(tuple(sites[i].name for i in members), tuple(members), where, False, roots, dependents))
    return out
