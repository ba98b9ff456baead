"""Many hosts end in one table, whoever runs them, and a cancelled fleet leaves none of them at work."""

import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from settings.source import SETTINGS_DIR
from settings.words import ExitCode, RunOutcome
from tasks.pure.fleet import FleetRow
from tasks.store import read_record
from tests.flows.conftest import BRINGUP, Machine, rehearsal_target, wait_for
from tests.flows.controller import ENDED, LEASE_S, Rehearsed, controller, fleet, until
from tests.postgres import postgres_running

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(900)]

STORY = """
why     = "all is well"
release = "0.5.9"
speed   = SPEED
pace    = { load_s = LOAD_S }
[expect]
outcome = "serving"
trail   = [{ rung = "auto", outcome = "passed" }]
"""
HOSTS = 20


def _story(folder: Path, *, load_s: float = 2.0, speed: float = 16.0) -> Path:
    path = folder / "story.toml"
    path.write_text(STORY.replace("SPEED", str(speed)).replace("LOAD_S", str(load_s)))
    return path


def test_without_workers_each_host_is_a_process_and_the_exit_code_is_the_worst(machine: Machine) -> None:
    hosts = machine.folder / "hosts"
    hosts.mkdir()
    rehearsal_target(hosts / "gpu1.toml", _story(machine.folder), lease_s=LEASE_S)
    (hosts / "gpu2.toml").write_text('hots = "gpu2"\n')
    ran = machine.bringup("fleet", "--targets", str(hosts), "--json")
    rows = [FleetRow.model_validate_json(line) for line in ran.stdout.splitlines()]
    assert [("gpu1", "Serving"), ("gpu2", "Bad input")] == [(row.target, row.state) for row in rows], ran.stderr
    assert (ExitCode.BAD_INPUT, machine.newest().name) == (ran.returncode, rows[0].run_id)
    assert "did you mean 'host'?" in rows[1].headline


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--targets", "nowhere/*.toml"], "fleet: nowhere/*.toml: holds no target file"),
        ([], "fleet: targets: names no host"),
        (["--target", "rehearsal", "--ladder", "glm5-sm12"], "did you mean 'glm5-sm120'?"),
        (["--target", "rehearsal", "--confirm"], "fleet: --confirm: goes with --ref"),
    ],
)
def test_what_cannot_begin_is_one_sentence(words: list[str], said: str) -> None:
    ran = subprocess.run([BRINGUP, "fleet", *words], capture_output=True, text=True, check=False, timeout=60)
    assert (ExitCode.BAD_INPUT, "") == (ran.returncode, ran.stdout)
    assert (1, True) == (len(ran.stderr.splitlines()), said in ran.stderr), ran.stderr


@pytest.mark.chaos
def test_a_budget_asked_of_a_fleet_is_that_of_each_run(machine: Machine) -> None:
    target = rehearsal_target(machine.folder / "gpu1.toml", SETTINGS_DIR / "rehearsals/founding.toml", lease_s=LEASE_S)
    ran = machine.bringup("fleet", "--target", str(target), "--budget-attempts", "1", "--json")
    row = FleetRow.model_validate_json(ran.stdout)
    assert (ExitCode.NOT_SERVING, "Budget") == (ran.returncode, row.state), ran.stderr
    assert 1 == len(read_record(machine.newest()).attempts)


@pytest.mark.chaos
def test_ctrl_c_ends_each_hosts_run(machine: Machine) -> None:
    story = _story(machine.folder, load_s=600, speed=1.0)
    target = rehearsal_target(machine.folder / "gpu1.toml", story, lease_s=LEASE_S)
    fleet = machine.begin("fleet", "--target", str(target))
    machine.until_event("attempt.started")
    wait_for(machine.processes, 60, "a server at work")
    fleet.send_signal(signal.SIGINT)
    out, err = fleet.communicate(timeout=90)
    assert (ExitCode.INTERRUPTED, True) == (fleet.returncode, "Cancelled" in out), err
    wait_for(lambda: not machine.processes(), LEASE_S + 60, "the host is empty")
    assert RunOutcome.CANCELLED is read_record(machine.newest()).outcome
    assert machine.is_free(str(target))


@pytest.mark.chaos
def test_a_cancelled_fleet_cancels_its_runs(tmp_path: Path) -> None:
    story = _story(tmp_path, load_s=600, speed=1.0)
    hosts = [Rehearsed(tmp_path / name, story, name).written() for name in ("gpu1", "gpu2", "gpu3")]
    with controller(tmp_path, 1) as (prefect, _):
        targets = [str(host.target) for host in hosts]
        run_id = prefect.run("glm5-fleet", targets=targets, runs=str(tmp_path / "runs"), at_once=2)
        until(lambda: all(host.left() for host in hosts[:2]), within_s=120)
        prefect.cli("flow-run", "cancel", run_id)
        until(lambda: prefect.state(run_id)[0] in ENDED)
        members = prefect.ask("/flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [run_id]}})
        until(lambda: all(prefect.state(member["id"])[0] in ENDED for member in members))
        assert ("CANCELLED", ["CANCELLED"] * 2) == (
            prefect.state(run_id)[0], [prefect.state(member["id"])[0] for member in members]
        )  # fmt: skip
        until(lambda: not any(host.left() for host in hosts), within_s=LEASE_S + 60)
        assert ["Cancelled"] * 3 == [row["state"] for row in prefect.table("fleet", run_id)]


@pytest.mark.chaos
def test_twenty_hosts_on_two_workers_and_postgresql_end_in_one_table(tmp_path: Path) -> None:
    story = _story(tmp_path)
    names = [f"gpu{n:02d}" for n in range(HOSTS)]
    hosts = [Rehearsed(tmp_path / "hosts" / name, story, name) for name in names]
    (tmp_path / "hosts").mkdir()
    for host in hosts:
        host.written(lease_s=60)  # no test of leases, and twenty flows share two cores
    with ExitStack() as stack:
        postgres = stack.enter_context(postgres_running())
        prefect, workers = stack.enter_context(controller(tmp_path, 2, database=postgres.url, limit=HOSTS // 2))
        words = ["--targets", str(tmp_path / "hosts/*/*.toml"), "--runs", str(tmp_path / "runs"), "--json"]
        ran, took = fleet(prefect, workers, *words, "--at-once", str(HOSTS))
        print(ran.stderr, took)
    rows = [FleetRow.model_validate_json(line) for line in ran.stdout.splitlines()]
    assert [(name, "Serving", "auto") for name in names] == [(row.target, row.state, row.rung) for row in rows]
    assert (0, {path.name for path in (tmp_path / "runs").iterdir()}) == (ran.returncode, {row.run_id for row in rows})
    assert HOSTS == sum(map(len, took.flows.values()))
    assert set(workers) == set(took.flows)  # both had a part in it
    assert [[]] * HOSTS == [host.left() for host in hosts]
