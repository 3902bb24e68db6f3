"""Measures how near expectation propagation is to NUTS, and how much faster it is, mostly on real data sets.

    python -m benchmarks.ep [--write] [--only NAME ...] [--quick] [--cache FOLDER]

`--write` puts the table into docs/ep-accuracy.md, `--only` selects the data sets whose name contains one of the words,
`--quick` leaves out those with many rows or parameters, and `--cache` keeps NUTS's draws in a folder, so that a second
run is fast. The data comes with scikit-learn and statsmodels; nothing is downloaded.
"""

import argparse
import os
import platform
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from sklearn.datasets import load_breast_cancer, load_iris

import adfpp
from adfpp.engine.tilt import moments_named
from adfpp.model import read
from benchmarks import references
from benchmarks.references import Reference, Sampling
from models import (
    eight_schools,
    eight_schools_noncentred,
    item_response,
    logistic,
    poisson,
    probit,
    random_walk,
    softmax,
    student_t,
    varying_intercepts,
)

PAGE = Path(__file__).parent.parent / "docs" / "ep-accuracy.md"
_REPEATS = 5


class Bound(NamedTuple):
    """The bounds on EP's errors, beyond NUTS's own Monte-Carlo error.

    Attributes:
        mean: Largest error of a mean, in posterior sds.
        sd: Largest relative error of an sd; infinite if there is no bound.
        sd_of: The latents whose sds have this bound; None for all latents.
    """

    mean: float
    sd: float = np.inf
    sd_of: tuple[str, ...] | None = None


LOG_CONCAVE = Bound(0.05, 0.03)
OTHER = Bound(0.1)
HIERARCHY = Bound(0.15, 0.15, ("tau",))


@dataclass(frozen=True)
class Case:
    """One model and data set.

    Attributes:
        name: The name in the table.
        model: A NumPyro model.
        load: Returns the model's keyword arguments.
        bound: The bounds on the errors.
        large: Whether ``--quick`` leaves the case out.
        draws: NUTS's draws in each chain: enough for its own error to be small compared with the bound.
        accept: NUTS's target acceptance probability.
        dense: Whether NUTS adapts a full mass matrix, which is faster if parameters are correlated.
        sampled: A model with the same posterior that is easier for NUTS, and the map from its draws to the model's.
        options: Options of ``EP``.
    """

    name: str
    model: Callable[..., None]
    load: Callable[[], dict[str, Any]]
    bound: Bound
    large: bool = False
    draws: int = 10_000
    accept: float = 0.8
    dense: bool = True
    sampled: tuple[Callable[..., None], Callable[[dict[str, Any]], dict[str, Any]]] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------------ the data


def _standardised(x: Any) -> np.ndarray:
    """Columns scaled to mean 0 and sd 1, without constant columns."""
    x = np.asarray(x, float)
    x = x[:, x.std(0) > 0]
    return (x - x.mean(0)) / x.std(0)


def _with_ones(x: np.ndarray) -> np.ndarray:
    return np.column_stack([x, np.ones(len(x))])


def _statsmodels(name: str) -> Any:
    """A data set of statsmodels as a pandas frame, with the names of its columns."""
    import statsmodels.datasets

    return getattr(statsmodels.datasets, name).load_pandas()


def _breast_cancer() -> dict[str, Any]:
    data: Any = load_breast_cancer()
    return {"x": _standardised(data.data), "y": 1 - data.target, "scale": 2.5}


def _spector() -> dict[str, Any]:
    found = _statsmodels("spector")
    return {"x": _standardised(found.exog), "y": np.asarray(found.endog, int), "scale": 2.5}


def _for_probit(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "x": _with_ones(data["x"])}


def _star98() -> dict[str, Any]:
    found = _statsmodels("star98")
    counts = np.asarray(found.endog, float)
    return {"x": _standardised(found.exog), "trials": counts.sum(1), "y": counts[:, 0]}


def _counts(name: str) -> Callable[[], dict[str, Any]]:
    def load() -> dict[str, Any]:
        found = _statsmodels(name)
        return {"x": _standardised(found.exog), "y": np.asarray(found.endog, float), "scale": 2.5}

    return load


def _stackloss() -> dict[str, Any]:
    found = _statsmodels("stackloss")
    y = np.asarray(found.endog, float)
    y = (y - y.mean()) / y.std()
    return {"x": _standardised(found.exog), "y": y, "df": 4.0, "noise": 0.2, "scale": 2.5}


