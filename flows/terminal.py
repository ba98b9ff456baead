"""What a terminal does to a command that runs for hours: wrong sizes, being hung up, pipes that nobody reads."""

import os
import signal
import sys
from contextlib import suppress
from typing import Any, TextIO, cast

__all__ = ["prepare_terminal"]

_WIDEST = 10_000


def prepare_terminal() -> None:
    """Call it first in a command: SIGTERM and a terminal that hangs up then end it as Ctrl-C does (KeyboardInterrupt).

    Where SIGHUP is ignored (nohup) it stays so. A standard error that is gone costs a run nothing from here on.
    """
    _forget_impossible_sizes()
    sys.stderr = cast(TextIO, _Lasting(sys.stderr))
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _forget_impossible_sizes() -> None:
    """A terminal of no columns (COLUMNS=0, as some CI has it) would be given no output at all."""
    for name in ("COLUMNS", "LINES"):
        said = os.environ.get(name, "")
        if said and not (said.isdigit() and 0 < int(said[:9]) <= _WIDEST):
            del os.environ[name]


class _Lasting:
    """A stream that says nothing where it can say nothing (EPIPE, EIO): it only tells of the work, and is not it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()
