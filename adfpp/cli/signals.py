"""Ctrl-C and SIGTERM as requests to stop at the end of a chunk, and a standard input that ends where one arrives."""

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
    """While it is entered, the first Ctrl-C or SIGTERM only asks for a stop; a second one acts at once.

    Attributes:
        signal: The number of the signal that asked for a stop; 0 as long as none did.
        wake: A file descriptor that can be read from as soon as one did.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._previous: dict[int, _Handler] = {}

    def __enter__(self) -> "Stop":
        self.wake, self._write = os.pipe()
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
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
        """The exit code of a command that stopped on request, as shells count them."""
        return 128 + self.signal

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, self._previous[number])
        os.write(self._write, b".")


@dataclass
class StandardInput:
    """The bytes of standard input as they arrive; they end where a stop is requested.

    Attributes:
        file: Standard input.
        stop: The request.
        stopped: Whether the bytes ended because of it.
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
        """Leaves standard input open: it belongs to the process."""

    def _descriptor(self) -> int | None:
        if sys.platform == "win32":  # select works with sockets only there
            return None
        with contextlib.suppress(OSError, ValueError):
            return self.file.fileno()
        return None
