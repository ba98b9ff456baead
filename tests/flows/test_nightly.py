"""Nights on a moving main: a local repository whose commits rename a flag, break a backend, and fail to install."""

import os
import signal
import subprocess

import pytest

from settings.words import ExitCode, RunOutcome
from tasks.deadline import Deadline
from tasks.store import read_record
from tests.flows.conftest import Machine, empty_by, fill, make_room, over_ssh, small_disk, wait_for
from tests.flows.moving_main import MovingMain
from tests.tasks.conftest import StartSshd

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(600)]


@pytest.fixture
def main(machine: Machine) -> MovingMain:
    return MovingMain(machine)


def test_nights_on_a_moving_main(main: MovingMain) -> None:
    first = main.commit("0.5.9")
    ran, record = main.night()
    assert (ExitCode.SERVING, RunOutcome.SERVING) == (ran.returncode, record.outcome), ran.stderr
    assert record.source is not None
    assert ("main", first, False) == (record.source.ref, record.source.commit, record.source.cached)
    assert (first, "0.5.9") == (record.build.commit, record.build.version)
    assert str(main.machine.state / "envs") in record.attempts[0].argv[0]

    ran, same = main.night()
    assert (ExitCode.SERVING, record.run_id) == (ran.returncode, same.run_id)   # no second run
    assert "skipped: " in ran.stdout
    _, forced = main.night("--force")
    assert forced.run_id != record.run_id
    assert forced.source is not None
    assert forced.source.cached is True

    main.commit("0.5.17")   # --nsa-… is --dsa-… from here on
    ran, renamed = main.night()
    assert (ExitCode.SERVING, "0.5.17") == (ran.returncode, renamed.build.version)
    good = renamed.build.commit

    before = main.envs
    main.commit("0.5.17", needs="sgl-kernel==9.9")
    ran, failed = main.night("--confirm")
    assert (ExitCode.PREFLIGHT, RunOutcome.STOPPED, ()) == (ran.returncode, failed.outcome, failed.attempts)
    assert failed.source is not None
    assert failed.source.diagnosis is not None
    assert ("version_mismatch", "sgl-kernel") == (failed.source.diagnosis.kind, failed.source.diagnosis.flag)
    assert "No matching distribution found" in (main.machine.runs / failed.run_id / "install.log").read_text()
    assert before.keys() == main.envs.keys()
    assert failed.confirmed is not None   # the last good build served once more, and this one failed once more
    assert ("code", good, failed.source.commit) == (
        failed.confirmed.verdict, failed.confirmed.good, failed.confirmed.bad,
    ), failed.confirmed.why  # fmt: skip
    further = [r for r in main.records() if r.confirms == failed.run_id]
    assert [("A", RunOutcome.SERVING), ("B", RunOutcome.STOPPED)] == [(r.role, r.outcome) for r in further]
    assert [*failed.confirmed.runs.values()] == [r.run_id for r in further]

    broken = main.commit("0.5.17", broken=True)
    _, record = main.night()
    assert broken == record.build.commit
    assert "nan" == (record.attempts[0].diagnosis and record.attempts[0].diagnosis.kind)

    main.commit("0.5.17")
    ran, mended = main.night()
    assert (ExitCode.SERVING, RunOutcome.SERVING) == (ran.returncode, mended.outcome)
    assert mended.build.commit in main.envs
    assert first not in main.envs   # collected: newer ones have served since
    assert good is not None
    assert main.machine.is_free(str(main.target))


def test_an_unknown_ref_or_a_target_without_recipe_is_one_sentence(main: MovingMain, machine: Machine) -> None:
    main.commit()
    ran = machine.bringup("run", "--target", str(main.target), "--ref", "mian")
    progress, error = ran.stderr.splitlines()
    assert (ExitCode.BAD_INPUT, True) == (ran.returncode, progress.endswith("starting Prefect")), ran.stderr
    assert "mian: cannot be resolved" in error
    ran = machine.bringup("run", "--target", "rehearsal", "--ref", "main")
    assert (ExitCode.BAD_INPUT, True) == (ran.returncode, "recipe: is not set" in ran.stderr), ran.stderr
    assert not [*machine.runs.iterdir()]   # no run began


LEASE_S = 10.0


