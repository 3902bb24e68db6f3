"""The posterior from a run of any method in one form: draws of θ, moments, densities, and diagnostics of the draws.

A ``Fit`` knows its posterior in one of three ways: as a belief (``posterior``), as a table of all values of θ
(``table``), or by draws alone. In the first two cases its moments and probabilities have no sampling error.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from adfpp.engine.status import Status
from adfpp.learn.posterior import Posterior, scalar_names
from adfpp.model import Program, same_space
from adfpp.model.discrete import discrete_latents


class Kind(Enum):
    """The method that made a fit."""

    ADF = "adf"
    EP = "ep"
    SVI = "svi"
    MCMC = "mcmc"
    ENUMERATION = "enumeration"
    DRAWS = "draws"
    OTHER = "other"


class Table(NamedTuple):
    """The enumerated posterior of discrete latents.

    Attributes:
        theta: ``(M, N)`` all combinations of their values.
        log_weights: ``(M,)`` the log posterior probability of each combination.
    """

    theta: np.ndarray
    log_weights: np.ndarray


@runtime_checkable
class Comparable(Protocol):
    """A learner of another kind than ``ADF`` and ``EP`` that can be compared with them on a model."""

    def compared(
        self,
        name: str,
        program: Program,
        rng_key: jax.Array,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        num_samples: int,
    ) -> "Fit":
        """Runs the learner on the model's rows and returns the fit."""
        ...


