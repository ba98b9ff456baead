"""A real server, a real worker and the real command line: what a person does, and what the run page then shows.

One server for the whole module (10 s to start). The host is the rehearsal's: this machine, with stories of our own.
"""

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from deployments.child import children
from deployments.serve import environment, serving
from deployments.worker import POOL, working
from settings.source import SETTINGS_DIR
from settings.words import AttemptOutcome, RunOutcome
from tasks.deadline import Deadline, pause
from tasks.pure.record import RunRecord
from tasks.store import newest_run, read_record
from tests.flows.conftest import STAGES, healthy
from tests.ports import free_port

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(420)]

ROOT = SETTINGS_DIR.parent
PREFECT = Path(sys.executable).with_name("prefect")
LEASE_S = 5.0
ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}

# Each stage of a run, one of them in the ordinary suite.
EACH_STAGE = [pytest.param(name, marks=() if name == "ready" else pytest.mark.chaos) for name in STAGES]


SERVES_AT_ONCE = """
why     = "all is well"
release = "0.5.9"
speed   = 16.0

[expect]
outcome = "serving"
trail   = [{ rung = "auto", outcome = "passed" }]
"""

DIES_WHILE_LOADING = """
[[fault]]
why  = "and then it is not"
at   = "load"
does = "die"
"""


@dataclass(frozen=True)
class Prefect:
    """A running server with one worker, and what the tests ask of it."""

    env: dict[str, str]
    worker: subprocess.Popen[bytes]
    home: Path

    def cli(self, *words: str) -> str:
        """`prefect <words>` as typed in the checkout with .venv active."""
        ran = subprocess.run(
            [PREFECT, *words], cwd=ROOT, env=self.env, capture_output=True, text=True, check=False, timeout=120
        )
        assert 0 == ran.returncode, ran.stdout + ran.stderr
        return ran.stdout

    def ask(self, path: str, **body: Any) -> Any:
        return httpx.post(f"{self.env['PREFECT_API_URL']}{path}", json=body, timeout=30.0).raise_for_status().json()

    def runs(self) -> list[dict[str, Any]]:
        """Runs that somebody asked for, the newest first; the nightly's scheduled ones and subflows are none."""
        wanted = {"tags": {"all_": ["asked"]}}
        return list(self.ask("/flow_runs/filter", flow_runs=wanted, sort="EXPECTED_START_TIME_DESC"))

    def submit(self, deployment: str, host: "Rehearsed") -> str:
        """The id of a new run."""
        given = ["-p", f"target={host.target}", "-p", f"runs={host.runs}", "--tag", "asked"]
        self.cli("deployment", "run", deployment, *given)
        return str(self.runs()[0]["id"])

    def state(self, run_id: str) -> tuple[str, str]:
        run = httpx.get(f"{self.env['PREFECT_API_URL']}/flow_runs/{run_id}", timeout=30.0).raise_for_status().json()
        return run["state"]["type"], run["state"]["name"]

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

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def target(self) -> Path:
        return self.folder / "gpu-host.toml"

    def written(self) -> "Rehearsed":
        shipped = tomllib.loads((SETTINGS_DIR / "targets/rehearsal.toml").read_text())
        here = str(SETTINGS_DIR / "targets")
        env = {**shipped.pop("env"), "REHEARSAL_STORY": str(self.story)}
        values = {**shipped, "python": sys.executable, "state_dir": str(self.folder / "state"), "lease_s": LEASE_S}
        lines = [f"{k} = {_toml(v, here)}" for k, v in values.items()]
        lines += ["[env]", *(f"{k} = {_toml(v, here)}" for k, v in env.items())]
        self.target.write_text("\n".join(lines))
        return self

    def left(self) -> list[str]:
        """What of ours is on this host: a process with the mark of its state folder, a lock that is held."""
        mark = f"BRINGUP_STATE={self.folder / 'state'}".encode()
        processes = [pid.name for pid in Path("/proc").glob("[0-9]*") if mark in _environ(pid)]
        return processes + [str(lock) for lock in (self.folder / "state").glob("lock")]

    def record(self) -> RunRecord:
        return read_record(newest_run(self.runs))

    def events(self) -> str:
        return "".join(path.read_text() for path in self.runs.glob("*/events.jsonl"))


def test_the_literal_command_brings_the_model_up(prefect: Prefect, tmp_path: Path) -> None:
    host = Rehearsed(tmp_path, SETTINGS_DIR / "rehearsals/founding.toml").written()
    run_id = prefect.submit("glm5-bringup", host)
    _until(lambda: prefect.state(run_id)[0] in ENDED, within_s=180)

    assert ("COMPLETED", "Serving") == prefect.state(run_id)
    steps = prefect.steps(run_id)
    branch = {
        "1-auto (flashmla_auto/flashmla_kv)": "NaN", "3-flashmla-sparse (flashmla_sparse)": "NaN",
        "4-trtllm (trtllm)": "NaN", "5-bf16-kv (flashmla_sparse)": "Passed",
    }  # fmt: skip
    assert branch == {name: steps.get(name) for name in branch}
    assert ("Passed", "NaN") == (steps["trtllm: ready"], steps["trtllm: decode"])
    tables = prefect.ask("/artifacts/filter", artifacts={"key": {"any_": ["branch-taken"]}})
    assert [run_id] == [table["flow_run_id"] for table in tables]
    record = host.record()
    assert (RunOutcome.SERVING, 5) == (record.outcome, record.winner)
    assert [] == host.left()