@pytest.mark.chaos
@pytest.mark.sshd
@pytest.mark.fault("ssh-cut", stage="install")
def test_an_install_whose_connection_is_cut_is_found_again(machine: Machine, start_sshd: StartSshd) -> None:
    sshd = start_sshd()
    main = MovingMain(machine, **over_ssh(sshd))
    main.commit()
    run = _installing(main)
    sshd.drop_connections()
    machine.until_event("step.retried")
    main.closed.unlink()
    _, said = run.communicate(timeout=200)
    record = read_record(machine.newest())
    assert RunOutcome.SERVING is record.outcome, said
    _is_installed_once(main)
    empty_by(Deadline.after(LEASE_S + 60), machine.left)


@pytest.mark.chaos
@pytest.mark.sshd
@pytest.mark.fault("ssh-gone", stage="install")
def test_an_install_whose_host_is_gone_is_the_hosts_fault_and_the_next_night_goes_on(
    machine: Machine, start_sshd: StartSshd
) -> None:
    sshd = start_sshd()
    main = MovingMain(machine, **over_ssh(sshd))
    main.commit()
    run = _installing(main)
    struck = Deadline.after(LEASE_S + 60)
    sshd.bury()
    empty_by(struck, machine.left)
    _, said = run.communicate(timeout=200)
    record = read_record(machine.newest())
    assert (RunOutcome.HOST_LOST, "host") == (record.outcome, record.halt and record.halt.by), said
    assert (None, ()) == (record.source and record.source.diagnosis, record.attempts)
    main.closed.unlink()
    main.reached(**over_ssh(start_sshd()))
    ran, after = main.night()
    assert (ExitCode.SERVING, RunOutcome.SERVING) == (ran.returncode, after.outcome), ran.stderr
    _is_installed_once(main)


@pytest.mark.chaos
@pytest.mark.fault("disk-full-there", stage="install")
def test_a_disk_that_is_full_while_installing_is_the_hosts_fault_and_the_next_night_goes_on(machine: Machine) -> None:
    main = MovingMain(machine)
    main.commit()
    with small_disk(machine, "state"):
        run = _installing(main)
        struck = Deadline.after(LEASE_S + 60)
        fill(machine.state)
        main.closed.unlink()
        empty_by(struck, machine.left)
        _, said = run.communicate(timeout=200)
        record = read_record(machine.newest())
        assert record.halt is not None
        assert () == record.attempts
        assert record.obstacle or "host" == record.halt.by, said
        make_room(machine.state)
        ran, after = main.night()
        assert (ExitCode.SERVING, RunOutcome.SERVING) == (ran.returncode, after.outcome), ran.stderr
        _is_installed_once(main)


def _installing(main: MovingMain) -> subprocess.Popen[str]:
    """A run in the middle of its install."""
    main.closed.touch()
    run = main.machine.begin("run", "--target", str(main.target), "--ref", "main")
    main.machine.until_event('"step": "install"')
    wait_for(main.machine.processes, 20, "the install runs")
    return run


def _is_installed_once(main: MovingMain) -> None:
    """Only what was not done is done again."""
    logs = [path.read_text() for path in sorted(main.machine.runs.glob("*/install.log"))]
    assert 1 == "".join(logs).count(" fetch "), logs
    assert "setup_env.py" in logs[-1]


@pytest.mark.chaos
@pytest.mark.parametrize(
    "way_out",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.fault("ctrl-c", stage="install")),
        pytest.param(signal.SIGTERM, marks=pytest.mark.fault("sigterm-to-the-flow", stage="install")),
        pytest.param(signal.SIGKILL, marks=pytest.mark.fault("sigkill-of-the-flow", stage="install")),
    ],
)
def test_an_install_that_is_cut_ends_on_the_host_and_the_next_night_goes_on_with_it(
    main: MovingMain, machine: Machine, way_out: signal.Signals
) -> None:
    main.commit()
    run = _installing(main)
    struck = Deadline.after(LEASE_S + 60)
    os.killpg(run.pid, way_out)
    empty_by(struck, machine.left)
    run.communicate(timeout=60)
    main.closed.unlink()
    ran, record = main.night()
    assert (ExitCode.SERVING, RunOutcome.SERVING) == (ran.returncode, record.outcome), ran.stderr
    said = (machine.newest() / "install.log").read_text()
    assert ("setup_env.py" in said, " fetch " in said) == (True, False)   # only what was not done
