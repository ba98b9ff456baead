"""What is left of a run can be asked for by name, without Prefect, also where the tree is missing."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from settings.source import BadInput

RUNS = Path(__file__).resolve().parents[1] / "records"
RUN = "20261129-162655-rehearsal-1ecb"


def _said(*words: str) -> str:
    ran = CliRunner().invoke(app, [*words, "--runs", str(RUNS)], catch_exceptions=False)
    assert ran.exit_code == 0
    return ran.stdout


def test_show_draws_the_tree_with_the_path() -> None:
    text = _said("show", RUN)
    assert "Serving on bf16-kv" in text
    assert "taken after 5 " in text
    assert all(len(line) <= 80 for line in text.splitlines() if "tests/records" not in line)


def test_explain_takes_ten_lines_at_most() -> None:
    lines = _said("explain", RUN).splitlines()
    assert len(lines) <= 10
    assert lines[-1] == "Ended by rung: 'bf16-kv' passed every gate"


def test_a_misspelt_run_is_one_sentence_with_the_nearest() -> None:
    with pytest.raises(BadInput, match=f"did you mean '{RUN}'"):
        _said("explain", RUN.replace("162655", "162656"))
