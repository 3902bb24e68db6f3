"""Runs adfpp on published models that were written without adfpp in mind.

    python -m benchmarks.models_tried [--only NAME ...] [--write] [--cache FOLDER]

Each case runs in a process of its own with a time limit, and its result is kept in a folder: a second run only runs
what is missing or has changed. `--write` makes docs/models-tried.md from all results in the folder.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpyro

from benchmarks.models_tried.cases import CASES, Case
from benchmarks.models_tried.page import PAGE, page
from benchmarks.models_tried.run import CRASHED, LIMIT, RAN, Record, digest, expected, record_path, run_case, versions

_CACHE = Path(".benchmarks") / "models-tried"


def kept(case: Case, cache: Path, quick: bool = True) -> Record | None:
    """The record of an earlier run, if there is one of the same case and versions that is not only a quick one."""
    path = record_path(case, cache)
    if not path.exists():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    if record["digest"] != digest(case) or record["versions"] != versions():
        return None
    return None if not quick and record.get("quick", False) and record["outcome"] == RAN else record


def attempt(case: Case, cache: Path, limit: float, quick: bool) -> Record:
    """Runs a case in a process of its own, and records it if the process crashes or takes too long."""
    path = record_path(case, cache)
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.models_tried", "--run", case.name, "--cache", str(cache)]
    command += ["--quick"] * quick
    outcome, message = CRASHED, ""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        if ended.returncode == 0:
            return json.loads(path.read_text(encoding="utf-8"))
        message = f"exit code {ended.returncode}: {ended.stderr.strip()[-300:]}"
    except subprocess.TimeoutExpired:
        outcome, message = LIMIT, f"more than {limit:g} s"
    record: Record = {"name": case.name, "digest": digest(case), "versions": versions()}
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
    record |= {"outcome": outcome, "message": message}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1), encoding="utf-8")
    return record


def line(case: Case, record: Record) -> str:
    """A record in one line."""
    words = [f"{case.name}: {expected(case, record)}"]
    for kind in ("adf", "ep"):
        one = record.get(kind)
        if one is not None:
            words.append(f"{kind} first {one['first_seconds']:.1f} s")
            if "right" in one:
                words.append(f"error {one['mean_error']:.2f}, sds {one['sd_low']:.2f}–{one['sd_high']:.2f}")
            words.append(one.get("grade", "no verdict"))
    if "fields" in record:
        words.append(f"field {record['fields']} of {case.smallest}, priors {record['prior_fields']}")
    if "message" in record:
        words.append(f"[{record.get('stage', '')}] {record['message'][:400]}")
    return "; ".join(words)


def main() -> None:
    """Runs the cases and makes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="the cases with this name, or with it in their name")
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name}")
    parser.add_argument("--cache", type=Path, default=_CACHE, help=f"the folder of the results (default {_CACHE})")
    parser.add_argument("--again", choices=("adfpp",), help="run adfpp again, and keep NUTS's draws")
    parser.add_argument("--quick", action="store_true", help="without checks and references")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each case (default 300)")
    parser.add_argument("--jobs", type=int, default=1, help="cases that run at the same time (default 1)")
    parser.add_argument("--run", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    numpyro.enable_x64()
    # otherwise NUTS would still sample while the next function is compiled, which would count as compilation
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if options.run is not None:
        run_case(next(case for case in CASES if case.name == options.run), options.cache, options.quick)
        return
    names = {c.name for c in CASES}
    wanted = [
        c
        for c in CASES
        if not options.only or any(w == c.name or (w in c.name and w not in names) for w in options.only)
    ]
    todo = [c for c in wanted if options.again or kept(c, options.cache, options.quick) is None]
    with ThreadPoolExecutor(options.jobs) as pool:
        for case, record in zip(
            todo, pool.map(lambda case: attempt(case, options.cache, options.limit, options.quick), todo), strict=True
        ):
            print(line(case, record), flush=True)
    if options.write:
        records = [record for case in CASES if (record := kept(case, options.cache)) is not None]
        PAGE.write_text(page(records), encoding="utf-8")


if __name__ == "__main__":
    main()
