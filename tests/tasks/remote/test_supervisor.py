"""The kill matrix: whoever dies, and whenever, the host ends empty, the next run gets it, and strangers live."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tasks.deadline import Deadline
from tasks.host import HostError
from tasks.supervisor import Acquired, Started
from tests.tasks.remote.bench import BAD_SERVER, Bench, alive, free_port, soon

pytest_plugins = ["tests.tasks.remote.bench"]

ROOT = Path(__file__).parents[3]
LEASE_S = 2.0  # of the run that is to be killed; renewals have to get through on a busy machine
STAGES = ("acquired", "starting", "loading", "serving", "stopping")
VICTIMS = ("daemon", "guard", "server", "daemon+server")
CELLS = [(s, v) for s in STAGES for v in VICTIMS if not (s == "acquired" and "server" in v)]
ENDED_BY = {
    "orchestrator": "lease", "server": "self",
    "daemon": "supervisor", "guard": "supervisor", "daemon+server": "supervisor",
}


def in_time() -> Deadline:
    return Deadline.after(20)


def holder(bench: Bench) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        said: dict[str, Any] = json.loads((bench.state / "lock").read_text())
        return said
    return {}


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def stranger(bench: Bench, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The same program with the same attempt id in its environment, but started by somebody else from elsewhere."""
    argv = [sys.executable, "-I", "-S", str(BAD_SERVER), str(free_port()), str(tmp_path / "strangers")]
    env = {"BRINGUP_ATTEMPT": "a1", "BRINGUP_STATE": f"{bench.state}-of-another"}
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, start_new_session=True)
    family = tmp_path / "strangers"
    soon(lambda: family.is_dir() and len([p for p in family.iterdir() if p.name[0] != "."]) == 3)
    yield process
    for member in family.iterdir():
        kill(int(member.read_text()))
    process.wait()


