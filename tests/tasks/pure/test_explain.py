"""Ten lines that say why: each move stands with its edge and its evidence, whatever the run was."""

from pathlib import Path

from settings.words import AttemptOutcome
from tasks.pure.explain import LINES, explain
from tasks.pure.record import Attempt, RunRecord
from tasks.store import read_record

RECORD = read_record(Path(__file__).resolve().parents[2] / "records" / "20261129-162655-rehearsal-1ecb")


def _of(*attempts: Attempt) -> RunRecord:
    return RECORD.model_copy(update={"attempts": attempts, "winner": None})


def test_each_move_is_told_with_its_edge_and_the_line_that_it_rests_on() -> None:
    lines = explain(RECORD)
    assert lines[0].startswith("Serving on bf16-kv (flashmla_sparse) after OOM on auto, NaN on auto")
    assert lines[1].startswith("1. auto: OOM in ready → remedy less-static-memory by default.on[0]; line 129 TP7: ")
    assert "→ goto flashinfer-sparse-mla by rung.auto.on[4]; line 108: " in lines[2]
    assert "probability tensor contains eith" in lines[2]
    assert lines[3].startswith("3. flashinfer-sparse-mla: skipped, this build has no `flashinfer_sparse_mla`")
    assert lines[-2] == "6. bf16-kv (flashmla_sparse): every gate passed"
    assert lines[-1] == "Ended by rung: 'bf16-kv' passed every gate"


def test_ten_lines_are_enough_for_a_long_run_and_its_ends_are_kept() -> None:
    failed = RECORD.attempts[0]
    lines = explain(_of(*(failed.model_copy(update={"n": n}) for n in range(1, 31))))
    assert len(lines) == LINES
    assert lines[1].startswith("1. ")
    assert lines[-2].startswith("30. ")
    assert sum("more, all told by" in line for line in lines) == 1


def test_skipped_rungs_in_a_row_are_one_line() -> None:
    skipped = RECORD.attempts[2]
    assert skipped.outcome is AttemptOutcome.SKIPPED
    lines = explain(_of(skipped, skipped.model_copy(update={"n": 4, "rung": "other"})))
    assert lines[1].startswith("3-4. flashinfer-sparse-mla, other: skipped, ")
    assert len(lines) == 3


def test_a_killed_run_is_told_as_one() -> None:
    lines = explain(RECORD.model_copy(update={"halt": None, "attempts": ()}))
    assert lines[-1].startswith("No end is written")
