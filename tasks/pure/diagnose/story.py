"""The first cause, found while the lines pass: what was seen, what it was worth, and what came of it."""

import re
from collections.abc import Sequence
from dataclasses import replace

from settings.catalogue import Catalogue
from settings.literals import required_literals
from settings.words import Action, Component, Phase
from tasks.pure.diagnose import rules
from tasks.pure.diagnose.lines import Line
from tasks.pure.diagnose.phases import Marks, PhaseTracker
from tasks.pure.diagnose.reading import Cause, Reading
from tasks.pure.diagnose.scan import Prefilter
from tasks.pure.diagnose.traces import Frame, Raised, Trace, raised_in

__all__ = ["CHAIN", "ENVELOPE_TRACE", "Story"]

CHAIN = re.compile(r"During handling of the above exception|direct cause of the following exception")
ENVELOPE_TRACE = re.compile(
    r"Scheduler hit an exception|WorkerProc hit an exception|EngineCore encountered a fatal error|EngineCore hit an exception|TpModelWorker.* hit an exception"
)
_ENGINE_LOOP = re.compile(
    r":(?:run_scheduler_process|event_loop\w*|worker_busy_loop|run_engine_core|run_busy_loop|run_data_parallel_controller_process)$"
)
_USAGE = re.compile(r"^\s*usage: |^\s+\[-|^\s+(?:--[\w-]+|\{)")
_CAPTURE = re.compile(
    r"(?:Capture cuda graph|Capture CUDA graph|Piecewise CUDA Graph|Capturing .* graph)s? failed(?: with error)?:\s*(.*)$"
)
_SPECULATIVE = re.compile(
    r"speculative_algorithm['\"]?(?:=|: )['\"]\w|speculative_config['\"]?(?:=|: )(?:\{|SpeculativeConfig)|num_speculative_tokens|--speculative-algo"
)
_VALIDATION = re.compile(
    r"\s*(?:Value|Assertion) error, (.*)$"
)  # pydantic: the errors stand below the exception's line
_MANY_FOLLOW = re.compile(r"^\d+ validation errors? for |^Multiple exceptions|\(\d+ sub-exceptions?\)$")
_PROMPTS = re.compile(r"num_prompts=(\d+)|--num-prompts[ =](\d+)")
_DONE = re.compile(r"Successful requests:\s+(\d+)")
_FAILED = re.compile(r"Failed requests:\s+(\d+)")
_SESSION = re.compile(r"Entering DeepGEMM JIT (?:Single Kernel|Pre-Compile)|Entering .*JIT.*[Cc]ompile session")
_BEAT = re.compile(r"last_heartbeat time: ([\d:.]+)")
_BEGINS = {
    Phase.LOAD: Component.UNKNOWN, Phase.KV_ALLOC: Component.UNKNOWN,
    Phase.GRAPH_CAPTURE: Component.GRAPH, Phase.WARMUP: Component.UNKNOWN,
}  # fmt: skip

_NOTICED_LATER = {"cuda_fault", "device_assert", "jit_compile"}  # kinds whose first line tells not where
_SAME_EVENT = 80  # lines within which an exact text may follow a general one
_UNDER_A_TRACE = 25  # lines of a message may follow the exception's own
_RIGHT_BELOW = 12  # lines under an exception's own that still belong to its message
_SIGNS_OF_LIFE = 3  # batch lines after which a reported error was none
_PROOF_OF_LIFE = 30  # batch lines after which even a fatal text was only quoted
_TEXT_LIMIT = 1_000
_MOST_PENDING = 64
_MOST_STREAMS = 256
_LOST_AFTER = 4_000  # lines; a traceback that has not ended by then never will
_ALSO_LIMIT = 16
_SETTLED_AFTER = 5_000  # lines after a certain cause, beyond which nothing can change it


