"""One Prefect server for all tests of this folder that run the flow, and simulated hosts of each test's own."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deployments.serve import environment, serving
from settings.source import SETTINGS_DIR
from tasks.deadline import Deadline, pause
from tasks.store import newest_run
from tests.ports import free_port
from tests.tasks.conftest import sshd, start_sshd

__all__ = ["BRINGUP", "STAGES", "Machine", "healthy", "rehearsal_target", "sshd", "start_sshd", "wait_for"]

BRINGUP = Path(sys.executable).with_name("bringup")
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

    def is_free(self, target: str = "rehearsal") -> bool:
        said = self.bringup("status", "--target", target, "--json")
        return bool(json.loads(said.stdout)["held"] is False)


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
