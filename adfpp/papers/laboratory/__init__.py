"""Repeats every algorithm, curve and table of the papers, with simulation, theory and the paper's figure side by side.

`catalogue` lists the experiments, and there is one package for each paper. `bench` runs simulations, `record` has what
an experiment returns, `students` the models and learners that experiments share, `pages` and `picture` write records
into files. On the command line: ``adfpp reproduce``.
"""

import time
from collections.abc import Callable, Generator, Sequence
from importlib.metadata import version
from typing import NamedTuple

import jax

from adfpp.papers.laboratory import catalogue
from adfpp.papers.laboratory.bench import Bench, Outcome, learn_stream
from adfpp.papers.laboratory.catalogue import EXPERIMENTS, PAPERS, Experiment, Lazy, chosen
from adfpp.papers.laboratory.record import (
    Finding,
    Line,
    Panel,
    Record,
    against_theory,
    mean_and_error,
    measured,
    points,
)
from adfpp.papers.laboratory.workers import side_by_side

__all__ = [
    "EXPERIMENTS",
    "PAPERS",
    "Bench",
    "Experiment",
    "Finding",
    "Line",
    "Outcome",
    "Panel",
    "Record",
    "against_theory",
    "chosen",
    "learn_stream",
    "mean_and_error",
    "measured",
    "points",
    "reproduce",
]

Report = Callable[[str, int, int], None]


class Task(NamedTuple):
    """One experiment to run.

    Attributes:
        name: Name of the experiment.
        quick: Whether to make the short run.
        seed: Seed of all keys.
    """

    name: str
    quick: bool
    seed: int


def reproduce(
    names: Sequence[str],
    quick: bool = False,
    seed: int = 0,
    report: Report = lambda what, done, total: None,
    jobs: int = 1,
) -> Generator[Record, None, None]:
    """Runs experiments, in double precision. The results do not depend on how many run at the same time.

    Args:
        names: Names of papers or of experiments.
        quick: Whether to make short runs: seconds instead of minutes, with larger standard errors.
        seed: Seed of all keys.
        report: Called as ``report(what, done, total)`` with the progress of the experiment whose record comes next.
        jobs: Number of experiments at the same time; if there are several, each runs in its own process.

    Yields:
        The record of each experiment, in order.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1; it is {jobs}.")
    tasks = [Task(experiment.name, quick, seed) for experiment in chosen(names)]
    if min(jobs, len(tasks)) > 1:
        yield from side_by_side(run_task, tasks, report, min(jobs, len(tasks)))
    else:
        yield from (run_task(task, report) for task in tasks)


def run_task(task: Task, report: Report) -> Record:
    """Runs one experiment.

    Args:
        task: The experiment, and how to run it.
        report: Called with the progress.
    """
    experiment, start = catalogue.EXPERIMENTS[task.name], time.perf_counter()
    # A module's constants must not depend on whether an experiment imports it, so imports come before the precision.
    run = experiment.run.load() if isinstance(experiment.run, Lazy) else experiment.run
    with jax.enable_x64(True):
        outcome = run(Bench(task.quick, task.seed, report))
    return Record(
        experiment.name,
        experiment.title,
        experiment.source,
        tuple(outcome.findings),
        tuple(outcome.panels),
        tuple(outcome.notes),
        outcome.settings | {"seed": task.seed},
        f"adfpp reproduce {experiment.name}{' --quick' * task.quick} --seed {task.seed}",
        time.perf_counter() - start,
        ", ".join(f"{name} {version(name.lower())}" for name in ("JAX", "NumPyro")),
    )