class Story:
    """Takes the lines that the prefilter let through, in order; answers at any time what the first cause is."""

    def __init__(self, catalogue: Catalogue, marks: Marks, literals: Prefilter, engine: str | None) -> None:
        self._entries = tuple((re.compile(e.pattern), e) for e in catalogue.failure)
        self._literals = literals
        self._holders: dict[str, list[int]] = {}  # entries by the literals that a match of theirs holds
        for number, entry in enumerate(catalogue.failure):
            for literal in required_literals(entry.pattern):
                self._holders.setdefault(literal, []).append(number)
        self._advice = re.compile("|".join(f"(?:{p})" for p in catalogue.advice))
        self._ignored = re.compile("|".join(f"(?:{p})" for p in catalogue.ignored))
        self._deaths = re.compile("|".join(f"(?:{p})" for p in catalogue.deaths))
        self._hints = tuple((re.compile(h.pattern), h) for h in catalogue.hint)
        self._names = rules.Names(catalogue.naming)
        self._marks = marks
        self.phases = PhaseTracker(engine)
        self.facts = rules.Facts()
        self.also_seen: list[str] = []
        self._traces = {"": Trace()}
        self._trace = self._traces[""]  # of the stream that the line at hand belongs to
        self._chains = 0
        self._certain: Cause | None = None
        self._pending: list[Cause] = []
        self._life = 0  # batch lines since the first pending cause
        self._death: Cause | None = None
        self._after: Cause | None = None
        self._stalled: list[Cause] = []
        self._beat: str | None = None
        self._session: Cause | None = None
        self._bench_done: Cause | None = None
        self._cure: tuple[str | None, str | None] = (None, None)
        self._last_begin: Cause | None = None
        self._alive_line = 0

    # -- lines

    @property
    def needs_all_lines(self) -> bool:
        """A traceback is open: each line matters until it ends."""
        return any(trace.open for trace in self._traces.values())

    @property
    def waits_for_life(self) -> bool:
        """Batch lines have to be counted, since something may have come of nothing."""
        return bool(self._pending or self._stalled or self._session or self._doubtful)

    @property
    def _doubtful(self) -> bool:
        """A fatal text has been read, yet nothing has died of it so far."""
        return self._certain is not None and self._certain.reading.grade == "fatal" and self._death is None

    def settled(self, line: int) -> bool:
        """Whether nothing from this line on can change the cause."""
        cause = self._certain
        return (
            cause is not None and self._death is not None and line > max(cause.line, self._death.line) + _SETTLED_AFTER
        )

    def batch_lines(self, count: int) -> None:
        """So many batch lines passed since the last line that was read."""
        if not count or not self.phases.serving:
            return
        self._stalled, self._session, self._beat = [], None, None
        self._life += count
        if self._life >= _SIGNS_OF_LIFE and self._death is None:
            self._live_on()
        if self._doubtful and self._life >= _PROOF_OF_LIFE:
            self._doubt()

    def pass_batch(self, literal: bytes, line: int) -> None:
        """The last of the batch lines since the last line that was read."""
        mark = self._marks.batch[literal]
        self.phases.engine = self.phases.engine or mark.engine
        self.phases.pass_mark(mark, Line(line, ""))

    def read(self, line: Line) -> None:
        """Take one line."""
        text = line.text
        if self.phases.engine is None:
            self.phases.engine = self._marks.tells_engine(text)
        mark = self._marks.of(text, self.phases.engine)
        if mark is not None:
            self._pass_mark(mark.milestone.restart, line)
            was = self.phases.phase, self.phases.serving
            self.phases.pass_mark(mark, line)
            if (self.phases.phase, self.phases.serving) != was:
                self._moved_on(was[0], line)
            if mark.milestone.batch:
                return
        self._learn(text)
        if self._ignored.search(text) or _USAGE.match(text):
            return
        if line.rank and line.stamp:
            self.phases.scheduler_seen(line)
        if self._advice.pattern:
            text = self._advice.sub("", text)
            line = replace(line, text=text)
        self._read_fault(line)

    def _pass_mark(self, restart: bool, line: Line) -> None:
        if restart and self.phases.begun:
            self._confirm()
            self.facts = rules.Facts()
            if self._certain is None and self._death is None:
                self._after = None

    def _moved_on(self, was: Phase, line: Line) -> None:
        """A phase later than that of a reported error: it was none."""
        now = self.phases.phase
        self._stalled, self._session = [], None
        if now is Phase.SHUTDOWN:
            return
        self._last_begin = Cause(_HANGS, line.number, line.text[:_TEXT_LIMIT], now, line.rank)
        if self.phases.serving and self._doubtful:
            self._doubt()
        order = list(Phase)
        if self._death is None and order.index(now) > order.index(was):
            self._pending = [c for c in self._pending if order.index(c.phase) >= order.index(now)]

    def _learn(self, text: str) -> None:
        for pattern, hint in self._hints:
            if pattern.search(text):
                self._note(hint.says)
        if "ue8m0" in text:
            self.facts.ue8m0_warned = True
        if "server_args=" in text or "non-default args" in text or "Initializing a V" in text:
            facts = self.facts
            facts.dummy_weights |= re.search(r"load_format['\"]?(?:=|: )['\"]?(?:LoadFormat\.)?dummy", text) is not None
            facts.deep_gemm_moe |= re.search(r"moe_runner_backend['\"]?(?:=|: )['\"]deep_gemm", text) is not None
            facts.speculative |= _SPECULATIVE.search(text) is not None
        if asked := _PROMPTS.search(text):
            self.facts.asked_prompts = int(asked[1] or asked[2])

    def _note(self, says: str) -> None:
        if says not in self.also_seen and len(self.also_seen) < _ALSO_LIMIT:
            self.also_seen.append(says)

    # -- faults

    def _read_fault(self, line: Line) -> None:
        text = line.text
        self._trace = self._trace_of(line)
        if CHAIN.search(text):
            self._trace.chained = True
            return
        if ENVELOPE_TRACE.search(text):
            self._trace.enveloped = True
            self.phases.scheduler_seen(line)
            self._die(line)
        source = self._trace.source
        if self._trace.begin(line):
            self._chains += not self._trace.chained
            self._trace.chain, self._trace.chained = self._chains, False
            return
        was_open = self._trace.open
        raised = self._trace.read(line) if was_open else raised_in(text)
        if verdict := _VALIDATION.match(text):
            raised = Raised("ValueError", verdict[1])
        elif raised is not None and _MANY_FOLLOW.search(raised.message):
            self._trace.raised_line = line.number
            return
        if was_open and not self._trace.open and self._trace.fault:
            self._frames_of_a_crash()
        if self._trace.open and self._trace.frames and raised is None and text.lstrip().startswith('File "'):
            return
        if raised is not None and (raised.message == "" or raised.name == "AssertionError" and not raised.message):
            source = self._trace.source
            if source is not None:
                line = Line(source.number, source.text.strip(), line.rank or source.rank, line.stamp, line.stream)
                text = line.text
        self._read_text(line, text, raised)
        if raised is not None:
            self._trace.enveloped = False

    def _trace_of(self, line: Line) -> Trace:
        for trace in self._traces.values():
            if trace.open and line.number - trace.first_line > _LOST_AFTER:
                trace.open = False
        if line.stream not in self._traces and len(self._traces) < _MOST_STREAMS:
            self._traces[line.stream] = Trace()
        return self._traces.get(line.stream, self._traces[""])

    def _read_text(self, line: Line, text: str, raised: Raised | None) -> None:
        dead = self._deaths.search(text) is not None
        if dead:
            self._die(line)
        if bench := self._read_table(line):
            self._bench_done = self._bench_done or bench
        if _SESSION.search(text):
            self._session = self._session or self._cause(_SESSION_READING, line, ())
        if raised is not None:
            self._trace.raised_line = line.number
        near = self._trace.raised_line is not None and line.number - self._trace.raised_line <= _UNDER_A_TRACE
        frames = self._trace.innermost if near or self._trace.open else ()
        reading = self._match(text, raised, frames, envelope=dead)
        if reading is not None:
            self._weigh(replace(self._cause(reading, line, frames), raised=raised is not None))
        elif self._certain is None or line.number <= self._certain.line + 6:
            self._look_for_cure(text)

    def _match(self, text: str, raised: Raised | None, frames: Sequence[Frame], *, envelope: bool) -> Reading | None:
        phase = self.phases.phase
        capture = _CAPTURE.search(text)
        near = {number for literal in self._literals.within(text) for number in self._holders.get(literal, ())}
        for pattern, entry in (self._entries[number] for number in sorted(near)):
            if (
                (raised or capture or not entry.raised)
                and (not entry.phases or phase in entry.phases)
                and pattern.search(text)
            ):
                return Reading.of(entry)
        if capture is not None:
            return (
                _EMPTY_CAPTURE
                if not capture[1].strip() or "Piecewise" in text
                else rules.read_exception(Raised("RuntimeError", capture[1]), "", Phase.GRAPH_CAPTURE, frames)
            )
        if raised is None or envelope:
            return None
        return rules.read_exception(raised, text if not raised.message else "", phase, frames)

    def _cause(self, reading: Reading, line: Line, frames: Sequence[Frame]) -> Cause:
        phase = rules.serving_phase(self.phases.at(line.number), frames)
        text = line.text
        if (
            any("graph_runner" in f.path or "capture" in f.function for f in frames[:3])
            and phase in {Phase.KV_ALLOC, Phase.WARMUP}
            and not self.phases.serving
        ):
            phase = Phase.GRAPH_CAPTURE
        if reading.by_phase and phase is not Phase.BENCH:
            reading = rules.device_memory(reading, text, phase, frames, weights_begun=self.phases.weights_begun)
        if reading.by_frame:
            component = self._names.component(text, frames)
            if component is Component.UNKNOWN:
                component = reading.component
            reading = reading.but(component=component, action=rules.action_of(reading, component, text))
        if reading.kind == "nan" and self.facts.ue8m0_warned and self.facts.deep_gemm_moe:
            reading = reading.but(component=Component.MOE, action=Action.OTHER_FLAG)
        if (
            reading.kind == "device_assert"
            and reading.component is Component.UNKNOWN
            and self.facts.speculative
            and not reading.general
        ):
            reading = reading.but(component=Component.SPECULATIVE, action=Action.OTHER_FLAG)
        if reading.kind == "port":
            reading = rules.bound_by_http(reading, frames)
        if phase is Phase.BENCH:
            reading = rules.fallen_in_bench(reading)
        if reading.kind == "port" and reading.component is Component.HOST and phase is not Phase.BENCH:
            phase = Phase.WARMUP
        if (
            frames
            and reading.grade == "reported"
            and (self._trace.enveloped or any(_ENGINE_LOOP.search(str(f)) for f in frames))
        ):
            reading = reading.but(grade="fatal")
        frame = next((str(f) for f in frames if f.engine), None)
        rank = line.rank or (self._trace.rank if frames else None)
        return Cause(reading, line.number, text.strip()[:_TEXT_LIMIT], phase, rank, frame, self._trace.chain)

    def _weigh(self, cause: Cause) -> None:
        reading = cause.reading
        if reading.kind == "nan" and self.facts.dummy_weights and reading.grade == "lives":
            return self._note("NaN under dummy weights, which is to be expected")
        if self._session is not None and reading.kind in {"nccl", "hang"} and reading.grade != "stall":
            cause = self._session
            reading = cause.reading
        if self._certain is not None:
            return self._refine(cause)
        if reading.grade == "aftermath":
            self._after = self._after or cause
        elif reading.grade == "stall":
            self._stall(cause)
        elif reading.grade == "reported" and self._death is None:
            if len(self._pending) < _MOST_PENDING:
                self._life = 0 if not self._pending else self._life
                self._pending.append(cause)
        else:
            self._pending.append(cause)
            self._life = 0
            self._confirm()
        return None

    def _stall(self, cause: Cause) -> None:
        beat = _BEAT.search(cause.text)
        if beat and self._beat not in {None, beat[1]}:
            self._stalled = []
        self._beat = beat[1] if beat else self._beat
        self._stalled = [*self._stalled[:2], cause]

    def _confirm(self) -> None:
        """What was pending was the end of the server: the first of it is the cause, unless that is general and another exact."""
        pending, self._pending = self._pending, []
        for cause in pending:
            if self._certain is None:
                self._certain = cause
                self._look_for_cure(cause.text)
            else:
                self._refine(cause)

    def _refine(self, cause: Cause) -> None:
        first = self._certain
        if first is None:
            return
        self._learn_component(first, cause)
        if not first.reading.general or cause.reading.general:
            return
        near = cause.line - first.line <= _SAME_EVENT or (cause.chain == first.chain and first.chain > 0)
        if near and _explains(cause, first):
            self._certain = cause
            self._look_for_cure(cause.text)

    def _learn_component(self, first: Cause, cause: Cause) -> None:
        """The first line told of the fault, a later one of the same event where: the driver speaks before the traceback."""
        named = cause.reading.component
        if (
            first.reading.by_frame and first.reading.component is Component.UNKNOWN and named is not Component.UNKNOWN
            and named is not Component.GRAPH and first.reading.kind in _NOTICED_LATER
            and cause.reading.by_frame and cause.line - first.line <= _SAME_EVENT
            and (cause.reading.kind == first.reading.kind or cause.reading.general)
        ):  # fmt: skip
            action = rules.action_of(first.reading, named, first.text)
            self._certain = replace(
                first, reading=first.reading.but(component=named, action=action), frame=first.frame or cause.frame
            )

    def _frames_of_a_crash(self) -> None:
        """faulthandler prints its frames below the fault."""
        first, frames = self._certain, self._trace.innermost
        if first is None or not first.reading.by_frame or first.frame is not None:
            return
        component = self._names.component(first.text, frames)
        frame = next((str(f) for f in frames if f.engine), None)
        reading = first.reading.but(component=component, action=rules.action_of(first.reading, component, first.text))
        self._certain = replace(first, reading=reading, frame=frame)

    def _live_on(self) -> None:
        for cause in self._pending:
            self._note(f"line {cause.line}: {cause.text[:160]}")
        self._pending = []

    def _doubt(self) -> None:
        cause, self._certain = self._certain, None
        if cause is not None:
            self._note(f"line {cause.line}: {cause.text[:160]}")
        self._cure = (None, None)

    def _die(self, line: Line) -> None:
        if self._death is None:
            self._death = Cause(
                _CUT, line.number, line.text.strip()[:_TEXT_LIMIT], self.phases.at(line.number), line.rank
            )
        self._confirm()

    def _look_for_cure(self, text: str) -> None:
        if self._cure == (None, None):
            self._cure = rules.cure_named(text)

    def _read_table(self, line: Line) -> Cause | None:
        """A benchmark's table that counts fewer successes than prompts, or failures."""
        failed, done = _FAILED.search(line.text), _DONE.search(line.text)
        if failed and int(failed[1]) > 0:
            return self._cause(_SOME_FAILED, line, ())
        if done and self.facts.asked_prompts and int(done[1]) < self.facts.asked_prompts:
            return self._cause(_SOME_FAILED, line, ())
        return None

    def end(self) -> None:
        """No line follows. An assertion whose traceback is cut off below its source line is one all the same."""
        for trace in self._traces.values():
            source = trace.source
            if trace.open and source is not None and source.text.strip().startswith("assert "):
                self._trace, trace.open = trace, False
                line = replace(source, text=source.text.strip(), rank=source.rank or trace.rank)
                self._read_text(line, line.text, Raised("AssertionError", ""))

    # -- answers

    @property
    def fatal(self) -> Cause | None:
        """The cause, once it is certain that the server ends of it."""
        cause = self._certain
        if cause is None or cause.reading.grade == "lives":
            return None
        return cause

    @property
    def cure(self) -> tuple[str | None, str | None]:
        return self._cure

    def first_cause(self, *, ended: bool) -> Cause | None:
        """The verdict over all lines so far; None: healthy."""
        if self._certain is not None:
            return self._certain
        if self._pending and ended and not self.phases.serving:
            first = self._pending[0]
            if not first.reading.general:
                return first
            near = (c for c in self._pending if not c.reading.general and c.line - first.line <= _SAME_EVENT)
            return next((c for c in near if _explains(c, first)), first)
        if self._after is not None and (self._death or ended and not self.phases.serving):
            return self._after
        if self._death is not None:
            return self._death
        if len(self._stalled) > 1:
            return self._stalled[0]
        if self._bench_done is not None:
            return self._bench_done
        if ended and not self.phases.serving and self._last_begin is not None and self.phases.phase in _BEGINS:
            begin = self._last_begin
            comm = "torch distributed begin" in begin.text
            component = Component.COMM if comm else _BEGINS[self.phases.phase]
            return Cause(begin.reading.but(component=component), begin.line, begin.text, begin.phase, begin.rank)
        return None


