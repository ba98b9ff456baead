"""A real OpenSSH server on loopback for the tests of the host seam; it runs as whoever runs the tests."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from settings.target import Target
from tasks.deadline import Deadline, pause
from tasks.host import Host
from tasks.local_host import LocalHost
from tasks.ssh_host import SshHost
from tests.ports import free_port

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@dataclass
class Sshd:
    """A running sshd with a host key, a user key and a known_hosts file of its own."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def identity(self) -> Path:
        return self.folder / "user_key"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def host_key(self) -> str:
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    def target(self, **changes: object) -> Target:
        values: dict[str, object] = {
            "name": "test-host", "host": "127.0.0.1", "port": self.port, "user": getpass.getuser(),
            "identity_file": str(self.identity), "known_hosts_file": str(self.known_hosts),
            "ssh_config": "/dev/null", "model": "none",
        }
        return Target.model_validate({k: v for k, v in {**values, **changes}.items() if v is not None})

    def children(self) -> list[int]:
        """The processes that serve the open connections."""
        try:
            listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        except (FileNotFoundError, ProcessLookupError):  # a test has ended it
            return []
        return [int(pid) for pid in listed.split()]

    def drop_connections(self, signal_: signal.Signals = signal.SIGKILL) -> None:
        """Signal the processes that serve connections, and (under privilege separation) their children's ends."""
        for pid in self.children():
            for one in (*descendants(pid, "sshd"), pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal_)

    def bury(self) -> None:
        """No SSH any more, for good."""
        self.process.send_signal(signal.SIGSTOP)  # it takes nobody in while its connections end
        self.drop_connections()
        self.process.kill()


StartSshd = Callable[..., Sshd]


@pytest.fixture(scope="session")
def start_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartSshd]:
    """Start an sshd with further `-o` options. Skips, and says so, where there is no sshd."""
    if SSHD is None:
        pytest.skip("no sshd on this machine: apt-get install openssh-server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with contextlib.ExitStack() as running:

        def start(*options: str, sftp: bool = True) -> Sshd:
            assert SSHD is not None
            folder = tmp_path_factory.mktemp("sshd")
            for key in ("host_key", "user_key"):
                make_key(folder / key)
            shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
            port = free_port()
            all_ = [
                f"ListenAddress=127.0.0.1:{port}", f"PidFile={folder}/pid",
                f"AuthorizedKeysFile={folder}/authorized_keys",
                "StrictModes=no", "UsePAM=no", "PasswordAuthentication=no", "KbdInteractiveAuthentication=no",
                "MaxStartups=100",
                "SetEnv=SHLVL=2",  # makes bash pass over ~/.bashrc: no test depends on who runs it
                *(["Subsystem=sftp internal-sftp"] if sftp else []), *options,
            ]
            process = subprocess.Popen(
                [SSHD, "-D", "-f", "/dev/null", "-h", str(folder / "host_key"), "-E", str(folder / "log"),
                 *(part for option in all_ for part in ("-o", option))],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            sshd = Sshd(folder, port, process)
            running.callback(_stop, sshd)
            sshd.known_hosts.write_text(f"[127.0.0.1]:{port} {sshd.host_key}\n")
            until(lambda: _listens(port), "sshd listens", lambda: (folder / "log").read_text())
            return sshd

        yield start


@pytest.fixture(scope="session")
def sshd(start_sshd: StartSshd) -> Sshd:
    """The sshd that most tests share. Whoever breaks it starts one of their own."""
    return start_sshd()


@pytest.fixture(scope="session")
def ssh_host(sshd: Sshd) -> Iterator[SshHost]:
    with SshHost(sshd.target(), deadline=Deadline.after(20)) as host:
        yield host


@pytest.fixture(params=["local", pytest.param("ssh", marks=pytest.mark.sshd)])
def host(request: pytest.FixtureRequest) -> Host:
    """Each kind of host in turn: what a test says of it holds for all."""
    if request.param == "local":
        return LocalHost()
    found: Host = request.getfixturevalue("ssh_host")
    return found


@pytest.fixture
def unused_port() -> int:
    return free_port()


def make_key(path: Path, kind: str = "ed25519") -> None:
    size = ["-b", "2048"] if kind == "rsa" else []
    subprocess.run(["ssh-keygen", "-q", "-t", kind, *size, "-N", "", "-f", str(path)], check=True)


def until(holds: Callable[[], bool], what: str, more: Callable[[], str] = str, within_s: float = 10.0) -> None:
    """Wait for `holds()`; fail, saying what was waited for."""
    deadline = Deadline.after(within_s)
    while not holds():
        if deadline.passed:
            pytest.fail(f"not within {within_s} s: {what} {more()}")
        pause(0.01, deadline)


def is_running(pid: int) -> bool:
    """Is there such a process, other than as a zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _stop(sshd: Sshd) -> None:
    sshd.drop_connections(signal.SIGCONT)
    sshd.drop_connections()
    sshd.process.kill()
    sshd.process.wait()


def descendants(pid: int, name: str | None = None) -> list[int]:
    """Children, and theirs; only those called `name`, when one is given."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    found = []
    for child in map(int, listed):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if name in (None, Path(f"/proc/{child}/comm").read_text().strip()):
                found += [child, *descendants(child, name)]
    return found