def _iris() -> dict[str, Any]:
    data: Any = load_iris()
    return {"x": _standardised(data.data), "y": data.target, "n_classes": 3}


def _sorted_by_label() -> dict[str, Any]:
    """A survey of 6366 answers about extramarital affairs, sorted so that all rows with label 0 come first."""
    found = _statsmodels("fair")
    y = (np.asarray(found.endog) > 0).astype(int)
    order = np.argsort(y, kind="stable")
    return {"x": _standardised(found.exog)[order], "y": y[order], "scale": 2.5}


def _simulated(module: Any, seed: int, rows: int, **sizes: int) -> Callable[[], dict[str, Any]]:
    def load() -> dict[str, Any]:
        return module.simulate(jax.random.key(seed), rows, **sizes).data

    return load


def binomial(x: Any, trials: Any, y: Any = None, scale: float = 2.5) -> None:
    """Logistic regression of binomial counts."""
    w = numpyro.sample("w", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, scale))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Binomial(trials, logits=x @ w + b), obs=y)


def _effects(draws: dict[str, Any]) -> dict[str, Any]:
    """The effects of schools from standardised effects."""
    mu, tau = draws["mu"], draws["tau"]
    return {"mu": mu, "tau": tau, "effect": mu[..., None] + tau[..., None] * draws["z"]}


CASES = (
    Case("breast cancer, logit", logistic.model, _breast_cancer, LOG_CONCAVE),
    Case("breast cancer, probit", probit.model, lambda: _for_probit(_breast_cancer()), LOG_CONCAVE),
    Case("spector, logit", logistic.model, _spector, LOG_CONCAVE, draws=40_000),
    Case("spector, probit", probit.model, lambda: _for_probit(_spector()), LOG_CONCAVE, draws=40_000),
    Case("star98, binomial logit", binomial, _star98, LOG_CONCAVE),
    Case("cpunish, Poisson", poisson.model, _counts("cpunish"), LOG_CONCAVE),
    Case("randhie, Poisson", poisson.model, _counts("randhie"), LOG_CONCAVE, large=True, draws=5000),
    Case("iris, softmax", softmax.model, _iris, LOG_CONCAVE),
    Case("stackloss, Student-t", student_t.model, _stackloss, OTHER),
    Case("fair, sorted by label", logistic.model, _sorted_by_label, LOG_CONCAVE, large=True, draws=5000),
    Case(
        "eight schools, centred",
        eight_schools.model,
        lambda: dict(eight_schools.DATA),
        HIERARCHY,
        accept=0.95,
        sampled=(eight_schools_noncentred.model, _effects),
    ),
    Case(
        "eight schools, non-centred",
        eight_schools_noncentred.model,
        lambda: dict(eight_schools.DATA),
        HIERARCHY,
        accept=0.95,
    ),
    Case(
        "varying intercepts",
        varying_intercepts.model,
        _simulated(varying_intercepts, 0, 919),
        HIERARCHY,
        accept=0.9,
        dense=False,
    ),
    Case(
        "item response",
        item_response.model,
        _simulated(item_response, 0, 1200, n_persons=60, n_items=20),
        HIERARCHY,
        accept=0.9,
        dense=False,
    ),
    Case("random walk", random_walk.model, _simulated(random_walk, 0, 200), HIERARCHY, accept=0.9, dense=False),
)


# ------------------------------------------------------------------------------------------- the reference


def reference(case: Case, data: dict[str, Any], program: Any, cache: Path | None) -> Reference:
    """Runs NUTS, or reads its draws from the cache."""
    sampling = Sampling(case.draws, case.accept, case.dense, case.sampled)
    return references.reference(case.name, case.model, data, program, sampling, cache)


# --------------------------------------------------------------------------------------------- measurement


class Ours(NamedTuple):
    """The result of EP.

    Attributes:
        program: The model as it was read.
        mean: ``(N,)`` posterior means in unconstrained space.
        sd: ``(N,)`` posterior sds in unconstrained space.
        converged: Whether EP reports convergence.
        sweeps: Number of sweeps.
        marked: Number of rows by status, other than OK.
        log_evidence: EP's estimate of log p(data).
        seconds: Median of several runs after the first.
        compile_seconds: Additional seconds of the first run.
    """

    program: Any
    mean: np.ndarray
    sd: np.ndarray
    converged: bool
    sweeps: int
    marked: dict[str, int]
    log_evidence: float
    seconds: float
    compile_seconds: float


