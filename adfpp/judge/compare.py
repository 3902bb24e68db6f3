"""How far fast approximations are from a reference: NUTS with its own Monte-Carlo error beside it, or enumeration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpyro.infer import HMC, MCMC, SVI

from adfpp.engine.dynamics import Static
from adfpp.engine.families import Product
from adfpp.engine.status import Status
from adfpp.engine.tilt import moments_named
from adfpp.judge.fits import (
    Comparable,
    Fit,
    diverging_of,
    fit_draws,
    fit_enumerated,
    fit_mcmc,
    fit_online,
    fit_svi,
    gibbs,
    nuts,
    same_coordinates,
)
from adfpp.learn.explain import Explanation
from adfpp.learn.importance import GOOD_K, Elpd, Reweighted, leave_one_out, reweighted
from adfpp.learn.stream import announced
from adfpp.model import Joint, Program, read, refuse_clashes
from adfpp.model.discrete import MOST, combinations, discrete_latents, levels

# errors of means in sds, and of sds relative, up to which a run is told to be as good, close, rough
_SAME, _CLOSE, _ROUGH = 0.05, 0.3, 1.0
_HOPELESS_R_HAT, _HOPELESS_ESS = 1.1, 50.0  # where a reference says nothing
_ELPD_ROWS = 4096  # rows that leave-one-out looks at
_REFERENCES = ("auto", "nuts", "enumeration", "gibbs")
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
        learners: By name, the runs of ``ADF``, ``EP`` and baselines.
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

        The sd of a discrete parameter goes to 0 as it becomes certain, and is no unit to measure errors in. Its
        ``error`` and ``w1`` are twice the total variation distance of its marginals (with the sign of the difference of
        the means), that is, in sds of a fair coin: an ``error`` of .1 is a probability that is .05 off. Its sd says no
        more than its probabilities do, and ``sd_ratio`` is blank.
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
        Gaussians with the moments of reference and run in the run's coordinates (unconstrained ones, or a site's own
        space), plus that between the marginals of discrete sites, or exactly where the reference enumerates;
        ``w1_max`` the worst Wasserstein-1 distance of a marginal, ``k_hat`` of the run as a proposal for the posterior
        (blank where all latents are discrete: weights of finitely many values have no tail), ``elpd`` by leave-one-out
        with its standard error ``elpd_se`` and the share of rows whose weights are good (``elpd_good``; rows that an
        online run refused count neither here nor in ``k_hat``), ``log_evidence`` where it is known (ADF's and EP's own;
        else from importance weights, where they are good), ``compile_seconds``, ``run_seconds`` (of MCMC warm-up and
        sampling), ``sampling_seconds`` (without the warm-up), ``speed_up`` of ``run_seconds`` over the reference's, and
        a ``verdict``. What errors of discrete parameters are measured in is told in ``parameters``.
        """
        import pandas as pd

        with np.errstate(over="ignore", invalid="ignore"):  # a run that has diverged is told so in its verdict
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
            ratios = errors["sd_ratio"]
            smallest, largest = int(np.argmin(_filled(ratios, np.inf))), int(np.argmax(_filled(ratios, -np.inf)))
            kl, kl_noise = _divergence(truth, fit)
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
        out["k_hat"] = np.nan if weighted is None or truth.discrete.all() else weighted.k_hat
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
            advice = "more warm-up, standardise columns of very different sizes,"
            if self.truth.discrete.any():
                advice = "many more samples, for it changes discrete values one at a time,"
            return f"cannot be judged: {self.reference} did not converge. Give it {advice} or look at adfpp.check"
        worst = fit.names[int(np.argmax(np.abs(_errors(fit, self.truth)["error"])))]
        sampler = "Gibbs sampling" if fit.discrete.any() else "NUTS"
        words = judgement(
            found["error_max"],
            found["error_max_mcse"],
            found["sd_ratio_min"],
            found["sd_ratio_max"],
            found["sd_ratio_mcse"],
            worst,
            sampler if fit.is_ep else f"EP or {sampler}",
            bool(fit.discrete.all()),
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
        from adfpp.show.export import fit_to_arviz

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
        from adfpp.show.plots import draw

        return draw(self, kind, **options)

    def report(self, path: str | Path) -> Path:
        """Writes one self-contained HTML page: tables, pictures, how the model was understood, how to repeat it.

        Returns:
            The path written.
        """
        from adfpp.show.report import write_report

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
    reference: Any = "auto",
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
        runs: ``{name: run}``, each an ``ADF``, ``EP``, NumPyro ``SVI`` or ``MCMC``, all of one model, or a learner of
            ``adfpp.papers.baselines``, where the model's only latent site is the weights of rows x with labels or
            values y.
        *args: The model's arguments.
        reference: "auto", "nuts", "enumeration", "gibbs", an ``MCMC`` (run if it has not been yet), draws
            ``{site: (draw, …) or (chain, draw, …)}``, or the name of another run. "auto" is NUTS, which takes no
            discrete latents; where there are some, "enumeration" of all their values if there are no others and at most
            2^14 combinations, which is exact; else "gibbs", NumPyro's ``DiscreteHMCGibbs`` with NUTS for the continuous
            sites, or its ``DiscreteGibbs``.
        num_samples: Draws from each approximation, and in all from the reference.
        num_warmup: Warm-up steps of the reference's chains.
        num_chains: Its chains.
        svi_steps: Steps of every ``SVI``.
        progress_bar: Whether to show what is being done.
        **kwargs: The model's keyword arguments.
    """
    if not runs:
        raise ValueError('No runs to compare: pass for example {"adf": adfpp.ADF(model), "ep": adfpp.EP(model)}.')
    _refuse_unknown(runs, reference)
    model = _model_of(runs, reference)
    refuse_clashes(model, compare, args)
    program, explanation = _read(runs, model, args, kwargs)
    joint = Joint(program, args, kwargs)
    if isinstance(reference, str) and reference not in runs:
        reference = _kind_of(reference, program)
    _refuse_discrete({**runs, "reference": reference}, program)
    if "reference" in runs and not isinstance(reference, str):
        raise ValueError("A run is called 'reference', which is what the reference given is called; rename the run.")
    keys = dict(zip([*runs, "reference"], jax.random.split(rng_key, len(runs) + 1), strict=True))
    given = reference if isinstance(reference, str) and reference in runs else "reference"
    if given == "reference" and isinstance(reference, str):
        given = reference if reference not in runs else "reference"
    fits: dict[str, Fit] = {}
    with announced(len(runs) + (given not in runs), "run", progress_bar) as begun:
        for name, run in runs.items():
            begun(name)
            fits[name] = _fitted(name, run, program, keys[name], args, kwargs, num_samples, svi_steps)
        if given not in runs:
            begun(given)
            if not isinstance(reference, Mapping):
                _refuse_impossible_rows(fits)
            key, lengths = keys["reference"], (num_warmup, num_samples, num_chains)
            if isinstance(reference, str) and reference == "enumeration":
                every = np.arange(joint.length)
                fits[given] = fit_enumerated(given, joint, key, every, num_samples, num_chains)
            else:
                fits[given] = _reference_fit(given, reference, program, key, args, kwargs, *lengths)
    fits = {name: fit.beside(fits[given]) for name, fit in fits.items()}
    weighted, elpd = {}, {}
    counted = _absorbed_by_all(fits, joint.length)
    for name, fit in fits.items():
        # a density is one of coordinates: those of this run
        own = joint if same_coordinates(fit.program, program) else Joint(fit.program, args, kwargs)
        weighted_fit, elpd[name] = _weighed(fit, own, counted, num_samples)
        if weighted_fit is not None:
            weighted[name] = weighted_fit
    learners = {name: run for name, run in runs.items() if _is_learner(run) or isinstance(run, Comparable)}
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
    """Whether it is an online learner of a model."""
    return hasattr(run, "run") and hasattr(run, "get_posterior") and not isinstance(run, SVI | MCMC)


def _refuse_unknown(runs: Mapping[str, Any], reference: Any) -> None:
    for name, run in runs.items():
        if not isinstance(run, SVI | MCMC | Comparable) and not _is_learner(run):
            raise TypeError(
                f"Run {name!r} is a {type(run).__name__}; it must be an adfpp.ADF, an adfpp.EP, a "
                "numpyro.infer.SVI, a numpyro.infer.MCMC or one of adfpp.papers.baselines."
            )
        if _is_learner(run) and not isinstance(getattr(run, "dynamics", Static()), Static):
            raise ValueError(
                f"Run {name!r} has dynamics: its posterior is about parameters that move from row to row, which no "
                "reference with parameters that stay is comparable to. Score its one-step-ahead predictions instead, "
                "result.info.log_z, or adfpp.check."
            )
    if isinstance(reference, str) and reference not in _REFERENCES and reference not in runs:
        known = ", ".join(f'"{name}"' for name in _REFERENCES)
        raise ValueError(f"reference is {reference!r}; it must be {known}, or one of the runs {sorted(runs)}.")
    if not isinstance(reference, str | MCMC | Mapping):
        raise TypeError(
            f'reference is a {type(reference).__name__}; it must be "nuts", the name of a run, an MCMC, or draws '
            "{site: array}."
        )


def _kind_of(reference: str, program: Program) -> str:
    """Which reference it is to be, after checking that the model can have it."""
    shared = [s.name for s in discrete_latents(program)]
    names = shared + [s.name for s in program.local if s.support is not None]
    others = [s.name for s in program.latents if not s.discrete and s.size]
    every = None if reference == "nuts" else combinations(program)
    if reference == "auto":
        return "nuts" if not names else "gibbs" if every is None else "enumeration"
    if reference == "nuts" and names:
        raise ValueError(
            f"Site {names[0]!r} is discrete, and NUTS samples continuous sites only: it has no gradient to follow. "
            'Leave reference="auto", or say reference="enumeration" or "gibbs".'
        )
    if reference == "enumeration" and every is None:
        cause = f"site {others[0]!r} is continuous" if others else f"there are more than {MOST} combinations of values"
        cause = "it has no discrete latent site" if not shared else cause
        cure = '"gibbs"' if shared else '"nuts"'
        raise ValueError(f"The posterior of this model cannot be enumerated: {cause}. Use reference={cure}.")
    if reference == "gibbs":
        if not names:
            raise ValueError("reference='gibbs' samples discrete sites, and the model has none: use reference='nuts'.")
        for site in discrete_latents(program):
            if site.native.values != tuple(range(len(site.native.values))):
                raise ValueError(
                    f"Site {site.name!r} has the values {site.native.values}, and NumPyro's Gibbs sampler takes "
                    "0, 1, 2, … only. Write the model with such a code and compute the values from it, e.g. 2 * sign - 1."
                )
    return reference


def _refuse_discrete(runs: Mapping[str, Any], program: Program) -> None:
    """HMC and NUTS given by the user, on a model with discrete sites that rows share."""
    discrete = discrete_latents(program)
    for name, run in runs.items():
        if discrete and isinstance(run, MCMC) and isinstance(run.sampler, HMC) and run.last_state is None:
            raise ValueError(
                f"{name!r} is an MCMC with {type(run.sampler).__name__}, which samples continuous sites only, and site "
                f"{discrete[0].name!r} is discrete. Use NumPyro's DiscreteHMCGibbs, or draws of your own."
            )


def _model_of(runs: Mapping[str, Any], reference: Any) -> Any:
    """The model of the first run that has one."""
    for run in [*runs.values(), reference]:
        if not isinstance(run, Comparable | str | Mapping):
            return run.sampler.model if isinstance(run, MCMC) else run.model
    raise ValueError(
        "None of the runs has a model, only baselines: compare them with an adfpp.ADF, or give reference=MCMC(...)."
    )


def _read(
    runs: Mapping[str, Any], model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Program, Explanation | None]:
    """The model as the first online run reads it, or as it would be read."""
    found: tuple[Program, Explanation] | None = None
    for name, run in runs.items():
        if _is_learner(run):
            explanation = run.explain(*args, **kwargs)
            program = run.get_posterior(run.init(jax.random.key(0), *args, **kwargs)).program
            found = found or (program, explanation)
            first, mine = ({s.name: s.shape for s in p.latents} for p in (found[0], program))
            if list(first.items()) != list(mine.items()):
                raise ValueError(f"Run {name!r} is of another model: it has the sites {mine}, the run before {first}.")
    if found is not None:
        return found
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
        if any(s.native is not None and not s.discrete for s in program.latents):  # guides live in unconstrained space
            program = read(program.model, args, kwargs, program.layout.named("row"), moments_named("auto"))
        return fit_svi(name, run, program, rng_key, args, kwargs, num_samples, svi_steps)
    if isinstance(run, Comparable):
        return run.compared(name, program, rng_key, args, kwargs, num_samples)
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
        lengths = num_warmup, -(-num_samples // num_chains), num_chains
        if reference == "nuts":
            reference = nuts(program.model, *lengths)
        else:
            found = any(not s.discrete for s in program.latents) or any(s.support is None for s in program.local)
            reference = gibbs(program.model, found, *lengths)
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
    if fit.table is not None:
        return f"reference: exact, all {len(fit.table.theta)} combinations enumerated"
    words = f"reference: R-hat at most {np.nanmax(fit.r_hat):.3f}, ESS at least {np.min(fit.ess):.0f}"
    tells = isinstance(fit.source, MCMC) and diverging_of(fit.source) is not None
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
        weighted = reweighted(some, log_joint, log_q, fit.program.constrain, levels(fit.program))
        ratio = log_joint - log_q
    if fit.table is not None:
        some, ratio = fit.table.theta, fit.table.log_weights

    def log_lik(rows: np.ndarray) -> np.ndarray:
        logs = joint.log_likelihood(some, counted[rows])
        return np.sum([a.reshape(*a.shape[:2], -1).sum(-1) for a in logs.values()], 0)

    return weighted, leave_one_out(log_lik, ratio, len(counted), _ELPD_ROWS, fit.table is not None)


# ------------------------------------------------------------------------------------------------- the measures


def _errors(fit: Fit, truth: Fit) -> dict[str, np.ndarray]:
    """Of each scalar parameter, in the reference's sds; of a discrete one in those of a fair coin."""
    with np.errstate(divide="ignore", invalid="ignore"):  # draws that do not move
        ratio = fit.sd / truth.sd
        distance = np.abs(fit.quantiles(_LEVELS) - truth.quantiles(_LEVELS)).mean(0) / truth.sd
        error = (fit.mean - truth.mean) / truth.sd
        noise, ratio_noise = np.array(truth.mcse), ratio * truth.sd_mcse
    for i in np.flatnonzero(truth.discrete).tolist():
        # twice the total variation distance
        distance[i] = np.abs(np.exp(fit.log_probabilities[i]) - np.exp(truth.log_probabilities[i])).sum()
        error[i] = np.copysign(distance[i], fit.mean[i] - truth.mean[i])
        noise[i] = truth.probability_se[i].sum()
        ratio[i] = ratio_noise[i] = np.nan
    return {"error": error, "mcse": noise, "sd_ratio": ratio, "sd_ratio_mcse": ratio_noise, "w1": distance}


def _filled(values: np.ndarray, instead: float) -> np.ndarray:
    return np.where(np.isnan(values), instead, values)


def _divergence(truth: Fit, fit: Fit) -> tuple[float, float]:
    """KL(reference || run), as the overview has it, and what the reference's sampling error adds to it."""
    if fit.is_point:
        return np.inf, 0.0
    if truth.table is not None:
        return _enumerated_divergence(truth, fit), 0.0
    divergence, noise = _gaussian_divergence(truth, fit) if not truth.discrete.all() else (0.0, 0.0)
    for i in np.flatnonzero(truth.discrete).tolist():
        marginal = _finite_divergence(truth.log_probabilities[i], fit.log_probabilities[i])
        # of a run's own draws it cannot be told how improbable what was never drawn is
        divergence += marginal if fit.posterior is not None or np.isfinite(marginal) else np.nan
        noise += (
            0.5 * float(truth.probability_se[i].sum() > 0) * (len(truth.log_probabilities[i]) - 1) / np.min(truth.ess)
        )
    return divergence, noise


def _finite_divergence(log_p: np.ndarray, log_q: np.ndarray) -> float:
    seen = log_p > -np.inf
    return max(0.0, float(np.sum(np.exp(log_p[seen]) * (log_p[seen] - log_q[seen]))))


def _enumerated_divergence(truth: Fit, fit: Fit) -> float:
    """That of the joint distributions, exactly; blank for a run that gives draws alone."""
    assert truth.table is not None
    if fit.table is not None:
        return _finite_divergence(truth.table.log_weights, fit.table.log_weights)
    if fit.posterior is None:
        return np.nan
    log_q: Any = fit.posterior.distribution.log_prob(truth.table.theta)
    return _finite_divergence(truth.table.log_weights, np.asarray(log_q, float))


def _gaussian_divergence(truth: Fit, fit: Fit) -> tuple[float, float]:
    """That of Gaussians with their moments, in the run's continuous coordinates."""
    if same_coordinates(truth.program, fit.program):
        mean, covariance = truth.unconstrained
    else:
        theta = truth.in_space_of(fit.program)
        mean, covariance = theta.mean(0), np.atleast_2d(np.cov(theta.T))
    other_mean, other = fit.unconstrained
    keep = _free(fit.program)
    mean, other_mean, covariance, other = mean[keep], other_mean[keep], covariance[keep][:, keep], other[keep][:, keep]
    size = len(mean)
    effective = np.min(truth.ess)
    noise = 0.0 if np.isinf(effective) else (size + 0.5 * size * (size + 1)) / (2.0 * effective)
    if not (_is_definite(covariance) and _is_definite(other)):
        return np.nan, noise  # not finite, or from fewer draws than numbers
    inverse = np.linalg.inv(other)
    gap = other_mean - mean
    logs = np.linalg.slogdet(other)[1] - np.linalg.slogdet(covariance)[1]
    return float(0.5 * (np.trace(inverse @ covariance) + gap @ inverse @ gap - size + logs)), float(noise)


def _free(program: Program) -> np.ndarray:
    """Places of θ's continuous coordinates that are free: without the last of each simplex held in its own space."""
    out = np.array([v is None for v in levels(program)])
    if isinstance(program.family, Product):
        for part in program.family.parts:
            if not part.gaussian and part.family.dim > 1:
                out[part.places[:, -1]] = False
    return np.flatnonzero(out)


def _is_definite(covariance: np.ndarray) -> bool:
    """Whether it has full rank, whatever the sites' units."""
    sd = np.sqrt(np.diag(covariance))
    if not (np.isfinite(covariance).all() and (sd > 0.0).all()):
        return False
    return int(np.linalg.matrix_rank(covariance / np.outer(sd, sd))) == len(sd)


def judgement(
    error: float,
    noise: float,
    low: float,
    high: float,
    sd_noise: float,
    worst: str,
    cure: str = "EP or NUTS",
    discrete: bool = False,
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
        discrete: Whether all parameters are: errors are then twice those of probabilities, and there are no sds.
    """
    if discrete:
        low = high = 1.0
        sd_noise = 0.0
    if not np.isfinite([error, low, high]).all():
        return "failed: not finite"
    off = max(1.0 / low if low > 0.0 else np.inf, high) - 1.0
    within = f"means within {error:.2f} sd (reference's error {noise:.2f}), sds {low:.2f} to {high:.2f} of its"
    if discrete:
        within = f"probabilities within {0.5 * error:.2g} (reference's error {0.5 * noise:.2g})"
    if error <= _SAME + 3.0 * noise and off <= _SAME + 3.0 * sd_noise:
        return f"as good as the reference can tell: {within}"
    if error <= _CLOSE + 3.0 * noise and off <= _CLOSE + 3.0 * sd_noise:
        return f"close: {within}"
    if error <= _ROUGH + 3.0 * noise and off <= _ROUGH + 3.0 * sd_noise:
        return f"rough: {within}, worst {worst}; run {cure} before an interval is reported"
    return f"wrong: {within}, worst {worst}; do not use it"
