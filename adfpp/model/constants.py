"""Statements that are observed once, and not once for each row: constants, and terms of the prior.

``numpyro.sample("sigma", dist.HalfNormal(1), obs=2.0)``, or ``handlers.condition`` around a model, fixes a latent. Its
density depends neither on the rows nor on the other latents. It is a *constant*, which does not change the posterior.

``numpyro.factor("soft", -0.5 * (w.sum() / 0.001) ** 2)``, or an observation of a function of latents, depends on
latents and not on the rows. It is a *prior term*: the prior of these latents is the product of their own priors and the
term.

Neither may be counted once for each row.
"""

import hashlib
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import biject_to

from adfpp.engine.trace import depends_on, reads, size_of, trace
from adfpp.model.arguments import Array, Bound, Model, ModelError, canonical_dtype
from adfpp.model.elements import AnyDistribution, elements, is_factor
from adfpp.model.layout import Layout
from adfpp.model.outline import Outline, Outlines
from adfpp.model.visit import Visit, visit


class Once(NamedTuple):
    """The statements that are observed once.

    Attributes:
        constants: The names of the constants.
        prior_terms: The names of the terms of the prior.
        read: The shared arrays that terms of the prior read, by their positions among the shared arrays.
    """

    constants: frozenset[str] = frozenset()
    prior_terms: tuple[str, ...] = ()
    read: tuple[int, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Both kinds."""
        return self.constants.union(self.prior_terms)


def observed_once(model: Model, bound: Bound, layout: Layout, outlines: Sequence[Outlines]) -> Once:
    """Finds the observations and factors whose density does not depend on the rows.

    Args:
        model: The model.
        bound: The arguments of a call.
        layout: How they are split.
        outlines: The shapes of the model on all rows, on one row and on two rows.

    Raises:
        ModelError: When such a statement depends on a latent that is drawn for every row.
    """
    whole, one, two = outlines
    candidates = [name for name in whole.observations if _as_many_elements(name, outlines)]
    if not candidates:
        return Once()
    rows, shared = layout.split(bound.leaves)
    theta, where = _places(one.latents)

    def densities(flat: jax.Array, *inputs: ArrayLike) -> list[jax.Array]:
        """The log-densities of the candidates at these values of the latents."""

        def values(name: str, fn: AnyDistribution) -> jax.Array:
            value = flat[where[name]].reshape(one.latents[name].shape)
            return value.astype(int) if one.latents[name].discrete else value

        seen = visit(model, layout.rebuild_from(inputs), values)
        return _log_densities(seen, candidates) + [jnp.asarray(seen.observations[n].value) for n in candidates]

    traced = trace(densities, theta, *_shapes(rows, shared, 1))
    constants, terms = set(), []
    factors: dict[str, list[str]] = {}  # those that read latents, with the latents of rows among them
    logs, data = traced.outputs[: len(candidates)], traced.outputs[len(candidates) :]
    for name, output, value in zip(candidates, logs, data, strict=True):
        if reads(traced, output, traced.inputs[: len(rows)]):
            continue
        read = depends_on(traced, output)
        latents = [latent for latent, places in where.items() if read[places].any()]
        local = [n for n in latents if one.latents[n].shape != two.latents[n].shape]
        if is_factor(whole.observations[name].fn):
            if latents:
                factors[name] = local
        elif not latents:
            constants.add(name)
        elif local:
            raise ModelError(_of_rows(name, local[0]))
        elif size_of(value) > 1 and reads(traced, value, traced.inputs):
            raise ModelError(_of_other_rows(name, latents[0]))
        else:
            terms.append(name)
    for name, kind in _kinds_of(list(factors), model, layout, (one, two), rows, shared).items() if factors else ():
        if kind == "neither" and factors[name]:
            raise ModelError(_of_rows(name, factors[name][0]))
        if kind == "once" and not factors[name]:
            terms.append(name)
    outputs = [output for name, output in zip(candidates, logs, strict=True) if name in terms]
    given = enumerate(traced.inputs[len(rows) :])
    read_by_terms = tuple(i for i, array in given if any(reads(traced, output, [array]) for output in outputs))
    return Once(frozenset(constants), tuple(n for n in whole.observations if n in terms), read_by_terms)


def digest_of(arrays: Sequence[np.ndarray]) -> str:
    """A short text that differs if the shapes or the numbers of arrays differ."""
    text = b"".join(repr(a.shape).encode() + np.asarray(a, float).tobytes() for a in arrays)
    return hashlib.sha256(text).hexdigest()[:12]


def _of_rows(name: str, latent: str) -> str:
    return (
        f"Observation {name!r} depends on latent {latent!r}, which has a value for each row, and not on the rows: it "
        f"would be counted once for each row. If {latent!r} has a value for each group or area, draw it in a plate of "
        "that size (numpyro.plate('areas', n_areas), with n_areas a Python number), pass the area of each row as an "
        f"argument, and index it: {latent}[area]. Name the arguments that carry rows with rows=(...) if there are as "
        "many rows as areas."
    )


def _of_other_rows(name: str, latent: str) -> str:
    return (
        f"Observation {name!r} depends on latent {latent!r} and on data, but not on the arguments that carry rows: it "
        "belongs to a plate of another length, and would be counted once for each row. Pass all data as rows of one "
        "plate, with an argument that says of which kind a row is, and count each kind in its own rows "
        "(handlers.mask). If these data belong to the prior, write them as numpyro.factor."
    )


def _as_many_elements(name: str, outlines: Sequence[Outlines]) -> bool:
    """Whether an observation has as many elements with any number of rows."""
    found = [o.observations[name].element_shape for o in outlines if name in o.observations]
    return len(found) == len(outlines) and len({math.prod(shape) for shape in found}) == 1


def _places(latents: Mapping[str, Outline]) -> tuple[jax.ShapeDtypeStruct, dict[str, slice]]:
    """A flat array of the values of latents, and the place of each in it."""
    ends = np.cumsum([0, *(math.prod(latent.shape) for latent in latents.values())])
    where = {name: slice(a, b) for name, a, b in zip(latents, ends[:-1], ends[1:], strict=True)}
    return jax.ShapeDtypeStruct((int(ends[-1]),), jnp.zeros(()).dtype), where


def _shapes(rows: Sequence[Array], shared: Sequence[Array], length: int) -> list[jax.ShapeDtypeStruct]:
    """The shapes of the inputs of a model on this number of rows."""
    shapes = [(length, *a.shape[1:]) for a in rows] + [a.shape for a in shared]
    return [jax.ShapeDtypeStruct(s, canonical_dtype(a)) for s, a in zip(shapes, (*rows, *shared), strict=True)]


def _log_densities(seen: Visit, names: Sequence[str]) -> list[jax.Array]:
    return [jnp.ravel(elements(seen.observations[n].fn, seen.observations[n].value).masked_log_prob()) for n in names]


def _kinds_of(
    names: Sequence[str],
    model: Model,
    layout: Layout,
    outlines: tuple[Outlines, Outlines],
    rows: Sequence[Array],
    shared: Sequence[Array],
) -> dict[str, Literal["once", "summed", "neither"]]:
    """Compares factors on one row and on two: with the same value, or the sum of those of the rows.

    A factor that is multiplied by the number of rows is a sum over the rows. The values are compared at random values
    of the latents and of the shared arrays, which need not be known when a model is read.
    """
    one, two = (o.latents for o in outlines)

    def on(first: int, length: int) -> list[np.ndarray]:
        """The log-densities on this number of rows, with the latents of the rows from ``first`` on."""

        def values(name: str, fn: AnyDistribution) -> jax.Array | None:
            if two[name].discrete:
                return None
            u = np.random.default_rng(zlib.crc32(name.encode())).normal(size=two[name].unconstrained_shape)
            for axis, (a, b) in enumerate(zip(one[name].unconstrained_shape, u.shape, strict=True)):
                u = u if a == b else np.take(u, range(first, first + length), axis)
            return biject_to(fn.support)(jnp.asarray(u))

        def run(*inputs: ArrayLike) -> list[jax.Array]:
            return [jnp.sum(a) for a in _log_densities(visit(model, layout.rebuild_from(inputs), values), names)]

        rng, shapes = np.random.default_rng(23), _shapes(rows, shared, length)
        inputs = [np.zeros(s.shape, s.dtype) for s in shapes[: len(rows)]]
        return jax.device_get(jax.jit(run)(*inputs, *(_random(rng, s) for s in shapes[len(rows) :])))

    tolerance = 1e-9 if jnp.zeros(()).dtype == np.float64 else 1e-4

    def close(a: np.ndarray, b: np.ndarray) -> bool:
        return np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)

    out: dict[str, Literal["once", "summed", "neither"]] = {}
    for name, a, b, both in zip(names, on(0, 1), on(1, 1), on(0, 2), strict=True):
        known = np.isfinite([a, b, both]).all()
        out[name] = "once" if close(a, both) else "summed" if close(a + b, both) or not known else "neither"
    return out


def _random(rng: np.random.Generator, shape: jax.ShapeDtypeStruct) -> np.ndarray:
    if jnp.issubdtype(shape.dtype, jnp.inexact):
        return rng.uniform(0.2, 1.8, shape.shape).astype(shape.dtype)
    return rng.integers(0, 2, shape.shape).astype(shape.dtype)
