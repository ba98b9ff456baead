"""What a run may rely on when it holds a host, seen from its own side."""

import ast
import contextlib
import getpass
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import tasks.remote.supervisor as remote
from settings.source import BadInput
from tasks.deadline import Deadline
from tasks.host import Completed, DeadlinePassed, HostLost
from tasks.local_host import LocalHost
from tasks.pure.preflight import GpuProcess
from tasks.ssh_host import SshHost
from tasks.supervisor import (
    Acquired,
    Busy,
    Ended,
    ExitInfo,
    NotHeld,
    Reaped,
    ServerSpec,
    Started,
    Supervisor,
    SupervisorFailed,
    marks,
)
from tests.tasks.conftest import Sshd
from tests.tasks.remote.bench import Bench, alive, soon

pytest_plugins = ["tests.tasks.remote.bench"]

SLEEP = ("sleep", "600")


def in_time() -> Deadline:
    return Deadline.after(20)


@pytest.fixture
def held(bench: Bench) -> Supervisor:
    supervisor = bench.supervisor()
    assert isinstance(supervisor.acquire(deadline=in_time()), Acquired)
    return supervisor


class LosesReplies(LocalHost):
    """Every command is carried out, but the reply of the first one of each verb never comes."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[str] = set()

    def run(
        self, argv: Sequence[str], *, deadline: Deadline, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Completed:
        done = super().run(argv, deadline=deadline, env=env, stdin=stdin)
        if argv[4] not in self.lost:
            self.lost.add(argv[4])
            raise HostLost("the reply is lost")
        return done


def test_a_held_host_says_who_holds_it_and_since_when(bench: Bench, held: Supervisor) -> None:
    other = bench.supervisor("run-2", owner="you@there")
    answer = other.acquire(deadline=in_time())
    assert isinstance(answer, Busy)
    assert ("me@here", "run-1", False) == (answer.holder.owner, answer.holder.run_id, answer.holder.kept)
    assert answer.holder.since.endswith("Z")
    assert answer == Busy(held.holder(deadline=in_time()) or answer.holder)


def test_a_lost_reply_does_no_harm(bench: Bench) -> None:
    host = LosesReplies()
    supervisor = Supervisor(
        host, state_dir=str(bench.state), python=sys.executable, run_id="run-1", owner="me", lease_s=30.0
    )
    with pytest.raises(HostLost):
        supervisor.acquire(deadline=in_time())
    acquired = supervisor.acquire(deadline=in_time())
    assert isinstance(acquired, Acquired)
    assert acquired.resumed
    with pytest.raises(HostLost):
        supervisor.start(bench.spec(), deadline=in_time())
    started = supervisor.start(bench.spec(), deadline=in_time())
    assert isinstance(started, Started)
    assert started.adopted
    assert started.pid == int(bench.attempt("server.pid").read_text())
    with pytest.raises(HostLost):
        supervisor.stop("a1", deadline=in_time())
    assert "stop" == stopped(supervisor, "a1").by
    with pytest.raises(HostLost):
        supervisor.release(deadline=in_time())
    assert supervisor.release(deadline=in_time()) is None
    assert bench.empty()


def test_a_server_may_open_what_the_hard_limit_allows_where_a_login_begins_with_less(bench: Bench) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        supervisor = bench.supervisor()
        supervisor.acquire(deadline=in_time())
        says = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"
        supervisor.start(ServerSpec("a1", (sys.executable, "-c", says)), deadline=in_time())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = remote.FILES if hard == resource.RLIM_INFINITY else min(remote.FILES, hard)
    soon(lambda: bench.said(f"({allowed}, {hard})"))
    supervisor.release(deadline=in_time())


def stopped(supervisor: Supervisor, id: str) -> ExitInfo:
    exit = supervisor.stop(id, deadline=in_time())
    assert isinstance(exit, ExitInfo)
    return exit


def test_of_two_acquires_at_the_same_instant_one_wins(bench: Bench) -> None:
    start, answers = threading.Barrier(5), []

    def acquire(n: int) -> None:
        supervisor = bench.supervisor(f"run-{n}")
        start.wait()
        answers.append(supervisor.acquire(deadline=in_time()))

    threads = [threading.Thread(target=acquire, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 == len([a for a in answers if isinstance(a, Acquired)])
    assert 4 == len([a for a in answers if isinstance(a, Busy)])


def test_an_id_that_has_ended_is_not_started_again(held: Supervisor) -> None:
    spec = ServerSpec("a1", ("sh", "-c", "exit 7"))
    held.start(spec, deadline=in_time())
    soon(lambda: (exit := held.status("a1", deadline=in_time()).exit) and exit.clean)
    again = held.start(spec, deadline=in_time())
    assert isinstance(again, Ended)
    assert ("self", 7, None, True) == (again.exit.by, again.exit.code, again.exit.signal, again.exit.clean)


def test_a_signal_that_killed_the_server_is_told(held: Supervisor) -> None:
    held.start(ServerSpec("a1", ("sh", "-c", "kill -9 $$")), deadline=in_time())
    soon(lambda: (exit := held.status("a1", deadline=in_time()).exit) and (exit.by, exit.signal) == ("self", 9))


def test_a_program_that_is_not_there_says_so_in_its_log(bench: Bench, held: Supervisor) -> None:
    held.start(ServerSpec("a1", ("/no/such/program",)), deadline=in_time())
    soon(lambda: (exit := held.status("a1", deadline=in_time()).exit) and exit.code == 127)
    assert "No such file" in bench.attempt("log").read_text()


def test_secrets_reach_the_server_and_stay_nowhere(bench: Bench, held: Supervisor) -> None:
    spec = ServerSpec("a1", ("sh", "-c", "test ${#TOKEN} = 6 && echo got it; sleep 600"), {"TOKEN": "s3cret"})
    held.start(spec, deadline=in_time())
    soon(lambda: bench.said("got it"))
    held.start(spec, deadline=in_time())  # sent again, dropped again
    soon(lambda: json.loads(bench.attempt("spec.json").read_text())["env"] == ["TOKEN"])
    assert b"s3cret" not in b"".join(p.read_bytes() for p in bench.state.rglob("*") if p.is_file())
    assert "s3cret" not in repr(spec)
    assert {0o700} == {p.stat().st_mode & 0o777 for p in [bench.state, *bench.state.rglob("*")] if p.is_dir()}
    assert not [p for p in bench.state.rglob("*") if p.stat().st_mode & 0o077]


def test_secrets_do_not_wait_for_a_supervisor_that_is_dead(bench: Bench) -> None:
    spec = ServerSpec("a1", SLEEP, {"TOKEN": "s3cret"})
    assert isinstance(bench.supervisor().start(spec, deadline=in_time()), NotHeld)
    assert "s3cret" not in bench.attempt("spec.json").read_text()


def test_a_stop_that_overtakes_the_start_wins(bench: Bench, held: Supervisor) -> None:
    held.ask_to_stop("a1", deadline=in_time())
    answer = held.start(ServerSpec("a1", SLEEP), deadline=in_time())
    assert isinstance(answer, Ended)
    assert "stop" == answer.exit.by
    assert not bench.attempt("server.pid").exists()


def test_to_stop_what_never_was_is_no_error(held: Supervisor) -> None:
    assert held.stop("nothing", deadline=in_time()) is None
    held.ask_to_stop("a1", deadline=in_time())
    assert held.stop("a1", deadline=in_time()) is None


def test_another_run_can_neither_stop_nor_release_nor_reap(bench: Bench, held: Supervisor) -> None:
    held.start(ServerSpec("a1", SLEEP), deadline=in_time())
    other = bench.supervisor("run-2")
    assert isinstance(other.stop("a1", deadline=in_time()), Busy)
    assert isinstance(other.release(deadline=in_time()), Busy)
    assert isinstance(other.reap(deadline=in_time()), Busy)
    answer = other.start(ServerSpec("b1", SLEEP), deadline=in_time())
    assert isinstance(answer, NotHeld)
    assert answer.holder is not None
    assert "run-1" == answer.holder.run_id
    assert not other.renew(deadline=in_time())
    assert "running" == held.status("a1", deadline=in_time()).state


def test_a_kept_server_outlives_its_lease_until_somebody_stops_it_in_its_runs_name(bench: Bench) -> None:
    supervisor = bench.supervisor(lease_s=1.0)
    supervisor.acquire(deadline=in_time())
    supervisor.start(ServerSpec("a1", SLEEP), deadline=in_time())
    assert supervisor.keep(deadline=in_time())
    other = bench.supervisor("run-2")
    holder = other.holder(deadline=in_time())
    assert holder is not None
    assert ("kept:run-1", "me@here", True, ("a1",)) == (holder.owner, holder.keeper, holder.kept, holder.running)
    over = Deadline.after(1.3)
    soon(lambda: over.passed)
    assert "running" == other.status("a1", deadline=in_time()).state
    assert isinstance(other.acquire(deadline=in_time()), Busy)
    assert isinstance(other.stop("a1", deadline=in_time()), Busy)
    assert isinstance(other.release(deadline=in_time()), Busy)
    somebody = bench.supervisor(holder.run_id)
    assert "stop" == stopped(somebody, "a1").by
    assert somebody.release(deadline=in_time()) is None
    assert bench.empty()


def test_a_run_that_wakes_after_its_lease_does_not_end_what_the_next_one_kept(bench: Bench) -> None:
    slept, after = bench.supervisor("slept", lease_s=1.0), bench.supervisor("after")
    slept.acquire(deadline=in_time())
    slept.start(ServerSpec("s1", SLEEP), deadline=in_time())
    soon(bench.empty)
    after.acquire(deadline=in_time())
    after.start(ServerSpec("a1", SLEEP), deadline=in_time())
    assert after.keep(deadline=in_time())
    slept.ask_to_stop("s1", deadline=in_time())  # its last words
    busy = slept.release(deadline=in_time())
    assert isinstance(busy, Busy)
    assert "after" == busy.holder.run_id
    assert ("running", True) == ((status := after.status("a1", deadline=in_time())).state, status.daemon_alive)
    assert after.release(deadline=in_time()) is None


def test_a_run_can_take_the_host_without_a_lease(bench: Bench) -> None:
    supervisor = bench.supervisor(lease_s=None)
    supervisor.acquire(deadline=in_time())
    holder = supervisor.holder(deadline=in_time())
    assert holder is not None
    assert ("kept:run-1", "me@here", True) == (holder.owner, holder.keeper, holder.kept)
    assert supervisor.renew(deadline=in_time())
    supervisor.release(deadline=in_time())


def test_what_does_not_end_in_time_is_a_passed_deadline_and_ends_later(bench: Bench, held: Supervisor) -> None:
    held.start(bench.spec("deaf", grace_s=2.0), deadline=in_time())
    soon(lambda: bench.said("serving"))
    with pytest.raises(DeadlinePassed):
        held.stop("a1", deadline=Deadline.after(2.5))
    exit = stopped(held, "a1")
    assert ("stop", signal.SIGKILL, True) == (exit.by, exit.signal, exit.clean)


TORN = ["", "{", "[]", "null", "\0" * 64, '{"pid": "x"}', '{"run_id": "r", "boot_id": "BOOT", "lease_s": "x"}']


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_lock_of_nobody_is_taken_over(bench: Bench, torn: str) -> None:
    bench.state.mkdir()
    (bench.state / "lock").write_text(torn.replace("BOOT", remote.boot_id()))
    (bench.state / "lease").touch()
    supervisor = bench.supervisor()
    assert supervisor.holder(deadline=in_time()) is not None
    assert isinstance(supervisor.acquire(deadline=in_time()), Acquired)
    supervisor.release(deadline=in_time())
    assert bench.empty()


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_lock_of_nobody_can_be_released_or_reaped(bench: Bench, torn: str) -> None:
    bench.state.mkdir()
    (bench.state / "lock").write_text(torn)
    assert isinstance(bench.supervisor("r").release(deadline=in_time()), Busy | None)
    assert Reaped((), ()) == bench.supervisor("r").reap(deadline=in_time())
    assert bench.empty()


def test_a_torn_lock_of_a_living_supervisor_is_mended(bench: Bench, held: Supervisor) -> None:
    with (bench.state / "lock").open("r+b") as lock:
        lock.truncate(10)
    assert isinstance(bench.supervisor("run-2").acquire(deadline=in_time()), Busy)
    soon(lambda: held.renew(deadline=in_time()))


@pytest.mark.parametrize(
    "torn",
    [
        "", "{", "[]", '{"run_id": "run-1", "argv": "x"}', '{"run_id": "run-1", "argv": []}',
        '{"run_id": "run-1", "argv": ["x"], "env": {}, "port": 99999}',
        '{"run_id": "run-1", "argv": ["x"], "env": {}, "grace_s": "soon"}',
    ],
)
def test_a_torn_spec_is_an_ended_attempt(bench: Bench, held: Supervisor, torn: str) -> None:
    held.host.put(torn.encode(), str(bench.attempt("spec.json")), deadline=in_time())
    soon(lambda: held.status("a1", deadline=in_time()).exit)
    exit = held.status("a1", deadline=in_time()).exit
    assert exit is not None
    assert "spec.json" in exit.why
    assert isinstance(held.start(ServerSpec("a2", SLEEP), deadline=in_time()), Started)


def stale(bench: Bench, **changes: object) -> None:
    """A lock as a supervisor of this boot left it, which had no time to do anything."""
    record = {
        "owner": "me@here", "run_id": "run-0", "boot_id": remote.boot_id(), "since": "2026-01-01T00:00:00Z",
        "lease_s": 600.0, "gpu_mib": None, "pid": 2**22 + 1, "start": 1, **changes,
    }
    bench.state.mkdir()
    (bench.state / "lock").write_text(json.dumps(record))
    (bench.state / "lease").touch()


def test_a_lock_of_another_boot_is_stale(bench: Bench) -> None:
    stale(bench, boot_id="of-yesterday")
    assert isinstance(bench.supervisor().acquire(deadline=in_time()), Acquired)


def test_after_a_reboot_a_stop_closes_the_attempt_at_once(bench: Bench) -> None:
    supervisor = bench.supervisor()
    supervisor.acquire(deadline=in_time())
    supervisor.start(bench.spec(), deadline=in_time())
    soon(lambda: bench.said("serving"))
    said = json.loads((bench.state / "lock").read_text())
    for pid in (said["guard"][0], said["pid"], *bench.family().values()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    soon(lambda: not bench.marked())
    ended = supervisor.stop("a1", deadline=in_time())
    assert isinstance(ended, ExitInfo)
    assert ("supervisor", True) == (ended.by, ended.clean)
    assert bench.empty()


def test_a_lock_that_nobody_holds_stands_until_its_lease_is_over(bench: Bench) -> None:
    stale(bench)
    supervisor = bench.supervisor()
    answer = supervisor.acquire(deadline=in_time())
    assert isinstance(answer, Busy)
    assert not answer.holder.daemon_alive
    os.utime(bench.state / "lease", (0, 0))
    assert isinstance(supervisor.acquire(deadline=in_time()), Acquired)


def test_a_run_that_comes_back_need_not_wait_for_its_own_lease(bench: Bench) -> None:
    stale(bench)
    assert isinstance(bench.supervisor("run-0").acquire(deadline=in_time()), Acquired)


def test_a_kept_lock_of_an_older_release_names_nobody_who_kept_it(bench: Bench) -> None:
    stale(bench, owner="kept:run-0", lease_s=None)
    holder = bench.supervisor().holder(deadline=in_time())
    assert holder is not None
    assert ("", "run-0", True) == (holder.keeper, holder.run_id, holder.kept)


def test_a_pid_that_was_used_again_is_not_ours(bench: Bench) -> None:
    """A foreign session has the number that our server's had; only the start time tells them apart."""
    stranger = subprocess.Popen(SLEEP, start_new_session=True)
    try:
        stale(bench, boot_id="of-yesterday")
        (bench.state / "attempts" / "a0").mkdir(parents=True)
        for start in (1, 2**40):
            started = {"pid": stranger.pid, "start": start, "boot_id": remote.boot_id()}
            bench.attempt("started", "a0").write_text(json.dumps(started))
            bench.attempt("exit.json", "a0").unlink(missing_ok=True)
            assert Reaped((), ()) == bench.supervisor().reap(deadline=in_time())
            assert json.loads(bench.attempt("exit.json", "a0").read_text())["by"] == "supervisor"
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_the_clock_of_the_host_may_jump(bench: Bench) -> None:
    """Any change of the lease's time is a renewal, in whichever direction; none is one, however old it looks."""
    supervisor = bench.supervisor(lease_s=1.0)
    supervisor.acquire(deadline=in_time())
    supervisor.start(ServerSpec("a1", SLEEP), deadline=in_time())
    for step in range(20):
        os.utime(bench.state / "lease", (step * 86_400, step * 86_400))
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(SLEEP, timeout=0.1, check=False)
    status = supervisor.status("a1", deadline=in_time())
    assert ("running", True) == (status.state, status.daemon_alive)
    os.utime(bench.state / "lease", (2**31, 2**31))  # from the future, and then silence
    soon(bench.empty)
    exit = supervisor.status("a1", deadline=in_time()).exit
    assert exit is not None
    assert "lease" == exit.by


