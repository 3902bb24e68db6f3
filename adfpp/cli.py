"""The command line: ``adfpp explain``, ``stream``, ``check``, ``compare``. Described in docs/command-line.md."""

import argparse
import ast
import contextlib
import difflib
import hashlib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np

import adfpp
from adfpp import checkpoint
from adfpp.checkpoint import CheckpointError
from adfpp.families.product import SITE_FAMILIES
from adfpp.stream import Log
from adfpp.tabular import (
    Assignment,
    Csv,
    Rows,
    Table,
    TableError,
    format_mapping,
    matching_names,
    open_table,
    parse_mapping,
    read_rows,
)

_CHUNK = 4096  # rows of a file folded at once
_LIVE_CHUNK = 64  # rows of standard input folded at once: they wait for each other
_EVERY = 10_000
_DRAWS = 4000  # in posterior.nc
_DYNAMICS = {
    "random-walk": adfpp.RandomWalk,
    "discount": adfpp.Discount,
    "ornstein-uhlenbeck": adfpp.OrnsteinUhlenbeck,
}
_RUNS = ("adf", "ep", "laplace", "svi")
_FAMILIES = ("full", "diagonal", "spherical")
_COUNT = re.compile(r"count\((\w+)\)")


class UsageError(ValueError):
    """A command that cannot be carried out as it is written."""


class Work(NamedTuple):
    """What a command works on.

    Attributes:
        learner: The online learner of the model.
        revisiting: The one that visits rows again.
        rows: The data.
        constants: The model's other arguments.
    """

    learner: adfpp.ADF
    revisiting: adfpp.EP
    rows: Rows
    constants: dict[str, Any]


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


# ------------------------------------------------------------------------------------------------ commands


def explain(args: argparse.Namespace) -> int:
    """Prints how the model is understood."""
    with jax.enable_x64(not args.float32):
        with _Stop() as stop:
            work = _work(args, _table(args.data, stop))
            first = next(work.rows.batches(_CHUNK), None)
        if stop.signal:
            return 128 + stop.signal
        if first is None:
            raise TableError(f"{work.rows.table.name} has no rows.")
        print(work.learner.explain(**first, **work.constants))
    return 0


def compare(args: argparse.Namespace) -> int:
    """Measures fast posteriors against a reference."""
    from adfpp.compare import compare as measured

    out, names = _folder(args.out), _run_names(args.runs)
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
            progress_bar=_shows_progress(),
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
            jax.random.key(args.seed), progress_bar=_shows_progress(), **options, **data, **work.constants
        )
        print(result.posterior.summary().to_string(max_rows=60), end="\n\n")
        print(adfpp.check(learner, result, progress_bar=_shows_progress(), **data, **work.constants))
    return 0


def _whole(args: argparse.Namespace) -> tuple[Work, dict[str, np.ndarray]] | int:
    """What to work on and all its rows, in memory; an exit code if reading them was stopped."""
    with jax.enable_x64(not args.float32), _Stop() as stop:
        work = _work(args, _table(args.data, stop))
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
    path, out = _checkpoint_path(args.checkpoint), _folder(args.out)
    saved = checkpoint.peek(path) if path is not None and path.exists() else None
    if saved is not None and "settings" not in saved:
        raise CheckpointError(
            f"{path} was not written by adfpp stream, so it does not say how far a stream has been read. The file is "
            "left as it is; load it with adfpp.checkpoint.load, or choose another name."
        )
    _fill_in(args, saved)
    with jax.enable_x64(not args.float32), _Stop() as stop:
        table = _table(args.data, stop, None if saved is None else saved["header"])
        try:
            work = _work(args, table, saved)
            follower = _Follower(args, work, path, saved)
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


