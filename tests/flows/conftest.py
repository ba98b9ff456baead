"""One Prefect server for all tests of this folder that run the flow, and simulated hosts of each test's own."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import tasks.rehearsal
from deployments.serve import environment, serving
from settings.source import SETTINGS_DIR
from tasks.deadline import Deadline, pause
from tasks.store import newest_run
from tests.ports import free_port
from tests.tasks.conftest import Sshd, sshd, start_sshd

__all__ = [
    "BRINGUP", "STAGES", "Machine", "empty_by", "fill", "healthy", "make_room", "over_ssh", "rehearsal_target",
    "small_disk", "sshd", "start_sshd", "wait_for", "what_is_held",
]  # fmt: skip

BRINGUP = Path(sys.executable).with_name("bringup")
_NVIDIA_SMI = Path(tasks.rehearsal.__file__).parent / "bin/nvidia-smi"
_IDLE_MIB = 100
HEALTHY = """
why     = "a healthy server, slow enough that there is a middle of a stage to strike in"
release = "0.5.9"
speed   = 1.0
[pace]
import_s  = 0.2
init_s    = 0.2
load_s    = {load_s}
capture_s = 0.2
warmup_s  = 0.2
token_s   = {token_s}
drain_s   = {drain_s}
[expect]
outcome = "serving"
trail   = [{{ rung = "auto", outcome = "passed" }}]
"""
# What makes a stage of ours last some seconds. Preflight and launch have only the time that their calls take.
STAGES = {
    "preflight": {"load_s": 5.0}, "launch": {"load_s": 5.0}, "ready": {"load_s": 20.0}, "warmup": {"token_s": 0.1},
    "decode": {"token_s": 0.05}, "bench": {"token_s": 0.05}, "recheck": {"token_s": 0.05}, "stop": {"drain_s": 5.0},
}  # fmt: skip


def healthy(stage: str | None = None, *, slower: float = 1.0) -> str:
    """The story of a server without a fault, slow in that stage."""
    slow = {name: seconds * slower for name, seconds in STAGES.get(stage or "", {}).items()}
    return HEALTHY.format(**{"load_s": 0.5, "token_s": 0.002, "drain_s": 0.1} | slow)


@dataclass(frozen=True)
class Machine:
    """A simulated host: its state folder, its port, and the environment in which `bringup` finds both."""

    folder: Path
    env: dict[str, str]

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def port(self) -> int:
        return int(self.env["BRINGUP_RUN__API_PORT"])

    def bringup(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([BRINGUP, *words], env=self.env, capture_output=True, text=True, check=False, timeout=200)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """The same, not waited for; in a session of its own."""
        return subprocess.Popen(
            ["env", "--default-signal", BRINGUP, *words],  # under nohup, or begun with `&`, we may ignore some
            env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def newest(self) -> Path:
        return newest_run(self.runs)

    def until_event(self, event: str, within_s: float = 90) -> None:
        """Until a run on this machine has written the event. Looks often: whoever waits wants to strike at once."""

        def written() -> bool:
            return any(event in path.read_text() for path in self.runs.glob("*/events.jsonl"))

        wait_for(written, within_s, f"the event {event}", every_s=0.02)

    def processes(self) -> list[int]:
        """Processes that carry the mark of this machine's attempts."""
        mark, found = f"BRINGUP_STATE={self.state}".encode(), []
        for pid in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (pid / "environ").read_bytes():
                    found.append(int(pid.name))
            except OSError:
                continue
        return found

    def left(self, *, lock: bool = True) -> list[str]:
        """What of ours is on this host, in words; without its lock, where that may stay."""
        locks = [str(path) for path in self.state.glob("lock")] if lock else []
        return [f"pid {pid}" for pid in self.processes()] + locks or what_is_held(self.port, str(self.folder))

    def is_free(self, target: str = "rehearsal") -> bool:
        said = self.bringup("status", "--target", target, "--json")
        return bool(json.loads(said.stdout)["held"] is False)


