"""Measures how far fast approximations are from a reference: NUTS with its Monte-Carlo error, or enumeration.

``compare`` runs everything once and keeps the fits; ``Comparison`` makes tables and verdicts of them. The methods are
run in ``runs``, the references in ``references``; the numbers are computed in ``measures``, the grades in ``verdict``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpyro.infer import MCMC, SVI

from adfpp.engine.dynamics import Static
from adfpp.engine.status import Status
from adfpp.engine.tilt import moments_named
from adfpp.judge.fits import Comparable, Fit, same_coordinates
from adfpp.judge.measures import Distance, ParameterErrors, distance, parameter_errors, worst_parameter
from adfpp.judge.references import (
    REFERENCES,
    Reference,
    doubts_about,
    fit_reference,
    is_hopeless,
    kind_of,
    refuse_discrete,
    verdict_on_reference,
    verdict_without_reference,
)
from adfpp.judge.runs import fit_mcmc, fit_online, fit_svi
from adfpp.judge.verdict import Errors, Reason, Verdict, named, verdict_beside_reference
from adfpp.learn.explain import Explanation
from adfpp.learn.importance import GOOD_K, Elpd, Reweighted, leave_one_out, reweighted
from adfpp.learn.keys import checked_key
from adfpp.learn.stream import announced
from adfpp.model import Joint, Model, Program, read, refuse_clashes
from adfpp.model.discrete import levels

_ELPD_ROWS = 4096  # rows that are used for leave-one-out; the total is scaled up from them


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several runs and a reference to compare them with.

    Attributes:
        fits: Every run by name, with the reference among them.
        reference: Name of the reference.
        doubts: Why the reference should not be called the truth; empty if it is clean.
        joint: The model with its data.
        reweighted: Each approximation corrected by importance weights, by name.
        elpd: The expected log predictive density of each run, by name.
        explanation: How the model was understood, if one of the runs explains it.
        learners: The runs of ``ADF``, ``EP`` and baselines, by name.
        data: The call's arguments and keyword arguments.
        options: The other options of the call, so that it can be repeated.
    """

    fits: dict[str, Fit]
    reference: str
    doubts: tuple[Reason, ...]
    joint: Joint
    reweighted: dict[str, Reweighted]
    elpd: dict[str, Elpd]
    explanation: Explanation | None
    learners: dict[str, Any]
    data: tuple[tuple[object, ...], dict[str, Any]]
    options: dict[str, object]

    @property
    def truth(self) -> Fit:
        """The fit of the reference."""
        return self.fits[self.reference]

    @property
    def names(self) -> list[str]:
        """The runs without the reference."""
        return [name for name in self.fits if name != self.reference]

    @property
    def problems(self) -> tuple[str, ...]:
        """The doubts about the reference in words."""
        return tuple(map(str, self.doubts))

    # ------------------------------------------------------------------------------------------ tables

    @cached_property
    def parameters(self) -> Any:  # pandas' stubs refuse many valid uses of a table
        """A pandas ``DataFrame`` with a row for each run and scalar parameter.

        ``error`` is the run's mean minus the reference's in sds of the reference and ``mcse`` the reference's own
        Monte-Carlo standard error of it, ``sd_ratio`` the run's sd over the reference's, ``w1`` the Wasserstein-1
        distance of the marginals in sds of the reference. Elements that cannot vary, such as those above the diagonal
        of a Cholesky factor, are left out.

        The sd of a discrete parameter goes to 0 as the parameter becomes certain, so that errors cannot be measured in
        it. Its ``error`` and ``w1`` are twice the total variation distance of its marginals (with the sign of the
        difference of the means). This is a distance in sds of a fair coin: an ``error`` of 0.1 is a probability that is
        off by 0.05. Its ``sd_ratio`` is blank, because its probabilities already determine its sd.
        """
        import pandas as pd

        tables = []
        for name, fit in self.fits.items():
            columns: dict[str, object] = {"run": name, "parameter": fit.names, "mean": fit.mean, "sd": fit.sd}
            if name != self.reference:
                columns |= self._errors[name]._asdict()
            tables.append(pd.DataFrame(columns))
        return pd.concat(tables).set_index(["run", "parameter"])

    @cached_property
    def overview(self) -> Any:
        """A pandas ``DataFrame`` with a row for each run.

        Errors are distances from the reference in its sds. The column ``…_mcse`` beside an error is the reference's own
        Monte-Carlo standard error: differences below it may be chance.

        Columns: ``error_max`` and ``error_rms`` of the means; ``sd_ratio_min`` and ``sd_ratio_max``; ``kl``, the
        divergence between Gaussians with the moments of reference and run in the run's coordinates (unconstrained ones,
        or a latent's native space), plus that between the marginals of discrete latents, or the exact one where the
        reference enumerates; ``w1_max``, the largest Wasserstein-1 distance of a marginal; ``k_hat`` of the run as a
        proposal for the posterior (blank where all latents are discrete, because weights of finitely many values have
        no tail); ``elpd`` by leave-one-out with its standard error ``elpd_se`` and the share ``elpd_good`` of rows
        whose weights are good (rows that an online run refused count neither here nor in ``k_hat``); ``log_evidence``
        where it is known (ADF's and EP's own, else from importance weights if they are good); ``compile_seconds``;
        ``run_seconds`` (for MCMC warm-up and sampling); ``sampling_seconds`` (without the warm-up); ``speed_up``, the
        reference's ``run_seconds`` over the run's; and a ``verdict`` in words, which ``verdicts`` has as data. The
        documentation of ``parameters`` says in which unit errors of discrete parameters are measured.
        """
        import pandas as pd

        rows = {}
        for name in [*self.names, self.reference]:
            apart = self._distances.get(name)
            blank = dict.fromkeys(Distance._fields, np.nan)
            distances = blank if apart is None else apart._asdict()
            row = {"method": self.fits[name].method, **distances, **self._scores(name)}
            rows[name] = row | {"verdict": str(self.verdicts[name])}
        return pd.DataFrame.from_dict(rows, orient="index")

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict on each run, and on the reference: a grade and the reasons for it."""
        verdicts = {name: self._verdict(name) for name in self.names}
        return verdicts | {self.reference: verdict_on_reference(self.truth, self.doubts)}

    @cached_property
    def _errors(self) -> dict[str, ParameterErrors]:
        with np.errstate(over="ignore", invalid="ignore"):  # the verdict of a run says if it has diverged
            return {name: parameter_errors(self.fits[name], self.truth) for name in self.names}

    @cached_property
    def _distances(self) -> dict[str, Distance]:
        with np.errstate(over="ignore", invalid="ignore"):
            return {name: distance(self._errors[name], self.fits[name], self.truth) for name in self.names}

    def _scores(self, name: str) -> dict[str, float]:
        fit, truth = self.fits[name], self.truth
        weighted, elpd = self.reweighted.get(name), self.elpd[name]
        log_evidence = fit.log_evidence
        if np.isnan(log_evidence) and weighted is not None and weighted.k_hat <= GOOD_K:
            log_evidence = weighted.log_evidence
        return {
            "k_hat": np.nan if weighted is None or truth.discrete.all() else weighted.k_hat,
            "elpd": elpd.total,
            "elpd_se": elpd.se,
            "elpd_good": float(np.mean(elpd.good)),
            "log_evidence": log_evidence,
            "compile_seconds": fit.compile_seconds,
            "run_seconds": fit.run_seconds,
            "sampling_seconds": fit.sampling_seconds,
            "speed_up": np.nan if name == self.reference else truth.run_seconds / fit.run_seconds,
        }

    def _verdict(self, name: str) -> Verdict:
        fit, apart = self.fits[name], self._distances[name]
        if is_hopeless(self.truth):
            return verdict_without_reference(self.reference, self.truth)
        errors = Errors(
            apart.error_max,
            apart.error_max_mcse,
            apart.sd_ratio_min,
            apart.sd_ratio_max,
            apart.sd_ratio_mcse,
            fit.names[worst_parameter(self._errors[name])],
            bool(fit.discrete.all()),
        )
        sampler = "Gibbs sampling" if fit.discrete.any() else "NUTS"
        return verdict_beside_reference(
            errors, sampler if fit.is_ep else f"EP or {sampler}", fit.notes, bool(self.doubts)
        )

    def __repr__(self) -> str:
        """The most important columns of the overview, and the verdicts."""
        table = self.overview
        shown = ["error_max", "error_max_mcse", "sd_ratio_min", "sd_ratio_max", "kl", "k_hat", "elpd", "elpd_se"]
        shown += ["elpd_good", "run_seconds", "speed_up"]
        lines = [table[shown].map(_rounded).to_string(), ""]
        width = max(len(str(name)) for name in table.index)
        lines += [f"{name:<{width}}  {words}" for name, words in table["verdict"].items()]
        return "\n".join(lines)

    # ------------------------------------------------------------------------------------------ conveniences

    def to_arviz(self, **options: Any) -> dict[str, Any]:
        """``{run: InferenceData (ArviZ 0.2x) or DataTree (1.x)}``; options are those of ``adfpp.to_arviz``."""
        from adfpp.show.export import fit_to_arviz

        args, kwargs = self.data
        return {name: fit_to_arviz(fit, *args, **options, **kwargs) for name, fit in self.fits.items()}

    def plot(self, kind: str = "all", **options: Any) -> Any:
        """Pictures of the comparison, as Matplotlib figures.

        Args:
            kind: "forest" (intervals of all runs side by side), "marginals", "probabilities" (of the values of discrete
                latents), "predictions" (each row's predicted mean or probability against the reference's), "learning"
                (mean ± sd of online runs along the stream towards the reference), or "all".
            **options: Passed on, e.g. ``parameters=["w[0]", "b"]`` to show some parameters only.

        Returns:
            A figure; for "all" a dict of figures by kind.
        """
        from adfpp.show.plots import draw

        return draw(self, kind, **options)

    def report(self, path: str | Path) -> Path:
        """Writes one self-contained HTML page: tables, pictures, how the model was understood, how to repeat it.

        It needs Jinja2 and, for the pictures, Matplotlib: ``pip install "adfpp[report]"``.

        Returns:
            The path written.
        """
        from adfpp.show.report import write_report

        return write_report(self, Path(path))


def compare(
    rng_key: jax.Array,
    runs: Mapping[str, Any],
    *args: Any,
    reference: Reference = "auto",
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
            ``adfpp.papers.baselines``, where the model's only latent is the weights of rows x with labels or values y.
        *args: The model's arguments.
        reference: "auto", "nuts", "enumeration", "gibbs", an ``MCMC`` (run if it has not been yet), draws
            ``{latent: (draw, …) or (chain, draw, …)}``, or the name of another run. "auto" is NUTS, which samples no
            discrete latents. Where all latents are discrete and have at most 2^14 combinations of values, it is the
            "enumeration" of all of them, which is exact. Where there are more, or continuous latents as well, it is
            "gibbs": NumPyro's ``DiscreteHMCGibbs`` with NUTS for the continuous latents, or its ``DiscreteGibbs``.
        num_samples: Number of draws from each approximation, and in total from the reference.
        num_warmup: Number of warm-up steps of each chain of the reference.
        num_chains: Number of chains of the reference.
        svi_steps: Number of steps of every ``SVI``.
        progress_bar: Whether to show a progress bar with a step for each run.
        **kwargs: The model's keyword arguments.
    """
    if not runs:
        raise ValueError('No runs to compare: pass for example {"adf": adfpp.ADF(model), "ep": adfpp.EP(model)}.')
    _refuse_unknown(runs, reference)
    model = _model_of(runs, reference)
    refuse_clashes(model, compare, args)
    rng_key = checked_key(rng_key, "adfpp.compare")
    program, explanation = _read(runs, model, args, kwargs)
    joint = Joint(program, args, kwargs)
    if isinstance(reference, str) and reference not in runs:
        reference = kind_of(reference, program)
    refuse_discrete({**runs, "reference": reference}, program)
    if "reference" in runs and not isinstance(reference, str):
        raise ValueError(
            "A run is called 'reference', which is the name of the reference that was passed: rename the run."
        )
    reference_name = reference if isinstance(reference, str) else "reference"
    keys = dict(zip([*runs, "reference"], jax.random.split(rng_key, len(runs) + 1), strict=True))
    fits: dict[str, Fit] = {}
    with announced(len(runs) + (reference_name not in runs), "run", progress_bar) as announce:
        for name, run in runs.items():
            announce(name)
            fits[name] = _fit(name, run, program, keys[name], args, kwargs, num_samples, svi_steps)
        if reference_name not in runs:
            announce(reference_name)
            if not isinstance(reference, Mapping):
                _refuse_impossible_rows(fits)
            lengths = num_warmup, num_samples, num_chains
            fits[reference_name] = fit_reference(
                reference_name, reference, joint, keys["reference"], args, kwargs, *lengths
            )
    fits = {name: fit.beside(fits[reference_name]) for name, fit in fits.items()}
    weighted, elpd = {}, {}
    counted = _absorbed_by_all(fits, joint.length)
    for name, fit in fits.items():
        # a density depends on the coordinates, so those of this run are used
        native = joint if same_coordinates(fit.program, program) else Joint(fit.program, args, kwargs)
        weighted_fit, elpd[name] = _weigh(fit, native, counted, num_samples)
        if weighted_fit is not None:
            weighted[name] = weighted_fit
    return Comparison(
        fits=fits,
        reference=reference_name,
        doubts=doubts_about(fits[reference_name]),
        joint=joint,
        reweighted=weighted,
        elpd=elpd,
        explanation=explanation,
        learners={name: run for name, run in runs.items() if _is_learner(run) or isinstance(run, Comparable)},
        data=(args, dict(kwargs)),
        options={
            "rng_key": np.asarray(jax.random.key_data(rng_key)).tolist(),
            "reference": reference if isinstance(reference, str) else None,
            "num_samples": num_samples,
            "num_warmup": num_warmup,
            "num_chains": num_chains,
            "svi_steps": svi_steps,
        },
    )


