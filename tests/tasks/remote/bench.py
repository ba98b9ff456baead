"""Real processes for the tests of the supervisor: a server that behaves badly, and a look at what it left.

A plugin of the test modules that name it; they import from it first, hence PYTEST_DONT_REWRITE.
"""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tasks.deadline import Deadline, pause
from tasks.local_host import LocalHost
from tasks.supervisor import ServerSpec, Supervisor
from tests.ports import free_port

__all__ = ["BAD_SERVER", "DEADLINE_S", "Bench", "alive", "bench", "free_port", "listens", "soon"]

BAD_SERVER = Path(__file__).with_name("bad_server.py")
DEADLINE_S = 20.0


def soon(true: Callable[[], object], what: str = "") -> None:
    """Poll until it is true. Raises: AssertionError after DEADLINE_S."""
    deadline = Deadline.after(DEADLINE_S)
    while not true():
        assert not deadline.passed, f"not true in {DEADLINE_S} s: {what or true}"
        pause(0.02, deadline)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def alive(pid: int) -> bool:
    """By /proc, not by the code under test; a zombie is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@dataclass
class Bench:
    """One state folder, one port, and the family of processes that a bad server told us of."""

    folder: Path
    port: int = field(default_factory=free_port)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def attempt(self, name: str, id: str = "a1") -> Path:
        return self.state / "attempts" / id / name

    def supervisor(self, run_id: str = "run-1", lease_s: float | None = 30.0, owner: str = "me@here") -> Supervisor:
        return Supervisor(
            LocalHost(), state_dir=str(self.state), python=sys.executable, run_id=run_id, owner=owner, lease_s=lease_s
        )

    def spec(self, *words: str, id: str = "a1", grace_s: float = 0.3, **env: str) -> ServerSpec:
        argv = (sys.executable, "-I", "-S", str(BAD_SERVER), str(self.port), str(self.folder / "family"), *words)
        return ServerSpec(id, argv, env, port=self.port, grace_s=grace_s)

    def family(self) -> dict[str, int]:
        """Role -> pid, as each member wrote it down itself."""
        folder = self.folder / "family"
        return {p.name: int(p.read_text()) for p in folder.glob("[!.]*")}

    def empty(self) -> bool:
        family = self.family().values()
        gone = not (self.state / "lock").exists() and not any(map(alive, family))
        return gone and not self.marked() and not listens(self.port)

    def said(self, line: str, id: str = "a1") -> bool:
        log = self.attempt("log", id)
        return log.exists() and line in log.read_text()

    def marked(self) -> list[int]:
        """Processes that carry our mark, by /proc alone."""
        mark = f"BRINGUP_STATE={self.state}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if mark in (entry / "environ").read_bytes() and alive(int(entry.name)):
                    found.append(int(entry.name))
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Nothing of this bench is left: daemon and guard (they carry its path in their command line), server, family."""
    bench = Bench(tmp_path)
    yield bench
    for _ in range(3):  # a daemon that is killed may just have forked
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                if pid != os.getpid() and str(tmp_path).encode() in (entry / "cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        for pid in bench.marked():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
