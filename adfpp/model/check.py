"""The numeric check that the log-likelihoods of single rows add up to that of all rows together."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import biject_to

from adfpp.engine.factor import IntegralFactor
from adfpp.engine.trace import differ
from adfpp.model.arguments import ModelError
from adfpp.model.elements import AnyDistribution, is_improper
from adfpp.model.latents import theta_in_support
from adfpp.model.priors import PriorError, Projection, prior_draws
from adfpp.model.program import Program
from adfpp.model.refusals import one_row_advice
from adfpp.model.visit import READING, Sampled

_EACH = 2  # values of θ near 0, and as many from the prior: a coupling of rows may vanish at some of them
_CHUNK = 4096  # rows whose log-densities are computed one by one at once
_MOST_ROWS = 1 << 17  # rows of one call that are compared; more may not fit into memory
_MOST_TRIES = 100  # calls after which a stream of rows that cannot be compared is no longer looked at
_LARGEST_SHOWN = 6  # numbers of θ in a message


class RowCheck:
    """Checks at several θ that the log-densities of all rows add up to that of the batch, observation by observation.

    Local latents are drawn at random, so that what is checked is what is integrated. The check needs two different
    rows of positive probability, and collects them from the calls that are passed to ``done``.
    """

    def __init__(self, program: Program) -> None:
        """Nothing is computed before there are two rows."""
        self.program = program
        self.kept: list[np.ndarray] | None = None
        self.tries = 0

    def done(
        self,
        rows: Sequence[np.ndarray | jax.Array],
        shared: Sequence[ArrayLike],
        projection: Callable[[], Projection],
    ) -> bool:
        """Compares a call's rows; returns whether the check is complete.

        Args:
            rows: The row arrays.
            shared: The shared arrays.
            projection: Gives the projected prior.

        Raises:
            ModelError: When rows do not add up, or the prior changes with them.
        """
        if self.program.layout.whole:
            return True
        self.tries += 1
        given = _finite(rows, self.kept)
        length = len(given[0])
        if length >= 2 and any((a != a[:1]).any() for a in given):
            if self.compare(self._thetas(shared, projection), given, shared):
                return True
        self.kept = [a[-1:] for a in given] if length else self.kept
        return self.tries >= _MOST_TRIES

    def at(self, theta: ArrayLike, rows: Sequence[np.ndarray | jax.Array], shared: Sequence[ArrayLike]) -> None:
        """Compares a call's rows once more, at the belief that they have led to.

        Args:
            theta: ``(N,)`` its mean.
            rows: The row arrays.
            shared: The shared arrays.

        Raises:
            ModelError: When rows do not add up there.
        """
        given = _finite(rows)
        if len(given[0]) >= 2 and np.isfinite(np.asarray(theta)).all():
            self.compare(np.asarray(theta)[None], given, shared)

    def _thetas(self, shared: Sequence[ArrayLike], projection: Callable[[], Projection]) -> np.ndarray:
        """Values of θ: random ones near 0 and draws from the prior.

        A prior of independent Gaussian blocks, which the learner needs anyway, is drawn from without a program of its
        own. If the prior was matched by moments, the draws have these moments.
        """
        program, rng = self.program, np.random.default_rng(3)
        near = [theta_in_support(program.latents, rng, program.size) for _ in range(_EACH)]
        try:
            drawn = projection().draws(rng, _EACH, program.size)
            if drawn is not None:
                return np.concatenate([near, drawn])
        except (ModelError, PriorError):  # the user may give another prior, or the learner will refuse this one
            pass
        try:
            with READING:
                drawn = prior_draws(program.prior_sampler(shared), _EACH, seed=11)
        except NotImplementedError:  # an improper prior, or a distribution of the user's that draws nothing
            return np.array(near)
        return np.concatenate([near, drawn[np.isfinite(drawn).all(1)]])

    def compare(self, thetas: ArrayLike, rows: Sequence[np.ndarray | jax.Array], shared: Sequence[ArrayLike]) -> bool:
        """Compares rows at these θ ``(draws, N)``; returns whether two of them could be compared.

        Raises:
            ModelError: When rows do not add up, or the prior changes with them.
        """
        program, length = self.program, len(rows[0])
        theta = np.asarray(thetas, program.dtype)
        local = self._local_values(length)
        both = program.compiled(_both_ways, effort="least")
        compared = False
        for i in range(len(theta)):
            one, batch = jax.device_get(both(theta[i], local, list(rows), list(shared)))
            compared |= self._compare(theta[i], one, batch)
            self._compare_reduced(theta[i], rows, shared)
        return compared

    def _compare_reduced(
        self, theta: np.ndarray, rows: Sequence[np.ndarray | jax.Array], shared: Sequence[ArrayLike]
    ) -> None:
        """Compares log-densities with whole and reduced fields: those that are constant in some directions.

        The directions were found at random values when the model was read, and a model may have a branch elsewhere.
        """
        program = self.program
        of_rows, of_priors = _reduced(program)
        if not of_rows and not of_priors:
            return
        found = program.compiled(_with_reduced, bool(of_priors), effort="least")(theta, list(rows), list(shared))
        names = [f"observation {f.name!r}" for f in of_rows] + [f"the prior of {f.name!r}" for f in of_priors]
        for name, values in zip(names, found, strict=True):
            whole, reduced, _ = values
            apart = differ(values, program.dtype)
            if apart.any():
                worst = np.unravel_index(int(np.argmax(apart)), apart.shape)
                raise ModelError(
                    f"The log-density of {name} seemed to be constant in some directions of the latents when the model "
                    f"was read, and its integrals leave these out. But {self._words(theta)} it is "
                    f"{float(whole[worst]):.6g} with and {float(reduced[worst]):.6g} without them: the model has a "
                    "branch that depends on latents (jnp.where, jnp.clip, a limit of a support). Integrate over the "
                    "whole field with moments=adfpp.Moments(reduced=False)."
                )

    def _local_values(self, length: int) -> dict[str, np.ndarray]:
        """Values of local latents, ``(rows, ...)``: unconstrained numbers, or values of a support."""
        rng, out = np.random.default_rng(5), {}
        for s in self.program.local:
            shape = (length, *s.unconstrained_shape[: s.axis], *s.unconstrained_shape[s.axis + 1 :])
            u = rng.uniform(-1.0, 1.0, shape)
            out[s.name] = u.astype(self.program.dtype) if s.support is None else rng.choice(s.support, shape)
        return out

    def _compare(self, theta: np.ndarray, one: "_Logs", batch: "_Logs") -> bool:
        tolerance = 1e-8 if self.program.dtype == jnp.float64 else 1e-3
        compared = 0
        for name, alone in one.observations.items():
            apart = _Apart.of(alone, batch.observations[name], tolerance)
            compared = max(compared, apart.compared)
            if apart.found:
                raise ModelError(
                    f"The rows of observation {name!r} do not add up: {apart}, {self._words(theta)}. Something in the "
                    "model uses several rows at once (x - x.mean(), a cumulative sum, the value of the row before) or "
                    "is not counted once for each row (a numpyro.factor that belongs to the prior, a plate nested the "
                    "wrong way). Standardise the data before the model is called, make each factor one number for each "
                    "row, pass earlier values as columns of their own (y_before=...), and name the arguments that "
                    "carry rows with rows=(...) if they were not found correctly."
                    f"{'' if self.program.local else one_row_advice(self.program.size)}"
                )
        for name, alone in one.local.items():
            apart = _Apart.of(alone, batch.local[name], tolerance)
            if apart.found:
                raise ModelError(
                    f"The prior of latent {name!r}, which is drawn for every row, ties rows together: {apart}. Give a "
                    "row's latents a prior that depends on no other row; for values that drift from row to row use "
                    "dynamics=adfpp.RandomWalk(...)."
                )
        prior = np.broadcast_to(batch.prior, one.prior.shape)
        if not np.allclose(one.prior, prior, rtol=tolerance, atol=tolerance, equal_nan=True):
            raise ModelError(
                "The prior of the latents changes with the number of rows or with the rows themselves. A prior must "
                "not depend on the data: pass its parameters as arguments of their own."
            )
        return compared >= 2

    def _words(self, theta: np.ndarray) -> str:
        """The latents' values in words."""
        values = {n: np.ravel(np.asarray(a, float)) for n, a in self.program.constrain(jnp.asarray(theta)).items()}
        words = [
            f"{name} = {a[0]:.4g}" if len(a) == 1 else f"{name} = [{a[0]:.4g}, …]"
            for name, a in values.items()
            if len(a)
        ]
        return f"at {', '.join(words[:_LARGEST_SHOWN])}{', …' * (len(words) > _LARGEST_SHOWN)}"


