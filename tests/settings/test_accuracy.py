from pathlib import Path

import pytest

from settings.accuracy import AccuracyGate, load_accuracy_gate
from settings.inputs import load_inputs
from settings.source import SETTINGS_DIR, BadInput, load

SHIPPED = SETTINGS_DIR / "suites" / "accuracy" / "gsm8k.toml"


def test_the_shipped_gate_is_valid() -> None:
    assert "gsm8k" == load(AccuracyGate, SHIPPED).benchmark


def test_a_ladder_that_does_not_name_the_gate_needs_no_questions() -> None:
    assert load_inputs("rehearsal", "glm5-sm120").accuracy is None


def test_questions_that_are_not_there_are_a_sentence_before_anything_is_launched(tmp_path: Path) -> None:
    gate = tmp_path / "g.toml"
    gate.write_text("why = 'x'\ndataset = 'q.jsonl'\nfloor = 0.9\n")
    with pytest.raises(BadInput, match=r"g.toml: dataset: '.*q.jsonl' cannot be read: No such file or directory"):
        load_accuracy_gate(str(gate))
    (tmp_path / "q.jsonl").write_bytes(b"{}")
    assert b"{}" == load_accuracy_gate(str(gate))[1]
