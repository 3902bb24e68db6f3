"""How far fast approximations are from a reference: NUTS with its own Monte-Carlo error beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpyro.infer import MCMC, SVI

from adfpp.dynamics import Static
from adfpp.explain import Explanation
from adfpp.fits import Fit, fit_draws, fit_mcmc, fit_online, fit_svi, nuts
from adfpp.importance import GOOD_K, Elpd, Reweighted, leave_one_out, reweighted
from adfpp.kernel import Status
from adfpp.model import Joint, Program, read, refuse_clashes
from adfpp.stream import announced
from adfpp.tilt import moments_named

# errors of means in sds, and of sds relative, up to which a run is told to be as good, close, rough
_SAME, _CLOSE, _ROUGH = 0.05, 0.3, 1.0
_HOPELESS_R_HAT, _HOPELESS_ESS = 1.1, 50.0  # where a reference says nothing
_ELPD_ROWS = 4096  # rows that leave-one-out looks at
_LEVELS = (np.arange(400) + 0.5) / 400  # quantiles that the distance between marginals is made of


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs beside a reference.

    Attributes:
        fits: Every run, the reference among them, by name.
        reference: Name of the reference.
        problems: Why the reference is not to be called the truth; empty where it is clean.
        joint: The model with its data.
        reweighted: By name, what importance weights make of each approximation.
        elpd: By name, expected log predictive density of each.
        explanation: How the model was understood, where a run says.
        learners: By name, the runs of ``ADF`` and ``EP``.
        data: The call's arguments and keyword arguments.
        options: What else it was made with, so that it can be repeated.
    """

    fits: dict[str, Fit]
    reference: str
    problems: tuple[str, ...]
    joint: Joint
    reweighted: dict[str, Reweighted]
    elpd: dict[str, Elpd]
    explanation: Explanation | None
    learners: dict[str, Any]
    data: tuple[tuple[Any, ...], dict[str, Any]]
    options: dict[str, Any]

    @property
    def truth(self) -> Fit:
        """The reference's fit."""
        return self.fits[self.reference]

    @property
    def names(self) -> list[str]:
        """The runs but the reference."""
        return [name for name in self.fits if name != self.reference]

    @cached_property
    def parameters(self) -> Any:
        """A pandas ``DataFrame``: a row for each run and scalar parameter.

        ``error`` is the run's mean minus the reference's in reference sds and ``mcse`` the reference's own Monte-Carlo
        standard error of it, ``sd_ratio`` run over reference, ``w1`` the Wasserstein-1 distance of the marginals in
        reference sds. Elements that cannot vary, as those above the diagonal of a Cholesky factor, are left out.
        """
        import pandas as pd

        tables = []
        for name, fit in self.fits.items():
            columns: dict[str, Any] = {"run": name, "parameter": fit.names, "mean": fit.mean, "sd": fit.sd}
            if name != self.reference:
                columns |= _errors(fit, self.truth)
            tables.append(pd.DataFrame(columns))
        return pd.concat(tables).set_index(["run", "parameter"])

    @cached_property
    def overview(self) -> Any:
        """A pandas ``DataFrame``: a row a run.

        Errors are against the reference and in its sds; beside each, under ``…_mcse``, stands the reference's own
        Monte-Carlo standard error, below which nothing can be said.

        Columns: ``error_max`` and ``error_rms`` of the means, ``sd_ratio_min`` and ``sd_ratio_max``, ``kl`` between
        Gaussians with the moments of reference and run in unconstrained space, ``w1_max`` the worst Wasserstein-1
        distance of a marginal, ``k_hat`` of the run as a proposal for the posterior, ``elpd`` by leave-one-out with its
        standard error ``elpd_se`` and the share of rows whose weights are good (``elpd_good``; rows that an online run
        refused count neither here nor in ``k_hat``), ``log_evidence`` where
        it is known (ADF's and EP's own; else from importance weights, where they are good), ``compile_seconds``,
        ``run_seconds`` (of MCMC warm-up and sampling), ``sampling_seconds`` (without the warm-up), ``speed_up`` of
        ``run_seconds`` over the reference's, and a ``verdict``.
        """
        import pandas as pd

        rows = {name: self._summarised(name) for name in [*self.names, self.reference]}
        return pd.DataFrame.from_dict(rows, orient="index")

    def _summarised(self, name: str) -> dict[str, Any]:
        fit, truth = self.fits[name], self.truth
        out: dict[str, Any] = {"method": fit.method}
        if name == self.reference:
            out |= dict.fromkeys(_ERROR_COLUMNS, np.nan)
        else:
            errors = _errors(fit, truth)
            worst = int(np.argmax(np.abs(errors["error"])))
            smallest, largest = int(np.argmin(errors["sd_ratio"])), int(np.argmax(errors["sd_ratio"]))
            kl, kl_noise = _gaussian_divergence(truth, fit)
            furthest = int(np.argmax(errors["w1"]))
            out |= {
                "error_max": abs(errors["error"][worst]),
                "error_max_mcse": errors["mcse"][worst],
                "error_rms": np.sqrt(np.mean(errors["error"] ** 2)),
                "error_rms_mcse": np.sqrt(np.mean(errors["mcse"] ** 2)),
                "sd_ratio_min": errors["sd_ratio"][smallest],
                "sd_ratio_max": errors["sd_ratio"][largest],
                "sd_ratio_mcse": max(errors["sd_ratio_mcse"][[smallest, largest]]),
                "kl": kl,
                "kl_mcse": kl_noise,
                "w1_max": errors["w1"][furthest],
                # exact draws of this many are 1.3 standard errors of the mean away from their source, on average
                "w1_max_mcse": 1.3 * errors["mcse"][furthest],
            }
        weighted, elpd = self.reweighted.get(name), self.elpd[name]
        out["k_hat"] = np.nan if weighted is None else weighted.k_hat
        out["elpd"], out["elpd_se"] = elpd.total, elpd.se
        out["elpd_good"] = float(np.mean(elpd.k <= GOOD_K))
        out["log_evidence"] = fit.log_evidence
        if np.isnan(fit.log_evidence) and weighted is not None and weighted.k_hat <= GOOD_K:
            out["log_evidence"] = weighted.log_evidence
        out["compile_seconds"], out["run_seconds"] = fit.compile_seconds, fit.run_seconds
        out["sampling_seconds"] = fit.sampling_seconds
        out["speed_up"] = np.nan if name == self.reference else truth.run_seconds / fit.run_seconds
        out["verdict"] = self._verdict(name, out)
        return out

    def _verdict(self, name: str, found: Mapping[str, Any]) -> str:
        fit = self.fits[name]
        if name == self.reference:
            return _reference_verdict(fit, self.problems)
        if _is_hopeless(self.truth):
            return (
                f"cannot be judged: {self.reference} did not converge. Give it more warm-up, standardise columns of "
                "very different sizes, or look at adfpp.check"
            )
        worst = fit.names[int(np.argmax(np.abs(_errors(fit, self.truth)["error"])))]
        words = judgement(
            found["error_max"],
            found["error_max_mcse"],
            found["sd_ratio_min"],
            found["sd_ratio_max"],
            found["sd_ratio_mcse"],
            worst,
            "NUTS" if fit.is_ep else "EP or NUTS",
        )
        if fit.notes:
            words += f"; {', '.join(fit.notes)}"
        return words + ("; but the reference is not clean" if self.problems else "")

    def __repr__(self) -> str:
        """The overview, narrow enough to read, and the verdicts."""
        table = self.overview
        shown = ["error_max", "error_max_mcse", "sd_ratio_min", "sd_ratio_max", "kl", "k_hat", "elpd", "elpd_se"]
        shown += ["elpd_good", "run_seconds", "speed_up"]
        lines = [table[shown].to_string(float_format=lambda v: f"{v:.3g}", na_rep=""), ""]
        width = max(len(str(n)) for n in table.index)
        lines += [f"{name:<{width}}  {words}" for name, words in table["verdict"].items()]
        return "\n".join(lines)

    def to_arviz(self, **options: Any) -> dict[str, Any]:
        """``{run: InferenceData (ArviZ 0.2x) or DataTree (1.x)}``; options are those of ``adfpp.to_arviz``."""
        from adfpp.export import fit_to_arviz

        args, kwargs = self.data
        return {name: fit_to_arviz(fit, *args, **options, **kwargs) for name, fit in self.fits.items()}

    def plot(self, kind: str = "all", **options: Any) -> Any:
        """Pictures of the comparison, as Matplotlib figures.

        Args:
            kind: "forest" (intervals of all runs side by side), "marginals", "predictions" (each row's predicted mean
                or probability against the reference's), "learning" (mean ± sd of online runs along the stream towards
                the reference), or "all".
            **options: Passed on, e.g. ``parameters=["w[0]", "b"]`` to show some parameters only.

        Returns:
            A figure; for "all" a dict of figures by kind.
        """
        from adfpp.plots import draw

        return draw(self, kind, **options)

    def report(self, path: str | Path) -> Path:
        """Writes one self-contained HTML page: tables, pictures, how the model was understood, how to repeat it.

        Returns:
            The path written.
        """
        from adfpp.report import write_report

        return write_report(self, Path(path))


