"""The commands ``explain``, ``stream``, ``check``, ``compare`` and ``reproduce``."""

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import adfpp
from adfpp.cli.inputs import Inputs, checkpoint_path, output_folder, read_inputs, table_of
from adfpp.cli.options import CHUNK, JOBS, RUNS, UsageError
from adfpp.cli.progress import shows_progress, step_bar
from adfpp.cli.signals import Stop
from adfpp.cli.stream import Stream, fill_in_options
from adfpp.io import checkpoint
from adfpp.io.checkpoint import CheckpointError
from adfpp.io.tables import TableError

_READ_AT_ONCE = 1 << 16  # rows read at once, for commands that keep all rows in memory


def explain(args: argparse.Namespace) -> int:
    """Prints how adfpp understands the model."""
    with jax.enable_x64(not args.float32):
        with Stop() as stop:
            inputs = read_inputs(args, table_of(args.data, stop))
            first = next(inputs.rows.batches(CHUNK), None)
        if stop.signal:
            return stop.exit_code
        if first is None:
            raise TableError(f"{inputs.rows.table.name} has no rows.")
        print(inputs.adf.explain(**first, **inputs.constants))
    return 0


def stream(args: argparse.Namespace) -> int:
    """Absorbs a file or standard input, chunk by chunk, and keeps the position in a checkpoint."""
    path, out = checkpoint_path(args.checkpoint), output_folder(args.out)
    saved = checkpoint.peek(path) if path is not None and path.exists() else None
    if saved is not None and "settings" not in saved:
        raise CheckpointError(
            f"{path} was not written by adfpp stream, so it does not say how far a stream has been read. The file is "
            "left as it is; load it with adfpp.load, or choose another name."
        )
    fill_in_options(args, saved)
    with jax.enable_x64(not args.float32), Stop() as stop:
        table = table_of(args.data, stop, None if saved is None else saved["header"])
        try:
            inputs = read_inputs(args, table, saved)
            reading = Stream(args, inputs, path, saved)
            reading.read(stop, args.from_start)
        except TableError:
            if not stop.signal:
                raise
            print("adfpp: stopped before the first row", file=sys.stderr)
            return stop.exit_code
        reading.report(out)
    if not stop.signal:
        return 0
    waiting = len(next(iter(reading.pending.values()), ()))
    more = f" and {waiting} that wait in the checkpoint for their chunk to be complete" if waiting else ""
    how = "; the same command continues from here" if path else ""
    print(f"adfpp: stopped after {reading.log.seen} rows{more}{how}", file=sys.stderr)
    return stop.exit_code


def check(args: argparse.Namespace) -> int:
    """Estimates the error of a posterior, without a reference."""
    if args.ep:
        _refuse_dynamics("--ep", args)
    with jax.enable_x64(not args.float32):
        with Stop() as stop:
            inputs, data = _all_rows(args, stop)
        if stop.signal:
            return stop.exit_code
        learner = inputs.ep if args.ep else inputs.adf
        options = {"shuffle": True} if args.shuffle and not args.ep else {}
        result = learner.run(
            jax.random.key(args.seed), progress_bar=shows_progress(), **options, **data, **inputs.constants
        )
        print(result.posterior.summary().to_string(max_rows=60), end="\n\n")
        print(adfpp.check(learner, result, progress_bar=shows_progress(), **data, **inputs.constants))
    return 0


def compare(args: argparse.Namespace) -> int:
    """Measures fast posteriors against a reference."""
    out, names = output_folder(args.out, "a report"), _run_names(args.runs)
    _refuse_dynamics("compare", args)
    with jax.enable_x64(not args.float32):
        with Stop() as stop:
            inputs, data = _all_rows(args, stop)
        if stop.signal:
            return stop.exit_code
        comparison = adfpp.compare(
            jax.random.key(args.seed),
            {name: _run_called(name, inputs) for name in names},
            reference=args.reference,
            num_samples=args.samples,
            num_warmup=args.warmup,
            num_chains=args.chains,
            progress_bar=shows_progress(),
            **data,
            **inputs.constants,
        )
        print(_one_column_each(comparison.overview))
        if out is not None:
            comparison.overview.to_csv(out / "overview.csv")
            comparison.parameters.to_csv(out / "parameters.csv")
            comparison.report(out / "report.html")
            for name, draws in comparison.to_arviz().items():
                draws.to_netcdf(out / f"{name}.nc")
            print(f"\nwritten to {out}: overview.csv, parameters.csv, report.html and a netCDF file for each run")
    return 0


