"""Reads single lines: follows the tracebacks that they belong to, and finds what they speak of in the catalogue."""

import re
from collections.abc import Sequence
from dataclasses import replace

from settings.catalogue import Catalogue, Failure
from settings.literals import required_literals
from settings.words import Action, Component, Phase
from tasks.pure.diagnose.lines import Line
from tasks.pure.diagnose.phases import PhaseTracker
from tasks.pure.diagnose.reading import Cause, Reading
from tasks.pure.diagnose.rules import Facts, Names, Rules, action_of, serving_phase
from tasks.pure.diagnose.scan import Prefilter
from tasks.pure.diagnose.sought import Sought
from tasks.pure.diagnose.traces import Frame, Raised, Trace, raised_in

__all__ = ["TEXT_LIMIT", "Reader"]

TEXT_LIMIT = 1_000     # characters of a line that are kept as evidence
_UNDER_A_TRACE = 25    # lines of a message may follow the exception's own
_MOST_STREAMS = 256
_COMPILING = 40        # lines after a compilation's begin that may still tell of it
_LOST_AFTER = 4_000    # lines; a traceback that has not ended by then never will

_CHAIN = re.compile(r"During handling of the above exception|direct cause of the following exception")
_ENVELOPE = re.compile(
    r"Scheduler hit an exception|WorkerProc hit an exception|EngineCore (?:encountered a fatal error|hit an exception)"
)
_ENGINE_LOOP = re.compile(
    r":(?:run_scheduler_process|event_loop\w*|worker_busy_loop|run_engine_core|run_busy_loop|run_data_parallel_\w+)$"
)
# pydantic: the errors stand below the exception's line
_VALIDATION = re.compile(r"\s*(?:Value|Assertion) error, (.*)$")
_REFUSED_FIELD = re.compile(r"\s+(\S.*\[type=\w+.*)$")
_MORE_BELOW = re.compile(r"^\d+ validation errors? for |^Multiple exceptions|\(\d+ sub-exceptions?\)$")
_CAPTURE = re.compile(
    r"(?:Capture cuda graph|Capture CUDA graph|Piecewise CUDA Graph|Capturing .* graph)s? failed"
    r"(?: with error)?:\s*(.*)$"
)


