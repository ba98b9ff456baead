"""Every fault in every stage: afterwards the host is empty, the record is readable and true, and the next run serves.

With `make chaos` the whole matrix; in the ordinary suite one stage of each fault that no other test strikes. The server
is a healthy one, so an attempt that *failed* would be a lie: whatever ends it here, it was not its rung.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from settings.words import AttemptOutcome, ExitCode, RunOutcome, Stage
from tasks.deadline import Deadline, pause
from tasks.pure.record import RunRecord
from tasks.store import read_record
from tests.flows.conftest import (
    STAGES,
    Machine,
    empty_by,
    fill,
    healthy,
    make_room,
    over_ssh,
    rehearsal_target,
    small_disk,
)
from tests.tasks.conftest import Sshd, StartSshd

pytestmark = [pytest.mark.prefect, pytest.mark.sshd, pytest.mark.timeout(400)]

LEASE_S = 5.0
GIVEN_S = LEASE_S + 60   # the contract's, to leave the host empty in
HARMLESS_S = 5.0         # what was sent into a frozen connection has arrived by then


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


@contextlib.contextmanager
def _frozen(sshd: Sshd) -> Iterator[None]:
    os.kill(sshd.process.pid, signal.SIGSTOP)
    sshd.drop_connections(signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(sshd.process.pid, signal.SIGCONT)
        sshd.drop_connections(signal.SIGCONT)


def _freeze_ssh(scene: Scene) -> None:
    """For less than a lease, and back."""
    with _frozen(scene.sshd):
        over = Deadline.after(LEASE_S * 0.4)
        while not over.passed:
            pause(0.2, over)


@contextlib.contextmanager
def _asleep(run: subprocess.Popen[str]) -> Iterator[None]:
    os.killpg(run.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(run.pid, signal.SIGCONT)


StandsStill = Callable[[Scene], contextlib.AbstractContextManager[None]]


def _past_the_lease(stands_still: StandsStill) -> Callable[[Scene], None]:
    """Until the lease has emptied the host and a later run, which comes another way, has kept its server there."""

    def strike(scene: Scene) -> None:
        machine, story = scene.machine, scene.machine.folder / "later.story.toml"
        story.write_text(healthy())
        with stands_still(scene):
            empty_by(Deadline.after(GIVEN_S), machine.left)
            near = str(rehearsal_target(machine.folder / "near.toml", story))
            later = machine.bringup("run", "--target", near, "--keep", "--runs", str(machine.folder / "later"))
            assert ExitCode.SERVING == later.returncode, later.stderr

    return strike


def _later_run_is_whole(scene: Scene) -> None:
    """Whatever the first one still says to the host: the server that was kept meanwhile stays until it is stopped."""
    served, over = set(scene.servers()), Deadline.after(HARMLESS_S)
    assert served
    while not over.passed:
        assert served == set(scene.servers())
        pause(0.5, over)
    near = str(scene.machine.folder / "near.toml")
    stopped = scene.machine.bringup("stop", "--target", near)
    assert ExitCode.SERVING == stopped.returncode, stopped.stdout


def _second_run(scene: Scene) -> None:
    second = scene.machine.bringup("run", "--target", scene.target, "--runs", str(scene.machine.folder / "second"))
    assert ExitCode.HOST_BUSY == second.returncode, second.stderr


@dataclass(frozen=True)
class Fault:
    strike: Callable[[Scene], None]
    ends: tuple[RunOutcome, ...]
    elsewhere: bool = False  # an ordinary test strikes it already, or a piece of it
    disk: str = ""  # what lies on a small disk of its own: "runs" or "state"
    silent: bool = False  # nobody is left to take the lock away: the next acquire does
    then: Callable[[Scene], None] | None = None  # what has to hold once the run has ended

    @property
    def ends_it(self) -> bool:
        return self.then is None and not set(GOES_ON) & set(self.ends)


GOES_ON = (RunOutcome.SERVING,)
FAULTS = {
    "ctrl-c": Fault(_signal_run(signal.SIGINT), (RunOutcome.CANCELLED,), elsewhere=True),
    "sigterm-to-the-flow": Fault(_signal_run(signal.SIGTERM), (RunOutcome.CANCELLED,)),
    "sigkill-of-the-flow": Fault(_kill_flow, (RunOutcome.RUNNING,), elsewhere=True),
    "supervisor-killed": Fault(_kill_supervisor, (RunOutcome.HOST_LOST,)),
    "rebooted": Fault(_reboot, (RunOutcome.HOST_LOST,), silent=True),
    "ssh-cut": Fault(_cut_ssh, GOES_ON),
    "ssh-frozen-and-back": Fault(_freeze_ssh, GOES_ON),
    "ssh-gone": Fault(lambda s: s.sshd.bury(), (RunOutcome.HOST_LOST,), elsewhere=True),
    "disk-full-here": Fault(lambda s: fill(s.machine.runs), (RunOutcome.RUNNING, RunOutcome.ERROR), disk="runs"),
    "disk-full-there": Fault(lambda s: fill(s.machine.state), (*GOES_ON, RunOutcome.ERROR), disk="state"),
    "ssh-frozen-past-the-lease": Fault(
        _past_the_lease(lambda s: _frozen(s.sshd)), (RunOutcome.HOST_LOST,), elsewhere=True, then=_later_run_is_whole
    ),
    "flow-asleep-past-the-lease": Fault(
        _past_the_lease(lambda s: _asleep(s.run)), (RunOutcome.HOST_LOST,), elsewhere=True, then=_later_run_is_whole
    ),
    "two-at-once": Fault(_second_run, GOES_ON, elsewhere=True),
}
MATRIX = [
    pytest.param(
        name, stage, id=f"{name}-in-{stage}",
        marks=(pytest.mark.fault(name), *(() if stage == "ready" and not fault.elsewhere else (pytest.mark.chaos,))),
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
    left = partial(machine.left, lock=not fault.silent)
    with small_disk(machine, fault.disk):
        run = machine.begin("run", "--target", target)
        try:
            machine.until_event(f'"stage": "{stage}"')
            scene, struck = Scene(machine, sshd, target, run), Deadline.after(GIVEN_S)
            fault.strike(scene)
            if fault.ends_it:
                empty_by(struck, left)
            _, said = run.communicate(timeout=200)
            if fault.then:
                fault.then(scene)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.communicate()
        empty_by(struck if fault.ends_it else Deadline.after(GIVEN_S), left)
        record = read_record(machine.newest())
        late = GOES_ON if stage == "stop" else ()  # every gate was passed before
        early = (RunOutcome.STOPPED,) if (name, stage) == ("disk-full-there", "preflight") else ()  # it is seen
        assert record.outcome in (*fault.ends, *late, *early), (record.halt, said)
        _is_true(record)
        if record.outcome is RunOutcome.CANCELLED:  # cut where it was struck, and it says so
            assert [Stage(stage)] == [a.failed_stage for a in record.attempts if a.outcome is AttemptOutcome.ABORTED]
        if fault.disk:
            make_room(machine.folder / fault.disk)
        story.write_text(healthy())
        if sshd.process.poll() is not None:
            target = str(_target(machine, start_sshd(), story))
        after = machine.bringup("run", "--target", target, "--json")
        assert ExitCode.SERVING == after.returncode, after.stderr
        empty_by(Deadline.after(GIVEN_S), machine.left)


def _is_true(record: RunRecord) -> None:
    for attempt in record.attempts:
        if attempt.failed_stage is Stage.PREFLIGHT and attempt.outcome is AttemptOutcome.FAILED:
            assert "disk" == (attempt.diagnosis and attempt.diagnosis.kind), attempt.diagnosis
            continue
        assert attempt.outcome in (AttemptOutcome.ABORTED, AttemptOutcome.PASSED), attempt.diagnosis
        if attempt.outcome is AttemptOutcome.ABORTED:
            assert attempt.diagnosis is not None
            assert attempt.diagnosis.kind in ("interrupted", "lease_expired")
            assert attempt.move is None


def _target(machine: Machine, sshd: Sshd, story: Path) -> Path:
    return rehearsal_target(machine.folder / "far.toml", story, **over_ssh(sshd), lease_s=LEASE_S)