SMI = """#!/bin/sh
case "$1" in
  --query-gpu=*) echo "0, $(cat {used})"; echo "1, 3" ;;
  --query-compute-apps=*) cat {apps} ;;
esac
"""


def test_who_else_is_on_the_gpus_is_named_and_ours_is_known_without_its_mark(bench: Bench) -> None:
    """SGLang overwrites what /proc shows of its environment: a server's child is known by its session."""
    apps, smi = bench.folder / "apps", bench.folder / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(SMI.format(used=apps, apps=apps))
    smi.chmod(0o700)
    supervisor = bench.supervisor()
    supervisor.host = LocalHost(env={"PATH": f"{smi.parent}:{os.environ['PATH']}"})
    supervisor.acquire(deadline=in_time())
    ours = supervisor.start(ServerSpec("a1", ("env", "-i", "sleep", "600")), deadline=in_time())
    assert isinstance(ours, Started)
    with subprocess.Popen(SLEEP) as other:
        rows = [f"{ours.pid}, python3, 7", f"{other.pid}, sleep, 300", f"{other.pid}, sleep, 40", f"{2**22 + 1}, x, 1"]
        apps.write_text("\n".join(rows) + "\n")
        found = supervisor.strangers(deadline=in_time())
        other.kill()
    assert (GpuProcess(other.pid, "sleep", 340, user=getpass.getuser()),) == found
    supervisor.release(deadline=in_time())


