"""What a person reads in the Prefect UI in place of a kind."""

import pytest

from settings.words import LOG_KINDS, OWN_KINDS, AttemptOutcome, Phase
from tasks.pure.names import state_name
from tasks.pure.record import Diagnosis

CONTRACT = {
    "NaN", "Garbage", "OOM", "Unsupported", "Bad flag", "Hang", "Crash", "Not ready", "Overridden", "Bench invalid",
    "Skipped", "Passed", "Aborted", "Accuracy",
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("nan", "NaN"), ("empty", "Garbage"), ("oom_graph", "OOM"), ("host_oom", "OOM"), ("bad_flag", "Bad flag"),
        ("cuda_fault", "Crash"), ("hang", "Hang"), ("overridden", "Overridden"), ("bench_client", "Bench invalid"),
    ],
)  # fmt: skip
def test_a_failure_is_named_by_its_reason(kind: str, name: str) -> None:
    assert state_name(AttemptOutcome.FAILED, Diagnosis(kind=kind, phase=Phase.DECODE)) == name


@pytest.mark.parametrize("kind", sorted(LOG_KINDS | OWN_KINDS))
@pytest.mark.parametrize("outcome", AttemptOutcome)
def test_every_name_is_one_of_the_contracts(kind: str, outcome: AttemptOutcome) -> None:
    assert state_name(outcome, Diagnosis(kind=kind, phase=Phase.DECODE)) in CONTRACT


def test_a_pass_with_a_doubtful_load_test_is_still_a_pass() -> None:
    assert state_name(AttemptOutcome.PASSED, Diagnosis(kind="bench_invalid", phase=Phase.BENCH)) == "Passed"
