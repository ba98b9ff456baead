"""What a log tells: the lines that may mean something go in, in order; the first cause comes out at any time."""

import re
from dataclasses import replace

from settings.catalogue import Catalogue
from settings.words import Component, Phase
from tasks.pure.diagnose.lines import Line
from tasks.pure.diagnose.phases import Marks, PhaseTracker
from tasks.pure.diagnose.reader import TEXT_LIMIT, Reader
from tasks.pure.diagnose.reading import Cause, Reading
from tasks.pure.diagnose.rules import Facts, Rules, cure_named
from tasks.pure.diagnose.scan import Prefilter
from tasks.pure.diagnose.sought import Sought
from tasks.pure.diagnose.verdict import Verdict

__all__ = ["Story"]

_ALSO_LIMIT = 16
_USAGE = re.compile(r"^\s*usage: |^\s+\[-|^\s+(?:--[\w-]+|\{)")
_ARGUMENTS = re.compile(r"server_args=|non-default args|Initializing a V")
_DUMMY = re.compile(r"load_format['\"]?(?:=|: )['\"]?(?:LoadFormat\.)?dummy")
_DEEP_GEMM_MOE = re.compile(r"moe_runner_backend['\"]?(?:=|: )['\"]deep_gemm")
_SPECULATIVE = re.compile(
    r"speculative_algorithm['\"]?(?:=|: )['\"]\w|speculative_config['\"]?(?:=|: )(?:\{|SpeculativeConfig)"
    r"|num_speculative_tokens"
)
_SEVERAL_NODES = re.compile(r"nnodes['\"]?(?:=|: )(?:[2-9]|1\d)")
_PROMPTS = re.compile(r"num_prompts=(\d+)|--num-prompts[ =](\d+)")
_DONE = re.compile(r"Successful requests:\s+(\d+)")
_FAILED = re.compile(r"Failed requests:\s+(\d+)")
_SESSION = re.compile(r"Entering DeepGEMM JIT (?:Single Kernel|Pre-Compile)|Entering .*JIT.*[Cc]ompile session")
_BEGIN = re.compile(r"^(.*?\bbegin)\b")
_FINISHED_BENCH = re.compile(r"Benchmark Result|LLM Metrics|atency: |^Benchmark \.\.\.|^Throughput: ")
_BEGINS = {Phase.LOAD, Phase.KV_ALLOC, Phase.GRAPH_CAPTURE, Phase.WARMUP}


