"""A real server, a real worker and the real command line: what a person does, and what the run page then shows.

One server for the whole module (10 s to start). The host is the rehearsal's: this machine, with stories of our own.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest

from deployments.child import children
from deployments.serve import AUTH, environment, serving
from deployments.worker import working
from settings.source import SETTINGS_DIR
from settings.words import AttemptOutcome, RunOutcome
from tasks.deadline import Deadline, pause
from tasks.pure.record import RunRecord
from tests.browser import browse
from tests.flows.conftest import STAGES, empty_by, healthy
from tests.flows.controller import ENDED, LEASE_S, ROOT, Prefect, Rehearsed, controller, deployed, own, until
from tests.ports import free_port
from tests.postgres import postgres_running

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(420)]

AWAY_S = 10.0
AWAY_FOR_MINUTES_S = 130.0   # longer than the client of Prefect 3.9.1 tries: 2 + 4 + 8 + 16 + 32 s
GIVEN_S = LEASE_S + 60   # the contract's, to leave the host empty in
PASSWORD = "bringup:open-sesame"

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


def test_the_literal_command_brings_the_model_up(prefect: Prefect, tmp_path: Path) -> None:
    host = Rehearsed(tmp_path, SETTINGS_DIR / "rehearsals/founding.toml").written()
    run_id = prefect.submit("glm5-bringup", host)
    until(lambda: prefect.state(run_id)[0] in ENDED, within_s=180)

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


@pytest.mark.fault("cancelled-in-prefect")
@pytest.mark.parametrize("stage", EACH_STAGE)
def test_a_cancelled_run_leaves_the_host_empty(prefect: Prefect, tmp_path: Path, stage: str) -> None:
    longer = 3 if stage in ("decode", "bench", "recheck") else 20  # a worker asks every 10 s who is cancelled
    run_id, host = _in_the_middle(prefect, tmp_path, stage, slower=longer)
    struck = Deadline.after(GIVEN_S)
    prefect.cli("flow-run", "cancel", run_id)
    empty_by(struck, host.left)
    until(lambda: prefect.state(run_id)[0] in ENDED)
    assert ("CANCELLED", "Cancelled") == prefect.state(run_id)
    record = host.record()
    assert RunOutcome.CANCELLED is record.outcome
    _is_true(record)


@pytest.mark.fault("sigkill-of-the-worker's-flow")
@pytest.mark.parametrize("stage", EACH_STAGE)
def test_a_killed_flow_leaves_the_host_empty(prefect: Prefect, tmp_path: Path, stage: str) -> None:
    run_id, host = _in_the_middle(prefect, tmp_path, stage)
    struck = Deadline.after(GIVEN_S)
    for pid in children(prefect.worker.pid):
        os.kill(pid, signal.SIGKILL)
    empty_by(struck, host.left)
    until(lambda: prefect.state(run_id)[0] in ENDED)
    assert ("CRASHED", "Crashed") == prefect.state(run_id)
    record = host.record()
    assert RunOutcome.RUNNING is record.outcome   # in a file: a killed run
    _is_true(record)


def test_a_rerun_of_a_killed_flow_goes_on_with_its_run(prefect: Prefect, tmp_path: Path) -> None:
    run_id, host = _in_the_middle(prefect, tmp_path, "ready")
    for pid in children(prefect.worker.pid):
        os.kill(pid, signal.SIGKILL)
    # The worker hears of it seconds later, from the process between; what is retried before would be told as crashed.
    until(lambda: prefect.state(run_id)[0] in ENDED and not children(prefect.worker.pid) and not host.left())
    host.story.write_text(healthy())
    prefect.ask(f"/flow_runs/{run_id}/set_state", state={"type": "SCHEDULED", "name": "AwaitingRetry"}, force=True)
    until(lambda: prefect.state(run_id)[0] in ENDED, within_s=180)
    assert ("COMPLETED", "Serving") == prefect.state(run_id)
    assert 1 == len(list(host.runs.iterdir()))
    record = host.record()
    assert [("auto", "aborted"), ("auto", "passed")] == [(a.rung, a.outcome.value) for a in record.attempts]
    assert 1 == len(record.resumed_at)


@pytest.mark.chaos
def test_a_fleet_ends_in_one_table_in_which_each_host_has_its_row(prefect: Prefect, tmp_path: Path) -> None:
    (tmp_path / "story.toml").write_text(SERVES_AT_ONCE)
    hosts = [Rehearsed(tmp_path / name, tmp_path / "story.toml", name).written() for name in ("gpu1", "gpu2")]
    twin, bad = tmp_path / "twin.toml", tmp_path / "bad.toml"
    twin.write_text(hosts[0].target.read_text())
    bad.write_text('hots = "gpu9"\n')
    targets = [str(path) for path in (hosts[0].target, twin, hosts[1].target, bad)]
    asked = {"runs": str(tmp_path / "runs"), "budget_s": 600.0, "budget_attempts": 4, "notify": False}
    run_id = prefect.run("glm5-fleet", targets=targets, **asked)
    until(lambda: prefect.state(run_id)[0] in ENDED, within_s=180)

    assert ("FAILED", "2 of 4 serve") == prefect.state(run_id)
    table = prefect.table("fleet", run_id)
    said = [("gpu1", "Serving"), ("gpu2", "Serving"), ("twin", "Host busy"), ("bad", "Bad input")]
    assert said == [(row["host"], row["state"]) for row in table]
    assert {("auto", "flashmla_auto/flashmla_kv")} == {(row["rung"], row["actual backend"]) for row in table[:2]}
    assert {row["run"] for row in table[:2]} == {path.name for path in (tmp_path / "runs").iterdir()}
    assert "did you mean 'host'?" in table[3]["headline"]
    members = prefect.ask("/flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [run_id]}})
    assert {"gpu1-glm5-sm120", "gpu2-glm5-sm120"} == {run["name"] for run in members}
    assert [asked, asked] == [{name: run["parameters"][name] for name in asked} for run in members]
    assert [[], []] == [host.left() for host in hosts]


def test_who_has_no_password_gets_nothing_and_no_process_list_shows_it(prefect: Prefect) -> None:
    url = f"{prefect.env['PREFECT_API_URL']}/deployments/filter"
    answers = [httpx.post(url, json={}, auth=auth, timeout=30.0) for auth in (None, ("bringup", "guessed"))]
    assert [401, 401] == [answer.status_code for answer in answers]
    assert 200 == httpx.post(url, json={}, auth=("bringup", "open-sesame"), timeout=30.0).status_code
    lists = [line for _, line in _processes()]
    assert any(b"worker\0start" in line for line in lists)
    assert not any(b"open-sesame" in line for line in lists)


def test_people_are_told_what_since_when_and_what_to_do(prefect: Prefect, tmp_path: Path) -> None:
    story = tmp_path / "story.toml"
    story.write_text(SERVES_AT_ONCE)
    host = Rehearsed(tmp_path, story).written()
    with _receiver() as (url, heard):
        _tell(prefect, url)
        first = prefect.submit("glm5-nightly", host)
        until(lambda: prefect.state(first)[0] in ENDED, within_s=120)
        good = host.record()
        _emit_noise(prefect)
        story.write_text(SERVES_AT_ONCE + DIES_WHILE_LOADING)
        second = prefect.submit("glm5-nightly", host)
        until(lambda: prefect.state(second)[0] in ENDED, within_s=120)
        until(lambda: bool(heard))
    # That it served at first is no news, and what did not come again wakes nobody.
    assert [("bringup.regressed", "gpu-host")] == [(h["event"], h["target"]) for h in heard]
    assert good.run_id in heard[0]["text"]
    assert "To do: " in heard[0]["text"]


@pytest.mark.chaos
def test_people_are_told_of_nights_that_came_to_no_decision(prefect: Prefect, tmp_path: Path) -> None:
    story = tmp_path / "story.toml"
    story.write_text(healthy("ready"))
    host = Rehearsed(tmp_path, story).written()
    with _receiver() as (url, heard):
        _tell(prefect, url)
        unknown = prefect.run("glm5-nightly", target="gpu9")
        until(lambda: prefect.state(unknown)[0] in ENDED)
        cut = prefect.submit("glm5-nightly", host)
        until(lambda: '"stage": "ready"' in host.events(), within_s=180, every_s=0.05)
        busy = prefect.run("glm5-nightly", target=str(host.target), runs=str(host.runs), wait_s=0)
        until(lambda: prefect.state(busy)[0] in ENDED)
        for pid in children(prefect.worker.pid):
            os.kill(pid, signal.SIGKILL)
        until(lambda: prefect.state(cut)[0] in ENDED and not host.left(), within_s=LEASE_S + 60)
        short = prefect.run("glm5-nightly", target=str(host.target), runs=str(host.runs), budget_s=3.0)
        until(lambda: prefect.state(short)[0] in ENDED)
        story.write_text(SERVES_AT_ONCE + DIES_WHILE_LOADING)
        decided = prefect.submit("glm5-nightly", host)
        until(lambda: prefect.state(decided)[0] in ENDED, within_s=120)
        until(lambda: any(h["event"] == "bringup.exhausted" for h in heard))
    # The last one came to a decision, by a state of the type that the others have, and is told once.
    told = ["Failed", "Host busy", "Crashed", "Budget", "bringup.exhausted"]
    assert told == [h["event"].removeprefix("prefect.flow-run.") for h in heard]
    for heard_of, run in zip(heard, (unknown, busy, cut, short), strict=False):
        assert heard_of["text"].startswith(f"glm5-nightly on {heard_of['target']} came to no decision. It ended '")
        assert heard_of["text"].endswith(f"The run: {prefect.page(f'/runs/flow-run/{run}')}")
    assert ["gpu9", str(host.target)] == [heard_of["target"] for heard_of in heard[:2]]


def _tell(prefect: Prefect, url: str) -> None:
    """The shipped automations onto that server."""
    _module({**prefect.env, "BRINGUP_NOTIFY_URL": url}, "deployments.notify")


def _module(env: dict[str, str], name: str) -> None:
    ran = subprocess.run([sys.executable, "-m", name], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert 0 == ran.returncode, ran.stdout + ran.stderr


def _emit_noise(prefect: Prefect) -> None:
    """What a night emits whose regression did not come again; the server has it afterwards."""
    facts = {"text": "nothing", "target": "noisy", "verdict": "noise"}
    labels = {"prefect.resource.id": "bringup.target.noisy", "bringup.verdict": "noise"}
    script = f"from prefect.events import emit_event\nemit_event('bringup.regressed', {labels}, payload={facts})"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=prefect.env, check=True, timeout=60)
    asked = {"resource": {"id": ["bringup.target.noisy"]}}
    until(lambda: prefect.ask("/events/filter", filter=asked)["events"])


@contextmanager
def _receiver() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """An HTTP server on loopback, and what was posted to it; like Slack it takes JSON only, and by that name."""
    heard: list[dict[str, str]] = []

    class Post(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_json = self.headers["Content-Type"] == "application/json"
            heard.append(json.loads(body) if is_json else {"event": f"posted as {self.headers['Content-Type']}"})
            self.send_response(200)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Post) as receiver:
        Thread(target=receiver.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{receiver.server_port}/", heard
        receiver.shutdown()


@pytest.mark.fault("sigterm-to-the-worker")
@pytest.mark.parametrize("stage", EACH_STAGE)
def test_a_worker_told_to_stop_ends_its_run_and_leaves_the_host_empty(
    apart: Prefect, tmp_path: Path, stage: str
) -> None:
    run_id, host = _in_the_middle(apart, tmp_path, stage)
    struck = Deadline.after(GIVEN_S)
    apart.worker.send_signal(signal.SIGTERM)
    apart.worker.wait(60)
    empty_by(struck, host.left)
    record = host.record()
    assert RunOutcome.CANCELLED is record.outcome
    _is_true(record)
    assert apart.state(run_id)[0] in ENDED


@pytest.mark.chaos
@pytest.mark.fault("sigkill-of-the-worker")
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_worker_leaves_a_run_that_ends_by_itself(apart: Prefect, tmp_path: Path, stage: str) -> None:
    run_id, host = _in_the_middle(apart, tmp_path, stage)
    for pid in (*children(apart.worker.pid), apart.worker.pid):
        os.kill(pid, signal.SIGKILL)
    apart.worker.wait(10)
    until(lambda: apart.state(run_id)[0] in ENDED, within_s=240)
    assert ("COMPLETED", "Serving") == apart.state(run_id)
    assert RunOutcome.SERVING is host.record().outcome
    empty_by(Deadline.after(GIVEN_S), host.left)


@pytest.mark.chaos
@pytest.mark.fault("prefect-server-away")
@pytest.mark.parametrize("stage", STAGES)
def test_a_server_that_is_away_in_mid_run_costs_the_run_nothing(apart: Prefect, tmp_path: Path, stage: str) -> None:
    run_id, host = _in_the_middle(apart, tmp_path, stage)
    _kill_server(apart)
    with serving(apart.env):
        until(lambda: apart.state(run_id)[0] in ENDED, within_s=240)
        assert ("COMPLETED", "Serving") == apart.state(run_id)
    record = host.record()
    assert (RunOutcome.SERVING, ["passed"]) == (record.outcome, [a.outcome.value for a in record.attempts])
    empty_by(Deadline.after(GIVEN_S), host.left)


@pytest.mark.chaos
@pytest.mark.fault("prefect-server-away-for-minutes")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stage", ["ready", "stop"])
def test_a_server_that_is_away_for_minutes_costs_only_pages(apart: Prefect, tmp_path: Path, stage: str) -> None:
    """Prefect's client gives up after a minute: at the end of the attempt, or at that of the run."""
    run_id, host = _in_the_middle(apart, tmp_path, stage)
    _kill_server(apart)
    pause(AWAY_FOR_MINUTES_S, Deadline.after(AWAY_FOR_MINUTES_S))
    with serving(apart.env):
        until(lambda: host.record().ended_at is not None, within_s=300)
        until(lambda: apart.state(run_id)[0] in ENDED, within_s=300)
        assert ("COMPLETED", "Serving") == apart.state(run_id)
    record = host.record()
    assert (RunOutcome.SERVING, ["passed"]) == (record.outcome, [a.outcome.value for a in record.attempts])
    assert [] == host.left()


