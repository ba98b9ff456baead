"""Tracebacks: where they begin, the frames they pass through and the line that they end in."""

import re
from dataclasses import dataclass, field, replace

from tasks.pure.diagnose.lines import Line

__all__ = ["Frame", "Raised", "Trace", "raised_in"]

_BEGIN = re.compile(r"Traceback \(most recent call last\)|Current thread .* \(most recent call first\)|^Thread 0x")
_FRAME = re.compile(r'^\s*(?:\| *)?File "([^"]+)", line \d+(?:,? in (.+?))?(?: \[repeated .*\])?\s*$')
# An exception's line: a dotted name that looks like one of an exception, alone or before a colon.
_RAISED = re.compile(
    r"^(?:\| *)?((?:[A-Za-z_]\w*\.)*[A-Z_]\w*"
    r"(?:Error|Exception|Exit|Interrupt|Warning|Timeout|Empty|Full|Resources|Fault|Failure|Terminated"
    r"|Timedout|NotFound|Died|Denied|NotReady))(?::\s?(.*))?$"
)
_ANY_RAISED = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?::\s(.*))?$")
_MOST_LINES = 600   # of one traceback; eight ranks may print into each other
_MOST_FRAMES = 200

# The part of a path that names the package: what stands before it differs from host to host.
_PACKAGE = re.compile(r"(?:^|/)(?:(?:site|dist)-packages|python3?|python3?\.\d+)/(?!.*(?:site|dist)-packages/)(.+)$")
_ENGINE = re.compile(r"(?:^|/)(?:sglang|vllm)/(.+)$")


@dataclass(frozen=True, slots=True)
class Frame:
    """One call: the file's path from its package on, the function, and the line of code where it is shown."""

    path: str
    function: str
    engine: bool
    source: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.function}"


@dataclass(frozen=True, slots=True)
class Raised:
    """The line that a traceback ends in."""

    name: str     # without its module
    message: str


@dataclass(slots=True)
class Trace:
    """The traceback that one stream is printing, or its last one."""

    open: bool = False
    frames: list[Frame] = field(default_factory=list)
    source: Line | None = None   # the last source line shown
    rank: str | None = None
    lines: int = 0
    fault: bool = False          # faulthandler's: innermost frame first, no exception line
    enveloped: bool = False      # an engine's envelope announced it: the engine ends of it
    chained: bool = False        # the next one belongs to the same chain
    chain: int = 0
    at_frame: bool = False       # the line just read was one of its frames
    quotes: bool = False         # the line just read was code that a frame shows
    first_line: int = 0
    raised_line: int | None = None
    unsaid: Line | None = None   # an exception's line whose message stands below it

    def begin(self, line: Line) -> bool:
        """Whether the line opens a traceback; if so, what was open is forgotten."""
        if not _BEGIN.search(line.text):
            return False
        self.at_frame = self.quotes = False
        self.fault = "call last" not in line.text
        self.open, self.frames, self.source, self.lines = True, [], None, 0
        self.rank = line.rank or self.rank
        self.first_line, self.raised_line, self.unsaid = line.number, None, None
        return True

    def read(self, line: Line) -> Raised | None:
        """Take a line of the open traceback; the exception when this is its line."""
        self.lines += 1
        in_frame = self.at_frame or self.quotes
        self.at_frame = self.quotes = False
        if self.lines > _MOST_LINES:
            self.open = False
            return None
        if frame := _frame(line.text):
            self.at_frame = True
            if len(self.frames) < _MOST_FRAMES:
                self.frames.append(frame)
            return None
        text = line.text.rstrip()
        if self.fault:
            self.open = bool(text.strip()) or self.lines < 2
            return None
        if raised := raised_in(text, loose=bool(self.frames) and not text.startswith((" ", "\t"))):
            self.open = False
            return raised
        self.quotes = in_frame and text.startswith("    ") and not text.lstrip().startswith("|")
        if text.strip(" ^~|"):
            self.source = line
            if self.quotes and self.frames and not self.frames[-1].source:
                self.frames[-1] = replace(self.frames[-1], source=text.strip())
        return None

    @property
    def innermost(self) -> tuple[Frame, ...]:
        """The frames, innermost first."""
        return tuple(self.frames if self.fault else reversed(self.frames))


def _frame(text: str) -> Frame | None:
    match = _FRAME.match(text)
    if match is None:
        return None
    path = match[1]
    engine = _ENGINE.search(path)
    package = _PACKAGE.search(path)
    short = engine[1] if engine else package[1] if package else path
    return Frame(short, match[2] or "<module>", engine is not None)


def raised_in(text: str, *, loose: bool = False) -> Raised | None:
    """The exception that a line tells of. `loose` accepts any capitalised name: a traceback is known to be open."""
    match = _RAISED.match(text) or (_ANY_RAISED.match(text) if loose else None)
    if match is None:
        return None
    return Raised(match[1].rsplit(".", 1)[-1], (match[2] or "").strip())