def test_the_end_waits_for_gpu_memory_and_for_our_pids_to_leave_the_gpu(bench: Bench) -> None:
    used, apps, smi = bench.folder / "used", bench.folder / "apps", bench.folder / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(SMI.format(used=used, apps=apps))
    smi.chmod(0o700)
    used.write_text("700")  # somebody else's, before we came
    apps.write_text("1\n")
    supervisor = bench.supervisor()
    supervisor.host = LocalHost(env={"PATH": f"{smi.parent}:{os.environ['PATH']}"})
    supervisor.acquire(deadline=in_time())
    started = supervisor.start(ServerSpec("a1", SLEEP, gpus=1), deadline=in_time())
    assert isinstance(started, Started)
    used.write_text("60000")
    apps.write_text(f"1\n{started.pid}\n")
    supervisor.ask_to_stop("a1", deadline=in_time())
    soon(lambda: supervisor.status("a1", deadline=in_time()).exit)
    with pytest.raises(DeadlinePassed):
        supervisor.stop("a1", deadline=Deadline.after(3))
    used.write_text("1100")
    with pytest.raises(DeadlinePassed):
        supervisor.stop("a1", deadline=Deadline.after(3))
    apps.write_text("1\n")
    assert stopped(supervisor, "a1").clean


def test_what_will_not_go_is_named_and_the_host_is_given_back(bench: Bench, held: Supervisor) -> None:
    """A stranger listens on our port after us: after `clean_s` the attempt is closed, and says so."""
    spec = {"run_id": "run-1", "argv": SLEEP, "env": {}, "port": bench.port, "clean_s": 0.5}
    held.host.put(json.dumps(spec).encode(), str(bench.attempt("spec.json")), deadline=in_time())
    soon(bench.attempt("started").exists)
    with socket.create_server(("127.0.0.1", bench.port)):
        exit = stopped(held, "a1")
        assert (False, (f"port {bench.port} is still taken",)) == (exit.clean, exit.left)
        assert held.release(deadline=in_time()) is None