def propagated(case: Case, data: dict[str, Any]) -> Ours:
    """Runs EP from the prior, with default settings unless the case has options."""
    ep = adfpp.EP(case.model, **case.options)
    taken: list[float] = []
    result: Any = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows that were marked are counted below
        for _ in range(1 + _REPEATS):
            begin = time.perf_counter()
            result = ep.run(jax.random.key(0), progress_bar=False, **data)
            jax.block_until_ready(result.state)
            taken.append(time.perf_counter() - begin)
    info, post = result.info, ep.get_posterior(result)
    counts = np.bincount(np.asarray(info.status).reshape(-1).astype(int))
    seconds = float(np.median(taken[1:]))
    return Ours(
        post.program,
        np.asarray(post.belief.mean),
        np.asarray(post.family.spread(post.belief, post.program.size)),
        bool(info.converged),
        int(info.sweeps),
        {adfpp.Status(s).name: int(c) for s, c in enumerate(counts) if s and c},
        float(info.log_evidence),
        seconds,
        max(0.0, taken[0] - seconds),
    )


class Line(NamedTuple):
    """One row of the table."""

    case: Case
    rows: int
    ours: Ours
    truth: Reference
    names: list[str]

    @property
    def errors(self) -> np.ndarray:
        """``(N,)`` errors of the means, in NUTS's sds."""
        return np.abs(self.ours.mean - self.truth.mean) / self.truth.sd

    @property
    def ratios(self) -> np.ndarray:
        """``(N,)`` EP's sds over NUTS's."""
        return self.ours.sd / self.truth.sd

    @property
    def judged(self) -> np.ndarray:
        """``(N,)`` which numbers have a bound on their sds."""
        chosen = np.ones(len(self.names), bool)
        if self.case.bound.sd_of is not None:
            for latent in self.ours.program.latents:
                chosen[latent.where] = latent.name in self.case.bound.sd_of
        return chosen

    @property
    def means_met(self) -> bool:
        """Whether every error of a mean is within its bound, up to 3 Monte-Carlo errors of NUTS."""
        return bool(np.all(self.errors <= self.case.bound.mean + 3 * self.truth.mcse))

    @property
    def sds_met(self) -> str:
        """Whether every sd is within its bound: "yes", "no", or "within noise" if only up to NUTS's own error."""
        off = np.abs(self.ratios - 1)[self.judged]
        if np.all(off <= self.case.bound.sd):
            return "yes"
        return "within noise" if np.all(off <= self.case.bound.sd + 3 * self.truth.sd_mcse[self.judged]) else "no"

    def cells(self) -> list[str]:
        """The row as text."""
        worst, ours, truth, bound = int(np.argmax(self.errors)), self.ours, self.truth, self.case.bound
        ratios = self.ratios[self.judged]
        asked = f"≤ {bound.mean:g} + 3 MCSE"
        ratio = f"{self.ratios.min():.3f} – {self.ratios.max():.3f}"
        if bound.sd_of is not None:
            ratio += f"; log {', '.join(bound.sd_of)}: {' '.join(f'{r:.3f}' for r in ratios)}"
        if np.isfinite(bound.sd):
            asked += f"; sd within {bound.sd:g}"
        met = ("yes" if self.means_met else "no") + (f"; {self.sds_met}" if np.isfinite(bound.sd) else "")
        return [
            self.case.name,
            str(self.rows),
            str(len(self.names)),
            f"{'yes' if ours.converged else 'NO'}, {ours.sweeps}",
            " ".join(f"{n} {name}" for name, n in ours.marked.items()) or "–",
            f"{self.errors[worst]:.3f} ({self.names[worst]})",
            f"{truth.mcse[worst]:.3f} (most {truth.mcse.max():.3f})",
            ratio,
            f"{truth.sd_mcse.max():.3f}",
            asked,
            met,
            _seconds(ours.seconds),
            _seconds(truth.sampling_seconds),
            f"{truth.sampling_seconds / ours.seconds:,.0f}",
            f"{(truth.sampling_seconds + truth.warm_seconds) / ours.seconds:,.0f}",
            f"R̂ {truth.r_hat:.3f}" + (f", {truth.divergences} divergences" if truth.divergences else ""),
        ]


HEADS = (
    "data",
    "rows",
    "N",
    "EP converged, sweeps",
    "rows marked",
    "max error of a mean (sd)",
    "NUTS's MCSE there (sd)",
    "EP sd / NUTS sd",
    "MCSE of the sds",
    "asked",
    "met: means; sds",
    "EP",
    "NUTS sampling",
    "ratio",
    "ratio with warm-up",
    "NUTS",
)


