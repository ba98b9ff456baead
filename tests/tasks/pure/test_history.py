"""History drops nothing, and a comparison names what differs and by how much."""

from datetime import timedelta
from pathlib import Path

from settings.words import RunOutcome
from tasks.pure.history import compare, history, winner_of
from tasks.pure.record import RunRecord
from tasks.store import read_record

RECORD = read_record(next((Path(__file__).resolve().parents[2] / "records").iterdir()))
FAILED = RECORD.model_copy(
    update={
        "run_id": "later", "started_at": RECORD.started_at + timedelta(days=1), "outcome": RunOutcome.EXHAUSTED,
        "winner": None, "attempts": RECORD.attempts[:-1], "target": "other",
    }
)  # fmt: skip


def test_a_run_that_failed_is_a_row_with_all_its_attempts() -> None:
    served, failed = history([RECORD, FAILED])
    assert ("Serving", "bf16-kv", "flashmla_sparse") == (served["state"], served["rung"], served["backend"])
    assert served["output_tokens_per_s"] > 0
    assert ("Exhausted", None, None) == (failed["state"], failed["rung"], failed["output_tokens_per_s"])
    states = ["OOM", "NaN", "Skipped", "NaN", "NaN"]
    assert states == [a["state"] for a in failed["attempts"]]
    assert [*states, "Passed"] == [a["state"] for a in served["attempts"]]


def test_rows_are_chosen_by_target_ladder_and_time() -> None:
    both = [RECORD, FAILED]
    assert ["later"] == [row["run_id"] for row in history(both, target="other")]
    assert [] == history(both, ladder="none")
    assert ["later"] == [row["run_id"] for row in history(both, since=FAILED.started_at)]


def test_a_run_compared_with_itself_differs_in_no_fact_and_by_nothing() -> None:
    told = compare(RECORD, RECORD)
    assert told
    assert {0.0} == {row["change"] for row in told}


def test_what_differs_is_named_with_both_values() -> None:
    told = {row["what"]: (row["old"], row["new"]) for row in compare(RECORD, _slower())}
    assert told["build version"] == ("0.5.9", "0.5.10")
    assert told["effective attention"] == ("nsa", "fa3")
    change = next(r["change"] for r in compare(RECORD, _slower()) if r["what"] == "smoke: output_tokens_per_s")
    assert abs(change + 0.5) < 1e-9


def test_a_winner_beside_none_is_told_as_missing() -> None:
    told = {row["what"]: row for row in compare(RECORD, FAILED)}
    assert (told["rung"]["old"], told["rung"]["new"]) == ("bf16-kv", None)
    assert told["smoke: output_tokens_per_s"]["change"] is None


def _slower() -> RunRecord:
    won = winner_of(RECORD)
    assert won is not None
    half = [p.model_copy(update={"output_tokens_per_s": (p.output_tokens_per_s or 0) / 2}) for p in won.bench]
    changed = won.model_copy(update={"bench": tuple(half), "effective": {**won.effective, "attention": "fa3"}})
    build = RECORD.build.model_copy(update={"version": "0.5.10"})
    return RECORD.model_copy(update={"attempts": (*RECORD.attempts[:-1], changed), "build": build})
