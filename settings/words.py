"""The closed vocabularies that every other file speaks in, so that a word means one thing everywhere."""

from enum import IntEnum, StrEnum

__all__ = [
    "EXIT_OF",
    "LOG_KINDS",
    "OWN_KINDS",
    "Action",
    "AttemptOutcome",
    "Component",
    "ExitCode",
    "Phase",
    "RunOutcome",
    "Stage",
    "StageOutcome",
    "Verdict",
]


class Stage(StrEnum):
    """A step of ours in one attempt, in the order in which they run."""

    PREFLIGHT = "preflight"
    LAUNCH = "launch"
    READY = "ready"
    WARMUP = "warmup"
    DECODE = "decode"
    ACCURACY = "accuracy"  # only where a ladder names it
    BENCH = "bench"
    RECHECK = "recheck"
    STOP = "stop"


class Phase(StrEnum):
    """Where the engine itself was, read from the milestones in its log."""

    ARGS = "args"
    LOAD = "load"
    KV_ALLOC = "kv_alloc"
    GRAPH_CAPTURE = "graph_capture"
    WARMUP = "warmup"
    PREFILL = "prefill"
    DECODE = "decode"
    BENCH = "bench"
    SHUTDOWN = "shutdown"


class Component(StrEnum):
    """The part of the stack that a fault points at."""

    ATTENTION = "attention"
    INDEXER = "indexer"
    MOE = "moe"
    GEMM = "gemm"
    SAMPLER = "sampler"
    GRAPH = "graph"
    COMM = "comm"
    LOADER = "loader"
    SPECULATIVE = "speculative"
    TOKENIZER = "tokenizer"
    HOST = "host"
    CLIENT = "client"
    FLAGS = "flags"
    UNKNOWN = "unknown"


class Action(StrEnum):
    """The first step that the log alone supports."""

    NEXT_BACKEND = "next_backend"
    OTHER_FLAG = "other_flag"
    LOWER_MEM = "lower_mem"
    RAISE_MEM = "raise_mem"
    RETRY_SAME = "retry_same"
    PIN_VERSION = "pin_version"
    STOP = "stop"
    NONE = "none"


class Verdict(StrEnum):
    """What a reply of the served API turned out to be; the first that fits decides."""

    ERROR = "error"
    NAN = "nan"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    GARBAGE = "garbage"
    OK = "ok"


class RunOutcome(StrEnum):
    """How a whole run ended; `running` in a file that nobody writes any more means: killed."""

    RUNNING = "running"
    SERVING = "serving"
    SERVING_UNMEASURED = "serving_unmeasured"
    SERVING_BELOW_SLO = "serving_below_slo"
    EXHAUSTED = "exhausted"
    STOPPED = "stopped"
    BUDGET = "budget"
    HOST_BUSY = "host_busy"
    HOST_LOST = "host_lost"
    CANCELLED = "cancelled"
    ERROR = "error"


class AttemptOutcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    ABORTED = "aborted"


class StageOutcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_RUN = "not_run"


class ExitCode(IntEnum):
    SERVING = 0
    UNEXPECTED = 1
    BAD_INPUT = 2
    NOT_SERVING = 3
    HOST_UNREACHABLE = 4
    HOST_BUSY = 5
    PREFLIGHT = 6
    INTERRUPTED = 130


EXIT_OF = {
    RunOutcome.SERVING: ExitCode.SERVING,
    RunOutcome.SERVING_UNMEASURED: ExitCode.SERVING,
    RunOutcome.SERVING_BELOW_SLO: ExitCode.SERVING,
    RunOutcome.EXHAUSTED: ExitCode.NOT_SERVING,
    RunOutcome.STOPPED: ExitCode.NOT_SERVING,
    RunOutcome.BUDGET: ExitCode.NOT_SERVING,
    RunOutcome.HOST_BUSY: ExitCode.HOST_BUSY,
    RunOutcome.HOST_LOST: ExitCode.HOST_UNREACHABLE,
    RunOutcome.CANCELLED: ExitCode.INTERRUPTED,
    RunOutcome.ERROR: ExitCode.UNEXPECTED,
    RunOutcome.RUNNING: ExitCode.UNEXPECTED,
}

# What a log can show; the rule that decides each stands in tests/corpus/LABELS.md.
LOG_KINDS = frozenset(
    {
        "nan", "device_assert", "cuda_fault", "oom_weights", "oom_kv", "oom_graph", "oom_runtime", "host_oom",
        "unsupported", "bad_flag", "no_kernel_image", "jit_compile", "nccl", "hang", "auth", "port", "disk",
        "gpu_fault", "gpu_busy", "model_files", "version_mismatch", "bench_client", "none", "unknown",
    }
)
# What no log shows: we found it by asking the server, or we caused it.
OWN_KINDS = frozenset(
    {
        "garbage", "empty", "truncated", "reply_error", "overridden", "not_ready", "bench_invalid", "slo_missed",
        "accuracy", "lease_expired", "interrupted",
    }
)
