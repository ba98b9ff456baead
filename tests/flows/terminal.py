"""A program on a real pty, and what a person would see of it there (drawn by pyte)."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import pyte

from tests.flows.conftest import wait_for

__all__ = ["Terminal"]

LEAVES = b"\x1b[?1049l"  # back from the terminal's other screen


class Terminal:
    """`argv` in a terminal of this size. Use it as a context manager: what still runs at its end is killed."""

    def __init__(self, argv: list[str], env: Mapping[str, str], *, columns: int = 80, lines: int = 24) -> None:
        self.raw, self._lock = b"", threading.Lock()
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._master, slave = pty.openpty()
        self._size(columns, lines)
        self.process = subprocess.Popen(
            argv, env={**env, "TERM": "xterm-256color"}, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)
        self._reader.join(timeout=30)
        os.close(self._master)

    @property
    def display(self) -> list[str]:
        """The lines that are seen, without what is empty to their right."""
        with self._lock:
            return [line.rstrip() for line in self.screen.display]

    @property
    def after(self) -> str:
        """What was written once the screen had been left."""
        return self.raw.rpartition(LEAVES)[2].decode()

    def until(self, shows: Callable[[list[str]], object], what: str, within_s: float = 90) -> list[str]:
        """The display at the moment when it holds."""
        seen: list[str] = []

        def looked() -> bool:
            seen[:] = self.display
            return bool(shows(seen))

        try:
            wait_for(looked, within_s, what)
        except AssertionError as e:
            raise AssertionError("\n".join([str(e), *seen])) from e
        return seen

    def resize(self, columns: int, lines: int) -> None:
        with self._lock:
            self.screen.resize(lines, columns)
        self._size(columns, lines)

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the last process that had the terminal is gone
                return
            with self._lock:
                self.raw += data
                self._stream.feed(data)
