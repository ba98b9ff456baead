"""Every way out of a run, over a real sshd: refused, busy, interrupted, killed, frozen, kept; and the host after it."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from settings.source import SETTINGS_DIR
from settings.words import AttemptOutcome, ExitCode, RunOutcome
from tasks.pure.record import RunRecord
from tasks.store import read_record
from tests.flows.conftest import Machine, healthy, over_ssh, rehearsal_target, wait_for
from tests.tasks.conftest import Sshd, StartSshd, make_key

pytestmark = [pytest.mark.prefect, pytest.mark.sshd, pytest.mark.timeout(300)]

LEASE_S = 5.0

def target(machine: Machine, sshd: Sshd, story: Path | None = None, **fields: object) -> str:
    """A target that reaches the simulated host through `sshd`."""
    story = story or SETTINGS_DIR / "rehearsals/slow-but-healthy.toml"
    ways = {**over_ssh(sshd), "lease_s": LEASE_S, **fields}
    return str(rehearsal_target(machine.folder / "far.toml", story, **ways))


@pytest.fixture
def loading(machine: Machine, sshd: Sshd) -> str:
    story = machine.folder / "loads-for-ever.toml"
    story.write_text(healthy("ready", slower=30))
    return target(machine, sshd, story)


def test_a_changed_host_key_is_refused_before_anything_is_sent(machine: Machine, start_sshd: StartSshd) -> None:
    sshd = start_sshd()
    make_key(machine.folder / "other")
    other = " ".join((machine.folder / "other.pub").read_text().split()[:2])
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {other}\n")
    ran = machine.bringup("run", "--target", target(machine, sshd), "--json")
    assert ran.returncode == ExitCode.HOST_UNREACHABLE, ran.stderr
    assert "Traceback" not in ran.stderr
    record = read_record(machine.newest())
    assert (record.outcome, record.attempts) == (RunOutcome.HOST_LOST, ())
    assert record.halt is not None
    assert "key" in record.halt.reason
    assert not machine.state.exists()


def test_a_run_over_ssh_serves_and_leaves_the_host_empty(machine: Machine, sshd: Sshd) -> None:
    ran = machine.bringup("run", "--target", target(machine, sshd), "--json")
    assert ran.returncode == ExitCode.SERVING, ran.stderr
    assert json.loads(ran.stdout)["outcome"] == "serving"
    assert machine.processes() == []


def test_a_second_run_ends_host_busy_and_names_the_first(machine: Machine, loading: str) -> None:
    first = machine.begin("run", "--target", loading)
    try:
        machine.until_event("server.launched")
        first_id = machine.newest().name
        second = machine.bringup("run", "--target", loading, "--json")
        assert second.returncode == ExitCode.HOST_BUSY
        assert json.loads(second.stdout)["outcome"] == "host_busy"
        why = json.loads(second.stdout)["halt"]["reason"]
        assert "@" in why.partition(" has had the host since ")[0], why
        assert f"(run {first_id})" in why, why
        assert machine.processes() != []
    finally:
        os.killpg(first.pid, signal.SIGINT)
        first.wait(timeout=180)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_mid_load_stops_the_server_and_says_so(
    machine: Machine, loading: str, number: signal.Signals
) -> None:
    run = machine.begin("run", "--target", loading, "--json")
    machine.until_event("server.launched")
    os.kill(run.pid, number)
    told, said = run.communicate(timeout=180)
    assert run.returncode == ExitCode.INTERRUPTED, said
    assert "Traceback" not in said
    wait_for(lambda: not machine.processes(), LEASE_S + 60, "an empty host")
    record = read_record(machine.newest())
    assert f"bringup run --resume {record.run_id}" in said
    assert "nothing is left on far" in said
    assert RunRecord.model_validate_json(told) == record
    assert record.outcome is RunOutcome.CANCELLED
    assert [a.outcome for a in record.attempts] == [AttemptOutcome.ABORTED]
    assert [a.move for a in record.attempts] == [None]
    wait_for(lambda: machine.is_free(loading), LEASE_S + 60, "a free host")


def test_a_pipe_that_nobody_reads_costs_the_run_nothing(machine: Machine, sshd: Sshd) -> None:
    run = machine.begin("run", "--target", target(machine, sshd))
    assert run.stdout
    assert run.stderr
    run.stderr.readline()
    run.stderr.close()
    told = run.stdout.read()
    assert run.wait(10) == ExitCode.SERVING, told
    assert RunOutcome.SERVING is read_record(machine.newest()).outcome


def test_many_ctrl_c_in_a_row_end_it_no_worse_than_one(machine: Machine, loading: str) -> None:
    run = machine.begin("run", "--target", loading)
    machine.until_event("server.launched")

    def ended() -> bool:
        run.send_signal(signal.SIGINT)  # nothing is sent to a process that is known to have ended
        return run.poll() is not None

    wait_for(ended, 180, "the end of the run")
    _, said = run.communicate(timeout=10)
    assert "Traceback" not in said
    # The last of them may strike when Python has nothing left to catch it with: to a shell both are 130.
    assert run.returncode in (ExitCode.INTERRUPTED, -signal.SIGINT), said
    wait_for(lambda: not machine.processes(), LEASE_S + 60, "an empty host")
    wait_for(lambda: machine.is_free(loading), LEASE_S + 60, "a free host")


def test_a_killed_orchestrator_leaves_a_true_record_and_an_empty_host(machine: Machine, loading: str) -> None:
    run = machine.begin("run", "--target", loading)
    machine.until_event("server.launched")
    os.killpg(run.pid, signal.SIGKILL)
    run.wait(timeout=10)
    wait_for(lambda: not machine.processes(), LEASE_S + 60, "an empty host")
    record = read_record(machine.newest())
    assert (record.outcome, record.ended_at) == (RunOutcome.RUNNING, None)
    wait_for(lambda: machine.is_free(loading), LEASE_S + 60, "a free host")
    assert "killed" in machine.bringup("show").stdout


def test_a_frozen_host_is_lost_and_its_server_ends_by_the_lease(machine: Machine, start_sshd: StartSshd) -> None:
    sshd = start_sshd()
    story = machine.folder / "loads-for-ever.toml"
    story.write_text(healthy("ready", slower=30))
    machine.env.update({"BRINGUP_RUN__CALL_S": "3"})
    far = target(machine, sshd, story)
    run = machine.begin("run", "--target", far, "--json")
    machine.until_event("server.launched")
    os.kill(sshd.process.pid, signal.SIGSTOP)
    sshd.drop_connections(signal.SIGSTOP)
    try:
        said, _ = run.communicate(timeout=150)
    finally:
        sshd.drop_connections(signal.SIGCONT)
        os.kill(sshd.process.pid, signal.SIGCONT)
    assert run.returncode == ExitCode.HOST_UNREACHABLE
    record = json.loads(said)
    assert record["outcome"] == "host_lost"
    assert [a["outcome"] for a in record["attempts"]] == ["aborted"]
    wait_for(lambda: not machine.processes(), LEASE_S + 60, "an empty host")


def test_a_taken_port_is_refused_before_the_launch(machine: Machine, sshd: Sshd) -> None:
    with socket.create_server(("127.0.0.1", machine.port)):
        ran = machine.bringup("run", "--target", target(machine, sshd), "--json")
    assert ran.returncode == ExitCode.PREFLIGHT, ran.stderr
    record = json.loads(ran.stdout)
    assert (record["halt"]["by"], record["attempts"][0]["diagnosis"]["kind"]) == ("preflight", "port")
    assert [s["stage"] for s in record["attempts"][0]["stages"]] == ["preflight"]


def test_a_kept_server_outlives_the_run_until_it_is_stopped(machine: Machine, sshd: Sshd) -> None:
    far = target(machine, sshd)
    assert machine.bringup("run", "--target", far, "--keep", "--json").returncode == ExitCode.SERVING
    said = json.loads(machine.bringup("status", "--target", far, "--json").stdout)
    assert (said["held"], said["kept"], len(said["running"])) == (True, True, 1)
    assert machine.processes() != []
    assert "@" in said["keeper"]
    busy = machine.bringup("run", "--target", far, "--json")
    assert busy.returncode == ExitCode.HOST_BUSY
    why = json.loads(busy.stdout)["halt"]["reason"]
    assert why.startswith(f"{said['keeper']} has kept a server there since {said['since']} (run {said['run_id']})"), why
    assert f"`bringup stop --target {far}` ends it" in why
    assert machine.bringup("stop", "--target", far).returncode == ExitCode.SERVING
    assert machine.processes() == []
    assert machine.is_free(far)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "--target", "rehersal"), "did you mean 'rehearsal'?"),
        (("run", "--target", "rehearsal", "--ladder", "glm5-sm12"), "did you mean 'glm5-sm120'?"),
        (("run", "--target", "rehearsal", "--ref", "main"), "rehearsal: recipe: is not set in the target"),
        (("rehearse", "--story", "foundin"), "did you mean 'founding'?"),
        (("show", "no-such-run"), "no such run"),
        (("ladder", "check", "/nowhere.toml"), "/nowhere.toml: cannot be read"),
    ],
)
def test_a_slip_is_one_sentence_and_exit_2(machine: Machine, words: tuple[str, ...], says: str) -> None:
    ran = machine.bringup(*words)
    assert (ran.returncode, ran.stdout) == (ExitCode.BAD_INPUT, "")
    assert says in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
