"""Latents that all rows share: their places in the flat unconstrained θ, and how θ becomes their values.

Latents of single rows are in ``adfpp.model.local``.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import Jaxpr, Literal, Var
from jax.typing import ArrayLike
from numpyro.distributions import biject_to
from numpyro.distributions.transforms import IdentityTransform

from adfpp.engine.families.product.exponential import Exponential
from adfpp.model.arguments import Model, ModelError, canonical_dtype
from adfpp.model.elements import AnyDistribution, elements, same_transform, stripped
from adfpp.model.layout import Layout
from adfpp.model.outline import Outlines
from adfpp.model.visit import Values, Visit, visit


@dataclass(frozen=True)
class Latent:
    """A latent that all rows share.

    Attributes:
        name: The name of the latent.
        shape: The shape of its value.
        unconstrained_shape: The shape of its unconstrained value.
        where: Its place in the flat θ.
        event_dim: The number of axes of one event of its distribution.
        transform: From unconstrained to constrained; the identity where the belief is kept in native space.
        native: The family of each of its components in its native space, or None for a Gaussian in unconstrained space.
        whole: Whether the values of a discrete latent are given to the model as whole numbers.
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
    def places(self) -> np.ndarray:
        """Places of its scalars in θ."""
        return np.arange(self.where.start, self.where.stop)

    @property
    def discrete(self) -> bool:
        """Whether its values can be listed."""
        return self.native is not None and bool(self.native.levels)

    @property
    def space(self) -> str:
        """A description of the space of its coordinates: its native family, or its transform with the bounds."""
        if self.native is not None:
            return repr(self.native)
        name = type(stripped(self.transform)).__name__.removesuffix("Transform").lower()
        bounds = [np.asarray(a) for a in jax.tree.leaves(self.transform)]
        if not bounds:
            return name
        if all(a.size == 1 for a in bounds):
            return f"{name} with the bounds {', '.join(f'{a.item():.12g}' for a in bounds)}"
        digest = hashlib.sha256(b"".join(a.astype(float).tobytes() for a in bounds)).hexdigest()
        return f"{name} with bounds (digest {digest[:12]})"

    def value(self, flat: jax.Array, whole: bool) -> jax.Array:
        """Its value ``(..., *shape)`` at ``(..., size)`` coordinates; ``whole`` gives discrete values as integers."""
        u = flat.reshape(flat.shape[:-1] + self.unconstrained_shape)
        if self.native is None:
            return self.transform(u)
        return jnp.round(u).astype(int) if whole and self.discrete else u

    @property
    def integral(self) -> bool:
        """Whether it is discrete and its values are whole numbers."""
        return self.discrete and all(float(v).is_integer() for v in self.native.levels)


def same_space(latent: Latent, other: Latent) -> bool:
    """Whether an unconstrained value means the same for two latents."""
    same = latent.unconstrained_shape == other.unconstrained_shape and latent.native == other.native
    return same and same_transform(latent.transform, other.transform)


def substitution(latents: Sequence[Latent], theta: jax.Array) -> Values:
    """Constrained values of the latents at a flat θ, for ``visit``."""
    by_name = {latent.name: latent for latent in latents}

    def values(name: str, fn: AnyDistribution) -> ArrayLike | None:
        latent = by_name.get(name)
        if latent is None:
            return None
        if latent.native is not None:
            return latent.value(theta[latent.where], latent.whole)
        # The support of this run: it may still depend on other latents, which the reader refuses afterwards.
        return biject_to(fn.support)(theta[latent.where].reshape(latent.unconstrained_shape))

    return values


def unconstrain(
    latents: Sequence[Latent], values: Mapping[str, ArrayLike], dtype: np.dtype
) -> tuple[jax.Array, jax.Array]:
    """Flat θ ``(..., N)`` of constrained values, and the log-volume of the transform there ``(...)``."""
    parts, log_volume = [], jnp.zeros((), dtype)
    for latent in latents:
        value = jnp.asarray(values[latent.name], dtype)
        if latent.native is not None:
            parts.append(value.reshape((*value.shape[: value.ndim - len(latent.shape)], -1)))
            continue
        u = latent.transform.inv(value)
        lead = u.shape[: u.ndim - len(latent.unconstrained_shape)]
        jacobian = latent.transform.log_abs_det_jacobian(u, value)
        log_volume = log_volume + jnp.sum(jacobian.reshape((*lead, -1)), -1)
        parts.append(u.reshape((*lead, -1)))
    return jnp.concatenate(parts, -1), log_volume