_ERROR_COLUMNS = (
    "error_max",
    "error_max_mcse",
    "error_rms",
    "error_rms_mcse",
    "sd_ratio_min",
    "sd_ratio_max",
    "sd_ratio_mcse",
    "kl",
    "kl_mcse",
    "w1_max",
    "w1_max_mcse",
)


def compare(
    rng_key: jax.Array,
    runs: Mapping[str, Any],
    *args: Any,
    reference: Any = "nuts",
    num_samples: int = 4000,
    num_warmup: int = 1000,
    num_chains: int = 4,
    svi_steps: int = 10_000,
    progress_bar: bool = True,
    **kwargs: Any,
) -> Comparison:
    """Runs several methods on one model and data and measures each against a reference.

    Example:
        ::

            guide = AutoMultivariateNormal(model)
            svi = SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO())
            runs = {"adf": adfpp.ADF(model), "ep": adfpp.EP(model), "svi": svi}
            comparison = adfpp.compare(jax.random.key(0), runs, X, y=y)
            print(comparison)
            comparison.report("report.html")

    Args:
        rng_key: Key.
        runs: ``{name: run}``, each an ``ADF``, ``EP``, NumPyro ``SVI`` or ``MCMC``, all of one model.
        *args: The model's arguments.
        reference: "nuts", an ``MCMC`` (run if it has not been yet), draws ``{site: (draw, …) or (chain, draw, …)}``, or
            the name of another run.
        num_samples: Draws from each approximation, and in all from the reference NUTS.
        num_warmup: Warm-up steps of the reference NUTS.
        num_chains: Its chains.
        svi_steps: Steps of every ``SVI``.
        progress_bar: Whether to show what is being done.
        **kwargs: The model's keyword arguments.
    """
    if not runs:
        raise ValueError('No runs to compare: pass for example {"adf": adfpp.ADF(model), "ep": adfpp.EP(model)}.')
    _refuse_unknown(runs, reference)
    refuse_clashes(_model_of(next(iter(runs.values()))), compare, args)
    program, explanation = _read(runs, args, kwargs)
    joint = Joint(program, args, kwargs)
    if "reference" in runs and not isinstance(reference, str):
        raise ValueError("A run is called 'reference', which is what the reference given is called; rename the run.")
    keys = dict(zip([*runs, "reference"], jax.random.split(rng_key, len(runs) + 1), strict=True))
    given = reference if isinstance(reference, str) and reference in runs else "reference"
    if given == "reference" and reference == "nuts":
        given = "nuts" if "nuts" not in runs else "reference"
    fits: dict[str, Fit] = {}
    with announced(len(runs) + (given not in runs), "run", progress_bar) as begun:
        for name, run in runs.items():
            begun(name)
            fits[name] = _fitted(name, run, program, keys[name], args, kwargs, num_samples, svi_steps)
        if given not in runs:
            begun(given)
            if not isinstance(reference, Mapping):
                _refuse_impossible_rows(fits)
            fits[given] = _reference_fit(
                given, reference, program, keys["reference"], args, kwargs, num_warmup, num_samples, num_chains
            )
    weighted, elpd = {}, {}
    counted = _absorbed_by_all(fits, joint.length)
    for name, fit in fits.items():
        weighted_fit, elpd[name] = _weighed(fit, joint, counted, num_samples)
        if weighted_fit is not None:
            weighted[name] = weighted_fit
    learners = {name: run for name, run in runs.items() if _is_learner(run)}
    options = {
        "rng_key": np.asarray(jax.random.key_data(rng_key)).tolist(),
        "reference": reference if isinstance(reference, str) else type(reference).__name__,
        "num_samples": num_samples,
        "num_warmup": num_warmup,
        "num_chains": num_chains,
        "svi_steps": svi_steps,
    }
    problems, data = _problems(fits[given]), (args, dict(kwargs))
    return Comparison(fits, given, problems, joint, weighted, elpd, explanation, learners, data, options)


