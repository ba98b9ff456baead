"""What a terminal does to a command that runs for hours: wrong sizes, being hung up, pipes that nobody reads."""

import logging
import os
import signal
import sys
from contextlib import suppress
from typing import IO, Any, TextIO, cast

from rich.console import Console

__all__ = ["outlive_readers", "prepare_terminal"]

_WIDEST = 10_000


def prepare_terminal() -> None:
    """Call it first in a command: SIGTERM and a terminal that hangs up then end it as Ctrl-C does (KeyboardInterrupt).

    Where SIGHUP is ignored (nohup) it stays so.
    """
    _forget_impossible_sizes()
    outlive_readers()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def outlive_readers() -> None:
    """Standard error that nobody reads any more (a pager that was left, a worker that was killed) costs a run nothing.

    Prefect's console lines are rich's, which makes a SystemExit of a closed pipe: under a killed worker the flow ended
    with its next line (Prefect 3.9.1, rich 15).
    """
    sys.stderr = _lasting(sys.stderr or open(os.devnull, "w"))  # noqa: SIM115 - None after `2>&-`
    for name in (None, *logging.root.manager.loggerDict):
        for handler in logging.getLogger(name).handlers:
            console = getattr(handler, "console", None)  # of PrefectConsoleHandler, which is slow to import
            if isinstance(console, Console):
                console.file = _lasting(console.file)


def _lasting(stream: IO[str]) -> TextIO:
    return cast(TextIO, stream if isinstance(stream, _Lasting) else _Lasting(stream))


def _forget_impossible_sizes() -> None:
    """A terminal of no columns (COLUMNS=0, as some CI has it) would be given no output at all."""
    for name in ("COLUMNS", "LINES"):
        said = os.environ.get(name, "")
        if said and not (said.isdigit() and 0 < int(said[:9]) <= _WIDEST):
            del os.environ[name]


class _Lasting:
    """A stream that is silent where it can say nothing (gone or closed): it only tells of the work, and is not it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()
