"""A step against a real process under the real supervisor, without Prefect: what the log says counts in every step."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from settings.inputs import load_inputs
from settings.words import AttemptOutcome, Phase, Stage
from tasks import stages
from tasks.deadline import Deadline, pause
from tasks.faults import StageReport
from tasks.local_host import LocalHost
from tasks.pure.plan import LaunchPlan
from tasks.pure.redact import Redactor
from tasks.session import Server, Session
from tasks.store import RunFolder
from tasks.supervisor import Acquired, Supervisor
from tests.ports import free_port

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
SANITISED = """
print("[2026-01-01 00:00:06] NaN detected in sampler: next_token_logits; values were sanitized before sampling.",
      flush=True)
"""
WAITS = "import time; time.sleep(600)"
OUT_OF_MEMORY = """
print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has 1.00 GiB free.", flush=True)
"""


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


def test_a_launch_that_is_repeated_adopts_the_server(session: Session) -> None:
    first = launched(session, WAITS)
    again = stages.launch(session, 1, "auto", "a1", first.plan)
    assert "adopted" in again.result.reason


def test_a_server_that_serves_is_ready(session: Session) -> None:
    assert found(stages.wait_ready(session, launched(session, STARTED, SERVES))) == (AttemptOutcome.PASSED, None)


def test_nan_that_the_log_of_a_living_server_tells_outweighs_good_replies(session: Session) -> None:
    server = launched(session, STARTED, SANITISED, SERVES)
    assert found(stages.wait_ready(session, server)) == (AttemptOutcome.PASSED, None)
    report = stages.warm_up(session, server)
    assert found(report) == (AttemptOutcome.FAILED, "nan")
    assert report.diagnosis is not None
    assert (report.diagnosis.stage, report.diagnosis.evidence.line) == (Stage.WARMUP, 7)


def test_a_fault_that_is_logged_before_the_silence_is_the_cause_and_not_the_silence(session: Session) -> None:
    assert found(stages.wait_ready(session, launched(session, STARTED, OUT_OF_MEMORY, WAITS)))[1] == "oom_runtime"


def test_silence_without_a_word_is_a_hang(session: Session) -> None:
    report = stages.wait_ready(session, launched(session, STARTED, WAITS))
    assert found(report) == (AttemptOutcome.FAILED, "hang")


def test_a_server_ended_by_somebody_else_is_no_fault_of_its_rung(session: Session) -> None:
    server = launched(session, STARTED, WAITS)
    session.supervisor.ask_to_stop("a1", deadline=Deadline.after(20))
    deadline = Deadline.after(20)
    while session.supervisor.status("a1", deadline=deadline).state == "running":
        pause(0.1, deadline)
    assert found(stages.wait_ready(session, server)) == (AttemptOutcome.ABORTED, "interrupted")


def test_a_server_that_dies_without_a_word_is_unknown(session: Session) -> None:
    server = launched(session, STARTED, "raise SystemExit(3)")
    report = stages.wait_ready(session, server)
    assert found(report) == (AttemptOutcome.FAILED, "unknown")
    assert "exit 3" in report.result.reason


def test_a_warm_up_that_runs_out_of_time_does_not_pass(session: Session) -> None:
    server = launched(session, STARTED, SERVES)
    assert found(stages.wait_ready(session, server)) == (AttemptOutcome.PASSED, None)
    session.settings = session.settings.model_copy(update={"warmup_s": 0.0})
    assert found(stages.warm_up(session, server)) == (AttemptOutcome.FAILED, "hang")
