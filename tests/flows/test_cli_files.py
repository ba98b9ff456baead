"""What is taken from a record: the run that is meant, files where a person wants them, and slips in one sentence."""

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli import app
from settings.source import BadInput

RECORD = next((Path(__file__).resolve().parents[1] / "records").iterdir())
HOSTILE = "\x1b]0;t\x07\x9b2J\u202e"


def _said(*words: object) -> str:
    ran = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


def _run(root: Path, name: str, **changed: Any) -> Path:
    folder = root / name
    shutil.copytree(RECORD, folder)
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps({**record, **changed}))
    return folder


def test_export_takes_the_newest_run_that_served_and_says_which(tmp_path: Path) -> None:
    _run(tmp_path, RECORD.name)
    _run(tmp_path, "20991231-000000-none", winner=None)
    (tmp_path / "20991231-000001-bad").mkdir()
    (tmp_path / "20991231-000001-bad" / "record.json").write_text("{")
    said = _said("export", "--as", "json", "--runs", tmp_path)
    assert f"bringup: takes {RECORD.name}, the newest run that served\n" in said
    assert f"bringup: left out: {tmp_path}/20991231-000001-bad/record.json: " in said


def test_export_of_no_run_that_served_is_a_slip(tmp_path: Path) -> None:
    _run(tmp_path, "20991231-000000-none", winner=None)
    with pytest.raises(BadInput, match="holds no run that served"):
        _said("export", "--runs", tmp_path)


def test_systemd_takes_absolute_paths_only(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--at: 'units' is no absolute path"):
        _said("export", RECORD, "--as", "systemd", "--out", tmp_path, "--at", "units")


@pytest.mark.parametrize("words", [("export", "--as", "shell", "--out"), ("report", "--out")])
def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="--out: cannot be written: "):
        _said(words[0], RECORD, *words[1:], tmp_path / "file" / "x")


@pytest.mark.parametrize("command", ["show", "explain", "logs", "history", "compare"])
def test_nothing_in_a_record_or_a_log_acts_on_the_terminal(tmp_path: Path, command: str) -> None:
    record = json.loads((RECORD / "record.json").read_text())
    for attempt in record["attempts"]:
        if attempt["diagnosis"]:
            attempt["diagnosis"]["evidence"]["text"] = attempt["diagnosis"]["means"] = HOSTILE
    record["halt"]["reason"] = record["build"]["version"] = HOSTILE
    folder = _run(tmp_path, RECORD.name, **record)
    (folder / "events.jsonl").write_bytes(f"a\tb {HOSTILE}\nlast".encode() + b"\xff")
    other = _run(tmp_path, "20991231-000000-x", run_id="20991231-000000-x")
    words = {"history": [], "compare": [RECORD.name, other.name]}.get(command, [RECORD.name])
    said = _said(command, *words, "--runs", tmp_path)
    assert "⟨U+009B⟩" in said
    assert not set("\x1b\x07\x9b\u202e") & set(said)
    if command == "logs":
        assert "a\tb ⟨U+009B⟩2J⟨U+202E⟩\nlast\ufffd" == said


@pytest.mark.parametrize("words", [("show", "--json"), ("export", "--as", "json"), ("export", "--as", "toml")])
def test_what_is_printed_for_programs_does_not_act_on_a_terminal_either(tmp_path: Path, words: tuple[str, ...]) -> None:
    record = json.loads((RECORD / "record.json").read_text())
    record["halt"]["reason"] = record["build"]["version"] = HOSTILE
    folder = _run(tmp_path, RECORD.name, **record)
    said = _said(words[0], folder, *words[1:])
    assert said.isprintable() or not set(said.replace("\n", "")) & set(HOSTILE) - set("0tJ2];")
    parsed = tomllib.loads(said) if words[-1] == "toml" else json.loads(said)
    assert HOSTILE == parsed["build"]["version"]


@pytest.mark.parametrize("name", ["../..", "..", ".", "../../etc", "/"])
@pytest.mark.parametrize("command", ["show", "explain", "logs", "report", "export"])
def test_a_way_out_of_the_runs_is_no_run(tmp_path: Path, command: str, name: str) -> None:
    runs = tmp_path / "a" / "runs"
    _run(runs, RECORD.name)
    with pytest.raises(BadInput, match="is no run's folder"):
        _said(command, name, "--runs", runs)
    with pytest.raises(BadInput, match="is no run id"):
        _said("compare", name, RECORD.name, "--runs", runs)


def test_a_run_is_found_by_its_id_and_by_its_folder(tmp_path: Path) -> None:
    folder = _run(tmp_path, RECORD.name)
    assert _said("show", RECORD.name, "--runs", tmp_path) == _said("show", folder)


def test_a_run_without_events_is_one_sentence(tmp_path: Path) -> None:
    folder = _run(tmp_path, RECORD.name)
    (folder / "events.jsonl").unlink(missing_ok=True)
    with pytest.raises(BadInput, match=r"events\.jsonl: cannot be read"):
        _said("logs", RECORD.name, "--runs", tmp_path)