@contextlib.contextmanager
def orchestrated(bench: Bench, *, to_be_killed: bool) -> Iterator[Callable[[], None]]:
    """A run that has the host; called, it is no more. Only the one to be killed is a process of its own."""
    if not to_be_killed:
        assert isinstance(bench.supervisor().acquire(deadline=in_time()), Acquired)
        yield lambda: None
        return
    argv = [sys.executable, str(Path(__file__).with_name("orchestrator.py")), str(bench.state), "run-1", str(LEASE_S)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"acquired\n"
        yield process.kill
        process.kill()


def start_and_forget(bench: Bench, *words: str, grace_s: float) -> None:
    """Send the start; whether its reply comes is of no interest to who has been killed."""

    def start() -> None:
        with contextlib.suppress(HostError):
            bench.supervisor().start(bench.spec(*words, grace_s=grace_s), deadline=in_time())

    threading.Thread(target=start, daemon=True).start()


def reach(bench: Bench, stage: str) -> None:
    if stage == "acquired":
        return
    words = {"starting": ["slow"], "loading": ["slow"], "serving": [], "stopping": ["deaf"]}[stage]
    start_and_forget(bench, *words, grace_s=1.5 if stage == "stopping" else 0.3)
    soon(bench.attempt("spec.json").exists)
    if stage == "loading":
        soon(lambda: bench.said("loading"), "loading")
    elif stage != "starting":
        soon(lambda: bench.said("serving"), "serving")
    if stage == "stopping":
        bench.supervisor().ask_to_stop("a1", deadline=in_time())
        soon(lambda: bench.said("heard SIGTERM"), "stopping")


def strike(bench: Bench, victim: str) -> None:
    """SIGKILL. What the lock says is only read as far as it is needed."""
    said = holder(bench)
    if victim == "guard":
        kill(said["guard"][0])
    if "daemon" in victim:
        if "server" in victim:
            soon(bench.attempt("server.pid").exists)
            os.kill(said["pid"], signal.SIGSTOP)  # or it sees the server die first
        kill(said["pid"])
    if "server" in victim:
        soon(bench.attempt("server.pid").exists)
        with contextlib.suppress(ProcessLookupError):
            kill(int(bench.attempt("server.pid").read_text()))


@pytest.mark.parametrize(("stage", "victim"), CELLS, ids=lambda word: str(word))
def test_the_host_ends_empty(bench: Bench, stranger: subprocess.Popen[bytes], stage: str, victim: str) -> None:
    kill_and_look(bench, stage, victim)
    assert stranger.poll() is None


def test_the_host_ends_empty_when_nobody_renews(bench: Bench, stranger: subprocess.Popen[bytes]) -> None:
    """All stages at once, each on a bench of its own: most of the time is the lease running out."""
    benches = {stage: Bench(bench.folder / stage) for stage in STAGES}
    for one in benches.values():
        one.folder.mkdir()
    with ThreadPoolExecutor(len(STAGES)) as pool:
        cells = [pool.submit(kill_and_look, benches[stage], stage, "orchestrator") for stage in STAGES]
    for cell in cells:
        cell.result()
    assert stranger.poll() is None


def kill_and_look(bench: Bench, stage: str, victim: str) -> None:
    with orchestrated(bench, to_be_killed=victim == "orchestrator") as end_orchestrator:
        reach(bench, stage)
        began, old_guard = time.monotonic(), holder(bench).get("guard")
        if victim == "orchestrator":
            end_orchestrator()
        else:
            strike(bench, victim)
        if victim == "server":  # the run lives on and tries its next rung; the attempt alone is over
            soon(lambda: (ended(bench) or {}).get("clean") is True, "the attempt is closed")
            assert not bench.marked()
            print(f"{stage:9} {victim:14} {time.monotonic() - began:.2f} s to an empty host")
            bench.supervisor().release(deadline=in_time())
        elif victim == "guard":
            soon(lambda: holder(bench).get("guard") not in (None, old_guard), "another guard")
            began = time.monotonic()
            strike(bench, "daemon")
        soon(bench.empty, "the host is empty")
        if victim != "server":
            print(f"{stage:9} {victim:14} {time.monotonic() - began:.2f} s to an empty host")
    if stage in ("loading", "serving"):
        assert ENDED_BY[victim] == (ended(bench) or {})["by"]
    assert all(ended(bench, p.name) for p in (bench.state / "attempts").iterdir())
    after = bench.supervisor("run-2")
    assert isinstance(after.acquire(deadline=in_time()), Acquired)
    after.release(deadline=in_time())
    assert bench.empty()


def ended(bench: Bench, id: str = "a1") -> dict[str, object] | None:
    path = bench.attempt("exit.json", id)
    said: dict[str, object] | None = json.loads(path.read_text()) if path.exists() else None
    return said


def test_what_left_session_and_environment_dies_with_the_daemon_too(bench: Bench) -> None:
    """A new guard is told of all processes at once, hence it is killed first: the test then need not wait."""
    supervisor = bench.supervisor()
    supervisor.acquire(deadline=in_time())
    assert isinstance(supervisor.start(bench.spec("scrubbed", "ghost"), deadline=in_time()), Started)
    soon(lambda: bench.said("serving"))
    assert {"server", "child", "escaped", "scrubbed", "ghost"} == set(bench.family())
    old = holder(bench)["guard"]
    strike(bench, "guard")
    soon(lambda: holder(bench)["guard"] != old)
    strike(bench, "daemon")
    soon(bench.empty)


def test_what_left_session_and_environment_ends_with_its_server(bench: Bench) -> None:
    supervisor = bench.supervisor()
    supervisor.acquire(deadline=in_time())
    supervisor.start(bench.spec("scrubbed", "ghost"), deadline=in_time())
    soon(lambda: bench.said("serving"))
    exit = supervisor.stop("a1", deadline=in_time())
    assert not any(map(alive, bench.family().values()))
    assert exit == supervisor.status("a1", deadline=in_time()).exit


def test_daemon_and_guard_killed_together_leave_it_to_the_next_acquire(bench: Bench) -> None:
    supervisor = bench.supervisor(lease_s=1.0)
    supervisor.acquire(deadline=in_time())
    supervisor.start(bench.spec("deaf", "scrubbed"), deadline=in_time())
    soon(lambda: bench.said("serving"))
    os.kill(holder(bench)["pid"], signal.SIGSTOP)
    strike(bench, "guard")
    strike(bench, "daemon")
    soon(lambda: not alive(bench.family()["server"]), "PDEATHSIG")
    assert all(alive(bench.family()[role]) for role in ("child", "escaped", "scrubbed"))
    after = bench.supervisor("run-2")
    soon(lambda: isinstance(after.acquire(deadline=in_time()), Acquired), "taken over once the lease is over")
    assert not any(map(alive, bench.family().values()))
    after.release(deadline=in_time())
    assert bench.empty()
