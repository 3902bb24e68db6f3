"""Measures how often the verdicts of adfpp.check are right.

    python -m benchmarks.verdicts [--group report] [--only NAME ...] [--write] [--cache FOLDER]

Each record is kept in a folder: a second run only runs what is missing or has changed. `--write` makes docs/verdicts.md
from the records of the group "report". The thresholds of the check were chosen on other models and data, those of the
group "calibration".
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpyro

from benchmarks.verdicts.cases import CASES, Case
from benchmarks.verdicts.page import PAGE, page
from benchmarks.verdicts.run import Record, digest, is_false_alarm, is_false_trust, record_path, run_case, versions

_CACHE = Path(".benchmarks") / "verdicts"


def kept(case: Case, cache: Path) -> Record | None:
    """The record of an earlier run of the same case and versions."""
    path = record_path(case, cache)
    if not path.exists():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    return record if record["digest"] == digest(case) and record["versions"] == versions() else None


def line(record: Record) -> str:
    """A record in one line."""
    found = record["found"]
    mark = "FALSE TRUST " if is_false_trust(record) else "FALSE ALARM " if is_false_alarm(record) else ""
    true = "alarm expected"
    if "error" in record:
        true = f"error {record['error']:.3f} ± {record['mcse']:.3f}"
        true += f", sds {record['sd_ratio']:.2f} ± {record['sd_mcse']:.2f}"
    low, high = found["sd_ratio"]
    estimated = f"found {found['error']:.3f}, {low:.2f}–{high:.2f} ± {found['noise']:.3f}"
    how = f"{found['method']}, drift {found['drift'][0]:.1g}, {record['seconds']:.0f} s"
    return f"{mark}{record['name']}: {true}; {estimated} ({how}): {record['grade']}"


def main() -> None:
    """Runs the cases and makes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", choices=("calibration", "report"), help="one of the two groups (default both)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="the cases whose name contains one of these")
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name}")
    parser.add_argument("--again", action="store_true", help="run the checks again, and keep the references")
    parser.add_argument("--cache", type=Path, default=_CACHE, help=f"the folder of the records (default {_CACHE})")
    parser.add_argument("--single", action="store_true", help=argparse.SUPPRESS)  # the cases in float32
    options = parser.parse_args()
    wanted = [c for c in CASES if options.group in (None, c.group)]
    wanted = [c for c in wanted if not options.only or any(word in c.name for word in options.only)]
    todo = [c for c in wanted if options.again or kept(c, options.cache) is None]
    dtype = "float32" if options.single else "float64"
    if not options.single:
        numpyro.enable_x64()
    # streams of a model and a learner share their compiled programs
    ordered = sorted(todo, key=lambda case: (case.group, case.simulated.name, case.learner))
    for before, case in zip([None, *ordered], ordered, strict=False):
        if before is not None and before.simulated is not case.simulated:
            jax.clear_caches()
        if case.dtype == dtype:
            print(line(run_case(case, options.cache)), flush=True)
    if not options.single and any(case.dtype == "float32" for case in todo):
        subprocess.run([sys.executable, "-m", "benchmarks.verdicts", "--single", *sys.argv[1:]], check=True)
    if options.write and not options.single:
        records = [r for c in CASES if c.group == "report" and (r := kept(c, options.cache)) is not None]
        PAGE.write_text(page(records), encoding="utf-8")


if __name__ == "__main__":
    main()
