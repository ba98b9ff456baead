"""The load stage against a real process under the real supervisor, with a bench_serving that measures what it is told.

Which run follows is decided in tasks/pure/sweep.py; here it is what a run, a sample or the host's loss comes to.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from settings.load_test import LoadTest, Slo
from settings.words import AttemptOutcome, Stage, Verdict
from tasks import load, stages
from tasks.deadline import Deadline
from tasks.faults import StageReport
from tasks.host import HostLost
from tasks.pure.record import LoadFigure, LoadSummary
from tasks.session import Server, Session
from tests.tasks.pure.reply_forms import native
from tests.tasks.sitting import STARTED, found, launched, session

__all__ = ["session"]

CLIENT = """
import json, os, pathlib, sys, time
said = dict(zip(sys.argv[1::2], sys.argv[2::2]))
folder, n, at_once = pathlib.Path(os.environ["LOADS"]), int(said["--num-prompts"]), said["--max-concurrency"]
with open(folder / "runs", "a") as runs:
    runs.write(at_once + "\\n")
told = json.loads((folder / "told.json").read_text()).get(at_once, {})
if "kills" in told:
    pathlib.Path(told["kills"]).touch()
    time.sleep(60)
time.sleep(told.get("lasts", 0))
if "ends" in told:
    sys.exit(told["ends"])
text, rate, tpot = told.get("text", "sound words"), told.get("rate", 1000.0), told.get("tpot_ms", 10.0)
tokens = n * 32
record = {
    "completed": n, "total_input_tokens": n * 64, "total_output_tokens": tokens, "errors": [""] * n,
    "total_output_tokens_retokenized": tokens if text else 0, "generated_texts": [text] * n,
    "duration": tokens / rate, "output_throughput": rate, "request_throughput": n / tokens * rate,
}
for name, value in {"ttft": 20.0, "tpot": tpot, "itl": tpot, "e2e_latency": 20.0 + 31 * tpot}.items():
    record |= {f"{stat}_{name}_ms": value for stat in ("mean", "median", "p90", "p99")}
pathlib.Path(said["--output-file"]).write_text(json.dumps(record) + "\\n")
"""
# Answers /generate from a file, and dies of what its log then says when another file is there.
ANSWERS = """
import os, pathlib, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
folder = pathlib.Path("FOLDER")
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"{}")
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.answer((folder / "reply.json").read_bytes())
    def answer(self, body):
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
def die():
    while not (folder / "die").exists():
        time.sleep(0.02)
    print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.", flush=True)
    os._exit(137)
