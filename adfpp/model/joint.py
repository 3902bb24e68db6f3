"""A program together with the data of one call: its log-densities at many θ.

Compiled functions belong to the program, not to this object: two joints of one program share them.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike

from adfpp.model.arguments import ModelError, bind
from adfpp.model.elements import AnyDistribution, elements, is_factor, is_improper, scalar_base
from adfpp.model.latents import unconstrain
from adfpp.model.layout import Layout
from adfpp.model.program import Program
from adfpp.model.visit import Sampled, draw_latents, prior_draws_of, quiet

_CHUNK = 4096  # rows evaluated at once
_NUMBERS = 1 << 21  # numbers in memory at once: rows times draws times numbers in a row
_INTEGRAL = (1, 1_000, 500_000)  # a quadrature over 0, 1, or more numbers costs about this many evaluations

Arrays = Sequence[Any]
What = Literal["log_prob", "mean"]


class _Call(NamedTuple):
    """The options of one call and the replaced priors. Compiled functions depend on these as well."""

    layout: Layout
    replaced: tuple[tuple[str, AnyDistribution], ...]


class Joint:
    """Log prior and log-likelihood of a model and its data, in chunks of rows and draws.

    Args:
        program: The model as it was read.
        args: The model's arguments, with the data of the likelihood.
        kwargs: The model's keyword arguments.
        prior: ``{latent: distribution}`` to replace some of the model's own priors; or the log density of all of θ,
            ``(S, N) -> (S,)``, to replace the whole prior.
    """

    def __init__(
        self,
        program: Program,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        prior: Mapping[str, dist.Distribution] | Callable[[jax.Array], ArrayLike] | None = None,
    ) -> None:
        program.refuse_lower_precision()
        bound = bind(program.model, args, kwargs)
        if bound.treedef != program.layout.treedef:
            given, expected = tuple(dict.fromkeys(bound.names)), tuple(dict.fromkeys(program.layout.names))
            raise ModelError(
                f"The arguments do not fit: the model was read with {expected}, and this call has {given}."
            )
        self.program = program
        self.flat_prior = prior if callable(prior) else None
        # The options given in this call, not those that the model was read with.
        self.layout = program.layout.with_fixed(bound.leaves)
        if program.local and self.layout != program.layout:
            raise ModelError(
                f"The model was read with the options {program.layout.fixed}, and this call has {self.layout.fixed}. A "
                "model with local latents must be read with the options it is asked about."
            )
        self._call = _Call(self.layout, tuple(prior.items()) if isinstance(prior, Mapping) else ())
        self.rows, self.shared = self.layout.split(bound.leaves)
        for a, expected in zip(self.rows, program.row_shapes, strict=True):
            if a.shape[1:] != expected.shape or len(a) != len(self.rows[0]):
                shapes = {n: a.shape for n, a in zip(program.layout.named("row"), self.rows, strict=False)}
                raise ModelError(
                    f"The arguments that carry rows have other shapes than the model was read with: {shapes}."
                )
        self.length = len(self.rows[0])

    @property
    def row_cost(self) -> int:
        """About how many log-likelihoods without local latents the log-likelihood of a row costs."""
        local = [f.local for f in self.program.factors if f.local is not None]
        return max([_INTEGRAL[min(f.integrated, 2)] * f.combinations for f in local], default=1)

    # ------------------------------------------------------------------------------------------ densities

    def log_prior(self, theta: ArrayLike) -> dict[str, np.ndarray]:
        """Log prior density of each latent in its native space, and of each term of the prior.

        ``{name: (S, *batch_shape)}`` at ``(S, N)`` θ.
        """
        return jax.device_get(self._compiled(_log_priors)(self._flat(theta), self.shared))

    def log_volume(self, theta: ArrayLike) -> np.ndarray:
        """Log-volume of the transforms from θ to the latents' native spaces, ``(S,)``."""
        return np.asarray(self.program.compiled(_log_volumes)(self._flat(theta)))

    def log_likelihood(self, theta: ArrayLike, rows: slice | np.ndarray = slice(None)) -> dict[str, np.ndarray]:
        """Log-likelihood of each row: ``{observation: (S, rows, *elements)}`` at ``(S, N)`` θ, masked elements as 0.

        Local latents are summed and integrated out. Observations that depend on the same local latents have one entry,
        under their names joined by ", ", with one number for each independent part of the row.
        """
        chosen = np.arange(self.length)[rows]
        parts = [self._evaluated(self._flat(theta), c) for c in _chunks(chosen)]
        return {name: np.concatenate([p[name] for p in parts], 1) for name in parts[0]}

    def log_joint(self, theta: ArrayLike, rows: slice | np.ndarray = slice(None)) -> np.ndarray:
        """Log of prior times likelihood, as a density over the flat unconstrained θ: ``(S,)`` at ``(S, N)``.

        Args:
            theta: ``(S, N)`` the points.
            rows: The rows whose likelihood is included.
        """
        theta = self._flat(theta)
        if self.flat_prior is not None:
            out = np.asarray(self.flat_prior(theta), np.float64)
        else:
            out = self.log_volume(theta) + sum(_summed(a) for a in self.log_prior(theta).values())
        counted = np.arange(self.length)[rows]
        for chosen in _chunks(counted) if len(counted) else []:
            out = out + sum(_summed(a) for a in self._evaluated(theta, chosen).values())
        return np.asarray(out)

    # ------------------------------------------------------------------------------------------ forwards

    def predicted(self, theta: ArrayLike) -> dict[str, np.ndarray]:
        """The expected value of each row, averaged over ``(S, N)`` θ: ``{observation: (n, *event)}``.

        This is the mean of the likelihood, or the probability (density) of the observed value if there is no mean. The
        row's local latents are drawn from their prior, once for each θ.
        """
        parts = [self._evaluated(self._flat(theta), c, "mean") for c in _chunks(np.arange(self.length))]
        return {name: np.concatenate([p[name].mean(0) for p in parts]) for name in parts[0]}

    def replicate(self, rng_key: jax.Array, theta: ArrayLike, row: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Predictive draws of one row, one for each of ``(S, N)`` θ, beside its observed values.

        Returns:
            ``{observation: (draws (S, elements), observed (elements,))}``. Masked elements are left out, as well as
            observations that cannot be drawn: ``numpyro.factor``, and distributions without ``sample``.
        """
        drawn_rows = jax.device_get(
            self._compiled(_replicates)(rng_key, self._flat(theta), [a[row] for a in self.rows], self.shared)
        )
        out = {}
        for name, (drawn, value, counted) in drawn_rows.items():
            if counted.any():
                out[name] = drawn.reshape(len(drawn), -1)[:, counted.reshape(-1)], value[counted]
        return out

    def draw_prior(self, rng_key: jax.Array, count: int) -> np.ndarray:
        """Independent draws ``(count, N)`` of θ from the prior of the latents, without terms such as numpyro.factor."""
        return np.asarray(self._compiled(_prior_samples)(jax.random.split(rng_key, count), self.shared))

    def _compiled(self, function: Callable[..., Any], *options: Hashable) -> Callable[..., Any]:
        return self.program.compiled(function, self._call, *options)

    def _flat(self, theta: ArrayLike) -> jax.Array:
        return jnp.asarray(theta, self.program.dtype)

    def _evaluated(self, theta: jax.Array, chosen: np.ndarray, what: What = "log_prob") -> dict[str, np.ndarray]:
        """Values of these rows, padded to a power of two so that few lengths are compiled."""
        length = 1 << max(0, len(chosen) - 1).bit_length()
        padded = np.resize(chosen, length)  # repeats them; row 0 if there are none
        rows = [jnp.asarray(np.asarray(a[padded])) for a in self.rows]
        local = max([f.local.numbers for f in self.program.factors if f.local is not None], default=0)
        size = max(1, *[math.prod(s.shape) for s in self.program.row_shapes]) * (1 + local)  # for their curvature
        batch = max(1, min(len(theta), _NUMBERS // (length * size)))
        if what == "log_prob" and self.row_cost >= _INTEGRAL[1]:
            batch = None  # computed together, each integral would do as much as the hardest one, in memory, too
        values = self._compiled(_row_values, batch, what)(theta, rows, self.shared)
        return {name: np.asarray(a)[:, : len(chosen)] for name, a in values.items()}


def _chunks(chosen: np.ndarray) -> list[np.ndarray]:
    return [chosen[i : i + _CHUNK] for i in range(0, max(1, len(chosen)), _CHUNK)]


def _summed(logs: np.ndarray) -> np.ndarray:
    """Sum over all axes but that of the draws, in float64 because there may be many rows."""
    return logs.reshape(len(logs), -1).sum(1, dtype=np.float64)


# ------------------------------------------------------------------------------------------ compiled


def _log_priors(program: Program, call: _Call, theta: jax.Array, shared: Arrays) -> dict[str, jax.Array]:
    local = {s.name for s in program.local}

    def one(theta: jax.Array) -> dict[str, jax.Array]:
        arguments = call.layout.rebuild(_empty_row(program), shared)
        seen = program.visit(arguments, program.substitution(theta), dict(call.replaced))
        latents = {n: drawn for n, drawn in seen.latents.items() if n not in local and not is_improper(drawn.fn)}
        return {n: one.fn.log_prob(one.value) for n, one in (latents | dict(seen.prior_terms)).items()}

    return jax.vmap(one)(theta)


def _log_volumes(program: Program, theta: jax.Array) -> jax.Array:
    def one(theta: jax.Array) -> jax.Array:
        total = jnp.zeros((), theta.dtype)
        for latent in program.latents:
            if latent.native is None:
                u = theta[latent.where].reshape(latent.unconstrained_shape)
                total = total + jnp.sum(latent.transform.log_abs_det_jacobian(u, latent.transform(u)))
        return total

    return jax.vmap(one)(theta)


def _prior_samples(program: Program, call: _Call, keys: jax.Array, shared: Arrays) -> jax.Array:
    def one(key: jax.Array) -> jax.Array:
        arguments = call.layout.rebuild(_empty_row(program), shared)
        values = draw_latents(program.model, arguments, dict(call.replaced), key)
        return unconstrain(program.latents, values, program.dtype)[0]

    return jax.vmap(one)(keys)


def _row_values(
    program: Program, call: _Call, batch: int | None, what: What, theta: jax.Array, rows: Arrays, shared: Arrays
) -> dict[str, jax.Array]:
    """``{observation: (S, rows, ...)}``: log-densities, or expected values; one by one if there is no ``batch``."""

    def all_rows(at: tuple[jax.Array, jax.Array]) -> dict[str, jax.Array]:
        def one(given: tuple[jax.Array, Arrays]) -> dict[str, jax.Array]:
            return _row_value(program, call, at[0], given[1], shared, given[0], what)

        each = jax.random.split(at[1], len(rows[0])), list(rows)
        return jax.vmap(one)(each) if batch else jax.lax.map(one, each)

    # One key for all calls, so that the draws of local latents do not depend on the chunks.
    keys = jax.random.split(jax.random.key(23), len(theta))
    return jax.lax.map(all_rows, (theta, keys), batch_size=batch)


def _row_value(
    program: Program, call: _Call, theta: jax.Array, row: Arrays, shared: Arrays, key: jax.Array, what: What
) -> dict[str, jax.Array]:
    out = {}
    integrate = program.local and what == "log_prob"
    integrated = _integrated(program, theta, row, shared) if integrate else {}
    joined = {n: name for name in integrated for n in name.split(", ")}
    for name, observed in _observations(program, call, theta, row, shared, key).items():
        each = elements(observed.fn, observed.value)
        group = joined.get(name)
        if group is not None and (group != name or integrated[group].size != each.log_prob.size):
            # local latents join several elements, or several observations, so that they have one log-density
            out[group] = jnp.squeeze(integrated[group])
            continue
        if group is not None:
            values = integrated[group].reshape(each.shape)
        else:
            values = each.masked_log_prob()
        if what == "mean":
            values = _expected(observed.fn, jnp.exp(values))
        out[name] = values[0] if values.ndim and values.shape[0] == 1 else values.reshape(-1)
    return out


def _replicates(
    program: Program, call: _Call, key: jax.Array, theta: jax.Array, row: Arrays, shared: Arrays
) -> dict[str, tuple[jax.Array, ...]]:
    """``{observation: (draws (S, ...), observed, counted)}`` of one row."""

    def one(key: jax.Array, theta: jax.Array) -> dict[str, tuple[jax.Array, ...]]:
        out = {}
        seen = _observations(program, call, theta, row, shared, jax.random.fold_in(key, 0x7FFF))
        for i, (name, observed) in enumerate(seen.items()):
            if is_factor(observed.fn):
                continue
            try:
                with quiet():
                    drawn = observed.fn.sample(jax.random.fold_in(key, i))
            except NotImplementedError:
                continue
            counted = elements(observed.fn, observed.value).counted()
            counted = counted.reshape(counted.shape + (1,) * (drawn.ndim - counted.ndim))
            value = jnp.broadcast_to(observed.value, drawn.shape)
            out[name] = (drawn, value, jnp.broadcast_to(counted, drawn.shape))
        return out

    out = jax.vmap(one)(jax.random.split(key, len(theta)), theta)
    return {name: (drawn, value[0], counted[0]) for name, (drawn, value, counted) in out.items()}


def _observations(
    program: Program, call: _Call, theta: jax.Array, row: Arrays, shared: Arrays, key: jax.Array
) -> dict[str, Sampled]:
    """The observations of one row at one θ, at a draw of its local latents from their prior."""
    arguments = call.layout.rebuild([jnp.asarray(a)[None] for a in row], shared)
    shared_values = program.substitution(theta)
    local_values = prior_draws_of(key, tuple(s.name for s in program.local))

    def values(name: str, fn: AnyDistribution) -> ArrayLike | None:
        value = shared_values(name, fn)
        return local_values(name, fn) if value is None else value

    return program.visit(arguments, values, dict(call.replaced)).observations


def _integrated(program: Program, theta: jax.Array, row: Arrays, shared: Arrays) -> dict[str, jax.Array]:
    """Log-likelihood of one row's factors that local latents enter, ``{observation: (E,)}``."""
    inputs = [*[jnp.asarray(a)[None] for a in row], *shared]
    if program.conjugate is not None:
        return program.conjugate.log_likelihood(theta, inputs)
    by_element: dict[str, dict[int, jax.Array]] = {}
    for group in program.factors:
        if group.local is None:
            continue
        _, field = group.matrices(theta, *inputs)
        marginal = group.local.rules(*inputs).marginal
        counted, _, _ = group.flags(*inputs)
        logs = jax.vmap(marginal)(jnp.arange(group.count), field) if group.count > 1 else marginal(0, field[0])[None]
        logs = jnp.where(counted, logs, 0.0)
        by_element.setdefault(group.name, {}).update(zip(group.elements, logs, strict=True))
    return {name: jnp.stack([each[e] for e in sorted(each)]) for name, each in by_element.items()}


def _empty_row(program: Program) -> list[jax.Array]:
    """Zeros in the place of a row's arrays, for functions that do not depend on them."""
    return [jnp.zeros((1, *s.shape), s.dtype) for s in program.row_shapes]


def _expected(fn: AnyDistribution, probability: jax.Array) -> jax.Array:
    """The mean of a likelihood; the probability of the observed value for categories, and where there is no mean."""
    if is_factor(fn) or isinstance(scalar_base(fn), dist.CategoricalProbs | dist.CategoricalLogits):
        return probability
    try:
        return jnp.asarray(fn.mean)
    except NotImplementedError:
        return probability