class Story:
    """Joins the phases, the reader and the verdict."""

    def __init__(self, catalogue: Catalogue, marks: Marks, literals: Prefilter, engine: str | None) -> None:
        advice = "|".join(f"(?:{p})" for p in catalogue.advice)
        self._advice, self._advises = re.compile(advice), Sought(advice)
        self._ignored = Sought("|".join(f"(?:{p})" for p in catalogue.ignored))
        self._hints = tuple((Sought(h.pattern), h.says) for h in catalogue.hint)
        self._marks = marks
        self._rules = Rules(catalogue)
        self.phases = PhaseTracker(engine)
        self.also_seen: list[str] = []
        self._reader = Reader(catalogue, self._rules, literals, self.phases)
        self._verdict = Verdict(self._note)
        self._session: Cause | None = None     # a compile session that nothing has shown to be over
        self._bench: Cause | None = None       # a benchmark's table with failures
        self._last_begin: Cause | None = None
        self._open: dict[tuple[str, str | None], Cause] = {}  # by rank: its last milestone, where that is a begin
        self._bench_ended = False
        self._answered = False                 # a request was answered with success

    @property
    def needs_all_lines(self) -> bool:
        """A traceback is open: each line matters until it ends."""
        return self._reader.in_trace

    def settled(self, line: int) -> bool:
        """Whether nothing from this line on can change the cause."""
        return self._verdict.settled(line)

    @property
    def waits_for_life(self) -> bool:
        """Batch lines have to be counted, since something may have come of nothing."""
        return self._verdict.waits or self._session is not None

    def batch_lines(self, count: int) -> None:
        """So many batch lines passed since the last line that was read."""
        if count and self.phases.serving:
            self._session = None
            self._verdict.live(count)

    def answered(self) -> None:
        """An HTTP request was answered with success."""
        self._answered = True

    def ruling(self, name: str) -> Reading:
        return self._rules[name]

    def pass_batch(self, literal: bytes, line: int) -> None:
        """The last of the batch lines since the last line that was read."""
        mark = self._marks.batch[literal]
        self.phases.engine = self.phases.engine or mark.engine
        self.phases.pass_mark(mark, Line(line, ""))

    def read(self, line: Line) -> None:
        """Take one line."""
        if self._is_batch(line):
            return
        self._learn(line)
        if self._ignored.fits(line.text) or _USAGE.match(line.text):
            return
        if line.rank and line.stamp:
            self.phases.scheduler_seen(line)
        if self._advises.fits(line.text):
            line = replace(line, text=self._advice.sub("", line.text))
        self._read_fault(line)

    def end(self) -> None:
        """No line follows."""
        for cause in self._reader.cut_off():
            self._weigh(cause)

    # -- milestones and facts

    def _is_batch(self, line: Line) -> bool:
        """Take note of a milestone; whether it was a batch line, which says no more."""
        phases = self.phases
        if phases.engine is None:
            phases.engine = self._marks.tells_engine(line.text)
        mark = self._marks.of(line.text, phases.engine)
        if mark is None:
            return False
        if mark.milestone.restart and phases.begun:
            self._verdict.confirm()
            self._reader.facts = Facts()
            self._open.clear()
        was, served = phases.phase, phases.serving
        phases.pass_mark(mark, line)
        if (phases.phase, phases.serving) != (was, served):
            self._moved_on(was, line)
        if mark.milestone.phase is Phase.BENCH and _FINISHED_BENCH.search(line.text):
            self._bench_ended = True
        if mark.milestone.batch:
            self.batch_lines(1)
        else:
            self._pair(line)
        return mark.milestone.batch

    def _pair(self, line: Line) -> None:
        """A begin is closed by its own rank's next milestone. A bar is drawn within its step and closes nothing."""
        if line.text.startswith("Capturing"):
            return
        whose = line.stream, line.rank
        self._open.pop(whose, None)
        if _BEGIN.match(line.text):
            text, phase = line.text[:TEXT_LIMIT], self.phases.phase
            self._open[whose] = Cause(self._rules["begun"], line.number, text, phase, line.rank)

    def _moved_on(self, was: Phase, line: Line) -> None:
        """What was reported in an earlier phase than the engine has now come to was none."""
        now, order = self.phases.phase, list(Phase)
        self._session = None
        if now is Phase.SHUTDOWN:
            return
        self._last_begin = Cause(self._rules["begun"], line.number, line.text[:TEXT_LIMIT], now, line.rank)
        if self.phases.serving and not self._verdict.has_no_port:  # SGLang 0.5.23 calls itself ready all the same
            self._verdict.doubt()
        later = order.index(now) > order.index(was)
        self._verdict.move_on(lambda cause: not later or order.index(cause.phase) >= order.index(now))

    def _learn(self, line: Line) -> None:
        text = line.text
        for sought, says in self._hints:
            if sought.fits(text):
                self._note(says)
        facts = self._reader.facts
        facts.ue8m0_warned |= "ue8m0" in text
        if "begins to compile" in text:
            facts.compiles_at = line.number
        if _ARGUMENTS.search(text):
            facts.several_nodes |= _SEVERAL_NODES.search(text) is not None
            facts.dummy_weights |= _DUMMY.search(text) is not None
            facts.deep_gemm_moe |= _DEEP_GEMM_MOE.search(text) is not None
            facts.speculative |= _SPECULATIVE.search(text) is not None
        if asked := _PROMPTS.search(text):
            facts.asked_prompts = int(asked[1] or asked[2])

    def _note(self, says: str) -> None:
        if says not in self.also_seen and len(self.also_seen) < _ALSO_LIMIT:
            self.also_seen.append(says)

    # -- faults

    def _read_fault(self, line: Line) -> None:
        if self._reader.is_envelope(line):
            self.phases.scheduler_seen(line)
            self._die(line)
        cause = self._reader.read(line)
        if self._reader.is_death(line.text):
            self._die(line)
        if _SESSION.search(line.text):
            self._session = self._session or self._reader.cause(self._rules["compile_session"], line)
        if self._shows_failed_requests(line.text):
            self._bench = self._bench or self._reader.cause(self._rules["some_requests_failed"], line)
        if cause is not None:
            self._weigh(cause)
        else:
            self._verdict.look_for_cure(line.text, line.number)
        if place := self._reader.crash_frames(line, self._verdict.certain):
            self._verdict.place(*place)

    def _weigh(self, cause: Cause) -> None:
        reading = cause.reading
        if reading.kind == "nan" and reading.grade == "lives" and self._reader.facts.dummy_weights:
            self._note("NaN under dummy weights, which is to be expected")
            return
        outlasted = reading.kind == "nccl" or (reading.kind == "hang" and reading.grade != "stall")
        self._verdict.weigh(self._session if self._session is not None and outlasted else cause)

    def _die(self, line: Line) -> None:
        phase = self.phases.at(line.number)
        self._verdict.die(Cause(self._rules["cut"], line.number, line.text.strip()[:TEXT_LIMIT], phase, line.rank))

    def _shows_failed_requests(self, text: str) -> bool:
        """A benchmark's table that counts failures, or fewer successes than prompts."""
        failed, done, asked = _FAILED.search(text), _DONE.search(text), self._reader.facts.asked_prompts
        return bool(failed and int(failed[1]) > 0) or bool(done and asked and int(done[1]) < asked)

    # -- answers

    @property
    def fatal(self) -> Cause | None:
        """The cause, once it is certain that the server ends of it."""
        cause = self._verdict.certain
        return None if cause is None or cause.reading.grade == "lives" else cause

    def cure_of(self, cause: Cause) -> tuple[str | None, str | None]:
        """The flag and the value that the log names as the way out."""
        return cure_named(cause.text) if self._verdict.cure == (None, None) else self._verdict.cure

    def first_cause(self, *, ended: bool, exited: bool = False) -> Cause | None:
        """The verdict over all lines so far; None: healthy."""
        verdict = self._verdict
        if verdict.certain is not None:
            return verdict.certain
        starting = ended and not self.phases.serving
        if starting and verdict.pending:
            return verdict.first_of_pending()
        if verdict.aftermath is not None and (verdict.death or starting):
            return verdict.aftermath
        if verdict.death is not None:
            return verdict.death
        if len(verdict.stalled) > 1:
            return verdict.stalled[0]
        if self._bench is not None or not starting:
            return self._bench
        return (None if exited else self._begun()) or self._silence()

    def _begun(self) -> Cause | None:
        """The step that began and never ended."""
        begin = self._first_of_last_open() or self._last_begin
        if begin is None or self.phases.phase not in _BEGINS:
            return None
        component = Component.GRAPH if begin.phase is Phase.GRAPH_CAPTURE else Component.UNKNOWN
        if "torch distributed begin" in begin.text:
            component = Component.COMM
        elif "Load weight begin" in begin.text or "load model" in begin.text:
            component = Component.LOADER
        return replace(begin, reading=begin.reading.at(component, begin.reading.action))

    def _first_of_last_open(self) -> Cause | None:
        """Of the step that was begun last and is still open, the first rank that began it."""
        begun = [(found[1], cause) for cause in self._open.values() if (found := _BEGIN.match(cause.text))]
        return next((cause for step, cause in begun if step == begun[-1][0]), None)

    def _silence(self) -> Cause | None:
        """Health needs a sign of it: requests answered, a benchmark's result, an ordered stop."""
        phase = self.phases.phase
        if self._answered or self._bench_ended or phase is Phase.SHUTDOWN:
            return None
        return Cause(self._rules["silent"], 0, "", phase)
