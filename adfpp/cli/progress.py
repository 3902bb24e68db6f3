"""Progress bars on standard error, if it is a terminal."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator


def shows_progress() -> bool:
    """Whether standard error is a terminal, outside of an automatic build."""
    return sys.stderr.isatty() and not os.environ.get("CI")


@contextlib.contextmanager
def row_bar() -> Iterator[Callable[[int, str], None]]:
    """Yields a function ``move(rows, score)`` that advances a progress bar, or does nothing without a terminal."""
    if not shows_progress():
        yield lambda rows, score: None
        return
    from tqdm import tqdm

    with tqdm(unit="row", unit_scale=True, file=sys.stderr) as bar:

        def move(rows: int, score: str) -> None:
            bar.set_postfix_str(score, refresh=False)
            bar.update(rows)

        yield move


@contextlib.contextmanager
def step_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Yields a function ``show(what, done, total)`` that shows the progress of each part of a long computation."""
    if not shows_progress():
        yield lambda what, done, total: None
        return
    from tqdm import tqdm

    with tqdm(unit="run", file=sys.stderr, leave=False) as bar:

        def show(what: str, done: int, total: int) -> None:
            if bar.desc != f"{what}: ":
                bar.reset(total)
                bar.set_description(what, refresh=False)
            bar.update(done - bar.n)

        yield show