def _finite(rows: Sequence[np.ndarray | jax.Array], before: Sequence[np.ndarray] | None = None) -> list[np.ndarray]:
    """The first rows of a call, after some earlier ones, without those that have NaN or infinite values."""
    given = [np.asarray(a[:_MOST_ROWS]) for a in rows]
    if before is not None:
        given = [np.concatenate([b, g]) for b, g in zip(before, given, strict=True)]
    good = np.ones(len(given[0]), bool)
    for a in given:
        if a.dtype.kind in "fc":
            good &= np.isfinite(a.reshape(len(a), -1)).all(1)
    return given if good.all() else [a[good] for a in given]


class _Apart(NamedTuple):
    """How far the log-densities of rows one by one are from those of the rows together.

    Attributes:
        found: Whether they differ by more than rounding.
        compared: The number of rows that could be compared: an impossible row has no finite log-density.
        row: The row that differs most; None if only sums are known.
        alone: The log-density of this row by itself, or the sum over the rows.
        together: The same with all rows in the batch.
        length: The number of rows.
    """

    found: bool
    compared: int
    row: int | None
    alone: float
    together: float
    length: int

    @classmethod
    def of(cls, alone: ArrayLike, together: ArrayLike, tolerance: float) -> "_Apart":
        """Compares ``(rows, *shape)`` of single rows with the batch's log-density.

        The batch's array has the shape of a single row's, but for one axis, which is that of the rows. Rows are then
        compared one by one. If it has none, because the model sums over its rows, the sums are compared.
        """
        alone, together = np.asarray(alone, np.float64), np.asarray(together, np.float64)
        length, shape = len(alone), alone.shape[1:]
        axes = [
            a for a, n in enumerate(together.shape) if n == length and len(shape) == together.ndim and shape[a] == 1
        ]
        axes = [a for a in axes if together.shape[:a] + (1,) + together.shape[a + 1 :] == shape]
        if axes:
            each = alone.reshape(length, -1).sum(1)
            batch = np.moveaxis(together, axes[0], 0).reshape(length, -1).sum(1)
            known = np.isfinite(each) & np.isfinite(batch)
            known |= np.isfinite(each) != np.isfinite(batch)
            scale = np.where(np.isfinite(each), 1.0 + np.abs(alone.reshape(length, -1)).sum(1), 1.0)
            with np.errstate(invalid="ignore"):
                off = np.where(known, np.abs(each - batch) / scale, 0.0)
            off = np.where(np.isnan(off), np.inf, off)
            worst = int(np.argmax(off))
            return cls(bool(off[worst] > tolerance), int(known.sum()), worst, each[worst], batch[worst], length)
        total, batch_total = float(alone.sum()), float(together.sum())
        known = np.isfinite(total)
        found = known and not abs(total - batch_total) <= tolerance * (1.0 + float(np.abs(alone).sum()))
        return cls(bool(found), length if known else 0, None, total, batch_total, length)

    def __str__(self) -> str:
        if self.row is None:
            return f"together their log-density is {self.together:.6g}, one by one {self.alone:.6g}"
        return (
            f"the log-density of row {self.row} is {self.alone:.6g} by itself and {self.together:.6g} among all "
            f"{self.length} rows"
        )


