"""The usual times of a target come from what its launches got through, and from nothing else."""

from pathlib import Path

from tasks.pure.pace import Pace, pace
from tasks.pure.record import Asked, RunRecord, TargetRef
from tasks.store import read_record

RECORD = read_record(next((Path(__file__).resolve().parents[2] / "records").iterdir()))


def _with_phases(*phases: dict[str, float]) -> RunRecord:
    """The record's passing attempt, once for each of these."""
    won = next(a for a in RECORD.attempts if a.n == RECORD.winner)
    return RECORD.model_copy(update={"attempts": tuple(won.model_copy(update={"phases": p}) for p in phases)})


def test_medians_over_the_launches_that_got_through() -> None:
    run = _with_phases({"load": 10.0, "decode": 99.0}, {"load": 30.0}, {"load": 14.0, "warmup": 2.0})
    found = pace([run], target=RECORD.target)
    assert (found.launches, found.phases) == (3, {"load": 14.0, "warmup": 2.0})  # decode is no phase of the start


def test_the_phase_in_which_an_attempt_died_says_nothing_of_its_length() -> None:
    failed = RECORD.attempts[0]  # out of memory in graph capture
    assert list(failed.phases) == ["args", "graph_capture"]
    found = pace([RECORD.model_copy(update={"attempts": (failed,)})], target=RECORD.target)
    assert list(found.phases) == ["args"]
    assert "ready" not in found.stages
    assert "launch" in found.stages


def test_another_target_or_model_shows_nothing() -> None:
    assert pace([RECORD], target="elsewhere") == Pace()
    there = TargetRef(host="h", python="p", state_dir="s", model="/models/one", gpus=8)
    run = RECORD.model_copy(update={"asked": Asked(target="t", ladder="l", target_ref=there)})
    assert pace([run], target=RECORD.target, model="/models/other") == Pace()
    assert pace([run], target=RECORD.target, model="/models/one").launches > 0
    assert pace([RECORD], target=RECORD.target, model="/models/one").launches > 0  # an old record names none


def test_what_is_left_of_the_start_is_the_rest_of_its_phases() -> None:
    usual = Pace(1, {"decode": 9.0}, {"load": 60.0, "kv_alloc": 3.0, "graph_capture": 12.0})
    assert usual.left_s("ready", "load", in_stage_s=50.0, in_phase_s=20.0) == 55.0
    assert usual.left_s("ready", "load", in_stage_s=500.0, in_phase_s=400.0) == 15.0
    assert usual.left_s("decode", "", in_stage_s=4.0, in_phase_s=0.0) == 5.0
    assert usual.left_s("bench", "", in_stage_s=4.0, in_phase_s=0.0) is None
    assert usual.after_s("ready", ("ready", "decode")) == 9.0
    assert usual.after_s("ready", ("ready", "decode", "bench")) is None
