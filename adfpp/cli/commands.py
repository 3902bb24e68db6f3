"""The commands and their arguments: ``explain``, ``stream``, ``check``, ``compare``, ``reproduce``."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import adfpp
from adfpp.cli.following import CHUNK, EVERY, LIVE_CHUNK, Follower, fill_in
from adfpp.cli.stopping import Stop
from adfpp.cli.talking import shows_progress, step_bar
from adfpp.cli.work import UsageError, Work, checkpoint_path, folder_at, table_of, work_of
from adfpp.io import checkpoint
from adfpp.io.checkpoint import CheckpointError
from adfpp.io.tables import (
    TableError,
)

_RUNS = ("adf", "ep", "laplace", "svi")
_JOBS = 4  # at most, unless asked for: each takes up to a gigabyte


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: Its words, those of the process when None.

    Returns:
        The exit code: 0, 1 after an error of the user's, 128 + the signal's number when stopped by one (130 on Ctrl-C).
    """
    args = _parser().parse_args(argv)
    try:
        return args.command(args)
    except KeyboardInterrupt:
        print("adfpp: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except Exception as error:
        if args.traceback:
            raise
        print(f"adfpp: {_told(error)}", file=sys.stderr)
        return 1


def explain(args: argparse.Namespace) -> int:
    """Prints how the model is understood."""
    with jax.enable_x64(not args.float32):
        with Stop() as stop:
            work = work_of(args, table_of(args.data, stop))
            first = next(work.rows.batches(CHUNK), None)
        if stop.signal:
            return 128 + stop.signal
        if first is None:
            raise TableError(f"{work.rows.table.name} has no rows.")
        print(work.learner.explain(**first, **work.constants))
    return 0


def compare(args: argparse.Namespace) -> int:
    """Measures fast posteriors against a reference."""
    from adfpp.judge.compare import compare as measured

    out, names = folder_at(args.out), _run_names(args.runs)
    _refuse_dynamics("compare", args)
    found = _whole(args)
    if isinstance(found, int):
        return found
    work, data = found
    with jax.enable_x64(not args.float32):
        comparison: Any = measured(
            jax.random.key(args.seed),
            {name: _run_called(name, work) for name in names},
            reference=args.reference,
            num_samples=args.samples,
            num_warmup=args.warmup,
            num_chains=args.chains,
            progress_bar=shows_progress(),
            **data,
            **work.constants,
        )
        print(_across(comparison.overview))
        if out is not None:
            comparison.overview.to_csv(out / "overview.csv")
            comparison.parameters.to_csv(out / "parameters.csv")
            comparison.report(out / "report.html")
            for name, draws in comparison.to_arviz().items():
                draws.to_netcdf(out / f"{name}.nc")
            print(f"\nwritten to {out}: overview.csv, parameters.csv, report.html and a netCDF file a run")
    return 0


def check(args: argparse.Namespace) -> int:
    """Asks a posterior about its own error, without a reference."""
    if args.ep:
        _refuse_dynamics("--ep", args)
    found = _whole(args)
    if isinstance(found, int):
        return found
    work, data = found
    with jax.enable_x64(not args.float32):
        learner = work.revisiting if args.ep else work.learner
        options: dict[str, Any] = {"shuffle": True} if args.shuffle and not args.ep else {}
        result = learner.run(
            jax.random.key(args.seed), progress_bar=shows_progress(), **options, **data, **work.constants
        )
        print(result.posterior.summary().to_string(max_rows=60), end="\n\n")
        print(adfpp.check(learner, result, progress_bar=shows_progress(), **data, **work.constants))
    return 0


def reproduce(args: argparse.Namespace) -> int:
    """Makes figures and tables of the papers again; 1 if one of them is outside of its band."""
    from adfpp.papers import laboratory
    from adfpp.papers.laboratory.pages import filled, read_records, write_record

    if args.list:
        for paper, experiments in laboratory.PAPERS.items():
            print(paper)
            print("\n".join(f"  {e.name:<26}{e.title} ({e.source})" for e in experiments))
        return 0
    names = list(laboratory.PAPERS) if args.all else args.names
    if not names or (args.all and args.names):
        raise UsageError("Name papers or experiments, or say --all; --list shows what there is.")
    out, pages = args.out and Path(args.out), args.pages and Path(args.pages)
    if pages and args.quick:
        raise UsageError("The tables of the pages are of full runs: leave out --quick, or use --out.")
    if pages and not pages.is_dir():
        raise UsageError(f"There is no folder {pages} with pages to fill in.")
    laboratory.chosen(names)  # a name that is wrong is told before hours of work
    # a short run mostly compiles, on one core; a long one computes, on all of them
    jobs = args.jobs or (min(_JOBS, os.cpu_count() or 1) if args.quick else 1)
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


def _whole(args: argparse.Namespace) -> tuple[Work, dict[str, np.ndarray]] | int:
    """What to work on and all its rows, in memory; an exit code if reading them was stopped."""
    with jax.enable_x64(not args.float32), Stop() as stop:
        work = work_of(args, table_of(args.data, stop))
        batches = list(work.rows.batches(1 << 16))
    if stop.signal:
        return 128 + stop.signal
    if not batches:
        raise TableError(f"{work.rows.table.name} has no rows.")
    return work, {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}


def _refuse_dynamics(what: str, args: argparse.Namespace) -> None:
    if args.dynamics is not None:
        raise UsageError(
            f"--dynamics: {what} is about parameters that stay. Leave it away, or use adfpp check or stream."
        )


def _run_names(text: str) -> list[str]:
    names = list(dict.fromkeys(n.strip() for n in text.split(",")))
    unknown = [n for n in names if n not in _RUNS]
    if unknown:
        raise UsageError(f"--runs {text}: there is no {unknown[0]!r}; the runs are {', '.join(_RUNS)}.")
    return names


def _run_called(name: str, work: Work) -> Any:
    """``ADF``, ``EP``, or one of NumPyro's guides."""
    if name in ("adf", "ep"):
        return work.learner if name == "adf" else work.revisiting
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoLaplaceApproximation, AutoMultivariateNormal
    from numpyro.optim import Adam

    model = work.learner.model
    guide = AutoLaplaceApproximation(model) if name == "laplace" else AutoMultivariateNormal(model)
    return SVI(model, guide, Adam(0.01), Trace_ELBO())


def stream(args: argparse.Namespace) -> int:
    """Folds a file or standard input, chunk by chunk, and keeps where it stands in a checkpoint."""
    path, out = checkpoint_path(args.checkpoint), folder_at(args.out)
    saved = checkpoint.peek(path) if path is not None and path.exists() else None
    if saved is not None and "settings" not in saved:
        raise CheckpointError(
            f"{path} was not written by adfpp stream, so it does not say how far a stream has been read. The file is "
            "left as it is; load it with adfpp.load, or choose another name."
        )
    fill_in(args, saved)
    with jax.enable_x64(not args.float32), Stop() as stop:
        table = table_of(args.data, stop, None if saved is None else saved["header"])
        try:
            work = work_of(args, table, saved)
            follower = Follower(args, work, path, saved)
            follower.follow(stop, args.from_start)
        except TableError:
            if not stop.signal:
                raise
            print("adfpp: stopped before the first row", file=sys.stderr)
            return 128 + stop.signal
        follower.tell(out)
    if not stop.signal:
        return 0
    kept = "; the same command goes on from here" if path else ""
    waiting = len(next(iter(follower.pending.values()), ()))
    more = f" and {waiting} that wait in the checkpoint for a whole chunk" if waiting else ""
    print(f"adfpp: stopped after {follower.log.seen} rows{more}{kept}", file=sys.stderr)
    return 128 + stop.signal


def _across(overview: Any) -> str:
    """The overview with a column a run, and the verdicts, which are long, in lines of their own."""
    verdicts = overview["verdict"] if "verdict" in overview else {}
    table = overview.drop(columns="verdict", errors="ignore").T
    cells = table.map(lambda v: "" if v != v else f"{v:.4g}" if isinstance(v, float) else str(v))
    return "\n".join([cells.to_string(), "", *(f"{name}: {verdicts[name]}" for name in dict(verdicts))])


def _told(error: Exception) -> str:
    """An error in words: ours say what to do, others are named and told how to see more of."""
    text = str(error).strip()
    if not isinstance(error, ValueError | OSError):
        text = f"{type(error).__name__}: {text.rstrip('.')}. --traceback shows where."
    if "must have integer" in text:
        text += " An argument that is used as an index needs whole numbers: map its column with :int or :code."
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="adfpp", description="Online Bayesian inference for NumPyro models, from data files and streams."
    )
    parser.add_argument("--version", action="version", version=f"adfpp {adfpp.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        sub.set_defaults(command=run)
        sub.add_argument("model", metavar="MODEL", help="path.py:function, or a name from the folder models")
        data = "a .csv, .tsv, .parquet or .npz file, or - for CSV on standard input"
        sub.add_argument("--data", required=True, metavar="FILE", help=data)
        sub.add_argument("--rows", metavar="MAPPING", help="columns of each argument: y=label,x=age+income,g=city:code")
        text = "the categories of a :code column, in order"
        sub.add_argument("--categories", action="append", default=[], metavar="COLUMN=A,B,…", help=text)
        text = "constant arguments; count(g) is the number of g's categories"
        sub.add_argument("--set", action="append", default=[], metavar="NAME=VALUE,…", help=text)
        text = "full, diagonal or spherical: shape of the Gaussian (full); or by site: precision=gamma,w=full"
        sub.add_argument("--family", metavar="FAMILY", help=text)
        moments = ("auto", "accurate", "quadrature", "montecarlo")
        sub.add_argument("--moments", choices=moments, help="how integrals are computed (auto)")
        text = "random-walk=VARIANCE, discount=FORGETTING or ornstein-uhlenbeck=TIMESCALE"
        sub.add_argument("--dynamics", metavar="NAME=NUMBER", help=text)
        sub.add_argument("--float32", action="store_true", help="compute in single precision")
        sub.add_argument("--traceback", action="store_true", help="show where an error came from")
        return sub

    command("explain", explain, "print how the model is understood")
    sub = command("stream", stream, "fold rows one after the other, and keep the state in a checkpoint")
    text = "where to keep the state; a later call with it goes on"
    sub.add_argument("--checkpoint", metavar="FILE", help=text)
    sub.add_argument("--seed", type=int, help="of the random key kept in the state (0)")
    text = f"rows folded at once ({CHUNK}; of standard input {LIVE_CHUNK})"
    sub.add_argument("--chunk", type=int, metavar="ROWS", help=text)
    text = f"rows between checkpoints ({EVERY})"
    sub.add_argument("--every", type=int, metavar="ROWS", help=text)
    text = "fold the file's rows again although the checkpoint has some of them"
    sub.add_argument("--from-start", action="store_true", help=text)
    sub.add_argument("--out", metavar="FOLDER", help="write summary.csv and posterior.nc there")
    sub = command("check", check, "ask a posterior about its own error, without NUTS")
    sub.add_argument("--ep", action="store_true", help="visit the rows again until they agree, rather than once")
    sub.add_argument("--shuffle", action="store_true", help="fold the rows in random order (EP does so anyway)")
    sub.add_argument("--seed", type=int, default=0, help="of the random key (0)")
    sub = command("compare", compare, "measure fast posteriors against NUTS")
    text = f"what to run, of {', '.join(_RUNS)} (adf,ep)"
    sub.add_argument("--runs", default="adf,ep", metavar="NAME,…", help=text)
    text = "what to measure against (auto: nuts, or with discrete latents enumeration or gibbs)"
    sub.add_argument("--reference", choices=("auto", "nuts", "enumeration", "gibbs"), default="auto", help=text)
    sub.add_argument("--samples", type=int, default=4000, help="draws in all (4000)")
    sub.add_argument("--warmup", type=int, default=1000, help="warm-up steps of a chain (1000)")
    sub.add_argument("--chains", type=int, default=4, help="chains (4)")
    sub.add_argument("--seed", type=int, default=0, help="of the random key (0)")
    text = "write overview.csv, parameters.csv, report.html and a netCDF file a run there"
    sub.add_argument("--out", metavar="FOLDER", help=text)
    text = "make the figures and tables of the papers again, beside theory"
    sub = commands.add_parser("reproduce", help=text, description=f"{text[0].upper()}{text[1:]}.")
    sub.set_defaults(command=reproduce)
    sub.add_argument("names", nargs="*", metavar="NAME", help="a paper or one of its experiments, as --list shows them")
    sub.add_argument("--all", action="store_true", help="all of them")
    sub.add_argument("--list", action="store_true", help="print what there is")
    sub.add_argument("--quick", action="store_true", help="fewer and shorter runs: seconds, not minutes")
    sub.add_argument("--seed", type=int, default=0, help="of all random keys (0)")
    text = f"experiments at a time (1; with --quick as many as there are cores, up to {_JOBS}); results are the same"
    sub.add_argument("--jobs", type=int, metavar="N", help=text)
    sub.add_argument("--out", metavar="FOLDER", help="write a table, the numbers and a picture of each there")
    text = "fill in the marked tables of the pages there, and keep the records in its folder results"
    sub.add_argument("--pages", metavar="FOLDER", help=text)
    sub.add_argument("--traceback", action="store_true", help="show where an error came from")
    return parser
