"""Projects a prior onto independent blocks: finds the latents whose priors are connected, and projects each part."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from adfpp.engine.trace import Trace, depends_on, pruned, shape_of, trace
from adfpp.model.latents import Latent, theta_in_support
from adfpp.model.priors.density import ModelPrior
from adfpp.model.priors.gaussian import Component, Projection, project_gaussian
from adfpp.model.priors.native import native_block


def project_prior(prior: ModelPrior, shared: Sequence[ArrayLike]) -> Projection:
    """The prior as independent blocks as far as possible, and the positions of the other latents."""
    inputs = prior.inputs(shared)
    theta = jax.ShapeDtypeStruct((prior.size,), prior.dtype)
    traced, logs = trace(prior.logs, theta, *inputs), pruned(prior.logs, theta, *inputs)
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
                blocks.append(native_block(latent, lambda t, i=i: logs(t, *inputs)[i], somewhere, sampler))
    projected = project_gaussian(gaussian, lambda t: logs(t, *inputs), sampler, prior.size, prior.dtype)
    return Projection([*blocks, *projected.blocks], tuple(sorted([*coupled, *projected.coupled])))


def _components(traced: Trace, latents: Sequence[Latent]) -> list[Component]:
    """The components of the prior: latents whose priors are connected."""
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
