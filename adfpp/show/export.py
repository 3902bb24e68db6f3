"""Export to ArviZ: draws, predictives and densities of a posterior, and leave-one-out that is right for it."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from scipy.special import logsumexp

from adfpp._version import __version__
from adfpp.engine.dynamics import Static
from adfpp.engine.status import Status
from adfpp.judge.fits import Fit
from adfpp.judge.runs import left_out_densities
from adfpp.learn.ep.ep import EPInfo
from adfpp.learn.importance import left_out
from adfpp.learn.posterior import Posterior, scalar_names
from adfpp.learn.results import Result
from adfpp.learn.stream import ADFTotals, Trajectory
from adfpp.model import Joint, Program, refuse_clashes
from adfpp.model.forward import Forward, SiteForm
from adfpp.show import arviz_versions
from adfpp.show.arviz_versions import Group

_LARGE = 1 << 30  # bytes from which on an export is announced
_STEPS = 200  # of a trajectory that is made afterwards
_CHUNK = 4096  # rows whose log-likelihood is looked at together


class ExportWarning(UserWarning):
    """Something about an export that its user should know."""


def to_arviz(
    result_or_posterior: Result | Posterior,
    *args: Any,
    rng_key: jax.Array | None = None,
    num_samples: int = 1000,
    num_chains: int = 4,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    predictive: bool = True,
    log_likelihood: bool = True,
    trajectory: bool = True,
    prior: Posterior | Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Everything that ArviZ can look at: ``InferenceData`` on ArviZ 0.23, ``DataTree`` on 1.x.

    Groups: ``posterior`` (latent and deterministic sites), ``prior``, ``posterior_predictive``, ``prior_predictive``,
    ``log_likelihood``, ``log_prior``, ``observed_data``, ``constant_data``, ``unconstrained_posterior`` (of sites that
    are Gaussian there; those held in their own space are in ``posterior`` as they are), ``sample_stats``, and
    ``trajectory`` of ADF or ``cavities`` of EP (``log_z``: log predictive density of each row given all the others).
    All draws are independent and belong together row by row. For leave-one-out use ``adfpp.loo``: ArviZ's own ``loo``
    would take them for draws from the exact posterior.

    Example:
        ::

            idata = adfpp.to_arviz(result, X, y=y, coords={"column": names}, dims={"w": ["column"]})
            arviz.summary(idata)
            adfpp.loo(idata)

    Args:
        result_or_posterior: What ``run`` or ``get_posterior`` of an ``ADF`` or ``EP`` gave.
        *args: The model's arguments: the rows that were folded. Without any, as after a stream that is gone, there are
            the posterior's draws and their ``log_q`` alone.
        rng_key: Key for the draws; ``jax.random.key(0)`` when None.
        num_samples: Draws in all.
        num_chains: How many equal chains they are split into, so that R-hat and ESS have something to compare.
        coords: Values of dimensions.
        dims: Names of a site's or an argument's axes. Plates name theirs by themselves.
        predictive: Whether to draw the observed sites, and the deterministic sites of every row.
        log_likelihood: Whether to keep the log-likelihood of each row at each draw; ``adfpp.loo`` needs it.
        trajectory: Whether to add the belief along a run of ADF. If it was not kept, the run is folded again (but not
            where sites of a coupled prior are refreshed between batches: another split gives another posterior).
        prior: What the posterior was begun from in the place of the model's prior; a result remembers it.
        **kwargs: The model's keyword arguments.
    """
    run = result_or_posterior.run if isinstance(result_or_posterior, Result) else None
    post = run.posterior if run is not None else result_or_posterior
    if not isinstance(post, Posterior):
        raise TypeError(
            "to_arviz takes what run or get_posterior of an ADF or EP gave; it got a "
            f"{type(post).__name__}. A state becomes a posterior by adf.get_posterior(state); for an MCMC use "
            "arviz.from_numpyro."
        )
    if num_samples < 1 or num_chains < 1 or num_samples % num_chains:
        raise ValueError(
            f"num_samples={num_samples} draws do not split into num_chains={num_chains} equal chains; take "
            f"{-(-max(num_samples, 1) // max(num_chains, 1)) * max(num_chains, 1)}, say."
        )
    draw_key, key = jax.random.split(rng_key if rng_key is not None else jax.random.key(0))
    theta = post.draw(draw_key, num_samples)
    draws = _Draws(post.program, theta, np.asarray(post.distribution.log_prob(theta), np.float64), num_chains)
    result = result_or_posterior if isinstance(result_or_posterior, Result) else None
    wanted = _Wanted(predictive, log_likelihood, trajectory, prior)
    groups = _groups(draws, result, key, wanted, args, kwargs)
    return arviz_versions.inference_data(_named(groups, dims or {}), coords or {}, _attrs(post.family.name, result))