class _Follower:
    """A stream on its way: the state, how far it has been read, and what became of its rows."""

    def __init__(
        self, args: argparse.Namespace, work: Work, path: Path | None, saved: Mapping[str, Any] | None
    ) -> None:
        self.args, self.work, self.path = args, work, path
        self.state: Any = None
        self.log = Log("totals", 0, None)
        self.sources: list[dict[str, Any]] = []
        self.pending: dict[str, np.ndarray] = {}
        self.shape: dict[str, np.ndarray] = {}
        self.last_saved = 0
        if saved is not None:
            # arguments of one row, for their shapes: the rows themselves may have been read long ago
            self.shape = saved["shape"]
            assert path is not None
            self.state = checkpoint.load(path, work.learner, **self.shape, **work.constants).state
            self.sources, self.pending = saved["sources"], saved["pending"]
            self.log.log_z, self.log.error, self.log.seen = saved["log_z"], saved["error"], saved["seen"]
            self.log.counts = saved["counts"].copy()
            self.last_saved = self.log.seen

    def follow(self, stop: "_Stop", from_start: bool) -> None:
        """Folds what there is to read until it ends or is stopped."""
        rows, args = self.work.rows, self.args
        source, digest = self._source(from_start)
        batches = rows.batches(args.chunk, source["rows"])
        if rows.table.live:
            batches = _regrouped(self.pending, batches, args.chunk)
        elif self.pending:
            self._fold(self.pending)
            self.pending = {}
        with _bar() as bar:
            try:
                for batch in batches:
                    length = len(next(iter(batch.values())))
                    if rows.table.live and stop.signal and length < args.chunk:
                        # rows that an unbroken run would have folded together with the next ones
                        self._begin(batch)
                        self.pending = batch
                        break
                    self._fold(batch)
                    self.pending = {}
                    source["rows"] += length
                    if digest is not None:
                        digest.add(batch)
                        source["digest"] = digest.text()
                    bar(length, self.score())
                    if self.log.seen - self.last_saved >= args.every:
                        self._save()
                        if not _shows_progress():
                            print(self.score(), flush=True)
                    if stop.signal and not rows.table.live:
                        break
            except (TableError, adfpp.ModelError):
                if self.state is not None:  # what was absorbed before the bad row stays absorbed
                    self._save()
                raise
        if self.state is None:
            raise TableError(f"{rows.table.name} has no rows.")
        self._save()

    def _begin(self, batch: Mapping[str, np.ndarray]) -> None:
        if self.state is None:
            self.state = self.work.learner.init(jax.random.key(self.args.seed), **batch, **self.work.constants)
            self.shape = {name: np.zeros_like(a[:1]) for name, a in batch.items()}

    def _fold(self, batch: Mapping[str, np.ndarray]) -> None:
        self._begin(batch)
        self.state, info = self.work.learner.update(self.state, **batch, **self.work.constants)
        self.log.add(jax.device_get(info), self.log.seen)

    def _source(self, from_start: bool) -> tuple[dict[str, Any], "_Digest | None"]:
        """The record of what is read, with the rows of it that have been absorbed."""
        table = self.work.rows.table
        if table.live:
            return {"rows": 0}, None
        name = os.path.realpath(table.name)
        same_name = [s for s in self.sources if s["name"] == name]
        found, digest = None, _Digest()
        if self.sources and not from_start:
            found, digest = _absorbed(self.work.rows, self.sources, self.args.chunk)
            if found is None and same_name:
                raise TableError(
                    f"{table.name} has changed: it does not begin with the {same_name[0]['rows']} rows that the "
                    "checkpoint took from it. Put the file back, give new rows as a file of their own, or fold this "
                    "one as new rows with --from-start."
                )
        if found is None:
            self.sources = [s for s in self.sources if s["name"] != name]
            found = {"name": name, "rows": 0, "digest": digest.text()}
            self.sources.append(found)
        elif found["rows"]:
            print(f"adfpp: going on after row {found['rows']} of {table.name}", file=sys.stderr)
        return found, digest

    def score(self) -> str:
        """The running one-step-ahead score."""
        refused = int(self.log.counts[adfpp.Status.NOT_FINITE :].sum())
        mean = self.log.log_z / max(1, self.log.seen - refused)
        return f"rows {self.log.seen}  log score {mean:.4f}  refused {refused}"

    def _save(self) -> None:
        self.last_saved = self.log.seen
        if self.path is None:
            return
        args, rows = self.args, self.work.rows
        checkpoint.save(
            self.path,
            self.work.learner,
            self.state,
            settings={name: getattr(args, name) for name in _REMEMBERED},
            mapping=format_mapping(rows.mapping),
            categories={c: list(v) for c, v in rows.categories.items()},
            header=list(rows.table.columns),
            sources=self.sources,
            pending=self.pending,
            shape=self.shape,
            log_z=self.log.log_z,
            error=self.log.error,
            seen=self.log.seen,
            counts=self.log.counts,
        )

    def tell(self, out: Path | None) -> None:
        """Prints the posterior and what became of the rows, and writes them to a folder."""
        posterior = self.work.learner.get_posterior(self.state)
        summary = posterior.summary()
        print(self.score())
        print(f"\n{summary.to_string(max_rows=60)}\n")
        for status in adfpp.Status:
            if self.log.counts[status]:
                print(f"{self.log.counts[status]:>10} {status.name}: {status.advice}")
        if self.path is not None:
            print(f"\ncheckpoint: {self.path}")
        if out is not None:
            summary.to_csv(out / "summary.csv")
            # the rows are gone, so what is written are draws alone
            draws = adfpp.to_arviz(posterior, rng_key=jax.random.key(self.args.seed), num_samples=_DRAWS)
            draws.to_netcdf(out / "posterior.nc")
            print(f"written to {out}: summary.csv, posterior.nc")


