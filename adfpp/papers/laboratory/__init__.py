"""Every algorithm, curve and table of the papers, made again: simulation, theory and the paper's figure side by side.

`record` is what an experiment finds, `bench` how experiments are run, `students` what they share; each paper has a room
of its own. On the command line: ``adfpp reproduce``.
"""

import time
from collections.abc import Callable, Generator, Sequence
from importlib.metadata import version
from typing import NamedTuple

import jax

from adfpp.papers.laboratory import bona, dichotomies, drift, irma, opper
from adfpp.papers.laboratory.bench import Bench, Experiment, Found, along
from adfpp.papers.laboratory.record import Finding, Line, Panel, Record, mean_and_error, measured, points
from adfpp.papers.laboratory.workers import side_by_side

__all__ = [
    "EXPERIMENTS",
    "PAPERS",
    "Bench",
    "Experiment",
    "Finding",
    "Found",
    "Line",
    "Panel",
    "Record",
    "along",
    "chosen",
    "mean_and_error",
    "measured",
    "points",
    "reproduce",
]

PAPERS: dict[str, tuple[Experiment, ...]] = {
    "opper": opper.EXPERIMENTS,
    "bona": bona.EXPERIMENTS,
    "dichotomies": dichotomies.EXPERIMENTS,
    "irma": irma.EXPERIMENTS,
    "drift": drift.EXPERIMENTS,
}
EXPERIMENTS: dict[str, Experiment] = {e.name: e for some in PAPERS.values() for e in some}


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments meant by names of papers and of experiments, each once and in order."""
    wanted: list[str] = []
    for name in names:
        if name not in PAPERS and name not in EXPERIMENTS:
            raise ValueError(
                f"There is no experiment {name!r}. Papers: {', '.join(PAPERS)}. Experiments: {', '.join(EXPERIMENTS)}."
            )
        wanted += [e.name for e in PAPERS[name]] if name in PAPERS else [name]
    return [e for key, e in EXPERIMENTS.items() if key in wanted]


def reproduce(
    names: Sequence[str],
    quick: bool = False,
    seed: int = 0,
    report: Callable[[str, int, int], None] = lambda what, done, total: None,
    jobs: int = 1,
) -> Generator[Record, None, None]:
    """Runs experiments, in double precision. What they find does not depend on how many run at a time.

    Args:
        names: Of papers or of experiments.
        quick: Whether to be short: seconds instead of minutes, with wider standard errors.
        seed: Of all keys.
        report: Told how far the experiment is that is waited for, as ``report(what, done, total)``.
        jobs: Experiments at a time, each in a process of its own if there are more than one.

    Yields:
        What each found, in order.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1; it is {jobs}.")
    tasks = [Task(experiment.name, quick, seed) for experiment in chosen(names)]
    if min(jobs, len(tasks)) > 1:
        yield from side_by_side(found_by, tasks, report, min(jobs, len(tasks)))
    else:
        yield from (found_by(task, report) for task in tasks)


class Task(NamedTuple):
    """One experiment to run.

    Attributes:
        name: Of the experiment.
        quick: Whether it is to be short.
        seed: Of all keys.
    """

    name: str
    quick: bool
    seed: int


def found_by(task: Task, report: Callable[[str, int, int], None]) -> Record:
    """Runs one experiment.

    Args:
        task: Which, and how.
        report: Told how far it is.
    """
    experiment, begin = EXPERIMENTS[task.name], time.perf_counter()
    with jax.enable_x64(True):
        found = experiment.run(Bench(task.quick, task.seed, report))
    return Record(
        experiment.name,
        experiment.title,
        experiment.source,
        tuple(found.findings),
        tuple(found.panels),
        tuple(found.notes),
        found.settings | {"seed": task.seed},
        f"adfpp reproduce {experiment.name}{' --quick' * task.quick} --seed {task.seed}",
        time.perf_counter() - begin,
        ", ".join(f"{name} {version(name.lower())}" for name in ("JAX", "NumPyro")),
    )
