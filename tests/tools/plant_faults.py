"""Plants faults in a copy of the code, one at a time, and reports which of them the fast tests find.

    python -m tests.tools.plant_faults                  # all faults: the likely tests first, then all fast tests
    python -m tests.tools.plant_faults --only-first     # the likely tests alone: minutes instead of hours
    python -m tests.tools.plant_faults --list

The copy is made of the files that git knows, or would take, in a temporary directory, so that the script can be
interrupted at any time. One copy serves all faults: the programs that JAX has compiled for one of them are there for
the next. The tests run once without a fault before anything is planted, because a test that fails anyway finds nothing.
The faults themselves are in ``faults``.
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.tools.faults import FAULTS, Fault

REPOSITORY = Path(__file__).resolve().parents[2]
NEEDED = 28  # of 30: the others may be such that only the slow tests find them
_HANGS = 5400  # seconds after which tests are given up: a fault may make a loop endless
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Found(NamedTuple):
    """What the tests made of one fault.

    Attributes:
        fault: The fault.
        test: The test that failed; None where all of them passed.
        among_all: Whether all fast tests were run, and not the likely ones alone.
        seconds: How long it took.
    """

    fault: Fault
    test: str | None
    among_all: bool
    seconds: float

    def __str__(self) -> str:
        where = "all fast tests" if self.among_all else "the likely tests"
        verdict = f"found by {self.test}" if self.test else f"MISSED by {where}"
        return f"{self.fault.name:<32} {self.seconds:6.0f} s  {verdict}"


def misplaced(root: Path) -> list[str]:
    """What is wrong with the list of faults for the code under ``root``: each old text has to occur exactly once."""
    out = []
    for fault in FAULTS:
        file = root / fault.file
        count = file.read_text().count(fault.old) if file.is_file() else None
        if count is None:
            out.append(f"{fault.name}: there is no file {fault.file}")
        elif count != 1:
            out.append(f"{fault.name}: its text occurs {count} times in {fault.file}, and should occur once")
        out += [f"{fault.name}: there is no file {test}" for test in fault.tests if not (root / test).is_file()]
    return out


def copy_repository(to: Path) -> None:
    """Copies the files that git tracks, or would take, as they are in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (REPOSITORY / name).is_file():  # a file that was removed is still listed
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, to / name)


@contextlib.contextmanager
def planted(fault: Fault, root: Path) -> Iterator[None]:
    """A fault in the code under ``root``, for as long as the block lasts."""
    file = root / fault.file
    before = file.read_text()
    file.write_text(before.replace(fault.old, fault.new))
    try:
        yield
    finally:
        file.write_text(before)


def failing_test(root: Path, tests: Sequence[str], workers: int) -> str | None:
    """The first fast test that fails under ``root``, or None; ``tests`` are files, and all of them if there is none."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", str(workers), "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(root)}  # the programs that tests start import the copy, too
    try:
        run = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=_HANGS)
    except subprocess.TimeoutExpired:
        return "a test that does not end"
    if run.returncode == 0:
        return None
    failed = _FAILED_TEST.search(run.stdout)
    if failed:
        return failed[1]
    raise RuntimeError(
        f"pytest ended with {run.returncode} and names no test:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
    )


def look_for(fault: Fault, root: Path, workers: int, only_first: bool) -> Found:
    """Plants a fault and runs the tests: the likely ones, and all others if these pass."""
    started = time.monotonic()
    with planted(fault, root):
        test = failing_test(root, fault.tests, workers)
        among_all = test is None and not only_first
        if among_all:
            test = failing_test(root, [f"--deselect={name}" for name in fault.tests], workers)
    return Found(fault, test, among_all, time.monotonic() - started)


def main() -> int:
    """Runs the script; 0 if enough faults were found."""
    parser = argparse.ArgumentParser(description="Plants faults, and reports which of them the fast tests find.")
    parser.add_argument("names", nargs="*", metavar="fault", help="faults to plant; all of them by default")
    parser.add_argument("--list", action="store_true", help="list the faults and stop")
    parser.add_argument("--only-first", action="store_true", help="run the likely tests of each fault alone")
    parser.add_argument("--jobs", type=int, default=1, help="how many tests run at a time (1)")
    parser.add_argument("--folder", type=Path, help="put the copy here and keep it, with its compiled programs")
    options = parser.parse_args()
    unknown = set(options.names) - {fault.name for fault in FAULTS}
    if unknown:
        parser.error(f"there is no fault {', '.join(sorted(unknown))}; --list shows them")
    if options.list:
        for fault in FAULTS:
            print(f"{fault.name:<32} {fault.kind:<18} {fault.file}")
        return 0
    if wrong := misplaced(REPOSITORY):
        print("The list of faults is out of date:", *wrong, sep="\n  ")
        return 2
    faults = [fault for fault in FAULTS if not options.names or fault.name in options.names]
    workers = options.jobs if options.jobs > 1 else 0  # with one, without xdist
    with contextlib.ExitStack() as stack:
        root = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        root = root.resolve()
        copy_repository(root)
        likely = sorted({test for fault in faults for test in fault.tests}) if options.only_first else []
        if broken := failing_test(root, likely, workers):
            print(f"{broken} fails without any fault: repair it first.")
            return 2
        found = []
        for fault in faults:
            found.append(look_for(fault, root, workers, options.only_first))
            print(found[-1], flush=True)
    count = sum(one.test is not None for one in found)
    print(f"{count} of {len(found)} faults were found.")
    return 0 if count >= len(found) - (len(FAULTS) - NEEDED) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
