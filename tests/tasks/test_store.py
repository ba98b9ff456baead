"""The folder of a run: whole files only, no secret in any of them, and damage told in one sentence."""

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settings.source import BadInput
from tasks.pure.record import Build, Halt, HostSummary, LadderRef, RunRecord
from tasks.pure.redact import MASK, Redactor
from tasks.store import RunFolder, newest_run, read_record

RECORD = read_record(next((Path(__file__).resolve().parents[1] / "records").iterdir()))
SECRET = "hf_very_secret_value"

QUIET = "correct-horse-battery"  # no shape tells what it is
LOG = f"first\nenv HF_TOKEN={QUIET} and {QUIET}\n\nlast without an end {QUIET}".encode()


def record(reason: str = "x") -> RunRecord:
    return RunRecord(
        run_id="r1", started_at=datetime.now(UTC), target="t", ladder=LadderRef(name="l", sha256="0" * 64),
        build=Build(engine="sglang"), host=HostSummary(name="h"), lease_s=90, halt=Halt(reason=reason, by="host"),
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path, "r1", Redactor.of_env({"HF_TOKEN": SECRET, "PATH": "/usr/bin"}))


def test_a_record_reads_back_and_the_report_lies_beside_it(folder: RunFolder) -> None:
    written = record()
    folder.write_record(written)
    assert read_record(folder.path) == written
    assert folder.report_path.read_text().startswith("# ")
    assert newest_run(folder.path.parent) == folder.path


def test_no_secret_reaches_a_file(folder: RunFolder) -> None:
    folder.write_record(record(f"refused {SECRET}"))
    folder.append_log(folder.log_path(1, "auto"), f"token {SECRET}\n".encode())
    folder.write_raw("1.jsonl", f'{{"key": "{SECRET}"}}\n'.encode())
    texts = [p.read_text() for p in folder.path.rglob("*") if p.is_file()]
    assert len(texts) == 4
    assert [t for t in texts if SECRET in t] == []
    assert [t for t in texts if "<secret>" not in t and "&lt;secret&gt;" not in t] == []
    assert [t for t in texts if SECRET.replace("_", "\\_") in t] == []


def test_a_write_that_fails_leaves_the_old_record_and_no_litter(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_record(record("first"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        folder.write_record(record("second"))
    monkeypatch.undo()
    kept = read_record(folder.path).halt
    assert kept is not None
    assert kept.reason == "first"
    assert [p.name for p in folder.path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize(("text", "says"), [("{", "is no record of schema 1"), ('{"schema": 2}', "schema")])
def test_a_damaged_record_is_one_sentence(folder: RunFolder, text: str, says: str) -> None:
    folder.record_path.write_text(text)
    with pytest.raises(BadInput, match=says) as caught:
        read_record(folder.path)
    assert str(folder.record_path) in str(caught.value)


def test_a_folder_without_runs_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="bringup rehearse"):
        newest_run(tmp_path)


@given(st.lists(st.integers(0, len(LOG)), max_size=8))
def test_a_log_is_the_same_however_it_is_cut_and_holds_no_secret(tmp_path_factory: object, cuts: list[int]) -> None:
    folder = RunFolder(tmp_path_factory.mktemp("cuts"), "r", Redactor([QUIET]))  # type: ignore[attr-defined]
    path = folder.log_path(1, "auto")
    places = [0, *sorted(cuts), len(LOG)]
    for start, end in pairwise(places):
        folder.append_log(path, LOG[start:end])
    assert LOG.replace(QUIET.encode(), MASK.encode()) == path.read_bytes()


def test_what_has_come_of_a_line_is_in_the_file_at_once(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "r", Redactor())
    folder.append_log(folder.log_path(1, "auto"), b"a line\nhalf")
    assert folder.log_path(1, "auto").read_bytes() == b"a line\nhalf"


def test_record_report_and_page_hold_no_secret_and_the_record_reads_back(tmp_path: Path) -> None:
    rung = RECORD.attempts[0]
    planted = rung.model_copy(update={"argv": (*rung.argv, "--x", QUIET), "asked": {"x": f"<{QUIET}>"}})
    folder = RunFolder(tmp_path, "r", Redactor([QUIET]))
    written = folder.write_record(RECORD.model_copy(update={"attempts": (planted,)}))
    folder.write_page(written)
    raw = folder.write_raw("1.jsonl", f'{{"api_key": "{QUIET}"}}'.encode())
    assert (folder.path / raw.path).read_bytes() == b'{"api_key": "<secret>"}'
    assert read_record(folder.path) == written
    files = [p for p in folder.path.rglob("*") if p.is_file()]
    assert len(files) == 4
    assert [] == [p.name for p in files if QUIET in p.read_text()]
    assert written.attempts[0].argv[-1] == MASK
