"""Signals that ask for a stop at the next whole chunk, and a standard input that heeds them."""

import contextlib
import os
import select
import signal
import sys
import threading
from dataclasses import dataclass
from types import FrameType
from typing import Any


class Stop:
    """Ctrl-C and SIGTERM ask for a stop at the next whole chunk; a second one does not ask."""

    def __init__(self) -> None:
        self.signal = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "Stop":
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
class StandardInput:
    """The bytes of standard input as they arrive; where a stop is asked for, they end."""

    file: Any
    stop: Stop
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
