"""Reads an engine's log as it comes and names the first cause of a failure; one code for files and live servers."""

import re
from dataclasses import dataclass

from settings.catalogue import Catalogue
from settings.literals import required_literals
from settings.milestones import Milestones
from settings.words import Action, Component, Phase
from tasks.pure.diagnose.lines import LINE_LIMIT, Block, Splitter, clean
from tasks.pure.diagnose.phases import Marks
from tasks.pure.diagnose.reading import Cause
from tasks.pure.diagnose.scan import Prefilter, prefilter
from tasks.pure.diagnose.story import Story
from tasks.pure.record import Diagnosis, Evidence

__all__ = ["Diagnoser", "Progress"]

_STRUCTURE = (
    "Traceback (most recent call last)", "most recent call first", "During handling of the above",
    "direct cause of the following", "Error: ", "Exception: ", "hit an exception", "encountered a fatal error",
    "graph failed", "Graph failed", "Successful requests:", "Failed requests:", "num_prompts=", "--num-prompts",
    "non-default args", "ue8m0", "JIT Pre-Compile", "JIT Single Kernel", "begins to compile",
    "To work around", "launch command", "Value error, ", "Assertion error, ", "[type=", "validation error",
)  # fmt: skip
_ANSWER = b'HTTP/1.1" 200'
_BAR = re.compile(rb"(\d+)/(\d+) \[[\d:]+<|(\d+)/(\d+) \[")
_TOLD = 4 * 1024  # of a batch line, what a display is given; it cuts only after secrets were taken out
_WINDOW = 8 * 1024  # of a very long line, the part around the hit that is read


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the engine is, for a live display and for the quiet limits."""

    phase: Phase
    text: str  # short: "shards 12/83"
    fraction: float | None  # 0..1 within the phase, where a bar shows one
    signs: int  # grows with each sign of progress
    line: str = ""  # the last line that means something: a milestone, a fault, a batch; without its prefixes


class Diagnoser:
    """Feed it bytes in any chunks; ask at any time. Holds some hundred kilobytes, whatever the log's size."""

    def __init__(
        self, catalogue: Catalogue, milestones: Milestones, *, engine: str | None = None, file: str | None = None
    ) -> None:
        self._file = file
        marks = Marks(milestones, engine)
        self._splitter = Splitter()
        self._prefilter = _prefilter(catalogue, marks)
        self._story = Story(catalogue, marks, self._prefilter, engine)
        self._lines = 0
        self._text_lines = 0  # the last line with anything in it
        self._signs = 0
        self._bar: tuple[int, int] | None = None
        self._bar_phase = Phase.ARGS
        self._line = ""

    def feed(self, data: bytes) -> None:
        for block in self._splitter.feed(data):
            self._read(block)
        self._look_at_bar(self._splitter.held)

    @property
    def phase(self) -> Phase:
        return self._story.phases.at(max(self._text_lines, 1))

    @property
    def fatal(self) -> Diagnosis | None:
        """The first fatal cause so far; None while the server may yet serve. Warnings are not fatal."""
        cause = self._story.fatal
        return None if cause is None else self._diagnosis(cause)

    @property
    def progress(self) -> Progress:
        phase = self.phase
        text, fraction = str(phase).replace("_", " "), None
        if self._bar and self._bar_phase is phase and self._bar[1]:
            done, total = self._bar
            fraction = min(done / total, 1.0)
            text = f"{'shards' if phase is Phase.LOAD else text} {done}/{total}"
        return Progress(phase, text, fraction, self._signs, self._line)

    @property
    def phase_log(self) -> tuple[tuple[Phase, str | None], ...]:
        return tuple(self._story.phases.log)

    def diagnosis(self, *, ended: bool, exited: bool = False) -> Diagnosis:
        """The verdict over all that was fed. `ended`: nothing more will come, the last line counts as it is.

        `exited`: the process is known to be gone; a step without an end is then no hang.
        """
        if ended:
            for block in self._splitter.flush():
                self._read(block)
            self._story.end()
        cause = self._story.first_cause(ended=ended, exited=exited)
        if cause is None:
            return Diagnosis(
                kind="none", phase=self.phase, component=Component.UNKNOWN, action=Action.NONE,
                engine=self._story.phases.engine, evidence=Evidence(file=self._file),
                means="Nothing in the log shows a failure.", also_seen=tuple(self._story.also_seen),
            )  # fmt: skip
        return self._diagnosis(cause)

    def _diagnosis(self, cause: Cause) -> Diagnosis:
        story, reading = self._story, cause.reading
        flag, value = story.cure_of(cause)
        line = cause.line or None
        phase = cause.phase
        if reading.meaning == story.ruling("cut").meaning and not story.phases.log:
            line, phase = None, Phase.SHUTDOWN  # nothing but teardown lines
        return Diagnosis(
            kind=reading.kind, phase=phase, component=reading.component, action=reading.action,
            engine=story.phases.engine,
            evidence=Evidence(
                line=line, text=cause.text if line else "", rank=cause.rank, file=self._file, frame=cause.frame
            ),
            means=reading.meaning.means, try_=reading.meaning.cure, source=reading.meaning.source,
            flag=flag, value=value,
            also_seen=tuple(story.also_seen),
        )  # fmt: skip

    # -- blocks

    def _read(self, block: Block) -> None:
        data, story = block.data, self._story
        hits, often = self._prefilter.scan(data)
        if _ANSWER in often:
            often.remove(_ANSWER)
            story.answered()
        end_number = block.first + block.ends
        number, at, read_to = block.first, 0, 0  # `number` is the line at byte `at`; all before `read_to` has been read
        i = 0
        while not story.settled(number):
            if story.needs_all_lines:
                start = read_to
                hit = start
            else:
                while i < len(hits) and hits[i] < read_to:
                    i += 1
                if i == len(hits):
                    break
                hit = hits[i]
                start = data.rfind(b"\n", 0, hit) + 1
                start = max(start, read_to)
            if start >= len(data):
                break
            end = data.find(b"\n", hit)
            end = len(data) if end < 0 else end
            number += data.count(b"\n", at, start)
            at = start
            if often:
                self._pass_batches(often, data, read_to, start, number)
            line = clean(number, _around(data, start, end, hit))
            self._line = line.text.strip() or self._line
            story.read(line)
            read_to = end + 1
        if often:
            self._signs += 1
            self._pass_batches(often, data, read_to, len(data), end_number)
        self._signs += bool(hits)
        self._lines = end_number
        if data[-2:] != b"\n\n" and data.strip():
            self._text_lines = end_number - data.endswith(b"\n")

    def _pass_batches(self, often: list[bytes], data: bytes, start: int, end: int, number: int) -> None:
        """The batch lines between two lines that were read: the last of them gives the phase, their number is life."""
        if start >= end:
            return
        story = self._story
        passed = sorted((at, b) for b in often if (at := data.rfind(b, start, end)) >= 0)
        for at, literal in passed:
            story.pass_batch(literal, number)
            self._line = data[at : at + _TOLD].partition(b"\n")[0].decode("utf-8", "replace")
        if passed and story.waits_for_life:
            story.batch_lines(sum(data.count(b, start, end) for _, b in passed))

    def _look_at_bar(self, held: bytes) -> None:
        bars = list(_BAR.finditer(held[-400:]))
        if not bars:
            return
        found = bars[-1]
        bar = int(found[1] or found[3]), int(found[2] or found[4])
        if bar != self._bar:
            self._bar, self._bar_phase = bar, self.phase
            self._signs += 1


def _around(data: bytes, start: int, end: int, hit: int) -> bytes:
    if end - start <= LINE_LIMIT // 8:
        return data[start:end]
    return data[max(start, hit - _WINDOW) : min(end, hit + _WINDOW)]


def _prefilter(catalogue: Catalogue, marks: Marks) -> Prefilter:
    once = [literal.decode() for literal in marks.batch]
    patterns = [
        *(e.pattern for e in catalogue.failure), *catalogue.deaths, *(h.pattern for h in catalogue.hint),
        *(m.milestone.pattern for m in marks.all if not m.milestone.batch),
    ]  # fmt: skip
    literals = {literal for p in patterns for literal in required_literals(p)}
    return prefilter(frozenset({*literals, *_STRUCTURE}) - set(once), frozenset({*once, _ANSWER.decode()}))