@pytest.mark.fault("worker-database-server-lost", stage="ready")
def test_worker_database_and_server_lost_one_after_the_other_cost_the_run_nothing(tmp_path: Path) -> None:
    with postgres_running() as postgres, controller(tmp_path, 1, database=postgres.url) as (prefect, _):
        run_id, host = _in_the_middle(prefect, tmp_path / "host", "ready", slower=2)
        prefect.worker.kill()
        postgres.stop()
        pause(AWAY_S, Deadline.after(AWAY_S))
        postgres.start()
        _kill_server(prefect)
        with serving(prefect.env):
            until(lambda: prefect.state(run_id)[0] in ENDED, within_s=240)
            assert ("COMPLETED", "Serving") == prefect.state(run_id)
            assert ["Serving"] == [row["state"] for row in prefect.table("row", run_id)]
    record = host.record()
    assert (RunOutcome.SERVING, ["passed"]) == (record.outcome, [a.outcome.value for a in record.attempts])
    empty_by(Deadline.after(GIVEN_S), host.left)


@pytest.mark.chaos
def test_the_form_says_what_each_parameter_means_and_the_page_calls_nobody_else(apart: Prefect, tmp_path: Path) -> None:
    form = browse(apart.page(f"/deployments/deployment/{apart.deployment('glm5-nightly')}/run"), tmp_path)
    for words in (
        "target (Optional) the host and its model", "ladder (Optional) the decision tree", "ref (Optional) branch,",
        "force (Optional) with ref", "keep (Optional) leave the server running", "notify (Optional) emit the events",
        "budget_s (Optional) seconds for the whole run", "budget_attempts (Optional) launches",
        "wait_s (Optional) seconds for which a host that another run has is waited for",
    ):  # fmt: skip
        assert words in form.text
    fleet_form = browse(apart.page(f"/deployments/deployment/{apart.deployment('glm5-fleet')}/run"), tmp_path / "fleet")
    assert "at_once (Optional) how many hosts are worked on at the same time" in fleet_form.text
    assert form.asked
    assert {httpx.URL(apart.page("/")).netloc} == {httpx.URL(address).netloc for address in form.asked}


