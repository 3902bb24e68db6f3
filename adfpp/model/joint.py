"""A program together with the data of one call: its log-densities at many θ."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers

from adfpp.model.arguments import ModelError, bind, call
from adfpp.model.local import prior_draws
from adfpp.model.program import Program
from adfpp.model.visit import Replace, elements, quiet, scalar_base, visit

_CHUNK = 4096  # rows evaluated at once
_NUMBERS = 1 << 21  # numbers held at once: rows times draws times what a row has


class Joint:
    """Log prior and log-likelihood of a model and its data, in chunks of rows and draws.

    Args:
        program: The model as it was read.
        args: The model's arguments, the data that the likelihood is about.
        kwargs: Its keyword arguments.
        prior: ``{site: distribution}`` in the place of some of the model's own priors; or the log density of all of θ,
            ``(S, N) -> (S,)``, in the place of the whole prior.
    """

    def __init__(
        self,
        program: Program,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        prior: Mapping[str, Any] | Callable[[jax.Array], Any] | None = None,
    ) -> None:
        _, leaves, names, treedef = bind(program.model, args, kwargs)
        if treedef != program.layout.treedef:
            given, expected = tuple(dict.fromkeys(names)), tuple(dict.fromkeys(program.layout.names))
            raise ModelError(
                f"The arguments do not fit: the model was read with {expected}, and this call has {given}."
            )
        self.program = program
        self.priors = dict(prior) if isinstance(prior, Mapping) else {}
        self.flat_prior = prior if callable(prior) else None
        # an option given in this call, not the one that the model was read with
        fixed = tuple(leaf for leaf, k in zip(leaves, program.layout.kinds, strict=True) if k == "fixed")
        self.layout = program.layout._replace(fixed=fixed)
        if program.local and repr(fixed) != repr(program.layout.fixed):
            raise ModelError(
                f"The model was read with the options {program.layout.fixed}, and this call has {fixed}. A model with "
                "local latents must be read with the options it is asked about."
            )
        self.rows, self.shared = self.layout.split(leaves)
        for a, expected in zip(self.rows, program.row_shapes, strict=True):
            if a.shape[1:] != expected.shape or len(a) != len(self.rows[0]):
                shapes = {n: a.shape for n, a in zip(program.layout.named("row"), self.rows, strict=False)}
                raise ModelError(
                    f"The arguments that carry rows have other shapes than the model was read with: {shapes}."
                )
        self.length = len(self.rows[0])

    # ------------------------------------------------------------------------------------------ densities

    def log_prior(self, theta: Any) -> dict[str, np.ndarray]:
        """Log prior density of each latent site in its own space: ``{site: (S, *batch_shape)}`` at ``(S, N)`` θ."""
        theta = jnp.asarray(theta, self.program.dtype)
        return jax.device_get(self._log_prior(theta, self.shared))

    def log_volume(self, theta: Any) -> np.ndarray:
        """Log-volume of the transforms from θ to the sites' own spaces, ``(S,)``."""
        return np.asarray(self._log_volume(jnp.asarray(theta, self.program.dtype)))

    def log_likelihood(self, theta: Any, rows: slice | np.ndarray = slice(None)) -> dict[str, np.ndarray]:
        """Log-likelihood of each row: ``{site: (S, rows, *elements)}`` at ``(S, N)`` θ, masked elements as 0.

        Local latents are summed and integrated out. Observed sites that hang together through them have one entry,
        under their names joined by ", ", with a number for each part of the row that hangs together.
        """
        chosen = np.arange(self.length)[rows]
        parts = [self._on(jnp.asarray(theta, self.program.dtype), c) for c in self._chunks(chosen)]
        return {name: np.concatenate([p[name] for p in parts], 1) for name in parts[0]}

    def log_joint(self, theta: Any, rows: slice | np.ndarray = slice(None)) -> np.ndarray:
        """Log of prior times likelihood, as a density over the flat unconstrained θ: ``(S,)`` at ``(S, N)``.

        Args:
            theta: Where.
            rows: The rows that count.
        """
        theta = jnp.asarray(theta, self.program.dtype)
        if self.flat_prior is not None:
            out = np.asarray(self.flat_prior(theta), np.float64)
        else:
            out = self.log_volume(theta) + sum(_summed(a) for a in self.log_prior(theta).values())
        counted = np.arange(self.length)[rows]
        for chosen in self._chunks(counted) if len(counted) else []:
            out = out + sum(_summed(a) for a in self._on(theta, chosen).values())
        return np.asarray(out)

    def predicted(self, theta: Any) -> dict[str, np.ndarray]:
        """What each row is expected to be, averaged over ``(S, N)`` θ: ``{site: (n, *event)}``.

        The likelihood's mean where it has one, the probability (density) of what was observed where it has none; at one
        draw of the row's local latents from their prior for each θ.
        """
        theta = jnp.asarray(theta, self.program.dtype)
        parts = [self._on(theta, c, "mean") for c in self._chunks(np.arange(self.length))]
        return {name: np.concatenate([p[name].mean(0) for p in parts]) for name in parts[0]}

    def replicate(self, rng_key: jax.Array, theta: jax.Array, row: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Draws of what one row might have been, one for each of ``(S, N)`` θ, beside what it was.

        Returns:
            ``{site: (draws (S, elements), observed (elements,))}``, masked elements left out; and so are sites that
            cannot be drawn: ``numpyro.factor``, and distributions without ``sample``.
        """
        found = jax.device_get(self._replicate(rng_key, theta, [a[row] for a in self.rows], self.shared))
        out = {}
        for name, (drawn, value, there) in found.items():
            if there.any():
                out[name] = drawn.reshape(len(drawn), -1)[:, there.reshape(-1)], value[there]
        return out

    def draw_prior(self, rng_key: jax.Array, count: int) -> np.ndarray:
        """Independent draws ``(count, N)`` of θ from the prior."""
        rows = [jnp.zeros((1, *s.shape), s.dtype) for s in self.program.row_shapes]

        def one(key: jax.Array) -> jax.Array:
            bound = self.layout.rebuild(rows, self.shared)
            with quiet(), handlers.seed(rng_seed=key):
                model = Replace(lambda: call(self.program.model, bound), self.priors)
                found = handlers.trace(model).get_trace()
            values = {s.name: found[s.name]["value"] for s in self.program.latents}
            return self.program.unconstrain(values)[0]

        return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(rng_key, count)))

    # ------------------------------------------------------------------------------------------ how

    def _chunks(self, chosen: np.ndarray) -> list[np.ndarray]:
        return [chosen[i : i + _CHUNK] for i in range(0, max(1, len(chosen)), _CHUNK)]

    def _on(self, theta: jax.Array, chosen: np.ndarray, what: str = "log_prob") -> dict[str, np.ndarray]:
        """One number an element of some rows, padded to a power of two so that few shapes are compiled."""
        length = 1 << max(0, len(chosen) - 1).bit_length()
        padded = np.concatenate([chosen, np.full(length - len(chosen), chosen[-1])])
        rows = [jnp.asarray(np.asarray(a[padded])) for a in self.rows]
        size = max(1, *[math.prod(s.shape) for s in self.program.row_shapes])
        batch = max(1, min(len(theta), _NUMBERS // (length * size)))
        logs = self._many(theta, rows, self.shared, batch, what)
        return {name: np.asarray(a)[:, : len(chosen)] for name, a in logs.items()}

    def _seen(
        self, theta: jax.Array, row: Sequence[Any], shared: Sequence[Any], key: jax.Array
    ) -> dict[str, dict[str, Any]]:
        """The observed sites of one row at one θ, at a draw of its local latents from their prior."""
        bound = self.layout.rebuild([jnp.asarray(a)[None] for a in row], shared)
        shared_values = self.program.substitution(theta)
        own = prior_draws(key, [s.name for s in self.program.local])

        def values(site: dict[str, Any]) -> Any:
            value = shared_values(site)
            return own(site) if value is None else value

        return visit(self.program.model, bound, values, self.priors).observed

    def _integrated(self, theta: jax.Array, row: Sequence[Any], shared: Sequence[Any]) -> dict[str, jax.Array]:
        """Log-likelihood of one row's factors that local latents enter, ``{site: (E,)}``."""
        inputs = [*[jnp.asarray(a)[None] for a in row], *shared]
        found: dict[str, dict[int, jax.Array]] = {}
        for group in self.program.factors:
            if group.local is None:
                continue
            _, field = group.matrices(theta, *inputs)
            marginal = group.local.rules(*inputs).marginal
            counted, _, _ = group.flags(*inputs)
            logs = (
                jax.vmap(marginal)(jnp.arange(group.count), field) if group.count > 1 else marginal(0, field[0])[None]
            )
            logs = jnp.where(counted, logs, 0.0)
            found.setdefault(group.name, {}).update(zip(group.elements, logs, strict=True))
        return {name: jnp.stack([each[e] for e in sorted(each)]) for name, each in found.items()}

    @cached_property
    def _many(self) -> Callable[..., dict[str, jax.Array]]:
        def one(theta: jax.Array, what: str, shared: Any, key: jax.Array, *row: Any) -> dict[str, jax.Array]:
            out = {}
            integrated = self._integrated(theta, row, shared) if self.program.local and what == "log_prob" else {}
            apart = {n: name for name in integrated for n in name.split(", ")}
            for name, site in self._seen(theta, row, shared, key).items():
                each = elements(site["fn"], site["value"])
                values = each.log_prob
                if name in integrated:
                    values = integrated[name].reshape(values.shape)
                elif name in apart:
                    out[apart[name]] = jnp.squeeze(integrated[apart[name]])
                    continue
                elif each.mask is not None:
                    values = jnp.where(jnp.broadcast_to(each.mask, values.shape), values, 0.0)
                if what == "mean":
                    values = _expected(site["fn"], jnp.exp(values))
                out[name] = values[0] if values.ndim and values.shape[0] == 1 else values.reshape(-1)
            return out

        def many(theta: jax.Array, rows: Any, shared: Any, batch: int, what: str) -> dict[str, jax.Array]:
            def all_rows(at: tuple[jax.Array, jax.Array]) -> dict[str, jax.Array]:
                keys = jax.random.split(at[1], len(rows[0]))
                return jax.vmap(lambda key, *row: one(at[0], what, shared, key, *row))(keys, *rows)

            keys = jax.random.split(jax.random.key(23), len(theta))
            return jax.lax.map(all_rows, (theta, keys), batch_size=batch)

        return jax.jit(many, static_argnums=(3, 4))

    @cached_property
    def _replicate(self) -> Callable[..., Any]:
        def one(key: jax.Array, theta: jax.Array, row: Any, shared: Any) -> dict[str, tuple[jax.Array, ...]]:
            out = {}
            seen = self._seen(theta, row, shared, jax.random.fold_in(key, 0x7FFF))
            for i, (name, site) in enumerate(seen.items()):
                fn = site["fn"]
                if isinstance(scalar_base(fn), dist.Unit):
                    continue
                try:
                    with quiet():
                        drawn = fn.sample(jax.random.fold_in(key, i))
                except NotImplementedError:
                    continue
                each = elements(fn, site["value"])
                shape = each.log_prob.shape
                there = jnp.broadcast_to(True if each.mask is None else each.mask, shape)
                there = there.reshape(shape + (1,) * (drawn.ndim - len(shape)))
                out[name] = (drawn, jnp.broadcast_to(site["value"], drawn.shape), jnp.broadcast_to(there, drawn.shape))
            return out

        def many(key: jax.Array, theta: jax.Array, row: Any, shared: Any) -> dict[str, tuple[jax.Array, ...]]:
            keys = jax.random.split(key, len(theta))
            out = jax.vmap(lambda k, t: one(k, t, row, shared))(keys, theta)
            return {name: (drawn, value[0], there[0]) for name, (drawn, value, there) in out.items()}

        return jax.jit(many)

    @cached_property
    def _log_prior(self) -> Callable[..., dict[str, jax.Array]]:
        def one(theta: jax.Array, shared: Any) -> dict[str, jax.Array]:
            rows = [jnp.zeros((1, *s.shape), s.dtype) for s in self.program.row_shapes]
            bound = self.layout.rebuild(rows, shared)
            seen = visit(self.program.model, bound, self.program.substitution(theta), self.priors)
            own = {s.name for s in self.program.local}
            return {n: site["fn"].log_prob(site["value"]) for n, site in seen.latents.items() if n not in own}

        return jax.jit(jax.vmap(one, (0, None)))

    @cached_property
    def _log_volume(self) -> Callable[[jax.Array], jax.Array]:
        def one(theta: jax.Array) -> jax.Array:
            total = jnp.zeros((), theta.dtype)
            for site in self.program.latents:
                if site.native is not None:
                    continue
                u = theta[site.where].reshape(site.unconstrained_shape)
                total = total + jnp.sum(site.transform.log_abs_det_jacobian(u, site.transform(u)))
            return total

        return jax.jit(jax.vmap(one))


def _summed(logs: np.ndarray) -> np.ndarray:
    """Over all but the draws; in float64, since many rows add up."""
    return logs.reshape(len(logs), -1).sum(1, dtype=np.float64)


def _expected(fn: Any, probability: jax.Array) -> jax.Array:
    """A likelihood's mean; the probability of what was observed where it has no mean or that is not a number."""
    if isinstance(scalar_base(fn), dist.Unit | dist.CategoricalProbs | dist.CategoricalLogits):
        return probability
    try:
        return jnp.asarray(fn.mean)
    except NotImplementedError:
        return probability