def reproduce(args: argparse.Namespace) -> int:
    """Computes figures and tables of the papers again; returns 1 if a figure is outside its band."""
    from adfpp.papers import laboratory
    from adfpp.papers.laboratory.pages import filled, read_records, write_record

    if args.list:
        for paper, experiments in laboratory.PAPERS.items():
            print(paper)
            print("\n".join(f"  {e.name:<26}{e.title} ({e.source})" for e in experiments))
        return 0
    names = list(laboratory.PAPERS) if args.all else args.names
    if not names or (args.all and args.names):
        raise UsageError("Name papers or experiments, or give --all; --list shows what there is.")
    out, pages = args.out and Path(args.out), args.pages and Path(args.pages)
    if pages and args.quick:
        raise UsageError("The tables of the pages are of full runs: leave out --quick, or use --out.")
    if pages and not pages.is_dir():
        raise UsageError(f"There is no folder {pages} with pages to fill in.")
    laboratory.chosen(names)  # refuses a wrong name before a long computation
    if (out or pages) and not importlib.util.find_spec("matplotlib"):
        without = "Matplotlib, which draws the pictures, is not installed: pip install 'adfpp[papers]'."
        if pages:
            raise UsageError(f"The pages show pictures. {without}")
        print(f"adfpp: only tables and numbers are written. {without}", file=sys.stderr)
    # a short run mostly compiles, which uses one core; a long run computes on all cores
    jobs = args.jobs or (min(JOBS, os.cpu_count() or 1) if args.quick else 1)
    failed, total, by_chance, begin = [], 0, 0.0, time.perf_counter()
    with step_bar() as report:
        for record in laboratory.reproduce(names, args.quick, args.seed, report, jobs):
            print(f"{record.text()}\n{record.command}: {record.seconds:.1f} s\n", flush=True)
            failed += [f"{record.name}: {f.what}, {f.entry}" for f in record.failed]
            total += sum(f.passes is not None for f in record.findings)
            by_chance += sum(f.chance for f in record.findings)
            for folder in [f for f in (out, pages and pages / "results") if f]:
                print(*(f"  {path}" for path in write_record(record, folder)), "", sep="\n", flush=True)
    if pages:
        records = read_records(pages / "results")
        for page in sorted(pages.glob("*.md")):
            page.write_text(filled(page.read_text(encoding="utf-8"), records, "results"), encoding="utf-8")
    seconds = time.perf_counter() - begin
    print(f"{total - len(failed)} of {total} figures are within their bands, after {seconds:.0f} seconds.")
    if by_chance:
        print(f"By chance alone {by_chance:.2g} of them would be outside, on average over seeds.")
    print(*(f"  outside: {name}" for name in failed), sep="\n")
    return int(bool(failed))


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "explain": explain,
    "stream": stream,
    "check": check,
    "compare": compare,
    "reproduce": reproduce,
}


def _all_rows(args: argparse.Namespace, stop: Stop) -> tuple[Inputs, dict[str, np.ndarray]]:
    """The inputs and all rows, in memory; only the rows that were read if reading was stopped."""
    inputs = read_inputs(args, table_of(args.data, stop))
    batches = list(inputs.rows.batches(_READ_AT_ONCE))
    if not batches and not stop.signal:
        raise TableError(f"{inputs.rows.table.name} has no rows.")
    return inputs, {name: np.concatenate([b[name] for b in batches]) for name in batches[0]} if batches else {}


def _refuse_dynamics(what: str, args: argparse.Namespace) -> None:
    if args.dynamics is not None:
        raise UsageError(
            f"--dynamics: {what} is about parameters that do not change in time. Leave --dynamics out, or use adfpp "
            "check without --ep, or adfpp stream."
        )


def _run_names(text: str) -> list[str]:
    names = list(dict.fromkeys(n.strip() for n in text.split(",")))
    unknown = [n for n in names if n not in RUNS]
    if unknown:
        raise UsageError(f"--runs {text}: there is no run {unknown[0]!r}; the runs are {', '.join(RUNS)}.")
    return names


def _run_called(name: str, inputs: Inputs) -> object:
    """``ADF``, ``EP``, or variational inference with one of NumPyro's guides."""
    if name in ("adf", "ep"):
        return inputs.adf if name == "adf" else inputs.ep
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoLaplaceApproximation, AutoMultivariateNormal
    from numpyro.optim import Adam

    model = inputs.adf.model
    guide = AutoLaplaceApproximation(model) if name == "laplace" else AutoMultivariateNormal(model)
    return SVI(model, guide, Adam(0.01), Trace_ELBO())


def _one_column_each(overview: pd.DataFrame) -> str:
    """The overview with one column for each run, and the verdicts, which are long, on separate lines."""
    verdicts = overview["verdict"] if "verdict" in overview else {}
    table = overview.drop(columns="verdict", errors="ignore").T
    cells = table.map(lambda v: "" if v != v else f"{v:.4g}" if isinstance(v, float) else str(v))
    return "\n".join([cells.to_string(), "", *(f"{name}: {verdicts[name]}" for name in dict(verdicts))])
