"""A run that was cut goes on: after its last attempt, with the server that still runs, never by repeating itself."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from settings.words import AttemptOutcome, ExitCode, RunOutcome
from tasks.pure.record import RunRecord
from tasks.store import read_record
from tests.flows.conftest import Machine, rehearsal_target, wait_for

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(240)]

NAN_THEN_SLOW = """
why     = "the first rung is NaN; the next serves, after a load that is long enough to be cut"
release = "0.5.9"
speed   = 4.0
pace    = { import_s = 0.4, init_s = 0.4, load_s = 20.0 }
[[fault]]
why   = "the build's own choice"
at    = "decode"
when  = { kv_cache_dtype = "fp8_e4m3", decode_backend = "flashmla_kv" }
does  = "die"
trace = "device-assert"
[expect]
outcome = "serving"
trail   = [{ rung = "auto" }]
"""


@pytest.fixture
def far(machine: Machine, request: pytest.FixtureRequest) -> str:
    """A target whose lease is short, unless a test has to be back before it is over (on a busy machine, too)."""
    story = machine.folder / "nan-then-slow.toml"
    story.write_text(NAN_THEN_SLOW)
    return str(rehearsal_target(machine.folder / "far.toml", story, lease_s=getattr(request, "param", 15.0)))


@pytest.fixture
def cut(machine: Machine, far: str) -> RunRecord:
    """A run whose process was killed while its second server loaded: auto failed, flashmla-sparse was under way."""
    run = machine.begin("run", "--target", far, "--json")
    wait_for(lambda: _launches(machine) == 2, 90, "the second launch")
    os.killpg(run.pid, signal.SIGKILL)
    run.wait(timeout=10)
    return read_record(machine.newest())


def resumed(machine: Machine, *words: str) -> tuple[subprocess.CompletedProcess[str], RunRecord]:
    ran = machine.bringup("run", "--resume", machine.newest().name, "--json", *words)
    assert ran.stdout, ran.stderr
    return ran, RunRecord.model_validate_json(ran.stdout)


def test_what_was_under_way_stands_in_the_record_as_aborted(cut: RunRecord) -> None:
    assert (RunOutcome.RUNNING, None) == (cut.outcome, cut.ended_at)
    first, *skipped, last = cut.attempts
    assert (AttemptOutcome.FAILED, "goto") == (first.outcome, first.move and first.move.move)
    assert all(a.outcome is AttemptOutcome.SKIPPED for a in skipped)
    assert ("flashmla-sparse", AttemptOutcome.ABORTED, None) == (last.rung, last.outcome, last.move)
    assert last.diagnosis is not None
    assert "interrupted" == last.diagnosis.kind


@pytest.mark.parametrize("far", [120.0], indirect=True)
def test_within_the_lease_the_server_is_adopted_and_nothing_is_repeated(machine: Machine, cut: RunRecord) -> None:
    before = machine.processes()
    ran, record = resumed(machine)
    assert (ExitCode.SERVING, RunOutcome.SERVING) == (ran.returncode, record.outcome), ran.stderr
    assert [a.id for a in cut.attempts] == [a.id for a in record.attempts]
    assert record.attempts[:-1] == cut.attempts[:-1]
    assert 1 == len(record.resumed_at)
    assert record.winner == record.attempts[-1].n
    assert "server.adopted" in _events(machine)
    assert before
    log = machine.newest() / str(record.attempts[-1].log)
    assert 1 == log.read_text().count("server_args=")   # copied from its start, once
    assert [] == machine.processes()
    assert machine.is_free()


def test_after_the_lease_the_rung_under_way_is_launched_again(machine: Machine, cut: RunRecord) -> None:
    wait_for(lambda: not machine.processes(), 90, "the end of the lease")
    _, record = resumed(machine)
    assert RunOutcome.SERVING is record.outcome
    assert [*(a.id for a in cut.attempts), record.attempts[-1].id] == [a.id for a in record.attempts]
    assert ["flashmla-sparse"] * 2 == [a.rung for a in record.attempts[-2:]]
    assert [AttemptOutcome.ABORTED, AttemptOutcome.PASSED] == [a.outcome for a in record.attempts[-2:]]


def test_another_ladder_or_target_is_refused_and_the_record_stays(machine: Machine, cut: RunRecord, far: str) -> None:
    folder = machine.newest()
    text = Path(far).read_text()
    Path(far).write_text(text.replace("gpus = 8", "gpus = 4"))
    ran = machine.bringup("run", "--resume", folder.name)
    assert ExitCode.BAD_INPUT == ran.returncode
    assert "gpus was 8, is 4" in ran.stderr
    Path(far).write_text(text)
    elsewhere = machine.bringup("run", "--resume", folder.name, "--target", "rehearsal")
    assert (ExitCode.BAD_INPUT, 1) == (elsewhere.returncode, len(elsewhere.stderr.splitlines()))
    assert read_record(folder) == cut


def test_another_build_is_refused_and_the_record_stays(machine: Machine, cut: RunRecord) -> None:
    story = machine.folder / "nan-then-slow.toml"
    story.write_text(NAN_THEN_SLOW.replace('release = "0.5.9"', 'release = "0.5.10.post1"'))
    ran = machine.bringup("run", "--resume", machine.newest().name)
    assert (ExitCode.BAD_INPUT, True) == (ran.returncode, "the build on the host is another" in ran.stderr), ran.stderr
    assert read_record(machine.newest()) == cut
    wait_for(machine.is_free, 90, "a free host")


def test_a_run_that_goes_on_cannot_be_driven_twice(machine: Machine, far: str) -> None:
    run = machine.begin("run", "--target", far, "--json")
    try:
        machine.until_event("server.launched")
        second = machine.bringup("run", "--resume", machine.newest().name)
        assert (ExitCode.BAD_INPUT, True) == (second.returncode, "still going on" in second.stderr)
    finally:
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)


def test_a_failed_rung_is_repeated_only_when_asked(machine: Machine) -> None:
    story = machine.folder / "crash.toml"
    story.write_text(CRASHES)
    far = str(rehearsal_target(machine.folder / "far.toml", story, lease_s=20.0))
    assert ExitCode.NOT_SERVING == machine.bringup("run", "--target", far, "--json").returncode
    first = read_record(machine.newest())
    ran, same = resumed(machine)
    assert (ExitCode.NOT_SERVING, first.attempts, first.halt) == (ran.returncode, same.attempts, same.halt)
    _, again = resumed(machine, "--again")
    assert ["auto", "auto"] == [a.rung for a in again.attempts]
    assert first.attempts == again.attempts[:1]


def test_a_kept_server_is_found_again_and_a_lost_one_is_brought_up_again(machine: Machine) -> None:
    story = machine.folder / "serves.toml"
    story.write_text(SERVES)
    far = str(rehearsal_target(machine.folder / "far.toml", story, lease_s=20.0))
    assert ExitCode.SERVING == machine.bringup("run", "--target", far, "--keep", "--json").returncode
    served = machine.processes()
    _, record = resumed(machine)
    assert (RunOutcome.SERVING, 1, served) == (record.outcome, len(record.attempts), machine.processes())
    machine.bringup("stop", "--target", far)
    assert [] == machine.processes()
    _, record = resumed(machine)
    assert (["auto", "auto"], 2) == ([a.rung for a in record.attempts], record.winner)
    held = json.loads(machine.bringup("status", "--target", far, "--json").stdout)
    assert (True, 1, [machine.port]) == (held["kept"], len(held["running"]), list(held["ports"].values()))
    told = machine.bringup("status", "--target", far).stdout
    assert (1, True) == (told.count(record.run_id), f"on port {machine.port} (loopback there)" in told)
    assert f"is kept by {held['keeper']} for run {record.run_id}" in told
    machine.bringup("stop", "--target", far)


CRASHES = """
why     = "an end that no edge leads on from"
release = "0.5.9"
speed   = 16.0
[[fault]]
why   = "no cause in the log"
at    = "load"
does  = "die"
[expect]
outcome = "stopped"
trail   = [{ rung = "auto" }]
"""
SERVES = """
why     = "all is well"
release = "0.5.9"
speed   = 16.0
[expect]
outcome = "serving"
trail   = [{ rung = "auto", outcome = "passed" }]
"""


def _launches(machine: Machine) -> int:
    return _events(machine).count('"server.launched"')


def _events(machine: Machine) -> str:
    return "".join(path.read_text() for path in machine.runs.glob("*/events.jsonl"))
