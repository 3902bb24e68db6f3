"""The numeric model check: the rows' log-likelihoods add up to the batch's."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from adfpp.model.arguments import ModelError
from adfpp.model.program import Program
from adfpp.model.visit import scalar_base, visit

_DRAWS, _ROWS = 3, 4


class RowCheck:
    """Proves at several draws of θ that rows' log-likelihoods add up to the batch's, site by site.

    It needs two different rows of positive probability, and collects them from the calls it is shown.
    """

    def __init__(self, program: Program) -> None:
        """Nothing is computed before there are two rows."""
        self.program = program
        self.kept: list[np.ndarray] | None = None
        self.tries = 0

    def done(self, rows: Sequence[Any], shared: Sequence[Any]) -> bool:
        """Looks at a call's first rows; says whether the check is through.

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
            # what was compared are the first rows; others may have been kept beside them
            head = [np.concatenate([a[:_ROWS][fine[: len(a)]], a[_ROWS:]]) for a in head]
        self.kept = [a[-1:] for a in head] if len(head[0]) else self.kept
        return self.tries >= 100

    @cached_property
    def _logs(self) -> Callable[..., Any]:
        program = self.program
        names = list(dict.fromkeys(g.name for g in program.factors))

        def log_densities(flat: jax.Array, some: Sequence[Any], rest: Sequence[Any]) -> tuple[jax.Array, jax.Array]:
            seen = visit(program.model, program.layout.rebuild(some, rest), program.substitution(flat))
            logs = jnp.stack([jnp.sum(seen.observed[n]["fn"].log_prob(seen.observed[n]["value"])) for n in names])
            prior = sum(jnp.sum(_log_prior(s)) for s in seen.latents.values())
            return logs, jnp.asarray(prior)

        def both_ways(flats: jax.Array, some: Sequence[Any], rest: Sequence[Any]) -> tuple[jax.Array, ...]:
            def per_draw(flat: jax.Array) -> tuple[jax.Array, ...]:
                one, prior_one = jax.vmap(lambda row: log_densities(flat, [a[None] for a in row], rest))(some)
                batch, prior_batch = log_densities(flat, some, rest)
                return one, batch, prior_one, jnp.broadcast_to(prior_batch, prior_one.shape)

            return jax.vmap(per_draw)(flats)

        return jax.jit(both_ways)

    def _compare(self, rows: Sequence[np.ndarray], shared: Sequence[Any]) -> np.ndarray | None:
        """None when rows add up; which of them are possible at all when some are not."""
        program = self.program
        theta = jax.random.uniform(jax.random.key(3), (_DRAWS, program.size), program.dtype, -1.0, 1.0)
        one_by_one, batch, prior_one, prior_batch = jax.device_get(self._logs(theta, list(rows), list(shared)))
        possible = np.isfinite(one_by_one).all((0, 2))
        if not possible.all():
            return possible
        tolerance = 1e-8 if program.dtype == jnp.float64 else 1e-3
        for i, name in enumerate(dict.fromkeys(g.name for g in program.factors)):
            apart = np.abs(one_by_one[:, :, i].sum(1) - batch[:, i])
            if not (apart <= tolerance * (1.0 + np.abs(one_by_one[:, :, i]).sum(1))).all():
                raise ModelError(
                    f"The rows of site {name!r} do not add up: together their log-density is {batch[0, i]:.6g}, one by "
                    f"one {one_by_one[0, :, i].sum():.6g}. Something in the model uses several rows at once (x - "
                    "x.mean(), a cumulative sum) or is not counted once a row (a numpyro.factor that belongs to the "
                    "prior, a plate nested the wrong way). Standardise before the model, make factors one number a "
                    "row, and name the arguments that carry rows with rows=(...) if one was mistaken."
                )
        if not np.allclose(prior_one, prior_batch, rtol=tolerance, atol=tolerance, equal_nan=True):
            raise ModelError(
                "The prior of the latent sites changes with the number of rows or with the rows themselves. A prior "
                "must not look at the data: pass its parameters as arguments of their own."
            )
        return None


def _log_prior(site: dict[str, Any]) -> Any:
    """Log prior density of a latent site; 0 for an improper one, which has none."""
    if isinstance(scalar_base(site["fn"]), dist.ImproperUniform):
        return jnp.zeros(())
    return site["fn"].log_prob(site["value"])
