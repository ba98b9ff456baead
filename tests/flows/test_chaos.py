"""Every fault in every stage: afterwards the host is empty, the record is readable and true, and the next run serves.

With `make chaos` the whole matrix; in the ordinary suite one stage of each fault that no other test strikes. The server
is a healthy one, so an attempt that *failed* would be a lie: whatever ends it here, it was not its rung.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from settings.words import AttemptOutcome, ExitCode, RunOutcome, Stage
from tasks.deadline import Deadline, pause
from tasks.pure.record import RunRecord
from tasks.store import read_record
from tests.flows.conftest import STAGES, Machine, healthy, rehearsal_target, wait_for
from tests.tasks.conftest import Sshd, StartSshd

pytestmark = [pytest.mark.prefect, pytest.mark.sshd, pytest.mark.timeout(400)]

LEASE_S = 5.0


@dataclass(frozen=True)
class Scene:
    """A run in the middle of a stage."""

    machine: Machine
    sshd: Sshd
    target: str
    run: subprocess.Popen[str]

    def daemon(self) -> dict[str, int]:
        said = json.loads((self.machine.state / "lock").read_text())
        return {"daemon": said["pid"], "guard": said["guard"][0]}

    def servers(self) -> list[int]:
        return self.machine.processes()


def _signal_run(number: signal.Signals) -> Callable[[Scene], None]:
    return lambda scene: os.kill(scene.run.pid, number)


def _kill_flow(scene: Scene) -> None:
    os.killpg(scene.run.pid, signal.SIGKILL)


def _kill_supervisor(scene: Scene) -> None:
    os.kill(scene.daemon()["daemon"], signal.SIGKILL)


def _reboot(scene: Scene) -> None:
    """All of ours gone at once, and the lock of another boot."""
    daemon, lock = scene.daemon(), scene.machine.state / "lock"
    for pid in (daemon["guard"], daemon["daemon"], *scene.servers()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    said = {**json.loads(lock.read_text()), "boot_id": "00000000-0000-4000-8000-000000000000"}
    lock.write_text(json.dumps(said))


def _cut_ssh(scene: Scene) -> None:
    scene.sshd.drop_connections()


def _freeze_ssh(scene: Scene) -> None:
    """For less than a lease, and back."""
    os.kill(scene.sshd.process.pid, signal.SIGSTOP)
    scene.sshd.drop_connections(signal.SIGSTOP)
    over = Deadline.after(LEASE_S * 0.4)
    while not over.passed:
        pause(0.2, over)
    os.kill(scene.sshd.process.pid, signal.SIGCONT)
    scene.sshd.drop_connections(signal.SIGCONT)


def _bury_host(scene: Scene) -> None:
    """No SSH any more, for good: sshd itself is gone until the run has ended."""
    scene.sshd.process.send_signal(signal.SIGSTOP)  # it takes nobody in while its connections end
    scene.sshd.drop_connections()
    scene.sshd.process.kill()


def _fill(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=2m", str(folder)], check=True)
    with contextlib.suppress(OSError), (folder / "ballast").open("wb", buffering=0) as f:
        while f.write(b"x" * 4096):
            pass


def _make_room(folder: Path) -> None:
    (folder / "ballast").unlink()
    subprocess.run(["mount", "-o", "remount,size=4g", str(folder)], check=True)


def _second_run(scene: Scene) -> None:
    second = scene.machine.bringup("run", "--target", scene.target, "--runs", str(scene.machine.folder / "second"))
    assert ExitCode.HOST_BUSY == second.returncode, second.stderr


@dataclass(frozen=True)
class Fault:
    strike: Callable[[Scene], None]
    ends: tuple[RunOutcome, ...]
    elsewhere: bool = False  # an ordinary test strikes it already
    disk: str = ""  # what lies on a small disk of its own: "runs" or "state"
    silent: bool = False  # nobody is left to take the lock away: the next acquire does


GOES_ON = (RunOutcome.SERVING,)
FAULTS = {
    "ctrl-c": Fault(_signal_run(signal.SIGINT), (RunOutcome.CANCELLED,), elsewhere=True),
    "sigterm-to-the-flow": Fault(_signal_run(signal.SIGTERM), (RunOutcome.CANCELLED,)),
    "sigkill-of-the-flow": Fault(_kill_flow, (RunOutcome.RUNNING,), elsewhere=True),
    "supervisor-killed": Fault(_kill_supervisor, (RunOutcome.HOST_LOST,)),
    "rebooted": Fault(_reboot, (RunOutcome.HOST_LOST,), silent=True),
    "ssh-cut": Fault(_cut_ssh, GOES_ON),
    "ssh-frozen-and-back": Fault(_freeze_ssh, GOES_ON),
    "ssh-gone": Fault(_bury_host, (RunOutcome.HOST_LOST,), elsewhere=True),
    "disk-full-here": Fault(lambda s: _fill(s.machine.runs), (RunOutcome.RUNNING, RunOutcome.ERROR), disk="runs"),
    "disk-full-there": Fault(lambda s: _fill(s.machine.state), (*GOES_ON, RunOutcome.ERROR), disk="state"),
    "two-at-once": Fault(_second_run, GOES_ON, elsewhere=True),
}
MATRIX = [
    pytest.param(
        name, stage, id=f"{name}-in-{stage}",
        marks=() if stage == "ready" and not fault.elsewhere else pytest.mark.chaos,
    )
    for name, fault in FAULTS.items()
    for stage in STAGES
]  # fmt: skip


@pytest.mark.parametrize(("name", "stage"), MATRIX)
def test_after_any_fault_the_host_is_empty_and_the_next_run_serves(
    name: str, stage: str, machine: Machine, start_sshd: StartSshd
) -> None:
    fault, sshd = FAULTS[name], start_sshd()
    machine.env.update({"BRINGUP_RUN__CALL_S": "5", "BRINGUP_RUN__STOP_S": "20", "BRINGUP_RUN__DECODE_S": "60"})
    story = machine.folder / "story.toml"
    short = stage in ("preflight", "launch", "stop")  # the second needs some seconds to start
    story.write_text(healthy(stage, slower=5.0 if name == "two-at-once" and short else 1.0))
    target = str(_target(machine, sshd, story))
    with _small_disk(machine, fault.disk):
        run = machine.begin("run", "--target", target)
        try:
            machine.until_event(f'"stage": "{stage}"')
            fault.strike(Scene(machine, sshd, target, run))
            _, said = run.communicate(timeout=200)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.communicate()
        _is_empty(machine, lock_stays=fault.silent)
        record = read_record(machine.newest())
        late = GOES_ON if stage == "stop" else ()  # every gate was passed before
        early = (RunOutcome.STOPPED,) if (name, stage) == ("disk-full-there", "preflight") else ()  # it is seen
        assert record.outcome in (*fault.ends, *late, *early), (record.halt, said)
        _is_true(record)
        if fault.disk:
            _make_room(machine.folder / fault.disk)
        story.write_text(healthy())
        if sshd.process.poll() is not None:
            target = str(_target(machine, start_sshd(), story))
        after = machine.bringup("run", "--target", target, "--json")
        assert ExitCode.SERVING == after.returncode, after.stderr
        _is_empty(machine)


def _is_empty(machine: Machine, *, lock_stays: bool = False) -> None:
    """No process, lock or port of ours, in the time that the contract gives."""
    wait_for(lambda: not machine.processes(), LEASE_S + 60, "no process of ours")
    wait_for(lambda: _is_free(machine.port), LEASE_S + 60, "the port is free")
    if not lock_stays:
        wait_for(lambda: not (machine.state / "lock").exists(), LEASE_S + 60, "no lock of ours")


def _is_true(record: RunRecord) -> None:
    for attempt in record.attempts:
        if attempt.failed_stage is Stage.PREFLIGHT:
            assert "disk" == (attempt.diagnosis and attempt.diagnosis.kind), attempt.diagnosis
            continue
        assert attempt.outcome in (AttemptOutcome.ABORTED, AttemptOutcome.PASSED), attempt.diagnosis
        if attempt.outcome is AttemptOutcome.ABORTED:
            assert attempt.diagnosis is not None
            assert attempt.diagnosis.kind in ("interrupted", "lease_expired")
            assert attempt.move is None


def _target(machine: Machine, sshd: Sshd, story: Path) -> Path:
    ssh = {
        "host": "127.0.0.1", "port": sshd.port, "identity_file": str(sshd.identity),
        "known_hosts_file": str(sshd.known_hosts), "ssh_config": "/dev/null", "lease_s": LEASE_S,
    }  # fmt: skip
    return rehearsal_target(machine.folder / "far.toml", story, **ssh)


@contextlib.contextmanager
def _small_disk(machine: Machine, which: str) -> Iterator[None]:
    """A disk of its own for a folder, large until it is filled. Skips where we may not mount one."""
    if not which:
        yield
        return
    folder = machine.folder / which
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4g,mode=700", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("may not mount a small tmpfs here: needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0
