"""What a terminal does to a command that runs for hours: wrong sizes, being hung up, pipes that nobody reads."""

import logging
import os
import signal
import sys
from typing import IO, Any, TextIO, cast

from rich.console import Console

__all__ = ["nobody_reads", "outlive_readers", "prepare_terminal"]

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
    """Output that nobody reads any more (a pager that was left, a worker that was killed) costs a run nothing.

    Prefect's console lines are rich's, which makes a SystemExit of a closed pipe: under a killed worker the flow ended
    with its next line (Prefect 3.9.1, rich 15).
    """
    sys.stdout = _lasting(sys.stdout or _nowhere(), BrokenPipeError)  # a full disk is an error there: a file would lack
    sys.stderr = _lasting(sys.stderr or _nowhere())
    for name in (None, *logging.root.manager.loggerDict):
        for handler in logging.getLogger(name).handlers:
            console = getattr(handler, "console", None)  # of PrefectConsoleHandler, which is slow to import
            if isinstance(console, Console):
                console.file = _lasting(console.file)


def nobody_reads() -> bool:
    """Whether standard output is gone: who only writes there need not go on."""
    return isinstance(sys.stdout, _Lasting) and sys.stdout.gone


def _nowhere() -> IO[str]:
    """For a stream that is None, as after `2>&-`."""
    return open(os.devnull, "w", encoding="utf-8")


def _lasting(stream: IO[str], *forgiven: type[Exception]) -> TextIO:
    return cast(TextIO, stream if isinstance(stream, _Lasting) else _Lasting(stream, forgiven or (OSError, ValueError)))


def _forget_impossible_sizes() -> None:
    """A terminal of no columns (COLUMNS=0, as some CI has it) would be given no output at all."""
    for name in ("COLUMNS", "LINES"):
        said = os.environ.get(name, "")
        if said and not (said.isdigit() and 0 < int(said[:9]) <= _WIDEST):
            del os.environ[name]


class _Lasting:
    """A stream that is silent where it can say nothing: it only tells of the work, and is not it."""

    def __init__(self, stream: IO[str], forgiven: tuple[type[Exception], ...]) -> None:
        self._stream, self._forgiven, self.gone = stream, forgiven, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except self._forgiven:
            self.gone = True
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except self._forgiven:
            self.gone = True
