"""The ``stream`` command: absorbs a stream, keeps the state in a checkpoint, and continues from it."""

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import jax
import numpy as np

import adfpp
from adfpp.cli.inputs import Inputs, Saved
from adfpp.cli.options import CHUNK, EVERY, LIVE_CHUNK, UsageError
from adfpp.cli.progress import row_bar, shows_progress
from adfpp.cli.signals import Stop
from adfpp.io import checkpoint
from adfpp.io.checkpoint import CheckpointError
from adfpp.io.mapping import format_mapping
from adfpp.io.rows import Rows
from adfpp.io.tables import TableError
from adfpp.learn.stream import Log, refused_priors

_DRAWS = 4000  # draws in posterior.nc, as many as in `adfpp compare`

# the options that a checkpoint keeps, so that they need not be given again to continue a stream
_REMEMBERED = ("family", "moments", "dynamics", "set", "seed", "chunk", "every", "float32")


class Source(TypedDict):
    """The rows of a file that have been absorbed.

    Attributes:
        name: The path of the file.
        rows: The number of absorbed rows, from the first.
        digest: The digest of these rows.
    """

    name: str
    rows: int
    digest: str


class Stream:
    """A learner that reads a stream: the state, the position in the stream, and the statuses of the rows.

    Args:
        args: The options, completed by ``fill_in_options``.
        inputs: The learner, its rows and its constants.
        path: The path of the checkpoint, if there is one.
        saved: The values in the checkpoint beside the state, if the checkpoint exists.

    Attributes:
        pending: Rows of standard input that have been read and wait for the rest of their chunk.
        log: The statuses and scores of the rows.
    """

    def __init__(self, args: argparse.Namespace, inputs: Inputs, path: Path | None, saved: Saved | None) -> None:
        self.log = Log("totals", 0, None)
        self.pending: dict[str, np.ndarray] = {}
        self._args, self._inputs, self._path = args, inputs, path
        self._state: Any = None
        self._sources: list[Source] = []
        self._shape: dict[str, np.ndarray] = {}
        self._rows_at_last_save = 0
        if saved is not None and path is not None:
            # arguments with one row, for their shapes: the rows themselves are no longer available
            self._shape = saved["shape"]
            self._state = checkpoint.load(path, inputs.adf, **self._shape, **inputs.constants).state
            self._sources, self.pending = saved["sources"], saved["pending"]
            self.log.log_z, self.log.error, self.log.seen = saved["log_z"], saved["error"], saved["seen"]
            self.log.counts = _counts_by_code(saved["counts"], path)
            self._rows_at_last_save = self.log.seen

    def read(self, stop: Stop, from_start: bool) -> None:
        """Absorbs the rows until the stream ends or a stop is requested."""
        rows, chunk = self._inputs.rows, self._args.chunk
        live = rows.table.live
        source, digest = (Source(name="", rows=0, digest=""), _Digest()) if live else self._source(from_start)
        batches = rows.batches(chunk, source["rows"])
        if live:
            batches = _after_pending(self.pending, batches, chunk)
        elif self.pending:
            self._absorb(self.pending)
            self.pending = {}
        with row_bar() as bar:
            try:
                for batch in batches:
                    length = len(next(iter(batch.values())))
                    if live and stop.signal and length < chunk:
                        # without the stop these rows would have been absorbed together with the next ones
                        self._ensure_state(batch)
                        self.pending = batch
                        break
                    self._absorb(batch)
                    self.pending = {}
                    if not live:
                        digest.add(batch)
                        source["rows"] += length
                        source["digest"] = digest.text()
                    bar(length, self.score())
                    if self.log.seen - self._rows_at_last_save >= self._args.every:
                        self._save()
                        if not shows_progress():
                            print(self.score(), flush=True)
                    if stop.signal and not live:
                        break
            except (TableError, adfpp.ModelError):
                if self._state is not None:  # the chunks before the bad row remain absorbed
                    self._save()
                raise
        if self._state is None:
            raise TableError(f"{rows.table.name} has no rows.")
        self._save()

    def score(self) -> str:
        """The running score of one-step-ahead prediction."""
        refused = sum(int(self.log.counts[status]) for status in adfpp.Status if status.refused)
        mean = self.log.log_z / max(1, self.log.seen - refused)
        return f"rows {self.log.seen}  log score {mean:.4f}  refused {refused}"

    def report(self, out: Path | None) -> None:
        """Prints the posterior and the statuses of the rows, and writes the posterior to a folder."""
        posterior = self._inputs.adf.get_posterior(self._state)
        summary = posterior.summary()
        print(self.score())
        print(f"\n{summary.to_string(max_rows=60)}\n")
        for status in adfpp.Status:
            if self.log.counts[status]:
                print(f"{self.log.counts[status]:>10} {status.name}: {status.advice}")
        for name in refused_priors(posterior.program.latents_of_priors(self._state.prior_status)):
            print(f"The prior of {name!r} could not be used: the latents in it are not learned from it.")
        if self._path is not None:
            print(f"\ncheckpoint: {self._path}")
        if out is not None:
            summary.to_csv(out / "summary.csv")
            # the rows are not kept, so only draws can be written
            draws = adfpp.to_arviz(posterior, rng_key=jax.random.key(self._args.seed), num_samples=_DRAWS)
            draws.to_netcdf(out / "posterior.nc")
            print(f"written to {out}: summary.csv, posterior.nc")

    def _ensure_state(self, batch: Mapping[str, np.ndarray]) -> None:
        if self._state is None:
            key = jax.random.key(self._args.seed)
            self._state = self._inputs.adf.init(key, **batch, **self._inputs.constants)
            self._shape = {name: np.zeros_like(a[:1]) for name, a in batch.items()}

    def _absorb(self, batch: Mapping[str, np.ndarray]) -> None:
        self._ensure_state(batch)
        self._state, info = self._inputs.adf.update(self._state, **batch, **self._inputs.constants)
        self.log.add(jax.device_get(info), self.log.seen)

    def _source(self, from_start: bool) -> tuple[Source, "_Digest"]:
        """The record of the file that is read, and the digest of its rows that have been absorbed."""
        table = self._inputs.rows.table
        name = os.path.realpath(table.name)
        if self._sources and not from_start:
            known, digest = _longest_match(self._inputs.rows, self._sources, self._args.chunk)
            if known is not None:
                print(f"adfpp: continuing after row {known['rows']} of {table.name}", file=sys.stderr)
                return known, digest
            same_name = [s for s in self._sources if s["name"] == name and s["rows"]]
            if same_name:
                raise TableError(
                    f"{table.name} has changed: it does not start with the {same_name[0]['rows']} rows that the "
                    "checkpoint has absorbed from it. Restore the file, put new rows into a separate file, or "
                    "absorb this one as new rows with --from-start."
                )
        digest = _Digest()
        source = Source(name=name, rows=0, digest=digest.text())
        self._sources = [s for s in self._sources if s["name"] != name] + [source]
        return source, digest

    def _save(self) -> None:
        self._rows_at_last_save = self.log.seen
        if self._path is None:
            return
        args, rows = self._args, self._inputs.rows
        checkpoint.save(
            self._path,
            self._inputs.adf,
            self._state,
            settings={name: getattr(args, name) for name in _REMEMBERED},
            mapping=format_mapping(rows.mapping),
            categories={c: list(v) for c, v in rows.categories.items()},
            header=list(rows.table.columns),
            sources=self._sources,
            pending=self.pending,
            shape=self._shape,
            log_z=self.log.log_z,
            error=self.log.error,
            seen=self.log.seen,
            # by name, because another version may have other codes
            counts={status.name: int(self.log.counts[status]) for status in adfpp.Status},
        )


