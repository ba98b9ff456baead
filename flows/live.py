"""What a person sees of a run that goes on: one screen on a terminal (flows/screen.py), plain lines anywhere else."""

import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live as Frames
from rich.text import Text

from flows.screen import Screen
from tasks.pure.visible import visible
from tasks.session import Progress

__all__ = ["Live"]

_COLOURS = {"passed": "green", "failed": "red", "aborted": "magenta", "serving": "bold green"}
_AT = 10  # columns of the time before a plain line


class Live:
    """Give `hear` to the run's log and `show` to its session, inside a `with` block. Writes to stderr."""

    def __init__(self, screen: Screen, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, quiet=quiet)
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
            return
        said = f"{progress.stage}, {progress.text}"
        if said.split(" ")[0:2] != self._said.split(" ")[0:2]:  # a line for each new thing, not one a second
            self._say(f"  {progress.n}. {progress.rung}: {said}")
        self._said = said

    def hear(self, event: str, facts: Mapping[str, Any]) -> None:
        """A milestone of the run."""
        if event == "run.started":
            self.folder = Path(str(facts["folder"]))
        if self._frames:
            self._screen.hear(event, facts)
        elif line := _sentence(event, facts):
            self._say(line, _COLOURS.get(str(facts.get("outcome", "")), ""))

    def _say(self, line: str, style: str = "") -> None:
        """A line with the seconds since we began, wrapped between words; a path is never broken."""
        line = visible(line)
        indent = " " * (_AT + len(line) - len(line.lstrip()) + 2)
        wrapped = textwrap.wrap(
            line.lstrip(), max(20, self._console.width), initial_indent=indent[2:], subsequent_indent=indent,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        at = f"{time.monotonic() - self._began:{_AT - 3}.1f}s  "
        for n, part in enumerate(wrapped):
            told = Text(at, "dim").append(part[_AT:], style) if n == 0 else Text(part, style)
            self._console.print(told, soft_wrap=True)


def _sentence(event: str, f: Mapping[str, Any]) -> str:
    match event:
        case "run.started":
            return f"{f['ladder']} on {f['target']}; evidence in {f['folder']}"
        case "host.locked":
            return f"host {f['host']} is ours ({f['owner']})" + (f"; left over: {f['left']}" if f["left"] else "")
        case "host.probed":
            return f"build {f['version'] or 'unknown'}"
        case "lock.compared":
            return "as it was when it was locked" if not f["differs"] else f"not as locked: {'; '.join(f['differs'])}"
        case "attempt.started":
            return f"{f['n']}. {f['rung']}" + (f" with {', '.join(f['remedies'])}" if f["remedies"] else "")
        case "stage.ended":
            reason = f": {f['reason']}" if f["reason"] else ""
            return f"   {f['stage']} {f['outcome']} in {f['wall_s']:.1f} s{reason}"
        case "server.doomed":
            return f"   fatal line {f['line']}: {str(f['text'])[:160]}"
        case "diagnosis.made":
            return f"   cause: {f['kind']} ({f['component']}, {f['phase']}): {f['means']}"
        case "rung.left":
            return f"   -> {f['move']} {f['to'] or ''}: {f['why']}"
        case "rung.skipped":
            return f"   {f['rung']} skipped: {f['why']}"
        case "host.lost" | "step.retried":
            return f"   {event}: {f['why']}"
        case "run.ended":
            return f"{f['headline']}  [{f['by']}: {f['reason']}]"
        case _:
            return ""