def _seconds(t: float) -> str:
    return f"{1000 * t:.1f} ms" if t < 1 else f"{t:.1f} s"


def measured(case: Case, cache: Path | None) -> Line:
    """Runs EP and NUTS on one data set."""
    data = case.load()
    ours = propagated(case, data)
    truth = reference(case, data, ours.program, cache)
    names = [f"{s.name}[{i}]" if s.size > 1 else s.name for s in ours.program.latents for i in range(s.size)]
    return Line(case, len(data["y"]), ours, truth, names)


def table(lines: list[Line]) -> str:
    """The lines as a Markdown table."""
    text = f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}\n"
    return text + "".join(f"| {' | '.join(line.cells())} |\n" for line in lines)


_TEXT = """# Expectation propagation against NUTS

Made by `python -m benchmarks.ep --write` on {cores} cores, Python {python}, JAX {jax}, NumPyro {numpyro}, in float64.
Repeat it with `--cache FOLDER` to keep NUTS's draws; `--only iris` takes one data set. The data comes with scikit-learn
and statsmodels, and from the `simulate` of the models in `models/`.

EP runs with its default settings from the prior. NUTS runs {chains} chains one after the other, with a dense mass
matrix where that is the faster one. Errors are in unconstrained space, where both are compared: of each scalar's mean
in NUTS's posterior sds, with NUTS's own Monte-Carlo standard error (MCSE) beside it, and of its sd as a ratio.
Seconds are without compilation: EP's the median of {repeats} whole runs, NUTS's those of sampling alone ({chains} ×
{timed} draws; the references have more, at the same pace); both ratios are NUTS over EP. Means count as met up to 3
MCSE; an sd is "within noise" where it is met only up to 3 MCSE of the sd.

Covariates are standardised. Priors: Normal(0, 2.5²) for the coefficients (1 for iris). "fair, sorted by label" is a
stream with all rows of one label before those of the other. The reference of centred eight schools is sampled in the
non-centred form, which NUTS can do without divergences, and turned into effects.

In eight schools log tau has a skewness of −1.3: any tau near 0 explains eight such estimates about equally well, and
its prior does not vanish there. Gaussian sites cannot hold that tail, in either form: the mean is right and the sd
too small. With a prior that vanishes at 0, such as LogNormal(1, 1), the ratio of the sds is 0.97.

{table}"""


def main() -> None:
    """Prints or writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name}")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="the data sets whose name contains one of these")
    parser.add_argument("--quick", action="store_true", help="leave out the large ones")
    parser.add_argument("--cache", type=Path, help="a folder for NUTS's draws")
    parser.add_argument("--references", action="store_true", help="only fill the cache")
    options = parser.parse_args()
    numpyro.enable_x64()
    # otherwise NUTS would still sample while the next function is compiled, which would count as compilation
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    wanted = [c for c in CASES if not (options.quick and c.large)]
    if options.only:
        wanted = [c for c in wanted if any(word in c.name for word in options.only)]
    lines: list[Line] = []
    for case in wanted:
        if options.references:
            print(case.name, _described(case, options.cache), flush=True)
            continue
        lines.append(measured(case, options.cache))
        jax.clear_caches()  # a run of NUTS leaves 1,700 memory maps, and Linux allows a process 65,530
        print("  ".join(lines[-1].cells()), flush=True)
    if not lines:
        return
    text = table(lines)
    print(f"\n{text}")
    if options.write:
        versions = {
            "python": platform.python_version(),
            "jax": jax.__version__,
            "numpyro": numpyro.__version__,
            "cores": os.cpu_count(),
        }
        PAGE.write_text(
            _TEXT.format(chains=references.CHAINS, repeats=_REPEATS, timed=references.TIMED, table=text, **versions),
            encoding="utf-8",
        )


def _described(case: Case, cache: Path | None) -> str:
    """The diagnostics of NUTS, in words."""
    data = case.load()
    program = read(case.model, (), data, None, moments_named("auto"))
    truth = reference(case, data, program, cache)
    return (
        f"N {len(truth.mean)}, MCSE at most {truth.mcse.max():.3f}, of the sds {truth.sd_mcse.max():.3f}, R-hat "
        f"{truth.r_hat:.3f}, {truth.divergences} divergences, warm-up {truth.warm_seconds:.1f} s, sampling "
        f"{truth.sampling_seconds:.1f} s"
    )


if __name__ == "__main__":
    main()
