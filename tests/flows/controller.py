"""A controller as people have it: a Prefect server, workers, the command line, and simulated hosts to work on."""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from deployments.child import children
from deployments.serve import environment, serving
from deployments.worker import working
from settings.source import SETTINGS_DIR
from tasks.deadline import Deadline, pause
from tasks.pure.record import RunRecord
from tasks.store import newest_run, read_record
from tests.flows.conftest import rehearsal_target, what_is_held
from tests.ports import free_port

__all__ = [
    "ENDED", "LEASE_S", "ROOT", "Footprint", "Prefect", "Rehearsed", "controller", "deployed", "fleet", "own", "until",
]  # fmt: skip

ROOT = SETTINGS_DIR.parent
LEASE_S = 5.0
ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}

_PREFECT = Path(sys.executable).with_name("prefect")


@dataclass(frozen=True)
class Prefect:
    """A running server with one worker, and what the tests ask of it."""

    env: dict[str, str]
    worker: subprocess.Popen[bytes]
    home: Path

    def cli(self, *words: str) -> str:
        """`prefect <words>` as typed in the checkout with .venv active."""
        ran = subprocess.run(
            [_PREFECT, *words], cwd=ROOT, env=self.env, capture_output=True, text=True, check=False, timeout=120
        )
        assert 0 == ran.returncode, ran.stdout + ran.stderr
        return ran.stdout

    def ask(self, path: str, **body: Any) -> Any:
        return self._http("POST", path, body)

    def _http(self, method: str, path: str, body: object = None) -> Any:
        user, _, password = self.env.get("PREFECT_API_AUTH_STRING", "").partition(":")
        auth = (user, password) if user else None
        url = f"{self.env['PREFECT_API_URL']}{path}"
        return httpx.request(method, url, json=body, auth=auth, timeout=30.0).raise_for_status().json()

    def runs(self) -> list[dict[str, Any]]:
        """Runs that somebody asked for, the newest first; the nightly's scheduled ones and subflows are none."""
        wanted = {"tags": {"all_": ["asked"]}}
        return list(self.ask("/flow_runs/filter", flow_runs=wanted, sort="EXPECTED_START_TIME_DESC"))

    def page(self, path: str) -> str:
        """Where a page of the UI is."""
        return f"{self.env['PREFECT_API_URL'].removesuffix('/api')}{path}"

    def deployment(self, name: str) -> str:
        """Its id."""
        return str(self.ask("/deployments/filter", deployments={"name": {"any_": [name]}})[0]["id"])

    def submit(self, deployment: str, host: "Rehearsed") -> str:
        """The id of a new run."""
        return self.run(deployment, target=str(host.target), runs=str(host.runs))

    def run(self, deployment: str, **parameters: object) -> str:
        """The id of a new run with these parameters."""
        self.cli("deployment", "run", deployment, "--params", json.dumps(parameters), "--tag", "asked")
        return str(self.runs()[0]["id"])

    def state(self, run_id: str) -> tuple[str, str]:
        run = self._http("GET", f"/flow_runs/{run_id}")
        return run["state"]["type"], run["state"]["name"]

    def table(self, key: str, run_id: str) -> list[dict[str, Any]]:
        """The newest table of that name that a run drew."""
        wanted = {"key": {"any_": [key]}, "flow_run_id": {"any_": [run_id]}}
        found = self.ask("/artifacts/filter", artifacts=wanted, sort="CREATED_DESC")
        return list(json.loads(found[0]["data"])) if found else []

    def steps(self, run_id: str) -> dict[str, str]:
        """Name → state name of the attempts of a run and of every step in them."""
        attempts = self.ask("/flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [run_id]}})
        ids = [run_id, *(a["id"] for a in attempts)]
        tasks = self.ask("/task_runs/filter", task_runs={"flow_run_id": {"any_": ids}}, limit=200)
        return {run["name"]: run["state"]["name"] for run in [*tasks, *attempts] if run["state"]}


@dataclass(frozen=True)
class Rehearsed:
    """A simulated host of one test: its target file, its story, and where its runs are stored."""

    folder: Path
    story: Path
    name: str = "gpu-host"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def target(self) -> Path:
        return self.folder / f"{self.name}.toml"

    def written(self, *, lease_s: float = LEASE_S) -> "Rehearsed":
        self.folder.mkdir(exist_ok=True)
        state = str(self.folder / "state")
        fields: dict[str, object] = {"state_dir": state, "lease_s": lease_s, "api_port": free_port()}
        rehearsal_target(self.target, self.story, str(self.folder), **fields)
        return self

    def left(self) -> list[str]:
        """What of ours is on this host: a process with the mark of its state folder, a lock, its port, GPU memory."""
        mark = f"BRINGUP_STATE={self.folder / 'state'}".encode()
        processes = [f"pid {pid.name}" for pid in Path("/proc").glob("[0-9]*") if mark in _environ(pid)]
        locks = [str(lock) for lock in (self.folder / "state").glob("lock")]
        port = tomllib.loads(self.target.read_text())["api_port"]
        return processes + locks or what_is_held(port, str(self.folder))

    def events(self) -> str:
        return "".join(path.read_text() for path in self.runs.glob("*/events.jsonl"))

    def record(self) -> RunRecord:
        return read_record(newest_run(self.runs))


@dataclass
class Footprint:
    """What a fleet took on the controller: peak resident memory in MB, by process."""

    workers: dict[int, float] = field(default_factory=dict)
    flows: dict[int, dict[int, float]] = field(default_factory=dict)  # by worker
    at_once: int = 0

    def look(self, workers: Iterable[int]) -> None:
        now = 0
        for worker in workers:
            self.workers[worker] = max(self.workers.get(worker, 0.0), _rss_mb(worker))
            for flow in children(worker):
                of_worker = self.flows.setdefault(worker, {})
                of_worker[flow] = max(of_worker.get(flow, 0.0), _rss_mb(flow))
                now += 1
        self.at_once = max(self.at_once, now)


def _rss_mb(pid: int) -> float:
    with suppress(OSError):
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) / 1000 if found else 0.0
    return 0.0


