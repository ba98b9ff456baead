"""Nights on a moving main: a local repository whose commits rename a flag, break a backend, and fail to install."""

import os
import signal

import pytest

from settings.words import ExitCode, RunOutcome
from tests.flows.conftest import Machine, wait_for
from tests.flows.moving_main import MovingMain

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


@pytest.mark.chaos
@pytest.mark.parametrize("way_out", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_install_that_is_cut_ends_on_the_host_and_the_next_night_goes_on_with_it(
    main: MovingMain, machine: Machine, way_out: signal.Signals
) -> None:
    main.commit()
    main.closed.touch()
    run = machine.begin("run", "--target", str(main.target), "--ref", "main")
    machine.until_event('"step": "install"')
    wait_for(machine.processes, 20, "the install runs")
    os.killpg(run.pid, way_out)
    run.communicate(timeout=60)
    wait_for(lambda: not machine.processes(), 10.0 + 60, "no process of ours")
    wait_for(lambda: machine.is_free(str(main.target)), 60, "a free host")
    main.closed.unlink()
    ran, record = main.night()
    assert (ExitCode.SERVING, RunOutcome.SERVING) == (ran.returncode, record.outcome), ran.stderr
    said = (machine.newest() / "install.log").read_text()
    assert ("setup_env.py" in said, " fetch " in said) == (True, False)   # only what was not done
