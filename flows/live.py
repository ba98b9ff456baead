"""What a person sees of a run on a terminal: a line a milestone, and one live line that says what is waited for."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from tasks.session import Progress

__all__ = ["Live"]

_COLOURS = {"passed": "green", "failed": "red", "aborted": "magenta", "serving": "bold green"}


class Live:
    """Give `hear` to the run's log and `show` to its session, inside a `with` block. Writes to stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, quiet=quiet)
        self._began = time.monotonic()
        self._bar = Bar(
            TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn(),
            console=self._console, transient=True, disable=quiet or not self._console.is_terminal,
        )  # fmt: skip
        self._line: TaskID | None = None
        self.folder: Path | None = None  # of the run, once it has one
        self._said = ""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        sys.stderr.flush()

    def show(self, progress: Progress) -> None:
        """What the current step waits for."""
        text = f"  {progress.n}. {progress.rung}: {progress.stage}, {progress.text}"
        if self._bar.disable:
            phase = f"{progress.stage}, {progress.text}".split(" ")[0:2]
            if phase != self._said.split(" ")[0:2]:  # plain lines: one for each new thing, not one a second
                self.say(text)
            self._said = f"{progress.stage}, {progress.text}"
            return
        if self._line is None:
            self._line = self._bar.add_task("")
        done = None if progress.fraction is None else progress.fraction * 100
        width = max(20, self._console.width - 36)
        self._bar.update(self._line, description=text[:width], completed=done or 0, total=None if done is None else 100)

    def hear(self, event: str, facts: Mapping[str, Any]) -> None:
        """A milestone of the run."""
        if event == "run.started":
            self.folder = Path(str(facts["folder"]))
        line = _sentence(event, facts)
        if event in ("stage.started", "attempt.ended") and self._line is not None:
            self._bar.remove_task(self._line)
            self._line = None
        if line:
            self.say(line, _COLOURS.get(str(facts.get("outcome", "")), ""))

    def say(self, line: str, style: str = "") -> None:
        """One line, with the seconds since we began."""
        at = Text(f"{time.monotonic() - self._began:7.1f}s  ", "dim")
        self._console.print(at + Text(line, style), soft_wrap=True)


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