def test_a_port_that_was_taken_before_us_is_not_waited_for(bench: Bench, held: Supervisor) -> None:
    with socket.create_server(("127.0.0.1", bench.port)):
        held.start(ServerSpec("a1", SLEEP, port=bench.port), deadline=in_time())
        assert stopped(held, "a1").clean


def test_a_removed_state_folder_ends_the_server(bench: Bench, held: Supervisor) -> None:
    held.start(bench.spec(), deadline=in_time())
    soon(lambda: bench.said("serving"))
    shutil.rmtree(bench.state)
    soon(lambda: not any(map(alive, bench.family().values())))


@pytest.fixture
def small_disk(bench: Bench) -> Iterator[Path]:
    """The state folder on a disk of 256 KiB."""
    bench.state.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(bench.state)]
    if subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("may not mount a small tmpfs here: needs root")
    yield bench.state
    subprocess.run(["umount", "-l", bench.state], check=True)


def test_a_full_disk_loses_neither_server_nor_its_end(bench: Bench, small_disk: Path) -> None:
    supervisor = bench.supervisor()
    supervisor.acquire(deadline=in_time())
    supervisor.start(bench.spec(), deadline=in_time())
    soon(lambda: bench.said("serving"))
    ballast = small_disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    assert supervisor.renew(deadline=in_time())
    os.kill(int(bench.attempt("server.pid").read_text()), signal.SIGKILL)
    soon(lambda: not bench.marked())
    status = supervisor.status("a1", deadline=in_time())
    assert ("exited", None, True) == (status.state, status.exit, status.daemon_alive)
    ballast.unlink()
    soon(lambda: (exit := supervisor.status("a1", deadline=in_time()).exit) and (exit.by, exit.clean) == ("self", True))
    supervisor.release(deadline=in_time())
    assert bench.empty()


