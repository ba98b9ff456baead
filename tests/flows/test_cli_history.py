"""History and comparison on the command line: damage is told beside the rows, a slip in a name is one sentence."""

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.cli_history import _shown
from settings.source import BadInput
from settings.words import RunOutcome
from tasks.pure.record import RunRecord

RECORDS = Path(__file__).resolve().parents[1] / "records"
RUN = next(RECORDS.iterdir()).name


def test_history_lists_what_can_be_read_and_tells_what_cannot(tmp_path: Path) -> None:
    shutil.copytree(RECORDS, tmp_path / "runs")
    (tmp_path / "runs" / "cut").mkdir()
    (tmp_path / "runs" / "cut" / "record.json").write_text("{")
    ran = CliRunner().invoke(app, ["history", "--runs", str(tmp_path / "runs"), "--json"], catch_exceptions=False)
    assert (0, RUN) == (ran.exit_code, json.loads(ran.stdout)["run_id"])
    assert "left out" in ran.stderr
    assert "cut/record.json" in ran.stderr
    told = CliRunner().invoke(app, ["history", "--runs", str(tmp_path / "runs")], catch_exceptions=False)
    assert "Serving" in told.stdout


def test_where_no_run_fits_it_is_said(tmp_path: Path) -> None:
    for words in (["--runs", str(RECORDS), "--target", "nosuch"], ["--runs", str(tmp_path / "nowhere")]):
        ran = CliRunner().invoke(app, ["history", *words], catch_exceptions=False)
        assert "no run in" in ran.stderr


def test_compare_shows_settings_that_differ_in_the_second_digit() -> None:
    assert ("0.95", "0.88", "1,234.5") == (_shown(0.95), _shown(0.88), _shown(1234.5))


def test_compare_says_how_much_and_names_the_nearest_run() -> None:
    words = ["compare", RUN, RUN, "--runs", str(RECORDS)]
    ran = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "+0.0%" in ran.stdout
    words[2] = RUN.replace("162655", "162656")
    with pytest.raises(BadInput, match=f"did you mean '{RUN}'"):
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_a_run_alone_is_compared_with_the_good_ones_before_it(tmp_path: Path) -> None:
    record = RunRecord.model_validate_json((RECORDS / RUN / "record.json").read_bytes())
    lost = {"outcome": RunOutcome.EXHAUSTED, "winner": None, "attempts": record.attempts[:-1]}
    for day in range(3):
        night = {"run_id": f"night{day}", "started_at": record.started_at + timedelta(days=day)}
        written = record.model_copy(update=night | (lost if day == 2 else {}))
        (tmp_path / f"night{day}").mkdir()
        (tmp_path / f"night{day}" / "record.json").write_text(written.model_dump_json())
    words = ["compare", "night2", "--runs", str(tmp_path)]
    ran = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "worse: the run came to 'exhausted', before to 'serving on bf16-kv'" in ran.stdout
    found = json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).stdout)
    assert ("night1", 2) == (found["last_good"], found["nights"])
    with pytest.raises(BadInput, match="night0: no run on rehearsal with ladder"):
        CliRunner().invoke(app, ["compare", "night0", "--runs", str(tmp_path)], catch_exceptions=False)


def test_several_places_are_one_history_and_a_run_that_lies_in_two_counts_once(tmp_path: Path) -> None:
    shutil.copytree(RECORDS, tmp_path / "one")
    shutil.copytree(RECORDS, tmp_path / "two")
    other = tmp_path / "two" / "20261130-020000-other-abcd"
    shutil.copytree(tmp_path / "two" / RUN, other)
    (other / "record.json").write_text((other / "record.json").read_text().replace(RUN, other.name))
    places = ["--runs", str(tmp_path / "one"), "--runs", f"file://{tmp_path}/two"]
    ran = CliRunner().invoke(app, ["history", *places, "--json"], catch_exceptions=False)
    assert [json.loads(line)["run_id"] for line in ran.stdout.splitlines()] == [RUN, other.name]
    told = CliRunner().invoke(app, ["compare", RUN[-4:], "latest", *places, "--json"], catch_exceptions=False)
    assert told.exit_code == 0
    page = CliRunner().invoke(
        app, ["report", "--history", *places, "--out", str(tmp_path / "all.html")], catch_exceptions=False
    )
    assert page.exit_code == 0
    assert f"<td>{other.name}</td>" in (tmp_path / "all.html").read_text()
