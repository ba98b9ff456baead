"""A regression is run again before it is told: the last good build, then tonight's, on the same host."""

import json
import os
import signal
from pathlib import Path

import pytest

from settings.words import ExitCode, RunOutcome
from tasks.pure.confirm import UNDER_WAY
from tasks.pure.record import RunRecord
from tasks.store import read_record
from tests.flows.conftest import Machine, wait_for
from tests.flows.moving_main import BROKEN, MovingMain

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(300), pytest.mark.chaos]


@pytest.fixture
def main(machine: Machine) -> MovingMain:
    return MovingMain(machine)


def confirming(main: MovingMain) -> tuple[str, ...]:
    return "run", "--target", str(main.target), "--ladder", str(main.ladder), "--ref", "main", "--confirm"


def night(main: MovingMain) -> tuple[RunRecord, list[RunRecord]]:
    """Tonight's record, and those made for it."""
    before = {r.run_id for r in main.records()}
    ran = main.machine.bringup(*confirming(main))
    new = [r for r in main.records() if r.run_id not in before]
    assert new, ran.stderr
    (told,) = (r for r in new if r.confirms is None)
    assert {told.run_id} >= {r.confirms for r in new if r.confirms}
    return told, [r for r in new if r.confirms]


def made_for(main: MovingMain, role: str) -> Path | None:
    """The folder of the further run of this role, once it has begun."""
    found = (p.parent for p in main.machine.runs.glob("*/record.json") if read_record(p).role == role)
    return next(found, None)


def test_a_host_that_broke_accuses_no_commit(main: MovingMain) -> None:
    good = main.commit()
    night(main)
    story = main.story_of(good)
    story.write_text(story.read_text() + BROKEN)   # what was good there is so no more
    main.commit(broken=True)
    told, further = night(main)
    assert told.confirmed is not None
    assert ("host", ["A"]) == (told.confirmed.verdict, [r.role for r in further]), told.confirmed.why
    assert main.machine.is_free(str(main.target))


def test_what_does_not_come_again_is_noise_and_the_next_night_has_nothing_to_recover_from(main: MovingMain) -> None:
    main.commit()
    night(main)
    bad = main.commit(broken=True)
    run = main.machine.begin(*confirming(main))
    wait_for(lambda: made_for(main, "A"), 120, "the last good build, run again")
    story = main.story_of(bad)
    story.write_text(story.read_text().replace(BROKEN, ""))
    run.communicate(timeout=200)
    told = next(r for r in main.records() if r.source and r.source.commit == bad and r.confirms is None)
    assert told.confirmed is not None
    assert ("noise", {"A", "B"}) == (told.confirmed.verdict, set(told.confirmed.runs)), told.confirmed.why
    assert ExitCode.NOT_SERVING == run.returncode   # the run itself did not serve


def test_a_slower_build_is_found_by_its_figures(main: MovingMain) -> None:
    # A band that a busy machine stays in, and a tenth of the speed does not: 5 ms a token, then 50.
    bands = {"fewest": 1, "figure": {"change": 0.6, "least": 500}, "time": {"least": 1000}}
    main.machine.env["BRINGUP_RUN__BANDS"] = json.dumps(bands)
    main.commit(token_s=0.08)
    night(main)
    main.commit(token_s=0.8)
    told, further = night(main)
    assert told.confirmed is not None
    assert (RunOutcome.SERVING, "code", ["A", "B"]) == (
        told.outcome, told.confirmed.verdict, [r.role for r in further],
    ), told.confirmed.why  # fmt: skip
    assert told.compared is not None
    assert {"figure"} == {f.kind for f in told.compared.worse}


def test_a_cut_confirmation_leaves_a_true_record_and_goes_on_with_the_run(main: MovingMain) -> None:
    main.commit()
    night(main)
    bad = main.commit(broken=True)
    run = main.machine.begin(*confirming(main))
    wait_for(lambda: made_for(main, "A"), 120, "the last good build, run again")
    folder = made_for(main, "A")
    assert folder is not None
    wait_for(lambda: "server.launched" in (folder / "events.jsonl").read_text(), 60, "its server")
    os.killpg(run.pid, signal.SIGINT)
    run.communicate(timeout=60)
    cut = read_record(folder)
    told = next(r for r in main.records() if r.source and r.source.commit == bad)
    assert (RunOutcome.CANCELLED, told.run_id) == (cut.outcome, cut.confirms)
    assert told.confirmed is not None
    assert ("unclear", UNDER_WAY, RunOutcome.EXHAUSTED) == (told.confirmed.verdict, told.confirmed.why, told.outcome)
    wait_for(lambda: not main.machine.processes(), 30, "an empty host")
    main.machine.bringup("run", "--resume", told.run_id)
    again = read_record(main.machine.runs / told.run_id)
    assert again.confirmed is not None
    assert "code" == again.confirmed.verdict, again.confirmed.why
