"""What of a run still counts when it goes on, and when it must not."""

from datetime import UTC, datetime

import pytest

from settings.words import AttemptOutcome, Phase, RunOutcome, Stage
from tasks.pure.record import (
    Asked,
    Attempt,
    Build,
    Diagnosis,
    Halt,
    HostSummary,
    LadderRef,
    Move,
    RunRecord,
    TargetRef,
)
from tasks.pure.resume import decisive, other_build, other_inputs, reopened, unseen_end

NOW = datetime(2026, 11, 29, tzinfo=UTC)
TARGET = TargetRef(host="gpu8", python="python3", state_dir="~/x", model="/m", gpus=8)
BUILD = Build(engine="sglang", version="0.5.9", commit="abc")


def attempts(*outcomes: str) -> list[Attempt]:
    cause = Diagnosis(kind="nan", phase=Phase.DECODE)
    return [
        Attempt(n=n, id=str(n), rung=f"r{n}", outcome=AttemptOutcome(outcome), diagnosis=cause)
        for n, outcome in enumerate(outcomes, 1)
    ]


def record(**changes: object) -> RunRecord:
    base = RunRecord(
        run_id="r", started_at=NOW, ended_at=NOW, outcome=RunOutcome.HOST_LOST, target="t",
        ladder=LadderRef(name="l", sha256="1"), build=BUILD, host=HostSummary(name="t"), lease_s=90,
        halt=Halt(reason="gone", by="host"), attempts=tuple(attempts("failed", "aborted")),
        asked=Asked(target="t", ladder="l", target_ref=TARGET),
    )  # fmt: skip
    return base.model_copy(update=changes)


@pytest.mark.parametrize(
    ("outcomes", "serves", "counting"),
    [
        ((), False, []),
        (("failed", "skipped", "failed"), False, ["1", "2", "3"]),
        (("failed", "aborted"), False, ["1"]),
        (("aborted", "failed", "aborted", "failed"), False, ["2", "4"]),
        (("failed", "passed"), True, ["1", "2"]),
        (("failed", "passed"), False, ["1"]),
        (("passed", "failed"), True, ["2"]),
    ],
)
def test_what_we_ended_ourselves_says_nothing_of_its_rung(
    outcomes: tuple[str, ...], serves: bool, counting: list[str]
) -> None:
    assert counting == [a.id for a in decisive(attempts(*outcomes), serves=serves)]


def test_what_the_host_was_in_the_way_of_is_tried_again_and_a_step_that_was_taken_stays() -> None:
    refused = attempts("failed")[0].model_copy(update={"failed_stage": Stage.PREFLIGHT})
    stopped = refused.model_copy(update={"move": Move(move="stop", edge="default.on[0]", why="a port is taken")})
    went_on = refused.model_copy(update={"move": Move(move="next", edge="rung.r1.on[0]", why="a port is taken")})
    assert [[], [], [went_on]] == [decisive([a], serves=False) for a in (refused, stopped, went_on)]


@pytest.mark.parametrize(("outcomes", "id"), [
    ((), None), (("failed",), None), (("failed", "aborted"), "2"), (("passed",), "1"), (("aborted", "failed"), None),
])  # fmt: skip
def test_a_server_may_be_left_of_the_last_attempt_only(outcomes: tuple[str, ...], id: str | None) -> None:
    found = unseen_end(attempts(*outcomes))
    assert id == (found.id if found else None)


def test_the_same_inputs_go_on() -> None:
    assert None is other_inputs(record(), target=TARGET, ladder_sha256="1")


def test_what_changed_is_named() -> None:
    moved = other_inputs(record(), target=TARGET.model_copy(update={"model": "/other"}), ladder_sha256="1")
    assert moved == "ran on another target (model was '/m', is '/other'): begin a new run"
    assert "another version of ladder 'l'" in (other_inputs(record(), target=TARGET, ladder_sha256="2") or "")
    assert other_inputs(record(asked=None), target=TARGET, ladder_sha256="1")


def test_another_build_is_named_and_an_unknown_one_is_none() -> None:
    assert None is other_build(record(), BUILD)
    assert "commit was abc, is def" in (other_build(record(), BUILD.model_copy(update={"commit": "def"})) or "")
    assert None is other_build(record(build=Build(engine="sglang")), BUILD)   # it ended before the probe


def test_a_record_that_goes_on_has_no_end_and_keeps_its_attempts() -> None:
    again = reopened(reopened(record(), NOW), NOW)
    assert (RunOutcome.RUNNING, None, None, None) == (again.outcome, again.ended_at, again.halt, again.winner)
    assert (record().attempts, (NOW, NOW)) == (again.attempts, again.resumed_at)