class _Logs(NamedTuple):
    """Log-densities of some rows: of observations and local latents by element, and of the other latents in one sum."""

    observations: dict[str, jax.Array]
    local: dict[str, jax.Array]
    prior: jax.Array


def _both_ways(
    program: Program,
    theta: jax.Array,
    local: Mapping[str, jax.Array],
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
) -> tuple[_Logs, _Logs]:
    """Log-densities of each row alone, with a leading axis for the rows, and of all rows together."""

    def of_row(given: tuple[Mapping[str, jax.Array], Sequence[jax.Array]]) -> _Logs:
        mine, row = given
        return _logs(program, theta, {n: a[None] for n, a in mine.items()}, [a[None] for a in row], shared)

    each: Any = (dict(local), list(rows))
    many = len(rows[0]) > _CHUNK
    alone = jax.lax.map(of_row, each, batch_size=_CHUNK) if many else jax.vmap(of_row)(each)
    return alone, _logs(program, theta, local, rows, shared)


def _reduced(program: Program) -> tuple[list[IntegralFactor], list[IntegralFactor]]:
    """The factors with a reduced field: those of a row, and those of priors."""
    # priors are read as factors only if a learner needs them; this must not be the reason to read them
    groups = [g for some in vars(program).get("prior_factors", {}).values() for g in some]
    kinds = program.factors, [g.factors for g in groups]
    of_rows, of_priors = ([f for f in some if isinstance(f, IntegralFactor) and f.reduced] for some in kinds)
    return of_rows, of_priors


