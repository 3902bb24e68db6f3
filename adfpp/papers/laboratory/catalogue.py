"""The list of all experiments: their names, titles, sources and functions.

An experiment's module is imported only when the experiment is run, so that importing this list is fast. To add an
experiment, write a function of a `Bench` that returns an `Outcome`, and add a line here.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from adfpp.papers.laboratory.bench import Bench, Outcome

__all__ = ["EXPERIMENTS", "PAPERS", "Experiment", "Lazy", "chosen"]


class Experiment(NamedTuple):
    """An experiment that repeats one figure, table or equation of a paper.

    Attributes:
        name: "paper-figure", where the first word is the name of the paper's page.
        title: What the experiment shows.
        source: The figure, table or equation.
        run: Runs the experiment.
    """

    name: str
    title: str
    source: str
    run: "Callable[[Bench], Outcome]"


@dataclass(frozen=True)
class Lazy:
    """A function that is imported when it is called.

    Attributes:
        module: Name of its module, below ``adfpp.papers.laboratory``.
        function: Name of the function.
    """

    module: str
    function: str

    def load(self) -> "Callable[[Bench], Outcome]":
        """Imports the function."""
        return getattr(importlib.import_module(f"adfpp.papers.laboratory.{self.module}"), self.function)

    def __call__(self, bench: "Bench") -> "Outcome":
        """Imports the function and calls it."""
        return self.load()(bench)


BONA = "de Oliveira and Alamino (2007)"

PAPERS: dict[str, tuple[Experiment, ...]] = {
    "opper": (
        Experiment(
            "opper-threshold",
            "A noisy threshold against the Cramér-Rao line",
            "Opper 1998, Figure 1",
            Lazy("opper.threshold", "threshold"),
        ),
        Experiment(
            "opper-perceptron",
            "The perceptron with noise",
            "Opper 1998, Figure 2",
            Lazy("opper.perceptron", "noisy_perceptron"),
        ),
        Experiment(
            "opper-asymptotics",
            "Squared errors at many rows",
            "Opper 1998, (8.10)",
            Lazy("opper.laws", "asymptotics"),
        ),
        Experiment(
            "opper-entropy",
            "Entropic errors at many rows",
            "Opper 1998, (8.11)-(8.12)",
            Lazy("opper.laws", "entropy"),
        ),
        Experiment(
            "opper-linear",
            "The linear model is exact",
            "Opper 1998, section 9",
            Lazy("opper.linear", "linear"),
        ),
        Experiment(
            "opper-noise-free",
            "The perceptron without noise",
            "Opper 1998, section 10",
            Lazy("opper.perceptron", "noise_free"),
        ),
    ),
    "bona": (
        Experiment(
            "bona-equations",
            "Scalar BOnA and spherical ADF are one algorithm",
            f"{BONA}, (10), (11)",
            Lazy("bona.equations", "equations"),
        ),
        Experiment(
            "bona-curve",
            "The learning curve of scalar BOnA",
            f"{BONA}, Figure 1",
            Lazy("bona.curve", "curve"),
        ),
        Experiment(
            "bona-erratum",
            "What one row gains: equation (22) corrected",
            f"{BONA}, (22)",
            Lazy("bona.curve", "erratum"),
        ),
        Experiment(
            "bona-beta",
            "BOnA at finite β",
            f"{BONA}, (8), (9)",
            Lazy("bona.beta", "finite_beta"),
        ),
        Experiment(
            "bona-table",
            "Table I, with full covariances and EP",
            f"{BONA}, Table I",
            Lazy("bona.table", "table"),
        ),
    ),
    "dichotomies": (
        Experiment(
            "dichotomies-constant",
            "Perceptron at a constant rate, and at α^(−z)",
            "equations (4), (5)",
            Lazy("dichotomies.centred", "constant"),
        ),
        Experiment(
            "dichotomies-annealed",
            "Perceptron at η0 √(2π)/α, and ADF beside",
            "equation (6), Figure 1",
            Lazy("dichotomies.centred", "annealed"),
        ),
        Experiment(
            "dichotomies-noise",
            "Labels turned over, inputs off centre",
            "Figure 2, equations (7)-(18)",
            Lazy("dichotomies.noise", "noise"),
        ),
        Experiment(
            "dichotomies-smooth",
            "Thresholded smooth functions",
            "equations (19)-(27)",
            Lazy("dichotomies.smooth", "smooth"),
        ),
    ),
    "irma": (
        Experiment(
            "irma-kernel",
            "IRMA is a Gaussian update with its covariance reset",
            "equations (8), (9)",
            Lazy("irma.kernel", "kernel"),
        ),
        Experiment(
            "irma-loss",
            "Cumulative loss of online regression",
            "Figure 1",
            Lazy("irma.loss", "loss"),
        ),
        Experiment(
            "irma-table",
            "Distance to the target, incremental and batch",
            "Table I, Figure 2",
            Lazy("irma.table", "table"),
        ),
        Experiment(
            "irma-bases",
            "Powers, Fourier series and bumps",
            "Section V",
            Lazy("irma.bases", "bases"),
        ),
    ),
    "drift": (
        Experiment(
            "drift-laws",
            "A teacher that turns, followed at N → ∞",
            "order-parameter equations",
            Lazy("drift.laws", "laws"),
        ),
        Experiment(
            "drift-tracking",
            "A teacher that turns, followed by all learners",
            "not in a paper",
            Lazy("drift.tracking", "tracking"),
        ),
    ),
}
EXPERIMENTS: dict[str, Experiment] = {e.name: e for experiments in PAPERS.values() for e in experiments}


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments with these names or of these papers, each once and in the order of the list."""
    wanted: list[str] = []
    for name in names:
        if name not in PAPERS and name not in EXPERIMENTS:
            raise ValueError(
                f"There is no experiment {name!r}. Papers: {', '.join(PAPERS)}. Experiments: {', '.join(EXPERIMENTS)}."
            )
        wanted += [e.name for e in PAPERS[name]] if name in PAPERS else [name]
    return [e for key, e in EXPERIMENTS.items() if key in wanted]
