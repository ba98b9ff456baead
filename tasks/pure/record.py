"""What a run leaves behind: the record (contracts §4, schema 1) and the values that it is made of.

The same frozen models travel through the program; a model here is what the words in ARCHITECTURE.md's glossary mean.
All times are UTC; numbers have their unit in the name; missing is None, never 0.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from settings.ladder import ArgValue
from settings.words import Action, AttemptOutcome, Component, Phase, RunOutcome, Stage, StageOutcome, Verdict

__all__ = [
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
    "Move",
    "MoveKind",
    "RawFile",
    "ReplyVerdict",
    "RunRecord",
    "Source",
    "StageResult",
    "TargetRef",
]

MoveKind = Literal["goto", "next", "remedy", "retry", "stop"]
HaltBy = Literal["rung", "edge", "guard", "budget", "preflight", "host", "user", "error"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


class Evidence(_Value):
    """The line that a diagnosis rests on."""

    line: int | None = None  # 1-based, counted by \n
    text: str = ""
    rank: str | None = None  # e.g. "TP3"
    file: str | None = None
    frame: str | None = None  # innermost engine frame, "path/in/sglang.py:function"


class Diagnosis(_Value):
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


class ReplyVerdict(_Value):
    """One probe of a decode suite and what became of it. `not_run` carries its reason in `why`."""

    id: str
    verdict: Verdict | Literal["not_run"]
    why: str = ""


class RawFile(_Value):
    path: str  # relative to the run folder
    sha256: str


class BenchPoint(_Value):
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


class StageResult(_Value):
    """How one step of an attempt ended. An expected failure is this value, never an exception."""

    stage: Stage
    outcome: StageOutcome
    started_at: datetime
    wall_s: float
    reason: str = ""


class Move(_Value):
    """The edge taken after an attempt."""

    move: MoveKind
    to: str | None = None  # a rung, or the remedy's name
    edge: str  # e.g. "rung.auto.on[1]"
    set: dict[str, ArgValue | None] = {}  # arguments that a remedy changed; None = unset
    why: str  # one sentence for a person


class Attempt(_Value):
    """One launch (or one skipped rung): what was asked, what happened, what was done next."""

    n: int  # 1-based
    id: str
    rung: str
    remedies: tuple[str, ...] = ()  # all so far, in order
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
    bench: tuple[BenchPoint, ...] = ()
    move: Move | None = None
    log: str | None = None  # relative to the run folder


class LadderRef(_Value):
    name: str
    sha256: str


class Build(_Value):
    engine: str
    version: str | None = None
    commit: str | None = None
    freeze_sha256: str | None = None


class HostSummary(_Value):
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


class Halt(_Value):
    """Why the run ended, and who decided it."""

    reason: str
    by: HaltBy


class TargetRef(_Value):
    """What makes a target the same one; how it is reached and its secrets do not."""

    host: str
    python: str
    state_dir: str
    model: str
    gpus: int


class Asked(_Value):
    """What a person asked for, as needed to go on later from another folder or process."""

    target: str  # a name, or an absolute path
    ladder: str
    target_ref: TargetRef
    keep: bool = False
    ref: str | None = None
    flow_run: str | None = None  # Prefect's id of the run


class Source(_Value):
    """Where the build came from, when the run put it on the host itself."""

    ref: str  # as asked for: a branch, tag, commit, release or wheel
    commit: str | None = None  # what it was then
    key: str  # the folder of its environment on the host
    cached: bool | None = None  # it was there already; None = it did not get there
    diagnosis: Diagnosis | None = None  # why it could not be installed


class RunRecord(_Value):
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
    attempts: tuple[Attempt, ...] = ()
    winner: int | None = None
    halt: Halt | None = None
    asked: Asked | None = None
    source: Source | None = None
    resumed_at: tuple[datetime, ...] = ()

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)