class Reader:
    """Keeps the open traceback of each stream; everything else is in the line, the phase and the facts."""

    def __init__(self, catalogue: Catalogue, rules: Rules, literals: Prefilter, phases: PhaseTracker) -> None:
        self._entries = tuple((Sought(e.pattern), e, Reading.of(e)) for e in catalogue.failure)
        self._deaths = Sought("|".join(f"(?:{p})" for p in catalogue.deaths))
        self._holders: dict[str, list[int]] = {}  # entries by the literals that a match of theirs holds
        for number, entry in enumerate(catalogue.failure):
            for literal in required_literals(entry.pattern):
                self._holders.setdefault(literal, []).append(number)
        self._literals = literals
        self._names = Names(catalogue.naming)
        self._rules = rules
        self._phases = phases
        self._traces = {"": Trace()}
        self._chains = 0
        self.facts = Facts()

    @property
    def in_trace(self) -> bool:
        return any(trace.open for trace in self._traces.values())

    def is_envelope(self, line: Line) -> bool:
        """Whether the line announces the exception that an engine's process ends of."""
        if _ENVELOPE.search(line.text) is None:
            return False
        self._trace_of(line).enveloped = True
        return True

    def is_death(self, text: str) -> bool:
        return self._deaths.fits(text)

    def read(self, line: Line) -> Cause | None:
        """What a line speaks of."""
        trace = self._trace_of(line)
        if _CHAIN.search(line.text):
            trace.chained = True
            return None
        if trace.begin(line):
            self._chains += not trace.chained
            trace.chain, trace.chained = self._chains, False
            return None
        raised = trace.read(line) if trace.open else raised_in(line.text)
        if trace.open and (trace.at_frame or trace.quotes):
            return None  # code is no evidence: it names what might be said, the exception's line what was
        if error := _VALIDATION.match(line.text):
            raised, trace.unsaid = Raised("ValueError", error[1]), None
        elif raised is not None and _MORE_BELOW.search(raised.message):
            trace.raised_line, trace.unsaid = line.number, line
            return None
        elif trace.unsaid is not None and (error := _REFUSED_FIELD.match(line.text)):
            if self._phases.phase is not Phase.ARGS:
                return None  # a request's, not the command line's
            raised, trace.unsaid = Raised("ValidationError", error[1]), None
        if raised is not None and not raised.message and trace.source is not None:
            line = _source_line(trace, line)
        return self._found(line, raised, trace)

    def cut_off(self) -> list[Cause]:
        """No line follows: what a traceback was about to raise when it was cut is the best that it tells."""
        found = []
        for trace in self._traces.values():
            if trace.unsaid is not None and self._phases.phase is Phase.ARGS:
                cause = self._found(trace.unsaid, Raised("ValidationError", trace.unsaid.text), trace)
                found += [cause] if cause else []
            code = trace.source.text.strip() if trace.open and trace.source is not None else ""
            if trace.source is not None and code.startswith(("assert ", "raise ")):
                raised = Raised("AssertionError", "") if code.startswith("assert ") else None
                cause = self._found(_source_line(trace, trace.source), raised, trace)
                trace.open = False
                found += [cause] if cause else []
        return found

    def crash_frames(self, line: Line, cause: Cause | None) -> tuple[Component, str | None] | None:
        """faulthandler prints its frames below the fault: where it was, once they have all been read."""
        trace = self._trace_of(line)
        if not trace.fault or trace.open or cause is None or not cause.reading.by_frame or cause.frame is not None:
            return None
        trace.fault = False
        frames = trace.innermost
        return self._names.component(cause.text, frames), _engine_frame(frames)

    def cause(self, reading: Reading, line: Line, frames: Sequence[Frame] = (), trace: Trace | None = None) -> Cause:
        """A reading at its place, with what phase, frames and facts make of it."""
        phase = serving_phase(self._phases.at(line.number), frames)
        text = line.text
        capturing = any("graph_runner" in f.path or "capture" in f.function for f in frames[:3])
        if capturing and phase in {Phase.KV_ALLOC, Phase.WARMUP} and not self._phases.serving:
            phase = Phase.GRAPH_CAPTURE
        if reading.meaning.by_phase and phase is not Phase.BENCH:
            reading = self._rules.device_memory(text, phase, frames, weights_begun=self._phases.weights_begun)
        reading = self._rules.from_a_peer(reading, text, serving=self._phases.serving)
        reading = self._placed(reading, text, frames)
        if phase is Phase.BENCH:
            reading = self._rules.in_bench(reading, text)
        elif reading.kind == "port" and reading.component is Component.HOST:
            phase = Phase.WARMUP
        enveloped = trace is not None and trace.enveloped
        if frames and reading.grade == "reported" and (enveloped or any(_ENGINE_LOOP.search(str(f)) for f in frames)):
            reading = replace(reading, grade="fatal")
        rank = line.rank or (trace.rank if trace and frames else None)
        chain = trace.chain if trace else 0
        return Cause(reading, line.number, text.strip()[:TEXT_LIMIT], phase, rank, _engine_frame(frames), chain=chain)

    def _found(self, line: Line, raised: Raised | None, trace: Trace) -> Cause | None:
        if raised is not None:
            trace.raised_line = line.number
        near = trace.raised_line is not None and line.number - trace.raised_line <= _UNDER_A_TRACE
        frames = trace.innermost if near or trace.open else ()
        reading = self._match(line, raised, frames)
        cause = self.cause(reading, line, frames, trace) if reading else None
        if raised is not None:
            trace.enveloped = False
        return replace(cause, raised=raised is not None) if cause else None

    def _match(self, line: Line, raised: Raised | None, frames: Sequence[Frame]) -> Reading | None:
        phase, text = self._phases.phase, line.text
        if raised is not None and (typed := self._rules.typed(raised, phase, frames)):
            return typed
        capture = _CAPTURE.search(text)
        in_exception = raised is not None or capture is not None
        held = {number for literal in self._literals.within(text) for number in self._holders.get(literal, ())}
        for sought, entry, reading in (self._entries[number] for number in sorted(held)):
            if _applies(entry, phase, in_exception) and sought.fits(text):
                return reading
        if capture is not None:
            if not capture[1].strip() or "Piecewise" in text:
                return self._rules["empty_capture"]
            return self._rules.exception(Raised("RuntimeError", capture[1]), "", Phase.GRAPH_CAPTURE, frames)
        if raised is None or self.is_death(text):
            return None
        began = self.facts.compiles_at
        compiling = began is not None and line.number - began <= _COMPILING
        return self._rules.done_above(raised, frames, compiling=compiling) or self._rules.exception(
            raised, "" if raised.message else text, phase, frames
        )

    def _placed(self, reading: Reading, text: str, frames: Sequence[Frame]) -> Reading:
        """The reading with the component that text, frames and facts name."""
        if reading.by_frame:
            component = self._names.component(text, frames)
            component = reading.component if component is Component.UNKNOWN else component
            reading = reading.at(component, action_of(reading, component, text))
        facts = self.facts
        if reading.kind == "nan":
            return self._rules.not_finite(reading, facts, frames)
        if reading.kind == "nccl" and reading.general and facts.several_nodes and self._joining:
            return reading.at(reading.component, Action.STOP)
        unplaced = reading.component is Component.UNKNOWN and not reading.general
        if reading.kind == "device_assert" and unplaced and facts.speculative:
            return reading.at(Component.SPECULATIVE, Action.OTHER_FLAG)
        return self._rules.bound(reading, frames) if reading.kind == "port" else reading

    @property
    def _joining(self) -> bool:
        """The ranks are still finding each other."""
        return self._phases.phase in {Phase.ARGS, Phase.LOAD} and not self._phases.weights_begun

    def _trace_of(self, line: Line) -> Trace:
        for trace in self._traces.values():
            trace.open = trace.open and line.number - trace.first_line <= _LOST_AFTER
        if line.stream not in self._traces and len(self._traces) < _MOST_STREAMS:
            self._traces[line.stream] = Trace()
        return self._traces.get(line.stream, self._traces[""])


def _applies(entry: Failure, phase: Phase, in_exception: bool) -> bool:
    return (in_exception or not entry.raised) and (not entry.phases or phase in entry.phases)


def _source_line(trace: Trace, line: Line) -> Line:
    source = trace.source or line
    return replace(source, text=source.text.strip(), rank=line.rank or source.rank or trace.rank)


def _engine_frame(frames: Sequence[Frame]) -> str | None:
    return next((str(f) for f in frames if f.engine), None)
