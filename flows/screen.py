"""The one calm screen of a run on a terminal: the rungs with the current one marked, what is waited for, how long."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.text import Text

from tasks.pure.pace import Pace
from tasks.pure.record import Attempt
from tasks.pure.visible import visible
from tasks.session import Progress

__all__ = ["Screen", "clock", "one_line"]

_UNICODE = {"passed": "✓", "failed": "✗", "aborted": "✗", "skipped": "–", "now": "▶", "full": "━", "empty": "─"}
_ASCII = {"passed": "+", "failed": "x", "aborted": "x", "skipped": "-", "now": ">", "full": "#", "empty": "."}
_STYLES = {"passed": "green", "failed": "red", "aborted": "magenta", "skipped": "dim", "now": "bold cyan", "": "dim"}
_BELOW = 8  # lines beside those of the rungs


@dataclass(slots=True)
class _Rung:
    mark: str = ""
    said: str = ""


@dataclass(slots=True)
class Screen:
    """What is known of a run so far. It hears the same milestones as the log does, and draws itself into any size."""

    title: str
    rungs: Sequence[str]
    gates: Sequence[str]
    pace: Pace
    utf8: bool = True
    now: Callable[[], float] = time.monotonic
    note: str = "starting Prefect"  # with a server of its own it takes some seconds
    _rungs: dict[str, _Rung] = field(init=False)
    _seen: Progress | None = None
    _n: int = 0
    _rung: str = ""
    _stage: str = ""
    _folder: str = ""
    _build: str = ""
    _line: str = ""

    def __post_init__(self) -> None:
        self._rungs = {rung: _Rung() for rung in self.rungs}
        self._began = self._stage_at = self._phase_at = self.now()

    _began: float = field(init=False)
    _stage_at: float = field(init=False)
    _phase_at: float = field(init=False)

    def earlier(self, attempts: Iterable[Attempt]) -> None:
        """What a run that goes on has behind it."""
        for a in attempts:
            self._mark(a.rung, str(a.outcome), f"attempt {a.n} of an earlier sitting: {a.outcome}")

    def show(self, progress: Progress) -> None:
        """What the current step waits for."""
        if self._seen is None or self._seen.phase != progress.phase:
            self._phase_at = self.now()
        self._seen, self._line = progress, progress.line or self._line

    def hear(self, event: str, f: Mapping[str, Any]) -> None:
        """A milestone of the run."""
        match event:
            case "run.started":
                self._folder, self.note = str(f["folder"]), "taking the host"
            case "host.waiting":
                self.note = str(f["why"])
            case "host.locked":
                self._seen, self.note = None, "asking the host and its build what they can do"
            case "host.probed":
                self._build, self.note = str(f["version"] or "unknown"), ""
            case "attempt.started":
                self._n, self._rung, self._line, self.note = int(f["n"]), str(f["rung"]), "", ""
                remedies = f" with {', '.join(f['remedies'])}" if f["remedies"] else ""
                self._mark(self._rung, "now", f"attempt {self._n}{remedies}")
            case "stage.started":
                self._stage, self._seen = str(f["stage"]), None
                self._stage_at = self._phase_at = self.now()
            case "server.doomed":
                self._line = str(f["text"])
            case "attempt.ended":
                where = f" in {f['stage']}" if f["stage"] else ""
                self._mark(str(f["rung"]), str(f["outcome"]), f"{f['n']}: {f['state']}{where}")
                self._rung, self._stage, self._seen = "", "", None
            case "rung.left":
                self._rungs.setdefault(str(f["rung"]), _Rung()).said += f" → {f['to'] or f['move']}"
                self.note = str(f["why"])
            case "rung.skipped":
                self._mark(str(f["rung"]), "skipped", f"skipped: {f['why']}")
            case "host.lost" | "step.retried":
                self.note = f"{event}: {f['why']}"
            case "run.not_published":
                self.note = f"could not be copied to {f['to']}: {f['why']}"
            case "run.ended":
                self.note = str(f["headline"])

    def _mark(self, rung: str, mark: str, said: str) -> None:
        row = self._rungs.setdefault(rung, _Rung())
        row.mark, row.said = mark, said

    # --- drawing ----------------------------------------------------------------------------------------------------

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield Text("\n", no_wrap=True, end="").join(self.lines(options.max_width, options.height or console.height))

    def lines(self, width: int, height: int) -> list[Text]:
        """At most `height` lines of at most `width` columns."""
        title = self.title + (f", build {self._build}" if self._build else "")
        head = self._between(title, clock(self._elapsed_s), width)
        rungs = self._rung_lines(width, max(1, height - _BELOW))
        below = [self._cut(text, width, style) for text, style in self._status(width)]
        return [head, *rungs, *below][:height]

    @property
    def _elapsed_s(self) -> float:
        return self.now() - self._began

    def _rung_lines(self, width: int, room: int) -> list[Text]:
        """All rungs, or those about the current one where there is no room for all."""
        names = list(self._rungs)
        marked = [i for i, name in enumerate(names) if self._rungs[name].mark]
        current = names.index(self._rung) if self._rung in names else (marked[-1] if marked else 0)
        first = max(0, min(current - room // 2, len(names) - room))
        longest = min(max(map(len, names), default=0), max(8, width // 3))
        marks = _UNICODE if self.utf8 else _ASCII
        lines = []
        for name in names[first : first + room]:
            row = self._rungs[name]
            text = f" {marks.get(row.mark, ' ')} {one_line(name)[:longest]:<{longest}}  {row.said}"
            lines.append(self._cut(text, width, _STYLES.get(row.mark, "")))
        return lines

    def _status(self, width: int) -> Iterator[tuple[str, str]]:
        yield "", ""
        if self._stage:
            seen = self._seen  # the run's thread may take it away
            told = f", {seen.text}" if seen else ""
            yield f"{self._n}. {self._rung}: {self._stage}{told}", "bold"
            yield self._bar(width), "cyan"
            yield self._eta(), ""
        else:
            waits = self._seen  # for the host
            yield self.note, "bold"
            yield self._bar(width), "cyan"
            yield waits.text if waits else "", ""
        yield f"log: {self._line}" if self._line else "", "dim"
        yield "", ""
        yield f"{self._folder}; Ctrl-C ends the run and gives the host back" if self._folder else "", "dim"

    def _bar(self, width: int) -> str:
        seen = self._seen
        done = seen.fraction if seen else None
        if done is None:
            return ""
        marks, wide = (_UNICODE if self.utf8 else _ASCII), max(4, width - 8)
        full = int(done * wide)
        return f"{marks['full'] * full}{marks['empty'] * (wide - full)} {done:4.0%}"

    def _eta(self) -> str:
        """From earlier launches on this target; what they have not shown is not known."""
        seen = self._seen
        phase = seen.phase if seen else ""
        now = self.now()
        spent = f"{clock(now - self._stage_at)} in this step"
        if not self.pace.launches:
            return f"{spent}; time left unknown: no earlier run here"
        left = self.pace.left_s(
            self._stage, phase, in_stage_s=now - self._stage_at, in_phase_s=now - self._phase_at
        )  # fmt: skip
        if left is None:
            return f"{spent}; time left unknown: none got through it here"
        then = self.pace.after_s(self._stage, self.gates)
        rest = "" if then is None else f", {clock(left + then)} until it serves"
        return f"{spent}; longer than usual here" if not left else f"{spent}; about {clock(left)} left{rest}"

    def _between(self, left: str, right: str, width: int) -> Text:
        room = max(0, width - len(right) - 1)
        text = self._cut(left, room, "bold")
        text.pad_right(room + 1 - text.cell_len)
        return text.append(right, "dim")

    def _cut(self, text: str, width: int, style: str) -> Text:
        said = one_line(text)
        line = Text(said if self.utf8 else said.encode("ascii", "replace").decode(), style, no_wrap=True, end="")
        line.truncate(width, overflow="ellipsis" if self.utf8 else "crop")
        return line


def one_line(text: str) -> str:
    """Text of others in one line of a screen: nothing in it moves the cursor."""
    return visible(text).replace("\n", " ").replace("\t", " ")


def clock(seconds: float) -> str:
    """E.g. "0:41", "12:05", "1:02:05"."""
    minutes, s = divmod(int(max(0.0, seconds)), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"
