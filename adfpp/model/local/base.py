"""The Gaussian base of a row's continuous local numbers, and the log-density of their prior.

A Gaussian prior whose moments depend on no latent is the base itself (*exact*). For any other prior the base is a
Gaussian near it, and the ratio of the two is part of the row's factor.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import biject_to

from adfpp.engine.trace import known_value, trace
from adfpp.model.densities import unconstrained_log_density
from adfpp.model.elements import elements, scalar_base
from adfpp.model.local.latents import LocalLatent
from adfpp.model.visit import Sampled

# Numbers of draws that a base is fitted to, once or in every row. The fit may be rough, since the base is divided out.
_DRAWS, _DRAWS_PER_ROW = 2048, 64
_SD_OF_QUARTILES = 0.7413  # a normal's sd is this multiple of the distance between its quartiles

Base = Callable[..., tuple[ArrayLike, ArrayLike]]  # base(*inputs) -> (mean (m,), sd (m,))
DrawLatents = Callable[[jax.Array, Sequence[ArrayLike]], Mapping[str, Sampled]]


def local_numbers(local: LocalLatent, theta: jax.Array, start: int) -> jax.Array:
    """A continuous latent's numbers in (θ, z).

    They are sliced as in ``substitution``: the search for fields must find one traced value, not two equal ones.
    """
    return theta[start + local.where.start : start + local.where.stop]


def prior_elements(drawn: Sampled, local: LocalLatent, theta: jax.Array, start: int) -> jax.Array:
    """Log prior of a local latent's elements in unconstrained space, ``(E,)``."""
    each = elements(drawn.fn, drawn.value)
    if local.support is not None:
        return jnp.ravel(each.log_prob)
    u = local_numbers(local, theta, start).reshape(local.unconstrained_shape)
    exact = unconstrained_log_density(each.inner, u)
    if exact is not None:
        return jnp.ravel(exact) if exact.shape == each.log_prob.shape else jnp.sum(exact)[None]
    volume = biject_to(each.inner.support).log_abs_det_jacobian(u, drawn.value)
    if volume.shape == each.log_prob.shape:
        return jnp.ravel(each.log_prob + volume)
    return (jnp.sum(each.log_prob) + jnp.sum(volume))[None]


def gaussian_prior(drawn: Sampled, local: LocalLatent) -> tuple[jax.Array, jax.Array] | None:
    """(mean, sd) of the unconstrained value, in its shape, if its prior is Gaussian, else None."""
    inner = scalar_base(drawn.fn)
    if type(inner) not in (dist.Normal, dist.LogNormal) or local.unconstrained_shape != local.shape:
        return None
    return jnp.broadcast_to(inner.loc, local.shape), jnp.broadcast_to(inner.scale, local.shape)


def exact_base(drawn: Sampled, local: LocalLatent) -> tuple[jax.Array, jax.Array]:
    """(mean, sd) of a latent whose base is its prior, both flat."""
    moments = gaussian_prior(drawn, local)
    assert moments is not None
    return jnp.ravel(moments[0]), jnp.ravel(moments[1])


def fitted_base(
    latents: Sequence[LocalLatent],
    draw: DrawLatents,
    size: int,
    dtype: np.dtype,
    inputs: Sequence[jax.ShapeDtypeStruct],
) -> Base:
    """A base from the median and quartiles of prior draws: constant, unless the prior depends on the arguments."""
    inexact = [s for s in latents if s.support is None and not s.exact]
    if not inexact:
        return lambda *inputs: (np.zeros(size), np.ones(size))

    def moments(count: int, *given: ArrayLike) -> tuple[jax.Array, jax.Array]:
        def one(key: jax.Array) -> jax.Array:
            drawn = draw(key, given)
            z = jnp.zeros(size, dtype)
            for s in inexact:
                fn, value = drawn[s.name].fn, drawn[s.name].value
                z = z.at[s.where].set(jnp.ravel(biject_to(fn.support).inv(value)).astype(dtype))
            return z

        z = jax.vmap(one)(jax.random.split(jax.random.key(11), count))
        low, middle, high = jnp.nanquantile(z, jnp.asarray([0.25, 0.5, 0.75], dtype), axis=0)
        sd = _SD_OF_QUARTILES * (high - low)
        return jnp.where(jnp.isfinite(middle), middle, 0.0), jnp.where((sd > 0) & (sd < jnp.inf), sd, 1.0)

    traced = trace(
        lambda _, *given: list(moments(_DRAWS, *given)), jax.ShapeDtypeStruct((1,), dtype), *inputs, look_inside=False
    )
    known = [known_value(traced, o) for o in traced.outputs]
    if known[0] is not None and known[1] is not None:
        constants = known[0], known[1]
        return lambda *inputs: constants
    return partial(moments, _DRAWS_PER_ROW)


def base_log_density(
    latents: Sequence[LocalLatent], start: int, size: int, theta: jax.Array, mean: jax.Array, sd: jax.Array
) -> list[tuple[jax.Array, int]]:
    """For each local number, an array of log-densities under the base and its place in it; 0 if exact."""
    out: list[tuple[jax.Array, int]] = [(jnp.zeros(1, theta.dtype), 0)] * size
    for s in latents:
        if s.support is None and not s.exact:
            logs = dist.Normal(mean[s.where], sd[s.where]).log_prob(local_numbers(s, theta, start))
            out[s.where] = [(logs, i) for i in range(s.size)]
    return out