# ---------------------------------------------------------------------------------------------------- the runs


def _is_learner(run: Any) -> bool:
    return hasattr(run, "run") and hasattr(run, "get_posterior") and not isinstance(run, SVI | MCMC)


def _refuse_unknown(runs: Mapping[str, Any], reference: Any) -> None:
    for name, run in runs.items():
        if not isinstance(run, SVI | MCMC) and not _is_learner(run):
            raise TypeError(
                f"Run {name!r} is a {type(run).__name__}; it must be an adfpp.ADF, an adfpp.EP, a "
                "numpyro.infer.SVI or a numpyro.infer.MCMC."
            )
        if _is_learner(run) and not isinstance(getattr(run, "dynamics", Static()), Static):
            raise ValueError(
                f"Run {name!r} has dynamics: its posterior is about parameters that move from row to row, which no "
                "reference with parameters that stay is comparable to. Score its one-step-ahead predictions instead, "
                "result.info.log_z, or adfpp.check."
            )
    if isinstance(reference, str) and reference != "nuts" and reference not in runs:
        raise ValueError(f'reference is {reference!r}; it must be "nuts" or one of the runs {sorted(runs)}.')
    if not isinstance(reference, str | MCMC | Mapping):
        raise TypeError(
            f'reference is a {type(reference).__name__}; it must be "nuts", the name of a run, an MCMC, or draws '
            "{site: array}."
        )


