"""From a regressed run to the first bad commit of a moving main, and a report that can be filed as it is."""

import json
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from settings.inputs import load_inputs
from settings.words import AttemptOutcome, Component, ExitCode, Phase, RunOutcome, Stage
from tasks.bisect import STATE
from tasks.pure.bisect import Bisection, launches
from tasks.pure.record import Attempt, Build, Diagnosis, HostSummary, LadderRef, RunRecord, Source
from tasks.resume import asked
from tests.flows.conftest import Machine, wait_for
from tests.flows.moving_main import DIES, MovingMain

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(900)]

NAN = Diagnosis(kind="nan", component=Component.ATTENTION, phase=Phase.PREFILL, stage=Stage.DECODE, means="NaN.")


@pytest.fixture
def main(machine: Machine) -> MovingMain:
    return MovingMain(machine)


def night(main: MovingMain, commit: str, n: int, cause: Diagnosis | None = None) -> str:
    """The id of a run that was: what a night with this commit left."""
    inputs = load_inputs(str(main.target), str(main.ladder))
    outcome = AttemptOutcome.FAILED if cause else AttemptOutcome.PASSED
    entry = Attempt(
        n=1, id="1", rung="auto", outcome=outcome, diagnosis=cause, failed_stage=cause.stage if cause else None
    )
    record = RunRecord(
        run_id=f"night{n}", started_at=datetime.now(UTC) - timedelta(days=9 - n), target=inputs.target.name,
        ladder=LadderRef(name=inputs.ladder_name, sha256=inputs.ladder_sha256), build=Build(engine="sglang"),
        host=HostSummary(name="h"), lease_s=9, outcome=RunOutcome.EXHAUSTED if cause else RunOutcome.SERVING,
        attempts=(entry,), winner=None if cause else 1, source=Source(ref="main", commit=commit, folder="k"),
        asked=asked(str(main.target), str(main.ladder), inputs, keep=False, ref="main", flow_run=None),
    )  # fmt: skip
    folder = main.machine.runs / record.run_id
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(record.model_dump_json())
    return record.run_id


def state_of(main: MovingMain) -> tuple[Path, Bisection]:
    (path,) = main.machine.runs.glob(f"bisect-*/{STATE}")
    return path.parent, Bisection.model_validate_json(path.read_bytes())


@pytest.mark.chaos
def test_two_commits_and_the_nights_around_them_name_the_first_bad_one(
    main: MovingMain, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in main.machine.env.items():
        if name.startswith("BRINGUP_"):
            monkeypatch.setenv(name, value)
    good, guilty = main.commit(subject="good"), main.commit(broken=True, subject="attention: a faster path")
    bad = main.commit(broken=True, subject="docs: a word")
    night(main, good, 1)
    run = night(main, bad, 2, NAN)
    refused = main.machine.bringup("bisect", run)
    assert (ExitCode.BAD_INPUT, True) == (refused.returncode, "not confirmed by A/B/A" in refused.stderr)
    words = ["bisect", "--target", str(main.target), "--good", good[:9], "--bad", bad[:9], "--json"]
    ran = main.machine.bringup(*words)
    assert ExitCode.SERVING == ran.returncode, ran.stderr
    said = json.loads(ran.stdout)
    assert f"{guilty[:12]} is the first bad commit: attention: a faster path" == said["said"]
    assert [(guilty, "bad")] == [(p["commit"], p["answer"]) for p in said["probes"]]
    (probe,) = (r for r in main.records() if r.role == "bisect")
    assert (run, ["preflight", "launch", "ready", "warmup", "decode"]) == (
        probe.confirms, [str(s.stage) for s in probe.attempts[0].stages if s.stage is not Stage.STOP],
    )  # fmt: skip
    assert "good" not in json.loads((main.story_of(guilty).parent.parent / "build.json").read_text())
    assert main.machine.is_free(str(main.target))


@pytest.mark.chaos
def test_sixteen_commits_one_of_which_cannot_be_built_are_searched_in_three_sittings(main: MovingMain) -> None:
    nightly = ("run", "--target", str(main.target), "--ladder", str(main.ladder), "--ref", "main", "--confirm")
    good = main.commit(subject="0: good")
    main.machine.bringup(*nightly)
    commits = [
        main.commit(broken=n >= 11 and DIES, needs="sgl-kernel==9.9" if n == 12 else "", subject=f"{n}: commit")
        for n in range(1, 17)
    ]
    begun = main.machine.begin(*nightly)
    begun.communicate(timeout=400)
    told = next(r for r in main.records() if r.confirmed)
    assert told.confirmed is not None
    assert "code" == told.confirmed.verdict, told.confirmed.why

    ran = main.machine.bringup("bisect", told.run_id, "--launches", "1")
    assert (ExitCode.NOT_SERVING, True) == (ran.returncode, "not found yet: 1 of the 16" in ran.stdout), ran.stderr
    cut = main.machine.begin("bisect", told.run_id)
    wait_for(lambda: len([r for r in main.records() if r.role == "bisect"]) == 3, 120, "the third probe")
    wait_for(lambda: main.machine.processes(), 120, "its server")
    os.killpg(cut.pid, signal.SIGINT)
    cut.communicate(timeout=60)
    folder, found = state_of(main)
    # What was cut is no answer.
    assert [(commits[7], "good"), (commits[11], "skip")] == [(p.commit, p.answer) for p in found.probes]
    wait_for(lambda: not main.machine.processes(), 30, "an empty host")

    last = main.machine.begin("bisect", told.run_id)
    out, err = last.communicate(timeout=600)
    assert ExitCode.SERVING == last.returncode, err
    assert f"{commits[10][:12]} is the first bad commit: 11: commit" in out
    folder, found = state_of(main)
    assert good == found.good
    answers = {commits.index(p.commit) + 1: p.answer for p in found.probes}
    assert {8: "good", 12: "skip", 13: "bad", 10: "good", 11: "bad"} == answers
    assert launches(16, skipped=1) == len(answers)
    report = (folder / "report.md").read_text()
    for line in (
        "# rung auto passed and now not: nan (attention) in warmup",
        f"{commits[10][:12]} is the first bad commit: 11: commit.", "## Command", "sglang.launch_server", "## Versions",
        "16 commits by first parents", "The server's log around line",
    ):  # fmt: skip
        assert line in report
    assert main.machine.is_free(str(main.target))