@dataclass(frozen=True, eq=False)
class Fit:
    """One method's posterior of one model and data.

    Attributes:
        name: The name of the run.
        method: The method, in words.
        program: The model as it was read.
        theta: ``(chain, draw, N)`` draws, in the program's coordinates: unconstrained, or native where a latent's
            belief is kept in its native space.
        posterior: The posterior, if the approximation is a belief: Gaussian in unconstrained space, or a product over
            latents.
        log_q: ``(chain, draw)`` log density of the draws under the approximation, infinite for a point estimate; None
            for MCMC and given draws.
        log_evidence: The method's own estimate of log p(data), if it has one.
        compile_seconds: Seconds to trace and compile.
        run_seconds: Seconds of the run itself; for MCMC of warm-up and sampling.
        sampling_seconds: Seconds of MCMC's sampling alone, else the same as ``run_seconds``.
        notes: Remarks on the run that its verdict repeats, such as divergences or refused rows.
        source: The result object of the run.
        table: The exact posterior, if it was enumerated: the draws are then independent draws from it.
        kind: The method that made the fit.
    """

    name: str
    method: str
    program: Program
    theta: np.ndarray
    posterior: Posterior | None = None
    log_q: np.ndarray | None = None
    log_evidence: float = np.nan
    compile_seconds: float = np.nan
    run_seconds: float = np.nan
    sampling_seconds: float = np.nan
    notes: tuple[str, ...] = ()
    source: Any = None
    table: Table | None = None
    kind: Kind = Kind.OTHER

    def beside(self, truth: "Fit") -> "Fit":
        """The fit scaled to a reference if its source has no meaningful scale of its own, else the unchanged fit."""
        scaled = getattr(self.source, "scaled_to", None)
        return self if scaled is None else scaled(self, truth)

    @property
    def is_sampler(self) -> bool:
        """Whether the draws are meant to be from the posterior itself."""
        return self.log_q is None

    @property
    def is_ep(self) -> bool:
        """Whether the method is EP, so that there is no learning curve, and EP is no remedy for errors."""
        return self.kind is Kind.EP

    @property
    def is_point(self) -> bool:
        """Whether the fit is a point estimate, without uncertainty."""
        return self.log_q is not None and bool((self.log_q == np.inf).all())

    @property
    def refused(self) -> np.ndarray:
        """Numbers of the rows that an online run refused; none for other methods."""
        return np.flatnonzero(self.statuses >= Status.NOT_FINITE)

    @property
    def statuses(self) -> np.ndarray:
        """``(n,)`` status codes of the rows of an online run; empty for other methods."""
        return np.asarray(getattr(getattr(self.source, "info", None), "status", ()), int)

    # ------------------------------------------------------------------------------------------ draws

    @cached_property
    def flat(self) -> np.ndarray:
        """``(S, N)``: the draws of all chains."""
        return self.theta.reshape(-1, self.theta.shape[-1])

    @cached_property
    def draws(self) -> dict[str, np.ndarray]:
        """``{latent: (chain, draw, *shape)}``: the draws as values of the latents."""
        return {name: np.asarray(a) for name, a in self.program.constrain(jnp.asarray(self.theta)).items()}

    @cached_property
    def scalars(self) -> np.ndarray:
        """``(chain, draw, P)``: the draws as scalar parameters."""
        return self._joined(self.draws, 2)

    def in_space_of(self, program: Program) -> np.ndarray:
        """``(S, N)``: the draws as coordinates of another program of the same model."""
        if same_coordinates(self.program, program):
            return self.flat
        values = {name: a.reshape(-1, *a.shape[2:]) for name, a in self.draws.items()}
        return np.asarray(program.unconstrain(values)[0])

    # ------------------------------------------------------------------------------------------ parameters

    @cached_property
    def names(self) -> list[str]:
        """Names of the scalar parameters, in the order of ``scalars``; those that cannot vary are left out."""
        names = [name for latent in self.program.latents for name in scalar_names(latent.name, latent.shape)]
        return [name for name, varies in zip(names, self._varying, strict=True) if varies]

    @cached_property
    def _varying(self) -> np.ndarray:
        """Which scalars depend on θ: for example, the zeros and the first element of a Cholesky factor do not."""
        latents = self.program.latents
        theta = np.random.default_rng(0).normal(size=(8, self.program.size))
        values = self.program.constrain(jnp.asarray(theta, self.program.dtype))
        flat = np.concatenate([np.asarray(values[s.name]).reshape(len(theta), -1) for s in latents], -1)
        native = np.concatenate([np.full(int(np.prod(s.shape)), s.native is not None) for s in latents])
        # transforms compute in the program's precision; differences of a few dozen roundings do not count
        rounding = 64 * float(jnp.finfo(self.program.dtype).eps)
        return native | (np.ptp(flat, 0) > rounding * np.abs(flat).max(0))

    def _joined(self, values: Mapping[str, ArrayLike], axes: int) -> np.ndarray:
        """``(*lead, P)``: values ``{latent: (*lead, *shape)}`` with so many leading axes, as scalar parameters."""
        arrays = [np.asarray(values[latent.name]) for latent in self.program.latents]
        return np.concatenate([a.reshape((*a.shape[:axes], -1)) for a in arrays], -1)[..., self._varying]

    @cached_property
    def levels(self) -> list[tuple[float, ...] | None]:
        """``(P,)`` the values of each scalar parameter if it is discrete, else None."""
        each = [
            latent.native.values if latent.discrete else None
            for latent in self.program.latents
            for _ in range(int(np.prod(latent.shape)))
        ]
        return [values for values, varies in zip(each, self._varying, strict=True) if varies]

    @cached_property
    def discrete(self) -> np.ndarray:
        """``(P,)`` which scalar parameters are discrete."""
        return np.array([values is not None for values in self.levels], bool)

    # ------------------------------------------------------------------------------------------ moments

    @cached_property
    def mean(self) -> np.ndarray:
        """``(P,)`` posterior means, without sampling error where they are known."""
        if self.posterior is not None:
            return self._joined(self.posterior.mean(), 0)
        if self.table is not None:
            return np.exp(self.table.log_weights) @ self._table_scalars
        return self.scalars.mean((0, 1))

    @cached_property
    def sd(self) -> np.ndarray:
        """``(P,)`` posterior sds, without sampling error where they are known."""
        if self.posterior is not None:
            return self._joined(self.posterior.sd(), 0)
        if self.table is not None:
            return np.sqrt(np.exp(self.table.log_weights) @ (self._table_scalars - self.mean) ** 2)
        return self._flat_scalars.std(0, ddof=1)

    def quantiles(self, q: np.ndarray) -> np.ndarray:
        """``(len(q), P)`` marginal quantiles."""
        if self.posterior is not None:
            return self._joined(self.posterior.quantile(q), 1)
        if self.table is not None:
            order = np.argsort(self._table_scalars, 0, kind="stable")
            below = np.cumsum(np.exp(self.table.log_weights)[order], 0)
            at = [np.searchsorted(c, np.asarray(q) * c[-1]) for c in below.T]
            values = np.take_along_axis(self._table_scalars, order, 0)
            return np.stack([v[np.minimum(i, len(v) - 1)] for v, i in zip(values.T, at, strict=True)], -1)
        return np.quantile(self._flat_scalars, q, axis=0)

    @cached_property
    def unconstrained(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean ``(N,)`` and covariance ``(N, N)`` in the program's coordinates."""
        if self.posterior is not None:
            return np.asarray(self.posterior.belief.mean, float), covariance_of(self.posterior)
        return self.flat.mean(0), np.atleast_2d(np.cov(self.flat.T))

    @property
    def _flat_scalars(self) -> np.ndarray:
        """``(S, P)``: the draws of all chains as scalar parameters."""
        return self.scalars.reshape(-1, len(self.names))

    @cached_property
    def _table_scalars(self) -> np.ndarray:
        """``(M, P)``: the combinations as scalar parameters."""
        assert self.table is not None
        return self._joined(self.program.constrain(jnp.asarray(self.table.theta)), 1)

    # ------------------------------------------------------------------------------------------ discrete parameters

    @cached_property
    def log_probabilities(self) -> dict[int, np.ndarray]:
        """The log-probabilities ``(K,)`` of the values of each discrete parameter, by the parameter's number."""
        places = np.flatnonzero(self.discrete).tolist()
        if self.posterior is not None:
            return dict(zip(places, discrete_marginals(self.posterior), strict=True))
        weights, flat = np.full(len(self.flat), 1.0 / len(self.flat)), self._flat_scalars
        if self.table is not None:
            weights, flat = np.exp(self.table.log_weights), self._table_scalars
        with np.errstate(divide="ignore"):
            return {i: np.log(np.minimum(weights @ (flat[:, [i]] == np.asarray(self.levels[i])), 1.0)) for i in places}

    @cached_property
    def probability_se(self) -> dict[int, np.ndarray]:
        """Monte-Carlo standard errors of the probabilities, by the parameter's number; 0 where they are exact.

        No error is smaller than one over the number of draws, which is that of a value that was drawn never or always.
        """
        out = {}
        for i, logs in self.log_probabilities.items():
            p = np.exp(logs)
            out[i] = np.zeros(len(p))
            if self.posterior is None and self.table is None:
                hits = (self.scalars[..., [i]] == np.asarray(self.levels[i])).astype(float)
                effective = _quietly(effective_sample_size, hits)
                count = len(self.flat)
                effective = np.where((hits == hits[:1, :1]).all((0, 1)), count, effective)
                with np.errstate(divide="ignore", invalid="ignore"):  # NaN if each chain stays at a different value
                    out[i] = np.maximum(np.sqrt(p * (1.0 - p) / effective), 1.0 / count)
        return out

    # ------------------------------------------------------------------------------------------ health of draws

    @cached_property
    def ess(self) -> np.ndarray:
        """``(P,)`` effective sample sizes of the means; infinite where they are exact."""
        if self.posterior is not None or self.table is not None:
            return np.full(len(self.names), np.inf)
        return np.where(self._constant, len(self.flat), _quietly(effective_sample_size, self.scalars))

    @cached_property
    def mcse(self) -> np.ndarray:
        """``(P,)`` Monte-Carlo standard errors of the means, in this fit's sds."""
        return 1.0 / np.sqrt(self.ess)

    @cached_property
    def sd_mcse(self) -> np.ndarray:
        """``(P,)`` Monte-Carlo standard errors of the sds, relative."""
        if self.posterior is not None or self.table is not None:
            return np.zeros(len(self.names))
        squares = (self.scalars - self.mean) ** 2
        effective = _quietly(effective_sample_size, squares)
        with np.errstate(divide="ignore", invalid="ignore"):  # draws that do not move
            return 0.5 * squares.reshape(-1, len(self.names)).std(0) / (self.sd**2 * np.sqrt(effective))

    @cached_property
    def r_hat(self) -> np.ndarray:
        """``(P,)`` split R-hat of the draws."""
        if self.table is not None:
            return np.ones(len(self.names))
        return np.where(self._constant, 1.0, _quietly(split_gelman_rubin, self.scalars))

    @cached_property
    def _constant(self) -> np.ndarray:
        """``(P,)`` which discrete parameters have one value in all chains, so that diagnostics are not defined."""
        return self.discrete & (self.scalars == self.scalars[:1, :1]).all((0, 1))


def gaussian_fit(name: str, method: str, post: Posterior, rng_key: jax.Array, num_samples: int, **rest: Any) -> Fit:
    """The fit of a posterior that is known as a belief: draws from it, and their densities.

    Args:
        name: The name of the run.
        method: The method, in words.
        post: The posterior.
        rng_key: Key for the draws.
        num_samples: Total number of draws.
        **rest: Other fields of the fit.
    """
    theta = post.draw(rng_key, num_samples)
    log_q = np.asarray(post.distribution.log_prob(theta))
    return Fit(name, method, post.program, np.asarray(theta)[None], post, log_q[None], **rest)


def same_coordinates(one: Program, other: Program) -> bool:
    """Whether a θ means the same in two programs."""
    return one is other or all(same_space(a, b) for a, b in zip(one.latents, other.latents, strict=True))


def covariance_of(post: Posterior) -> np.ndarray:
    """``(N, N)`` covariance of a belief in its program's coordinates."""
    size = post.program.size
    out = np.zeros((size, size))
    families = {int(s.where.start): s.native for s in post.latents if s.native is not None and s.size}
    for where, _, root, *natural in post.family.blocks(post.belief):
        if not natural:
            block = root @ root.T if root.ndim == 2 else np.diag(root**2)
            out[np.ix_(where, where)] = block
            continue
        family = families[int(where[0])]
        places = where.reshape(-1, family.dim)
        components = family.covariance(jnp.asarray(natural[0], post.program.dtype))
        out[places[:, :, None], places[:, None, :]] = np.asarray(components)
    return out


def discrete_marginals(post: Posterior) -> list[np.ndarray]:
    """Log-probabilities ``(K,)`` of the values of each discrete scalar, in the order of θ."""
    blocks = {int(where[0]): natural for where, _, _, *natural in post.family.blocks(post.belief) if len(where)}
    out: list[np.ndarray] = []
    for latent in discrete_latents(post.program):
        natural = jnp.asarray(blocks[latent.where.start][0], post.program.dtype)
        values = [jnp.full((len(natural), 1), value, natural.dtype) for value in latent.native.values]
        out += list(np.stack([np.asarray(latent.native.log_prob(natural, v), float) for v in values], -1))
    return out


def _quietly(diagnostic: Callable[[np.ndarray], ArrayLike], draws: np.ndarray) -> np.ndarray:
    """A diagnostic of ``(chain, draw, P)``; NaN without a warning where all draws are equal."""
    with np.errstate(all="ignore"):
        return np.atleast_1d(np.asarray(diagnostic(draws)))