def _rounded(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3g}"


# ---------------------------------------------------------------------------------------------------- the runs


def _is_learner(run: object) -> bool:
    """Whether a run is an online learner of a model, such as ``ADF`` or ``EP``."""
    return hasattr(run, "run") and hasattr(run, "get_posterior") and not isinstance(run, SVI | MCMC)


def _refuse_unknown(runs: Mapping[str, object], reference: object) -> None:
    for name, run in runs.items():
        if not isinstance(run, SVI | MCMC | Comparable) and not _is_learner(run):
            raise TypeError(
                f"Run {name!r} is a {type(run).__name__}; it must be an adfpp.ADF, an adfpp.EP, a "
                "numpyro.infer.SVI, a numpyro.infer.MCMC or one of adfpp.papers.baselines."
            )
        if _is_learner(run) and not isinstance(getattr(run, "dynamics", Static()), Static):
            raise ValueError(
                f"Run {name!r} has dynamics: its posterior is about parameters that change from row to row, and a "
                "reference is about constant parameters, so that the two cannot be compared. Score its one-step-ahead "
                "predictions instead (result.info.log_z), or use adfpp.check."
            )
    if isinstance(reference, str) and reference not in REFERENCES and reference not in runs:
        known = ", ".join(f'"{name}"' for name in REFERENCES)
        raise ValueError(f"reference is {reference!r}; it must be {known}, or one of the runs {sorted(runs)}.")
    if not isinstance(reference, str | MCMC | Mapping):
        raise TypeError(
            f'reference is a {type(reference).__name__}; it must be "nuts", the name of a run, an MCMC, or draws '
            "{latent: array}."
        )


