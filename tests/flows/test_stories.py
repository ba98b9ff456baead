"""Every shipped story through the command line, as a person runs it: trail, end, record, and the host afterwards.

One Prefect server for all saves each story the start of its own; the ephemeral form is what `make rehearse` shows.
"""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import tasks.pure.record
from settings.source import SETTINGS_DIR
from settings.story import Story, load_story
from settings.words import EXIT_OF, AttemptOutcome, ExitCode
from tasks.pure.record import RunRecord
from tasks.store import read_record
from tests.flows.conftest import Machine

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(240)]

SCHEMA = json.loads(Path(tasks.pure.record.__file__).with_name("record.schema.json").read_text())
STORIES = sorted(p.stem for p in (SETTINGS_DIR / "rehearsals").glob("*.toml"))
# What they meet, another story or a test of the walker meets as well: all of them are walked by `make chaos`.
SELDOM = {
    "trtllm-works", "below-slo", "oom-at-peak", "nan-check-on", "second-request-nan", "nan-above-2048",
    "nan-far-into-answers", "nan-in-large-batches", "same-assert-twice",
}  # fmt: skip
PROMISED = {
    "founding", "trtllm-works", "oom-then-nan", "silent-nan", "unsupported-assert", "overridden", "dies-under-load",
    "nan-after-load", "hang-in-capture", "port-taken", "slow-but-healthy", "same-assert-twice", "unknown-crash",
    "all-fail",
    "second-request-nan", "nan-above-2048", "nan-in-large-batches", "nan-far-into-answers", "sanitised-nan",
    "nan-under-load", "oom-at-peak", "below-slo", "slo-search", "nan-check-on", "varied", "nan-without-decode",
    "nan-far-into-context", "fast-and-wrong",
}  # fmt: skip


def test_the_stories_that_were_promised_are_there() -> None:
    assert set(STORIES) >= PROMISED


@pytest.mark.parametrize("name", [pytest.param(s, marks=pytest.mark.chaos if s in SELDOM else ()) for s in STORIES])
def test_a_story_comes_to_the_end_that_it_states(name: str, machine: Machine) -> None:
    story = load_story(name)
    ran = machine.bringup("rehearse", "--story", name, "--json")
    assert ran.stdout, ran.stderr
    record = RunRecord.model_validate_json(ran.stdout)
    assert _trail(record) == _stated(story, record), _tell(record)
    assert record.outcome is story.expect.outcome, record.halt
    assert record.halt is not None
    assert story.expect.halt in (None, record.halt.by), record.halt
    assert ran.returncode == (ExitCode.PREFLIGHT if record.halt.by == "preflight" else EXIT_OF[record.outcome])

    folder = machine.newest()
    assert read_record(folder) == record
    jsonschema.validate(json.loads((folder / "record.json").read_text()), SCHEMA)
    for attempt in record.attempts:
        assert attempt.log is None or (folder / attempt.log).stat().st_size > 0
        if attempt.replies:
            asked = [json.loads(line) for line in (folder / attempt.replies.path).read_text().splitlines()]
            assert {v.id for v in attempt.decode if v.calls} == {line["probe"] for line in asked}
            for line in filter(_thinks, asked):
                thought = line["reply"]["choices"][0]["message"]["reasoning_content"]
                assert bool(thought) == ("--reasoning-parser" in attempt.argv)
        if attempt.accuracy:
            assert attempt.accuracy.answers is not None
            answers = (folder / attempt.accuracy.answers.path).read_text().splitlines()
            assert attempt.accuracy.right == sum(json.loads(line)["symbolic_correct"] for line in answers)
        for point in attempt.bench:
            assert point.raw is None or (folder / point.raw.path).is_file()
    assert "Branch taken" in (folder / "report.md").read_text()

    assert machine.processes() == []
    assert machine.is_free()


def _thinks(line: dict[str, Any]) -> bool:
    return line["probe"] == "chat-reasoning" and isinstance(line["reply"], dict)


def _trail(record: RunRecord) -> list[tuple[str, AttemptOutcome]]:
    return [(a.rung, a.outcome) for a in record.attempts]


def _stated(story: Story, record: RunRecord) -> list[tuple[str, AttemptOutcome]]:
    """The stated trail; facts that a story leaves open (kind, stage, move) are compared where it states them."""
    for stated, attempt in zip(story.expect.trail, record.attempts, strict=False):
        kind = attempt.diagnosis.kind if attempt.diagnosis else None
        move = attempt.move.move if attempt.move else None
        assert stated.kind in (None, kind), _tell(record)
        assert stated.stage in (None, attempt.failed_stage), _tell(record)
        assert stated.move in (None, move), _tell(record)
    return [(stated.rung, stated.outcome) for stated in story.expect.trail]


def _tell(record: RunRecord) -> str:
    return "\n".join(
        f"{a.n} {a.rung} {a.outcome} at {a.failed_stage}: {a.diagnosis.kind if a.diagnosis else ''} "
        f"{a.diagnosis.means if a.diagnosis else ''} -> {a.move.move if a.move else ''} {a.move.to if a.move else ''}"
        for a in record.attempts
    )
