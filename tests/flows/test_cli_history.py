"""History and comparison on the command line: damage is told beside the rows, a slip in a name is one sentence."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from settings.source import BadInput

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


def test_compare_says_how_much_and_names_the_nearest_run() -> None:
    words = ["compare", RUN, RUN, "--runs", str(RECORDS)]
    ran = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "+0.0%" in ran.stdout
    with pytest.raises(BadInput, match=f"did you mean '{RUN}'"):
        CliRunner().invoke(app, ["compare", RUN, RUN[:-2], "--runs", str(RECORDS)], catch_exceptions=False)
