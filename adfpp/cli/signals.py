"""Turns Ctrl-C and SIGTERM into requests to stop at the end of a chunk, which also end standard input."""

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedReader
from types import FrameType
from typing import TypeAlias

_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class Stop:
    """A context in which the first Ctrl-C or SIGTERM only requests a stop; a second one acts at once.

    Attributes:
        signal: The number of the signal that requested a stop; 0 without a request.
        wake: A file descriptor that becomes readable when a stop is requested.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._previous: dict[int, _Handler] = {}

    def __enter__(self) -> "Stop":
        self.wake, self._write = os.pipe()
        if threading.current_thread() is threading.main_thread():  # Python allows handlers only there
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._request) or signal.SIG_DFL
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self.wake)
        os.close(self._write)

    @property
    def exit_code(self) -> int:
        """The exit code of a command that a signal stopped, by the convention of shells."""
        return 128 + self.signal

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, self._previous[number])
        os.write(self._write, b".")


@dataclass
class StandardInput:
    """The bytes of standard input as they arrive; they end when a stop is requested.

    Attributes:
        file: Standard input.
        stop: The object that receives requests to stop.
        stopped: Whether the bytes ended because of a request.
    """

    file: BufferedReader
    stop: Stop
    stopped: bool = False

    def read1(self, size: int, /) -> bytes:
        """Waits for more bytes or for a stop."""
        descriptor = self._descriptor()
        if descriptor is not None:
            select.select([descriptor, self.stop.wake], [], [])
        if self.stop.signal:
            self.stopped = True
            return b""
        return self.file.read1(size) if descriptor is None else os.read(descriptor, size)

    def close(self) -> None:
        """Does nothing: standard input belongs to the process and stays open."""

    def _descriptor(self) -> int | None:
        if sys.platform == "win32":  # select works with sockets only there
            return None
        with contextlib.suppress(OSError, ValueError):
            return self.file.fileno()
        return None