threading.Thread(target=die, daemon=True).start()
ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
"""
PARIS = native(" Paris.", [12366, 13], [-0.1, -0.2])
NAN = native("!!!!", [0] * 4, [None] * 4)


@dataclass
class Scene:
    """A server that answers, and a load generator that is told by concurrency what it finds."""

    session: Session
    server: Server
    folder: Path

    def tell(self, told: dict[int, dict[str, Any]], **test: Any) -> None:
        (self.folder / "told.json").write_text(json.dumps(told))
        values = {"why": "x", "profiles": ("smoke",), "concurrency": (8, 2), "sample_every_s": None, **test}
        self.session.load_test = LoadTest.model_validate(values)

    def bench(self) -> StageReport:
        return load.bench(self.session, self.server)

    @property
    def runs(self) -> list[int]:
        return [int(line) for line in (self.folder / "runs").read_text().split()]


@pytest.fixture
def scene(session: Session, tmp_path: Path) -> Scene:
    package = tmp_path / "site" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "bench_serving.py").write_text(CLIENT)
    (tmp_path / "reply.json").write_text(json.dumps(PARIS))
    env = {"PYTHONPATH": SecretStr(str(tmp_path / "site")), "LOADS": SecretStr(str(tmp_path))}
    session.target = session.target.model_copy(update={"env": env})
    server = launched(session, STARTED, ANSWERS.replace("FOLDER", str(tmp_path)))
    assert found(stages.wait_ready(session, server)) == (AttemptOutcome.PASSED, None)
    return Scene(session, server, tmp_path)


def test_a_sweep_goes_from_high_to_low_and_keeps_each_raw_record(scene: Scene) -> None:
    scene.tell({8: {"rate": 900}, 2: {"rate": 300}})
    report = scene.bench()
    assert (AttemptOutcome.PASSED, None) == found(report)
    assert ([8, 2], [8, 2]) == (scene.runs, [p.concurrency for p in report.bench])
    assert [900.0, 300.0] == [p.output_tokens_per_s for p in report.bench]
    for point in report.bench:
        assert point.raw is not None
        assert point.completed == json.loads((scene.session.folder.path / point.raw.path).read_text())["completed"]


def test_after_the_host_was_away_it_comes_to_the_same_figures_with_no_load_run_twice(scene: Scene) -> None:
    scene.tell({8: {"rate": 900}, 2: {"rate": 300, "lasts": 1.5}})
    look = scene.server.watch.look
    away = iter([True])

    def away_once(deadline: Deadline) -> Any:
        if len(scene.runs if (scene.folder / "runs").exists() else []) == 2 and next(away, False):
            raise HostLost("gpu-1: the connection broke")
        return look(deadline)

    scene.server.watch.look = away_once  # type: ignore[method-assign]
    with pytest.raises(HostLost):
        scene.bench()
    report = scene.bench()
    assert [900.0, 300.0] == [p.output_tokens_per_s for p in report.bench]
    assert [8, 2] == scene.runs


def test_a_client_that_fails_each_time_leaves_the_rung_unmeasured_and_passed(scene: Scene) -> None:
    scene.tell({8: {"ends": "ValueError: no tokenizer"}})
    report = scene.bench()
    assert (AttemptOutcome.PASSED, "bench_client") == found(report)
    assert "no tokenizer" in report.result.reason
    assert {8} == set(scene.runs)
    assert {False} == {p.valid for p in report.bench}


def test_empty_texts_are_for_the_recheck_to_judge_at_once(scene: Scene) -> None:
    scene.tell({8: {"text": ""}})
    report = scene.bench()
    assert (AttemptOutcome.PASSED, "bench_invalid", [8]) == (*found(report), scene.runs)
    assert "0 in the texts that came" in report.result.reason


def test_a_server_that_dies_under_load_has_the_cause_that_its_log_names(scene: Scene) -> None:
    scene.tell({8: {"rate": 900}, 2: {"kills": str(scene.folder / "die")}})
    scene.session.profiles = tuple(p.model_copy(update={"wall_s": 3.0}) for p in scene.session.profiles)
    report = scene.bench()
    assert (AttemptOutcome.FAILED, "oom_runtime") == found(report)
    assert report.diagnosis is not None
    assert Stage.BENCH is report.diagnosis.stage
    assert (True, False) == tuple(p.valid for p in report.bench)
    assert report.load is not None
    assert "the server failed" == report.load.ended


def test_a_sound_server_is_sampled_beside_the_load_and_nothing_is_found(scene: Scene) -> None:
    scene.tell({8: {"lasts": 1.0}}, sample_every_s=0.1, concurrency=(8,))
    report = scene.bench()
    assert (AttemptOutcome.PASSED, None) == found(report)
    assert report.load is not None
    assert {Verdict.OK} == {s.verdict for s in report.load.samples}
    assert {8} == {s.concurrency for s in report.load.samples}


def test_a_server_that_goes_nan_under_load_is_ended_at_once_and_the_moment_is_told(scene: Scene) -> None:
    scene.tell({8: {"rate": 900}, 2: {"lasts": 60}}, sample_every_s=0.1)
    settings = scene.session.show

    def show(progress: Any) -> None:
        if "smoke, 2 at once" in progress.text:
            (scene.folder / "reply.json").write_text(json.dumps(NAN))
        settings(progress)

    scene.session.show = show
    began = Deadline.after(45)
    report = scene.bench()
    assert not began.passed, "nobody waited for the rest of the load"
    assert (AttemptOutcome.FAILED, "nan") == found(report)
    assert "s into the load test (smoke, 2 at once)" in report.result.reason
    for id in ("a1", "a1-load-2"):
        assert "exited" == scene.session.supervisor.status(id, deadline=Deadline.after(20)).state


def test_nan_under_load_is_not_forgotten_when_the_connection_breaks_over_it(scene: Scene) -> None:
    scene.tell({8: {"lasts": 60}}, sample_every_s=0.1)
    (scene.folder / "reply.json").write_text(json.dumps(NAN))
    stop = scene.session.supervisor.stop

    def lost_over_the_load(id: str, *, deadline: Deadline) -> Any:
        if id != scene.server.id:
            raise HostLost("gpu-1: the connection broke")
        return stop(id, deadline=deadline)

    scene.session.supervisor.stop = lost_over_the_load  # type: ignore[method-assign]
    with pytest.raises(HostLost):
        scene.bench()
    scene.session.supervisor.stop = stop  # type: ignore[method-assign]
    report = scene.bench()
    assert (AttemptOutcome.FAILED, "nan") == found(report)
    assert report.load is not None
    assert [Verdict.NAN] == [s.verdict for s in report.load.samples]


@pytest.mark.parametrize(("tpot_ms", "kind", "said"), [(10.0, None, "up to 8"), (90.0, "slo_missed", "none meets")])
def test_the_slo_is_judged_and_said(scene: Scene, tpot_ms: float, kind: str | None, said: str) -> None:
    scene.tell({8: {"tpot_ms": tpot_ms}, 2: {"tpot_ms": tpot_ms}}, slo=Slo(tpot_p99_ms=50))
    report = scene.bench()
    assert (AttemptOutcome.PASSED, kind) == found(report)
    assert said in report.result.reason


def test_a_variation_that_cannot_win_is_stopped_early(scene: Scene) -> None:
    figure = LoadFigure(profile="smoke", concurrency=8, runs=1, median={"output_tokens_per_s": 2000.0})
    scene.session.rival = LoadSummary(figures=(figure,))
    scene.tell({8: {"rate": 900}})
    report = scene.bench()
    assert (AttemptOutcome.PASSED, [8]) == (report.outcome, scene.runs)
    assert report.load is not None
    assert report.load.ended.startswith("stopped early: 900 tok/s with 8 at once, the incumbent has 2000")


def test_a_run_that_is_out_of_time_stops_its_load_and_takes_no_edge(scene: Scene) -> None:
    scene.tell({8: {"lasts": 60}})
    scene.session.deadline = Deadline.after(1.5)
    report = scene.bench()
    assert (AttemptOutcome.ABORTED, "interrupted") == found(report)
    assert "ran out in bench" in report.result.reason
    assert "exited" == scene.session.supervisor.status("a1-load-1", deadline=Deadline.after(20)).state


