"""The numeric model check: the rows' log-likelihoods add up to the batch's."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import biject_to

from adfpp.model.arguments import ModelError
from adfpp.model.native import inside
from adfpp.model.program import Program
from adfpp.model.visit import scalar_base, visit

_DRAWS, _ROWS = 3, 4


class RowCheck:
    """Proves at several draws of θ that rows' log-likelihoods add up to the batch's, site by site.

    Latent values of the rows' own are drawn at random, so that what is checked is what is integrated. It needs two
    different rows of positive probability, and collects them from the calls it is shown.
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
        own = {s.name: s for s in program.local}

        def log_densities(
            flat: jax.Array, local: Mapping[str, jax.Array], some: Sequence[Any], rest: Sequence[Any]
        ) -> tuple[dict[str, jax.Array], dict[str, jax.Array], jax.Array]:
            """Of observed sites, of local latents, of the others' prior; at θ and the rows' own values."""
            shared = program.substitution(flat)

            def values(site: dict[str, Any]) -> Any:
                mine = own.get(site["name"]) if site["type"] == "sample" else None
                if mine is None:
                    return shared(site)
                given = jnp.moveaxis(local[mine.name], 0, mine.axis)
                return given if mine.support is not None else biject_to(site["fn"].support)(given)

            seen = visit(program.model, program.layout.rebuild(some, rest), values)
            logs = {n: jnp.sum(s["fn"].log_prob(s["value"])) for n, s in seen.observed.items()}
            priors = {n: jnp.sum(_log_prior(s)) for n, s in seen.latents.items()}
            prior = sum(a for n, a in priors.items() if n not in own)
            return logs, {n: a for n, a in priors.items() if n in own}, jnp.asarray(prior)

        def both_ways(
            flats: jax.Array, locals_: Mapping[str, jax.Array], some: Sequence[Any], rest: Sequence[Any]
        ) -> tuple[Any, ...]:
            def one_row(flat: jax.Array, local: Mapping[str, jax.Array], row: Sequence[Any]) -> tuple[Any, ...]:
                local = {n: a[None] for n, a in local.items()}
                return log_densities(flat, local, [a[None] for a in row], rest)

            def per_draw(flat: jax.Array, local: Mapping[str, jax.Array]) -> tuple[Any, ...]:
                one, local_one, prior_one = jax.vmap(partial(one_row, flat))(local, list(some))
                batch, local_batch, prior_batch = log_densities(flat, local, some, rest)
                return one, batch, local_one, local_batch, prior_one, jnp.broadcast_to(prior_batch, prior_one.shape)

            return jax.vmap(per_draw)(flats, locals_)

        return jax.jit(both_ways)

    def _local_values(self) -> dict[str, np.ndarray]:
        """Values of the rows' own latents, ``(draws, rows, ...)``: unconstrained numbers, or values of a support."""
        rng, out = np.random.default_rng(5), {}
        for s in self.program.local:
            shape = (_DRAWS, _ROWS, *s.unconstrained_shape[: s.axis], *s.unconstrained_shape[s.axis + 1 :])
            u = rng.uniform(-1.0, 1.0, shape)
            out[s.name] = u.astype(self.program.dtype) if s.support is None else rng.choice(s.support, shape)
        return out

    def _compare(self, rows: Sequence[np.ndarray], shared: Sequence[Any]) -> np.ndarray | None:
        """None when rows add up; which of them are possible at all when some are not."""
        program = self.program
        rng = np.random.default_rng(3)
        theta = jnp.asarray([inside(program.latents, rng, program.size) for _ in range(_DRAWS)], program.dtype)
        found = jax.device_get(self._logs(theta, self._local_values(), list(rows), list(shared)))
        one_by_one, batch, local_one, local_batch, prior_one, prior_batch = found
        possible = np.ones(_ROWS, bool)
        for a in one_by_one.values():
            possible &= np.isfinite(a).all(0)
        if not possible.all():
            return possible
        tolerance = 1e-8 if program.dtype == jnp.float64 else 1e-3
        for name, one in one_by_one.items():
            if not _adds_up(one, batch[name], tolerance):
                raise ModelError(
                    f"The rows of site {name!r} do not add up: together their log-density is {batch[name][0]:.6g}, one "
                    f"by one {one[0].sum():.6g}. Something in the model uses several rows at once (x - x.mean(), a "
                    "cumulative sum) or is not counted once a row (a numpyro.factor that belongs to the prior, a plate "
                    "nested the wrong way). Standardise before the model, make factors one number a row, and name the "
                    "arguments that carry rows with rows=(...) if one was mistaken."
                )
        for name, one in local_one.items():
            if not _adds_up(one, local_batch[name], tolerance):
                raise ModelError(
                    f"The prior of latent site {name!r}, which every row draws for itself, ties rows together: their "
                    f"log-density is {local_batch[name][0]:.6g}, one by one {one[0].sum():.6g}. Give a row's latent "
                    "values a prior that looks at no other row; for values that drift from row to row use "
                    "dynamics=adfpp.RandomWalk(...)."
                )
        if not np.allclose(prior_one, prior_batch, rtol=tolerance, atol=tolerance, equal_nan=True):
            raise ModelError(
                "The prior of the latent sites changes with the number of rows or with the rows themselves. A prior "
                "must not look at the data: pass its parameters as arguments of their own."
            )
        return None


def _adds_up(one: np.ndarray, batch: np.ndarray, tolerance: float) -> bool:
    """Whether ``(draws, rows)`` log-densities sum to those of the batch ``(draws,)``."""
    apart = np.abs(one.sum(1) - batch)
    return bool((apart <= tolerance * (1.0 + np.abs(one).sum(1))).all())


def _log_prior(site: dict[str, Any]) -> Any:
    """Log prior density of a latent site; 0 for an improper one, which has none."""
    if isinstance(scalar_base(site["fn"]), dist.ImproperUniform):
        return jnp.zeros(())
    return site["fn"].log_prob(site["value"])
