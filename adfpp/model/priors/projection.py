"""Projects a prior onto independent blocks: finds the latents whose priors are connected, and projects each part."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from adfpp.engine.families import Block
from adfpp.engine.trace import Trace, depends_on, polynomial_degree, pruned, shape_of, trace
from adfpp.model.latents import Latent, theta_in_support
from adfpp.model.priors.density import ModelPrior, refuse_improper_prior
from adfpp.model.priors.gaussian import Component, LogPrior, Projection, exact_block, project_gaussian
from adfpp.model.priors.native import native_block


def project_prior(prior: ModelPrior, shared: Sequence[ArrayLike]) -> Projection:
    """The prior as independent blocks as far as possible, and what is left of it.

    Terms of the prior that make latents jointly Gaussian are part of their block. The others are left.
    """
    inputs = prior.inputs(shared)
    theta = jax.ShapeDtypeStruct((prior.size,), prior.dtype)
    traced, logs = trace(prior.logs, theta, *inputs), pruned(prior.logs, theta, *inputs)
    somewhere = jnp.asarray(theta_in_support(prior.latents, np.random.default_rng(7), prior.size), prior.dtype)
    sampler = prior.sampler(shared)
    gaussian, blocks, coupled = [], [], []
    components, joint = _with_terms(traced, prior, lambda t: logs(t, *inputs))
    _refuse_improper(traced, prior, joint)
    for component in components:
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
    used = {i for block in joint for i in block.terms}
    left = tuple(name for i, name in enumerate(prior.terms, len(prior.latents)) if i not in used)
    blocks = [block.block for block in joint] + blocks + projected.blocks
    return Projection(blocks, tuple(sorted([*coupled, *projected.coupled])), left)


class _Joint(NamedTuple):
    """A Gaussian block of latents and terms of the prior, by their positions in the log prior."""

    block: Block
    members: tuple[int, ...]
    terms: tuple[int, ...]


def _with_terms(traced: Trace, prior: ModelPrior, log_prior: LogPrior) -> tuple[list[Component], list[_Joint]]:
    """The components without terms, and the blocks of those whose terms and latents are jointly Gaussian.

    A term is left out if it is not quadratic by itself, reads latents in their native space, or belongs to a component
    that is not Gaussian.
    """
    terms = [
        i
        for i in range(len(prior.latents), len(traced.outputs))
        if polynomial_degree(traced.equations, [traced.theta], traced.outputs[i]) <= 2
    ]
    while True:
        joint, failed = [], []
        components = _components(traced, prior.latents, terms)
        for component in components:
            if not component.terms:
                continue
            native = any(prior.latents[i].native is not None for i in component.members)
            block = None if native else exact_block(component, log_prior, prior.size, prior.dtype)
            if block is None:
                failed += component.terms
            else:
                joint.append(_Joint(block, component.members, component.terms))
        if not failed:
            return [c for c in components if not c.terms], joint
        terms = [i for i in terms if i not in failed]


def _refuse_improper(traced: Trace, prior: ModelPrior, joint: Sequence[_Joint]) -> None:
    """Refuses improper priors that no term of the prior makes a proper Gaussian."""
    proper = {i for block in joint for i in block.members}
    for i, latent in enumerate(prior.latents):
        constant = latent.native is None and not depends_on(traced, traced.outputs[i]).any()
        if constant and latent.size and i not in proper:
            refuse_improper_prior(latent.name)


def _components(traced: Trace, latents: Sequence[Latent], terms: Sequence[int] = ()) -> list[Component]:
    """The components of the prior: latents whose priors are connected, and the terms that connect them.

    Args:
        traced: The log prior.
        latents: The latents.
        terms: The positions of terms of the prior among the outputs of the log prior.
    """
    together = list(range(len(latents)))

    def root(i: int) -> int:
        while together[i] != i:
            i = together[i]
        return i

    reads = [depends_on(traced, output) for output in traced.outputs]
    first = {i: next(j for j, latent in enumerate(latents) if reads[i][latent.where].any()) for i in terms}
    for i, read in [*enumerate(reads[: len(latents)]), *((first[i], reads[i]) for i in terms)]:
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
    for key, members in components.items():
        own = tuple(i for i in terms if root(first[i]) == key)
        if len(members) == 1 and not own:
            out.append(alone[members[0]])
            continue
        dependents = tuple(i for i in members if any(reads[i][latents[j].places].any() for j in members if j != i))
        roots = tuple(alone[i] for i in members if i not in dependents)
        where = np.concatenate([latents[i].places for i in members])
        names = tuple(latents[i].name for i in members)
        out.append(Component(names, tuple(members), where, False, roots, dependents, own))
    return out
