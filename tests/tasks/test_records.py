"""The folder of records: over any URL, and a damaged one is told and stops nobody."""

import json
from pathlib import Path

import fsspec
import pytest

from settings.source import BadInput
from tasks.records import read_records

RECORD = json.loads((next((Path(__file__).resolve().parents[1] / "records").iterdir()) / "record.json").read_text())


def _write(root: Path, run: str, text: str | None = None, **changes: object) -> None:
    (root / run).mkdir(parents=True)
    (root / run / "record.json").write_text(text or json.dumps({**RECORD, "run_id": run, **changes}))


def test_records_come_from_the_oldest_to_the_newest(tmp_path: Path) -> None:
    _write(tmp_path, "a", started_at="2026-11-02T00:00:00Z")
    _write(tmp_path, "b", started_at="2026-11-01T00:00:00Z")
    assert ["b", "a"] == [run.run_id for run in read_records(str(tmp_path)).runs]
    assert ["a"] == [run.run_id for run in read_records(str(tmp_path), only=["a"]).runs]


def test_what_cannot_be_read_is_told_and_left_out(tmp_path: Path) -> None:
    _write(tmp_path, "good")
    _write(tmp_path, "cut", text="{")
    _write(tmp_path, "later", schema=2)
    _write(tmp_path, "odd", outcome="splendid")
    (tmp_path / "folder" / "record.json").mkdir(parents=True)
    (tmp_path / "no-record").mkdir()
    found = read_records(str(tmp_path))
    assert ["good"] == [run.run_id for run in found.runs]
    assert ["cut", "folder", "later", "odd"] == sorted(Path(s.split(": ")[0]).parent.name for s in found.damaged)


def test_a_url_is_read_as_a_folder_is(tmp_path: Path) -> None:
    _write(tmp_path, "here")
    assert ["here"] == [run.run_id for run in read_records(f"file://{tmp_path}").runs]
    memory = fsspec.filesystem("memory")
    memory.pipe("/shared/there/record.json", json.dumps(RECORD).encode())
    assert [RECORD["run_id"]] == [run.run_id for run in read_records("memory://shared").runs]


def test_an_empty_folder_has_no_runs_and_an_unknown_protocol_is_one_sentence(tmp_path: Path) -> None:
    assert ((), ()) == (read_records(str(tmp_path)).runs, read_records(str(tmp_path)).damaged)
    with pytest.raises(BadInput, match="cannot be read"):
        read_records("nosuch://bucket/runs")
