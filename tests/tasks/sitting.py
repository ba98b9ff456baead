"""One sitting on this machine without Prefect: a session, and small programs under the real supervisor as servers.

A plugin of the test modules that name it.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from settings.inputs import load_inputs
from settings.words import AttemptOutcome, Phase
from tasks import stages
from tasks.deadline import Deadline
from tasks.faults import StageReport
from tasks.local_host import LocalHost
from tasks.pure.plan import LaunchPlan
from tasks.pure.redact import Redactor
from tasks.session import Server, Session
from tasks.store import RunFolder
from tasks.supervisor import Acquired, Supervisor
from tests.ports import free_port

__all__ = ["SERVES", "STARTED", "WAITS", "found", "launched", "session"]

STARTED = """
print("[2026-01-01 00:00:01] server_args={}", flush=True)
print("[2026-01-01 00:00:02] Load weight begin. avail mem=79.10 GB", flush=True)
print("[2026-01-01 00:00:03] Load weight end. elapsed=1 s, type=X, avail mem=70 GB, mem usage=9 GB.", flush=True)
print("[2026-01-01 00:00:04] Memory pool end. avail mem=9 GB", flush=True)
print("[2026-01-01 00:00:04] max_total_num_tokens=8192, chunked_prefill_size=4096, context_len=2048", flush=True)
print("[2026-01-01 00:00:05] INFO:     Uvicorn running on http://127.0.0.1:PORT (Press CTRL+C to quit)", flush=True)
"""
SERVES = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"{}")
    def do_POST(self):
        self.do_GET()
    def log_message(self, *_):
        pass
HTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
"""
WAITS = "import time; time.sleep(600)"
@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    quiet_s = json.dumps(dict.fromkeys(Phase, 1.0))
    for name, value in {"POLL_S": "0.1", "DOOM_GRACE_S": "0.5", "QUIET_S": quiet_s}.items():
        monkeypatch.setenv(f"BRINGUP_RUN__{name}", value)
    inputs = load_inputs("rehearsal", "glm5-sm120", state_dir=str(tmp_path / "state"), gpus=0)
    host = LocalHost("here")
    supervisor = Supervisor(
        host, state_dir=inputs.target.state_dir, python=sys.executable, run_id="r", owner="me", lease_s=60
    )
    assert isinstance(supervisor.acquire(deadline=Deadline.after(20)), Acquired)
    yield Session(
        target=inputs.target, ladder=inputs.ladder, engine=inputs.engine, catalogue=inputs.catalogue,
        milestones=inputs.milestones, warmup_suite=inputs.warmup, decode_suite=inputs.decode,
        recheck_suite=inputs.recheck, load_test=inputs.load_test, profiles=inputs.profiles,
        settings=inputs.settings,
        folder=RunFolder(tmp_path, "r", Redactor()), host=host, supervisor=supervisor, deadline=Deadline.after(120),
        show=lambda _: None, new_build=False,
    )  # fmt: skip
    supervisor.release(deadline=Deadline.after(30))


def launched(session: Session, *program: str) -> Server:
    port = free_port()
    argv = (sys.executable, "-c", "".join(program).replace("PORT", str(port)))
    report = stages.launch(session, 1, "auto", "a1", LaunchPlan(argv, {}, port, {}, {}))
    assert report.server is not None
    return report.server


def found(report: StageReport) -> tuple[AttemptOutcome, str | None]:
    return report.outcome, report.diagnosis.kind if report.diagnosis else None