@pytest.mark.parametrize("stage", EACH_STAGE)
def test_a_cancelled_run_leaves_the_host_empty(prefect: Prefect, tmp_path: Path, stage: str) -> None:
    run_id, host = _in_the_middle(prefect, tmp_path, stage, slower=20)  # a worker asks every 10 s who is cancelled
    prefect.cli("flow-run", "cancel", run_id)
    _until(lambda: prefect.state(run_id)[0] in ENDED)
    assert ("CANCELLED", "Cancelled") == prefect.state(run_id)
    _until(lambda: not host.left(), within_s=LEASE_S + 60)
    record = host.record()
    assert RunOutcome.CANCELLED is record.outcome
    _is_true(record)


@pytest.mark.parametrize("stage", EACH_STAGE)
def test_a_killed_flow_leaves_the_host_empty(prefect: Prefect, tmp_path: Path, stage: str) -> None:
    run_id, host = _in_the_middle(prefect, tmp_path, stage)
    for pid in children(prefect.worker.pid):
        os.kill(pid, signal.SIGKILL)
    _until(lambda: prefect.state(run_id)[0] in ENDED)
    assert ("CRASHED", "Crashed") == prefect.state(run_id)
    _until(lambda: not host.left(), within_s=LEASE_S + 60)
    record = host.record()
    assert RunOutcome.RUNNING is record.outcome   # in a file: a killed run
    _is_true(record)


def test_a_rerun_of_a_killed_flow_goes_on_with_its_run(prefect: Prefect, tmp_path: Path) -> None:
    run_id, host = _in_the_middle(prefect, tmp_path, "ready")
    for pid in children(prefect.worker.pid):
        os.kill(pid, signal.SIGKILL)
    # The worker hears of it seconds later, from the process between; what is retried before would be told as crashed.
    _until(lambda: prefect.state(run_id)[0] in ENDED and not children(prefect.worker.pid) and not host.left())
    host.story.write_text(healthy())
    prefect.ask(f"/flow_runs/{run_id}/set_state", state={"type": "SCHEDULED", "name": "AwaitingRetry"}, force=True)
    _until(lambda: prefect.state(run_id)[0] in ENDED, within_s=180)
    assert ("COMPLETED", "Serving") == prefect.state(run_id)
    assert 1 == len(list(host.runs.iterdir()))
    record = host.record()
    assert [("auto", "aborted"), ("auto", "passed")] == [(a.rung, a.outcome.value) for a in record.attempts]
    assert 1 == len(record.resumed_at)