def test_a_host_that_cannot_do_it_says_why(bench: Bench) -> None:
    (bench.folder / "file").touch()
    supervisor = Supervisor(
        LocalHost(), state_dir=str(bench.state), python="/bin/false", run_id="r", owner="me", lease_s=30.0
    )
    with pytest.raises(SupervisorFailed, match="/bin/false"):
        supervisor.acquire(deadline=in_time())


@pytest.mark.sshd
def test_it_works_over_ssh_and_outlives_the_connection(bench: Bench, sshd: Sshd) -> None:
    """The daemon must neither hold the command's pipes open nor die with its session."""
    supervisor = bench.supervisor()
    with SshHost(sshd.target(), deadline=in_time()) as supervisor.host:
        assert isinstance(supervisor.acquire(deadline=in_time()), Acquired)
        assert isinstance(supervisor.start(bench.spec(), deadline=in_time()), Started)
        soon(lambda: bench.said("serving"))
    with SshHost(sshd.target(), deadline=in_time()) as supervisor.host:
        assert "running" == supervisor.status("a1", deadline=in_time()).state
        assert supervisor.renew(deadline=in_time())
        assert stopped(supervisor, "a1").clean
        assert supervisor.release(deadline=in_time()) is None
    assert bench.empty()


@pytest.mark.parametrize("id", ["", "../lock", "a/b", ".hidden"])
def test_an_id_names_a_folder_and_nothing_else(bench: Bench, id: str) -> None:
    with pytest.raises(ValueError, match="id"):
        bench.supervisor().log_path(id)