def fit_to_arviz(
    fit: Fit,
    *args: Any,
    rng_key: jax.Array | None = None,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    predictive: bool = True,
    log_likelihood: bool = True,
    trajectory: bool = True,
    prior: Posterior | Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """One run of a comparison, of whatever method, with the draws that were compared.

    Draws of MCMC have no ``log_q``; leave-one-out of theirs is ``arviz.loo``.

    Args:
        fit: The run.
        *args: The model's arguments.
        rng_key: Key for the predictives and the prior.
        coords: As in ``to_arviz``, and so are the others.
        dims: Names of axes.
        predictive: Whether to draw the observed sites.
        log_likelihood: Whether to keep the log-likelihood of each row at each draw.
        trajectory: Whether to add the belief along a run of ADF.
        prior: What the run was begun from in the place of the model's prior.
        **kwargs: The model's keyword arguments.
    """
    result = fit.source if isinstance(fit.source, Result) else None
    log_q = None if fit.log_q is None else np.asarray(fit.log_q, np.float64).reshape(-1)
    draws = _Draws(fit.program, jnp.asarray(fit.flat, fit.program.dtype), log_q, fit.theta.shape[0])
    key = rng_key if rng_key is not None else jax.random.key(0)
    groups = _groups(draws, result, key, _Wanted(predictive, log_likelihood, trajectory, prior), args, kwargs)
    attrs = _attrs(fit.posterior.family.name if fit.posterior is not None else None, result) | {"method": fit.method}
    if result is None:
        if fit.table is None:
            attrs |= {"inference_library": "numpyro", "inference_library_version": numpyro.__version__}
        if np.isfinite(fit.log_evidence):
            attrs["log_evidence"] = float(fit.log_evidence)
    return arviz_versions.inference_data(_named(groups, dims or {}), coords or {}, attrs)


def loo(data: Any, var_name: str | None = None) -> Any:
    """Leave-one-out cross-validation from draws of an approximate posterior, in ArviZ's own form.

    The weight of a draw without row i is p(θ | y)/q(θ) over p(yᵢ | θ). ArviZ's ``loo`` leaves the first ratio out,
    which is right for MCMC and misleads here; ``loo_approximate_posterior`` of ArviZ 1.x gives the same as this.

    Args:
        data: From ``to_arviz``, or any with ``log_likelihood`` and with ``log_p``, ``log_q`` in ``sample_stats``.
        var_name: The observed site; needed if there are several.

    Returns:
        ``ELPDData`` with pointwise values, for ``arviz.compare``, ``arviz.plot_khat`` and ``print``.
    """
    have = arviz_versions.groups(data)
    if "log_likelihood" not in have:
        raise ValueError("loo needs the group log_likelihood: export with log_likelihood=True.")
    stats = arviz_versions.group(data, "sample_stats") if "sample_stats" in have else {}
    if "log_p" not in stats or "log_q" not in stats:
        raise ValueError(
            "loo needs log_p and log_q in sample_stats. to_arviz writes them, except where parameters move between "
            "rows (dynamics): there, score the one-step-ahead predictions, result.info.log_z. For draws of MCMC use "
            "arviz.loo."
        )
    logs = arviz_versions.group(data, "log_likelihood")
    names = list(logs.data_vars)
    if var_name is None and len(names) > 1:
        raise ValueError(f"There are several observed sites, {names}: say which with var_name.")
    name = names[0] if var_name is None else var_name
    if name not in names:
        raise ValueError(f"There is no observed site {name!r}; there are {names}.")
    sample = list(arviz_versions.SAMPLE_DIMS)
    log_lik = logs[name].transpose(..., *sample)
    ratio = (stats["log_p"] - stats["log_q"]).transpose(*sample).values.reshape(-1)
    values = log_lik.values.reshape(*log_lik.shape[:-2], -1).astype(np.float64)
    bad = ~np.isfinite(values).all(-1)
    if bad.any() or not np.isfinite(ratio).all():
        where = "log_p" if not bad.any() else f"the log-likelihood of {int(bad.sum())} of {bad.size} observations"
        raise ValueError(
            f"loo: {where} is not finite, as for rows that were refused. Drop them from the data and export again."
        )
    elpd, k = left_out(values, ratio)
    lppd = logsumexp(values, axis=-1) - np.log(values.shape[-1])
    good_k = min(1.0 - 1.0 / np.log10(values.shape[-1]), 0.7) if values.shape[-1] > 1 else 0.7
    if (k > good_k).any():
        warnings.warn(
            f"Pareto k is above {good_k:.2f} for {int((k > good_k).sum())} of {k.size} observations: leave-one-out "
            "from this posterior is not to be relied on. If it is so for most of them, the posterior is too far from "
            "the true one; if for a few, these rows are influential.",
            ExportWarning,
            stacklevel=2,
        )
    form = log_lik.isel(dict.fromkeys(sample, 0), drop=True)
    return arviz_versions.elpd_data(
        form.copy(data=elpd), form.copy(data=k), float((lppd - elpd).sum()), values.shape[-1], float(good_k)
    )


# ------------------------------------------------------------------------------------------------ groups


class _Draws(NamedTuple):
    """Draws ``(S, N)`` of θ, their log density ``(S,)`` under the approximation if they are of one, their chains."""

    program: Program
    theta: jax.Array
    log_q: np.ndarray | None
    chains: int

    def laid_out(self, values: Mapping[str, Any], dims: Mapping[str, Sequence[str | None]]) -> Group:
        """Arrays ``(S, ...)`` as ``(chain, draw, ...)``."""
        shape = (self.chains, len(self.theta) // self.chains)
        arrays = {name: np.asarray(a) for name, a in values.items()}
        return Group({name: a.reshape(shape + a.shape[1:]) for name, a in arrays.items()}, dims)

    def unconstrained(self, dims: Mapping[str, Sequence[str | None]]) -> dict[str, Group]:
        """θ by site, of those sites that are Gaussian there: the others are in ``posterior`` as they are.

        Where a site has another shape there, its axes have names of their own.
        """
        values, named = {}, {}
        for site in self.program.latents:
            if site.native is not None:
                continue
            values[site.name] = self.theta[:, site.where].reshape((len(self.theta), *site.unconstrained_shape))
            named[site.name] = dims.get(site.name, ())
            if site.unconstrained_shape != site.shape:
                named[site.name] = [f"{site.name}_unconstrained_dim_{i}" for i in range(len(site.unconstrained_shape))]
        return {"unconstrained_posterior": self.laid_out(values, named)} if values else {}


class _Wanted(NamedTuple):
    """Which groups are wanted, and what the model's prior is replaced by."""

    predictive: bool
    log_likelihood: bool
    trajectory: bool
    prior: Posterior | Mapping[str, Any] | None


def _groups(
    draws: _Draws,
    result: Result | None,
    key: jax.Array,
    wanted: _Wanted,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> dict[str, Group]:
    """All groups of an export."""
    if not args and not kwargs:
        stats = {} if draws.log_q is None else {"sample_stats": draws.laid_out({"log_q": draws.log_q}, {})}
        posterior = draws.laid_out(draws.program.constrain(draws.theta), {})
        return {"posterior": posterior, **stats, **draws.unconstrained({})}
    model = draws.program.model
    refuse_clashes(model, to_arviz, args)
    without_dt = kwargs
    if "dt" not in inspect.signature(model).parameters:
        without_dt = {name: value for name, value in kwargs.items() if name != "dt"}
    run = result.run if result is not None else None
    start = wanted.prior if wanted.prior is not None else run.start if run is not None else None
    export = _Export(draws, args, without_dt, start)
    export.announce(wanted)
    same_rows = run is None or run.rows == export.joint.length
    if run is not None and not same_rows:
        warnings.warn(
            f"The run folded {run.rows} rows and to_arviz was given {export.joint.length}: log_p, and leave-one-out "
            "made from it, do not belong to this posterior, and the trajectory is left out. Pass the rows that were "
            "folded.",
            ExportWarning,
            stacklevel=3,
        )
    moving = run is not None and not isinstance(getattr(run.learner, "dynamics", Static()), Static)
    groups = export.groups(key, wanted, _absorbed(result, export.joint.length), moving)
    if result is not None and same_rows:
        if isinstance(result.info, EPInfo):
            groups |= export.cavities(result)
        elif wanted.trajectory:
            groups |= _trajectory_group(result, args, kwargs, export.joint.length)
    return groups


class _Densities(NamedTuple):
    """Log densities at the draws: ``(S,)`` of all absorbed rows together, and ``(S, n, ...)`` of each by site."""

    total: np.ndarray
    rows: dict[str, np.ndarray]


class _Export:
    """Draws together with a model's data."""

    def __init__(self, draws: _Draws, args: tuple[Any, ...], kwargs: Mapping[str, Any], start: Any) -> None:
        self.draws, self.start, self.samples = draws, start, len(draws.theta)
        self.joint = Joint(draws.program, args, kwargs, start if isinstance(start, Mapping) else None)
        self.forward = Forward(draws.program, args, kwargs)
        self.forms = self.forward.forms
        self.observed = [f for f in self.forms.values() if f.kind == "observed"]
        self.factors = [f for f in self.forms.values() if f.kind == "factor"]

    def announce(self, wanted: _Wanted) -> None:
        """Warns of an export that takes more than a gigabyte."""
        numbers = sum(int(np.prod(f.shape)) for f in self.observed) + self.joint.length * len(self.factors)
        each = numbers * self.samples * np.dtype(self.draws.program.dtype).itemsize
        sizes = {"log_likelihood": each * wanted.log_likelihood}
        sizes |= {name: each * wanted.predictive for name in ("posterior_predictive", "prior_predictive")}
        if sum(sizes.values()) > _LARGE:
            told = ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in sizes.items() if size)
            warnings.warn(
                f"This export takes {sum(sizes.values()) / 1e9:.1f} GB ({told}): {self.samples} draws of "
                f"{self.joint.length} rows. Take fewer draws (num_samples=...), or leave groups out with "
                "log_likelihood=False, predictive=False.",
                ExportWarning,
                stacklevel=4,
            )

    def groups(self, key: jax.Array, wanted: _Wanted, absorbed: np.ndarray | None, moving: bool) -> dict[str, Group]:
        """All groups but the trajectory."""
        theta, constrain, laid_out = self.draws.theta, self.draws.program.constrain, self.draws.laid_out
        prior_key, forward_key, prior_forward_key = jax.random.split(key, 3)
        prior_theta = self._prior_draws(prior_key)
        names = self._forward_names(wanted.predictive)
        after = self.forward.draw(forward_key, theta, names) if names else {}
        before = self.forward.draw(prior_forward_key, prior_theta, names) if names else {}
        out = {
            "posterior": self._sites(constrain(theta), after, "deterministic"),
            "prior": self._sites(constrain(prior_theta), before, "deterministic"),
        }
        if wanted.predictive and self.observed:
            out["posterior_predictive"] = self._sites({}, after, "observed")
            out["prior_predictive"] = self._sites({}, before, "observed")
        densities = self._likelihood(theta, wanted.log_likelihood, absorbed)
        if wanted.log_likelihood:
            out["log_likelihood"] = self._log_likelihood_group(densities.rows)
        log_prior, out["log_prior"] = self._log_prior(theta)
        stats = {} if self.draws.log_q is None else {"log_q": self.draws.log_q}
        if not moving:
            # lp is the name under which ArviZ looks for it
            stats |= dict.fromkeys(("log_p", "lp"), log_prior + densities.total)
        if stats:
            out["sample_stats"] = laid_out(stats, {})
        out |= self.draws.unconstrained({f.name: f.dims for f in self.forms.values()})
        return out | self._data()

    def cavities(self, result: Result) -> dict[str, Group]:
        """What a run of EP says of each row against all the others, where its sites are of single whole rows."""
        log_z = left_out_densities(result.run.learner, result.info)
        if log_z is None:
            return {}
        values = {"log_z": log_z, "status": np.asarray(result.info.status), "error": np.asarray(result.info.error)}
        row = next(filter(None, map(self._row_dim, self.observed)), "row")
        return {"cavities": Group(values, dict.fromkeys(values, [row]), sampled=False)}

    def _prior_draws(self, key: jax.Array) -> jax.Array:
        if isinstance(self.start, Posterior):
            return self.start.draw(key, self.samples)
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

    def _likelihood(self, theta: Any, keep: bool, absorbed: np.ndarray | None) -> _Densities:
        """Refused rows are no part of the posterior, so they do not count into the total."""
        total, parts = np.zeros(self.samples), []
        for begin in range(0, self.joint.length, _CHUNK):
            chosen = np.arange(begin, min(begin + _CHUNK, self.joint.length))
            logs = {name: self._by_event(name, a) for name, a in self.joint.log_likelihood(theta, chosen).items()}
            counted = np.ones(len(chosen), bool) if absorbed is None else absorbed[chosen]
            total += sum(a[:, counted].reshape(len(a), -1).sum(1, dtype=np.float64) for a in logs.values())
            parts += [logs] * keep
        rows = {name: np.concatenate([p[name] for p in parts], 1) for name in parts[0]} if parts else {}
        return _Densities(total, rows)

    def _log_prior(self, theta: Any) -> tuple[np.ndarray, Group]:
        """In unconstrained space, all together; and by site in the sites' own spaces."""
        volume = self.joint.log_volume(theta).astype(np.float64)
        if isinstance(self.start, Posterior):
            flat = np.asarray(self.start.distribution.log_prob(theta), np.float64)
            return flat, self.draws.laid_out({"prior": flat - volume}, {})
        each = self.joint.log_prior(theta)
        total = volume + sum(a.reshape(self.samples, -1).sum(1, dtype=np.float64) for a in each.values())
        dims = {name: self.forms[name].dims[: a.ndim - 1] for name, a in each.items()}
        return total, self.draws.laid_out(each, dims)

    def _row_dim(self, form: SiteForm) -> str | None:
        """The name of the plate of rows at a site."""
        sized = zip(form.dims, form.shape, strict=True)
        return next((dim for dim, size in sized if dim is not None and size == self.joint.length), None)

    def _by_event(self, name: str, logs: np.ndarray) -> np.ndarray:
        """One number for each event of a site: what ``to_event`` made one is left out as one."""
        form = self.forms[name]
        inside = tuple(range(1 + max(1, len(form.shape) - form.event_dim), logs.ndim))
        return logs.sum(inside) if inside else logs

    def _log_likelihood_group(self, logs: Mapping[str, np.ndarray]) -> Group:
        dims: dict[str, Sequence[str | None]] = {}
        for name, a in logs.items():
            form, row = self.forms[name], self._row_dim(self.forms[name])
            plates = [d for d in form.dims[: len(form.shape) - form.event_dim] if d != row]
            dims[name] = ([row, *plates] + [None] * a.ndim)[: a.ndim - 1]  # rows come first
        return self.draws.laid_out(logs, dims)

    def _sites(self, values: Mapping[str, Any], drawn: Mapping[str, Any], kind: str) -> Group:
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
    result: Result, args: tuple[Any, ...], kwargs: Mapping[str, Any], length: int
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
            "Folding these rows again does not lead to the posterior of the run: they are other rows, or in another "
            "order. The trajectory is left out, and log_p may not belong to the posterior.",
            ExportWarning,
            stacklevel=4,
        )
        return {}
    values = {name: getattr(steps, name) for name in Trajectory._fields}
    dims: dict[str, list[str]] = {name: ["step"] for name in Trajectory._fields}
    dims |= dict.fromkeys(("mean", "sd"), ["step", "parameter"])
    names = [n for site in run.posterior.latents for n in scalar_names(site.name, site.unconstrained_shape)]
    return {"trajectory": Group(values, dims, False, {"parameter": names})}


# ------------------------------------------------------------------------------------------------ details


def _named(groups: dict[str, Group], dims: Mapping[str, Sequence[str]]) -> dict[str, Group]:
    """The groups with the user's names for axes in the place of the model's."""
    known = {name for group in groups.values() for name in group.values}
    unknown = sorted(set(dims) - known)
    if unknown:
        raise ValueError(f"dims names {unknown}, which is neither a site nor an argument; there are {sorted(known)}.")
    out = {}
    for name, group in groups.items():
        mine = dict(group.dims)
        for site, axes in dims.items():
            if site not in group.values or name in ("trajectory", "cavities"):
                continue
            a = group.values[site]
            size = a.ndim - 2 * group.sampled
            own = list(mine.get(site, ()))
            if name == "unconstrained_posterior" and own and str(own[0]).startswith(f"{site}_unconstrained_dim"):
                continue
            mine[site] = list(axes)[:size]
        out[name] = group._replace(dims=mine)
    return _without_clashes(out)


def _without_clashes(groups: dict[str, Group]) -> dict[str, Group]:
    """No dimension has the name of a variable beside it, which xarray would take for its coordinate."""
    out = {}
    for name, group in groups.items():
        dims = {}
        for site, axes in group.dims.items():
            dims[site] = [f"{d}_dim" if d in group.values else d for d in axes]
        out[name] = group._replace(dims=dims)
    return out


def _absorbed(result: Any, length: int) -> np.ndarray | None:
    """Which rows were absorbed, where the result tells of every row."""
    status = getattr(getattr(result, "info", None), "status", None)
    if status is None or len(status) != length:
        return None
    return np.asarray(status) < Status.NOT_FINITE


def _attrs(family: str | None, result: Result | None) -> dict[str, Any]:
    attrs: dict[str, Any] = {"inference_library": "adfpp", "inference_library_version": __version__}
    attrs |= {} if family is None else {"family": family}
    if result is None:
        return attrs
    if isinstance(result.info, EPInfo):
        # netCDF has no truth values
        attrs |= {"sweeps": result.info.sweeps, "converged": int(result.info.converged)}
    if isinstance(result.info, ADFTotals) or len(result.info.log_z) == result.run.rows:
        if np.isfinite(result.log_evidence):
            attrs["log_evidence"] = result.log_evidence
    return attrs