def what_is_held(port: int, host: str) -> list[str]:
    """The server's port and the memory of the simulated host's GPUs, where something has them."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held = [f"port {port}"] if probe.connect_ex(("127.0.0.1", port)) == 0 else []
    smi = [sys.executable, str(_NVIDIA_SMI), "--query-gpu=index,memory.used", "--format=csv,noheader,nounits"]
    told = subprocess.run(smi, env={"REHEARSAL_HOST": host}, capture_output=True, text=True, check=True).stdout
    used = dict(row.split(", ") for row in told.splitlines())
    return held + [f"{mib} MiB of GPU {gpu}" for gpu, mib in used.items() if int(mib) > _IDLE_MIB]


def empty_by(deadline: Deadline, left: Callable[[], list[str]]) -> None:
    """Poll until nothing is left. Fails, and says what is."""
    while still := left():
        assert not deadline.passed, f"left on the host: {still}"
        pause(0.2, deadline)


def wait_for(true: Callable[[], object], within_s: float, what: str, *, every_s: float = 0.2) -> None:
    """Poll until it holds. Fails, and says what was waited for."""
    deadline = Deadline.after(within_s)
    while not true():
        assert not deadline.passed, f"not within {within_s:.0f} s: {what}"
        pause(every_s, deadline)


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a Prefect server that runs for the session."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "BRINGUP_"))}
    env = environment(own | {"PREFECT_HOME": str(tmp_path_factory.mktemp("prefect"))}, free_port())
    with serving(env):
        yield env


@pytest.fixture
def machine(prefect_server: dict[str, str], tmp_path: Path) -> Machine:
    return Machine(
        tmp_path,
        {
            **prefect_server,
            "BRINGUP_HOME": str(tmp_path),
            "BRINGUP_TARGET__STATE_DIR": str(tmp_path / "state"),
            "BRINGUP_RUN__API_PORT": str(free_port()),
            "BRINGUP_RUN__POLL_S": "0.2",
            # With its parent: another worker of xdist uses the same name.
            "BRINGUP_TARGET__ENV__REHEARSAL_HOST": str(tmp_path),
        },
    )


def over_ssh(sshd: Sshd) -> dict[str, object]:
    """Fields of a target that reaches the simulated host through `sshd`."""
    return {
        "host": "127.0.0.1", "port": sshd.port, "identity_file": str(sshd.identity),
        "known_hosts_file": str(sshd.known_hosts), "ssh_config": "/dev/null",
    }  # fmt: skip


@contextmanager
def small_disk(machine: Machine, which: str) -> Iterator[None]:
    """A disk of its own for "runs" or "state", large until it is filled. Skips where we may not mount one."""
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


def fill(folder: Path) -> None:
    """Leave no byte of that disk."""
    size = shutil.disk_usage(folder).used + 2**21
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)
    with suppress(OSError), (folder / "ballast").open("wb", buffering=0) as f:
        while f.write(b"x" * 4096):
            pass


def make_room(folder: Path) -> None:
    (folder / "ballast").unlink()
    subprocess.run(["mount", "-o", "remount,size=4g", str(folder)], check=True)


def rehearsal_target(path: Path, story: Path, host: str | None = None, /, **fields: object) -> Path:
    """A target file like the shipped rehearsal's, with other fields: a real host, as far as anybody can tell."""
    here = str(SETTINGS_DIR / "targets")
    shipped = tomllib.loads((SETTINGS_DIR / "targets/rehearsal.toml").read_text().replace("{here}", here))
    env = {**shipped.pop("env"), "REHEARSAL_STORY": str(story)} | ({"REHEARSAL_HOST": host} if host else {})
    values = {**shipped, "python": sys.executable, **fields}
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    lines += ["[env]", *(f"{name} = {json.dumps(value)}" for name, value in env.items())]
    path.write_text("\n".join(lines) + "\n")
    return path