def test_the_uploaded_file_is_of_python_3_8() -> None:
    ast.parse(Path(remote.__file__).read_text(), feature_version=(3, 8))


def test_the_uploaded_file_needs_the_standard_library_only() -> None:
    tree = ast.parse(Path(remote.__file__).read_text())
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names


def test_the_status_says_whether_the_port_is_ours_or_a_strangers(bench: Bench, held: Supervisor) -> None:
    def listener(id: str) -> str | None:
        return held.status(id, deadline=in_time()).listener

    held.start(ServerSpec("quiet", SLEEP, port=bench.port), deadline=in_time())
    assert listener("quiet") == "none"
    with socket.create_server(("127.0.0.1", bench.port)):
        assert listener("quiet") == "other"
    serve = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(bench.port))
    held.start(ServerSpec("serving", ("sh", "-c", '"$@" & wait', "sh", *serve), port=bench.port), deadline=in_time())
    soon(lambda: listener("serving") == "ours")
    assert listener("quiet") == "other"


def test_a_python_that_is_not_there_is_a_slip_in_the_target(bench: Bench) -> None:
    supervisor = Supervisor(
        LocalHost("gpu8"), state_dir=str(bench.state), python="/nope/python3", run_id="r", owner="me", lease_s=5
    )
    with pytest.raises(BadInput, match="target gpu8: python: '/nope/python3' cannot be run on the host"):
        supervisor.acquire(deadline=in_time())


