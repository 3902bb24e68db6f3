"""Projecting a prior onto independent blocks: which latents' priors hang together, and how each part is projected."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from adfpp.engine.trace import Trace, depends_on, shape_of, trace
from adfpp.model.latents import Latent, theta_in_support
from adfpp.model.priors.density import ModelPrior
from adfpp.model.priors.gaussian import Component, Projection, project_gaussian
from adfpp.model.priors.native import native_block


def project_prior(prior: ModelPrior, shared: Sequence[ArrayLike]) -> Projection:
    """The prior as independent blocks, as far as it is made of such; the positions of latents that are not."""
    inputs = prior.inputs(shared)
    traced = trace(prior.logs, jax.ShapeDtypeStruct((prior.size,), prior.dtype), *inputs)
    somewhere = jnp.asarray(theta_in_support(prior.latents, np.random.default_rng(7), prior.size), prior.dtype)
    sampler = prior.sampler(shared)
    gaussian, blocks, coupled = [], [], []
    for component in _components(traced, prior.latents):
        if all(prior.latents[i].native is None for i in component.members):
            gaussian.append(component)
            continue
        # Latents of which some are kept in their native space are never jointly Gaussian.
        coupled += component.dependents
        for root in component.roots or (component,):
            (i,) = root.members
            latent = prior.latents[i]
            if latent.native is None:
                gaussian.append(root)
            else:
                blocks.append(native_block(latent, lambda t, i=i: prior.logs(t, *inputs)[i], somewhere, sampler))
    projected = project_gaussian(gaussian, lambda t: prior.logs(t, *inputs), sampler, prior.size, prior.dtype)
    return Projection([*blocks, *projected.blocks], tuple(sorted([*coupled, *projected.coupled])))


def _components(traced: Trace, latents: Sequence[Latent]) -> list[Component]:
    """Latents whose priors hang together, and whether a component's elements are independent scalars."""
    together = list(range(len(latents)))

    def root(i: int) -> int:
        while together[i] != i:
            i = together[i]
        return i

    reads = [depends_on(traced, output) for output in traced.outputs]
    for i, read in enumerate(reads):
        for j, other in enumerate(latents):
            if read[other.where].any():
                together[root(j)] = root(i)
    components: dict[int, list[int]] = {}
    for i in range(len(latents)):
        components.setdefault(root(i), []).append(i)
    alone = [
        Component((latent.name,), (i,), latent.places, shape_of(traced.outputs[i]) == (latent.size,))
        for i, latent in enumerate(latents)
    ]
    out = []
    for members in components.values():
        if len(members) == 1:
            out.append(alone[members[0]])
            continue
        dependents = tuple(i for i in members if any(reads[i][latents[j].places].any() for j in members if j != i))
        roots = tuple(alone[i] for i in members if i not in dependents)
        where = np.concatenate([latents[i].places for i in members])
        names = tuple(latents[i].name for i in members)
        out.append(Component(names, tuple(members), where, False, roots, dependents))
    return out