def _model_of(runs: Mapping[str, Any], reference: Reference) -> Model:
    """The model of the first run that has one."""
    for run in [*runs.values(), reference]:
        if not isinstance(run, Comparable | str | Mapping):
            return run.sampler.model if isinstance(run, MCMC) else run.model
    raise ValueError(
        "None of the runs has a model, because all are baselines. Compare them with an adfpp.ADF, or pass "
        "reference=MCMC(...)."
    )


def _read(
    runs: Mapping[str, Any], model: Model, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[Program, Explanation | None]:
    """The model as the first online run reads it, or as an ``ADF`` would read it."""
    first: tuple[Program, Explanation] | None = None
    for name, run in runs.items():
        if _is_learner(run):
            explanation = run.explain(*args, **kwargs)
            program = run.get_posterior(run.init(jax.random.key(0), *args, **kwargs)).program
            first = first or (program, explanation)
            shapes, mine = ({s.name: s.shape for s in p.latents} for p in (first[0], program))
            if list(shapes.items()) != list(mine.items()):
                raise ValueError(
                    f"Run {name!r} is of another model: its latents are {mine}, and those of the first run {shapes}."
                )
    if first is not None:
        return first
    return read(model, args, kwargs, None, moments_named("auto")), None


def _fit(
    name: str,
    run: Any,
    program: Program,
    rng_key: jax.Array,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    num_samples: int,
    svi_steps: int,
) -> Fit:
    if isinstance(run, MCMC):
        return fit_mcmc(name, run, program, rng_key, args, kwargs)
    if isinstance(run, SVI):
        # guides are in unconstrained space, even if the online runs keep a latent in its native space
        if any(latent.native is not None and not latent.discrete for latent in program.latents):
            program = read(program.model, args, kwargs, program.layout.carriers, moments_named("auto"))
        return fit_svi(name, run, program, rng_key, args, kwargs, num_samples, svi_steps)
    if isinstance(run, Comparable):
        return run.compared(name, program, rng_key, args, kwargs, num_samples)
    return fit_online(name, run, rng_key, args, kwargs, num_samples)


# ---------------------------------------------------------------------------------------------------- the rows


def _refuse_impossible_rows(fits: Mapping[str, Fit]) -> None:
    """Refuses rows that an online run refused: a sampler would fail at its first step without naming them."""
    for name, fit in fits.items():
        rows = np.flatnonzero(np.isin(fit.statuses, (Status.NOT_FINITE, Status.OUT_OF_SUPPORT)))
        if len(rows):
            raise ValueError(
                f"{len(rows)} rows ({named(rows.tolist())}) have NaN or values outside the support: {name!r} refused "
                "them, and the reference cannot be run with them. Drop or mask them first."
            )


def _absorbed_by_all(fits: Mapping[str, Fit], length: int) -> np.ndarray:
    """Rows that no online run refused."""
    counted = np.setdiff1d(np.arange(length), np.concatenate([fit.refused for fit in fits.values()]))
    if not len(counted):
        raise ValueError("All rows were refused: there is nothing to compare. See info.status of the online run.")
    return counted


def _weigh(fit: Fit, joint: Joint, counted: np.ndarray, num_samples: int) -> tuple[Reweighted | None, Elpd]:
    """Importance weights of an approximation, and leave-one-out of the rows ``counted`` with them."""
    theta = fit.flat[:: max(1, len(fit.flat) // num_samples)]
    ratio, weighted = np.zeros(len(theta)), None
    if fit.log_q is not None:
        theta, log_q = fit.flat, fit.log_q.reshape(-1)
        absorbed = np.setdiff1d(np.arange(joint.length), fit.refused)
        log_joint = joint.log_joint(theta, absorbed)
        weighted = reweighted(theta, log_joint, log_q, fit.program.constrain, levels(fit.program))
        ratio = log_joint - log_q
    if fit.table is not None:
        theta, ratio = fit.table.theta, fit.table.log_weights

    def log_lik(rows: np.ndarray) -> np.ndarray:
        logs = joint.log_likelihood(theta, counted[rows])
        return np.sum([a.reshape(*a.shape[:2], -1).sum(-1) for a in logs.values()], 0)

    return weighted, leave_one_out(log_lik, ratio, len(counted), _ELPD_ROWS, fit.table is not None)
