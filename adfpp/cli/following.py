"""A stream on its way into a checkpoint: what has been read, what waits, and how it goes on."""

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import adfpp
from adfpp.cli.stopping import Stop
from adfpp.cli.talking import row_bar, shows_progress
from adfpp.cli.work import UsageError, Work
from adfpp.io import checkpoint
from adfpp.io.checkpoint import CheckpointError
from adfpp.io.tables import (
    Rows,
    TableError,
    format_mapping,
)
from adfpp.learn.stream import Log

CHUNK = 4096  # rows of a file folded at once


LIVE_CHUNK = 64  # rows of standard input folded at once: they wait for each other


EVERY = 10_000


_DRAWS = 4000  # in posterior.nc


class Follower:
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
            if not isinstance(saved["counts"], Mapping):
                raise CheckpointError(
                    f"{path} was written by an older adfpp, whose counts of rows by status cannot be read: fold the "
                    "stream again into a new checkpoint."
                )
            self.log.counts = np.array([saved["counts"].get(status.name, 0) for status in adfpp.Status])
            self.last_saved = self.log.seen

    def follow(self, stop: "Stop", from_start: bool) -> None:
        """Folds what there is to read until it ends or is stopped."""
        rows, args = self.work.rows, self.args
        source, digest = self._source(from_start)
        batches = rows.batches(args.chunk, source["rows"])
        if rows.table.live:
            batches = _regrouped(self.pending, batches, args.chunk)
        elif self.pending:
            self._fold(self.pending)
            self.pending = {}
        with row_bar() as bar:
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
                        if not shows_progress():
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
            counts={status.name: int(self.log.counts[status]) for status in adfpp.Status},
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


def fill_in(args: argparse.Namespace, saved: Mapping[str, Any] | None) -> None:
    """Options that are not given: as the checkpoint remembers them, else their defaults."""
    chunk = LIVE_CHUNK if args.data == "-" else CHUNK
    settings = {"family": "full", "moments": "auto", "dynamics": None, "set": [], "seed": 0, "every": EVERY}
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
