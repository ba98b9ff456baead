"""What a run leaves behind: the record (contracts §4, schema 1) and the values that it is made of.

The same frozen models travel through the program; a model here is what the words in ARCHITECTURE.md's glossary mean.
All times are UTC; numbers have their unit in the name; missing is None, never 0.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field

from settings.ladder import ArgValue
from settings.words import Action, AttemptOutcome, Component, Phase, RunOutcome, Stage, StageOutcome, Verdict
from tasks.pure.comparison import Comparison, Confirmation
from tasks.pure.value import Value

__all__ = [
    "AccuracyResult",
    "Asked",
    "Attempt",
    "BenchPoint",
    "Build",
    "Diagnosis",
    "Evidence",
    "Halt",
    "HaltBy",
    "HostSummary",
    "LadderRef",
    "LoadFigure",
    "LoadSample",
    "LoadSummary",
    "Move",
    "MoveKind",
    "RawFile",
    "ReplyVerdict",
    "RunRecord",
    "Source",
    "StageResult",
    "SuiteFigures",
    "SuiteRef",
    "TargetRef",
]

MoveKind = Literal["goto", "next", "remedy", "retry", "stop", "vary"]
HaltBy = Literal["rung", "edge", "guard", "budget", "preflight", "host", "user", "error"]


class Evidence(Value):
    """The line that a diagnosis rests on."""

    line: int | None = None  # 1-based, counted by \n
    text: str = ""
    rank: str | None = None  # e.g. "TP3"
    file: str | None = None
    frame: str | None = None  # innermost engine frame, "path/in/sglang.py:function"
    around: tuple[tuple[int, str], ...] = ()  # the lines about it in the log, with their numbers


class Diagnosis(Value):
    """The first cause of a failure. One per attempt."""

    kind: str
    phase: Phase
    component: Component = Component.UNKNOWN
    action: Action = Action.STOP
    stage: Stage | None = None  # our step that met it; None outside a run
    engine: str | None = None
    evidence: Evidence = Evidence()
    means: str = ""  # one plain sentence
    try_: str = Field("", alias="try", serialization_alias="try")
    flag: str | None = None  # the cure that the log itself names
    value: str | None = None
    source: str | None = None  # where the fact comes from
    also_seen: tuple[str, ...] = ()

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)


class ReplyVerdict(Value):
    """One probe of a decode suite and what became of it. `not_run` carries its reason in `why`."""

    id: str
    verdict: Verdict | Literal["not_run"]
    why: str = ""
    stage: Stage | None = None
    calls: int = 0
    prompt: str = ""  # beginning and end of the call that decided; all of it stands in decode/<n>.jsonl
    reply: str = ""
    tokens: int | None = None
    mean_logprob: float | None = None  # over the finite ones
    bad_logprob_share: float | None = None  # null, NaN or infinite


class SuiteFigures(Value):
    """Figures over all replies of a decode suite; None where nothing could be measured. Shares are 0..1."""

    stage: Stage | None = None
    replies: int
    tokens: int
    bad_logprob_share: float | None  # null, NaN or infinite among all log-probabilities
    mean_logprob: float | None
    one_token_share: float | None  # of the most frequent id
    agreement: float | None  # equal tokens of greedy repeats, position by position
    right: int
    expected: int
    accuracy_low: float | None  # 95 % Wilson interval
    accuracy_high: float | None
    replacement_share: float | None  # U+FFFD among all characters
    scripts: tuple[str, ...]  # by number of letters
    mixed_scripts: int = 0  # replies in which scripts were mixed that their prompt does not call for
    looping: int = 0  # replies that ran into a loop
    entropy_bits: float | None  # of the words


class RawFile(Value):
    path: str  # relative to the run folder
    sha256: str


class BenchPoint(Value):
    """One run of bench_serving. Definitions: facts/peers.md §4; percentiles as bench_serving gives them."""

    profile: str
    valid: bool
    why: str = ""  # why it is not valid
    asked: int  # prompts asked for
    completed: int | None = None
    failed: int | None = None  # asked - completed
    max_concurrency: int | None = None
    duration_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_retokenized: int | None = None
    request_throughput_per_s: float | None = None
    output_tokens_per_s: float | None = None
    ttft_mean_ms: float | None = None
    ttft_median_ms: float | None = None
    ttft_p99_ms: float | None = None
    tpot_mean_ms: float | None = None
    tpot_median_ms: float | None = None
    tpot_p99_ms: float | None = None
    itl_mean_ms: float | None = None
    itl_median_ms: float | None = None
    itl_p99_ms: float | None = None
    e2e_mean_ms: float | None = None
    e2e_median_ms: float | None = None
    e2e_p99_ms: float | None = None
    raw: RawFile | None = None
    concurrency: int | None = None  # asked; max_concurrency is what the client says it kept to
    gpus: int | None = None
    success_rate: float | None = None  # completed by asked
    warmup_requests: int | None = None  # before the clock started; in no figure
    ttft_p90_ms: float | None = None
    tpot_p90_ms: float | None = None
    itl_p90_ms: float | None = None
    e2e_p90_ms: float | None = None
    output_tokens_per_s_per_gpu: float | None = None
    output_tokens_per_s_per_user: float | None = None  # 1000 / tpot_median_ms
    goodput_requests_per_s: float | None = None  # of requests within the SLO; one that failed is a miss
    goodput_tokens_per_s: float | None = None


class AccuracyResult(Value):
    """A run of the accuracy gate. Scores are comparable only between equal question sets."""

    benchmark: str
    questions: int
    questions_sha256: str  # of questions and answers
    right: int
    score: float  # 0..1
    low: float  # 95 % Wilson interval
    high: float
    floor: float
    truncated_share: float | None = None  # answers that were cut at max_tokens
    said: str = ""  # the score, and what the comparison with the last good run says
    metrics: RawFile | None = None  # as sgl-eval wrote it
    answers: RawFile | None = None  # likewise: each question with its answer and whether it was right


class LoadFigure(Value):
    """A point of the load test: median and spread over its valid runs. Invalid runs are counted, and in neither."""

    profile: str
    concurrency: int
    runs: int  # valid ones
    invalid: int = 0
    median: dict[str, float] = {}  # by the names of BenchPoint
    mad: dict[str, float] = {}  # median absolute deviation
    slo_met: bool | None = None  # None: there is no SLO, or it was not run
    why: str = ""  # why the SLO is missed, or why there is no figure


class LoadSample(Value):
    """A natural question asked beside the load, and what the reply was."""

    at: datetime
    into_s: float  # since the load test began
    profile: str
    concurrency: int
    verdict: Verdict
    why: str = ""


class LoadSummary(Value):
    """The whole load test of one launch."""

    figures: tuple[LoadFigure, ...] = ()  # in the order in which they were begun
    samples: tuple[LoadSample, ...] = ()
    capacity: dict[str, int | None] = {}  # by profile: highest concurrency that meets the SLO; None: none does
    slo: dict[str, float] = {}  # what was asked, by the names of settings' Slo; empty without one
    said: str = ""  # the SLO's outcome in one sentence
    ended: str = ""  # why no further run followed


class StageResult(Value):
    """How one step of an attempt ended. An expected failure is this value, never an exception."""

    stage: Stage
    outcome: StageOutcome
    started_at: datetime
    wall_s: float
    reason: str = ""


class Move(Value):
    """The edge taken after an attempt."""

    move: MoveKind
    to: str | None = None  # a rung, or the remedy's name
    edge: str  # e.g. "rung.auto.on[1]"
    set: dict[str, ArgValue | None] = {}  # arguments that a remedy changed; None = unset
    why: str  # one sentence for a person


class Attempt(Value):
    """One launch (or one skipped rung): what was asked, what happened, what was done next."""

    n: int  # 1-based
    id: str
    rung: str
    remedies: tuple[str, ...] = ()  # all so far, in order
    variation: str | None = None  # the newest change around a rung that serves; `asked` has those kept before it
    outcome: AttemptOutcome
    failed_stage: Stage | None = None
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}  # secret values as "<secret>"
    asked: dict[str, ArgValue] = {}
    expected: str | None = None  # why the plan expected this rung to fail, where it did
    effective: dict[str, Any] = {}
    phases: dict[str, float] = {}  # seconds per engine phase
    stages: tuple[StageResult, ...] = ()
    diagnosis: Diagnosis | None = None
    decode: tuple[ReplyVerdict, ...] = ()
    suites: tuple[SuiteFigures, ...] = ()  # of decode, then of recheck
    replies: RawFile | None = None  # every call: request, reply, numbers, verdict; `bringup judge` reads it
    bench: tuple[BenchPoint, ...] = ()
    load: LoadSummary | None = None
    accuracy: AccuracyResult | None = None
    move: Move | None = None
    log: str | None = None  # relative to the run folder


class LadderRef(Value):
    name: str
    sha256: str  # of the file's bytes
    text: str | None = None  # the file itself, so that the tree can be drawn from the record alone


class SuiteRef(Value):
    name: str
    sha256: str  # of the file's bytes


class Build(Value):
    engine: str
    version: str | None = None
    commit: str | None = None
    freeze_sha256: str | None = None


class HostSummary(Value):
    """What the probe found that a reader of the record wants to know."""

    name: str
    hostname: str | None = None
    os: str | None = None
    kernel: str | None = None
    python: str | None = None
    gpus: tuple[dict[str, Any], ...] = ()
    driver: str | None = None
    versions: dict[str, str | None] = {}
    model: dict[str, Any] = {}
    problems: tuple[str, ...] = ()  # probes that failed, and why


class Halt(Value):
    """Why the run ended, and who decided it."""

    reason: str
    by: HaltBy


class TargetRef(Value):
    """What makes a target the same one; how it is reached and its secrets do not."""

    host: str
    python: str
    state_dir: str
    model: str
    gpus: int


class Asked(Value):
    """What a person asked for, as needed to go on later from another folder or process."""

    target: str  # a name, or an absolute path
    ladder: str
    target_ref: TargetRef
    keep: bool = False
    ref: str | None = None
    flow_run: str | None = None  # Prefect's id of the run
    confirm: bool = False  # a regression is confirmed by two more runs before it is told


class Source(Value):
    """Where the build came from, when the run put it on the host itself."""

    ref: str  # as asked for: a branch, tag, commit, release or wheel
    commit: str | None = None  # what it was then
    folder: str  # the name of its environment on the host
    cached: bool | None = None  # it was there already; None = it did not get there
    diagnosis: Diagnosis | None = None  # why it could not be installed
    freeze: tuple[str, ...] = ()  # its packages, name==version


class RunRecord(Value):
    schema_: Literal[1] = Field(1, alias="schema", serialization_alias="schema")
    run_id: str
    started_at: datetime
    ended_at: datetime | None = None
    outcome: RunOutcome = RunOutcome.RUNNING
    target: str
    ladder: LadderRef
    build: Build
    host: HostSummary
    lease_s: float
    suites: dict[str, SuiteRef] = {}  # by role: decode, recheck, bench
    differs: tuple[str, ...] = ()  # of a lock that is run again: what is not as it was
    attempts: tuple[Attempt, ...] = ()
    winner: int | None = None
    halt: Halt | None = None
    asked: Asked | None = None
    source: Source | None = None
    resumed_at: tuple[datetime, ...] = ()
    compared: Comparison | None = None
    confirmed: Confirmation | None = None
    confirms: str | None = None  # id of the run that this one was made for; it is no night of its own
    role: Literal["A", "B", "bisect"] | None = None  # in that: the last good build, the same build, a commit between

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)

    @property
    def obstacle(self) -> str | None:
        """What of the host stood in the way of an install or of the last launch: it says nothing of build or rung.

        None of a run that serves all the same, e.g. where a variation could not be launched any more.
        """
        if self.winner is not None:
            return None
        found = self.source.diagnosis if self.source else None
        if found is not None:
            return (found.means or found.kind) if found.kind == "disk" or found.action is Action.RETRY_SAME else None
        last = self.attempts[-1] if self.attempts else None
        if last is None or last.diagnosis is None or last.outcome is not AttemptOutcome.FAILED:
            return None
        if last.failed_stage is not Stage.PREFLIGHT:
            return None
        return last.diagnosis.means or last.diagnosis.kind