def fill_in_options(args: argparse.Namespace, saved: Saved | None) -> None:
    """Sets the options that are not given to those in the checkpoint, or else to their defaults."""
    settings: dict[str, object] = {"family": "full", "moments": "auto", "dynamics": None, "set": [], "seed": 0}
    settings |= {"chunk": LIVE_CHUNK if args.data == "-" else CHUNK, "every": EVERY, "float32": False}
    settings |= saved["settings"] if saved is not None else {}
    for name in _REMEMBERED:
        given = getattr(args, name)
        if given is None or given is False or given == []:
            setattr(args, name, settings[name])
    if args.chunk < 1 or args.every < 1:
        raise UsageError(f"--chunk and --every take whole numbers from 1 on; they are {args.chunk} and {args.every}.")


def _counts_by_code(counts: object, path: Path) -> np.ndarray:
    """The number of rows with each status, by its current code, from the counts by name in a checkpoint."""
    known = {status.name for status in adfpp.Status}
    if not isinstance(counts, Mapping) or not set(counts) <= known:
        raise CheckpointError(
            f"{path} was written by another version of adfpp, whose counts of rows by status cannot be read. Absorb "
            "the stream again into a new checkpoint, or continue with the version that wrote it. The file is left as "
            "it is."
        )
    return np.array([counts.get(status.name, 0) for status in adfpp.Status])