def theta_in_support(latents: Sequence[Latent], rng: np.random.Generator, size: int) -> np.ndarray:
    """A random θ ``(N,)`` in the support of every latent."""
    theta = rng.uniform(-1.0, 1.0, size)
    for latent in latents:
        if latent.native is not None:
            theta[latent.where] = latent.native.interior(rng, latent.size // latent.native.dim).ravel()
    return theta


def shared_latents(whole: Outlines, local: frozenset[str], native: Mapping[str, Exponential]) -> tuple[Latent, ...]:
    """The latents that rows share and their places in θ; ``with_transforms`` fills in the transforms.

    Args:
        whole: The model by shapes.
        local: Names of the latents of single rows.
        native: The families of latents whose belief is kept in their native space.

    Raises:
        ModelError: When the rows share no latent.
    """
    latents, start = [], 0
    for name, known in whole.latents.items():
        if name in local:
            continue
        unconstrained = known.shape if name in native else known.unconstrained_shape
        size = int(np.prod(unconstrained))
        where = slice(start, start + size)
        identity = IdentityTransform()
        latents.append(
            Latent(name, known.shape, unconstrained, where, len(known.fn.event_shape), identity, native.get(name))
        )
        start += size
    if not latents:
        if local:
            raise ModelError(
                f"All latents ({sorted(local)}) are drawn for every row, so that a row tells nothing about the "
                "next one. Give the rows a latent in common."
            )
        raise ModelError("The model has no latent: there is nothing to learn.")
    return tuple(latents)


def with_transforms(
    model: Model, layout: Layout, leaves: Sequence[object], latents: Sequence[Latent]
) -> tuple[tuple[Latent, ...], tuple[np.ndarray, ...] | None]:
    """The latents with their transforms, whose arrays, if any, are computed from the shared arguments.

    The values of shared arrays are read only where a support depends on them; those of rows never are.

    Returns:
        The latents, and the shared arrays if a transform depends on any of them.
    """
    rows, shared = layout.split(leaves)
    kept: dict[str, Any] = {}

    def supports(*inputs: ArrayLike) -> list[jax.Array]:
        """Stores the flattened supports in ``kept``, and returns the arrays in them that are computed."""
        found = visit(model, layout.rebuild_from(inputs)).latents
        kept["leaves"], kept["treedef"] = jax.tree.flatten([found[latent.name].fn.support for latent in latents])
        return [leaf for leaf in kept["leaves"] if isinstance(leaf, Tracer)]

    row = [jnp.zeros((1, *a.shape[1:]), canonical_dtype(a)) for a in rows]
    shapes = [jax.ShapeDtypeStruct(a.shape, canonical_dtype(a)) for a in shared]
    traced = jax.make_jaxpr(supports)(*row, *shapes)
    leaves_of_supports, pinned = kept["leaves"], None
    if any(isinstance(leaf, Tracer) for leaf in leaves_of_supports):
        depends = _depends_on(traced.jaxpr, traced.jaxpr.invars[len(rows) :])
        given = [jnp.asarray(a) if depends else jnp.zeros(a.shape, a.dtype) for a in (shared if depends else shapes)]
        values = iter(jax.jit(supports)(*row, *given))
        leaves_of_supports = [next(values) if isinstance(leaf, Tracer) else leaf for leaf in kept["leaves"]]
        pinned = tuple(np.asarray(a) for a in shared) if depends else None
    done = [
        replace(latent, transform=IdentityTransform() if latent.native is not None else biject_to(support))
        for latent, support in zip(latents, jax.tree.unflatten(kept["treedef"], leaves_of_supports), strict=True)
    ]
    return tuple(done), pinned


def _depends_on(jaxpr: Jaxpr, inputs: Sequence[Var]) -> bool:
    """Whether an output of a jaxpr depends on any of these inputs; an equation counts as reading all its operands."""
    reached = set(inputs)
    for equation in jaxpr.eqns:
        if any(v in reached for v in equation.invars if not isinstance(v, Literal)):
            reached.update(equation.outvars)
    return any(v in reached for v in jaxpr.outvars if not isinstance(v, Literal))


def with_whole_numbers(
    latents: tuple[Latent, ...],
    run: Callable[[tuple[Latent, ...], jax.Array, Sequence[ArrayLike]], Visit],
    theta: jax.ShapeDtypeStruct,
    inputs: Sequence[jax.ShapeDtypeStruct],
) -> tuple[Latent, ...]:
    """Marks discrete latents that the model needs as integers, because it does not run on floats (``mean[z]``).

    Floats are tried first, because a field can be affine in floats, but not in integers.

    Args:
        latents: The latents.
        run: ``run(latents, θ, inputs)`` visits one row.
        theta: Shape of θ.
        inputs: Shapes of one row's arrays and of the shared ones.
    """
    if not any(latent.discrete for latent in latents):
        return latents

    def try_with(latents: tuple[Latent, ...]) -> None:
        def priors(flat: jax.Array, *rest: ArrayLike) -> list[jax.Array]:
            found = run(latents, flat, rest).latents
            # A Categorical uses its value as an index, which fails for floats.
            drawn = [found[latent.name] for latent in latents if latent.discrete]
            return [elements(sampled.fn, sampled.value).log_prob for sampled in drawn]

        jax.eval_shape(priors, theta, *inputs)

    try:
        try_with(latents)
    except ModelError:
        raise
    except (TypeError, ValueError, IndexError):  # raised by indexing with a float, and by shapes made of one
        whole = tuple(replace(latent, whole=True) if latent.discrete else latent for latent in latents)
        try_with(whole)
        return whole
    return latents
