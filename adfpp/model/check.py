"""The numeric model check: the rows' log-likelihoods add up to the batch's."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import biject_to

from adfpp.model.arguments import ModelError
from adfpp.model.elements import AnyDistribution, is_improper
from adfpp.model.latents import theta_in_support
from adfpp.model.program import Program
from adfpp.model.visit import Sampled, visit

_DRAWS, _ROWS = 3, 4  # values of θ, and rows that are compared at once
_MOST_TRIES = 100  # calls after which a stream of rows that cannot be compared is no longer looked at


class RowCheck:
    """Checks at several θ that the rows' log-likelihoods add up to the batch's, observation by observation.

    Local latents are drawn at random, so that what is checked is what is integrated. The check needs two different
    rows of positive probability, and collects them from the calls that are passed to ``done``.
    """

    def __init__(self, program: Program) -> None:
        """Nothing is computed before there are two rows."""
        self.program = program
        self.kept: list[np.ndarray] | None = None
        self.tries = 0

    def done(self, rows: Sequence[np.ndarray | jax.Array], shared: Sequence[ArrayLike]) -> bool:
        """Compares a call's first rows; whether the check is complete.

        Raises:
            ModelError: When rows do not add up, or the prior changes with them.
        """
        self.tries += 1
        head = [np.asarray(a[:_ROWS]) for a in rows]
        if self.kept is not None:
            head = [np.concatenate([k, h]) for k, h in zip(self.kept, head, strict=True)]
        good = np.ones(len(head[0]), bool)
        for a in head:
            if a.dtype.kind in "fc":
                good &= np.isfinite(a.reshape(len(a), -1)).all(1)
        head = [a[good] for a in head]
        while len(head[0]) >= 2 and any((a != a[:1]).any() for a in head):
            fine = self._compare([np.resize(a, (_ROWS, *a.shape[1:])) for a in head], shared)
            if fine is None:
                return True
            # Only the first rows were compared; others may have been kept beside them.
            head = [np.concatenate([a[:_ROWS][fine[: len(a)]], a[_ROWS:]]) for a in head]
        self.kept = [a[-1:] for a in head] if len(head[0]) else self.kept
        return self.tries >= _MOST_TRIES

    def _local_values(self) -> dict[str, np.ndarray]:
        """Values of local latents, ``(draws, rows, ...)``: unconstrained numbers, or values of a support."""
        rng, out = np.random.default_rng(5), {}
        for s in self.program.local:
            shape = (_DRAWS, _ROWS, *s.unconstrained_shape[: s.axis], *s.unconstrained_shape[s.axis + 1 :])
            u = rng.uniform(-1.0, 1.0, shape)
            out[s.name] = u.astype(self.program.dtype) if s.support is None else rng.choice(s.support, shape)
        return out

    def _compare(self, rows: Sequence[np.ndarray], shared: Sequence[ArrayLike]) -> np.ndarray | None:
        """None when rows add up; which of them are possible at all when some are not."""
        program = self.program
        rng = np.random.default_rng(3)
        theta = [theta_in_support(program.latents, rng, program.size) for _ in range(_DRAWS)]
        one, batch = jax.device_get(
            program.compiled(_both_ways)(
                jnp.asarray(theta, program.dtype), self._local_values(), list(rows), list(shared)
            )
        )
        possible = np.ones(_ROWS, bool)
        for a in one.observations.values():
            possible &= np.isfinite(a).all(0)
        if not possible.all():
            return possible
        tolerance = 1e-8 if program.dtype == jnp.float64 else 1e-3
        for name, alone in one.observations.items():
            together = batch.observations[name]
            if not _adds_up(alone, together, tolerance):
                raise ModelError(
                    f"The rows of observation {name!r} do not add up: together their log-density is "
                    f"{together[0]:.6g}, one by one {alone[0].sum():.6g}. Something in the model uses several rows at "
                    "once (x - x.mean(), a cumulative sum) or is not counted once a row (a numpyro.factor that belongs "
                    "to the prior, a plate nested the wrong way). Standardise before the model, make factors one "
                    "number a row, and name the arguments that carry rows with rows=(...) if one was mistaken."
                )
        for name, alone in one.local.items():
            together = batch.local[name]
            if not _adds_up(alone, together, tolerance):
                raise ModelError(
                    f"The prior of latent {name!r}, which is drawn for every row, ties rows together: their "
                    f"log-density is {together[0]:.6g}, one by one {alone[0].sum():.6g}. Give a row's latents a prior "
                    "that looks at no other row; for values that drift from row to row use "
                    "dynamics=adfpp.RandomWalk(...)."
                )
        prior = np.broadcast_to(batch.prior[:, None], one.prior.shape)
        if not np.allclose(one.prior, prior, rtol=tolerance, atol=tolerance, equal_nan=True):
            raise ModelError(
                "The prior of the latents changes with the number of rows or with the rows themselves. A prior must "
                "not look at the data: pass its parameters as arguments of their own."
            )
        return None


def _adds_up(one: np.ndarray, batch: np.ndarray, tolerance: float) -> bool:
    """Whether ``(draws, rows)`` log-densities sum to those of the batch ``(draws,)``."""
    apart = np.abs(one.sum(1) - batch)
    return bool((apart <= tolerance * (1.0 + np.abs(one).sum(1))).all())


class _Logs(NamedTuple):
    """Log-densities of some rows: of observations, of local latents, and of the other latents together."""

    observations: dict[str, jax.Array]
    local: dict[str, jax.Array]
    prior: jax.Array


def _both_ways(
    program: Program,
    thetas: jax.Array,
    local: Mapping[str, jax.Array],
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
) -> tuple[_Logs, _Logs]:
    """Log-densities of each row alone ``(draws, rows)``, and of all rows together ``(draws,)``."""

    def of(theta: jax.Array, own: Mapping[str, jax.Array]) -> tuple[_Logs, _Logs]:
        def of_row(mine: Mapping[str, jax.Array], row: Sequence[jax.Array]) -> _Logs:
            return _logs(program, theta, {n: a[None] for n, a in mine.items()}, [a[None] for a in row], shared)

        return jax.vmap(of_row)(own, list(rows)), _logs(program, theta, own, rows, shared)

    return jax.vmap(of)(thetas, local)


def _logs(
    program: Program,
    theta: jax.Array,
    local: Mapping[str, jax.Array],
    rows: Sequence[jax.Array],
    shared: Sequence[jax.Array],
) -> _Logs:
    """Log-densities of a batch at θ and these values of its local latents, rows along the leading axis."""
    shared_values = program.substitution(theta)
    by_name = {s.name: s for s in program.local}

    def values(name: str, fn: AnyDistribution) -> ArrayLike | None:
        latent = by_name.get(name)
        if latent is None:
            return shared_values(name, fn)
        given = jnp.moveaxis(local[name], 0, latent.axis)
        return given if latent.support is not None else biject_to(fn.support)(given)

    seen = visit(program.model, program.layout.rebuild(rows, shared), values)
    observations = {n: jnp.sum(o.fn.log_prob(o.value)) for n, o in seen.observations.items()}
    priors = {n: jnp.sum(_log_prior(latent)) for n, latent in seen.latents.items()}
    prior = sum((a for n, a in priors.items() if n not in by_name), jnp.zeros(()))
    return _Logs(observations, {n: a for n, a in priors.items() if n in by_name}, prior)


def _log_prior(latent: Sampled) -> jax.Array:
    """Log prior density; 0 for an improper one, which has none."""
    return jnp.zeros(()) if is_improper(latent.fn) else latent.fn.log_prob(latent.value)
