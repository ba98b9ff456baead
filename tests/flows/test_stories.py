"""Every shipped story through the command line, as a person runs it: trail, end, record, and the host afterwards.

One Prefect server for the module saves each story the start of its own (5 s on two idle cores); the ephemeral form is
what `make rehearse` shows.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

import tasks.pure.record
from deployments.serve import environment, serving
from settings.source import SETTINGS_DIR
from settings.story import Story, load_story
from settings.words import EXIT_OF, AttemptOutcome, ExitCode
from tasks.pure.record import RunRecord
from tasks.store import newest_run, read_record

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(240)]

BRINGUP = Path(sys.executable).with_name("bringup")
SCHEMA = json.loads(Path(tasks.pure.record.__file__).with_name("record.schema.json").read_text())
STORIES = sorted(p.stem for p in (SETTINGS_DIR / "rehearsals").glob("*.toml"))
SHIPPED = {
    "founding", "trtllm-works", "oom-then-nan", "silent-nan", "unsupported-assert", "overridden", "dies-under-load",
    "nan-after-load", "hang-in-capture", "port-taken", "slow-but-healthy", "same-assert-twice", "unknown-crash",
    "all-fail",
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "BRINGUP_"))}
    env = environment(own | {"PREFECT_HOME": str(tmp_path_factory.mktemp("prefect"))}, _free_port())
    with serving(env):
        yield env


@pytest.fixture
def env(server: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """A host of this test's own: state, port and mark."""
    return {
        **server,
        "BRINGUP_HOME": str(tmp_path),
        "BRINGUP_TARGET__STATE_DIR": str(tmp_path / "state"),
        "BRINGUP_RUN__API_PORT": str(_free_port()),
    }


def test_the_stories_that_were_promised_are_there() -> None:
    assert set(STORIES) >= SHIPPED


@pytest.mark.parametrize("name", STORIES)
def test_a_story_comes_to_the_end_that_it_states(name: str, env: dict[str, str], tmp_path: Path) -> None:
    story = load_story(name)
    ran = _bringup("rehearse", "--story", name, "--json", env=env)
    assert ran.stdout, ran.stderr
    record = RunRecord.model_validate_json(ran.stdout)
    assert _trail(record) == _expected(story, record), _tell(record)
    assert record.outcome is story.expect.outcome, record.halt
    assert record.halt is not None
    assert story.expect.halt in (None, record.halt.by), record.halt
    by_preflight = record.halt.by == "preflight"
    assert ran.returncode == (ExitCode.PREFLIGHT if by_preflight else EXIT_OF[record.outcome]), ran.stderr

    folder = newest_run(tmp_path / "runs")
    assert read_record(folder) == record
    jsonschema.validate(json.loads((folder / "record.json").read_text()), SCHEMA)
    for attempt in record.attempts:
        if attempt.log:
            assert (folder / attempt.log).stat().st_size > 0
        for point in attempt.bench:
            assert point.raw is None or (folder / point.raw.path).is_file()
    assert "Branch taken" in (folder / "report.md").read_text()

    assert _marked(tmp_path / "state") == []
    free = json.loads(_bringup("status", "--target", "rehearsal", "--json", env=env).stdout)
    assert free == {"target": "rehearsal", "held": False}


def _bringup(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BRINGUP, *words], env=env, capture_output=True, text=True, check=False, timeout=200)


def _trail(record: RunRecord) -> list[tuple[str, AttemptOutcome]]:
    return [(a.rung, a.outcome) for a in record.attempts]


def _expected(story: Story, record: RunRecord) -> list[tuple[str, AttemptOutcome]]:
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


def _marked(state: Path) -> list[int]:
    """Processes that carry the mark of this host's attempts."""
    mark, found = f"BRINGUP_STATE={state}".encode(), []
    for pid in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (pid / "environ").read_bytes():
                found.append(int(pid.name))
        except OSError:
            continue
    return found


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