def _explains(exact: Cause, general: Cause) -> bool:
    """Whether an exact text tells what a general one before it was about, and not what came of it."""
    if exact.reading.grade not in {"fatal", "reported", "lives"}:
        return False
    if exact.line - general.line <= _RIGHT_BELOW and not exact.raised and general.raised:
        return exact.reading.kind not in {
            "unknown",
            "hang",
            "nccl",
        }  # the message of the exception goes on below its line
    return exact.reading.kind in _EXPLAINED_BY.get(general.reading.kind, {general.reading.kind})


_EXPLAINED_BY = {
    "device_assert": {"device_assert", "nan"},
    "cuda_fault": {"cuda_fault", "device_assert", "nan", "gpu_fault", "no_kernel_image"},
    "jit_compile": {"jit_compile", "no_kernel_image", "unsupported"},
    "nccl": {"nccl", "cuda_fault", "gpu_fault"},
    "version_mismatch": {"version_mismatch", "gpu_fault"},
    "unsupported": {"unsupported", "jit_compile", "no_kernel_image", "cuda_fault"},
}


def _own(kind: str, component: Component, action: Action, means: str, cure: str) -> Reading:
    return Reading(kind, component, action, means, cure, source="LABELS.md")


_CUT = _own(
    "unknown",
    Component.UNKNOWN,
    Action.STOP,
    "The server failed, but the log holds only what followed from it.",
    "Read the log of the other rank or of the time before.",
)
_HANGS = _own(
    "hang",
    Component.UNKNOWN,
    Action.RETRY_SAME,
    "A step began and never ended.",
    "Start again; if it recurs, look at the network and the GPUs.",
)
_EMPTY_CAPTURE = _own(
    "unsupported",
    Component.GRAPH,
    Action.OTHER_FLAG,
    "CUDA graph capture failed for a reason other than memory.",
    "Capture without torch.compile or piecewise graphs, or switch graphs off.",
)
_SOME_FAILED = _own(
    "bench_client",
    Component.CLIENT,
    Action.RETRY_SAME,
    "Some requests of the benchmark failed.",
    "Run the benchmark again and look at its errors.",
).but(grade="lives")
_SESSION_READING = _own(
    "jit_compile",
    Component.GEMM,
    Action.RETRY_SAME,
    "A compile session outlasted the deadline of the other ranks.",
    "Start again with the compiled kernels in the cache, or compile beforehand.",
).but(grade="fatal")