@pytest.mark.parametrize("way", ["release", "lease", "daemon killed"])
def test_what_runs_beside_the_servers_ends_with_the_hold_on_the_host(bench: Bench, tmp_path: Path, way: str) -> None:
    (tmp_path / "link").symlink_to(bench.state, target_is_directory=True)   # a state_dir is named as people name it
    supervisor = bench.supervisor(lease_s=4.0 if way == "lease" else 30.0)
    supervisor.acquire(deadline=in_time())
    said = json.loads((bench.state / "lock").read_text())
    env = {**os.environ, **marks(str(tmp_path / "link"))}
    with subprocess.Popen(["sleep", "300"], env=env, start_new_session=True) as install:
        match way:
            case "release":
                supervisor.release(deadline=in_time())
            case "daemon killed":
                os.kill(said["pid"], signal.SIGKILL)
        soon(lambda: install.poll() is not None, "the command has ended")
        assert -signal.SIGKILL == install.returncode
    soon(bench.empty, "the host is free")


def test_an_attempt_that_was_closed_long_ago_is_removed_when_the_host_is_taken(bench: Bench) -> None:
    supervisor = bench.supervisor()
    supervisor.acquire(deadline=in_time())
    for id in ("old", "new"):
        supervisor.start(ServerSpec(id, ("true",)), deadline=in_time())
        stopped(supervisor, id)
    supervisor.release(deadline=in_time())
    os.utime(bench.attempt("exit.json", "old"), (0, 0))
    bench.attempt("spec.json", "open").parent.mkdir()
    again = bench.supervisor(run_id="run-2")
    again.acquire(deadline=in_time())
    assert {"new", "open"} == {path.name for path in (bench.state / "attempts").iterdir()}
    again.release(deadline=in_time())
