"""The main job on a real SGLang over a real sshd: the silent NaN is found out, the cure serves, the host ends empty."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from settings.words import AttemptOutcome, RunOutcome, Stage, StageOutcome, Verdict
from tasks.pure.record import Attempt, RunRecord
from tests.real.conftest import WriteTarget

pytestmark = [
    pytest.mark.real, pytest.mark.sshd, pytest.mark.timeout(900), pytest.mark.usefixtures("real_environment"),
]

LADDERS = Path(__file__).parent / "ladders"
PORT, TAKEN_PORT = 31_007, 31_008
OURS = frozenset({Stage.LAUNCH, Stage.READY, Stage.WARMUP, Stage.DECODE, Stage.BENCH, Stage.RECHECK, Stage.STOP})


@pytest.mark.parametrize("form", ["ovf", "bang"])
def test_a_silent_nan_is_found_out_and_the_cure_serves(form: str, write_target: WriteTarget, tmp_path: Path) -> None:
    record, folder = _bring_up(write_target(form), "real-nan", tmp_path)
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

    _assert_host_is_empty(tmp_path)


@pytest.mark.usefixtures("stranger")
def test_the_five_candidates_end_on_the_one_that_serves(
    write_target: WriteTarget, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, _ = _bring_up(write_target("ovf"), "real-five", tmp_path)

    assert RunOutcome.SERVING is record.outcome
    assert [
        ("wrong-flag", "bad_flag"), ("nan-check", "nan"), ("taken-port", "port"), ("float16", "nan"),
        ("bfloat16", None),
    ] == [(a.rung, a.diagnosis.kind if a.diagnosis else None) for a in record.attempts]
    assert record.winner == 5
    with capsys.disabled():
        print(_times(record))
    _assert_host_is_empty(tmp_path)


@pytest.fixture
def stranger() -> Iterator[None]:
    """Somebody who listens on the port that one candidate asks for."""
    with socket.create_server(("127.0.0.1", TAKEN_PORT)):
        yield


def _bring_up(target: Path, ladder: str, tmp_path: Path) -> tuple[RunRecord, Path]:
    """The record that the command prints, and the run folder; both say the same."""
    done = subprocess.run(
        [
            Path(sys.executable).with_name("bringup"), "run", "--target", target,
            "--ladder", LADDERS / f"{ladder}.toml", "--runs", tmp_path / "runs", "--json",
        ],
        env={**os.environ, "PREFECT_HOME": str(tmp_path / "prefect")}, cwd=tmp_path,
        capture_output=True, text=True, timeout=800, check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
    printed = RunRecord.model_validate_json(done.stdout)
    (folder,) = (tmp_path / "runs").iterdir()
    assert printed == RunRecord.model_validate_json((folder / "record.json").read_text())
    return printed, folder


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


def _assert_host_is_empty(tmp_path: Path) -> None:
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", PORT)) != 0, f"something still listens on {PORT}"
    state = tmp_path / "state"
    assert not (state / "lock").exists()
    launched = {json.loads(path.read_text())["pid"] for path in state.glob("attempts/*/started")}
    assert launched, "no attempt was launched"
    assert [] == list(_living_in(launched))


def _living_in(sessions: set[int]) -> Iterator[str]:
    """What still runs in these sessions. A real scheduler writes its title over its environment: no mark would do."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pid_and_name, _, rest = stat.read_text().rpartition(")")
            state, _, _, session = rest.split()[:4]
            if int(session) in sessions and state not in "ZX":  # dead, and only not yet waited for
                yield f"{pid_and_name}) in state {state}"