def _after_pending(
    pending: Mapping[str, np.ndarray], batches: Iterator[dict[str, np.ndarray]], size: int
) -> Iterator[dict[str, np.ndarray]]:
    """The batches, cut again into ``size`` rows each, with the pending rows at the beginning."""
    waiting = dict(pending)
    while True:
        try:
            batch = next(batches, None)
        except TableError:
            if waiting:
                yield waiting
            raise
        if batch is None:
            break
        waiting = {name: np.concatenate([waiting[name], a]) for name, a in batch.items()} if waiting else batch
        while waiting and len(next(iter(waiting.values()))) >= size:
            yield {name: a[:size] for name, a in waiting.items()}
            rest = {name: a[size:] for name, a in waiting.items()}
            waiting = rest if len(next(iter(rest.values()))) else {}
    if waiting:
        yield waiting


class _Digest:
    """A digest of rows that does not depend on how they are cut into batches."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}  # objects of hashlib, whose class has no public name

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Adds rows to the digest."""
        for name, a in batch.items():
            self._parts.setdefault(name, hashlib.sha256()).update(np.ascontiguousarray(a).tobytes())

    def text(self) -> str:
        """The digest of the rows so far."""
        parts = "".join(f"{name} {part.hexdigest()}\n" for name, part in sorted(self._parts.items()))
        return hashlib.sha256(parts.encode()).hexdigest()

    def copy(self) -> "_Digest":
        """A digest that continues independently of this one."""
        other = _Digest()
        other._parts = {name: part.copy() for name, part in self._parts.items()}
        return other


def _longest_match(rows: Rows, sources: Sequence[Source], size: int) -> tuple[Source | None, _Digest]:
    """The record whose rows the file starts with (the longest of several), and the digest of these rows.

    The file is recognised by its rows, not by its name.
    """
    ends = sorted({s["rows"] for s in sources if s["rows"]})
    match, kept = None, _Digest()
    read, digest = 0, _Digest()
    for batch in rows.batches(size) if ends else ():
        length = len(next(iter(batch.values())))
        done = 0
        for end in ends:
            if read < end <= read + length:
                digest.add({name: a[done : end - read] for name, a in batch.items()})
                done = end - read
                matching = [s for s in sources if s["rows"] == end and s["digest"] == digest.text()]
                if matching:
                    match, kept = matching[0], digest.copy()
        digest.add({name: a[done:] for name, a in batch.items()})
        read += length
        if read >= ends[-1]:
            break
    return match, kept
