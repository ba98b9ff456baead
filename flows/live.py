"""What a person sees of a run that goes on: one screen on a terminal (flows/screen.py), plain lines anywhere else."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live as Frames
from rich.text import Text

from flows.lines import hanging
from flows.screen import Screen
from tasks.pure.event_text import sentence
from tasks.pure.visible import visible
from tasks.session import Progress

__all__ = ["Live"]

_COLOURS = {"passed": "green", "failed": "red", "aborted": "magenta", "serving": "bold green"}
_AT = 10  # columns of the time before a plain line


class Live:
    """Give `hear` to the run's log and `show` to its session, inside a `with` block. Writes to stderr."""

    def __init__(self, screen: Screen, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, quiet=quiet)
        if self._console.is_terminal:  # its size may change; COLUMNS and LINES, where they are exported, do not
            own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
            self._console = Console(stderr=True, highlight=False, quiet=quiet, _environ=own)
        self._began = time.monotonic()
        self._frames: Frames | None = None
        if self._console.is_terminal and not self._console.is_dumb_terminal and not quiet:
            screen.utf8 = self._console.encoding.startswith("utf")
            # The terminal's other screen, drawn anew as a whole: a resize leaves nothing behind, and what stood
            # on the terminal before the run stands there after it.
            self._frames = Frames(screen, console=self._console, screen=True, refresh_per_second=2)
        self._screen = screen
        self.folder: Path | None = None  # of the run, once it has one
        self._said = ""

    def __enter__(self) -> Self:
        if self._frames:
            self._frames.start()
        else:
            self._say(self._screen.note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._frames:
            self._frames.stop()
        sys.stderr.flush()

    def show(self, progress: Progress) -> None:
        """What the current step waits for."""
        if self._frames:
            self._screen.show(progress)
        if self._frames or not progress.n:  # in lines the wait for a host is told once, as a milestone
            return
        said = f"{progress.stage}, {progress.text}"
        if said.split(" ")[0:2] != self._said.split(" ")[0:2]:  # a line for each new thing, not one a second
            self._say(f"  {progress.n}. {progress.rung}: {said}")
        self._said = said

    def hear(self, event: str, facts: Mapping[str, Any]) -> None:
        """A milestone of the run."""
        if event == "run.started" and self.folder is None:  # others that follow are made for this one
            self.folder = Path(str(facts["folder"]))
        if self._frames:
            self._screen.hear(event, facts)
        elif line := sentence(event, facts):
            self._say(line, _COLOURS.get(str(facts.get("outcome", "")), ""))

    def _say(self, line: str, style: str = "") -> None:
        """A line with the seconds since we began, wrapped between words; a path is never broken."""
        line = visible(line)
        at = f"{time.monotonic() - self._began:{_AT - 3}.1f}s  "
        head = at + " " * (len(line) - len(line.lstrip()))
        for n, part in enumerate(hanging(head, line.lstrip(), self._console.width, under=len(head) + 2)):
            told = Text(at, "dim").append(part[len(at) :], style) if n == 0 else Text(part, style)
            self._console.print(told, soft_wrap=True)