def _model_of(run: Any) -> Any:
    return run.sampler.model if isinstance(run, MCMC) else run.model


def _read(
    runs: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Program, Explanation | None]:
    """The model as the first online run reads it, or as it would be read."""
    found: tuple[Program, Explanation] | None = None
    for name, run in runs.items():
        if _is_learner(run):
            explanation = run.explain(*args, **kwargs)
            program = run.get_posterior(run.init(jax.random.key(0), *args, **kwargs)).program
            found = found or (program, explanation)
            first, mine = ({s.name: s.shape for s in p.sites} for p in (found[0], program))
            if list(first.items()) != list(mine.items()):
                raise ValueError(f"Run {name!r} is of another model: it has the sites {mine}, the run before {first}.")
    if found is not None:
        return found
    model = _model_of(next(iter(runs.values())))
    return read(model, args, kwargs, None, moments_named("auto")), None


def _fitted(
    name: str,
    run: Any,
    program: Program,
    rng_key: jax.Array,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    num_samples: int,
    svi_steps: int,
) -> Fit:
    if isinstance(run, MCMC):
        return fit_mcmc(name, run, program, rng_key, args, kwargs)
    if isinstance(run, SVI):
        return fit_svi(name, run, program, rng_key, args, kwargs, num_samples, svi_steps)
    return fit_online(name, run, rng_key, args, kwargs, num_samples)


