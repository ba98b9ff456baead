"""The page of all runs: every run is there, failed ones too, build changes are marked, text of others is harmless."""

from datetime import timedelta
from pathlib import Path

from settings.words import RunOutcome
from tasks.pure.record import RunRecord
from tasks.store import read_record
from tasks.trend import html_history

RECORD = read_record(next((Path(__file__).resolve().parents[1] / "records").iterdir()))


def _nights() -> list[RunRecord]:
    runs = []
    for night in range(6):
        build = RECORD.build.model_copy(update={"version": "0.5.9" if night < 3 else "0.5.10"})
        run = RECORD.model_copy(
            update={"run_id": f"n{night}", "started_at": RECORD.started_at + timedelta(days=night), "build": build}
        )
        lost = {"winner": None, "outcome": RunOutcome.EXHAUSTED, "attempts": RECORD.attempts[:2]}
        runs.append(run.model_copy(update=lost) if night == 4 else run)
    return runs


def test_every_run_is_on_the_page_and_the_newest_first() -> None:
    page = html_history(_nights(), ["x/record.json: Invalid JSON"])
    places = [page.index(f"<td>n{night}</td>") for night in range(6)]
    assert places == sorted(places, reverse=True)
    assert "Exhausted" in page
    assert "x/record.json: Invalid JSON" in page
    assert "(none served)" in page
    assert page.count("0.5.10") > 3  # in three rows, and where the build changed


def test_a_run_that_came_to_no_decision_is_not_drawn_as_a_failure() -> None:
    for outcome in (RunOutcome.RUNNING, RunOutcome.HOST_BUSY, RunOutcome.CANCELLED):
        page = html_history([RECORD.model_copy(update={"winner": None, "outcome": outcome})], [])
        assert "(no decision)" in page
        assert "(none served)" not in page


def test_each_target_has_its_own_part_and_nothing_is_loaded_or_run() -> None:
    other = RECORD.model_copy(update={"target": "<script>alert(1)</script>\u202e"})
    page = html_history([RECORD, other], [])
    assert page.count("<section>") == 2
    assert "<script" not in page
    assert "\u202e" not in page
    assert "url(" not in page.replace("url(#", "")


def test_a_folder_without_runs_has_a_page_too() -> None:
    assert "There are no runs yet." in html_history([], [])