def _with_reduced(
    program: Program, priors: bool, theta: jax.Array, rows: Sequence[jax.Array], shared: Sequence[jax.Array]
) -> list[jax.Array]:
    """Log-densities of all factors with a reduced field, as ``IntegralFactor.both_ways`` gives them."""
    of_rows, of_priors = _reduced(program)

    def of_row(row: Sequence[jax.Array]) -> list[jax.Array]:
        return [f.both_ways(theta, *(a[None] for a in row), *shared) for f in of_rows]

    values = jax.lax.map(of_row, list(rows), batch_size=_CHUNK) if of_rows else []
    if not priors:
        of_priors = []
    inputs = program.prior_inputs(shared) if of_priors else []
    return [*(jnp.moveaxis(v, 1, 0) for v in values), *(f.both_ways(theta, *inputs) for f in of_priors)]


def _logs(
    program: Program,
    theta: jax.Array,
    local: Mapping[str, jax.Array],
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
) -> _Logs:
    """Log-densities of a batch at θ and at values of its local latents, which have rows along the leading axis."""
    shared_values = program.substitution(theta)
    by_name = {s.name: s for s in program.local}

    def values(name: str, fn: AnyDistribution) -> ArrayLike | None:
        latent = by_name.get(name)
        if latent is None:
            return shared_values(name, fn)
        given = jnp.moveaxis(local[name], 0, latent.axis)
        return given if latent.support is not None else biject_to(fn.support)(given)

    seen = program.visit(program.layout.rebuild(rows, shared), values)
    observations = {n: o.fn.log_prob(o.value) for n, o in seen.observations.items()}
    priors = {n: _log_prior(latent) for n, latent in seen.latents.items()}
    prior = sum((jnp.sum(a) for n, a in priors.items() if n not in by_name), jnp.zeros(()))
    prior = sum((jnp.sum(term.fn.log_prob(term.value)) for term in seen.prior_terms.values()), prior)
    return _Logs(observations, {n: a for n, a in priors.items() if n in by_name}, prior)


def _log_prior(latent: Sampled) -> jax.Array:
    """Log prior density, or 0 for an improper prior, which has none."""
    return jnp.zeros(()) if is_improper(latent.fn) else latent.fn.log_prob(latent.value)