def _reference_fit(
    name: str,
    reference: Any,
    program: Program,
    rng_key: jax.Array,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    num_warmup: int,
    num_samples: int,
    num_chains: int,
) -> Fit:
    if isinstance(reference, Mapping):
        return fit_draws(name, reference, program)
    if isinstance(reference, str):
        reference = nuts(program.model, num_warmup, -(-num_samples // num_chains), num_chains)
    return fit_mcmc(name, reference, program, rng_key, args, kwargs)


def _problems(fit: Fit) -> tuple[str, ...]:
    """Why draws are not to be called the truth."""
    if not fit.is_sampler:
        return ("it is an approximation itself",)
    out = []
    worst = np.nanmax(fit.r_hat) if np.isfinite(fit.r_hat).any() else np.nan
    if not worst <= 1.01:
        out.append(f"R-hat {worst:.3f} of {fit.names[int(np.nanargmax(np.nan_to_num(fit.r_hat)))]}, above 1.01")
    if not np.min(fit.ess) >= 400:
        out.append(f"ESS {np.min(fit.ess):.0f} of {fit.names[int(np.argmin(fit.ess))]}, below 400")
    return (*out, *fit.notes)


def _is_hopeless(fit: Fit) -> bool:
    """Whether draws of a sampler have not come near their target."""
    return fit.is_sampler and not (np.max(fit.r_hat) <= _HOPELESS_R_HAT and np.min(fit.ess) >= _HOPELESS_ESS)


def _reference_verdict(fit: Fit, problems: Sequence[str]) -> str:
    if not fit.is_sampler:
        return "reference: an approximation, not the truth"
    if problems:
        return f"reference, NOT to be called the truth: {'; '.join(problems)}"
    words = f"reference: R-hat at most {np.nanmax(fit.r_hat):.3f}, ESS at least {np.min(fit.ess):.0f}"
    tells = isinstance(fit.source, MCMC) and "diverging" in fit.source.get_extra_fields()
    return f"{words}, no divergences" if tells else words


def _statuses(fit: Fit) -> np.ndarray:
    """What became of each row in an online run; empty for others."""
    return np.asarray(getattr(getattr(fit.source, "info", None), "status", ()), int)


def _refuse_impossible_rows(fits: Mapping[str, Fit]) -> None:
    """Rows that an online run leaves out make a sampler fail at its first step, and in other words."""
    for name, fit in fits.items():
        rows = np.flatnonzero(np.isin(_statuses(fit), (Status.NOT_FINITE, Status.OUT_OF_SUPPORT)))
        if len(rows):
            told = ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
            raise ValueError(
                f"{len(rows)} rows ({told}) hold NaN or values outside the support: {name!r} refused them, and the "
                "reference cannot be run with them. Drop or mask them first."
            )


def _absorbed_by_all(fits: Mapping[str, Fit], length: int) -> np.ndarray:
    """Rows that no online run refused."""
    refused = [np.flatnonzero(_statuses(fit) >= Status.NOT_FINITE) for fit in fits.values()]
    counted = np.setdiff1d(np.arange(length), np.concatenate(refused))
    if not len(counted):
        raise ValueError("All rows were refused: there is nothing to compare. See info.status of the online run.")
    return counted


def _weighed(fit: Fit, joint: Joint, counted: np.ndarray, num_samples: int) -> tuple[Reweighted | None, Elpd]:
    """Importance weights of an approximation, and leave-one-out with them, of the rows that count."""
    some = fit.flat[:: max(1, len(fit.flat) // num_samples)]
    ratio, weighted = np.zeros(len(some)), None
    if fit.log_q is not None:
        some, log_q = fit.flat, fit.log_q.reshape(-1)
        refused = np.flatnonzero(_statuses(fit) >= Status.NOT_FINITE)  # no part of an online run's posterior
        log_joint = joint.log_joint(some, np.setdiff1d(np.arange(joint.length), refused))
        weighted = reweighted(some, log_joint, log_q, fit.program.constrain)
        ratio = log_joint - log_q

    def log_lik(rows: np.ndarray) -> np.ndarray:
        logs = joint.log_likelihood(some, counted[rows])
        return np.sum([a.reshape(*a.shape[:2], -1).sum(-1) for a in logs.values()], 0)

    return weighted, leave_one_out(log_lik, ratio, len(counted), _ELPD_ROWS)


# ------------------------------------------------------------------------------------------------- the measures


def _errors(fit: Fit, truth: Fit) -> dict[str, np.ndarray]:
    """Of each scalar parameter, in the reference's sds."""
    with np.errstate(divide="ignore", invalid="ignore"):  # draws that do not move
        ratio = fit.sd / truth.sd
        distance = np.abs(fit.quantiles(_LEVELS) - truth.quantiles(_LEVELS)).mean(0) / truth.sd
        error = (fit.mean - truth.mean) / truth.sd
    return {
        "error": error,
        "mcse": truth.mcse,
        "sd_ratio": ratio,
        "sd_ratio_mcse": ratio * truth.sd_mcse,
        "w1": distance,
    }


def _gaussian_divergence(truth: Fit, fit: Fit) -> tuple[float, float]:
    """KL(reference || run) of Gaussians with their moments, and what the reference's sampling error adds to it."""
    mean, covariance = truth.unconstrained
    other_mean, other = fit.unconstrained
    size = len(mean)
    effective = np.min(truth.ess)
    noise = 0.0 if np.isinf(effective) else (size + 0.5 * size * (size + 1)) / (2.0 * effective)
    if fit.is_point:
        return np.inf, noise
    if not (_is_definite(covariance) and _is_definite(other)):
        return np.nan, noise  # not finite, or from fewer draws than numbers
    inverse = np.linalg.inv(other)
    gap = other_mean - mean
    logs = np.linalg.slogdet(other)[1] - np.linalg.slogdet(covariance)[1]
    return float(0.5 * (np.trace(inverse @ covariance) + gap @ inverse @ gap - size + logs)), float(noise)


def _is_definite(covariance: np.ndarray) -> bool:
    """Whether it has full rank, whatever the sites' units."""
    sd = np.sqrt(np.diag(covariance))
    if not (np.isfinite(covariance).all() and (sd > 0.0).all()):
        return False
    return int(np.linalg.matrix_rank(covariance / np.outer(sd, sd))) == len(sd)


def judgement(
    error: float, noise: float, low: float, high: float, sd_noise: float, worst: str, cure: str = "EP or NUTS"
) -> str:
    """A verdict in plain words.

    Args:
        error: Largest error of a mean in reference sds.
        noise: The reference's Monte-Carlo standard error of it.
        low: Smallest ratio of sds.
        high: Largest.
        sd_noise: Monte-Carlo standard error of them.
        worst: The parameter with the largest error.
        cure: What to run instead of a rough run.
    """
    if not np.isfinite([error, low, high]).all():
        return "failed: not finite"
    off = max(1.0 / low if low > 0.0 else np.inf, high) - 1.0
    within = f"means within {error:.2f} sd (reference's error {noise:.2f}), sds {low:.2f} to {high:.2f} of its"
    if error <= _SAME + 3.0 * noise and off <= _SAME + 3.0 * sd_noise:
        return f"as good as the reference can tell: {within}"
    if error <= _CLOSE + 3.0 * noise and off <= _CLOSE + 3.0 * sd_noise:
        return f"close: {within}"
    if error <= _ROUGH + 3.0 * noise and off <= _ROUGH + 3.0 * sd_noise:
        return f"rough: {within}, worst {worst}; run {cure} before an interval is reported"
    return f"wrong: {within}, worst {worst}; do not use it"