@contextmanager
def controller(
    home: Path, workers: int, *, database: str | None = None, limit: int | None = None
) -> Iterator[tuple[Prefect, list[int]]]:
    """A server and some workers, as systemd runs them; and the processes of the workers themselves.

    `limit`: runs at once of each.
    """
    env = environment(own(home), free_port(), database)
    with ExitStack() as stack:
        stack.enter_context(serving(env))
        begun = [stack.enter_context(working(env, limit)) for _ in range(workers)]
        yield deployed(Prefect(env, begun[0], home)), [worker.pid for worker in begun]


def fleet(prefect: Prefect, workers: Iterable[int], *words: str) -> tuple[subprocess.CompletedProcess[str], Footprint]:
    """`bringup fleet <words>` from its beginning to its end, and what it took."""
    took, workers = Footprint(), list(workers)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        argv = [sys.executable, "-c", "from flows.cli import main; main()", "fleet", *words]
        ran = subprocess.Popen(argv, cwd=ROOT, env=prefect.env, stdout=out, stderr=err)
        deadline = Deadline.after(900)
        while ran.poll() is None and not deadline.passed:
            took.look(workers)
            pause(0.5, deadline)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(argv, ran.returncode, out.read(), err.read()), took


def own(home: Path) -> dict[str, str]:
    """Our environment, without what would lead to somebody's own server or settings."""
    rest = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "BRINGUP_"))}
    ours = {"BRINGUP_CHECKOUT": str(ROOT), "BRINGUP_RUN__POLL_S": "0.2"}
    return rest | ours | {"PREFECT_HOME": str(home)}


def deployed(prefect: Prefect) -> Prefect:
    """All deployments, once the worker has made its pool."""
    until(lambda: prefect.ask("/work_pools/filter"))
    prefect.cli("--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
    return prefect


def _environ(pid: Path) -> bytes:
    with suppress(OSError):
        return (pid / "environ").read_bytes()
    return b""


def until(true: Callable[[], object], within_s: float = 90.0, every_s: float = 0.3) -> None:
    """Poll until it holds. Fails when it does not within that time."""
    deadline = Deadline.after(within_s)
    while not true():
        assert not deadline.passed, f"not true within {within_s:.0f} s"
        pause(every_s, deadline)
