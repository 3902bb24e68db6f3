"""The groups of an export to ArviZ: draws, predictives, densities, data, and the belief along the run."""

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from adfpp.engine.dynamics import Static
from adfpp.engine.status import Status
from adfpp.judge.runs import left_out_densities
from adfpp.learn.ep import EPInfo
from adfpp.learn.posterior import GivenPrior, Posterior, scalar_names
from adfpp.learn.results import Result
from adfpp.learn.stream import Trajectory
from adfpp.learn.vmp import VMPInfo
from adfpp.model import Joint, Program
from adfpp.model.arguments import signature_of
from adfpp.model.forward import Forward, Variable
from adfpp.show.arviz_versions import Group

_LARGE = 1 << 30  # bytes of an export above which the user is warned
_STEPS = 200  # steps of a trajectory that is made after the run
_CHUNK = 4096  # rows whose log-likelihood is evaluated together


class ExportWarning(UserWarning):
    """A warning about an export, such as its size or rows that do not belong to the posterior."""


class Draws(NamedTuple):
    """Draws ``(S, N)`` of θ, their log density ``(S,)`` if they are from an approximation, and the number of chains."""

    program: Program
    theta: jax.Array
    log_q: np.ndarray | None
    chains: int

    def laid_out(self, values: Mapping[str, ArrayLike], dims: Mapping[str, Sequence[str | None]]) -> Group:
        """A group of arrays ``(S, ...)``, reshaped to ``(chain, draw, ...)``."""
        shape = (self.chains, len(self.theta) // self.chains)
        arrays = {name: np.asarray(a) for name, a in values.items()}
        return Group({name: a.reshape(shape + a.shape[1:]) for name, a in arrays.items()}, dims)

    def unconstrained(self, dims: Mapping[str, Sequence[str | None]]) -> dict[str, Group]:
        """θ by latent, without the latents in their native spaces, which are only in ``posterior``.

        If a latent has another shape in unconstrained space, its axes have other names.
        """
        values, named = {}, {}
        for latent in self.program.latents:
            if latent.native is not None:
                continue
            shape = latent.unconstrained_shape
            values[latent.name] = self.theta[:, latent.where].reshape((len(self.theta), *shape))
            named[latent.name] = dims.get(latent.name, ())
            if shape != latent.shape:
                named[latent.name] = [f"{latent.name}_unconstrained_dim_{i}" for i in range(len(shape))]
        return {"unconstrained_posterior": self.laid_out(values, named)} if values else {}


class Wanted(NamedTuple):
    """Which groups are exported, and the prior that replaces the model's.

    Attributes:
        predictive: Whether to draw the observations, and the deterministic values of every row.
        log_likelihood: Whether to keep the log-likelihood of each row at each draw.
        trajectory: Whether to add the belief along a run of ADF.
        prior: The prior of the run, if it was not that of the model.
    """

    predictive: bool
    log_likelihood: bool
    trajectory: bool
    prior: GivenPrior


def groups_of(
    draws: Draws,
    result: Result | None,
    key: jax.Array,
    wanted: Wanted,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> dict[str, Group]:
    """All groups of an export.

    Args:
        draws: Draws of θ.
        result: The result that the draws come from, if it is known.
        key: Key for the predictives and the prior.
        wanted: Which groups are exported.
        args: The model's arguments; if there are none, only the draws are exported.
        kwargs: The model's keyword arguments.
    """
    if not args and not kwargs:
        stats = {} if draws.log_q is None else {"sample_stats": draws.laid_out({"log_q": draws.log_q}, {})}
        posterior = draws.laid_out(draws.program.constrain(draws.theta), {})
        return {"posterior": posterior, **stats, **draws.unconstrained({})}
    without_dt = kwargs
    if "dt" not in signature_of(draws.program.model).parameters:
        without_dt = {name: value for name, value in kwargs.items() if name != "dt"}
    run = result.run if result is not None else None
    start = wanted.prior if wanted.prior is not None else run.start if run is not None else None
    export = _Export(draws, args, without_dt, start)
    export.announce(wanted)
    same_rows = run is None or run.rows == export.joint.length
    if run is not None and not same_rows:
        warnings.warn(
            f"The run absorbed or refused {run.rows} rows and to_arviz was given {export.joint.length}: log_p, and "
            "leave-one-out made from it, do not belong to this posterior, and the trajectory is left out. Pass the "
            "rows of the run.",
            ExportWarning,
            stacklevel=3,
        )
    moving = run is not None and not isinstance(getattr(run.learner, "dynamics", Static()), Static)
    groups = export.groups(key, wanted, _absorbed(result, export.joint.length), moving)
    if result is not None and same_rows:
        if isinstance(result.info, EPInfo):
            groups |= export.cavities(result)
        elif wanted.trajectory and not isinstance(result.info, VMPInfo):
            groups |= _trajectory_group(result, args, kwargs, export.joint.length)
    return groups


class _Densities(NamedTuple):
    """Log-likelihoods at the draws.

    Attributes:
        total: ``(S,)`` log-likelihood of all absorbed rows together.
        rows: ``(S, n, ...)`` log-likelihood of each row, by observation.
    """

    total: np.ndarray
    rows: dict[str, np.ndarray]


class _Export:
    """Draws together with a model's data."""

    def __init__(self, draws: Draws, args: tuple[object, ...], kwargs: Mapping[str, object], start: GivenPrior) -> None:
        self.draws, self.start, self.samples = draws, start, len(draws.theta)
        self.joint = Joint(draws.program, args, kwargs, start if isinstance(start, Mapping) else None)
        self.forward = Forward(draws.program, args, kwargs)
        self.forms = self.forward.forms
        self.observed = [f for f in self.forms.values() if f.kind == "observed"]
        self.factors = [f for f in self.forms.values() if f.kind == "factor"]

    def announce(self, wanted: Wanted) -> None:
        """Warns before an export that takes more than a gigabyte."""
        numbers = sum(int(np.prod(f.shape)) for f in self.observed) + self.joint.length * len(self.factors)
        each = numbers * self.samples * np.dtype(self.draws.program.dtype).itemsize
        sizes = {"log_likelihood": each * wanted.log_likelihood}
        sizes |= {name: each * wanted.predictive for name in ("posterior_predictive", "prior_predictive")}
        if sum(sizes.values()) > _LARGE:
            parts = ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in sizes.items() if size)
            warnings.warn(
                f"This export takes {sum(sizes.values()) / 1e9:.1f} GB ({parts}): {self.samples} draws of "
                f"{self.joint.length} rows. Take fewer draws (num_samples=...), or leave groups out with "
                "log_likelihood=False, predictive=False.",
                ExportWarning,
                stacklevel=4,
            )

    def groups(self, key: jax.Array, wanted: Wanted, absorbed: np.ndarray | None, moving: bool) -> dict[str, Group]:
        """All groups except the trajectory."""
        theta, constrain, laid_out = self.draws.theta, self.draws.program.constrain, self.draws.laid_out
        prior_key, forward_key, prior_forward_key = jax.random.split(key, 3)
        prior_theta = self._prior_draws(prior_key)
        names = self._forward_names(wanted.predictive)
        drawn = [("posterior", theta, forward_key)]
        drawn += [("prior", prior_theta, prior_forward_key)] if prior_theta is not None else []
        out: dict[str, Group] = {}
        for name, at, draw_key in drawn:
            values = self.forward.draw(draw_key, at, names) if names else {}
            out[name] = self._sites(constrain(at), values, "deterministic")
            if wanted.predictive and self.observed:
                out[f"{name}_predictive"] = self._sites({}, values, "observed")
        densities = self._likelihood(theta, wanted.log_likelihood, absorbed)
        if wanted.log_likelihood:
            out["log_likelihood"] = self._log_likelihood_group(densities.rows)
        log_prior, out["log_prior"] = self._log_prior(theta)
        stats = {} if self.draws.log_q is None else {"log_q": self.draws.log_q}
        if not moving:
            # ArviZ expects it under the name lp
            stats |= dict.fromkeys(("log_p", "lp"), log_prior + densities.total)
        if stats:
            out["sample_stats"] = laid_out(stats, {})
        out |= self.draws.unconstrained({f.name: f.dims for f in self.forms.values()})
        return out | self._data()

    def cavities(self, result: Result) -> dict[str, Group]:
        """Leave-one-out densities from EP's cavity distributions, if each site approximation is that of one row."""
        log_z = left_out_densities(result.run.learner, result.info)
        if log_z is None:
            return {}
        values = {"log_z": log_z, "status": np.asarray(result.info.status), "error": np.asarray(result.info.error)}
        row = next(filter(None, map(self._row_dim, self.observed)), "row")
        return {"cavities": Group(values, dict.fromkeys(values, [row]), sampled=False)}

    def _prior_draws(self, key: jax.Array) -> jax.Array | None:
        """Draws from the prior; None if terms such as ``numpyro.factor`` belong to it, which have no draws."""
        if isinstance(self.start, Posterior):
            return self.start.draw(key, self.samples)
        if self.joint.program.prior_terms:
            return None
        return jnp.asarray(self.joint.draw_prior(key, self.samples))

    def _forward_names(self, predictive: bool) -> list[str]:
        out = []
        for form in self.forms.values():
            per_row = self.joint.length in form.shape[:1]
            if form.kind == "deterministic" and (predictive or not per_row):
                out.append(form.name)
            elif form.kind == "observed" and predictive:
                out.append(form.name)
        return out

    def _likelihood(self, theta: jax.Array, keep: bool, absorbed: np.ndarray | None) -> _Densities:
        """Log-likelihoods at the draws. The total leaves out refused rows, which are not part of the posterior."""
        total, parts = np.zeros(self.samples), []
        for begin in range(0, self.joint.length, _CHUNK):
            chosen = np.arange(begin, min(begin + _CHUNK, self.joint.length))
            logs = {name: self._by_event(name, a) for name, a in self.joint.log_likelihood(theta, chosen).items()}
            counted = np.ones(len(chosen), bool) if absorbed is None else absorbed[chosen]
            total += sum(a[:, counted].reshape(len(a), -1).sum(1, dtype=np.float64) for a in logs.values())
            parts += [logs] * keep
        rows = {name: np.concatenate([p[name] for p in parts], 1) for name in parts[0]} if parts else {}
        return _Densities(total, rows)

    def _log_prior(self, theta: jax.Array) -> tuple[np.ndarray, Group]:
        """The total log prior in unconstrained space, and the group of the log priors of the latents' values."""
        volume = self.joint.log_volume(theta).astype(np.float64)
        if isinstance(self.start, Posterior):
            flat = np.asarray(self.start.distribution.log_prob(theta), np.float64)
            return flat, self.draws.laid_out({"prior": flat - volume}, {})
        each = self.joint.log_prior(theta)
        total = volume + sum(a.reshape(self.samples, -1).sum(1, dtype=np.float64) for a in each.values())
        dims = {name: self.forms[name].dims[: a.ndim - 1] for name, a in each.items()}
        return total, self.draws.laid_out(each, dims)

    def _row_dim(self, form: Variable) -> str | None:
        """The name of an observation's plate of rows."""
        sized = zip(form.dims, form.shape, strict=True)
        return next((dim for dim, size in sized if dim is not None and size == self.joint.length), None)

    def _by_event(self, name: str, logs: np.ndarray) -> np.ndarray:
        """Sums log-likelihoods over each event of an observation, because leave-one-out leaves out whole events."""
        if name not in self.forms:
            return logs
        form = self.forms[name]
        inside = tuple(range(1 + max(1, len(form.shape) - form.event_dim), logs.ndim))
        return logs.sum(inside) if inside else logs

    def _log_likelihood_group(self, logs: Mapping[str, np.ndarray]) -> Group:
        dims: dict[str, Sequence[str | None]] = {}
        for name, a in logs.items():
            # observations that a latent of the row joins have one likelihood, named "a, b", which is no single form's
            forms = [self.forms[name]] if name in self.forms else []
            row = next(filter(None, map(self._row_dim, forms or self.observed)), None)
            plates = [d for form in forms for d in form.dims[: len(form.shape) - form.event_dim] if d != row]
            dims[name] = ([row, *plates] + [None] * a.ndim)[: a.ndim - 1]  # rows come first
        return self.draws.laid_out(logs, dims)

    def _sites(self, values: Mapping[str, ArrayLike], drawn: Mapping[str, ArrayLike], kind: str) -> Group:
        all_values = dict(values) | {name: a for name, a in drawn.items() if self.forms[name].kind == kind}
        return self.draws.laid_out(all_values, {name: self.forms[name].dims for name in all_values})

    def _data(self) -> dict[str, Group]:
        seen = {f.name: f.value for f in self.observed if f.value is not None}
        observed = Group(seen, {f.name: f.dims for f in self.observed}, sampled=False)
        row_dim = next(filter(None, map(self._row_dim, self.observed)), None)
        row_names = set(self.draws.program.layout.named("row"))
        constant, dims = {}, {}
        for name, a in self.forward.arguments.items():
            if any(a.shape == v.shape and np.array_equal(a, v, equal_nan=a.dtype.kind == "f") for v in seen.values()):
                continue
            constant[name] = a
            dims[name] = [row_dim] if name.split(".")[0] in row_names and a.ndim else []
        out = {"observed_data": observed} if seen else {}
        return out | ({"constant_data": Group(constant, dims, sampled=False)} if constant else {})


def _trajectory_group(
    result: Result, args: tuple[object, ...], kwargs: Mapping[str, object], length: int
) -> dict[str, Group]:
    run = result.run
    steps: Trajectory | None = run.trajectory
    if steps is None and getattr(result.state, "priors", None):
        return {}
    if steps is None:
        steps = result.again(*args, snapshots=max(1, -(-length // _STEPS)), **kwargs).trajectory
    if steps is None or not len(steps.rows):
        return {}
    reached = np.asarray(run.posterior.belief.mean)
    if not np.allclose(steps.mean[-1], reached, rtol=1e-3, atol=1e-3 * float(steps.sd[-1].max())):
        warnings.warn(
            "Absorbing these rows again does not lead to the posterior of the run: they are other rows, or in another "
            "order. The trajectory is left out, and log_p may not belong to the posterior.",
            ExportWarning,
            stacklevel=4,
        )
        return {}
    values = {name: getattr(steps, name) for name in Trajectory._fields}
    dims: dict[str, list[str]] = {name: ["step"] for name in Trajectory._fields}
    dims |= dict.fromkeys(("mean", "sd"), ["step", "parameter"])
    names = [n for s in run.posterior.latents for n in scalar_names(s.name, s.unconstrained_shape)]
    return {"trajectory": Group(values, dims, False, {"parameter": names})}


def _absorbed(result: Result | None, length: int) -> np.ndarray | None:
    """Which rows were absorbed, if the result has the status of every row, else None."""
    status = getattr(getattr(result, "info", None), "status", None)
    if status is None or len(status) != length:
        return None
    return np.asarray(status) < Status.NOT_FINITE