# what a checkpoint remembers of the command line, so that going on needs none of it
_REMEMBERED = ("family", "moments", "dynamics", "set", "seed", "chunk", "every", "float32")


def _fill_in(args: argparse.Namespace, saved: Mapping[str, Any] | None) -> None:
    """Options that are not given: as the checkpoint remembers them, else their defaults."""
    chunk = _LIVE_CHUNK if args.data == "-" else _CHUNK
    settings = {"family": "full", "moments": "auto", "dynamics": None, "set": [], "seed": 0, "every": _EVERY}
    settings |= {"chunk": chunk, "float32": False}
    settings |= saved["settings"] if saved is not None else {}
    for name in _REMEMBERED:
        if getattr(args, name) is None or getattr(args, name) is False or getattr(args, name) == []:
            setattr(args, name, settings[name])
    if args.chunk < 1 or args.every < 1:
        raise UsageError(f"--chunk and --every take whole numbers from 1 on; they are {args.chunk} and {args.every}.")


def _regrouped(
    pending: Mapping[str, np.ndarray], batches: Iterator[dict[str, np.ndarray]], size: int
) -> Iterator[dict[str, np.ndarray]]:
    """Batches of ``size`` rows again, with the pending rows before the first."""
    held = dict(pending)
    while True:
        try:
            batch = next(batches, None)
        except TableError:
            if held:
                yield held
            raise
        if batch is None:
            break
        held = {name: np.concatenate([held[name], a]) for name, a in batch.items()} if held else batch
        while held and len(next(iter(held.values()))) >= size:
            yield {name: a[:size] for name, a in held.items()}
            held = {name: a[size:] for name, a in held.items()}
            held = held if len(next(iter(held.values()))) else {}
    if held:
        yield held


class _Digest:
    """A digest of rows that does not depend on the batches they come in."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Takes in more rows."""
        for name, a in batch.items():
            self.parts.setdefault(name, hashlib.sha256()).update(np.ascontiguousarray(a).tobytes())

    def text(self) -> str:
        """The digest of the rows so far."""
        parts = "".join(f"{name} {part.hexdigest()}\n" for name, part in sorted(self.parts.items()))
        return hashlib.sha256(parts.encode()).hexdigest()

    def copy(self) -> "_Digest":
        """A digest that goes on by itself."""
        other = _Digest()
        other.parts = {name: part.copy() for name, part in self.parts.items()}
        return other


