"""The line of the user's own code from which an error or a call came, for messages."""

import linecache
import os
import sys
import traceback
from types import FrameType

# What a model calls: the user's line is the last one outside of these packages and of the standard library.
_LIBRARIES = frozenset(["adfpp", "jax", "jaxlib", "numpy", "numpyro", "scipy"])
_LONGEST = 80  # characters of code that a message shows


def is_users(frame: FrameType) -> bool:
    """Whether a frame runs the user's code, and not that of a library that a model calls."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package not in _LIBRARIES and package not in sys.stdlib_module_names


def raised_at(error: BaseException) -> str:
    """The user's line that led to an error: ``line 12 of model.py: `np.dot(x, w)```; empty if there is none."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame, entry in reversed(list(zip(frames, traceback.extract_tb(error.__traceback__), strict=True))):
        if is_users(frame):
            where = f"line {entry.lineno} of {os.path.basename(entry.filename)}"
            code = _code(entry)
            return f"{where}: `{code}`" if code else where
    return ""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, as a sentence."""
    line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return line if line.endswith(".") else line + "."


def _code(entry: traceback.FrameSummary) -> str:
    """The expression that was evaluated, or the start of its line if it is long or spans several lines."""
    line = linecache.getline(entry.filename, entry.lineno or 0)
    code = line.strip()
    if entry.lineno == entry.end_lineno and entry.colno is not None and entry.end_colno is not None:
        # columns are counted in bytes
        code = line.encode()[entry.colno : entry.end_colno].decode(errors="replace").strip() or code
    return code if len(code) <= _LONGEST else code[:_LONGEST] + "…"