@pytest.fixture
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefect]:
    """Server and worker of one test alone: it breaks them. The worker is the launcher that systemd runs."""
    home = tmp_path_factory.mktemp("prefect")
    env = environment(own(home), free_port())
    with serving(env):
        worker = subprocess.Popen([sys.executable, "-m", "deployments.worker"], env=env, cwd=ROOT)
        try:
            yield deployed(Prefect(env, worker, home))
        finally:
            if worker.poll() is None:
                worker.terminate()
                worker.wait(60)


def _in_the_middle(prefect: Prefect, folder: Path, stage: str, slower: float = 1.0) -> tuple[str, Rehearsed]:
    """A run in the middle of that stage."""
    folder.mkdir(exist_ok=True)
    story = folder / "story.toml"
    story.write_text(healthy(stage, slower=slower))
    host = Rehearsed(folder, story).written()
    run_id = prefect.submit("glm5-bringup/glm5-bringup", host)
    until(lambda: f'"stage": "{stage}"' in host.events(), within_s=180, every_s=0.05)
    return run_id, host


def _kill_server(prefect: Prefect) -> None:
    port = httpx.URL(prefect.env["PREFECT_API_URL"]).port
    server = next(p for p in _processes() if f"--port\0{port}\0".encode() in p[1] and b"server\0start" in p[1])
    os.killpg(server[0], signal.SIGKILL)


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
    """Server and worker with a home of their own, deployed to as `make deploy` does. It wants a password."""
    home = tmp_path_factory.mktemp("prefect")
    env = environment(own(home) | {AUTH: PASSWORD}, free_port(), host="0.0.0.0")
    with serving(env), working(env) as worker:
        _module(env, "deployments.deploy")
        yield Prefect(env, worker, home)