def _absorbed(rows: Rows, sources: Sequence[dict[str, Any]], size: int) -> tuple[dict[str, Any] | None, _Digest]:
    """The record whose rows the file begins with, and their digest: the file is known by its rows, not by its name."""
    ends = sorted({s["rows"] for s in sources if s["rows"]})
    found, kept = None, _Digest()
    read, digest = 0, _Digest()
    for batch in rows.batches(size) if ends else ():
        length = len(next(iter(batch.values())))
        done = 0
        for end in ends:
            if read < end <= read + length:
                digest.add({name: a[done : end - read] for name, a in batch.items()})
                done = end - read
                match = [s for s in sources if s["rows"] == end and s["digest"] == digest.text()]
                if match:
                    found, kept = match[0], digest.copy()
        digest.add({name: a[done:] for name, a in batch.items()})
        read += length
        if read >= ends[-1]:
            break
    return found, kept


# ------------------------------------------------------------------------------------------------- signals


class _Stop:
    """Ctrl-C and SIGTERM ask for a stop at the next whole chunk; a second one does not ask."""

    def __init__(self) -> None:
        self.signal = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "_Stop":
        self.wake, self._write = os.pipe()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._ask) or signal.SIG_DFL
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self.wake)
        os.close(self._write)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, self._previous[number])
        os.write(self._write, b".")


@dataclass
class _StandardInput:
    """The bytes of standard input as they arrive; where a stop is asked for, they end."""

    file: Any
    stop: _Stop
    stopped: bool = False

    def read1(self, size: int) -> bytes:
        """Waits for more bytes or a stop."""
        descriptor = self._descriptor()
        if descriptor is not None:
            select.select([descriptor, self.stop.wake], [], [])
        if self.stop.signal:
            self.stopped = True
            return b""
        return self.file.read1(size) if descriptor is None else os.read(descriptor, size)

    read = read1

    def _descriptor(self) -> int | None:
        if sys.platform == "win32":  # select there knows sockets only
            return None
        with contextlib.suppress(OSError, ValueError):
            return self.file.fileno()
        return None


# --------------------------------------------------------------------------------------------- what to work on


def _table(data: str, stop: _Stop, header: Sequence[str] | None = None) -> Table:
    if data != "-":
        return open_table(data)
    reading = _StandardInput(sys.stdin.buffer, stop)
    return Csv("standard input", lambda: reading, live=True, header=header)


