"""The short words that a person reads in the Prefect UI in place of a kind (contracts §8)."""

from settings.words import EXIT_OF, AttemptOutcome, ExitCode, RunOutcome
from tasks.pure.record import Diagnosis, RunRecord

__all__ = ["exit_code", "run_state", "state_name"]

_BY_KIND = {
    "nan": "NaN",
    "garbage": "Garbage",
    "empty": "Garbage",
    "truncated": "Garbage",
    "unsupported": "Unsupported",
    "no_kernel_image": "Unsupported",
    "bad_flag": "Bad flag",
    "hang": "Hang",
    "not_ready": "Not ready",
    "overridden": "Overridden",
    "bench_invalid": "Bench invalid",
    "bench_client": "Bench invalid",
    "accuracy": "Accuracy",
}

_RUN_STATES = {
    RunOutcome.SERVING: "Serving",
    RunOutcome.SERVING_UNMEASURED: "Serving",
    RunOutcome.SERVING_BELOW_SLO: "Serving",
    RunOutcome.EXHAUSTED: "Exhausted",
    RunOutcome.STOPPED: "Stopped",
    RunOutcome.BUDGET: "Budget",
    RunOutcome.HOST_BUSY: "Host busy",
    RunOutcome.HOST_LOST: "Host lost",
}


def state_name(outcome: AttemptOutcome, diagnosis: Diagnosis | None) -> str:
    """The name of a step's or an attempt's Prefect state, e.g. "NaN", "OOM", "Passed"."""
    if outcome is AttemptOutcome.SKIPPED:
        return "Skipped"
    if outcome is AttemptOutcome.ABORTED:
        return "Aborted"
    if diagnosis is None or outcome is AttemptOutcome.PASSED:
        return "Passed"
    if diagnosis.kind.startswith("oom_") or diagnosis.kind == "host_oom":
        return "OOM"
    return _BY_KIND.get(diagnosis.kind, "Crash")


def run_state(outcome: RunOutcome) -> str:
    """The name of a run's Prefect state, e.g. "Host busy"."""
    return _RUN_STATES.get(outcome, str(outcome).replace("_", " ").capitalize())


def exit_code(record: RunRecord) -> ExitCode:
    """What `bringup run` ends with (contracts §3)."""
    refused = record.halt is not None and record.halt.by == "preflight"
    return ExitCode.PREFLIGHT if refused else EXIT_OF[record.outcome]