def test_people_are_told_what_since_when_and_what_to_do(prefect: Prefect, tmp_path: Path) -> None:
    story = tmp_path / "story.toml"
    story.write_text(SERVES_AT_ONCE)
    host = Rehearsed(tmp_path, story).written()
    with _receiver() as (url, heard):
        env = {**prefect.env, "BRINGUP_NOTIFY_URL": url}
        told = subprocess.run(
            [sys.executable, "-m", "deployments.notify"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
        )
        assert 0 == told.returncode, told.stderr
        first = prefect.submit("glm5-bringup/glm5-bringup", host)
        _until(lambda: prefect.state(first)[0] in ENDED, within_s=120)
        good = host.record()
        story.write_text(SERVES_AT_ONCE + DIES_WHILE_LOADING)
        second = prefect.submit("glm5-bringup/glm5-bringup", host)
        _until(lambda: prefect.state(second)[0] in ENDED, within_s=120)
        _until(lambda: bool(heard))
    # That it served at first is no news.
    assert [("bringup.regressed", "gpu-host")] == [(h["event"], h["target"]) for h in heard]
    assert good.run_id in heard[0]["text"]
    assert "To do: " in heard[0]["text"]


@contextmanager
def _receiver() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """An HTTP server on loopback, and the JSON that was posted to it."""
    heard: list[dict[str, str]] = []

    class Post(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            heard.append(json.loads(body) if isinstance(body, str) else body)
            self.send_response(200)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Post) as receiver:
        Thread(target=receiver.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{receiver.server_port}/", heard
        receiver.shutdown()


@pytest.mark.chaos
@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_told_to_stop_ends_its_run_and_leaves_the_host_empty(
    apart: Prefect, tmp_path: Path, stage: str
) -> None:
    run_id, host = _in_the_middle(apart, tmp_path, stage, slower=5)
    apart.worker.send_signal(signal.SIGTERM)
    apart.worker.wait(60)
    _until(lambda: not host.left(), within_s=LEASE_S + 60)
    record = host.record()
    assert RunOutcome.CANCELLED is record.outcome
    _is_true(record)
    assert apart.state(run_id)[0] in ENDED


@pytest.mark.chaos
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_worker_leaves_a_run_that_ends_by_itself(apart: Prefect, tmp_path: Path, stage: str) -> None:
    run_id, host = _in_the_middle(apart, tmp_path, stage)
    for pid in (*children(apart.worker.pid), apart.worker.pid):
        os.kill(pid, signal.SIGKILL)
    apart.worker.wait(10)
    _until(lambda: apart.state(run_id)[0] in ENDED, within_s=240)
    assert ("COMPLETED", "Serving") == apart.state(run_id)
    assert RunOutcome.SERVING is host.record().outcome
    _until(lambda: not host.left(), within_s=LEASE_S + 60)


@pytest.mark.chaos
@pytest.mark.parametrize("stage", STAGES)
def test_a_server_that_is_away_in_mid_run_costs_the_run_nothing(apart: Prefect, tmp_path: Path, stage: str) -> None:
    run_id, host = _in_the_middle(apart, tmp_path, stage)
    port = httpx.URL(apart.env["PREFECT_API_URL"]).port
    server = next(p for p in _processes() if f"--port\0{port}\0".encode() in p[1] and b"server\0start" in p[1])
    os.killpg(server[0], signal.SIGKILL)
    with serving(apart.env):
        _until(lambda: apart.state(run_id)[0] in ENDED, within_s=240)
        assert ("COMPLETED", "Serving") == apart.state(run_id)
    record = host.record()
    assert (RunOutcome.SERVING, ["passed"]) == (record.outcome, [a.outcome.value for a in record.attempts])
    _until(lambda: not host.left(), within_s=LEASE_S + 60)


@pytest.fixture
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefect]:
    """Server and worker of one test alone: it breaks them. The worker is the launcher that systemd runs."""
    home = tmp_path_factory.mktemp("prefect")
    env = environment(_own(home), free_port())
    with serving(env):
        worker = subprocess.Popen([sys.executable, "-m", "deployments.worker"], env=env, cwd=ROOT)
        try:
            yield _deployed(Prefect(env, worker, home))
        finally:
            if worker.poll() is None:
                worker.terminate()
                worker.wait(60)


def _in_the_middle(prefect: Prefect, folder: Path, stage: str, slower: float = 1.0) -> tuple[str, Rehearsed]:
    """A run in the middle of that stage."""
    story = folder / "story.toml"
    story.write_text(healthy(stage, slower=slower))
    host = Rehearsed(folder, story).written()
    run_id = prefect.submit("glm5-bringup/glm5-bringup", host)
    _until(lambda: f'"stage": "{stage}"' in host.events(), every_s=0.05)
    return run_id, host


def _is_true(record: RunRecord) -> None:
    """Nothing that was done to the run stands there as a rung's failure."""
    assert {a.outcome for a in record.attempts} <= {AttemptOutcome.ABORTED, AttemptOutcome.PASSED}
    assert [None for _ in record.attempts] == [a.move for a in record.attempts]


def _processes() -> Iterator[tuple[int, bytes]]:
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield int(path.name), (path / "cmdline").read_bytes()


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefect]:
    """Server and worker with a home of their own, and both deployments."""
    home = tmp_path_factory.mktemp("prefect")
    env = environment(_own(home), free_port())
    with serving(env), working(env) as worker:
        yield _deployed(Prefect(env, worker, home))


def _own(home: Path) -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "BRINGUP_"))}
    ours = {"BRINGUP_CHECKOUT": str(ROOT), "BRINGUP_RUN__POLL_S": "0.2", "BRINGUP_RUN__API_PORT": str(free_port())}
    return own | ours | {"PREFECT_HOME": str(home)}


def _deployed(prefect: Prefect) -> Prefect:
    """Both deployments, once the worker has made its pool."""
    _until(lambda: httpx.get(f"{prefect.env['PREFECT_API_URL']}/work_pools/{POOL}", timeout=30.0).is_success)
    prefect.cli("--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
    return prefect


def _toml(value: object, here: str) -> str:
    return f'"{value.replace("{here}", here)}"' if isinstance(value, str) else str(value)


def _environ(pid: Path) -> bytes:
    with suppress(OSError):
        return (pid / "environ").read_bytes()
    return b""


def _until(true: Callable[[], bool], within_s: float = 90.0, every_s: float = 0.3) -> None:
    deadline = Deadline.after(within_s)
    while not true():
        assert not deadline.passed, f"not true within {within_s:.0f} s"
        pause(every_s, deadline)