def _work(args: argparse.Namespace, table: Table, saved: Mapping[str, Any] | None = None) -> Work:
    """The learner, its rows and its constants."""
    model = _model(args.model)
    signature = inspect.signature(model).parameters
    parameters = {n: p for n, p in signature.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    open_ended = any(p.kind == p.VAR_KEYWORD for p in signature.values())
    settings = _settings(args.set)
    if saved is not None:
        mapping = _same_mapping(args.rows, saved["mapping"])
        if args.categories and _categories(args.categories) != saved["categories"]:
            raise UsageError("--categories differs from the checkpoint's, which are fixed for the stream.")
        rows = read_rows(table, mapping, saved["categories"])
    else:
        if args.rows is None:
            names = [n for n in parameters if n not in settings]
            required = [n for n in names if parameters[n].default is inspect.Parameter.empty]
            mapping = matching_names(table, required, [n for n in names if n not in required])
        else:
            mapping = parse_mapping(args.rows)
        rows = read_rows(table, mapping, _categories(args.categories))
        if args.rows is None or any(not i.columns for i in mapping):
            print(f"adfpp: --rows {format_mapping(rows.mapping)}", file=sys.stderr)
    constants = {name: _constant(text, name, rows) for name, text in settings.items()}
    given = {**dict.fromkeys(rows.arguments), **constants}
    for name in given:
        if name not in parameters and name != "dt" and not open_ended:
            near = difflib.get_close_matches(name, parameters, 1, 0.5)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UsageError(
                f"The model {args.model} has no argument {name!r}.{hint} Its arguments are {', '.join(parameters)}."
            )
        if name in constants and name in rows.arguments:
            raise UsageError(f"The argument {name!r} is given twice, by --rows and by --set.")
    for name, p in parameters.items():
        if p.default is p.empty and name not in given:
            raise UsageError(
                f"The model {args.model} needs its argument {name!r}: give columns with --rows {name}=…, or a number "
                f"with --set {name}=…."
            )
    options: dict[str, Any] = {
        "family": _family(args.family or "full"),
        "moments": args.moments or "auto",
        "rows": [n for n in rows.arguments if n != "dt" or "dt" in parameters],
    }
    learner = adfpp.ADF(model, dynamics=_dynamics(args.dynamics), **options)
    return Work(learner, adfpp.EP(model, **options), rows, constants)


def _same_mapping(given: str | None, kept: str) -> tuple[Assignment, ...]:
    """The checkpoint's mapping, after checking that the command line says the same, if anything."""
    mapping = parse_mapping(kept)
    if given is not None:
        known = {item.argument: item for item in mapping}
        stated = {}
        for item in parse_mapping(given):
            there = known.get(item.argument)
            stated[item.argument] = replace(item, columns=there.columns) if there and not item.columns else item
        if stated != known:
            raise UsageError(
                f"--rows {given} differs from the checkpoint's, {kept}. Leave --rows away to go on, or begin anew "
                "under another name."
            )
    return mapping


def _model(name: str) -> Callable[..., Any]:
    """The model ``path.py:function``, or the one called so in the folder ``models``."""
    path, colon, function = name.rpartition(":")
    if not colon:
        path, function = name, ""
    if path.endswith(".py"):
        module, where = _module_at(Path(path)), path
        function = function or "model"
    else:
        module, where = _named_module(name), f"models.{name}"
        function = "model"
    found = getattr(module, function, None)
    if not callable(found):
        own = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
        raise UsageError(
            f"{where} has no function {function!r}. Its functions are {', '.join(own) or 'none'}: write {path}:name."
        )
    return found


def _module_at(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"There is no file {path}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _importing_from(path.resolve().parent):
        spec.loader.exec_module(module)
    return module


def _named_module(name: str) -> ModuleType:
    with _importing_from(Path.cwd()):
        try:
            package = importlib.import_module("models")
            names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
        except ModuleNotFoundError:
            names = []
        if name in names:
            return importlib.import_module(f"models.{name}")
    known = f"The models in the folder models are {', '.join(names)}" if names else "There is no folder models here"
    near = difflib.get_close_matches(name, names, 1, 0.5)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"There is no model {name!r}.{hint} {known}; a model of your own is path.py:function.")


@contextlib.contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """The folder first in the search path, as for a script that stands in it."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def _settings(given: Sequence[str]) -> dict[str, str]:
    """``n_groups=8,scale=2.5`` as text by name."""
    out: dict[str, str] = {}
    for item in ",".join(given).split(",") if given else ():
        name, equals, value = item.partition("=")
        if not (equals and name.strip() and value.strip()):
            raise UsageError(f"--set is written like --set n_groups=8,scale=2.5; this is not: {item!r}.")
        out[name.strip()] = value.strip()
    return out


def _constant(text: str, name: str, rows: Rows) -> Any:
    counted = _COUNT.fullmatch(text)
    if counted:
        count = rows.count(counted[1])
        if count is None:
            raise UsageError(f"--set {name}={text}: no argument {counted[1]!r} is made of categories (:code).")
        return count
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    if not isinstance(value, int | float | str | None):
        raise UsageError(f"--set {name}={text}: constants are numbers, true, false or words.")
    return value


def _categories(given: Sequence[str]) -> dict[str, list[str]]:
    """``city=Rome,Oslo`` as lists by column."""
    out = {}
    for item in given:
        name, equals, value = item.partition("=")
        texts = [t.strip() for t in value.split(",")]
        if not (equals and name.strip() and all(texts)):
            raise UsageError(f"--categories is written like --categories city=Rome,Oslo; this is not: {item!r}.")
        doubled = [t for t in texts if texts.count(t) > 1]
        if doubled:
            raise UsageError(f"--categories {item} has {doubled[0]!r} twice.")
        out[name.strip().strip('"')] = texts
    return out


def _family(text: str) -> str | dict[str, str]:
    """A family for all sites, or ``precision=gamma,sign=bernoulli`` by site."""
    if "=" not in text:
        if text not in _FAMILIES:
            raise UsageError(
                f"--family {text}: it is one of {', '.join(_FAMILIES)} for all sites, or by site, like "
                "precision=gamma,sign=bernoulli."
            )
        return text
    out: dict[str, str] = {}
    for item in text.split(","):
        site, equals, family = (part.strip() for part in item.partition("="))
        near = difflib.get_close_matches(family, SITE_FAMILIES, 1, 0.5)
        if not (equals and site and family):
            raise UsageError(f"--family is written like --family precision=gamma,w=full; this is not: {item!r}.")
        if family not in SITE_FAMILIES:
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UsageError(
                f"--family {item.strip()}: there is no family {family!r} of a site.{hint} There are "
                f"{', '.join(SITE_FAMILIES)}."
            )
        if site in out:
            raise UsageError(f"--family names the site {site!r} twice.")
        out[site] = family
    return out


def _dynamics(text: str | None) -> Any:
    if text is None:
        return None
    name, _, number = text.partition("=")
    try:
        return _DYNAMICS[name](float(number))
    except (KeyError, ValueError) as error:
        cause = str(error) if name in _DYNAMICS and number else "it takes a name and a number"
        raise UsageError(
            f"--dynamics {text}: {cause}. It is written like random-walk=0.001, discount=0.99 or "
            "ornstein-uhlenbeck=100."
        ) from None


def _checkpoint_path(text: str | None) -> Path | None:
    if text is None:
        return None
    path = Path(text)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"The checkpoint {path} cannot be written: there is no folder {path.absolute().parent}.")
    if path.is_dir():
        raise UsageError(f"The checkpoint {path} is a folder; give a file's name.")
    return path


def _folder(text: str | None) -> Path | None:
    if text is None:
        return None
    # said before hours of work, not after
    if not any(importlib.util.find_spec(name) for name in ("h5netcdf", "netCDF4")):
        raise UsageError("--out writes netCDF files by h5netcdf, which is not installed: pip install 'adfpp[netcdf]'.")
    Path(text).mkdir(parents=True, exist_ok=True)
    return Path(text)


# ------------------------------------------------------------------------------------------------- talking


def _shows_progress() -> bool:
    return sys.stderr.isatty() and not os.environ.get("CI")


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[int, str], None]]:
    """A function ``bar(rows, score)`` that moves a progress bar, or does nothing."""
    if not _shows_progress():
        yield lambda rows, score: None
        return
    from tqdm import tqdm

    with tqdm(unit="row", unit_scale=True, file=sys.stderr) as bar:

        def move(rows: int, score: str) -> None:
            bar.set_postfix_str(score, refresh=False)
            bar.update(rows)

        yield move


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
    text = f"rows folded at once ({_CHUNK}; of standard input {_LIVE_CHUNK})"
    sub.add_argument("--chunk", type=int, metavar="ROWS", help=text)
    text = f"rows between checkpoints ({_EVERY})"
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
    return parser
