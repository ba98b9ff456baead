"""The main job on a real SGLang over a real sshd: the silent NaN is found out, the cure serves, the host ends empty."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from settings.words import AttemptOutcome, RunOutcome, Stage, StageOutcome, Verdict
from tasks.pure.record import Attempt, RunRecord
from tests.real.conftest import WriteTarget
from tests.real.taken import taken_away
from tests.real.walk import assert_host_is_empty, bring_up

pytestmark = [
    pytest.mark.real, pytest.mark.sshd, pytest.mark.timeout(1800), pytest.mark.usefixtures("real_environment"),
]

TAKEN_PORT = 31_008
OURS = frozenset({Stage.LAUNCH, Stage.READY, Stage.WARMUP, Stage.DECODE, Stage.BENCH, Stage.RECHECK, Stage.STOP})


@pytest.mark.parametrize(
    ("form", "taken_as"), [("ovf", "shell"), pytest.param("bang", "systemd", marks=pytest.mark.chaos)]
)
def test_a_silent_nan_is_found_out_and_the_cure_serves(
    form: str, taken_as: str, write_target: WriteTarget, tmp_path: Path
) -> None:
    record, folder = bring_up(write_target(form), "real-nan", tmp_path)
    broken, cured = record.attempts

    assert RunOutcome.SERVING is record.outcome
    assert record.winner == cured.n

    assert ("float16", AttemptOutcome.FAILED, Stage.DECODE) == (broken.rung, broken.outcome, broken.failed_stage)
    assert broken.diagnosis is not None
    assert broken.diagnosis.kind == "nan"
    assert {Stage.READY, Stage.WARMUP} <= _passed(broken)
    silent = [probe for probe in broken.decode if probe.verdict is Verdict.NAN]
    assert silent, "NaN was to be seen in replies of HTTP 200, before the request that kills the server"

    assert ("bfloat16", AttemptOutcome.PASSED) == (cured.rung, cured.outcome)
    assert {Verdict.OK} == {probe.verdict for probe in cured.decode}
    (point,) = cured.bench
    assert (point.valid, point.completed, point.failed) == (True, 32, 0)
    assert point.output_tokens == 32 * 32
    assert point.output_tokens_per_s is not None
    assert point.output_tokens_per_s > 0
    assert point.raw is not None
    assert json.loads((folder / point.raw.path).read_text())["completed"] == 32

    assert_host_is_empty(tmp_path)
    with taken_away(folder, taken_as, tmp_path / "taken") as taken:
        assert taken.effective() == cured.effective
        assert (0, "decodes\n") == taken.health()
    assert 1 == taken.health()[0]


@pytest.mark.usefixtures("stranger")
def test_the_five_candidates_end_on_the_one_that_serves(
    write_target: WriteTarget, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, _ = bring_up(write_target("ovf"), "real-five", tmp_path)

    assert RunOutcome.SERVING is record.outcome
    assert [
        ("wrong-flag", "bad_flag"), ("nan-check", "nan"), ("taken-port", "port"), ("float16", "nan"),
        ("bfloat16", None),
    ] == [(a.rung, a.diagnosis.kind if a.diagnosis else None) for a in record.attempts]
    assert record.winner == 5
    with capsys.disabled():
        print(_times(record))
    assert_host_is_empty(tmp_path)


@pytest.fixture
def stranger() -> Iterator[None]:
    """Somebody who listens on the port that one candidate asks for."""
    with socket.create_server(("127.0.0.1", TAKEN_PORT)):
        yield


def _passed(attempt: Attempt) -> set[Stage]:
    return {result.stage for result in attempt.stages if result.outcome is StageOutcome.PASSED}


def _times(record: RunRecord) -> str:
    """Wall time beside the servers' own: from each launch to the end of its last stage."""
    assert record.ended_at is not None
    wall_s = (record.ended_at - record.started_at).total_seconds()
    own_s = {
        attempt.rung: sum(result.wall_s for result in attempt.stages if result.stage in OURS)
        for attempt in record.attempts
    }
    each = ", ".join(f"{rung} {seconds:.0f} s" for rung, seconds in own_s.items())
    return f"\nfive candidates: {wall_s:.0f} s in all; the servers' own times: {sum(own_s.values()):.0f} s ({each})"
