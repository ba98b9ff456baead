"""Starts simulated servers as a target would: the stand-ins on PYTHONPATH and PATH, and nothing else."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from settings.source import SETTINGS_DIR
from tasks.deadline import Deadline, pause
from tests.ports import free_port

ROOT = SETTINGS_DIR.parent
MODEL = SETTINGS_DIR / "rehearsals" / "model"


@dataclass
class Machine:
    """One simulated machine: its environment, and commands run in it."""

    env: dict[str, str]
    folder: Path

    def run(self, *argv: str, wait_s: float = 30) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            argv, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=wait_s, check=False
        )

    def python(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        return self.run(sys.executable, *argv)

    def smi(self, *argv: str) -> str:
        return self.run("nvidia-smi", *argv).stdout


@dataclass
class Server:
    """A simulated server, on its own port, in a session of its own."""

    machine: Machine
    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def call(self, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and body; status 0 when nobody answered."""
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data)
            with urllib.request.urlopen(request, timeout=10) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as e:
            return e.code, e.read()
        except OSError:
            return 0, b""

    def json(self, path: str, body: Any = None) -> Any:
        status, content = self.call(path, body)
        assert 200 == status, content
        return json.loads(content)

    def generate(self, text: str, **params: Any) -> Any:
        params = {"temperature": 0, "max_new_tokens": 12, **params}
        return self.json("/generate", {"text": text, "sampling_params": params, "return_logprob": True})

    def until(self, true: Callable[[], Any], wait_s: float = 15) -> None:
        """Wait for something. Fails with the log's end when it does not come."""
        deadline = Deadline.after(wait_s)
        while not true():
            assert not deadline.passed, self.text()[-2000:]
            pause(0.02, deadline)

    def until_ready(self) -> "Server":
        def ready() -> bool:
            assert self.process.poll() is None, self.text()[-2000:]
            return self.call("/health")[0] == 200

        self.until(ready)
        return self

    def until_ended(self, wait_s: float = 15) -> int:
        """The exit status, as a shell would show it."""
        code = self.process.wait(wait_s)
        return 128 - code if code < 0 else code

    def children(self) -> dict[int, str]:
        """Titles of the server's own processes by pid."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode() for pid in listed}


MakeMachine = Callable[[str], Machine]
Start = Callable[..., Server]


@pytest.fixture
def machine(tmp_path: Path) -> MakeMachine:
    """A simulated machine of a story: the name of a shipped one, or the text of a story file."""

    def make(story: str) -> Machine:
        path = SETTINGS_DIR / "rehearsals" / f"{story}.toml"
        if "\n" in story:
            path = tmp_path / "story.toml"
            path.write_text(story, encoding="utf-8")
        rehearsal = ROOT / "tasks" / "rehearsal"
        changed = {
            "PYTHONPATH": str(rehearsal / "site"), "PATH": f"{rehearsal / 'bin'}:{os.environ['PATH']}",
            "REHEARSAL_STORY": str(path), "REHEARSAL_HOST": str(tmp_path), "COLUMNS": "80",
        }
        return Machine({**os.environ, **changed}, tmp_path)

    return make


@pytest.fixture
def start(machine: MakeMachine, tmp_path: Path) -> Iterator[Start]:
    """Start a server of a story with further arguments; whatever is left of it is killed afterwards."""
    started: list[Server] = []

    def go(story: str, *argv: str, port: int | None = None, env: dict[str, str] | None = None) -> Server:
        here = machine(story)
        here.env |= env or {}
        port = port or free_port()
        log = tmp_path / f"{len(started)}.log"
        model = tmp_path / "model"
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text(json.dumps(small_model()), encoding="utf-8")
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "sglang.launch_server", "--model-path", str(model), "--port", str(port), *argv],
                env=here.env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )
        server = Server(here, process, port, log)
        started.append(server)
        return server

    yield go
    for server in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait()


def small_model() -> dict[str, Any]:
    """The shipped model with weights that one GPU can hold."""
    config: dict[str, Any] = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
    return {**config, "rehearsal": {"weights_gb": 8.0, "shards": 4}}
