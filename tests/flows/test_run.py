"""A run around its variations: a winner that is to stay is launched anew, and a spent budget takes no win away."""

import json
from pathlib import Path

import pytest

from settings.words import AttemptOutcome, ExitCode, RunOutcome
from tasks.pure.record import RunRecord
from tests.flows.conftest import Machine, rehearsal_target

pytestmark = [pytest.mark.prefect, pytest.mark.chaos, pytest.mark.timeout(600)]

STORY = """
why     = "a sound server; one variation is twice as fast, another hangs in its capture"
release = "0.5.9"
speed   = 16.0
pace    = { token_s = 0.12 }
[[slower]]
when = { chunked_prefill_size = 16384 }
by   = 0.5
[[fault]]
why  = "a capture that never ends"
at   = "graph_capture"
when = { chunked_prefill_size = 2048 }
does = "hang"
[expect]
outcome = "serving"
trail   = [{ rung = "auto", outcome = "passed" }]
"""
LADDER = """
engine = "sglang"
start  = "auto"
budget = { attempts = 6, wall_s = WALL }
[base.args]
tp-size       = 8
static-memory = "0.88"
[rung.auto]
why = "what the build picks by itself"
[vary.chunks]
why  = "other prefill chunks"
args = { chunked-prefill-size = CHUNKS }
[default]
on = [{ stop = "no edge for this" }]
"""
_WALL_S = 120  # for the rung itself, on a busy machine, and then the variation hangs for the rest of it


@pytest.fixture
def far(machine: Machine) -> str:
    story = machine.folder / "varied.toml"
    story.write_text(STORY)
    return str(rehearsal_target(machine.folder / "far.toml", story))


def _ladder(machine: Machine, chunks: int, wall_s: float) -> str:
    path: Path = machine.folder / "vary.toml"
    path.write_text(LADDER.replace("CHUNKS", str(chunks)).replace("WALL", str(wall_s)))
    return str(path)


def test_the_winner_of_the_variations_is_launched_anew_to_be_kept(machine: Machine, far: str) -> None:
    ran = machine.bringup("run", "--target", far, "--ladder", _ladder(machine, 16_384, 1800), "--keep", "--json")
    assert ExitCode.SERVING == ran.returncode, ran.stderr
    record = RunRecord.model_validate_json(ran.stdout)
    assert [("auto", None), ("auto", "chunks"), ("auto", "chunks")] == [(a.rung, a.variation) for a in record.attempts]
    assert {AttemptOutcome.PASSED} == {a.outcome for a in record.attempts}
    assert 3 == record.winner
    kept = record.attempts[-1]
    assert "16384" == kept.argv[kept.argv.index("--chunked-prefill-size") + 1]
    held = json.loads(machine.bringup("status", "--target", far, "--json").stdout)
    assert (True, [kept.id]) == (held["kept"], held["running"])
    assert ExitCode.SERVING == machine.bringup("stop", "--target", far).returncode
    assert [] == machine.processes()


@pytest.mark.parametrize(
    ("words", "outcome", "winner"), [((), RunOutcome.SERVING, 1), (("--keep",), RunOutcome.BUDGET, None)]
)
def test_a_budget_that_runs_out_in_a_variation_takes_the_winner_only_from_who_wants_to_keep_it(
    machine: Machine, far: str, words: tuple[str, ...], outcome: RunOutcome, winner: int | None
) -> None:
    run = machine.begin("run", "--target", far, "--ladder", _ladder(machine, 2048, _WALL_S), "--json", *words)
    printed, said = run.communicate(timeout=_WALL_S + 300)  # it has to use up its budget
    record = RunRecord.model_validate_json(printed)
    assert [AttemptOutcome.PASSED, AttemptOutcome.ABORTED] == [a.outcome for a in record.attempts], said
    assert record.attempts[1].diagnosis is not None
    assert "interrupted" == record.attempts[1].diagnosis.kind
    assert None is record.attempts[1].move
    assert (outcome, winner) == (record.outcome, record.winner)
    assert record.halt is not None
    assert ("budget", "the budget of 120 s ran out in ready") == (record.halt.by, record.halt.reason[:36])
    assert [] == machine.processes()
    assert machine.is_free(far)
